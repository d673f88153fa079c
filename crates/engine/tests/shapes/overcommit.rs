//! Compares page-faults.toml and commit-limits.toml with what the article and the limits say.

use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_run::{EventKind, Run};
use lotsfree_scenario::Scenario;

use crate::{case, simulated};

const PAGE_FAULTS: &str = include_str!("../../../../scenarios/page-faults.toml");
const COMMIT_LIMITS: &str = include_str!("../../../../scenarios/commit-limits.toml");
const COMMIT_RATIO: &str = include_str!("../../../../scenarios/commit-ratio.toml");

/// The run of a variant, with changes.
fn run(text: &str, variant: &str, set: &[(&str, &str)]) -> Run {
    simulated(&case(text, variant, set))
}

/// Page faults up to the stage that the memory is mapped, and from there until it is touched.
fn faults(run: &Run) -> [u64; 2] {
    let of = |stage: &str| {
        let mark = |event: &&lotsfree_run::Event| event.kind == EventKind::Mark && event.what == stage;
        run.events().iter().find(mark).and_then(|event| event.faults).expect("the faults of a stage")
    };
    [of("mapped"), of("touched") - of("mapped")]
}

#[test]
fn a_million_pages_are_a_million_faults_unless_they_are_locked() {
    // The article's count has one fault more: that of a table of pointers to the pages.
    let pages = 1 << 20;
    let twice: &[(&str, &str)] = &[("actor.toucher.repeat", "2")];
    for (variant, expected, locked) in
        [("on demand", [0, pages], 0), ("mlockall", [pages, 0], 4 << 20), ("mlock", [pages, 0], 4 << 20)]
    {
        let run = run(PAGE_FAULTS, variant, twice);
        assert_eq!(faults(&run), expected, "{variant}");
        let all: u64 = run.intervals().iter().map(|interval| interval.minor_faults).sum();
        assert_eq!(all, pages, "{variant}: nothing faults twice");
        let last = run.samples().get(run.samples().len() - 1).expect("a sample").meminfo;
        assert_eq!(last.get(m::Mlocked), Some(locked), "{variant}");
        assert_eq!(last.get(m::Unevictable), Some(locked), "{variant}");
        assert_eq!(last.get(m::AnonPages), Some(4 << 20), "{variant}");
    }
    // The C library writes a header for each request, and one for the heap.
    for (variant, touched) in [("posix_memalign", pages), ("malloc", pages / 256)] {
        assert_eq!(faults(&run(PAGE_FAULTS, variant, &[])), [pages + 1, touched], "{variant}");
    }
    let huge = run(PAGE_FAULTS, "huge pages", twice);
    let [before, after] = faults(&huge);
    // A region of 6.1 begins anywhere: base pages are at its ends.
    assert!(before == 0 && (2048..2047 + 513).contains(&after), "{before} and {after} faults");
    let last = huge.samples().get(huge.samples().len() - 1).expect("a sample").meminfo;
    assert!(last.get(m::AnonHugePages) >= Some(2047 * 2048), "{last:?}");
}

#[test]
fn what_is_refused_is_what_the_limit_leaves_no_room_for() {
    let errors = |run: &Run| run.intervals().iter().map(|interval| interval.errors).sum::<u64>();
    assert_eq!(errors(&run(COMMIT_LIMITS, "mode 0", &[])), 0);
    assert_eq!(errors(&run(COMMIT_LIMITS, "mode 0, at once", &[])), 1);
    assert_eq!(errors(&run(COMMIT_LIMITS, "mode 1", &[])), 0);
    let chunk = 16 << 10;
    for (variant, percent) in [("mode 2, ratio 50", 50), ("mode 2, ratio 80", 80)] {
        let run = run(COMMIT_LIMITS, variant, &[]);
        let line =
            |sample: usize, line| run.samples().get(sample).expect("a sample").meminfo.get(line).unwrap();
        let last = run.samples().len() - 1;
        let (limit, promised) = (line(last, m::CommitLimit), line(last, m::Committed_AS));
        assert_eq!(limit, line(0, m::MemTotal) / 4 * percent / 100 * 4 + (512 << 10), "{variant}");
        let granted = 256 - errors(&run);
        // 8 MiB are the administrator's, and a thirty-second of what the program has is nobody's.
        let reserved = (8 << 10) + granted * chunk / 32;
        assert!(
            promised + reserved < limit && promised + reserved + chunk + 4096 > limit,
            "{variant}: {granted}"
        );
    }
    let killed = run(COMMIT_LIMITS, "mode 0, touched", &[]);
    let victim = killed.events().iter().find(|event| event.kind == EventKind::OomKill).expect("a victim");
    assert_eq!(victim.actor.as_deref(), Some("hog"));
}

/// Where the first percentage refuses nothing follows from `CommitLimit` and what is promised.
#[test]
fn a_ratio_refuses_nothing_from_where_the_limit_has_room_for_all() {
    let scenario = Scenario::parse(COMMIT_RATIO, "s.toml").expect("a scenario");
    for variant in ["as it is", "more swap"] {
        let cases = scenario.cases(Some(&[variant.to_owned()])).expect("cases");
        let mut refused = Vec::new();
        for case in &cases {
            let run = simulated(case);
            let errors: u64 = run.intervals().iter().map(|interval| interval.errors).sum();
            let last = run.samples().get(run.samples().len() - 1).expect("a sample").meminfo;
            let value = |line| last.get(line).expect("a line");
            // What was refused would have been promised as well.
            let wanted = value(m::Committed_AS) + errors * (16 << 10);
            let room = value(m::CommitLimit);
            // 8 MiB are the administrator's, and a thirty-second of what the program has is nobody's.
            let reserves = (8 << 10) + (1 << 20) / 32 + 4096;
            assert!(
                errors == 0 || wanted + reserves > room,
                "{variant}: {errors} refused of {wanted} in {room}"
            );
            assert!(errors > 0 || wanted <= room, "{variant}: {wanted} in {room}");
            refused.push(errors);
        }
        let first = refused.iter().position(|errors| *errors == 0).expect("a ratio that suffices");
        assert!(first > 0, "{variant}: the smallest ratio refuses something: {refused:?}");
        assert!(refused.is_sorted_by(|a, b| a >= b), "{variant}: {refused:?}");
    }
}
