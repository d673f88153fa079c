//! `lotsfree sim --host`, and `--like SNAPSHOT` without a scenario: a scenario of a host, to be read and
//! changed.
//!
//! The machine, its settings, and how much memory is whose are the host's. What programs do with their memory
//! no file of the kernel says: that is assumed, and the text says so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use lotsfree_analysis::conditions::{marked, to_be_had};
use lotsfree_engine::Tuning;
use lotsfree_kernel_files::counters::{meminfo, status, zoneinfo};
use lotsfree_kernel_files::file::block::BlockDevice;
use lotsfree_kernel_files::file::lru_gen::LruGen;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_scenario::{Conditions, Generation, MachineSpec, Occupied, Scenario};
use lotsfree_settings::{Initial, NR_HUGEPAGES, Release, Setting, Value};
use lotsfree_snapshot::source::{live, open};
use lotsfree_snapshot::{Observation, Options, Snapshot, observe};
use lotsfree_units::words::enumeration;
use lotsfree_units::{Bytes, MIB, PageSize};

/// Programs with actors of their own.
const PROGRAMS: usize = 5;
/// A program with less than this share of memory is among the others.
const LEAST: f64 = 0.01;
/// The most threads of an actor: how many of a program's work at a time is not known.
const THREADS: u32 = 4;
/// Seconds before which the copy does not begin, and for which the run then lasts.
const QUIET: u64 = 120;
const LASTS: u64 = 180;
/// Bytes a second at which the model's disk fills the cache in the beginning.
const FILL: u64 = 400 * MIB;

/// The text of a scenario of this host, or of the one whose data are at `path`.
///
/// # Errors
/// If the data cannot be read or do not say how much memory there is, or if the model cannot be such a host.
pub(super) fn scenario(path: Option<&Path>) -> anyhow::Result<String> {
    let input = match path {
        Some(path) => open(path)?,
        None => live()?,
    };
    let Observation { label, now, .. } = observe(input, &Options::default());
    let text = of(&now, &label)?;
    // A text that `sim` would refuse is of no use.
    Scenario::parse(&text, &label)?;
    Ok(text)
}

/// What the machine of a case is told to begin as the host did whose data are at `path`.
///
/// # Errors
/// If the data cannot be read, do not say what is in use, or are of another machine than the case's.
pub(super) fn conditions(path: &Path, machine: &MachineSpec, has_pool: bool) -> anyhow::Result<Conditions> {
    let Observation { label, now, .. } = observe(open(path)?, &Options::default());
    let places = places(&now, has_pool);
    anyhow::ensure!(
        now.host.page_size == machine.page(),
        "{label}: a host with pages of {}; the scenario's machine has pages of {}",
        now.host.page_size.bytes(),
        machine.page().bytes()
    );
    anyhow::ensure!(
        places.len() == machine.nodes.len()
            && places
                .iter()
                .zip(&machine.nodes)
                .all(|(place, node)| place.size.abs_diff(node.bytes()) <= MIB),
        "{label}: a host with {}; the scenario's machine has {}",
        nodes(places.iter().map(|place| place.size)),
        nodes(machine.nodes.iter().map(|node| node.bytes()))
    );
    anyhow::ensure!(
        places.iter().all(|place| place.kernel > 0 && place.managed > 0),
        "{label}: /proc/zoneinfo, and meminfo of each node, say what is in use, and are not all there"
    );
    let per_node = |of: fn(&Place) -> u64| Some(Occupied::per_node(places.iter().map(of)));
    Ok(Conditions {
        kernel: per_node(|place| place.kernel),
        reserved: per_node(|place| place.size.saturating_sub(place.managed)),
        ..Conditions::default()
    })
}

/// `2 nodes of 384 and 512 MiB`
fn nodes(sizes: impl Iterator<Item = u64>) -> String {
    let sizes: Vec<String> = sizes.map(|size| Bytes(size).to_string()).collect();
    match sizes.as_slice() {
        [one] => format!("one node of {one}"),
        several => format!("{} nodes of {}", several.len(), enumeration(several)),
    }
}

/// A node of the host, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    size: u64,
    /// What its zones manage; 0: not known.
    managed: u64,
    /// What is neither free nor on a list of reclaim; 0: not known.
    kernel: u64,
}

fn of(now: &Snapshot, label: &str) -> anyhow::Result<String> {
    let places = places(now, obeys_pool(now));
    anyhow::ensure!(
        places.iter().any(|place| place.size > 0),
        "{label}: neither /proc/zoneinfo nor MemTotal of /proc/meminfo is there"
    );
    let memory: u64 = places.iter().map(|place| place.size).sum();
    let programs = programs(now, memory);
    let files = |list| kib(now.meminfo.as_ref().and_then(|values| values.get(list)));
    let (hot, cold) = (files(meminfo::Active_file), files(meminfo::Inactive_file));
    let begin = (QUIET + (hot + cold) / FILL).next_multiple_of(30);
    let name = match now.host.hostname.as_str() {
        "" => label,
        name => name,
    };

    let mut text = format!(
        "# Made by lotsfree {} of {}. What it assumes is said in comments: change it.\n\ntitle    = {}\nseed     = 1\n\
         duration = \"{} s\"\ninterval = \"1 s\"\nbase     = \"as it is\"\n\n",
        env!("CARGO_PKG_VERSION"),
        one_line(label),
        quoted(&format!("{name} beside a copy")),
        begin + LASTS,
    );
    machine(&mut text, now, &places);
    settings(&mut text, now);
    for (place, program) in programs.iter().enumerate() {
        if place == 0 {
            text +=
                "# Programs, by their anonymous memory. How often they use which part of it is assumed.\n";
        }
        program.write(&mut text);
    }
    cache(&mut text, hot, cold);
    disturbance(&mut text, memory, begin, programs.first());
    Ok(text)
}

/// Whether the model's pool can be the host's: its pages have the size of a PMD, which is the default.
fn obeys_pool(now: &Snapshot) -> bool {
    let size = now.meminfo.as_ref().and_then(|meminfo| meminfo.get(meminfo::Hugepagesize));
    size.is_some_and(|kib| kib == now.host.page_size.pmd_huge().as_kib())
}

/// The nodes; one of all memory if they are not known. With `has_pool`, huge pages are memory that is to be
/// had, because `vm.nr_hugepages` takes it again.
fn places(now: &Snapshot, has_pool: bool) -> Vec<Place> {
    let (all, page) = (now.meminfo.as_ref(), now.host.page_size);
    let huge = if has_pool { page.pmd_huge() } else { Bytes::ZERO };
    let zones = now.zones.as_deref().unwrap_or_default();
    let mut ids: Vec<u32> = zones.iter().map(|zone| zone.node).collect();
    ids.sort_unstable();
    ids.dedup();
    let of = |id: u32| {
        let node = now.nodes.iter().flatten().find(|node| node.id == id);
        let meminfo = node.and_then(|node| node.meminfo.as_ref()).or(all.filter(|_| ids.len() == 1));
        let size = marked(page, zones, id, zoneinfo::present).next_multiple_of(MIB);
        Place {
            size,
            managed: marked(page, zones, id, zoneinfo::managed),
            kernel: meminfo
                .map_or(0, |meminfo| size.saturating_sub(to_be_had(page, huge, zones, id, meminfo))),
        }
    };
    let found: Vec<Place> = ids.iter().map(|id| of(*id)).filter(|place| place.size > 0).collect();
    if !found.is_empty() {
        return found;
    }
    let total = kib(all.and_then(|values| values.get(meminfo::MemTotal)));
    vec![Place { size: total.next_multiple_of(MIB), ..Place::default() }]
}

fn machine(text: &mut String, now: &Snapshot, places: &[Place]) {
    let release = &now.host.kernel.release;
    let (generation, remark) = Generation::for_kernel(release);
    let mglru = now.lru_gen.as_ref().is_some_and(|LruGen { enabled, .. }| enabled & 1 == 1);
    let generation = match format!("{generation}+mglru").parse::<Generation>() {
        Ok(other) if mglru => other,
        _ => generation,
    };
    let list = |of: &dyn Fn(&Place) -> u64| {
        let sizes: Vec<String> = places.iter().map(|place| quoted(&size(of(place)))).collect();
        format!("[{}]", sizes.join(", "))
    };
    let nodes = now.nodes.as_deref().unwrap_or_default();
    let cpus = match nodes.len() == places.len() && nodes.iter().any(|node| !node.cpus.is_empty()) {
        true => {
            let cpus: Vec<String> = nodes.iter().map(|node| node.cpus.len().to_string()).collect();
            format!("[{}]", cpus.join(", "))
        }
        false => now.host.cpus.unwrap_or(1).to_string(),
    };
    let _ = writeln!(
        text,
        "[machine]\n# Linux {}{remark}\ngeneration = {}",
        one_line(release),
        quoted(generation.name())
    );
    if now.host.page_size != PageSize::X86 {
        let page = quoted(&now.host.page_size.bytes().to_string());
        let _ = writeln!(
            text,
            "# The zones and pageblocks of arm64 with pages of this size.\npage-size  = {page}"
        );
    }
    let _ = writeln!(text, "cpus       = {cpus}\nnodes      = {}", list(&|place| place.size));
    let is_matrix =
        nodes.len() == places.len() && nodes.iter().all(|node| node.distance.len() == nodes.len());
    if is_matrix && places.len() > 1 {
        let rows: Vec<String> = nodes.iter().map(|node| format!("{:?}", node.distance)).collect();
        let _ = writeln!(text, "distance   = [{}]", rows.join(", "));
    }
    if places.iter().all(|place| place.kernel > 0) {
        text.push_str("# What is neither free nor on a list of reclaim: the kernel, locked memory.\n");
        let _ = writeln!(text, "kernel     = {}", list(&|place| place.kernel));
    }
    if places.iter().all(|place| (1..=place.size).contains(&place.managed)) {
        let _ = writeln!(text, "reserved   = {}", list(&|place| place.size - place.managed));
    }
    // A virtual disk says that it turns unless it is told otherwise.
    let turns = |device: &&BlockDevice| {
        device.rotational == Some(true) && ["sd", "hd"].iter().any(|start| device.name.starts_with(start))
    };
    let disk = match busiest(now).filter(turns) {
        Some(_) => "latency = \"8 ms\", bandwidth = \"150 MiB/s\", rotational = true",
        None => "latency = \"100 us\", bandwidth = \"500 MiB/s\"",
    };
    text.push_str("# How fast the disk is, is assumed; `lotsfree lab calibrate` measures it.\n");
    let _ = writeln!(text, "disk       = {{ {disk} }}");
    let swap: u64 = now.swaps.iter().flatten().map(|area| area.size.0).sum();
    if swap > 0 {
        let areas: Vec<String> = now.swaps.iter().flatten().map(|area| one_line(&area.path)).collect();
        let _ = writeln!(text, "# {}", areas.join(", "));
        let _ = writeln!(text, "swap       = {{ size = {}, on = \"disk\" }}", quoted(&size(swap)));
    }
    text.push('\n');
}

/// The disk that was read most.
fn busiest(now: &Snapshot) -> Option<&BlockDevice> {
    now.block.iter().flatten().max_by_key(|device| device.stats.map(|stats| stats.reads))
}

/// Settings that are not the kernel's defaults, as far as the model obeys them.
fn settings(text: &mut String, now: &Snapshot) {
    let (generation, _) = Generation::for_kernel(&now.host.kernel.release);
    let release = generation.kernel.release();
    let mut set: BTreeMap<&str, Value> = BTreeMap::new();
    let mut obeyed = Tuning::default();
    for setting in lotsfree_settings::ALL.iter().filter(|setting| setting.in_scenarios) {
        if let Some(value) = value(setting, now).and_then(|value| setting.accepts(release).read(&value)) {
            set.insert(setting.name, value);
        }
    }
    if !obeys_pool(now) {
        set.remove(NR_HUGEPAGES);
    }
    // Of two that exclude each other the one that counts is not 0.
    for (later, other) in lotsfree_settings::pairs() {
        let is_off = |name: &str| set.get(name).is_none_or(|value| *value == Value::Number(0));
        let off = if is_off(later.name) { later.name } else { other.name };
        set.remove(off);
    }
    set.retain(|name, value| {
        let changed = lotsfree_settings::find(name).is_some_and(|known| !is_default(known, release, value));
        changed && obeyed.set(name, value).is_ok()
    });
    if set.is_empty() {
        return;
    }
    text.push_str("# Settings that are not the kernel's defaults.\n[tuning]\n");
    for (name, value) in set {
        let shown = match &value {
            Value::Number(number) => number.to_string(),
            Value::Word(_) | Value::Numbers(_) => quoted(&value.to_string()),
        };
        let _ = writeln!(text, "{name:?} = {shown}");
    }
    text.push('\n');
}

/// A setting's value on the host.
fn value(setting: &Setting, now: &Snapshot) -> Option<String> {
    let thp = now.thp.as_ref();
    match setting.name {
        lotsfree_settings::READ_AHEAD_KB => busiest(now)?.read_ahead_kb.map(|kb| kb.to_string()),
        lotsfree_settings::TRANSPARENT_HUGEPAGE_ENABLED => thp.map(|thp| thp.enabled.selected.to_string()),
        name => now.sysctl.text(name).map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

fn is_default(setting: &Setting, release: Release, value: &Value) -> bool {
    match setting.default(release) {
        Initial::Number(number) => *value == Value::Number(number),
        Initial::Text(text) => value.to_string() == text,
        Initial::Computed(_) => false,
    }
}

/// Processes of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Program {
    name: String,
    processes: usize,
    heap: u64,
    threads: u32,
}

impl Program {
    fn write(&self, text: &mut String) {
        let Program { name, processes, heap, threads } = self;
        let what = match processes {
            1 => "one process".to_owned(),
            number => format!("{number} processes"),
        };
        let _ = writeln!(
            text,
            "[[actor]]\nname     = {}   # {what}\nkind     = \"app-server\"\nheap     = {}\nthreads  = {}\n\
             locality = {{ zipf = 0.9 }}\nthink    = \"10 ms\"\n",
            quoted(name),
            quoted(&size(*heap)),
            (*threads).clamp(1, THREADS)
        );
    }
}

/// The largest programs, and all others as one.
fn programs(now: &Snapshot, memory: u64) -> Vec<Program> {
    let mut by_name: BTreeMap<String, Program> = BTreeMap::new();
    for process in now.processes.iter().flatten() {
        let heap = anonymous(process);
        if heap == 0 {
            continue;
        }
        let name = actor_name(&process.stat.name);
        let program = by_name.entry(name.clone()).or_default();
        program.name = name;
        program.processes += 1;
        program.heap += heap;
        program.threads = program.threads.saturating_add(process.stat.threads);
    }
    let mut programs: Vec<Program> = by_name.into_values().collect();
    programs.sort_by(|a, b| b.heap.cmp(&a.heap).then_with(|| a.name.cmp(&b.name)));
    let large = programs.iter().take(PROGRAMS).filter(|one| one.heap as f64 >= LEAST * memory as f64).count();
    let others = programs.split_off(large);
    let heap: u64 = others.iter().map(|one| one.heap).sum();
    if heap >= MIB {
        let processes = others.iter().map(|one| one.processes).sum();
        programs.push(Program { name: "others".to_owned(), processes, heap, threads: 1 });
    }
    programs
}

/// Anonymous memory of a process, resident and swapped; before 4.5 also what it has of files.
fn anonymous(process: &Process) -> u64 {
    let resident = process.memory(status::RssAnon).or_else(|| process.memory(status::VmRSS));
    resident.unwrap_or_default().0 + process.memory_or_zero(status::VmSwap).0
}

/// What the page cache holds.
fn cache(text: &mut String, hot: u64, cold: u64) {
    if hot + cold < MIB {
        return;
    }
    text.push_str(
        "# What the page cache holds. That files on the active list are read once a minute, and the others once, is\n\
         # assumed.\n",
    );
    if hot >= MIB {
        let _ = writeln!(
            text,
            "[[actor]]\nname   = \"files-in-use\"\nkind   = \"file-reader\"\nsize   = {}\nrate   = \"{} KiB/s\"\nrepeat = 0\n",
            quoted(&size(hot)),
            (hot / 60 / 1024).max(64)
        );
    }
    if cold >= MIB {
        let _ = writeln!(
            text,
            "[[actor]]\nname   = \"files-read-once\"\nkind   = \"file-reader\"\nsize   = {}\n",
            quoted(&size(cold))
        );
    }
}

/// What is asked of the scenario: a copy beside the programs.
fn disturbance(text: &mut String, memory: u64, begin: u64, largest: Option<&Program>) {
    let copy = size(memory / 2);
    let _ = writeln!(
        text,
        "# The question, to be replaced by yours: what does a copy of half of memory do to the others?\n[[actor]]\n\
         name        = \"copy\"\nkind        = \"file-writer\"\nsize        = {}\nsource-size = {}\nstart       = \"{begin} s\"\n",
        quoted(&copy),
        quoted(&copy)
    );
    text.push_str(
        "[[variant]]\nname = \"swappiness 1\"\n\"vm.swappiness\" = 1\n\n[[variant]]\nname = \"copy past the cache\"\n\
         actor.copy.how = \"direct\"\n\n",
    );
    let measured = largest.map_or("copy", |program| program.name.as_str());
    let _ = writeln!(
        text,
        "[measure]\nactor    = {}\nwindow   = [\"{begin} s\", \"end\"]\nbaseline = [\"{} s\", \"{begin} s\"]",
        quoted(measured),
        begin - QUIET / 2
    );
}

/// KiB in bytes.
fn kib(number: Option<u64>) -> u64 {
    Bytes::kib(number.unwrap_or(0)).0
}

/// A size as scenarios have it: whole MiB, upwards; less than one in KiB.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes if bytes < MIB => format!("{} KiB", bytes.div_ceil(1024)),
        bytes => format!("{} MiB", bytes.div_ceil(MIB)),
    }
}

/// A name that an actor may have.
fn actor_name(name: &str) -> String {
    let may = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    let name: String = name.chars().map(may).collect();
    match name.trim_matches('-') {
        "" => "program".to_owned(),
        // These are other actors' names.
        taken @ ("copy" | "others" | "files-in-use" | "files-read-once") => format!("{taken}-program"),
        name => name.to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", one_line(text).replace('\\', "\\\\").replace('"', "\\\""))
}

/// Without what would end a comment.
fn one_line(text: &str) -> String {
    lotsfree_units::visible_line(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_data_is_refused() {
        let error = of(&Snapshot::default(), "x.txt").unwrap_err().to_string();
        assert!(error.starts_with("x.txt: neither /proc/zoneinfo nor MemTotal"), "{error}");
    }

    #[test]
    fn any_name_of_a_program_is_one_of_an_actor() {
        let names = ["Web Content", "(sd-pam)", "java", "copy", "\u{e9}\"", ""].map(actor_name);
        assert_eq!(names, ["Web-Content", "sd-pam", "java", "copy-program", "program", "program"]);
    }

    #[test]
    fn sizes_are_whole() {
        assert_eq!([0, 1, 1024 * 1023, MIB, MIB + 1].map(size), ["0", "1 KiB", "1023 KiB", "1 MiB", "2 MiB"]);
    }

    #[test]
    fn the_host_of_this_test_is_a_scenario() {
        let text = scenario(None).unwrap();
        let read = Scenario::parse(&text, "host.toml").unwrap();
        let cases = read.cases(None).unwrap();
        assert_eq!(cases.len(), 3, "{text}");
        assert!(cases[0].actors.iter().any(|actor| actor.name == "copy"), "{text}");
        assert!(lotsfree_engine::config(&cases[0]).is_ok(), "{text}");
    }

    #[test]
    fn saved_hosts_are_scenarios() {
        let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
        let text = scenario(Some(&hosts.join("6.1-2nodes-swap-hugepages.txt"))).unwrap();
        let case = Scenario::parse(&text, "host.toml").unwrap().cases(None).unwrap().remove(0);
        assert_eq!((case.machine.generation.name(), case.machine.nodes.len()), ("linux-6.1", 2), "{text}");
        assert!(text.contains("swap       = { size = "), "{text}");
        // Its pool is a setting, and not among what the kernel has.
        assert!(text.contains("\"vm.nr_hugepages\" = 64\n"), "{text}");
        let config = lotsfree_engine::config(&case).unwrap();
        let has = |pool: bool| {
            let told = conditions(&hosts.join("6.1-2nodes-swap-hugepages.txt"), &case.machine, pool).unwrap();
            let kernel = case.machine.per_node(told.kernel.as_ref().unwrap());
            kernel.iter().map(|size| size.bytes()).sum::<u64>()
        };
        assert_eq!((has(false) - has(true), config.mm.tuning.nr_hugepages), (64 << 21, 64));
    }

    #[test]
    fn a_host_with_pages_of_64_kib_is_a_machine_with_such_pages() {
        let fixture = "../../fixtures/rules/zone-watermarks/fires-64k-pages.txt";
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
        let text = scenario(Some(&host)).unwrap();
        let case = Scenario::parse(&text, "host.toml").unwrap().cases(None).unwrap().remove(0);
        assert_eq!(case.machine.page().bytes(), Bytes::kib(64), "{text}");
        // 248,320 pages are present.
        assert_eq!(case.machine.memory(), Bytes::kib(248_320 * 64), "{text}");
        let config = lotsfree_engine::config(&case).unwrap();
        assert_eq!(config.mm.nodes, [248_320]);
        assert!(conditions(&host, &case.machine, false).is_ok());
        let small = MachineSpec { page_size: "4 KiB".parse().unwrap(), ..case.machine };
        let error = conditions(&host, &small, false).unwrap_err().to_string();
        assert!(
            error.ends_with("a host with pages of 64 KiB; the scenario's machine has pages of 4 KiB"),
            "{error}"
        );
    }

    #[test]
    fn a_machine_begins_as_a_saved_host() {
        let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
        let case = |name: &str| {
            let text = scenario(Some(&hosts.join(name))).unwrap();
            Scenario::parse(&text, "host.toml").unwrap().cases(None).unwrap().remove(0)
        };
        let two = case("6.1-2nodes-swap-hugepages.txt");
        let told = conditions(&hosts.join("6.1-2nodes-swap-hugepages.txt"), &two.machine, true).unwrap();
        // The scenario has the same in whole MiB.
        let of = |occupied: Option<&Occupied>| two.machine.per_node(occupied.unwrap());
        for (told, written) in of(told.kernel.as_ref()).iter().zip(of(two.machine.stated_kernel())) {
            assert!((0..MIB).contains(&(written.bytes() - told.bytes())), "{told} {written}");
        }
        let one = case("6.1-1node-plain.txt");
        let error =
            conditions(&hosts.join("6.1-2nodes-swap-hugepages.txt"), &one.machine, false).unwrap_err();
        assert!(error.to_string().contains(": a host with 2 nodes of "), "{error}");
    }
}
