//! Files and lines that could not be read, and why.

use serde::Serialize;

/// Why a file or line is missing from a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The file exists but may not be read (permission, container).
    Denied,
    /// The file does not exist: an older kernel, a feature that is not built in, a container, a partial tree.
    Absent,
    /// The file ends early, or was longer than the bound up to which it is read.
    Truncated,
    /// A malformed line.
    Malformed,
    /// Reading failed for another reason.
    Io,
    /// Not read because the time or memory set aside for it was used up.
    Budget,
}

/// A file or line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, without a leading slash (`proc/pagetypeinfo`).
    pub path: String,
    /// The line, counted from 1, if the problem concerns one line.
    pub line: Option<u32>,
    /// Why it could not be read.
    pub kind: ProblemKind,
    /// The reason in words.
    pub detail: String,
}

/// Collects problems while files are read, and knows which file is being parsed.
#[derive(Debug, Default)]
pub struct Log {
    path: String,
    problems: Vec<Problem>,
    in_file: u32,
    dropped: u32,
}

impl Log {
    /// At most this many problems are kept per file; hostile input can have one on each line.
    const MOST_PER_FILE: u32 = 8;
    /// At most this many are kept in all.
    const MOST: usize = 512;

    /// Starts on `path`; later problems belong to it.
    pub fn enter(&mut self, path: &str) {
        self.path.clear();
        self.path.push_str(path);
        self.in_file = 0;
    }

    /// Reports a malformed line of the current file.
    pub fn malformed(&mut self, line: u32, detail: impl Into<String>) {
        self.push(Some(line), ProblemKind::Malformed, detail.into());
    }

    /// Reports a problem of the current file as a whole.
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

    /// Number of problems that were not kept because there were too many.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// The collected problems, in reading order.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// The problems collected so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}
