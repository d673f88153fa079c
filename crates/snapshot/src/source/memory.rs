//! Files held in memory: a pasted file, an unpacked archive, a test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ReadError, Source};

/// Contents or errors, by path.
type ByPath<T> = BTreeMap<String, Result<T, ReadError>>;

/// Files by path, and the directories that no file implies.
///
/// A source can be laid over another one ([`MemorySource::lie_over`]), which then answers for paths that the
/// upper source does not have. A file remembered as [`ReadError::Absent`] hides the one below it.
#[derive(Clone, Debug, Default)]
pub struct MemorySource {
    files: ByPath<Vec<u8>>,
    directories: ByPath<()>,
    below: Option<Arc<MemorySource>>,
}

impl MemorySource {
    /// Lays this source over `below`.
    #[must_use]
    pub fn lie_over(self, below: Arc<MemorySource>) -> Self {
        MemorySource { below: Some(below), ..self }
    }

    /// Adds or replaces a file.
    pub fn insert(&mut self, path: impl Into<String>, contents: impl Into<Vec<u8>>) {
        self.insert_outcome(path.into(), Ok(contents.into()));
    }

    /// Adds or replaces a file's contents or the error of reading it.
    pub(super) fn insert_outcome(&mut self, path: String, outcome: Result<Vec<u8>, ReadError>) {
        self.files.insert(path, outcome);
    }

    /// Moves the files and directories of `other` into this source, replacing its own. The source below
    /// `other` is dropped.
    pub(super) fn absorb(&mut self, other: MemorySource) {
        self.files.extend(other.files);
        self.directories.extend(other.directories);
    }

    /// Appends to a file, which is created if necessary.
    pub fn append(&mut self, path: &str, contents: &[u8]) {
        match self.files.get_mut(path) {
            Some(Ok(text)) => text.extend_from_slice(contents),
            _ => self.insert(path, contents),
        }
    }

    /// Remembers that a file could not be read.
    pub fn insert_error(&mut self, path: impl Into<String>, error: ReadError) {
        self.insert_outcome(path.into(), Err(error));
    }

    /// Remembers a directory that may be empty (`Ok`) or could not be listed.
    pub fn insert_directory(&mut self, path: impl Into<String>, listing: Result<(), ReadError>) {
        self.directories.insert(path.into(), listing);
    }

    /// Whether the source has no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.directories.is_empty()
            && self.below.as_ref().is_none_or(|below| below.is_empty())
    }

    /// The files by path, including those of the source below.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Result<Vec<u8>, ReadError>)> {
        merged(&self.files, self.below.as_ref().map(|below| &below.files), "").into_iter()
    }

    /// The directories that were remembered as such, by path, including those of the source below.
    pub fn directories(&self) -> impl Iterator<Item = (&str, &Result<(), ReadError>)> {
        merged(&self.directories, self.below.as_ref().map(|below| &below.directories), "").into_iter()
    }

    /// The number of directories that this source itself remembers.
    pub(crate) fn directories_len(&self) -> usize {
        self.directories.len()
    }

    /// The contents of a file, if it has any.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.entry(path)?.as_ref().ok().map(Vec::as_slice)
    }

    /// The part below `directory`, with paths relative to it. The source below this one is dropped.
    #[must_use]
    pub fn descend(self, directory: &str) -> Self {
        let inside = |path: &str| Some(path.strip_prefix(directory)?.strip_prefix('/')?.to_owned());
        MemorySource {
            files: self.files.into_iter().filter_map(|(path, file)| Some((inside(&path)?, file))).collect(),
            directories: (self.directories.into_iter())
                .filter_map(|(path, listing)| Some((inside(&path)?, listing)))
                .collect(),
            below: None,
        }
    }

    /// The maps of this source. The source below it is dropped.
    pub(super) fn into_parts(self) -> (ByPath<Vec<u8>>, ByPath<()>) {
        (self.files, self.directories)
    }

    fn entry(&self, path: &str) -> Option<&Result<Vec<u8>, ReadError>> {
        self.files.get(path).or_else(|| self.below.as_ref()?.entry(path))
    }
}

/// The entries from `prefix` on; those of `over` hide those of `under`.
fn merged<'a, T>(
    over: &'a BTreeMap<String, T>,
    under: Option<&'a BTreeMap<String, T>>,
    prefix: &str,
) -> BTreeMap<&'a str, &'a T> {
    let part = |map: &'a BTreeMap<String, T>| {
        map.range(prefix.to_owned()..).take_while(|(path, _)| path.starts_with(prefix)).collect::<Vec<_>>()
    };
    let under = under.map(part).unwrap_or_default();
    under.into_iter().chain(part(over)).map(|(path, value)| (path.as_str(), value)).collect()
}

impl Source for MemorySource {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        buffer.clear();
        let contents = self.entry(path).ok_or(ReadError::Absent)?.as_ref().map_err(Clone::clone)?;
        buffer.extend_from_slice(&contents[..contents.len().min(limit)]);
        Ok(contents.len() > limit)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        let below = self.below.as_deref();
        let remembered = (self.directories.get(directory))
            .or_else(|| below.and_then(|below| below.directories.get(directory)));
        if let Some(Err(error)) = remembered {
            return Err(error.clone());
        }
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let child = |path: &str| path.get(prefix.len()..)?.split('/').next().map(str::to_owned);
        let files = merged(&self.files, below.map(|below| &below.files), &prefix);
        let directories = merged(&self.directories, below.map(|below| &below.directories), &prefix);
        let present = files.iter().filter(|(_, file)| !matches!(file, Err(ReadError::Absent)));
        let mut names: BTreeSet<String> = present.filter_map(|(path, _)| child(path)).collect();
        names.extend(directories.keys().filter_map(|path| child(path)));
        names.remove("");
        if names.is_empty() && remembered.is_none() {
            Err(ReadError::Absent)
        } else {
            Ok(names.into_iter().collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_children_once_and_only_what_is_there() {
        let mut source = MemorySource::default();
        source.insert("proc/1/stat", "x");
        source.insert("proc/1/status", "x");
        source.insert("proc/meminfo", "x");
        source.insert_error("proc/2/stat", ReadError::Absent);
        source.insert_error("proc/3/stat", ReadError::Denied);
        source.insert_directory("sys/empty", Ok(()));
        source.insert_directory("sys/closed", Err(ReadError::Denied));
        assert_eq!(source.list("proc"), Ok(vec!["1".into(), "3".into(), "meminfo".into()]));
        assert_eq!(source.list("sys"), Ok(vec!["closed".into(), "empty".into()]));
        assert_eq!(source.list("sys/empty"), Ok(vec![]));
        assert_eq!(source.list("sys/closed"), Err(ReadError::Denied));
        assert_eq!(source.list("pro"), Err(ReadError::Absent));
        assert_eq!(source.list(""), Ok(vec!["proc".into(), "sys".into()]));
    }

    #[test]
    fn what_lies_over_hides_what_lies_below() {
        let mut first = MemorySource::default();
        first.insert("proc/1/stat", "old");
        first.insert("proc/2/stat", "gone");
        first.insert("proc/3/stat", "stays");
        let mut second = MemorySource::default().lie_over(Arc::new(first));
        second.insert("proc/1/stat", "new");
        second.insert_error("proc/2/stat", ReadError::Absent);
        assert_eq!(second.get("proc/1/stat"), Some(&b"new"[..]));
        assert_eq!(second.get("proc/2/stat"), None);
        assert_eq!(second.get("proc/3/stat"), Some(&b"stays"[..]));
        assert_eq!(second.list("proc"), Ok(vec!["1".into(), "3".into()]));
        assert_eq!(second.files().count(), 3);
    }
}
