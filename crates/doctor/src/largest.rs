//! [`Consumer`]: the programs that hold most memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lotsfree_kernel_files::counters::status as s;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_snapshot::Snapshot;
use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

/// The number of programs that are named at most.
const MOST: usize = 3;
/// Programs below this share of memory are not worth a word, unless they are the largest.
const LEAST: f64 = 0.01;

/// All processes of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Consumer {
    /// Name of the program.
    pub name: String,
    /// How many processes it has.
    pub processes: usize,
    /// What they hold: the anonymous memory of each, and once what they share. Page cache is no part of it.
    /// Kernels before 4.5, and lists such as those of `ps`, do not tell the two apart: then it is what is
    /// resident of the largest process alone.
    pub memory: Bytes,
    /// Whether it is of the largest process alone.
    pub of_largest: bool,
}

/// What the processes of one program add up to.
#[derive(Default)]
struct Sum {
    processes: usize,
    own: Bytes,
    shared: Bytes,
    in_pools: Bytes,
    resident: Bytes,
    /// Some process does not say what is its own.
    unsplit: bool,
}

impl Sum {
    fn add(&mut self, process: &Process) {
        let of = |field| process.memory_or_zero(field);
        self.processes += 1;
        self.own = self.own + of(s::RssAnon);
        self.shared = self.shared.max(of(s::RssShmem));
        self.in_pools = self.in_pools.max(of(s::HugetlbPages));
        self.resident = self.resident.max(of(s::VmRSS));
        self.unsplit |= process.memory(s::RssAnon).is_none();
    }
}

/// The programs that hold most, largest first; none where no process is known.
pub(crate) fn largest(now: &Snapshot, total: Option<Bytes>) -> Vec<Consumer> {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for process in now.processes.iter().flatten().filter(|process| !process.stat.is_kernel_thread()) {
        sums.entry(&process.stat.name).or_default().add(process);
    }
    let consumer = |(name, sum): (&str, Sum)| Consumer {
        name: name.to_owned(),
        processes: sum.processes,
        memory: if sum.unsplit { sum.resident } else { sum.own + sum.shared } + sum.in_pools,
        of_largest: sum.unsplit && sum.processes > 1,
    };
    let mut all: Vec<Consumer> = sums.into_iter().map(consumer).collect();
    all.retain(|one| one.memory > Bytes::ZERO && !one.name.is_empty());
    all.sort_by_key(|one| Reverse(one.memory));
    all.truncate(MOST);
    let small = |one: &Consumer| total.is_some_and(|total| one.memory.share_of(total) < LEAST);
    let kept = all.iter().take_while(|one| !small(one)).count().max(1);
    all.truncate(kept);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(
        name: &str,
        fields: &[(lotsfree_kernel_files::counters::Counter<lotsfree_kernel_files::counters::Status>, u64)],
    ) -> Process {
        let mut process = Process::default();
        process.stat.name = name.into();
        for (field, mib) in fields {
            process.status.set(*field, mib << 10);
        }
        process
    }

    fn named(processes: Vec<Process>) -> Vec<(String, usize, Bytes, bool)> {
        let now = Snapshot { processes: Some(processes), ..Snapshot::default() };
        let all = largest(&now, Some(Bytes::gib(10)));
        all.into_iter().map(|one| (one.name, one.processes, one.memory, one.of_largest)).collect()
    }

    #[test]
    fn what_processes_share_counts_once_and_what_is_their_own_each_time() {
        let backend = || process("postgres", &[(s::VmRSS, 2100), (s::RssAnon, 100), (s::RssShmem, 2000)]);
        let java = process("java", &[(s::VmRSS, 3000), (s::RssAnon, 2900), (s::RssShmem, 0)]);
        let small = process("sshd", &[(s::VmRSS, 10), (s::RssAnon, 9)]);
        let all = named(vec![backend(), backend(), backend(), java, small]);
        assert_eq!(
            all,
            [
                ("java".to_owned(), 1, Bytes::mib(2900), false),
                ("postgres".to_owned(), 3, Bytes::mib(2300), false),
            ]
        );
    }

    #[test]
    fn without_that_difference_only_the_largest_process_is_told() {
        let all = named(vec![process("oracle", &[(s::VmRSS, 900)]), process("oracle", &[(s::VmRSS, 950)])]);
        assert_eq!(all, [("oracle".to_owned(), 2, Bytes::mib(950), true)]);
        assert_eq!(named(Vec::new()), []);
    }
}
