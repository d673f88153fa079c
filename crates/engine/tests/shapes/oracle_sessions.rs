//! Compares oracle-sessions.toml with what this many tables have to be.

use std::ops::ControlFlow;

use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo as m};
use lotsfree_run::{Memory, Run, State};
use lotsfree_scenario::Scenario;

const ORACLE_SESSIONS: &str = include_str!("../../../../scenarios/oracle-sessions.toml");
const SESSIONS: u64 = 100;
/// KiB of the tables of 1 GiB of base pages.
const TABLES: u64 = 512 * 4;
/// KiB that are promised to a session for itself, which has two threads.
const OWN: u64 = 1588;
/// Samples, one a second, of which none, all, and again none of the sessions are there.
const WHEN: [usize; 3] = [0, 18, 40];

fn run(variant: &str) -> Run {
    let scenario = Scenario::parse(ORACLE_SESSIONS, "oracle-sessions.toml").expect("a scenario");
    let case = scenario.cases(Some(&[variant.to_owned()])).expect("cases").remove(0);
    let mut memory = Memory::default();
    lotsfree_engine::simulate(&case, &mut memory, &mut |_| ControlFlow::Continue(())).expect("a run");
    let facts = lotsfree_engine::facts(&case).expect("facts");
    memory.finish(facts, case.to_toml(), State::Complete)
}

/// What a line of `/proc/meminfo` said before, with all sessions, and after them.
fn line(run: &Run, counter: Counter<Meminfo>) -> [u64; 3] {
    WHEN.map(|row| {
        let sample = run.samples().get(row).expect("a sample");
        sample.meminfo.get(counter).unwrap_or_else(|| panic!("{} of sample {row}", counter.name()))
    })
}

#[test]
fn page_tables_go_up_and_down_with_the_sessions_and_huge_pages_need_next_to_none() {
    let gib = 1 << 20;
    for (variant, committed) in
        [("4K", [gib, gib + SESSIONS * OWN, gib]), ("tmpfs", [0, gib + SESSIONS * OWN, gib])]
    {
        let run = run(variant);
        let [before, all, after] = line(&run, m::PageTables);
        assert_eq!((before, after), (0, 0), "{variant}: nobody is there");
        // Upper tables, and those of the program itself.
        let own = all / SESSIONS - TABLES;
        assert!((60..100).contains(&own), "{variant}: {own} KiB of each session are not the segment's");
        assert_eq!(line(&run, m::Committed_AS), committed, "{variant}");
        assert_eq!(line(&run, m::Shmem), [0, gib, gib], "{variant}");
    }
    let huge = run("2M");
    let [_, all, _] = line(&huge, m::PageTables);
    assert!(all < SESSIONS * 100, "{all} KiB");
    assert_eq!(line(&huge, m::HugePages_Free), [512, 0, 0], "the pages stay with the segment");
    assert_eq!(line(&huge, m::HugePages_Rsvd), [512, 0, 0]);
    assert_eq!((line(&huge, m::Committed_AS), line(&huge, m::Shmem)), ([0, SESSIONS * OWN, 0], [0; 3]));
}
