//! OSWatcher (and ExaWatcher) archives: `/proc/meminfo` and the `vmstat` command, sampled about every half
//! minute.
//!
//! `oswmeminfo` has blocks of unchanged `/proc/meminfo`, `oswvmstat` blocks of output of the `vmstat`
//! command. A line `zzz ***Fri Nov 20 01:46:00 CET 2011` (or `zzz <11/20/2011 01:46:00>`) begins each block.
//! Blocks of both are merged by time.
//!
//! # From the `vmstat` command to counters
//!
//! The command prints rates, the kernel counts. A block's rate is the mean of its lines except the first,
//! which is the mean since boot; a block of a single line yields no rate. Between two blocks the rate of the
//! later one is assumed to hold, so the sums are estimates from the seconds that were sampled:
//!
//! | column | unit | counter | conversion |
//! |---|---|---|---|
//! | `si`, `so` | KiB/s | `pswpin`, `pswpout` | pages of 4 KiB |
//! | `bi`, `bo` | KiB/s (blocks of 1024 bytes) | `pgpgin`, `pgpgout` | none: the kernel counts KiB |
//!
//! The counters start at 0 with the first block: their differences are meaningful, their values are not.
//! Without `oswmeminfo`, the columns `free`, `buff` and `cache` (KiB) become `MemFree`, `Buffers` and
//! `Cached`.
//!
//! # Time
//!
//! Only differences matter, so the name of the time zone has one use: names of summer time are an hour ahead,
//! so that the night of the change is neither repeated nor missing. Blocks out of order are sorted, and a
//! truncated block is kept as far as it goes.

use super::samples::thin;
use super::{MOST_SAMPLES, MemorySource, Source};

/// At most this many bytes are kept of one block of meminfo.
const MOST_BLOCK: usize = 16 << 10;
/// At most this many bytes are read of one file; an hour at one block every 5 s is about 2 MiB.
const MOST_FILE: usize = 32 << 20;
/// At most this many files are read.
const MOST_FILES: usize = 4096;
/// At most this many `vmstat` blocks are kept, at 48 bytes each.
const MOST_RATES: usize = 1 << 20;
/// Page size in KiB by which `si` and `so` are divided.
const PAGE_KIB: f64 = 4.0;

/// The samples of an archive.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// The files of each sample, with seconds after the first.
    pub(crate) samples: Vec<(f64, MemorySource)>,
    /// Notes for the reader of the report.
    pub(crate) notes: Vec<String>,
}

/// Whether a text has `zzz` lines that carry a time.
pub(crate) fn looks_like(text: &[u8]) -> bool {
    let mut lines = text.split(|&b| b == b'\n').take(200);
    lines.any(|line| stamp(&String::from_utf8_lossy(line)).is_some())
}

/// The files of an archive, compressed ones too, ordered by the time in their names.
pub(crate) fn files(source: &dyn Source) -> Vec<String> {
    let mut all = Vec::new();
    for directory in ["", "archive", "oswmeminfo", "oswvmstat", "archive/oswmeminfo", "archive/oswvmstat"] {
        for name in source.list(directory).unwrap_or_default() {
            let ours = name.contains("_meminfo_")
                || name.contains("_vmstat_")
                || name.contains("_Meminfo")
                || name.contains("_Vmstat");
            let dat = [".dat", ".dat.gz", ".dat.bz2", ".dat.xz"].iter().any(|end| name.ends_with(end));
            if ours && dat && all.len() < MOST_FILES {
                all.push(if directory.is_empty() { name } else { format!("{directory}/{name}") });
            }
        }
    }
    all.sort_by(|a, b| a.rsplit('_').next().cmp(&b.rsplit('_').next()).then_with(|| a.cmp(b)));
    all
}

/// Reads the files of an archive.
pub(crate) fn read(source: &dyn Source, files: &[String]) -> Series {
    let mut reader = Reader::default();
    let mut compressed = 0;
    let mut unreadable = Vec::new();
    let mut buffer = Vec::new();
    for path in files {
        if !path.ends_with(".dat") {
            compressed += 1;
            continue;
        }
        match source.read(path, MOST_FILE, &mut buffer) {
            Ok(longer) => {
                reader.text(&buffer);
                if longer {
                    reader.notes.push(format!("{path}: only its first {} MiB were read", MOST_FILE >> 20));
                }
            }
            Err(error) => unreadable.push(format!("{path}: {error}")),
        }
    }
    reader.notes.extend(unreadable.into_iter().take(16));
    if compressed > 0 {
        reader
            .notes
            .push(format!("{compressed} compressed files were not read; decompress them to have them read"));
    }
    reader.finish()
}

/// Reads one file.
pub(crate) fn read_text(text: &[u8]) -> Series {
    let mut reader = Reader::default();
    reader.text(text);
    reader.finish()
}

/// One block of `vmstat`; rates are in KiB/s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rates {
    /// `si`, `so`, `bi`, `bo`.
    flow: Option<[f64; 4]>,
    /// `free`, `buff`, `cache`, KiB.
    level: Option<[u64; 3]>,
}

#[derive(Default)]
struct Reader {
    meminfo: Thinned<Vec<u8>>,
    rates: Vec<(f64, Rates)>,
    dropped: usize,
    notes: Vec<String>,
}

/// Thins a series by keeping every n-th sample, so that there are at most twice [`MOST_SAMPLES`].
struct Thinned<T> {
    kept: Vec<(f64, T)>,
    stride: usize,
    seen: usize,
}

impl<T> Default for Thinned<T> {
    fn default() -> Self {
        Thinned { kept: Vec::new(), stride: 1, seen: 0 }
    }
}

impl<T> Thinned<T> {
    fn push(&mut self, at: f64, one: T) {
        if self.seen.is_multiple_of(self.stride) {
            self.kept.push((at, one));
        }
        self.seen += 1;
        if self.kept.len() >= 2 * MOST_SAMPLES {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
    }
}

impl Reader {
    fn text(&mut self, text: &[u8]) {
        let mut at = None;
        let mut block: Vec<&[u8]> = Vec::new();
        for line in text.split(|&b| b == b'\n') {
            if line.starts_with(b"zzz") {
                let stamp = stamp(&String::from_utf8_lossy(&line[..line.len().min(200)]));
                self.block(at, &block);
                block.clear();
                at = stamp;
            } else if block.len() < 512 {
                block.push(line);
            }
        }
        self.block(at, &block);
    }

    fn block(&mut self, at: Option<f64>, lines: &[&[u8]]) {
        let Some(at) = at else { return };
        let is_meminfo = |line: &&&[u8]| {
            let name = line.iter().position(|&b| b == b':').map(|end| &line[..end]);
            name.is_some_and(|name| {
                !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || b"_()".contains(b))
            })
        };
        if lines.iter().any(|line| line.starts_with(b"MemTotal:") || line.starts_with(b"MemFree:")) {
            let mut text = Vec::new();
            for line in lines.iter().filter(is_meminfo) {
                if text.len() + line.len() >= MOST_BLOCK {
                    break;
                }
                text.extend_from_slice(line);
                text.push(b'\n');
            }
            self.meminfo.push(at, text);
        } else if let Some(rates) = rates(lines) {
            if self.rates.len() < MOST_RATES {
                self.rates.push((at, rates));
            } else {
                self.dropped += 1;
            }
        }
    }

    fn finish(mut self) -> Series {
        let mut meminfo = self.meminfo.kept;
        meminfo.sort_by(|a, b| a.0.total_cmp(&b.0));
        meminfo.dedup_by(|later, earlier| later.0 == earlier.0);
        self.rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.rates.dedup_by(|later, earlier| later.0 == earlier.0);
        if self.dropped > 0 {
            self.notes.push(format!(
                "{} blocks of vmstat beyond the first {MOST_RATES} were not read",
                self.dropped
            ));
        }
        let sums = accumulate(&self.rates);
        let alone = meminfo.is_empty();
        if alone && !self.rates.is_empty() {
            self.notes.push("there is no oswmeminfo: memory is known from the vmstat columns only".into());
            let level = |&(at, rates): &(f64, Rates)| {
                let [free, buffers, cached] = rates.level?;
                let text = format!("MemFree: {free} kB\nBuffers: {buffers} kB\nCached: {cached} kB\n");
                Some((at, text.into_bytes()))
            };
            meminfo = thin(self.rates.iter().collect()).into_iter().filter_map(level).collect();
        }
        if sums.len() > 1 {
            let step = (sums[sums.len() - 1].0 - sums[0].0) / (sums.len() - 1) as f64;
            self.notes.push(format!(
                "pswpin, pswpout, pgpgin and pgpgout are estimates from the vmstat command, one look every {step:.0} s; \
                 pages taken to be of 4 KiB"
            ));
        }
        let start = meminfo.first().map_or(0.0, |first| first.0);
        let mut samples = Vec::new();
        for (at, text) in thin(meminfo) {
            let mut source = MemorySource::default();
            source.insert("proc/meminfo", text);
            if let Some([swapped_in, swapped_out, paged_in, paged_out]) = sums_at(&sums, at) {
                let text = format!(
                    "pgpgin {}\npgpgout {}\npswpin {}\npswpout {}\n",
                    paged_in as u64, paged_out as u64, swapped_in as u64, swapped_out as u64
                );
                source.insert("proc/vmstat", text);
            }
            samples.push((at - start, source));
        }
        Series { samples, notes: self.notes }
    }
}

/// Reads the lines of a `vmstat` block.
fn rates(lines: &[&[u8]]) -> Option<Rates> {
    let mut columns: Option<Vec<String>> = None;
    let mut rows: Vec<Vec<u64>> = Vec::new();
    for line in lines {
        let line = String::from_utf8_lossy(&line[..line.len().min(400)]);
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.contains(&"si") && words.contains(&"free") {
            columns = Some(words.into_iter().map(str::to_owned).collect());
            rows.clear();
        } else if let Some(columns) = &columns {
            let numbers: Vec<u64> = words.iter().map_while(|word| word.parse().ok()).collect();
            // A line that was cut off, or that has a time stamp at its end, counts as far as the columns go.
            if numbers.len() + 4 >= columns.len() && rows.len() < 64 {
                rows.push(numbers);
            }
        }
    }
    let columns = columns?;
    let column = |name: &str| columns.iter().position(|column| column == name);
    let last = |name: &str| rows.last()?.get(column(name)?).copied();
    let mean = |name: &str| {
        let index = column(name)?;
        let values: Vec<f64> = rows.iter().skip(1).filter_map(|row| Some(*row.get(index)? as f64)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let flow = || Some([mean("si")?, mean("so")?, mean("bi")?, mean("bo")?]);
    let level = || Some([last("free")?, last("buff")?, last("cache")?]);
    let rates = Rates { flow: flow(), level: level() };
    (rates != Rates::default()).then_some(rates)
}

/// Integrates the rates: `pswpin` and `pswpout` in pages, `pgpgin` and `pgpgout` in KiB since the first
/// block.
fn accumulate(rates: &[(f64, Rates)]) -> Vec<(f64, [f64; 4])> {
    let mut sums: Vec<(f64, [f64; 4])> = Vec::new();
    for &(at, rates) in rates {
        let Some([si, so, bi, bo]) = rates.flow else { continue };
        let next = match sums.last() {
            None => [0.0; 4],
            Some(&(before, sum)) => {
                let rate = [si / PAGE_KIB, so / PAGE_KIB, bi, bo];
                let mut next = sum;
                for (total, rate) in next.iter_mut().zip(rate) {
                    *total += rate * (at - before);
                }
                next
            }
        };
        sums.push((at, next));
    }
    sums
}

/// The sums at a time, interpolated linearly between two blocks. Outside of the blocks, the nearest is used
/// up to half an interval away.
fn sums_at(sums: &[(f64, [f64; 4])], at: f64) -> Option<[f64; 4]> {
    let (first, last) = (sums.first()?, sums.last()?);
    let slack = ((last.0 - first.0) / sums.len().max(2).saturating_sub(1) as f64 / 2.0).max(1.0);
    let next = sums.partition_point(|sum| sum.0 < at);
    match (next.checked_sub(1).and_then(|i| sums.get(i)), sums.get(next)) {
        (Some(before), Some(after)) => {
            let share = (at - before.0) / (after.0 - before.0);
            let mut out = before.1;
            for (out, after) in out.iter_mut().zip(after.1) {
                *out += (after - *out) * share;
            }
            Some(out)
        }
        (None, Some(only)) if only.0 - at <= slack => Some(only.1),
        (Some(only), None) if at - only.0 <= slack => Some(only.1),
        _ => None,
    }
}

/// Names of summer time, an hour ahead of their standard time.
const SUMMER: [&str; 18] = [
    "ADT", "AKDT", "BST", "CDT", "CEST", "EDT", "EEST", "HDT", "MDT", "MSD", "NDT", "PDT", "WEST", "AEDT",
    "ACDT", "NZDT", "CLST", "IDT",
];

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The time on a `zzz` line, in seconds of which only differences are meaningful.
///
/// Words are accepted in any order, because `date` prints them differently by locale: a month's name or a
/// date with slashes, a day, `HH:MM:SS`, AM or PM, a year, a time zone.
pub(super) fn stamp(line: &str) -> Option<f64> {
    let rest = line.trim().strip_prefix("zzz")?;
    let (mut month, mut day, mut year, mut clock) = (None, None, None, None);
    let (mut ahead, mut afternoon, mut twelve) = (0.0, false, false);
    let words = rest.split(|c: char| c.is_whitespace() || matches!(c, '*' | '<' | '>' | ',')).take(24);
    for word in words.filter(|word| !word.is_empty()) {
        let lower = word.to_ascii_lowercase();
        let named = MONTHS.iter().position(|name| lower.len() < 10 && lower.starts_with(name));
        let number: Option<u32> = word.parse().ok();
        if clock.is_none() && word.contains(':') {
            let mut parts = word.splitn(3, ':').map(|part| part.parse::<f64>().ok());
            let (h, m, s) = (parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0.0));
            if !(0.0..24.0).contains(&h) || !(0.0..60.0).contains(&m) || !(0.0..61.0).contains(&s) {
                return None;
            }
            clock = Some(h * 3600.0 + m * 60.0 + s);
        } else if let (Some(index), None) = (named, month) {
            month = Some(index as u32 + 1);
        } else if word.contains('/') && year.is_none() {
            let mut parts = word.splitn(3, '/').map(|part| part.parse::<u32>().ok());
            (month, day, year) = (parts.next()?, parts.next()?, parts.next()?);
        } else if let Some(number) = number.filter(|_| !word.starts_with('+')) {
            match number {
                1..=31 if day.is_none() => day = Some(number),
                1970..=9999 if year.is_none() => year = Some(number),
                _ => {}
            }
        } else if lower == "am" || lower == "pm" {
            (twelve, afternoon) = (true, lower == "pm");
        } else if SUMMER.contains(&word) {
            ahead = 3600.0;
        } else if let Some(offset) = offset(word) {
            ahead = offset;
        }
    }
    let mut clock = clock?;
    if twelve {
        clock = clock % 43200.0 + if afternoon { 43200.0 } else { 0.0 };
    }
    let date = jiff::civil::Date::new(
        i16::try_from(year?).ok()?,
        i8::try_from(month?).ok()?,
        i8::try_from(day?).ok()?,
    )
    .ok()?;
    let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second() as f64;
    Some(midnight + clock - ahead)
}

/// Seconds east of Greenwich of a zone written as `+03` or `-0330`.
fn offset(word: &str) -> Option<f64> {
    let sign = match word.as_bytes().first()? {
        b'+' => 1.0,
        b'-' => -1.0,
        _ => return None,
    };
    let digits = &word[1..];
    let fine = matches!(digits.len(), 2 | 4) && digits.bytes().all(|b| b.is_ascii_digit());
    let number: f64 = fine.then(|| digits.parse().ok())??;
    let hours = if digits.len() == 2 {
        number * 3600.0
    } else {
        (number / 100.0).floor() * 3600.0 + number % 100.0 * 60.0
    };
    Some(sign * hours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stamps_in_their_forms() {
        let base = stamp("zzz ***Sun Nov 20 01:46:00 CET 2011").unwrap();
        for same in [
            "zzz ***Sun Nov 20 01:46:00 2011",
            "zzz ***Sun Nov 20 01:46:00 AM CET 2011",
            "zzz ***Sun 20 Nov 2011 01:46:00 AM CET",
            "zzz <11/20/2011 01:46:00> Count:5",
            "zzz ***Sun Nov 20 01:46:00 CET 2011 Sample interval: 30",
            "zzz ***Sun Nov 20 04:46:00 +03 2011",
        ] {
            assert_eq!(stamp(same), Some(base), "{same}");
        }
        assert_eq!(stamp("zzz ***Sun Nov 20 01:46:30 PM CET 2011"), Some(base + 12.0 * 3600.0 + 30.0));
        assert_eq!(stamp("zzz ***Sun Nov 20 12:46:00 AM CET 2011"), Some(base - 3600.0));
        // The hour that occurs twice in the night of the change.
        let summer = stamp("zzz ***Sun Oct 30 02:59:30 CEST 2011").unwrap();
        assert_eq!(stamp("zzz ***Sun Oct 30 02:00:00 CET 2011"), Some(summer + 30.0));
        for no in ["", "zzz", "zzz ***", "zzz ***Sun Foo 20 01:46:00 2011", "zzz ***Sun Feb 30 01:46:00 2011"]
        {
            assert_eq!(stamp(no), None, "{no}");
        }
    }

    fn meminfo(second: u32, free: u32) -> String {
        format!("zzz ***Sun Nov 20 01:46:{second:02} CET 2011\nMemTotal: 16000 kB\nMemFree: {free} kB\n")
    }

    fn vmstat(second: u32, si: u32, bo: u32) -> String {
        format!(
            "zzz ***Sun Nov 20 01:46:{second:02} CET 2011\n\
             procs -----------memory---------- ---swap-- -----io---- --system-- -----cpu-----\n \
             r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n \
             1  0   8192  12500  10200 398100  999  999   999   999  100  200  1  1 98  0  0\n \
             1  0   8192  12600  10200 398100  {si}   40    20    {bo}  100  200  1  1 98  0  0\n"
        )
    }

    #[test]
    fn both_kinds_are_merged_by_time() {
        let mut source = MemorySource::default();
        // Deliberately out of order.
        source.insert("archive/oswmeminfo/db1_meminfo_11.11.20.0100.dat", meminfo(30, 90) + &meminfo(0, 100));
        source
            .insert("archive/oswvmstat/db1_vmstat_11.11.20.0100.dat", vmstat(10, 0, 0) + &vmstat(20, 80, 7));
        source.insert("archive/oswmeminfo/db1_meminfo_11.11.20.0000.dat.gz", "x");
        let files = files(&source);
        assert_eq!(files.len(), 3);
        let series = read(&source, &files);
        let [(0.0, first), (30.0, second)] = &series.samples[..] else { panic!("{series:?}") };
        assert_eq!(first.get("proc/meminfo"), Some(&b"MemTotal: 16000 kB\nMemFree: 100 kB\n"[..]));
        // 10 s at 80 KiB/s in pages of 4 KiB; the first line of a block, the mean since boot, does not count.
        // The meminfo at 0 s and 30 s are more than half an interval outside.
        assert_eq!((first.get("proc/vmstat"), second.get("proc/vmstat")), (None, None));
        assert!(series.notes.iter().any(|note| note.contains("1 compressed")), "{:?}", series.notes);

        source.insert("archive/oswvmstat/db1_vmstat_11.11.20.0100.dat", vmstat(0, 0, 0) + &vmstat(40, 80, 7));
        let series = read(&source, &files);
        assert_eq!(
            String::from_utf8_lossy(series.samples[1].1.get("proc/vmstat").unwrap()),
            "pgpgin 600\npgpgout 210\npswpin 600\npswpout 300\n"
        );
    }

    #[test]
    fn vmstat_alone_gives_levels_and_flows() {
        let series = read_text((vmstat(0, 4, 1) + &vmstat(30, 4, 1)).as_bytes());
        assert_eq!(series.samples.len(), 2);
        assert_eq!(
            series.samples[1].1.get("proc/meminfo"),
            Some(&b"MemFree: 12600 kB\nBuffers: 10200 kB\nCached: 398100 kB\n"[..])
        );
        assert!(series.samples[1].1.get("proc/vmstat").unwrap().ends_with(b"pswpin 30\npswpout 300\n"));
    }

    #[test]
    fn thousands_of_blocks_are_thinned() {
        let mut text = String::new();
        for i in 0..20_000u32 {
            let (d, h, m, s) = (1 + i * 10 / 86400, i * 10 / 3600 % 24, i * 10 / 60 % 60, i * 10 % 60);
            text += &format!(
                "zzz ***Tue Nov {d} {h:02}:{m:02}:{s:02} UTC 2011\nMemTotal: 16000 kB\nMemFree: {i} kB\n"
            );
        }
        let series = read_text(text.as_bytes());
        assert!(series.samples.len() <= MOST_SAMPLES && series.samples.len() > MOST_SAMPLES / 4);
        let steps: Vec<f64> = series.samples.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(steps.iter().all(|step| *step > 0.0 && *step < 200.0));
    }

    proptest! {
        #[test]
        fn any_lines_are_read_without_a_panic(
            lines in proptest::collection::vec(
                "(zzz [*]{3}(Sun |)(Nov |)[0-9/+-]{0,4} [0-9:]{0,9} [A-Z+-]{0,4}[0-9]{0,5}|MemFree: [0-9]{0,30} kB|r b swpd free buff cache si so bi bo|[0-9 ]{0,60})",
                0..30)
        ) {
            let series = read_text(lines.join("\n").as_bytes());
            prop_assert!(series.samples.is_sorted_by(|a, b| a.0 < b.0));
        }
    }
}
