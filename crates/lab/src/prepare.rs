//! Files with contents and shared segments, which exist when a run begins. The scenario's settings are
//! written by `here.rs:tune`; the nodes of a virtual machine stand on QEMU's command line (`vm/command.rs`).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lotsfree_storage::remove_file;
use lotsfree_sys::{Buffer, Region, SharedMemory};
use lotsfree_workload::{FileId, Program, SegmentBacking, SegmentSpec};
use rustix::fs::{MemfdFlags, OFlags};

use crate::agent::{Segment, file_path, privileges};
use crate::error::{LabError, at, calling};

const PAGE: u64 = 4096;
/// Files are written in pieces of this many bytes.
const PIECE: u64 = 1 << 20;

/// The files of a directory that were written for one case and serve the next as well, if nobody has written
/// to them meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Written(BTreeMap<PathBuf, Stamp>);

/// Which file a path led to, and as of when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of the last change of its contents, and of anything.
    changed: [i64; 4],
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        let changed = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Some(Stamp { inode: found.ino(), bytes: found.len(), changed })
    }
}

impl Written {
    /// Bytes of the files that are there.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.values().map(|stamp| stamp.bytes).sum()
    }

    /// Writes the files of a program that exist when the run begins, but for those that an earlier case left
    /// as they have to be. They bypass the page cache, or leave it, so that none of them is in memory.
    /// Whatever else an earlier case left is removed. `watch` says whether to go on.
    ///
    /// # Errors
    /// The system's, above all that the disk is full.
    pub(crate) fn files(
        &mut self,
        program: &Program,
        directory: &Path,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LabError> {
        let wanted: BTreeMap<PathBuf, u64> = (0..)
            .zip(&program.files)
            .filter(|(_, spec)| spec.exists)
            .map(|(number, spec)| (file_path(directory, FileId(number)), u64::from(spec.pages) * PAGE))
            .collect();
        self.0
            .retain(|path, stamp| wanted.get(path) == Some(&stamp.bytes) && Stamp::of(path) == Some(*stamp));
        for entry in std::fs::read_dir(directory).map_err(at(directory))? {
            let path = entry.map_err(at(directory))?.path();
            if self.0.contains_key(&path) {
                forget(&path)?;
            } else {
                remove_file(&path).map_err(at(&path))?;
            }
        }
        for (path, bytes) in wanted {
            if self.0.contains_key(&path) {
                continue;
            }
            if file(&path, bytes, watch)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.0.extend(Stamp::of(&path).map(|stamp| (path, stamp)));
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Drops what the page cache has of a file, and what the kernel remembers of pages that it has evicted
/// (`mm/truncate.c:invalidate_mapping_pages`).
fn forget(path: &Path) -> Result<(), LabError> {
    let file = File::open(path).map_err(at(path))?;
    file.sync_all().map_err(at(path))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(|error| at(path)(error.into()))
}

/// Writes a file of `bytes` bytes, as [`Written::files`] does.
///
/// # Errors
/// The system's, above all that the disk is full, or the file is there already.
pub(crate) fn file(
    path: &Path,
    bytes: u64,
    watch: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<ControlFlow<()>, LabError> {
    let buffer = Buffer::new(PIECE as usize).map_err(calling("mmap"))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let direct = options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    let file = match direct {
        // File systems in memory refuse O_DIRECT.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let _ = std::fs::remove_file(path);
            options.open(path).map_err(at(path))?
        }
        opened => opened.map_err(at(path))?,
    };
    let mut offset = 0;
    while offset < bytes {
        if watch().is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let now = PIECE.min(bytes - offset) as usize;
        file.write_all_at(buffer.as_ref().get(..now).unwrap_or_default(), offset).map_err(at(path))?;
        offset += now as u64;
    }
    file.sync_all().map_err(at(path))?;
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(ControlFlow::Continue(()))
}

/// The shared segments of a run. They are removed once this value is dropped and no actor has them attached.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) names: Vec<Segment>,
    /// Segments that did not get the pages that were asked for, and why.
    pub(crate) notes: Vec<String>,
    /// Keeps the System V segments; `_files` keeps the others.
    _regions: Vec<Region>,
    _files: Vec<File>,
}

impl Segments {
    /// Makes the segments. None of their pages is in memory yet, but huge pages are reserved in their pool.
    ///
    /// # Errors
    /// The kernel's: too few huge pages, limits of shared memory.
    pub(crate) fn new(specs: &[SegmentSpec]) -> Result<Self, LabError> {
        let mut segments = Segments::default();
        for spec in specs {
            let bytes = u64::from(spec.pages) * PAGE;
            match spec.backing {
                SegmentBacking::Shm => segments.shared_memory(spec, bytes, false)?,
                SegmentBacking::ShmHuge { or_base } => match segments.shared_memory(spec, bytes, true) {
                    Err(why) if or_base => {
                        segments.shared_memory(spec, bytes, false)?;
                        segments.notes.push(format!("{why}; base pages instead"));
                    }
                    made => made?,
                },
                SegmentBacking::Tmpfs { granule_pages } => {
                    segments.granules(&spec.name, bytes, u64::from(granule_pages.max(1)) * PAGE)?;
                }
            }
        }
        Ok(segments)
    }

    fn shared_memory(&mut self, spec: &SegmentSpec, bytes: u64, huge: bool) -> Result<(), LabError> {
        let SegmentSpec { name, memlock, .. } = spec;
        let with = if huge { " with SHM_HUGETLB" } else { "" };
        let what = format!("{name}: shmget of {bytes} bytes{with}");
        let size = usize::try_from(bytes).map_err(|_| LabError::Refused(format!("{what}: too large")))?;
        let create = move || SharedMemory::create(size, huge);
        let segment = match memlock {
            Some(limit) if huge => privileges::within_memlock(*limit, create),
            _ => create(),
        };
        let segment = segment.map_err(calling(what))?;
        let attached = Region::segment(segment, size);
        // From here on the kernel removes the segment with the last process that has it attached, however
        // that ends.
        segment.remove().map_err(calling("shmctl"))?;
        self._regions.push(attached.map_err(calling("shmat"))?);
        self.names.push(Segment::SharedMemory(segment.0));
        Ok(())
    }

    fn granules(&mut self, name: &str, bytes: u64, granule: u64) -> Result<(), LabError> {
        let mut paths = Vec::new();
        for number in 0..bytes.div_ceil(granule) {
            let what = format!("{name}-{number}");
            let file = rustix::fs::memfd_create(&what, MemfdFlags::CLOEXEC).map_err(io::Error::from);
            let file = File::from(file.map_err(calling("memfd_create"))?);
            file.set_len(granule).map_err(calling("ftruncate"))?;
            paths.push(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into());
            self._files.push(file);
        }
        self.names.push(Segment::Files { paths, granule });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lotsfree_workload::FileSpec;

    fn program(files: &[(u32, bool)]) -> Program {
        let spec = |(number, (pages, exists)): (usize, &(u32, bool))| FileSpec {
            name: number.to_string(),
            pages: *pages,
            exists: *exists,
        };
        Program {
            files: files.iter().enumerate().map(spec).collect(),
            segments: Vec::new(),
            commands: Vec::new(),
            processes: Vec::new(),
        }
    }

    #[test]
    fn only_files_that_exist_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number| file_path(directory.path(), FileId(number));
        let program = program(&[(300, true), (5, false)]);
        let done = Written::default().files(&program, directory.path(), &mut || ControlFlow::Continue(()));
        assert!(done.unwrap().is_continue());
        let first = std::fs::read(path(0)).unwrap();
        assert_eq!(first.len(), 300 * 4096);
        assert!(!first.contains(&0));
        assert!(!path(1).exists());
    }

    #[test]
    fn files_are_written_once_for_all_cases_that_leave_them_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number| file_path(directory.path(), FileId(number));
        let mut written = Written::default();
        let mut prepare = |files: &[(u32, bool)]| {
            let mut pieces = 0;
            let watch = &mut || {
                pieces += 1;
                ControlFlow::Continue(())
            };
            assert!(written.files(&program(files), directory.path(), watch).unwrap().is_continue());
            pieces
        };
        // 300 pages are two pieces of 1 MiB.
        assert_eq!(prepare(&[(300, true), (5, true), (5, false)]), 3);
        std::fs::write(path(2), "made by an actor").unwrap();
        assert_eq!(prepare(&[(300, true), (5, true), (5, false)]), 0);
        assert!(!path(2).exists());
        File::options().write(true).open(path(1)).unwrap().write_all_at(b"by an actor", 0).unwrap();
        assert_eq!(prepare(&[(300, true), (5, true)]), 1);
        assert!(!std::fs::read(path(1)).unwrap().starts_with(b"by an actor"));
        // Another size, another file.
        assert_eq!(prepare(&[(10, true)]), 1);
        assert!(!path(1).exists());
    }

    #[test]
    fn segments_can_be_attached() {
        let spec = |backing| SegmentSpec { name: "s".to_owned(), pages: 8, backing, memlock: None };
        let specs = [spec(SegmentBacking::Shm), spec(SegmentBacking::Tmpfs { granule_pages: 3 })];
        let segments = Segments::new(&specs).unwrap();
        let Segment::SharedMemory(id) = segments.names[0] else { panic!() };
        assert!(Region::segment(SharedMemory(id), 8 * 4096).is_ok());
        let Segment::Files { paths, granule } = &segments.names[1] else { panic!() };
        assert_eq!((paths.len(), *granule), (3, 3 * 4096));
        assert!(paths.iter().all(|path| path.exists()));
    }
}
