//! Looks on the running machine for files that only processes hold: memfds, and deleted files of tmpfs and
//! hugetlbfs.
//!
//! Nothing is opened. The name of a link in `/proc/PID/fd` tells whether its file was deleted, and `stat` of
//! the few that were tells the rest. Files of disks and of servers in the network are told apart by the name
//! or the device where that is enough, because asking such a server may block.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use lotsfree_kernel_files::file::unlinked::{FileId, Hold, Place, Unlinked};
use lotsfree_units::Bytes;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::Holder;

/// A file that has less in memory is nobody's concern.
const SMALL: Bytes = Bytes::mib(1);
/// At most this many are kept; a parser reads no more.
const MOST: usize = 4096;
/// At most this many links of one process are looked at, the lowest numbers, so that a server with a socket
/// for each of its clients leaves time for the others.
const MOST_LINKS: usize = 10_000;
/// The clock is looked at after this many links.
const LINKS_PER_CHECK: usize = 64;
/// File systems in memory (`include/uapi/linux/magic.h`: `TMPFS_MAGIC`, `HUGETLBFS_MAGIC`).
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// Looks at the open files of `holders` and at their mappings, for at most `budget`.
pub(super) fn look(holders: &[Holder], budget: Duration) -> Unlinked {
    Looking { until: Instant::now() + budget, most_links: MOST_LINKS, table: Unlinked::default() }.at(holders)
}

struct Looking {
    until: Instant,
    most_links: usize,
    table: Unlinked,
}

impl Looking {
    fn at(mut self, holders: &[Holder]) -> Unlinked {
        for (done, holder) in holders.iter().enumerate() {
            if self.is_late() || self.table.holds.len() >= MOST {
                self.table.late += (holders.len() - done) as u64;
                break;
            }
            self.process(holder);
        }
        self.table
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    fn process(&mut self, holder: &Holder) {
        let pid = holder.pid;
        let mut seen = BTreeSet::new();
        match links(&format!("/proc/{pid}/fd")) {
            Ok(directory) => self.open_files(pid, directory, &mut seen),
            Err(Errno::ACCESS | Errno::PERM) => self.table.denied += 1,
            // It has ended.
            Err(_) => return,
        }
        // Following these links takes privileges (`fs/proc/base.c:proc_map_files_get_link`).
        let Ok(directory) = links(&format!("/proc/{pid}/map_files")) else { return };
        for &(start, end) in &holder.mappings {
            let name = format!("{start:x}-{end:x}");
            self.link(&directory, &name, (pid, Place::Mapped(start, end)), &mut seen);
        }
    }

    fn open_files(&mut self, pid: u32, directory: OwnedFd, seen: &mut BTreeSet<FileId>) {
        let Ok(entries) = Dir::read_from(&directory) else { return };
        for (number, entry) in entries.enumerate() {
            let late = number % LINKS_PER_CHECK == LINKS_PER_CHECK - 1 && self.is_late();
            if late || number >= self.most_links {
                self.table.late += 1;
                return;
            }
            let Ok(entry) = entry else { return };
            let Ok(name) = entry.file_name().to_str() else { continue };
            if let Ok(open) = name.parse() {
                self.link(&directory, name, (pid, Place::Open(open)), seen);
            }
        }
    }

    /// Adds the file behind a link, if it is one that only processes hold and that this one has not been
    /// seen to hold.
    fn link(&mut self, directory: &OwnedFd, name: &str, by: (u32, Place), seen: &mut BTreeSet<FileId>) {
        let Ok(target) = rustix::fs::readlinkat(directory, name, Vec::new()) else { return };
        if !target.to_bytes().ends_with(b" (deleted)") || self.table.holds.len() >= MOST {
            return;
        }
        let Some(mut hold) = held(directory, name, by) else { return };
        if hold.allocated >= SMALL && seen.insert(hold.id) {
            hold.name = target.to_string_lossy().into();
            self.table.holds.push(hold);
        }
    }
}

fn links(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// The file behind a link, without its name, if it is in memory and has no link in any directory.
fn held(directory: &OwnedFd, name: &str, (pid, place): (u32, Place)) -> Option<Hold> {
    let (hold, nlink) = identity(directory, name)?;
    // tmpfs and hugetlbfs have no device of their own, so that the major number is 0.
    if nlink > 0 || hold.id.device.0 != 0 {
        return None;
    }
    let kind = rustix::fs::statfs(format!("/proc/{pid}/{place}").as_str()).ok()?.f_type as u64;
    if kind != TMPFS && kind != HUGETLBFS {
        return None;
    }
    Some(Hold { pid, place, hugetlb: kind == HUGETLBFS, ..hold })
}

/// What `stat` says of the file behind a link: a hold that lacks who, how and its name, and the number of the
/// file's names.
fn identity(directory: &OwnedFd, name: &str) -> Option<(Hold, u64)> {
    let hold = |device, inode, size, blocks| Hold {
        pid: 0,
        place: Place::Open(0),
        hugetlb: false,
        id: FileId { device, inode },
        size: Bytes(size),
        allocated: Bytes(512).times(blocks),
        name: "".into(),
    };
    match rustix::fs::statx(directory, name, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS) {
        Ok(stat) => {
            let device = (stat.stx_dev_major, stat.stx_dev_minor);
            Some((hold(device, stat.stx_ino, stat.stx_size, stat.stx_blocks), stat.stx_nlink.into()))
        }
        // Before 4.11.
        Err(Errno::NOSYS) => {
            let stat = rustix::fs::statat(directory, name, AtFlags::empty()).ok()?;
            let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
            let number = |n: i64| u64::try_from(n).unwrap_or(0);
            Some((hold(device, stat.st_ino, number(stat.st_size), number(stat.st_blocks)), stat.st_nlink))
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn of_us(budget: Duration) -> Unlinked {
        look(&[Holder { pid: std::process::id(), mappings: Vec::new() }], budget)
    }

    #[test]
    fn a_memfd_of_this_process_is_seen_with_what_was_written_to_it() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = std::fs::File::from(rustix::fs::memfd_create("lotsfree-test", flags).unwrap());
        file.write_all(&vec![1; 3 << 20]).unwrap();
        file.set_len(1 << 30).unwrap();
        let table = of_us(Duration::from_secs(3600));
        let mut ours = table.holds.iter().filter(|hold| &*hold.name == "/memfd:lotsfree-test (deleted)");
        let hold = ours.next().unwrap();
        assert_eq!((hold.size, hold.allocated, hold.hugetlb), (Bytes::gib(1), Bytes::mib(3), false));
        assert!(ours.next().is_none());
        assert_eq!((table.denied, table.late), (0, 0));
    }

    #[test]
    fn a_deleted_file_of_a_disk_is_no_file_in_memory() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("lotsfree-unlinked-{}", std::process::id()));
        let mut file = std::fs::File::create_new(&path).unwrap();
        file.write_all(&vec![1; 2 << 20]).unwrap();
        std::fs::remove_file(&path).unwrap();
        let in_memory = |kind: u64| kind == TMPFS || kind == HUGETLBFS;
        let ours = rustix::fs::fstatfs(&file).unwrap().f_type as u64;
        let name = path.file_name().unwrap().to_str().unwrap();
        let seen = of_us(Duration::from_secs(3600)).holds.iter().any(|hold| hold.name.contains(name));
        assert_eq!(seen, in_memory(ours));
    }

    #[test]
    fn a_process_with_too_many_files_is_counted_and_the_next_one_still_looked_at() {
        let us = Holder { pid: std::process::id(), mappings: Vec::new() };
        let until = Instant::now() + Duration::from_secs(3600);
        let looking = Looking { until, most_links: 2, table: Unlinked::default() };
        assert_eq!(looking.at(&[us.clone(), us]).late, 2);
    }

    #[test]
    fn processes_beyond_the_time_are_counted() {
        let table = of_us(Duration::ZERO);
        assert_eq!((table.holds.len(), table.late), (0, 1));
    }
}
