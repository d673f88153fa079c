//! The page of whole runs, `docs/blame-cases.md`: a part for each kernel.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Outcome, Result, Said};

const HEAD: &str = "\
# Known culprits

`cargo xtask blame` writes the part of this page that is about a host, `cargo xtask blame vm SERIES` that about a virtual
machine. Each application runs in a control group with a limit, first alone, then beside culprits in groups below the same
limit, and then without each of them in turn, for 15 s each; all that three times, of which the mean is shown, and of the
shares the mean by what was lost each time. In a virtual machine, which is emulated, each run lasts 24 s with `--budget 10`,
most limits are a sixth smaller, and small culprits grow three times more slowly. *Lost* is the part of its time that `lotsfree
blame` says the application lost to memory, *blamed* the share that it charges to a culprit, and *gives back* what the
application no longer loses without that culprit, as a part of what all of them give back. A case fails if the application is
not named, if no culprit comes first, or if a share is more than 15 points from what is given back.
";

/// What begins the heading of a part.
const PART: &str = "\n## ";

/// The heading of this host's part.
pub(super) fn this_host() -> Result<String> {
    let cpus = std::thread::available_parallelism()?;
    let groups = if Path::new("/sys/fs/cgroup/memory").exists() { 1 } else { 2 };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release: String = release.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    Ok(format!("Linux {release}, a host with {cpus} CPUs, control groups of version {groups}"))
}

/// Writes the part of a place, with a row per culprit of each case, and leaves the other parts as they are.
pub(super) fn write(path: &Path, place: &str, outcomes: &[Outcome]) -> Result<()> {
    let before = match fs::read_to_string(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        read => read.unwrap_or_default(),
    };
    // The minor version says little: a part takes the place of the one before it of the same series.
    let series = |heading: &str| heading.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let new = part(place, outcomes)?;
    let mut parts: Vec<&str> = before.split(PART).skip(1).filter(|old| series(old) != series(&new)).collect();
    parts.push(&new);
    parts.sort_by_key(|part| !part.contains("a host"));
    let mut page = HEAD.to_owned();
    parts.iter().for_each(|part| page += &format!("{PART}{}\n", part.trim_end()));
    fs::write(path, page)?;
    Ok(())
}

fn part(place: &str, outcomes: &[Outcome]) -> Result<String> {
    let mut part = format!("{place}\n\n");
    writeln!(part, "| | alone | with culprits | lost alone | lost | culprit | blamed | gives back | |")?;
    writeln!(part, "|---|--:|--:|--:|--:|---|--:|--:|---|")?;
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    for outcome in outcomes {
        let Outcome { name, alone, with, culprits } = outcome;
        let verdict = match outcome.complaints() {
            complaints if complaints.is_empty() => String::new(),
            complaints => format!("**{}**", complaints.join("; ")),
        };
        for (number, culprit) in culprits.iter().enumerate() {
            let shown = |text: String| if number == 0 { text } else { String::new() };
            writeln!(
                part,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                shown(name.clone()),
                shown(rate(alone)),
                shown(rate(with)),
                shown(percent(alone.lost)),
                shown(percent(with.lost)),
                culprit.what,
                percent(culprit.blamed),
                percent(culprit.back),
                shown(verdict.clone())
            )?;
        }
    }
    Ok(part)
}

fn rate(said: &Said) -> String {
    format!("{}/s", lotsfree_units::Grouped(said.rate as u64))
}
