//! Tasks run, sleep and wake up.

use lotsfree_run::Spent;

use super::cpus::Stretch;
use super::measure::waited;
use super::queue::Event;
use super::slice::{After, Slice};
use super::task::{Kind, Process, State, Task};
use super::{
    CROWD, LONGEST_CALL_NS, LOOKAHEAD_IDLE_NS, LOOKAHEAD_RECLAIM_NS, Machine, POLL, POLL_DOUBLINGS,
    SHORTEST_CALL_NS, SLICE_NS,
};
use crate::mm::{Cx, MS, Wait, WaitReason};

impl Machine {
    /// Starts one of the kernel's own tasks, which runs from the beginning.
    pub(super) fn start_kernel_task(&mut self, kind: Kind, node: u32) {
        let task = self.add_task(kind, Some(node));
        self.make_ready(task, 0);
    }

    pub(super) fn add_task(&mut self, kind: Kind, node: Option<u32>) -> usize {
        let number = self.mm.create_task();
        self.cpus.place(node);
        self.tasks.push(Task::new(kind, number));
        self.tasks.len() - 1
    }

    /// Starts a task now.
    pub(super) fn make_ready(&mut self, task: usize, now: u64) {
        self.tasks[task].state = State::Ready;
        self.tasks[task].at = now;
        self.cpus.set(task, super::cpus::FULL);
        self.strain(task);
        self.queue.push(now, Event::Run(task));
    }

    /// Gives a task a CPU.
    pub(super) fn run_task(&mut self, task: usize) {
        if self.tasks[task].state != State::Ready {
            return;
        }
        let ready = self.now - self.tasks[task].at;
        self.spend(task, |spent| spent.runnable += ready);
        self.tasks[task].at = self.now;
        match self.tasks[task].kind {
            Kind::Thread(thread) => {
                if self.processes[self.threads[thread].process].dying.is_some() {
                    self.exit(task);
                } else {
                    self.run_thread(task, thread);
                }
            }
            kind => self.run_kernel_task(task, kind),
        }
    }

    /// How far a task may run past the next entry of the queue.
    fn lookahead(&self) -> u64 {
        if self.reclaiming > 0 || self.mm.is_contended() { LOOKAHEAD_RECLAIM_NS } else { LOOKAHEAD_IDLE_NS }
    }

    pub(super) fn context(&self, task: usize, process: usize) -> Cx {
        let Task { number, at, .. } = self.tasks[task];
        let mut cx = Cx::new(number, self.cpus.of(task), process, at);
        cx.slice = self.lookahead().clamp(SHORTEST_CALL_NS, LONGEST_CALL_NS);
        cx
    }

    fn run_kernel_task(&mut self, task: usize, kind: Kind) {
        let mut cx = self.context(task, usize::MAX);
        let stretch = match self.tasks[task].credit {
            0 => self.cpus.stretch(task),
            _ => Stretch::default(),
        };
        let wait = match kind {
            Kind::Kswapd(node) => self.kswapds[node].poll(&mut self.mm, &mut cx),
            Kind::Zswap => self.zswap.poll(&mut self.mm, &mut cx),
            _ => self.mm.flusher(&mut cx),
        };
        let elapsed = stretch.elapsed(cx.spent);
        self.tasks[task].at += elapsed;
        self.tasks[task].credit = self.tasks[task].credit.saturating_sub(cx.spent);
        self.cpus.used(task, elapsed, elapsed);
        self.tell(self.tasks[task].at);
        self.sleep(task, wait, elapsed > 0);
    }

    fn run_thread(&mut self, task: usize, index: usize) {
        let now = self.now;
        let stretch = self.cpus.stretch(task);
        // Where more threads than CROWD share a CPU, pieces of elapsed time would hold ever less work.
        let piece = |elapsed: u64| elapsed.max(stretch.elapsed(elapsed / CROWD));
        let passed = self.queue.next_at().saturating_add(piece(self.lookahead()));
        let bound = self.next_sample.min(self.until);
        let horizon = passed.min(now.saturating_add(piece(SLICE_NS))).min(bound).max(now);
        let process = self.threads[index].process;
        let cx = self.context(task, self.processes[process].number);
        let thread = &mut self.threads[index];
        let Process { stages, faults, .. } = &mut self.processes[process];
        let mut slice = Slice {
            mm: &mut self.mm,
            files: &mut self.files,
            segments: &self.segments,
            group: &mut self.groups[thread.group],
            thread,
            stages,
            faults,
            log: &mut self.log,
            cx,
            at: now,
            horizon,
            stretch,
            spent: Spent::default(),
        };
        let after = slice.run();
        let (at, mut spent) = (slice.at, slice.spent);
        spent.runnable = (at - now) - spent.user - spent.system - spent.reclaim - spent.idle;
        self.tasks[task].at = at;
        self.spend(task, |all| super::measure::add(all, &spent));
        self.cpus.used(task, at - now - spent.idle, at - now);
        self.tell(at);
        self.go_on(task, index, after, at > now);
    }

    /// Continues a thread according to the reason why its slice ended.
    fn go_on(&mut self, task: usize, index: usize, after: After, progress: bool) {
        let at = self.tasks[task].at;
        let process = self.threads[index].process;
        match after {
            After::Slice => self.queue.push(at, Event::Run(task)),
            After::Sleep(until) => self.sleep(task, Wait::until(until, WaitReason::Idle), progress),
            After::Wait(wait) => self.sleep(task, wait, progress),
            After::Await { stage, times } => {
                self.processes[process].waiting.push((task, stage, times));
                self.sleep(task, Wait { channel: None, until: None, why: WaitReason::Idle }, progress);
            }
            After::Signal(stage) => {
                self.queue.push(at, Event::Stage { process, stage });
                self.queue.push(at, Event::Run(task));
            }
            After::Exit => self.end_of_stream(task),
            After::Bus => self.sigbus(task, process),
            After::OutOfMemory if self.oom_victim_is_going() => {
                self.sleep(task, Wait::until(at + MS, WaitReason::Reclaim), progress);
            }
            After::OutOfMemory => {
                if !self.out_of_memory(process, at) {
                    self.panic();
                }
                // The allocation is tried again. If its own process was killed, that ends at its next turn,
                // unless another of its threads ends it.
                if self.tasks[task].state == State::Ready {
                    self.sleep(task, Wait::until(at + MS, WaitReason::Reclaim), progress);
                }
            }
        }
    }

    /// Puts a task to sleep from its own time on. A task that yields, or whose time to wake has come already,
    /// only waits for its next turn; the pause grows as long as it uses no time between turns (see [`POLL`]).
    fn sleep(&mut self, task: usize, wait: Wait, progress: bool) {
        let at = self.tasks[task].at;
        let Wait { channel, until, why } = wait;
        if why == WaitReason::Yield || until.is_some_and(|until| until <= at) {
            let polls = &mut self.tasks[task].polls;
            let pause = if progress { 0 } else { POLL << *polls };
            *polls = if progress { 0 } else { (*polls + 1).min(POLL_DOUBLINGS) };
            self.queue.push(at + pause, Event::Run(task));
            return;
        }
        self.tasks[task].polls = 0;
        self.tasks[task].state = State::Asleep { channel, why };
        self.strain(task);
        let sleep = self.tasks[task].sleep;
        if let Some(channel) = channel {
            self.waiters.add(channel, task);
        }
        if let Some(until) = until.filter(|until| *until < u64::MAX) {
            self.queue.push(until, Event::Timer { task, sleep });
        }
        if at > self.now {
            self.queue.push(at, Event::OffCpu { task, sleep });
        } else {
            self.cpus.set(task, 0);
        }
    }

    /// Wakes a task: the event that it waited for happens now, which may be before the task's own time. The
    /// task runs a wake-up's cost after the later of the two.
    pub(super) fn wake(&mut self, task: usize) {
        let State::Asleep { channel, .. } = self.tasks[task].state else { return };
        if let Some(channel) = channel {
            self.waiters.remove(channel, task);
        }
        let slept = self.account_sleep(task, self.now);
        if matches!(self.tasks[task].kind, Kind::Kswapd(_)) {
            let credit = self.tasks[task].credit.saturating_add(slept);
            self.tasks[task].credit = credit.min(self.cpus.sleeper_credit());
        }
        self.tasks[task].state = State::Ready;
        self.tasks[task].sleep += 1;
        let node = self.mm.node_of_cpu(self.cpus.of(task));
        self.cpus.place_again(task, node);
        self.cpus.set(task, super::cpus::FULL);
        self.strain(task);
        let runs = self.tasks[task].at.saturating_add(self.mm.costs.wakeup);
        self.queue.push(runs, Event::Run(task));
    }

    /// Wakes the tasks that waited for a stage of a process, when the stage has been signalled often enough.
    pub(super) fn wake_stage(&mut self, process: usize, stage: u32) {
        let Machine { processes, .. } = self;
        let process = &mut processes[process];
        let stages = &process.stages;
        let met = |waiter: &mut (usize, u32, u32)| waiter.1 == stage && stages.reached(stage, waiter.2);
        let woken: Vec<usize> = process.waiting.extract_if(.., met).map(|waiter| waiter.0).collect();
        woken.into_iter().for_each(|task| self.wake(task));
    }

    /// Accounts for the time that a sleeping task has slept up to now, and returns it, in nanoseconds.
    pub(super) fn account_sleep(&mut self, task: usize, now: u64) -> u64 {
        let State::Asleep { why, .. } = self.tasks[task].state else { return 0 };
        let slept = now.saturating_sub(self.tasks[task].at);
        self.tasks[task].at += slept;
        self.spend(task, |spent| waited(spent, why, slept));
        if let Kind::Thread(thread) = self.tasks[task].kind {
            self.groups[self.threads[thread].group].waited(why, slept);
        }
        slept
    }

    /// Accounts for the time that all sleeping tasks have slept up to now.
    pub(super) fn settle(&mut self) {
        for task in 0..self.tasks.len() {
            self.account_sleep(task, self.now);
        }
    }

    /// Enters a thread's time into its own account and into that of its group.
    pub(super) fn spend(&mut self, task: usize, enter: impl Fn(&mut Spent)) {
        if let Kind::Thread(thread) = self.tasks[task].kind {
            let thread = &mut self.threads[thread];
            enter(&mut thread.spent);
            enter(&mut self.groups[thread.group].spent);
        }
    }

    /// Adds a task to the tasks that require the short lookahead, or takes it away, as its state says.
    pub(super) fn strain(&mut self, task: usize) {
        let Task { kind, state, in_reclaim, .. } = self.tasks[task];
        let is = match (kind, state) {
            (Kind::Kswapd(_), State::Asleep { why, .. }) => why != WaitReason::Idle,
            (Kind::Kswapd(_), state) => state == State::Ready,
            (_, State::Asleep { why, .. }) => why == WaitReason::Reclaim,
            _ => false,
        };
        self.reclaiming = self.reclaiming + usize::from(is) - usize::from(in_reclaim);
        self.tasks[task].in_reclaim = is;
    }
}
