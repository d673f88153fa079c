use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo as m, vmstat as v};
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::swapping::is_zram;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, MemoryMap, Outcome, Remedy, Rule, Severity, Skip, Use,
};

rule! {
    /// A large part of memory is in no counter of the kernel.
    ///
    /// # Sees
    /// `MemTotal` less all that `/proc/meminfo` accounts for: free, anonymous, cached, swap cache, slab, page
    /// tables, kernel stacks, vmalloc, per-CPU memory and huge pages; and less what other counters explain: a
    /// balloon, compressed swap, graphics memory, free pages on per-CPU lists.
    ///
    /// # Hurts
    /// What a driver takes straight from the page allocator appears nowhere: network receive rings, RDS and
    /// InfiniBand buffers, a hypervisor's balloon. It cannot be reclaimed, no process shows it, and it grows
    /// until the OOM killer ends processes that are too small to help.
    ///
    /// # Remedies
    /// Find the owner: unload or bound the driver, deflate the balloon, boot with `page_owner=on` where it
    /// stays a riddle.
    ///
    /// # False alarms
    /// Balloons and graphics memory that the kernel counts are left out; VMware's balloon counts itself on
    /// recent kernels only. Memory that a driver took from CMA, and XFS's metadata buffers, are used
    /// knowingly but unaccounted. On kernels before 5.3, `VmallocUsed` says nothing of memory, so vmalloc
    /// counts as unaccounted there.
    ///
    /// # References
    /// fs/proc/meminfo.c:meminfo_proc_show (6.12); `Documentation/mm/page_owner.rst`; memstate (10 % of
    /// memory).
    pub UnaccountedKernel = "unaccounted-kernel" in Reclaim
}

/// Of memory without huge page pools, memstate's bound.
const SHARE: f64 = 0.10;
/// Twice that.
const HIGH: f64 = 0.20;
/// Without one of these the sum means nothing.
const NEEDED: [Counter<Meminfo>; 5] = [m::MemFree, m::AnonPages, m::Cached, m::Slab, m::PageTables];

impl Rule for UnaccountedKernel {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let ordinary = cx.total_without_pools()?;
        if cx.mem(m::AnonPages).is_err()
            && let Some(finding) = on_lists(cx)
        {
            return Ok(vec![finding]);
        }
        for field in NEEDED {
            cx.mem(field)?;
        }
        let meminfo = cx.now().meminfo.as_ref().ok_or_else(|| Skip::missing("/proc/meminfo"))?;
        let pools = cx.now().huge_pools.as_deref().map(|pools| {
            let sum =
                |pages: fn(&HugePool) -> u64| pools.iter().map(|p| p.size.times(pages(p))).sum::<Bytes>();
            (sum(HugePool::used), sum(|pool| pool.free))
        });
        let map = MemoryMap::of(meminfo, cx.compressed(), pools)
            .ok_or_else(|| Skip::missing("/proc/meminfo MemTotal"))?;
        let other = map.get(Use::Other);
        let mut explained = explained(cx);
        explained.extend(bounds(cx).into_iter().map(|(name, bytes)| (name, bytes.min(other))));
        let unknown = explained.iter().fold(other, |rest, (_, bytes)| rest - *bytes);
        let share = unknown.share_of(ordinary);
        if share <= SHARE {
            return Ok(Vec::new());
        }
        let mut finding = Finding::new(
            Self::ID,
            if share > HIGH { Severity::High } else { Severity::Warning },
            format!("{unknown} of memory, {}, are in no counter", Percent(share)),
            Cost::memory(
                unknown,
                cx.total()?,
                "taken straight from the page allocator by the kernel or a driver",
            ),
        );
        finding
            .sure(Confidence::Likely)
            .because(
                Evidence::new("/proc/meminfo", "MemTotal less the sum of its parts", format!("{other:#}"))
                    .against(
                        format!("more than {} of memory without huge pages", Percent(SHARE)),
                        "memstate",
                    ),
            )
            .because(cx.saw_mem(m::MemTotal));
        if let Ok(vmalloc) = cx.mem(m::VmallocUsed)
            && vmalloc.share_of(ordinary) > SHARE / 2.0
        {
            finding.because(cx.saw_mem(m::VmallocUsed)).note(
                "vmalloc holds much of it: /proc/vmallocinfo names the callers, largest first with \
                 `sort -k2 -n -r /proc/vmallocinfo`.",
            );
        }
        for (name, bytes) in &explained {
            finding.because(Evidence::new("counted elsewhere", *name, format!("{bytes:#}")));
        }
        let parts = map.parts.iter().filter(|(part, _)| *part != Use::Other);
        let sum =
            parts.map(|(part, bytes)| format!("{} {bytes:#}", part.name())).collect::<Vec<_>>().join(" + ");
        add_remedies(&mut finding, cx, &sum, other, &map);

        Ok(vec![finding])
    }
}

/// Pages on the lists of reclaim that belong to neither a file nor a process (before 2.6.18, where `Mapped`
/// counts the pages of processes too).
fn on_lists(cx: &Context<'_>) -> Option<Finding> {
    let get = |field| cx.mem(field).ok();
    let lists = get(m::Active)? + get(m::Inactive)?;
    let named = get(m::Buffers)? + get(m::Cached)? + cx.mem_or_zero(m::SwapCached) + get(m::Mapped)?;
    let left = lists - named;
    let share = left.share_of(cx.total().ok()?);
    if share < HIGH {
        return None;
    }
    let mut finding = Finding::new(
        UnaccountedKernel::ID,
        Severity::Warning,
        format!(
            "{left} of memory, {}, lie on the lists of reclaim and belong to no file and no process: the kernel \
             leaks pages",
            Percent(share)
        ),
        Cost::memory(left, cx.total().ok()?, "pages that nobody uses and nobody gives back"),
    );
    finding.sure(Confidence::Likely).because(
        Evidence::new("/proc/meminfo", "Active + Inactive", format!("{lists:#}"))
            .against(format!("{named:#}"), "Buffers + Cached + SwapCached + Mapped"),
    )
    .note(
        "Such pages come back at a restart only. See whether a file system, a driver or a patch is new here, and try \
         the kernel before it or after it.",
    );
    Some(finding)
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, sum: &str, other: Bytes, map: &MemoryMap) {
    finding
        .note(format!("{:#} - ({sum}) = {other:#}.", map.total))
        .remedy(
            Remedy::new("Find the owner of the pages")
                .run("cat /sys/kernel/debug/page_owner | page_owner_sort -t - sorted.txt")
                .keep("kernel command line", "page_owner=on")
                .risk(
                    "page_owner takes some 1 % of memory; without it only suspects can be tried one by one.",
                )
                .restart("the host, with the parameter"),
        )
        .remedy(
            Remedy::new("Look at the usual owners: a balloon, network and storage drivers with large rings")
                .run("vmware-toolbox-cmd stat balloon")
                .run("ethtool -g INTERFACE")
                .run("rds-info -k")
                .risk("Smaller rings drop packets under bursts."),
        );
    if let Ok(cma) = cx.mem(m::CmaTotal)
        && cma > Bytes::ZERO
    {
        let taken = cma - cx.mem_or_zero(m::CmaFree);
        finding.note(format!(
            "{taken} of CMA are in use; as far as a driver took them they are part of this sum."
        ));
    }
    if cx.mounts().is_ok_and(|mounts| mounts.iter().any(|mount| &*mount.kind == "zfs")) {
        finding.note("ZFS keeps its cache (ARC) outside of all counters: see /proc/spl/kstat/zfs/arcstats.");
    }
}

/// Memory that may be as large as this: what it takes is in no counter that is here.
fn bounds(cx: &Context<'_>) -> Vec<(&'static str, Bytes)> {
    // XFS keeps the blocks of its metadata in pages of its own; a cluster of inodes is 16 KiB.
    let buffers = cx.now().slabs.iter().flatten().find(|cache| &*cache.name == "xfs_buf");
    let buffers = buffers.map(|cache| Bytes::kib(16).times(cache.active_objects)).unwrap_or_default();
    // Compressed swap takes at most what was swapped.
    let compressed = match cx.vm(v::nr_zspages) {
        Ok(_) => Bytes::ZERO,
        Err(_) => {
            cx.swaps().unwrap_or_default().iter().filter(|area| is_zram(area)).map(|area| area.used).sum()
        }
    };
    [("xfs_buf, 16 KiB each at most", buffers), ("zram, at most what was swapped", compressed)]
        .into_iter()
        .filter(|(_, bytes)| *bytes > Bytes::ZERO)
        .collect()
}

/// What other counters say of memory that has no part of its own in `/proc/meminfo`'s sum.
fn explained(cx: &Context<'_>) -> Vec<(&'static str, Bytes)> {
    let pages = |counter| cx.vm(counter).map(|n| cx.pages(n)).unwrap_or_default();
    let pagesets = cx.zones().unwrap_or_default().iter().flat_map(|zone| &zone.pagesets);
    let per_cpu_lists = pagesets.fold(0u64, |sum, set| sum.saturating_add(set.count));
    [
        ("Balloon", cx.mem_or_zero(m::Balloon).max(pages(v::nr_balloon_pages))),
        ("GPUActive + GPUReclaim", cx.mem_or_zero(m::GPUActive) + cx.mem_or_zero(m::GPUReclaim)),
        ("HardwareCorrupted", cx.mem_or_zero(m::HardwareCorrupted)),
        ("ZFS's cache", cx.now().arc.and_then(|arc| arc.size).unwrap_or_default()),
        ("per-CPU lists of /proc/zoneinfo", cx.pages(per_cpu_lists)),
    ]
    .into_iter()
    .filter(|(_, bytes)| *bytes > Bytes::ZERO)
    .collect()
}
