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

    /// How many whole pages `bytes` holds, rounded down.
    pub const fn pages(self, bytes: Bytes) -> u64 {
        bytes.0 / self.0.0
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
}
