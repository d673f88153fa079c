//! Makes a text archive of the files of two samples.

use std::collections::HashSet;
use std::sync::Arc;

use lotsfree_snapshot::ReadError;
use lotsfree_snapshot::source::MemorySource;
use lotsfree_snapshot::source::text::TextArchive;

/// Files of one sample: path without leading slash, and content.
pub(super) type Files = Vec<(String, Vec<u8>)>;

/// Seconds from the first sample to the second, as in the name of its directory in the archive. The exact
/// times are in `proc/uptime`.
pub(super) const INTERVAL: f64 = 5.0;

/// Makes an archive of samples, each with its time in seconds. A later sample inherits from the first the
/// files that it does not have, except those of processes that have ended, which are marked as absent.
pub(super) fn archive(comment: String, samples: impl IntoIterator<Item = (f64, Files)>) -> TextArchive {
    let mut archive = TextArchive { comment, samples: Vec::new() };
    let mut samples = samples.into_iter();
    let Some((time, files)) = samples.next() else { return archive };
    let mut first = MemorySource::default();
    let mut processes = Vec::new();
    for (path, content) in files {
        if process(&path).is_some() {
            processes.push(path.clone());
        }
        first.insert(path, content);
    }
    let base = Arc::new(first.clone());
    archive.samples.push((time, first));
    for (time, files) in samples {
        let alive: HashSet<String> =
            files.iter().filter_map(|(path, _)| process(path).map(str::to_owned)).collect();
        let mut source = MemorySource::default().lie_over(Arc::clone(&base));
        for (path, content) in files {
            source.insert(path, content);
        }
        for path in &processes {
            if process(path).is_some_and(|id| !alive.contains(id)) {
                source.insert_error(path.clone(), ReadError::Absent);
            }
        }
        archive.samples.push((time, source));
    }
    archive
}

/// The process in a path: `17` of `proc/17/stat`.
fn process(path: &str) -> Option<&str> {
    let (id, _) = path.strip_prefix("proc/")?.split_once('/')?;
    id.bytes().all(|byte| byte.is_ascii_digit()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(path, content)| ((*path).to_owned(), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn the_second_sample_has_what_changed_and_what_ended() {
        let first = files(&[
            ("proc/1/comm", "sh\n"),
            ("proc/1/stat", "1\n"),
            ("proc/17/comm", "cat\n"),
            ("proc/17/stat", "1\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/vmstat", "pswpin 1\n"),
        ]);
        let second = files(&[("proc/1/stat", "2\n"), ("proc/vmstat", "pswpin 2\n")]);
        let text = archive("# what\n".to_owned(), [(0.0, first), (INTERVAL, second)]).print();
        let text = String::from_utf8_lossy(&text);
        let (_, after) = text.split_once("-- 5s/").expect("a second sample");
        assert_eq!(
            after,
            "proc/1/stat --\n2\n-- 5s/proc/17/comm -- absent\n-- 5s/proc/17/stat -- absent\n\
             -- 5s/proc/vmstat --\npswpin 2\n"
        );
    }
}
