//! The captured kernels below `fixtures`, as far as the formulas need them.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use lotsfree_formulas::Rules;
use lotsfree_formulas::reserve::{ReserveZone, totalreserve_pages};
use lotsfree_formulas::watermarks::{WatermarkSettings, Watermarks, Zone, ZoneKind, watermarks};
use lotsfree_units::PageSize;

/// One captured kernel: name, and content by path, which begins with the sample.
pub(crate) struct Host {
    pub(crate) name: String,
    files: HashMap<String, String>,
}

impl Host {
    /// Every fixture of a directory below `fixtures`, by name.
    pub(crate) fn all(directory: &str) -> Vec<Host> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(directory);
        let mut hosts = Vec::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "txt") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let mut files: HashMap<String, String> = HashMap::new();
            let mut current = None;
            for line in text.lines() {
                if let Some(name) = line.strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --")) {
                    current = Some(files.entry(name.to_owned()).or_default());
                } else if let Some(file) = &mut current {
                    file.push_str(line);
                    file.push('\n');
                }
            }
            hosts.push(Host { name: path.file_stem().unwrap().to_string_lossy().into_owned(), files });
        }
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        hosts
    }

    /// The running machine. What is printed and what it is derived from are a moment apart, so the files are
    /// read until two readings agree on memory; after 200 attempts the last one counts.
    pub(crate) fn running() -> Host {
        const MEMORY: [&str; 3] = ["proc/zoneinfo", "proc/meminfo", "proc/vmstat"];
        let read = |path: &str| std::fs::read_to_string(format!("/{path}")).unwrap();
        let name = "this machine".to_owned();
        let mut host = Host { name, files: HashMap::new() };
        for _ in 0..200 {
            let texts = MEMORY.map(read);
            let [vmstat, meminfo, zoneinfo] = ["proc/vmstat", "proc/meminfo", "proc/zoneinfo"].map(read);
            let quiet = of_memory(&texts) == of_memory(&[zoneinfo, meminfo, vmstat]);
            host.files.extend(MEMORY.iter().zip(texts).map(|(path, text)| (format!("0s/{path}"), text)));
            if quiet {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let vm = [
            "min_free_kbytes",
            "watermark_scale_factor",
            "lowmem_reserve_ratio",
            "dirty_ratio",
            "dirty_bytes",
            "dirty_background_ratio",
            "dirty_background_bytes",
            "overcommit_ratio",
            "overcommit_kbytes",
        ];
        let mut paths: Vec<String> = vm.iter().map(|name| format!("proc/sys/vm/{name}")).collect();
        let others =
            ["proc/cmdline", "proc/sys/kernel/osrelease", "sys/kernel/mm/transparent_hugepage/enabled"];
        paths.extend(others.map(str::to_owned));
        for node in std::fs::read_dir("/sys/devices/system/node").unwrap() {
            let path = node.unwrap().path().join("cpulist");
            if path.is_file() {
                paths.push(path.to_str().unwrap().trim_start_matches('/').to_owned());
            }
        }
        host.files.extend(paths.iter().map(|path| (format!("0s/{path}"), read(path))));
        host
    }

    pub(crate) fn samples(&self) -> Vec<Sample<'_>> {
        let seconds: BTreeSet<u32> = self
            .files
            .keys()
            .map(|path| path.split_once("s/").and_then(|(seconds, _)| seconds.parse().ok()).unwrap())
            .collect();
        seconds.into_iter().map(|second| Sample::new(self, second)).collect()
    }
}

/// What one instant shows.
pub(crate) struct Sample<'a> {
    host: &'a Host,
    second: u32,
    /// All zones of all nodes, empty ones included.
    pub(crate) zones: Vec<Printed>,
}

impl<'a> Sample<'a> {
    fn new(host: &'a Host, second: u32) -> Self {
        let mut sample = Sample { host, second, zones: Vec::new() };
        sample.zones = zones(sample.text("proc/zoneinfo"));
        sample
    }

    /// Which instant of which kernel.
    pub(crate) fn at(&self) -> String {
        format!("{} {}s", self.host.name, self.second)
    }

    /// A file, if it was captured.
    pub(crate) fn file(&self, path: &str) -> Option<&'a str> {
        let at = |second| self.host.files.get(&format!("{second}s/{path}"));
        // A later instant has the first one's files where it does not have its own.
        at(self.second).or_else(|| at(0)).map(String::as_str)
    }

    pub(crate) fn text(&self, path: &str) -> &'a str {
        self.file(path).unwrap_or_else(|| panic!("{}: no {path}", self.at()))
    }

    pub(crate) fn sysctl(&self, name: &str) -> u64 {
        self.text(&format!("proc/sys/vm/{name}")).trim().parse().unwrap()
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules::of_release(self.text("proc/sys/kernel/osrelease").trim()).unwrap()
    }

    /// The setting of transparent huge pages.
    pub(crate) fn thp(&self) -> &'a str {
        let text = self.text("sys/kernel/mm/transparent_hugepage/enabled");
        text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).unwrap().0
    }

    /// A field of `meminfo` in pages.
    pub(crate) fn meminfo(&self, field: &str) -> u64 {
        let line = self.text("proc/meminfo").lines().find(|line| line.split(':').next() == Some(field));
        line.unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 4
    }

    pub(crate) fn vmstat(&self, field: &str) -> u64 {
        let line = self.text("proc/vmstat").lines().find(|line| line.split(' ').next() == Some(field));
        line.unwrap().split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// CPUs of a node, from its list of ranges.
    pub(crate) fn cpus(&self, node: &str) -> u64 {
        let list = self.text(&format!("sys/devices/system/node/node{node}/cpulist")).trim();
        let count = |range: &str| match range.split_once('-') {
            Some((first, last)) => last.parse::<u64>().unwrap() - first.parse::<u64>().unwrap() + 1,
            None => 1,
        };
        list.split(',').filter(|range| !range.is_empty()).map(count).sum()
    }

    /// Whether the files were read by a real-time task: its scheduling policy, field 41 of its `stat`.
    pub(crate) fn realtime(&self) -> bool {
        let Some(stat) = self.file("proc/self/stat") else { return false };
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        matches!(fields.split(' ').nth(41 - 3).unwrap(), "1" | "2")
    }

    /// The marks that `min_free_kib` and the other settings of this instant give the zones.
    pub(crate) fn marks(&self, min_free_kib: u64) -> Vec<Watermarks> {
        let scale_factor = self.sysctl("watermark_scale_factor");
        let tuning = WatermarkSettings { min_free_kib, scale_factor, extra_free_kib: 0 };
        let list: Vec<Zone> = self.zones.iter().map(Printed::zone).collect();
        watermarks(&self.rules().watermarks, &tuning, &list, PageSize::X86)
    }

    /// `totalreserve_pages`, from what is printed.
    pub(crate) fn total_reserve(&self) -> u64 {
        totalreserve_pages(self.zones.iter().map(|zone| ReserveZone {
            managed: zone.number("managed"),
            high: zone.mark("high"),
            protection_max: zone.protection.iter().copied().max().unwrap(),
        }))
    }
}

/// One zone as `/proc/zoneinfo` prints it.
#[derive(Default)]
pub(crate) struct Printed {
    pub(crate) node: String,
    pub(crate) kind: Option<ZoneKind>,
    pub(crate) numbers: HashMap<String, u64>,
    pub(crate) protection: Vec<u64>,
}

impl Printed {
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.numbers[name]
    }

    /// A mark without the boost that `/proc/zoneinfo` adds to each.
    pub(crate) fn mark(&self, name: &str) -> u64 {
        self.number(name) - self.number("boost")
    }

    fn zone(&self) -> Zone {
        Zone { kind: self.kind.unwrap(), present: self.number("present"), managed: self.number("managed") }
    }
}

/// The lines of memory's files that are compared to tell whether it is at rest.
fn of_memory(texts: &[String; 3]) -> Vec<&str> {
    const NAMES: [&str; 10] = [
        "MemFree:",
        "MemAvailable:",
        "Active(file):",
        "Inactive(file):",
        "SReclaimable:",
        "KReclaimable:",
        "nr_free_pages",
        "nr_active_file",
        "nr_inactive_file",
        "boost",
    ];
    let compared = |line: &&str| line.split_whitespace().next().is_some_and(|name| NAMES.contains(&name));
    // Zones print nr_free_pages too; those of zoneinfo are compared as well.
    texts.iter().flat_map(|text| text.lines()).filter(compared).collect()
}

fn zones(text: &str) -> Vec<Printed> {
    let mut zones: Vec<Printed> = Vec::new();
    for line in text.lines() {
        if let Some((node, name)) = line.split_once(", zone") {
            let kind = match name.trim() {
                "DMA" => ZoneKind::Dma,
                "DMA32" => ZoneKind::Dma32,
                "Normal" => ZoneKind::Normal,
                "Movable" => ZoneKind::Movable,
                "Device" => ZoneKind::Device,
                other => panic!("zone {other}"),
            };
            let node = node.trim_start_matches("Node ").to_owned();
            zones.push(Printed { node, kind: Some(kind), ..Printed::default() });
        } else if let Some(zone) = zones.last_mut() {
            let line = line.trim();
            if let Some(list) = line.strip_prefix("protection: (") {
                zone.protection =
                    list.trim_end_matches(')').split(", ").map(|n| n.parse().unwrap()).collect();
            } else if let [name, number] = line.split_whitespace().collect::<Vec<_>>()[..]
                && let Ok(number) = number.parse()
            {
                // The first CPU's figures stand for all; a zone's own come before them.
                zone.numbers.entry(name.to_owned()).or_insert(number);
            }
        }
    }
    zones
}
