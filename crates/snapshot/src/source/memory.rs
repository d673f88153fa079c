//! Files held in memory: a pasted file, an unpacked archive, a test.

use std::collections::{BTreeMap, BTreeSet};

use super::{ReadError, Source};

/// Files by path.
#[derive(Clone, Debug, Default)]
pub struct MemorySource {
    files: BTreeMap<String, Result<Vec<u8>, ReadError>>,
}

impl MemorySource {
    /// Adds or replaces a file.
    pub fn insert(&mut self, path: impl Into<String>, contents: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), Ok(contents.into()));
    }

    /// Remembers that a file could not be read.
    pub fn insert_error(&mut self, path: impl Into<String>, error: ReadError) {
        self.files.insert(path.into(), Err(error));
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files, by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Result<Vec<u8>, ReadError>)> {
        self.files.iter().map(|(path, contents)| (path.as_str(), contents))
    }
}

impl Source for MemorySource {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        buffer.clear();
        let contents = self.files.get(path).ok_or(ReadError::Absent)?.as_ref().map_err(Clone::clone)?;
        buffer.extend_from_slice(&contents[..contents.len().min(limit)]);
        Ok(contents.len() > limit)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let names: BTreeSet<&str> = (self.files.range(prefix.clone()..))
            .map_while(|(path, _)| path.strip_prefix(&prefix))
            .filter_map(|rest| rest.split('/').next())
            .collect();
        if names.is_empty() {
            Err(ReadError::Absent)
        } else {
            Ok(names.into_iter().map(str::to_owned).collect())
        }
    }
}
