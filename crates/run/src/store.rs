//! The directory of a run: which files there are, and when they are whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use lotsfree_storage::{self as storage, Access};
use serde::{Deserialize, Serialize};

use crate::Facts;
use crate::bytes::Fnv;

/// Version of the directory's format; raised when an older lotsfree could not read it.
pub(crate) const FORMAT: u32 = 1;

pub(crate) const HEAD: &str = "run.json";
pub(crate) const SCENARIO: &str = "scenario.toml";
pub(crate) const SAMPLES: &str = "samples.parquet";
pub(crate) const ACTORS: &str = "actors.parquet";
pub(crate) const EVENTS: &str = "events.jsonl";
pub(crate) const SUMMARY: &str = "summary.json";
pub(crate) const TIMING: &str = "timing.json";
pub(crate) const JOURNAL: &str = "journal";
/// What a file is called until it is whole.
pub(crate) const PARTIAL: &str = ".partial";

/// Every file of a run.
pub(crate) const FILES: [&str; 8] = [HEAD, SCENARIO, SAMPLES, ACTORS, EVENTS, SUMMARY, TIMING, JOURNAL];

/// Whether a run has ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is being written, or whoever wrote it was killed.
    #[default]
    Running,
    /// It was ended before its time; everything up to then is there.
    Interrupted,
    /// It came to its end.
    Complete,
}

/// `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) format: u32,
    pub(crate) state: State,
    /// The files that are whole, so that damage is seen before a file is read.
    pub(crate) files: BTreeMap<String, Whole>,
    pub(crate) facts: Facts,
}

/// How a whole file looks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whole {
    pub(crate) bytes: u64,
    /// FNV-1a, 64 bits, hexadecimal.
    pub(crate) fnv1a: String,
}

impl Whole {
    /// Of a file as it is.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let (mut bytes, mut fnv) = (0, Fnv::default());
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    fnv.add(buffer.get(..read).unwrap_or_default());
                    bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Whole { bytes, fnv1a: hexadecimal(fnv.value()) })
    }

    /// Of a file whose contents these are.
    pub(crate) fn of_bytes(contents: &[u8]) -> Self {
        Whole { bytes: contents.len() as u64, fnv1a: hexadecimal(Fnv::of(contents)) }
    }
}

fn hexadecimal(value: u64) -> String {
    format!("{value:016x}")
}

/// Writes a file under another name, syncs and renames it, so that it is whole or not there.
pub(crate) fn write_whole(directory: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    let partial = directory.join(format!("{name}{PARTIAL}"));
    let mut file = storage::create_new(&partial, Access::Umask)?;
    file.write_all(contents)?;
    file.sync()?;
    storage::rename(&partial, &directory.join(name))
}

/// JSON as it stands in a run's files: indented, with a line feed at its end.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}
