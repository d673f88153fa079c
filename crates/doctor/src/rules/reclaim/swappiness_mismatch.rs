use crate::advice::Advice;
use crate::applications::{self, Application, Topic};
use lotsfree_kernel_files::counters::{meminfo as m, status as s, vmstat as v};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_settings::SWAPPINESS;
use lotsfree_units::Bytes;

use crate::finding::subject;
use crate::rule::rule;
use crate::swapping::all_zram;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
    remedies,
};

rule! {
    /// vm.swappiness is higher than the vendor of a database on this host asks for.
    ///
    /// # Sees
    /// `vm.swappiness`, and on version 1 cgroups each `memory.swappiness`, against the value for the
    /// databases, or Elasticsearch, that run. It weighs more where swapping hurts: pages going out now, or
    /// a database with part of its memory in swap.
    ///
    /// # Hurts
    /// By itself nothing. Under pressure a higher value takes more pages of programs and fewer of the file
    /// cache; a database that keeps a cache of its own then waits for the disk in places where it does not
    /// expect to.
    ///
    /// # Remedies
    /// The vendor's value. Version 1 cgroups keep their own copy, which has to be set as well. Elasticsearch
    /// can lock its memory instead (`bootstrap.memory_lock`).
    ///
    /// # False alarms
    /// Values from 1 up to the vendor's are left alone, except where SAP HANA asks for an exact one; 0 is
    /// another rule's matter. Without swap, or without a database or Elasticsearch, there is no wrong value.
    /// tuned and saptune may set the value again.
    ///
    /// # References
    /// mm/vmscan.c:get_scan_count (6.12); SAP notes for HANA on SLES (60) and RHEL (10); tuned profiles
    /// throughput-performance (10), postgresql (3), mssql (1); systemd issue 9276 (slices made before
    /// systemd-sysctl keep 60).
    pub SwappinessMismatch = "swappiness-mismatch" in Reclaim
}

/// Part of a database's resident memory in swap from which on swapping hurts it.
const SWAPPED: f64 = 0.01;
/// Pages a second, of PCP's paging rule.
const PAGES_PER_SECOND: f64 = 5.0;
/// The highest value before 5.8.
const MOST_BEFORE_5_8: u64 = 100;

impl Rule for SwappinessMismatch {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let now = cx.sysctl(SWAPPINESS)?;
        let processes = cx.processes()?;
        if cx.mem(m::SwapTotal)? == Bytes::ZERO {
            return Err(Skip::because("no swap, so swappiness has no effect"));
        }
        if cx.swaps().is_ok_and(all_zram) {
            return Err(Skip::because("all swap is compressed memory (zram), which wants a high value"));
        }
        let Some(asking) = asking(cx) else {
            return Err(Skip::because("no program whose vendor asks for a value"));
        };
        let advice = advice::swappiness(cx);
        let exact = cx.runs(Workload::Hana);
        let wrong =
            |value: u64| value != 0 && if exact { value != advice.value } else { value > advice.value };
        let differing: Vec<_> =
            remedies::own_swappiness(cx).into_iter().filter(|(_, own)| wrong(*own)).collect();
        if !wrong(now) && differing.is_empty() {
            return Ok(Vec::new());
        }

        let out = cx.rate(&[v::pswpout]).ok().filter(|rate| rate.per_second >= PAGES_PER_SECOND);
        let swapped = (processes.iter())
            .filter(|p| Workload::database_of(p).is_some() || is_elasticsearch(p))
            .map(|p| (p.memory_or_zero(s::VmSwap), p))
            .filter(|(swap, p)| swap.share_of(p.memory_or_zero(s::VmRSS)) > SWAPPED)
            .max_by_key(|(swap, _)| *swap);
        let hurts = out.is_some() || swapped.is_some();
        let place = place(now, wrong(now), &differing);
        let cost = match (&out, &swapped) {
            (_, Some((swap, p))) => Cost::memory(
                *swap,
                cx.total()?,
                format!("of {} (pid {}) are in swap", p.stat.name, p.stat.pid),
            ),
            (Some(out), None) => Cost::memory(cx.pages(out.total), cx.total()?, "went to swap in the period"),
            (None, None) => Cost::risk("nothing at present: no pages go to swap"),
        };
        let mut finding = Finding::new(
            Self::ID,
            if hurts { Severity::Warning } else { Severity::Info },
            format!("{place}; {asking} here asks for {}", advice.value),
            cost,
        );
        finding
            .sure(Confidence::Likely)
            .because(cx.saw_sysctl(SWAPPINESS).against(advice.value, &advice.because));
        for (path, own) in differing.iter().take(3) {
            finding.because(
                Evidence::new(
                    format!("/sys/fs/cgroup/memory{path}/memory.swappiness"),
                    "memory.swappiness",
                    own,
                )
                .of(path)
                .against(advice.value, &advice.because),
            );
        }
        finding.because_if(out.as_ref().map(|out| cx.saw_rate(&[v::pswpout], out)));
        if let Some((swap, p)) = &swapped {
            finding.because(Evidence::new("/proc/PID/status", "VmSwap", format!("{swap:#}")).of(subject(p)));
        }
        add_remedies(&mut finding, cx, &advice, now);

        Ok(vec![finding])
    }
}

fn is_elasticsearch(process: &Process) -> bool {
    Application::of(process) == Some(Application::Elasticsearch)
}

/// The program whose vendor asks for a value.
fn asking(cx: &Context<'_>) -> Option<&'static str> {
    let database = cx.workloads().iter().find(|w| w.is_database()).map(|w| w.name());
    database.or_else(|| cx.processes().ok()?.iter().any(is_elasticsearch).then_some("Elasticsearch"))
}

fn place(now: u64, now_is_wrong: bool, differing: &[(&str, u64)]) -> String {
    match (now_is_wrong, differing.first()) {
        (false, Some((path, own))) => {
            let others = match differing.len() - 1 {
                0 => String::new(),
                1 => " and one more cgroup".to_owned(),
                n => format!(" and {n} more cgroups"),
            };
            format!("memory.swappiness of {path}{others} is {own}")
        }
        _ => format!("vm.swappiness is {now}"),
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, advice: &Advice<u64>, now: u64) {
    finding
        .remedy(remedies::swappiness(cx, advice.value).risk(
            "Under pressure the file cache shrinks instead; programs that live off it read more from disk.",
        ))
        .note(advice.contested);
    let elasticsearch = Application::Elasticsearch;
    if applications::running(cx).contains(&elasticsearch) {
        finding.remedy(
            elasticsearch.tell(
                Topic::Locked,
                Remedy::new("Or let Elasticsearch lock its memory, which is then never swapped")
                    .keep(remedies::DROP_IN, "LimitMEMLOCK=infinity")
                    .risk("What is locked is gone for the rest: the heap has to fit beside the page cache."),
            ),
        );
    }
    let tuners = &cx.now().tuners;
    let owner = match &tuners.tuned_profile {
        Some(profile) => Some(format!("tuned's profile {profile}")),
        None if tuners.saptune => Some("saptune".to_owned()),
        None if tuners.sapconf => Some("sapconf".to_owned()),
        None => None,
    };
    if let Some(owner) = owner {
        finding.note(format!(
            "{owner} may set it again: look there first, and change it there if it is the one that sets it."
        ));
    }
    if now > MOST_BEFORE_5_8 {
        finding.note(
            "Values above 100 (5.8 and later) prefer swap to the file cache: meant for compressed swap.",
        );
    }
}
