//! Sentences about blame, which all forms share.

use lotsfree_analysis::blame::{Blame, Charge, Cost, Payer, Taker, Who};
use lotsfree_analysis::measure::nanoseconds;
use lotsfree_units::words::{duration, enumeration, plural};
use lotsfree_units::{Bytes, Grouped, Percent};

use super::{BlameDetails, BlameReport};

/// A sentence names takers from this share of the loss on; tables and pictures have the rest.
const WORTH_NAMING: f64 = 0.10;
/// The most takers that a sentence names.
const MOST_NAMED: usize = 3;
/// From this share on a part reads as all of it.
const ALL: f64 = 0.995;
/// A part of lost time below this share of the awake time reads as none.
const NEGLIGIBLE: f64 = 0.0005;

/// The answer in a sentence, and another where a control group's limit is the reason.
pub(super) fn answer(blame: &Blame, asked: Option<&str>, details: &BlameDetails) -> String {
    let limit = blame.payers.first().and_then(|payer| limit(&payer.cost, details));
    let answer = match (asked, blame.payers.as_slice()) {
        (Some(_), [payer, ..]) | (None, [payer]) => payer_sentence(payer, blame, details),
        (Some(name), []) => spared(name, blame),
        (None, []) => nobody(blame),
        (None, [first, rest @ ..]) => format!(
            "{} of {} lost time to memory, {} most: {}",
            Grouped(rest.len() as u64 + 1),
            plural(blame.actors, "program"),
            first.cost.actor,
            told("it", first, blame, details),
        ),
    };
    answer + &limit.unwrap_or_default()
}

/// Why memory was short, though the machine may have some.
fn limit(cost: &Cost, details: &BlameDetails) -> Option<String> {
    let group = Some(&cost.limited_by).filter(|group| !group.is_empty())?;
    let limit = details.limits.get(group).map_or_else(String::new, |limit| format!(" of {limit}"));
    Some(format!(
        " The control group {group} was at its limit{limit}, so memory that is free elsewhere does not help."
    ))
}

/// `postgres lost 41 % of its time to memory: 22 % waiting for pages it had lost (thrashing), 12 %
/// reclaiming; 78 % (±4) of that was taken by rsync.`
pub(crate) fn payer_sentence(payer: &Payer, blame: &Blame, details: &BlameDetails) -> String {
    told(&payer.cost.actor, payer, blame, details)
}

fn told(name: &str, payer: &Payer, blame: &Blame, details: &BlameDetails) -> String {
    let lost = Percent(payer.cost.lost);
    let parts = parts(&payer.cost).join(", ");
    match blame.is_toll_known {
        true => {
            let taken = taken(&payer.taken_by, details);
            format!("{name} lost {lost} of its time to memory: {parts}; {taken}.")
        }
        false => format!(
            "{name} lost at least {lost} of its time to memory: {parts}; what thrashing, compaction and swap-in \
             cost is unknown, and so is who took the memory."
        ),
    }
}

/// The parts of a loss, largest first.
fn parts(cost: &Cost) -> Vec<String> {
    let mut parts = cost.parts.named().to_vec();
    parts.retain(|(_, share)| share.is_some_and(|share| share >= NEGLIGIBLE));
    parts.sort_by(|(_, a), (_, b)| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0)));
    let said = |(name, share): (&str, Option<f64>)| {
        let what = match name {
            "thrashing" => "waiting for pages it had lost (thrashing)",
            "reclaim" => "reclaiming",
            other => other,
        };
        format!("{} {what}", Percent(share.unwrap_or(0.0)))
    };
    parts.into_iter().map(said).collect()
}

/// Who took: `78 % (±4) of that was taken by rsync and 12 % (±3) by itself`.
fn taken(charges: &[Charge], details: &BlameDetails) -> String {
    let mut named: Vec<&Charge> = charges.iter().filter(|charge| charge.who != Who::Unknown).collect();
    named.sort_by(|a, b| b.share.total_cmp(&a.share));
    named.retain(|charge| charge.share >= WORTH_NAMING);
    named.truncate(MOST_NAMED);
    let said = |(index, charge): (usize, &&Charge)| {
        let of_that = if index == 0 { " of that was taken" } else { "" };
        let doing = match &charge.who {
            Who::Actor(name) => details.doing.get(name).map(|doing| format!(" ({doing})")),
            Who::Itself | Who::Unknown => None,
        };
        format!("{}{of_that} by {}{}", share(charge), who(&charge.who), doing.unwrap_or_default())
    };
    let named: Vec<String> = named.iter().enumerate().map(said).collect();
    let unknown = charges.iter().find(|charge| charge.who == Who::Unknown);
    let unknown = unknown.filter(|charge| charge.share >= WORTH_NAMING);
    match (named.is_empty(), unknown) {
        (true, Some(charge)) if charge.share >= ALL => "who took it is unknown".to_owned(),
        (true, Some(charge)) => format!("who took {} of that is unknown", share(charge)),
        (true, None) => "many took of it, nobody as much as a tenth".to_owned(),
        (false, Some(charge)) => {
            format!("{}; who took {} is unknown", enumeration(&named), share(charge))
        }
        (false, None) => enumeration(&named),
    }
}

/// A share with its standard error, in points: `78 % (±4)`.
pub(super) fn share(charge: &Charge) -> String {
    let points = charge.error.map_or(0.0, |error| (error * 100.0).round());
    let error = if points >= 1.0 { format!(" (±{points:.0})") } else { String::new() };
    format!("{}{error}", Percent(charge.share))
}

/// The name of a taker.
pub(super) fn who(who: &Who) -> &str {
    match who {
        Who::Actor(name) => name,
        Who::Itself => "itself",
        Who::Unknown => "unknown",
    }
}

/// That the program that was asked for lost nothing, or why nothing is known of it.
fn spared(name: &str, blame: &Blame) -> String {
    let looked = duration(blame.seconds);
    let Some(cost) = blame.spared.iter().find(|cost| cost.actor == name) else {
        return format!("No program named {name} was seen in the {looked} that were looked at.");
    };
    if cost.awake_ns == 0 {
        return format!("{name} slept through the {looked} that were looked at, so memory cost it nothing.");
    }
    let lost = if cost.lost_ns == 0 { "none".to_owned() } else { Percent(cost.lost).to_string() };
    let awake = nanoseconds(cost.awake_ns as f64);
    if !blame.is_toll_known {
        return format!(
            "{name} spent {lost} of the {awake} that it was awake reclaiming memory; what thrashing, \
             compaction and swap-in cost is unknown."
        );
    }
    format!(
        "{name} lost no time to memory to speak of: {lost} of the {awake} that it was awake, in {looked}."
    )
}

/// That nobody lost anything, and what was looked at.
fn nobody(blame: &Blame) -> String {
    if blame.intervals == 0 {
        return "There is nothing to look at: no interval tells what programs did.".to_owned();
    }
    let looked = format!("{} over {}", plural(blame.actors, "program"), duration(blame.seconds));
    let most = match blame.spared.iter().max_by(|a, b| a.lost.total_cmp(&b.lost)) {
        Some(cost) if cost.lost_ns > 0 => {
            format!(", and the most was {} ({} of its time)", cost.actor, percent(cost.lost))
        }
        _ => String::new(),
    };
    match blame.is_toll_known {
        true => format!("Nobody lost time to memory to speak of: {looked} were looked at{most}."),
        false => format!(
            "Nobody spent time reclaiming to speak of: {looked} were looked at{most}. What thrashing, \
             compaction and swap-in cost is unknown."
        ),
    }
}

/// A share in words, of which none is not `0.00 %`.
pub(super) fn percent(share: f64) -> String {
    if share < NEGLIGIBLE / 10.0 { "less than 0.01 %".to_owned() } else { Percent(share).to_string() }
}

/// A share that may not be known.
pub(super) fn known(share: Option<f64>) -> String {
    match share {
        None => "unknown".to_owned(),
        Some(share) if share < NEGLIGIBLE => "–".to_owned(),
        Some(share) => Percent(share).to_string(),
    }
}

/// What each taker of a payer did: its share, what it allocated and holds, and what it was doing.
pub(super) fn takers(report: &BlameReport, payer: &Payer) -> Vec<String> {
    let said = |charge: &Charge| {
        let name = match &charge.who {
            Who::Actor(name) => name,
            Who::Itself => &payer.cost.actor,
            Who::Unknown => return unknown(charge, report),
        };
        let itself = if charge.who == Who::Itself { " itself" } else { "" };
        let did = report.blame.takers.iter().find(|taker| taker.actor == *name).map(did);
        let doing = report.details.doing.get(name).map(|doing| format!(", {doing}")).unwrap_or_default();
        let did = did.map(|did| format!(": {did}")).unwrap_or_default();
        Some(format!("{name}{itself} took {}{doing}{did}.", share(charge)))
    };
    let shown = payer.taken_by.iter().filter(|charge| charge.share >= 0.005);
    shown.take(super::tables::MOST_ROWS).filter_map(said).collect()
}

fn unknown(charge: &Charge, report: &BlameReport) -> Option<String> {
    let why = match report.blame.unseen {
        unseen if unseen >= 0.005 => {
            format!(": {} of the pages went to interrupts, or to programs that ended unseen", Percent(unseen))
        }
        _ => String::new(),
    };
    Some(format!("Unknown is who took {}{why}.", share(charge)))
}

/// `it allocated 12.3 GiB (11.9 GiB of it new, the rest came back), gave back 1 GiB and holds 40 MiB`.
fn did(taker: &Taker) -> String {
    let mut parts = Vec::new();
    if taker.allocated_bytes > 0 {
        let new = match taker.new_bytes {
            new if new == taker.allocated_bytes => String::new(),
            0 => " (nothing new, all came back)".to_owned(),
            new => format!(" ({} of it new, the rest came back)", Bytes(new)),
        };
        parts.push(format!("allocated {}{new}", Bytes(taker.allocated_bytes)));
    }
    if taker.returned_bytes > 0 {
        parts.push(format!("gave back {}", Bytes(taker.returned_bytes)));
    }
    if taker.held_bytes > 0 {
        parts.push(format!("holds {}", Bytes(taker.held_bytes)));
    }
    format!("it {}", enumeration(&parts))
}

/// How sure the shares are.
pub(super) fn sure(blame: &Blame) -> Option<String> {
    if blame.payers.is_empty() || !blame.is_toll_known {
        return None;
    }
    let errors = || blame.payers.iter().flat_map(|payer| &payer.taken_by).filter_map(|charge| charge.error);
    Some(match errors().reduce(f64::max) {
        None => "All was lost in one interval, so that nothing says how sure the shares are.".to_owned(),
        Some(error) => format!(
            "Another watch would give the same shares to within ±{} (standard error over {} in {}).",
            plural((error * 100.0).max(1.0).round() as usize, "point"),
            plural(blame.intervals, "interval"),
            duration(blame.seconds),
        ),
    })
}

/// The text above everything: who was asked about, where.
pub(super) fn title(report: &BlameReport) -> String {
    match &report.asked {
        Some(name) => format!("What memory cost {name}"),
        None => "Who lost time to memory".to_owned(),
    }
}

/// Where and how long was looked.
pub(super) fn looked_at(report: &BlameReport) -> String {
    let Blame { seconds, intervals, actors, .. } = &report.blame;
    let mut parts = Vec::new();
    if !report.details.source.is_empty() {
        parts.push(report.details.source.clone());
    }
    let asked = report.asked.as_ref().and_then(|name| report.details.groups.get(name));
    parts.extend(asked.map(|group| format!("control group {group}")));
    parts.push(plural(*actors, "program"));
    parts.push(match intervals {
        0 => duration(*seconds),
        _ => format!("{} in {}", duration(*seconds), plural(*intervals, "interval")),
    });
    parts.join(" · ")
}
