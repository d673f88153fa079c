//! The kernel that runs the tests is watched. Where it refuses, nothing can be tested, which is said.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::process::Command;
use std::time::Duration;

use lotsfree_run::{Interval, Toll};
use lotsfree_watch::{BUDGET, Watch, WatchError};

/// Watches while a command runs.
fn watched(command: &mut Command) -> Option<Vec<Interval>> {
    let mut watch = match Watch::begin(BUDGET) {
        Err(error @ (WatchError::Refused(_) | WatchError::Missing(_))) => {
            eprintln!("not tested: {error}");
            return None;
        }
        watch => watch.unwrap(),
    };
    let mut child = command.spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        watch.interval(Duration::from_millis(200)).unwrap();
    }
    watch.interval(Duration::from_millis(200)).unwrap();
    Some(watch.finish().0.into_iter().flatten().collect())
}

fn toll(rows: &[Interval], name: &str) -> Toll {
    let mut sum = Toll::default();
    // The name has the group behind it where two programs have it.
    let is = |row: &&Interval| row.actor.split(" (").next() == Some(name);
    rows.iter().filter(is).for_each(|row| sum.add(&row.toll));
    sum
}

#[test]
fn pages_belong_to_the_program_that_allocates_them() {
    let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    let mut writer = Command::new("sh");
    // Under a name that nothing else on the host has, for two seconds.
    let script = format!(
        "printf lotsfree-writer >/proc/self/comm; end=$(($(date +%s) + 3)); \
         while [ $(date +%s) -lt $end ]; do printf '%1048576s' x >>{}; done",
        file.path().display()
    );
    let Some(rows) = watched(writer.args(["-c", &script])) else { return };
    let written = file.as_file().metadata().unwrap().len() / 4096;
    let allocated = toll(&rows, "lotsfree-writer").allocated;
    // Some shells copy what they write.
    assert!(allocated > written / 3 && allocated < written * 3, "{allocated} beside {written} written");
}

#[test]
fn nothing_is_lost_where_memory_is_plenty() {
    let Some(rows) = watched(Command::new("sh").args(["-c", "sleep 0.6"])) else { return };
    let sleeper = toll(&rows, "sleep");
    assert_eq!((sleeper.thrashing, sleeper.swap_in), (0, 0));
}

#[test]
fn the_mounts_of_the_host_stay_as_they_are() {
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
    let before = mounts();
    if let Ok(mut watch) = Watch::begin(BUDGET) {
        assert_eq!(mounts(), before, "while it watches");
        watch.interval(Duration::from_millis(50)).unwrap();
    }
    assert_eq!(mounts(), before);
}
