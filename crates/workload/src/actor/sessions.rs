//! `sessions`: processes that attach one shared segment.

use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pace::Pacer;
use super::rng::{Chance, Rng};
use super::{BATCH, Hold, Instance, Kind, Refusal, Site, THREADS, mebibyte, pages, share, thread, within};
use crate::op::{Op, RegionId, SegmentId};
use crate::program::{SegmentBacking, SegmentSpec, Stream};
use crate::quantity::{Size, Time};

/// Processes that attach one shared segment, as the sessions of a database attach the buffer cache of its
/// instance.
///
/// They start one after the other, evenly over `ramp`. Each attaches the segment, marks `attached`, touches
/// its share of the pages in their order, marks `touched`, stays for `hold`, marks `left` and exits.
/// Touching a chunk is one request. Nobody fills the segment before: its memory is zeroed when the first
/// process touches it, and the processes that come later find it in memory and only map it.
///
/// Base pages cost every process an entry of 8 bytes for each page that it has touched, about 2 MiB of page
/// tables for each GiB; a huge page costs an entry for 2 MiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sessions {
    /// How many there are.
    pub processes: u32,
    /// Size of the segment.
    pub segment: Size,
    /// What memory the segment is of.
    #[serde(default)]
    pub backing: Sharing,
    /// Size of each of the files that are mapped with `backing = "tmpfs"`; 16 MiB if left out. Oracle
    /// calls it a granule. The model has one file. Not with the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granule: Option<Size>,
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
    /// From the start of the first process to one step after the start of the last; 0: all at once.
    #[serde(default)]
    pub ramp: Time,
    /// How long each stays after it has touched its share; to the end of the run if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Time>,
    /// Touches per second of each process while it stays, of pages drawn from those that it has touched; none
    /// if left out. They are no requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
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
    /// Files on tmpfs, one for each granule, as Automatic Memory Management maps them.
    Tmpfs,
}

fn all() -> f64 {
    1.0
}

fn page() -> Size {
    Size::kib(4)
}

/// The segment is each process's only region.
const SEGMENT: RegionId = RegionId(0);

/// Stages of each process.
pub(super) const MARKS: [&str; 3] = ["attached", "touched", "left"];

impl Kind for Sessions {
    const ROLES: &'static [&'static str] = &["session"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        let processes = within("processes", self.processes, 1, THREADS)?;
        let length = pages("segment", self.segment)?;
        let backing = match (self.backing, self.granule) {
            (Sharing::Tmpfs, granule) => {
                SegmentBacking::Tmpfs { granule_pages: pages("granule", granule.unwrap_or(Size::mib(16)))? }
            }
            (_, Some(_)) => {
                return Err(Refusal::new("granule", "has a meaning with backing = \"tmpfs\" only"));
            }
            (Sharing::Shm, None) => SegmentBacking::Shm,
            (Sharing::ShmHuge, None) => SegmentBacking::ShmHuge,
        };
        let stride = pages("stride", self.stride)?;
        let reach = (f64::from(length) * share("touch", self.touch)?).ceil() as u32;
        let touches = reach.div_ceil(stride);
        let chunk = (pages("chunk", self.chunk)? / stride).max(1);
        let write = Chance::of(share("write", self.write)?);
        if self.ramp > site.life {
            return Err(Refusal::new(
                "ramp",
                format!("is {}, but the actor has {} from its start to its end", self.ramp, site.life),
            ));
        }
        if self.rate.is_some() && touches == 0 {
            return Err(Refusal::new("rate", "has no meaning with touch = 0"));
        }
        let segment = SegmentId(site.segments.len() as u32);
        site.segments.push(SegmentSpec { name: format!("{}/segment", site.actor), pages: length, backing });
        (0..processes)
            .map(|number| {
                let pacer = self.rate.map(|rate| Pacer::per_second("rate", rate, 0, 1)).transpose()?;
                let session = Session {
                    segment,
                    state: State::Attach,
                    next: 0,
                    touches,
                    stride,
                    chunk,
                    write,
                    rng: Rng::new(site.seed, site.actor, number.into()),
                    hold: Hold::new(self.hold),
                    pacer,
                };
                let delay = u128::from(self.ramp.ns()) * u128::from(number) / u128::from(processes);
                Ok(Instance { delay: delay as u64, threads: vec![thread("session", &MARKS, session)] })
            })
            .collect()
    }

    fn thread_count(&self) -> u64 {
        self.processes.into()
    }

    fn demand(&self) -> Bytes {
        let entries = Bytes(self.segment.bytes() / 512 * u64::from(self.processes));
        self.segment.0 + if self.backing == Sharing::ShmHuge { Bytes::ZERO } else { entries }
    }
}

enum State {
    Attach,
    Touch,
    Hold,
    Left,
}

struct Session {
    segment: SegmentId,
    state: State,
    /// Touches that are done, and all of them.
    next: u32,
    touches: u32,
    /// Pages from one to the next.
    stride: u32,
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
        Op::Touch { region: SEGMENT, page: number * self.stride, write }
    }

    fn request(&mut self, out: &mut Vec<Op>) {
        let stop = self.touches.min(self.next.saturating_add(self.chunk));
        out.push(Op::Begin);
        for number in self.next..stop {
            let touch = self.touch(number);
            out.push(touch);
        }
        out.push(Op::Done);
        self.next = stop;
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
            let number = self.rng.below(self.touches);
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
                State::Attach => {
                    out.extend([Op::Attach { region: SEGMENT, segment: self.segment }, Op::Mark { mark: 0 }]);
                    self.state = State::Touch;
                }
                State::Touch if self.next < self.touches => self.request(out),
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
