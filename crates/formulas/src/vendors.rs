//! Vendors' rules for `vm.min_free_kbytes` and `vm.max_map_count`.

use lotsfree_units::{Bytes, GIB};

use crate::mul_div;

/// SAP's upper bound, in KiB: more is an error.
pub const SAP_MIN_FREE_MAX_KIB: u64 = 2 << 20;
/// Relative to a rule's value, a setting from here …
pub const MIN_FREE_TOLERANCE_LOW: f64 = 0.8;
/// … to here is accepted.
pub const MIN_FREE_TOLERANCE_HIGH: f64 = 1.5;

/// SAP's steps: above so many bytes of RAM, at least so many KiB.
const SAP_STEPS: [(u64, u64); 5] = [
    (4096 * GIB, 262_144),
    (2048 * GIB, 184_435),
    (1024 * GIB, 130_414),
    (504 * GIB, 91_494),
    (259 * GIB, 65_536),
];

/// SAP's least `vm.min_free_kbytes`, in KiB; `None` up to 259 GiB of RAM, for which there is no step.
///
/// The steps are near the kernel's own unclamped default at 256, 499, 1014, 2028 and 4096 GiB.
pub fn sap_min_free_kib(ram: Bytes) -> Option<u64> {
    SAP_STEPS.iter().find(|(above, _)| ram.0 > *above).map(|&(_, kib)| kib)
}

/// Oracle's `vm.min_free_kbytes`, in KiB: the larger of 0.5 % of RAM and 1 GiB per NUMA node.
pub const fn oracle_min_free_kib(ram: Bytes, nodes: u64) -> u64 {
    let part = mul_div(ram.as_kib(), 5, 1000);
    let per_node = nodes.saturating_mul(1 << 20);
    if part > per_node { part } else { per_node }
}

/// `vm.max_map_count` for a program that is expected to hold `maps` mappings: twice as many.
pub const fn max_map_count(maps: u64) -> u64 {
    maps.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_contradict_each_other_at_one_tebibyte() {
        let ram = Bytes::gib(1024);
        assert_eq!(oracle_min_free_kib(ram, 4), 5_368_709);
        assert_eq!(sap_min_free_kib(ram), Some(91_494));
        let times = oracle_min_free_kib(ram, 4) as f64 / sap_min_free_kib(ram).unwrap() as f64;
        assert_eq!(times.round(), 59.0);
        assert!(oracle_min_free_kib(ram, 4) > SAP_MIN_FREE_MAX_KIB);
    }

    #[test]
    fn steps_begin_above_their_size() {
        for (gib, kib) in [
            (259, None),
            (260, Some(65_536)),
            (504, Some(65_536)),
            (505, Some(91_494)),
            (1024, Some(91_494)),
            (1025, Some(130_414)),
            (2049, Some(184_435)),
            (4097, Some(262_144)),
        ] {
            assert_eq!(sap_min_free_kib(Bytes::gib(gib)), kib, "{gib} GiB");
        }
        assert_eq!(oracle_min_free_kib(Bytes::gib(64), 2), 2_097_152);
        assert_eq!(max_map_count(131_072), 262_144);
    }
}
