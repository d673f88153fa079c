//! [`open`]: from a name that a user gives to sources.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::archive::{self, Archive, ArchiveError, Bounds, Manifest};
use super::samples::{seconds_of, thin};
use super::sos;
use super::tree::looks_like_root;
use super::{MemorySource, ReadError, Source, TreeSource, oswatcher, paste, text};
use crate::observe::{STANDARD_INPUT, THIS_HOST};

/// Kind of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The running machine.
    Live,
    /// A directory that looks like `/`.
    Tree,
    /// A sos report, unpacked or not.
    Sos,
    /// An OSWatcher archive or one of its files.
    OsWatcher,
    /// A directory of snapshots whose names are numbers or hold a time.
    Series,
    /// A tar archive.
    Archive,
    /// A text archive.
    Text,
    /// A saved file, or text that holds several.
    Paste,
}

/// An opened input.
pub struct Input {
    /// Name for the report's head: a path, `standard input`, `this host`.
    pub label: String,
    /// Kind of the input.
    pub kind: Kind,
    /// The sources with their seconds after the first, ordered by time. Never empty.
    pub samples: Vec<(f64, Box<dyn Source>)>,
    /// Notes for the reader of the report: what was converted, assumed, refused or left out.
    pub notes: Vec<String>,
    /// The manifest, for archives that lotsfree wrote.
    pub manifest: Option<Manifest>,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let times: Vec<f64> = self.samples.iter().map(|(at, _)| *at).collect();
        (f.debug_struct("Input").field("label", &self.label).field("kind", &self.kind))
            .field("samples", &times)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

/// The accepted inputs, for messages.
const ACCEPTED: &str = "accepted are: a directory that looks like / (with proc/ or sys/), a sos report, an OSWatcher \
    archive, a directory of numbered snapshots, a directory of such files as below, a tar archive (plain or zstd), a text archive, saved files of /proc \
    (meminfo, vmstat, zoneinfo, buddyinfo, pagetypeinfo, swaps, slabinfo, pressure, sysvipc/shm) and text that holds \
    such lines or those of free, ipcs, sysctl and limits.conf";

/// Why nothing could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system does not allow reading it.
    #[error("{path}: {error}; name a directory, a file, or - for standard input")]
    Io {
        /// The path as named.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A device, pipe or socket.
    #[error("{path}: neither a file nor a directory; use - to read from a pipe")]
    NotRegular {
        /// The path as named.
        path: PathBuf,
    },
    /// An archive that cannot be read.
    #[error("{path}: {error}")]
    Archive {
        /// The path as named.
        path: PathBuf,
        /// The fault in the archive.
        error: ArchiveError,
    },
    /// A text archive with a mistake in it.
    #[error("{path}: {error}")]
    Text {
        /// The path as named.
        path: PathBuf,
        /// The fault in the text.
        error: text::TextError,
    },
    /// The file is compressed in a way that is not supported.
    #[error("{path}: compressed with {program}, which is not read here; decompress it first ({program} -d)")]
    Compressed {
        /// The path as named.
        path: PathBuf,
        /// The program that decompresses it.
        program: &'static str,
    },
    /// The text is longer than the limit.
    #[error("{path}: text longer than {} MiB; name the files it was made of", MOST_TEXT >> 20)]
    TooLong {
        /// The path as named.
        path: PathBuf,
    },
    /// Nothing in the input was recognised.
    #[error("{path}: nothing in it was recognised; {ACCEPTED}")]
    Unknown {
        /// The path as named.
        path: PathBuf,
    },
}

/// Limit on the bytes that are read of a text.
const MOST_TEXT: u64 = 64 << 20;
/// Limit on the names that are looked at in a directory of snapshots.
const MOST_NAMES: usize = 65_536;

/// Opens an input by the name that a user gives: a path, or `-` for standard input. The accepted inputs are
/// in the module documentation of [`super`].
///
/// # Errors
/// Names the path, the fault, and the accepted inputs.
pub fn open(path: &Path) -> Result<Input, OpenError> {
    if path.as_os_str() == "-" {
        let mut input = open_stream(Box::new(io::stdin().lock()), Path::new(STANDARD_INPUT))?;
        STANDARD_INPUT.clone_into(&mut input.label);
        return Ok(input);
    }
    let failed = |error| OpenError::Io { path: path.to_owned(), error };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return open_directory(path, 0);
    }
    open_stream(Box::new(open_file(path)?), path)
}

/// Opens `bytes` as [`open`] would open a file named `name` with these contents. The name is used in the
/// report's head and in messages; that of a saved file (`meminfo`) also says what its lines are.
///
/// # Errors
/// Names `name`, the fault, and the accepted inputs.
pub fn open_bytes(bytes: &[u8], name: &str) -> Result<Input, OpenError> {
    open_stream(Box::new(bytes), Path::new(name))
}

/// The running machine.
///
/// # Errors
/// If `/` cannot be opened.
pub fn live() -> Result<Input, OpenError> {
    let source = TreeSource::live().map_err(|error| OpenError::Io { path: "/".into(), error })?;
    Ok(Input::one(THIS_HOST, Kind::Live, Box::new(source)))
}

/// Opens a regular file. If a pipe has taken its place, it does not wait for the pipe's other end.
fn open_file(path: &Path) -> Result<File, OpenError> {
    let failed = |error| OpenError::Io { path: path.to_owned(), error };
    let not_regular = || OpenError::NotRegular { path: path.to_owned() };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(not_regular());
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags as i32).open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() { Ok(file) } else { Err(not_regular()) }
}

impl Input {
    fn one(label: impl Into<String>, kind: Kind, source: Box<dyn Source>) -> Self {
        let samples = vec![(0.0, source)];
        Input { label: label.into(), kind, samples, notes: Vec::new(), manifest: None }
    }

    fn many(path: &Path, kind: Kind, samples: Vec<(f64, MemorySource)>, notes: Vec<String>) -> Self {
        let boxed = |(at, source)| (at, Box::new(source) as Box<dyn Source>);
        let samples = samples.into_iter().map(boxed).collect();
        Input { label: path.display().to_string(), kind, samples, notes, manifest: None }
    }
}

/// Reads until a block is full, because streams may come in pieces.
fn peek(reader: &mut dyn Read, most: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    reader.take(most as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn open_stream(mut reader: Box<dyn Read + '_>, path: &Path) -> Result<Input, OpenError> {
    let failed = |error| OpenError::Io { path: path.to_owned(), error };
    let head = peek(&mut *reader, 512).map_err(failed)?;
    for (magic, program) in [
        (&b"\x1f\x8b"[..], "gzip"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"PK\x03\x04", "unzip"),
        (b"\x04\x22\x4d\x18", "lz4"),
    ] {
        if head.starts_with(magic) {
            return Err(OpenError::Compressed { path: path.to_owned(), program });
        }
    }
    if head.starts_with(&archive::ZSTD_MAGIC) {
        let whole = io::Cursor::new(head).chain(reader);
        let broken = |error: io::Error| OpenError::Archive {
            path: path.to_owned(),
            error: ArchiveError::Broken(error.to_string()),
        };
        let mut inner = archive::decompress(whole).map_err(broken)?;
        let head = peek(&mut inner, 512).map_err(broken)?;
        return open_plain(head, Box::new(inner), path);
    }
    open_plain(head, reader, path)
}

fn open_plain(head: Vec<u8>, reader: Box<dyn Read + '_>, path: &Path) -> Result<Input, OpenError> {
    let tar = archive::looks_like_tar(&head);
    let whole = io::Cursor::new(head).chain(reader);
    if tar {
        let archive = Archive::read(whole, &Bounds::default())
            .map_err(|error| OpenError::Archive { path: path.to_owned(), error })?;
        return from_archive(archive, path);
    }
    let mut text = Vec::new();
    let failed = |error| OpenError::Io { path: path.to_owned(), error };
    whole.take(MOST_TEXT + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_TEXT {
        return Err(OpenError::TooLong { path: path.to_owned() });
    }
    from_text(&text, path)
}

fn from_text(text: &[u8], path: &Path) -> Result<Input, OpenError> {
    if text::looks_like(text) {
        let archive = text::TextArchive::parse(text)
            .map_err(|error| OpenError::Text { path: path.to_owned(), error })?;
        return Ok(Input::many(path, Kind::Text, archive.samples, Vec::new()));
    }
    if oswatcher::looks_like(text) {
        let series = oswatcher::read_text(text);
        if !series.samples.is_empty() {
            return Ok(Input::many(path, Kind::OsWatcher, series.samples, series.notes));
        }
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match paste::split(text, &name) {
        Some(paste) if paste.samples.is_empty() => {
            Ok(Input::many(path, Kind::Paste, vec![(0.0, paste.source)], paste.notes))
        }
        Some(paste) => Ok(Input::many(path, Kind::Paste, paste.samples, paste.notes)),
        None => Err(OpenError::Unknown { path: path.to_owned() }),
    }
}

fn from_archive(archive: Archive, path: &Path) -> Result<Input, OpenError> {
    let mut notes = Vec::new();
    if archive.refused_total > 0 {
        let first: Vec<String> =
            archive.refused.iter().take(3).map(|entry| format!("{} ({})", entry.name, entry.why)).collect();
        notes.push(format!(
            "{} entries of the archive were refused: {}",
            archive.refused_total,
            first.join(", ")
        ));
    }
    if let [(_, source)] = &archive.samples[..] {
        if sos::is_sos(source) {
            let (source, more) = sos::adapt(Box::new(source.clone()));
            notes.extend(more);
            let mut input = Input::one(path.display().to_string(), Kind::Sos, Box::new(source));
            input.notes = notes;
            return Ok(input);
        }
        let files = oswatcher::files(source);
        if !files.is_empty() {
            let series = oswatcher::read(source, &files);
            if !series.samples.is_empty() {
                notes.extend(series.notes);
                return Ok(Input::many(path, Kind::OsWatcher, series.samples, notes));
            }
        }
        let top = source.list("").unwrap_or_default();
        if !top.iter().any(|name| matches!(name.as_str(), "proc" | "sys" | "etc")) {
            let flat = by_names(source, &top);
            if flat.is_empty() {
                return Err(OpenError::Unknown { path: path.to_owned() });
            }
            return Ok(Input::many(path, Kind::Archive, vec![(0.0, flat)], notes));
        }
    }
    let mut input = Input::many(path, Kind::Archive, archive.samples, notes);
    input.manifest = archive.manifest;
    Ok(input)
}

/// Collects files in one directory that have the names they have in `/proc`.
fn by_names(source: &dyn Source, names: &[String]) -> MemorySource {
    let mut flat = MemorySource::default();
    let mut buffer = Vec::new();
    for name in names {
        if let Some(path) = paste::by_name(name)
            && source.read(name, 16 << 20, &mut buffer).is_ok()
        {
            flat.insert(path, buffer.as_slice());
        }
    }
    flat
}

fn tree(path: &Path) -> Result<TreeSource, OpenError> {
    TreeSource::saved(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })
}

fn open_directory(path: &Path, depth: u32) -> Result<Input, OpenError> {
    let source = tree(path)?;
    let label = path.display().to_string();
    if sos::is_sos(&source) {
        let (source, notes) = sos::adapt(Box::new(source));
        let mut input = Input::one(label, Kind::Sos, Box::new(source));
        input.notes = notes;
        return Ok(input);
    }
    let files = oswatcher::files(&source);
    if !files.is_empty() {
        let series = oswatcher::read(&source, &files);
        if !series.samples.is_empty() {
            return Ok(Input::many(path, Kind::OsWatcher, series.samples, series.notes));
        }
    }
    let manifest = manifest_of(&source);
    if looks_like_root(path) {
        // A copied tree has no dev/kmsg. The files from which `sos::adapt` replaces it may be inside the
        // tree.
        let (source, notes) = sos::adapt(Box::new(source));
        let mut input = Input::one(label, Kind::Tree, Box::new(source));
        (input.manifest, input.notes) = (manifest, notes);
        return Ok(input);
    }
    let mut names = source.list("").unwrap_or_default();
    names.truncate(MOST_NAMES);
    if let [only] = &names[..] {
        let child = path.join(only);
        // A link inside could lead back up, so links are not followed. Only the one that the user named is.
        let real = fs::symlink_metadata(&child).is_ok_and(|metadata| metadata.is_dir());
        if real && depth < 3 {
            return open_directory(&child, depth + 1);
        }
    }
    if let Some(mut input) = open_series(path, &source, &names) {
        input.manifest = manifest;
        return Ok(input);
    }
    plain_files(path, &source, &names).ok_or_else(|| OpenError::Unknown { path: path.to_owned() })
}

/// Most files of a directory that are looked into, because their names do not say what they are.
const MOST_PLAIN: usize = 256;

/// Plain files beside each other, of one instant: those with the names that they have in `/proc`, and the
/// output of commands, each read as if it were named alone. `None` if nothing is recognised.
fn plain_files(path: &Path, source: &TreeSource, names: &[String]) -> Option<Input> {
    let mut flat = by_names(source, names);
    let (mut notes, mut unknown) = (Vec::new(), Vec::new());
    let mut over_time: Option<(&str, Vec<(f64, MemorySource)>)> = None;
    let mut buffer = Vec::new();
    let others = names.iter().filter(|name| paste::by_name(name).is_none() && !name.starts_with('.'));
    for name in others.take(MOST_PLAIN) {
        match source.read(name, MOST_TEXT as usize, &mut buffer) {
            Ok(false) => {}
            // A directory, or a file that is longer than any that is read.
            _ => continue,
        }
        let paste = match text::looks_like(&buffer) {
            true => None,
            false => paste::split(&buffer, name),
        };
        let Some(paste) = paste else {
            unknown.push(name.as_str());
            continue;
        };
        notes.extend(paste.notes.into_iter().map(|note| format!("{name}: {note}")));
        match (&over_time, paste.samples.is_empty()) {
            (_, true) => notes.extend(add(&mut flat, paste.source, name)),
            (None, false) => over_time = Some((name, paste.samples)),
            (Some((first, _)), false) => {
                notes.push(format!("{name} is left out: {first} has times too; name it alone"));
            }
        }
    }
    if flat.is_empty() && over_time.is_none() {
        return None;
    }
    if !unknown.is_empty() {
        notes.push(format!("nothing was recognised in {}", unknown.join(", ")));
    }
    let samples = match over_time {
        Some((_, samples)) => {
            let below = Arc::new(flat);
            let over = |own: MemorySource| {
                let mut all = MemorySource::default();
                for (path, outcome) in own.files() {
                    all.insert_outcome(path.to_owned(), outcome.clone());
                }
                all.lie_over(Arc::clone(&below))
            };
            samples.into_iter().map(|(at, own)| (at, over(own))).collect()
        }
        None => vec![(0.0, flat)],
    };
    Some(Input::many(path, Kind::Tree, samples, notes))
}

/// Adds the files that one text holds; those that are there already stay, and a note says so.
fn add(flat: &mut MemorySource, more: MemorySource, name: &str) -> Option<String> {
    let mut twice = Vec::new();
    for (path, outcome) in more.files() {
        if flat.get(path).is_some() {
            twice.push(path.to_owned());
        } else if let Ok(contents) = outcome {
            flat.insert(path, contents.as_slice());
        }
    }
    (!twice.is_empty()).then(|| format!("{name}: {} is left out, another file has it", twice.join(", ")))
}

/// The manifest of an unpacked archive.
fn manifest_of(source: &TreeSource) -> Option<Manifest> {
    let mut text = Vec::new();
    let longer = source.read(archive::MANIFEST, 4 << 20, &mut text).ok()?;
    if longer { None } else { archive::parse_manifest(&text).ok() }
}

/// An archive or text that is opened when it is first read, so that a long series is never in memory at once.
struct Later {
    path: PathBuf,
    opened: std::cell::OnceCell<Result<Box<dyn Source>, ReadError>>,
}

impl Later {
    fn source(&self) -> Result<&dyn Source, ReadError> {
        let open = || match open(&self.path) {
            Ok(mut input) => match input.samples.pop() {
                Some((_, source)) => Ok(source),
                None => Err(ReadError::Absent),
            },
            Err(error) => Err(ReadError::Io(error.to_string())),
        };
        self.opened.get_or_init(open).as_deref().map_err(Clone::clone)
    }
}

impl Source for Later {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        buffer.clear();
        self.source()?.read(path, limit, buffer)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        self.source()?.list(directory)
    }
}

/// The number or time in a name, which orders a series: `10`, `001.tar.zst`, `meminfo.3`, `5s`,
/// `db1-2011-11-20T01:46:00`.
fn order_of(name: &str) -> Option<Order> {
    if let Some(seconds) = seconds_of(name) {
        return Some(Order { seconds: Some(seconds), number: seconds });
    }
    let stem = [".tar.zst", ".tar", ".txt", ".zst", ".dat"].iter().find_map(|end| name.strip_suffix(end));
    let stem = stem.unwrap_or(name);
    let groups: Vec<&str> = stem
        .split(|c: char| !c.is_ascii_digit())
        .filter(|group| !group.is_empty() && group.len() <= 18)
        .collect();
    let number = |digits: &str| digits.parse::<f64>().ok();
    // Seconds since the epoch, or year, month, day, hour, minute, second in one to six groups of digits.
    if let Some(epoch) = groups.iter().filter(|group| group.len() == 10).find_map(|group| number(group))
        && epoch >= 1e9
    {
        return Some(Order { seconds: Some(epoch), number: epoch });
    }
    let digits: String = match groups.iter().position(|group| group.starts_with("20") && group.len() >= 4) {
        Some(start) => groups[start..].concat(),
        None => String::new(),
    };
    if digits.len() == 14 || digits.len() == 12 {
        let part = |from: usize, to: usize| digits.get(from..to).and_then(|part| part.parse::<i16>().ok());
        let small = |from, to| part(from, to).and_then(|part| i8::try_from(part).ok());
        let time = || {
            let date = jiff::civil::Date::new(part(0, 4)?, small(4, 6)?, small(6, 8)?).ok()?;
            let time = date.at(small(8, 10)?, small(10, 12)?, small(12, 14).unwrap_or(0), 0);
            time.to_zoned(jiff::tz::TimeZone::UTC).ok()
        };
        let valid = small(8, 10)? < 24 && small(10, 12)? < 60 && small(12, 14).unwrap_or(0) < 60;
        if valid && let Some(at) = time() {
            let at = at.timestamp().as_second() as f64;
            return Some(Order { seconds: Some(at), number: at });
        }
    }
    let last = groups.last()?;
    Some(Order { seconds: None, number: number(last)? })
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Order {
    /// The time, if the name holds one.
    seconds: Option<f64>,
    number: f64,
}

/// One instant of a directory of snapshots, before it is opened.
struct Candidate {
    order: Order,
    source: Box<dyn Source>,
    /// The times by which the instant may be placed.
    manifest: Option<f64>,
    modified: Option<f64>,
    uptime: Option<f64>,
}

/// Opens a directory whose children are numbered snapshots; `None` if they are not.
fn open_series(path: &Path, source: &TreeSource, names: &[String]) -> Option<Input> {
    let mut notes = Vec::new();
    let mut entries: Vec<(Order, &String)> =
        names.iter().filter_map(|name| Some((order_of(name)?, name))).collect();
    entries.sort_by(|a, b| a.0.number.total_cmp(&b.0.number).then_with(|| a.1.cmp(b.1)));
    let count = entries.len();
    if !entries.iter().any(|(_, name)| paste::by_name(name).is_some()) {
        entries = thin(entries);
    }
    if entries.len() < count {
        notes.push(format!("of {count} snapshots, {} spread evenly were read", entries.len()));
    }
    let mut candidates = candidates(path, source, entries);
    if candidates.is_empty() {
        return None;
    }
    if candidates.len() > 1 && times(&candidates, |one| one.manifest).is_none() {
        for candidate in &mut candidates {
            candidate.uptime = uptime(&*candidate.source);
            if candidate.uptime.is_none() {
                break;
            }
        }
    }
    let known = times(&candidates, |one| one.manifest)
        .or_else(|| times(&candidates, |one| one.uptime))
        .or_else(|| times(&candidates, |one| one.order.seconds))
        .or_else(|| times(&candidates, |one| one.modified));
    let samples = match known {
        Some(times) => times.into_iter().zip(candidates.into_iter().map(|one| one.source)).collect(),
        None => {
            notes.push(format!(
                "of {} snapshots only the last was read: nothing says when they were taken (lotsfree.json, \
                 proc/uptime, the names or the times of the files)",
                candidates.len()
            ));
            candidates.pop().map(|one| (0.0, one.source)).into_iter().collect()
        }
    };
    Some(Input { label: path.display().to_string(), kind: Kind::Series, samples, notes, manifest: None })
}

/// The children that can be snapshots. Where there are none, single files of several kinds with the same
/// number form one instant: meminfo.1, vmstat.1.
fn candidates(path: &Path, source: &TreeSource, entries: Vec<(Order, &String)>) -> Vec<Candidate> {
    let mut flat: BTreeMap<u64, (Order, MemorySource, Option<f64>)> = BTreeMap::new();
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut buffer = Vec::new();
    let mut flat_bytes = 0usize;
    for (order, name) in entries {
        let child = path.join(name);
        let Ok(metadata) = fs::symlink_metadata(&child) else { continue };
        let modified = (metadata.modified().ok())
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map(|since| since.as_secs_f64());
        if metadata.is_dir() {
            let Some(source) = open_child(&child) else { continue };
            let modified = tree_time(&child).or(modified);
            candidates.push(Candidate { order, source, manifest: None, modified, uptime: None });
        } else if let Some(target) = paste::by_name(name).filter(|_| metadata.is_file()) {
            if source.read(name, 1 << 20, &mut buffer).is_err() || flat_bytes + buffer.len() > 512 << 20 {
                continue;
            }
            flat_bytes += buffer.len();
            let (_, files, _) = flat
                .entry(order.number.to_bits())
                .or_insert_with(|| (order, MemorySource::default(), modified));
            files.insert(target, buffer.as_slice());
        } else if metadata.is_file()
            && [".tar", ".tar.zst", ".zst", ".txt"].iter().any(|end| name.ends_with(end))
        {
            let manifest = open_file(&child).ok().and_then(peek_time);
            let source = Box::new(Later { path: child, opened: std::cell::OnceCell::new() });
            candidates.push(Candidate { order, source, manifest, modified, uptime: None });
        }
    }
    if candidates.is_empty() {
        candidates.extend(thin(flat.into_values().collect()).into_iter().map(|(order, source, modified)| {
            Candidate { order, source: Box::new(source), manifest: None, modified, uptime: None }
        }));
    }
    candidates
}

/// A directory that looks like `/`, or that has files with the names of those of `/proc`.
fn open_child(child: &Path) -> Option<Box<dyn Source>> {
    let tree = TreeSource::saved(child).ok()?;
    if looks_like_root(child) {
        return Some(Box::new(tree));
    }
    let names = tree.list("").unwrap_or_default();
    let files = by_names(&tree, &names);
    (!files.is_empty()).then(|| Box::new(files) as Box<dyn Source>)
}

/// Seconds after the first instant, if all times are known and ascending.
fn times(all: &[Candidate], of: impl Fn(&Candidate) -> Option<f64>) -> Option<Vec<f64>> {
    if all.len() == 1 {
        return Some(vec![0.0]);
    }
    let times: Vec<f64> = all.iter().map(of).collect::<Option<_>>()?;
    let start = *times.first()?;
    let rises = times.windows(2).all(|pair| pair[1] > pair[0]) && times.iter().all(|time| time.is_finite());
    rises.then(|| times.iter().map(|time| time - start).collect())
}

fn uptime(source: &dyn Source) -> Option<f64> {
    let mut buffer = Vec::new();
    source.read("proc/uptime", 256, &mut buffer).ok()?;
    String::from_utf8_lossy(&buffer).split_ascii_whitespace().next()?.parse().ok()
}

/// The time at which the files of a tree were written.
fn tree_time(path: &Path) -> Option<f64> {
    let time = ["proc/meminfo", "proc/vmstat", "meminfo", "vmstat"].iter().find_map(|name| {
        let metadata = fs::symlink_metadata(path.join(name)).ok()?;
        metadata.modified().ok()
    })?;
    Some(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs_f64())
}

/// The time at which an archive was taken, from its manifest.
fn peek_time(mut file: File) -> Option<f64> {
    let head = peek(&mut file, 4).ok()?;
    let compressed = head.starts_with(&archive::ZSTD_MAGIC);
    let whole = io::Cursor::new(head).chain(file);
    let manifest = if compressed {
        archive::peek_manifest(archive::decompress(whole).ok()?)
    } else {
        archive::peek_manifest(whole)
    };
    manifest.map(|manifest| manifest.taken_at).filter(|at| *at > 0.0)
}

#[cfg(test)]
mod tests {
    use super::super::archive::{ArchiveWriter, Manifest};
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, contents) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
    }

    fn text(input: &Input, index: usize, path: &str) -> String {
        let mut buffer = Vec::new();
        input.samples[index]
            .1
            .read(path, 1 << 20, &mut buffer)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        String::from_utf8(buffer).unwrap()
    }

    fn times(input: &Input) -> Vec<f64> {
        input.samples.iter().map(|(at, _)| *at).collect()
    }

    fn archive(taken_at: f64, contents: &str) -> Vec<u8> {
        let mut source = MemorySource::default();
        source.insert("proc/meminfo", contents);
        let manifest = Manifest { taken_at, host: "db1".into(), ..Manifest::default() };
        ArchiveWriter { manifest, samples: vec![(0.0, source)] }.to_bytes(1 << 20).unwrap()
    }

    #[test]
    fn trees_and_reports() {
        let root = tempfile::tempdir().unwrap();
        write(
            &root.path().join("tree"),
            &[("proc/meminfo", "MemTotal: 1 kB\n"), ("var/log/dmesg", "[1.0] Out of memory\n")],
        );
        let input = open(&root.path().join("tree")).unwrap();
        assert_eq!((input.kind, times(&input)), (Kind::Tree, vec![0.0]));
        assert_eq!(text(&input, 0, "proc/meminfo"), "MemTotal: 1 kB\n");
        assert_eq!(text(&input, 0, "dev/kmsg"), "[1.0] Out of memory\n");

        write(
            &root.path().join("sos/sosreport-db1"),
            &[("proc/meminfo", "m\n"), ("sos_commands/kernel/sysctl_-a", "vm.swappiness = 60\n")],
        );
        let input = open(&root.path().join("sos")).unwrap();
        assert_eq!(input.kind, Kind::Sos);
        assert_eq!(text(&input, 0, "proc/sys/vm/swappiness"), "60\n");

        let block = "zzz ***Sun Nov 20 01:46:00 CET 2011\nMemTotal: 16000 kB\n\
                     zzz ***Sun Nov 20 01:46:30 CET 2011\nMemTotal: 16001 kB\n";
        write(root.path(), &[("osw/archive/oswmeminfo/db1_meminfo_11.11.20.0100.dat", block)]);
        for name in [
            "osw",
            "osw/archive",
            "osw/archive/oswmeminfo",
            "osw/archive/oswmeminfo/db1_meminfo_11.11.20.0100.dat",
        ] {
            let input = open(&root.path().join(name)).unwrap();
            assert_eq!((input.kind, times(&input)), (Kind::OsWatcher, vec![0.0, 30.0]), "{name}");
        }
    }

    #[test]
    fn series_take_their_times_from_the_best_witness() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for (number, uptime) in [("1", "100.0 1"), ("2", "107.5 1"), ("10", "120.0 1")] {
            let uptime_path = format!("{number}/proc/uptime");
            let meminfo = format!("{number}/proc/meminfo");
            write(&at("trees"), &[(&uptime_path, uptime), (&meminfo, number)]);
        }
        let input = open(&at("trees")).unwrap();
        assert_eq!((input.kind, times(&input)), (Kind::Series, vec![0.0, 7.5, 20.0]));
        assert_eq!(text(&input, 2, "proc/meminfo"), "10", "10 comes after 2");

        fs::create_dir(at("archives")).unwrap();
        fs::write(at("archives/001.tar.zst"), archive(1000.0, "a")).unwrap();
        fs::write(at("archives/002.tar.zst"), archive(1060.0, "b")).unwrap();
        let input = open(&at("archives")).unwrap();
        assert_eq!((times(&input), text(&input, 1, "proc/meminfo")), (vec![0.0, 60.0], "b".into()));

        write(
            &at("flat"),
            &[("meminfo.1", "m1"), ("vmstat.1", "v1"), ("meminfo.2", "m2"), ("vmstat.2", "v2")],
        );
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        for (name, seconds) in [("meminfo.1", 0), ("vmstat.1", 0), ("meminfo.2", 30), ("vmstat.2", 30)] {
            let file = fs::OpenOptions::new().write(true).open(at("flat").join(name)).unwrap();
            file.set_modified(time + std::time::Duration::from_secs(seconds)).unwrap();
        }
        let input = open(&at("flat")).unwrap();
        assert_eq!((times(&input), text(&input, 1, "proc/vmstat")), (vec![0.0, 30.0], "v2".into()));
        for name in ["meminfo.1", "meminfo.2"] {
            let file = fs::OpenOptions::new().write(true).open(at("flat").join(name)).unwrap();
            file.set_modified(time).unwrap();
        }
        let input = open(&at("flat")).unwrap();
        assert_eq!((times(&input), text(&input, 0, "proc/vmstat")), (vec![0.0], "v2".into()));
        assert!(input.notes[0].contains("nothing says when"), "{:?}", input.notes);
    }

    #[test]
    fn a_broken_archive_in_a_series_is_a_file_that_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("snap-1321753560.tar.zst"), archive(0.0, "a")).unwrap();
        fs::write(root.path().join("snap-1321753620.tar.zst"), b"\x28\xb5\x2f\xfdrubbish").unwrap();
        let input = open(root.path()).unwrap();
        assert_eq!((times(&input), text(&input, 0, "proc/meminfo")), (vec![0.0, 60.0], "a".into()));
        let outcome = input.samples[1].1.read("proc/meminfo", 9, &mut Vec::new());
        assert!(
            matches!(&outcome, Err(ReadError::Io(why)) if why.contains("not a readable tar")),
            "{outcome:?}"
        );
    }

    #[test]
    fn an_unpacked_archive_keeps_its_manifest() {
        let root = tempfile::tempdir().unwrap();
        let mut packed =
            tar::Archive::new(io::Cursor::new(zstd::decode_all(&archive(1000.0, "a")[..]).unwrap()));
        packed.unpack(root.path()).unwrap();
        let input = open(root.path()).unwrap();
        assert_eq!((input.kind, text(&input, 0, "proc/meminfo")), (Kind::Tree, "a".into()));
        assert_eq!(input.manifest.unwrap().taken_at, 1000.0);
    }

    #[test]
    fn numbers_and_times_in_names() {
        let seconds = |name: &str| order_of(name).and_then(|order| order.seconds);
        assert_eq!(
            seconds("db1-2011-11-20T01:46:30.tar").unwrap() - seconds("db1-20111120-014600.tar").unwrap(),
            30.0
        );
        assert_eq!(seconds("snap-1321753560"), Some(1_321_753_560.0));
        assert_eq!(seconds("5s"), Some(5.0));
        assert_eq!(order_of("001.tar.zst"), Some(Order { seconds: None, number: 1.0 }));
        assert_eq!(seconds("2011-13-20-01-46-30"), None);
        assert_eq!(order_of("notes"), None);
    }

    #[test]
    fn files_and_archives() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("x.tar.zst"), archive(1000.0, "a")).unwrap();
        let input = open(&at("x.tar.zst")).unwrap();
        assert_eq!((input.kind, text(&input, 0, "proc/meminfo")), (Kind::Archive, "a".into()));
        assert_eq!(input.manifest.unwrap().host, "db1");

        write(
            root.path(),
            &[("system-a.meminfo", "MemTotal:         16387608 kB\nPageTables:        1591860 kB\n")],
        );
        let input = open(&at("system-a.meminfo")).unwrap();
        assert_eq!(input.kind, Kind::Paste);
        assert!(text(&input, 0, "proc/meminfo").contains("PageTables:        1591860 kB"));
        let compressed = zstd::encode_all(&b"MemTotal: 1 kB\n"[..], 1).unwrap();
        fs::write(at("meminfo.zst"), compressed).unwrap();
        assert_eq!(text(&open(&at("meminfo.zst")).unwrap(), 0, "proc/meminfo"), "MemTotal: 1 kB\n");

        write(
            root.path(),
            &[("a.txt", "two instants\n-- 0s/proc/vmstat --\npgfault 1\n-- 5s/proc/vmstat --\npgfault 2\n")],
        );
        let input = open(&at("a.txt")).unwrap();
        assert_eq!((input.kind, times(&input)), (Kind::Text, vec![0.0, 5.0]));
    }

    #[test]
    fn plain_files_beside_each_other_are_read_as_each_would_be_alone() {
        let root = tempfile::tempdir().unwrap();
        let ipcs = "------ Shared Memory Segments --------\n\
                    key        shmid      owner      perms      bytes      nattch     status\n\
                    0x00000000 32768      oracle     640        8589934592 200\n";
        let files = [
            ("meminfo", "MemTotal: 1000 kB\n"),
            ("ipcs.txt", ipcs),
            ("db-sysctl.out", "vm.swappiness = 60\n"),
            ("more.log", "MemTotal: 2000 kB\nMemFree: 7 kB\n"),
            ("notes", "call Bob\n"),
        ];
        write(root.path(), &files);
        let input = open(root.path()).unwrap();
        assert_eq!((input.kind, times(&input)), (Kind::Tree, vec![0.0]));
        assert_eq!(text(&input, 0, "proc/meminfo"), "MemTotal: 1000 kB\n");
        assert_eq!(text(&input, 0, "proc/sys/vm/swappiness"), "60\n");
        assert!(text(&input, 0, "proc/sysvipc/shm").contains("8589934592"));
        assert_eq!(
            input.notes,
            [
                "db-sysctl.out: lines such as `vm.x = y` are taken as running values",
                "more.log: proc/meminfo is left out, another file has it",
                "nothing was recognised in notes"
            ]
        );
        let vmstat = " r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa\n\
                      1  0      0 100000   1000 200000    0    0     1     2  100  200  1  1 98  0\n\
                      1  0      0  90000   1000 200000    0    0     1     2  100  200  1  1 98  0\n";
        write(root.path(), &[("vmstat-table.log", vmstat)]);
        let input = open(root.path()).unwrap();
        assert!(input.samples.len() > 1, "{input:?}");
        assert!(text(&input, 0, "proc/sysvipc/shm").contains("8589934592"), "in each instant");
        let nothing = tempfile::tempdir().unwrap();
        write(nothing.path(), &[("notes", "call Bob\n")]);
        assert!(matches!(open(nothing.path()), Err(OpenError::Unknown { .. })));
    }

    #[test]
    fn what_cannot_be_opened_says_why_and_what_could() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let refused = |name: &str| open(&at(name)).unwrap_err().to_string();
        write(root.path(), &[("prose", "hello\n"), ("empty", ""), ("dir/readme", "hello\n")]);
        fs::write(at("x.gz"), b"\x1f\x8b\x08").unwrap();
        fs::write(at("broken.tar.zst"), [&archive::ZSTD_MAGIC[..], b"rubbish"].concat()).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        for name in ["prose", "empty", "dir"] {
            assert!(
                refused(name).contains("nothing in it was recognised; accepted are"),
                "{}",
                refused(name)
            );
        }
        assert!(refused("x.gz").contains("gzip -d"));
        assert!(refused("broken.tar.zst").contains("not a readable tar"));
        assert!(refused("pipe").contains("use - to read"));
        assert!(refused("none").contains("No such file"));
        assert!(
            open(Path::new("/dev/zero")).unwrap_err().to_string().contains("neither a file nor a directory")
        );
    }

    #[test]
    fn links_in_a_tree_do_not_lead_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("tree/proc/meminfo", "m"), ("secret", "s")]);
        std::os::unix::fs::symlink("../../secret", root.path().join("tree/proc/vmstat")).unwrap();
        std::os::unix::fs::symlink("/", root.path().join("tree/proc/self")).unwrap();
        let input = open(&root.path().join("tree")).unwrap();
        let mut buffer = Vec::new();
        assert!(input.samples[0].1.read("proc/vmstat", 10, &mut buffer).is_err());
        assert_eq!(text(&input, 0, "proc/self/proc/meminfo"), "m");
        // A directory whose only child is a link is not followed either.
        fs::create_dir(root.path().join("lonely")).unwrap();
        std::os::unix::fs::symlink("/", root.path().join("lonely/child")).unwrap();
        assert!(open(&root.path().join("lonely")).is_err());
    }

    #[test]
    fn an_observation_has_a_sample_for_each_instant() {
        let text = "x\n-- 2s/proc/vmstat --\npgfault 1\n-- 5s/proc/vmstat --\npgfault 2\n-- 9s/proc/vmstat --\npgfault 3\n";
        let input = from_text(text.as_bytes(), Path::new("x")).unwrap();
        let observation = crate::observe(input, &crate::Options::default());
        let at: Vec<f64> = observation.samples.iter().map(|sample| sample.at).collect();
        assert_eq!(at, [0.0, 3.0, 7.0]);
        assert!(observation.before.is_some());
    }
}
