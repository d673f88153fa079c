//! Compares oracle-sessions.toml with "MEMORY_TARGET (SGA_TARGET) or HugePages" (2010), and with what this
//! many tables have to be.

use std::ops::ControlFlow;

use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo as m};
use lotsfree_run::{Memory, Run, State};
use lotsfree_scenario::Scenario;

const ORACLE_SESSIONS: &str = include_str!("../../../../scenarios/oracle-sessions.toml");
const SESSIONS: u64 = 100;
/// KiB of the tables of 1 GiB of base pages.
const TABLES: u64 = 512 * 4;
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
    for variant in ["4K", "tmpfs"] {
        let [before, all, after] = line(&run(variant), m::PageTables);
        assert_eq!((before, after), (0, 0), "{variant}: nobody is there");
        // Upper tables, and those of the program itself.
        let own = all / SESSIONS - TABLES;
        assert!((60..100).contains(&own), "{variant}: {own} KiB of each session are not the segment's");
    }
    let huge = run("2M");
    let [_, all, _] = line(&huge, m::PageTables);
    assert!(all < SESSIONS * 100, "{all} KiB");
    assert_eq!(line(&huge, m::HugePages_Free), [512, 0, 0], "the pages stay with the segment");
    assert_eq!(line(&huge, m::HugePages_Rsvd), [512, 0, 0]);
}

#[test]
fn a_segment_is_committed_when_it_is_made_and_a_file_of_tmpfs_as_it_grows() {
    let gib = 1 << 20;
    assert_eq!(line(&run("4K"), m::Committed_AS), [gib, gib, gib]);
    assert_eq!(line(&run("tmpfs"), m::Committed_AS), [0, gib, gib]);
    assert_eq!(line(&run("2M"), m::Committed_AS), [0, 0, 0]);
    for (variant, shared) in [("4K", gib), ("tmpfs", gib), ("2M", 0)] {
        assert_eq!(line(&run(variant), m::Shmem), [0, shared, shared], "{variant}");
    }
}
