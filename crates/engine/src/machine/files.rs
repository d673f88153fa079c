//! Files by the numbers that the scenario gives them, and the space that they take on disk.

use lotsfree_workload::{FileId, FileSpec};
use rustc_hash::FxHashMap;

/// A file that exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    /// The number by which the memory model knows it.
    pub(super) object: u32,
    /// Distinguishes successive files of the same number: per-thread state with another version is stale.
    pub(super) version: u64,
    /// Pages from its beginning that have space on disk.
    on_disk: u64,
}

/// The files of a machine. A file takes disk space up to the last page that was written or mapped for
/// writing; holes before that page take space too.
#[derive(Debug)]
pub(super) struct Files {
    declared: Vec<Option<File>>,
    created: FxHashMap<u32, File>,
    /// Pages of disk space that are left.
    free: u64,
    versions: u64,
}

impl Files {
    /// Registers the declared files, whose sizes are in the machine's pages; `object` enters each into the
    /// memory model. Files that exist take space even if the disk is too small for them.
    pub(super) fn new(specs: &[FileSpec], disk_pages: u64, mut object: impl FnMut(&FileSpec) -> u32) -> Self {
        let mut files =
            Files { declared: Vec::new(), created: FxHashMap::default(), free: disk_pages, versions: 0 };
        for spec in specs {
            let on_disk = if spec.exists { u64::from(spec.pages) } else { 0 };
            files.free = files.free.saturating_sub(on_disk);
            files.versions += 1;
            let file = File { object: object(spec), version: files.versions, on_disk };
            files.declared.push(Some(file));
        }
        files
    }

    fn get_mut(&mut self, id: FileId) -> Option<&mut File> {
        match self.declared.get_mut(id.0 as usize) {
            Some(file) => file.as_mut(),
            None => self.created.get_mut(&id.0),
        }
    }

    /// A file, if it exists.
    #[inline]
    pub(super) fn get(&self, id: FileId) -> Option<File> {
        match self.declared.get(id.0 as usize) {
            Some(file) => *file,
            None => self.created.get(&id.0).copied(),
        }
    }

    /// Creates a file with nothing on disk, and forgets the file that had its number before.
    pub(super) fn create(&mut self, id: FileId, object: u32) {
        self.remove(id);
        self.versions += 1;
        let file = File { object, version: self.versions, on_disk: 0 };
        match self.declared.get_mut(id.0 as usize) {
            Some(declared) => *declared = Some(file),
            None => {
                self.created.insert(id.0, file);
            }
        }
    }

    /// Removes a file and frees its space.
    pub(super) fn remove(&mut self, id: FileId) {
        let file = match self.declared.get_mut(id.0 as usize) {
            Some(file) => file.take(),
            None => self.created.remove(&id.0),
        };
        self.free += file.map_or(0, |file| file.on_disk);
    }

    /// Takes disk space for the first `pages` of a file; `false` if the disk is too small (`ENOSPC`).
    pub(super) fn reserve(&mut self, id: FileId, pages: u64) -> bool {
        let free = self.free;
        let Some(file) = self.get_mut(id) else { return true };
        let more = pages.saturating_sub(file.on_disk);
        if more > free {
            return false;
        }
        file.on_disk += more;
        self.free -= more;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_taken_once_and_given_back() {
        let specs = [FileSpec { name: "a".into(), pages: 60, exists: true }];
        let mut files = Files::new(&specs, 100, |_| 0);
        let id = FileId(9);
        assert!(files.get(id).is_none());
        files.create(id, 1);
        assert!(files.reserve(id, 30) && files.reserve(id, 40) && files.reserve(id, 10));
        assert!(!files.reserve(id, 41));
        files.remove(FileId(0));
        assert!(files.get(FileId(0)).is_none() && files.reserve(id, 100) && !files.reserve(id, 101));
        let old = files.get(id).unwrap().version;
        files.create(id, 2);
        assert!(files.get(id).unwrap().version != old && files.reserve(id, 100));
    }
}
