//! A table of two partitions in the form of the PC's master boot record, which `block/partitions/msdos.c` of
//! the kernel reads.

use lotsfree_units::{Bytes, MIB};

/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Partitions begin at multiples of this.
const ALIGNMENT: u64 = MIB;

/// Start and size of a partition, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// Partitions of a disk with a file system and a swap area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) files: Partition,
    pub(crate) swap: Partition,
}

impl Layout {
    /// Places the two partitions one after the other. `None` if the disk has 2 TiB or more, as the table has
    /// 32 bits for numbers of sectors.
    pub(crate) fn new(files: Bytes, swap: Bytes) -> Option<Layout> {
        let sectors = |size: Bytes| size.0.checked_next_multiple_of(ALIGNMENT);
        let files = Partition { start: ALIGNMENT, size: sectors(files)? };
        let swap = Partition { start: files.start.checked_add(files.size)?, size: sectors(swap)? };
        let layout = Layout { files, swap };
        u32::try_from(layout.size() / SECTOR).ok().map(|_| layout)
    }

    /// Bytes of the disk.
    pub(crate) fn size(&self) -> u64 {
        self.swap.start.saturating_add(self.swap.size)
    }

    /// The first sector of the disk: 446 bytes for a boot loader, then four entries of 16 bytes. An entry has
    /// the status, the first sector's address in the old form (CHS), the type, the last sector's address in
    /// the old form, and then the number of the first sector and the count of sectors.
    pub(crate) fn sector(&self) -> Vec<u8> {
        /// Stands for an address that the old form cannot express.
        const FAR: [u8; 3] = [0xfe, 0xff, 0xff];
        let mut sector = vec![0; 446];
        for (partition, kind) in [(self.files, 0x83), (self.swap, 0x82)] {
            sector.push(0);
            sector.extend_from_slice(&FAR);
            sector.push(kind);
            sector.extend_from_slice(&FAR);
            for bytes in [partition.start, partition.size] {
                let number = u32::try_from(bytes / SECTOR).unwrap_or(u32::MAX);
                sector.extend_from_slice(&number.to_le_bytes());
            }
        }
        sector.resize(510, 0);
        sector.extend_from_slice(&[0x55, 0xaa]);
        sector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_two_partitions() {
        let layout = Layout::new(Bytes::mib(512), Bytes(MIB + 1)).expect("small");
        assert_eq!(layout.files, Partition { start: MIB, size: 512 * MIB });
        assert_eq!(layout.swap, Partition { start: 513 * MIB, size: 2 * MIB });
        assert_eq!(layout.size(), 515 * MIB);
        let sector = layout.sector();
        assert_eq!(sector.len(), 512);
        assert!(sector[..446].iter().all(|byte| *byte == 0));
        let first = [0, 0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff, 0, 8, 0, 0, 0, 0, 0x10, 0];
        assert_eq!(sector[446..462], first);
        let second = [0, 0xfe, 0xff, 0xff, 0x82, 0xfe, 0xff, 0xff, 0, 8, 0x10, 0, 0, 0x10, 0, 0];
        assert_eq!(sector[462..478], second);
        assert!(sector[478..510].iter().all(|byte| *byte == 0));
        assert_eq!(sector[510..], [0x55, 0xaa]);
    }

    #[test]
    fn a_large_disk_has_none() {
        assert!(Layout::new(Bytes::gib(2040), Bytes::gib(7)).is_some());
        assert_eq!(Layout::new(Bytes::gib(2040), Bytes::gib(8)), None);
        assert_eq!(Layout::new(Bytes(u64::MAX), Bytes::ZERO), None);
    }
}
