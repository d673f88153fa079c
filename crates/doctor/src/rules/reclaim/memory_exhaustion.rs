use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_units::{Bytes, Percent};

use crate::levels::{self, Available, LITTLE};
use crate::remedies;
use crate::rule::rule;
use crate::swapping::add_swap;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, MemoryMap, Outcome, Remedy, Rule, Severity, Skip, Use,
};

rule! {
    /// Next to nothing is available: programs and the kernel hold nearly all memory.
    ///
    /// # Sees
    /// `MemAvailable` below 5 % of memory (10 % where swap is full), or what it would be on kernels before
    /// 3.14 (free memory, files and half of the reclaimable slab); how much swap is left; which use holds the
    /// memory. One reading of `/proc/meminfo` or of `free` is enough. Where enough is available, also whether
    /// that is low memory (`LowFree` of 32-bit kernels) and more than CMA (`CmaFree`). Below 10 % (20 % where
    /// kswapd is seen to wait) CPUs that wait for disks a quarter of the time tell that programs are read
    /// back.
    ///
    /// # Hurts
    /// Whatever asks for memory next waits for reclaim, which finds only pages that somebody needs: programs'
    /// code is dropped and read again, anonymous pages go to swap. With swap full, or without swap, the OOM
    /// killer is next.
    ///
    /// # Remedies
    /// Find what grew and bound it; more swap to win time; more memory, or fewer programs.
    ///
    /// # False alarms
    /// Free memory alone says nothing: cache is given back. A host sized to the last gigabyte (a database
    /// with its buffer in huge pages) may run for years with 3 % available and swap unused: the finding
    /// then says what is left, and PSI or two samples say whether anybody waits.
    ///
    /// # References
    /// `mm/show_mem.c:si_mem_available` (6.12); earlyoom acts at 10 % of memory and of swap, the kernel's own
    /// documentation (`Documentation/filesystems/proc.rst`) defines MemAvailable.
    pub MemoryExhaustion = "memory-exhaustion" in Reclaim
}

/// A process with this share of memory is who holds it.
const HOLDS: f64 = 0.4;
/// Share below which the next large request fails.
const HIGH: f64 = 0.03;
/// Share of low memory below which it is little beside sixteen times as much high memory.
const LITTLE_LOW: f64 = 0.10;
/// Slab that fills this share of low memory is what is wrong there.
const LOW_SLAB: f64 = 0.4;

impl Rule for MemoryExhaustion {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        cx.now().meminfo.as_ref().ok_or_else(|| Skip::missing("/proc/meminfo"))?;
        let total = cx.total()?;
        let available = cx.available().ok_or_else(|| Skip::missing("/proc/meminfo MemAvailable"))?;
        let share = available.bytes.share_of(total);
        let swap = Swap::of(cx);
        let waits = cx.reads_programs_back();
        if cx.is_exhausted() != Some(true) && waits.is_none() {
            return Ok([low_memory(cx), contiguous(cx, available.bytes, total)]
                .into_iter()
                .flatten()
                .collect());
        }
        let severity = Severity::ladder(
            &[
                (share < HIGH && swap == Swap::Full, Severity::Critical),
                (share < HIGH || swap == Swap::Full || waits.is_some(), Severity::High),
            ],
            Severity::Warning,
        );
        let holder = largest(cx);
        let process =
            cx.processes().unwrap_or_default().iter().max_by_key(|process| process.memory_or_zero(s::VmRSS));
        let process = process.map(|process| (&process.stat.name, process.memory_or_zero(s::VmRSS)));
        let process = process.filter(|(_, rss)| rss.share_of(total) >= HOLDS);
        let named =
            process.map(|(name, rss)| format!("; {name} holds {rss} ({})", Percent(rss.share_of(total))));
        let held = named.unwrap_or_else(|| {
            holder.map_or_else(String::new, |(part, bytes)| {
                let share = Percent(bytes.share_of(total));
                match part {
                    // Of a table of free: what is neither free nor cache.
                    Use::Untold => format!("; programs and the kernel hold {bytes} ({share})"),
                    Use::HugeIdle => format!("; idle huge pages hold {bytes} ({share})"),
                    Use::HugeUsed => format!("; used huge pages hold {bytes} ({share})"),
                    Use::PageTables => format!("; page tables hold {bytes} ({share})"),
                    part => format!("; {} holds {bytes} ({share})", part.name()),
                }
            })
        });
        let waits = waits.map_or_else(String::new, |waits| {
            format!(
                ", while CPUs wait for disks {} of the time: programs' own pages come back from there",
                Percent(waits)
            )
        });
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!(
                "only {} of {total} ({}) {} available{}{waits}{held}",
                available.bytes,
                Percent(share),
                if available.told { "is" } else { "can be" },
                swap.text()
            ),
            Cost::risk("whatever asks for memory next waits for reclaim, or is killed"),
        );
        finding.sure(if available.told { Confidence::Certain } else { Confidence::Likely });
        evidence(cx, available, &mut finding);
        let processes = cx.processes().unwrap_or_default();
        let mut largest: Vec<_> = processes.iter().collect();
        largest.sort_by_key(|process| std::cmp::Reverse(process.memory_or_zero(s::VmRSS)));
        for process in largest.into_iter().take(3) {
            let rss = process.memory_or_zero(s::VmRSS);
            finding.because(
                Evidence::new("/proc/PID/status", "VmRSS", format!("{rss:#}"))
                    .of(crate::finding::subject(process)),
            );
        }
        finding.remedy(
            Remedy::new("Find what grew, and bound it")
                .run("ps -eo pid,rss,args --sort=-rss | head")
                .run("systemctl set-property --runtime UNIT MemoryHigh=SIZE")
                .keep(remedies::DROP_IN, "MemoryHigh=SIZE")
                .undo_with("systemctl set-property --runtime UNIT MemoryHigh=infinity")
                .risk("A unit above MemoryHigh is slowed down until it has given memory back."),
        );
        if swap != Swap::Left {
            finding.remedy(add_swap(total.scale(0.1).max(Bytes::gib(1))));
        }
        if !available.told {
            finding.note(
                "This kernel does not print MemAvailable; it is taken as free memory, files and half of the reclaimable slab.",
            );
        }
        Ok(vec![finding])
    }
}

/// Low memory of a 32-bit kernel, all of which the kernel's own objects need, while high memory is free.
fn low_memory(cx: &Context<'_>) -> Option<Finding> {
    let (low, of_low, high) =
        (cx.mem(m::LowFree).ok()?, cx.mem(m::LowTotal).ok()?, cx.mem(m::HighFree).ok()?);
    // High memory is of no use to the kernel's own objects, however much of it is free.
    let lopsided = high >= low.scale(16.0) && low.share_of(of_low) < LITTLE_LOW;
    if of_low == Bytes::ZERO || low.share_of(of_low) >= HIGH && !lopsided || high < low.scale(4.0) {
        return None;
    }
    // Page cache may lie in low memory too, and is given back; slab lies nowhere else.
    let slab = levels::slab_unreclaimable(cx.now().meminfo.as_ref()?)
        .filter(|slab| slab.share_of(of_low) >= LOW_SLAB);
    let held = slab.map_or_else(String::new, |slab| format!("; unreclaimable slab holds {slab:#} of it"));
    let mut finding = Finding::new(
        MemoryExhaustion::ID,
        if slab.is_some() { Severity::High } else { Severity::Warning },
        format!(
            "low memory is nearly used up: {low:#} of {of_low:#} are free, while {high:#} of high memory are{held}"
        ),
        Cost::risk(
            "the kernel's own objects need low memory: allocations fail, or the OOM killer is invoked, with memory free",
        ),
    );
    finding
        .sure(if slab.is_some() { Confidence::Likely } else { Confidence::Possible })
        .because(cx.saw_mem(m::LowFree).against(format!("at least {} of LowTotal", Percent(HIGH)), "as for all memory"))
        .because(cx.saw_mem(m::LowTotal))
        .because(cx.saw_mem(m::HighFree))
        .because_if(cx.mem(m::Slab).is_ok().then(|| cx.saw_mem(m::Slab)))
        .note("A 64-bit kernel has no such limit. Until then fewer kernel objects help: dentries, inodes, page tables of many processes.");
    Some(finding)
}

/// Memory that is free or available only as CMA, which unmovable requests cannot use.
fn contiguous(cx: &Context<'_>, available: Bytes, total: Bytes) -> Option<Finding> {
    let (cma, free) = (cx.mem(m::CmaFree).ok()?, cx.mem(m::MemFree).ok()?);
    let usable = available - cma;
    if usable.share_of(total) >= LITTLE || cma < free.scale(0.8) {
        return None;
    }
    let mut finding = Finding::new(
        MemoryExhaustion::ID,
        Severity::Warning,
        format!(
            "of {free:#} free {cma:#} are CMA, which only movable pages may use: {usable:#} are left for everything else"
        ),
        Cost::risk("kernel allocations fail, or the OOM killer is invoked, with memory free"),
    );
    finding
        .sure(Confidence::Likely)
        .because(cx.saw_mem(m::CmaFree))
        .because(cx.saw_mem(m::MemFree))
        .because_if(cx.mem(m::CmaTotal).is_ok().then(|| cx.saw_mem(m::CmaTotal)))
        .note("A smaller cma= on the kernel command line, if the drivers' buffers (display, camera) fit into it.");
    Some(finding)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Swap {
    Unknown,
    None,
    Full,
    Left,
}

impl Swap {
    fn of(cx: &Context<'_>) -> Swap {
        match (cx.mem(m::SwapTotal), cx.mem(m::SwapFree)) {
            (Ok(Bytes::ZERO), _) => Swap::None,
            _ if cx.swap_is_full() => Swap::Full,
            (Ok(_), Ok(_)) => Swap::Left,
            _ => Swap::Unknown,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Swap::Unknown | Swap::Left => "",
            Swap::None => ", and there is no swap",
            Swap::Full => ", and swap is full",
        }
    }
}

/// The use that holds most, free memory aside.
fn largest(cx: &Context<'_>) -> Option<(Use, Bytes)> {
    let map = MemoryMap::of(cx.now().meminfo.as_ref()?, cx.compressed(), None)?;
    map.parts.into_iter().filter(|(part, _)| *part != Use::Free).max_by_key(|(_, bytes)| *bytes)
}

fn evidence(cx: &Context<'_>, available: Available, finding: &mut Finding) {
    let threshold = format!("at least {}", Percent(LITTLE));
    if available.told {
        finding.because(cx.saw_mem(m::MemAvailable).against(threshold, "half of earlyoom's first bound"));
    } else {
        finding.because(
            Evidence::new(
                "/proc/meminfo",
                "MemFree + files + half of SReclaimable",
                format!("{:#}", available.bytes),
            )
            .against(threshold, "half of earlyoom's first bound"),
        );
    }
    for field in [m::AnonPages, m::Shmem, m::SUnreclaim, m::SwapTotal, m::SwapFree] {
        if cx.mem(field).is_ok() {
            finding.because(cx.saw_mem(field));
        }
    }
}
