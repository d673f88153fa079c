//! Tests of changes that are made, killed and undone on a host that consists of files.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::state::StateDirectory;

/// A host that consists of files: settings, control groups and a state directory below one root.
struct Host {
    root: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Host { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(host.at("cgroup")).unwrap();
        fs::create_dir_all(host.at("vm")).unwrap();
        host.put("vm/swappiness", "60\n");
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    fn put(&self, name: &str, value: &str) {
        fs::write(self.at(name), value).unwrap();
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap().trim().to_owned()
    }

    fn state(&self) -> StateDirectory {
        StateDirectory::at(&self.at("state"), Territory::below(&self.at("")))
    }

    fn changes(&self) -> Changes {
        self.state().host(&mut |outcome| panic!("{outcome}")).unwrap()
    }

    fn restore(&self) -> Vec<String> {
        let mut told = Vec::new();
        self.state().restore(&mut |outcome| told.push(outcome.to_string())).unwrap();
        told
    }

    fn journal(&self) -> String {
        self.get("state/host.journal")
    }
}

/// Leaves changes as a kill does: the journal stays, and the lock is released.
fn kill(mut changes: Changes) {
    changes.entries.clear();
    changes.journal = None;
}

#[test]
fn what_was_changed_is_undone_when_dropped() {
    let host = Host::new();
    let mut changes = host.changes();
    changes.set(&host.at("vm/swappiness"), "0").unwrap();
    changes.set(&host.at("vm/swappiness"), "100").unwrap();
    let made = changes.directory(&host.at(""), "lab").unwrap();
    fs::write(made.join("file"), "x").unwrap();
    let group = changes.group(&host.at("cgroup"), "lab").unwrap();
    assert!(made.is_dir() && group.is_dir());
    assert_eq!(host.get("vm/swappiness"), "100");
    drop(changes);
    assert_eq!(host.get("vm/swappiness"), "60");
    assert!(!made.exists() && !group.exists());
    assert_eq!(host.journal(), "");
}

#[test]
fn later_changes_are_undone_without_the_earlier_ones() {
    let host = Host::new();
    let mut changes = host.changes();
    let directory = changes.directory(&host.at(""), "lab").unwrap();
    let before = changes.count();
    for value in ["10", "20"] {
        changes.set(&host.at("vm/swappiness"), value).unwrap();
        let mut told = Vec::new();
        changes.undo_to(before, &mut |outcome| told.push(outcome.to_string())).unwrap();
        assert_eq!((host.get("vm/swappiness").as_str(), told.len()), ("60", 1), "{told:?}");
        assert!(directory.is_dir());
    }
    // The next process still finds what is left.
    kill(changes);
    assert_eq!(host.restore().len(), 1);
    assert!(!directory.exists());
}

#[test]
fn what_a_killed_process_left_is_undone_by_the_next() {
    let host = Host::new();
    let mut changes = host.changes();
    let made = changes.directory(&host.at(""), "lab").unwrap();
    changes.set(&host.at("vm/swappiness"), "0").unwrap();
    kill(changes);
    assert_eq!(host.get("vm/swappiness"), "0");
    let mut told = Vec::new();
    drop(host.state().host(&mut |outcome| told.push(outcome.to_string())).unwrap());
    let (setting, made_at) = (host.at("vm/swappiness"), made.display());
    assert_eq!(
        told,
        [format!("undone: {} back to 60", setting.display()), format!("undone: directory {made_at} removed")]
    );
    assert_eq!(host.get("vm/swappiness"), "60");
    assert!(!made.exists() && host.restore().is_empty());
}

#[test]
fn what_an_administrator_set_in_between_survives() {
    for killed in [false, true] {
        let host = Host::new();
        let mut changes = host.changes();
        changes.set(&host.at("vm/swappiness"), "0").unwrap();
        changes.set(&host.at("vm/swappiness"), "100").unwrap();
        host.put("vm/swappiness", "33\n");
        let told = if killed {
            kill(changes);
            host.restore()
        } else {
            let mut told = Vec::new();
            changes.undo(&mut |outcome| told.push(outcome.to_string())).unwrap();
            told
        };
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("left as it is: ") && told[0].contains("is 33"), "{told:?}");
        assert!(told[0].ends_with("set to 100; before that it was 60"), "{told:?}");
        assert_eq!(host.get("vm/swappiness"), "33");
        assert_eq!(host.journal(), "");
        // A value that we set before the last one is also left if somebody else sets it again.
        let mut changes = host.changes();
        changes.set(&host.at("vm/swappiness"), "0").unwrap();
        changes.set(&host.at("vm/swappiness"), "100").unwrap();
        host.put("vm/swappiness", "0\n");
        drop(changes);
        assert_eq!(host.get("vm/swappiness"), "0");
    }
}

#[test]
fn a_change_that_was_noted_and_perhaps_not_made_is_undone_if_it_was() {
    for (live, after) in [("60\n", "60"), ("0\n", "60"), ("100\n", "60"), ("33\n", "33")] {
        let host = Host::new();
        let mut changes = host.changes();
        changes.set(&host.at("vm/swappiness"), "0").unwrap();
        let key = Key { path: host.at("vm/swappiness"), old: "0\n".to_owned() };
        let set = Set { path: key.path.clone(), value: "100".to_owned(), unit: vec![key], lent: false };
        changes.note(Change::Set(set)).unwrap();
        kill(changes);
        host.put("vm/swappiness", live);
        host.restore();
        assert_eq!(host.get("vm/swappiness"), after, "{live}");
    }
}

#[test]
fn a_reboot_undoes_settings_and_nothing_else() {
    let host = Host::new();
    let mut changes = host.changes();
    changes.boot = "another boot".to_owned();
    let made = changes.directory(&host.at(""), "lab").unwrap();
    changes.set(&host.at("vm/swappiness"), "0").unwrap();
    kill(changes);
    let told = host.restore();
    assert!(told[0].starts_with("ended with the last boot: "), "{told:?}");
    assert_eq!(host.get("vm/swappiness"), "0");
    assert!(!made.exists());
}

#[test]
fn what_somebody_else_made_is_not_undone() {
    let host = Host::new();
    let mut changes = host.changes();
    let made = changes.directory(&host.at(""), "lab").unwrap();
    fs::write(made.join("swap"), "somebody's").unwrap();
    assert!(changes.swap(&made.join("swap"), 1 << 20).is_err());
    assert!(!host.journal().is_empty());
    let group = host.at("cgroup/lotsfree-lab-theirs");
    fs::create_dir(&group).unwrap();
    let done = changes.make(Change::Group { path: group.clone() }, || {
        lotsfree_storage::create_dir(&group).map_err(at(&group))
    });
    assert!(done.is_err());
    assert_eq!(fs::read_to_string(made.join("swap")).unwrap(), "somebody's");
    drop(changes);
    assert!(group.exists() && !made.exists());
}

#[test]
fn a_swap_file_that_the_kernel_refuses_is_removed() {
    let host = Host::new();
    let mut changes = host.changes();
    let made = changes.directory(&host.at(""), "lab").unwrap();
    // 4096 bytes are too short for a swap area.
    assert!(changes.swap(&made.join("swap"), 4096).is_err());
    drop(changes);
    assert!(!made.exists());
    assert_eq!(host.journal(), "");
}

#[test]
fn what_cannot_be_undone_stays_in_the_journal() {
    let host = Host::new();
    let mut changes = host.changes();
    changes.set(&host.at("vm/swappiness"), "0").unwrap();
    fs::remove_file(host.at("vm/swappiness")).unwrap();
    assert!(changes.undo(&mut |_| ()).is_err());
    assert!(host.journal().contains("60"));
    host.put("vm/swappiness", "0\n");
    assert_eq!(host.restore().len(), 1);
    assert_eq!(host.get("vm/swappiness"), "60");
}

#[test]
fn two_at_a_time_are_refused() {
    let host = Host::new();
    let changes = host.changes();
    let error = host.state().host(&mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("another `lotsfree lab` is changing this host"), "{error}");
    assert!(host.state().restore(&mut |_| ()).is_err());
    drop(changes);
    drop(host.changes());
}

#[test]
fn directories_of_processes_that_are_gone_are_removed_and_those_of_others_stay() {
    let host = Host::new();
    let (mut killed, mut alive) = (host.state().process().unwrap(), host.state().process().unwrap());
    let left = killed.directory(&host.at(""), "vm").unwrap();
    let used = alive.directory(&host.at(""), "vm").unwrap();
    kill(killed);
    assert_eq!(host.restore(), [format!("undone: directory {} removed", left.display())]);
    assert!(!left.exists() && used.exists());
    drop(alive);
    let journals: Vec<_> =
        fs::read_dir(host.at("state")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(journals, ["host.journal"]);
}

#[test]
fn a_controller_is_switched_off_again_unless_somebody_relies_on_it() {
    let host = Host::new();
    let control = host.at("cgroup/cgroup.subtree_control");
    host.put("cgroup/cgroup.subtree_control", "cpu io\n");
    let mut changes = host.changes();
    changes.controller(&control, "memory").unwrap();
    assert_eq!(host.get("cgroup/cgroup.subtree_control"), "+memory");
    // The kernel prints the file so then.
    host.put("cgroup/cgroup.subtree_control", "cpu io memory\n");
    fs::create_dir(host.at("cgroup/theirs")).unwrap();
    host.put("cgroup/theirs/memory.max", "max\n");
    drop(changes);
    assert_eq!(host.get("cgroup/cgroup.subtree_control"), "-memory");
    host.put("cgroup/cgroup.subtree_control", "cpu io\n");
    let mut changes = host.changes();
    changes.controller(&control, "memory").unwrap();
    host.put("cgroup/cgroup.subtree_control", "cpu io memory\n");
    host.put("cgroup/theirs/memory.low", "1048576\n");
    let mut told = Vec::new();
    changes.undo(&mut |outcome| told.push(outcome.to_string())).unwrap();
    assert!(told[0].contains("memory.low is set"), "{told:?}");
    assert_eq!(host.get("cgroup/cgroup.subtree_control"), "cpu io memory");
    // The controller is on already, so there is nothing to undo.
    let mut changes = host.changes();
    changes.controller(&control, "memory").unwrap();
    assert!(changes.entries.is_empty());
}

#[test]
fn a_journal_that_leads_elsewhere_is_not_followed() {
    let host = Host::new();
    let victim = tempfile::tempdir().unwrap();
    fs::write(victim.path().join("file"), "theirs").unwrap();
    let mut changes = host.changes();
    let (boot, journal) = (changes.boot.clone(), changes.journal.as_mut().unwrap());
    let path = victim.path().join("file");
    let unit = vec![Key { path: path.clone(), old: "overwritten".to_owned() }];
    journal.note(&boot, &Change::Set(Set { path, value: "theirs".to_owned(), unit, lent: false })).unwrap();
    journal.note(&boot, &Change::Directory { path: victim.path().to_path_buf() }).unwrap();
    kill(changes);
    assert!(host.state().restore(&mut |_| ()).is_err());
    assert_eq!(fs::read_to_string(victim.path().join("file")).unwrap(), "theirs");
    assert!(!host.journal().is_empty());
}

#[test]
fn the_state_directory_and_its_journal_are_private_whatever_was_there() {
    let host = Host::new();
    fs::create_dir(host.at("state")).unwrap();
    fs::set_permissions(host.at("state"), fs::Permissions::from_mode(0o755)).unwrap();
    drop(host.changes());
    let mode = |name: &str| fs::metadata(host.at(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("state"), mode("state/host.journal")), (0o700, 0o600));
    assert!(!host.at("nowhere").exists());
    StateDirectory::at(&host.at("nowhere"), Territory::host()).restore(&mut |_| ()).unwrap();
    assert!(!host.at("nowhere").exists(), "made for nothing");
}

#[test]
fn a_journal_of_0_1_0_is_listed_and_undone_when_somebody_says_so() {
    let host = Host::new();
    fs::create_dir(host.at("state")).unwrap();
    let left = host.at("lotsfree-lab-7");
    fs::create_dir(&left).unwrap();
    let (setting, left_at) = (host.at("vm/swappiness"), left.display());
    host.put("vm/swappiness", "0\n");
    host.put(
        "state/lab.journal",
        &format!(
            "{{\"change\":\"directory\",\"path\":\"{left_at}\"}}\n\
             {{\"change\":\"write\",\"path\":\"{}\",\"before\":\"60\"}}\n",
            setting.display()
        ),
    );
    let error = host.state().host(&mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("2 changes of an earlier version"), "{error}");
    host.restore();
    assert_eq!(host.get("vm/swappiness"), "0", "undone without a word");
    let listed = host.state().list().unwrap();
    let lines = [format!("{} back to 60", setting.display()), format!("directory {left_at} removed")];
    assert_eq!(listed[0].changes, lines);
    host.state().restore_legacy(&mut |_| ()).unwrap();
    assert_eq!(host.get("vm/swappiness"), "60");
    assert!(!left.exists() && !host.at("state/lab.journal").exists());
    drop(host.changes());
}

#[test]
fn of_a_damaged_journal_what_can_be_read_is_listed() {
    let host = Host::new();
    let mut changes = host.changes();
    changes.set(&host.at("vm/swappiness"), "0").unwrap();
    kill(changes);
    let damaged = host.journal() + "\nrubbish\n";
    host.put("state/host.journal", &damaged);
    let error = host.state().restore(&mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("host.journal, line 4: ") && error.contains("restore --list"), "{error}");
    assert_eq!(fs::read_to_string(host.at("state/host.journal")).unwrap(), damaged);
    let listed = host.state().list().unwrap();
    assert!(listed[0].changes[0].ends_with("back to 60"));
    assert!(listed[0].problem.as_ref().unwrap().starts_with("line 4: "), "{listed:?}");
}

/// Needs root, and leaves the setting as it was.
#[test]
fn settings_that_clear_each_other_are_put_back_together() {
    let root = Path::new("/proc/sys/vm");
    let (ratio, bytes) = (root.join("dirty_background_ratio"), root.join("dirty_background_bytes"));
    if !rustix::process::geteuid().is_root() || fs::write(&bytes, raw(&bytes).unwrap()).is_err() {
        return;
    }
    let values = || (raw(&ratio).unwrap(), raw(&bytes).unwrap());
    let before = values();
    let host = Host::new();
    let state = StateDirectory::at(&host.at("state"), Territory::host());
    let mut changes = state.host(&mut |_| ()).unwrap();
    changes.set(&bytes, "104857600").unwrap();
    changes.set(&ratio, "7").unwrap();
    changes.set(&bytes, "209715200").unwrap();
    assert_eq!(values(), ("0\n".to_owned(), "209715200\n".to_owned()));
    kill(changes);
    state.restore(&mut |_| ()).unwrap();
    assert_eq!(values(), before);
    // The kernel refuses this value, so nothing is changed and there is nothing to undo.
    let mut changes = state.host(&mut |_| ()).unwrap();
    assert!(changes.set(&ratio, "101").is_err());
    assert!(changes.entries.is_empty());
}

#[test]
fn what_an_actor_made_of_a_lent_setting_is_put_back_whatever_it_is() {
    let host = Host::new();
    host.put("vm/nr_hugepages", "3\n");
    let path = host.at("vm/nr_hugepages");
    let mut changes = host.changes();
    changes.set(&path, "5").unwrap();
    changes.lend(&path).unwrap();
    host.put("vm/nr_hugepages", "211\n");
    drop(changes);
    assert_eq!(host.get("vm/nr_hugepages"), "3");
    let mut changes = host.changes();
    changes.lend(&path).unwrap();
    host.put("vm/nr_hugepages", "17\n");
    kill(changes);
    assert_eq!(host.restore(), [format!("undone: {} back to 3", path.display())]);
    assert_eq!(host.get("vm/nr_hugepages"), "3");
    // An actor that has changed nothing leaves nothing to undo.
    let mut changes = host.changes();
    changes.lend(&path).unwrap();
    kill(changes);
    assert!(host.restore().is_empty());
}
