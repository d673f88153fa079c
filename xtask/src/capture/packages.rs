//! Debian packages, downloaded and unpacked below the cache directory. Nothing is installed.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Error, Result, output};

/// A kernel package, unpacked.
pub(super) struct Kernel {
    /// `linux-image-6.1.0-56-amd64`.
    pub package: String,
    /// The package's version, `6.1.192-2`.
    pub version: String,
    /// The bootable image, `boot/vmlinuz-…`.
    pub image: PathBuf,
    /// `lib/modules/…`.
    pub modules: PathBuf,
}

/// The newest kernel of a series (`6.1`) that the package lists of this machine or the cache have.
pub(super) fn kernel(series: &str, cache: &Path) -> Result<Kernel> {
    let prefix = format!("linux-image-{series}.");
    let mut names = output(Command::new("apt-cache").args(["pkgnames", &prefix]))?;
    for entry in fs::read_dir(cache.join("packages")).into_iter().flatten() {
        names += &format!("\n{}", entry?.file_name().to_string_lossy());
    }
    let package = newest(names.lines(), &prefix).ok_or_else(|| {
        format!(
            "no package {prefix}*-amd64 in the package lists of this machine: run `apt-get update`, and on \
             an older Debian add its backports or security archive"
        )
    })?;
    let unpacked = fetch(&package, cache)?;
    let release = package.trim_start_matches("linux-image-");
    let modules = ["usr/lib", "lib"]
        .iter()
        .map(|lib| unpacked.tree.join(lib).join("modules").join(release))
        .find(|path| path.is_dir())
        .ok_or_else(|| format!("{package} has no modules"))?;
    let image = unpacked.tree.join("boot").join(format!("vmlinuz-{release}"));
    Ok(Kernel { version: unpacked.version, image, modules, package })
}

/// The newest plain (not cloud, not real-time, not unsigned) image among the names.
fn newest<'a>(names: impl Iterator<Item = &'a str>, prefix: &str) -> Option<String> {
    let plain = |name: &&str| {
        let version = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("-amd64"));
        version.is_some_and(|version| !version.contains("cloud") && !version.contains("-rt"))
    };
    names.filter(plain).max_by(|a, b| by_number(a, b)).map(str::to_owned)
}

/// Compares the runs of digits in two names as numbers, in order.
fn by_number(a: &str, b: &str) -> Ordering {
    let numbers = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|run| run.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b))
}

/// What runs in the virtual machine: the files of Debian's static busybox and of its perl with the libraries
/// that it is linked to, as path in the machine and path here.
pub(super) fn user_space(cache: &Path) -> Result<Vec<(String, PathBuf)>> {
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
        let tree = fetch(package, cache)?.tree;
        let name = Path::new(inside).file_name().unwrap_or_default();
        // Debian 12 has some packages with, some without the merged /usr.
        let here = [tree.join(directory), tree.join("usr").join(directory)]
            .iter()
            .map(|directory| directory.join(name))
            .find(|path| path.is_file())
            .ok_or_else(|| format!("{package} has no {inside}"))?;
        files.push((inside.to_owned(), here));
    }
    Ok(files)
}

struct Unpacked {
    tree: PathBuf,
    version: String,
}

/// Downloads and unpacks a package, once. The tree appears under its name only when it is complete.
fn fetch(package: &str, cache: &Path) -> Result<Unpacked> {
    let tree = cache.join("packages").join(package);
    let version_file = cache.join("packages").join(format!("{package}.version"));
    if tree.is_dir() {
        let version = fs::read_to_string(&version_file)?.trim().to_owned();
        return Ok(Unpacked { tree, version });
    }
    eprintln!("downloading {package}");
    let download = cache.join("download").join(package);
    if download.exists() {
        fs::remove_dir_all(&download)?;
    }
    fs::create_dir_all(&download)?;
    fs::create_dir_all(cache.join("packages"))?;
    output(Command::new("apt-get").args(["--quiet", "download", package]).current_dir(&download))?;
    let archive = fs::read_dir(&download)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| Error::from(format!("apt-get download {package}: no .deb came")))?;
    let version = output(Command::new("dpkg-deb").arg("--field").arg(&archive).arg("Version"))?;
    let unfinished = download.join("tree");
    output(Command::new("dpkg").arg("-x").arg(&archive).arg(&unfinished))?;
    fs::write(&version_file, &version)?;
    fs::rename(&unfinished, &tree)?;
    fs::remove_dir_all(&download)?;
    Ok(Unpacked { tree, version: version.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_plain_image_is_chosen() {
        let names = [
            "linux-image-6.12.9+deb12-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.118+deb12-cloud-amd64",
            "linux-image-6.12.118+deb12-rt-amd64",
            "linux-image-6.12.118+deb12-amd64-unsigned",
            "linux-image-6.12.118+deb12-amd64-dbg",
            "linux-image-6.12-amd64-signed-template",
        ];
        let newest = newest(names.into_iter(), "linux-image-6.12.");
        assert_eq!(newest.as_deref(), Some("linux-image-6.12.117+deb12-amd64"));
        assert_eq!(super::newest(names.into_iter(), "linux-image-6.1."), None);
    }
}
