//! Swap areas.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Swaps to a device or file that has a swap header (`swapon`), with the kernel's next priority.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` without a header or on a file system that does not
/// support swap files, `EBUSY` if it is swapped to already.
pub fn swap_on(area: &Path) -> io::Result<()> {
    let area = path(area)?;
    // SAFETY: a string that ends with NUL and lives until the call returns.
    match unsafe { libc::swapon(area.as_ptr(), 0) } {
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
