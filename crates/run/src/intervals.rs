//! [`Intervals`]: the work of the actors of a run.

use std::collections::HashSet;
use std::sync::Arc;

use crate::bytes;
use crate::{Histogram, Interval, Spent, Toll};

/// The work of the actors of a run: a row per interval, actor and role, in the order in which they came.
///
/// Histograms are kept encoded. Most take a few hundred bytes, so that days of intervals fit in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    pub(crate) rows: Vec<Row>,
    /// Names of actors and roles, so that each is stored once.
    names: HashSet<Arc<str>>,
    /// Pairs of actor and role that were seen.
    pairs: HashSet<(Arc<str>, Arc<str>)>,
    /// Some rows were written before there was a [`Toll`].
    lacks_toll: bool,
}

/// One row. Its histogram is checked but not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) actor: Arc<str>,
    pub(crate) role: Arc<str>,
    /// In the order of [`NUMBERS`].
    pub(crate) numbers: [u64; NUMBERS.len()],
    pub(crate) latency: Box<[u8]>,
}

/// The most pairs of actor and role that are read: each is searched for in all rows. The scenarios that ship
/// have a dozen.
const MOST_ACTORS: usize = 4096;
/// The longest name that is read, in bytes; names in scenarios are shorter than a line.
const MOST_NAME: usize = 4096;

/// The columns that are numbers. Those from [`TOLL`] on are missing where a lotsfree wrote the run that did
/// not measure the [`Toll`].
pub(crate) const NUMBERS: [&str; 20] = [
    "from",
    "at",
    "operations",
    "errors",
    "user",
    "system",
    "reclaim",
    "io",
    "throttled",
    "runnable",
    "idle",
    "major_faults",
    "minor_faults",
    "thrashing",
    "swap_in",
    "compaction",
    "refaults",
    "allocated",
    "returned",
    "held",
];
/// The first of [`NUMBERS`] that belongs to the toll.
pub(crate) const TOLL: usize = 13;

impl Intervals {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether each row has its [`Toll`]. Where some were written before there was one, the tolls of these
    /// rows are zero and mean nothing.
    pub fn has_toll(&self) -> bool {
        !self.lacks_toll
    }

    /// Notes that rows were stored without their toll.
    pub(crate) fn lack_toll(&mut self) {
        self.lacks_toll = true;
    }

    /// All rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Interval> + '_ {
        self.rows.iter().map(Row::interval)
    }

    /// Actors and roles, each pair once, in the order in which they first appear.
    pub fn actors(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let mut seen = HashSet::new();
        let pairs = self.rows.iter().map(|row| (&row.actor, &row.role)).filter(|pair| seen.insert(*pair));
        pairs.map(|(actor, role)| (Arc::clone(actor), Arc::clone(role))).collect()
    }

    pub(crate) fn push(&mut self, interval: &Interval) {
        let mut latency = Vec::new();
        interval.latency.encode(&mut latency);
        let (actor, role) = self.pair(&interval.actor, &interval.role);
        self.rows.push(Row { actor, role, numbers: numbers(interval), latency: latency.into() });
    }

    /// Adds a row as it was stored; `None` if its histogram is invalid, or there are more actors or longer
    /// names than a run may have.
    pub(crate) fn push_stored(
        &mut self,
        actor: &str,
        role: &str,
        numbers: [u64; NUMBERS.len()],
        latency: &[u8],
    ) -> Option<()> {
        Histogram::decode(latency)?;
        (actor.len() <= MOST_NAME && role.len() <= MOST_NAME).then_some(())?;
        let (actor, role) = self.pair(actor, role);
        (self.pairs.len() <= MOST_ACTORS).then_some(())?;
        self.rows.push(Row { actor, role, numbers, latency: latency.into() });
        Some(())
    }

    fn pair(&mut self, actor: &str, role: &str) -> (Arc<str>, Arc<str>) {
        let pair = (self.name(actor), self.name(role));
        if !self.pairs.contains(&pair) {
            self.pairs.insert(pair.clone());
        }
        pair
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}

fn numbers(interval: &Interval) -> [u64; NUMBERS.len()] {
    let Interval { from, at, operations, errors, spent, major_faults, minor_faults, toll, .. } = interval;
    let Spent { user, system, reclaim, io, throttled, runnable, idle } = spent;
    let Toll { thrashing, swap_in, compaction, refaults, allocated, returned, held } = toll;
    [
        *from,
        *at,
        *operations,
        *errors,
        *user,
        *system,
        *reclaim,
        *io,
        *throttled,
        *runnable,
        *idle,
        *major_faults,
        *minor_faults,
        *thrashing,
        *swap_in,
        *compaction,
        *refaults,
        *allocated,
        *returned,
        *held,
    ]
}

impl Row {
    pub(crate) fn histogram(&self) -> Histogram {
        // The histogram was checked when the row was added.
        Histogram::decode(&self.latency).unwrap_or_default()
    }

    fn interval(&self) -> Interval {
        let [
            from,
            at,
            operations,
            errors,
            user,
            system,
            reclaim,
            io,
            throttled,
            runnable,
            idle,
            major_faults,
            minor_faults,
            thrashing,
            swap_in,
            compaction,
            refaults,
            allocated,
            returned,
            held,
        ] = self.numbers;
        Interval {
            from,
            at,
            actor: Arc::clone(&self.actor),
            role: Arc::clone(&self.role),
            operations,
            errors,
            latency: self.histogram(),
            spent: Spent { user, system, reclaim, io, throttled, runnable, idle },
            major_faults,
            minor_faults,
            toll: Toll { thrashing, swap_in, compaction, refaults, allocated, returned, held },
        }
    }
}

/// Encodes an interval as a row.
pub(crate) fn encode(interval: &Interval, out: &mut Vec<u8>) {
    bytes::put_bytes(out, interval.actor.as_bytes());
    bytes::put_bytes(out, interval.role.as_bytes());
    numbers(interval).into_iter().for_each(|number| bytes::put(out, number));
    let mut latency = Vec::new();
    interval.latency.encode(&mut latency);
    bytes::put_bytes(out, &latency);
}

/// Decodes a row of [`encode`], of which the first `stored` numbers are there, and adds it. Returns the
/// length of its histogram; `None` if the row is invalid.
pub(crate) fn decode(from: &mut &[u8], stored: usize, intervals: &mut Intervals) -> Option<usize> {
    let (actor, role) = (bytes::take_text(from)?, bytes::take_text(from)?);
    let mut numbers = [0; NUMBERS.len()];
    for number in numbers.get_mut(..stored)? {
        *number = bytes::take(from)?;
    }
    let latency = bytes::take_bytes(from)?;
    intervals.push_stored(actor, role, numbers, latency).map(|()| latency.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toll_is_the_end_of_the_numbers() {
        assert_eq!(NUMBERS[TOLL - 1..=TOLL], ["minor_faults", "thrashing"]);
    }
}
