//! Transparent huge pages.

use crate::rule::rules;

rules! {
    thp_mode_mismatch::ThpModeMismatch,
    thp_compaction_stall::ThpCompactionStall,
    thp_split_storm::ThpSplitStorm,
    thp_bloat::ThpBloat,
    khugepaged_cpu::KhugepagedCpu,
    ksm_on_database::KsmOnDatabase,
    fork_cow_thp::ForkCowThp,
}
