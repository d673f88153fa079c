//! Functions that the tests of labs share.

use std::fs;
use std::path::Path;

/// A directory that nobody but this user could replace, as labs require: below the target directory, or, if
/// others could replace that, below `/var/tmp`.
pub(crate) fn directory() -> tempfile::TempDir {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let exchangeable = fs::canonicalize(built).and_then(|built| lotsfree_storage::is_exchangeable(&built));
    let safe = exchangeable.is_ok_and(|why| why.is_none());
    tempfile::tempdir_in(if safe { built } else { Path::new("/var/tmp") }).unwrap()
}
