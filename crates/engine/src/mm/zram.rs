//! zram: swap that is compressed and kept in memory (`drivers/block/zram/zram_drv.c`), in pages that zsmalloc
//! takes from the zones (`zpool.rs`).
//!
//! A write compresses at once, on the time of the task that reclaims, and the page is free when it returns; a
//! read decompresses on the time of the task that faults. A write needs pages itself: where no page is free,
//! or zram's `mem_limit` is exceeded, it fails, and the page stays dirty in memory.
//!
//! Every page compresses to the same number of bytes ([`ZramConfig::object_bytes`]). Not modelled: pages
//! filled with one value, which take no memory (and with them the zero pages that 6.12 does not even write);
//! writeback of zram's own to a device, and recompression; freed slots that wait in a CPU's cache
//! (`mm/swap_slots.c`) and keep their objects for as long.

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_units::{Bytes, PageSize};

use super::frame::flag;
use super::vmstat::Stat;
use super::zpool::{SizeClass, Zpool};
use super::{Config, Cx, Mm};

/// Bytes of a slot in zram's table (`struct zram_table_entry`).
const TABLE_ENTRY: u64 = 16;

/// A zram device; its size is [`Config::swap_pages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZramConfig {
    /// Bytes that a page takes after compression.
    pub object_bytes: u32,
    /// `mem_limit` in pages; 0: none.
    pub limit_pages: u64,
}

/// Pages of the table that zram allocates when its size is set (`zram_meta_alloc`).
pub(crate) fn table_pages(slots: u64, page: PageSize) -> u64 {
    page.pages_for(Bytes(slots * TABLE_ENTRY))
}

/// The device; its pages are in [`Mm::zpool`](super::Mm).
#[derive(Debug)]
pub(crate) struct Zram {
    limit_pages: u64,
    /// `failed_writes` of zram's `io_stat`.
    pub(crate) failed_writes: u64,
}

impl Zram {
    /// The device of a machine.
    pub(super) fn new(config: &Config) -> Option<Zram> {
        let zram = config.zram.filter(|_| config.swap_pages > 0)?;
        Some(Zram { limit_pages: zram.limit_pages, failed_writes: 0 })
    }

    /// The pool of a machine that has one, without a page yet.
    pub(super) fn pool(config: &Config) -> Option<Box<Zpool>> {
        let zram = config.zram.filter(|_| config.swap_pages > 0)?;
        let class = SizeClass::of(config.generation.zspage_chain, zram.object_bytes, config.page);
        Some(Zpool::new(lotsfree_scenario::Zpool::Zsmalloc, class, config.swap_pages))
    }
}

impl Mm {
    /// Writes a page of the swap cache to zram for reclaim (`pageout`, `swap_writepage`). Returns whether
    /// it is written, and thus clean. After an error it is dirty as before (`end_swap_bio_write`); it
    /// counts as written to swap all the same.
    pub(crate) fn zram_writepage(&mut self, cx: &mut Cx, frame: u32) -> bool {
        let Some(slot) = self.swap.slot_of(frame) else { return false };
        self.stat_add(frame, Stat::VmscanWrite);
        self.events[vmstat::pswpout] += 1;
        if !self.generation.swap_rw_page {
            self.events[vmstat::pgpgout] += self.page.kib(1);
        }
        let written = self.zram_store(cx, slot);
        self.stat_add(frame, Stat::Written);
        if written {
            self.frames[frame as usize].flags &= !flag::DIRTY;
        }
        written
    }

    /// Compresses the page of a slot, and takes the place of what the slot had (`zram_bvec_write`).
    fn zram_store(&mut self, cx: &mut Cx, slot: u32) -> bool {
        cx.spend(self.costs.compress);
        let zspage = self.zpool_malloc(cx);
        let (Some(zram), Some(pool)) = (&mut self.zram, &mut self.zpool) else { return false };
        let Some(zspage) = zspage else {
            zram.failed_writes += 1;
            return false;
        };
        if zram.limit_pages > 0 && pool.pages() > zram.limit_pages {
            zram.failed_writes += 1;
            self.zpool_free(cx, zspage);
            return false;
        }
        let old = pool.take(slot);
        pool.store(slot, zspage);
        self.zpool_free(cx, old);
        true
    }

    /// Charges and counts the reading of pages of zram (`zram_bvec_read`).
    pub(super) fn zram_read(&mut self, cx: &mut Cx, pages: u32) {
        cx.spend(self.costs.decompress * u64::from(pages));
        if !self.generation.swap_rw_page {
            self.events[vmstat::pgpgin] += self.page.kib(pages.into());
        }
    }
}

#[cfg(test)]
mod tests;
