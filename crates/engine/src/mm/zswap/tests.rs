//! zswap: what it takes and refuses, who makes room in it, and what is where.

use lotsfree_kernel_files::counters::meminfo;

use super::super::zpool::host::{HEAP, Host, MEMORY};
use super::*;

/// Pages shrink to a third, and zsmalloc's pool takes a fifth of memory.
const THIRD: ZswapConfig = ZswapConfig {
    object_bytes: 1366,
    zpool: Kind::Zsmalloc,
    max_pool_percent: 20,
    accept_threshold_percent: 90,
};
const ZBUD: ZswapConfig = ZswapConfig { zpool: Kind::Zbud, ..THIRD };

impl Host {
    fn zswap(&self) -> &Zswap {
        self.mm.zswap.as_ref().unwrap()
    }

    fn pool(&self) -> &Zpool {
        self.mm.zpool.as_ref().unwrap()
    }

    /// A page of the heap that is on swap: the first that is in zswap, or the last that is on the device.
    fn swapped(&self, in_zswap: bool) -> u32 {
        let first = self.mm.objects.at(self.mm.processes[0].vma(HEAP).unwrap().base).base;
        let is = |page: &u32| match entry::is(self.mm.entries[(first + page) as usize]) {
            entry::Is::Swap(slot) => self.zswap().has(slot) == in_zswap,
            _ => false,
        };
        let mut pages = 0..2 * MEMORY;
        if in_zswap { pages.find(is).unwrap() } else { pages.rfind(is).unwrap() }
    }
}

#[test]
fn what_zswap_takes_is_in_memory_and_in_its_slot_and_asks_no_device() {
    // 1366 bytes are of the class of 1376, of which 23 are in 8 pages; zbud has two in one.
    for (kernel, config, objects, chain) in [
        ("linux-3.11", ZBUD, 2, 1),
        ("linux-5.10", ZBUD, 2, 1),
        ("linux-6.8", THIRD, 23, 8),
        ("linux-6.12", THIRD, 23, 8),
    ] {
        let mut host = Host::written(kernel, config, MEMORY + 1000);
        let (used, out) = (host.used(), host.mm.events[vmstat::zswpout]);
        assert!(used > 1000, "{kernel}: {used}");
        assert_eq!((out, host.pool().objects()), (used, used), "{kernel}");
        assert_eq!(host.mm.events[vmstat::pswpout], 0, "{kernel}");
        assert_eq!(host.mm.take_io().count(), 0, "{kernel} asks no device");
        let pages = host.pool().pages();
        assert_eq!(pages, used.div_ceil(objects) * chain, "{kernel}: {used}");
        let lines = host.mm.meminfo();
        let said = if kernel >= "linux-6" { Some(4 * pages) } else { None };
        assert_eq!(lines.get(meminfo::Zswap), said, "{kernel}");
        assert_eq!(lines.get(meminfo::Zswapped), said.map(|_| 4 * used), "{kernel}");
        host.mm.exit(&mut host.cx);
        assert_eq!((host.pool().pages(), host.mm.swap.free()), (0, host.mm.swap.total.into()), "{kernel}");
        assert_eq!(host.mm.check(), Ok(()), "{kernel}");
    }
}

#[test]
fn what_is_read_stays_in_zswap_through_6_8_and_leaves_it_after_that() {
    for (kernel, stays) in [("linux-6.1", true), ("linux-6.8", true), ("linux-6.12", false)] {
        let mut host = Host::written(kernel, THIRD, MEMORY + 1000);
        let page = host.swapped(true);
        let (objects, spent) = (host.pool().objects(), host.cx.spent);
        let outs = host.mm.events[vmstat::zswpout];
        host.mm.tuning.page_cluster = 0;
        host.touch(page, false).unwrap();
        let events = &host.mm.events;
        let stored = events[vmstat::zswpout] - outs;
        assert_eq!((events[vmstat::zswpin], events[vmstat::pswpin]), (1, 0), "{kernel}");
        assert_eq!(events[vmstat::pgmajfault], 1, "{kernel}");
        assert!(host.cx.now() >= spent + host.mm.costs.decompress, "{kernel}");
        assert_eq!(host.pool().objects(), objects + stored - u64::from(!stays), "{kernel}");
        let (&frame, _) = host.mm.swap.recount().2.iter().next().expect("it keeps its slot");
        assert_eq!(host.mm.frames[frame as usize].has(flag::DIRTY), !stays, "{kernel}");
        assert_eq!(host.mm.check(), Ok(()), "{kernel}");
    }
}

#[test]
fn a_fault_reads_its_page_and_neighbours_from_where_they_are() {
    let mut host = Host::written("linux-6.1", ZBUD, MEMORY + 7000);
    let ins = |host: &Host| (host.mm.events[vmstat::zswpin], host.mm.events[vmstat::pswpin]);
    let first = host.swapped(true);
    (first..first + 50).for_each(|page| host.touch(page, false).unwrap());
    let (compressed, device) = ins(&host);
    assert!(compressed >= 50, "{compressed}");
    // The youngest are on the device.
    let last = host.swapped(false);
    (last - 200..=last).rev().for_each(|page| host.touch(page, false).unwrap());
    assert!(ins(&host).1 >= device + 100, "{}", ins(&host).1);
    assert!(host.mm.events[vmstat::swap_ra_hit] > 100);
    assert_eq!(host.mm.check(), Ok(()));
}

#[test]
fn a_full_pool_writes_back_its_oldest_pages_where_the_kernel_can() {
    // The pool's limit is 20 % of 16,384 pages less what the kernel's own descriptors take.
    for (kernel, config, writes) in [
        ("linux-3.11", ZBUD, true),
        ("linux-5.4", ZBUD, true),
        ("linux-5.4", THIRD, false),
        ("linux-5.10", ZBUD, true),
        ("linux-6.1", ZBUD, true),
        ("linux-6.1", THIRD, false),
        ("linux-6.8", ZBUD, true),
        ("linux-6.8", THIRD, true),
    ] {
        let host = Host::written(kernel, config, 2 * MEMORY - 3000);
        let name = format!("{kernel} {:?}", config.zpool);
        let (zswap, pages) = (host.zswap(), host.pool().pages());
        assert!(zswap.pool_limit_hit > 0, "{name}");
        assert!(pages <= zswap.max_pages + 8, "{name}: {pages} of {}", zswap.max_pages);
        assert_eq!(zswap.written_back_pages > 0, writes, "{name}: {}", zswap.written_back_pages);
        assert_eq!(host.mm.events[vmstat::zswpwb], zswap.written_back_pages, "{name}");
        // What does not go through zswap is refused, but where the store makes room itself.
        let refused = host.mm.events[vmstat::pswpout] - zswap.written_back_pages;
        let in_store = host.mm.generation.zswap.shrink == ZswapShrink::InStore;
        assert_eq!(refused > 0, !(in_store && writes), "{name}: {refused}");
        // Without writeback the first pages that were swapped out are still there. Workers that write two or
        // 16 pages back when thousands are refused change little in that.
        let first = host.mm.objects.at(host.mm.processes[0].vma(HEAP).unwrap().base).base;
        let oldest = (first..).take(400).filter(
            |at| matches!(entry::is(host.mm.entries[*at as usize]), entry::Is::Swap(slot) if zswap.has(slot)),
        );
        assert_eq!(oldest.count() > 200, !(in_store && writes), "{name}");
    }
}

#[test]
fn since_5_8_a_full_pool_refuses_until_it_has_come_down_to_the_threshold() {
    let mut host = Host::written("linux-6.1", THIRD, 2 * MEMORY - 3000);
    let limit = host.zswap().max_pages;
    assert!(host.zswap().reached_full && host.pool().pages() > limit);
    // A page less than full is not enough.
    let (accept, slots) = (host.zswap().accept_pages, host.mm.swap.total);
    let held: Vec<u32> = (0..slots).filter(|slot| host.zswap().has(*slot)).collect();
    for slot in held {
        let pages = host.pool().pages();
        if pages < accept {
            break;
        }
        assert!(!host.mm.zswap_accepts(&mut host.cx), "{pages} of {limit}, below {accept}");
        host.mm.zswap_invalidate(&mut host.cx, slot);
    }
    assert!(host.mm.zswap_accepts(&mut host.cx) && !host.zswap().reached_full);
}

#[test]
fn the_worker_of_6_12_spares_each_entry_once_and_gives_up_after_sixteen() {
    let mut host = Host::written("linux-6.12", THIRD, MEMORY + 1000);
    let before = host.pool().objects();
    let referenced = |host: &Host| host.zswap().entries.iter().filter(|e| e.at > 0 && e.referenced).count();
    assert_eq!(referenced(&host), before as usize);
    for run in 1..=3 {
        host.mm.zswap_queue_work();
        let (cx, worker) = &mut host.worker;
        worker.poll(&mut host.mm, cx);
        assert_eq!(referenced(&host), before as usize - 16 * run);
    }
    assert_eq!(host.zswap().written_back_pages, 0);
}

#[test]
fn the_worker_of_6_8_writes_sixteen_entries_back_and_no_more_at_a_time() {
    let mut host = Host::written("linux-6.8", ZswapConfig { max_pool_percent: 3, ..THIRD }, MEMORY + 1000);
    (0..20).for_each(|_| host.others());
    let before = host.zswap().written_back_pages;
    host.mm.zswap_queue_work();
    // The device takes some of the writes at a time.
    (0..5).for_each(|_| host.others());
    assert_eq!(host.zswap().written_back_pages - before, 16);
    assert_eq!(host.mm.check(), Ok(()));
}

#[test]
fn what_does_not_compress_goes_to_the_device_after_an_attempt() {
    for (kernel, zpool, bytes, takes) in [
        ("linux-6.1", Kind::Zbud, 3960, true),
        ("linux-6.1", Kind::Zbud, 3961, false),
        ("linux-6.8", Kind::Zbud, 3968, true),
        ("linux-6.8", Kind::Zbud, 3969, false),
        ("linux-6.12", Kind::Zsmalloc, 4095, true),
        ("linux-6.12", Kind::Zsmalloc, 4096, false),
    ] {
        let config = ZswapConfig { object_bytes: bytes, zpool, ..THIRD };
        let host = Host::written(kernel, config, MEMORY + 300);
        let (taken, refused) = (host.mm.events[vmstat::zswpout], host.zswap().reject_compress_poor);
        assert_eq!((taken > 0, refused > 0), (takes, !takes), "{kernel} {zpool:?} {bytes}");
        assert!(host.mm.events[vmstat::pswpout] >= refused, "{kernel}");
    }
}
