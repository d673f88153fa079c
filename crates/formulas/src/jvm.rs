//! Huge pages that a Java virtual machine (HotSpot) takes with `-XX:+UseLargePages`: its heap, its code
//! cache, and the tables of its garbage collector.
//!
//! The figures are those of JDK 17, whose pages were counted with a heap of 2 GiB and pages of 2 MiB. Later
//! ones take less: JDK 25 has one bitmap instead of two, and no card counts, with G1, and a mark bitmap of
//! half the size with Parallel. An area that is too small for the page size stays in base pages, silently.

use lotsfree_units::{Bytes, MIB};

/// `-XX:ReservedCodeCacheSize` where compilation is tiered, which is the default.
pub const CODE_CACHE: Bytes = Bytes::mib(240);
/// The code cache is in huge pages only if it has this many, so that it can grow step by step
/// (`codeCache.cpp:CodeCache::page_size`).
const CODE_CACHE_MIN: u64 = 8;
/// The tables of Parallel are in huge pages only if one has this many (`psParallelCompact.cpp`).
const PARALLEL_MIN: u64 = 10;
/// Bytes of heap that a card stands for, and an entry of a block offset table.
const CARD: u64 = 512;
/// Bytes of heap for each byte of a bitmap with one bit a word.
const BITMAP: u64 = 64;
/// Bytes of heap for each byte of a bitmap with two bits a word.
const DOUBLE_BITMAP: u64 = 32;

/// A garbage collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Collector {
    /// `-XX:+UseSerialGC`.
    Serial,
    /// `-XX:+UseParallelGC`.
    Parallel,
    /// `-XX:+UseG1GC`, the default on hosts with two CPUs and 2 GB or more.
    #[default]
    G1,
    /// `-XX:+UseZGC`.
    Z,
    /// `-XX:+UseShenandoahGC`.
    Shenandoah,
}

impl Collector {
    /// Every collector with its name on the command line.
    pub const ALL: [(&'static str, Collector); 5] = [
        ("serial", Collector::Serial),
        ("parallel", Collector::Parallel),
        ("g1", Collector::G1),
        ("zgc", Collector::Z),
        ("shenandoah", Collector::Shenandoah),
    ];
}

/// The areas of a virtual machine that `-XX:+UseLargePages` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// `-Xmx`.
    pub heap: Bytes,
    /// `-XX:MaxMetaspaceSize` where it is in huge pages, too (`-XX:+UseLargePagesInMetaspace`, to JDK 15).
    pub metaspace: Bytes,
    /// `-XX:ReservedCodeCacheSize`.
    pub code_cache: Bytes,
    /// Whose tables come on top.
    pub collector: Collector,
}

/// Huge pages by area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Heap.
    pub heap: u64,
    /// Metaspace.
    pub metaspace: u64,
    /// Code cache.
    pub code_cache: u64,
    /// Bitmaps and tables of the collector.
    pub collector: u64,
}

impl Pages {
    /// All areas together.
    pub const fn total(self) -> u64 {
        (self.heap.saturating_add(self.metaspace))
            .saturating_add(self.code_cache)
            .saturating_add(self.collector)
    }
}

/// Pages of `huge` bytes for a virtual machine; none when `huge` is empty.
pub fn pages(areas: &Areas, huge: Bytes) -> Pages {
    if huge == Bytes::ZERO {
        return Pages { heap: 0, metaspace: 0, code_cache: 0, collector: 0 };
    }
    let heap = match areas.collector {
        Collector::G1 => up_to(areas.heap, g1_region(areas.heap)),
        _ => areas.heap,
    };
    Pages {
        heap: heap.units_of(huge),
        metaspace: areas.metaspace.units_of(huge),
        code_cache: at_least(CODE_CACHE_MIN, areas.code_cache, huge),
        collector: collector(areas.collector, heap, huge),
    }
}

/// Pages for the bitmaps and tables of a collector.
fn collector(collector: Collector, heap: Bytes, huge: Bytes) -> u64 {
    let part = |of: u64| Bytes(heap.0 / of);
    // Where the old generation's objects start: a mapping of pages of both sizes, two thirds of the heap at
    // the default NewRatio (`blockOffsetTable.cpp`, `objectStartArray.cpp`).
    let old_starts = (heap.0 / 3 * 2 / CARD) / huge.0;
    match collector {
        Collector::Serial => old_starts,
        // Two bits for each word, and a table of blocks.
        Collector::Parallel => old_starts
            .saturating_add(at_least(PARALLEL_MIN, part(DOUBLE_BITMAP), huge))
            .saturating_add(at_least(PARALLEL_MIN, part(CARD), huge)),
        // Block offsets, cards and card counts; the bitmaps of this and of the next marking.
        Collector::G1 => {
            (3 * at_least(1, part(CARD), huge)).saturating_add(2 * at_least(1, part(BITMAP), huge))
        }
        Collector::Z => 0,
        // The mark bitmap, one more of that size, and the regions, in pages of the large size however small.
        Collector::Shenandoah => {
            (2 * part(DOUBLE_BITMAP).units_of(huge)).saturating_add(shenandoah_regions(heap).units_of(huge))
        }
    }
}

/// Pages of an area that is in huge pages only if it has `least` of them.
const fn at_least(least: u64, area: Bytes, huge: Bytes) -> u64 {
    if area.0 / huge.0 < least { 0 } else { area.units_of(huge) }
}

/// The size of a region of G1: a 2,048th of the heap, as a power of two from 1 to 32 MiB, to whole ones of
/// which the heap is rounded up (`heapRegion.cpp:setup_heap_region_size`).
fn g1_region(heap: Bytes) -> Bytes {
    let power = (heap.0 / 2048).checked_next_power_of_two().unwrap_or(u64::MAX);
    Bytes(power.clamp(MIB, 32 * MIB))
}

/// What Shenandoah keeps of its regions: 256 bytes each, of which there are 4,096 at most until one has its
/// largest size of 32 MiB.
const fn shenandoah_regions(heap: Bytes) -> Bytes {
    let largest = heap.units_of(Bytes::mib(32));
    Bytes::times(Bytes(256), if largest > 4096 { largest } else { 4096 })
}

/// `bytes` rounded up to whole `units`.
const fn up_to(bytes: Bytes, unit: Bytes) -> Bytes {
    unit.times(bytes.units_of(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: Bytes = Bytes::mib(2);

    fn of(collector: Collector, heap: Bytes) -> Pages {
        pages(&Areas { heap, metaspace: Bytes::ZERO, code_cache: CODE_CACHE, collector }, HUGE)
    }

    /// JDK 17 with -Xmx2g -XX:+UseLargePages and pages of 2 MiB.
    #[test]
    fn every_collector_takes_as_many_pages_as_were_counted() {
        for (collector, counted) in [
            (Collector::Serial, 1145),
            (Collector::Parallel, 1177),
            (Collector::G1, 1182),
            (Collector::Z, 1144),
            (Collector::Shenandoah, 1209),
        ] {
            let found = of(collector, Bytes::gib(2));
            assert_eq!((found.heap, found.code_cache, found.metaspace), (1024, 120, 0));
            assert_eq!(found.total(), counted, "{collector:?}: {found:?}");
        }
    }

    /// -Xmx5001m: JDK 17 logs a heap of 5004M, three tables of 10008K and two bitmaps of 80064K.
    #[test]
    fn the_heap_of_g1_is_whole_regions() {
        let found = of(Collector::G1, Bytes::mib(5001));
        assert_eq!((found.heap, found.collector), (2502, 3 * 5 + 2 * 40));
        assert_eq!(g1_region(Bytes::mib(64)), Bytes::mib(1));
        assert_eq!(g1_region(Bytes::gib(512)), Bytes::mib(32));
        assert_eq!(of(Collector::Serial, Bytes::mib(5001)).heap, 2501);
    }

    #[test]
    fn areas_below_their_least_stay_in_base_pages() {
        let small = of(Collector::G1, Bytes::mib(100));
        assert_eq!((small.heap, small.collector), (50, 0));
        let areas = Areas {
            heap: Bytes::gib(2),
            metaspace: Bytes::ZERO,
            code_cache: Bytes::mib(15),
            collector: Collector::Parallel,
        };
        assert_eq!(pages(&areas, HUGE).code_cache, 0);
        assert_eq!(pages(&Areas { code_cache: Bytes::mib(16), ..areas }, HUGE).code_cache, 8);
        // With pages of 1 GiB only the heap has enough of them.
        assert_eq!(pages(&areas, Bytes::gib(1)).total(), 2);
        // A table of blocks of 20 MiB joins the mark bitmap.
        assert_eq!(of(Collector::Parallel, Bytes::gib(10)).collector, 160 + 10 + 6);
        assert_eq!(of(Collector::Shenandoah, Bytes::gib(1024)).collector, 2 * 16_384 + 4);
        assert_eq!(pages(&areas, Bytes::ZERO).total(), 0);
    }
}
