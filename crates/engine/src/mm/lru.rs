//! Least recently used, the textbook's policy, to compare the kernel's with: a list of each type, on which
//! every access takes its page to the head.
//!
//! No kernel could afford it, because it has to see every access: one through a page table enters the kernel
//! here, at no cost to the task.

use super::frame::{flag, list};
use super::policy::{Kept, Policy};
use super::vmscan::ScanControl;
use super::{Cx, Mm, Wait};

/// The policy.
#[derive(Debug)]
pub(crate) struct Lru;

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn sees_every_access(&self) -> bool {
        true
    }

    #[inline]
    fn touch(&self, mm: &mut Mm, frame: u32) {
        let which = mm.frames[frame as usize].list();
        let lruvec = mm.lruvec_of_frame(frame);
        if which != list::UNEVICTABLE && mm.lruvecs[lruvec].lists[which].newest() != frame {
            mm.lru_move(frame, which, false);
        }
    }

    fn shrink_lruvec(
        &self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        _pass: &mut Option<Box<dyn Kept>>,
    ) -> Result<(), Wait> {
        mm.shrink_single_lists(cx, scan, lruvec, |mm, cx, frame| {
            // The order of the list says it all.
            mm.test_clear_young(cx, frame);
            mm.frames[frame as usize].flags &= !flag::REFERENCED;
        });
        Ok(())
    }
}
