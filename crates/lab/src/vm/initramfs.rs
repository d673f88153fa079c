//! An initramfs: an uncompressed cpio archive in the format `newc`, which
//! `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel describes.

use std::collections::BTreeSet;

use super::Error;

/// A cpio archive under construction.
#[derive(Debug, Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    inode: u32,
    directories: BTreeSet<String>,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Initramfs {
    /// Adds a directory and those above it, which the kernel would not make by itself. A directory is added
    /// only once.
    pub fn directory(&mut self, path: &str) {
        if !path.is_empty() && self.directories.insert(path.to_owned()) {
            self.above(path);
            self.entry(path, DIRECTORY, (0, 0), &[]);
        }
    }

    /// Adds a regular file, readable and executable by all, and the directories above it.
    ///
    /// # Errors
    /// If the content has 4 GiB or more.
    pub fn file(&mut self, path: &str, content: &[u8]) -> Result<(), Error> {
        if u32::try_from(content.len()).is_err() {
            return Err(Error::TooLarge { path: path.to_owned() });
        }
        self.above(path);
        self.entry(path, PROGRAM, (0, 0), content);
        Ok(())
    }

    /// Adds a character device with this major and minor number, and the directories above it.
    pub fn character_device(&mut self, path: &str, number: (u32, u32)) {
        self.above(path);
        self.entry(path, CHARACTER_DEVICE, number, &[]);
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn above(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, node: (u32, u32), content: &[u8]) {
        let (owner, links, mtime, device, checksum) = (0, 1, 0, 0, 0);
        self.bytes.extend_from_slice(b"070701");
        for field in [self.inode, mode, owner, owner, links, mtime] {
            self.number(field);
        }
        self.number(content.len());
        for field in [device, device, node.0, node.1] {
            self.number(field);
        }
        self.number(path.len() + 1);
        self.number(checksum);
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        self.inode += 1;
    }

    fn number(&mut self, number: impl std::fmt::UpperHex) {
        self.bytes.extend_from_slice(format!("{number:08X}").as_bytes());
    }

    /// Pads with zeros to a multiple of four bytes, as name and content need.
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
        initramfs.character_device("c", (5, 1));
        initramfs.file("a/b", b"hello").expect("small");
        let bytes = initramfs.finish();
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
            "000041ED", // a directory above the file
            "0000000000000000",
            "00000001",
            "00000000",
            "00000000",
            "00000000000000000000000000000000",
            "00000002",
            "00000000",
            "a\0",
            "070701",
            "00000002",
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

    #[test]
    fn directories_are_made_once_and_from_above() {
        let mut initramfs = Initramfs::default();
        initramfs.directory("a/b");
        initramfs.file("a/b/c", b"").expect("small");
        initramfs.directory("a");
        let text = String::from_utf8_lossy(&initramfs.finish()).into_owned();
        assert_eq!(text.matches("070701").count(), 4, "{text}");
        assert!(text.find("a\0").expect("there") < text.find("a/b\0").expect("there"));
    }
}
