//! The kernel's settings that concern memory: sysctls, and files of `/sys`.
//!
//! One row of [`ALL`] gives a setting's name, place and unit, the values that each kernel accepts and starts
//! with, and the other setting that it clears. The name is also a constant, so that code with a misspelled
//! name does not compile. A scenario's `[tuning]`, the model, the lab, the journal of changes and the
//! doctor's rules take their settings from here.

mod table;

use std::fmt;

pub use table::*;

/// A kernel release, by major and minor number, as settings depend on no more. All of 2.6 is one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release(pub u32, pub u32);

impl Release {
    /// A release before every release that the table distinguishes.
    pub const ANY: Release = Release(0, 0);
    /// The newest release that the table was compared with.
    pub const NEWEST: Release = Release(6, 18);
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A setting of the kernel.
#[derive(Debug)]
pub struct Setting {
    /// Name as `sysctl` spells it, such as `vm.swappiness`; for a file of `/sys` its path with dots, such as
    /// `kernel.mm.lru_gen.enabled`.
    pub name: &'static str,
    /// Place of its file.
    pub place: Place,
    /// Unit of its numbers.
    pub unit: Unit,
    /// Accepted values, with the release from which they apply, oldest first.
    pub accepts: &'static [(Release, Accepts)],
    /// Value until somebody sets it, with the release from which it applies, oldest first.
    pub default: &'static [(Release, Initial)],
    /// First release that has it; `None` for all.
    pub since: Option<Release>,
    /// Last release that has it; `None` for all.
    pub until: Option<Release>,
    /// The distribution whose kernels alone have the setting; `None` for all.
    pub only: Option<&'static str>,
    /// The setting that the kernel clears when this one is written, and vice versa.
    pub twin: Option<&'static str>,
    /// Whether a scenario may set it.
    pub in_scenarios: bool,
    /// Effect of the setting, in half a sentence.
    pub about: &'static str,
    /// Effect of a special value, in a few words: `0: never`.
    pub note: Option<&'static str>,
}

/// Place of a setting's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Below `/proc/sys`, by the setting's name.
    Sysctl,
    /// A file of `/sys`.
    Sys(&'static str),
    /// A file below `/sys/block/DEVICE`, one per device.
    Block(&'static str),
}

/// Unit of a setting's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// No unit: a mode, bits, a weight.
    None,
    /// Hundredths of something that the setting's description names.
    Percent,
    /// 1024 bytes.
    Kib,
    /// 1024 KiB.
    Mib,
    /// Bytes.
    Bytes,
    /// Base pages.
    Pages,
    /// 10 ms.
    Centiseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// 10⁶ bytes per second.
    MegabytesPerSecond,
}

/// Values that a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// A number, at least the first and at most the second.
    Range(u64, u64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// At most as many numbers as the first field, each at least the second and at most the third.
    Numbers(usize, u64, u64),
}

/// Value of a setting until somebody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// This number.
    Number(u64),
    /// This word, or these numbers.
    Text(&'static str),
    /// A value that the kernel computes from the machine, described in words.
    Computed(&'static str),
}

/// A value that a setting accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// One of a few words, such as `madvise`.
    Word(&'static str),
    /// Several numbers, as for `vm.lowmem_reserve_ratio`.
    Numbers(Vec<u64>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Word(word) => f.write_str(word),
            Value::Numbers(numbers) => {
                let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
                f.write_str(&words.join(" "))
            }
        }
    }
}

impl Unit {
    /// The unit for the end of a description, such as `, in KiB`; empty if there is none.
    fn phrase(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Percent => ", in percent",
            Unit::Kib => ", in KiB",
            Unit::Mib => ", in MiB",
            Unit::Bytes => ", in bytes",
            Unit::Pages => ", in pages",
            Unit::Centiseconds => ", in 1/100 s",
            Unit::Milliseconds => ", in ms",
            Unit::Seconds => ", in s",
            Unit::MegabytesPerSecond => ", in MB/s",
        }
    }
}

impl Accepts {
    /// Whether a single number is accepted.
    pub fn takes(&self, number: u64) -> bool {
        match self {
            Accepts::Range(low, high) | Accepts::Numbers(_, low, high) => (*low..=*high).contains(&number),
            Accepts::Words(_) => false,
        }
    }

    /// A value as the kernel would read it; `None` if it is not accepted.
    pub fn read(&self, text: &str) -> Option<Value> {
        match self {
            Accepts::Range(..) => {
                text.trim().parse().ok().filter(|number| self.takes(*number)).map(Value::Number)
            }
            Accepts::Words(words) => {
                words.iter().find(|word| **word == text.trim()).copied().map(Value::Word)
            }
            Accepts::Numbers(most, ..) => {
                let numbers: Option<Vec<u64>> = text
                    .split_whitespace()
                    .map(|word| word.parse().ok().filter(|n| self.takes(*n)))
                    .collect();
                numbers.filter(|numbers| (1..=*most).contains(&numbers.len())).map(Value::Numbers)
            }
        }
    }
}

impl fmt::Display for Accepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Accepts::Range(low, high) => write!(f, "a whole number from {low} to {high}"),
            Accepts::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                f.write_str(&words.join(", "))
            }
            Accepts::Numbers(most, low, high) => {
                write!(f, "up to {most} whole numbers from {low} to {high} in quotes, such as \"256 256 32\"")
            }
        }
    }
}

impl Setting {
    /// Path of its file; `*` stands for the device if each device has one.
    pub fn path(&self) -> String {
        match self.place {
            Place::Sysctl => format!("/proc/sys/{}", self.name.replace('.', "/")),
            Place::Sys(path) => format!("/sys/{path}"),
            Place::Block(path) => format!("/sys/block/*/{path}"),
        }
    }

    /// Whether kernels of a release have it. A distribution's kernel may have it even if this returns
    /// `false`.
    pub fn is_in(&self, release: Release) -> bool {
        self.since.is_none_or(|since| since <= release) && self.until.is_none_or(|until| release <= until)
    }

    /// Values accepted by a release. A release older than those in the table gets the oldest values.
    pub fn accepts(&self, release: Release) -> Accepts {
        of_release(self.accepts, release).unwrap_or(Accepts::Words(&[]))
    }

    /// Value on a release until somebody sets it.
    pub fn default(&self, release: Release) -> Initial {
        of_release(self.default, release).unwrap_or(Initial::Text(""))
    }

    /// The default if it is a number.
    pub fn default_number(&self, release: Release) -> Option<u64> {
        match self.default(release) {
            Initial::Number(number) => Some(number),
            Initial::Text(_) | Initial::Computed(_) => None,
        }
    }

    /// Effect of the setting, with its unit and the effect of a special value.
    pub fn description(&self) -> String {
        let note = self.note.map(|note| format!("; {note}")).unwrap_or_default();
        format!("{}{}{note}", self.about, self.unit.phrase())
    }
}

/// The last of `rows` whose release is not newer than `release`; the first if all are newer.
fn of_release<T: Copy>(rows: &[(Release, T)], release: Release) -> Option<T> {
    let fitting = rows.iter().rev().find(|(since, _)| *since <= release);
    fitting.or(rows.first()).map(|(_, row)| *row)
}

/// The setting called `name`; `None` if the table does not have it.
pub fn find(name: &str) -> Option<&'static Setting> {
    ALL.iter().find(|setting| setting.name == name)
}

/// Pairs of settings that the kernel clears together: first the one later in the table, which replaces the
/// other, then the other.
pub fn pairs() -> impl Iterator<Item = (&'static Setting, &'static Setting)> {
    ALL.iter().enumerate().filter_map(|(place, setting)| {
        let twin = setting.twin?;
        Some((setting, ALL[..place].iter().find(|other| other.name == twin)?))
    })
}

#[cfg(test)]
mod tests;
