//! memcached: a control group smaller than what `-m` allows.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use lotsfree_changes::Changes;
use lotsfree_units::Bytes;

use super::application::{Answer, Application, Lines, Server, output};
use super::host::Group;
use super::{Result, Trial};

const PORT: u16 = 22_211;
/// Values of 100 kB that are stored: 300 MB with what memcached adds.
const VALUES: usize = 2_900;
const LIMIT: Bytes = Bytes::mib(256);

/// The group's limit is met long before memcached evicts anything.
pub(super) const KILLED: Trial = Trial {
    name: "memcached: killed in its control group",
    programs: &["/usr/bin/memcached"],
    packages: "memcached",
    quick: true,
    settings: &[],
    prepare: |_, place, changes| Ok(Box::new(Memcached::new(place, changes)?)),
};

struct Memcached {
    place: PathBuf,
    group: Group,
    server: Option<Server>,
    /// Values that it took.
    stored: usize,
}

impl Memcached {
    fn new(place: &Path, changes: &mut Changes) -> Result<Self> {
        // Who was killed, and why, only the kernel log tells.
        File::open("/dev/kmsg").map_err(|error| format!("/dev/kmsg: {error}"))?;
        let group = Group::new(changes, LIMIT)?;
        Ok(Memcached { place: place.to_path_buf(), group, server: None, stored: 0 })
    }

    fn connect() -> Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(("127.0.0.1", PORT))?;
        stream.set_read_timeout(Some(super::application::PATIENCE))?;
        Ok(BufReader::new(stream))
    }

    /// Stores values until all are there or the server is gone; returns how many it took.
    fn store() -> Result<usize> {
        let mut stream = Self::connect()?;
        let value = vec![b'x'; 100_000];
        for stored in 0..VALUES {
            let sent = write!(stream.get_mut(), "set key{stored} 0 0 {}\r\n", value.len())
                .and_then(|()| stream.get_mut().write_all(&value))
                .and_then(|()| stream.get_mut().write_all(b"\r\n"));
            let mut said = String::new();
            if sent.and_then(|()| stream.read_line(&mut said)).is_err() || said.trim() != "STORED" {
                return Ok(stored);
            }
        }
        Ok(VALUES)
    }
}

impl Application for Memcached {
    fn version(&self) -> Result<String> {
        output(Command::new("memcached").arg("--version"))
    }

    fn provoked(&self) -> String {
        format!(
            "memcached -m 1024 in a control group of {LIMIT}, into which {VALUES} values of 100 kB are stored."
        )
    }

    fn rule(&self) -> &'static str {
        "oom-happened"
    }

    /// The kernel log may tell of kills in other groups.
    fn subject(&self) -> String {
        self.group.name()
    }

    fn has_happened(&self) -> bool {
        true
    }

    fn start(&mut self, _: &[Lines]) -> Result<()> {
        let mut command = self.group.command(&format!("memcached -u nobody -l 127.0.0.1 -m 1024 -p {PORT}"));
        let mut server = Server::start(&mut command, &self.place.join("log"))?;
        server.wait_for(|| Ok(Self::connect().is_ok()))?;
        self.stored = Self::store()?;
        self.server = Some(server);
        Ok(())
    }

    fn answer(&mut self) -> Result<Answer> {
        let limit = self.group.limit()?;
        let said = match self.stored {
            VALUES => {
                let mut stream = Self::connect()?;
                stream.get_mut().write_all(b"stats\r\n")?;
                let lines = stream.lines().map_while(|line| line.ok().filter(|line| line != "END"));
                let wanted = |line: &String| {
                    ["curr_items", "evictions"].iter().any(|name| line.contains(&format!(" {name} ")))
                };
                lines.filter(wanted).map(|line| line.replace("STAT ", "")).collect::<Vec<_>>().join(", ")
            }
            stored => format!("killed after {stored} values"),
        };
        Ok(Answer {
            asked: "memcached's stats".to_owned(),
            said,
            memory: format!("limit of the group {limit}"),
            figure: self.stored as f64,
        })
    }

    fn is_better(&self, before: f64, after: f64) -> bool {
        before < VALUES as f64 && after >= VALUES as f64
    }

    fn stop(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::end)
    }
}
