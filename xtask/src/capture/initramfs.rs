//! An initramfs: an uncompressed cpio archive in the format `newc`, which
//! `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel describes.

use super::Result;

/// A cpio archive under construction.
#[derive(Default)]
pub(super) struct Initramfs {
    bytes: Vec<u8>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Initramfs {
    /// Adds a directory. Parents must be added first: the kernel does not make them.
    pub(super) fn directory(&mut self, path: &str) -> Result<()> {
        self.entry(path, DIRECTORY, (0, 0), &[])
    }

    /// Adds a regular file, readable and executable by all. Content of 4 GiB or more is an error.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.entry(path, PROGRAM, (0, 0), content)
    }

    /// Adds a character device with this major and minor number.
    pub(super) fn character_device(&mut self, path: &str, number: (u32, u32)) -> Result<()> {
        self.entry(path, CHARACTER_DEVICE, number, &[])
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, path: &str, mode: u32, node: (u32, u32), content: &[u8]) -> Result<()> {
        let (owner, links, mtime, device, checksum) = (0, 1, 0, 0, 0);
        let size = u32::try_from(content.len())?;
        let name_size = u32::try_from(path.len() + 1)?;
        self.bytes.extend_from_slice(b"070701");
        for field in [
            self.inode, mode, owner, owner, links, mtime, size, device, device, node.0, node.1, name_size,
            checksum,
        ] {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        self.inode += 1;
        Ok(())
    }

    /// Name and content end on a multiple of four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_fields_of_newc() {
        let mut initramfs = Initramfs::default();
        initramfs.character_device("c", (5, 1)).expect("small");
        initramfs.file("a/b", b"hello").expect("small");
        let bytes = initramfs.finish().expect("small");
        let expected = [
            "070701",
            "00000000", // inode
            "00002180", // mode
            "00000000", // user
            "00000000", // group
            "00000001", // links
            "00000000", // mtime
            "00000000", // size
            "00000000", // device, major
            "00000000", // and minor
            "00000005", // of the node, major
            "00000001", // and minor
            "00000002", // size of the name
            "00000000", // checksum
            "c\0",
            "070701",
            "00000001",
            "000081ED",
            "0000000000000000",
            "00000001",
            "00000000",
            "00000005",
            "00000000000000000000000000000000",
            "00000004",
            "00000000",
            "a/b\0\0\0",
            "hello\0\0\0",
            "070701",
        ];
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with(&expected.concat()), "{text}");
        assert!(text.ends_with("TRAILER!!!\0\0\0\0"), "{text}");
        assert_eq!(bytes.len() % 4, 0);
    }
}
