//! [`Territory`]: the files that a change in a journal may touch.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use crate::change::Change;

/// The beginning of the names of all directories and groups that lotsfree makes for itself.
pub const PREFIX: &str = "lotsfree-";

/// The files that may be changed, whatever a journal says: settings below some directories, and directories
/// and groups whose names begin with [`PREFIX`], with the files in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Territory {
    settings: Vec<PathBuf>,
    groups: PathBuf,
}

impl Territory {
    /// `/proc/sys`, `/sys` and the control groups of this host.
    pub fn host() -> Self {
        Territory { settings: vec!["/proc/sys".into(), "/sys".into()], groups: "/sys/fs/cgroup".into() }
    }

    /// Uses a directory in place of the kernel's, for tests.
    pub fn below(root: &Path) -> Self {
        Territory { settings: vec![root.to_path_buf()], groups: root.join("cgroup") }
    }

    /// Checks that a change lies within the territory.
    ///
    /// # Errors
    /// Says in words what lies outside.
    pub(crate) fn allows(&self, change: &Change) -> Result<(), String> {
        match change {
            Change::Set(set) => {
                if set.unit.is_empty() || set.unit.iter().all(|key| key.path != set.path) {
                    return Err(format!("{}: no value from before the change", set.path.display()));
                }
                set.unit.iter().try_for_each(|key| self.is_setting(&key.path))
            }
            Change::Controller { path, name } => {
                plain(path)?;
                let known = path.starts_with(&self.groups)
                    && path.file_name().is_some_and(|name| name == "cgroup.subtree_control")
                    && name.chars().all(|c| c.is_ascii_lowercase());
                known.then_some(()).ok_or_else(|| format!("{}: not a control group's", path.display()))?;
                no_links(path)
            }
            Change::Group { path } => {
                let below = path.starts_with(&self.groups);
                below.then_some(()).ok_or_else(|| format!("{}: not a control group", path.display()))?;
                own_name(path)?;
                no_links(path)
            }
            Change::Directory { path } => own_name(path).and_then(|()| unexchangeable(path)),
            Change::Swap { path } => {
                let directory = path.parent().ok_or_else(|| format!("{}: no path", path.display()))?;
                own_name(directory)?;
                plain(path).and_then(|()| unexchangeable(directory))
            }
        }
    }

    fn is_setting(&self, path: &Path) -> Result<(), String> {
        plain(path)?;
        let setting = self.settings.iter().any(|root| path.starts_with(root) && path != root);
        if !setting || path.starts_with(&self.groups) {
            return Err(format!("{}: not a setting of the kernel", path.display()));
        }
        no_links(path)
    }
}

/// Refuses a path that is relative or goes up.
fn plain(path: &Path) -> Result<(), String> {
    let plain = path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    plain.then_some(()).ok_or_else(|| format!("{}: not an absolute path without `..`", path.display()))
}

/// Refuses a path whose last name is not one that lotsfree gives.
fn own_name(path: &Path) -> Result<(), String> {
    plain(path)?;
    let own = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
    own.then_some(()).ok_or_else(|| format!("{}: the name does not begin with {PREFIX}", path.display()))
}

/// Refuses a path of which any component is a symbolic link. Components that do not exist are no links.
fn no_links(path: &Path) -> Result<(), String> {
    let link = path.ancestors().find(|part| fs::symlink_metadata(part).is_ok_and(|data| data.is_symlink()));
    match link {
        Some(link) => Err(format!("{}: {} is a symbolic link", path.display(), link.display())),
        None => Ok(()),
    }
}

/// Refuses a directory that somebody else made or could have put there. A directory that no longer exists is
/// accepted.
fn unexchangeable(directory: &Path) -> Result<(), String> {
    let place = directory.display();
    let metadata = match fs::symlink_metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{place}: {error}")),
    };
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() {
        return Err(format!("{place}: not a directory"));
    }
    if metadata.uid() != own {
        return Err(format!("{place}: belongs to user {}, not to user {own}", metadata.uid()));
    }
    no_links(directory)?;
    let parent = directory.parent().unwrap_or(Path::new("/"));
    match lotsfree_storage::is_exchangeable(parent) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(why),
        Err(error) => Err(format!("{}: {error}", parent.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Key, Set};
    use std::os::unix::fs::symlink;

    fn set(path: &str) -> Change {
        let unit = vec![Key { path: path.into(), old: "1\n".to_owned() }];
        Change::Set(Set { path: path.into(), value: "2".to_owned(), unit, lent: false })
    }

    #[test]
    fn a_journal_leads_to_settings_and_to_our_own_names_only() {
        let host = Territory::host();
        host.allows(&set("/proc/sys/vm/swappiness")).unwrap();
        host.allows(&set("/sys/kernel/mm/lru_gen/enabled")).unwrap();
        for path in [
            "/etc/passwd",
            "/proc/sys/../../etc/passwd",
            "/proc/sysrq-trigger",
            "proc/sys/vm/swappiness",
            "/proc/sys",
            "/sys/fs/cgroup/memory/other/memory.limit_in_bytes",
        ] {
            assert!(host.allows(&set(path)).is_err(), "{path}");
        }
        let own = tempfile::tempdir().unwrap();
        let root = own.path().canonicalize().unwrap();
        let directory = |path: PathBuf| Change::Directory { path };
        host.allows(&directory(root.join("lotsfree-lab-1"))).unwrap();
        assert!(host.allows(&directory(root.join("home"))).is_err());
        assert!(host.allows(&directory(root.join("lotsfree-lab-1/../home"))).is_err());
        assert!(host.allows(&Change::Swap { path: root.join("swapfile") }).is_err());
        assert!(host.allows(&Change::Group { path: "/sys/fs/cgroup/memory/system.slice".into() }).is_err());
        assert!(host.allows(&Change::Group { path: root.join("lotsfree-lab-1") }).is_err());
    }

    #[test]
    fn links_lead_nowhere() {
        let own = tempfile::tempdir().unwrap();
        let root = own.path().canonicalize().unwrap();
        fs::write(root.join("victim"), "1").unwrap();
        symlink(root.join("victim"), root.join("setting")).unwrap();
        let territory = Territory::below(&root);
        let why = territory.allows(&set(root.join("setting").to_str().unwrap())).unwrap_err();
        assert!(why.contains("symbolic link"), "{why}");
        fs::create_dir(root.join("home")).unwrap();
        symlink(root.join("home"), root.join("lotsfree-lab-1")).unwrap();
        assert!(territory.allows(&Change::Directory { path: root.join("lotsfree-lab-1") }).is_err());
    }
}
