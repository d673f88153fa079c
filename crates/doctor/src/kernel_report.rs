//! [`Judged`]: what a kernel's report on memory says: why an allocation failed or a process was killed, and
//! who held the memory.

use lotsfree_kernel_files::file::kernel_log::report::{
    GroupUsage, MemInfo, Report, Trigger, ZoneKind, ZoneState,
};
use lotsfree_units::{Bytes, Percent};

use crate::Evidence;

/// Why the kernel killed, or could not allocate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// Somebody asked for it by SysRq.
    Asked,
    /// A control group was at its limit.
    Group,
    /// The nodes that a cpuset or memory policy allows had nothing left.
    Policy,
    /// Enough was free, but no block of the order that was wanted.
    Fragmented { free: Bytes },
    /// The zones that could serve the request were empty, while another kind had this much free.
    LowZone { zone: ZoneKind, elsewhere: ZoneKind, free: Bytes },
    /// Free memory was that of CMA, which only movable pages may use.
    Cma { free: Bytes, cma: Bytes },
    /// The addresses for vmalloc had no room for this many bytes.
    Addresses(Bytes),
    /// The request could not wait for reclaim, and the reserve was empty.
    Reserve,
    /// The whole host was out of memory.
    Host,
    /// The report has too little to tell.
    Untold,
    /// The zones had enough free when the kernel reported.
    EnoughFree { free: Bytes },
    /// Most of the zones was clean page cache, which reclaim passed over.
    CacheKept { cache: Bytes },
    /// Pages on the inactive list that nothing wrote, beside free swap (reports that do not tell cache from
    /// processes).
    ListsKept { pages: Bytes },
    /// The zone's min watermark is more than the zone has.
    Miscounted { zone: Box<str>, min: Bytes },
}

/// Who held memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Processes,
    FileCache,
    Shared,
    SlabUnreclaimable,
    SlabReclaimable,
    /// Slab of either kind (before 2.6.19).
    Slab,
    PageTables,
    KernelStacks,
    Locked,
    HugePool,
    Uncounted,
}

impl Holder {
    /// Its name in a sentence.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Holder::Processes => "anonymous memory of processes",
            Holder::FileCache => "file cache",
            Holder::Shared => "tmpfs and shared memory",
            Holder::SlabUnreclaimable => "unreclaimable slab",
            Holder::SlabReclaimable => "reclaimable slab",
            Holder::Slab => "slab (dentries and inodes, or a leak in the kernel: /proc/slabinfo tells)",
            Holder::PageTables => "page tables",
            Holder::KernelStacks => "kernel stacks",
            Holder::Locked => "locked (unevictable) memory",
            Holder::HugePool => "a pool of huge pages",
            Holder::Uncounted => "memory in no counter",
        }
    }
}

/// A report with what it says.
#[derive(Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) report: &'a Report,
    pub(crate) cause: Cause,
    /// Largest first.
    pub(crate) holders: Vec<(Holder, Bytes)>,
    /// Memory that the kernel manages.
    pub(crate) managed: Option<Bytes>,
}

/// A holder other than processes leads if it has at least this share of memory …
const LEADS: f64 = 0.20;
/// … and this much of what processes have.
const LEADS_PROCESSES: f64 = 0.75;
/// Share of such zones that is in no counter from which on that is the matter.
const LOW_UNCOUNTED: f64 = 0.5;
/// Share of memory that is free above the marks from which on a kill was not for lack of it.
const ENOUGH_SHARE: f64 = 0.01;
/// … or this much, where no page cache to speak of and no swap were left.
const ENOUGH_SHARE_EMPTY: f64 = 0.03;
const EMPTY: f64 = 0.02;
/// Clean page cache of this share of the zones that could serve the request should have been reclaimed.
const KEPT: f64 = 0.4;
/// A zone whose marks are not known has enough if it has this much.
const UNKNOWN_MARK: Bytes = Bytes::gib(1);
/// A zone with less than this share of those that could serve a request decides nothing.
const TINY_ZONE: f64 = 0.05;
/// Swap of which this share is free has room.
const HALF: f64 = 0.5;
/// Slab that fills this share of lowmem is what is wrong there.
const LOW_SLAB: f64 = 0.4;
/// A shortage that no counter explains is worth a word from this share of memory on.
const UNCOUNTED: f64 = 0.10;

impl<'a> Judged<'a> {
    /// Reads a report.
    pub(crate) fn of(report: &'a Report) -> Self {
        let managed = managed(&report.memory);
        Judged { report, cause: cause(report), holders: holders(&report.memory, managed), managed }
    }

    /// Bytes of a holder.
    pub(crate) fn held(&self, holder: Holder) -> Bytes {
        self.holders.iter().find(|(other, _)| *other == holder).map(|(_, bytes)| *bytes).unwrap_or_default()
    }

    /// The share of memory that a holder has.
    pub(crate) fn share(&self, holder: Holder) -> f64 {
        self.held(holder).share_of(self.managed.unwrap_or_else(|| listed(&self.holders)))
    }

    /// What took the memory, if that was not the memory of processes.
    pub(crate) fn culprit(&self) -> Option<(Holder, Bytes)> {
        let processes = self.share(Holder::Processes);
        let suspects = [
            Holder::SlabUnreclaimable,
            Holder::Slab,
            Holder::Shared,
            Holder::HugePool,
            Holder::PageTables,
            Holder::Locked,
            Holder::Uncounted,
            Holder::SlabReclaimable,
        ];
        let leads = |holder: &Holder| {
            let share = self.share(*holder);
            share >= LEADS && share >= processes * LEADS_PROCESSES
        };
        let first = suspects.into_iter().filter(leads).max_by_key(|holder| self.held(*holder))?;
        Some((first, self.held(first)))
    }

    /// Dirty pages and pages under writeback, where they are most of those on the lists.
    pub(crate) fn under_writeback(&self) -> Option<Bytes> {
        let memory = &self.report.memory;
        let lists = ["active_anon", "inactive_anon", "active_file", "inactive_file", "active", "inactive"];
        let listed = lists.iter().filter_map(|name| memory.pages(name)).fold(0, u64::saturating_add);
        let dirty = memory.pages("dirty").unwrap_or(0);
        let written = memory.pages("writeback")?.saturating_add(dirty);
        (written.saturating_mul(2) > listed && listed > 0).then(|| memory.bytes(written))
    }

    /// Free and total swap, where printed.
    pub(crate) fn swap(&self) -> Option<(Bytes, Bytes)> {
        Some((self.report.memory.free_swap?, self.report.memory.total_swap?))
    }

    /// The zone that was furthest below its mark: its name, what it had free, and the mark.
    pub(crate) fn lowest_zone(&self) -> Option<(&'a str, Bytes, Bytes)> {
        let zones = self.report.memory.zones.iter().filter_map(|zone| {
            let (free, min) = (zone.kib("free")?, zone.kib("min")?);
            (min > 0 && free < min).then_some((&*zone.name, Bytes::kib(free), Bytes::kib(min)))
        });
        zones.max_by_key(|(_, _, min)| *min)
    }

    /// What of the zones that the kernel's own objects come from no list, no slab and no free block has, if
    /// it is much (reports before 2.6.28, whose zones print their lists as two).
    pub(crate) fn uncounted_in_low_zones(&self) -> Option<Bytes> {
        let low = || {
            self.report.memory.zones.iter().filter(|zone| ZoneKind::of(&zone.name) <= Some(ZoneKind::Normal))
        };
        let sum = |name: &str| low().filter_map(|zone| zone.kib(name)).map(Bytes::kib).sum::<Bytes>();
        if low().any(|zone| zone.kib("active").is_none() || zone.kib("managed").is_some()) {
            return None;
        }
        let memory = &self.report.memory;
        let kernel =
            ["slab", "pagetables"].iter().filter_map(|name| memory.pages(name)).fold(0, u64::saturating_add);
        let all = sum("present");
        let rest = all - sum("active") - sum("inactive") - sum("free") - memory.bytes(kernel);
        (rest.share_of(all) >= LOW_UNCOUNTED).then_some(rest)
    }

    /// Slab that may be unreclaimable, if it fills much of the zones that the kernel's own objects come from.
    pub(crate) fn slab_in_low_zones(&self) -> Option<(Holder, Bytes)> {
        let low =
            self.report.memory.zones.iter().filter(|zone| ZoneKind::of(&zone.name) <= Some(ZoneKind::Normal));
        let low: Bytes =
            low.filter_map(|zone| zone.kib("managed").or(zone.kib("present"))).map(Bytes::kib).sum();
        let kinds = [Holder::SlabUnreclaimable, Holder::Slab];
        let slab = kinds.map(|kind| (kind, self.held(kind))).into_iter().max_by_key(|(_, bytes)| *bytes)?;
        (slab.1.share_of(low) >= LOW_SLAB).then_some(slab)
    }

    /// The highest zone that could serve the request, where the report shows no other kind: it was cut, and
    /// what other zones had is unknown.
    pub(crate) fn only_zone(&self) -> Option<&'a str> {
        let memory = &self.report.memory;
        let [zone] = &memory.zones[..] else { return None };
        (memory.totals.is_empty() && memory.ram.is_none()).then_some(&*zone.name)
    }

    /// The low zone that was asked for, where the report does not show what it had.
    pub(crate) fn asked_zone(&self) -> Option<&'static str> {
        let highest = self.report.request.as_ref()?.highest_zone();
        (self.report.memory.zones.is_empty() && highest < ZoneKind::Normal).then(|| highest.name())
    }

    /// Free memory of CMA.
    pub(crate) fn free_cma(&self) -> Bytes {
        self.report.memory.zones.iter().filter_map(|zone| zone.kib("free_cma")).map(Bytes::kib).sum()
    }

    /// Of the nodes that a cpuset or policy allows: a zone that the request could not use, and what it had
    /// free.
    pub(crate) fn beyond(&self) -> Option<(&'a str, Bytes)> {
        let request = self.report.request.as_ref()?;
        let nodes = request.nodemask.as_deref().or(request.mems_allowed.as_deref())?;
        let zones = self.report.memory.zones.iter().filter(|zone| {
            allows(Some(nodes), zone.node) && ZoneKind::of(&zone.name) > Some(request.highest_zone())
        });
        let free = |zone: &'a ZoneState| Some((&*zone.name, Bytes::kib(zone.kib("free")?)));
        zones.filter_map(free).max_by_key(|(_, free)| *free).filter(|(_, free)| *free >= Bytes::mib(64))
    }

    /// Whether reclaim had something to go on with: page cache of this share of memory, as much room in swap,
    /// or lines that do not say.
    pub(crate) fn has_room(&self, share: f64) -> bool {
        let cached = self.held(Holder::FileCache);
        let swap = self.swap().is_some_and(|(free, total)| free.share_of(total) >= share);
        cached == Bytes::ZERO || self.share(Holder::FileCache) >= share || swap
    }

    /// How swap was, in a few words.
    pub(crate) fn swap_text(&self) -> Option<String> {
        let (free, total) = self.swap()?;
        Some(match (free, total) {
            (_, Bytes::ZERO) => "there was no swap".to_owned(),
            (free, total) if free.share_of(total) < 0.02 => "swap was full".to_owned(),
            (free, total) => format!("{} of {total:#} swap was free", Percent(free.share_of(total))),
        })
    }

    /// Programs by resident memory, largest first, processes of one name together: name, how many, their
    /// bytes.
    pub(crate) fn programs(&self) -> Vec<(&'a str, usize, Bytes)> {
        let mut programs: Vec<(&str, usize, u64, u64)> = Vec::new();
        for task in &self.report.tasks {
            let shared = task.rss_shmem.unwrap_or(0);
            match programs.iter_mut().find(|program| *program.0 == *task.name) {
                Some(program) => {
                    program.1 += 1;
                    program.2 = program.2.saturating_add(task.rss.saturating_sub(shared));
                    program.3 = program.3.max(shared);
                }
                None => programs.push((&task.name, 1, task.rss.saturating_sub(shared), shared)),
            }
        }
        let mut programs: Vec<_> = (programs.into_iter())
            .map(|(name, count, own, shared)| {
                (name, count, self.report.memory.bytes(own.saturating_add(shared)))
            })
            .collect();
        programs.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(b.0)));
        programs
    }

    /// What was asked for, in words: `32.0 KiB in one piece (order 3)`.
    pub(crate) fn wanted(&self) -> Option<String> {
        let request = self.report.request.as_ref()?;
        let order = u32::try_from(request.order).ok()?;
        let size = Bytes(self.report.memory.bytes(1).0.checked_shl(order)?);
        Some(match order {
            0 => "a single page".to_owned(),
            order => format!("{size} in one piece (order {order})"),
        })
    }

    /// The figures of zones that decided, as evidence.
    pub(crate) fn zone_evidence(&self) -> Vec<Evidence> {
        let zones = self.report.memory.zones.iter().filter(|zone| zone.kib("present").unwrap_or(1) > 0);
        let evidence = zones.filter_map(|zone| {
            let free = Bytes::kib(zone.kib("free")?);
            let mut value = format!("{free:#}");
            if let Some(cma) = zone.kib("free_cma").filter(|cma| *cma > 0) {
                value.push_str(&format!(", of which CMA {:#}", Bytes::kib(cma)));
            }
            let node = zone.node.map_or_else(String::new, |node| format!("node {node} "));
            let seen = Evidence::new("kernel log", "free", value).of(format!("{node}zone {}", zone.name));
            Some(match (zone.kib("min"), zone.kib("high")) {
                (Some(min), Some(high)) => seen.against(
                    format!("min {:#}, high {:#}", Bytes::kib(min), Bytes::kib(high)),
                    "the zone's watermarks",
                ),
                _ => seen,
            })
        });
        evidence.take(6).collect()
    }

    /// Who held the memory, as evidence.
    pub(crate) fn holder_evidence(&self) -> Vec<Evidence> {
        let shown = self
            .holders
            .iter()
            .filter(|(_, bytes)| self.managed.is_none_or(|managed| bytes.share_of(managed) >= 0.02));
        let value = |bytes: Bytes| match self.managed {
            Some(managed) => format!("{bytes:#} ({})", Percent(bytes.share_of(managed))),
            None => format!("{bytes:#}"),
        };
        shown
            .take(5)
            .map(|(holder, bytes)| Evidence::new("kernel log", holder.name(), value(*bytes)))
            .collect()
    }
}

/// Memory that the kernel manages: the zones' `managed`, else pages of RAM less the reserved ones, else
/// `present`.
fn managed(memory: &MemInfo) -> Option<Bytes> {
    let sum = |name: &str| {
        let zones = memory.zones.iter().map(|zone| zone.kib(name));
        zones
            .collect::<Option<Vec<_>>>()
            .filter(|zones| !zones.is_empty())
            .map(|zones| zones.into_iter().map(Bytes::kib).sum())
    };
    let pages = || {
        let (ram, reserved) = (memory.ram?, memory.reserved.unwrap_or(0));
        Some(memory.bytes(ram.saturating_sub(reserved)))
    };
    sum("managed").or_else(pages).or_else(|| sum("present")).filter(|bytes| *bytes > Bytes::ZERO)
}

fn holders(memory: &MemInfo, managed: Option<Bytes>) -> Vec<(Holder, Bytes)> {
    let total = |name: &str| memory.pages(name).map(|pages| memory.bytes(pages));
    let kib_sum = |name: &str| -> Option<Bytes> {
        let zones = memory.zones.iter().filter_map(|zone| zone.kib(name));
        let nodes = memory.nodes.iter().filter_map(|node| node.kib(name));
        let all: Vec<u64> = zones.chain(nodes).collect();
        (!all.is_empty()).then(|| all.into_iter().map(Bytes::kib).sum())
    };
    let get = |name: &str| total(name).or_else(|| kib_sum(name));
    let shared = get("shmem");
    let anon = match (get("active_anon"), get("inactive_anon")) {
        (Some(active), Some(inactive)) => Some(active + inactive + get("isolated_anon").unwrap_or_default()),
        _ => None,
    };
    let file = match (get("active_file"), get("inactive_file")) {
        (Some(active), Some(inactive)) => Some(active + inactive),
        _ => None,
    };
    let huge: Bytes = memory.huge.iter().map(|(_, total, _, _, size)| size.times(*total)).sum();
    let slab_unreclaimable = get("slab_unreclaimable");
    let slab_old = get("slab").filter(|_| slab_unreclaimable.is_none());
    let mut holders = vec![
        (Holder::Processes, anon.map(|anon| anon - shared.unwrap_or_default())),
        (Holder::FileCache, file),
        (Holder::Shared, shared),
        (Holder::SlabUnreclaimable, slab_unreclaimable),
        (Holder::Slab, slab_old),
        (Holder::SlabReclaimable, get("slab_reclaimable")),
        (Holder::PageTables, get("pagetables")),
        (Holder::KernelStacks, kib_sum("kernel_stack")),
        (Holder::Locked, get("unevictable")),
        (Holder::HugePool, Some(huge)),
    ];
    // Before 2.6.28 there are two lists.
    let lists = match (get("active"), get("inactive")) {
        (Some(active), Some(inactive)) => Some(active + inactive),
        _ => anon.zip(file).map(|(anon, file)| anon + file),
    };
    // What is left over is only known if every large part was printed.
    if let (Some(managed), Some(lists), Some(slab), Some(free)) =
        (managed, lists, slab_unreclaimable.or(slab_old), get("free"))
    {
        let counted = lists
            + slab
            + free
            + huge
            + get("slab_reclaimable").unwrap_or_default()
            + get("unevictable").unwrap_or_default()
            + get("pagetables").unwrap_or_default()
            + kib_sum("kernel_stack").unwrap_or_default()
            + get("isolated_file").unwrap_or_default();
        let left = managed - counted;
        // Where the lists do not tell processes from cache, processes may hold all of these.
        let much = left.share_of(managed) >= UNCOUNTED && (anon.is_some() || left > lists);
        holders.push((Holder::Uncounted, much.then_some(left)));
    }
    let mut holders: Vec<(Holder, Bytes)> = holders
        .into_iter()
        .filter_map(|(holder, bytes)| Some((holder, bytes.filter(|bytes| *bytes > Bytes::ZERO)?)))
        .collect();
    holders.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    holders
}

/// All that is listed.
fn listed(holders: &[(Holder, Bytes)]) -> Bytes {
    holders.iter().map(|(_, bytes)| *bytes).sum()
}

/// How a zone stands to a request.
struct Standing<'a> {
    zone: &'a ZoneState,
    kind: ZoneKind,
    /// Free, less what the request may not use.
    usable: Bytes,
    /// Whether the request could have been served with single pages.
    enough: bool,
    /// The same, for one that may not wait and dips into the reserve (`__zone_watermark_ok` with `ALLOC_HIGH`
    /// and `ALLOC_HARDER`).
    hurried: bool,
}

fn cause(report: &Report) -> Cause {
    if let Trigger::VmallocFailure(bytes) = report.trigger {
        return Cause::Addresses(Bytes(bytes));
    }
    let constraint =
        report.kills.iter().map(|kill| kill.constraint.as_str()).find(|constraint| !constraint.is_empty());
    let request = report.request.as_ref();
    if request.is_some_and(|request| request.order < 0) {
        return Cause::Asked;
    }
    if report.trigger == Trigger::OomKiller || report.trigger == Trigger::Shown {
        if constraint == Some("CONSTRAINT_MEMCG")
            || report.group.as_ref().is_some_and(|group| group.counters.iter().any(at_limit))
        {
            return Cause::Group;
        }
        if matches!(constraint, Some("CONSTRAINT_MEMORY_POLICY" | "CONSTRAINT_CPUSET")) {
            return Cause::Policy;
        }
    }
    let told = |names: &[&str]| report.trace.iter().any(|function| names.contains(&&**function));
    if told(&["mem_cgroup_out_of_memory", "mem_cgroup_oom_synchronize", "pagefault_out_of_memory_memcg"]) {
        return Cause::Group;
    }
    let highest = request.map_or(ZoneKind::Movable, |request| request.highest_zone());
    let movable = request.is_none_or(|request| request.movable());
    let kinds = kinds(&report.memory);
    let dying = report.trigger == Trigger::OomKiller || !report.kills.is_empty();
    let page = report.memory.bytes(1);
    let standing = |zone| standing(zone, highest, movable, &kinds, page, dying);
    let zones: Vec<Standing<'_>> = report.memory.zones.iter().filter_map(standing).collect();
    let ram = report.memory.ram.map(|pages| report.memory.bytes(pages).0 / 1024);
    if let Some(zone) = report.memory.zones.iter().find(|zone| miscounted(zone, ram)) {
        let min = Bytes::kib(zone.kib("min").unwrap_or_default());
        return Cause::Miscounted { zone: zone.name.clone(), min };
    }
    // All memory is in a zone that the request cannot use.
    if let (Some(ram), Some(high), Some(free)) =
        (report.memory.ram, report.memory.highmem, report.memory.pages("free"))
        && zones.is_empty()
        && ram == high
        && highest < ZoneKind::HighMem
    {
        let free = report.memory.bytes(free);
        return Cause::LowZone { zone: ZoneKind::Normal, elsewhere: ZoneKind::HighMem, free };
    }
    if zones.is_empty() {
        let waits = request.is_none_or(|request| request.can_reclaim());
        return match request.map(|request| request.order) {
            Some(order) if order > 3 => Cause::Fragmented { free: Bytes::ZERO },
            _ if !waits => Cause::Reserve,
            _ if report.memory.is_empty() && constraint.is_none() => Cause::Untold,
            _ => Cause::Host,
        };
    }
    let allowed = |zone: &&Standing<'_>| {
        zone.kind <= highest && allows(request.and_then(|r| r.mems_allowed.as_deref()), zone.zone.node)
    };
    let enough: Bytes = zones.iter().filter(allowed).filter(|zone| zone.enough).map(|zone| zone.usable).sum();
    // A request that may not wait goes down to 3/8 of min: single pages were there for it.
    let hurried: Bytes = match request {
        Some(request) if request.order > 0 && !request.can_reclaim() => {
            zones.iter().filter(allowed).filter(|zone| zone.hurried).map(|zone| zone.usable).sum()
        }
        _ => Bytes::ZERO,
    };
    let enough = enough.max(hurried);
    if enough > Bytes::ZERO && request.is_some_and(|request| request.order > 0) {
        return Cause::Fragmented { free: enough };
    }
    // Where the marks are missing, the lists of free blocks tell.
    if let Some(request) = request.filter(|request| request.order > 0)
        && let Some(free) = in_smaller(zones.iter().filter(allowed), request.order.unsigned_abs(), page)
    {
        return Cause::Fragmented { free };
    }
    // The figures are printed after the decision: a little above the marks is still out of memory.
    // A cut report may not say how much memory there is; what it lists is less than that.
    let all = managed(&report.memory).unwrap_or_else(|| listed(&holders(&report.memory, None)));
    let margin = if exhausted(&report.memory, all) { ENOUGH_SHARE_EMPTY } else { ENOUGH_SHARE };
    if enough > all.scale(margin) {
        return Cause::EnoughFree { free: enough };
    }
    let waits = request.is_some_and(|request| request.can_reclaim() && request.may_enter_fs());
    if dying
        && waits
        && let Some(cache) = kept(&report.memory, zones.iter().filter(allowed).map(|z| z.zone))
    {
        return Cause::CacheKept { cache };
    }
    if dying
        && waits
        && let Some(pages) = idle(&report.memory, zones.iter().filter(allowed).map(|z| z.zone))
    {
        return Cause::ListsKept { pages };
    }
    let free_of = |zone: &Standing<'_>| {
        let blocks = || zone.zone.free_pages_from(0).map(|pages| report.memory.bytes(pages));
        zone.zone.kib("free").map(Bytes::kib).or_else(blocks).unwrap_or_default()
    };
    let cma: Bytes =
        zones.iter().filter(allowed).map(|zone| Bytes::kib(zone.zone.kib("free_cma").unwrap_or(0))).sum();
    let free: Bytes = zones.iter().filter(allowed).map(free_of).sum();
    if !movable && cma.share_of(free) > 0.5 && cma > Bytes::mib(4) {
        return Cause::Cma { free, cma };
    }
    if zones.iter().any(|zone| zone.kind <= highest && !allowed(&zone) && zone.enough) {
        return Cause::Policy;
    }
    // Some kernels leave out zones that the request could not use, and logs are cut: the total tells.
    let listed: Bytes = zones.iter().map(free_of).sum();
    let all = report.memory.pages("free").map(|pages| report.memory.bytes(pages)).unwrap_or_default();
    let unlisted = all - listed;
    let wide = zones.iter().any(|zone| zone.kind == ZoneKind::Dma32);
    if highest < ZoneKind::Movable
        && !(wide && highest >= ZoneKind::Normal)
        && unlisted > Bytes::mib(64)
        && unlisted > listed
        && zones.iter().all(|zone| zone.kind <= highest)
    {
        let zone = zones.iter().map(|zone| zone.kind).max().unwrap_or(highest);
        let elsewhere = if highest < ZoneKind::Normal { ZoneKind::Normal } else { ZoneKind::HighMem };
        return Cause::LowZone { zone, elsewhere, free: unlisted };
    }
    let elsewhere =
        zones.iter().filter(|zone| zone.kind > highest && zone.enough).max_by_key(|zone| zone.usable);
    if let Some(elsewhere) = elsewhere {
        let free = zones.iter().filter(|zone| zone.kind == elsewhere.kind).map(|zone| zone.usable).sum();
        let zone =
            zones.iter().filter(|zone| zone.kind <= highest).map(|zone| zone.kind).max().unwrap_or(highest);
        return Cause::LowZone { zone, elsewhere: elsewhere.kind, free };
    }
    // Single pages could have been reclaimed without end.
    if dying
        && request.is_some_and(|request| request.order > 0 && request.can_reclaim())
        && cached(&report.memory)
        && above_min(zones.iter().filter(allowed).map(|zone| zone.zone))
    {
        let free = zones.iter().filter(allowed).map(|zone| zone.usable).sum();
        return Cause::Fragmented { free };
    }
    if report.trigger == Trigger::AllocationFailure && request.is_some_and(|request| !request.can_reclaim()) {
        return Cause::Reserve;
    }
    Cause::Host
}

/// Whether the zone's watermark is more than it has: its size was counted wrongly.
fn miscounted(zone: &ZoneState, ram: Option<u64>) -> bool {
    let size = zone.kib("present").max(zone.kib("managed")).or(ram);
    matches!((zone.kib("min"), size), (Some(min), Some(size)) if size > 0 && min > size)
}

/// Whether neither page cache nor swap was left to reclaim into.
fn exhausted(memory: &MemInfo, managed: Bytes) -> bool {
    let lists = memory.pages("active_file").zip(memory.pages("inactive_file"));
    let cache = lists.map(|(active, inactive)| memory.bytes(active.saturating_add(inactive)));
    cache.is_some_and(|cache| cache.share_of(managed) < EMPTY)
        && memory.free_swap.is_none_or(|free| free == Bytes::ZERO)
}

/// Whether one of the zones that matter has more free than its min mark.
fn above_min<'a>(zones: impl Iterator<Item = &'a ZoneState>) -> bool {
    let zones: Vec<&ZoneState> = zones.collect();
    let size = |zone: &ZoneState| Bytes::kib(zone.kib("managed").or(zone.kib("present")).unwrap_or(0));
    let all: Bytes = zones.iter().map(|zone| size(zone)).sum();
    let matters = |zone: &&&ZoneState| size(zone).share_of(all) >= TINY_ZONE;
    zones.iter().filter(matters).any(|zone| zone.kib("free") > zone.kib("min"))
}

/// What is free in zones whose marks are not known, if nothing of it is in blocks of the order, and it is
/// much.
fn in_smaller<'a, 'b: 'a>(
    zones: impl Iterator<Item = &'a Standing<'b>>,
    order: u32,
    page: Bytes,
) -> Option<Bytes> {
    let mut free = Bytes::ZERO;
    for Standing { zone, kind, .. } in zones {
        if zone.kib("min").is_some() {
            return None;
        }
        // The kernel keeps the DMA zone for those who need it.
        if *kind == ZoneKind::Dma {
            continue;
        }
        if zone.buddy.iter().skip(order as usize).any(|(count, types)| *count > 0 && &**types != "H") {
            return None;
        }
        free = free + page.times(zone.free_pages_from(0)?);
    }
    (free >= Bytes::mib(32)).then_some(free)
}

/// Whether clean page cache has much of memory.
fn cached(memory: &MemInfo) -> bool {
    let pages = |name: &str| memory.pages(name).unwrap_or(0);
    let busy = ["dirty", "writeback", "unstable"].into_iter().map(pages).fold(0, u64::saturating_add);
    let clean = pages("active_file").saturating_add(pages("inactive_file")).saturating_sub(busy);
    managed(memory).is_some_and(|managed| memory.bytes(clean).share_of(managed) >= KEPT)
}

/// Clean page cache that fills much of the zones, if it does: reclaim gives such pages back first.
fn kept<'a>(memory: &MemInfo, zones: impl Iterator<Item = &'a ZoneState>) -> Option<Bytes> {
    let (mut cache, mut all, mut active) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
    for zone in zones {
        let kib = |name: &str| zone.kib(name).map(Bytes::kib);
        active = active + kib("active_file").unwrap_or_default();
        // Pages that were looked at lately, are dirty or are under writeback take time.
        let waits =
            kib("writepending").or_else(|| Some(kib("dirty")? + kib("writeback")?)).unwrap_or_default();
        cache = cache + (kib("inactive_file")? - waits);
        all = all + kib("managed").or_else(|| kib("present"))?;
    }
    let busy = ["dirty", "writeback", "unstable"].iter().filter_map(|name| memory.pages(name));
    let busy = memory.bytes(busy.fold(0, u64::saturating_add));
    if all == Bytes::ZERO {
        return None;
    }
    // Cache that nobody moves to the inactive list is never looked at.
    let stuck = active.share_of(all) >= KEPT && cache.share_of(all) < EMPTY;
    if stuck {
        return Some(active);
    }
    ((cache - busy).share_of(all) >= KEPT).then_some(cache)
}

/// Pages of the inactive lists that fill much of the zones and that nothing writes, where most of swap is
/// free: whether cache or memory of processes, reclaim can take them (before 2.6.28).
fn idle<'a>(memory: &MemInfo, zones: impl Iterator<Item = &'a ZoneState>) -> Option<Bytes> {
    let (free, total) = (memory.free_swap?, memory.total_swap?);
    if free.share_of(total) < HALF || total < Bytes::mib(64) {
        return None;
    }
    let (mut inactive, mut all) = (Bytes::ZERO, Bytes::ZERO);
    for zone in zones {
        inactive = inactive + Bytes::kib(zone.kib("inactive")?);
        all = all + Bytes::kib(zone.kib("present")?);
    }
    let busy = ["dirty", "writeback", "unstable"].iter().filter_map(|name| memory.pages(name));
    let idle = inactive - memory.bytes(busy.fold(0, u64::saturating_add));
    (all > Bytes::ZERO && idle.share_of(all) >= KEPT).then_some(idle)
}

/// Whether a group's counter was at its limit.
fn at_limit(counter: &lotsfree_kernel_files::file::kernel_log::report::GroupCounter) -> bool {
    counter.usage.0.saturating_add(Bytes::mib(1).0) >= counter.limit.0 || counter.failcnt > 0
}

/// The kinds of zones in the order of their numbers, which `lowmem_reserve` goes by.
fn kinds(memory: &MemInfo) -> Vec<ZoneKind> {
    let mut kinds: Vec<ZoneKind> = memory.zones.iter().filter_map(|zone| ZoneKind::of(&zone.name)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn standing<'a>(
    zone: &'a ZoneState,
    highest: ZoneKind,
    movable: bool,
    kinds: &[ZoneKind],
    page: Bytes,
    dying: bool,
) -> Option<Standing<'a>> {
    let kind = ZoneKind::of(&zone.name)?;
    // Of a cut report the list of free blocks may be all that is left.
    let blocks = || Some(page.times(zone.free_pages_from(0)?).0 / 1024);
    let free = zone.kib("free").or_else(blocks)?;
    let lost = if movable { 0 } else { zone.kib("free_cma").unwrap_or(0) };
    let reserved = zone.kib("reserved_highatomic").unwrap_or_else(|| high_atomic(zone, page).0 / 1024);
    let usable = free.saturating_sub(lost).saturating_sub(reserved);
    // The last attempt before a kill asks for the high mark (`__alloc_pages_may_oom`), any other for min.
    let mark = if dying { zone.kib("high").or(zone.kib("min")) } else { zone.kib("min") };
    let mark = mark.unwrap_or(UNKNOWN_MARK.0 / 1024);
    // Boards may have no zone of the kind that was asked for; a lower one then serves the request.
    let index = kinds.iter().rposition(|other| *other <= highest).unwrap_or_default();
    let reserve =
        if kind < highest { page.times(zone.reserve.get(index).copied().unwrap_or(0)) } else { Bytes::ZERO };
    let usable = Bytes::kib(usable);
    let hurried = Bytes::kib(mark / 8 * 3) + reserve;
    Some(Standing {
        zone,
        kind,
        usable,
        enough: usable > Bytes::kib(mark) + reserve,
        hurried: usable > hurried,
    })
}

/// Free blocks of the sizes that only the high-atomic reserve still has (4.4 to 5.18, which print the kinds
/// of blocks but not the size of that reserve).
fn high_atomic(zone: &ZoneState, page: Bytes) -> Bytes {
    let blocks = zone.buddy.iter().enumerate().filter(|(_, (_, types))| &**types == "H");
    blocks.map(|(order, (count, _))| page.times(count.saturating_mul(1 << order.min(20)))).sum()
}

/// Whether a list of nodes (`0-1,3`) has `node`; true where either is unknown.
fn allows(list: Option<&str>, node: Option<u32>) -> bool {
    let (Some(list), Some(node)) = (list.filter(|list| !list.is_empty()), node) else { return true };
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u32>(), last.parse::<u32>()), (Ok(first), Ok(last)) if (first..=last).contains(&node))
    })
}

/// How much of a group at its limit was shared memory or tmpfs.
pub(crate) fn shared_of(group: &GroupUsage) -> Option<(Bytes, f64)> {
    // Version 1 prints the group's own memory and that of all below it.
    let shared = Bytes(group.stat("total_shmem").or_else(|| group.stat("shmem"))?);
    let usage = group.counter("memory").map(|counter| counter.usage)?;
    Some((shared, shared.share_of(usage)))
}

/// How much of the page cache of a group at its limit was dirty, if nothing was under writeback.
pub(crate) fn dirty_of(group: &GroupUsage) -> Option<(Bytes, f64)> {
    // Version 1 has other names, and the group's own memory beside that of all below it.
    let stat = |names: &[&str]| names.iter().find_map(|name| group.stat(name)).map(Bytes);
    let dirty = stat(&["file_dirty", "total_dirty", "dirty"])?;
    let written = stat(&["file_writeback", "total_writeback", "writeback"])?;
    let files =
        stat(&["total_inactive_file", "inactive_file"])? + stat(&["total_active_file", "active_file"])?;
    let usage = group.counter("memory").map(|counter| counter.usage)?;
    (written == Bytes::ZERO && files.share_of(usage) >= 0.5).then(|| (dirty, dirty.share_of(files)))
}

/// How much of a group at its limit was the kernel's, and what it is called: unreclaimable slab, or, in
/// version 1, which counts all kernel memory of a group together, that.
pub(crate) fn kernel_of(group: &GroupUsage) -> Option<(&'static str, Bytes, f64)> {
    let slab = || Some(("unreclaimable slab", Bytes(group.stat("slab_unreclaimable")?)));
    let kernel = || Some(("kernel memory (slab, page tables, stacks)", group.counter("kmem")?.usage));
    let (name, held) = slab().or_else(kernel)?;
    let usage = group.counter("memory").map(|counter| counter.usage)?;
    Some((name, held, held.share_of(usage)))
}
