//! What `top` and `ps` print: the head of `top` as lines of `proc/meminfo`, their lists of processes as
//! files of `proc/PID`.

use std::collections::BTreeMap;

use super::MemorySource;

/// At most this many processes are taken.
const MOST: usize = 4096;
/// Where a column of a process list stands.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Columns {
    pid: usize,
    resident: usize,
    /// Columns after the command, which may have blanks (`smem`): then `resident` counts from the end.
    after_command: bool,
    virtual_size: Option<usize>,
    shared: Option<usize>,
    state: Option<usize>,
    /// `%CPU` of `top`; that of `ps` is the mean of the process's life.
    cpu: Option<usize>,
    command: usize,
}

/// A process that took this share of a CPU, or more, is kept as busy.
const BUSY: f64 = 0.3;

/// A process that took much of a CPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Busy {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// CPUs.
    pub(crate) share: f64,
    /// Whether it is a thread of the kernel's that works on memory.
    pub(crate) kernel: bool,
}

impl Busy {
    /// `proc/PID/stat` after so many ticks.
    pub(crate) fn stat(&self, ticks: u64) -> String {
        // The flag is PF_KTHREAD.
        let flags = if self.kernel { 0x0020_0000 } else { 0 };
        format!("{} ({}) S 1 0 0 0 0 {flags} 0 0 0 0 {ticks}{}\n", self.pid, self.name, " 0".repeat(30))
    }
}

/// Reads the lists of processes of a text.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    columns: Option<Columns>,
    taken: usize,
    busy: Vec<Busy>,
    /// What a process held when it was listed first: its resident memory in KiB.
    first: BTreeMap<(u32, String), u64>,
}

impl Listing {
    /// Takes a line if it is the head of a list or a process in it.
    pub(crate) fn take(&mut self, line: &str, source: &mut MemorySource) -> bool {
        // Android's top writes `S[%CPU]` and `ARGS`.
        let line = line.replace("S[%CPU]", "S %CPU");
        let words: Vec<&str> = line.split_ascii_whitespace().take(64).collect();
        if let Some(columns) = columns(&words) {
            self.columns = Some(columns);
            return true;
        }
        let Some(columns) = self.columns.or_else(|| headless(&words)) else { return false };
        self.columns = Some(columns);
        let taken = self.taken < MOST && process(&words, columns, source);
        self.taken += usize::from(taken);
        if let Some((pid, name, resident)) = held(&words, columns).filter(|_| taken) {
            self.first.entry((pid, name)).or_insert(resident);
        }
        if let Some(busy) =
            busy(&words, columns).filter(|busy| taken && self.busy.iter().all(|b| b.pid != busy.pid))
        {
            self.busy.push(busy);
        }
        taken
    }

    /// The processes that took most of the CPUs, of `top`; and, of those that grew by a third,
    /// `proc/PID/status` as it was when they were listed first.
    pub(crate) fn finish(self, source: &MemorySource) -> (Vec<Busy>, Vec<(String, String)>) {
        let before = |((pid, name), resident): ((u32, String), u64)| {
            let path = format!("proc/{pid}/status");
            let now = String::from_utf8_lossy(source.get(&path)?).into_owned();
            let field = |key: &str| now.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            let last = field("VmRSS:")?.strip_suffix(" kB")?.parse::<u64>().ok()?;
            let status = format!("Name:\t{name}\nVmSize:\t{resident} kB\nVmRSS:\t{resident} kB\n");
            (field("Name:")? == name && last > resident + resident / 3).then_some((path, status))
        };
        let grown = self.first.into_iter().filter_map(before).collect();
        (self.busy, grown)
    }
}

fn columns(words: &[&str]) -> Option<Columns> {
    let at = |names: &[&str]| words.iter().position(|word| names.contains(word));
    let (resident, command) = (at(&["RES", "RSS"])?, at(&["COMMAND", "CMD", "Command", "COMM", "ARGS"])?);
    let after_command = resident > command;
    Some(Columns {
        pid: at(&["PID"])?,
        resident: if after_command { words.len() - resident } else { resident },
        after_command,
        virtual_size: at(&["VIRT", "VSZ", "SIZE"]),
        shared: at(&["SHR", "SHARE"]),
        state: at(&["S", "STAT"]),
        // Old ones have `TIME`, as ps has, and priorities.
        cpu: at(&["%CPU"]).filter(|_| at(&["TIME+"]).or(at(&["PRI"])).is_some()),
        command,
    })
}

/// The columns of a row of top whose head is missing: `30790 root 25 0 1752 544 452 R 100 0.0 594:32.83 sh`.
fn headless(words: &[&str]) -> Option<Columns> {
    let [pid, _, priority, nice, size, resident, shared, state, cpu, share, time, _, ..] = words else {
        return None;
    };
    let number = |word: &&str| word.replace(',', ".").parse::<f64>().is_ok();
    let fits = pid.bytes().all(|b| b.is_ascii_digit())
        && (number(priority) || *priority == "RT")
        && number(nice)
        && [size, resident, shared].into_iter().all(|size| kib(size).is_some())
        && matches!(*state, "R" | "S" | "D" | "T" | "Z" | "I")
        && number(cpu)
        && number(share)
        && time.contains(':');
    fits.then(|| {
        columns(&"PID USER PR NI VIRT RES SHR S %CPU %MEM TIME+ COMMAND".split(' ').collect::<Vec<_>>())
    })?
}

fn busy(words: &[&str], columns: Columns) -> Option<Busy> {
    let pid = words.get(columns.pid)?.parse().ok()?;
    let share = words.get(columns.cpu?)?.replace(',', ".").parse::<f64>().ok()? / 100.0;
    let name = plain(words.get(columns.command)?);
    let ours = ["kswapd", "kcompactd", "khugepaged", "ksmd"].iter().any(|thread| name.starts_with(thread));
    let kernel = ours && size_of(words, columns.virtual_size?) == Some(0);
    (share >= BUSY && !name.is_empty()).then_some(Busy { pid, name, share, kernel })
}

/// A command's name as the kernel has it.
fn plain(command: &str) -> String {
    // `ksoftirqd/1` is a name, `/usr/bin/java` a path.
    let name = if command.starts_with('/') { command.rsplit('/').next().unwrap_or(command) } else { command };
    name.trim_end_matches(':')
        .chars()
        .filter(|c| !c.is_control() && !matches!(c, '(' | ')' | '[' | ']'))
        .take(15)
        .collect()
}

/// A process of a row, and its resident memory in KiB.
fn held(words: &[&str], columns: Columns) -> Option<(u32, String, u64)> {
    let resident = size_of(words, columns.resident).filter(|_| !columns.after_command)?;
    Some((words.get(columns.pid)?.parse().ok()?, plain(words.get(columns.command)?), resident))
}

fn size_of(words: &[&str], index: usize) -> Option<u64> {
    words.get(index).and_then(|word| kib(word))
}

/// Adds `stat` and `status` of a process.
fn process(words: &[&str], columns: Columns, source: &mut MemorySource) -> bool {
    let size = |index: usize| size_of(words, index);
    let resident = match columns.after_command {
        true => words.len().checked_sub(columns.resident),
        false => Some(columns.resident),
    };
    let (Some(pid), Some(resident)) =
        (words.get(columns.pid).and_then(|pid| pid.parse::<u32>().ok()), resident.and_then(size))
    else {
        return false;
    };
    // `ps f` draws a tree before the command.
    let tree = |word: &&&str| matches!(**word, "\\_" | "|");
    let command = words.get(columns.command..).and_then(|rest| rest.iter().find(|word| !tree(word)));
    // The last row of `smem -t` has sums and no command.
    let sums = |command: &&&str| columns.after_command && kib(command).is_some();
    let Some(command) = command.filter(|command| !sums(command)) else { return false };
    let state = columns.state.and_then(|at| words.get(at)?.chars().next());
    // `[kswapd0]` of ps is a kernel thread; one that waits is worth keeping.
    if command.starts_with('[') && state != Some('D') {
        return true;
    }
    let name = plain(command);
    if name.is_empty() || pid == 0 {
        return false;
    }
    let virtual_size = columns.virtual_size.and_then(size).unwrap_or(resident);
    let mut status = format!("Name:\t{name}\nVmSize:\t{virtual_size} kB\nVmRSS:\t{resident} kB\n");
    if let Some(shared) = columns.shared.and_then(size) {
        status.push_str(&format!("RssAnon:\t{} kB\n", resident.saturating_sub(shared)));
    }
    source.insert(format!("proc/{pid}/status"), status);
    let zeros = " 0".repeat(40);
    let state = state.filter(|state| "RSDTZI".contains(*state)).unwrap_or('S');
    source.insert(format!("proc/{pid}/stat"), format!("{pid} ({name}) {state} 1{zeros}\n"));
    true
}

/// A size in KiB as top prints it: `1234`, `13.1g`, `512m`, `1.2t`, with a comma in other locales.
fn kib(word: &str) -> Option<u64> {
    let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &word[number.len()..] {
        "" | "k" | "K" => 1.0,
        "m" | "M" => 1024.0,
        "g" | "G" => 1024.0 * 1024.0,
        "t" | "T" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let value: f64 =
        number.replace(',', ".").parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)?;
    Some((value * factor) as u64)
}

/// The lines of meminfo in the head of busybox's `top`: `Mem: 60920K used, 1016K free, 312K shrd, 124K buff,
/// 2340K cached`.
fn head_of_busybox(rest: &str) -> Option<Vec<(&'static str, u64)>> {
    let mut found = Vec::new();
    let mut used = None;
    for part in rest.split(',') {
        let (value, label) = part.trim().split_once(' ')?;
        let value = kib(value).filter(|_| value.ends_with('K'))?;
        let field = match label.trim() {
            "used" => {
                used = Some(value);
                continue;
            }
            "free" => "MemFree",
            "shrd" => "Shmem",
            "buff" => "Buffers",
            "cached" => "Cached",
            _ => return None,
        };
        found.push((field, value));
    }
    let free = found.iter().find(|(field, _)| *field == "MemFree")?.1;
    found.insert(0, ("MemTotal", used?.saturating_add(free)));
    // Before busybox 1.20 `shrd` was a figure that no kernel printed any more.
    found.retain(|(field, value)| *field != "Shmem" || *value > 0);
    Some(found)
}

/// The lines of meminfo in the head of top as procps 2 prints it: `Mem:  513512K av,  412340K used,  101172K
/// free, 0K shrd,   62340K buff`, `Swap: 1052216K av, 8120K used, 1044096K free   201232K cached`.
fn head_of_old_top(what: &str, rest: &str) -> Option<Vec<(&'static str, u64)>> {
    let words: Vec<&str> = rest.split([' ', ',']).filter(|word| !word.is_empty()).take(16).collect();
    let mut lines = Vec::new();
    for pair in words.chunks_exact(2) {
        let field = match (what, pair[1]) {
            ("Mem", "av") => "MemTotal",
            ("Mem", "free") => "MemFree",
            ("Mem", "buff") => "Buffers",
            ("Swap", "av") => "SwapTotal",
            ("Swap", "free") => "SwapFree",
            ("Swap", "cached") => "Cached",
            (_, "used" | "shrd") => continue,
            _ => return None,
        };
        lines.push((field, kib(pair[0])?));
    }
    (lines.len() > 1).then_some(lines)
}

/// The lines of meminfo in a line of `top`'s head: `KiB Mem : 16312344 total, 211000 free, …`,
/// `Mem:  16312344k total, …`, `MiB Swap: …`.
pub(crate) fn head_of_top(line: &str) -> Option<Vec<(&'static str, u64)>> {
    let (label, rest) = line.split_once(':')?;
    let (unit, what) = match label.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        [what @ ("Mem" | "Swap")] => ("", what),
        [unit @ ("KiB" | "MiB" | "GiB"), what @ ("Mem" | "Swap")] => (unit, what),
        _ => return None,
    };
    if rest.contains("K av, ") || rest.contains("k av, ") {
        return head_of_old_top(what, rest);
    }
    if what == "Mem" && rest.contains("K used, ") && rest.contains("K free, ") && !rest.contains("total") {
        return head_of_busybox(rest);
    }
    let unit = match unit {
        "MiB" => 1024.0,
        "GiB" => 1024.0 * 1024.0,
        _ => 1.0,
    };
    let mut lines = Vec::new();
    // Android's top of some versions prints one figure in KiB and the others in bytes.
    let bytes = rest.contains("K total,") && rest.contains("K used,");
    // `… 2097148 used.   180000 avail Mem`
    for part in rest.replace(". ", ", ").split(", ") {
        let mut words = part.split_ascii_whitespace();
        let (Some(value), label) = (words.next(), words.collect::<Vec<_>>().join(" ")) else { continue };
        let value = value.trim_end_matches('+');
        // Other locales write 15928,0.
        let kib = match value.replace(',', ".").parse::<f64>() {
            Ok(value) if bytes => (value / 1024.0) as u64,
            Ok(value) => (value * unit) as u64,
            Err(_) => kib(value)?,
        };
        let field = match (what, label.trim_end_matches('.').trim()) {
            ("Mem", "total") => "MemTotal",
            ("Mem", "free") => "MemFree",
            ("Mem", "buffers") => "Buffers",
            ("Mem", "buff/cache") => "Cached",
            ("Swap", "total") => "SwapTotal",
            ("Swap", "free") => "SwapFree",
            ("Swap", "cached" | "cached Mem") => "Cached",
            ("Swap", "avail Mem") => "MemAvailable",
            _ => continue,
        };
        lines.push((field, kib));
    }
    (!lines.is_empty()).then_some(lines)
}

/// The lines of meminfo in atop's `MEM | tot    15.6G | free  120.3M | cache 310.2M | …` and `SWP | …`.
pub(crate) fn line_of_atop(line: &str) -> Option<Vec<(&'static str, u64)>> {
    let mut cells = line.split('|').map(str::trim);
    let what = cells.next().filter(|what| matches!(*what, "MEM" | "SWP"))?;
    let mut lines = Vec::new();
    for cell in cells.take(16) {
        let Some((name, value)) = cell.split_once(' ') else { continue };
        let field = match (what, name) {
            ("MEM", "tot") => "MemTotal",
            ("MEM", "free") => "MemFree",
            ("MEM", "cache") => "Cached",
            ("MEM", "buff") => "Buffers",
            ("MEM", "slab") => "Slab",
            ("MEM", "shmem") => "Shmem",
            ("SWP", "tot") => "SwapTotal",
            ("SWP", "free") => "SwapFree",
            ("SWP", "vmcom") => "Committed_AS",
            ("SWP", "vmlim") => "CommitLimit",
            _ => continue,
        };
        lines.push((field, kib(value.trim())?));
    }
    (lines.len() > 1).then_some(lines)
}

/// A line of `vmstat -s` that is read: the file, the field, and its value.
pub(crate) fn sum_of_vmstat(words: &[&str]) -> Option<(&'static str, &'static str, u64)> {
    let [value, rest @ ..] = words else { return None };
    let value = value.parse::<u64>().ok()?;
    let factor = match rest.first() {
        Some(&("K" | "k")) => 1,
        Some(&("M" | "m")) => 1024,
        _ => 0,
    };
    if factor > 0 {
        let field = match rest[1..] {
            ["total", "memory"] => "MemTotal",
            ["free", "memory"] => "MemFree",
            ["active", "memory"] => "Active",
            ["inactive", "memory"] => "Inactive",
            ["buffer", "memory"] => "Buffers",
            // What it calls so is the page cache.
            ["swap", "cache"] => "Cached",
            ["total", "swap"] => "SwapTotal",
            ["free", "swap"] => "SwapFree",
            _ => return None,
        };
        return Some(("proc/meminfo", field, value.saturating_mul(factor)));
    }
    let counter = match rest {
        ["pages", "paged", "in"] => "pgpgin",
        ["pages", "paged", "out"] => "pgpgout",
        ["pages", "swapped", "in"] => "pswpin",
        ["pages", "swapped", "out"] => "pswpout",
        _ => return None,
    };
    Some(("proc/vmstat", counter, value))
}

/// Whether a line is of one CPU: `%Cpu3  :  0.3 us, …`.
pub(crate) fn of_one_cpu(line: &str) -> bool {
    !line.trim_start_matches('%').to_ascii_lowercase().starts_with("cpu(s)")
}

/// Which share a word of procps 2 and 3.1 names.
fn old_place(name: &str) -> Option<usize> {
    Some(match name {
        "user" | "nice" => 0,
        "system" | "irq" | "softirq" => 1,
        "idle" => 2,
        "iowait" => 3,
        _ => return None,
    })
}

/// `CPU states: 92.1% user,  7.9% system,  0.0% nice,  0.0% idle` of procps 2.
fn cpu_of_old_top(rest: &str) -> Option<[f64; 5]> {
    let mut shares = [0.0; 5];
    for part in rest.split(',') {
        let (value, name) = part.trim().split_once('%')?;
        shares[old_place(name.trim())?] += value.parse::<f64>().ok()? / 100.0;
    }
    (shares.iter().sum::<f64>() > 0.5).then_some(shares)
}

/// The shares below the head `CPU states:  cpu    user    nice  system    irq  softirq  iowait    idle` of
/// procps 3.1: `total    3.1%    0.0%   12.2%   0.4%     0.0%   84.3%    0.0%`.
pub(crate) fn cpu_of_table(head: &str, line: &str) -> Option<[f64; 5]> {
    let columns = head.trim().strip_prefix("CPU states:")?.trim().strip_prefix("cpu")?;
    let values = line.trim().strip_prefix("total")?;
    let mut shares = [0.0; 5];
    for (column, word) in columns.split_ascii_whitespace().zip(values.split_ascii_whitespace()).take(12) {
        shares[old_place(column)?] += word.strip_suffix('%')?.parse::<f64>().ok()? / 100.0;
    }
    (shares.iter().sum::<f64>() > 0.5).then_some(shares)
}

/// The shares of user, system, idle, iowait and steal in `%Cpu(s):  12.0 us,  8.0 sy, …` of top.
pub(crate) fn cpu_of_top(line: &str) -> Option<[f64; 5]> {
    if let Some(rest) = line.strip_prefix("CPU states:") {
        return cpu_of_old_top(rest);
    }
    let (name, rest) = line.split_once(':')?;
    let name = name.trim_start_matches('%').trim_end();
    let one = name.strip_prefix("Cpu").is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()));
    if !name.eq_ignore_ascii_case("Cpu(s)") && !one {
        return None;
    }
    let mut shares = [0.0; 5];
    // `8,0 sy` in other locales; `12.0%us` of old ones.
    let mut words = rest.split([' ', '%']).map(|word| word.trim_matches(',')).filter(|word| !word.is_empty());
    while let Some(value) = words.next() {
        let share = value.replace(',', ".").parse::<f64>().ok()? / 100.0;
        let place = match words.next()? {
            "us" | "ni" => 0,
            "sy" | "hi" | "si" => 1,
            "id" => 2,
            "wa" => 3,
            "st" => 4,
            _ => continue,
        };
        shares[place] += share;
    }
    (shares.iter().sum::<f64>() > 0.5).then_some(shares)
}

/// Shares of the CPUs' time in the line below iostat's `avg-cpu:  %user   %nice %system %iowait  %steal
/// %idle`: user, system, idle, waiting, stolen.
pub(crate) fn cpu_of_iostat(head: &str, line: &str) -> Option<[f64; 5]> {
    let columns: Vec<&str> =
        head.trim().strip_prefix("avg-cpu:")?.split_ascii_whitespace().take(12).collect();
    let words = line.split_ascii_whitespace().take(16);
    let values: Option<Vec<f64>> = words.map(|word| word.replace(',', ".").parse().ok()).collect();
    let values = values.filter(|values| values.len() == columns.len())?;
    let mut shares = [0.0; 5];
    for (column, value) in columns.into_iter().zip(values) {
        let place = match column {
            "%user" | "%nice" => 0,
            "%system" | "%sys" => 1,
            "%idle" => 2,
            "%iowait" => 3,
            "%steal" => 4,
            _ => continue,
        };
        shares[place] += value / 100.0;
    }
    (shares.iter().sum::<f64>() > 0.5).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn heads_in_other_locales_and_sums_of_vmstat() {
        let head = head_of_top("MiB Mem :  15928,0 total,    120,4 free,  15500,2 used,    307,4 buff/cache");
        assert_eq!(head, Some(vec![("MemTotal", 16_310_272), ("MemFree", 123_289), ("Cached", 314_777)]));
        assert!(
            cpu_of_top("%CPU(s):  3,1 us, 22,4 sy,  0,0 ni,  1,5 id, 72,8 wa,  0,0 hi,  0,2 si,  0,0 st")
                .is_some()
        );
        let sum = |line: &str| sum_of_vmstat(&line.split_ascii_whitespace().collect::<Vec<_>>());
        assert_eq!(sum("     16310240 K total memory"), Some(("proc/meminfo", "MemTotal", 16_310_240)));
        assert_eq!(sum("  15 M free memory"), Some(("proc/meminfo", "MemFree", 15 * 1024)));
        assert_eq!(sum("  5555 pages swapped in"), Some(("proc/vmstat", "pswpin", 5555)));
        for other in ["16310240 K used memory", "99 idle cpu ticks", "pages swapped in", "5 pages"] {
            assert_eq!(sum(other), None, "{other}");
        }
    }

    #[test]
    fn heads_of_top() {
        assert_eq!(
            head_of_top("KiB Mem : 16312344 total,   211000 free, 15500000 used,   600000 buff/cache"),
            Some(vec![("MemTotal", 16_312_344), ("MemFree", 211_000), ("Cached", 600_000)])
        );
        assert_eq!(
            head_of_top("MiB Swap:   2048.0 total,      0.5 free,   2047.5 used.    175.5 avail Mem "),
            Some(vec![("SwapTotal", 2_097_152), ("SwapFree", 512), ("MemAvailable", 179_712)])
        );
        assert_eq!(
            head_of_top("Mem:  16312344k total, 15500000k used,   812344k free,    60000k buffers"),
            Some(vec![("MemTotal", 16_312_344), ("MemFree", 812_344), ("Buffers", 60_000)])
        );
        assert_eq!(
            head_of_top("Mem: 60920K used, 1016K free, 0K shrd, 124K buff, 2340K cached"),
            Some(vec![("MemTotal", 61_936), ("MemFree", 1016), ("Buffers", 124), ("Cached", 2340)])
        );
        assert_eq!(head_of_top("Mem:          15955       15830         125"), None);
        assert_eq!(
            line_of_atop("SWP | tot     4.0G | free    0.5M |   | vmcom  22.0G | vmlim  11.0G |"),
            Some(vec![
                ("SwapTotal", 4_194_304),
                ("SwapFree", 512),
                ("Committed_AS", 23_068_672),
                ("CommitLimit", 11_534_336)
            ])
        );
        assert_eq!(line_of_atop("SWP | tot"), None);
        assert_eq!(head_of_top("Cpu: 5 total"), None);
        assert_eq!(
            head_of_top("Mem:   513512K av,  412340K used,  101172K free,       0K shrd,   62340K buff"),
            Some(vec![("MemTotal", 513_512), ("MemFree", 101_172), ("Buffers", 62_340)])
        );
        assert_eq!(
            head_of_top("Swap:  522072k av,  520000k used,    2072k free                    8232k cached"),
            Some(vec![("SwapTotal", 522_072), ("SwapFree", 2072), ("Cached", 8232)])
        );
    }

    #[test]
    fn cpus_of_top() {
        let shares =
            cpu_of_top("%Cpu(s): 12.0 us,  8.0 sy,  0.5 ni,  2.0 id, 77.0 wa,  0.0 hi,  0.5 si,  0.0 st");
        assert_eq!(
            shares.map(|shares| shares.map(|share| (share * 1000.0).round())),
            Some([125.0, 85.0, 20.0, 770.0, 0.0])
        );
        let old =
            cpu_of_top("Cpu(s): 98.7%us,  0.3%sy,  0.0%ni,  1.0%id,  0.0%wa,  0.0%hi,  0.0%si,  0.0%st");
        assert_eq!(old.map(|shares| (shares[0] * 1000.0).round()), Some(987.0));
        let one = "%Cpu1  :  0.3 us,  2.0 sy,  0.0 ni, 13.8 id, 83.9 wa,  0.0 hi,  0.0 si,  0.0 st";
        assert_eq!(cpu_of_top(one).map(|shares| (shares[3] * 1000.0).round()), Some(839.0));
        assert!(of_one_cpu(one) && !of_one_cpu("Cpu(s): 98.7%us"));
        let states = cpu_of_top("CPU states: 92.1% user,  7.9% system,  0.0% nice,  0.0% idle");
        assert_eq!(
            states.map(|shares| shares.map(|share| (share * 1000.0).round())),
            Some([921.0, 79.0, 0.0, 0.0, 0.0])
        );
        let head = "CPU states:  cpu    user    nice  system    irq  softirq  iowait    idle";
        let total = "           total    3.1%    0.0%   12.2%   0.4%     0.0%   84.3%    0.0%";
        assert_eq!(cpu_of_top(head), None);
        assert_eq!(cpu_of_table(head, total).map(|shares| (shares[3] * 1000.0).round()), Some(843.0));
        assert_eq!(cpu_of_top("%Cpu(s):"), None);
        assert_eq!(cpu_of_top("Cpufreq: 5 us"), None);
    }

    #[test]
    fn processes_of_top_and_ps() {
        let mut source = MemorySource::default();
        let mut listing = Listing::default();
        for line in [
            "  PID USER      PR  NI    VIRT    RES    SHR S  %CPU %MEM     TIME+ COMMAND",
            " 1234 mysql     20   0   20.0g  13.1g   1234 S  10.0 80.0  10:00.0 mysqld",
            "USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND",
            "root        77  0.0  0.1  90000  5000 ?        Ss   10:00   0:01 /usr/sbin/sshd -D",
            "root        40  0.0  0.0      0     0 ?        S    10:00   0:09 [kswapd0]",
            "www         80  0.0  0.1  90000  6000 ?        S    10:00   0:01  |   \\_ /usr/sbin/apache2 -k start",
            "  PID User     Command                         Swap      USS      PSS      RSS",
            " 1822 app      /usr/bin/node server.js            0     6.9G     6.9G     7.0G",
        ] {
            assert!(listing.take(line, &mut source), "{line}");
        }
        assert!(!listing.take("some words", &mut source));
        let mut text = Vec::new();
        source.read("proc/1234/status", 4096, &mut text).expect("its status");
        assert_eq!(
            String::from_utf8_lossy(&text),
            "Name:\tmysqld\nVmSize:\t20971520 kB\nVmRSS:\t13736345 kB\nRssAnon:\t13735111 kB\n"
        );
        text.clear();
        source.read("proc/77/stat", 4096, &mut text).expect("its stat");
        assert!(text.starts_with(b"77 (sshd) S 1 0"));
        text.clear();
        source.read("proc/80/status", 4096, &mut text).expect("its status");
        assert!(text.starts_with(b"Name:\tapache2\n"));
        text.clear();
        source.read("proc/1822/status", 4096, &mut text).expect("its status");
        assert_eq!(String::from_utf8_lossy(&text), "Name:\tnode\nVmSize:\t7340032 kB\nVmRSS:\t7340032 kB\n");
        assert!(source.read("proc/40/stat", 4096, &mut Vec::new()).is_err());
    }
}
