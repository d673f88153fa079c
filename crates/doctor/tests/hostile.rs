//! Ten thousand broken fixtures: none makes the doctor panic, hang, hoard memory, print nonsense or
//! contradict itself.
//!
//! The mutations are drawn from a seeded generator, so a failure comes again: it names the case, and the case
//! alone can be run with `HOSTILE_CASE=N`.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test helper may panic, and prints counts")]

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use fastrand::Rng;
use lotsfree_doctor::{Diagnosis, Finding, diagnose};
use lotsfree_snapshot::source::{MOST_SAMPLES, open_bytes};
use lotsfree_snapshot::{Input, Observation, Options, ReadError, Snapshot, Source, observe};

const CASES: u64 = 10_000;
/// One case in so many is a whole host; the rest are the small fixtures of the rules.
const HOSTS_ONE_IN: usize = 200;

/// Every text below `directory`, in the order of their names.
fn texts(directory: &str) -> Vec<Vec<u8>> {
    fn walk(directory: &Path, paths: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, paths);
            } else if path.extension().is_some_and(|extension| extension == "txt") {
                paths.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(directory), &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "no fixtures in {directory}");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Numbers at the edges of what the parsers' types hold.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "4294967295",
    "4294967296",
    "2147483648",
    "-9223372036854775808",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "18014398509481984",
    "99999999999999999999999999999999",
    "1e308",
    "NaN",
    "inf",
];

fn is_header(line: &[u8]) -> bool {
    line.starts_with(b"-- ")
}

/// A run of digits, somewhere.
fn number(text: &[u8], rng: &mut Rng) -> Option<std::ops::Range<usize>> {
    let from = rng.usize(..text.len().max(1));
    let start = from + text.get(from..)?.iter().position(u8::is_ascii_digit)?;
    let length = text[start..].iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len() - start);
    Some(start..start + length)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|&b| b == b'\n').collect()
}

/// Breaks `text` in one way.
fn mutate(text: &mut Vec<u8>, rng: &mut Rng) {
    if text.is_empty() {
        return;
    }
    match rng.u32(..15) {
        0 => {
            for _ in 0..rng.usize(1..=8) {
                let at = rng.usize(..text.len());
                text[at] ^= 1 << rng.u32(..8);
            }
        }
        1 => {
            let at = rng.usize(..text.len());
            let end = (at + rng.usize(1..=64)).min(text.len());
            text.drain(at..end);
        }
        // Lines that occur twice, change places, or are gone.
        2..=4 => {
            let mut all = lines(text);
            let (a, b) = (rng.usize(..all.len()), rng.usize(..all.len()));
            match rng.u32(..3) {
                0 => all.insert(b, all[a]),
                1 => all.swap(a, b),
                _ => drop(all.remove(a)),
            }
            *text = all.concat();
        }
        5 => text.truncate(rng.usize(..text.len())),
        6..=9 => {
            for _ in 0..rng.usize(1..=4) {
                let Some(range) = number(text, rng) else { return };
                let new = NUMBERS[rng.usize(..NUMBERS.len())];
                text.splice(range, new.bytes());
            }
        }
        10 => {
            let at = rng.usize(..text.len());
            let bytes: Vec<u8> = (0..rng.usize(1..=16)).map(|_| rng.u8(0x80..)).collect();
            text.splice(at..at, bytes);
        }
        11 => {
            let at = rng.usize(..text.len());
            let byte = [b' ', b'9', b'x', b'\t', b'/', b':', b'['][rng.usize(..7)];
            text.splice(at..at, std::iter::repeat_n(byte, rng.usize(1..=20_000)));
        }
        // Files change their contents: two headers change places.
        12 => {
            let mut all = lines(text);
            let headers: Vec<usize> = (0..all.len()).filter(|&i| is_header(all[i])).collect();
            if let (Some(&a), Some(&b)) = (rng.choice(&headers), rng.choice(&headers)) {
                all.swap(a, b);
                *text = all.concat();
            }
        }
        // Names that mean something to a shell.
        13 => {
            for _ in 0..rng.usize(1..=4) {
                let from = rng.usize(..text.len());
                let at = text[from..].iter().position(u8::is_ascii_alphabetic).map_or(from, |at| from + at);
                let new =
                    ["$(pwned)", "`pwned`", "';pwned;'", "|pwned", ">pwned", "\"$(pwned)\""][rng.usize(..6)];
                text.splice(at..at, new.bytes());
            }
        }
        // An earlier or a later instant.
        _ => {
            let mut all = lines(text);
            let headers: Vec<usize> = (0..all.len()).filter(|&i| is_header(all[i])).collect();
            let Some(&at) = rng.choice(&headers) else { return };
            let seconds = ["-- 0s/", "-- 5s/", "-- 0.001s/", "-- 999999999999s/"][rng.usize(..4)];
            let moved = [seconds.as_bytes(), &all[at][3..]].concat();
            all[at] = &moved;
            *text = all.concat();
        }
    }
}

/// What was asked of a source: the work that was done, whatever the machine's speed.
#[derive(Default)]
struct Work {
    reads: Cell<u64>,
    lists: Cell<u64>,
    bytes: Cell<u64>,
}

struct Counting {
    inner: Box<dyn Source>,
    work: Rc<Work>,
}

impl Source for Counting {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        let longer = self.inner.read(path, limit, buffer);
        self.work.reads.set(self.work.reads.get() + 1);
        self.work.bytes.set(self.work.bytes.get() + buffer.len() as u64);
        longer
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        self.work.lists.set(self.work.lists.get() + 1);
        self.inner.list(directory)
    }
}

fn counted(input: Input, work: &Rc<Work>) -> Input {
    let wrap = |(at, inner)| (at, Box::new(Counting { inner, work: Rc::clone(work) }) as Box<dyn Source>);
    Input { samples: input.samples.into_iter().map(wrap).collect(), ..input }
}

fn at_most(what: &str, count: usize, most: usize) {
    assert!(count <= most, "{count} {what}, where {most} are the most");
}

/// The bounds that the parsers and collectors set themselves.
fn check_bounds(snapshot: &Snapshot) {
    at_most("slab caches", snapshot.slabs.as_ref().map_or(0, Vec::len), 32);
    at_most("problems", snapshot.problems.len(), 513);
    at_most("zones", snapshot.zones.as_ref().map_or(0, Vec::len), 8192);
    at_most("nodes", snapshot.nodes.as_ref().map_or(0, Vec::len), 1024);
    at_most("block devices", snapshot.block.as_ref().map_or(0, Vec::len), 4096);
    at_most("swap areas", snapshot.swaps.as_ref().map_or(0, Vec::len), 1024);
    at_most("shared memory segments", snapshot.shm.as_ref().map_or(0, Vec::len), 65_536);
    at_most("mounts", snapshot.mounts.as_ref().map_or(0, Vec::len), 100_000);
    at_most("units", snapshot.units.len(), 64);
    at_most("settings", snapshot.sysctl.0.len(), 16_384);
    at_most("settings in files", snapshot.sysctl_files.len(), 512 * 4096);
    at_most("limits", snapshot.limits_conf.len(), 512 * 4096);
    // Each kept group may bring its ancestors.
    at_most("cgroups", snapshot.cgroups.as_ref().map_or(0, |groups| groups.groups.len()), 256 * 12);
    for process in snapshot.processes.iter().flatten() {
        at_most("bytes of a name", process.stat.name.len(), 64);
        let numa = process.detail.as_ref().and_then(|detail| detail.numa.as_ref());
        at_most("mappings", numa.map_or(0, |numa| numa.mappings.len()), 32);
        at_most("nodes of a process", numa.map_or(0, |numa| numa.nodes.len()), 1024);
    }
    for problem in &snapshot.problems {
        at_most("bytes of a problem", problem.detail.len(), 4096);
    }
}

/// What of a command the shell reads by itself, outside of single quotes and escapes.
fn bare(command: &str) -> String {
    let (mut out, mut quoted, mut escaped) = (String::new(), false, false);
    for c in command.chars() {
        match c {
            _ if escaped => escaped = false,
            '\'' => quoted = !quoted,
            _ if quoted => {}
            '\\' => escaped = true,
            _ => out.push(c),
        }
    }
    assert!(!quoted, "a quote is left open: {command}");
    out
}

fn check_finding(finding: &Finding, hosts_own: &dyn Fn(&str) -> bool) {
    let cost = &finding.cost;
    let figures = [Some(cost.share), cost.faults_per_second, cost.stalled];
    for figure in figures.into_iter().flatten() {
        assert!(figure.is_finite() && figure >= 0.0, "{}: a cost of {figure}", finding.rule);
    }
    // What is said of figures is made of figures: none that is not a number, unless the host's own text says
    // it.
    let notes = finding.notes.iter();
    for text in notes.chain([&finding.title, &cost.text]) {
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        let odd = words.any(|word| matches!(word, "NaN" | "inf") && !hosts_own(word));
        assert!(!odd, "{}: {text}", finding.rule);
    }
    for setting in finding.remedies.iter().flat_map(|remedy| &remedy.sets) {
        let value = setting.value.as_str();
        let below_zero = value.starts_with('-') && !setting.name.ends_with("oom_score_adj");
        let odd = below_zero || value == "NaN" || value == "inf";
        assert!(!odd || hosts_own(value), "{}: {setting:?}", finding.rule);
    }
    for remedy in &finding.remedies {
        for command in remedy.runtime.iter().chain(&remedy.undo) {
            assert!(!bare(command).contains("pwned"), "{}: {command}", finding.rule);
        }
    }
}

/// No two findings ask for different values of one setting, and none for what another forbids.
fn check_agreement(findings: &[Finding]) {
    for (i, one) in findings.iter().enumerate() {
        for (j, other) in findings.iter().enumerate().filter(|(j, _)| i != *j) {
            for setting in one.remedies.iter().flat_map(|remedy| &remedy.sets) {
                let ban = other.forbids.iter().find(|(name, _)| *name == setting.name);
                assert!(ban.is_none(), "{} sets {setting:?}, {} forbids it: {ban:?}", one.rule, other.rule);
                let theirs = other.remedies.iter().flat_map(|remedy| &remedy.sets);
                let against =
                    theirs.filter(|their| their.name == setting.name).find(|s| s.value != setting.value);
                assert!(
                    against.is_none() || j < i,
                    "{} sets {setting:?}, {} sets {against:?}",
                    one.rule,
                    other.rule
                );
            }
        }
    }
}

fn check(text: &[u8]) -> Option<(Observation, Diagnosis)> {
    let input = open_bytes(text, "hostile").ok()?;
    let instants = input.samples.len();
    at_most("instants", instants, MOST_SAMPLES);
    let work = Rc::default();
    let observation = observe(counted(input, &work), &Options::default());
    // A header takes ten bytes, and for each process and cgroup that a file implies some twenty files are
    // looked for; the rest of the files have fixed names. Nothing is read more often than the bytes could
    // have named.
    let named = (text.len() / 10 + 1_000) as u64;
    let most = (instants as u64) * (2_000 + 20 * named);
    assert!(
        work.reads.get() + work.lists.get() <= most,
        "{} reads, {} lists",
        work.reads.get(),
        work.lists.get()
    );
    let bytes = 8 * (instants as u64) * (text.len() as u64 + 4096);
    assert!(work.bytes.get() <= bytes, "{} bytes read of {}", work.bytes.get(), text.len());
    at_most("samples", observation.samples.len(), MOST_SAMPLES);
    check_bounds(&observation.now);
    observation.before.iter().for_each(|before| check_bounds(before));
    let diagnosis = diagnose(&observation);
    let written = String::from_utf8_lossy(text);
    let hosts_own = |value: &str| written.contains(value);
    diagnosis.findings.iter().for_each(|finding| check_finding(finding, &hosts_own));
    check_agreement(&diagnosis.findings);
    Some((observation, diagnosis))
}

/// The broken text of a case.
fn case(number: u64, hosts: &[Vec<u8>], small: &[Vec<u8>]) -> Vec<u8> {
    let mut rng = Rng::with_seed(number);
    let host = rng.usize(..HOSTS_ONE_IN) == 0;
    let mut text =
        if host { &hosts[rng.usize(..hosts.len())] } else { &small[rng.usize(..small.len())] }.clone();
    if !host && rng.u32(..4) == 0 {
        // Two hosts in one.
        text.extend_from_slice(&small[rng.usize(..small.len())]);
    }
    for _ in 0..rng.usize(1..=8) {
        mutate(&mut text, &mut rng);
    }
    text
}

#[test]
fn ten_thousand_broken_fixtures() {
    let (hosts, small) = (texts("hosts"), texts("rules"));
    let only: Option<u64> = std::env::var("HOSTILE_CASE").ok().map(|number| number.parse().unwrap());
    let (mut opened, mut with_findings, mut findings, mut problems) = (0, 0, 0, 0);
    let mut failed = Vec::new();
    for number in 0..CASES {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let text = case(number, &hosts, &small);
        let outcome =
            std::panic::catch_unwind(|| check(&text).map(|(o, d)| (d.findings.len(), o.now.problems.len())));
        let Ok(outcome) = outcome else {
            eprintln!("that was case {number}");
            failed.push(number);
            continue;
        };
        if let Some((found, unread)) = outcome {
            opened += 1;
            with_findings += usize::from(found > 0);
            findings += found;
            problems += unread;
        }
    }
    eprintln!(
        "{CASES} cases: {opened} opened, {with_findings} with findings, {findings} findings, {problems} problems"
    );
    assert!(failed.is_empty(), "HOSTILE_CASE=N shows one alone: {failed:?}");
    // Mutations that break everything would test the opening alone.
    assert!(only.is_some() || (opened * 2 > CASES as usize && with_findings * 4 > CASES as usize));
}

#[test]
fn whole_fixtures_pass_the_same_checks() {
    for text in texts("hosts").iter().chain(&texts("rules")) {
        let (_, diagnosis) = check(text).unwrap();
        assert!(
            !diagnosis.findings.is_empty() || !diagnosis.quiet.is_empty() || !diagnosis.unknown.is_empty()
        );
    }
}
