//! MariaDB: a pool of huge pages that is too small for its buffer pool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::application::{
    Answer, Application, Lines, Server, command_as, huge_mappings, kilobytes, lines_for, output,
};
use super::host::{Host, User, pool};
use super::{Result, Trial};

const SERVER: &str = "/usr/sbin/mariadbd";

/// The server asks for huge pages and gets none for its buffer pool.
pub(super) const SHORT_POOL: Trial = Trial {
    name: "MariaDB: a pool of huge pages smaller than the buffer pool",
    programs: &[SERVER, "/usr/bin/mariadb", "/usr/bin/mariadb-install-db"],
    packages: "mariadb-server",
    quick: true,
    settings: &["vm.nr_hugepages"],
    prepare: |host, place, changes| {
        pool(changes, 400, 700)?;
        Ok(Box::new(Mariadb::new(host, place)?))
    },
};

struct Mariadb {
    place: PathBuf,
    user: User,
    server: Option<Server>,
}

impl Mariadb {
    fn new(host: &Host, place: &Path) -> Result<Self> {
        let place = host.directory_of("mysql", place)?;
        let mariadb = Mariadb { place, user: host.user("mysql")?, server: None };
        mariadb.configure(&[])?;
        let mut install = Command::new("mariadb-install-db");
        install.arg(format!("--defaults-file={}", mariadb.file("my.cnf").display()));
        install.args(["--user=mysql", "--skip-test-db", "--auth-root-authentication-method=normal"]);
        output(&mut install)?;
        Ok(mariadb)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    fn configure(&self, kept: &[Lines]) -> Result<()> {
        let place = self.place.display();
        let text = format!(
            "[mysqld]\ndatadir = {place}/data\nsocket = {place}/socket\npid-file = {place}/pid\nskip-networking\n\
             innodb-buffer-pool-size = 1G\nlarge-pages\n{}",
            lines_for(kept, "my.cnf, [mysqld]")
        );
        Ok(fs::write(self.file("my.cnf"), text)?)
    }

    fn ask(&self, query: &str) -> Result<String> {
        let mut client = Command::new("mariadb");
        client.arg("--no-defaults").arg(format!("--socket={}", self.file("socket").display()));
        client.args(["--user=root", "--batch", "--skip-column-names", "-e", query]);
        output(&mut client)
    }
}

impl Application for Mariadb {
    fn version(&self) -> Result<String> {
        output(Command::new(SERVER).arg("--version"))
    }

    fn provoked(&self) -> String {
        "innodb-buffer-pool-size = 1G with large-pages, and a pool of 400 huge pages of 2 MB.".to_owned()
    }

    fn rule(&self) -> &'static str {
        "pool-too-small"
    }

    fn start(&mut self, kept: &[Lines]) -> Result<()> {
        self.configure(kept)?;
        let mut command = command_as(SERVER, &self.user);
        command.arg(format!("--defaults-file={}", self.file("my.cnf").display()));
        let mut server = Server::start(&mut command, &self.file("log"))?;
        server.wait_for(|| Ok(self.ask("select 1").is_ok()))?;
        self.server = Some(server);
        Ok(())
    }

    fn answer(&mut self) -> Result<Answer> {
        let id = self.server.as_ref().ok_or("MariaDB does not run")?.id();
        let asked = self.ask("show global variables like 'large_pages'")?.replace('\t', " ");
        let pool = huge_mappings(id)?;
        Ok(Answer {
            asked: "SHOW VARIABLES LIKE 'large_pages', and its mappings of huge pages".to_owned(),
            said: format!("{asked}, {} MB mapped in huge pages", pool / 1024),
            memory: format!("HugePages_Free {}", kilobytes("/proc/meminfo", "HugePages_Free")?),
            figure: pool as f64,
        })
    }

    fn is_better(&self, before: f64, after: f64) -> bool {
        // All of the buffer pool, in kB, and not before.
        before < 1024.0 * 1024.0 && after >= 1024.0 * 1024.0
    }

    fn stop(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::end)
    }
}
