use std::collections::BTreeMap;

use lotsfree_kernel_files::file::kernel_log::KernelLog;
use lotsfree_kernel_files::file::kernel_log::report::Trigger;
use lotsfree_settings::MIN_FREE_KBYTES;
use lotsfree_units::Bytes;

use crate::kernel_report::{Cause, Judged};
use crate::remedies;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity};

rule! {
    /// The kernel could not allocate memory, or waited long for it, and nobody was killed.
    ///
    /// # Sees
    /// `page allocation failure` and `page allocation stalls for` in the kernel log: who asked for how much
    /// and whether it could wait; from the report that follows, what each zone had free, its watermarks,
    /// its blocks by size and its CMA memory.
    ///
    /// # Hurts
    /// A network driver drops packets, a file system or storage driver waits or fails, a module does not
    /// load, a process is refused. A failure of an allocation that may not wait is retried in most drivers
    /// and costs a packet; one of many contiguous pages tends to come back, because memory does not mend
    /// itself.
    ///
    /// # Remedies
    /// Where the reserve was empty: a higher `vm.min_free_kbytes`. Where blocks were missing: the driver's
    /// own setting (smaller rings, smaller frames), compaction, more free memory. Where a low zone was
    /// empty: a 64-bit kernel or a driver that can use all memory. Where the host was short: what took it.
    ///
    /// # False alarms
    /// A few failures of order 0 that may not wait, in bursts of network traffic, are what the kernel
    /// expects: drivers retry. `__GFP_NOWARN` requests fail in silence and are not seen.
    ///
    /// # References
    /// `mm/page_alloc.c:warn_alloc` and `__alloc_pages_slowpath` (6.12);
    /// `Documentation/admin-guide/sysctl/vm.rst`, min_free_kbytes.
    pub AllocationFailure = "allocation-failure" in Reclaim
}

/// Page cache of this share of memory is enough to go on with.
const SPARE: f64 = 0.05;

/// What sort of failure, for one finding each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Order,
    Reserve,
    Zone,
    Host,
    EnoughFree,
    Addresses,
    Stall,
}

struct Failures<'a> {
    last: Option<Judged<'a>>,
    count: usize,
    order: u32,
    process: String,
}

impl Rule for AllocationFailure {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let log = cx.kernel_log()?;
        let kinds = by_kind(log);
        if kinds.is_empty() {
            return cx.not_logged();
        }
        Ok(kinds.into_iter().map(|(kind, failures)| found(cx, kind, &failures)).collect())
    }
}

fn by_kind(log: &KernelLog) -> BTreeMap<Kind, Failures<'_>> {
    let mut kinds: BTreeMap<Kind, Failures<'_>> = BTreeMap::new();
    for report in &log.reports {
        // A kill that follows is oom-happened's.
        let stalled = matches!(report.trigger, Trigger::AllocationStall(_));
        let failed = matches!(report.trigger, Trigger::AllocationFailure | Trigger::VmallocFailure(_));
        if !(stalled || failed) || !report.kills.is_empty() {
            continue;
        }
        let judged = Judged::of(report);
        let kind = match judged.cause {
            _ if stalled => Kind::Stall,
            Cause::Fragmented { .. } => Kind::Order,
            Cause::Reserve => Kind::Reserve,
            Cause::LowZone { .. } | Cause::Cma { .. } | Cause::Policy => Kind::Zone,
            Cause::EnoughFree { .. }
            | Cause::CacheKept { .. }
            | Cause::ListsKept { .. }
            | Cause::Miscounted { .. } => Kind::EnoughFree,
            Cause::Addresses(_) => Kind::Addresses,
            Cause::Host | Cause::Group | Cause::Asked | Cause::Untold => Kind::Host,
        };
        let order = report.request.as_ref().and_then(|request| request.order.try_into().ok()).unwrap_or(0);
        let process = report.process.clone();
        let seen =
            kinds.entry(kind).or_insert(Failures { last: None, count: 0, order: 0, process: String::new() });
        *seen = Failures { last: Some(judged), count: seen.count + 1, order: seen.order.max(order), process };
    }
    kinds
}

fn found(cx: &Context<'_>, kind: Kind, failures: &Failures<'_>) -> Finding {
    let severity = match kind {
        Kind::Host | Kind::Stall => Severity::High,
        // In a log alone it is what somebody asks about.
        Kind::Reserve if failures.count < 3 && cx.now().meminfo.is_some() && cx.now().uptime.is_some() => {
            Severity::Info
        }
        _ => Severity::Warning,
    };
    let cost = Cost::risk(match failures.count {
        1 => "one allocation failed; what it was for depends on who asked".to_owned(),
        count => format!("{count} allocations failed in the part of the log that is here"),
    });
    let judged = failures.last.as_ref();
    let mut finding = Finding::new(AllocationFailure::ID, severity, title(kind, failures), cost);
    finding.sure(match judged {
        Some(judged) if !judged.report.memory.zones.is_empty() => Confidence::Likely,
        _ => Confidence::Possible,
    });
    if let Some(judged) = judged {
        if let Some(request) = &judged.report.request {
            let flags =
                if request.flags.is_empty() { format!("{:#x}", request.mask) } else { request.flags.clone() };
            let value = format!("order {}, {flags}", request.order);
            finding
                .because(Evidence::new("kernel log", "page allocation failure", value).of(&failures.process));
        }
        finding.because_all(judged.zone_evidence());
        let holders = judged.holder_evidence();
        if matches!(kind, Kind::Host | Kind::Stall) && !holders.is_empty() {
            finding.because_all(holders).note("What took the memory is in the figures above.");
        }
        if let (Kind::Order, Some(lines)) = (kind, blocks(judged, failures.order)) {
            finding.note(lines);
        }
        if judged.report.memory.is_empty() {
            finding.note("The report that follows such a line (Mem-Info, zones, free blocks) is not in this log; it would tell more.");
        }
    }
    add_remedies(cx, kind, &mut finding);
    finding
}

/// What holds the memory, if that is not processes: `; unreclaimable slab took 1,500,000 kB`.
fn took(judged: Option<&Judged<'_>>) -> String {
    let culprit = judged.and_then(|judged| judged.culprit());
    culprit.map_or_else(String::new, |(holder, bytes)| format!("; {} takes {bytes:#}", holder.name()))
}

fn title(kind: Kind, failures: &Failures<'_>) -> String {
    let process = &failures.process;
    let judged = failures.last.as_ref();
    let wanted = judged.and_then(Judged::wanted).unwrap_or_else(|| "memory".to_owned());
    match (kind, judged.map(|judged| &judged.cause)) {
        (Kind::Order, Some(Cause::Fragmented { free })) if *free > Bytes::ZERO => {
            format!(
                "{process} could not get {wanted}: memory is fragmented, with {free:#} free in smaller pieces"
            )
        }
        (Kind::Order, _) => match judged.and_then(Judged::asked_zone) {
            Some(zone) => format!("{process} could not get {wanted} from the {zone} zone"),
            None => format!("{process} could not get {wanted}: memory was fragmented, most likely"),
        },
        (Kind::Reserve, _)
            if failures.order > 0 && judged.is_some_and(|judged| judged.report.memory.is_empty()) =>
        {
            format!(
                "{process} could not wait for memory and got no {wanted}: memory was fragmented, or the reserve empty"
            )
        }
        (Kind::Reserve, _) => {
            let zone = judged.and_then(Judged::lowest_zone).map_or_else(String::new, |(name, free, min)| {
                format!("; zone {name} had {free:#} free, its min is {min:#}")
            });
            format!(
                "{process} could not wait for memory and found the reserve empty: {wanted} refused{zone}{}",
                took(judged)
            )
        }
        (Kind::Zone, Some(Cause::LowZone { zone, elsewhere, free })) => format!(
            "{process} could not get {wanted} from the {} zone, while {free:#} were free in {}, which it \
             could not use",
            zone.name(),
            elsewhere.name()
        ),
        (Kind::Zone, Some(Cause::Cma { cma, .. })) => {
            format!(
                "{process} could not get {wanted}: what was free was CMA memory ({cma:#}), which it could not use"
            )
        }
        (Kind::Zone, _) => {
            format!("{process} could not get {wanted} from the nodes that it may use; others had memory")
        }
        (Kind::Addresses, Some(Cause::Addresses(bytes))) => {
            let who = if process.is_empty() { "the kernel" } else { process.as_str() };
            format!("{who} found no {bytes} of contiguous kernel addresses for vmalloc; pages were free")
        }
        (Kind::EnoughFree, Some(Cause::Miscounted { zone, min })) => format!(
            "{process} could not get {wanted}: the min watermark of zone {zone} is {min:#}, more than it has; the \
             kernel lost count"
        ),
        (Kind::EnoughFree, _) => {
            format!("{process} could not get {wanted} although the zones had enough free")
        }
        (Kind::Stall, Some(_)) => {
            let waited = judged.map_or(0, |judged| match judged.report.trigger {
                Trigger::AllocationStall(ms) => ms,
                _ => 0,
            });
            format!("{process} waited {:.0} s for {wanted}", waited as f64 / 1000.0)
        }
        (_, Some(Cause::Untold)) => {
            let zone = judged.and_then(Judged::asked_zone).map(|zone| format!(" from the {zone} zone"));
            format!("{process} could not get {wanted}{}", zone.unwrap_or_default())
        }
        // With cache to drop, or without an account of it, it was the moment's shortage.
        _ => match judged.and_then(|judged| Some((judged, judged.lowest_zone()?))) {
            Some((judged, (name, free, min))) if judged.has_room(SPARE) => {
                format!("{process} could not get {wanted}: zone {name} had {free:#} free, its min is {min:#}")
            }
            _ => format!("{process} could not get {wanted}: the host was out of memory"),
        },
    }
}

/// What was free in blocks of the order and above.
fn blocks(judged: &Judged<'_>, order: u32) -> Option<String> {
    let memory = &judged.report.memory;
    let zones = memory.zones.iter().filter_map(|zone| {
        let free = memory.bytes(zone.free_pages_from(0)?);
        let whole = memory.bytes(zone.free_pages_from(order)?);
        Some(format!("{} {whole:#} of {free:#}", zone.name))
    });
    let zones: Vec<String> = zones.collect();
    (!zones.is_empty()).then(|| format!("Free in blocks of order {order} or more: {}.", zones.join(", ")))
}

fn add_remedies(cx: &Context<'_>, kind: Kind, finding: &mut Finding) {
    match kind {
        Kind::Reserve => {
            let now = cx.sysctl(MIN_FREE_KBYTES).ok();
            let remedy = Remedy::new("Double the reserve, vm.min_free_kbytes").risk(
                "That memory is lost to everything else, and kswapd works earlier; more than 5 % of memory brings the OOM \
                 killer closer.",
            );
            let remedy = match now {
                Some(now) => remedy.sysctl(cx, MIN_FREE_KBYTES, now.saturating_mul(2)),
                None => remedy.run("sysctl -w vm.min_free_kbytes=$(( 2 * $(sysctl -n vm.min_free_kbytes) ))"),
            };
            finding.remedy(remedy);
            if let Ok(remedy) = remedies::wider_watermarks(cx) {
                finding.remedy(remedy);
            }
        }
        Kind::Order => {
            finding
                .remedy(
                    Remedy::new("Compact memory once, at a quiet hour")
                        .run("echo 1 > /proc/sys/vm/compact_memory")
                        .risk("Takes CPU for seconds to minutes on a large host. Pages that the kernel holds do not move."),
                )
                .note(
                    "Who asks for contiguous pages can ask for fewer: smaller rings or frames of a network card, a smaller \
                     transfer size of a storage driver, a driver that falls back to vmalloc. A driver that is loaded again \
                     after days of uptime fails where it succeeded at boot.",
                );
        }
        Kind::Zone => {
            finding.note(
                "More memory does not help: it is added to a zone that was not short. A 64-bit kernel ends the shortage of \
                 lowmem; a smaller cma= on the kernel command line leaves more for requests that cannot use CMA; a driver \
                 that asks for DMA memory may have a wider mask in a later release.",
            );
        }
        Kind::Addresses => {
            finding.note(
                "32-bit kernels keep little address space for vmalloc: a larger vmalloc= on the kernel command line (taken \
                 from lowmem), fewer modules and I/O mappings, or no KASAN.",
            );
        }
        Kind::EnoughFree | Kind::Host | Kind::Stall => {}
    }
}
