//! `app-server`: a heap, and requests that touch it.

use std::borrow::Cow;
use std::sync::Arc;

use lotsfree_units::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::locality::{Chooser, Locality};
use super::pace::Pacer;
use super::rng::{Chance, Rng};
use super::{BATCH, Instance, Kind, Refusal, Site, THREADS, pages, share, thread, within};
use crate::op::{Op, RegionId};
use crate::program::{Stream, Thread};
use crate::quantity::{Size, Time};

/// A server whose threads answer requests; a request touches pages of a heap.
///
/// It starts by storing to every page of the heap, each thread to its part, and marks `ready` when all are
/// done. Then every thread does one request after the other: it computes, touches pages, and thinks. With
/// `rate` the requests come at that rate instead, whether or not the server keeps up, and their latency
/// counts from when they were due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AppServer {
    /// Anonymous memory of the process.
    pub heap: Size,
    /// Threads that answer requests.
    #[serde(default = "one")]
    pub threads: u32,
    /// Objects that a request touches.
    #[serde(default = "touches")]
    pub touches: u32,
    /// Size of an object, whose pages are touched together; the heap is divided into them.
    #[serde(default = "page")]
    pub object: Size,
    /// Which objects: `"uniform"`, `{ zipf = 1.0 }` or `{ hot-cold = { memory = 0.2, touches = 0.8 } }`.
    #[serde(default)]
    pub locality: Locality,
    /// The share of the touches that store; the others load.
    #[serde(default = "quarter")]
    pub write: f64,
    /// Time on a CPU that a request takes beside what its touches cost.
    #[serde(default = "compute")]
    pub compute: Time,
    /// Pause of a thread after each request. Not with `rate`.
    #[serde(default)]
    pub think: Time,
    /// Requests per second of all threads together. Without it a thread's next request comes when the one
    /// before is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Times of the run in which requests are made, such as `[["0 s", "60 s"], ["300 s", "end"]]`; outside of
    /// them the threads sleep. Empty: always. The heap is filled at the start in any case.
    #[serde(default)]
    pub active: Vec<Phase>,
}

fn one() -> u32 {
    1
}

fn page() -> Size {
    Size(Bytes::kib(4))
}

fn touches() -> u32 {
    16
}

fn quarter() -> f64 {
    0.25
}

fn compute() -> Time {
    Time::us(100)
}

/// A time of activity, from its begin to its end, counted from the begin of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Phase(
    /// Its begin.
    pub Time,
    /// Its end.
    pub Until,
);

/// A time of the run, or `"end"`: the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Nanoseconds since the run began.
    At(Time),
    /// As long as the run takes.
    End,
}

impl Serialize for Until {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Until::At(time) => time.serialize(serializer),
            Until::End => serializer.serialize_str("end"),
        }
    }
}

impl<'de> Deserialize<'de> for Until {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Cow::<'de, str>::deserialize(deserializer)? {
            text if text == "end" => Ok(Until::End),
            text => Time::deserialize(StrDeserializer::new(&text)).map(Until::At),
        }
    }
}

impl JsonSchema for Until {
    fn schema_name() -> Cow<'static, str> {
        "Until".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let time = generator.subschema_for::<Time>();
        json_schema!({ "description": "A time of the run, or \"end\".", "anyOf": [time, { "const": "end" }] })
    }
}

/// The heap is the process's only region.
const HEAP: RegionId = RegionId(0);

/// Stages of the start: the heap is mapped; a thread has stored to its part.
const MAPPED: u32 = 0;
const FILLED: u32 = 1;

impl Kind for AppServer {
    const ROLES: &'static [&'static str] = &["server"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        self.threads(site).map(Instance::only)
    }

    fn has_rate(&self, _role: &str) -> bool {
        self.rate.is_some()
    }

    fn thread_count(&self) -> u64 {
        self.threads.into()
    }

    fn demand(&self) -> Bytes {
        self.heap.0
    }
}

impl AppServer {
    fn threads(&self, site: &Site<'_>) -> Result<Vec<Thread>, Refusal> {
        let heap = pages("heap", self.heap)?;
        let threads = within("threads", self.threads, 1, THREADS)?;
        let touches = within("touches", self.touches, 0, 1 << 20)?;
        let write = Chance::of(share("write", self.write)?);
        if self.rate.is_some() && self.think != Time(0) {
            return Err(Refusal::new("think", "has no meaning with `rate`; give one of them"));
        }
        let rests: Arc<[Op]> = rests(&self.active)?.into();
        let object = pages("object", self.object)?;
        if object > heap {
            return Err(Refusal::new("object", format!("does not fit into the heap of {}", self.heap)));
        }
        let objects = heap / object;
        let chooser =
            Arc::new(Chooser::new(self.locality, objects, &mut Rng::shared(site.seed, site.actor))?);
        (0..threads)
            .map(|index| {
                let part = |i: u32| (u64::from(heap) * u64::from(i) / u64::from(threads)) as u32;
                let pacer =
                    self.rate.map(|rate| Pacer::per_second("rate", rate, index, threads)).transpose()?;
                let stream = Server {
                    index,
                    threads,
                    heap,
                    state: State::Start,
                    next: part(index),
                    end: part(index + 1),
                    rng: Rng::new(site.seed, site.actor, u64::from(index)),
                    chooser: Arc::clone(&chooser),
                    rests: Arc::clone(&rests),
                    touches,
                    object,
                    write,
                    compute: self.compute.ns(),
                    think: self.think.ns(),
                    pacer,
                };
                Ok(thread("server", if index == 0 { &["ready"] } else { &[] }, stream))
            })
            .collect()
    }
}

/// The times between the phases, as operations for each request to begin with.
fn rests(active: &[Phase]) -> Result<Vec<Op>, Refusal> {
    let mut rests = Vec::new();
    if active.is_empty() {
        return Ok(rests);
    }
    let mut from = 0;
    for Phase(begin, until) in active {
        if begin.ns() < from || from == u64::MAX {
            return Err(Refusal::new(
                "active",
                format!("the phase from {begin} begins before the one before it ends"),
            ));
        }
        if begin.ns() > from {
            rests.push(Op::Rest { from, until: begin.ns() });
        }
        from = match until {
            Until::End => u64::MAX,
            Until::At(end) if end > begin => end.ns(),
            Until::At(end) => {
                return Err(Refusal::new("active", format!("the phase from {begin} to {end} does not last")));
            }
        };
    }
    if from != u64::MAX {
        rests.push(Op::Rest { from, until: u64::MAX });
    }
    Ok(rests)
}

enum State {
    Start,
    Fill,
    Filled,
    Serve,
}

struct Server {
    index: u32,
    threads: u32,
    heap: u32,
    state: State,
    /// The next page of this thread's part of the heap, and the end of the part.
    next: u32,
    end: u32,
    rng: Rng,
    chooser: Arc<Chooser>,
    rests: Arc<[Op]>,
    touches: u32,
    /// Pages of an object.
    object: u32,
    write: Chance,
    compute: u64,
    think: u64,
    pacer: Option<Pacer>,
}

impl Server {
    fn request(&mut self, out: &mut Vec<Op>) {
        out.extend_from_slice(&self.rests);
        match &mut self.pacer {
            Some(pacer) => out.extend([pacer.next(), Op::Arrive]),
            None => out.push(Op::Begin),
        }
        if self.compute > 0 {
            out.push(Op::Compute { ns: self.compute });
        }
        for _ in 0..self.touches {
            let first = self.chooser.draw(&mut self.rng) * self.object;
            let write = self.rng.chance(self.write);
            out.extend((first..first + self.object).map(|page| Op::Touch { region: HEAP, page, write }));
        }
        out.push(Op::Done);
        if self.think > 0 {
            out.push(Op::Sleep { ns: self.think });
        }
    }
}

impl Stream for Server {
    fn fill(&mut self, out: &mut Vec<Op>) {
        match self.state {
            State::Start => {
                if self.index == 0 {
                    out.extend([
                        Op::MapAnon { region: HEAP, pages: self.heap },
                        Op::Signal { stage: MAPPED },
                    ]);
                } else {
                    out.push(Op::Await { stage: MAPPED, times: 1 });
                }
                self.state = if self.next < self.end { State::Fill } else { State::Filled };
            }
            State::Fill => {
                let stop = self.end.min(self.next.saturating_add(BATCH as u32));
                out.extend((self.next..stop).map(|page| Op::Touch { region: HEAP, page, write: true }));
                self.next = stop;
                if self.next == self.end {
                    self.state = State::Filled;
                }
            }
            State::Filled => {
                out.extend([Op::Signal { stage: FILLED }, Op::Await { stage: FILLED, times: self.threads }]);
                if self.index == 0 {
                    out.push(Op::Mark { mark: 0 });
                }
                self.state = State::Serve;
            }
            State::Serve => {
                let enough = out.len() + BATCH;
                while out.len() < enough {
                    self.request(out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_become_the_rests_between_them() {
        let s = |n| Time::s(n);
        let rest = |from, until| Op::Rest { from, until };
        let second = 1_000_000_000;
        assert_eq!(rests(&[]), Ok(vec![]));
        assert_eq!(
            rests(&[Phase(s(0), Until::At(s(60))), Phase(s(300), Until::End)]),
            Ok(vec![rest(60 * second, 300 * second)])
        );
        assert_eq!(
            rests(&[Phase(s(10), Until::At(s(60))), Phase(s(60), Until::At(s(70)))]),
            Ok(vec![rest(0, 10 * second), rest(70 * second, u64::MAX)])
        );
    }

    #[test]
    fn impossible_phases_are_refused() {
        let s = |n| Time::s(n);
        let refused = |phases: &[Phase]| rests(phases).unwrap_err().to_string();
        assert_eq!(
            refused(&[Phase(s(0), Until::End), Phase(s(5), Until::End)]),
            "active: the phase from 5 s begins before the one before it ends"
        );
        assert_eq!(
            refused(&[Phase(s(0), Until::At(s(9))), Phase(s(5), Until::End)]),
            "active: the phase from 5 s begins before the one before it ends"
        );
        assert_eq!(
            refused(&[Phase(s(5), Until::At(s(5)))]),
            "active: the phase from 5 s to 5 s does not last"
        );
    }

    #[test]
    fn phases_are_pairs_of_texts() {
        #[derive(Debug, PartialEq, Deserialize, Serialize)]
        struct Holder {
            active: Vec<Phase>,
        }
        let text = "active = [[\"0\", \"1 min\"], [\"300 s\", \"end\"]]\n";
        let holder: Holder = toml::from_str(text).unwrap();
        assert_eq!(holder.active, [Phase(Time(0), Until::At(Time::s(60))), Phase(Time::s(300), Until::End)]);
        assert_eq!(toml::from_str::<Holder>(&toml::to_string(&holder).unwrap()).unwrap(), holder);
        let error =
            toml::from_str::<Holder>("active = [[\"0\", \"soon\"]]").unwrap_err().message().to_owned();
        assert_eq!(
            error,
            "\"soon\" is not a time: it does not begin with a number; write a number with ns, us, ms, s, min, h or \
             d in quotes, such as \"200 ms\""
        );
    }
}
