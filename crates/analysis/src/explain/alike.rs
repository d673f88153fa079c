//! Runs that nothing distinguishes: how near they are to each other.

use lotsfree_units::Percent;

use super::tail::{self, Percentiles, Tail};
use super::{Account, COUNT_NOISE, FEW, RATE_NOISE, count};

/// By which shares runs differ that nothing distinguishes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Nearness {
    throughput: Option<f64>,
    p99: Option<f64>,
}

/// How near a run is to another; `None` if something distinguishes them. Of repeats, what lies within their
/// ranges does not.
pub(super) fn nearness(run: &Account, base: &Account) -> Option<Nearness> {
    if run.all().chain(base.all()).any(|one| one.oom_kills > 0 || !one.is_measured()) {
        return None;
    }
    let both = |read: &dyn Fn(&Account) -> Option<f64>| {
        [run, base].map(|account| account.all().filter_map(read).collect::<Vec<f64>>())
    };
    let rates = both(&|account| account.work.per_second());
    let known = rates.iter().all(|rates| !rates.is_empty());
    let counts: [&dyn Fn(&Account) -> u64; 5] = [
        &|account| count(account.moved.direct_scan),
        &|account| count(account.moved.kswapd_scan),
        &|account| count(account.moved.swap_in),
        &|account| count(account.moved.swap_out),
        &|account| account.major_faults(),
    ];
    let same_count = |read: &dyn Fn(&Account) -> u64| {
        let [a, b] = both(&|account| Some(read(account) as f64));
        !tail::differ(&a, &b, COUNT_NOISE, FEW as f64)
    };
    let same = !tail::differ(&rates[0], &rates[1], RATE_NOISE, 0.0)
        && !matches!(tail::compare(&run.percentiles(), &base.percentiles(), ""), Tail::Differs(_))
        && (known || run.sampled)
        && counts.into_iter().all(same_count);
    let apart = |[a, b]: [Vec<f64>; 2]| {
        let (a, b) = (tail::middle(&a)?, tail::middle(&b)?);
        Some((a - b).abs() / a.abs().max(b.abs()).max(f64::MIN_POSITIVE))
    };
    let p99 = both(&|account| Percentiles::of(&account.work.latency).p99());
    same.then(|| Nearness { throughput: apart(rates), p99: apart(p99) })
}

impl Nearness {
    pub(super) fn text(self) -> String {
        let apart = |what: &str, by: f64| {
            // Percentages have at least a hundredth.
            if by < 0.00005 { format!("equal {what}") } else { format!("{what} within {}", Percent(by)) }
        };
        let mut differences = Vec::new();
        differences.extend(self.throughput.map(|by| apart("throughput", by)));
        differences.extend(self.p99.map(|by| apart("p99 latency", by)));
        differences.push(format!("scans, faults and swapping within {}", Percent(COUNT_NOISE)));
        differences.join(", ")
    }
}
