//! What to protect with `memory.low`.

use lotsfree_units::Bytes;

use crate::mul_div;

/// `memory.low` for a program: the 99th percentile of its anonymous, shared and active file memory, and 10 %.
///
/// Every ancestor needs at least as much, or the mount option `memory_recursiveprot`.
pub const fn memory_low(p99: Bytes) -> Bytes {
    Bytes(mul_div(p99.0, 11, 10))
}

/// The most that all `memory.low` of a host may add up to: RAM less the hugetlb pools, `min_free` and 10 % of
/// RAM.
pub const fn low_budget(ram: Bytes, hugetlb: Bytes, min_free: Bytes) -> Bytes {
    Bytes(ram.0.saturating_sub(hugetlb.0).saturating_sub(min_free.0).saturating_sub(ram.0 / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_percent_above_and_below() {
        assert_eq!(memory_low(Bytes::gib(10)), Bytes::gib(11));
        assert_eq!(low_budget(Bytes::gib(100), Bytes::gib(30), Bytes::gib(1)), Bytes::gib(59));
        assert_eq!(low_budget(Bytes::gib(1), Bytes::gib(1), Bytes::ZERO), Bytes::ZERO);
    }
}
