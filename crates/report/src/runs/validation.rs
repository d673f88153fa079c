//! The pages that are made of [`Validation`]s: how far the model is from kernels, the worst first, and the
//! tables with every measure.

use lotsfree_analysis::compare::{Deviation, Order, Row, Sort, Table, Verdict, rank_order};
use lotsfree_analysis::validation::{Drawn, Validation, variant};
use lotsfree_scenario::{Experiment, Experiments, Occupied, Stand};

use super::compare::{Grid, KEY, REPEATS, cells};
use super::worth;
use crate::markdown::{self, escaped, line};
use crate::words::{enumeration, plural};

/// Measures of all experiments that are listed first, the worst of them.
const WORST: usize = 40;

/// One measure that is off.
struct Bad<'a> {
    of: &'a Validation,
    table: &'a Table,
    row: &'a Row,
    deviation: Deviation,
}

/// Those of `all` that are of an experiment, in the order of the experiments and their kernels.
fn placed<'a>(experiments: &Experiments, all: &'a [Validation]) -> Vec<&'a Validation> {
    let place = |one: &Validation| {
        let number = experiments.all.iter().position(|experiment| experiment.name == one.experiment)?;
        let generations = &experiments.all.get(number)?.generations;
        let kernel = generations.iter().position(|generation| generation.name() == one.generation)?;
        Some((number, kernel))
    };
    let mut placed: Vec<_> = all.iter().filter_map(|one| Some((place(one)?, one))).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, one)| one).collect()
}

/// The page: what a prediction is worth, what is known where, the worst measures and why, and whether
/// variants stand in the same order.
pub fn validation_markdown(experiments: &Experiments, all: &[Validation]) -> String {
    let all = placed(experiments, all);
    let mut out = String::new();
    line(&mut out, "# How far the model is from the kernel\n");
    line(&mut out, INTRODUCTION);
    if all.is_empty() {
        line(&mut out, "Nothing has been measured yet.");
        return out;
    }
    worth::held_out(&mut out, experiments, &all);
    worth::known(&mut out, experiments, &all);
    worth::settings(&mut out, &all);
    worth::intervals(&mut out, experiments, &all);
    left_out(&mut out, experiments);
    worst(&mut out, experiments, &all);
    orders(&mut out, experiments, &all);
    line(&mut out, "## The experiments\n");
    for (experiment, of) in chapters(experiments, &all) {
        line(
            &mut out,
            &format!("**{}**: {} {}", experiment.name, one_line(&experiment.about), made_of(experiment)),
        );
        for one in of {
            line(&mut out, &format!("- {}: {}", one.kernel(), conditions(one)));
        }
        line(&mut out, "");
    }
    out
}

/// The tables: every measure of every experiment, and the pictures that were made with it. `pictures` is
/// their directory, as the page names it.
pub fn validation_tables(experiments: &Experiments, all: &[Validation], pictures: &str) -> String {
    let all = placed(experiments, all);
    let mut out = String::new();
    line(&mut out, "# The model and the kernel, every measure\n");
    line(&mut out, &format!("{} {}\n", escaped(KEY), escaped(REPEATS)));
    for (experiment, of) in chapters(experiments, &all) {
        chapter(&mut out, experiment, &of, pictures);
    }
    out
}

/// Each experiment that was made, with what was made of it.
fn chapters<'a>(
    experiments: &'a Experiments,
    all: &[&'a Validation],
) -> Vec<(&'a Experiment, Vec<&'a Validation>)> {
    let of = |experiment: &'a Experiment| {
        let of: Vec<&Validation> =
            all.iter().copied().filter(|one| one.experiment == experiment.name).collect();
        (!of.is_empty()).then_some((experiment, of))
    };
    experiments.all.iter().filter_map(of).collect()
}

/// The scenario, and where kernels execute it.
fn made_of(experiment: &Experiment) -> String {
    let set = |(key, value): (&String, &String)| format!("`--set {key}='{value}'`");
    let set: Vec<String> = experiment.set.iter().map(set).collect();
    let stand = match experiment.on {
        Stand::Vm => "in a virtual machine",
        Stand::Host => "on the host",
    };
    let with = if set.is_empty() { String::new() } else { format!(" with {}", enumeration(&set)) };
    format!("Scenario `{}`{with} {stand}.", experiment.scenario)
}

/// Under what a kernel executed it.
fn conditions(one: &Validation) -> String {
    let occupied = match one.trials.first().and_then(|trial| trial.conditions.kernel.as_ref()) {
        Some(Occupied::PerNode(sizes)) => {
            enumeration(&sizes.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        Some(Occupied::Total(size)) => size.to_string(),
        None => "not known".to_owned(),
    };
    format!(
        "kernel {}{}; costs: {}; occupied when measuring begins: {occupied}.",
        escaped(&one.release),
        if one.emulated { ", by software emulation" } else { "" },
        escaped(&one.costs.name)
    )
}

const INTRODUCTION: &str = "\
<!-- Written by `lotsfree lab validate`; do not edit. -->

Experiments were executed by a real kernel, at least twice, and by the model of that kernel, with the costs that
`lotsfree lab calibrate` measured on the same machine and with as much memory in the hands of the kernel, of its CPUs
and of the programs that load it as there was when measuring began. Nothing else of the model depends on what is shown
here: where a figure is off, a rule is wrong or missing, and it is said which, if that is known. The model runs five
times, with programs that start up to 10 ms later, as no two runs of a kernel begin alike; its figure is the median.

An error is a share of the kernel's figure, or of a floor (256 KiB, 64 pages or requests, 1 % of a share) where that is
larger. *In kind*: next to nothing in one, much in the other.
Where the kernel ran by software emulation, instructions take 10 to 20 times as long: times and throughput are shown,
but not counted.

`lotsfree lab validate --recorded --tables FILE` writes the tables with every measure, and `lotsfree lab validate
--model-only` compares another model with the same runs of kernels.
";

/// What is not counted, and why.
fn left_out(out: &mut String, experiments: &Experiments) {
    if experiments.left_out.is_empty() {
        return;
    }
    line(out, "Not counted:\n");
    for cause in &experiments.left_out {
        let names: Vec<String> = cause.measures.iter().map(|key| format!("`{key}`")).collect();
        line(out, &format!("- {}: {}", enumeration(&names), one_line(&cause.why)));
    }
    line(out, "");
}

/// A text that was written in several lines.
fn one_line(text: &str) -> String {
    escaped(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Every measure that is off, worst first.
fn worst(out: &mut String, experiments: &Experiments, all: &[&Validation]) {
    let mut bad: Vec<Bad<'_>> = Vec::new();
    for of in all {
        for table in &of.compared.tables {
            for row in table.rows.iter().filter(|row| of.counts(experiments, table, row)) {
                let Some(deviation) = row.deviations.first().copied().flatten() else { continue };
                if matches!(deviation.verdict, Verdict::InKind | Verdict::Off) {
                    bad.push(Bad { of, table, row, deviation });
                }
            }
        }
    }
    if bad.is_empty() {
        return;
    }
    bad.sort_by(|a, b| rank_order(&b.deviation.rank(), &a.deviation.rank()));
    line(out, "## The worst\n");
    line(
        out,
        &format!(
            "{} are off by more than 15 % and by more than repeats differ{}\n",
            plural(bad.len(), "measure"),
            if bad.len() > WORST { format!("; the {WORST} worst:") } else { ":".to_owned() }
        ),
    );
    let head = ["measure", "experiment", "kernel", "variant", "kernel's", "model's", "error", "why"];
    let numbers = [false, false, false, false, true, true, false, false];
    let mut whys: Vec<&str> = Vec::new();
    let rows: Vec<Vec<String>> = bad
        .iter()
        .take(WORST)
        .map(|Bad { of, table, row, .. }| {
            let cells = cells(row, true);
            let cell = |index: usize| cells.get(index).cloned().unwrap_or_default();
            let why = why(experiments, of, table, row).map(|why| {
                let known = whys.iter().position(|known| *known == why);
                let number = known.unwrap_or_else(|| {
                    whys.push(why);
                    whys.len() - 1
                });
                format!("{}", number + 1)
            });
            vec![
                escaped(&row.name),
                of.experiment.clone(),
                of.kernel().to_owned(),
                escaped(&variant(table)),
                match cell(0).spread {
                    range if range.is_empty() => cell(0).value,
                    range => range,
                },
                cell(1).value,
                cell(1).error,
                why.unwrap_or_default(),
            ]
        })
        .collect();
    markdown::table(out, &head, &numbers, &rows);
    for (number, why) in whys.iter().enumerate() {
        line(out, &format!("{}. {}", number + 1, one_line(why)));
    }
    if !whys.is_empty() {
        line(out, "");
    }
    let unexplained = bad.iter().filter(|bad| why(experiments, bad.of, bad.table, bad.row).is_none()).count();
    line(out, &format!("The cause of {} of these {} is not known yet.\n", unexplained, bad.len()));
}

/// The cause of an error, if it is known.
fn why<'a>(experiments: &'a Experiments, of: &Validation, table: &Table, row: &Row) -> Option<&'a str> {
    let experiment = experiments.all.iter().find(|experiment| experiment.name == of.experiment)?;
    let variant = variant(table);
    let cause = experiment.causes.iter().find(|cause| cause.is_of(&row.key, &variant, &of.generation))?;
    Some(cause.why.as_str())
}

/// Whether variants stand in the same order.
fn orders(out: &mut String, experiments: &Experiments, all: &[&Validation]) {
    let mut lines = Vec::new();
    let (mut kept, mut of) = (0, 0);
    for one in all {
        for orders in &one.compared.orders {
            let counted = |order: &&Order| {
                let counts = |table: &Table| {
                    let mut rows = table.rows.iter().filter(|row| row.key == order.key);
                    rows.any(|row| one.counts(experiments, table, row))
                };
                one.compared.tables.iter().any(counts)
            };
            let measures: Vec<&Order> = orders.measures.iter().filter(counted).collect();
            let lost: Vec<String> = (measures.iter().filter(|order| !order.is_preserved()))
                .map(|order| {
                    let pairs = order.reversed.iter().map(|pair| (pair, "reversed"));
                    let pairs = pairs.chain(order.tied.iter().map(|pair| (pair, "tie")));
                    let said: Vec<String> = pairs.map(|([a, b], how)| format!("{a} and {b} {how}")).collect();
                    format!("{} ({})", order.name, said.join("; "))
                })
                .collect();
            kept += measures.len() - lost.len();
            of += measures.len();
            let mut text = format!(
                "- {}, {}: {} of {}",
                one.experiment,
                one.kernel(),
                measures.len() - lost.len(),
                measures.len()
            );
            if !lost.is_empty() {
                text += &format!("; not: {}", escaped(&enumeration(&lost)));
            }
            lines.push(text + ".");
        }
    }
    if lines.is_empty() {
        return;
    }
    line(out, "## Orders of variants\n");
    line(
        out,
        &format!(
            "Where the kernel's figures of two variants differ by more than 5 % and its repeats tell them apart at the \
             5 % level, the model's should differ the same way. They do by {kept} of {of} measures.\n"
        ),
    );
    lines.iter().for_each(|text| line(out, text));
    line(out, "");
}

/// Everything of one experiment.
fn chapter(out: &mut String, experiment: &Experiment, all: &[&Validation], pictures: &str) {
    line(out, &format!("## {}\n", experiment.name));
    line(out, &format!("{}\n", one_line(&experiment.about)));
    line(out, &format!("{}\n", made_of(experiment)));
    for one in all {
        line(out, &format!("### {}, {}\n", experiment.name, one.kernel()));
        line(out, &format!("{}\n", conditions(one)));
        for Drawn { file, message } in &one.pictures {
            line(out, &format!("![{}]({pictures}/{file})\n", escaped(message)));
        }
        for table in &one.compared.tables {
            line(out, &format!("#### {}\n", escaped(&variant(table))));
            for remark in &table.remarks {
                line(out, &format!("- {}", escaped(remark)));
            }
            if !table.remarks.is_empty() {
                line(out, "");
            }
            out.push_str(&Grid::of_table(table, false, Sort::Worst, false).markdown());
            line(out, "<details><summary>Counters of /proc/vmstat, and means of its levels</summary>\n");
            out.push_str(&Grid::of_table(table, true, Sort::Worst, false).markdown());
            line(out, "</details>\n");
        }
    }
}
