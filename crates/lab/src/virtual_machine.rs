//! A case in a virtual machine: boots the machine, and passes on what its first program sends.

use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lotsfree_run::wire::{Message, Receiver};
use lotsfree_run::{Facts, Sink, State, WriteError};
use lotsfree_scenario::{Case, Record};
use lotsfree_units::PageSize;

use crate::error::{LabError, calling};
use crate::guest::{ACK, BLAME, CALIBRATE, END, FACTS, FAILED, RECORD, STOP};
use crate::here::{self, Output, Stage, Watch};
use crate::vm::{Accelerator, Error, Guest, Kernel, Running};

/// Time between two calls that ask whether to go on.
const LOOK: Duration = Duration::from_millis(200);
/// How long a guest may take to boot and to write the files that exist when the run begins, not counting the
/// time that the disk takes for them. It is enough for software emulation on a busy host.
const BOOT: Duration = Duration::from_secs(240);
/// How long a guest may take to end after it was asked to.
const END_GRACE: Duration = Duration::from_secs(30);

/// Executes cases in virtual machines.
#[derive(Clone, Debug, Default)]
pub struct VirtualMachine {
    /// The kernel: a name for [`Kernel::find`]; `None`: that of the scenario's generation.
    pub kernel: Option<String>,
    /// The first program of the guest, linked statically.
    pub init: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// How instructions are executed; `None`: the fastest way that works.
    pub accelerator: Option<Accelerator>,
    /// Where disk images are made; `None`: `$TMPDIR`, or `/var/tmp`.
    pub scratch: Option<PathBuf>,
    /// Whether the kernel is watched for what memory costs the actors.
    pub blame: bool,
}

impl VirtualMachine {
    /// The kernel that a case boots.
    ///
    /// # Errors
    /// If there is no such kernel; the error says how to get one. If the case executes commands, or is of
    /// another architecture.
    pub fn kernel(&self, case: &Case) -> Result<Kernel, LabError> {
        if let Some(actor) = case.actors.iter().find(|actor| actor.kind.executes()) {
            let why = "a virtual machine has no programs to execute; --on cgroup and --on host do";
            return Err(case.refuse(&format!("actor.{}.kind", actor.name), why).into());
        }
        here::check_page_size(case, PageSize::X86, "a virtual machine of the lab is a PC")?;
        here::check_threads(case)?;
        let name = self.kernel.as_deref().unwrap_or(case.machine.generation.name());
        Ok(Kernel::find(name)?)
    }

    /// The machine of a case.
    ///
    /// # Errors
    /// If there is no such kernel, or QEMU has no such machine.
    pub fn guest(&self, case: &Case) -> Result<Guest, LabError> {
        let mut guest = Guest::new(case, self.kernel(case)?, self.init.clone())?;
        guest.arguments.clone_from(&self.arguments);
        let words = case.tuning.iter().filter_map(|(name, value)| here::boot_parameter(name, value));
        guest.parameters.extend(words.map(str::to_owned));
        guest.accelerator = self.accelerator;
        guest.scratch.clone_from(&self.scratch);
        Ok(guest)
    }

    /// Executes a case. The machine is gone when this returns, whatever happened.
    ///
    /// # Errors
    /// If the machine cannot be started, ends too early or takes too long, or if the output fails. All that
    /// arrived before the error is in the output.
    pub fn execute(&self, case: &Case, output: &mut dyn Output, watch: Watch<'_>) -> Result<State, LabError> {
        if watch(Stage::Preparing).is_break() {
            return Ok(State::Interrupted);
        }
        let mut guest = self.guest(case)?;
        // The files that exist when the run begins are written at full speed.
        guest.throttled = false;
        if self.blame {
            guest.parameters.push(BLAME.to_owned());
        }
        self.listen(case, guest, output, watch).map(|(state, _)| state)
    }

    /// Measures what the kernel's work costs on the machine of a case, instead of executing the case; `None`
    /// if the measurement was interrupted. The record has no name and no date yet.
    ///
    /// # Errors
    /// As [`execute`](VirtualMachine::execute).
    pub fn calibrate(&self, case: &Case, watch: Watch<'_>) -> Result<Option<Record>, LabError> {
        let mut guest = self.guest(case)?;
        guest.parameters.push(CALIBRATE.to_owned());
        let (_, record) = self.listen(case, guest, &mut Nowhere::default(), watch)?;
        Ok(record)
    }

    /// Boots a guest and passes on what it sends, until its last message; returns the record of a
    /// calibration, too. A kernel that panics before the guest has sent anything is booted once more: under
    /// software emulation that happens now and then, when the kernel patches its own instructions while
    /// another CPU executes them.
    fn listen(
        &self,
        case: &Case,
        guest: Guest,
        output: &mut dyn Output,
        watch: Watch<'_>,
    ) -> Result<(State, Option<Record>), LabError> {
        let mut silent = true;
        match boot(&guest, limit(case), None, output, watch, &mut silent) {
            Err(LabError::Vm(Error::Panic { line, .. })) if silent => {
                let remark = format!("booted twice, as the first time: {line}");
                boot(&guest, limit(case), Some(remark), output, watch, &mut silent)
            }
            heard => heard,
        }
    }
}

/// Boots a guest once and passes on what it sends, until its last message. Sets `silent` to `false` if the
/// guest sends anything.
fn boot(
    guest: &Guest,
    limit: Duration,
    remark: Option<String>,
    output: &mut dyn Output,
    watch: Watch<'_>,
    silent: &mut bool,
) -> Result<(State, Option<Record>), LabError> {
    let running = guest.start(limit)?;
    let facts = running.facts().clone();
    let mut passing =
        Passing { running: &running, facts, remark, output, at: None, said: None, record: None };
    let heard = listen(&mut passing, watch, silent);
    let (said, record) = (passing.said.take(), passing.record.take());
    match (heard, said) {
        (Err(error), _) => Err(error),
        (Ok(()), Some(Said::End(state))) => {
            // The guest has sent everything; how it powers itself off is of no interest.
            let _ = running.wait();
            Ok((state, record))
        }
        (Ok(()), Some(Said::Failed(why))) => Err(LabError::Refused(format!("in the virtual machine: {why}"))),
        (Ok(()), None) => {
            let ended = running.wait()?;
            let last = ended.console.lines().rev().find(|line| !line.trim().is_empty());
            let why = format!("the virtual machine went off; its console ends with {:?}", last.unwrap_or(""));
            Err(LabError::Refused(why))
        }
    }
}

/// Real time that a case may take in all: twice its duration, as work may be held up, and the time to boot
/// and to write the files.
fn limit(case: &Case) -> Duration {
    let files: u64 = case.files.iter().map(|file| file.size.bytes()).sum();
    let disk = case.machine.disk.bandwidth.0.0.max(1);
    Duration::from_nanos(case.duration.ns()) * 2 + BOOT + Duration::from_secs(4 * files / disk)
}

/// An output that keeps nothing, for a calibration, which yields no run.
#[derive(Default)]
struct Nowhere(lotsfree_run::Memory);

impl Output for Nowhere {
    fn begin(&mut self, _: Facts) -> Result<(), WriteError> {
        Ok(())
    }

    fn sink(&mut self) -> &mut dyn Sink {
        &mut self.0
    }
}

/// The last message of a guest.
enum Said {
    End(State),
    Failed(String),
}

/// Passes on what a guest sends.
struct Passing<'a> {
    running: &'a Running,
    facts: crate::vm::Facts,
    /// A remark to add to the run's facts.
    remark: Option<String>,
    output: &'a mut dyn Output,
    /// The time of the last sample.
    at: Option<u64>,
    said: Option<Said>,
    record: Option<Record>,
}

impl Passing<'_> {
    fn pass(&mut self, message: Message) -> Result<(), LabError> {
        if let Message::Sample(sample) = &message {
            self.at = Some(sample.at);
        }
        if !matches!(message, Message::Text(_)) {
            message.pass(self.output.sink())?;
            return Ok(());
        }
        let Message::Text(text) = message else { return Ok(()) };
        if let Some(facts) = text.strip_prefix(FACTS) {
            let mut facts: Facts = serde_json::from_str(facts)
                .map_err(|error| LabError::Refused(format!("the guest's facts: {error}")))?;
            let vm = &self.facts;
            facts.remarks.push(format!("{} ({})", vm.qemu, vm.accelerator));
            facts.remarks.push(vm.command.clone());
            if let Some(why) = &vm.unfiltered {
                facts.remarks.push(format!("QEMU runs without a filter for its system calls: {why}"));
            }
            facts.remarks.extend(self.remark.take());
            self.output.begin(facts)?;
            self.running.throttle()?;
        } else if let Some(record) = text.strip_prefix(RECORD) {
            let mut record: Record = serde_json::from_str(record)
                .map_err(|error| LabError::Refused(format!("the guest's record: {error}")))?;
            record.provenance.accelerator = Some(self.facts.accelerator.to_string());
            self.record = Some(record);
        } else if let Some(state) = text.strip_prefix(END) {
            let state = if state == "complete" { State::Complete } else { State::Interrupted };
            self.said = Some(Said::End(state));
        } else if let Some(why) = text.strip_prefix(FAILED) {
            self.said = Some(Said::Failed(why.to_owned()));
        }
        Ok(())
    }

    fn stage(&self) -> Stage {
        self.at.map_or(Stage::Preparing, Stage::At)
    }
}

/// Reads what a guest sends until its last message, or until it is gone.
fn listen(passing: &mut Passing<'_>, watch: Watch<'_>, silent: &mut bool) -> Result<(), LabError> {
    let mut data = passing.running.data();
    data.set_read_timeout(Some(LOOK)).map_err(calling("the guest's data"))?;
    let mut receiver = Receiver::default();
    let mut buffer = vec![0; 1 << 16];
    let mut asked: Option<Instant> = None;
    while passing.said.is_none() {
        match data.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                let messages = receiver.feed(buffer.get(..count).unwrap_or_default());
                let messages = messages
                    .map_err(|damaged| LabError::Refused(format!("what the guest sends: {damaged}")))?;
                *silent &= messages.is_empty();
                messages.into_iter().try_for_each(|message| passing.pass(message))?;
            }
            Err(error) if is_pause(&error) => {}
            // The guest is gone; `Running::wait` knows why.
            Err(_) => return Ok(()),
        }
        if asked.is_none() && watch(passing.stage()) == ControlFlow::Break(()) {
            asked = Some(Instant::now());
            // If the guest is gone, the next read shows it.
            let _ = data.write_all(&[STOP]);
        }
        if asked.is_some_and(|asked| asked.elapsed() > END_GRACE) {
            passing.said = Some(Said::End(State::Interrupted));
        }
    }
    // The guest waits for this before it powers itself off.
    let _ = data.write_all(&[ACK]);
    Ok(())
}

fn is_pause(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
