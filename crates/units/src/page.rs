//! [`PageSize`]: the size of a base page on the host that figures came from.

use serde::{Deserialize, Serialize};

use crate::{Bytes, KIB};

/// The base page size of a host: 4 KiB on x86-64, 4, 16 or 64 KiB on arm64, 64 KiB on ppc64le.
///
/// Always that of the host that the figures came from, which need not be the one that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageSize(Bytes);

impl PageSize {
    /// 4 KiB, the page of x86-64.
    pub const X86: PageSize = PageSize(Bytes(4 * KIB));

    /// A page size in bytes: a power of two from 4 KiB to 64 KiB, else `None`.
    pub const fn new(bytes: u64) -> Option<PageSize> {
        match bytes.is_power_of_two() && 4 * KIB <= bytes && bytes <= 64 * KIB {
            true => Some(PageSize(Bytes(bytes))),
            false => None,
        }
    }

    /// The size of one page.
    pub const fn bytes(self) -> Bytes {
        self.0
    }

    /// What `pages` pages hold.
    pub const fn of(self, pages: u64) -> Bytes {
        self.0.times(pages)
    }

    /// What `pages` pages hold, in KiB.
    pub const fn kib(self, pages: u64) -> u64 {
        pages.saturating_mul(self.0.as_kib())
    }

    /// `PAGE_SHIFT`: a page has two to the power of this many bytes.
    pub const fn shift(self) -> u32 {
        self.0.0.trailing_zeros()
    }

    /// How many pages hold `bytes`, rounded up.
    pub const fn pages_for(self, bytes: Bytes) -> u64 {
        bytes.0.saturating_add(self.0.0 - 1) >> self.shift()
    }

    /// How many whole pages `bytes` holds, rounded down.
    pub const fn pages(self, bytes: Bytes) -> u64 {
        bytes.0 >> self.shift()
    }

    /// The PMD-mapped huge page of this base page size: `page × page / 8` (2 MiB for 4 KiB, 512 MiB for 64
    /// KiB).
    pub const fn pmd_huge(self) -> Bytes {
        Bytes(self.0.0 * (self.0.0 / 8))
    }
}

impl Default for PageSize {
    fn default() -> Self {
        Self::X86
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_page_follows_from_the_base_page() {
        assert_eq!(PageSize::X86.pmd_huge(), Bytes::mib(2));
        assert_eq!(PageSize::new(65536).unwrap().pmd_huge(), Bytes::mib(512));
        assert_eq!(PageSize::new(3000), None);
    }

    #[test]
    fn bytes_and_pages_are_converted_both_ways() {
        let arm = PageSize::new(65536).unwrap();
        assert_eq!((PageSize::X86.shift(), arm.shift()), (12, 16));
        assert_eq!((arm.kib(3), arm.of(3)), (192, Bytes::kib(192)));
        assert_eq!((arm.pages(Bytes::kib(100)), arm.pages_for(Bytes::kib(100))), (1, 2));
        assert_eq!(arm.pages_for(Bytes::ZERO), 0);
    }
}
