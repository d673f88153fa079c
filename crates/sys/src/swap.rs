//! Swap areas.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `SWAP_FLAG_PREFER` and `SWAP_FLAG_PRIO_MASK` of `include/linux/swap.h`.
const PREFER: i32 = 0x8000;
const PRIORITY: i32 = 0x7fff;

fn path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Swaps to a device or file that has a swap header (`swapon`), with the kernel's next priority.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` without a header or on a file system that does not
/// support swap files, `EBUSY` if it is swapped to already.
pub fn swap_on(area: &Path) -> io::Result<()> {
    enable(area, 0)
}

/// As [`swap_on`], with a priority of 0 to 32767; areas of higher priority are filled first.
///
/// # Errors
/// Those of [`swap_on`].
pub fn swap_on_with_priority(area: &Path, priority: u16) -> io::Result<()> {
    enable(area, PREFER | i32::from(priority) & PRIORITY)
}

fn enable(area: &Path, flags: i32) -> io::Result<()> {
    let area = path(area)?;
    // SAFETY: a string that ends with NUL and lives until the call returns.
    match unsafe { libc::swapon(area.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Brings all pages of an area back into memory and stops swapping to it (`swapoff`).
///
/// # Errors
/// The kernel's: `ENOMEM` if the pages do not fit into memory, `EINVAL` if it is not a swap area in use.
pub fn swap_off(area: &Path) -> io::Result<()> {
    let area = path(area)?;
    // SAFETY: as above.
    match unsafe { libc::swapoff(area.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
