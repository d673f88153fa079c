//! [`explain`]: which mechanism made the difference, in a sentence.
//!
//! Only measured figures count: the time per request and what it went to, against the undisturbed part of the
//! same run; what reclaim scanned, freed and swapped; and the same of the run that is compared with. The
//! thresholds are the constants below. A run that is slower without a cause that passes these is said to be
//! unexplained.

use lotsfree_run::{Latency, Moved, Run};
use lotsfree_units::{Bytes, Grouped, Percent};
use serde::Serialize;

use crate::view::{Comparison, View, Work, busy};

/// Throughputs closer than this are the same; above 1 minus this it is undisturbed.
const RATE_NOISE: f64 = 0.03;
/// 99th percentiles closer than this are the same: three buckets of the histogram.
const LATENCY_NOISE: f64 = 0.10;
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
    /// Requests waited for a device that others kept busy; nothing had to be read because of reclaim.
    Device,
    /// Requests waited for a CPU.
    Cpu,
    /// Requests took more CPU time in the kernel, reclaim left out.
    System,
    /// Nothing was reclaimed, while the run that is compared with reclaimed.
    NothingReclaimed,
    /// Only pages of the file cache were reclaimed, at no cost.
    CacheOnly,
    /// Anonymous memory was swapped out, at no cost in the part that is measured.
    SwapUnnoticed,
    /// Nothing happened.
    Undisturbed,
    /// It is slower, and nothing that is measured says why.
    Unexplained,
}

/// Says which mechanism made the difference in `run`, against its own undisturbed part and against
/// `baseline`. Where `baseline` is the run itself, only the former counts. The module says how it is decided.
pub fn explain(run: &Run, baseline: &Run) -> Sentence {
    if std::ptr::eq(run, baseline) {
        let comparison = Comparison::of(std::slice::from_ref(run));
        return comparison.views.first().map_or_else(unmeasured, |view| judge(&Account::of(view), None));
    }
    let (run, baseline) =
        (Comparison::of(std::slice::from_ref(run)), Comparison::of(std::slice::from_ref(baseline)));
    match (run.views.first(), baseline.views.first()) {
        (Some(view), Some(base)) => judge(&Account::of(view), Some(&Account::of(base))),
        _ => unmeasured(),
    }
}

/// The sentence of a run in a comparison.
pub fn of_view<'r>(view: &View<'r>, comparison: &Comparison<'r>) -> Sentence {
    judge(&Account::of(view), comparison.baseline(view).map(Account::of).as_ref())
}

/// The figures that a sentence follows from.
#[derive(Clone, Debug, Default)]
struct Account {
    label: String,
    /// The part that counts.
    work: Work,
    undisturbed: Option<Work>,
    moved: Moved,
    page: f64,
    oom_kills: u64,
    /// `vm.zone_reclaim_mode` is set.
    zone_reclaim: bool,
    /// Actors that pass by the page cache.
    direct: Vec<String>,
    /// Whether two samples at least are there.
    sampled: bool,
}

impl Account {
    fn of(view: &View<'_>) -> Self {
        Account {
            label: view.label.clone(),
            work: view.work.clone(),
            undisturbed: view.undisturbed.clone(),
            moved: view.figures().moved,
            page: view.page(),
            oom_kills: view.summary.oom_kills,
            zone_reclaim: view.zone_reclaim(),
            direct: view.direct.clone(),
            sampled: view.run.samples().len() > 1,
        }
    }

    fn relative(&self) -> Option<f64> {
        let before = self.undisturbed.as_ref()?.per_second().filter(|before| *before > 0.0)?;
        Some(self.work.per_second()? / before)
    }

    fn bytes(&self, pages: u64) -> Bytes {
        Bytes((pages as f64 * self.page) as u64)
    }

    fn scanned(&self) -> u64 {
        count(self.moved.direct_scan).saturating_add(count(self.moved.kswapd_scan))
    }

    fn freed(&self) -> u64 {
        count(self.moved.direct_steal).saturating_add(count(self.moved.kswapd_steal))
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

/// Decides. Pure: the account is all that it knows.
fn judge(run: &Account, baseline: Option<&Account>) -> Sentence {
    if run.work.operations == 0 && !run.sampled {
        return unmeasured();
    }
    if run.oom_kills > 0 {
        let times = if run.oom_kills == 1 { "once".to_owned() } else { format!("{} times", run.oom_kills) };
        return said(Mechanism::OomKill, format!("memory ran out: the OOM killer struck {times}"));
    }
    if let Some(same) = baseline.and_then(|base| alike(run, base)) {
        return same;
    }
    let wait = grown(&run.work, run.undisturbed.as_ref());
    if let Some(sentence) = zone_reclaim(run, wait) {
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
        None => unharmed(run, baseline),
    }
}

/// The sentence for a run that nothing distinguishes from another.
fn alike(run: &Account, base: &Account) -> Option<Sentence> {
    let near = |a: f64, b: f64, noise: f64| (a - b).abs() <= noise * a.abs().max(b.abs());
    let rates = run.work.per_second().zip(base.work.per_second());
    let p99 = Latency::of(&run.work.latency).zip(Latency::of(&base.work.latency));
    let pairs = [
        (run.moved.direct_scan, base.moved.direct_scan),
        (run.moved.kswapd_scan, base.moved.kswapd_scan),
        (run.moved.swap_in, base.moved.swap_in),
        (run.moved.swap_out, base.moved.swap_out),
        (Some(run.major_faults()), Some(base.major_faults())),
    ];
    let same_count = |(a, b): (Option<u64>, Option<u64>)| {
        let (a, b) = (count(a), count(b));
        a.abs_diff(b) <= FEW || near(a as f64, b as f64, COUNT_NOISE)
    };
    let same = rates.is_none_or(|(a, b)| near(a, b, RATE_NOISE))
        && p99.is_none_or(|(a, b)| near(a.p99 as f64, b.p99 as f64, LATENCY_NOISE))
        && (rates.is_some() || run.sampled)
        && pairs.into_iter().all(same_count);
    if !same {
        return None;
    }
    let apart = |what: &str, a: f64, b: f64| {
        let by = (a - b).abs() / a.abs().max(b.abs()).max(f64::MIN_POSITIVE);
        // Percentages have at least a hundredth.
        if by < 0.00005 { format!("equal {what}") } else { format!("{what} within {}", Percent(by)) }
    };
    let mut differences = Vec::new();
    if let Some((a, b)) = rates {
        differences.push(apart("throughput", a, b));
    }
    if let Some((a, b)) = p99 {
        differences.push(apart("p99 latency", a.p99 as f64, b.p99 as f64));
    }
    differences.push(format!("scans, faults and swapping within {}", Percent(COUNT_NOISE)));
    Some(said(
        Mechanism::Alike,
        format!("not distinguishable from {}: {}", base.label, differences.join(", ")),
    ))
}

fn zone_reclaim(run: &Account, wait: Option<(Wait, f64)>) -> Option<Sentence> {
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
        None => text += "; requests took no longer for it",
    }
    Some(said(Mechanism::ZoneReclaim, text))
}

fn faults(n: u64) -> String {
    if n == 1 { "1 major fault".to_owned() } else { format!("{} major faults", Grouped(n)) }
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
        n if n < FEW => "memory that had been swapped out earlier came back".to_owned(),
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
        return said(
            Mechanism::FileReread,
            format!("file pages that were not in memory had to be read: {cost}"),
        );
    }
    let text = format!("{} dropped file pages that were in use{refault}: {cost}", run.reclaimer());
    said(Mechanism::FileReread, text)
}

/// A run that is as fast as its undisturbed part.
fn unharmed(run: &Account, baseline: Option<&Account>) -> Sentence {
    if !run.sampled || run.moved.direct_scan.is_none() && run.moved.kswapd_scan.is_none() {
        return said(Mechanism::Undisturbed, "no wait has grown, and reclaim was not counted".to_owned());
    }
    if run.scanned() < FEW {
        let by_direct = match run.direct.as_slice() {
            [] => String::new(),
            [one] => format!("the direct I/O of {one} bypasses the cache: "),
            many => format!("the direct I/O of {} bypasses the cache: ", many.join(" and ")),
        };
        return match baseline.filter(|base| base.scanned() >= FEW) {
            Some(base) => {
                let was = format!("with {}, {} were", base.label, base.bytes(base.freed()));
                said(Mechanism::NothingReclaimed, format!("{by_direct}nothing was reclaimed ({was})"))
            }
            None => said(Mechanism::Undisturbed, format!("{by_direct}nothing was reclaimed")),
        };
    }
    let swapped = count(run.moved.swap_out);
    let freed = run.bytes(run.freed());
    if swapped >= FEW {
        let text = format!(
            "{} reclaimed {freed} and swapped out {}, unnoticed by the requests",
            run.reclaimer(),
            run.bytes(swapped)
        );
        return said(Mechanism::SwapUnnoticed, text);
    }
    let none = if swapped == 0 { "nothing" } else { "hardly anything" };
    said(
        Mechanism::CacheOnly,
        format!("{} reclaimed {freed} of file cache; {none} was swapped out", run.reclaimer()),
    )
}

#[cfg(test)]
mod tests {
    use lotsfree_run::{Histogram, Spent};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A thousand requests a second that take 80 µs, all on a CPU.
    fn work(seconds: u64) -> Work {
        let operations = 1000 * seconds;
        let mut latency = Histogram::default();
        latency.record_many(80_000, operations);
        let spent = Spent {
            user: 70_000 * operations,
            system: 10_000 * operations,
            idle: SECOND,
            ..Spent::default()
        };
        Work { operations, seconds: seconds as f64, latency, spent, ..Work::default() }
    }

    /// A minute as fast as the ten undisturbed seconds before it, in which nothing was reclaimed.
    fn calm(label: &str) -> Account {
        let moved = Moved {
            direct_scan: Some(0),
            kswapd_scan: Some(0),
            direct_steal: Some(0),
            kswapd_steal: Some(0),
            allocstall: Some(0),
            major_faults: Some(0),
            swap_in: Some(0),
            swap_out: Some(0),
            page_in: Some(0),
            page_out: Some(0),
            ..Moved::default()
        };
        Account {
            label: label.to_owned(),
            work: work(60),
            undisturbed: Some(work(10)),
            moved,
            page: 4096.0,
            sampled: true,
            ..Account::default()
        }
    }

    /// The same threads spend `share` of their time in a wait, and do less for it.
    fn slowed(label: &str, share: f64, wait: impl Fn(&mut Spent) -> &mut u64) -> Account {
        let mut account = calm(label);
        let whole = busy(&account.work.spent);
        let work = &mut account.work;
        let keep = |n: u64| (n as f64 * (1.0 - share)) as u64;
        work.operations = keep(work.operations);
        (work.spent.user, work.spent.system) = (keep(work.spent.user), keep(work.spent.system));
        *wait(&mut work.spent) += (whole * share) as u64;
        work.latency = Histogram::default();
        work.latency.record_many(500_000, work.operations);
        account
    }

    fn kswapd_swaps(label: &str) -> Account {
        let mut account = slowed(label, 0.83, |spent| &mut spent.io);
        account.work.major_faults = 24_000;
        let moved = &mut account.moved;
        (moved.kswapd_scan, moved.kswapd_steal) = (Some(9_000_000), Some(4_000_000));
        (moved.swap_out, moved.swap_in) = (Some(314_573), Some(60_000));
        moved.page_out = Some(16 << 20);
        account
    }

    fn mechanism(run: &Account, baseline: Option<&Account>) -> Mechanism {
        judge(run, baseline).mechanism
    }

    #[test]
    fn swapping_by_kswapd() {
        assert_eq!(
            judge(&kswapd_swaps("base"), None),
            said(
                Mechanism::Swap,
                "kswapd swapped out 1.20 GiB while files passed through the cache: bringing 234 MiB back with \
                 24,000 major faults took 83 % of the requests' time"
                    .to_owned()
            )
        );
        let mut earlier = kswapd_swaps("base");
        earlier.moved.swap_out = Some(0);
        assert!(judge(&earlier, None).text.starts_with("memory that had been swapped out earlier came back"));
    }

    #[test]
    fn direct_io_reclaims_nothing() {
        let mut direct = calm("direct");
        direct.direct = vec!["copy".to_owned()];
        assert_eq!(
            judge(&direct, Some(&kswapd_swaps("base"))).text,
            "the direct I/O of copy bypasses the cache: nothing was reclaimed (with base, 15.3 GiB were)"
        );
        assert_eq!(mechanism(&direct, Some(&kswapd_swaps("base"))), Mechanism::NothingReclaimed);
        assert_eq!(mechanism(&calm("small"), Some(&kswapd_swaps("base"))), Mechanism::NothingReclaimed);
        assert_eq!(mechanism(&calm("alone"), None), Mechanism::Undisturbed);
    }

    #[test]
    fn zone_reclaim_is_told_from_direct_reclaim_by_its_entries() {
        let mut run = slowed("on", 0.4, |spent| &mut spent.io);
        run.zone_reclaim = true;
        run.work.major_faults = 30_000;
        run.moved.direct_scan = Some(1_200_000);
        assert_eq!(
            judge(&run, None).text,
            "zone reclaim: tasks looked for memory on their own node, 1,200,000 direct scans, none by kswapd; pages in \
             use went with it: 30,000 major faults took 40 % of the requests' time"
        );
        let mut entered = run.clone();
        entered.moved.allocstall = Some(20_000);
        assert_ne!(mechanism(&entered, None), Mechanism::ZoneReclaim);
        let mut off = run.clone();
        off.zone_reclaim = false;
        assert_eq!(mechanism(&off, None), Mechanism::FileReread);
        let mut idle = run;
        idle.moved.direct_scan = Some(FEW - 1);
        assert_ne!(mechanism(&idle, None), Mechanism::ZoneReclaim);
    }

    #[test]
    fn file_pages_read_again() {
        let mut run = slowed("base", 0.5, |spent| &mut spent.io);
        run.work.major_faults = 5000;
        (run.moved.kswapd_scan, run.moved.kswapd_steal) = (Some(800_000), Some(700_000));
        run.moved.refault_file = Some(262_144);
        assert_eq!(
            judge(&run, None).text,
            "kswapd dropped file pages that were in use (1 GiB were read again soon after): 5,000 major faults took \
             50 % of the requests' time"
        );
        run.moved.kswapd_steal = Some(0);
        assert!(judge(&run, None).text.starts_with("file pages that were not in memory had to be read"));
    }

    #[test]
    fn each_wait_has_its_mechanism() {
        let mut reclaim = slowed("r", 0.3, |spent| &mut spent.reclaim);
        reclaim.moved.direct_scan = Some(40_000);
        assert_eq!(mechanism(&reclaim, None), Mechanism::DirectReclaim);
        let mut throttled = slowed("t", 0.3, |spent| &mut spent.throttled);
        assert_eq!(
            judge(&throttled, None).text,
            "held by the dirty limit: waiting for writeback took 30 % of the requests' time"
        );
        throttled.moved.direct_scan = Some(40_000);
        assert_eq!(mechanism(&throttled, None), Mechanism::Throttled);
        assert_eq!(mechanism(&slowed("d", 0.3, |spent| &mut spent.io), None), Mechanism::Device);
        assert_eq!(mechanism(&slowed("c", 0.3, |spent| &mut spent.runnable), None), Mechanism::Cpu);
        assert_eq!(mechanism(&slowed("s", 0.3, |spent| &mut spent.system), None), Mechanism::System);
    }

    #[test]
    fn a_wait_that_was_there_before_is_no_cause() {
        let mut run = slowed("d", 0.5, |spent| &mut spent.io);
        run.undisturbed = Some(Work { seconds: 60.0, ..run.work.clone() });
        assert_eq!(mechanism(&run, None), Mechanism::Undisturbed);
        run.undisturbed = None;
        assert_eq!(mechanism(&run, None), Mechanism::Device);
    }

    #[test]
    fn what_is_within_noise_is_alike_and_says_how_near() {
        let base = kswapd_swaps("swappiness 60");
        let mut run = base.clone();
        run.label = "swappiness 30".to_owned();
        run.work.operations = run.work.operations * 99 / 100;
        run.moved.kswapd_scan = Some(9_300_000);
        assert_eq!(
            judge(&run, Some(&base)).text,
            "not distinguishable from swappiness 60: throughput within 1.0 %, equal p99 latency, scans, faults and \
             swapping within 10 %"
        );
        let mut faster = run.clone();
        faster.work.operations = base.work.operations * 105 / 100;
        assert_ne!(mechanism(&faster, Some(&base)), Mechanism::Alike);
        let mut scans = run.clone();
        scans.moved.kswapd_scan = Some(12_000_000);
        assert_ne!(mechanism(&scans, Some(&base)), Mechanism::Alike);
        let mut slow = run;
        slow.work.latency.record_many(9_000_000, slow.work.operations);
        assert_ne!(mechanism(&slow, Some(&base)), Mechanism::Alike);
    }

    #[test]
    fn reclaim_without_a_cost() {
        let mut run = calm("3.11");
        (run.moved.kswapd_scan, run.moved.kswapd_steal) = (Some(600_000), Some(524_288));
        assert_eq!(
            judge(&run, Some(&kswapd_swaps("base"))).text,
            "kswapd reclaimed 2 GiB of file cache; nothing was swapped out"
        );
        run.moved.swap_out = Some(FEW - 1);
        assert!(judge(&run, None).text.ends_with("hardly anything was swapped out"));
        run.moved.swap_out = Some(FEW);
        assert_eq!(mechanism(&run, None), Mechanism::SwapUnnoticed);
    }

    #[test]
    fn what_is_not_measured_is_not_explained() {
        assert_eq!(mechanism(&Account::default(), None), Mechanism::Unmeasured);
        let mut slow = calm("slow");
        slow.work.operations /= 2;
        (slow.work.spent.user, slow.work.spent.system) =
            (slow.work.spent.user / 2, slow.work.spent.system / 2);
        let sentence = judge(&slow, None);
        assert_eq!(sentence.mechanism, Mechanism::Unexplained);
        assert!(sentence.text.starts_with("throughput is 50 % of the undisturbed"), "{}", sentence.text);
        // Where a kernel does not say what threads waited for, its counters do.
        slow.work.spent = Spent::default();
        slow.moved.swap_in = Some(10_000);
        assert_eq!(mechanism(&slow, None), Mechanism::Swap);
        let uncounted = Account { moved: Moved::default(), ..calm("old") };
        assert!(judge(&uncounted, None).text.contains("reclaim was not counted"));
        let killed = Account { oom_kills: 2, ..calm("oom") };
        assert_eq!(judge(&killed, None).text, "memory ran out: the OOM killer struck 2 times");
    }
}
