//! [`Experiments`]: what is executed both on a kernel and on the model, to see how far they are apart.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{Document, LARGEST, Node, Place, Value};
use crate::error::Collector;
use crate::random::Random;
use crate::read::read;
use crate::{Errors, Generation};

/// Experiments: each is a scenario on kernels and on their models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Experiments {
    /// How often each kernel executes each case: what repeats differ by is no error of the model.
    #[serde(default = "twice")]
    pub repeats: u16,
    /// Measures that say nothing of the model, in any experiment.
    #[serde(default, rename = "left-out")]
    pub left_out: Vec<Cause>,
    /// Each time that somebody looked at what came of experiments that are held out.
    #[serde(default, rename = "look", skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<Look>,
    /// The experiments.
    #[serde(rename = "experiment")]
    pub all: Vec<Experiment>,
}

/// A look at what came of experiments that are held out. Who has looked knows more than before, and the next
/// rule may be made by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// The day.
    pub date: String,
    /// Why, and at what.
    pub why: String,
}

/// A scenario, what is changed in it, and the kernels that execute it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Experiment {
    /// What its results are filed under.
    pub name: String,
    /// A scenario that ships, or the path of a file.
    pub scenario: String,
    /// The scenario itself, of one that is no file; `scenario` is its name then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The seed from which [`Random`] drew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// What it taught the model: its errors do not tell what the model is worth elsewhere. Without it, nobody
    /// has made a rule by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taught: Option<String>,
    /// What executes it.
    #[serde(default)]
    pub on: Stand,
    /// Kernels, each compared with the model of the same name. On this host: its model.
    pub generations: Vec<Generation>,
    /// Variants; without any, those that the base's kernel executes.
    #[serde(default)]
    pub variants: Vec<String>,
    /// What is changed in every variant, as `--set KEY=VALUE` has it.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// How often each kernel executes each case; without it, as often as the file says.
    #[serde(default)]
    pub repeats: u16,
    /// What it shows, and why it is changed as it is.
    pub about: String,
    /// Errors whose cause is known.
    #[serde(default, rename = "cause")]
    pub causes: Vec<Cause>,
}

/// Where the kernel is that an experiment runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stand {
    /// In a virtual machine as the scenario describes it.
    #[default]
    Vm,
    /// It is that of this host.
    Host,
}

/// Why measures are off, or are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Cause {
    /// Beginnings of the keys of the measures, as `lotsfree compare --json` has them.
    pub measures: Vec<String>,
    /// Variants that have it; without any, all.
    #[serde(default)]
    pub variants: Vec<String>,
    /// Generations that have it; without any, all.
    #[serde(default)]
    pub generations: Vec<Generation>,
    /// What the kernel does that the model does not, or the other way round.
    pub why: String,
}

impl Experiment {
    /// Whether it was drawn from a seed and taught the model nothing.
    pub fn is_held_out(&self) -> bool {
        self.seed.is_some() && self.taught.is_none()
    }
}

impl Cause {
    /// Whether it is the cause of an error of a measure in a variant on the kernel of a generation.
    pub fn is_of(&self, measure: &str, variant: &str, generation: &str) -> bool {
        (self.variants.is_empty() || self.variants.iter().any(|name| name == variant))
            && (self.generations.is_empty() || self.generations.iter().any(|one| one.name() == generation))
            && self.measures.iter().any(|key| measure.starts_with(key.as_str()))
    }
}

fn twice() -> u16 {
    2
}

impl Experiments {
    /// Whether the experiment of this name [is held out](Experiment::is_held_out).
    pub fn holds_out(&self, name: &str) -> bool {
        self.all.iter().any(|experiment| experiment.name == name && experiment.is_held_out())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or as [`parse`](Experiments::parse).
    pub fn load(path: &Path) -> Result<Self, Errors> {
        let name = path.display().to_string();
        let text = lotsfree_storage::read_text_at_most(path, LARGEST as u64)
            .map_err(|error| Errors::unreadable(&name, error.to_string()))?;
        Experiments::parse(&text, &name)
    }

    /// Reads a text; `file` is its name in errors. Scenarios are looked for when they are run.
    ///
    /// # Errors
    /// Name every unknown key and every value that cannot be, with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self, Errors> {
        let document = Document::parse(text, file)?;
        let mut errors = Collector::default();
        let root =
            Node { value: Value::Table(document.root), at: Place::default(), inline: false, raw: None };
        let mut found: Option<Experiments> = read(&root, "", &mut errors);
        if let Some(found) = &mut found {
            found.check(&mut errors);
            let own = found.all.iter_mut().filter(|experiment| experiment.repeats == 0);
            own.for_each(|experiment| experiment.repeats = found.repeats);
        }
        errors.finish(&document.sources)?;
        found.ok_or_else(|| Errors::unreadable(file, "no experiments".to_owned()))
    }

    /// Adds the experiments of another file.
    pub fn join(&mut self, other: Experiments) {
        self.left_out.extend(other.left_out);
        self.looks.extend(other.looks);
        self.all.extend(other.all);
    }

    /// Draws as many experiments, the first from `seed` and each other from the seed after the last; the
    /// generations take turns.
    pub fn random(count: u16, seed: u64, generations: &[Generation]) -> Self {
        let of = |(seed, generation): (u64, &Generation)| {
            let Random { text, about } = Random::of(seed, *generation);
            let name = format!("random-{seed}");
            Experiment {
                scenario: name.clone(),
                name,
                text: Some(text),
                seed: Some(seed),
                taught: None,
                on: Stand::Vm,
                generations: vec![*generation],
                variants: Vec::new(),
                set: BTreeMap::new(),
                repeats: twice(),
                about,
                causes: Vec::new(),
            }
        };
        // Which of them a seed has does not depend on where the list begins.
        let turn =
            |seed: u64| seed.checked_rem(generations.len() as u64).and_then(|n| generations.get(n as usize));
        let seeds = (seed..).take(count.into());
        let all = seeds.filter_map(|seed| Some((seed, turn(seed)?))).map(of).collect();
        Experiments { repeats: twice(), all, ..Experiments::default() }
    }

    /// The experiments as a file that [`parse`](Experiments::parse) reads, each with its scenario as people
    /// write it.
    pub fn to_toml(&self) -> String {
        let mut out = format!("repeats = {}\n", self.repeats);
        for experiment in &self.all {
            let Experiment { name, scenario, text, seed, generations, about, .. } = experiment;
            let quoted = |text: &str| toml::Value::from(text).to_string();
            let generations: Vec<String> = generations.iter().map(|one| quoted(one.name())).collect();
            out += &format!(
                "\n[[experiment]]\nname        = {}\nscenario    = {}\n",
                quoted(name),
                quoted(scenario)
            );
            out += &format!("generations = [{}]\n", generations.join(", "));
            if let Some(seed) = seed {
                out += &format!("seed        = {seed}\n");
            }
            out += &format!("about       = {}\n", quoted(about));
            if let Some(text) = text {
                // No scenario that is drawn has three single quotes.
                out += &format!("text        = '''\n{text}'''\n");
            }
        }
        out
    }

    fn check(&self, errors: &mut Collector) {
        if self.repeats == 0 {
            errors.add(Place::default(), "repeats", "0 runs show nothing; write 1 or more");
        }
        for (number, experiment) in self.all.iter().enumerate() {
            let key = |key: &str| format!("experiment[{number}].{key}");
            let name = &experiment.name;
            let odd = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            if name.is_empty() || name.contains(odd) {
                let why = format!("{name:?} names files; write small letters, digits and -");
                errors.add(Place::default(), key("name"), why);
            } else if self.all.iter().take(number).any(|other| other.name == *name) {
                errors.add(Place::default(), key("name"), format!("{name:?} is there already"));
            }
            if experiment.generations.is_empty() {
                errors.add(Place::default(), key("generations"), "no kernel; name one at least");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
repeats = 3

[[experiment]]
name        = "store"
scenario    = "zone-reclaim"
generations = ["linux-6.1", "linux-6.12+mglru"]
variants    = ["on", "off"]
set         = { duration = "150 s", "machine.nodes" = '["1 GiB"]' }
about       = "Who reclaims."

[[experiment.cause]]
measures    = ["direct_"]
why         = "Because."
"#;

    #[test]
    fn experiments_are_read() {
        let found = Experiments::parse(TEXT, "e.toml").unwrap_or_else(|errors| panic!("{errors}"));
        let [experiment] = found.all.as_slice() else { panic!("{found:?}") };
        assert_eq!((found.repeats, experiment.on, experiment.generations.len()), (3, Stand::Vm, 2));
        assert_eq!(experiment.set.get("machine.nodes").map(String::as_str), Some("[\"1 GiB\"]"));
        assert_eq!(experiment.causes.len(), 1);
    }

    #[test]
    fn drawn_experiments_survive_their_file() {
        let generations: Vec<Generation> =
            ["linux-6.1", "linux-6.12+mglru"].map(|name| name.parse().unwrap()).into();
        let drawn = Experiments::random(5, 40, &generations);
        let again =
            Experiments::parse(&drawn.to_toml(), "e.toml").unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(again, drawn);
        let later = Experiments::random(2, 43, &generations);
        assert_eq!(later.all, drawn.all[3..]);
        assert_eq!(Experiments::random(5, 40, &[]).all, []);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let said = |from: &str, to: &str| {
            assert!(TEXT.contains(from));
            Experiments::parse(&TEXT.replace(from, to), "e.toml").unwrap_err().to_string()
        };
        let text = said("linux-6.12+mglru", "linux-7");
        assert!(text.starts_with("e.toml:7:29: experiment[0].generations[1]: \"linux-7\""), "{text}");
        let text = said("variants ", "variant ");
        assert!(text.contains("unknown key; did you mean \"variants\"?"), "{text}");
        assert!(said("repeats = 3", "repeats = 0").contains("write 1 or more"));
        assert!(said("name        = \"store\"", "name = \"a b\"").contains("write small letters"));
    }
}
