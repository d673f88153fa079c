//! Memory control groups of this host.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{LabError, at};
use crate::settings::Settings;

const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// Which control groups hold memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Which there are.
///
/// # Errors
/// If there are none.
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

/// Where this process makes its group.
pub(crate) fn path(version: Version) -> PathBuf {
    let root = match version {
        Version::One => V1,
        Version::Two => V2,
    };
    Path::new(root).join(format!("lotsfree-lab-{}", std::process::id()))
}

/// Makes a group that accounts memory.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn make(version: Version, path: &Path, settings: &mut Settings) -> Result<(), LabError> {
    if version == Version::Two {
        let control = Path::new(V2).join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&control).map_err(at(&control))?;
        if !enabled.split_ascii_whitespace().any(|word| word == "memory") {
            fs::write(&control, "+memory").map_err(at(&control))?;
        }
    }
    settings.group(path)
}
