//! `/sys/kernel/mm/hugepages/hugepages-*kB` and the same directories of each node.

use lotsfree_units::Bytes;
use serde::Serialize;

use super::scan::decimal;

/// The pool of one page size. `HugePages_*` in meminfo show only the pool of the default size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HugePool {
    /// Size of one page.
    pub size: Bytes,
    /// `nr_hugepages`: pages in the pool, surplus included.
    pub total: u64,
    /// `free_hugepages`: pages not yet handed out.
    pub free: u64,
    /// `resv_hugepages`: pages promised to mappings and not yet touched (machine-wide only, 0 per node).
    pub reserved: u64,
    /// `surplus_hugepages`: pages beyond the persistent pool.
    pub surplus: u64,
    /// `nr_overcommit_hugepages`: surplus pages that may be allocated on demand (machine-wide only).
    pub overcommit: u64,
}

/// The page size in the name of a pool's directory: `hugepages-2048kB` (`mm/hugetlb.c`, `HSTATE_NAME_LEN`).
/// The directories of huge page sizes below `transparent_hugepage` are named the same way.
pub fn directory_size(name: &str) -> Option<Bytes> {
    let kib = decimal(name.strip_prefix("hugepages-")?.strip_suffix("kB")?.as_bytes())?;
    kib.checked_mul(1024).filter(|&bytes| bytes > 0).map(Bytes)
}

impl HugePool {
    /// The name of the pool's directory.
    pub fn directory(&self) -> String {
        format!("hugepages-{}kB", self.size.as_kib())
    }

    /// Bytes of the whole pool.
    pub fn bytes(&self) -> Bytes {
        self.size.times(self.total)
    }

    /// Pages neither used nor promised: `free - reserved`.
    pub fn idle(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// Pages touched: `total - free`.
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn directories_name_page_sizes() {
        assert_eq!(directory_size("hugepages-2048kB"), Some(Bytes::mib(2)));
        assert_eq!(directory_size("hugepages-1048576kB"), Some(Bytes::gib(1)));
        let bad = [
            "",
            "hugepages-",
            "hugepages-kB",
            "hugepages-0kB",
            "hugepages-2048",
            "hugepages-2048kBx",
            "x-2048kB",
            "hugepages--1kB",
            "hugepages-18446744073709551615kB",
            "hugepages-99999999999999999999kB",
            "kB",
        ];
        for name in bad {
            assert_eq!(directory_size(name), None, "{name}");
        }
    }

    #[test]
    fn idle_pages_are_neither_used_nor_promised() {
        let pool =
            HugePool { size: Bytes::mib(2), total: 100, free: 60, reserved: 25, ..HugePool::default() };
        assert_eq!((pool.idle(), pool.used(), pool.bytes()), (35, 40, Bytes::mib(200)));
        let torn = HugePool { free: 3, reserved: 5, ..HugePool::default() };
        assert_eq!((torn.idle(), torn.used()), (0, 0));
    }

    proptest! {
        #[test]
        fn directory_names_round_trip(kib in 1u64..u64::MAX >> 10) {
            let pool = HugePool { size: Bytes::kib(kib), ..HugePool::default() };
            prop_assert_eq!(directory_size(&pool.directory()), Some(pool.size));
        }
    }
}
