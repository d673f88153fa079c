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
use super::{BATCH, Instance, Kind, PAGE, Refusal, Site, THREADS, pages, share, thread, within};
use crate::op::{FileId, How, Op, RegionId};
use crate::program::{Stream, Thread};
use crate::quantity::{Size, Time};

/// A server whose threads answer requests; a request touches pages of a heap.
///
/// It starts by storing to every page of the heap, each thread to its part; the first thread then reads or
/// touches the data, if there are any, from the beginning to the end. `ready` is marked when all are done.
/// Then every thread does one request after the other: it computes, touches pages, and thinks. With `rate`
/// the requests come at that rate instead, whether or not the server keeps up, and their latency counts from
/// when they were due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AppServer {
    /// Anonymous memory of the process.
    pub heap: Size,
    /// Threads that answer requests.
    #[serde(default = "one")]
    pub threads: u32,
    /// A collector of garbage. Without it the whole heap is live, and nothing is ever garbage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<Collector>,
    /// Data of a file that the server works on, beside its heap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// Objects that a request touches.
    #[serde(default = "touches")]
    pub touches: u32,
    /// Size of an object, whose pages are touched together; the heap and the data are divided into them.
    #[serde(default = "page")]
    pub object: Size,
    /// Which objects: `"uniform"`, `{ zipf = 1.0 }` or `{ hot-cold = { memory = 0.2, touches = 0.8 } }`.
    #[serde(default)]
    pub locality: Locality,
    /// The share of the touches that store; the others load, and so does every touch of data.
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

/// A collector that traces what is live: the smaller the heap, the more often it does.
///
/// Each thread has a share of what is live and of the room for garbage. Once its room is used up, its next
/// request begins with a collection: it loads every page of its share of what is live, and the room is free
/// again. There are no generations, and no thread waits for another's collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Collector {
    /// What is live: objects are in this part of the heap. The rest is for garbage.
    pub live: Size,
    /// What a request allocates and stores to: garbage when it is done.
    #[serde(default = "garbage")]
    pub garbage: Size,
    /// Time on a CPU that a collection takes for each GiB that is live, beside what its touches cost.
    #[serde(default = "per_gib")]
    pub per_gib: Time,
}

/// Data of a file that a server works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Data {
    /// Size of the file.
    pub size: Size,
    /// How the server has them.
    #[serde(default)]
    pub how: Held,
}

/// How a server has the data of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// It reads them into memory of its own when it starts: what the page cache has of the file is a second
    /// copy.
    #[default]
    Read,
    /// It maps the file: the page cache has the only copy.
    Mmap,
}

fn garbage() -> Size {
    Size::kib(64)
}

fn per_gib() -> Time {
    Time::s(1)
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

const HEAP: RegionId = RegionId(0);
const DATA: RegionId = RegionId(1);

/// Pages of data that are read at a time.
const CHUNK: u32 = 256;
/// Pages of a GiB.
const GIB: u64 = 1 << 18;

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
        let copied = self.data.filter(|data| data.how == Held::Read).map_or(0, |data| data.size.bytes());
        Bytes(self.heap.bytes().saturating_add(copied))
    }

    fn on_disk(&self) -> Vec<(&'static str, Size)> {
        self.data.map(|data| ("data", data.size)).into_iter().collect()
    }
}

/// Pages from one to before another.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: u32,
    to: u32,
}

impl Part {
    /// The part of one of several threads.
    fn of(self, index: u32, threads: u32) -> Part {
        let pages = u64::from(self.to - self.from);
        let border = |i: u32| self.from + (pages * u64::from(i) / u64::from(threads)) as u32;
        Part { from: border(index), to: border(index + 1) }
    }

    fn pages(self) -> u32 {
        self.to - self.from
    }
}

/// What is mapped beside the heap, with its number of pages.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    file: FileId,
    pages: u32,
    how: Held,
}

/// What of the heap a thread collects, and where its garbage goes.
#[derive(Clone, Copy, Debug)]
struct Collecting {
    live: Part,
    room: Part,
    /// The page that is allocated next.
    next: u32,
    /// Pages of garbage that a request makes.
    garbage: u32,
    per_gib: u64,
}

impl Collector {
    /// The pages that are live, and what each thread collects.
    fn build(&self, heap: u32, threads: u32) -> Result<(u32, Vec<Collecting>), Refusal> {
        let refuse = |why: String| Err(Refusal::new("collector", why));
        let (live, garbage) = (pages("collector", self.live)?, pages("collector", self.garbage)?);
        if live >= heap {
            return refuse(format!(
                "live is {}, and the heap is to have room for garbage beside it",
                self.live
            ));
        }
        let each = |index| {
            let live_part = Part { from: 0, to: live }.of(index, threads);
            let room = Part { from: live, to: heap }.of(index, threads);
            Collecting { live: live_part, room, next: room.from, garbage, per_gib: self.per_gib.ns() }
        };
        let each: Vec<Collecting> = (0..threads).map(each).collect();
        if each.iter().any(|one| one.room.pages() < garbage) {
            let all = Size(Bytes(u64::from(heap - live) * PAGE));
            return refuse(format!(
                "garbage is {}, and {threads} threads share the {all} that are not live",
                self.garbage
            ));
        }
        Ok((live, each))
    }
}

impl AppServer {
    fn threads(&self, site: &mut Site<'_>) -> Result<Vec<Thread>, Refusal> {
        let heap = pages("heap", self.heap)?;
        let threads = within("threads", self.threads, 1, THREADS)?;
        let touches = within("touches", self.touches, 0, 1 << 20)?;
        let write = Chance::of(share("write", self.write)?);
        if self.rate.is_some() && self.think != Time(0) {
            return Err(Refusal::new("think", "has no meaning with `rate`; give one of them"));
        }
        let rests: Arc<[Op]> = rests(&self.active)?.into();
        let object = pages("object", self.object)?;
        let (live, collecting) = match self.collector {
            Some(collector) => collector.build(heap, threads)?,
            None => (heap, Vec::new()),
        };
        if object > live {
            let why = match self.collector {
                Some(collector) => format!("does not fit into what is live, {}", collector.live),
                None => format!("does not fit into the heap of {}", self.heap),
            };
            return Err(Refusal::new("object", why));
        }
        let data = match self.data {
            Some(Data { size, how }) => {
                let pages = pages("data", size)?;
                let file = site.files.declare(format!("{}/data", site.actor), pages, true)?;
                Some(Mapped { file, pages, how })
            }
            None => None,
        };
        let in_heap = live / object;
        let objects = in_heap + data.map_or(0, |data| data.pages / object);
        let chooser =
            Arc::new(Chooser::new(self.locality, objects, &mut Rng::shared(site.seed, site.actor))?);
        (0..threads)
            .map(|index| {
                let pacer =
                    self.rate.map(|rate| Pacer::per_second("rate", rate, index, threads)).transpose()?;
                let stream = Server {
                    index,
                    threads,
                    heap,
                    data,
                    state: State::Start,
                    fill: Part { from: 0, to: heap }.of(index, threads),
                    // Several threads would have the disk seek between their parts.
                    fill_data: Part { from: 0, to: data.filter(|_| index == 0).map_or(0, |data| data.pages) },
                    collecting: collecting.get(index as usize).copied(),
                    in_heap,
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
    FillData,
    Filled,
    Serve,
    /// A request has begun with a collection, which goes on at this page.
    Collect(u32),
}

struct Server {
    index: u32,
    threads: u32,
    heap: u32,
    data: Option<Mapped>,
    state: State,
    /// What this thread still has to fill of the heap and of the data.
    fill: Part,
    fill_data: Part,
    collecting: Option<Collecting>,
    /// Objects of the heap; the others are data.
    in_heap: u32,
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
    fn begin(&mut self, out: &mut Vec<Op>) {
        out.extend_from_slice(&self.rests);
        match &mut self.pacer {
            Some(pacer) => out.extend([pacer.next(), Op::Arrive]),
            None => out.push(Op::Begin),
        }
    }

    /// What a request does once it has begun.
    fn answer(&mut self, out: &mut Vec<Op>) {
        if self.compute > 0 {
            out.push(Op::Compute { ns: self.compute });
        }
        if let Some(collecting) = &mut self.collecting {
            let from = collecting.next;
            collecting.next += collecting.garbage;
            out.extend((from..collecting.next).map(|page| Op::Touch { region: HEAP, page, write: true }));
        }
        for _ in 0..self.touches {
            let object = self.chooser.draw(&mut self.rng);
            let stores = self.rng.chance(self.write);
            let (region, object, write) = match object.checked_sub(self.in_heap) {
                None => (HEAP, object, stores),
                Some(of_data) => (DATA, of_data, false),
            };
            let first = object * self.object;
            out.extend((first..first + self.object).map(|page| Op::Touch { region, page, write }));
        }
        out.push(Op::Done);
        if self.think > 0 {
            out.push(Op::Sleep { ns: self.think });
        }
    }

    /// The page at which a collection has to begin before the next request allocates.
    fn due(&self) -> Option<u32> {
        let collecting = self.collecting.as_ref()?;
        (collecting.room.to - collecting.next < collecting.garbage).then_some(collecting.live.from)
    }

    /// Goes on with a collection at a page; says where to go on, or that it is done.
    fn collect(&mut self, from: u32, out: &mut Vec<Op>) -> Option<u32> {
        let collecting = self.collecting.as_mut()?;
        let stop = collecting.live.to.min(from.saturating_add(BATCH as u32));
        out.extend((from..stop).map(|page| Op::Touch { region: HEAP, page, write: false }));
        let ns = u128::from(collecting.per_gib) * u128::from(stop - from) / u128::from(GIB);
        out.extend((ns > 0).then_some(Op::Compute { ns: ns as u64 }));
        if stop < collecting.live.to {
            return Some(stop);
        }
        collecting.next = collecting.room.from;
        None
    }

    /// Maps the data.
    fn map_data(data: Mapped) -> Op {
        let Mapped { file, pages, how } = data;
        match how {
            Held::Read => Op::MapAnon { region: DATA, pages },
            Held::Mmap => Op::MapFile { region: DATA, file, pages, shared: true },
        }
    }

    /// Has the next chunk of the data in memory.
    fn fill_data(&mut self, data: Mapped, out: &mut Vec<Op>) {
        let from = self.fill_data.from;
        let stop = self.fill_data.to.min(from.saturating_add(CHUNK));
        let copies = data.how == Held::Read;
        if copies {
            let (offset, len) = (u64::from(from) * PAGE, (stop - from) * PAGE as u32);
            out.push(Op::Read { file: data.file, offset, len, how: How::Buffered });
        }
        out.extend((from..stop).map(|page| Op::Touch { region: DATA, page, write: copies }));
        self.fill_data.from = stop;
    }

    fn step(&mut self, out: &mut Vec<Op>) {
        match self.state {
            State::Start => {
                if self.index == 0 {
                    out.push(Op::MapAnon { region: HEAP, pages: self.heap });
                    out.extend(self.data.map(Server::map_data));
                    out.push(Op::Signal { stage: MAPPED });
                } else {
                    out.push(Op::Await { stage: MAPPED, times: 1 });
                }
                self.state = State::Fill;
            }
            State::Fill => {
                let stop = self.fill.to.min(self.fill.from.saturating_add(BATCH as u32));
                out.extend((self.fill.from..stop).map(|page| Op::Touch { region: HEAP, page, write: true }));
                self.fill.from = stop;
                if self.fill.pages() == 0 {
                    self.state = State::FillData;
                }
            }
            State::FillData => match self.data {
                Some(data) if self.fill_data.pages() > 0 => self.fill_data(data, out),
                _ => self.state = State::Filled,
            },
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
                    self.begin(out);
                    if let Some(page) = self.due() {
                        self.state = State::Collect(page);
                        return;
                    }
                    self.answer(out);
                }
            }
            State::Collect(page) => match self.collect(page, out) {
                Some(page) => self.state = State::Collect(page),
                None => {
                    self.answer(out);
                    self.state = State::Serve;
                }
            },
        }
    }
}

impl Stream for Server {
    fn fill(&mut self, out: &mut Vec<Op>) {
        let before = out.len();
        // A share of nothing is filled at once.
        while out.len() == before {
            self.step(out);
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
