//! The kernels in the cache: what is there, and how Debian's come into it.
//!
//! ```text
//! .download/packages/…   apt's archive, verified and unpacked
//! .download/kernel/      vmlinuz, vmlinux, lib/modules/RELEASE
//! RELEASE/               the same, renamed: a kernel appears as a whole or not at all
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lotsfree_storage as storage;
use rustix::fs::FlockOperation;

use super::packages::by_number;
use super::{Error, Kernel, Packages, trust, vmlinux};

/// The directory below the cache in which kernels are made ready. No release begins with a dot.
const DOWNLOAD: &str = ".download";

/// A kernel of a series that is in the cache now.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The kernel.
    pub kernel: Kernel,
    /// Its directory.
    pub directory: PathBuf,
    /// Name and version of the package, as `linux-image-6.1.0-56-amd64 6.1.192-2`; `None`: the newest kernel
    /// of the series was there already.
    pub package: Option<String>,
}

/// The kernels in a cache by their directories, the oldest release first, and the directories that hold
/// none, with the reason.
pub fn list(cache: &Path) -> Vec<(PathBuf, Result<Kernel, Error>)> {
    let names = fs::read_dir(cache).into_iter().flatten().flatten();
    let mut names: Vec<String> = names
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_by(|a, b| by_number(a, b));
    names.into_iter().map(|name| cache.join(name)).map(|path| (path.clone(), Kernel::at(&path))).collect()
}

/// Puts the newest kernel of a series (`6.1`) that the package lists of this machine have into a cache.
/// `announce` is called with the name of a package before it is downloaded. Nothing is installed.
///
/// # Errors
/// If the lists have no such series, the package cannot be downloaded or is not that of the package index, or
/// there is no room. The cache then has no kernel more than before.
pub fn fetch(series: &str, cache: &Path, announce: fn(&str)) -> Result<Fetched, Error> {
    let series = series.strip_prefix("linux-").unwrap_or(series);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !series.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
        return Err(Error::NoSeries { name: series.to_owned() });
    }
    storage::create_dir_all(cache).map_err(Error::io(cache))?;
    trust::check(cache)?;
    let _lock = lock(cache)?;
    let download = cache.join(DOWNLOAD);
    clear(&download)?;
    let fetched = make(series, cache, &download, announce);
    let cleared = clear(&download);
    let fetched = fetched?;
    cleared?;
    Ok(fetched)
}

fn make(series: &str, cache: &Path, download: &Path, announce: fn(&str)) -> Result<Fetched, Error> {
    let packages = Packages::new(download, announce);
    let newest = packages.newest(series)?;
    let directory = cache.join(newest.trim_start_matches("linux-image-"));
    if directory.exists() {
        return Ok(Fetched { kernel: Kernel::at(&directory)?, directory, package: None });
    }
    let package = packages.kernel(series)?;
    let unfinished = download.join("kernel");
    let modules = unfinished.join("lib/modules");
    storage::create_dir_all(&modules).map_err(Error::io(&modules))?;
    vmlinux::extract(&package.image, &unfinished.join("vmlinux"))?;
    let rename = |from: &Path, to: &Path| storage::rename(from, to).map_err(Error::io(to));
    rename(&package.image, &unfinished.join("vmlinuz"))?;
    rename(&package.modules, &modules.join(&package.release))?;
    // What cannot be booted does not get a name.
    Kernel::at(&unfinished)?;
    rustix::fs::syncfs(storage::open_dir(&unfinished).map_err(Error::io(&unfinished))?)
        .map_err(|error| Error::io(&unfinished)(error.into()))?;
    rename(&unfinished, &directory)?;
    storage::sync_dir(cache).map_err(Error::io(cache))?;
    let kernel = Kernel::at(&directory)?;
    Ok(Fetched { kernel, directory, package: Some(format!("{} {}", package.package, package.version)) })
}

/// Waits for nobody: another one that downloads is named instead.
fn lock(cache: &Path) -> Result<File, Error> {
    let directory = storage::open_dir(cache).map_err(Error::io(cache))?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(Error::unusable(cache, "another `lotsfree lab kernel` downloads into it"))
        }
        Err(error) => Err(Error::io(cache)(error.into())),
    }
}

/// Removes what a download has left, or one that was killed.
fn clear(download: &Path) -> Result<(), Error> {
    match storage::remove_dir_all(download) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(download)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: &str) {}

    #[test]
    fn only_a_series_is_asked_for() {
        let cache = tempfile::tempdir().expect("a directory");
        for name in ["six", "6", "6.1.0-56-amd64", "", "-6.1", "6.x", "../6.1", "6.1 6.12"] {
            let error = fetch(name, &cache.path().join("none"), nobody).unwrap_err().to_string();
            assert!(error.ends_with("is no series of kernels: write 6.1 or 6.12"), "{error}");
        }
        assert!(!cache.path().join("none").exists());
    }

    #[test]
    fn what_a_killed_download_left_is_no_kernel() {
        let cache = tempfile::tempdir().expect("a directory");
        let half = cache.path().join(".download/kernel");
        fs::create_dir_all(half.join("lib/modules/6.1.0-9-amd64")).expect("made");
        fs::write(half.join("vmlinuz"), "half").expect("written");
        fs::create_dir(cache.path().join("6.1.0-8-amd64")).expect("made");
        let listed = list(cache.path());
        assert_eq!(listed.len(), 1);
        let (path, kernel) = &listed[0];
        assert!(path.ends_with("6.1.0-8-amd64"));
        assert!(kernel.as_ref().unwrap_err().to_string().contains("no kernel: neither vmlinuz"));
        clear(&cache.path().join(DOWNLOAD)).expect("removed");
        clear(&cache.path().join(DOWNLOAD)).expect("nothing to remove");
        assert_eq!(fs::read_dir(cache.path()).expect("read").count(), 1);
    }

    #[test]
    fn two_downloads_do_not_write_to_one_cache() {
        let cache = tempfile::tempdir().expect("a directory");
        let held = lock(cache.path()).expect("free");
        let error = fetch("6.1", cache.path(), nobody).unwrap_err().to_string();
        assert!(error.ends_with("another `lotsfree lab kernel` downloads into it"), "{error}");
        drop(held);
        lock(cache.path()).expect("free again");
    }
}
