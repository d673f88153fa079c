//! [`Change`]: one change of a host, with everything needed to undo it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::value::chosen;

/// One change of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Change {
    /// A setting was written.
    Set(Set),
    /// A directory was made; it is removed with everything in it.
    Directory {
        /// Its path.
        path: PathBuf,
    },
    /// A file was made and swapped to.
    Swap {
        /// The file.
        path: PathBuf,
    },
    /// A control group was made; processes in it are killed before it is removed.
    Group {
        /// Its directory.
        path: PathBuf,
    },
    /// A controller was switched on for the children of a control group of version 2.
    Controller {
        /// The group's `cgroup.subtree_control`.
        path: PathBuf,
        /// The controller, such as `memory`.
        name: String,
    },
}

/// A setting that was written, with the settings that the kernel changes along with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The file.
    pub path: PathBuf,
    /// The value that was written to the file.
    pub value: String,
    /// The setting itself and those coupled with it, as they were. Writing one of a pair such as
    /// `vm.dirty_ratio` and `vm.dirty_bytes` clears the other, so both are one unit.
    pub unit: Vec<Key>,
    /// Whether others of lotsfree's write it from now on ([`Changes::lend`](crate::Changes::lend)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lent: bool,
}

/// A setting as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The file.
    pub path: PathBuf,
    /// The text that the kernel printed, to the byte.
    pub old: String,
}

/// The setting that the kernel clears when this one is written (`mm/page-writeback.c:dirty_bytes_handler`,
/// `mm/util.c:overcommit_kbytes_handler`), if there is one.
pub(crate) fn partner(path: &Path) -> Option<PathBuf> {
    let below = |name: &str| name.replace('.', "/");
    lotsfree_settings::ALL.iter().find_map(|setting| {
        let twin = setting.twin?;
        let root = path.to_str()?.strip_suffix(&below(setting.name))?;
        root.ends_with('/').then(|| Path::new(root).join(below(twin)))
    })
}

impl Set {
    /// The settings of the unit, in an order that does not depend on which of them was written.
    pub(crate) fn paths(&self) -> Vec<&Path> {
        let mut paths: Vec<&Path> = self.unit.iter().map(|key| key.path.as_path()).collect();
        paths.sort_unstable();
        paths
    }

    /// The setting that puts the unit back as it was when it is written: of a pair, the one that was in
    /// force.
    pub(crate) fn in_force(&self) -> Option<&Key> {
        let own = self.unit.iter().find(|key| key.path == self.path);
        let in_force = self.unit.iter().find(|key| chosen(&key.old) != "0");
        if self.unit.len() > 1 { in_force.or(own) } else { own }
    }
}

impl Change {
    /// The file or directory that was changed.
    pub fn path(&self) -> &Path {
        match self {
            Change::Set(Set { path, .. })
            | Change::Directory { path }
            | Change::Swap { path }
            | Change::Group { path }
            | Change::Controller { path, .. } => path,
        }
    }
}

/// Says how the change is undone.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().display();
        match self {
            Change::Set(set) => match set.in_force() {
                Some(key) => write!(f, "{} back to {}", key.path.display(), chosen(&key.old)),
                None => write!(f, "{path}: nothing to put back"),
            },
            Change::Directory { .. } => write!(f, "directory {path} removed"),
            Change::Swap { .. } => write!(f, "swap file {path} off and removed"),
            Change::Group { .. } => write!(f, "control group {path} removed"),
            Change::Controller { name, .. } => write!(f, "controller {name} off in {path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_clear_each_other_are_partners() {
        let of = |path: &str| partner(Path::new(path)).map(|path| path.display().to_string());
        assert_eq!(of("/proc/sys/vm/dirty_ratio").unwrap(), "/proc/sys/vm/dirty_bytes");
        assert_eq!(of("/proc/sys/vm/overcommit_kbytes").unwrap(), "/proc/sys/vm/overcommit_ratio");
        assert_eq!(of("/proc/sys/vm/swappiness"), None);
        assert_eq!(of("/proc/sys/xvm/dirty_ratio"), None);
    }

    #[test]
    fn of_a_pair_the_one_in_force_is_put_back() {
        let key = |path: &str, old: &str| Key { path: path.into(), old: old.to_owned() };
        let unit = vec![key("a_bytes", "0\n"), key("a_ratio", "20\n")];
        let set = Set { path: "a_bytes".into(), value: "1048576".to_owned(), unit, lent: false };
        assert_eq!(set.in_force().unwrap().path, Path::new("a_ratio"));
        let single =
            Set { path: "b".into(), value: "1".to_owned(), unit: vec![key("b", "0\n")], lent: false };
        assert_eq!(single.in_force().unwrap().old, "0\n");
    }
}
