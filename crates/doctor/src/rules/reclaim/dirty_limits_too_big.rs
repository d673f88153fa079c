use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_kernel_files::file::block::DiskStats;
use lotsfree_settings::{DIRTY_BACKGROUND_BYTES, DIRTY_BACKGROUND_RATIO, DIRTY_BYTES, DIRTY_RATIO};
use lotsfree_units::Bytes;

use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, advice, remedies,
};

rule! {
    /// More dirty data may wait in memory than the disk writes in ten seconds.
    ///
    /// # Sees
    /// `nr_dirty_threshold` of `/proc/vmstat` against what the disk that is written to most has achieved
    /// while it was busy (`/proc/diskstats`). It weighs more while so much is in fact waiting, or writers are
    /// being throttled.
    ///
    /// # Hurts
    /// The limits are shares of memory, 20 % by default, while disks did not grow with it: a terabyte host
    /// may collect 200 GB. When a database then calls fsync, or a journal commits, it waits for everybody's
    /// data; writers that reach the limit all stop at once; reclaim meets dirty pages that cannot go.
    ///
    /// # Remedies
    /// `vm.dirty_bytes` and `vm.dirty_background_bytes`: one to three seconds of what the disk writes.
    ///
    /// # False alarms
    /// An array with a battery-backed cache takes bursts faster than it showed here, and gains from large
    /// limits. A disk that has hardly written says nothing of its bandwidth and is not judged.
    ///
    /// # References
    /// mm/page-writeback.c:domain_dirty_limits (6.12); SUSE TID 2578899 (600 MiB and 300 MiB); tuned profiles
    /// postgresql and oracle; `Documentation/admin-guide/sysctl/vm.rst`, dirty_bytes.
    pub DirtyLimitsTooBig = "dirty-limits-too-big" in Reclaim
}

/// Seconds of writing that may wait.
const SECONDS: f64 = 10.0;
/// Written bytes below which a disk has not shown its bandwidth.
const ENOUGH: Bytes = Bytes::mib(256);
/// Busy time below which it was too short to tell, in milliseconds.
const ENOUGH_MS: u64 = 1000;

/// What a disk has shown.
struct Bandwidth {
    device: String,
    per_second: f64,
    during: bool,
}

impl Rule for DirtyLimitsTooBig {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let limit = cx.pages(cx.vm(v::nr_dirty_threshold)?);
        let devices = cx.now().block.as_deref().ok_or_else(|| Skip::missing("/proc/diskstats"))?;
        if devices.is_empty() {
            return Err(Skip::because("no disk holds a file system"));
        }
        let Some(disk) = bandwidth(cx) else {
            return Err(Skip::missing("/proc/diskstats: no disk has written enough to show its bandwidth"));
        };
        let seconds = limit.as_f64() / disk.per_second;
        if seconds <= SECONDS {
            return Ok(Vec::new());
        }

        let waiting = cx.mem_or_zero(m::Dirty) + cx.mem_or_zero(m::Writeback);
        let flush = waiting.as_f64() / disk.per_second;
        let throttled = cx.rate(&[v::nr_throttled_written]).ok().filter(|rate| rate.total > 0);
        let now = flush > SECONDS || throttled.is_some();
        let io_full = cx.now().pressure.io.and_then(|io| io.full).filter(|_| now);
        let cost = match io_full.filter(|full| full.avg10 > 0.0) {
            Some(full) => Cost::stalled(
                full.avg10 / 100.0,
                format!("all tasks waited for I/O; {waiting} wait to be written"),
            ),
            None => Cost::risk(format!(
                "{waiting} wait now, {flush:.1} s of writing; at the limit an fsync may wait {seconds:.0} s"
            )),
        };
        let mut finding = Finding::new(
            Self::ID,
            if now { Severity::Warning } else { Severity::Info },
            format!(
                "{limit} of dirty data may wait in memory, {seconds:.0} s of writing for {} at {}/s",
                disk.device,
                Bytes(disk.per_second as u64)
            ),
            cost,
        );
        finding
            .sure(if disk.during { cx.rate_confidence() } else { Confidence::Possible })
            .because(
                Evidence::new("/proc/vmstat", "nr_dirty_threshold", format!("{limit:#}"))
                    .against(format!("{SECONDS:.0} s of writing"), "longer than a client waits for a commit"),
            )
            .because(
                Evidence::new(
                    "/proc/diskstats",
                    "sectors written / busy time",
                    format!(
                        "{}/s {}",
                        Bytes(disk.per_second as u64),
                        if disk.during { "over the period" } else { "since boot" }
                    ),
                )
                .of(&disk.device),
            );
        for field in [m::Dirty, m::Writeback] {
            finding.because_if(cx.mem(field).is_ok().then(|| cx.saw_mem(field)));
        }
        finding.because_if(throttled.as_ref().map(|rate| cx.saw_rate(&[v::nr_throttled_written], rate)));
        for name in [DIRTY_RATIO, DIRTY_BACKGROUND_RATIO, DIRTY_BYTES, DIRTY_BACKGROUND_BYTES] {
            finding.because_if(cx.sysctl(name).is_ok_and(|value| value > 0).then(|| cx.saw_sysctl(name)));
        }
        let advice = advice::dirty_bytes(cx);
        let (dirty, background) = advice.value;
        if Bytes(dirty) < limit {
            let remedy = Remedy::new("Bound dirty data in bytes");
            let remedy = remedies::displacing(remedy, cx, DIRTY_BACKGROUND_BYTES, background);
            finding.remedy(remedies::displacing(remedy, cx, DIRTY_BYTES, dirty).risk(
                "Too low a limit slows down writers that could have run ahead of the disk. Setting bytes \
                 clears the ratio of the same name and the other way round.",
            ));
        } else {
            finding.note(format!(
                "The limit is below the {} that vendors set; a faster disk or a job that syncs as it goes \
                 is the remedy.",
                Bytes(dirty)
            ));
        }
        finding.note(format!("{}. {}", advice.because, advice.contested)).note(
            "The bandwidth is what the disk achieved while it was busy, reads included: a lower bound. \
             Small random writes show less than a sequential flush will.",
        );
        Ok(vec![finding])
    }
}

/// Of the disk that was written to most, over the period if that was enough, else since boot.
fn bandwidth(cx: &Context<'_>) -> Option<Bandwidth> {
    let devices = cx.now().block.as_deref()?;
    let earlier = cx.before().ok().and_then(|before| before.block.as_deref());
    let of = |base: &dyn Fn(&str) -> Option<DiskStats>, during: bool| {
        let busiest = (devices.iter())
            .filter(|device| !device.name.starts_with("zram") && !device.name.starts_with("loop"))
            .filter_map(|device| {
                let (now, base) = (device.stats?, base(&device.name)?);
                let written =
                    Bytes(now.sectors_written.saturating_sub(base.sectors_written).saturating_mul(512));
                Some((device, written, now.busy_ms.saturating_sub(base.busy_ms)))
            })
            .max_by_key(|(_, written, _)| *written)?;
        let (device, written, busy) = busiest;
        (written >= ENOUGH && busy >= ENOUGH_MS).then(|| Bandwidth {
            device: device.name.to_string(),
            per_second: written.as_f64() / (busy as f64 / 1e3),
            during,
        })
    };
    let over = earlier
        .and_then(|earlier| of(&|name| earlier.iter().find(|device| &*device.name == name)?.stats, true));
    over.or_else(|| of(&|_| Some(DiskStats::default()), false))
}
