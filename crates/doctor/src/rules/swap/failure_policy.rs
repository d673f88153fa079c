use lotsfree_kernel_files::file::cgroup::Limit;
use lotsfree_settings::{MEMORY_FAILURE_EARLY_KILL, PANIC, PANIC_ON_OOM};
use lotsfree_units::Grouped;

use crate::rule::rule;
use crate::workload::CLUSTER_MANAGERS;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload};

rule! {
    /// What the host does when memory runs out or breaks does not fit its purpose.
    ///
    /// # Sees
    /// `vm.panic_on_oom` other than 0 on a host that runs no cluster software, with `kernel.panic`, which
    /// says whether it comes up again; and `vm.memory_failure_early_kill` 0 where SAP HANA runs.
    ///
    /// # Hurts
    /// With `panic_on_oom` one process that grows takes the whole host down instead of itself; with 2 even a
    /// container at its own limit does, and where `kernel.panic` is 0 the host stays down until somebody
    /// resets it. A memory module that fails is noticed by HANA only when it reads the page, unless it is
    /// told at once.
    ///
    /// # Remedies
    /// `vm.panic_on_oom = 0` on single hosts; `vm.memory_failure_early_kill = 1` for HANA.
    ///
    /// # False alarms
    /// In a cluster a node that dies at once is better than one that crawls: there `panic_on_oom` is a choice
    /// and nothing is reported (Pacemaker, Corosync, Heartbeat, Oracle
    /// Clusterware, Veritas, Serviceguard).
    ///
    /// # References
    /// `Documentation/admin-guide/sysctl/vm.rst`, panic_on_oom and memory_failure_early_kill;
    /// `mm/oom_kill.c:check_panic_on_oom` (6.12); SAP note 3464764.
    pub FailurePolicy = "failure-policy" in Swap
}

impl Rule for FailurePolicy {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let panic_on_oom = cx.sysctl(PANIC_ON_OOM)?;
        let processes = cx.processes()?;
        let cluster = processes.iter().any(|p| CLUSTER_MANAGERS.contains(&&*p.stat.name));
        let mut findings = Vec::new();
        if panic_on_oom != 0 && !cluster {
            findings.push(panics(cx, panic_on_oom));
        }
        let early = cx.sysctl(MEMORY_FAILURE_EARLY_KILL);
        if cx.runs(Workload::Hana) && early == Ok(0) {
            findings.push(late_kill(cx));
        }
        Ok(findings)
    }
}

fn panics(cx: &Context<'_>, mode: u64) -> Finding {
    let limits = cx.cgroups().map(|groups| groups.groups.as_slice()).unwrap_or_default();
    let bounded = limits.iter().filter(|group| group.max.and_then(Limit::bytes).is_some()).count();
    let reboot = cx.now().sysctl.text(PANIC).map(str::to_owned);
    let stays_down = reboot.as_deref() == Some("0");
    let severity = if stays_down || (mode >= 2 && bounded > 0) { Severity::High } else { Severity::Warning };
    let after = match reboot.as_deref() {
        Some("0") => "and it stays down (kernel.panic 0)".to_owned(),
        Some(text) if text.starts_with('-') => "and it reboots at once".to_owned(),
        Some(seconds) => format!("and it reboots after {seconds} s"),
        None => "(whether it reboots, kernel.panic would tell)".to_owned(),
    };
    let when = match mode {
        1 => "when the host is out of memory",
        _ => "when the host, a NUMA policy or any memory cgroup is out of memory",
    };
    let mut finding = Finding::new(
        FailurePolicy::ID,
        severity,
        format!("vm.panic_on_oom is {mode}: the kernel panics {when}, {after}"),
        Cost::risk("one process that grows costs the whole host instead of itself"),
    );
    finding
        .sure(Confidence::Certain)
        .because(cx.saw_sysctl(PANIC_ON_OOM).against("0", "kernel default: kill one process"));
    finding.because_if(reboot.is_some().then(|| cx.saw_sysctl(PANIC)));
    if mode >= 2 && bounded > 0 {
        finding.because(Evidence::new("memory.max", "groups with a limit", Grouped(bounded as u64)));
    }
    finding.remedy(Remedy::new("Kill one process instead of the host").sysctl(cx, PANIC_ON_OOM, 0).risk(
        "The host lives on without the process that was killed: a service manager has to start it again.",
    ));
    if stays_down {
        finding.remedy(
            Remedy::new("If the panic is wanted, let the host come up again").sysctl(cx, PANIC, 10).risk(
                "It also reboots after every other panic; set up kdump first if the reason is to be known.",
            ),
        );
    }
    finding.note(
        "How to choose: panic where another node takes over at once (no cluster software was seen here), \
         else kill.",
    );
    finding
}

fn late_kill(cx: &Context<'_>) -> Finding {
    let mut finding = Finding::new(
        FailurePolicy::ID,
        Severity::Info,
        "SAP HANA is told of a broken memory page only when it reads it (vm.memory_failure_early_kill 0)",
        Cost::risk(
            "HANA can recover from a page that it is told of in time; one that it stumbles over ends the \
             process",
        ),
    );
    finding
        .sure(Confidence::Certain)
        .because(cx.saw_sysctl(MEMORY_FAILURE_EARLY_KILL).against("1", "SAP note 3464764"))
        .remedy(Remedy::new("Signal broken memory at once").sysctl(cx, MEMORY_FAILURE_EARLY_KILL, 1).risk(
            "Programs that do not handle SIGBUS and only map the page are killed although they might never \
             read it.",
        ));
    finding
}
