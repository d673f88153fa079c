use lotsfree_formulas::hugepages::Pool;
use lotsfree_formulas::pagetables;
use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_units::Grouped;

use crate::advice::Advice;
use crate::huge::{self, Backing};
use crate::rule::rule;
use crate::{Context, Evidence, Finding, Outcome, Rule, Severity, Skip, Workload, advice};

rule! {
    /// The huge page pool is too small for a segment, which is in base pages as a whole.
    ///
    /// # Sees
    /// A database's shared segment in base pages (from the `kernelpagesize_kB` of `/proc/PID/numa_maps`, or
    /// because it is larger than all that the pool has promised), while the spare pages (free less
    /// reserved, plus what `vm.nr_overcommit_hugepages` allows) are fewer than it needs. Also a process that
    /// has some of its private memory in huge pages, so that it asks for them, and whose longest mapping of
    /// `/proc/PID/maps` is in base pages and larger than what is spare: the heap of Java with
    /// `-XX:+UseLargePages`, the buffer pool of MariaDB with `large-pages`.
    ///
    /// # Hurts
    /// A System V segment gets all its huge pages when it is made, or none: one page too few and the spare
    /// pages stay idle, while the segment takes base pages and a page table in each process.
    ///
    /// # Remedies
    /// A pool as large as all segments together (each rounded up, one page more for each as Oracle's script
    /// counts), then a restart. `use_large_pages=only`, `huge_pages=on`: a start that fails is noticed.
    ///
    /// # False alarms
    /// Oracle from 11.2.0.3 on splits its SGA over several segments with `use_large_pages=true` and fills
    /// the pool first: then only the rest is in base pages. Pages that the pool may add on demand count as
    /// there.
    ///
    /// # References
    /// mm/hugetlb.c:hugetlb_reserve_pages and hugetlb_acct_memory (6.12); Oracle MOS 401749.1.
    pub PoolTooSmall = "pool-too-small" in HugePages
}

/// Idle pages from this share of memory on are a loss of their own (`pool-waste` has the same bound).
const IDLE: f64 = 0.02;

impl Rule for PoolTooSmall {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let size = huge::default_size(cx)?;
        let pools = huge::filled(cx)?;
        let Some(pool) = pools.iter().find(|pool| pool.size == size) else {
            return Err(Skip::because("no huge page pool of the default size"));
        };
        if cx.runs(Workload::Hana) {
            return Err(Skip::because("SAP HANA runs: pool-on-hana judges its pool"));
        }
        let candidates = huge::candidates(cx, size)?;
        let Some(largest) = candidates.first() else { return Ok(Vec::new()) };
        let formula = Pool { total: pool.total, free: pool.free, rsvd: pool.reserved, surp: pool.surplus };
        let reservable = formula.reservable(pool.overcommit);
        let needs = largest.size.units_of(size);
        if needs <= reservable {
            return Ok(Vec::new());
        }
        let idle = size.times(pool.idle());
        let page = cx.now().host.page_size;
        let tables = pagetables::saving(largest.size, largest.mappers, page);
        let tables = cx.mem(m::PageTables).map_or(tables, |all| all.min(tables));
        let severity = if huge::share(cx, idle) >= IDLE { Severity::High } else { Severity::Warning };
        let title = format!(
            "{} ({}) needs {} huge pages, the pool has {} spare: it is in base pages as a whole",
            largest.label,
            largest.size,
            Grouped(needs),
            Grouped(reservable)
        );
        let cost = huge::cost(
            cx,
            idle + tables,
            format!("{idle} of idle huge pages and up to {tables} of page tables"),
        );
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding
            .because_all(huge::saw_pool(cx, pool))
            .because(Evidence::new(
                format!("{}/nr_overcommit_hugepages", huge::directory(size)),
                "nr_overcommit_hugepages",
                Grouped(pool.overcommit),
            ))
            .because_all(candidates.iter().take(4).map(huge::Segment::evidence))
            .note(format!(
                "{} B / {} = {} pages; spare = free {} - reserved {} = {}.",
                Grouped(largest.size.0),
                huge::page_name(size),
                Grouped(needs),
                Grouped(pool.free),
                Grouped(pool.reserved),
                Grouped(pool.idle())
            ));
        let mixed = huge::segments(cx)?.iter().any(|s| s.backing == Backing::Huge && s.uid == largest.uid);
        if mixed {
            finding.note(
                "Other segments of the same owner are in huge pages: the pool ran out part of the way \
                 (Oracle mixes page sizes from 11.2.0.3 on).",
            );
        }
        let advice = advice::nr_hugepages(cx)?;
        add_remedies(&mut finding, cx, pool, largest, &advice);

        Ok(vec![finding])
    }
}

fn add_remedies(
    finding: &mut Finding,
    cx: &Context<'_>,
    pool: &HugePool,
    largest: &huge::Segment,
    advice: &Advice<u64>,
) {
    if advice.value > pool.total {
        let bytes = pool.size.times(advice.value);
        let remedy = huge::resize(cx, pool, advice.value, "Make the pool as large as all segments need").risk(format!(
            "The pool then takes {bytes}, lost to everything else at once; read the total back, a fragmented host \
             gives fewer pages without an error."
        ));
        finding
            .note(format!("{} proposed: {}.", huge::count(advice.value), advice.because))
            .remedy(huge::adopted(cx, remedy));
    } else {
        finding.note(format!("No larger pool is proposed: {}.", advice.because));
    }
    if !largest.exact {
        finding.note(
            "The size is what one process has touched so far, a lower bound; PostgreSQL 15 and later prints \
             the right figure: postgres -C shared_memory_size_in_huge_pages.",
        );
    }
}
