//! `lotsfree lab restore`.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context;
use lotsfree_changes::{Outcome, State};

use crate::cli::RestoreArgs;
use crate::output;

/// Undoes what labs that were killed left behind, or lists it.
pub(crate) fn run(arguments: &RestoreArgs) -> anyhow::Result<u8> {
    let state = State::of_user()?;
    if arguments.list {
        return list(&state);
    }
    let mut told = 0;
    let mut report = |outcome: &Outcome| {
        told += 1;
        output::remark(&outcome.to_string());
    };
    state.restore(&mut report)?;
    if !state.legacy()?.is_empty() {
        confirm(&state, arguments.yes)?;
        state.restore_legacy(&mut report)?;
    }
    if told == 0 {
        output::remark("nothing was left behind");
    }
    Ok(0)
}

/// Prints how everything that is noted would be undone, the last change first.
fn list(state: &State) -> anyhow::Result<u8> {
    let mut text = String::new();
    for left in state.list()? {
        text += &format!("{}\n", left.journal.display());
        left.changes.iter().for_each(|change| text += &format!("  {change}\n"));
        left.problem.iter().for_each(|problem| text += &format!("  not read: {problem}\n"));
    }
    if text.is_empty() {
        output::remark("nothing was left behind");
    }
    output::print(&text)?;
    Ok(0)
}

/// Asks whether the changes of a journal of 0.1.0 are to be undone, which may be somebody else's by now.
///
/// # Errors
/// If the answer is not yes, or there is nobody to ask.
fn confirm(state: &State, yes: bool) -> anyhow::Result<()> {
    output::remark(
        "an earlier version of lotsfree noted these changes, but not whether they are still its own:",
    );
    for change in state.legacy()?.iter().rev() {
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
