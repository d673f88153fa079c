//! Compares oracle-system-a.toml and -b.toml with the article's `PageTables`. What a session touches was
//! computed from these figures, so that this holds the arithmetic and predicts nothing.

use lotsfree_formulas::pagetables::{Levels, Mapping, tables};
use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_scenario::Case;
use lotsfree_units::{Bytes, PageSize};
use lotsfree_workload::actor::{Actor, Sharing};

use crate::{case, simulated};

const SYSTEM_A: &str = include_str!("../../../../scenarios/oracle-system-a.toml");
const SYSTEM_B: &str = include_str!("../../../../scenarios/oracle-system-b.toml");
/// Tables of a program of two threads, those of its memory maps left out: the model's figure.
const PROGRAM: u64 = 12;

/// KiB of page tables of a scenario, by the formulas, where the kernel counts the lowest level only.
fn computed(case: &Case) -> u64 {
    let Actor::Sessions(of) = &case.actors[0].kind else { panic!("{:?}", case.actors[0]) };
    let lowest = |touched, mapping| tables(touched, mapping, PageSize::X86, Levels::Four).pte;
    let shared = |touched: f64| match of.backing {
        Sharing::ShmHuge => lowest(Bytes(touched as u64), Mapping::Pmd),
        _ => lowest(Bytes(touched as u64), Mapping::Base),
    };
    let private = of.private.map_or(0, |private| lowest(private.size.0, Mapping::Base));
    let segment = of.segment.0.as_f64();
    let each = shared(segment * of.touch) + private + PROGRAM;
    let filler = shared(segment) - shared(segment * of.touch);
    let others = case.machine.page_tables.expect("page-tables").0.as_kib();
    others + 4 * (u64::from(of.processes + of.background) * each + filler)
}

fn off(actual: u64, expected: u64) -> f64 {
    (actual as f64 / expected as f64 - 1.0).abs()
}

#[test]
fn tables_of_both_systems_are_those_of_the_article() {
    for (text, logged) in [(SYSTEM_A, 1_591_860), (SYSTEM_B, 12_023_792)] {
        let computed = computed(&case(text, "4K", &[]));
        assert!(off(computed, logged) < 0.01, "{computed} KiB, and the article has {logged}");
    }
}

#[test]
fn the_model_of_system_a_has_the_tables_that_the_formulas_give() {
    for variant in ["4K", "2M", "fewer sessions"] {
        let case = case(SYSTEM_A, variant, &[]);
        let run = simulated(&case);
        let last = run.samples().get(run.samples().len() - 1).expect("a sample");
        let tables = last.meminfo.get(m::PageTables).expect("PageTables");
        assert!(off(tables, computed(&case)) < 0.02, "{variant}: {tables} KiB, computed {}", computed(&case));
    }
}
