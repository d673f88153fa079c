//! Tasks that stood still for minutes, and CPUs that were held for seconds, with what their call traces say.

use serde::Serialize;

use super::super::scan::{decimal, leading_digits};

/// A task of which the kernel says that it is blocked (`kernel/hung_task.c:check_hung_task`), or that it
/// holds a CPU (`kernel/watchdog.c:watchdog_timer_fn`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HungTask {
    /// Seconds since boot, if the line said so.
    pub at: Option<u64>,
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// For more than how many seconds.
    pub seconds: u64,
    /// Whether it ran all that time (a soft lockup) instead of standing still.
    pub stuck: bool,
    /// Functions of its call trace, innermost first.
    pub trace: Vec<Box<str>>,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// A control group at its limit, whose OOM killer does not act.
    GroupLimit,
    /// Compaction of memory.
    Compaction,
    /// Reclaim that it does itself.
    Reclaim,
    /// Dirty pages below their limit.
    DirtyPages,
    /// A page from swap.
    SwapIn,
    /// An NFS server.
    Nfs,
    /// A disk, its driver, or a file system's journal.
    Disk,
    /// The lock of an address space.
    MmapLock,
}

/// Functions that tell it, by how they begin; the first row that any function of a trace fits counts.
const TELLING: [(Wait, &[&str]); 8] = [
    (Wait::GroupLimit, &["mem_cgroup_oom_synchronize", "mem_cgroup_handle_oom", "mem_cgroup_out_of_memory"]),
    (
        Wait::Compaction,
        &["compact_zone", "try_to_compact_pages", "isolate_migratepages", "__alloc_pages_direct_compact"],
    ),
    (
        Wait::Reclaim,
        &[
            "try_to_free_pages",
            "do_try_to_free_pages",
            "try_to_free_mem_cgroup_pages",
            "throttle_direct_reclaim",
            "reclaim_throttle",
            "wait_iff_congested",
            "shrink_node",
            "shrink_zone",
            "shrink_inactive_list",
            "shrink_page_list",
            "shrink_folio_list",
            "shrink_slab",
            "shrink_lruvec",
            "balance_pgdat",
        ],
    ),
    (Wait::DirtyPages, &["balance_dirty_pages"]),
    (Wait::SwapIn, &["do_swap_page", "swapin_readahead", "read_swap_cache_async", "shmem_swapin"]),
    (Wait::Nfs, &["nfs_", "nfs4_", "rpc_wait_bit_killable", "__rpc_execute", "nfsd_"]),
    (
        Wait::Disk,
        &[
            "io_schedule",
            "bit_wait_io",
            "wait_on_page_bit",
            "wait_on_page_writeback",
            "folio_wait_writeback",
            "submit_bio_wait",
            "blk_mq_get_tag",
            "wbt_wait",
            "rq_qos_wait",
            "get_request",
            "jbd2_",
            "xfs_log_",
            "xlog_",
            "xfs_buf_",
            "btrfs_commit_transaction",
            "wait_current_trans",
            "md_",
            "raid5_",
            "ext4_sync_file",
            "dm_",
            "scsi_",
        ],
    ),
    (
        Wait::MmapLock,
        &["rwsem_down_read", "rwsem_down_write", "call_rwsem_down", "__rwsem_down", "lock_mm_and_find_vma"],
    ),
];

/// How the names of the kernel's threads begin that wait for nothing but disks.
const WRITERS: [&str; 12] = [
    "jbd2/",
    "kjournald",
    "flush-",
    "xfsaild",
    "xfs-sync",
    "btrfs-transacti",
    "btrfs-cleaner",
    "dmcrypt_write",
    "txg_sync",
    "jfsCommit",
    "pdflush",
    "loop",
];

/// Whether a thread of that name writes to disks, and does nothing else.
fn writes(name: &str) -> bool {
    let raid = name.starts_with("md") && (name.contains("_raid") || name.contains("_resync"));
    let flusher = name.starts_with("kworker/") && name.contains("flush");
    raid || flusher || WRITERS.iter().any(|writer| name.starts_with(writer))
}

/// At most this many functions of a trace are kept.
const MOST_TRACE: usize = 48;
/// A line of a trace is at most this many seconds younger than its head; a serial console is slow.
const AT_ONCE: u64 = 2;

impl HungTask {
    /// What it waits for, as far as its trace tells.
    pub fn wait(&self) -> Option<Wait> {
        let fits = |begin: &[&str]| self.trace.iter().any(|function| begins(function, begin));
        let told = TELLING.iter().find_map(|(wait, begin)| fits(begin).then_some(*wait));
        told.or_else(|| (!self.stuck && writes(&self.name)).then_some(Wait::Disk))
    }

    /// The functions of its trace that tell what it waits for, innermost first.
    pub fn told(&self) -> impl Iterator<Item = &str> {
        self.trace.iter().map(|function| &**function).filter(|function| tells(function))
    }

    /// Takes a line of its call trace, which the kernel prints at once; whether it is to be kept. `None` for
    /// another line, which does not end the trace: it is not kept, so that nobody could see the end of it.
    pub(super) fn take(&mut self, at: Option<u64>, message: &str) -> Option<bool> {
        let function = frame(message)?;
        if self.at.zip(at).is_some_and(|(head, at)| at.abs_diff(head) > AT_ONCE) {
            return None;
        }
        let room = self.trace.len() < MOST_TRACE;
        if room {
            self.trace.push(function.into());
        }
        Some(room)
    }
}

/// `INFO: task java:4711 blocked for more than 120 seconds.`, `watchdog: BUG: soft lockup - CPU#3 stuck for
/// 22s! [kswapd0:123]`.
pub(super) fn first_line(at: Option<u64>, message: &str) -> Option<HungTask> {
    let named = |text: &str| {
        let (name, pid) = text.rsplit_once(':')?;
        Some((name.to_owned(), pid.parse::<u32>().ok()?))
    };
    let seconds = |text: &str| decimal(leading_digits(text.as_bytes()).0);
    if let Some((_, rest)) = message.split_once("INFO: task ") {
        let (task, rest) = rest.split_once(" blocked for more than ")?;
        let (name, pid) = named(task)?;
        return Some(HungTask { at, name, pid, seconds: seconds(rest)?, ..HungTask::default() });
    }
    let (_, rest) = message.split_once("BUG: soft lockup - CPU#")?;
    let (_, rest) = rest.split_once(" stuck for ")?;
    let (task, _) = rest.split_once('[')?.1.rsplit_once(']')?;
    let (name, pid) = named(task)?;
    Some(HungTask { at, name, pid, seconds: seconds(rest)?, stuck: true, trace: Vec::new() })
}

/// As the kernel prints the first line.
pub fn head(task: &HungTask, name: &str) -> String {
    let (pid, seconds) = (task.pid, task.seconds);
    match task.stuck {
        true => format!("watchdog: BUG: soft lockup - CPU#0 stuck for {seconds}s! [{name}:{pid}]"),
        false => format!("INFO: task {name}:{pid} blocked for more than {seconds} seconds."),
    }
}

/// The first line of such a message.
pub fn headed(message: &str) -> Option<HungTask> {
    first_line(None, message)
}

/// A line of a trace whose function tells what is waited for, without the rest of the line.
pub fn telling(message: &str) -> Option<String> {
    let function = frame(message)?;
    tells(function).then(|| format!(" {function}+0x0/0x0"))
}

/// Whether a function tells what is waited for.
fn tells(function: &str) -> bool {
    TELLING.iter().any(|(_, begin)| begins(function, begin))
}

/// Whether a function begins in one of these ways.
fn begins(function: &str, begin: &[&str]) -> bool {
    begin.iter().any(|begin| function.starts_with(begin))
}

/// The function of ` [<ffffffff811a6e0d>] ? do_try_to_free_pages+0x2ed/0x410` or ` schedule+0x2c/0x80`.
fn frame(message: &str) -> Option<&str> {
    let text = message.split_once(">] ").map_or(message, |(_, rest)| rest);
    let text = text.trim_start().trim_start_matches("? ");
    let (name, _) = text.split_once("+0x")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    (!name.is_empty() && name.len() <= 96 && name.chars().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::KernelLog;
    use super::*;
    use crate::{File, Log};

    fn parse(text: &str) -> KernelLog {
        let log = KernelLog::parse(text.as_bytes(), &mut Log::default());
        let again = KernelLog::parse(log.lines.join("\n").as_bytes(), &mut Log::default());
        assert_eq!(again, log);
        log
    }

    #[test]
    fn a_trace_tells_what_is_waited_for() {
        let log = parse(
            "[ 1234.5] INFO: task java:4711 blocked for more than 120 seconds.\n\
            [ 1234.6]       Not tainted 4.15.0-45-generic #48-Ubuntu\n\
            [ 1234.7] \"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.\n\
            [ 1234.8] java            D    0  4711      1 0x00000000\n\
            [ 1234.9] Call Trace:\n\
            [ 1235.0]  __schedule+0x24e/0x880\n\
            [ 1235.1]  io_schedule+0x16/0x40\n\
            [ 1235.2]  shrink_page_list+0xa33/0xb10\n\
            [ 1235.3]  ? do_try_to_free_pages+0xc9/0x330\n\
            [ 1235.4] usb 1-1: new device foo+0x1\n\
            [ 1236.0] INFO: task jbd2/sda1-8:99 blocked for more than 120 seconds.\n\
            [ 1236.1]  [<ffffffff8107a6e0>] jbd2_journal_commit_transaction+0x123/0x456\n\
            [ 1237.0] INFO: task kworker/u8:1:77 blocked for more than 120 seconds.\n\
            [ 1238.0] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kswapd0:55]\n\
            [ 1238.1] RIP: 0010:shrink_slab+0x10/0x20\n\
            [ 1238.2]  balance_pgdat+0x1/0x2\n",
        );
        let read: Vec<_> = log
            .hung
            .iter()
            .map(|task| (&*task.name, task.pid, task.seconds, task.stuck, task.wait()))
            .collect();
        assert_eq!(
            read,
            [
                ("java", 4711, 120, false, Some(Wait::Reclaim)),
                ("jbd2/sda1-8", 99, 120, false, Some(Wait::Disk)),
                ("kworker/u8:1", 77, 120, false, None),
                ("kswapd0", 55, 22, true, Some(Wait::Reclaim)),
            ]
        );
        assert_eq!(log.hung[0].trace.len(), 4);
        for task in &log.hung {
            assert_eq!(
                headed(&head(task, &task.name)).map(|read| (read.pid, read.seconds)),
                Some((task.pid, task.seconds))
            );
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "task blocked for more than 3 seconds",
            "INFO: task x blocked for more than 120 seconds",
            "soft lockup",
        ] {
            assert!(headed(line).is_none(), "{line}");
        }
        assert_eq!(telling(" shrink_slab+0x1/0x2 [secret]").as_deref(), Some(" shrink_slab+0x0/0x0"));
        assert_eq!(telling(" acme_driver+0x1/0x2"), None);
    }
}
