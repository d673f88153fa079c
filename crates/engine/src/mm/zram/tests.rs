//! Swap to zram: the form of zspages, what a page takes, and what happens where there is no room.

use super::super::Stop;
use super::super::frame::entry;
use super::super::zpool::host::{HEAP, Host, MEMORY};
use super::*;
use crate::generation::ZspageChain;

fn zspages(mm: &Mm) -> u64 {
    mm.zones.iter().map(|zone| zone.stat[Stat::Zspages as usize]).sum()
}

const HALF: ZramConfig = ZramConfig { object_bytes: 2048, limit_pages: 0 };

#[test]
fn zspages_waste_what_the_kernel_s_chains_waste() {
    let of = |chain, bytes| {
        let class = SizeClass::of(chain, bytes, PageSize::X86);
        (class.pages, class.objects)
    };
    // 2048 bytes and a handle are of the class of 2064: 7 fill 88 % of 4 pages, 15 all but 1808 bytes of 8.
    assert_eq!(of(ZspageChain::LargestUse, 2048), (4, 7));
    assert_eq!(of(ZspageChain::LeastWaste, 2048), (8, 15));
    // 1008 and a handle are of the class of 1024, of which a page is full.
    assert_eq!(of(ZspageChain::LeastWaste, 1008), (1, 4));
    // Pages are stored as they are from classes on that only one object of a page has: above 3264 with
    // chains of 4 pages, above 3632 with chains of 8 (`Documentation/mm/zsmalloc.rst`).
    assert_eq!(of(ZspageChain::LargestUse, 3264 - 8), (4, 5));
    assert_eq!(of(ZspageChain::LargestUse, 3264 - 7), (1, 1));
    assert_eq!(of(ZspageChain::LeastWaste, 3632 - 8), (8, 9));
    assert_eq!(of(ZspageChain::LeastWaste, 3632 - 7), (1, 1));
    assert_eq!(of(ZspageChain::LeastWaste, 4096), (1, 1));
    assert_eq!(of(ZspageChain::LeastWaste, 1), (1, 128));
}

#[test]
fn what_is_swapped_out_takes_its_compressed_size() {
    for (kernel, pages, objects) in [("linux-5.10", 4, 7), ("linux-6.1+mglru", 4, 7), ("linux-6.12", 8, 15)] {
        let Host { mut mm, mut cx, .. } = Host::written(kernel, HALF, MEMORY + 4000);
        let used = u64::from(mm.swap.total) - mm.swap.free();
        assert!(used > 4000, "{kernel}: {used}");
        assert_eq!(zspages(&mm), used.div_ceil(objects) * pages, "{kernel}");
        assert_eq!(mm.events[vmstat::pswpout], used, "{kernel}");
        assert_eq!(mm.take_io().count(), 0, "{kernel} asks no device");
        // Without the heap, nothing is left of it.
        mm.exit(&mut cx);
        assert_eq!((zspages(&mm), mm.swap.free()), (0, mm.swap.total.into()), "{kernel}");
        assert_eq!(mm.check(), Ok(()), "{kernel}");
    }
}

#[test]
fn a_fault_reads_one_page_and_gives_its_slot_back() {
    for (kernel, stores) in [("linux-6.1", 1), ("linux-6.12+mglru", 0)] {
        let mut host = Host::written(kernel, HALF, MEMORY + 4000);
        let first = host.mm.objects.at(host.mm.processes[0].vma(HEAP).unwrap().base).base;
        let is_swapped =
            |page: &u32| matches!(entry::is(host.mm.entries[(first + page) as usize]), entry::Is::Swap(_));
        let page = (0..MEMORY).find(is_swapped).unwrap();
        let (used, out, spent) = (host.used(), host.mm.events[vmstat::pswpout], host.cx.spent);
        let (ins, faults) = (host.mm.events[vmstat::pgpgin], host.mm.events[vmstat::pgfault]);
        host.touch(page, false).unwrap();
        let events = &host.mm.events;
        assert!(host.cx.spent - spent >= host.mm.costs.decompress, "{kernel}");
        assert_eq!((events[vmstat::pswpin], events[vmstat::pgmajfault]), (1, 1), "{kernel}");
        assert_eq!(events[vmstat::swap_ra], 0, "{kernel}");
        assert_eq!(host.used() + 1, used + events[vmstat::pswpout] - out, "{kernel}");
        assert_eq!(host.mm.swap.recount().2.len(), 0, "{kernel} has a swap cache");
        assert_eq!(events[vmstat::pgpgin] - ins, if stores == 1 { 0 } else { 4 }, "{kernel}");
        // Where the page is not writable yet, the first store is a fault.
        host.touch(page, true).unwrap();
        assert_eq!(host.mm.events[vmstat::pgfault] - faults, 1 + stores, "{kernel}");
        assert_eq!(host.mm.check(), Ok(()), "{kernel}");
    }
}

#[test]
fn kernels_before_4_15_read_ahead_and_keep_the_slot() {
    let mut host = Host::written("linux-4.4", HALF, MEMORY + 4000);
    (0..3000).rev().for_each(|page| host.touch(page, false).unwrap());
    let Host { mm, .. } = host;
    assert!(mm.events[vmstat::swap_ra] > 0 && mm.events[vmstat::swap_ra_hit] > 0);
    assert!(mm.swap.recount().2.len() > 1000, "{}", mm.swap.recount().2.len());
    assert_eq!(mm.check(), Ok(()));
}

#[test]
fn beyond_its_limit_a_write_fails_and_the_page_stays() {
    let host = Host::written("linux-6.12", ZramConfig { limit_pages: 800, ..HALF }, MEMORY - 450);
    assert_eq!(zspages(&host.mm), 800);
    let failed = host.mm.zram.as_ref().map_or(0, |zram| zram.failed_writes);
    assert!(failed > 0, "it was full");
    // 100 zspages of 8 pages have 15 objects each.
    assert_eq!(host.mm.events[vmstat::pswpout], 1500 + failed, "all tries count");
    assert!(host.used() > 1500, "pages that were refused keep their slots: {}", host.used());
}

#[test]
fn zram_takes_all_memory_for_what_does_not_compress() {
    // A page that is stored as it was makes room for none.
    let mut host = Host::new("linux-6.12", ZramConfig { object_bytes: 4096, limit_pages: 0 });
    let outcome = (0..2 * MEMORY).try_for_each(|page| host.touch(page, true));
    assert_eq!(outcome, Err(Stop::OutOfMemory));
    assert!(zspages(&host.mm) > 1000, "{}", zspages(&host.mm));
    assert_eq!(host.mm.check(), Ok(()));
}
