//! `allocator`: memory that is reserved, and perhaps touched.

use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BATCH, Hold, Instance, Kind, Nothing, Refusal, Site, mebibyte, pages, share, thread};
use crate::op::{Op, RegionId};
use crate::program::{Stream, Thread};
use crate::quantity::{Size, Time};

/// A process that asks for memory, chunk by chunk, as much as it is told, whatever the kernel says.
///
/// Asking for a chunk is one request. One that the kernel refuses is an error, and the process goes on with
/// the next; touching a page of a chunk that was refused is an error as well. `reserved` is marked when it
/// has asked for all, `touched` when it has touched what it is to touch. Nothing happens when memory that
/// was promised is not there until it is touched; then the kernel kills a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Allocator {
    /// Anonymous memory that it asks for in all. With 0 it does nothing: the undisturbed case of a series.
    pub size: Size,
    /// What it asks for at a time: one mapping.
    #[serde(default = "mebibyte")]
    pub chunk: Size,
    /// The share of each chunk, from its beginning on, to whose pages it stores.
    #[serde(default)]
    pub touch: f64,
    /// When it touches.
    #[serde(default)]
    pub touching: Touching,
    /// Pause after each request.
    #[serde(default)]
    pub pause: Time,
    /// How long it keeps the memory when all is done; to the end of the run if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Time>,
}

/// When memory that was reserved is touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Touching {
    /// Each chunk when it has been reserved, before the pause and the next one.
    #[default]
    AsItGoes,
    /// All chunks in their order, after the last one has been reserved.
    AtTheEnd,
}

/// Most chunks: as many mappings as a process may have (`vm.max_map_count`), all but a few.
const CHUNKS: u32 = 65_000;

impl Kind for Allocator {
    const ROLES: &'static [&'static str] = &["allocator"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        self.threads(site).map(Instance::only)
    }

    fn demand(&self) -> Bytes {
        Bytes((self.size.bytes() as f64 * self.touch.clamp(0.0, 1.0)) as u64)
    }
}

impl Allocator {
    fn threads(&self, _: &mut Site<'_>) -> Result<Vec<Thread>, Refusal> {
        if self.size.bytes() == 0 {
            return Ok(vec![thread("allocator", &["reserved", "touched"], Nothing)]);
        }
        let size = pages("size", self.size)?;
        let chunk = pages("chunk", self.chunk)?;
        let chunks = size.div_ceil(chunk);
        if chunks > CHUNKS {
            return Err(Refusal::new(
                "chunk",
                format!("is {}, of which `size` has {chunks}; it may have {CHUNKS}", self.chunk),
            ));
        }
        let stream = Reserver {
            size,
            chunk,
            chunks,
            touch: share("touch", self.touch)?,
            as_it_goes: self.touching == Touching::AsItGoes,
            pause: self.pause.ns(),
            hold: Hold::new(self.hold),
            state: State::Reserve(0),
        };
        Ok(vec![thread("allocator", &["reserved", "touched"], stream)])
    }
}

#[derive(Clone, Copy)]
enum State {
    /// The next chunk to ask for.
    Reserve(u32),
    /// Chunk and page to touch next, at the end or before the pause after the chunk.
    Touch(u32, u32),
    Pause(u32),
    Hold,
    Done,
}

struct Reserver {
    size: u32,
    /// Pages of a chunk, and how many chunks there are; the last may be shorter.
    chunk: u32,
    chunks: u32,
    touch: f64,
    as_it_goes: bool,
    /// Nanoseconds.
    pause: u64,
    hold: Hold,
    state: State,
}

impl Reserver {
    fn pages(&self, chunk: u32) -> u32 {
        self.chunk.min(self.size - self.chunk * chunk)
    }

    fn step(&mut self, out: &mut Vec<Op>) {
        self.state = match self.state {
            State::Reserve(chunk) if chunk < self.chunks => {
                let map = Op::MapAnon { region: RegionId(chunk), pages: self.pages(chunk) };
                out.extend([Op::Begin, map, Op::Done]);
                if self.as_it_goes { State::Touch(chunk, 0) } else { State::Pause(chunk) }
            }
            State::Reserve(_) => {
                out.push(Op::Mark { mark: 0 });
                if self.as_it_goes { self.touched(out) } else { State::Touch(0, 0) }
            }
            State::Touch(chunk, page) => self.touch(chunk, page, out),
            State::Pause(chunk) => {
                if self.pause > 0 {
                    out.push(Op::Sleep { ns: self.pause });
                }
                State::Reserve(chunk + 1)
            }
            State::Hold => {
                out.extend(self.hold.rest());
                State::Done
            }
            State::Done => State::Done,
        };
    }

    /// Some pages of a chunk, from `page` on.
    fn touch(&self, chunk: u32, page: u32, out: &mut Vec<Op>) -> State {
        let end = (f64::from(self.pages(chunk)) * self.touch).ceil() as u32;
        let stop = end.min(page + BATCH as u32);
        out.extend((page..stop).map(|page| Op::Touch { region: RegionId(chunk), page, write: true }));
        if stop < end {
            State::Touch(chunk, stop)
        } else if self.as_it_goes {
            State::Pause(chunk)
        } else if chunk + 1 < self.chunks {
            State::Touch(chunk + 1, 0)
        } else {
            self.touched(out)
        }
    }

    fn touched(&self, out: &mut Vec<Op>) -> State {
        if self.touch > 0.0 {
            out.push(Op::Mark { mark: 1 });
        }
        State::Hold
    }
}

impl Stream for Reserver {
    fn fill(&mut self, out: &mut Vec<Op>) {
        let enough = out.len() + BATCH;
        while out.len() < enough && !matches!(self.state, State::Done) {
            self.step(out);
        }
    }
}
