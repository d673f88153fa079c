//! Memory that a zone keeps back from requests that could use a higher zone, and the sum kept from everybody.

/// `vm.lowmem_reserve_ratio` as shipped: DMA, DMA32, Normal, Movable; 0 keeps nothing.
pub const LOWMEM_RESERVE_RATIO: [u64; 4] = [256, 256, 32, 0];

/// The lowmem reserves of one node: `reserve[i][j]` is what zone `i` keeps, in pages, from a request whose
/// highest zone is `j`.
///
/// `managed_pages` are the zones of the node from low to high, empty ones included. `ratios` are
/// `vm.lowmem_reserve_ratio`; a missing ratio counts as 0, which reserves nothing, as does a zone without
/// memory. This is the `protection:` line of `/proc/zoneinfo`. The kernel computes it at boot and whenever
/// the sysctl is written, or only read (seen on 6.1 and 6.12). Source: `setup_per_zone_lowmem_reserve`.
pub fn lowmem_reserve(managed_pages: &[u64], ratios: &[u64]) -> Vec<Vec<u64>> {
    managed_pages
        .iter()
        .enumerate()
        .map(|(i, &own)| {
            let ratio = ratios.get(i).copied().unwrap_or(0);
            let mut above = 0u64;
            managed_pages
                .iter()
                .enumerate()
                .map(|(j, &managed)| {
                    if j <= i || ratio == 0 || own == 0 {
                        return 0;
                    }
                    above = above.saturating_add(managed);
                    above / ratio
                })
                .collect()
        })
        .collect()
}

/// One zone's part in `totalreserve_pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveZone {
    /// `managed` of `/proc/zoneinfo`, in pages.
    pub managed: u64,
    /// `high` of `/proc/zoneinfo`, in pages, less the zone's `boost`: the sum is kept from when the marks
    /// were set.
    pub high: u64,
    /// Largest number of the zone's `protection:` line, in pages.
    pub protection_max: u64,
}

/// `totalreserve_pages`: what no estimate of available memory may count on.
///
/// The sum over zones of the high mark and the largest lowmem reserve, at most the zone itself. Source:
/// `calculate_totalreserve_pages`.
pub fn totalreserve_pages(zones: impl IntoIterator<Item = ReserveZone>) -> u64 {
    zones
        .into_iter()
        .map(|zone| zone.high.saturating_add(zone.protection_max).min(zone.managed))
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_zone_keeps_a_share_of_what_lies_above_it() {
        let reserve = lowmem_reserve(&[3840, 772_497, 491_520, 0, 0], &LOWMEM_RESERVE_RATIO);
        assert_eq!(reserve[0], [0, 3017, 4937, 4937, 4937]);
        assert_eq!(reserve[1], [0, 0, 1920, 1920, 1920]);
        assert_eq!(reserve[2], [0, 0, 0, 0, 0]);
        assert_eq!(reserve[3], [0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_small_zone_is_reserved_whole() {
        let dma = ReserveZone { managed: 3840, high: 75, protection_max: 4937 };
        let dma32 = ReserveZone { managed: 772_497, high: 15_440, protection_max: 1920 };
        assert_eq!(totalreserve_pages([dma, dma32]), 3840 + 17_360);
    }
}
