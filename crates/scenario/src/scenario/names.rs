//! Whether variants are still what their names say once overrides have changed the scenario.
//!
//! An override counts in every variant. A variant `swappiness-0` would run with 60 under its old name where
//! `--set vm.swappiness=60` replaces the very value that makes it a variant, and so would a scenario that is
//! called `swappiness 60` as it stands.

use crate::document::{Node, Place, Table, Value};
use crate::error::{Collector, Errors, quoted};

use super::{Scenario, Shared, name_of, named, path};

/// Most variants that a message proposes by name.
const PROPOSED: usize = 3;

impl Scenario {
    /// Refuses overrides that belie the name of one of these variants, or of any if none are named: of one
    /// that sets the key itself to something else, and of one that is named after the key or after its value
    /// where that is what variants differ by. `base=NAME` among the overrides gives the scenario as it stands
    /// a name of its own.
    ///
    /// # Errors
    /// For each such override, with a variant that it belies and what to do instead.
    pub fn check_names(&self, overrides: &[(&str, &str)], variants: Option<&[String]>) -> Result<(), Errors> {
        let shared = &self.shared;
        let mut document = shared.document.clone();
        let mut errors = Collector::default();
        let renamed = overrides.iter().any(|(key, _)| key.trim() == "base");
        let all = || std::iter::once(None).chain((0..shared.variants.len()).map(Some));
        let wanted = |name: &str| variants.is_none_or(|names| names.iter().any(|wanted| wanted == name));
        for (key, value) in overrides {
            let node = document.add_set(key, value)?;
            // What is no key has been refused by then.
            let Ok(path) = path(&document.root, key.trim()) else { continue };
            let (mut belied, mut others) = (Vec::new(), Vec::new());
            for index in all().filter(|&index| wanted(shared.name(index))) {
                match shared.belied(index, &path, &node).filter(|_| index.is_some() || !renamed) {
                    Some(why) => belied.push((index, why)),
                    None => others.push(shared.name(index)),
                }
            }
            if let [(first, why), more @ ..] = belied.as_slice() {
                let base = belied.iter().any(|(index, _)| index.is_none());
                let message = format!(
                    "{} {why}, and would run with {} under that name{}; {}",
                    quoted(shared.name(*first)),
                    text(&node).unwrap_or_else(|| (*value).to_owned()),
                    match more.len() {
                        0 => String::new(),
                        1 => ", as would another variant".to_owned(),
                        more => format!(", as would {more} other variants"),
                    },
                    instead(&others, base)
                );
                errors.add(Place { start: 0, ..node.at }, key.trim(), message);
            }
        }
        errors.finish(&document.sources)
    }
}

impl Shared {
    /// The name of a variant, or of the scenario as it stands.
    fn name(&self, variant: Option<usize>) -> &str {
        variant.and_then(|index| self.variants.get(index)).map_or(&self.base, |variant| &variant.name)
    }

    /// Why a variant would not be what its name says if this value were put at this path.
    fn belied(&self, variant: Option<usize>, path: &[String], node: &Node) -> Option<String> {
        let root = self.resolve(variant, None, &mut Collector::default());
        let sets = |index: usize| self.variants.get(index).into_iter().flat_map(|variant| &variant.sets);
        let is_set = |key: &str| super::path(&root, key).is_ok_and(|set| related(&set, path));
        if let Some(set) = variant.and_then(|index| sets(index).find(|set| is_set(&set.key)))
            && !(text(&set.node).is_some() && text(&set.node) == text(node))
        {
            return Some(match text(&set.node) {
                Some(text) => format!("sets {} to {text}", set.key),
                None => format!("sets {}", set.key),
            });
        }
        let varied = (0..self.variants.len()).any(|index| sets(index).any(|set| is_set(&set.key)));
        let before = value_at(&root, path).and_then(text);
        let key = path.last().and_then(|key| key.rsplit('.').next())?;
        let new = text(node);
        let name = self.name(variant);
        let told = new.as_deref().is_some_and(|new| holds(name, new));
        let named = holds(name, key) || before.as_deref().is_some_and(|before| holds(name, before));
        let after = varied && named && !told && before != new;
        after.then(|| match before {
            Some(before) => format!("is named after {key}, which is {before} there"),
            None => format!("is named after {key}"),
        })
    }
}

/// What to do instead of an override.
fn instead(others: &[&str], base: bool) -> String {
    let mut ways = Vec::new();
    let arguments: Vec<String> =
        others.iter().map(|name| format!("--variant {}", shell_word(name))).collect();
    match arguments.as_slice() {
        [] => {}
        arguments if arguments.len() <= PROPOSED => {
            ways.push(format!("leave it out ({})", arguments.join(" ")))
        }
        [first, ..] => ways.push(format!("leave it out ({first} and so on)")),
    }
    if base {
        ways.push("give the scenario as it stands another name (--set base=NAME)".to_owned());
    }
    ways.push("change the value in a copy of the file".to_owned());
    ways.join(", or ")
}

/// Whether one of two paths leads to the other, or to something in it.
fn related(a: &[String], b: &[String]) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b)
}

/// The value at a path.
fn value_at<'a>(root: &'a Table, path: &[String]) -> Option<&'a Node> {
    let (table, rest) = match path {
        [list, name, rest @ ..] if ["actor", "file"].contains(&list.as_str()) => {
            (named(root, list).find(|table| name_of(table) == Some(name))?, rest)
        }
        path => (root, path),
    };
    let (last, above) = rest.split_last()?;
    let mut table = table;
    for part in above {
        table = table.get(part)?.table()?;
    }
    table.get(last)
}

/// A value as a person would write it into a name; `None` for lists and tables.
fn text(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::List(_) | Value::Table(_) => None,
    }
}

/// Whether the words of a key or a value stand in a name: `swappiness` or 60 in `swappiness 60`, `linux-3.10`
/// in `3.10`.
fn holds(name: &str, part: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|c: char| !(c.is_alphanumeric() || c == '.' || c == '+'));
        parts.filter(|part| !part.is_empty()).map(str::to_lowercase).collect()
    };
    let (name, part) = (words(name), words(part.strip_prefix("linux-").unwrap_or(part)));
    !part.is_empty() && name.windows(part.len()).any(|window| window == part)
}

/// A name as one word of a shell's command.
fn shell_word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,+=".contains(c);
    match name.chars().all(plain) && !name.is_empty() {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_settings::{SWAPPINESS, WATERMARK_BOOST_FACTOR};

    use crate::shipped::Shipped;

    fn said(scenario: &str, set: &[(&str, &str)], variants: &[&str]) -> Option<String> {
        let scenario = Shipped::named(scenario).unwrap().scenario().unwrap();
        let names: Vec<String> = variants.iter().map(|&name| name.to_owned()).collect();
        let wanted = Some(names.as_slice()).filter(|names| !names.is_empty());
        scenario.check_names(set, wanted).err().map(|errors| errors.to_string())
    }

    #[test]
    fn an_override_of_what_a_variant_sets_is_refused() {
        assert_eq!(
            said("quickstart", &[(SWAPPINESS, "60")], &[]).unwrap(),
            "--set vm.swappiness=60: vm.swappiness: \"swappiness-0\" sets vm.swappiness to 0, and would run with 60 under \
             that name; leave it out (--variant as-it-is --variant direct), or change the value in a copy of the file"
        );
        let spelled =
            said("quickstart", &[(&format!("tuning.{SWAPPINESS:?}"), "60")], &["swappiness-0"]).unwrap();
        assert!(spelled.ends_with("under that name; change the value in a copy of the file"), "{spelled}");
        let many = said("memory-hogs", &[("generation", "linux-6.12")], &[]).unwrap();
        assert!(many.contains("other variants; leave it out (--variant"), "{many}");
        // A table that a variant writes as a whole, and a value in it.
        let part = said("memory-hogs", &[("machine.swap.size", "1 GiB")], &["3.10, small swap"]).unwrap();
        assert!(part.contains("\"3.10, small swap\" sets machine.swap, and would run with 1 GiB"), "{part}");
    }

    #[test]
    fn an_override_that_belies_no_name_is_none() {
        for (scenario, set, variants) in [
            ("quickstart", (SWAPPINESS, "60"), &["as-it-is", "direct"][..]),
            ("quickstart", (SWAPPINESS, "0"), &["swappiness-0"]),
            ("quickstart", ("generation", "linux-6.12"), &[]),
            ("quickstart", ("actor.app.heap", "500 MiB"), &[]),
            ("quickstart", ("actor.check.rate", "40 MiB/s"), &[]),
            ("memory-hogs-small", (WATERMARK_BOOST_FACTOR, "0"), &[]),
        ] {
            assert_eq!(said(scenario, &[set], variants), None);
        }
    }

    #[test]
    fn the_scenario_as_it_stands_may_be_named_after_a_value_too() {
        let base = &["swappiness 60"];
        let refused = said("memory-hogs-small", &[(SWAPPINESS, "10")], base).unwrap();
        assert!(
            refused.contains("\"swappiness 60\" is named after swappiness, and would run with 10 under"),
            "{refused}"
        );
        assert!(refused.contains("another name (--set base=NAME)"), "{refused}");
        let named = [(SWAPPINESS, "10"), ("base", "swappiness 10")];
        assert_eq!(said("memory-hogs-small", &named, &["swappiness 10"]), None);
        assert_eq!(said("memory-hogs-small", &[(SWAPPINESS, "60")], base), None);
        let generation = said("overnight", &[("generation", "linux-6.12")], &["3.10"]).unwrap();
        assert!(
            generation.contains("\"3.10\" is named after generation, which is linux-3.10 there"),
            "{generation}"
        );
        let other = said("memory-hogs", &[("generation", "linux-6.12")], &["3.0, swappiness 0"]).unwrap();
        assert!(other.contains("\"3.0, swappiness 0\" is named after generation"), "{other}");
    }
}
