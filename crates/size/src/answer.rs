//! [`Answer`]: what every topic returns.

use std::fmt::{self, Write as _};

use lotsfree_units::{Bytes, Grouped, Percent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use textwrap::Options;

/// The result of one sizing question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The question in a few words.
    pub title: String,
    /// The arithmetic, in the order in which it is done.
    pub steps: Vec<Step>,
    /// What it comes to.
    pub result: Outcome,
    /// Lines that make the setting permanent.
    pub configuration: Vec<ConfigFile>,
    /// Shell commands that set it on the running host, as root.
    pub commands: Vec<String>,
    /// What may go wrong, and where sources contradict each other.
    pub warnings: Vec<String>,
    /// Widespread statements about this topic that are wrong, each with the reason.
    pub corrections: Vec<String>,
}

/// One line of arithmetic: `text: formula = value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// What is computed.
    pub text: String,
    /// How, with the numbers put in; empty for a figure that is given.
    pub formula: String,
    /// The value.
    pub value: Value,
}

/// The last line: a sentence and its figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// One sentence.
    pub text: String,
    /// The figure it names.
    pub value: Value,
}

/// A file, or the kernel command line, and the lines that belong in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigFile {
    /// Path, or `kernel command line`. A word in angle brackets is to be replaced.
    pub path: String,
    /// Lines to put there.
    pub lines: Vec<String>,
}

/// A figure with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "unit", content = "amount", rename_all = "snake_case")]
pub enum Value {
    /// Bytes.
    Bytes(Bytes),
    /// KiB, for values that a kernel setting takes in KiB.
    Kib(u64),
    /// Pages of the hugetlb pool.
    HugePages(u64),
    /// Tables or base pages.
    Pages(u64),
    /// A plain number.
    Count(u64),
    /// A percentage from 0 to 100 and beyond.
    Percent(f64),
    /// The kernel refuses nothing.
    Unlimited,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Value::Bytes(bytes) => bytes.to_string(),
            Value::Kib(kib) => format!("{} kB", Grouped(kib)),
            Value::HugePages(n) => format!("{} huge {}", Grouped(n), pages(n)),
            Value::Pages(n) => format!("{} {}", Grouped(n), pages(n)),
            Value::Count(n) => Grouped(n).to_string(),
            Value::Percent(percent) => Percent(percent / 100.0).to_string(),
            Value::Unlimited => "unlimited".to_owned(),
        };
        f.pad(&text)
    }
}

/// `page` or `pages`.
fn pages(n: u64) -> &'static str {
    if n == 1 { "page" } else { "pages" }
}

impl Answer {
    /// An answer without a result yet.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Answer {
            title: title.into(),
            steps: Vec::new(),
            result: Outcome { text: String::new(), value: Value::Count(0) },
            configuration: Vec::new(),
            commands: Vec::new(),
            warnings: Vec::new(),
            corrections: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, text: impl Into<String>, formula: impl Into<String>, value: Value) {
        self.steps.push(Step { text: text.into(), formula: formula.into(), value });
    }

    pub(crate) fn file(&mut self, path: impl Into<String>, lines: Vec<String>) {
        self.configuration.push(ConfigFile { path: path.into(), lines });
    }

    /// Lines of a file in `/etc/sysctl.d`, and that a later file may undo them (sysctl.d(5)).
    pub(crate) fn sysctl_file(&mut self, path: &str, lines: Vec<String>) {
        let names: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
        let pattern = names.join("|").replace('.', "[./]");
        self.warn(format!(
            "A file of /etc/sysctl.d with a later name, or /etc/sysctl.conf, that sets the same name wins at boot: \
             grep -nE '{pattern}' /etc/sysctl.conf /etc/sysctl.d/*.conf"
        ));
        self.file(path, lines);
    }

    pub(crate) fn command(&mut self, command: impl Into<String>) {
        self.commands.push(command.into());
    }

    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    pub(crate) fn correct(&mut self, text: impl Into<String>) {
        self.corrections.push(text.into());
    }

    pub(crate) fn conclude(&mut self, text: impl Into<String>, value: Value) {
        self.result = Outcome { text: text.into(), value };
    }

    /// The answer as plain text of at most `width` columns, where words and file lines allow; at least 40.
    ///
    /// Values stand below each other. A step whose formula does not fit beside its text has it on the next
    /// line. Configuration lines and commands are never broken: they are to be copied.
    pub fn to_text(&self, width: usize) -> String {
        let width = width.max(40);
        let mut out = String::new();
        wrap(&mut out, &self.title, "", "", width);
        out.push('\n');

        let values: Vec<String> = self.steps.iter().map(|step| step.value.to_string()).collect();
        let value_width = values.iter().map(|value| columns(value)).max().unwrap_or(0);
        // two columns of margin, " = " before the value
        let left = width.saturating_sub(value_width + 5).max(10);
        for (step, value) in self.steps.iter().zip(&values) {
            let gap = left.saturating_sub(columns(&step.text) + columns(&step.formula));
            let (head, sign) =
                if step.formula.is_empty() { ("", "  ") } else { (step.formula.as_str(), " =") };
            if columns(&step.text) + columns(head) + 2 <= left {
                let _ = writeln!(out, "  {}{:gap$}{head}{sign} {value:>value_width$}", step.text, "");
            } else {
                wrap(&mut out, &step.text, "  ", "  ", width);
                let _ = writeln!(out, "  {head:>left$}{sign} {value:>value_width$}");
            }
        }
        out.push('\n');
        wrap(&mut out, &self.result.text, "=> ", "   ", width);

        for file in &self.configuration {
            let _ = writeln!(out, "\n{}:", file.path);
            for line in &file.lines {
                let _ = writeln!(out, "    {line}");
            }
        }
        if !self.commands.is_empty() {
            out.push_str("\nOn the running host, as root:\n");
            for command in &self.commands {
                let _ = writeln!(out, "    {command}");
            }
        }
        for (title, texts) in [("Beware:", &self.warnings), ("Often stated, but wrong:", &self.corrections)] {
            if !texts.is_empty() {
                let _ = writeln!(out, "\n{title}");
                for text in texts {
                    wrap(&mut out, text, "  - ", "    ", width);
                }
            }
        }
        out
    }
}

/// Columns that a text takes on a terminal.
fn columns(text: &str) -> usize {
    textwrap::core::display_width(text)
}

/// Appends `text` wrapped to `width`, with an indent for the first and for the other lines.
fn wrap(out: &mut String, text: &str, first: &str, rest: &str, width: usize) {
    for line in textwrap::wrap(text, Options::new(width).initial_indent(first).subsequent_indent(rest)) {
        out.push_str(&line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let mut answer = Answer::new("A question");
        answer.step("given", "", Value::Bytes(Bytes::gib(16)));
        answer.step("entries", "16 GiB / 4 KiB", Value::Count(4_194_304));
        answer.step("a text that is far too long to stand beside its formula", "1 + 1", Value::Pages(1));
        answer.conclude("It is this.", Value::Pages(1));
        answer.file("/etc/x", vec!["a = 1".into()]);
        answer.command("sysctl -w a=1");
        answer.warn("one two three four five six seven eight nine ten eleven");
        answer
    }

    #[test]
    fn text_is_aligned_and_wrapped() {
        let expected = "\
A question

  given                              16 GiB
  entries      16 GiB / 4 KiB =   4,194,304
  a text that is far too long to stand
  beside its formula
                        1 + 1 =      1 page

=> It is this.

/etc/x:
    a = 1

On the running host, as root:
    sysctl -w a=1

Beware:
  - one two three four five six seven eight
    nine ten eleven
";
        let text = answer().to_text(44);
        let squeeze = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(squeeze(&text), squeeze(expected));
        assert!(text.lines().all(|line| columns(line) <= 44), "{text}");
        // the three values end in the same column
        let ends: Vec<usize> = text
            .lines()
            .filter(|line| ["16 GiB", "4,194,304", "1 page"].iter().any(|value| line.ends_with(value)))
            .map(columns)
            .collect();
        assert_eq!(ends, [44, 44, 44], "{text}");
    }

    #[test]
    fn values_say_their_unit_in_json() {
        let json = serde_json::to_value(answer()).unwrap();
        assert_eq!(json["steps"][1]["value"], serde_json::json!({"unit": "count", "amount": 4_194_304}));
        assert_eq!(serde_json::from_value::<Answer>(json).unwrap(), answer());
        assert_eq!(serde_json::to_value(Value::Unlimited).unwrap(), serde_json::json!({"unit": "unlimited"}));
        assert!(schemars::schema_for!(Answer).to_value()["properties"]["result"].is_object());
    }
}
