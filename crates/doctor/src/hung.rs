//! Tasks that stood still: what most of them waited for, and who they are. For `hung-tasks` and the verdict.

use std::collections::BTreeMap;

use lotsfree_kernel_files::file::kernel_log::hung::{HungTask, Wait};

use crate::Context;

/// What most of the tasks waited for. The lock of an address space counts only where nothing else is told:
/// its holder waits for something.
pub(crate) fn common(tasks: &[&HungTask]) -> Option<Wait> {
    let mut counts: BTreeMap<Wait, usize> = BTreeMap::new();
    for wait in tasks.iter().filter_map(|task| task.wait()) {
        *counts.entry(wait).or_default() += 1;
    }
    if counts.len() > 1 {
        counts.remove(&Wait::MmapLock);
    }
    // Of equally many the one that is named first: memory before disks.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(wait, _)| wait)
}

/// `java and 3 other tasks stood still for more than 120 s`.
pub(crate) fn who(tasks: &[&HungTask]) -> String {
    let mut pids: Vec<u32> = tasks.iter().map(|task| task.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let Some(last) = tasks.last() else { return String::new() };
    let seconds = tasks.iter().map(|task| task.seconds).max().unwrap_or_default();
    let others = match pids.len() - 1 {
        0 => String::new(),
        1 => " and another task".to_owned(),
        n => format!(" and {n} other tasks"),
    };
    format!("{}{others} stood still for more than {seconds} s", last.name)
}

/// What tasks stood still for, if it was a disk or a server: a sentence for the verdict.
pub(crate) fn elsewhere(cx: &Context<'_>) -> Option<String> {
    let log = cx.now().kernel_log.as_ref()?;
    let still: Vec<&HungTask> = log.hung.iter().filter(|task| !task.stuck).collect();
    let wait = common(&still)?;
    let tasks: Vec<&HungTask> = still.into_iter().filter(|task| task.wait() == Some(wait)).collect();
    match wait {
        Wait::Disk => Some(format!("Not memory but a disk: {}.", who(&tasks))),
        Wait::Nfs => Some(format!("Not memory but an NFS server: {}.", who(&tasks))),
        _ => None,
    }
}

/// A task that held a CPU for long, and neither reclaimed nor compacted: a sentence for the verdict.
pub(crate) fn stuck(cx: &Context<'_>) -> Option<String> {
    let log = cx.now().kernel_log.as_ref()?;
    let task = log.hung.iter().rfind(|task| task.stuck)?;
    let reclaims = ["kswapd", "kcompactd", "khugepaged"].iter().any(|name| task.name.starts_with(name));
    (!reclaims && task.wait().is_none()).then(|| {
        format!("Not memory but CPU: {} held one for {} s without a pause.", task.name, task.seconds)
    })
}
