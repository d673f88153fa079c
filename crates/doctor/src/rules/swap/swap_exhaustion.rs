use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::swapping::{SWAPPED_OUT, add_swap, all_zram, largest, saw};
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Remedy, Rule, Severity, Skip};

rule! {
    /// Swap is nearly full and still being filled.
    ///
    /// # Sees
    /// `SwapFree` as a share of `SwapTotal`, together with `pswpout` and `zswpout` over two samples. The
    /// processes with most `VmSwap` are named.
    ///
    /// # Hurts
    /// With no slot left the kernel stops looking at anonymous memory: all that remains to be reclaimed is
    /// file cache, programs' code included, which is then read from disk over and over, and the OOM killer
    /// comes sooner. On a Solaris host with 51 MB of virtual swap left, `nm` took 48 s instead of 0.8 s
    /// although 627 MB of memory were free.
    ///
    /// # Remedies
    /// Stop or bound what grows; add swap so that there is time to do so.
    ///
    /// # False alarms
    /// Full swap into which nothing is written holds pages that nobody has asked for since: that is reported
    /// as information only. Without a second sample it cannot be told, and the finding says so.
    ///
    /// # References
    /// `mm/vmscan.c:get_scan_count` (6.12: without free slots only file pages are scanned); bounds:
    /// Performance Co-Pilot and earlyoom 10 %, netdata 98 % used; V. Feng, "Impact of Swap Space on System
    /// Performance for the Solaris 9 and 10 OS" (2008).
    pub SwapExhaustion = "swap-exhaustion" in Swap
}

/// From here on it is worth a look: twice the bound of Performance Co-Pilot and earlyoom.
const WARN: f64 = 0.20;
/// Performance Co-Pilot's rule `mem.util.swap`; earlyoom's first signal.
const HIGH: f64 = 0.10;
/// netdata's critical bound: 98 % used.
const CRITICAL: f64 = 0.02;
/// Available memory of this share is enough to go on with.
const ENOUGH: f64 = 0.10;
/// Used share that more swap should lead to, so that this rule is content.
const COMFORTABLE: f64 = 0.80;

/// How full swap is, and whether it still fills.
struct Seen {
    total: Bytes,
    free: Bytes,
    /// Pages on their way out; `None` without a second sample.
    out: Option<Rate>,
    /// All of it is compressed memory.
    zram: bool,
    /// memory-exhaustion says that memory and swap are both used up.
    told: bool,
}

impl Seen {
    /// `None` where enough of swap is free.
    fn of(cx: &Context<'_>) -> Result<Option<Seen>, Skip> {
        let total = cx.mem(m::SwapTotal)?;
        if total == Bytes::ZERO {
            return Err(Skip::because("there is no swap"));
        }
        let free = cx.mem(m::SwapFree)?;
        if free.share_of(total) >= WARN {
            return Ok(None);
        }
        let out = match cx.rate(SWAPPED_OUT) {
            Ok(rate) => Some(rate),
            Err(Skip::NeedsSamples) => None,
            // Levels alone: full swap beside available memory holds what nobody touches.
            Err(skip) => match cx.available().zip(cx.total().ok()) {
                Some((available, total)) if available.bytes.share_of(total) >= ENOUGH => return Err(skip),
                _ => None,
            },
        };
        let zram = cx.swaps().is_ok_and(all_zram);
        let told = out.is_none() && cx.swap_is_full() && cx.is_exhausted() == Some(true);
        Ok(Some(Seen { total, free, out, zram, told }))
    }

    fn share(&self) -> f64 {
        self.free.share_of(self.total)
    }

    fn severity(&self) -> Severity {
        let at_rest = self.out.is_some_and(|rate| rate.total == 0);
        Severity::ladder(
            &[
                (at_rest || self.told, Severity::Info),
                (self.out.is_none(), Severity::Warning),
                (self.share() < CRITICAL, Severity::Critical),
                (self.share() < HIGH, Severity::High),
            ],
            Severity::Warning,
        )
    }

    fn title(&self) -> String {
        let state = match self.out {
            Some(rate) if rate.total == 0 => ", and nothing is written to it now".to_owned(),
            Some(rate) => format!(", and {:.0} pages/s go out to it", rate.per_second),
            None => "; whether it still fills, a second sample would tell".to_owned(),
        };
        let swap = if self.zram { "compressed swap (zram)" } else { "swap" };
        format!("{:#} of {:#} {swap} are left, {}{state}", self.free, self.total, Percent(self.share()))
    }
}

impl Rule for SwapExhaustion {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let Some(seen) = Seen::of(cx)? else { return Ok(Vec::new()) };
        let severity = seen.severity();
        let filling = seen.out.is_some_and(|rate| rate.total > 0);
        let cost = self.cost(cx, seen.free, filling);
        let mut finding = Finding::new(Self::ID, severity, seen.title(), cost);
        finding.sure(if seen.out.is_some() { cx.rate_confidence() } else { Confidence::Possible });
        add_evidence(&mut finding, cx, &seen);
        if seen.told {
            finding.note("What is left of memory beside it is memory-exhaustion's finding.");
            return Ok(vec![finding]);
        }
        if severity == Severity::Info {
            finding.note(
                "Nothing was swapped out over the period: what lies in swap has not been asked for. That is \
                 what swap is for; act only when swap-out starts again.",
            );
            return Ok(vec![finding]);
        }
        if seen.zram {
            finding.note(
                "Swap here is compressed memory (zram): enlarging it takes memory that is short already. \
                 Swap on a disk of lower priority takes what zram cannot.",
            );
        }
        add_remedies(&mut finding, &seen);
        Ok(vec![finding])
    }
}

fn add_evidence(finding: &mut Finding, cx: &Context<'_>, seen: &Seen) {
    finding
        .because(cx.saw_mem(m::SwapFree).against(
            format!("less than {} of SwapTotal", Percent(WARN)),
            "twice the bound of earlyoom and PCP",
        ))
        .because(cx.saw_mem(m::SwapTotal));
    finding.because_if(seen.out.map(|rate| cx.saw_rate(SWAPPED_OUT, &rate)));
    if let Ok(processes) = cx.processes() {
        finding.because_all(largest(processes, s::VmSwap, 3).into_iter().map(|p| saw(p, s::VmSwap)));
    }
    let segments = cx.shm().unwrap_or_default().iter().filter_map(|segment| segment.swap).sum::<Bytes>();
    if segments > Bytes::ZERO {
        finding
            .because(Evidence::new("/proc/sysvipc/shm", "swap", format!("{segments:#}")).of("all segments"));
    }
}

fn add_remedies(finding: &mut Finding, seen: &Seen) {
    let total = seen.total;
    let used = total - seen.free;
    let more = used.scale(1.0 / COMFORTABLE) - total;
    finding
        .remedy(
            Remedy::new(
                "Stop or bound what grows: see which of the largest processes has grown since it was \
                 well",
            )
            .run("systemctl set-property --runtime UNIT MemoryHigh=SIZE")
            .undo_with("systemctl set-property --runtime UNIT MemoryHigh=infinity")
            .risk("A unit above MemoryHigh is slowed down until it has given memory back."),
        )
        .remedy(add_swap(more))
        .note(format!(
            "{used:#} used / {} - {total:#} = {more:#} more swap would bring its use down to {}; more \
             than the memory that nobody touches is of no use.",
            COMFORTABLE,
            Percent(COMFORTABLE)
        ));
}

impl SwapExhaustion {
    /// Stalls while swap fills, or when it will be full; else only the risk.
    fn cost(&self, cx: &Context<'_>, free: Bytes, filling: bool) -> Cost {
        let trend = cx.trend(m::SwapFree).ok().filter(|trend| filling && trend.per_hour < 0.0);
        let until = trend.map(|trend| free.as_f64() / -trend.per_hour * 60.0);
        let when = match until {
            Some(minutes) if minutes < 600.0 => format!("; at this pace it is full in {minutes:.0} min"),
            _ => String::new(),
        };
        match cx.stalled(false) {
            Ok(stalled) if filling && stalled > 0.0 => {
                Cost::stalled(stalled, format!("tasks waited for memory (PSI some){when}"))
            }
            _ => Cost::risk(format!(
                "once it is full only file cache can be reclaimed, programs' code included, and the OOM \
                 killer comes sooner{when}"
            )),
        }
    }
}
