//! The tracepoints that are watched, and how this kernel numbers them.

use std::path::Path;
use std::{fs, thread};

use lotsfree_kernel_files::file::trace_format::{Place, TraceFormat};
use lotsfree_sys::{self as sys, TracepointEvent};

use crate::WatchError;

/// What a hit of a tracepoint means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Allocate,
    Free,
    AddToPageCache,
    Switch,
    Waking,
    ReclaimBegin,
    ReclaimEnd,
    CompactionBegin,
    CompactionEnd,
}

struct Row {
    name: &'static str,
    kind: Kind,
    filter: &'static str,
}

const fn row(name: &'static str, kind: Kind, filter: &'static str) -> Row {
    Row { name, kind, filter }
}

/// Blocks of pages are watched that hold a page frame whose number is a multiple of this, so that the same
/// pages are seen when they are allocated and when they are freed.
pub(crate) const FRAMES: u64 = 32;
/// Pages of the page cache are watched at every index that is a multiple of this, so that the same pages are
/// seen whenever they come.
pub(crate) const STRIDE: u64 = 16;

/// The table. `prev_state & 2` is `TASK_UNINTERRUPTIBLE`, also of a task that can be killed
/// (`include/linux/sched.h`; 2 since 2.6).
const TABLE: [Row; 13] = [
    row("kmem/mm_page_alloc", Kind::Allocate, "!(pfn & 31)"),
    row("kmem/mm_page_free", Kind::Free, "!(pfn & 31)"),
    row("filemap/mm_filemap_add_to_page_cache", Kind::AddToPageCache, "!(index & 15)"),
    row("sched/sched_switch", Kind::Switch, "prev_state & 2"),
    row("sched/sched_wakeup", Kind::Waking, ""),
    row("vmscan/mm_vmscan_direct_reclaim_begin", Kind::ReclaimBegin, ""),
    row("vmscan/mm_vmscan_direct_reclaim_end", Kind::ReclaimEnd, ""),
    row("vmscan/mm_vmscan_memcg_reclaim_begin", Kind::ReclaimBegin, ""),
    row("vmscan/mm_vmscan_memcg_reclaim_end", Kind::ReclaimEnd, ""),
    row("vmscan/mm_vmscan_node_reclaim_begin", Kind::ReclaimBegin, ""),
    row("vmscan/mm_vmscan_node_reclaim_end", Kind::ReclaimEnd, ""),
    row("compaction/mm_compaction_begin", Kind::CompactionBegin, ""),
    row("compaction/mm_compaction_end", Kind::CompactionEnd, ""),
];

/// Bytes of a `struct page`, by which an address says which frame it is of: the array of all of them begins
/// at a multiple of any number that matters here (`vmemmap`).
const STRUCT_PAGE: u64 = 64;

/// Where the fields are that are read of a tracepoint's record. Which of them it has depends on its kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) flags: Option<Place>,
    pub(crate) order: Option<Place>,
    /// `pfn`, or before 4.2 `page`, the address of its `struct page`.
    pub(crate) frame: Option<Place>,
    /// By how many bits a frame's number is less than the field.
    pub(crate) shift: u32,
    pub(crate) device: Option<Place>,
    pub(crate) inode: Option<Place>,
    pub(crate) index: Option<Place>,
    /// `pid` of the task that is woken.
    pub(crate) woken: Option<Place>,
}

/// A tracepoint of this kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracepoint {
    pub(crate) kind: Kind,
    pub(crate) fields: Fields,
}

/// The tracepoints of this kernel, and those that it has not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracepoints {
    pub(crate) known: Vec<Tracepoint>,
    pub(crate) events: Vec<TracepointEvent>,
    pub(crate) missing: Vec<&'static str>,
}

/// Where tracefs can be: since 4.1, and before it below debugfs.
const PLACES: [(&str, &str, &str); 2] =
    [("tracefs", "/sys/kernel/tracing", "events"), ("debugfs", "/sys/kernel/debug", "tracing/events")];

/// Tracepoints that are on at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// Memory. What programs take comes in bursts, so that these are on as long as possible.
    Memory,
    /// Waits. There are many, and one is like the next, so that few of them say as much as all.
    Waits,
}

/// All of them.
pub(crate) const SET: [Set; SETS] = [Set::Memory, Set::Waits];
/// Their number.
pub(crate) const SETS: usize = 2;

impl Kind {
    pub(crate) fn set(self) -> Set {
        match self {
            Kind::Switch | Kind::Waking => Set::Waits,
            _ => Set::Memory,
        }
    }

    /// How many hits a record of blocks of this order stands for: most do not pass the filter. Filters see
    /// every switch from one task to another, of which there are two for each that is woken.
    pub(crate) fn hits(self, order: u64) -> u64 {
        match self {
            Kind::Allocate | Kind::Free => (FRAMES >> order).max(1),
            Kind::AddToPageCache => (STRIDE >> order).max(1),
            Kind::Waking => 3,
            _ => 1,
        }
    }
}

impl Tracepoints {
    /// Reads the numbers and formats of the tracepoints. Where tracefs is not mounted, a thread mounts it for
    /// itself and ends.
    pub(crate) fn find() -> Result<Self, WatchError> {
        for (_, place, below) in PLACES {
            let events = Path::new(place).join(below);
            if events.join("sched").is_dir() {
                return Self::below(&events);
            }
        }
        let mounted = thread::spawn(|| {
            let mut refused = None;
            for (kind, place, below) in PLACES {
                match sys::mount_for_this_thread(kind, Path::new(place)) {
                    Ok(()) => return Self::below(&Path::new(place).join(below)),
                    Err(error) => refused = Some(error),
                }
            }
            Err(WatchError::Refused(refused.unwrap_or_else(|| std::io::ErrorKind::NotFound.into())))
        });
        mounted.join().unwrap_or(Err(WatchError::Missing("at all")))
    }

    fn below(events: &Path) -> Result<Self, WatchError> {
        let mut found = Tracepoints::default();
        for Row { name, kind, filter } in &TABLE {
            let directory = events.join(name);
            let read = |name: &str| fs::read(directory.join(name));
            let id = match read("id") {
                Ok(text) => String::from_utf8_lossy(&text).trim().parse().ok(),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    return Err(WatchError::Refused(error));
                }
                Err(_) => None,
            };
            let (Some(id), Ok(format)) = (id, read("format")) else {
                found.missing.push(name);
                continue;
            };
            let format = TraceFormat::parse(&format);
            let field = |name: &str| format.field(name);
            let is_address = field("pfn").is_none();
            let known = Fields {
                flags: field("common_flags"),
                order: field("order"),
                frame: field("pfn").or_else(|| field("page")),
                shift: if is_address { STRUCT_PAGE.ilog2() } else { 0 },
                device: field("s_dev"),
                inode: field("i_ino"),
                index: field("index"),
                woken: field("pid"),
            };
            found.known.push(Tracepoint { kind: *kind, fields: known });
            let filter = match is_address && filter.contains("pfn") {
                true => format!("!(page & {})", (FRAMES - 1) * STRUCT_PAGE),
                false => (*filter).to_owned(),
            };
            let (chain, set) = (*kind == Kind::Switch, kind.set() as usize);
            found.events.push(TracepointEvent { id, filter, chain, set });
        }
        match found.missing.iter().find(|name| NEEDED.contains(name)) {
            Some(name) => Err(WatchError::Missing(name)),
            None => Ok(found),
        }
    }
}

/// The tracepoints without which nothing can be told. Every kernel since 3.0 has them.
const NEEDED: [&str; 4] = [
    "kmem/mm_page_alloc",
    "sched/sched_switch",
    "sched/sched_wakeup",
    "vmscan/mm_vmscan_direct_reclaim_begin",
];
