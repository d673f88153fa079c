use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::kernel_log::hardware::HardwareError;
use lotsfree_units::{Bytes, Grouped, words};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Remedy, Rule, Severity, Skip};

rule! {
    /// The memory hardware reports errors.
    ///
    /// # Sees
    /// Corrected and uncorrected errors counted by EDAC, over two samples whether they grow, and
    /// `HardwareCorrupted` in `/proc/meminfo`; without these what the kernel log says (`Memory failure`,
    /// `EDAC`).
    ///
    /// # Hurts
    /// An uncorrected error destroys a page: the process that uses it is killed, or the host stops. Corrected
    /// errors cost nothing by themselves, but a module that has them gets uncorrected ones far more often
    /// than others, and floods of them slow the host with interrupts. A huge page that is hit loses 2 MiB or
    /// 1 GiB.
    ///
    /// # Remedies
    /// Replace the module; page off what is bad until then.
    ///
    /// # False alarms
    /// `HardwareCorrupted` counts pages that were taken out of use on suspicion (soft offline) and by test
    /// programs as well. Without an EDAC driver (most guests) only `HardwareCorrupted` is looked at. Counters
    /// since boot say that it has happened, not that it goes on.
    ///
    /// # References
    /// `Documentation/admin-guide/RAS/main.rst`; mm/memory-failure.c:memory_failure and soft_offline_page
    /// (6.12); thresholds of netdata's alarms for EDAC.
    pub HardwareErrors = "hardware-errors" in Host
}

/// Errors of one kind since boot.
struct Errors {
    now: u64,
    before: Option<u64>,
}

impl Errors {
    fn grown(&self, cx: &Context<'_>) -> Option<Rate> {
        Rate::of(&[(0.0, self.before?), (cx.seconds().ok()?, self.now)]).filter(|rate| rate.total > 0)
    }

    fn saw(&self, field: &str) -> Evidence {
        let evidence = Evidence::new("/sys/devices/system/edac/mc/mc*", field, Grouped(self.now))
            .against("0", "netdata's alarm");
        match self.before {
            Some(before) => evidence.was(Grouped(before)),
            None => evidence,
        }
    }
}

/// Corrected errors a day that mcelog reports of a module (`ce-threshold` of its dimm section).
const OFTEN: f64 = 10.0;

impl Rule for HardwareErrors {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let corrupted = cx.mem(m::HardwareCorrupted);
        let edac = cx.now().edac;
        let logged = cx.now().kernel_log.as_ref().map(|log| log.hardware.as_slice()).unwrap_or_default();
        if edac.is_none() && corrupted.is_err() && logged.is_empty() {
            return Err(Skip::Unknown(vec![
                "/proc/meminfo HardwareCorrupted".to_owned(),
                "/sys/devices/system/edac/mc".to_owned(),
            ]));
        }
        let corrupted = corrupted.unwrap_or_default();
        let counts = edac.unwrap_or_default();
        let before = cx.before().ok().and_then(|before| before.edac);
        let uncorrected = Errors { now: counts.uncorrected, before: before.map(|b| b.uncorrected) };
        let corrected = Errors { now: counts.corrected, before: before.map(|b| b.corrected) };
        let mut found = Vec::new();
        if uncorrected.now > 0 {
            found.push(of_uncorrected(cx, &uncorrected));
        }
        if corrected.now > 0 {
            found.push(of_corrected(cx, &corrected));
        }
        if corrupted > Bytes::ZERO {
            let sure = if uncorrected.now > 0 { Confidence::Certain } else { Confidence::Likely };
            found.push(of_corrupted(cx, corrupted, sure));
        } else if found.is_empty() {
            found.extend(of_log(logged));
        }
        Ok(found)
    }
}

fn of_uncorrected(cx: &Context<'_>, errors: &Errors) -> Finding {
    let more = if errors.grown(cx).is_some() { ", and more while it was watched" } else { "" };
    let mut finding = Finding::new(
        HardwareErrors::ID,
        Severity::Critical,
        format!("memory has had {} since boot{more}", counted(errors.now, "uncorrected")),
        Cost::risk("each destroys a page: what used it is killed or works with wrong data"),
    );
    finding.sure(Confidence::Certain).because(errors.saw("ue_count"));
    add_remedies(&mut finding);
    finding
}

fn of_corrected(cx: &Context<'_>, errors: &Errors) -> Finding {
    let rate = errors.grown(cx);
    let how_often = match (rate, cx.now().uptime) {
        (Some(rate), _) => format!(", {:.1} more every minute", rate.per_second * 60.0),
        (None, Some(uptime)) if uptime > 0.0 => {
            format!(", {:.1} a day", errors.now as f64 * 86_400.0 / uptime)
        }
        _ => String::new(),
    };
    let daily = cx.now().uptime.map_or(0.0, |uptime| errors.now as f64 * 86_400.0 / uptime.max(86_400.0));
    let often = rate.is_some() || daily >= OFTEN;
    let mut finding = Finding::new(
        HardwareErrors::ID,
        if often { Severity::Warning } else { Severity::Info },
        format!("memory has had {} since boot{how_often}", counted(errors.now, "corrected")),
        Cost::risk(
            "nothing is lost yet; uncorrected errors follow on such modules more often than on others",
        ),
    );
    finding
        .sure(if rate.is_some() { Confidence::Certain } else { Confidence::Likely })
        .because(errors.saw("ce_count"));
    add_remedies(&mut finding);
    finding
}

/// What only the log tells.
fn of_log(logged: &[HardwareError]) -> Option<Finding> {
    let sum = |of: fn(&HardwareError) -> u64| logged.iter().map(of).sum::<u64>();
    let taken = sum(|error| u64::from(matches!(error, HardwareError::Taken { .. })));
    let injected = sum(|error| u64::from(*error == HardwareError::Injected));
    let corrected =
        sum(|error| if let HardwareError::Corrected(count) = error { u64::from(*count) } else { 0 });
    let uncorrected =
        sum(|error| if let HardwareError::Uncorrected(count) = error { u64::from(*count) } else { 0 });
    let (severity, title) = if taken > injected || uncorrected > 0 {
        let text = match taken {
            0 => format!("the log has {} of memory", counted(uncorrected, "uncorrected")),
            taken => {
                let pages =
                    if taken == 1 { "a page".to_owned() } else { format!("{} pages", Grouped(taken)) };
                format!("the kernel took {pages} out of use because of a hardware error of memory")
            }
        };
        (Severity::High, text)
    } else if injected > 0 {
        let text = format!(
            "somebody injected {}: the kernel takes such pages out of use, and kills what touches one",
            counted(injected, "memory")
        );
        (Severity::Warning, text)
    } else if corrected > 0 {
        let severity = if corrected as f64 >= OFTEN { Severity::Warning } else { Severity::Info };
        (
            severity,
            format!("the log has {} of memory: nothing was lost by that", counted(corrected, "corrected")),
        )
    } else if logged.contains(&HardwareError::Void) {
        return Some(of_void());
    } else {
        return None;
    };
    let mut finding = Finding::new(
        HardwareErrors::ID,
        severity,
        title,
        Cost::risk("what used such a page is killed or works with wrong data"),
    );
    finding.sure(Confidence::Likely);
    for (name, count) in [
        ("Memory failure", taken),
        ("Injecting memory failure", injected),
        ("EDAC CE", corrected),
        ("EDAC UE", uncorrected),
    ] {
        finding.because_if((count > 0).then(|| Evidence::new("kernel log", name, Grouped(count))));
    }
    if injected > 0 {
        finding.note("Tests of the kernel inject errors (madvise with MADV_HWPOISON, hwpoison-inject): the hardware is sound.");
    }
    if taken > injected || uncorrected > 0 || injected == 0 {
        add_remedies(&mut finding);
    }
    Some(finding)
}

/// What `igen6_edac` reports where there is no error.
fn of_void() -> Finding {
    let mut finding = Finding::new(
        HardwareErrors::ID,
        Severity::Info,
        "the driver igen6_edac reports errors at address 0x7fffffffe0, which its register shows when there is none: \
         memory is not at fault",
        Cost::risk("the log fills; memory works"),
    );
    finding
        .sure(Confidence::Likely)
        .because(Evidence::new("kernel log", "EDAC igen6", "ADDR 0x7fffffffe0"))
        .remedy(
            Remedy::new("Do not load the driver, or take a later kernel")
                .keep("/etc/modprobe.d/igen6.conf", "blacklist igen6_edac")
                .risk("Real errors of in-band ECC, where the processor has it, are then not reported."),
        )
        .note("If another test of memory (memtest86+) finds errors, believe that one.");
    finding
}

fn of_corrupted(cx: &Context<'_>, corrupted: Bytes, sure: Confidence) -> Finding {
    let cost = match cx.total() {
        Ok(total) => {
            Cost::memory(corrupted, total, "taken out of use, and what was in it was lost if it was in use")
        }
        Err(_) => Cost::risk(format!("{corrupted} are out of use")),
    };
    let mut finding = Finding::new(
        HardwareErrors::ID,
        Severity::High,
        format!("{corrupted:#} of memory were taken out of use as faulty"),
        cost,
    );
    finding.sure(sure).because(cx.saw_mem(m::HardwareCorrupted).against("0 kB", "netdata's alarm")).note(
        "The kernel log says why (\"Memory failure\", \"Soft offlining\"): pages that were \
         moved away on suspicion lost nothing, those that failed in use killed a process.",
    );
    add_remedies(&mut finding);
    finding
}

fn add_remedies(finding: &mut Finding) {
    finding
        .remedy(
            Remedy::new("Find the module and replace it")
                .run("grep . /sys/devices/system/edac/mc/mc*/dimm*/dimm_{label,ce_count,ue_count}")
                .run("ras-mc-ctl --errors")
                .risk("A maintenance window. Until then rasdaemon can take pages with repeated errors out of use.")
                .restart("the host, to change the module"),
        )
        .note("How to choose: uncorrected errors and growing corrected ones are replaced now; a few corrected ones since a long time ago are watched.");
}

fn counted(n: u64, kind: &str) -> String {
    words::counted(n, &format!("{kind} error"))
}
