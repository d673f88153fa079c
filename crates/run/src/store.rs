//! The directory of a run: its files, their bounds, and their checksums.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use lotsfree_storage::{self as storage, Access, Fnv1a};
use serde::{Deserialize, Serialize};

use crate::Facts;

/// Version of the directory's format. It is raised when an older lotsfree could not read the new one.
pub(crate) const FORMAT: u32 = 1;

pub(crate) const HEAD: &str = "run.json";
pub(crate) const SCENARIO: &str = "scenario.toml";
pub(crate) const SAMPLES: &str = "samples.parquet";
pub(crate) const ACTORS: &str = "actors.parquet";
pub(crate) const EVENTS: &str = "events.jsonl";
pub(crate) const SUMMARY: &str = "summary.json";
pub(crate) const TIMING: &str = "timing.json";
pub(crate) const JOURNAL: &str = "journal";
/// The end of a file's name until the file is whole.
pub(crate) const PARTIAL: &str = ".partial";

/// Every file of a run.
pub(crate) const FILES: [&str; 8] = [HEAD, SCENARIO, SAMPLES, ACTORS, EVENTS, SUMMARY, TIMING, JOURNAL];

// Bounds for reading, as a run may come from anybody; the writer keeps within them. Each is several times
// what the largest reasonable run takes: a day, sampled every second, on a host of hundreds of CPUs.

/// Bytes of `run.json`. 256 nodes with their distances to each other take 1 MiB, 8,192 CPUs 128 KiB.
pub(crate) const MOST_HEAD: u64 = 4 << 20;
/// Bytes of `scenario.toml`. Scenario files have at most 1 MiB; this one has defaults written out.
pub(crate) const MOST_SCENARIO: u64 = 16 << 20;
/// Bytes of `timing.json`, which has two numbers.
pub(crate) const MOST_TIMING: u64 = 64 << 10;
/// Bytes of a journal: a day of 1,500 counters and ten roles takes some 500 MB. It is read record by record.
pub(crate) const MOST_JOURNAL: u64 = 2 << 30;
/// Bytes of a table; the tables of such a day take some 200 MB.
pub(crate) const MOST_TABLE: u64 = 1 << 30;
/// Bytes of `events.jsonl`: a million events of some 100 bytes. In memory they take up to four times as much.
pub(crate) const MOST_EVENTS: u64 = 128 << 20;
/// Samples times counters: enough for 1,550 counters for a day. Each takes 9 bytes in memory, 1.1 GiB
/// together.
pub(crate) const MOST_CELLS: u64 = 1 << 27;
/// Counters: each of 8,192 CPUs has three in each of four zones, and there are some hundred others per zone.
pub(crate) const MOST_COLUMNS: usize = 1 << 17;
/// Rows of the actors' intervals: enough for 48 roles for a day. Each takes some 150 bytes in memory, without
/// its histogram.
pub(crate) const MOST_INTERVALS: usize = 1 << 22;
/// Bytes of the histograms in these rows: some 128 per row.
pub(crate) const MOST_LATENCY: u64 = 512 << 20;

/// Whether a run has ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The run is being written, or its writer was killed or could not write.
    #[default]
    Running,
    /// The run was ended early; everything up to then is there.
    Interrupted,
    /// The run came to its end.
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
    /// The failure to write because of which the run did not end, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
}

impl Head {
    /// The keys of `run.json` without a checksum, as lotsfree 0.1.0 wrote it.
    pub(crate) const UNSEALED_KEYS: [&str; 4] = ["format", "state", "files", "facts"];
}

/// Length and checksum of a whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whole {
    pub(crate) bytes: u64,
    /// FNV-1a, 64 bits, hexadecimal.
    pub(crate) fnv1a: String,
}

impl Whole {
    /// Reads a file from its current position to its end.
    pub(crate) fn of_file(mut file: &File) -> io::Result<Self> {
        let (mut bytes, mut fnv) = (0, Fnv1a::default());
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

    /// Length and checksum of a file with these contents.
    pub(crate) fn of_bytes(contents: &[u8]) -> Self {
        Whole { bytes: contents.len() as u64, fnv1a: hexadecimal(Fnv1a::of(contents)) }
    }
}

fn hexadecimal(value: u64) -> String {
    format!("{value:016x}")
}

/// Writes a file under another name, syncs and renames it, so that it is whole or not there.
pub(crate) fn write_whole(directory: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    let partial = directory.join(format!("{name}{PARTIAL}"));
    let mut file = storage::create_new(&partial, Access::Umask)?;
    let written = file.write_all(contents).and_then(|()| file.sync());
    let written = written.and_then(|()| storage::rename(&partial, &directory.join(name)));
    // Half a file would take room that the disk may lack.
    written.inspect_err(|_| drop(storage::remove_file(&partial)))
}

/// JSON as in a run's files: indented, with a line feed at its end.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// Whether a run may have `rows` samples of `columns` counters.
pub(crate) fn fits(rows: usize, columns: usize) -> bool {
    columns <= MOST_COLUMNS && (rows as u64).saturating_mul(columns as u64) <= MOST_CELLS
}

/// The text before and after the digits of the checksum at the end of a JSON file.
const SEAL: (&[u8], &[u8]) = (b",\n  \"check\": \"", b"\"\n}\n");
const DIGITS: usize = 16;

/// JSON as [`json`] writes it, of an object to which a last key is added: the FNV-1a of all text before it.
pub(crate) fn sealed_json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut text = json(value)?;
    text.truncate(text.len().saturating_sub(b"\n}\n".len()));
    let check = hexadecimal(Fnv1a::of(&text));
    text.extend([SEAL.0, check.as_bytes(), SEAL.1].concat());
    Ok(text)
}

/// Result of checking the checksum of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seal {
    /// The text is as it was written.
    Whole,
    /// The text is not as it was written.
    Broken,
    /// There is no checksum, or its beginning or end is damaged.
    Absent,
}

impl Seal {
    /// Checks a text that [`sealed_json`] wrote, or one without a checksum. The exact bytes count: a
    /// difference that means nothing in JSON is damage here.
    pub(crate) fn of(text: &[u8]) -> Self {
        let sealed = text.strip_suffix(SEAL.1).and_then(|text| text.split_last_chunk::<DIGITS>());
        let Some((body, check)) = sealed.and_then(|(text, check)| Some((text.strip_suffix(SEAL.0)?, check)))
        else {
            return Seal::Absent;
        };
        if hexadecimal(Fnv1a::of(body)).as_bytes() == check { Seal::Whole } else { Seal::Broken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_broken_by_any_bit() {
        let timing = crate::Timing { started: 1.5, seconds: 2.5 };
        let sealed = sealed_json(&timing).unwrap();
        assert_eq!(Seal::of(&sealed), Seal::Whole);
        assert_eq!(serde_json::from_slice::<crate::Timing>(&sealed).unwrap(), timing);
        assert_eq!(Seal::of(&json(&timing).unwrap()), Seal::Absent);
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Seal::of(&flipped), Seal::Whole, "bit {bit}");
        }
    }
}
