//! Several instants in one set of files: the directories `0s/`, `5s/`, `2.5s/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::MemorySource;

/// At most this many instants are kept of a series.
pub const MOST_SAMPLES: usize = 4096;

/// The seconds in a directory name such as `5s` or `2.5s`.
pub(crate) fn seconds_of(name: &str) -> Option<f64> {
    let number = name.strip_suffix('s')?;
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !plain || !number.starts_with(|c: char| c.is_ascii_digit()) || number.len() > 24 {
        return None;
    }
    number.parse().ok().filter(|seconds: &f64| *seconds <= 1e12)
}

/// Splits a path such as `5s/proc/meminfo`.
pub(crate) fn prefix_of(path: &str) -> Option<(f64, &str)> {
    let (first, rest) = path.split_once('/')?;
    Some((seconds_of(first)?, rest))
}

/// The path, if it has no leading slash, no empty, `.` or `..` component, no NUL and at most 4096 bytes.
pub(crate) fn safe(path: &str) -> Option<&str> {
    let fine = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    (fine && path.len() <= 4096 && !path.contains('\0')).then_some(path)
}

/// Splits files by their `Ns/` directories, ordered by time. Files outside of those belong to every instant.
/// With `inherit`, an instant also has the files of the first one that it does not mention. More than
/// [`MOST_SAMPLES`] instants are thinned evenly, keeping the first and the last.
pub(crate) fn split(flat: MemorySource, inherit: bool) -> Vec<(f64, MemorySource)> {
    let (files, directories) = flat.into_parts();
    let mut common = MemorySource::default();
    let mut by_time: BTreeMap<u64, MemorySource> = BTreeMap::new();
    // Non-negative doubles sort like their bit patterns.
    for (path, contents) in files {
        let (place, path) = match prefix_of(&path) {
            Some((seconds, rest)) => (by_time.entry(seconds.to_bits()).or_default(), rest.to_owned()),
            None => (&mut common, path),
        };
        place.insert_outcome(path, contents);
    }
    for (path, listing) in directories {
        // An instant in which nothing differed from the first.
        if let Some(seconds) = seconds_of(&path) {
            by_time.entry(seconds.to_bits()).or_default();
            continue;
        }
        let (place, path) = match prefix_of(&path) {
            Some((seconds, rest)) => (by_time.entry(seconds.to_bits()).or_default(), rest.to_owned()),
            None => (&mut common, path),
        };
        place.insert_directory(path, listing);
    }
    if by_time.is_empty() {
        return vec![(0.0, common)];
    }
    let mut instants = thin(by_time.into_iter().collect());
    if inherit && let Some((_, first)) = instants.first_mut() {
        common.absorb(std::mem::take(first));
    }
    let below = Arc::new(common);
    let over = |(bits, own): (u64, MemorySource)| (f64::from_bits(bits), own.lie_over(Arc::clone(&below)));
    instants.into_iter().map(over).collect()
}

/// At most [`MOST_SAMPLES`] elements, evenly spaced, including the first and the last.
pub(crate) fn thin<T>(all: Vec<T>) -> Vec<T> {
    let count = all.len();
    if count <= MOST_SAMPLES {
        return all;
    }
    let mut taken = 0usize;
    let keep = |i: usize| {
        let wanted = taken * (count - 1) / (MOST_SAMPLES - 1);
        let kept = i == wanted;
        taken += usize::from(kept);
        kept
    };
    all.into_iter().enumerate().scan(keep, |keep, (i, one)| Some(keep(i).then_some(one))).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_both_ends() {
        for count in [1, MOST_SAMPLES, MOST_SAMPLES + 1, 3 * MOST_SAMPLES + 7] {
            let thinned = thin((0..count).collect::<Vec<_>>());
            assert_eq!(thinned.len(), count.min(MOST_SAMPLES));
            assert_eq!((thinned[0], thinned[thinned.len() - 1]), (0, count - 1));
            assert!(thinned.is_sorted());
        }
    }

    #[test]
    fn seconds_in_names() {
        assert_eq!(seconds_of("5s"), Some(5.0));
        assert_eq!(seconds_of("2.5s"), Some(2.5));
        for no in ["s", "5", "-5s", "1e3s", "infs", "NaNs", ".s", "1.2.3s", "proc"] {
            assert_eq!(seconds_of(no), None, "{no}");
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_not_safe() {
        assert_eq!(safe("proc/meminfo"), Some("proc/meminfo"));
        for no in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/./b", "a/", "a\0b"] {
            assert_eq!(safe(no), None, "{no:?}");
        }
    }
}
