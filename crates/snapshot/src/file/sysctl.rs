//! Running values below `/proc/sys` and the files that set them at boot.

use std::collections::BTreeMap;

use serde::Serialize;

/// Running values by sysctl name (`vm.swappiness`), trimmed, inner white space as the kernel prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Sysctls(pub BTreeMap<Box<str>, Box<str>>);

impl Sysctls {
    /// The value as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| &**value)
    }

    /// The value as one number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The value as a list of numbers (`vm.lowmem_reserve_ratio`, `kernel.sem`).
    pub fn numbers(&self, name: &str) -> Option<Vec<u64>> {
        self.text(name)?.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
    }
}

/// One `key = value` of a `sysctl.conf` or `sysctl.d` file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SysctlSetting {
    /// The file, without a leading slash.
    pub file: String,
    /// Line, counted from 1.
    pub line: u32,
    /// The name with dots, `*` globs kept.
    pub name: String,
    /// The value, trimmed.
    pub value: String,
}

/// The setting that wins at boot: `systemd-sysctl` applies files in the order of their base names over all
/// directories (one in `/etc` hides one of the same name elsewhere), `/etc/sysctl.conf` last, and the last
/// assignment stands.
pub fn winner<'a>(settings: &'a [SysctlSetting], name: &str) -> Option<&'a SysctlSetting> {
    settings.iter().rev().find(|setting| setting.name == name)
}
