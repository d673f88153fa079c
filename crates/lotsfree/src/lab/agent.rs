//! `lotsfree agent`, which `lotsfree lab` starts.

use crate::cli::AgentArgs;

/// Executes one process of a case, or a whole case as the first program of a virtual machine; or reclaims
/// memory, for a calibration that measures it.
pub(crate) fn run(arguments: &AgentArgs) -> anyhow::Result<u8> {
    if arguments.init {
        lotsfree_lab::guest::init();
    }
    match arguments.reclaim {
        true => lotsfree_lab::calibrate::helper()?,
        false => lotsfree_lab::agent::run()?,
    }
    Ok(0)
}
