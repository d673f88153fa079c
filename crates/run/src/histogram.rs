//! [`Histogram`]: durations of operations.

use std::fmt;

use crate::bytes;

/// Buckets per power of two, as a power of two: 32 buckets, so that a bucket is at most 1/32 as wide as the
/// smallest value in it.
const PRECISION: u32 = 5;
/// Buckets that 64 bits need.
const BUCKETS: usize = ((64 - PRECISION as usize) << PRECISION) + (1 << PRECISION);

/// Latencies in nanoseconds, in buckets whose width grows with the value (log-linear).
///
/// Values below 64 have a bucket of their own; above that each power of two has 32 buckets. A quantile is
/// never below the exact one and at most 1/32 (3.1 %) above it; count, sum, minimum and maximum are exact.
/// The buckets reach as far as the largest value recorded: up to a millisecond takes 4 KiB, the largest
/// possible histogram 15 KiB. Recording takes a few nanoseconds.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    /// Values per bucket, up to the last one in use.
    buckets: Vec<u64>,
    count: u64,
    /// Saturates at 584 years.
    sum: u64,
    /// `u64::MAX` while nothing is counted.
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: Vec::new(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    let shift = (63 - PRECISION) - (value | 1 << PRECISION).leading_zeros();
    ((shift << PRECISION) as usize) + (value >> shift) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let shift = (bucket >> PRECISION).saturating_sub(1) as u32;
    let first = (bucket as u64) - (u64::from(shift) << PRECISION);
    (first << shift) + ((1u64 << shift) - 1)
}

impl Histogram {
    /// Counts one operation that took `ns`.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Counts `count` operations that took `ns` each.
    #[inline]
    pub fn record_many(&mut self, ns: u64, count: u64) {
        let bucket = bucket(ns);
        match self.buckets.get_mut(bucket) {
            Some(values) => *values += count,
            None => self.grow(bucket, count),
        }
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.count += count;
        self.sum = self.sum.saturating_add(ns.saturating_mul(count));
    }

    #[cold]
    fn grow(&mut self, bucket: usize, count: u64) {
        self.buckets.resize(bucket + 1, 0);
        if let Some(last) = self.buckets.last_mut() {
            *last = count;
        }
    }

    /// Adds the counts of `other`. Sums saturate, as a file may claim any counts.
    pub fn merge(&mut self, other: &Histogram) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            // A forged run may claim counts whose sum overflows.
            *mine = mine.saturating_add(*theirs);
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Number of operations counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all durations, in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The shortest duration, exactly; `None` if nothing was counted.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The longest duration, exactly; `None` if nothing was counted.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean duration, exactly; `None` if nothing was counted.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The time within which at least this share (0 to 1) of the operations ended; `None` if nothing was
    /// counted. It is at most 1/32 above the exact quantile and never below it; for a share of 1 it is
    /// exactly the maximum.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut below = 0u64;
        for (bucket, values) in self.buckets.iter().enumerate() {
            below = below.saturating_add(*values);
            if below >= rank {
                return Some(upper(bucket).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// The buckets in use, ascending: the largest value that belongs to the bucket, and the number of values
    /// in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let used = self.buckets.iter().enumerate().filter(|(_, values)| **values > 0);
        used.map(|(bucket, values)| (upper(bucket), *values))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantile = |share| self.quantile(share).unwrap_or(0);
        (f.debug_struct("Histogram").field("count", &self.count).field("min", &self.min))
            .field("p50", &quantile(0.5))
            .field("p99", &quantile(0.99))
            .field("max", &self.max)
            .finish()
    }
}

impl Histogram {
    /// Encodes the histogram as bytes: sum, minimum, maximum, and then for each bucket in use the number of
    /// empty buckets before it and its count, all as LEB128. An empty histogram has no bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if self.count == 0 {
            return;
        }
        for value in [self.sum, self.min, self.max] {
            bytes::put(out, value);
        }
        let mut next = 0;
        for (bucket, &values) in self.buckets.iter().enumerate().filter(|(_, values)| **values > 0) {
            bytes::put(out, (bucket - next) as u64);
            bytes::put(out, values);
            next = bucket + 1;
        }
    }

    /// Decodes the bytes of [`Histogram::encode`]; `None` if it cannot have written them.
    pub(crate) fn decode(mut from: &[u8]) -> Option<Self> {
        let mut histogram = Histogram::default();
        if from.is_empty() {
            return Some(histogram);
        }
        histogram.sum = bytes::take(&mut from)?;
        histogram.min = bytes::take(&mut from)?;
        histogram.max = bytes::take(&mut from)?;
        let first = bucket(histogram.min);
        while !from.is_empty() {
            let passed = usize::try_from(bytes::take(&mut from)?).ok()?;
            let values = bytes::take(&mut from).filter(|values| *values > 0)?;
            let place = histogram.buckets.len().checked_add(passed).filter(|place| *place < BUCKETS)?;
            if histogram.buckets.is_empty() && place != first {
                return None;
            }
            histogram.buckets.resize(place, 0);
            histogram.buckets.push(values);
            histogram.count = histogram.count.checked_add(values)?;
        }
        let last = histogram.buckets.len().checked_sub(1)?;
        (last == bucket(histogram.max) && histogram.min <= histogram.max).then_some(histogram)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    fn encoded(histogram: &Histogram) -> Vec<u8> {
        let mut out = Vec::new();
        histogram.encode(&mut out);
        out
    }

    /// Latencies of all orders of magnitude.
    fn latency() -> impl Strategy<Value = u64> {
        (0u32..64, any::<u64>()).prop_map(|(shift, value)| value >> shift)
    }

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        for place in 0..BUCKETS - 1 {
            let last = upper(place);
            assert_eq!((bucket(last), bucket(last + 1)), (place, place + 1));
        }
        assert_eq!((bucket(0), bucket(u64::MAX), upper(BUCKETS - 1)), (0, BUCKETS - 1, u64::MAX));
    }

    #[test]
    fn small_values_are_exact() {
        let values: Vec<u64> = (0..64).collect();
        let histogram = of(&values);
        assert!((1..=64).all(|rank| histogram.quantile(rank as f64 / 64.0) == Some(rank - 1)));
    }

    #[test]
    fn nothing_has_no_quantile() {
        let empty = Histogram::default();
        assert_eq!((empty.quantile(0.5), empty.min(), empty.max(), empty.mean()), (None, None, None, None));
        assert_eq!(Histogram::decode(&encoded(&empty)), Some(empty));
    }

    #[test]
    fn the_bounds_of_an_encoding_are_checked() {
        let good = encoded(&of(&[1000, 2000]));
        assert!(Histogram::decode(&good).is_some());
        for cut in 1..good.len() {
            assert_eq!(Histogram::decode(&good[..cut]), None, "{cut}");
        }
        let mut far = Vec::new();
        [5, 1, 1, 1 << 60, 1].iter().for_each(|&value| bytes::put(&mut far, value));
        assert_eq!(Histogram::decode(&far), None);
        let mut many = Vec::new();
        [5, 1, 2, 1, u64::MAX, 0, u64::MAX].iter().for_each(|&value| bytes::put(&mut many, value));
        assert_eq!(Histogram::decode(&many), None);
    }

    #[test]
    fn counts_that_are_more_than_there_can_be_are_merged_and_asked_for_all_the_same() {
        let mut histogram = Histogram::default();
        histogram.record_many(5, u64::MAX);
        let mut other = Histogram::default();
        other.record_many(5, u64::MAX - 1);
        other.record_many(9, 1);
        histogram.merge(&other);
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (u64::MAX, Some(5)));
        histogram.merge(&other);
        assert_eq!(
            (histogram.count(), histogram.max(), histogram.quantile(1.0)),
            (u64::MAX, Some(9), Some(5))
        );
    }

    proptest! {
        #[test]
        fn quantiles_are_at_most_a_32nd_above_the_exact_ones(
            mut values in vec(latency(), 1..300), share in 0.0f64..=1.0
        ) {
            let histogram = of(&values);
            values.sort_unstable();
            for share in [share, 0.5, 0.99, 0.999] {
                let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
                let exact = values[rank - 1];
                let told = histogram.quantile(share).unwrap();
                prop_assert!(told >= exact && told - exact <= exact / 32, "{told} for {exact}");
            }
            prop_assert_eq!(histogram.quantile(1.0), values.last().copied());
            prop_assert_eq!((histogram.min(), histogram.max()), (values.first().copied(), values.last().copied()));
            prop_assert_eq!(histogram.count(), values.len() as u64);
            prop_assert_eq!(histogram.sum(), values.iter().fold(0u64, |sum, v| sum.saturating_add(*v)));
            prop_assert_eq!(histogram.buckets().map(|(_, values)| values).sum::<u64>(), histogram.count());
        }

        #[test]
        fn merging_is_recording_all(one in vec(latency(), 0..50), other in vec(latency(), 0..50)) {
            let mut merged = of(&one);
            merged.merge(&of(&other));
            prop_assert_eq!(merged, of(&[one, other].concat()));
        }

        #[test]
        fn an_encoding_comes_back(values in vec((latency(), 1u64..1 << 40), 0..50)) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&(value, count)| histogram.record_many(value, count));
            prop_assert_eq!(Histogram::decode(&encoded(&histogram)), Some(histogram));
        }

        #[test]
        fn hostile_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..60)) {
            if let Some(histogram) = Histogram::decode(&bytes) {
                let _ = (histogram.quantile(0.5), histogram.mean(), histogram.buckets().count());
            }
        }
    }
}
