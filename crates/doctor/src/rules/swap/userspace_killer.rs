use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Percent};

use crate::control_groups::service_of;
use crate::finding::subject;
use crate::rule::rule;
use crate::swapping::first_victim;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload};

rule! {
    /// A userspace OOM killer runs and may take the database.
    ///
    /// # Sees
    /// `systemd-oomd` or `earlyoom` among the processes or enabled units, and a database that nothing spares:
    /// no `ManagedOOMPreference=avoid` or `omit` on its unit, and for earlyoom the largest points of all
    /// processes.
    ///
    /// # Hurts
    /// They act before the kernel does: earlyoom at 10 % available memory and 10 % free swap, and with
    /// SIGKILL at 5 %; systemd-oomd at 90 % of swap used, or 60 % memory pressure for 30 s in a group it
    /// manages, where it kills the whole group. A huge page pool and the ZFS cache are not in `MemAvailable`,
    /// so a healthy host may look as if it were at its end.
    ///
    /// # Remedies
    /// Exempt the database by name or unit; keep the killer for the rest.
    ///
    /// # False alarms
    /// systemd-oomd watches only groups with `ManagedOOMSwap=kill` or `ManagedOOMMemoryPressure=kill` above
    /// them, which is not always visible from the unit files read: the finding says *possible*. earlyoom's
    /// own `--avoid` pattern is not read.
    ///
    /// # References
    /// oomd.conf(5) and systemd.resource-control(5), ManagedOOM; earlyoom(1) and its issues 191 and 320.
    pub UserspaceKiller = "userspace-killer" in Swap
}

/// earlyoom's bound for SIGTERM, of available memory and of free swap.
const EARLYOOM: f64 = 0.10;
/// Twice that: near enough to act.
const NEAR: f64 = 0.20;

impl Rule for UserspaceKiller {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let processes = cx.processes()?;
        let runs = |name: &str| processes.iter().find(|p| &*p.stat.name == name);
        let tuners = &cx.now().tuners;
        let (oomd, earlyoom) = (runs("systemd-oomd"), runs("earlyoom"));
        let mut findings = Vec::new();
        let armed = oomd.is_some() || earlyoom.is_some() || tuners.systemd_oomd || tuners.earlyoom;
        if !armed {
            return Err(Skip::because("no userspace OOM killer runs here"));
        }
        let Some(largest) = largest_database(processes) else {
            return Err(Skip::because("a userspace OOM killer, and no database that it could take"));
        };
        let (total, available) = (cx.total()?, cx.mem(m::MemAvailable)?);
        if oomd.is_some() || tuners.systemd_oomd {
            findings.extend(by_oomd(cx, largest, oomd));
        }
        if earlyoom.is_some() || tuners.earlyoom {
            findings.extend(by_earlyoom(cx, processes, earlyoom, total, available)?);
        }
        Ok(findings)
    }
}

fn largest_database(processes: &[Process]) -> Option<&Process> {
    use lotsfree_kernel_files::counters::status as s;
    let databases = processes.iter().filter(|p| Workload::database_of(p).is_some());
    databases.max_by_key(|p| p.memory_or_zero(s::VmRSS) + p.memory_or_zero(s::VmSwap))
}

fn enabled(name: &str, process: Option<&Process>) -> Evidence {
    match process {
        Some(process) => Evidence::new("/proc/PID/stat", "comm", name).of(subject(process)),
        None => {
            Evidence::new("/etc/systemd/system/multi-user.target.wants", format!("{name}.service"), "enabled")
        }
    }
}

fn by_oomd(cx: &Context<'_>, database: &Process, oomd: Option<&Process>) -> Option<Finding> {
    let name = service_of(database);
    let path = database.detail.as_ref().and_then(|detail| detail.cgroup.as_deref());
    let unit = name.and_then(|name| cx.now().units.iter().find(|unit| unit.name == name));
    let preference = unit.and_then(|unit| unit.setting("ManagedOOMPreference"));
    if matches!(preference, Some("avoid" | "omit")) {
        return None;
    }
    // The unit itself and the slices above it: only below a setting of `kill` does systemd-oomd act.
    let above = |unit: &str| path.is_some_and(|path| path.split('/').any(|part| part == unit));
    let killing = cx.now().units.iter().find_map(|unit| {
        let set = ["ManagedOOMMemoryPressure", "ManagedOOMSwap"]
            .into_iter()
            .find(|setting| unit.setting(setting) == Some("kill"))?;
        (unit.name == "-.slice" || above(&unit.name)).then_some((unit.name.as_str(), set))
    });
    let shown = name.unwrap_or("UNIT");
    let mut finding = Finding::new(
        UserspaceKiller::ID,
        if killing.is_some() { Severity::Warning } else { Severity::Info },
        format!(
            "systemd-oomd runs, and nothing tells it to spare {} ({})",
            subject(database),
            name.unwrap_or("no unit of its own")
        ),
        Cost::risk("it kills whole groups: all of the database at once"),
    );
    finding
        .sure(if killing.is_some() { Confidence::Likely } else { Confidence::Possible })
        .because(enabled("systemd-oomd", oomd))
        .because(
            Evidence::new("unit files", "ManagedOOMPreference", preference.unwrap_or("not set"))
                .of(shown)
                .against("avoid or omit", "systemd.resource-control(5)"),
        );
    match killing {
        Some((unit, setting)) => {
            finding.because(Evidence::new("unit files", setting, "kill").of(unit));
        }
        None => {
            finding.note(
                "No ManagedOOMSwap=kill or ManagedOOMMemoryPressure=kill was seen above the unit; \
                 distributions set them on -.slice or user slices (oomctl shows what is watched).",
            );
        }
    }
    if let Ok(psi) = cx.memory_pressure()
        && let Some(full) = psi.full
    {
        finding.because(
            Evidence::new("/proc/pressure/memory", "full avg60", format!("{:.2} %", full.avg60))
                .against("60 % for 30 s", "default of oomd.conf, of the group watched"),
        );
    }
    finding
        .remedy(
            Remedy::new(format!("Spare {shown}"))
                .keep("the unit's drop-in, [Service]", "ManagedOOMPreference=avoid")
                .run("oomctl")
                .restart("systemctl daemon-reload; no restart of the database")
                .risk("Others are killed first. The preference counts only for units owned by root."),
        )
        .note(
            "It acts at 90 % of swap used, or when a watched group's memory pressure is above 60 % for 30 s \
             (defaults).",
        );
    Some(finding)
}

fn by_earlyoom(
    cx: &Context<'_>,
    processes: &[Process],
    earlyoom: Option<&Process>,
    total: Bytes,
    available: Bytes,
) -> Result<Option<Finding>, Skip> {
    let (swap, swap_free) = (cx.mem(m::SwapTotal)?, cx.mem(m::SwapFree)?);
    // It takes the largest oom_score, as the kernel would.
    let Some(victim) = first_victim(processes, total + swap, cx.now().host.page_size)
        .filter(|p| Workload::database_of(p).is_some())
    else {
        return Ok(None);
    };
    let share = available.share_of(total);
    let swap_low = swap == Bytes::ZERO || swap_free.share_of(swap) <= NEAR;
    let severity = Severity::ladder(
        &[(swap_low && share <= EARLYOOM, Severity::Critical), (swap_low && share <= NEAR, Severity::High)],
        Severity::Info,
    );
    let pools = cx.pool_bytes();
    let mut finding = Finding::new(
        UserspaceKiller::ID,
        severity,
        format!(
            "earlyoom runs and would take {} first; {} of memory are available, it acts at {}",
            subject(victim),
            Percent(share),
            Percent(EARLYOOM)
        ),
        Cost::risk("the database gets SIGTERM while the kernel would still have found memory"),
    );
    finding
        .sure(Confidence::Likely)
        .because(enabled("earlyoom", earlyoom))
        .because(cx.saw_mem(m::MemAvailable).against(
            format!("more than {} of {total:#}", Percent(EARLYOOM)),
            "earlyoom's default for SIGTERM",
        ))
        .because(
            cx.saw_mem(m::SwapFree)
                .against(format!("more than {} of SwapTotal", Percent(EARLYOOM)), "both must be low"),
        )
        .because(
            Evidence::new(
                "/proc/PID/oom_score_adj",
                "oom_score_adj",
                victim.oom_score_adj.map_or("absent".to_owned(), |adjustment| adjustment.to_string()),
            )
            .of(subject(victim)),
        );
    if pools > Bytes::ZERO {
        finding.note(format!(
            "MemAvailable leaves out the huge page pools ({pools}, {} of memory): of the {} outside them {} \
             are available.",
            Percent(pools.share_of(total)),
            total - pools,
            Percent(available.share_of(total - pools))
        ));
    }
    finding
        .remedy(exempt(&victim.stat.name))
        .note("earlyoom's own arguments are not read: an --avoid pattern may be there already.");
    Ok(Some(finding))
}

fn exempt(name: &str) -> Remedy {
    Remedy::new(format!("Exempt {name} in earlyoom's arguments"))
        .keep("/etc/default/earlyoom", format!("EARLYOOM_ARGS=\"--avoid '^({})$'\"", pattern(name)))
        .run("systemctl restart earlyoom")
        .risk("Keep arguments that are set there already. Others are killed first.")
}

/// `name` as a regular expression between quotes: what may mean something there becomes "any character".
fn pattern(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '.' }).collect()
}
