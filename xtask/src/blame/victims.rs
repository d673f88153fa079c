//! Applications that lose memory to others, and their load.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lotsfree_changes::Changes;
use lotsfree_units::Bytes;

use super::{Place, prepared};
use crate::real::Result;
use crate::real::application::{Server, output};

/// The applications.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Lives from the page cache.
    Postgres,
    /// Lives from anonymous memory, in one thread.
    Redis,
    /// Lives from a heap.
    Java,
}

/// An application under load.
pub(super) trait Victim {
    /// Brings its working set into memory.
    fn warm(&mut self) -> Result<()>;
    /// Starts its load for a time.
    fn load(&mut self, length: Duration) -> Result<Load>;
    /// Waits for the load to end: operations a second.
    fn rate(&mut self, load: Load) -> Result<f64>;
}

/// A load that runs.
pub(super) struct Load {
    child: Child,
    began: Instant,
    /// Operations before it began, where the application counts them.
    before: f64,
    length: Duration,
}

impl Load {
    fn start(command: &mut Command, length: Duration, before: f64) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        Ok(Load { child, began: Instant::now(), before, length })
    }

    fn said(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.child.wait_with_output()?.stdout).into_owned())
    }
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Postgres => "PostgreSQL",
            Kind::Redis => "Redis",
            Kind::Java => "Java",
        }
    }

    /// A part in percent of the limit of the group that it shares with its culprits: with room for it, and
    /// not for both.
    pub(super) fn limit(self, part: u64) -> Bytes {
        let mib = match self {
            Kind::Postgres => 1024,
            Kind::Redis => 768,
            Kind::Java => 900,
        };
        Bytes::mib(mib * part / 100)
    }

    /// Starts it in a group of its own.
    pub(super) fn start(self, place: &Place<'_>, changes: &mut Changes) -> Result<Box<dyn Victim>> {
        if self != Kind::Postgres {
            changes.swap(&place.files.join("swap"), Bytes::mib(2048).0)?;
        }
        let group = &place.victim;
        let log = place.files.join("victim.log");
        Ok(match self {
            Kind::Postgres => {
                let first = place.files.join("first");
                prepared::database(&place.prepared, &first)?;
                let (programs, at) = (prepared::programs()?, first.display());
                let as_postgres = prepared::AS_POSTGRES;
                let start = format!("{as_postgres} {programs}/postgres -D {at}/data -k {at} -p {PORT}");
                let mut server = Server::start(&mut group.command(&start), &log)?;
                let ready = format!("{programs}/pg_isready -h {at} -p {PORT}");
                server.wait_for(|| Ok(prepared::sh(&ready).is_ok()))?;
                Box::new(Postgres { place: first, server: Some(server) })
            }
            Kind::Redis => {
                let start = format!("redis-server --port {REDIS} --save '' --dir {}", place.files.display());
                let mut server = Server::start(&mut group.command(&start), &log)?;
                server.wait_for(|| Ok(redis(&["ping"]).is_ok_and(|said| said == "PONG")))?;
                output(&mut benchmark("set", "1000000"))?;
                Box::new(Redis { _server: server })
            }
            Kind::Java => {
                let source = place.files.join("Lookups.java");
                fs::write(&source, include_str!("Lookups.java"))?;
                let counts = place.files.join("counts");
                let start = format!(
                    "java -Xms560m -Xmx560m -XX:+UseSerialGC {} {}",
                    source.display(),
                    counts.display()
                );
                let mut server = Server::start(&mut group.command(&start), &log)?;
                server.wait_for(|| Ok(counts.exists()))?;
                Box::new(Java { counts, _server: server })
            }
        })
    }
}

const PORT: &str = "22434";

struct Postgres {
    place: PathBuf,
    server: Option<Server>,
}

impl Postgres {
    fn pgbench(&self, length: Duration) -> Result<Command> {
        let mut command = Command::new(format!("{}/pgbench", prepared::programs()?));
        command.args(["-U", "postgres", "-p", PORT, "-S", "-c", "4", "-n", "postgres"]);
        command.arg("-h").arg(&self.place).arg("-T").arg(length.as_secs().to_string());
        Ok(command)
    }
}

impl Victim for Postgres {
    fn warm(&mut self) -> Result<()> {
        // A slow machine does not come by all pages at random.
        let mut all = Command::new(format!("{}/psql", prepared::programs()?));
        all.args(["-qAt", "-U", "postgres", "-p", PORT, "-h"]).arg(&self.place);
        all.args(["-c", "SELECT count(abalance) FROM pgbench_accounts"]);
        all.args(["-c", "SET enable_seqscan = off", "-c", "SELECT count(aid) FROM pgbench_accounts"]);
        output(&mut all)?;
        output(&mut self.pgbench(Duration::from_secs(4))?)?;
        Ok(())
    }

    fn load(&mut self, length: Duration) -> Result<Load> {
        Load::start(&mut self.pgbench(length)?, length, 0.0)
    }

    fn rate(&mut self, load: Load) -> Result<f64> {
        let said = load.said()?;
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        Ok(rate.ok_or("pgbench printed no tps")?)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(server) = self.server.take()
            && let Err(error) = server.end()
        {
            eprintln!("PostgreSQL: {error}");
        }
    }
}

const REDIS: &str = "22436";

struct Redis {
    _server: Server,
}

fn redis(words: &[&str]) -> Result<String> {
    output(Command::new("redis-cli").args(["-p", REDIS]).args(words))
}

fn benchmark(what: &str, count: &str) -> Command {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", REDIS, "--csv", "-d", "1000", "-r", "350000", "-P", "16", "-t", what, "-n", count]);
    command
}

/// How many commands the server has executed.
fn executed() -> Result<f64> {
    let stats = redis(&["info", "stats"])?;
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    Ok(line.ok_or("redis counts no commands")?.trim().parse()?)
}

impl Victim for Redis {
    fn warm(&mut self) -> Result<()> {
        output(&mut benchmark("get", "1000000"))?;
        Ok(())
    }

    fn load(&mut self, length: Duration) -> Result<Load> {
        Load::start(&mut benchmark("get", "1000000000"), length, executed()?)
    }

    fn rate(&mut self, mut load: Load) -> Result<f64> {
        std::thread::sleep(load.length.saturating_sub(load.began.elapsed()));
        let rate = (executed()? - load.before) / load.began.elapsed().as_secs_f64();
        load.child.kill()?;
        load.child.wait()?;
        Ok(rate)
    }
}

/// A program that looks things up in its heap at random, all the time, and writes down how often it has.
struct Java {
    counts: PathBuf,
    _server: Server,
}

impl Java {
    fn count(&self) -> Result<f64> {
        Ok(fs::read_to_string(&self.counts)?.trim().parse()?)
    }
}

impl Victim for Java {
    fn warm(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_secs(5));
        Ok(())
    }

    fn load(&mut self, length: Duration) -> Result<Load> {
        Load::start(Command::new("sleep").arg(length.as_secs().to_string()), length, self.count()?)
    }

    fn rate(&mut self, mut load: Load) -> Result<f64> {
        load.child.wait()?;
        Ok((self.count()? - load.before) / load.began.elapsed().as_secs_f64())
    }
}
