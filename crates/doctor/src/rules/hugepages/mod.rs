//! Page tables and huge pages.

use crate::rule::rules;

rules! {
    pagetable_bloat::PagetableBloat,
    no_hugepages_for_big_shm::NoHugepagesForBigShm,
    pool_accounting::PoolAccounting,
    pool_unused::PoolUnused,
    pool_too_small::PoolTooSmall,
    pool_waste::PoolWaste,
    memlock_too_low::MemlockTooLow,
    amm_blocks_hugepages::AmmBlocksHugepages,
    pool_too_large::PoolTooLarge,
    runtime_alloc_short::RuntimeAllocShort,
    huge_page_node_skew::HugePageNodeSkew,
    page_size_mixup::PageSizeMixup,
    hugetlb_cgroup_sigbus::HugetlbCgroupSigbus,
    shm_limits::ShmLimits,
    orphan_shm::OrphanShm,
    hvo_off::HvoOff,
    pool_on_hana::PoolOnHana,
}
