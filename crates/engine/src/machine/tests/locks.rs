//! Tasks on several CPUs that want the same lock.

use lotsfree_workload::{FileId, How};

use super::*;

/// Pages that all readers read together, twice as many as there are.
const PAGES: u32 = 1 << 16;

/// CPU time in the kernel, for a page, of readers that fill the memory of one node with clean pages and then
/// reclaim there, each for itself.
fn kernel_time(generation: &str, cpus: u32, readers: u32) -> f64 {
    let memory = mm::Config::new(Generation::named(generation).unwrap(), vec![1 << 15]);
    let tuning = crate::Tuning { zone_reclaim_mode: Some(1), ..crate::Tuning::default() };
    let memory = mm::Config { cpus, tuning, instant_reads: true, ..memory };
    let each = PAGES / readers;
    let read = |file: u32| {
        let read = |page: u32| Op::Read {
            file: FileId(file),
            offset: u64::from(page) << 12,
            len: 64 << 12,
            how: How::Buffered,
        };
        thread("reader", &(0..each).step_by(64).map(read).collect::<Vec<_>>(), 1)
    };
    let files = vec![(each, true); readers as usize];
    let program = program(&files, vec![process("p", (0..readers).map(read).collect())]);
    let told = run(MachineConfig { mm: memory, ..config() }, program, S);
    assert_eq!((told.toll("reader").allocated >= PAGES.into(), told.errors("reader")), (true, 0));
    let Spent { system, reclaim, .. } = told.spent("reader");
    assert!(reclaim > 0);
    (system + reclaim) as f64 / f64::from(PAGES)
}

#[test]
fn readers_that_reclaim_in_one_zone_spin_for_its_lock_the_longer_the_more_they_are() {
    let [one, four, sixteen, many] = [1, 4, 16, 64].map(|cpus| kernel_time("linux-2.6.32-rhel6", cpus, cpus));
    let all = format!("{one:.0} ns, {four:.0} ns, {sixteen:.0} ns, {many:.0} ns");
    assert!(four >= one && four < 1.05 * one, "{all}");
    // Sixteen want the lock for two thirds of the time.
    assert!(sixteen > four && sixteen > 1.01 * one, "{all}");
    // The lock is held for 36 ns when a page is added and as long when it is isolated, so that a page of each
    // of 64 readers takes 64 times 72 ns; those who have read their file no longer want the lock.
    assert!((0.7..1.1).contains(&(many / 4608.0)), "{all}");
}

#[test]
fn one_reader_never_waits_for_the_lock_however_many_cpus_there_are() {
    let times = [1, 4, 16, 64].map(|cpus| kernel_time("linux-2.6.32-rhel6", cpus, 1));
    assert!(times.iter().all(|time| (time / times[0] - 1.0).abs() < 0.01), "{times:?}");
}

#[test]
fn readers_that_share_one_cpu_do_not_wait_for_the_lock() {
    let [one, many] = [1, 64].map(|readers| kernel_time("linux-2.6.32-rhel6", 1, readers));
    assert!((many / one - 1.0).abs() < 0.05, "{one:.0} ns, {many:.0} ns");
}
