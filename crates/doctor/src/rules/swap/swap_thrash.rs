use lotsfree_kernel_files::counters::{meminfo as m, status as s, vmstat as v};
use lotsfree_kernel_files::file::cgroup::CgroupVersion;
use lotsfree_units::{Bytes, Percent};

use crate::control_groups as groups;
use crate::rule::rule;
use crate::swapping::{all_zram, largest, saw};
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, remedies};

rule! {
    /// Pages come back from swap all the time: programs use more memory than there is.
    ///
    /// # Sees
    /// `pswpin` over two samples (`si` of vmstat, `pswpin/s` of sar), in most intervals, beside `pswpout`;
    /// what a read costs on the swap device, or 150 us where that is not known; 10 us where all swap is zram.
    ///
    /// # Hurts
    /// Each page that comes back makes a program wait for the disk. A hundred pages a second from a hard
    /// disk are most of a task's time.
    ///
    /// # Remedies
    /// Less in memory at once: bound or move what does not belong there; more memory. A lower swappiness
    /// helps only where file cache is what pages had to make room for. Beside free memory: the group that
    /// stands at its limit is named; else find the group or node that is short.
    ///
    /// # False alarms
    /// Pages that come back once, when a program is used again after a night, are what swap is for: a single
    /// burst is not reported. Swap in compressed memory (zram) costs CPU time, not waits. What zswap has in
    /// memory does not count in `pswpin`.
    ///
    /// # References
    /// `mm/page_io.c:swap_read_folio` counts `pswpin` (6.12); Documentation/admin-guide/sysctl/vm.rst,
    /// swappiness.
    pub SwapThrash = "swap-thrash" in Swap
}

/// Seconds that a page of zram takes to come back: a decompression, by LZO1X 7.5 us for pages of programs and
/// text (EPYC, measured by lotsfree), and the fault.
const COMPRESSED_READ: f64 = 10e-6;
/// Pages a second below which nobody waits noticeably.
const WARN: f64 = 20.0;
/// A task's time that is lost.
const HIGH: f64 = 0.3;
/// CPUs that idle for a disk while pages come back from it.
const WAITS: f64 = 0.25;
/// Free memory beside which a host does not swap for lack of it: of this size, and of this share.
const FREE: Bytes = Bytes::gib(1);
const FREE_SHARE: f64 = 0.2;
/// Share of the intervals in which pages came back; less is a burst.
const STEADY: f64 = 0.5;

/// Free memory, if it is so much that the host as a whole cannot be what swaps.
fn roomy(cx: &Context<'_>) -> Option<Bytes> {
    let free = cx.mem(m::MemFree).ok()?;
    (free >= FREE && cx.total().map_or(true, |total| free.share_of(total) >= FREE_SHARE)).then_some(free)
}

/// Swaps beside free memory: whoever does it is short, not the host. Names the group that stands at its limit
/// with the most in swap.
fn elsewhere(mut finding: Finding, cx: &Context<'_>) -> Finding {
    let known = cx.cgroups().ok();
    let short = known.into_iter().flat_map(|cgroups| &cgroups.groups).filter_map(|group| {
        let swapped = group.swap_current.filter(|swapped| *swapped > Bytes::ZERO)?;
        Some((group, groups::limit(group)?, swapped))
    });
    let Some((group, (name, limit), swapped)) = short.max_by_key(|(.., swapped)| *swapped) else {
        finding
            .remedy(
                Remedy::new("Find who is short while the host is not: a group at its limit, or a full node")
                    .run("lotsfree doctor --interval 10")
                    .run("grep . /sys/fs/cgroup/*/memory.events; numastat -m")
                    .risk("None: it only reads."),
            )
            .note(
                "Memory that is free in one place is no use in another: a group at its memory.high or memory.max swaps, \
                 a NUMA node to which programs are bound, or zone_reclaim_mode. More memory or another vm.swappiness \
                 does not help.",
            );
        return finding;
    };
    let version = known.map_or_else(CgroupVersion::default, |cgroups| cgroups.version);
    let file = match version {
        // This counts memory and swap together.
        CgroupVersion::V1 => "memsw.usage_in_bytes",
        CgroupVersion::V2 => "swap.current",
    };
    let bound = groups::field(version, name);
    finding
        .because(
            Evidence::new(groups::file(version, &group.path, file), "in swap", swapped)
                .of(&group.path)
                .against(limit, bound.clone()),
        )
        .note(format!(
            "{} stands at its {bound} of {limit} and swaps there. More memory for the host or another vm.swappiness \
             does not help; a higher limit does.",
            group.path
        ));
    finding
}

/// Less in memory at once, and what swappiness does to that.
fn bound(finding: &mut Finding, zram: bool) {
    finding.remedy(
        Remedy::new("Take out of memory what does not belong there, or bound it")
            .run("systemctl set-property --runtime UNIT MemoryHigh=SIZE")
            .keep(remedies::DROP_IN, "MemoryHigh=SIZE")
            .undo_with("systemctl set-property --runtime UNIT MemoryHigh=infinity")
            .risk("The unit is slowed down at its bound; below what it needs, it thrashes by itself."),
    );
    finding.note(if zram {
        "These reads take CPU time, not waits. A lower vm.swappiness makes reclaim take file cache instead, which is read \
         from the disk again; for compressed swap 100 and more make sense (5.8 and later)."
    } else {
        "A lower vm.swappiness helps only if file cache displaces programs (see pagecache-displaces-anon); if programs \
         alone exceed memory, it makes things worse."
    });
}

impl Rule for SwapThrash {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let back = cx.rate(&[v::pswpin])?;
        if back.per_second < WARN || back.active < STEADY {
            return Ok(Vec::new());
        }
        let out = cx.rate(&[v::pswpout]).ok();
        let zram = cx.swaps().is_ok_and(all_zram);
        let (read, how) = match zram {
            true => (COMPRESSED_READ, "0.01 ms assumed for compressed memory".to_owned()),
            false => cx.read_latency(),
        };
        let lost = back.per_second * read;
        let waits = cx.cpu_shares().is_some_and(|times| times.iowait >= WAITS);
        let severity = Severity::ladder(
            &[(zram && lost < HIGH, Severity::Info), (!zram && (lost >= HIGH || waits), Severity::High)],
            Severity::Warning,
        );
        let both = out.filter(|out| out.per_second >= WARN);
        let roomy = roomy(cx);
        let title = match both {
            Some(out) if roomy.is_some() => format!(
                "{:.0} pages/s come back from swap while {:.0} pages/s go out, although {} is free",
                back.per_second,
                out.per_second,
                roomy.unwrap_or_default()
            ),
            Some(out) => format!(
                "{:.0} pages/s come back from swap while {:.0} pages/s go out: programs use more memory than there is",
                back.per_second, out.per_second
            ),
            None => format!("{:.0} pages/s come back from swap", back.per_second),
        };
        let mut finding = Finding::new(
            Self::ID,
            severity,
            title,
            Cost::faults(back.per_second, read, format!("reads at {how}")),
        );
        finding
            .sure(match both {
                // Three seconds of both are enough where CPUs wait for them.
                Some(_) if waits => cx.rate_confidence().max(Confidence::Likely),
                Some(_) => cx.rate_confidence(),
                None => Confidence::Possible,
            })
            .because(cx.saw_rate(&[v::pswpin], &back))
            .because_if(out.map(|out| cx.saw_rate(&[v::pswpout], &out)))
            .because(Evidence::new(
                "/proc/vmstat",
                "pswpin, intervals in which it grew",
                Percent(back.active),
            ));
        let processes = cx.processes().unwrap_or_default();
        finding
            .because_all(largest(processes, s::VmSwap, 3).into_iter().map(|process| saw(process, s::VmSwap)));
        if roomy.is_some() {
            return Ok(vec![elsewhere(finding, cx)]);
        }
        bound(&mut finding, zram);
        Ok(vec![finding])
    }
}
