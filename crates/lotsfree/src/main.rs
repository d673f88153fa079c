//! `lotsfree`: why is the host slow although memory is free?

mod blame;
mod cli;
mod compare;
mod doctor;
mod explain;
mod lab;
mod output;
mod places;
mod progress;
mod report;
mod runs;
mod scenarios;
mod shell;
mod signals;
mod sim;
mod size;
mod snapshot;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

/// Exit code for wrong usage and unusable input, as documented; clap uses the same one for wrong usage.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(output::usage(&error)),
    };
    let done = match cli.command {
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Blame(arguments) => blame::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
        Command::Size(arguments) => size::run(arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Agent(arguments) => lab::agent(&arguments),
        Command::Guard => blame::accounting::guard(),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Completions(arguments) => shell::completions(&arguments),
        Command::Man(arguments) => shell::man(&arguments),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        // A reader that closes the pipe early (`| head`) is not an error.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::from(error.downcast_ref().map_or(UNUSABLE, |&output::Interrupted { code }| code))
        }
    }
}
