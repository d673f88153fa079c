//! [`Whom`]: somebody who is asked about, by name, by process, by unit or by control group.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use anyhow::Context;
use lotsfree_analysis::blame::Blame;
use lotsfree_kernel_files::file::process::cgroup::memory_group;
use lotsfree_run::Run;

use super::Programs;

/// The actor that somebody asks about: by process id, by name, or by the unit or control group that it is in.
/// Of several, the one that lost most.
pub(super) fn find(run: &Run, programs: &Programs, whom: &Whom<'_>) -> anyhow::Result<String> {
    let blame = Blame::of(run, None);
    let names: BTreeSet<Arc<str>> = run.intervals().actors().into_iter().map(|(actor, _)| actor).collect();
    let is_meant = |name: &&Arc<str>| {
        whom.is(name, programs.get(*name).map(|seeing| &*seeing.group).unwrap_or_default())
    };
    let meant: Vec<&Arc<str>> = names.iter().filter(is_meant).collect();
    let worst = blame.payers.iter().find(|payer| meant.iter().any(|name| ***name == *payer.cost.actor));
    let found =
        worst.map(|payer| payer.cost.actor.clone()).or_else(|| meant.first().map(|name| name.to_string()));
    found.with_context(|| whom.unknown(names.iter().map(|name| &**name)))
}

/// Somebody who is asked about.
pub(super) struct Whom<'a> {
    text: &'a str,
    /// The name and the number of a process, where the text is its number.
    process: Option<(String, u32)>,
}

impl<'a> Whom<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let id = text.parse::<u32>().ok();
        let process = id.and_then(|id| Some((fs::read_to_string(format!("/proc/{id}/comm")).ok()?, id)));
        let process = process.map(|(name, id)| (name.trim_end().to_owned(), id));
        Whom { text, process }
    }

    /// Whether a program of this name in this control group is meant.
    pub(super) fn is(&self, name: &str, group: &str) -> bool {
        let (plain, text) = (name.split(" (").next().unwrap_or(name), self.text);
        match &self.process {
            Some((name, id)) => plain == name && is_in(*id, group),
            None if text.starts_with('/') => is_within(group, text),
            None => {
                name == text
                    || plain == text
                    || group.rsplit('/').any(|part| part == text || part == format!("{text}.service"))
            }
        }
    }

    /// That nobody of the programs is meant.
    pub(super) fn unknown<'n>(&self, names: impl Iterator<Item = &'n str>) -> String {
        let some: Vec<&str> = names.take(12).collect();
        let (text, some) = (self.text, some.join(", "));
        format!("{text}: no such program, process, unit or control group was seen; seen were {some}")
    }
}

/// Whether a group is another one or below it.
pub(super) fn is_within(group: &str, other: &str) -> bool {
    group == other || group.starts_with(&format!("{}/", other.trim_end_matches('/')))
}

/// Whether a process is in a memory cgroup.
fn is_in(process: u32, group: &str) -> bool {
    let text = fs::read(format!("/proc/{process}/cgroup")).unwrap_or_default();
    memory_group(&text).unwrap_or_default() == group
}
