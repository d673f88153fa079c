//! Extracts the kernel from its image, so that the guest need not decompress it: of the 13 s in which
//! software emulation boots Debian's 6.1 up to its root, BIOS and decompression take 8.
//!
//! QEMU starts an extracted kernel at its [PVH](https://xenbits.xen.org/docs/unstable/misc/pvh.html) entry,
//! without a BIOS. Kernels have had that entry since 4.21 if they are configured for it, as distributions'
//! are.

use std::io::Write as _;
use std::path::Path;

use lotsfree_storage::{self as storage, Access};

use super::{Error, tool, trust};

/// Type of the ELF note with the address at which PVH enters the kernel: `XEN_ELFNOTE_PHYS32_ENTRY`.
const PVH_ENTRY: u32 = 18;

/// Writes the kernel that is in a compressed image to a new file. Returns whether it did: no file is made if
/// the compression is not known here, or if the kernel has no PVH entry at which QEMU could start it.
///
/// # Errors
/// If the image cannot be read, if this is root and somebody else could exchange it, or if its contents are
/// too long for a kernel; if the new file exists already or cannot be written.
pub fn extract(image: &Path, to: &Path) -> Result<bool, Error> {
    extract_at_most(image, to, trust::VMLINUX)
}

fn extract_at_most(image: &Path, to: &Path, limit: u64) -> Result<bool, Error> {
    let bytes = trust::read(image, trust::IMAGE)?;
    let Some(payload) = payload(&bytes) else { return Ok(false) };
    let kernel = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            // The payload ends with the kernel's size.
            let end = payload.len().saturating_sub(4);
            let kernel = tool::unxz(&payload[..end], limit)?;
            kernel.ok_or_else(|| trust::too_long(image, limit))?
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = zstd::stream::read::Decoder::new(payload).map_err(Error::io(image))?;
            trust::decompressed(image, decoder.single_frame(), limit)?
        }
        _ => return Ok(false),
    };
    if !has_pvh_entry(&kernel) {
        return Ok(false);
    }
    let mut file = storage::create_new(to, Access::Umask).map_err(Error::io(to))?;
    file.write_all(&kernel).map_err(Error::io(to))?;
    Ok(true)
}

/// The compressed kernel of a bzImage. The header has its offset behind the boot loader's sectors at 0x248,
/// and its length after that, since version 2.08 of the
/// [protocol](https://docs.kernel.org/arch/x86/boot.html).
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?));
    if image.get(0x202..0x206)? != b"HdrS" || image.get(0x206..0x208)? < &[8, 2][..] {
        return None;
    }
    let sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + usize::try_from(word(0x248)?).ok()?;
    let length = usize::try_from(word(0x24c)?).ok()?;
    image.get(start..start.checked_add(length)?)
}

/// Whether an ELF file has the note of a PVH entry. A note has the sizes of its name and description, its
/// type, and its name.
fn has_pvh_entry(kernel: &[u8]) -> bool {
    let mut note = Vec::new();
    for field in [4, 8, PVH_ENTRY] {
        note.extend_from_slice(&field.to_le_bytes());
    }
    note.extend_from_slice(b"Xen\0");
    let wide = note.clone();
    note[4] = 4;
    // Notes begin at multiples of 4.
    let mut words = kernel.chunks_exact(4).enumerate();
    kernel.starts_with(b"\x7fELF")
        && words.any(|(at, word)| {
            word == [4, 0, 0, 0] && {
                let rest = &kernel[at * 4..];
                rest.starts_with(&note) || rest.starts_with(&wide)
            }
        })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn kernel(note: u32) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.resize(4096, 1);
        for field in [4, 8, note] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(b"Xen\0\0\0\0\0\0\0\0\0");
        bytes
    }

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x1f1] = 1;
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x206..0x208].copy_from_slice(&[15, 2]);
        bytes[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        bytes[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).expect("short").to_le_bytes());
        bytes.resize(0x410, 0);
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(b"what follows");
        bytes
    }

    #[test]
    fn a_kernel_with_the_entry_is_taken_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let extracted = |payload: &[u8]| {
            fs::write(path("bzImage"), image(payload)).expect("written");
            let done = extract(&path("bzImage"), &path("vmlinux")).expect("readable");
            let kernel = fs::read(path("vmlinux")).ok();
            let _ = fs::remove_file(path("vmlinux"));
            assert_eq!(done, kernel.is_some());
            kernel
        };
        let zstd = |kernel: &[u8]| [zstd::encode_all(kernel, 1).expect("short"), vec![0, 16, 0, 0]].concat();
        assert_eq!(extracted(&zstd(&kernel(PVH_ENTRY))), Some(kernel(PVH_ENTRY)));
        assert_eq!(extracted(&zstd(&kernel(17))), None);
        assert_eq!(extracted(b"\x1f\x8b gzip"), None);
        fs::write(path("kernel"), kernel(PVH_ENTRY)).expect("written");
        if let Ok(xz) = tool::output_bytes(Command::new("xz").arg("--stdout").arg(path("kernel"))) {
            assert_eq!(extracted(&[xz, vec![0, 16, 0, 0]].concat()), Some(kernel(PVH_ENTRY)));
        }
    }

    #[test]
    fn a_kernel_that_unpacks_to_gigabytes_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let zeros = vec![0; 1 << 20];
        let bomb = zstd::encode_all(&zeros[..], 1).expect("short");
        fs::write(path("bzImage"), image(&bomb)).expect("written");
        assert!(!extract_at_most(&path("bzImage"), &path("vmlinux"), 1 << 20).expect("short enough"));
        let error = extract_at_most(&path("bzImage"), &path("vmlinux"), (1 << 20) - 4096).unwrap_err();
        let error = error.to_string();
        assert!(
            error.ends_with("bzImage: longer than 1020 KiB, so it is no kernel and no part of one"),
            "{error}"
        );
        assert!(!path("vmlinux").exists());
    }

    #[test]
    fn what_is_there_is_not_taken_for_the_new_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let compressed = zstd::encode_all(&kernel(PVH_ENTRY)[..], 1).expect("short");
        fs::write(path("bzImage"), image(&[compressed, vec![0; 4]].concat())).expect("written");
        std::os::unix::fs::symlink(path("elsewhere"), path("vmlinux")).expect("linked");
        assert!(extract(&path("bzImage"), &path("vmlinux")).is_err());
        assert!(!path("elsewhere").exists());
    }

    #[test]
    fn what_is_no_image_has_no_payload() {
        assert!(payload(&image(b"kernel")).is_some_and(|payload| payload == b"kernel"));
        let mut old = image(b"kernel");
        old[0x206] = 7;
        assert_eq!(payload(&old), None);
        assert_eq!(payload(&image(b"kernel")[..0x412]), None);
        assert_eq!(payload(b"\x7fELF"), None);
    }
}
