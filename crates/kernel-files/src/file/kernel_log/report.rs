//! The kernel's reports on memory: `invoked oom-killer`, `page allocation failure`, `page allocation stalls
//! for` and what SysRq shows, with the state of all nodes and zones at that time.
//!
//! Sources: `mm/oom_kill.c:dump_header`, `mm/page_alloc.c:warn_alloc`, `mm/show_mem.c:show_free_areas` and
//! `mm/memcontrol.c:mem_cgroup_print_oom_meminfo` of 6.12, and their predecessors since 2.6.18. A log may
//! have been cut or wrapped by a mail program: every line is taken by itself, and a line of `key:value`
//! words continues the record before it.

use std::fmt::{Display, Write as _};

use lotsfree_units::Bytes;
use serde::Serialize;

use super::super::scan::{decimal, leading_digits};
use super::OomKill;

/// What the kernel reported about memory at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Seconds since boot, if the line said so.
    pub at: Option<u64>,
    /// Why the kernel reported.
    pub trigger: Trigger,
    /// The process that asked for memory.
    pub process: String,
    /// What it asked for, if printed.
    pub request: Option<Request>,
    /// The kernel's release (`5.4.0-42-generic`), if printed.
    pub release: Option<String>,
    /// Functions of the call trace, innermost first.
    pub trace: Vec<Box<str>>,
    /// The control group that was at its limit.
    pub group: Option<GroupUsage>,
    /// The state of memory.
    pub memory: MemInfo,
    /// Caches of unreclaimable slab (4.15 and later, where slab exceeds what processes use).
    pub slabs: Vec<SlabUse>,
    /// Processes that could be killed; sizes in pages.
    pub tasks: Vec<Task>,
    /// Kills that followed.
    pub kills: Vec<OomKill>,
}

/// Why the kernel reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The report has no head: it was cut off, or somebody asked for it (SysRq m).
    #[default]
    Shown,
    /// Somebody asked to see it (SysRq m).
    Asked,
    /// The OOM killer was invoked.
    OomKiller,
    /// An allocation failed.
    AllocationFailure,
    /// No room was found in the addresses for vmalloc, for this many bytes.
    VmallocFailure(u64),
    /// An allocation took this many milliseconds and goes on (4.10 to 4.14).
    AllocationStall(u64),
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Number of pages as a power of two; -1 if an administrator asked for a kill (SysRq f).
    pub order: i32,
    /// The flags as a number; its bits differ between kernels.
    pub mask: u64,
    /// The flags by name (`GFP_ATOMIC|__GFP_COMP`), from 4.6 on.
    pub flags: String,
    /// Nodes that a memory policy allows, if it names any.
    pub nodemask: Option<String>,
    /// Nodes that the cpuset allows.
    pub mems_allowed: Option<String>,
    /// `oom_score_adj` (or `oom_adj`) of the process that asked.
    pub oom_score_adj: Option<i32>,
}

/// Usage of a control group at its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupUsage {
    /// The group whose limit was reached.
    pub limit_of: String,
    /// The group of the process that asked, if printed.
    pub task_in: Option<String>,
    /// `memory`, `memory+swap`, `swap`, `kmem`: usage, limit and how often it was reached.
    pub counters: Vec<GroupCounter>,
    /// The group's `memory.stat`, in bytes, except for its counts of events.
    pub stat: Vec<(Box<str>, u64)>,
}

/// One of a group's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupCounter {
    /// `memory`, `memory+swap`, `swap` or `kmem`.
    pub name: Box<str>,
    /// Usage.
    pub usage: Bytes,
    /// Limit.
    pub limit: Bytes,
    /// How often the limit was reached.
    pub failcnt: u64,
}

/// What `show_mem` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemInfo {
    /// The size of a page: that of the first column of free blocks.
    pub page_size: Option<Bytes>,
    /// The totals at the head, in pages (`active_anon`, `free`, `slab_unreclaimable`, …).
    pub totals: Vec<(Box<str>, u64)>,
    /// Nodes (4.8 and later).
    pub nodes: Vec<NodeState>,
    /// Zones.
    pub zones: Vec<ZoneState>,
    /// Pools of huge pages: node, total, free, surplus pages, and the size of one.
    pub huge: Vec<(u32, u64, u64, u64, Bytes)>,
    /// Pages of the page cache.
    pub pagecache: Option<u64>,
    /// Pages in the swap cache.
    pub swap_cache: Option<u64>,
    /// Free swap.
    pub free_swap: Option<Bytes>,
    /// All swap.
    pub total_swap: Option<Bytes>,
    /// Pages of memory.
    pub ram: Option<u64>,
    /// Pages in HighMem and Movable zones.
    pub highmem: Option<u64>,
    /// Reserved pages.
    pub reserved: Option<u64>,
    /// Pages reserved for CMA.
    pub cma: Option<u64>,
    /// Poisoned pages.
    pub poisoned: Option<u64>,
}

/// A node in a report; fields in KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeState {
    /// Its number.
    pub node: u32,
    /// `active_anon`, `shmem`, …, in KiB.
    pub fields: Vec<(Box<str>, u64)>,
    /// Whether reclaim had given it up.
    pub all_unreclaimable: Option<bool>,
}

/// A zone in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ZoneState {
    /// Its node, where the kernel knows several.
    pub node: Option<u32>,
    /// `DMA`, `DMA32`, `Normal`, `HighMem`, `Movable`.
    pub name: Box<str>,
    /// `free`, `min`, `low`, `high`, `present`, `managed`, `free_cma`, …, in KiB.
    pub fields: Vec<(Box<str>, u64)>,
    /// `lowmem_reserve`, in pages.
    pub reserve: Vec<u64>,
    /// Free blocks by order; a letter per migrate type that has some (`UMC`), where printed.
    pub buddy: Vec<(u64, Box<str>)>,
    /// Whether reclaim had given it up.
    pub all_unreclaimable: Option<bool>,
}

/// A cache of unreclaimable slab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlabUse {
    /// Its name.
    pub name: Box<str>,
    /// Bytes in objects.
    pub used: Bytes,
    /// Bytes in slabs.
    pub total: Bytes,
}

/// A row of the task table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Process id.
    pub pid: u32,
    /// Virtual size in pages.
    pub total_vm: u64,
    /// Resident pages.
    pub rss: u64,
    /// Resident pages of shared memory (6.8 and later).
    pub rss_shmem: Option<u64>,
    /// Page tables.
    pub page_tables: Option<Bytes>,
    /// Pages in swap.
    pub swapped: Option<u64>,
    /// `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// Name.
    pub name: Box<str>,
}

impl Report {
    /// Prints the report as a recent kernel does, without its kills; a parser reads back what this report
    /// has.
    pub fn print(&self, out: &mut String) {
        let time = self.at.map_or_else(String::new, |at| format!("[{at:5}.000000] "));
        let mut line = |text: &dyn Display| {
            let _ = writeln!(out, "{time}{text}");
        };
        let process = &self.process;
        match self.trigger {
            Trigger::Asked => line(&"sysrq: Show Memory"),
            Trigger::VmallocFailure(bytes) if self.request.is_none() => {
                line(&format_args!(
                    "vmap allocation for size {bytes} failed: use vmalloc=<size> to increase size"
                ));
            }
            _ => {}
        }
        if let Some(Request { order, mask, flags, nodemask, mems_allowed, oom_score_adj }) = &self.request {
            let flags = if flags.is_empty() { String::new() } else { format!("({flags})") };
            let nodes = nodemask.as_deref().unwrap_or("(null)");
            let adjustment =
                oom_score_adj.map_or_else(String::new, |value| format!(", oom_score_adj={value}"));
            match self.trigger {
                Trigger::OomKiller if process.is_empty() => line(&format_args!(
                    "oom-killer: gfp_mask={mask:#x}{flags}, nodemask={nodes}, order={order}{adjustment}"
                )),
                Trigger::OomKiller => line(&format_args!(
                    "{process} invoked oom-killer: gfp_mask={mask:#x}{flags}, nodemask={nodes}, order={order}{adjustment}"
                )),
                Trigger::AllocationFailure => line(&format_args!(
                    "{process}: page allocation failure: order:{order}, mode:{mask:#x}{flags}, nodemask={nodes}"
                )),
                Trigger::AllocationStall(ms) => line(&format_args!(
                    "{process}: page allocation stalls for {ms}ms, order:{order}, mode:{mask:#x}{flags}, nodemask={nodes}"
                )),
                Trigger::VmallocFailure(bytes) => line(&format_args!(
                    "{process}: vmalloc error: size {bytes}, vm_struct allocation failed, mode:{mask:#x}{flags}, nodemask={nodes}"
                )),
                Trigger::Shown | Trigger::Asked => {}
            }
            if let Some(nodes) = mems_allowed {
                line(&format_args!("{process} cpuset=/ mems_allowed={nodes}"));
            }
        }
        if let Some(release) = &self.release {
            line(&format_args!("CPU: 0 PID: 0 Comm: {process} Not tainted {release} #1"));
        }
        if !self.trace.is_empty() {
            line(&"Call Trace:");
        }
        for function in &self.trace {
            line(&format_args!(" {function}+0x0/0x0"));
        }
        if let Some(group) = &self.group {
            group.print(&mut line);
        }
        if !self.memory.is_empty() {
            line(&"Mem-Info:");
        }
        self.memory.print(&mut line);
        if !self.slabs.is_empty() {
            line(&"Unreclaimable slab info:");
        }
        for SlabUse { name, used, total } in &self.slabs {
            line(&format_args!("{name} {}KB {}KB", used.0 / 1024, total.0 / 1024));
        }
        print_tasks(&self.tasks, &mut line);
    }
}

/// Prints the task table with the columns that the tasks have.
fn print_tasks(tasks: &[Task], line: &mut dyn FnMut(&dyn Display)) {
    type Column = (&'static str, fn(&Task) -> Option<i64>);
    let columns: [Column; 4] = [
        ("rss_shmem", |task| Some(task.rss_shmem? as i64)),
        ("pgtables_bytes", |task| Some(task.page_tables?.0 as i64)),
        ("swapents", |task| Some(task.swapped? as i64)),
        ("oom_score_adj", |task| Some(task.oom_score_adj?.into())),
    ];
    let columns: Vec<Column> =
        columns.into_iter().filter(|(_, value)| tasks.iter().any(|task| value(task).is_some())).collect();
    if tasks.is_empty() {
        return;
    }
    let names: String = columns.iter().map(|(name, _)| format!(" {name}")).collect();
    line(&format_args!("[  pid  ] uid tgid total_vm rss cpu{names} name"));
    for task in tasks {
        let values = columns
            .iter()
            .map(|(_, value)| value(task).map_or_else(|| " -".to_owned(), |value| format!(" {value}")));
        let values: String = values.collect();
        let Task { pid, total_vm, rss, name, .. } = task;
        line(&format_args!("[{pid:7}] 0 {pid} {total_vm} {rss} 0{values} {name}"));
    }
}

impl GroupUsage {
    fn print(&self, line: &mut dyn FnMut(&dyn Display)) {
        if let Some(task_in) = &self.task_in {
            line(&format_args!("Task in {task_in} killed as a result of limit of {}", self.limit_of));
        }
        for GroupCounter { name, usage, limit, failcnt } in &self.counters {
            line(&format_args!(
                "{name}: usage {}kB, limit {}kB, failcnt {failcnt}",
                usage.0 / 1024,
                limit.0 / 1024
            ));
        }
        if !self.stat.is_empty() || self.task_in.is_none() && !self.limit_of.is_empty() {
            line(&format_args!("Memory cgroup stats for {}:", self.limit_of));
        }
        for (name, value) in &self.stat {
            line(&format_args!("{name} {value}"));
        }
    }
}

/// ` name:value` words.
fn words_of(fields: &[(Box<str>, u64)], unit: &str) -> String {
    fields.iter().map(|(name, value)| format!(" {name}:{value}{unit}")).collect()
}

fn answer(all_unreclaimable: Option<bool>) -> &'static str {
    match all_unreclaimable {
        Some(true) => " all_unreclaimable? yes",
        Some(false) => " all_unreclaimable? no",
        None => "",
    }
}

impl MemInfo {
    fn print(&self, line: &mut dyn FnMut(&dyn Display)) {
        if !self.totals.is_empty() {
            line(&words_of(&self.totals, "").trim_start());
        }
        for NodeState { node, fields, all_unreclaimable } in &self.nodes {
            line(&format_args!("Node {node}{}{}", words_of(fields, "kB"), answer(*all_unreclaimable)));
        }
        let page = self.page_size.unwrap_or(Bytes::kib(4)).0 / 1024;
        for zone in &self.zones {
            let node = zone.node.map_or_else(String::new, |node| format!("Node {node} "));
            let name = &zone.name;
            if !zone.fields.is_empty() {
                let answer = answer(zone.all_unreclaimable);
                line(&format_args!("{node}{name}{}{answer}", words_of(&zone.fields, "kB")));
            }
            if !zone.buddy.is_empty() {
                let blocks = zone.buddy.iter().enumerate().map(|(order, (count, types))| {
                    let types = if types.is_empty() { String::new() } else { format!(" ({types})") };
                    format!(" {count}*{}kB{types}", page << order)
                });
                line(&format_args!("{node}{name}:{}", blocks.collect::<String>()));
            }
            if !zone.reserve.is_empty() {
                let pages: String = zone.reserve.iter().map(|pages| format!(" {pages}")).collect();
                line(&format_args!("lowmem_reserve[]:{pages}"));
            }
        }
        for (node, total, free, surplus, size) in &self.huge {
            line(&format_args!(
                "Node {node} hugepages_total={total} hugepages_free={free} hugepages_surp={surplus} hugepages_size={}kB",
                size.0 / 1024
            ));
        }
        for (pages, words) in [
            (self.pagecache, "total pagecache pages"),
            (self.swap_cache, "pages in swap cache"),
            (self.ram, "pages RAM"),
            (self.highmem, "pages HighMem/MovableOnly"),
            (self.reserved, "pages reserved"),
            (self.cma, "pages cma reserved"),
            (self.poisoned, "pages hwpoisoned"),
        ] {
            if let Some(pages) = pages {
                line(&format_args!("{pages} {words}"));
            }
        }
        for (bytes, name) in [(self.free_swap, "Free swap "), (self.total_swap, "Total swap")] {
            if let Some(bytes) = bytes {
                line(&format_args!("{name} = {}kB", bytes.0 / 1024));
            }
        }
    }
}

impl ZoneState {
    /// A field in KiB.
    pub fn kib(&self, name: &str) -> Option<u64> {
        field(&self.fields, name)
    }

    /// Free pages in blocks of at least `order`; `None` without a list of free blocks.
    pub fn free_pages_from(&self, order: u32) -> Option<u64> {
        if self.buddy.is_empty() {
            return None;
        }
        let blocks = self.buddy.iter().enumerate().skip(order as usize);
        Some(blocks.fold(0u64, |sum, (order, (count, _))| {
            sum.saturating_add(count.saturating_mul(1 << order.min(20)))
        }))
    }
}

impl NodeState {
    /// A field in KiB.
    pub fn kib(&self, name: &str) -> Option<u64> {
        field(&self.fields, name)
    }
}

impl MemInfo {
    /// A total in pages.
    pub fn pages(&self, name: &str) -> Option<u64> {
        field(&self.totals, name)
    }

    /// The state as lines of `/proc/meminfo`, in KiB, as far as the report has it.
    pub fn meminfo(&self) -> Vec<(&'static str, u64)> {
        let kib = |pages: u64| self.bytes(pages).0 / 1024;
        let total = |name: &str| self.pages(name).map(kib);
        let sum = |name: &str| -> Option<u64> {
            let zones: Vec<u64> = self.zones.iter().filter_map(|zone| zone.kib(name)).collect();
            let nodes: Vec<u64> = self.nodes.iter().filter_map(|node| node.kib(name)).collect();
            let all = if zones.is_empty() { nodes } else { zones };
            (!all.is_empty()).then(|| all.into_iter().fold(0, u64::saturating_add))
        };
        // A log that was cut may have one zone of three; a cut total is worse than none.
        let pages = self.ram.map(|ram| kib(ram.saturating_sub(self.reserved.unwrap_or(0))));
        let listed = ["active_anon", "inactive_anon", "active_file", "inactive_file", "unevictable", "free"];
        let least = listed.iter().filter_map(|name| total(name)).fold(0, u64::saturating_add);
        let slab = || total("slab_reclaimable")?.checked_add(total("slab_unreclaimable")?);
        // The lists, slab and free pages together are nearly all memory, where nothing says how much there
        // is.
        let whole = total("active_anon").zip(total("free")).zip(slab());
        let listed = whole.map(|(_, slab)| least + slab + total("pagetables").unwrap_or(0));
        // Before 3.8 zones print what is present only, before 2.6.28 their lists as two.
        let present = sum("present").filter(|_| self.totals.is_empty());
        let managed = sum("managed").max(pages).or(present).or(listed).filter(|managed| *managed >= least);
        let free = total("free").or_else(|| sum("free"));
        let anonymous = || {
            let lists = total("active_anon")?.checked_add(total("inactive_anon")?)?;
            Some(lists.saturating_sub(total("shmem").unwrap_or(0)))
        };
        [
            ("MemTotal", managed),
            ("MemFree", free),
            ("Cached", self.pagecache.map(kib)),
            ("Active(anon)", total("active_anon")),
            ("Inactive(anon)", total("inactive_anon")),
            ("Active(file)", total("active_file")),
            ("Inactive(file)", total("inactive_file")),
            ("Unevictable", total("unevictable")),
            ("SwapTotal", self.total_swap.map(|swap| swap.0 / 1024)),
            ("SwapFree", self.free_swap.map(|swap| swap.0 / 1024)),
            ("Dirty", total("dirty")),
            ("Writeback", total("writeback")),
            ("AnonPages", anonymous()),
            ("Mapped", total("mapped")),
            ("Shmem", total("shmem")),
            ("Slab", slab()),
            ("SReclaimable", total("slab_reclaimable")),
            ("SUnreclaim", total("slab_unreclaimable")),
            ("KernelStack", sum("kernel_stack")),
            ("PageTables", total("pagetables")),
        ]
        .into_iter()
        .filter_map(|(name, kib)| Some((name, kib?)))
        .collect()
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.totals.is_empty() && self.nodes.is_empty() && self.zones.is_empty()
    }

    /// Pages as bytes.
    pub fn bytes(&self, pages: u64) -> Bytes {
        self.page_size.or_else(|| self.page_size_of_sums()).unwrap_or(Bytes::kib(4)).times(pages)
    }

    /// The page size that makes the total of free pages the sum of the zones' free KiB.
    fn page_size_of_sums(&self) -> Option<Bytes> {
        let free = self.pages("free")?;
        let zones = self.zones.iter().filter_map(|zone| zone.kib("free")).fold(0u64, u64::saturating_add);
        let kib = zones.checked_div(free)?;
        [4, 16, 64].into_iter().find(|size| kib.abs_diff(*size) <= size / 4).map(Bytes::kib)
    }
}

impl GroupUsage {
    /// The counter of that name.
    pub fn counter(&self, name: &str) -> Option<&GroupCounter> {
        self.counters.iter().find(|counter| &*counter.name == name)
    }

    /// A field of the group's `memory.stat`.
    pub fn stat(&self, name: &str) -> Option<u64> {
        field(&self.stat, name)
    }
}

impl Request {
    /// Whether the request could sleep and reclaim (`GFP_KERNEL`) or not (`GFP_ATOMIC`, `GFP_NOWAIT`).
    ///
    /// `__GFP_WAIT` is 0x10 before 4.4; 4.4 to 6.x have `__GFP_DIRECT_RECLAIM` as 0x400000 or, from 4.19
    /// on, 0x400. From 4.6 on the flags are printed by name.
    pub fn can_reclaim(&self) -> bool {
        if !self.flags.is_empty() {
            let never = ["GFP_ATOMIC", "GFP_NOWAIT"];
            return !self.flags.split('|').any(|flag| never.contains(&flag))
                || self.flags.contains("__GFP_DIRECT_RECLAIM");
        }
        let old = self.mask < 0x40_0000 && self.mask & 0x208_0000 == 0;
        if old { self.mask & 0x10 != 0 } else { self.mask & 0x40_0000 != 0 }
    }

    /// Whether reclaim for the request may write to disks and enter file systems: not with `GFP_NOIO` and
    /// `GFP_NOFS`. Kernels before 4.6 print only bits, of which these two have had the same meaning until
    /// 4.4.
    pub fn may_enter_fs(&self) -> bool {
        if !self.flags.is_empty() {
            return !["GFP_NOFS", "GFP_NOIO"].iter().any(|flag| self.flags.contains(flag));
        }
        self.mask & 0xc0 == 0xc0
    }

    /// The highest kind of zone that may serve the request: the first four bits are the same on all kernels.
    pub fn highest_zone(&self) -> ZoneKind {
        match (self.mask & 1 != 0, self.mask & 4 != 0, self.mask & 2 != 0, self.mask & 8 != 0) {
            (true, ..) => ZoneKind::Dma,
            (_, true, ..) => ZoneKind::Dma32,
            (_, _, true, true) => ZoneKind::Movable,
            (_, _, true, false) => ZoneKind::HighMem,
            _ => ZoneKind::Normal,
        }
    }

    /// Whether the pages may be moved, and so be taken from CMA.
    pub fn movable(&self) -> bool {
        self.mask & 8 != 0
    }
}

/// Kinds of zones, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneKind {
    /// `ZONE_DMA`.
    Dma,
    /// `ZONE_DMA32`.
    Dma32,
    /// `ZONE_NORMAL`.
    Normal,
    /// `ZONE_HIGHMEM`.
    HighMem,
    /// `ZONE_MOVABLE`.
    Movable,
}

impl ZoneKind {
    /// Its name, as the kernel prints it.
    pub fn name(self) -> &'static str {
        match self {
            ZoneKind::Dma => "DMA",
            ZoneKind::Dma32 => "DMA32",
            ZoneKind::Normal => "Normal",
            ZoneKind::HighMem => "HighMem",
            ZoneKind::Movable => "Movable",
        }
    }

    /// The kind by the zone's name.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "DMA" => ZoneKind::Dma,
            "DMA32" => ZoneKind::Dma32,
            "Normal" => ZoneKind::Normal,
            "HighMem" => ZoneKind::HighMem,
            "Movable" => ZoneKind::Movable,
            _ => return None,
        })
    }
}

fn field(fields: &[(Box<str>, u64)], name: &str) -> Option<u64> {
    fields.iter().find(|(key, _)| &**key == name).map(|(_, value)| *value)
}

/// At most this many rows of the task table, caches and functions are kept of a report.
const MOST_TASKS: usize = 4096;
const MOST_SLABS: usize = 512;
const MOST_TRACE: usize = 48;
/// At most this many fields, zones, nodes and lines of statistics are kept of a record.
const MOST_FIELDS: usize = 128;

/// Texts of which the line of a report contains at least one.
pub(super) const SIGNS: [&str; 28] = [
    "oom-killer: gfp_mask=",
    "vmemmap alloc failure",
    ": Show Memory",
    ": vmalloc",
    "vmap allocation for size ",
    "possible memory allocation deadlock",
    " invoked",
    "page allocation",
    " as a result of",
    "Mem-Info:",
    "Mem-info:",
    "active_anon:",
    "Active:",
    "free:",
    "lowmem_reserve",
    "*4kB",
    "*16kB",
    "*64kB",
    "*8kB",
    "hugepages_total=",
    " pages ",
    "ree swap",
    "otal swap",
    "ages RAM",
    "memory: usage ",
    "memory+swap: usage ",
    "swap: usage ",
    "Memory cgroup stats for ",
];

/// Which record a line of `key:value` words continues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Open {
    #[default]
    None,
    Totals,
    Node,
    Zone,
    Buddy,
    Slabs,
    Tasks,
    GroupStat,
    Trace,
}

/// Assembles a report from lines.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) report: Report,
    open: Open,
    columns: Vec<Box<str>>,
}

/// The name of a process alone: a serial console mixes the kernel's lines with each other and with those of
/// programs.
fn unmixed(process: &str) -> &str {
    let after = |text, end| str::rsplit_once(text, end).map_or(text, |(_, process)| process);
    after(after(after(process, "] "), "]"), "kernel: ").trim_start()
}

/// Reads the first line of a report.
pub(super) fn begins(at: Option<u64>, message: &str) -> Option<Report> {
    if let Some((process, rest)) = message.split_once(" invoked oom-killer: ") {
        return Some(Report {
            at,
            trigger: Trigger::OomKiller,
            process: unmixed(process).to_owned(),
            request: Some(request(rest)),
            ..Report::default()
        });
    }
    // Before 2.6.17 the process is not named.
    if message.starts_with("oom-killer: gfp_mask=") {
        let request = Some(request(message));
        return Some(Report { at, trigger: Trigger::OomKiller, request, ..Report::default() });
    }
    // `vmalloc error: size 14680064, page order 9, failed to allocate pages, mode:…`: addresses were there.
    let pages = message.split_once(": vmalloc error: size ").and_then(|(process, rest)| {
        let (_, rest) = rest.split_once(", page order ")?;
        Some((process, rest))
    });
    let failure = [": page allocation failure", ": vmemmap alloc failure"];
    let failure = failure.into_iter().find_map(|text| {
        let (process, rest) = message.split_once(text)?;
        Some((process, rest.strip_prefix([':', '.'])?.trim_start()))
    });
    if let Some((process, rest)) = failure.or(pages) {
        return Some(Report {
            at,
            trigger: Trigger::AllocationFailure,
            process: unmixed(process).to_owned(),
            request: Some(request(rest)),
            ..Report::default()
        });
    }
    if message.trim_end().ends_with(": Show Memory") || message.trim_end().ends_with(" : Show Memory") {
        let asked = message.to_ascii_lowercase().starts_with("sysrq");
        return asked.then(|| Report { at, trigger: Trigger::Asked, ..Report::default() });
    }
    if let Some(report) = vmalloc(at, message) {
        return Some(report);
    }
    if let Some((process, rest)) = message.split_once(" possible memory allocation deadlock size ") {
        // XFS asks for ever. `XFS: fio(123) possible memory allocation deadlock size 50184 in kmem_alloc
        // (mode:0x250)`
        let (size, _) = leading_digits(rest.as_bytes());
        let pages = decimal(size)?.div_ceil(4096).max(1);
        let order = pages.next_power_of_two().trailing_zeros() as i32;
        let process = process.rsplit(' ').next().unwrap_or(process).split('(').next().unwrap_or_default();
        return Some(Report {
            at,
            trigger: Trigger::AllocationFailure,
            process: process.to_owned(),
            request: Some(Request { order, ..request(rest) }),
            ..Report::default()
        });
    }
    let (process, rest) = message.split_once(": page allocation stalls for ")?;
    let (ms, rest) = rest.split_once("ms")?;
    Some(Report {
        at,
        trigger: Trigger::AllocationStall(ms.parse().ok()?),
        process: process.to_owned(),
        request: Some(request(rest)),
        ..Report::default()
    })
}

/// Reads `modprobe: vmalloc error: size 1189956, vm_struct allocation failed, mode:…` (5.12 and later) and
/// `vmap allocation for size 33562624 failed: use vmalloc=<size> to increase size`
/// (`mm/vmalloc.c:alloc_vmap_area` and `__vmalloc_node_range`).
fn vmalloc(at: Option<u64>, message: &str) -> Option<Report> {
    // 2.6.39 to 5.10 print the size first; that pages are missing they say in other words.
    let old =
        message.split_once(": vmalloc: allocation failure: ").filter(|(_, rest)| rest.contains(" bytes"));
    let (process, rest) = match message.split_once(": vmalloc error: size ").or(old) {
        Some((process, rest)) if old.is_some() || rest.contains("vm_struct allocation failed") => {
            (process, rest)
        }
        Some(_) => return None,
        None => {
            ("", message.strip_prefix("vmap allocation for size ").filter(|rest| rest.contains(" failed"))?)
        }
    };
    let (size, _) = leading_digits(rest.as_bytes());
    // A driver that asks for nothing has a defect; memory is not what it lacks.
    let trigger = Trigger::VmallocFailure(decimal(size).filter(|size| *size > 0)?);
    let asked = rest.contains("mode:").then(|| request(rest));
    Some(Report { at, trigger, process: process.to_owned(), request: asked, ..Report::default() })
}

/// Reads `gfp_mask=0x201da, order=0, oom_score_adj=0` and `order:4, mode:0x1(GFP_…),
/// nodemask=(null),cpuset=/,mems_allowed=0`.
fn request(text: &str) -> Request {
    let mut request = Request::default();
    let value = |keys: [&str; 2]| {
        let at = keys.iter().find_map(|key| text.find(key).map(|at| at + key.len()))?;
        Some(&text[at..])
    };
    // `vmalloc error: size 0, page order 9, failed to allocate pages` has it first.
    if let Some(text) = value(["order=", "order:"]).or(Some(text)) {
        request.order = signed(text).unwrap_or_default();
    }
    if let Some(text) = value(["gfp_mask=", "mode:"]) {
        let text = text.trim_start_matches("0x");
        let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
        request.mask = u64::from_str_radix(&text[..end], 16).unwrap_or_default();
        if let Some(flags) = text[end..].strip_prefix('(') {
            request.flags = flags.split(')').next().unwrap_or_default().to_owned();
        }
    }
    if let Some(text) = value(["nodemask=", "nodemask="]) {
        let list: &str = text.split([' ', 'c']).next().unwrap_or_default().trim_end_matches(',');
        if !list.is_empty() && !list.starts_with('(') {
            request.nodemask = Some(list.to_owned());
        }
    }
    if let Some(text) = value(["mems_allowed=", "mems_allowed="]) {
        request.mems_allowed = Some(node_list(text).to_owned());
    }
    if let Some(text) = value(["oom_score_adj=", "oom_adj="]) {
        request.oom_score_adj = signed(text);
    }
    request
}

/// A list of nodes (`0-1,3`) at the start of a text.
fn node_list(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != ',').unwrap_or(text.len());
    text[..end].trim_end_matches(',')
}

fn signed(text: &str) -> Option<i32> {
    let end = text.char_indices().find(|&(i, c)| !(c.is_ascii_digit() || i == 0 && c == '-'));
    text[..end.map_or(text.len(), |(i, _)| i)].parse().ok()
}

/// A number, followed by `kB` or not, and whether it was.
fn amount(text: &str) -> Option<(u64, bool)> {
    let (digits, rest) = leading_digits(text.as_bytes());
    let value = decimal(digits)?;
    match rest {
        b"" => Some((value, false)),
        b"kB" | b"KB" => Some((value, true)),
        _ => None,
    }
}

/// `key:value` words of a line.
#[derive(Default)]
struct Fields {
    fields: Vec<(Box<str>, u64)>,
    all_unreclaimable: Option<bool>,
    /// Whether a value is of KiB, not of pages.
    kib: bool,
}

/// Reads `key:value` words from the first one on; `None` where a word is neither that nor a known exception.
fn fields(text: &str) -> Option<Fields> {
    let mut found = Fields::default();
    let mut words = text.split_ascii_whitespace().peekable();
    while let Some(word) = words.next() {
        if matches!(word, "all_unreclaimable?") {
            found.all_unreclaimable = words.next().map(|answer| answer == "yes");
            continue;
        }
        // Who wrote the mail left the rest out.
        if matches!(word, "..." | "…") {
            break;
        }
        // Terminals cut lines off in the middle of a word, and mail programs break words.
        let enough = found.fields.len() > 2;
        // `Node 0 … Balloon:0kB` and `isolated(anon):0kB` are ordinary words.
        let Some((key, value)) = word.trim_end_matches(',').split_once(':') else {
            if enough {
                break;
            }
            return None;
        };
        // `shmem_thp: 0kB` (4.8 to 5.19).
        let value = match value {
            "" => words.next_if(|next| amount(next).is_some()).unwrap_or_default(),
            value => value,
        };
        if value.is_empty() {
            continue;
        }
        let (value, of_kib) = match amount(value) {
            Some(amount) => amount,
            None if enough => break,
            None => return None,
        };
        found.kib |= of_kib;
        if found.fields.len() < MOST_FIELDS {
            found.fields.push((key.to_ascii_lowercase().into(), value));
        }
    }
    (!found.fields.is_empty() || found.all_unreclaimable.is_some()).then_some(found)
}

impl Builder {
    /// Starts with the report's first line.
    pub(super) fn new(report: Report) -> Self {
        Builder { report, ..Builder::default() }
    }

    /// Whether memory has been read already, so that another `Mem-Info:` begins another report.
    pub(super) fn has_memory(&self) -> bool {
        !self.report.memory.is_empty()
    }

    /// Whether anything but a head was read.
    pub(super) fn has_substance(&self) -> bool {
        self.has_memory() || self.report.group.is_some() || !self.report.tasks.is_empty()
    }

    /// Takes a line if it belongs to the report.
    pub(super) fn take(&mut self, raw: &str, message: &str) -> bool {
        let message = message.trim();
        if message.is_empty() {
            return false;
        }
        if self.task(raw) {
            return true;
        }
        let words: Vec<&str> = message.split_ascii_whitespace().take(64).collect();
        self.head(message, &words)
            || self.group(message, &words)
            || self.summary(&words)
            || self.zone(message, &words)
            || self.slab(&words)
            || self.trace(message)
            || self.continues(message, &words)
    }

    /// `CPU: 2 PID: 467 Comm: x Not tainted 5.4.0 #1`, `x cpuset=/ mems_allowed=0`.
    fn head(&mut self, message: &str, words: &[&str]) -> bool {
        let names_process =
            (message.contains(" PID: ") || message.starts_with("Pid: ")) && !self.has_memory();
        if names_process && (message.contains("omm: ")) {
            let release = words
                .iter()
                .position(|word| word.starts_with('#'))
                .and_then(|at| words.get(at.checked_sub(1)?));
            let release =
                release.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
            if let Some(release) = release {
                self.report.release = Some((*release).to_owned());
                // Distributions build these with pages of 64 KiB; a list of free blocks tells for certain.
                if release.contains("ppc64le") || release.contains("+64k") {
                    self.report.memory.page_size = Some(Bytes::kib(64));
                }
            }
            return true;
        }
        if let Some((_, nodes)) =
            message.split_once(" mems_allowed=").filter(|_| message.contains(" cpuset="))
        {
            if let Some(request) = &mut self.report.request {
                request.mems_allowed = Some(node_list(nodes).to_owned());
            }
            return true;
        }
        if words.first().is_some_and(|word| word.eq_ignore_ascii_case("mem-info:")) {
            self.open = Open::Totals;
            return true;
        }
        if self.has_memory() {
            return false;
        }
        if message.starts_with("Call Trace") || message.starts_with("Backtrace") {
            self.open = Open::Trace;
            return true;
        }
        message.starts_with("Hardware name: ")
    }

    /// `Task in … killed as a result of limit of …`, `memory: usage …`, `Memory cgroup stats for …`.
    fn group(&mut self, message: &str, words: &[&str]) -> bool {
        if let Some((task, group)) = super::limits_of(message) {
            let usage = self.report.group.get_or_insert_default();
            usage.task_in = Some(task.to_owned());
            usage.limit_of = group.to_owned();
            return true;
        }
        if let [name, "usage", usage, "limit", limit, "failcnt", failcnt] = words
            && let Some(name) = name.strip_suffix(':')
        {
            let kib = |word: &str| amount(word.trim_end_matches(',')).map(|(value, _)| Bytes::kib(value));
            let (Some(usage), Some(limit), Ok(failcnt)) = (kib(usage), kib(limit), failcnt.parse()) else {
                return false;
            };
            let counters = &mut self.report.group.get_or_insert_default().counters;
            if counters.len() < 8 {
                counters.push(GroupCounter { name: name.into(), usage, limit, failcnt });
            }
            return true;
        }
        if let Some(rest) = message.strip_prefix("Memory cgroup stats for ") {
            // One line per group below the limit before 5.3; the first is the group itself.
            let Some((group, stats)) = split_stats(rest) else { return true };
            let usage = self.report.group.get_or_insert_default();
            if usage.limit_of.is_empty() {
                usage.limit_of = group.to_owned();
            }
            if usage.stat.is_empty()
                && let Some(Fields { fields: stats, .. }) = fields(stats)
            {
                usage.stat = stats.into_iter().map(|(name, kib)| (name, kib.saturating_mul(1024))).collect();
            }
            self.open = if stats.trim().is_empty() { Open::GroupStat } else { Open::None };
            return true;
        }
        if self.open == Open::GroupStat
            && let [name, value] = words
            && let Some(value) = decimal(value.as_bytes())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        {
            let stat = &mut self.report.group.get_or_insert_default().stat;
            if stat.len() < MOST_FIELDS {
                stat.push(((*name).into(), value));
            }
            return true;
        }
        false
    }

    /// Lines with one figure for the whole machine.
    fn summary(&mut self, words: &[&str]) -> bool {
        let memory = &mut self.report.memory;
        let number = |word: &str| decimal(word.as_bytes());
        match words {
            [count, "total", "pagecache", "pages"] => memory.pagecache = number(count),
            [count, "pages", "in", "swap", "cache"] | [count, "pages", "swap", "cached"] => {
                memory.swap_cache = number(count);
            }
            ["Free", "swap", rest @ ..] | ["Free", "swap:", rest @ ..] => {
                memory.free_swap = rest.last().and_then(|word| amount(word)).map(|(kib, _)| Bytes::kib(kib));
            }
            ["Total", "swap", rest @ ..] => {
                memory.total_swap = rest.last().and_then(|word| amount(word)).map(|(kib, _)| Bytes::kib(kib));
            }
            [count, "pages", "RAM"] | [count, "pages", "of", "RAM"] => memory.ram = number(count),
            [count, "pages", "HighMem" | "HighMem/MovableOnly" | "HIGHMEM"]
            | [count, "pages", "of", "HIGHMEM"] => memory.highmem = number(count),
            [count, "pages", "reserved"] | [count, "reserved", "pages"] => memory.reserved = number(count),
            [count, "pages", "cma", "reserved"] => memory.cma = number(count),
            [count, "pages", "hwpoisoned"] => memory.poisoned = number(count),
            ["Swap", "cache" | "cache:", ..]
            | [
                _,
                "pages",
                "shared" | "non-shared" | "mlocked" | "writeback" | "dirty" | "mapped" | "slab"
                | "pagetables",
            ] => {}
            ["Node", node, rest @ ..] if rest.iter().any(|word| word.starts_with("hugepages_total=")) => {
                let value = |key: &str| {
                    let word = rest.iter().find_map(|word| word.strip_prefix(key))?;
                    amount(word).map(|(value, _)| value)
                };
                let size = Bytes::kib(value("hugepages_size=").unwrap_or_default());
                if let (Ok(node), Some(total)) = (node.parse(), value("hugepages_total="))
                    && memory.huge.len() < MOST_FIELDS
                {
                    let free = value("hugepages_free=").unwrap_or_default();
                    memory.huge.push((node, total, free, value("hugepages_surp=").unwrap_or_default(), size));
                }
            }
            _ => return false,
        }
        self.open = Open::None;
        true
    }

    /// Lines of nodes and zones: `Node 0 DMA free:…`, `DMA: 5*4kB …`, `lowmem_reserve[]: …`.
    fn zone(&mut self, message: &str, words: &[&str]) -> bool {
        if let ["lowmem_reserve[]:", rest @ ..] = words {
            if let Some(zone) = self.report.memory.zones.last_mut() {
                zone.reserve = rest.iter().filter_map(|word| decimal(word.as_bytes())).take(8).collect();
            }
            return true;
        }
        let (node, rest) = match words {
            ["Node", node, rest @ ..] => match node.trim_end_matches(',').parse::<u32>() {
                Ok(node) => (Some(node), rest),
                Err(_) => return false,
            },
            rest => (None, rest),
        };
        let Some(first) = rest.first() else { return false };
        if let Some(name) = first.strip_suffix(':')
            && ZoneKind::of(name).is_some()
            && rest
                .get(1)
                .and_then(|word| word.split_once('*'))
                .is_some_and(|(count, _)| decimal(count.as_bytes()).is_some())
        {
            self.zone_at(node, name);
            self.open = Open::Buddy;
            return self.blocks(&rest[1..]);
        }
        if ZoneKind::of(first).is_some()
            && rest.get(1).is_some_and(|word| word.starts_with("free:") || word.starts_with("Free:"))
        {
            let Some(at) = message.find("ree:") else { return false };
            let Some(Fields { fields: found, all_unreclaimable, .. }) = fields(&message[at - 1..]) else {
                return false;
            };
            let zone = self.zone_at(node, first);
            zone.fields = found;
            zone.all_unreclaimable = all_unreclaimable;
            self.open = Open::Zone;
            return true;
        }
        if let Some(node) = node
            && first.starts_with("active_anon:")
            && let Some(at) = message.find("active_anon:")
            && let Some(Fields { fields: found, all_unreclaimable, .. }) = fields(&message[at..])
        {
            let nodes = &mut self.report.memory.nodes;
            if nodes.len() < MOST_FIELDS {
                nodes.push(NodeState { node, fields: found, all_unreclaimable });
            }
            self.open = Open::Node;
            return true;
        }
        false
    }

    /// The zone of that node and name, which is added if it is new.
    fn zone_at(&mut self, node: Option<u32>, name: &str) -> &mut ZoneState {
        let zones = &mut self.report.memory.zones;
        let at =
            zones.iter().position(|zone| zone.node == node && &*zone.name == name).unwrap_or_else(|| {
                if zones.len() >= MOST_FIELDS {
                    zones.remove(0);
                }
                zones.push(ZoneState { node, name: name.into(), ..ZoneState::default() });
                zones.len() - 1
            });
        // `lowmem_reserve[]:` and wrapped lines follow: the zone is the last one.
        let zone = zones.remove(at);
        zones.push(zone);
        let last = zones.len() - 1;
        &mut zones[last]
    }

    /// `5*4kB (UM) 0*8kB … = 2036kB`.
    fn blocks(&mut self, words: &[&str]) -> bool {
        let memory = &mut self.report.memory;
        let Some(zone) = memory.zones.last_mut() else { return false };
        for word in words {
            if let Some((count, size)) = word.split_once('*') {
                if zone.buddy.is_empty()
                    && let Some((kib, true)) = amount(size)
                {
                    memory.page_size = Some(Bytes::kib(kib));
                }
                if let Some(count) = decimal(count.as_bytes())
                    && zone.buddy.len() < 20
                {
                    zone.buddy.push((count, "".into()));
                }
            } else if let Some(types) = word.strip_prefix('(').and_then(|word| word.strip_suffix(')'))
                && let Some((_, last)) = zone.buddy.last_mut()
            {
                *last = types.into();
            }
        }
        true
    }

    /// `Unreclaimable slab info:` and its rows.
    fn slab(&mut self, words: &[&str]) -> bool {
        match words {
            ["Unreclaimable", "slab", "info:"] => {
                self.open = Open::Slabs;
                true
            }
            ["Name", "Used", "Total"] if self.open == Open::Slabs => true,
            [name, used, total] if self.open == Open::Slabs => {
                let (Some((used, true)), Some((total, true))) = (amount(used), amount(total)) else {
                    return false;
                };
                if self.report.slabs.len() < MOST_SLABS {
                    let (used, total) = (Bytes::kib(used), Bytes::kib(total));
                    self.report.slabs.push(SlabUse { name: (*name).into(), used, total });
                }
                true
            }
            _ => false,
        }
    }

    /// ` [<ffffffff811a6e0d>] ? do_try_to_free_pages+0x2ed/0x410`.
    fn trace(&mut self, message: &str) -> bool {
        if self.open != Open::Trace {
            return false;
        }
        let text = message.split_once(">] ").map_or(message, |(_, rest)| rest);
        let text = text.trim_start_matches("? ");
        let Some((name, _)) = text.split_once("+0x") else { return false };
        if name.contains(' ') {
            return false;
        }
        if self.report.trace.len() < MOST_TRACE {
            self.report.trace.push(name.into());
        }
        true
    }

    /// The task table.
    fn task(&mut self, raw: &str) -> bool {
        if let Some(at) = raw.find("total_vm") {
            let start = raw[..at].rfind(']').map_or(0, |at| at + 1);
            self.columns = raw[start..].split_ascii_whitespace().map(Into::into).take(16).collect();
            self.open = Open::Tasks;
            return true;
        }
        if raw.contains("Tasks state (memory values in pages)") {
            self.open = Open::Tasks;
            return true;
        }
        let Some((pid, row)) = task_row(raw) else { return false };
        let words: Vec<&str> = row.split_ascii_whitespace().take(24).collect();
        let numbers = words.iter().take_while(|word| word.parse::<i64>().is_ok()).count();
        if numbers < 5 || numbers == words.len() && numbers < 7 {
            return false;
        }
        let columns = if self.columns.is_empty() { usual_columns(numbers) } else { self.columns.clone() };
        let value = |name: &str| {
            let at = columns.iter().position(|column| &**column == name)?;
            words.get(at)?.parse::<i64>().ok()
        };
        let pages = |name: &str| value(name).and_then(|value| u64::try_from(value).ok());
        let tables = match (pages("pgtables_bytes"), pages("nr_ptes")) {
            (Some(bytes), _) => Some(Bytes(bytes)),
            (None, Some(tables)) => Some(Bytes::kib(4).times(tables)),
            (None, None) => None,
        };
        let named = columns.iter().position(|column| &**column == "name").unwrap_or(numbers);
        let name: Box<str> = words.get(named..).unwrap_or_default().join(" ").into();
        if name.is_empty() {
            return false;
        }
        let task = Task {
            pid,
            total_vm: pages("total_vm").unwrap_or_default(),
            rss: pages("rss").unwrap_or_default(),
            rss_shmem: pages("rss_shmem"),
            page_tables: tables,
            swapped: pages("swapents"),
            oom_score_adj: value("oom_score_adj").and_then(|value| value.try_into().ok()),
            name,
        };
        if self.report.tasks.len() < MOST_TASKS {
            self.report.tasks.push(task);
        }
        self.open = Open::Tasks;
        true
    }

    /// Lines of `key:value` words, which continue the record before them.
    fn continues(&mut self, message: &str, words: &[&str]) -> bool {
        if words.first().is_some_and(|word| word.contains('*')) && self.open == Open::Buddy {
            return self.blocks(words);
        }
        // The figure of a word whose name ended the line before.
        let message = match words {
            [first, _, ..] if amount(first).is_some() => message[first.len()..].trim_start(),
            _ => message,
        };
        let Some(Fields { fields: found, all_unreclaimable, kib }) = fields(message) else { return false };
        let memory = &mut self.report.memory;
        let add = |to: &mut Vec<(Box<str>, u64)>| {
            let room = MOST_FIELDS.saturating_sub(to.len());
            to.extend(found.iter().take(room).cloned());
        };
        match (self.open, kib) {
            (Open::Zone, true) => {
                let Some(zone) = memory.zones.last_mut() else { return false };
                add(&mut zone.fields);
                zone.all_unreclaimable = all_unreclaimable.or(zone.all_unreclaimable);
            }
            (Open::Node, true) => {
                let Some(node) = memory.nodes.last_mut() else { return false };
                add(&mut node.fields);
                node.all_unreclaimable = all_unreclaimable.or(node.all_unreclaimable);
            }
            (open, false)
                if open == Open::Totals || TOTALS.iter().any(|name| field(&found, name).is_some()) =>
            {
                add(&mut memory.totals);
                self.open = Open::Totals;
            }
            _ => return false,
        }
        true
    }
}

/// Names of totals, of which a line of totals has at least one.
const TOTALS: [&str; 9] = [
    "active_anon",
    "active_file",
    "inactive_file",
    "free",
    "slab_reclaimable",
    "mapped",
    "active",
    "unevictable",
    "slab",
];

/// Splits `/group: cache:0KB rss:…` or `/group:`.
fn split_stats(text: &str) -> Option<(&str, &str)> {
    let (group, rest) = match text.split_once(": ") {
        Some(split) => split,
        None => (text.strip_suffix(':')?, ""),
    };
    Some((group, rest))
}

/// The process id and the rest of `[ 1234]     0  1234 …`, after any prefix.
fn task_row(raw: &str) -> Option<(u32, &str)> {
    let mut rest = raw;
    for _ in 0..4 {
        let open = rest.find('[')?;
        let (inside, after) = rest[open + 1..].split_once(']')?;
        let inside = inside.trim();
        if !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit()) {
            return Some((inside.parse().ok()?, after));
        }
        rest = after;
    }
    None
}

/// The columns of a table whose head is missing, by the number of its numbers.
fn usual_columns(numbers: usize) -> Vec<Box<str>> {
    let text = match numbers {
        7 => "uid tgid total_vm rss nr_ptes swapents oom_score_adj name",
        8 => "uid tgid total_vm rss nr_ptes nr_pmds swapents oom_score_adj name",
        10 => "uid tgid total_vm rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name",
        _ => "uid tgid total_vm rss",
    };
    text.split(' ').map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::KernelLog;
    use super::*;
    use crate::file::trial::corrupted;
    use crate::{File, Log};

    fn reports(text: &[u8]) -> Vec<Report> {
        KernelLog::parse(text, &mut Log::default()).reports
    }

    fn one(text: &str) -> Report {
        let reports = reports(text.as_bytes());
        assert_eq!(reports.len(), 1, "{reports:?}");
        prints_back(&reports[0]);
        reports.into_iter().next().expect("one report")
    }

    /// A printed report reads back as the same report, but for its kills.
    fn prints_back(report: &Report) {
        let mut text = String::new();
        report.print(&mut text);
        let without = Report { kills: Vec::new(), ..report.clone() };
        assert_eq!(reports(text.as_bytes()), [without], "{text}");
    }

    /// 2.6.32 of 32 bits without NUMA: lowmem is empty, HighMem is not.
    const LOWMEM: &str = "\
Mar  3 04:05:06 db1 kernel: mysqld invoked oom-killer: gfp_mask=0xd0, order=1, oom_adj=0
Mar  3 04:05:06 db1 kernel: mysqld cpuset=/ mems_allowed=0
Mar  3 04:05:06 db1 kernel: Pid: 812, comm: mysqld Not tainted 2.6.32-71.el6.i686 #1
Mar  3 04:05:06 db1 kernel: Call Trace:
Mar  3 04:05:06 db1 kernel:  [<c04d8f5a>] ? oom_kill_process+0x9a/0x260
Mar  3 04:05:06 db1 kernel: Mem-Info:
Mar  3 04:05:06 db1 kernel: DMA per-cpu:
Mar  3 04:05:06 db1 kernel: CPU    0: hi:    0, btch:   1 usd:   0
Mar  3 04:05:06 db1 kernel: active_anon:20000 inactive_anon:3000 isolated_anon:0
Mar  3 04:05:06 db1 kernel:  active_file:900 inactive_file:800 isolated_file:0
Mar  3 04:05:06 db1 kernel:  unevictable:0 dirty:1 writeback:0 unstable:0
Mar  3 04:05:06 db1 kernel:  free:700000 slab_reclaimable:1000 slab_unreclaimable:190000
Mar  3 04:05:06 db1 kernel:  mapped:500 shmem:60 pagetables:700 bounce:0
Mar  3 04:05:06 db1 kernel: DMA free:3500kB min:64kB low:80kB high:96kB active_anon:0kB present:15800kB pages_scanned:0 all_unreclaimable? yes
Mar  3 04:05:06 db1 kernel: lowmem_reserve[]: 0 865 3909 3909
Mar  3 04:05:06 db1 kernel: Normal free:3700kB min:3728kB low:4660kB high:5592kB active_anon:0kB present:885944kB pages_scanned:90 all_unreclaimable? yes
Mar  3 04:05:06 db1 kernel: lowmem_reserve[]: 0 0 24350 24350
Mar  3 04:05:06 db1 kernel: HighMem free:2792800kB min:512kB low:3792kB high:7072kB active_anon:80000kB present:3116800kB all_unreclaimable? no
Mar  3 04:05:06 db1 kernel: lowmem_reserve[]: 0 0 0 0
Mar  3 04:05:06 db1 kernel: DMA: 1*4kB 1*8kB 0*16kB 1*32kB = 44kB
Mar  3 04:05:06 db1 kernel: Normal: 701*4kB 110*8kB 1*16kB = 3700kB
Mar  3 04:05:06 db1 kernel: 1760 total pagecache pages
Mar  3 04:05:06 db1 kernel: 40 pages in swap cache
Mar  3 04:05:06 db1 kernel: Swap cache stats: add 5, delete 5, find 1/2
Mar  3 04:05:06 db1 kernel: Free swap  = 2000000kB
Mar  3 04:05:06 db1 kernel: Total swap = 2097148kB
Mar  3 04:05:06 db1 kernel: 1048560 pages RAM
Mar  3 04:05:06 db1 kernel: 822274 pages HighMem
Mar  3 04:05:06 db1 kernel: 20000 pages reserved
Mar  3 04:05:06 db1 kernel: [ pid ]   uid  tgid total_vm      rss cpu oom_adj oom_score_adj name
Mar  3 04:05:06 db1 kernel: [  812]    27   812    90000    12000   1       0             0 mysqld
Mar  3 04:05:06 db1 kernel: Out of memory: Kill process 812 (mysqld) score 12 or sacrifice child
Mar  3 04:05:06 db1 kernel: Killed process 812, UID 27, (mysqld) total-vm:360000kB, anon-rss:47000kB, file-rss:1000kB
";

    #[test]
    fn lowmem_of_2_6_32() {
        let report = one(LOWMEM);
        let request = report.request.as_ref().expect("a request");
        assert_eq!(
            (report.trigger, &*report.process, request.order, request.mask),
            (Trigger::OomKiller, "mysqld", 1, 0xd0)
        );
        assert_eq!(
            (request.highest_zone(), request.movable(), request.can_reclaim()),
            (ZoneKind::Normal, false, true)
        );
        assert_eq!(report.release.as_deref(), Some("2.6.32-71.el6.i686"));
        assert_eq!(report.trace, ["oom_kill_process".into()]);
        let memory = &report.memory;
        assert_eq!((memory.pages("slab_unreclaimable"), memory.pages("shmem")), (Some(190_000), Some(60)));
        assert_eq!(
            (memory.ram, memory.highmem, memory.reserved),
            (Some(1_048_560), Some(822_274), Some(20_000))
        );
        assert_eq!(
            (memory.free_swap, memory.total_swap),
            (Some(Bytes::kib(2_000_000)), Some(Bytes::kib(2_097_148)))
        );
        let zone = |name: &str| memory.zones.iter().find(|zone| &*zone.name == name).expect("a zone");
        let normal = zone("Normal");
        assert_eq!(
            (normal.node, normal.kib("min"), normal.kib("present")),
            (None, Some(3728), Some(885_944))
        );
        assert_eq!(
            (normal.reserve.as_slice(), normal.all_unreclaimable),
            (&[0, 0, 24_350, 24_350][..], Some(true))
        );
        assert_eq!(
            (normal.free_pages_from(0), normal.free_pages_from(1), normal.free_pages_from(3)),
            (Some(925), Some(224), Some(0))
        );
        let [task] = &report.tasks[..] else { panic!("{:?}", report.tasks) };
        assert_eq!((task.pid, task.rss, task.oom_score_adj, &*task.name), (812, 12_000, Some(0), "mysqld"));
        assert_eq!(report.kills.iter().map(|kill| kill.pid).collect::<Vec<_>>(), [812]);
    }

    /// 6.12, in a control group of version 2; a mail program wrapped a line of a node.
    const GROUP: &str = "\
[  100.000001] java invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=900
[  100.000002] CPU: 1 UID: 0 PID: 77 Comm: java Not tainted 6.12.43+deb13-amd64 #1  Debian 6.12.43-1
[  100.000003] Call Trace:
[  100.000004]  <TASK>
[  100.000005]  dump_stack_lvl+0x5d/0x80
[  100.000006] memory: usage 524288kB, limit 524288kB, failcnt 731
[  100.000007] swap: usage 0kB, limit 0kB, failcnt 0
[  100.000008] Memory cgroup stats for /kubepods/pod1/ab:
[  100.000009] anon 268435456
shmem 209715200
[  100.000010] Tasks state (memory values in pages):
[  100.000011] [  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[  100.000012] [     77]     0    77   900000    70000    66000     4000         0   700000        0           900 java
[  100.000013] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ab,mems_allowed=0,oom_memcg=/kubepods/pod1/ab,task_memcg=/kubepods/pod1/ab,task=java,pid=77,uid=0
[  100.000014] Memory cgroup out of memory: Killed process 77 (java) total-vm:3600000kB, anon-rss:264000kB, file-rss:16000kB, shmem-rss:0kB, UID:0 pgtables:680kB oom_score_adj:900
";

    #[test]
    fn a_group_of_6_12() {
        let report = one(GROUP);
        let group = report.group.as_ref().expect("a group");
        assert_eq!(
            (&*group.limit_of, group.stat("shmem"), group.stat("anon")),
            ("/kubepods/pod1/ab", Some(209_715_200), Some(268_435_456))
        );
        let memory = group.counter("memory").expect("a counter");
        assert_eq!((memory.usage, memory.limit, memory.failcnt), (Bytes::mib(512), Bytes::mib(512), 731));
        assert_eq!((report.release.as_deref(), report.at), (Some("6.12.43+deb13-amd64"), Some(100)));
        assert_eq!((report.tasks[0].rss_shmem, report.tasks[0].page_tables), (Some(0), Some(Bytes(700_000))));
        assert_eq!((report.kills.len(), &*report.kills[0].constraint), (1, "CONSTRAINT_MEMCG"));
    }

    /// 5.15, an allocation of several pages in an interrupt; two nodes, and CMA.
    const ORDER: &str = "\
[ 7.5] swapper/3: page allocation failure: order:4, mode:0x40a20(GFP_ATOMIC|__GFP_COMP), nodemask=(null),cpuset=/,mems_allowed=0-1
[ 7.5] Mem-Info:
[ 7.5] active_anon:10 inactive_anon:20 isolated_anon:0
[ 7.5]  free:90000 free_pcp:3 free_cma:16000
[ 7.5] Node 0 active_anon:40kB inactive_anon:80kB active_file:4kB mapped:8kB dirty:0kB writeback:0kB
shmem:12kB shmem_thp: 0kB kernel_stack:9000kB pagetables:800kB all_unreclaimable? no
[ 7.5] Node 0 DMA32 free:360000kB boost:0kB min:4000kB low:5000kB
high:6000kB reserved_highatomic:0KB managed:1900000kB free_cma:64000kB
[ 7.5] lowmem_reserve[]: 0 0 6000 6000
[ 7.5] Node 0 DMA32: 80000*4kB (UME) 5000*8kB (UE) 0*16kB 0*32kB 0*64kB = 360000kB
[ 7.5] Node 0 hugepages_total=8 hugepages_free=8 hugepages_surp=0 hugepages_size=2048kB
[ 7.5] 4096 pages cma reserved
[ 7.5] 0 pages hwpoisoned
[ 7.6] usb 1-1: new device
[ 7.7] Unreclaimable slab info:
[ 7.7] Name                      Used          Total
[ 7.7] kmalloc-8k              4096KB       8192KB
";

    #[test]
    fn several_pages_of_5_15() {
        let report = one(ORDER);
        let request = report.request.as_ref().expect("a request");
        assert_eq!(
            (request.order, request.can_reclaim(), request.mems_allowed.as_deref()),
            (4, false, Some("0-1"))
        );
        let [zone] = &report.memory.zones[..] else { panic!("{:?}", report.memory.zones) };
        assert_eq!(
            (zone.node, &*zone.name, zone.kib("high"), zone.kib("free_cma")),
            (Some(0), "DMA32", Some(6000), Some(64_000))
        );
        assert_eq!((zone.free_pages_from(1), zone.free_pages_from(4)), (Some(10_000), Some(0)));
        assert_eq!(report.memory.nodes[0].kib("shmem"), Some(12));
        assert_eq!(report.memory.huge, [(0, 8, 8, 0, Bytes::mib(2))]);
        assert_eq!((report.slabs.len(), report.slabs[0].total), (1, Bytes::mib(8)));
    }

    #[test]
    fn mail_programs_wrap_and_break_words() {
        let wrapped = "\
[   31.251333] mkfs.ext4 invoked
oom-killer: gfp_mask=0x101cc0(GFP_USER|__GFP_WRITE), order=0,
oom_score_adj=300
[   31.250000] Normal free:3776kB min:1872kB high:2808kB inactive_file:28k Bactive:3kB
";
        let report = one(wrapped);
        let request = report.request.as_ref().expect("a request");
        assert_eq!((&*report.process, &*request.flags), ("mkfs.ext4", "GFP_USER|__GFP_WRITE"));
        assert_eq!(request.oom_score_adj, Some(300));
        assert_eq!(report.memory.zones[0].kib("high"), Some(2808));
        // Lines that stand below each other stay lines of their own.
        let group =
            one(&GROUP.replace("/kubepods/pod1/ab:\n", "/kubepods/pod1/abcdefghijklmnopqrstuvwxyz:\n"));
        assert_eq!(group.group.as_ref().and_then(|group| group.stat("anon")), Some(268_435_456));
    }

    #[test]
    fn a_report_may_begin_in_its_middle() {
        let middle = LOWMEM.split_once("kernel: Mem-Info:").expect("it has one").1;
        let report = one(middle);
        assert_eq!(
            (report.trigger, report.request.is_none(), report.memory.zones.len()),
            (Trigger::Shown, true, 3)
        );
        assert_eq!(report.kills.len(), 1);
        let twice = format!("{GROUP}{ORDER}{LOWMEM}");
        let found = reports(twice.as_bytes());
        assert_eq!(found.iter().map(|report| report.kills.len()).collect::<Vec<_>>(), [1, 0, 1]);
    }

    #[test]
    fn a_head_inside_another_line_names_its_process() {
        for line in [
            "mysqld invoked oom-killer: gfp_mask=0xd0, order=1, oom_adj=0",
            "DMA: 1*Mar  3 04:05:06 db1 kernel: mysqld invoked oom-killer: gfp_mask=0xd0, order=1, oom_adj=0",
            "login: [  12.5] mysqld invoked oom-killer: gfp_mask=0xd0, order=1, oom_adj=0",
        ] {
            assert_eq!(begins(None, line).map(|report| report.process).as_deref(), Some("mysqld"), "{line}");
        }
    }

    #[test]
    fn other_lines_are_no_report() {
        for text in [
            "BUG: unable to handle page fault\nCPU: 0 PID: 1 Comm: x Not tainted 6.1.0 #1\nCall Trace:\n foo+0x1/0x2\n",
            "MemFree:  5 kB\nMemTotal: 9 kB\n",
            "Node 0, zone   Normal   1 2 3 4\n",
            "              total        used        free\nMem:  1 2 3\n",
        ] {
            assert_eq!(reports(text.as_bytes()), [], "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_prints_back(text in prop_oneof![corrupted(LOWMEM.as_bytes()), corrupted(GROUP.as_bytes()), corrupted(ORDER.as_bytes())]) {
            for report in reports(&text) {
                let mut out = String::new();
                report.print(&mut out);
                let again = reports(out.as_bytes());
                prop_assert!(again.len() <= 1 || !report.process.is_ascii());
            }
        }
    }
}
