//! [`Names`]: the token for each name, the same name having the same token.

use std::collections::BTreeMap;

/// The beginnings of tokens; a number follows. A word of this form in a redacted archive is a token.
pub const TOKENS: &[&str] = &[
    "device",
    "dir",
    "distribution",
    "dm",
    "file",
    "fs",
    "group",
    "host",
    "id",
    "kthread",
    "local",
    "name",
    "profile",
    "program",
    "shm",
    "sid",
    "slab",
    "unit",
    "user",
    "volume",
    "word",
];

/// Names with their tokens. Tokens are counted, not hashed, so that a token reveals nothing about its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    tokens: BTreeMap<(&'static str, String), String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Names {
    /// The token for `real`, a name of kind `class`.
    pub(super) fn token(&mut self, class: &'static str, real: &str) -> String {
        debug_assert!(TOKENS.contains(&class), "{class} is not among the tokens");
        if let Some(known) = self.tokens.get(&(class, real.to_owned())) {
            return known.clone();
        }
        let count = self.counts.entry(class).or_default();
        *count += 1;
        let token = format!("{class}{count}");
        self.tokens.insert((class, real.to_owned()), token.clone());
        token
    }

    /// The token for a host, by the first label of its name, whatever its case.
    pub(super) fn host(&mut self, name: &str) -> String {
        let name = name.trim().trim_matches(['[', ']']).to_ascii_lowercase();
        // An address is one name, not split into labels.
        let address = name.parse::<std::net::IpAddr>().is_ok();
        let label = if address { &*name } else { name.split('.').next().unwrap_or(&name) };
        match label {
            "" | "localhost" | "(none)" => label.to_owned(),
            _ => self.token("host", label),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_has_the_same_token() {
        let mut names = Names::default();
        assert_eq!(names.host("Acme7.example.com"), "host1");
        assert_eq!(names.host("acme8"), "host2");
        assert_eq!(names.host("acme7"), "host1");
        assert_eq!(names.host("10.1.2.3"), "host3");
        assert_eq!(names.host("10.1.2.4"), "host4");
        assert_eq!(names.host("localhost"), "localhost");
        assert_eq!(
            (names.token("unit", "x"), names.token("unit", "y"), names.token("unit", "x")),
            ("unit1".into(), "unit2".into(), "unit1".into())
        );
    }
}
