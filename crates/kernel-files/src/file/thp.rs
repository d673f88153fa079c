//! `/sys/kernel/mm/transparent_hugepage`.

use lotsfree_units::Bytes;
use serde::Serialize;

use super::scan::{name_of, words};
use crate::counters::{MthpStats, Values};
use crate::{File, Log};

/// At most this many words of a choice are kept; the longest choice has six.
const MOST_CHOICES: usize = 64;

/// A file such as `always [madvise] never`: the possible values and the selected one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The word in brackets; empty if none was.
    pub selected: Box<str>,
    /// All words, in file order.
    pub choices: Vec<Box<str>>,
}

/// The whole directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Thp {
    /// `enabled`: `always`, `madvise`, `never`.
    pub enabled: Choice,
    /// `defrag`: `always`, `defer`, `defer+madvise`, `madvise`, `never`.
    pub defrag: Choice,
    /// `shmem_enabled` (4.8 and later).
    pub shmem_enabled: Option<Choice>,
    /// `use_zero_page`.
    pub use_zero_page: Option<u64>,
    /// `hpage_pmd_size`: bytes of one huge page.
    pub pmd_size: Option<Bytes>,
    /// `shrink_underused` (6.12 and later).
    pub shrink_underused: Option<u64>,
    /// Files of `khugepaged/`, by name (`pages_to_scan`, `max_ptes_none`, `defrag`, …).
    pub khugepaged: Vec<(Box<str>, u64)>,
    /// `hugepages-*kB/` (6.8 and later), smallest first.
    pub sizes: Vec<ThpSize>,
}

impl Thp {
    /// A khugepaged setting or counter.
    pub fn khugepaged(&self, name: &str) -> Option<u64> {
        self.khugepaged.iter().find(|(key, _)| &**key == name).map(|(_, value)| *value)
    }
}

/// One page size of multi-size THP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThpSize {
    /// Size of one page.
    pub size: Bytes,
    /// `enabled`: `always`, `inherit`, `madvise`, `never`.
    pub enabled: Choice,
    /// `shmem_enabled`.
    pub shmem_enabled: Option<Choice>,
    /// `stats/*` (6.10 and later).
    pub stats: Option<Values<MthpStats>>,
}

/// `mm/huge_memory.c:enabled_show` and similar functions.
impl File for Choice {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut choice = Choice::default();
        for word in words(text) {
            if choice.choices.len() == MOST_CHOICES {
                log.malformed(1, "more words than any setting has");
                break;
            }
            let bare = word.strip_prefix(b"[").and_then(|word| word.strip_suffix(b"]"));
            let name = bare.unwrap_or(word);
            if name.is_empty() || name.iter().any(|b| matches!(b, b'[' | b']')) {
                log.malformed(1, "brackets that do not stand around a word");
                continue;
            }
            let name = name_of(name);
            if bare.is_some() {
                if choice.selected.is_empty() {
                    choice.selected = name.clone();
                } else {
                    log.malformed(1, "more than one word in brackets; the first stands");
                }
            }
            choice.choices.push(name);
        }
        if choice.selected.is_empty() && !choice.choices.is_empty() {
            log.malformed(1, "no word in brackets");
        }
        choice
    }

    fn print(&self, out: &mut String) {
        let selected = self.choices.iter().position(|word| *word == self.selected);
        for (i, word) in self.choices.iter().enumerate() {
            if i > 0 {
                out.push(' ');
            }
            if Some(i) == selected {
                out.extend(["[", word, "]"]);
            } else {
                out.push_str(word);
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, hostile, parse, print, settles};

    /// `defrag` of 6.18.
    const NEW: &str = "always defer defer+madvise [madvise] never\n";

    #[test]
    fn reads_and_prints_the_kernels_text() {
        let choice: Choice = clean(NEW);
        assert_eq!((&*choice.selected, choice.choices.len()), ("madvise", 5));
        assert_eq!(print(&choice), NEW);
        // `redhat_transparent_hugepage/khugepaged/defrag` of RHEL 6.
        let choice: Choice = clean("[yes] no\n");
        assert_eq!((&*choice.selected, &choice.choices[..]), ("yes", &["yes".into(), "no".into()][..]));
    }

    #[test]
    fn names_what_makes_no_sense_and_keeps_the_rest() {
        for (text, selected, words) in [
            (b"always never".as_slice(), "", 2),
            (b"[always] [never]", "always", 2),
            (b"always [] [never]", "never", 2),
            (b"always [never", "", 1),
            (b"[\xff] never [", "\u{fffd}", 2),
        ] {
            let (choice, problems) = parse::<Choice>(text);
            assert_eq!((&*choice.selected, choice.choices.len()), (selected, words), "{text:?}");
            assert!(
                problems.iter().all(|problem| problem.line == Some(1)) && !problems.is_empty(),
                "{text:?}"
            );
        }
        assert_eq!(bad_lines::<Choice>(format!("[a]{}", " b".repeat(64)).as_bytes()), [1]);
        assert_eq!(clean::<Choice>(""), Choice::default());
    }

    /// Choices with none selected cannot be printed without a complaint.
    fn settles_if_selected(text: &[u8]) {
        if !parse::<Choice>(text).0.selected.is_empty() {
            settles::<Choice>(text);
        }
    }

    #[test]
    fn survives_cuts() {
        for end in 0..NEW.len() {
            settles_if_selected(&NEW.as_bytes()[..end]);
        }
    }

    proptest! {
        #[test]
        fn round_trip(choices in vec("[a-z+_é]{1,12}", 1..7), selected: prop::sample::Index) {
            let choices: Vec<Box<str>> = choices.into_iter().map(Into::into).collect();
            let choice = Choice { selected: selected.get(&choices).clone(), choices };
            prop_assert_eq!(clean::<Choice>(&print(&choice)), choice);
        }

        #[test]
        fn settles_whatever_it_reads(text in hostile("always [madvise] never\n[a] b\nc [d]")) {
            settles_if_selected(&text);
            let (choice, _) = parse::<Choice>(&text);
            prop_assert_eq!(parse::<Choice>(print(&choice).as_bytes()).0, choice);
        }
    }
}
