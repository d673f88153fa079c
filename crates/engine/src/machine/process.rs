//! Start and end of processes, and the OOM killer.

use std::sync::Arc;

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_kernel_files::file::cgroup;
use lotsfree_run::{Attached, EventKind, Limits, ProcessSample, Spent};
use lotsfree_units::Bytes;
use lotsfree_workload as workload;
use lotsfree_workload::Limit;
use rustc_hash::FxHashMap;

use super::Machine;
use super::measure::{Group, total};
use super::queue::Event;
use super::task::{Death, Kind, Process, Stages, State, Thread};
use crate::mm::Victim;

/// The process id of the first actor's first process.
pub(super) const FIRST_PID: u32 = 1000;
/// `CAP_IPC_LOCK`, as a bit.
const CAP_IPC_LOCK: u64 = 1 << 14;

impl Machine {
    /// Adds an actor, which starts when its time comes.
    pub(super) fn add_process(&mut self, actor: workload::Process) {
        let workload::Process { name, instance, policy, memory, oom_score_adj, node, start, stop, threads } =
            actor;
        let index = self.processes.len();
        let number = self.mm.create_process(policy);
        self.mm.set_memory(number, memory);
        let first = self.threads.len();
        for workload::Thread { role, marks, stream } in threads {
            let task = self.add_task(Kind::Thread(self.threads.len()), node);
            let group = self.group(&name, role);
            self.threads.push(Thread {
                task,
                process: index,
                group,
                marks,
                stream,
                ops: Vec::new(),
                cursor: 0,
                filled_at: 0,
                timeless: 0,
                begun: None,
                failed: false,
                date: None,
                slept: false,
                left: None,
                call: None,
                ra: FxHashMap::default(),
                started: start,
                spent: Spent::default(),
            });
        }
        let threads = first..self.threads.len();
        self.queue.push(start, Event::Start(index));
        if let Some(stop) = stop {
            self.queue.push(stop, Event::Stop(index));
        }
        self.processes.push(Process {
            name,
            number,
            oom_score_adj,
            alive: threads.len(),
            threads,
            dying: None,
            stages: Stages::default(),
            instance,
            memory,
            faults: [0; 2],
            waiting: Vec::new(),
        });
    }

    fn group(&mut self, actor: &str, role: &str) -> usize {
        if let Some(group) = self.groups.iter().position(|group| group.is(actor, role)) {
            return group;
        }
        let known = self.groups.iter().find(|group| *group.actor == *actor);
        let actor: Arc<str> = known.map_or_else(|| actor.into(), |group| group.actor.clone());
        self.groups.push(Group::new(actor, role));
        self.groups.len() - 1
    }

    fn say(&mut self, process: usize, at: u64, kind: EventKind, what: String) {
        let name = &self.processes[process].name;
        self.log.add(at, kind, what, Some(name));
    }

    /// Starts the threads of an actor when its time has come.
    pub(super) fn start(&mut self, process: usize) {
        if self.processes[process].dying.is_some() {
            return;
        }
        self.say(process, self.now, EventKind::Start, "started".to_owned());
        let Process { number, ref threads, .. } = self.processes[process];
        // The first thread of a program starts the others, and does nothing else (`agent/process.rs`).
        let all = 1 + threads.len();
        let mut cx = self.context(self.threads[threads.start].task, number);
        (cx.start, cx.slice) = (self.now, u64::MAX);
        self.mm.exec(&mut cx, all);
        if self.processes[process].memory.locked && self.mm.lock_from_start(number).is_err() {
            let what =
                "mlockall: its RLIMIT_MEMLOCK is less than what it has mapped (ENOMEM); it goes on without";
            self.say(process, self.now, EventKind::Error, what.to_owned());
        }
        for thread in self.processes[process].threads.clone() {
            self.make_ready(self.threads[thread].task, self.now);
        }
    }

    /// Ends an actor when its time is over.
    pub(super) fn stop(&mut self, process: usize) {
        self.kill(process, Death::Stopped, self.now);
    }

    /// Ends a thread whose stream has ended. The last thread of a process also ends the address space.
    pub(super) fn end_of_stream(&mut self, task: usize) {
        let Kind::Thread(thread) = self.tasks[task].kind else { return };
        if self.processes[self.threads[thread].process].alive == 1 {
            self.exit(task);
        } else {
            self.end(task);
        }
    }

    /// Ends an actor that has accessed memory for which there is no page.
    pub(super) fn sigbus(&mut self, task: usize, process: usize) {
        let at = self.tasks[task].at;
        self.kill(process, Death::Bus, at);
        if self.tasks[task].state == State::Ready {
            self.queue.push(at, Event::Run(task));
        }
    }

    /// Ends a process: wakes its first living thread, whatever that waits for, to unmap everything, and ends
    /// the others at once.
    fn kill(&mut self, process: usize, death: Death, at: u64) {
        let Process { alive, dying, .. } = &mut self.processes[process];
        if *alive == 0 || dying.is_some() {
            return;
        }
        *dying = Some(death);
        self.processes[process].waiting.clear();
        let mut last = None;
        for thread in self.processes[process].threads.clone() {
            let task = self.threads[thread].task;
            match self.tasks[task].state {
                State::Dead => {}
                State::New => self.end(task),
                _ if last.is_none() => last = Some(task),
                _ => {
                    self.account_sleep(task, at);
                    self.end(task);
                }
            }
        }
        if let Some(task) = last {
            self.wake(task);
        }
    }

    /// A thread tears down the address space of its process, and then ends (`exit_mmap`).
    pub(super) fn exit(&mut self, task: usize) {
        let Kind::Thread(thread) = self.tasks[task].kind else { return };
        let process = self.threads[thread].process;
        let mut cx = self.context(task, self.processes[process].number);
        self.mm.exit(&mut cx);
        let group = self.threads[thread].group;
        self.groups[group].took(cx.pages);
        let elapsed = self.cpus.stretch(task).elapsed(cx.spent);
        self.spend(task, |spent| {
            spent.system += cx.spent;
            spent.runnable += elapsed - cx.spent;
        });
        self.tasks[task].at += elapsed;
        let at = self.tasks[task].at;
        self.tell(at);
        self.end(task);
        let what = match self.processes[process].dying {
            None => "ended",
            Some(Death::Stopped) => "its time was over",
            Some(Death::OomKilled) => "killed",
            Some(Death::Bus) => "ended by SIGBUS",
        };
        self.say(process, at, EventKind::Exit, what.to_owned());
    }

    /// Ends a thread.
    fn end(&mut self, task: usize) {
        let Kind::Thread(thread) = self.tasks[task].kind else { return };
        if let State::Asleep { channel: Some(channel), .. } = self.tasks[task].state {
            self.waiters.remove(channel, task);
        }
        if self.tasks[task].state != State::New {
            let life = self.tasks[task].at - self.threads[thread].started;
            debug_assert_eq!(total(&self.threads[thread].spent), life, "a thread's time does not add up");
        }
        self.mm.end_plug(self.tasks[task].number);
        self.tasks[task].state = State::Dead;
        self.tasks[task].sleep += 1;
        self.cpus.set(task, 0);
        self.strain(task);
        let thread = &mut self.threads[thread];
        (thread.ops, thread.ra, thread.call) = Default::default();
        self.processes[thread.process].alive -= 1;
    }

    /// The files of a process; `None` if it does not run. It has the capability that an agent of the lab has.
    pub(super) fn process_sample(&self, index: usize) -> Option<ProcessSample> {
        let process = &self.processes[index];
        let started = self.tasks[self.threads.get(process.threads.start)?.task].state != State::New;
        if !started || process.alive == 0 {
            return None;
        }
        let attached = self.mm.mapped_objects(process.number).filter_map(|(object, address)| {
            let is_segment = self.segments.contains(&Some(object));
            is_segment.then_some(Attached { shmid: object.into(), address })
        });
        Some(ProcessSample {
            pid: FIRST_PID + index as u32,
            name: process.name.as_str().into(),
            status: self.mm.status(process.number),
            capabilities: Some(if process.memory.limits.memlock.is_none() { CAP_IPC_LOCK } else { 0 }),
            faults: Some(process.faults),
            limits: self.limits(&process.memory.limits),
            attached: attached.collect(),
        })
    }

    /// The limits of a process, as `/proc/PID/limits` has them.
    fn limits(&self, limits: &workload::Limits) -> Limits {
        let or_max = |bytes: Option<Bytes>| Some(bytes.map_or(cgroup::Limit::Max, cgroup::Limit::At));
        let of = |limit: Option<Limit>| or_max(limit.and_then(Limit::bytes));
        Limits {
            memlock: match limits.memlock {
                None => or_max(self.mm.default_memlock()),
                limit => of(limit),
            },
            address_space: of(limits.address_space),
            data: of(limits.data),
        }
    }

    /// Whether a process is being killed that has not given its memory back yet.
    pub(super) fn oom_victim_is_going(&self) -> bool {
        self.processes.iter().any(|process| process.dying.is_some() && process.alive > 0)
    }

    /// Runs the OOM killer after reclaim gave up on an allocation by a thread of `process` (`mm/oom_kill.c`;
    /// the model gives up in `mm/page_alloc.rs`). Returns whether there was anybody to kill; if not, a kernel
    /// panics.
    pub(super) fn out_of_memory(&mut self, process: usize, at: u64) -> bool {
        let control = self.mm.oom_control(self.processes[process].number);
        let later_wins = self.mm.oom_later_wins();
        let mut victim: Option<(i64, usize)> = None;
        for (index, process) in self.processes.iter().enumerate() {
            let started = self.tasks[self.threads[process.threads.start].task].state != State::New;
            if !started || process.alive == 0 || process.dying.is_some() {
                continue;
            }
            let badness = self.mm.oom_badness(&control, process.number, process.oom_score_adj);
            let Some(badness) = badness else { continue };
            if victim.is_none_or(|(worst, _)| badness > worst || (later_wins && badness == worst)) {
                victim = Some((badness, index));
            }
        }
        let own = &self.processes[process];
        let kills_asker = self.mm.tuning.oom_kill_allocating_task
            && self.mm.oom_badness(&control, own.number, own.oom_score_adj).is_some();
        let chosen = if kills_asker { Some(process) } else { victim.map(|(_, index)| index) };
        let Some(victim) = chosen else { return false };
        let Process { ref name, number, oom_score_adj, .. } = self.processes[victim];
        let pid = FIRST_PID + victim as u32;
        let who = Victim { process: number, pid, name, oom_score_adj, asked: kills_asker };
        let messages = self.mm.oom_messages(&control, who);
        for message in messages {
            let kind =
                if message.starts_with("Out of memory") { EventKind::OomKill } else { EventKind::Note };
            self.say(victim, at, kind, message);
        }
        self.mm.events[vmstat::oom_kill] += 1;
        self.kill(victim, Death::OomKilled, at);
        true
    }
}
