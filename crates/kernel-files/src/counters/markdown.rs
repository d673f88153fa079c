//! Prints `docs/counters.md` from the table.

use std::fmt::Write;

use crate::counters::*;

/// The reference page of every counter, as Markdown.
pub fn document() -> String {
    let mut out = String::from(
        "# Counters\n\nGenerated from `crates/kernel-files/src/counters` by `cargo xtask docs`; change the table, not this page.\n\n\
         `since` is the first kernel that has the counter (2.6.32 stands for that or earlier), `until` the first \
         that no longer has it. A *gauge* is a level; a *monotonic* counter only grows, so only its change counts.\n",
    );
    macro_rules! page {
        ($family:ident) => {
            family::<$family>(&mut out);
        };
    }
    each_family!(page);
    out
}

fn family<F: Family>(out: &mut String) {
    let _ = writeln!(out, "\n## {}\n\n`{}`, {} counters.\n", F::NAME, F::FILE, F::ROWS.len());
    out.push_str(
        "| counter | unit | kind | kernels | meaning | kernel source |\n|---|---|---|---|---|---|\n",
    );
    for row in F::ROWS {
        let kernels = match row.until {
            Some(until) => format!("{} until {until}", row.since),
            None => row.since.to_string(),
        };
        let _ = writeln!(
            out,
            "| `{}` | {:?} | {:?} | {kernels} | {} | `{}` |",
            row.name, row.unit, row.kind, row.meaning, row.source
        );
    }
}
