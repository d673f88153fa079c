//! [`Verdict`]: the answer to "is it memory?".

use lotsfree_kernel_files::counters::{
    Counter, MemoryStat, meminfo as m, memory_events as e, memory_stat as s, smaps_rollup as r, status as p,
    vmstat as v,
};
use lotsfree_kernel_files::file::cgroup::{CgroupVersion, Limit};
use lotsfree_kernel_files::file::kernel_log::report::{Report, Trigger};
use lotsfree_kernel_files::file::kernel_log::storage::StorageError;
use lotsfree_kernel_files::file::pressure::Psi;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_kernel_files::file::slabinfo::SlabCache;
use lotsfree_units::{Bytes, Grouped, Percent};
use schemars::JsonSchema;
use serde::Serialize;

use crate::control_groups::directory;
use crate::latency::TICKS_PER_SECOND;
use crate::remedy::word;
use crate::{ALLOCSTALL, Confidence, Context, DIRECT_SCAN, Finding, Severity, Workload, hung, levels};

/// What is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Memory is what is short, or what time is lost to.
    Memory,
    /// CPU time is short, memory is not.
    Cpu,
    /// A disk is slow, memory is not short.
    Disk,
    /// Nothing is lost to memory now, but something will be, or may be.
    NotNow,
    /// Memory is fine.
    Fine,
    /// These data do not tell.
    Unknown,
}

/// The answer to "is it memory?".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Verdict {
    /// In a word.
    pub answer: Answer,
    /// In a sentence, with its figures.
    pub text: String,
    /// The one command whose output would tell what is still open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collect: Option<String>,
}

/// What the verdict begins with where it has no answer; all of it where nothing else can be told.
pub const UNTOLD: &str = "These data do not tell whether memory is short.";

/// Rules that report what the kernel, a daemon or a program recorded of a shortage, and the severity from
/// which on a finding of theirs is one.
const RECORDED: [(&str, Severity); 5] = [
    ("oom-happened", Severity::Warning),
    ("constraint-oom", Severity::Warning),
    ("allocation-failure", Severity::Warning),
    ("killed-by-daemon", Severity::Warning),
    ("request-refused", Severity::High),
];
/// Rules that report a shortage to which a process may have led that holds much of memory.
const HELD: [&str; 3] = ["swap-thrash", "memory-exhaustion", "file-thrash"];
/// Stalls for memory from which on it is memory: nohang's warning.
const MEMORY: f64 = 0.10;
/// Waits for a CPU, and for a disk, from which on these are short.
const CPU: f64 = 0.40;
const DISK: f64 = 0.20;
/// Stalls for memory below which nobody loses time to it.
const NONE: f64 = 0.02;
/// Idle time below which the CPUs are busy.
const BUSY_IDLE: f64 = 0.08;
/// The same in the worst third of the time.
const WAITING_MUCH: f64 = 0.50;
/// A disk that has requests in flight this share of the time is worth a word.
const BUSY_DISK: f64 = 0.90;
/// So many processes in uninterruptible sleep are no chance.
const BLOCKED: usize = 3;
/// Available memory that is some on any host whose size is not known.
const SOME: Bytes = Bytes::gib(4);
/// Share of memory that is available from which on pages in swap are taken for old ones.
const MUCH: f64 = 0.20;
/// A process with this share of memory is worth a word.
const HOLDS: f64 = 0.35;
/// Free memory and cache together that no working host is left with, and reads in KiB a second beside it.
const TINY: Bytes = Bytes::mib(32);
const READ_KIB: f64 = 4096.0;
/// The same for hosts that leave a little more, whose cache is read over this often.
const SMALL: Bytes = Bytes::mib(256);
const SMALL_CACHE: Bytes = Bytes::mib(64);
const OFTEN: f64 = 0.5;
/// Idle time below which CPUs are nearly busy, if a process takes this share of one.
const LITTLE_IDLE: f64 = 0.20;
/// A process with this share of a CPU is worth a word where the CPUs are busy.
const MUCH_OF_CPU: f64 = 0.3;
const HALF: f64 = 0.5;
/// Dirty pages from this share of available memory on have the kernel write all the time: its default for
/// vm.dirty_background_ratio. Less than this much is written in seconds.
const DIRTY: f64 = 0.10;
const MUCH_DIRTY: Bytes = Bytes::mib(512);
/// A group is full from this share of its limit on; its page cache is most of it from this share on.
const FULL: f64 = 0.95;
/// A group that is so near its limit may meet it, if it is not page cache that it holds.
const MUCH_OF_LIMIT: f64 = 0.9;
/// Below this share of its limit it has room.
const ROOMY: f64 = 0.8;
const MOSTLY: f64 = 0.5;
/// Seconds after which a kill is over.
const OVER_SECONDS: f64 = 60.0;
/// `MemTotal` of a 32-bit kernel that ends at 896 MiB.
const LOWMEM: std::ops::RangeInclusive<Bytes> = Bytes::mib(860)..=Bytes::mib(896);
/// `MemTotal` of boards with 4 GiB whose firmware does not move what lies behind the hole for devices.
const BELOW_HOLE: std::ops::RangeInclusive<Bytes> = Bytes::mib(3100)..=Bytes::mib(3500);
/// What grows over fewer seconds than this may be at work.
const LONG: f64 = 600.0;
/// A process that grew by this share of what it had.
const GROWN: f64 = 0.3;
/// A process of this size is worth a word.
const LARGE: Bytes = Bytes::mib(64);
/// What tells whether programs wait for memory.
const SAMPLES: &str = "lotsfree doctor --interval 10";

/// Stalls as shares of time: over the period where it is known, else of the last minute.
struct Stalls {
    memory: Option<f64>,
    cpu: Option<f64>,
    io: Option<f64>,
}

/// Judges from stalls, levels and findings, which are ranked.
pub(crate) fn judge(cx: &Context<'_>, findings: &[Finding]) -> Verdict {
    let stalls = Stalls::of(cx);
    // A kill that is over says less of now than what goes on beside it.
    let past = findings.first().filter(|finding| finding.rule == "oom-happened" && kills_are_over(cx));
    let live = past.and_then(|past| {
        findings.iter().find(|finding| finding.rule != past.rule && finding.severity == past.severity)
    });
    let worst = live.or(findings.first());
    let harmful = worst.filter(|finding| {
        finding.severity >= Severity::High && finding.confidence >= Confidence::Likely
            || finding.severity == Severity::Critical
    });
    // What the kernel recorded is harm done, however it is ranked.
    let recorded = findings.iter().find(|finding| {
        RECORDED.iter().any(|(rule, least)| finding.rule == *rule && finding.severity >= *least)
            && (cx.now().meminfo.is_none() || pasted_log(cx) || finding.rule == "request-refused")
            && !all_asked(cx)
    });
    let harmful = harmful.or(recorded);
    let stalled = stalls.memory.is_some_and(|memory| memory >= MEMORY);
    if let Some(finding) = harmful {
        let named = |text: &String| {
            let name = text.trim_start().split(" alone ").next().unwrap_or_default();
            !finding.title.contains(name)
        };
        let holder = holder(cx).filter(|_| HELD.contains(&finding.rule)).filter(named).unwrap_or_default();
        return Verdict::new(Answer::Memory, format!("Memory: {}.{holder}", sentence(finding)));
    }
    if stalled {
        let share = Percent(stalls.memory.unwrap_or_default());
        let why = worst.map_or_else(String::new, |finding| format!(": {}", sentence(finding)));
        return Verdict::new(Answer::Memory, format!("Memory: tasks wait for it {share} of the time{why}."));
    }
    let top = hog(cx);
    // Half of a CPU is much for a thread that sleeps while memory is free.
    if let Some((name, share)) = top.as_ref().filter(|(name, share)| reclaims(name) && *share >= HALF) {
        let text = format!(
            "Memory: {name} takes {} of a CPU, so the kernel reclaims or compacts all the time{}.",
            Percent(*share),
            if cx.swap_is_full() { ", and swap is full" } else { "" }
        );
        return Verdict::new(Answer::Memory, text).collect(SAMPLES);
    }
    if let Some(other) = elsewhere(cx, &stalls) {
        let mut other = other.unless(starved(cx, findings));
        if let Some((name, share)) = top.filter(|_| other.answer == Answer::Cpu) {
            other.text.push_str(&format!(" {name} takes {} of one.", Percent(share)));
        }
        if let Some(dirty) = dirty(cx).filter(|_| other.answer == Answer::Disk) {
            other.text.push_str(&format!(" {dirty} of page cache waits to be written there."));
        }
        return other;
    }
    if let Some(other) = crowded(cx, top.as_ref()) {
        return other;
    }
    if let Some(finding) = worst.filter(|finding| finding.severity >= Severity::Warning) {
        let text = format!("Nothing is known to be lost to memory now, but {}.", sentence(finding));
        let verdict = Verdict::new(Answer::NotNow, text);
        let open = stalls.memory.is_none() && cx.seconds().is_err();
        return if open { verdict.collect(SAMPLES) } else { verdict };
    }
    let mut verdict = calm(cx, &stalls);
    if matches!(verdict.answer, Answer::Fine | Answer::Unknown)
        && let Some(other) = blocked(cx)
    {
        return other;
    }
    let idle =
        cx.cpu_shares().filter(|times| times.idle + times.iowait <= HALF && times.iowait < levels::WAITING);
    if let (None, Some(times)) = (&top, idle) {
        verdict.text.push_str(&format!(
            " The CPUs are idle only {} of the time: if something is slow, look at what takes them.",
            Percent(times.idle)
        ));
    }
    if let Some((name, share)) =
        top.filter(|(_, share)| *share >= HALF || idle.is_some() || cx.cpu_shares().is_none())
    {
        let idle = idle.map_or_else(String::new, |times| {
            format!(", and the CPUs are idle {} of the time", Percent(times.idle))
        });
        verdict.text.push_str(&format!(
            " {name} takes {} of a CPU{idle}: if something is slow, look there.",
            Percent(share)
        ));
    }
    if let Some((name, share)) = cx.busiest_disk().filter(|(_, share)| *share >= BUSY_DISK) {
        verdict.text.push_str(&format!(
            " {name} is busy {} of the time: if something is slow, look at that disk.",
            Percent(share.min(1.0))
        ));
    }
    if let Some(text) = grown(cx) {
        verdict.text.push_str(&text);
    } else if let Some(text) = holder(cx).filter(|_| verdict.answer == Answer::Fine) {
        verdict.text.push_str(&text);
    }
    if let Some(hidden) = hidden(cx).filter(|_| verdict.answer == Answer::Fine) {
        verdict.text.push_str(hidden);
    }
    if let Some(swapped) = in_swap(cx).filter(|_| verdict.answer == Answer::Fine) {
        verdict.text.push_str(&swapped);
    }
    if let Some(dirty) = dirty(cx) {
        verdict.text.push_str(&format!(
            " {dirty} of page cache waits to be written: if writers are slow, the disk behind it is what they wait for."
        ));
    }
    // Below a warning, and yet what the log was brought for.
    let module = findings.iter().find(|finding| finding.rule == "hardware-errors");
    if let Some(finding) = module.filter(|_| cx.now().meminfo.is_none()) {
        verdict.text = format!("{}.", capitalised(sentence(finding)));
    }
    if let Some(asked) = asked(cx) {
        verdict.text = format!("{asked} {}", verdict.text);
    }
    verdict
}

impl Verdict {
    fn new(answer: Answer, text: String) -> Verdict {
        Verdict { answer, text, collect: None }
    }

    /// A disk that is read because memory is short is memory's matter.
    fn unless(self, starved: Option<String>) -> Verdict {
        match starved.filter(|_| self.answer == Answer::Disk) {
            Some(why) => Verdict::new(Answer::Memory, format!("Memory: {why}, and tasks wait for the disk.")),
            None => self,
        }
    }

    fn collect(self, command: &str) -> Verdict {
        Verdict { collect: Some(command.to_owned()), ..self }
    }
}

/// Whether all kills of the log lie more than a minute back.
fn kills_are_over(cx: &Context<'_>) -> bool {
    let ooms = cx.now().kernel_log.as_ref().map(|log| log.ooms.as_slice()).unwrap_or_default();
    let over = |at: Option<u64>| {
        at.zip(cx.now().uptime).is_some_and(|(at, uptime)| uptime - at as f64 > OVER_SECONDS)
    };
    !ooms.is_empty() && ooms.iter().all(|kill| over(kill.at))
}

/// Whether a kernel's report stands beside figures of a time that nobody knows: it is what they were brought
/// for.
fn pasted_log(cx: &Context<'_>) -> bool {
    let reported =
        cx.now().kernel_log.as_ref().is_some_and(|log| !(log.reports.is_empty() && log.ooms.is_empty()));
    reported && cx.now().uptime.is_none()
}

/// The text with a capital letter at its beginning.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A finding's title inside a sentence.
fn sentence(finding: &Finding) -> &str {
    finding.title.trim_end_matches('.')
}

impl Stalls {
    fn of(cx: &Context<'_>) -> Stalls {
        let pressure = &cx.now().pressure;
        let last = |psi: &Option<Psi>| {
            psi.as_ref().and_then(|psi| Some(psi.some?.avg60.max(psi.some?.avg10) / 100.0))
        };
        let memory = cx.stalled(false).ok().or_else(|| last(&pressure.memory));
        Stalls { memory, cpu: last(&pressure.cpu), io: last(&pressure.io) }
    }
}

/// Why next to nothing is left, if it is so: a finding says it, or free memory and cache together are tiny
/// while disks are read.
fn starved(cx: &Context<'_>, findings: &[Finding]) -> Option<String> {
    let exhausted = findings
        .iter()
        .find(|finding| finding.rule == "memory-exhaustion" && finding.severity >= Severity::Warning);
    if let Some(finding) = exhausted {
        return Some(sentence(finding).to_owned());
    }
    let cache = cx.mem(m::Buffers).ok()? + cx.mem(m::Cached).ok()?;
    let left = cx.mem(m::MemFree).ok()? + cache;
    let read = cx.rate(&[v::pgpgin]).ok().filter(|rate| rate.per_second >= READ_KIB)?;
    // What is read does not stay: the cache is small, and read over several times without growing.
    let over = Bytes::kib(read.total) >= cache.scale(OFTEN);
    if cx.total().is_err() && left >= TINY && left < SMALL && cache < SMALL_CACHE && over {
        let rate = Bytes::kib(read.per_second as u64);
        return Some(format!(
            "{rate}/s are read, and page cache stays at {cache:#}: programs' own code comes back from the disk"
        ));
    }
    (cx.total().is_err() && left < TINY).then(|| {
        let read = Bytes::kib(read.per_second as u64);
        format!("only {left:#} are free or cache, and {read}/s are read: programs' own code comes back from the disk")
    })
}

/// CPU or disk, where memory is not what time is lost to.
fn elsewhere(cx: &Context<'_>, stalls: &Stalls) -> Option<Verdict> {
    if stalls.memory.is_some_and(|memory| memory >= NONE.max(MEMORY / 2.0)) {
        return None;
    }
    // On a host that runs such lines may be weeks old.
    let pasted = cx.now().uptime.is_none();
    if let Some(text) = failing(cx).filter(|_| pasted).or_else(|| hung::elsewhere(cx)) {
        return Some(Verdict::new(Answer::Disk, text));
    }
    if let Some(text) = hung::stuck(cx).filter(|_| pasted) {
        return Some(Verdict::new(Answer::Cpu, text));
    }
    let times = cx.cpu_shares();
    let swapping = cx.rate(&[v::pswpin]).is_ok_and(|rate| rate.per_second > 10.0);
    if swapping {
        return None;
    }
    let beside = stalls.memory.map_or_else(String::new, |memory| format!(", for memory {}", Percent(memory)));
    if let Some(cpu) = stalls.cpu.filter(|cpu| *cpu >= CPU && stalls.io.is_none_or(|io| io <= *cpu)) {
        let text = format!("Not memory but CPU: tasks wait for one {} of the time{beside}.", Percent(cpu));
        return Some(Verdict::new(Answer::Cpu, text));
    }
    if let Some(io) = stalls.io.filter(|io| *io >= DISK) {
        let text = format!("Not memory but a disk: tasks wait for it {} of the time{beside}.", Percent(io));
        return Some(Verdict::new(Answer::Disk, text));
    }
    let times = times?;
    if times.iowait >= levels::WAITING {
        let text = format!(
            "Not memory but a disk: CPUs idle {} of the time while tasks wait for it.",
            Percent(times.iowait)
        );
        return Some(Verdict::new(Answer::Disk, text));
    }
    if times.idle + times.iowait <= BUSY_IDLE {
        let steal = match times.steal {
            steal if steal >= 0.05 => format!(" (the hypervisor took {})", Percent(steal)),
            _ => String::new(),
        };
        let text =
            format!("Not memory but CPU: the CPUs are idle {} of the time{steal}.", Percent(times.idle));
        return Some(Verdict::new(Answer::Cpu, text));
    }
    let (busy, waiting) = cx.worst_cpu_shares()?;
    if waiting.iowait >= WAITING_MUCH {
        let text = format!(
            "Not memory but a disk: for a third of the time CPUs idle {} while tasks wait for it.",
            Percent(waiting.iowait)
        );
        return Some(Verdict::new(Answer::Disk, text));
    }
    if busy.idle + busy.iowait <= BUSY_IDLE {
        let text =
            format!("Not memory but CPU: for a third of the time the CPUs are idle {}.", Percent(busy.idle));
        return Some(Verdict::new(Answer::Cpu, text));
    }
    None
}

/// Disks that fail and servers that do not answer, as the kernel's log has them.
fn failing(cx: &Context<'_>) -> Option<String> {
    let errors = &cx.now().kernel_log.as_ref()?.storage;
    let last = errors.last()?;
    Some(match last {
        StorageError::Device(name) => {
            let lines = errors.iter().filter(|error| *error == last).count();
            format!("Not memory but a disk: the kernel reports errors of {name} ({}).", Grouped(lines as u64))
        }
        StorageError::Server(name) => format!("Not memory but an NFS server: {name} does not answer."),
    })
}

/// Processes that wait in uninterruptible sleep, where several do, nothing says that memory is short, and the
/// kernel does not tell how long tasks wait for disks.
fn blocked(cx: &Context<'_>) -> Option<Verdict> {
    if cx.now().pressure.io.is_some() {
        return None;
    }
    let processes = cx.processes().ok()?;
    let blocked: Vec<&str> = (processes.iter().filter(|process| process.stat.state == 'D'))
        .map(|process| &*process.stat.name)
        .filter(|name| !reclaims(name))
        .collect();
    let (first, more) = blocked.split_first().filter(|_| blocked.len() >= BLOCKED)?;
    let text = format!(
        "Not memory but a disk, most likely: {first} and {} more of the processes listed are in uninterruptible sleep.",
        more.len()
    );
    Some(Verdict::new(Answer::Disk, text).collect("iostat -x 1 10"))
}

/// Whether the counters since boot rule out a shortage.
fn never_short(cx: &Context<'_>) -> bool {
    let none = |sum: Result<u64, _>| sum.is_ok_and(|sum: u64| sum == 0);
    let reclaimed: Result<u64, crate::Skip> = cx.vm_sum(ALLOCSTALL).or_else(|_| cx.vm_sum(DIRECT_SCAN));
    none(cx.vm_sum(&[v::pswpout])) && none(reclaimed)
}

/// CPUs that are nearly busy with a process that takes much of one.
fn crowded(cx: &Context<'_>, top: Option<&(String, f64)>) -> Option<Verdict> {
    let (name, share) = top.filter(|(_, share)| *share >= HALF)?;
    let times = cx.cpu_shares().filter(|times| times.idle + times.iowait <= LITTLE_IDLE)?;
    let text = format!(
        "Not memory but CPU: the CPUs are idle {} of the time, and {name} takes {} of one.",
        Percent(times.idle),
        Percent(*share)
    );
    Some(Verdict::new(Answer::Cpu, text))
}

/// The process that takes most of a CPU, and its share of one.
fn hog(cx: &Context<'_>) -> Option<(String, f64)> {
    let seconds = cx.seconds().ok()?;
    let ticks = |process: &Process| process.stat.user_ticks.saturating_add(process.stat.system_ticks);
    let share = |(before, now): (&Process, &Process)| {
        let used = ticks(now).saturating_sub(ticks(before)) as f64 / TICKS_PER_SECOND / seconds;
        (used >= MUCH_OF_CPU).then(|| (now.stat.name.to_string(), used))
    };
    let pairs = cx.process_pairs().ok()?;
    pairs
        .into_iter()
        .filter_map(share)
        .max_by(|a, b| reclaims(&a.0).cmp(&reclaims(&b.0)).then(a.1.total_cmp(&b.1)))
}

/// Whether it is a thread of the kernel's that reclaims or compacts memory.
fn reclaims(name: &str) -> bool {
    name.starts_with("kswapd") || name.starts_with("kcompactd")
}

/// Who asked for the kernel's report, where nothing but SysRq did.
fn asked(cx: &Context<'_>) -> Option<&'static str> {
    let shown = cx.now().kernel_log.as_ref()?.reports.iter().all(|report| report.kills.is_empty());
    (all_asked(cx) && shown)
        .then_some("Somebody asked for the kernel's report (SysRq m); nothing had failed.")
}

/// Whether somebody asked for all reports of the log, by SysRq m or f (order -1).
fn all_asked(cx: &Context<'_>) -> bool {
    let asked = |report: &Report| {
        report.trigger == Trigger::Asked || report.request.as_ref().is_some_and(|request| request.order < 0)
    };
    let reports = cx.now().kernel_log.as_ref().map(|log| log.reports.as_slice()).unwrap_or_default();
    !reports.is_empty() && reports.iter().all(asked)
}

/// The largest process of those that are listed, and what it holds.
fn largest<'a>(cx: &Context<'a>) -> Option<(&'a Process, Bytes)> {
    let rss = |process: &Process| process.memory_or_zero(p::VmRSS);
    let largest = cx.processes().ok()?.iter().max_by_key(|process| rss(process))?;
    Some((largest, rss(largest)))
}

/// A process that grew much between two readings, of which the first is not that of a moment ago.
fn grown(cx: &Context<'_>) -> Option<String> {
    if cx.now().uptime.is_some() && cx.seconds().ok()? < LONG {
        return None;
    }
    let rss = |process: &Process| process.memory_or_zero(p::VmRSS);
    let pairs = cx.process_pairs().ok()?;
    let growth = pairs.into_iter().filter(|(before, _)| rss(before) > Bytes::ZERO);
    let (before, now) = growth.max_by_key(|(before, now)| rss(now) - rss(before))?;
    let (before, after) = (rss(before), rss(now));
    (after - before >= LARGE && (after - before).share_of(before) >= GROWN).then(|| {
        format!(
            " {} grew from {before} to {after} between two readings: it leaks, or has more to do.",
            now.stat.name
        )
    })
}

/// A process that holds much of memory by itself.
fn holder(cx: &Context<'_>) -> Option<String> {
    let (process, bytes) = largest(cx)?;
    let share = bytes.share_of(cx.total().ok()?);
    (share >= HOLDS).then(|| {
        format!(" {} alone holds {bytes} ({}){}.", process.stat.name, Percent(share), doubt(process))
    })
}

/// Memory that may be fitted and that the kernel does not see: a 32-bit kernel without high memory ends at
/// 896 MiB (`arch/x86/mm/init_32.c:lowmem_pfn_init`), and below 4 GiB there is a hole for devices.
fn hidden(cx: &Context<'_>) -> Option<&'static str> {
    let total = cx.total().ok()?;
    let no_high =
        || cx.mem(m::HighTotal).ok() == Some(Bytes::ZERO) && cx.mem(m::LowTotal).ok() == Some(total);
    if LOWMEM.contains(&total) && no_high() {
        return Some(
            " This kernel sees no more than 896 MiB: if more is fitted, it takes one with high memory (or of 64 bits) to use it.",
        );
    }
    (cx.now().uptime.is_none() && BELOW_HOLE.contains(&total)).then_some(
        " If 4 GiB or more are fitted, the firmware keeps the rest: no remapping of memory, or a graphics chip.",
    )
}

/// What lies in swap, beside memory that is not short: it does no harm while nothing moves, which a single
/// reading does not tell.
fn in_swap(cx: &Context<'_>) -> Option<String> {
    let (total, free) = (cx.mem(m::SwapTotal).ok()?, cx.mem(m::SwapFree).ok()?);
    let used = total - free;
    let share = used.share_of(total);
    if used < LARGE {
        return None;
    }
    let moved = cx.rate(&[v::pswpin, v::pswpout]).ok().map(|rate| rate.total);
    let roomy = || cx.available_share().is_some_and(|share| share >= MUCH);
    let harmless = match moved {
        Some(0) => ", which does no harm: nothing moves in or out, so these are pages that nobody touches.",
        None if cx.seconds().is_err() && share >= MOSTLY && roomy() => {
            ": beside so much memory these are old pages, which do no harm as long as none come back (si of vmstat 1)."
        }
        _ => return None,
    };
    Some(format!(" {used} of swap ({}) are used{harmless}", Percent(share)))
}

/// Page cache that waits to be written, if it is so much that writers may be made to wait.
fn dirty(cx: &Context<'_>) -> Option<Bytes> {
    let available = cx.available()?.bytes;
    let dirty = cx.mem(m::Dirty).ok()? + cx.mem(m::Writeback).unwrap_or_default();
    // Of a small host all of it is written in a moment.
    (dirty >= MUCH_DIRTY && dirty.share_of(available) >= DIRTY).then_some(dirty)
}

/// Nothing is wrong, as far as the data tell.
fn calm(cx: &Context<'_>, stalls: &Stalls) -> Verdict {
    let level = cx.available().zip(cx.total().ok());
    let level = level.map(|(available, total)| (available.bytes, available.bytes.share_of(total)));
    match (level, stalls.memory, cx.seconds().is_ok()) {
        (_, Some(memory), _) if memory < NONE => {
            let left = level.map_or_else(String::new, |(bytes, share)| {
                format!(", and {bytes} ({}) is available", Percent(share))
            });
            let text = format!("Memory is fine: tasks wait for it {} of the time{left}.", Percent(memory));
            Verdict::new(Answer::Fine, text)
        }
        (Some((bytes, share)), _, samples) if share >= levels::ENOUGH || bytes >= levels::ROOM => {
            let zfs = match cx.cache_of_zfs() {
                Bytes::ZERO => String::new(),
                cache => format!(", {cache} of it in ZFS's cache, which free counts as used"),
            };
            let text = format!("Memory is not short: {bytes} ({}) is available{zfs}.", Percent(share));
            let verdict = Verdict::new(Answer::Fine, text);
            if samples { verdict } else { verdict.collect(SAMPLES) }
        }
        (None, None, _) if cx.mem(m::MemAvailable).is_ok_and(|available| available >= SOME) => {
            let text = format!("Memory is not short: {} is available.", cx.mem_or_zero(m::MemAvailable));
            Verdict::new(Answer::Fine, text)
        }
        (_, _, true) if cx.rate(&[v::pswpin, v::pswpout]).is_ok_and(|rate| rate.total == 0) => {
            let times = cx.cpu_shares().map_or_else(String::new, |times| {
                format!(", and CPUs wait for disks {} of the time", Percent(times.iowait))
            });
            let text = format!("Memory shows no shortage: nothing is swapped in or out{times}.");
            Verdict::new(Answer::Fine, text).collect(SAMPLES)
        }
        (Some((bytes, share)), None, _) => {
            let held = level_holder(cx);
            let text = format!(
                "Nothing is known to be lost to memory now, but only {bytes} ({}) is available{held}.",
                Percent(share)
            );
            Verdict::new(Answer::NotNow, text).collect(SAMPLES)
        }
        (_, _, false) if never_short(cx) => Verdict::new(
            Answer::Fine,
            "Memory was never short since boot: nothing was swapped out, and no task had to reclaim."
                .to_owned(),
        ),
        _ => group(cx).unwrap_or_else(|| {
            let known = process(cx).or_else(|| huge_pages(cx)).or_else(|| slab(cx)).unwrap_or_default();
            let text = format!("{UNTOLD}{known}");
            Verdict::new(Answer::Unknown, text).collect(SAMPLES)
        }),
    }
}

/// Whether a process should be so large: databases and the like are meant to be.
fn doubt(process: &Process) -> &'static str {
    let anonymous = process.memory(p::RssAnon);
    if anonymous.is_some_and(|bytes| bytes.share_of(process.memory_or_zero(p::VmRSS)) < HALF) {
        return ", most of it mapped files or shared memory";
    }
    match Workload::of_name(&process.stat.name) {
        _ if &*process.stat.name == "java" => {
            "; what is more than its heap (-Xmx) is threads, buffers outside of it, or a leak"
        }
        Some(_) => "",
        None => ": if it should hold less, it leaks",
    }
}

/// The largest process of a list, after a sentence on what is left.
fn level_holder(cx: &Context<'_>) -> String {
    let Some((process, bytes)) = largest(cx).filter(|(_, bytes)| *bytes >= LARGE) else {
        return String::new();
    };
    let name = &process.stat.name;
    match cx.total().map(|total| bytes.share_of(total)) {
        Ok(share) if share >= HOLDS => {
            format!("; {name} alone holds {bytes} ({}){}", Percent(share), doubt(process))
        }
        _ => format!("; {name} holds {bytes}"),
    }
}

/// What the caches of slab hold together, where nothing else is known and no rule finds it much.
fn slab(cx: &Context<'_>) -> Option<String> {
    let slabs = cx.now().slabs.as_deref().filter(|slabs| !slabs.is_empty() && cx.now().meminfo.is_none())?;
    let size = |cache: &SlabCache| cx.pages(cache.pages_per_slab.saturating_mul(cache.slabs));
    let largest = slabs.iter().max_by_key(|cache| size(cache))?;
    let all: Bytes = slabs.iter().map(size).sum();
    Some(format!(
        " Kernel objects are fine: the slab caches listed hold {all}, most of it {} with {}.",
        largest.name,
        size(largest)
    ))
}

/// What files of a single process, or a list of some, say.
fn process(cx: &Context<'_>) -> Option<String> {
    let [process] = cx.processes().ok()? else {
        let (process, bytes) = largest(cx).filter(|(_, bytes)| *bytes >= LARGE)?;
        return Some(format!(" Of the processes listed {} holds most, {bytes}.", process.stat.name));
    };
    let rollup = process.detail.as_ref().and_then(|detail| detail.rollup.as_ref());
    let sum = |counter| rollup.and_then(|rollup| rollup.get(counter)).map(Bytes::kib);
    let resident = sum(r::Rss).or_else(|| process.memory(p::VmRSS)).filter(|resident| *resident >= LARGE)?;
    let anonymous = sum(r::Anonymous).or_else(|| process.memory(p::RssAnon));
    let swapped = sum(r::Swap).or_else(|| process.memory(p::VmSwap)).filter(|swapped| *swapped > Bytes::ZERO);
    let anonymous = anonymous.map_or_else(String::new, |bytes| format!(", {bytes} of it anonymous memory"));
    let swapped = swapped.map_or_else(String::new, |bytes| format!(", and {bytes} more in swap"));
    Some(format!(" The process holds {resident}{anonymous}{swapped}."))
}

/// Whether huge pages are in use, where nothing but their lines of meminfo is known.
fn huge_pages(cx: &Context<'_>) -> Option<String> {
    if cx.mem(m::MemTotal).is_ok() || cx.mem(m::MemFree).is_ok() {
        return None;
    }
    let meminfo = cx.now().meminfo.as_ref()?;
    let (total, free) = (meminfo.get(m::HugePages_Total)?, meminfo.get(m::HugePages_Free).unwrap_or(0));
    let pool = match total {
        0 => "none are in the pool".to_owned(),
        total => {
            format!("{} of {} in the pool are used", Grouped(total.saturating_sub(free)), Grouped(total))
        }
    };
    let transparent = match cx.mem(m::AnonHugePages) {
        Ok(Bytes::ZERO) => ", and programs have no transparent ones".to_owned(),
        Ok(bytes) => format!(", and programs have {bytes} in transparent ones"),
        Err(_) => String::new(),
    };
    Some(format!(" Of huge pages {pool}{transparent}."))
}

/// What files of a single control group say, where nothing is known of the host.
fn group(cx: &Context<'_>) -> Option<Verdict> {
    let groups = cx.cgroups().ok().filter(|_| cx.now().meminfo.is_none())?;
    let mut below = groups.groups.iter().filter(|group| group.path != "/" && group.current.is_some());
    let (Some(group), None) = (below.next(), below.next()) else { return None };
    let Some(stat) = group.stat.as_ref() else {
        let (current, limit) = (group.current?, group.max?.bytes()?);
        let share = current.share_of(limit);
        let text = format!(
            "Nothing is known to be lost to memory now, but {} holds {current} of its limit of {limit} ({}), page \
             cache included.",
            group.path,
            Percent(share)
        );
        let files = match groups.version {
            CgroupVersion::V1 => "memory.stat memory.failcnt memory.oom_control",
            CgroupVersion::V2 => "memory.stat memory.events memory.pressure",
        };
        let files = format!("cd {}; cat {files}", word(&directory(groups.version, &group.path)));
        return (share >= MUCH_OF_LIMIT).then(|| Verdict::new(Answer::NotNow, text).collect(&files));
    };
    let get =
        |counters: &[Counter<MemoryStat>]| counters.iter().find_map(|counter| stat.get(*counter)).map(Bytes);
    let (current, path) = (group.current?, &group.path);
    let count = |counter| group.events.as_ref().and_then(|events| events.get(counter));
    let met = group.failcnt.or_else(|| count(e::max));
    let text = match group.max? {
        Limit::Max if met.unwrap_or(0) == 0 => {
            format!("{path} is not short of memory: it holds {current} and has no limit.")
        }
        Limit::At(limit) if met == Some(0) && current.share_of(limit) < FULL => {
            format!(
                "{path} is not short of memory: it holds {current}, and has never met its limit of {limit}."
            )
        }
        Limit::At(limit) if met.is_none() && current.share_of(limit) < ROOMY => {
            format!("{path} is not short of memory: it holds {current} of its limit of {limit}.")
        }
        Limit::At(limit) if current.share_of(limit) >= FULL => {
            let shared = get(&[s::total_shmem, s::shmem]).unwrap_or_default();
            let cache = get(&[s::total_cache, s::cache, s::file])? - shared;
            if count(e::oom_kill).unwrap_or(0) > 0 || cache.share_of(current) < MOSTLY {
                return None;
            }
            format!(
                "{path} is not short of memory: it is at its limit of {limit}, but {cache} of it ({}) is page cache, \
                 which it gives back.",
                Percent(cache.share_of(current))
            )
        }
        _ => return None,
    };
    Some(Verdict::new(Answer::Fine, text).collect(SAMPLES))
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::{Meminfo, Values};
    use lotsfree_kernel_files::file::block::{BlockDevice, DiskStats};
    use lotsfree_kernel_files::file::cgroup::{Cgroup, Cgroups};
    use lotsfree_kernel_files::file::cpu_times::CpuTimes;
    use lotsfree_kernel_files::file::kernel_log::{KernelLog, OomKill};
    use lotsfree_kernel_files::file::pressure::{Pressure, Stall};
    use lotsfree_kernel_files::file::process::Stat;
    use lotsfree_kernel_files::{File, Log};
    use lotsfree_snapshot::{Observation, Sample, Snapshot};

    use super::*;
    use crate::Cost;

    fn psi(share: f64) -> Option<Psi> {
        let stall = Stall { avg10: share, avg60: share, avg300: share, total_us: 0 };
        Some(Psi { some: Some(stall), full: None })
    }

    fn host(memory: f64, cpu: f64, io: f64) -> Snapshot {
        Snapshot {
            pressure: Pressure { memory: psi(memory), cpu: psi(cpu), io: psi(io) },
            ..Snapshot::default()
        }
    }

    fn answer(observation: &Observation, findings: &[Finding]) -> Verdict {
        judge(&Context::new(observation), findings)
    }

    fn instant(now: Snapshot) -> Observation {
        Observation::instant("test", now)
    }

    fn finding(severity: Severity) -> Finding {
        let mut finding = Finding::new("some-rule", severity, "the cup is empty", Cost::risk(""));
        finding.sure(Confidence::Certain);
        finding
    }

    #[test]
    fn stalls_say_what_is_short() {
        let of = |memory, cpu, io| answer(&instant(host(memory, cpu, io)), &[]).answer;
        assert_eq!(of(40.0, 60.0, 50.0), Answer::Memory);
        assert_eq!(of(0.0, 98.0, 10.0), Answer::Cpu);
        assert_eq!(of(0.5, 10.0, 60.0), Answer::Disk);
        assert_eq!(of(0.0, 3.0, 2.0), Answer::Fine);
        let text = answer(&instant(host(0.0, 98.0, 0.0)), &[]).text;
        assert_eq!(text, "Not memory but CPU: tasks wait for one 98 % of the time, for memory 0 %.");
    }

    #[test]
    fn harm_comes_before_everything_and_a_warning_after() {
        let idle = instant(host(0.0, 1.0, 1.0));
        let high = answer(&idle, &[finding(Severity::High)]);
        assert_eq!((high.answer, &*high.text), (Answer::Memory, "Memory: the cup is empty."));
        let warning = answer(&idle, &[finding(Severity::Warning)]);
        assert_eq!((warning.answer, warning.collect), (Answer::NotNow, None));
        let info = answer(&idle, &[finding(Severity::Info)]);
        assert_eq!(info.answer, Answer::Fine);
        let busy = instant(host(0.0, 90.0, 0.0));
        assert_eq!(answer(&busy, &[finding(Severity::Warning)]).answer, Answer::Cpu);
    }

    #[test]
    fn a_log_tells_of_refusals_disks_and_modules() {
        let of = |log: &str, rules: &[(&'static str, Severity)]| {
            let log = KernelLog::parse(log.as_bytes(), &mut Log::default());
            let now = Snapshot { kernel_log: Some(log), ..Snapshot::default() };
            let found = |(rule, severity): &(&'static str, Severity)| {
                let mut finding = finding(*severity);
                finding.rule = rule;
                finding.confidence = Confidence::Possible;
                finding
            };
            answer(&instant(now), &rules.iter().map(found).collect::<Vec<_>>())
        };
        let hung =
            "[9.0] INFO: task mysqld:311 blocked for more than 120 seconds.\n[9.1]  bit_wait_io+0x1/0x2\n";
        assert_eq!(
            of("[9.0] I/O error, dev sda, sector 8\n[9.1] I/O error, dev sda, sector 9\n", &[]).text,
            "Not memory but a disk: the kernel reports errors of sda (2)."
        );
        let stuck = of("[9.0] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [java:12]\n", &[]);
        assert_eq!(
            (stuck.answer, &*stuck.text),
            (Answer::Cpu, "Not memory but CPU: java held one for 22 s without a pause.")
        );
        let disk = of(hung, &[("hung-tasks", Severity::Warning)]);
        assert_eq!(
            (disk.answer, &*disk.text),
            (Answer::Disk, "Not memory but a disk: mysqld stood still for more than 120 s.")
        );
        assert_eq!(of("", &[("request-refused", Severity::High)]).answer, Answer::Memory);
        // What a program asks for is no harm yet.
        assert_eq!(of("", &[("request-refused", Severity::Warning)]).answer, Answer::NotNow);
        assert_eq!(of("", &[("hardware-errors", Severity::Info)]).text, "The cup is empty.");
    }

    #[test]
    fn without_stalls_levels_tell_and_without_levels_nothing_does() {
        let meminfo = |text: &str| Values::<Meminfo>::parse(text.as_bytes(), |_| {});
        let now = |text| Snapshot { meminfo: Some(meminfo(text)), ..Snapshot::default() };
        let roomy = answer(&instant(now("MemTotal: 1000 kB\nMemAvailable: 600 kB\n")), &[]);
        assert_eq!(roomy.answer, Answer::Fine);
        assert_eq!(roomy.collect.as_deref(), Some(SAMPLES));
        assert_eq!(answer(&instant(now("MemTotal: 1000 kB\n")), &[]).answer, Answer::Unknown);
        assert_eq!(answer(&instant(Snapshot::default()), &[]).answer, Answer::Unknown);
    }

    #[test]
    fn little_that_is_left_and_idle_swap_are_told() {
        let of = |text: &str| {
            let meminfo = Values::<Meminfo>::parse(text.as_bytes(), |_| {});
            answer(&instant(Snapshot { meminfo: Some(meminfo), ..Snapshot::default() }), &[])
        };
        let little = of("MemTotal: 1000000 kB\nMemAvailable: 60000 kB\n");
        assert_eq!(
            (little.answer, &*little.text),
            (
                Answer::NotNow,
                "Nothing is known to be lost to memory now, but only 58.6 MiB (6.0 %) is available."
            )
        );
        // 6 % of a terabyte is enough.
        assert_eq!(of("MemTotal: 1000000000 kB\nMemAvailable: 60000000 kB\n").answer, Answer::Fine);
        let full = "MemTotal: 1000000 kB\nMemAvailable: 500000 kB\nSwapTotal: 200000 kB\nSwapFree: 0 kB\n";
        assert!(
            of(full).text.contains("195 MiB of swap (100 %) are used: beside so much memory"),
            "{}",
            of(full).text
        );
        let tight = "MemTotal: 1000000 kB\nMemAvailable: 150000 kB\nSwapTotal: 200000 kB\nSwapFree: 0 kB\n";
        assert!(!of(tight).text.contains("swap"));
    }

    #[test]
    fn a_group_alone_has_an_answer() {
        let of = |current: u64, max: Limit, failcnt: u64, cache: u64| {
            let stat = format!("cache {}\nrss 5000000\n", Bytes::mib(cache).0);
            let group = Cgroup {
                path: "/web".to_owned(),
                current: Some(Bytes::mib(current)),
                max: Some(max),
                failcnt: Some(failcnt),
                stat: Some(Values::parse(stat.as_bytes(), |_| {})),
                ..Cgroup::default()
            };
            let groups = Cgroups { version: CgroupVersion::V1, groups: vec![group], ..Cgroups::default() };
            let verdict = answer(&instant(Snapshot { cgroups: Some(groups), ..Snapshot::default() }), &[]);
            (verdict.answer, verdict.text)
        };
        let limit = Limit::At(Bytes::mib(1000));
        assert_eq!(
            of(500, Limit::Max, 0, 10).1,
            "/web is not short of memory: it holds 500 MiB and has no limit."
        );
        assert_eq!(of(500, limit, 0, 10).0, Answer::Fine);
        assert!(
            of(999, limit, 70, 900).1.contains("900 MiB of it (90 %) is page cache, which it gives back")
        );
        for short in [of(999, limit, 70, 100), of(500, limit, 3, 10)] {
            assert_eq!(short.0, Answer::Unknown, "{}", short.1);
        }
    }

    #[test]
    fn a_kill_that_is_over_gives_way_to_what_goes_on() {
        let at = |seconds| {
            let kill = OomKill { at: Some(seconds), ..OomKill::default() };
            let kernel_log = Some(KernelLog { ooms: vec![kill], ..KernelLog::default() });
            let meminfo = Some(Values::parse(b"MemTotal: 1000 kB\nMemAvailable: 600 kB\n", |_| {}));
            let now = Snapshot { kernel_log, uptime: Some(1000.0), meminfo, ..Snapshot::default() };
            let kill = Finding::new("oom-happened", Severity::Warning, "a kill", Cost::risk(""));
            answer(&instant(now), &[kill, finding(Severity::Warning)]).text
        };
        assert!(at(100).contains("the cup is empty"), "{}", at(100));
        assert!(at(990).contains("a kill"), "{}", at(990));
    }

    #[test]
    fn lines_of_huge_pages_alone_say_whether_they_are_used() {
        let of = |text: &str| {
            let meminfo = Some(Values::parse(text.as_bytes(), |_| {}));
            answer(&instant(Snapshot { meminfo, ..Snapshot::default() }), &[]).text
        };
        let none = of("AnonHugePages: 0 kB\nHugePages_Total: 0\nHugePages_Free: 0\n");
        assert!(
            none.ends_with("Of huge pages none are in the pool, and programs have no transparent ones."),
            "{none}"
        );
        let used = of("HugePages_Total: 4096\nHugePages_Free: 96\n");
        assert!(used.ends_with("Of huge pages 4,000 of 4,096 in the pool are used."), "{used}");
    }

    #[test]
    fn cache_that_waits_to_be_written_is_named() {
        let of = |dirty: u64| {
            let text = format!("MemTotal: 32000000 kB\nMemAvailable: 20000000 kB\nDirty: {dirty} kB\n");
            let meminfo = Some(Values::parse(text.as_bytes(), |_| {}));
            answer(&instant(Snapshot { meminfo, ..Snapshot::default() }), &[]).text
        };
        assert!(of(5_000_000).contains("4.77 GiB of page cache waits to be written"), "{}", of(5_000_000));
        assert!(!of(900_000).contains("written"));
    }

    #[test]
    fn a_disk_that_brings_code_back_is_memory() {
        let at = |iowait, read: u64, cached: u64| {
            let text = format!("MemFree: 3000 kB\nBuffers: 800 kB\nCached: {cached} kB\n");
            Snapshot {
                cpu: Some(CpuTimes { idle: 0, iowait, ..CpuTimes::default() }),
                meminfo: Some(Values::parse(text.as_bytes(), |_| {})),
                vmstat: Some(Values::parse(format!("pgpgin {read}\n").as_bytes(), |_| {})),
                ..Snapshot::default()
            }
        };
        let of = |cached| {
            answer(&Observation::pair("test", at(0, 0, cached), at(900, 100_000, cached), 10.0), &[])
        };
        assert_eq!(of(6000).answer, Answer::Memory);
        assert_eq!(of(6_000_000).answer, Answer::Disk);
    }

    #[test]
    fn a_burst_shows_that_the_mean_hides() {
        let at = |second: u64, user: u64, iowait: u64| {
            let idle = (second * 100).saturating_sub(user + iowait);
            let cpu = Some(CpuTimes { user, idle, iowait, ..CpuTimes::default() });
            Sample { at: second as f64, cpu, ..Sample::default() }
        };
        let of = |burst: fn(u64) -> (u64, u64)| {
            let mut observation = Observation::pair("test", Snapshot::default(), Snapshot::default(), 9.0);
            let sample = |second| {
                let (user, iowait) = burst(second);
                at(second, user, iowait)
            };
            observation.samples = (0..10).map(sample).collect();
            answer(&observation, &[])
        };
        let busy = of(|second| (second.min(3) * 98, 0));
        assert_eq!(
            (busy.answer, &*busy.text),
            (Answer::Cpu, "Not memory but CPU: for a third of the time the CPUs are idle 2.0 %.")
        );
        assert_eq!(of(|second| (0, second.min(3) * 60)).answer, Answer::Disk);
        assert_eq!(of(|second| (second.min(1) * 98, 0)).answer, Answer::Unknown);
    }

    #[test]
    fn tasks_in_uninterruptible_sleep_wait_for_a_disk() {
        let process = |pid: u32, state| Process {
            stat: Stat { pid, name: "cron".into(), state, ..Stat::default() },
            ..Process::default()
        };
        let of = |states: &str| {
            let processes = states.chars().zip(1..).map(|(state, pid)| process(pid, state)).collect();
            answer(&instant(Snapshot { processes: Some(processes), ..Snapshot::default() }), &[])
        };
        let blocked = of("DSDD");
        assert_eq!(blocked.answer, Answer::Disk);
        assert!(blocked.text.contains("cron and 2 more of the processes listed"), "{}", blocked.text);
        assert_eq!(of("DSDS").answer, Answer::Unknown);
    }

    #[test]
    fn growth_counts_over_more_than_a_moment() {
        let at = |kib: u64, uptime: Option<f64>| {
            let process = Process {
                stat: Stat { pid: 7, name: "web".into(), ..Stat::default() },
                status: Values::parse(format!("VmRSS: {kib} kB\n").as_bytes(), |_| {}),
                ..Process::default()
            };
            Snapshot { processes: Some(vec![process]), uptime, ..Snapshot::default() }
        };
        let of = |uptime: Option<f64>, seconds: f64| {
            let pair = Observation::pair("test", at(200_000, uptime), at(900_000, uptime), seconds);
            answer(&pair, &[]).text
        };
        assert!(
            of(None, 1.0).contains("web grew from 195 MiB to 879 MiB between two readings"),
            "{}",
            of(None, 1.0)
        );
        assert!(of(Some(90_000.0), 900.0).contains("web grew"));
        assert!(!of(Some(90_000.0), 10.0).contains("grew"));
    }

    #[test]
    fn memory_that_the_kernel_does_not_see_is_told_of() {
        let of = |text: &str| {
            let meminfo = Some(Values::parse(text.as_bytes(), |_| {}));
            answer(&instant(Snapshot { meminfo, ..Snapshot::default() }), &[]).text
        };
        let low = "MemTotal: 907000 kB\nMemFree: 700000 kB\nBuffers: 0 kB\nCached: 0 kB\nHighTotal: 0 kB\nLowTotal: 907000 kB\n";
        assert!(of(low).contains("sees no more than 896 MiB"), "{}", of(low));
        assert!(
            of("MemTotal: 3400000 kB\nMemAvailable: 2000000 kB\n").contains("If 4 GiB or more are fitted")
        );
        assert!(!of("MemTotal: 3900000 kB\nMemAvailable: 2000000 kB\n").contains("fitted"));
    }

    #[test]
    fn a_disk_that_is_always_busy_is_named() {
        let at = |busy_ms| {
            let stats = Some(DiskStats { busy_ms, ..DiskStats::default() });
            let disk = BlockDevice { name: "sda".into(), stats, ..BlockDevice::default() };
            Snapshot { block: Some(vec![disk]), ..Snapshot::default() }
        };
        let of = |busy_ms| answer(&Observation::pair("test", at(0), at(busy_ms), 10.0), &[]).text;
        assert!(
            of(9800).ends_with("sda is busy 98 % of the time: if something is slow, look at that disk."),
            "{}",
            of(9800)
        );
        assert!(!of(5000).contains("sda"));
    }

    #[test]
    fn busy_cpus_and_slow_disks_show_without_psi() {
        let at = |user, idle, iowait| Snapshot {
            cpu: Some(CpuTimes { user, idle, iowait, ..CpuTimes::default() }),
            ..Snapshot::default()
        };
        let over = |now| Observation::pair("test", at(0, 0, 0), now, 10.0);
        assert_eq!(answer(&over(at(970, 30, 0)), &[]).answer, Answer::Cpu);
        assert_eq!(answer(&over(at(100, 500, 400)), &[]).answer, Answer::Disk);
        assert_eq!(answer(&over(at(100, 890, 10)), &[]).answer, Answer::Unknown);
    }
}
