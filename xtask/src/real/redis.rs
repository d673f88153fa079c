//! Redis: more keys than its control group has room for, on a host with swap.

use std::path::{Path, PathBuf};
use std::process::Command;

use lotsfree_changes::Changes;
use lotsfree_units::{Bytes, MIB};

use super::application::{Answer, Application, Lines, Server, output};
use super::host::Group;
use super::{Result, Trial};

const PORT: &str = "22379";
/// Keys of a kilobyte each.
const KEYS: &str = "300000";
const LIMIT: Bytes = Bytes::mib(256);
const SWAP: Bytes = Bytes::mib(1024);

/// The host has memory, and Redis is in swap.
pub(super) const SWAPPED: Trial = Trial {
    name: "Redis: in swap, because its group is full",
    programs: &["/usr/bin/redis-server", "/usr/bin/redis-cli", "/usr/bin/redis-benchmark"],
    packages: "redis-server",
    quick: true,
    settings: &[],
    prepare: |_, place, changes| Ok(Box::new(Redis::new(place, changes)?)),
};

struct Redis {
    place: PathBuf,
    group: Group,
    server: Option<Server>,
}

impl Redis {
    fn new(place: &Path, changes: &mut Changes) -> Result<Self> {
        changes.swap(&place.join("swap"), SWAP.0)?;
        Ok(Redis { place: place.to_path_buf(), group: Group::new(changes, LIMIT)?, server: None })
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        output(Command::new("redis-cli").args(["-p", PORT]).args(words))
    }

    fn benchmark(&self, words: &[&str]) -> Result<String> {
        output(
            Command::new("redis-benchmark").args(["-p", PORT, "--csv", "-d", "1000", "-r", KEYS]).args(words),
        )
    }
}

impl Application for Redis {
    fn version(&self) -> Result<String> {
        output(Command::new("redis-server").arg("--version"))
    }

    fn provoked(&self) -> String {
        format!("{KEYS} keys of 1 kB in a control group of {LIMIT}, random GETs, and {SWAP} of swap.")
    }

    fn rule(&self) -> &'static str {
        "protected-app-swapped"
    }

    fn start(&mut self, _: &[Lines]) -> Result<()> {
        let program = format!("redis-server --port {PORT} --save '' --dir {}", self.place.display());
        let mut server = Server::start(&mut self.group.command(&program), &self.place.join("log"))?;
        server.wait_for(|| Ok(self.ask(&["ping"]).is_ok_and(|said| said == "PONG")))?;
        self.benchmark(&["-t", "set", "-n", "1000000", "-P", "16"])?;
        self.server = Some(server);
        Ok(())
    }

    fn answer(&mut self) -> Result<Answer> {
        // Once for what comes back from swap, and once to be counted.
        self.benchmark(&["-t", "get", "-n", "1000000", "-P", "16"])?;
        let rows = self.benchmark(&["-t", "get", "-n", "1000000", "-P", "16"])?;
        let row = rows.lines().find(|line| line.contains("GET")).ok_or("redis-benchmark counted no GET")?;
        let rate: f64 = row.split(',').nth(1).ok_or("no rate")?.trim_matches('"').parse()?;
        let swapped = self.group.swapped()?;
        Ok(Answer {
            asked: "redis-benchmark -t get".to_owned(),
            said: format!("{rate:.0} GETs/s"),
            memory: format!("{} MB in swap", swapped / MIB),
            figure: swapped as f64,
        })
    }

    fn is_better(&self, before: f64, after: f64) -> bool {
        before >= 16.0 * MIB as f64 && after < before / 4.0
    }

    fn stop(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::end)
    }
}
