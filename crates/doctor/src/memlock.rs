//! Databases that may lock less memory than their segments have, so that the segments get no huge pages.

use std::collections::BTreeMap;

use lotsfree_formulas::Rules;
use lotsfree_formulas::memlock::{Owner, shm_hugetlb_permitted};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_settings::HUGETLB_SHM_GROUP;
use lotsfree_units::Bytes;

use crate::finding::subject;
use crate::huge::{self, Segment};
use crate::{Context, Skip, Workload};

/// A database whose limit keeps its segment out of huge pages.
#[derive(Debug)]
pub(crate) struct Low<'a> {
    pub(crate) process: &'a Process,
    pub(crate) database: Workload,
    /// The limit on locked memory; `None` is unlimited.
    pub(crate) limit: Option<Bytes>,
    pub(crate) segment: Segment,
    /// Whether the kernel ignores the limit and requires the group or the capability.
    pub(crate) ignored: bool,
}

impl Low<'_> {
    /// The case in words, without a full stop.
    pub(crate) fn text(&self) -> String {
        let who = subject(self.process);
        let limit = self.limit.map_or("any amount of memory".to_owned(), |limit| limit.to_string());
        let Segment { label, size, .. } = &self.segment;
        if self.ignored {
            format!(
                "{who} is in no group that may use huge pages ({label}, {size}), and this kernel ignores \
                 its limit"
            )
        } else {
            format!("{who} may lock {limit}, but its segment ({label}) has {size}")
        }
    }
}

/// Databases whose largest segment in base pages exceeds the memory that they may lock, one entry per user.
pub(crate) fn too_low<'a>(cx: &Context<'a>) -> Result<Vec<Low<'a>>, Skip> {
    let processes = cx.processes()?;
    if !cx.workloads().iter().any(|w| w.is_database()) {
        return Err(Skip::because("no known database runs"));
    }
    cx.shm()?;
    let group = cx.now().sysctl.number(HUGETLB_SHM_GROUP).unwrap_or(0);
    if group != 0 {
        return Err(Skip::because(format!(
            "vm.hugetlb_shm_group = {group}: its members get huge pages whatever their limit"
        )));
    }
    let release = &cx.now().host.kernel.release;
    let rules = Rules::of_release(release).unwrap_or_else(Rules::linux_5_15).memlock;
    let mut largest: BTreeMap<u32, Segment> = BTreeMap::new();
    for segment in huge::candidates(cx, huge::default_size(cx)?)? {
        if let (Some(uid), Some(_), Some(_)) = (segment.uid, segment.shmid, segment.database) {
            largest.entry(uid).or_insert(segment);
        }
    }
    let mut found: BTreeMap<u32, Low<'a>> = BTreeMap::new();
    let mut without_limits = false;
    for process in processes {
        let (Some(uid), Some(database)) = (process.uid, Workload::database_of(process)) else { continue };
        let Some(segment) = largest.get(&uid) else { continue };
        let limits = process.detail.as_ref().and_then(|detail| detail.limits);
        let Some((soft, _)) = limits.and_then(|limits| limits.locked_memory) else {
            without_limits = true;
            continue;
        };
        let owner = Owner {
            ipc_lock: process.has_cap_ipc_lock().unwrap_or(false),
            in_shm_group: false,
            memlock: soft.bytes(),
            locked: Bytes::ZERO,
        };
        if shm_hugetlb_permitted(&rules, &owner, segment.size) {
            continue;
        }
        let low = Low {
            process,
            database,
            limit: soft.bytes(),
            segment: segment.clone(),
            ignored: !rules.rlimit_allows_hugetlb,
        };
        let entry = found.entry(uid);
        entry.or_insert(low);
    }
    if found.is_empty() && without_limits {
        return Err(Skip::missing("/proc/PID/limits Max locked memory"));
    }
    Ok(found.into_values().collect())
}
