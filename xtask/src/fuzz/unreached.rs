//! `cargo xtask fuzz unreached`: lines of the readers that no input of the corpora reaches.
//!
//! The compiler leaves a table of the places that it counts in the binary (`__sancov_pcs`), libFuzzer says
//! which of them each input of a corpus reaches (`-merge_inner`), and the debug information says which lines
//! they are on. A line is unreached if there are places on it and none is reached in any function that it was
//! inlined into. An unreached branch is therefore not seen if it shares its line with a reached one, and code
//! that no target links is not listed. Functions that print, compare or copy are left out, because they do
//! not read. The binary is not the one that searches: it counts every block, also those whose execution
//! follows from that of others.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use object::{File, Object, ObjectSection};

use super::{Fuzzer, LONGEST, MEMORY_MIB, TIMEOUT, Target, corpus};
use crate::docs;

/// Code that reads, or that undoes changes from a journal that was read.
const READERS: [&str; 7] = [
    "crates/changes/src/",
    "crates/kernel-files/src/",
    "crates/run/src/",
    "crates/scenario/src/",
    "crates/snapshot/src/",
    "crates/units/src/",
    "crates/workload/src/",
];
/// Exceptions: code that writes, or queries this host. Other tests let each of its steps fail
/// (`tests/faults.rs`, `tests/kills.rs`).
const OTHERS: [&str; 10] = [
    "crates/changes/src/changes",
    "crates/changes/src/state.rs",
    "crates/run/src/facts.rs",
    "crates/run/src/memory.rs",
    "crates/run/src/parquet/write.rs",
    "crates/run/src/sink.rs",
    "crates/run/src/summary.rs",
    "crates/run/src/writer.rs",
    "crates/snapshot/src/source/recorder.rs",
    "crates/units/src/visible.rs",
];
/// Traits whose functions do not read.
const TRAITS: [&str; 9] = [
    "clone::Clone",
    "fmt::Debug",
    "fmt::Display",
    "cmp::",
    "hash::Hash",
    "JsonSchema",
    "ser::",
    "error::Error",
    "ops::drop",
];
/// Words per place in the table: its address, and whether a function begins there.
const ENTRY: usize = 2;

/// Prints the lines that none of the targets reaches.
#[allow(clippy::print_stdout, reason = "the list is the product, and is kept in a file or searched")]
pub(super) fn command(fuzzer: &Fuzzer, targets: &[&Target]) -> Result<(), Box<dyn Error>> {
    let binary = fs::read(&fuzzer.binary)?;
    let binary = File::parse(&*binary)?;
    let places = places(&binary)?;
    let mut reached = BTreeSet::new();
    for target in targets {
        fuzzer.seed(&target.name)?;
        let before = reached.len();
        reached.extend(reached_by(fuzzer, &target.name)?);
        eprintln!("{:10} {:>6} edges that no target before it has", target.name, reached.len() - before);
    }
    let lines = lines(&debug_information(&binary)?, &places, &reached)?;
    let mut count = 0;
    for (file, lines) in &lines {
        for range in ranges(lines) {
            count += range.end() - range.start() + 1;
            println!("{}", shown(file, range));
        }
    }
    let all = places.len();
    eprintln!("{count} lines of the readers unreached; {} of {all} edges of all code reached", reached.len());
    Ok(())
}

/// The addresses that are counted, in the order of libFuzzer's numbers.
fn places(binary: &File<'_>) -> Result<Vec<u64>, Box<dyn Error>> {
    let section = binary.section_by_name("__sancov_pcs").ok_or("the binary counts nothing")?;
    let (begin, data) = (section.address(), section.data()?);
    let words = data.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
    let mut words: Vec<u64> = words.collect();
    // A position-independent program has the addresses in its relocations instead.
    for (at, relocation) in binary.dynamic_relocations().into_iter().flatten() {
        if let Some(word) = at.checked_sub(begin).and_then(|at| words.get_mut(at as usize / 8)) {
            *word = relocation.addend().cast_unsigned();
        }
    }
    Ok(words.into_iter().step_by(ENTRY).collect())
}

type Lines<'b> = Context<EndianSlice<'b, LittleEndian>>;

/// The debug information that gives the lines of addresses.
fn debug_information<'b>(binary: &File<'b>) -> Result<Lines<'b>, Box<dyn Error>> {
    let dwarf = Dwarf::load(|section| -> Result<_, object::Error> {
        let section = binary.section_by_name(section.name());
        let data = section.map(|section| section.data()).transpose()?.unwrap_or_default();
        Ok(EndianSlice::new(data, LittleEndian))
    })?;
    Ok(Context::from_dwarf(dwarf).map_err(|error| error.to_string())?)
}

/// The numbers of the places that a target's corpus reaches.
fn reached_by(fuzzer: &Fuzzer, target: &str) -> Result<BTreeSet<usize>, Box<dyn Error>> {
    let mut inputs: Vec<PathBuf> = fs::read_dir(corpus(target))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    inputs.sort();
    let listed: String = inputs.iter().map(|path| format!("{}\n", path.display())).collect();
    let control = fuzzer.place.path().join("control");
    fs::write(&control, format!("{}\n0\n{listed}", inputs.len()))?;
    let output = fuzzer
        .command(target)
        .args(["-merge_inner=1".to_owned(), format!("-merge_control_file={}", control.display())])
        .args([format!("-max_len={LONGEST}"), format!("-rss_limit_mb={MEMORY_MIB}")])
        .arg(format!("-timeout={TIMEOUT}"))
        .output()?;
    if !output.status.success() {
        return Err(fuzzer.crash(target, &String::from_utf8_lossy(&output.stderr))?.into());
    }
    let control = fs::read_to_string(control)?;
    Ok(covered(&control).collect())
}

/// The numbers in lines `COV INPUT NUMBER…` of a control file.
fn covered(control: &str) -> impl Iterator<Item = usize> + '_ {
    let lines = control.lines().filter_map(|line| line.strip_prefix("COV "));
    lines.flat_map(|line| line.split(' ').skip(1).filter_map(|number| number.parse().ok()))
}

/// The lines of readers that have places, none of which is reached.
fn lines(
    known: &Lines<'_>,
    places: &[u64],
    reached: &BTreeSet<usize>,
) -> Result<BTreeMap<String, Vec<u32>>, Box<dyn Error>> {
    let mut seen: BTreeMap<(String, u32), bool> = BTreeMap::new();
    let root = docs::root();
    for (number, address) in places.iter().enumerate() {
        let frames = known.find_frames(*address).skip_all_loads();
        let mut frames = frames.map_err(|error| error.to_string())?;
        while let Some(frame) = frames.next().map_err(|error| error.to_string())? {
            let Some((file, line)) = frame.location.and_then(|at| Some((at.file?, at.line?))) else {
                continue;
            };
            let Some(file) = reader(file, &root) else { continue };
            let function = frame.function.as_ref().and_then(|name| Some(name.demangle().ok()?.into_owned()));
            if function.is_some_and(|name| prints_or_copies(&name)) {
                break;
            }
            *seen.entry((file, line)).or_default() |= reached.contains(&number);
            // Stop here: the outer frames are callers, whose lines are counted at their own places.
            break;
        }
    }
    let mut unreached: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for ((file, line), reached) in seen {
        if !reached {
            unreached.entry(file).or_default().push(line);
        }
    }
    Ok(unreached)
}

/// The path of a file below the repository's root; `None` if it does not belong to a reader.
fn reader(file: &str, root: &Path) -> Option<String> {
    let file = Path::new(file);
    // Debug information may name `fuzz/../crates`.
    let mut parts = Vec::new();
    for part in file.strip_prefix(root).unwrap_or(file).components() {
        match part {
            std::path::Component::ParentDir => drop(parts.pop()),
            part => parts.push(part.as_os_str().to_str()?),
        }
    }
    let file = parts.join("/");
    let of = |beginnings: &[&str]| beginnings.iter().any(|beginning| file.starts_with(beginning));
    (of(&READERS) && !of(&OTHERS)).then_some(file)
}

/// Whether a function, `<TYPE as TRAIT>::FUNCTION`, is of a trait whose functions do not read.
fn prints_or_copies(function: &str) -> bool {
    let implemented = function.split_once(" as ").map(|(_, rest)| rest);
    implemented.is_some_and(|rest| {
        let of = rest.split('>').next().unwrap_or_default();
        TRAITS.iter().any(|name| of.contains(name))
    })
}

/// Combines lines that follow one another into ranges.
fn ranges(lines: &[u32]) -> Vec<std::ops::RangeInclusive<u32>> {
    let mut ranges: Vec<std::ops::RangeInclusive<u32>> = Vec::new();
    for line in lines {
        match ranges.last_mut() {
            Some(range) if range.end() + 1 == *line => *range = *range.start()..=*line,
            _ => ranges.push(*line..=*line),
        }
    }
    ranges
}

/// Prints a range as `FILE:LINE: source` or `FILE:FIRST-LAST: source of the first`.
fn shown(file: &str, range: std::ops::RangeInclusive<u32>) -> String {
    let text = fs::read_to_string(docs::root().join(file)).unwrap_or_default();
    let source = text.lines().nth(*range.start() as usize - 1).unwrap_or_default().trim();
    match range.end() - range.start() {
        0 => format!("{file}:{}: {source}", range.start()),
        _ => format!("{file}:{}-{}: {source}", range.start(), range.end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reached_places_are_read_from_what_libfuzzer_writes() {
        let control =
            "2\n0\na\nb\nSTARTED 0 12\nFT 0 99 98\nCOV 0 3 17\nSTARTED 1 9\nFT 1 5\nCOV 1\nCOV 2 4\n";
        assert_eq!(covered(control).collect::<Vec<_>>(), [3, 17, 4]);
    }

    #[test]
    fn files_of_readers_are_named_from_the_root() {
        let root = Path::new("/r");
        assert_eq!(reader("/r/fuzz/../crates/run/src/wire.rs", root).unwrap(), "crates/run/src/wire.rs");
        assert_eq!(reader("/r/crates/units/src/lib.rs", root).unwrap(), "crates/units/src/lib.rs");
        assert_eq!(reader("/r/crates/engine/src/mm/mod.rs", root), None);
        assert_eq!(reader("/registry/zstd/src/lib.rs", root), None);
        assert_eq!(reader("/r/crates/run/src/writer.rs", root), None);
    }

    #[test]
    fn functions_of_traits_that_only_print_are_known() {
        assert!(prints_or_copies("<lotsfree_run::Facts as core::clone::Clone>::clone"));
        assert!(prints_or_copies("<lotsfree_run::store::Seal as core::cmp::PartialEq<X>>::eq"));
        assert!(!prints_or_copies("<lotsfree_run::Facts as serde_core::de::Deserialize>::deserialize"));
        assert!(!prints_or_copies("lotsfree_run::store::open"));
    }

    #[test]
    fn neighbouring_lines_are_one_range() {
        assert_eq!(ranges(&[3, 4, 5, 9, 11, 12]), [3..=5, 9..=9, 11..=12]);
        assert_eq!(ranges(&[]), []);
    }
}
