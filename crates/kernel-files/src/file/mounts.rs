//! `/proc/mounts`, and on a running host the space of memory-backed file systems.

use std::fmt::Write as _;

use lotsfree_units::Bytes;
use serde::Serialize;

use super::scan::lines;
use crate::{File, Log, ProblemKind};

/// At most this many mounts are kept; the default of `fs.mount-max` is the same.
const MOST: usize = 100_000;

/// One mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The device or other source of the mount (`/dev/sda1`, `tmpfs`).
    pub source: String,
    /// Mount point, with the kernel's octal escapes undone.
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

/// Writes `text` with white space, backslashes and `also` as octal escapes.
pub(super) fn escape(text: &str, also: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            c if c == '\\' || c.is_ascii_whitespace() || also.contains(c) => {
                let _ = write!(out, "\\{:03o}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// `fs/proc_namespace.c:show_vfsmnt`, 2.6.32 to 6.18. [`Mount::space`] is not in the file, so it is neither
/// read nor written.
impl File for Vec<Mount> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut mounts: Vec<Mount> = Vec::new();
        for (number, line) in lines(text) {
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
            // `#` would begin a comment in fstab.
            escape(&mount.source, "#", out);
            out.push(' ');
            escape(&mount.target, "#", out);
            out.push(' ');
            escape(&mount.kind, "#", out);
            let _ = writeln!(out, " {} 0 0", mount.options);
        }
    }
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = columns(line.trim_ascii_end());
    // A mount whose source is empty has nothing before the first blank.
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, parse, print, settles};

    /// 6.18, with a source, a target and a name that need escapes.
    const SAMPLE: &str = "proc /proc proc rw,relatime 0 0
tmpfs /dev/shm tmpfs rw,relatime,size=24682416k 0 0
/dev/vda / ext4 rw,relatime,discard,resv_strict,resuid=65534,resgid=65534 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
//nas/a\\040b /mnt/a\\134b\\011c cifs rw,username=x 0 0
 /mnt/nameless tmpfs rw 0 0
";

    #[test]
    fn reads_and_prints_the_kernels_text() {
        let mounts: Vec<Mount> = clean(SAMPLE);
        assert_eq!(mounts[1].option("size"), Some("24682416k"));
        assert_eq!((&*mounts[2].source, &*mounts[2].target, &*mounts[2].kind), ("/dev/vda", "/", "ext4"));
        assert_eq!((&*mounts[4].source, &*mounts[4].target), ("//nas/a b", "/mnt/a\\b\tc"));
        assert_eq!((&*mounts[5].source, &*mounts[5].target), ("", "/mnt/nameless"));
        assert_eq!(print(&mounts), SAMPLE);
    }

    /// 2.6.32 lists the root as `rootfs` first.
    #[test]
    fn reads_2_6_32() {
        let text = "rootfs / rootfs rw 0 0\nproc /proc proc rw,relatime 0 0\n/dev/mapper/vg-root / ext4 \
                    rw,relatime,barrier=1,data=ordered 0 0\n";
        assert_eq!(clean::<Vec<Mount>>(text)[2].option("data"), Some("ordered"));
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text =
            b"tmpfs /a tmpfs rw 0\ntmpfs /b tmpfs rw 0 x\ntmpfs /\xff\\777 tmpfs rw 0 0\n\na b c d 0 0 0";
        assert_eq!(bad_lines::<Vec<Mount>>(text), [1, 2, 5]);
        assert_eq!(parse::<Vec<Mount>>(text).0[0].target, "/\u{fffd}\\777");
    }

    #[test]
    fn is_bounded() {
        let (mounts, problems) = parse::<Vec<Mount>>("a b c d 0 0\n".repeat(MOST + 2).as_bytes());
        assert_eq!((mounts.len(), problems.len(), problems[0].kind), (MOST, 1, ProblemKind::Budget));
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<Vec<Mount>>(""), []);
        cut_anywhere::<Vec<Mount>>(SAMPLE);
    }

    proptest! {
        #[test]
        fn round_trip(mounts in vec((any::<String>(), "(?s).{1,20}", "(?s).{1,9}", "[!-~é]{1,20}"), 0..9)) {
            let mount = |(source, target, kind, options): (String, String, String, String)| {
                Mount { source, target, kind: kind.into(), options, space: None }
            };
            let mounts: Vec<Mount> = mounts.into_iter().map(mount).collect();
            prop_assert_eq!(clean::<Vec<Mount>>(&print(&mounts)), mounts);
        }

        #[test]
        fn settles_whatever_it_reads(text in hostile(SAMPLE)) {
            settles::<Vec<Mount>>(&text);
        }
    }
}
