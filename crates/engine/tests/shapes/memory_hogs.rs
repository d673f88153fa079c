//! Compares memory-hogs.toml and overnight.toml with "Memory Hogs" (ADMIN 20/2014), in runs of two thirds of
//! the scenarios' length or less.

use lotsfree_run::{ActorFigures, EventKind, Figures};
use lotsfree_scenario::Scenario;
use lotsfree_settings::SWAPPINESS;

use crate::{figures, of, simulated};

const MEMORY_HOGS: &str = include_str!("../../../../scenarios/memory-hogs.toml");
const OVERNIGHT: &str = include_str!("../../../../scenarios/overnight.toml");

fn server(figures: &Figures) -> &ActorFigures {
    of(figures, "server")
}

/// Throughput beside a file of this size, relative to the time before.
fn relative(variant: &str, size: &str, set: &[(&str, &str)]) -> f64 {
    let set: Vec<(&str, &str)> = [("duration", "60 s")].iter().chain(set).copied().collect();
    server(&figures(MEMORY_HOGS, variant, Some(size), &set)).relative.expect("a baseline")
}

/// Sizes larger, a little larger and smaller than free memory.
const LARGE: &str = "3200 MiB";
const MEDIUM: &str = "1600 MiB";
const SMALL: &str = "800 MiB";

#[test]
fn a_file_larger_than_free_memory_throws_the_server_out_until_3_10() {
    for variant in ["3.0", "3.10"] {
        assert!(relative(variant, SMALL, &[]) > 0.98, "{variant}");
        assert!(relative(variant, LARGE, &[]) < 0.7, "{variant}");
    }
}

#[test]
fn no_cliff_from_3_11_on() {
    for variant in ["3.11", "3.11, swappiness 0", "6.1", "6.12", "6.12+mglru"] {
        assert!(relative(variant, LARGE, &[]) > 0.98, "{variant}");
    }
}

#[test]
fn swappiness_above_0_makes_no_difference_before_3_11() {
    for variant in ["3.0", "3.10"] {
        let all = ["10", "30", "60"].map(|value| relative(variant, LARGE, &[(SWAPPINESS, value)]));
        assert!(all.iter().all(|one| (one - all[0]).abs() < 0.1), "{variant}: {all:?}");
    }
}

/// Figure 4. That swappiness 0 does not protect on RHEL 6.4 is published and not modelled: SPECIFICATION.md.
#[test]
fn the_kernels_of_figure_4_fall_and_are_protected_in_its_order() {
    let of = |kernel: &str, set: &str| relative(&format!("{kernel}{set}"), LARGE, &[]);
    for kernel in ["2.6.32-rhel6.4", "3.0-sles11sp2"] {
        let all = ["", ", swappiness 10", ", swappiness 30"]
            .map(|set| relative(&format!("{kernel}{set}"), MEDIUM, &[]));
        assert!(all.iter().all(|one| *one < 0.8 && (one - all[0]).abs() < 0.1), "{kernel}: {all:?}");
        assert!(relative(kernel, SMALL, &[]) > 0.98, "{kernel}");
    }
    assert!(of("3.0-sles11sp2", ", page-cache limit") > 0.98);
    for set in ["", ", swappiness 0"] {
        assert!(of("3.0-sles11sp3", set) > 0.98, "{set}");
    }
    assert!(of("3.0-sles11sp2", ", swappiness 0") > 0.98);
}

#[test]
fn a_writer_that_leaves_the_cache_alone_or_a_bound_for_it_protects_the_server() {
    for variant in ["3.10, direct", "3.10, dontneed", "3.10, page-cache limit", "3.0, page-cache limit"] {
        assert!(relative(variant, LARGE, &[]) > 0.98, "{variant}");
    }
}

/// Table 1: what the application, others and the machine can do. Transparent huge pages are split and go, a
/// limit for the writer does not limit the cache, and one writer that goes through it suffices.
#[test]
fn the_strategies_of_table_1_protect_or_do_not() {
    let of = |variant: &str| relative(&format!("3.0, {variant}"), LARGE, &[]);
    let plain = relative("3.0", LARGE, &[]);
    for variant in ["pinned", "huge pages", "smaller heap", "direct", "double the RAM"] {
        assert!(of(variant) > 0.97, "{variant}: {}", of(variant));
    }
    for variant in ["collector", "limits on dd", "two writers, one direct"] {
        assert!(of(variant) < 0.7, "{variant}: {}", of(variant));
    }
    let thp = of("THP");
    assert!(thp > plain + 0.1 && thp < 0.9, "{thp} instead of {plain}");
}

#[test]
fn a_small_swap_lets_a_spike_end_in_a_kill() {
    let killed = |variant: &str| {
        let cases =
            Scenario::parse(MEMORY_HOGS, "s.toml").expect("a scenario").cases(Some(&[variant.to_owned()]));
        let cases = cases.expect("cases");
        let case =
            cases.iter().find(|case| case.sweep.as_ref().is_some_and(|at| at.label == "0")).expect("a case");
        let run = simulated(case);
        run.events().iter().filter(|event| event.kind == EventKind::OomKill).count()
    };
    assert_eq!((killed("3.0, spike"), killed("3.0, small swap, spike")), (0, 1));
}

#[test]
fn a_file_system_that_writes_what_reclaim_asks_for_protects_the_server() {
    let on = |variant: &str, filesystem: &str| {
        let mut all = ["1", "2", "3"]
            .map(|seed| relative(variant, LARGE, &[("machine.disk.filesystem", filesystem), ("seed", seed)]));
        all.sort_by(f64::total_cmp);
        all[1]
    };
    assert!(on("3.0", "\"ext3\"") > 0.9);
    // kswapd of 3.10 writes only what it meets in need.
    let (ext4, ext3) = (on("3.10", "\"ext4\""), on("3.10", "\"ext3\""));
    assert!(ext3 > 1.4 * ext4, "{ext3} instead of {ext4}");
}

#[test]
fn the_size_of_the_file_alone_is_not_the_trigger() {
    let fast = [("machine.disk", "{ latency = \"100 us\", bandwidth = \"4 GiB/s\", size = \"200 GiB\" }")];
    let roomy = [("actor.server.heap", "2 GiB")];
    for variant in ["2.6.32-rhel6", "3.0", "3.10", "3.11"] {
        // Pages that one pass at priority 0 swaps out come back within the minute.
        assert!(relative(variant, LARGE, &fast) > 0.9, "{variant}, a disk faster than the writer");
        assert!(relative(variant, LARGE, &roomy) > 0.98, "{variant}, room for all");
    }
}

/// The first half minute of a morning after a copy of 6 GiB.
fn morning(variant: &str) -> Figures {
    let set = [
        ("duration", "330 s"),
        ("actor.copy.size", "6 GiB"),
        ("actor.copy.source-size", "6 GiB"),
        ("actor.server.active", "[[\"0 s\", \"60 s\"], [\"300 s\", \"end\"]]"),
        ("measure.window", "[\"300 s\", \"end\"]"),
    ];
    figures(OVERNIGHT, variant, None, &set)
}

#[test]
fn the_application_does_not_find_its_pages_in_the_morning_after_3_10() {
    let before = morning("3.10");
    assert!(server(&before).major_faults > 500);
    for variant in ["6.12", "6.12+mglru", "3.10, direct", "3.10, dontneed"] {
        assert_eq!(server(&morning(variant)).major_faults, 0, "{variant}");
    }
}
