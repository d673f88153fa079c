//! [`Recorder`]: a copy of everything that is read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lotsfree_kernel_files::file::unlinked;

use super::redact::Redactor;
use super::{Holder, MemorySource, ReadError, Source};

/// Limits on the copy of a [`Recorder`].
#[derive(Clone, Copy, Debug)]
pub struct RecordLimits {
    /// Bytes of all files together.
    pub total: usize,
    /// Bytes of one file.
    pub file: usize,
    /// Number of files.
    pub files: usize,
}

impl Default for RecordLimits {
    fn default() -> Self {
        RecordLimits { total: 128 << 20, file: 8 << 20, files: 100_000 }
    }
}

/// Passes files of another source on unchanged and keeps a redacted copy of each, so that an archive holds
/// exactly the files that were read.
///
/// Listings follow from the names of the files that were read. A directory that was listed without any such
/// file, or could not be listed, is kept as such. A name that was listed and never read is kept as a file
/// that could not be read (`listed, not read`), except in `/proc` and below `/sys/fs/cgroup`, where most
/// names are never read. A file that was read up to a limit is kept with one more byte, so that reading it
/// again with that limit shows that it is longer.
#[derive(Debug)]
pub struct Recorder<S> {
    inner: S,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    kept: MemorySource,
    /// Length of each file as it was read, by the path that was asked for.
    seen: BTreeMap<String, usize>,
    limits: RecordLimits,
    redactor: Redactor,
    bytes: usize,
    left_out: u64,
    /// Names that were listed and need not be implied by a file.
    listed: BTreeSet<String>,
}

/// The copy made by a [`Recorder`].
#[derive(Debug)]
pub struct Recorded {
    /// The files, redacted.
    pub source: MemorySource,
    /// Number of files that did not fit.
    pub left_out: u64,
    /// The redactor, for the next instant, so that the same name gets the same pseudonym.
    pub redactor: Redactor,
}

impl<S: Source> Recorder<S> {
    /// Starts a copy.
    pub fn new(inner: S, limits: RecordLimits, redactor: Redactor) -> Self {
        let kept = MemorySource::default();
        let state = State {
            kept,
            seen: BTreeMap::new(),
            limits,
            redactor,
            bytes: 0,
            left_out: 0,
            listed: BTreeSet::new(),
        };
        Recorder { inner, state: RefCell::new(state) }
    }

    /// Ends the copy.
    pub fn finish(self) -> Recorded {
        let State { mut kept, left_out, mut redactor, listed, .. } = self.state.into_inner();
        for path in listed {
            let Some(kept_path) = redactor.path(&path).or_else(|| redactor.directory(&path)) else {
                continue;
            };
            let (directory, name) = kept_path.rsplit_once('/').unwrap_or(("", &kept_path));
            if kept
                .list(directory)
                .is_ok_and(|names| names.binary_search_by(|n| n.as_str().cmp(name)).is_err())
            {
                kept.insert_error(kept_path, ReadError::Io("listed, not read".into()));
            }
        }
        Recorded { source: kept, left_out, redactor }
    }
}

impl State {
    fn file(&mut self, path: &str, outcome: Result<&[u8], &ReadError>) {
        let length = outcome.map_or(0, <[u8]>::len);
        let before = self.seen.get(path).copied();
        if before.is_some_and(|before| before >= length) {
            return;
        }
        if before.is_none() && self.seen.len() >= self.limits.files {
            self.left_out += 1;
            return;
        }
        let Some(kept_path) = self.redactor.path(path) else { return };
        let contents = match outcome {
            Err(ReadError::Absent) => return,
            Err(error) => {
                self.seen.insert(path.to_owned(), 0);
                self.kept.insert_error(kept_path, self.redactor.error(error));
                return;
            }
            Ok(contents) => contents,
        };
        let old = self.kept.get(&kept_path).map_or(0, <[u8]>::len);
        let redacted = if length > self.limits.file { None } else { self.redactor.contents(path, contents) };
        let too_long = length > self.limits.file;
        match redacted {
            Some(redacted) if self.bytes - old + redacted.len() <= self.limits.total => {
                self.seen.insert(path.to_owned(), length);
                self.bytes = self.bytes - old + redacted.len();
                self.kept.insert(kept_path, redacted);
            }
            None if !too_long => {}
            _ => {
                self.seen.insert(path.to_owned(), length);
                self.left_out += 1;
                if old == 0 {
                    self.kept.insert_error(kept_path, ReadError::Io("read, but not kept: too large".into()));
                }
            }
        }
    }

    fn directory(&mut self, path: &str, outcome: Result<(), &ReadError>) {
        if matches!(outcome, Err(ReadError::Absent)) || self.kept.directories_len() >= self.limits.files {
            return;
        }
        if let Some(kept) = self.redactor.directory(path) {
            self.kept.insert_directory(kept, outcome.map_err(|error| self.redactor.error(error)));
        }
    }
}

impl<S: Source> Source for Recorder<S> {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        let outcome = self.inner.read(path, limit.saturating_add(1), buffer);
        self.state.borrow_mut().file(path, outcome.as_ref().map(|_| buffer.as_slice()));
        let longer = outcome? || buffer.len() > limit;
        buffer.truncate(limit);
        Ok(longer)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        let outcome = self.inner.list(directory);
        let mut state = self.state.borrow_mut();
        state.directory(directory, outcome.as_ref().map(|_| ()));
        if let Ok(names) = &outcome {
            state.redactor.learn_names(directory, names);
        }
        if let Ok(names) = &outcome
            && directory != "proc"
            && !directory.starts_with("sys/fs/cgroup")
        {
            let room = state.limits.files.saturating_sub(state.listed.len());
            state.listed.extend(names.iter().take(room).map(|name| format!("{directory}/{name}")));
        }
        drop(state);
        outcome
    }

    fn unlinked(&self, holders: &[Holder], budget: Duration, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        let outcome = self.inner.unlinked(holders, budget, buffer);
        self.state.borrow_mut().file(unlinked::PATH, outcome.as_ref().map(|()| buffer.as_slice()));
        outcome
    }

    fn is_live(&self) -> bool {
        self.inner.is_live()
    }
}

#[cfg(test)]
mod tests {
    use super::super::redact::Redaction;
    use super::*;

    fn host() -> MemorySource {
        let mut source = MemorySource::default();
        source.insert("proc/sys/kernel/hostname", "db1.example.com\n");
        source.insert("proc/meminfo", "MemTotal: 1 kB\n");
        source.insert("proc/vmstat", "pgfault 1\n");
        source.insert("proc/secret", "not asked for");
        source.insert_error("proc/pagetypeinfo", ReadError::Denied);
        source.insert_directory("sys/empty", Ok(()));
        source.insert_directory("sys/closed", Err(ReadError::Denied));
        source
    }

    #[test]
    fn the_copy_answers_as_the_original_did() {
        let recorder = Recorder::new(host(), RecordLimits::default(), Redactor::new(Redaction::Full));
        let questions = |source: &dyn Source| {
            let mut answers = Vec::new();
            let mut buffer = Vec::new();
            for (path, limit) in
                [("proc/meminfo", 100), ("proc/vmstat", 4), ("proc/pagetypeinfo", 9), ("proc/none", 9)]
            {
                let outcome = source.read(path, limit, &mut buffer);
                answers.push(format!("{outcome:?} {buffer:?}"));
            }
            for path in ["sys/empty", "sys/closed", "sys/none"] {
                answers.push(format!("{:?}", source.list(path)));
            }
            answers
        };
        let was = questions(&recorder);
        let recorded = recorder.finish();
        assert_eq!(questions(&recorded.source), was);
        assert!(was[1].starts_with("Ok(true)"));
        assert_eq!(recorded.source.get("proc/secret"), None);
        assert_eq!(recorded.left_out, 0);
    }

    /// Records every captured host while it is collected, archives it, reads it again and collects it again.
    #[test]
    fn captured_hosts_are_the_same_after_an_archive() {
        use super::super::archive::{Archive, ArchiveWriter, Bounds, Manifest};
        use super::super::text::TextArchive;
        use serde_json::Value;

        let hosts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts");
        let options = crate::Options::default();
        let mut seen = 0;
        for entry in std::fs::read_dir(hosts).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "txt") {
                continue;
            }
            seen += 1;
            let text = TextArchive::parse(&std::fs::read(&path).unwrap()).unwrap();
            for level in [Redaction::Full, Redaction::Standard] {
                let mut redactor = Redactor::new(level);
                let mut samples = Vec::new();
                let mut was: Vec<Value> = Vec::new();
                for (at, source) in &text.samples {
                    let recorder = Recorder::new(source.clone(), RecordLimits::default(), redactor);
                    was.push(serde_json::to_value(crate::collect(&recorder, &options)).unwrap());
                    let recorded = recorder.finish();
                    assert_eq!(recorded.left_out, 0);
                    samples.push((*at, recorded.source));
                    redactor = recorded.redactor;
                }
                let writer = ArchiveWriter { manifest: Manifest::default(), samples };
                let bytes = writer.to_bytes(1 << 30).unwrap();
                let archive = Archive::read_zstd(&bytes[..], &Bounds::default()).unwrap();
                assert_eq!(archive.samples.len(), was.len());
                for ((_, source), was) in archive.samples.iter().zip(&was) {
                    let is = serde_json::to_value(crate::collect(source, &options)).unwrap();
                    for (member, value) in was.as_object().unwrap() {
                        let label = format!("{} {member} {level:?}", path.display());
                        // Names are replaced; everything else must be unchanged.
                        let nameless = |value: &Value| match value {
                            Value::Array(all) => all.len().to_string(),
                            other => other.to_string(),
                        };
                        let named = ["host", "processes", "cgroups", "mounts", "swaps", "kernel_log"];
                        match level {
                            Redaction::Full => assert_eq!(&is[member], value, "{label}"),
                            Redaction::Standard if member == "processes" => {
                                for (is, was) in
                                    is[member].as_array().unwrap().iter().zip(value.as_array().unwrap())
                                {
                                    assert_eq!(is["status"], was["status"], "{label}");
                                    assert_eq!(is["stat"]["rss_pages"], was["stat"]["rss_pages"], "{label}");
                                }
                                assert_eq!(nameless(&is[member]), nameless(value), "{label}");
                            }
                            Redaction::Standard if member == "cgroups" => {
                                assert_eq!(
                                    nameless(&is[member]["groups"]),
                                    nameless(&value["groups"]),
                                    "{label}"
                                );
                            }
                            Redaction::Standard if named.contains(&member.as_str()) => {
                                assert_eq!(is[member].is_null(), value.is_null(), "{label}");
                            }
                            Redaction::Standard => assert_eq!(&is[member], value, "{label}"),
                        }
                    }
                }
                let text_again = TextArchive { comment: String::new(), samples: archive.samples };
                let read = TextArchive::parse(&text_again.print()).unwrap();
                assert_eq!(read.samples.len(), was.len());
            }
        }
        assert!(seen > 0, "no captured host in {hosts}");
    }

    #[test]
    fn names_that_were_only_listed_stay() {
        let mut source = MemorySource::default();
        source.insert("etc/systemd/system/multi-user.target.wants/saptune.service", "");
        source.insert("etc/systemd/system/multi-user.target.wants/acme.service", "");
        source.insert("proc/kcore", "");
        let recorder = Recorder::new(source, RecordLimits::default(), Redactor::new(Redaction::Standard));
        let wants = "etc/systemd/system/multi-user.target.wants";
        recorder.list(wants).unwrap();
        recorder.list("proc").unwrap();
        let kept = recorder.finish().source;
        assert_eq!(kept.list(wants).unwrap(), ["saptune.service"]);
        assert_eq!(kept.list("proc").unwrap(), [""; 0]);
    }

    #[test]
    fn a_longer_second_reading_replaces_the_first() {
        let recorder = Recorder::new(host(), RecordLimits::default(), Redactor::new(Redaction::Full));
        let mut buffer = Vec::new();
        recorder.read("proc/meminfo", 3, &mut buffer).unwrap();
        assert_eq!(buffer, b"Mem");
        recorder.read("proc/meminfo", 100, &mut buffer).unwrap();
        recorder.read("proc/meminfo", 3, &mut buffer).unwrap();
        assert_eq!(recorder.finish().source.get("proc/meminfo"), Some(&b"MemTotal: 1 kB\n"[..]));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        for limits in [
            RecordLimits { total: 16, ..RecordLimits::default() },
            RecordLimits { file: 10, ..RecordLimits::default() },
            RecordLimits { files: 1, ..RecordLimits::default() },
        ] {
            let recorder = Recorder::new(host(), limits, Redactor::new(Redaction::Full));
            let mut buffer = Vec::new();
            recorder.read("proc/vmstat", 100, &mut buffer).unwrap();
            recorder.read("proc/meminfo", 100, &mut buffer).unwrap();
            assert_eq!(buffer, b"MemTotal: 1 kB\n", "the reader always gets the file");
            let recorded = recorder.finish();
            assert_eq!((recorded.left_out, recorded.source.get("proc/meminfo")), (1, None), "{limits:?}");
        }
    }
}
