//! Kills by daemons, which stand in the same journal: systemd-oomd, earlyoom, kubelet, Talos' controller,
//! and Android's low memory killer.

use std::fmt::{Display, Formatter, Result};

use lotsfree_units::Bytes;
use serde::Serialize;

/// A kill by a daemon.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DaemonKill {
    /// Who killed.
    pub by: Daemon,
    /// The control group or process that was killed.
    pub victim: String,
    /// Its process id, if one process was killed.
    pub pid: Option<u32>,
    /// Its resident memory, if printed.
    pub resident: Option<Bytes>,
    /// Why.
    pub reason: Reason,
}

/// A daemon that kills before the kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Daemon {
    /// systemd-oomd, which kills control groups.
    SystemdOomd,
    /// earlyoom, which kills processes.
    Earlyoom,
    /// nohang, which kills processes.
    Nohang,
    /// kubelet, which evicts pods.
    Kubelet,
    /// The OOM controller of Talos Linux, which kills control groups.
    Talos,
    /// Android's low memory killer, in the kernel before 4.12 and as lmkd since.
    LowMemoryKiller,
}

/// Why a daemon killed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A group's memory pressure was above its limit; both in percent.
    Pressure(f64, f64),
    /// Memory and swap used were above a share, in percent.
    Used(f64),
    /// Available memory and free swap were low.
    Low,
    /// Tasks stood still for memory, by how much is not printed.
    Stalls,
    /// The lines do not say.
    Untold,
}

impl Daemon {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Daemon::SystemdOomd => "systemd-oomd",
            Daemon::Earlyoom => "earlyoom",
            Daemon::Nohang => "nohang",
            Daemon::Kubelet => "kubelet",
            Daemon::Talos => "Talos' OOM controller",
            Daemon::LowMemoryKiller => "lowmemorykiller",
        }
    }
}

/// Reads a line of the journal: `… systemd-oomd[612]: Killed /a/b due to …` (systemd 248 and later,
/// `src/oom/oomd-manager.c`), `… earlyoom[783]: sending SIGTERM to process 2212 uid 1000 "chrome": …`.
///
/// earlyoom that was started on a terminal has no name before its lines.
pub fn killed(line: &str) -> Option<DaemonKill> {
    // On a terminal both write without their names, earlyoom after the time.
    if line.contains("sending SIG") && line.contains(" to process ") && line.contains(" uid ") {
        return earlyoom(line);
    }
    if line.trim_start().starts_with("Killed /") {
        return oomd(line.trim_start());
    }
    if let Some(kill) = unit(line)
        .or_else(|| nohang(line))
        .or_else(|| kubelet(line))
        .or_else(|| talos(line))
        .or_else(|| low_memory_killer(line))
    {
        return Some(kill);
    }
    let (daemon, message) = [Daemon::SystemdOomd, Daemon::Earlyoom].into_iter().find_map(|daemon| {
        let at = line.find(daemon.name())?;
        let rest = &line[at + daemon.name().len()..];
        let rest = match rest.strip_prefix('[') {
            Some(pid) => pid.split_once(']')?.1,
            None => rest,
        };
        Some((daemon, rest.strip_prefix(": ")?))
    })?;
    match daemon {
        Daemon::SystemdOomd => oomd(message),
        _ => earlyoom(message),
    }
}

/// `app.scope: systemd-oomd killed 2104 process(es) in this unit.`, which systemd itself writes (249 and
/// later).
fn unit(line: &str) -> Option<DaemonKill> {
    let (before, after) = line.split_once("systemd-oomd killed ")?;
    let victim = before.strip_suffix(": ").and_then(|before| before.rsplit(' ').next());
    let victim = match victim.filter(|unit| !unit.is_empty()) {
        Some(unit) => unit.to_owned(),
        None if after.contains("process(es) in this unit") => "a unit".to_owned(),
        None => return None,
    };
    Some(DaemonKill { by: Daemon::SystemdOomd, victim, pid: None, resident: None, reason: Reason::Untold })
}

/// `nohang[530]:   Send SIGTERM to the victim; total response time: 13246 ms`.
fn nohang(line: &str) -> Option<DaemonKill> {
    let (_, rest) = line.split_once("nohang")?;
    let kills = ["Send SIGTERM to the victim", "Send SIGKILL to the victim", "Sending SIGTERM to the victim"];
    let reason = Reason::Low;
    kills.iter().any(|text| rest.contains(text)).then(|| DaemonKill {
        by: Daemon::Nohang,
        victim: "a process".to_owned(),
        pid: None,
        resident: None,
        reason,
    })
}

/// `The node was low on resource: memory. Threshold quantity: 100Mi, available: 92Mi. Container web was
/// using …` (`pkg/kubelet/eviction/eviction_manager.go`).
fn kubelet(line: &str) -> Option<DaemonKill> {
    // `"Eviction manager: attempting to reclaim" resourceName="memory"`, `eviction manager: attempting to
    // reclaim memory`.
    if let Some((_, rest)) = line.split_once("viction manager: attempting to reclaim") {
        let victim = "a pod".to_owned();
        let kill = DaemonKill { by: Daemon::Kubelet, victim, pid: None, resident: None, reason: Reason::Low };
        return rest.contains("memory").then_some(kill);
    }
    let (_, rest) = line.split_once("The node was low on resource: memory.")?;
    let victim = rest.split_once("Container ").and_then(|(_, rest)| rest.split_once(" was using"));
    let victim = victim.map_or("a pod", |(name, _)| name).to_owned();
    Some(DaemonKill { by: Daemon::Kubelet, victim, pid: None, resident: None, reason: Reason::Low })
}

/// `[talos] Sending SIGKILL to cgroup {… "cgroup": "/sys/fs/cgroup/kubepods/…"}`.
fn talos(line: &str) -> Option<DaemonKill> {
    let (_, rest) = line.split_once("[talos] Sending SIGKILL to cgroup ")?;
    let (_, path) = rest.split_once("\"cgroup\": \"")?;
    let path = path.split('"').next().unwrap_or_default().trim();
    let victim = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path).to_owned();
    let reason = Reason::Stalls;
    (!victim.is_empty()).then_some(DaemonKill {
        by: Daemon::Talos,
        victim,
        pid: None,
        resident: None,
        reason,
    })
}

/// `lowmemorykiller: Killing 'com.example' (1234), …`, `lowmemorykiller: Kill 'com.example' (1234), …` and
/// the same of lmkd.
fn low_memory_killer(line: &str) -> Option<DaemonKill> {
    let (_, rest) = line.split_once("lowmemorykiller: Kill").or_else(|| line.split_once("lmkd: Kill"))?;
    let (victim, rest) = rest.strip_prefix("ing '").or_else(|| rest.strip_prefix(" '"))?.split_once("' (")?;
    let pid = rest.split([')', ',']).next().and_then(|pid| pid.parse().ok());
    let by = Daemon::LowMemoryKiller;
    Some(DaemonKill { by, victim: victim.to_owned(), pid, resident: None, reason: Reason::Low })
}

fn oomd(message: &str) -> Option<DaemonKill> {
    let (victim, why) = message.strip_prefix("Killed ")?.split_once(" due to ")?;
    let percent = |text: &str| {
        let end = text.find('%')?;
        let start = text[..end].rfind(' ').map_or(0, |at| at + 1);
        text[start..end].parse::<f64>().ok().filter(|value| (0.0..1e18).contains(value))
    };
    let reason = if why.starts_with("memory pressure") {
        let (is, limit) = why.split_once(" > ")?;
        Reason::Pressure(percent(is)?, percent(limit)?)
    } else {
        Reason::Used(percent(why)?)
    };
    Some(DaemonKill { by: Daemon::SystemdOomd, victim: victim.to_owned(), pid: None, resident: None, reason })
}

fn earlyoom(message: &str) -> Option<DaemonKill> {
    let (_, rest) = message.split_once("sending SIG")?;
    let (_, rest) = rest.split_once(" to process ")?;
    let (pid, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.split_once('"')?;
    // The command line may follow, in quotes too (1.8 and later).
    let (victim, rest) = rest.split_once("\": ").or_else(|| rest.rsplit_once('"'))?;
    let mib = rest.split_once("VmRSS ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    Some(DaemonKill {
        by: Daemon::Earlyoom,
        victim: victim.to_owned(),
        pid: pid.parse().ok(),
        resident: mib.map(Bytes::mib),
        reason: Reason::Low,
    })
}

/// As the daemon writes it.
impl Display for DaemonKill {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let victim = &self.victim;
        match (self.by, self.reason) {
            (Daemon::SystemdOomd, Reason::Pressure(is, limit)) => write!(
                f,
                "systemd-oomd[1]: Killed {victim} due to memory pressure for {victim} being {is:.2}% > {limit:.2}% for > 20s with reclaim activity"
            ),
            (Daemon::SystemdOomd, Reason::Used(limit)) => write!(
                f,
                "systemd-oomd[1]: Killed {victim} due to memory used and swap used being more than {limit:.2}%"
            ),
            (Daemon::Kubelet, _) => {
                write!(f, "The node was low on resource: memory. Container {victim} was using memory")
            }
            (Daemon::Talos, _) => {
                write!(f, "[talos] Sending SIGKILL to cgroup {{\"cgroup\": \"/sys/fs/cgroup{victim}\"}}")
            }
            (Daemon::LowMemoryKiller, _) => {
                write!(f, "lowmemorykiller: Killing '{victim}' ({})", self.pid.unwrap_or_default())
            }
            (Daemon::SystemdOomd, Reason::Low | Reason::Stalls | Reason::Untold) => {
                write!(f, "{victim}: systemd-oomd killed 1 process(es) in this unit.")
            }
            (Daemon::Nohang, _) => f.write_str("nohang[1]: Send SIGTERM to the victim"),
            (Daemon::Earlyoom, _) => {
                let pid = self.pid.unwrap_or_default();
                write!(f, "earlyoom[1]: sending SIGTERM to process {pid} uid 0 \"{victim}\"")?;
                match self.resident {
                    Some(resident) => write!(f, ": badness 0, VmRSS {} MiB", resident.0 >> 20),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_say_whom_they_killed() {
        let pressure = killed(
            "Nov 20 10:00:00 pc systemd-oomd[612]: Killed /user.slice/a.scope due to memory pressure for \
             /user.slice/user-1000.slice being 67.01% > 50.00% for > 20s with reclaim activity",
        );
        let pressure = pressure.expect("a kill");
        assert_eq!(
            (&*pressure.victim, pressure.reason),
            ("/user.slice/a.scope", Reason::Pressure(67.01, 50.0))
        );
        let used = killed(
            "systemd-oomd[1]: Killed /user.slice/b.scope due to memory used (15982518272) / total (16660254720) and \
             swap used (8589934592) / total (8589934592) being more than 90.00%",
        );
        assert_eq!(used.as_ref().map(|kill| kill.reason), Some(Reason::Used(90.0)));
        let early = killed(
            "earlyoom[783]: sending SIGTERM to process 2212 uid 1000 \"Web Content\": badness 912, VmRSS 2000 MiB",
        );
        let early = early.expect("a kill");
        assert_eq!(
            (early.pid, &*early.victim, early.resident),
            (Some(2212), "Web Content", Some(Bytes::mib(2000)))
        );
        let later = killed(
            "sending SIGTERM to process 4711 uid 1000 \"chrome\": oom_score 800, VmRSS 9000 MiB, cmdline \"chrome\"",
        );
        assert_eq!(later.map(|kill| kill.victim).as_deref(), Some("chrome"));
        let others = [
            (
                "Killed /a.scope due to memory pressure for /a.scope being 27925460729.27% > 50.00% for > 20s",
                "/a.scope",
            ),
            (
                "Sep 02 13:07:24 systemd[1075]: app.scope: systemd-oomd killed 2104 process(es) in this unit.",
                "app.scope",
            ),
            ("nohang[530]:   Send SIGTERM to the victim; total response time: 13246 ms", "a process"),
            (
                "The node was low on resource: memory. Threshold quantity: 100Mi, available: 92Mi. Container web was using 2Gi",
                "web",
            ),
            (
                "user: warning: [talos] Sending SIGKILL to cgroup {\"controller\": \"runtime.OOMController\", \"cgroup\": \"/sys/fs/cgroup/kubepods/pod1\"}",
                "/kubepods/pod1",
            ),
            ("[  99.1] lowmemorykiller: Killing 'com.example' (1234), adj 900,", "com.example"),
            (
                "Jun 12 06:39:16: sending SIGTERM to process 7 uid 1000 \"Web Content\": badness 9, VmRSS 5 MiB",
                "Web Content",
            ),
        ];
        for (line, victim) in others {
            let kill = killed(line).expect(line);
            assert_eq!(kill.victim, victim);
            assert_eq!(killed(&kill.to_string()), Some(kill));
        }
        for kill in [pressure, used.expect("a kill"), early] {
            assert_eq!(killed(&kill.to_string()), Some(kill));
        }
        for no in [
            "systemd-oomd[1]: Swap is currently low",
            "earlyoom[7]: mem avail: 5 of 9 MiB",
            "Killed process 7 (x)",
        ] {
            assert_eq!(killed(no), None, "{no}");
        }
    }
}
