//! `cargo xtask lab-kernel SERIES…`: puts Debian's kernels into the cache from which the lab boots.

use std::error::Error;
use std::fs;
use std::process::Command;

use lotsfree_lab::vm::{Kernel, Packages, kernel, vmlinux};

/// Downloads the kernels of the series that are not in the cache.
pub(crate) fn missing(series: &[String]) -> Result<(), Box<dyn Error>> {
    let missing: Vec<String> =
        series.iter().filter(|series| Kernel::find(series).is_err()).cloned().collect();
    match missing.as_slice() {
        [] if !series.is_empty() => Ok(()),
        missing => command(missing),
    }
}

/// For each series (`6.1`, `6.12`), downloads and unpacks the newest package, installs nothing, and leaves
/// `vmlinuz`, `vmlinux` and `lib/modules/RELEASE` in the cache's directory `RELEASE`.
pub(crate) fn command(series: &[String]) -> Result<(), Box<dyn Error>> {
    if series.is_empty() {
        return Err("name a series: 6.1 or 6.12".into());
    }
    let cache = kernel::cache();
    fs::create_dir_all(&cache).map_err(|error| format!("{}: {error}", cache.display()))?;
    for series in series {
        // The directory is beside the result, so that the files can be renamed into it.
        let download = tempfile::Builder::new().prefix(".download-").tempdir_in(&cache)?;
        let packages = Packages::new(download.path(), |package| eprintln!("downloading {package}"));
        let package = match packages.kernel(series) {
            // A machine that was just installed has no package lists.
            Err(lotsfree_lab::vm::Error::NoPackage { .. }) if update_lists()? => packages.kernel(series)?,
            package => package?,
        };
        let directory = cache.join(&package.release);
        if !directory.exists() {
            let unfinished = download.path().join("kernel");
            fs::create_dir_all(unfinished.join("lib/modules"))?;
            vmlinux::extract(&package.image, &unfinished.join("vmlinux"))?;
            fs::rename(&package.image, unfinished.join("vmlinuz"))?;
            fs::rename(&package.modules, unfinished.join("lib/modules").join(&package.release))?;
            fs::rename(&unfinished, &directory)?;
        }
        let kernel = Kernel::at(&directory)?;
        eprintln!("{} ({} {}): {}", kernel.release, package.package, package.version, directory.display());
    }
    Ok(())
}

/// Runs `apt-get update` as root, and returns whether that succeeded.
fn update_lists() -> Result<bool, Box<dyn Error>> {
    eprintln!("apt-get update");
    let status = Command::new("apt-get").args(["--quiet", "--quiet", "update"]).status();
    Ok(status.map_err(|error| format!("apt-get: {error}"))?.success())
}
