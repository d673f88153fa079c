//! Compares oracle-sessions.toml with what the article logged, and with what this many tables have to be.

use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo as m};
use lotsfree_run::Run;

use crate::{case, simulated};

const ORACLE_SESSIONS: &str = include_str!("../../../../scenarios/oracle-sessions.toml");
const SESSIONS: u64 = 100;
const BACKGROUND: u64 = 28;
/// KiB of the tables of the 160 MiB that each process touches.
const TABLES: u64 = 80 * 4;
/// KiB that are promised to a process for itself: its program's, which has two threads, and `private`.
const OWN: u64 = 1588 + 230 * 1024;
/// Seconds between samples.
const INTERVAL: u64 = 3;

/// Each fourth line of the article's log without huge pages, and each fifth of the one with them: seconds and
/// kB of `PageTables`.
const LOGGED_4K: [(u64, u64); 19] = [
    (0, 58_836),
    (12, 66_560),
    (24, 72_296),
    (36, 80_928),
    (48, 88_936),
    (60, 98_212),
    (72, 105_996),
    (84, 113_584),
    (96, 120_256),
    (108, 120_316),
    (120, 121_480),
    (132, 121_632),
    (144, 120_320),
    (156, 121_652),
    (168, 118_136),
    (180, 110_240),
    (192, 97_916),
    (204, 91_848),
    (216, 83_868),
];
const LOGGED_2M: [(u64, u64); 18] = [
    (0, 27_112),
    (15, 27_368),
    (30, 37_668),
    (45, 41_312),
    (60, 42_528),
    (75, 44_540),
    (90, 45_936),
    (105, 51_056),
    (120, 56_440),
    (135, 60_656),
    (150, 66_916),
    (165, 72_172),
    (180, 76_952),
    (195, 79_384),
    (210, 80_096),
    (225, 80_096),
    (240, 79_392),
    (255, 79_396),
];

struct Logged {
    run: Run,
    /// Seconds of the run in which no session is there yet, all are, and none any more.
    when: [u64; 3],
}

fn run(variant: &str, when: [u64; 3]) -> Logged {
    Logged { run: simulated(&case(ORACLE_SESSIONS, variant, &[])), when }
}

impl Logged {
    /// What a line of `/proc/meminfo` said at a second of the run.
    fn at(&self, second: u64, counter: Counter<Meminfo>) -> u64 {
        let sample = self.run.samples().get((second / INTERVAL) as usize).expect("a sample");
        sample.meminfo.get(counter).unwrap_or_else(|| panic!("{} at {second} s", counter.name()))
    }

    /// Before the sessions, with all of them, and after them.
    fn line(&self, counter: Counter<Meminfo>) -> [u64; 3] {
        self.when.map(|second| self.at(second, counter))
    }

    /// How far `PageTables` is from what was logged, as shares of that, from the least to the largest; the
    /// log begins at that second of the run.
    fn off(&self, logged: &[(u64, u64)], begin: u64) -> Vec<f64> {
        let off = |(second, kib): &(u64, u64)| {
            (self.at(begin + second, m::PageTables) as f64 / *kib as f64 - 1.0).abs()
        };
        let mut off: Vec<f64> = logged.iter().map(off).collect();
        off.sort_by(f64::total_cmp);
        off
    }

    fn peak(&self) -> f64 {
        let lines = self.run.samples().iter().filter_map(|sample| sample.meminfo.get(m::PageTables));
        lines.max().expect("samples") as f64
    }
}

fn base_pages() -> Logged {
    run("4K", [9, 171, 360])
}

fn huge_pages() -> Logged {
    run("2M", [9, 216, 411])
}

#[test]
fn page_tables_rise_and_fall_as_the_article_logged_them() {
    let (small, huge) = (base_pages(), huge_pages());
    let off = small.off(&LOGGED_4K, 45);
    assert!(off[off.len() / 2] < 0.01 && off[off.len() - 1] < 0.06, "4K: {off:.3?}");
    // Sessions come in bursts at first, which the scenario does not follow.
    let off = huge.off(&LOGGED_2M, 3);
    assert!(off[off.len() / 2] < 0.04 && off[off.len() - 1] < 0.20, "2M: {off:.3?}");
    let (peak, huge_peak) = (small.peak(), huge.peak());
    assert!((peak / 121_652.0 - 1.0).abs() < 0.05 && (huge_peak / 80_096.0 - 1.0).abs() < 0.05);
    // "In this simple test case using huge pages used only 66% of memory."
    assert!((huge_peak / peak - 0.66).abs() < 0.01, "{huge_peak} of {peak}");
}

#[test]
fn page_tables_go_up_and_down_with_the_sessions_and_huge_pages_need_next_to_none() {
    let (gib, touched) = (1 << 20, 160 << 10);
    let commits = |segment: u64| {
        [BACKGROUND, BACKGROUND + SESSIONS, BACKGROUND].map(|processes| segment + processes * OWN)
    };
    let huge = huge_pages();
    let [before, all, after] = huge.line(m::PageTables);
    assert_eq!(before, after);
    let own = (all - before) / SESSIONS;
    assert_eq!(
        huge.line(m::HugePages_Rsvd),
        [432; 3],
        "432 of the 512 huge pages stay reserved: no process touches them"
    );
    assert_eq!(huge.line(m::HugePages_Free), [432; 3], "the pages stay with the segment");
    assert_eq!((huge.line(m::Committed_AS), huge.line(m::Shmem)), (commits(0), [0; 3]));
    let tmpfs = run("tmpfs", [9, 171, 360]);
    for (which, segment, run) in [("4K", gib, base_pages()), ("tmpfs", touched, tmpfs)] {
        let [before, all, after] = run.line(m::PageTables);
        assert_eq!(before, after, "{which}");
        let rise = (all - before) / SESSIONS;
        assert!(rise.abs_diff(own + TABLES) <= 4, "{which}: {rise} KiB for each, {own} with huge pages");
        assert_eq!(run.line(m::Committed_AS), commits(segment), "{which}");
        assert_eq!(run.line(m::Shmem), [touched; 3], "{which}");
    }
}
