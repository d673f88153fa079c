//! Recommended values, on this host, of settings on which vendors disagree.
//!
//! Vendors contradict each other, and generic lists contradict the vendors. Each function here weighs the
//! programs that run on the host and gives one value with its reason. Rules that change the setting ask here
//! and never decide by themselves.

use lotsfree_formulas::hugepages::POOL_MAX_PERCENT;
use lotsfree_settings::NUMA_BALANCING;
use lotsfree_units::{Bytes, Grouped};

use crate::applications::{self, Application};
use crate::known_bad::has_thp_storm;
use crate::{Context, Skip, Workload, huge};

/// A recommendation for one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice<T> {
    /// The value.
    pub value: T,
    /// The reason for this value on this host.
    pub because: String,
    /// Other vendors' values, and how to choose; empty if nobody disagrees.
    pub contested: &'static str,
}

impl<T> Advice<T> {
    fn new(value: T, because: impl Into<String>, contested: &'static str) -> Self {
        Advice { value, because: because.into(), contested }
    }
}

/// `vm.swappiness`.
pub fn swappiness(cx: &Context<'_>) -> Advice<u64> {
    const CONTESTED: &str = "Vendors differ: SAP HANA keeps 60 on SLES and asks 10 on RHEL, tuned sets 10, its PostgreSQL \
        profile 3, SQL Server, Elasticsearch and Couchbase ask 1. Values from 10 to 60 behave alike under page-cache \
        pressure on kernels before 3.11; 0 forbids swapping until the page cache is nearly gone and then risks the OOM \
        killer, so 1 is the lowest safe value.";
    let distribution = cx.now().host.distribution.as_ref().map(|(id, _)| id.as_str());
    let (value, because) = if cx.runs(Workload::Hana) && distribution.is_some_and(|id| id.starts_with("sle"))
    {
        (60, "SAP HANA on SLES is tested with 60")
    } else if cx.runs(Workload::Hana) {
        (10, "SAP HANA outside SLES is tested with 10")
    } else if cx.runs(Workload::Mssql) || cx.runs(Workload::Couchbase) {
        (1, "SQL Server and Couchbase ask for 1")
    } else if cx.workloads().iter().any(|w| w.is_database() && *w != Workload::Redis) {
        (10, "a database keeps its own cache; 10 is tuned's value for throughput and database profiles")
    } else if applications::running(cx).contains(&Application::Elasticsearch) {
        (1, "Elasticsearch asks for 1")
    } else {
        (10, "10 prefers dropping file cache and still lets the kernel swap out what is really cold")
    };
    Advice::new(value, because, CONTESTED)
}

/// `/sys/kernel/mm/transparent_hugepage/enabled`.
pub fn thp_enabled(cx: &Context<'_>) -> Advice<&'static str> {
    const CONTESTED: &str = "Oracle up to 19c, tuned's database profiles, Redis, MongoDB up to 7, Couchbase and TiDB want \
        never or at most madvise; SAP HANA wants madvise on SLES 15.5 and RHEL 9.2 or later and never before; Oracle 23ai \
        wants madvise on UEK7; SQL Server and MongoDB 8 or later want always. madvise serves all who ask for huge pages \
        themselves; a system-wide never slows those who want always (page faults 3.2 times and random reads 1.3 times \
        slower in a measurement), who can be exempted the other way round with prctl(PR_SET_THP_DISABLE).";
    if cx.runs(Workload::Mssql) {
        return Advice::new("always", "SQL Server is tuned with always", CONTESTED);
    }
    if cx.runs(Workload::Hana) && !hana_knows_madvise(cx) {
        return Advice::new("never", "SAP HANA asks for never before SLES 15.5 and RHEL 9.2", CONTESTED);
    }
    let wants_madvise = cx.workloads().iter().find(|w| {
        matches!(
            w,
            Workload::Oracle
                | Workload::Hana
                | Workload::Redis
                | Workload::Couchbase
                | Workload::Tidb
                | Workload::Postgres
        )
    });
    match wants_madvise {
        Some(w) => Advice::new("madvise", format!("{} asks for never or madvise", w.name()), CONTESTED),
        None if cx.runs(Workload::Mongo) => {
            Advice::new("always", "MongoDB 8 or later asks for always, and for never before", CONTESTED)
        }
        None => Advice::new("madvise", "madvise leaves the choice to each program", CONTESTED),
    }
}

/// Whether SAP HANA is tested with madvise on this distribution. A distribution that is unknown, or neither
/// SLES nor RHEL, counts as tested.
fn hana_knows_madvise(cx: &Context<'_>) -> bool {
    let Some((id, version)) = &cx.now().host.distribution else { return true };
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match id.as_str() {
        id if id.starts_with("sle") => version >= (15, 5),
        "rhel" => version >= (9, 2),
        _ => true,
    }
}

/// `vm.overcommit_memory`.
pub fn overcommit_memory(cx: &Context<'_>) -> Advice<u64> {
    const CONTESTED: &str = "SAP HANA asks for 0, Redis and MongoDB 8 for 1, MongoDB before 8 for anything but 2; PostgreSQL's \
        manual discusses 2. Mode 2 turns memory that is reserved but never touched into failed fork and mmap calls; choose it \
        only with a limit computed from what all processes reserve.";
    if cx.runs(Workload::Redis) && !cx.runs(Workload::Hana) {
        return Advice::new(1, "Redis forks a full-size child to save its data", CONTESTED);
    }
    let because = if cx.runs(Workload::Hana) { "SAP HANA asks for 0" } else { "0 is the kernel's default" };
    Advice::new(0, because, CONTESTED)
}

/// `kernel.numa_balancing`. Bit 1, memory tiering (5.18 and later), stays as it is.
pub fn numa_balancing(cx: &Context<'_>) -> Advice<u64> {
    const CONTESTED: &str = "SAP's own check 2200, Oracle, SQL Server and network-latency profiles want 0; hosts of many \
        unpinned virtual machines gain from 1. Some advice for HANA says 1 and cites SAP: SAP's check says otherwise.";
    let tiering = cx.sysctl(NUMA_BALANCING).map_or(0, |mode| mode & 2);
    match cx.workloads().iter().find(|w| w.is_database()) {
        Some(w) => Advice::new(tiering, format!("{} places its memory itself", w.name()), CONTESTED),
        None => Advice::new(
            tiering | 1,
            "without a program that places its memory itself the kernel's default stays",
            CONTESTED,
        ),
    }
}

/// Whether a huge page pool may be proposed at all; `Err` says who forbids it.
pub fn huge_pool_allowed(cx: &Context<'_>) -> Result<(), &'static str> {
    if cx.runs(Workload::Hana) {
        return Err(
            "SAP HANA must run without a huge page pool (its checks call any pool an error); it asks for \
            transparent huge pages with madvise instead",
        );
    }
    Ok(())
}

/// `vm.watermark_scale_factor`, in ten-thousandths of a node. The gap between two watermarks has to hold the
/// memory that is allocated before kswapd has freed a batch.
pub fn watermark_scale_factor(cx: &Context<'_>) -> Advice<u64> {
    const CONTESTED: &str = "The default is 10 (0.1 % of a node). Every kernel takes up to 1000; newer ones are said to take \
        3000, which is not verified here. memstate warns above 100, and administrators of hosts with bursts set 50 to 200.";
    /// Milliseconds from kswapd's wake-up until it has freed a batch, at the slow end of 0.1 to 0.5 s.
    const WAKE_MS: u64 = 500;
    const USUAL: std::ops::RangeInclusive<u64> = 50..=200;
    let nodes = cx.nodes().map_or(1, <[_]>::len).max(1) as u64;
    let needed = cx.freed().ok().zip(cx.total().ok()).and_then(|(rate, total)| {
        let burst = cx.pages(rate.peak.ceil() as u64);
        let node = Bytes(total.0 / nodes);
        let factor = lotsfree_formulas::watermarks::scale_factor_for_burst(burst, WAKE_MS, node)?;
        Some((factor, burst))
    });
    let value = needed.map_or(*USUAL.start(), |(factor, _)| factor).clamp(*USUAL.start(), *USUAL.end());
    let because = match needed {
        Some((factor, burst)) => format!(
            "the gap holds {WAKE_MS} ms of the {burst}/s that reclaim had to free at its peak, which takes {factor}; \
             usual are {} to {}",
            USUAL.start(),
            USUAL.end()
        ),
        None => "the least that administrators of hosts with bursts set".to_owned(),
    };
    Advice::new(value, because, CONTESTED)
}

/// `vm.dirty_bytes` and `vm.dirty_background_bytes`.
pub fn dirty_bytes(cx: &Context<'_>) -> Advice<(u64, u64)> {
    const CONTESTED: &str = "SUSE (2578899) sets 600 MiB and 300 MiB where flushing stalls; tuned's PostgreSQL profile 512 MiB \
        and 64 MiB; its Oracle profile 40 % and 3 %, since Oracle writes around the page cache. An array with a battery-backed \
        cache takes bursts at memory speed and may keep large limits.";
    match cx.runs(Workload::Postgres) {
        true => Advice::new((512 << 20, 64 << 20), "tuned's PostgreSQL profile sets them", CONTESTED),
        false => Advice::new((600 << 20, 300 << 20), "SUSE sets them where flushing stalls", CONTESTED),
    }
}

/// `vm.nr_hugepages`: the number of pages of the default size that are used or promised, plus those that
/// shared segments in base pages would need; 0 if [`huge_pool_allowed`] forbids a pool.
///
/// # Errors
/// [`Skip::Unknown`] if the pool or its page size is unknown.
pub fn nr_hugepages(cx: &Context<'_>) -> Result<Advice<u64>, Skip> {
    const CONTESTED: &str = "SAP HANA asks for 0; Oracle, PostgreSQL, SAP ASE, Java and DPDK for as many \
        pages as their memory has, Oracle for at most 70 % of memory.";
    let size = huge::default_size(cx)?;
    let pools = cx.huge_pools()?;
    if let Err(why) = huge_pool_allowed(cx) {
        return Ok(Advice::new(0, why, CONTESTED));
    }
    let promised = pools.iter().find(|pool| pool.size == size).map_or(0, huge::promised);
    let candidates = huge::candidates(cx, size).unwrap_or_default();
    let needed: u64 = candidates.iter().map(|segment| segment.pages(size)).sum();
    let value = promised.saturating_add(needed);
    let most = cx.total().map(|total| total.0.saturating_mul(POOL_MAX_PERCENT) / 100 / size.0);
    if needed > 0 && most.is_ok_and(|most| value > most) {
        let because = format!(
            "the segments in base pages would need {} pages more, which is beyond {POOL_MAX_PERCENT} % of \
             memory: make them smaller first",
            Grouped(needed)
        );
        return Ok(Advice::new(promised, because, CONTESTED));
    }
    let because = match (promised, needed) {
        (0, 0) => "nobody uses a huge page or was promised one".to_owned(),
        (_, 0) => format!("{} are used or promised", Grouped(promised)),
        (0, _) => format!("the segments in base pages need {}", Grouped(needed)),
        _ => format!(
            "{} are used or promised, the segments in base pages need {} more",
            Grouped(promised),
            Grouped(needed)
        ),
    };
    Ok(Advice::new(value, because, CONTESTED))
}

/// `defrag` and `khugepaged/defrag` of transparent huge pages, with the reason, on a kernel whose huge page
/// allocations reclaim one node while others have free memory (rule `known-bad-kernel`).
pub fn thp_defrag_on_bad_kernel() -> (&'static str, u64, &'static str) {
    let because = "On these builds every value that lets a huge page reclaim or compact meets the bug, so SUSE's workaround is never and \
        0; with the fixed build SAP wants madvise and 1.";
    ("never", 0, because)
}

/// `/sys/kernel/mm/transparent_hugepage/defrag`.
pub fn thp_defrag(cx: &Context<'_>) -> Advice<&'static str> {
    const CONTESTED: &str = "The kernel's default was always before 4.6 and is madvise since. MongoDB 8 asks for \
        defer+madvise; SUSE and Red Hat for never on kernels with the reclaim storm (SUSE KB 22286), and for madvise once \
        they are repaired.";
    let several_nodes = cx.several_nodes().is_ok();
    if several_nodes && has_thp_storm(&cx.now().host.kernel.release) {
        let because = "this kernel reclaims without end for huge pages when one node is full (SUSE KB 22286)";
        return Advice::new("never", because, CONTESTED);
    }
    let choices = cx.thp().map(|thp| &*thp.defrag.choices).unwrap_or_default();
    let has = |word: &str| choices.iter().any(|choice| &**choice == word);
    if has("defer+madvise") {
        let because = "only faults that asked for huge pages with madvise compact memory, the rest leave it to kcompactd";
        return Advice::new("defer+madvise", because, CONTESTED);
    }
    Advice::new("madvise", "this kernel has no defer+madvise", CONTESTED)
}

/// `/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none`, for huge pages of 512 base pages.
pub fn max_ptes_none(cx: &Context<'_>) -> Advice<u64> {
    const CONTESTED: &str = "The kernel's default of 511 fills a range of which one page was touched; MongoDB 8 asks for 0. \
        Values up to 64 (an eighth) keep the waste small.";
    if cx.runs(Workload::Mongo) {
        return Advice::new(0, "MongoDB 8 or later asks for 0", CONTESTED);
    }
    Advice::new(64, "at most an eighth of a huge page that khugepaged makes is then empty", CONTESTED)
}

/// `vm.min_free_kbytes`: the recommended value, and the range in which a value is left alone.
///
/// # Errors
/// [`crate::Skip::Unknown`] if memory, zones or nodes are unknown.
pub fn min_free_kbytes(cx: &Context<'_>) -> Result<Advice<MinFree>, crate::Skip> {
    use lotsfree_formulas::vendors::{
        MIN_FREE_TOLERANCE_HIGH, MIN_FREE_TOLERANCE_LOW, SAP_MIN_FREE_MAX_KIB, oracle_min_free_kib,
        sap_min_free_kib,
    };
    const CONTESTED: &str = "The kernel takes 4 x sqrt(memory in kB), at most 64 MiB and since 5.10 256 \
                             MiB; khugepaged raises that to 11 huge pages per zone, at most 5 % of \
                             memory. Oracle asks for 0.5 % of memory or 1 GiB per NUMA node, whichever is \
                             more. SAP has steps from 64 MiB above 259 GiB to 256 MiB above 4 TiB and \
                             calls more than 2 GiB an error. At 1 TiB and 4 nodes Oracle asks for 59 \
                             times what SAP asks for, and SAP rejects it.";
    let total = cx.total()?;
    let chosen = crate::min_free::Defaults::of(cx)?.chosen();
    let tolerated = |kib: u64, factor: f64| (kib as f64 * factor) as u64;
    if cx.runs(Workload::Hana) || cx.runs(Workload::Sap) {
        let value = sap_min_free_kib(total).unwrap_or(0).max(chosen).min(SAP_MIN_FREE_MAX_KIB);
        let least = tolerated(value, MIN_FREE_TOLERANCE_LOW);
        let range = MinFree { value, least, most: SAP_MIN_FREE_MAX_KIB };
        return Ok(Advice::new(
            range,
            "SAP runs here: its step for this much memory, at most 2 GiB",
            CONTESTED,
        ));
    }
    if cx.runs(Workload::Oracle) {
        let asked = oracle_min_free_kib(total, cx.nodes()?.len().max(1) as u64);
        // The 1 GiB per node is meant for large hosts; the kernel's own raise stops at 5 % of memory.
        let value = asked.min(total.as_kib() / 20).max(chosen);
        let because = match value < asked {
            true => format!(
                "Oracle runs here and asks for {asked} kB, cut to 5 % of memory, where the kernel's own \
                 raise stops"
            ),
            false => "Oracle runs here: 0.5 % of memory or 1 GiB per NUMA node".to_owned(),
        };
        let (least, most) =
            (tolerated(value, MIN_FREE_TOLERANCE_LOW), tolerated(value, MIN_FREE_TOLERANCE_HIGH));
        return Ok(Advice::new(MinFree { value, least, most }, because, CONTESTED));
    }
    let (least, most) =
        (tolerated(chosen, MIN_FREE_TOLERANCE_LOW), tolerated(chosen, MIN_FREE_TOLERANCE_HIGH));
    let because = "no program runs here whose vendor asks for another value than the kernel's own choice";
    Ok(Advice::new(MinFree { value: chosen, least, most }, because, CONTESTED))
}

/// A value of `vm.min_free_kbytes` and the range around it in which a value is left alone, all in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinFree {
    /// The recommended value.
    pub value: u64,
    /// Lower values are too low.
    pub least: u64,
    /// Higher values are too high.
    pub most: u64,
}
