//! The rows, one file per family.

/// Declares a family: a marker type, its rows and one typed name per row.
///
/// ```text
/// counters! {
///     /// The fields of /proc/meminfo.
///     family Meminfo in meminfo, "/proc/meminfo", separator b':';
///     MemTotal, kib, gauge, since "2.6.32", "meaning", "fs/proc/meminfo.c:meminfo_proc_show";
///     Active_anon = "Active(anon)", kib, gauge, since "2.6.32" until "9.9", "meaning", "source";
/// }
/// ```
macro_rules! counters {
    (
        $(#[$doc:meta])*
        family $family:ident in $module:ident, $file:literal, separator $separator:literal;
        $($id:ident $(= $name:literal)?, $unit:ident, $kind:ident, since $since:literal $(until $until:literal)?,
          $meaning:literal, $source:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $family;

        impl $crate::counters::Family for $family {
            const NAME: &'static str = stringify!($module);
            const FILE: &'static str = $file;
            const SEPARATOR: u8 = $separator;
            const ROWS: &'static [$crate::counters::Row] = &[
                $($crate::counters::Row {
                    name: counters!(@name $id $($name)?),
                    unit: $crate::counters::Unit::$unit,
                    kind: $crate::counters::Kind::$kind,
                    since: $crate::version::Release::named($since),
                    until: counters!(@until $($until)?),
                    meaning: $meaning,
                    source: $source,
                },)*
            ];

            fn index() -> &'static $crate::counters::Index {
                static INDEX: $crate::counters::Index = $crate::counters::Index::new();
                &INDEX
            }
        }

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Position { $($id),* }

        $(#[doc = $meaning]
        #[allow(non_upper_case_globals)]
        pub const $id: $crate::counters::Counter<$family> = $crate::counters::Counter::at(Position::$id as u16);)*
    };
    (@name $id:ident $name:literal) => { $name };
    (@name $id:ident) => { stringify!($id) };
    (@until $until:literal) => { Some($crate::version::Release::named($until)) };
    (@until) => { None };
}

pub mod khugepaged;
pub mod ksm;
pub mod meminfo;
pub mod memory_events;
pub mod memory_stat;
pub mod mthp_stats;
pub mod numastat;
pub mod smaps_rollup;
pub mod status;
pub mod vmstat;
pub mod zoneinfo;

pub use khugepaged::Khugepaged;
pub use ksm::Ksm;
pub use meminfo::Meminfo;
pub use memory_events::MemoryEvents;
pub use memory_stat::MemoryStat;
pub use mthp_stats::MthpStats;
pub use numastat::Numastat;
pub use smaps_rollup::SmapsRollup;
pub use status::Status;
pub use vmstat::Vmstat;
pub use zoneinfo::Zoneinfo;

/// Calls a macro once for each family, with its marker type: `each_family!(visit)` is `visit!(Meminfo);` and
/// so on, in the order of the reference page. The marker types have to be in scope.
#[macro_export]
macro_rules! each_family {
    ($call:ident) => {
        $call!(Meminfo);
        $call!(Vmstat);
        $call!(Zoneinfo);
        $call!(Numastat);
        $call!(Status);
        $call!(SmapsRollup);
        $call!(MemoryStat);
        $call!(MemoryEvents);
        $call!(MthpStats);
        $call!(Khugepaged);
        $call!(Ksm);
    };
}
