//! Compares the table of files with the collector, and tests the redaction of whole files.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::files::{Contents, FILES};
use super::*;
use crate::source::text::TextArchive;
use crate::source::{Source, TreeSource};
use crate::{Options, collect};

fn redactor() -> Redactor {
    Redactor::new(Redaction::Standard)
}

fn kept(redactor: &mut Redactor, path: &str, text: &str) -> String {
    String::from_utf8(redactor.contents(path, text.as_bytes()).expect("kept")).expect("text")
}

#[test]
fn counters_and_limits_stay_as_they_are() {
    let mut redactor = redactor();
    for (path, text) in [
        ("proc/meminfo", "MemTotal:       16387608 kB\nActive(anon): 1 kB\n"),
        (
            "proc/42/limits",
            "Max locked memory         65536                65536                bytes     \n",
        ),
        ("proc/sys/vm/swappiness", "60\n"),
        ("proc/sys/vm/numa_zonelist_order", "Node\n"),
        ("sys/fs/cgroup/memory.stat", "anon 1\n"),
        ("sys/fs/cgroup/memory.max", "max\n"),
        ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
        ("proc/pressure/memory", "some avg10=8.38 avg60=1.79 avg300=0.38 total=1336834\n"),
        ("proc/42/oom_score_adj", "-1000\n"),
        ("sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
        ("sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n"),
        ("proc/diskstats", " 254       0 vda 22 31 418 22\n"),
    ] {
        assert_eq!(kept(&mut redactor, path, text), text);
        assert_eq!(redactor.path(path).as_deref(), Some(path));
    }
    let full = &mut Redactor::new(Redaction::Full);
    assert_eq!(kept(full, "etc/passwd", "joe\n"), "joe\n");
    assert_eq!(full.path("etc/passwd").as_deref(), Some("etc/passwd"));
}

#[test]
fn words_that_are_not_listed_go_in_any_file() {
    let mut redactor = redactor();
    for (path, text, expected) in [
        ("proc/meminfo", "MemTotal: 1 kB\nAcme: 2 acme\n", "MemTotal: 1 kB\nword1: 2 word2\n"),
        ("proc/diskstats", " 254 0 acmedisk 22 acme\n", " 254 0 device1 22 redacted\n"),
        ("proc/sys/kernel/hostname", "vm.acme.example\n", "host1\n"),
        ("proc/sys/vm/swappiness", "acme\n", "word2\n"),
    ] {
        assert_eq!(kept(&mut redactor, path, text), expected);
    }
}

#[test]
fn a_file_without_a_row_is_not_kept() {
    let mut redactor = redactor();
    for path in [
        "etc/machine-id",
        "etc/passwd",
        "etc/x",
        "proc/42/environ",
        "proc/42/cmdline",
        "proc/42/comm",
        "proc/modules",
        "proc/net/tcp",
        "proc/sys/kernel/core_pattern",
        "proc/sys/vm/acme",
        "sys/block/sda/device/serial",
        "sys/block/dm-0/dm/name",
        "sys/class/dmi/id/product_uuid",
        "sys/kernel/debug/tracing/trace",
        "sys/fs/cgroup/acme/memory.acme",
        ".dockerenv",
    ] {
        assert_eq!((redactor.path(path), redactor.contents(path, b"x")), (None, None), "{path}");
    }
}

#[test]
fn names_in_paths_are_those_of_the_contents() {
    let mut redactor = redactor();
    assert_eq!(
        kept(&mut redactor, "proc/42/cgroup", "0::/system.slice/acme-billing.service\n"),
        "0::/system.slice/unit1-unit2.service\n"
    );
    redactor.learn_names("etc/sysctl.d", &["90-joe.conf".into(), "50-acme.conf".into()]);
    for (path, expected) in [
        (
            "sys/fs/cgroup/system.slice/acme-billing.service/memory.max",
            "sys/fs/cgroup/system.slice/unit1-unit2.service/memory.max",
        ),
        ("sys/fs/cgroup/memory/acme/hugetlb.2MB.max", "sys/fs/cgroup/memory/unit1/hugetlb.2MB.max"),
        (
            "etc/systemd/system/acme-billing.service.d/50-acme.conf",
            "etc/systemd/system/unit1-unit2.service.d/50-file500.conf",
        ),
        ("usr/lib/systemd/system/service.d/50-acme.conf", "usr/lib/systemd/system/service.d/50-file500.conf"),
        ("etc/sysctl.d/90-joe.conf", "etc/sysctl.d/90-file501.conf"),
        ("sys/block/acmedisk/queue/rotational", "sys/block/device1/queue/rotational"),
        ("sys/block/cciss!c0d0/queue/rotational", "sys/block/cciss!c0d0/queue/rotational"),
    ] {
        assert_eq!(redactor.path(path).as_deref(), Some(expected));
    }
    for (path, expected) in [
        (
            "sys/fs/cgroup/system.slice/acme-billing.service",
            Some("sys/fs/cgroup/system.slice/unit1-unit2.service"),
        ),
        ("etc/systemd/system/acme.service.d", Some("etc/systemd/system/unit1.service.d")),
        ("etc/systemd/system", Some("etc/systemd/system")),
        ("sys/kernel/mm/damon/admin", Some("sys/kernel/mm/damon/admin")),
        ("proc", Some("proc")),
        ("home/joe", None),
    ] {
        assert_eq!(redactor.directory(path).as_deref(), expected, "{path}");
    }
}

#[test]
fn a_kernel_thread_is_one_in_all_files() {
    let mut redactor = redactor();
    kept(&mut redactor, "proc/42/stat", "42 (acme-wq) S 2 0 0 0 -1 2129984 0\n");
    assert_eq!(kept(&mut redactor, "proc/42/status", "Name:\tacme-wq\n"), "Name:\tkthread1\n");
    // The next process of that id is not a kernel thread.
    kept(&mut redactor, "proc/42/stat", "42 (acme-wq) S 2 0 0 0 -1 0 0\n");
    assert_eq!(kept(&mut redactor, "proc/42/status", "Name:\tacme-wq\n"), "Name:\tprogram1\n");
}

#[test]
fn errors_keep_the_systems_words_only() {
    let redactor = redactor();
    let error = |text: &str| redactor.error(&ReadError::Io(text.into()));
    assert_eq!(error("/home/joe: acme"), ReadError::Io("cannot be read".into()));
    let known = std::io::Error::from_raw_os_error(5).to_string();
    assert_eq!(error(&format!("acme {known}")), ReadError::Io(known));
    assert_eq!(redactor.error(&ReadError::Denied), ReadError::Denied);
}

/// Records every path that is read.
struct Noting<S> {
    inner: S,
    live: bool,
    read: RefCell<BTreeSet<String>>,
}

impl<S: Source> Source for Noting<S> {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        self.read.borrow_mut().insert(path.to_owned());
        self.inner.read(path, limit, buffer)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        self.inner.list(directory)
    }

    fn is_live(&self) -> bool {
        self.live
    }
}

fn read_of(inner: impl Source, live: bool) -> BTreeSet<String> {
    let source = Noting { inner, live, read: RefCell::default() };
    collect(&source, &Options::default());
    source.read.into_inner()
}

fn archives(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of fixtures").flatten() {
        let path = entry.path();
        if path.is_dir() {
            archives(&path, found);
        } else if path.extension().is_some_and(|end| end == "txt") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_that_the_collector_reads_has_a_row() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut paths = Vec::new();
    archives(&fixtures.join("hosts"), &mut paths);
    archives(&fixtures.join("rules"), &mut paths);
    let mut read = BTreeSet::new();
    for path in paths {
        let archive = TextArchive::parse(&std::fs::read(&path).expect("a fixture")).expect("a text archive");
        for (_, source) in archive.samples {
            read.extend(read_of(source.clone(), false));
            read.extend(read_of(source, true));
        }
    }
    // The machine that runs the test may have files that no fixture has.
    read.extend(read_of(TreeSource::live().expect("the root"), true));
    assert!(read.len() > 1000, "{}", read.len());
    let mut redactor = redactor();
    let mut used = BTreeSet::new();
    let mut lacking = Vec::new();
    for path in &read {
        // A unit's name may be any text. Unknown counters and settings of a newer kernel are skipped.
        let newer = [
            "proc/sys/vm/",
            "sys/kernel/mm/ksm/",
            "sys/kernel/mm/transparent_hugepage/",
            "sys/module/zswap/",
        ];
        match redactor.find(path) {
            Some((contents, _)) => _ = used.insert(format!("{contents:?}")),
            None if newer.iter().any(|start| path.starts_with(start)) && is_newer(path) => {}
            None => lacking.push(path),
        }
    }
    assert!(lacking.is_empty(), "no row for {lacking:?}");
    let known: BTreeSet<String> = FILES.iter().map(|(_, contents)| format!("{contents:?}")).collect();
    let unused: Vec<_> = known.difference(&used).filter(|name| *name != "Nothing").collect();
    assert!(unused.is_empty(), "no file is read as {unused:?}");
    assert_eq!(redactor.find(".dockerenv").map(|(contents, _)| contents), Some(Contents::Drop));
}

/// Whether this machine has the file.
fn is_newer(path: &str) -> bool {
    Path::new("/").join(path).exists()
}

proptest! {
    #[test]
    fn any_contents_are_redacted_without_a_panic(
        text in "([a-z0-9 .:/=(),@#_\\n\\[\\]\"*-]|é|\\\\\n|process |task=|drop_caches|file=/|oom-kill:constraint=|,uid=|,pid=|Out of memory: Kill|ID=){0,60}",
        which in 0..FILES.len(),
    ) {
        let path = FILES[which].0.replace('#', "1").replace("{units}", "etc/systemd/system").replace("{sysctls}", "etc/sysctl.d")
            .replace("{unit}", "x.service").replace("{conf}", "x.conf").replace("{device}", "sda").replace("{group}", "x");
        let mut redactor = redactor();
        let first = redactor.clone().contents(&path, text.as_bytes());
        prop_assert_eq!(redactor.contents(&path, text.as_bytes()), first);
    }

    #[test]
    fn any_path_is_redacted_without_a_panic(path in "(sys/fs/cgroup/|etc/systemd/system/|proc/|sys/block/)?[a-z0-9.@é/-]{0,30}") {
        let mut redactor = redactor();
        redactor.path(&path);
        redactor.directory(&path);
    }
}

#[test]
fn a_file_that_was_cut_off_gains_no_line() {
    let r = &mut redactor();
    for path in ["etc/systemd/system/db.service", "dev/kmsg", "proc/1/status", "proc/1/stat"] {
        assert_eq!(kept(r, path, "acme").matches('\n').count(), 0, "{path}");
    }
    let unit = "[Service]\nExecStart=/acme\nMemoryMax=4G";
    assert_eq!(kept(r, "etc/systemd/system/db.service", unit), "[Service]\n\nMemoryMax=4G");
}
