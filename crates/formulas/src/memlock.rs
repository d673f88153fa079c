//! Who may use huge pages through System V shared memory, and how much a process may lock.

use lotsfree_units::{Bytes, KIB};

/// What a kernel asks of `shmget(SHM_HUGETLB)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemlockRules {
    /// A segment within `RLIMIT_MEMLOCK` is allowed without group or capability (through 5.15). From 6.1 on
    /// the limit opens nothing: EPERM.
    pub rlimit_allows_hugetlb: bool,
    /// `RLIMIT_MEMLOCK` of a process to which nobody gave another; `None` where it was not read.
    pub default_limit: Option<Bytes>,
}

/// Who asks for the segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Has CAP_IPC_LOCK.
    pub ipc_lock: bool,
    /// Is in the group that `vm.hugetlb_shm_group` names.
    pub in_shm_group: bool,
    /// `RLIMIT_MEMLOCK` of the running process; `None` is unlimited.
    pub memlock: Option<Bytes>,
    /// What the user has locked already.
    pub locked: Bytes,
}

/// Whether `shmget(SHM_HUGETLB)` of `segment` bytes is permitted. Source: `hugetlb_file_setup`.
///
/// Mappings of files in a hugetlbfs need only the file's permissions, whatever the answer here.
pub const fn shm_hugetlb_permitted(rules: &MemlockRules, owner: &Owner, segment: Bytes) -> bool {
    if owner.ipc_lock || owner.in_shm_group {
        return true;
    }
    rules.rlimit_allows_hugetlb
        && match owner.memlock {
            None => true,
            Some(limit) => owner.locked.0.saturating_add(segment.0) <= limit.0,
        }
}

/// The memlock limit in KiB for segments in huge pages and further memory that the process locks; rounded up.
pub const fn memlock_kib(hugetlb: Bytes, locked: Bytes) -> u64 {
    hugetlb.0.saturating_add(locked.0).div_ceil(KIB)
}

/// Oracle's limit in KiB for an instance without huge pages: 3 GiB.
pub const ORACLE_WITHOUT_HUGE_PAGES_KIB: u64 = 3 << 20;

/// Oracle's limit in KiB for an instance with huge pages: at least 90 % of RAM.
pub const fn oracle_memlock_kib(ram: Bytes) -> u64 {
    crate::mul_div(ram.as_kib(), 9, 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    #[test]
    fn limits_of_the_vendor() {
        assert_eq!(oracle_memlock_kib(Bytes::gib(64)), 60_397_977);
        assert_eq!(ORACLE_WITHOUT_HUGE_PAGES_KIB, 3_145_728);
        assert_eq!(memlock_kib(Bytes::mib(2 * 4868), Bytes::ZERO), 9_969_664);
        assert_eq!(memlock_kib(Bytes(1), Bytes::ZERO), 1);
    }

    #[test]
    fn the_limit_opens_nothing_from_6_1_on() {
        let owner = Owner { memlock: Some(Bytes::gib(12)), ..Owner::default() };
        let old = Rules::linux_5_15().memlock;
        let new = Rules::linux_6_1().memlock;
        assert_eq!(Rules::rhel_6().memlock.default_limit, Some(Bytes::kib(64)));
        assert_eq!(Rules::linux_6_12().memlock.default_limit, Some(Bytes::mib(8)));
        assert_eq!(old.default_limit, None);
        assert!(shm_hugetlb_permitted(&old, &owner, Bytes::gib(12)));
        assert!(!shm_hugetlb_permitted(&old, &owner, Bytes(Bytes::gib(12).0 + 1)));
        assert!(!shm_hugetlb_permitted(&new, &owner, Bytes::mib(2)));
        assert!(!shm_hugetlb_permitted(&new, &Owner { memlock: None, ..owner }, Bytes::mib(2)));
        assert!(shm_hugetlb_permitted(&new, &Owner { in_shm_group: true, ..owner }, Bytes::gib(12)));
        assert!(shm_hugetlb_permitted(&new, &Owner { ipc_lock: true, ..owner }, Bytes::gib(12)));
    }
}
