//! Coordinates a run: starts agents, samples counters, collects reports.
//!
//! Every interval, the coordinator reads the counters and then waits briefly for the agents' reports on the
//! interval. A report that comes later counts in the next interval, so that nothing is lost and nobody is
//! held up.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use lotsfree_run::wire::{self, Message};
use lotsfree_run::{Event, EventKind, Interval, Sample, Sink, Spent, State};
use lotsfree_scenario::Case;
use lotsfree_watch::{Processes, Sampler};
use lotsfree_workload::START_LEAD_NS;

use crate::agent::{self, Clock, FAILED, Order, READY, Segment};
use crate::command::Exec;
use crate::error::{LabError, at, calling};
use crate::toll::TollKeeper;

/// The run fails if an agent is not ready after this.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Nanoseconds from the time at which all agents are ready to the start of the run.
const START_DELAY_NS: u64 = 200_000_000;
/// Agents that have not ended this long after the end of the run are killed.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// Where a case is executed.
#[derive(Clone, Debug)]
pub struct Place {
    /// The program that is an agent when it is called with [`arguments`](Self::arguments).
    pub program: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The case, as a file.
    pub case: PathBuf,
    /// The directory of the actors' files.
    pub files: PathBuf,
    /// The commands that actors execute, in the order of the program.
    pub commands: Vec<Exec>,
    /// The directory of the control group that the actors are put into.
    pub group: Option<PathBuf>,
    /// The nodes' CPUs, if threads are to stay on their nodes.
    pub cpus: Vec<Vec<u32>>,
    /// The numbers of the NUMA nodes.
    pub nodes: Vec<u32>,
    /// What is added to the `oom_score_adj` of the actors.
    pub oom_score_adj: i32,
    /// Requests that take at least this many nanoseconds are reported one by one.
    pub slow: u64,
    /// The part of one CPU that watching the kernel for what memory costs the actors may take; `None`: it is
    /// not watched.
    pub blame: Option<f64>,
}

/// One agent.
struct Agent {
    actor: String,
    /// The number of the actor's first process, under which its reports are collected.
    first: usize,
    oom_score_adj: i32,
    order: Order,
    /// Whether the samples have its files.
    is_sampled: bool,
    /// The time of the run at which the process starts, and that at which it has to end.
    start: u64,
    stop: u64,
    state: AgentState,
    /// The time up to which the agent has reported.
    reported: u64,
}

enum AgentState {
    New,
    /// The agent has been started; `true`: it is ready, and is told when the run begins.
    Running(Child, ChildStdin, bool),
    Ended,
}

/// A piece of news from an agent's output.
enum AgentReport {
    Message(usize, Message),
    /// The output ended, with the reason if that is no ordinary end.
    End(usize, Option<String>),
}

/// Executes a case. `watch` is told the time of the run, in nanoseconds, and says whether to go on.
///
/// # Errors
/// If an agent cannot begin, a counter cannot be read or the sink fails. All agents have been killed by then.
pub fn coordinate(
    case: &Case,
    segments: &[Segment],
    place: &Place,
    sink: &mut dyn Sink,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<State, LabError> {
    let sampler = Sampler::new(&place.nodes, place.group.as_deref())?;
    let (tell, news) = channel();
    let mut agents = Vec::new();
    let mut threads_before = 0;
    let processes = case.program()?.processes;
    let instances = processes.iter().map(|process| process.instance);
    let sampled = Sample::processes_of(instances, case.duration.ns() / case.interval.ns().max(1));
    for (number, process) in processes.into_iter().enumerate() {
        let order = Order {
            case: place.case.clone(),
            process: number,
            files: place.files.clone(),
            segments: segments.to_vec(),
            commands: place.commands.clone(),
            cpus: place.cpus.clone(),
            threads_before,
            slow: place.slow,
        };
        threads_before += process.threads.len();
        let stop = process.stop.unwrap_or(u64::MAX).min(case.duration.ns());
        let known = agents.iter().position(|agent: &Agent| agent.actor == process.name);
        agents.push(Agent {
            actor: process.name,
            first: known.unwrap_or(number),
            oom_score_adj: process.oom_score_adj,
            order,
            is_sampled: sampled.contains(&number),
            start: process.start,
            stop,
            state: AgentState::New,
            reported: 0,
        });
    }
    let mut coordinator = Coordinator {
        place,
        sampler,
        processes: Processes::default(),
        agents,
        tell,
        news,
        begin: None,
        rows: BTreeMap::new(),
        tolls: BTreeMap::new(),
        keeper: place.blame.map(TollKeeper::start).transpose()?,
        events: Vec::new(),
        oom_kills: 0,
    };
    coordinator.run(case, sink, watch)
}

struct Coordinator<'a> {
    place: &'a Place,
    sampler: Sampler,
    /// The agents whose files the samples have.
    processes: Processes,
    agents: Vec<Agent>,
    tell: Sender<AgentReport>,
    news: Receiver<AgentReport>,
    /// `CLOCK_MONOTONIC` at the start of the run.
    begin: Option<u64>,
    /// Reports since the last sample, by actor and role in the order of the program.
    rows: BTreeMap<(usize, String), Interval>,
    /// What memory cost each actor since the last sample, or before it if no row of the actor has come since.
    tolls: BTreeMap<usize, Interval>,
    keeper: Option<TollKeeper>,
    events: Vec<Event>,
    oom_kills: u64,
}

impl Coordinator<'_> {
    fn run(
        &mut self,
        case: &Case,
        sink: &mut dyn Sink,
        watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<State, LabError> {
        for number in 0..self.agents.len() {
            if self.agents.get(number).is_some_and(|agent| agent.start <= START_LEAD_NS) {
                self.start(number)?;
            }
        }
        if let ControlFlow::Break(()) = self.all_ready(watch)? {
            return Ok(State::Interrupted);
        }
        let begin = Clock::monotonic() + START_DELAY_NS;
        self.begin = Some(begin);
        let clock = Clock::default().beginning(begin);
        for agent in &mut self.agents {
            agent.tell_begin(begin)?;
        }
        if let Some(keeper) = &self.keeper {
            keeper.begin(begin, case.interval.ns());
        }
        clock.sleep_until(0);
        self.oom_kills = self.sampler.oom_kills();
        sink.sample(&self.sample(0)?)?;
        let (interval, duration) = (case.interval.ns().max(1), case.duration.ns());
        let mut last = 0;
        while last < duration {
            // If the host was held up, the samples that it missed are left out.
            let next = (last.max(clock.now().saturating_sub(interval)) / interval + 1) * interval;
            let next = next.min(duration);
            let go_on = self.until(clock, next, watch)?;
            let now = if go_on.is_break() { clock.now().min(next) } else { next };
            let sample = self.sample(now)?;
            let end = next == duration || go_on.is_break();
            let moment = Duration::from_nanos((interval / 4).min(100_000_000));
            self.reports(clock, now, if end { END_TIMEOUT } else { moment })?;
            self.tolls(moment)?;
            if end {
                // An actor may end just after the last sample; its events still belong to the run.
                self.events.iter_mut().for_each(|event| event.at = event.at.min(now));
            }
            self.write(last, sample, sink)?;
            last = now;
            if go_on.is_break() {
                return Ok(State::Interrupted);
            }
        }
        Ok(State::Complete)
    }

    /// The kernel's counters, and the files of the agents, which take longer to read: the counters are to be
    /// those of `time`.
    fn sample(&mut self, time: u64) -> Result<Sample, LabError> {
        let counters = self.sampler.sample(time)?;
        Ok(Sample { processes: self.processes.sample(), ..counters })
    }

    /// Starts an agent and gives it its order.
    fn start(&mut self, number: usize) -> Result<(), LabError> {
        let Some(agent) = self.agents.get_mut(number) else { return Ok(()) };
        let mut child = Command::new(&self.place.program)
            .args(&self.place.arguments)
            // The agent inherits no environment: neither that of the lab's user, nor the variables that tests
            // set.
            .env_clear()
            // A Ctrl-C reaches only the lab, which ends its agents in an orderly way.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(at(&self.place.program))?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let id = child.id();
        let (Some(mut input), Some(output)) = (input, output) else {
            return Err(LabError::Refused("an agent without pipes".to_owned()));
        };
        if let Some(keeper) = &self.keeper {
            keeper.process(id, &agent.actor);
        }
        if agent.is_sampled {
            self.processes.add(id, &agent.actor);
        }
        // The agent joins the group before it gets its order, so that all that it allocates is charged to the
        // group.
        let placed = join(id, self.place, agent.oom_score_adj);
        let given = agent::give(&agent.order, &mut input).map_err(calling("the agent's input"));
        let tell = self.tell.clone();
        let listener = std::thread::Builder::new().stack_size(agent::STACK);
        let heard = listener.spawn(move || listen(number, output, &tell)).map_err(calling("a thread"));
        agent.state = AgentState::Running(child, input, false);
        placed.and(given).and(heard.map(drop))
    }

    /// Waits until all agents that were started are ready.
    fn all_ready(
        &mut self,
        watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LabError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let waiting =
                self.agents.iter().find(|agent| matches!(agent.state, AgentState::Running(_, _, false)));
            let Some(agent) = waiting else { return Ok(ControlFlow::Continue(())) };
            if Instant::now() > deadline {
                let why = format!("not ready after {} s", READY_TIMEOUT.as_secs());
                return Err(LabError::Agent { actor: agent.actor.clone(), why });
            }
            if watch(0).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.hear(Duration::from_millis(100))?;
        }
    }

    /// Goes on to a time of the run: starts the agents that are due, and collects messages from the others.
    fn until(
        &mut self,
        clock: Clock,
        time: u64,
        watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LabError> {
        loop {
            let now = clock.now();
            if watch(now).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if now >= time {
                return Ok(ControlFlow::Continue(()));
            }
            let due =
                |agent: &Agent| matches!(agent.state, AgentState::New) && agent.start <= now + START_LEAD_NS;
            if let Some(number) = self.agents.iter().position(due) {
                self.start(number)?;
                continue;
            }
            self.hear(Duration::from_nanos((time - now).min(100_000_000)))?;
        }
    }

    /// Waits for what agents report up to a time of the run.
    fn reports(&mut self, clock: Clock, time: u64, patience: Duration) -> Result<(), LabError> {
        let deadline = Instant::now() + patience;
        let missing = |agent: &Agent| {
            matches!(agent.state, AgentState::Running(..))
                && agent.start < time
                && agent.reported < time.min(agent.stop)
        };
        while self.agents.iter().any(missing) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.hear(left.min(Duration::from_millis(20)))?;
            // The run was interrupted in the middle of an interval; agents report only at its end.
            if clock.now() < time {
                break;
            }
        }
        Ok(())
    }

    /// Takes what memory cost the actors, and adds it to their rows.
    fn tolls(&mut self, patience: Duration) -> Result<(), LabError> {
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        for row in keeper.rows(patience)? {
            let Some(agent) = self.agents.iter().find(|agent| *agent.actor == *row.actor) else { continue };
            match self.tolls.get_mut(&agent.first) {
                Some(known) => add(known, &row),
                None => drop(self.tolls.insert(agent.first, row)),
            }
        }
        let rows = &mut self.rows;
        self.tolls.retain(|first, toll| {
            let row = rows.iter_mut().find(|((number, _), _)| number == first);
            row.map(|(_, row)| charge(row, toll)).is_none()
        });
        Ok(())
    }

    /// Takes the messages of the agents. Waits for the first one for at most `patience`.
    fn hear(&mut self, patience: Duration) -> Result<(), LabError> {
        let mut news = self.news.recv_timeout(patience).ok();
        while let Some(one) = news {
            match one {
                AgentReport::Message(number, message) => self.message(number, message)?,
                AgentReport::End(number, why) => self.ended(number, why)?,
            }
            news = self.news.try_recv().ok();
        }
        Ok(())
    }

    fn message(&mut self, number: usize, message: Message) -> Result<(), LabError> {
        let Some(agent) = self.agents.get_mut(number) else { return Ok(()) };
        match message {
            Message::Text(text) if text == READY => {
                if let AgentState::Running(_, _, ready) = &mut agent.state {
                    *ready = true;
                }
                if let Some(begin) = self.begin {
                    agent.tell_begin(begin)?;
                }
            }
            Message::Text(text) => {
                let why = text.strip_prefix(FAILED).unwrap_or(&text).to_owned();
                return Err(LabError::Agent { actor: agent.actor.clone(), why });
            }
            Message::Event(event) => self.events.push(event),
            Message::Intervals(rows) => {
                for row in rows {
                    agent.reported = agent.reported.max(row.at);
                    match self.rows.get_mut(&(agent.first, row.role.to_string())) {
                        Some(known) => add(known, &row),
                        None => drop(self.rows.insert((agent.first, row.role.to_string()), row)),
                    }
                }
            }
            Message::Sample(_) => {}
        }
        Ok(())
    }

    /// An agent's output has ended.
    fn ended(&mut self, number: usize, why: Option<String>) -> Result<(), LabError> {
        let kills = self.sampler.oom_kills();
        let Some(agent) = self.agents.get_mut(number) else { return Ok(()) };
        let state = std::mem::replace(&mut agent.state, AgentState::Ended);
        let AgentState::Running(mut child, _, ready) = state else { return Ok(()) };
        let status = child.wait().map_err(calling("wait"))?;
        let actor = agent.actor.clone();
        if !ready {
            let why = why.unwrap_or_else(|| format!("it ended before it began: {status}"));
            return Err(LabError::Agent { actor, why });
        }
        let now = self.begin.map_or(0, |begin| Clock::default().beginning(begin).now());
        let mut say = |kind, what| self.events.push(Event::new(now, kind, what, Some(actor.clone())));
        match status.signal() {
            Some(9) if kills > self.oom_kills => {
                say(EventKind::OomKill, "killed by the OOM killer".to_owned());
                say(EventKind::Exit, "killed".to_owned());
                self.oom_kills += 1;
            }
            Some(signal) => say(EventKind::Exit, format!("ended by signal {signal}")),
            None if !status.success() => say(EventKind::Exit, format!("failed: {status}")),
            None => {
                if let Some(why) = why {
                    say(EventKind::Error, why);
                }
            }
        }
        Ok(())
    }

    /// Writes a sample, with the events and intervals up to its time.
    fn write(&mut self, from: u64, sample: Sample, sink: &mut dyn Sink) -> Result<(), LabError> {
        let at = sample.at;
        self.events.sort_by_key(|event| event.at);
        let later = self.events.partition_point(|event| event.at <= at);
        let rest = self.events.split_off(later);
        for event in std::mem::replace(&mut self.events, rest) {
            sink.event(&event)?;
        }
        sink.sample(&sample)?;
        let rows: Vec<Interval> =
            std::mem::take(&mut self.rows).into_values().map(|row| Interval { from, at, ..row }).collect();
        Ok(sink.intervals(&rows)?)
    }
}

impl Agent {
    /// Tells an agent that is ready when the run begins.
    fn tell_begin(&mut self, begin: u64) -> Result<(), LabError> {
        if let AgentState::Running(_, input, true) = &mut self.state {
            let told = input.write_all(format!("{begin}\n").as_bytes()).and_then(|()| input.flush());
            // If the agent is gone, the end of its output says so.
            if told.as_ref().is_err_and(|error| error.kind() != std::io::ErrorKind::BrokenPipe) {
                return told.map_err(calling("the agent's input"));
            }
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let AgentState::Running(child, ..) = &mut self.state {
            // The kill fails only if the agent has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Adds what memory cost an actor to a row of it. An agent takes reclaim for system time and all waits for
/// I/O.
fn charge(row: &mut Interval, toll: &Interval) {
    let Spent { reclaim, throttled, .. } = toll.spent;
    let of_system = reclaim.min(row.spent.system);
    row.spent.system -= of_system;
    row.spent.reclaim += of_system;
    let of_io = throttled.min(row.spent.io);
    row.spent.io -= of_io;
    row.spent.throttled += of_io;
    row.toll.add(&toll.toll);
}

/// Adds a row to another one of the same actor and role.
fn add(to: &mut Interval, row: &Interval) {
    to.operations += row.operations;
    to.errors += row.errors;
    to.latency.merge(&row.latency);
    to.spent.add(&row.spent);
    to.major_faults += row.major_faults;
    to.minor_faults += row.minor_faults;
    to.toll.add(&row.toll);
}

/// Puts an agent into its control group, and sets its `oom_score_adj`, of which the scenario says `own`.
fn join(id: u32, place: &Place, own: i32) -> Result<(), LabError> {
    if let Some(group) = &place.group {
        let procs = group.join("cgroup.procs");
        lotsfree_storage::set(&procs, &id.to_string()).map_err(at(&procs))?;
    }
    let score = PathBuf::from(format!("/proc/{id}/oom_score_adj"));
    // 1000 is the kernel's maximum.
    let adj = (place.oom_score_adj + own).min(1000);
    lotsfree_storage::set(&score, &adj.to_string()).map_err(at(&score))
}

/// Passes on the messages of an agent until its output ends.
fn listen(number: usize, mut output: impl std::io::Read, tell: &Sender<AgentReport>) {
    let mut receiver = wire::Receiver::default();
    let mut buffer = vec![0; 1 << 16];
    let why = loop {
        match output.read(&mut buffer) {
            Ok(0) if receiver.is_torn() => break Some("its last report is cut off".to_owned()),
            Ok(0) => break None,
            Ok(count) => match receiver.feed(buffer.get(..count).unwrap_or_default()) {
                Ok(messages) => {
                    for message in messages {
                        // The coordinator has ended.
                        if tell.send(AgentReport::Message(number, message)).is_err() {
                            return;
                        }
                    }
                }
                Err(damaged) => break Some(format!("its report: {damaged}")),
            },
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => break Some(error.to_string()),
        }
    };
    let _ = tell.send(AgentReport::End(number, why));
}
