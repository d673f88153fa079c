//! `/etc/security/limits.conf` and `limits.d/*.conf` (pam_limits).

use std::fmt::Write;

use lotsfree_units::Bytes;
use serde::Serialize;

use super::cgroup::Limit;
use super::scan::{bounded, cut, lines, words};
use crate::{Log, ProblemKind};

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitsLine {
    /// The file, without a leading slash.
    pub file: String,
    /// Line, counted from 1.
    pub line: u32,
    /// User, `@group`, `%group` (logins of a group), `*`, or a range of uids (`1000:`, `:2000`, `@500:600`).
    /// The quotes that a name with a space needs are removed.
    pub domain: String,
    /// `soft`, `hard` or `-` (both).
    pub kind: Box<str>,
    /// `memlock`, `nofile`, …; empty in a line that has only a domain and `-`, which exempts the domain from
    /// all limits.
    pub item: Box<str>,
    /// The value as written. `memlock` is in KiB; `unlimited`, `infinity` and `-1` mean no limit.
    pub value: Box<str>,
}

/// A bound on the lines of one file.
const MOST_LINES: usize = 4096;
/// A bound on each word, in bytes.
const MOST_WORD: usize = 1024;

impl LimitsLine {
    /// Reads one file. `#` begins a comment; kind and item are in lower case, as pam_limits compares them.
    pub fn parse_file(file: &str, text: &[u8], log: &mut Log) -> Vec<LimitsLine> {
        let mut found = Vec::new();
        for (number, line) in lines(text) {
            let line = line.trim_ascii();
            if matches!(line, [] | [b'#', ..]) {
                continue;
            }
            let Some((domain, rest)) = split_domain(line) else {
                log.malformed(
                    number,
                    "a domain in quotes that are empty, not closed, or not followed by a space",
                );
                continue;
            };
            let rest = cut(rest, b'#').map_or(rest, |(before, _)| before);
            let mut fields = words(rest);
            let kind = lower(fields.next().unwrap_or_default());
            let (item, value) = (lower(fields.next().unwrap_or_default()), fields.next().unwrap_or_default());
            let value = bounded(value, MOST_WORD);
            let complete = !value.is_empty() && matches!(&*kind, "soft" | "hard" | "-");
            let freed = kind == "-" && item.is_empty();
            if !complete && !freed {
                log.malformed(number, "not a domain, one of soft, hard and -, an item and a value");
                continue;
            }
            if found.len() >= MOST_LINES {
                log.whole(ProblemKind::Truncated, format!("more than {MOST_LINES} limits"));
                break;
            }
            found.push(LimitsLine {
                file: file.to_owned(),
                line: number,
                domain: bounded(domain, MOST_WORD),
                kind: kind.into(),
                item: item.into(),
                value: value.into(),
            });
        }
        found
    }

    /// Prints the lines of one file, each on its own line number, so that they read back the same.
    pub fn print_file(limits: &[LimitsLine], out: &mut String) {
        let mut line = 1;
        for limit in limits {
            while line < limit.line {
                out.push('\n');
                line += 1;
            }
            let quote = match limit.domain.contains(|c: char| c.is_ascii_whitespace() || c == '#') {
                true => "\"",
                false => "",
            };
            // Writing to a String cannot fail.
            let _ = write!(out, "{quote}{}{quote} {}", limit.domain, limit.kind);
            if !limit.item.is_empty() {
                let _ = write!(out, " {} {}", limit.item, limit.value);
            }
            out.push('\n');
            line += 1;
        }
    }

    /// The value of an item in KiB, such as `memlock`, `as`, `data`, `stack` or `rss`; `None` if it is not a
    /// number.
    pub fn kib(&self) -> Option<Limit> {
        match &*self.value {
            "-1" => Some(Limit::Max),
            word if word.eq_ignore_ascii_case("unlimited") || word.eq_ignore_ascii_case("infinity") => {
                Some(Limit::Max)
            }
            number => Some(Limit::At(Bytes::kib(number.parse().ok()?))),
        }
    }
}

/// Splits the first word off; it may be in double quotes.
fn split_domain(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if let [b'"', inner @ ..] = line {
        let (domain, rest) = cut(inner, b'"')?;
        // White space at the ends of a quoted name cannot be told from the padding of a column.
        let domain = domain.trim_ascii();
        return (!domain.is_empty() && rest.first().is_none_or(u8::is_ascii_whitespace))
            .then_some((domain, rest));
    }
    let end = line.iter().position(|b| b.is_ascii_whitespace() || *b == b'#').unwrap_or(line.len());
    Some(line.split_at(end))
}

fn lower(word: &[u8]) -> String {
    let mut word = bounded(word, MOST_WORD);
    word.make_ascii_lowercase();
    word
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::corrupted;

    const TEXT: &[u8] = b"#<domain> <type> <item> <value>\n\noracle soft memlock 60397977\n@dba\tHARD\tMemLock\tunlimited # all\n\
        *               -       nofile          65536\n1000:           soft    as              -1\n\
        %wheel - maxlogins 4\n\"domain users\" hard memlock 64\nroot -\nftp hard\nbad kindly memlock 1\n\"open - memlock 1\n";

    fn read(text: &[u8]) -> Vec<LimitsLine> {
        LimitsLine::parse_file("etc/security/limits.conf", text, &mut Log::default())
    }

    #[test]
    fn reads_what_pam_limits_reads() {
        let mut log = Log::default();
        let found = LimitsLine::parse_file("etc/security/limits.conf", TEXT, &mut log);
        let found: Vec<_> =
            found.iter().map(|l| (l.line, &*l.domain, &*l.kind, &*l.item, &*l.value)).collect();
        assert_eq!(
            found,
            [
                (3, "oracle", "soft", "memlock", "60397977"),
                (4, "@dba", "hard", "memlock", "unlimited"),
                (5, "*", "-", "nofile", "65536"),
                (6, "1000:", "soft", "as", "-1"),
                (7, "%wheel", "-", "maxlogins", "4"),
                (8, "domain users", "hard", "memlock", "64"),
                (9, "root", "-", "", ""),
            ]
        );
        let lines: Vec<_> = log.problems().iter().map(|p| p.line).collect();
        assert_eq!(lines, [Some(10), Some(11), Some(12)]);
    }

    #[test]
    fn memlock_is_in_kib() {
        let kib: Vec<_> = read(TEXT).iter().map(LimitsLine::kib).collect();
        assert_eq!(kib[0], Some(Limit::At(Bytes::kib(60_397_977))));
        assert_eq!((kib[1], kib[3], kib[6]), (Some(Limit::Max), Some(Limit::Max), None));
    }

    fn read_back(limits: &[LimitsLine]) {
        let mut printed = String::new();
        LimitsLine::print_file(limits, &mut printed);
        assert_eq!(read(printed.as_bytes()), limits, "{printed:?}");
    }

    #[test]
    fn truncated_at_every_byte() {
        for end in 0..=TEXT.len() {
            read_back(&read(&TEXT[..end]));
        }
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(lines in prop::collection::vec(
            "(\"[a-z #]{0,6}\"|[@%*:a-z0-9\"#]{1,8}) (soft|HARD|-) ([a-z]{1,8} [a-z0-9-]{1,8})?( #.{0,4})?", 0..6,
        )) {
            read_back(&read(lines.join("\n").as_bytes()));
        }

        #[test]
        fn survives_hostile_input(text in corrupted(TEXT)) {
            read_back(&read(&text));
        }
    }
}
