//! [`Random`]: a scenario drawn from a seed, for experiments on the model that nobody made for it.
//!
//! The text is a scenario as people write one: a server that is measured, one to three programs beside it,
//! and one variant that changes a setting or how a program reads or writes. It is within what a virtual
//! machine can do whose instructions are emulated: what limits a program is its rate or the disk, not the
//! processor.

use std::fmt::Write as _;

use lotsfree_settings::{
    DIRTY_BYTES, MIN_FREE_KBYTES, NUMA_BALANCING, PAGE_CLUSTER, READ_AHEAD_KB, SWAPPINESS,
    TRANSPARENT_HUGEPAGE_ENABLED, WATERMARK_BOOST_FACTOR, WATERMARK_SCALE_FACTOR, ZONE_RECLAIM_MODE,
};
use lotsfree_units::words::enumeration;
use lotsfree_workload::actor::Rng;

use crate::generation::{Generation, Kernel};

/// A scenario drawn from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    /// The scenario, as a file.
    pub text: String,
    /// The machine, the programs and what the variant changes, in a sentence.
    pub about: String,
}

/// Second of a run at which the programs beside the server start and measuring begins.
const BEGIN: u32 = 20;
/// Seconds of a run.
const SECONDS: u32 = 80;
/// Memory in MiB that a guest's kernel and the programs that load it have, whatever the guest's size.
const KERNEL: u32 = 72;

/// What is drawn, part by part.
struct Draw {
    rng: Rng,
    generation: Generation,
    /// MiB of each node.
    node: u32,
    nodes: u32,
    /// MiB of swap.
    swap: u32,
    /// Settings of all variants.
    tuning: Vec<(&'static str, String)>,
    /// The programs beside the server.
    beside: Vec<Beside>,
}

/// A program beside the server.
struct Beside {
    name: &'static str,
    /// What it does, for people.
    what: String,
    keys: Vec<(&'static str, String)>,
}

/// What the variant changes.
struct Change {
    name: String,
    key: String,
    value: String,
}

impl Random {
    /// Draws the scenario of a seed for the kernel of a generation: the same text every time.
    pub fn of(seed: u64, generation: Generation) -> Self {
        let mut draw = Draw::machine(seed, generation);
        draw.settings();
        let (server, heap) = draw.server();
        draw.others();
        let change = draw.change();
        draw.scenario(seed, &server, heap, &change)
    }
}

impl Draw {
    fn machine(seed: u64, generation: Generation) -> Self {
        let mut rng = Rng::new(seed, "random experiment", 0);
        let mut draw = match rng.below(4) {
            0 => Draw::of(rng, generation, 2, &[384, 512, 768]),
            _ => Draw::of(rng, generation, 1, &[384, 512, 768, 1024, 1536]),
        };
        if draw.rng.below(5) > 0 {
            let memory = draw.memory();
            draw.swap = draw.pick(&[memory / 2, memory]);
        }
        draw
    }

    fn of(mut rng: Rng, generation: Generation, nodes: u32, sizes: &[u32]) -> Self {
        let node = pick(&mut rng, sizes);
        Draw { rng, generation, node, nodes, swap: 0, tuning: Vec::new(), beside: Vec::new() }
    }

    /// MiB of all nodes.
    fn memory(&self) -> u32 {
        self.node * self.nodes
    }

    /// MiB that programs can have.
    fn usable(&self) -> u32 {
        self.memory() * 9 / 10 - KERNEL
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        pick(&mut self.rng, from)
    }

    /// A random size in MiB: between `least` and `most` percent of `of`, a multiple of 4.
    fn part(&mut self, of: u32, least: u32, most: u32) -> u32 {
        let percent = least + self.rng.below(most - least + 1);
        (of * percent / 100 / 4).max(1) * 4
    }

    /// Settings that both variants have: each of these with a chance of one in four.
    fn settings(&mut self) {
        let swappiness = self.swappiness();
        let memory = self.memory();
        let mut settings: Vec<(&'static str, Vec<String>)> = vec![
            (SWAPPINESS, swappiness),
            (MIN_FREE_KBYTES, vec![(memory * 8).to_string(), (memory * 16).to_string()]),
            (DIRTY_BYTES, texts(&[16 << 20, 64 << 20])),
            (PAGE_CLUSTER, texts(&[0, 2, 4])),
            (READ_AHEAD_KB, texts(&[32, 512])),
            (TRANSPARENT_HUGEPAGE_ENABLED, ["always", "madvise"].map(str::to_owned).to_vec()),
        ];
        if self.generation.kernel >= Kernel::V5_4 {
            settings.push((WATERMARK_SCALE_FACTOR, texts(&[50, 150, 400])));
            settings.push((WATERMARK_BOOST_FACTOR, texts(&[0])));
        }
        for (name, values) in settings {
            let drawn = self.rng.below(4) == 0;
            let place = self.rng.below(values.len() as u32) as usize;
            if let Some(value) = values.get(place).filter(|_| drawn) {
                self.tuning.push((name, value.clone()));
            }
        }
        if self.nodes > 1 && self.generation.kernel >= Kernel::V3_10 {
            self.tuning.push((NUMA_BALANCING, "0".to_owned()));
        }
    }

    /// Values of `vm.swappiness` that the kernel accepts, beside its default.
    fn swappiness(&self) -> Vec<String> {
        let mut values = texts(&[0, 1, 10, 30, 100]);
        if self.generation.kernel >= Kernel::V5_10 {
            values.extend(texts(&[150, 200]));
        }
        values
    }

    /// The server's keys, and the size of its heap in MiB.
    fn server(&mut self) -> (Vec<(&'static str, String)>, u32) {
        let usable = self.usable();
        let percent = match self.swap {
            0 => self.pick(&[40, 55, 65, 75]),
            _ => self.pick(&[55, 75, 90, 100, 110, 120]),
        };
        let heap = usable * percent / 100 / 4 * 4;
        let locality = match self.rng.below(4) {
            0 => "\"uniform\"".to_owned(),
            1 => format!("{{ zipf = {} }}", self.pick(&[0.7, 0.9, 1.1])),
            _ => {
                let (memory, touches) = (self.pick(&[0.1, 0.2, 0.4]), self.pick(&[0.8, 0.9, 0.98]));
                format!("{{ hot-cold = {{ memory = {memory}, touches = {touches} }} }}")
            }
        };
        let mut keys = vec![
            ("heap", mib(heap)),
            ("threads", self.pick(&[1, 2, 3]).to_string()),
            ("touches", self.pick(&[4, 8, 16, 32]).to_string()),
            ("locality", locality),
            ("write", self.pick(&[0.0, 0.1, 0.25, 0.5]).to_string()),
            ("compute", quoted(self.pick(&["100 us", "500 us", "1 ms"]))),
        ];
        keys.push(match self.rng.below(2) {
            0 => ("think", quoted(self.pick(&["5 ms", "10 ms", "20 ms"]))),
            _ => ("rate", self.pick(&[25, 60, 120]).to_string()),
        });
        (keys, heap)
    }

    /// One to three programs beside the server, each of another kind.
    fn others(&mut self) {
        let mut kinds: Vec<fn(&mut Draw) -> Beside> =
            vec![Draw::scan, Draw::reader, Draw::writer, Draw::copy, Draw::store];
        for _ in 0..self.pick(&[1, 2, 2, 3]) {
            let place = self.rng.below(kinds.len() as u32) as usize;
            let one = kinds.remove(place)(self);
            self.beside.push(one);
        }
    }

    /// A file that is read from its begin to its end.
    fn scan(&mut self) -> Beside {
        let memory = self.memory();
        let size = self.part(memory, 20, 130);
        let how = self.pick(&["buffered", "buffered", "buffered", "mmap"]);
        let keys = vec![
            ("kind", quoted("file-reader")),
            ("size", mib(size)),
            ("chunk", quoted(self.pick(&["64 KiB", "256 KiB", "1 MiB"]))),
            ("how", quoted(how)),
            ("rate", quoted(self.pick(&["5 MiB/s", "10 MiB/s", "20 MiB/s"]))),
            ("repeat", "0".to_owned()),
        ];
        Beside { name: "scan", what: format!("a file of {size} MiB read in order"), keys }
    }

    /// A file that is read at random.
    fn reader(&mut self) -> Beside {
        let memory = self.memory();
        let size = self.part(memory, 5, 50);
        let keys = vec![
            ("kind", quoted("file-reader")),
            ("size", mib(size)),
            ("chunk", quoted(self.pick(&["4 KiB", "16 KiB"]))),
            ("order", quoted("random")),
            ("advice", quoted(self.pick(&["none", "random"]))),
            ("how", quoted(self.pick(&["buffered", "buffered", "mmap"]))),
            ("rate", quoted(self.pick(&["512 KiB/s", "1 MiB/s", "3 MiB/s"]))),
            ("repeat", "0".to_owned()),
        ];
        Beside { name: "reader", what: format!("a file of {size} MiB read at random"), keys }
    }

    /// A file that is written again and again.
    fn writer(&mut self) -> Beside {
        let memory = self.memory();
        let size = self.part(memory, 15, 75);
        let mut keys = vec![
            ("kind", quoted("file-writer")),
            ("size", mib(size)),
            ("sync", self.pick(&["true", "false"]).to_owned()),
            ("repeat", "0".to_owned()),
        ];
        if let Some(rate) = self.pick(&[None, Some("6 MiB/s"), Some("12 MiB/s")]) {
            keys.push(("rate", quoted(rate)));
        }
        Beside { name: "writer", what: format!("a file of {size} MiB written"), keys }
    }

    /// A file that is copied.
    fn copy(&mut self) -> Beside {
        let memory = self.memory();
        let size = self.part(memory, 20, 100);
        let keys = vec![
            ("kind", quoted("file-writer")),
            ("size", mib(size)),
            ("source-size", mib(size)),
            ("rate", quoted(self.pick(&["5 MiB/s", "10 MiB/s"]))),
            ("repeat", "0".to_owned()),
        ];
        Beside { name: "copy", what: format!("a file of {size} MiB copied"), keys }
    }

    /// A store whose segments are mapped.
    fn store(&mut self) -> Beside {
        let memory = self.memory();
        let active = self.part(memory, 10, 50) / 4;
        let keys = vec![
            ("kind", quoted("segment-store")),
            ("segment", mib(4)),
            ("active", active.to_string()),
            ("reads", self.pick(&[50, 200, 600]).to_string()),
            ("locality", self.pick(&["\"uniform\"", "{ zipf = 0.9 }"]).to_owned()),
            ("write-rate", quoted(self.pick(&["512 KiB/s", "1 MiB/s", "2 MiB/s"]))),
        ];
        Beside { name: "store", what: format!("a store of {active} segments of 4 MiB"), keys }
    }

    /// What the variant changes: how a program reads or writes, or a setting that is not what it is.
    fn change(&mut self) -> Change {
        let files = self.beside.iter().filter(|one| one.name != "store").map(|one| one.name);
        let files: Vec<&'static str> = files.collect();
        if !files.is_empty() && self.rng.below(3) == 0 {
            let (name, how) = (self.pick(&files), self.pick(&["direct", "dontneed"]));
            return Change {
                name: format!("{name} {how}"),
                key: format!("actor.{name}.how"),
                value: quoted(how),
            };
        }
        let memory = self.memory();
        let mut settings: Vec<(&'static str, Vec<String>)> = vec![
            // Twice, because it is what people change first.
            (SWAPPINESS, [self.swappiness(), texts(&[60])].concat()),
            (SWAPPINESS, [self.swappiness(), texts(&[60])].concat()),
            (MIN_FREE_KBYTES, vec![(memory * 16).to_string(), (memory * 48).to_string()]),
            (DIRTY_BYTES, texts(&[8 << 20, 32 << 20])),
            (READ_AHEAD_KB, texts(&[0, 64, 1024])),
        ];
        if self.generation.kernel >= Kernel::V5_4 {
            settings.push((WATERMARK_SCALE_FACTOR, texts(&[30, 200, 1000])));
        }
        if self.nodes > 1 {
            // As often as half of the other settings together: only machines with several nodes have it.
            settings.extend(vec![(ZONE_RECLAIM_MODE, texts(&[1])); 3]);
        }
        let place = self.rng.below(settings.len() as u32) as usize;
        let (name, mut values) = settings.swap_remove(place);
        let is = self.tuning.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone());
        // Without it in the base, swappiness is 60.
        let is = is.or_else(|| (name == SWAPPINESS).then(|| "60".to_owned()));
        values.retain(|value| Some(value) != is.as_ref());
        let place = self.rng.below(values.len() as u32) as usize;
        let value = values.swap_remove(place);
        let short = name.rsplit('.').next().unwrap_or(name);
        Change { name: format!("{short} {value}"), key: format!("{name:?}"), value }
    }

    /// The file.
    fn scenario(mut self, seed: u64, server: &[(&str, String)], heap: u32, change: &Change) -> Random {
        let memory = match self.nodes {
            1 => format!("{} MiB", self.node),
            nodes => format!("{nodes} nodes of {} MiB", self.node),
        };
        let beside = enumeration(&self.beside.iter().map(|one| one.what.clone()).collect::<Vec<_>>());
        let tuning: Vec<String> = self.tuning.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let with = if tuning.is_empty() { String::new() } else { format!(", with {}", enumeration(&tuning)) };
        let swap = if self.swap == 0 { "no swap".to_owned() } else { format!("{} MiB of swap", self.swap) };
        let about = format!(
            "On {memory} and {swap}{with}: a heap of {heap} MiB beside {beside}. The variant is {}.",
            change.name
        );
        let mut text = format!(
            "title    = \"A server on {memory} beside {beside}\"\nseed     = {seed}\nduration = \"{SECONDS} s\"\n\
             interval = \"1 s\"\nbase     = \"as it is\"\n\n"
        );
        self.write_machine(&mut text);
        if !self.tuning.is_empty() {
            text += "\n[tuning]\n";
            for (name, value) in &self.tuning {
                let number = value.bytes().all(|byte| byte.is_ascii_digit());
                let value = if number { value.clone() } else { quoted(value) };
                let _ = writeln!(text, "{name:?} = {value}");
            }
        }
        let mut actor = |name: &str, keys: &[(&str, String)], start: u32| {
            let _ = writeln!(text, "\n[[actor]]\nname = {name:?}");
            for (key, value) in keys {
                let _ = writeln!(text, "{key} = {value}");
            }
            let _ = writeln!(text, "start = \"{start} s\"");
        };
        actor("server", &[&[("kind", quoted("app-server"))], server].concat(), 2);
        for one in &self.beside {
            actor(one.name, &one.keys, BEGIN);
        }
        let Change { name, key, value } = change;
        let _ = writeln!(text, "\n[[variant]]\nname = {name:?}\n{key} = {value}");
        let _ = writeln!(
            text,
            "\n[measure]\nactor    = \"server\"\nwindow   = [\"{BEGIN} s\", \"end\"]\nbaseline = [\"10 s\", \"{BEGIN} s\"]"
        );
        Random { text, about }
    }

    fn write_machine(&mut self, text: &mut String) {
        let cpus = if self.nodes > 1 { 2 } else { self.pick(&[1, 2, 2]) };
        let nodes = vec![mib(self.node); self.nodes as usize].join(", ");
        let latency = self.pick(&["100 us", "250 us", "1 ms", "4 ms"]);
        let bandwidth = self.pick(&["10 MiB/s", "20 MiB/s", "40 MiB/s"]);
        let _ = writeln!(
            text,
            "[machine]\ngeneration = \"{}\"\ncpus       = {cpus}\nnodes      = [{nodes}]\n\
             disk       = {{ latency = \"{latency}\", bandwidth = \"{bandwidth}\", size = \"12 GiB\" }}",
            self.generation
        );
        if self.swap > 0 {
            let on = match self.rng.below(2) {
                0 => "on = \"disk\"".to_owned(),
                _ => {
                    let (latency, bandwidth) =
                        (self.pick(&["100 us", "1 ms"]), self.pick(&["16 MiB/s", "80 MiB/s"]));
                    format!("on = \"own\", latency = \"{latency}\", bandwidth = \"{bandwidth}\"")
                }
            };
            let _ = writeln!(text, "swap       = {{ size = {}, {on} }}", mib(self.swap));
        }
    }
}

/// One of a list that is not empty.
fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u32) as usize]
}

/// `"64 MiB"`, in quotes.
fn mib(size: u32) -> String {
    format!("\"{size} MiB\"")
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn texts(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(u32::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    #[test]
    fn every_seed_gives_a_scenario_that_reads() {
        for generation in Generation::all() {
            for seed in 0..300 {
                let Random { text, about } = Random::of(seed, generation);
                let cases = Scenario::parse(&text, "r.toml").and_then(|scenario| scenario.cases(None));
                let cases =
                    cases.unwrap_or_else(|errors| panic!("{generation}, seed {seed}: {errors}\n{text}"));
                assert_eq!(cases.len(), 2, "{text}");
                let [base, changed] = cases.as_slice() else { continue };
                assert_ne!(base.keys(), changed.keys(), "the variant is the base\n{text}");
                assert!(about.contains(&changed.variant), "{about}");
                base.program().and(changed.program()).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_and_another_another() {
        let generation = Generation { kernel: Kernel::V6_1, mglru: false };
        assert_eq!(Random::of(7, generation), Random::of(7, generation));
        assert_ne!(Random::of(7, generation).text, Random::of(8, generation).text);
    }
}
