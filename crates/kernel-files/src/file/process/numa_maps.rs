//! `/proc/PID/numa_maps`, summed while it is read, because it has a line per mapping.

use std::fmt::Write;

use lotsfree_units::{Bytes, PageSize};
use serde::Serialize;

use crate::Log;
use crate::file::scan::{bounded, cut, decimal, hexadecimal, lines, words};

/// NUMA placement of a process's pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NumaMaps {
    /// Policy of the first line: `default`, `bind:0`, `interleave:0-1`, `prefer:1`.
    pub first_policy: Box<str>,
    /// Bytes on each node, by node number; pages of each mapping are counted with its own page size.
    pub nodes: Vec<Bytes>,
    /// The largest mappings of interest, at most 32, largest first: shared memory, files in `/dev/shm` and
    /// hugetlbfs, and anonymous memory of at least 64 MiB.
    pub mappings: Vec<NumaMapping>,
    /// Number of lines.
    pub lines: u64,
}

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NumaMapping {
    /// Start address.
    pub start: u64,
    /// Policy.
    pub policy: Box<str>,
    /// `file=`, with the kernel's octal escapes undone; `heap`, `stack`, or empty for anonymous memory.
    pub file: Box<str>,
    /// Whether the line has the word `huge`: a hugetlb mapping.
    pub huge: bool,
    /// `kernelpagesize_kB` (3.14 and later). Without it, the size of a base page, or of the default huge page
    /// for a hugetlb mapping.
    pub page_size: Bytes,
    /// Resident bytes.
    pub resident: Bytes,
}

/// At most this many mappings are kept.
const MOST_MAPPINGS: usize = 32;
/// Anonymous mappings of at least this size are kept.
const LARGE: Bytes = Bytes::mib(64);
/// A bound on node numbers: no architecture allows more (`MAX_NUMNODES`, `NODES_SHIFT` 10).
const MOST_NODES: u64 = 1024;
/// A bound on policies and paths that are kept, in bytes.
const MOST_TEXT: usize = 4096;

impl NumaMaps {
    /// Reads the file, one mapping at a time.
    ///
    /// `page` is the host's base page, `huge` its default huge page (`Hugepagesize` of meminfo). They are
    /// used for lines without a page size, as on kernels before 3.14 (`fs/proc/task_mmu.c:show_numa_map`).
    pub fn parse(text: &[u8], page: PageSize, huge: Bytes, log: &mut Log) -> Self {
        let mut maps = NumaMaps::default();
        // Mappings of this size or less are no longer among the largest.
        let mut floor = None;
        for (number, text) in lines(text) {
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let Some(line) = NumaLine::parse(text) else {
                log.malformed(number, "not a mapping's address, policy and page counts");
                continue;
            };
            if maps.lines == 0 {
                maps.first_policy = bounded(line.policy, MOST_TEXT).into();
            }
            maps.lines += 1;
            let fallback = if line.huge { huge } else { page.bytes() };
            let page_size = line.page_size.unwrap_or(fallback);
            let mut resident = Bytes::ZERO;
            for (node, pages) in line.nodes() {
                let node = usize::from(node);
                if maps.nodes.len() <= node {
                    maps.nodes.resize(node + 1, Bytes::ZERO);
                }
                let bytes = page_size.times(pages);
                maps.nodes[node] = maps.nodes[node] + bytes;
                resident = resident + bytes;
            }
            if line.matters(resident) && floor.is_none_or(|floor| resident > floor) {
                maps.mappings.push(NumaMapping {
                    start: line.start,
                    policy: bounded(line.policy, MOST_TEXT).into(),
                    file: line.place.name(),
                    huge: line.huge,
                    page_size,
                    resident,
                });
                if maps.mappings.len() == 2 * MOST_MAPPINGS {
                    floor = maps.keep_largest();
                }
            }
        }
        maps.keep_largest();
        maps
    }

    /// Sorts the mappings, largest first, drops all but the first 32 and returns the size of the last one
    /// kept.
    fn keep_largest(&mut self) -> Option<Bytes> {
        // The sort is stable: mappings of equal size stay in the order of their addresses.
        self.mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.resident));
        self.mappings.truncate(MOST_MAPPINGS);
        self.mappings.last().map(|mapping| mapping.resident)
    }
}

/// The object behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// Private or shared memory without a name.
    Anonymous,
    /// `heap`.
    Heap,
    /// `stack`, also of a thread (`stack:123`, 3.4 to 4.5).
    Stack,
    /// `file=`, escaped as printed.
    File(&'a [u8]),
}

impl Place<'_> {
    /// The path with its escapes undone, `heap`, `stack`, or nothing.
    fn name(self) -> Box<str> {
        match self {
            Place::Anonymous => "".into(),
            Place::Heap => "heap".into(),
            Place::Stack => "stack".into(),
            Place::File(path) => bounded(&unescape(path), MOST_TEXT).into(),
        }
    }

    /// Whether the pages are shared memory: System V, POSIX, `memfd`, shared anonymous.
    fn is_shared_memory(self) -> bool {
        let names: [&[u8]; 5] = [b"/SYSV", b"/dev/shm/", b"/run/shm/", b"/dev/zero", b"/memfd:"];
        matches!(self, Place::File(path) if names.iter().any(|name| path.starts_with(name)))
    }
}

/// One line of the file, with texts borrowed from it.
///
/// `address policy [file=path|heap|stack] [huge] [count=n]… [N<node>=pages]… [kernelpagesize_kB=n]`; the
/// counts other than those per node (`anon`, `dirty`, `mapped`, `mapmax`, `swapcache`, `active`, `writeback`)
/// are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaLine<'a> {
    /// Start address.
    pub start: u64,
    /// Policy; `prefer (many):0-1` and `weighted interleave:0-1` have a space in them.
    pub policy: &'a [u8],
    /// The object behind the mapping.
    pub place: Place<'a>,
    /// Whether it is a hugetlb mapping.
    pub huge: bool,
    /// `kernelpagesize_kB`, if the line has it.
    pub page_size: Option<Bytes>,
    /// The words after the policy.
    rest: &'a [u8],
}

impl<'a> NumaLine<'a> {
    /// Reads one line; `None` if it does not begin with an address and a policy, or has a number that does
    /// not fit.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let (start, rest) = cut(line.trim_ascii(), b' ')?;
        let (policy, rest) = split_policy(rest)?;
        let policy = policy.trim_ascii();
        if policy.is_empty() {
            return None;
        }
        let mut parsed = NumaLine {
            start: hexadecimal(start)?,
            policy,
            place: Place::Anonymous,
            huge: false,
            page_size: None,
            rest,
        };
        for word in words(rest) {
            match cut(word, b'=') {
                None if word == b"huge" => parsed.huge = true,
                None if word == b"heap" => parsed.place = Place::Heap,
                None if word == b"stack" || word.starts_with(b"stack:") => parsed.place = Place::Stack,
                None => {}
                Some((b"file", path)) => parsed.place = Place::File(path),
                Some((b"kernelpagesize_kB", size)) => parsed.page_size = Some(Bytes::kib(decimal(size)?)),
                Some((name, pages)) if is_node(name) => {
                    decimal(&name[1..]).filter(|&node| node < MOST_NODES)?;
                    decimal(pages)?;
                }
                Some(_) => {}
            }
        }
        Some(parsed)
    }

    /// Pages on each node, in the line's order.
    pub fn nodes(&self) -> impl Iterator<Item = (u16, u64)> + 'a {
        words(self.rest).filter_map(|word| {
            let (name, pages) = cut(word, b'=').filter(|(name, _)| is_node(name))?;
            let node = decimal(&name[1..]).filter(|&node| node < MOST_NODES)?;
            Some((u16::try_from(node).ok()?, decimal(pages)?))
        })
    }

    /// Prints a line that [`NumaLine::parse`] reads, without the counts that it skips.
    pub fn print(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{:08x} {}", self.start, String::from_utf8_lossy(self.policy));
        match self.place {
            Place::Anonymous => {}
            Place::Heap => out.push_str(" heap"),
            Place::Stack => out.push_str(" stack"),
            Place::File(path) => {
                out.push_str(" file=");
                out.push_str(&String::from_utf8_lossy(path));
            }
        }
        if self.huge {
            out.push_str(" huge");
        }
        for (node, pages) in self.nodes() {
            let _ = write!(out, " N{node}={pages}");
        }
        if let Some(size) = self.page_size {
            let _ = write!(out, " kernelpagesize_kB={}", size.as_kib());
        }
        out.push('\n');
    }

    /// Whether the mapping is worth keeping on its own; see [`NumaMaps::mappings`].
    fn matters(&self, resident: Bytes) -> bool {
        self.huge
            || self.place.is_shared_memory()
            || (resident >= LARGE && !matches!(self.place, Place::File(_)))
    }
}

/// Whether `name` is `N` and a number.
fn is_node(name: &[u8]) -> bool {
    matches!(name, [b'N', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// Splits the policy off. Two policies have a space in their names (`mm/mempolicy.c:policy_modes`).
fn split_policy(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let word_end =
        |from: usize| from + text[from..].iter().position(|&b| b == b' ').unwrap_or(text.len() - from);
    let mut end = word_end(0);
    if end == 0 {
        return None;
    }
    let rest = &text[end..];
    if (&text[..end] == b"weighted" && rest.starts_with(b" interleave"))
        || (&text[..end] == b"prefer" && rest.starts_with(b" (many)"))
    {
        end = word_end(end + 1);
    }
    Some(text.split_at(end))
}

/// Undoes the octal escapes of `fs/seq_file.c:mangle_path`: `\040` is a space.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::corrupted;

    const TEXT: &[u8] = b"\
00400000 interleave:0-1 file=/opt/my\\040db/bin/db mapped=6 N0=2 N1=4 kernelpagesize_kB=4\n\
01a3d000 default heap anon=20000 dirty=20000 active=0 N0=20000 kernelpagesize_kB=4\n\
2aaaaac00000 bind:1 file=/SYSV00000000\\040(deleted) huge dirty=512 N1=512 kernelpagesize_kB=2048\n\
7f0000000000 weighted interleave:0-1 anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
7f1000000000 prefer (many):0-1 file=/dev/shm/seg\n\
7ffd00000000 default stack anon=3 dirty=3 N1=3 kernelpagesize_kB=4\n";

    fn parse(text: &[u8]) -> (NumaMaps, Log) {
        let mut log = Log::default();
        let maps = NumaMaps::parse(text, PageSize::X86, Bytes::mib(2), &mut log);
        (maps, log)
    }

    #[test]
    fn sums_each_mapping_in_its_own_page_size() {
        let (maps, log) = parse(TEXT);
        assert_eq!(log.problems(), []);
        assert_eq!((&*maps.first_policy, maps.lines), ("interleave:0-1", 6));
        assert_eq!(maps.nodes, [Bytes::kib(4 * 20_003), Bytes::kib(4 * 7 + 512 * 2048)]);
        let kept: Vec<_> = maps.mappings.iter().map(|m| (&*m.policy, &*m.file, m.huge, m.resident)).collect();
        assert_eq!(
            kept,
            [
                ("bind:1", "/SYSV00000000 (deleted)", true, Bytes::gib(1)),
                ("default", "heap", false, Bytes::kib(80_000)),
                ("prefer (many):0-1", "/dev/shm/seg", false, Bytes::ZERO),
            ]
        );
        assert_eq!(maps.mappings[0].page_size, Bytes::mib(2));
    }

    #[test]
    fn old_kernels_do_not_say_the_page_size() {
        // 2.6.32
        let (maps, _) = parse(b"2aaaaac00000 default file=/SYSV00000000\\040(deleted) huge dirty=3 N0=3\n");
        assert_eq!((maps.nodes[0], maps.mappings[0].page_size), (Bytes::mib(6), Bytes::mib(2)));
    }

    #[test]
    fn the_largest_are_kept_in_order() {
        let mut text = String::new();
        for i in 0..1000u64 {
            let pages = 20_000 + i * 7919 % 1000;
            text.push_str(&format!("{:x} default anon=1 N0={pages} kernelpagesize_kB=4\n", i << 30));
        }
        let (maps, _) = parse(text.as_bytes());
        assert_eq!((maps.mappings.len(), maps.lines), (32, 1000));
        let sizes: Vec<u64> = maps.mappings.iter().map(|m| m.resident.as_kib() / 4).collect();
        assert_eq!(sizes, (20_968..21_000).rev().collect::<Vec<_>>());
    }

    #[test]
    fn absurd_lines_are_reported() {
        let (maps, log) = parse(
            b"x default\n1000\n1000 \n1000 default N99999999=1\n1000 default N0=99999999999999999999\n\
              1000 default kernelpagesize_kB=x\n1000 default N0=18446744073709551615 N0=9 kernelpagesize_kB=4\n",
        );
        assert_eq!(log.problems().len(), 6);
        assert_eq!((maps.lines, &maps.nodes[..]), (1, &[Bytes(u64::MAX)][..]));
    }

    #[test]
    fn truncated_at_every_byte() {
        for end in 0..TEXT.len() {
            parse(&TEXT[..end]);
        }
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(b"/a\\040b\\134\\012\\9\\07\\"), b"/a b\\\n\\9\\07\\");
        assert_eq!(unescape(b"\\777\\377"), b"\\777\xff");
    }

    #[test]
    fn a_policy_has_no_blanks_around_it() {
        assert_eq!(
            NumaLine::parse(b"7f2bc7c19000 default\t N0=1").map(|line| line.policy),
            Some(&b"default"[..])
        );
        assert!(NumaLine::parse(b"7f2bc7c19000 \t N0=1").is_none());
    }

    proptest! {
        #[test]
        fn prints_each_line_that_it_reads(
            start in any::<u64>(), huge in any::<bool>(), size in proptest::option::of(1u64..1 << 30),
            policy in prop::sample::select(vec![
                "default", "bind:0", "bind=static:0-3", "prefer (many):0-1", "prefer:1", "weighted interleave:0",
                "weighted interleave=relative:0-1", "local",
            ]),
            place in "( heap| stack| file=/[!-~]{0,20})?",
            nodes in prop::collection::vec((0u16..1024, any::<u64>()), 0..4),
        ) {
            let mut text = format!("{start:08x} {policy}{place}{} dirty=3", if huge { " huge" } else { "" });
            for (node, pages) in &nodes {
                text.push_str(&format!(" N{node}={pages}"));
            }
            if let Some(size) = size {
                text.push_str(&format!(" kernelpagesize_kB={size}"));
            }
            let line = NumaLine::parse(text.as_bytes()).expect("a line");
            prop_assert_eq!((line.start, line.policy, line.huge), (start, policy.as_bytes(), huge));
            prop_assert_eq!(line.page_size, size.map(Bytes::kib));
            prop_assert_eq!(line.nodes().collect::<Vec<_>>(), nodes);
            let mut printed = String::new();
            line.print(&mut printed);
            prop_assert_eq!(printed.trim_end(), text.replace(" dirty=3", ""));
        }

        #[test]
        fn survives_hostile_input(text in corrupted(TEXT)) {
            let (maps, _) = parse(&text);
            prop_assert!(maps.mappings.len() <= 32 && maps.nodes.len() <= 1024);
        }
    }
}
