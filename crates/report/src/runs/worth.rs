//! The head of the page on validation: what a prediction of the model is worth.

use lotsfree_analysis::compare::error::median_of;
use lotsfree_analysis::compare::{Row, Table};
use lotsfree_analysis::decision::{Decision, MACHINES, RIGHT, Trust, decisions};
use lotsfree_analysis::interval::Intervals;
use lotsfree_analysis::score::{Cell, Directions, Score, Stratum, own_rows};
use lotsfree_analysis::validation::{Validation, variant};
use lotsfree_scenario::{Experiment, Experiments};
use lotsfree_units::Grouped;

use super::compare::size;
use crate::markdown::{self, escaped, line};
use crate::words::plural;

/// Counters that are told by themselves, because they are what hurts.
const HURTS: [(&str, &[&str]); 3] = [
    ("swap", &["vmstat.pswpin", "vmstat.pswpout"]),
    ("major faults", &["vmstat.pgmajfault"]),
    ("refaults", &["vmstat.workingset_refault"]),
];

/// A variant of an experiment on a kernel.
#[derive(Clone, Copy)]
struct Case<'a> {
    experiments: &'a Experiments,
    of: &'a Validation,
    table: &'a Table,
}

impl<'a> Case<'a> {
    /// Errors of the counters of reclaim's own for which `also` holds.
    fn cells(self, also: &'a dyn Fn(&Row) -> bool) -> impl Iterator<Item = Cell> + 'a {
        let Case { experiments, of, table } = self;
        own_rows(experiments, of, table).filter(move |row| also(row)).filter_map(Cell::of)
    }

    fn score(self) -> Score {
        Score::of(self.cells(&|_| true))
    }

    fn name(self) -> String {
        format!("{}, {}", self.of.experiment, variant(self.table))
    }
}

fn cases<'a>(experiments: &'a Experiments, all: &[&'a Validation]) -> Vec<Case<'a>> {
    let of = |of: &&'a Validation| {
        let of: &'a Validation = of;
        of.compared.tables.iter().map(move |table| Case { experiments, of, table })
    };
    all.iter().flat_map(of).collect()
}

/// The case whose counters are furthest off.
fn worst<'a>(cases: &[Case<'a>]) -> Option<(f64, Case<'a>)> {
    let scored = cases.iter().filter_map(|case| Some((case.score().error?, *case)));
    scored.max_by(|(a, _), (b, _)| a.total_cmp(b))
}

fn together(cases: &[Case<'_>]) -> Score {
    Score::of(cases.iter().flat_map(|case| case.cells(&|_| true)))
}

fn share(error: Option<f64>) -> String {
    error.map_or_else(|| "–".to_owned(), size)
}

/// What experiments say that taught the model nothing.
pub(super) fn held_out(out: &mut String, experiments: &Experiments, all: &[&Validation]) {
    let is = |experiment: &&Experiment| experiment.is_held_out();
    let drawn = experiments.all.iter().filter(is).count();
    if drawn == 0 {
        return;
    }
    line(out, "## What a prediction is worth\n");
    line(out, HELD_OUT);
    let executed: Vec<&Validation> =
        all.iter().filter(|of| experiments.holds_out(&of.experiment)).copied().collect();
    let made: Vec<&Validation> =
        executed.iter().filter(|of| !of.compared.tables.is_empty()).copied().collect();
    let looks = match experiments.looks.as_slice() {
        [] => "Nobody has looked at what came of them.".to_owned(),
        looks => {
            let said: Vec<String> =
                looks.iter().map(|look| format!("{} ({})", look.date, escaped(&look.why))).collect();
            let often = if looks.len() == 1 { "once".to_owned() } else { plural(looks.len(), "time") };
            format!("What came of them was looked at {often}: {}.", said.join("; "))
        }
    };
    line(
        out,
        &format!(
            "Kernels have executed {} of {drawn} experiments, and the model {}. {looks}\n",
            executed.len(),
            made.len()
        ),
    );
    if made.is_empty() {
        return;
    }
    let mut kernels: Vec<&str> = made.iter().map(|of| of.kernel()).collect();
    kernels.sort_unstable();
    kernels.dedup();
    let every = cases(experiments, &made);
    let mut rows = Vec::new();
    for kernel in kernels {
        let its: Vec<Case<'_>> = every.iter().filter(|case| case.of.kernel() == kernel).copied().collect();
        for stratum in Stratum::ALL {
            let of: Vec<Case<'_>> =
                its.iter().filter(|case| Stratum::of_column(case.table, 0) == stratum).copied().collect();
            if !of.is_empty() {
                rows.push(stratum_row(kernel, stratum.name(), &of));
            }
        }
        rows.push(stratum_row(kernel, "in all", &its));
    }
    let first =
        ["kernel", "the kernel", "cases", "counters", "error", "beyond repeats", "repeats apart", "in kind"];
    let last = ["worst case", "unsteady", "their error"];
    let head: Vec<&str> = first.into_iter().chain(HURTS.map(|(name, _)| name)).chain(last).collect();
    let text = ["kernel", "the kernel", "worst case"];
    let numbers: Vec<bool> = head.iter().map(|name| !text.contains(name)).collect();
    markdown::table(out, &head, &numbers, &rows);
    let mut directions = Directions::default();
    made.iter().for_each(|of| directions.add(of));
    if directions.told > 0 {
        line(
            out,
            &format!(
                "The kernel's repeats tell which way a variant changes throughput, latency p99 or major faults in {} \
                 cells; the model has it right in {}.\n",
                directions.told, directions.right
            ),
        );
    }
}

fn stratum_row(kernel: &str, what: &str, cases: &[Case<'_>]) -> Vec<String> {
    let score = together(cases);
    let mut row = vec![
        kernel.to_owned(),
        what.to_owned(),
        cases.len().to_string(),
        score.counters.to_string(),
        share(score.error),
        share(score.beyond),
        share(score.spread),
        score.in_kind.to_string(),
    ];
    for (_, keys) in HURTS {
        let is = |row: &Row| keys.iter().any(|key| row.key.starts_with(key));
        // Those whose repeats are apart as well: what hurts is seldom steady.
        let errors = cases.iter().flat_map(|case| case.cells(&is)).map(|cell| cell.error).collect();
        row.push(share(median_of(errors)));
    }
    row.push(
        worst(cases)
            .map_or_else(String::new, |(error, case)| format!("{} ({})", escaped(&case.name()), size(error))),
    );
    row.extend([score.unsteady.to_string(), share(score.unsteady_error)]);
    row
}

/// A row for each experiment on each kernel: those that were made for the model, or from which it was mended.
pub(super) fn known(out: &mut String, experiments: &Experiments, all: &[&Validation]) {
    let known = |of: &&&Validation| {
        let mut named = experiments.all.iter().filter(|experiment| experiment.name == of.experiment);
        named.any(|experiment| !experiment.is_held_out())
    };
    let known: Vec<&Validation> = all.iter().filter(known).copied().collect();
    if known.is_empty() {
        return;
    }
    line(out, "## Experiments that are known\n");
    line(out, KNOWN);
    let head = [
        "experiment",
        "kernel",
        "counters",
        "error",
        "beyond repeats",
        "repeats apart",
        "in kind",
        "worst variant",
        "its error",
        "unsteady",
        "their error",
        "taught",
    ];
    let numbers: Vec<bool> = (0..head.len()).map(|column| (2..11).contains(&column) && column != 7).collect();
    let taught = |of: &Validation| {
        let found = experiments.all.iter().find(|experiment| experiment.name == of.experiment);
        found.and_then(|experiment| experiment.taught.clone()).unwrap_or_default()
    };
    let row = |of: &&Validation| {
        let cases = cases(experiments, &[of]);
        let score = together(&cases);
        let (error, name) = match worst(&cases) {
            Some((error, case)) => (Some(error), escaped(&variant(case.table))),
            None => (None, String::new()),
        };
        vec![
            of.experiment.clone(),
            of.kernel().to_owned(),
            score.counters.to_string(),
            share(score.error),
            share(score.beyond),
            share(score.spread),
            score.in_kind.to_string(),
            name,
            share(error),
            score.unsteady.to_string(),
            share(score.unsteady_error),
            escaped(&taught(of)),
        ]
    };
    let rows: Vec<Vec<String>> = known.iter().map(row).collect();
    markdown::table(out, &head, &numbers, &rows);
    let score = together(&cases(experiments, &known));
    line(
        out,
        &format!(
            "Over all of them: {} counters with a median error of {}, {} in kind, and {} whose repeats are apart, with \
             {}.\n",
            score.counters,
            share(score.error),
            score.in_kind,
            score.unsteady,
            share(score.unsteady_error)
        ),
    );
}

/// How often a kernel's figure lies in the interval that `sim` states.
pub(super) fn intervals(out: &mut String, experiments: &Experiments, all: &[&Validation]) {
    let (held_out, known): (Vec<&Validation>, Vec<&Validation>) =
        all.iter().copied().partition(|of| experiments.holds_out(&of.experiment));
    let sum = |pairs: &mut dyn Iterator<Item = (usize, usize)>| {
        pairs.fold((0, 0), |(all, within), (of, lie)| (all + of, within + lie))
    };
    // An experiment is judged by the intervals of the others.
    let without = |of: &Validation| {
        let others: Vec<&Validation> =
            known.iter().copied().filter(|other| other.experiment != of.experiment).collect();
        Intervals::of(&others)
    };
    let (figures, within) = sum(&mut known.iter().map(|of| without(of).coverage(of)));
    if figures == 0 {
        return;
    }
    let said = |within: usize, figures: usize| {
        format!(
            "{} of {} ({})",
            Grouped(within as u64),
            Grouped(figures as u64),
            size(within as f64 / figures as f64)
        )
    };
    line(out, "## The intervals that `sim` states\n");
    line(out, INTERVALS);
    let mut text = format!(
        "In {} pairs of a kernel's figure and a run of the model the figure lies in the interval that all other \
         experiments make.",
        said(within, figures)
    );
    let of_known = Intervals::of(&known);
    let (figures, within) = sum(&mut held_out.iter().map(|of| of_known.coverage(of)));
    if figures > 0 {
        text += &format!(" Of the experiments that were held out it does in {}.", said(within, figures));
    }
    line(out, &format!("{text}\n"));
}

/// What the model says of each setting, beside what kernels do.
pub(super) fn settings(out: &mut String, all: &[&Validation]) {
    let decisions: Vec<Decision> = decisions(all);
    if decisions.is_empty() {
        return;
    }
    line(out, "## Which settings the model can be asked about\n");
    line(out, &SETTINGS.replace("MACHINES", &MACHINES.to_string()).replace("RIGHT", &size(RIGHT)));
    let head =
        ["change", "machines", "tell", "right", "throughput", "latency p99", "major faults", "trust it"];
    let numbers: Vec<bool> = (0..head.len()).map(|column| (1..7).contains(&column)).collect();
    let row = |decision: &Decision| {
        let mut row = vec![
            decision.change.clone(),
            decision.tried.len().to_string(),
            decision.told_on.len().to_string(),
            format!("{} of {}", decision.right(), decision.told()),
        ];
        row.extend(decision.effects.iter().map(|effect| match effect.size() {
            Some((kernel, model)) => {
                format!("{} of {}: {}, {}", effect.right, effect.kernel.len(), times(kernel), times(model))
            }
            None => "–".to_owned(),
        }));
        row.push(
            match decision.trust() {
                Trust::Yes => "yes",
                Trust::No => "no",
                Trust::Unknown => "not known",
            }
            .to_owned(),
        );
        row
    };
    let rows: Vec<Vec<String>> = decisions.iter().map(row).collect();
    markdown::table(out, &head, &numbers, &rows);
}

/// `×0.52`, `×14`.
fn times(factor: f64) -> String {
    let digits = if factor < 10.0 { 2 } else { 0 };
    format!("×{factor:.digits$}")
}

const INTERVALS: &str = "\
For each figure `sim` also states an interval in which a kernel's figure lies in nine of ten cases. It comes from the
known experiments: the ratios of the kernels' figures to the model's, in cases in which the model does the same (it swaps,
tasks reclaim, kswapd alone reclaims, or nobody does). Each figure of a kernel is compared with each run of the model,
because `sim` runs once. Only what reclaim and devices do has an interval. Times and rates have none, because most of the
kernels that were compared ran on an emulated processor.
";

const SETTINGS: &str = "\
What a change does to the figures by which users decide, over all experiments whose variants differ by it alone.
*Tell* are machines on which a kernel's repeats tell the direction of one of the figures, which is then compared with
the model's; a model that changes nothing is wrong. Each figure has how often the model is right, and the medians of
how many times as large kernels' and models' figures become. The model can be asked about a change if MACHINES machines
or more tell something of it and RIGHT of the directions are right.
";

const HELD_OUT: &str = "\
Machines, settings and programs that were drawn from seeds ([lab/held-out.toml](../lab/held-out.toml)) and listed
before any rule was made by what kernels do with such experiments. A *case* is a variant of one of them. The error is
the median over the counters that are reclaim's own; those that conservation alone gets right (`numa_*`, `pgalloc_*`,
`pgfree`, `pgfault`, `nr_dirtied`, `pgpgout`) are not among them. *Beyond repeats* is the same from the nearest of the
kernel's repeats. *Unsteady* are counters whose repeats are more than 10 % apart: they are told by themselves, except
that swap, major faults and refaults are told whether or not they are steady.
";

const KNOWN: &str = "\
Experiments by which rules were made: they say where the model has been mended, not what it is worth elsewhere. Columns
are as above.
";
