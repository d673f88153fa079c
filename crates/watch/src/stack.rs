//! What a task waits for, from the functions that it waits in.

use lotsfree_kernel_files::file::kallsyms::Functions;

/// What a task in uninterruptible sleep waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// A page of a file that is being read.
    FilePage,
    /// A page that is being swapped in.
    SwapIn,
    /// Reclaim or compaction for its own allocation; their own tracepoints tell how long.
    Reclaim,
    /// `memory.high` of its group.
    OverHigh,
    /// The dirty limit.
    Dirty,
    /// Anything else: its own writes, a lock, a device.
    Other,
}

/// Number of [`Reason`]s.
pub(crate) const REASONS: usize = 6;
/// All of them, in their order.
pub(crate) const REASON: [Reason; REASONS] =
    [Reason::FilePage, Reason::SwapIn, Reason::Reclaim, Reason::OverHigh, Reason::Dirty, Reason::Other];

/// Functions that tell what a wait is for, in the names that they had from 3.x to 6.x. A chain is read from
/// its inner end, and the first function that is known decides. A function that faults of files and of swap
/// share (`__folio_lock_or_retry`) therefore must not be here.
const TELLING: [(&str, Reason); 32] = [
    ("do_swap_page", Reason::SwapIn),
    ("swapin_readahead", Reason::SwapIn),
    ("shmem_swapin", Reason::SwapIn),
    ("shmem_swapin_folio", Reason::SwapIn),
    ("shmem_swapin_page", Reason::SwapIn),
    ("unuse_pte_range", Reason::SwapIn),
    ("try_to_free_pages", Reason::Reclaim),
    ("try_to_free_mem_cgroup_pages", Reason::Reclaim),
    ("node_reclaim", Reason::Reclaim),
    ("zone_reclaim", Reason::Reclaim),
    ("try_to_compact_pages", Reason::Reclaim),
    ("throttle_direct_reclaim", Reason::Reclaim),
    ("mem_cgroup_handle_over_high", Reason::OverHigh),
    ("__mem_cgroup_handle_over_high", Reason::OverHigh),
    ("balance_dirty_pages", Reason::Dirty),
    ("balance_dirty_pages_ratelimited", Reason::Dirty),
    ("balance_dirty_pages_ratelimited_flags", Reason::Dirty),
    ("folio_wait_writeback", Reason::Other),
    ("wait_on_page_writeback", Reason::Other),
    ("filemap_fdatawait_range", Reason::Other),
    ("__filemap_fdatawait_range", Reason::Other),
    ("truncate_inode_pages_range", Reason::Other),
    ("filemap_fault", Reason::FilePage),
    ("filemap_get_pages", Reason::FilePage),
    ("filemap_read", Reason::FilePage),
    ("filemap_update_page", Reason::FilePage),
    ("generic_file_buffered_read", Reason::FilePage),
    ("do_generic_file_read", Reason::FilePage),
    ("generic_file_read_iter", Reason::FilePage),
    ("filemap_splice_read", Reason::FilePage),
    ("do_read_cache_folio", Reason::FilePage),
    ("do_read_cache_page", Reason::FilePage),
];

/// Tells reasons from call chains.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stacks {
    functions: Functions,
}

impl Stacks {
    /// Takes the text of `/proc/kallsyms`.
    pub(crate) fn new(kallsyms: &[u8]) -> Self {
        Stacks { functions: Functions::find(kallsyms, &TELLING.map(|(name, _)| name)) }
    }

    /// Whether the kernel hides its addresses, so that every wait is [`Reason::Other`].
    pub(crate) fn are_blind(&self) -> bool {
        self.functions.is_empty()
    }

    /// What a task with this call chain waits for.
    pub(crate) fn reason(&self, chain: &[u64]) -> Reason {
        // A return address that ends a function belongs to the call before it.
        let known = chain.iter().find_map(|address| self.functions.at(address.saturating_sub(1)));
        known.and_then(|index| TELLING.get(index)).map_or(Reason::Other, |(_, reason)| *reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_that_is_known_decides() {
        let kallsyms = b"0000000000001000 T schedule\n0000000000001100 T filemap_fault\n\
            0000000000001200 T do_swap_page\n0000000000001300 T try_to_free_pages\n\
            0000000000001400 T handle_mm_fault\n0000000000001500 T end\n";
        let stacks = Stacks::new(kallsyms);
        assert_eq!(stacks.reason(&[0x1010, 0x1110, 0x1410]), Reason::FilePage);
        assert_eq!(stacks.reason(&[0x1010, 0x1210, 0x1410]), Reason::SwapIn);
        // A fault of a file whose page needed memory.
        assert_eq!(stacks.reason(&[0x1010, 0x1310, 0x1110, 0x1410]), Reason::Reclaim);
        // The call is the last instruction of its function.
        assert_eq!(stacks.reason(&[0x1010, 0x1200, 0x1410]), Reason::FilePage);
        assert_eq!(stacks.reason(&[0x1010, 0x1410]), Reason::Other);
        // Both kinds of faults lock the page in one function.
        assert!(TELLING.iter().all(|(name, _)| !name.contains("lock")));
        assert!(!stacks.are_blind());
    }
}
