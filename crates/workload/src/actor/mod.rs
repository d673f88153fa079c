//! [`Actor`]: what loads a machine, by kind; parameters become threads with seeded streams of operations.
//!
//! A stream depends on the scenario's seed, the actor's name and the thread's number, and on nothing else:
//! neither on time nor on what other threads do. What must happen in an order across threads (memory is
//! mapped before it is touched) is ordered by [`Op::Signal`] and [`Op::Await`].

mod allocator;
mod app_server;
mod exec;
mod file;
mod file_reader;
mod file_writer;
mod hold;
mod locality;
mod pace;
mod page_toucher;
mod pool;
mod repeat;
mod rng;
mod segment_store;
mod sessions;
mod trace;
mod zipf;

use std::path::Path;

use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::hold::Hold;
use crate::memory::Limit;
use crate::op::{FileId, Op};
use crate::program::{CommandSpec, FileSpec, SegmentSpec, Stream, Thread};
use crate::quantity::{Size, Time};

pub use allocator::{Allocator, Touching};
pub use app_server::{AppServer, Collector, Data, Held, Phase, Until};
pub use exec::Exec;
pub use file::{Access, Hint};
pub use file_reader::{FileReader, Order};
pub use file_writer::FileWriter;
pub use locality::{HotCold, Locality};
pub use page_toucher::{Alloc, HugePages, Locked, PageToucher};
pub use pool::Pool;
pub use rng::Rng;
pub use segment_store::{Fill, SegmentStore};
pub use sessions::{Private, Sessions, Sharing};
pub use trace::{Backing, Column, Format, OracleRecord, Trace};

/// Bytes of a base page.
const PAGE: u64 = 4096;

/// About so many operations a stream makes at a time.
const BATCH: usize = 512;

/// A kind of actor: a file that implements this, and a line in [`kinds!`](crate::kinds).
pub trait Kind {
    /// The roles that its threads have.
    const ROLES: &'static [&'static str];
    /// Whether it executes programs of a host, which neither the model nor a virtual machine has.
    const EXECUTES: bool = false;

    /// Whether it sets the pool of huge pages of its machine.
    const SETS_POOL: bool = false;

    /// The actor's processes. Files and segments of its own are declared in `site`.
    ///
    /// # Errors
    ///
    /// A parameter, or two together, that cannot be, or a trace that cannot be read.
    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal>;

    /// How many threads it has, all processes together.
    fn thread_count(&self) -> u64 {
        1
    }

    /// Memory that it occupies at most and that nothing but swap can take from it: heaps, shared segments,
    /// page tables of many processes. Page cache does not count, nor what a trace maps.
    fn demand(&self) -> Bytes {
        Bytes::ZERO
    }

    /// What it has on disk at least, by the parameter that says so.
    fn on_disk(&self) -> Vec<(&'static str, Size)> {
        Vec::new()
    }

    /// Whether it reads or writes past the page cache.
    fn is_direct(&self) -> bool {
        false
    }

    /// Whether a role begins its requests at a given rate, so that their latency and not their number tells
    /// what disturbs it.
    fn has_rate(&self, role: &str) -> bool {
        let _ = role;
        false
    }
}

/// Calls a macro with every kind: what it does, its name in a scenario, and its type. This is the one list.
#[macro_export]
macro_rules! kinds {
    ($call:ident) => {
        $call! {
            /// A server whose requests touch a heap.
            "app-server" => AppServer,
            /// A job that writes a file, or copies one.
            "file-writer" => FileWriter,
            /// A job that reads a file.
            "file-reader" => FileReader,
            /// A log-structured store of mapped segments.
            "segment-store" => SegmentStore,
            /// Processes that attach one shared segment.
            "sessions" => Sessions,
            /// A process that touches every page of its memory.
            "page-toucher" => PageToucher,
            /// A process that asks for memory, as much as it is told.
            "allocator" => Allocator,
            /// An administrator who sets the size of the pool of huge pages.
            "pool" => Pool,
            /// Recorded accesses, replayed.
            "trace" => Trace,
            /// A real command.
            "exec" => Exec,
        }
    };
}

macro_rules! actor {
    ($(#[doc = $about:literal] $name:literal => $kind:ident,)*) => {
        /// What an actor does, by its `kind`, with the parameters of that kind.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind")]
        pub enum Actor {
            $(#[doc = $about] #[serde(rename = $name)] $kind($kind),)*
        }

        impl Actor {
            /// The kinds, as a scenario writes them.
            pub const KINDS: &'static [&'static str] = &[$($name),*];

            /// The kind, as a scenario writes it.
            pub fn kind(&self) -> &'static str {
                match self { $(Actor::$kind(_) => $name),* }
            }

            /// The roles that the threads of a kind have; none of an unknown one.
            pub fn roles(kind: &str) -> &'static [&'static str] {
                match kind { $($name => <$kind as Kind>::ROLES,)* _ => &[] }
            }

            /// [`Kind::EXECUTES`]
            pub fn executes(&self) -> bool {
                match self { $(Actor::$kind(_) => <$kind as Kind>::EXECUTES),* }
            }

            /// [`Kind::SETS_POOL`]
            pub fn sets_pool(&self) -> bool {
                match self { $(Actor::$kind(_) => <$kind as Kind>::SETS_POOL),* }
            }

            /// As [`Kind::build`].
            ///
            /// # Errors
            ///
            /// As there.
            pub fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
                match self { $(Actor::$kind(actor) => Kind::build(actor, site)),* }
            }

            /// [`Kind::thread_count`]
            pub fn thread_count(&self) -> u64 {
                match self { $(Actor::$kind(actor) => actor.thread_count()),* }
            }

            /// [`Kind::demand`]
            pub fn demand(&self) -> Bytes {
                match self { $(Actor::$kind(actor) => actor.demand()),* }
            }

            /// [`Kind::on_disk`]
            pub fn on_disk(&self) -> Vec<(&'static str, Size)> {
                match self { $(Actor::$kind(actor) => actor.on_disk()),* }
            }

            /// [`Kind::is_direct`]
            pub fn is_direct(&self) -> bool {
                match self { $(Actor::$kind(actor) => actor.is_direct()),* }
            }

            /// [`Kind::has_rate`]
            pub fn has_rate(&self, role: &str) -> bool {
                match self { $(Actor::$kind(actor) => Kind::has_rate(actor, role)),* }
            }
        }
    };
}

kinds!(actor);

/// One process of an actor.
#[derive(Debug)]
pub struct Instance {
    /// Nanoseconds after the actor's start at which it starts.
    pub delay: u64,
    /// Its threads.
    pub threads: Vec<Thread>,
}

impl Instance {
    /// The only process of an actor, which starts with it.
    fn only(threads: Vec<Thread>) -> Vec<Self> {
        vec![Instance { delay: 0, threads }]
    }
}

/// Where an actor is built: what it takes from the scenario around it.
#[derive(Debug)]
pub struct Site<'a> {
    /// The actor's name, unique in the scenario: its random numbers and its files' names come from it.
    pub actor: &'a str,
    /// The scenario's seed.
    pub seed: u64,
    /// The directory that relative paths of traces start from: the scenario file's.
    pub directory: &'a Path,
    /// From the actor's start to its end, or to the end of the run.
    pub life: Time,
    /// How much it may lock; `None`: any amount.
    pub memlock: Option<Limit>,
    /// The files of the program so far.
    pub files: &'a mut Files,
    /// The segments of the program so far.
    pub segments: &'a mut Vec<SegmentSpec>,
    /// The commands of the program so far.
    pub commands: &'a mut Vec<CommandSpec>,
}

/// The files of a program: those that the scenario names, then those of the actors.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<FileSpec>);

impl Files {
    /// At most so many files: each costs some hundred bytes, here and on the machine.
    const MOST: usize = 1 << 20;

    /// Begins with the files that the scenario names.
    pub fn new(named: Vec<FileSpec>) -> Files {
        Files(named)
    }

    /// The number and the description of the file of this name.
    pub fn find(&self, name: &str) -> Option<(FileId, &FileSpec)> {
        let index = self.0.iter().position(|file| file.name == name)?;
        Some((FileId(u32::try_from(index).ok()?), self.0.get(index)?))
    }

    /// Adds a file. One that does not exist yet is a number and a name for a stream to create.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn declare(&mut self, name: String, pages: u32, exists: bool) -> Result<FileId, Refusal> {
        if self.0.len() >= Files::MOST {
            return Err(Refusal::new("kind", format!("the program has more than {} files", Files::MOST)));
        }
        let id = FileId(self.0.len() as u32);
        self.0.push(FileSpec { name, pages, exists });
        Ok(id)
    }

    /// All files, in the order of their numbers.
    pub fn into_specs(self) -> Vec<FileSpec> {
        self.0
    }
}

/// Why an actor cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct Refusal {
    /// The parameter at fault, as the scenario spells it.
    pub key: &'static str,
    /// What is wrong with it and what would be accepted.
    pub why: String,
}

impl Refusal {
    fn new(key: &'static str, why: impl Into<String>) -> Refusal {
        Refusal { key, why: why.into() }
    }
}

/// The pages of a size; more than none, fewer than 2³².
fn pages(key: &'static str, size: Size) -> Result<u32, Refusal> {
    match u32::try_from(size.pages()) {
        Ok(0) => Err(Refusal::new(key, "is 0; it must be at least one page of 4 KiB")),
        Ok(pages) => Ok(pages),
        Err(_) => Err(Refusal::new(key, format!("is {size}; it must be below 16 TiB"))),
    }
}

/// A whole number between bounds.
fn within(key: &'static str, value: u32, least: u32, most: u32) -> Result<u32, Refusal> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(Refusal::new(key, format!("is {value}; it may be {least} to {most}")))
    }
}

/// A share, 0 to 1.
fn share(key: &'static str, value: f64) -> Result<f64, Refusal> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(Refusal::new(key, format!("is {value}; it may be 0 to 1")))
    }
}

fn mebibyte() -> Size {
    Size::mib(1)
}

/// Threads that an actor may have of one role.
const THREADS: u32 = 1 << 14;

fn thread(role: &'static str, marks: &[&str], stream: impl Stream + 'static) -> Thread {
    Thread { role, marks: marks.iter().map(|mark| (*mark).to_owned()).collect(), stream: Box::new(stream) }
}

/// A thread with nothing to do.
struct Nothing;

impl Stream for Nothing {
    fn fill(&mut self, _: &mut Vec<Op>) {}
}

#[cfg(test)]
mod tests;
