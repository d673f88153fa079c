//! Executes small scenarios on every generation of the model.
//!
//! An input is not the text of a scenario but a series of decisions, a byte each: the kernel, the size of the
//! machine, settings, actors with their parameters. Every mutation is therefore another scenario that is well
//! formed, small and short: at most two nodes with 2 to 10 MiB free, two CPUs, and four actors, which
//! together want several times that memory.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use lotsfree_engine::machine::{End, Machine};
use lotsfree_engine::{NAMES, config, facts};
use lotsfree_run::{Memory, Run, State};
use lotsfree_scenario::{Case, Scenario};

use crate::model::Bytes;
use crate::seeds::Fixture;

/// The run is stopped after this many calls with its progress, which come with every sample and every 65,536
/// entries of the queue.
const LOOKS: u32 = 24;

/// Settings and values for them; `Scenario` refuses those that the generation does not have.
const SETTINGS: &[(&str, &[&str])] = &[
    ("vm.swappiness", &["0", "1", "60", "100", "200"]),
    ("vm.zone_reclaim_mode", &["0", "1", "3", "5", "7"]),
    ("vm.min_unmapped_ratio", &["0", "1", "50", "100"]),
    ("vm.min_slab_ratio", &["0", "5", "100"]),
    ("vm.min_free_kbytes", &["0", "64", "1024", "3000", "2147483647"]),
    ("vm.dirty_ratio", &["0", "1", "20", "100"]),
    ("vm.dirty_bytes", &["8192", "65536", "9223372036854775807"]),
    ("vm.dirty_background_ratio", &["0", "1", "100"]),
    ("vm.dirty_background_bytes", &["1", "65536", "9223372036854775807"]),
    ("vm.dirty_expire_centisecs", &["0", "1", "5", "3000"]),
    ("vm.dirty_writeback_centisecs", &["0", "1", "500"]),
    ("vm.laptop_mode", &["0", "1"]),
    ("vm.page-cluster", &["0", "3", "8", "31"]),
    ("vm.vfs_cache_pressure", &["0", "100", "2147483647"]),
    ("vm.lowmem_reserve_ratio", &["\"256 256 32\"", "\"1 1 1\"", "\"0 0 0\""]),
    ("kernel.numa_balancing", &["0", "1"]),
    ("kernel.mm.transparent_hugepage.enabled", &["'always'", "'madvise'", "'never'"]),
    ("block.queue.read_ahead_kb", &["0", "4", "128", "4096", "2147483647"]),
    // Some generations lack the settings from here on.
    ("vm.extra_free_kbytes", &["0", "1024", "2147483647"]),
    ("vm.numa_zonelist_order", &["'default'", "'node'", "'zone'"]),
    ("vm.pagecache_limit_mb", &["0", "1", "8", "2147483647"]),
    ("vm.pagecache_limit_ignore_dirty", &["0", "1", "2"]),
    ("vm.watermark_scale_factor", &["1", "10", "1000"]),
    ("vm.watermark_boost_factor", &["0", "15000", "2147483647"]),
    ("kernel.mm.lru_gen.enabled", &["0", "1", "7"]),
    ("kernel.mm.lru_gen.min_ttl_ms", &["0", "1", "1000", "2147483647"]),
];
const SIZES: [&str; 10] =
    ["4 KiB", "64 KiB", "1 MiB", "2 MiB", "3 MiB", "5 MiB", "8 MiB", "12 MiB", "20 MiB", "5000 KiB"];
const CHUNKS: [&str; 5] = ["4 KiB", "16 KiB", "60 KiB", "256 KiB", "1 MiB"];
const HOW: [&str; 4] = ["buffered", "direct", "dontneed", "mmap"];
const HINTS: [&str; 3] = ["none", "sequential", "random"];
const LOCALITIES: [&str; 4] =
    ["'uniform'", "{ zipf = 1.0 }", "{ zipf = 0.3 }", "{ hot-cold = { memory = 0.2, touches = 0.9 } }"];
const SHARES: [&str; 4] = ["0", "0.25", "0.9", "1"];
const RATES: [&str; 3] = ["8 MiB/s", "100 MiB/s", "1 GiB/s"];
const POLICIES: [&str; 5] = ["local", "preferred 0", "bind 0", "interleave", "interleave 0"];

/// Writes a scenario from the decisions of an input.
struct Author<'a> {
    bytes: Bytes<'a>,
    text: String,
    /// Whether the run takes tenths of a second instead of milliseconds, for behaviour that needs time. Every
    /// actor is then paced by a rate or a pause.
    long: bool,
}

impl Author<'_> {
    fn below(&mut self, count: usize) -> usize {
        self.bytes.next() as usize % count
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// True in one case of four, so that most optional keys are left out.
    fn seldom(&mut self) -> bool {
        self.bytes.next() >= 192
    }

    fn line(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.text, "{key} = {value}");
    }

    /// Writes a key with one of some texts.
    fn choose(&mut self, key: &str, choices: &[&str]) {
        let value = self.one_of(choices);
        self.line(key, &format!("'{value}'"));
    }

    /// Writes a key with one of some texts, or nothing.
    fn maybe(&mut self, key: &str, choices: &[&str]) {
        if self.seldom() {
            self.choose(key, choices);
        }
    }

    /// Writes a key with a value that is not a text, or nothing.
    fn maybe_raw(&mut self, key: &str, choices: &[&str]) {
        if self.seldom() {
            let value = self.one_of(choices);
            self.line(key, value);
        }
    }

    fn scenario(mut self) -> String {
        let generation = self.one_of(&NAMES);
        self.long = self.below(8) == 7;
        let duration = if self.long { "400 ms" } else { self.one_of(&["2 ms", "5 ms", "12 ms", "25 ms"]) };
        let interval = if self.long { "100 ms" } else { "5 ms" };
        let seed = self.below(4);
        self.text = format!("title = 't'\nseed = {seed}\nduration = '{duration}'\ninterval = '{interval}'\n");
        self.machine(generation);
        self.settings();
        self.text.push_str("[[file]]\nname = 'f0'\nsize = '6 MiB'\n[[file]]\nname = 'f1'\nsize = '70 KiB'\n");
        for number in 0..1 + self.below(4) {
            self.actor(number);
        }
        self.text
    }

    fn machine(&mut self, generation: &str) {
        let nodes = 1 + self.below(2);
        let cpus = nodes.max(1 + self.below(2));
        let sizes = vec!["'64 MiB'"; nodes].join(", ");
        let free = nodes * (2 + self.below(8));
        let kernel = 64 * nodes - free;
        let _ = write!(
            self.text,
            "[machine]\ngeneration = '{generation}'\ncpus = {cpus}\nnodes = [{sizes}]\nkernel = '{kernel} MiB'\n"
        );
        if nodes > 1 {
            let distance = self.one_of(&["11", "20", "40"]);
            self.line("distance", distance);
        }
        self.text.push_str("[machine.disk]\n");
        self.choose("latency", &["100 us", "10 us", "5 ms", "0"]);
        self.choose("bandwidth", &["500 MiB/s", "20 MiB/s", "4 GiB/s"]);
        self.maybe_raw("iops", &["100", "20000"]);
        self.maybe_raw("rotational", &["true"]);
        self.choose("filesystem", &["ext4", "ext3", "xfs", "btrfs"]);
        self.text.push_str("[machine.swap]\n");
        self.choose("size", &["0", "4 MiB", "16 MiB", "256 KiB"]);
        if self.below(2) == 0 {
            self.line("on", "'disk'");
        } else {
            self.line("on", "'own'");
            self.choose("latency", &["50 us", "3 ms"]);
            self.choose("bandwidth", &["500 MiB/s", "30 MiB/s"]);
        }
    }

    fn settings(&mut self) {
        self.text.push_str("[tuning]\n");
        let mut set = [false; SETTINGS.len()];
        for _ in 0..self.below(6) {
            let number = self.below(SETTINGS.len());
            let (key, values) = SETTINGS[number];
            let value = self.one_of(values);
            if !std::mem::replace(&mut set[number], true) {
                self.line(&format!("'{key}'"), value);
            }
        }
    }

    fn actor(&mut self, number: usize) {
        let _ = write!(self.text, "[[actor]]\nname = 'a{number}'\n");
        self.maybe("start", &["500 us", "3 ms", "9 ms"]);
        self.maybe("stop", &["4 ms", "10 ms", "20 ms"]);
        self.maybe_raw("node", &["0"]);
        self.maybe("policy", &POLICIES);
        match self.below(9) {
            0..=2 => self.app_server(),
            3 | 4 => self.file_writer(),
            5 | 6 => self.file_reader(),
            _ => self.segment_store(),
        }
    }

    fn app_server(&mut self) {
        self.line("kind", "'app-server'");
        self.choose("heap", &SIZES);
        self.maybe_raw("threads", &["2", "3"]);
        self.maybe_raw("touches", &["0", "1", "200"]);
        self.maybe("object", &["16 KiB", "100 KiB"]);
        self.maybe_raw("locality", &LOCALITIES);
        self.maybe_raw("write", &SHARES);
        self.choose("compute", &["10 us", "100 us", "0"]);
        match (self.seldom(), self.long) {
            (true, _) => self.line("rate", "500"),
            (false, true) => self.line("think", "'4 ms'"),
            (false, false) => self.maybe("think", &["1 ms", "50 us"]),
        }
        self.maybe_raw("active", &["[['0 s', '1 ms'], ['1500 us', 'end']]", "[['1 ms', '1100 us']]"]);
    }

    fn file_writer(&mut self) {
        self.line("kind", "'file-writer'");
        self.choose("size", &SIZES);
        self.maybe("chunk", &CHUNKS);
        self.maybe("how", &HOW);
        self.maybe("behind", &["64 KiB", "1 MiB"]);
        self.maybe_raw("sync", &["true"]);
        match self.below(8) {
            6 => self.line("copy-of", "'f0'"),
            7 => self.line("source-size", "'3 MiB'"),
            _ => {}
        }
        self.repeated();
        self.maybe_raw("keep", &["1", "3"]);
    }

    fn file_reader(&mut self) {
        self.line("kind", "'file-reader'");
        match self.below(3) {
            0 => self.line("file", "'f0'"),
            1 => self.line("file", "'f1'"),
            _ => self.choose("size", &SIZES),
        }
        self.maybe("chunk", &CHUNKS);
        self.maybe("order", &["random"]);
        self.maybe("how", &HOW);
        self.maybe("behind", &["64 KiB", "1 MiB"]);
        self.maybe("advice", &HINTS);
        self.repeated();
    }

    /// Writes the keys that a job that goes on for ever needs in a long run.
    fn repeated(&mut self) {
        if self.long {
            self.line("rate", "'8 MiB/s'");
        } else {
            self.maybe("rate", &RATES);
        }
        self.maybe_raw("repeat", &["0", "3"]);
    }

    fn segment_store(&mut self) {
        self.line("kind", "'segment-store'");
        self.choose("segment", &["256 KiB", "1 MiB", "20 KiB"]);
        let active = self.one_of(&["2", "5", "16", "40"]);
        self.line("active", active);
        self.maybe_raw("garbage", &["1", "9"]);
        self.maybe_raw("warm", &["true"]);
        self.maybe_raw("readers", &["0", "2"]);
        if self.long {
            self.line("reads", "400");
        } else {
            self.maybe("think", &["100 us", "2 ms"]);
        }
        self.maybe("compute", &["10 us"]);
        self.maybe_raw("pages-per-read", &["2", "5"]);
        self.maybe_raw("locality", &LOCALITIES);
        self.maybe("advice", &HINTS);
        self.maybe_raw("writers", &["0", "2"]);
        self.maybe("write-how", &["write"]);
        self.maybe("chunk", &CHUNKS);
        if self.long {
            self.line("write-rate", "'8 MiB/s'");
        } else {
            self.maybe("write-rate", &RATES);
        }
        self.maybe("write-pause", &["1 ms"]);
        self.maybe_raw("sync", &["true"]);
        self.maybe_raw("keep", &["0", "4"]);
        self.maybe_raw("pool", &["true"]);
    }
}

fn case(data: &[u8]) -> Option<Case> {
    let author = Author { bytes: Bytes(data), text: String::new(), long: false };
    let text = author.scenario();
    let scenario = Scenario::parse(&text, "fuzz.toml").ok()?;
    Some(scenario.cases(None).ok()?.remove(0))
}

/// Executes the scenario, checking the whole state after each of two parts, and summarises the run.
pub(crate) fn run(data: &[u8]) {
    if let Some(case) = case(data) {
        let _ = execute(&case).map(|run| run.summary());
    }
}

/// The run of a case; `None` if the case asks for something that the model does not have.
fn execute(case: &Case) -> Option<Run> {
    let (config, facts, program) = (config(case).ok()?, facts(case).ok()?, case.program().ok()?);
    let mut machine = Machine::new(config, program);
    let mut memory = Memory::default();
    let (mut last, mut looks) = (0, 0);
    for part in [2, 1] {
        let until = case.duration.ns() / part;
        let end = machine.run(until, &mut memory, &mut |now| {
            assert!(now >= last, "time went back from {last} to {now}");
            (last, looks) = (now, looks + 1);
            if looks < LOOKS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if let Err(why) = machine.check() {
            panic!("{why}\n{}", case.to_toml());
        }
        match end {
            Ok(End::Complete) => {}
            Ok(End::Stopped(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    Some(memory.finish(facts, case.to_toml(), State::Complete))
}

/// A run of a small scenario with a server, a reader and a writer, from which other seeds are made.
pub(crate) fn small_run(generation: &str, nodes: usize) -> Run {
    let sizes = vec!["'64 MiB'"; nodes].join(", ");
    let text = format!(
        "title = 't'\nduration = '150 ms'\ninterval = '30 ms'\n[machine]\ngeneration = '{generation}'\n\
         cpus = 2\nnodes = [{sizes}]\nkernel = '{} MiB'\nswap = {{ size = '8 MiB', on = 'disk' }}\n\
         [[actor]]\nname = 'server'\nkind = 'app-server'\nheap = '6 MiB'\nlocality = {{ zipf = 1.0 }}\n\
         [[actor]]\nname = 'reader'\nkind = 'file-reader'\nsize = '9 MiB'\nrepeat = 0\n\
         [[actor]]\nname = 'writer'\nkind = 'file-writer'\nsize = '9 MiB'\nrepeat = 0\n",
        50 * nodes
    );
    let scenario = match Scenario::parse(&text, "small.toml") {
        Ok(scenario) => scenario,
        Err(errors) => panic!("{errors}"),
    };
    let cases = scenario.cases(None);
    match cases.ok().and_then(|cases| execute(&cases[0])) {
        Some(run) => run,
        None => panic!("the model refuses\n{text}"),
    }
}

/// Seeds: for each generation, four walks that make a valid case.
pub(crate) fn seeds(_: &Fixture) -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let seeds = || {
        let mut seeds = Vec::new();
        for generation in 0..NAMES.len() as u8 {
            let walks = (1..).map(|seed| {
                let mut walk = crate::model::walk(seed * 31 + u32::from(generation), 160);
                walk[0] = generation;
                walk
            });
            seeds.extend(walks.filter(|walk| case(walk).is_some()).take(4));
        }
        seeds
    };
    SEEDS.get_or_init(seeds).clone()
}
