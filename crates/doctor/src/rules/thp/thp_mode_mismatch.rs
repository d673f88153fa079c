use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_units::{Bytes, Grouped};

use crate::advice::Advice;
use crate::applications::{self, Application, Topic};
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
    thp,
};

rule! {
    /// The mode of transparent huge pages is not the one that the programs here are tested with.
    ///
    /// # Sees
    /// The word in brackets in `transparent_hugepage/enabled`, or in the file of the PMD size where that one
    /// decides (6.8 and later), against what the programs that run here ask for. `THP_enabled` in
    /// `/proc/PID/status` tells which of them opted out; `AnonHugePages` how much is in huge pages now.
    ///
    /// # Hurts
    /// With `always` every program gets huge pages, asked or not. A fault then clears 2 MiB instead of 4 KiB
    /// and may compact memory first, which shows in the slowest requests; khugepaged fills ranges of which
    /// only a few pages were touched (`max_ptes_none` is 511 of 512 by default). Where `never` was set from a
    /// list, programs that are built for huge pages lose speed: faults cost 3.2 times as much per byte and
    /// random reads 1.33 times (measured).
    ///
    /// # Remedies
    /// `madvise`, which serves each program that asks for itself; `always` for SQL Server and for MongoDB 8
    /// or later; `never` for SAP HANA before SLES 15.5 and RHEL 9.2. Programs have to be restarted, because
    /// huge pages that exist stay. One program can be exempted from `always` with
    /// `prctl(PR_SET_THP_DISABLE)`.
    ///
    /// # False alarms
    /// Batch and HPC hosts with few large heaps gain from `always`. A program that opted out of huge pages
    /// by itself (Redis since 6.2) is not harmed by `always`, nor is Redis on 5.8 or later, where a save
    /// copies no more for it. MongoDB's version cannot be seen from outside: where it decides, the rule
    /// says so. A kernel turns huge pages off by itself on hosts with less than 512 MiB.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/transhuge.rst`; tuned profiles oracle, postgresql and mssql; check 2000
    /// of SAP's arp142; MongoDB manual, "TCMalloc Performance Optimization"; measured on 6.18: 1.61 us per
    /// fault of 4 KiB, 0.51 us per 4 KiB in a huge page.
    pub ThpModeMismatch = "thp-mode-mismatch" in Thp
}

/// Nanoseconds to fault in and clear 4 KiB as part of a huge page (measured, 6.18).
const HUGE_NS_PER_PAGE: u64 = 510;
/// Nanoseconds of a fault of 4 KiB (measured, 6.18).
const SMALL_NS: u64 = 1610;

impl Rule for ThpModeMismatch {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let mode = thp::mode(cx)?;
        // Without processes nobody knows who runs here, and the advice would be that for a host without a
        // database.
        cx.processes()?;
        let advice = advice::thp_enabled(cx);
        let mongo = decided_by_mongo(cx, &advice);
        match (mode.word, advice.value) {
            ("always", "always") if mongo => {
                return Err(Skip::missing(
                    "the version of mongod (always is right from 8.0 on, wrong before)",
                ));
            }
            (now, wanted) if now == wanted => return Ok(Vec::new()),
            // madvise is asked for, and never is what the same vendors also accept.
            ("never", "madvise") if !cx.runs(Workload::Hana) => return Ok(Vec::new()),
            _ => {}
        }
        let concerned = concerned(cx);
        let unharmed = |workload| workload == Workload::Redis && cx.now().host.kernel.at_least(5, 8);
        let exempt = concerned.iter().all(|(workload, exempt)| *exempt || unharmed(*workload));
        let severity = match (mode.word, advice.value) {
            _ if mongo => Severity::Info,
            ("never" | "madvise", "always") | ("always", "never") => Severity::Warning,
            ("always", _) if !exempt => Severity::Warning,
            _ => Severity::Info,
        };
        let in_huge = cx.mem_or_zero(m::AnonHugePages);
        let title = title(&mode, &advice, exempt, in_huge);
        let mut finding = Finding::new(Self::ID, severity, title, Cost::risk(cost(cx, mode.word)));
        finding
            .sure(if mongo { Confidence::Possible } else { Confidence::Likely })
            .because(mode.saw().against(advice.value, &advice.because))
            .because(cx.saw_mem(m::AnonHugePages));
        if let Some(filled) = cx.thp()?.khugepaged("max_ptes_none").filter(|_| mode.word == "always") {
            let value = format!("{filled}: so many of {} pages may be empty", thp::pages_in_huge(cx));
            let file = format!("{}/khugepaged/max_ptes_none", thp::ROOT);
            finding.because(Evidence::new(file, "max_ptes_none", value));
        }
        finding.because_all(thp::holders(cx, 3));
        for (workload, exempt) in concerned.iter().filter(|(_, exempt)| *exempt) {
            finding
                .because(
                    Evidence::new("/proc/PID/status", "THP_enabled", u8::from(!exempt)).of(workload.name()),
                )
                .note(format!("{} opted out of huge pages by itself and is not concerned.", workload.name()));
        }
        if mode.word == "always" && concerned.iter().any(|(workload, exempt)| !exempt && unharmed(*workload))
        {
            finding.note(
                "Redis asks for madvise or never because a write during a save copied 2 MiB. From 5.8 on it copies 4 KiB: \
                 with 300 MB of keys and 2,000 of them set during a save, always and madvise copied 18 MB alike, and the \
                 fork took 0.9 ms with always, 8.5 ms without (measured, 6.18).",
            );
        }
        let mut remedy = mode.set(cx, advice.value);
        if mongo {
            remedy.title =
                "Set transparent huge pages to always if `mongod --version` is 8.0 or later".to_owned();
        }
        finding.remedy(remedy).note(advice.contested);
        tell_applications(&mut finding, cx, advice.value);
        if mode.word == "always" && advice.value != "always" {
            finding.note(
                "Who wants always: SQL Server and MongoDB 8 or later. Neither decides here; where such a \
                 program is to come, keep always and exempt the others with prctl(PR_SET_THP_DISABLE) in a \
                 wrapper.",
            );
        }
        finding.note_if(thp::tuned_note(cx));
        Ok(vec![finding])
    }
}

/// What the applications that run here need beside the mode.
fn tell_applications(finding: &mut Finding, cx: &Context<'_>, value: &str) {
    for application in applications::running(cx) {
        let name = application.name();
        let remedy = match application {
            Application::Mongo if value == "always" => {
                let thp = cx.thp().ok();
                let now = thp.and_then(|thp| thp.khugepaged("max_ptes_none")).map(|now| now.to_string());
                let file = format!("{}/khugepaged/max_ptes_none", thp::ROOT);
                let remedy = Remedy::new("Give MongoDB 8.0 or later the rest that it asks for");
                let remedy =
                    remedy.sysfs(&file, &advice::max_ptes_none(cx).value.to_string(), now.as_deref());
                let defrag = thp.map(|thp| &*thp.defrag.selected);
                remedy.sysfs(&format!("{}/defrag", thp::ROOT), advice::thp_defrag(cx).value, defrag)
            }
            Application::Memcached if value == "madvise" => {
                Remedy::new("Where memcached is to keep its huge pages, let it ask for them")
            }
            Application::Redis | Application::Valkey
                if value != "always" && !cx.now().host.kernel.at_least(5, 8) =>
            {
                Remedy::new(format!("Or let {name} opt out by itself, and leave the mode to the others"))
            }
            _ => continue,
        };
        let remedy = remedy.risk("Its caches are cold after the restart.");
        finding.remedy(application.tell(Topic::Thp, remedy));
    }
}

fn title(mode: &thp::Mode<'_>, advice: &Advice<&str>, exempt: bool, in_huge: Bytes) -> String {
    match (mode.word, advice.value) {
        ("always", "madvise") if exempt => format!(
            "transparent huge pages are always: every program gets them, asked or not, and {in_huge:#} is \
             in them now"
        ),
        (word, "always") => {
            format!("transparent huge pages are {word}, and {}; {in_huge:#} is in them now", advice.because)
        }
        (word, _) => {
            format!("transparent huge pages are {word}, but {}; {in_huge:#} is in them now", advice.because)
        }
    }
}

/// Whether it is MongoDB, of unknown version, that decides the advice.
fn decided_by_mongo(cx: &Context<'_>, advice: &advice::Advice<&'static str>) -> bool {
    advice.value == "always" && cx.runs(Workload::Mongo) && !cx.runs(Workload::Mssql)
}

/// The programs that ask for never or madvise, and whether all processes of each opted out of huge pages.
fn concerned(cx: &Context<'_>) -> Vec<(Workload, bool)> {
    const ASKING: [Workload; 6] = [
        Workload::Oracle,
        Workload::Hana,
        Workload::Redis,
        Workload::Couchbase,
        Workload::Tidb,
        Workload::Postgres,
    ];
    let processes = cx.processes().unwrap_or_default();
    let mut found = Vec::new();
    for workload in ASKING.into_iter().filter(|workload| cx.runs(*workload)) {
        let exempt = (processes.iter())
            .filter(|process| Workload::of_name(&process.stat.name) == Some(workload))
            .all(|process| process.thp_enabled == Some(false));
        // Couchbase is told by two processes together; neither is its by name alone.
        found.push((workload, exempt && workload != Workload::Couchbase));
    }
    found
}

fn cost(cx: &Context<'_>, mode: &str) -> String {
    if mode != "always" {
        return "faults cost 3.2 times as much per byte and random reads 1.33 times for programs that are \
                built for huge pages (measured)"
            .to_owned();
    }
    let pages = thp::pages_in_huge(cx);
    format!(
        "a fault that gets a huge page clears {} at once, {} us instead of {:.1} (measured), more if it has \
         to compact memory first; and up to {} of {pages} pages of each one may never be used",
        thp::huge_size(cx),
        Grouped(pages * HUGE_NS_PER_PAGE / 1000),
        SMALL_NS as f64 / 1e3,
        pages.saturating_sub(1),
    )
}

#[cfg(test)]
mod tests {
    use lotsfree_snapshot::Observation;
    use lotsfree_units::Bytes;

    use super::*;

    #[test]
    fn the_cost_of_a_huge_fault_is_512_small_ones_at_their_own_price() {
        let nothing = Observation::instant("nothing", lotsfree_snapshot::Snapshot::default());
        let text = cost(&Context::new(&nothing), "always");
        assert!(text.contains(&format!("{} at once, 261 us instead of 1.6", Bytes::mib(2))), "{text}");
    }
}
