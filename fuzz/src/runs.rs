//! Fuzzes the data of runs: directories, journals, Parquet tables, and the stream between agents and the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lotsfree_doctor::diagnose;
use lotsfree_kernel_files::counters::{Family, Values, Vmstat};
use lotsfree_report::runs::{runs_html, runs_json};
use lotsfree_run::wire::{Message, Receiver, Sender};
use lotsfree_run::{Facts, Memory, Run, Sink, State, WriteError, Writer};
use lotsfree_snapshot::source::MOST_SAMPLES;
use lotsfree_snapshot::source::run::{Instants, input};
use lotsfree_snapshot::{Options, observe};
use serde_json::{Value, json};

use crate::machines;
use crate::seeds::Fixture;

const HEAD: &str = "run.json";
const SCENARIO: &str = "scenario.toml";
const SAMPLES: &str = "samples.parquet";
const ACTORS: &str = "actors.parquet";
const EVENTS: &str = "events.jsonl";
const TIMING: &str = "timing.json";
const JOURNAL: &str = "journal";
/// The files that an input of [`directory`] holds, in this order.
const FILES: [&str; 7] = [HEAD, SCENARIO, SAMPLES, ACTORS, EVENTS, TIMING, JOURNAL];
/// Separates the files of an input.
const BETWEEN: &[u8] = b"\n\xff\xfe\n";
/// First bytes of a journal, as in `run::journal`.
const MAGIC: &[u8] = b"lotsfree journal 1\n";

/// FNV-1a as in runs. Damaged data get a correct checksum, so that the reader does not stop at the checksum.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

/// The directory that every input is written to: in memory if possible, made and removed by `cargo xtask
/// fuzz`.
pub(crate) fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let own = || std::env::temp_dir().join(format!("lotsfree-fuzz-{}", std::process::id()));
        let place = std::env::var_os("LOTSFREE_FUZZ_PLACE").map_or_else(own, PathBuf::from);
        if let Err(error) = fs::create_dir_all(&place) {
            panic!("{}: {error}", place.display());
        }
        place
    })
}

/// Writes the files of a run's directory, and removes those that are no longer in it.
fn lay(files: &[(&str, &[u8])]) -> &'static Path {
    for name in FILES {
        let path = place().join(name);
        let done = match files.iter().find(|(known, _)| *known == name) {
            Some((_, contents)) => fs::write(&path, contents),
            None => fs::remove_file(&path).or(Ok(())),
        };
        if let Err(error) = done {
            panic!("{}: {error}", path.display());
        }
    }
    place()
}

/// Enters the lengths and checksums of files into a `run.json`, if that has a place for them.
fn sign(head: &mut Value, files: &[(&str, &[u8])]) {
    let Some(head) = head.as_object_mut() else { return };
    let whole = |(name, contents): &(&str, &[u8])| {
        ((*name).to_owned(), json!({ "bytes": contents.len(), "fnv1a": format!("{:016x}", fnv(contents)) }))
    };
    let listed = files.iter().filter(|(name, _)| *name != HEAD).map(whole).collect();
    head.insert("files".to_owned(), Value::Object(listed));
}

/// Opens a run, summarises it, and reads its instants as the doctor would.
fn open(directory: &Path) -> Option<Run> {
    let run = match Run::open(directory) {
        Ok(run) => run,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let summary = serde_json::to_string(&run.summary());
    assert!(summary.is_ok(), "{summary:?}");
    for instants in [Instants::Measured, Instants::LastTwo, Instants::All] {
        let Some(input) = input(&run, instants) else { continue };
        assert!(!input.samples.is_empty() && input.samples.len() <= MOST_SAMPLES);
    }
    Some(run)
}

/// Diagnoses a run and reports on it.
fn judge(run: Run) {
    if let Some(mut input) = input(&run, Instants::All) {
        // Two instants show as much as many do.
        input.samples.truncate(2);
        let observation = observe(input, &Options::default());
        for finding in diagnose(&observation).findings {
            assert!(finding.cost.share.is_finite(), "{}: a share of {}", finding.rule, finding.cost.share);
        }
    }
    let runs = [run];
    let json = runs_json(&runs);
    assert!(json.is_ok(), "{json:?}");
    assert!(!runs_html(&runs).is_empty());
}

/// Fuzzes a directory, given as its files one after the other. The first byte says whether `run.json` is made
/// to fit them.
pub(crate) fn directory(data: &[u8]) {
    let Some((&choice, mut data)) = data.split_first() else { return };
    let mut files: Vec<(&str, &[u8])> = Vec::new();
    for name in FILES {
        let end = data.windows(BETWEEN.len()).position(|bytes| bytes == BETWEEN);
        let (contents, rest) = match end {
            Some(end) => (&data[..end], &data[end + BETWEEN.len()..]),
            None => (data, &[][..]),
        };
        // A file without contents is left out.
        if !contents.is_empty() {
            files.push((name, contents));
        }
        data = rest;
    }
    let signed = files.iter().find(|(name, _)| *name == HEAD).and_then(|(_, head)| {
        let mut head: Value = serde_json::from_slice(head).ok()?;
        sign(&mut head, &files);
        Some(head.to_string())
    });
    if let (Some(signed), true) = (&signed, choice & 1 == 0) {
        files.retain(|(name, _)| *name != HEAD);
        files.push((HEAD, signed.as_bytes()));
    }
    if let Some(run) = open(lay(&files)) {
        judge(run);
    }
}

/// The `run.json` for an input that is one file of a run.
fn head(state: &str, files: &[(&str, &[u8])]) -> String {
    static FACTS: OnceLock<Value> = OnceLock::new();
    let facts = FACTS.get_or_init(|| serde_json::to_value(facts()).unwrap_or_default());
    let mut head = json!({ "format": 1, "state": state, "files": {}, "facts": facts });
    sign(&mut head, files);
    head.to_string()
}

fn facts() -> Facts {
    Facts { title: "fuzz".to_owned(), cpus: 2, page_size: 4096, interval: 1, duration: 9, ..Facts::default() }
}

/// Frames records of a journal: in the input, each is preceded by its length, 16 bits, little-endian; it gets
/// the length and checksum that it would have in a journal.
fn framed(mut data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() * 2);
    while let Some((length, rest)) = data.split_first_chunk() {
        let (payload, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&(fnv(payload) as u32).to_le_bytes());
        out.extend_from_slice(payload);
        data = rest;
    }
    out
}

/// The opposite of [`framed`], for seeds.
fn unframed(mut records: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((length, rest)) = records.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some(payload) = rest.get(4..4 + length) else { break };
        out.extend_from_slice(&(length as u16).to_le_bytes());
        out.extend_from_slice(payload);
        records = &rest[4 + length..];
    }
    out
}

/// Fuzzes the journal of a run that has not ended. The input has its records or, if the first byte is odd,
/// the whole file.
pub(crate) fn journal(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let journal = match choice & 1 {
        0 => [MAGIC, &framed(data)].concat(),
        _ => data.to_vec(),
    };
    let scenario = (SCENARIO, &b"title = 'fuzz'\n"[..]);
    let head = head("running", &[scenario]);
    open(lay(&[(HEAD, head.as_bytes()), scenario, (JOURNAL, &journal)]));
}

/// Fuzzes one table of a run that has ended. The first byte chooses which; the other table is a good one.
pub(crate) fn tables(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    static GOOD: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    let (samples, actors) = GOOD.get_or_init(|| {
        let files = written(&made("linux-6.1", 1), true);
        (file(&files, SAMPLES).to_vec(), file(&files, ACTORS).to_vec())
    });
    let (samples, actors) = if choice & 1 == 0 { (data, actors.as_slice()) } else { (&samples[..], data) };
    let files =
        [(SCENARIO, &b"title = 'fuzz'\n"[..]), (SAMPLES, samples), (ACTORS, actors), (EVENTS, &b"\n"[..])];
    let head = head("complete", &files);
    let mut all = files.to_vec();
    all.push((HEAD, head.as_bytes()));
    open(lay(&all));
}

/// Fuzzes the stream of an agent: its messages must not depend on how it is cut into pieces, and must be the
/// same again when they are sent on.
pub(crate) fn wire(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let stream = if choice & 1 == 0 { framed(data) } else { data.to_vec() };
    let receive = |stream: &[u8], piece: usize| {
        let (mut receiver, mut messages) = (Receiver::default(), Vec::new());
        for piece in stream.chunks(piece) {
            match receiver.feed(piece) {
                Ok(more) => messages.extend(more),
                Err(damaged) => return (messages, Some(damaged)),
            }
        }
        (messages, None)
    };
    let (messages, damaged) = receive(&stream, stream.len().max(1));
    let (pieces, damaged_in_pieces) = receive(&stream, 1 + usize::from(choice >> 1) * 7);
    assert_eq!(damaged, damaged_in_pieces);
    if damaged.is_some() {
        return;
    }
    assert_eq!(messages, pieces);
    let mut sent = Vec::new();
    let mut sender = Sender::new(&mut sent);
    for message in messages.iter().cloned() {
        let passed = match message.pass(&mut sender) {
            Ok(Some(text)) => sender.text(&text),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        assert!(passed.is_ok(), "{passed:?}");
    }
    let (again, damaged) = receive(&sent, sent.len().max(1));
    assert_eq!(damaged, None);
    let sorted = |messages: Vec<Message>| messages.into_iter().map(sorted).collect::<Vec<_>>();
    assert_eq!(sorted(messages), sorted(again));
}

/// Sorts a message, and the statistics of its nodes, into an order that depends on names alone. Zones, CPUs,
/// swap areas and unknown counters are in the order of the columns, which a stream may name in any order; a
/// sender appends the columns that a later sample adds. A node's statistics are at its first zone.
fn sorted(mut message: Message) -> (Message, Vec<(u32, Values<Vmstat>)>) {
    let mut stats = Vec::new();
    if let Message::Sample(sample) = &mut message {
        for zone in &mut sample.zones {
            zone.pagesets.sort_by_key(|pageset| pageset.cpu);
            zone.stats = by_name(&zone.stats);
            stats.extend(zone.node_stats.take().map(|stats| (zone.node, by_name(&stats))));
        }
        for node in &mut sample.nodes {
            (node.meminfo, node.numastat) = (by_name(&node.meminfo), by_name(&node.numastat));
        }
        (sample.meminfo, sample.vmstat) = (by_name(&sample.meminfo), by_name(&sample.vmstat));
        sample.group = by_name(&sample.group);
        stats.sort_by_key(|(node, _)| *node);
        sample.zones.sort_by(|a, b| (a.node, &a.name).cmp(&(b.node, &b.name)));
        sample.swaps.sort_by(|a, b| (&a.kind, &a.path).cmp(&(&b.kind, &b.path)));
    }
    (message, stats)
}

/// Sorts unknown counters by name.
fn by_name<F: Family>(values: &Values<F>) -> Values<F> {
    let mut sorted = Values::default();
    values.iter().for_each(|(counter, value)| sorted.set(counter, value));
    let mut unknown = values.unknown().to_vec();
    unknown.sort();
    unknown.iter().for_each(|(name, value)| sorted.record(name.as_bytes(), *value, &mut 0));
    sorted
}

/// The run of a small scenario on the model, with few counters, so that seeds are small.
fn made(generation: &str, nodes: usize) -> Run {
    let mut few = Memory::default();
    let run = machines::small_run(generation, nodes);
    for mut sample in run.samples().iter().take(6) {
        sample.meminfo = some(&sample.meminfo, 5);
        sample.vmstat = some(&sample.vmstat, 9);
        for zone in &mut sample.zones {
            zone.stats = some(&zone.stats, 7);
            zone.node_stats = zone.node_stats.as_ref().map(|stats| some(stats, 9));
            zone.pagesets.truncate(1);
        }
        for node in &mut sample.nodes {
            node.meminfo = some(&node.meminfo, 9);
        }
        let _ = few.sample(&sample);
    }
    let _ = few.intervals(&run.intervals().iter().take(12).collect::<Vec<_>>());
    for event in run.events().iter().take(12) {
        let _ = few.event(event);
    }
    few.finish(run.facts().clone(), run.scenario(), State::Complete)
}

/// Every `of`-th counter, beginning with the first.
fn some<F: Family>(values: &Values<F>, of: usize) -> Values<F> {
    let mut few = Values::default();
    for (counter, value) in values.iter().step_by(of) {
        few.set(counter, value);
    }
    few
}

/// The files of a run's directory as a writer leaves them, whether the run has ended or not.
fn written(run: &Run, ended: bool) -> Vec<(String, Vec<u8>)> {
    let directory = place().join("written");
    let write = || -> Result<(), WriteError> {
        let mut writer = Writer::create(&directory, run.facts().clone(), run.scenario())?;
        for sample in run.samples().iter() {
            writer.sample(&sample)?;
        }
        writer.intervals(&run.intervals().iter().collect::<Vec<_>>())?;
        for event in run.events() {
            writer.event(event)?;
        }
        if ended {
            writer.finish(State::Complete)?;
        }
        Ok(())
    };
    if let Err(error) = write() {
        panic!("{error}");
    }
    let read = |name: &str| Some((name.to_owned(), fs::read(directory.join(name)).ok()?));
    let files = FILES.into_iter().filter_map(read).collect();
    let _ = fs::remove_dir_all(&directory);
    files
}

fn file<'f>(files: &'f [(String, Vec<u8>)], name: &str) -> &'f [u8] {
    files.iter().find(|(known, _)| known == name).map_or(&[], |(_, contents)| contents)
}

/// A few runs of the model, old and new, of one node and of two. They are the same for every fixture.
fn runs() -> &'static [Run] {
    static RUNS: OnceLock<Vec<Run>> = OnceLock::new();
    RUNS.get_or_init(|| {
        [("linux-2.6.32-rhel6", 2), ("linux-4.4", 1), ("linux-6.1", 2), ("linux-6.12+mglru", 1)]
            .map(|(generation, nodes)| made(generation, nodes))
            .into()
    })
}

/// Seeds: directories of runs that have ended, and of runs that have not.
pub(crate) fn directory_seeds(_: &Fixture) -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let seed = |run: &Run, ended: bool| {
        let files = written(run, ended);
        let contents: Vec<&[u8]> = FILES.iter().map(|name| file(&files, name)).collect();
        [&[0], contents.join(BETWEEN).as_slice()].concat()
    };
    SEEDS.get_or_init(|| runs().iter().flat_map(|run| [seed(run, true), seed(run, false)]).collect()).clone()
}

/// Seeds: records of journals of runs.
pub(crate) fn journal_seeds(_: &Fixture) -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let seeds = |run: &Run| {
        let files = written(run, false);
        let journal = file(&files, JOURNAL);
        let records = unframed(journal.strip_prefix(MAGIC).unwrap_or_default());
        [[&[0], records.as_slice()].concat(), [&[1], journal].concat()]
    };
    SEEDS.get_or_init(|| runs().iter().flat_map(seeds).collect()).clone()
}

/// Seeds: both tables of runs.
pub(crate) fn table_seeds(_: &Fixture) -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let seeds = |run: &Run| {
        let files = written(run, true);
        [[&[0], file(&files, SAMPLES)].concat(), [&[1], file(&files, ACTORS)].concat()]
    };
    SEEDS.get_or_init(|| runs().iter().flat_map(seeds).collect()).clone()
}

/// Seeds: the stream of an agent for a run, with texts between.
pub(crate) fn wire_seeds(_: &Fixture) -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let seeds = |run: &Run| {
        let mut stream = Vec::new();
        let mut sender = Sender::new(&mut stream);
        let _ = sender.text("ready");
        for sample in run.samples().iter() {
            let _ = sender.sample(&sample);
        }
        let _ = sender.intervals(&run.intervals().iter().collect::<Vec<_>>());
        for event in run.events() {
            let _ = sender.event(event);
        }
        [[&[2], unframed(&stream).as_slice()].concat(), [&[3], stream.as_slice()].concat()]
    };
    SEEDS.get_or_init(|| runs().iter().flat_map(seeds).collect()).clone()
}
