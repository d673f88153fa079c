//! `docs/incidents.md`.

use std::error::Error;
use std::fmt::Write as _;

use super::{Input, SETS, rows, verdicts};

/// What the doctor said of them, and the commit of which it was built.
const SAID: &str = "incidents.jsonl";
const COMMIT: &str = "2c17b33";

/// Ten incidents with data, a cause and what helped, of different causes, chosen from all sets.
const CHOSEN: [&str; 10] = [
    "a2-nfsd-arm-1g-page-leak",
    "w1-alan-1204",
    "a1-rockpro64-proc-order5",
    "a1-varnish-memoryhigh-anon",
    "a2-ppc32-kswapd-lowmem-empty",
    "a2-xfs-inode-slab-97g",
    "a3-nvme-dmavec-leak-29g",
    "a3-docker-cpuset-movable-node",
    "n5-pekka-code",
    "a1-mglru-memcg-v1-1g-dirty-dd",
];

/// The page.
///
/// # Errors
/// If a file of the fixtures cannot be read, or an incident is not among the inputs.
pub(crate) fn page() -> Result<String, Box<dyn Error>> {
    let mut inputs = Vec::new();
    for set in &SETS {
        inputs.extend(rows::<Input>(set.inputs)?);
    }
    let said = verdicts(SAID)?;
    let mut out = format!(
        "# Ten incidents, end to end\n\n\
         <!-- Written by `cargo xtask docs` from fixtures/foreign; do not edit. -->\n\n\
         Public reports with data, a cause and what helped: what the reporter and the maintainers found out, beside what\n\
         `lotsfree doctor` says of the same data, built at {COMMIT}. They were chosen for their causes, not for how well the\n\
         doctor does; but their data have been open since they were judged, and rules were mended by some of them. How often\n\
         the doctor is right on data that nobody had seen, [accuracy.md](accuracy.md) tells.\n",
    );
    for (number, id) in CHOSEN.iter().enumerate() {
        let input: &Input =
            inputs.iter().find(|input| input.id == *id).ok_or_else(|| format!("no input {id}"))?;
        let said = said.get(*id).ok_or_else(|| format!("no verdict on {id}"))?;
        let finding = said.findings.first();
        let title = finding.map_or("no finding at warning or above", |finding| finding.title.as_str());
        let remedy =
            finding.and_then(|finding| finding.remedy.as_deref()).unwrap_or("no command; see its notes");
        let cell = |text: &str| text.replace('|', "\\|");
        writeln!(out, "\n## {}. {}\n", number + 1, input.cause.as_deref().unwrap_or(id).replace('-', " "))?;
        writeln!(out, "[{id}]({})\n", input.source)?;
        writeln!(out, "| | reported | lotsfree doctor |\n| --- | --- | --- |")?;
        writeln!(out, "| is it memory? | | {} |", cell(said.verdict.as_deref().unwrap_or("refused")))?;
        writeln!(out, "| cause | {} | {} |", cell(&input.truth), cell(title))?;
        writeln!(
            out,
            "| what helped, what is proposed | {} | {} |",
            cell(input.helped.as_deref().unwrap_or("not told")),
            cell(remedy)
        )?;
    }
    Ok(out)
}
