//! Debian packages, which are downloaded and unpacked below the cache directory. Nothing is installed.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lotsfree_storage::{self as storage, Access};

use super::tool::output;
use super::{Error, trust};

/// The directory that keeps packages.
#[derive(Debug)]
pub struct Packages {
    cache: PathBuf,
    /// Called with the name of a package before it is downloaded.
    announce: fn(&str),
}

/// A package, unpacked.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// The directory that holds its files.
    pub tree: PathBuf,
    /// Its version, `6.1.192-2`.
    pub version: String,
}

/// A kernel package, unpacked.
#[derive(Clone, Debug)]
pub struct KernelPackage {
    /// `linux-image-6.1.0-56-amd64`.
    pub package: String,
    /// The package's version, `6.1.192-2`.
    pub version: String,
    /// The kernel's release, `6.1.0-56-amd64`.
    pub release: String,
    /// The bootable image, `boot/vmlinuz-…`.
    pub image: PathBuf,
    /// `lib/modules/…`.
    pub modules: PathBuf,
}

impl Packages {
    /// Packages below a directory, which need not exist. `announce` is called with the name of each that is
    /// downloaded.
    pub fn new(cache: &Path, announce: fn(&str)) -> Packages {
        Packages { cache: cache.to_owned(), announce }
    }

    /// The newest kernel of a series (`6.1`) that the package lists of this machine or the cache have.
    ///
    /// # Errors
    /// If there is none, or it cannot be downloaded.
    pub fn kernel(&self, series: &str) -> Result<KernelPackage, Error> {
        let prefix = format!("linux-image-{series}.");
        let mut names = output(Command::new("apt-cache").args(["pkgnames", &prefix]))?;
        for entry in fs::read_dir(self.cache.join("packages")).into_iter().flatten().flatten() {
            names += &format!("\n{}", entry.file_name().to_string_lossy());
        }
        let package = newest(names.lines(), &prefix).ok_or(Error::NoPackage { prefix })?;
        let Unpacked { tree, version } = self.fetch(&package)?;
        let release = package.trim_start_matches("linux-image-").to_owned();
        let modules = ["usr/lib", "lib"]
            .iter()
            .map(|lib| tree.join(lib).join("modules").join(&release))
            .find(|path| path.is_dir())
            .ok_or_else(|| Error::unusable(&tree, format!("{package} has no modules")))?;
        let image = tree.join("boot").join(format!("vmlinuz-{release}"));
        Ok(KernelPackage { package, version, release, image, modules })
    }

    /// Downloads and unpacks a package, once. The tree appears under its name only when it is complete.
    ///
    /// # Errors
    /// If it cannot be downloaded or unpacked, or if this is root and somebody else could exchange what is in
    /// the cache.
    pub fn fetch(&self, package: &str) -> Result<Unpacked, Error> {
        let packages = self.cache.join("packages");
        let tree = packages.join(package);
        let version_file = packages.join(format!("{package}.version"));
        storage::create_dir_all(&packages).map_err(Error::io(&packages))?;
        trust::check(&packages)?;
        if tree.is_dir() {
            let version = fs::read_to_string(&version_file).map_err(Error::io(version_file))?;
            return Ok(Unpacked { tree, version: version.trim().to_owned() });
        }
        (self.announce)(package);
        let download = self.cache.join("download").join(package);
        if download.exists() {
            storage::remove_dir_all(&download).map_err(Error::io(&download))?;
        }
        storage::create_dir_all(&download).map_err(Error::io(&download))?;
        output(Command::new("apt-get").args(["--quiet", "download", package]).current_dir(&download))?;
        let archive = fs::read_dir(&download)
            .map_err(Error::io(&download))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .ok_or_else(|| Error::unusable(&download, format!("no .deb came for {package}")))?;
        let version = output(Command::new("dpkg-deb").arg("--field").arg(&archive).arg("Version"))?;
        let unfinished = download.join("tree");
        output(Command::new("dpkg").arg("-x").arg(&archive).arg(&unfinished))?;
        storage::replace(&version_file, Access::Umask, version.as_bytes())
            .map_err(Error::io(version_file))?;
        storage::rename(&unfinished, &tree).map_err(Error::io(&tree))?;
        storage::remove_dir_all(&download).map_err(Error::io(&download))?;
        Ok(Unpacked { tree, version: version.trim().to_owned() })
    }
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
pub(crate) fn by_number(a: &str, b: &str) -> Ordering {
    let numbers = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|run| run.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b))
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
