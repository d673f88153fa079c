//! [`Pacer`]: dates at a rate, without drift.

use super::Refusal;
use crate::op::Op;

const SECOND: u128 = 1_000_000_000;

/// Intervals of whole nanoseconds that keep a rate exactly in the long run.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Until the first date.
    first: Option<u64>,
    whole: u64,
    part: u64,
    parts: u64,
    /// Parts that are owed.
    owed: u64,
}

impl Pacer {
    /// Thread `thread` of `threads` that have `rate` dates a second together, evenly one after the other.
    pub(crate) fn per_second(
        key: &'static str,
        rate: f64,
        thread: u32,
        threads: u32,
    ) -> Result<Pacer, Refusal> {
        if !(0.001..=1e9).contains(&rate) {
            return Err(Refusal::new(key, format!("is {rate} per second; it may be 0.001 to 1e9")));
        }
        // In thousandths of a date.
        let rate = (rate * 1e3).round() as u64;
        let first = u128::from(thread) * 1000 * SECOND / u128::from(rate);
        Ok(Pacer { first: Some(first as u64), ..Pacer::every(u128::from(threads) * 1000 * SECOND, rate) })
    }

    /// One date for `amount` bytes of `rate` bytes per second, the first at once.
    pub(crate) fn bandwidth(key: &'static str, amount: u64, rate: u64) -> Result<Pacer, Refusal> {
        if rate == 0 {
            return Err(Refusal::new(key, "is 0; leave it out for no limit"));
        }
        Ok(Pacer::every(u128::from(amount) * SECOND, rate))
    }

    /// Intervals of `total / parts` nanoseconds.
    fn every(total: u128, parts: u64) -> Pacer {
        let parts_wide = u128::from(parts);
        Pacer {
            first: Some(0),
            whole: u64::try_from(total / parts_wide).unwrap_or(u64::MAX),
            part: (total % parts_wide) as u64,
            parts,
            owed: 0,
        }
    }

    /// Wait for the next date.
    #[inline]
    pub(crate) fn next(&mut self) -> Op {
        if let Some(first) = self.first.take() {
            return Op::Pace { ns: first };
        }
        let owed = u128::from(self.owed) + u128::from(self.part);
        let more = owed >= u128::from(self.parts);
        self.owed = (owed - if more { u128::from(self.parts) } else { 0 }) as u64;
        Op::Pace { ns: self.whole.saturating_add(u64::from(more)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(pacer: &mut Pacer, dates: u32) -> u64 {
        (0..dates)
            .map(|_| match pacer.next() {
                Op::Pace { ns } => ns,
                other => panic!("{other:?}"),
            })
            .sum()
    }

    #[test]
    fn rates_do_not_drift() {
        let mut thirds = Pacer::per_second("rate", 3.0, 0, 1).unwrap();
        assert_eq!(sum(&mut thirds, 3_000_001), 1_000_000_000_000_000);
        let mut odd = Pacer::per_second("rate", 333_333.333, 1, 4).unwrap();
        // 3,000 ns to the first date of the second thread, then 333,333 times 12,000.000012 ns.
        assert_eq!(sum(&mut odd, 333_334), 3_000 + 3_999_996_003);
        let mut bytes = Pacer::bandwidth("rate", 1 << 20, 100_000_000).unwrap();
        assert_eq!(sum(&mut bytes, 101), (100 << 20) * 10);
    }

    #[test]
    fn threads_take_turns() {
        let first = |thread| sum(&mut Pacer::per_second("rate", 1000.0, thread, 4).unwrap(), 1);
        assert_eq!([first(0), first(1), first(2), first(3)], [0, 1_000_000, 2_000_000, 3_000_000]);
        let mut one = Pacer::per_second("rate", 1000.0, 3, 4).unwrap();
        assert_eq!(sum(&mut one, 2), 3_000_000 + 4_000_000);
    }

    #[test]
    fn impossible_rates_are_refused() {
        for (rate, text) in [(0.0, "0"), (-1.0, "-1"), (f64::NAN, "NaN"), (2e9, "2000000000")] {
            let error = Pacer::per_second("rate", rate, 0, 1).unwrap_err().to_string();
            assert_eq!(error, format!("rate: is {text} per second; it may be 0.001 to 1e9"));
        }
        let error = Pacer::bandwidth("rate", 1, 0).unwrap_err().to_string();
        assert_eq!(error, "rate: is 0; leave it out for no limit");
    }
}
