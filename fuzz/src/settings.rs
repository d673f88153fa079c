//! Fuzzes the journal of changes of a host: it is read, listed, and undone on a made-up host.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use lotsfree_changes::{StateDirectory, Territory, parse, parse_legacy};

use crate::runs::{fnv, place};
use crate::seeds::Fixture;

/// Stands for the root of the host in an input, because inputs are made before its path is known.
const ROOT: &str = "/ROOT";

fn put(path: &Path, contents: &[u8]) {
    let written = fs::create_dir_all(path.parent().unwrap_or(path)).and_then(|()| fs::write(path, contents));
    if let Err(error) = written.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600))) {
        panic!("{}: {error}", path.display());
    }
}

/// Fuzzes a journal. The input lacks the checksums, which are entered here. The first byte says whether it is
/// a journal of 0.1.0.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else { return };
    let _ = (parse(text), parse_legacy(text));
    let root = place();
    let text = String::from_utf8_lossy(text).replace(ROOT, &root.display().to_string());
    let (legacy, mut journal) = (kind % 2 == 1, String::new());
    match legacy {
        true => journal = text,
        false => {
            journal += "lotsfree changes 1\n";
            text.lines().for_each(|line| journal += &format!("{:016x} {line}\n", fnv(line.as_bytes())));
        }
    }
    let name = if legacy { "state/lab.journal" } else { "state/host.journal" };
    let (setting, victim) = (root.join("vm/swappiness"), root.join("victim/file"));
    put(&setting, b"0\n");
    put(&victim, b"theirs");
    put(&root.join(name), journal.as_bytes());
    let state = StateDirectory::at(&root.join("state"), Territory::below(&root.join("vm")));
    let _ = state.list();
    let _ = state.restore(&mut |_| ());
    let _ = state.restore_legacy(&mut |_| ());
    assert_eq!(fs::read(&victim).unwrap_or_default(), b"theirs", "{journal}");
    let _ = fs::remove_file(root.join(name));
}

/// Seeds: each kind of change, once.
pub(crate) fn seeds(_: &Fixture) -> Vec<Vec<u8>> {
    let noted = |number: u32, change: &str| {
        format!("{{\"record\":\"noted\",\"number\":{number},\"boot\":\"\",\"change\":{change}}}\n")
    };
    let set = format!(
        "{{\"kind\":\"set\",\"path\":\"{ROOT}/vm/swappiness\",\"value\":\"0\",\"unit\":\
         [{{\"path\":\"{ROOT}/vm/swappiness\",\"old\":\"60\\n\"}}]}}"
    );
    let at = |kind: &str, name: &str| format!("{{\"kind\":\"{kind}\",\"path\":\"{ROOT}/{name}\"}}");
    let made =
        "{\"record\":\"made\",\"number\":1,\"now\":[\"0\\n\"]}\n{\"record\":\"closed\",\"number\":2}\n";
    let whole = noted(1, &set) + &noted(2, &at("directory", "lotsfree-lab-1")) + made;
    let kinds = noted(1, &at("swap", "lotsfree-lab-1/swap"))
        + &noted(2, &at("group", "vm/cgroup/lotsfree-lab-1"))
        + &noted(3, &format!("{{\"kind\":\"controller\",\"path\":\"{ROOT}/c\",\"name\":\"memory\"}}"))
        + &noted(4, &at("directory", "victim"));
    let legacy = format!(
        "{{\"change\":\"write\",\"path\":\"{ROOT}/vm/swappiness\",\"before\":\"60\"}}\n\
         {{\"change\":\"directory\",\"path\":\"{ROOT}/victim\"}}\n"
    );
    vec![
        format!("0{whole}").into_bytes(),
        format!("0{kinds}").into_bytes(),
        format!("1{legacy}").into_bytes(),
    ]
}
