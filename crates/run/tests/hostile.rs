//! Tests of runs that somebody forged, damaged, or could not finish.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a child tells how it went")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{contents, facts, small};
use lotsfree_run::{OpenError, Run, State, Writer};
use serde_json::{Value, json};

const SCENARIO: &str = "title = \"A test\"\n";
const FILES: [&str; 7] = [
    "run.json",
    "scenario.toml",
    "samples.parquet",
    "actors.parquet",
    "events.jsonl",
    "summary.json",
    "timing.json",
];

fn finished(directory: &Path, rows: u64) {
    let mut writer = Writer::create(directory, facts(), SCENARIO).unwrap();
    small(rows).write(&mut writer);
    writer.finish(State::Complete).unwrap();
}

fn unfinished(directory: &Path) {
    let mut writer = Writer::create(directory, facts(), SCENARIO).unwrap();
    small(3).write(&mut writer);
}

fn fnv1a(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Puts a file into a run with correct checksums, as a forger would.
fn exchange(directory: &Path, name: &str, bytes: &[u8]) {
    fs::write(directory.join(name), bytes).unwrap();
    let head_at = directory.join("run.json");
    let mut head: Value = serde_json::from_slice(&fs::read(&head_at).unwrap()).unwrap();
    head["files"][name] = json!({ "bytes": bytes.len(), "fnv1a": fnv1a(bytes) });
    head.as_object_mut().unwrap().remove("check");
    fs::write(head_at, serde_json::to_vec_pretty(&head).unwrap()).unwrap();
}

/// Everything that a run says, except its remarks.
fn answers(run: &Run) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        run.state(),
        run.facts(),
        run.scenario(),
        run.samples().columns(),
        run.intervals().iter().collect::<Vec<_>>(),
        run.events(),
        run.summary(),
        run.timing(),
    )
}

#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    finished(at, 3);
    let fresh = answers(&Run::open(at).unwrap());
    let without_timing = fresh.rsplit_once(" Some(Timing").unwrap().0.to_owned();
    for (name, whole) in contents(at) {
        let bits = whole.len() * 8;
        // Every bit of run.json is flipped.
        let step = if name == "run.json" { 1 } else { (bits / 600).max(1) | 1 };
        let mut errors = 0;
        for bit in (0..bits).step_by(step) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(at.join(&name), &flipped).unwrap();
            match Run::open(at) {
                Err(error) => {
                    errors += 1;
                    assert!(error.to_string().contains(&name), "{error}");
                }
                Ok(run) if run.timing().is_none() => {
                    assert_eq!(name, "timing.json");
                    assert_eq!(run.remarks(), ["timing.json is damaged and left out"]);
                    assert!(answers(&run).starts_with(&without_timing), "bit {bit} of {name}");
                }
                Ok(run) => {
                    assert!(answers(&run) == fresh, "bit {bit} of {name}");
                    let silent = name == "timing.json" || !run.remarks().is_empty();
                    assert!(silent, "bit {bit} of {name}");
                }
            }
        }
        if !matches!(&*name, "timing.json" | "summary.json") {
            assert_eq!(errors, bits.div_ceil(step), "{name}");
        }
        fs::write(at.join(&name), &whole).unwrap();
    }
}

#[test]
fn a_run_without_a_checksum_of_its_head_is_read_with_a_remark() {
    let directory = tempfile::tempdir().unwrap();
    finished(directory.path(), 3);
    let before = answers(&Run::open(directory.path()).unwrap());
    let events = fs::read(directory.path().join("events.jsonl")).unwrap();
    exchange(directory.path(), "events.jsonl", &events);
    let run = Run::open(directory.path()).unwrap();
    assert_eq!(answers(&run), before);
    assert_eq!(run.remarks(), ["it was written without a checksum of run.json, as 0.1.0 did"]);
    // A head with a key that 0.1.0 did not write is refused.
    let head = fs::read_to_string(directory.path().join("run.json")).unwrap();
    fs::write(directory.path().join("run.json"), head.replacen('{', "{\"chfck\": 1,", 1)).unwrap();
    let error = Run::open(directory.path()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { path, .. } if path.ends_with("run.json")));
}

#[test]
fn what_is_no_file_is_refused_at_once_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "hunter2").unwrap();
    let put: [(&str, Put<'_>); 4] = [
        ("a FIFO", &|at| assert!(Command::new("mkfifo").arg(at).status().unwrap().success())),
        ("a directory", &|at| fs::create_dir(at).unwrap()),
        ("a link", &|at| symlink(&secret, at).unwrap()),
        ("a link", &|at| symlink("/dev/zero", at).unwrap()),
    ];
    for (number, (what, put)) in put.iter().enumerate() {
        for name in FILES.iter().chain(&["journal"]) {
            let at = directory.path().join(format!("{number}-{name}"));
            if *name == "journal" {
                unfinished(&at)
            } else {
                finished(&at, 2)
            }
            fs::remove_file(at.join(name)).unwrap();
            put(&at.join(name));
            assert!(lotsfree_run::is_run(&at));
            let begun = Instant::now();
            let error = Run::open(&at).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(what), "{error}");
            assert!(!error.contains("hunter2") && begun.elapsed() < Duration::from_secs(5), "{error}");
        }
    }
}

#[test]
fn a_file_is_refused_by_its_length_before_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    for name in FILES {
        let at = directory.path().join(name);
        finished(&at, 2);
        let file = File::options().write(true).open(at.join(name)).unwrap();
        file.set_len(8 << 40).or_else(|_| file.set_len(8 << 30)).unwrap();
        let begun = Instant::now();
        let opened = Run::open(&at);
        assert!(begun.elapsed() < Duration::from_secs(5), "{name}");
        match opened {
            Err(error) => assert!(error.to_string().contains(name), "{error}"),
            Ok(run) => assert!(run.remarks()[0].starts_with(name)),
        }
    }
    // A sparse journal of exactly 2 GiB is read up to its last valid record.
    let at = directory.path().join("unfinished");
    unfinished(&at);
    let journal = File::options().write(true).open(at.join("journal")).unwrap();
    journal.set_len(2 << 30).unwrap();
    let run = Run::open(&at).unwrap();
    assert_eq!(run.samples().len(), 3);
    assert!(run.remarks()[1].contains("are no whole row and are left out"), "{:?}", run.remarks());
    journal.set_len(8 << 30).unwrap();
    let error = Run::open(&at).unwrap_err().to_string();
    assert!(error.contains("journal: damaged (8589934592 bytes; at most 2147483648 are read)"), "{error}");
}

/// Bytes of Thrift's compact protocol.
mod thrift {
    pub(super) fn varint(mut value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }

    /// A struct of fields with their identities, which ascend.
    pub(super) fn structure(fields: &[(u8, u8, Vec<u8>)]) -> Vec<u8> {
        let (mut out, mut last) = (Vec::new(), 0);
        for (id, kind, value) in fields {
            out.push((id - last) << 4 | kind);
            out.extend(value);
            last = *id;
        }
        out.push(0);
        out
    }

    pub(super) fn number(id: u8, value: i64) -> (u8, u8, Vec<u8>) {
        (id, 6, varint(((value << 1) ^ (value >> 63)) as u64))
    }

    pub(super) fn text(id: u8, text: &str) -> (u8, u8, Vec<u8>) {
        (id, 8, [varint(text.len() as u64), text.as_bytes().to_vec()].concat())
    }

    pub(super) fn list(id: u8, items: &[Vec<u8>]) -> (u8, u8, Vec<u8>) {
        (id, 9, [vec![0xfc], varint(items.len() as u64), items.concat()].concat())
    }
}

/// A table of one column of numbers, with the lengths that it declares, and `pages` copies of one page.
fn table(rows: i64, page_rows: i64, decompressed: i64, frame: &[u8], pages: usize) -> Vec<u8> {
    use thrift::{list, number, structure, text};
    let page = structure(&[
        number(1, 0),
        number(2, decompressed),
        number(3, frame.len() as i64),
        (5, 12, structure(&[number(1, page_rows), number(2, 5), number(3, 3), number(4, 3)])),
    ]);
    let chunk = [page, frame.to_vec()].concat().repeat(pages);
    let root = structure(&[text(4, "samples"), number(5, 1)]);
    let column = structure(&[number(1, 2), number(3, 0), text(4, "at")]);
    let meta = structure(&[number(1, 2), number(4, 6), number(7, chunk.len() as i64), number(9, 4)]);
    let group = structure(&[list(1, &[structure(&[(3, 12, meta)])]), number(3, rows)]);
    let footer = structure(&[list(2, &[root, column]), number(3, rows), list(4, &[group])]);
    let length = (footer.len() as u32).to_le_bytes();
    [b"PAR1".to_vec(), chunk, footer, length.to_vec(), b"PAR1".to_vec()].concat()
}

#[test]
fn tables_that_are_made_to_fill_memory_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    finished(at, 2);
    let zeros =
        |bytes: usize| zstd::encode_all(std::io::Read::take(std::io::repeat(0), bytes as u64), 1).unwrap();
    // Blocks of 128 numbers in 4 parts, with 3 numbers: the first is 5, and each is 7 more than the one
    // before.
    let three = zstd::encode_all(&[128, 1, 4, 3, 10, 14, 0, 0, 0, 0][..], 1).unwrap();
    exchange(at, "samples.parquet", &table(3, 3, 10, &three, 1));
    assert_eq!(Run::open(at).unwrap().samples().times(), [5, 12, 19]);
    let large = 1 << 30;
    let bomb = zeros(large);
    let two_thousand = zeros(32 << 20);
    for (what, bytes) in [
        ("a page of 1 GiB", table(3, 3, large as i64, &bomb, 1)),
        ("a page that is longer than it says", table(3, 3, 10, &bomb, 1)),
        ("a page that is shorter than it says", table(3, 3, 11, &three, 1)),
        ("many pages of zeros", table(1 << 20, 1, 32 << 20, &two_thousand, 2000)),
        ("2^40 rows", table(1 << 40, 1 << 40, 10, &three, 1)),
        ("2^63 - 1 rows", table(i64::MAX, 3, 10, &three, 1)),
        ("100 million rows", table(100_000_000, 100_000_000, 10, &three, 1)),
        ("rows that are not there", table(4, 3, 10, &three, 1)),
        ("more rows than there are", table(3, 3, 10, &three, 2)),
        ("negative rows", table(-3, 3, 10, &three, 1)),
        ("a page of no rows", table(3, 0, 10, &three, 1)),
        ("a negative length", table(3, 3, -1, &three, 1)),
        ("no table", b"PAR1\xff\xff\xff\xffPAR1".to_vec()),
        ("nothing", Vec::new()),
    ] {
        exchange(at, "samples.parquet", &bytes);
        let begun = Instant::now();
        let error = Run::open(at).unwrap_err();
        assert!(
            matches!(&error, OpenError::Damaged { path, .. } if path.ends_with("samples.parquet")),
            "{what}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} took {:?}", begun.elapsed());
    }
}

#[test]
fn tables_with_any_bytes_exchanged_and_good_checksums_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    finished(at, 5);
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for name in ["samples.parquet", "actors.parquet"] {
        let whole = fs::read(at.join(name)).unwrap();
        let mut read = 0;
        for _ in 0..1200 {
            let mut bytes = whole.clone();
            for _ in 0..=random(3) {
                let place = random(bytes.len());
                bytes[place] = [0, 0xff, 0x7f, 0x80, random(256) as u8][random(5)];
            }
            exchange(at, name, &bytes);
            if let Ok(run) = Run::open(at) {
                read += 1;
                run.summary();
            }
        }
        assert!(read < 1200);
        exchange(at, name, &whole);
        assert!(Run::open(at).is_ok());
    }
}

/// Puts something else in the place of a file.
type Put<'a> = &'a dyn Fn(&Path);

const CHILD: &str = "LOTSFREE_TEST_FAILING_RUN";

/// Writes a run, if [`CHILD`] names a directory, and prints the error if one occurs.
#[test]
fn child_writes_a_run() {
    let Some(at) = std::env::var_os(CHILD) else { return };
    let written = || {
        let mut writer = Writer::create(at, facts(), SCENARIO)?;
        for sample in small(3).samples {
            lotsfree_run::Sink::sample(&mut writer, &sample)?;
        }
        writer.finish(State::Complete)
    };
    match written() {
        Ok(_) => println!("\nwell"),
        Err(error) => println!("\nfailed: {error}"),
    }
}

/// Has a child write a run with a fault, and returns what the child prints at its end.
fn child(at: &Path, fault: &str, log: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_writes_a_run", "--nocapture", "--test-threads=1"])
        .env(CHILD, at)
        .env("LOTSFREE_FAULT", fault)
        .env("LOTSFREE_FAULT_LOG", log)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().filter(|line| *line == "well" || line.starts_with("failed: "));
    lines.next().unwrap_or("killed").to_owned()
}

#[test]
fn a_run_that_could_not_be_written_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    assert_eq!(child(&directory.path().join("whole"), "", &log), "well");
    let points = fs::read_to_string(&log).unwrap().lines().count();
    assert!(points > 30, "{points}");
    for number in 1..=points {
        for kind in ["fail", "from", "kill"] {
            let at = directory.path().join(format!("{kind}-{number}")).join("run");
            fs::create_dir(at.parent().unwrap()).unwrap();
            let said = child(&at, &format!("{kind}:{number}"), &log);
            assert!(!said.contains(".partial"), "{kind} {number}: {said}");
            assert_eq!(said == "killed", kind == "kill", "{kind} {number}: {said}");
            let run = match Run::open(&at) {
                Ok(run) => run,
                // The run had not begun.
                Err(OpenError::NotARun { .. }) => {
                    assert!(said.starts_with("failed: ") || kind == "kill", "{kind} {number}: {said}");
                    continue;
                }
                Err(error) => panic!("{kind} {number}: {error}"),
            };
            if run.state() == State::Complete {
                assert!(run.remarks().is_empty());
                assert_eq!(run.samples().len(), 3);
                continue;
            }
            let remark = run.remarks()[0].as_str();
            if kind == "fail" {
                let name = said.strip_prefix("failed: ").unwrap().split(": ").next().unwrap();
                let name = Path::new(name).file_name().unwrap().to_str().unwrap();
                let expected = format!("the run is incomplete: {name} could not be written (No space left");
                assert!(remark.starts_with(&expected), "{number}: {said}: {remark}");
            } else {
                assert!(remark.contains("whoever wrote it was killed or could not write"), "{remark}");
            }
        }
    }
}

#[test]
fn nobody_elses_directory_is_taken_for_one_that_was_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("journal"), "precious").unwrap();
    symlink(&elsewhere, directory.path().join(".run.partial")).unwrap();
    let create = || Writer::create(directory.path().join("run"), facts(), SCENARIO);
    assert!(create().unwrap_err().to_string().contains(".run.partial: not a run"));
    assert_eq!(fs::read(elsewhere.join("journal")).unwrap(), b"precious");
    fs::remove_file(directory.path().join(".run.partial")).unwrap();
    let made = Command::new("mkfifo").arg(directory.path().join(".run.partial")).status().unwrap();
    assert!(made.success() && create().is_err());
    fs::remove_file(directory.path().join(".run.partial")).unwrap();
    fs::create_dir(directory.path().join(".run.partial")).unwrap();
    // Only root can give the directory to another user.
    if std::os::unix::fs::chown(directory.path().join(".run.partial"), Some(65534), None).is_ok() {
        assert!(create().unwrap_err().to_string().contains("it belongs to user 65534"));
    }
}
