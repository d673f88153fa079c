use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo as m, status as s};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Percent};

use crate::context::Trend;
use crate::finding::subject;
use crate::levels;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// Available memory falls steadily: something grows, and it can be said when memory is used up.
    ///
    /// # Sees
    /// `MemAvailable` (or what it would be, before 3.14) over three samples and half an hour or more: it fell
    /// by 5 % of memory, in three of four steps, and is lowest at the end. Which counters grew meanwhile, and
    /// which process.
    ///
    /// # Hurts
    /// Nothing yet. A leak ends in swap, reclaim and the OOM killer, usually at night.
    ///
    /// # Remedies
    /// Find what grows while it can still be looked at; bound it; restart it before the time that is left.
    ///
    /// # False alarms
    /// A database or cache that warms up grows to its size and stops. A working day has a slope, too: look
    /// over several.
    ///
    /// # References
    /// `mm/show_mem.c:si_mem_available` (6.12); the bounds are our choice.
    pub AvailableFalls = "available-falls" in Reclaim
}

/// A shorter period shows how a program starts.
const SECONDS: f64 = 1800.0;
/// Fewer samples make no slope.
const SAMPLES: usize = 3;
/// Of memory, what is lost over the period at least.
const LOST: f64 = 0.05;
/// Share of the steps that go down.
const STEADY: f64 = 0.75;
/// Further ahead nothing is foretold.
const HORIZON_HOURS: f64 = 14.0 * 24.0;
/// So little time is left that somebody has to look now.
const SOON_HOURS: f64 = 2.0;
/// Share of the loss from which on a counter or a process is who took it.
const TOOK: f64 = 0.5;

impl Rule for AvailableFalls {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let total = cx.total()?;
        let points: Vec<(f64, f64)> = (cx.samples().iter())
            .filter_map(|sample| {
                let available = levels::available(sample.meminfo.as_ref()?)?;
                Some((sample.at, available.bytes.as_f64()))
            })
            .collect();
        let trend = Trend::of(&points).filter(|_| points.len() >= SAMPLES).ok_or(Skip::NeedsSamples)?;
        if trend.seconds < SECONDS {
            return Err(Skip::NeedsSamples);
        }
        let lost = trend.first - trend.last;
        let down = points.windows(2).filter(|step| step[1].1 < step[0].1).count();
        let steady = down as f64 >= STEADY * (points.len() - 1) as f64;
        let lowest = trend.last <= trend.least + 0.1 * lost;
        let hours = trend.last / -trend.per_hour;
        if lost < LOST * total.as_f64() || !steady || !lowest || !(0.0..HORIZON_HOURS).contains(&hours) {
            return Ok(Vec::new());
        }
        Ok(vec![finding(cx, &trend, points.len(), hours)])
    }
}

fn finding(cx: &Context<'_>, trend: &Trend, samples: usize, hours: f64) -> Finding {
    let lost = Bytes((trend.first - trend.last) as u64);
    let grown = grown_process(cx).filter(|(_, grown)| grown.share_of(lost) >= TOOK);
    let counter = grown_counter(cx).filter(|(_, grown)| grown.share_of(lost) >= TOOK);
    let who = match (&grown, &counter) {
        (Some((process, bytes)), _) => format!("; {} grew by {bytes}", subject(process)),
        (None, Some((counter, bytes))) => format!("; {} grew by {bytes}", counter.name()),
        (None, None) => String::new(),
    };
    let mut finding = Finding::new(
        AvailableFalls::ID,
        if hours < SOON_HOURS { Severity::High } else { Severity::Warning },
        format!(
            "available memory falls by {}/h, over {}: at that rate it is used up in {}{who}",
            Bytes(-trend.per_hour as u64),
            span(trend.seconds / 3600.0),
            span(hours)
        ),
        Cost::risk("then the host swaps, reclaims without end, or kills"),
    );
    finding.sure(if samples > 2 * SAMPLES { Confidence::Likely } else { Confidence::Possible }).because(
        Evidence::new("/proc/meminfo", "MemAvailable", Bytes(trend.last as u64))
            .was(Bytes(trend.first as u64))
            .against(format!("a loss of less than {} of memory", Percent(LOST)), "steady use does not fall"),
    );
    if let Some((process, bytes)) = &grown {
        finding.because(Evidence::new("/proc/PID/status", "VmRSS, grown by", bytes).of(subject(process)));
    }
    for field in HOLDERS {
        if let Some(bytes) = growth(cx, field).filter(|bytes| bytes.share_of(lost) >= 0.1) {
            finding.because(Evidence::new("/proc/meminfo", format!("{}, grown by", field.name()), bytes));
        }
    }
    let told = HOLDERS.iter().all(|field| cx.mem(*field).is_ok());
    if told && grown.is_none() && counter.is_none() {
        finding.note(
            "No counter grew by as much as is lost: a driver or the kernel keeps pages that nobody counts \
             (see unaccounted-kernel).",
        );
    }
    finding.remedy(
        Remedy::new("Look who grows, while it can be looked at")
            .run("ps -eo pid,rss,etime,args --sort=-rss | head")
            .run("lotsfree doctor --interval 600")
            .risk("None: these only read."),
    );
    finding
}

/// What can hold memory that is not given back.
const HOLDERS: [Counter<Meminfo>; 4] = [m::AnonPages, m::Shmem, m::SUnreclaim, m::PageTables];

fn growth(cx: &Context<'_>, field: Counter<Meminfo>) -> Option<Bytes> {
    let trend = cx.trend(field).ok()?;
    (trend.last > trend.first).then_some(Bytes((trend.last - trend.first) as u64))
}

fn grown_counter(cx: &Context<'_>) -> Option<(Counter<Meminfo>, Bytes)> {
    let grown = HOLDERS.into_iter().filter_map(|field| Some((field, growth(cx, field)?)));
    grown.max_by_key(|(_, bytes)| *bytes)
}

/// The process that grew most.
fn grown_process<'a>(cx: &Context<'a>) -> Option<(&'a Process, Bytes)> {
    let pairs = cx.process_pairs().ok()?.into_iter();
    let rss = |process: &Process| process.memory_or_zero(s::VmRSS);
    pairs.map(|(before, now)| (now, rss(now) - rss(before))).max_by_key(|(_, bytes)| *bytes)
}

/// `40 min`, `6 h`, `3 days`.
fn span(hours: f64) -> String {
    match hours {
        hours if hours < 1.5 => format!("{:.0} min", hours * 60.0),
        hours if hours < 48.0 => format!("{hours:.0} h"),
        hours => format!("{:.0} days", hours / 24.0),
    }
}
