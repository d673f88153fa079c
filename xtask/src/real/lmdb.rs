//! LMDB: random lookups in a file larger than the control group, with the read-ahead of a disk that streams.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lotsfree_changes::Changes;
use lotsfree_units::Bytes;

use super::application::{Answer, Application, Lines, Server, output};
use super::host::Group;
use super::{Result, Trial};

/// Debian's binding belongs to Debian's Python.
const PYTHON: &str = "/usr/bin/python3";
const LOOKUPS: &str = include_str!("lookups.py");
const LIMIT: Bytes = Bytes::mib(256);
const READ_AHEAD_KB: &str = "8192";

/// Each lookup reads megabytes and uses a page of them.
pub(super) const READAHEAD: Trial = Trial {
    name: "LMDB: lookups in a file larger than the group",
    programs: &[PYTHON, "/usr/lib/python3/dist-packages/lmdb"],
    packages: "python3-lmdb",
    quick: true,
    settings: &[],
    prepare: |_, place, changes| Ok(Box::new(Lmdb::new(place, changes)?)),
};

struct Lmdb {
    place: PathBuf,
    group: Group,
    reader: Option<Server>,
}

impl Lmdb {
    fn new(place: &Path, changes: &mut Changes) -> Result<Self> {
        changes.set(&read_ahead(place)?, READ_AHEAD_KB)?;
        let lmdb = Lmdb { place: place.to_path_buf(), group: Group::new(changes, LIMIT)?, reader: None };
        fs::write(lmdb.script(), LOOKUPS)?;
        output(Command::new(PYTHON).arg(lmdb.script()).arg(lmdb.file()).arg("fill"))?;
        Ok(lmdb)
    }

    fn script(&self) -> PathBuf {
        self.place.join("lookups.py")
    }

    fn file(&self) -> PathBuf {
        self.place.join("lmdb")
    }

    fn log(&self) -> PathBuf {
        self.place.join("log")
    }
}

/// The file with the read-ahead of the disk that a directory lies on.
fn read_ahead(place: &Path) -> Result<PathBuf> {
    let device = fs::metadata(place)?.dev();
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let disk = fs::canonicalize(Path::new("/sys/dev/block").join(&numbers))
        .map_err(|_| format!("{} is not on a disk", place.display()))?;
    // A partition has no queue of its own.
    let owner = disk.ancestors().find(|path| path.join("queue/read_ahead_kb").exists());
    let name = owner.and_then(Path::file_name).ok_or_else(|| format!("{}: no queue", disk.display()))?;
    Ok(Path::new("/sys/block").join(name).join("queue/read_ahead_kb"))
}

impl Application for Lmdb {
    fn version(&self) -> Result<String> {
        let version = "import lmdb; print('LMDB', '.'.join(map(str, lmdb.version())))";
        output(Command::new(PYTHON).args(["-c", version]))
    }

    fn provoked(&self) -> String {
        format!(
            "random lookups in a file of 1.2 GB, in a control group of {LIMIT}, with read_ahead_kb {READ_AHEAD_KB}."
        )
    }

    fn rule(&self) -> &'static str {
        "readahead-in-vain"
    }

    fn start(&mut self, _: &[Lines]) -> Result<()> {
        // What filling left in the page cache belongs to no group.
        let data = self.file().join("data.mdb");
        output(Command::new("dd").arg(format!("if={}", data.display())).args([
            "iflag=nocache",
            "count=0",
            "status=none",
        ]))?;
        let _ = fs::remove_file(self.log());
        let program = format!("{PYTHON} {} {} read", self.script().display(), self.file().display());
        self.reader = Some(Server::start(&mut self.group.command(&program), &self.log())?);
        // Until the group is full, nothing is evicted.
        std::thread::sleep(Duration::from_secs(10));
        Ok(())
    }

    fn answer(&mut self) -> Result<Answer> {
        let log = fs::read_to_string(self.log())?;
        let counts: Vec<u64> =
            log.lines().map(str::parse).collect::<Result<_, _>>().map_err(|_| log.clone())?;
        let last = counts.last().copied().ok_or("no lookup was counted")?;
        Ok(Answer {
            asked: "the reader's own count".to_owned(),
            said: format!("{last} lookups/s"),
            memory: "256 MB of page cache, as before".to_owned(),
            figure: last as f64,
        })
    }

    fn is_better(&self, before: f64, after: f64) -> bool {
        after > 5.0 * before
    }

    fn stop(&mut self) -> Result<()> {
        self.reader.take().map_or(Ok(()), Server::end)
    }
}
