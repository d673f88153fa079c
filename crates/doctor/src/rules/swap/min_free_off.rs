use lotsfree_formulas::vendors::{SAP_MIN_FREE_MAX_KIB, oracle_min_free_kib, sap_min_free_kib};
use lotsfree_kernel_files::file::sysctl;
use lotsfree_settings::MIN_FREE_KBYTES;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::advice::{Advice, MinFree};
use crate::min_free::{Defaults, Origin};
use crate::rule::rule;
use crate::{
    ALLOCSTALL, Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Remedy, Rule, Severity, Skip,
    Workload, advice,
};

rule! {
    /// The reserve of free memory is far from what the kernel or the vendor of the program would choose.
    ///
    /// # Sees
    /// `vm.min_free_kbytes` against the value for this host: the kernel's own (from the size of memory and,
    /// with transparent huge pages, from the number of zones), or Oracle's or SAP's where one of them runs.
    /// It says where the running value comes from.
    ///
    /// # Hurts
    /// Too small, and bursts of allocations from the network or the file system find nothing before kswapd
    /// has run: tasks reclaim for themselves. Too large, and memory lies idle that nobody may use; far too
    /// large, and the OOM killer comes with gigabytes free.
    ///
    /// # Remedies
    /// The value of the kernel or of the vendor whose program runs.
    ///
    /// # False alarms
    /// khugepaged raises the value at boot and whenever transparent huge pages are turned on, over what a
    /// file of settings says: what it sets is accepted, also after they were turned off, and so is anything
    /// between 0.8 and 1.5 of the expected value. On ARM with 64 KiB pages that raise is 5 % of memory.
    ///
    /// # References
    /// `mm/page_alloc.c:calculate_min_free_kbytes` and `mm/khugepaged.c:set_recommended_min_free_kbytes`
    /// (6.12); Oracle's and SAP's checks (the figures of `lotsfree size watermarks`); memstate (tolerance);
    /// tuned issue 752; measured: 67,584 kB is 11 x 2,048 kB x 3 zones.
    pub MinFreeOff = "min-free-off" in Swap
}

const NAME: &str = MIN_FREE_KBYTES;
/// Kept back from here on, it is felt: 1 % of memory.
const FELT: f64 = 0.01;
/// Where the kernel's own raise stops; above it the OOM killer comes with gigabytes free.
const DANGEROUS: f64 = 0.05;

/// The running value and what it is measured by.
struct Seen {
    now: u64,
    total: Bytes,
    defaults: Defaults,
    advice: Advice<MinFree>,
    stalls: Option<Rate>,
}

impl Seen {
    fn of(cx: &Context<'_>) -> Result<Seen, Skip> {
        let now = cx.sysctl(NAME)?;
        let total = cx.total()?;
        cx.thp()?;
        cx.processes()?;
        let defaults = Defaults::of(cx)?;
        let advice = advice::min_free_kbytes(cx)?;
        Ok(Seen { now, total, defaults, advice, stalls: cx.rate(ALLOCSTALL).ok() })
    }

    fn is_accepted(&self) -> bool {
        let MinFree { least, most, .. } = self.advice.value;
        // What khugepaged set stays when transparent huge pages are turned off: nobody has to act on it.
        (least..=most).contains(&self.now)
            || (self.now > most && self.defaults.origin(self.now) == Some(Origin::ThpRaise))
    }

    fn is_low(&self) -> bool {
        self.now < self.advice.value.least
    }

    /// The reserve's share of memory.
    fn share(&self) -> f64 {
        Bytes::kib(self.now).share_of(self.total)
    }

    fn severity(&self, cx: &Context<'_>) -> Severity {
        let stalling = self.stalls.is_some_and(|rate| rate.total > 0);
        let sap = cx.runs(Workload::Hana) || cx.runs(Workload::Sap);
        let above_sap = sap && self.now > SAP_MIN_FREE_MAX_KIB;
        Severity::ladder(
            &[
                (self.is_low() && stalling, Severity::Warning),
                (self.is_low(), Severity::Info),
                (self.share() > DANGEROUS || above_sap, Severity::High),
                (self.share() > FELT, Severity::Warning),
            ],
            Severity::Info,
        )
    }

    fn title(&self, cx: &Context<'_>) -> String {
        let expected = self.advice.value.value;
        let factor = self.now as f64 / expected.max(1) as f64;
        let from = provenance(cx, &self.defaults, self.now);
        format!(
            "{NAME} is {}, {factor:.2} times the {} expected here ({}); it comes from {from}",
            Grouped(self.now),
            Grouped(expected),
            self.advice.because
        )
    }

    fn cost(&self) -> Cost {
        if self.is_low() {
            return Cost::risk(
                "bursts of allocations find nothing before kswapd has run, and tasks reclaim for themselves",
            );
        }
        let excess = Bytes::kib(self.now - self.now.min(self.advice.value.value));
        Cost::memory(excess, self.total, "kept free beyond the expected reserve, for nobody")
    }
}

impl Rule for MinFreeOff {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let seen = Seen::of(cx)?;
        if seen.is_accepted() {
            return Ok(Vec::new());
        }
        let mut finding = Finding::new(Self::ID, seen.severity(cx), seen.title(cx), seen.cost());
        let by_hand = seen.defaults.origin(seen.now).is_none();
        finding.sure(if by_hand { Confidence::Certain } else { Confidence::Likely });
        add_evidence(&mut finding, cx, &seen);
        add_notes(&mut finding, cx, &seen);
        let expected = seen.advice.value.value;
        finding.remedy(
            Remedy::new(format!("Set the reserve to {} kB", Grouped(expected)))
                .sysctl(cx, NAME, expected)
                .risk(
                    "Raising it makes the kernel reclaim that much at once. Far too high a value leaves \
                     nothing to allocate: check for typing errors. tuned, saptune and khugepaged may set it \
                     again.",
                ),
        );
        Ok(vec![finding])
    }
}

fn add_evidence(finding: &mut Finding, cx: &Context<'_>, seen: &Seen) {
    let MinFree { least, most, .. } = seen.advice.value;
    finding
        .because(
            cx.saw_sysctl(NAME)
                .against(format!("{} to {}", Grouped(least), Grouped(most)), &seen.advice.because),
        )
        .because(cx.saw_mem(lotsfree_kernel_files::counters::meminfo::MemTotal))
        .because(Evidence::new("/proc/zoneinfo", "populated zones", seen.defaults.zones));
    finding.because_if(seen.stalls.filter(|_| seen.is_low()).map(|rate| cx.saw_rate(ALLOCSTALL, &rate)));
    if let Some(setting) = sysctl::winner(&cx.now().sysctl_files, NAME) {
        finding.because(
            Evidence::new(format!("/{}", setting.file), &setting.name, &setting.value)
                .of(format!("line {}", setting.line)),
        );
    }
}

fn add_notes(finding: &mut Finding, cx: &Context<'_>, seen: &Seen) {
    let nodes = cx.nodes().map_or(1, <[_]>::len).max(1) as u64;
    let sap_step =
        sap_min_free_kib(seen.total).map_or("no step".to_owned(), |kib| format!("{} kB", Grouped(kib)));
    let raise = match seen.defaults.thp {
        true => "on",
        false => "off, so it does not count",
    };
    finding
        .note(format!(
            "For this host: the kernel at boot {} kB (4 x sqrt of {:#}), khugepaged {} kB ({} zones, \
             THP {raise}), Oracle {} kB (0.5 % of memory or 1 GiB x {nodes}), SAP {sap_step} and at \
             most {} kB.",
            Grouped(seen.defaults.by_size),
            seen.total,
            Grouped(seen.defaults.by_thp),
            seen.defaults.zones,
            Grouped(oracle_min_free_kib(seen.total, nodes)),
            Grouped(SAP_MIN_FREE_MAX_KIB)
        ))
        .note(seen.advice.contested);
    if seen.is_low() {
        finding.note(
            "For more room before kswapd must have run, vm.watermark_scale_factor (4.6 and later) is \
             the better setting: it raises low and high and leaves min alone.",
        );
    } else {
        finding.note(format!(
            "It is {} of memory; the low and high watermarks lie at least a quarter and a half above it \
             and are kept free too.",
            Percent(seen.share())
        ));
    }
}

/// Where the running value comes from, in words.
fn provenance(cx: &Context<'_>, defaults: &Defaults, now: u64) -> String {
    if let Some(setting) = sysctl::winner(&cx.now().sysctl_files, NAME) {
        return match setting.value.parse::<u64>() {
            Ok(value) if value == now => format!("/{} line {}", setting.file, setting.line),
            _ if defaults.origin(now) == Some(Origin::ThpRaise) => {
                format!("khugepaged, which raised the {} of /{}", setting.value, setting.file)
            }
            _ => format!("a later write than /{}, which says {}", setting.file, setting.value),
        };
    }
    match (defaults.origin(now), &cx.now().tuners.tuned_profile) {
        (Some(Origin::ThpRaise), _) => "khugepaged's raise for transparent huge pages".to_owned(),
        (Some(Origin::Boot), _) => "the kernel's choice at boot".to_owned(),
        (None, Some(profile)) => format!("a write by hand or by tuned (profile {profile})"),
        (None, None) => "a write by hand or by a tool: no file of settings that was read has it".to_owned(),
    }
}
