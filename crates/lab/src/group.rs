//! Memory control groups of this host.

use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_changes::Changes;

use crate::error::LabError;

const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";
/// The file of a version 2 group that lists the controllers of its children.
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// The version of the control groups that account memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// The version that this host uses for memory.
///
/// # Errors
/// If no control groups of this host account memory.
pub(crate) fn version() -> Result<Version, LabError> {
    let has = |root: &str, file: &str| Path::new(root).join(file).exists();
    let two = || {
        let controllers = fs::read_to_string(Path::new(V2).join("cgroup.controllers")).unwrap_or_default();
        controllers.split_ascii_whitespace().any(|word| word == "memory")
    };
    if has(V1, "memory.limit_in_bytes") {
        Ok(Version::One)
    } else if two() {
        Ok(Version::Two)
    } else {
        let why = format!("no memory control groups: neither {V1} nor the memory controller in {V2}");
        Err(LabError::Refused(why))
    }
}

/// The group in which the lab makes its own groups.
pub(crate) fn parent(version: Version) -> &'static Path {
    Path::new(match version {
        Version::One => V1,
        Version::Two => V2,
    })
}

/// Makes a group that accounts memory, and returns its directory.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn make(version: Version, changes: &mut Changes) -> Result<PathBuf, LabError> {
    if version == Version::Two {
        changes.controller(&parent(version).join(SUBTREE_CONTROL), "memory")?;
    }
    Ok(changes.group(parent(version), "lab")?)
}

/// The file in which the memory controller must be switched on before a group is made; `None` if that is not
/// needed.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn lacks_controller(version: Version) -> Result<Option<PathBuf>, LabError> {
    let control = parent(version).join(SUBTREE_CONTROL);
    if version == Version::One {
        return Ok(None);
    }
    let enabled = fs::read_to_string(&control).map_err(crate::error::at(&control))?;
    Ok((!enabled.split_ascii_whitespace().any(|word| word == "memory")).then_some(control))
}
