//! [`Redactor`]: replaces names before an archive leaves the host.
//!
//! The parts that stay are listed, file by file and field by field; everything else is replaced by a token or
//! left out. The lists have numbers, units, settings, process and user ids, and the words that the kernel,
//! distributions and well-known programs write, so that a redacted archive leads to the same findings. Names
//! that people give are in none of the lists. The redactor does not search for names, so no key, number or
//! word of a file's grammar changes because a host or a program has the same name.
//!
//! | where | what stays | what goes |
//! |---|---|---|
//! | `meminfo`, `vmstat`, `zoneinfo`, `buddyinfo`, `pagetypeinfo`, `pressure`, `sysvipc/shm`, files of nodes, pools, THP, KSM, zswap | counters that the table of counters has, zones, numbers | other words (`word1`) |
//! | `slabinfo` | caches of kernels and their file systems; `…_inode_cache` of others | names of other caches (`slab1`), groups behind a cache's name |
//! | `proc/PID/stat`, `status`, kernel log | names of well-known programs and kernel threads as a whole; `ora_pmon_` and other beginnings that rules know | other names (`program1`, `kthread1` where `stat` proves it), what a kernel thread works for, instances of Oracle and SAP (`sid1`), lines of `status` that are not known |
//! | `proc/PID/cgroup`, paths below `sys/fs/cgroup` | `system.slice`, `user-1000.slice`, services of well-known programs, container runtimes, control files | other words between dashes (`unit1`), identifiers of containers and pods (`id1`) |
//! | `numa_maps`, `maps` | addresses, policies, counts; `SYSV…`, `/dev/zero`, `[heap]` and the like | other files (`/file1`), names in `/dev/shm` (`shm1`; the instance in those of Oracle), names of anonymous memory |
//! | files that only processes hold (`lotsfree/unlinked`) | numbers, places below `/proc/PID`, types | names, as in `maps` |
//! | `mounts`, `swaps` | types, options of memory, directories of distributions, devices as drivers call them | hosts (`host1`), directories (`dir1`), volumes (`dm1`, `volume1`, `device1`), other types (`fs1`) and options |
//! | `diskstats`, `sys/block` | devices as drivers call them, numbers | other names (`device1`) |
//! | host name | `localhost` | `host1` |
//! | kernel release, `os-release`, profile of tuned | numbers, words of distributions and vendors | other words (`local1`, `distribution1`, `profile1`), everything else in `os-release` and `proc/version` |
//! | kernel command line | parameters of memory and CPUs with values that are numbers or known words | all other parameters, what is meant for init |
//! | `sysctl.conf`, `sysctl.d` | settings of memory with their numbers; the order of the files | comments, other settings, names of files (`50-file500.conf`) |
//! | `limits.conf`, `limits.d` | items and numbers; users and groups that distributions and programs come with | comments, other users (`user1`) and groups (`@group1`), names of files |
//! | systemd units and drop-ins | sections, settings of memory, CPUs and limits with known values | everything else, names of files |
//! | kernel log | OOM kills, `drop_caches`, allocation failures: time, numbers, constraint | other lines; `cpuset=`, tasks, modules, call traces |
//! | any other file | | the whole file |
//!
//! Tokens are counted, not hashed: a token reveals nothing about the name. The same name has the same token
//! in all files and instants of an archive. Names of configuration files sort as before.
//!
//! To let another word stay, add it to a list in `lists.rs`; to keep another file, add a row to `FILES` in
//! `files.rs`.

mod config;
mod files;
mod groups;
mod kernel_log;
mod lists;
mod names;
mod order;
mod paths;
mod process;
mod programs;
mod slabs;
mod words;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use lotsfree_kernel_files::counters::{
    Family, Khugepaged, Ksm, Meminfo, MemoryEvents, MemoryStat, MthpStats, Numastat, SmapsRollup, Status,
    Vmstat, Zoneinfo, each_family,
};
use lotsfree_kernel_files::file::arcstats::Arc;
use lotsfree_kernel_files::file::cpu_times::CpuTimes;
use lotsfree_kernel_files::{File, Log};

use super::ReadError;
use files::Contents;
use names::Names;
pub use names::TOKENS;
use order::Order;
use words::{Words, is_number, keep_words};

/// Level of redaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redaction {
    /// Names are replaced as the module documentation says.
    #[default]
    Standard,
    /// Nothing is replaced.
    Full,
}

impl Redaction {
    /// Name of the level in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Redaction::Standard => "standard",
            Redaction::Full => "full",
        }
    }
}

/// Replaces names, the same name always by the same token.
#[derive(Clone, Debug)]
pub struct Redactor {
    level: Redaction,
    names: Names,
    order: Order,
    /// Process ids whose `stat` proves that they are kernel threads.
    kernel_threads: BTreeSet<u32>,
}

impl Redactor {
    /// Starts without names.
    pub fn new(level: Redaction) -> Self {
        Redactor { level, names: Names::default(), order: Order::default(), kernel_threads: BTreeSet::new() }
    }

    /// Level of redaction.
    pub fn level(&self) -> Redaction {
        self.level
    }

    /// The name of this host in the archive: its own, or the token for it.
    pub fn host_name(&mut self, name: &str) -> String {
        match self.level {
            Redaction::Full => name.trim().to_owned(),
            Redaction::Standard => self.names.host(name),
        }
    }

    /// The kernel's release: whole, or without the words that only its builder writes.
    pub fn kernel_release(&mut self, release: &str) -> String {
        match self.level {
            Redaction::Full => release.to_owned(),
            Redaction::Standard => self.names.release(release),
        }
    }

    /// Learns the names of a directory that was listed. If their order decides which setting wins, their
    /// tokens have the same order.
    pub fn learn_names(&mut self, directory: &str, names: &[String]) {
        if directory.ends_with(".d") {
            self.order.learn(names);
        }
    }

    /// The path under which a file is kept; `None` if it is not kept.
    pub fn path(&mut self, path: &str) -> Option<String> {
        if self.level == Redaction::Full {
            return Some(path.to_owned());
        }
        self.find(path).filter(|(contents, _)| *contents != Contents::Drop).map(|(_, kept)| kept)
    }

    /// The path under which a directory is kept; `None` if nothing in it can be kept.
    pub fn directory(&mut self, path: &str) -> Option<String> {
        if self.level == Redaction::Full {
            return Some(path.to_owned());
        }
        self.find_directory(path)
    }

    /// The reason why a file could not be read, as it is kept: only the system's own words.
    pub fn error(&self, error: &ReadError) -> ReadError {
        let ReadError::Io(text) = error else { return error.clone() };
        if self.level == Redaction::Full {
            return error.clone();
        }
        let number =
            text.rsplit_once("(os error ").and_then(|(_, rest)| rest.strip_suffix(')')?.parse().ok());
        ReadError::Io(match number {
            Some(number) => std::io::Error::from_raw_os_error(number).to_string(),
            None => "cannot be read".to_owned(),
        })
    }

    /// A file's contents as they are kept; `None` if they are not kept.
    pub fn contents(&mut self, path: &str, contents: &[u8]) -> Option<Vec<u8>> {
        if self.level == Redaction::Full {
            return Some(contents.to_owned());
        }
        let (class, _) = self.find(path)?;
        let text = String::from_utf8_lossy(contents);
        let mut kept = match class {
            Contents::Drop => return None,
            Contents::Nothing => String::new(),
            Contents::Stat => self.stat(path, &text),
            Contents::Status => {
                let kernel_thread = pid_of(path).is_some_and(|pid| self.kernel_threads.contains(&pid));
                self.names.status(&text, kernel_thread)
            }
            Contents::Unit => config::unit(&text),
            Contents::Arc => {
                let mut out = String::new();
                Arc::parse(contents, &mut Log::default()).print(&mut out);
                out
            }
            Contents::CpuTimes => {
                let mut out = String::new();
                CpuTimes::parse(contents, &mut Log::default()).print(&mut out);
                out
            }
            Contents::KernelLog => self.names.kernel_log(&text),
            _ => self.lines(class, &text),
        };
        if kept.ends_with('\n') && !text.ends_with('\n') {
            // A file that was cut off stays cut off.
            kept.pop();
        }
        Some(kept.into_bytes())
    }

    fn stat(&mut self, path: &str, text: &str) -> String {
        let (kept, kernel_thread) = self.names.stat(text);
        if let Some(pid) = pid_of(path) {
            // At the previous instant the id may have been another process's.
            match kernel_thread {
                true => self.kernel_threads.insert(pid),
                false => self.kernel_threads.remove(&pid),
            };
        }
        kept
    }

    /// Redacts a text line by line, keeping the line ends.
    fn lines(&mut self, class: Contents, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            out.push_str(&self.line(class, line));
            out.push_str(end);
        }
        out
    }

    fn line(&mut self, class: Contents, line: &str) -> String {
        use lists::{CHOICES, CONTROL, PRESSURE, PROCESS, SHM, UNITS, ZONES};
        let names = &mut self.names;
        match class {
            Contents::Numbers => keep_words(line, &[], names),
            Contents::Counters => keep_words(line, &[counters(), &ZONES, &UNITS], names),
            Contents::Pressure => keep_words(line, &[&PRESSURE], names),
            Contents::Zones => keep_words(line, &[&ZONES, counters()], names),
            Contents::Shm => keep_words(line, &[&SHM], names),
            Contents::Choices => keep_words(line, &[&CHOICES], names),
            Contents::Control => keep_words(line, &[counters(), &CONTROL, &PRESSURE], names),
            Contents::Process => keep_words(line, &[&PROCESS], names),
            Contents::Rollup => match line.split_once(':') {
                Some((key, _)) if counters().has(key) => keep_words(line, &[counters(), &UNITS], names),
                _ => names.mapping(line),
            },
            Contents::DiskStats => disk_stats(line, names),
            Contents::Slabs => names.slab_line(line),
            Contents::Host => names.host(line),
            Contents::Release => names.release(line),
            Contents::Version => names.version(line),
            Contents::Boot => config::boot(line),
            Contents::OsRelease => names.os_release(line),
            Contents::Profile => names.profile(line),
            Contents::Swaps => names.swap(line),
            Contents::Mounts => names.mount(line),
            Contents::Cgroup => names.cgroup(line),
            Contents::NumaMaps => names.numa_mapping(line),
            Contents::Maps => names.mapping(line),
            Contents::Unlinked => names.unlinked(line),
            Contents::Settings => config::setting(line),
            Contents::Limits => names.limit(line),
            // Redacted as a whole file, not by line.
            Contents::Drop
            | Contents::Nothing
            | Contents::Stat
            | Contents::Status
            | Contents::Unit
            | Contents::Arc
            | Contents::CpuTimes
            | Contents::KernelLog => String::new(),
        }
    }
}

/// Redacts a line of `diskstats`: two numbers, the device, numbers.
fn disk_stats(line: &str, names: &mut Names) -> String {
    let mut out = String::with_capacity(line.len());
    let mut column = 0;
    for piece in line.split_inclusive(' ') {
        let word = piece.trim_end_matches(' ');
        let kept = match column {
            2 if !word.is_empty() => names.device(word),
            _ if word.is_empty() || is_number(word) => word.to_owned(),
            _ => "redacted".to_owned(),
        };
        column += usize::from(!word.is_empty());
        out.push_str(&kept);
        out.push_str(&piece[word.len()..]);
    }
    out
}

fn pid_of(path: &str) -> Option<u32> {
    path.strip_prefix("proc/")?.split('/').next()?.parse().ok()
}

/// The lines of a text without their ends.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_terminator('\n')
}

/// The names of all counters.
fn counters() -> &'static Words {
    static COUNTERS: LazyLock<Words> = LazyLock::new(|| {
        let mut names: Vec<&'static str> = Vec::new();
        macro_rules! add {
            ($family:ident) => {
                names.extend($family::ROWS.iter().map(|row| row.name));
            };
        }
        each_family!(add);
        Words::new(names.leak())
    });
    &COUNTERS
}

#[cfg(test)]
mod tests;
