//! Tables that `vmstat`, `sar`, `sadf -d` and PCP's `pmstat` and `pmrep :vmstat` print, as samples of the
//! kernel's files.
//!
//! Both print rates, the kernel counts. A row's rate holds for the time since the row before; the counters
//! start at 0, so that their differences are meaningful and their values are not.
//!
//! | column | becomes |
//! |---|---|
//! | `si`, `so` of vmstat (KiB/s), `pswpin/s`, `pswpout/s` of sar | `pswpin`, `pswpout`, pages of 4 KiB |
//! | `bi`, `bo`, `pgpgin/s`, `pgpgout/s` (KiB/s) | `pgpgin`, `pgpgout` |
//! | `fault/s`, `majflt/s`, `pgfree/s`, `pgscank/s`, `pgscand/s`, `pgsteal/s` | `pgfault`, `pgmajfault`, `pgfree`, `pgscan_kswapd`, `pgscan_direct`, `pgsteal_kswapd` |
//! | `free`, `buff`, `cache`, `kbmemfree`, `kbavail`, `kbbuffers`, `kbcached`, … | lines of `proc/meminfo` |
//! | `kbmemused` with `%memused`, `kbswpused` with `kbswpfree` | `MemTotal`, `SwapTotal` |
//! | `us` `sy` `id` `wa` `st`, `%user` … `%idle` of all CPUs; `r`, `b` | `proc/stat` |
//!
//! | `%smem-10` … `%smem`, `%fmem` of `sar -q ALL`, and those of disks and CPUs | `proc/pressure` |
//! | `usr sys idl wai` and `in out` of dstat | `proc/stat`, `pswpin`, `pswpout` |
//! | `%util` of iostat and `sar -d` | the time in flight in `proc/diskstats` |
//! | the largest `IO>` of iotop | `proc/pressure/io`: at least one task waits for a disk that share of the time |
//!
//! The first row of `vmstat` is the mean since boot: it gives levels only, and the time from which others
//! count. Times are those of sar's rows; vmstat's rows are a second apart unless the command before them says
//! otherwise.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use lotsfree_kernel_files::File as _;
use lotsfree_kernel_files::file::pressure::{Psi, Stall};

use super::listing::Busy;
use super::paste::date;
use super::samples::thin;
use super::{MOST_SAMPLES, MemorySource};

/// At most this many rows are read.
const MOST_ROWS: usize = 1 << 16;
/// At most this many words of a line are looked at.
const MOST_WORDS: usize = 64;
/// Page size in KiB by which `si` and `so` are divided.
const PAGE_KIB: f64 = 4.0;
/// Ticks of `proc/PID/stat` in a second.
const TICKS_PER_SECOND: f64 = 100.0;
/// Ticks of `proc/stat` in a second, with a share of 1.
const TICKS: f64 = 10_000.0;

/// Rates in counters per second.
const RATES: [(&str, &str, f64); 12] = [
    ("si", "pswpin", 1.0 / PAGE_KIB),
    ("so", "pswpout", 1.0 / PAGE_KIB),
    ("bi", "pgpgin", 1.0),
    ("bo", "pgpgout", 1.0),
    ("pswpin/s", "pswpin", 1.0),
    ("pswpout/s", "pswpout", 1.0),
    ("pgpgin/s", "pgpgin", 1.0),
    ("pgpgout/s", "pgpgout", 1.0),
    ("fault/s", "pgfault", 1.0),
    ("majflt/s", "pgmajfault", 1.0),
    ("pgscank/s", "pgscan_kswapd", 1.0),
    ("pgscand/s", "pgscan_direct", 1.0),
];
/// More rates of sar, whose counters are sums on newer kernels.
const MORE_RATES: [(&str, &str, f64); 2] =
    [("pgfree/s", "pgfree", 1.0), ("pgsteal/s", "pgsteal_kswapd", 1.0)];

/// Levels in KiB.
const LEVELS: [(&str, &str); 17] = [
    ("free", "MemFree"),
    ("buff", "Buffers"),
    ("cache", "Cached"),
    ("kbmemfree", "MemFree"),
    ("kbavail", "MemAvailable"),
    ("kbbuffers", "Buffers"),
    ("kbcached", "Cached"),
    ("kbcommit", "Committed_AS"),
    ("kbactive", "Active"),
    ("kbinact", "Inactive"),
    ("kbdirty", "Dirty"),
    ("kbanonpg", "AnonPages"),
    ("kbslab", "Slab"),
    ("kbkstack", "KernelStack"),
    ("kbpgtbl", "PageTables"),
    ("kbswpfree", "SwapFree"),
    ("kbswpcad", "SwapCached"),
];

/// What the rows of one time say.
#[derive(Clone, Default)]
struct Row {
    rates: BTreeMap<&'static str, f64>,
    levels: BTreeMap<&'static str, u64>,
    /// Shares of user, system, idle, iowait, steal.
    cpu: Option<[f64; 5]>,
    running: Option<u64>,
    blocked: Option<u64>,
    /// Stalls for memory, disks and CPUs, in per cent.
    stalls: [Option<Stalls>; 3],
}

impl Row {
    /// Whether it tells what happened since the row before, and not levels alone.
    fn flows(&self) -> bool {
        !self.rates.is_empty() || self.cpu.is_some() || self.stalls.iter().any(Option::is_some)
    }
}

/// Stalls as `sar -q ALL` prints them: means of 10, 60 and 300 s, and of the interval; of some tasks and of
/// all.
#[derive(Clone, Copy, Default)]
struct Stalls {
    some: [f64; 4],
    full: Option<[f64; 4]>,
}

/// The files of pressure, and how sar names their columns.
const PRESSURE: [(&str, &str); 3] = [("memory", "mem"), ("io", "io"), ("cpu", "cpu")];

/// Reads the tables of a text.
#[derive(Default)]
pub(crate) struct Tables {
    rows: BTreeMap<u64, Row>,
    columns: Vec<String>,
    /// Whether the columns are of `vmstat`, and how many of its rows were read.
    vmstat: Option<usize>,
    /// Whether the columns are of `sadf -d`.
    sadf: bool,
    /// Which groups of dstat's columns are those of the CPUs and of paging.
    dstat: Option<(usize, Option<usize>)>,
    /// Whether the rows are of `iotop`.
    iotop: bool,
    /// Seconds between the rows of vmstat.
    interval: u64,
    /// Time of the last row of vmstat, and the last time of day of sar with the days before it.
    at: u64,
    day: (u64, u64),
}

impl Tables {
    /// Notes the interval of a command line (`vmstat 5`, `vmstat -w 10 3`).
    pub(crate) fn command(&mut self, words: &[&str]) {
        if let Some(at) = words.iter().position(|word| *word == "vmstat") {
            let number = words[at + 1..].iter().find_map(|word| word.parse::<u64>().ok());
            self.interval = number.filter(|seconds| (1..=86_400).contains(seconds)).unwrap_or(1);
        }
    }

    /// Adds what the CPUs did in the last second, as shares of user, system, idle, iowait and steal.
    pub(crate) fn cpu(&mut self, shares: [f64; 5]) {
        self.at += 1;
        self.rows.entry(self.at).or_default().cpu = Some(shares);
    }

    /// Takes a line if it is a head or a row of a table.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        if line.contains(';') {
            return self.sadf(line);
        }
        if self.iotop(line) {
            return true;
        }
        if line.contains('|') {
            return self.dstat(line);
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(MOST_WORDS).collect();
        self.head(&words) || self.row(&words)
    }

    /// Totals, columns and rows of `iotop`: `882 be/4 root 499.57 K/s 1604.78 K/s 0.00 % 98.60 %
    /// [jbd2/sda1-8]`.
    fn iotop(&mut self, line: &str) -> bool {
        if line.trim_start().starts_with("Total DISK READ") {
            self.at += 1;
            self.iotop = true;
            return true;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(MOST_WORDS).collect();
        if words.contains(&"DISK") && words.contains(&"READ") {
            return self.iotop;
        }
        let [tid, priority, _, rest @ ..] = &words[..] else { return false };
        if !self.iotop || !tid.bytes().all(|b| b.is_ascii_digit()) || !priority.contains('/') {
            return false;
        }
        let percent = |at: usize| match rest[at].strip_suffix('%')? {
            "" => number(rest[at.checked_sub(1)?]),
            figure => number(figure),
        };
        if let Some(share) = (0..rest.len()).filter_map(percent).next_back().filter(|share| *share <= 100.0) {
            let row = self.rows.entry(self.at).or_default();
            let before = row.stalls[1].map_or(0.0, |stalls| stalls.some[0]);
            row.stalls[1] = Some(Stalls { some: [share.max(before); 4], full: None });
        }
        true
    }

    /// A head or a row of `dstat`: groups of columns between bars, of which those of the CPUs and of paging,
    /// in bytes a second, are read.
    fn dstat(&mut self, line: &str) -> bool {
        let groups: Vec<Vec<&str>> =
            line.split('|').take(16).map(|group| group.split_ascii_whitespace().take(16).collect()).collect();
        let at = |columns: &[&str]| groups.iter().position(|group| group.starts_with(columns));
        if let Some(cpu) = at(&["usr", "sys", "idl", "wai"]) {
            self.dstat = Some((cpu, at(&["in", "out"])));
            return true;
        }
        let Some((cpu, paging)) = self.dstat else { return false };
        // 3989k, 18M, 120B.
        let value = |word: &&str| {
            let (digits, factor) = match word.char_indices().last()? {
                (end, 'B') => (&word[..end], 1.0),
                (end, 'k') => (&word[..end], 1024.0),
                (end, 'M') => (&word[..end], 1024.0 * 1024.0),
                (end, 'G') => (&word[..end], 1024.0 * 1024.0 * 1024.0),
                _ => (*word, 1.0),
            };
            let number: f64 = digits.parse().ok().filter(|number: &f64| (0.0..1e15).contains(number))?;
            Some(number * factor)
        };
        let values = |group: usize| -> Option<Vec<f64>> { groups.get(group)?.iter().map(value).collect() };
        let Some(cpu) = values(cpu).filter(|cpu| cpu.len() >= 4 && self.rows.len() < MOST_ROWS) else {
            return false;
        };
        self.at += 1;
        let row = self.rows.entry(self.at).or_default();
        let steal = if cpu.len() == 5 { cpu[4] } else { 0.0 };
        row.cpu = Some([cpu[0], cpu[1], cpu[2], cpu[3], steal].map(|share| share / 100.0));
        if let Some([back, out]) = paging.and_then(values).as_deref() {
            row.rates.extend([("pswpin", back / 1024.0 / PAGE_KIB), ("pswpout", out / 1024.0 / PAGE_KIB)]);
        }
        true
    }

    /// A head or a row of `sadf -d`: host, interval and time, and then what sar prints.
    fn sadf(&mut self, line: &str) -> bool {
        let fields: Vec<&str> = line.trim().split(';').take(MOST_WORDS).collect();
        let [first, _, time, values @ ..] = fields.as_slice() else { return false };
        if first.trim_start_matches(['#', ' ']) == "hostname" {
            self.columns = values.iter().map(|column| (*column).to_owned()).collect();
            (self.vmstat, self.sadf) = (None, true);
            return true;
        }
        let at = time.parse().ok().or_else(|| date(time).filter(|at| *at > 0.0).map(|at| at as u64));
        let Some(at) =
            at.filter(|_| self.sadf && values.len() == self.columns.len() && self.rows.len() < MOST_ROWS)
        else {
            return false;
        };
        // All CPUs are -1.
        if self.columns.first().is_none_or(|column| column != "CPU") || values.first() == Some(&"-1") {
            self.values(at, &values.iter().map(|value| number(value)).collect::<Vec<_>>(), true);
        }
        true
    }

    fn head(&mut self, words: &[&str]) -> bool {
        // `procs -----------memory---------- …` stands above vmstat's columns.
        if words.first() == Some(&"procs") && words.iter().any(|word| word.contains("--memory")) {
            return true;
        }
        if words.len() >= 8 && ["free", "si", "so", "us", "id"].iter().all(|column| words.contains(column)) {
            // `1 min` of pmstat is one column.
            let words = if words.starts_with(&["1", "min"]) { &words[1..] } else { words };
            self.columns = words.iter().map(|word| (*word).to_owned()).collect();
            // The heading comes again every so many rows.
            self.vmstat = self.vmstat.or(Some(0));
            self.sadf = false;
            return true;
        }
        let (time, rest) = time_of(words);
        let known = rest.iter().filter(|word| column_of_sar(word)).count();
        let sars = time.is_some() && known >= 2
            || known >= 3 && words.iter().all(|word| word.contains(['k', '%', '/']));
        if sars && rest.iter().all(|word| word.parse::<f64>().is_err()) {
            self.columns = rest.iter().map(|word| (*word).to_owned()).collect();
            (self.vmstat, self.sadf) = (None, false);
            return true;
        }
        false
    }

    fn row(&mut self, words: &[&str]) -> bool {
        if self.columns.is_empty() || self.sadf || self.rows.len() >= MOST_ROWS {
            return false;
        }
        if let Some(count) = self.vmstat {
            // Rows of pmrep begin with the time, its heads do not. N/A and ? are what PCP does not know.
            let (time, words) = match time_of(words) {
                (Some(time), rest) if rest.len() == self.columns.len() => (Some(time), rest),
                _ => (None, words),
            };
            let value = |word: &&str| match *word {
                "N/A" | "?" => Some(None),
                word => number(word).map(Some),
            };
            let values: Vec<Option<f64>> = words.iter().map_while(value).collect();
            if values.len() + 3 < self.columns.len() || values.len() < 8 {
                return false;
            }
            if values.iter().flatten().count() >= 4 {
                self.vmstat = Some(count + 1);
                self.at = (self.at + self.interval.max(1)).max(time.unwrap_or(0));
                self.values(self.at, &values, count > 0);
            }
            return true;
        }
        let (Some(time), rest) = time_of(words) else { return false };
        if rest.len() + 1 < self.columns.len() || rest.len() < 2 {
            return false;
        }
        let of_one_cpu = self.columns.first().is_some_and(|column| column == "CPU") && rest[0] != "all";
        let values: Vec<Option<f64>> = rest.iter().map(|word| number(word)).collect();
        if of_one_cpu || values.iter().flatten().count() < 2 {
            return of_one_cpu;
        }
        let (days, last) = self.day;
        let days = if time + 43_200 < last { days + 1 } else { days };
        self.day = (days, time);
        // A day is before the first, so that the first row has an interval.
        self.values((days + 1) * 86_400 + time, &values, true);
        true
    }

    /// Adds the values of a row, `flows` with its rates.
    fn values(&mut self, at: u64, values: &[Option<f64>], flows: bool) {
        let columns = &self.columns;
        let value = |name: &str| -> Option<f64> {
            let index = columns.iter().position(|column| column == name)?;
            values.get(index).copied().flatten().filter(|value| value.is_finite() && *value >= 0.0)
        };
        let row = self.rows.entry(at).or_default();
        for (column, counter, factor) in RATES.into_iter().chain(MORE_RATES).filter(|_| flows) {
            if let Some(rate) = value(column) {
                row.rates.insert(counter, rate * factor);
            }
        }
        for (column, field) in LEVELS {
            // Old files have no such figures, and new programs print them as 0.
            let absent =
                |level: f64| level == 0.0 && ["kbanonpg", "kbslab", "kbactive", "kbinact"].contains(&column);
            if let Some(level) = value(column).filter(|level| !absent(*level)) {
                row.levels.insert(field, level as u64);
            }
        }
        if let (Some(used), Some(percent)) = (value("kbmemused"), value("%memused").filter(|p| *p >= 1.0)) {
            row.levels.insert("MemTotal", (used * 100.0 / percent) as u64);
        }
        if let (Some(free), Some(used)) = (value("kbswpfree"), value("kbswpused")) {
            row.levels.insert("SwapTotal", (free + used) as u64);
        }
        if flows {
            let of = |names: &[&str]| names.iter().filter_map(|name| value(name)).sum::<f64>() / 100.0;
            let shares = [
                of(&["us", "%user", "%usr", "%nice"]),
                of(&["sy", "%system", "%sys", "%irq", "%soft"]),
                of(&["id", "%idle"]),
                of(&["wa", "%iowait"]),
                of(&["st", "%steal"]),
            ];
            let known = value("id").or(value("%idle")).is_some();
            let shares = match (value("wa").or(value("%iowait")), value("b")) {
                // Before 2.5.41 the kernel counts idle time in which tasks wait for a disk as idle.
                (None, Some(blocked)) if blocked > 0.0 => [shares[0], shares[1], 0.0, shares[2], shares[4]],
                _ => shares,
            };
            row.cpu = known.then_some(shares).or(row.cpu);
        }
        for (stalls, (_, name)) in row.stalls.iter_mut().zip(PRESSURE) {
            let of = |who: &str| -> Option<[f64; 4]> {
                let over = |period: &str| value(&format!("%{who}{name}{period}"));
                Some([over("-10")?, over("-60")?, over("-300")?, over("")?])
            };
            *stalls = of("s").map(|some| Stalls { some, full: of("f") }).or(*stalls);
        }
        row.running = value("r").or(value("runq-sz")).map(|tasks| tasks as u64).or(row.running);
        row.blocked = value("b").or(value("blocked")).map(|tasks| tasks as u64).or(row.blocked);
    }

    /// The samples, each over what is the same for all; none if there was no table. With `levels` false the
    /// levels of the tables are left out, because the text has the kernel's own.
    pub(crate) fn samples(
        self,
        common: MemorySource,
        levels: bool,
        busy: &[Busy],
        disks: &BTreeMap<String, f64>,
        earlier: &[(String, String)],
    ) -> Vec<(f64, MemorySource)> {
        let mut rows: Vec<(u64, Row)> = self.rows.into_iter().collect();
        // A list of processes without the head of top, or of devices without that of iostat.
        if rows.is_empty() && !(busy.is_empty() && disks.is_empty() && earlier.is_empty()) {
            rows.push((1, Row::default()));
        }
        let step = match rows.as_slice() {
            [(first, _), (second, _), ..] => second - first,
            _ => 1,
        };
        let mut start = rows.first().map_or(0, |(first, _)| first.saturating_sub(step));
        let common = Arc::new(common);
        let mut counters: BTreeMap<&'static str, f64> = BTreeMap::new();
        let mut ticks = [0.0; 5];
        // Seconds that some and all tasks stood still, for each file of pressure.
        let mut stalled = [[0.0; 2]; 3];
        let mut samples = Vec::new();
        let flows = !busy.is_empty()
            || !disks.is_empty()
            || !earlier.is_empty()
            || rows.iter().any(|(_, row)| row.flows());
        for (index, (at, row)) in rows.iter().enumerate() {
            let before = match index {
                0 => at.saturating_sub(step),
                index => rows[index - 1].0,
            };
            if index == 0 && flows {
                for (_, row) in &rows {
                    counters.extend(row.rates.keys().map(|counter| (*counter, 0.0)));
                }
                let cpu = row.cpu.or_else(|| rows.iter().find_map(|(_, row)| row.cpu));
                let mut first = source(&Row { cpu, ..row.clone() }, &counters, ticks, levels);
                busy.iter().for_each(|busy| first.insert(format!("proc/{}/stat", busy.pid), busy.stat(0)));
                if !disks.is_empty() {
                    first.insert("proc/diskstats", diskstats(disks, 0.0));
                }
                for (path, text) in earlier {
                    first.insert(path.clone(), text.clone());
                }
                pressure(row, &stalled, &mut first);
                // The first row of vmstat is the mean since boot: it begins the time that others tell of.
                let since_boot = !row.flows() && rows.len() > 1;
                samples.push((if since_boot { *at } else { before } as f64, first));
                if since_boot {
                    start = *at;
                    continue;
                }
            }
            let seconds = (at - before) as f64;
            for (counter, rate) in &row.rates {
                *counters.entry(counter).or_default() += rate * seconds;
            }
            if let Some(shares) = row.cpu {
                for (total, share) in ticks.iter_mut().zip(shares) {
                    *total += share * seconds * TICKS;
                }
            }
            for (total, stalls) in stalled.iter_mut().zip(&row.stalls) {
                let Some(stalls) = stalls else { continue };
                total[0] += stalls.some[3] / 100.0 * seconds;
                total[1] += stalls.full.map_or(0.0, |full| full[3]) / 100.0 * seconds;
            }
            let mut now = source(row, &counters, ticks, levels);
            pressure(row, &stalled, &mut now);
            let since = at.saturating_sub(start) as f64;
            for busy in busy {
                let ticks = (busy.share * since * TICKS_PER_SECOND) as u64;
                now.insert(format!("proc/{}/stat", busy.pid), busy.stat(ticks));
            }
            if !disks.is_empty() {
                now.insert("proc/diskstats", diskstats(disks, since));
            }
            samples.push((*at as f64, now));
        }
        debug_assert!(samples.len() <= MOST_ROWS + 1);
        let start = samples.first().map_or(0.0, |(at, _)| *at);
        let over = |(at, own): (f64, MemorySource)| (at - start, own.lie_over(Arc::clone(&common)));
        let samples: Vec<_> = thin(samples).into_iter().map(over).collect();
        debug_assert!(samples.len() <= MOST_SAMPLES);
        samples
    }
}

/// `proc/diskstats` after so many seconds, of which the devices were busy these shares.
fn diskstats(disks: &BTreeMap<String, f64>, seconds: f64) -> String {
    let line = |(name, share): (&String, &f64)| {
        format!("8 0 {name} 0 0 0 0 0 0 0 0 0 {} 0\n", (share * seconds * 1000.0) as u64)
    };
    disks.iter().map(line).collect()
}

/// The files of one sample.
fn source(row: &Row, counters: &BTreeMap<&'static str, f64>, ticks: [f64; 5], levels: bool) -> MemorySource {
    let mut source = MemorySource::default();
    if levels && !row.levels.is_empty() {
        let lines: String = row.levels.iter().map(|(field, kib)| format!("{field}: {kib} kB\n")).collect();
        source.insert("proc/meminfo", lines);
    }
    if !counters.is_empty() {
        let lines: String =
            counters.iter().map(|(name, count)| format!("{name} {}\n", *count as u64)).collect();
        source.insert("proc/vmstat", lines);
    }
    if row.cpu.is_some() {
        let [user, system, idle, iowait, steal] = ticks.map(|ticks| ticks as u64);
        let mut text = format!("cpu  {user} 0 {system} {idle} {iowait} 0 0 {steal} 0 0\n");
        for (name, tasks) in [("procs_running", row.running), ("procs_blocked", row.blocked)] {
            if let Some(tasks) = tasks {
                let _ = writeln!(text, "{name} {tasks}");
            }
        }
        source.insert("proc/stat", text);
    }
    source
}

/// Adds the files of pressure.
fn pressure(row: &Row, stalled: &[[f64; 2]; 3], source: &mut MemorySource) {
    for (((file, _), stalls), total) in PRESSURE.into_iter().zip(&row.stalls).zip(stalled) {
        let Some(stalls) = stalls else { continue };
        let stall = |[avg10, avg60, avg300, _]: [f64; 4], seconds: f64| {
            Some(Stall { avg10, avg60, avg300, total_us: (seconds * 1e6) as u64 })
        };
        let some = stall(stalls.some, total[0]);
        let full = stalls.full.and_then(|full| stall(full, total[1]));
        let mut text = String::new();
        Psi { some, full }.print(&mut text);
        source.insert(format!("proc/pressure/{file}"), text);
    }
}

/// Whether a word heads a column of sar that is read.
fn column_of_sar(word: &str) -> bool {
    let rates = RATES.iter().chain(&MORE_RATES).any(|(column, ..)| *column == word && column.contains('/'));
    let others = [
        "CPU",
        "%user",
        "%usr",
        "%idle",
        "%iowait",
        "%memused",
        "kbmemused",
        "kbswpused",
        "runq-sz",
        "blocked",
    ];
    rates
        || PRESSURE.iter().any(|(_, name)| word.strip_prefix("%s").is_some_and(|rest| rest.starts_with(name)))
        || word.starts_with("kb") && LEVELS.iter().any(|(column, _)| *column == word)
        || others.contains(&word)
}

/// The time of day at the start of a line, in seconds, and the words after it.
fn time_of<'a, 'b>(words: &'b [&'a str]) -> (Option<u64>, &'b [&'a str]) {
    let Some((first, rest)) = words.split_first() else { return (None, words) };
    let mut parts = first.split(':').map(|part| part.parse::<u64>().ok());
    let (Some(Some(hours)), Some(Some(minutes)), Some(Some(seconds)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return (None, words);
    };
    if hours > 24 || minutes > 59 || seconds > 60 {
        return (None, words);
    }
    let (hours, rest) = match rest.first() {
        Some(&"PM") => (hours % 12 + 12, &rest[1..]),
        Some(&"AM") => (hours % 12, &rest[1..]),
        _ => (hours, rest),
    };
    (Some(hours * 3600 + minutes * 60 + seconds), rest)
}

/// A number with a point or, in other locales, a comma. What has no room in its column pmstat prints with
/// a unit: `5363m` are MiB of KiB, `10K` thousands.
fn number(word: &str) -> Option<f64> {
    let (digits, factor) = match word.char_indices().last()? {
        (end, 'm') => (&word[..end], 1024.0),
        (end, 'g') => (&word[..end], 1024.0 * 1024.0),
        (end, 'K') => (&word[..end], 1e3),
        (end, 'M') => (&word[..end], 1e6),
        _ => (word, 1.0),
    };
    let number: f64 =
        digits.starts_with(|c: char| c.is_ascii_digit()).then(|| digits.replace(',', ".").parse().ok())??;
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn read(text: &str) -> Vec<(f64, MemorySource)> {
        let mut tables = Tables::default();
        for line in text.lines() {
            tables.command(&line.split_ascii_whitespace().collect::<Vec<_>>());
            tables.take(line);
        }
        tables.samples(MemorySource::default(), true, &[], &BTreeMap::new(), &[])
    }

    fn file(sample: &(f64, MemorySource), path: &str) -> String {
        let mut buffer = Vec::new();
        sample.1.read(path, 1 << 16, &mut buffer).expect("the file");
        String::from_utf8(buffer).expect("text")
    }

    #[test]
    fn vmstat_becomes_counters() {
        let samples = read(
            "\
$ vmstat 2 3
procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st
 9  9      0   1000     10   2000   99   99    99    99   99   99 99  0  1  0  0
 1  4   8000    500     12   1900  400   80   500    20  900 1000 10 20 30 40  0
 0  5   8100    480     12   1880    0  120   300    10  900 1000 10 20 30 40  0
",
        );
        assert_eq!(samples.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0.0, 2.0, 4.0]);
        // The first row begins the time of which the others tell.
        assert_eq!(file(&samples[0], "proc/vmstat"), "pgpgin 0\npgpgout 0\npswpin 0\npswpout 0\n");
        assert_eq!(file(&samples[2], "proc/meminfo"), "Buffers: 12 kB\nCached: 1880 kB\nMemFree: 480 kB\n");
        assert_eq!(file(&samples[2], "proc/vmstat"), "pgpgin 1600\npgpgout 60\npswpin 200\npswpout 100\n");
        assert_eq!(
            file(&samples[2], "proc/stat"),
            "cpu  4000 0 8000 12000 16000 0 0 0 0 0\nprocs_running 0\nprocs_blocked 5\n"
        );
    }

    #[test]
    fn stalls_of_sar_are_files_of_pressure() {
        let samples = read(
            "\
10:02:49     %smem-10  %smem-60 %smem-300     %smem  %fmem-10  %fmem-60 %fmem-300     %fmem
10:02:50        30.00     20.00     10.00     50.00     15.00      8.00      4.00     25.00
10:02:52        40.00     21.00     10.00     50.00     15.00      8.00      4.00     25.00

10:02:49     %scpu-10  %scpu-60 %scpu-300     %scpu
10:02:50         7.00     17.00     32.00      2.00
10:02:52         6.00     16.00     32.00      2.00
",
        );
        let last = samples.last().expect("a sample");
        let whole = samples[0].0;
        assert_eq!(
            file(last, "proc/pressure/memory"),
            "some avg10=40.00 avg60=21.00 avg300=10.00 total=2000000\nfull avg10=15.00 avg60=8.00 avg300=4.00 total=1000000\n",
            "{whole}"
        );
        assert!(file(last, "proc/pressure/cpu").starts_with("some avg10=6.00 avg60=16.00"));
    }

    #[test]
    fn rows_of_dstat() {
        let samples = read(
            "--total-cpu-usage-- -dsk/total- -net/total- ---paging-- ---system--\n\
             usr sys idl wai stl| read  writ| recv  send|  in   out | int   csw \n \
             51   4  35  10   0|3989k 3892k|   0     0 |  40k  8192B| 687  1391 \n \
             66  24   0  10   0|   0    18M|   0     0 |   0     0 |9661    23k\n",
        );
        let last = samples.last().expect("a sample");
        assert_eq!(file(last, "proc/vmstat"), "pswpin 10\npswpout 2\n");
        assert_eq!(file(last, "proc/stat"), "cpu  11700 0 2800 3500 2000 0 0 0 0 0\n");
    }

    #[test]
    fn iotop_tells_how_long_a_task_waits() {
        let samples = read(
            "Total DISK READ :     499.57 K/s | Total DISK WRITE :    1639.00 K/s\n\
             Actual DISK READ:     492.73 K/s | Actual DISK WRITE:       0.00 B/s\n  \
             TID  PRIO  USER     DISK READ  DISK WRITE  SWAPIN      IO    COMMAND\n  \
             882 be/4 root      499.57 K/s 1604.78 K/s  0.00 % 98.60 % [btrfs-transacti]\n\
             21829 be/4 root        0.00 B/s    0.00 B/s  0.00 %  0.23 % [kworker/u32:1]\n",
        );
        assert_eq!(samples.len(), 2);
        assert!(file(&samples[1], "proc/pressure/io").starts_with("some avg10=98.60"), "{samples:?}");
    }

    #[test]
    fn disks_that_iostat_saw_busy_become_times_in_flight() {
        let disks = BTreeMap::from([("sda".to_owned(), 0.98)]);
        let samples = Tables::default().samples(MemorySource::default(), true, &[], &disks, &[]);
        let lines: Vec<String> = samples.iter().map(|sample| file(sample, "proc/diskstats")).collect();
        assert_eq!(lines, ["8 0 sda 0 0 0 0 0 0 0 0 0 0 0\n", "8 0 sda 0 0 0 0 0 0 0 0 0 980 0\n"]);
    }

    #[test]
    fn idle_cpus_beside_blocked_tasks_wait() {
        let samples = read(
            " r  b  w   swpd   free   buff  cache   si   so    bi    bo   in    cs us sy id\n \
             0  6  0   1212  10212  22340 402344    0    0   812  6120  412   612  3  5 92\n \
             0  7  0   1212  10112  22340 402344    0    0   712  7120  432   602  2  6 92\n",
        );
        assert_eq!(
            file(&samples[1], "proc/stat"),
            "cpu  200 0 600 0 9200 0 0 0 0 0\nprocs_running 0\nprocs_blocked 7\n"
        );
    }

    #[test]
    fn tables_of_pcp_are_those_of_vmstat() {
        let pmstat = read(
            "\
 loadavg                      memory      swap        io    system         cpu
   1 min   swpd   free   buff  cache   si   so   bi   bo   in   cs  us  sy  id
   31.16  5363m 25955m  17696  3237m    ?    ?    ?    ?    ?    ?   ?   ?   ?
   31.16  5363m   100m  17696      9 1800 3400 3595  10K  33K 1047  96   1   3
",
        );
        assert_eq!(file(&pmstat[1], "proc/meminfo"), "Buffers: 17696 kB\nCached: 9 kB\nMemFree: 102400 kB\n");
        assert_eq!(file(&pmstat[1], "proc/vmstat"), "pgpgin 3595\npgpgout 10000\npswpin 450\npswpout 850\n");
        let pmrep = read(
            "\
           r   b    swpd     free    buff   cache    si    so     bi     bo    in     cs  us  sy  id  wa  st
16:36:43 N/A N/A     N/A      N/A     N/A     N/A   N/A   N/A    N/A    N/A   N/A    N/A N/A N/A N/A N/A N/A
17:06:43   4   0       0     7000    2220     340   N/A   N/A    N/A    N/A   N/A    N/A N/A N/A N/A N/A N/A
17:36:43   4   0       0     6000    2220     340   400     0      5      6     7      8  10  20  70   0   0
",
        );
        let last = pmrep.last().expect("a sample");
        assert_eq!(
            (file(last, "proc/vmstat"), last.0),
            ("pgpgin 9000\npgpgout 10800\npswpin 180000\npswpout 0\n".to_owned(), 1800.0)
        );
    }

    #[test]
    fn sar_becomes_counters() {
        let samples = read(
            "\
Linux 5.14.0 (db1)  11/20/2026  _x86_64_  (8 CPU)

11:59:50 PM  pgpgin/s pgpgout/s   fault/s  majflt/s  pgfree/s pgscank/s pgscand/s pgsteal/s    %vmeff
12:00:00 AM    100,00      0,00    500,00      2,00    900,00   4000,00   1000,00      5,00      0,10
12:00:10 AM      0.00      0.00    500.00      0.00    900.00      0.00   1000.00      0.00      0.00
Average:        50.00      0.00    500.00      1.00    900.00   2000.00   1000.00      2.50      0.10

11:59:50 PM kbmemfree   kbavail kbmemused  %memused
12:00:00 AM    100000    200000   3000000     75.00
12:00:10 AM    100000    200000   3000000     75.00
",
        );
        assert_eq!(samples.len(), 3);
        let last = &samples[2];
        assert!(file(last, "proc/vmstat").contains("pgscan_direct 20000\npgscan_kswapd 40000\n"));
        assert!(file(last, "proc/meminfo").contains("MemTotal: 4000000 kB"));
        assert_eq!(last.0, 20.0);
    }

    #[test]
    fn sadf_separates_by_semicolons() {
        let samples = read(
            "\
# hostname;interval;timestamp;pgpgin/s;pgpgout/s;pgscank/s;pgscand/s
db1;60;2026-11-20 10:01:00 UTC;100.00;0.00;4000.00;1000.00
db1;60;2026-11-20 10:02:00 UTC;100.00;0.00;0.00;1000.00
# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle
db1;60;2026-11-20 10:01:00 UTC;-1;10,00;0.00;20.00;30.00;0.00;40.00
db1;60;2026-11-20 10:02:00 UTC;-1;10.00;0.00;20.00;30.00;0.00;40.00
db1;60;2026-11-20 10:02:00 UTC;0;99.00;0.00;1.00;0.00;0.00;0.00
",
        );
        let last = samples.last().expect("a sample");
        assert_eq!((samples.len(), last.0), (3, 120.0));
        assert!(file(last, "proc/vmstat").contains("pgscan_direct 120000\npgscan_kswapd 240000\n"));
        assert!(file(last, "proc/stat").starts_with("cpu  120000 0 240000 480000 360000 0 0 0 0 0"));
        for text in [
            "a;b;c\n",
            "db1;60;2026-11-20 10:01:00 UTC;1;2\n",
            "# hostname;interval;timestamp;x\nh;1;soon;5\n",
        ] {
            assert!(read(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn other_lines_are_no_rows() {
        for text in ["12:00:00 hello world\n", "MemFree: 5 kB\n", "r b free\n1 2 3\n", ""] {
            assert!(read(text).is_empty(), "{text}");
        }
    }
}
