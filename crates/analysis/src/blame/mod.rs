//! Blame: who lost time to memory in a run, how much, and who took the memory.
//!
//! ```text
//! &Run ──▶ Table (actors by interval) ──▶ Cost of each actor ──▶ Payers, above a floor
//!                        └──▶ rule: weights of each interval ──▶ Charges of each payer, sum 1
//! ```
//!
//! Rows of the model, of the lab and of a live host are judged alike: nothing but the run's rows counts. Only
//! intervals inside the part that the scenario measures are looked at; all of them where it names none.
//!
//! # The rule
//!
//! Programs that share a limit are judged among themselves: a role that is a path (`/db`) names the control
//! group whose limit its actor met, every other role is of the whole machine.
//!
//! - `took(i, t) = allocated − returned` are the pages that actor `i` took in interval `t` and did not
//!   give back itself. What it brought back after an eviction is part of that: to everybody else it is one
//!   more page that has to go.
//! - `own(v, t) = allocated − returned − refaults` is what a payer `v` took of itself. Otherwise a
//!   program that only comes back for what others pushed out would be its own culprit.
//! - Direct reclaim and compaction of `v` in `t` are charged by `took(·, t)` of the others and `own(v, t)`:
//!   `v` made room because memory was taken just then.
//! - Waits of `v` in `t` for pages that come back (thrashing, swap-in) are charged by the sums of both up to
//!   and with `t`: those pages were evicted earlier. Who gives back what it took lets them return: the sum
//!   shrinks again, but only as others allocate the room that was left, and what returns to that room is
//!   charged to who left it. No sum but the payer's falls below 0: what an actor gives back beyond what it
//!   took it had before, and left the same room. The sum of an actor is also at least the pages that it holds
//!   more than in the first interval, `held(i, t) − held(i, 0)`, but for those that it neither allocated nor
//!   faulted in: the kernel counts what an actor holds, while what it took is estimated from samples.
//! - Where little is taken, memory is full of what is held. Of
//!   `alpha = min(1, (Σ taken / Σ allocated) / LITTLE_TAKEN)`, up to `t`, the first part is charged
//!   as above, the rest by `held(i, t) / Σ held(·, t)`: a working set that does not fit beside memory
//!   that others hold. Of the whole machine's memory `v` is taken to hold what others do not.
//! - Where nothing that is taken is known, all of it is charged by what is held, and the other way round;
//!   where neither is known, to [`Who::Unknown`].
//! - What rows without a name took (allocations in interrupts, processes that ended unseen) was taken by
//!   [`Who::Unknown`].
//!
//! What falls on `v` is [`Who::Itself`].
//!
//! # What it cannot tell
//!
//! Memory that was taken before the first interval shows only as held, and page cache is not held. Where two
//! culprits would each suffice, the shares say who took, not who alone would have sufficed. The error of a
//! share is the spread over the intervals, not the error of the rule.

mod account;
mod rule;
mod table;
#[cfg(test)]
mod tests;

use lotsfree_kernel_files::counters::meminfo;
use lotsfree_run::{Run, RunOn, Spent, Toll, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::view::busy;
use account::Account;
use table::{Actor, Moment, Table};

/// An actor that lost less than this share of its awake time paid nothing worth a name: one point is what a
/// paired measurement of the undisturbed program can still tell from none. Guessed.
pub const FLOOR_SHARE: f64 = 0.01;
/// An actor that lost less than this paid nothing worth a name, in nanoseconds: one tick of `/proc/PID/stat`
/// (`USER_HZ` is 100), below which its awake time is no measure.
pub const FLOOR_NS: u64 = 10_000_000;

/// Who lost time to memory, how much, and who took the memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Blame {
    /// Length of the part of the run that was looked at, in seconds.
    pub seconds: f64,
    /// Number of intervals in it.
    pub intervals: usize,
    /// Number of actors that were looked at.
    pub actors: usize,
    /// Whether the rows say what memory cost and who took it; `false` for runs of versions before this, and
    /// of machines that cannot tell. Then direct reclaim alone is known.
    pub is_toll_known: bool,
    /// The share of the pages taken that rows without a name took.
    pub unseen: f64,
    /// Actors that lost time, or the one that was asked for if it did; worst first.
    pub payers: Vec<Payer>,
    /// Actors that lost less than the floor, or the one that was asked for; worst first.
    pub spared: Vec<Cost>,
    /// All actors that took or hold memory; those that cost the payers most first.
    pub takers: Vec<Taker>,
}

/// What memory cost one actor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// The actor.
    pub actor: String,
    /// The control group whose limit it met; empty for the whole machine.
    pub limited_by: String,
    /// Nanoseconds that its threads were not asleep by their own wish, on a CPU or waiting.
    pub awake_ns: u64,
    /// Nanoseconds of them lost to memory: the sum of the parts that are known.
    pub lost_ns: u64,
    /// The lost time as a share of the awake time.
    pub lost: f64,
    /// The parts of the lost time.
    pub parts: Parts,
    /// Pages that it read or swapped in again after they were evicted; `null` where not known.
    pub refaults: Option<u64>,
}

/// Parts of lost time, as shares of the awake time; `null` where not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parts {
    /// Waiting for pages of files that had been in memory and were evicted.
    pub thrashing: Option<f64>,
    /// Reclaiming pages for its own allocations (direct and node reclaim).
    pub reclaim: f64,
    /// Compacting memory for its own allocations.
    pub compaction: Option<f64>,
    /// Waiting for pages to be swapped in.
    pub swap_in: Option<f64>,
}

impl Parts {
    /// The parts in the order in which they are told, with their names.
    pub fn named(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("thrashing", self.thrashing),
            ("reclaim", Some(self.reclaim)),
            ("compaction", self.compaction),
            ("swap-in", self.swap_in),
        ]
    }
}

/// An actor that lost time, and whom its loss is charged to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Payer {
    /// What memory cost it.
    #[serde(flatten)]
    pub cost: Cost,
    /// Who took, largest share first, then always `itself` and `unknown`. The shares sum to exactly 1.
    pub taken_by: Vec<Charge>,
}

/// A share of what a payer lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Charge {
    /// Who took.
    pub who: Who,
    /// The share, from 0 to 1.
    pub share: f64,
    /// Standard error of the share, from the spread over intervals; `null` with fewer than two intervals in
    /// which anything was lost.
    pub error: Option<f64>,
}

/// Whom lost time is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Another actor.
    Actor(String),
    /// The payer.
    Itself,
    /// Nobody that the rows tell of.
    Unknown,
}

/// What one actor took. Memory is in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Taker {
    /// The actor.
    pub actor: String,
    /// Nanoseconds that the payers lost and that are charged to it; its own loss is left out.
    pub cost_ns: u64,
    /// Memory that it allocated.
    pub allocated_bytes: u64,
    /// Memory that it gave back itself, by unmapping, truncating or exiting.
    pub returned_bytes: u64,
    /// Allocated less returned; negative if it gave back more.
    pub net_bytes: i64,
    /// Memory that it took beyond bringing back what it had lost.
    pub new_bytes: u64,
    /// Pages that it brought back.
    pub refaults: u64,
    /// Memory that reclaim cannot drop without swap, at the end of the last interval that tells of it.
    pub held_bytes: u64,
}

impl Blame {
    /// Who lost time in a run, or what happened to one actor of it.
    pub fn of(run: &Run, payer: Option<&str>) -> Self {
        let part = run.facts().measure.window.unwrap_or(Window { from: 0, to: u64::MAX });
        let table = Table::of(run, part);
        let is_toll_known = table.totals.iter().any(|total| total.toll != Toll::default());
        let mut costs: Vec<(usize, Cost)> = (table.totals.iter().enumerate())
            .filter(|(index, _)| !table.is_nobody(*index))
            .map(|(index, total)| (index, Cost::of(&table.actors[index], total, is_toll_known)))
            .filter(|(_, cost)| payer.is_none_or(|payer| payer == cost.actor))
            .collect();
        costs.sort_by(|(_, a), (_, b)| b.lost_ns.cmp(&a.lost_ns).then_with(|| a.actor.cmp(&b.actor)));
        let (paid, spared): (Vec<_>, Vec<_>) = costs.into_iter().partition(|(_, cost)| cost.is_loss());
        let mut accounts: Vec<Account> =
            paid.iter().map(|(index, _)| Account::new(*index, table.actors.len())).collect();
        rule::charge(&table, room(run), &mut accounts);
        let takers = takers(&table, &accounts, page_size(run));
        let payer = |((_, cost), account): ((usize, Cost), &Account)| Payer {
            cost,
            taken_by: account.charges(&table),
        };
        Blame {
            seconds: table.seconds(),
            intervals: table.moments.len(),
            actors: (0..table.actors.len()).filter(|index| !table.is_nobody(*index)).count(),
            is_toll_known,
            unseen: unseen(&table),
            payers: paid.into_iter().zip(&accounts).map(payer).collect(),
            spared: spared.into_iter().map(|(_, cost)| cost).collect(),
            takers,
        }
    }
}

impl Blame {
    /// What memory cost each actor, above the floor or not.
    pub(crate) fn costs(self) -> Vec<Cost> {
        let Blame { payers, spared, .. } = self;
        payers.into_iter().map(|payer| payer.cost).chain(spared).collect()
    }
}

impl Cost {
    fn of(actor: &Actor, total: &Moment, is_toll_known: bool) -> Self {
        let lost_ns = total.direct_ns().saturating_add(total.refault_ns());
        // Delays and CPU time are counted apart, so that a short-lived program's delays may exceed its time.
        let awake_ns = (busy(&total.spent) as u64).max(lost_ns);
        let share = |ns: u64| if awake_ns == 0 { 0.0 } else { ns as f64 / awake_ns as f64 };
        let known = |ns: u64| is_toll_known.then(|| share(ns));
        let (Spent { reclaim, .. }, Toll { thrashing, swap_in, compaction, refaults, .. }) =
            (total.spent, total.toll);
        Cost {
            actor: actor.name.to_string(),
            limited_by: actor.limit.to_string(),
            awake_ns,
            lost_ns,
            lost: share(lost_ns),
            parts: Parts {
                thrashing: known(thrashing),
                reclaim: share(reclaim),
                compaction: known(compaction),
                swap_in: known(swap_in),
            },
            refaults: is_toll_known.then_some(refaults),
        }
    }

    /// Whether the loss is worth a name.
    fn is_loss(&self) -> bool {
        self.lost_ns >= FLOOR_NS && self.lost >= FLOOR_SHARE
    }
}

fn page_size(run: &Run) -> u64 {
    match run.facts().page_size {
        0 => 4096,
        bytes => bytes,
    }
}

/// All actors that took or hold memory, with what they cost the payers.
fn takers(table: &Table, accounts: &[Account], page: u64) -> Vec<Taker> {
    let taker = |(index, total): (usize, &Moment)| {
        let Toll { allocated, returned, refaults, held, .. } = total.toll;
        let cost: f64 = accounts.iter().map(|account| account.charged_by_another(index)).sum();
        let bytes = |pages: u64| pages.saturating_mul(page);
        let (taken, given) = (bytes(allocated).cast_signed(), bytes(returned).cast_signed());
        let is_shown = !table.is_nobody(index) && (allocated > 0 || returned > 0 || held > 0);
        is_shown.then(|| Taker {
            actor: table.actors[index].name.to_string(),
            cost_ns: cost.round() as u64,
            allocated_bytes: bytes(allocated),
            returned_bytes: bytes(returned),
            net_bytes: taken.saturating_sub(given),
            new_bytes: bytes(total.own().max(0.0) as u64),
            refaults,
            held_bytes: bytes(held),
        })
    };
    let mut takers: Vec<Taker> = table.totals.iter().enumerate().filter_map(taker).collect();
    takers.sort_by(|a, b| {
        let by_cost = b.cost_ns.cmp(&a.cost_ns).then(b.new_bytes.cmp(&a.new_bytes));
        by_cost.then(b.held_bytes.cmp(&a.held_bytes)).then_with(|| a.actor.cmp(&b.actor))
    });
    takers
}

/// The machine's memory in pages; `None` if the run does not tell, and in a control group, whose limit is
/// another.
fn room(run: &Run) -> Option<f64> {
    let facts = run.facts();
    let total = run.samples().get(0)?.meminfo.get(meminfo::MemTotal)?;
    let is_whole = facts.machine != RunOn::Cgroup && facts.page_size > 0;
    is_whole.then(|| total as f64 * 1024.0 / facts.page_size as f64)
}

/// The share of the pages taken that rows without a name took.
fn unseen(table: &Table) -> f64 {
    let took = |index: &usize| table.totals[*index].took().max(0.0);
    let all: f64 = (0..table.actors.len()).map(|index| took(&index)).sum();
    let nobody: f64 =
        (0..table.actors.len()).filter(|index| table.is_nobody(*index)).map(|index| took(&index)).sum();
    if all > 0.0 { nobody / all } else { 0.0 }
}
