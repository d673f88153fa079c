//! The programs that run in the virtual machine.

use std::path::{Path, PathBuf};

use lotsfree_lab::vm::Packages;

use super::Result;

/// The files of Debian's static busybox, and of its perl with the libraries that perl is linked to. Each has
/// its path in the machine and its path here.
pub(super) fn user_space(packages: &Packages) -> Result<Vec<(String, PathBuf)>> {
    const LIBRARIES: &str = "lib/x86_64-linux-gnu";
    let wanted = [
        ("busybox-static", "bin/busybox", "bin"),
        ("perl-base", "bin/perl", "bin"),
        ("libc6", "lib64/ld-linux-x86-64.so.2", LIBRARIES),
        ("libc6", "lib/x86_64-linux-gnu/libc.so.6", LIBRARIES),
        ("libc6", "lib/x86_64-linux-gnu/libm.so.6", LIBRARIES),
        ("libcrypt1", "lib/x86_64-linux-gnu/libcrypt.so.1", LIBRARIES),
    ];
    let mut files = Vec::new();
    for (package, inside, directory) in wanted {
        let tree = packages.fetch(package)?.tree;
        let name = Path::new(inside).file_name().unwrap_or_default();
        // Debian 12 has some packages with the merged /usr and some without.
        let here = [tree.join(directory), tree.join("usr").join(directory)]
            .iter()
            .map(|directory| directory.join(name))
            .find(|path| path.is_file())
            .ok_or_else(|| format!("{package} has no {inside}"))?;
        files.push((inside.to_owned(), here));
    }
    Ok(files)
}
