//! Memory control groups of this host.

use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_changes::Changes;
use lotsfree_kernel_files::file::cgroup::Limit;
use lotsfree_scenario::MachineSpec;
use lotsfree_settings::{self as settings, Value};
use lotsfree_units::Bytes;

use crate::error::LabError;

const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";
/// The file of a version 2 group that lists the controllers of its children.
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Settings of the host's zones and nodes. Reclaim for a group's limit begins when a charge fails
/// (`mm/memcontrol.c:try_charge_memcg`) and looks at no watermark.
const OF_ZONES: [&str; 11] = [
    settings::MIN_FREE_KBYTES,
    settings::EXTRA_FREE_KBYTES,
    settings::WATERMARK_SCALE_FACTOR,
    settings::WATERMARK_BOOST_FACTOR,
    settings::LOWMEM_RESERVE_RATIO,
    settings::ZONE_RECLAIM_MODE,
    settings::MIN_UNMAPPED_RATIO,
    settings::MIN_SLAB_RATIO,
    settings::NUMA_ZONELIST_ORDER,
    settings::COMPACTION_PROACTIVENESS,
    settings::PERCPU_PAGELIST_HIGH_FRACTION,
];
/// Shares of what the whole host may have dirty. Only version 2 divides it among groups
/// (`mm/page-writeback.c:domain_dirty_limits`).
const DIRTY_SHARES: [&str; 2] = [settings::DIRTY_RATIO, settings::DIRTY_BACKGROUND_RATIO];
/// The same in bytes. Version 2 turns them into shares of the host's memory, and gives a group that share of
/// its own: with 32 MiB on a host of 1.3 GiB, a group of 192 MiB had 3 to 5 MiB dirty (6.1).
const DIRTY_BYTES: [&str; 2] = [settings::DIRTY_BYTES, settings::DIRTY_BACKGROUND_BYTES];
/// Parts of the host's commit limit (`mm/util.c:vm_commit_limit`).
const OF_COMMIT: [&str; 4] = [
    settings::OVERCOMMIT_RATIO,
    settings::OVERCOMMIT_KBYTES,
    settings::ADMIN_RESERVE_KBYTES,
    settings::USER_RESERVE_KBYTES,
];

/// Pools of huge pages, which the host's memory feeds and no group's limit counts.
const OF_POOLS: [&str; 2] = [settings::NR_HUGEPAGES, settings::NR_OVERCOMMIT_HUGEPAGES];

/// How a setting acts on a group of the scenario's size, if that is not as it acts on a machine of that size:
/// a sentence that goes on after the setting's name.
pub(crate) fn acts_otherwise(setting: &str, value: &Value, version: Version) -> Option<&'static str> {
    // Mode 1 refuses nothing, whatever there is.
    let refuses = setting == settings::OVERCOMMIT_MEMORY && *value != Value::Number(1);
    if OF_ZONES.contains(&setting) {
        Some(
            "has no effect on the group: it is about the zones of the host, and reclaim for a group's limit does not \
             look at them",
        )
    } else if version == Version::One && DIRTY_SHARES.contains(&setting) {
        Some(
            "has no effect on the group: it is a share of the host's memory, and control groups of version 1 have no \
             dirty limit of their own",
        )
    } else if version == Version::Two && DIRTY_BYTES.contains(&setting) {
        Some(
            "acts on the group in proportion: control groups of version 2 may have as large a share of their memory \
             dirty as this is of the host's",
        )
    } else if OF_COMMIT.contains(&setting) || refuses {
        Some("goes by the memory of the host, not of the group, which has no commit limit of its own")
    } else if OF_POOLS.contains(&setting) {
        Some("takes memory from the host, not from the group, whose limit does not count the pool")
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

/// Why a group of the size of a scenario's machine cannot be made in `parent`; empty if it can. On a host's
/// own root of control groups nothing stands in the way; in a container that root is a group itself.
pub(crate) fn obstacles(version: Version, parent: &Path, machine: &MachineSpec) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(parent.join(file)).ok();
    let (memory, swap) = (machine.memory(), machine.swap.size.0);
    let needed: &[(&str, Bytes)] = match version {
        Version::One => &[("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory + swap)],
        Version::Two => &[("memory.max", memory), ("memory.high", memory), ("memory.swap.max", swap)],
    };
    let mut obstacles: Vec<String> = (needed.iter())
        .filter_map(|(file, needed)| {
            let limit = Limit::from_text(read(file)?.as_bytes())?.bytes().filter(|limit| limit < needed)?;
            let path = parent.join(file);
            Some(format!("{} is {limit}, and the scenario's machine needs {needed}", path.display()))
        })
        .collect();
    let has = |file: &str, word: &str| {
        read(file).is_some_and(|text| text.split_ascii_whitespace().any(|found| found == word))
    };
    // Only a group has a type, the host's root has none (`kernel/cgroup/cgroup.c:cgroup_base_files`). With
    // processes in it, it may not pass controllers on (`cgroup_vet_subtree_control_enable`).
    let processes = read("cgroup.procs").is_some_and(|ids| !ids.trim().is_empty());
    if version == Version::Two
        && !has(SUBTREE_CONTROL, "memory")
        && read("cgroup.type").is_some()
        && processes
    {
        obstacles.push(format!(
            "{} is the control group of a container and has processes in it, so the kernel lets no group in it have the \
             memory controller; run the lab outside of the container, or with --on vm",
            parent.display()
        ));
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> Value {
        Value::Number(number)
    }

    #[test]
    fn settings_of_the_hosts_zones_cannot_act_on_a_group_and_swappiness_can() {
        for version in [Version::One, Version::Two] {
            assert!(acts_otherwise(settings::WATERMARK_SCALE_FACTOR, &number(20), version).is_some());
            assert!(acts_otherwise(settings::MIN_FREE_KBYTES, &number(65_536), version).is_some());
            assert!(acts_otherwise(settings::NR_HUGEPAGES, &number(64), version).is_some());
            for acts in [settings::SWAPPINESS, settings::PAGE_CLUSTER, settings::VFS_CACHE_PRESSURE] {
                assert_eq!(acts_otherwise(acts, &number(10), version), None, "{acts}");
            }
        }
    }

    #[test]
    fn a_dirty_limit_acts_on_a_group_of_version_1_in_bytes_and_on_one_of_version_2_as_a_share() {
        let acts = |setting, version| acts_otherwise(setting, &number(20), version);
        for share in [settings::DIRTY_RATIO, settings::DIRTY_BACKGROUND_RATIO] {
            assert!(acts(share, Version::One).is_some_and(|why| why.starts_with("has no effect")), "{share}");
            assert_eq!(acts(share, Version::Two), None, "{share}");
        }
        for bytes in [settings::DIRTY_BYTES, settings::DIRTY_BACKGROUND_BYTES] {
            assert_eq!(acts(bytes, Version::One), None, "{bytes}");
            assert!(acts(bytes, Version::Two).is_some_and(|why| why.contains("in proportion")), "{bytes}");
        }
    }

    #[test]
    fn a_group_has_no_commit_limit_but_may_overcommit() {
        let mode = |mode| acts_otherwise(settings::OVERCOMMIT_MEMORY, &number(mode), Version::Two);
        assert!(mode(0).is_some() && mode(2).is_some());
        assert_eq!(mode(1), None);
    }

    fn machine() -> MachineSpec {
        let text = "title = \"x\"\nseed = 1\nduration = \"1 s\"\n[machine]\ngeneration = \"linux-6.12\"\n\
                    cpus = 1\nnodes = [\"64 MiB\"]\nswap = { size = \"16 MiB\", on = \"disk\" }\n[[actor]]\nname = \"a\"\n\
                    kind = \"file-writer\"\nsize = \"1 MiB\"\nrate = \"1 MiB/s\"\n";
        let scenario = lotsfree_scenario::Scenario::parse(text, "x.toml").unwrap();
        scenario.cases(None).unwrap().remove(0).machine
    }

    #[test]
    fn in_a_container_with_processes_in_its_root_the_lab_says_that_it_can_make_no_group() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        let obstacles = || obstacles(Version::Two, root.path(), &machine());
        // The root of a host has processes too.
        put(SUBTREE_CONTROL, "\n");
        put("cgroup.procs", "1\n");
        assert!(obstacles().is_empty(), "{:?}", obstacles());
        put("cgroup.type", "domain\n");
        assert!(obstacles().concat().contains("--on vm"), "{:?}", obstacles());
        // systemd moved them into a group of their own, or switched the controller on.
        put("cgroup.procs", "");
        assert!(obstacles().is_empty(), "{:?}", obstacles());
        put("cgroup.procs", "1\n");
        put(SUBTREE_CONTROL, "cpu memory\n");
        assert!(obstacles().is_empty(), "{:?}", obstacles());
    }

    #[test]
    fn a_container_that_is_smaller_than_the_scenarios_machine_is_named() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        let obstacles = |version| obstacles(version, root.path(), &machine());
        put("memory.limit_in_bytes", "9223372036854771712\n");
        put("memory.max", "67108864\n");
        put("memory.high", "max\n");
        put("memory.swap.max", "16777216\n");
        assert!(obstacles(Version::One).is_empty() && obstacles(Version::Two).is_empty());
        put("memory.max", "33554432\n");
        put("memory.swap.max", "0\n");
        let said = obstacles(Version::Two);
        let [memory, swap] = &said[..] else { panic!("{said:?}") };
        assert!(
            memory.ends_with("memory.max is 32 MiB, and the scenario's machine needs 64 MiB"),
            "{memory}"
        );
        assert!(swap.ends_with("memory.swap.max is 0 B, and the scenario's machine needs 16 MiB"), "{swap}");
        put("memory.memsw.limit_in_bytes", "67108864\n");
        assert_eq!(obstacles(Version::One).len(), 1);
    }
}
