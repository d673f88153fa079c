//! [`Source`]: a directory with the source of a kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The oldest kernel that was built with this step.
const OLDEST: (u32, u32) = (3, 10);

/// A directory with the source of a kernel. It is only read.
pub(super) struct Source {
    pub directory: PathBuf,
    pub version: Version,
}

impl Source {
    /// Looks at a directory.
    ///
    /// # Errors
    /// If it holds no kernel source, or that of a kernel too old to be built here.
    pub(super) fn at(directory: &Path) -> Result<Self, String> {
        let place = directory.display();
        let no_source = |why: &str| {
            format!("{place}: no kernel source: {why}; unpack linux-VERSION.tar.xz and name its directory")
        };
        let makefile = fs::read_to_string(directory.join("Makefile"))
            .map_err(|error| no_source(&format!("Makefile: {error}")))?;
        let version = Version::parse(&makefile)
            .ok_or_else(|| no_source("its Makefile has no VERSION, PATCHLEVEL and SUBLEVEL"))?;
        for needed in ["Kconfig", "arch/x86", "mm"] {
            if !directory.join(needed).exists() {
                return Err(no_source(&format!("it has no {needed}")));
            }
        }
        if !version.at_least(OLDEST) {
            let (major, minor) = OLDEST;
            let release = version.release();
            return Err(format!("{place}: Linux {release}, but this step builds {major}.{minor} and later"));
        }
        Ok(Source { directory: directory.to_owned(), version })
    }
}

/// The version of a kernel source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    numbers: (u32, u32, u32),
    /// `-rc3` of a release candidate, or empty.
    candidate: String,
}

impl Version {
    /// Reads the first lines of a kernel's Makefile. `EXTRAVERSION` counts only if it names a release
    /// candidate: forks write there what they like, and the kernel built here is not theirs.
    pub(super) fn parse(makefile: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut pairs = makefile.lines().filter_map(|line| line.split_once('='));
            pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
        };
        let number = |name: &str| value(name)?.parse().ok();
        let numbers = (number("VERSION")?, number("PATCHLEVEL")?, number("SUBLEVEL")?);
        let candidate = value("EXTRAVERSION").filter(|extra| extra.starts_with("-rc")).unwrap_or_default();
        Some(Version { numbers, candidate: candidate.to_owned() })
    }

    /// Whether this is `major.minor` or later.
    pub(super) fn at_least(&self, (major, minor): (u32, u32)) -> bool {
        (self.numbers.0, self.numbers.1) >= (major, minor)
    }

    /// The text that `uname -r` prints in the guest.
    pub(super) fn release(&self) -> String {
        let (major, minor, patch) = self.numbers;
        format!("{major}.{minor}.{patch}{}", self.candidate)
    }

    /// The value of make's variable `EXTRAVERSION`.
    pub(super) fn candidate(&self) -> &str {
        &self.candidate
    }
}

/// The options that the Kconfig files below a directory declare, those of other architectures aside.
///
/// # Errors
/// If a directory cannot be read.
pub(super) fn declared(directory: &Path) -> std::io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let (entry, above) = (entry?, &directory);
            let name = entry.file_name().to_string_lossy().into_owned();
            let foreign = above.ends_with("arch") && name != "x86" && !name.starts_with("Kconfig");
            if entry.file_type()?.is_dir() && !foreign {
                directories.push(entry.path());
            } else if name.starts_with("Kconfig") && entry.file_type()?.is_file() {
                let text = fs::read(entry.path())?;
                names.extend(declared_in(&String::from_utf8_lossy(&text)).map(str::to_owned));
            }
        }
    }
    Ok(names)
}

fn declared_in(kconfig: &str) -> impl Iterator<Item = &str> {
    kconfig.lines().filter_map(|line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        ["config" | "menuconfig", name] => Some(name),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn makefile(extra: &str) -> String {
        format!("# x\nVERSION = 4\nPATCHLEVEL = 4\nSUBLEVEL = 50\nEXTRAVERSION ={extra}\nNAME = A = B\n")
    }

    #[test]
    fn a_makefile_says_the_version() {
        let version = Version::parse(&makefile("")).expect("a version");
        assert_eq!(version.release(), "4.4.50");
        assert!(version.at_least((3, 10)) && version.at_least((4, 4)) && !version.at_least((4, 10)));
        assert_eq!(Version::parse("all:\n\techo VERSION\n"), None);
        assert_eq!(Version::parse("VERSION = 4\nPATCHLEVEL = four\nSUBLEVEL = 1\n"), None);
    }

    #[test]
    fn only_a_release_candidate_keeps_its_extra_version() {
        let release = |extra: &str| Version::parse(&makefile(extra)).expect("a version").release();
        assert_eq!(release(" -rc3"), "4.4.50-rc3");
        assert_eq!(release(" +"), "4.4.50");
        assert_eq!(release(" -vendor"), "4.4.50");
    }

    #[test]
    fn a_directory_without_a_kernel_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = || Source::at(directory.path()).err().expect("refused");
        assert!(error().contains("no kernel source: Makefile: "), "{}", error());
        fs::write(directory.path().join("Makefile"), "all:\n").expect("written");
        assert!(error().contains("its Makefile has no VERSION"), "{}", error());
        fs::write(directory.path().join("Makefile"), makefile("").replace("4\n", "2\n")).expect("written");
        assert!(error().contains("it has no Kconfig"), "{}", error());
        fs::create_dir_all(directory.path().join("arch/x86")).expect("made");
        fs::create_dir(directory.path().join("mm")).expect("made");
        fs::write(directory.path().join("Kconfig"), "").expect("written");
        assert!(error().ends_with("Linux 2.2.50, but this step builds 3.10 and later"), "{}", error());
    }

    #[test]
    fn options_are_found_where_x86_has_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("above")).expect("made");
            fs::write(path, text).expect("written");
        };
        put("mm/Kconfig", "config KSM\n\tbool \"x\"\n\thelp\n\t  config of FOO\nmenuconfig SWAP\n");
        put("mm/Kconfig.debug", "config DEBUG_VM\n");
        put("arch/Kconfig", "config KPROBES\n");
        put("arch/x86/Kconfig", "config SMP\n");
        put("arch/arm/Kconfig", "config ARM\n");
        put("mm/ksm.c", "config NOT\n");
        let names = declared(directory.path()).expect("readable");
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(names, ["DEBUG_VM", "KPROBES", "KSM", "SMP", "SWAP"]);
    }
}
