//! Compares kernel releases as package managers do.
//!
//! Distributions keep the version of the kernel that they started from and count their own changes in the
//! release: `5.14.0-570.127.1.el9_6.x86_64`, `6.4.0-150600.23.87-default`. Whether such a kernel has a fix
//! can only be determined by comparing releases of the same stream, segment by segment.

use std::cmp::Ordering;

/// Compares two version or release texts as RPM does (rpm-version(7)). Segments are maximal runs of digits or
/// letters; digits compare as numbers, letters as text. Digits are newer than letters. `~` is older than
/// anything, even the end; `^` is newer than the end and older than anything else. Other characters only
/// separate. A text with more segments left is newer.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        a = separators_off(a);
        b = separators_off(b);
        match (a.first(), b.first()) {
            (Some(b'~'), Some(b'~')) | (Some(b'^'), Some(b'^')) => {
                (a, b) = (&a[1..], &b[1..]);
                continue;
            }
            (Some(b'~'), _) => return Ordering::Less,
            (_, Some(b'~')) => return Ordering::Greater,
            (Some(b'^'), Some(_)) => return Ordering::Less,
            (Some(_), Some(b'^')) => return Ordering::Greater,
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(_), Some(_)) => {}
        }
        let (left, a_rest) = segment(a);
        let (right, b_rest) = segment(b);
        let numeric = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
        let order = match (numeric(left), numeric(right)) {
            (true, true) => {
                let (left, right) = (without_zeros(left), without_zeros(right));
                left.len().cmp(&right.len()).then_with(|| left.cmp(right))
            }
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => left.cmp(right),
        };
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (a_rest, b_rest);
    }
}

fn separators_off(text: &[u8]) -> &[u8] {
    let counts = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'~' | b'^');
    &text[text.iter().position(counts).unwrap_or(text.len())..]
}

/// The leading run of digits or of letters, and what follows.
fn segment(text: &[u8]) -> (&[u8], &[u8]) {
    let digits = text.first().is_some_and(u8::is_ascii_digit);
    let same = |b: &u8| if digits { b.is_ascii_digit() } else { b.is_ascii_alphabetic() };
    text.split_at(text.iter().position(|b| !same(b)).unwrap_or(text.len()))
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().position(|&b| b != b'0').unwrap_or(digits.len())..]
}

/// A running kernel's release (`uname -r`) taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release<'a> {
    /// Version that the distribution started from: `5.14.0`.
    pub version: &'a str,
    /// The distribution's own count, without its tag: `570.127.1`, `150600.23.87`; empty for other kernels.
    pub build: &'a str,
    /// The tag of an Enterprise Linux build: `el9_6`, `el6`, `el8uek`; empty if there is none.
    pub tag: &'a str,
    /// Processor architecture: `x86_64`, `aarch64`; empty if the release does not name it.
    pub arch: &'a str,
}

/// Architectures at the end of the releases of RPM and Debian kernels, and RPM's spelling of them.
const ARCHES: &[(&str, &str)] = &[
    (".x86_64", "x86_64"),
    (".aarch64", "aarch64"),
    (".ppc64le", "ppc64le"),
    (".s390x", "s390x"),
    (".i686", "i686"),
    ("-amd64", "x86_64"),
    ("-arm64", "aarch64"),
];

impl<'a> Release<'a> {
    /// Splits `release` into its parts.
    pub(crate) fn parse(release: &'a str) -> Self {
        // "+debug" and "+64k" of Enterprise Linux builds follow the architecture.
        let plain = release.split_once('+').map_or(release, |(plain, rest)| match rest.contains('-') {
            // "6.12.43+deb13-amd64": part of Debian's version.
            true => release,
            false => plain,
        });
        let known = ARCHES.iter().find_map(|(suffix, arch)| Some((plain.strip_suffix(suffix)?, *arch)));
        let (rest, arch) = known.unwrap_or((plain, ""));
        let (version, rest) = rest.split_once('-').unwrap_or((rest, ""));
        // The flavour of SLES ("-default") and Ubuntu ("-generic").
        let build = rest.split_once('-').map_or(rest, |(build, _)| build);
        let is_tag = |at: usize| {
            build[at..].strip_prefix(".el").is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
        };
        match build.match_indices(".el").map(|(at, _)| at).find(|&at| is_tag(at)) {
            Some(at) => Release { version, build: &build[..at], tag: &build[at + 1..], arch },
            None => Release { version, build, tag: "", arch },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs with the older one first, from rpm's own rules and from released kernels.
    const ORDERED: &[(&str, &str)] = &[
        ("1.0", "1.1"),
        ("1.9", "1.10"),
        ("1", "1.0"),
        ("1.0", "1.0.1"),
        ("1.0a", "1.0b"),
        ("1.a", "1.0"),
        ("1.0~rc1", "1.0"),
        ("1.0~rc1", "1.0~rc2"),
        ("1.0", "1.0^git1"),
        ("1.0^git1", "1.0^git2"),
        ("1.0^git1", "1.0.1"),
        ("1.0^git1~pre", "1.0^git1"),
        ("99", "100"),
        ("9", "0010"),
        ("570.12.1", "570.127.1"),
        ("570.99.1", "570.127.1"),
        ("570.127.1", "687.13.1"),
        ("150600.23.9", "150600.23.87"),
        ("150500.55.136", "150500.55.136.1"),
        ("18446744073709551615", "18446744073709551616"),
        ("303", "600"),
        ("279.22.1", "303"),
        ("573.26.1", "642"),
    ];

    #[test]
    fn older_before_newer() {
        for (older, newer) in ORDERED {
            assert_eq!(compare(older, newer), Ordering::Less, "{older} < {newer}");
            assert_eq!(compare(newer, older), Ordering::Greater, "{newer} > {older}");
        }
    }

    #[test]
    fn equal_but_for_separators_and_zeros() {
        for (a, b) in [
            ("", ""),
            ("1.0", "1.0"),
            ("1.05", "1.5"),
            ("1_0", "1.0"),
            ("1..0", "1.0"),
            ("1.0.", "1.0"),
            ("a1", "a.1"),
            ("00", "0"),
        ] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} = {b}");
            assert_eq!(compare(b, a), Ordering::Equal, "{b} = {a}");
        }
    }

    #[test]
    fn the_order_is_one() {
        let all: Vec<&str> =
            ORDERED.iter().flat_map(|(a, b)| [*a, *b]).chain(["", "~", "^", "a", "\u{e9}1"]).collect();
        for a in &all {
            assert_eq!(compare(a, a), Ordering::Equal, "{a}");
            for b in &all {
                assert_eq!(compare(a, b), compare(b, a).reverse(), "{a} {b}");
                for c in &all {
                    if compare(a, b) == Ordering::Less && compare(b, c) == Ordering::Less {
                        assert_eq!(compare(a, c), Ordering::Less, "{a} < {b} < {c}");
                    }
                }
            }
        }
    }

    #[test]
    fn releases_of_distributions() {
        let of = |release| {
            let Release { version, build, tag, arch } = Release::parse(release);
            (version, build, tag, arch)
        };
        assert_eq!(of("5.14.0-570.12.1.el9_6.x86_64"), ("5.14.0", "570.12.1", "el9_6", "x86_64"));
        assert_eq!(of("5.14.0-570.12.1.el9_6.aarch64+64k"), ("5.14.0", "570.12.1", "el9_6", "aarch64"));
        assert_eq!(of("5.14.0-570.12.1.el9_6.x86_64+debug"), ("5.14.0", "570.12.1", "el9_6", "x86_64"));
        assert_eq!(of("2.6.32-642.6.2.el6.x86_64"), ("2.6.32", "642.6.2", "el6", "x86_64"));
        assert_eq!(of("2.6.32-303.el6.i686"), ("2.6.32", "303", "el6", "i686"));
        assert_eq!(of("2.6.39-400.215.10.el6uek.x86_64"), ("2.6.39", "400.215.10", "el6uek", "x86_64"));
        assert_eq!(of("6.4.0-150600.23.87-default"), ("6.4.0", "150600.23.87", "", ""));
        assert_eq!(of("5.14.21-150500.55.136-default"), ("5.14.21", "150500.55.136", "", ""));
        assert_eq!(of("6.12.43+deb13-amd64"), ("6.12.43+deb13", "", "", "x86_64"));
        assert_eq!(of("4.19.0-13-arm64"), ("4.19.0", "13", "", "aarch64"));
        assert_eq!(of("5.4.0-42-generic"), ("5.4.0", "42", "", ""));
        assert_eq!(of("5.4.83-v8+"), ("5.4.83", "v8", "", ""));
        assert_eq!(of("2.6.32-042stab145.3"), ("2.6.32", "042stab145.3", "", ""));
        assert_eq!(of("6.18.44"), ("6.18.44", "", "", ""));
        assert_eq!(of(""), ("", "", "", ""));
        assert_eq!(of("1-.el"), ("1", ".el", "", ""));
        assert_eq!(of("1-.el9"), ("1", "", "el9", ""));
        assert_eq!(of("5.4.0-1.elrepo.el8.x86_64"), ("5.4.0", "1.elrepo", "el8", "x86_64"));
    }

    #[test]
    fn no_release_is_too_strange() {
        for text in
            ["-", "--", "+", ".el", "\u{e9}-\u{e9}.el\u{e9}", "~-^", "5.14.0-\u{e9}.el9_6.x86_64", "1+-"]
        {
            let release = Release::parse(text);
            assert_eq!(compare(release.build, release.build), Ordering::Equal);
        }
    }
}
