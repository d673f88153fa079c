//! What could not be read, and why.

use serde::Serialize;

/// Why a file or line is missing from a [`crate::Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The file exists but may not be read (permission, container).
    Denied,
    /// The file does not exist: an older kernel, a feature that is not built in, a container, a partial tree.
    Absent,
    /// The file ends early or was longer than is read of it.
    Truncated,
    /// A line that makes no sense.
    Malformed,
    /// Reading failed otherwise.
    Io,
    /// Not read because the time or memory set aside for it was used up.
    Budget,
}

/// One thing that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, without a leading slash (`proc/pagetypeinfo`).
    pub path: String,
    /// The line, counted from 1, where one line is meant.
    pub line: Option<u32>,
    /// Why.
    pub kind: ProblemKind,
    /// In words.
    pub detail: String,
}

/// Collects problems while files are read; knows which file is being parsed.
#[derive(Debug, Default)]
pub struct Log {
    path: String,
    problems: Vec<Problem>,
    in_file: u32,
    dropped: u32,
}

impl Log {
    /// At most this many problems are kept of one file; hostile input has as many as it has lines.
    const MOST_PER_FILE: u32 = 8;
    /// At most this many are kept in all.
    const MOST: usize = 512;

    /// Starts on `path`; later problems belong to it.
    pub fn enter(&mut self, path: &str) {
        self.path.clear();
        self.path.push_str(path);
        self.in_file = 0;
    }

    /// A line of the present file makes no sense.
    pub fn malformed(&mut self, line: u32, detail: impl Into<String>) {
        self.push(Some(line), ProblemKind::Malformed, detail.into());
    }

    /// The present file as a whole has a problem.
    pub fn whole(&mut self, kind: ProblemKind, detail: impl Into<String>) {
        self.push(None, kind, detail.into());
    }

    fn push(&mut self, line: Option<u32>, kind: ProblemKind, detail: String) {
        self.in_file += 1;
        if self.in_file > Self::MOST_PER_FILE || self.problems.len() >= Self::MOST {
            self.dropped += 1;
            return;
        }
        self.problems.push(Problem { path: self.path.clone(), line, kind, detail });
    }

    /// How many problems were not kept because there were too many.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// What has been collected, in reading order.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// What has been collected so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}
