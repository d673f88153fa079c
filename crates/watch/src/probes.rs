//! [`Probes`]: which pages of a file had been in memory before they were read, by asking the kernel ahead.
//!
//! No tracepoint tells a page that comes back from one that is new. Of a file, however, the kernel tells
//! which pages it has evicted (`cachestat`, Linux 6.5). Some pages of each file that is being read are asked
//! about in every interval; when a tracepoint then shows that one of them was read, its past is known.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use lotsfree_storage::open_regular;
use lotsfree_sys::Cachestat;
use rustix::io::Errno;

use crate::files::FileId;
use crate::tracepoints::STRIDE;

/// Pages of a file that are asked about in an interval.
const ASKED: u64 = 512;
/// The time that asking may take in an interval.
const TIME: Duration = Duration::from_millis(2);
/// The intervals after which an answer is too old: the page may have come and gone meanwhile.
const LASTS: usize = 8;

/// What is known of pages that may be read next.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// Whether reclaim had evicted a page when it was asked about, by file and [`STRIDE`], for each of the
    /// last intervals. Pages that were in the page cache are not here.
    answers: VecDeque<HashMap<(FileId, u64), bool>>,
    /// How many pages were asked about.
    turn: u64,
    left: Duration,
    is_refused: bool,
}

impl Probes {
    /// Begins an interval.
    pub(crate) fn begin(&mut self) {
        if self.answers.len() >= LASTS {
            self.answers.pop_front();
        }
        self.answers.push_back(HashMap::new());
        self.left = TIME;
    }

    /// Asks about pages of a file that a process has open, spread evenly over the file.
    pub(crate) fn ask(&mut self, file: FileId, descriptor: &Path) {
        if self.is_refused || self.left.is_zero() {
            return;
        }
        let began = Instant::now();
        // A file of hugetlbfs cannot be asked about either, which says nothing of others.
        let looked = self.look(file, descriptor, began);
        let unknown = Some(Errno::NOSYS.raw_os_error());
        self.is_refused = looked.is_err_and(|error| error.raw_os_error() == unknown);
        self.left = self.left.saturating_sub(began.elapsed());
    }

    fn look(&mut self, id: FileId, descriptor: &Path, began: Instant) -> io::Result<()> {
        // The process may have put something else there, a pipe perhaps.
        let Ok(file) = open_regular(descriptor) else { return Ok(()) };
        let Ok(metadata) = file.metadata() else { return Ok(()) };
        if metadata.ino() != id.inode {
            return Ok(());
        }
        let page = lotsfree_sys::page_size() as u64;
        let multiples = (metadata.len() / page).div_ceil(STRIDE);
        for _ in 0..ASKED.min(multiples) {
            self.turn = self.turn.wrapping_add(1);
            let multiple = spread(self.turn, multiples);
            let pages = Cachestat::of(&file, multiple * STRIDE * page, page)?;
            if pages.cache == 0
                && let Some(answers) = self.answers.back_mut()
            {
                answers.insert((id, multiple), pages.evicted > 0);
            }
            if began.elapsed() >= self.left {
                break;
            }
        }
        Ok(())
    }

    /// Whether a page that is read now had been evicted; `None` if nobody asked.
    pub(crate) fn take(&mut self, page: (FileId, u64)) -> Option<bool> {
        let answers = self.answers.iter_mut().rev().map(|answers| answers.remove(&page));
        answers.fold(None, Option::or)
    }
}

/// A number below `below` that differs from those of the turns before as much as it can: multiples of the
/// golden ratio.
fn spread(turn: u64, below: u64) -> u64 {
    let fraction = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(fraction) * u128::from(below)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn turns_spread_over_a_file() {
        let seen: BTreeSet<u64> = (0..1000).map(|turn| spread(turn, 1000)).collect();
        assert!(seen.len() > 600 && seen.iter().all(|&number| number < 1000), "{}", seen.len());
        assert_eq!(spread(7, 1), 0);
    }

    #[test]
    fn a_page_s_past_is_told_once_and_forgotten_after_some_intervals() {
        let id = FileId { device: 1, inode: 2 };
        let mut probes = Probes::default();
        probes.begin();
        probes.answers[0].extend([((id, 1), true), ((id, 2), false), ((id, 3), true)]);
        probes.begin();
        probes.answers[1].insert((id, 3), false);
        assert_eq!(probes.take((id, 1)), Some(true));
        assert_eq!(probes.take((id, 1)), None);
        assert_eq!(probes.take((id, 3)), Some(false), "the newest answer counts");
        assert_eq!(probes.take((id, 3)), None);
        (0..LASTS).for_each(|_| probes.begin());
        assert_eq!(probes.take((id, 2)), None);
    }

    #[test]
    fn pages_that_nobody_has_read_are_new() {
        let mut file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.write_all(&[1; 64 * 4096]).unwrap();
        file.as_file().sync_all().unwrap();
        rustix::fs::fadvise(file.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let id = FileId { device: 0, inode: file.as_file().metadata().unwrap().ino() };
        let descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let mut probes = Probes::default();
        probes.begin();
        probes.ask(FileId { inode: 0, ..id }, &descriptor);
        probes.ask(id, Path::new("/proc/self/fd/nothing"));
        assert!(probes.answers[0].is_empty(), "that was another file");
        probes.ask(id, &descriptor);
        let new: Vec<bool> = probes.answers[0].values().copied().collect();
        assert!(probes.is_refused || (!new.is_empty() && !new.contains(&true)), "{new:?}");
    }
}
