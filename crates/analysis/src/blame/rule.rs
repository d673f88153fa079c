//! The rule by which lost time is charged, as the head of [`blame`](super) states it.

use super::account::Account;
use super::table::{Moment, Table};

/// Below this share of taken pages among those allocated, part of the time is charged by what is held. Where
/// nine pages of ten only come back to the payer, its working set does not fit, and a trickle of other pages
/// evicts little of what comes back. Guessed; smaller, a trickle is blamed for all of it.
const LITTLE_TAKEN: f64 = 0.10;

/// What was taken from one payer, up to an interval.
struct Taken {
    /// Pages by actor that it took and did not give back, as far as both were seen; fewer than none where the
    /// payer has given back more than it took.
    seen: Vec<f64>,
    /// The same, but no fewer than the actor's memory has grown by.
    by: Vec<f64>,
    /// All pages by actor that it allocated, as far as that was seen, and those that it faulted in.
    allocated_by: Vec<f64>,
    faulted_in: Vec<f64>,
    /// Pages by actor that it gave back, and that nobody has allocated again.
    given_back: Vec<f64>,
    allocated: f64,
}

impl Taken {
    fn nothing(actors: usize) -> Taken {
        let none = vec![0.0; actors];
        Taken {
            seen: none.clone(),
            by: none.clone(),
            allocated_by: none.clone(),
            faulted_in: none.clone(),
            given_back: none,
            allocated: 0.0,
        }
    }

    /// Adds what the payer took of itself in an interval, fewer pages than none where it gave back more.
    fn add_own(&mut self, payer: usize, pages: f64) {
        self.seen[payer] += pages;
        self.by[payer] = self.seen[payer];
    }

    /// Adds what another actor took in an interval, and returns by how much it has more than before. What it
    /// gives back beyond that it had before the watch began.
    ///
    /// The kernel counts what an actor holds and its faults, while what it took is an estimate. An actor that
    /// holds `grown` pages more than in the first interval took at least that many, or all that it allocated
    /// or faulted in if those are fewer: a fork seems to hold all that its parent has.
    fn add(&mut self, actor: usize, moment: &Moment, grown: f64) -> f64 {
        self.allocated_by[actor] += moment.toll.allocated as f64;
        self.faulted_in[actor] += moment.minor_faults as f64;
        self.seen[actor] = (self.seen[actor] + moment.took()).max(0.0);
        let before = self.by[actor];
        let most = self.allocated_by[actor].max(self.faulted_in[actor]);
        self.by[actor] = self.seen[actor].max(grown.min(most));
        let older = -moment.took() - before;
        self.given_back[actor] += (before - self.by[actor]).max(0.0) + older.max(0.0);
        self.by[actor] - before
    }

    /// What each actor took, and has not given back or nobody has allocated again: who comes back to the room
    /// that a program left had lost it to that program.
    fn kept(&self) -> Vec<f64> {
        self.by.iter().zip(&self.given_back).map(|(pages, given_back)| pages.max(0.0) + given_back).collect()
    }

    /// Pages that were allocated fill the room that was given back.
    fn allocate(&mut self, pages: f64) {
        self.allocated += pages;
        let room = self.given_back.iter().sum::<f64>();
        let left = if room > pages { 1.0 - pages / room } else { 0.0 };
        self.given_back.iter_mut().for_each(|given_back| *given_back *= left);
    }
}

/// Charges what the payers lost in each interval to their accounts. `room` is the machine's memory in pages,
/// if it is known.
pub(super) fn charge(table: &Table, room: Option<f64>, accounts: &mut [Account]) {
    let actors = table.actors.len();
    let mut so_far: Vec<Taken> = accounts.iter().map(|_| Taken::nothing(actors)).collect();
    let mut held_at_first: Option<Vec<f64>> = None;
    for moments in table.dense() {
        let held: Vec<f64> = moments.iter().map(|moment| moment.toll.held as f64).collect();
        let held_at_first = held_at_first.get_or_insert_with(|| held.clone());
        for (account, so_far) in accounts.iter_mut().zip(&mut so_far) {
            let payer = account.payer();
            let (mut taken, mut held) = (vec![0.0; actors], held.clone());
            let mut allocated = 0.0;
            for (index, moment) in moments.iter().enumerate() {
                if !table.share_a_limit(index, payer) {
                    held[index] = 0.0;
                    continue;
                }
                allocated += moment.toll.allocated as f64;
                taken[index] = if index == payer {
                    so_far.add_own(payer, moment.own());
                    moment.own().max(0.0)
                } else {
                    let more = so_far.add(index, moment, held[index] - held_at_first[index]);
                    moment.took().max(more).max(0.0)
                };
            }
            // What others do not hold is the payer's to live in: its own working set does not fit there.
            if table.has_no_limit(payer)
                && let Some(room) = room
            {
                let others = held.iter().sum::<f64>() - held[payer];
                held[payer] = held[payer].max(room - others);
            }
            let kept = so_far.kept();
            so_far.allocate(allocated);
            let alpha = alpha(kept.iter().sum(), so_far.allocated);
            // In an interval in which nobody took anything, memory is short because of those who did before.
            let just_then = if taken.iter().sum::<f64>() > 0.0 { &taken } else { &kept };
            let of_direct = weights(just_then, &held, alpha);
            let of_refaults = weights(&kept, &held, alpha);
            let lost = moments[payer];
            account.add([
                (lost.direct_ns() as f64, of_direct.as_slice()),
                (lost.refault_ns() as f64, of_refaults.as_slice()),
            ]);
        }
    }
}

/// The part of lost time that is charged by taken pages; the rest is charged by what is held.
pub(super) fn alpha(taken: f64, allocated: f64) -> f64 {
    if allocated > 0.0 { (taken / allocated / LITTLE_TAKEN).min(1.0) } else { 0.0 }
}

/// The share of each actor, and last the unknown one; they sum to 1. `alpha` of it is charged by what was
/// taken, the rest by what is held. Where all of one are zero, the other has all of it.
pub(super) fn weights(taken: &[f64], held: &[f64], alpha: f64) -> Vec<f64> {
    let (all_taken, all_held) = (taken.iter().sum::<f64>(), held.iter().sum::<f64>());
    let by_taken = match (all_taken > 0.0, all_held > 0.0) {
        (true, true) => alpha,
        (true, false) => 1.0,
        (false, true) => 0.0,
        (false, false) => {
            let nobody = taken.iter().map(|_| 0.0);
            return nobody.chain([1.0]).collect();
        }
    };
    let share = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
    let each = taken
        .iter()
        .zip(held)
        .map(|(taken, held)| by_taken * share(*taken, all_taken) + (1.0 - by_taken) * share(*held, all_held));
    each.chain([0.0]).collect()
}
