//! Memory of the simulating host that the state of a machine takes.

use std::mem::size_of;

use super::frame::List;
use super::mmap::Vma;
use super::{Flight, Mm};

/// Bytes that a vector has allocated.
pub(crate) fn of<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}

impl Mm {
    /// Bytes allocated for frames, lists, entries (page tables, page cache and shadows at once), swap slots,
    /// objects, the kernel's own of those, and requests.
    pub fn bytes(&self) -> u64 {
        let vmas: usize = self.processes.iter().map(|p| p.vmas.capacity() * size_of::<Option<Vma>>()).sum();
        let lists =
            self.zones.iter().flat_map(|zone| &zone.pcp).flat_map(|pcp| &pcp.lists).map(of).sum::<usize>()
                + self.lruvecs.iter().flat_map(|lruvec| &lruvec.lists).map(List::bytes).sum::<usize>();
        let flights = self.flights.queue.capacity() * size_of::<Option<Flight>>()
            + self.flights.spare.iter().map(of).sum::<usize>()
            + self.flights.queue.iter().flatten().map(|flight| of(&flight.frames)).sum::<usize>();
        let tables: usize = self.processes.iter().map(|process| process.tables.bytes()).sum();
        let all = self.hugetlb.bytes()
            + tables
            + self.frames.bytes()
            + self.entries.bytes()
            + self.objects.bytes()
            + vmas
            + lists
            + flights;
        let books = self.evictions.as_ref().map_or(0, |evictions| evictions.bytes());
        let ext4 = self.ext4.as_ref().map_or(0, |ext4| ext4.bytes());
        let pool = self.zpool.as_ref().map_or(0, |pool| pool.bytes());
        let zswap = self.zswap.as_ref().map_or(0, |zswap| zswap.bytes());
        (all + self.swap.bytes() + self.slab.bytes() + self.tree.bytes() + books + pool + zswap + ext4) as u64
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_units::PageSize;
    use lotsfree_workload::{Policy, RegionId};

    use crate::Generation;
    use crate::mm::frame::Frames;
    use crate::mm::free_area::{FreeArea, MigrateType, Orders};
    use crate::mm::{Config, Cx, Fault, Mm};

    fn config(pages: u64) -> Config {
        let generation = Generation::named("linux-6.1").unwrap();
        Config { cpus: 2, instant_reads: true, ..Config::new(generation, vec![pages / 2; 2]) }
    }

    #[test]
    fn a_frame_takes_at_most_24_bytes_with_its_page_table_and_shadow() {
        let frames = 1 << 19;
        let mut mm = Mm::new(&config(frames));
        let process = mm.create_process(Policy::Local);
        let task = mm.create_task();
        let mut cx = Cx::new(task, 0, process, 0);
        let pages = (frames * 9 / 20) as u32;
        let file = mm.declare_file(pages, true);
        mm.map_file(&mut cx, RegionId(0), file, pages, true).unwrap();
        mm.map_anon(&mut cx, RegionId(1), pages).unwrap();
        for page in 0..pages {
            for region in [RegionId(0), RegionId(1)] {
                cx.spent = 0;
                Fault::new(region, page, region.0 == 1).poll(&mut mm, &mut cx).unwrap();
            }
        }
        assert_eq!(mm.rss(process).total(), u64::from(pages) * 2);
        assert!(mm.bytes() <= frames * 24, "{} bytes a frame", mm.bytes() as f64 / frames as f64);
        assert!(mm.bytes() >= frames * 20 * 9 / 10);
    }

    #[test]
    fn memory_that_nobody_touched_takes_none() {
        // 32 TiB, of which the kernel has what it has on a host of 256 GiB.
        let kernel_pages = Some(vec![1 << 18; 2]);
        let mm = Mm::new(&Config { kernel_pages, ..config(1 << 33) });
        assert!(mm.bytes() < 8 << 20, "{} bytes", mm.bytes());
        assert_eq!(mm.check(), Ok(()));
        assert!(mm.zones.iter().map(|zone| zone.free).sum::<u64>() > (1 << 33) / 64 * 62);
    }

    #[test]
    fn a_run_that_uses_more_than_there_are_numbers_for_is_found_out() {
        let mut mm = Mm::new(&config(1 << 17));
        mm.frames = Frames::new(1 << 14, Orders::of(PageSize::X86));
        for zone in &mut mm.zones {
            (zone.area, zone.unnumbered) = (FreeArea::new(zone.area.sizes), zone.managed);
        }
        let (request, mut taken) = (mm.generation.request(MigrateType::Movable), Vec::new());
        mm.zones[1].rmqueue_bulk(&mut mm.frames, request, 1 << 17, &mut taken);
        assert_eq!((taken.len(), mm.is_exhausted()), (1 << 14, true));
    }
}
