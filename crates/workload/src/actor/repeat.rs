//! Something done again and again, each time as a request.

use super::{Refusal, within};
use crate::op::Op;
use crate::program::Stream;
use crate::quantity::Time;

/// Most times.
const TIMES: u32 = 1_000_000;

pub(super) fn once() -> u32 {
    1
}

pub(super) struct Repeat {
    op: Op,
    /// How often it is still to be done.
    times: u32,
    /// Nanoseconds after each time.
    pause: u64,
}

impl Repeat {
    /// Does `op` so many times, the parameter `times` of an actor.
    ///
    /// # Errors
    /// Not once, or too often.
    pub(super) fn new(op: Op, times: u32, pause: Time) -> Result<Self, Refusal> {
        Ok(Repeat { op, times: within("times", times, 1, TIMES)?, pause: pause.ns() })
    }
}

impl Stream for Repeat {
    /// One at a time: each takes long.
    fn fill(&mut self, out: &mut Vec<Op>) {
        if self.times == 0 {
            return;
        }
        self.times -= 1;
        out.extend([Op::Begin, self.op, Op::Done]);
        if self.pause > 0 && self.times > 0 {
            out.push(Op::Sleep { ns: self.pause });
        }
    }
}
