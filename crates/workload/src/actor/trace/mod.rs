//! `trace`: recorded accesses, replayed.

mod oracle;
mod read;
mod table;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use foldhash::fast::FixedState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rng::{Chance, Rng};
use super::{BATCH, Instance, Kind, PAGE, Refusal, Site, share, thread, within};
use crate::op::{Op, RegionId};
use crate::program::{Stream, Thread};
use crate::quantity::Time;

pub use oracle::OracleRecord;
use read::{Reader, Settings};

/// Replays recorded accesses, one after the other: to pages, or to objects that lie side by side in the order
/// of their first appearance. The file is read twice, once for the objects and once to replay it; memory is
/// needed for the objects, not for the records. A file that zstd compressed is read as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Trace {
    /// The file, from the scenario's directory.
    pub path: PathBuf,
    /// What it holds.
    pub format: Format,
    /// With `format = "csv"`: what each column holds, from the first on; columns beyond are not read. One of
    /// them must be `"page"` or `"object"`.
    #[serde(default = "page_column")]
    pub columns: Vec<Column>,
    /// With `format = "csv"`: the first line names the columns and is not read.
    #[serde(default)]
    pub header: bool,
    /// With `format = "csv"`: what stands between columns, one ASCII character.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// What the pages are.
    #[serde(default, rename = "as")]
    pub backing: Backing,
    /// An object takes as many pages as the largest size that is recorded of it, and an access touches as
    /// many as the size that is recorded with it. Else every object is a page.
    #[serde(default = "yes")]
    pub sizes: bool,
    /// The share of accesses that store, when the trace does not say which do. Default: 0 with `as = "file"`;
    /// 1 with `as = "anon"`, where a page that was never stored to has no memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<f64>,
    /// Keep the trace's times, counted from its first record; a request that comes late because the one
    /// before took long counts from when it was due. Else one access follows the other.
    #[serde(default)]
    pub timed: bool,
    /// How long one unit of the recorded times is. oracleGeneral records seconds.
    #[serde(default = "second")]
    pub time_unit: Time,
    /// Accesses that make one request. 0: no requests are counted, which makes the shortest stream. 1 with
    /// `timed`.
    #[serde(default = "one")]
    pub per_request: u32,
    /// Read so many records at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Lines of columns; lines that begin with `#` are not read.
    Csv,
    /// libCacheSim's binary `oracleGeneral`: 24 bytes a record, little-endian: time (u32), object (u64), size
    /// (u32), next access (i64, not used).
    OracleGeneral,
}

/// What a column of a CSV trace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// The number of a page. Neighbours are neighbours: the memory is as large as the largest number.
    Page,
    /// The number of an object.
    Object,
    /// Bytes of the access.
    Size,
    /// When: a whole number, in `time-unit`.
    Time,
    /// `r`, `read`, `get` or `w`, `write`, `set`, in any case.
    Op,
    /// Nothing that matters.
    Skip,
}

/// What the pages of a trace are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// A shared mapping of one file, which is on disk when the run begins.
    #[default]
    File,
    /// Anonymous memory.
    Anon,
}

fn page_column() -> Vec<Column> {
    vec![Column::Page]
}

fn comma() -> char {
    ','
}

fn yes() -> bool {
    true
}

fn second() -> Time {
    Time::s(1)
}

fn one() -> u32 {
    1
}

/// The trace's memory is the process's only region.
const MEMORY: RegionId = RegionId(0);

/// Pages that one access may touch: 4 GiB, the largest size that oracleGeneral records. What one access asks
/// for is made at a time.
const ACCESS_MOST: u32 = 1 << 20;

/// Records that are read: half an hour of reading. The longest public traces have some 10⁹; a file that zstd
/// compressed may have any number.
const MOST_RECORDS: u64 = 1 << 32;
/// Objects: 256 GiB of single pages, which take some 2 GiB while the trace is read.
const MOST_OBJECTS: usize = 1 << 26;

/// One access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// In the trace's unit.
    time: u64,
    place: u64,
    /// Bytes.
    size: u64,
    /// Whether it stores, when the trace says so.
    write: Option<bool>,
}

impl Access {
    /// Pages that it touches.
    fn pages(&self, sizes: bool) -> u64 {
        if sizes { self.size.div_ceil(PAGE).max(1) } else { 1 }
    }
}

/// Where the objects lie.
#[derive(Debug)]
struct Layout {
    objects: Objects,
    pages: u32,
    /// Records that were read.
    records: u64,
}

/// The first page of every object.
#[derive(Debug)]
enum Objects {
    /// The trace records pages.
    Pages,
    /// Where an object lies is at the index that its number is: where numbers are small, this is the faster
    /// way, and no larger than a hash table.
    Dense(Vec<u32>),
    Sparse(HashMap<u64, u32, FixedState>),
}

impl Objects {
    fn new(first: HashMap<u64, u32, FixedState>) -> Objects {
        let most = first.keys().copied().max().unwrap_or_default();
        match usize::try_from(most) {
            Ok(most) if most / 4 < first.len() => {
                let mut dense = vec![u32::MAX; most + 1];
                for (object, page) in first {
                    dense[object as usize] = page;
                }
                Objects::Dense(dense)
            }
            _ => Objects::Sparse(first),
        }
    }

    /// The first page of an object; none, or a page that no memory has, for an unknown one.
    #[inline]
    fn first(&self, object: u64) -> Option<u32> {
        match self {
            Objects::Pages => u32::try_from(object).ok(),
            Objects::Dense(first) => first.get(usize::try_from(object).ok()?).copied(),
            Objects::Sparse(first) => first.get(&object).copied(),
        }
    }
}

impl Kind for Trace {
    const ROLES: &'static [&'static str] = &["replay"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        self.threads(site).map(Instance::only)
    }
}

impl Trace {
    fn threads(&self, site: &mut Site<'_>) -> Result<Vec<Thread>, Refusal> {
        let per_request = within("per-request", self.per_request, 0, 1 << 20)?;
        if self.timed && per_request != 1 {
            return Err(Refusal::new("per-request", format!("is {per_request}; with `timed` it must be 1")));
        }
        let write = match (self.write, self.backing) {
            (Some(write), _) => share("write", write)?,
            (None, Backing::File) => 0.0,
            (None, Backing::Anon) => 1.0,
        };
        let settings = self.settings()?;
        let path = site.directory.join(&self.path);
        let layout = self.lay_out(&path, &settings)?;
        let start = match self.backing {
            Backing::Anon => Op::MapAnon { region: MEMORY, pages: layout.pages },
            Backing::File => {
                let file = site.files.declare(format!("{}/trace", site.actor), layout.pages, true)?;
                Op::MapFile { region: MEMORY, file, pages: layout.pages, shared: true }
            }
        };
        let replay = Replay {
            start: Some(start),
            reader: Reader::open(&path, &settings).map_err(|why| Refusal::new("path", why))?,
            left: layout.records,
            layout,
            sizes: self.sizes,
            rng: Rng::new(site.seed, site.actor, 0),
            write: Chance::of(write),
            timed: self.timed,
            unit: self.time_unit.ns(),
            before: None,
            per_request,
            in_request: 0,
        };
        Ok(vec![thread("replay", &[], replay)])
    }

    fn settings(&self) -> Result<Settings, Refusal> {
        let refuse = |why: &str| Err(Refusal::new("columns", why));
        let count = |column| self.columns.iter().filter(|c| **c == column).count();
        if self.format == Format::OracleGeneral {
            return Ok(Settings { csv: None });
        }
        if count(Column::Page) + count(Column::Object) != 1 {
            return refuse("must have \"page\" or \"object\", and one of them only");
        }
        if [Column::Size, Column::Time, Column::Op].into_iter().any(|column| count(column) > 1) {
            return refuse("has a column twice");
        }
        if self.timed && count(Column::Time) == 0 {
            return refuse("must have \"time\" with `timed`");
        }
        let Ok(delimiter @ 1..=127) = u8::try_from(u32::from(self.delimiter)) else {
            return Err(Refusal::new(
                "delimiter",
                format!("is {:?}; it must be an ASCII character", self.delimiter),
            ));
        };
        Ok(Settings { csv: Some(table::Shape::new(&self.columns, self.header, delimiter)) })
    }

    /// The first pass.
    fn lay_out(&self, path: &Path, settings: &Settings) -> Result<Layout, Refusal> {
        let refuse = |why: String| Refusal::new("path", why);
        let by_page = self.format == Format::Csv && self.columns.contains(&Column::Page);
        let mut reader = Reader::open(path, settings).map_err(refuse)?;
        let most = self.records.unwrap_or(u64::MAX);
        let mut objects: HashMap<u64, u32, FixedState> = HashMap::default();
        // Pages of each object, in the order of appearance; with pages alone, unused.
        let mut sizes: Vec<u32> = Vec::new();
        let mut end = 0_u64;
        let mut records = 0;
        let mut before = 0;
        while records < most {
            let Some(access) = reader.next().map_err(refuse)? else { break };
            records += 1;
            let wrong = |what: String| refuse(format!("{}: {what}", reader.place()));
            if self.timed && access.time < before {
                return Err(wrong(format!("the time {} comes after {before}", access.time)));
            }
            before = access.time;
            let pages = match u32::try_from(access.pages(self.sizes)) {
                Ok(pages) if pages <= ACCESS_MOST => pages,
                _ => return Err(wrong(format!("a size of {} bytes; it may be at most 4 GiB", access.size))),
            };
            if by_page {
                end = end.max(access.place.saturating_add(u64::from(pages)));
            } else {
                let index = *objects.entry(access.place).or_insert_with(|| {
                    sizes.push(0);
                    (sizes.len() - 1) as u32
                });
                let size = &mut sizes[index as usize];
                end += u64::from(pages.saturating_sub(*size));
                *size = pages.max(*size);
            }
            if records > MOST_RECORDS || objects.len() > MOST_OBJECTS {
                let most = format!("more than {MOST_RECORDS} records or {MOST_OBJECTS} objects");
                return Err(wrong(format!("{most}; `records` reads fewer")));
            }
            if end > u64::from(u32::MAX) {
                return Err(wrong("the trace needs 16 TiB or more".to_owned()));
            }
        }
        if records == 0 {
            return Err(refuse(format!("{}: it holds no record", path.display())));
        }
        // From the object's number to its first page.
        let mut next = 0;
        for size in &mut sizes {
            let first = next;
            next += *size;
            *size = first;
        }
        for index in objects.values_mut() {
            *index = sizes[*index as usize];
        }
        let objects = if by_page { Objects::Pages } else { Objects::new(objects) };
        Ok(Layout { objects, pages: end as u32, records })
    }
}

/// The second pass.
struct Replay {
    start: Option<Op>,
    reader: Reader,
    left: u64,
    layout: Layout,
    sizes: bool,
    rng: Rng,
    write: Chance,
    timed: bool,
    unit: u64,
    /// The time of the record before.
    before: Option<u64>,
    per_request: u32,
    in_request: u32,
}

impl Replay {
    /// The first page of an access and the page after its last, if the file still says what it said at first.
    fn pages(&self, access: &Access) -> Option<(u32, u32)> {
        let first = self.layout.objects.first(access.place)?;
        let end = u64::from(first) + access.pages(self.sizes);
        (end <= u64::from(self.layout.pages)).then_some((first, end as u32))
    }

    fn access(&mut self, access: &Access, (first, end): (u32, u32), out: &mut Vec<Op>) {
        if self.timed {
            let since = access.time.saturating_sub(self.before.unwrap_or(access.time));
            self.before = Some(access.time);
            out.extend([Op::Pace { ns: since.saturating_mul(self.unit) }, Op::Arrive]);
        } else if self.per_request > 0 && self.in_request == 0 {
            out.push(Op::Begin);
        }
        let write = access.write.unwrap_or_else(|| self.rng.chance(self.write));
        out.extend((first..end).map(|page| Op::Touch { region: MEMORY, page, write }));
        if self.per_request > 0 {
            self.in_request += 1;
            if self.in_request == self.per_request {
                self.end(out);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<Op>) {
        if self.in_request > 0 {
            out.push(Op::Done);
        }
        self.in_request = 0;
    }
}

impl Stream for Replay {
    fn fill(&mut self, out: &mut Vec<Op>) {
        out.extend(self.start.take());
        let enough = out.len() + BATCH;
        while self.left > 0 && out.len() < enough {
            // The first pass has read all of it: what fails now is a file that somebody changes, and the
            // thread ends there.
            let access = self.reader.next().ok().flatten();
            match access.and_then(|access| Some((access, self.pages(&access)?))) {
                Some((access, pages)) => {
                    self.left -= 1;
                    self.access(&access, pages, out);
                }
                None => self.left = 0,
            }
        }
        if self.left == 0 {
            self.end(out);
        }
    }
}

#[cfg(test)]
mod tests;
