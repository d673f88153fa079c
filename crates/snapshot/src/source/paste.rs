//! One text that holds one or several files: a saved file, a concatenation, a forum post.
//!
//! Lines are sorted by their shape; lines of no known shape are skipped. A shell prompt with `cat FILE`,
//! `head`'s `==> FILE <==` and `grep`'s `/proc/FILE:` say where the following lines come from if the shape
//! alone does not (`/proc/pressure/io` looks like `/proc/pressure/memory`).
//!
//! | shape | becomes |
//! |---|---|
//! | `Name: 123 kB`, `HugePages_*: 123` | `proc/meminfo` |
//! | `nr_free_pages 123`, `pgfault 123`, … | `proc/vmstat` |
//! | `Node 0, zone Normal` and the lines of the block | `proc/zoneinfo` |
//! | `Node 0, zone Normal 1 2 3 …` | `proc/buddyinfo` |
//! | `Page block order:`, `Node 0, zone Normal, type Movable …` | `proc/pagetypeinfo` |
//! | `Filename Type Size Used Priority` and rows, `swapon --show` | `proc/swaps`, and their sums in `proc/meminfo` |
//! | `slabinfo - version`, `… : tunables …` | `proc/slabinfo` |
//! | `some avg10=…`, `full avg10=…` | `proc/pressure/*` |
//! | `key shmid perms size …` and rows, the table of `ipcs -m` | `proc/sysvipc/shm` |
//! | `vm.x = y` | `proc/sys/vm/x`, or `etc/sysctl.conf` if the text says that it is that file |
//! | `* soft memlock 123` | `etc/security/limits.conf` |
//! | the table of `free` | lines of `proc/meminfo`, see below |
//! | `[rollup]` and the lines of the block, `numa_maps` lines | `proc/PID/smaps_rollup`, `proc/PID/numa_maps` |
//! | `BOOT_IMAGE=…`, `Linux host release …` | `proc/cmdline`, `proc/sys/kernel/osrelease` |
//! | `numactl -H`, `numastat`, lines of a node's meminfo | `sys/devices/system/node`, see [`super::numa`] |
//! | files of a control group after a prompt or `grep .`; a `memory.stat` | `sys/fs/cgroup` |
//! | rows of slabtop | `proc/slabinfo` |
//! | the head of `top`, `vmstat -s`; lists of processes of `top` and `ps` | lines of `proc/meminfo`, `proc/PID`, see [`super::listing`] |
//! | tables of `vmstat` and `sar`, CPUs of `iostat` | samples, see [`super::tables`] |
//! | rows of `df` on tmpfs | `Shmem` of `proc/meminfo`, where the text has none |
//! | a date alone, before files that come again | the next sample |
//! | `status`, `smaps`, `pmap -X` of one process | `proc/PID`, see [`super::process`] |
//! | `docker stats`, `kubectl describe` | groups, see [`super::containers`] |
//! | `pages_ballooned : 3276800` of Hyper-V, `current : 1024000` of VMware, `vmware-toolbox-cmd stat balloon` | `Balloon` of `proc/meminfo` |
//! | `MEM` and `SWP` of atop | lines of `proc/meminfo` |
//! | rows of `zramctl` | `proc/swaps` |
//! | ZFS' `arcstats`, the sizes of `arc_summary` | `proc/spl/kstat/zfs/arcstats` |
//! | `node_memory_MemFree_bytes 9.1e+07`, `node_vmstat_oom_kill 3` of Prometheus' node exporter | `proc/meminfo`, `proc/vmstat` |
//! | OOM kills, allocation failures and the kernel's reports on them; what programs say of refused requests | `dev/kmsg` |
//!
//! The table of `free` gives `MemTotal`, `MemFree`, `Buffers`, `Cached`, `SwapTotal`, `SwapFree` (and
//! `MemAvailable` and `Shmem` if both are printed) unless there are such lines of meminfo; a combined
//! `buff/cache` becomes `Cached`. Its unit is that of the option on the prompt. Without a prompt it is KiB,
//! or MiB if the total would otherwise be less than 256 MiB and swap is not more than 64 GiB then. Values are
//! as coarse as they were printed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lotsfree_kernel_files::counters::{Counter, Meminfo, Vmstat};
use lotsfree_kernel_files::file::kernel_log::report::{Report, Trigger};
use lotsfree_kernel_files::file::kernel_log::{self, KernelLog};

use super::MemorySource;
use super::containers::Containers;
use super::listing::{
    Listing, cpu_of_iostat, cpu_of_table, cpu_of_top, head_of_top, line_of_atop, of_one_cpu, sum_of_vmstat,
};
use super::numa::{self, Nodes};
use super::oswatcher;
use super::process::{ProcessFiles, SUMS};
use super::samples::{MOST_SAMPLES, safe};
use super::sos::{SHM_HEADER, is_ipcs_header, shared_memory_row, sysctl};
use super::tables::Tables;
use super::wrapped;

/// The files found in a text.
#[derive(Debug, Default)]
pub(crate) struct Paste {
    /// The files.
    pub(crate) source: MemorySource,
    /// The instants, with seconds after the first, if there are tables over time; the files are in each.
    pub(crate) samples: Vec<(f64, MemorySource)>,
    /// Notes for the reader of the report.
    pub(crate) notes: Vec<String>,
}

/// At most this many bytes of a line are looked at.
const MOST_LINE: usize = 4096;
/// At most this many devices of a table are taken.
const MOST_DISKS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Block {
    None,
    Zoneinfo { after_pagesets: bool, unpopulated: bool },
    PageTypes,
    Swaps,
    Swapon,
    SysvShm,
    Ipcs,
    Free,
    Rollup,
}

struct Splitter {
    paste: Paste,
    block: Block,
    /// The file named by a prompt, and whether every line is to be added to it.
    file: Option<String>,
    verbatim: bool,
    pid: Option<u32>,
    free_unit: Option<f64>,
    free: FreeTable,
    meminfo: BTreeSet<String>,
    repeated: bool,
    /// The control group that a line such as `system/backup:` names, for the files that follow it.
    heading: Option<String>,
    /// Files of a control group that one command prints, of which lines are still to come.
    several: Vec<String>,
    vmstat: BTreeSet<String>,
    tables: Tables,
    listing: Listing,
    nodes: Nodes,
    containers: Containers,
    /// Shares of single CPUs in `top`.
    cpus: Vec<[f64; 5]>,
    processes: ProcessFiles,
    /// Pages in a hypervisor's balloon, once a line has said that such lines follow.
    balloon: Option<u64>,
    /// The time of the last line that is a date, and what was read before it.
    time: Option<f64>,
    instants: Vec<(f64, MemorySource)>,
    /// KiB that `df` shows in use on file systems in memory, by mount point.
    in_tmpfs: BTreeMap<String, u64>,
    /// Columns of iostat's or sar's table of devices, once its head has been read, and which has the name.
    devices: (usize, usize),
    /// The devices of such a table, and the share of the time that each was busy.
    disks: BTreeMap<String, f64>,
    /// The line before, which may be the head of `free` in another language.
    before: String,
}

#[derive(Default)]
struct FreeTable {
    columns: Vec<String>,
    memory: Vec<String>,
    swap: Vec<String>,
}

/// Splits `text` into files; `None` if nothing was recognised. `name` is the name of the file, which is used
/// if the shape of lines is ambiguous.
pub(crate) fn split(text: &[u8], name: &str) -> Option<Paste> {
    let mut splitter = Splitter {
        paste: Paste::default(),
        block: Block::None,
        file: by_name(name).map(str::to_owned),
        verbatim: false,
        pid: None,
        free_unit: None,
        free: FreeTable::default(),
        meminfo: BTreeSet::new(),
        repeated: false,
        heading: None,
        several: Vec::new(),
        vmstat: BTreeSet::new(),
        tables: Tables::default(),
        listing: Listing::default(),
        nodes: Nodes::default(),
        containers: Containers::default(),
        cpus: Vec::new(),
        processes: ProcessFiles::default(),
        balloon: None,
        time: None,
        instants: Vec::new(),
        in_tmpfs: BTreeMap::new(),
        devices: (0, 0),
        disks: BTreeMap::new(),
        before: String::new(),
    };
    let lines: Vec<String> = (text.split(|&b| b == b'\n'))
        .map(|line| String::from_utf8_lossy(&line[..line.len().min(MOST_LINE)]))
        // Mail programs and web pages write no-break spaces.
        .map(|line| line.strip_prefix("> ").unwrap_or(&line).trim_end().replace('\u{a0}', " "))
        .collect();
    let lines = wrapped::joined(unwrapped(patched(unjoined(lines))));
    // Lines of a kernel's report look like other files' (`Node 0 DMA32 free:…`, `pgfault 123`).
    let (log, logged) = kernel_log::read(&lines.join("\n"));
    // With what a mail program wrapped joined again.
    let mut logged = logged.into_iter().map(|(number, _)| number).zip(&log.lines).peekable();
    for (number, line) in lines.iter().enumerate() {
        match logged.next_if(|(of_log, _)| *of_log == number) {
            Some((_, line)) => splitter.add("dev/kmsg", line),
            None => {
                splitter.line(line);
                line.clone_into(&mut splitter.before);
            }
        }
    }
    splitter.shown(&log);
    splitter.finish()
}

/// The marks that syslog writes for a line feed inside a message.
const FEEDS: [&str; 2] = ["\\x0a", "#012"];
/// The heads of top's lines, which forums join to one.
const TOP: [&str; 5] = ["Tasks:", "Cpu(s):", "Mem:", "Swap:", " PID "];

/// Takes apart lines in which syslog wrote line feeds as marks, or a forum joined the head of `top`.
fn unjoined(lines: Vec<String>) -> Vec<String> {
    let feed = |line: &str| FEEDS.into_iter().find(|mark| line.contains(mark) && line.contains(':'));
    let top = |line: &str| line.starts_with("top - ") && TOP.iter().all(|head| line.contains(head));
    if !lines.iter().any(|line| feed(line).is_some() || top(line)) {
        return lines;
    }
    let mut out = Vec::with_capacity(lines.len());
    for line in lines {
        if let Some(mark) = feed(&line) {
            out.extend(line.split(mark).map(|line| line.trim_end().to_owned()));
        } else if top(&line) {
            let mut rest = line.as_str();
            for head in TOP {
                let Some(at) = rest.find(head).filter(|at| *at > 0) else { continue };
                out.push(rest[..at].trim_end().to_owned());
                rest = &rest[at..];
            }
            out.push(rest.to_owned());
        } else {
            out.push(line);
        }
    }
    out
}

/// What stands after the change, where a text is a unified diff of two readings.
fn patched(lines: Vec<String>) -> Vec<String> {
    if !lines.iter().any(|line| line.starts_with("@@ -")) {
        return lines;
    }
    let after = |line: String| match line.strip_prefix(['+', ' ']) {
        _ if line.starts_with('-') => None,
        Some(rest) => Some(rest.to_owned()),
        None => Some(line),
    };
    lines.into_iter().filter_map(after).collect()
}

/// Joins lines of a kernel log that a mail program wrapped: what follows a long line with a time and has none
/// itself, and does not begin as a sentence does.
fn unwrapped(lines: Vec<String>) -> Vec<String> {
    /// A shorter line was not wrapped.
    const LONG: usize = 40;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let dated = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().take(3).collect();
        matches!(words[..], [month, day, time] if months.contains(&month) && is_number(day) && time.contains(':'))
    };
    let timed = |line: &str| {
        if dated(line) {
            return true;
        }
        let stamp =
            line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(stamp, _)| stamp.trim());
        stamp.is_some_and(|stamp| {
            stamp.contains('.') && stamp.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        })
    };
    // Lines of a report that lost their time.
    let whole = |text: &str| {
        text.starts_with("lowmem_reserve[]:")
            || text.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(" pages ")
            || text.ends_with(" total pagecache pages")
    };
    let continues = |line: &str| {
        let text = line.trim_start();
        let inside =
            text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "(,|".contains(c));
        inside && !whole(text)
    };
    // `6,1234,5678901,-;text` of /dev/kmsg: whatever stands between two records was wrapped.
    let record = |line: &str| {
        let head = line.split_once(';').map(|(head, _)| head.split(',').take(3).collect::<Vec<_>>());
        head.is_some_and(|head| head.len() == 3 && head.iter().all(|number| is_number(number)))
    };
    // The last column of `free`: its head, and its figure.
    // The last field of PSI.
    let total =
        |before: &str, line: &str| before.contains(" avg300=") && line.trim_start().starts_with("total=");
    let column = |before: &str, line: &str| {
        let words = |line: &str| line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let (before, line) = (words(before), words(line));
        line.len() == 1
            && match before.first().map(String::as_str) {
                Some("total") => before.len() == 5 && line[0] == "available",
                Some("Mem:") => before.len() == 6 && quantity(&line[0]).is_some(),
                _ => false,
            }
    };
    let mut out: Vec<String> = Vec::with_capacity(lines.len());
    let mut open = false;
    let mut recorded = false;
    for line in lines {
        let joins = recorded && !record(&line) && !line.trim().is_empty()
            || out.last().is_some_and(|before| oomd_goes_on(before))
            || out.last().is_some_and(|before| column(before, &line) || total(before, &line));
        recorded = recorded && joins || record(&line);
        if joins && let Some(last) = out.last_mut().filter(|last| last.len() < MOST_LINE) {
            last.push(' ');
            last.push_str(line.trim_start());
            continue;
        }
        if timed(&line) {
            open = line.len() >= LONG;
        } else if open
            && continues(&line)
            && let Some(last) = out.last_mut().filter(|last| last.len() < MOST_LINE)
        {
            last.push(' ');
            last.push_str(line.trim_start());
            continue;
        } else {
            open = false;
        }
        out.push(line);
    }
    out
}

/// A cache that every kernel of 2.4 has.
fn is_old_cache(name: &str) -> bool {
    name.starts_with("size-") || matches!(name, "kmem_cache" | "inode_cache" | "dentry_cache" | "buffer_head")
}

/// Whether a line of systemd-oomd's was cut before its reason ended.
fn oomd_goes_on(line: &str) -> bool {
    const LONGEST: usize = 600;
    let Some((_, rest)) = line.split_once("Killed").filter(|_| line.len() < LONGEST) else { return false };
    let rest = rest.trim();
    rest.is_empty() && line.trim_end().ends_with("]: Killed") && line.contains("systemd-oomd[")
        || rest.starts_with('/') && rest.contains("due to memory pressure") && !rest.contains(" for > ")
        || rest.starts_with('/')
            && (line.contains("systemd-oomd[") || line.trim_start().starts_with("Killed /"))
            && !rest.contains("due to")
}

/// The path that a saved file's name stands for: `meminfo`, `meminfo.txt`, `proc_meminfo`, `pressure-io`.
pub(crate) fn by_name(name: &str) -> Option<&'static str> {
    let stem = name.rsplit('/').next().unwrap_or(name);
    let stem = stem.strip_suffix(".txt").or_else(|| stem.strip_suffix(".out")).unwrap_or(stem);
    let stem = stem.strip_prefix("proc_").or_else(|| stem.strip_prefix("proc-")).unwrap_or(stem);
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_'));
    Some(match stem {
        "meminfo" => "proc/meminfo",
        "vmstat" => "proc/vmstat",
        "zoneinfo" => "proc/zoneinfo",
        "buddyinfo" => "proc/buddyinfo",
        "pagetypeinfo" => "proc/pagetypeinfo",
        "swaps" => "proc/swaps",
        "slabinfo" => "proc/slabinfo",
        "mounts" => "proc/mounts",
        "cmdline" => "proc/cmdline",
        "uptime" => "proc/uptime",
        "memory" | "pressure-memory" | "pressure_memory" | "pressure" => "proc/pressure/memory",
        "io" | "pressure-io" | "pressure_io" => "proc/pressure/io",
        "cpu" | "pressure-cpu" | "pressure_cpu" => "proc/pressure/cpu",
        "shm" | "sysvipc_shm" | "sysvipc-shm" => "proc/sysvipc/shm",
        "sysctl.conf" => "etc/sysctl.conf",
        "limits.conf" => "etc/security/limits.conf",
        "dmesg" => "dev/kmsg",
        _ => return None,
    })
}

/// Where a file of a control group stands that a heading names without its directory. `memory.stat` is of
/// either version; its lines tell.
fn of_group_alone(name: &str) -> Option<String> {
    let file = name.strip_prefix("memory.")?;
    let root = match file {
        "current" | "max" | "high" | "low" | "min" | "events" | "pressure" | "peak" => "sys/fs/cgroup/GROUP",
        file if V1_FILES.contains(&file) => "sys/fs/cgroup/memory/GROUP",
        _ => return None,
    };
    Some(format!("{root}/{name}"))
}

/// Lines of PSI, where somebody joined them or left out means and the total.
fn stalls(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut means = [None::<f64>; 3];
    let mut kind = "";
    let mut finish = |kind: &str, means: [Option<f64>; 3]| {
        let Some(known) = means.iter().copied().flatten().next().filter(|_| !kind.is_empty()) else { return };
        let [avg10, avg60, avg300] = means.map(|mean| mean.unwrap_or(known));
        lines.push(format!("{kind} avg10={avg10:.2} avg60={avg60:.2} avg300={avg300:.2} total=0"));
    };
    for word in text.split_ascii_whitespace() {
        match word.split_once('=') {
            None if matches!(word, "some" | "full") => {
                finish(kind, means);
                (kind, means) = (word, [None; 3]);
            }
            Some((name, value)) => {
                let at = ["avg10", "avg60", "avg300"].iter().position(|known| *known == name);
                if let (Some(at), Ok(value)) = (at, value.parse::<f64>()) {
                    means[at] = Some(value).filter(|value| (0.0..=100.0).contains(value));
                }
            }
            None => {}
        }
    }
    finish(kind, means);
    lines
}

/// The path in `word`, if it is a file whose lines may be added.
fn file_path(word: &str) -> Option<&str> {
    let path = word.trim_matches(|c| matches!(c, '\'' | '"' | '`' | ';')).strip_prefix('/')?;
    let ours = ["proc/", "sys/", "etc/"].iter().any(|top| path.starts_with(top));
    (ours && safe(path).is_some() && !path.contains(['*', '?', '[', '{', '$', '|'])).then_some(path)
}

/// Whether a path is a short file whose lines have no shape of their own.
fn shapeless(path: &str) -> bool {
    path.starts_with("proc/sys/")
        || path.starts_with("sys/")
        || matches!(
            path,
            "proc/cmdline"
                | "proc/uptime"
                | "proc/version"
                | "proc/mounts"
                | "etc/os-release"
                | "proc/loadavg"
        )
}

impl Splitter {
    fn line(&mut self, line: &str) {
        if line.trim().is_empty() {
            if matches!(self.block, Block::Ipcs | Block::Free) {
                self.block = Block::None;
            }
            return;
        }
        if let Some(path) = line.strip_prefix("==> ").and_then(|rest| rest.strip_suffix(" <==")) {
            let of_group = of_group_alone(path);
            self.enter(file_path(path).or(of_group.as_deref()), of_group.is_none());
            return;
        }
        if self.prompt(line) || self.date(line) {
            return;
        }
        // `----- Output from /proc/pressure/io -----`
        let named = line.split_ascii_whitespace().find(|word| word.starts_with("/proc/pressure/"));
        if let Some(path) = named.and_then(file_path).filter(|_| line.starts_with("---")) {
            self.enter(Some(path), false);
            return;
        }
        // A path alone is a heading, or the rest of a command that was wrapped.
        let bare = line.trim().trim_end_matches(':');
        if !bare.contains(|c: char| c.is_whitespace() || c == ':')
            && bare.starts_with('/')
            && let Some(path) = file_path(bare)
        {
            self.enter(Some(path), false);
            return;
        }
        if let Some((path, rest)) = line.trim_start().split_once(':')
            && let Some(path) = file_path(path)
        {
            let path = path.to_owned();
            match path.starts_with("proc/pressure/") {
                true => stalls(rest).into_iter().for_each(|line| self.add(&path, &line)),
                false => self.add(&path, rest),
            }
            return;
        }
        if self.group_file(line) {
            return;
        }
        if self.verbatim
            && let Some(path) = self.file.clone()
        {
            self.add(&path, line);
            return;
        }
        if !self.shaped(line)
            && let Some(path) = self.file.clone().filter(|path| shapeless(path))
        {
            self.add(&path, line);
        }
    }

    fn enter(&mut self, path: Option<&str>, verbatim: bool) {
        self.block = Block::None;
        self.verbatim = verbatim && path.is_some();
        self.file = path.map(str::to_owned);
        self.pid = path.and_then(|path| path.strip_prefix("proc/")?.split('/').next()?.parse().ok());
    }

    /// Files of a control group: what a prompt named, `grep .` of its directory (`memory.events:high 5`),
    /// or a `memory.stat` that begins with `anon` and `file`.
    fn group_file(&mut self, line: &str) -> bool {
        // The text does not name the group.
        const HERE: &str = "sys/fs/cgroup/GROUP";
        const FIRST: &str = "sys/fs/cgroup/memory/GROUP";
        let heading = |name: &&str| {
            name.len() <= 255 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-@:".contains(&b))
        };
        let group = line.trim().strip_suffix(':').map(|name| name.trim_matches('/')).filter(heading);
        if group.is_some_and(|group| !group.is_empty() && !group.contains("..")) {
            self.heading = group.map(str::to_owned);
            // The line may be something else's as well.
            return false;
        }
        if let Some((name, rest)) = line.trim().split_once(':')
            && let Some(field) = name.rsplit('/').next().and_then(|name| name.strip_prefix("memory."))
            && (["current", "stat", "events", "max", "high", "low", "min", "pressure", "peak"]
                .contains(&field)
                || V1_FILES.contains(&field))
        {
            // `grep .` sorts by name: the first file of version 1 comes before `memory.stat`.
            let first_version = |path: &str| path.starts_with(FIRST) && path.contains("/memory.");
            let first =
                V1_FILES.contains(&field) || self.paste.source.files().any(|(path, _)| first_version(path));
            let path = match (&self.heading, first) {
                (Some(group), _) => format!("sys/fs/cgroup/{group}/memory.{field}"),
                (None, true) => format!("{FIRST}/memory.{field}"),
                (None, false) => format!("{HERE}/memory.{field}"),
            };
            // What follows the value may be somebody's remark.
            let words: Vec<&str> = rest.split_ascii_whitespace().take(6).collect();
            let keyed = matches!(field, "stat" | "events");
            let line = if keyed { words.get(..2).unwrap_or(&words).join(" ") } else { words.join(" ") };
            self.add(&path, &line);
            return true;
        }
        if !line.trim().is_empty() {
            self.heading = None;
        }
        if let Some((field, value)) = told(line) {
            let of_first = |word: &str| V1_FILES.contains(&word) || word.starts_with("total_");
            let root = if field.split(' ').any(of_first) { FIRST } else { HERE };
            match field.split_once(' ') {
                Some((file, key)) => self.add(&format!("{root}/memory.{file}"), &format!("{key} {value}")),
                None => self.add(&format!("{root}/memory.{field}"), &value.to_string()),
            }
            return true;
        }
        if self.one_of_several(line) {
            return true;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let count = matches!(words[..], [name, value] if is_number(value)
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        if count && matches!(words[0], "cache" | "total_cache") && self.file.is_none() {
            self.enter(Some(&format!("{FIRST}/memory.stat")), false);
        }
        if count && words[0] == "anon" && self.file.is_none() {
            self.enter(Some(&format!("{HERE}/memory.stat")), false);
        }
        let Some(path) = self.file.clone().filter(|path| path.starts_with("sys/fs/cgroup/")) else {
            return false;
        };
        let single = words.len() == 1 && (is_number(words[0]) || words[0] == "max");
        let pressure = words.first().is_some_and(|word| matches!(*word, "some" | "full"));
        let fits =
            if path.ends_with(".stat") || path.ends_with(".events") { count } else { single || pressure };
        if fits {
            self.add(&path, line.trim());
        }
        fits
    }

    /// A line of `cat memory.max memory.current memory.events`: a value alone belongs to the next file that
    /// holds one, a name and a value to the first that holds such lines.
    fn one_of_several(&mut self, line: &str) -> bool {
        let keyed = |name: &String| name.ends_with(".stat") || name.ends_with(".events");
        let words: Vec<&str> = line.split_ascii_whitespace().take(3).collect();
        let at = match words[..] {
            [value] if is_number(value) || value == "max" => {
                self.several.iter().position(|name| !keyed(name))
            }
            [name, value]
                if is_number(value) && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') =>
            {
                self.several.iter().position(keyed)
            }
            _ => None,
        };
        let Some(at) = at else { return false };
        let name = self.several[at].clone();
        if words.len() == 1 {
            self.several.remove(at);
        }
        self.add(&format!("sys/fs/cgroup/GROUP/{name}"), line.trim());
        true
    }

    /// Handles a shell prompt, or a bare `# cat FILE`, which say where the following lines come from.
    fn prompt(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_ascii_whitespace().take(64).collect();
        self.tables.command(&words);
        let known =
            ["cat", "free", "sysctl", "ipcs", "grep", "egrep", "head", "tail", "uname", "sudo", "dmesg"];
        let ends = |word: &str| word.ends_with(['>', '#', '$', '%']);
        let Some(at) = (0..words.len().min(5)).find(|&i| ends(words[i])) else { return false };
        let Some(command) = words.get(at + 1) else {
            // A prompt alone. A comment looks the same and does no harm.
            return words.len() == 1 && words[0].contains(['@', '$']);
        };
        if !known.contains(command) {
            let prompt = words[0].contains('@') || words[0].starts_with('[');
            if prompt {
                self.enter(None, false);
            }
            return prompt;
        }
        let rest = &words[at + 1..];
        let here = |word: &&&str| {
            ["memory.", "io.pressure", "cpu.pressure"].iter().any(|name| word.starts_with(name))
        };
        let of_group = rest.iter().find(here).map(|name| format!("sys/fs/cgroup/GROUP/{name}"));
        let of_group =
            of_group.filter(|path| safe(path).is_some() && !path.contains(['*', '?', '[', '{', '$', '|']));
        let files: Vec<&str> =
            rest.iter().filter_map(|word| file_path(word)).chain(of_group.as_deref()).collect();
        match files[..] {
            [only] => self.enter(Some(only), false),
            _ => self.enter(None, false),
        }
        let named = |word: &&&str| {
            word.starts_with("memory.") && word.bytes().all(|b| b.is_ascii_lowercase() || b"._".contains(&b))
        };
        let several: Vec<String> = rest.iter().filter(named).map(|name| (*name).to_owned()).collect();
        self.several = if several.len() > 1 { several } else { Vec::new() };
        if rest.contains(&"free") {
            let unit = rest.iter().find_map(|word| match *word {
                "-b" => Some(1.0 / 1024.0),
                "-k" => Some(1.0),
                "-m" => Some(1024.0),
                "-g" => Some(1024.0 * 1024.0),
                _ => None,
            });
            self.free_unit = Some(unit.unwrap_or(1.0));
        }
        true
    }

    /// Adds a line to a file.
    fn add(&mut self, path: &str, line: &str) {
        self.paste.source.append(path, line.as_bytes());
        self.paste.source.append(path, b"\n");
    }

    /// Adds a line to a file by its shape; `false` if it has none.
    fn shaped(&mut self, line: &str) -> bool {
        if self.nodes.take(line, &mut self.paste.source)
            || self.containers.take(line)
            || self.processes.take(line, self.pid)
            || self.ballooned(line)
            || self.tables.take(line)
            || self.listing.take(line, &mut self.paste.source)
            || self.top(line)
        {
            return true;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(128).collect();
        if let Some(taken) = self.start(line, &words) {
            return taken;
        }
        if self.continues(line, &words) || self.foreign_free(&words) || self.slabtop(&words) {
            return true;
        }
        self.alone(line, &words)
    }

    /// A row of slabtop: `7410112 7410112 100%    4.00K 926264        8  29640448K kmalloc-4k`.
    fn slabtop(&mut self, words: &[&str]) -> bool {
        let [objects, active, used, size, slabs, per_slab, total, name] = words else { return false };
        let number = |word: &str| word.parse::<u64>().ok();
        let kib = |word: &str| quantity(word).filter(|(_, unit)| *unit).map(|(kib, _)| kib);
        let (Some(objects), Some(active), true, Some(size), Some(slabs), Some(per_slab), Some(total)) = (
            number(objects),
            number(active),
            used.ends_with('%'),
            kib(size),
            number(slabs),
            number(per_slab),
            kib(total),
        ) else {
            return false;
        };
        let pages = (total / slabs.max(1) as f64 / 4.0).round().max(1.0);
        self.slab(name, [active, objects, (size * 1024.0) as u64, per_slab, pages as u64, slabs]);
        true
    }

    /// Adds a line of slabinfo: objects in use and allocated, their size, objects and pages per slab, slabs.
    fn slab(&mut self, name: &str, [active, objects, size, per_slab, pages, slabs]: [u64; 6]) {
        let line = format!(
            "{name} {active} {objects} {size} {per_slab} {pages} : tunables 0 0 0 : slabdata {slabs} {slabs} 0"
        );
        self.add("proc/slabinfo", &line);
    }

    /// A row of slabinfo 1.1 (2.4): name, objects in use and allocated, their size, slabs in use and
    /// allocated, pages per slab; then, on hosts with several CPUs, a colon and more.
    fn old_slab(&mut self, words: &[&str]) -> bool {
        let [name, numbers @ ..] = words else { return false };
        let known = is_old_cache(name) || self.paste.source.get("proc/slabinfo").is_some();
        let ends = numbers.get(6).is_none_or(|word| *word == ":");
        let numbers: Option<Vec<u64>> =
            numbers.get(..6).and_then(|numbers| numbers.iter().map(|word| word.parse().ok()).collect());
        let Some([active, objects, size, _, slabs, pages]) = numbers.as_deref().filter(|_| known && ends)
        else {
            return false;
        };
        let per_slab = objects.checked_div(*slabs).unwrap_or(0);
        self.slab(name, [*active, *objects, *size, per_slab, *pages, *slabs]);
        true
    }

    /// A line that is a date: what comes again after it is a new sample.
    fn date(&mut self, line: &str) -> bool {
        let Some(time) = (line.len() <= 48).then(|| date(line.trim())).flatten() else { return false };
        // The table of `free` becomes lines of meminfo only when it has ended.
        let again = !self.meminfo.is_empty() || !self.vmstat.is_empty() || !self.free.memory.is_empty();
        if let Some(began) =
            self.time.filter(|began| again && *began < time && self.instants.len() < MOST_SAMPLES)
        {
            self.convert_free();
            self.instants.push((began, std::mem::take(&mut self.paste.source)));
            self.meminfo.clear();
            self.vmstat.clear();
        }
        self.time = Some(time);
        true
    }

    /// The driver's own file on its balloon: `/sys/kernel/debug/hv-balloon`, `/sys/kernel/debug/vmmemctl`.
    fn ballooned(&mut self, line: &str) -> bool {
        if self.before.contains("vmware-toolbox-cmd stat balloon")
            && let Some(mib) = line.trim().strip_suffix(" MB").and_then(|mib| mib.parse::<u64>().ok())
        {
            self.balloon = Some(mib.saturating_mul(256));
            return true;
        }
        let Some((name, value)) = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()))
        else {
            return false;
        };
        if name == "balloon capabilities" {
            self.balloon = Some(0);
            return true;
        }
        let pages = value.split(' ').next().and_then(|value| value.parse::<u64>().ok());
        match (name, pages) {
            ("pages_ballooned", Some(pages)) => self.balloon = Some(pages),
            ("current", Some(pages)) if self.balloon == Some(0) => self.balloon = Some(pages),
            _ => return false,
        }
        true
    }

    /// The head of `top`, and sums of `vmstat -s`.
    fn top(&mut self, line: &str) -> bool {
        if let Some(shares) = cpu_of_top(line.trim()) {
            match of_one_cpu(line.trim()) {
                true => self.cpus.push(shares),
                false => self.tables.cpu(shares),
            }
            return true;
        }
        if let Some(shares) = cpu_of_iostat(&self.before, line).or_else(|| cpu_of_table(&self.before, line)) {
            self.tables.cpu(shares);
            return true;
        }
        if self.device_of_iostat(line)
            || self.tmpfs_of_df(line)
            || self.arc(line)
            || self.zram_device(line)
            || self.earlyoom(line)
            || self.metric(line)
        {
            return true;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(8).collect();
        if let Some((file, field, value)) = sum_of_vmstat(&words) {
            match file {
                "proc/meminfo" if self.meminfo.insert(field.to_owned()) => {
                    self.add(file, &format!("{field}: {value} kB"));
                }
                "proc/vmstat" if self.vmstat.insert(field.to_owned()) => {
                    self.add(file, &format!("{field} {value}"));
                }
                _ => {}
            }
            return true;
        }
        let Some(lines) = head_of_top(line.trim()).or_else(|| line_of_atop(line)) else { return false };
        for (name, kib) in lines {
            if self.meminfo.insert(name.to_owned()) {
                self.add("proc/meminfo", &format!("{name}: {kib} kB"));
            }
        }
        true
    }

    /// The head of a table of devices of iostat or `sar -d`, or a row of it: a device that is always busy is
    /// worth a note.
    fn device_of_iostat(&mut self, line: &str) -> bool {
        const BUSY: f64 = 90.0;
        let head = line.trim_end().ends_with("%util");
        if self.devices.0 == 0 && !head {
            return false;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(64).collect();
        if head {
            let named = words.iter().take(3).position(|word| word.starts_with("Device") || *word == "DEV");
            self.devices = named.map_or((0, 0), |at| (words.len(), at));
            return named.is_some();
        }
        let Some([name, values @ ..]) = words.get(self.devices.1..) else { return false };
        let values: Option<Vec<f64>> =
            values.iter().map(|word| word.replace(',', ".").parse().ok()).collect();
        let Some(busy) =
            values.filter(|_| words.len() == self.devices.0).and_then(|values| values.last().copied())
        else {
            return false;
        };
        let device = name.len() <= 32
            && quantity(name).is_none()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-/_".contains(&b));
        if device && self.disks.len() < MOST_DISKS {
            self.disks.insert((*name).to_owned(), busy.clamp(0.0, 100.0) / 100.0);
        }
        if device && busy >= BUSY {
            self.note(&format!("iostat: {name} was busy {busy:.0} % of the time"));
        }
        true
    }

    /// A row of `df` on a file system in memory: `tmpfs  502M  382M  120M  77% /dev/shm`.
    fn tmpfs_of_df(&mut self, line: &str) -> bool {
        const LONGEST: usize = 256;
        if !line.contains("% /") {
            return false;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(8).collect();
        let (name, used, share, target) = match words[..] {
            [name, _, used, _, share, target] | [name, "tmpfs", _, used, _, share, target] => {
                (name, used, share, target)
            }
            _ => return false,
        };
        let in_memory = matches!(name, "tmpfs" | "shm" | "shmfs" | "devshm" | "ramfs") || words[1] == "tmpfs";
        if !in_memory || !share.ends_with('%') || !target.starts_with('/') || target.len() > LONGEST {
            return false;
        }
        // Without a unit it counts in blocks of 1 KiB.
        let Some((kib, _)) = quantity(used) else { return false };
        if self.in_tmpfs.len() < MOST_SAMPLES {
            self.in_tmpfs.insert(target.to_owned(), kib as u64);
        }
        true
    }

    /// A line of ZFS' `arcstats`, or of `arc_summary`: `ARC size (current):  83.3 %   25.8 GiB`.
    fn arc(&mut self, line: &str) -> bool {
        const FILE: &str = "proc/spl/kstat/zfs/arcstats";
        let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        if let [name @ ("size" | "c_min" | "c_max"), "4", value] = words[..]
            && is_number(value)
        {
            self.add(FILE, &format!("{name} 4 {value}"));
            return true;
        }
        let Some((label, rest)) = line.trim().split_once(':') else { return false };
        let name = match label.trim() {
            "ARC size (current)" | "Arc Size" => "size",
            "Min size (hard limit)" | "Min Size (Hard Limit)" => "c_min",
            "Max size (high water)" | "Max Size (High Water)" => "c_max",
            _ => return false,
        };
        // The percentage or ratio stands first, and the amount last.
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let [.., number, unit @ ("KiB" | "MiB" | "GiB" | "TiB")] = words[..] else { return false };
        let Some((kib, _)) = quantity(&format!("{number}{}", &unit[..2])) else { return false };
        self.add(FILE, &format!("{name} 4 {}", (kib * 1024.0) as u64));
        true
    }

    /// A row of `zramctl`: `/dev/zram0 lzo-rle 3.8G 3.7G 2.9G 3G 4 [SWAP]`, with size, data, their compressed
    /// size and what they take in all.
    fn zram_device(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        let [name, _, size, data, _, total, ..] = words[..] else { return false };
        let kib = |word| quantity(word).map(|(kib, _)| kib as u64);
        let (Some(size), Some(data), Some(total)) = (kib(size), kib(data), kib(total)) else { return false };
        if !name.starts_with("/dev/zram") || words.last() != Some(&"[SWAP]") {
            return false;
        }
        if self.paste.source.get("proc/swaps").is_none() {
            self.add("proc/swaps", "Filename\tType\tSize\tUsed\tPriority");
            self.add("proc/swaps", &format!("{name}\tpartition\t{size}\t{data}\t100"));
        }
        self.note(&format!("zramctl: {data} kB in {name} take {total} kB of memory"));
        true
    }

    /// What earlyoom writes each hour, and before it kills: `mem avail: 1234 of 7890 MiB (15.64%), swap free:
    /// 512 of 2047 MiB (25.01%)`.
    fn earlyoom(&mut self, line: &str) -> bool {
        let Some((_, rest)) = line.split_once("mem avail:") else { return false };
        let Some((memory, swap)) = rest.split_once("swap free") else { return false };
        let pair = |text: &str| {
            let text = text.trim_start_matches(':').replace('/', " of ");
            let (left, total) = text.split_once(" of ")?;
            let total: String = total.trim_start().chars().take_while(char::is_ascii_digit).collect();
            let kib = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(1024);
            Some((kib(left)?, kib(&total)?))
        };
        let (Some((available, total)), Some((free, swap))) = (pair(memory), pair(swap)) else { return false };
        for (name, kib) in
            [("MemTotal", total), ("MemAvailable", available), ("SwapTotal", swap), ("SwapFree", free)]
        {
            self.meminfo_line(&format!("{name}: {kib} kB"), name, &kib.to_string(), &["kB"]);
        }
        true
    }

    /// A metric of Prometheus' node exporter.
    fn metric(&mut self, line: &str) -> bool {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else { return false };
        let Some(value) = value.parse::<f64>().ok().filter(|value| (0.0..1e18).contains(value)) else {
            return false;
        };
        let name = name.split('{').next().unwrap_or(name);
        if let Some(field) = name.strip_prefix("node_memory_") {
            // `Active_anon_bytes` is `Active(anon)`, `HugePages_Total` has no unit.
            let (field, unit): (&str, &[&str]) = match field.strip_suffix("_bytes") {
                Some(field) => (field, &["kB"]),
                None => (field, &[]),
            };
            let field = match field.split_once('_') {
                Some((list @ ("Active" | "Inactive"), kind)) => format!("{list}({kind})"),
                _ => field.to_owned(),
            };
            let value = if unit.is_empty() { value } else { value / 1024.0 };
            let value = format!("{:.0}", value.floor());
            return self.meminfo_line(&format!("{field}: {value} {}", unit.concat()), &field, &value, unit);
        }
        let Some(counter) = name.strip_prefix("node_vmstat_").filter(|counter| is_vmstat(counter)) else {
            return false;
        };
        if self.vmstat.insert(counter.to_owned()) {
            self.add("proc/vmstat", &format!("{counter} {:.0}", value.floor()));
        }
        true
    }

    /// Adds what files in memory take as `Shmem`, where the text has no such line.
    fn shared_of_df(&mut self) {
        let kib = self.in_tmpfs.values().fold(0u64, |sum, kib| sum.saturating_add(*kib));
        let text =
            String::from_utf8_lossy(self.paste.source.get("proc/meminfo").unwrap_or_default()).into_owned();
        if kib > 0 && text.contains("MemTotal:") && !text.contains("Shmem:") {
            self.add("proc/meminfo", &format!("Shmem: {kib} kB"));
            self.note(
                "Shmem is the sum of what df shows in use on tmpfs; shared memory of programs is not in it",
            );
        }
    }

    /// The table of `free` in another language: a head without numbers, then rows whose columns are known by
    /// their places.
    fn foreign_free(&mut self, words: &[&str]) -> bool {
        let head: Vec<&str> = self.before.split_whitespace().collect();
        let plain =
            head.len() >= 3 && head.iter().all(|word| quantity(word).is_none() && !word.ends_with(':'));
        let [label, values @ ..] = words else { return false };
        let numbers: Vec<f64> = values.iter().map_while(|cell| Some(quantity(cell)?.0)).collect();
        if !label.ends_with(':') || !plain || numbers.len() != values.len() || numbers.len() != 6 {
            return false;
        }
        // Old: used includes the cache. New: the fifth column is the cache, the sixth what is available.
        let [total, used, free, _, cache, _] = numbers[..] else { return false };
        let near = |sum: f64| (sum - total).abs() <= total * 0.02;
        let columns: &[&str] = match (near(used + free), near(used + free + cache)) {
            (true, false) => &["total", "used", "free", "shared", "buffers", "cached"],
            (false, true) => &["total", "used", "free", "shared", "buff/cache", "available"],
            _ => return false,
        };
        self.free = FreeTable { columns: owned(columns), memory: owned(values), swap: Vec::new() };
        self.block = Block::Free;
        true
    }

    /// Handles lines that start a block.
    fn start(&mut self, line: &str, words: &[&str]) -> Option<bool> {
        match words {
            ["Node", node, "zone", name, rest @ ..] if node.trim_end_matches(',').parse::<u32>().is_ok() => {
                let numbers = rest.iter().filter(|word| word.parse::<u64>().is_ok()).count();
                if name.ends_with(',') && rest.first() == Some(&"type") {
                    self.block = Block::PageTypes;
                    self.add("proc/pagetypeinfo", line);
                } else if self.block == Block::PageTypes && numbers > 1 {
                    self.add("proc/pagetypeinfo", line);
                } else if numbers > 1 && numbers == rest.len() {
                    self.block = Block::None;
                    self.add("proc/buddyinfo", line);
                } else if rest.is_empty() {
                    self.block = Block::Zoneinfo { after_pagesets: false, unpopulated: false };
                    self.add("proc/zoneinfo", line);
                } else {
                    return Some(false);
                }
            }
            ["Page", "block", "order:", _] | ["Pages", "per", "block:", _] => {
                self.block = Block::PageTypes;
                self.add("proc/pagetypeinfo", line);
            }
            ["Free", "pages", "count", "per", "migrate", ..] | ["Number", "of", "blocks", "type", ..] => {
                self.block = Block::PageTypes;
                self.add("proc/pagetypeinfo", line);
            }
            ["Filename", "Type", "Size", "Used", "Priority"] => {
                self.block = Block::Swaps;
                // A later reading takes the place of the earlier one.
                self.paste.source.insert("proc/swaps", format!("{line}\n"));
            }
            // `swapon --show`
            ["NAME", "TYPE", "SIZE", "USED", "PRIO"] => {
                self.block = Block::Swapon;
                self.paste.source.insert("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
            }
            ["key", "shmid", "perms", "size", ..] => {
                self.block = Block::SysvShm;
                self.add("proc/sysvipc/shm", line);
            }
            words if is_ipcs_header(words) => {
                self.block = Block::Ipcs;
                self.paste.source.append("proc/sysvipc/shm", SHM_HEADER.as_bytes());
            }
            ["total", "used", "free", ..] => {
                self.block = Block::Free;
                self.free = FreeTable { columns: owned(words), ..FreeTable::default() };
            }
            [range, .., "[rollup]"] if range.contains('-') => {
                self.block = Block::Rollup;
                let path = self.process("smaps_rollup");
                self.add(&path, line);
            }
            _ => return None,
        }
        Some(true)
    }

    fn process(&mut self, file: &str) -> String {
        match self.pid {
            Some(pid) => format!("proc/{pid}/{file}"),
            None => {
                let note = format!("{file} of an unknown process was found; it is kept as that of process 0");
                if !self.paste.notes.contains(&note) {
                    self.paste.notes.push(note);
                }
                format!("proc/0/{file}")
            }
        }
    }

    /// Handles lines that belong to the open block.
    fn continues(&mut self, line: &str, words: &[&str]) -> bool {
        let taken = match (&mut self.block, words) {
            (Block::None | Block::PageTypes, _) => false,
            (Block::Zoneinfo { after_pagesets, unpopulated }, words) => {
                let fits = continues_zoneinfo(words, after_pagesets, unpopulated);
                if fits {
                    self.paste.source.append("proc/zoneinfo", line.as_bytes());
                    self.paste.source.append("proc/zoneinfo", b"\n");
                }
                fits
            }
            (Block::Swaps, [_, kind, size, used, priority]) => {
                let fits = is_number(size) && is_number(used) && is_number(priority) && !kind.contains(':');
                self.add_if(fits, "proc/swaps", line)
            }
            (Block::Swapon, [name, kind, size, used, priority]) => {
                let kib = |word| quantity(word).map(|(kib, _)| kib as u64);
                let (Some(size), Some(used), true) = (kib(size), kib(used), is_number(priority)) else {
                    return false;
                };
                self.add_if(true, "proc/swaps", &format!("{name}\t{kind}\t{size}\t{used}\t{priority}"))
            }
            (Block::SysvShm, words) => {
                let fits = words.len() >= 14 && words.iter().all(|word| is_number(word));
                self.add_if(fits, "proc/sysvipc/shm", line)
            }
            (Block::Ipcs, words) => match shared_memory_row(words) {
                Some(row) => {
                    self.paste.source.append("proc/sysvipc/shm", row.as_bytes());
                    true
                }
                None => false,
            },
            (Block::Free, ["Mem:", values @ ..]) => {
                self.free.memory = owned(values);
                true
            }
            (Block::Free, ["Swap:", values @ ..]) => {
                self.free.swap = owned(values);
                true
            }
            (Block::Free, ["-/+", ..] | ["Total:" | "Low:" | "High:", ..]) => true,
            (Block::Rollup, [name, value, "kB"])
                if is_number(value) && name.ends_with(':') && SUMS.contains(&name.trim_end_matches(':')) =>
            {
                let path = self.process("smaps_rollup");
                self.add_if(true, &path, line)
            }
            _ => false,
        };
        if !taken && self.block != Block::PageTypes {
            self.block = Block::None;
        }
        taken
    }

    fn add_if(&mut self, fits: bool, path: &str, line: &str) -> bool {
        if fits {
            self.add(path, line);
        }
        fits
    }

    /// Handles lines that need no block around them.
    fn alone(&mut self, line: &str, words: &[&str]) -> bool {
        match words {
            [name, value, rest @ ..] if name.ends_with(':') && (rest.len() <= 1 || marked(rest)) => {
                let unmarked = format!("{name} {value} kB");
                let line = if rest.len() > 1 { &unmarked } else { line };
                let rest = rest.get(..1).unwrap_or_default();
                self.meminfo_line(line, name.trim_end_matches(':'), value, rest)
            }
            [kind @ ("some" | "full"), first, ..] if first.starts_with("avg10=") => {
                self.pressure_line(line, kind);
                true
            }
            ["slabinfo", "-", "version:", _] | ["#", "name", "<active_objs>", ..] => {
                self.add_if(true, "proc/slabinfo", &line.replace("version: 1.1", "version: 2.1"))
            }
            words if words.len() > 8 && words.contains(&"tunables") && words.contains(&"slabdata") => {
                self.add_if(true, "proc/slabinfo", line)
            }
            words if self.old_slab(words) => true,
            [_, "soft" | "hard" | "-", item, _] if LIMITS.contains(item) => {
                self.add_if(true, "etc/security/limits.conf", line.trim())
            }
            [name, value] if value.bytes().all(|b| b.is_ascii_digit()) && self.is_vmstat(name) => {
                if self.vmstat.insert((*name).to_owned()) {
                    self.add("proc/vmstat", line.trim());
                } else {
                    self.again("proc/vmstat", &format!("{name} "), line.trim());
                }
                true
            }
            [address, policy, ..] if is_numa_map(address, policy) => {
                let path = self.process("numa_maps");
                self.add_if(true, &path, line)
            }
            [first, ..] if first.starts_with("BOOT_IMAGE=") => self.add_if(true, "proc/cmdline", line),
            ["Linux", _, release, version, ..] if version.starts_with('#') => {
                let fits = lotsfree_kernel_files::KernelVersion::parse(release).is_some();
                self.add_if(fits, "proc/sys/kernel/osrelease", release)
            }
            _ => self.setting(line),
        }
    }

    /// `MemFree:  106380 kB`, if it is such a line.
    fn meminfo_line(&mut self, line: &str, name: &str, value: &str, rest: &[&str]) -> bool {
        let known = Counter::<Meminfo>::named(name).is_some() || name.starts_with("HugePages_");
        let unit = matches!(rest, ["kB"]);
        let fits = value.bytes().all(|b| b.is_ascii_digit()) && (unit || rest.is_empty());
        let shape = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_()".contains(&b));
        if !(fits && shape && (unit || known)) {
            return false;
        }
        if self.meminfo.insert(name.to_owned()) {
            self.add("proc/meminfo", line.trim());
        } else {
            self.again("proc/meminfo", &format!("{name}:"), line.trim());
        }
        true
    }

    /// A line of a later sample takes the place of the earlier one.
    fn again(&mut self, path: &str, key: &str, line: &str) {
        self.repeated = true;
        let text = self.paste.source.get(path).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let lines = text.lines().map(|old| if old.starts_with(key) { line } else { old });
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        self.paste.source.insert(path, text);
    }

    /// `some avg10=…`: only the first line of each kind counts.
    fn pressure_line(&mut self, line: &str, kind: &str) {
        let told = self.file.clone().filter(|file| file.starts_with("proc/pressure/"));
        if told.is_none() {
            self.note("pressure lines do not say of what they are; taken as those of memory");
        }
        let path = told.unwrap_or_else(|| "proc/pressure/memory".into());
        let again = String::from_utf8_lossy(self.paste.source.get(&path).unwrap_or_default())
            .lines()
            .any(|line| line.starts_with(kind));
        let whole = line.contains(" total=");
        let made = if whole { None } else { stalls(line).into_iter().next() };
        self.add_if(!again, &path, made.as_deref().unwrap_or(line.trim()));
    }

    /// Whether `name` is a line of vmstat. After 32 lines of it any name of that shape is accepted.
    fn is_vmstat(&self, name: &str) -> bool {
        let shape = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        is_vmstat(name) || (self.vmstat.len() >= 32 && shape)
    }

    fn setting(&mut self, line: &str) -> bool {
        let tops = ["vm.", "kernel.", "fs.", "net.", "user.", "dev.", "abi.", "debug.", "crypto.", "sunrpc."];
        let bare = line.trim();
        if !tops.iter().any(|top| bare.starts_with(top)) || bare.len() > 1024 {
            return false;
        }
        let Some((path, value)) = sysctl(bare) else { return false };
        if let Some(file) = self.file.clone().filter(|file| file.starts_with("etc/sysctl")) {
            self.add(&file, bare);
        } else {
            self.note("lines such as `vm.x = y` are taken as running values");
            self.paste.source.insert(path, value);
        }
        true
    }

    /// What the kernel showed without a shortage is how memory was: lines of meminfo, unless the text has
    /// some.
    fn shown(&mut self, log: &KernelLog) {
        let quiet = |report: &&Report| {
            matches!(report.trigger, Trigger::Shown | Trigger::Asked) && report.kills.is_empty()
        };
        let Some(report) = log.reports.iter().rev().find(quiet) else { return };
        let lines = report.memory.meminfo();
        if !self.meminfo.is_empty() || !lines.iter().any(|(name, _)| *name == "MemTotal") {
            return;
        }
        for (name, kib) in lines {
            self.meminfo.insert(name.to_owned());
            self.add("proc/meminfo", &format!("{name}: {kib} kB"));
        }
        self.note("lines of meminfo are from the kernel's report on memory in the log");
    }

    fn note(&mut self, note: &str) {
        if !self.paste.notes.iter().any(|known| known == note) {
            self.paste.notes.push(note.to_owned());
        }
    }

    /// Adds what the swap areas sum up to, where there are no lines of meminfo that say it.
    fn swap_of_areas(&mut self) {
        let text = self.paste.source.get("proc/swaps").unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let areas = text.lines().skip(1).filter_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, _, size, used, _] = words[..] else { return None };
            Some((size.parse::<u64>().ok()?, used.parse::<u64>().ok()?))
        });
        let (size, used) = areas.fold((0u64, 0u64), |(all, in_use), (size, used)| {
            (all.saturating_add(size), in_use.saturating_add(used))
        });
        if size > 0
            && self.meminfo.insert("SwapTotal".to_owned())
            && self.meminfo.insert("SwapFree".to_owned())
        {
            let free = size.saturating_sub(used);
            self.add("proc/meminfo", &format!("SwapTotal: {size} kB\nSwapFree: {free} kB"));
        }
    }

    /// The limit and the usage of a group of which the text has `memory.stat` of version 1 alone.
    fn limit_of_stat(&mut self) {
        const GROUP: &str = "sys/fs/cgroup/memory/GROUP";
        let at = |file: &str| format!("{GROUP}/memory.{file}");
        if ["limit_in_bytes", "usage_in_bytes"].iter().any(|file| self.paste.source.get(&at(file)).is_some())
        {
            return;
        }
        let text = self.paste.source.get(&at("stat")).unwrap_or_default();
        let text = String::from_utf8_lossy(text).into_owned();
        let get =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let (Some(limit), Some(rss), Some(cache)) =
            (get("hierarchical_memory_limit "), get("total_rss "), get("total_cache "))
        else {
            return;
        };
        self.add(&at("limit_in_bytes"), &limit.to_string());
        self.add(&at("usage_in_bytes"), &rss.saturating_add(cache).to_string());
        self.note("the group's limit and usage are from its memory.stat: hierarchical_memory_limit, total_rss and total_cache");
    }

    fn finish(mut self) -> Option<Paste> {
        self.convert_free();
        std::mem::take(&mut self.processes).finish(&mut self.paste.source);
        for note in std::mem::take(&mut self.containers).finish(&mut self.paste.source) {
            self.note(note);
        }
        self.swap_of_areas();
        self.shared_of_df();
        self.limit_of_stat();
        if let Some(pages) = self.balloon.filter(|pages| *pages > 0) {
            self.add("proc/meminfo", &format!("Balloon: {} kB", pages.saturating_mul(4)));
            self.note("Balloon is what the driver of the hypervisor's balloon says, in pages of 4 KiB");
        }
        if self.paste.source.get("proc/meminfo").is_none()
            && let Some(lines) = numa::sums(&self.paste.source)
        {
            self.paste.source.insert("proc/meminfo", lines);
            self.note("lines of meminfo are the sums of those of the nodes");
        }
        if self.repeated {
            self.note("meminfo or vmstat lines that came again took the place of earlier ones");
        }
        let groups = self
            .paste
            .source
            .files()
            .any(|(path, _)| path.starts_with("sys/fs/cgroup/") && path.contains("/memory."));
        let first_version =
            self.paste.source.files().any(|(path, _)| path.starts_with("sys/fs/cgroup/memory/"));
        let root = if first_version {
            "sys/fs/cgroup/memory/memory.stat"
        } else {
            "sys/fs/cgroup/cgroup.controllers"
        };
        if groups && self.paste.source.get(root).is_none() {
            // Both mark the version to which the groups belong.
            self.paste.source.append(root, if first_version { b"" } else { b"memory\n" });
        }
        let levels = self.meminfo.is_empty();
        let mut tables = std::mem::take(&mut self.tables);
        if !self.cpus.is_empty() {
            // Several screens of top have the same CPUs again; their mean holds for all.
            let count = self.cpus.len() as f64;
            tables.cpu(std::array::from_fn(|at| self.cpus.iter().map(|cpu| cpu[at]).sum::<f64>() / count));
        }
        for name in self.disks.keys() {
            // The directory says that it is a whole device.
            self.paste.source.insert(format!("sys/block/{}/removable", name.replace('/', "!")), "0\n");
        }
        let (busy, earlier) = std::mem::take(&mut self.listing).finish(&self.paste.source);
        self.paste.samples = tables.samples(self.paste.source.clone(), levels, &busy, &self.disks, &earlier);
        if self.paste.samples.is_empty() && !self.instants.is_empty() {
            let last = (self.time.unwrap_or_default(), self.paste.source.clone());
            self.instants.push(last);
            self.paste.samples = over_time(std::mem::take(&mut self.instants));
        }
        (!self.paste.source.is_empty() || !self.paste.samples.is_empty()).then_some(self.paste)
    }

    /// Converts the table of `free` to lines of meminfo.
    fn convert_free(&mut self) {
        let table = std::mem::take(&mut self.free);
        let column = |row: &[String], name: &str| {
            let index = table.columns.iter().position(|column| column == name)?;
            quantity(row.get(index)?)
        };
        let Some((total, suffixed)) = column(&table.memory, "total") else { return };
        let unit = match self.free_unit {
            _ if suffixed => 1.0,
            Some(unit) => unit,
            // As MiB the swap would be more than 64 GiB.
            None if column(&table.swap, "total").is_some_and(|(swap, _)| swap > 65_536.0) => 1.0,
            None if total < 262_144.0 => 1024.0,
            None => 1.0,
        };
        let kib = |value: (f64, bool)| (value.0 * if value.1 { 1.0 } else { unit }) as u64;
        let mut lines = Vec::new();
        for (name, columns, row) in [
            ("MemTotal", &["total"][..], &table.memory),
            ("MemFree", &["free"], &table.memory),
            ("MemAvailable", &["available"], &table.memory),
            ("Buffers", &["buffers"], &table.memory),
            ("Cached", &["cached", "cache", "buff/cache"], &table.memory),
            ("SwapTotal", &["total"], &table.swap),
            ("SwapFree", &["free"], &table.swap),
        ] {
            let value = columns.iter().find_map(|name| column(row, name));
            if let Some(value) = value.filter(|_| !self.meminfo.contains(name)) {
                lines.push(format!("{name}: {} kB", kib(value)));
            }
        }
        // From procps 3.3.10 on `shared` is Shmem; before, it was a figure that no kernel printed any more.
        let shared = column(&table.memory, "shared").filter(|_| column(&table.memory, "available").is_some());
        if let Some(value) = shared.filter(|_| !self.meminfo.contains("Shmem")) {
            lines.push(format!("Shmem: {} kB", kib(value)));
        }
        if lines.is_empty() {
            return;
        }
        for line in &lines {
            self.add("proc/meminfo", line);
        }
        let coarse = if suffixed {
            "as coarse as it was printed".to_owned()
        } else if unit >= 1024.0 {
            format!("rounded to {} MiB as it was printed", (unit / 1024.0) as u64)
        } else {
            "in the unit that was printed".to_owned()
        };
        let combined = if table.columns.iter().any(|name| name == "buff/cache") {
            "; buff/cache, which includes reclaimable slab, is taken as Cached"
        } else {
            ""
        };
        self.note(&format!(
            "{} lines of meminfo are from the table of `free`, {coarse}{combined}",
            lines.len()
        ));
    }
}

/// Files of a group of version 1 that version 2 does not have.
const V1_FILES: [&str; 4] = ["usage_in_bytes", "limit_in_bytes", "max_usage_in_bytes", "failcnt"];

/// A field of a control group in a report that people write: `memory.usage_in_bytes = 2,621,042,688 B`,
/// `memory.high = 2G`, `memory.stat total_rss = 22,953,984`. The file without `memory.`, with a key of it
/// after a space, and the value.
fn told(line: &str) -> Option<(String, u64)> {
    let (name, rest) = line.trim().strip_prefix("memory.")?.split_once('=')?;
    let name = name.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let known = ["current", "max", "high", "low", "min", "peak"].contains(&name.as_str())
        || V1_FILES.contains(&name.as_str())
        || ["stat ", "events "].iter().any(|file| {
            name.strip_prefix(file)
                .is_some_and(|key| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        });
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?;
    let grouped = value.split(',').skip(1).all(|digits| digits.len() == 3);
    let value = match value.replace(',', "").parse::<u64>() {
        Ok(number) if grouped => number,
        _ => (quantity(value).filter(|(_, unit)| *unit)?.0 * 1024.0) as u64,
    };
    known.then_some((name, value))
}

/// The time of a line that is a date: `Fri Nov 20 01:46:00 CET 2011`, `2024-01-02 03:04:05`.
pub(super) fn date(line: &str) -> Option<f64> {
    let line =
        line.trim_start_matches(['#', '=', '-', '*', ' ']).trim_end_matches([':', '=', '-', '*', ' ', '#']);
    let iso = line.get(..19).filter(|_| line.as_bytes().get(4) == Some(&b'-') && line.len() <= 35);
    if let Some(at) = iso.and_then(|text| text.replace(' ', "T").parse::<jiff::civil::DateTime>().ok()) {
        return Some(at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second() as f64);
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    // Each word of `date` is one of its parts, so that no sentence counts.
    let part = |word: &&str| {
        word.bytes().all(|b| b.is_ascii_digit() || b":.,+-".contains(&b))
            || word.len() <= 9 && word.bytes().all(|b| b.is_ascii_alphabetic() || b == b',')
    };
    let dated = (5..=7).contains(&words.len()) && words.iter().all(part);
    dated.then(|| oswatcher::stamp(&format!("zzz ***{line}"))).flatten()
}

/// Instants in the order in which they were read. Files that do not change with time, such as settings,
/// belong to all.
fn over_time(instants: Vec<(f64, MemorySource)>) -> Vec<(f64, MemorySource)> {
    const CHANGES: [&str; 8] = [
        "proc/meminfo",
        "proc/vmstat",
        "proc/zoneinfo",
        "proc/buddyinfo",
        "proc/slabinfo",
        "proc/stat",
        "proc/pressure/",
        "proc/pagetypeinfo",
    ];
    let changes = |path: &str| CHANGES.iter().any(|file| path.starts_with(file));
    let mut common = MemorySource::default();
    for (_, source) in &instants {
        for (path, contents) in source.files().filter(|(path, _)| !changes(path)) {
            if let Ok(contents) = contents
                && common.get(path).is_none()
            {
                common.insert(path, contents.clone());
            }
        }
    }
    let common = Arc::new(common);
    let first = instants.first().map_or(0.0, |(at, _)| *at);
    let over = |(at, source): (f64, MemorySource)| (at - first, source.lie_over(Arc::clone(&common)));
    instants.into_iter().map(over).collect()
}

fn is_number(word: &str) -> bool {
    word.parse::<i64>().is_ok()
}

/// Whether a line goes on with the zone that is open.
fn continues_zoneinfo(words: &[&str], after_pagesets: &mut bool, unpopulated: &mut bool) -> bool {
    let kernel = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match words {
        ["pagesets"] => {
            *after_pagesets = true;
            true
        }
        ["present" | "managed", "0"] => {
            *unpopulated = true;
            true
        }
        ["pages", "free" | "low" | "min" | "high", count] => is_number(count),
        ["per-node", "stats"] | ["vm", "stats", "threshold:", _] => true,
        ["protection:", ..] | ["cpu:" | "count:" | "high:" | "batch:" | "high_min:" | "high_max:", _] => true,
        ["all_unreclaimable:" | "start_pfn:" | "inactive_ratio:" | "node_unreclaimable:", _]
        | ["prev_priority:" | "temp_priority:", _] => {
            *after_pagesets = true;
            true
        }
        // After the page sets such a line belongs to the next file.
        [name, value] => {
            kernel(name) && is_number(value) && !*after_pagesets && !(*unpopulated && name.starts_with("nr_"))
        }
        _ => false,
    }
}

/// Whether the first two words are an address and a policy, as a line of `numa_maps` begins.
fn is_numa_map(address: &str, policy: &str) -> bool {
    const POLICIES: [&str; 6] = ["default", "bind", "interleave", "prefer", "local", "weighted"];
    (8..=16).contains(&address.len())
        && address.bytes().all(|b| b.is_ascii_hexdigit())
        && POLICIES.iter().any(|known| policy.starts_with(known))
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A cell of `free`: a bare number, or KiB if it has a suffix (`15Gi`, `1.2G`).
/// Whether a line of meminfo goes on with a reader's mark: `MemFree: 5 kB  <-- here`.
fn marked(rest: &[&str]) -> bool {
    rest.first() == Some(&"kB")
        && rest.get(1).is_some_and(|word| word.starts_with(['<', '#', '*', '!']) || *word == "--")
}

fn quantity(cell: &str) -> Option<(f64, bool)> {
    let end = cell.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',')).unwrap_or(cell.len());
    let number: f64 = cell[..end].replace(',', ".").parse().ok()?;
    let factor = match &cell[end..] {
        "" => return Some((number, false)),
        "B" => 1.0 / 1024.0,
        "K" | "Ki" => 1.0,
        "M" | "Mi" => 1024.0,
        "G" | "Gi" => 1024.0 * 1024.0,
        "T" | "Ti" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((number * factor, true))
}

/// Items of limits.conf.
const LIMITS: [&str; 19] = [
    "core",
    "data",
    "fsize",
    "memlock",
    "nofile",
    "rss",
    "stack",
    "cpu",
    "nproc",
    "as",
    "maxlogins",
    "maxsyslogins",
    "priority",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
    "rttime",
];

/// Whether a word is, or looks like, a name in `/proc/vmstat`.
fn is_vmstat(name: &str) -> bool {
    let starts = [
        "nr_",
        "pgpg",
        "pswp",
        "pgalloc_",
        "pgfree",
        "pgfault",
        "pgmajfault",
        "pgscan",
        "pgsteal",
        "pgrefill",
        "pgactivate",
        "pgdeactivate",
        "pginodesteal",
        "pgrotated",
        "pgmigrate_",
        "pgdemote_",
        "pgpromote_",
        "pgreuse",
        "pglazyfree",
        "allocstall",
        "kswapd_",
        "pageoutrun",
        "slabs_scanned",
        "drop_",
        "oom_kill",
        "numa_",
        "compact_",
        "htlb_",
        "unevictable_",
        "thp_",
        "balloon_",
        "workingset_",
        "zone_reclaim",
        "swap_ra",
        "swpin",
        "swpout",
        "zswp",
        "direct_map_",
        "ksm_",
        "cow_ksm",
        "vma_lock_",
        "kstack_",
        "pgskip_",
    ];
    Counter::<Vmstat>::named(name).is_some()
        || (name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && starts.iter().any(|start| name.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Paste {
        split(text.as_bytes(), "paste").expect("it has lines of files")
    }

    fn file(paste: &Paste, path: &str) -> String {
        let text = paste.source.get(path).unwrap_or_else(|| panic!("no {path} in {:?}", paste.source));
        String::from_utf8(text.to_vec()).unwrap()
    }

    /// A reader's comment below the article on huge pages.
    const SUNNY: &str = "\
    I'm running 2 oracle 11.2 databases on SUSE Linux Enterprise Server (SLES) having total 16 gb physical
    1) sga_target 6gb sga_max_size =8g
    2) sga_target=sga_max_size=1536 mb
    Document 401749.1 and it s giving
    Recommended setting: vm.nr_hugepages = 4868
    oracle@oracle1:/tmp> cat /proc/meminfo | grep Huge
    HugePages_Total: 4868
    HugePages_Free: 28
    HugePages_Rsvd: 26
    HugePages_Surp: 0
    Hugepagesize: 2048 kB

    oracle@oracle1:/tmp> free -m
    total used free shared buffers cached
    Mem: 15955 15830 125 0 102 3981
    -/+ buffers/cache: 11745 4210
    Swap: 49151 8 49143

    kernel.shmmax = 12884901888
    kernel.shmall = 3145728
    fs.file-max = 6815744
    vm.nr_hugepages = 4868

    ## added by orarun ##
    oracle soft nproc 2047
    oracle hard nofile 65536
    # End of file
    * soft memlock 12582912
    * hard memlock 12582912
";

    #[test]
    fn stalls_that_were_joined_or_shortened_are_lines_again() {
        let of = |text| stalls(text).join("; ");
        assert_eq!(
            of(" some avg10=0.00        full avg10=1.50 avg60=2.00 avg300=3.00"),
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=0; full avg10=1.50 avg60=2.00 avg300=3.00 total=0"
        );
        assert_eq!(of("avg10=3.00"), "");
        let told =
            read("----- Output from /proc/pressure/io -----\nsome avg10=85.37 avg60=63.13 avg300=23.13\n");
        assert_eq!(file(&told, "proc/pressure/io"), "some avg10=85.37 avg60=63.13 avg300=23.13 total=0\n");
    }

    #[test]
    fn a_process_that_grew_between_two_listings_has_both_readings() {
        let told = read(
            "  PID USER PR NI VIRT RES SHR S %CPU %MEM TIME+ COMMAND\n 7 a 20 0 900m 200m 9m S 1 5 1:00.00 X\n\
             7 a 20 0 1900m 900m 9m S 1 20 2:00.00 X\n",
        );
        let rss = |at: usize| {
            let text = told.samples[at]
                .1
                .get("proc/7/status")
                .map(|text| String::from_utf8_lossy(text).into_owned());
            text.and_then(|text| text.lines().find(|line| line.starts_with("VmRSS")).map(str::to_owned))
        };
        assert_eq!(
            (rss(0).as_deref(), rss(1).as_deref()),
            (Some("VmRSS:\t204800 kB"), Some("VmRSS:\t921600 kB"))
        );
    }

    #[test]
    fn free_with_dates_between_is_a_series() {
        let free = |date: &str, used: u64| {
            format!(
                "{date}\n              total        used        free      shared  buff/cache   available\n\
                 Mem:           7976        {used}        {}          22        1361        6201\n",
                6600 - used
            )
        };
        for [first, second] in [
            ["Mon Jan  1 00:00:00 2024", "Mon Jan  1 06:00:00 2024"],
            ["Mon Jan  1 00:00:00 CET 2024", "Mon Jan  1 06:00:00 CET 2024"],
            ["2024-01-01 00:00:00", "2024-01-01 06:00:00"],
        ] {
            let paste =
                split(format!("{}{}", free(first, 1500), free(second, 4500)).as_bytes(), "x").unwrap();
            let times: Vec<f64> = paste.samples.iter().map(|(at, _)| *at).collect();
            assert_eq!(times, [0.0, 21_600.0], "{first}");
        }
    }

    #[test]
    fn df_and_iostat() {
        let text = "Filesystem            Size  Used Avail Use% Mounted on\n\
            /dev/sda2             9.2G  6.9G  1.9G  79% /\n\
            devshm                502M  382M  120M  77% /dev/shm\n\
            tmpfs  tmpfs          256M  2048K  254M   1% /tmp\n\n\
            \u{20}            total       used       free     shared    buffers     cached\n\
            Mem:       1026568    1005468      21100          0       2592     384196\n";
        let paste = split(text.as_bytes(), "x").unwrap();
        let meminfo = file(&paste, "proc/meminfo");
        assert!(meminfo.contains("Shmem: 393216 kB\n"), "{meminfo}");
        // The kernel's own line is better.
        let told = split(format!("MemTotal: 5 kB\nShmem: 3 kB\n{text}").as_bytes(), "x").unwrap();
        assert!(!file(&told, "proc/meminfo").contains("393216"));
        let text = "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n\
            \u{20}          0.50    0.00    0.00   99.50    0.00    0.00\n\n\
            Device:         rrqm/s   wrqm/s     r/s     w/s  await  %util\n\
            sda               0.00     0.00    0.00    2.50   16.80   1.20\n\
            sdb               0.00     0.00    0.00    2.50 2307.20 100.00\n";
        let paste = split(text.as_bytes(), "x").unwrap();
        assert_eq!(paste.samples.len(), 2);
        assert_eq!(paste.notes, ["iostat: sdb was busy 100 % of the time"]);
    }

    #[test]
    fn a_question_in_a_forum() {
        let paste = split(SUNNY.as_bytes(), "").unwrap();
        assert_eq!(
            file(&paste, "proc/meminfo"),
            "HugePages_Total: 4868\nHugePages_Free: 28\nHugePages_Rsvd: 26\nHugePages_Surp: 0\nHugepagesize: 2048 kB\n\
             MemTotal: 16337920 kB\nMemFree: 128000 kB\nBuffers: 104448 kB\nCached: 4076544 kB\n\
             SwapTotal: 50330624 kB\nSwapFree: 50322432 kB\n"
        );
        assert_eq!(file(&paste, "proc/sys/vm/nr_hugepages"), "4868\n");
        assert_eq!(file(&paste, "proc/sys/kernel/shmmax"), "12884901888\n");
        assert_eq!(
            file(&paste, "etc/security/limits.conf"),
            "oracle soft nproc 2047\noracle hard nofile 65536\n* soft memlock 12582912\n* hard memlock 12582912\n"
        );
        assert!(paste.notes.iter().any(|note| note.contains("rounded to 1 MiB")), "{:?}", paste.notes);
        assert_eq!(paste.source.files().count(), 6, "{:?}", paste.source);
    }

    #[test]
    fn an_excerpt_of_zoneinfo_in_an_article() {
        let text = "as seen below:\n\nNode 1, zone Normal\npages free 17353\nmin 11284\nlow 14105\nhigh 16926\n\
            scanned 0\nspanned 6291456\npresent 6205440\n\nThe kernel reclaims pages when\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(
            file(&paste, "proc/zoneinfo"),
            "Node 1, zone Normal\npages free 17353\nmin 11284\nlow 14105\nhigh 16926\nscanned 0\nspanned 6291456\n\
             present 6205440\n"
        );
        assert_eq!(paste.source.files().count(), 1);
    }

    #[test]
    fn the_files_of_this_kernel_in_one_text_come_apart_again() {
        let names = [
            "meminfo",
            "buddyinfo",
            "zoneinfo",
            "vmstat",
            "swaps",
            "pagetypeinfo",
            "sysvipc/shm",
            "slabinfo",
        ];
        let mut text = Vec::new();
        let mut was = Vec::new();
        for name in names {
            // Files that need privileges, or are not built in, are skipped.
            let Ok(contents) = std::fs::read(format!("/proc/{name}")) else { continue };
            text.extend_from_slice(&contents);
            was.push((name, contents));
        }
        let paste = split(&text, "").unwrap();
        for (name, contents) in was {
            let squeeze = |text: &str| -> Vec<String> {
                let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
                lines.filter(|line| !line.is_empty()).collect()
            };
            let contents = String::from_utf8(contents).unwrap();
            if !contents.is_empty() {
                assert_eq!(squeeze(&file(&paste, &format!("proc/{name}"))), squeeze(&contents), "{name}");
            }
        }
    }

    #[test]
    fn prompts_and_prefixes_say_where_lines_come_from() {
        let text = "[root@db1 ~]# cat /proc/pressure/io\nsome avg10=1.00 avg60=0.00 avg300=0.00 total=5\n\
            [root@db1 ~]# cat /proc/sys/vm/swappiness\n60\n[root@db1 ~]# cat /etc/sysctl.conf\nvm.swappiness = 1\n\
            [root@db1 ~]# ls\nsome avg10=x\n/proc/sys/vm/zone_reclaim_mode:1\n\
            ==> /sys/kernel/mm/transparent_hugepage/enabled <==\n[always] madvise never\n\n\
            ==> /proc/pressure/memory <==\nsome avg10=2.00 avg60=0.00 avg300=0.00 total=7\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(file(&paste, "proc/pressure/io"), "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n");
        assert_eq!(file(&paste, "proc/sys/vm/swappiness"), "60\n");
        assert_eq!(file(&paste, "etc/sysctl.conf"), "vm.swappiness = 1\n");
        assert_eq!(file(&paste, "proc/sys/vm/zone_reclaim_mode"), "1\n");
        assert_eq!(file(&paste, "sys/kernel/mm/transparent_hugepage/enabled"), "[always] madvise never\n");
        assert!(file(&paste, "proc/pressure/memory").contains("total=7"));
    }

    #[test]
    fn tables_of_free_in_their_units() {
        let total = |text: &str| {
            let paste = split(text.as_bytes(), "").unwrap();
            file(&paste, "proc/meminfo").lines().next().unwrap().to_owned()
        };
        let header = "              total        used        free      shared  buff/cache   available\n";
        assert_eq!(total(&format!("{header}Mem: 16387608 1 2 3 4 5\n")), "MemTotal: 16387608 kB");
        assert_eq!(total(&format!("{header}Mem: 15955 1 2 3 4 5\n")), "MemTotal: 16337920 kB");
        assert_eq!(total(&format!("{header}Mem: 15Gi 1Gi 2Gi 3Mi 4Gi 5Gi\n")), "MemTotal: 15728640 kB");
        assert_eq!(total(&format!("$ free -g\n{header}Mem: 15 1 2 3 4 5\n")), "MemTotal: 15728640 kB");
        assert_eq!(total(&format!("$ free -b\n{header}Mem: 2048 1 2 3 4 5\n")), "MemTotal: 2 kB");
    }

    #[test]
    fn figures_that_other_programs_print() {
        let meminfo = |text: &str| file(&split(text.as_bytes(), "").unwrap(), "proc/meminfo");
        let earlyoom =
            "earlyoom: mem avail:   21 of 23909 MiB ( 0.09%), swap free: 512 of 2047 MiB (25.01%)\n";
        assert_eq!(
            meminfo(earlyoom),
            "MemTotal: 24482816 kB\nMemAvailable: 21504 kB\nSwapTotal: 2096128 kB\nSwapFree: 524288 kB\n"
        );
        // The last word on it counts.
        let again =
            format!("{earlyoom}mem avail: 9 of 23909 MiB (0.04%), swap free: 0 of 2047 MiB (0.00%)\n");
        assert!(meminfo(&again).contains("MemAvailable: 9216 kB"));
        assert_eq!(
            meminfo(
                "# TYPE node_memory_MemFree_bytes gauge\nnode_memory_MemTotal_bytes 8.3e+09\n\
                 node_memory_Active_anon_bytes{instance=\"a\"} 2048\nnode_memory_HugePages_Total 7\n"
            ),
            "MemTotal: 8105468 kB\nActive(anon): 2 kB\nHugePages_Total: 7\n"
        );
        let vmstat = split(b"node_vmstat_oom_kill 3\nnode_memory_MemFree_bytes 4096\n", "").unwrap();
        assert_eq!(file(&vmstat, "proc/vmstat"), "oom_kill 3\n");
        let zram = split(
            b"NAME       ALGORITHM DISKSIZE  DATA COMPR TOTAL STREAMS MOUNTPOINT\n\
              /dev/zram0 lzo-rle         4G    3G    2G  2.1G       4 [SWAP]\n",
            "",
        )
        .unwrap();
        assert_eq!(file(&zram, "proc/meminfo"), "SwapTotal: 4194304 kB\nSwapFree: 1048576 kB\n");
        assert_eq!(meminfo("# vmware-toolbox-cmd stat balloon\n6144 MB\n"), "Balloon: 6291456 kB\n");
    }

    #[test]
    fn the_cache_of_zfs() {
        let arc = |text: &str| file(&split(text.as_bytes(), "").unwrap(), "proc/spl/kstat/zfs/arcstats");
        assert_eq!(
            arc("name type data\nsize                4    3900000000\nhits 4 7\n"),
            "size 4 3900000000\n"
        );
        assert_eq!(
            arc(
                "ARC size (current):                83.3 %   1.5 GiB\n        Min size (hard limit):     6.2 %  512.0 MiB\n"
            ),
            "size 4 1610612736\nc_min 4 536870912\n"
        );
    }

    #[test]
    fn a_path_alone_names_what_follows() {
        let text = "/proc/pressure/cpu\nsome avg10=14.06 avg60=34.88 avg300=36.08 total=38\n\n/proc/pressure/memory\n\
            some avg10=1.00 avg60=0.00 avg300=0.00 total=11\n$ cat\n/sys/fs/cgroup/a.slice/cpu.pressure\n\
            some avg10=87.32 avg60=86.44 avg300=56.96 total=27\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(file(&paste, "proc/pressure/cpu"), "some avg10=14.06 avg60=34.88 avg300=36.08 total=38\n");
        assert_eq!(file(&paste, "proc/pressure/memory"), "some avg10=1.00 avg60=0.00 avg300=0.00 total=11\n");
        assert!(file(&paste, "sys/fs/cgroup/a.slice/cpu.pressure").contains("avg10=87.32"));
    }

    #[test]
    fn lines_that_were_joined() {
        let meminfo = |text: &str| file(&split(text.as_bytes(), "").unwrap(), "proc/meminfo");
        let top = "top - 14:45:47 up  3:15,  2 users,  load average: 2.97 Tasks: 138 total Cpu(s): 71.3%us, 27.4%sy,  0.3%id \
            Mem:   2052492k total,  1572572k used,   479920k free,    42608k buffers Swap:  6010872k total,  0k used,  6010872k \
            free,  1042040k cached   PID USER      PR  NI  VIRT  RES  SHR S %CPU %MEM    TIME+  COMMAND";
        assert!(meminfo(top).contains("MemFree: 479920 kB"), "{}", meminfo(top));
        let joined = "MemTotal: 100 kB#012MemFree: 50 kB\n";
        assert_eq!(meminfo(joined), "MemTotal: 100 kB\nMemFree: 50 kB\n");
    }

    #[test]
    fn slabs_of_2_4_are_those_of_version_2() {
        let text =
            "slabinfo - version: 1.1\ninode_cache       189974 243512    480 30439 30439    1 :  124   62\n";
        let slabs = file(&split(text.as_bytes(), "").unwrap(), "proc/slabinfo");
        assert!(
            slabs.contains("inode_cache 189974 243512 480 8 1 : tunables 0 0 0 : slabdata 30439 30439 0"),
            "{slabs}"
        );
    }

    #[test]
    fn a_stat_of_version_1_has_its_limit() {
        let text =
            "cache 0\nrss 0\nhierarchical_memory_limit 157286400\ntotal_cache 4096\ntotal_rss 157282304\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(file(&paste, "sys/fs/cgroup/memory/GROUP/memory.limit_in_bytes"), "157286400\n");
        assert_eq!(file(&paste, "sys/fs/cgroup/memory/GROUP/memory.usage_in_bytes"), "157286400\n");
    }

    #[test]
    fn several_files_of_one_command() {
        let text = "$ cat memory.max memory.current memory.events\n536870912\n536866816\nlow 0\noom 12\noom_kill 12\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(file(&paste, "sys/fs/cgroup/GROUP/memory.max"), "536870912\n");
        assert_eq!(file(&paste, "sys/fs/cgroup/GROUP/memory.current"), "536866816\n");
        assert_eq!(file(&paste, "sys/fs/cgroup/GROUP/memory.events"), "low 0\noom 12\noom_kill 12\n");
    }

    #[test]
    fn kills_that_were_wrapped() {
        let text = "Sep 21 09:15:58 nas systemd-oomd[581]: Killed\n  /user.slice/a.scope\n  due to memory pressure for /user.slice\n  \
            being 86.80% > 50.00% for > 20s with reclaim activity\nNext\n";
        let log = file(&split(text.as_bytes(), "").unwrap(), "dev/kmsg");
        assert!(
            log.contains("Killed /user.slice/a.scope due to memory pressure for /user.slice being 86.80%"),
            "{log}"
        );
        assert!(!log.contains("Next"));
    }

    #[test]
    fn shared_memory_tables() {
        let text = "------ Shared Memory Segments --------\nkey shmid owner perms bytes nattch status\n\
            0x00000000 32768 oracle 640 4194304 50\n0x00000000 32769 oracle 640 6442450944 0 dest\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(file(&paste, "proc/sysvipc/shm").lines().count(), 3);
    }

    #[test]
    fn files_after_dates_are_samples() {
        let text = "Mon Nov 23 10:00:00 UTC 2026\nMemTotal: 100 kB\nMemFree: 50 kB\npgfault 5\nvm.swappiness = 10\n\
            Mon Nov 23 10:00:30 UTC 2026\nMemTotal: 100 kB\nMemFree: 40 kB\npgfault 9\n";
        let paste = split(text.as_bytes(), "").unwrap();
        let at = |index: usize, path: &str| {
            let (time, source) = &paste.samples[index];
            (*time, String::from_utf8(source.get(path).unwrap().to_vec()).unwrap())
        };
        assert_eq!(at(0, "proc/vmstat"), (0.0, "pgfault 5\n".to_owned()));
        assert_eq!(at(1, "proc/vmstat"), (30.0, "pgfault 9\n".to_owned()));
        assert_eq!(at(1, "proc/meminfo").1, "MemTotal: 100 kB\nMemFree: 40 kB\n");
        assert_eq!(paste.samples.len(), 2);
        for line in
            ["I have 5 apples at 10:00:00 2020", "2024-01-02 03:04:05 kernel: out of memory, it seems"]
        {
            assert_eq!(date(line), None, "{line}");
        }
        assert_eq!(
            date("2024-01-02T03:04:15").zip(date("2024-01-02 03:04:05")).map(|(b, a)| b - a),
            Some(10.0)
        );
    }

    #[test]
    fn nodes_add_up_and_balloons_are_told() {
        let text = "                          Node 0          Node 1           Total\n\
             MemTotal                   64.00           64.00          128.00\n\
             FilePages                   4.00            2.00            6.00\n\
             HugePages_Total             8.00            0.00            8.00\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(
            file(&paste, "proc/meminfo"),
            "Cached: 6144 kB\nHugePages_Total: 4\nHugepagesize: 2048 kB\nMemTotal: 131072 kB\n"
        );
        let hyperv = "host_version          : 2.0\npages_ballooned       : 1000\n";
        assert_eq!(file(&split(hyperv.as_bytes(), "").unwrap(), "proc/meminfo"), "Balloon: 4000 kB\n");
        let vmware = "balloon capabilities  : 0x3e\ntarget : 1023\ncurrent               : 1024\n";
        assert_eq!(file(&split(vmware.as_bytes(), "").unwrap(), "proc/meminfo"), "Balloon: 4096 kB\n");
    }

    #[test]
    fn top_says_who_takes_a_cpu() {
        let text = "%Cpu(s): 12.5 us,  0.0 sy,  0.0 ni, 87.4 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st\n\
            PID USER PR NI VIRT RES SHR S %CPU %MEM TIME+ COMMAND\n\
            1919 root 20 0 906564 223816 78632 R 100.0 1.4 3:18.98 Xorg\n\
            40 root 20 0 0 0 0 R 98.0 0.0 3:18.98 kswapd0\n";
        let paste = split(text.as_bytes(), "").unwrap();
        let stat = |index: usize, pid: u32| {
            let text = paste.samples[index].1.get(&format!("proc/{pid}/stat")).unwrap().to_vec();
            let text = String::from_utf8(text).unwrap();
            text.split(' ').map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!((stat(0, 1919)[13].as_str(), stat(1, 1919)[13].as_str()), ("0", "100"));
        assert_eq!((stat(1, 40)[1].as_str(), stat(1, 40)[8].as_str()), ("(kswapd0)", "2097152"));
    }

    #[test]
    fn swap_areas_add_up() {
        for text in [
            "NAME TYPE SIZE USED PRIO\n/dev/sda2 partition 4G 3G -2\n/swapfile file 512M 0B -3\n",
            "Filename Type Size Used Priority\n/dev/sda2 partition 4194304 3145728 -2\n/swapfile file 524288 0 -3\n",
        ] {
            let paste = split(text.as_bytes(), "").unwrap();
            assert_eq!(
                file(&paste, "proc/meminfo"),
                "SwapTotal: 4718592 kB\nSwapFree: 1572864 kB\n",
                "{text}"
            );
            assert!(file(&paste, "proc/swaps").lines().count() == 3);
        }
    }

    #[test]
    fn a_diff_of_two_readings_is_the_second() {
        let text = "--- before\n+++ after\n@@ -1,3 +1,3 @@\n MemTotal:        8133036 kB\n-MemFree:         6858820 kB\n\
            +MemFree:         5620596 kB\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(
            file(&paste, "proc/meminfo"),
            "MemTotal:        8133036 kB\nMemFree:         5620596 kB\n"
        );
    }

    #[test]
    fn fields_of_groups_that_people_write_down() {
        let text = "memory.usage_in_bytes      = 2,621,042,688 B\nmemory.stat total_rss = 22,953,984 B (~21.9 MiB)\n\
            memory.limit_in_bytes = 2,621,440,000 B  <- pinned\n";
        let paste = split(text.as_bytes(), "").unwrap();
        assert_eq!(file(&paste, "sys/fs/cgroup/memory/GROUP/memory.usage_in_bytes"), "2621042688\n");
        assert_eq!(told("memory.high = 2G"), Some(("high".to_owned(), 2 << 30)));
        for line in ["memory.x = 5", "memory.max = soon", "memory is = 5", "memory.stat Total = 5"] {
            assert_eq!(told(line), None, "{line}");
        }
    }

    #[test]
    fn prose_is_not_recognised() {
        for text in ["", "hello world\n", "I have 5 apples\nfoo 12\n", "Note: 5\n", "a.b = c\n"] {
            assert!(split(text.as_bytes(), "x").is_none(), "{text}");
        }
        assert!(split(&[0xff; 5000], "meminfo").is_none());
    }

    proptest! {
        #[test]
        fn any_lines_are_read_without_a_panic(
            lines in proptest::collection::vec(
                "(Node [0-9], zone (Normal|DMA)[ 0-9]{0,9}|(some|full) avg10=[0-9.]{0,4}|[a-z]{0,4}[#$>] (cat|free -[bkmgh]) ?[/a-z.]{0,12}|(Mem|Swap): [0-9.]{0,40}[GTi]{0,2} 9|total used free|==> [/a-z]{0,9} <==|.{0,40})",
                0..20)
        ) {
            let _ = split(lines.join("\n").as_bytes(), "");
        }
    }
}
