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
    /// Which kernel's rules the arithmetic follows, and why; `null` where they are the same for all.
    pub kernel: Option<String>,
    /// Whether what comes out fits the host, where that is a question.
    pub fit: Option<Fit>,
    /// The arithmetic, in the order in which it is done.
    pub steps: Vec<Step>,
    /// What it comes to.
    pub result: Outcome,
    /// Lines that make the setting permanent.
    pub configuration: Vec<ConfigFile>,
    /// Shell commands that set it on the running host, as root.
    pub commands: Vec<String>,
    /// What has to restart after them, or that nothing has.
    pub restart: Option<String>,
    /// What may go wrong, and where sources contradict each other; those that matter most come first.
    pub warnings: Vec<String>,
    /// How many of the warnings matter for these figures and not only in general.
    #[serde(skip)]
    pub(crate) alerts: usize,
    /// Whether the lines to configure are only for those who ask for all of it.
    #[serde(skip)]
    pub(crate) withheld: bool,
    /// Widespread statements about this topic that are wrong, each with the reason.
    pub corrections: Vec<String>,
}

/// Whether something fits a host, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// `null` if what is known does not decide it.
    pub fits: Option<bool>,
    /// The verdict with its figures, in a sentence or two.
    pub text: String,
}

/// One line of arithmetic: `text: formula = value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Whether the result cannot be understood without it.
    pub essential: bool,
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
    /// Whether the result needs these lines; others are alternatives, or for some hosts only.
    pub essential: bool,
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
            kernel: None,
            fit: None,
            steps: Vec::new(),
            result: Outcome { text: String::new(), value: Value::Count(0) },
            configuration: Vec::new(),
            commands: Vec::new(),
            restart: None,
            warnings: Vec::new(),
            alerts: 0,
            withheld: false,
            corrections: Vec::new(),
        }
    }

    /// A step that the one screen has, too.
    pub(crate) fn step(&mut self, text: impl Into<String>, formula: impl Into<String>, value: Value) {
        self.steps.push(Step { essential: true, text: text.into(), formula: formula.into(), value });
    }

    /// A step for those who ask for every one of them.
    pub(crate) fn detail(&mut self, text: impl Into<String>, formula: impl Into<String>, value: Value) {
        self.steps.push(Step { essential: false, text: text.into(), formula: formula.into(), value });
    }

    /// Judges what is asked for. If it does not fit, nobody should copy the lines that bring it about.
    pub(crate) fn judge(&mut self, fits: Option<bool>, text: impl Into<String>) {
        self.observe(fits, text);
        self.withheld = fits == Some(false);
    }

    /// Judges what the host has, which the lines are there to change.
    pub(crate) fn observe(&mut self, fits: Option<bool>, text: impl Into<String>) {
        self.fit = Some(Fit { fits, text: text.into() });
    }

    pub(crate) fn file(&mut self, path: impl Into<String>, lines: Vec<String>) {
        self.configuration.push(ConfigFile { essential: true, path: path.into(), lines });
    }

    /// Lines that are an alternative to others, or for some hosts only.
    pub(crate) fn other_file(&mut self, path: impl Into<String>, lines: Vec<String>) {
        self.configuration.push(ConfigFile { essential: false, path: path.into(), lines });
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

    /// A command that shows whether it worked, with what it should print as the shell's comment.
    pub(crate) fn check(&mut self, command: impl fmt::Display, expected: impl fmt::Display) {
        self.commands.push(format!("{command}  # {expected}"));
    }

    /// What has to restart after the commands.
    pub(crate) fn restart(&mut self, text: impl Into<String>) {
        self.restart = Some(text.into());
    }

    /// A warning that holds in general.
    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// A warning that these figures give cause for; it comes before those that hold in general.
    pub(crate) fn alert(&mut self, text: impl Into<String>) {
        self.warnings.insert(self.alerts, text.into());
        self.alerts += 1;
    }

    pub(crate) fn correct(&mut self, text: impl Into<String>) {
        self.corrections.push(text.into());
    }

    pub(crate) fn conclude(&mut self, text: impl Into<String>, value: Value) {
        self.result = Outcome { text: text.into(), value };
    }

    /// The answer as plain text of at most `width` columns, where words and file lines allow; at least 40.
    ///
    /// Without `verbose`, what fits one screen: the verdict, the steps without which it cannot be understood,
    /// the lines to configure, the commands and the one or two warnings that matter most.
    ///
    /// Values stand below each other. A step whose formula does not fit beside its text has it on the next
    /// line. Configuration lines and commands are never broken: they are to be copied.
    pub fn to_text(&self, width: usize, verbose: bool) -> String {
        let width = width.max(40);
        let mut out = String::new();
        // The kernel stands beside the title where there is room, else below the result.
        let both = self.kernel.as_ref().map(|kernel| format!("{}. {kernel}", self.title));
        let beside = both.filter(|both| columns(both) <= width);
        wrap(&mut out, beside.as_ref().unwrap_or(&self.title), "", "", width);
        if let Some(fit) = &self.fit {
            wrap(&mut out, &fit.text, "", "", width);
        }
        wrap(&mut out, &self.result.text, "=> ", "   ", width);
        if let Some(kernel) = self.kernel.as_ref().filter(|_| beside.is_none()) {
            wrap(&mut out, kernel, "", "", width);
        }
        out.push('\n');
        let steps: Vec<&Step> = self.steps.iter().filter(|step| verbose || step.essential).collect();
        arithmetic(&mut out, &steps, width);

        let usable = verbose || !self.withheld;
        if usable {
            self.settings(&mut out, verbose, width);
        }
        let shown = if verbose { self.warnings.len() } else { self.alerts.clamp(1, MOST_WARNINGS) };
        // Below commands the screen has no line to spare.
        if verbose || !usable || self.commands.is_empty() {
            out.push('\n');
        }
        list(&mut out, "Beware:", self.warnings.get(..shown).unwrap_or(&self.warnings), width);
        if !verbose {
            self.point_to_the_rest(&mut out, steps.len(), usable, shown, width);
        } else if !self.corrections.is_empty() {
            out.push('\n');
            list(&mut out, "Often stated, but wrong:", &self.corrections, width);
        }
        out
    }

    /// The lines to configure, and the commands.
    fn settings(&self, out: &mut String, verbose: bool, width: usize) {
        if verbose {
            for file in &self.configuration {
                let _ = writeln!(out, "\n{}:", file.path);
                for line in &file.lines {
                    let _ = writeln!(out, "    {line}");
                }
            }
        } else if self.configuration.iter().any(|file| file.essential) {
            out.push_str("\nTo configure:\n");
            for file in self.configuration.iter().filter(|file| file.essential) {
                match file.lines.as_slice() {
                    [line] if columns(&file.path) + columns(line) + 6 <= width => {
                        let _ = writeln!(out, "  {}:  {line}", file.path);
                    }
                    lines => {
                        let _ = writeln!(out, "  {}:", file.path);
                        for line in lines {
                            let _ = writeln!(out, "    {line}");
                        }
                    }
                }
            }
        }
        if !self.commands.is_empty() {
            let configured = self.configuration.iter().any(|file| file.essential);
            out.push_str(if verbose || !configured { "\n" } else { "" });
            let at_once = self.restart.as_deref() == Some(NO_RESTART);
            let (head, restart) = match at_once {
                true => ("On the running host, as root; nothing has to restart:\n", None),
                false => ("On the running host, as root:\n", self.restart.as_ref()),
            };
            out.push_str(head);
            for command in &self.commands {
                let _ = writeln!(out, "    {command}");
            }
            if let Some(restart) = restart {
                wrap(out, restart, "  ", "  ", width);
            }
        }
    }

    /// The last line of the one screen: how much `--verbose` would add.
    fn point_to_the_rest(&self, out: &mut String, steps: usize, usable: bool, warnings: usize, width: usize) {
        let files = self.configuration.iter().filter(|file| !usable || !file.essential).count();
        let rest = [
            (self.steps.len() - steps, "step"),
            (files, if usable { "other file" } else { "file" }),
            (self.warnings.len().saturating_sub(warnings), "warning"),
            (self.corrections.len(), "correction"),
        ];
        let rest = rest.iter().filter(|(n, _)| *n > 0);
        let parts: Vec<String> =
            rest.map(|(n, what)| format!("{n} {what}{}", if *n == 1 { "" } else { "s" })).collect();
        if let Some((last, others)) = parts.split_last() {
            let all = match others {
                [] => last.clone(),
                others => format!("{} and {last}", others.join(", ")),
            };
            let why = if usable || files == 0 {
                ""
            } else {
                " It does not fit, so the lines to set it are there only."
            };
            wrap(out, &format!("With -v: {all} more.{why}"), "", "", width);
        }
    }
}

/// Settings that hold from the command on.
pub(crate) const NO_RESTART: &str = "Nothing has to restart: this holds at once.";

/// Most warnings that the one screen has.
const MOST_WARNINGS: usize = 2;

/// Steps with their values below each other.
fn arithmetic(out: &mut String, steps: &[&Step], width: usize) {
    let values: Vec<String> = steps.iter().map(|step| step.value.to_string()).collect();
    let value_width = values.iter().map(|value| columns(value)).max().unwrap_or(0);
    // two columns of margin, " = " before the value
    let left = width.saturating_sub(value_width + 5).max(10);
    for (step, value) in steps.iter().zip(&values) {
        let gap = left.saturating_sub(columns(&step.text) + columns(&step.formula));
        let (head, sign) = if step.formula.is_empty() { ("", "  ") } else { (step.formula.as_str(), " =") };
        if columns(&step.text) + columns(head) + 2 <= left {
            let _ = writeln!(out, "  {}{:gap$}{head}{sign} {value:>value_width$}", step.text, "");
        } else {
            wrap(out, &step.text, "  ", "  ", width);
            let _ = writeln!(out, "  {head:>left$}{sign} {value:>value_width$}");
        }
    }
}

/// Texts as a list below a title, if there are any.
fn list(out: &mut String, title: &str, texts: &[String], width: usize) {
    if !texts.is_empty() {
        let _ = writeln!(out, "{title}");
        for text in texts {
            wrap(out, text, "  - ", "    ", width);
        }
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
=> It is this.

  given                              16 GiB
  entries      16 GiB / 4 KiB =   4,194,304
  a text that is far too long to stand
  beside its formula
                        1 + 1 =      1 page

/etc/x:
    a = 1

On the running host, as root:
    sysctl -w a=1

Beware:
  - one two three four five six seven eight
    nine ten eleven
";
        let text = answer().to_text(44, true);
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
    fn one_screen_has_what_is_essential_and_says_what_is_left_out() {
        let mut answer = answer();
        answer.detail("a detail", "", Value::Count(7));
        answer.other_file("/etc/y", vec!["b = 2".into()]);
        answer.warn("a general warning");
        answer.alert("this matters");
        answer.alert("this too");
        answer.correct("wrong");
        answer.judge(Some(true), "It fits: one.");
        let text = answer.to_text(100, false);
        assert!(text.starts_with("A question\nIt fits: one.\n=> It is this.\n"), "{text}");
        assert!(text.contains("\n  /etc/x:  a = 1\n"), "{text}");
        assert!(text.contains("  - this matters\n  - this too\nWith -v: 1 step, 1 other file, 2 warnings and 1 correction more."), "{text}");
        for left_out in ["a detail", "/etc/y", "general", "wrong"] {
            assert!(!text.contains(left_out), "{left_out}: {text}");
            assert!(answer.to_text(100, true).contains(left_out), "{left_out}");
        }
    }

    #[test]
    fn lines_for_what_does_not_fit_are_for_those_who_ask() {
        let mut answer = answer();
        answer.judge(Some(false), "It does not fit: none.");
        let text = answer.to_text(100, false);
        assert!(!text.contains("a = 1") && !text.contains("sysctl -w"), "{text}");
        assert!(text.contains("With -v: 1 file more. It does not fit, so"), "{text}");
        assert!(answer.to_text(100, true).contains("sysctl -w a=1"));
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
