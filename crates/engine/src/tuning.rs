//! [`Tuning`]: the sysctls that the model obeys, under the kernel's names and in its units.

use lotsfree_formulas::dirty::DirtyLimit;
use lotsfree_units::Bytes;

/// Settings of a machine. `None` means the kernel's own default, which depends on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// `vm.swappiness`
    pub swappiness: u64,
    /// `vm.min_free_kbytes`, KiB
    pub min_free_kbytes: Option<u64>,
    /// `vm.watermark_scale_factor`, ten-thousandths
    pub watermark_scale_factor: u64,
    /// `vm.watermark_boost_factor`, ten-thousandths of the high mark
    pub watermark_boost_factor: u64,
    /// `vm.extra_free_kbytes`, KiB (RHEL 6)
    pub extra_free_kbytes: u64,
    /// `vm.lowmem_reserve_ratio`: DMA, DMA32, Normal, Movable
    pub lowmem_reserve_ratio: [u64; 4],
    /// `vm.zone_reclaim_mode`, bits 1, 2 and 4
    pub zone_reclaim_mode: Option<u64>,
    /// `vm.min_unmapped_ratio`, percent
    pub min_unmapped_ratio: u64,
    /// `vm.min_slab_ratio`, percent
    pub min_slab_ratio: u64,
    /// `vm.dirty_ratio` or `vm.dirty_bytes`
    pub dirty: DirtyLimit,
    /// `vm.dirty_background_ratio` or `vm.dirty_background_bytes`
    pub dirty_background: DirtyLimit,
    /// `vm.dirty_expire_centisecs`
    pub dirty_expire_centisecs: u64,
    /// `vm.dirty_writeback_centisecs`; 0 stops the periodic flusher
    pub dirty_writeback_centisecs: u64,
    /// `vm.page-cluster`: swap readahead is at most 2 to this power
    pub page_cluster: u64,
    /// `vm.pagecache_limit_mb` of SLES, MiB; 0 is off
    pub pagecache_limit_mb: u64,
    /// `vm.pagecache_limit_ignore_dirty` of SLES: 0, 1 or 2
    pub pagecache_limit_ignore_dirty: u64,
    /// `vm.laptop_mode`
    pub laptop_mode: u64,
    /// `vm.percpu_pagelist_high_fraction`; 0 is the default size
    pub percpu_pagelist_high_fraction: u64,
    /// `/sys/block/*/queue/read_ahead_kb`, KiB
    pub read_ahead_kb: u64,
    /// `/sys/kernel/mm/transparent_hugepage/enabled` is not `never`: khugepaged raises `min_free_kbytes`;
    /// `None` as the kernel decides at boot
    pub transparent_hugepage: Option<bool>,
    /// `/sys/kernel/mm/lru_gen/min_ttl_ms`
    pub lru_gen_min_ttl_ms: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            swappiness: 60,
            min_free_kbytes: None,
            watermark_scale_factor: 10,
            watermark_boost_factor: 15_000,
            extra_free_kbytes: 0,
            lowmem_reserve_ratio: [256, 256, 32, 0],
            zone_reclaim_mode: None,
            min_unmapped_ratio: 1,
            min_slab_ratio: 5,
            dirty: DirtyLimit::Percent(20),
            dirty_background: DirtyLimit::Percent(10),
            dirty_expire_centisecs: 3000,
            dirty_writeback_centisecs: 500,
            page_cluster: 3,
            pagecache_limit_mb: 0,
            pagecache_limit_ignore_dirty: 1,
            laptop_mode: 0,
            percpu_pagelist_high_fraction: 0,
            read_ahead_kb: 128,
            transparent_hugepage: None,
            lru_gen_min_ttl_ms: 0,
        }
    }
}

impl Tuning {
    /// Sets one sysctl by its name. `Err` says what would be accepted.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = |low: u64, high: u64| match value.trim().parse::<u64>() {
            Ok(number) if (low..=high).contains(&number) => Ok(number),
            _ => Err(format!("{key} must be a whole number from {low} to {high}, not {value:?}")),
        };
        match key {
            "vm.swappiness" => self.swappiness = number(0, 200)?,
            "vm.min_free_kbytes" => self.min_free_kbytes = Some(number(0, u64::MAX >> 20)?),
            "vm.watermark_scale_factor" => self.watermark_scale_factor = number(1, 3000)?,
            "vm.watermark_boost_factor" => self.watermark_boost_factor = number(0, u32::MAX.into())?,
            "vm.extra_free_kbytes" => self.extra_free_kbytes = number(0, u64::MAX >> 20)?,
            "vm.lowmem_reserve_ratio" => {
                let mut ratios = [0; 4];
                let mut words = value.split_whitespace();
                for ratio in &mut ratios {
                    *ratio = match words.next() {
                        Some(word) => word.parse().map_err(|_| format!("{key}: {word:?} is not a number"))?,
                        None => 0,
                    };
                }
                self.lowmem_reserve_ratio = ratios;
            }
            "vm.zone_reclaim_mode" => self.zone_reclaim_mode = Some(number(0, 7)?),
            "vm.min_unmapped_ratio" => self.min_unmapped_ratio = number(0, 100)?,
            "vm.min_slab_ratio" => self.min_slab_ratio = number(0, 100)?,
            "vm.dirty_ratio" => self.dirty = DirtyLimit::Percent(number(0, 100)?),
            "vm.dirty_bytes" => self.dirty = DirtyLimit::Bytes(Bytes(number(8192, u64::MAX >> 1)?)),
            "vm.dirty_background_ratio" => self.dirty_background = DirtyLimit::Percent(number(0, 100)?),
            "vm.dirty_background_bytes" => {
                self.dirty_background = DirtyLimit::Bytes(Bytes(number(1, u64::MAX >> 1)?));
            }
            "vm.dirty_expire_centisecs" => self.dirty_expire_centisecs = number(0, u32::MAX.into())?,
            "vm.dirty_writeback_centisecs" => self.dirty_writeback_centisecs = number(0, u32::MAX.into())?,
            "vm.page-cluster" => self.page_cluster = number(0, 10)?,
            "vm.pagecache_limit_mb" => self.pagecache_limit_mb = number(0, u64::MAX >> 20)?,
            "vm.pagecache_limit_ignore_dirty" => self.pagecache_limit_ignore_dirty = number(0, 2)?,
            "vm.laptop_mode" => self.laptop_mode = number(0, u32::MAX.into())?,
            "vm.percpu_pagelist_high_fraction" => {
                self.percpu_pagelist_high_fraction = number(0, u32::MAX.into())?;
            }
            "block.queue.read_ahead_kb" => self.read_ahead_kb = number(0, 1 << 20)?,
            "kernel.mm.transparent_hugepage.enabled" => {
                self.transparent_hugepage = match value {
                    "always" | "madvise" => Some(true),
                    "never" => Some(false),
                    _ => return Err(format!("{key} must be always, madvise or never, not {value:?}")),
                };
            }
            "kernel.numa_balancing" if value.trim() == "0" => {}
            "kernel.numa_balancing" => {
                return Err(format!("{key}: pages of the model stay where they are; write 0"));
            }
            "kernel.mm.lru_gen.min_ttl_ms" => self.lru_gen_min_ttl_ms = number(0, u32::MAX.into())?,
            _ => return Err(format!("the model does not know {key}")),
        }
        Ok(())
    }
}
