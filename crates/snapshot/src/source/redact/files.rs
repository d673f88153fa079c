//! The table [`FILES`]: which files are kept, and how each is read.
//!
//! A file that is in no row is not kept. In a pattern `#` stands for a number and a word in braces for a
//! name:
//!
//! | in braces | stands for | becomes |
//! |---|---|---|
//! | `group` | any number of names of control groups | `Names::group_path` |
//! | `units` | a directory in which systemd looks for units | itself |
//! | `unit` | a unit, a drop-in directory without its `.d`, or a type of units | `Names::group` |
//! | `wants`, `enabled` | one of [`WANTS`], one of [`ENABLED`] | itself |
//! | `sysctls` | a directory of files of settings | itself |
//! | `conf` | a file whose name decides when it applies | [`Order::token`](super::order::Order::token) |
//! | `device` | a block device | `Names::device` |
//! | `control`, `vm`, `pool`, `khugepaged`, `ksm`, `zswap`, `mthp` | one of a list | itself |

use std::sync::LazyLock;

use lotsfree_kernel_files::counters::{Family, MthpStats};
use lotsfree_kernel_files::file::{sysctl, unit, unlinked};

use super::Redactor;
use super::counters;
use super::lists::{CONTROL_FILES, ENABLED, KHUGEPAGED, KSM, UNIT_TYPES, VM, WANTS, ZSWAP};
use super::words::normalized;

/// How the contents of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// The file is known by name and not kept.
    Drop,
    /// The file exists; its contents are not kept.
    Nothing,
    /// One or more numbers.
    Numbers,
    /// Counters and their numbers.
    Counters,
    Pressure,
    Arc,
    CpuTimes,
    Zones,
    Shm,
    DiskStats,
    Slabs,
    /// Words of settings.
    Choices,
    Control,
    Host,
    Release,
    Version,
    Boot,
    OsRelease,
    Profile,
    Swaps,
    Mounts,
    Stat,
    Status,
    Process,
    Cgroup,
    NumaMaps,
    Maps,
    Rollup,
    Unlinked,
    Settings,
    Limits,
    Unit,
    KernelLog,
}

/// Every file that the collector reads or whose existence it checks. To keep another file, add a row.
pub(super) const FILES: &[(&str, Contents)] = &[
    ("proc/uptime", Contents::Numbers),
    ("proc/version", Contents::Version),
    ("proc/cmdline", Contents::Boot),
    ("proc/meminfo", Contents::Counters),
    ("proc/vmstat", Contents::Counters),
    ("proc/stat", Contents::CpuTimes),
    ("proc/spl/kstat/zfs/arcstats", Contents::Arc),
    ("proc/zoneinfo", Contents::Zones),
    ("proc/buddyinfo", Contents::Zones),
    ("proc/pagetypeinfo", Contents::Zones),
    ("proc/slabinfo", Contents::Slabs),
    ("proc/pressure/memory", Contents::Pressure),
    ("proc/pressure/io", Contents::Pressure),
    ("proc/pressure/cpu", Contents::Pressure),
    ("proc/sysvipc/shm", Contents::Shm),
    ("proc/swaps", Contents::Swaps),
    ("proc/mounts", Contents::Mounts),
    ("proc/diskstats", Contents::DiskStats),
    ("proc/self/cgroup", Contents::Cgroup),
    ("proc/#/stat", Contents::Stat),
    ("proc/#/status", Contents::Status),
    ("proc/#/statm", Contents::Numbers),
    ("proc/#/oom_score_adj", Contents::Numbers),
    ("proc/#/io", Contents::Process),
    ("proc/#/limits", Contents::Process),
    ("proc/#/cgroup", Contents::Cgroup),
    ("proc/#/maps", Contents::Maps),
    ("proc/#/smaps_rollup", Contents::Rollup),
    (unlinked::PATH, Contents::Unlinked),
    ("proc/#/numa_maps", Contents::NumaMaps),
    ("proc/sys/kernel/hostname", Contents::Host),
    ("proc/sys/kernel/osrelease", Contents::Release),
    ("proc/sys/vm/{vm}", Contents::Choices),
    ("proc/sys/kernel/shmmax", Contents::Numbers),
    ("proc/sys/kernel/shmall", Contents::Numbers),
    ("proc/sys/kernel/shmmni", Contents::Numbers),
    ("proc/sys/kernel/sem", Contents::Numbers),
    ("proc/sys/kernel/numa_balancing", Contents::Numbers),
    ("proc/sys/kernel/panic", Contents::Numbers),
    ("proc/sys/kernel/panic_on_oops", Contents::Numbers),
    ("proc/sys/kernel/pid_max", Contents::Numbers),
    ("proc/sys/kernel/threads-max", Contents::Numbers),
    ("proc/sys/fs/dentry-state", Contents::Numbers),
    ("proc/sys/fs/procfs-drop-fd-dentries", Contents::Numbers),
    ("proc/sys/fs/file-max", Contents::Numbers),
    ("proc/sys/fs/aio-max-nr", Contents::Numbers),
    ("sys/devices/system/cpu/online", Contents::Numbers),
    ("sys/devices/system/node/node#/cpulist", Contents::Numbers),
    ("sys/devices/system/node/node#/distance", Contents::Numbers),
    ("sys/devices/system/node/node#/meminfo", Contents::Counters),
    ("sys/devices/system/node/node#/vmstat", Contents::Counters),
    ("sys/devices/system/node/node#/numastat", Contents::Counters),
    ("sys/devices/system/node/node#/hugepages/hugepages-#kB/{pool}", Contents::Numbers),
    ("sys/devices/system/edac/mc/mc#/ce_count", Contents::Numbers),
    ("sys/devices/system/edac/mc/mc#/ue_count", Contents::Numbers),
    ("sys/block/{device}/queue/rotational", Contents::Numbers),
    ("sys/block/{device}/queue/read_ahead_kb", Contents::Numbers),
    ("sys/fs/cgroup/{group}/{control}", Contents::Control),
    ("sys/kernel/mm/hugepages/hugepages-#kB/{pool}", Contents::Numbers),
    ("sys/kernel/mm/transparent_hugepage/enabled", Contents::Choices),
    ("sys/kernel/mm/transparent_hugepage/defrag", Contents::Choices),
    ("sys/kernel/mm/transparent_hugepage/shmem_enabled", Contents::Choices),
    ("sys/kernel/mm/transparent_hugepage/use_zero_page", Contents::Numbers),
    ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", Contents::Numbers),
    ("sys/kernel/mm/transparent_hugepage/shrink_underused", Contents::Numbers),
    ("sys/kernel/mm/transparent_hugepage/khugepaged/{khugepaged}", Contents::Numbers),
    ("sys/kernel/mm/transparent_hugepage/hugepages-#kB/enabled", Contents::Choices),
    ("sys/kernel/mm/transparent_hugepage/hugepages-#kB/shmem_enabled", Contents::Choices),
    ("sys/kernel/mm/transparent_hugepage/hugepages-#kB/stats/{mthp}", Contents::Numbers),
    ("sys/kernel/mm/lru_gen/enabled", Contents::Numbers),
    ("sys/kernel/mm/lru_gen/min_ttl_ms", Contents::Numbers),
    ("sys/kernel/mm/ksm/{ksm}", Contents::Numbers),
    ("sys/kernel/mm/damon/admin/kdamonds", Contents::Nothing),
    ("sys/module/zswap/parameters/{zswap}", Contents::Choices),
    ("sys/kernel/debug/zswap/{zswap}", Contents::Numbers),
    ("etc/os-release", Contents::OsRelease),
    ("etc/security/limits.conf", Contents::Limits),
    ("etc/security/limits.d/{conf}", Contents::Limits),
    ("etc/sysctl.conf", Contents::Settings),
    ("{sysctls}/{conf}", Contents::Settings),
    ("etc/systemd/system/{wants}/{enabled}", Contents::Nothing),
    ("{units}/{unit}.d/{conf}", Contents::Unit),
    ("{units}/{unit}", Contents::Unit),
    ("etc/tuned/active_profile", Contents::Profile),
    ("dev/kmsg", Contents::KernelLog),
    // Checked on the running machine only, where they tell in which container the reader runs.
    ("run/.containerenv", Contents::Drop),
    (".dockerenv", Contents::Drop),
];

/// Files of huge page pools.
const POOL: [&str; 5] =
    ["nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages", "nr_overcommit_hugepages"];

/// A row of [`FILES`], parsed.
struct Pattern {
    /// The path up to the first name.
    start: String,
    parts: Vec<&'static str>,
    contents: Contents,
}

/// The rows of [`FILES`]. A row that begins with a directory in braces is there once for each such directory.
static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let mut patterns = Vec::new();
    for &(pattern, contents) in FILES {
        let directories: &[&'static str] = match pattern.split('/').next() {
            Some("{units}") => &unit::LOOKUP,
            Some("{sysctls}") => &sysctl::DIRECTORIES,
            _ => &[""],
        };
        for directory in directories {
            let rest = if directory.is_empty() {
                pattern
            } else {
                pattern.split_once('/').map_or("", |(_, rest)| rest)
            };
            let parts: Vec<&str> =
                directory.split('/').filter(|part| !part.is_empty()).chain(rest.split('/')).collect();
            let plain = parts.iter().take_while(|part| !part.contains(['{', '#'])).copied();
            let start = plain.collect::<Vec<_>>().join("/");
            patterns.push(Pattern { start, parts, contents });
        }
    }
    patterns
});

impl Pattern {
    fn may_match(&self, path: &str) -> bool {
        path.starts_with(&self.start) || self.start.starts_with(path)
    }
}

impl Redactor {
    /// How a file is read, and the path under which it is kept; `None` for one that no row matches.
    pub(super) fn find(&mut self, path: &str) -> Option<(Contents, String)> {
        let parts: Vec<&str> = path.split('/').collect();
        for pattern in PATTERNS.iter().filter(|pattern| path.starts_with(&pattern.start)) {
            if let Some(kept) = self.matched(&pattern.parts, &parts) {
                return Some((pattern.contents, kept.join("/")));
            }
        }
        None
    }

    /// The path under which a directory is kept that may hold files of the table.
    pub(super) fn find_directory(&mut self, path: &str) -> Option<String> {
        let parts: Vec<&str> = path.split('/').collect();
        if path == "sys/fs/cgroup" || path.starts_with("sys/fs/cgroup/") {
            let (groups, root) = (&parts[3..], "sys/fs/cgroup");
            return Some(if groups.is_empty() {
                root.into()
            } else {
                format!("{root}/{}", self.names.group_path(&groups.join("/")))
            });
        }
        for pattern in
            PATTERNS.iter().filter(|pattern| pattern.may_match(path) && pattern.parts.len() > parts.len())
        {
            if let Some(kept) = self.matched(&pattern.parts[..parts.len()], &parts) {
                return Some(kept.join("/"));
            }
        }
        None
    }

    /// The parts of a path as they are kept, if they match those of a pattern.
    fn matched(&mut self, pattern: &[&str], parts: &[&str]) -> Option<Vec<String>> {
        // `{group}` matches all the names for which the pattern has no other part.
        let groups = pattern.iter().position(|part| *part == "{group}");
        let more = match groups {
            Some(_) => (parts.len() + 1).checked_sub(pattern.len())?,
            None if parts.len() != pattern.len() => return None,
            None => 0,
        };
        let at = groups.unwrap_or(parts.len());
        let behind = if groups.is_some() { &pattern[at + 1..] } else { &[] };
        let pairs = || {
            pattern[..at]
                .iter()
                .zip(&parts[..at])
                .chain(behind.iter().zip(parts.get(at + more..).unwrap_or(&[])))
        };
        if !pairs().all(|(pattern, part)| is_part(pattern, part)) {
            return None;
        }
        let mut kept: Vec<String> = Vec::with_capacity(parts.len());
        for (i, part) in parts.iter().enumerate() {
            let pattern = match i {
                i if i < at => pattern[i],
                i if i < at + more => "{group}",
                i => behind[i - at - more],
            };
            kept.push(self.part(pattern, part));
        }
        Some(kept)
    }

    fn part(&mut self, pattern: &str, part: &str) -> String {
        match pattern {
            "{group}" => self.names.group(part),
            "{unit}" => self.unit(part),
            "{unit}.d" => format!("{}.d", self.unit(part.strip_suffix(".d").unwrap_or(part))),
            "{conf}" => self.order.token(part),
            "{device}" => self.names.device(&part.replace('!', "/")).replace('/', "!"),
            _ => part.to_owned(),
        }
    }

    /// Redacts the name of a unit, or of a type of units, whose drop-ins apply to all units of the type.
    fn unit(&mut self, name: &str) -> String {
        if UNIT_TYPES.has(name) { name.to_owned() } else { self.names.group(name) }
    }
}

/// Whether a part of a path matches the part `pattern` of a pattern.
fn is_part(pattern: &str, part: &str) -> bool {
    let is_unit = |name: &str| {
        name.rsplit_once('.').is_some_and(|(base, kind)| !base.is_empty() && UNIT_TYPES.has(kind))
    };
    match pattern {
        "{unit}" => is_unit(part),
        "{unit}.d" => part.strip_suffix(".d").is_some_and(|unit| is_unit(unit) || UNIT_TYPES.has(unit)),
        "{conf}" => part.ends_with(".conf"),
        "{device}" => !part.is_empty(),
        "{wants}" => WANTS.has(part),
        "{enabled}" => ENABLED.has(part),
        "{control}" => CONTROL_FILES.has(part),
        "{vm}" => VM.has(part),
        "{khugepaged}" => KHUGEPAGED.has(part),
        "{ksm}" => KSM.has(part) || counters().has(part),
        "{zswap}" => ZSWAP.has(part),
        "{pool}" => POOL.contains(&part),
        "{mthp}" => MthpStats::ROWS.iter().any(|row| row.name == part),
        _ if pattern.contains('#') => normalized(part) == pattern,
        _ => pattern == part,
    }
}
