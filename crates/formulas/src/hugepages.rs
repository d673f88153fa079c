//! The hugetlb pool: what it holds, what it takes to serve a set of segments, and what its metadata costs.

use lotsfree_units::{Bytes, PageSize};

/// Oracle's script refuses a sum below this: the instance is down or uses AMM (MOS 401749.1).
pub const SCRIPT_MIN: Bytes = Bytes::mib(100);
/// Oracle's rule of thumb: at most this part of RAM in the pool, in percent.
pub const POOL_MAX_PERCENT: u64 = 70;
/// `struct page` in bytes on 64-bit kernels with the usual configuration.
pub const STRUCT_PAGE: Bytes = Bytes(64);
/// From this SGA on huge pages are worth it, together with [`WORTH_IT_SESSIONS`] (oracle-hugepages).
pub const WORTH_IT_SGA: Bytes = Bytes::gib(16);
/// Above this many sessions huge pages are worth it, together with [`WORTH_IT_SGA`] (oracle-hugepages).
pub const WORTH_IT_SESSIONS: u64 = 100;

/// The pool of one page size, in pages of that size, as `/proc/meminfo` prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// `HugePages_Total`, surplus included.
    pub total: u64,
    /// `HugePages_Free`, reserved ones included.
    pub free: u64,
    /// `HugePages_Rsvd`: promised, not yet touched.
    pub rsvd: u64,
    /// `HugePages_Surp`: beyond `nr_hugepages`.
    pub surp: u64,
}

impl Pool {
    /// Pages that have been touched.
    pub const fn used(self) -> u64 {
        self.total.saturating_sub(self.free)
    }

    /// Pages that belong to somebody, touched or not.
    pub const fn promised(self) -> u64 {
        self.used().saturating_add(self.rsvd)
    }

    /// Pages that nobody has asked for.
    pub const fn spare(self) -> u64 {
        self.free.saturating_sub(self.rsvd)
    }

    /// The largest new reservation in pages, given `nr_overcommit_hugepages`. The part beyond
    /// [`spare`](Self::spare) must then come from the buddy allocator, which may fail.
    pub const fn reservable(self, overcommit: u64) -> u64 {
        self.spare().saturating_add(overcommit.saturating_sub(self.surp))
    }

    /// How many surplus pages a reservation of `pages` makes the kernel allocate.
    pub const fn surplus_needed(self, pages: u64) -> u64 {
        self.rsvd.saturating_add(pages).saturating_sub(self.free)
    }
}

/// Pages that Oracle's `hugepages_settings.sh` counts for a segment of `bytes`, the size that `ipcs -m`
/// lists.
///
/// Whole pages plus one, also when the size is an exact multiple; a segment below one page counts nothing
/// (MOS 401749.1). 0 when `huge` is empty.
pub const fn script_pages(bytes: Bytes, huge: Bytes) -> u64 {
    if huge.0 == 0 {
        return 0;
    }
    match bytes.0 / huge.0 {
        0 => 0,
        whole => whole.saturating_add(1),
    }
}

/// Size of the granules of an Oracle instance of 11.2 or later, by its `memory_max_target` or `sga_max_size`:
/// the unit in which it moves memory, and with automatic memory management the length of each of its files
/// in `/dev/shm`. A published case with a target of 50 GB had 401 files of 128 MiB.
pub fn oracle_granule(instance: Bytes) -> Bytes {
    const STEPS: [(Bytes, Bytes); 6] = [
        (Bytes::gib(1), Bytes::mib(4)),
        (Bytes::gib(8), Bytes::mib(16)),
        (Bytes::gib(16), Bytes::mib(32)),
        (Bytes::gib(32), Bytes::mib(64)),
        (Bytes::gib(64), Bytes::mib(128)),
        (Bytes::gib(128), Bytes::mib(256)),
    ];
    STEPS.iter().find(|(most, _)| instance <= *most).map_or(Bytes::mib(512), |(_, granule)| *granule)
}

/// Pages of the segment that an instance creates for an SGA of `sga` bytes: the SGA and one page for its
/// header.
///
/// The oldest case on record: SGAs of 8 GiB and 1.5 GiB hold 4864 pages, and the kernel showed 4866 promised.
pub const fn segment_pages(sga: Bytes, huge: Bytes) -> u64 {
    if huge.0 == 0 { 0 } else { sga.units_of(huge).saturating_add(1) }
}

/// Pages that Oracle's script recommends for an instance of `sga` bytes: [`script_pages`] of its segment,
/// hence one more than the segment has.
pub const fn sga_pages(sga: Bytes, huge: Bytes) -> u64 {
    if huge.0 == 0 { 0 } else { segment_pages(sga, huge).saturating_add(1) }
}

/// Pages for a PostgreSQL server up to version 14, from the peak address space of the postmaster (`VmPeak`).
///
/// An upper bound: the address space holds the program and its libraries too. From 15 on the server computes
/// the number itself (`shared_memory_size_in_huge_pages`).
pub const fn postgres_pages(vm_peak: Bytes, huge: Bytes) -> u64 {
    vm_peak.units_of(huge)
}

/// `pages` spread over `nodes` as evenly as whole pages allow, the first nodes taking the remainder. Empty
/// without nodes.
///
/// The caller bounds `nodes`; a host has at most 1024.
pub fn split(pages: u64, nodes: u32) -> Vec<u64> {
    let Some(each) = pages.checked_div(u64::from(nodes)) else { return Vec::new() };
    let rest = pages % u64::from(nodes);
    (0..nodes).map(|node| each + u64::from(u64::from(node) < rest)).collect()
}

/// What HVO (`hugetlb_optimize_vmemmap`) gives back per huge page: its `struct page`s but one base page of
/// them.
///
/// 28 KiB of the 32 KiB of a 2 MiB page; 16 MiB less 4 KiB of a 1 GiB page. Zero where the `struct page`s fit
/// one base page.
pub const fn hvo_saving(huge: Bytes, page: PageSize) -> Bytes {
    let vmemmap = STRUCT_PAGE.times(page.pages(huge));
    Bytes(vmemmap.0.saturating_sub(page.bytes().0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: Bytes = Bytes::mib(2);

    #[test]
    fn a_granule_grows_with_its_instance() {
        let granules = |gib: u64| Bytes::gib(gib).units_of(oracle_granule(Bytes::gib(gib)));
        assert_eq!([1, 8, 16, 50, 128, 1024].map(granules), [256, 512, 512, 400, 512, 2048]);
        assert_eq!(oracle_granule(Bytes::gib(50)), Bytes::mib(128));
    }

    #[test]
    fn three_numbers_of_one_host() {
        // SGAs of 8 GiB and 1.5 GiB; the script recommended 4868, the kernel showed Free 28, Rsvd 26
        let sgas = [Bytes::gib(8), Bytes::mib(1536)];
        let held: u64 = sgas.iter().map(|sga| sga.units_of(HUGE)).sum();
        let promised: u64 = sgas.iter().map(|&sga| segment_pages(sga, HUGE)).sum();
        let recommended: u64 = sgas.iter().map(|&sga| sga_pages(sga, HUGE)).sum();
        assert_eq!((held, promised, recommended), (4864, 4866, 4868));
        let pool = Pool { total: 4868, free: 28, rsvd: 26, surp: 0 };
        assert_eq!((pool.used(), pool.promised(), pool.spare()), (4840, 4866, 2));
        // the same from the sizes ipcs would list
        let listed = [HUGE.times(4097), HUGE.times(769)];
        assert_eq!(listed.iter().map(|&bytes| script_pages(bytes, HUGE)).sum::<u64>(), 4868);
    }

    #[test]
    fn freshly_started_instance_has_reserved_more_than_it_touched() {
        let pool = Pool { total: 3000, free: 2601, rsvd: 2290, surp: 0 };
        assert_eq!((pool.used(), pool.promised(), pool.spare()), (399, 2689, 311));
        assert_eq!(pool.surplus_needed(311), 0);
        assert_eq!(pool.surplus_needed(312), 1);
        assert_eq!(pool.reservable(10), 321);
    }

    #[test]
    fn script_skips_small_segments_and_always_adds_one() {
        assert_eq!(script_pages(Bytes::mib(2) - Bytes(1), HUGE), 0);
        assert_eq!(script_pages(Bytes::mib(2), HUGE), 2);
        assert_eq!(script_pages(Bytes::mib(3), HUGE), 2);
        assert_eq!(script_pages(Bytes::mib(3), Bytes::ZERO), 0);
    }

    #[test]
    fn other_programs() {
        // the example of PostgreSQL's manual: 6490428 kB is 3169.2 pages, so at least 3170
        assert_eq!(postgres_pages(Bytes::kib(6_490_428), HUGE), 3170);
        assert_eq!(split(4868, 3), [1623, 1623, 1622]);
        assert_eq!(split(5, 0), [0u64; 0]);
    }

    #[test]
    fn vmemmap_optimisation() {
        assert_eq!(hvo_saving(HUGE, PageSize::X86), Bytes::kib(28));
        assert_eq!(hvo_saving(Bytes::gib(1), PageSize::X86), Bytes::mib(16) - Bytes::kib(4));
        // 1 TiB in 2 MiB pages: 14 GiB, 1.37 %
        let saved = hvo_saving(HUGE, PageSize::X86).times(Bytes::gib(1024).units_of(HUGE));
        assert_eq!(saved, Bytes::gib(14));
        assert!((saved.share_of(Bytes::gib(1024)) - 0.0137).abs() < 0.0001);
        assert_eq!(hvo_saving(Bytes::kib(64), PageSize::X86), Bytes::ZERO);
    }
}
