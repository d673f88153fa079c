//! The page of a whole run, `docs/real.md`.

use std::fmt::Write as _;
use std::fs;

use super::follow::{Followed, Remedy};
use super::{Outcome, Result, Trial};

const HEAD: &str = "\
# Remedies followed to their end

`cargo xtask real` writes this page. It provokes each problem with an application of the distribution, lets
`lotsfree doctor` name it, types the doctor's first remedy as it is printed, restarts the application with the lines that
make it last, asks the application what became of it, and undoes everything. A remedy fails if one of its commands does, if
the application is not better off, if the doctor still finds the same, or if the undo leaves a setting other than it was.
Where the model predicts what the remedy will do, it also fails if the prediction is more than 5 % off.
";

/// The page: a table of all trials, then each with what was typed.
pub(super) fn page(outcomes: &[(&Trial, Outcome)]) -> Result<String> {
    let mut page = HEAD.to_owned();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release: String = release.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    writeln!(
        page,
        "\nLinux {release}.\n\n| | it says before | it says after | memory before | memory after |\n|---|---|---|---|---|"
    )?;
    for (trial, outcome) in outcomes {
        match outcome {
            Outcome::Followed(followed) => {
                let Followed { before, after, .. } = followed.as_ref();
                writeln!(
                    page,
                    "| {} | {} | {} | {} | {} |",
                    trial.name, before.said, after.said, before.memory, after.memory
                )?;
            }
            Outcome::NotTried(why) => writeln!(page, "| {} | not tried: {why} | | | |", trial.name)?,
            Outcome::Failed(why) => writeln!(page, "| {} | failed: {why} | | | |", trial.name)?,
        }
    }
    for (trial, outcome) in outcomes {
        if let Outcome::Followed(followed) = outcome {
            section(&mut page, trial, followed)?;
        }
    }
    Ok(page)
}

fn section(page: &mut String, trial: &Trial, followed: &Followed) -> Result<()> {
    let Followed { version, provoked, finding, before, after, expected: _, typed, verified } = followed;
    writeln!(page, "\n## {}\n\n{version}\n", trial.name)?;
    writeln!(page, "Provoked: {provoked}\n")?;
    writeln!(page, "Found by `{}`: {}.\n", finding.rule, finding.title)?;
    if let Some(Remedy { title, persistent, restart, undo, .. }) = followed.remedy() {
        writeln!(page, "Remedy: {title}.\n")?;
        session(page, typed)?;
        for kept in persistent {
            writeln!(page, "In {}:\n\n```\n{}\n```\n", kept.file, kept.lines.join("\n"))?;
        }
        if let Some(restart) = restart {
            writeln!(page, "Restarted: {restart}.\n")?;
        }
        session(page, verified)?;
        if !undo.is_empty() {
            writeln!(page, "Undone by `{}`.\n", undo.join("; "))?;
        }
    }
    writeln!(page, "Asked: {}. Before: {}. After: {}.", before.asked, before.said, after.said)?;
    if let Some(told) = followed.told() {
        writeln!(page, "\n{told}.")?;
    }
    Ok(())
}

/// Commands and what they printed.
fn session(page: &mut String, commands: &[(String, String)]) -> Result<()> {
    if commands.is_empty() {
        return Ok(());
    }
    page.push_str("```\n");
    for (command, said) in commands {
        writeln!(page, "# {command}")?;
        if !said.is_empty() {
            writeln!(page, "{said}")?;
        }
    }
    page.push_str("```\n\n");
    Ok(())
}
