//! The page of a whole run, `docs/blame-cases.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Outcome, Result, Said};

const HEAD: &str = "\
# Known culprits

`cargo xtask blame` writes this page. Each application runs in a control group with a limit, first alone, then beside
culprits in groups below the same limit, and then without each of them in turn, for 15 s each. *Lost* is the part of its time
that `lotsfree blame` says the application lost to memory, *blamed* the share that it charges to a culprit, and *gives back*
what the application no longer loses without that culprit, as a part of what all of them give back. A case fails if the
application is not named, if no culprit comes first, or if a share is more than 15 points from what is given back.
";

/// Writes the page: a row per culprit of each case.
pub(super) fn write(path: &Path, outcomes: &[Outcome]) -> Result<()> {
    let mut page = HEAD.to_owned();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release: String = release.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    writeln!(page, "\nLinux {release}, two CPUs.\n")?;
    writeln!(page, "| | alone | with culprits | lost alone | lost | culprit | blamed | gives back | |")?;
    writeln!(page, "|---|--:|--:|--:|--:|---|--:|--:|---|")?;
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    for outcome in outcomes {
        let Outcome { name, alone, with, without } = outcome;
        let verdict = match outcome.complaints() {
            complaints if complaints.is_empty() => String::new(),
            complaints => format!("**{}**", complaints.join("; ")),
        };
        for (number, (culprit, _, back)) in without.iter().enumerate() {
            let first = number == 0;
            let shown = |text: String| if first { text } else { String::new() };
            writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                shown(name.clone()),
                shown(rate(alone)),
                shown(rate(with)),
                shown(percent(alone.lost)),
                shown(percent(with.lost)),
                culprit.what,
                percent(outcome.share(culprit)),
                percent(*back),
                shown(verdict.clone())
            )?;
        }
    }
    fs::write(path, page)?;
    Ok(())
}

fn rate(said: &Said) -> String {
    format!("{}/s", lotsfree_units::Grouped(said.rate as u64))
}
