//! What an ordinary user can see without tracepoints, as a part of the report.

use lotsfree_units::words::{duration, enumeration};
use lotsfree_units::{Bytes, Grouped, Percent};
use schemars::JsonSchema;
use serde::Serialize;

use super::tables::{Grid, MOST_ROWS, bytes, change, count};

/// What `/proc` alone says, where this user may not watch the kernel. Who lost time to whom is not in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Unwatched {
    /// Length of the time between the two looks, in seconds.
    pub seconds: f64,
    /// The part of the time in which some task of the host waited for memory (pressure stall information);
    /// `null` where the kernel does not measure it.
    pub stalled: Option<f64>,
    /// The part in which all tasks that had work to do did.
    pub stalled_all: Option<f64>,
    /// Bytes that were read from disks, swap included.
    pub read_bytes: u64,
    /// Pages that came back after they were evicted.
    pub refaults: u64,
    /// The programs that faulted, grew or read, or whose control group waited; those that waited most first,
    /// then those that grew most.
    pub programs: Vec<UnwatchedProgram>,
}

/// What can be seen of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct UnwatchedProgram {
    /// The program.
    pub program: String,
    /// Its control group; empty without one.
    pub group: String,
    /// The part of the time in which some task of its control group waited for memory; `null` where not
    /// known.
    pub stalled: Option<f64>,
    /// Major faults: pages read or swapped in when they were touched.
    pub major_faults: u64,
    /// How much its anonymous and shared memory grew, in bytes.
    pub grew_bytes: i64,
    /// Its anonymous and shared memory at the end, in bytes.
    pub held_bytes: u64,
    /// Bytes that it read from disks; `null` where this user may not know.
    pub read_bytes: Option<u64>,
    /// Whether it is the one that was asked for.
    pub is_asked: bool,
}

/// Less of the time than this reads as none.
const STALLED: f64 = 0.01;
/// The least growth and reads that a sentence names, in bytes.
const WORTH_NAMING: u64 = 64 << 20;
/// The most programs that a sentence names.
const MOST_NAMED: usize = 3;

impl Unwatched {
    /// With the programs in the order in which they are told.
    pub fn sorted(mut self) -> Self {
        let key = |program: &UnwatchedProgram| (program.stalled.unwrap_or(0.0), program.grew_bytes as f64);
        self.programs.sort_by(|a, b| {
            let ((a_stalled, a_grew), (b_stalled, b_grew)) = (key(a), key(b));
            b_stalled.total_cmp(&a_stalled).then(b_grew.total_cmp(&a_grew)).then(a.program.cmp(&b.program))
        });
        self
    }

    /// The name of the program that was asked for.
    pub(super) fn asked(&self) -> Option<String> {
        self.programs.iter().find(|program| program.is_asked).map(|program| program.program.clone())
    }

    /// The answer in words.
    pub(super) fn answer(&self) -> String {
        let looked = duration(self.seconds);
        let host = match self.stalled {
            None => format!("Whether this host waited for memory in {looked}, its kernel does not say"),
            Some(part) if part < STALLED => {
                format!("This host did not wait for memory to speak of ({} of {looked})", Percent(part))
            }
            Some(part) => format!("This host waited for memory in {} of {looked}", Percent(part)),
        };
        let of = self.programs.iter().find(|program| program.is_asked);
        let of = of.map(|program| format!("; {}", told(program))).unwrap_or_default();
        let unseen =
            "Whose time that was and who took the memory is not to be seen without the kernel's tracepoints.";
        format!("{host}{of}.{} {unseen}", self.meanwhile())
    }

    /// ` Meanwhile perl grew by 1.3 GiB, and 2.9 GiB were read from disks, 2.3 GiB of them by rsync.`
    fn meanwhile(&self) -> String {
        let mut growing: Vec<&UnwatchedProgram> =
            self.programs.iter().filter(|program| program.grew_bytes >= WORTH_NAMING as i64).collect();
        growing.sort_by_key(|program| std::cmp::Reverse(program.grew_bytes));
        let grew = |program: &&UnwatchedProgram| {
            format!("{} grew by {}", program.program, Bytes(program.grew_bytes.unsigned_abs()))
        };
        let mut parts: Vec<String> = growing.iter().take(MOST_NAMED).map(grew).collect();
        if self.read_bytes >= WORTH_NAMING {
            let reads = |program: &&UnwatchedProgram| program.read_bytes.unwrap_or(0);
            let most = self.programs.iter().max_by_key(reads).filter(|most| reads(most) >= WORTH_NAMING);
            let by = most.map(|most| format!(", {} of them by {}", Bytes(reads(&most)), most.program));
            parts.push(format!("{} were read from disks{}", Bytes(self.read_bytes), by.unwrap_or_default()));
        }
        match parts.is_empty() {
            true => String::new(),
            false => format!(" Meanwhile {}.", enumeration(&parts)),
        }
    }

    /// The programs as a table.
    pub(super) fn grid(&self) -> Grid {
        let unknown = || "unknown".to_owned();
        let row = |program: &UnwatchedProgram| {
            let cells = vec![
                program.stalled.map_or_else(unknown, |part| Percent(part).to_string()),
                count(program.major_faults),
                change(program.grew_bytes),
                bytes(program.held_bytes),
                program.read_bytes.map_or_else(unknown, bytes),
            ];
            (program.program.clone(), cells)
        };
        Grid {
            title: "What each program did",
            heads: vec!["program", "group waited", "major faults", "grew", "holds", "read"],
            rows: self.programs.iter().take(MOST_ROWS).map(row).collect(),
            groups: self.programs.iter().take(MOST_ROWS).map(|program| program.group.clone()).collect(),
            left_out: self.programs.len().saturating_sub(MOST_ROWS),
        }
    }
}

/// `postgres had 1,204 major faults, and its control group /db waited in 41 % of it`
fn told(program: &UnwatchedProgram) -> String {
    let faults = match program.major_faults {
        0 => "no major fault (reading files makes none)".to_owned(),
        1 => "one major fault".to_owned(),
        faults => format!("{} major faults", Grouped(faults)),
    };
    let group = program
        .stalled
        .map(|part| format!(", and its control group {} waited in {} of it", program.group, Percent(part)));
    format!("{} had {faults}{}", program.program, group.unwrap_or_default())
}
