//! [`Hold`]: how long a process keeps what it has.

use crate::op::Op;
use crate::quantity::Time;

/// The time after the work is done, or what remains of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// Nanoseconds; `None`: to the end of the run.
    left: Option<u64>,
}

impl Hold {
    pub(crate) fn new(time: Option<Time>) -> Hold {
        Hold { left: time.map(Time::ns) }
    }

    /// Sleeps all of it; nothing if it is 0.
    pub(crate) fn rest(self) -> Option<Op> {
        match self.left {
            None => Some(Op::Rest { from: 0, until: u64::MAX }),
            Some(0) => None,
            Some(ns) => Some(Op::Sleep { ns }),
        }
    }

    /// The next date of a [`Pacer`](super::pace::Pacer), or the end of the time if that comes first, and
    /// whether it does.
    pub(crate) fn until(&mut self, date: Op) -> (Op, bool) {
        let (Some(left), Op::Pace { ns }) = (&mut self.left, date) else { return (date, false) };
        if ns >= *left {
            return (Op::Pace { ns: *left }, true);
        }
        *left -= ns;
        (date, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::pace::Pacer;

    #[test]
    fn dates_fill_the_time_and_no_more() {
        let dates = |hold, rate| {
            let mut hold = Hold::new(hold);
            let mut pacer = Pacer::per_second("rate", rate, 0, 1).unwrap();
            let mut dates = Vec::new();
            while dates.len() < 5 {
                let (date, over) = hold.until(pacer.next());
                let Op::Pace { ns } = date else { panic!("{date:?}") };
                dates.push(ns);
                if over {
                    break;
                }
            }
            dates
        };
        let ms = 1_000_000;
        assert_eq!(dates(Some(Time::ms(700)), 4.0), [0, 250 * ms, 250 * ms, 200 * ms]);
        assert_eq!(dates(Some(Time::ms(500)), 4.0), [0, 250 * ms, 250 * ms]);
        assert_eq!(dates(Some(Time::ms(100)), 4.0), [0, 100 * ms]);
        assert_eq!(dates(Some(Time(0)), 4.0), [0]);
        assert_eq!(dates(None, 4.0).len(), 5);
        assert_eq!(Hold::new(Some(Time(0))).rest(), None);
        assert_eq!(Hold::new(Some(Time(7))).rest(), Some(Op::Sleep { ns: 7 }));
        assert_eq!(Hold::new(None).rest(), Some(Op::Rest { from: 0, until: u64::MAX }));
    }
}
