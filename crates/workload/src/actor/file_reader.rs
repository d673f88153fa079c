//! `file-reader`: a job that reads a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Access, Hint, Side, behind, chunk};
use super::file_writer::existing;
use super::pace::Pacer;
use super::rng::Rng;
use super::{BATCH, Instance, Kind, PAGE, Refusal, Site, mebibyte, pages, thread};
use crate::op::Op;
use crate::program::{Stream, Thread};
use crate::quantity::{Bandwidth, Size, Time};

/// A job that reads a file, in order or at random. A chunk is one request; the end of each pass is marked
/// `read`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileReader {
    /// The name of the file of the scenario that is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Read a file of this size that nobody else knows of. Instead of `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Bytes of one `read`, and of one request.
    #[serde(default = "mebibyte")]
    pub chunk: Size,
    /// From the beginning to the end, or chunks at random.
    #[serde(default)]
    pub order: Order,
    /// How the file is read.
    #[serde(default)]
    pub how: Access,
    /// Bytes after which `how = "dontneed"` gives up what lies behind; with `order = "random"` each chunk is
    /// given up at once.
    #[serde(default = "eight_mebibytes")]
    pub behind: Size,
    /// What the job tells the kernel about its order.
    #[serde(default)]
    pub advice: Hint,
    /// Bytes read per second, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bandwidth>,
    /// Pause after each chunk.
    #[serde(default)]
    pub think: Time,
    /// Passes: how often as much as the file holds is read. 0: until the run ends.
    #[serde(default = "one")]
    pub repeat: u32,
}

/// The order in which a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// From the beginning to the end.
    #[default]
    Sequential,
    /// Each time a chunk drawn from all of them.
    Random,
}

fn eight_mebibytes() -> Size {
    Size::mib(8)
}

fn one() -> u32 {
    1
}

impl Kind for FileReader {
    const ROLES: &'static [&'static str] = &["reader"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        self.threads(site).map(Instance::only)
    }

    fn on_disk(&self) -> Vec<(&'static str, Size)> {
        self.size.map(|size| ("size", size)).into_iter().collect()
    }

    fn has_rate(&self, _role: &str) -> bool {
        self.rate.is_some()
    }

    fn is_direct(&self) -> bool {
        self.how == Access::Direct
    }
}

impl FileReader {
    fn threads(&self, site: &mut Site<'_>) -> Result<Vec<Thread>, Refusal> {
        if self.how == Access::CopyFileRange {
            let what = "is \"copy-file-range\", which copies a file: only a file-writer has a second one";
            return Err(Refusal::new("how", what));
        }
        let chunk = chunk(self.how, self.chunk)?;
        let behind = behind(self.how, self.behind)?;
        let pacer =
            self.rate.map(|rate| Pacer::bandwidth("rate", u64::from(chunk), rate.bytes())).transpose()?;
        let (file, pages) = match (&self.file, self.size) {
            (Some(name), None) => existing(site, "file", name)?,
            (None, Some(size)) => {
                let pages = pages("size", size)?;
                (site.files.declare(format!("{}/read", site.actor), pages, true)?, pages)
            }
            (Some(_), Some(_)) => {
                return Err(Refusal::new("size", "has no meaning with `file`; give one of them"));
            }
            (None, None) => {
                return Err(Refusal::new(
                    "file",
                    "is missing: name a file of the scenario, or give `size` for a file of the actor's own",
                ));
            }
        };
        let size = u64::from(pages) * PAGE;
        let chunks = size.div_ceil(u64::from(chunk));
        Ok(vec![thread(
            "reader",
            &["read"],
            Reader {
                rng: (self.order == Order::Random).then(|| Rng::new(site.seed, site.actor, 0)),
                side: Side::new(file, 0, pages, self.how, behind, false),
                size,
                chunk,
                chunks,
                hint: self.advice,
                think: self.think.ns(),
                pacer,
                passes: if self.repeat == 0 { u64::MAX } else { u64::from(self.repeat) },
                pass: 0,
                next: 0,
            },
        )])
    }
}

struct Reader {
    /// With a random order.
    rng: Option<Rng>,
    side: Side,
    size: u64,
    chunk: u32,
    chunks: u64,
    hint: Hint,
    think: u64,
    pacer: Option<Pacer>,
    passes: u64,
    pass: u64,
    /// Chunks read in this pass.
    next: u64,
}

impl Reader {
    fn step(&mut self, out: &mut Vec<Op>) {
        let chunk = match &mut self.rng {
            Some(rng) => rng.split(self.chunks).0,
            None => self.next,
        };
        let from = chunk * u64::from(self.chunk);
        let to = self.size.min(from + u64::from(self.chunk));
        self.next += 1;
        out.extend(self.pacer.as_mut().map(Pacer::next));
        out.push(Op::Begin);
        self.side.transfer(from, to, self.chunk, out);
        if self.rng.is_some() {
            self.side.drop_range(from, to, out);
        } else {
            self.side.drop_behind(to, to == self.size, out);
        }
        out.push(Op::Done);
        if self.think > 0 {
            out.push(Op::Sleep { ns: self.think });
        }
    }
}

impl Stream for Reader {
    fn fill(&mut self, out: &mut Vec<Op>) {
        let enough = out.len() + BATCH;
        while self.pass < self.passes && out.len() < enough {
            if self.next == 0 {
                self.side.open(self.hint, out);
            }
            self.step(out);
            if self.next == self.chunks {
                self.side.close(out);
                out.push(Op::Mark { mark: 0 });
                self.next = 0;
                self.pass += 1;
            }
        }
    }
}
