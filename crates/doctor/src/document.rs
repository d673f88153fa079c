//! Prints `docs/rules.md` and the text of `lotsfree explain` from the rules' own documentation.

use std::fmt::Write;

use crate::{Group, rules};

impl Group {
    /// Title of the group in the documentation.
    pub fn title(self) -> &'static str {
        match self {
            Group::Reclaim => "Reclaim and page cache",
            Group::HugePages => "Page tables and huge pages",
            Group::Thp => "Transparent huge pages",
            Group::Numa => "NUMA",
            Group::Swap => "Swap, overcommit and the OOM killer",
            Group::Faults => "Page faults and locked memory",
            Group::Cgroup => "Control groups and containers",
            Group::Host => "The host, its hardware and its configuration",
        }
    }
}

/// The reference page of every rule, as Markdown.
pub fn document() -> String {
    let mut out = String::from(
        "# Rules\n\nGenerated from `crates/doctor/src/rules` by `cargo xtask docs`; change the rules, not this page. \
         `lotsfree explain RULE` prints one of these entries.\n",
    );
    let mut group = None;
    for rule in rules::all() {
        let meta = rule.meta();
        if group != Some(meta.group) {
            group = Some(meta.group);
            let _ = write!(out, "\n## {}\n", meta.group.title());
        }
        let _ = write!(out, "\n### `{}`\n\n", meta.id);
        for line in meta.lines() {
            match line.strip_prefix("# ") {
                Some(heading) => _ = writeln!(out, "**{heading}.**"),
                None => _ = writeln!(out, "{line}"),
            }
        }
    }
    out
}
