//! `lotsfree size`: fills the records of `lotsfree-size` from the command line and from a host.

use anyhow::Context;
use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_size::{
    Answer, HugepagesInput, OvercommitInput, PagetablesInput, Postgres, SwapInput, WatermarksInput,
    hugepages, overcommit, pagetables, swap, watermarks,
};
use lotsfree_snapshot::source::TreeSource;
use lotsfree_snapshot::{Options, Snapshot, collect, observe};
use lotsfree_units::{Bytes, PageSize, visible, visible_json};

use crate::cli::{
    SizeArgs, SizeCommon, SizeHugepages, SizeOvercommit, SizePagetables, SizeSwap, SizeTopic, SizeWatermarks,
};

/// Answers a sizing question.
pub(crate) fn run(arguments: &SizeArgs) -> anyhow::Result<u8> {
    let (answer, common) = match &arguments.topic {
        SizeTopic::Hugepages(topic) => (size_hugepages(topic, &Host::of(&topic.common)?)?, &topic.common),
        SizeTopic::Pagetables(topic) => (size_pagetables(topic, &Host::of(&topic.common)?)?, &topic.common),
        SizeTopic::Swap(topic) => (size_swap(topic, &Host::of(&topic.common)?)?, &topic.common),
        SizeTopic::Overcommit(topic) => (size_overcommit(topic, &Host::of(&topic.common)?)?, &topic.common),
        SizeTopic::Watermarks(topic) => (size_watermarks(topic, &Host::of(&topic.common)?)?, &topic.common),
    };
    let text = match common.json {
        true => visible_json(serde_json::to_string_pretty(&answer)? + "\n"),
        false => visible(&answer.to_text(common.page.columns())).into_owned(),
    };
    common.page.write(&text)?;
    Ok(0)
}

/// The host that figures are taken from; empty if none was asked for.
struct Host {
    snapshot: Snapshot,
}

impl Host {
    fn of(common: &SizeCommon) -> anyhow::Result<Host> {
        let options = Options { processes: false, ..Options::default() };
        let snapshot = match &common.from {
            Some(path) => observe(lotsfree_snapshot::source::open(path)?, &options).now,
            None if common.from_host => collect(&TreeSource::live().context("cannot open /")?, &options),
            None => Snapshot::default(),
        };
        Ok(Host { snapshot })
    }

    fn mem(
        &self,
        field: lotsfree_kernel_files::counters::Counter<lotsfree_kernel_files::counters::Meminfo>,
    ) -> Option<Bytes> {
        self.snapshot.meminfo.as_ref()?.get(field).map(Bytes::kib)
    }

    fn pools(&self) -> Option<Bytes> {
        let pools = self.snapshot.huge_pools.as_ref()?;
        Some(pools.iter().map(|pool| pool.bytes()).sum())
    }

    fn nodes(&self) -> Option<u32> {
        self.snapshot.nodes.as_ref().map(|nodes| nodes.len() as u32).filter(|&n| n > 0)
    }

    fn sysctl_kib(&self, name: &str) -> Option<Bytes> {
        self.snapshot.sysctl.number(name).map(Bytes::kib)
    }

    fn kernel(&self, common: &SizeCommon) -> Option<String> {
        let release = &self.snapshot.host.kernel.release;
        common.kernel.clone().or_else(|| (!release.is_empty()).then(|| release.clone()))
    }

    fn page(&self, common: &SizeCommon) -> Bytes {
        common.page_size.unwrap_or_else(|| self.snapshot.host.page_size.bytes())
    }
}

/// What a question cannot do without.
fn needed(value: Option<Bytes>, option: &str) -> anyhow::Result<Bytes> {
    value.with_context(|| {
        format!("{option} SIZE is missing; give it, or --from-host to take it from this host")
    })
}

fn size_hugepages(topic: &SizeHugepages, host: &Host) -> anyhow::Result<Answer> {
    let page = host.page(&topic.common);
    let default_huge = PageSize::new(page.0).unwrap_or_default().pmd_huge();
    let mut input = HugepagesInput {
        segments: topic.segment.clone(),
        ipcs: topic.ipcs,
        postgres: topic.postgres_pages.map(Postgres::Pages).or(topic.postgres_vmpeak.map(Postgres::VmPeak)),
        jvms: topic.jvm.clone(),
        sessions: topic.sessions,
        ram: topic.ram.or_else(|| host.mem(m::MemTotal)),
        others: topic.others,
        nodes: topic.nodes.or_else(|| host.nodes()).unwrap_or(1),
        page,
        huge_page: topic.huge_page_size.or_else(|| host.mem(m::Hugepagesize)).unwrap_or(default_huge),
        locked: topic.locked,
        kernel: host.kernel(&topic.common),
        user: topic.user.clone(),
        unit: topic.unit.clone(),
        shm_group: topic.shm_group,
        amm: topic.amm,
    };
    let nothing_given = input.segments.is_empty() && input.postgres.is_none() && input.jvms.is_empty();
    if let Some(shm) = host.snapshot.shm.as_ref().filter(|_| nothing_given) {
        // Segments that somebody is attached to; orphans should go, not be given huge pages.
        input.segments =
            shm.iter().filter(|segment| segment.nattch > 0).map(|segment| segment.size).collect();
        input.ipcs = true;
        input.segments.retain(|&size| size >= input.huge_page);
        anyhow::ensure!(
            !input.segments.is_empty(),
            "no System V shared segment of a huge page or more is attached on this host; start the instances, or give \
             --segment, --postgres-pages, --postgres-vmpeak or --jvm"
        );
    }
    Ok(hugepages(&input)?)
}

fn size_pagetables(topic: &SizePagetables, host: &Host) -> anyhow::Result<Answer> {
    Ok(pagetables(&PagetablesInput {
        mapping: topic.mapping,
        processes: topic.processes,
        page: host.page(&topic.common),
        five_levels: topic.five_levels,
        ram: topic.ram.or_else(|| host.mem(m::MemTotal)),
        kernel: host.kernel(&topic.common),
    })?)
}

fn size_swap(topic: &SizeSwap, host: &Host) -> anyhow::Result<Answer> {
    Ok(swap(&SwapInput {
        ram: needed(topic.ram.or_else(|| host.mem(m::MemTotal)), "--ram")?,
        hugetlb: topic.hugetlb.or_else(|| host.pools()).unwrap_or_default(),
        cold: topic.cold,
        bandwidth: topic.bandwidth,
        current: topic.current.or_else(|| host.mem(m::SwapTotal)),
    })?)
}

fn size_overcommit(topic: &SizeOvercommit, host: &Host) -> anyhow::Result<Answer> {
    let defaults = OvercommitInput::default();
    let kbytes = topic.kbytes.or_else(|| host.sysctl_kib("vm.overcommit_kbytes").filter(|bytes| bytes.0 > 0));
    let ratio = topic.ratio.or_else(|| host.snapshot.sysctl.number("vm.overcommit_ratio"));
    Ok(overcommit(&OvercommitInput {
        ram: needed(topic.ram.or_else(|| host.mem(m::MemTotal)), "--ram")?,
        hugetlb: topic.hugetlb.or_else(|| host.pools()).unwrap_or_default(),
        swap: topic.swap.or_else(|| host.mem(m::SwapTotal)).unwrap_or_default(),
        committed: topic.committed.or_else(|| host.mem(m::Committed_AS)).unwrap_or_default(),
        // What was given goes before what the host has; kbytes and ratio exclude each other.
        ratio: if topic.ratio.is_some() || kbytes.is_none() { ratio } else { None },
        kbytes: if topic.ratio.is_some() { None } else { kbytes },
        wanted: topic.wanted,
        admin_reserve: topic
            .admin_reserve
            .or_else(|| host.sysctl_kib("vm.admin_reserve_kbytes"))
            .unwrap_or(defaults.admin_reserve),
        user_reserve: topic
            .user_reserve
            .or_else(|| host.sysctl_kib("vm.user_reserve_kbytes"))
            .unwrap_or(defaults.user_reserve),
        admin: topic.admin,
        vm_size: topic.vm_size,
        cache: None,
        page: host.page(&topic.common),
        kernel: host.kernel(&topic.common),
    })?)
}

fn size_watermarks(topic: &SizeWatermarks, host: &Host) -> anyhow::Result<Answer> {
    let defaults = WatermarksInput::default();
    let zones = host.snapshot.zones.as_ref().map(|zones| {
        let managed = |zone: &&lotsfree_kernel_files::file::zoneinfo::Zone| {
            zone.marks.get(lotsfree_kernel_files::counters::zoneinfo::managed).is_some_and(|pages| pages > 0)
        };
        zones.iter().filter(managed).count() as u64
    });
    let thp_off = host.snapshot.thp.as_ref().is_some_and(|thp| &*thp.enabled.selected == "never");
    Ok(watermarks(&WatermarksInput {
        ram: needed(topic.ram.or_else(|| host.mem(m::MemTotal)), "--ram")?,
        nodes: topic.nodes.or_else(|| host.nodes()).unwrap_or(1),
        zones: topic.zones.or(zones.filter(|&n| n > 0)),
        thp: !(topic.no_thp || thp_off),
        scale_factor: topic
            .scale_factor
            .or_else(|| host.snapshot.sysctl.number("vm.watermark_scale_factor"))
            .unwrap_or(defaults.scale_factor),
        min_free: topic.min_free.or_else(|| host.sysctl_kib("vm.min_free_kbytes")),
        burst: topic.burst,
        wake_ms: topic.wake,
        page: host.page(&topic.common),
        kernel: host.kernel(&topic.common),
    })?)
}
