//! Disk images: sparse files with a file system, a swap area or both.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write as _};
use std::path::Path;

use lotsfree_scenario::Filesystem;
use lotsfree_storage::{self as storage, Access, OutFile};
use rustix::fs::SeekFrom as Seeking;

use super::mbr::Layout;
use super::{Disk, Error, tool};

/// Features of ext4 and ext3 that every kernel since 2.6.28 knows, so that the file system is the same
/// whatever the version of `mkfs.ext4` and of the guest's kernel. `none` clears the defaults of `mkfs.ext4`.
const EXT4: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,flex_bg,sparse_super,\
                    large_file,huge_file,uninit_bg,dir_nlink,extra_isize";
const EXT3: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,sparse_super,large_file";

/// Makes the image of a disk in a private directory.
///
/// # Errors
/// If the program that makes the file system is missing or fails, or the image exists already or cannot be
/// written.
pub(crate) fn create(disk: &Disk, directory: &Path) -> Result<(), Error> {
    let path = directory.join(disk.name);
    match (disk.files, disk.swap) {
        (Some((kind, size)), None) => {
            sparse(&path, size.0)?;
            make_file_system(kind, &path)
        }
        (None, Some(size)) => {
            let mut image = sparse(&path, size.0)?;
            let header = lotsfree_changes::swap_header(size.0).map_err(Error::io(&path))?;
            image.write_all(&header).map_err(Error::io(&path))
        }
        (Some((kind, size)), Some(area)) => {
            let layout = Layout::new(size, area).ok_or_else(|| {
                Error::unusable(&path, "files and swap on one disk are bounded to 2 TiB in all")
            })?;
            let part = directory.join(format!("{}.part", disk.name));
            let files = sparse(&part, layout.files.size)?;
            make_file_system(kind, &part)?;
            let mut image = sparse(&path, layout.size())?;
            let header = lotsfree_changes::swap_header(layout.swap.size).map_err(Error::io(&path))?;
            write_at(&mut image, 0, &layout.sector())
                .and_then(|()| write_at(&mut image, layout.swap.start, &header))
                .and_then(|()| copy_data(files.file(), &mut image, layout.files.start))
                .map_err(Error::io(&path))?;
            storage::remove_file(&part).map_err(Error::io(&part))
        }
        (None, None) => sparse(&path, 0).map(|_| ()),
    }
}

/// The length of a disk's image.
pub(crate) fn length(disk: &Disk) -> u64 {
    match (disk.files, disk.swap) {
        (Some((_, size)), Some(area)) => Layout::new(size, area).map_or(0, |layout| layout.size()),
        (files, swap) => files.map_or(0, |(_, size)| size.0) + swap.map_or(0, |size| size.0),
    }
}

fn write_at(image: &mut OutFile, at: u64, bytes: &[u8]) -> io::Result<()> {
    image.file().seek(SeekFrom::Start(at))?;
    image.write_all(bytes)
}

/// Makes a sparse file of this size.
fn sparse(path: &Path, size: u64) -> Result<OutFile, Error> {
    let file = storage::create_new(path, Access::Private).map_err(Error::io(path))?;
    file.set_len(size).map_err(Error::io(path))?;
    Ok(file)
}

/// Makes a file system. All its structures are written at once, so that the guest has nothing left to
/// initialise while it is measured.
fn make_file_system(kind: Filesystem, image: &Path) -> Result<(), Error> {
    let (program, options): (_, &[&str]) = match kind {
        // One inode per MiB of the disk.
        Filesystem::Ext4 => ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-i", "1048576", "-O", EXT4]),
        Filesystem::Ext3 => ("mkfs.ext3", &["-q", "-F", "-b", "4096", "-i", "1048576", "-O", EXT3]),
        Filesystem::Xfs => ("mkfs.xfs", &["-q", "-f"]),
        Filesystem::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
    };
    let mut command = tool::administrative(program);
    command.args(options);
    if program.starts_with("mkfs.ext") {
        command.args(["-m", "0", "-J", "size=64", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]);
    }
    tool::output(command.arg(image)).map(|_| ())
}

/// Copies the data of a sparse file, but not its holes, to an offset in another one.
fn copy_data(from: &File, to: &mut OutFile, start: u64) -> io::Result<()> {
    let (mut at, end) = (0, from.metadata()?.len());
    let mut source = from;
    while at < end {
        let Ok(data) = rustix::fs::seek(from, Seeking::Data(at)) else { break };
        let hole = rustix::fs::seek(from, Seeking::Hole(data))?;
        source.seek(SeekFrom::Start(data))?;
        to.file().seek(SeekFrom::Start(start + data))?;
        io::copy(&mut io::Read::take(source, hole - data), to)?;
        at = hole;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::super::disk::Throttle;
    use lotsfree_units::Bytes;

    use super::*;

    fn image(
        files: Option<(Filesystem, Bytes)>,
        swap: Option<Bytes>,
    ) -> Option<(tempfile::TempDir, Vec<u8>, u64)> {
        let directory = tempfile::tempdir().expect("a directory");
        let throttle = Throttle { bandwidth: Bytes::mib(1), iops: None };
        match create(&Disk { name: "disk", files, swap, throttle }, directory.path()) {
            Err(Error::NotStarted { program, .. }) => {
                assert!(program.starts_with("mkfs."), "{program}");
                return None;
            }
            made => made.expect("made"),
        }
        let path = directory.path().join("disk");
        let blocks = fs::metadata(&path).expect("there").blocks();
        let file = File::open(&path).expect("there");
        let mut head = vec![0; 2 << 20];
        let read = file.read_at(&mut head, 0).expect("read");
        head.truncate(read);
        assert_eq!(fs::read_dir(directory.path()).expect("there").count(), 1);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let disk = Disk { name: "disk", files, swap, throttle };
        assert_eq!(fs::metadata(&path).expect("there").len(), length(&disk));
        assert!(create(&disk, directory.path()).is_err(), "it is there");
        Some((directory, head, blocks * 512))
    }

    /// Magic number and size in blocks of an ext2, ext3 or ext4 file system that begins at `start`.
    fn super_block(head: &[u8], start: usize) -> (u16, u32) {
        let block = &head[start + 1024..];
        let size = u32::from_le_bytes(block[4..8].try_into().expect("four bytes"));
        (u16::from_le_bytes([block[56], block[57]]), size)
    }

    #[test]
    fn a_swap_disk_is_its_header() {
        let (_directory, head, taken) = image(None, Some(Bytes::mib(64))).expect("needs no program");
        assert_eq!(head[..4096], lotsfree_changes::swap_header(64 << 20).expect("large enough"));
        assert!(taken <= 65_536, "{taken}");
    }

    #[test]
    fn a_file_system_takes_little_room() {
        for kind in [Filesystem::Ext4, Filesystem::Ext3] {
            let Some((_directory, head, taken)) = image(Some((kind, Bytes::gib(2))), None) else { return };
            assert_eq!(super_block(&head, 0), (0xef53, 1 << 19));
            assert!(taken < 128 << 20, "{taken}");
        }
    }

    #[test]
    fn files_and_swap_share_a_disk() {
        let both = image(Some((Filesystem::Ext4, Bytes::mib(512))), Some(Bytes::mib(64)));
        let Some((directory, head, _)) = both else { return };
        let layout = Layout::new(Bytes::mib(512), Bytes::mib(64)).expect("small");
        assert_eq!(head[..512], layout.sector());
        assert_eq!(super_block(&head, 1 << 20), (0xef53, 512 << 8));
        let file = File::open(directory.path().join("disk")).expect("there");
        let mut page = vec![0; 4096];
        file.read_exact_at(&mut page, layout.swap.start).expect("read");
        assert_eq!(page, lotsfree_changes::swap_header(64 << 20).expect("large enough"));
    }
}
