//! CPUs: which one a task runs on, and how much longer its work takes when there are not enough.
//!
//! All CPUs are one pool that is shared equally (generalised processor sharing). When a task begins a slice,
//! the demand is one CPU for the task itself plus the share of a CPU that each other task used in its own
//! last slice. If the demand exceeds the number of CPUs, everything in the slice takes longer by that ratio.
//! The result is exact for tasks that only compute. For tasks that often sleep it is the mean: no task is
//! lucky enough to find a CPU free. Kernel threads compete like any task, except that kswapd runs at once
//! when it wakes up, as it preempts whoever runs, until it has used the credit of a sleeper. The CPU of a
//! task decides which lists of free pages the task uses, and may change when the task wakes up.

use crate::mm::{MS, Mm};

/// The share of a task that uses a CPU all the time.
pub(super) const FULL: u32 = 1024;

/// The factor by which work takes longer, minus 1, in units of 1/65536.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch(u64);

impl Stretch {
    /// Elapsed time for an amount of CPU time.
    #[inline]
    pub(super) fn elapsed(self, cpu: u64) -> u64 {
        if self.0 == 0 { cpu } else { self.slow(cpu) }
    }

    fn slow(self, cpu: u64) -> u64 {
        let more = (u128::from(cpu) * u128::from(self.0)) >> 16;
        cpu.saturating_add(u64::try_from(more).unwrap_or(u64::MAX >> 1))
    }

    /// CPU time that fits into an elapsed time, rounded up, so that it is at least 1 if the elapsed time is.
    pub(super) fn cpu(self, elapsed: u64) -> u64 {
        let cpu = (u128::from(elapsed) << 16).div_ceil(u128::from(self.0) + (1 << 16));
        u64::try_from(cpu).unwrap_or(elapsed)
    }
}

/// The CPUs of a machine.
#[derive(Debug)]
pub(super) struct Cpus {
    count: u32,
    /// CPUs of each node.
    of_node: Vec<Vec<usize>>,
    /// Threads placed on each node, and threads placed on the nodes in turn.
    placed: Vec<usize>,
    spread: usize,
    /// Share of a CPU that each task uses.
    share: Vec<u32>,
    total: u64,
    /// Which CPU each task is on, and the shares of all that are on each CPU.
    on: Vec<usize>,
    load: Vec<u64>,
}

impl Cpus {
    pub(super) fn new(mm: &Mm, nodes: usize, count: u32) -> Self {
        let count = count.max(1);
        let mut of_node = vec![Vec::new(); nodes.max(1)];
        for cpu in 0..count as usize {
            of_node[mm.node_of_cpu(cpu)].push(cpu);
        }
        Cpus {
            count,
            placed: vec![0; of_node.len()],
            of_node,
            spread: 0,
            share: Vec::new(),
            total: 0,
            on: Vec::new(),
            load: vec![0; count as usize],
        }
    }

    /// Chooses a CPU for a new task: one of the given node, or of the nodes in turn. Tasks of a node without
    /// CPUs get one of another node.
    pub(super) fn place(&mut self, node: Option<u32>) {
        self.share.push(0);
        let node = match node {
            Some(node) => (node as usize).min(self.of_node.len() - 1),
            None => {
                self.spread += 1;
                (self.spread - 1) % self.of_node.len()
            }
        };
        let turn = self.placed[node];
        self.placed[node] += 1;
        let cpu = match &self.of_node[node][..] {
            [] => turn % self.count as usize,
            cpus => cpus[turn % cpus.len()],
        };
        self.on.push(cpu);
    }

    /// The CPU that a task is on.
    pub(super) fn of(&self, task: usize) -> usize {
        self.on[task]
    }

    /// A waking task stays on the CPU that it was on, unless other tasks use that CPU for more than half of
    /// the time; then it moves to the least busy one of its node (`select_idle_sibling`).
    pub(super) fn place_again(&mut self, task: usize, node: usize) {
        let before = self.on[task];
        if self.load[before] - u64::from(self.share[task]) > u64::from(FULL / 2) {
            let least = self.of_node[node].iter().copied().min_by_key(|&cpu| (self.load[cpu], cpu != before));
            if let Some(cpu) = least {
                let share = u64::from(self.share[task]);
                self.load[before] -= share;
                self.load[cpu] += share;
                self.on[task] = cpu;
            }
        }
    }

    /// Sets the share of a CPU that a task uses from now on.
    pub(super) fn set(&mut self, task: usize, share: u32) {
        let (before, after) = (u64::from(self.share[task]), u64::from(share));
        self.total = self.total - before + after;
        let load = &mut self.load[self.on[task]];
        *load = *load - before + after;
        self.share[task] = share;
    }

    /// Sets the share of a CPU from what the task used in a slice.
    pub(super) fn used(&mut self, task: usize, busy: u64, elapsed: u64) {
        if elapsed > 0 {
            let share = u128::from(busy.min(elapsed)) * u128::from(FULL) / u128::from(elapsed);
            self.set(task, share as u32);
        }
    }

    /// The most CPU time in nanoseconds that a task which has slept may use before the others: half of the
    /// scheduler's latency (`kernel/sched/fair.c:place_entity`; from 6.6 on it is a slice, which is shorter).
    pub(super) fn sleeper_credit(&self) -> u64 {
        3 * MS * u64::from(1 + self.count.min(8).ilog2())
    }

    /// How much longer the work of a task takes if it begins a slice now.
    pub(super) fn stretch(&self, task: usize) -> Stretch {
        let demand = self.total - u64::from(self.share[task]) + u64::from(FULL);
        let supply = u64::from(self.count) * u64::from(FULL);
        Stretch(((demand << 16) / supply).saturating_sub(1 << 16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;
    use crate::mm::Config;

    #[test]
    fn a_task_wakes_up_where_a_cpu_is_idle() {
        let config = Config { cpus: 4, ..Config::new(Generation::linux_6_1(), vec![1 << 16; 2]) };
        let mm = Mm::new(&config);
        let mut cpus = Cpus::new(&mm, 2, 4);
        (0..3).for_each(|_| cpus.place(Some(0)));
        let [kswapd, writer, reader] = [0, 1, 2].map(|task| cpus.of(task));
        let wakes_on = |cpus: &mut Cpus, task| {
            cpus.place_again(task, 0);
            cpus.of(task)
        };
        assert_eq!((kswapd, reader), (0, 0), "the node's two CPUs in turn");
        assert_eq!(wakes_on(&mut cpus, 0), kswapd, "nobody else is awake");
        cpus.set(2, FULL / 4);
        assert_eq!(wakes_on(&mut cpus, 0), kswapd, "it is mostly idle");
        cpus.set(2, FULL);
        assert_eq!(wakes_on(&mut cpus, 0), writer);
        cpus.set(0, FULL);
        assert_eq!(wakes_on(&mut cpus, 1), writer, "what it shares its CPU with is no busier than the other");
        (0..3).for_each(|task| cpus.set(task, 0));
        cpus.set(1, FULL);
        assert_eq!(wakes_on(&mut cpus, 0), kswapd, "not to another node, though that is idle, too");
    }
}
