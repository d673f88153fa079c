//! A case on this host, or in a control group of it.

use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_changes::{Changes, Outcome, StateDirectory};
use lotsfree_kernel_files::counters::{Meminfo, Values, meminfo};
use lotsfree_run::{RunOn, State};
use lotsfree_scenario::Case;
use lotsfree_settings::SWAPPINESS;
use lotsfree_storage::{Access, create_dir, replace};
use lotsfree_units::Bytes;
use lotsfree_watch::BUDGET;
use lotsfree_workload::Program;

use crate::command;
use crate::coordinator::Place;
use crate::error::{LabError, at, calling};
use crate::group::{self, Version, version};
use crate::here::{self, Output, Watch, current};
use crate::prepare::Written;

/// The share of `MemTotal` that must be available on a host that nobody else uses.
const IDLE: f64 = 1.0 / 3.0;
/// The share of `MemAvailable` that a case may pin.
const SHARE: f64 = 0.8;
/// The share of a file system's free space that a case may fill.
const DISK_SHARE: f64 = 0.9;
/// `statfs` types of the file systems that keep files in memory: tmpfs and ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// The directory of the actors' files, in that of the lab.
const FILES: &str = "files";

const NEEDS_ROOT: &str = "changing a host needs root";

/// Executes cases on the kernel of this host.
#[derive(Clone, Debug)]
pub struct Local {
    /// Whether actors run in a control group of the scenario's size, instead of with all of the host's
    /// memory.
    pub group: bool,
    /// The directory in which one is made for files and swap; that one is removed afterwards.
    pub parent: PathBuf,
    /// Where changes of this host are noted.
    pub state: StateDirectory,
    /// The program that runs as an agent, with its arguments.
    pub agent: (PathBuf, Vec<String>),
    /// Execute cases even if that endangers other programs on this host.
    pub risky: bool,
    /// Requests that take at least this many nanoseconds are reported one by one.
    pub slow: u64,
    /// Whether the scenario's commands may be executed.
    pub exec: bool,
    /// Whether the kernel is watched for what memory costs the actors.
    pub blame: bool,
}

/// The changes that a case would make on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Changes, in the order in which they are made; they are undone in reverse.
    pub changes: Vec<String>,
    /// Differences between the run and what the scenario describes.
    pub remarks: Vec<String>,
    /// Settings of the scenario that act on a control group otherwise than on a machine, with the reason.
    pub warnings: Vec<String>,
    /// Reasons why the case would be refused; empty if it would not.
    pub refusals: Vec<String>,
}

impl Local {
    /// The changes that a case would make, and the reasons why it would be refused.
    ///
    /// # Errors
    /// If the scenario asks for something that this host does not have.
    pub fn plan(&self, case: &Case) -> Result<Plan, LabError> {
        self.planned(case, 0)
    }

    /// As [`plan`](Local::plan), where files of `written` bytes are there already, for this case or to be
    /// removed.
    fn planned(&self, case: &Case, written: u64) -> Result<Plan, LabError> {
        let mut plan = Plan::default();
        let memory = read_meminfo()?;
        let program = case.program()?;
        self.check(case, &program, &memory, written, &mut plan)?;
        self.compare(case, &memory, &mut plan);
        plan.changes.push(format!("make a directory for files in {}", self.parent.display()));
        self.announce(&program, &mut plan);
        let swap = case.machine.swap.size;
        if case.machine.swap.is_zram() {
            let why = "swap.on = \"zram\" would take this host's memory, outside of every group's limit, and make a \
                       device that outlives a killed lab; --on vm has a zram of its own";
            plan.refusals.push(why.to_owned());
        } else if case.machine.swap.zswap().is_some() {
            let why = "machine.swap.zswap would turn zswap on for all of this host, and take its memory; --on vm has a \
                       zswap of its own";
            plan.refusals.push(why.to_owned());
        } else if swap.0 > Bytes::ZERO {
            plan.changes.push(format!("swap to a file of {swap} in it"));
        }
        let group = if self.group { Some(version()?) } else { None };
        for (path, value) in self.settings(case)? {
            let before = current(&path)?;
            if before != value {
                plan.changes.push(format!("{}: {before} to {value}", path.display()));
            }
        }
        if let Some((path, actor)) = here::set_by_actor(case) {
            plan.changes.push(format!("{}: as {actor} sets it", path.display()));
        }
        if let Some(group) = group {
            plan.refusals.extend(group::obstacles(group, group::parent(group), &case.machine));
            let otherwise =
                |(name, value)| Some(format!("{name} {}", group::acts_otherwise(name, value, group)?));
            plan.warnings.extend(case.tuning.iter().filter_map(otherwise));
            if let Some(control) = group::lacks_controller(group)? {
                plan.changes.push(format!("switch the memory controller on in {}", control.display()));
            }
            plan.changes.push(format!("make a control group in {}", group::parent(group).display()));
            let limits = limits(case, group, swaps(&memory)).into_iter();
            plan.changes.extend(limits.map(|(file, value)| format!("{file} of the group: {value}")));
        }
        Ok(plan)
    }

    /// Says which commands the case executes, and refuses them unless they are allowed.
    fn announce(&self, program: &Program, plan: &mut Plan) {
        for announced in command::announced(program) {
            match announced {
                Ok(what) => {
                    if !self.exec {
                        plan.refusals.push(format!("the scenario would {what}; allow it with --allow-exec"));
                    }
                    plan.changes.push(what);
                }
                Err(why) => plan.refusals.push(why),
            }
        }
    }

    /// The settings of the whole host. One that the control group has for itself is left out.
    fn settings(&self, case: &Case) -> Result<Vec<(PathBuf, String)>, LabError> {
        let mut wanted = here::wanted(case, &self.parent)?;
        if self.group && version()? == Version::One {
            let swappiness = here::setting_path(SWAPPINESS, &self.parent).ok();
            wanted.retain(|(path, _)| Some(path) != swappiness.as_ref());
        }
        Ok(wanted)
    }

    fn check(
        &self,
        case: &Case,
        program: &Program,
        memory: &Values<Meminfo>,
        written: u64,
        plan: &mut Plan,
    ) -> Result<(), LabError> {
        if !rustix::process::geteuid().is_root() {
            plan.refusals.push(NEEDS_ROOT.to_owned());
        }
        let kib = |counter| memory.get(counter).unwrap_or(0);
        let (total, available) = (kib(meminfo::MemTotal), kib(meminfo::MemAvailable));
        if !self.risky {
            if (available as f64) < total as f64 * IDLE {
                plan.refusals.push(format!(
                    "this host is in use: {} of {} are available, less than a third (--yes-really to run all the same)",
                    Bytes::kib(available),
                    Bytes::kib(total)
                ));
            }
            let demand: Bytes = case.actors.iter().map(|actor| actor.kind.demand()).sum();
            let bound = if self.group { demand.min(case.machine.memory()) } else { demand };
            let limit = Bytes((available as f64 * 1024.0 * SHARE) as u64);
            if bound > limit {
                plan.refusals.push(format!(
                    "the actors need {bound} of memory; {limit} can be given without endangering this host \
                     (--yes-really to run all the same)"
                ));
            }
        }
        let parent = &self.parent;
        if !parent.is_dir() {
            plan.refusals.push(format!(
                "{}: no such directory; make it, or name another with --dir",
                parent.display()
            ));
            return Ok(());
        }
        let status = rustix::fs::statfs(parent).map_err(|error| at(parent)(error.into()))?;
        if IN_MEMORY.contains(&status.f_type) {
            let why = "keeps files in memory; name a directory on a disk with --dir";
            plan.refusals.push(format!("{}: {why}", parent.display()));
        }
        let free = status.f_bavail.saturating_mul(u64::try_from(status.f_bsize).unwrap_or(4096));
        let free = Bytes(free.saturating_add(written));
        let files: u64 = program.files.iter().map(|file| u64::from(file.pages)).sum();
        let needed = Bytes(files.saturating_mul(4096)) + case.machine.swap.size.0;
        if needed.0 as f64 > free.0 as f64 * DISK_SHARE {
            plan.refusals.push(format!(
                "{}: files and swap need up to {needed}, {free} are free; name another directory with --dir",
                parent.display()
            ));
        }
        Ok(())
    }

    /// Notes the differences between this host and the scenario's machine as remarks.
    fn compare(&self, case: &Case, memory: &Values<Meminfo>, plan: &mut Plan) {
        let mut remark = |text: String| plan.remarks.push(text);
        let total = Bytes::kib(memory.get(meminfo::MemTotal).unwrap_or(0));
        let (nodes, asked) = (lotsfree_watch::nodes().len(), case.machine.nodes.len());
        if self.group {
            remark(format!("a control group of {} on a host of {total}", case.machine.memory()));
        } else {
            remark(format!("the scenario's machine has {}, this host {total}", case.machine.memory()));
        }
        if nodes != asked {
            remark(format!("the scenario's machine has {asked} nodes, this host {nodes}"));
        }
        remark(format!("the disk is that of {}, not the scenario's", self.parent.display()));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        remark(format!("the kernel is {}, the scenario's {}", release.trim(), case.machine.generation));
        let swap = memory.get(meminfo::SwapTotal).unwrap_or(0);
        if swap > 0 {
            remark(format!("this host swaps to {} of its own, which stay", Bytes::kib(swap)));
        }
    }

    /// Begins to execute cases one after the other. `report` is called for each change of an earlier lab that
    /// is undone.
    ///
    /// # Errors
    /// If this user is not root, if another lab changes this host, or if there is no directory for files.
    pub fn begin(&self, report: &mut dyn FnMut(&Outcome)) -> Result<Session<'_>, LabError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::Refused(NEEDS_ROOT.to_owned()));
        }
        Ok(Session {
            local: self,
            changes: self.state.host(report)?,
            directory: None,
            written: Written::default(),
        })
    }

    fn make_group(&self, case: &Case, version: Version, changes: &mut Changes) -> Result<PathBuf, LabError> {
        let path = group::make(version, changes)?;
        for (file, value) in limits(case, version, swaps(&read_meminfo()?)) {
            let file = path.join(file);
            // Without CONFIG_MEMCG_SWAP, or with swapaccount=0, the swap of a group cannot be limited.
            if !file.exists() {
                let why = "this kernel does not limit the swap of a group (swapaccount=1)";
                return Err(calling(file.display().to_string())(std::io::Error::other(why)));
            }
            lotsfree_storage::set(&file, &value).map_err(at(&file))?;
        }
        Ok(path)
    }
}

/// Cases that are executed one after the other. What one of them leaves of the files as they have to be, the
/// next one uses; everything else is put back after each case, and all of it at the end, also when the value
/// is dropped.
#[derive(Debug)]
pub struct Session<'a> {
    local: &'a Local,
    changes: Changes,
    /// The directory of the files.
    directory: Option<PathBuf>,
    written: Written,
}

impl Session<'_> {
    /// Executes a case. `report` is called for each change that is undone.
    ///
    /// # Errors
    /// If the case is refused, a setting cannot be made, an agent fails or the output fails. Whatever
    /// happens, the host is put back as it was but for the directory of files.
    pub fn execute(
        &mut self,
        case: &Case,
        output: &mut dyn Output,
        report: &mut dyn FnMut(&Outcome),
        watch: Watch<'_>,
    ) -> Result<State, LabError> {
        let plan = self.local.planned(case, self.written.bytes())?;
        if !plan.refusals.is_empty() {
            return Err(LabError::Refused(plan.refusals.join("\n")));
        }
        let directory = match &self.directory {
            Some(directory) => directory.clone(),
            None => {
                let made = self.changes.directory(&self.local.parent, "lab")?;
                let files = made.join(FILES);
                create_dir(&files).map_err(at(&files))?;
                self.directory.insert(made).clone()
            }
        };
        let before = self.changes.count();
        let done = self.change_and_run(case, plan, &directory, output, watch);
        let undone = self.changes.undo_to(before, report);
        done.and_then(|state| Ok(undone.map(|()| state)?))
    }

    fn change_and_run(
        &mut self,
        case: &Case,
        plan: Plan,
        directory: &Path,
        output: &mut dyn Output,
        watch: Watch<'_>,
    ) -> Result<State, LabError> {
        let Session { local, changes, written, .. } = self;
        let swap = case.machine.swap.size.0;
        if swap > Bytes::ZERO {
            changes.swap(&directory.join("swap"), swap.0)?;
        }
        here::tune(case, &local.settings(case)?, changes)?;
        let group = match local.group {
            true => Some(local.make_group(case, version()?, changes)?),
            false => None,
        };
        let text = directory.join("case.toml");
        replace(&text, Access::Private, case.to_toml().as_bytes()).map_err(at(&text))?;
        let nodes = lotsfree_watch::nodes();
        let place = Place {
            commands: command::prepare(&case.program()?, &local.parent, changes)?,
            program: local.agent.0.clone(),
            arguments: local.agent.1.clone(),
            case: text,
            files: directory.join(FILES),
            group,
            cpus: if nodes.len() > 1 {
                nodes.iter().map(|node| node.cpus.clone()).collect()
            } else {
                Vec::new()
            },
            nodes: nodes.iter().map(|node| node.id).collect(),
            oom_score_adj: 1000,
            slow: local.slow,
            blame: local.blame.then_some(BUDGET),
        };
        let machine = if local.group { RunOn::Cgroup } else { RunOn::Host };
        let remarks = plan.remarks.into_iter().chain(plan.warnings).collect();
        here::execute(case, &place, machine, remarks, written, output, watch)
    }

    /// Removes the files, and with them the last trace of the cases.
    ///
    /// # Errors
    /// What could not be undone.
    pub fn end(self, report: &mut dyn FnMut(&Outcome)) -> Result<(), LabError> {
        Ok(self.changes.undo(report)?)
    }
}

/// The limits that make a control group as large as the scenario's machine: files and values.
/// `host_swaps`: whether there is swap that the group could use without a limit.
fn limits(case: &Case, version: Version, host_swaps: bool) -> Vec<(&'static str, String)> {
    let (memory, swap) = (case.machine.memory().0, case.machine.swap.size.0.0);
    match version {
        Version::One => {
            let mut limits = vec![("memory.limit_in_bytes", memory.to_string())];
            // The order matters: the limit of memory and swap together may not be below that of memory.
            // Where it is the same, charges meet it first, and 6.18 counts only those that meet the limit
            // of memory; so it is left out where there is no swap.
            if host_swaps || swap > 0 {
                limits.push(("memory.memsw.limit_in_bytes", (memory + swap).to_string()));
            }
            let swappiness = case.tuning.get(SWAPPINESS);
            limits.extend(swappiness.map(|swappiness| ("memory.swappiness", swappiness.to_string())));
            limits
        }
        Version::Two => {
            vec![("memory.max", memory.to_string()), ("memory.swap.max", swap.to_string())]
        }
    }
}

/// Whether this host swaps.
fn swaps(memory: &Values<Meminfo>) -> bool {
    memory.get(meminfo::SwapTotal).is_some_and(|kib| kib > 0)
}

pub(crate) fn read_meminfo() -> Result<Values<Meminfo>, LabError> {
    let path = Path::new("/proc/meminfo");
    Ok(Values::<Meminfo>::parse(&fs::read(path).map_err(at(path))?, |_| ()))
}
