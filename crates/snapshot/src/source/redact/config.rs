//! Configuration: files of `sysctl.d`, `limits.d` and units, the kernel's parameters and release, the
//! distribution.
//!
//! Lines keep their numbers, because findings name them: a removed line leaves an empty one, and a line that
//! no parser would understand leaves another such line ([`BROKEN`]).

use super::lines;
use super::lists::{
    ACCOUNTS, BOOT_FLAGS, BOOT_OPTIONS, BOOT_VALUES, CHOICES, DISTRIBUTIONS, LIMITS, PROFILES, RELEASES,
    SECTIONS, SYSCTLS, UNIT_SETTINGS, UNIT_VALUES, UNLIMITED, VM,
};
use super::names::Names;
use super::words::{Words, is_decimal, is_number, is_size};

/// Replaces a line that no parser would understand.
const BROKEN: &str = "redacted";

impl Names {
    /// Redacts a line of `limits.conf`: domain, type, item, value.
    pub(super) fn limit(&mut self, line: &str) -> String {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with('#') {
            return bare.chars().take(1).collect();
        }
        // A name that contains a space is in quotes.
        let quoted = bare.strip_prefix('"').map(|rest| rest.split_once('"'));
        let (domain, rest) = match quoted {
            Some(Some((domain, rest))) if !domain.is_empty() && rest.starts_with([' ', '\t']) => {
                (domain, rest)
            }
            Some(_) => return BROKEN.to_owned(),
            None => bare.split_at(bare.find(|c: char| c.is_ascii_whitespace()).unwrap_or(bare.len())),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let words: Vec<String> = rest.split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["-"] => format!("{} -", self.account(domain)),
            [kind @ ("soft" | "hard" | "-"), item, value, ..] => {
                let item = if LIMITS.has(item) { item.to_owned() } else { self.token("name", item) };
                let value = if is_number(value) || UNLIMITED.has(value) { value } else { "redacted" };
                format!("{} {kind} {item} {value}", self.account(domain))
            }
            _ => BROKEN.to_owned(),
        }
    }

    /// Redacts `oracle`, `@group`, `%group`, `*` or `1000:2000`.
    fn account(&mut self, domain: &str) -> String {
        let (sign, account) = match domain.strip_prefix(['@', '%']) {
            Some(account) => (&domain[..1], account),
            None => ("", domain),
        };
        let range = account.split(':').all(|id| id.is_empty() || is_decimal(id));
        if ACCOUNTS.has(account) || (range && account.len() > 1) {
            return domain.to_owned();
        }
        format!("{sign}{}", self.token(if sign.is_empty() { "user" } else { "group" }, account))
    }

    /// Redacts the words that name a profile of tuned.
    pub(super) fn profile(&mut self, line: &str) -> String {
        let words: Vec<String> = line.split_ascii_whitespace().map(|name| self.profile_name(name)).collect();
        words.join(" ")
    }

    fn profile_name(&mut self, name: &str) -> String {
        if PROFILES.has(name) {
            return name.to_owned();
        }
        // On SLES 12 sapconf and saptune were profiles of tuned; a profile whose name contains one of them is
        // one.
        let tuner =
            ["sapconf-", "saptune-"].into_iter().find(|tuner| name.contains(tuner.trim_end_matches('-')));
        format!("{}{}", tuner.unwrap_or(""), self.token("profile", name))
    }

    /// Redacts a kernel's release: numbers stay, and the words that distributions write.
    pub(super) fn release(&mut self, release: &str) -> String {
        let mut out = String::with_capacity(release.len());
        let mut word = String::new();
        for c in release.trim().chars().chain(['\n']) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if word.is_empty() || is_decimal(&word) || RELEASES.has(&word) {
                out.push_str(&word);
            } else {
                out.push_str(&self.token("local", &word));
            }
            word.clear();
            if matches!(c, '.' | '-' | '+' | '~') {
                out.push(c);
            }
        }
        out
    }

    /// Redacts `/proc/version`: of `Linux version RELEASE (builder) …` only the release stays.
    pub(super) fn version(&mut self, line: &str) -> String {
        match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            ["Linux", "version", release, ..] => format!("Linux version {}", self.release(release)),
            _ => String::new(),
        }
    }

    /// Redacts a line of `os-release`: `ID` and `VERSION_ID` stay.
    pub(super) fn os_release(&mut self, line: &str) -> String {
        let Some((name @ ("ID" | "VERSION_ID"), value)) = line.trim().split_once('=') else {
            return String::new();
        };
        let bare = value.trim_matches(['"', '\'']);
        if !bare.is_empty() && value.len() - bare.len() == 1 {
            // The quote is not closed.
            return format!("{name}=\"");
        }
        let known = bare.is_empty() || if name == "ID" { DISTRIBUTIONS.has(bare) } else { is_number(bare) };
        if known { format!("{name}={value}") } else { format!("{name}={}", self.token("distribution", bare)) }
    }
}

/// Redacts a line of a file of `sysctl.d`: known settings stay.
pub(super) fn setting(line: &str) -> String {
    let bare = line.trim();
    if bare.is_empty() || bare.starts_with(['#', ';']) {
        return bare.chars().take(1).collect();
    }
    match bare.split_once('=') {
        Some((name, _)) if name.trim().is_empty() => "=".to_owned(),
        Some((name, value)) if is_setting(name) => {
            let kept = plain_words(value, &[&CHOICES]);
            if kept == value { bare.to_owned() } else { format!("{}= {}", name, kept.trim()) }
        }
        None if bare.starts_with('-') && is_setting(bare) => bare.to_owned(),
        None if !bare.starts_with('-') => BROKEN.to_owned(),
        _ => String::new(),
    }
}

/// Whether the name of a setting is known. It may have dots or slashes, globs or a leading `-`.
fn is_setting(name: &str) -> bool {
    let name = name.trim();
    let name = name.strip_prefix('-').unwrap_or(name).trim().replace('/', ".");
    let known = || VM.all().map(|name| format!("vm.{name}")).chain(SYSCTLS.all().map(str::to_owned));
    match name.strip_prefix("vm.") {
        Some(rest) if VM.has(rest) => true,
        _ if SYSCTLS.has(&name) => true,
        _ if name.contains(['*', '?']) => known().any(|known| is_match(name.as_bytes(), known.as_bytes())),
        _ => false,
    }
}

/// Whether a glob of `*` and `?` matches the whole of a text.
fn is_match(glob: &[u8], text: &[u8]) -> bool {
    // The position at which to retry if the rest does not match: after the last star, one byte further in the
    // text.
    let (mut at, mut of, mut again) = (0, 0, None);
    while of < text.len() {
        match glob.get(at) {
            Some(b'*') => {
                again = Some((at + 1, of));
                at += 1;
            }
            Some(&c) if c == b'?' || c == text[of] => (at, of) = (at + 1, of + 1),
            _ => match again {
                Some((behind, from)) => {
                    again = Some((behind, from + 1));
                    (at, of) = (behind, from + 1);
                }
                None => return false,
            },
        }
    }
    glob[at..].iter().all(|&c| c == b'*')
}

/// Redacts a unit or a drop-in: sections and known settings stay. Continued lines become one, at the place of
/// the last of them.
pub(super) fn unit(text: &str) -> String {
    let mut out = String::new();
    let mut whole = String::new();
    for line in lines(text) {
        let part = line.trim_start();
        if !part.starts_with(['#', ';']) {
            let more = part.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1;
            whole.push_str(if more { &part[..part.len() - 1] } else { part });
            if more {
                whole.push(' ');
            } else {
                out.push_str(&unit_line(whole.trim()));
                whole.clear();
            }
        }
        out.push('\n');
    }
    // The file ended within a continued line, of which the last one has its place already.
    let rest = unit_line(whole.trim());
    if !rest.is_empty() {
        out.pop();
        out.push_str(&rest);
        out.push('\n');
    }
    out
}

fn unit_line(line: &str) -> String {
    if let Some(section) = line.strip_prefix('[') {
        return match section.strip_suffix(']') {
            Some(section) if SECTIONS.has(section) => line.to_owned(),
            Some(_) => "[X-Redacted]".to_owned(),
            None => "[".to_owned(),
        };
    }
    match line.split_once('=') {
        Some((name, value)) if UNIT_SETTINGS.has(name.trim()) => {
            format!("{}={}", name.trim(), plain_words(value.trim(), &[&UNIT_VALUES]))
        }
        None if !line.is_empty() => BROKEN.to_owned(),
        _ => String::new(),
    }
}

/// Redacts the kernel command line: known parameters stay. Arguments for init, after `--`, do not.
pub(super) fn boot(line: &str) -> String {
    let own = line.split_ascii_whitespace().take_while(|word| *word != "--");
    let words: Vec<String> = own.filter_map(boot_word).collect();
    words.join(" ")
}

fn boot_word(word: &str) -> Option<String> {
    match word.split_once('=') {
        Some((name, value)) => {
            BOOT_OPTIONS.has(name).then(|| format!("{name}={}", plain_words(value, &[&BOOT_VALUES])))
        }
        None => (BOOT_FLAGS.has(word) || BOOT_OPTIONS.has(word)).then(|| word.to_owned()),
    }
}

/// Redacts the value of a setting: each word between white space, commas and colons becomes `redacted` unless
/// it is a number, a size or in one of `lists`.
pub(super) fn plain_words(value: &str, lists: &[&Words]) -> String {
    let plain = |part: &str| part.is_empty() || is_size(part) || lists.iter().any(|list| list.has(part));
    let mut out = String::with_capacity(value.len());
    for piece in value.split_inclusive(|c: char| c.is_ascii_whitespace() || matches!(c, ',' | ':')) {
        let part = piece.trim_end_matches(|c: char| c.is_ascii_whitespace() || matches!(c, ',' | ':'));
        out.push_str(if plain(part) { part } else { "redacted" });
        out.push_str(&piece[part.len()..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_well_known_accounts_stay() {
        let mut names = Names::default();
        for (line, kept) in [
            ("# for joe", "#"),
            ("", ""),
            ("oracle soft memlock 1", "oracle soft memlock 1"),
            ("joe hard memlock 2 # joe", "user1 hard memlock 2"),
            ("@joes - as 3", "@group1 - as 3"),
            ("* soft core 0", "* soft core 0"),
            ("@500:600 hard nofile unlimited", "@500:600 hard nofile unlimited"),
            ("\"acme users\" soft acme joe", "user2 soft name1 redacted"),
            ("joe -", "user1 -"),
            ("acme", "redacted"),
            ("\"acme", "redacted"),
        ] {
            assert_eq!(names.limit(line), kept);
        }
    }

    #[test]
    fn settings_stay_whatever_the_host_is_called() {
        for line in [
            "vm.swappiness = 1",
            "vm/swappiness=10",
            "-vm.nr_hugepages = 5",
            "-vm.swappiness",
            "vm.dirty_* = 1",
            "kernel.sem=250 32000 100 128",
        ] {
            assert_eq!(setting(line), line);
        }
        for (line, kept) in [
            ("# Joe", "#"),
            ("kernel.core_pattern = |/opt/acme %p", ""),
            ("kernel.hostname = acme", ""),
            ("vm.acme = 1", ""),
            ("vm.*acme* = 1", ""),
            ("-acme", ""),
            ("vm.swappiness = 1 # acme", "vm.swappiness = 1 redacted redacted"),
            ("acme", "redacted"),
        ] {
            assert_eq!(setting(line), kept, "{line}");
        }
    }

    #[test]
    fn units_keep_what_is_about_memory_and_their_line_numbers() {
        let text = "# acme\n[Service]\nEnvironment=TOKEN=1 \\\n  X=acme\nUser=joe\nLimitMEMLOCK=infinity\nMemoryMax=4G\nMemoryAcme=1\n\
                    MemoryHigh=/acme\n[Acme]\nacme\nManagedOOMPreference=avoid\nMemoryLow=\\\n# acme\n 1G\n";
        assert_eq!(
            unit(text),
            "\n[Service]\n\n\n\nLimitMEMLOCK=infinity\nMemoryMax=4G\n\nMemoryHigh=redacted\n[X-Redacted]\nredacted\nManagedOOMPreference=avoid\n\n\nMemoryLow=1G\n"
        );
    }

    #[test]
    fn a_unit_that_ends_within_a_continued_line_gets_no_line_more() {
        for (text, kept) in [
            ("acme \\", "redacted\n"),
            ("MemoryMax=\\\n 4G \\\n", "\nMemoryMax=4G\n"),
            ("MemoryMax=4G \\\n# acme\n", "\nMemoryMax=4G\n"),
        ] {
            assert_eq!(unit(text), kept, "{text:?}");
        }
    }

    #[test]
    fn parameters_are_kept_by_name_and_value() {
        assert_eq!(
            boot(
                "BOOT_IMAGE=/vmlinuz root=UUID=acme ro hugepages=0:2,1:3 hugepagesz=2M transparent_hugepage=never ip=10.0.0.1 psi=1 acme.x=1 zswap.zpool=acme quiet -- --token x"
            ),
            "ro hugepages=0:2,1:3 hugepagesz=2M transparent_hugepage=never psi=1 zswap.zpool=redacted quiet"
        );
    }

    #[test]
    fn releases_keep_the_words_of_distributions() {
        let mut names = Names::default();
        for release in [
            "6.12.43+deb13-amd64",
            "5.14.0-570.127.1.el9_6.x86_64",
            "6.4.0-150600.23.81-default",
            "5.15.0-209.161.7.2.el9uek.x86_64",
            "4.18.0-147.5.1.el8_1.aarch64",
            "5.4.0-42-generic",
            "6.18.44",
            "2.6.32-400.37.15.el6uek.x86_64",
        ] {
            assert_eq!(names.release(release), release);
        }
        assert_eq!(names.release("6.1.0-acme_7+joe"), "6.1.0-local1+local2");
        assert_eq!(names.version("Linux version 6.1.0 (joe@acme) (gcc) #1"), "Linux version 6.1.0");
    }

    #[test]
    fn distributions_and_profiles() {
        let mut names = Names::default();
        for (line, kept) in [
            ("ID=\"rhel\"", "ID=\"rhel\""),
            ("VERSION_ID='9.6'", "VERSION_ID='9.6'"),
            ("NAME=Acme", ""),
            ("ID=acmeos", "ID=distribution1"),
            ("VERSION_ID=joe", "VERSION_ID=distribution2"),
            ("ID=\"rhel", "ID=\""),
        ] {
            assert_eq!(names.os_release(line), kept);
        }
        assert_eq!(
            names.profile("throughput-performance acme acme-sapconf"),
            "throughput-performance profile1 sapconf-profile2"
        );
    }
}
