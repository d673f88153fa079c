//! `page-toucher`: memory that is touched page by page.

use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BATCH, Hold, Instance, Kind, PAGE, Refusal, Site, THREADS, mebibyte, pages, thread, within};
use crate::op::{Advice, Op, RegionId};
use crate::program::{Stream, Thread};
use crate::quantity::{Size, Time};

/// A process that maps anonymous memory and stores to every page of it once: what a page costs when it is
/// first touched.
///
/// It maps the memory (with `alloc`, by asking the C library for one page after the other), locks it if told
/// so, and marks `mapped`. Then each thread touches its part, and when all are done the process marks
/// `touched`. Touching a chunk is one request. A page that is not there is a minor fault; of memory that is
/// locked all pages are there before the first is touched, and the time up to `mapped` is what that took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PageToucher {
    /// Anonymous memory of the process.
    pub size: Size,
    /// Where the memory comes from. `"posix-memalign"` and `"malloc"` touch pages as glibc's heap does, and
    /// map more than `size`.
    #[serde(default)]
    pub alloc: Alloc,
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

/// Where memory comes from. What the C library does was traced on glibc 2.36 (`malloc/malloc.c`), with the
/// kernel's count of page faults before and after. Neither the model nor the lab calls it: both make the
/// touches that it would make, in one mapping instead of a heap that grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Alloc {
    /// One mapping of the size.
    #[default]
    Mmap,
    /// `posix_memalign(4096, 4096)` for each page. The header lies at the end of the page before, so that
    /// each request takes two pages: the header's is touched when the memory is allocated, the other when it
    /// is used.
    PosixMemalign,
    /// `malloc(4096)` for each page, 4,112 bytes with the header. The header of the next request lies in the
    /// page that follows, so that nearly all pages are touched while the memory is allocated.
    Malloc,
}

impl Alloc {
    /// Bytes of the header of a chunk of glibc's heap.
    const HEADER: u64 = 16;

    /// The page of the mapping that has the beginning of a request's memory.
    fn page(self, request: u32) -> u32 {
        match self {
            Alloc::Mmap => request,
            Alloc::PosixMemalign => 2 * request + 1,
            Alloc::Malloc => ((Self::chunks(request) + Self::HEADER) / PAGE) as u32,
        }
    }

    /// Bytes of the heap that `malloc` uses for the requests, headers included.
    fn chunks(requests: u32) -> u64 {
        u64::from(requests) * (PAGE + Self::HEADER)
    }

    /// The page of the mapping with a header, of which the heap has one and each request writes the next.
    fn header(self, number: u32) -> Option<u64> {
        match self {
            Alloc::Mmap => None,
            Alloc::PosixMemalign => Some(2 * u64::from(number)),
            Alloc::Malloc => Some(Self::chunks(number) / PAGE),
        }
    }

    /// Pages of the mapping that the requests need; `None` from 16 TiB on.
    fn pages(self, requests: u32) -> Option<u32> {
        self.header(requests).map_or(Some(requests), |last| u32::try_from(last + 1).ok())
    }
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
        let pages = u32::try_from(self.size.pages()).ok().and_then(|pages| self.alloc.pages(pages));
        pages.map_or(self.size.0, |pages| Bytes(u64::from(pages) * PAGE))
    }
}

impl PageToucher {
    fn threads(&self, _: &mut Site<'_>) -> Result<Vec<Thread>, Refusal> {
        let size = pages("size", self.size)?;
        let mapped = self.alloc.pages(size);
        let mapped = mapped.ok_or_else(|| {
            Refusal::new("size", format!("is {}; with its headers it must be below 16 TiB", self.size))
        })?;
        let chunk = pages("chunk", self.chunk)?;
        let threads = within("threads", self.threads, 1, THREADS.min(size))?;
        let start = self.start(mapped);
        let part = |i: u32| (u64::from(size) * u64::from(i) / u64::from(threads)) as u32;
        let toucher = |index| {
            let toucher = Toucher {
                threads,
                alloc: self.alloc,
                requests: size,
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

    /// What the first thread does before it allocates.
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
        ops
    }
}

enum State {
    Start,
    /// The next request to the C library.
    Allocate(u32),
    /// The next page to touch.
    Touch(u32),
    Touched,
    Hold,
    Done,
}

struct Toucher {
    threads: u32,
    alloc: Alloc,
    /// Pages that are asked for.
    requests: u32,
    start: Vec<Op>,
    /// The thread's part of them.
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
        let touch = |request| Op::Touch { region: MEMORY, page: self.alloc.page(request), write: true };
        out.extend((next..stop).map(touch));
        out.push(Op::Done);
        self.state = if stop < self.end { State::Touch(stop) } else { State::Touched };
    }

    /// Writes the headers of some requests to the C library; after the last, says that the memory is there.
    fn allocate(&mut self, next: u32, out: &mut Vec<Op>) {
        let stop = self.requests.saturating_add(1).min(next.saturating_add(BATCH as u32));
        let headers: Option<Vec<u64>> = (next..stop).map(|number| self.alloc.header(number)).collect();
        let touch = |page: u64| Op::Touch { region: MEMORY, page: page as u32, write: true };
        out.extend(headers.iter().flatten().map(|page| touch(*page)));
        self.state = State::Allocate(stop);
        if headers.is_none() || stop > self.requests {
            out.extend([Op::Mark { mark: 0 }, Op::Signal { stage: MAPPED }]);
            self.state = State::Touch(self.first);
        }
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
                    self.state = if self.leads {
                        out.append(&mut self.start);
                        State::Allocate(0)
                    } else {
                        out.push(Op::Await { stage: MAPPED, times: 1 });
                        State::Touch(self.first)
                    };
                }
                State::Allocate(next) => self.allocate(next, out),
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
