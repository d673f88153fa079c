//! [`Host`]: what the trials need of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use lotsfree_changes::{Changes, chosen};
use lotsfree_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use super::application::output;
use super::{Result, Trial};

/// A user of the system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
}

/// This machine and the program under trial.
pub(crate) struct Host {
    /// The directory of `lotsfree`.
    programs: PathBuf,
}

impl Host {
    /// # Errors
    /// If the program was not built beside this chore.
    pub(crate) fn new() -> Result<Self> {
        let here = std::env::current_exe()?;
        Self::with(here.parent().ok_or("no directory of programs")?.to_path_buf())
    }

    /// With the programs of a directory.
    ///
    /// # Errors
    /// If the program is not there.
    pub(crate) fn with(programs: PathBuf) -> Result<Self> {
        if !programs.join("lotsfree").is_file() {
            return Err(format!("{}: no lotsfree here", programs.display()).into());
        }
        Ok(Host { programs })
    }

    /// Why a trial cannot be made here, if so.
    pub(crate) fn lacks(&self, trial: &Trial) -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("it changes settings of the host, which only root may".to_owned());
        }
        if let Some(missing) = trial.programs.iter().find(|program| newest(program).is_none()) {
            return Some(format!("no {missing}: apt-get install {}", trial.packages));
        }
        // A setting that cannot be written with the value that it has cannot be changed either.
        trial.settings.iter().map(|setting| setting_file(setting)).find_map(|file| {
            let now = fs::read_to_string(&file).map(|text| chosen(&text).to_owned());
            let written = now.and_then(|now| fs::write(&file, now));
            written.err().map(|error| format!("{}: {error}", file.display()))
        })
    }

    /// A directory for an application's files, on a disk: `/tmp` may be in memory. Servers run as users of
    /// their own, so all may pass.
    pub(crate) fn directory(&self, changes: &mut Changes) -> Result<PathBuf> {
        let directory = changes.directory(Path::new("/var/tmp"), "real")?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
        Ok(directory)
    }

    /// A directory in it that belongs to a server's user.
    pub(crate) fn directory_of(&self, user: &str, place: &Path) -> Result<PathBuf> {
        let directory = place.join("server");
        fs::create_dir(&directory)?;
        output(Command::new("chown").arg(user).arg(&directory))?;
        Ok(directory)
    }

    /// A shell that runs a command as an administrator would paste it, with `lotsfree` on its path.
    pub(crate) fn shell(&self, command: &str, environment: &[(&'static str, String)]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir("/");
        shell.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.programs.display()));
        shell.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
        shell
    }

    /// A user by name.
    pub(crate) fn user(&self, name: &str) -> Result<User> {
        let id =
            |option: &str| -> Result<u32> { Ok(output(Command::new("id").args([option, name]))?.parse()?) };
        Ok(User { uid: id("-u")?, gid: id("-g")? })
    }
}

/// How often a pool is asked for that came out too small.
const TRIES: usize = 50;

/// Makes a pool of `pages` huge pages, on a host that was seen to have room for `most`.
///
/// # Errors
/// If the kernel does not make `most`, however often it is asked.
pub(crate) fn pool(changes: &mut Changes, pages: u64, most: u64) -> Result<()> {
    let file = setting_file("vm.nr_hugepages");
    let whole = (0..TRIES).map(|_| changes.set(&file, &most.to_string())).find(|made| made.is_ok());
    whole.ok_or_else(|| format!("the kernel does not make {most} huge pages"))??;
    Ok(changes.set(&file, &pages.to_string())?)
}

/// A control group with a limit on memory.
pub(crate) struct Group {
    path: PathBuf,
    v1: bool,
}

impl Group {
    /// A group below the hierarchy that can limit memory.
    pub(crate) fn new(changes: &mut Changes, limit: Bytes) -> Result<Self> {
        let (first, second) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let v1 = first.join("memory.limit_in_bytes").exists();
        let parent = if v1 { first } else { second };
        if !v1 {
            changes.controller(&parent.join("cgroup.subtree_control"), "memory")?;
        }
        let group = Group { path: changes.group(parent, "real")?, v1 };
        let file = group.limit_file();
        fs::write(&file, limit.0.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(group)
    }

    /// A group below it, without a limit of its own.
    pub(crate) fn below(&self, changes: &mut Changes, what: &str) -> Result<Self> {
        if !self.v1 {
            changes.controller(&self.path.join("cgroup.subtree_control"), "memory")?;
        }
        Ok(Group { path: changes.group(&self.path, what)?, v1: self.v1 })
    }

    /// Kills what runs in it, and says how many processes that were.
    pub(crate) fn kill(&self) -> Result<usize> {
        let text = fs::read_to_string(self.path.join("cgroup.procs"))?;
        let processes: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        for process in processes.iter().filter_map(|id| Pid::from_raw(*id)) {
            // It may have ended since.
            let _ = kill_process(process, Signal::KILL);
        }
        Ok(processes.len())
    }

    /// A shell that enters the group and becomes a program.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut shell = Command::new("sh");
        let procs = self.path.join("cgroup.procs");
        shell.args(["-c", &format!("echo $$ > {} && exec {program}", procs.display())]);
        shell
    }

    /// Its name as `/proc/PID/cgroup` has it.
    pub(crate) fn shown(&self) -> String {
        let root = if self.v1 { "/sys/fs/cgroup/memory" } else { "/sys/fs/cgroup" };
        let below = self.path.strip_prefix(root).unwrap_or(&self.path);
        format!("/{}", below.display())
    }

    /// The name of its directory.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Its limit.
    pub(crate) fn limit(&self) -> Result<Bytes> {
        Ok(Bytes(fs::read_to_string(self.limit_file())?.trim().parse()?))
    }

    /// How much of it lies in swap, in bytes.
    pub(crate) fn swapped(&self) -> Result<u64> {
        if !self.v1 {
            return Ok(fs::read_to_string(self.path.join("memory.swap.current"))?.trim().parse()?);
        }
        let stat = fs::read_to_string(self.path.join("memory.stat"))?;
        let line = stat.lines().find_map(|line| line.strip_prefix("total_swap "));
        Ok(line.ok_or("memory.stat has no total_swap: the kernel does not account for swap")?.parse()?)
    }

    fn limit_file(&self) -> PathBuf {
        self.path.join(if self.v1 { "memory.limit_in_bytes" } else { "memory.max" })
    }
}

/// The file that a path with at most one `*` as a whole component stands for: that of the highest version.
pub(crate) fn newest(pattern: &str) -> Option<PathBuf> {
    let Some((before, after)) = pattern.split_once("/*/") else {
        return Some(PathBuf::from(pattern)).filter(|path| path.exists());
    };
    let mut found: Vec<(u64, PathBuf)> = fs::read_dir(before)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join(after))).filter(|(_, path)| path.exists())
        })
        .collect();
    found.sort();
    found.pop().map(|(_, path)| path)
}

/// The file of a setting: a path, or a sysctl's name.
pub(crate) fn setting_file(setting: &str) -> PathBuf {
    match setting.starts_with('/') {
        true => PathBuf::from(setting),
        false => Path::new("/proc/sys").join(setting.replace('.', "/")),
    }
}

/// The values of settings, to be compared with later ones.
pub(crate) struct Values(Vec<(PathBuf, String)>);

impl Values {
    pub(crate) fn read(settings: &[&str]) -> Result<Self> {
        let value = |setting: &&str| -> Result<(PathBuf, String)> {
            let file = setting_file(setting);
            let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            Ok((file, chosen(&text).to_owned()))
        };
        Ok(Values(settings.iter().map(value).collect::<Result<_>>()?))
    }

    /// Settings that are other than they were, with both values.
    pub(crate) fn differing(&self) -> Vec<String> {
        let differs = |(file, was): &(PathBuf, String)| {
            let now = fs::read_to_string(file).unwrap_or_default();
            let now = chosen(&now);
            (now != was).then(|| format!("{} is {now}, was {was}", file.display()))
        };
        self.0.iter().filter_map(differs).collect()
    }
}
