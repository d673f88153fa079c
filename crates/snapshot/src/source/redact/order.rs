//! [`Order`]: names of configuration files whose order decides which setting wins.
//!
//! Files of `sysctl.d` and drop-ins of units apply in the order of their base names, and one hides another of
//! the same name in a weaker directory. The token for a name therefore sorts as the name does:
//!
//! ```text
//! 50-acme.conf    ▶ 50-file500.conf
//! 90-billing.conf ▶ 90-file501.conf
//! 99-sysctl.conf  ▶ 99-sysctl.conf    (the one name that the collector asks for)
//! acme.conf       ▶ file502.conf
//! ```
//!
//! The number is a fraction without its point, so that there is always room between two of them.

use std::collections::BTreeMap;
use std::ops::Bound;

/// On Debian and Fedora this is the link to `/etc/sysctl.conf`, which is then not read a second time.
const LINK: &str = "99-sysctl.conf";

/// Base names with their fractions.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    fractions: BTreeMap<String, String>,
}

impl Order {
    /// Learns names that were listed together, so that they are numbered in their order.
    pub(super) fn learn(&mut self, names: &[String]) {
        let mut names: Vec<&String> = names.iter().filter(|name| name.ends_with(".conf")).collect();
        names.sort_unstable();
        for name in names {
            self.fraction(name);
        }
    }

    /// The token for a base name that ends in `.conf`.
    pub(super) fn token(&mut self, name: &str) -> String {
        if name == LINK {
            return LINK.to_owned();
        }
        format!("{}file{}.conf", prefix(name), self.fraction(name))
    }

    fn fraction(&mut self, name: &str) -> String {
        if let Some(known) = self.fractions.get(name) {
            return known.clone();
        }
        let before = self
            .fractions
            .range::<str, _>((Bound::Unbounded, Bound::Excluded(name)))
            .next_back()
            .map(|(_, fraction)| &**fraction);
        let after = self
            .fractions
            .range::<str, _>((Bound::Excluded(name), Bound::Unbounded))
            .next()
            .map(|(_, fraction)| &**fraction);
        let fraction = between(before, after);
        self.fractions.insert(name.to_owned(), fraction.clone());
        fraction
    }
}

/// The prefix of a token: the two digits that a name begins with, else the largest two digits that sort
/// before it (00 if none do). Empty for a name that sorts after [`LINK`].
fn prefix(name: &str) -> String {
    let mut bytes = name.bytes();
    let (first, second) = (bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(0));
    let number = match (first, second) {
        (b'0'..=b'9', b'0'..=b'9') => u32::from(first - b'0') * 10 + u32::from(second - b'0'),
        (b'0'..=b'9', 0..b'0') => (u32::from(first - b'0') * 10).saturating_sub(1),
        (b'0'..=b'9', _) => u32::from(first - b'0') * 10 + 9,
        (0..b'0', _) => 0,
        _ => return String::new(),
    };
    if number == 99 && name > LINK { String::new() } else { format!("{number:02}-") }
}

/// A fraction between two others, as digits without the point. Three digits suffice unless many lie in
/// between.
fn between(before: Option<&str>, after: Option<&str>) -> String {
    const DIGITS: usize = 3;
    let thousandths = |text: &str| format!("{text:0<DIGITS$}")[..DIGITS].parse::<u32>().unwrap_or(0);
    match (before.map(thousandths), after.map(thousandths)) {
        (None, None) => return "500".to_owned(),
        (Some(before), None) if before < 999 => return format!("{:03}", before + 1),
        (None, Some(after)) if after > 1 => return format!("{:03}", after - 1),
        _ => {}
    }
    // The mean of the two, one digit longer than either.
    let (before, after) = (before.unwrap_or(""), after.unwrap_or(""));
    let length = before.len().max(after.len()) + 1;
    let digit = |text: &str, at: usize| text.as_bytes().get(at).map_or(0, |b| u32::from(b - b'0'));
    // Without a name after it, the end of the range is one whole.
    let mut carry = u32::from(after.is_empty());
    let mut sum = vec![0; length];
    let mut over = 0;
    for at in (0..length).rev() {
        let total = digit(before, at) + digit(after, at) + over;
        (sum[at], over) = (total % 10, total / 10);
    }
    carry += over;
    let mut mean = String::with_capacity(length + 1);
    for value in sum.into_iter().chain([0]) {
        let value = carry * 10 + value;
        mean.push(char::from(b'0' + u8::try_from(value / 2).unwrap_or(0)));
        carry = value % 2;
    }
    mean.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_in_front_stay() {
        let mut order = Order::default();
        order.learn(&[
            "50-acme.conf".into(),
            "90-billing.conf".into(),
            "99-sysctl.conf".into(),
            "acme.conf".into(),
        ]);
        let tokens =
            ["50-acme.conf", "90-billing.conf", "99-sysctl.conf", "acme.conf"].map(|name| order.token(name));
        assert_eq!(tokens, ["50-file500.conf", "90-file501.conf", "99-sysctl.conf", "file503.conf"]);
    }

    #[test]
    fn there_is_always_room_at_either_end() {
        for down in [false, true] {
            let mut order = Order::default();
            let name = |i: u32| format!("a{:05}.conf", if down { 5000 - i } else { i });
            let tokens: Vec<String> = (0..1200).map(|i| order.token(&name(i))).collect();
            assert!(tokens.windows(2).all(|pair| (pair[0] > pair[1]) == down && pair[0] != pair[1]));
        }
    }

    proptest! {
        /// In whatever order names come, singly or together, their tokens sort as they do.
        #[test]
        fn tokens_sort_as_names_do(
            names in prop::collection::vec("([0-9]{0,3}[-a-z.+]{0,4}|99-s[a-z]{1,6}|99-sysctl)\\.conf", 1..60),
            together in any::<bool>(),
        ) {
            let mut order = Order::default();
            if together {
                order.learn(&names);
            }
            let mut pairs: Vec<(String, String)> =
                names.iter().map(|name| (name.clone(), order.token(name))).collect();
            pairs.sort();
            pairs.dedup();
            for pair in pairs.windows(2) {
                prop_assert!(pair[0].1 < pair[1].1, "{:?}", pair);
            }
        }
    }
}
