//! Debian packages, which are downloaded and unpacked below the cache directory. Nothing is installed.
//!
//! apt downloads them, as it checks the signature of the package index. The SHA-256 of what came is compared
//! with the index's once more before it is unpacked: the file lies in a directory of ours by then.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lotsfree_storage::{self as storage, Access};

use lotsfree_units::Bytes;

use super::tool::output;
use super::{Error, trust};

/// Options with which apt takes nothing that no key of this machine has signed, whatever its settings say.
const SIGNED: [&str; 6] = [
    "-o",
    "APT::Get::AllowUnauthenticated=false",
    "-o",
    "Acquire::AllowInsecureRepositories=false",
    "-o",
    "Acquire::AllowWeakRepositories=false",
];
/// Space beside the package and its files: a kernel is decompressed, and Debian's have 50 to 80 MiB.
const DECOMPRESSED: Bytes = Bytes::mib(128);

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

    /// The name of the newest kernel's package of a series (`6.1`) that the package lists of this machine or
    /// the cache have.
    ///
    /// # Errors
    /// If there is none.
    pub fn newest(&self, series: &str) -> Result<String, Error> {
        let mut names = output(Command::new("apt-cache").args(["pkgnames", "linux-image-"]))?;
        for entry in fs::read_dir(self.cache.join("packages")).into_iter().flatten().flatten() {
            names += &format!("\n{}", entry.file_name().to_string_lossy());
        }
        newest(names.lines(), &format!("linux-image-{series}."))
            .ok_or_else(|| Error::NoPackage { series: series.to_owned(), known: serieses(names.lines()) })
    }

    /// The newest kernel of a series, downloaded and unpacked.
    ///
    /// # Errors
    /// As [`newest`](Packages::newest) and [`fetch`](Packages::fetch).
    pub fn kernel(&self, series: &str) -> Result<KernelPackage, Error> {
        let package = self.newest(series)?;
        let Unpacked { tree, version } = self.fetch(&package)?;
        let release = package.trim_start_matches("linux-image-").to_owned();
        let (image, modules) = match modules_in(&tree, &release) {
            Some(modules) => (tree.join("boot").join(format!("vmlinuz-{release}")), modules),
            None => self.parts(&release)?,
        };
        Ok(KernelPackage { package, version, release, image, modules })
    }

    /// Image and modules of a kernel that Debian 14 splits over three packages: `linux-binary-…` has the
    /// image, `linux-modules-…` the modules, and `linux-base-…` the file `modules.builtin`, which is copied
    /// to the modules.
    fn parts(&self, release: &str) -> Result<(PathBuf, PathBuf), Error> {
        let part = |prefix: &str| {
            let package = format!("{prefix}{release}");
            let tree = self.fetch(&package)?.tree;
            modules_in(&tree, release)
                .ok_or_else(|| Error::unusable(&tree, format!("{package} has no lib/modules/{release}")))
        };
        let image = part("linux-binary-")?.join("vmlinuz");
        let modules = part("linux-modules-")?;
        let from = part("linux-base-")?.join("modules.builtin");
        let list = trust::read(&from, trust::LIST)?;
        let to = modules.join("modules.builtin");
        storage::replace(&to, Access::Umask, &list).map_err(Error::io(&to))?;
        Ok((image, modules))
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
        let indexed = Indexed::of(package)?;
        indexed.fits(&self.cache)?;
        let wanted = format!("{package}={}", indexed.version);
        let mut apt = Command::new("apt-get");
        apt.args(SIGNED).args(["--quiet", "--quiet", "download", &wanted]).current_dir(&download);
        output(&mut apt).map_err(|error| match error {
            Error::Failed { message, .. } => Error::NotDownloaded { package: package.to_owned(), message },
            other => other,
        })?;
        let archive = fs::read_dir(&download)
            .map_err(Error::io(&download))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .ok_or_else(|| Error::unusable(&download, format!("no .deb came for {package}")))?;
        indexed.verify(&archive)?;
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

/// `lib/modules/RELEASE` of a package, below `/usr` in newer ones.
fn modules_in(tree: &Path, release: &str) -> Option<PathBuf> {
    let places = ["usr/lib", "lib"].map(|lib| tree.join(lib).join("modules").join(release));
    places.into_iter().find(|path| path.is_dir())
}

/// The package index's facts of a package.
#[derive(Debug, PartialEq, Eq)]
struct Indexed {
    package: String,
    version: String,
    /// Hexadecimal.
    sha256: String,
    /// Bytes that the package and its files take.
    needed: Bytes,
}

impl Indexed {
    fn of(package: &str) -> Result<Self, Error> {
        let shown = output(Command::new("apt-cache").args(["show", "--no-all-versions", package]))?;
        Indexed::parse(package, &shown).ok_or_else(|| Error::NotVerified {
            package: package.to_owned(),
            why: "the package index has no SHA256 of it".to_owned(),
        })
    }

    fn parse(package: &str, shown: &str) -> Option<Self> {
        let stanza = shown.split("\n\n").next()?;
        let field = |name: &str| {
            let lines = stanza.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(key, _)| *key == name).map(|(_, value)| value.trim()).next()
        };
        let number = |name| field(name).and_then(|text| text.parse::<u64>().ok());
        let sha256 = field("SHA256").filter(|text| text.len() == 64)?.to_ascii_lowercase();
        let files = Bytes::kib(number("Installed-Size").unwrap_or(0));
        Some(Indexed {
            package: package.to_owned(),
            version: field("Version")?.to_owned(),
            sha256,
            needed: Bytes(number("Size")?) + files + DECOMPRESSED,
        })
    }

    /// Whether the file system of a directory has room.
    fn fits(&self, directory: &Path) -> Result<(), Error> {
        let status = rustix::fs::statvfs(directory).map_err(|error| Error::io(directory)(error.into()))?;
        let free = Bytes(status.f_bavail.saturating_mul(status.f_frsize));
        let (package, needed) = (&self.package, self.needed);
        if free >= needed {
            return Ok(());
        }
        let why = format!("{package} needs {needed} to be unpacked, and {free} are free");
        Err(Error::unusable(directory, why))
    }

    /// Whether an archive is the one that the index has.
    fn verify(&self, archive: &Path) -> Result<(), Error> {
        let sum = output(Command::new("sha256sum").arg("--").arg(archive))?;
        // A backslash comes first if the name had to be quoted.
        let sum = sum.trim_start_matches('\\').split(' ').next().unwrap_or_default().to_owned();
        if sum == self.sha256 {
            return Ok(());
        }
        Err(Error::NotVerified {
            package: self.package.clone(),
            why: format!(
                "its SHA256 is {sum}, that of the package index {}; it was thrown away",
                self.sha256
            ),
        })
    }
}

/// The series of the plain images among the names, in order.
fn serieses<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let series = |name: &str| {
        let version = name.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
        let mut numbers = version.split('.');
        let (major, minor) = (numbers.next()?.parse::<u32>().ok()?, numbers.next()?.parse::<u32>().ok()?);
        numbers.next().map(|_| (major, minor))
    };
    let known: BTreeSet<(u32, u32)> = names.filter_map(series).collect();
    known.into_iter().map(|(major, minor)| format!("{major}.{minor}")).collect()
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

    #[test]
    fn the_series_that_could_be_had_are_listed_in_their_order() {
        let names = ["linux-image-6.12.9+deb12-amd64", "linux-image-6.1.0-9-amd64", "linux-image-amd64"];
        assert_eq!(serieses(names.into_iter()), ["6.1", "6.12"]);
    }

    /// The package index's words on a package whose archive holds `abc`.
    const SHOWN: &str = "Package: linux-image-6.1.0-9-amd64\nVersion: 6.1.27-1\nInstalled-Size: 1024\n\
                         Size: 1048576\n\
                         SHA256: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n\n\
                         Package: linux-image-6.1.0-9-amd64\nVersion: 6.1.20-1\n";

    /// A package that was unpacked earlier, with these files.
    fn unpacked(cache: &Path, package: &str, files: &[(&str, &str)]) {
        let packages = cache.join("packages");
        for (name, contents) in files {
            let path = packages.join(package).join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, contents).expect("written");
        }
        fs::write(packages.join(format!("{package}.version")), "7.2.12-1").expect("written");
    }

    #[test]
    fn a_kernel_is_put_together_from_the_packages_that_it_was_split_into() {
        let cache = tempfile::tempdir().expect("a directory");
        let packages = Packages::new(cache.path(), |_| ());
        let release = "7.2.12-amd64";
        let [binary, modules, base] =
            &["binary", "modules", "base"].map(|part| format!("linux-{part}-{release}"));
        let place = "usr/lib/modules/7.2.12-amd64";
        unpacked(cache.path(), binary, &[(&format!("{place}/vmlinuz"), "image")]);
        unpacked(cache.path(), modules, &[(&format!("{place}/kernel/fs/ext4.ko"), "module")]);
        unpacked(cache.path(), base, &[(&format!("{place}/modules.builtin"), "kernel/fs/proc.ko\n")]);
        for _ in 0..2 {
            let (image, modules) = packages.parts(release).expect("whole");
            assert_eq!(fs::read_to_string(image).expect("there"), "image");
            let built_in = fs::read_to_string(modules.join("modules.builtin")).expect("there");
            assert_eq!(built_in, "kernel/fs/proc.ko\n");
            assert!(modules.join("kernel/fs/ext4.ko").exists());
        }
        // One that lacks a part is refused by the part's name.
        fs::remove_dir_all(cache.path().join("packages").join(binary).join(place)).expect("removed");
        let error = packages.parts(release).unwrap_err().to_string();
        assert!(error.ends_with("linux-binary-7.2.12-amd64 has no lib/modules/7.2.12-amd64"), "{error}");
    }

    #[test]
    fn a_package_is_used_only_if_its_sum_is_that_of_the_index() {
        let indexed = Indexed::parse("linux-image-6.1.0-9-amd64", SHOWN).expect("complete");
        assert_eq!((indexed.version.as_str(), indexed.needed), ("6.1.27-1", Bytes::mib(130)));
        let directory = tempfile::tempdir().expect("a directory");
        let archive = directory.path().join("a.deb");
        fs::write(&archive, "abc").expect("written");
        indexed.verify(&archive).expect("the same");
        fs::write(&archive, "abd").expect("written");
        let error = indexed.verify(&archive).unwrap_err().to_string();
        assert!(error.contains("its SHA256 is") && error.contains("thrown away"), "{error}");
        assert_eq!(Indexed::parse("x", "Version: 1\nSize: 4\n"), None);
    }

    #[test]
    fn a_file_system_without_room_is_named_before_anything_is_downloaded() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut indexed = Indexed::parse("linux-image", SHOWN).expect("complete");
        indexed.fits(directory.path()).expect("room for 130 MiB");
        indexed.needed = Bytes(u64::MAX);
        let error = indexed.fits(directory.path()).unwrap_err().to_string();
        assert!(error.contains("linux-image needs") && error.ends_with("are free"), "{error}");
    }
}
