//! Machines with pages of 16 and 64 KiB, as arm64 has them. No kernel was compared with them: each test holds
//! the model against the rule in the kernel's source.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lotsfree_engine::mm::{
    Config, Cx, Done, Fault, Kswapd, Mm, RaState, Read, Stop, WaitReason, Write, ZramConfig,
};
use lotsfree_engine::{Generation, NAMES};
use lotsfree_kernel_files::counters::{meminfo, vmstat, zoneinfo};
use lotsfree_units::{Bytes, PageSize};
use lotsfree_workload::{How, Policy, RegionId};

const REGION: RegionId = RegionId(0);

/// A machine with this much memory, in pages of `page_kib` KiB.
fn config(generation: &str, page_kib: u64, memory: Bytes) -> Config {
    let page = PageSize::new(page_kib << 10).unwrap();
    let generation = Generation::named(generation).unwrap();
    Config { page, instant_reads: true, ..Config::new(generation, vec![page.pages(memory)]) }
}

/// A machine and a caller on it.
fn machine(config: &Config) -> (Mm, Cx) {
    let mut mm = Mm::new(config);
    let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
    (mm, Cx { slice: u64::MAX, ..Cx::new(task, 0, process, 1) })
}

/// Polls a call to its end, and kswapd whenever it waits.
fn finish(
    mm: &mut Mm,
    cx: &mut Cx,
    (task, kswapd): &mut (usize, Kswapd),
    mut poll: impl FnMut(&mut Mm, &mut Cx) -> Done,
) {
    for _ in 0..1000 {
        match poll(mm, cx) {
            Ok(()) => return,
            Err(Stop::Bad) => panic!("the test asks for something that does not exist"),
            Err(_) => {}
        }
        for _ in 0..100 {
            let mut other = Cx { slice: 10_000_000, ..Cx::new(*task, 0, usize::MAX, cx.now()) };
            if kswapd.poll(mm, &mut other).why == WaitReason::Idle {
                break;
            }
        }
        (cx.start, cx.spent) = (cx.now() + 1_000_000, 0);
    }
    panic!("the call does not end");
}

/// Names of the zones with memory, and how many MiB each has.
fn zones(config: &Config) -> Vec<(String, u64)> {
    let zones = Mm::new(config).zoneinfo();
    let size = |pages| config.page.of(pages).0 >> 20;
    let named =
        zones.iter().map(|zone| (zone.name.to_string(), zone.marks.get(zoneinfo::present).unwrap_or(0)));
    named.filter(|(_, pages)| *pages > 0).map(|(name, pages)| (name, size(pages))).collect()
}

#[test]
fn the_zone_below_4_gib_differs_by_release() {
    let of = |generation| zones(&config(generation, 64, Bytes::gib(8)));
    let named = |zones: &[(&str, u64)]| -> Vec<(String, u64)> {
        zones.iter().map(|(name, mib)| ((*name).to_owned(), *mib)).collect()
    };
    // RAM begins at 1 GiB.
    let normal = ("Normal", 5 << 10);
    assert_eq!(of("linux-3.11"), named(&[("DMA32", 3 << 10), normal]));
    assert_eq!(of("linux-4.4"), named(&[("DMA", 3 << 10), normal]));
    assert_eq!(of("linux-5.4"), named(&[("DMA32", 3 << 10), normal]));
    assert_eq!(of("linux-5.10"), named(&[("DMA", 3 << 10), normal]));
    assert_eq!(of("linux-6.12"), named(&[("DMA", 3 << 10), normal]));
}

#[test]
fn khugepaged_keeps_a_twentieth_of_memory_with_huge_pages_of_512_mib() {
    let free = |page_kib| {
        let mm = Mm::new(&config("linux-6.1", page_kib, Bytes::gib(16)));
        let managed: u64 = mm.zoneinfo().iter().filter_map(|zone| zone.marks.get(zoneinfo::managed)).sum();
        let managed = managed * page_kib;
        let kib: u64 = mm.sysctls()["vm.min_free_kbytes"].parse().unwrap();
        (mm.meminfo().get(meminfo::Hugepagesize).unwrap() >> 10, kib, managed / 20)
    };
    assert_eq!((free(4).0, free(4).1), (2, 11 * 3 * 2048));
    assert_eq!((free(16).0, free(16).1), (32, 11 * 2 * (32 << 10)));
    let (huge, kib, twentieth) = free(64);
    assert_eq!((huge, kib), (512, twentieth / 64 * 64));
}

#[test]
fn counters_of_kib_do_not_depend_on_the_page() {
    for page_kib in [4, 16, 64] {
        let memory = Bytes::gib(1);
        let (mut mm, mut cx) = machine(&config("linux-6.1", page_kib, memory));
        let kib = |mm: &Mm, counter| mm.meminfo().get(counter).unwrap();
        let total = kib(&mm, meminfo::MemTotal);
        assert!((990 << 10..1 << 20).contains(&total), "{page_kib}: MemTotal {total} kB");
        let file = mm.declare_file((8 << 10) / page_kib as u32, true);
        let mut ra = RaState::default();
        Read::new(0, 4 << 20, How::Buffered).poll(&mut mm, &mut cx, file, &mut ra).unwrap();
        let cached = kib(&mm, meminfo::Cached);
        // Windows reach beyond what was read, by a request of 1280 KiB at most.
        assert!((4096..=4096 + 1280).contains(&cached), "{page_kib}: Cached {cached} kB");
        assert_eq!(mm.vmstat().get(vmstat::pgpgin), Some(cached), "{page_kib}");
        // Past the cache, a device transfers what is asked for.
        let before = mm.vmstat().get(vmstat::pgpgin).unwrap();
        let mut direct = Read::new(6 << 20, 4096, How::Direct);
        // The request has been made; an instant read is done when it is polled again.
        let _ = direct.poll(&mut mm, &mut cx, file, &mut ra);
        assert_eq!(mm.vmstat().get(vmstat::pgpgin).unwrap() - before, 4, "{page_kib}");
        assert_eq!(mm.check(), Ok(()));
    }
}

#[test]
fn copies_cost_what_their_bytes_cost() {
    let cost = |page_kib, len| {
        let (mut mm, mut cx) = machine(&config("linux-6.1", page_kib, Bytes::gib(1)));
        let file = mm.declare_file(1024 / page_kib as u32, true);
        let mut ra = RaState::default();
        let mut spent = [0; 2];
        for spent in &mut spent {
            let before = cx.spent;
            Read::new(0, len, How::Buffered).poll(&mut mm, &mut cx, file, &mut ra).unwrap();
            *spent = cx.spent - before;
        }
        spent[1]
    };
    // Cached, and read again.
    for len in [100, 4096, 65_536, 1 << 20] {
        assert_eq!(cost(64, len), cost(4, len), "{len}");
    }
}

#[test]
fn one_fault_brings_in_what_sixteen_do_and_zeroes_as_much() {
    let touched = |page_kib: u64| {
        let (mut mm, mut cx) = machine(&config("linux-6.1", page_kib, Bytes::gib(1)));
        let pages = (1024 / page_kib) as u32;
        mm.map_anon(&mut cx, REGION, pages).unwrap();
        let before = cx.spent;
        for page in 0..pages {
            Fault::new(REGION, page, true).poll(&mut mm, &mut cx).unwrap();
        }
        assert_eq!(mm.check(), Ok(()));
        (cx.minor, cx.spent - before, mm.meminfo().get(meminfo::AnonPages).unwrap())
    };
    let (small, large) = (touched(4), touched(64));
    assert_eq!((small.0, large.0), (256, 16));
    assert_eq!((small.2, large.2), (1024, 1024));
    let zeroing = 256 * lotsfree_engine::Costs::default().zero;
    assert!(
        large.1 >= zeroing && small.1 > 2 * large.1,
        "{} and {} ns, {zeroing} of zeroing",
        small.1,
        large.1
    );
}

#[test]
fn a_page_of_64_kib_has_nothing_around_it_to_map() {
    let faults = |page_kib: u64| {
        let (mut mm, mut cx) = machine(&config("linux-6.12", page_kib, Bytes::gib(1)));
        let pages = (1024 / page_kib) as u32;
        let file = mm.declare_file(pages, true);
        Read::new(0, 1 << 20, How::Buffered).poll(&mut mm, &mut cx, file, &mut RaState::default()).unwrap();
        mm.map_file(&mut cx, REGION, file, pages, true).unwrap();
        let before = cx.minor;
        for page in 0..pages {
            // What is mapped needs no fault.
            match Fault::new(REGION, page, false).poll(&mut mm, &mut cx) {
                Ok(()) | Err(Stop::Wait(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(mm.check(), Ok(()));
        cx.minor - before
    };
    assert_eq!([4, 16, 64].map(faults), [16; 3], "each maps 64 KiB");
}

#[test]
fn whole_blocks_are_written_without_reading_the_page() {
    let read = |offset, len| {
        let (mut mm, mut cx) = machine(&config("linux-6.1", 64, Bytes::gib(1)));
        let file = mm.declare_file(16, true);
        while let Err(stop) = Write::new(offset, len, How::Buffered).poll(&mut mm, &mut cx, file) {
            assert!(matches!(stop, Stop::Wait(_)), "{stop:?}");
        }
        assert_eq!(mm.check(), Ok(()));
        mm.vmstat().get(vmstat::pgpgin).unwrap()
    };
    assert_eq!([read(0, 65_536), read(4096, 8192), read(65_536, 4096)], [0; 3]);
    assert_eq!([read(4096, 100), read(4000, 4096)], [64; 2]);
}

#[test]
fn a_dirty_page_of_64_kib_has_sixteen_buffers() {
    let slab = |page_kib: u64| {
        let (mut mm, mut cx) = machine(&config("linux-6.1", page_kib, Bytes::gib(1)));
        let file = mm.declare_file((32 << 10) / page_kib as u32, false);
        let before = mm.meminfo().get(meminfo::SReclaimable).unwrap();
        let mut write = Write::new(0, 32 << 20, How::Buffered);
        while write.poll(&mut mm, &mut cx, file).is_err() {}
        assert_eq!(mm.check(), Ok(()));
        mm.meminfo().get(meminfo::SReclaimable).unwrap() - before
    };
    // 8,192 buffers of 104 bytes are 832 KiB, and the nodes of the file's tree come on top: one for 64 pages.
    assert!((832..1000).contains(&slab(64)), "{}", slab(64));
    assert!((832..1100).contains(&slab(4)), "{}", slab(4));
}

#[test]
fn zram_compresses_pages_of_any_size() {
    let (page_kib, memory) = (64, Bytes::gib(1));
    let zram = Some(ZramConfig { object_bytes: 32 << 10, limit_pages: 0 });
    let (mut mm, mut cx) =
        machine(&Config { zram, swap_pages: 16_384, ..config("linux-6.12", page_kib, memory) });
    mm.map_anon(&mut cx, REGION, 18_000).unwrap();
    let mut kswapd = (mm.create_task(), Kswapd::new(0));
    for page in 0..18_000 {
        let mut fault = Fault::new(REGION, page, true);
        finish(&mut mm, &mut cx, &mut kswapd, |mm, cx| fault.poll(mm, cx));
    }
    assert_eq!(mm.check(), Ok(()));
    let (out, held) = (mm.vmstat().get(vmstat::pswpout), mm.vmstat().get(vmstat::nr_zspages));
    // 15 objects of half a page fill 8 pages.
    let (out, held) = (out.unwrap(), held.unwrap());
    assert!(out >= 2000, "{out}");
    assert!(held.abs_diff(out * 8 / 15) <= 8, "{held} zspages for {out} pages");
}

#[test]
fn every_generation_runs_with_every_page_size() {
    for generation in NAMES {
        for page_kib in [16, 64] {
            let (mut mm, mut cx) = machine(&config(generation, page_kib, Bytes::mib(256)));
            let pages = ((300 << 10) / page_kib) as u32;
            let file = mm.declare_file(pages, true);
            let mut kswapd = (mm.create_task(), Kswapd::new(0));
            let mut ra = RaState::default();
            for page in 0..pages {
                let mut read = Read::new(u64::from(page) * page_kib * 1024, 4096, How::Buffered);
                finish(&mut mm, &mut cx, &mut kswapd, |mm, cx| read.poll(mm, cx, file, &mut ra));
            }
            assert_eq!(mm.check(), Ok(()), "{generation}, {page_kib}");
            let vmstat = mm.vmstat();
            assert!(vmstat.get(vmstat::pgpgin) >= Some(300 << 10), "{generation}, {page_kib}");
        }
    }
}
