//! Java: a pool of huge pages as large as the heap, which has no room for what the machine needs beside it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::application::{Answer, Application, Lines, Server, huge_mappings, lines_for};
use super::host::pool;
use super::{Result, Trial};

/// The heap, in MB.
const HEAP: u64 = 2048;

/// A pool by the arithmetic that is often told: heap divided by the size of a page.
pub(super) const SHORT_POOL: Trial = Trial {
    name: "Java: a pool of huge pages as large as the heap",
    programs: &["/usr/bin/java"],
    packages: "default-jre-headless",
    quick: true,
    settings: &["vm.nr_hugepages"],
    prepare: |_, place, changes| {
        pool(changes, HEAP / 2, HEAP / 2 + 250)?;
        Ok(Box::new(Java { place: place.to_path_buf(), machine: None }))
    },
};

struct Java {
    place: PathBuf,
    machine: Option<Server>,
}

impl Java {
    fn log(&self) -> PathBuf {
        self.place.join("log")
    }
}

impl Application for Java {
    fn version(&self) -> Result<String> {
        let output = Command::new("java").arg("-version").output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(said.lines().find(|line| line.contains("Runtime")).unwrap_or(&said).trim().to_owned())
    }

    fn provoked(&self) -> String {
        format!(
            "-Xms{HEAP}m -Xmx{HEAP}m with G1 and -XX:+UseLargePages, and a pool of {} huge pages of 2 MB.",
            HEAP / 2
        )
    }

    fn rule(&self) -> &'static str {
        "pool-too-small"
    }

    fn start(&mut self, kept: &[Lines]) -> Result<()> {
        let log = self.log();
        // A server that comes with every runtime, and waits.
        let heap = [format!("-Xms{HEAP}m"), format!("-Xmx{HEAP}m")];
        let mut command = Command::new("java");
        command.args(heap).args(["-XX:+UseG1GC", "-XX:+UseLargePages", "-Xlog:pagesize"]);
        command.args(lines_for(kept, "the command line of Java").split_ascii_whitespace());
        command.args(["-m", "java.rmi/sun.rmi.registry.RegistryImpl", "0"]);
        let _ = fs::remove_file(&log);
        let mut machine = Server::start(&mut command, &log)?;
        let maps = format!("/proc/{}/maps", machine.id());
        // Its heap is mapped, by whatever pages, when it has read the classes of its archive.
        machine.wait_for(|| Ok(fs::read_to_string(&maps)?.contains("/modules")))?;
        std::thread::sleep(std::time::Duration::from_secs(2));
        self.machine = Some(machine);
        Ok(())
    }

    fn answer(&mut self) -> Result<Answer> {
        let id = self.machine.as_ref().ok_or("Java does not run")?.id();
        let log = fs::read_to_string(self.log())?;
        let heap = log.lines().find_map(|line| line.split_once("Heap:")?.1.split_once("page_size="));
        let page = heap
            .and_then(|(_, rest)| rest.split(' ').next())
            .ok_or("its log does not have the heap's pages")?;
        let mapped = huge_mappings(id)?;
        Ok(Answer {
            asked: "-Xlog:pagesize".to_owned(),
            said: format!("Heap: page_size={page}"),
            memory: format!("{} MB mapped in huge pages", mapped / 1024),
            figure: mapped as f64,
        })
    }

    fn is_better(&self, before: f64, after: f64) -> bool {
        let heap = (HEAP * 1024) as f64;
        before < heap && after >= heap
    }

    fn stop(&mut self) -> Result<()> {
        self.machine.take().map_or(Ok(()), Server::end)
    }
}
