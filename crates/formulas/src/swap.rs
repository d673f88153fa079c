//! How much swap vendors ask for, and how much a host can use.

use lotsfree_units::{Bytes, GIB};

use crate::mul_div;

/// Least swap on a host with SAP applications.
pub const SAP_MIN: Bytes = Bytes::gib(10);
/// Longest time, in seconds, that emptying swap may take before swap is larger than the host can use.
pub const DRAIN_SECONDS: u64 = 600;

/// Oracle's row: 1.5 × RAM to 2 GiB, RAM to 16 GiB, 16 GiB beyond. `None` below 1 GiB, for which there is no
/// row.
///
/// `ram_net` is RAM without the hugetlb pools.
pub const fn oracle(ram_net: Bytes) -> Option<Bytes> {
    match ram_net.0 {
        n if n < GIB => None,
        n if n <= 2 * GIB => Some(Bytes(mul_div(n, 3, 2))),
        n if n <= 16 * GIB => Some(ram_net),
        _ => Some(Bytes::gib(16)),
    }
}

/// Red Hat's row without hibernation: 2 × RAM to 2 GiB, RAM to 8 GiB, at least 4 GiB beyond (RHEL 7 and
/// newer).
pub const fn rhel(ram: Bytes) -> Bytes {
    match ram.0 {
        n if n <= 2 * GIB => ram.times(2),
        n if n <= 8 * GIB => ram,
        _ => Bytes::gib(4),
    }
}

/// Sun's rule for Solaris 9 and 10 (solaris-swap): half to one and a half times RAM.
pub const fn solaris(ram: Bytes) -> (Bytes, Bytes) {
    (Bytes(ram.0 / 2), Bytes(mul_div(ram.0, 3, 2)))
}

/// Swap for the memory that a host can do without: `cold` anonymous memory (peak of `VmSwap`, and what is
/// idle), at most what a device of `bandwidth` bytes per second reads back in [`DRAIN_SECONDS`].
pub const fn for_cold_memory(cold: Bytes, bandwidth: Bytes) -> Bytes {
    let drain = drain_limit(bandwidth);
    if cold.0 < drain.0 { cold } else { drain }
}

/// The most that a device of `bandwidth` bytes per second reads back in [`DRAIN_SECONDS`].
pub const fn drain_limit(bandwidth: Bytes) -> Bytes {
    bandwidth.times(DRAIN_SECONDS)
}

/// Solaris's virtual swap: pageable memory that is not in use, and disk swap.
pub const fn solaris_virtual_swap(ram: Bytes, used: Bytes, reserved: Bytes, disk: Bytes) -> Bytes {
    Bytes(ram.0.saturating_sub(used.0).saturating_sub(reserved.0).saturating_add(disk.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_at_their_borders() {
        for (ram, swap) in
            [(1, Some(1536)), (2, Some(3072)), (3, Some(3072)), (16, Some(16_384)), (17, Some(16_384))]
        {
            assert_eq!(oracle(Bytes::gib(ram)), swap.map(Bytes::mib), "{ram} GiB");
        }
        assert_eq!(oracle(Bytes::mib(1023)), None);
        for (ram, swap) in [(2, 4), (3, 3), (8, 8), (9, 4), (64, 4), (65, 4), (1024, 4)] {
            assert_eq!(rhel(Bytes::gib(ram)), Bytes::gib(swap), "{ram} GiB");
        }
        assert_eq!(solaris(Bytes::gib(16)), (Bytes::gib(8), Bytes::gib(24)));
        assert_eq!(SAP_MIN, Bytes::gib(10));
    }

    #[test]
    fn no_more_than_drains_in_ten_minutes() {
        assert_eq!(for_cold_memory(Bytes::gib(3), Bytes::mib(100)), Bytes::gib(3));
        assert_eq!(for_cold_memory(Bytes::gib(300), Bytes::mib(100)), Bytes::mib(60_000));
    }

    #[test]
    fn virtual_swap_is_what_can_be_paged_and_the_disk() {
        let virtual_swap = |used| solaris_virtual_swap(Bytes::gib(16), used, Bytes::gib(1), Bytes::gib(4));
        assert_eq!(virtual_swap(Bytes::gib(2)), Bytes::gib(17));
        // used beyond what is pageable does not eat disk swap
        assert_eq!(virtual_swap(Bytes::gib(16)), Bytes::gib(4));
    }
}
