//! `/proc/mounts`, with the space of memory-backed file systems where the host is live.

use std::fmt::Write as _;

use lotsfree_units::Bytes;
use serde::Serialize;

use crate::{File, Log, ProblemKind};

/// At most this many mounts are kept; `fs.mount-max` is this many.
const MOST: usize = 100_000;

/// One mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// What is mounted (`/dev/sda1`, `tmpfs`).
    pub source: String,
    /// Where, with the kernel's octal escapes undone.
    pub target: String,
    /// File system type.
    pub kind: Box<str>,
    /// Options, as printed.
    pub options: String,
    /// Size and used bytes (`statvfs`), for live tmpfs and hugetlbfs mounts only.
    pub space: Option<(Bytes, Bytes)>,
}

impl Mount {
    /// The value of `name=value` among the options, or an empty text for a bare `name`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| match option.split_once('=') {
            Some((key, value)) if key == name => Some(value),
            None if option == name => Some(""),
            _ => None,
        })
    }
}

/// The words of a line between blanks and tabs; other white space may be part of a path.
pub(super) fn columns(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|&b| b == b' ' || b == b'\t').filter(|word| !word.is_empty())
}

/// Undoes `\040` and the like (`fs/seq_file.c:mangle_path`). Bytes that are not UTF-8 become U+FFFD.
pub(super) fn unescape(word: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        rest = match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if *first == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Writes `text` with white space and backslashes as octal escapes.
pub(super) fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            // `#` would begin a comment in fstab; the kernel escapes it in /proc/mounts from 5.4 on.
            '\\' | '#' => drop(write!(out, "\\{:03o}", u32::from(c))),
            c if c.is_ascii_whitespace() => drop(write!(out, "\\{:03o}", u32::from(c))),
            c => out.push(c),
        }
    }
}

/// `fs/proc_namespace.c:show_vfsmnt`, 2.6.32 to 6.18. [`Mount::space`] is not in the file: neither read nor
/// written.
impl File for Vec<Mount> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut mounts: Vec<Mount> = Vec::new();
        for (number, line) in (1u32..).zip(text.split(|&b| b == b'\n')) {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if mounts.len() == MOST {
                log.whole(ProblemKind::Budget, format!("more than {MOST} mounts"));
                break;
            }
            match mount(line) {
                Some(mount) => mounts.push(mount),
                None => log.malformed(number, "not source, target, type, options and two numbers"),
            }
        }
        mounts
    }

    fn print(&self, out: &mut String) {
        for mount in self {
            escape(&mount.source, out);
            out.push(' ');
            escape(&mount.target, out);
            out.push(' ');
            escape(&mount.kind, out);
            let _ = writeln!(out, " {} 0 0", mount.options);
        }
    }
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = columns(line.trim_ascii_end());
    // A mount whose source is the empty text leaves nothing before the first blank.
    let nameless = line.first() == Some(&b' ') && words.clone().count() == 5;
    let source = if nameless { String::new() } else { unescape(words.next()?) };
    let (target, kind, options) = (words.next()?, words.next()?, words.next()?);
    let numbers = [words.next()?, words.next()?];
    if words.next().is_some() || !numbers.iter().all(|n| n.iter().all(u8::is_ascii_digit)) {
        return None;
    }
    Some(Mount {
        source,
        target: unescape(target),
        kind: unescape(kind).into(),
        options: String::from_utf8_lossy(options).into_owned(),
        space: None,
    })
}
