use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::slabinfo::SlabCache;
use lotsfree_settings::VFS_CACHE_PRESSURE;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::levels;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Trend};

rule! {
    /// Kernel objects (slab) take a large or growing part of memory.
    ///
    /// # Sees
    /// `Slab` above 30 % or `SUnreclaim` above 10 % of memory without the huge page pools; or `SUnreclaim`
    /// growing by more than 1 % of memory an hour over ten minutes or more; or more than 10 million unused
    /// directory entries (`fs.dentry-state`). Names the largest caches of `/proc/slabinfo`; of that file
    /// alone a cache of 1 GiB, or caches whose objects are nearly all unused.
    ///
    /// # Hurts
    /// `SUnreclaim` is lost until its owner frees it. `SReclaimable` counts as available, but reclaim has to
    /// find it: millions of unused or negative directory entries are walked one by one, with locks that
    /// lookups need, and a slab page is free only when the last of its objects is.
    ///
    /// # Remedies
    /// Find who makes the objects: a program that looks up millions of names that do not exist, a driver that
    /// leaks. `vm.vfs_cache_pressure` up to 200 for directory entries and inodes.
    ///
    /// # False alarms
    /// `SReclaimable` is part of `MemAvailable`: a file server with 30 % of it may be well. ZFS keeps its
    /// cache outside of slab. Growth over less than ten minutes is noise.
    ///
    /// # References
    /// mm/vmscan.c:shrink_slab, fs/dcache.c (6.12); memstate (30 %); SAP check 2600 (10 million unused
    /// entries); `Documentation/admin-guide/sysctl/vm.rst`, vfs_cache_pressure.
    pub SlabGrowth = "slab-growth" in Reclaim
}

/// Of memory, memstate's bound.
const SHARE: f64 = 0.30;
/// Of memory, objects that cannot be reclaimed: ten times what an ordinary host has. Our choice.
const FIXED: f64 = 0.10;
/// Of memory per hour.
const PER_HOUR: f64 = 0.01;
/// One cache of this size is worth a look on any host.
const LARGE: Bytes = Bytes::gib(1);
/// Share of memory that a single cache hardly ever has.
const LARGE_SHARE: f64 = 0.20;
/// A list of five caches or more shows the largest ones; a cache with 80 % of what they hold is worth a look.
const LIST: usize = 5;
const MOST: f64 = 0.80;
/// A general cache with this share of them is.
const HALF: f64 = 0.5;
/// Caches of which fewer objects are in use keep their slabs for nothing; less memory than this is no matter.
const USED: f64 = 0.10;
const HELD: Bytes = Bytes::mib(64);
/// A shorter period makes no slope.
const SLOPE_SECONDS: f64 = 600.0;
/// Unused directory entries, of SAP's check 2600.
const UNUSED_DENTRIES: u64 = 10_000_000;
/// Directory entries and inodes are given up this much more readily; more than 200 costs lookups without end.
const PRESSURE: u64 = 150;

impl Rule for SlabGrowth {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        if cx.mem(m::Slab).is_err() {
            return alone(cx);
        }
        let slab = cx.mem(m::Slab)?;
        let ordinary = cx.total_without_pools()?;
        let share = slab.share_of(ordinary);
        let fixed = cx.now().meminfo.as_ref().and_then(levels::slab_unreclaimable);
        let slope = (cx.trend(m::SUnreclaim).ok())
            .filter(|trend| trend.seconds >= SLOPE_SECONDS && trend.per_hour > PER_HOUR * ordinary.as_f64());
        let dentries = cx.now().sysctl.numbers("fs.dentry-state").unwrap_or_default();
        let unused = dentries.get(1).copied().filter(|unused| *unused > UNUSED_DENTRIES);
        let many_fixed = fixed.filter(|fixed| fixed.share_of(ordinary) > FIXED);
        if share <= SHARE && slope.is_none() && unused.is_none() && many_fixed.is_none() {
            return Ok(Vec::new());
        }

        let mostly_fixed = fixed.is_some_and(|fixed| fixed.share_of(ordinary) > SHARE);
        let severity = Severity::ladder(
            &[
                (mostly_fixed, Severity::High),
                (share > SHARE || slope.is_some() || many_fixed.is_some(), Severity::Warning),
            ],
            Severity::Info,
        );
        let title = match many_fixed.filter(|_| share <= SHARE && slope.is_none()) {
            Some(fixed) => format!(
                "kernel objects that cannot be reclaimed take {fixed}, {} of memory",
                Percent(fixed.share_of(ordinary))
            ),
            None => {
                let title = title(slope.as_ref(), unused, share, slab, ordinary);
                match cx.mem(m::SReclaimable) {
                    Ok(reclaimable) if share > SHARE => {
                        format!("{title}; {reclaimable} of them can be reclaimed")
                    }
                    _ => title,
                }
            }
        };
        let mut finding = Finding::new(
            Self::ID,
            severity,
            title,
            Cost::memory(
                slab,
                cx.total()?,
                match fixed {
                    Some(fixed) => format!("kernel objects, {fixed} of them cannot be reclaimed"),
                    None => "kernel objects".to_owned(),
                },
            ),
        );
        finding
            .sure(match slope {
                Some(slope) if slope.seconds < 3600.0 && share <= SHARE => Confidence::Possible,
                _ => Confidence::Likely,
            })
            .because(
                cx.saw_mem(m::Slab).against(
                    format!("more than {} of memory without huge pages", Percent(SHARE)),
                    "memstate",
                ),
            );
        for field in [m::SReclaimable, m::SUnreclaim] {
            finding.because_if(cx.mem(field).is_ok().then(|| cx.saw_mem(field)));
        }
        if let Some(slope) = slope {
            finding.because(
                Evidence::new("/proc/meminfo", "SUnreclaim", format!("{:#}", Bytes(slope.last as u64)))
                    .was(format!("{:#}", Bytes(slope.first as u64)))
                    .against(
                        format!("more than {} of memory an hour", Percent(PER_HOUR)),
                        "steady use does not grow",
                    ),
            );
        }
        if let Some(unused) = unused {
            finding.because(
                Evidence::new("/proc/sys/fs/dentry-state", "unused", Grouped(unused))
                    .against(Grouped(UNUSED_DENTRIES), "SAP check 2600"),
            );
        }
        if let Some(negative) = dentries.get(4).filter(|negative| **negative > 0) {
            finding.because(Evidence::new("/proc/sys/fs/dentry-state", "negative", Grouped(*negative)));
        }
        let largest = add_largest(&mut finding, cx);
        add_remedies(&mut finding, cx, &largest, unused, slab);
        Ok(vec![finding])
    }
}

/// Whether a cache is one of `kmalloc`, whose objects are whatever the kernel asks for.
fn is_general(name: &str) -> bool {
    let number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    ["size-", "kmalloc-"].iter().any(|prefix| name.strip_prefix(prefix).is_some_and(number))
}

/// Whether a cache is one of directory entries or inodes, which have a shrinker.
fn is_reclaimable(name: &str) -> bool {
    name.starts_with("dentry") || name.ends_with("inode_cache") || name.ends_with("_inode")
}

/// Judges `/proc/slabinfo` or the table of slabtop without `/proc/meminfo`: by size alone.
fn alone(cx: &Context<'_>) -> Outcome {
    let slabs = cx.now().slabs.as_deref().filter(|slabs| !slabs.is_empty());
    let slabs = slabs.ok_or_else(|| Skip::missing("/proc/meminfo Slab"))?;
    let size = |cache: &SlabCache| cx.pages(cache.pages_per_slab.saturating_mul(cache.slabs));
    let unused =
        |cache: &&SlabCache| cache.objects > 0 && (cache.active_objects as f64) < USED * cache.objects as f64;
    let held: Bytes = slabs.iter().filter(unused).map(size).sum();
    let all: Bytes = slabs.iter().map(size).sum();
    // Where memory's size is known, by share; where the list is long, a single cache is most of it.
    let large = |cache: &&SlabCache| {
        let size = size(cache);
        let of_memory = cx.total().is_ok_and(|total| size.share_of(total) >= LARGE_SHARE);
        let most = slabs.len() >= LIST && size.share_of(all) >= MOST && size >= HELD;
        let anonymous = is_general(&cache.name) && size.share_of(all) >= HALF && size >= HELD;
        size >= LARGE || of_memory || most || anonymous
    };
    let largest = slabs.iter().max_by_key(|cache| size(cache)).filter(large);
    let title = match largest {
        Some(largest) => {
            let whose = match &*largest.name {
                name if is_general(name) => {
                    ": some part of the kernel or a driver allocates such objects and does not free them"
                }
                name if is_reclaimable(name) => ", which reclaim can take unless something pins it",
                _ => "",
            };
            format!("{} alone takes {} of kernel memory{whose}", largest.name, size(largest))
        }
        None if held >= HELD && held.share_of(all) > 0.5 => format!(
            "slab caches hold {held} of kernel memory for objects of which less than {} exist",
            Percent(USED)
        ),
        None => return Ok(Vec::new()),
    };
    let mut finding = Finding::new(
        SlabGrowth::ID,
        Severity::Warning,
        title,
        Cost::risk("kernel objects; whether that is much here, /proc/meminfo would tell"),
    );
    finding.sure(Confidence::Possible);
    let largest = add_largest(&mut finding, cx);
    add_remedies(&mut finding, cx, &largest, None, Bytes::ZERO);
    Ok(vec![finding])
}

fn title(slope: Option<&Trend>, unused: Option<u64>, share: f64, slab: Bytes, ordinary: Bytes) -> String {
    match (slope, unused) {
        _ if share > SHARE => format!("kernel objects take {slab}, {} of memory", Percent(share)),
        (Some(slope), _) => format!(
            "kernel objects that cannot be reclaimed grow by {}/h, {} of memory",
            Bytes(slope.per_hour as u64),
            Percent(slope.per_hour / ordinary.as_f64())
        ),
        (None, unused) => {
            format!("{} unused directory entries are cached", Grouped(unused.unwrap_or_default()))
        }
    }
}

fn add_remedies(
    finding: &mut Finding,
    cx: &Context<'_>,
    largest: &[(Bytes, &SlabCache)],
    unused: Option<u64>,
    slab: Bytes,
) {
    let names = largest.iter().take(5).any(|(_, cache)| is_reclaimable(&cache.name));
    let pressure = cx.sysctl(VFS_CACHE_PRESSURE).ok();
    if (names || unused.is_some()) && pressure.is_some_and(|pressure| pressure < PRESSURE) {
        finding.remedy(
            Remedy::new("Let reclaim give up directory entries and inodes more readily")
                .sysctl(cx, VFS_CACHE_PRESSURE, PRESSURE)
                .risk(
                    "Path lookups miss more often. Beyond 200 the search for entries to free costs more \
                     than it gives.",
                ),
        );
    }
    let drop_fd = "fs.procfs-drop-fd-dentries";
    if unused.is_some() && cx.sysctl(drop_fd).is_ok_and(|value| value == 0) {
        finding.remedy(
            Remedy::new("Drop the entries of /proc/PID/fd as soon as they are unused (RHEL kernels)")
                .sysctl(cx, drop_fd, 1)
                .risk("Listing open files of processes again and again becomes a little slower."),
        );
    }
    finding.remedy(
        Remedy::new("Find what makes the objects")
            .run("slabtop -o -s c")
            .run("bpftrace -e 'kprobe:__d_alloc { @[comm] = count(); }'")
            .risk("The probe costs each lookup a little while it runs."),
    );
    if largest.is_empty() {
        finding.note("Which caches they are is not known: /proc/slabinfo is readable to root only.");
    }
    if let Some(reclaimable) = cx.mem(m::SReclaimable).ok().filter(|r| r.share_of(slab) > 0.5) {
        finding.note(format!(
            "{reclaimable} of it can be reclaimed and are part of MemAvailable; it hurts by the time that \
             reclaim takes, not by the memory."
        ));
    }
}

fn add_largest<'a>(finding: &mut Finding, cx: &Context<'a>) -> Vec<(Bytes, &'a SlabCache)> {
    let slabs = cx.now().slabs.as_deref().unwrap_or_default();
    let size = |pages: u64, slabs: u64| cx.pages(pages.saturating_mul(slabs));
    let mut largest: Vec<_> = slabs.iter().map(|c| (size(c.pages_per_slab, c.slabs), c)).collect();
    largest.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    for (bytes, cache) in largest.iter().take(5) {
        finding.because(
            Evidence::new(
                "/proc/slabinfo",
                "slabs x pages",
                format!(
                    "{bytes}, {} of {} objects in use",
                    Grouped(cache.active_objects),
                    Grouped(cache.objects)
                ),
            )
            .of(&cache.name),
        );
    }

    largest
}
