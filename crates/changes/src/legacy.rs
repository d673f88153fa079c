//! The journal of lotsfree 0.1.0, before journals had versions: `lab.journal`, with a line of JSON for each
//! change.
//!
//! It has neither the boot nor the value that was set, so it is unknown whether a setting is still as
//! lotsfree left it. Its changes are undone only when a user who has seen the list agrees.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Key, Set};
use crate::value::chosen;

/// A change as 0.1.0 noted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change", deny_unknown_fields)]
pub enum Legacy {
    /// A setting was written.
    Write {
        /// The file to write to undo it.
        path: PathBuf,
        /// The value to write to that file.
        before: String,
    },
    /// A file was made and swapped to.
    Swap {
        /// The file.
        area: PathBuf,
    },
    /// A control group was made.
    Group {
        /// Its directory.
        path: PathBuf,
    },
    /// A directory was made.
    Directory {
        /// Its path.
        path: PathBuf,
    },
}

impl Legacy {
    /// Converts to the present type of a change. The value that was set is not known.
    pub(crate) fn change(&self) -> Change {
        match self.clone() {
            Legacy::Write { path, before } => {
                let unit = vec![Key { path: path.clone(), old: before }];
                Change::Set(Set { path, value: String::new(), unit, lent: false })
            }
            Legacy::Swap { area } => Change::Swap { path: area },
            Legacy::Group { path } => Change::Group { path },
            Legacy::Directory { path } => Change::Directory { path },
        }
    }
}

/// Says what undoing the change would do.
impl fmt::Display for Legacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Legacy::Write { path, before } => write!(f, "{} back to {}", path.display(), chosen(before)),
            other => write!(f, "{}", other.change()),
        }
    }
}

/// Reads the changes in a journal of 0.1.0. A last line without a line feed is left out.
///
/// # Errors
/// The number of the first line that is not understood, from 1, and the reason.
pub fn parse_legacy(contents: &[u8]) -> Result<Vec<Legacy>, (usize, String)> {
    let whole = contents.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = contents.get(..whole).unwrap_or_default().split_inclusive(|byte| *byte == b'\n');
    let read = |(line, number): (&[u8], usize)| {
        serde_json::from_slice(line).map_err(|error| (number, format!("not understood ({error})")))
    };
    lines.zip(1..).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_read_and_the_torn_line_left_out() {
        let text = "{\"change\":\"write\",\"path\":\"/proc/sys/vm/swappiness\",\"before\":\"60\"}\n\
             {\"change\":\"swap\",\"area\":\"/var/tmp/lotsfree-lab-7/swap\"}\n\
             {\"change\":\"group\",\"path\":\"/sys/fs/cgroup/memory/lotsfree-lab-7\"}\n\
             {\"change\":\"directory\",\"path\":\"/var/tmp/lotsfree-lab-7\"}\n\
             {\"change\":\"wri";
        let changes = parse_legacy(text.as_bytes()).unwrap();
        assert_eq!(changes.len(), 4);
        assert_eq!(changes[0].to_string(), "/proc/sys/vm/swappiness back to 60");
        let damaged = text.replace("\"swap\"", "\"swop\"");
        assert_eq!(parse_legacy(damaged.as_bytes()).unwrap_err().0, 2);
    }
}
