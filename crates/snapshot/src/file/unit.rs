//! systemd service units and their drop-ins: what they say of memory.

use serde::Serialize;

/// One unit with its drop-ins, in the order in which they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// `postgresql.service`.
    pub name: String,
    /// Settings of `[Service]` and `[Slice]` that concern memory (`LimitMEMLOCK`, `Memory*`, `OOMScoreAdjust`,
    /// `OOMPolicy`, `ManagedOOM*`, `NUMAPolicy`, `NUMAMask`): file, name, value; the last of a name wins.
    pub settings: Vec<UnitSetting>,
}

/// One `Name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnitSetting {
    /// The file, without a leading slash.
    pub file: String,
    /// Setting name.
    pub name: Box<str>,
    /// Value as written.
    pub value: String,
}

impl Unit {
    /// The value that applies.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|s| &*s.name == name).map(|s| s.value.as_str())
    }
}
