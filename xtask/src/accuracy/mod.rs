//! How often the doctor is right on inputs that nobody here made: `docs/accuracy.md` and `docs/incidents.md`.
//!
//! ```text
//! fixtures/foreign/inputs.jsonl ──────────┐
//! cargo xtask accuracy record ──▶ rows ──▶ judges ──▶ verdicts-*.jsonl ──▶ Half ──▶ pages
//! ```

mod incidents;
mod page;
mod statistics;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use incidents::page as incidents;
pub(crate) use page::page;

use crate::docs::root;

/// Inputs that were gathered together, judged, and then opened.
struct Set {
    /// In headings.
    name: &'static str,
    /// Their rows, and what was said of them before the work began and afterwards.
    inputs: &'static str,
    before: &'static str,
    after: &'static str,
    /// The commit that was measured.
    commit: &'static str,
    /// Inputs whose digest begins with a byte below this were open while rules were mended.
    opened: u8,
    /// What else is to be said of that.
    remark: &'static str,
    /// The order in which inputs were judged, where not all of them were.
    order: &'static str,
}

/// Newest first.
const SETS: [Set; 4] = [
    Set {
        name: "Fourth set",
        inputs: "inputs-4.jsonl",
        before: "verdicts-4-before.jsonl",
        after: "verdicts-4-after.jsonl",
        commit: "33f588b",
        opened: 0x55,
        remark: " The other third was opened before the last changes.",
        order: "a random order",
    },
    Set {
        name: "Third set",
        inputs: "inputs-3.jsonl",
        before: "verdicts-3-before.jsonl",
        after: "verdicts-3-after.jsonl",
        commit: "569c63d",
        opened: 0,
        remark: "",
        order: "a random order",
    },
    Set {
        name: "Second set",
        inputs: "inputs-2.jsonl",
        before: "verdicts-2-before.jsonl",
        after: "verdicts-2-after.jsonl",
        commit: "8b8cfe3",
        opened: 0,
        remark: "",
        order: "a random order",
    },
    Set {
        name: "First set",
        inputs: "inputs.jsonl",
        before: "verdicts-before.jsonl",
        after: "verdicts-after.jsonl",
        commit: "f9c1089",
        opened: 0x80,
        remark: " The truths of the later batches were written down while rules changed already, by somebody who had \
                 neither the doctor nor its output.",
        order: "the order of a digest of their names",
    },
];

impl Set {
    /// Whether nobody looked at an input before it was judged.
    fn tests(&self, input: &Input) -> bool {
        input.first_byte() >= self.opened
    }
}

/// At most this many findings of an input are judged.
const JUDGED: usize = 3;
/// Where the rows lie.
const DIRECTORY: &str = "fixtures/foreign";

/// One input, from `inputs.jsonl`.
#[derive(Debug, Deserialize)]
struct Input {
    id: String,
    kind: String,
    source: String,
    sha256: String,
    cause: Option<String>,
    /// Other causes that are true as well.
    #[serde(default)]
    also: Vec<String>,
    basis: String,
    /// Whether an expert could name the cause from the input alone, where somebody judged that.
    visible: Option<bool>,
    truth: String,
    helped: Option<String>,
    #[serde(default)]
    report: bool,
    #[serde(default)]
    kept: bool,
}

impl Input {
    /// The first byte of its digest, by which it belongs to the part that was opened at the end.
    fn first_byte(&self) -> u8 {
        self.sha256.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0)
    }

    /// The cause, if the source or the kernel's own report establishes it.
    fn established(&self) -> Option<&str> {
        self.cause.as_deref().filter(|_| self.basis != "figures")
    }
}

/// What the doctor said of an input, and what the judges said of that.
#[derive(Debug, Deserialize, Serialize)]
struct Said {
    id: String,
    /// The last line of the error, if the input was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// The verdict's text; programs before it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
    /// The first findings at warning or above.
    findings: Vec<Found>,
    /// What each judge said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    judged: Vec<Judgement>,
}

/// A finding, as far as it is judged.
#[derive(Debug, Deserialize, Serialize)]
struct Found {
    rule: String,
    severity: String,
    confidence: String,
    title: String,
    /// Title and first command of the first remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// One judge's word on the output for one input, which was seen without the truth.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Judgement {
    /// The causes that the output names, of `causes.toml`.
    names: Vec<String>,
    /// A word for each finding.
    findings: Vec<Word>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Useful,
    Noise,
    Wrong,
    Harmful,
}

/// What another program said of an input.
#[derive(Debug, Deserialize)]
struct Peer {
    id: String,
    peer: String,
    read: bool,
    names: Vec<String>,
}

fn rows<T: for<'a> Deserialize<'a>>(file: &str) -> Result<Vec<T>, Box<dyn Error>> {
    let path = root().join(DIRECTORY).join(file);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let row = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("{file}:{}: {error}", number + 1).into())
    };
    text.lines().enumerate().map(row).collect()
}

fn verdicts(file: &str) -> Result<BTreeMap<String, Said>, Box<dyn Error>> {
    Ok(rows::<Said>(file)?.into_iter().map(|said| (said.id.clone(), said)).collect())
}

/// `accuracy PROGRAM [DIRECTORY [ROWS]]`: writes what PROGRAM says of each input of ROWS (`inputs.jsonl`),
/// one row each, to standard output. Inputs that the repository does not keep are looked for below
/// DIRECTORY, under their ids.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [program, rest @ ..] = arguments else {
        return Err("which program? cargo xtask accuracy PROGRAM [DIRECTORY [ROWS]]".into());
    };
    let kept = root().join(DIRECTORY).join("kept");
    let inputs: Vec<Input> = rows(rest.get(1).map_or("inputs.jsonl", String::as_str))?;
    for input in inputs {
        let directory =
            if input.kept { kept.as_path() } else { rest.first().map_or(Path::new("."), Path::new) };
        let path = directory.join(&input.id);
        if !path.exists() {
            eprintln!("{} is not there: {}", path.display(), input.source);
            continue;
        }
        println(&serde_json::to_string(&said(program, &input.id, &path)?)?);
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "rows are this chore's product")]
fn println(line: &str) {
    println!("{line}");
}

fn said(program: &str, id: &str, path: &Path) -> Result<Said, Box<dyn Error>> {
    let output = Command::new(program).args(["doctor", "--format", "json"]).arg(path).output()?;
    let mut said =
        Said { id: id.to_owned(), refused: None, verdict: None, findings: Vec::new(), judged: Vec::new() };
    let Ok(report) = serde_json::from_slice::<Value>(&output.stdout) else {
        let error = String::from_utf8_lossy(&output.stderr);
        said.refused =
            Some(error.lines().last().unwrap_or("no output").replace(&*path.to_string_lossy(), id));
        return Ok(said);
    };
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    said.verdict = report["verdict"]["text"].as_str().map(str::to_owned);
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    for finding in findings.iter().filter(|finding| finding["severity"] != "info").take(JUDGED) {
        let remedy = &finding["remedies"][0];
        let command =
            remedy["runtime"][0].as_str().map_or_else(String::new, |command| format!(": {command}"));
        said.findings.push(Found {
            rule: text(finding, "rule"),
            severity: text(finding, "severity"),
            confidence: text(finding, "confidence"),
            title: text(finding, "title"),
            remedy: remedy["title"].as_str().map(|title| format!("{title}{command}")),
        });
    }
    Ok(said)
}
