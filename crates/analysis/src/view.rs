//! [`View`]: what pictures, tables and sentences read of a run, and [`Comparison`]: several of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use lotsfree_kernel_files::counters::{Counter, Vmstat};
use lotsfree_run::{
    Figures, Histogram, Intervals, Moved, Run, RunOn, Samples, Spent, State, Summary, Toll, Window,
};
use lotsfree_scenario::{Case, MachineSpec, Scenario, SweepPoint};
use lotsfree_settings::{OVERCOMMIT_MEMORY, ZONE_RECLAIM_MODE};
use lotsfree_units::Percent;
use lotsfree_units::words::enumeration;

use crate::compare::error::{POINT, SLOW, Span};
use crate::compare::same_thing;

/// An undisturbed part in which this share of the requests' time went to waiting for a CPU is no measure of
/// an idle machine; `explain` calls a wait of this size a cause. Guessed.
const WAITED: f64 = 0.10;

/// A run with everything that is derived from it.
#[derive(Debug)]
pub struct View<'r> {
    /// The run itself.
    pub run: &'r Run,
    /// Its name among the runs that it is compared with.
    pub label: String,
    /// Its figures, whole and in parts.
    pub summary: Summary,
    /// The keys of its scenario that a variant can change, with their values.
    pub keys: BTreeMap<String, String>,
    /// The machine of its scenario, if that reads.
    pub machine: Option<MachineSpec>,
    /// The value of the sweep, if the scenario has one.
    pub point: Option<SweepPoint>,
    /// What the measured threads did in the part of the run that counts.
    pub work: Work,
    /// What they did in the undisturbed part; `None` without one in which something was done.
    pub undisturbed: Option<Work>,
    /// What they did from interval to interval.
    pub pace: Vec<Pace>,
    /// Actors and roles whose requests are measured, in the order in which they first appear.
    pub measured: Vec<(Arc<str>, Arc<str>)>,
    /// All of them begin their requests at a given rate.
    pub has_rate: bool,
    /// Actors that read or write past the page cache.
    pub direct: Vec<String>,
    /// How far counters moved before the part that counts, and after it; `None` if all of the run counts.
    pub outside: Option<(Moved, Moved)>,
    /// Where its random numbers come from; `None` if its scenario cannot be read.
    pub seed: Option<u64>,
    /// Further runs of the same thing, which `--repeat` made; empty of a run outside of a [`Comparison`].
    pub repeats: Vec<View<'r>>,
}

/// The role of threads that ask for memory, which may be refused.
pub(crate) const ASKS: &str = "allocator";

/// What the measured threads did in a part of a run.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Requests that ended.
    pub operations: u64,
    /// Operations that failed.
    pub errors: u64,
    /// How many of them failed in threads that ask for memory: it was refused.
    pub refused: u64,
    /// Length of the part.
    pub seconds: f64,
    /// How long requests took.
    pub latency: Histogram,
    /// Where the threads' time went.
    pub spent: Spent,
    /// What memory cost them; all zero where the run does not tell.
    pub toll: Toll,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// All page faults.
    pub faults: u64,
}

impl Work {
    /// Requests per second; `None` if the part has no length.
    pub fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.operations as f64 / self.seconds)
    }

    /// A part of what memory cost, as a share of the time that the threads were not asleep by their own wish;
    /// `None` where the run does not tell, which shows in that nothing was allocated either.
    pub fn lost(&self, part: fn(&Toll) -> u64) -> Option<f64> {
        let awake = busy(&self.spent);
        (awake > 0.0 && self.toll != Toll::default()).then(|| part(&self.toll) as f64 / awake)
    }

    /// The share of requests that took longer than `ns`; `None` if none ended. Exact to the histogram's
    /// bucket (1/32).
    pub fn slower_than(&self, ns: u64) -> Option<f64> {
        let count = self.latency.count();
        let slow: u64 = self.latency.buckets().filter(|(upper, _)| *upper > ns).map(|(_, n)| n).sum();
        (count > 0).then(|| slow as f64 / count as f64)
    }
}

/// What the measured threads did in one interval.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds of the run at its begin.
    pub from: f64,
    /// Seconds of the run at its end.
    pub to: f64,
    /// Requests per second.
    pub per_second: f64,
    /// Within so many nanoseconds 99 in 100 requests ended; `None` if none did.
    pub p99: Option<f64>,
}

/// Where time went, in the order of bars and tables.
pub fn spent(spent: &Spent) -> [(&'static str, u64); 6] {
    let Spent { user, system, reclaim, io, throttled, runnable, idle: _ } = *spent;
    [
        ("user", user),
        ("system", system),
        ("reclaim", reclaim),
        ("throttled", throttled),
        ("waiting for a device", io),
        ("waiting for a CPU", runnable),
    ]
}

/// The pool of huge pages at one sample, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HugePool {
    /// Pages that hold something.
    pub used: f64,
    /// Free pages that are promised to a mapping.
    pub reserved: f64,
    /// Free pages that nobody was promised.
    pub idle: f64,
}

impl HugePool {
    /// All of it.
    pub fn total(self) -> f64 {
        self.used + self.reserved + self.idle
    }
}

/// Nanoseconds of threads that were not asleep by their own wish.
pub fn busy(of: &Spent) -> f64 {
    spent(of).iter().map(|(_, ns)| *ns as f64).sum()
}

impl<'r> View<'r> {
    /// Reads a run as far as it can be read: one that was cut off has fewer figures.
    pub fn of(run: &'r Run) -> Self {
        let summary = run.summary();
        // What wrote the run checked its scenario; one that another version wrote may not read any more.
        let case = Scenario::parse(run.scenario(), "scenario.toml").and_then(|all| all.cases(None)).ok();
        let case = case.and_then(|cases| cases.into_iter().next());
        let subject = Subject::of(case.as_ref(), run.intervals());
        let Worked { work, undisturbed, pace } = subject.worked(run, &summary);
        let measured = subject.among(run.intervals());
        let paced = |(actor, role): &(Arc<str>, Arc<str>)| {
            let mut actors = case.iter().flat_map(|case| &case.actors);
            actors.any(|known| *known.name == **actor && known.kind.has_rate(role))
        };
        let has_rate = !measured.is_empty() && measured.iter().all(paced);
        let direct = case.iter().flat_map(|case| &case.actors).filter(|actor| actor.kind.is_direct());
        let direct = direct.map(|actor| actor.name.clone()).collect();
        let named = run.facts().variant.clone().filter(|name| !name.is_empty());
        let label =
            named.or_else(|| Some(case.as_ref()?.variant.clone())).unwrap_or_else(|| "base".to_owned());
        let keys = case.as_ref().map(Case::keys).unwrap_or_default();
        let seed = case.as_ref().map(|case| case.seed);
        let machine = case.as_ref().map(|case| case.machine.clone());
        let point = case.and_then(|case| case.sweep);
        let outside = run.facts().measure.window.map(|_| {
            let Window { from, to } = summary.measured.window;
            let of = |from, to| Moved::of(run, Window { from, to });
            (of(0, from), of(to, u64::MAX))
        });
        let repeats = Vec::new();
        View {
            run,
            label,
            summary,
            keys,
            machine,
            point,
            work,
            undisturbed,
            pace,
            measured,
            has_rate,
            direct,
            outside,
            seed,
            repeats,
        }
    }

    /// The pool of huge pages at each sample, `None` where the sample does not show it; nothing of a run in a
    /// control group, where it is the host's.
    pub fn huge_pool(&self) -> Vec<Option<HugePool>> {
        let samples = self.run.samples();
        if self.run.facts().machine == RunOn::Cgroup {
            return Vec::new();
        }
        let [size, total, free, reserved] =
            ["Hugepagesize", "HugePages_Total", "HugePages_Free", "HugePages_Rsvd"]
                .map(|line| samples.column(&format!("meminfo.{line}")));
        let at = |row: usize| {
            let (size, total, free) = (size?.get(row)?, total?.get(row)?, free?.get(row)?);
            let reserved = reserved?.get(row)?.min(free);
            let bytes = |pages: u64| pages as f64 * size as f64 * 1024.0;
            let (used, idle) = (bytes(total.saturating_sub(free)), bytes(free - reserved));
            Some(HugePool { used, reserved: bytes(reserved), idle })
        };
        (0..samples.len()).map(at).collect()
    }

    /// Bytes of the pool of huge pages at the end, if nobody used or reserved a page of it in all the run.
    pub fn idle_pool(&self) -> Option<f64> {
        let pool = self.huge_pool();
        let untouched = pool.iter().flatten().all(|pool| pool.used + pool.reserved == 0.0);
        pool.iter().flatten().last().map(|pool| pool.idle).filter(|idle| untouched && *idle > 0.0)
    }

    /// Whether the kernel promises no more memory than its limit (mode 2 of overcommit).
    pub fn is_strict(&self) -> bool {
        self.run.facts().sysctls.get(OVERCOMMIT_MEMORY).is_some_and(|mode| mode.trim() == "2")
    }

    /// Whether threads are measured whose work is to ask for memory.
    pub fn asks_for_memory(&self) -> bool {
        self.measured.iter().any(|(_, role)| **role == *ASKS)
    }

    /// The run and its repeats.
    pub fn all(&self) -> impl Iterator<Item = &View<'r>> + Clone {
        std::iter::once(self).chain(&self.repeats)
    }

    /// Whether another run is a repeat of this one: `--repeat` has put them beside each other, as `1`, `2`
    /// and so on, or has kept both in memory. A run that was cut off is none.
    fn is_repeated_by(&self, other: &View<'r>) -> bool {
        let number = |path: &Path| path.file_name()?.to_str()?.parse::<u16>().ok();
        let together = match (self.run.directory(), other.run.directory()) {
            (Some(a), Some(b)) => {
                a.parent() == b.parent()
                    && number(a).is_some()
                    && number(b).is_some()
                    && number(a) != number(b)
            }
            (None, None) => self.seed != other.seed,
            _ => false,
        };
        together
            && [self, other].iter().all(|view| view.run.state() == State::Complete)
            && same_thing(self, other)
    }

    /// Figures of the part that counts.
    pub fn figures(&self) -> &Figures {
        &self.summary.measured
    }

    /// The seconds of the run at which the part that counts would have begun, if the run ended before or just
    /// then.
    pub fn unreached(&self) -> Option<f64> {
        let asked = self.run.facts().measure.window?;
        let Window { from, to } = self.figures().window;
        (to <= asked.from || to <= from).then_some(asked.from as f64 / 1e9)
    }

    /// Throughput as a share of the undisturbed one; of repeats the median.
    pub fn relative(&self) -> Option<f64> {
        Some(Span::of(self.all().filter_map(View::own_relative), POINT)?.value)
    }

    /// Requests per second; of repeats the median.
    pub fn per_second(&self) -> Option<f64> {
        Some(Span::of(self.all().filter_map(|view| view.work.per_second()), SLOW)?.value)
    }

    /// Throughput of this run alone, as a share of the undisturbed one.
    pub fn own_relative(&self) -> Option<f64> {
        let before = self.undisturbed.as_ref()?.per_second().filter(|before| *before > 0.0)?;
        Some(self.work.per_second()? / before)
    }

    /// Bytes of a page.
    pub fn page(&self) -> f64 {
        match self.run.facts().page_size {
            0 => 4096.0,
            bytes => bytes as f64,
        }
    }

    /// Seconds from the run's begin to its last row.
    pub fn seconds(&self) -> f64 {
        let sampled = self.run.samples().times().last().map_or(0.0, |at| *at as f64 / 1e9);
        self.pace.last().map_or(sampled, |pace| pace.to.max(sampled))
    }

    /// `vm.zone_reclaim_mode` is set.
    pub fn zone_reclaim(&self) -> bool {
        let mode = self.run.facts().sysctls.get(ZONE_RECLAIM_MODE);
        mode.is_some_and(|mode| mode.trim().parse::<u32>().is_ok_and(|mode| mode > 0))
    }

    /// What is not as a whole run is; empty if all is well.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.own_remarks();
        for (number, repeat) in (2..).zip(&self.repeats) {
            remarks.extend(repeat.own_remarks().into_iter().map(|said| format!("repeat {number}: {said}")));
        }
        remarks
    }

    fn own_remarks(&self) -> Vec<String> {
        let mut remarks = self.run.remarks().to_vec();
        if self.run.samples().is_empty() && self.run.intervals().is_empty() {
            remarks.push("it holds no sample and no interval".to_owned());
        } else if self.run.samples().len() < 2 {
            remarks.push("it holds fewer than two samples, so that no counter is seen to move".to_owned());
        }
        remarks.extend(self.waited_before());
        remarks.extend(self.did_nothing());
        remarks
    }

    /// That nothing of what is measured was done: a request that lasts longer than the measured part leaves
    /// rows of zeros which look like an idle machine's.
    fn did_nothing(&self) -> Option<String> {
        let is_measured = !self.pace.is_empty() && self.work.seconds > 0.0;
        (is_measured && self.work.operations == 0).then(|| {
            let mut actors: Vec<String> = self.measured.iter().map(|(actor, _)| actor.to_string()).collect();
            actors.dedup();
            format!("no request of {} ended in the part that is measured", enumeration(&actors))
        })
    }

    /// That the undisturbed part was disturbed itself, by too few CPUs. The model has the CPUs that the
    /// scenario gives it; a host shares its own with others.
    fn waited_before(&self) -> Option<String> {
        let spent = &self.undisturbed.as_ref()?.spent;
        let share = spent.runnable as f64 / busy(spent);
        (self.run.facts().machine != RunOn::Model && share >= WAITED).then(|| {
            format!(
                "already in its undisturbed part, {} of the requests' time went to waiting for a CPU, so that \
                 throughput as a share of that part looks better than it is",
                Percent(share)
            )
        })
    }

    /// Model or kernel, and which.
    pub fn machine(&self) -> String {
        let facts = self.run.facts();
        let place = place(facts.machine);
        if facts.kernel.is_empty() { place.to_owned() } else { format!("{} ({place})", facts.kernel) }
    }
}

/// What executed a run, in words.
pub fn place(machine: RunOn) -> &'static str {
    match machine {
        RunOn::Model => "model",
        RunOn::Host => "host",
        RunOn::Cgroup => "control group",
        RunOn::Vm => "virtual machine",
    }
}

/// Whose requests are measured.
struct Subject {
    actor: Option<String>,
    role: Option<String>,
}

/// What they did.
struct Worked {
    work: Work,
    undisturbed: Option<Work>,
    pace: Vec<Pace>,
}

impl Subject {
    /// As the scenario says; where it cannot be read, the actor that comes first.
    fn of(case: Option<&Case>, intervals: &Intervals) -> Self {
        match case {
            Some(case) => Subject { actor: case.measure.actor.clone(), role: case.measure.role.clone() },
            None => {
                let first = intervals.actors().first().map(|(actor, _)| actor.to_string());
                Subject { actor: first, role: None }
            }
        }
    }

    fn has(&self, actor: &str, role: &str) -> bool {
        let wanted = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|w| w == name);
        wanted(&self.actor, actor) && wanted(&self.role, role)
    }

    fn among(&self, intervals: &Intervals) -> Vec<(Arc<str>, Arc<str>)> {
        intervals.actors().into_iter().filter(|(actor, role)| self.has(actor, role)).collect()
    }

    fn worked(&self, run: &Run, summary: &Summary) -> Worked {
        let baseline = run.facts().measure.baseline;
        let (mut work, mut undisturbed) = (Work::default(), Work::default());
        let mut pace: Vec<Pace> = Vec::new();
        let mut now = Histogram::default();
        let inside = |window: Window, from: u64, at: u64| from >= window.from && at <= window.to;
        let close = |pace: &mut Vec<Pace>, latency: &mut Histogram| {
            if let Some(last) = pace.last_mut() {
                last.p99 = latency.quantile(0.99).map(|ns| ns as f64);
            }
            *latency = Histogram::default();
        };
        for interval in run.intervals().iter() {
            let (from, to) = (interval.from as f64 / 1e9, interval.at as f64 / 1e9);
            if !self.has(&interval.actor, &interval.role) || to <= from {
                continue;
            }
            let windows = [(&mut work, Some(summary.measured.window)), (&mut undisturbed, baseline)];
            for (sum, window) in windows {
                if window.is_some_and(|window| inside(window, interval.from, interval.at)) {
                    sum.operations = sum.operations.saturating_add(interval.operations);
                    sum.errors = sum.errors.saturating_add(interval.errors);
                    if *interval.role == *ASKS {
                        sum.refused = sum.refused.saturating_add(interval.errors);
                    }
                    sum.major_faults = sum.major_faults.saturating_add(interval.major_faults);
                    let faults = interval.major_faults.saturating_add(interval.minor_faults);
                    sum.faults = sum.faults.saturating_add(faults);
                    sum.spent.add(&interval.spent);
                    sum.toll.add(&interval.toll);
                    sum.latency.merge(&interval.latency);
                }
            }
            // Rows of one instant stand together.
            if pace.last().is_none_or(|last| last.to != to) {
                close(&mut pace, &mut now);
                pace.push(Pace { from, to, per_second: 0.0, p99: None });
            }
            if let Some(last) = pace.last_mut() {
                last.per_second += interval.operations as f64 / (to - from);
            }
            now.merge(&interval.latency);
        }
        close(&mut pace, &mut now);
        let length = |window: Window| window.to.saturating_sub(window.from) as f64 / 1e9;
        work.seconds = length(summary.measured.window);
        undisturbed.seconds = summary.baseline.as_ref().map_or(0.0, |figures| length(figures.window));
        let undisturbed = (undisturbed.operations > 0 && undisturbed.seconds > 0.0).then_some(undisturbed);
        Worked { work, undisturbed, pace }
    }
}

/// Runs side by side, in the order in which they were given. The first is what the others are compared with.
#[derive(Debug)]
pub struct Comparison<'r> {
    /// The runs; repeats are one, with the first of them in front.
    pub views: Vec<View<'r>>,
    /// Those of which a column, a sentence and a picture over time are shown: one of each variant. Of a sweep
    /// that is the run at the largest value that all variants have.
    pub shown: Vec<usize>,
    /// What differs between runs of one variant, if their scenario has a sweep.
    pub sweep: Option<Sweep>,
}

/// What differs from run to run of one variant.
#[derive(Debug)]
pub struct Sweep {
    /// What the values are.
    pub title: String,
    /// Their unit.
    pub unit: Option<String>,
    /// Each variant's runs, by ascending value: the value and the index of the view.
    pub lines: Vec<(String, Vec<(f64, usize)>)>,
    /// The value of the runs that are shown, as the scenario writes it; `None` if they differ.
    pub shown: Option<String>,
}

impl Sweep {
    /// What the values are, within a sentence: a capital letter at the begin is none there.
    pub fn said(&self) -> String {
        let mut letters = self.title.chars();
        match (letters.next(), letters.clone().next()) {
            (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
                first.to_lowercase().chain(letters).collect()
            }
            _ => self.title.clone(),
        }
    }
}

/// `30 % with base, 100 % with direct`: what two runs have. A name with a comma is followed by a
/// semicolon.
pub fn with_each(first: (impl Display, &str), second: (impl Display, &str)) -> String {
    let between = if first.1.contains(',') || second.1.contains(',') { ';' } else { ',' };
    format!("{} with {}{between} {} with {}", first.0, first.1, second.0, second.1)
}

impl<'r> Comparison<'r> {
    /// Puts runs side by side.
    pub fn of(runs: &'r [Run]) -> Self {
        let mut views: Vec<View<'r>> = Vec::new();
        for view in runs.iter().map(View::of) {
            match views.iter_mut().find(|first| first.is_repeated_by(&view)) {
                Some(first) => first.repeats.push(view),
                None => views.push(view),
            }
        }
        tell_apart(&mut views);
        let sweep = Sweep::of(&views);
        let shown = match &sweep {
            Some(sweep) => sweep.at_largest(),
            None => (0..views.len()).collect(),
        };
        let mut comparison = Comparison { views, shown, sweep };
        comparison.name_shown();
        comparison
    }

    fn name_shown(&mut self) {
        let labels: BTreeSet<Option<&str>> = self
            .shown
            .iter()
            .filter_map(|i| self.views.get(*i))
            .map(|v| Some(v.point.as_ref()?.label.as_str()))
            .collect();
        let only = if labels.len() == 1 { labels.into_iter().next().flatten() } else { None };
        let only = only.map(str::to_owned);
        if let Some(sweep) = &mut self.sweep {
            sweep.shown = only;
        }
    }

    /// The runs that are shown, in order.
    pub fn columns(&self) -> impl Iterator<Item = &View<'r>> + Clone + '_ {
        self.shown.iter().filter_map(|index| self.views.get(*index))
    }

    /// What a view is compared with: the first run at the same value of the sweep; `None` for that run
    /// itself.
    pub fn baseline(&self, of: &View<'r>) -> Option<&View<'r>> {
        let number = |view: &View<'_>| view.point.as_ref().map(|point| point.number);
        let first = self.views.first()?;
        let same = |view: &&View<'r>| view.label == first.label && number(view) == number(of);
        let base = match &self.sweep {
            Some(_) => self.views.iter().find(same)?,
            None => first,
        };
        (!std::ptr::eq(base, of)).then_some(base)
    }

    /// Beside the run that others are compared with: the next one that is shown at the same value of the
    /// sweep.
    pub fn beside(&self, of: &View<'r>) -> Option<&View<'r>> {
        self.views.iter().find(|view| {
            view.label != of.label
                && view.point.as_ref().map(|point| point.number)
                    == of.point.as_ref().map(|point| point.number)
        })
    }

    /// How many runs there are, repeats included.
    pub fn runs(&self) -> usize {
        self.views.iter().map(|view| view.all().count()).sum()
    }

    /// How often each column was run, if repeated: `3 runs`, `2 to 3 runs`.
    pub fn repeated(&self) -> Option<String> {
        let counts = || self.columns().map(|view| view.all().count());
        let (least, most) = (counts().min()?, counts().max()?);
        match (least, most) {
            (_, 1) => None,
            (least, most) if least == most => Some(format!("{most} runs")),
            (least, most) => Some(format!("{least} to {most} runs")),
        }
    }

    /// The title that all runs have, or what stands for several.
    pub fn title(&self) -> String {
        let titles: BTreeSet<&str> = self
            .views
            .iter()
            .map(|view| view.run.facts().title.as_str())
            .filter(|title| !title.is_empty())
            .collect();
        match (titles.len(), titles.first()) {
            (1, Some(title)) => (*title).to_owned(),
            (0, _) => "Runs".to_owned(),
            (n, _) => format!("{n} scenarios"),
        }
    }
}

/// Gives runs that would have the same name what distinguishes them.
fn tell_apart(views: &mut [View<'_>]) {
    let directory = |view: &View<'_>| {
        let name = view.run.directory().and_then(|path| path.file_name());
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let suffixes: [&dyn Fn(&View<'_>) -> String; 3] =
        [&|view| view.machine(), &|view| view.run.facts().title.clone(), &directory];
    let key = |view: &View<'_>| (view.label.clone(), view.point.as_ref().map(|point| point.number.to_bits()));
    for suffix in suffixes {
        let keys: Vec<_> = views.iter().map(key).collect();
        let mut groups: std::collections::BTreeMap<_, Vec<usize>> = std::collections::BTreeMap::new();
        for (index, key) in keys.into_iter().enumerate() {
            groups.entry(key).or_default().push(index);
        }
        for group in groups.values().filter(|group| group.len() > 1) {
            let said: Vec<(usize, String)> =
                group.iter().filter_map(|index| Some((*index, suffix(views.get(*index)?)))).collect();
            let different: BTreeSet<&String> = said.iter().map(|(_, said)| said).collect();
            if different.len() > 1 {
                for (index, said) in &said {
                    if let Some(view) = views.get_mut(*index).filter(|_| !said.is_empty()) {
                        view.label = format!("{}, {said}", view.label);
                    }
                }
            }
        }
    }
    let mut seen: std::collections::BTreeMap<_, u32> = std::collections::BTreeMap::new();
    for view in views {
        let times = seen.entry(key(view)).or_insert(0);
        *times += 1;
        if *times > 1 {
            view.label = format!("{} #{times}", view.label);
        }
    }
}

impl Sweep {
    /// `None` unless some variant has runs at two values of one key.
    fn of(views: &[View<'_>]) -> Option<Self> {
        let mut points = views.iter().filter_map(|view| view.point.as_ref());
        let first = points.next()?;
        if points.any(|point| point.key != first.key || point.unit != first.unit) {
            return None;
        }
        let mut lines: Vec<(String, Vec<(f64, usize)>)> = Vec::new();
        for (index, view) in views.iter().enumerate() {
            let at = view.point.as_ref()?.number;
            match lines.iter_mut().find(|(label, _)| *label == view.label) {
                Some((_, line)) => line.push((at, index)),
                None => lines.push((view.label.clone(), vec![(at, index)])),
            }
        }
        for (_, line) in &mut lines {
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        if lines.iter().all(|(_, line)| line.len() < 2) {
            return None;
        }
        let title = first.title.clone().unwrap_or_else(|| first.key.clone());
        Some(Sweep { title, unit: first.unit.clone(), lines, shown: None })
    }

    /// The view of each variant at the largest value that all have, else at its own largest.
    fn at_largest(&self) -> Vec<usize> {
        let has =
            |line: &[(f64, usize)], at: f64| line.iter().find(|(value, _)| *value == at).map(|(_, i)| *i);
        let common = self.lines.first().and_then(|(_, first)| {
            let mut values = first.iter().rev().map(|(value, _)| *value);
            values.find(|at| self.lines.iter().all(|(_, line)| has(line, *at).is_some()))
        });
        let one = |line: &[(f64, usize)]| match common {
            Some(at) => has(line, at),
            None => line.last().map(|(_, index)| *index),
        };
        self.lines.iter().filter_map(|(_, line)| one(line)).collect()
    }
}

/// The sum of some counters of `/proc/vmstat`, sample by sample; `None` where none of them is present.
pub fn vmstat(samples: &Samples, counters: &[Counter<Vmstat>]) -> Vec<Option<u64>> {
    let mut sums: Vec<Option<u64>> = vec![None; samples.len()];
    for counter in counters {
        let Some(column) = samples.column(&format!("vmstat.{}", counter.name())) else { continue };
        for (sum, value) in sums.iter_mut().zip(column.iter()) {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or(0).saturating_add(value));
            }
        }
    }
    sums
}

/// How a run ended, for a table; `None` for one that came to its end.
pub fn ended(state: State) -> Option<&'static str> {
    match state {
        State::Complete => None,
        State::Interrupted => Some("interrupted"),
        State::Running => Some("incomplete"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_of_a_sweep_begins_small_within_a_sentence() {
        let said = |title: &str| {
            Sweep { title: title.to_owned(), unit: None, lines: Vec::new(), shown: None }.said()
        };
        assert_eq!(said("Size of the file"), "size of the file");
        assert_eq!(said("RAM"), "RAM");
        assert_eq!(said("actor.dd.size"), "actor.dd.size");
        assert_eq!(said(""), "");
    }

    #[test]
    fn a_name_with_a_comma_is_told_apart_from_what_follows() {
        assert_eq!(with_each(("3 %", "on"), (4, "off")), "3 % with on, 4 with off");
        assert_eq!(with_each(("3 %", "3.0, direct"), ("4 %", "off")), "3 % with 3.0, direct; 4 % with off");
    }
}
