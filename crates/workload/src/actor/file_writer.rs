//! `file-writer`: a job that writes a file, or copies one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Access, Hint, Side, behind, chunk, whole_pages};
use super::pace::Pacer;
use super::{BATCH, Instance, Kind, Nothing, Refusal, Site, mebibyte, pages, thread, within};
use crate::op::{FileId, Op};
use crate::program::{Stream, Thread};
use crate::quantity::{Bandwidth, Size};

/// A job that writes a file from its beginning to its end, as `dd` does, or reads one file and writes
/// another, as `cp` or a backup does. A chunk is one request; the end of each pass is marked `written`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileWriter {
    /// Bytes to write. With 0 the job does nothing: the undisturbed case of a series.
    pub size: Size,
    /// Bytes of one `write` or `copy_file_range`, and of one request.
    #[serde(default = "mebibyte")]
    pub chunk: Size,
    /// How the files are read and written.
    #[serde(default)]
    pub how: Access,
    /// Bytes after which `how = "dontneed"` writes out and gives up what lies behind.
    #[serde(default = "eight_mebibytes")]
    pub behind: Size,
    /// Wait until all is on disk after each pass (`conv=fdatasync`).
    #[serde(default)]
    pub sync: bool,
    /// Bytes written per second, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bandwidth>,
    /// The name of a file of the scenario that is read while writing, in proportion: all of it by the time
    /// all of `size` is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<String>,
    /// Read a file of this size while writing, in proportion, that nobody else knows of. Not with `copy-of`.
    /// With `how = "copy-file-range"` the first `size` bytes of the source are copied; without either key the
    /// source has that size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_size: Option<Size>,
    /// Passes: how often it is done. 0: until the run ends.
    #[serde(default = "one")]
    pub repeat: u32,
    /// Files of earlier passes that stay on disk, at most 65,535; then the oldest is truncated and written
    /// again.
    #[serde(default)]
    pub keep: u32,
}

/// A job may read so many times what it writes: what one chunk asks for is made at a time.
const SOURCE_MOST: u64 = 1000;

fn eight_mebibytes() -> Size {
    Size::mib(8)
}

fn one() -> u32 {
    1
}

impl Kind for FileWriter {
    const ROLES: &'static [&'static str] = &["writer"];

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        self.threads(site).map(Instance::only)
    }

    fn on_disk(&self) -> Vec<(&'static str, Size)> {
        let source = self.own_source().map(|size| ("source-size", size));
        std::iter::once(("size", self.size)).chain(source).collect()
    }

    fn has_rate(&self, _role: &str) -> bool {
        self.rate.is_some()
    }

    fn is_direct(&self) -> bool {
        self.how == Access::Direct
    }
}

impl FileWriter {
    fn copies_ranges(&self) -> bool {
        self.how == Access::CopyFileRange
    }

    /// The size of the file to be read that nobody else knows of.
    fn own_source(&self) -> Option<Size> {
        let copies = self.copies_ranges() && self.copy_of.is_none() && self.size.bytes() > 0;
        self.source_size.or(copies.then_some(self.size))
    }

    fn threads(&self, site: &mut Site<'_>) -> Result<Vec<Thread>, Refusal> {
        const ROLE: &str = "writer";
        const MARKS: &[&str] = &["written"];
        let chunk = chunk(self.how, self.chunk)?;
        let behind = behind(self.how, self.behind)?;
        let keep = within("keep", self.keep, 0, 65_535)?;
        if self.copy_of.is_some() && self.source_size.is_some() {
            return Err(Refusal::new("source-size", "has no meaning with `copy-of`; give one of them"));
        }
        let pacer =
            self.rate.map(|rate| Pacer::bandwidth("rate", u64::from(chunk), rate.bytes())).transpose()?;
        let source = match (&self.copy_of, self.own_source()) {
            (Some(name), _) => Some(existing(site, "copy-of", name)?),
            (None, Some(size)) => {
                let pages = pages("source-size", size)?;
                Some((site.files.declare(format!("{}/source", site.actor), pages, true)?, pages))
            }
            (None, None) => None,
        };
        if self.size.bytes() == 0 {
            return Ok(vec![thread(ROLE, MARKS, Nothing)]);
        }
        let written = pages("size", self.size)?;
        whole_pages("size", self.how, self.size)?;
        if let Some((_, pages)) = source {
            let key = if self.copy_of.is_some() { "copy-of" } else { "source-size" };
            if u64::from(pages) > SOURCE_MOST * u64::from(written) {
                let what = format!("what is read may be at most {SOURCE_MOST} times `size`");
                return Err(Refusal::new(key, what));
            }
            if self.copies_ranges() && pages < written {
                let what = "is smaller than `size`, all of which how = \"copy-file-range\" copies";
                return Err(Refusal::new(key, what));
            }
        }
        let names = if self.repeat == 0 { keep + 1 } else { self.repeat.min(keep + 1) };
        let targets = (0..names)
            .map(|i| site.files.declare(format!("{}/written-{i}", site.actor), written, false))
            .collect::<Result<Vec<FileId>, Refusal>>()?;
        let first = targets.first().copied().unwrap_or(FileId(0));
        Ok(vec![thread(
            ROLE,
            MARKS,
            Writer {
                size: self.size.bytes(),
                chunk,
                sync: self.sync,
                pacer,
                source: source.map(|(file, pages)| Side::new(file, 1, pages, self.how, behind, false)),
                target: Side::new(first, 0, written, self.how, behind, true),
                targets,
                passes: if self.repeat == 0 { u64::MAX } else { u64::from(self.repeat) },
                pass: 0,
                offset: 0,
            },
        )])
    }
}

/// A file of the scenario that is there when the run begins.
pub(super) fn existing(site: &Site<'_>, key: &'static str, name: &str) -> Result<(FileId, u32), Refusal> {
    match site.files.find(name) {
        Some((id, file)) if file.exists && file.pages > 0 => Ok((id, file.pages)),
        Some(_) => Err(Refusal::new(key, format!("the file {name:?} has no contents when the run begins"))),
        None => {
            Err(Refusal::new(key, format!("the scenario has no file {name:?}; declare it as a [[file]]")))
        }
    }
}

struct Writer {
    size: u64,
    chunk: u32,
    sync: bool,
    pacer: Option<Pacer>,
    source: Option<Side>,
    target: Side,
    targets: Vec<FileId>,
    passes: u64,
    pass: u64,
    offset: u64,
}

impl Writer {
    fn begin(&mut self, out: &mut Vec<Op>) {
        let index = self.pass % self.targets.len().max(1) as u64;
        self.target.file = self.targets.get(index as usize).copied().unwrap_or(self.target.file);
        out.push(Op::Create { file: self.target.file, pages: self.target.pages });
        self.target.open(Hint::None, out);
        if let Some(source) = &mut self.source {
            let copies = source.access == Access::CopyFileRange;
            source.open(if copies { Hint::Sequential } else { Hint::None }, out);
        }
    }

    /// Where the source is read to by the time so much is written; whole pages until the end.
    fn read_to(source: &Side, written: u64, size: u64) -> u64 {
        (u128::from(written) * u128::from(source.pages) / u128::from(size)) as u64 * super::PAGE
    }

    fn step(&mut self, out: &mut Vec<Op>) {
        let (from, size) = (self.offset, self.size);
        let to = size.min(from + u64::from(self.chunk));
        let last = to == size;
        out.extend(self.pacer.as_mut().map(Pacer::next));
        out.push(Op::Begin);
        match &mut self.source {
            Some(source) if source.access == Access::CopyFileRange => {
                let (from, to, offset, len) = (source.file, self.target.file, from, (to - from) as u32);
                out.push(Op::CopyRange { from, to, offset, len });
            }
            source => {
                if let Some(source) = source {
                    let end = Writer::read_to(source, to, size);
                    source.transfer(Writer::read_to(source, from, size), end, self.chunk, out);
                    source.drop_behind(end, last, out);
                }
                self.target.transfer(from, to, self.chunk, out);
                self.target.drop_behind(to, last, out);
            }
        }
        out.push(Op::Done);
        self.offset = to;
    }

    fn end(&mut self, out: &mut Vec<Op>) {
        if self.sync {
            out.push(Op::Sync { file: self.target.file });
        }
        self.target.close(out);
        if let Some(source) = &self.source {
            source.close(out);
        }
        out.push(Op::Mark { mark: 0 });
        self.offset = 0;
        self.pass += 1;
    }
}

impl Stream for Writer {
    fn fill(&mut self, out: &mut Vec<Op>) {
        let enough = out.len() + BATCH;
        while self.pass < self.passes && out.len() < enough {
            if self.offset == 0 {
                self.begin(out);
            }
            self.step(out);
            if self.offset == self.size {
                self.end(out);
            }
        }
    }
}
