use lotsfree_kernel_files::file::kernel_log::daemon::{Daemon, DaemonKill, Reason};
use lotsfree_kernel_files::file::process::Process;

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// systemd-oomd or earlyoom has killed.
    ///
    /// # Sees
    /// Their lines in the journal: whom they killed, and whether because of memory pressure, of used swap
    /// or of low memory. `/dev/kmsg` alone does not have them.
    ///
    /// # Hurts
    /// A desktop session, a terminal with all that runs in it, or a build is gone, often while the kernel
    /// would still have found memory. The kernel log says nothing of it.
    ///
    /// # Remedies
    /// Mend the shortage that made them act; then spare what must not be killed, or raise the bounds.
    ///
    /// # False alarms
    /// A daemon that kills the runaway and saves the rest does what it is for: the finding is about the
    /// shortage.
    ///
    /// # References
    /// oomd.conf(5), systemd.resource-control(5); earlyoom(1).
    pub KilledByDaemon = "killed-by-daemon" in Swap
}

/// Kills that are shown as evidence, latest first.
const SHOWN: usize = 5;
/// Programs that kill before the kernel does.
const DAEMONS: [&str; 5] = ["systemd-oomd", "earlyoom", "nohang", "kubelet", "lmkd"];

impl Rule for KilledByDaemon {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let log = cx.kernel_log()?;
        if log.daemon_kills.is_empty() {
            return nobody(cx);
        }
        let of = |daemon: Daemon| {
            log.daemon_kills.iter().filter(move |kill| kill.by == daemon).collect::<Vec<_>>()
        };
        let daemons = [
            Daemon::SystemdOomd,
            Daemon::Earlyoom,
            Daemon::Nohang,
            Daemon::Kubelet,
            Daemon::Talos,
            Daemon::LowMemoryKiller,
        ];
        let kinds = daemons.map(|daemon| (daemon, of(daemon)));
        Ok(kinds.into_iter().filter_map(|(daemon, kills)| found(daemon, &kills)).collect())
    }
}

/// No kill in the log: certain only where no such daemon runs, because the kernel's own log has none of
/// their lines.
fn nobody(cx: &Context<'_>) -> Outcome {
    let runs = |process: &Process| DAEMONS.iter().any(|daemon| process.stat.name.starts_with(daemon));
    match cx.processes()?.iter().find(|process| runs(process)) {
        Some(_) => Err(Skip::missing("the journal")),
        None => Ok(Vec::new()),
    }
}

fn found(daemon: Daemon, kills: &[&DaemonKill]) -> Option<Finding> {
    let told: Vec<&DaemonKill> = kills.iter().filter(|kill| kill.reason != Reason::Untold).copied().collect();
    // systemd's line on the same kill has no reason.
    let kills = if told.is_empty() { kills } else { &told };
    let last = kills.last()?;
    let others = match kills.len() - 1 {
        0 => String::new(),
        1 => " and another time".to_owned(),
        n => format!(" and {n} more times"),
    };
    let mut finding = Finding::new(
        KilledByDaemon::ID,
        Severity::High,
        format!(
            "{} killed {}{others}, not the kernel: {}",
            daemon.name(),
            last.victim,
            why(daemon, last.reason)
        ),
        Cost::risk("the work of what was killed is lost"),
    );
    finding.sure(Confidence::Certain);
    for kill in kills.iter().rev().take(SHOWN) {
        let size = kill.resident.map_or_else(String::new, |resident| format!(", {resident:#}"));
        finding.because(
            Evidence::new("journal", daemon.name(), format!("{}{size}", why(daemon, kill.reason)))
                .of(&kill.victim),
        );
    }
    finding.remedy(match daemon {
        Daemon::SystemdOomd => Remedy::new("Spare what must not be killed")
            .run("oomctl")
            .keep("the unit's drop-in, [Service]", "ManagedOOMPreference=avoid")
            .risk("Others are killed first. The preference counts only for units owned by root."),
        Daemon::Earlyoom => Remedy::new("Spare what must not be killed, in earlyoom's arguments")
            .keep("/etc/default/earlyoom", "EARLYOOM_ARGS=\"--avoid '^NAME$'\"")
            .run("systemctl restart earlyoom")
            .risk("Keep arguments that are set there already. Others are killed first."),
        Daemon::Nohang => Remedy::new("Look at its thresholds, and spare what must not be killed")
            .run("nohang --check --config /etc/nohang/nohang.conf")
            .risk("None: it only reads."),
        Daemon::Kubelet => {
            Remedy::new("Give pods requests that are what they use, so that the node is not overfilled")
                .run("kubectl top pods --all-namespaces --sort-by=memory")
                .keep("the pod's containers, resources.requests", "memory: SIZE")
                .risk("Fewer pods fit on a node.")
        }
        Daemon::Talos => Remedy::new("Look at the node's memory pressure, and what raised it")
            .run("talosctl read /proc/pressure/memory")
            .risk("None: it only reads."),
        Daemon::LowMemoryKiller => {
            Remedy::new("Look who holds the memory").run("dumpsys meminfo").risk("None: it only reads.")
        }
    });
    finding.note(match last.reason {
        Reason::Pressure(..) => {
            "Memory pressure is time that tasks lost to memory: find what thrashed, and bound it or give it memory."
        }
        Reason::Used(_) => "Memory and swap were both nearly used up: more swap wins time, less load ends it.",
        Reason::Low if daemon == Daemon::Earlyoom => {
            "Available memory and free swap were both below its bounds, 10 % of each by default."
        }
        Reason::Low => "Available memory was below its bound: that is what it is there for; what grew is the question.",
        Reason::Untold => "systemd-oomd acts on swap that is nearly full, or on memory pressure: oomctl shows its limits.",
        Reason::Stalls => {
            "It goes by memory pressure of the whole node, which rises with slow disks too while memory is free."
        }
    });
    Some(finding)
}

fn why(daemon: Daemon, reason: Reason) -> String {
    match reason {
        Reason::Pressure(is, limit) => {
            let nonsense =
                if is > 100.0 { ", a figure that cannot be: the kernel's pressure is wrong" } else { "" };
            format!("memory pressure was {is:.0} %, above its limit of {limit:.0} %{nonsense}")
        }
        Reason::Used(limit) => format!("memory and swap were used to more than {limit:.0} %"),
        Reason::Low if daemon == Daemon::Earlyoom => "available memory and free swap were low".to_owned(),
        Reason::Low => "available memory was low".to_owned(),
        Reason::Stalls => "tasks stood still for memory".to_owned(),
        Reason::Untold => "its reason stands in the lines before".to_owned(),
    }
}
