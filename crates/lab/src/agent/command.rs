//! Executes a command, and counts what it and its processes use.
//!
//! A command is the first process of a namespace of its own: when it ends, the kernel kills what it left
//! behind; it is killed when the thread that started it ends, so that no process outlives the lab, whatever
//! ends that.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use lotsfree_sys::{Confinement, Limit, Usage, User, next_process_apart};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::tally::{Account, Tally};
use crate::command::Exec;

/// Bytes of what a command last wrote to its standard error that are kept.
const LAST: usize = 4096;

/// Executes a command to its end. `tally` learns which process it is and what it used.
///
/// # Errors
/// It cannot be started, or fails: with what it wrote last.
pub(super) fn execute(command: &Exec, tally: &Arc<Mutex<Tally>>) -> io::Result<()> {
    // A thread makes one namespace only, so each command gets a thread.
    std::thread::scope(|scope| {
        let done = scope.spawn(|| run(command, tally)).join();
        done.unwrap_or_else(|_| Err(io::Error::other("the thread of a command ended")))
    })
}

fn run(command: &Exec, tally: &Mutex<Tally>) -> io::Result<()> {
    let (output, error) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // A thread whose children are in another namespace starts no threads.
    let reader = std::thread::Builder::new().spawn(move || last_of(File::from(output)))?;
    next_process_apart()?;
    let (program, arguments) = command.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut start = std::process::Command::new(program);
    start
        .args(arguments)
        .current_dir(&command.directory)
        .env_clear()
        .envs(command.environment.iter().cloned());
    start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(error));
    let (user, group, groups) = command.user.clone();
    let confinement = Confinement {
        user: Some(User { user, group, groups }),
        limits: vec![(Limit::Core, 0)],
        ..Confinement::default()
    };
    confinement.apply(&mut start);
    let mut child = start.spawn().map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    // This closes the end of this process.
    drop(start);
    let lock = || tally.lock().unwrap_or_else(PoisonError::into_inner);
    lock().command = Some(child.id());
    // As long as nobody has taken its status, /proc still has its account.
    let ended = Pid::from_raw(child.id().cast_signed())
        .map(|id| waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
    ended.transpose()?;
    let status = {
        let mut tally = lock();
        let status = child.wait()?;
        tally.command = None;
        tally.commands = Account::of_usage(&Usage::of_ended_children()?);
        status
    };
    // All processes that could hold the other end have been killed.
    let last = reader.join().unwrap_or_default();
    failure(program, status, &last).map_or(Ok(()), |why| Err(io::Error::other(why)))
}

/// Why a command failed, if it did.
fn failure(program: &str, status: ExitStatus, last: &[u8]) -> Option<String> {
    let how = match (status.code(), status.signal()) {
        (Some(0), _) => return None,
        (Some(code), _) => format!("{program} exited with {code}"),
        (None, signal) => format!("{program} was ended by signal {}", signal.unwrap_or(0)),
    };
    let text = String::from_utf8_lossy(last);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    Some(line.map_or_else(|| how.clone(), |line| format!("{how}: {}", line.escape_debug())))
}

/// The last bytes of an output.
fn last_of(mut output: impl Read) -> Vec<u8> {
    let (mut last, mut buffer) = (Vec::new(), [0; LAST]);
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        last.extend_from_slice(buffer.get(..count).unwrap_or_default());
        last.drain(..last.len().saturating_sub(LAST));
    }
    last
}

/// What a process and all that descend from it have used so far.
pub(super) fn account(root: u32) -> Account {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes: Vec<(u32, u32, Account)> = entries
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let (parent, account) = Account::of_process(id)?;
            Some((id, parent, account))
        })
        .collect();
    let mut sum = Account::default();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&one) = family.get(next) {
        next += 1;
        for (id, parent, account) in &processes {
            if *id == one {
                sum = sum.and(account);
            }
            // Numbers may be given anew while they are read; nobody is counted twice.
            if *parent == one && !family.contains(id) {
                family.push(*id);
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_said_last_is_why_it_failed() {
        let status = |raw| ExitStatus::from_raw(raw);
        assert_eq!(failure("dd", status(0), b"1+0 records in\n"), None);
        let why = failure("dd", status(0x100), b"x\nNo space left on device\n\n");
        assert_eq!(why.as_deref(), Some("dd exited with 1: No space left on device"));
        assert_eq!(failure("dd", status(9), b"").as_deref(), Some("dd was ended by signal 9"));
        assert_eq!(last_of(&[b'a'; 10_000][..]).len(), LAST);
        let long = [vec![b'a'; 10_000], b"end".to_vec()].concat();
        assert!(last_of(&long[..]).ends_with(b"aend"));
    }

    #[test]
    fn the_processes_of_a_command_are_counted_with_it() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; sleep 60' & wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The grandchild has done its work when it says so.
        let mut byte = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        let all = account(child.id());
        let (_, own) = Account::of_process(child.id()).unwrap();
        rustix::process::kill_process(
            Pid::from_raw(child.id().cast_signed()).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        child.wait().unwrap();
        assert!(all.minor_faults > own.minor_faults, "{all:?} {own:?}");
        assert!(all.user + all.system > own.user + own.system, "{all:?} {own:?}");
    }
}
