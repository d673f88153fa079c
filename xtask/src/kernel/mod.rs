//! `cargo xtask kernel SOURCE [OUT]`: a small kernel for the lab, from a source tree of Linux 3.10 or later.
//!
//! ```text
//! OUT/.build-RELEASE/source/   a copy of SOURCE, in which the kernel is configured and built
//! OUT/.build-RELEASE/log       what make prints
//! OUT/.build-RELEASE/kernel/   vmlinuz, lib/modules/RELEASE/modules.builtin, from 5.0 on vmlinux
//! OUT/RELEASE/                 the same, renamed: a kernel appears as a whole or not at all
//! ```
//!
//! OUT is the lab's cache if it is not named. The user's tree is only read. The rest of `.build-RELEASE` is
//! removed, unless the build fails: then it stays for whoever wants to know why.
//!
//! The kernel has everything built in that the lab's guests need ([`options`]), so it has no modules. It is
//! not a distribution's kernel: drivers, mitigations and hardening are left out.

mod build;
mod options;
mod source;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_lab::vm::{Kernel, kernel};

use build::Build;
use source::Source;

const USAGE: &str = "name a directory with an unpacked kernel source, and a directory of kernels if it is not to \
                     be the lab's cache";

/// Parts of the kernel that the lab looks for by the names of their modules, to choose its devices.
const BUILT_IN: [&str; 4] = [
    "kernel/drivers/block/virtio_blk.ko",
    "kernel/drivers/char/virtio_console.ko",
    "kernel/drivers/virtio/virtio_pci.ko",
    "kernel/fs/ext4/ext4.ko",
];

/// Builds a kernel and puts it where the lab finds it.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (tree, out) = match arguments {
        [tree] => (tree, kernel::cache()),
        [tree, out] => (tree, PathBuf::from(out)),
        _ => return Err(USAGE.into()),
    };
    let source = Source::at(Path::new(tree))?;
    let release = source.version.release();
    build::check_tools(&source.version)?;
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let out = fs::canonicalize(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let directory = out.join(&release);
    if directory.exists() {
        return Err(format!("{} is there already; remove it to build it again", directory.display()).into());
    }
    let work = out.join(format!(".build-{release}"));
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir(&work)?;
    eprintln!("Linux {release}: build in {}", work.display());
    let build = Build::prepare(&source, &work)?;
    build.configure()?;
    build.compile()?;
    let finished = work.join("kernel");
    install(&build, &finished, &release)?;
    fs::rename(&finished, &directory)?;
    fs::remove_dir_all(&work)?;
    eprintln!("{}", directory.display());
    Ok(())
}

/// Makes the directory of a kernel, as the lab expects it, and checks that the lab takes it.
fn install(build: &Build<'_>, directory: &Path, release: &str) -> Result<(), Box<dyn Error>> {
    let modules = directory.join("lib/modules").join(release);
    fs::create_dir_all(&modules)?;
    fs::write(modules.join("modules.builtin"), BUILT_IN.join("\n") + "\n")?;
    fs::copy(build.image(), directory.join("vmlinuz"))?;
    if let Some(vmlinux) = build.vmlinux() {
        fs::copy(vmlinux, directory.join("vmlinux"))?;
    }
    let kernel = Kernel::at(directory)?;
    if kernel.release != release {
        return Err(format!("the kernel calls itself {} instead of {release}", kernel.release).into());
    }
    Ok(())
}
