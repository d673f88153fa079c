//! Programs that take memory, in ways that administrators know.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lotsfree_changes::Changes;

use super::{Place, prepared};
use crate::real::Result;
use crate::real::application::Server;
use crate::real::host::Group;

/// A program that takes memory until it is ended.
pub(super) struct Culprit {
    /// What it is, in a sentence.
    pub(super) what: &'static str,
    /// The programs of which one has to be named.
    programs: &'static [&'static str],
    /// What a shell runs. `$FILES` is a directory of the case on a disk, `$SHM` one in tmpfs, `$LARGE` a file
    /// that is larger than any limit; `$PAUSE` is how many seconds to pause between two pieces, `$SLOWER` how
    /// many times longer than on a host it should take.
    command: &'static str,
    /// The directory in `$FILES` that a copy of the database is made in, if it needs one.
    pub(super) database: Option<&'static str>,
    /// Settings that it needs: files and values.
    settings: &'static [(&'static str, &'static str)],
}

/// What most culprits do not need.
const NOTHING: Culprit = Culprit { what: "", programs: &[], command: "", database: None, settings: &[] };

/// Copies a file that is larger than the limit.
pub(super) const CP: Culprit = Culprit {
    what: "cp of a large file",
    programs: &["cp"],
    command: "while :; do cp $LARGE $FILES/copy; done",
    ..NOTHING
};
/// Writes a file that is larger than the limit.
pub(super) const DD: Culprit = Culprit {
    what: "dd to a large file",
    programs: &["dd"],
    command: "while :; do dd if=/dev/zero of=$FILES/out bs=1M count=3000; done",
    ..NOTHING
};
/// Fills memory through a file of tmpfs.
pub(super) const TMPFS: Culprit = Culprit {
    what: "a writer to tmpfs",
    // The pipe's pages are head's, the file's are tee's; sleep comes and goes between the pieces.
    programs: &["tee", "head", "sleep"],
    command: "(for n in $(seq 14); do head -c 40M /dev/zero; sleep $PAUSE; done; sleep 1000) | tee $SHM/file >/dev/null",
    ..NOTHING
};
/// Allocates and never frees.
pub(super) const LEAK: Culprit = Culprit {
    what: "a leak",
    programs: &["perl"],
    command: "exec perl -e 'for (1..600) { push @all, \"x\" x (1 << 20); select(undef, undef, undef, 0.02) } sleep 1000'",
    ..NOTHING
};
/// Half of that, so that two of the kind fit below a limit that has no room for three.
pub(super) const SMALL_LEAK: Culprit = Culprit {
    what: "a small leak",
    programs: &["perl"],
    command: "exec perl -e 'for (1..270) { push @all, \"x\" x (1 << 20); select(undef, undef, undef, 0.03 * $ENV{SLOWER}) } \
              sleep 1000'",
    ..NOTHING
};
/// See [`SMALL_LEAK`].
pub(super) const SMALL_TMPFS: Culprit = Culprit {
    what: "a small writer to tmpfs",
    // The pipe's pages are head's, the file's are tee's; sleep comes and goes between the pieces.
    programs: &["tee", "head", "sleep"],
    command: "(for n in $(seq 9); do head -c 30M /dev/zero; for i in $(seq $SLOWER); do sleep 0.8; done; done; sleep 1000) \
              | tee $SHM/file >/dev/null",
    ..NOTHING
};
/// Walks a large tree, so that inodes and directory entries fill memory.
pub(super) const FIND: Culprit = Culprit {
    what: "find over a large tree",
    programs: &["find"],
    command: "while :; do find / -xdev -size +1000000; done",
    ..NOTHING
};
/// Starts processes that live shortly and are large.
pub(super) const FORKS: Culprit = Culprit {
    what: "a storm of short processes",
    programs: &["perl"],
    // Long enough for all of them to be there at once, also where a CPU is emulated.
    command: "while :; do for n in $(seq 10); do \
              perl -e '$all = \"x\" x (40 << 20); select(undef, undef, undef, 2)' & done; wait; done",
    ..NOTHING
};
/// Has one page of every 2 MiB, and lets the kernel make huge pages of them.
pub(super) const SPARSE: Culprit = Culprit {
    what: "khugepaged",
    // It takes the pages, and the program then holds them.
    programs: &["khugepaged", "perl"],
    // mmap, read into every huge page, madvise(MADV_HUGEPAGE).
    command: "exec perl -e '$at = syscall(9, 0, 702 << 20, 3, 0x22, -1, 0); $at = ($at + 0x1fffff) & ~0x1fffff; \
              open Z, \"</dev/zero\"; syscall(0, fileno(Z), $at + ($_ << 21), 1) for 0..349; \
              syscall(28, $at, 700 << 20, 14); sleep 1000'",
    settings: &[
        ("/sys/kernel/mm/transparent_hugepage/enabled", "madvise"),
        ("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "150"),
        ("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "3072"),
        ("/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs", "80"),
    ],
    ..NOTHING
};
/// Another server, with data of its own that it reads at random, and as a whole for reports.
pub(super) const DATABASE: Culprit = Culprit {
    what: "a second database",
    programs: &["postgres"],
    command: "$AS_POSTGRES $PROGRAMS/postgres -D $FILES/second/data -k $FILES/second -p 22435 & \
              until $PROGRAMS/pg_isready -h $FILES/second -p 22435; do sleep 0.1; done; \
              while :; do $PROGRAMS/psql -U postgres -h $FILES/second -p 22435 -c \"select sum(abalance) from \
              pgbench_accounts\" postgres; done & \
              exec $PROGRAMS/pgbench -U postgres -h $FILES/second -p 22435 -S -c 4 -n -T 1000 postgres",
    database: Some("second"),
    ..NOTHING
};

/// A culprit that runs, in a group of its own.
pub(super) struct Running {
    server: Server,
    group: Group,
    leaves: Vec<std::path::PathBuf>,
}

impl Culprit {
    /// Whether an actor is one of its programs. An actor's name may have its group behind it.
    pub(super) fn is(&self, actor: &str) -> bool {
        let name = actor.split(" (").next().unwrap_or(actor);
        self.programs.contains(&name)
    }

    /// Starts it.
    pub(super) fn start(&self, place: &Place<'_>, changes: &mut Changes) -> Result<Running> {
        let group = place.group.below(changes, "culprit")?;
        for (file, value) in self.settings {
            changes.set(Path::new(file), value)?;
        }
        let shared = changes.directory(Path::new("/dev/shm"), "blame")?;
        let mut command = group.command(&format!("sh -c '{}'", self.command.replace('\'', "'\\''")));
        command
            .env("FILES", &place.files)
            .env("SHM", &shared)
            .env("LARGE", place.prepared.join(prepared::LARGE))
            .env("PAUSE", place.pace.pause.to_string())
            .env("SLOWER", place.pace.slower.to_string());
        command.env("PROGRAMS", prepared::programs()?).env("AS_POSTGRES", prepared::AS_POSTGRES);
        let server = Server::start(&mut command, &place.files.join("culprits"))?;
        let leaves = ["copy", "out"].iter().map(|name| place.files.join(name)).chain([shared.join("file")]);
        Ok(Running { server, group, leaves: leaves.collect() })
    }
}

impl Running {
    /// Ends it with everything that it started, and removes what it wrote.
    pub(super) fn end(self) -> Result<()> {
        while self.group.kill()? > 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.server.end()?;
        for path in &self.leaves {
            match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
