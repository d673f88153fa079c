//! `page-toucher`: memory that is touched page by page.

use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BATCH, Hold, Instance, Kind, Refusal, Site, THREADS, mebibyte, pages, thread, within};
use crate::op::{Advice, Op, RegionId};
use crate::program::{Stream, Thread};
use crate::quantity::{Size, Time};

/// A process that maps anonymous memory and stores to every page of it once: what a page costs when it is
/// first touched.
///
/// It maps the memory, locks it if told so, and marks `mapped`. Then each thread touches its part, and when
/// all are done the process marks `touched`. Touching a chunk is one request. A page that is not there is a
/// minor fault; of memory that is locked all pages are there before the first is touched, and the time up
/// to `mapped` is what that took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PageToucher {
    /// Anonymous memory of the process.
    pub size: Size,
    /// Whether the memory is locked.
    #[serde(default)]
    pub locked: Locked,
    /// Whether transparent huge pages are used. A fault on one maps 512 pages at once, so that `"never"` is
    /// what it takes to have a fault for every page.
    #[serde(default)]
    pub huge_pages: HugePages,
    /// Threads, each of which touches a part.
    #[serde(default = "one")]
    pub threads: u32,
    /// Bytes that a request touches.
    #[serde(default = "mebibyte")]
    pub chunk: Size,
    /// How often every page is touched; `touched` is marked each time. 0: until the run ends.
    #[serde(default = "one")]
    pub repeat: u32,
    /// How long it keeps the memory after that; to the end of the run if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Time>,
}

/// Whether memory is locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Locked {
    /// It is not: pages come when they are touched.
    #[default]
    No,
    /// By `mlockall(MCL_CURRENT | MCL_FUTURE)` before the memory is mapped. Its pages come with the mapping,
    /// before `huge-pages` can be said of them.
    Before,
    /// By `mlock` of the memory after it was mapped and before it is touched.
    Region,
}

/// Whether transparent huge pages are used (`madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// As the machine's `kernel.mm.transparent_hugepage.enabled` says.
    Default,
    /// `MADV_NOHUGEPAGE`.
    #[default]
    Never,
    /// `MADV_HUGEPAGE`: where the machine's setting is `"always"` or `"madvise"`.
    Always,
}

fn one() -> u32 {
    1
}

/// The process's only region.
const MEMORY: RegionId = RegionId(0);

/// Stages of the process: the memory is mapped; a thread has touched its part once more.
const MAPPED: u32 = 0;
const TOUCHED: u32 = 1;

impl Kind for PageToucher {
    const ROLES: &'static [&'static str] = &["toucher"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        self.threads(site).map(Instance::only)
    }

    fn thread_count(&self) -> u64 {
        self.threads.into()
    }

    fn demand(&self) -> Bytes {
        self.size.0
    }
}

impl PageToucher {
    fn threads(&self, _: &mut Site<'_>) -> Result<Vec<Thread>, Refusal> {
        let size = pages("size", self.size)?;
        let chunk = pages("chunk", self.chunk)?;
        let threads = within("threads", self.threads, 1, THREADS.min(size))?;
        let start = self.start(size);
        let part = |i: u32| (u64::from(size) * u64::from(i) / u64::from(threads)) as u32;
        let toucher = |index| {
            let toucher = Toucher {
                threads,
                start: if index == 0 { start.clone() } else { Vec::new() },
                first: part(index),
                end: part(index + 1),
                chunk,
                leads: index == 0,
                state: State::Start,
                passes: if self.repeat == 0 { u64::MAX } else { self.repeat.into() },
                pass: 0,
                hold: Hold::new(self.hold),
            };
            thread("toucher", if index == 0 { &["mapped", "touched"] } else { &[] }, toucher)
        };
        Ok((0..threads).map(toucher).collect())
    }

    /// What the first thread does before any page is touched.
    fn start(&self, pages: u32) -> Vec<Op> {
        let region = MEMORY;
        let advice = match self.huge_pages {
            HugePages::Default => None,
            HugePages::Never => Some(Advice::NoHugePage),
            HugePages::Always => Some(Advice::HugePage),
        };
        let mut ops = Vec::new();
        if self.locked == Locked::Before {
            ops.push(Op::LockAll);
        }
        ops.push(Op::MapAnon { region, pages });
        ops.extend(advice.map(|advice| Op::AdviseRegion { region, advice }));
        if self.locked == Locked::Region {
            ops.push(Op::Lock { region });
        }
        ops.extend([Op::Mark { mark: 0 }, Op::Signal { stage: MAPPED }]);
        ops
    }
}

enum State {
    Start,
    /// The next page to touch.
    Touch(u32),
    Touched,
    Hold,
    Done,
}

struct Toucher {
    threads: u32,
    start: Vec<Op>,
    /// The thread's part of the memory.
    first: u32,
    end: u32,
    /// Pages of a request.
    chunk: u32,
    /// Whether it maps the memory and marks the stages.
    leads: bool,
    state: State,
    passes: u64,
    pass: u64,
    hold: Hold,
}

impl Toucher {
    fn request(&mut self, next: u32, out: &mut Vec<Op>) {
        let stop = self.end.min(next.saturating_add(self.chunk));
        out.push(Op::Begin);
        out.extend((next..stop).map(|page| Op::Touch { region: MEMORY, page, write: true }));
        out.push(Op::Done);
        self.state = if stop < self.end { State::Touch(stop) } else { State::Touched };
    }

    /// All wait for the last one, so that none is a pass ahead.
    fn pass(&mut self, out: &mut Vec<Op>) {
        self.pass += 1;
        let times = u32::try_from(self.pass.saturating_mul(self.threads.into())).unwrap_or(u32::MAX);
        if self.threads > 1 {
            out.extend([Op::Signal { stage: TOUCHED }, Op::Await { stage: TOUCHED, times }]);
        }
        if self.leads {
            out.push(Op::Mark { mark: 1 });
        }
        self.state = if self.pass < self.passes { State::Touch(self.first) } else { State::Hold };
    }
}

impl Stream for Toucher {
    fn fill(&mut self, out: &mut Vec<Op>) {
        let enough = out.len() + BATCH;
        while out.len() < enough {
            match self.state {
                State::Start => {
                    if self.leads {
                        out.append(&mut self.start);
                    } else {
                        out.push(Op::Await { stage: MAPPED, times: 1 });
                    }
                    self.state = State::Touch(self.first);
                }
                State::Touch(next) => self.request(next, out),
                State::Touched => self.pass(out),
                State::Hold => {
                    out.extend(self.hold.rest());
                    self.state = State::Done;
                }
                State::Done => return,
            }
        }
    }
}
