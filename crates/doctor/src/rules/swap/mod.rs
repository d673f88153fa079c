//! Swap, overcommit and the OOM killer.

use crate::rule::rules;

rules! {
    swap_thrash::SwapThrash,
    zswap_full::ZswapFull,
    killed_by_daemon::KilledByDaemon,
    request_refused::RequestRefused,
    swap_exhaustion::SwapExhaustion,
    commit_exhaustion::CommitExhaustion,
    no_swap_no_guard::NoSwapNoGuard,
    swap_undersized::SwapUndersized,
    swap_placement::SwapPlacement,
    swap_readahead::SwapReadahead,
    protected_app_swapped::ProtectedAppSwapped,
    tmpfs_growth::TmpfsGrowth,
    deleted_files::DeletedFiles,
    oom_happened::OomHappened,
    oom_score::OomScore,
    userspace_killer::UserspaceKiller,
    map_count::MapCount,
    min_free_off::MinFreeOff,
    failure_policy::FailurePolicy,
}
