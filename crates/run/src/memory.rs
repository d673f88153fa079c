//! [`Memory`]: a run that is kept in memory.

use crate::{Event, Facts, Interval, Intervals, Run, Sample, Samples, Sink, State, WriteError};

/// Keeps the results of a machine in memory, for tests and for output without a directory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    samples: Samples,
    intervals: Intervals,
    events: Vec<Event>,
}

impl Memory {
    /// The samples up to now.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The run, as [`Run::open`] would give it.
    pub fn finish(self, facts: Facts, scenario: impl Into<String>, state: State) -> Run {
        let Memory { samples, intervals, events } = self;
        Run::new(facts, scenario.into(), state, samples, intervals, events)
    }
}

impl Sink for Memory {
    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        self.samples.push(sample);
        Ok(())
    }

    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError> {
        intervals.iter().for_each(|interval| self.intervals.push(interval));
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        self.events.push(event.clone());
        Ok(())
    }
}
