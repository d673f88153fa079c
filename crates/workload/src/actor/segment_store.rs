//! `segment-store`: a log-structured store that reads mapped segments and replaces them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Access, Hint, Side, chunk};
use super::locality::{Chooser, Locality};
use super::pace::Pacer;
use super::rng::Rng;
use super::{BATCH, Instance, Kind, PAGE, Refusal, Site, THREADS, mebibyte, pages, thread, within};
use crate::op::{FileId, Op, RegionId};
use crate::program::{Stream, Thread};
use crate::quantity::{Bandwidth, Size, Time};

/// A log-structured store, as graph and search engines have them: immutable segments, each a file that is
/// mapped shared; readers that load pages of random segments; writers that fill new segments and put them in
/// the place of old ones.
///
/// The process has a table of `active` segments, and region k maps the segment in slot k. A thread `setup`
/// reads through the garbage and maps the active segments, then marks `ready`, and the readers and writers
/// begin. The slots are dealt out to the writers in turn; a writer replaces random ones of its own.
///
/// After the store that LinkedIn's engineers simulated for "Optimizing Linux Memory Management for
/// Low-latency / High-throughput Databases" (2013).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SegmentStore {
    /// Bytes of a segment.
    #[serde(default = "ten_mebibytes")]
    pub segment: Size,
    /// Segments in use.
    pub active: u32,
    /// Segments that are mapped, read through and unmapped at the start: page cache that nobody needs.
    #[serde(default)]
    pub garbage: u32,
    /// Read through the active segments, too, before the readers begin.
    #[serde(default)]
    pub warm: bool,
    /// Threads that read.
    #[serde(default = "one")]
    pub readers: u32,
    /// Reads per second of all readers together. Without it a reader's next read comes when the one before is
    /// done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<f64>,
    /// Pause of a reader after each read. Not with `reads`.
    #[serde(default)]
    pub think: Time,
    /// Time on a CPU that a read takes beside what its loads cost.
    #[serde(default)]
    pub compute: Time,
    /// Consecutive pages of one segment that a read loads from.
    #[serde(default = "one")]
    pub pages_per_read: u32,
    /// Where reads begin, over all pages of the active segments: `"uniform"`, `{ zipf = 1.0 }` or
    /// `{ hot-cold = { memory = 0.2, touches = 0.8 } }`.
    #[serde(default)]
    pub locality: Locality,
    /// What the store tells the kernel about its mappings.
    #[serde(default)]
    pub advice: Hint,
    /// Threads that write segments. 0: the store is only read.
    #[serde(default = "one")]
    pub writers: u32,
    /// How a segment is filled.
    #[serde(default)]
    pub write_how: Fill,
    /// Bytes of one `write`, and of one request of a writer.
    #[serde(default = "mebibyte")]
    pub chunk: Size,
    /// Bytes that all writers together write per second, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_rate: Option<Bandwidth>,
    /// Pause of a writer after each segment.
    #[serde(default)]
    pub write_pause: Time,
    /// Wait until a segment is on disk before it is used (`fdatasync`).
    #[serde(default)]
    pub sync: bool,
    /// Replaced segments that stay on disk, over all writers (rounded up to a multiple of them), before the
    /// oldest is deleted or, with `pool`, written again. Default: as many as are active; with `pool` 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// Recycle segments: the file of a replaced segment is written again in place, instead of being deleted
    /// and a new one created.
    #[serde(default)]
    pub pool: bool,
}

/// How a segment store fills a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Stores to a shared mapping.
    #[default]
    Mmap,
    /// `write`.
    Write,
}

fn ten_mebibytes() -> Size {
    Size::mib(10)
}

fn one() -> u32 {
    1
}

/// Stage of the start: the active segments are mapped.
const MAPPED: u32 = 0;

impl Kind for SegmentStore {
    const ROLES: &'static [&'static str] = &["reader", "setup", "writer"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        self.threads(site).map(Instance::only)
    }

    fn has_rate(&self, role: &str) -> bool {
        match role {
            "reader" => self.reads.is_some(),
            "writer" => self.write_rate.is_some(),
            _ => false,
        }
    }

    fn thread_count(&self) -> u64 {
        u64::from(self.readers) + u64::from(self.writers) + 1
    }

    fn on_disk(&self) -> Vec<(&'static str, Size)> {
        let segments = u64::from(self.active).saturating_add(self.garbage.into());
        vec![("active", Size(self.segment.0.times(segments)))]
    }
}

impl SegmentStore {
    fn threads(&self, site: &mut Site<'_>) -> Result<Vec<Thread>, Refusal> {
        let segment = pages("segment", self.segment)?;
        let active = within("active", self.active, 1, 1 << 20)?;
        let garbage = within("garbage", self.garbage, 0, 1 << 20)?;
        let readers = within("readers", self.readers, 0, THREADS)?;
        let writers = within("writers", self.writers, 0, THREADS)?;
        if writers > active {
            let why = format!("is {writers}; it may be at most `active`, so that each has a slot of its own");
            return Err(Refusal::new("writers", why));
        }
        let first_active = declare(site, "segment", active, segment, true)?;
        let first_garbage = declare(site, "garbage", garbage, segment, true)?;
        let mut threads = vec![thread(
            "setup",
            &["ready"],
            Setup {
                segment,
                garbage,
                active,
                first_garbage,
                first_active,
                scratch: RegionId(active + writers),
                warm: self.warm,
                hint: self.advice,
                item: 0,
                page: 0,
            },
        )];
        threads.extend(self.readers(site, segment, active, readers)?);
        threads.extend(self.writers(site, segment, writers, first_active..first_active + active)?);
        Ok(threads)
    }

    /// Threads that fill segments, each in slots of its own of those in `slots` (numbers of files).
    fn writers(
        &self,
        site: &mut Site<'_>,
        segment: u32,
        writers: u32,
        slots: Range<u32>,
    ) -> Result<Vec<Thread>, Refusal> {
        let active = slots.len() as u32;
        let keep = self.keep.unwrap_or(if self.pool { 0 } else { active });
        let keep = within("keep", keep, 0, 1 << 20)?.div_ceil(writers.max(1));
        let access = match self.write_how {
            Fill::Mmap => Access::Mmap,
            Fill::Write => Access::Buffered,
        };
        let chunk = chunk(access, self.chunk)?;
        let mut threads = Vec::new();
        for writer in 0..writers {
            let spare = declare(site, &format!("spare-{writer}"), keep + 1, segment, false)?;
            let share = u64::from(chunk) * u64::from(writers);
            let pacer = self
                .write_rate
                .map(|rate| Pacer::bandwidth("write-rate", share, rate.bytes()))
                .transpose()?;
            threads.push(thread(
                "writer",
                &[],
                Writer {
                    begun: false,
                    rng: Rng::new(site.seed, site.actor, 1 << 32 | u64::from(writer)),
                    first: writer,
                    writers,
                    slots: slots
                        .clone()
                        .skip(writer as usize)
                        .step_by(writers as usize)
                        .map(FileId)
                        .collect(),
                    free: (spare..=spare + keep).map(|id| (FileId(id), true)).collect(),
                    retired: VecDeque::new(),
                    keep: keep as usize,
                    pool: self.pool,
                    target: Side::new(FileId(0), active + writer, segment, access, u64::MAX, true),
                    size: u64::from(segment) * PAGE,
                    offset: 0,
                    chunk,
                    hint: self.advice,
                    sync: self.sync,
                    pause: self.write_pause.ns(),
                    pacer,
                },
            ));
        }
        Ok(threads)
    }

    fn readers(
        &self,
        site: &Site<'_>,
        segment: u32,
        active: u32,
        readers: u32,
    ) -> Result<Vec<Thread>, Refusal> {
        let span = within("pages-per-read", self.pages_per_read, 1, segment.min(1 << 20))?;
        if self.reads.is_some() && self.think != Time(0) {
            return Err(Refusal::new("think", "has no meaning with `reads`; give one of them"));
        }
        let places = match self.locality {
            Locality::Uniform => Places::Uniform { slots: active, starts: segment - span + 1 },
            locality => {
                let pages = active.checked_mul(segment).ok_or_else(|| {
                    let why = "other than \"uniform\" needs active segments of less than 16 TiB together";
                    Refusal::new("locality", why)
                })?;
                let chooser = Chooser::new(locality, pages, &mut Rng::shared(site.seed, site.actor))?;
                Places::Chosen { chooser: Arc::new(chooser), segment, last: segment - span }
            }
        };
        (0..readers)
            .map(|index| {
                let pacer =
                    self.reads.map(|rate| Pacer::per_second("reads", rate, index, readers)).transpose()?;
                let stream = Reader {
                    begun: false,
                    rng: Rng::new(site.seed, site.actor, u64::from(index)),
                    places: places.clone(),
                    span,
                    compute: self.compute.ns(),
                    think: self.think.ns(),
                    pacer,
                };
                Ok(thread("reader", &[], stream))
            })
            .collect()
    }
}

/// Declares `count` files of `pages` pages, `exist`ing or not; returns the number of the first.
fn declare(site: &mut Site<'_>, names: &str, count: u32, pages: u32, exist: bool) -> Result<u32, Refusal> {
    let mut first = None;
    for i in 0..count {
        let id = site.files.declare(format!("{}/{names}-{i}", site.actor), pages, exist)?;
        first = first.or(Some(id));
    }
    Ok(first.map_or(0, |id| id.0))
}

/// Reads the garbage, maps the active segments.
struct Setup {
    segment: u32,
    garbage: u32,
    active: u32,
    first_garbage: u32,
    first_active: u32,
    /// Where garbage is mapped.
    scratch: RegionId,
    warm: bool,
    hint: Hint,
    /// Garbage segments, then active ones, then the end.
    item: u32,
    page: u32,
}

impl Setup {
    /// Loads the next pages of a segment; true at its end.
    fn load(&mut self, region: RegionId, out: &mut Vec<Op>) -> bool {
        let stop = self.segment.min(self.page.saturating_add(BATCH as u32));
        out.extend((self.page..stop).map(|page| Op::Touch { region, page, write: false }));
        self.page = stop;
        self.page == self.segment
    }

    fn map(&self, region: RegionId, file: u32, out: &mut Vec<Op>) {
        if self.page == 0 {
            map(region, FileId(file), self.segment, self.hint, out);
        }
    }

    fn finish(&mut self) {
        self.item += 1;
        self.page = 0;
    }
}

/// Maps a segment over what was mapped there.
fn map(region: RegionId, file: FileId, pages: u32, hint: Hint, out: &mut Vec<Op>) {
    out.push(Op::MapFile { region, file, pages, shared: true });
    out.extend(hint.advice().map(|advice| Op::AdviseRegion { region, advice }));
}

impl Stream for Setup {
    fn fill(&mut self, out: &mut Vec<Op>) {
        if self.item < self.garbage {
            self.map(self.scratch, self.first_garbage + self.item, out);
            if self.load(self.scratch, out) {
                out.push(Op::Unmap { region: self.scratch });
                self.finish();
            }
        } else if self.item < self.garbage + self.active {
            let slot = self.item - self.garbage;
            self.map(RegionId(slot), self.first_active + slot, out);
            if !self.warm || self.load(RegionId(slot), out) {
                self.finish();
            }
        } else if self.item == self.garbage + self.active {
            out.extend([Op::Signal { stage: MAPPED }, Op::Mark { mark: 0 }]);
            self.finish();
        }
    }
}

/// Where reads begin.
#[derive(Clone)]
enum Places {
    Uniform { slots: u32, starts: u32 },
    Chosen { chooser: Arc<Chooser>, segment: u32, last: u32 },
}

impl Places {
    #[inline]
    fn draw(&self, rng: &mut Rng) -> (u32, u32) {
        match self {
            Places::Uniform { slots, starts } => {
                let slot = rng.below(*slots);
                (slot, rng.below(*starts))
            }
            Places::Chosen { chooser, segment, last } => {
                let page = chooser.draw(rng);
                (page / segment, (page % segment).min(*last))
            }
        }
    }
}

struct Reader {
    begun: bool,
    rng: Rng,
    places: Places,
    span: u32,
    compute: u64,
    think: u64,
    pacer: Option<Pacer>,
}

impl Stream for Reader {
    fn fill(&mut self, out: &mut Vec<Op>) {
        if !self.begun {
            self.begun = true;
            out.push(Op::Await { stage: MAPPED, times: 1 });
        }
        let enough = out.len() + BATCH;
        while out.len() < enough {
            match &mut self.pacer {
                Some(pacer) => out.extend([pacer.next(), Op::Arrive]),
                None => out.push(Op::Begin),
            }
            if self.compute > 0 {
                out.push(Op::Compute { ns: self.compute });
            }
            let (slot, start) = self.places.draw(&mut self.rng);
            let region = RegionId(slot);
            out.extend((start..start + self.span).map(|page| Op::Touch { region, page, write: false }));
            out.push(Op::Done);
            if self.think > 0 {
                out.push(Op::Sleep { ns: self.think });
            }
        }
    }
}

struct Writer {
    begun: bool,
    rng: Rng,
    /// The first slot of this writer; the next is `writers` further.
    first: u32,
    writers: u32,
    /// The files in the slots of this writer.
    slots: Vec<FileId>,
    /// Files to write next, and whether they must be created.
    free: VecDeque<(FileId, bool)>,
    /// Replaced segments, the oldest first.
    retired: VecDeque<FileId>,
    keep: usize,
    pool: bool,
    target: Side,
    size: u64,
    offset: u64,
    chunk: u32,
    hint: Hint,
    sync: bool,
    pause: u64,
    pacer: Option<Pacer>,
}

impl Writer {
    /// Takes a file for the next segment. There is one: what `keep` does not hold is free.
    fn begin(&mut self, out: &mut Vec<Op>) {
        let Some((file, create)) = self.free.pop_front() else { return };
        self.target.file = file;
        if create {
            out.push(Op::Create { file, pages: self.target.pages });
        }
        self.target.open(Hint::None, out);
    }

    fn step(&mut self, out: &mut Vec<Op>) {
        let to = self.size.min(self.offset + u64::from(self.chunk));
        out.extend(self.pacer.as_mut().map(Pacer::next));
        out.push(Op::Begin);
        self.target.transfer(self.offset, to, self.chunk, out);
        out.push(Op::Done);
        self.offset = to;
    }

    /// Puts the segment in the place of a random one of this writer's.
    fn replace(&mut self, out: &mut Vec<Op>) {
        let file = self.target.file;
        if self.sync {
            out.push(Op::Sync { file });
        }
        self.target.close(out);
        let index = self.rng.below(self.slots.len() as u32);
        map(RegionId(self.first + index * self.writers), file, self.target.pages, self.hint, out);
        let old = std::mem::replace(&mut self.slots[index as usize], file);
        self.retired.push_back(old);
        if self.retired.len() > self.keep
            && let Some(oldest) = self.retired.pop_front()
        {
            if !self.pool {
                out.push(Op::Delete { file: oldest });
            }
            self.free.push_back((oldest, !self.pool));
        }
        if self.pause > 0 {
            out.push(Op::Sleep { ns: self.pause });
        }
        self.offset = 0;
    }
}

impl Stream for Writer {
    fn fill(&mut self, out: &mut Vec<Op>) {
        if !self.begun {
            self.begun = true;
            out.push(Op::Await { stage: MAPPED, times: 1 });
        }
        let enough = out.len() + BATCH;
        while out.len() < enough {
            if self.offset == 0 {
                self.begin(out);
            }
            self.step(out);
            if self.offset == self.size {
                self.replace(out);
            }
        }
    }
}
