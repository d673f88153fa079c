//! Completions and man pages, from the parser's own definition.

use std::io;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs, ManArgs};

/// Prints a shell's completions.
pub(crate) fn completions(arguments: &CompletionsArgs) -> anyhow::Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "lotsfree", &mut text);
    io::Write::write_all(&mut io::stdout().lock(), &text)?;
    Ok(0)
}

/// Writes `lotsfree.1` and one page per command.
pub(crate) fn man(arguments: &ManArgs) -> anyhow::Result<u8> {
    clap_mangen::generate_to(Cli::command(), &arguments.directory)
        .with_context(|| format!("cannot write man pages to {}", arguments.directory.display()))?;
    Ok(0)
}
