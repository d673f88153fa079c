//! What a first touch costs.

/// Nanoseconds per fault, from the time of a pass that faults and of one over resident memory (both in
/// nanoseconds); `None` without faults. A slower resident pass gives 0.
pub const fn fault_ns(faulting_ns: u64, resident_ns: u64, faults: u64) -> Option<u64> {
    faulting_ns.saturating_sub(resident_ns).checked_div(faults)
}

/// Faults of touching `bytes` once with pages of `page` bytes, rounded up; 0 when `page` is 0.
pub const fn first_touch_faults(bytes: u64, page: u64) -> u64 {
    if page == 0 { 0 } else { bytes.div_ceil(page) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_pages_cost_1577_ns_each() {
        assert_eq!(first_touch_faults(4 << 30, 4096), 1_048_576);
        assert_eq!(fault_ns(1_682_093_000, 28_260_000, 1_048_577), Some(1577));
        assert_eq!(fault_ns(1, 2, 1), Some(0));
        assert_eq!(fault_ns(1, 2, 0), None);
    }
}
