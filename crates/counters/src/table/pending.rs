//! Families whose rows are being written.

/// Zoneinfo.
pub mod zoneinfo {
    counters! {
        /// Zoneinfo.
        family Zoneinfo in zoneinfo, "/proc/zoneinfo", separator b' ';
        free, count, gauge, since "2.6.32", "x", "y";
        min, count, gauge, since "2.6.32", "x", "y";
        low, count, gauge, since "2.6.32", "x", "y";
        high, count, gauge, since "2.6.32", "x", "y";
    }
}
pub use zoneinfo::Zoneinfo;

/// Numastat.
pub mod numastat {
    counters! {
        /// Numastat.
        family Numastat in numastat, "numastat", separator b' ';
        numa_hit, count, gauge, since "2.6.32", "x", "y";
    }
}
pub use numastat::Numastat;

/// Status.
pub mod status {
    counters! {
        /// Status.
        family Status in status, "/proc/PID/status", separator b':';
        VmPTE, count, gauge, since "2.6.32", "x", "y";
        VmSwap, count, gauge, since "2.6.32", "x", "y";
        VmRSS, count, gauge, since "2.6.32", "x", "y";
        VmLck, count, gauge, since "2.6.32", "x", "y";
        RssAnon, count, gauge, since "2.6.32", "x", "y";
    }
}
pub use status::Status;

/// SmapsRollup.
pub mod smaps_rollup {
    counters! {
        /// SmapsRollup.
        family SmapsRollup in smaps_rollup, "/proc/PID/smaps_rollup", separator b':';
        Rss, count, gauge, since "2.6.32", "x", "y";
    }
}
pub use smaps_rollup::SmapsRollup;

/// MemoryStat.
pub mod memory_stat {
    counters! {
        /// MemoryStat.
        family MemoryStat in memory_stat, "memory.stat", separator b' ';
        anon, count, gauge, since "2.6.32", "x", "y";
    }
}
pub use memory_stat::MemoryStat;

/// MemoryEvents.
pub mod memory_events {
    counters! {
        /// MemoryEvents.
        family MemoryEvents in memory_events, "memory.events", separator b' ';
        oom_kill, count, gauge, since "2.6.32", "x", "y";
    }
}
pub use memory_events::MemoryEvents;

/// MthpStats.
pub mod mthp_stats {
    counters! {
        /// MthpStats.
        family MthpStats in mthp_stats, "stats", separator b' ';
        split, count, gauge, since "2.6.32", "x", "y";
    }
}
pub use mthp_stats::MthpStats;

/// Ksm.
pub mod ksm {
    counters! {
        /// Ksm.
        family Ksm in ksm, "ksm", separator b' ';
        run, count, gauge, since "2.6.32", "x", "y";
    }
}
pub use ksm::Ksm;
