//! Tests of the journal as a file: reading it again, damage, and the owner that it must have.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use proptest::prelude::*;

use super::*;

fn directory(name: &str) -> Change {
    Change::Directory { path: PathBuf::from("/var/tmp").join(name) }
}

fn open(path: &Path) -> (Journal, Vec<Entry>) {
    Journal::open(path).unwrap().unwrap()
}

/// A journal with changes 1 to 3, of which the second is closed.
fn filled(path: &Path) {
    let (mut journal, entries) = open(path);
    assert!(entries.is_empty());
    for name in ["lotsfree-a", "lotsfree-b", "lotsfree-c"] {
        let entry = journal.note("boot", &directory(name)).unwrap();
        journal.made(entry.number, Vec::new()).unwrap();
    }
    journal.close(2).unwrap();
}

fn names(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.change.path().display().to_string()).collect()
}

#[test]
fn what_is_open_is_read_again() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal");
    filled(&path);
    let (mut journal, entries) = open(&path);
    assert_eq!(names(&entries), ["/var/tmp/lotsfree-a", "/var/tmp/lotsfree-c"]);
    assert!(entries.iter().all(|entry| entry.boot == "boot" && entry.now == Some(Vec::new())));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(journal.note("boot", &directory("lotsfree-d")).unwrap().number, 4);
    assert!(Journal::open(&path).unwrap().is_none(), "locked");
    journal.clear().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    journal.note("boot", &directory("lotsfree-e")).unwrap();
    drop(journal);
    assert_eq!(names(&open(&path).1), ["/var/tmp/lotsfree-e"]);
}

#[test]
fn a_last_line_without_a_line_feed_is_cut_off_and_any_other_damage_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal");
    filled(&path);
    let whole = fs::read(&path).unwrap();
    // The step is 17, because each iteration needs a sync.
    for end in (0..whole.len()).step_by(17) {
        fs::write(&path, &whole[..end]).unwrap();
        let (mut journal, _) = open(&path);
        let entry = journal.note("boot", &directory("lotsfree-new")).unwrap();
        drop(journal);
        assert_eq!(open(&path).1.last(), Some(&entry), "cut at {end}");
    }
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // If the last line feed is changed, the line is incomplete; anything else is damage.
        let torn = bit / 8 == whole.len() - 1;
        match parse(&damaged) {
            Err((line, _)) => {
                let lines = damaged[..bit / 8].iter().filter(|byte| **byte == b'\n').count();
                assert!(line == lines + 1 || line == lines, "bit {bit}: line {line}");
            }
            Ok(_) => assert!(torn, "bit {bit} was taken"),
        }
        if bit % 97 == 0 {
            fs::write(&path, &damaged).unwrap();
            assert!(matches!(Journal::open(&path), Err(ChangeError::Damaged { .. })) || torn);
            assert_eq!(fs::read(&path).unwrap(), damaged, "bit {bit}: the file was changed");
        }
    }
}

#[test]
fn a_newer_journal_is_refused_and_stays_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal");
    let newer = "lotsfree changes 2\nwhatever\n";
    fs::write(&path, newer).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let error = Journal::open(&path).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("version 2") && error.contains("by hand"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), newer);
}

#[test]
fn what_another_user_may_have_written_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let refused = |path: &Path, why: &str| {
        let error = Journal::open(path).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    filled(&at("own"));
    symlink(at("own"), at("link")).unwrap();
    refused(&at("link"), "symbolic links");
    fs::hard_link(at("own"), at("twin")).unwrap();
    refused(&at("own"), "another name");
    fs::remove_file(at("twin")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RWXU).unwrap();
    refused(&at("fifo"), "fifo");
    fs::set_permissions(at("own"), fs::Permissions::from_mode(0o622)).unwrap();
    refused(&at("own"), "others may write");
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(at("own"), fs::Permissions::from_mode(0o600)).unwrap();
        chown(at("own"), Some(65534), None).unwrap();
        refused(&at("own"), "belongs to user 65534");
    }
}

#[test]
fn a_lock_that_somebody_else_took_while_it_was_readable_does_not_count() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal");
    filled(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let foreign = File::open(&path).unwrap();
    foreign.lock().unwrap();
    assert_eq!(open(&path).1.len(), 2);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "(lotsfree changes 1\n)?([0-9a-f]{0,16} |\\{\"record\":\"noted\"|\n|[ -~]){0,40}") {
        let _ = parse(text.as_bytes());
    }
}
