//! The command line: parser, help, completions and man pages come from these types.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use lotsfree_lab::vm::Accelerator;
use lotsfree_scenario::Generation;
use lotsfree_size::{HugepagesInput, OvercommitInput, PagetablesInput, SwapInput, WatermarksInput};

/// Why is the host slow although memory is free?
#[derive(Debug, Parser)]
#[command(
    name = "lotsfree",
    version,
    about,
    long_about = "Tells why a Linux host is slow although memory is free: reads what the kernel shows of its memory \
                  (live or saved), names each pathology with its evidence, what it costs and what to do about it. Runs \
                  workloads on a model of the kernel's memory management, once per setting, to say what a remedy does.",
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
    /// Say who lost time to memory, how much, and who took it
    Blame(BlameArgs),
    /// Say what a rule sees, why it hurts, what helps and when it is a false alarm
    Explain(ExplainArgs),
    /// Capture all data that the rules read in one archive, to be judged elsewhere
    Snapshot(SnapshotArgs),
    /// Compute what to set, with the arithmetic and the configuration lines
    Size(SizeArgs),
    /// Run a scenario on the model of the kernel's memory management, once per variant
    Sim(SimArgs),
    /// Run a scenario on a real kernel: in a virtual machine, in a control group, or on this host
    Lab(LabArgs),
    /// Execute the operations of an actor, as `lotsfree lab` orders
    #[command(hide = true)]
    Agent(AgentArgs),
    /// Undo what the process behind standard input left changed, once it ends
    #[command(hide = true)]
    Guard,
    /// Compare runs: every measure with its relative error
    Compare(CompareArgs),
    /// Draw what happened in runs, as one page with plots
    Report(ReportArgs),
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
                  lotsfree doctor runs/overnight/base    a run of lotsfree sim\n  \
                  lotsfree doctor --format html -o report.html\n\n\
                  Exit code: 0 no finding at or above --fail-on, 1 findings, 2 wrong usage or unusable input. With --format \
                  nagios: 0 ok, 1 warning, 2 critical, 3 unknown."
)]
pub(crate) struct DoctorArgs {
    /// What to judge: a directory that looks like /, an archive, a saved /proc file, an sos report, an
    /// OSWatcher archive, a directory of numbered snapshots, a run, or - for standard input [default: this
    /// host]
    #[arg(value_name = "SOURCE", conflicts_with = "root")]
    pub(crate) source: Option<PathBuf>,

    /// Judge a directory as if it were /
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Seconds between the two samples of this host; 0 takes one and judges no rates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) interval: f64,

    /// Milliseconds that may be spent walking the page tables of the largest processes (smaps_rollup,
    /// numa_maps)
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub(crate) walk_budget: u64,

    /// Check only these rules
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rule, conflicts_with = "skip")]
    pub(crate) only: Vec<&'static str>,

    /// Leave out these rules
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rule)]
    pub(crate) skip: Vec<&'static str>,

    /// Least severity that makes the exit code 1, or with --format nagios the status WARNING or CRITICAL
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

    /// Name every rule that found nothing and every file that was missing
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Where output goes and what it looks like.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Write to a file, as a whole or not at all
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) style: StyleArgs,
}

/// What text looks like.
#[derive(Debug, Args)]
pub(crate) struct StyleArgs {
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

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree blame                         who pays and who takes on this host, worst first\n  \
                  lotsfree blame postgres --for 2m       what memory costs postgres, and who takes it\n  \
                  lotsfree blame postgresql.service      the program of a unit that lost most; or a control group, or a process id\n  \
                  lotsfree blame --keep slow-monday      keep the run for lotsfree report, compare and blame --run\n  \
                  lotsfree blame --run runs/overnight/base    the same table of a run of lotsfree sim\n  \
                  lotsfree blame -- make -j8             a command, from its start to its end\n\n\
                  Watching a host needs root, or CAP_PERFMON, CAP_SYS_ADMIN and CAP_SYSLOG; without them it is told what /proc \
                  says to everybody. Nothing is changed on the host, but for kernel.task_delayacct while a command is \
                  watched; watching takes less than 1 % of one CPU and 32 MiB. docs/blame.md has the rule by which time is \
                  charged, and how far it is from what switching a culprit off gives back.\n\n\
                  Exit code: 0 told, 2 wrong usage or a host that cannot be watched."
)]
pub(crate) struct BlameArgs {
    /// Whom to ask about: a program's name, a process id, a systemd unit, or a control group [default: all]
    #[arg(value_name = "WHOM")]
    pub(crate) payer: Option<String>,

    /// How long to watch, such as 30s or 5m
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = span)]
    pub(crate) length: Duration,

    /// What watching may take, in percent of one CPU, from 0.1 to 100; with more, less is missed
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = budget)]
    pub(crate) budget: f64,

    /// Judge a run of lotsfree sim or blame instead of watching this host
    #[arg(long, value_name = "RUN", conflicts_with_all = ["length", "budget", "keep", "command"])]
    pub(crate) run: Option<PathBuf>,

    /// Keep what was seen as a run in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,

    /// How to write the report
    #[arg(long, value_enum, default_value_t = BlameFormat::Text)]
    pub(crate) format: BlameFormat,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) page: PageArgs,

    /// A command to start and watch until it ends
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["payer", "length"])]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BlameFormat {
    /// Text for a terminal
    Text,
    /// The documented JSON (docs/schema/blame-1.json)
    Json,
    /// Markdown, for tickets
    Markdown,
    /// One self-contained page
    Html,
}

/// A time from a second to an hour.
fn span(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let scale = match unit {
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = digits.trim().parse::<f64>().unwrap_or(f64::NAN) * scale;
    if !(1.0..=3600.0).contains(&seconds) {
        return Err("expected a time from 1s to 1h, such as 30s or 5m".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn budget(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.1..=100.0).contains(&percent) => Ok(percent),
        _ => Err("expected percent of one CPU from 0.1 to 100, such as 1 or 5".to_owned()),
    }
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

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree size hugepages --segment 8GiB --segment 1.5GiB --ram 16GiB\n  \
                  lotsfree size hugepages --from-host\n  \
                  lotsfree size pagetables 16GiB --processes 100\n  \
                  lotsfree size overcommit --from-host --wanted 20GiB"
)]
pub(crate) struct SizeArgs {
    #[command(subcommand)]
    pub(crate) topic: SizeTopic,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SizeTopic {
    /// The huge page pool, from segments, PostgreSQL's or the JVM's figures
    #[command(
        alias = "huge-pages",
        after_help = "Examples:\n  lotsfree size hugepages --segment 8GiB --segment 1.5GiB --sessions 400 --ram 64GiB\n  \
                      lotsfree size hugepages --from-host              the segments that exist, and whether they fit\n  \
                      ipcs -m | lotsfree size hugepages --ipcs -       the same from another host's list\n  \
                      lotsfree size hugepages --ipcs-bytes 8592031744  one size of that list, typed by hand\n  \
                      lotsfree size hugepages --postgres-pages 4321\n  \
                      lotsfree size hugepages --jvm 16GiB --collector parallel"
    )]
    Hugepages(Box<Asked<HugepagesInput>>),
    /// Page tables of processes that map the same memory, with 4 KiB and with huge pages
    #[command(alias = "page-tables", after_help = "Example: lotsfree size pagetables 16GiB --processes 100")]
    Pagetables(Asked<PagetablesInput>),
    /// Swap, by the vendors' rules and from what is cold
    #[command(after_help = "Example: lotsfree size swap --ram 256GiB --hugetlb 128GiB")]
    Swap(Asked<SwapInput>),
    /// What may be allocated in the three overcommit modes
    #[command(after_help = "Example: lotsfree size overcommit --ram 1TiB --hugetlb 800GiB --ratio 50")]
    Overcommit(Asked<OvercommitInput>),
    /// min_free_kbytes and watermark_scale_factor
    #[command(after_help = "Example: lotsfree size watermarks --ram 1TiB --nodes 4 --burst 2GiB")]
    Watermarks(Asked<WatermarksInput>),
}

/// A sizing question, and what all of them have in common.
#[derive(Debug, Args)]
pub(crate) struct Asked<Input: Args> {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) common: SizeCommon,
}

/// Where figures that are not given come from, and how the answer is written.
#[derive(Debug, Args)]
pub(crate) struct SizeCommon {
    /// Take what is not given from this host
    #[arg(long, conflicts_with = "from")]
    pub(crate) from_host: bool,

    /// Take what is not given from saved data (see lotsfree doctor --help)
    #[arg(long, value_name = "SOURCE")]
    pub(crate) from: Option<PathBuf>,

    /// As JSON, which always has all of it
    #[arg(long)]
    pub(crate) json: bool,

    /// Every step, file, warning and correction, instead of what fits one screen
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree snapshot                             lotsfree-HOST-DATE.tar.zst here\n  \
                  lotsfree snapshot --format text -o - | less   look at what would be mailed\n  \
                  lotsfree snapshot --samples 10 --interval 30  five minutes, for rates and trends"
)]
pub(crate) struct SnapshotArgs {
    /// Where to write, as a whole or not at all; - for standard output [default: lotsfree-HOST-DATE.tar.zst]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// How many samples
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) samples: u32,

    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) interval: f64,

    /// Keep every file as it was read; otherwise names of hosts, users, programs, services, disks and files
    /// are replaced, and what no rule needs is left out
    #[arg(long)]
    pub(crate) full: bool,

    /// What to write
    #[arg(long, value_enum, default_value_t = SnapshotFormat::Archive)]
    pub(crate) format: SnapshotFormat,

    /// Most MiB of files to keep
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_size: u32,

    /// Most seconds to spend reading one sample
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) max_time: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnapshotFormat {
    /// tar, compressed with zstd
    Archive,
    /// One readable text
    Text,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree sim --list                                      the scenarios that ship\n  \
                  lotsfree sim quickstart                                  all its variants, side by side\n  \
                  lotsfree sim quickstart --set generation=linux-6.12      another kernel for all of them\n  \
                  lotsfree sim quickstart --set actor.app.heap='500 MiB'   another workload\n  \
                  lotsfree sim mine.toml --variant base --variant small    two of its variants\n  \
                  lotsfree sim quickstart --repeat 5                       with five seeds, to see what is chance\n  \
                  lotsfree sim quickstart --calibration host.toml          with costs of lotsfree lab calibrate\n  \
                  lotsfree sim mine.toml --like lab/runs/DATE-vm/mine      beginning as that lab's kernel did\n  \
                  lotsfree sim --show quickstart > mine.toml               one to start from\n  \
                  lotsfree sim --host > mine.toml                          one of this host\n  \
                  lotsfree sim --like host.tar.zst > mine.toml             one of a host whose snapshot that is\n\n\
                  Then: lotsfree report runs/quickstart -o quickstart.html\n\n\
                  Exit code: 0 all runs are complete, 2 wrong usage, a scenario with errors or output that cannot be \
                  written, 130 interrupted with Ctrl-C (143 with SIGTERM); what was simulated until then is kept."
)]
pub(crate) struct SimArgs {
    /// A scenario file, or the name of a scenario that ships
    #[arg(value_name = "SCENARIO", required_unless_present_any = ["list", "host", "like"])]
    pub(crate) scenario: Option<String>,

    /// Override a key in every variant; keys are those of the file, dotted; repeatable
    ///
    /// Refused where a variant sets the key itself, or is named after it.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,

    /// Run this variant only; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) variant: Vec<String>,

    /// Run everything with this many seeds, from the scenario's on, to see how far chance moves each measure
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeat: u16,

    /// A record of what things cost, which `lotsfree lab calibrate` measured; costs that the scenario
    /// states win
    #[arg(long, value_name = "FILE")]
    pub(crate) calibration: Option<PathBuf>,

    /// A run of lotsfree lab, or a directory with some: begin as the kernel did there, with as much memory in
    /// use by something other than the scenario; or a file with data of a host, as `lotsfree doctor` reads
    /// them: begin as that host
    ///
    /// Without SCENARIO, print a scenario of that host, as --host does of this one.
    #[arg(long, value_name = "RUN")]
    pub(crate) like: Option<PathBuf>,

    /// Print a scenario of this host instead: its machine, its settings, and its largest programs beside a
    /// copy
    #[arg(long, conflicts_with_all = ["scenario", "set", "variant", "repeat", "calibration", "like", "out", "no_runs", "threads", "list", "show", "json"])]
    pub(crate) host: bool,

    /// Directory for the runs [default: runs/SCENARIO]
    #[arg(long, short, value_name = "DIR", alias = "output")]
    pub(crate) out: Option<PathBuf>,

    /// Write no run directories; only print the measures
    #[arg(long, conflicts_with = "out")]
    pub(crate) no_runs: bool,

    /// Most runs at a time; fewer where memory does not suffice [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,

    /// List the scenarios that ship, and what they show
    #[arg(long, conflicts_with_all = ["scenario", "set", "variant", "repeat", "calibration", "like", "out", "no_runs", "threads", "show"])]
    pub(crate) list: bool,

    /// Print the text of a scenario that ships instead of running it
    #[arg(long, conflicts_with_all = ["set", "variant", "repeat", "calibration", "like", "out", "no_runs", "threads", "json"])]
    pub(crate) show: bool,

    /// Run what the scenario's table of strategies compares, and fill the table: what each strategy protects,
    /// what it costs, what it needs and which kernels have it
    #[arg(long, conflicts_with_all = ["variant", "repeat", "like", "host", "list", "show", "verbose"])]
    pub(crate) table: bool,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Show how each measure differs from the first run's
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) style: StyleArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Run only the experiments with these names
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) names: Vec<String>,

    /// A file of experiments [default: those that ship, lab/validation.toml, lab/held-out.toml and
    /// lab/seen.toml of the repository]; with a single kernel in it, for that one alone
    #[arg(long, value_name = "FILE")]
    pub(crate) experiments: Option<PathBuf>,

    /// Draw N experiments from seeds instead, and put records and page beside their runs
    #[arg(long, value_name = "N", conflicts_with_all = ["experiments", "names", "recorded"])]
    pub(crate) random: Option<u16>,

    /// The first of the seeds; each of the others is one more
    #[arg(long, value_name = "S", default_value_t = 1, requires = "random")]
    pub(crate) seed: u64,

    /// Kernels that take turns in executing what is drawn
    #[arg(long, value_name = "GENERATION", value_delimiter = ',', requires = "random",
          default_values = ["linux-6.1", "linux-6.12", "linux-6.12+mglru"])]
    pub(crate) generations: Vec<Generation>,

    /// Only write what is drawn to FILE, which --experiments reads
    #[arg(long, value_name = "FILE", requires = "random")]
    pub(crate) list: Option<PathBuf>,

    /// Directory for the runs; complete runs of kernels that it holds are taken for those that no record has
    #[arg(long, value_name = "DIR", default_value = "lab/runs/validation")]
    pub(crate) runs: PathBuf,

    /// Calibrate again and repeat every kernel's run
    #[arg(long)]
    pub(crate) fresh: bool,

    /// Directory for the results, a file for each experiment and kernel
    /// [default: lab/validation; for --random, records below the directory of the runs]
    #[arg(long, short, value_name = "DIR", alias = "output")]
    out: Option<PathBuf>,

    /// Page to make from the results in that directory, of the experiments in the file above [default:
    /// docs/validation.md; for --random, validation.md in the directory of the runs]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Boot nothing: compare the model with the kernels' runs that are recorded
    #[arg(long, conflicts_with_all = ["random", "fresh", "yes_really"])]
    pub(crate) model_only: bool,

    /// Record what kernels do, without the model and the page: nobody has looked at what is held out
    #[arg(long, conflicts_with_all = ["model_only", "recorded", "page", "tables"])]
    pub(crate) kernel_only: bool,

    /// Also write a page with every measure; pictures of the experiments run now go beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) tables: Option<PathBuf>,

    /// Run nothing: make the pages from the results in that directory
    #[arg(long, conflicts_with_all = ["names", "fresh", "yes_really"])]
    pub(crate) recorded: bool,

    /// Run even on a host that is in use, for experiments on this host
    #[arg(long)]
    pub(crate) yes_really: bool,
}

impl ValidateArgs {
    /// Directory of the records.
    pub(crate) fn out(&self) -> PathBuf {
        let default = || match self.random {
            Some(_) => self.runs.join("records"),
            None => PathBuf::from("lab/validation"),
        };
        self.out.clone().unwrap_or_else(default)
    }

    /// The page that is made of them.
    pub(crate) fn page(&self) -> PathBuf {
        let default = || match self.random {
            Some(_) => self.runs.join("validation.md"),
            None => PathBuf::from("docs/validation.md"),
        };
        self.page.clone().unwrap_or_else(default)
    }
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// As the first program of a virtual machine
    #[arg(long)]
    pub(crate) init: bool,
    /// Reclaim, as `lotsfree lab calibrate` orders
    #[arg(long, conflicts_with = "init")]
    pub(crate) reclaim: bool,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  lotsfree lab zone-reclaim                                in virtual machines, one after the other\n  \
                  lotsfree lab zone-reclaim --variant on --variant off     two of its variants\n  \
                  lotsfree lab quickstart --on cgroup                      in a control group of the scenario's size\n  \
                  lotsfree lab segment-pool --on host --dry-run            what would be changed on this host\n  \
                  lotsfree lab quickstart --repeat 2                       twice, to see how far runs differ\n  \
                  lotsfree lab calibrate -o host.toml                      what the kernel's work costs here, for sim\n  \
                  lotsfree lab kernel 6.1 6.12                             download kernels for virtual machines\n  \
                  lotsfree lab restore                                     undo the changes of a killed lab\n\n\
                  Then: lotsfree compare lab/runs/DATE-vm/zone-reclaim runs/zone-reclaim\n\n\
                  Everything that is changed on this host is put back, also after Ctrl-C; after a kill, by the next lab or by \
                  lotsfree lab restore.\n\n\
                  Exit code: 0 all runs are complete, 2 wrong usage, or what was asked for cannot be done, 130 interrupted \
                  with Ctrl-C (143 with SIGTERM); what was measured until then is kept."
)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LabCommand>,

    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Measure what the kernel's work costs on this host or a virtual machine, for `lotsfree sim
    /// --calibration`
    Calibrate(CalibrateArgs),
    /// Run experiments on kernels and on their models, and write how far apart they are
    Validate(ValidateArgs),
    /// Download Debian's kernels for virtual machines, or list those that are there
    Kernel(KernelArgs),
    /// Undo the changes that a killed lab left on this host
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  lotsfree lab kernel               the kernels that are there\n  \
                  lotsfree lab kernel 6.1 6.12      download Debian's newest 6.1 and 6.12, 60 to 70 MiB each\n\n\
                  Then: lotsfree lab SCENARIO --kernel 6.12\n\n\
                  Kernels are put below ~/.cache/lotsfree/kernels (LOTSFREE_LAB_KERNELS names another directory); nothing is \
                  installed. This is the only command of lotsfree that downloads anything. apt downloads, so what is trusted are \
                  the archives in this machine's /etc/apt and their keys; packages that no such key vouches for are refused, and \
                  so is a package whose SHA256 is not that of the package index.\n\n\
                  Exit code: 0 all are there, 2 wrong usage, no such series, no network or no room, 130 interrupted with Ctrl-C \
                  (143 with SIGTERM).")]
pub(crate) struct KernelArgs {
    /// Series of kernels, such as 6.1 or 6.12; without any, list the kernels that are there
    #[arg(value_name = "SERIES")]
    pub(crate) series: Vec<String>,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree lab restore --list     the changes and how they would be undone\n  \
                  lotsfree lab restore            undo them, except where somebody else has changed the setting since"
)]
pub(crate) struct RestoreArgs {
    /// List the changes and how they would be undone, without undoing them
    #[arg(long, conflicts_with = "yes")]
    pub(crate) list: bool,
    /// Undo the changes in a journal of 0.1.0 without asking; it does not tell whether they are still ours
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree lab calibrate -o host.toml                            this host\n  \
                  lotsfree lab calibrate --on vm --kernel 6.12 -o vm.toml        a virtual machine of 1 GiB\n  \
                  lotsfree lab calibrate --on vm --scenario zone-reclaim -o z.toml\n\n\
                  Then: lotsfree sim SCENARIO --calibration host.toml\n\n\
                  It touches a quarter of available memory and reads a file of its own. Only reclaim and the swap area need root. \
                  What cannot be measured is left out, and the record says why.\n\n\
                  Exit code: 0 measured, 2 wrong usage, or what was asked for cannot be done, 130 interrupted with Ctrl-C \
                  (143 with SIGTERM)."
)]
pub(crate) struct CalibrateArgs {
    /// What is measured
    #[arg(long, value_enum, default_value_t = Measured::Host)]
    pub(crate) on: Measured,

    /// Kernel of the virtual machine: a series such as 6.1, a release, host, or the path of an image or of a
    /// directory with one [default: the scenario's generation, or 6.1]
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Option<String>,

    /// How the virtual machine's instructions are executed [default: kvm if it works, else tcg]
    #[arg(long, value_enum)]
    pub(crate) accel: Option<Accel>,

    /// Scenario whose machine and settings the virtual machine has [default: 1 GiB, 2 CPUs]
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) scenario: Option<String>,

    /// Name of the record [default: kernel, processor and date]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Directory below which files and disk images are made [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Write to a file, as a whole or not at all
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// As JSON, which sim does not read
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measured {
    /// This host
    Host,
    /// A virtual machine
    Vm,
}

#[derive(Debug, Args)]
pub(crate) struct LabRunArgs {
    /// A scenario file, or the name of a scenario that ships
    #[arg(value_name = "SCENARIO", required = true)]
    pub(crate) scenario: Option<String>,

    /// Which kernel: one in a virtual machine as the scenario describes it, that of this host in a control
    /// group of the scenario's size, or that of this host with all of its memory
    #[arg(long, value_enum, default_value_t = On::Vm)]
    pub(crate) on: On,

    /// Kernel of the virtual machine: a series such as 6.1, a release, host, or the path of an image or of a
    /// directory with one [default: the scenario's generation]
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Option<String>,

    /// How the virtual machine's instructions are executed [default: kvm if it works, else tcg]
    #[arg(long, value_enum)]
    pub(crate) accel: Option<Accel>,

    /// Override a key in every variant; keys are those of the file, dotted; repeatable
    ///
    /// Refused where a variant sets the key itself, or is named after it.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,

    /// Run this variant only; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) variant: Vec<String>,

    /// Repeat every run this many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeat: u16,

    /// Directory for the runs [default: lab/runs/DATE-MACHINE/SCENARIO]
    #[arg(long, short, value_name = "DIR", alias = "output")]
    pub(crate) out: Option<PathBuf>,

    /// Directory below which files, swap and disk images are made [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Say what would be changed, without doing it
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Run even on a host that is in use, or with more memory than it can spare
    #[arg(long)]
    pub(crate) yes_really: bool,

    /// Execute the commands of the scenario's `exec` actors; --dry-run shows them
    #[arg(long)]
    pub(crate) allow_exec: bool,

    /// Watch the kernel for what memory costs each actor and who takes it, for `lotsfree blame --run`
    ///
    /// Takes less than 1 % of a CPU. On this host it needs root.
    #[arg(long)]
    pub(crate) blame: bool,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Show how each measure differs from the first run's
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) style: StyleArgs,
}

/// What a scenario is executed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    /// This host, with all of its memory
    Host,
    /// A control group of this host
    Cgroup,
    /// A virtual machine
    Vm,
}

/// How a virtual machine's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accel {
    /// By the processor
    Kvm,
    /// By software emulation
    Tcg,
    /// By software emulation in virtual time; one CPU only
    Icount,
}

impl From<Accel> for Accelerator {
    fn from(accel: Accel) -> Self {
        match accel {
            Accel::Kvm => Accelerator::Kvm,
            Accel::Tcg => Accelerator::Tcg,
            Accel::Icount => Accelerator::Icount,
        }
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, such as vm.swappiness=0 or actor.app.heap='500 MiB'".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree compare runs/quickstart                                 its variants, with the first one\n  \
                  lotsfree compare runs/quickstart/as-it-is runs/quickstart/direct\n  \
                  lotsfree compare runs/before runs/after                          variant by variant\n  \
                  lotsfree compare runs/model runs/kernel --format markdown -o validation.md\n\n\
                  An error is |a - b| / max(|reference|, floor); the floor (64 pages or faults, 256 KiB, 1 us, 10 ms of \
                  time spent, one percentage point, once per second) keeps 3 pages against 5 from being 67 %. What is \
                  below it in one and ten times as much in the other differs in kind. Runs of the same scenario, \
                  variant, sweep value, machine and settings are repeats: a difference within their spread is no error. \
                  Where one kernel is compared with models it is the reference, else whatever is named first.\n\n\
                  Exit code: 0 compared, 2 wrong usage or unusable input."
)]
pub(crate) struct CompareArgs {
    /// Runs, or directories to search for runs; at least two runs in all
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,

    /// Which measures come first
    #[arg(long, value_enum, default_value_t = CompareSort::Worst)]
    pub(crate) sort: CompareSort,

    /// How to write it
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub(crate) format: CompareFormat,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,

    /// List every counter of /proc/vmstat too, what is too small to tell, and the ranges of repeats
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareSort {
    /// Those that differ in kind, then those with the largest errors
    Worst,
    /// Those of one group together
    Group,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// Text for a terminal
    Text,
    /// The documented JSON (docs/schema/compare-1.json)
    Json,
    /// Markdown, for pages and tickets
    Markdown,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lotsfree report runs/quickstart -o quickstart.html         all runs below a directory\n  \
                  lotsfree report runs/quickstart/as-it-is runs/quickstart/direct -o both.html\n  \
                  lotsfree report runs/quickstart --format text              the table that sim printed"
)]
pub(crate) struct ReportArgs {
    /// Runs, or directories that are searched for runs
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,

    /// How to write it
    #[arg(long, value_enum, default_value_t = RunFormat::Html)]
    pub(crate) format: RunFormat,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,

    /// Show how each measure differs from the first run's
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunFormat {
    /// One self-contained page with plots
    Html,
    /// The measures side by side
    Text,
    /// The measures for programs
    Json,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lotsfree_doctor::diagnose;
    use lotsfree_snapshot::source::open;
    use lotsfree_snapshot::{Options, observe};

    use super::*;

    /// What a report tells its reader to run has to be a command of this program.
    #[test]
    fn commands_that_the_doctor_proposes_are_understood() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rules");
        let mut seen = std::collections::BTreeSet::new();
        for directory in std::fs::read_dir(fixtures).expect("the fixtures").flatten() {
            for fixture in std::fs::read_dir(directory.path()).expect("a rule's fixtures").flatten() {
                let observation = observe(open(&fixture.path()).expect("a fixture"), &Options::default());
                let diagnosis = diagnose(&observation);
                let remedies = diagnosis.findings.iter().flat_map(|finding| &finding.remedies);
                seen.extend(
                    remedies
                        .flat_map(|remedy| remedy.runtime.iter().chain(&remedy.verify))
                        .chain(&diagnosis.verdict.collect)
                        .flat_map(|line| line.split("  # ").next().unwrap_or_default().split(" | "))
                        .filter(|c| c.starts_with("lotsfree "))
                        .map(str::to_owned),
                );
            }
        }
        assert!(seen.iter().any(|command| command.contains("size")), "{seen:?}");
        // They were proposed for saved data: the figures of this host are those of another.
        assert!(!seen.iter().any(|command| command.contains("--from-host")), "{seen:?}");
        for command in seen {
            assert!(Cli::try_parse_from(command.split_whitespace()).is_ok(), "{command}");
        }
    }
}
