//! The kernel log: the fields that the parser reads, in lines that it understands.
//!
//! | event | what stays beside the time |
//! |---|---|
//! | OOM kill | constraint, groups, the victim's name, process id and user; its sizes and score |
//! | `drop_caches` | name, process id, value |
//! | task that stood still | name, process id, seconds, functions that tell what it waited for |
//! | refused request | the message's own words, name, size, limit |
//! | kill by a daemon | group or name, process id, size, shares |
//! | memory hardware | kind and count |
//! | first line of a boot | that it is one |
//! | page allocation failure | name, order |
//! | report on memory | what [`Report`] has, printed anew: names of processes, groups and caches replaced, without the call trace |
//!
//! Names are replaced as elsewhere. Hardware, registers and modules are removed.

use lotsfree_kernel_files::file::kernel_log::daemon::{self, Daemon};
use lotsfree_kernel_files::file::kernel_log::hardware::HardwareError;
use lotsfree_kernel_files::file::kernel_log::report::{Report, ZoneKind};
use lotsfree_kernel_files::file::kernel_log::storage::StorageError;
use lotsfree_kernel_files::file::kernel_log::{
    allocation_failure, booted, drop_caches, header, killing, limits_of, process, read, reaped, split_prefix,
};
use lotsfree_kernel_files::file::kernel_log::{hung, refusal};

use super::counters;
use super::lists::{CONSTRAINTS, KILLED, REPORT, UNITS};
use super::names::Names;
use super::words::{is_decimal, keep_words};

impl Names {
    /// Redacts a log: lines of events one by one, and each report as a whole where it begins.
    pub(super) fn kernel_log(&mut self, text: &str) -> String {
        let (log, owned) = read(text);
        let mut owned = owned.into_iter().peekable();
        let mut printed = None;
        let mut out = String::new();
        for (number, line) in text.split('\n').enumerate() {
            let report = owned.next_if(|(owned, _)| *owned == number).and_then(|(_, report)| report);
            if let Some(report) = report {
                if printed != Some(report) {
                    printed = Some(report);
                    self.report(&log.reports[report]).print(&mut out);
                }
            } else if let Some(line) = self.log_line(line) {
                out.push_str(&line);
                out.push('\n');
            }
        }
        out
    }

    /// Redacts a report: fields that the kernel names stay, others go.
    fn report(&mut self, report: &Report) -> Report {
        let known = |(name, _): &(Box<str>, u64)| REPORT.has(name) || counters().has(name);
        let nodes = |list: &String| list.bytes().all(|b| b.is_ascii_digit() || b"-,".contains(&b));
        let mut report = report.clone();
        report.process = self.program(&report.process);
        if let Some(request) = &mut report.request {
            let flags = request.flags.split('|').filter(|flag| {
                let name = flag.trim_start_matches("__").strip_prefix("GFP_");
                name.is_some_and(|name| REPORT.has(name))
            });
            request.flags = flags.collect::<Vec<_>>().join("|");
            request.nodemask = request.nodemask.take().filter(nodes);
            request.mems_allowed = request.mems_allowed.take().filter(nodes);
        }
        report.release = report.release.as_deref().map(|release| self.release(release).trim().to_owned());
        report.trace.clear();
        if let Some(group) = &mut report.group {
            group.limit_of = self.group_path(&group.limit_of);
            group.task_in = group.task_in.as_deref().map(|path| self.group_path(path));
            group
                .counters
                .retain(|counter| matches!(&*counter.name, "memory" | "memory+swap" | "swap" | "kmem"));
            group.stat.retain(known);
        }
        let memory = &mut report.memory;
        memory.totals.retain(known);
        memory.nodes.iter_mut().for_each(|node| node.fields.retain(known));
        memory.zones.retain(|zone| ZoneKind::of(&zone.name).is_some());
        for zone in &mut memory.zones {
            zone.fields.retain(known);
            for (_, types) in &mut zone.buddy {
                *types =
                    types.chars().filter(|letter| "UEMRHCI".contains(*letter)).collect::<String>().into();
            }
        }
        for slab in &mut report.slabs {
            slab.name = self.slab(&slab.name).into();
        }
        for task in &mut report.tasks {
            task.name = self.program(&task.name).into();
        }
        report
    }

    /// Redacts a line of the log; `None` if it is not an event that the parser reads.
    pub(super) fn log_line(&mut self, line: &str) -> Option<String> {
        let line = line.trim_ascii();
        let exported = line.strip_prefix("MESSAGE=").map(|message| ("MESSAGE=", message));
        let (key, line) = exported.unwrap_or(("", line));
        if let Some(time) = line.strip_prefix("__MONOTONIC_TIMESTAMP=") {
            return is_decimal(time).then(|| line.to_owned());
        }
        if let Some(mut kill) = daemon::killed(line) {
            kill.victim = match kill.by {
                Daemon::SystemdOomd | Daemon::Talos => self.group_path(&kill.victim),
                Daemon::Nohang => kill.victim,
                Daemon::Earlyoom | Daemon::Kubelet | Daemon::LowMemoryKiller => self.program(&kill.victim),
            };
            return Some(format!("{key}{kill}"));
        }
        if let Some(error) = HardwareError::of_rasdaemon(line) {
            return Some(format!("{key}{error}"));
        }
        if let Some(line) = refusal::bare(line, |name| self.program(name)) {
            return Some(format!("{key}{line}"));
        }
        let (at, message) = split_prefix(line)?;
        let message = self.message(message)?;
        // A time, a level and a sequence number stay unchanged; a date or a host name does not.
        let prefix = line.get(..line.len() - split_prefix(line)?.1.len()).unwrap_or("");
        let plain = prefix.bytes().all(|b| b.is_ascii_digit() || b"[]<>.,;- ".contains(&b));
        let prefix = match (plain, at) {
            (true, _) => prefix.to_owned(),
            (false, Some(seconds)) => format!("[{seconds:5}.000000] "),
            (false, None) => String::new(),
        };
        Some(format!("{key}{prefix}{message}"))
    }

    fn message(&mut self, message: &str) -> Option<String> {
        const PANIC: &str = "Kernel panic - not syncing: Out of memory";
        if let Some(rest) = message.strip_prefix(PANIC) {
            let unkillable = rest.starts_with(" and no killable processes");
            return Some(format!("{PANIC}{}", if unkillable { " and no killable processes" } else { "" }));
        }
        if header(message).is_some() {
            return self.oom_kill(message);
        }
        if let Some((memcg, text)) = killing(message) {
            let (killed, pid, name, rest) = process(text)?;
            let start = match (message.starts_with(text), memcg) {
                (true, _) => "",
                (false, true) => "Memory cgroup out of memory: ",
                (false, false) => "Out of memory: ",
            };
            let verb = if killed { "Killed" } else { "Kill" };
            let rest = keep_words(rest, &[&KILLED, &UNITS], self);
            return Some(format!("{start}{verb} process {pid} ({}){rest}", self.program(name)));
        }
        if let Some((task, limit)) = limits_of(message) {
            let (task, limit) = (self.group_path(task), self.group_path(limit));
            return Some(format!("Task in {task} killed as a result of limit of {limit}"));
        }
        if let Some((pid, name)) = reaped(message) {
            return Some(format!("oom_reaper: reaped process {pid} ({}), now", self.program(name)));
        }
        if let Some((name, pid, value)) = drop_caches(message) {
            return Some(format!("{} ({pid}): drop_caches: {value}", self.program(&name)));
        }
        if booted(message) {
            return Some("Linux version redacted".to_owned());
        }
        if let Some(task) = hung::headed(message) {
            return Some(hung::head(&task, &self.program(&task.name)));
        }
        if let Some(frame) = hung::telling(message) {
            return Some(frame);
        }
        if let Some(error) = HardwareError::of(message) {
            return Some(error.to_string());
        }
        match StorageError::of(message) {
            Some(StorageError::Server(_)) => {
                return Some(StorageError::Server("SERVER".to_owned()).to_string());
            }
            Some(error) => return Some(error.to_string()),
            None => {}
        }
        let (name, order) = allocation_failure(message)?;
        Some(format!("{}: page allocation failure: order:{order}", self.program(&name)))
    }

    /// Redacts `oom-kill:constraint=…`. Fields are searched from the end, as in the parser, because names may
    /// contain commas.
    fn oom_kill(&mut self, message: &str) -> Option<String> {
        let kill = header(message)?;
        let (rest, uid) = message.rsplit_once(",uid=")?;
        let (rest, _) = rest.rsplit_once(",task=")?;
        let (rest, task_group) = match rest.rsplit_once(",task_memcg=") {
            Some((rest, group)) => (rest, Some(group)),
            None => (rest, None),
        };
        let oom_group = rest.split_once(",oom_memcg=").map(|(_, group)| group);
        let constraint =
            if CONSTRAINTS.has(&kill.constraint) { &*kill.constraint } else { "CONSTRAINT_REDACTED" };
        let mut out = format!("oom-kill:constraint={constraint}");
        if rest.ends_with(",global_oom") {
            out.push_str(",global_oom");
        }
        for (key, group) in [("oom_memcg", oom_group), ("task_memcg", task_group)] {
            if let Some(group) = group {
                out.push_str(&format!(",{key}={}", self.group_path(group)));
            }
        }
        let uid = if is_decimal(uid) { uid } else { "0" };
        Some(format!("{out},task={},pid={},uid={uid}", self.program(&kill.name), kill.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stay_without_names() {
        let mut names = Names::default();
        for (line, kept) in [
            ("[1.0] usb 1-1: Joe's phone", None),
            ("[2.0] acme invoked oom-killer: gfp_mask=0x1, order=0", None),
            (
                "[3.0] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=acme,mems_allowed=0,oom_memcg=/system.slice/acme.service,task_memcg=/system.slice/acme.service,task=a,b (acme),pid=42,uid=7",
                Some(
                    "[3.0] oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/system.slice/unit1.service,task_memcg=/system.slice/unit1.service,task=program1,pid=42,uid=7",
                ),
            ),
            (
                "Nov 22 10:00:00 acme kernel: [4.5] Memory cgroup out of memory: Killed process 42 (acme) total-vm:1kB, anon-rss:2kB, UID:7 pgtables:52kB oom_score_adj:-17 acme",
                Some(
                    "[    4.000000] Memory cgroup out of memory: Killed process 42 (program2) total-vm:1kB, anon-rss:2kB, UID:7 pgtables:52kB oom_score_adj:-17 word1",
                ),
            ),
            ("[5.0] Joe Acme (77): drop_caches: 3", Some("[5.0] program3 (77): drop_caches: 3")),
            (
                "6,900,86400000000,-;bash (5211): drop_caches: 3",
                Some("6,900,86400000000,-;bash (5211): drop_caches: 3"),
            ),
            (
                "[6.0] mysqld: page allocation failure: order:4, mode:0x1, nodemask=(null),cpuset=acme",
                Some("[6.0] mysqld: page allocation failure: order:4"),
            ),
            (
                "[7.0] Task in /acme killed as a result of limit of /acme",
                Some("[7.0] Task in /unit1 killed as a result of limit of /unit1"),
            ),
        ] {
            assert_eq!(names.log_line(line).as_deref(), kept);
        }
    }
}
