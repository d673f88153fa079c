//! Files in memory that only processes hold: memfds, shared anonymous memory, deleted files of tmpfs and
//! hugetlbfs.

use std::collections::BTreeMap;

use lotsfree_kernel_files::file::process::{Mapping, Process};
use lotsfree_kernel_files::file::unlinked::{FileId, Place};
use lotsfree_units::Bytes;

use crate::{Context, Workload, huge};

/// What a figure of a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// The length of its mappings, of which any part may be in memory.
    Mapped,
    /// What one process has touched of it: a lower bound.
    Touched,
    /// What the file has in memory and in swap.
    Allocated,
}

/// A file that only processes hold.
#[derive(Clone, Debug)]
pub(crate) struct HeldFile<'a> {
    /// Its last name, without ` (deleted)`.
    pub(crate) name: &'a str,
    pub(crate) bytes: Bytes,
    pub(crate) figure: Figure,
    /// Whether it is in huge pages of a pool.
    pub(crate) hugetlb: bool,
    /// The processes that hold it, each once.
    pub(crate) holders: Vec<u32>,
    /// A link below `/proc/PID` of the first of them that leads to it.
    pub(crate) link: Option<Place>,
    /// Whether some process has it open.
    pub(crate) open: bool,
    /// Whether some process maps it.
    pub(crate) mapped: bool,
}

impl HeldFile<'_> {
    /// Whether it once had a path, under which somebody deleted it.
    pub(crate) fn had_a_path(&self) -> bool {
        !self.name.starts_with("/memfd:") && self.name != "/dev/zero"
    }

    /// The file in words.
    pub(crate) fn text(&self) -> String {
        match self.name.strip_prefix("/memfd:") {
            Some("") => "a memfd without a name".to_owned(),
            Some(name) => format!("the memfd {name}"),
            None if self.name == "/dev/zero" => "shared memory without a file".to_owned(),
            None => format!("{}, which was deleted", self.name),
        }
    }
}

/// The files that only processes hold, largest first: from the table of open files where there is one, and
/// from the mappings of the largest processes. Those are left out in which databases, virtual machines and
/// Java keep their own memory, and System V segments, which have names of their own.
pub(crate) fn files<'a>(cx: &Context<'a>) -> Vec<HeldFile<'a>> {
    let mut found: BTreeMap<FileId, HeldFile<'a>> = BTreeMap::new();
    for hold in cx.now().unlinked.iter().flat_map(|table| &table.holds) {
        let file = found.entry(hold.id).or_insert_with(|| HeldFile {
            name: without_deleted(&hold.name),
            bytes: hold.allocated,
            figure: Figure::Allocated,
            hugetlb: hold.hugetlb,
            holders: Vec::new(),
            link: Some(hold.place),
            open: false,
            mapped: false,
        });
        match hold.place {
            Place::Open(_) => file.open = true,
            Place::Mapped(..) => file.mapped = true,
        }
        add_holder(file, hold.pid);
    }
    for process in cx.processes().unwrap_or_default() {
        for (id, file) in mapped(process) {
            let (figure, bytes) = (file.figure, file.bytes);
            let known = found.entry(id).or_insert(file);
            known.mapped = true;
            add_holder(known, process.stat.pid);
            if known.figure != Figure::Allocated && (figure, bytes) > (known.figure, known.bytes) {
                (known.figure, known.bytes) = (figure, bytes);
            }
        }
    }
    let mut files: Vec<HeldFile<'a>> = found.into_values().filter(|file| !is_own_memory(cx, file)).collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    files
}

/// The process with this id.
pub(crate) fn process<'a>(cx: &Context<'a>, pid: u32) -> Option<&'a Process> {
    cx.processes().ok()?.iter().find(|process| process.stat.pid == pid)
}

fn add_holder(file: &mut HeldFile<'_>, pid: u32) {
    if !file.holders.contains(&pid) {
        file.holders.push(pid);
    }
}

/// The files without a name that a process maps: lengths from `maps`, what it touched from `numa_maps`.
fn mapped<'a>(process: &'a Process) -> Vec<(FileId, HeldFile<'a>)> {
    let Some(detail) = &process.detail else { return Vec::new() };
    let mut files: BTreeMap<FileId, (&Mapping, Bytes, Option<Bytes>)> = BTreeMap::new();
    for mapping in detail.mappings.iter().filter(|mapping| mapping.shared && is_nameless(&mapping.file)) {
        let touched = detail.numa.as_ref().map(|numa| {
            let same = numa.mappings.iter().find(|other| other.start == mapping.start);
            same.map_or(Bytes::ZERO, |other| other.resident)
        });
        let sums = files.entry(mapping.id).or_insert((mapping, Bytes::ZERO, touched.map(|_| Bytes::ZERO)));
        sums.1 = sums.1 + mapping.length;
        sums.2 = sums.2.zip(touched).map(|(sum, touched)| sum + touched);
    }
    let file = |(id, (mapping, length, touched)): (FileId, (&'a Mapping, Bytes, Option<Bytes>))| {
        let (figure, bytes) = touched.map_or((Figure::Mapped, length), |touched| (Figure::Touched, touched));
        let file = HeldFile {
            name: without_deleted(&mapping.file),
            bytes,
            figure,
            hugetlb: false,
            holders: Vec::new(),
            link: None,
            open: false,
            mapped: true,
        };
        (id, file)
    };
    files.into_iter().map(file).collect()
}

fn without_deleted(name: &str) -> &str {
    name.strip_suffix(" (deleted)").unwrap_or(name)
}

/// Whether a mapping is of shared memory that has no name any more. Other deleted files may be of a disk, on
/// which they take no memory that could not be dropped.
fn is_nameless(file: &str) -> bool {
    file.ends_with(" (deleted)") && huge::is_shared(file) && !file.starts_with("/SYSV")
}

/// Whether it is the working memory of a known server: the shared buffers of a database, a guest's memory, a
/// heap. A file that such a server deleted under its path, as for a sort, is none.
fn is_own_memory(cx: &Context<'_>, file: &HeldFile<'_>) -> bool {
    let known =
        |pid: &u32| process(cx, *pid).is_some_and(|process| Workload::of_name(&process.stat.name).is_some());
    (!file.had_a_path() || file.hugetlb) && file.holders.iter().any(known)
}
