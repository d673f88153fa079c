use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::huge::{self, STARTED};
use crate::rule::rule;
use crate::{
    Confidence, Context, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
};
use crate::{memlock, pool_requests};

rule! {
    /// A huge page pool exists and nobody uses a page of it.
    ///
    /// # Sees
    /// A pool whose `HugePages_Free` equals `HugePages_Total` while `HugePages_Rsvd` is 0, for each page
    /// size. Where a database runs, only after it has been up for ten minutes, or once there is a segment
    /// that the pool is up to a tenth too small for: it gets all of its huge pages or none.
    ///
    /// # Hurts
    /// The whole pool is lost: nothing else can use it, not even when the host swaps. If a database was
    /// meant to use it, it costs twice: the segment is in base pages as well, with page tables of 2 MiB per
    /// GiB and process. Oracle falls back silently unless told `use_large_pages=only`.
    ///
    /// # Remedies
    /// Find why the database passed it over (the pool a page too small, its memlock limit, AMM, the page
    /// size, its own setting) and restart it; where no program wants the pool, release it.
    ///
    /// # False alarms
    /// Free pages with reservations belong to an instance that has not touched them: 3000 in all, 2601
    /// free, 2290 reserved are in use. A standby node and a host of virtual machines hold pages for what is
    /// not started yet; the severity is lowered there and the finding says so.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/hugetlbpage.rst`; Oracle MOS 361468.1 and 401749.1; R. Egner,
    /// "MEMORY_TARGET (SGA_TARGET) or HugePages" (2010), whose second case is 3000 of 3000 free.
    pub PoolUnused = "pool-unused" in HugePages
}

/// A tenth of memory is what a warning about free memory usually fires at.
const HIGH: f64 = 0.10;
/// Less than this is a rounding matter on any host.
const NOTICEABLE: f64 = 0.01;
/// Nor does anybody miss a smaller pool, unless it is a tenth of memory.
const SMALL: Bytes = Bytes::mib(64);

impl Rule for PoolUnused {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let pools = huge::filled(cx)?;
        if pools.is_empty() {
            return Err(Skip::because("no huge page pool"));
        }
        if cx.runs(Workload::Hana) {
            return Err(Skip::because("SAP HANA runs: pool-on-hana judges its pool"));
        }
        let age = huge::database_age(cx);
        let starting = age.is_some_and(|(_, seconds)| seconds < STARTED);
        let database = cx.workloads().iter().copied().find(|w| w.is_database());
        let purpose = huge::held_on_purpose(cx);
        let mut findings = Vec::new();
        for pool in pools.iter().filter(|pool| pool.free == pool.total && pool.reserved == 0) {
            let missed = huge::missed(cx, pool);
            if starting && missed.is_none() {
                continue;
            }
            let age = age.filter(|_| missed.is_none());
            let idle = pool.bytes();
            let share = huge::share(cx, idle);
            let severity = Severity::ladder(
                &[
                    (purpose.is_some() || idle < SMALL && share < HIGH, Severity::Info),
                    (cx.total().is_err(), Severity::Warning),
                    (share >= HIGH, Severity::High),
                    (share >= NOTICEABLE, Severity::Warning),
                ],
                Severity::Info,
            );
            let of_memory = cx.total().map(|total| format!(", {} of memory", Percent(idle.share_of(total))));
            let who = match database {
                _ if missed.is_some() => {
                    "and a segment that it was just too small for is in base pages".to_owned()
                }
                Some(database) => format!("although {} runs", database.name()),
                None if cx.processes().is_err() => "and these data do not say what runs".to_owned(),
                None => "and no known database runs".to_owned(),
            };
            let title = format!(
                "none of the {} of {} in the pool is used ({idle}{}), {who}",
                huge::count(pool.total),
                huge::page_name(pool.size),
                of_memory.unwrap_or_default()
            );
            let cost = huge::cost(cx, idle, "in a pool that nobody uses, and that nothing else may use");
            let mut finding = Finding::new(Self::ID, severity, title, cost);
            finding
                .sure(match () {
                    () if missed.is_some() => Confidence::Certain,
                    () if purpose.is_some() || (database.is_some() && age.is_none()) => Confidence::Possible,
                    () if cx.processes().is_err() => Confidence::Likely,
                    () => Confidence::Certain,
                })
                .because_all(huge::saw_pool(cx, pool));
            if let Some((database, seconds)) = age {
                finding.because(
                    Evidence::new("/proc/PID/stat", "start time", format!("{:.0} min ago", seconds / 60.0))
                        .of(database.name())
                        .against("at least 10 min", "time to open its segment"),
                );
            }
            add_remedies(&mut finding, cx, pool, database.is_some(), missed.as_ref());
            finding.note_if(purpose.as_ref().map(|purpose| format!("Perhaps meant so: {purpose}.")));
            if database.is_some() && age.is_none() && missed.is_none() {
                finding.note(
                    "How long the database has been up is not known: right after its start this is normal.",
                );
            }
            findings.push(finding);
        }
        Ok(findings)
    }
}

fn add_remedies(
    finding: &mut Finding,
    cx: &Context<'_>,
    pool: &HugePool,
    has_database: bool,
    missed: Option<&(huge::Segment, u64)>,
) {
    let wanted = huge::candidates(cx, pool.size).unwrap_or_default();
    let (mut reasons, blocked) = reasons(cx, pool, missed);
    finding.because_all(wanted.first().map(huge::Segment::evidence));
    for reason in reasons.drain(..) {
        finding.note(reason);
    }
    let needed: u64 = wanted.iter().map(|segment| segment.pages(pool.size)).sum();
    if blocked || (has_database && needed > 0) {
        let limits = huge::oldest_database(cx).map(|p| format!("grep locked /proc/{}/limits", p.stat.pid));
        let remedy = Remedy::new("Let the database use the pool: remove what keeps it out, then restart it");
        finding.remedy(
            limits
                .into_iter()
                .fold(remedy, Remedy::run)
                .risk(
                    "Oracle: use_large_pages=only makes a start that cannot have the pages fail, instead of \
                     falling back to base pages unnoticed.",
                )
                .restart("the database"),
        );
    }
    let (pages, because) = match advice::nr_hugepages(cx) {
        Ok(advice) if huge::default_size(cx) == Ok(pool.size) => (advice.value, advice.because),
        _ => (0, "nobody uses a page of this size".to_owned()),
    };
    let asked = pool_requests::asked_for_more(cx, pool);
    if cx.processes().is_err() {
        finding
            .remedy(
                Remedy::new("See who uses or asks for huge pages before the pool is made smaller")
                    .run("grep -H HugetlbPages /proc/[0-9]*/status | grep -v ' 0 kB'")
                    .risk("None: it only reads."),
            )
            .note(
                "A virtual machine, a DPDK program or a JVM that starts later may need the pool: it is released only where \
                 nobody asks for it.",
            );
    } else if pages > pool.total && missed.is_some() {
        let remedy = huge::resize(cx, pool, pages, "Make the pool as large as its segments need");
        finding.note(format!("{} proposed: {because}.", huge::count(pages))).remedy(
            huge::adopted(cx, remedy)
                .risk("The rest of memory gets smaller by as much; check that it suffices."),
        );
    } else if pages < pool.total && asked.is_none() {
        let title =
            if pages == 0 { "Release the pool" } else { "Make the pool as large as its segments need" };
        finding.note(format!("{} proposed: {because}.", huge::count(pages))).remedy(
            huge::resize(cx, pool, pages, title).risk(
                "Only free pages go; a program that wants huge pages later has to get them from fragmented \
                 memory, and may get fewer.",
            ),
        );
    }
    finding.note_if(asked);
}

/// What may have kept a database out of the pool, as far as the data show it; whether anything was found.
fn reasons(cx: &Context<'_>, pool: &HugePool, missed: Option<&(huge::Segment, u64)>) -> (Vec<String>, bool) {
    let (mut reasons, size) = (Vec::new(), pool.size);
    if let Some((segment, lacks)) = missed {
        reasons.push(format!(
            "Kept out by its size: {} needs {} and the pool has {}, {lacks} too few. A segment gets all of its huge pages \
             or none.",
            segment.label,
            huge::count(segment.size.units_of(size)),
            Grouped(pool.total)
        ));
    }
    for low in memlock::too_low(cx).unwrap_or_default().iter().take(2) {
        reasons.push(format!("Kept out by its limit: {} (see memlock-too-low).", low.text()));
    }
    if huge::mappings(cx).any(|(_, mapping)| mapping.file.starts_with("/dev/shm/ora_")) {
        reasons.push(
            "Oracle runs with automatic memory management, whose files in /dev/shm cannot be huge pages \
             (see amm-blocks-hugepages)."
                .to_owned(),
        );
    }
    if huge::default_size(cx).is_ok_and(|default| default != size) {
        reasons.push(format!(
            "{} is not the default size: a program gets these pages only if it names the size (SHM_HUGE_*, \
             MAP_HUGE_*, PostgreSQL huge_page_size, a hugetlbfs mount with pagesize=).",
            huge::page_name(size)
        ));
    }
    let blocked = !reasons.is_empty();
    if !blocked && cx.workloads().iter().any(|w| w.is_database()) {
        reasons.push(
            "Check in this order: the memlock limit of the running process (not limits.conf), AMM \
             (memory_target), the page size, and the database's own setting (Oracle use_large_pages, \
             PostgreSQL huge_pages, MySQL large-pages)."
                .to_owned(),
        );
    }
    (reasons, blocked)
}
