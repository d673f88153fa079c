//! `lotsfree size`: passes the known figures of a host to the questions of `lotsfree-size`, and prints the
//! answer.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lotsfree_kernel_files::counters::{Counter, Meminfo, Values, meminfo as m, zoneinfo as z};
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_kernel_files::newest_without_a_line;
use lotsfree_settings::{
    ADMIN_RESERVE_KBYTES, MIN_FREE_KBYTES, OVERCOMMIT_KBYTES, OVERCOMMIT_RATIO, USER_RESERVE_KBYTES,
    WATERMARK_SCALE_FACTOR,
};
use lotsfree_size::{
    CacheFigures, HostFigures, HostMemory, HostPool, HostShared, KernelBy, Listed, Question, ReserveZone,
    ipcs, nearest_rules, reckoned_for,
};
use lotsfree_snapshot::source::TreeSource;
use lotsfree_snapshot::{Observation, Options, Snapshot, THIS_HOST, collect, observe};
use lotsfree_units::{Bytes, visible, visible_json};

use crate::cli::{Asked, SizeArgs, SizeCommon, SizeTopic};
use crate::doctor;

/// Answers a sizing question.
pub(crate) fn run(arguments: SizeArgs) -> anyhow::Result<u8> {
    match arguments.topic {
        SizeTopic::Hugepages(mut asked) => {
            if let Some(path) = asked.input.ipcs.take() {
                asked.input.listed.extend(listed(&path)?);
            }
            answer(*asked)
        }
        SizeTopic::Pagetables(asked) => answer(asked),
        SizeTopic::Swap(asked) => answer(asked),
        SizeTopic::Overcommit(asked) => answer(asked),
        SizeTopic::Watermarks(asked) => answer(asked),
    }
}

/// The segments of a file with the output of `ipcs -m`, or of standard input.
fn listed(path: &Path) -> anyhow::Result<Vec<Listed>> {
    let (name, bytes) = match path.as_os_str() == "-" {
        true => ("standard input".to_owned(), read(io::stdin())),
        false => {
            let file = lotsfree_storage::open_regular(path);
            (path.display().to_string(), file.and_then(read))
        }
    };
    let bytes = bytes.with_context(|| format!("cannot read {name}"))?;
    anyhow::ensure!(
        bytes.len() as u64 <= IPCS_MOST,
        "{name}: more than {}; ipcs -m prints less for any host",
        Bytes(IPCS_MOST)
    );
    // A list in an old encoding has other letters in its head only.
    ipcs(&String::from_utf8_lossy(&bytes)).with_context(|| format!("--ipcs {name}"))
}

/// Most bytes of the output of `ipcs -m` that are read: a hundred for each segment that a kernel can have.
const IPCS_MOST: u64 = 100 << 15;

/// Reads a little more than [`IPCS_MOST`] bytes at most.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(IPCS_MOST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn answer<Input: Question + Args>(asked: Asked<Input>) -> anyhow::Result<u8> {
    let Asked { mut input, common } = asked;
    let mut by = match input.kernel() {
        Some(Some(_)) => KernelBy::Option,
        _ => KernelBy::Nothing { sourced: false },
    };
    if let Some(observation) = observed(&common)? {
        let mut host = figures(&observation);
        let found = release(&observation.now);
        if by != KernelBy::Option {
            by = found.as_ref().map_or(KernelBy::Nothing { sourced: true }, |(_, by)| by.clone());
        }
        // A kernel without Shmem is older than transparent huge pages.
        host.thp_never |= matches!(found, Some((_, KernelBy::Lines { lacks: "Shmem" })));
        host.kernel = found.map(|(kernel, _)| kernel);
        input.take_from(&host)?;
    }
    let mut answer = input.answer()?;
    answer.kernel = input.kernel().map(|kernel| reckoned_for(kernel, &by)).transpose()?;
    let text = match common.json {
        true => visible_json(serde_json::to_string_pretty(&answer)? + "\n"),
        false => visible(&answer.to_text(common.page.columns(), common.verbose)).into_owned(),
    };
    common.page.write(&text)?;
    Ok(0)
}

/// The host from which figures are taken, if any. Of processes the lengths of shared mappings count, for
/// which no page table has to be walked.
fn observed(common: &SizeCommon) -> anyhow::Result<Option<Observation>> {
    let options = Options { walk_budget: Duration::ZERO, ..Options::default() };
    Ok(match &common.from {
        Some(path) => Some(observe(doctor::open(path)?, &options)),
        None if common.from_host => {
            let now = collect(&TreeSource::live().context("cannot open /")?, &options);
            Some(Observation::instant(THIS_HOST, now))
        }
        None => None,
    })
}

/// The kernel that a source is of, by its release, else by the lines of its `/proc/meminfo`.
fn release(snapshot: &Snapshot) -> Option<(String, KernelBy)> {
    let release = &snapshot.host.kernel.release;
    if !release.is_empty() {
        return Some((release.clone(), KernelBy::Release));
    }
    let (newest, lacks) = newest_without_a_line(snapshot.meminfo.as_ref()?)?;
    Some((nearest_rules(newest).to_owned(), KernelBy::Lines { lacks }))
}

/// Figures of a host, without its kernel.
fn figures(observation: &Observation) -> HostFigures {
    let snapshot = &observation.now;
    let mem = |field: Counter<Meminfo>| snapshot.meminfo.as_ref()?.get(field).map(Bytes::kib);
    let kbytes = |setting: &str| snapshot.sysctl.number(setting).map(Bytes::kib);
    let managed = |zone: &&Zone| zone.marks.get(z::managed).is_some_and(|pages| pages > 0);
    let zones = snapshot.zones.as_ref().map(|zones| zones.iter().filter(managed).count() as u64);
    HostFigures {
        kernel: None,
        page: Some(snapshot.host.page_size.bytes()),
        huge_page: mem(m::Hugepagesize),
        ram: mem(m::MemTotal),
        hugetlb: snapshot.huge_pools.as_ref().map(|pools| pools.iter().map(|pool| pool.bytes()).sum()),
        swap: mem(m::SwapTotal),
        committed: mem(m::Committed_AS),
        nodes: snapshot.nodes.as_ref().map(|nodes| nodes.len() as u32).filter(|&n| n > 0),
        zones: zones.filter(|&n| n > 0),
        thp_never: snapshot.thp.as_ref().is_some_and(|thp| &*thp.enabled.selected == "never"),
        memory: memory(observation),
        overcommit_ratio: snapshot.sysctl.number(OVERCOMMIT_RATIO),
        overcommit_kbytes: kbytes(OVERCOMMIT_KBYTES),
        admin_reserve: kbytes(ADMIN_RESERVE_KBYTES),
        user_reserve: kbytes(USER_RESERVE_KBYTES),
        scale_factor: snapshot.sysctl.number(WATERMARK_SCALE_FACTOR),
        min_free: kbytes(MIN_FREE_KBYTES),
        cache: cache(snapshot),
    }
}

/// What the host uses memory for beside huge pages, and what of it could be in them.
fn memory(observation: &Observation) -> HostMemory {
    let snapshot = &observation.now;
    let mem = |field: Counter<Meminfo>| snapshot.meminfo.as_ref()?.get(field).map(Bytes::kib);
    let pool = |pool: &HugePool| HostPool {
        size: pool.size,
        total: pool.total,
        promised: pool.used().saturating_add(pool.reserved),
    };
    let shared = |shared: lotsfree_doctor::Shared| HostShared {
        size: shared.size,
        resident: shared.resident,
        mappers: shared.mappers,
        sysv: shared.sysv,
        in_base_pages: shared.in_base_pages,
    };
    HostMemory {
        anon: mem(m::AnonPages),
        shmem: mem(m::Shmem),
        slab: mem(m::Slab),
        page_tables: mem(m::PageTables),
        kernel_stacks: mem(m::KernelStack),
        swapped: mem(m::SwapTotal).zip(mem(m::SwapFree)).map(|(total, free)| total - free),
        pools: match &snapshot.huge_pools {
            Some(pools) => Some(pools.iter().map(pool).collect()),
            None => snapshot.meminfo.as_ref().and_then(only_pool).map(|only| vec![only]),
        },
        shared: lotsfree_doctor::shared_memory(observation).map(|all| all.into_iter().map(shared).collect()),
    }
}

/// The pool of the default size as `/proc/meminfo` has it, if that is all that pools hold.
fn only_pool(meminfo: &Values<Meminfo>) -> Option<HostPool> {
    let size = Bytes::kib(meminfo.get(m::Hugepagesize)?);
    let total = meminfo.get(m::HugePages_Total)?;
    let free = meminfo.get(m::HugePages_Free)?;
    let promised = total.saturating_sub(free).saturating_add(meminfo.get(m::HugePages_Rsvd)?);
    let all = Bytes::kib(meminfo.get(m::Hugetlb)?);
    (all == size.times(total)).then_some(HostPool { size, total, promised })
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
