//! Memory control groups of this host.

use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_changes::Changes;
use lotsfree_settings as settings;

use crate::error::LabError;

const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";
/// The file of a version 2 group that lists the controllers of its children.
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Settings of the host's zones and nodes. Reclaim for a group's limit begins when a charge fails
/// (`mm/memcontrol.c:try_charge_memcg`) and looks at no watermark.
const OF_ZONES: [&str; 9] = [
    settings::MIN_FREE_KBYTES,
    settings::EXTRA_FREE_KBYTES,
    settings::WATERMARK_SCALE_FACTOR,
    settings::WATERMARK_BOOST_FACTOR,
    settings::LOWMEM_RESERVE_RATIO,
    settings::ZONE_RECLAIM_MODE,
    settings::MIN_UNMAPPED_RATIO,
    settings::MIN_SLAB_RATIO,
    settings::NUMA_ZONELIST_ORDER,
];
/// Shares of what the whole host may have dirty. Only version 2 divides it among groups
/// (`mm/page-writeback.c:domain_dirty_limits`).
const DIRTY_SHARES: [&str; 2] = [settings::DIRTY_RATIO, settings::DIRTY_BACKGROUND_RATIO];
/// Parts of the host's commit limit (`mm/util.c:vm_commit_limit`).
const OF_COMMIT: [&str; 4] = [
    settings::OVERCOMMIT_RATIO,
    settings::OVERCOMMIT_KBYTES,
    settings::ADMIN_RESERVE_KBYTES,
    settings::USER_RESERVE_KBYTES,
];

/// Why a setting cannot act on a group of the scenario's size as it acts on a machine of that size; `None` if
/// it can.
pub(crate) fn cannot_act(setting: &str, version: Version) -> Option<&'static str> {
    if OF_ZONES.contains(&setting) {
        Some("it is about the zones of the host, and reclaim for a group's limit does not look at them")
    } else if version == Version::One && DIRTY_SHARES.contains(&setting) {
        Some(
            "it is a share of the host's memory, and control groups of version 1 have no dirty limit of their own",
        )
    } else if OF_COMMIT.contains(&setting) {
        Some("it is about the commit limit of the host, and a group has none")
    } else {
        None
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_hosts_zones_cannot_act_on_a_group_and_swappiness_can() {
        for version in [Version::One, Version::Two] {
            assert!(cannot_act(settings::WATERMARK_SCALE_FACTOR, version).is_some());
            assert!(cannot_act(settings::MIN_FREE_KBYTES, version).is_some());
            for acts in [
                settings::SWAPPINESS,
                settings::PAGE_CLUSTER,
                settings::DIRTY_BYTES,
                settings::VFS_CACHE_PRESSURE,
            ] {
                assert_eq!(cannot_act(acts, version), None, "{acts}");
            }
        }
        assert!(cannot_act(settings::DIRTY_RATIO, Version::One).is_some());
        assert_eq!(cannot_act(settings::DIRTY_RATIO, Version::Two), None);
    }
}
