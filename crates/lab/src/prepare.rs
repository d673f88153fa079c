//! Files with contents and shared segments, which exist when a run begins. The scenario's settings are
//! written by `here.rs:tune`; the nodes of a virtual machine stand on QEMU's command line (`vm/command.rs`).

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use lotsfree_sys::{Buffer, Region, SharedMemory};
use lotsfree_workload::{FileId, Program, SegmentBacking, SegmentSpec};
use rustix::fs::{MemfdFlags, OFlags};

use crate::agent::{Segment, file_path};
use crate::error::{LabError, at, calling};

const PAGE: u64 = 4096;
/// Files are written in pieces of this many bytes.
const PIECE: u64 = 1 << 20;

/// Writes the files that exist when the run begins. They bypass the page cache, so that none of them is in
/// memory. `watch` says whether to go on.
///
/// # Errors
/// The system's, above all that the disk is full.
pub(crate) fn files(
    program: &Program,
    directory: &Path,
    watch: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<ControlFlow<()>, LabError> {
    for (number, spec) in program.files.iter().enumerate() {
        let path = file_path(directory, FileId(number as u32));
        if spec.exists && file(&path, u64::from(spec.pages) * PAGE, watch)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Writes a file of `bytes` bytes, as [`files`] does.
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
                SegmentBacking::Shm => segments.shared_memory(&spec.name, bytes, false)?,
                SegmentBacking::ShmHuge => segments.shared_memory(&spec.name, bytes, true)?,
                SegmentBacking::Tmpfs { granule_pages } => {
                    segments.granules(&spec.name, bytes, u64::from(granule_pages.max(1)) * PAGE)?;
                }
            }
        }
        Ok(segments)
    }

    fn shared_memory(&mut self, name: &str, bytes: u64, huge: bool) -> Result<(), LabError> {
        let with = if huge { " with SHM_HUGETLB" } else { "" };
        let what = format!("{name}: shmget of {bytes} bytes{with}");
        let size = usize::try_from(bytes).map_err(|_| LabError::Refused(format!("{what}: too large")))?;
        let segment = SharedMemory::create(size, huge).map_err(calling(what))?;
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

    #[test]
    fn only_files_that_exist_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let spec = |name: &str, pages, exists| FileSpec { name: name.to_owned(), pages, exists };
        let program = Program {
            files: vec![spec("a", 300, true), spec("b", 5, false)],
            segments: Vec::new(),
            commands: Vec::new(),
            processes: Vec::new(),
        };
        let done = files(&program, directory.path(), &mut || ControlFlow::Continue(())).unwrap();
        assert!(done.is_continue());
        let first = std::fs::read(file_path(directory.path(), FileId(0))).unwrap();
        assert_eq!(first.len(), 300 * 4096);
        assert!(!first.contains(&0));
        assert!(!file_path(directory.path(), FileId(1)).exists());
    }

    #[test]
    fn segments_can_be_attached() {
        let spec = |backing| SegmentSpec { name: "s".to_owned(), pages: 8, backing };
        let specs = [spec(SegmentBacking::Shm), spec(SegmentBacking::Tmpfs { granule_pages: 3 })];
        let segments = Segments::new(&specs).unwrap();
        let Segment::SharedMemory(id) = segments.names[0] else { panic!() };
        assert!(Region::segment(SharedMemory(id), 8 * 4096).is_ok());
        let Segment::Files { paths, granule } = &segments.names[1] else { panic!() };
        assert_eq!((paths.len(), *granule), (3, 3 * 4096));
        assert!(paths.iter().all(|path| path.exists()));
    }
}
