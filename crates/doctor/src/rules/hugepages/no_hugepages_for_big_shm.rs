use lotsfree_formulas::hugepages::{WORTH_IT_SESSIONS, WORTH_IT_SGA};
use lotsfree_formulas::pagetables;
use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_units::{Bytes, Grouped};

use crate::huge::{self, Backing, LARGE};
use crate::rule::rule;
use crate::{Context, Cost, Finding, Outcome, Remedy, Rule, Severity, Skip, advice};

rule! {
    /// A large shared segment is in base pages and there is no huge page pool.
    ///
    /// # Sees
    /// A System V segment, or a shared mapping of a database server that forks, of 4 GiB or more, while
    /// every pool is empty.
    ///
    /// # Hurts
    /// Each process that touches the whole segment keeps 2 MiB of page tables for each GiB of it, for as
    /// long as it lives; reclaim may look at and swap out every page of it, and each page takes an entry of
    /// the TLB. From 16 GiB and a hundred sessions on the page tables alone are gigabytes.
    ///
    /// # Remedies
    /// A pool as large as the segments, a memlock limit to match, a restart.
    ///
    /// # False alarms
    /// SAP HANA must run without a pool. Oracle with automatic memory management has no segment but files
    /// in /dev/shm: see `amm-blocks-hugepages`. With few processes only the TLB gains.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/hugetlbpage.rst`; R. Egner, "MEMORY_TARGET (SGA_TARGET) or HugePages"
    /// (2010): worth it from an SGA of 16 GB and 100 sessions on; measured: 2,123 kB per GiB and process
    /// with 4 KiB pages, 81 kB with 2 MiB.
    pub NoHugepagesForBigShm = "no-hugepages-for-big-shm" in HugePages
}

/// Page tables at full touch from this share of memory on are worth a warning; half of where
/// `pagetable-bloat` begins.
const NOTICEABLE: f64 = 0.01;

impl Rule for NoHugepagesForBigShm {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let size = huge::default_size(cx)?;
        let pools = huge::filled(cx)?;
        // A pool of another size that is in use (1 GiB pages of virtual machines) is no use to a segment.
        if pools.iter().any(|pool| pool.size == size || huge::promised(pool) == 0) {
            return Err(Skip::because("there is a huge page pool: pool-unused and pool-too-small judge it"));
        }
        let segments = huge::segments(cx)?;
        let mut large = segments.iter().filter(|s| s.backing == Backing::Base && s.size >= LARGE);
        let Some(segment) = large.next() else { return Ok(Vec::new()) };
        advice::huge_pool_allowed(cx).map_err(Skip::because)?;
        let total = cx.total()?;
        let page = cx.now().host.page_size;
        let full = pagetables::saving(segment.size, segment.mappers, page);
        let severity = if segment.size >= WORTH_IT_SGA && segment.mappers > WORTH_IT_SESSIONS {
            Severity::High
        } else if full.share_of(total) >= NOTICEABLE {
            Severity::Warning
        } else {
            Severity::Info
        };
        let title = format!(
            "{} ({}) is in base pages, mapped {}, and there is no huge page pool{}",
            segment.label,
            segment.size,
            huge::times(segment.mappers),
            if pools.is_empty() { String::new() } else { format!(" of {} pages", huge::page_name(size)) }
        );
        let each = pagetables::saving(segment.size, 1, page);
        let mut finding = Finding::new(Self::ID, severity, title, cost(cx, full));
        finding
            .because(
                segment
                    .evidence()
                    .against(format!("at least {LARGE}"), "8 MiB of page tables for each process"),
            )
            .because_all(large.take(3).map(huge::Segment::evidence))
            .because(cx.saw_mem(m::HugePages_Total))
            .note(format!(
                "{} / {} x {:#} = {each} of page tables for each process that touches all of it, x {} = \
                 {full}.",
                segment.size,
                page.pmd_huge(),
                page.bytes(),
                Grouped(segment.mappers)
            ));
        finding.because_if(cx.mem(m::PageTables).is_ok().then(|| cx.saw_mem(m::PageTables)));
        let advice = advice::nr_hugepages(cx)?;
        finding.note(format!("{} proposed: {}.", huge::count(advice.value), advice.because));
        if advice.value > 0 {
            finding.remedy(create_pool(cx, size, advice.value));
        }
        if segment.shmid.is_none() {
            finding.note(
                "The size is what one process has touched so far, a lower bound. PostgreSQL needs no \
                 memlock limit for it, but huge_pages = try or on.",
            );
        }
        Ok(vec![finding])
    }
}

/// What the page tables cost; `full` is their size once every process has touched the whole segment.
fn cost(cx: &Context<'_>, full: Bytes) -> Cost {
    match cx.mem(m::PageTables) {
        Ok(tables) => huge::cost(
            cx,
            tables.min(full),
            format!("page tables at most now, {full} once every process has touched it all"),
        ),
        Err(_) => huge::cost(cx, full, "page tables once every process has touched it all"),
    }
}

fn create_pool(cx: &Context<'_>, size: Bytes, pages: u64) -> Remedy {
    let pool = HugePool { size, ..HugePool::default() };
    let bytes = size.times(pages);
    let remedy = huge::resize(cx, &pool, pages, "Create a huge page pool for the segments").risk(format!(
        "{bytes} are lost to everything else at once. A host that has run for long gives fewer pages \
             than asked without an error (read the total back; boot with hugepages={pages}), and may swap \
             meanwhile."
    ));
    huge::adopted(cx, remedy)
}
