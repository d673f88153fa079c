use lotsfree_formulas::Rules;
use lotsfree_formulas::watermarks::{WatermarkRules, khugepaged_min_free_kib, min_free_kib, scale_gap};
use lotsfree_kernel_files::counters::zoneinfo as z;
use lotsfree_kernel_files::file::sysctl::winner;
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_settings::{MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR};
use lotsfree_units::{Bytes, Grouped, PageSize, Percent};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rule, Severity, Skip, remedies};

rule! {
    /// A zone's free pages are near or below its watermarks.
    ///
    /// # Sees
    /// `free`, `min`, `low` and `high` of each zone in `/proc/zoneinfo`: less than half a gap above high, at
    /// low, or at min. Says where `vm.min_free_kbytes`, from which the marks follow, comes from: the kernel's
    /// default, the raise for transparent huge pages, or somebody's hand. An excerpt of one zone is enough to
    /// infer it. On arm64 with pages of 64 KiB, whose huge pages have 512 MiB, that raise is 5 % of memory.
    ///
    /// # Hurts
    /// At low kswapd is woken (with zone reclaim on, the allocating task reclaims right there); at min every
    /// task that allocates reclaims for itself. Where allocations of a node are bound to it, free memory of
    /// other nodes does not count.
    ///
    /// # Remedies
    /// None between low and high: a host with a full page cache lives there. At min, more room between the
    /// marks.
    ///
    /// # False alarms
    /// One reading is a moment: free pages swing between low and high all day. Zones without pages are left
    /// out. A boost after a fallback to another migrate type lifts all three marks for a while. A DMA32 zone
    /// that is low below a Normal zone with room is no shortage: allocations come down from the highest zone.
    ///
    /// # References
    /// mm/page_alloc.c:__setup_per_zone_wmarks, calculate_min_free_kbytes (6.12); mm/khugepaged.c:
    /// set_recommended_min_free_kbytes (6.12); LinkedIn, "Optimizing Linux Memory Management for Low-latency
    /// / High-throughput Databases" (2013), whose figures are a fixture; ScyllaDB issue 14721 (a database
    /// that does not start on arm64 with 16 GB until vm.min_free_kbytes is lowered).
    pub ZoneWatermarks = "zone-watermarks" in Reclaim
}

/// 4·√lowmem, computed once at boot and again at memory hotplug, is recognised within this share: what counts
/// as lowmem moves a little after boot.
const DEFAULT_TOLERANCE: f64 = 0.03;
/// A host of like nodes has this part of n times the node's span: holes and reserved memory take the rest.
const LIKE_NODES: std::ops::RangeInclusive<f64> = 0.93..=1.01;
/// Beyond so many like nodes every amount of memory is near a multiple of the span.
const MOST_NODES: u64 = 8;
/// DMA and DMA32 of the first node, which the nodes' Normal zones come on top of.
const ZONES_BELOW_NORMAL: u64 = 2;
/// `/proc/zoneinfo` shows all of a host if its zones hold this part of `MemTotal`.
const WHOLE: f64 = 0.9;
/// `vm.watermark_scale_factor` of kernels that have it.
const SCALE_FACTOR_DEFAULT: u64 = lotsfree_formulas::watermarks::WATERMARK_SCALE_FACTOR_DEFAULT;

/// The marks of one zone, in pages.
struct Marks<'a> {
    zone: &'a Zone,
    free: u64,
    min: u64,
    low: u64,
    high: u64,
}

/// The mark that free memory is nearest to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    High,
    Low,
    Min,
}

impl Place {
    /// With much to reclaim the marks are where a busy host lives; with little, it is short.
    fn severity(self, short: bool) -> Severity {
        match (self, short) {
            (Place::Min, true) => Severity::High,
            (Place::Min, false) | (Place::Low, true) => Severity::Warning,
            _ => Severity::Info,
        }
    }
}

impl Marks<'_> {
    fn of(zone: &Zone) -> Option<Marks<'_>> {
        let get = |counter| zone.marks.get(counter);
        let marks =
            Marks { zone, free: get(z::free)?, min: get(z::min)?, low: get(z::low)?, high: get(z::high)? };
        (marks.high > 0 && weight(zone) != Some(0)).then_some(marks)
    }

    /// Where free memory stands to the marks.
    fn place(&self) -> Option<Place> {
        match self.free {
            free if free <= self.min => Some(Place::Min),
            free if free <= self.low => Some(Place::Low),
            free if free < self.high.saturating_add(self.high.saturating_sub(self.low) / 2) => {
                Some(Place::High)
            }
            _ => None,
        }
    }

    fn name(&self) -> String {
        format!("node {} zone {}", self.zone.node, self.zone.name)
    }
}

/// Pages by which a zone shares in `vm.min_free_kbytes`; kernels before 3.8 print `present` only.
fn weight(zone: &Zone) -> Option<u64> {
    zone.marks.get(z::managed).or_else(|| zone.marks.get(z::present))
}

/// Less than this available is a shortage.
const SHORT: f64 = 0.10;

impl Rule for ZoneWatermarks {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let zones = cx.zones()?;
        let marks: Vec<Marks<'_>> = zones.iter().filter_map(Marks::of).collect();
        if marks.is_empty() {
            return Err(Skip::missing("/proc/zoneinfo pages free, min, low, high"));
        }
        // Allocations come down from the highest zone of a node: while that one has room, nobody but a driver
        // that needs low addresses waits for the ones below it.
        let roomy_above = |at: usize, zone: &Zone| {
            let above = marks.get(at + 1..).unwrap_or_default().iter();
            above
                .filter(|other| other.zone.node == zone.node && &*other.zone.name != "Movable")
                .any(|other| other.place().is_none())
        };
        let mut near: Vec<(Place, &Marks<'_>)> = (marks.iter().enumerate())
            .filter(|(at, marks)| !roomy_above(*at, marks.zone))
            .filter_map(|(_, marks)| Some((marks.place()?, marks)))
            .collect();
        near.sort_by_key(|(place, marks)| (std::cmp::Reverse(*place), std::cmp::Reverse(marks.high)));
        let Some(&(place, worst)) = near.first() else { return Ok(Vec::new()) };
        let short = cx.available_share().is_none_or(|share| share < SHORT);
        let severity = place.severity(short);
        let mut finding = Finding::new(Self::ID, severity, title(cx, place, worst), cost(cx, place, worst));
        finding.sure(Confidence::Certain);
        for (place, marks) in &near {
            let bound = match place {
                Place::High => format!("high {} and half of high - low above it", Grouped(marks.high)),
                Place::Low => format!("low {}", Grouped(marks.low)),
                _ => format!("min {}", Grouped(marks.min)),
            };
            finding.because(
                Evidence::new("/proc/zoneinfo", "pages free", Grouped(marks.free))
                    .of(marks.name())
                    .against(bound, "/proc/zoneinfo"),
            );
        }
        for (_, marks) in &near {
            finding.note(format!(
                "{}: free {} is {} low, {} high, {} min (low {}, high {}, min {} pages).",
                marks.name(),
                Grouped(marks.free),
                distance(cx, marks.free, marks.low),
                distance(cx, marks.free, marks.high),
                distance(cx, marks.free, marks.min),
                Grouped(marks.low),
                Grouped(marks.high),
                Grouped(marks.min),
            ));
            if let Some(boost) = marks.zone.marks.get(z::boost).filter(|boost| *boost > 0) {
                finding.note(format!(
                    "{}: the marks are boosted by {} pages for now, after an allocation broke up a \
                     pageblock of another type.",
                    marks.name(),
                    Grouped(boost)
                ));
            }
        }
        let origin = Origin::of(cx, zones, &marks);
        finding.because_all(origin.evidence).note(origin.text);
        finding.note_if(large_raise(cx, zones, &marks));
        finding.note_if(gap(cx, worst));
        if place == Place::High {
            finding.note(
                "Between low and high is where a host with a full page cache lives: kswapd fills up to high \
                 and sleeps until low. It matters if tasks reclaim directly, which other findings name.",
            );
        }
        add_remedies(&mut finding, cx, place);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, place: Place) {
    if place == Place::Min {
        match remedies::wider_watermarks(cx) {
            Ok(remedy) => finding.remedy(remedy),
            Err(why) => finding.note(why),
        };
    }
}

fn title(cx: &Context<'_>, place: Place, marks: &Marks<'_>) -> String {
    let free = format!("{} has {} pages free", marks.name(), Grouped(marks.free));
    let low = format!("{} low", distance(cx, marks.free, marks.low));
    match place {
        Place::High => format!("{free}, {low} and {} high", distance(cx, marks.free, marks.high)),
        Place::Low => format!("{free}, {low}: kswapd is at work"),
        _ => format!(
            "{free}, {} min: tasks that allocate there reclaim for themselves",
            distance(cx, marks.free, marks.min)
        ),
    }
}

fn cost(cx: &Context<'_>, place: Place, marks: &Marks<'_>) -> Cost {
    let amount = |pages: u64| format!("{} pages ({})", Grouped(pages), cx.pages(pages));
    Cost::risk(match place {
        Place::High => {
            format!("the next {} wake kswapd", amount(marks.free.saturating_sub(marks.low)))
        }
        Place::Low => format!(
            "kswapd has {} to free until it sleeps again; after {} more, tasks reclaim for themselves",
            amount(marks.high.saturating_sub(marks.free)),
            amount(marks.free.saturating_sub(marks.min))
        ),
        _ => format!("{} must be freed before kswapd sleeps", amount(marks.high.saturating_sub(marks.free))),
    })
}

/// `3,248 pages (12.7 MiB) above`, `at`.
fn distance(cx: &Context<'_>, free: u64, mark: u64) -> String {
    let pages = free.abs_diff(mark);
    let side = match free.cmp(&mark) {
        std::cmp::Ordering::Equal => return "at".to_owned(),
        std::cmp::Ordering::Less => "below",
        std::cmp::Ordering::Greater => "above",
    };
    format!("{} pages ({}) {side}", Grouped(pages), cx.pages(pages))
}

/// What the gap between min and low tells of `vm.watermark_scale_factor`.
fn gap(cx: &Context<'_>, marks: &Marks<'_>) -> Option<String> {
    let boost = marks.zone.marks.get(z::boost).unwrap_or(0);
    let (min, weight) = (marks.min.checked_sub(boost)?, weight(marks.zone)?);
    let gap = marks.low.checked_sub(marks.min)?;
    if gap.abs_diff(min / 4) > 1 {
        return Some(format!(
            "low - min is {} pages, {} of the zone: vm.watermark_scale_factor sets the gap, not a quarter \
             of min.",
            Grouped(gap),
            Percent(gap as f64 / weight as f64)
        ));
    }
    let scaled = scale_gap(0, weight, SCALE_FACTOR_DEFAULT);
    let older = scaled > gap + 1 && cx.sysctl(WATERMARK_SCALE_FACTOR).is_err();
    older.then(|| {
        format!(
            "low - min is a quarter of min. With the default vm.watermark_scale_factor of \
             {SCALE_FACTOR_DEFAULT} it would be {} pages: this kernel is from before 4.6, where the factor \
             came, or the factor was lowered.",
            Grouped(scaled)
        )
    })
}

/// What a raise for transparent huge pages means where a page is larger than a PC's: it goes by the size of a
/// huge page, up to the 5 % of memory at which khugepaged stops.
fn large_raise(cx: &Context<'_>, zones: &[Zone], marks: &[Marks<'_>]) -> Option<String> {
    let page = cx.now().host.page_size;
    if page == PageSize::X86 {
        return None;
    }
    let rules = Rules::of_release(&cx.now().host.kernel.release).unwrap_or_else(Rules::linux_6_12).watermarks;
    let whole = Whole::of(cx, &rules, zones, marks)?;
    let raised = khugepaged_min_free_kib(page, whole.zones, whole.managed);
    let boot = min_free_kib(&rules, page.of(whole.managed).as_kib());
    let now = cx.sysctl(MIN_FREE_KBYTES).unwrap_or_else(|_| page.of(whole.min).as_kib());
    let slack = whole.rounding * page.bytes().as_kib();
    (now.abs_diff(raised) <= slack && raised > boot).then(|| {
        format!(
            "Pages have {} here and huge pages {}: khugepaged would keep eleven of those free in each zone, \
             and stops at 5 % of memory. {} are kept that no program gets; one that sizes itself by \
             MemTotal meets the OOM killer with that much free. vm.min_free_kbytes can be set back after \
             boot: without the raise it would be {} kB.",
            page.bytes(),
            page.pmd_huge(),
            Bytes::kib(now),
            Grouped(boot)
        )
    })
}

/// Where `vm.min_free_kbytes` comes from.
struct Origin {
    evidence: Vec<Evidence>,
    text: String,
}

/// What is known of the whole host.
struct Whole {
    /// Populated zones that khugepaged counts.
    zones: u64,
    /// Managed pages of lowmem.
    managed: u64,
    /// The same less the high watermarks.
    above_high: u64,
    /// Sum of all min watermarks without boosts.
    min: u64,
    /// By how many pages rounding can have lessened that sum.
    rounding: u64,
}

impl Whole {
    /// `None` if `zones` are only some of the host's.
    fn of(cx: &Context<'_>, rules: &WatermarkRules, zones: &[Zone], marks: &[Marks<'_>]) -> Option<Whole> {
        let last = zones.iter().map(|zone| zone.node).max()?;
        let every = (0..=last).all(|node| zones.iter().any(|zone| zone.node == node));
        let nodes = cx.nodes().map_or(true, |nodes| nodes.len() as u64 <= u64::from(last) + 1);
        let movable = |marks: &&Marks<'_>| &*marks.zone.name == "Movable";
        let all = sum(marks.iter().filter_map(|marks| weight(marks.zone)));
        let holds_memory = cx.total().map_or(true, |total| cx.pages(all).as_f64() >= WHOLE * total.as_f64());
        // A lone zone may be an excerpt unless MemTotal says otherwise.
        if !every || !nodes || !holds_memory || (marks.len() < 2 && cx.total().is_err()) {
            return None;
        }
        let lowmem: Vec<&Marks<'_>> = marks.iter().filter(|marks| !movable(marks)).collect();
        let counted = if rules.khugepaged_counts_movable { marks.len() } else { lowmem.len() };
        let shared: Vec<&Marks<'_>> =
            if rules.movable_apart { lowmem.clone() } else { marks.iter().collect() };
        let boost = |marks: &Marks<'_>| marks.zone.marks.get(z::boost).unwrap_or(0);
        Some(Whole {
            zones: counted as u64,
            managed: sum(lowmem.iter().filter_map(|marks| weight(marks.zone))),
            above_high: sum(lowmem.iter().filter_map(|marks| {
                Some(weight(marks.zone)?.saturating_sub(marks.high.saturating_sub(boost(marks))))
            })),
            min: sum(shared.iter().map(|marks| marks.min.saturating_sub(boost(marks)))),
            rounding: shared.len() as u64 + 1,
        })
    }
}

impl Origin {
    fn of(cx: &Context<'_>, zones: &[Zone], marks: &[Marks<'_>]) -> Origin {
        let rules =
            Rules::of_release(&cx.now().host.kernel.release).unwrap_or_else(Rules::linux_6_12).watermarks;
        let running = cx.sysctl(MIN_FREE_KBYTES).ok();
        match (Whole::of(cx, &rules, zones, marks), running) {
            (Some(whole), _) => Origin::of_whole(cx, &rules, &whole, running),
            (None, Some(kib)) => Origin {
                evidence: vec![cx.saw_sysctl(MIN_FREE_KBYTES)],
                text: format!(
                    "vm.min_free_kbytes is {} kB. Whether that is the kernel's default cannot be said from \
                     a part of /proc/zoneinfo.",
                    Grouped(kib)
                ),
            },
            (None, None) => Origin::of_excerpt(cx, marks),
        }
    }

    /// All zones are known: compares what runs with the two formulas.
    fn of_whole(cx: &Context<'_>, rules: &WatermarkRules, whole: &Whole, running: Option<u64>) -> Origin {
        let page = cx.now().host.page_size;
        let page_kib = page.bytes().as_kib();
        let total = whole.min.saturating_mul(page_kib);
        let slack = whole.rounding * page_kib;
        let thp = khugepaged_min_free_kib(page, whole.zones, whole.managed);
        let boot = min_free_kib(rules, whole.managed.saturating_mul(page_kib));
        let later = min_free_kib(rules, whole.above_high.saturating_mul(page_kib));
        let is_thp = |kib: u64| match running {
            Some(_) => kib == thp,
            None => (kib..=kib.saturating_add(slack)).contains(&thp),
        };
        let is_default = |kib: u64| {
            let most = boot as f64 * (1.0 + DEFAULT_TOLERANCE);
            let least = later as f64 * (1.0 - DEFAULT_TOLERANCE);
            (least..=most).contains(&(kib as f64))
        };
        let kib = running.unwrap_or(total);
        let raise = raise_per_zone(page).saturating_mul(whole.zones);
        let capped = if page.of(raise).as_kib() > thp { ", capped at 5 % of lowmem," } else { "" };
        let formulas = format!(
            "the default would be 4 x sqrt({} kB) = {} kB, the raise for transparent huge pages {} pages x \
             {} zones = {} pages{capped} or {} kB",
            Grouped(whole.managed.saturating_mul(page_kib)),
            Grouped(boot),
            Grouped(raise_per_zone(page)),
            whole.zones,
            Grouped(raise),
            Grouped(thp)
        );
        let verdict = if is_thp(kib) {
            let off = cx.thp().is_ok_and(|thp| &*thp.enabled.selected == "never");
            if off {
                "transparent huge pages raised it, and it stayed when they were turned off"
            } else {
                "transparent huge pages raised it"
            }
        } else if is_default(kib) {
            "it is the kernel's default"
        } else {
            "it was set by hand"
        };
        let mut evidence = vec![Evidence::new(
            "/proc/zoneinfo",
            "sum of min",
            format!("{} pages = {} kB", Grouped(whole.min), Grouped(total)),
        )];
        if running.is_some() {
            evidence.push(cx.saw_sysctl(MIN_FREE_KBYTES));
        }
        let file = winner(&cx.now().sysctl_files, MIN_FREE_KBYTES)
            .map(|setting| format!(" /{}:{} sets {}.", setting.file, setting.line, setting.value))
            .unwrap_or_default();
        Origin {
            evidence,
            text: format!(
                "vm.min_free_kbytes is {} kB, and {verdict}: {formulas}. The marks of all zones add up to \
                 {} kB.{file}",
                Grouped(kib),
                Grouped(total)
            ),
        }
    }

    /// One zone is all that is known: which host would have given it this min?
    fn of_excerpt(cx: &Context<'_>, marks: &[Marks<'_>]) -> Origin {
        let page = cx.now().host.page_size;
        let unknown = |why: &str| Origin {
            evidence: Vec::new(),
            text: format!("Where vm.min_free_kbytes comes from cannot be said: {why}."),
        };
        let Some(largest) = marks.iter().filter(|marks| &*marks.zone.name == "Normal").max_by_key(|m| m.high)
        else {
            return unknown("the Normal zones are not shown");
        };
        let boost = largest.zone.marks.get(z::boost).unwrap_or(0);
        let min = largest.min.saturating_sub(boost);
        let (Some(weight), true) = (weight(largest.zone), min > 0) else {
            return unknown("the size of the zone is not shown");
        };
        let field = if largest.zone.marks.get(z::managed).is_some() { "managed" } else { "present" };
        let normal = largest.zone.marks.get(z::spanned).unwrap_or(weight);
        // On the first node 4 GiB of DMA and DMA32 come on top of the Normal zone.
        let below = if largest.zone.node == 0 { page.pages(Bytes::gib(4)) } else { 0 };
        let span = normal.saturating_add(below);
        let share = |pages: u64| mul_div(pages, weight, min);
        let fits = |host: u64, nodes: u64| LIKE_NODES.contains(&(host as f64 / (nodes as f64 * span as f64)));
        let possible = (u64::from(largest.zone.node) + 1)..=MOST_NODES;
        let raised = possible.clone().find_map(|nodes| {
            let zones = nodes + ZONES_BELOW_NORMAL;
            let pages = raise_per_zone(page) * zones;
            fits(share(pages), nodes).then_some((nodes, zones, pages))
        });
        // min = share of 4 sqrt(host in KiB), solved for the host: 16 weight^2 / (min^2 x page in KiB).
        let by_default = mul_div(
            mul_div(weight.saturating_mul(16), weight, min),
            1,
            min.saturating_mul(page.bytes().as_kib()),
        );
        let nodes_by_default = possible.into_iter().find(|nodes| fits(by_default, *nodes));
        let observed = format!("min is {} of this zone's {} {field} pages", Grouped(min), Grouped(weight));
        let node = format!("this node's span of {}", page.of(span));
        let text = match (raised, nodes_by_default) {
            (Some((nodes, zones, pages)), None) => {
                let host = share(pages);
                format!(
                    "vm.min_free_kbytes is {} kB, raised by transparent huge pages: {observed}, and {} \
                     pages x {zones} zones = {} pages make the host {} x {} / {} = {} pages = {}, {nodes} \
                     nodes of {node} ({zones} zones: DMA, DMA32 and {nodes} Normal). The default, 4 x \
                     sqrt(lowmem), would give this min on a host of {} only, {}.",
                    Grouped(page.of(pages).as_kib()),
                    Grouped(raise_per_zone(page)),
                    Grouped(pages),
                    Grouped(pages),
                    Grouped(weight),
                    Grouped(min),
                    Grouped(host),
                    page.of(host),
                    page.of(by_default),
                    if by_default < weight { "less than the zone itself" } else { "no multiple of the node" }
                )
            }
            (None, Some(nodes)) => format!(
                "vm.min_free_kbytes is the kernel's default, 4 x sqrt(lowmem): {observed}, which makes the \
                 host {} pages = {}, {nodes} nodes of {node}.",
                Grouped(by_default),
                page.of(by_default)
            ),
            (Some(_), Some(_)) => format!(
                "vm.min_free_kbytes is either the kernel's default or the raise for transparent huge pages: \
                 {observed} fits both on hosts of like nodes."
            ),
            (None, None) => format!(
                "vm.min_free_kbytes was set by hand, or the nodes differ in size: {observed}, which neither \
                 the default nor the raise for transparent huge pages gives on a host of up to {MOST_NODES} \
                 nodes like this."
            ),
        };
        let evidence = Evidence::new(
            "/proc/zoneinfo",
            format!("min, {field}"),
            format!("{}, {}", Grouped(min), Grouped(weight)),
        );
        Origin { evidence: vec![evidence.of(largest.name())], text }
    }
}

/// Pages that khugepaged asks for in each zone: eleven pageblocks.
fn raise_per_zone(page: lotsfree_units::PageSize) -> u64 {
    khugepaged_min_free_kib(page, 1, u64::MAX) / page.bytes().as_kib()
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let quotient = (u128::from(a) * u128::from(b)).checked_div(u128::from(c)).unwrap_or(0);
    u64::try_from(quotient).unwrap_or(u64::MAX)
}
