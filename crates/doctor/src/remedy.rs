//! [`Remedy`]: commands and lines that do, keep and undo a change, and its risk.

use lotsfree_kernel_files::file::sysctl::winner;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Context;

/// File in which persistent sysctl settings are proposed; the number puts it after a distribution's own
/// files.
pub(crate) const SYSCTL_FILE: &str = "/etc/sysctl.d/90-lotsfree.conf";
/// File in which they are proposed if a package's file sorts after [`SYSCTL_FILE`].
const LATE_SYSCTL_FILE: &str = "/etc/sysctl.d/zz-lotsfree.conf";
/// File in which settings in `/sys` are proposed (`tmpfiles.d(5)`, type `w`).
pub(crate) const TMPFILES_FILE: &str = "/etc/tmpfiles.d/90-lotsfree.conf";
/// File in which limits are proposed.
pub(crate) const LIMITS_FILE: &str = "/etc/security/limits.d/90-lotsfree.conf";

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Remedy {
    /// What it does, in the imperative.
    pub title: String,
    /// Commands that do it now, to be pasted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runtime: Vec<String>,
    /// Lines that make it last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub persistent: Vec<Persistent>,
    /// Commands that undo it, to be pasted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undo: Vec<String>,
    /// What it risks or costs.
    pub risk: String,
    /// What must be restarted before it takes effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// Commands that tell whether it took effect, to be pasted after the restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verify: Vec<String>,
    /// The settings that it changes; two findings never ask for different values of one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<Setting>,
}

/// Lines of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Persistent {
    /// The file, or `kernel command line`.
    pub file: String,
    /// The lines.
    pub lines: Vec<String>,
}

/// A setting and the value that a remedy gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Setting {
    /// Sysctl name, `/sys` path, or unit property.
    pub name: String,
    /// Value.
    pub value: String,
}

impl Remedy {
    /// A remedy that has only a title.
    pub fn new(title: impl Into<String>) -> Self {
        Remedy {
            title: title.into(),
            runtime: Vec::new(),
            persistent: Vec::new(),
            undo: Vec::new(),
            risk: String::new(),
            restart: None,
            verify: Vec::new(),
            sets: Vec::new(),
        }
    }

    /// Sets a sysctl: command, `sysctl.d` line, undo with the value that the host has now.
    pub fn sysctl(mut self, cx: &Context<'_>, name: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        self.runtime.push(format!("sysctl -w {name}={}", word(&value)));
        self.persist(&sysctl_file(cx, name), format!("{name} = {value}"));
        if let Some(now) = cx.now().sysctl.text(name) {
            self.undo.push(format!("sysctl -w {name}={}", word(now)));
        }
        self.sets.push(Setting { name: name.to_owned(), value });
        self
    }

    /// Writes a file in `/sys`; `now` is its present content, for the undo.
    pub fn sysfs(mut self, path: &str, value: &str, now: Option<&str>) -> Self {
        self.runtime.push(format!("echo {} > {}", word(value), word(path)));
        self.persist(TMPFILES_FILE, format!("w {path} - - - - {value}"));
        if let Some(now) = now {
            self.undo.push(format!("echo {} > {}", word(now), word(path)));
        }
        self.sets.push(Setting { name: path.to_owned(), value: value.to_owned() });
        self
    }

    /// Adds a command that applies it now.
    pub fn run(mut self, command: impl Into<String>) -> Self {
        self.runtime.push(command.into());
        self
    }

    /// Adds a line that makes it persistent.
    pub fn keep(mut self, file: &str, line: impl Into<String>) -> Self {
        self.persist(file, line.into());
        self
    }

    /// Adds a command that undoes it.
    pub fn undo_with(mut self, command: impl Into<String>) -> Self {
        self.undo.push(command.into());
        self
    }

    /// Sets its risk or cost.
    pub fn risk(mut self, risk: impl Into<String>) -> Self {
        self.risk = risk.into();
        self
    }

    /// Sets what must be restarted.
    pub fn restart(mut self, what: impl Into<String>) -> Self {
        self.restart = Some(what.into());
        self
    }

    /// Adds a command that tells whether it took effect.
    pub fn verify(mut self, command: impl Into<String>) -> Self {
        self.verify.push(command.into());
        self
    }

    /// Declares a setting that it changes, if neither `sysctl` nor `sysfs` did.
    pub fn sets(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.sets.push(Setting { name: name.into(), value: value.to_string() });
        self
    }

    fn persist(&mut self, file: &str, line: String) {
        match self.persistent.iter_mut().find(|p| p.file == file) {
            Some(persistent) => persistent.lines.push(line),
            None => self.persistent.push(Persistent { file: file.to_owned(), lines: vec![line] }),
        }
    }
}

/// The file in which a line for the sysctl `name` wins at the next boot: the administrator's own file that
/// sets it now (`/etc/sysctl.conf` and `99-*.conf` are applied after [`SYSCTL_FILE`]), else a file that is
/// applied last.
pub(crate) fn sysctl_file(cx: &Context<'_>, name: &str) -> String {
    let Some(setting) = winner(&cx.now().sysctl_files, name) else { return SYSCTL_FILE.to_owned() };
    let file = setting.file.trim_start_matches('/');
    // A glob (`vm.*`) is not a line of its own; an exact name wins over it.
    if file.starts_with("etc/") && setting.name.trim_start_matches('-') == name {
        return format!("/{file}");
    }
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match base(file) > base(SYSCTL_FILE) || file == "etc/sysctl.conf" {
        true => LATE_SYSCTL_FILE.to_owned(),
        false => SYSCTL_FILE.to_owned(),
    }
}

/// `text` as one word of a shell's command line, in single quotes if the shell would otherwise interpret it.
/// The names of a host's cgroups, mounts and profiles come from files that may be hostile, and commands are
/// meant to be pasted as root.
pub(crate) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::file::sysctl::SysctlSetting;
    use lotsfree_snapshot::{Observation, Snapshot};

    use super::*;
    use lotsfree_settings::{DIRTY_RATIO, SWAPPINESS};

    #[test]
    fn what_the_host_says_stays_one_word() {
        assert_eq!(word("/dev/mapper/vg-swap"), "/dev/mapper/vg-swap");
        assert_eq!(word("250 32000 100 128"), "'250 32000 100 128'");
        assert_eq!(word("$(reboot)"), "'$(reboot)'");
        assert_eq!(word("a'; reboot; '"), r"'a'\''; reboot; '\'''");
        assert_eq!(word(r"system-db\x2d16.slice"), r"'system-db\x2d16.slice'");
        assert_eq!(word(""), "''");
    }

    #[test]
    fn a_line_goes_where_it_wins() {
        let file = |file: &str, name: &str| {
            let setting = SysctlSetting {
                file: file.to_owned(),
                line: 1,
                name: name.to_owned(),
                value: "1".to_owned(),
            };
            let now = Snapshot { sysctl_files: vec![setting], ..Snapshot::default() };
            let observation = Observation::instant("test", now);
            sysctl_file(&Context::new(&observation), SWAPPINESS)
        };
        assert_eq!(file("etc/sysctl.conf", SWAPPINESS), "/etc/sysctl.conf");
        assert_eq!(file("etc/sysctl.d/99-oracle.conf", SWAPPINESS), "/etc/sysctl.d/99-oracle.conf");
        assert_eq!(file("usr/lib/sysctl.d/50-default.conf", SWAPPINESS), SYSCTL_FILE);
        assert_eq!(file("usr/lib/sysctl.d/99-vendor.conf", SWAPPINESS), LATE_SYSCTL_FILE);
        assert_eq!(file("etc/sysctl.conf", DIRTY_RATIO), SYSCTL_FILE);
    }
}
