//! The command line: parser, help, completions and man pages come from these types.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Why is the host slow although memory is free?
#[derive(Debug, Parser)]
#[command(
    name = "lotsfree",
    version,
    about,
    long_about = "Tells why a Linux host is slow although memory is free: reads what the kernel shows of its memory \
                  (live or saved), names each pathology with its evidence, what it costs and what to do about it.",
    after_help = "Example: lotsfree doctor",
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what is wrong with a host's memory, what it costs and what to do
    Doctor(DoctorArgs),
    /// Say what a rule sees, why it hurts, what helps and when it is a false alarm
    Explain(ExplainArgs),
    /// Print a shell's completions
    Completions(CompletionsArgs),
    /// Write the man pages
    Man(ManArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree doctor                        this host, two samples one second apart\n  \
                  lotsfree doctor --interval 0           this host, one instant\n  \
                  lotsfree doctor meminfo.txt            a saved file; - for standard input\n  \
                  lotsfree doctor sosreport-db1/         a tree, an archive, an OSWatcher directory, numbered snapshots\n  \
                  lotsfree doctor --format html -o report.html\n\n\
                  Exit code: 0 no finding at or above --fail-on, 1 findings, 2 wrong usage or unusable input. With --format \
                  nagios: 0 ok, 1 warning, 2 critical, 3 unknown."
)]
pub(crate) struct DoctorArgs {
    /// What to judge: a directory that looks like /, an archive, a saved /proc file, an sos report, an OSWatcher archive, a
    /// directory of numbered snapshots, or - for standard input [default: this host]
    #[arg(value_name = "SOURCE", conflicts_with = "root")]
    pub(crate) source: Option<PathBuf>,

    /// Judge a directory as if it were /
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Seconds between the two samples of this host; 0 takes one and judges no rates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) interval: f64,

    /// Milliseconds that may be spent walking the page tables of the largest processes (smaps_rollup, numa_maps)
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub(crate) walk_budget: u64,

    /// Ask only these rules
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rule, conflicts_with = "skip")]
    pub(crate) only: Vec<&'static str>,

    /// Do not ask these rules
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rule)]
    pub(crate) skip: Vec<&'static str>,

    /// The least severity that makes the exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Warning)]
    pub(crate) fail_on: FailOn,

    /// How to write the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) page: PageArgs,

    /// Name every rule and every file that was not there
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Where output goes and what it looks like.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Write to a file, as a whole or not at all
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// When to colour text
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,

    /// Columns of text [default: the terminal's, or 100]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub(crate) width: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for a terminal
    Text,
    /// The documented JSON (docs/schema/doctor-1.json)
    Json,
    /// Markdown, for tickets
    Markdown,
    /// One self-contained page with plots
    Html,
    /// One line and the exit codes of a monitoring plugin
    Nagios,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Any finding
    Info,
    /// Warnings and worse
    Warning,
    /// High and critical findings
    High,
    /// Critical findings only
    Critical,
    /// Findings never fail
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree explain                  the list of rules\n  lotsfree explain zone-reclaim"
)]
pub(crate) struct ExplainArgs {
    /// The rule [default: list them]
    #[arg(value_name = "RULE", value_parser = rule)]
    pub(crate) rule: Option<&'static str>,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: lotsfree completions bash > /etc/bash_completion.d/lotsfree")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: lotsfree man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The directory, which must exist
    pub(crate) directory: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0 to 3600, such as 0, 1 or 0.5".to_owned()),
    }
}

fn rule(text: &str) -> Result<&'static str, String> {
    if let Some(rule) = lotsfree_doctor::rules::find(text) {
        return Ok(rule.meta().id);
    }
    let ids = lotsfree_doctor::rules::all().map(|rule| rule.meta().id);
    let near: Vec<&str> =
        ids.filter(|id| text.split('-').any(|word| word.len() > 2 && id.contains(word))).collect();
    match near.as_slice() {
        [] => Err("no such rule; `lotsfree explain` lists them".to_owned()),
        near => Err(format!("no such rule; did you mean {}? `lotsfree explain` lists all", near.join(", "))),
    }
}
