//! The text archive: several files in one readable text, for fixtures, mails and version control.
//!
//! ```text
//! Free lines that say what this is.
//! -- proc/sys/vm/swappiness --
//! 60
//! -- 0s/proc/meminfo --
//! MemTotal:       16387608 kB
//! -- 0s/proc/pagetypeinfo -- denied
//! -- 5s/proc/meminfo --
//! MemTotal:       16387608 kB
//! ```
//!
//! - Everything before the first header is a comment.
//! - A header is a line `-- PATH --` or `-- PATH -- STATE`. The lines up to the next header are the file,
//!   byte for byte, their last newline included.
//! - `PATH` has no leading slash (one is dropped) and no empty, `.` or `..` component. Bytes up to the space,
//!   DEL and `%` are written as `%` and two hexadecimal digits.
//! - `STATE` is `unterminated` (the last newline is not part of the file), or says why there is no file:
//!   `denied`, `absent`, `not-regular`, or `failed REASON`. Nothing but white space may follow such a header.
//! - A `PATH` that ends in `/` is a directory: an empty one, or one that could not be listed
//!   (`-- sys/x/ -- denied`).
//! - A line of a file (or of the comment) that looks like a header, possibly after backslashes, has one more
//!   backslash than in the file.
//! - A path that begins with a number and `s/` belongs to the instant that many seconds after the first.
//!   Other paths belong to all instants. A later instant has the files of the first one unless it mentions
//!   them itself; `absent` takes a file away.
//!
//! The text is bytes: contents need not be UTF-8.

use super::samples::{self, prefix_of, safe};
use super::{MemorySource, ReadError};

/// A text archive.
#[derive(Clone, Debug, Default)]
pub struct TextArchive {
    /// The lines before the first header, the last newline included.
    pub comment: String,
    /// The instants: seconds after the first, and the files. Never empty after [`TextArchive::parse`].
    pub samples: Vec<(f64, MemorySource)>,
}

/// Why a text is not a text archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// There is no header.
    #[error("no line `-- PATH --` in it")]
    NoHeader,
    /// A header's path leads outside.
    #[error("line {line}: `{path}` is not a path such as proc/meminfo")]
    Path {
        /// Line number, from 1.
        line: usize,
        /// The path as written.
        path: String,
    },
    /// A header's state is unknown.
    #[error(
        "line {line}: `{state}` after the header is none of unterminated, denied, absent, not-regular, failed"
    )]
    State {
        /// Line number, from 1.
        line: usize,
        /// The state as written.
        state: String,
    },
    /// Contents follow a header that says that there are none.
    #[error("line {line}: contents after a header that says there are none")]
    Contents {
        /// Line number, from 1.
        line: usize,
    },
    /// There are more files than the limit.
    #[error("more than {MOST_FILES} files")]
    TooMany,
}

/// At most this many files are read from one text.
pub const MOST_FILES: usize = 200_000;

enum State {
    Whole,
    Unterminated,
    Not(ReadError),
}

/// Splits a header into path and state, both as written.
fn header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.trim_ascii_end().strip_prefix(b"-- ")?;
    let end = rest.iter().position(u8::is_ascii_whitespace)?;
    let (path, rest) = (&rest[..end], &rest[end + 1..]);
    let state = rest.strip_prefix(b"--")?;
    let fine = !path.is_empty() && (state.is_empty() || state[0] == b' ');
    fine.then(|| (path, state.trim_ascii()))
}

/// Whether `line` is a header after any number of backslashes.
fn header_shaped(line: &[u8]) -> bool {
    let slashes = line.iter().take_while(|&&b| b == b'\\').count();
    header(&line[slashes..]).is_some()
}

/// Whether `text` has a header among its first lines.
pub(crate) fn looks_like(text: &[u8]) -> bool {
    let known = |line: &[u8]| {
        header(line).is_some_and(|(path, state)| {
            parse_state(state).is_some() && path.contains(&b'/') && safe(&decode(path)).is_some()
        })
    };
    text.split(|&b| b == b'\n').take(2000).any(known)
}

fn parse_state(state: &[u8]) -> Option<State> {
    Some(match state {
        b"" => State::Whole,
        b"unterminated" => State::Unterminated,
        b"denied" => State::Not(ReadError::Denied),
        b"absent" => State::Not(ReadError::Absent),
        b"not-regular" => State::Not(ReadError::NotRegular),
        b"failed" => State::Not(ReadError::Io("failed".into())),
        other => {
            let reason = other.strip_prefix(b"failed ")?;
            State::Not(ReadError::Io(String::from_utf8_lossy(reason).into_owned()))
        }
    })
}

fn decode(path: &[u8]) -> String {
    let mut out = Vec::with_capacity(path.len());
    let mut i = 0;
    while i < path.len() {
        let hex = path.get(i + 1..i + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        let hex = hex.filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if path[i] == b'%' => {
                out.push(byte);
                i += 3;
            }
            _ => {
                out.push(path[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn encode(path: &str, out: &mut Vec<u8>) {
    for byte in path.bytes() {
        if byte <= b' ' || byte == b'%' || byte == 0x7f {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
}

impl TextArchive {
    /// Reads a text archive.
    ///
    /// # Errors
    /// Names the first line that does not conform to the format.
    pub fn parse(text: &[u8]) -> Result<Self, TextError> {
        let mut flat = MemorySource::default();
        let mut comment = Vec::new();
        let mut current: Option<(String, State, Vec<u8>)> = None;
        let mut files = 0;
        for (index, line) in text.split_inclusive(|&b| b == b'\n').enumerate() {
            let number = index + 1;
            if let Some((path, state)) = header(line) {
                finish(&mut flat, current.take());
                files += 1;
                if files > MOST_FILES {
                    return Err(TextError::TooMany);
                }
                let decoded = decode(path);
                let path = decoded.strip_prefix('/').unwrap_or(&decoded);
                let bare = path.strip_suffix('/').unwrap_or(path);
                if safe(bare).is_none() {
                    return Err(TextError::Path { line: number, path: decoded });
                }
                let state = parse_state(state).ok_or_else(|| TextError::State {
                    line: number,
                    state: String::from_utf8_lossy(state).into_owned(),
                })?;
                current = Some((path.to_owned(), state, Vec::new()));
                continue;
            }
            let escaped = line.first() == Some(&b'\\') && header_shaped(line);
            let line = if escaped { &line[1..] } else { line };
            match &mut current {
                None => comment.extend_from_slice(line),
                Some((path, state, contents)) => {
                    let empty = path.ends_with('/') || matches!(state, State::Not(_));
                    if empty && !line.trim_ascii().is_empty() {
                        return Err(TextError::Contents { line: number });
                    }
                    contents.extend_from_slice(line);
                }
            }
        }
        if current.is_none() {
            return Err(TextError::NoHeader);
        }
        finish(&mut flat, current);
        let comment = String::from_utf8_lossy(&comment).into_owned();
        Ok(TextArchive { comment, samples: samples::split(flat, true) })
    }

    /// Writes a text that [`TextArchive::parse`] reads.
    pub fn print(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut comment = self.comment.clone();
        if !comment.is_empty() && !comment.ends_with('\n') {
            comment.push('\n');
        }
        print_lines(comment.as_bytes(), &mut out);
        let ambiguous = |source: &MemorySource| {
            source.files().any(|(path, _)| prefix_of(path).is_some())
                || source.directories().any(|(path, _)| prefix_of(path).is_some())
        };
        let prefixed = match &self.samples[..] {
            [(at, only)] => *at != 0.0 || ambiguous(only),
            _ => true,
        };
        for (index, (at, source)) in self.samples.iter().enumerate() {
            let prefix = if prefixed { format!("{at}s/") } else { String::new() };
            let first = self.samples.first().map(|(_, first)| first).filter(|_| index > 0);
            let before = out.len();
            print_sample(source, first, &prefix, &mut out);
            // An instant in which nothing changed is still an instant.
            if prefixed && out.len() == before {
                print_header(&prefix, "", "", "", &mut out);
            }
        }
        out
    }
}

fn print_sample(source: &MemorySource, first: Option<&MemorySource>, prefix: &str, out: &mut Vec<u8>) {
    let below: std::collections::BTreeMap<_, _> =
        first.into_iter().flat_map(MemorySource::files).filter(|(path, _)| !path.is_empty()).collect();
    let own: std::collections::BTreeMap<_, _> = source.files().collect();
    for (path, listing) in source.directories() {
        let state = listing.as_ref().err().map(state_of).unwrap_or_default();
        print_header(prefix, path, "/", &state, out);
    }
    for (path, contents) in &own {
        if below.get(path) == Some(contents) {
            continue;
        }
        match contents {
            Err(error) => print_header(prefix, path, "", &state_of(error), out),
            Ok(contents) => {
                let unterminated = contents.last().is_some_and(|&b| b != b'\n');
                print_header(prefix, path, "", if unterminated { "unterminated" } else { "" }, out);
                print_lines(contents, out);
                if unterminated {
                    out.push(b'\n');
                }
            }
        }
    }
    for path in below.keys().filter(|path| !own.contains_key(*path)) {
        print_header(prefix, path, "", "absent", out);
    }
}

fn state_of(error: &ReadError) -> String {
    match error {
        ReadError::Denied => "denied".into(),
        ReadError::Absent => "absent".into(),
        ReadError::NotRegular => "not-regular".into(),
        ReadError::Io(reason) => {
            let reason: Vec<&str> = reason.split_whitespace().collect();
            format!("failed {}", reason.join(" ")).trim_end().to_owned()
        }
    }
}

fn print_header(prefix: &str, path: &str, suffix: &str, state: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"-- ");
    out.extend_from_slice(prefix.as_bytes());
    encode(path, out);
    out.extend_from_slice(suffix.as_bytes());
    out.extend_from_slice(b" --");
    if !state.is_empty() {
        out.push(b' ');
        out.extend_from_slice(state.as_bytes());
    }
    out.push(b'\n');
}

fn print_lines(text: &[u8], out: &mut Vec<u8>) {
    for line in text.split_inclusive(|&b| b == b'\n') {
        if header_shaped(line) {
            out.push(b'\\');
        }
        out.extend_from_slice(line);
    }
}

fn finish(flat: &mut MemorySource, current: Option<(String, State, Vec<u8>)>) {
    let Some((path, state, mut contents)) = current else { return };
    if let Some(directory) = path.strip_suffix('/') {
        let listing = if let State::Not(error) = state { Err(error) } else { Ok(()) };
        flat.insert_directory(directory, listing);
        return;
    }
    match state {
        State::Not(error) => flat.insert_error(path, error),
        State::Whole => flat.insert(path, contents),
        State::Unterminated => {
            if contents.last() == Some(&b'\n') {
                contents.pop();
            }
            flat.insert(path, contents);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comment_samples_states_and_escapes() {
        let text = b"what this is\n-- proc/sys/vm/swappiness --\n60\n-- 0s/proc/meminfo --\nMemTotal: 1 kB\n\
            -- 0s/proc/pagetypeinfo -- denied\n-- 0s/sys/none/ --\n-- 5s/proc/meminfo --\n\\-- proc/x --\n\
            -- 5s/proc/cmdline -- unterminated\nquiet\n-- 5s/odd%20name --\nx\n-- 5s/proc/gone -- failed input/output error\n";
        let archive = TextArchive::parse(text).unwrap();
        assert_eq!(archive.comment, "what this is\n");
        let [(0.0, first), (5.0, second)] = &archive.samples[..] else { panic!("{:?}", archive.samples) };
        assert_eq!(first.get("proc/sys/vm/swappiness"), Some(&b"60\n"[..]));
        assert_eq!(second.get("proc/sys/vm/swappiness"), Some(&b"60\n"[..]));
        assert_eq!(first.get("proc/meminfo"), Some(&b"MemTotal: 1 kB\n"[..]));
        assert_eq!(second.get("proc/meminfo"), Some(&b"-- proc/x --\n"[..]));
        assert_eq!(second.get("proc/cmdline"), Some(&b"quiet"[..]));
        assert_eq!(second.get("odd name"), Some(&b"x\n"[..]));
        let mut buffer = Vec::new();
        assert_eq!(second.read("proc/pagetypeinfo", 9, &mut buffer), Err(ReadError::Denied));
        assert_eq!(second.read("proc/gone", 9, &mut buffer), Err(ReadError::Io("input/output error".into())));
        assert_eq!(first.list("sys/none"), Ok(vec![]));
    }

    #[test]
    fn refuses_with_the_line() {
        assert_eq!(TextArchive::parse(b"hello\n").unwrap_err(), TextError::NoHeader);
        let line = |text: &[u8]| TextArchive::parse(text).unwrap_err().to_string();
        assert!(line(b"x\n-- ../etc/passwd --\n").starts_with("line 2: `../etc/passwd`"));
        assert!(line(b"-- a%2f..%2f.. --\n").starts_with("line 1"));
        assert!(line(b"-- proc/x -- maybe\n").contains("`maybe`"));
        assert!(line(b"-- proc/x -- denied\n\nbut\n").starts_with("line 3"));
    }

    #[test]
    fn an_instant_in_which_nothing_changed_stays() {
        let text = b"-- 0s/proc/vmstat --\npswpin 1\n-- 10s/proc/vmstat --\npswpin 1\n";
        let archive = TextArchive::parse(text).unwrap();
        let again = TextArchive::parse(&archive.print()).unwrap();
        let [(0.0, _), (10.0, last)] = &again.samples[..] else { panic!("{:?}", again.samples) };
        assert_eq!(last.get("proc/vmstat"), Some(&b"pswpin 1\n"[..]));
    }

    #[test]
    fn a_process_that_ended_is_gone_in_the_later_instant() {
        let mut first = MemorySource::default();
        first.insert("proc/1/stat", "1\n");
        first.insert("proc/2/stat", "2\n");
        let mut second = MemorySource::default();
        second.insert("proc/1/stat", "1\n");
        let archive = TextArchive { comment: String::new(), samples: vec![(0.0, first), (5.0, second)] };
        let text = String::from_utf8(archive.print()).unwrap();
        assert!(!text.contains("5s/proc/1/stat"), "{text}");
        let read = TextArchive::parse(text.as_bytes()).unwrap();
        assert_eq!(read.samples[1].1.list("proc"), Ok(vec!["1".into()]));
    }

    fn effective(source: &MemorySource) -> Vec<(String, Result<Vec<u8>, ReadError>)> {
        let there = source.files().filter(|(_, contents)| !matches!(contents, Err(ReadError::Absent)));
        there.map(|(path, contents)| (path.to_owned(), contents.clone())).collect()
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = TextArchive::parse(&text);
        }

        #[test]
        fn nearly_archives_are_read_without_a_panic(
            lines in proptest::collection::vec(
                "(-- |\\\\-- |)(0s/|5s/|9e9s/|)[a./%]{0,6}( --|)( denied| unterminated|)", 0..20)
        ) {
            let _ = TextArchive::parse(lines.join("\n").as_bytes());
        }

        #[test]
        fn what_is_written_is_read(
            comment in "([a-z\\\\ -]{0,9}\n){0,3}",
            files in proptest::collection::btree_map(
                "[a-z]{1,3}(/[a-z %0-9]{1,3}){0,2}",
                proptest::collection::vec("(\\\\{0,2}-- a/b --|-- x -- denied|[ -~]{0,5}|\n){0,3}\n?", 1..3), 1..6),
        ) {
            let mut samples = vec![(0.0, MemorySource::default()), (2.5, MemorySource::default())];
            for (path, contents) in &files {
                for ((_, sample), contents) in samples.iter_mut().zip(contents) {
                    sample.insert(path.clone(), contents.as_bytes());
                }
            }
            let archive = TextArchive { comment: comment.clone(), samples };
            let read = TextArchive::parse(&archive.print()).unwrap();
            prop_assert_eq!(read.comment, comment);
            for ((_, was), (_, is)) in archive.samples.iter().zip(&read.samples) {
                prop_assert_eq!(effective(was), effective(is));
            }
        }
    }
}
