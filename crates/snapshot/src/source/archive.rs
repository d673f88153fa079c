//! Archives: a tar of a tree that looks like `/`, plain or compressed with zstd, read and written in memory.
//!
//! # Format that is written
//!
//! A tar, compressed with zstd, whose entries all lie below one directory `lotsfree-HOST-DATE/`:
//!
//! ```text
//! lotsfree-db1-20261121T014600Z/lotsfree.json
//! lotsfree-db1-20261121T014600Z/0s/proc/meminfo
//! lotsfree-db1-20261121T014600Z/0s/proc/vmstat
//! lotsfree-db1-20261121T014600Z/5s/proc/vmstat
//! ```
//!
//! Each instant is complete and has a directory named after its offset in seconds from the first. With a
//! single instant that directory is left out. Entries are ordered by time, then by path, and carry no owner,
//! so that the same files give the same bytes.
//!
//! # The manifest, `lotsfree.json`
//!
//! | member | type | meaning |
//! |---|---|---|
//! | `format` | number | 1; readers refuse a larger one |
//! | `lotsfree` | string | version of the program that wrote it |
//! | `taken_at` | number | seconds since the epoch at the first instant |
//! | `page_size` | number | base page size, bytes; 0 where unknown |
//! | `kernel` | string | kernel release |
//! | `host` | string | host name, or its pseudonym |
//! | `redaction` | string | `standard` or `full` (nothing was replaced) |
//! | `samples` | array of `{ "seconds": number }` | the instants, first is 0 |
//! | `not_read` | array of `{ "sample": number, "path": string, "why": string }` | files (with a trailing `/`: directories) that could not be read: `denied`, `not-regular`, or the system's words |
//! | `left_out` | number | files that were read but not kept, for want of room |
//!
//! Unknown members are ignored.
//!
//! # Format that is read
//!
//! Any tar is read, and nothing of it is written to disk. Links, devices, pipes, sparse files and names that
//! lead outside are refused, counted and reported; the rest is kept. [`Bounds`] apply to the decompressed
//! stream.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::samples::{self, prefix_of, safe};
use super::{MemorySource, ReadError};

/// The manifest's name.
pub const MANIFEST: &str = "lotsfree.json";
/// Version of the format that is written.
pub const FORMAT: u32 = 1;
/// The first bytes of a zstd frame.
pub(crate) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Limits on the parts of an archive that are read.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Decompressed bytes of the whole archive.
    pub total: u64,
    /// Bytes of one file; larger ones are left out and reported.
    pub file: u64,
    /// Number of entries.
    pub entries: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { total: 256 << 20, file: 16 << 20, entries: 200_000 }
    }
}

/// The archive's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub lotsfree: String,
    /// Seconds since the epoch at the first instant.
    pub taken_at: f64,
    /// Base page size in bytes; 0 where unknown.
    pub page_size: u64,
    /// Kernel release.
    pub kernel: String,
    /// Host name, or its pseudonym.
    pub host: String,
    /// `standard` or `full`.
    pub redaction: String,
    /// The instants.
    pub samples: Vec<ManifestSample>,
    /// Files and directories that could not be read.
    pub not_read: Vec<NotRead>,
    /// Files that were read but not kept.
    pub left_out: u64,
}

/// One instant of a [`Manifest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ManifestSample {
    /// Seconds after the first.
    pub seconds: f64,
}

/// A file that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotRead {
    /// Index into [`Manifest::samples`].
    pub sample: usize,
    /// The file; a directory where it ends in `/`.
    pub path: String,
    /// `denied`, `not-regular`, or the system's words.
    pub why: String,
}

/// An entry that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name of the entry, as far as it can be shown.
    pub name: String,
    /// Why.
    pub why: &'static str,
}

/// An archive that was read.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    /// Present in archives that lotsfree wrote.
    pub manifest: Option<Manifest>,
    /// The instants: seconds after the first, and the files. Never empty.
    pub samples: Vec<(f64, MemorySource)>,
    /// The first 64 entries that were refused.
    pub refused: Vec<Refused>,
    /// Number of entries that were refused in all.
    pub refused_total: usize,
}

/// Why an archive could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// More bytes than [`Bounds::total`].
    #[error("more than {} MiB when decompressed; unpack it and name the directory instead", .0 >> 20)]
    TooLong(u64),
    /// More entries than [`Bounds::entries`].
    #[error("more than {0} entries; unpack it and name the directory instead")]
    TooMany(usize),
    /// The input is not a tar, or a broken one.
    #[error("not a readable tar archive: {0}")]
    Broken(String),
    /// The manifest is of a later version, or cannot be read.
    #[error("lotsfree.json: {0}")]
    Manifest(String),
    /// The archive holds no file.
    #[error("the archive holds no file")]
    Empty,
    /// The archive cannot be written to this path.
    #[error("{path}: {why}")]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

/// Passes bytes on, up to a bound.
struct Bounded<R> {
    inner: R,
    left: u64,
    exceeded: bool,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let more = self.inner.read(&mut [0])?;
            self.exceeded |= more > 0;
            return if more > 0 { Err(io::Error::other("too long")) } else { Ok(0) };
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.inner.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Reads a zstd stream whose window may take at most 128 MiB.
pub(crate) fn decompress<'a>(reader: impl Read + 'a) -> io::Result<impl Read + 'a> {
    let mut decoder = zstd::stream::read::Decoder::new(reader)?;
    decoder.window_log_max(27)?;
    Ok(decoder)
}

/// Whether a tar begins with this block, that is, a header whose checksum is right.
pub(crate) fn looks_like_tar(block: &[u8]) -> bool {
    let Some(block) = block.get(..512) else { return false };
    let stored: String = block[148..156].iter().map(|&b| char::from(b)).collect();
    let stored = stored.trim_matches(|c: char| c == '\0' || c == ' ');
    let Ok(stored) = u32::from_str_radix(stored, 8) else { return false };
    let byte = |(i, &b): (usize, &u8)| if (148..156).contains(&i) { 32 } else { u32::from(b) };
    stored == block.iter().enumerate().map(byte).sum::<u32>()
}

/// At most this many refused entries are named.
const MOST_REFUSED: usize = 64;

impl Archive {
    fn refuse(&mut self, name: &str, why: &'static str) {
        self.refused_total += 1;
        if self.refused.len() < MOST_REFUSED {
            let name = name.chars().filter(|c| !c.is_control()).take(200).collect();
            self.refused.push(Refused { name, why });
        }
    }

    /// Reads a tar stream that is not compressed.
    ///
    /// # Errors
    /// If the stream is not a tar, exceeds the bounds or holds nothing.
    pub fn read(stream: impl Read, bounds: &Bounds) -> Result<Self, ArchiveError> {
        let mut stream = Bounded { inner: stream, left: bounds.total, exceeded: false };
        let mut archive = Archive::default();
        let outcome = archive.entries(&mut stream, bounds);
        if stream.exceeded {
            return Err(ArchiveError::TooLong(bounds.total));
        }
        let flat = strip(outcome?);
        archive.arrange(flat)?;
        Ok(archive)
    }

    /// Reads a tar stream that is compressed with zstd.
    ///
    /// # Errors
    /// As [`Archive::read`].
    pub fn read_zstd(stream: impl Read, bounds: &Bounds) -> Result<Self, ArchiveError> {
        let stream = decompress(stream).map_err(|error| ArchiveError::Broken(error.to_string()))?;
        Self::read(stream, bounds)
    }

    fn entries(&mut self, stream: impl Read, bounds: &Bounds) -> Result<MemorySource, ArchiveError> {
        let broken = |error: io::Error| ArchiveError::Broken(error.to_string());
        let mut tar = tar::Archive::new(stream);
        let mut flat = MemorySource::default();
        for (index, entry) in tar.entries().map_err(broken)?.enumerate() {
            if index >= bounds.entries {
                return Err(ArchiveError::TooMany(bounds.entries));
            }
            let mut entry = entry.map_err(broken)?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let relative = name.trim_start_matches("./").trim_end_matches('/');
            let kind = entry.header().entry_type();
            if kind.is_dir() && matches!(relative, "" | ".") {
                continue;
            }
            if kind.is_pax_global_extensions() {
                continue;
            }
            if name.starts_with('/') {
                self.refuse(&name, "absolute name");
                continue;
            }
            if safe(relative).is_none() {
                self.refuse(&name, "name leads outside of the archive or makes no sense");
                continue;
            }
            if kind.is_dir() {
                flat.insert_directory(relative, Ok(()));
                continue;
            }
            let why = match kind {
                tar::EntryType::Regular | tar::EntryType::Continuous => None,
                tar::EntryType::Symlink => Some("symbolic link"),
                tar::EntryType::Link => Some("hard link"),
                tar::EntryType::Char | tar::EntryType::Block => Some("device"),
                tar::EntryType::Fifo => Some("pipe"),
                tar::EntryType::GNUSparse => Some("sparse file"),
                _ => Some("unknown kind of entry"),
            };
            if let Some(why) = why {
                self.refuse(&name, why);
                continue;
            }
            if sparse(&mut entry) {
                self.refuse(&name, "sparse file");
                continue;
            }
            if entry.size() > bounds.file {
                self.refuse(&name, "file too large");
                let why = format!("larger than {} MiB, not kept", bounds.file >> 20);
                flat.insert_error(relative, ReadError::Io(why));
                continue;
            }
            if flat.get(relative).is_some() {
                self.refuse(&name, "an earlier entry of the same name; the last one is kept");
            }
            let mut contents = Vec::with_capacity(entry.size().min(1 << 20) as usize);
            entry.read_to_end(&mut contents).map_err(broken)?;
            if (contents.len() as u64) < entry.size() {
                return Err(ArchiveError::Broken(format!("ends in the middle of {name}")));
            }
            flat.insert(relative, contents);
        }
        if flat.is_empty() {
            return Err(ArchiveError::Empty);
        }
        Ok(flat)
    }

    /// Separates the manifest from the files, and the instants from each other.
    fn arrange(&mut self, mut flat: MemorySource) -> Result<(), ArchiveError> {
        if let Some(text) = flat.get(MANIFEST) {
            let manifest = parse_manifest(text)?;
            for gone in &manifest.not_read {
                let Some(sample) = manifest.samples.get(gone.sample) else { continue };
                let path = match manifest.samples.len() {
                    1 => gone.path.clone(),
                    _ => format!("{}s/{}", sample.seconds, gone.path),
                };
                let error = match gone.why.as_str() {
                    "denied" => ReadError::Denied,
                    "absent" => ReadError::Absent,
                    "not-regular" => ReadError::NotRegular,
                    why => ReadError::Io(why.to_owned()),
                };
                let bare = path.strip_suffix('/').unwrap_or(&path);
                if safe(bare).is_none() {
                    self.refuse(&path, "name leads outside of the archive or makes no sense");
                } else if path.ends_with('/') {
                    flat.insert_directory(bare, Err(error));
                } else if flat.get(&path).is_none() {
                    flat.insert_error(path, error);
                }
            }
            self.manifest = Some(manifest);
        }
        self.samples = samples::split(flat, self.manifest.is_none());
        Ok(())
    }
}

fn sparse(entry: &mut tar::Entry<'_, impl Read>) -> bool {
    let Ok(Some(extensions)) = entry.pax_extensions() else { return false };
    extensions.flatten().any(|extension| extension.key_bytes().starts_with(b"GNU.sparse."))
}

pub(crate) fn parse_manifest(text: &[u8]) -> Result<Manifest, ArchiveError> {
    let manifest: Manifest =
        serde_json::from_slice(text).map_err(|error| ArchiveError::Manifest(error.to_string()))?;
    if manifest.format > FORMAT {
        let why =
            format!("format {} is newer than this program, which reads up to {FORMAT}", manifest.format);
        return Err(ArchiveError::Manifest(why));
    }
    let rising = manifest.samples.is_sorted_by(|a, b| a.seconds < b.seconds);
    if !rising || manifest.samples.iter().any(|sample| !sample.seconds.is_finite() || sample.seconds < 0.0) {
        return Err(ArchiveError::Manifest("the seconds of `samples` do not rise".into()));
    }
    Ok(manifest)
}

/// Reads the manifest of an archive that begins with one, and nothing else.
pub(crate) fn peek_manifest(stream: impl Read) -> Option<Manifest> {
    let stream = Bounded { inner: stream, left: 4 << 20, exceeded: false };
    let mut tar = tar::Archive::new(stream);
    let mut entry = tar.entries().ok()?.next()?.ok()?;
    let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    if !entry.header().entry_type().is_file() || name.rsplit('/').next() != Some(MANIFEST) {
        return None;
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text).ok()?;
    parse_manifest(&text).ok()
}

/// Names in the root directory of a host.
const TOP: [&str; 4] = ["proc", "sys", "etc", "sos_commands"];

/// Removes directories that contain everything, such as `tar` and sos put in front.
fn strip(mut flat: MemorySource) -> MemorySource {
    for _ in 0..4 {
        let mut top: Vec<&str> =
            flat.files().map(|(path, _)| path.split('/').next().unwrap_or(path)).collect();
        top.extend(flat.directories().map(|(path, _)| path.split('/').next().unwrap_or(path)));
        top.sort_unstable();
        top.dedup();
        let [only] = top[..] else { break };
        let known = TOP.contains(&only) || samples::seconds_of(only).is_some() || flat.get(only).is_some();
        if known {
            break;
        }
        let only = only.to_owned();
        flat = flat.descend(&only);
    }
    flat
}

/// An archive to be written.
#[derive(Debug, Default)]
pub struct ArchiveWriter {
    /// The manifest; `samples` and `not_read` are filled in from `samples` below.
    pub manifest: Manifest,
    /// The instants, ordered by their seconds after the first.
    pub samples: Vec<(f64, MemorySource)>,
}

impl ArchiveWriter {
    /// The name of the directory that holds everything: `lotsfree-HOST-DATE`, in UTC.
    pub fn directory(&self) -> String {
        let fit = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
        let host: String = self.manifest.host.chars().map(fit).take(64).collect();
        let host = host.trim_start_matches(['.', '-']);
        let host = if host.is_empty() { "host" } else { host };
        let at = jiff::Timestamp::from_second(self.manifest.taken_at as i64).unwrap_or_default();
        format!("lotsfree-{host}-{}", at.strftime("%Y%m%dT%H%M%SZ"))
    }

    /// The archive as bytes. `most` bounds the bytes of all files together.
    ///
    /// # Errors
    /// If the files exceed `most` bytes, or there is no instant.
    pub fn to_bytes(&self, most: u64) -> Result<Vec<u8>, ArchiveError> {
        if self.samples.is_empty() {
            return Err(ArchiveError::Empty);
        }
        let mut manifest = self.manifest.clone();
        manifest.format = FORMAT;
        manifest.samples = self.samples.iter().map(|&(seconds, _)| ManifestSample { seconds }).collect();
        manifest.not_read = self.not_read();
        let mut size = 0u64;
        for contents in self.samples.iter().flat_map(|(_, source)| source.files()).map(|(_, file)| file) {
            size += contents.as_ref().map_or(0, |contents| contents.len() as u64);
        }
        if size > most {
            return Err(ArchiveError::TooLong(most));
        }
        let failed = |error: io::Error| ArchiveError::Broken(error.to_string());
        let mut json = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| ArchiveError::Manifest(error.to_string()))?;
        json.push(b'\n');
        let encoder = zstd::stream::write::Encoder::new(Vec::new(), 6).map_err(failed)?;
        let mut tar = tar::Builder::new(encoder);
        let directory = self.directory();
        let seconds = manifest.taken_at.max(0.0) as u64;
        add(&mut tar, &format!("{directory}/{MANIFEST}"), Some(&json), seconds).map_err(failed)?;
        let ambiguous =
            self.samples.iter().any(|(_, s)| s.files().any(|(path, _)| prefix_of(path).is_some()));
        let bare = self.samples.len() == 1 && !ambiguous;
        for (at, source) in &self.samples {
            let prefix = if bare { directory.clone() } else { format!("{directory}/{at}s") };
            let empty = source.directories().filter(|(_, listing)| listing.is_ok());
            let mut entries: BTreeMap<&str, Option<&[u8]>> = empty.map(|(path, _)| (path, None)).collect();
            for (path, contents) in source.files() {
                if let Ok(contents) = contents
                    && path != MANIFEST
                {
                    entries.insert(path, Some(contents));
                }
            }
            for (path, contents) in entries {
                if safe(path).is_some() {
                    add(&mut tar, &format!("{prefix}/{path}"), contents, seconds).map_err(failed)?;
                }
            }
        }
        tar.into_inner().and_then(zstd::stream::write::Encoder::finish).map_err(failed)
    }

    fn not_read(&self) -> Vec<NotRead> {
        let why = |error: &ReadError| match error {
            ReadError::Denied => Some("denied".to_owned()),
            ReadError::NotRegular => Some("not-regular".to_owned()),
            ReadError::Io(why) => Some(why.clone()),
            ReadError::Absent => None,
        };
        let mut all = Vec::new();
        for (sample, (_, source)) in self.samples.iter().enumerate() {
            for (path, listing) in source.directories() {
                if let Some(why) = listing.as_ref().err().and_then(why) {
                    all.push(NotRead { sample, path: format!("{path}/"), why });
                }
            }
            for (path, contents) in source.files() {
                if let Some(why) = contents.as_ref().err().and_then(why) {
                    all.push(NotRead { sample, path: path.to_owned(), why });
                }
            }
        }
        all
    }

    /// Writes the archive to `path`, either complete or not at all, readable by its owner only. The bytes are
    /// made in memory first, written to a temporary file beside `path`, synced and renamed.
    ///
    /// # Errors
    /// If the files exceed `most` bytes, or `path` cannot be written or is something other than a file.
    pub fn write(&self, path: &Path, most: u64) -> Result<u64, ArchiveError> {
        let bytes = self.to_bytes(most)?;
        lotsfree_storage::replace(path, lotsfree_storage::Access::Private, &bytes)
            .map_err(|error| ArchiveError::Write { path: path.to_owned(), why: error.to_string() })?;
        Ok(bytes.len() as u64)
    }
}

fn add(tar: &mut tar::Builder<impl Write>, path: &str, contents: Option<&[u8]>, at: u64) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mtime(at);
    let kind = if contents.is_some() { tar::EntryType::Regular } else { tar::EntryType::Directory };
    header.set_entry_type(kind);
    header.set_mode(if contents.is_some() { 0o644 } else { 0o755 });
    let contents = contents.unwrap_or_default();
    header.set_size(contents.len() as u64);
    tar.append_data(&mut header, path, contents)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::Source;
    use super::*;
    use proptest::prelude::*;

    /// A tar whose names are written into the header unchanged.
    fn raw(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, kind, contents) in entries {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(contents.len() as u64);
            header.set_mode(0o644);
            if matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link) {
                header.set_link_name("/etc/shadow").unwrap();
            }
            header.set_cksum();
            out.extend_from_slice(header.as_bytes());
            out.extend_from_slice(contents);
            out.resize(out.len().next_multiple_of(512), 0);
        }
        out.extend_from_slice(&[0; 1024]);
        out
    }

    use tar::EntryType as Kind;

    #[test]
    fn hostile_entries_are_refused_and_the_rest_is_kept() {
        let tar = raw(&[
            ("proc/meminfo", Kind::Regular, b"first"),
            ("../../etc/cron.d/x", Kind::Regular, b"bad"),
            ("/etc/passwd", Kind::Regular, b"bad"),
            ("proc/../../x", Kind::Regular, b"bad"),
            ("proc/vmstat", Kind::Symlink, b""),
            ("proc/zoneinfo", Kind::Link, b""),
            ("dev/sda", Kind::Block, b""),
            ("dev/tty", Kind::Char, b""),
            ("proc/pipe", Kind::Fifo, b""),
            ("proc/meminfo", Kind::Regular, b"second"),
            ("proc/odd", Kind::new(b'?'), b""),
        ]);
        let archive = Archive::read(&tar[..], &Bounds::default()).unwrap();
        let [(0.0, source)] = &archive.samples[..] else { panic!() };
        assert_eq!(source.get("proc/meminfo"), Some(&b"second"[..]));
        assert_eq!(source.files().count(), 1);
        assert_eq!(archive.refused_total, 10, "{:?}", archive.refused);
        let why: Vec<_> = archive.refused.iter().map(|refused| refused.why).collect();
        for expected in ["absolute name", "symbolic link", "hard link", "device", "pipe"] {
            assert!(why.contains(&expected), "{expected}: {why:?}");
        }
    }

    #[test]
    fn pax_names_are_checked_and_pax_sparse_files_refused() {
        let record = |key: &str, value: &str| {
            let body = format!(" {key}={value}\n");
            let mut length = body.len() + 1;
            while length.to_string().len() + body.len() != length {
                length += 1;
            }
            format!("{length}{body}")
        };
        let zip_slip = record("path", "../../../etc/shadow");
        let sparse = record("GNU.sparse.major", "1");
        let nonsense = "999999999999999999999 path=x\n";
        let tar = raw(&[
            ("PaxHeaders/1", Kind::XHeader, zip_slip.as_bytes()),
            ("proc/a", Kind::Regular, b"bad"),
            ("PaxHeaders/2", Kind::XHeader, sparse.as_bytes()),
            ("proc/b", Kind::Regular, b"bad"),
            ("PaxHeaders/3", Kind::XHeader, nonsense.as_bytes()),
            ("proc/c", Kind::Regular, b"good"),
        ]);
        let archive = Archive::read(&tar[..], &Bounds::default()).unwrap();
        assert_eq!(archive.samples[0].1.files().count(), 1);
        assert_eq!(archive.samples[0].1.get("proc/c"), Some(&b"good"[..]));
        assert_eq!(archive.refused_total, 2);
    }

    #[test]
    fn bounds_have_their_own_errors() {
        let bounds = Bounds { total: 1 << 20, file: 4096, entries: 3 };
        let tar = raw(&[("proc/x", Kind::Regular, &b"1"[..]); 4]);
        assert!(matches!(Archive::read(&tar[..], &bounds), Err(ArchiveError::TooMany(3))));
        let tar = raw(&[("proc/x", Kind::Regular, &[b'a'; 5000]), ("proc/y", Kind::Regular, b"1")]);
        let archive = Archive::read(&tar[..], &bounds).unwrap();
        let mut buffer = Vec::new();
        assert!(matches!(archive.samples[0].1.read("proc/x", 9, &mut buffer), Err(ReadError::Io(_))));
        assert_eq!(archive.refused[0].why, "file too large");
        let big = vec![0u8; 2 << 20];
        let tar = raw(&[("proc/x", Kind::Regular, &big)]);
        assert!(matches!(Archive::read(&tar[..], &bounds), Err(ArchiveError::TooLong(_))));
        assert!(matches!(Archive::read(&raw(&[])[..], &bounds), Err(ArchiveError::Empty)));
    }

    #[test]
    fn a_bomb_of_zeros_stops_at_the_bound() {
        // A tar header that promises 8 GiB, followed by zeros: a few hundred KiB when compressed.
        let mut header = tar::Header::new_gnu();
        header.set_path("proc/x").unwrap();
        header.set_size(8 << 30);
        header.set_cksum();
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.write_all(header.as_bytes()).unwrap();
        for _ in 0..512 {
            encoder.write_all(&[0; 1 << 20]).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 1 << 20);
        let error = Archive::read_zstd(&bomb[..], &Bounds::default()).unwrap_err();
        assert!(error.to_string().contains("more than 256 MiB"), "{error}");
        // The same header inside a long-name entry, which the tar reader would collect in memory.
        let mut header = tar::Header::new_gnu();
        header.set_path("././@LongLink").unwrap();
        header.set_entry_type(Kind::GNULongName);
        header.set_size(8 << 30);
        header.set_cksum();
        let stream = header.as_bytes()[..].chain(io::repeat(b'a'));
        let bounds = Bounds { total: 4 << 20, ..Bounds::default() };
        assert!(matches!(Archive::read(stream, &bounds), Err(ArchiveError::TooLong(_))));
    }

    fn example(instants: usize) -> ArchiveWriter {
        let mut writer = ArchiveWriter {
            manifest: Manifest {
                lotsfree: "0.1.0".into(),
                taken_at: 1_321_753_560.0,
                page_size: 4096,
                host: "db1".into(),
                redaction: "standard".into(),
                kernel: "6.12.0".into(),
                ..Manifest::default()
            },
            samples: Vec::new(),
        };
        for i in 0..instants {
            let mut source = MemorySource::default();
            source.insert("proc/vmstat", format!("pgscan_direct {i}\n"));
            source.insert(format!("proc/{}/stat", 100 + i), "x");
            source.insert(format!("sys/{}/x", "long".repeat(60)), "long name");
            source.insert_error("proc/pagetypeinfo", ReadError::Denied);
            source.insert_error("proc/kcore", ReadError::Io("input/output error".into()));
            source.insert_directory("sys/empty", Ok(()));
            source.insert_directory("sys/closed", Err(ReadError::Denied));
            writer.samples.push((i as f64 * 2.5, source));
        }
        writer
    }

    #[test]
    fn own_archives_are_read_back_whole() {
        for instants in [1, 3] {
            let writer = example(instants);
            let bytes = writer.to_bytes(1 << 20).unwrap();
            assert_eq!(bytes, writer.to_bytes(1 << 20).unwrap(), "the same bytes each time");
            let archive = Archive::read_zstd(&bytes[..], &Bounds::default()).unwrap();
            assert_eq!(archive.refused_total, 0, "{:?}", archive.refused);
            let manifest = archive.manifest.unwrap();
            assert_eq!((manifest.format, manifest.page_size, manifest.samples.len()), (1, 4096, instants));
            assert_eq!(peek_manifest(decompress(&bytes[..]).unwrap()), Some(manifest));
            assert_eq!(archive.samples.len(), instants);
            for ((at, was), (read_at, read)) in writer.samples.iter().zip(&archive.samples) {
                assert_eq!(at, read_at);
                for (path, contents) in was.files() {
                    let mut buffer = Vec::new();
                    let outcome = read.read(path, 1 << 20, &mut buffer).map(|_| buffer);
                    assert_eq!(&outcome, contents, "{path}");
                }
                assert_eq!(read.list("proc"), was.list("proc"), "a later instant inherits nothing");
                assert_eq!(read.list("sys/empty"), Ok(vec![]));
                assert_eq!(read.list("sys/closed"), Err(ReadError::Denied));
            }
        }
    }

    #[test]
    fn manifests_of_later_formats_are_refused() {
        let refuse = |json: &[u8]| {
            let tar = raw(&[("a/lotsfree.json", Kind::Regular, json), ("a/proc/x", Kind::Regular, b"")]);
            Archive::read(&tar[..], &Bounds::default()).unwrap_err().to_string()
        };
        assert!(refuse(br#"{"format": 2}"#).contains("newer"));
        assert!(refuse(b"{").starts_with("lotsfree.json"));
        assert!(refuse(br#"{"samples": [{"seconds": 5}, {"seconds": 0}]}"#).contains("rise"));
    }

    #[test]
    fn writing_is_all_or_nothing_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.tar.zst");
        let length = example(1).write(&path, 1 << 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(example(1).write(&path, 1), Err(ArchiveError::TooLong(1))));
        assert_eq!(fs::metadata(&path).unwrap().len(), length, "the old one stays");
        assert!(example(1).write(directory.path(), 1 << 20).is_err());
        assert!(example(1).write(&directory.path().join("no/such"), 1 << 20).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn one_leading_directory_is_stripped() {
        let tar = raw(&[
            ("./sosreport-db1/proc/meminfo", Kind::Regular, b"m"),
            ("./sosreport-db1/sos_commands/x", Kind::Regular, b"s"),
        ]);
        let archive = Archive::read(&tar[..], &Bounds::default()).unwrap();
        assert_eq!(archive.samples[0].1.get("proc/meminfo"), Some(&b"m"[..]));
        let tar = raw(&[("proc/meminfo", Kind::Regular, b"m")]);
        let archive = Archive::read(&tar[..], &Bounds::default()).unwrap();
        assert_eq!(archive.samples[0].1.get("proc/meminfo"), Some(&b"m"[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = Archive::read(&bytes[..], &Bounds::default());
            bytes.splice(0..0, ZSTD_MAGIC);
            let _ = Archive::read_zstd(&bytes[..], &Bounds::default());
        }

        #[test]
        fn damaged_archives_are_read_without_a_panic(
            at in 0usize..4096, byte in any::<u8>(), cut in 0usize..4096
        ) {
            let mut tar = raw(&[
                ("PaxHeaders/1", Kind::XHeader, b"12 path=abc\n"),
                ("proc/a", Kind::Regular, b"good"),
                ("proc/b", Kind::GNUSparse, b"bad"),
            ]);
            let length = tar.len();
            tar[at % length] = byte;
            tar.truncate(length - cut % length);
            let _ = Archive::read(&tar[..], &Bounds::default());
        }
    }
}
