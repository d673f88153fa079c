//! [`explain`]: which mechanism made the difference, in a sentence.
//!
//! Only measured figures count: the time per request and what it went to, against the undisturbed part of the
//! same run; what reclaim scanned, freed and swapped; and the same of the run that is compared with. The
//! thresholds are the constants below. A run that is slower without a cause that passes these is said to be
//! unexplained.
//!
//! A sentence about requests looks at their percentiles as well (`tail`), against the undisturbed part or,
//! where the scenario names none, against the other run. What it says of reclaim is of the measured part,
//! and it says so where the rest of the run was different ([`Outside`]).

mod alike;
mod tail;

use lotsfree_run::{EventKind, Moved, Run, RunOn};
use lotsfree_units::words::{counted, duration, enumeration};
use lotsfree_units::{Bytes, Grouped, Percent};
use serde::Serialize;

use crate::view::{Comparison, View, Work, busy};
pub use alike::all_alike;
use tail::{Percentiles, Tail};

/// Throughputs closer than this are the same; above 1 minus this it is undisturbed.
const RATE_NOISE: f64 = 0.03;
/// A throughput above this share of the undisturbed one is no gain: something slowed the undisturbed part.
pub(crate) const FASTER: f64 = 1.05;
/// Counts closer than this, or than [`FEW`], are the same.
const COUNT_NOISE: f64 = 0.10;
/// Fewer pages or faults than this are no cause of anything: 1 MiB in pages of 4 KiB.
const FEW: u64 = 256;
/// A wait is a cause if it has grown by this share of the time that a request takes now.
const CAUSE: f64 = 0.10;
/// With more pages scanned per entry into direct reclaim, zone reclaim scanned them. An entry into direct
/// reclaim scans 32 pages of each list (`SWAP_CLUSTER_MAX`) and priority; zone reclaim is no such entry
/// (`mm/vmscan.c:__zone_reclaim`, `__node_reclaim` count no `allocstall`).
const PER_ENTRY: u64 = 10_000;

/// Who scanned less than this part of what the others did is not named.
const MINOR: f64 = 0.1;

/// What made the difference in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sentence {
    /// Which mechanism.
    pub mechanism: Mechanism,
    /// The sentence, without the run's name and without a full stop.
    pub text: String,
}

/// Mechanisms that a [`Sentence`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mechanism {
    /// There is nothing to judge by.
    Unmeasured,
    /// All that is measured is as in the run that is compared with.
    Alike,
    /// The OOM killer ended an actor.
    OomKill,
    /// The kernel refused memory that was asked for.
    Refused,
    /// Tasks reclaimed on the node that they allocate on, because `vm.zone_reclaim_mode` is set.
    ZoneReclaim,
    /// Anonymous memory was swapped out and had to come back.
    Swap,
    /// Mapped or cached file pages were reclaimed and had to be read again.
    FileReread,
    /// Tasks reclaimed before they got a page.
    DirectReclaim,
    /// Writers waited for writeback.
    DirtyLimit,
    /// The kernel held tasks back, and the counters do not tell whether for the dirty limit or for reclaim.
    Throttled,
    /// The control group met its limit, and its tasks reclaimed.
    GroupLimit,
    /// Requests waited for a device that others kept busy; nothing had to be read because of reclaim.
    Device,
    /// Requests waited for a CPU.
    Cpu,
    /// Requests took more CPU time in the kernel, reclaim left out.
    System,
    /// Nothing was reclaimed, while the run that is compared with reclaimed.
    NothingReclaimed,
    /// Only pages of the file cache were reclaimed, at no cost in throughput.
    CacheOnly,
    /// Anonymous memory was swapped out, at no cost in throughput in the part that is measured.
    SwapUnnoticed,
    /// Nothing happened.
    Undisturbed,
    /// It is slower, and nothing that is measured says why.
    Unexplained,
}

impl Mechanism {
    /// A word or two for it, beside a number of runs.
    fn name(self) -> &'static str {
        match self {
            Mechanism::Unmeasured => "nothing measured",
            Mechanism::Alike => "no difference",
            Mechanism::OomKill => "the OOM killer",
            Mechanism::Refused => "refused memory",
            Mechanism::ZoneReclaim => "zone reclaim",
            Mechanism::Swap => "swapping that cost time",
            Mechanism::FileReread => "file pages read again",
            Mechanism::DirectReclaim => "direct reclaim",
            Mechanism::DirtyLimit => "the dirty limit",
            Mechanism::GroupLimit => "the group's limit",
            Mechanism::Throttled => "throttling by the kernel",
            Mechanism::Device => "waits for devices",
            Mechanism::Cpu => "waits for a CPU",
            Mechanism::System => "the kernel's own work",
            Mechanism::NothingReclaimed | Mechanism::Undisturbed => "nothing reclaimed",
            Mechanism::CacheOnly => "only file cache reclaimed",
            Mechanism::SwapUnnoticed => "swapping at no cost in throughput",
            Mechanism::Unexplained => "slower without a cause that is measured",
        }
    }
}

/// Says which mechanism made the difference in `run`, against its own undisturbed part and against
/// `baseline`. Where `baseline` is the run itself, only the former counts. The module says how it is decided.
pub fn explain(run: &Run, baseline: &Run) -> Sentence {
    if std::ptr::eq(run, baseline) {
        let comparison = Comparison::of(std::slice::from_ref(run));
        let view = comparison.views.first();
        return view.map_or_else(unmeasured, |view| judge(&Account::of(view), &Others::default()));
    }
    let (run, baseline) =
        (Comparison::of(std::slice::from_ref(run)), Comparison::of(std::slice::from_ref(baseline)));
    match (run.views.first(), baseline.views.first()) {
        (Some(view), Some(base)) => {
            judge(&Account::of(view), &Others { base: Some(Account::of(base)), beside: None })
        }
        _ => unmeasured(),
    }
}

/// The sentence of a run in a comparison.
pub fn of_view<'r>(view: &View<'r>, comparison: &Comparison<'r>) -> Sentence {
    let base = comparison.baseline(view).map(Account::of);
    let beside = match base {
        Some(_) => None,
        None => comparison.beside(view).map(Account::of),
    };
    judge(&Account::of(view), &Others { base, beside })
}

/// The figure that stands for a run before its sentence.
#[derive(Clone, Debug, PartialEq)]
pub enum Headline {
    /// Throughput as a share of the undisturbed one.
    Throughput(f64),
    /// The percentile that differs from the undisturbed part, or that none does: where requests begin at a
    /// given rate, their number stays the same whatever each of them meets.
    Latency(String),
}

/// The figure before a run's sentence; `None` where no part is undisturbed.
pub fn headline(view: &View<'_>) -> Option<Headline> {
    let relative = view.relative()?;
    if !view.has_rate || relative < 1.0 - RATE_NOISE {
        return Some(Headline::Throughput(relative));
    }
    let undisturbed = || view.all().filter_map(|one| one.undisturbed.as_ref());
    let of = |work: &Work| Percentiles::of(&work.latency);
    let now: Vec<Percentiles> = view.all().map(|one| of(&one.work)).collect();
    let before: Vec<Percentiles> = undisturbed().map(of).collect();
    Some(Headline::Latency(tail::headline(&now, &before)))
}

/// What a run is compared with.
#[derive(Debug, Default)]
struct Others {
    /// The first run; `None` for that run itself.
    base: Option<Account>,
    /// Of the first run, the one after it: latencies are compared with it where no part is undisturbed.
    beside: Option<Account>,
}

/// What reclaim did before the measured part and after it, in pages.
#[derive(Clone, Debug, Default)]
struct Outside {
    /// Length of the measured part.
    seconds: f64,
    freed_before: u64,
    freed_after: u64,
    swapped_out_before: u64,
}

impl Outside {
    /// `None` if the scenario measures the whole run.
    fn of(view: &View<'_>) -> Option<Self> {
        let (before, after) = view.outside.as_ref()?;
        let window = view.figures().window;
        Some(Outside {
            seconds: window.to.saturating_sub(window.from) as f64 / 1e9,
            freed_before: freed(before),
            freed_after: freed(after),
            swapped_out_before: count(before.swap_out),
        })
    }
}

/// The most actors that a sentence names as ended by the OOM killer.
const MOST_KILLED: usize = 4;

/// What the OOM killer ended, by the actors of the processes, if they are known.
fn ended(kills: u64, actors: &[String]) -> String {
    let mut names: Vec<String> = Vec::new();
    for actor in actors {
        if !names.contains(actor) {
            names.push(actor.clone());
        }
    }
    let processes = if kills == 1 { "a process".to_owned() } else { format!("{kills} processes") };
    match names.as_slice() {
        [] => processes,
        [one] if actors.len() > 1 => format!("{processes} of {one}"),
        [first, ..] if names.len() > MOST_KILLED => format!("{processes}, the first of {first}"),
        names => enumeration(names),
    }
}

/// The actors that the OOM killer ended, in their order; none where a kill names no actor.
fn killed(view: &View<'_>) -> Vec<String> {
    let kills = view.run.events().iter().filter(|event| event.kind == EventKind::OomKill);
    kills.map(|event| event.actor.clone()).collect::<Option<_>>().unwrap_or_default()
}

/// The figures that a sentence follows from.
#[derive(Clone, Debug, Default)]
struct Account {
    label: String,
    /// The part that counts.
    work: Work,
    undisturbed: Option<Work>,
    moved: Moved,
    outside: Option<Outside>,
    page: f64,
    oom_kills: u64,
    /// The actors that the OOM killer ended, in their order.
    killed: Vec<String>,
    /// `vm.zone_reclaim_mode` is set.
    zone_reclaim: bool,
    /// Bytes of huge pages of which nobody uses one.
    idle_pool: Option<f64>,
    /// Actors that pass by the page cache.
    direct: Vec<String>,
    /// Whether two samples at least are there.
    sampled: bool,
    /// Further runs of the same thing.
    repeats: Vec<Account>,
    /// The run was in a control group, whose own counters these are.
    in_group: bool,
    /// The model executed it.
    on_model: bool,
    /// The seconds of the run at which the part that counts would have begun, if the run ended before.
    unreached: Option<f64>,
}

impl Account {
    fn of(view: &View<'_>) -> Self {
        Account {
            label: view.label.clone(),
            work: view.work.clone(),
            undisturbed: view.undisturbed.clone(),
            moved: view.figures().moved,
            outside: Outside::of(view),
            page: view.page(),
            oom_kills: view.summary.oom_kills,
            killed: killed(view),
            zone_reclaim: view.zone_reclaim(),
            idle_pool: view.idle_pool(),
            direct: view.direct.clone(),
            sampled: view.run.samples().len() > 1,
            repeats: view.repeats.iter().map(Account::of).collect(),
            in_group: view.run.facts().machine == RunOn::Cgroup,
            on_model: view.run.facts().machine == RunOn::Model,
            unreached: view.unreached(),
        }
    }

    /// The run and its repeats.
    fn all(&self) -> impl Iterator<Item = &Account> + Clone {
        std::iter::once(self).chain(&self.repeats)
    }

    fn relative(&self) -> Option<f64> {
        let before = self.undisturbed.as_ref()?.per_second().filter(|before| *before > 0.0)?;
        Some(self.work.per_second()? / before)
    }

    fn is_measured(&self) -> bool {
        self.work.operations > 0 || self.sampled
    }

    fn bytes(&self, pages: u64) -> Bytes {
        Bytes((pages as f64 * self.page) as u64)
    }

    fn scanned(&self) -> u64 {
        count(self.moved.direct_scan).saturating_add(count(self.moved.kswapd_scan))
    }

    fn freed(&self) -> u64 {
        freed(&self.moved)
    }

    fn major_faults(&self) -> u64 {
        if self.work.major_faults > 0 { self.work.major_faults } else { count(self.moved.major_faults) }
    }

    /// Who looked for pages: `kswapd`, `tasks`, `tasks and kswapd`.
    fn reclaimer(&self) -> &'static str {
        let (direct, kswapd) = (count(self.moved.direct_scan), count(self.moved.kswapd_scan));
        match (direct as f64, kswapd as f64) {
            (direct, kswapd) if direct < MINOR * kswapd => "kswapd",
            (direct, kswapd) if kswapd < MINOR * direct => "tasks themselves",
            _ => "tasks and kswapd",
        }
    }

    /// The percentiles of the run and its repeats.
    fn percentiles(&self) -> Vec<Percentiles> {
        self.all().map(|one| Percentiles::of(&one.work.latency)).collect()
    }

    /// Its percentiles against those of the undisturbed part, else of another run.
    fn tail(&self, others: &Others) -> Tail {
        let before = self.all().filter_map(|one| one.undisturbed.as_ref());
        let before: Vec<Percentiles> = before.map(|work| Percentiles::of(&work.latency)).collect();
        if !before.is_empty() {
            return tail::compare(&self.percentiles(), &before, "before");
        }
        match others.base.as_ref().or(others.beside.as_ref()) {
            Some(other) => {
                tail::compare(&self.percentiles(), &other.percentiles(), &format!("with {}", other.label))
            }
            None => Tail::Unknown,
        }
    }

    /// What was reclaimed outside of the measured part: `before it 186 GiB were`; `None` if next to nothing.
    fn reclaimed_outside(&self) -> Option<String> {
        let outside = self.outside.as_ref()?;
        let (before, after) = (outside.freed_before, outside.freed_after);
        match (before >= FEW, after >= FEW) {
            (true, true) => {
                Some(format!("before it {} were, after it {}", self.bytes(before), self.bytes(after)))
            }
            (true, false) => Some(format!("before it {} were", self.bytes(before))),
            (false, true) => Some(format!("after it {} were", self.bytes(after))),
            (false, false) => None,
        }
    }
}

/// Pages that tasks and kswapd freed.
fn freed(moved: &Moved) -> u64 {
    count(moved.direct_steal).saturating_add(count(moved.kswapd_steal))
}

fn count(counter: Option<u64>) -> u64 {
    counter.unwrap_or(0)
}

fn unmeasured() -> Sentence {
    said(Mechanism::Unmeasured, "nothing was measured".to_owned())
}

fn said(mechanism: Mechanism, text: String) -> Sentence {
    Sentence { mechanism, text }
}

/// A wait of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    System,
    Reclaim,
    Throttled,
    Device,
    Cpu,
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Wait::System => "the kernel's own work",
            Wait::Reclaim => "reclaim",
            Wait::Throttled => "being held back by the kernel",
            Wait::Device => "waiting for devices",
            Wait::Cpu => "waiting for a CPU",
        }
    }
}

/// The wait that has grown most since the undisturbed part, and the share of a request's time that it takes
/// now; `None` if none has grown by [`CAUSE`]. Without an undisturbed part, all of a wait counts as growth,
/// except time on a CPU.
fn grown(work: &Work, undisturbed: Option<&Work>) -> Option<(Wait, f64)> {
    let per_request = |work: &Work| {
        let spent = work.spent;
        let requests = (work.operations.max(1)) as f64;
        [
            (Wait::System, spent.system),
            (Wait::Reclaim, spent.reclaim),
            (Wait::Throttled, spent.throttled),
            (Wait::Device, spent.io),
            (Wait::Cpu, spent.runnable),
        ]
        .map(|(wait, ns)| (wait, ns as f64 / requests))
    };
    let now = per_request(work);
    let before = undisturbed.map(per_request);
    let whole = busy(&work.spent) / work.operations.max(1) as f64;
    if whole <= 0.0 {
        return None;
    }
    let growth = now.into_iter().enumerate().map(|(i, (wait, ns))| {
        let was = match &before {
            Some(before) => before.get(i).map_or(0.0, |(_, ns)| *ns),
            // Work of the kernel and waking up are part of every request; only their growth says something.
            None if matches!(wait, Wait::System | Wait::Cpu) => ns,
            None => 0.0,
        };
        (wait, (ns - was) / whole, ns / whole)
    });
    let most = growth.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 >= CAUSE).then_some((most.0, most.2))
}

/// Decides. Pure: the accounts are all that it knows. Of repeats, the first one of those tells that came
/// out as most did.
fn judge(run: &Account, others: &Others) -> Sentence {
    if let Some(base) = &others.base
        && let Some(near) = alike::nearness(run, base)
    {
        return said(Mechanism::Alike, format!("not distinguishable from {}: {}", base.label, near.text()));
    }
    let tail = run.tail(others);
    let base = |index: usize| others.base.as_ref().and_then(|base| base.all().nth(index).or(Some(base)));
    let each: Vec<(&Account, Sentence)> =
        run.all().enumerate().map(|(index, one)| (one, judge_one(one, base(index), &tail))).collect();
    let times = |mechanism| each.iter().filter(|(_, other)| other.mechanism == mechanism).count();
    let most = each.iter().map(|(_, sentence)| times(sentence.mechanism)).max().unwrap_or(0);
    let Some((one, sentence)) = each.iter().find(|(_, sentence)| times(sentence.mechanism) == most) else {
        return unmeasured();
    };
    let mut sentence = sentence.clone();
    sentence.text += &agreement(&each, sentence.mechanism);
    if let Some(idle) = one.idle_pool {
        sentence.text += &format!("; {} of huge pages lie idle", Bytes(idle as u64));
    }
    if !matches!(sentence.mechanism, Mechanism::Unmeasured | Mechanism::OomKill | Mechanism::Refused) {
        sentence.text += &match tail {
            Tail::Unknown => Percentiles::of(&one.work.latency).alone(),
            ref tail => tail.clause(),
        };
        sentence.text += &faster(one).unwrap_or_default();
    }
    sentence
}

/// How many of the repeats came out so, and what the others show: `; so in 3 of 5 runs, 2 swapped`.
fn agreement(each: &[(&Account, Sentence)], mechanism: Mechanism) -> String {
    let mut others: Vec<(Mechanism, usize)> = Vec::new();
    for (_, sentence) in each.iter().filter(|(_, sentence)| sentence.mechanism != mechanism) {
        match others.iter_mut().find(|(known, _)| *known == sentence.mechanism) {
            Some((_, times)) => *times += 1,
            None => others.push((sentence.mechanism, 1)),
        }
    }
    let differ: usize = others.iter().map(|(_, times)| times).sum();
    match (each.len(), differ) {
        (0 | 1, _) => String::new(),
        (2, 0) => "; so in both runs".to_owned(),
        (all, 0) => format!("; so in all {all} runs"),
        (all, differ) => {
            let named = others.iter().map(|(other, times)| format!("{} in {times}", other.name()));
            format!("; so in {} of {all} runs, {}", all - differ, enumeration(&named.collect::<Vec<_>>()))
        }
    }
}

/// What one run shows, repeats left out, before what it meant for the tail is said.
fn judge_one(run: &Account, base: Option<&Account>, tail: &Tail) -> Sentence {
    if !run.is_measured() {
        return unmeasured();
    }
    if let Some(begin) = run.unreached {
        let text = format!("it ended before {begin} s, from which on it is measured");
        return said(Mechanism::Unmeasured, text);
    }
    if run.oom_kills > 0 {
        let what = ended(run.oom_kills, &run.killed);
        return said(Mechanism::OomKill, format!("memory ran out: the OOM killer ended {what}"));
    }
    if run.work.refused > 0 {
        let failed = counted(run.work.refused, "operation");
        let text = format!("the kernel refused memory: {failed} failed");
        return said(Mechanism::Refused, text);
    }
    let wait = grown(&run.work, run.undisturbed.as_ref());
    if run.in_group {
        return group(run, wait);
    }
    if let Some(sentence) = zone_reclaim(run, wait, tail) {
        return sentence;
    }
    if let Some((wait, share)) = wait {
        return waited(run, wait, share);
    }
    let slower = run.relative().filter(|relative| *relative < 1.0 - RATE_NOISE);
    match slower {
        // Counters tell where the threads' time is not known.
        Some(_) if busy(&run.work.spent) == 0.0 && count(run.moved.swap_in) >= FEW => swapped(run, None),
        Some(_) if busy(&run.work.spent) == 0.0 && run.major_faults() >= FEW => read_again(run, None),
        Some(relative) => said(
            Mechanism::Unexplained,
            format!(
                "throughput is {} of the undisturbed, and no wait that is measured has grown by {} of a request's time",
                Percent(relative),
                Percent(CAUSE)
            ),
        ),
        None => unharmed(run, base, tail),
    }
}

/// The clause for a throughput that is no gain: above the undisturbed one, because that part was slowed by
/// something. Threads of the model that wait equally long run in lockstep, which no seed breaks: all of them
/// want a CPU at once, until something disturbs them. Of a kernel's run `View::remarks` says what disturbed
/// that part.
fn faster(run: &Account) -> Option<String> {
    if !run.on_model {
        return None;
    }
    let by = Percent(run.relative().filter(|relative| *relative > FASTER)? - 1.0);
    let undisturbed = run.undisturbed.as_ref()?;
    let why = match grown(undisturbed, Some(&run.work)) {
        Some((Wait::Cpu, share)) => format!(
            "waiting for a CPU took {} of the requests' time there, as it does when threads run in lockstep",
            Percent(share)
        ),
        Some((wait, share)) => format!(
            "{} took {} of the requests' time there: the undisturbed part was not undisturbed",
            wait.name(),
            Percent(share)
        ),
        None => "nothing that is measured explains it".to_owned(),
    };
    Some(format!("; that it is {by} faster than undisturbed is not to be believed: {why}"))
}

fn zone_reclaim(run: &Account, wait: Option<(Wait, f64)>, tail: &Tail) -> Option<Sentence> {
    let (direct, kswapd) = (count(run.moved.direct_scan), count(run.moved.kswapd_scan));
    let entries = count(run.moved.allocstall);
    let by_zone = direct >= FEW && entries.saturating_mul(PER_ENTRY) < direct;
    if !run.zone_reclaim || !by_zone {
        return None;
    }
    let mut text = format!(
        "zone reclaim: tasks looked for memory on their own node, {} direct scans, {} by kswapd",
        Grouped(direct),
        if kswapd == 0 { "none".to_owned() } else { Grouped(kswapd).to_string() }
    );
    match wait {
        Some((Wait::Reclaim, share)) => {
            text += &format!("; reclaim took {} of the requests' time", Percent(share))
        }
        Some((Wait::Device, share)) if run.major_faults() >= FEW => {
            text += &format!(
                "; pages in use went with it: {} took {} of the requests' time",
                faults(run.major_faults()),
                Percent(share)
            );
        }
        Some((_, share)) => text += &format!("; waits took {} of the requests' time", Percent(share)),
        None if *tail == Tail::Same => {
            let freed = count(run.moved.direct_steal) as f64 / direct as f64;
            text += &format!(
                "; requests took no longer for it, as long as {} of what is scanned can be freed",
                Percent(freed)
            );
        }
        None => {}
    }
    Some(said(Mechanism::ZoneReclaim, text))
}

/// The sentence for a run in a control group. Reclaim for the limit is not told from its scans, which version
/// 1 does not count, but from how often the group met its limit; each time a task of it reclaims
/// (`mm/memcontrol.c:try_charge_memcg`).
fn group(run: &Account, wait: Option<(Wait, f64)>) -> Sentence {
    let hits = run.moved.limit_hits;
    let limit = match hits {
        None => "how often the group met its limit is not known".to_owned(),
        Some(0) => "the group never met its limit".to_owned(),
        Some(1) => "the group met its limit once".to_owned(),
        Some(hits) => format!("the group met its limit {} times", Grouped(hits)),
    };
    let again = |pages: Option<u64>, what: &str| match count(pages) {
        pages if pages >= FEW => format!(" ({} of {what} came back soon after eviction)", run.bytes(pages)),
        _ => String::new(),
    };
    let swapped = count(run.moved.refault_anon) > count(run.moved.refault_file);
    let (mechanism, cost) = match wait {
        Some((Wait::Device, share)) if run.major_faults() >= FEW => {
            let (mechanism, again) = match swapped {
                true => (Mechanism::Swap, again(run.moved.refault_anon, "swapped memory")),
                false => (Mechanism::FileReread, again(run.moved.refault_file, "file pages")),
            };
            let faults = faults(run.major_faults());
            (mechanism, format!("{faults}{again} took {} of the requests' time", Percent(share)))
        }
        Some((wait, share)) => {
            let (mechanism, what) = match wait {
                Wait::Device => (Mechanism::Device, "waiting for devices, with few page faults,"),
                Wait::Reclaim => (Mechanism::DirectReclaim, "reclaim by its tasks"),
                Wait::Throttled => (Mechanism::Throttled, "being held back by the kernel"),
                Wait::Cpu => (Mechanism::Cpu, "waiting for a CPU"),
                Wait::System => (Mechanism::System, "the kernel's own work, reclaim left out,"),
            };
            (mechanism, format!("{what} took {} of the requests' time", Percent(share)))
        }
        None => match run.relative().filter(|relative| *relative < 1.0 - RATE_NOISE) {
            Some(relative) => {
                let cost =
                    format!("throughput is {} of the undisturbed, and no wait has grown", Percent(relative));
                (Mechanism::Unexplained, cost)
            }
            None if count(hits) > 0 => {
                (Mechanism::GroupLimit, "no wait of the requests has grown".to_owned())
            }
            None => (Mechanism::Undisturbed, "no wait of the requests has grown".to_owned()),
        },
    };
    said(mechanism, format!("{limit}; {cost}"))
}

fn faults(n: u64) -> String {
    counted(n, "major fault")
}

fn waited(run: &Account, wait: Wait, share: f64) -> Sentence {
    let time = format!("took {} of the requests' time", Percent(share));
    let direct = count(run.moved.direct_scan);
    match wait {
        // A page that is swapped in is a major fault unless readahead brought it: swap is the greater part.
        Wait::Device
            if count(run.moved.swap_in) >= FEW && count(run.moved.swap_in) * 2 >= run.major_faults() =>
        {
            swapped(run, Some(share))
        }
        Wait::Device if run.major_faults() >= FEW => read_again(run, Some(share)),
        Wait::Device => {
            let read = Bytes::kib(count(run.moved.page_in));
            let written = Bytes::kib(count(run.moved.page_out));
            said(
                Mechanism::Device,
                format!(
                    "waits for devices {time}, with few page faults: {read} were read and {written} written meanwhile"
                ),
            )
        }
        Wait::Reclaim => said(
            Mechanism::DirectReclaim,
            format!(
                "direct reclaim: tasks scanned {} pages before they got theirs ({} by kswapd), which {time}",
                Grouped(direct),
                Grouped(count(run.moved.kswapd_scan))
            ),
        ),
        Wait::Throttled if direct < FEW => {
            said(Mechanism::DirtyLimit, format!("held by the dirty limit: waiting for writeback {time}"))
        }
        Wait::Throttled => said(
            Mechanism::Throttled,
            format!("held back by the kernel, for the dirty limit or by reclaim: that {time}"),
        ),
        Wait::Cpu => said(Mechanism::Cpu, format!("waiting for a CPU {time}")),
        Wait::System => said(Mechanism::System, format!("the kernel's own work, reclaim left out, {time}")),
    }
}

fn swapped(run: &Account, share: Option<f64>) -> Sentence {
    let out = run.bytes(count(run.moved.swap_out));
    let cache = count(run.moved.page_out).max(count(run.moved.page_in));
    let went = match count(run.moved.swap_out) {
        n if n < FEW => match run.outside.as_ref().map_or(0, |outside| outside.swapped_out_before) {
            before if before >= FEW => {
                format!("memory came back, of {} that had been swapped out before", run.bytes(before))
            }
            _ => "memory that had been swapped out earlier came back".to_owned(),
        },
        _ if Bytes::kib(cache) > out.times(2) => {
            format!("{} swapped out {out} while files passed through the cache", run.reclaimer())
        }
        _ => format!("{} swapped out {out}", run.reclaimer()),
    };
    let back = run.bytes(count(run.moved.swap_in));
    let cost = match share {
        Some(share) => format!(
            "bringing {back} back with {} took {} of the requests' time",
            faults(run.major_faults()),
            Percent(share)
        ),
        None => format!("{back} had to come back, with {}", faults(run.major_faults())),
    };
    said(Mechanism::Swap, format!("{went}: {cost}"))
}

fn read_again(run: &Account, share: Option<f64>) -> Sentence {
    let cost = match share {
        Some(share) => {
            format!("{} took {} of the requests' time", faults(run.major_faults()), Percent(share))
        }
        None => faults(run.major_faults()),
    };
    let refault = match count(run.moved.refault_file) {
        n if n >= FEW => format!(" ({} were read again soon after)", run.bytes(n)),
        _ => String::new(),
    };
    if run.freed() < FEW {
        let before = match run.outside.as_ref().map_or(0, |outside| outside.freed_before) {
            before if before >= FEW => format!(" ({} were reclaimed before)", run.bytes(before)),
            _ => String::new(),
        };
        return said(
            Mechanism::FileReread,
            format!("file pages that were not in memory had to be read{before}: {cost}"),
        );
    }
    let text = format!("{} dropped file pages that were in use{refault}: {cost}", run.reclaimer());
    said(Mechanism::FileReread, text)
}

/// A run that is as fast as its undisturbed part.
fn unharmed(run: &Account, baseline: Option<&Account>, tail: &Tail) -> Sentence {
    if !run.sampled || run.moved.direct_scan.is_none() && run.moved.kswapd_scan.is_none() {
        return said(Mechanism::Undisturbed, "no wait has grown, and reclaim was not counted".to_owned());
    }
    let back = came_back(run);
    if run.scanned() < FEW {
        let mut sentence = nothing_reclaimed(run, baseline);
        sentence.text += &back;
        return sentence;
    }
    let swapped = count(run.moved.swap_out);
    let freed = run.bytes(run.freed());
    if swapped >= FEW {
        let unnoticed = if *tail == Tail::Same { ", unnoticed by the requests" } else { "" };
        let text = format!(
            "{} reclaimed {freed} and swapped out {}{back}{unnoticed}",
            run.reclaimer(),
            run.bytes(swapped)
        );
        return said(Mechanism::SwapUnnoticed, text);
    }
    let none = if swapped == 0 { "nothing" } else { "hardly anything" };
    let before = match run.outside.as_ref().map_or(0, |outside| outside.swapped_out_before) {
        before if before >= FEW => format!(", but {} were before", run.bytes(before)),
        _ => String::new(),
    };
    said(
        Mechanism::CacheOnly,
        format!("{} reclaimed {freed} of file cache; {none} was swapped out{before}{back}", run.reclaimer()),
    )
}

/// What came back in a run that is no slower for it: `; 390 major faults brought 11.5 MiB back from swap`.
fn came_back(run: &Account) -> String {
    match (run.major_faults(), count(run.moved.swap_in)) {
        (major, _) if major < FEW => String::new(),
        (major, pages) if pages >= FEW => {
            format!("; {} brought {} back from swap", faults(major), run.bytes(pages))
        }
        (major, _) => format!("; {} read from files", faults(major)),
    }
}

/// A run in whose measured part nothing was reclaimed.
fn nothing_reclaimed(run: &Account, baseline: Option<&Account>) -> Sentence {
    let by_direct = match run.direct.as_slice() {
        [] => String::new(),
        [one] => format!("the direct I/O of {one} bypasses the cache: "),
        many => format!("the direct I/O of {} bypasses the cache: ", many.join(" and ")),
    };
    let base = baseline.filter(|base| base.scanned() >= FEW);
    let was = base
        .map(|base| format!(" (with {}, {} were)", base.label, base.bytes(base.freed())))
        .unwrap_or_default();
    let mechanism = if base.is_some() { Mechanism::NothingReclaimed } else { Mechanism::Undisturbed };
    let text = match run.outside.as_ref().zip(run.reclaimed_outside()) {
        Some((outside, elsewhere)) => {
            format!("in the measured {} nothing was reclaimed{was}; {elsewhere}", duration(outside.seconds))
        }
        None => format!("nothing was reclaimed{was}"),
    };
    said(mechanism, format!("{by_direct}{text}"))
}

#[cfg(test)]
mod tests;
