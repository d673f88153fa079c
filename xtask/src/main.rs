//! Chores of the repository: `cargo xtask COMMAND`.
//!
//! A chore reports on the terminal. If it fails, it ends with one line that says why.
#![allow(clippy::print_stderr, reason = "a chore talks to the person who started it")]

mod accuracy;
mod attack;
mod blame;
mod capture;
mod deny;
mod docs;
mod fuzz;
mod groups;
mod guest;
mod kernel;
mod lab;
mod layers;
mod literals;
mod pictures;
mod real;
mod seam;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  docs                       write the pages that are generated from code
  accuracy PROGRAM [DIR]     print what PROGRAM doctor says of each foreign input, below fixtures/foreign/kept or DIR
  tidy                       look for what rustfmt and clippy do not see
  attack [PROGRAM]           attack lotsfree, or another program of it, in every way that is known
  attack vm SERIES…          kill labs in control groups of version 2, in a virtual machine with such a kernel
  blame [vm SERIES] [WORD…]  provoke cases of known culprits (root), judge what blame says, into docs/blame-cases.md
  capture [--list] [NAME…]   boot kernels in QEMU and keep their /proc and /sys in fixtures/{hosts,marks}/NAME.txt
  kernel SOURCE [OUT]        build a small kernel for the lab from the source of Linux 3.10 or later
  lab [brief|group] SERIES…  run the tests that need virtual machines with the kernels of these series
  fuzz [SECONDS] [TARGET…]   feed hostile input to every reader, each target for so many seconds (default 30)
  fuzz settle [SECONDS] [TARGET…]   until enough executions took no new edge, or for so many seconds each
  fuzz unreached [TARGET…]   list the lines of the readers that no input of the corpora reaches
  pictures RUN|NAME…         draw runs, directories of runs or scenarios into docs/pictures (needs Chromium)
  real [quick] [NAME…]       follow remedies to their end with applications of the distribution (root), into docs/real.md";

fn main() -> ExitCode {
    if let Some(code) = fuzz::become_rustc() {
        return code;
    }
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let done = match command.as_str() {
        "docs" => docs::command(),
        "accuracy" => accuracy::command(&rest),
        "tidy" => tidy::command(),
        "attack" => attack::command(&rest),
        "blame" => blame::command(&rest),
        "capture" => capture::command(&rest),
        "kernel" => kernel::command(&rest),
        "lab" => lab::command(&rest),
        "fuzz" => fuzz::command(&rest),
        "pictures" => pictures::command(&rest),
        "real" => real::command(&rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {command}: {error}");
            ExitCode::FAILURE
        }
    }
}
