//! `lotsfree agent`, which `lotsfree lab` starts.

use crate::cli::AgentArgs;

/// Executes one process of a case, or a whole case as the first program of a virtual machine.
pub(crate) fn run(arguments: &AgentArgs) -> anyhow::Result<u8> {
    if arguments.init {
        lotsfree_lab::guest::init();
    }
    lotsfree_lab::agent::run()?;
    Ok(0)
}
