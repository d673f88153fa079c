//! Completions and man pages, from the parser's own definition.

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;
use lotsfree_storage::Access;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::output;

/// Prints a shell's completions.
pub(crate) fn completions(arguments: &CompletionsArgs) -> anyhow::Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "lotsfree", &mut text);
    output::print_bytes(&text)?;
    Ok(0)
}

/// Writes `lotsfree.1` and one page per command.
pub(crate) fn man(arguments: &ManArgs) -> anyhow::Result<u8> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        let man = Man::new(command);
        let mut page = Vec::new();
        man.render(&mut page).context("cannot render a man page")?;
        output::save(&arguments.directory.join(man.get_filename()), Access::Umask, &page)?;
    }
    Ok(0)
}
