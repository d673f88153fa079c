//! How the jobs that read and write files do it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PAGE, Refusal};
use crate::op::{Advice, FileId, How, Op, RegionId};
use crate::quantity::Size;

/// How a job reads or writes a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// `read` and `write` through the page cache, as most programs do.
    #[default]
    Buffered,
    /// `O_DIRECT`: past the page cache.
    Direct,
    /// Through the page cache, but behind itself the job writes out what is dirty and gives up what it no
    /// longer needs (`fdatasync`, `POSIX_FADV_DONTNEED`), as a considerate backup does.
    Dontneed,
    /// By loading from and storing to a shared mapping of the whole file.
    Mmap,
    /// A copy as today's `cp` makes it: `copy_file_range`, and `POSIX_FADV_SEQUENTIAL` for what is read.
    /// Where a kernel has no such call (before 4.5), it reads and writes 128 KiB at a time.
    CopyFileRange,
}

/// What a job tells the kernel about the order of its reads (`posix_fadvise`, `madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hint {
    /// Nothing.
    #[default]
    None,
    /// `POSIX_FADV_SEQUENTIAL`, `MADV_SEQUENTIAL`.
    Sequential,
    /// `POSIX_FADV_RANDOM`, `MADV_RANDOM`: no readahead.
    Random,
}

impl Hint {
    pub(crate) fn advice(self) -> Option<Advice> {
        match self {
            Hint::None => None,
            Hint::Sequential => Some(Advice::Sequential),
            Hint::Random => Some(Advice::Random),
        }
    }
}

/// The bytes of a chunk: what one request reads or writes.
pub(crate) fn chunk(access: Access, size: Size) -> Result<u32, Refusal> {
    let bytes = size.bytes();
    if !(1..=1 << 30).contains(&bytes) {
        return Err(Refusal::new("chunk", format!("is {size}; it may be 1 B to 1 GiB")));
    }
    whole_pages("chunk", access, size)?;
    Ok(bytes as u32)
}

/// Refuses a size that is not whole pages where the access needs that.
pub(crate) fn whole_pages(key: &'static str, access: Access, size: Size) -> Result<(), Refusal> {
    let how = match access {
        Access::Direct => "direct",
        Access::Mmap => "mmap",
        Access::Buffered | Access::Dontneed | Access::CopyFileRange => return Ok(()),
    };
    if size.bytes().is_multiple_of(PAGE) {
        return Ok(());
    }
    Err(Refusal::new(key, format!("is {size}; with how = \"{how}\" it must be a multiple of 4 KiB")))
}

/// Bytes between two drops behind the job.
pub(crate) fn behind(access: Access, size: Size) -> Result<u64, Refusal> {
    match access {
        Access::Dontneed if size.bytes() == 0 => {
            Err(Refusal::new("behind", "is 0; it must be at least 1 B with how = \"dontneed\""))
        }
        Access::Dontneed => Ok(size.bytes()),
        _ => Ok(u64::MAX),
    }
}

/// One side of a job: a file that is read, or one that is written, from its beginning to its end.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) file: FileId,
    /// The region of its mapping, with [`Access::Mmap`].
    pub(crate) region: RegionId,
    pub(crate) pages: u32,
    pub(crate) access: Access,
    pub(crate) write: bool,
    /// Bytes between two drops.
    pub(crate) behind: u64,
    /// Where the part begins that is to be dropped.
    kept: u64,
}

impl Side {
    pub(crate) fn new(
        file: FileId,
        region: u32,
        pages: u32,
        access: Access,
        behind: u64,
        write: bool,
    ) -> Side {
        Side { file, region: RegionId(region), pages, access, write, behind, kept: 0 }
    }

    /// What comes before the first byte. A file to be written has been created.
    pub(crate) fn open(&mut self, hint: Hint, out: &mut Vec<Op>) {
        self.kept = 0;
        let Side { file, region, pages, .. } = *self;
        if self.access == Access::Mmap {
            out.push(Op::MapFile { region, file, pages, shared: true });
            out.extend(hint.advice().map(|advice| Op::AdviseRegion { region, advice }));
        } else {
            out.extend(hint.advice().map(|advice| Op::Advise { file, offset: 0, len: 0, advice }));
        }
    }

    /// Reads or writes the bytes from `offset` to `end`, in pieces of at most `piece` bytes.
    pub(crate) fn transfer(&self, offset: u64, end: u64, piece: u32, out: &mut Vec<Op>) {
        let Side { file, region, write, .. } = *self;
        let how = match self.access {
            Access::Mmap => {
                let pages = offset / PAGE..end.div_ceil(PAGE);
                out.extend(pages.map(|page| Op::Touch { region, page: page as u32, write }));
                return;
            }
            Access::Direct => How::Direct,
            Access::Buffered | Access::Dontneed | Access::CopyFileRange => How::Buffered,
        };
        let mut offset = offset;
        while offset < end {
            let len = (end - offset).min(u64::from(piece)) as u32;
            out.push(if write {
                Op::Write { file, offset, len, how }
            } else {
                Op::Read { file, offset, len, how }
            });
            offset += u64::from(len);
        }
    }

    /// Gives up what lies before `end`, once it is enough or if it is the `last` of the file.
    pub(crate) fn drop_behind(&mut self, end: u64, last: bool, out: &mut Vec<Op>) {
        let len = end.saturating_sub(self.kept);
        if self.access != Access::Dontneed || len == 0 || (len < self.behind && !last) {
            return;
        }
        let Side { file, kept: offset, .. } = *self;
        if self.write {
            out.push(Op::Sync { file });
        }
        dont_need(file, offset, end, out);
        self.kept = end;
    }

    /// Gives up a range at once.
    pub(crate) fn drop_range(&self, offset: u64, end: u64, out: &mut Vec<Op>) {
        if self.access == Access::Dontneed {
            dont_need(self.file, offset, end, out);
        }
    }

    /// What comes after the last byte.
    pub(crate) fn close(&self, out: &mut Vec<Op>) {
        if self.access == Access::Mmap {
            out.push(Op::Unmap { region: self.region });
        }
    }
}

/// `POSIX_FADV_DONTNEED` for the bytes from `offset` to `end`, a GiB at a time.
fn dont_need(file: FileId, mut offset: u64, end: u64, out: &mut Vec<Op>) {
    while offset < end {
        let len = (end - offset).min(1 << 30) as u32;
        out.push(Op::Advise { file, offset, len, advice: Advice::DontNeed });
        offset += u64::from(len);
    }
}
