//! Finds the origin of a running `vm.min_free_kbytes`.

use lotsfree_formulas::Rules;
use lotsfree_formulas::watermarks::{khugepaged_min_free_kib, min_free_kib};
use lotsfree_kernel_files::counters::zoneinfo as z;

use crate::{Context, Skip};

/// `/proc/zoneinfo` counts as complete if its zones hold at least this share of `MemTotal`.
const WHOLE: f64 = 0.9;

/// Values that the kernel chooses by itself on this host, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// The value at boot, from the size of memory.
    pub(crate) by_size: u64,
    /// The value to which khugepaged raises it, for the zones that hold memory.
    pub(crate) by_thp: u64,
    /// Number of zones that khugepaged counts.
    pub(crate) zones: u64,
    /// khugepaged's value if it treated a Movable zone the other way: counted, or not, contrary to this
    /// kernel's record.
    pub(crate) by_thp_otherwise: u64,
    /// Whether transparent huge pages are on, in any way.
    pub(crate) thp: bool,
}

impl Defaults {
    /// Computes the values from `/proc/zoneinfo`, the kernel's release and the THP mode.
    pub(crate) fn of(cx: &Context<'_>) -> Result<Defaults, Skip> {
        let rules =
            Rules::of_release(&cx.now().host.kernel.release).unwrap_or(Rules::linux_6_12()).watermarks;
        let page = cx.now().host.page_size;
        let (mut lowmem, mut all, mut without_movable, mut held) = (0u64, 0u64, 0u64, 0u64);
        for zone in cx.zones()? {
            let mark = |field| zone.marks.get(field).unwrap_or(0);
            // Kernels print `managed` from 3.8 on.
            let managed = zone.marks.get(z::managed).unwrap_or_else(|| mark(z::present));
            if mark(z::present) == 0 && managed == 0 || &*zone.name == "Device" {
                continue;
            }
            all += 1;
            // Memory that is initialised when it is first needed is present before it is managed.
            held = held.saturating_add(managed.max(mark(z::present)));
            if &*zone.name != "Movable" {
                without_movable += 1;
                lowmem = lowmem.saturating_add(managed);
            }
        }
        if all == 0 {
            return Err(Skip::missing("/proc/zoneinfo managed"));
        }
        // An excerpt does not tell the size of memory and the number of zones.
        if cx.total().is_ok_and(|total| page.of(held).as_f64() < WHOLE * total.as_f64()) {
            return Err(Skip::missing("/proc/zoneinfo: all zones of the host"));
        }
        let raise = |zones| khugepaged_min_free_kib(page, zones, lowmem);
        let (zones, others) = match rules.khugepaged_counts_movable {
            true => (all, without_movable),
            false => (without_movable, all),
        };
        Ok(Defaults {
            by_size: min_free_kib(&rules, page.of(lowmem).as_kib()),
            by_thp: raise(zones),
            zones,
            by_thp_otherwise: raise(others),
            thp: cx.thp().is_ok_and(|thp| &*thp.enabled.selected != "never"),
        })
    }

    /// The value with which the kernel runs unless somebody changes it.
    pub(crate) fn chosen(&self) -> u64 {
        if self.thp { self.by_size.max(self.by_thp) } else { self.by_size }
    }

    /// The kernel's own choice that the running value is equal to, if any.
    pub(crate) fn origin(&self, now: u64) -> Option<Origin> {
        // Memory added or removed since boot changes the results slightly.
        let near = |value: u64| now.abs_diff(value) <= value / 50;
        if near(self.by_thp) || near(self.by_thp_otherwise) {
            return Some(Origin::ThpRaise);
        }
        near(self.by_size).then_some(Origin::Boot)
    }
}

/// The part of the kernel that chose a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// At boot, from the size of memory.
    Boot,
    /// khugepaged, because transparent huge pages are (or were) on.
    ThpRaise,
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::{Values, meminfo as m};
    use lotsfree_kernel_files::file::zoneinfo::Zone;
    use lotsfree_snapshot::{Observation, Snapshot};

    use super::*;

    #[test]
    fn one_zone_of_many_says_nothing_of_the_defaults() {
        let of = |total_kib: u64| {
            let mut zone = Zone { name: "Normal".into(), ..Zone::default() };
            zone.marks.set(z::present, 6_205_440);
            let mut meminfo = Values::default();
            meminfo.set(m::MemTotal, total_kib);
            let now = Snapshot { zones: Some(vec![zone]), meminfo: Some(meminfo), ..Snapshot::default() };
            let observation = Observation::instant("test", now);
            Defaults::of(&Context::new(&observation)).map(|defaults| defaults.zones)
        };
        assert!(matches!(of(48 << 20), Err(Skip::Unknown(_))));
        assert_eq!(of(24 << 20), Ok(1));
    }
}
