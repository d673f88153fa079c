//! [`Region`]: a mapping of this process.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, MlockAllFlags, ProtFlags};

use crate::{SharedMemory, page_size};

/// Memory mapped into this process, which is unmapped when the value is dropped.
///
/// Nothing borrows from it and every access is a single relaxed atomic byte or word, so that threads may load
/// and store at will while other processes change the same pages.
#[derive(Debug)]
pub struct Region {
    start: NonNull<c_void>,
    bytes: usize,
    end: End,
    contents: Option<Contents>,
}

/// What the pages of a region hold once they are written to.
#[derive(Debug)]
struct Contents {
    /// Words of each page that are random. The rest is one word over and over.
    random: usize,
    seed: u64,
    /// The pages that have their contents, a bit each.
    filled: Box<[AtomicU64]>,
}

/// How a region is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Unmap,
    /// `shmdt`
    Detach,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed through atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Advice for a region (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// `MADV_NORMAL`
    Normal,
    /// `MADV_SEQUENTIAL`
    Sequential,
    /// `MADV_RANDOM`
    Random,
    /// `MADV_WILLNEED`
    WillNeed,
    /// `MADV_DONTNEED`: anonymous contents are lost.
    DontNeed,
    /// `MADV_HUGEPAGE`
    HugePage,
    /// `MADV_NOHUGEPAGE`
    NoHugePage,
}

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// The word that fills what is not random.
const SAME: u64 = 0x5555_5555_5555_5555;

impl Region {
    /// Maps private anonymous memory.
    ///
    /// # Errors
    /// The kernel's, above all `ENOMEM`.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        Region::anonymous_with(bytes, false, false)
    }

    /// Maps private anonymous memory; with `populate` all of it at once (`MAP_POPULATE`), with `huge` in
    /// pages of the pool of 2 MiB, to which the length is rounded up (`MAP_HUGETLB`).
    ///
    /// # Errors
    /// The kernel's, above all `ENOMEM`, also where the pool has too few pages.
    pub fn anonymous_with(bytes: usize, populate: bool, huge: bool) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mut flags = MapFlags::PRIVATE;
        flags.set(MapFlags::POPULATE, populate);
        flags.set(MapFlags::HUGETLB | MapFlags::HUGE_2MB, huge);
        // A mapping of huge pages can only be unmapped in whole ones.
        let bytes = if huge { bytes.next_multiple_of(HUGE) } else { bytes };
        // SAFETY: the kernel chooses the address, so that no existing mapping is touched.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, flags)? };
        Region::owned(start, bytes, End::Unmap)
    }

    /// Maps a file from its beginning, shared or private; with `populate` all of it at once (`MAP_POPULATE`).
    /// Stores to a shared mapping need a file opened for
    /// reading and writing. Accesses beyond the end of the file raise `SIGBUS`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn file(file: &File, bytes: usize, shared: bool, populate: bool) -> io::Result<Self> {
        let mut flags = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        flags.set(MapFlags::POPULATE, populate);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so that no existing mapping is touched.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, file, 0)? };
        Region::owned(start, bytes, End::Unmap)
    }

    /// Attaches a segment of System V shared memory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn segment(segment: SharedMemory, bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address, so that no existing mapping is touched.
        let start = unsafe { libc::shmat(segment.0, ptr::null(), 0) };
        if start.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        Region::owned(start, bytes, End::Detach)
    }

    /// Maps files one behind the other, each of `granule` bytes and as a shared mapping of its own.
    ///
    /// # Errors
    /// The kernel's, also for a granule that is not a multiple of a page.
    pub fn granules(files: &[File], granule: usize) -> io::Result<Self> {
        let bytes = files.len().checked_mul(granule).ok_or(io::ErrorKind::InvalidInput)?;
        let whole = {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: the kernel chooses the address, so that no existing mapping is touched.
            let start =
                unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), flags)? };
            Region::owned(start, bytes, End::Unmap)?
        };
        for (index, file) in files.iter().enumerate() {
            let (flags, protection) =
                (MapFlags::SHARED | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
            let at = whole.start.as_ptr().wrapping_byte_add(index * granule);
            // SAFETY: replaces a part of the reservation above, which nothing else knows of.
            unsafe { rustix::mm::mmap(at, granule, protection, flags, file, 0)? };
        }
        Ok(whole)
    }

    fn owned(start: *mut c_void, bytes: usize, end: End) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Region { start, bytes, end, contents: None })
    }

    /// Has each page filled before the first store to it, with this number of bytes that do not compress
    /// and others that hardly take room. Pages that nobody fills are zero but for a byte, and compress to
    /// nothing.
    #[must_use]
    pub fn filled(mut self, random_bytes: usize, seed: u64) -> Self {
        let words = (self.bytes / page_size()).div_ceil(64);
        let filled = std::iter::repeat_with(|| AtomicU64::new(0)).take(words).collect();
        self.contents = Some(Contents { random: random_bytes.min(page_size()) / 8, seed, filled });
        self
    }

    /// Fills a page that has no contents yet.
    #[cold]
    fn fill(&self, contents: &Contents, page: usize) {
        let page_bytes = page_size();
        let mut state = contents.seed ^ (page as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for word in 0..page_bytes / 8 {
            // splitmix64 (Steele, Lea and Flood, 2014).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let value = if word < contents.random { mixed ^ mixed >> 31 } else { SAME };
            let offset = page * page_bytes + word * 8;
            // SAFETY: the caller has checked that the page is within the mapping, which is aligned to
            // pages and lives as long as `self`; all accesses are atomic.
            let place = unsafe { AtomicU64::from_ptr(self.start.as_ptr().byte_add(offset).cast()) };
            place.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte of a base page, if there is such a page.
    #[inline]
    fn byte(&self, page: usize) -> Option<&AtomicU8> {
        let offset = page.checked_mul(4096).filter(|offset| *offset < self.bytes)?;
        // SAFETY: within the mapping, which lives as long as `self`; all accesses are atomic, and any value
        // is a valid byte.
        Some(unsafe { AtomicU8::from_ptr(self.start.as_ptr().byte_add(offset).cast()) })
    }

    /// The first byte of one base page; `None` if that is beyond the end.
    #[inline]
    pub fn load(&self, page: usize) -> Option<u8> {
        self.byte(page).map(|byte| byte.load(Ordering::Relaxed))
    }

    /// Loads from or stores to one base page; false if it is beyond the end.
    #[inline]
    pub fn touch(&self, page: usize, write: bool) -> bool {
        let Some(byte) = self.byte(page) else { return false };
        if write {
            if let Some(contents) = &self.contents
                && let Some(word) = contents.filled.get(page / 64)
                && word.fetch_or(1 << (page % 64), Ordering::Relaxed) >> (page % 64) & 1 == 0
            {
                self.fill(contents, page);
            }
            byte.store(page as u8 | 1, Ordering::Relaxed);
        } else {
            std::hint::black_box(byte.load(Ordering::Relaxed));
        }
        true
    }

    /// `madvise` on all of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn advise(&self, hint: Hint) -> io::Result<()> {
        let advice = match hint {
            Hint::Normal => Advice::Normal,
            Hint::Sequential => Advice::Sequential,
            Hint::Random => Advice::Random,
            Hint::WillNeed => Advice::WillNeed,
            Hint::DontNeed => Advice::LinuxDontNeed,
            Hint::HugePage => Advice::LinuxHugepage,
            Hint::NoHugePage => Advice::LinuxNoHugepage,
        };
        if let (Hint::DontNeed, Some(contents)) = (hint, &self.contents) {
            contents.filled.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        // SAFETY: the whole of a mapping of ours, to which nobody holds a reference; its contents may change.
        unsafe { rustix::mm::madvise(self.start.as_ptr(), self.bytes, advice) }.map_err(io::Error::from)
    }

    /// `mlock` on all of it: faults in every page.
    ///
    /// # Errors
    /// The kernel's, above all `ENOMEM` beyond `RLIMIT_MEMLOCK`.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: a mapping of ours.
        unsafe { rustix::mm::mlock(self.start.as_ptr(), self.bytes) }.map_err(io::Error::from)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: a mapping of ours, and no reference into it outlives `self`.
        unsafe {
            match self.end {
                End::Unmap => drop(rustix::mm::munmap(self.start.as_ptr(), self.bytes)),
                End::Detach => drop(libc::shmdt(self.start.as_ptr())),
            }
        }
    }
}

/// Locks all memory that this process has and will have (`mlockall`): all of it at once, or with `on_fault`
/// each page when it is first touched (`MCL_ONFAULT`, since 4.4).
///
/// # Errors
/// The kernel's, above all `ENOMEM` beyond `RLIMIT_MEMLOCK`.
pub fn lock_all(on_fault: bool) -> io::Result<()> {
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE;
    let flags = if on_fault { all | MlockAllFlags::ONFAULT } else { all };
    rustix::mm::mlockall(flags).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_beyond_the_end_is_refused() {
        let region = Region::anonymous(2 * page_size()).unwrap();
        assert!(region.touch(0, true) && region.touch(1, false));
        assert!(!region.touch(2, true) && !region.touch(usize::MAX, false));
        assert_eq!([region.load(0), region.load(1), region.load(2)], [Some(1), Some(0), None]);
    }

    #[test]
    fn a_page_is_filled_before_the_first_store_and_again_after_its_contents_are_gone() {
        let region = Region::anonymous(3 * page_size()).unwrap().filled(1000, 1);
        let page = |page: usize| -> Vec<u64> {
            let word = |word: usize| {
                let offset = page * page_size() + word * 8;
                // SAFETY: within the mapping, to which nobody else stores.
                unsafe { AtomicU64::from_ptr(region.pointer().byte_add(offset).cast()) }
                    .load(Ordering::Relaxed)
            };
            (0..page_size() / 8).map(word).collect()
        };
        assert!(region.touch(0, false) && region.touch(1, true) && region.touch(2, true));
        assert_eq!(page(0), vec![0; page_size() / 8], "a load fills nothing");
        let (first, second) = (page(1), page(2));
        assert!(
            first[..125].iter().all(|word| *word != SAME) && first[125..].iter().all(|word| *word == SAME)
        );
        assert!((1..125).all(|word| first[word] != second[word]), "no page is like another");
        assert!(region.touch(1, true));
        assert_eq!(page(1), first);
        region.advise(Hint::DontNeed).unwrap();
        assert_eq!(page(1), vec![0; page_size() / 8]);
        assert!(region.touch(1, true));
        assert_eq!(page(1), first);
    }

    #[test]
    fn a_shared_file_is_written_to() {
        let path = std::env::temp_dir().join(format!("lotsfree-sys-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(8192).unwrap();
        assert!(Region::file(&file, 8192, true, false).unwrap().touch(1, true));
        assert_eq!(std::fs::read(&path).unwrap()[4096], 1);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn granules_lie_behind_each_other() {
        let name = |i: u32| std::env::temp_dir().join(format!("lotsfree-sys-{}-{i}", std::process::id()));
        let open = |i| File::options().read(true).write(true).create(true).truncate(true).open(name(i));
        let files = [open(0).unwrap(), open(1).unwrap()];
        files.iter().for_each(|file| file.set_len(8192).unwrap());
        let region = Region::granules(&files, 8192).unwrap();
        assert!(region.touch(3, true));
        assert!(!region.touch(4, true));
        assert_eq!(std::fs::read(name(1)).unwrap()[4096], 3);
        [name(0), name(1)].iter().for_each(|name| std::fs::remove_file(name).unwrap());
    }
}
