//! NUMA nodes as tools print them: `numactl -H`, `numastat`, `numastat -m`, and lines of a node's `meminfo`.
//!
//! | line | becomes |
//! |---|---|
//! | `Node 0 MemFree: 123 kB` | a line of `sys/devices/system/node/node0/meminfo` |
//! | `node 0 size: 65436 MB`, `node 0 free: 1234 MB` of numactl | `MemTotal`, `MemFree` there |
//! | `node 0 cpus: 0 1 2 3`, the rows below `node distances:` | `cpulist`, `distance` |
//! | the columns `Node 0`, `Node 1` of `numastat -m`, in MB | lines of each node's `meminfo` |
//! | the columns `node0`, `node1` of `numastat` | lines of each node's `numastat` |

use std::collections::BTreeMap;

use lotsfree_kernel_files::counters::{Counter, Meminfo};

use super::MemorySource;

/// The size of a huge page where nothing tells it: that of x86 and of arm64 with small pages.
const HUGE_MIB: f64 = 2.0;
/// At most this many nodes of a table.
const MOST_NODES: usize = 64;

/// Which table is open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Open {
    #[default]
    None,
    /// `numastat -m`, with this many nodes.
    Meminfo(usize),
    /// `numastat`, with this many nodes.
    Numastat(usize),
    Distances,
}

/// Reads the lines of a text that tell of nodes.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    open: Open,
}

impl Nodes {
    /// Takes a line if it tells of nodes.
    pub(crate) fn take(&mut self, line: &str, source: &mut MemorySource) -> bool {
        let words: Vec<&str> = line.split_ascii_whitespace().take(2 * MOST_NODES + 2).collect();
        prefixed(&words, source) || numactl(&words, source) || self.table(&words, source)
    }

    fn table(&mut self, words: &[&str], source: &mut MemorySource) -> bool {
        if let Some(open) = head(words) {
            self.open = open;
            return true;
        }
        match (self.open, words) {
            (Open::None, _) | (_, []) => false,
            // Rules between head and rows.
            (_, words) if words.iter().all(|word| word.bytes().all(|b| b == b'-')) => true,
            (Open::Meminfo(count), [name, values @ ..])
                if values.len() == count || values.len() == count + 1 =>
            {
                let values: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
                let Some(values) = values.filter(|values| values.iter().all(|v| (0.0..1e12).contains(v)))
                else {
                    return false;
                };
                for (node, mib) in values.iter().take(count).enumerate() {
                    let line = match name.starts_with("HugePages_") {
                        // numastat multiplies them by the size of one, which it does not print.
                        true => format!("Node {node} {name}: {}\n", (mib / HUGE_MIB) as u64),
                        false => format!("Node {node} {name}: {} kB\n", (mib * 1024.0) as u64),
                    };
                    source.append(&path(node, "meminfo"), line.as_bytes());
                }
                true
            }
            (Open::Numastat(count), [name, values @ ..]) if values.len() == count && name.contains('_') => {
                let Some(values) =
                    values.iter().map(|value| value.parse::<u64>().ok()).collect::<Option<Vec<_>>>()
                else {
                    return false;
                };
                let name = match *name {
                    "interleave_hit" | "numa_hit" | "numa_miss" | "numa_foreign" | "local_node"
                    | "other_node" => *name,
                    _ => return false,
                };
                for (node, pages) in values.iter().enumerate() {
                    source.append(&path(node, "numastat"), format!("{name} {pages}\n").as_bytes());
                }
                true
            }
            (Open::Distances, [node, values @ ..]) => {
                let Some(node) = node.strip_suffix(':').and_then(|node| node.parse::<usize>().ok()) else {
                    return false;
                };
                let numbers = values.iter().all(|value| value.parse::<u32>().is_ok());
                if node < MOST_NODES && numbers {
                    source.insert(path(node, "distance"), format!("{}\n", values.join(" ")));
                }
                numbers
            }
            _ => false,
        }
    }
}

/// The head of a table: `Node 0 Node 1 Total`, `node0 node1`, `node 0 1` below `node distances:`.
fn head(words: &[&str]) -> Option<Open> {
    if words == ["node", "distances:"] {
        return Some(Open::Distances);
    }
    if let ["node", numbers @ ..] = words
        && !numbers.is_empty()
        && numbers.iter().enumerate().all(|(at, number)| number.parse() == Ok(at))
    {
        return Some(Open::Distances);
    }
    let short = words.iter().enumerate().all(|(at, word)| *word == format!("node{at}"));
    if short && !words.is_empty() && words.len() <= MOST_NODES {
        return Some(Open::Numastat(words.len()));
    }
    let pairs = words.strip_suffix(&["Total"]).unwrap_or(words);
    let long = pairs.chunks(2).enumerate().all(|(at, pair)| pair == ["Node", at.to_string().as_str()]);
    (long && !pairs.is_empty() && pairs.len() <= 2 * MOST_NODES).then_some(Open::Meminfo(pairs.len() / 2))
}

fn prefixed(words: &[&str], source: &mut MemorySource) -> bool {
    let ["Node", node, name, value, rest @ ..] = words else { return false };
    let (Ok(id), Some(field)) = (node.parse::<usize>(), name.strip_suffix(':')) else { return false };
    let fits = id < 4096
        && field.bytes().all(|b| b.is_ascii_alphanumeric() || b"_()".contains(&b))
        && field.starts_with(|c: char| c.is_ascii_uppercase())
        && value.parse::<u64>().is_ok()
        && matches!(rest, [] | ["kB"]);
    if fits {
        source.append(&path(id, "meminfo"), format!("{}\n", words.join(" ")).as_bytes());
    }
    fits
}

fn numactl(words: &[&str], source: &mut MemorySource) -> bool {
    let ["node", node, what @ ("cpus:" | "size:" | "free:"), rest @ ..] = words else { return false };
    let Some(node) = node.parse::<usize>().ok().filter(|node| *node < MOST_NODES) else { return false };
    match (*what, rest) {
        ("cpus:", cpus) if cpus.iter().all(|cpu| cpu.parse::<u32>().is_ok()) => {
            source.insert(path(node, "cpulist"), format!("{}\n", cpus.join(",")));
            true
        }
        (what, [mib, "MB"]) => {
            let Ok(mib) = mib.parse::<u64>() else { return false };
            let name = if what == "size:" { "MemTotal" } else { "MemFree" };
            let line = format!("Node {node} {name}: {} kB\n", mib.saturating_mul(1024));
            source.append(&path(node, "meminfo"), line.as_bytes());
            true
        }
        _ => false,
    }
}

/// Lines of `proc/meminfo` that are the sums of those of all nodes, if there are any.
pub(crate) fn sums(source: &MemorySource) -> Option<String> {
    let mut sums: BTreeMap<String, (u64, bool)> = BTreeMap::new();
    for (path, contents) in source.files() {
        let Some(contents) =
            contents.as_ref().ok().filter(|_| path.ends_with("/meminfo") && path.contains("/node/node"))
        else {
            continue;
        };
        for line in String::from_utf8_lossy(contents).lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let ["Node", _, name, value, unit @ ..] = &words[..] else { continue };
            // The page cache of a node is called FilePages.
            let name = if *name == "FilePages:" { "Cached:" } else { name };
            let known = Counter::<Meminfo>::named(name.trim_end_matches(':')).is_some();
            if let Some(value) = value.parse::<u64>().ok().filter(|_| known) {
                let sum = sums.entry(name.to_owned()).or_insert((0, !unit.is_empty()));
                sum.0 = sum.0.saturating_add(value);
            }
        }
    }
    let line = |(name, (sum, unit)): (&String, &(u64, bool))| {
        format!("{name} {sum}{}\n", if *unit { " kB" } else { "" })
    };
    if sums.contains_key("HugePages_Total:") {
        sums.entry("Hugepagesize:".to_owned()).or_insert((HUGE_MIB as u64 * 1024, true));
    }
    (!sums.is_empty()).then(|| sums.iter().map(line).collect())
}

fn path(node: usize, file: &str) -> String {
    format!("sys/devices/system/node/node{node}/{file}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn read(text: &str) -> MemorySource {
        let (mut nodes, mut source) = (Nodes::default(), MemorySource::default());
        for line in text.lines() {
            assert!(nodes.take(line, &mut source), "{line}");
        }
        source
    }

    fn file(source: &MemorySource, path: &str) -> String {
        let mut text = Vec::new();
        source.read(path, 1 << 16, &mut text).expect("the file");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn numactl_tells_of_nodes() {
        let source = read(
            "node 0 cpus: 0 1\nnode 0 size: 64 MB\nnode 0 free: 2 MB\nnode 1 cpus: 2 3\nnode 1 size: 64 MB\n\
             node 1 free: 60 MB\nnode distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n",
        );
        assert_eq!(
            file(&source, "sys/devices/system/node/node0/meminfo"),
            "Node 0 MemTotal: 65536 kB\nNode 0 MemFree: 2048 kB\n"
        );
        assert_eq!(file(&source, "sys/devices/system/node/node1/cpulist"), "2,3\n");
        assert_eq!(file(&source, "sys/devices/system/node/node1/distance"), "21 10\n");
    }

    #[test]
    fn numastat_tells_of_nodes() {
        let source = read(
            "                          Node 0          Node 1           Total\n\
             --------------- --------------- ---------------\n\
             MemTotal                   64.00           64.50          128.50\n\
             HugePages_Total             8.00            0.00            8.00\n",
        );
        assert_eq!(
            file(&source, "sys/devices/system/node/node1/meminfo"),
            "Node 1 MemTotal: 66048 kB\nNode 1 HugePages_Total: 0\n"
        );
        let source = read("   node0   node1\nnuma_hit  5 6\nother_node 7 8\n");
        assert_eq!(file(&source, "sys/devices/system/node/node1/numastat"), "numa_hit 6\nother_node 8\n");
        let source = read("Node 1 MemFree:       123 kB\n");
        assert_eq!(file(&source, "sys/devices/system/node/node1/meminfo"), "Node 1 MemFree: 123 kB\n");
    }

    #[test]
    fn other_lines_tell_of_none() {
        for line in
            ["Node 0, zone Normal 1 2 3", "node", "available: 2 nodes (0-1)", "Node 0 DMA free:5kB", ""]
        {
            assert!(!Nodes::default().take(line, &mut MemorySource::default()), "{line}");
        }
    }
}
