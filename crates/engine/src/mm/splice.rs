//! `copy_file_range` between files that cannot share blocks: pages of one file go through a pipe and are
//! written to the other (`fs/splice.c:splice_direct_to_actor`).

use lotsfree_workload::{COPY_BUFFER, How};

use super::filemap::{Read, Write};
use super::readahead::RaState;
use super::{Cx, Done, Mm};

/// Pages that the pipe holds (`PIPE_DEF_BUFFERS`).
const PIPE_PAGES: u64 = 16;

/// A `copy_file_range` to the same place of another file, and how far it has come.
#[derive(Debug)]
pub struct CopyRange {
    offset: u64,
    len: u32,
    /// Bytes that are copied.
    done: u32,
    /// What is done with the next piece; `None` before the first poll and after each piece.
    half: Option<Half>,
}

#[derive(Debug)]
enum Half {
    Read(Read),
    Write(Write),
}

impl CopyRange {
    /// A copy between two files that each poll names.
    pub fn new(offset: u64, len: u32) -> Self {
        CopyRange { offset, len, done: 0, half: None }
    }

    /// Copies, or goes on to do so, up to the end of the range. `ra` is the readahead state of the open file
    /// that is read.
    ///
    /// # Errors
    /// As [`Read::poll`] and [`Write::poll`].
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx, from: u32, to: u32, ra: &mut RaState) -> Done {
        let splices = mm.generation.copy_file_range;
        if self.half.is_none() && splices {
            cx.spend(mm.costs.syscall);
        }
        let pipe = mm.page.of(PIPE_PAGES).0 as u32;
        while self.done < self.len {
            let offset = self.offset + u64::from(self.done);
            let piece = (self.len - self.done).min(if splices { pipe } else { COPY_BUFFER });
            match &mut self.half {
                None if splices => self.half = Some(Half::Read(Read::into_pipe(offset, piece))),
                None => self.half = Some(Half::Read(Read::new(offset, piece, How::Buffered))),
                Some(Half::Read(read)) => {
                    read.poll(mm, cx, from, ra)?;
                    self.half = Some(Half::Write(match splices {
                        true => Write::out_of_pipe(offset, piece),
                        false => Write::new(offset, piece, How::Buffered),
                    }));
                }
                Some(Half::Write(write)) => {
                    write.poll(mm, cx, to)?;
                    self.done += piece;
                    self.half = None;
                }
            }
        }
        Ok(())
    }
}
