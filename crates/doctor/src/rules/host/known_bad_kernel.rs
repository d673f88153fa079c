use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::kernel_log::report::Trigger;
use lotsfree_kernel_files::file::thp::Thp;
use lotsfree_settings::SWAPPINESS;

use crate::kernel_release::Release;
use crate::known_bad::{EARLY_KILL, RHEL6_SWAPPINESS, Stream, THP_STORM, affected};
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
};

rule! {
    /// The kernel has a known memory bug that matters to what runs here.
    ///
    /// # Sees
    /// The release of the running kernel, or that of a report in its log, compared as package managers do,
    /// with a table of bugs, the builds that have them and the builds that have the fix; and whether the
    /// host has what the bug needs: several NUMA nodes and transparent huge pages, `vm.swappiness = 0`,
    /// Redis on arm64.
    ///
    /// # Hurts
    /// - SLES 15 SP5 to SP7 before February 2026 and RHEL 9.6 to 9.8 before the fixed builds: on several NUMA
    ///   nodes, allocating a transparent huge page reclaims the local node although others are free. Tasks
    ///   stand in direct reclaim, one node is drained of its page cache.
    /// - RHEL 6, 2.6.32-303 to before -642: with `vm.swappiness = 0` the OOM killer runs although there are
    ///   free swap and page cache.
    /// - Ubuntu 16.04, 4.4.0-58 to before -62: the OOM killer runs although most of memory is page cache.
    /// - arm64, 4.5 to before 5.10: a page that an allocator gave back with MADV_FREE and wrote again is lost
    ///   when the process forks and memory is reclaimed. The child that saves Redis' data writes zeros into
    ///   the file.
    ///
    /// # Remedies
    /// The fixed kernel. Until it is booted: no direct reclaim and no khugepaged for huge pages;
    /// `vm.swappiness` of at least 1; no saving by fork.
    ///
    /// # False alarms
    /// Builds are compared within their own stream only (an Oracle UEK or a self-built kernel of the same
    /// version is not meant). Fixes to arm64 were carried to long-term branches and to distributions'
    /// kernels: Redis 6.2 and later test for the bug when they start and refuse to run, so a Redis that does
    /// run there was told to ignore it or has a fixed kernel.
    ///
    /// # References
    /// SUSE KB 000022286 (February 2026) and SAP note 2131662; Red Hat's kernels 5.14.0-570.127.1.el9_6 and
    /// 5.14.0-687.13.1.el9_8; Red Hat solution 1149413 and Pythian, "vm.swappiness and OOM on RHEL 6";
    /// Launchpad bug 1655842; commit ff1712f953e2 ("arm64: pgtable: Ensure dirty bit is preserved across
    /// pte_wrprotect()") and redis pull request 8224.
    pub KnownBadKernel = "known-bad-kernel" in Host
}

impl Rule for KnownBadKernel {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let kernel = &cx.now().host.kernel;
        let mut findings: Vec<Finding> = early_kill(cx).into_iter().collect();
        if !kernel.is_known() {
            let missing = Err(Skip::missing("/proc/sys/kernel/osrelease"));
            return if findings.is_empty() { missing } else { Ok(findings) };
        }
        // What only one of the bugs needs is not asked of other kernels.
        let mut unknown = Vec::new();
        for outcome in [thp_storm(cx, &kernel.release), rhel6_swappiness(cx, &kernel.release), arm64_fork(cx)]
        {
            match outcome {
                Ok(found) => findings.extend(found),
                Err(Skip::Unknown(missing)) => unknown.extend(missing),
                Err(_) => {}
            }
        }
        if findings.is_empty() && !unknown.is_empty() { Err(Skip::Unknown(unknown)) } else { Ok(findings) }
    }
}

fn release_seen(release: &str) -> Evidence {
    Evidence::new("/proc/sys/kernel/osrelease", "release", release)
}

fn update(stream: &Stream) -> Remedy {
    let title = match stream.fixed_release() {
        Some(fixed) => format!("Update the kernel to {fixed} or later and reboot"),
        None => format!(
            "Update to a kernel of {} with the fix, or of the next minor release, and reboot",
            stream.name
        ),
    };
    Remedy::new(title).risk("The risks of any kernel update of the distribution.").restart("the host")
}

const DEFRAG: &str = "/sys/kernel/mm/transparent_hugepage/defrag";
const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag";

fn thp_storm(cx: &Context<'_>, release: &str) -> Result<Option<Finding>, Skip> {
    let Some(stream) = affected(THP_STORM, release) else { return Ok(None) };
    let nodes = cx.several_nodes()?.len();
    let thp = cx.thp()?;
    if &*thp.enabled.selected == "never" {
        return Ok(None);
    }
    let Some(workaround) = allocate_without_reclaim(thp) else { return Ok(None) };
    let (defrag, by_khugepaged, because) = advice::thp_defrag_on_bad_kernel();
    let scan = cx.rate(crate::DIRECT_SCAN).ok().filter(|rate| rate.total > 0);
    let cost = match &scan {
        Some(scan) => Cost::risk(format!(
            "tasks scan {:.0} pages/s themselves; with huge pages on {nodes} nodes this bug is a likely cause",
            scan.per_second
        )),
        None => Cost::risk(
            "once a node fills up, each huge page that is wanted on it reclaims there although other nodes are free",
        ),
    };
    let fixed = stream.fixed_release();
    let bound = fixed.map_or_else(|| "a build with the fix".to_owned(), |fixed| format!("{fixed} or later"));
    let mut finding = Finding::new(
        KnownBadKernel::ID,
        if scan.is_some() { Severity::High } else { Severity::Warning },
        format!(
            "kernel {release} reclaims a node for transparent huge pages while other nodes are free (fixed in {bound}), and this host has {nodes} nodes"
        ),
        cost,
    );
    finding
        .sure(match (&scan, stream.fixed) {
            (_, None) => Confidence::Possible,
            (Some(_), Some(_)) => Confidence::Likely,
            (None, Some(_)) => Confidence::Certain,
        })
        .because(
            release_seen(release).of(stream.name).against(bound, "SUSE KB 000022286, Red Hat kernel errata"),
        )
        .because(Evidence::new(
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "enabled",
            &thp.enabled.selected,
        ))
        .because(Evidence::new(DEFRAG, "defrag", &thp.defrag.selected).against(defrag, "SUSE KB 000022286"));
    if let Some(value) = thp.khugepaged("defrag") {
        finding.because(
            Evidence::new(KHUGEPAGED, "khugepaged/defrag", value).against(by_khugepaged, "SUSE KB 000022286"),
        );
    }
    finding.because_if(scan.as_ref().map(|scan| cx.saw_rate(crate::DIRECT_SCAN, scan)));
    finding
            .remedy(update(stream))
            .remedy(workaround)
            .forbid(DEFRAG, format!("kernel {release} must not reclaim for huge pages"))
            .note(because)
            .note("How to choose: the update mends it; the workaround is for the time until the reboot. saptune before 3.2.3 sets the workaround on every kernel: take it back after the update.");
    Ok(Some(finding))
}

/// The workaround for [`THP_STORM`]; `None` where it is set already.
fn allocate_without_reclaim(thp: &Thp) -> Option<Remedy> {
    let khugepaged = thp.khugepaged("defrag");
    let (defrag, by_khugepaged, _) = advice::thp_defrag_on_bad_kernel();
    let (defrag_ok, khugepaged_ok) = (&*thp.defrag.selected == defrag, khugepaged == Some(by_khugepaged));
    if defrag_ok && khugepaged_ok {
        return None;
    }
    let mut workaround = Remedy::new("Until then, allocate huge pages without reclaim")
        .risk("Fewer huge pages on a fragmented host. To be undone once the fixed kernel runs: it wants madvise and 1.");
    if !defrag_ok {
        workaround = workaround.sysfs(DEFRAG, defrag, Some(&thp.defrag.selected));
    }
    if !khugepaged_ok {
        let now = khugepaged.map(|value| value.to_string());
        workaround = workaround.sysfs(KHUGEPAGED, &by_khugepaged.to_string(), now.as_deref());
    }
    Some(workaround)
}

/// A kernel that kills too early, and a kill.
fn early_kill(cx: &Context<'_>) -> Option<Finding> {
    let log = cx.now().kernel_log.as_ref();
    let reports = log.map(|log| log.reports.as_slice()).unwrap_or_default();
    let killed = log.is_some_and(|log| !log.ooms.is_empty())
        || reports.iter().any(|report| report.trigger == Trigger::OomKiller);
    let releases = reports.iter().filter_map(|report| report.release.as_deref());
    let mut releases = releases.chain([&*cx.now().host.kernel.release]);
    let (release, stream) = releases.find_map(|release| Some((release, affected(EARLY_KILL, release)?)))?;
    let fixed = stream.fixed_release().unwrap_or_default();
    let mut finding = Finding::new(
        KnownBadKernel::ID,
        if killed { Severity::High } else { Severity::Warning },
        format!("kernel {release} has a known defect: it calls the OOM killer too early (fixed in {fixed})"),
        Cost::risk("processes are killed while most of memory is page cache"),
    );
    finding
        .sure(Confidence::Likely)
        .because(
            release_seen(release)
                .of(stream.name)
                .against(format!("{fixed} or later"), "Launchpad bug 1655842"),
        )
        .remedy(update(stream));
    Some(finding)
}

fn rhel6_swappiness(cx: &Context<'_>, release: &str) -> Result<Option<Finding>, Skip> {
    let Some(stream) = affected(RHEL6_SWAPPINESS, release) else { return Ok(None) };
    if cx.sysctl(SWAPPINESS)? != 0 || cx.mem(m::SwapTotal)? == lotsfree_units::Bytes::ZERO {
        return Ok(None);
    }
    let advice = advice::swappiness(cx);
    let fixed = stream.fixed_release().unwrap_or_default();
    let mut finding = Finding::new(
        KnownBadKernel::ID,
        Severity::High,
        format!(
            "kernel {release} calls the OOM killer with vm.swappiness = 0 although swap and page cache are free (fixed in {fixed})"
        ),
        Cost::risk("the process that is killed is usually the largest: the database"),
    );
    finding
        .sure(Confidence::Certain)
        .because(
            release_seen(release)
                .of(stream.name)
                .against(format!("{fixed} or later"), "Red Hat solution 1149413, Pythian"),
        )
        .because(cx.saw_sysctl(SWAPPINESS).against("at least 1", "Red Hat solution 1149413"))
        .because(cx.saw_mem(m::SwapFree))
        .remedy(
            Remedy::new("Let the kernel swap before it kills")
                .sysctl(cx, SWAPPINESS, advice.value)
                .risk("A little of what is idle goes to swap."),
        )
        .remedy(update(stream))
        .note(format!("{}: {}. {}", advice.value, advice.because, advice.contested));
    Ok(Some(finding))
}

/// MADV_FREE came with 4.5; the commit that mends fork is in 5.10.
const ARM64_SINCE: (u32, u32) = (4, 5);
const ARM64_FIXED: (u32, u32) = (5, 10);

fn arm64_fork(cx: &Context<'_>) -> Result<Option<Finding>, Skip> {
    let kernel = &cx.now().host.kernel;
    let version = (kernel.numbers.0, kernel.numbers.1);
    if version < ARM64_SINCE || version >= ARM64_FIXED {
        return Ok(None);
    }
    cx.processes()?;
    if !cx.runs(Workload::Redis) {
        return Ok(None);
    }
    // DirectMap4k is a line of x86, s390 and powerpc; a release without an architecture is told by it.
    match Release::parse(&kernel.release).arch {
        "aarch64" => {}
        "" if cx.mem_count(m::DirectMap4k).is_err() => {
            return Err(Skip::missing("the processor's architecture"));
        }
        _ => return Ok(None),
    }
    let release = &kernel.release;
    let mut finding = Finding::new(
        KnownBadKernel::ID,
        Severity::High,
        format!(
            "kernel {release} on arm64 can lose pages of a forked child (fixed in 5.10), and Redis saves its data from one"
        ),
        Cost::risk("zeros in the saved file, found when it is loaded"),
    );
    finding
        .sure(Confidence::Possible)
        .because(release_seen(release).against("5.10 or later", "commit ff1712f953e2, redis pull request 8224"))
        .remedy(
            Remedy::new("Update to a kernel with the fix and reboot")
                .risk("The risks of any kernel update.")
                .restart("the host"),
        )
        .remedy(
            Remedy::new("Until then, make Redis' own test decide: remove ignore-warnings ARM64-COW-BUG from redis.conf")
                .run("redis-cli config get ignore-warnings")
                .risk("Redis 6.2 and later then refuse to start on a kernel that has the bug.")
                .restart("Redis"),
        )
        .note(
            "Long-term branches and distributions have carried the fix back to older versions; the release \
             does not tell. A Redis of 6.2 or later that runs without ignore-warnings ARM64-COW-BUG has \
             tested this kernel and found it sound.",
        );
    Ok(Some(finding))
}
