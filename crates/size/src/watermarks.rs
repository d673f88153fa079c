//! `size watermarks`: min_free_kbytes as kernel and vendors see it, and the gap that a burst needs.

use clap::Args;
use lotsfree_formulas::vendors::{
    MIN_FREE_TOLERANCE_HIGH, MIN_FREE_TOLERANCE_LOW, SAP_MIN_FREE_MAX_KIB, oracle_min_free_kib,
    sap_min_free_kib,
};
use lotsfree_formulas::watermarks::{
    WATERMARK_SCALE_FACTOR_DEFAULT, WATERMARK_SCALE_FACTOR_MAX, WatermarkRules, khugepaged_min_free_kib,
    min_free_kib, min_free_raw_kib, scale_factor_for_burst, scale_gap,
};
use lotsfree_settings::MIN_FREE_KBYTES;
use lotsfree_units::words::plural;
use lotsfree_units::{Bytes, Grouped, PageSize};

use crate::answer::NO_RESTART;
use crate::check::{self, MAX_NODES, SizeError};
use crate::question::{HostFigures, Question, not_told, take};
use crate::{Answer, Value};

/// How long kswapd may need until it frees pages, in milliseconds: the cautious end of 0.1 to 0.5 s.
const WAKE_MS_DEFAULT: u64 = 500;
/// Largest `watermark_scale_factor` accepted as input: what newer kernels take at most.
const SCALE_FACTOR_INPUT_MAX: u64 = 3000;

/// The host, its settings, and its burst.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct WatermarksInput {
    /// Whether figures of a host or a saved source were taken.
    #[arg(skip)]
    pub sourced: bool,
    /// Memory of the host
    ///
    /// Taken as evenly spread over the nodes.
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub ram: Option<Bytes>,
    /// NUMA nodes
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Populated zones of all nodes
    ///
    /// If absent: a Normal zone on each node, and DMA and DMA32 on node 0 (a single node with up to 3 GiB has
    /// no Normal).
    #[arg(long, value_name = "N")]
    pub zones: Option<u64>,
    /// Transparent huge pages are off
    #[arg(long)]
    pub no_thp: bool,
    /// vm.watermark_scale_factor
    #[arg(long, value_name = "N")]
    pub scale_factor: Option<u64>,
    /// vm.min_free_kbytes that is set, as an amount of memory
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub min_free: Option<Bytes>,
    /// Bytes per second that the host allocates in a burst
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub burst: Option<Bytes>,
    /// Milliseconds until kswapd frees pages [default: 500]
    #[arg(long = "wake", value_name = "MS")]
    pub wake_ms: Option<u64>,
    /// Base page size
    #[arg(long = "page-size", value_name = "SIZE", value_parser = check::amount)]
    pub page: Option<Bytes>,
    /// Kernel release whose rules apply [default: the host's, else the newest]
    #[arg(long, value_name = "RELEASE")]
    pub kernel: Option<String>,
}

impl Question for WatermarksInput {
    fn take_from(&mut self, host: &HostFigures) -> Result<(), SizeError> {
        self.sourced = true;
        take(&mut self.ram, host.ram);
        take(&mut self.nodes, host.nodes);
        take(&mut self.zones, host.zones);
        self.no_thp |= host.thp_never;
        take(&mut self.min_free, host.min_free);
        take(&mut self.page, host.page);
        take(&mut self.kernel, host.kernel.clone());
        // Rules that --kernel names may lack what the host has.
        if check::rules(self.kernel.as_deref())?.watermarks.scale_factor {
            take(&mut self.scale_factor, host.scale_factor);
        }
        Ok(())
    }

    fn kernel(&self) -> Option<Option<&str>> {
        Some(self.kernel.as_deref())
    }

    fn answer(&self) -> Result<Answer, SizeError> {
        watermarks(self)
    }
}

/// Sizes watermarks.
///
/// # Errors
///
/// [`SizeError`] for an empty or impossible amount, more nodes than memory has pages, or a setting out of
/// range.
pub fn watermarks(input: &WatermarksInput) -> Result<Answer, SizeError> {
    let ram = check::ram(input.ram, input.sourced)?;
    let nodes = u64::from(check::nodes(input.nodes)?);
    let page = check::page("page", input.page)?;
    let kernel = check::rules(input.kernel.as_deref())?;
    let rules = kernel.watermarks;
    if let Some(factor) = input.scale_factor.filter(|_| !rules.scale_factor) {
        return Err(SizeError::OutOfRange {
            field: "--scale-factor",
            value: Grouped(factor).to_string(),
            accepted: format!(
                "no value: kernels before 4.6, {} among them, have no vm.watermark_scale_factor; --min-free is what \
                 widens their gap",
                kernel.name
            ),
        });
    }
    let scale_factor = check::number(
        "scale_factor",
        input.scale_factor.unwrap_or(WATERMARK_SCALE_FACTOR_DEFAULT),
        1,
        SCALE_FACTOR_INPUT_MAX,
    )?;
    let wake_ms = check::number("wake_ms", input.wake_ms.unwrap_or(WAKE_MS_DEFAULT), 1, 60_000)?;
    let zones = zones(input, ram, nodes)?;
    if page.pages(ram) < nodes {
        return Err(SizeError::OutOfRange {
            field: "ram",
            value: ram.to_string(),
            accepted: format!("at least a page of {} for each of the {nodes} nodes", page.bytes()),
        });
    }
    let on = plural(usize::try_from(nodes).unwrap_or(usize::MAX), "node");
    let mut answer = Answer::new(format!("Watermarks of a host with {ram} on {on} ({})", kernel.name));

    let chosen = parties(&mut answer, input, &Parties { rules: &rules, page, zones, ram, nodes });
    // What follows for a node.
    let current = current(input, ram, chosen)?;
    let node_pages = page.pages(ram) / nodes;
    let min_pages = current / page.bytes().as_kib() / nodes;
    reserve(&mut answer, input, current, chosen);
    answer.step(
        "min mark per node: below it tasks reclaim",
        format!("{} kB / {nodes}", Grouped(current)),
        Value::Bytes(page.of(min_pages)),
    );
    let gap_pages =
        if rules.scale_factor { scale_gap(min_pages, node_pages, scale_factor) } else { min_pages / 4 };
    let gap = page.of(gap_pages);
    answer.step(
        "gap from min to low per node",
        if rules.scale_factor {
            format!("max(min / 4, {} x {scale_factor} / 10,000)", page.of(node_pages))
        } else {
            "min / 4 (no watermark_scale_factor)".into()
        },
        Value::Bytes(gap),
    );
    answer.step(
        "low mark per node: below it kswapd wakes",
        format!("{} + {gap}", page.of(min_pages)),
        Value::Bytes(page.of(min_pages.saturating_add(gap_pages))),
    );
    let high = page.of(if rules.scale_factor {
        min_pages.saturating_add(gap_pages.saturating_mul(2))
    } else {
        min_pages + min_pages / 2
    });
    answer.step("high mark per node: at it kswapd sleeps", "", Value::Bytes(high));
    match input.burst {
        Some(burst) => {
            let node = page.of(node_pages);
            absorb(&mut answer, rules.scale_factor, check::memory("burst", burst)?, wake_ms, node, gap)?;
        }
        None if input.min_free.is_some() => answer.conclude(
            format!("With vm.min_free_kbytes = {current} kswapd has {gap} of head start per node."),
            Value::Kib(current),
        ),
        None => answer.conclude(
            format!(
                "The kernel chooses vm.min_free_kbytes = {chosen}; kswapd has {gap} of head start per node."
            ),
            Value::Kib(chosen),
        ),
    }
    warnings(&mut answer);
    Ok(answer)
}

/// Judges the reserve that is set, if one was given.
fn reserve(answer: &mut Answer, input: &WatermarksInput, current: u64, chosen: u64) {
    if input.min_free.is_some() {
        return compared(answer, current, chosen);
    }
    let why = not_told(MIN_FREE_KBYTES, "--min-free SIZE", input.sourced);
    answer.observe(None, format!("Whether the host's reserve fits is not known: {why}."));
}

/// Populated zones, as given or as a host of this size has them.
fn zones(input: &WatermarksInput, ram: Bytes, nodes: u64) -> Result<u64, SizeError> {
    match input.zones {
        Some(zones) => check::number("zones", zones, 1, 4 * u64::from(MAX_NODES)),
        None => Ok(default_zones(ram, nodes)),
    }
}

/// The host for which parties ask for a reserve.
struct Parties<'a> {
    rules: &'a WatermarkRules,
    page: PageSize,
    zones: u64,
    ram: Bytes,
    nodes: u64,
}

/// What each party asks for; returns what the kernel chooses, in KiB.
fn parties(answer: &mut Answer, input: &WatermarksInput, host: &Parties<'_>) -> u64 {
    let Parties { rules, page, zones, ram, nodes } = *host;
    let by_kernel = min_free_kib(rules, ram.as_kib());
    let raw = min_free_raw_kib(ram.as_kib());
    answer.detail(
        "kernel",
        if raw == by_kernel {
            format!("sqrt(16 x {} kB)", Grouped(ram.as_kib()))
        } else {
            format!("sqrt(16 x {} kB) = {}, clamped", Grouped(ram.as_kib()), Grouped(raw))
        },
        Value::Kib(by_kernel),
    );
    let by_thp = khugepaged_min_free_kib(page, zones, page.pages(ram));
    let block = page.pmd_huge();
    let uncapped = (block.as_kib()).saturating_mul(11).saturating_mul(zones);
    answer.detail(
        "THP (khugepaged raises to)",
        if by_thp < uncapped {
            format!("5 % of RAM, less than 11 x {block} x {zones} zones")
        } else {
            format!("11 x {block} x {zones} zones")
        },
        Value::Kib(by_thp),
    );
    let chosen = if input.no_thp { by_kernel } else { by_kernel.max(by_thp) };
    answer.step(
        "default of this host",
        if input.no_thp { "without THP" } else { "the larger of the two" },
        Value::Kib(chosen),
    );
    let by_sap = sap_min_free_kib(ram);
    match by_sap {
        Some(kib) => answer.step("SAP, at least", "step for this much RAM", Value::Kib(kib)),
        None => answer.step("SAP, at least", "no step to 259 GiB: the kernel's", Value::Kib(by_kernel)),
    }
    answer.detail("SAP, at most", "", Value::Kib(SAP_MIN_FREE_MAX_KIB));
    let by_oracle = oracle_min_free_kib(ram, nodes);
    answer.step("Oracle", format!("max(0.5 % of {ram}, {nodes} x 1 GiB)"), Value::Kib(by_oracle));
    contradiction(answer, by_oracle, by_sap, chosen);
    chosen
}

/// `vm.min_free_kbytes` as it is set or chosen, in KiB.
fn current(input: &WatermarksInput, ram: Bytes, chosen: u64) -> Result<u64, SizeError> {
    let current = match input.min_free {
        Some(bytes) => check::memory("min_free", bytes)?.as_kib(),
        None => chosen,
    };
    if Bytes::kib(current) >= ram {
        return Err(SizeError::OutOfRange {
            field: "min_free",
            value: Bytes::kib(current).to_string(),
            accepted: format!("less than ram ({ram}); the kernel chooses {chosen} kB"),
        });
    }
    Ok(current)
}

/// The value that is set beside the kernel's, both in KiB.
fn compared(answer: &mut Answer, current: u64, chosen: u64) {
    let ratio = current as f64 / chosen as f64;
    answer.step(
        "set value against the default",
        format!("{} / {} kB", Grouped(current), Grouped(chosen)),
        Value::Percent(ratio * 100.0),
    );
    let fits = (MIN_FREE_TOLERANCE_LOW..=MIN_FREE_TOLERANCE_HIGH).contains(&ratio);
    answer.observe(
        Some(fits),
        format!(
            "{}: vm.min_free_kbytes is {}, and the kernel would choose {}.",
            if fits { "It fits" } else { "It does not fit" },
            Grouped(current),
            Grouped(chosen)
        ),
    );
    if !fits {
        answer.alert(format!(
            "vm.min_free_kbytes = {current} is outside {MIN_FREE_TOLERANCE_LOW} to {MIN_FREE_TOLERANCE_HIGH} of \
             what the kernel would choose ({chosen})."
        ));
    }
}

fn warnings(answer: &mut Answer) {
    answer.warn(
        "min_free_kbytes set too high leaves nothing to allocate and can bring the OOM killer at once; tuned and \
         khugepaged may overwrite it. watermark_scale_factor widens the gap without raising min.",
    );
    answer.warn(
        "The nodes are taken as equal, each as one zone. /proc/zoneinfo shows the marks of every zone; DMA and DMA32 \
         take their share of min.",
    );
}

/// Populated zones of an x86-64 host without Movable.
fn default_zones(ram: Bytes, nodes: u64) -> u64 {
    match (nodes, ram) {
        (1, ram) if ram <= Bytes::mib(16) => 1,
        (1, ram) if ram <= Bytes::gib(3) => 2,
        _ => nodes + 2,
    }
}

/// States where vendors exclude each other.
fn contradiction(answer: &mut Answer, by_oracle: u64, by_sap: Option<u64>, chosen: u64) {
    let floor = by_sap.unwrap_or(chosen);
    if by_oracle > SAP_MIN_FREE_MAX_KIB {
        answer.alert(format!(
            "Oracle and SAP exclude each other here: Oracle asks for {} kB, {:.0} times SAP's floor of {} kB, and SAP \
             calls more than {} kB an error. Follow the vendor of the program that runs on the host.",
            Grouped(by_oracle),
            by_oracle as f64 / floor.max(1) as f64,
            Grouped(floor),
            Grouped(SAP_MIN_FREE_MAX_KIB)
        ));
    } else if by_oracle > chosen {
        answer.alert(format!(
            "Oracle asks for {:.1} times the kernel's default; both lie within SAP's bounds.",
            by_oracle as f64 / chosen.max(1) as f64
        ));
    }
}

/// The scale factor that absorbs a burst.
fn absorb(
    answer: &mut Answer,
    has_factor: bool,
    burst: Bytes,
    wake_ms: u64,
    node: Bytes,
    gap: Bytes,
) -> Result<(), SizeError> {
    let factor = scale_factor_for_burst(burst, wake_ms, node)
        .ok_or(SizeError::Missing { field: "ram", accepted: "memory on every node" })?;
    let taken = Bytes((u128::from(burst.0) * u128::from(wake_ms) / 1000).min(u128::from(u64::MAX)) as u64);
    answer.step("taken before kswapd frees pages", format!("{burst}/s x {wake_ms} ms"), Value::Bytes(taken));
    answer.observe(
        Some(taken <= gap),
        match taken <= gap {
            true => format!(
                "It fits: the gap of {gap} holds the {taken} that the burst takes before kswapd frees pages."
            ),
            false => format!(
                "It does not fit: the burst takes {taken} before kswapd frees pages, {} more than the gap.",
                taken - gap
            ),
        },
    );
    if taken <= gap {
        answer.conclude(
            format!("The gap of {gap} lasts for the burst of {taken}: nothing to change."),
            Value::Bytes(gap),
        );
        return Ok(());
    }
    if !has_factor {
        answer.alert(format!(
            "This kernel has no watermark_scale_factor. Only min_free_kbytes widens the gap: a gap of {taken} per node \
             needs a min mark four times as large."
        ));
        let kib = taken.times(4).as_kib();
        answer.conclude(format!("The gap of {gap} is too small for {taken}."), Value::Kib(kib));
        return Ok(());
    }
    answer.step(
        "watermark_scale_factor for it",
        format!("10,000 x {taken} / {node}, rounded up"),
        Value::Count(factor),
    );
    if factor > WATERMARK_SCALE_FACTOR_MAX {
        answer.alert(format!(
            "{} is beyond {WATERMARK_SCALE_FACTOR_MAX} (10 % of memory), the largest value that every kernel takes: no \
             watermark absorbs this burst. Bound the job that allocates (memory.high) instead.",
            Grouped(factor)
        ));
        answer.conclude(format!("No watermark absorbs {taken} per node."), Value::Count(factor));
        return Ok(());
    }
    if factor > 100 {
        answer.alert("Above 100, two gaps keep more than 2 % of memory free on every node.");
    }
    let kept = node.scale(factor as f64 / 10_000.0);
    answer.step("gap per node then", format!("{node} x {factor} / 10,000"), Value::Bytes(kept));
    answer.sysctl_file(
        "/etc/sysctl.d/90-lotsfree-watermarks.conf",
        vec![format!("vm.watermark_scale_factor = {factor}")],
    );
    let set = format!("sysctl -w vm.watermark_scale_factor={factor}");
    answer.check(format!("{set} && sysctl -n vm.watermark_scale_factor"), factor);
    answer.restart(NO_RESTART);
    answer.conclude(
        format!("vm.watermark_scale_factor = {factor} gives kswapd {kept} of head start per node."),
        Value::Count(factor),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(answer: &Answer, text: &str) -> Value {
        answer.steps.iter().find(|step| step.text.starts_with(text)).unwrap().value
    }

    fn host(gib: u64, nodes: u32) -> WatermarksInput {
        WatermarksInput { ram: Some(Bytes::gib(gib)), nodes: Some(nodes), ..WatermarksInput::default() }
    }

    #[test]
    fn a_scale_factor_is_refused_by_kernels_that_have_none() {
        let old = |kernel: &str| WatermarksInput { kernel: Some(kernel.into()), ..host(64, 2) };
        for kernel in ["3.10.0-1160.el7.x86_64", "4.4.0", "linux-2.6.32-rhel6"] {
            let error = watermarks(&WatermarksInput { scale_factor: Some(100), ..old(kernel) }).unwrap_err();
            let said = error.to_string();
            assert!(
                said.starts_with("--scale-factor is 100; accepted is no value: kernels before 4.6"),
                "{said}"
            );
            assert!(said.contains("--min-free"), "{said}");
            // The host's own, read from a newer kernel, is no wish of anybody's.
            let mut sourced = old(kernel);
            sourced.take_from(&HostFigures { scale_factor: Some(100), ..HostFigures::default() }).unwrap();
            assert_eq!(
                watermarks(&sourced).map(|answer| answer.result),
                watermarks(&old(kernel)).map(|a| a.result)
            );
        }
        assert!(watermarks(&WatermarksInput { scale_factor: Some(100), ..old("4.18.0") }).is_ok());
    }

    #[test]
    fn a_terabyte_on_four_nodes_contradicts_itself() {
        let answer = watermarks(&host(1024, 4)).unwrap();
        assert_eq!(value(&answer, "kernel"), Value::Kib(131_072));
        // 6 zones
        assert_eq!(value(&answer, "THP"), Value::Kib(135_168));
        assert_eq!(value(&answer, "default"), Value::Kib(135_168));
        assert_eq!(value(&answer, "SAP, at least"), Value::Kib(91_494));
        assert_eq!(value(&answer, "SAP, at most"), Value::Kib(2_097_152));
        assert_eq!(value(&answer, "Oracle"), Value::Kib(5_368_709));
        assert!(answer.warnings[0].contains("5,368,709 kB, 59 times SAP's floor of 91,494 kB"));
        // 0.1 % of 256 GiB exceeds a quarter of 33 MiB
        assert_eq!(value(&answer, "gap"), Value::Bytes(Bytes::kib(4 * 67_108)));
    }

    #[test]
    fn the_graph_store_host_and_one_node() {
        let two =
            watermarks(&WatermarksInput { kernel: Some("2.6.32-642.el6".into()), ..host(48, 2) }).unwrap();
        assert_eq!(value(&two, "default"), Value::Kib(90_112));
        assert_eq!(value(&two, "kernel"), Value::Kib(28_377));
        // 11264 pages per node, a quarter of it
        assert_eq!(value(&two, "gap"), Value::Bytes(Bytes::kib(4 * 2816)));
        let one = watermarks(&host(48, 1)).unwrap();
        assert_eq!(value(&one, "default"), Value::Kib(67_584));
        let without = watermarks(&WatermarksInput { no_thp: true, ..host(48, 1) }).unwrap();
        assert_eq!(value(&without, "default"), Value::Kib(28_377));
        let old = watermarks(&WatermarksInput { kernel: Some("linux-5.4".into()), ..host(1024, 1) }).unwrap();
        assert_eq!(value(&old, "kernel"), Value::Kib(65_536));
        assert!(old.steps[0].formula.ends_with("= 131,072, clamped"));
    }

    #[test]
    fn a_burst_gives_the_scale_factor() {
        let input = WatermarksInput { burst: Some(Bytes::gib(1)), wake_ms: Some(100), ..host(64, 1) };
        let answer = watermarks(&input).unwrap();
        assert_eq!(answer.result.value, Value::Count(16));
        assert_eq!(answer.configuration[0].lines, ["vm.watermark_scale_factor = 16"]);
        let enough = watermarks(&WatermarksInput { scale_factor: Some(16), ..input.clone() }).unwrap();
        assert!(enough.result.text.contains("nothing to change"), "{enough:?}");
        let wild = watermarks(&WatermarksInput { burst: Some(Bytes::gib(100)), ..input.clone() }).unwrap();
        assert!(wild.configuration.is_empty());
        assert!(wild.warnings.iter().any(|text| text.contains("no watermark absorbs")));
        let old = watermarks(&WatermarksInput { kernel: Some("4.4.0".into()), ..input }).unwrap();
        assert!(old.warnings.iter().any(|text| text.contains("no watermark_scale_factor")));
    }

    #[test]
    fn a_set_value_is_compared_with_the_default() {
        let input = WatermarksInput { min_free: Some(Bytes::kib(67_584 * 2)), ..host(48, 1) };
        let answer = watermarks(&input).unwrap();
        assert_eq!(value(&answer, "set value"), Value::Percent(200.0));
        assert!(answer.warnings.iter().any(|text| text.contains("outside 0.8 to 1.5")));
        let near = WatermarksInput { min_free: Some(Bytes::kib(70_000)), ..host(48, 1) };
        assert!(!watermarks(&near).unwrap().warnings.iter().any(|text| text.contains("outside")));
    }

    #[test]
    fn bad_input_is_named() {
        let message = |input: WatermarksInput| watermarks(&input).unwrap_err().to_string();
        assert!(message(WatermarksInput::default()).starts_with("--ram SIZE is missing;"));
        assert!(
            message(WatermarksInput { ram: Some(Bytes::kib(8)), nodes: Some(3), ..host(1, 1) })
                .contains("each of the 3 nodes")
        );
        assert!(
            message(WatermarksInput { scale_factor: Some(0), ..host(1, 1) })
                .starts_with("scale_factor is 0;")
        );
        assert!(message(WatermarksInput { wake_ms: Some(0), ..host(1, 1) }).starts_with("wake_ms is 0;"));
        assert!(
            message(WatermarksInput { min_free: Some(Bytes::gib(1)), ..host(1, 1) })
                .starts_with("min_free is 1 GiB;")
        );
    }
}
