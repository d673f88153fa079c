use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_settings::NUMA_BALANCING_PROMOTE_RATE_LIMIT;
use lotsfree_units::Percent;

use crate::remedies::DROP_IN;
use crate::rule::rule;
use crate::{Context, Cost, DEMOTED, Evidence, Finding, Outcome, PROMOTED, Remedy, Rule, Severity};

rule! {
    /// Pages go round between fast and slow memory.
    ///
    /// # Sees
    /// Over two samples `pgpromote_success` and `pgdemote_*` both grow, and the smaller of the two, which is
    /// what goes round, moves more than 1 % of memory per minute.
    ///
    /// # Hurts
    /// The hot set is larger than the fast memory. Each page that is promoted pushes another one down that is
    /// wanted again soon. Every turn costs two copies, two flushes of the TLBs of all CPUs that map it, and a
    /// page fault to notice it.
    ///
    /// # Remedies
    /// A lower rate of promotion, so that only what is much hotter moves; protection (`memory.low`) for the
    /// group that needs the fast memory; less in it.
    ///
    /// # False alarms
    /// Tiering works by moving pages, and after a change of load it moves many for minutes. Below 1 % per
    /// minute nothing is said. Promotion without demotion fills a node that has room.
    ///
    /// # References
    /// mm/vmscan.c:demote_folio_list, mm/migrate.c:migrate_misplaced_folio,
    /// kernel/sched/fair.c:numa_promotion_rate_limit (6.12); `Documentation/admin-guide/sysctl/kernel.rst`,
    /// numa_balancing_promote_rate_limit_MBps.
    pub TierChurn = "tier-churn" in Numa
}

/// Share of memory that goes round per minute: at this rate all of it would once in under two hours.
const SHARE_PER_MINUTE: f64 = 0.01;
/// Share of memory per minute at which it is the main thing that the host does.
const HIGH: f64 = 0.1;
/// Seconds to move one page: at least a fault and filling it (measured on 6.18: 1.07 us when populated in
/// bulk).
const MOVE_SECONDS: f64 = 1.07e-6;

impl Rule for TierChurn {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        cx.several_nodes()?;
        let up = cx.rate(PROMOTED)?;
        let down = cx.rate(DEMOTED)?;
        let total = cx.total()?;
        let round = up.per_second.min(down.per_second);
        let per_minute = cx.pages(1).scale(round * 60.0);
        let share = per_minute.share_of(total);
        if share <= SHARE_PER_MINUTE {
            return Ok(Vec::new());
        }
        let moved = up.per_second + down.per_second;
        let mut finding = Finding::new(
            Self::ID,
            if share >= HIGH { Severity::High } else { Severity::Warning },
            format!(
                "{per_minute} go round between fast and slow memory per minute ({} of memory)",
                Percent(share)
            ),
            Cost::stalled(
                moved * MOVE_SECONDS,
                format!("{moved:.0} pages/s moved at 1.07 us or more (measured for a bulk fault)"),
            ),
        );
        finding
            .sure(cx.rate_confidence())
            .because(cx.saw_rate(PROMOTED, &up).against(
                format!("{} of memory per minute, both ways", Percent(SHARE_PER_MINUTE)),
                "all of memory once in two hours",
            ))
            .because(cx.saw_rate(DEMOTED, &down));
        if let Ok(candidates) = cx.rate(&[v::pgpromote_candidate]) {
            finding.because(cx.saw_rate(&[v::pgpromote_candidate], &candidates));
        }
        for node in cx.nodes()?.iter().filter(|node| node.cpus.is_empty()) {
            let file = format!("/sys/devices/system/node/node{}/cpulist", node.id);
            finding.because(
                Evidence::new(file, "cpulist", "no CPUs: slow memory").of(format!("node {}", node.id)),
            );
        }
        const LIMIT: &str = NUMA_BALANCING_PROMOTE_RATE_LIMIT;
        // A quarter of what goes up now, so that only the hottest pages move.
        let limit = (cx.pages(1).scale(up.per_second / 4.0).0 >> 20).max(1);
        let mut remedy = Remedy::new("Promote fewer pages: only the hottest")
            .sysctl(cx, LIMIT, limit)
            .risk("Pages that become hot stay in slow memory for longer.");
        if cx.now().sysctl.text(LIMIT).is_none() {
            remedy = remedy.undo_with(format!("sysctl -w {LIMIT}=65536"));
        }
        finding
            .remedy(remedy)
            .remedy(
                Remedy::new("Protect the group whose memory has to be fast")
                    .run("systemctl set-property --runtime UNIT MemoryLow=SIZE")
                    .keep(DROP_IN, "MemoryLow=SIZE")
                    .undo_with("systemctl set-property --runtime UNIT MemoryLow=0")
                    .risk("Protected memory is not demoted either; the others go round more."),
            )
            .note(format!(
                "The limit is a quarter of the {:.0} MiB/s that go up now; the kernel's default is 65536.",
                cx.pages(1).scale(up.per_second).as_f64() / (1 << 20) as f64
            ))
            .note(
                "How to choose: if the hot set is larger than fast memory, no setting mends it; the limit \
                 only saves the copies.",
            );
        Ok(vec![finding])
    }
}
