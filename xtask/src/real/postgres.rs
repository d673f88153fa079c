//! PostgreSQL: page tables of many sessions, and a pool of huge pages that is too small.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::application::{
    Answer, Application, Expected, Lines, Server, huge_mappings, kilobytes, lines_for, output,
};
use super::host::{newest, pool, setting_file};
use super::tables::Measured;
use super::{Result, Trial};

const PROGRAMS: &[&str] = &["/usr/lib/postgresql/*/bin/postgres", "/usr/bin/psql"];
const PORT: u16 = 22_432;

/// As many sessions as a pool of connections has, each of which has touched all of the buffers.
pub(super) const SESSIONS: Trial = Trial {
    name: "PostgreSQL: 200 sessions on 2 GB of shared buffers",
    programs: PROGRAMS,
    packages: "postgresql",
    quick: false,
    settings: &["vm.nr_hugepages"],
    prepare: |host, place, changes| {
        changes.set(&setting_file("vm.nr_hugepages"), "0")?;
        Ok(Box::new(Postgres::new(
            host.directory_of("postgres", place)?,
            Load { buffers: 2048, sessions: 200, rule: "pagetable-bloat" },
        )?))
    },
};

/// The buffers fit the pool, all of shared memory does not.
pub(super) const SHORT_POOL: Trial = Trial {
    name: "PostgreSQL: a pool of huge pages as large as shared_buffers",
    programs: PROGRAMS,
    packages: "postgresql",
    quick: true,
    settings: &["vm.nr_hugepages"],
    prepare: |host, place, changes| {
        pool(changes, 128, 160)?;
        Ok(Box::new(Postgres::new(
            host.directory_of("postgres", place)?,
            Load { buffers: 256, sessions: 20, rule: "pool-too-small" },
        )?))
    },
};

/// What is provoked.
struct Load {
    /// `shared_buffers` in MB.
    buffers: u64,
    sessions: usize,
    rule: &'static str,
}

struct Postgres {
    programs: PathBuf,
    place: PathBuf,
    load: Load,
    sessions: Vec<Server>,
    runs: bool,
    /// The page tables of the host before the server was first started, in kB.
    idle: u64,
}

impl Postgres {
    fn new(place: PathBuf, load: Load) -> Result<Self> {
        let server = newest(PROGRAMS[0]).ok_or("no postgres")?;
        let programs = server.parent().ok_or("no directory of postgres")?.to_path_buf();
        let postgres = Postgres { programs, place, load, sessions: Vec::new(), runs: false, idle: 0 };
        postgres.as_postgres(&format!(
            "{}/initdb -N -D {}",
            postgres.programs.display(),
            postgres.data().display()
        ))?;
        let settings = format!(
            "port = {PORT}\nunix_socket_directories = '{}'\nlisten_addresses = ''\nshared_buffers = {}MB\n\
             max_connections = {}\nmax_parallel_workers_per_gather = 0\nfsync = off\nautovacuum = off\n",
            postgres.place.display(),
            postgres.load.buffers,
            postgres.load.sessions + 20
        );
        let file = postgres.data().join("postgresql.conf");
        fs::write(&file, fs::read_to_string(&file)? + &settings)?;
        Ok(postgres)
    }

    fn data(&self) -> PathBuf {
        self.place.join("data")
    }

    /// Runs a command as the server's user.
    fn as_postgres(&self, command: &str) -> Result<String> {
        let mut su = Command::new("su");
        su.args(["postgres", "-s", "/bin/sh", "-c", command]).current_dir(&self.place);
        su.envs(self.environment());
        output(&mut su)
    }

    /// Starts or stops the server, at the same addresses each time: how many page tables its own memory takes
    /// depends on where they are, and each session has the same as the server.
    fn control(&self, action: &str) -> Result<String> {
        let (programs, data) = (self.programs.display(), self.data());
        let log = self.place.join("log");
        let command = format!(
            "setarch -R {programs}/pg_ctl -w -t 120 -D {} -l {} {action}",
            data.display(),
            log.display()
        );
        self.as_postgres(&command).map_err(|error| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(3).collect();
            format!("{error}; the log ends, last line first: {}", last.join(" / ")).into()
        })
    }

    fn ask(&self, query: &str) -> Result<String> {
        self.as_postgres(&format!("psql -Atc \"{query}\""))
    }

    /// The id of the server's first process.
    fn id(&self) -> Result<u32> {
        let file = fs::read_to_string(self.data().join("postmaster.pid"))?;
        Ok(file.lines().next().ok_or("postmaster.pid is empty")?.trim().parse()?)
    }

    /// A table of nine tenths of the buffers, a page for each row.
    fn fill(&self) -> Result<()> {
        let rows = self.load.buffers * 128 * 9 / 10;
        self.ask("create unlogged table filled (content text)")?;
        self.ask("alter table filled alter column content set storage plain")?;
        self.ask(&format!("insert into filled select repeat('x', 7000) from generate_series(1, {rows})"))?;
        self.ask("create extension pg_prewarm")?;
        Ok(())
    }
}

impl Application for Postgres {
    fn version(&self) -> Result<String> {
        output(Command::new(self.programs.join("postgres")).arg("--version"))
    }

    fn provoked(&self) -> String {
        let Load { buffers, sessions, rule } = self.load;
        let pool = match rule {
            "pool-too-small" => format!(" and a pool of {} huge pages of 2 MB", buffers / 2),
            _ => " and no huge pages".to_owned(),
        };
        format!(
            "{sessions} sessions, each of which has read a table through shared_buffers = {buffers}MB{pool}."
        )
    }

    fn rule(&self) -> &'static str {
        self.load.rule
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("PGHOST", self.place.display().to_string()),
            ("PGPORT", PORT.to_string()),
            ("PGDATABASE", "postgres".to_owned()),
        ]
    }

    fn start(&mut self, kept: &[Lines]) -> Result<()> {
        let file = self.data().join("postgresql.conf");
        fs::write(&file, fs::read_to_string(&file)? + &lines_for(kept, "postgresql.conf"))?;
        if kept.is_empty() {
            self.idle = kilobytes("/proc/meminfo", "PageTables")?;
        }
        self.control("start")?;
        self.runs = true;
        if kept.is_empty() {
            self.fill()?;
        }
        self.ask("select pg_prewarm('filled')")?;
        for _ in 0..self.load.sessions {
            let mut session = Command::new("psql");
            session.args([
                "-U",
                "postgres",
                "-Atc",
                "select count(*) from filled",
                "-c",
                "select pg_sleep(3600)",
            ]);
            let mut as_postgres = Command::new("su");
            let words: Vec<String> =
                (session.get_args()).map(|word| format!("'{}'", word.to_string_lossy())).collect();
            as_postgres.args(["postgres", "-s", "/bin/sh", "-c", &format!("exec psql {}", words.join(" "))]);
            as_postgres.envs(self.environment()).current_dir(&self.place);
            self.sessions.push(Server::start(&mut as_postgres, &self.place.join("sessions"))?);
        }
        let mut first = self.sessions.pop().ok_or("no session")?;
        let wanted = self.load.sessions.to_string();
        let asleep = "select count(*) from pg_stat_activity where query like 'select pg_sleep%'";
        first.wait_for(|| Ok(self.ask(asleep)? == wanted))?;
        self.sessions.push(first);
        Ok(())
    }

    fn answer(&mut self) -> Result<Answer> {
        let setting = self.ask("show huge_pages")?;
        let huge = huge_mappings(self.id()?)?;
        let tables = kilobytes("/proc/meminfo", "PageTables")?;
        Ok(Answer {
            asked: "psql -Atc 'SHOW huge_pages', and the server's mappings".to_owned(),
            said: format!("huge_pages {setting}, {} MB mapped in huge pages", huge / 1024),
            memory: format!("PageTables {} MB", tables / 1024),
            figure: tables as f64,
        })
    }

    fn expected(&self) -> Result<Option<Expected>> {
        if self.load.rule != "pagetable-bloat" {
            return Ok(None);
        }
        let measured = Measured::of(self.id()?, self.load.sessions, self.idle)?;
        Ok(Some(Expected { figure: measured.with_huge_pages()? as f64, of: "kB of page tables" }))
    }

    fn is_better(&self, before: f64, after: f64) -> bool {
        after < before
    }

    fn stop(&mut self) -> Result<()> {
        if self.runs {
            self.control("-m fast stop")?;
            self.runs = false;
        }
        // The sessions end with their server.
        self.sessions.clear();
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("PostgreSQL: {error}");
        }
    }
}
