//! Reclaim and page cache.

use crate::rule::rules;

rules! {
    memory_exhaustion::MemoryExhaustion,
    available_falls::AvailableFalls,
    allocation_failure::AllocationFailure,
    hung_tasks::HungTasks,
    since_boot::SinceBoot,
    zone_reclaim::ZoneReclaim,
    zone_watermarks::ZoneWatermarks,
    pagecache_displaces_anon::PagecacheDisplacesAnon,
    direct_reclaim::DirectReclaim,
    kswapd_behind::KswapdBehind,
    readahead_in_vain::ReadaheadInVain,
    file_thrash::FileThrash,
    cache_garbage::CacheGarbage,
    drop_caches_cron::DropCachesCron,
    swappiness_zero_oom::SwappinessZeroOom,
    swappiness_mismatch::SwappinessMismatch,
    dirty_limits_too_big::DirtyLimitsTooBig,
    psi_memory::PsiMemory,
    slab_growth::SlabGrowth,
    unaccounted_kernel::UnaccountedKernel,
}
