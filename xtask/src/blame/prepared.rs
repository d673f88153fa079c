//! What all cases of a run use: a database and a large file, made once.

use std::path::Path;
use std::process::Command;

use crate::real::Result;
use crate::real::application::output;
use crate::real::host::newest;

/// A file that is larger than any limit, to be copied.
pub(super) const LARGE: &str = "large";
/// The database's directory.
const DATABASE: &str = "database";
/// What begins a command that PostgreSQL's user runs.
pub(super) const AS_POSTGRES: &str = "setpriv --reuid=postgres --regid=postgres --clear-groups";

/// Makes both in a directory. The database has 600 MB of data, and is stopped.
pub(super) fn make(directory: &Path) -> Result<()> {
    let at = directory.display();
    // A file of zeros would become a hole in the disk of a virtual machine, and nothing would be copied.
    sh(&format!("dd if=/dev/urandom of={at}/{LARGE} bs=1M count=3000 status=none"))?;
    let database = directory.join(DATABASE);
    let (programs, at) = (programs()?, database.display());
    sh(&format!("install -d -o postgres {at}"))?;
    let as_postgres = |command: &str| sh(&format!("{AS_POSTGRES} {programs}/{command}"));
    as_postgres(&format!("initdb -N -A trust -D {at}/data"))?;
    let file = database.join("data/postgresql.conf");
    let settings = "listen_addresses = ''\nshared_buffers = 64MB\nfsync = off\nautovacuum = off\n";
    std::fs::write(&file, std::fs::read_to_string(&file)? + settings)?;
    as_postgres(&format!("pg_ctl -w -D {at}/data -l {at}/log -o '-k {at} -p 22433' start"))?;
    as_postgres(&format!("pgbench -h {at} -p 22433 -i -s 40 -q postgres"))?;
    as_postgres(&format!("pg_ctl -w -D {at}/data stop"))?;
    Ok(())
}

/// Makes a copy of the database.
pub(super) fn database(prepared: &Path, copy: &Path) -> Result<()> {
    output(Command::new("cp").arg("-a").arg(prepared.join(DATABASE)).arg(copy))?;
    Ok(())
}

/// The directory of PostgreSQL's programs.
pub(super) fn programs() -> Result<String> {
    let server =
        newest("/usr/lib/postgresql/*/bin/postgres").ok_or("no postgres: apt-get install postgresql")?;
    Ok(server.parent().ok_or("no directory of postgres")?.display().to_string())
}

/// What a shell prints.
pub(super) fn sh(command: &str) -> Result<String> {
    output(Command::new("sh").args(["-c", command]).current_dir("/"))
}
