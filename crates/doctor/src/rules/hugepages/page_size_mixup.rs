use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::sysctl;
use lotsfree_settings::NR_HUGEPAGES;
use lotsfree_units::{Bytes, Grouped};

use crate::huge;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// The huge pages that were reserved have another size than the programs ask for.
    ///
    /// # Sees
    /// A pool of another size than `Hugepagesize` (the default) with all its pages idle, while the default
    /// size has none; or a configured `vm.nr_hugepages` that fits into memory in pages of 2 MiB but not in
    /// the default size of this host.
    ///
    /// # Hurts
    /// `SHM_HUGETLB` and `MAP_HUGETLB` without a size mean the default size: a pool of 1 GiB pages is no
    /// use to them, and `HugePages_Total` shows 0 although gigabytes are gone. With base pages of 64 KiB
    /// (arm64) a huge page has 512 MiB: a number copied from an x86 host asks for 256 times as much.
    ///
    /// # Remedies
    /// Reserve the default size, or name the size: PostgreSQL `huge_page_size`, `SHM_HUGE_1GB`,
    /// `-XX:LargePageSizeInBytes`, a hugetlbfs mount with `pagesize=`, `default_hugepagesz=` at boot.
    ///
    /// # False alarms
    /// Virtual machines and DPDK name the size, and then pages of the pool are in use: the rule is quiet.
    ///
    /// # References
    /// `Documentation/admin-guide/kernel-parameters.txt` (`default_hugepagesz`, `hugepagesz`);
    /// fs/proc/meminfo.c shows the default size only; numactl #147 (`numastat -p` takes all for the default
    /// size).
    pub PageSizeMixup = "page-size-mixup" in HugePages
}

/// The usual size on x86-64 and arm64 with 4 KiB pages, which numbers in guides are meant in.
const USUAL: Bytes = Bytes::mib(2);

impl Rule for PageSizeMixup {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let default = huge::default_size(cx)?;
        let mut findings: Vec<Finding> = copied_number(cx, default).into_iter().collect();
        let Some(pools) = cx.now().huge_pools.as_deref() else {
            return match findings.is_empty() {
                true => Err(Skip::missing("/sys/kernel/mm/hugepages")),
                false => Ok(findings),
            };
        };
        let none = pools.iter().find(|pool| pool.size == default).is_none_or(|pool| pool.total == 0);
        let idle = |pool: &&HugePool| {
            pool.size != default && pool.total > 0 && pool.free == pool.total && pool.reserved == 0
        };
        if none {
            findings.extend(pools.iter().filter(idle).map(|pool| wrong_size(cx, pool, default)));
        }
        Ok(findings)
    }
}

fn wrong_size(cx: &Context<'_>, pool: &HugePool, default: Bytes) -> Finding {
    let (size, wanted) = (huge::page_name(pool.size), huge::page_name(default));
    let candidates = huge::candidates(cx, default).unwrap_or_default();
    let severity = if candidates.is_empty() { Severity::Warning } else { Severity::High };
    let title = format!(
        "{} of {size} are reserved ({}) and idle; programs that name no size ask for {wanted}, of which \
         there are none",
        huge::count(pool.total),
        pool.bytes()
    );
    let pages = pool.bytes().units_of(default);
    let mut finding = Finding::new(
        PageSizeMixup::ID,
        severity,
        title,
        huge::cost(cx, pool.bytes(), "in pages that nobody asks for"),
    );
    finding
        .sure(if candidates.is_empty() { Confidence::Possible } else { Confidence::Likely })
        .because(cx.saw_mem(m::Hugepagesize))
        .because_all(huge::saw_pool(cx, pool))
        .because(cx.saw_mem(m::HugePages_Total))
        .because_all(candidates.iter().take(3).map(huge::Segment::evidence))
        .remedy(
            Remedy::new(format!("Name the size {size} in the program's settings"))
                .keep("postgresql.conf", format!("huge_page_size = {}kB", pool.size.as_kib()))
                .risk(
                    "Each segment is rounded up to whole pages of that size; Oracle takes the default size \
                     only.",
                )
                .restart("the program"),
        );
    if !candidates.is_empty() {
        finding.note(format!(
            "In pages of {wanted} the same memory is {} pages: release the others first ({}/nr_hugepages).",
            Grouped(pages),
            huge::directory(pool.size)
        ));
    }
    finding.note(
        "HugePages_* in /proc/meminfo show the default size only; Hugetlb there, and \
         /sys/kernel/mm/hugepages, have all sizes.",
    );
    finding
}

/// A `vm.nr_hugepages` that was worked out for 2 MiB pages.
fn copied_number(cx: &Context<'_>, default: Bytes) -> Option<Finding> {
    let total = cx.total().ok()?;
    let setting = sysctl::winner(&cx.now().sysctl_files, NR_HUGEPAGES)?;
    let pages: u64 = setting.value.parse().ok()?;
    let (here, there) = (default.times(pages), USUAL.times(pages));
    if default == USUAL || here <= total || there > total {
        return None;
    }
    let size = huge::page_name(default);
    let title = format!(
        "vm.nr_hugepages = {pages} asks for {here} on a host of {total}: huge pages have {size} here, not 2 \
         MiB",
    );
    let right = there.units_of(default);
    let mut finding = Finding::new(
        PageSizeMixup::ID,
        Severity::High,
        title,
        Cost::risk("at boot the kernel takes all the memory it can get for the pool"),
    );
    finding
        .sure(Confidence::Likely)
        .because(Evidence::new(
            format!("/{} line {}", setting.file, setting.line),
            NR_HUGEPAGES,
            Grouped(pages),
        ))
        .because(cx.saw_mem(m::Hugepagesize))
        .because(cx.saw_mem(m::MemTotal))
        .note(format!("{} pages of 2 MiB are {there}: in pages of {size} that is {right}.", Grouped(pages)))
        .remedy(
            Remedy::new("Correct the number in the file before the next boot")
                .keep(&format!("/{}", setting.file), format!("vm.nr_hugepages = {right}"))
                .risk(
                    "Check it against the segments: rounding up to such pages can cost up to one page for \
                     each.",
                )
                .restart("the database, once the pool is there")
                .sets(NR_HUGEPAGES, right),
        );
    Some(finding)
}
