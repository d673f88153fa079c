//! What page tables take, level by level, for memory that processes have touched.
//!
//! A table is one base page of 8-byte entries: 512 of them with 4 KiB pages. A table exists from the first
//! touch of the range it covers until the range is unmapped.

use lotsfree_units::{Bytes, PageSize};

use crate::{mul_div, mul_div_up};

/// Bytes of one entry on every 64-bit architecture, and on 32-bit x86 with PAE.
pub const ENTRY_BYTES: u64 = 8;

/// What a kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTableRules {
    /// `PageTables` includes PMD tables (5.15).
    pub counts_pmd: bool,
    /// `PageTables` includes PUD tables (6.12).
    pub counts_pud: bool,
}

/// What memory is mapped with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Base pages: a PTE table per 2 MiB (x86-64).
    Base,
    /// Transparent huge pages of anonymous memory: each keeps a deposited PTE table for the day it is split,
    /// so nothing is saved.
    Thp,
    /// hugetlb pages of PMD size, or file THP mapped by a PMD: no PTE tables.
    Pmd,
    /// hugetlb pages of PUD size (1 GiB): no PTE and no PMD tables.
    Pud,
}

/// Numbers of tables, each one base page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Tables of base-page entries.
    pub pte: u64,
    /// Tables whose entries cover a PTE table or a PMD-sized page.
    pub pmd: u64,
    /// Tables whose entries cover a PMD table or a PUD-sized page.
    pub pud: u64,
    /// Tables of the fifth level; 0 with four levels.
    pub p4d: u64,
    /// The root, one per process.
    pub pgd: u64,
}

impl Tables {
    /// All levels.
    pub const fn total(self) -> u64 {
        self.pte
            .saturating_add(self.pmd)
            .saturating_add(self.pud)
            .saturating_add(self.p4d)
            .saturating_add(self.pgd)
    }

    /// What all levels take.
    pub const fn bytes(self, page: PageSize) -> Bytes {
        page.of(self.total())
    }

    /// What `PageTables` of `/proc/meminfo` shows of it: PTE tables, since 5.15 PMD and since 6.12 PUD tables
    /// too.
    pub const fn counted(self, rules: &PageTableRules, page: PageSize) -> Bytes {
        let mut tables = self.pte;
        if rules.counts_pmd {
            tables = tables.saturating_add(self.pmd);
        }
        if rules.counts_pud {
            tables = tables.saturating_add(self.pud);
        }
        page.of(tables)
    }

    /// The tables of `n` such processes.
    pub const fn times(self, n: u64) -> Tables {
        Tables {
            pte: self.pte.saturating_mul(n),
            pmd: self.pmd.saturating_mul(n),
            pud: self.pud.saturating_mul(n),
            p4d: self.p4d.saturating_mul(n),
            pgd: self.pgd.saturating_mul(n),
        }
    }
}

/// How many levels a process's page table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Levels {
    /// PGD, PUD, PMD, PTE: 256 TiB with 4 KiB pages.
    #[default]
    Four,
    /// With a P4D between: 128 PiB.
    Five,
}

/// What one entry of the lowest table maps under `mapping`.
pub const fn leaf(mapping: Mapping, page: PageSize) -> Bytes {
    match mapping {
        Mapping::Base => page.bytes(),
        Mapping::Thp | Mapping::Pmd => page.pmd_huge(),
        Mapping::Pud => page.pmd_huge().times(page.bytes().0 / ENTRY_BYTES),
    }
}

/// 8 bytes for each page of `leaf` size that `touched` needs: the arithmetic of articles and manuals.
///
/// Less than the tables themselves ([`tables`]) by the upper levels and the last table's unused rest. 0 when
/// `leaf` is empty.
pub const fn entry_bytes(touched: Bytes, leaf: Bytes) -> Bytes {
    Bytes(touched.units_of(leaf).saturating_mul(ENTRY_BYTES))
}

/// The tables of one process that has touched `touched` contiguous bytes, aligned to what the largest table
/// needed covers.
///
/// Memory that straddles a table's boundary takes one more table of that level. The root counts once, also
/// when nothing is touched.
pub const fn tables(touched: Bytes, mapping: Mapping, page: PageSize, levels: Levels) -> Tables {
    let entries = page.bytes().0 / ENTRY_BYTES;
    let pte_span = page.pmd_huge();
    let pmd_span = pte_span.times(entries);
    let pud_span = pmd_span.times(entries);
    let p4d_span = pud_span.times(entries);
    Tables {
        pte: match mapping {
            Mapping::Base | Mapping::Thp => touched.units_of(pte_span),
            Mapping::Pmd | Mapping::Pud => 0,
        },
        pmd: match mapping {
            Mapping::Pud => 0,
            _ => touched.units_of(pmd_span),
        },
        pud: touched.units_of(pud_span),
        p4d: match levels {
            Levels::Four => 0,
            Levels::Five => touched.units_of(p4d_span),
        },
        pgd: 1,
    }
}

/// The tables of `processes` that share one hugetlb segment of PMD-sized pages, where the kernel lets them
/// share PMD tables (x86-64 and arm64).
///
/// One PMD table serves all of them for each aligned range that it covers whole (1 GiB with 4 KiB pages); the
/// rest of the segment takes a table in each process.
pub const fn shared_hugetlb_tables(touched: Bytes, processes: u64, page: PageSize, levels: Levels) -> Tables {
    let one = tables(touched, Mapping::Pmd, page, levels);
    let span = page.pmd_huge().times(page.bytes().0 / ENTRY_BYTES);
    let whole = if span.0 == 0 || processes == 0 { 0 } else { touched.0 / span.0 };
    let own = one.pmd.saturating_sub(whole);
    let mut all = one.times(processes);
    all.pmd = whole.saturating_add(own.saturating_mul(processes));
    all
}

/// What each of `processes` has touched of a shared mapping, estimated from their page tables.
///
/// One table of base pages stands for 2 MiB of memory, so this is an upper bound when touches are scattered.
/// `None` without processes.
pub const fn touched_per_process(page_tables: Bytes, processes: u64, page: PageSize) -> Option<Bytes> {
    if processes == 0 {
        return None;
    }
    // one table covers page/8 pages: the factor is entries per table
    Some(Bytes(mul_div(page_tables.0, page.bytes().0 / ENTRY_BYTES, processes)))
}

/// What `processes` would save in PTE tables by mapping `touched` bytes each with PMD-sized pages.
pub const fn saving(touched: Bytes, processes: u64, page: PageSize) -> Bytes {
    page.of(mul_div_up(touched.units_of(page.pmd_huge()), processes, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    const X86: PageSize = PageSize::X86;

    fn base(gib: u64) -> Tables {
        tables(Bytes::gib(gib), Mapping::Base, X86, Levels::Four)
    }

    #[test]
    fn two_mebibytes_of_pte_tables_per_gibibyte() {
        for (gib, mib) in [(1, 2), (8, 16), (16, 32), (34, 68), (64, 128), (128, 256)] {
            assert_eq!(X86.of(base(gib).pte), Bytes::mib(mib), "{gib} GiB");
        }
        assert_eq!(base(16), Tables { pte: 8192, pmd: 16, pud: 1, p4d: 0, pgd: 1 });
        assert_eq!(base(513).pud, 2);
        assert_eq!(tables(Bytes(1), Mapping::Base, X86, Levels::Five).total(), 5);
        assert_eq!(tables(Bytes::ZERO, Mapping::Base, X86, Levels::Five).total(), 1);
    }

    #[test]
    fn article_arithmetic_for_16_gib() {
        let sga = Bytes::gib(16);
        assert_eq!(sga.units_of(leaf(Mapping::Base, X86)), 4_194_304);
        assert_eq!(entry_bytes(sga, leaf(Mapping::Base, X86)), Bytes::mib(32));
        assert_eq!(sga.units_of(leaf(Mapping::Pmd, X86)), 8192);
        assert_eq!(entry_bytes(sga, leaf(Mapping::Pmd, X86)), Bytes::kib(64));
        assert_eq!(entry_bytes(sga, leaf(Mapping::Pud, X86)), Bytes(128));
        assert_eq!(entry_bytes(sga, leaf(Mapping::Base, X86)).times(100), Bytes::mib(3200));
    }

    #[test]
    fn huge_pages_leave_the_upper_levels() {
        let huge = tables(Bytes::gib(16), Mapping::Pmd, X86, Levels::Four);
        assert_eq!(huge, Tables { pte: 0, pmd: 16, pud: 1, p4d: 0, pgd: 1 });
        let giant = tables(Bytes::gib(16), Mapping::Pud, X86, Levels::Four);
        assert_eq!(giant, Tables { pte: 0, pmd: 0, pud: 1, p4d: 0, pgd: 1 });
        let shared = shared_hugetlb_tables(Bytes::gib(16), 100, X86, Levels::Four);
        assert_eq!(shared, Tables { pte: 0, pmd: 16, pud: 100, p4d: 0, pgd: 100 });
        let odd = shared_hugetlb_tables(Bytes::mib(1536), 100, X86, Levels::Four);
        assert_eq!(odd.pmd, 1 + 100);
    }

    #[test]
    fn transparent_huge_pages_save_no_tables() {
        // 6.18, 1 GiB of private anonymous memory: VmPTE +2052 kB with THP and without
        for mapping in [Mapping::Base, Mapping::Thp] {
            let one = tables(Bytes::gib(1), mapping, X86, Levels::Four);
            assert_eq!(X86.of(one.pte + one.pmd), Bytes::kib(2052));
        }
    }

    #[test]
    fn twenty_processes_on_one_gibibyte_as_measured() {
        // 6.18: 42460 kB with 4 KiB pages, 1612 kB with hugetlb; what the processes take beside it cancels
        // out
        let measured = Bytes::kib(42_460 - 1_612);
        let expected = saving(Bytes::gib(1), 20, X86);
        assert_eq!(expected, Bytes::mib(40));
        assert!((measured.share_of(expected) - 1.0).abs() < 0.003);
    }

    #[test]
    fn oracle_systems_touched_a_share_of_their_sga() {
        // A: 1591860 kB, 444 sessions, 8 GiB; B: 12023792 kB, 400 sessions, 34 GiB
        let a = touched_per_process(Bytes::kib(1_591_860), 444, X86).unwrap();
        let b = touched_per_process(Bytes::kib(12_023_792), 400, X86).unwrap();
        assert!((a.share_of(Bytes::gib(8)) - 0.219).abs() < 0.001);
        assert!((b.share_of(Bytes::gib(34)) - 0.432).abs() < 0.001);
        assert_eq!(saving(Bytes::gib(8), 444, X86), Bytes::mib(16 * 444));
        // 400 sessions on 34 GiB: 26.6 GiB at full touch, 11.5 GiB observed
        assert_eq!(saving(Bytes::gib(34), 400, X86), Bytes::mib(68 * 400));
        assert_eq!(touched_per_process(Bytes(1), 0, X86), None);
    }

    #[test]
    fn meminfo_counts_more_levels_in_newer_kernels() {
        let one = base(16);
        assert_eq!(one.counted(&Rules::linux_5_4().page_tables, X86), X86.of(8192));
        assert_eq!(one.counted(&Rules::linux_6_1().page_tables, X86), X86.of(8192 + 16));
        assert_eq!(one.counted(&Rules::linux_6_12().page_tables, X86), X86.of(8192 + 17));
        assert_eq!(one.bytes(X86), X86.of(8192 + 18));
    }
}
