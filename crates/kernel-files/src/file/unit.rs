//! systemd service units and their drop-ins: their settings of memory.

use std::fmt::Write;

use lotsfree_units::Bytes;
use serde::Serialize;

use super::cgroup::Limit;
use super::scan::{bounded, cut, lines};
use crate::{Log, ProblemKind};

/// One unit with its drop-ins, in the order in which they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// `postgresql.service`.
    pub name: String,
    /// Settings of `[Service]`, `[Slice]` and `[Scope]` that concern memory (`LimitMEMLOCK`, `Memory*`,
    /// `DefaultMemory*`, `OOMScoreAdjust`, `OOMPolicy`, `ManagedOOM*`, `NUMAPolicy`, `NUMAMask`): file, name,
    /// value. The last setting of a name wins. An empty value withdraws the earlier ones, so that none is
    /// kept.
    pub settings: Vec<UnitSetting>,
}

/// One `Name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnitSetting {
    /// The file, without a leading slash.
    pub file: String,
    /// Setting name.
    pub name: Box<str>,
    /// Value as written.
    pub value: String,
}

/// A bound on the settings of one unit.
const MOST_SETTINGS: usize = 256;
/// A bound on a value, in bytes.
const MOST_VALUE: usize = 1024;
/// A bound on a line with its continuations, in bytes.
const MOST_LINE: usize = 4096;
/// The directories in which systemd looks for system units and their drop-ins, the strongest first
/// (`systemd-analyze unit-paths`).
pub const LOOKUP: [&str; 13] = [
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "run/systemd/generator.early",
    "etc/systemd/system",
    "etc/systemd/system.attached",
    "run/systemd/system",
    "run/systemd/system.attached",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
];

impl Unit {
    /// The value that applies.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|s| &*s.name == name).map(|s| s.value.as_str())
    }

    /// Adds the settings of the unit file or drop-in `file`, after those that were added before.
    ///
    /// A `\` at the end of a line continues it, and comments (`#`, `;`) may stand in between, as
    /// systemd.syntax(7) says. Sections and names that do not concern memory are skipped.
    pub fn add_file(&mut self, file: &str, text: &[u8], log: &mut Log) {
        let mut relevant = false;
        let mut whole = Vec::new();
        let mut last = 0;
        for (number, line) in lines(text) {
            let part = line.trim_ascii_start();
            if matches!(part, [b'#' | b';', ..]) {
                continue;
            }
            last = number;
            let more = continues(part);
            let part = if more { &part[..part.len() - 1] } else { part };
            // Longer lines are cut: no setting of memory is that long.
            whole.extend_from_slice(&part[..part.len().min(MOST_LINE.saturating_sub(whole.len()))]);
            if more {
                whole.push(b' ');
            } else {
                self.take(file, number, whole.trim_ascii(), &mut relevant, log);
                whole.clear();
            }
        }
        // The file ended within a continued line.
        self.take(file, last, whole.trim_ascii(), &mut relevant, log);
    }

    /// Reads one line with its continuations; `number` is that of its last line.
    fn take(&mut self, file: &str, number: u32, line: &[u8], relevant: &mut bool, log: &mut Log) {
        if line.is_empty() {
            return;
        }
        if let [b'[', section @ ..] = line {
            match section.strip_suffix(b"]") {
                Some(section) => *relevant = matches!(section, b"Service" | b"Slice" | b"Scope"),
                None => log.malformed(number, "a section's name without its ]"),
            }
            return;
        }
        let Some((name, value)) = cut(line, b'=') else {
            log.malformed(number, "neither a section nor an assignment");
            return;
        };
        let name = name.trim_ascii();
        if !*relevant || !concerns_memory(name) {
            return;
        }
        let name = bounded(name, MOST_VALUE);
        let value = bounded(value.trim_ascii(), MOST_VALUE).trim_ascii().to_owned();
        if value.is_empty() {
            self.settings.retain(|setting| *setting.name != *name);
        } else if self.settings.len() >= MOST_SETTINGS {
            log.whole(ProblemKind::Truncated, format!("more than {MOST_SETTINGS} settings of one unit"));
        } else {
            self.settings.push(UnitSetting { file: file.to_owned(), name: name.into(), value });
        }
    }

    /// Prints the settings that come from `file` as one `[Service]` section (`[Slice]` for a slice).
    pub fn print_file(&self, file: &str, out: &mut String) {
        out.push_str(match self.name.rsplit('.').next() {
            Some("slice") => "[Slice]\n",
            Some("scope") => "[Scope]\n",
            _ => "[Service]\n",
        });
        for setting in self.settings.iter().filter(|setting| setting.file == file) {
            // A space keeps a trailing backslash from continuing the line.
            let end = if continues(setting.value.as_bytes()) { " " } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}={}{end}", setting.name, setting.value);
        }
    }
}

/// Whether a line ends in a backslash that is not itself escaped.
fn continues(line: &[u8]) -> bool {
    line.iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

fn concerns_memory(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 3] = [b"Memory", b"DefaultMemory", b"ManagedOOM"];
    matches!(name, b"LimitMEMLOCK" | b"OOMScoreAdjust" | b"OOMPolicy" | b"NUMAPolicy" | b"NUMAMask")
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Reads `64G`, `1.5G`, `4096` or `infinity`. The suffixes `K`, `M`, `G`, `T`, `P` and `E` are powers of
/// 1024; `B` or no suffix means bytes. `None` for anything else, including percentages.
pub fn parse_size(text: &str) -> Option<Limit> {
    let text = text.trim();
    if text == "infinity" {
        return Some(Limit::Max);
    }
    let (number, shift) = match text.as_bytes().last()? {
        b'B' => (&text[..text.len() - 1], 0),
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        b'T' => (&text[..text.len() - 1], 40),
        b'P' => (&text[..text.len() - 1], 50),
        b'E' => (&text[..text.len() - 1], 60),
        _ => (text, 0),
    };
    let (whole, fraction) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    // Digits after the ninth are dropped.
    let fraction = &fraction[..fraction.len().min(9)];
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = fraction.parse::<u128>().unwrap_or(0);
    let bytes = ((u128::from(whole) * scale + part) << shift) / scale;
    u64::try_from(bytes).ok().map(|bytes| Limit::At(Bytes(bytes)))
}

/// Reads `LimitMEMLOCK=` and similar settings: one size for both limits, or `soft:hard`.
pub fn parse_rlimit(text: &str) -> Option<(Limit, Limit)> {
    match text.split_once(':') {
        Some((soft, hard)) => Some((parse_size(soft)?, parse_size(hard)?)),
        None => parse_size(text).map(|limit| (limit, limit)),
    }
}

/// The directories that may hold drop-ins of `unit`, the strongest first (systemd.unit(5)): its own (for an
/// instance also its template's) and those of each prefix that ends in a dash (`a-b-c.service`:
/// `a-b-.service.d`, `a-.service.d`), in each place where systemd looks for units; then those of its type
/// (`service.d`).
pub fn drop_in_directories(unit: &str) -> Vec<String> {
    let Some((stem, kind)) =
        unit.rsplit_once('.').filter(|(stem, _)| !stem.is_empty() && !unit.contains('/'))
    else {
        return Vec::new();
    };
    let mut names = vec![unit.to_owned()];
    let prefix = stem.split_once('@').map_or(stem, |(prefix, instance)| {
        if !instance.is_empty() {
            names.push(format!("{prefix}@.{kind}"));
        }
        prefix
    });
    let mut rest = prefix.trim_end_matches('-');
    // A bound: a name of dashes only would otherwise yield as many directories as it has letters.
    while let Some(at) = rest.rfind('-').filter(|&at| at > 0 && names.len() < 16) {
        names.push(format!("{}.{kind}", &rest[..=at]));
        rest = rest[..at].trim_end_matches('-');
    }
    let own = LOOKUP.iter().flat_map(|place| names.iter().map(move |name| format!("{place}/{name}.d")));
    let of_type = LOOKUP.iter().map(|place| format!("{place}/{kind}.d"));
    own.chain(of_type).collect()
}

/// The paths at which a unit's main file may be, the strongest first; only the first one that exists counts.
pub fn unit_paths(unit: &str) -> impl Iterator<Item = String> {
    LOOKUP.iter().map(move |place| format!("{place}/{unit}"))
}

/// The drop-ins in the order in which they apply. `listed` has the names found in each of
/// [`drop_in_directories`], in that order. A file hides files of the same name in later directories; the rest
/// apply in the order of their base names, whichever directory they are in.
pub fn drop_in_order(listed: &[(&str, Vec<String>)]) -> Vec<String> {
    super::sysctl::by_base_name(listed.iter().map(|(directory, names)| (*directory, names.as_slice())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::corrupted;

    const TEXT: &[u8] = b"[Unit]\nDescription=x\nMemoryMax=1\n\n[Service]\nExecStart=/bin/x \\\n  -a \\\n# comment\n  MemoryMax=5\n\
        LimitMEMLOCK = 64G\nMemoryLow=\\\n  10G\nMemoryLow=12G\nMemoryHigh=1G\nMemoryHigh=\nOOMScoreAdjust=-900\n\
        ; c\nNUMAPolicy=interleave\nManagedOOMPreference=avoid\nnonsense\n[Install]\nMemoryMax=9\n";

    fn unit(text: &[u8]) -> Unit {
        let mut unit = Unit { name: "db.service".into(), ..Unit::default() };
        unit.add_file("etc/systemd/system/db.service", text, &mut Log::default());
        unit
    }

    #[test]
    fn reads_settings_of_memory() {
        let mut log = Log::default();
        let mut unit = Unit::default();
        unit.add_file("a", TEXT, &mut log);
        assert_eq!(log.problems().iter().map(|p| p.line).collect::<Vec<_>>(), [Some(20)]);
        assert_eq!((unit.setting("MemoryMax"), unit.setting("MemoryHigh")), (None, None));
        assert_eq!((unit.setting("LimitMEMLOCK"), unit.setting("MemoryLow")), (Some("64G"), Some("12G")));
        assert_eq!(unit.setting("OOMScoreAdjust"), Some("-900"));
        let names: Vec<_> = unit.settings.iter().map(|s| &*s.name).collect();
        assert_eq!(
            names,
            [
                "LimitMEMLOCK",
                "MemoryLow",
                "MemoryLow",
                "OOMScoreAdjust",
                "NUMAPolicy",
                "ManagedOOMPreference",
            ]
        );
        // A drop-in withdraws a setting.
        unit.add_file("b", b"[Service]\nMemoryLow=\nMemoryMax=3G", &mut log);
        assert_eq!((unit.setting("MemoryLow"), unit.setting("MemoryMax")), (None, Some("3G")));
    }

    #[test]
    fn lines_continue_over_comments_and_to_the_end() {
        assert_eq!(unit(b"[Service]\nMemoryMax=\\\n# c\n 7G\n").setting("MemoryMax"), Some("7G"));
        assert_eq!(unit(b"[Service]\nMemoryMax=7G\\").setting("MemoryMax"), Some("7G"));
        assert_eq!(unit(b"[Service]\nMemoryMax=7G\\\n# c").setting("MemoryMax"), Some("7G"));
        assert_eq!(unit(b"[Service]\nMemoryMax=7\\\\\nMemoryLow=1").settings.len(), 2);
        assert_eq!(unit(b"[Service]\nMemoryMax=7G\\\n").setting("MemoryMax"), Some("7G"));
        assert_eq!(unit(b"[Service]\nMemoryMax=7G\\\n\nMemoryLow=1G\n").setting("MemoryLow"), Some("1G"));
    }

    #[test]
    fn sizes_have_suffixes_of_1024() {
        let at = |bytes| Some(Limit::At(bytes));
        for (text, limit) in [
            ("infinity", Some(Limit::Max)),
            ("64G", at(Bytes::gib(64))),
            ("1.5G", at(Bytes::mib(1536))),
            ("4096", at(Bytes(4096))),
            ("8 M", at(Bytes::mib(8))),
            ("0", at(Bytes::ZERO)),
            ("7B", at(Bytes(7))),
            ("15.9999999999E", at(Bytes((15_999_999_999u128 << 60).div_euclid(1_000_000_000) as u64))),
            ("", None),
            ("G", None),
            ("16E", None),
            ("50%", None),
            ("-1", None),
            ("1..5G", None),
            ("+1", None),
            ("99999999999999999999", None),
            ("64g", None),
            ("\u{e4}", None),
            (".5G", None),
        ] {
            assert_eq!(parse_size(text), limit, "{text}");
        }
        assert_eq!(parse_rlimit("64G"), Some((Limit::At(Bytes::gib(64)), Limit::At(Bytes::gib(64)))));
        assert_eq!(parse_rlimit("8M:infinity"), Some((Limit::At(Bytes::mib(8)), Limit::Max)));
        assert_eq!((parse_rlimit("8M:"), parse_rlimit(":"), parse_rlimit("1:2:3")), (None, None, None));
    }

    #[test]
    fn drop_ins_come_from_all_levels() {
        let directories = drop_in_directories("a-b@1.service");
        let at = |path: &str| directories.iter().position(|found| found == path).expect(path);
        let ranked = [
            "etc/systemd/system.control/a-b@1.service.d",
            "etc/systemd/system/a-b@1.service.d",
            "etc/systemd/system/a-b@.service.d",
            "etc/systemd/system/a-.service.d",
            "run/systemd/system/a-b@1.service.d",
            "usr/lib/systemd/system/a-.service.d",
            "etc/systemd/system/service.d",
            "usr/lib/systemd/system/service.d",
        ];
        assert!(ranked.map(at).is_sorted());
        assert_eq!(drop_in_directories("db.service").len(), 26);
        assert!(drop_in_directories("../x.service").is_empty() && drop_in_directories("x").is_empty());
        assert!(drop_in_directories(&format!("{}.service", "a-".repeat(1000))).len() < 300);
        let listed = [
            ("etc/systemd/system/db.service.d", vec!["20-x.conf".to_owned(), "x".to_owned()]),
            ("usr/lib/systemd/system/db.service.d", vec!["20-x.conf".to_owned(), "10-y.conf".to_owned()]),
        ];
        assert_eq!(
            drop_in_order(&listed),
            ["usr/lib/systemd/system/db.service.d/10-y.conf", "etc/systemd/system/db.service.d/20-x.conf"]
        );
        assert_eq!(unit_paths("db.service").nth(4).as_deref(), Some("etc/systemd/system/db.service"));
    }

    fn read_back(read: &Unit) {
        let mut printed = String::new();
        read.print_file("etc/systemd/system/db.service", &mut printed);
        assert_eq!(unit(printed.as_bytes()), *read, "{printed:?}");
    }

    #[test]
    fn truncated_at_every_byte() {
        for end in 0..=TEXT.len() {
            read_back(&unit(&TEXT[..end]));
        }
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(lines in prop::collection::vec(
            "(LimitMEMLOCK|Memory[A-Za-z\\\\ ]{0,6}|NUMAMask)= ?[0-9a-zG:#\\\\ ]{0,8}", 0..8,
        )) {
            read_back(&unit(format!("[Service]\n{}", lines.join("\n")).as_bytes()));
        }

        #[test]
        fn survives_hostile_input(text in corrupted(TEXT)) {
            read_back(&unit(&text));
        }

        #[test]
        fn whole_sizes_read_as_written(number in 0u64..1 << 24, suffix in 0usize..4) {
            let unit = ["", "K", "M", "G"][suffix];
            let bytes = number << (10 * suffix);
            prop_assert_eq!(parse_size(&format!("{number}{unit}")), Some(Limit::At(Bytes(bytes))));
        }
    }
}
