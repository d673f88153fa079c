//! Running values below `/proc/sys` and the files that set them at boot.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::scan::{bounded, cut, lines};
use crate::{File, Log, ProblemKind};

/// Running values by sysctl name (`vm.swappiness`), trimmed; inner white space is as the kernel prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Sysctls(pub BTreeMap<Box<str>, Box<str>>);

/// A bound on the number of running values.
const MOST_VALUES: usize = 16_384;
/// A bound on names and values, in bytes.
const MOST_TEXT: usize = 4096;
/// Prefixes of names that exist once per network interface. Hosts with containers have hundreds of thousands
/// of them, and they say nothing about memory.
const PER_INTERFACE: [&str; 5] =
    ["net.ipv4.conf.", "net.ipv4.neigh.", "net.ipv6.conf.", "net.ipv6.neigh.", "net.mpls.conf."];
/// The prefix of messages by the `sysctl` program itself.
const MESSAGE: &str = "sysctl:";

impl Sysctls {
    /// The value as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| &**value)
    }

    /// The value as one number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The value as a list of numbers (`vm.lowmem_reserve_ratio`, `kernel.sem`).
    pub fn numbers(&self, name: &str) -> Option<Vec<u64>> {
        self.text(name)?.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
    }
}

/// The output of `sysctl -a`: `vm.swappiness = 60`.
impl File for Sysctls {
    /// Reads one value per line. Messages of the `sysctl` program, which saved output may contain, and
    /// settings of single network interfaces are skipped.
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut values = BTreeMap::new();
        for (number, line) in lines(text) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(MESSAGE.as_bytes()) {
                continue;
            }
            let Some((name, value)) = cut(line, b'=') else {
                log.malformed(number, "no = between a name and a value");
                continue;
            };
            let name = normalized(name.trim_ascii());
            if name.is_empty() {
                log.malformed(number, "a value without a name");
                continue;
            }
            if name.starts_with(MESSAGE) || PER_INTERFACE.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            if values.len() >= MOST_VALUES {
                log.whole(ProblemKind::Truncated, format!("more than {MOST_VALUES} values"));
                break;
            }
            values.insert(name.into(), trimmed(value).into());
        }
        Sysctls(values)
    }

    fn print(&self, out: &mut String) {
        for (name, value) in &self.0 {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name} = {value}");
        }
    }
}

/// One `key = value` of a `sysctl.conf` or `sysctl.d` file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SysctlSetting {
    /// The file, without a leading slash.
    pub file: String,
    /// Line, counted from 1.
    pub line: u32,
    /// The name with dots; `*` globs are kept. An exclusion (`-name` without a value, which keeps globs from
    /// setting `name`) keeps its `-` and has an empty value. The `-` of `-name = value` (ignore a failure) is
    /// removed.
    pub name: String,
    /// The value, trimmed.
    pub value: String,
}

/// A bound on the settings of one file.
const MOST_SETTINGS: usize = 4096;

impl SysctlSetting {
    /// Reads one file. Comments begin with `#` or `;`; names have dots or slashes, as in sysctl.d(5).
    pub fn parse_file(file: &str, text: &[u8], log: &mut Log) -> Vec<SysctlSetting> {
        let mut settings = Vec::new();
        for (number, line) in lines(text) {
            let line = line.trim_ascii();
            if matches!(line, [] | [b'#' | b';', ..]) {
                continue;
            }
            let (name, value) = match (cut(line, b'='), line) {
                (Some((name, value)), _) => {
                    let name = name.trim_ascii();
                    (normalized(name.strip_prefix(b"-").unwrap_or(name).trim_ascii()), trimmed(value))
                }
                (None, [b'-', name @ ..]) => match normalized(name.trim_ascii()) {
                    name if name.is_empty() => (name, String::new()),
                    name => (format!("-{name}"), String::new()),
                },
                (None, _) => {
                    log.malformed(number, "neither an assignment nor an exclusion");
                    continue;
                }
            };
            if name.is_empty() {
                log.malformed(number, "a setting without a name");
                continue;
            }
            if settings.len() >= MOST_SETTINGS {
                log.whole(ProblemKind::Truncated, format!("more than {MOST_SETTINGS} settings"));
                break;
            }
            settings.push(SysctlSetting { file: file.to_owned(), line: number, name, value });
        }
        settings
    }

    /// Prints the settings of one file, each on its own line number, so that they read back the same.
    pub fn print_file(settings: &[SysctlSetting], out: &mut String) {
        let mut line = 1;
        for setting in settings {
            while line < setting.line {
                out.push('\n');
                line += 1;
            }
            // Writing to a String cannot fail.
            let _ = match setting.is_exclusion() {
                true => writeln!(out, "{}", setting.name),
                false => writeln!(out, "{} = {}", setting.name, setting.value),
            };
            line += 1;
        }
    }

    /// Whether it sets nothing and only keeps globs from setting a name.
    pub fn is_exclusion(&self) -> bool {
        self.name.starts_with('-')
    }

    /// Whether the name is a pattern.
    pub fn is_glob(&self) -> bool {
        self.name.contains(['*', '?', '['])
    }
}

/// A name with dots between its parts. If the first separator of a name is a slash, slashes separate and dots
/// are part of names. The result then has the two exchanged, so that `net/ipv4/conf/eth0.1/forwarding` and
/// `net.ipv4.conf.eth0/1.forwarding` are the same (sysctl.d(5)).
fn normalized(name: &[u8]) -> String {
    let name = bounded(name, MOST_TEXT);
    // No real name begins with these characters; one that did would read back differently.
    let name =
        name.trim_start_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '-' | '#' | ';'));
    let name = name.trim_end_matches(|c: char| c.is_ascii_whitespace());
    if name.find(['/', '.']).is_none_or(|at| name.as_bytes()[at] == b'.') {
        return name.to_owned();
    }
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        c => c,
    };
    name.chars().map(swap).collect()
}

/// A value without white space around it.
fn trimmed(value: &[u8]) -> String {
    let value = bounded(value.trim_ascii(), MOST_TEXT);
    value.trim_ascii().to_owned()
}

/// The directories of `*.conf` files, the strongest first: a file hides files of the same name in later
/// directories.
pub const DIRECTORIES: [&str; 5] =
    ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];

/// The paths in the order in which their settings apply at boot.
///
/// `listed` has the names found in each of [`DIRECTORIES`], in any order. `conf` says that `etc/sysctl.conf`
/// exists and is not what one of the listed files (`99-sysctl.conf`, on Debian and Fedora) links to: then it
/// comes last, as in `sysctl --system`; `systemd-sysctl` alone does not read it.
pub fn application_order(listed: &[(&str, Vec<String>)], conf: bool) -> Vec<String> {
    let mut ranked: Vec<_> = listed.iter().collect();
    ranked.sort_by_key(|(directory, _)| {
        DIRECTORIES.iter().position(|known| known == directory).unwrap_or(DIRECTORIES.len())
    });
    let ranked = ranked.into_iter().map(|(directory, names)| (*directory, names.as_slice()));
    let mut paths = by_base_name(ranked);
    if conf {
        paths.push("etc/sysctl.conf".to_owned());
    }
    paths
}

/// The `*.conf` files of several directories, strongest directory first, as systemd merges them: one file of
/// a base name hides the others of that name, and all apply in the order of their base names (bytes, no
/// locale).
pub(super) fn by_base_name<'a>(listed: impl Iterator<Item = (&'a str, &'a [String])>) -> Vec<String> {
    let mut first = BTreeMap::new();
    for (directory, names) in listed {
        for name in names.iter().filter(|name| name.ends_with(".conf") && !name.contains('/')) {
            first.entry(name.as_str()).or_insert(directory);
        }
    }
    first.into_iter().map(|(name, directory)| format!("{directory}/{name}")).collect()
}

/// The setting that wins at boot: `systemd-sysctl` applies files in the order of their base names over all
/// directories (one in `/etc` hides one of the same name elsewhere), `/etc/sysctl.conf` last, and the last
/// assignment stands. A name that is spelled out goes before every glob, wherever it stands, and an exclusion
/// keeps globs away from it.
pub fn winner<'a>(settings: &'a [SysctlSetting], name: &str) -> Option<&'a SysctlSetting> {
    let exact = |setting: &&SysctlSetting| setting.name.strip_prefix('-').unwrap_or(&setting.name) == name;
    match settings.iter().rev().find(exact) {
        Some(setting) if setting.is_exclusion() => None,
        Some(setting) => Some(setting),
        None => settings.iter().rev().find(|setting| {
            !setting.is_exclusion() && setting.is_glob() && matches(setting.name.as_bytes(), name.as_bytes())
        }),
    }
}

/// Whether a glob matches a name. As in glob(7) for paths, `*`, `?` and `[…]` match within one part only.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut patterns = pattern.split(|&b| b == b'.');
    let mut names = name.split(|&b| b == b'.');
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if part_matches(pattern, name) => {}
            _ => return false,
        }
    }
}

/// Matches one part. Only the last `*` is ever tried again: what stands before it has matched as early as it
/// can.
fn part_matches(mut pattern: &[u8], mut name: &[u8]) -> bool {
    let mut retry = None;
    loop {
        let step = match (pattern, name) {
            ([b'*', rest @ ..], _) => {
                retry = Some((rest, name));
                Some((rest, name))
            }
            ([], []) => return true,
            ([], _) | (_, []) => None,
            ([b'?', rest @ ..], [_, after @ ..]) => Some((rest, after)),
            ([b'[', set @ ..], [byte, after @ ..]) => match bracket(set, *byte) {
                Some((true, rest)) => Some((rest, after)),
                Some((false, _)) => None,
                None => (*byte == b'[').then_some((set, after)),
            },
            ([expected, rest @ ..], [byte, after @ ..]) => (expected == byte).then_some((rest, after)),
        };
        (pattern, name) = match (step, retry) {
            (Some(step), _) => step,
            (None, Some((rest, [_, after @ ..]))) => {
                retry = Some((rest, after));
                (rest, after)
            }
            (None, _) => return false,
        };
    }
}

/// Whether `byte` is in the set that `text` begins with, and what follows the set's `]`; `None` if it has
/// none.
fn bracket(text: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, set) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    // A `]` that comes first is a member.
    let end = 1 + set.get(1..)?.iter().position(|&b| b == b']')?;
    let mut members = &set[..end];
    let mut found = false;
    while let Some((&low, rest)) = members.split_first() {
        members = match rest {
            [b'-', high, rest @ ..] => {
                found |= (low..=*high).contains(&byte);
                rest
            }
            _ => {
                found |= low == byte;
                rest
            }
        };
    }
    Some((found != negated, &set[end + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{corrupted, round_trip};

    const CONF: &[u8] = b"# comment\n; too\n\nvm.swappiness = 10\n  -vm/zone_reclaim_mode=0  \n\
        net/ipv4/conf/eth0.100/forwarding = 1\nnet.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.hub0.rp_filter\n\
        kernel.sem = 250\t32000 100  128\nkernel.core_pattern = |/bin/x a=b # c\nnonsense\n= 5\nvm.empty =\n";

    fn settings(text: &[u8]) -> Vec<SysctlSetting> {
        SysctlSetting::parse_file("etc/sysctl.d/x.conf", text, &mut Log::default())
    }

    #[test]
    fn reads_the_grammar_of_sysctl_d() {
        let mut log = Log::default();
        let read = SysctlSetting::parse_file("etc/sysctl.d/x.conf", CONF, &mut log);
        let read: Vec<_> = read.iter().map(|s| (s.line, &*s.name, &*s.value)).collect();
        assert_eq!(
            read,
            [
                (4, "vm.swappiness", "10"),
                (5, "vm.zone_reclaim_mode", "0"),
                (6, "net.ipv4.conf.eth0/100.forwarding", "1"),
                (7, "net.ipv4.conf.*.rp_filter", "2"),
                (8, "-net.ipv4.conf.hub0.rp_filter", ""),
                (9, "kernel.sem", "250\t32000 100  128"),
                (10, "kernel.core_pattern", "|/bin/x a=b # c"),
                (13, "vm.empty", ""),
            ]
        );
        let lines: Vec<_> = log.problems().iter().map(|p| p.line).collect();
        assert_eq!(lines, [Some(11), Some(12)]);
    }

    #[test]
    fn names_that_are_spelled_out_win_over_globs() {
        let read = settings(CONF);
        let won = |name| winner(&read, name).map(|s| &*s.value);
        assert_eq!(won("net.ipv4.conf.eth0.rp_filter"), Some("2"));
        assert_eq!(won("net.ipv4.conf.hub0.rp_filter"), None);
        assert_eq!(won("net.ipv4.conf.a.b.rp_filter"), None);
        let read = settings(b"vm.swappiness = 1\nvm.swap* = 2\nvm.dirty_* = 3\nvm.dirty_*=4\nvm.x=5\n-vm.x\nvm.swappiness = 6\n-vm.y\nvm.y=7\n");
        let won = |name| winner(&read, name).map(|s| &*s.value);
        assert_eq!((won("vm.swappiness"), won("vm.dirty_ratio")), (Some("6"), Some("4")));
        assert_eq!((won("vm.x"), won("vm.y"), won("vm.z")), (None, Some("7"), None));
    }

    #[test]
    fn globs_match_as_paths_do() {
        for (pattern, name) in [
            ("*", "a"),
            ("a*b*c", "axxbxbc"),
            ("?x", "ax"),
            ("[a-c]x", "bx"),
            ("[!a]x", "bx"),
            ("[]]", "]"),
            ("[x", "[x"),
            ("**", ""),
            ("vm.*", "vm.a"),
            ("*a", "aaaa"),
            ("[a-]", "-"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*", "a.b"),
            ("a*b", "axbx"),
            ("?", ""),
            ("[a-c]", "d"),
            ("[!a]x", "ax"),
            ("a", "ab"),
            ("ab", "a"),
            ("vm.*", "vm"),
            ("[]", "x"),
        ] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        // Patterns made to explode do not.
        let pattern = format!("{}b", "*a".repeat(2000));
        assert!(!matches(pattern.as_bytes(), "a".repeat(4000).as_bytes()));
    }

    #[test]
    fn files_apply_by_base_name_and_etc_hides_the_rest() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let listed = [
            ("usr/lib/sysctl.d", names(&["50-default.conf", "10-map-count.conf", "99-sysctl.conf"])),
            ("etc/sysctl.d", names(&["90-db.conf", "50-default.conf", "README", "x.conf~", "9-first.conf"])),
            ("run/sysctl.d", names(&["90-db.conf", "60-run.conf"])),
            ("lib/sysctl.d", names(&["10-map-count.conf"])),
            ("usr/local/lib/sysctl.d", names(&["60-run.conf", "A.conf"])),
        ];
        let expected = [
            "usr/lib/sysctl.d/10-map-count.conf",
            "etc/sysctl.d/50-default.conf",
            "run/sysctl.d/60-run.conf",
            "etc/sysctl.d/9-first.conf",
            "etc/sysctl.d/90-db.conf",
            "usr/lib/sysctl.d/99-sysctl.conf",
            "usr/local/lib/sysctl.d/A.conf",
        ];
        assert_eq!(application_order(&listed, false), expected);
        assert_eq!(application_order(&[], true), ["etc/sysctl.conf"]);
    }

    #[test]
    fn reads_sysctl_a() {
        let text = b"abi.vsyscall32 = 1\nkernel.modprobe = \nkernel.sem = 32000\t1024000000\t500\t32000\n\
            sysctl: permission denied on key 'kernel.x'\nnet.ipv4.conf.veth1.rp_filter = 0\nvm.swappiness = 60\nbad\n";
        let mut log = Log::default();
        let values = Sysctls::parse(text, &mut log);
        assert_eq!(values.number("vm.swappiness"), Some(60));
        assert_eq!(values.numbers("kernel.sem"), Some(vec![32000, 1_024_000_000, 500, 32000]));
        assert_eq!((values.text("kernel.modprobe"), values.0.len()), (Some(""), 4));
        assert_eq!(log.problems().len(), 1);
        round_trip(&values);
    }

    #[test]
    fn both_are_bounded() {
        let text: String = (0..20_000).map(|i| format!("vm.a{i} = 1\n")).collect();
        let mut log = Log::default();
        assert_eq!(Sysctls::parse(text.as_bytes(), &mut log).0.len(), MOST_VALUES);
        assert_eq!(settings(text.as_bytes()).len(), MOST_SETTINGS);
        assert_eq!(log.problems().len(), 1);
    }

    fn read_back(read: &[SysctlSetting]) {
        let mut printed = String::new();
        SysctlSetting::print_file(read, &mut printed);
        assert_eq!(settings(printed.as_bytes()), read, "{printed:?}");
    }

    proptest! {
        #[test]
        fn prints_the_values_it_reads(values in prop::collection::btree_map("[a-z_]{1,8}(\\.[a-z0-9/*]{1,9}){1,4}", "([!-~]([ -~]{0,20}[!-~])?)?", 0..6)) {
            round_trip(&Sysctls(values.into_iter().map(|(k, v)| (k.into(), v.into())).collect()));
        }

        #[test]
        fn prints_the_settings_it_reads(lines in prop::collection::vec("(-|#)? ?[a-z./*\\[-]{0,12} ?(= ?[ -~]{0,12})?", 0..8)) {
            read_back(&settings(lines.join("\n").as_bytes()));
        }

        #[test]
        fn survives_hostile_input(text in corrupted(CONF)) {
            read_back(&settings(&text));
            round_trip(&Sysctls::parse(&text, &mut Log::default()));
        }

        #[test]
        fn globs_never_fail(pattern in "[a*?\\[\\]!.-]{0,16}", name in "[a.\\]-]{0,16}") {
            matches(pattern.as_bytes(), name.as_bytes());
        }
    }
}
