//! Namespaces of a thread.

use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

/// Mounts a file system for this thread only. The thread gets a mount namespace of its own, which ends with
/// it, so that nobody else sees the mount and nothing has to be put back.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` if it does not know the file system.
pub fn mount_for_this_thread(kind: &str, place: &Path) -> io::Result<()> {
    // SAFETY: a number only; the namespace of mounts touches no memory of this process.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount("none", place, kind, flags, None)?)
}
