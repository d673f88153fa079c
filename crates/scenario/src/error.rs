//! [`Errors`]: what is wrong with a scenario, where, and what would be accepted.

use std::fmt;
use std::sync::Arc;

use lotsfree_units::visible_line;

use crate::document::{Place, Source};

/// Errors that are reported; more are counted.
const SHOWN: usize = 20;

/// What is wrong with a scenario; never empty. Printed one per line, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    list: Vec<Error>,
    more: usize,
}

/// One thing that is wrong, printed as `FILE:LINE:COLUMN: KEY: MESSAGE`; `--set KEY=VALUE: KEY: MESSAGE` for
/// one that an override brought, `FILE: MESSAGE` if the file could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    place: Place,
    origin: Origin,
    key: String,
    message: String,
    case: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    File { name: Arc<str>, line: usize, column: usize },
    Set { text: Arc<str> },
}

impl Error {
    /// The dotted key, such as `machine.disk.latency`; empty when the whole file is meant.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is wrong, and what would be accepted.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Line and column in the file, from 1, the column in characters; `None` for an override and
    /// for the file as a whole.
    pub fn position(&self) -> Option<(usize, usize)> {
        match self.origin {
            Origin::File { line: 0, .. } => None,
            Origin::File { line, column, .. } => Some((line, column)),
            Origin::Set { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = match &self.origin {
            // The whole file is meant.
            Origin::File { name, line: 0, .. } => format!("{name}: "),
            Origin::File { name, line, column } => format!("{name}:{line}:{column}: "),
            Origin::Set { text } => format!("--set {text}: "),
        };
        if !self.key.is_empty() {
            line += &format!("{}: ", self.key);
        }
        line += &self.message;
        if let Some(case) = &self.case {
            line += &format!(" ({case})");
        }
        // One error is one line, whatever the names of file, key and case hold.
        f.write_str(&visible_line(&line))
    }
}

impl std::error::Error for Error {}

impl Errors {
    /// An error about a file that could not be read as text at all.
    pub(crate) fn unreadable(file: &str, message: String) -> Errors {
        let origin = Origin::File { name: file.into(), line: 0, column: 0 };
        let error = Error { place: Place::default(), origin, key: String::new(), message, case: None };
        Errors { list: vec![error], more: 0 }
    }

    /// The errors, in the order of the file, overrides last.
    pub fn iter(&self) -> impl Iterator<Item = &Error> {
        self.list.iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.list.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Errors {}

/// Collects errors while a document is read.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    list: Vec<(Place, String, String, Option<String>)>,
    /// What is being read, such as a variant; appended to errors that the scenario as it stands does not
    /// have.
    case: Option<String>,
    /// How often something was wrong, the same thing in several cases included.
    count: usize,
}

impl Collector {
    /// Names what is read from here on.
    pub(crate) fn enter(&mut self, case: Option<String>) {
        self.case = case;
    }

    /// Adds an error, unless the same has been said of the same place.
    pub(crate) fn add(&mut self, place: Place, key: impl Into<String>, message: impl Into<String>) {
        let (key, message) = (key.into(), message.into());
        self.count += 1;
        let said = self.list.iter().any(|(at, k, m, _)| (*at, k, m) == (place, &key, &message));
        if !said && self.list.len() < 10 * SHOWN {
            self.list.push((place, key, message, self.case.clone()));
        }
    }

    /// How often something was wrong: whether it grew says whether what was just read is sound.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether more would be thrown away.
    pub(crate) fn full(&self) -> bool {
        self.list.len() >= 10 * SHOWN
    }

    /// The errors with their places looked up; `Ok` if there is none.
    pub(crate) fn finish(mut self, sources: &[Source]) -> Result<(), Errors> {
        if self.list.is_empty() {
            return Ok(());
        }
        self.list.sort_by_key(|(place, ..)| *place);
        let more = self.list.len().saturating_sub(SHOWN);
        let list = self
            .list
            .into_iter()
            .take(SHOWN)
            .map(|(place, key, message, case)| Error {
                place,
                origin: locate(place, sources),
                key,
                message,
                case,
            })
            .collect();
        Err(Errors { list, more })
    }
}

fn locate(place: Place, sources: &[Source]) -> Origin {
    match sources.get(place.source as usize) {
        Some(Source::Set { text }) => Origin::Set { text: Arc::clone(text) },
        Some(Source::File { name, text }) => {
            let before = text.get(..place.start as usize).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            Origin::File { name: Arc::clone(name), line, column }
        }
        None => Origin::File { name: "".into(), line: 1, column: 1 },
    }
}

/// `; did you mean "x"?` when a known name is close to what was written, else nothing.
pub(crate) fn suggestion<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match closest(written, known) {
        Some(name) => format!("; did you mean {name:?}?"),
        None => String::new(),
    }
}

/// The known name that differs least from the written one, if it differs little.
fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| -> String {
        name.chars().take(64).map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    let wanted = plain(written);
    let far = (wanted.chars().count() / 3).max(1);
    let distances = known.into_iter().map(|name| (strsim::osa_distance(&wanted, &plain(name)), name));
    distances
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// A text from the file as an error quotes it: bounded, control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// `a, b, c`: what would be accepted.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_is_close_and_nothing_else() {
        let known = ["cpus", "nodes", "write-pause", lotsfree_settings::SWAPPINESS];
        assert_eq!(suggestion("cpu", known), "; did you mean \"cpus\"?");
        assert_eq!(suggestion("write_pause", known), "; did you mean \"write-pause\"?");
        assert_eq!(suggestion("Nodse", known), "; did you mean \"nodes\"?");
        assert_eq!(suggestion("vm.swapiness", known), "; did you mean \"vm.swappiness\"?");
        assert_eq!(suggestion("colour", known), "");
        assert_eq!(suggestion("", known), "");
    }
}
