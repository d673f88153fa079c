//! Tests of runs that are written to a directory and read back, whole or not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Rows, contents, facts, rows, small};
use lotsfree_run::{
    Event, EventKind, Memory, OpenError, Run, Sample, Sink, State, Toll, WriteError, Writer, is_run,
};
use proptest::prelude::*;

const SCENARIO: &str = "title = \"A test\"\n";

fn written(directory: &Path, rows: &Rows) -> Run {
    let mut writer = Writer::create(directory, facts(), SCENARIO).unwrap();
    rows.write(&mut writer);
    writer.finish(State::Complete).unwrap()
}

fn in_memory(rows: &Rows) -> Run {
    let mut memory = Memory::default();
    rows.write(&mut memory);
    memory.finish(facts(), SCENARIO, State::Complete)
}

fn samples(run: &Run) -> Vec<Sample> {
    run.samples().iter().collect()
}

/// Checks that a reader of a run sees all its rows.
fn same(run: &Run, rows: &Rows) -> Result<(), TestCaseError> {
    prop_assert_eq!(&samples(run), &rows.samples);
    prop_assert_eq!(run.intervals().iter().collect::<Vec<_>>(), rows.intervals.concat());
    prop_assert_eq!(run.events(), &rows.events[..]);
    prop_assert_eq!((run.scenario(), run.facts()), (SCENARIO, &facts()));
    prop_assert!(run.remarks().is_empty() && run.state() == State::Complete);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_is_read(rows in rows()) {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("run");
        let fresh = written(&at, &rows);
        let again = Run::open(&at).unwrap();
        same(&fresh, &rows)?;
        same(&again, &rows)?;
        let memory = in_memory(&rows);
        same(&memory, &rows)?;
        prop_assert_eq!(again.samples(), memory.samples());
        prop_assert_eq!(again.summary(), memory.summary());
        prop_assert_eq!(again.timing(), fresh.timing());
    }

    #[test]
    fn an_unfinished_run_has_all_its_rows(rows in rows()) {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(directory.path(), facts(), SCENARIO).unwrap();
        rows.write(&mut writer);
        drop(writer);
        let run = Run::open(directory.path()).unwrap();
        prop_assert_eq!(&samples(&run), &rows.samples);
        prop_assert_eq!(run.intervals().iter().collect::<Vec<_>>(), rows.intervals.concat());
        prop_assert_eq!(run.events(), &rows.events[..]);
        prop_assert_eq!(run.state(), State::Running);
        prop_assert!(run.remarks()[0].contains("incomplete: whoever wrote it was killed"), "{:?}", run.remarks());
    }
}

#[test]
fn two_runs_of_the_same_rows_are_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (directory.path().join("one"), directory.path().join("far/away/other"));
    written(&one, &small(20));
    written(&other, &small(20));
    let (mut first, mut second) = (contents(&one), contents(&other));
    let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "actors.parquet",
        "events.jsonl",
        "run.json",
        "samples.parquet",
        "scenario.toml",
        "summary.json",
        "timing.json",
    ];
    assert_eq!(names, expected);
    for files in [&mut first, &mut second] {
        files.retain(|(name, _)| name != "timing.json");
    }
    assert_eq!(first, second);
}

#[test]
fn columns_have_the_kernels_names() {
    let run = in_memory(&small(3));
    let names: Vec<&str> = run.samples().columns().iter().map(|column| column.name()).collect();
    let expected = [
        "at",
        "meminfo.MemFree",
        "vmstat.pgfault",
        "vmstat.pgscan_direct",
        "zoneinfo.0.Normal.free",
        "zoneinfo.0.Normal.present",
        "zoneinfo.0.Normal.protection.0",
        "zoneinfo.0.Normal.protection.1",
        "node.0.nr_inactive_file",
        "node.0.nr_from_the_future",
        "swap.file./swap.img.size",
        "swap.file./swap.img.used",
        "swap.file./swap.img.priority",
    ];
    assert_eq!(names, expected);
    let used = run.samples().column("swap.file./swap.img.used").unwrap();
    assert_eq!(used.iter().collect::<Vec<_>>(), [None, Some(4096), Some(8192)]);
}

/// Runs of `small(4)` as they were written before rows had a toll, one finished and one not.
const OLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/before-toll");

#[test]
fn a_run_from_before_there_was_a_toll_is_read_and_lacks_it() {
    let mut rows = small(4);
    let all = rows.intervals.iter_mut().flatten();
    all.for_each(|interval| interval.toll = Toll::default());
    rows.events.iter_mut().for_each(|event| (event.faults, event.memory) = (None, None));
    for name in ["finished", "unfinished"] {
        let run = Run::open(Path::new(OLDER).join(name)).unwrap();
        assert!(!run.intervals().has_toll(), "{name}");
        assert_eq!(samples(&run), rows.samples, "{name}");
        assert_eq!(run.intervals().iter().collect::<Vec<_>>(), rows.intervals.concat(), "{name}");
        assert_eq!(run.events(), &rows.events[..], "{name}");
        assert_eq!(run.remarks().len(), usize::from(name == "unfinished"), "{:?}", run.remarks());
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(written(directory.path(), &small(4)).intervals().has_toll());
    assert!(Run::open(directory.path()).unwrap().intervals().has_toll());
    assert!(in_memory(&Rows::default()).intervals().has_toll());
}

#[test]
fn rows_without_a_toll_stay_so_when_others_follow() {
    let directory = tempfile::tempdir().unwrap();
    let older = Path::new(OLDER).join("unfinished");
    for (name, contents) in contents(&older) {
        fs::write(directory.path().join(name), contents).unwrap();
    }
    // The journal of a run of the same rows begins with the same first line.
    let newer = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(newer.path(), facts(), SCENARIO).unwrap();
    writer.intervals(&small(2).intervals[1]).unwrap();
    drop(writer);
    let added = fs::read(newer.path().join("journal")).unwrap();
    let line = added.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let journal = directory.path().join("journal");
    let whole = [fs::read(&journal).unwrap(), added[line..].to_vec()].concat();
    fs::write(&journal, whole).unwrap();
    let run = Run::open(directory.path()).unwrap();
    let tolls: Vec<u64> = run.intervals().iter().map(|row| row.toll.thrashing).collect();
    assert_eq!(tolls, [0, 0, 0, 0, 2]);
    assert!(!run.intervals().has_toll());
}

#[test]
fn a_journal_cut_anywhere_is_read_up_to_its_last_whole_row() {
    let directory = tempfile::tempdir().unwrap();
    let rows = small(6);
    let mut writer = Writer::create(directory.path(), facts(), SCENARIO).unwrap();
    rows.write(&mut writer);
    drop(writer);
    let at = directory.path().join("journal");
    let whole = fs::read(&at).unwrap();
    let mut most = 0;
    for cut in 0..=whole.len() {
        fs::write(&at, &whole[..cut]).unwrap();
        let run = Run::open(directory.path()).unwrap();
        let read = samples(&run);
        assert_eq!(read, rows.samples[..read.len()]);
        assert!(read.len() >= most, "{cut}");
        most = read.len();
        run.summary();
    }
    assert_eq!(most, rows.samples.len());
    for flipped in 0..whole.len() {
        let mut journal = whole.clone();
        journal[flipped] ^= 0x10;
        fs::write(&at, &journal).unwrap();
        match Run::open(directory.path()) {
            Ok(run) => {
                let read = samples(&run);
                assert_eq!(read, rows.samples[..read.len()], "{flipped}");
                assert!(run.remarks().iter().any(|remark| remark.contains("no whole row")), "{flipped}");
            }
            Err(error) => assert!(error.to_string().contains("does not begin as a journal"), "{error}"),
        }
    }
}

#[test]
fn damage_to_a_finished_run_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), &small(4));
    for (name, whole) in contents(directory.path()) {
        let at = directory.path().join(&name);
        for cut in 0..whole.len() {
            fs::write(&at, &whole[..cut]).unwrap();
            match Run::open(directory.path()) {
                // No measure depends on these files.
                Ok(_) => assert!(matches!(&*name, "summary.json" | "timing.json") || cut + 1 == whole.len()),
                Err(error) => assert!(error.to_string().contains(&name), "{error}"),
            }
        }
        let step = (whole.len() / 200).max(1);
        for flipped in (0..whole.len()).step_by(step).filter(|_| name.ends_with("parquet")) {
            let mut damaged = whole.clone();
            damaged[flipped] ^= 1;
            fs::write(&at, &damaged).unwrap();
            let error = Run::open(directory.path()).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{name}: damaged (its checksum is another one)")), "{error}");
        }
        fs::write(&at, &whole).unwrap();
    }
    same(&Run::open(directory.path()).unwrap(), &small(4)).unwrap();
}

#[test]
fn errors_say_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let error = |path: &Path| Run::open(path).unwrap_err();
    assert!(matches!(error(directory.path()), OpenError::NotARun { .. }));
    assert!(matches!(error(&directory.path().join("absent")), OpenError::NotARun { .. }));
    assert!(!is_run(directory.path()));
    let at = directory.path().join("run");
    written(&at, &small(2));
    assert!(is_run(&at));
    fs::remove_file(at.join("actors.parquet")).unwrap();
    assert!(matches!(error(&at), OpenError::Missing { path } if path.ends_with("actors.parquet")));
    let head = fs::read_to_string(at.join("run.json")).unwrap();
    fs::write(at.join("run.json"), head.replace("\"format\": 1", "\"format\": 7")).unwrap();
    assert!(matches!(error(&at), OpenError::Format { found: 7, .. }));
}

#[test]
fn only_runs_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let create = |path: &Path| Writer::create(path, facts(), SCENARIO);
    let file = directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    assert!(matches!(create(&file), Err(WriteError::Occupied { .. })));
    let full = directory.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("thesis.tex"), "precious").unwrap();
    assert!(matches!(create(&full), Err(WriteError::Occupied { .. })));
    let run = directory.path().join("run");
    written(&run, &small(3));
    fs::write(run.join("notes.txt"), "precious").unwrap();
    let before = contents(&run);
    assert!(matches!(create(&run), Err(WriteError::Occupied { why, .. }) if why == "it holds notes.txt"));
    assert_eq!(contents(&run), before);
    fs::remove_file(run.join("notes.txt")).unwrap();
    fs::write(run.join("run.json"), "{}").unwrap();
    assert!(matches!(create(&run), Err(WriteError::Occupied { .. })));
    assert_eq!((fs::read_to_string(file).unwrap(), contents(&full).len()), ("precious".to_owned(), 1));
}

#[test]
fn a_run_replaces_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let (run, link) = (directory.path().join("run"), directory.path().join("link"));
    written(&run, &small(9));
    std::os::unix::fs::symlink(&run, &link).unwrap();
    same(&written(&link, &small(2)), &small(2)).unwrap();
    same(&Run::open(&run).unwrap(), &small(2)).unwrap();
    assert!(!run.join("journal").exists());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn one_process_at_a_time_writes_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("run");
    let mut writer = Writer::create(&at, facts(), SCENARIO).unwrap();
    small(2).write(&mut writer);
    assert!(matches!(Writer::create(&at, facts(), SCENARIO), Err(WriteError::InUse { .. })));
    let run = Run::open(&at).unwrap();
    assert_eq!(run.remarks(), ["the run is incomplete: it is still being written, after 1 s"]);
    let run = writer.finish(State::Interrupted).unwrap();
    assert_eq!(run.remarks(), ["the run was interrupted after 1 s"]);
    assert_eq!(Run::open(&at).unwrap().remarks(), run.remarks());
}

#[test]
fn a_run_whose_machine_failed_says_what_happened() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("run");
    let mut writer = Writer::create(&at, facts(), SCENARIO).unwrap();
    small(2).write(&mut writer);
    let of_an_actor = Some("app".to_owned());
    for (what, actor) in [("QEMU was killed", None), ("no memory for an operation", of_an_actor)] {
        let what = what.to_owned();
        writer.event(&Event::new(1_000_000_000, EventKind::Error, what, actor)).unwrap();
    }
    writer.finish(State::Interrupted).unwrap();
    assert_eq!(Run::open(&at).unwrap().remarks(), ["the run broke off after 1 s: QEMU was killed"]);
}

/// Every state in which a process can be killed while it ends a run: some files are there under their final
/// names, one under its temporary one.
#[test]
fn killed_while_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let (done, at) = (directory.path().join("done"), directory.path().join("run"));
    let rows = small(5);
    written(&done, &rows);
    let order = ["samples.parquet", "actors.parquet", "events.jsonl", "summary.json", "timing.json"];
    for (index, name) in order.iter().enumerate() {
        let mut writer = Writer::create(&at, facts(), SCENARIO).unwrap();
        rows.write(&mut writer);
        drop(writer);
        for earlier in &order[..index] {
            fs::copy(done.join(earlier), at.join(earlier)).unwrap();
        }
        let half = fs::read(done.join(name)).unwrap();
        fs::write(at.join(format!("{name}.partial")), &half[..half.len() / 2]).unwrap();
        let run = Run::open(&at).unwrap();
        assert_eq!((samples(&run), run.state()), (rows.samples.clone(), State::Running));
    }
    // After the last step but one, only the journal is left over.
    let run = written(&at, &rows);
    fs::write(at.join("journal"), b"lotsfree journal 1\n").unwrap();
    assert_eq!(Run::open(&at).unwrap(), run);
    same(&written(&at, &rows), &rows).unwrap();
}

/// A writer that was killed between making the temporary directory and renaming it.
#[test]
fn killed_while_it_began() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join(".run.partial")).unwrap();
    fs::write(directory.path().join(".run.partial/scenario.toml"), "ti").unwrap();
    let at = directory.path().join("run");
    assert!(!is_run(&at));
    same(&written(&at, &small(2)), &small(2)).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

const CHILD: &str = "LOTSFREE_TEST_RUN_DIRECTORY";

/// Writes rows until it is killed, if [`CHILD`] says where.
#[test]
fn child_writes_until_killed() {
    let Some(at) = std::env::var_os(CHILD) else { return };
    let mut writer = Writer::create(at, facts(), SCENARIO).unwrap();
    let rows = small(1);
    for number in 0.. {
        let mut sample = rows.samples[0].clone();
        sample.at = number;
        writer.sample(&sample).unwrap();
        writer.intervals(&rows.intervals[0]).unwrap();
    }
}

#[test]
fn a_killed_process_leaves_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("run");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_writes_until_killed"])
        .env(CHILD, &at)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let size = || fs::metadata(at.join("journal")).map_or(0, |journal| journal.len());
    while size() < 20_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the child writes nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let run = Run::open(&at).unwrap();
    let times = run.samples().times();
    assert!(times.len() > 100 && times.iter().copied().eq(0..times.len() as u64));
    assert!((0..=1).contains(&(times.len() - run.intervals().len())));
    assert!(run.remarks()[0].starts_with("the run is incomplete: whoever wrote it was killed"));
}
