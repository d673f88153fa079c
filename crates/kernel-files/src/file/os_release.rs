//! `/etc/os-release`: the name and version of the distribution.

use std::fmt::Write;

use serde::Serialize;

use super::scan::{bounded, cut, lines};
use crate::{File, Log};

/// The fields that are kept; empty if the file lacks them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OsRelease {
    /// `ID`: `rhel`, `debian`, `sles`.
    pub id: String,
    /// `VERSION_ID`: `9.6`, `12`; rolling distributions have none.
    pub version_id: String,
}

/// A bound on values, in bytes.
const MOST_VALUE: usize = 256;

impl OsRelease {
    /// Both fields, unless the file has no `ID`.
    pub fn into_pair(self) -> Option<(String, String)> {
        (!self.id.is_empty()).then_some((self.id, self.version_id))
    }
}

impl File for OsRelease {
    /// Reads shell assignments as os-release(5) allows them; the last assignment of a name wins. Other names
    /// are skipped.
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut release = OsRelease::default();
        for (number, line) in lines(text) {
            let Some((name, value)) = cut(line.trim_ascii(), b'=') else { continue };
            let slot = match name {
                b"ID" => &mut release.id,
                b"VERSION_ID" => &mut release.version_id,
                _ => continue,
            };
            match unquote(value) {
                Some(value) => *slot = bounded(&value, MOST_VALUE),
                None => log.malformed(number, "a quote that is not closed"),
            }
        }
        release
    }

    fn print(&self, out: &mut String) {
        for (name, value) in [("ID", &self.id), ("VERSION_ID", &self.version_id)] {
            if value.is_empty() {
                continue;
            }
            // Writing to a String cannot fail.
            let _ = write!(out, "{name}=\"");
            for c in value.chars() {
                if matches!(c, '"' | '$' | '`' | '\\') {
                    out.push('\\');
                }
                out.push(c);
            }
            out.push_str("\"\n");
        }
    }
}

/// Removes the quotes and backslashes of one shell word.
fn unquote(value: &[u8]) -> Option<Vec<u8>> {
    let (quote, inner) = match value {
        [quote @ (b'"' | b'\''), inner @ ..] => (Some(*quote), inner),
        _ => (None, value),
    };
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&b) = bytes.next() {
        match b {
            _ if Some(b) == quote => return Some(out),
            b'\\' if quote != Some(b'\'') => match bytes.next() {
                // Inside double quotes a backslash before any other character stays.
                Some(&next) if quote.is_some() && !matches!(next, b'"' | b'$' | b'`' | b'\\') => {
                    out.extend([b'\\', next]);
                }
                Some(&next) => out.push(next),
                None => return quote.is_none().then_some(out),
            },
            _ => out.push(b),
        }
    }
    quote.is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{corrupted, round_trip};

    const TEXT: &[u8] = b"NAME=\"Red Hat Enterprise Linux\"\n# ID=no\nVERSION=\"9.6 (Plow)\"\nID=\"rhel\"\nID_LIKE=\"fedora\"\n\
        VERSION_ID='9.6'\nPLATFORM_ID=\"platform:el9\"\n";

    #[test]
    fn reads_quoted_and_bare_values() {
        let mut log = Log::default();
        let red_hat = OsRelease::parse(TEXT, &mut log).into_pair();
        assert_eq!(red_hat, Some(("rhel".into(), "9.6".into())));
        let debian = OsRelease::parse(b"VERSION_ID=\"12\"\nID=debian\n", &mut log).into_pair();
        assert_eq!(debian, Some(("debian".into(), "12".into())));
        assert_eq!(OsRelease::parse(b"ID=arch\n", &mut log).into_pair(), Some(("arch".into(), "".into())));
        assert_eq!(OsRelease::parse(b"", &mut log).into_pair(), None);
        assert_eq!(log.problems(), []);
        OsRelease::parse(b"ID=\"rhel\n", &mut log);
        assert_eq!(log.problems()[0].line, Some(1));
    }

    #[test]
    fn truncated_at_every_byte() {
        for end in 0..=TEXT.len() {
            round_trip(&OsRelease::parse(&TEXT[..end], &mut Log::default()));
        }
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(id in "[ -~ä]{0,20}", version_id in "[ -~]{0,20}") {
            round_trip(&OsRelease { id, version_id });
        }

        #[test]
        fn survives_hostile_input(text in corrupted(TEXT)) {
            round_trip(&OsRelease::parse(&text, &mut Log::default()));
        }
    }
}
