use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity};

rule! {
    /// Shared memory segments that no process has attached take memory.
    ///
    /// # Sees
    /// Segments of `/proc/sysvipc/shm` with `nattch` 0, with what they hold in memory and in swap (their
    /// size where the kernel does not say), together above 1 % of memory.
    ///
    /// # Hurts
    /// A System V segment outlives its processes: after a crash or `kill -9` it stays until somebody
    /// removes it, in memory, in swap or in the huge page pool, and the restarted instance makes another
    /// one.
    ///
    /// # Remedies
    /// `ipcrm -m ID`, after a look at who made it.
    ///
    /// # False alarms
    /// Some programs detach and come back, and some restart onto their old segment: one that was detached
    /// in the last ten minutes, or whose maker still runs, does not count.
    ///
    /// # References
    /// `ipcrm(1)`; ipc/shm.c:shm_destroy_orphaned and `kernel.shm_rmid_forced` (6.12); measured: 6.18 shows
    /// 512 times the memory of a segment in 2 MiB pages, so that no segment is taken for more than its
    /// size.
    pub OrphanShm = "orphan-shm" in HugePages
}

/// Less is not worth a look.
const WORTH: f64 = 0.01;
/// A twentieth of memory: as much as the host should have free.
const HIGH: f64 = 0.05;
/// A program that restarts comes back sooner.
const RESTART: f64 = 600.0;
/// Segments that are listed.
const LISTED: usize = 8;

impl Rule for OrphanShm {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let shm = cx.shm()?;
        let total = cx.total()?;
        let alive = |pid: u32| cx.processes().unwrap_or_default().iter().any(|p| p.stat.pid == pid);
        let recent = |s: &ShmSegment| {
            let now = cx.now().taken_at;
            now.is_some_and(|now| now - s.dtime.max(s.ctime) as f64 <= RESTART)
        };
        let mut orphans: Vec<&ShmSegment> =
            shm.iter().filter(|s| s.nattch == 0 && !alive(s.cpid) && !recent(s)).collect();
        orphans.sort_by_key(|segment| std::cmp::Reverse(held(segment)));
        let sum: Bytes = orphans.iter().copied().map(held).sum();
        if sum.share_of(total) <= WORTH {
            return Ok(Vec::new());
        }
        let severity = if sum.share_of(total) > HIGH { Severity::High } else { Severity::Warning };
        let title = format!(
            "{} shared memory {} {sum}, {} of memory",
            Grouped(orphans.len() as u64),
            if orphans.len() == 1 {
                "segment that nobody has attached holds"
            } else {
                "segments that nobody has attached hold"
            },
            Percent(sum.share_of(total))
        );
        let known = orphans.iter().all(|segment| segment.rss.is_some());
        let text =
            if known { "in memory or swap, for nobody" } else { "at most: this kernel shows sizes only" };
        let mut finding = Finding::new(Self::ID, severity, title, Cost::memory(sum, total, text));
        finding.sure(if known && cx.processes().is_ok() { Confidence::Likely } else { Confidence::Possible });
        let mut remedy = Remedy::new("Remove them, once their owner has confirmed that they are left over");
        for segment in orphans.iter().take(LISTED) {
            let held = held(segment);
            finding.because(
                Evidence::new("/proc/sysvipc/shm", "nattch", format!("0, {held} held of {}", segment.size))
                    .of(format!(
                        "shmid {} of uid {}, made by pid {}",
                        segment.shmid, segment.uid, segment.cpid
                    )),
            );
            remedy = remedy.run(format!("ipcrm -m {}", segment.shmid));
        }
        finding.remedy(remedy.risk(
            "What is in the segment is gone; a database that means to restart onto it has to recover \
             instead.",
        ));
        if orphans.len() > LISTED {
            finding.note(format!("The largest {LISTED} are listed; ipcs -m shows all."));
        }
        if cx.processes().is_err() {
            finding.note("Processes were not read: whether the makers still run is not known.");
        }
        if cx.now().taken_at.is_none() {
            finding
                .note("The time of the data is not known: a program that is just restarting looks the same.");
        }
        Ok(vec![finding])
    }
}

/// What a segment holds in memory and swap: never more than its size (the kernel may multiply huge pages),
/// and the size where the kernel does not say.
fn held(segment: &ShmSegment) -> Bytes {
    match (segment.rss, segment.swap) {
        (None, None) => segment.size,
        (rss, swap) => (rss.unwrap_or_default() + swap.unwrap_or_default()).min(segment.size),
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::Values;
    use lotsfree_snapshot::{Observation, Snapshot};

    use super::*;

    #[test]
    fn a_segment_that_was_just_detached_is_no_orphan_yet() {
        let check = |detached: u64| {
            let mut meminfo = Values::default();
            meminfo.set(lotsfree_kernel_files::counters::meminfo::MemTotal, 16 << 20);
            let segment = ShmSegment {
                size: Bytes::gib(1),
                rss: Some(Bytes::gib(1)),
                swap: Some(Bytes::ZERO),
                dtime: detached,
                ..ShmSegment::default()
            };
            let now = Snapshot {
                taken_at: Some(1_795_220_000.0),
                meminfo: Some(meminfo),
                shm: Some(vec![segment]),
                ..Snapshot::default()
            };
            let observation = Observation::instant("test", now);
            OrphanShm.check(&Context::new(&observation)).map(|findings| findings.len())
        };
        assert_eq!(check(1_795_220_000 - 599), Ok(0));
        assert_eq!(check(1_795_220_000 - 601), Ok(1));
        assert_eq!(check(0), Ok(1));
    }
}
