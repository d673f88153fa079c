//! The table of measures: what matters, run by run.

use lotsfree_run::{Latency, Moved};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::compare::error::Span;
use crate::explain::FASTER;
use crate::view::{ASKS, HugePool, View, Work};

/// Which way a measure should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// It tells what happened, and neither way is better by itself.
    Neither,
}

impl Better {
    /// Its name in JSON; `None` where neither way is better.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Better::Higher => Some("higher"),
            Better::Lower => Some("lower"),
            Better::Neither => None,
        }
    }

    /// The one of such a name.
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("higher") => Better::Higher,
            Some("lower") => Better::Lower,
            _ => Better::Neither,
        }
    }
}

/// What a measure counts, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 0 to 1.
    Share,
    /// A rate.
    PerSecond,
    /// A time.
    Nanoseconds,
    /// A number of things, pages among them.
    Count,
    /// An amount of memory or data.
    Bytes,
}

/// One row of the table.
#[derive(Debug)]
pub struct Measure {
    /// Its name in JSON; the unit is part of it.
    pub key: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// What the values count.
    pub unit: Unit,
    /// Which way it should go.
    pub better: Better,
    /// One value per run, of repeats the median; `None` where it is not known.
    pub values: Vec<Option<f64>>,
    /// The same with the range of repeats.
    pub spans: Vec<Option<Span>>,
    /// Which of the values are better than can be: throughputs of runs that are faster than undisturbed.
    pub doubtful: Vec<bool>,
}

/// Changes smaller than this are not worth a word.
const SLIGHT: f64 = 0.005;

impl Measure {
    /// A value in words.
    pub fn text(&self, value: Option<f64>) -> String {
        value.map_or_else(|| "–".to_owned(), |value| self.unit.text(value))
    }

    /// The smallest and the largest value of a run's repeats: `580 to 612`; `None` if they read the same, or
    /// of a single run.
    pub fn range(&self, index: usize) -> Option<String> {
        let span = self.spans.get(index)?.filter(|span| span.repeats > 1)?;
        let differ = self.unit.text(span.min) != self.unit.text(span.max);
        differ.then(|| self.unit.range(span.min, span.max))
    }

    /// Whether the repeats of two runs have values in common.
    fn overlap(&self, a: usize, b: usize) -> bool {
        let span = |index: usize| self.spans.get(index).copied().flatten();
        span(a).zip(span(b)).is_some_and(|(a, b)| a.overlaps(&b))
    }

    /// Which of the values are the best: those that read the same as the best one, and those that repeats do
    /// not tell from it. None if that is all of them or the measure has no better side. What is
    /// [`doubtful`](Measure::doubtful) is never the best.
    pub fn best(&self) -> Vec<bool> {
        let doubtful = |index: usize| self.doubtful.get(index).copied().unwrap_or(false);
        let known = self.values.iter().enumerate().filter_map(|(index, value)| Some((index, (*value)?)));
        let known = known.filter(|(index, _)| !doubtful(*index));
        let best = match self.better {
            Better::Higher => known.reduce(|a, b| if b.1 > a.1 { b } else { a }),
            Better::Lower => known.reduce(|a, b| if b.1 < a.1 { b } else { a }),
            Better::Neither => None,
        };
        let is_best = |(index, value): (usize, &Option<f64>)| {
            let is = |best: (usize, f64)| {
                self.text(*value) == self.unit.text(best.1) || self.overlap(best.0, index)
            };
            value.is_some() && !doubtful(index) && best.is_some_and(is)
        };
        let marked: Vec<bool> = self.values.iter().enumerate().map(is_best).collect();
        let known = self.values.iter().flatten().count();
        let differ = marked.iter().filter(|best| **best).count() < known;
        if differ { marked } else { vec![false; self.values.len()] }
    }

    /// How much better than the first run each is: positive is better. `None` for the first, where there is
    /// no better side, and where the change is slight, within what repeats differ by, or no ratio can be
    /// given.
    pub fn gains(&self) -> Vec<Option<f64>> {
        let base = self.values.first().copied().flatten().filter(|base| *base > 0.0);
        let gain = |(index, value): (usize, &Option<f64>)| {
            let (value, base) = ((*value)?, base?);
            if self.overlap(0, index) {
                return None;
            }
            let gain = match self.better {
                Better::Higher => value / base - 1.0,
                Better::Lower => 1.0 - value / base,
                Better::Neither => return None,
            };
            (gain.is_finite() && gain.abs() >= SLIGHT).then_some(gain)
        };
        let first = (!self.values.is_empty()).then_some(None);
        first.into_iter().chain(self.values.iter().enumerate().skip(1).map(gain)).collect()
    }
}

/// A gain with its sign: `+12 %`, `−340 %`; `11 times worse` where percentages stop being readable.
pub fn gain_text(gain: f64) -> String {
    match gain {
        g if g <= -10.0 => format!("{} times worse", Grouped((1.0 - g).round() as u64)),
        g if g >= 10.0 => format!("{} times better", Grouped((1.0 + g).round() as u64)),
        g if g < 0.0 => format!("−{}", Percent(-g)),
        g => format!("+{}", Percent(g)),
    }
}

impl Unit {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Share => "share",
            Unit::PerSecond => "per second",
            Unit::Nanoseconds => "nanoseconds",
            Unit::Count => "count",
            Unit::Bytes => "bytes",
        }
    }

    /// The one of such a name; what has another is a number.
    pub fn named(name: &str) -> Self {
        let all = [Unit::Share, Unit::PerSecond, Unit::Nanoseconds, Unit::Count, Unit::Bytes];
        all.into_iter().find(|unit| unit.name() == name).unwrap_or(Unit::Count)
    }

    /// A value in words.
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Share => Percent(value).to_string(),
            Unit::PerSecond if value >= 10.0 || value == 0.0 => Grouped(value.round() as u64).to_string(),
            Unit::PerSecond => format!("{value:.2}"),
            Unit::Nanoseconds => nanoseconds(value),
            Unit::Count => Grouped(value.max(0.0).round() as u64).to_string(),
            Unit::Bytes if value < 0.0 => format!("−{}", Bytes((-value) as u64)),
            Unit::Bytes => Bytes(value as u64).to_string(),
        }
    }

    /// Two values in words, with the unit once if it is the same: `190 to 212 MiB`.
    pub fn range(self, least: f64, most: f64) -> String {
        let (least, most) = (self.text(least), self.text(most));
        match (least.rsplit_once(' '), most.rsplit_once(' ')) {
            (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {most}"),
            _ => format!("{least} to {most}"),
        }
    }
}

/// A time with three digits: `12.3 µs`.
pub fn nanoseconds(ns: f64) -> String {
    let (value, unit) = match ns {
        n if n >= 1e9 => (n / 1e9, "s"),
        n if n >= 1e6 => (n / 1e6, "ms"),
        n if n >= 1e3 => (n / 1e3, "µs"),
        n => return format!("{n:.0} ns"),
    };
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

/// The measures of some runs. What no run knows is left out, and so is a trouble that no run had (errors, OOM
/// kills, failed zone reclaim).
pub fn measures(views: &[&View<'_>]) -> Vec<Measure> {
    let measure = |row: &Row| {
        // The floor only scales the spread, which is not shown here.
        let span = |view: &&View<'_>| Span::of(view.all().filter_map(row.read), f64::MIN_POSITIVE);
        let spans: Vec<Option<Span>> = views.iter().map(span).collect();
        let values: Vec<Option<f64>> = spans.iter().map(|span| Some((*span)?.value)).collect();
        let any = spans.iter().flatten().any(|span| !row.is_trouble || span.min != 0.0 || span.max != 0.0);
        let Row { key, name, unit, better, .. } = *row;
        let faster = |view: &&View<'_>| {
            key.starts_with("throughput_") && view.relative().is_some_and(|relative| relative > FASTER)
        };
        let doubtful = views.iter().map(faster).collect();
        any.then_some(Measure { key, name, unit, better, values, spans, doubtful })
    };
    ROWS.iter().filter_map(measure).collect()
}

/// How a measure is named and read.
struct Row {
    key: &'static str,
    name: &'static str,
    unit: Unit,
    better: Better,
    /// Left out where no run had any.
    is_trouble: bool,
    read: fn(&View<'_>) -> Option<f64>,
}

const fn row(
    key: &'static str,
    name: &'static str,
    unit: Unit,
    better: Better,
    read: fn(&View<'_>) -> Option<f64>,
) -> Row {
    Row { key, name, unit, better, is_trouble: false, read }
}

const fn trouble(
    key: &'static str,
    name: &'static str,
    unit: Unit,
    read: fn(&View<'_>) -> Option<f64>,
) -> Row {
    Row { key, name, unit, better: Better::Lower, is_trouble: true, read }
}

fn latency(view: &View<'_>, read: fn(&Latency) -> u64) -> Option<f64> {
    Latency::of(&view.work.latency).map(|latency| read(&latency) as f64)
}

fn moved(view: &View<'_>, read: fn(&Moved) -> Option<u64>) -> Option<f64> {
    read(&view.figures().moved).map(|count| count as f64)
}

/// A count of pages, in bytes.
fn moved_pages(view: &View<'_>, read: fn(&Moved) -> Option<u64>) -> Option<f64> {
    Some(moved(view, read)? * view.page())
}

/// A count of KiB, in bytes.
fn moved_kib(view: &View<'_>, read: fn(&Moved) -> Option<u64>) -> Option<f64> {
    Some(moved(view, read)? * 1024.0)
}

/// The mean of a list's size, in bytes. `list`: `active_anon`. A control group counts it in bytes, a host in
/// pages.
fn level(view: &View<'_>, list: &str) -> Option<f64> {
    let mean = |column: String| view.figures().levels.get(&column).map(|level| level.mean);
    let of_group = mean(format!("cgroup.{list}"));
    of_group.or_else(|| Some(mean(format!("vmstat.nr_{list}"))? * view.page()))
}

/// The most memory that page tables had, in bytes, where they grew or shrank by a MiB or more.
fn page_tables(view: &View<'_>) -> Option<f64> {
    let tables = view.figures().levels.get("vmstat.nr_page_table_pages")?;
    let [least, most] = [tables.min, tables.max].map(|pages| pages as f64 * view.page());
    (most - least >= 1024.0 * 1024.0).then_some(most)
}

/// The most that there was of a part of the pool of huge pages, in bytes; `None` where there was no pool.
fn most_of_pool(view: &View<'_>, part: fn(&HugePool) -> f64) -> Option<f64> {
    let pool = view.huge_pool();
    let there = pool.iter().flatten().filter(|pool| pool.total() > 0.0);
    there.map(part).reduce(f64::max)
}

/// Whether threads of one of these roles are measured.
fn has_role(view: &View<'_>, roles: &[&str]) -> bool {
    view.measured.iter().any(|(_, role)| roles.contains(&&**role))
}

/// The page faults of threads that map memory and touch it, so that faults are what they do.
fn page_faults(view: &View<'_>) -> Option<f64> {
    has_role(view, &["toucher", "session", ASKS]).then_some(view.work.faults as f64)
}

/// The time in the kernel that a fault takes, waits for reclaim included, of threads that do little else
/// there.
fn fault_time(view: &View<'_>) -> Option<f64> {
    let Work { faults, spent, .. } = &view.work;
    let toucher = view.measured.iter().all(|(_, role)| **role == *"toucher");
    (toucher && *faults > 0).then(|| (spent.system + spent.reclaim) as f64 / *faults as f64)
}

/// The most that a line of `/proc/meminfo` says, in bytes, where threads are measured that ask for memory.
fn most_promised(view: &View<'_>, line: &str) -> Option<f64> {
    if !view.asks_for_memory() {
        return None;
    }
    let column = view.run.samples().column(&format!("meminfo.{line}"))?;
    column.iter().flatten().max().map(|kib| kib as f64 * 1024.0)
}

/// Every measure, in the order in which they are shown.
#[rustfmt::skip]
const ROWS: &[Row] = {
    use Better::{Higher, Lower, Neither};
    use Unit::{Bytes, Count, Nanoseconds, PerSecond, Share};
    &[
        row("throughput_relative", "throughput, of the undisturbed", Share, Higher, |view| view.own_relative()),
        row("throughput_per_second", "requests per second", PerSecond, Higher, |view| {
            view.work.per_second().filter(|_| view.work.operations > 0 || !view.pace.is_empty())
        }),
        trouble("errors", "operations that failed", Count, |view| Some(view.work.errors as f64)),
        trouble("oom_kills", "OOM kills", Count, |view| Some(view.summary.oom_kills as f64)),
        row("latency_p50_ns", "latency p50", Nanoseconds, Lower, |view| latency(view, |l| l.p50)),
        row("latency_p99_ns", "latency p99", Nanoseconds, Lower, |view| latency(view, |l| l.p99)),
        row("latency_p999_ns", "latency p99.9", Nanoseconds, Lower, |view| latency(view, |l| l.p999)),
        row("latency_max_ns", "latency max", Nanoseconds, Lower, |view| latency(view, |l| l.max)),
        trouble("slower_than_1_ms", "requests over 1 ms", Share, |view| view.work.slower_than(1_000_000)),
        trouble("slower_than_10_ms", "requests over 10 ms", Share, |view| view.work.slower_than(10_000_000)),
        trouble("slower_than_100_ms", "requests over 100 ms", Share, |view| {
            view.work.slower_than(100_000_000)
        }),
        trouble("lost_thrashing", "time in thrashing", Share, |view| view.work.lost(|toll| toll.thrashing)),
        trouble("lost_compaction", "time in compaction", Share, |view| view.work.lost(|toll| toll.compaction)),
        trouble("lost_swap_in", "time in swap-in", Share, |view| view.work.lost(|toll| toll.swap_in)),
        row("major_faults", "major faults", Count, Lower, |view| {
            moved(view, |m| m.major_faults)
                .or_else(|| (!view.pace.is_empty()).then_some(view.work.major_faults as f64))
        }),
        row("page_faults", "page faults", Count, Lower, page_faults),
        row("fault_ns", "time in the kernel per fault", Nanoseconds, Lower, fault_time),
        row("direct_scan_pages", "pages scanned by tasks", Count, Lower, |view| {
            moved(view, |m| m.direct_scan)
        }),
        row("kswapd_scan_pages", "pages scanned by kswapd", Count, Neither, |view| {
            moved(view, |m| m.kswapd_scan)
        }),
        row("direct_steal_pages", "pages freed by tasks", Count, Neither, |view| {
            moved(view, |m| m.direct_steal)
        }),
        row("kswapd_steal_pages", "pages freed by kswapd", Count, Neither, |view| {
            moved(view, |m| m.kswapd_steal)
        }),
        row("efficiency", "freed of those scanned", Share, Higher, |view| {
            let moved = &view.figures().moved;
            let scanned = moved.direct_scan?.saturating_add(moved.kswapd_scan?);
            let freed = moved.direct_steal?.saturating_add(moved.kswapd_steal?);
            (scanned > 0).then(|| freed as f64 / scanned as f64)
        }),
        row("limit_hits", "times at the group's limit", Count, Lower, |view| moved(view, |m| m.limit_hits)),
        trouble("allocstall", "entries into direct reclaim", Count, |view| moved(view, |m| m.allocstall)),
        trouble("zone_reclaim_failed", "zone reclaims that failed", Count, |view| {
            moved(view, |m| m.zone_reclaim_failed)
        }),
        row("swap_in_bytes", "swapped in", Bytes, Lower, |view| moved_pages(view, |m| m.swap_in)),
        row("swap_out_bytes", "swapped out", Bytes, Lower, |view| moved_pages(view, |m| m.swap_out)),
        row("least_free_above_low_bytes", "least free above the low mark", Bytes, Higher, |view| {
            let least = view.figures().zones.iter().map(|zone| zone.least_above_low).min();
            least.map(|pages| pages as f64 * view.page())
        }),
        row("active_anon_bytes", "active anonymous, mean", Bytes, Neither, |view| {
            level(view, "active_anon")
        }),
        row("inactive_anon_bytes", "inactive anonymous, mean", Bytes, Neither, |view| {
            level(view, "inactive_anon")
        }),
        row("active_file_bytes", "active file, mean", Bytes, Neither, |view| {
            level(view, "active_file")
        }),
        row("inactive_file_bytes", "inactive file, mean", Bytes, Neither, |view| {
            level(view, "inactive_file")
        }),
        row("page_tables_bytes", "page tables, most", Bytes, Lower, page_tables),
        row("huge_pages_used_bytes", "huge pages in use, most", Bytes, Neither, |view| {
            most_of_pool(view, |pool| pool.used)
        }),
        row("huge_pages_idle_bytes", "idle huge pages, most", Bytes, Lower, |view| {
            most_of_pool(view, |pool| pool.idle)
        }),
        row("promised_bytes", "promised, most", Bytes, Neither, |view| most_promised(view, "Committed_AS")),
        row("commit_limit_bytes", "commit limit", Bytes, Neither, |view| most_promised(view, "CommitLimit")),
        row("page_in_bytes", "read from devices", Bytes, Neither, |view| moved_kib(view, |m| m.page_in)),
        row("page_out_bytes", "written to devices", Bytes, Neither, |view| moved_kib(view, |m| m.page_out)),
        row("refault_file_pages", "file pages read again", Count, Lower, |view| {
            moved(view, |m| m.refault_file)
        }),
        row("refault_anon_pages", "anonymous pages read again", Count, Lower, |view| {
            moved(view, |m| m.refault_anon)
        }),
        trouble("thp_split", "huge pages split", Count, |view| moved(view, |m| m.thp_split)),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(better: Better, values: &[f64]) -> Measure {
        let values = values.iter().copied().map(Some).collect();
        let (spans, doubtful) = (Vec::new(), Vec::new());
        Measure { key: "m", name: "m", unit: Unit::Count, better, values, spans, doubtful }
    }

    #[test]
    fn the_best_is_marked_only_where_it_is_one() {
        assert_eq!(measure(Better::Lower, &[5.0, 3.0, 3.2, 4.0]).best(), [false, true, true, false]);
        assert_eq!(measure(Better::Higher, &[5.0, 3.0]).best(), [true, false]);
        assert_eq!(measure(Better::Neither, &[5.0, 3.0]).best(), [false, false]);
        assert_eq!(measure(Better::Lower, &[5.0, 5.1]).best(), [false, false], "they read the same");
        let mut with_gap = measure(Better::Lower, &[5.0, 3.0]);
        with_gap.values.push(None);
        assert_eq!(with_gap.best(), [false, true, false]);
    }

    #[test]
    fn what_is_faster_than_undisturbed_is_never_the_best() {
        let mut row = measure(Better::Higher, &[90.0, 130.0, 80.0]);
        assert_eq!(row.best(), [false, true, false]);
        row.doubtful = vec![false, true, false];
        assert_eq!(row.best(), [true, false, false]);
        row.doubtful = vec![true; 3];
        assert_eq!(row.best(), [false; 3]);
    }

    /// Runs with such repeats.
    fn repeated(better: Better, unit: Unit, all: &[&[f64]]) -> Measure {
        let spans: Vec<Option<Span>> = all.iter().map(|one| Span::of(one.iter().copied(), 1.0)).collect();
        let values = spans.iter().map(|span| Some((*span)?.value)).collect();
        Measure { unit, spans, ..Measure { values, ..measure(better, &[]) } }
    }

    #[test]
    fn what_repeats_do_not_tell_apart_is_neither_best_nor_a_gain() {
        let row = repeated(
            Better::Lower,
            Unit::Count,
            &[&[100.0, 120.0, 140.0], &[90.0, 110.0, 130.0], &[200.0, 210.0, 220.0]],
        );
        assert_eq!(row.values, [Some(120.0), Some(110.0), Some(210.0)]);
        assert_eq!(row.best(), [true, true, false]);
        assert_eq!(row.gains(), [None, None, Some(1.0 - 210.0 / 120.0)]);
        let all_overlap = repeated(Better::Lower, Unit::Count, &[&[100.0, 120.0], &[110.0, 130.0]]);
        assert_eq!(all_overlap.best(), [false, false]);
    }

    #[test]
    fn the_range_of_repeats_names_its_unit_once() {
        let mib = 1024.0 * 1024.0;
        let row = repeated(
            Better::Lower,
            Unit::Bytes,
            &[&[190.0 * mib, 212.0 * mib], &[190.0 * mib, 2048.0 * mib], &[mib, mib], &[mib]],
        );
        let ranges: Vec<Option<String>> = (0..5).map(|index| row.range(index)).collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(ranges, [some("190 to 212 MiB"), some("190 MiB to 2 GiB"), None, None, None]);
        let counts = repeated(Better::Lower, Unit::Count, &[&[50_000.0, 60_000.0]]);
        assert_eq!(counts.range(0), some("50,000 to 60,000"));
    }

    #[test]
    fn positive_is_better_whichever_way_the_measure_goes() {
        let gains = |better, values: &[f64]| {
            measure(better, values).gains().into_iter().map(|gain| gain.map(gain_text)).collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(gains(Better::Lower, &[100.0, 50.0, 200.0]), [None, some("+50 %"), some("−100 %")]);
        assert_eq!(gains(Better::Higher, &[100.0, 50.0, 101.0]), [None, some("−50 %"), some("+1.0 %")]);
        assert_eq!(gains(Better::Lower, &[100.0, 100.2, 5000.0]), [None, None, some("50 times worse")]);
        assert_eq!(gains(Better::Lower, &[0.0, 7.0]), [None, None], "no ratio to nothing");
        assert_eq!(gains(Better::Neither, &[1.0, 7.0]), [None, None]);
    }

    #[test]
    fn times_have_three_digits() {
        let texts = [0.0, 999.0, 1234.0, 56_700.0, 999_600.0, 12_345_678.0, 2e9].map(nanoseconds);
        assert_eq!(texts, ["0 ns", "999 ns", "1.23 µs", "56.7 µs", "1000 µs", "12.3 ms", "2.00 s"]);
    }
}
