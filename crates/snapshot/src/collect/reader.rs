//! [`Reader`]: reads files of a source and notes what is missing.

use std::time::Duration;

use lotsfree_kernel_files::file::unlinked::{self, Unlinked};
use lotsfree_kernel_files::{File, Log, Problem, ProblemKind};

use crate::source::Holder;
use crate::{ReadError, Source};

/// Reads files of a source, one after the other, into one buffer.
pub(super) struct Reader<'s> {
    source: &'s dyn Source,
    log: Log,
    buffer: Vec<u8>,
    files: u32,
}

/// A bound on a file in bytes. No file of interest is larger, except on a host with tens of thousands of
/// mappings in one process.
const LARGEST: usize = 16 << 20;

impl<'s> Reader<'s> {
    pub(super) fn new(source: &'s dyn Source) -> Self {
        Reader { source, log: Log::default(), buffer: Vec::with_capacity(64 << 10), files: 0 }
    }

    pub(super) fn is_live(&self) -> bool {
        self.source.is_live()
    }

    pub(super) fn files_read(&self) -> u32 {
        self.files
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        let dropped = self.log.dropped();
        let mut problems = self.log.into_problems();
        if dropped > 0 {
            let detail = format!("{dropped} more problems of the same kinds");
            problems.push(Problem { path: String::new(), line: None, kind: ProblemKind::Budget, detail });
        }
        problems
    }

    pub(super) fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Reads a file into the buffer. A missing file is a problem unless it is `optional`.
    fn fill(&mut self, path: &str, optional: bool) -> bool {
        self.log.enter(path);
        match self.source.read(path, LARGEST, &mut self.buffer) {
            Ok(cut) => {
                self.files += 1;
                if cut {
                    self.log
                        .whole(ProblemKind::Truncated, format!("only its first {LARGEST} bytes were read"));
                }
                true
            }
            Err(ReadError::Absent) if optional => false,
            Err(error) => {
                self.not_read(path, &error);
                false
            }
        }
    }

    /// Notes why the file or directory that was entered could not be read.
    fn not_read(&mut self, path: &str, error: &ReadError) {
        match error {
            ReadError::Absent => self.log.whole(ProblemKind::Absent, absent(path)),
            ReadError::Denied => self.log.whole(ProblemKind::Denied, error.to_string()),
            ReadError::NotRegular | ReadError::Io(_) => self.log.whole(ProblemKind::Io, error.to_string()),
        }
    }

    /// The bytes of a file and the log, for parsers that need more than [`File::parse`].
    pub(super) fn bytes(&mut self, path: &str) -> Option<(&[u8], &mut Log)> {
        self.fill(path, false).then_some((&self.buffer, &mut self.log))
    }

    /// Like [`Reader::bytes`], for a file that need not exist.
    pub(super) fn optional_bytes(&mut self, path: &str) -> Option<(&[u8], &mut Log)> {
        self.fill(path, true).then_some((&self.buffer, &mut self.log))
    }

    /// A parsed file.
    pub(super) fn file<T: File>(&mut self, path: &str) -> Option<T> {
        self.bytes(path).map(|(text, log)| T::parse(text, log))
    }

    /// A parsed file that need not exist.
    pub(super) fn optional_file<T: File>(&mut self, path: &str) -> Option<T> {
        self.optional_bytes(path).map(|(text, log)| T::parse(text, log))
    }

    /// A file's text, trimmed.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        self.bytes(path).map(|(text, _)| trimmed(text))
    }

    /// The text of a file that need not exist.
    pub(super) fn optional_text(&mut self, path: &str) -> Option<String> {
        self.optional_bytes(path).map(|(text, _)| trimmed(text))
    }

    /// A file that holds one number; it need not exist.
    pub(super) fn optional_number(&mut self, path: &str) -> Option<u64> {
        let (text, log) = self.optional_bytes(path)?;
        let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
        if number.is_none() {
            log.malformed(1, "expected one number");
        }
        number
    }

    /// The files that only processes hold; `None` in data that do not say.
    pub(super) fn unlinked(&mut self, holders: &[Holder], budget: Duration) -> Option<Unlinked> {
        self.log.enter(unlinked::PATH);
        self.source.unlinked(holders, budget, &mut self.buffer).ok()?;
        self.files += 1;
        Some(Unlinked::parse(&self.buffer, &mut self.log))
    }

    /// Whether a file exists and can be read.
    pub(super) fn exists(&mut self, path: &str) -> bool {
        self.source.read(path, 0, &mut self.buffer).is_ok()
    }

    /// The names in a directory; a missing directory is a problem.
    pub(super) fn list(&mut self, directory: &str) -> Option<Vec<String>> {
        self.log.enter(directory);
        self.source.list(directory).map_err(|error| self.not_read(directory, &error)).ok()
    }

    /// The names in a directory that need not exist.
    pub(super) fn optional_list(&mut self, directory: &str) -> Vec<String> {
        self.source.list(directory).unwrap_or_default()
    }
}

fn trimmed(text: &[u8]) -> String {
    String::from_utf8_lossy(text.trim_ascii()).into_owned()
}

/// Names the kernels that have a file, if that explains why it is missing.
fn absent(path: &str) -> &'static str {
    const SINCE: &[(&str, &str)] = &[
        (
            "proc/pressure",
            "pressure stall information: kernel 4.20 or later, on some distributions only with psi=1",
        ),
        ("sys/kernel/mm/lru_gen", "multi-generational LRU: kernel 6.1 or later, if built in"),
        ("sys/kernel/mm/transparent_hugepage", "transparent huge pages: kernel 2.6.38 or later, if built in"),
        ("sys/kernel/mm/hugepages", "huge pages: kernel 2.6.27 or later, if built in"),
        ("sys/kernel/mm/ksm", "KSM: kernel 2.6.32 or later, if built in"),
        ("sys/module/zswap", "zswap: kernel 3.11 or later, if built in"),
        ("sys/devices/system/node", "NUMA nodes: only in kernels built with NUMA"),
        ("proc/sysvipc", "System V shared memory: only in kernels built with it"),
        ("proc/pagetypeinfo", "page types: only in kernels built with /proc/pagetypeinfo"),
        ("proc/slabinfo", "slab caches: not shown by this kernel"),
        ("dev/kmsg", "the kernel log"),
        ("etc/", "not on this host, or not in these data"),
        ("sys/fs/cgroup", "no memory cgroups are mounted there"),
    ];
    SINCE.iter().find(|(prefix, _)| path.starts_with(prefix)).map_or("not there", |(_, since)| since)
}
