//! [`Table`]: the rows of a run by interval and actor.

use std::collections::HashMap;
use std::sync::Arc;

use lotsfree_run::{Interval, Run, Spent, Toll, Window};

/// The rows of a part of a run.
pub(super) struct Table {
    /// The actors, in the order in which they first appear.
    pub(super) actors: Vec<Actor>,
    /// The intervals: actors that have a row, by index.
    pub(super) moments: Vec<Vec<(usize, Moment)>>,
    /// The sums of each actor; `held` is that of its last interval.
    pub(super) totals: Vec<Moment>,
    /// The time from the first interval's begin to the last one's end.
    pub(super) window: Window,
}

/// Somebody in the rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Actor {
    /// Empty if the taker is not known: interrupts, and processes that ended unseen.
    pub(super) name: Arc<str>,
    /// The control group whose limit it met; empty for the whole machine.
    pub(super) limit: Arc<str>,
}

/// What one actor did in a time, all its roles together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    pub(super) spent: Spent,
    pub(super) minor_faults: u64,
    pub(super) toll: Toll,
}

impl Moment {
    /// Nanoseconds lost making room at once: direct reclaim and compaction.
    pub(super) fn direct_ns(&self) -> u64 {
        self.spent.reclaim.saturating_add(self.toll.compaction)
    }

    /// Nanoseconds lost waiting for pages that were evicted earlier.
    pub(super) fn refault_ns(&self) -> u64 {
        self.toll.thrashing.saturating_add(self.toll.swap_in)
    }

    /// Pages that it took and did not give back itself; fewer than none if it gave back more.
    pub(super) fn took(&self) -> f64 {
        self.toll.allocated as f64 - self.toll.returned as f64
    }

    /// Pages that it took beyond bringing back what it had lost.
    pub(super) fn own(&self) -> f64 {
        self.took() - self.toll.refaults as f64
    }
}

impl Table {
    /// The rows of the intervals that lie wholly in a part of a run.
    pub(super) fn of(run: &Run, part: Window) -> Self {
        let mut table = Table {
            actors: Vec::new(),
            moments: Vec::new(),
            totals: Vec::new(),
            window: Window { from: u64::MAX, to: 0 },
        };
        let mut indexes: HashMap<Actor, usize> = HashMap::new();
        let mut last = None;
        for interval in run.intervals().iter() {
            if interval.from < part.from || interval.at > part.to || interval.at <= interval.from {
                continue;
            }
            // Rows of one instant stand together.
            if last.replace(interval.at) != Some(interval.at) {
                table.close();
                table.moments.push(Vec::new());
            }
            let next = indexes.len();
            let limit = if interval.role.starts_with('/') { Arc::clone(&interval.role) } else { "".into() };
            let actor = Actor { name: Arc::clone(&interval.actor), limit };
            let index = *indexes.entry(actor.clone()).or_insert(next);
            if index == table.actors.len() {
                table.actors.push(actor);
                table.totals.push(Moment::default());
            }
            table.add(index, &interval);
        }
        table.close();
        if table.moments.is_empty() {
            table.window = Window::default();
        }
        table
    }

    /// A moment of every actor for each interval, an empty one where it has no row.
    pub(super) fn dense(&self) -> impl Iterator<Item = Vec<Moment>> + '_ {
        self.moments.iter().map(|moments| {
            let mut all = vec![Moment::default(); self.actors.len()];
            moments.iter().for_each(|(index, moment)| all[*index] = *moment);
            all
        })
    }

    /// Seconds that the rows cover.
    pub(super) fn seconds(&self) -> f64 {
        self.window.to.saturating_sub(self.window.from) as f64 / 1e9
    }

    /// Adds a row to the last interval. Roles of one actor are added up.
    fn add(&mut self, index: usize, interval: &Interval) {
        self.window.from = self.window.from.min(interval.from);
        self.window.to = self.window.to.max(interval.at);
        let Some(moments) = self.moments.last_mut() else { return };
        let place = match moments.iter().position(|(known, _)| *known == index) {
            Some(place) => place,
            None => {
                moments.push((index, Moment::default()));
                moments.len() - 1
            }
        };
        let moment = &mut moments[place].1;
        moment.spent.add(&interval.spent);
        moment.minor_faults = moment.minor_faults.saturating_add(interval.minor_faults);
        moment.toll.add(&interval.toll);
    }

    /// Whether nobody knows who that is.
    pub(super) fn is_nobody(&self, index: usize) -> bool {
        self.actors.get(index).is_some_and(|actor| actor.name.is_empty())
    }

    /// Whether an actor shares the whole machine's memory.
    pub(super) fn has_no_limit(&self, index: usize) -> bool {
        self.actors.get(index).is_some_and(|actor| actor.limit.is_empty())
    }

    /// Whether two actors share a limit.
    pub(super) fn share_a_limit(&self, one: usize, other: usize) -> bool {
        let limit = |index: usize| self.actors.get(index).map(|actor| &actor.limit);
        limit(one) == limit(other)
    }

    /// Ends the last interval: it is added to the totals.
    fn close(&mut self) {
        for (index, moment) in self.moments.last().into_iter().flatten() {
            let total = &mut self.totals[*index];
            total.spent.add(&moment.spent);
            total.toll.add(&moment.toll);
            total.toll.held = moment.toll.held;
        }
    }
}
