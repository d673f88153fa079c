use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::sysctl;
use lotsfree_settings::NR_HUGEPAGES;
use lotsfree_units::{Bytes, Grouped};

use crate::huge;
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

/// A number of pages that somebody asked for.
struct Request {
    size: Bytes,
    pages: u64,
    file: String,
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
                let finding = Finding::new(Self::ID, Severity::Warning, title, cost)
                    .sure(cx.rate_confidence())
                    .because(cx.saw_rate(&[v::htlb_buddy_alloc_fail], &rate))
                    .because_all(free_blocks(cx, size));
                Ok(vec![compact(finding)])
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

/// The first request that its pool falls short of, the pool, and how many pages are missing. A shortfall is
/// not one if no allocation ever failed: then somebody made the pool smaller.
fn short(cx: &Context<'_>, pools: &[HugePool], default: Bytes) -> Option<(Request, HugePool, u64)> {
    let failed = cx.vm(v::htlb_buddy_alloc_fail);
    // More than there is of memory was never meant (page-size-mixup looks into it).
    let total = cx.total().ok();
    let sane = |request: &Request| total.is_none_or(|total| request.size.times(request.pages) <= total);
    requests(cx, default).into_iter().filter(sane).find_map(|request| {
        let pool = pools.iter().find(|pool| pool.size == request.size)?;
        let missing = request.pages.saturating_sub(pool.total.saturating_sub(pool.surplus));
        // Gigantic pages come from boot memory or alloc_contig_range, which that counter does not see.
        let gigantic = request.size > cx.now().host.page_size.pmd_huge();
        (missing > 0 && (gigantic || failed != Ok(0))).then_some((request, *pool, missing))
    })
}

/// Where more pages of `pool`'s size were asked for than it has, if they were: it is then not to be made
/// smaller.
pub(super) fn asked_for_more(cx: &Context<'_>, pool: &HugePool) -> Option<String> {
    let (request, short, _) = short(cx, &[*pool], huge::default_size(cx).ok()?)?;
    (short.size == pool.size).then(|| {
        format!(
            "No release is proposed: {} asks for {}, more than there are, and a database that insists on \
             them may not have started for that (see runtime-alloc-short).",
            request.file,
            huge::count(request.pages)
        )
    })
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
    )
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
        finding = finding.note("That the pool was made smaller on purpose cannot be ruled out.");
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
                     repeat after a minute as long as the number still rises.",
                )
                .sets(setting(cx, request), pages),
        )
        .remedy(
            Remedy::new("Reserve the pages at boot, while memory is whole")
                .keep("kernel command line", format!("hugepagesz={boot_size} hugepages={pages}"))
                .risk("A number too large for the host leaves it unable to boot.")
                .restart("the host"),
        )
        .note("sysctl and echo report success whatever the kernel found: only the number read back counts.")
}

/// The name of the number that the pool is resized with.
fn setting(cx: &Context<'_>, request: &Request) -> String {
    match huge::default_size(cx) {
        Ok(size) if size == request.size => NR_HUGEPAGES.to_owned(),
        _ => format!("{}/nr_hugepages", huge::directory(request.size)),
    }
}

fn compact(finding: Finding) -> Finding {
    finding
        .remedy(
            Remedy::new("Compact memory")
                .run("echo 1 > /proc/sys/vm/compact_memory")
                .risk("Takes seconds to minutes of a CPU."),
        )
        .note(
            "Surplus pages (vm.nr_overcommit_hugepages) are found when they are needed: a persistent pool \
             is safer.",
        )
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

/// What the sysctl files and the command line ask for; the files, applied later, win.
fn requests(cx: &Context<'_>, default: Bytes) -> Vec<Request> {
    let files = &cx.now().sysctl_files;
    let file = sysctl::winner(files, NR_HUGEPAGES).and_then(|setting| {
        let file = format!("/{} line {}", setting.file, setting.line);
        Some(Request { size: default, pages: setting.value.parse().ok()?, file })
    });
    let mut found: Vec<Request> = file.into_iter().collect();
    let cmdline = cx.now().host.cmdline.as_deref().unwrap_or_default();
    let mut size = default;
    for word in cmdline.split_ascii_whitespace() {
        match word.split_once('=') {
            Some(("hugepagesz", text)) => size = text.parse().unwrap_or(default),
            Some(("hugepages", text)) if found.iter().all(|request| request.size != size) => {
                // Either one number, or `node:number` joined by commas.
                let part = |part: &str| part.rsplit(':').next().and_then(|pages| pages.parse::<u64>().ok());
                let pages = text.split(',').filter_map(part).fold(0, u64::saturating_add);
                found.push(Request { size, pages, file: "/proc/cmdline".to_owned() });
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use lotsfree_snapshot::{Observation, Snapshot};

    use super::*;

    #[test]
    fn the_command_line_names_sizes_before_numbers_and_files_win() {
        let mut now = Snapshot::default();
        now.host.cmdline = Some("ro hugepages=64 hugepagesz=1G hugepages=0:2,1:3 quiet".to_owned());
        let observation = Observation::instant("test", now);
        let found = requests(&Context::new(&observation), Bytes::mib(2));
        let found: Vec<_> = found.iter().map(|r| (r.size, r.pages)).collect();
        assert_eq!(found, [(Bytes::mib(2), 64), (Bytes::gib(1), 5)]);

        let mut now = observation.now;
        now.sysctl_files.push(sysctl::SysctlSetting {
            file: "etc/sysctl.conf".to_owned(),
            line: 3,
            name: NR_HUGEPAGES.to_owned(),
            value: "100".to_owned(),
        });
        let observation = Observation::instant("test", now);
        let found = requests(&Context::new(&observation), Bytes::mib(2));
        let found: Vec<_> = found.iter().map(|r| (r.size, r.pages, r.file.as_str())).collect();
        let file = "/etc/sysctl.conf line 3";
        assert_eq!(found, [(Bytes::mib(2), 100, file), (Bytes::gib(1), 5, "/proc/cmdline")]);
    }
}
