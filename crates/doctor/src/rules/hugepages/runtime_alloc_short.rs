use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_settings::NR_HUGEPAGES;
use lotsfree_units::{Bytes, Grouped};

use crate::huge;
use crate::pool_requests::{Request, requests, short};
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// The huge page pool has fewer pages than were asked for.
    ///
    /// # Sees
    /// `vm.nr_hugepages` of the sysctl files, or `hugepages=` of the kernel command line, above what the
    /// pool has (without surplus), while `htlb_buddy_alloc_fail` in `/proc/vmstat` shows that the kernel
    /// failed to find pages; or that counter growing between two samples.
    ///
    /// # Hurts
    /// A huge page needs a whole aligned block of free or movable memory. A host that has run for a while
    /// has too few, the kernel stops at the first failure, and `sysctl` still reports success. One page too
    /// few and a segment falls back to base pages as a whole.
    ///
    /// # Remedies
    /// Compact and write the number again; reserve at boot; stop what fragments or fills memory first.
    ///
    /// # False alarms
    /// A pool that was made smaller on purpose never failed to allocate: `htlb_buddy_alloc_fail` is 0 then,
    /// and the rule is quiet. Pages of 1 GiB are not counted there.
    ///
    /// # References
    /// mm/hugetlb.c:set_max_huge_pages and alloc_pool_huge_folio (6.12); openshift
    /// cluster-node-tuning-operator #279; SPDK #702 (3738 of 4096).
    pub RuntimeAllocShort = "runtime-alloc-short" in HugePages
}

impl Rule for RuntimeAllocShort {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let pools = cx.huge_pools()?;
        let size = huge::default_size(cx)?;
        let failed = cx.vm(v::htlb_buddy_alloc_fail);
        let growing = cx.rate(&[v::htlb_buddy_alloc_fail]).ok().filter(|rate| rate.total > 0);
        match (short(cx, &pools, size), growing) {
            (Some((request, pool, missing)), _) => Ok(vec![shortage(cx, &request, &pool, missing)]),
            (None, Some(rate)) => {
                let title =
                    format!("the kernel failed {} times to find a huge page for a pool", Grouped(rate.total));
                let cost = Cost::risk(
                    "a mapping that was to have huge pages gets ENOMEM, or SIGBUS when it is touched",
                );
                let mut finding = Finding::new(Self::ID, Severity::Warning, title, cost);
                finding
                    .sure(cx.rate_confidence())
                    .because(cx.saw_rate(&[v::htlb_buddy_alloc_fail], &rate))
                    .because_all(free_blocks(cx, size));
                compact(&mut finding);
                Ok(vec![finding])
            }
            (None, None) => match failed {
                Ok(_) => Ok(Vec::new()),
                Err(skip)
                    if requests(cx, size).is_empty() && pools.iter().all(|pool| pool.overcommit == 0) =>
                {
                    // Nobody asked for a pool: nothing can be short, provided that the settings were read.
                    match cx.now().sysctl.number(NR_HUGEPAGES) {
                        Some(0) => Err(Skip::because("nobody asked for huge pages")),
                        _ => Err(skip),
                    }
                }
                Err(skip) => Err(skip),
            },
        }
    }
}

fn shortage(cx: &Context<'_>, request: &Request, pool: &HugePool, missing: u64) -> Finding {
    let have = pool.total.saturating_sub(pool.surplus);
    let bytes = request.size.times(missing);
    let candidates = huge::candidates(cx, request.size).unwrap_or_default();
    let left_out = candidates.first().filter(|segment| segment.size.units_of(pool.size) > pool.idle());
    let severity = if left_out.is_some() { Severity::High } else { Severity::Warning };
    let title = format!(
        "the pool of {} pages has {} of the {} that were asked for",
        huge::page_name(request.size),
        Grouped(have),
        Grouped(request.pages)
    );
    let cost = match left_out {
        Some(segment) => format!("{} ({}) does not fit and is in base pages", segment.label, segment.size),
        None => "a segment sized for the whole pool will not fit at the next start".to_owned(),
    };
    let mut finding = Finding::new(
        RuntimeAllocShort::ID,
        severity,
        title,
        Cost { bytes: Some(bytes), ..Cost::risk(format!("{bytes} of huge pages are missing: {cost}")) },
    );
    finding
        .sure(if cx.vm(v::htlb_buddy_alloc_fail).is_ok_and(|n| n > 0) {
            Confidence::Likely
        } else {
            Confidence::Possible
        })
        .because(Evidence::new(&request.file, "huge pages asked for", Grouped(request.pages)))
        .because_all(huge::saw_pool(cx, pool))
        .because(cx.saw_vm(v::htlb_buddy_alloc_fail))
        .because_all(free_blocks(cx, request.size))
        .because_all(left_out.map(huge::Segment::evidence));
    if cx.vm(v::htlb_buddy_alloc_fail).is_err() || request.size > cx.now().host.page_size.pmd_huge() {
        finding.note("That the pool was made smaller on purpose cannot be ruled out.");
    }
    let pages = request.pages;
    let again = if huge::default_size(cx) == Ok(request.size) {
        format!("sysctl -w vm.nr_hugepages={pages}")
    } else {
        format!("echo {pages} > {}/nr_hugepages", huge::directory(request.size))
    };
    let boot_size = match request.size.as_kib() {
        kib if kib % (1 << 20) == 0 => format!("{}G", kib >> 20),
        kib => format!("{}M", kib >> 10),
    };
    finding
        .remedy(
            Remedy::new("Compact memory, ask again, and read the number back")
                .run("echo 1 > /proc/sys/vm/compact_memory")
                .run(again)
                .run(format!("cat {}/nr_hugepages", huge::directory(request.size)))
                .risk(
                    "Compaction and reclaim take seconds to minutes of a CPU, and may swap out processes; \
                     repeat, also where the number does not rise at once: the kernel puts compaction off after \
                     a failure, and the fifth try may find what the first did not.",
                )
                .sets(setting(cx, request), pages),
        )
        .remedy(
            Remedy::new("Reserve the pages at boot, while memory is whole")
                .keep("kernel command line", format!("hugepagesz={boot_size} hugepages={pages}"))
                .risk("A number too large for the host leaves it unable to boot.")
                .restart("the host"),
        )
        .note("sysctl and echo report success whatever the kernel found: only the number read back counts.");
    finding
}

/// The name of the number that the pool is resized with.
fn setting(cx: &Context<'_>, request: &Request) -> String {
    match huge::default_size(cx) {
        Ok(size) if size == request.size => NR_HUGEPAGES.to_owned(),
        _ => format!("{}/nr_hugepages", huge::directory(request.size)),
    }
}

fn compact(finding: &mut Finding) {
    finding
        .remedy(
            Remedy::new("Compact memory")
                .run("echo 1 > /proc/sys/vm/compact_memory")
                .risk("Takes seconds to minutes of a CPU."),
        )
        .note(
            "Surplus pages (vm.nr_overcommit_hugepages) are found when they are needed: a persistent pool \
             is safer.",
        );
}

/// Free blocks that a huge page fits into.
fn free_blocks(cx: &Context<'_>, size: Bytes) -> Option<Evidence> {
    let pages = cx.now().host.page_size.pages(size);
    let zones = cx.now().buddy.as_deref().filter(|_| pages.is_power_of_two())?;
    let order = pages.trailing_zeros() as usize;
    let largest = zones.iter().map(|zone| zone.blocks.len()).max()?;
    let blocks: u64 = zones.iter().map(|zone| zone.pages_from(order) / pages).sum();
    (order < largest).then(|| {
        Evidence::new(
            "/proc/buddyinfo",
            format!("free blocks of order {order} and above"),
            huge::count(blocks),
        )
        .against("as many as pages are missing", "the rest has to come from compaction")
    })
}
