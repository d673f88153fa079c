//! What a contested setting ought to be on this host.
//!
//! Vendors contradict each other, and generic lists contradict the vendors. Each function here weighs what runs on the
//! host and gives one value with its reason; rules that touch the setting ask here and never decide by themselves.

use crate::{Context, Workload};

/// A recommendation for one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice<T> {
    /// The value.
    pub value: T,
    /// Why this one here.
    pub because: String,
    /// What others say, and how to choose; empty where nobody disagrees.
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
    } else if cx.workloads().iter().any(|w| w.is_database()) {
        (10, "a database keeps its own cache; 10 is tuned's value for throughput and database profiles")
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
        None => Advice::new("madvise", "madvise leaves the choice to each program", CONTESTED),
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

/// `kernel.numa_balancing`.
pub fn numa_balancing(cx: &Context<'_>) -> Advice<u64> {
    const CONTESTED: &str = "SAP's own check 2200, Oracle, SQL Server and network-latency profiles want 0; hosts of many \
        unpinned virtual machines gain from 1. Some advice for HANA says 1 and cites SAP: SAP's check says otherwise.";
    match cx.workloads().iter().find(|w| w.is_database()) {
        Some(w) => Advice::new(0, format!("{} places its memory itself", w.name()), CONTESTED),
        None => Advice::new(
            1,
            "without a program that places its memory itself the kernel's default stays",
            CONTESTED,
        ),
    }
}

/// Whether a huge page pool may be proposed at all; `Err` says who forbids it.
pub fn huge_pool_allowed(cx: &Context<'_>) -> Result<(), &'static str> {
    if cx.runs(Workload::Hana) {
        return Err(
            "SAP HANA must run without a huge page pool (its checks call any pool an error); it asks for transparent \
                    huge pages with madvise instead",
        );
    }
    Ok(())
}

/// `vm.min_free_kbytes`: the value to aim at, and the range that is left alone.
///
/// # Errors
/// [`crate::Skip::Unknown`] if memory, zones or nodes are unknown.
pub fn min_free_kbytes(cx: &Context<'_>) -> Result<Advice<MinFree>, crate::Skip> {
    use lotsfree_formulas::vendors::{
        MIN_FREE_TOLERANCE_HIGH, MIN_FREE_TOLERANCE_LOW, SAP_MIN_FREE_MAX_KIB, oracle_min_free_kib,
        sap_min_free_kib,
    };
    const CONTESTED: &str = "The kernel takes 4 x sqrt(memory in kB), at most 64 MiB and since 5.10 256 MiB; khugepaged raises that \
        to 11 huge pages per zone, at most 5 % of memory. Oracle asks for 0.5 % of memory or 1 GiB per NUMA node, whichever is \
        more. SAP has steps from 64 MiB above 259 GiB to 256 MiB above 4 TiB and calls more than 2 GiB an error. At 1 TiB and 4 \
        nodes Oracle asks for 59 times what SAP asks for, and SAP rejects it.";
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
        // 1 GiB per node is meant for large hosts; the kernel's own raise stops at 5 % of memory.
        let value = asked.min(total.as_kib() / 20).max(chosen);
        let because = match value < asked {
            true => format!(
                "Oracle runs here and asks for {asked} kB, cut to 5 % of memory, where the kernel's own raise stops"
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

/// A value of `vm.min_free_kbytes` and the range around it that is left alone, all in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinFree {
    /// What to set.
    pub value: u64,
    /// Less is too little.
    pub least: u64,
    /// More is too much.
    pub most: u64,
}
