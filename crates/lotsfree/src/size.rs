//! `lotsfree size`: passes the known figures of a host to the questions of `lotsfree-size`, and prints the
//! answer.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo as m, zoneinfo as z};
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_settings::{
    ADMIN_RESERVE_KBYTES, MIN_FREE_KBYTES, OVERCOMMIT_KBYTES, OVERCOMMIT_RATIO, USER_RESERVE_KBYTES,
    WATERMARK_SCALE_FACTOR,
};
use lotsfree_size::{CacheFigures, HostFigures, Question, ReserveZone};
use lotsfree_snapshot::source::TreeSource;
use lotsfree_snapshot::{Observation, Options, Snapshot, THIS_HOST, collect, observe};
use lotsfree_units::{Bytes, visible, visible_json};

use crate::cli::{Asked, SizeArgs, SizeCommon, SizeTopic};

/// Answers a sizing question.
pub(crate) fn run(arguments: SizeArgs) -> anyhow::Result<u8> {
    match arguments.topic {
        SizeTopic::Hugepages(asked) => answer(asked),
        SizeTopic::Pagetables(asked) => answer(asked),
        SizeTopic::Swap(asked) => answer(asked),
        SizeTopic::Overcommit(asked) => answer(asked),
        SizeTopic::Watermarks(asked) => answer(asked),
    }
}

fn answer<Input: Question + Args>(asked: Asked<Input>) -> anyhow::Result<u8> {
    let Asked { mut input, common } = asked;
    if let Some(observation) = observed(&common)? {
        input.take_from(&figures(&observation))?;
    }
    let answer = input.answer()?;
    let text = match common.json {
        true => visible_json(serde_json::to_string_pretty(&answer)? + "\n"),
        false => visible(&answer.to_text(common.page.columns())).into_owned(),
    };
    common.page.write(&text)?;
    Ok(0)
}

/// The host from which figures are taken, if any. Of processes the lengths of shared mappings count, for
/// which no page table has to be walked.
fn observed(common: &SizeCommon) -> anyhow::Result<Option<Observation>> {
    let options = Options { walk_budget: Duration::ZERO, ..Options::default() };
    Ok(match &common.from {
        Some(path) => Some(observe(lotsfree_snapshot::source::open(path)?, &options)),
        None if common.from_host => {
            let now = collect(&TreeSource::live().context("cannot open /")?, &options);
            Some(Observation::instant(THIS_HOST, now))
        }
        None => None,
    })
}

fn figures(observation: &Observation) -> HostFigures {
    let snapshot = &observation.now;
    let mem = |field: Counter<Meminfo>| snapshot.meminfo.as_ref()?.get(field).map(Bytes::kib);
    let kbytes = |setting: &str| snapshot.sysctl.number(setting).map(Bytes::kib);
    let managed = |zone: &&Zone| zone.marks.get(z::managed).is_some_and(|pages| pages > 0);
    let zones = snapshot.zones.as_ref().map(|zones| zones.iter().filter(managed).count() as u64);
    let release = &snapshot.host.kernel.release;
    HostFigures {
        kernel: (!release.is_empty()).then(|| release.clone()),
        page: Some(snapshot.host.page_size.bytes()),
        huge_page: mem(m::Hugepagesize),
        ram: mem(m::MemTotal),
        hugetlb: snapshot.huge_pools.as_ref().map(|pools| pools.iter().map(|pool| pool.bytes()).sum()),
        swap: mem(m::SwapTotal),
        committed: mem(m::Committed_AS),
        nodes: snapshot.nodes.as_ref().map(|nodes| nodes.len() as u32).filter(|&n| n > 0),
        zones: zones.filter(|&n| n > 0),
        thp_never: snapshot.thp.as_ref().is_some_and(|thp| &*thp.enabled.selected == "never"),
        segments: lotsfree_doctor::shared_sizes(observation),
        overcommit_ratio: snapshot.sysctl.number(OVERCOMMIT_RATIO),
        overcommit_kbytes: kbytes(OVERCOMMIT_KBYTES),
        admin_reserve: kbytes(ADMIN_RESERVE_KBYTES),
        user_reserve: kbytes(USER_RESERVE_KBYTES),
        scale_factor: snapshot.sysctl.number(WATERMARK_SCALE_FACTOR),
        min_free: kbytes(MIN_FREE_KBYTES),
        cache: cache(snapshot),
    }
}

/// Figures of page cache, slab and reserves that overcommit mode 0 considered before 5.2.
fn cache(snapshot: &Snapshot) -> Option<CacheFigures> {
    let meminfo = snapshot.meminfo.as_ref()?;
    let mem = |field: Counter<Meminfo>| meminfo.get(field).map(Bytes::kib);
    let reserve = |zone: &Zone| {
        Some(ReserveZone {
            managed: zone.marks.get(z::managed).or_else(|| zone.marks.get(z::present))?,
            high: zone.marks.get(z::high)?.saturating_sub(zone.marks.get(z::boost).unwrap_or(0)),
            protection_max: zone.protection.iter().copied().max().unwrap_or(0),
        })
    };
    Some(CacheFigures {
        free: mem(m::MemFree)?,
        file: mem(m::Cached)? + mem(m::Buffers)? + mem(m::SwapCached)?,
        shmem: mem(m::Shmem).unwrap_or_default(),
        slab_reclaimable: mem(m::SReclaimable).unwrap_or_default(),
        swap_free: mem(m::SwapFree)?,
        zones: snapshot.zones.as_ref()?.iter().filter_map(reserve).collect(),
    })
}
