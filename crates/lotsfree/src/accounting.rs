//! [`Accounting`]: the kernel's delay accounting, switched on while a command is watched.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
        let mut changes = StateDirectory::of_user()?.host(&mut report)?;
        // Before the change, so that there is no moment without a guard.
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut guard = Command::new(program);
        // In a group of its own, so that no Ctrl-C ends it.
        guard.arg("guard").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let guard = guard.spawn().context("cannot start this program")?;
        changes.set(setting, "1")?;
        Ok(Some(Accounting { changes, guard }))
    }

    /// Puts the setting back.
    ///
    /// # Errors
    /// If it cannot be put back.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        let undone = self.changes.undo(&mut |_| ());
        drop(self.guard.stdin.take());
        // It finds nothing left to do.
        let _ = self.guard.wait();
        Ok(undone?)
    }
}

fn report(outcome: &Outcome) {
    output::remark(&outcome.to_string());
}

/// `lotsfree guard`: waits for the end of the process that holds the other end of standard input, and undoes
/// what it left changed.
pub(crate) fn guard() -> anyhow::Result<u8> {
    let mut nothing = [0];
    while matches!(io::stdin().read(&mut nothing), Ok(1..)) {}
    StateDirectory::of_user()?.restore(&mut report)?;
    Ok(0)
}
