//! [`Accounting`]: the kernel's delay accounting, switched on while a command is watched.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use lotsfree_changes::{Changes, Outcome, StateDirectory};
use lotsfree_watch::DELAY_ACCOUNTING;
use rustix::fs::Access;

use crate::output;

/// Delay accounting, as long as it is ours. A process of its own puts it back if this one is killed.
pub(crate) struct Accounting {
    changes: Changes,
    guard: Child,
}

impl Accounting {
    /// Switches delay accounting on for what is forked from now on. `None` if it is on already, if the kernel
    /// cannot switch it (before 5.14), or if this user may not.
    ///
    /// # Errors
    /// Says why it cannot be switched on.
    pub(crate) fn begin() -> anyhow::Result<Option<Self>> {
        let setting = Path::new(DELAY_ACCOUNTING);
        let is_off = std::fs::read_to_string(setting).is_ok_and(|value| value.trim() == "0");
        if !is_off || rustix::fs::access(setting, Access::WRITE_OK).is_err() {
            return Ok(None);
        }
        // In a journal of its own: the command may be a lab, which changes the host.
        let state = StateDirectory::of_user()?;
        state.undo_abandoned(&mut report)?;
        let mut changes = state.process()?;
        // Before the change, so that there is no moment without a guard.
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut guard = Command::new(program);
        // In a group of its own, so that no Ctrl-C ends it.
        guard.arg("guard").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let guard = guard.spawn().context("cannot start this program")?;
        changes.set(setting, "1")?;
        Ok(Some(Accounting { changes, guard }))
    }

    /// Puts the setting back, and says if that cannot be done.
    pub(crate) fn end(mut self) {
        let undone = self.changes.undo(&mut |outcome| {
            if let Outcome::Left(_) = outcome {
                report(outcome);
            }
        });
        match undone {
            Ok(()) => _ = self.guard.kill(),
            // The guard tries again.
            Err(error) => return output::remark(&error.to_string()),
        }
        let _ = self.guard.wait();
    }
}

fn report(outcome: &Outcome) {
    output::remark(&outcome.to_string());
}

/// How often, and how far apart, the guard looks: a process that is killed closes the pipe before it unlocks
/// its journal.
const LOOKS: usize = 100;
const APART: Duration = Duration::from_millis(100);

/// `lotsfree guard`: waits for the end of the process that holds the other end of standard input, and undoes
/// what processes that are gone left changed.
pub(crate) fn guard() -> anyhow::Result<u8> {
    io::copy(&mut io::stdin(), &mut io::sink())?;
    let setting = || std::fs::read_to_string(DELAY_ACCOUNTING).unwrap_or_default();
    for _ in 0..LOOKS {
        StateDirectory::of_user()?.undo_abandoned(&mut report)?;
        // Another watch may still have it on; then its own guard is there.
        if setting().trim() == "0" {
            break;
        }
        std::thread::sleep(APART);
    }
    Ok(0)
}
