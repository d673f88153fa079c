//! The scenarios and the lists of experiments that ship: `scenarios/*.toml` and `lab/*.toml` of the
//! repository, built into the program.

use std::path::Path;

use crate::error::suggestion;
use crate::{Errors, Experiments, Scenario};

/// A scenario that ships.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name, which is that of its file without `.toml`.
    pub name: &'static str,
    /// What it shows, in one sentence.
    pub shows: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal: $shows:literal,)*) => {
        &[$(Shipped {
            name: $name,
            shows: $shows,
            text: include_str!(concat!("../../../scenarios/", $name, ".toml")),
        },)*]
    };
}

/// All of them, in the order in which a newcomer should try them.
pub const SHIPPED: &[Shipped] = shipped! {
    "quickstart": "What a job that reads a file again and again does to an application beside it, and what \
                   vm.swappiness = 0 and direct I/O change.",
    "parallelio": "How much of its throughput an in-memory cache loses while files are written beside it, on one kernel \
                   after another.",
    "memory-hogs": "How an application's throughput depends on the size of a file that is written beside it, with one \
                    protection after another.",
    "memory-hogs-small": "The same on a machine of 512 MiB in 90 s, with three values of vm.swappiness.",
    "compressed-swap": "What it saves a server whose heap is larger than memory to swap to zram instead of a disk, or to \
                        the disk through zswap, by how well its data compress.",
    "overnight": "Whether an application that was idle overnight finds its pages in the morning, after a copy larger than \
                  memory.",
    "zone-reclaim": "What vm.zone_reclaim_mode does to a store of memory-mapped segments on two NUMA nodes: who reclaims, \
                     and when.",
    "zone-reclaim-full": "The same at the size of the article: 48 GiB, 25 GB in use, 100,000 reads a second. It takes 40 min \
                          until garbage is used up and zone reclaim harms; a larger machine needs a longer run.",
    "segment-pool": "What it saves to write retired segments again instead of creating new files.",
    "oracle-sessions": "What the page tables of an instance and 100 sessions take while the sessions come and go: with pages \
                        of 4 KiB and with huge pages, as an article of 2010 logged them, and with files on tmpfs.",
    "oracle-system-a": "System A of the same article: 444 sessions on 8 GiB of shared memory, and what huge pages or fewer \
                        sessions save.",
    "oracle-system-b": "System B of the same article: 400 sessions on 34 GiB of shared memory, whose page tables take \
                        11.5 GiB.",
    "pool-one-short": "What an instance pays for a pool of huge pages that is one page short of its segment.",
    "pool-at-runtime": "How many pages a pool of huge pages gets on a host in use, what is swapped out and moved for them, and \
                        how long it takes.",
    "daemon-memlock": "What an instance loses that a daemon starts with a small memlock limit.",
    "page-faults": "How many faults a million pages take when they are touched first, and what locking them changes.",
    "commit-limits": "Which requests for memory the kernel refuses in the modes of vm.overcommit_memory, and what happens \
                      when it keeps no promise.",
    "commit-ratio": "From which vm.overcommit_ratio on mode 2 refuses a program nothing.",
    "oom-choice": "Which of three programs the OOM killer chooses, and what oom_score_adj and \
                   vm.oom_kill_allocating_task change.",
};

/// The lists of experiments, by their names in the repository.
const LISTS: [(&str, &str); 3] = [
    ("lab/validation.toml", include_str!("../../../lab/validation.toml")),
    ("lab/held-out.toml", include_str!("../../../lab/held-out.toml")),
    ("lab/seen.toml", include_str!("../../../lab/seen.toml")),
];

/// The experiments that ship: those that taught the model, those that are held out, and drawn ones that may
/// be looked at.
///
/// # Errors
/// None that a test would not have seen.
pub fn experiments() -> Result<Experiments, Errors> {
    let mut all = Experiments::default();
    for (name, text) in LISTS {
        all.join(Experiments::parse(text, name)?);
    }
    Ok(all)
}

impl Shipped {
    /// The scenario of a name.
    pub fn named(name: &str) -> Option<&'static Shipped> {
        SHIPPED.iter().find(|shipped| shipped.name == name)
    }

    /// `; did you mean "overnight"?` when one has nearly this name, else nothing.
    pub fn suggestion(name: &str) -> String {
        suggestion(name, SHIPPED.iter().map(|shipped| shipped.name))
    }

    /// Reads it. Errors that overrides bring name its file.
    ///
    /// # Errors
    /// None, as tests read all of them.
    pub fn scenario(&self) -> Result<Scenario, Errors> {
        Scenario::parse(self.text, &format!("{}.toml", self.name))
    }
}

/// Whether a text on the command line is a path rather than the name of a scenario that ships.
pub fn is_path(text: &str) -> bool {
    Shipped::named(text).is_none()
        && (text.contains('/') || Path::new(text).extension().is_some() || Path::new(text).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_listed_and_every_case_of_them_can_be_built() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut files: Vec<String> = (std::fs::read_dir(directory).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
            .collect();
        files.sort();
        let mut names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
        for shipped in SHIPPED {
            let scenario = shipped.scenario().unwrap_or_else(|errors| panic!("{errors}"));
            assert!(!scenario.title().is_empty(), "{}", shipped.name);
            for case in scenario.cases(None).unwrap() {
                case.program().unwrap_or_else(|errors| panic!("{errors}"));
            }
        }
    }

    #[test]
    fn experiments_read_and_none_is_both_held_out_and_seen() {
        let all = experiments().unwrap_or_else(|errors| panic!("{errors}"));
        let mut names: Vec<&str> = all.all.iter().map(|experiment| experiment.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.all.len(), "a name files one experiment");
        let held_out: Vec<u64> =
            all.all.iter().filter(|one| one.is_held_out()).filter_map(|one| one.seed).collect();
        assert_eq!(held_out, (1..=60).chain(201..=220).collect::<Vec<u64>>());
        for experiment in all.all.iter().filter_map(|experiment| experiment.text.as_ref()) {
            let scenario =
                Scenario::parse(experiment, "drawn.toml").unwrap_or_else(|errors| panic!("{errors}"));
            assert_eq!(scenario.cases(None).unwrap().len(), 2);
        }
    }

    #[test]
    fn names_and_paths_are_told_apart() {
        assert!(!is_path("quickstart"));
        assert!(!is_path("quikstart"));
        assert!(is_path("quickstart.toml") && is_path("./quickstart") && is_path("mine.toml"));
        assert_eq!(Shipped::suggestion("quikstart"), "; did you mean \"quickstart\"?");
        assert_eq!(Shipped::suggestion("nothing"), "");
    }
}
