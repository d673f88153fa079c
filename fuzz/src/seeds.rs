//! Seeds, made from the fixtures.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

use lotsfree_snapshot::source::MemorySource;
use lotsfree_snapshot::source::text::TextArchive;

/// The longest seed, in bytes. Longer ones only slow the search down.
const LONGEST: usize = 32 << 10;
/// The most bytes of all seeds of one target.
const MOST: usize = 4 << 20;

/// A fixture: its bytes, and the files in it.
pub(crate) struct Fixture {
    pub(crate) text: Vec<u8>,
    pub(crate) archive: TextArchive,
}

impl Fixture {
    /// The first instant.
    pub(crate) fn first(&self) -> &MemorySource {
        &self.archive.samples[0].1
    }

    /// The files of the first instant that could be read.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.first().files().filter_map(|(path, contents)| Some((path, contents.as_deref().ok()?)))
    }
}

/// Writes the seeds that `make` gives for each fixture. Each seed is written once, under the hash of its
/// contents.
pub(crate) fn write(make: fn(&Fixture) -> Vec<Vec<u8>>, directory: &Path) -> io::Result<()> {
    let fixtures = std::env::var("LOTSFREE_FUZZ_FIXTURES").map_err(io::Error::other)?;
    let mut paths = Vec::new();
    list(Path::new(&fixtures), &mut paths)?;
    // Small fixtures come first: their contents are rare, and whole hosts alone would fill the bound.
    paths.sort_by_cached_key(|path| (fs::metadata(path).map_or(0, |metadata| metadata.len()), path.clone()));
    let (mut seen, mut bytes) = (BTreeSet::new(), 0);
    for path in paths {
        let text = fs::read(path)?;
        let Ok(archive) = TextArchive::parse(&text) else { continue };
        for seed in make(&Fixture { text, archive }) {
            let mut hasher = DefaultHasher::new();
            seed.hash(&mut hasher);
            let hash = hasher.finish();
            if seed.len() <= LONGEST && bytes + seed.len() <= MOST && seen.insert(hash) {
                bytes += seed.len();
                fs::write(directory.join(format!("{hash:016x}")), seed)?;
            }
        }
    }
    Ok(())
}

fn list(directory: &Path, paths: &mut Vec<std::path::PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            paths.push(path);
        }
    }
    Ok(())
}
