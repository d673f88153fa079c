//! `sessions`: processes that attach one shared segment.

use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pace::Pacer;
use super::rng::{Chance, Rng};
use super::{
    BATCH, Hold, Instance, Kind, PAGE, Refusal, Site, THREADS, mebibyte, pages, share, thread, within,
};
use crate::op::{Advice, Op, RegionId, SegmentId};
use crate::program::{SegmentBacking, SegmentSpec, Stream};
use crate::quantity::{Size, Time};

/// Processes that attach one shared segment, as the sessions of a database attach the buffer cache of its
/// instance.
///
/// They start one after the other, evenly over `ramp`. Each attaches the segment, marks `attached`, touches
/// its share of the pages in their order, marks `touched`, stays for `hold`, marks `left` and exits.
/// Touching a chunk is one request. Unless the segment is `filled`, its memory is zeroed when the first
/// process touches it, and the processes that come later find it in memory and only map it.
///
/// `background` adds the processes of the instance itself, and `private` gives each process memory that it
/// does not share.
///
/// Base pages cost every process an entry of 8 bytes for each page that it has touched, about 2 MiB of page
/// tables for each GiB; a huge page costs an entry for 2 MiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sessions {
    /// How many sessions there are, not counting `background`.
    pub processes: u32,
    /// Further processes that start with the actor and stay to its end, as the background processes of an
    /// instance do. They do what the sessions do, and count in what is measured.
    #[serde(default)]
    pub background: u32,
    /// From the actor's start to that of the first session.
    #[serde(default)]
    pub idle: Time,
    /// Size of the segment.
    pub segment: Size,
    /// What memory the segment is of.
    #[serde(default)]
    pub backing: Sharing,
    /// Size of each of the files that are mapped with `backing = "tmpfs"`; 16 MiB if left out. Oracle
    /// calls it a granule. The model has one file. Not with the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granule: Option<Size>,
    /// Whether the first process stores to every page of the segment before it marks `attached`: an instance
    /// that has been up for a while has used all of its buffers.
    #[serde(default)]
    pub filled: bool,
    /// Memory of its own that each process maps, in base pages, and touches before it attaches the segment:
    /// `{ size = "230 MiB", stride = "2 MiB" }`. All of `size` counts in `Committed_AS`; `stride` is the
    /// distance between the pages that it touches, every page if left out. With `"2 MiB"` each of them has a
    /// page table of its own: programs with many libraries are like that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<Private>,
    /// The share of the segment, from its beginning on, that each process touches.
    #[serde(default = "all")]
    pub touch: f64,
    /// From one page that is touched to the next; one page: every page. With huge pages, `"2 MiB"` touches
    /// each of them once.
    #[serde(default = "page")]
    pub stride: Size,
    /// The share of the touches that store; the others load. A load may map several pages of a tmpfs file at
    /// once, if they are in memory.
    #[serde(default = "all")]
    pub write: f64,
    /// What a request touches: as much of the segment, or one page if `stride` is longer.
    #[serde(default = "mebibyte")]
    pub chunk: Size,
    /// From the start of the first session to one step after that of the last; 0: all at once.
    #[serde(default)]
    pub ramp: Time,
    /// How long each session stays after it has touched its share; to the end of the run if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Time>,
    /// Touches per second of each process while it stays, of pages drawn from those that it has touched; none
    /// if left out. They are no requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// Memory that a process has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Private {
    /// How much it maps, and is promised.
    pub size: Size,
    /// From one page that it touches to the next; one page: every page.
    #[serde(default = "page")]
    pub stride: Size,
}

/// Memory that processes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// System V shared memory of base pages (`shmget`).
    #[default]
    Shm,
    /// System V shared memory of huge pages (`SHM_HUGETLB`), from the pool that `vm.nr_hugepages` reserves.
    ShmHuge,
    /// System V shared memory of huge pages if the pool has enough for all of it, else of base pages:
    /// PostgreSQL's `huge_pages = try`, Oracle's `use_large_pages = true` through 11.2.0.2.
    ShmHugeOrBase,
    /// Files on tmpfs, one for each granule, as Automatic Memory Management maps them.
    Tmpfs,
}

fn all() -> f64 {
    1.0
}

fn page() -> Size {
    Size::kib(4)
}

/// The regions of each process.
const SEGMENT: RegionId = RegionId(0);
const PRIVATE: RegionId = RegionId(1);

/// Stages of each process.
pub(super) const MARKS: [&str; 3] = ["attached", "touched", "left"];

impl Kind for Sessions {
    const ROLES: &'static [&'static str] = &["session"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        let processes = within("processes", self.processes, 1, THREADS)?;
        let background = self.background;
        if background > THREADS - processes {
            let why = format!("is {background} beside {processes} processes; together they may be {THREADS}");
            return Err(Refusal::new("background", why));
        }
        let length = pages("segment", self.segment)?;
        let backing = match (self.backing, self.granule) {
            (Sharing::Tmpfs, granule) => {
                SegmentBacking::Tmpfs { granule_pages: pages("granule", granule.unwrap_or(Size::mib(16)))? }
            }
            (_, Some(_)) => {
                return Err(Refusal::new("granule", "has a meaning with backing = \"tmpfs\" only"));
            }
            (Sharing::Shm, None) => SegmentBacking::Shm,
            (Sharing::ShmHuge, None) => SegmentBacking::ShmHuge { or_base: false },
            (Sharing::ShmHugeOrBase, None) => SegmentBacking::ShmHuge { or_base: true },
        };
        let private = self.private.map(|private| {
            let (size, stride) =
                (pages("private.size", private.size)?, pages("private.stride", private.stride)?);
            Ok(Touches::new(PRIVATE, size, stride))
        });
        let private = private.transpose()?;
        let stride = pages("stride", self.stride)?;
        let reach = (f64::from(length) * share("touch", self.touch)?).ceil() as u32;
        let shared = Touches::new(SEGMENT, reach, stride);
        let chunk = (pages("chunk", self.chunk)? / stride).max(1);
        let write = Chance::of(share("write", self.write)?);
        let life = format!("the actor has {} from its start to its end", site.life);
        if self.ramp > site.life {
            return Err(Refusal::new("ramp", format!("is {}, but {life}", self.ramp)));
        }
        if self.idle.ns() > site.life.ns() - self.ramp.ns() {
            return Err(Refusal::new(
                "idle",
                format!("is {} before a ramp of {}, but {life}", self.idle, self.ramp),
            ));
        }
        if self.rate.is_some() && shared.count == 0 {
            return Err(Refusal::new("rate", "has no meaning with touch = 0"));
        }
        let segment = SegmentId(site.segments.len() as u32);
        site.segments.push(SegmentSpec {
            name: format!("{}/segment", site.actor),
            pages: length,
            backing,
            memlock: site.memlock,
        });
        (0..background + processes)
            .map(|number| {
                let session = Session {
                    segment,
                    state: State::Start,
                    private,
                    fill: (self.filled && number == 0).then(|| Touches::new(SEGMENT, length, 1)),
                    shared,
                    chunk,
                    write,
                    rng: Rng::new(site.seed, site.actor, number.into()),
                    hold: Hold::new(self.hold.filter(|_| number >= background)),
                    pacer: self.rate.map(|rate| Pacer::per_second("rate", rate, 0, 1)).transpose()?,
                };
                let delay = number.checked_sub(background).map_or(0, |place| {
                    let share = u128::from(self.ramp.ns()) * u128::from(place) / u128::from(processes);
                    self.idle.ns() + share as u64
                });
                Ok(Instance { delay, threads: vec![thread("session", &MARKS, session)] })
            })
            .collect()
    }

    fn thread_count(&self) -> u64 {
        u64::from(self.processes) + u64::from(self.background)
    }

    fn demand(&self) -> Bytes {
        let entries = |size: Size| size.bytes() / (PAGE / ENTRY);
        let of_each = self.private.map_or(0, |private| {
            let touched = private.size.bytes() / (private.stride.bytes() / PAGE).max(1);
            touched + entries(private.size)
        });
        let touched = (entries(self.segment) as f64 * self.touch.clamp(0.0, 1.0)) as u64;
        let tables = if self.backing == Sharing::ShmHuge { 0 } else { touched };
        // A pool that is too small is taken nevertheless.
        let segments = if self.backing == Sharing::ShmHugeOrBase { 2 } else { 1 };
        self.segment.0.times(segments)
            + Bytes((of_each + tables).saturating_mul(self.thread_count()))
            + Bytes(if self.filled { entries(self.segment) } else { 0 })
    }
}

/// Bytes of an entry of a page table.
const ENTRY: u64 = 8;

/// Pages of a region that are touched in their order.
#[derive(Clone, Copy, Debug)]
struct Touches {
    region: RegionId,
    /// Pages of the region.
    pages: u32,
    /// Pages from one to the next.
    stride: u32,
    /// How many there are, and how many are done.
    count: u32,
    next: u32,
}

impl Touches {
    fn new(region: RegionId, pages: u32, stride: u32) -> Self {
        Touches { region, pages, stride, count: pages.div_ceil(stride), next: 0 }
    }

    fn touch(self, number: u32, write: bool) -> Op {
        Op::Touch { region: self.region, page: number * self.stride, write }
    }

    /// The next `most` of them, which store; `false` if these are the last.
    fn store(&mut self, most: u32, out: &mut Vec<Op>) -> bool {
        let end = self.count.min(self.next.saturating_add(most));
        out.extend((self.next..end).map(|number| self.touch(number, true)));
        self.next = end;
        end < self.count
    }
}

enum State {
    Start,
    Private,
    Attach,
    Fill,
    Touch,
    Hold,
    Left,
}

struct Session {
    segment: SegmentId,
    state: State,
    private: Option<Touches>,
    /// All of the segment, for the process that fills it.
    fill: Option<Touches>,
    /// Its share of the segment.
    shared: Touches,
    /// Touches of a request.
    chunk: u32,
    write: Chance,
    rng: Rng,
    hold: Hold,
    pacer: Option<Pacer>,
}

impl Session {
    fn touch(&mut self, number: u32) -> Op {
        let write = self.rng.chance(self.write);
        self.shared.touch(number, write)
    }

    fn request(&mut self, out: &mut Vec<Op>) {
        let Touches { next, count, .. } = self.shared;
        let stop = count.min(next.saturating_add(self.chunk));
        out.push(Op::Begin);
        for number in next..stop {
            let touch = self.touch(number);
            out.push(touch);
        }
        out.push(Op::Done);
        self.shared.next = stop;
    }

    /// The touches of the time in which it stays; `true` when that is over.
    fn hold(&mut self, out: &mut Vec<Op>) -> bool {
        let Some(pacer) = &mut self.pacer else {
            out.extend(self.hold.rest());
            return true;
        };
        let (date, over) = self.hold.until(pacer.next());
        out.push(date);
        if !over {
            let number = self.rng.below(self.shared.count);
            let touch = self.touch(number);
            out.push(touch);
        }
        over
    }
}

impl Stream for Session {
    fn fill(&mut self, out: &mut Vec<Op>) {
        let enough = out.len() + BATCH;
        while out.len() < enough {
            match self.state {
                State::Start => {
                    if let Some(Touches { region, pages, .. }) = self.private {
                        let advice = Advice::NoHugePage;
                        out.extend([Op::MapAnon { region, pages }, Op::AdviseRegion { region, advice }]);
                    }
                    self.state = State::Private;
                }
                State::Private => {
                    let more = self.private.as_mut().is_some_and(|private| private.store(BATCH as u32, out));
                    if !more {
                        self.state = State::Attach;
                    }
                }
                State::Attach => {
                    out.push(Op::Attach { region: SEGMENT, segment: self.segment });
                    self.state = State::Fill;
                }
                State::Fill => {
                    let more = self.fill.as_mut().is_some_and(|fill| fill.store(BATCH as u32, out));
                    if !more {
                        out.push(Op::Mark { mark: 0 });
                        self.state = State::Touch;
                    }
                }
                State::Touch if self.shared.next < self.shared.count => self.request(out),
                State::Touch => {
                    out.push(Op::Mark { mark: 1 });
                    self.state = State::Hold;
                }
                State::Hold => {
                    if self.hold(out) {
                        out.push(Op::Mark { mark: 2 });
                        self.state = State::Left;
                    }
                }
                State::Left => return,
            }
        }
    }
}
