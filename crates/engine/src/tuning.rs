//! [`Tuning`]: the sysctls that the model obeys, under the kernel's names and in its units.

use lotsfree_formulas::dirty::DirtyLimit;
use lotsfree_formulas::overcommit::{LimitSetting, Mode};
use lotsfree_settings::*;
use lotsfree_units::Bytes;

use crate::generation::Generation;

/// Settings of a machine. `None` stands for the kernel's own default, which depends on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// `vm.swappiness`
    pub swappiness: u64,
    /// `vm.min_free_kbytes`, KiB
    pub min_free_kbytes: Option<u64>,
    /// `vm.watermark_scale_factor`, ten-thousandths
    pub watermark_scale_factor: u64,
    /// `vm.watermark_boost_factor`, ten-thousandths of the high mark; 0 never raises watermarks
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
    /// Whether `/sys/kernel/mm/transparent_hugepage/enabled` is other than `never`, in which case khugepaged
    /// raises `min_free_kbytes`; `None` as the kernel decides at boot
    pub transparent_hugepage: Option<bool>,
    /// `/sys/kernel/mm/lru_gen/min_ttl_ms`
    pub lru_gen_min_ttl_ms: u64,
    /// `vm.nr_hugepages`: pages of the pool, if there are free blocks for them.
    pub nr_hugepages: u64,
    /// `vm.nr_overcommit_hugepages`
    pub nr_overcommit_hugepages: u64,
    /// `vm.overcommit_memory`
    pub overcommit: Mode,
    /// `vm.overcommit_ratio` or `vm.overcommit_kbytes`
    pub commit_limit: LimitSetting,
    /// `vm.admin_reserve_kbytes`, KiB
    pub admin_reserve_kbytes: Option<u64>,
    /// `vm.user_reserve_kbytes`, KiB
    pub user_reserve_kbytes: Option<u64>,
    /// `vm.oom_kill_allocating_task`
    pub oom_kill_allocating_task: bool,
}

/// Default of a setting on the newest kernel.
fn initially(name: &str) -> u64 {
    find(name).and_then(|setting| setting.default_number(Release::NEWEST)).unwrap_or(0)
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            swappiness: initially(SWAPPINESS),
            min_free_kbytes: None,
            watermark_scale_factor: initially(WATERMARK_SCALE_FACTOR),
            watermark_boost_factor: initially(WATERMARK_BOOST_FACTOR),
            extra_free_kbytes: initially(EXTRA_FREE_KBYTES),
            lowmem_reserve_ratio: [256, 256, 32, 0],
            zone_reclaim_mode: None,
            min_unmapped_ratio: initially(MIN_UNMAPPED_RATIO),
            min_slab_ratio: initially(MIN_SLAB_RATIO),
            dirty: DirtyLimit::Percent(initially(DIRTY_RATIO)),
            dirty_background: DirtyLimit::Percent(initially(DIRTY_BACKGROUND_RATIO)),
            dirty_expire_centisecs: initially(DIRTY_EXPIRE_CENTISECS),
            dirty_writeback_centisecs: initially(DIRTY_WRITEBACK_CENTISECS),
            page_cluster: initially(PAGE_CLUSTER),
            pagecache_limit_mb: initially(PAGECACHE_LIMIT_MB),
            pagecache_limit_ignore_dirty: initially(PAGECACHE_LIMIT_IGNORE_DIRTY),
            laptop_mode: initially(LAPTOP_MODE),
            percpu_pagelist_high_fraction: initially(PERCPU_PAGELIST_HIGH_FRACTION),
            read_ahead_kb: initially(READ_AHEAD_KB),
            transparent_hugepage: None,
            lru_gen_min_ttl_ms: initially(LRU_GEN_MIN_TTL_MS),
            nr_hugepages: initially(NR_HUGEPAGES),
            nr_overcommit_hugepages: initially(NR_OVERCOMMIT_HUGEPAGES),
            overcommit: Mode::Heuristic,
            commit_limit: LimitSetting::Ratio(initially(OVERCOMMIT_RATIO)),
            admin_reserve_kbytes: None,
            user_reserve_kbytes: None,
            oom_kill_allocating_task: false,
        }
    }
}

impl Tuning {
    /// Settings of a kernel that nobody has changed.
    pub fn of(generation: &Generation) -> Self {
        Tuning { dirty: DirtyLimit::Percent(generation.dirty_ratio), ..Tuning::default() }
    }

    /// Sets one setting to a value that the table accepts.
    ///
    /// # Errors
    /// Says what the model lacks if it does not obey the setting or does not obey that value.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match value {
            Value::Number(number) => self.set_number(name, *number),
            Value::Numbers(numbers) if name == LOWMEM_RESERVE_RATIO => {
                let given = |place: usize| numbers.get(place).copied().unwrap_or(0);
                self.lowmem_reserve_ratio = std::array::from_fn(given);
                Ok(())
            }
            Value::Word(word) if name == TRANSPARENT_HUGEPAGE_ENABLED => {
                self.transparent_hugepage = Some(*word != "never");
                Ok(())
            }
            Value::Word(_) | Value::Numbers(_) => Err(format!("the model does not know {name}")),
        }
    }

    fn set_number(&mut self, name: &str, number: u64) -> Result<(), String> {
        let field = match name {
            SWAPPINESS => &mut self.swappiness,
            MIN_FREE_KBYTES => self.min_free_kbytes.insert(0),
            WATERMARK_SCALE_FACTOR => &mut self.watermark_scale_factor,
            WATERMARK_BOOST_FACTOR => &mut self.watermark_boost_factor,
            EXTRA_FREE_KBYTES => &mut self.extra_free_kbytes,
            ZONE_RECLAIM_MODE => self.zone_reclaim_mode.insert(0),
            MIN_UNMAPPED_RATIO => &mut self.min_unmapped_ratio,
            MIN_SLAB_RATIO => &mut self.min_slab_ratio,
            DIRTY_EXPIRE_CENTISECS => &mut self.dirty_expire_centisecs,
            DIRTY_WRITEBACK_CENTISECS => &mut self.dirty_writeback_centisecs,
            PAGE_CLUSTER => &mut self.page_cluster,
            PAGECACHE_LIMIT_MB => &mut self.pagecache_limit_mb,
            PAGECACHE_LIMIT_IGNORE_DIRTY => &mut self.pagecache_limit_ignore_dirty,
            LAPTOP_MODE => &mut self.laptop_mode,
            PERCPU_PAGELIST_HIGH_FRACTION => &mut self.percpu_pagelist_high_fraction,
            READ_AHEAD_KB => &mut self.read_ahead_kb,
            NR_HUGEPAGES => &mut self.nr_hugepages,
            NR_OVERCOMMIT_HUGEPAGES => &mut self.nr_overcommit_hugepages,
            LRU_GEN_MIN_TTL_MS => &mut self.lru_gen_min_ttl_ms,
            ADMIN_RESERVE_KBYTES => self.admin_reserve_kbytes.insert(0),
            USER_RESERVE_KBYTES => self.user_reserve_kbytes.insert(0),
            OVERCOMMIT_MEMORY => return set(&mut self.overcommit, overcommit_mode(number)),
            OOM_KILL_ALLOCATING_TASK => return set(&mut self.oom_kill_allocating_task, number != 0),
            OVERCOMMIT_RATIO => return set(&mut self.commit_limit, LimitSetting::Ratio(number)),
            // 0 leaves it to the ratio.
            OVERCOMMIT_KBYTES if number == 0 => return Ok(()),
            OVERCOMMIT_KBYTES => return set(&mut self.commit_limit, LimitSetting::Kbytes(number)),
            DIRTY_RATIO => return set(&mut self.dirty, DirtyLimit::Percent(number)),
            DIRTY_BYTES => return set(&mut self.dirty, DirtyLimit::Bytes(Bytes(number))),
            DIRTY_BACKGROUND_RATIO => {
                return set(&mut self.dirty_background, DirtyLimit::Percent(number));
            }
            DIRTY_BACKGROUND_BYTES => {
                return set(&mut self.dirty_background, DirtyLimit::Bytes(Bytes(number)));
            }
            NUMA_BALANCING if number == 0 => return Ok(()),
            NUMA_BALANCING => return Err(format!("{name}: pages of the model stay where they are; write 0")),
            _ => return Err(format!("the model does not know {name}")),
        };
        *field = number;
        Ok(())
    }
}

fn set<T>(field: &mut T, to: T) -> Result<(), String> {
    *field = to;
    Ok(())
}

/// The mode that a value of `vm.overcommit_memory` stands for.
fn overcommit_mode(value: u64) -> Mode {
    match value {
        0 => Mode::Heuristic,
        1 => Mode::Always,
        _ => Mode::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sles_11_lets_twice_as_much_be_dirty() {
        let percent = |name: &str| Generation::named(name).map(|generation| Tuning::of(&generation).dirty);
        for (name, expected) in [
            ("linux-3.0", 20),
            ("linux-3.0-sles11sp2", 40),
            ("linux-3.0-sles11sp3", 40),
            ("linux-3.10", 20),
            ("linux-6.12", 20),
        ] {
            assert_eq!(percent(name), Some(DirtyLimit::Percent(expected)), "{name}");
        }
    }
}
