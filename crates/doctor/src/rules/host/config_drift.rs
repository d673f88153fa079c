use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::sysctl::{SysctlSetting, winner};
use lotsfree_settings::{
    MIN_FREE_KBYTES, NR_HUGEPAGES, NUMA_BALANCING, OVERCOMMIT_MEMORY, SEM, SHMALL, SHMMAX, SHMMNI,
    SWAPPINESS, find,
};
use lotsfree_units::Bytes;

use crate::remedy::{sysctl_file, word};
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Finding, Outcome, Remedy, Rule, Severity, Skip, advice};

rule! {
    /// Memory settings run with other values than the configuration files give them.
    ///
    /// # Sees
    /// Each running setting of `/proc/sys/vm` and of shared memory against the assignment that wins in
    /// `/etc/sysctl.conf` and the `sysctl.d` directories.
    ///
    /// # Hurts
    /// The host behaves differently after the next boot: a tuned database host comes back untuned, or a value
    /// that was tried by hand years ago and never written down disappears. Until then everybody who reads the
    /// files is misled.
    ///
    /// # Remedies
    /// Make file and running value the same, whichever is meant.
    ///
    /// # False alarms
    /// `vm.min_free_kbytes` is raised by khugepaged above the file's value; setting a `dirty_*bytes` sets its
    /// ratio to 0 and the other way round, as `overcommit_kbytes` does with `overcommit_ratio`. tuned sets
    /// its profile first and the files of `sysctl.d` after it (`reapply_sysctl`), but a profile that was
    /// changed by hand comes later.
    ///
    /// # References
    /// sysctl.d(5); tuned-main.conf(5), reapply_sysctl; tuned issues 226, 409, 492 and 752; mm/khugepaged.c:
    /// set_recommended_min_free_kbytes, mm/page-writeback.c:dirty_bytes_handler,
    /// mm/util.c:overcommit_kbytes_handler (6.12).
    pub ConfigDrift = "config-drift" in Host
}

struct Drift<'a> {
    name: &'a str,
    running: &'a str,
    setting: &'a SysctlSetting,
}

impl Rule for ConfigDrift {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let drifts = drifts(cx)?;
        if drifts.is_empty() {
            return Ok(Vec::new());
        }
        let mut finding = Finding::new(
            Self::ID,
            Severity::Info,
            title(&drifts),
            Cost::risk("the host changes its behaviour at the next boot, or at the next sysctl --system"),
        );
        finding.sure(Confidence::Certain);
        for drift in &drifts {
            let set_by = format!("{} line {}", path(drift.setting), drift.setting.line);
            finding.because(cx.saw_sysctl(drift.name).against(&drift.setting.value, set_by));
        }
        add_remedies(&mut finding, cx, &drifts);
        if drifts.iter().any(|drift| drift.name == NR_HUGEPAGES) {
            finding.note(
                "vm.nr_hugepages reads less than was asked for when memory was too fragmented: lotsfree size hugepages tells what is needed.",
            );
        }
        if let Some(profile) = &cx.now().tuners.tuned_profile {
            finding.note(format!(
                "tuned's profile {profile} is set: it applies sysctl.d after its own settings, unless \
                 reapply_sysctl is 0. A value that tuned changed comes back when tuned starts."
            ));
        }
        finding.note(
            "How to choose: ask who changed it and when; lotsfree cannot know which of the two was meant.",
        );
        Ok(vec![finding])
    }
}

/// Settings of memory whose running value the files do not give and the kernel did not make by itself.
fn drifts<'a>(cx: &Context<'a>) -> Result<Vec<Drift<'a>>, Skip> {
    let running = &cx.now().sysctl.0;
    if running.is_empty() {
        return Err(Skip::missing("/proc/sys/vm"));
    }
    let files = &cx.now().sysctl_files;
    if files.is_empty() {
        return Err(Skip::missing("/etc/sysctl.conf, /etc/sysctl.d, /usr/lib/sysctl.d"));
    }
    Ok(running
        .iter()
        .filter(|(name, _)| concerns_memory(name))
        .filter_map(|(name, running)| Some(Drift { name, running, setting: winner(files, name)? }))
        .filter(|drift| !same(drift.running, &drift.setting.value))
        .filter(|drift| !explained(cx, drift))
        .collect())
}

fn title(drifts: &[Drift<'_>]) -> String {
    match drifts {
        [one] => {
            format!("{} is {}, but {} sets {}", one.name, one.running, path(one.setting), one.setting.value)
        }
        _ => {
            let names = drifts.iter().map(|d| d.name).collect::<Vec<_>>().join(", ");
            format!("{} settings run with other values than their files give: {names}", drifts.len())
        }
    }
}

/// Proposes the file's value, the running one or either; where advice wants a third, a note says so instead.
fn add_remedies(finding: &mut Finding, cx: &Context<'_>, drifts: &[Drift<'_>]) {
    let (mut apply, mut keep) = (
        Remedy::new("Run with the configured values"),
        Remedy::new("Write the running values into the files"),
    );
    for drift in drifts {
        let advised = advised(cx, drift.name);
        if let Some((value, because)) =
            advised.as_ref().filter(|(value, _)| value != drift.running && *value != drift.setting.value)
        {
            finding
                .note(format!("{}: neither value; {value} is advised here, because {because}.", drift.name));
            continue;
        }
        let may = |value: &str| match &advised {
            Some((advised, _)) => advised == value,
            // How many huge pages is a matter of size, not of taste.
            None => drift.name != NR_HUGEPAGES,
        };
        if may(&drift.setting.value) {
            apply = apply
                .run(format!("sysctl -w {}={}", word(drift.name), word(&drift.setting.value)))
                .undo_with(format!("sysctl -w {}={}", word(drift.name), word(drift.running)))
                .sets(drift.name, &drift.setting.value);
        }
        if may(drift.running) {
            keep = keep
                .keep(&sysctl_file(cx, drift.name), format!("{} = {}", drift.name, drift.running))
                .sets(drift.name, drift.running);
        }
    }
    // The running values are what the host is known to work with: they come first.
    if !keep.persistent.is_empty() {
        finding.remedy(
            keep.risk("A value that was tried once and forgotten becomes permanent.")
                .undo_with("put the old lines back"),
        );
    }
    if !apply.runtime.is_empty() {
        finding.remedy(apply.risk("Somebody changed the running value for a reason: find out which first."));
    }
}

/// Other settings are read for other reasons and are nobody's business here.
fn concerns_memory(name: &str) -> bool {
    const KERNEL: &[&str] = &[NUMA_BALANCING, SEM, SHMALL, SHMMAX, SHMMNI];
    name.starts_with("vm.") || KERNEL.contains(&name)
}

fn path(setting: &SysctlSetting) -> String {
    format!("/{}", setting.file.trim_start_matches('/'))
}

/// Equal word by word; numbers as numbers, in the spellings that the kernel takes.
fn same(running: &str, configured: &str) -> bool {
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if word.len() > 1 && word.starts_with('0') => u64::from_str_radix(word, 8).ok(),
        None => word.parse().ok(),
    };
    let (mut a, mut b) = (running.split_ascii_whitespace(), configured.split_ascii_whitespace());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) if number(a).is_some() && number(a) == number(b) => {}
            _ => return false,
        }
    }
}

/// Differences that the kernel makes by itself.
fn explained(cx: &Context<'_>, drift: &Drift<'_>) -> bool {
    let running = |name: &str| cx.now().sysctl.number(name);
    if let Some(other) = find(drift.name).and_then(|setting| setting.twin) {
        // The files give both; the one that came last cleared this one.
        let configured = winner(&cx.now().sysctl_files, other);
        return drift.running == "0"
            && configured.is_some_and(|setting| running(other) == setting.value.parse().ok());
    }
    if drift.name == MIN_FREE_KBYTES {
        let khugepaged = cx.thp().map_or(true, |thp| &*thp.enabled.selected != "never");
        let configured = drift.setting.value.parse::<u64>().ok();
        // khugepaged never asks for more than 5 % of low memory.
        let most = cx.mem(m::MemTotal).map_or(Bytes(u64::MAX), |total| total.scale(0.05));
        return khugepaged
            && running(drift.name)
                .zip(configured)
                .is_some_and(|(now, file)| now > file && Bytes::kib(now) <= most);
    }
    false
}

/// What `advice` says of a contested setting.
fn advised(cx: &Context<'_>, name: &str) -> Option<(String, String)> {
    let advice = match name {
        SWAPPINESS => advice::swappiness(cx),
        OVERCOMMIT_MEMORY => advice::overcommit_memory(cx),
        NR_HUGEPAGES => advice::nr_hugepages(cx).ok()?,
        NUMA_BALANCING => advice::numa_balancing(cx),
        _ => return None,
    };
    Some((advice.value.to_string(), advice.because))
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn values_are_compared_as_the_kernel_reads_them() {
        for (a, b) in [
            ("60", "60"),
            ("250\t32000\t100\t128", "250 32000 100 128"),
            ("64", "0x40"),
            ("8", "010"),
            ("", ""),
        ] {
            assert!(same(a, b), "{a:?} {b:?}");
        }
        for (a, b) in [("60", "10"), ("250 32000", "250 32000 100"), ("0", ""), ("a", "b"), ("08", "8")] {
            assert!(!same(a, b), "{a:?} {b:?}");
        }
    }
}
