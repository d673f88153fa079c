//! Conditions that a capture must meet, on single fields of captured files.

use lotsfree_snapshot::source::text::TextArchive;

use super::Result;

/// A condition on one field.
pub(super) struct Shows {
    /// Path in the captured tree, `proc/vmstat`.
    pub path: &'static str,
    /// First word of the text before the number, without its colon; empty for a file of one value.
    pub field: &'static str,
    /// The condition.
    pub is: Is,
}

/// Conditions. Those on one sample apply to the first.
pub(super) enum Is {
    /// Equal to that number.
    Exactly(u64),
    /// That number or more, in the unit of the file.
    AtLeast(u64),
    /// Greater in the second sample than in the first, by that number or more.
    RisesBy(u64),
    /// Equal in both samples.
    Stays,
    /// The trimmed content of the file.
    Text(&'static str),
}

/// Whether the archive satisfies all conditions.
///
/// # Errors
///
/// Names every condition that does not hold, with the value that was found.
pub(super) fn check(conditions: &[Shows], archive: &TextArchive) -> Result<()> {
    let broken: Vec<String> = conditions.iter().filter_map(|shows| shows.broken(archive)).collect();
    if broken.is_empty() {
        Ok(())
    } else {
        Err(format!("the capture is not what it should be: {}", broken.join("; ")).into())
    }
}

impl Shows {
    /// Says why the condition does not hold; `None` if it does.
    fn broken(&self, archive: &TextArchive) -> Option<String> {
        let Self { path, field, is } = self;
        let sample = |index: usize| {
            let (_, source) = archive.samples.get(index)?;
            source.get(path).map(String::from_utf8_lossy)
        };
        let Some(first) = sample(0) else { return Some(format!("no {path}")) };
        if let Is::Text(expected) = is {
            return (first.trim() != *expected).then(|| format!("{path} is {:?}", first.trim()));
        }
        let Some(before) = value(&first, field) else { return Some(format!("{path} has no {field}")) };
        let after = sample(1).and_then(|content| value(&content, field));
        let holds = match is {
            Is::Exactly(number) => before == *number,
            Is::AtLeast(number) => before >= *number,
            Is::RisesBy(number) => after.is_some_and(|after| after >= before + number),
            Is::Stays => after == Some(before),
            Is::Text(_) => true,
        };
        (!holds).then(|| format!("{path} {field}: {before}, then {after:?}"))
    }
}

/// The first whole number after the field's name on its line, also in the form `key=`. Without a name, the
/// first word of the file.
fn value(content: &str, field: &str) -> Option<u64> {
    if field.is_empty() {
        return content.split_whitespace().next()?.parse().ok();
    }
    content.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| word.trim_end_matches(':') == field)?;
        words.find_map(|word| word.rsplit('=').next()?.parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::samples;

    fn archive() -> TextArchive {
        let file = |path: &str, content: &str| (path.to_owned(), content.as_bytes().to_vec());
        let first = vec![file("proc/vmstat", "pswpin 3\npswpout 7\n"), file("mode", "0x0007\n")];
        let second = vec![file("proc/vmstat", "pswpin 4\npswpout 7\n")];
        samples::archive(String::new(), [(0.0, first), (samples::INTERVAL, second)])
    }

    fn broken(path: &'static str, field: &'static str, is: Is) -> bool {
        Shows { path, field, is }.broken(&archive()).is_some()
    }

    #[test]
    fn values_are_found_in_every_form() {
        assert_eq!(value("MemTotal:  12 kB\nMemFree: 5 kB\n", "MemFree"), Some(5));
        assert_eq!(value("Node 1 MemFree:  6 kB\n", "MemFree"), Some(6));
        assert_eq!(value("some avg10=0.50 avg60=1.00 total=77\n", "some"), Some(77));
        assert_eq!(value("/dev/vdc partition 262140 10 -2\n", "partition"), Some(262_140));
        assert_eq!(value("1\n", ""), Some(1));
        assert_eq!(value("max\n", ""), None);
        assert_eq!(value("MemFree: 5 kB\n", "Mem"), None);
    }

    #[test]
    fn conditions_hold_and_break() {
        assert!(!broken("proc/vmstat", "pswpin", Is::RisesBy(1)));
        assert!(broken("proc/vmstat", "pswpin", Is::RisesBy(2)));
        assert!(broken("proc/vmstat", "pswpout", Is::RisesBy(1)));
        assert!(!broken("proc/vmstat", "pswpout", Is::Stays));
        assert!(broken("proc/vmstat", "pswpin", Is::Stays));
        assert!(!broken("proc/vmstat", "pswpin", Is::Exactly(3)));
        assert!(broken("proc/vmstat", "pswpin", Is::AtLeast(4)));
        assert!(!broken("mode", "", Is::Text("0x0007")));
        assert!(broken("mode", "", Is::Text("0x0000")));
        assert!(broken("proc/absent", "x", Is::AtLeast(0)));
        assert!(broken("proc/vmstat", "absent", Is::AtLeast(0)));
    }
}
