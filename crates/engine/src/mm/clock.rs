//! CLOCK, the textbook's policy with one bit per page (also FIFO with reinsertion), to compare the kernel's
//! with: a list of each type, whose pages were accessed since the hand passed them or are the next to go.
//!
//! The hand is at the tail. A page that it meets with its bit set loses the bit and goes to the head; one
//! without is evicted. A page comes in with its bit set if a page table has it.

use super::frame::flag;
use super::policy::{Kept, Policy};
use super::vmscan::ScanControl;
use super::{Cx, Mm, Wait};

/// The policy.
#[derive(Debug)]
pub(crate) struct Clock;

impl Policy for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn touch(&self, mm: &mut Mm, frame: u32) {
        mm.frames[frame as usize].flags |= flag::OTHER;
    }

    fn shrink_lruvec(
        &self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        _pass: &mut Option<Box<dyn Kept>>,
    ) -> Result<(), Wait> {
        // A page without its bit is evicted even if it had one in the round before.
        mm.shrink_single_lists(cx, scan, lruvec, |mm, _, frame| {
            mm.frames[frame as usize].flags &= !flag::REFERENCED;
        });
        Ok(())
    }
}
