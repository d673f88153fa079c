//! Memory events in the kernel log (`/dev/kmsg`, a saved `dmesg`). Other lines are never kept.

pub mod daemon;
pub mod hardware;
pub mod hung;
pub mod refusal;
pub mod report;
pub mod storage;

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use lotsfree_units::Bytes;
use serde::Serialize;

use self::daemon::DaemonKill;
use self::hardware::HardwareError;
use self::hung::HungTask;
use self::refusal::{Refusal, Said};
use self::report::Report;
use self::storage::StorageError;
use super::scan::{bounded, cut, decimal, leading_digits};
use crate::{File, Log};

/// The memory events of the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelLog {
    /// Kills by the OOM killer, oldest first; the latest 256 are kept.
    pub ooms: Vec<OomKill>,
    /// Writes to `/proc/sys/vm/drop_caches`: process name, pid, value; the latest 256 are kept.
    pub drop_caches: Vec<(String, u32, u32)>,
    /// `page allocation failure` lines of the reports that are kept: process name, order.
    pub allocation_failures: Vec<(String, u32)>,
    /// Reports on memory, oldest first, with the kills that followed each; the latest 32 are kept.
    pub reports: Vec<Report>,
    /// Panics because memory ran out (`vm.panic_on_oom`).
    pub oom_panics: u32,
    /// Panics because nothing was left that the OOM killer may kill.
    pub nothing_killable: u32,
    /// Kills by daemons, where the log is a whole journal; the latest 256 are kept.
    pub daemon_kills: Vec<DaemonKill>,
    /// What programs and the kernel refused or ask for, where the log is a journal or an application's; the
    /// latest 256 are kept.
    pub refusals: Vec<Refusal>,
    /// Tasks that stood still or held a CPU; the latest 256 are kept.
    pub hung: Vec<HungTask>,
    /// What it says of memory hardware; the latest 256 lines are kept.
    pub hardware: Vec<HardwareError>,
    /// What it says of disks that fail and servers that do not answer; the latest 256 lines are kept.
    pub storage: Vec<StorageError>,
    /// Whether it begins with a boot. If not, what happened before its first line is unknown.
    pub from_boot: bool,
    /// The lines from which the events were read, as printed, for saving. Lines of a journal's export have
    /// the time since boot put before them in brackets.
    pub lines: Vec<String>,
}

/// One kill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OomKill {
    /// Seconds since boot, if the line said so.
    pub at: Option<u64>,
    /// `CONSTRAINT_NONE`, `CONSTRAINT_MEMCG`, `CONSTRAINT_MEMORY_POLICY` or `CONSTRAINT_CPUSET`. Kernels
    /// before 4.19 do not print it: it is then empty, except for `Memory cgroup out of memory`.
    pub constraint: String,
    /// The cgroup that hit its limit (`oom_memcg`), else that of the victim (`task_memcg`), if printed.
    pub cgroup: Option<String>,
    /// Victim's process id.
    pub pid: u32,
    /// Victim's name.
    pub name: String,
    /// Victim's anonymous memory.
    pub anon_rss: Option<Bytes>,
    /// Victim's page tables, as printed: 5.4 and 5.5 print bytes and call them kB.
    pub page_tables: Option<Bytes>,
    /// Victim's `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
}

/// At most this many events of each kind are kept.
const MOST_EVENTS: usize = 256;
/// At most this many reports are kept: one has as many lines as there are processes.
const MOST_REPORTS: usize = 32;
/// A bound on a kept line, in bytes; the kernel's own records have at most 976.
const MOST_LINE: usize = 1024;
/// The lines of one kill are matched with one of this many latest kills, because the messages of several CPUs
/// mix.
const NEAR: usize = 4;
/// The constraint of a kill for which the kernel printed `Memory cgroup out of memory`.
const MEMCG: &str = "CONSTRAINT_MEMCG";
/// How a panic begins that took the place of a kill (`mm/oom_kill.c:check_panic_on_oom`).
const PANIC: &str = "Kernel panic - not syncing: Out of memory";
/// How the first line of a kernel begins (`init/version.c:linux_banner`).
const BOOT: &str = "Linux version ";
/// The whole of such a panic where no process was left to kill, as newer kernels say it (read in 5.10).
const DEADLOCKED: &str = "Kernel panic - not syncing: System is deadlocked on memory";
/// How such a panic goes on where no process was left to kill (`mm/oom_kill.c:out_of_memory`).
const UNKILLABLE: &str = "Out of memory and no killable processes";
/// Texts of which a line of interest contains at least one. Lines with none of them are dismissed without
/// parsing.
const SIGNS: [&str; 30] = [
    BOOT,
    DEADLOCKED,
    " blocked for more than ",
    "soft lockup - CPU#",
    "Killed /",
    "nohang",
    "sending SIG",
    "The node was low on resource: memory",
    "[talos] Sending SIGKILL",
    "lowmemorykiller: Kill",
    "Memory failure: 0x",
    "Injecting memory failure",
    "EDAC MC",
    "EDAC igen6 MC",
    "orrected memory error",
    "viction manager: attempting to reclaim",
    "lmkd: Kill",
    "mce: Uncorrected hardware memory error",
    "rasdaemon",
    PANIC,
    "systemd-oomd",
    "earlyoom",
    "oom-kill:",
    "oom_reaper: reaped process ",
    "ill process ",
    "illed process ",
    " as a result of limit of ",
    "): drop_caches: ",
    "): dropped kernel caches: ",
    ": page allocation failure",
];

impl File for KernelLog {
    /// Reads `dmesg` output of any format, concatenated records of `/dev/kmsg`, syslog files and
    /// `journalctl -k` output, also `-o export`.
    ///
    /// Only lines that begin with the kernel's wording are believed; records that a program wrote to
    /// `/dev/kmsg` are not. Nothing is reported to the log of problems, because a kernel log is free text.
    fn parse(text: &[u8], _log: &mut Log) -> Self {
        read(&String::from_utf8_lossy(text)).0
    }

    /// Prints the lines that were kept.
    fn print(&self, out: &mut String) {
        for line in &self.lines {
            out.push_str(line);
            out.push('\n');
        }
    }
}

/// All texts of which a line of interest contains one.
static MATCHER: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let texts = SIGNS.into_iter().chain(report::SIGNS).chain(storage::SIGNS).chain(refusal::pieces());
    matcher(texts)
});

/// Finds any of the texts in one pass.
fn matcher(texts: impl Iterator<Item = &'static str>) -> AhoCorasick {
    // Building fails only beyond four billion states.
    #[expect(clippy::expect_used, reason = "the texts are constants, and a test builds it")]
    AhoCorasick::new(texts).expect("few short texts")
}

/// A line that belongs to a memory event: its number in the text, from 0, and the report that it is part
/// of, by its place in [`KernelLog::reports`].
pub type Owned = (usize, Option<usize>);

/// Reads a text, and says which of its lines belong to memory events: a text may hold other things too.
pub fn read(text: &str) -> (KernelLog, Vec<Owned>) {
    let signs = |text: &str| MATCHER.is_match(text);
    let mut reader = Reader::default();
    if !signs(text) {
        return reader.finish();
    }
    let mut journal_time = None;
    let mut lines = text.split('\n').enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if let Some(us) = line.strip_prefix("__MONOTONIC_TIMESTAMP=") {
            journal_time = us.trim_ascii().parse::<u64>().ok();
        } else if line.is_empty() {
            journal_time = None;
        } else if reader.expects_more()
            || signs(line)
            || lines.peek().is_some_and(|(_, next)| broken(line, next))
        {
            let mut kept = match (line.strip_prefix("MESSAGE="), journal_time) {
                (Some(message), Some(us)) => {
                    format!("[{:5}.{:06}] {message}", us / 1_000_000, us % 1_000_000)
                }
                (Some(message), None) => message.to_owned(),
                (None, _) => line.to_owned(),
            };
            while let Some((_, rest)) = lines.next_if(|(_, next)| wrapped(&kept, next)) {
                kept = format!("{} {}", kept.trim_end(), rest.trim());
            }
            // Parts of wrapped lines are no lines: kept lines that then stood together would be joined.
            if part(&kept) {
                continue;
            }
            reader.take(number, bounded(kept.as_bytes(), MOST_LINE).trim_ascii());
        }
    }
    reader.finish()
}

/// Texts of lines whose figures are lost where a mail program wrapped them.
const WRAPPED: [&str; 4] = [" invoked oom-killer", "page allocation ", ": vmalloc", "illed process "];
/// How the rest of such a line may begin.
const RESTS: [&str; 10] = [
    "mode:",
    "gfp_mask=",
    "order:",
    "order=",
    "nodemask=",
    "oom_score_adj=",
    "oom_adj=",
    "total-vm:",
    "anon-rss:",
    "file-rss:",
];
/// Texts that mail programs wrap in their middle.
const BROKEN: [&str; 6] = [
    " invoked oom-killer:",
    ": vmalloc error: size",
    ": page allocation failure",
    ": page allocation stalls for",
    " as a result of limit of",
    " blocked for more than",
];

/// Whether `next` is the rest of `line`.
fn wrapped(line: &str, next: &str) -> bool {
    let (line, next) = (line.trim_end(), next.trim_start());
    broken(line, next)
        || WRAPPED.iter().any(|text| line.contains(text)) && RESTS.iter().any(|rest| next.starts_with(rest))
}

/// Whether a text that matters is wrapped between the lines.
fn broken(line: &str, next: &str) -> bool {
    let (line, next) = (line.trim_end(), next.trim_start());
    BROKEN.iter().any(|text| halves(text).any(|(end, start)| line.ends_with(end) && next.starts_with(start)))
}

/// A text split at each of its blanks that follows a word.
fn halves(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let after_word = |at: usize| text[..at].contains(|c: char| c.is_ascii_alphabetic());
    text.match_indices(' ')
        .filter(move |(at, _)| after_word(*at))
        .map(|(at, _)| (&text[..at], &text[at + 1..]))
}

/// Whether a line is the rest or the beginning of another one.
fn part(line: &str) -> bool {
    let line = line.trim();
    RESTS.iter().any(|rest| line.starts_with(rest))
        || BROKEN.iter().any(|text| halves(text).any(|(end, _)| line.ends_with(end)))
}

/// Events with the lines of each; the lines are numbered in reading order.
type Kept<T> = VecDeque<(T, Vec<(usize, String)>)>;

/// A kill, of which perhaps not all lines have been read yet.
#[derive(Debug, Default)]
struct Kill {
    kill: OomKill,
    /// Whether the line that says that the process was killed has been read.
    killed: bool,
    /// Whether a child may be killed in place of the chosen process (before 5.1).
    or_child: bool,
    /// Number of the report before it, if there is one.
    report: Option<u64>,
    /// Whether nothing is known but that its memory was taken back.
    reaped: bool,
}

#[derive(Debug, Default)]
struct Reader {
    kills: Kept<Kill>,
    drops: Kept<(String, u32, u32)>,
    failures: Kept<(String, u32)>,
    daemons: Kept<DaemonKill>,
    panics: Kept<bool>,
    refusals: Kept<Refusal>,
    hung: Kept<HungTask>,
    /// Whether lines of a trace are those of the last of these tasks, and not of a report after it.
    in_trace: bool,
    hardware: Kept<HardwareError>,
    storage: Kept<StorageError>,
    boots: Kept<()>,
    /// Reports with their numbers; the last one is open.
    reports: Kept<(u64, report::Builder)>,
    begun: u64,
    /// `Task in … killed as a result of limit of …`: the group, and the line.
    limit: Option<(String, (usize, String))>,
}

impl Reader {
    /// Reads one line that may be an event.
    fn take(&mut self, number: usize, line: &str) {
        if line.contains(PANIC) || line.contains(DEADLOCKED) {
            let begins = |message: &str| message.starts_with(PANIC) || message.starts_with(DEADLOCKED);
            let panics = split_prefix(line).is_some_and(|(_, message)| begins(message));
            if panics && self.panics.len() < MOST_EVENTS {
                let unkillable = line.contains(UNKILLABLE) || line.contains(DEADLOCKED);
                self.panics.push_back((unkillable, vec![(number, line.to_owned())]));
            }
            return;
        }
        if let Some(kill) = daemon::killed(line) {
            // systemd repeats what systemd-oomd has said with its reason.
            let said = self.daemons.iter().any(|(known, _)| known.victim.ends_with(&kill.victim));
            if kill.reason == daemon::Reason::Untold && said {
                return;
            }
            push(&mut self.daemons, kill).1.push((number, line.to_owned()));
            return;
        }
        let numbered = (number, line.to_owned());
        match refusal::said(line) {
            Some(Said::Refusal(refusal)) => return push(&mut self.refusals, refusal).1.push(numbered),
            Some(Said::More(more)) => {
                if let Some((refusal, lines)) = self.refusals.back_mut()
                    && more.add_to(refusal)
                {
                    lines.push(numbered);
                }
                return;
            }
            None => {}
        }
        if let Some(error) = HardwareError::of_rasdaemon(line) {
            push(&mut self.hardware, error).1.push(numbered);
            return;
        }
        let Some((at, message)) = split_prefix(line) else { return };
        if booted(message) {
            push(&mut self.boots, ()).1.push(numbered);
            return;
        }
        if self.take_hung(at, message, &numbered) {
            return;
        }
        if let Some(error) = HardwareError::of(message) {
            push(&mut self.hardware, error).1.push(numbered);
            return;
        }
        if let Some(error) = StorageError::of(message) {
            push(&mut self.storage, error).1.push(numbered);
            return;
        }
        let report = self.reports.back().map(|((number, _), _)| *number);
        let headed = self.take_report(at, line, message, &numbered);
        if let Some(failure) = allocation_failure(message) {
            push(&mut self.failures, failure).1.push(numbered);
        } else if headed {
            // No line is both a report's head and its kill.
        } else if let Some(kill) = header(message) {
            let kill = Kill { kill: OomKill { at, ..kill }, report, ..Kill::default() };
            push(&mut self.kills, kill).1.push(numbered);
        } else if let Some((memcg, rest)) = killing(message) {
            self.take_killing(at, memcg, rest, numbered);
        } else if let Some((pid, name)) = reaped(message) {
            self.take_reaped(at, pid, name, numbered);
        } else if let Some((_, group)) = limits_of(message) {
            self.limit = Some((group.to_owned(), numbered));
        } else if let Some(drop) = drop_caches(message) {
            push(&mut self.drops, drop).1.push(numbered);
        }
    }

    /// Whether a report or a trace is open, to which any line may belong.
    fn expects_more(&self) -> bool {
        self.in_trace || !self.reports.is_empty()
    }

    /// Reads a line on a task that stood still, or of its trace; whether it is one.
    fn take_hung(&mut self, at: Option<u64>, message: &str, numbered: &(usize, String)) -> bool {
        if let Some(task) = hung::first_line(at, message) {
            push(&mut self.hung, task).1.push(numbered.clone());
            self.in_trace = true;
            return true;
        }
        let Some((task, lines)) = self.hung.back_mut().filter(|_| self.in_trace) else { return false };
        match task.take(at, message) {
            Some(keeps) => {
                if keeps {
                    lines.push(numbered.clone());
                }
                true
            }
            None => false,
        }
    }

    /// Reads a line that begins or continues a report; whether it is a report's head.
    fn take_report(
        &mut self,
        at: Option<u64>,
        line: &str,
        message: &str,
        numbered: &(usize, String),
    ) -> bool {
        if let Some(report) = report::begins(at, message) {
            self.begin(report::Builder::new(report), numbered);
            return true;
        }
        let again = message.trim_start().to_ascii_lowercase().starts_with("mem-info:");
        if let Some(((_, open), lines)) = self.reports.back_mut()
            && !(again && open.has_memory())
        {
            if open.take(line, message) {
                lines.push(numbered.clone());
            }
            return false;
        }
        // A report without a head: somebody asked for it, or the log begins in its middle.
        let mut headless = report::Builder::new(Report { at, ..Report::default() });
        if headless.take(line, message) && (again || headless.has_substance()) {
            self.begin(headless, numbered);
        }
        false
    }

    fn begin(&mut self, report: report::Builder, numbered: &(usize, String)) {
        self.in_trace = false;
        self.begun += 1;
        if self.reports.len() >= MOST_REPORTS
            && let Some((_, lines)) = self.reports.pop_front()
            && let Some((first, _)) = lines.first()
        {
            // A line that begins a report does not stay without it: what follows would seem to be its own.
            let begins =
                |(_, lines): &(_, Vec<(usize, String)>)| lines.first().is_some_and(|line| line.0 == *first);
            self.failures.retain(|failure| !begins(failure));
        }
        push(&mut self.reports, (self.begun, report)).1.push(numbered.clone());
    }

    /// Reads `Kill process 1 (x) score 2 or sacrifice child` or `Killed process 1 (x) total-vm:…`.
    fn take_killing(&mut self, at: Option<u64>, memcg: bool, text: &str, line: (usize, String)) {
        let Some((killed, pid, name, rest)) = process(text) else { return };
        let near = self.kills.len().saturating_sub(NEAR);
        let same = |kill: &Kill| kill.kill.pid == pid || kill.kill.pid == 0 && kill.kill.name == name;
        let known = self.kills.range_mut(near..).rev().find(|(kill, _)| !kill.killed && same(kill));
        let (kill, lines) = match known {
            Some(known) => known,
            // The chosen process's child was killed instead.
            None => match self.kills.back_mut() {
                Some(last) if killed && last.0.or_child && !last.0.killed => {
                    (last.0.kill.pid, last.0.kill.name) = (pid, name.to_owned());
                    last
                }
                _ => {
                    let kill = OomKill { at, pid, name: name.to_owned(), ..OomKill::default() };
                    let report = self.reports.back().map(|((number, _), _)| *number);
                    push(&mut self.kills, Kill { kill, report, ..Kill::default() })
                }
            },
        };
        lines.push(line);
        if kill.kill.pid == 0 {
            kill.kill.pid = pid;
        }
        kill.kill.at = kill.kill.at.or(at);
        if memcg && kill.kill.constraint.is_empty() {
            kill.kill.constraint = MEMCG.to_owned();
        }
        if killed {
            kill.killed = true;
            kill.kill.anon_rss = kib(rest, "anon-rss:");
            kill.kill.page_tables = kib(rest, "pgtables:");
            kill.kill.oom_score_adj = after(rest, "oom_score_adj:").and_then(|text| {
                let end = text.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(text.len());
                text[..end].parse().ok()
            });
        } else {
            kill.or_child = true;
        }
        if let Some((group, line)) = self.limit.take() {
            // The line with the group stands directly before that of the choice; a later one belongs to
            // another kill.
            if kill.kill.cgroup.is_none() && kill.kill.constraint == MEMCG {
                kill.kill.cgroup = Some(group);
                lines.push(line);
            }
        }
    }

    /// Reads that a killed process's memory was taken back: a kill, where the lines before it are missing.
    fn take_reaped(&mut self, at: Option<u64>, pid: u32, name: &str, line: (usize, String)) {
        // Beside kills that the log tells of it may be one of these, by the name of another thread.
        if self.kills.iter().any(|(kill, _)| !kill.reaped || kill.kill.pid == pid) {
            return;
        }
        let kill = OomKill { at, pid, name: name.to_owned(), ..OomKill::default() };
        push(&mut self.kills, Kill { kill, killed: true, reaped: true, ..Kill::default() }).1.push(line);
    }

    /// The log, and the numbers of its lines.
    fn finish(self) -> (KernelLog, Vec<Owned>) {
        let mut lines = Vec::new();
        let kills: Vec<Kill> = split(self.kills, &mut lines).collect();
        let dropped = self.begun - self.reports.len() as u64;
        let of_reports = self.reports.iter().flat_map(|((number, _), lines)| {
            let place = (number - dropped - 1) as usize;
            lines.iter().map(move |(line, _)| (*line, place))
        });
        let of_reports: BTreeMap<usize, usize> = of_reports.collect();
        let reports = split(self.reports, &mut lines).map(|(number, builder)| {
            let followed =
                kills.iter().filter(|kill| kill.report == Some(number)).map(|kill| kill.kill.clone());
            Report { kills: followed.collect(), ..builder.report }
        });
        let reports = reports.collect();
        let ooms = kills.into_iter().map(|kill| kill.kill).collect();
        let drop_caches = split(self.drops, &mut lines).collect();
        let panics: Vec<bool> = split(self.panics, &mut lines).collect();
        let nothing_killable = panics.iter().filter(|unkillable| **unkillable).count() as u32;
        let oom_panics = panics.len() as u32 - nothing_killable;
        let daemon_kills = split(self.daemons, &mut lines).collect();
        let allocation_failures = split(self.failures, &mut lines).collect();
        let refusals = split(self.refusals, &mut lines).collect();
        let hung = split(self.hung, &mut lines).collect();
        let hardware = split(self.hardware, &mut lines).collect();
        let storage = split(self.storage, &mut lines).collect();
        let from_boot = split(self.boots, &mut lines).count() > 0;
        lines.sort_unstable();
        lines.dedup_by_key(|(number, _)| *number);
        let (numbers, lines): (Vec<usize>, Vec<String>) = lines.into_iter().unzip();
        let owned = numbers.into_iter().map(|number| (number, of_reports.get(&number).copied())).collect();
        (
            KernelLog {
                ooms,
                drop_caches,
                allocation_failures,
                reports,
                oom_panics,
                nothing_killable,
                daemon_kills,
                refusals,
                hung,
                hardware,
                storage,
                from_boot,
                lines,
            },
            owned,
        )
    }
}

/// Adds an event without lines. The oldest event is dropped when there are 256 already.
fn push<T>(kept: &mut Kept<T>, event: T) -> &mut (T, Vec<(usize, String)>) {
    if kept.len() >= MOST_EVENTS {
        kept.pop_front();
    }
    kept.push_back((event, Vec::new()));
    let last = kept.len() - 1;
    &mut kept[last]
}

/// Separates the events from their lines, which are added to `lines`.
fn split<T>(kept: Kept<T>, lines: &mut Vec<(usize, String)>) -> impl Iterator<Item = T> {
    kept.into_iter().map(|(event, of_event)| {
        lines.extend(of_event);
        event
    })
}

/// Whether it is the first message of a kernel.
pub fn booted(message: &str) -> bool {
    message.starts_with(BOOT)
}

/// Splits time and origin off a line; `None` for records that did not come from the kernel.
pub fn split_prefix(line: &str) -> Option<(Option<u64>, &str)> {
    let mut rest = line;
    let mut at = None;
    // `<6>` of dmesg -r, `kern  :warn  :` of dmesg -x.
    if let Some((level, after)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        if level.parse::<u32>().ok()? >= 8 {
            return None;
        }
        rest = after;
    } else if let Some((facility, after)) = rest.get(..15).and_then(|_| rest.split_once(':')) {
        // Facility and level, each padded and followed by a colon.
        let level = after.split_once(": ").map(|(level, _)| level.trim_end());
        let levels = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];
        if let Some(level) = level.filter(|level| levels.contains(level)) {
            if facility.trim_end() != "kern" {
                return None;
            }
            rest = after[level.len()..].trim_start().strip_prefix(": ")?;
        }
    }
    if let Some((us, after)) = record(rest)? {
        return Some((Some(us / 1_000_000), after));
    }
    if rest.starts_with('[') {
        (at, rest) = bracket(rest);
    }
    // `c0 0      ` of some vendors' kernels: the CPU and the task.
    rest = numbered(rest);
    // A host name precedes the message in syslog files and in the output of `journalctl`. Lines of other
    // programs have the program's name in place of `kernel: `.
    let words = rest.get(..rest.floor_char_boundary(160)).unwrap_or(rest);
    if let Some(found) = words.find("kernel: ").filter(|&found| found == 0 || rest[..found].ends_with(' ')) {
        rest = &rest[found + "kernel: ".len()..];
        // Some syslog templates write the colon twice.
        rest = rest.strip_prefix(": ").unwrap_or(rest);
        if rest.starts_with('[') {
            let (inner, after) = bracket(rest);
            (at, rest) = (inner.or(at), after);
        }
    } else if rest.starts_with(|c: char| c.is_ascii_digit()) {
        // dmesg --time-format iso.
        let dated = rest.split_once(' ').filter(|(time, _)| time.contains('T') && time.contains(':'));
        rest = dated.map_or(rest, |(_, after)| after);
    } else {
        rest = undated(rest);
    }
    Some((at, rest))
}

/// The text after `Sep 13 15:31:25 host `: some syslog daemons do not name the kernel.
fn undated(text: &str) -> &str {
    let mut rest = text;
    let mut word = || {
        let (word, after) = rest.trim_start().split_once(' ')?;
        rest = after;
        Some(word)
    };
    let (Some(month), Some(day), Some(time), Some(_)) = (word(), word(), word(), word()) else { return text };
    let number = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let dated = month.len() == 3
        && month.bytes().all(|b| b.is_ascii_alphabetic())
        && number(day, 2)
        && time.split(':').count() == 3
        && time.split(':').all(|part| number(part, 2));
    if dated { rest } else { text }
}

/// The text after `c0 1234 `, which some kernels for phones print before each message.
fn numbered(text: &str) -> &str {
    let after = text.strip_prefix('c').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let task = after
        .and_then(|rest| rest.strip_prefix(' '))
        .filter(|_| text.as_bytes().get(1).is_some_and(u8::is_ascii_digit));
    let message = task.map(str::trim_start).map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    match message {
        Some(message) if message.starts_with("  ") => message.trim_start(),
        _ => text,
    }
}

/// Reads a record of `/dev/kmsg`: `priority,sequence,microseconds,flags[,…];text`. The outer `None` is a
/// record that a program wrote (facility not 0), the inner `None` a line that is not a record.
fn record(line: &str) -> Option<Option<(u64, &str)>> {
    let Some((head, text)) = line.split_once(';') else { return Some(None) };
    let mut fields = head.split(',');
    let mut number = || fields.next().and_then(|field| decimal(field.as_bytes()));
    match (number(), number(), number()) {
        (Some(priority), Some(_), Some(us)) => (priority < 8).then_some(Some((us, text))),
        _ => Some(None),
    }
}

/// Splits off `[12345.678901] ` and a following `[  T123] ` of `CONFIG_PRINTK_CALLER`. A date in the brackets
/// (dmesg -T) is not a time since boot.
fn bracket(line: &str) -> (Option<u64>, &str) {
    let Some((inside, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) else {
        return (None, line);
    };
    let at = cut(inside.trim().as_bytes(), b'.').and_then(|(seconds, _)| decimal(seconds));
    let rest = rest.trim_start();
    let second = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    // A console server puts its own time before the kernel's.
    let seconds =
        |inside: &str| cut(inside.trim().as_bytes(), b'.').and_then(|(seconds, _)| decimal(seconds));
    match second {
        Some((caller, after)) if caller.trim_start().starts_with(['T', 'C']) => (at, after.trim_start()),
        Some((inside, after)) if at.is_none() && seconds(inside).is_some() => {
            (seconds(inside), after.trim_start())
        }
        _ => (at, rest),
    }
}

/// `oom-kill:constraint=…,…,task=x,pid=1,uid=0` (4.19 and later, `mm/oom_kill.c:dump_oom_victim`).
pub fn header(message: &str) -> Option<OomKill> {
    let rest = message.strip_prefix("oom-kill:constraint=")?;
    let (constraint, rest) = rest.split_once(',')?;
    // Names of groups and processes may contain commas, so the fields are searched from the end. Who pasted
    // the line may have left out the last ones.
    let (rest, pid) = match rest.rsplit_once(",uid=") {
        Some((rest, _)) => rest.rsplit_once(",pid=")?,
        // A number at the end of a cut line may be half of one.
        None => (rest.split_once(",pid=").map_or(rest, |(rest, _)| rest).trim_end_matches(','), "0"),
    };
    let (rest, name) = rest.rsplit_once(",task=")?;
    let (rest, task_memcg) = match rest.rsplit_once(",task_memcg=") {
        Some((rest, group)) => (rest, Some(group)),
        None => (rest, None),
    };
    let oom_memcg = rest.split_once(",oom_memcg=").map(|(_, group)| group);
    Some(OomKill {
        constraint: constraint.to_owned(),
        cgroup: oom_memcg.or(task_memcg).map(str::to_owned),
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        ..OomKill::default()
    })
}

/// Whether a memory cgroup was out of memory, and the text from `Kill` or `Killed` on.
pub fn killing(message: &str) -> Option<(bool, &str)> {
    let memcg = message.starts_with("Memory cgroup out of memory");
    // 2.6.11 to 2.6.17 have a capital M.
    if memcg || message.starts_with("Out of memory") || message.starts_with("Out of Memory") {
        // The reason may follow in parentheses, before the colon.
        let (_, rest) = message.split_once(": ")?;
        return Some((memcg, rest));
    }
    message.starts_with("Killed process ").then_some((false, message))
}

/// `oom_reaper: reaped process 123 (java), now anon-rss:0kB, …` (4.6 and later,
/// `mm/oom_kill.c:oom_reap_task_mm`).
pub fn reaped(message: &str) -> Option<(u32, &str)> {
    let (pid, rest) = message.strip_prefix("oom_reaper: reaped process ")?.split_once(" (")?;
    let (name, _) = rest.rsplit_once("), now ").or_else(|| rest.rsplit_once(')'))?;
    Some((pid.parse().ok()?, name))
}

/// Reads `Kill process 1 (x) …`, `Killed process 1 (x) …` or `Killed process 1, UID 0, (x) …` (RHEL 6):
/// whether the process has been killed, its pid, its name and the rest of the line.
pub fn process(text: &str) -> Option<(bool, u32, &str, &str)> {
    let (killed, rest) = match text.strip_prefix("Killed process ") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("Kill process ").or_else(|| text.strip_prefix("kill process "))?),
    };
    let (pid, _) = leading_digits(rest.as_bytes());
    let rest = &rest[pid.len()..];
    let pid = decimal(pid).and_then(|pid| u32::try_from(pid).ok())?;
    let (before, rest) = rest.split_once('(')?;
    if !before.starts_with([' ', ',']) {
        return None;
    }
    // The name itself may contain parentheses.
    let ends = [") total-vm:", ") vsz:", ") score ", ") "];
    let end = ends.iter().find_map(|end| rest.rfind(end)).or_else(|| rest.rfind(')'))?;
    Some((killed, pid, &rest[..end], &rest[end + 1..]))
}

/// `Task in /a/b killed as a result of limit of /a` (before 4.19,
/// `mm/memcontrol.c:mem_cgroup_print_oom_info`).
pub fn limits_of(message: &str) -> Option<(&str, &str)> {
    let (task, group) = message.strip_prefix("Task in ")?.split_once(" killed as a result of limit of ")?;
    Some((task, group.trim()))
}

/// `bash (1234): drop_caches: 3` (`fs/drop_caches.c:drop_caches_sysctl_handler`, 3.15 and later; vendor
/// kernels before that have `bash(1234): dropped kernel caches: 3`).
pub fn drop_caches(message: &str) -> Option<(String, u32, u32)> {
    let (who, value) = (message.rsplit_once("): drop_caches: "))
        .or_else(|| message.rsplit_once("): dropped kernel caches: "))?;
    let (name, pid) = who.rsplit_once('(')?;
    let name = name.strip_suffix(' ').unwrap_or(name);
    Some((name.to_owned(), pid.parse().ok()?, value.trim().parse().ok()?))
}

/// `kswapd0: page allocation failure: order:4, mode:…` (`mm/page_alloc.c:warn_alloc`; a full stop in place of
/// the second colon before 3.1).
pub fn allocation_failure(message: &str) -> Option<(String, u32)> {
    let (name, rest) = message.split_once(": page allocation failure")?;
    let rest = rest.strip_prefix([':', '.'])?.trim_start().strip_prefix("order:")?;
    let (order, _) = leading_digits(rest.as_bytes());
    Some((name.to_owned(), u32::try_from(decimal(order)?).ok()?))
}

/// The text after `key`.
fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_once(key).map(|(_, rest)| rest)
}

/// The number of KiB after `key`.
fn kib(text: &str, key: &str) -> Option<Bytes> {
    decimal(leading_digits(after(text, key)?.as_bytes()).0).map(Bytes::kib)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{corrupted, round_trip};

    fn parse(text: &str) -> KernelLog {
        let mut log = Log::default();
        let parsed = KernelLog::parse(text.as_bytes(), &mut log);
        assert_eq!(log.problems(), []);
        round_trip(&parsed);
        parsed
    }

    /// Parses a log of one kill.
    fn one(text: &str) -> OomKill {
        let parsed = parse(text);
        assert_eq!(parsed.ooms.len(), 1, "{parsed:?}");
        parsed.ooms.into_iter().next().expect("one kill")
    }

    const RECENT: &str = "\
[12345.678899] stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n\
[12345.678901] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/x,task_memcg=/x/y,task=a,b (c),pid=123,uid=0\n\
[12345.678950] Memory cgroup out of memory: Killed process 123 (a,b (c)) total-vm:9000kB, anon-rss:8000kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:52kB oom_score_adj:-17\n\
[12346.000000] oom_reaper: reaped process 123 (a,b (c)), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB\n";

    #[test]
    fn both_lines_of_a_recent_kernel_make_one_kill() {
        assert_eq!(
            one(RECENT),
            OomKill {
                at: Some(12345),
                constraint: "CONSTRAINT_MEMCG".into(),
                cgroup: Some("/x".into()),
                pid: 123,
                name: "a,b (c)".into(),
                anon_rss: Some(Bytes::kib(8000)),
                page_tables: Some(Bytes::kib(52)),
                oom_score_adj: Some(-17),
            }
        );
        assert_eq!(parse(RECENT).lines.len(), 3);
        let global = one(
            "[1.0] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,\
            task_memcg=/system.slice/db.service,task=db,pid=9,uid=5\n\
            [1.1] Out of memory: Killed process 9 (db) total-vm:1kB, anon-rss:2kB, file-rss:3kB, shmem-rss:4kB, UID:5 pgtables:6kB oom_score_adj:0\n",
        );
        assert_eq!(
            (&*global.constraint, global.cgroup.as_deref()),
            ("CONSTRAINT_NONE", Some("/system.slice/db.service"))
        );
        assert_eq!(global.anon_rss, Some(Bytes::kib(2)));
    }

    #[test]
    fn phones_print_the_cpu_and_the_task_first() {
        for (line, message) in [
            ("[   17.072747] c0 0      Mem-Info:", "Mem-Info:"),
            ("[   17.072747] c12 1234   java: page allocation failure", "java: page allocation failure"),
            ("[   17.072747] c0 is a name", "c0 is a name"),
            ("[   17.072747] cat: page allocation failure", "cat: page allocation failure"),
        ] {
            assert_eq!(split_prefix(line), Some((Some(17), message)), "{line}");
        }
    }

    #[test]
    fn a_log_says_whether_it_is_whole() {
        let whole =
            "[    0.000000] Linux version 6.12.0 (builder@example) #1 SMP\n[    9.0] usb 1-1: new device\n";
        let log = KernelLog::parse(whole.as_bytes(), &mut Log::default());
        assert!(log.from_boot);
        assert!(KernelLog::parse(log.lines.join("\n").as_bytes(), &mut Log::default()).from_boot);
        assert!(!KernelLog::parse(b"[    9.0] usb 1-1: new device\n", &mut Log::default()).from_boot);
    }

    #[test]
    fn a_shortened_reason_belongs_to_the_kill_after_it() {
        let kill = one(
            "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=vm,mems_allowed=0,global_oom,task=qemu\n\
            Out of memory: Killed process 886679 (qemu) total-vm:19254864kB, anon-rss:16477484kB\n",
        );
        assert_eq!((kill.pid, &*kill.name, &*kill.constraint), (886_679, "qemu", "CONSTRAINT_CPUSET"));
    }

    #[test]
    fn old_kernels() {
        // 2.6.32 of RHEL 6.
        let kill = one("Out of memory: Kill process 1234 (ora (x)) score 900 or sacrifice child\n\
            Killed process 1234, UID 500, (ora (x)) total-vm:1712212kB, anon-rss:24572kB, file-rss:3kB\n");
        assert_eq!((kill.pid, &*kill.name, kill.anon_rss), (1234, "ora (x)", Some(Bytes::kib(24_572))));
        assert_eq!(
            (kill.at, &*kill.constraint, kill.page_tables, kill.oom_score_adj),
            (None, "", None, None)
        );
        // 3.10: the child is killed.
        let kill = one("[99.5] Out of memory: Kill process 7 (sh) score 12 or sacrifice child\n\
            [99.6] Killed process 8 (child) total-vm:5kB, anon-rss:6kB, file-rss:0kB\n");
        assert_eq!(
            (kill.at, kill.pid, &*kill.name, kill.anon_rss),
            (Some(99), 8, "child", Some(Bytes::kib(6)))
        );
        // 2.6.32, mainline.
        let kill = one(
            "Out of memory: kill process 7 (sh) score 12 or a child\nKilled process 7 (sh) vsz:5kB, anon-rss:6kB, file-rss:0kB\n",
        );
        assert_eq!((kill.pid, kill.anon_rss), (7, Some(Bytes::kib(6))));
        // 4.4, in a group.
        let parsed = parse(
            "[5.0] Task in /docker/ab killed as a result of limit of /docker\n\
            [5.1] Memory cgroup out of memory: Kill process 7 (java) score 1000 or sacrifice child\n\
            [5.2] Killed process 7 (java) total-vm:5kB, anon-rss:6kB, file-rss:0kB\n",
        );
        let kill = &parsed.ooms[0];
        assert_eq!((&*kill.constraint, kill.cgroup.as_deref()), (MEMCG, Some("/docker")));
        assert_eq!((parsed.ooms.len(), parsed.lines.len()), (1, 3));
    }

    /// What a log keeps reads back as the same log.
    #[track_caller]
    fn reads_back(text: &str) {
        let log = parse(text);
        let mut kept = String::new();
        log.print(&mut kept);
        assert_eq!(parse(&kept), log, "{kept}");
    }

    #[test]
    fn kept_lines_read_back() {
        let failure = "[1.0] a: page allocation failure: order:0, mode:0x820(GFP_ATOMIC)\n";
        let shown = "[1.1] Mem-Info:\n[1.2] active_anon:1 free:2 mapped:3\n[1.3] Mem-Info:\n[1.4] active_anon:1 free:5 mapped:3\n";
        // More reports than are kept: the heads of those that go, go too.
        reads_back(&format!("{failure}{shown}").repeat(40));
        // A line that is a kill and a report's head.
        let both = "[2.0] Out of memory: Killed process 7 (x) total-vm:1kB, anon-rss:2kB a invoked oom-killer: order=0\n";
        reads_back(&format!("{both}{shown}").repeat(40));
        // Parts of wrapped lines, and lines between them.
        for rest in [
            "mode:0xcc1(GFP_DMA)\n",
            "mode:0x1 CPU: 0 PID: 3 Comm: x Not tainted 5.7.0 #1\n",
            "mode:0x1 b: page allocation failure: order:1\n",
        ] {
            reads_back(&format!("[3.0] a: page allocation failure: order:0,\nnothing\n{rest}"));
            reads_back(&format!("[3.0] a: page allocation failure: order:0,\n{rest}{rest}"));
        }
        // A line whose leading blank is not kept.
        reads_back(" free:35300 free_pcp:0 free_cma:0\nFree swap  = 8191868kB\n");
        reads_back("[4.0] a invoked\nnothing\noom-killer: gfp_mask=0xd0, order=0\n");
    }

    #[test]
    fn a_group_kill_counts_every_process() {
        let parsed = parse(
            "[1.0] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/g,task_memcg=/g,task=a,pid=1,uid=0\n\
            [1.1] Memory cgroup out of memory: Killed process 1 (a) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n\
            [1.2] Tasks in /g are going to be killed due to memory.oom.group set\n\
            [1.3] Memory cgroup out of memory: Killed process 1 (a) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n\
            [1.4] Memory cgroup out of memory: Killed process 2 (b) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n",
        );
        let kills: Vec<_> = parsed.ooms.iter().map(|kill| (kill.pid, &*kill.constraint)).collect();
        assert_eq!(kills, [(1, MEMCG), (1, MEMCG), (2, MEMCG)]);
    }

    #[test]
    fn every_prefix() {
        let message = "bash (1234): drop_caches: 3";
        let expected = [("bash".to_owned(), 1234, 3)];
        for prefix in [
            "",
            "[   12.345678] ",
            "[12345.678901][  T123] ",
            "[    1.2] [ C0] ",
            "<6>[   12.345678] ",
            "<6>",
            "6,1234,5678901,-;",
            "4,1,2,-,caller=T12;",
            "[2023-06-22 21:55:31.352444][12345.678901] ",
            "Nov 20 01:46:00 host ",
            "Nov 20 01:46:00 host kernel: [12345.678901] ",
            "Nov 20 01:46:00 host kernel: ",
            "2026-11-20T01:46:00.123456+00:00 host kernel: [    1.5] ",
            "2026-11-20T01:46:00,123456+00:00 ",
            "[Fri Nov 20 01:46:00 2026] ",
            "[ 1234.567890] host kernel: ",
            "kern  :info  : [   12.345678] ",
            "kernel: ",
        ] {
            assert_eq!(parse(&format!("{prefix}{message}\n")).drop_caches, expected, "{prefix}");
        }
        let at = |prefix: &str| one(&format!("{prefix}Out of memory: Killed process 1 (x) total-vm:1kB")).at;
        assert_eq!(at("[12345.678901] "), Some(12345));
        assert_eq!(at("6,1234,5678901,-;"), Some(5));
        assert_eq!(at("Nov 20 01:46:00 host kernel: [77.678901] "), Some(77));
        assert_eq!(at("[Fri Nov 20 01:46:00 2026] "), None);
        for prefix in [
            "30,1234,5678901,-;",
            "<30>",
            "user  :info  : [   12.345678] ",
            "Nov 20 01:46:00 host app[12]: ",
            "x: ",
        ] {
            let text = format!("{prefix}Out of memory: Killed process 1 (x) total-vm:1kB\n");
            assert_eq!(parse(&text), KernelLog::default(), "{prefix}");
        }
    }

    #[test]
    fn a_journals_export_has_its_time_on_another_line() {
        let text = "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1700000000000000\n__MONOTONIC_TIMESTAMP=77123456\n_TRANSPORT=kernel\n\
            MESSAGE=Out of memory: Killed process 1 (x) total-vm:1kB, anon-rss:5kB\n\n\
            MESSAGE=Out of memory: Killed process 2 (y) total-vm:1kB, anon-rss:6kB\n";
        let parsed = parse(text);
        let kills: Vec<_> = parsed.ooms.iter().map(|kill| (kill.at, kill.pid)).collect();
        assert_eq!(kills, [(Some(77), 1), (None, 2)]);
        assert_eq!(
            parsed.lines[0],
            "[   77.123456] Out of memory: Killed process 1 (x) total-vm:1kB, anon-rss:5kB"
        );
    }

    #[test]
    fn other_events() {
        let parsed = parse(
            "[1.280945] tokio-rt-worker (68): drop_caches: 3\n\
            [1.3] a: b (c) (69): drop_caches: 1\n\
            cron(70): dropped kernel caches: 2\n\
            [2.0] kswapd0: page allocation failure: order:4, mode:0x40820(GFP_ATOMIC|__GFP_COMP), nodemask=(null)\n\
            [3.0] swapper/3: page allocation failure. order:1, mode:0x20\n\
            [4.0] EXT4-fs (vda): mounted, drop nothing\n",
        );
        let drops: Vec<_> =
            parsed.drop_caches.iter().map(|(name, pid, value)| (&**name, *pid, *value)).collect();
        assert_eq!(drops, [("tokio-rt-worker", 68, 3), ("a: b (c)", 69, 1), ("cron", 70, 2)]);
        assert_eq!(parsed.allocation_failures, [("kswapd0".to_owned(), 4), ("swapper/3".to_owned(), 1)]);
        assert_eq!(parsed.lines.len(), 5);
    }

    #[test]
    fn the_latest_are_kept() {
        let text: String = (0..1000)
            .map(|i| format!("[{i}.0] Out of memory: Killed process {i} (x) total-vm:1kB\n[{i}.1] sh ({i}): drop_caches: 1\n"))
            .collect();
        let parsed = parse(&text);
        assert_eq!((parsed.ooms.len(), parsed.drop_caches.len(), parsed.lines.len()), (256, 256, 512));
        assert_eq!((parsed.ooms[0].pid, parsed.ooms[255].pid), (744, 999));
    }

    #[test]
    fn truncated_at_every_byte() {
        for end in 0..=RECENT.len() {
            parse(&RECENT[..end]);
        }
    }

    /// Pieces of lines, so that random logs contain the parts of an event in every order.
    fn line() -> impl Strategy<Value = String> {
        let prefix = prop::sample::select(vec![
            "",
            "[1.5] ",
            "<6>",
            "6,1,2000000,-;",
            "[ ",
            "host kernel: ",
            "MESSAGE=",
        ]);
        let body = prop::sample::select(vec![
            "oom-kill:constraint=CONSTRAINT_NONE,x,task=a,pid=1,uid=0",
            "oom-kill:constraint=CONSTRAINT_MEMCG,x,oom_memcg=/x,task_memcg=/y,task=a,pid=2,uid=0",
            "Out of memory: Killed process 1 (a) total-vm:1kB, anon-rss:2kB",
            "Memory cgroup out of memory: Killed process 2 (a) total-vm:1kB, anon-rss:2kB",
            "Memory cgroup out of memory: Kill process 3 (b) score 1 or sacrifice child",
            "Out of memory: Kill process 1 (a) score 1 or sacrifice child",
            "Killed process 3 (b) total-vm:1kB, anon-rss:2kB",
            "Killed process 4 (c) total-vm:1kB, anon-rss:2kB",
            "Task in /x killed as a result of limit of /y",
            "sh (1): drop_caches: 1",
            "",
            "x",
            "kswapd0: page allocation failure: order:4, mode:0x1",
            "__MONOTONIC_TIMESTAMP=5000000",
            "Killed process ",
        ]);
        (prefix, body).prop_map(|(prefix, body)| format!("{prefix}{body}"))
    }

    proptest! {
        #[test]
        fn any_order_of_lines_reads_back(lines in prop::collection::vec(line(), 0..24)) {
            parse(&lines.join("\n"));
        }

        #[test]
        fn survives_hostile_input(text in corrupted(RECENT.as_bytes())) {
            round_trip(&KernelLog::parse(&text, &mut Log::default()));
        }
    }
}
