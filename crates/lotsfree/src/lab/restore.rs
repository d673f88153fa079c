//! `lotsfree lab restore`.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context;
use lotsfree_changes::{Legacy, Outcome, StateDirectory};
use lotsfree_units::visible_line;

use crate::cli::RestoreArgs;
use crate::output;

/// Undoes the changes that killed labs left behind, or lists them.
pub(crate) fn run(arguments: &RestoreArgs) -> anyhow::Result<u8> {
    let state = StateDirectory::of_user()?;
    if arguments.list {
        return list(&state);
    }
    let mut told = 0;
    let mut report = |outcome: &Outcome| {
        told += 1;
        output::remark(&outcome.to_string());
    };
    state.restore(&mut report)?;
    let legacy = state.legacy()?;
    if !legacy.is_empty() {
        confirm(&legacy, arguments.yes)?;
        state.restore_legacy(&mut report)?;
    }
    if told == 0 {
        output::remark("nothing was left behind");
    }
    Ok(0)
}

/// Prints how everything in the journals would be undone, the last change first.
fn list(state: &StateDirectory) -> anyhow::Result<u8> {
    let mut text = String::new();
    for mut left in state.list()? {
        text += &format!("{}\n", left.journal.display());
        let lines =
            left.changes.iter().cloned().chain(left.problem.take().map(|why| format!("not read: {why}")));
        // The text may come from anybody, so it is made visible.
        lines.for_each(|line| text += &format!("  {}\n", visible_line(&line)));
    }
    if text.is_empty() {
        output::remark("nothing was left behind");
    }
    output::print(&text)?;
    Ok(0)
}

/// Asks whether to undo the changes of a journal of 0.1.0. By now they may be somebody else's.
///
/// # Errors
/// If the answer is not yes, or there is nobody to ask.
fn confirm(legacy: &[Legacy], yes: bool) -> anyhow::Result<()> {
    output::remark(
        "an earlier version of lotsfree noted these changes, but not whether they are still its own:",
    );
    for change in legacy.iter().rev() {
        output::remark(&format!("  {change}"));
    }
    if yes {
        return Ok(());
    }
    anyhow::ensure!(
        io::stdin().is_terminal(),
        "nothing was undone; `lotsfree lab restore --yes` undoes them"
    );
    write!(io::stderr(), "Undo them? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("no answer")?;
    let agreed = matches!(answer.trim(), "y" | "Y" | "yes");
    anyhow::ensure!(agreed, "nothing was undone");
    Ok(())
}
