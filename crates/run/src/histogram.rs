//! [`Histogram`]: how long operations took.

use std::fmt;

/// Buckets per power of two, as a power of two: 32 buckets, so that a bucket is at most 1/32 as wide as the
/// smallest value in it.
const PRECISION: u32 = 5;
/// Buckets that 64 bits need.
#[cfg(test)]
const BUCKETS: usize = ((64 - PRECISION as usize) << PRECISION) + (1 << PRECISION);

/// Latencies in nanoseconds, in buckets whose width grows with the value (log-linear).
///
/// Values below 64 have a bucket of their own; above that each power of two has 32 buckets. A quantile is
/// never below the exact one and at most 1/32 (3.1 %) above it; count, sum, minimum and maximum are exact. The
/// buckets reach as far as the largest value recorded: up to a millisecond takes 4 KiB, the largest possible
/// histogram 15 KiB.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    /// Values per bucket, up to the last one in use.
    buckets: Vec<u64>,
    count: u64,
    /// Saturating: 584 years.
    sum: u64,
    /// `u64::MAX` while nothing was counted.
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

    /// Adds what `other` has counted.
    pub fn merge(&mut self, other: &Histogram) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Operations counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds of all of them together.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The shortest, exactly; `None` if nothing was counted.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The longest, exactly; `None` if nothing was counted.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean, exactly; `None` if nothing was counted.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The time within which at least this share (0 to 1) of the operations ended; `None` if nothing was
    /// counted. At most 1/32 above the exact quantile and never below it; that of 1 is the maximum, exactly.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut below = 0;
        for (bucket, values) in self.buckets.iter().enumerate() {
            below += values;
            if below >= rank {
                return Some(upper(bucket).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// The buckets in use, ascending: the largest value that belongs to the bucket, and how many do.
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
