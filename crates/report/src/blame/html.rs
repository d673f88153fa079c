//! Blame as one self-contained page: no network, no script, light and dark, phone width and print.

use lotsfree_analysis::blame::{Charge, Payer, Who};
use lotsfree_analysis::measure::nanoseconds;
use lotsfree_doctor::{Severity, Use};
use lotsfree_units::Percent;
use maud::{Markup, html as markup};

use super::tables::{self, Grid};
use super::{BlameReport, words};
use crate::chart::{self, NARROW, Picture, WIDE};
use crate::html::{card_remedy, figure};
use crate::palette::{self, of_rate, of_severity, of_use};
use crate::stacked::{self, Bar, Part};
use crate::{sheet, words as common};

/// Payers that a picture shows; the table has more.
const MOST_BARS: usize = 12;
/// Classes of the parts of lost time, in the order of [`Parts::named`](lotsfree_analysis::blame::Parts).
const PARTS: [&str; 4] = ["b-thrashing", "b-reclaim", "b-compaction", "b-swap-in"];

/// Who lost time to memory and who took it as one HTML page. Names of programs are escaped.
pub fn blame_html(report: &BlameReport) -> String {
    let title = words::title(report);
    let has_payers = !report.blame.payers.is_empty();
    let main = markup! {
        header {
            h1 { (title) }
            p.facts.dim { (common::glued(&words::looked_at(report))) }
            p class={ "verdict" @if has_payers { " high" } } { (common::glued(&report.answer)) }
        }
        @if has_payers { (paid(report)) (took(report)) }
        @if let Some(unwatched) = &report.unwatched {
            section { h2 { (unwatched.grid().title) } (grid(&unwatched.grid())) }
        }
        (not_seen(report))
        (remedies(report))
        footer { "Written by lotsfree " (report.lotsfree) ", format " (report.schema) "." }
    };
    sheet::page(&title, &style(), &main)
}

fn style() -> String {
    let mut tones = vec![
        (PARTS[0].to_owned(), of_rate("major faults"), sheet::AREA),
        (PARTS[1].to_owned(), of_rate("pages scanned by tasks"), sheet::AREA),
        (PARTS[2].to_owned(), of_use(Use::Slab), sheet::AREA),
        (PARTS[3].to_owned(), of_rate("pages swapped in"), sheet::AREA),
        ("k-unknown".to_owned(), of_use(Use::Free), sheet::AREA),
        ("high".to_owned(), of_severity(Severity::High), ".@ --mark:var(--@)"),
        ("warning".to_owned(), of_severity(Severity::Warning), ".@ --mark:var(--@)"),
    ];
    let takers = (0..palette::TAKERS.len()).map(|index| (taker_class(index), palette::TAKERS[index]));
    let others = palette::OF_TAKERS.map(|(class, tone)| (class.to_owned(), tone));
    tones.extend(takers.chain(others).map(|(class, tone)| (class, tone, sheet::AREA)));
    format!("{}{}{OWN}", sheet::sheet(&tones), include_str!("../runs/runs.css"))
}

/// Text on the parts of bars that are as pale or as dark as the page, and room around tables.
const OWN: &str = "svg .on-bar.on-k-unknown{fill:var(--ink)}\n.scroll{margin:14px 0}\n";

fn taker_class(index: usize) -> String {
    format!("k-{index}")
}

// ---- Who paid ----

fn paid(report: &BlameReport) -> Markup {
    let picture = lost_picture(report);
    let message = match report.blame.payers.as_slice() {
        [] | [_] => "What the lost time was".to_owned(),
        all => format!("{} paid", common::plural(all.len(), "program")),
    };
    markup! {
        section {
            @match &picture { Some(picture) => (figure(picture)), None => h2 { (message) } }
            (grid(&tables::payers(report)))
        }
    }
}

/// The parts of what each payer lost, a bar each; `None` if no part is known.
fn lost_picture(report: &BlameReport) -> Option<Picture> {
    let payers: Vec<&Payer> = report.blame.payers.iter().take(MOST_BARS).collect();
    let worst = payers.iter().map(|payer| payer.cost.lost).fold(0.0, f64::max);
    let (name, share, payer) = payers
        .iter()
        .flat_map(|payer| payer.cost.parts.named().map(|(name, share)| (name, share.unwrap_or(0.0), payer)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, share, _)| *share > 0.0)?;
    let what = match name {
        "thrashing" => "waiting for pages it had lost",
        "reclaim" => "reclaiming",
        "compaction" => "compacting memory",
        _ => "waiting for pages to be swapped in",
    };
    let message = format!("{} spends {} of its time {what}", payer.cost.actor, Percent(share));
    let bars: Vec<Bar> = payers.iter().map(|payer| lost_bar(report, payer)).collect();
    let draw = |width: f64| stacked::draw(&bars, worst, width, "lost", &message);
    let caption = match bars.len() {
        1 => "Shares of the time that the program was awake; the whole bar is what it lost.".to_owned(),
        _ => {
            format!("Shares of the time that each program was awake; the longest bar is {}.", Percent(worst))
        }
    };
    Some(Picture { wide: draw(WIDE), narrow: draw(NARROW), message: message.clone(), caption })
}

fn lost_bar(report: &BlameReport, payer: &Payer) -> Bar {
    let cost = &payer.cost;
    let part = |((name, share), class): ((&str, Option<f64>), &str)| {
        share.map(|share| Part { class: class.to_owned(), name: name.to_owned(), share })
    };
    let group = report.details.groups.get(&cost.actor).map(|group| format!(" ({group})"));
    Bar {
        label: format!("{}{}", cost.actor, group.unwrap_or_default()),
        note: format!("{} of {}", nanoseconds(cost.lost_ns as f64), nanoseconds(cost.awake_ns as f64)),
        parts: cost.parts.named().into_iter().zip(PARTS).filter_map(part).collect(),
    }
}

// ---- Who took ----

fn took(report: &BlameReport) -> Markup {
    let picture = taken_picture(report);
    let named = report.blame.payers.first().filter(|_| report.asked.is_some());
    let sentences = named.map(|payer| words::takers(report, payer)).unwrap_or_default();
    let shown = report.blame.takers.iter().take(tables::MOST_ROWS);
    let doing: Vec<(&String, &String)> = match named {
        Some(_) => Vec::new(),
        None => shown.filter_map(|taker| report.details.doing.get_key_value(&taker.actor)).collect(),
    };
    markup! {
        section {
            (figure(&picture))
            @if !sentences.is_empty() {
                ul.sentences { @for sentence in &sentences { li { (common::glued(sentence)) } } }
            }
            @if !doing.is_empty() {
                ul { @for (name, doing) in doing { li { b { (name) } ": " (doing) } } }
            }
            @if !report.blame.takers.is_empty() { (grid(&tables::takers(report))) }
            @if let Some(sure) = words::sure(&report.blame) { p { (common::glued(&sure)) } }
        }
    }
}

/// Who took what each payer lost, a bar each.
fn taken_picture(report: &BlameReport) -> Picture {
    let payers: Vec<&Payer> = report.blame.payers.iter().take(MOST_BARS).collect();
    // Those that cost most have colours of their own.
    let coloured: Vec<&str> = report
        .blame
        .takers
        .iter()
        .filter(|taker| taker.cost_ns > 0)
        .take(palette::TAKERS.len())
        .map(|taker| taker.actor.as_str())
        .collect();
    let bars: Vec<Bar> = payers
        .iter()
        .map(|payer| Bar {
            label: payer.cost.actor.clone(),
            note: format!("{} lost", nanoseconds(payer.cost.lost_ns as f64)),
            parts: taken_parts(payer, &coloured),
        })
        .collect();
    let message = taken_message(report);
    let draw = |width: f64| stacked::draw(&bars, 1.0, width, "taken", &message);
    let caption = "Shares of what each lost, by who took the memory.".to_owned();
    Picture { wide: draw(chart::WIDE), narrow: draw(chart::NARROW), message: message.clone(), caption }
}

/// Of one payer who took most, of several who cost the others most.
fn taken_message(report: &BlameReport) -> String {
    let largest = |payer: &Payer| payer.taken_by.iter().max_by(|a, b| a.share.total_cmp(&b.share)).cloned();
    if !report.blame.is_toll_known {
        return "Who took the memory is unknown".to_owned();
    }
    if let [payer] = report.blame.payers.as_slice()
        && let Some(Charge { who, share, .. }) = largest(payer)
    {
        let (name, share) = (&payer.cost.actor, Percent(share));
        return match who {
            Who::Actor(taker) => format!("{taker} took {share} of what {name} lost"),
            Who::Itself => format!("{name} itself took {share} of what it lost"),
            Who::Unknown => format!("Who took {share} of what {name} lost is unknown"),
        };
    }
    match report.blame.takers.iter().find(|taker| taker.cost_ns > 0) {
        Some(taker) => {
            format!("{} cost the others most: {}", taker.actor, nanoseconds(taker.cost_ns as f64))
        }
        None => "Nobody is known to have taken from others".to_owned(),
    }
}

/// Takers with a colour, in the order of their colours, the rest of them together, then itself and unknown.
fn taken_parts(payer: &Payer, coloured: &[&str]) -> Vec<Part> {
    let sum = |wanted: &dyn Fn(&Who) -> bool| -> f64 {
        payer.taken_by.iter().filter(|charge| wanted(&charge.who)).map(|charge| charge.share).sum()
    };
    let has_colour = |name: &String| coloured.contains(&name.as_str());
    let each = coloured.iter().enumerate().map(|(index, name)| Part {
        class: taker_class(index),
        name: (*name).to_owned(),
        share: sum(&|who| matches!(who, Who::Actor(actor) if actor == name)),
    });
    let rest = [
        ("others", sum(&|who| matches!(who, Who::Actor(name) if !has_colour(name)))),
        ("itself", sum(&|who| *who == Who::Itself)),
        ("unknown", sum(&|who| *who == Who::Unknown)),
    ];
    let rest = rest.map(|(name, share)| Part { class: format!("k-{name}"), name: name.to_owned(), share });
    each.chain(rest).collect()
}

// ---- The rest ----

fn not_seen(report: &BlameReport) -> Markup {
    markup! {
        @if !report.details.not_seen.is_empty() {
            section {
                h2 { "What was not seen" }
                ul { @for what in &report.details.not_seen { li { (common::glued(what)) } } }
            }
        }
    }
}

fn remedies(report: &BlameReport) -> Markup {
    markup! {
        @if !report.details.remedies.is_empty() {
            section {
                h2 { "What would help" }
                @for (number, remedy) in (1..).zip(&report.details.remedies) { (card_remedy(number, remedy)) }
            }
        }
    }
}

fn grid(grid: &Grid) -> Markup {
    markup! {
        div.scroll {
            table.measures {
                thead { tr { @for (i, head) in grid.heads.iter().enumerate() { th.number[i > 0] { (head) } } } }
                tbody {
                    @for (index, (name, cells)) in grid.rows.iter().enumerate() {
                        tr { td { (name) @if let Some(group) = grid.groups.get(index) { small { (group) } } } @for cell in cells { td.number { (cell) } } }
                    }
                }
            }
        }
        @if let Some(note) = grid.note() { p.dim { (note) } }
    }
}
