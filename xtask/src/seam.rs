//! Checks that code writes through `lotsfree-storage`, where tests let each step fail, and lists the
//! exceptions.
//!
//! The check is textual, on every crate's code except its tests. It does not resolve aliases; it prevents
//! bypassing the seam by habit.

use std::fs;

use crate::docs;

/// Calls that make, change, rename or remove something in a file system.
const CALLS: [&str; 30] = [
    "fs::write",
    "fs::rename",
    "fs::remove_",
    "fs::create_dir",
    "fs::copy",
    "fs::hard_link",
    "fs::soft_link",
    "fs::set_permissions",
    "fs::DirBuilder",
    "File::create",
    "File::options",
    "OpenOptions::new",
    "fs::symlink(",
    "fs::chown",
    "fs::mkdir",
    "fs::unlink",
    "fs::rmdir",
    "fs::mknod",
    "fs::mkfifo",
    "fs::link",
    "fs::chmod",
    "fs::ftruncate",
    "fs::fallocate",
    "fs::fchmod",
    "renameat",
    "unlinkat",
    "mkdirat",
    "tempfile::",
    "tempfile_in(",
    ".sync_all(",
];

/// Names that a `use std::fs::{…}` may bring in without `fs::` before them.
const IMPORTS: [&str; 9] = [
    "write",
    "rename",
    "remove_file",
    "remove_dir",
    "remove_dir_all",
    "create_dir",
    "create_dir_all",
    "copy",
    "set_permissions",
];

/// A call that may bypass the seam.
struct Allowed {
    /// A file, or a directory with a `/` at its end.
    path: &'static str,
    /// The call; empty for all.
    call: &'static str,
    why: &'static str,
}

const ALLOWED: [Allowed; 9] = [
    Allowed { path: "crates/storage/", call: "", why: "it is the seam" },
    Allowed {
        path: "crates/lab/src/agent/",
        call: "",
        why: "agents read, write and remove the files of their workload, which is what is measured",
    },
    Allowed {
        path: "crates/lab/src/calibrate/",
        call: "",
        why: "as an agent's: reading, writing and reclaiming is what is measured",
    },
    Allowed {
        path: "crates/lab/src/prepare.rs",
        call: "",
        why: "writes the files that a workload finds, past the page cache",
    },
    Allowed {
        path: "crates/lab/src/guest.rs",
        call: "",
        why: "is the first program of a virtual machine, which is gone afterwards",
    },
    Allowed {
        path: "crates/changes/src/journal.rs",
        call: "OpenOptions::new",
        why: "opens a journal that is there, to lock it and to append through the seam",
    },
    Allowed {
        path: "crates/changes/src/undo.rs",
        call: "OpenOptions::new",
        why: "opens a swap file for reading, to end swapping to it",
    },
    Allowed {
        path: "crates/lab/src/vm/",
        call: "File::options",
        why: "opens what is there, as QEMU gets it: an image, KVM",
    },
    Allowed {
        path: "crates/snapshot/src/source/detect.rs",
        call: "OpenOptions::new",
        why: "opens for reading, without waiting for a FIFO's writer",
    },
];

/// Names calls that bypass the seam without permission, and permissions that no call needs any more.
pub(crate) fn check(files: &[String], wrong: &mut Vec<String>) {
    let mut used = [false; ALLOWED.len()];
    for path in files.iter().filter(|path| is_product(path)) {
        let text = fs::read_to_string(docs::root().join(path)).unwrap_or_default();
        for (number, call) in calls(&text) {
            let allowed = ALLOWED.iter().position(|allowed| allowed.permits(path, call));
            match allowed {
                Some(index) => used[index] = true,
                None => wrong.push(format!(
                    "{path}:{number}: {call} goes round lotsfree-storage; use its function, or list it in \
                     xtask/src/seam.rs and say why"
                )),
            }
        }
    }
    for (allowed, _) in ALLOWED.iter().zip(used).filter(|(_, used)| !used) {
        wrong.push(format!("xtask/src/seam.rs: nothing in {} needs leave ({})", allowed.path, allowed.why));
    }
}

impl Allowed {
    fn permits(&self, path: &str, call: &str) -> bool {
        let here = if self.path.ends_with('/') { path.starts_with(self.path) } else { path == self.path };
        here && (self.call.is_empty() || self.call == call)
    }
}

/// Whether a file is compiled into the program. Tests and benches may write anywhere.
fn is_product(path: &str) -> bool {
    let code = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
    code && !path.ends_with("/tests.rs") && !path.contains("/tests/")
}

/// Calls in a file's code, with their lines, up to its tests, which come last.
fn calls(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let code = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(code, _)| code);
    for (line, number) in code.lines().zip(1..) {
        let line = line.trim_start();
        if line.starts_with("//") {
            continue;
        }
        found.extend(CALLS.iter().filter(|call| line.contains(**call)).map(|&call| (number, call)));
        if let Some(names) = line.strip_prefix("use std::fs::{") {
            let mut names = names.split([',', '}', ';']).map(str::trim);
            found.extend(
                names.find_map(|name| IMPORTS.iter().find(|import| **import == name)).map(|&i| (number, i)),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_is_seen_and_what_tests_write_is_not() {
        let code = "use std::fs::{self, rename};\n    // fs::write(path, text)\nstd::fs::write(path, text)?;\n\
                    let text = fs::read(path)?;\nFile::options().append(true)\n#[cfg(test)]\nmod tests {\n\
                    fs::remove_file(path).unwrap();\n";
        assert_eq!(calls(code), [(1, "rename"), (3, "fs::write"), (5, "File::options")]);
        assert!(is_product("crates/run/src/writer.rs") && is_product("crates/lotsfree/src/sim/mod.rs"));
        for path in [
            "crates/run/tests/a.rs",
            "crates/run/src/x/tests.rs",
            "crates/run/src/x/tests/a.rs",
            "xtask/src/a.rs",
        ] {
            assert!(!is_product(path), "{path}");
        }
    }

    #[test]
    fn a_permission_is_for_its_path_and_call() {
        let detect = "crates/snapshot/src/source/detect.rs";
        let permitted = |path: &str, call: &str| ALLOWED.iter().any(|allowed| allowed.permits(path, call));
        assert!(permitted(detect, "OpenOptions::new") && !permitted(detect, "fs::write"));
        assert!(permitted("crates/lab/src/agent/io.rs", "File::create"));
        assert!(!permitted("crates/lotsfree/src/output.rs", "File::create"));
    }
}
