//! Files of `/proc/PID`.

use super::lists::{CONTROLLERS, MAPPINGS, PLACES, POLICIES, STATES, STATUS, STATUS_HEX, UNITS};
use super::names::Names;
use super::words::{is_decimal, is_hex, is_number, keep_words};
use super::{counters, lines};

/// `PF_KTHREAD` of `include/linux/sched.h`.
const PF_KTHREAD: u64 = 0x0020_0000;

impl Names {
    /// Redacts `stat`, and says whether it proves that the process is a kernel thread. A name may contain
    /// anything, including parentheses.
    pub(super) fn stat(&mut self, text: &str) -> (String, bool) {
        let (Some(open), Some(close)) = (text.find('('), text.rfind(')')) else {
            return (numbers(text), false);
        };
        if close < open {
            return (String::new(), false);
        }
        let (name, rest) = (&text[open + 1..close], &text[close + 1..]);
        // The state comes first; the flags are the seventh field.
        let flags = rest.split_ascii_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok());
        let kernel_thread = flags.is_some_and(|flags| flags & PF_KTHREAD != 0);
        let name = if kernel_thread { self.kernel_thread(name) } else { self.program(name) };
        let state = |word: &str| word.len() == 1 && STATES.has(word);
        let kept = keep(rest, |word| state(word) || is_number(word));
        (format!("{}({name}){kept}", numbers(&text[..open])), kernel_thread)
    }

    /// Redacts `status`: unknown lines are removed.
    pub(super) fn status(&mut self, text: &str, kernel_thread: bool) -> String {
        let mut out = String::with_capacity(text.len());
        for line in lines(text) {
            let Some((key, value)) = line.split_once(':') else { continue };
            let kept = match key {
                "Name" => {
                    let name = value.trim_start_matches('\t');
                    let name = if kernel_thread { self.kernel_thread(name) } else { self.program(name) };
                    format!("\t{name}")
                }
                "State" => keep(value, |word| STATES.has(word)),
                _ if STATUS_HEX.has(key) => keep(value, is_hex),
                _ if STATUS.has(key) => keep(value, |word| word.split(['/', ',']).all(is_number)),
                _ if counters().has(key) => keep(value, |word| is_number(word) || UNITS.has(word)),
                _ => continue,
            };
            out.push_str(key);
            out.push(':');
            out.push_str(&kept);
            out.push('\n');
        }
        out
    }

    /// Redacts a line of `cgroup`: hierarchy, controllers, path.
    pub(super) fn cgroup(&mut self, line: &str) -> String {
        match line.splitn(3, ':').collect::<Vec<_>>()[..] {
            [id, controllers, path] if is_decimal(id) => {
                let known = |name: &&str| name.is_empty() || CONTROLLERS.has(name);
                let controllers: Vec<&str> = controllers
                    .split(',')
                    .map(|name| if known(&name) { name } else { "name=redacted" })
                    .collect();
                format!("{id}:{}:{}", controllers.join(","), self.group_path(path))
            }
            _ => String::new(),
        }
    }

    /// Redacts a line of `numa_maps`: address, policy, then words, of which `file=` is a name.
    pub(super) fn numa_mapping(&mut self, line: &str) -> String {
        let mut out = String::with_capacity(line.len());
        for (i, word) in line.split(' ').enumerate() {
            if i > 0 {
                out.push(' ');
            }
            match word.strip_prefix("file=") {
                Some(file) => {
                    out.push_str("file=");
                    out.push_str(&self.mapped_file(file));
                }
                None if i == 0 && is_hex(word) => out.push_str(word),
                None if i == 1 => out.push_str(&keep_words(word, &[&POLICIES], self)),
                None => out.push_str(&keep_words(word, &[&MAPPINGS], self)),
            }
        }
        out
    }

    /// Redacts a line of the table of files that only processes hold: seven words that are no names, and a
    /// name. A line of another form becomes an empty one.
    pub(super) fn unlinked(&mut self, line: &str) -> String {
        let count = |words: (&str, &str)| matches!(words.0, "denied" | "late") && is_decimal(words.1);
        if line.split_once(' ').is_some_and(count) {
            return line.to_owned();
        }
        let [pid, place, kind, device, numbers @ .., name] = &line.splitn(8, ' ').collect::<Vec<_>>()[..]
        else {
            return String::new();
        };
        let range = |text: &str| text.split('-').all(is_hex);
        let placed = place.strip_prefix("fd/").is_some_and(is_decimal)
            || place.strip_prefix("map_files/").is_some_and(range);
        let known = is_decimal(pid)
            && placed
            && matches!(*kind, "tmpfs" | "hugetlbfs")
            && device.split(':').all(is_hex)
            && numbers.len() == 3
            && numbers.iter().all(|number| is_decimal(number));
        if !known {
            return String::new();
        }
        format!("{}{}", &line[..line.len() - name.len()], self.mapped_file(name))
    }

    /// Redacts a line of `maps` or the head of `smaps_rollup`: addresses, permissions, offset, device, inode,
    /// file. A line of another form becomes an empty one, so that the number of lines stays the same.
    pub(super) fn mapping(&mut self, line: &str) -> String {
        let mut rest = line;
        let mut columns = Vec::new();
        for _ in 0..5 {
            let end = rest.find(' ').unwrap_or(rest.len());
            columns.push(&rest[..end]);
            rest = rest[end..].trim_start_matches(' ');
        }
        let hex = |text: &str| text.split(['-', ':']).all(is_hex);
        let [range, permissions, offset, device, inode] = columns[..] else { return String::new() };
        let known = permissions.bytes().all(|b| b"rwxps-".contains(&b));
        if !(hex(range) && known && is_hex(offset) && hex(device) && is_decimal(inode)) {
            return String::new();
        }
        let file = match rest {
            "" => String::new(),
            place if PLACES.has(place) => place.to_owned(),
            place if place.starts_with("[anon:") => format!("[anon:{}]", self.token("name", place)),
            place if place.starts_with('[') => format!("[{}]", self.token("name", place)),
            file => self.mapped_file(file),
        };
        let numbers = &line[..line.len() - rest.len()];
        if file.is_empty() { numbers.trim_end().to_owned() } else { format!("{numbers}{file}") }
    }
}

/// Keeps the numbers of a text, with the white space between them.
pub(super) fn numbers(text: &str) -> String {
    keep(text, is_number)
}

/// Keeps the words for which `passes` is true and all white space; other words become `redacted`.
fn keep(text: &str, passes: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| c.is_ascii_whitespace()) {
        let word = piece.trim_end_matches(|c: char| c.is_ascii_whitespace());
        out.push_str(if word.is_empty() || passes(word) { word } else { "redacted" });
        out.push_str(&piece[word.len()..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_a_held_file_is_hidden() {
        let mut names = Names::default();
        for (line, kept) in [
            (
                "12 fd/5 tmpfs 00:01 7 9 9 /memfd:acme db (deleted)",
                "12 fd/5 tmpfs 00:01 7 9 9 /memfd:shm1 (deleted)",
            ),
            (
                "12 map_files/7f00-7f01 hugetlbfs 00:1b 7 9 9 /mnt/acme (deleted)",
                "12 map_files/7f00-7f01 hugetlbfs 00:1b 7 9 9 /file1 (deleted)",
            ),
            ("denied 3", "denied 3"),
            ("denied acme", ""),
            ("12 fd/acme tmpfs 00:01 7 9 9 /a", ""),
            ("12 fd/5 acmefs 00:01 7 9 9 /a", ""),
        ] {
            assert_eq!(names.unlinked(line), kept);
        }
    }

    #[test]
    fn only_the_flag_of_stat_proves_a_kernel_thread() {
        let mut names = Names::default();
        let mut stat =
            |name: &str, flags: u64| names.stat(&format!("42 ({name}) S 1 42 42 0 -1 {flags} 7 0\n"));
        assert_eq!(stat("acme) (billing", 0), ("42 (program1) S 1 42 42 0 -1 0 7 0\n".into(), false));
        assert_eq!(stat("rcu_acme", 0).0, "42 (program2) S 1 42 42 0 -1 0 7 0\n");
        assert_eq!(stat("acme-wq", 0x0020_8040), ("42 (kthread1) S 1 42 42 0 -1 2129984 7 0\n".into(), true));
        assert_eq!(stat("kswapd0", 0x0020_8040).0, "42 (kswapd0) S 1 42 42 0 -1 2129984 7 0\n");
        assert_eq!(names.stat("acme (x) acme 1"), ("redacted (program3) redacted 1".into(), false));
    }

    #[test]
    fn status_keeps_numbers_of_known_lines() {
        let mut names = Names::default();
        let text = "Name:\tacme x\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\nVmRSS:\t    1808 kB\nVmSize:\tacme kB\n\
                    CapEff:\t000001ffffffffff\nSpeculation:\tacme\nThreads:\t1\nMems_allowed_list:\t0-1\nSigQ:\t0/2791\n";
        assert_eq!(
            names.status(text, false),
            "Name:\tprogram1\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\nVmRSS:\t    1808 kB\nVmSize:\tredacted kB\n\
             CapEff:\t000001ffffffffff\nThreads:\t1\nMems_allowed_list:\t0-1\nSigQ:\t0/2791\n"
        );
    }

    #[test]
    fn mappings_keep_numbers_and_places() {
        let mut names = Names::default();
        for line in [
            "7f00 default file=/SYSV40000001\\040(deleted) huge dirty=512 N0=256 N1=256 kernelpagesize_kB=2048",
            "7f00 interleave:0-1 heap anon=7 mapmax=3",
            "7f00 prefer=static:1",
        ] {
            assert_eq!(names.numa_mapping(line), line);
        }
        assert_eq!(
            names.numa_mapping("7f00 acme:0 file=/opt/acme/x acme=1 N0=acme"),
            "7f00 word1:0 file=/file1 word1=1 N0=word1"
        );
        for (line, kept) in [
            ("7f00-7f01 r-xp 00000000 fd:00 12   /opt/acme/x y", "7f00-7f01 r-xp 00000000 fd:00 12   /file2"),
            ("7f00-7f01 rw-p 0 00:00 0 [heap]", "7f00-7f01 rw-p 0 00:00 0 [heap]"),
            ("7f00-7f01 rw-p 0 00:00 0 [anon:acme]", "7f00-7f01 rw-p 0 00:00 0 [anon:name1]"),
            ("7f00-7f01 rw-p 0 00:00 0", "7f00-7f01 rw-p 0 00:00 0"),
            ("acme", ""),
        ] {
            assert_eq!(names.mapping(line), kept);
        }
        assert_eq!(names.cgroup("4:memory,acme:/acme.slice"), "4:memory,name=redacted:/unit1.slice");
        assert_eq!(names.cgroup("1:name=systemd:/"), "1:name=systemd:/");
    }
}
