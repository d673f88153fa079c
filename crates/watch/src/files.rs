//! The files that programs bring into the page cache, by name.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file as tracepoints name it: the kernel's device number of its file system, and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// What a program does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    Reading,
    Writing,
    /// Open for both.
    Both,
}

/// The most descriptors of a process that are looked at.
const MOST_OPEN: usize = 1024;

/// A file that a process has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) name: PathBuf,
    pub(crate) how: Use,
    /// Where `/proc` has it, under any name or none.
    pub(crate) descriptor: PathBuf,
}

/// A file that a process has open; `None` if it has been closed. File systems with several devices (btrfs)
/// show other device numbers in `stat` than in tracepoints, so only the inode has to be the same where no
/// device is.
pub(crate) fn find(process: u32, file: FileId) -> Option<Open> {
    let directory = PathBuf::from(format!("/proc/{process}"));
    let open = fs::read_dir(directory.join("fd")).ok()?.filter_map(Result::ok).take(MOST_OPEN);
    let mut other = None;
    for descriptor in open {
        let path = descriptor.path();
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.ino() != file.inode || !metadata.is_file() {
            continue;
        }
        let Ok(name) = fs::read_link(&path) else { continue };
        let how = used(&directory, &descriptor.file_name());
        let found = Open { name, how, descriptor: path };
        if kernel_device(metadata.dev()) == file.device {
            return Some(found);
        }
        other = Some(found);
    }
    other
}

/// The kernel's own form of a device number (`include/linux/kdev_t.h:MKDEV`), of the form that `stat` gives.
fn kernel_device(device: u64) -> u64 {
    (major(device) << 20) | minor(device)
}

/// Major number, as glibc and the kernel's `huge_encode_dev` lay it out.
fn major(device: u64) -> u64 {
    ((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff)
}

/// Minor number, likewise.
fn minor(device: u64) -> u64 {
    ((device >> 12) & 0xffff_ff00) | (device & 0xff)
}

/// What a descriptor is open for: the lowest bits of `flags` in `fdinfo`.
fn used(directory: &Path, descriptor: &std::ffi::OsStr) -> Use {
    let text = fs::read_to_string(directory.join("fdinfo").join(descriptor)).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    match flags & 3 {
        0 => Use::Reading,
        1 => Use::Writing,
        _ => Use::Both,
    }
}

/// What a program was seen doing, as a phrase: "reading /backup/a.tar", "reading below /backup", or nothing
/// where no file or directory stands for at least half of the pages.
pub(crate) fn phrase(files: &BTreeMap<(Use, PathBuf), u64>) -> Option<String> {
    let all: u64 = files.values().sum();
    let ((how, path), most) = files.iter().max_by_key(|(_, pages)| **pages)?;
    let verb = match how {
        Use::Reading => "reading",
        Use::Writing => "writing",
        Use::Both => "using",
    };
    if most * 2 > all {
        return Some(format!("{verb} {}", path.display()));
    }
    let mut below: BTreeMap<&Path, u64> = BTreeMap::new();
    for ((_, path), pages) in files {
        for directory in path.ancestors().skip(1).filter(|directory| directory.parent().is_some()) {
            *below.entry(directory).or_default() += pages;
        }
    }
    // The deepest directory that has most of them.
    let most = below
        .into_iter()
        .filter(|(_, pages)| pages * 10 > all * 8)
        .max_by_key(|(path, _)| path.components().count());
    most.map(|(path, _)| format!("{verb} below {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_this_process_has_open_is_found_by_its_inode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let id = FileId { device: kernel_device(metadata.dev()), inode: metadata.ino() };
        let found = find(std::process::id(), id).unwrap();
        assert_eq!((found.name.as_path(), found.how), (file.path(), Use::Both));
        assert_eq!(fs::metadata(found.descriptor).unwrap().ino(), id.inode);
        assert_eq!(find(std::process::id(), FileId { inode: 0, ..id }), None);
    }

    #[test]
    fn a_phrase_names_the_file_or_the_directory_that_stands_for_most() {
        let files = |list: &[(&str, u64)]| {
            list.iter().map(|(path, pages)| ((Use::Reading, PathBuf::from(path)), *pages)).collect()
        };
        assert_eq!(phrase(&files(&[("/backup/a", 90), ("/etc/b", 10)])).unwrap(), "reading /backup/a");
        let spread = files(&[("/srv/x/a", 30), ("/srv/x/b", 30), ("/srv/x/c/d", 30), ("/etc/e", 10)]);
        assert_eq!(phrase(&spread).unwrap(), "reading below /srv/x");
        assert_eq!(phrase(&files(&[("/a", 40), ("/b", 30), ("/c", 30)])), None);
        assert_eq!(phrase(&BTreeMap::new()), None);
    }
}
