//! Files of one process as people paste them: `/proc/PID/status`, `/proc/PID/smaps`, `pmap -X`.
//!
//! | lines | become |
//! |---|---|
//! | `Name:`, then `Pid:`, `Vm…: 5 kB`, `Rss…`, `HugetlbPages`, `Threads` | `proc/PID/status` |
//! | `7f00-7f10 rw-p …`, then `Size:`, `Rss:`, `Swap:`, … of each mapping | `proc/PID/smaps_rollup`, their sums |
//! | `1234: /usr/bin/java`, the head of `pmap -X`, and its sums below `====` | `proc/PID/smaps_rollup` |
//!
//! A process whose number is not in the text is process 1.

use std::collections::BTreeMap;

use super::MemorySource;

/// Fields of `smaps` that add up over mappings.
#[rustfmt::skip]
pub(crate) const SUMS: [&str; 22] = [
    "Rss", "Pss", "Pss_Dirty", "Pss_Anon", "Pss_File", "Pss_Shmem", "Shared_Clean", "Shared_Dirty",
    "Private_Clean", "Private_Dirty", "Referenced", "Anonymous", "KSM", "LazyFree", "AnonHugePages",
    "ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb", "Swap", "SwapPss", "Locked",
];
/// Fields of `smaps` that do not.
const OTHERS: [&str; 6] =
    ["Size", "KernelPageSize", "MMUPageSize", "THPeligible", "ProtectionKey", "VmFlags"];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Open {
    #[default]
    None,
    Status,
    Smaps,
    Pmap,
}

/// Reads the lines of a text that are of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessFiles {
    open: Open,
    /// The number on a prompt or of `pmap`, and the name.
    pid: Option<u32>,
    name: Option<String>,
    status: Vec<String>,
    sums: BTreeMap<String, u64>,
    /// Columns of `pmap`, and whether its sums come next.
    columns: Vec<String>,
    totals: bool,
}

impl ProcessFiles {
    /// Takes a line if it is of a process; `pid` is that of the file which the text named last.
    pub(crate) fn take(&mut self, line: &str, pid: Option<u32>) -> bool {
        let words: Vec<&str> = line.split_ascii_whitespace().take(64).collect();
        let taken = self.begins(&words) || self.goes_on(line, &words);
        if taken {
            self.pid = self.pid.or(pid);
        } else {
            self.open = Open::None;
        }
        taken
    }

    fn begins(&mut self, words: &[&str]) -> bool {
        match words {
            ["Name:", name] if self.status.is_empty() => {
                self.name = Some((*name).to_owned());
                self.open = Open::Status;
            }
            [range, permissions, ..]
                if is_mapping(range, permissions) && words.len() >= 5 && !words.contains(&"[rollup]") =>
            {
                self.open = Open::Smaps;
            }
            ["Address", "Perm", "Offset", "Device", "Inode", "Size", rest @ ..] if rest.contains(&"Rss") => {
                self.columns = words.iter().map(|word| (*word).to_owned()).collect();
                self.open = Open::Pmap;
            }
            [pid, command, ..] if pid.ends_with(':') && command.starts_with('/') && pid.len() > 1 => {
                let Ok(pid) = pid.trim_end_matches(':').parse() else { return false };
                self.pid = Some(pid);
                self.name = command.rsplit('/').next().map(str::to_owned);
            }
            _ => return false,
        }
        true
    }

    fn goes_on(&mut self, line: &str, words: &[&str]) -> bool {
        match (self.open, words) {
            (Open::Status, [field, value, ..]) if field.ends_with(':') && of_status(field) => {
                if *field == "Pid:" {
                    self.pid = value.parse().ok().or(self.pid);
                }
                self.status.push(line.trim().to_owned());
                true
            }
            (Open::Smaps, [field, rest @ ..]) if field.ends_with(':') => {
                let field = field.trim_end_matches(':');
                let kib = rest.first().and_then(|value| value.parse::<u64>().ok());
                match kib.filter(|_| SUMS.contains(&field)) {
                    Some(kib) => self.add(field, kib),
                    None => return OTHERS.contains(&field),
                }
                true
            }
            // A mapping's name that a mail program wrapped.
            (Open::Smaps, [path, ..]) => path.starts_with('/') || path.starts_with('['),
            (Open::Pmap, words) if words.iter().all(|word| word.bytes().all(|b| b == b'=')) => {
                self.totals = true;
                true
            }
            (Open::Pmap, [.., "KB"]) if self.totals => {
                // The sums begin with the column Size.
                let columns =
                    self.columns.iter().skip_while(|column| *column != "Size").cloned().collect::<Vec<_>>();
                for (column, value) in columns.iter().zip(words) {
                    if let Some(kib) = value.parse().ok().filter(|_| SUMS.contains(&column.as_str())) {
                        self.add(column, kib);
                    }
                }
                self.open = Open::None;
                true
            }
            (Open::Pmap, [address, ..]) => {
                address.len() >= 8 && address.bytes().all(|b| b.is_ascii_hexdigit())
            }
            _ => false,
        }
    }

    fn add(&mut self, field: &str, kib: u64) {
        let sum = self.sums.entry(field.to_owned()).or_default();
        *sum = sum.saturating_add(kib);
    }

    /// Adds the files.
    pub(crate) fn finish(self, source: &mut MemorySource) {
        if self.status.is_empty() && self.sums.is_empty() {
            return;
        }
        let pid = self.pid.filter(|pid| *pid > 0).unwrap_or(1);
        let name: String = (self.name.unwrap_or_else(|| "process".to_owned()).chars())
            .filter(|c| !c.is_control() && !matches!(c, '(' | ')'))
            .take(15)
            .collect();
        let stat = format!("{pid} ({name}) S 1{}\n", " 0".repeat(40));
        source.insert(format!("proc/{pid}/stat"), stat);
        // Mappings alone say what `status` would.
        let sums = || {
            let fields = [("VmRSS", "Rss"), ("RssAnon", "Anonymous"), ("VmSwap", "Swap")];
            let line = |(field, sum): (&str, &str)| Some(format!("{field}:\t{} kB", self.sums.get(sum)?));
            fields.into_iter().filter_map(line).collect::<Vec<_>>()
        };
        let status = if self.status.is_empty() { sums() } else { self.status.clone() };
        if !status.is_empty() {
            let lines = status.join("\n");
            source.insert(format!("proc/{pid}/status"), format!("Name:\t{name}\n{lines}\n"));
        }
        if !self.sums.is_empty() {
            let lines: String = self.sums.iter().map(|(field, kib)| format!("{field}: {kib} kB\n")).collect();
            let path = format!("proc/{pid}/smaps_rollup");
            source.insert(path, format!("00000000-ffffffff ---p 00000000 00:00 0 [rollup]\n{lines}"));
        }
    }
}

/// Whether the first two words are a range of addresses and its permissions.
fn is_mapping(range: &str, permissions: &str) -> bool {
    let hex = |text: &str| (4..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    range.split_once('-').is_some_and(|(first, last)| hex(first) && hex(last))
        && permissions.len() == 4
        && permissions.bytes().all(|b| b"rwxsp-".contains(&b))
}

fn of_status(field: &str) -> bool {
    const FIELDS: [&str; 9] =
        ["Pid:", "PPid:", "Uid:", "Threads:", "HugetlbPages:", "THP_enabled:", "State:", "Umask:", "Tgid:"];
    FIELDS.contains(&field) || field.starts_with("Vm") || field.starts_with("Rss")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Vec<(String, String)> {
        let (mut files, mut source) = (ProcessFiles::default(), MemorySource::default());
        text.lines().for_each(|line| assert!(files.take(line, None), "{line}"));
        files.finish(&mut source);
        let text = |contents: &Vec<u8>| String::from_utf8_lossy(contents).into_owned();
        source
            .files()
            .filter_map(|(path, contents)| Some((path.to_owned(), text(contents.as_ref().ok()?))))
            .collect()
    }

    #[test]
    fn mappings_alone_have_a_status() {
        let files =
            files("00400000-00500000 rw-p 00000000 00:00 0\nRss: 20 kB\nAnonymous: 15 kB\nSwap: 7 kB\n");
        let status = &files.iter().find(|(path, _)| path == "proc/1/status").expect("its status").1;
        assert_eq!(status, "Name:\tprocess\nVmRSS:\t20 kB\nRssAnon:\t15 kB\nVmSwap:\t7 kB\n");
    }

    #[test]
    fn a_status_alone() {
        let files = files("Name:\tpostgres\nUmask:\t0077\nPid:\t77\nVmRSS:\t  1234 kB\nVmSwap:\t 5 kB\n");
        let status = files.iter().find(|(path, _)| path == "proc/77/status").expect("its status");
        assert_eq!(status.1, "Name:\tpostgres\nUmask:\t0077\nPid:\t77\nVmRSS:\t  1234 kB\nVmSwap:\t 5 kB\n");
        assert!(files.iter().any(|(path, _)| path == "proc/77/stat"));
    }

    #[test]
    fn mappings_add_up() {
        let files = files(
            "7f8ed4648000-7f90d4648000 rw-s 00000000 00:01 2055 /dev/zero (deleted)\nSize: 8388608 kB\nRss: 100 kB\nSwap: 7 kB\n\
             VmFlags: rd wr\n00400000-00500000 r-xp 00000000 08:01 5 /bin/a\nRss: 20 kB\n",
        );
        let rollup = &files.iter().find(|(path, _)| path.ends_with("smaps_rollup")).expect("the sums").1;
        assert!(rollup.ends_with("[rollup]\nRss: 120 kB\nSwap: 7 kB\n"), "{rollup}");
    }

    #[test]
    fn sums_of_pmap() {
        let files = files(
            "4321:   /usr/bin/java -Xmx1g\n         Address Perm   Offset Device    Inode   Size   Rss   Pss Swap Mapping\n\
             5591a7a00000 r-xp 00000000  08:01   131    832   800   800    0 bash\n\
             =====  ===== ===== ====\n 14840  9000  8000    3 KB\n",
        );
        let (path, rollup) = files.iter().find(|(path, _)| path.ends_with("smaps_rollup")).expect("the sums");
        assert_eq!(path, "proc/4321/smaps_rollup");
        assert!(rollup.ends_with("Pss: 8000 kB\nRss: 9000 kB\nSwap: 3 kB\n"), "{rollup}");
    }

    #[test]
    fn other_lines_are_of_no_process() {
        for line in ["Name: x y z w", "MemTotal: 5 kB", "Rss: 5 kB", "a: /b", "", "deadbeef-x rw-p"] {
            assert!(!ProcessFiles::default().take(line, None), "{line}");
        }
    }
}
