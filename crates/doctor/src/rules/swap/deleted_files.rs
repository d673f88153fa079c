use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::control_groups::service_of;
use crate::finding::subject;
use crate::held::{self, Figure, HeldFile};
use crate::remedy::word;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// Files in memory that only processes hold take a noticeable part of it.
    ///
    /// # Sees
    /// memfds, and deleted files of tmpfs and hugetlbfs, from 2 % of memory on: on the running machine what
    /// the links in `/proc/PID/fd` and `/proc/PID/map_files` lead to, with the bytes that `stat` says each
    /// file has, within 50 ms, the largest processes first. Other users' processes show them to root only.
    /// In saved data that do not have them, mappings of `/memfd:` and of deleted files in `/dev/shm` of the
    /// largest processes (`maps`, `numa_maps`), which are a lower bound.
    ///
    /// # Hurts
    /// Such a file is memory that can be swapped and not dropped, and it goes on as long as one process has
    /// it open or mapped. `free` counts it as cache. `df` and `du` show no memfd; of a deleted file `df`
    /// counts the space, and `du` and `ls` find nothing that one could remove.
    ///
    /// # Remedies
    /// End or restart the process that holds it: with the last holder the memory comes back.
    ///
    /// # False alarms
    /// Databases, virtual machines and Java keep their own memory in memfds, shared mappings and files of
    /// hugetlbfs on purpose: those are left out. A deleted file on a disk takes no memory that could not be
    /// dropped, and is left out too.
    ///
    /// # References
    /// memfd_create(2); `proc_pid_fd(5)`; `mm/shmem.c:shmem_evict_inode` (6.12): the pages go with the inode,
    /// when its last holder closes it.
    pub DeletedFiles = "deleted-files" in Swap
}

/// From this part of memory on.
const NOTICEABLE: f64 = 0.02;
/// Smaller ones are a matter of their owner's, not of the host's memory.
const SMALL: Bytes = Bytes::mib(64);
/// Of tmpfs as a whole, a warning from a tenth of memory on (tmpfs-growth).
const WARNED_OF: f64 = 0.10;
/// Half of what one tmpfs may take by default.
const MUCH: f64 = 0.25;
/// While this share of memory is available, nobody lacks it.
const ROOM: f64 = 0.5;
/// Files and holders that are named.
const NAMED: usize = 3;
/// Processes that one command ends; a command for more would be read by nobody.
const MOST_KILLED: usize = 8;

impl Rule for DeletedFiles {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let total = cx.total()?;
        let shmem = cx.mem(m::Shmem)?;
        let least = total.scale(NOTICEABLE).max(SMALL);
        let pools = cx.huge_pools().unwrap_or_default();
        let in_pools: Bytes = pools.iter().map(|pool| pool.size.times(pool.used())).sum();
        if shmem + in_pools < least {
            return Ok(Vec::new());
        }
        let files = held::files(cx);
        let sum = |hugetlb: bool| -> Bytes {
            files.iter().filter(|file| file.hugetlb == hugetlb).map(|file| file.bytes).sum()
        };
        // What was swapped out is in a file's figure, and not in memory.
        let bytes = sum(false).min(shmem) + sum(true).min(in_pools);
        if bytes < least || files.is_empty() {
            return if looked_everywhere(cx) { Ok(Vec::new()) } else { Err(unseen(cx)) };
        }
        let share = bytes.share_of(total);
        let roomy = cx.available_share().is_some_and(|share| share >= ROOM);
        let severity = Severity::ladder(
            &[(roomy || share < WARNED_OF, Severity::Info), (share >= MUCH, Severity::High)],
            Severity::Warning,
        );
        let cost = Cost::memory(
            bytes,
            total,
            "given back only when the last process that holds the file closes it, unmaps it or ends",
        );
        let mut finding = Finding::new(Self::ID, severity, title(cx, &files, bytes, share), cost);
        finding.sure(match files[0].figure {
            Figure::Allocated => Confidence::Certain,
            Figure::Touched => Confidence::Likely,
            Figure::Mapped => Confidence::Possible,
        });
        finding.because_all(files.iter().take(NAMED).map(|file| evidence(cx, file)));
        if sum(false) > Bytes::ZERO {
            finding.because(
                cx.saw_mem(m::Shmem)
                    .against(format!("less than {least} of it in such files"), "free counts it as cache"),
            );
        }
        if sum(true) > Bytes::ZERO {
            finding.because(cx.saw_mem(m::HugePages_Total)).because(cx.saw_mem(m::HugePages_Free));
        }
        add_remedies(&mut finding, cx, &files);
        add_notes(&mut finding, cx, &files);
        Ok(vec![finding])
    }
}

/// Whether the open files of all processes were looked at.
fn looked_everywhere(cx: &Context<'_>) -> bool {
    cx.now().unlinked.as_ref().is_some_and(|table| table.denied == 0 && table.late == 0)
}

/// What was not seen, as the reason why nothing can be said.
fn unseen(cx: &Context<'_>) -> Skip {
    match &cx.now().unlinked {
        Some(table) if table.denied > 0 => Skip::missing("/proc/PID/fd of other users (root sees them)"),
        Some(_) => Skip::missing("/proc/PID/fd of all processes (there were more than the time allowed)"),
        None => Skip::missing("/proc/PID/fd"),
    }
}

/// `python3 (pid 1234)`.
fn holder(cx: &Context<'_>, pid: u32) -> String {
    match held::process(cx, pid) {
        Some(process) => format!("{} (pid {pid})", process.stat.name),
        None => format!("pid {pid}"),
    }
}

/// Who holds a file: its first holder, and how many more there are.
fn holders(cx: &Context<'_>, file: &HeldFile<'_>) -> String {
    let first = file.holders.first().map_or_else(|| "a process".to_owned(), |pid| holder(cx, *pid));
    match file.holders.len() {
        0 | 1 => first,
        2 => format!("{first} and one more process"),
        n => format!("{first} and {} more processes", Grouped(n as u64 - 1)),
    }
}

/// `at least 1.50 GiB`, with what the figure does not count.
fn amount(file: &HeldFile<'_>) -> String {
    match file.figure {
        Figure::Allocated => file.bytes.to_string(),
        Figure::Touched => format!("at least {}", file.bytes),
        Figure::Mapped => format!("up to {}", file.bytes),
    }
}

fn title(cx: &Context<'_>, files: &[HeldFile<'_>], bytes: Bytes, share: f64) -> String {
    let largest = &files[0];
    let verb = if largest.holders.len() > 1 { "hold" } else { "holds" };
    let still = match (largest.had_a_path(), largest.open, largest.mapped) {
        (false, ..) => "",
        (true, true, true) => " and is still open and mapped",
        (true, true, false) => " and is still open",
        (true, false, _) => " and is still mapped",
    };
    let who = holders(cx, largest);
    if files.len() == 1 {
        return format!(
            "{who} {verb} {}, {} of memory, in {}{still}",
            amount(largest),
            Percent(share),
            largest.text()
        );
    }
    format!(
        "{} files that only processes hold take {bytes}, {} of memory; {who} {verb} the largest, {} in {}{still}",
        Grouped(files.len() as u64),
        Percent(share),
        amount(largest),
        largest.text()
    )
}

fn evidence(cx: &Context<'_>, file: &HeldFile<'_>) -> Evidence {
    let pid = file.holders.first().copied().unwrap_or_default();
    let (place, field) = match (file.figure, file.link) {
        (Figure::Allocated, Some(link)) => (link.to_string(), "allocated"),
        (Figure::Mapped, _) => ("maps".to_owned(), "length"),
        _ => ("numa_maps".to_owned(), "resident"),
    };
    let by = held::process(cx, pid).map_or_else(|| format!("pid {pid}"), subject);
    Evidence::new(format!("/proc/{pid}/{place}"), field, format!("{} in {}", file.bytes, file.text())).of(by)
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, files: &[HeldFile<'_>]) {
    let mut named: Vec<u32> = Vec::new();
    for file in files.iter().take(NAMED) {
        let Some(&pid) = file.holders.first() else { continue };
        if named.contains(&pid) {
            continue;
        }
        named.push(pid);
        let all: Bytes = files.iter().filter(|f| f.holders.first() == Some(&pid)).map(|f| f.bytes).sum();
        finding.remedy(end(cx, file, pid, all));
    }
}

/// Ends or restarts the holder of a file; `all` is what its files have together.
fn end(cx: &Context<'_>, file: &HeldFile<'_>, pid: u32, all: Bytes) -> Remedy {
    let service = held::process(cx, pid).and_then(service_of);
    let who = holders(cx, file);
    let verb = if service.is_some() { "Restart" } else { "End or restart" };
    let gives = if file.holders.len() > 1 { "which give" } else { "which gives" };
    let mut remedy = Remedy::new(format!("{verb} {who}, {gives} {all} back"));
    remedy = match file.link {
        Some(link) => remedy.run(format!(
            "ls -l /proc/{pid}/{link}; ls -lsL /proc/{pid}/{link}  # its name; its kB in memory and its size"
        )),
        None => remedy.run(format!("grep deleted /proc/{pid}/maps  # its name, between its addresses")),
    };
    remedy = match service {
        Some(service) => remedy.run(format!("systemctl restart {}", word(service))),
        None => {
            let pids: Vec<String> = file.holders.iter().take(MOST_KILLED).map(u32::to_string).collect();
            remedy.run(format!("kill {}", pids.join(" ")))
        }
    };
    let counter = if file.hugetlb { "HugePages_Free" } else { "Shmem:" };
    remedy.verify(format!("grep {counter} /proc/meminfo")).risk(
        "What is in the file is lost with the process: ask its owner whether the program has a way of its own to let \
         go of it (a cache to empty, a log to reopen).",
    )
}

fn add_notes(finding: &mut Finding, cx: &Context<'_>, files: &[HeldFile<'_>]) {
    if files.iter().any(|file| !file.had_a_path()) {
        finding.note(
            "df and du show no memfd and no shared memory without a file: they lie in a tmpfs that the kernel mounts for \
             itself.",
        );
    }
    if files.iter().any(HeldFile::had_a_path) {
        finding.note("df counts a deleted file to its mount; du and ls do not find it.");
    }
    finding.note("To see all that is open: find /proc/[0-9]*/fd -lname '*(deleted)' -ls 2>/dev/null");
    let Some(table) = &cx.now().unlinked else {
        finding.note(
            "These data show what is mapped, not what is only open: there may be more (lotsfree snapshot as root has both).",
        );
        return;
    };
    if table.denied > 0 {
        finding.note(format!(
            "The open files of {} processes of other users were not seen: there may be more. Root sees them.",
            Grouped(table.denied)
        ));
    }
    if table.late > 0 {
        finding.note(format!(
            "Of {} processes not all open files were looked at, because there are too many for the time: there may be more.",
            Grouped(table.late)
        ));
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::Values;
    use lotsfree_kernel_files::file::unlinked::Unlinked;
    use lotsfree_snapshot::{Observation, Snapshot};

    use super::*;

    /// A host of 16 GiB of which 4 GiB are shared memory that nothing explains.
    fn outcome(table: Option<Unlinked>) -> Outcome {
        let text = "MemTotal: 16777216 kB\nMemAvailable: 9000000 kB\nShmem: 4194304 kB\n";
        let now = Snapshot {
            meminfo: Some(Values::parse(text.as_bytes(), |bad| panic!("line {}", bad.line))),
            processes: Some(Vec::new()),
            unlinked: table,
            ..Snapshot::default()
        };
        let observation = Observation::instant("test", now);
        DeletedFiles.check(&Context::new(&observation))
    }

    #[test]
    fn what_was_not_looked_at_is_unknown_and_says_who_sees_it() {
        let missing = |table| match outcome(table) {
            Err(Skip::Unknown(missing)) => missing.join(", "),
            other => panic!("{other:?}"),
        };
        assert!(missing(Some(Unlinked { denied: 1, ..Unlinked::default() })).contains("root sees them"));
        assert!(missing(Some(Unlinked { late: 1, ..Unlinked::default() })).contains("the time allowed"));
        assert_eq!(missing(None), "/proc/PID/fd");
        assert_eq!(outcome(Some(Unlinked::default())), Ok(Vec::new()));
    }
}
