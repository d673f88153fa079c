//! `/proc/zoneinfo`: one block per zone of each node.

use std::fmt::Write as _;

use serde::Serialize;

use super::scan::{decimal, decimal32, name_of, trimmed_lines, words};
use crate::counters::{Counter, Values, Vmstat, Zoneinfo, zoneinfo};
use crate::{File, Log, ProblemKind};

/// At most this many zones are kept: eight for each of 1024 nodes, the most that Linux can be built for.
pub(super) const MOST_ZONES: usize = 8192;
/// At most this many CPUs are kept per zone or node: the largest `CONFIG_NR_CPUS` of x86.
pub(super) const MOST_CPUS: usize = 8192;
/// At most this many zones are read from `protection:`; kernels have up to six.
const MOST_PROTECTED: usize = 64;

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, `Device`.
    pub name: Box<str>,
    /// Free pages, watermarks, sizes (the `pages free` block) and the few fields after the page sets.
    pub marks: Values<Zoneinfo>,
    /// The zone's own statistics, under their `/proc/vmstat` names.
    pub stats: Values<Vmstat>,
    /// The node's statistics (`per-node stats`), printed by 4.8 and later in the node's first populated zone.
    pub node_stats: Option<Values<Vmstat>>,
    /// `protection:`, the lowmem reserve in pages against allocations that may use higher zones.
    pub protection: Vec<u64>,
    /// `pagesets`, one per CPU.
    pub pagesets: Vec<Pageset>,
}

/// Free pages of a zone that are cached for one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pageset {
    /// CPU number.
    pub cpu: u32,
    /// Pages on the list.
    pub count: u64,
    /// Length at which the list is trimmed.
    pub high: u64,
    /// Pages moved between the list and the zone at a time.
    pub batch: u64,
}

/// Fields that some kernels print after the page sets, with a colon.
const TAIL: [Counter<Zoneinfo>; 6] = [
    zoneinfo::all_unreclaimable,
    zoneinfo::node_unreclaimable,
    zoneinfo::prev_priority,
    zoneinfo::start_pfn,
    zoneinfo::inactive_ratio,
    zoneinfo::node_inactive_ratio,
];

/// Names that belong to a CPU's page set. A watermark is called `high` as well, but has no colon.
const PAGESET: [&[u8]; 5] = [b"count", b"high", b"batch", b"high_min", b"high_max"];

/// The part of a zone's block that the next line belongs to.
#[derive(Clone, Copy, Default, PartialEq)]
enum Section {
    /// Before the first zone.
    #[default]
    Before,
    /// After a malformed `Node` line: it is unknown which zone the lines belong to.
    Lost,
    /// Below `per-node stats`.
    NodeStats,
    /// The `pages` block and the lines after the page sets.
    Marks,
    /// The zone's own statistics.
    Stats,
    /// Below a `cpu:` line.
    Pageset,
    /// Below a `cpu:` line beyond the bound on CPUs; not kept.
    LeftOut,
}

#[derive(Default)]
struct Reader {
    section: Section,
    marks: usize,
    stats: usize,
    node_stats: usize,
}

impl Reader {
    fn line(&mut self, line: &[u8], zone: &mut Zone) -> Result<(), &'static str> {
        let mut words = words(line);
        let mut first = words.next().unwrap_or_default();
        match first {
            b"per-node" if words.clone().next() == Some(b"stats") => {
                zone.node_stats.get_or_insert_default();
                self.section = Section::NodeStats;
                return Ok(());
            }
            b"pagesets" if words.clone().next().is_none() => return Ok(()),
            b"vm" if line.starts_with(b"vm stats threshold:") => return Ok(()),
            b"pages" => {
                self.section = Section::Marks;
                match words.next() {
                    None => return Ok(()),
                    Some(word) => first = word,
                }
            }
            b"protection:" | b"protection" => {
                zone.protection = protection(line)?;
                return Ok(());
            }
            _ => {}
        }
        let name = first.strip_suffix(b":");
        let (colon, name) = (name.is_some(), name.unwrap_or(first));
        let value = words.next().and_then(decimal).filter(|&value| value != u64::MAX);
        let value = value.ok_or("no number after the name")?;
        // 2.6.18 prints `scanned 0 (a: 0 i: 0)`.
        if words.next().is_some_and(|rest| !rest.starts_with(b"(")) {
            return Err("something after the number");
        }
        if name.is_empty() {
            return Err("a number without a name");
        }
        if colon { self.with_colon(name, value, zone) } else { self.without_colon(name, value, zone) }
    }

    /// Reads a line with a colon: `cpu:`, the lines of a page set, and those after the page sets.
    fn with_colon(&mut self, name: &[u8], value: u64, zone: &mut Zone) -> Result<(), &'static str> {
        if name == b"cpu" {
            let cpu = u32::try_from(value).map_err(|_| "not the number of a CPU")?;
            if zone.pagesets.len() >= MOST_CPUS {
                let again = self.section == Section::LeftOut;
                self.section = Section::LeftOut;
                return if again { Ok(()) } else { Err("more CPUs than Linux can have; they are left out") };
            }
            zone.pagesets.push(Pageset { cpu, ..Pageset::default() });
            self.section = Section::Pageset;
            return Ok(());
        }
        if PAGESET.contains(&name) {
            match (self.section, zone.pagesets.last_mut()) {
                (Section::Pageset, Some(pageset)) => {
                    match name {
                        b"count" => pageset.count = value,
                        b"high" => pageset.high = value,
                        b"batch" => pageset.batch = value,
                        // Bounds of the self-tuned `high`; not kept.
                        _ => {}
                    }
                    return Ok(());
                }
                (Section::LeftOut, _) => return Ok(()),
                _ if name == b"high" => {}
                _ => return Err("a line of a CPU's page set without its CPU"),
            }
        }
        zone.marks.record(name, value, &mut self.marks);
        if matches!(self.section, Section::Pageset | Section::LeftOut) {
            self.section = Section::Marks;
        }
        Ok(())
    }

    /// Reads a line without a colon: the `pages` block and the statistics.
    fn without_colon(&mut self, name: &[u8], value: u64, zone: &mut Zone) -> Result<(), &'static str> {
        let stat = name.starts_with(b"nr_") || name.starts_with(b"numa_");
        let text = if stat { None } else { str::from_utf8(name).ok() };
        let pageset = name == b"cpu" || (name != b"high" && PAGESET.contains(&name));
        if !pageset && text.is_some_and(|text| Counter::<Zoneinfo>::named(text).is_some()) {
            if self.section == Section::NodeStats {
                self.section = Section::Marks;
            }
            zone.marks.record(name, value, &mut self.marks);
            return Ok(());
        }
        match &mut zone.node_stats {
            Some(stats) if self.section == Section::NodeStats => {
                stats.record(name, value, &mut self.node_stats);
                return Ok(());
            }
            _ => {}
        }
        if stat
            || self.section == Section::Stats
            || text.is_some_and(|text| Counter::<Vmstat>::named(text).is_some())
        {
            self.section = Section::Stats;
            zone.stats.record(name, value, &mut self.stats);
            return Ok(());
        }
        if pageset {
            return Err("a line of a CPU's page set without a colon");
        }
        zone.marks.record(name, value, &mut self.marks);
        Ok(())
    }
}

/// Reads `protection: (0, 3017, 6473)`.
fn protection(line: &[u8]) -> Result<Vec<u64>, &'static str> {
    const WHY: &str = "not a list of numbers in parentheses";
    let start = line.iter().position(|&b| b == b'(').ok_or(WHY)?;
    let list = line[start + 1..].strip_suffix(b")").ok_or(WHY)?;
    if list.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let mut values = Vec::new();
    for item in list.split(|&b| b == b',') {
        if values.len() == MOST_PROTECTED {
            return Err("more zones than Linux has");
        }
        values.push(decimal(item.trim_ascii()).ok_or(WHY)?);
    }
    Ok(values)
}

/// `mm/vmstat.c:zoneinfo_show_print`, 2.6.32 to 6.18, and excerpts of it that lost their indentation.
///
/// A line `name number` belongs to the `pages` block if the table of that block has its name. Otherwise it
/// belongs to the statistics if its name begins like one (`nr_`, `numa_`), is one of `/proc/vmstat`, or
/// follows one. Unknown names are kept in the part in which they stood. `high_min`, `high_max` and `vm stats
/// threshold` of a page set are not kept.
impl File for Vec<Zone> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut zones: Vec<Zone> = Vec::new();
        let mut reader = Reader::default();
        for (number, line) in trimmed_lines(text) {
            if words(line).next() == Some(b"Node") {
                match zone_line(line) {
                    Some((node, name, rest)) if rest.clone().next().is_none() => {
                        if zones.len() == MOST_ZONES {
                            log.whole(ProblemKind::Budget, format!("more than {MOST_ZONES} zones"));
                            break;
                        }
                        zones.push(Zone { node, name: name_of(name), ..Zone::default() });
                        reader = Reader { section: Section::Marks, ..Reader::default() };
                    }
                    _ => {
                        log.malformed(number, "not `Node number, zone name`; its lines are passed over");
                        reader.section = Section::Lost;
                    }
                }
                continue;
            }
            match (reader.section, zones.last_mut()) {
                (Section::Lost, _) => {}
                (Section::Before, _) | (_, None) => {
                    log.malformed(number, "a line before the first `Node number, zone name`");
                    reader.section = Section::Lost;
                }
                (_, Some(zone)) => {
                    if let Err(why) = reader.line(line, zone) {
                        log.malformed(number, why);
                    }
                }
            }
        }
        zones
    }

    fn print(&self, out: &mut String) {
        for zone in self {
            zone.print(out);
        }
    }
}

impl Zone {
    fn print(&self, out: &mut String) {
        let _ = writeln!(out, "Node {}, zone {:>8}", self.node, self.name);
        if let Some(stats) = &self.node_stats {
            out.push_str("  per-node stats\n");
            print_stats(stats, out);
        }
        match self.marks.get(zoneinfo::free) {
            Some(free) => drop(writeln!(out, "  pages free     {free}")),
            // Ends the statistics of the node.
            None if self.node_stats.is_some() => out.push_str("  pages\n"),
            None => {}
        }
        for (mark, value) in self.marks.iter() {
            if mark != zoneinfo::free && !TAIL.contains(&mark) {
                let _ = writeln!(out, "        {:<8} {value}", mark.name());
            }
        }
        if let [first, rest @ ..] = &self.protection[..] {
            let _ = write!(out, "        protection: ({first}");
            for value in rest {
                let _ = write!(out, ", {value}");
            }
            out.push_str(")\n");
        }
        print_stats(&self.stats, out);
        if !self.pagesets.is_empty() {
            out.push_str("  pagesets\n");
        }
        for Pageset { cpu, count, high, batch } in &self.pagesets {
            let _ = writeln!(out, "    cpu: {cpu}");
            for (name, value) in [("count:", count), ("high:", high), ("batch:", batch)] {
                let _ = writeln!(out, "              {name:<9} {value}");
            }
        }
        let known = self.marks.iter().filter(|(mark, _)| TAIL.contains(mark));
        let known = known.map(|(mark, value)| (mark.name(), value));
        let unknown = self.marks.unknown().iter().map(|(name, value)| (&**name, *value));
        for (name, value) in known.chain(unknown) {
            let width = 20usize.saturating_sub(name.len());
            let _ = writeln!(out, "  {name}:{:width$}{value}", " ");
        }
    }
}

fn print_stats(stats: &Values<Vmstat>, out: &mut String) {
    let known = stats.iter().map(|(counter, value)| (counter.name(), value));
    let unknown = stats.unknown().iter().map(|(name, value)| (&**name, *value));
    for (name, value) in known.chain(unknown) {
        let _ = writeln!(out, "      {name:<12} {value}");
    }
}

/// Splits `Node 0, zone   Normal` from the words after it. Three files of `mm/vmstat.c` begin their lines
/// this way.
pub(super) fn zone_line(line: &[u8]) -> Option<(u32, &[u8], impl Iterator<Item = &[u8]> + Clone)> {
    let mut words = words(line);
    if words.next()? != b"Node" {
        return None;
    }
    let node = decimal32(words.next()?.strip_suffix(b",")?)?;
    if words.next()? != b"zone" {
        return None;
    }
    Some((node, words.next()?, words))
}

#[cfg(test)]
mod tests {
    use crate::counters::{Family, vmstat};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, name, parse, print, settles};

    /// 6.18, two CPUs.
    const NEW: &str = include_str!("../../tests/data/zoneinfo-6.18.txt");
    /// A zone of a 2.6.3x kernel, shortened to some of its statistics and two of its CPUs.
    const OLD: &str = "Node 0, zone   Normal
  pages free     209598
        min      1097
        low      1371
        high     1645
        scanned  0
        spanned  1310720
        present  1292800
    nr_free_pages 209598
    nr_inactive_anon 0
    nr_slab_unreclaimable 0
    nr_unstable  0
    nr_bounce    0
    nr_writeback_temp 0
    nr_shmem     0
        protection: (0, 0, 0, 0, 0)
  pagesets
    cpu: 0
              count: 64
              high:  186
              batch: 31
  vm stats threshold: 42
    cpu: 1
              count: 23
              high:  186
              batch: 31
  vm stats threshold: 42
  all_unreclaimable: 0
  prev_priority:     12
  start_pfn:         1048576
  inactive_ratio:    6
";

    #[test]
    fn reads_6_18() {
        let zones: Vec<Zone> = clean(NEW);
        let names: Vec<&str> = zones.iter().map(|zone| &*zone.name).collect();
        assert_eq!(names, ["DMA", "DMA32", "Normal", "Movable", "Device"]);
        let [dma, dma32, normal, movable, _] = &zones[..] else { panic!("five zones") };
        assert_eq!(dma.protection.len(), 5);
        assert!(dma.node_stats.as_ref().is_some_and(|stats| stats.get(vmstat::nr_active_file).is_some()));
        assert_eq!(dma32.node_stats, None);
        assert_eq!((dma32.pagesets.len(), dma32.pagesets[1].cpu), (2, 1));
        assert_eq!(normal.marks.get(zoneinfo::free), normal.stats.get(vmstat::nr_free_pages));
        assert!(normal.stats.get(vmstat::numa_local).is_some());
        assert_eq!(movable.marks.get(zoneinfo::free), Some(0));
        assert!(movable.stats.is_empty() && movable.pagesets.is_empty());
        for zone in &zones {
            assert_eq!(zone.marks.unknown(), []);
            assert_eq!(zone.stats.unknown(), []);
        }
    }

    /// The printed lines are the kernel's own, in its layout, except for those that are not kept.
    #[test]
    fn prints_6_18() {
        let kept =
            |line: &&str| !["vm stats threshold", "high_min", "high_max"].iter().any(|n| line.contains(n));
        let expected: Vec<&str> = NEW.lines().filter(kept).collect();
        let printed = print(&clean::<Vec<Zone>>(NEW));
        let mut printed: Vec<&str> = printed.lines().collect();
        let mut expected_sorted = expected.clone();
        assert_eq!(printed.len(), expected.len());
        assert_eq!(printed[..2], expected[..2]);
        // Statistics are printed in the order of the table.
        printed.sort_unstable();
        expected_sorted.sort_unstable();
        assert_eq!(printed, expected_sorted);
    }

    #[test]
    fn reads_2_6_32() {
        let zones: Vec<Zone> = clean(OLD);
        let [zone] = &zones[..] else { panic!("one zone") };
        let marks = [
            (zoneinfo::free, 209_598),
            (zoneinfo::high, 1645),
            (zoneinfo::scanned, 0),
            (zoneinfo::present, 1_292_800),
            (zoneinfo::all_unreclaimable, 0),
            (zoneinfo::prev_priority, 12),
            (zoneinfo::start_pfn, 1_048_576),
            (zoneinfo::inactive_ratio, 6),
        ];
        for (mark, value) in marks {
            assert_eq!(zone.marks.get(mark), Some(value), "{mark:?}");
        }
        assert_eq!(zone.node_stats, None);
        assert_eq!(zone.stats.get(vmstat::nr_free_pages), Some(209_598));
        assert_eq!(zone.protection, [0; 5]);
        assert_eq!(zone.pagesets[1], Pageset { cpu: 1, count: 23, high: 186, batch: 31 });
    }

    #[test]
    fn reads_an_excerpt_without_indentation() {
        let text = "Node 1, zone Normal\npages free 17353\nmin 11284\nlow 14105\nhigh 16926\nscanned 0\n\
                    spanned 6291456\npresent 6205440\n";
        let zones: Vec<Zone> = clean(text);
        assert_eq!((zones.len(), zones[0].node, &*zones[0].name), (1, 1, "Normal"));
        let marks: Vec<u64> = zones[0].marks.iter().map(|(_, value)| value).collect();
        assert_eq!(marks, [17353, 11284, 14105, 16926, 0, 6_291_456, 6_205_440]);
        // Removing the indentation of a whole file changes nothing.
        for text in [NEW, OLD] {
            let bare: Vec<&str> = text.lines().map(str::trim).collect();
            assert_eq!(clean::<Vec<Zone>>(&bare.join("\n")), clean::<Vec<Zone>>(text));
        }
    }

    #[test]
    fn keeps_what_nobody_knows_where_it_stood() {
        let text = "Node 0, zone DMA\n per-node stats\n nr_new 1\n later 2\n pages free 3\n shadow 4\n nr_newer 5\n \
                    latest 6\n pagesets\n cpu: 0\n count: 7\n future: 8\n";
        let zones: Vec<Zone> = clean(text);
        let unknown = |values: &[(Box<str>, u64)]| -> Vec<(String, u64)> {
            values.iter().map(|(name, value)| (name.to_string(), *value)).collect()
        };
        let pairs = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let node = zones[0].node_stats.as_ref().expect("per-node stats");
        assert_eq!(unknown(node.unknown()), pairs(&[("nr_new", 1), ("later", 2)]));
        assert_eq!(unknown(zones[0].stats.unknown()), pairs(&[("nr_newer", 5), ("latest", 6)]));
        assert_eq!(unknown(zones[0].marks.unknown()), pairs(&[("shadow", 4), ("future", 8)]));
        assert_eq!(zones[0].pagesets, [Pageset { count: 7, ..Pageset::default() }]);
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text = b"min 3\n\nNode 0, zone DMA\n  pages free 1\n  min two\n  count: 3\n  low 99999999999999999999\n  \
                     high 4\n  protection: 5\nNode zero, zone DMA\n min 1\nNode 1, zone \xff\n min 7";
        assert_eq!(bad_lines::<Vec<Zone>>(text), [1, 5, 6, 7, 9, 10]);
        let (zones, _) = parse::<Vec<Zone>>(text);
        assert_eq!(zones.len(), 2);
        let marks =
            |zone: &Zone| zone.marks.iter().map(|(mark, value)| (mark.name(), value)).collect::<Vec<_>>();
        assert_eq!(marks(&zones[0]), [("free", 1), ("high", 4)]);
        assert_eq!(marks(&zones[1]), [("min", 7)]);
        assert_eq!(&*zones[1].name, "\u{fffd}");
    }

    #[test]
    fn is_bounded() {
        let text = "Node 0, zone A\n".repeat(MOST_ZONES + 2);
        let (zones, problems) = parse::<Vec<Zone>>(text.as_bytes());
        assert_eq!((zones.len(), problems.len(), problems[0].kind), (MOST_ZONES, 1, ProblemKind::Budget));
        let text = format!("Node 0, zone A\n{}  start_pfn: 1\n", "cpu: 1\ncount: 2\n".repeat(MOST_CPUS + 2));
        let (zones, problems) = parse::<Vec<Zone>>(text.as_bytes());
        assert_eq!((zones[0].pagesets.len(), problems.len()), (MOST_CPUS, 1));
        assert_eq!(zones[0].marks.get(zoneinfo::start_pfn), Some(1));
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<Vec<Zone>>(""), []);
        cut_anywhere::<Vec<Zone>>(OLD);
        let whole: Vec<Zone> = clean(NEW);
        for end in (0..NEW.len()).step_by(7) {
            let (zones, _) = parse::<Vec<Zone>>(&NEW.as_bytes()[..end]);
            let whole_zones = zones.len().saturating_sub(1);
            assert_eq!(zones[..whole_zones], whole[..whole_zones]);
        }
    }

    /// Random values for a random selection of a family's counters.
    fn known<F: Family>(keep: fn(&str) -> bool) -> impl Strategy<Value = Vec<(String, u64)>> {
        let names: Vec<String> =
            F::ROWS.iter().map(|row| row.name.to_owned()).filter(|name| keep(name)).collect();
        let count = names.len();
        prop::sample::subsequence(names, 0..count.min(30)).prop_flat_map(|names| {
            let count = names.len();
            (Just(names), vec(0..u64::MAX, count))
                .prop_map(|(names, values)| names.into_iter().zip(values).collect())
        })
    }

    fn values<F: Family>(pairs: Vec<(String, u64)>) -> Values<F> {
        let (mut values, mut hint) = (Values::default(), 0);
        for (name, value) in pairs {
            values.record(name.as_bytes(), value, &mut hint);
        }
        values
    }

    /// Statistics, including some that no table has.
    fn stats() -> impl Strategy<Value = Values<Vmstat>> {
        let unknown = vec(("nr_zz[a-z]{1,9}", 0..u64::MAX), 0..4);
        (known::<Vmstat>(|_| true), unknown).prop_map(|(mut known, unknown)| {
            known.extend(unknown);
            values(known)
        })
    }

    /// Fields of the `pages` block, including some that no table has, also under the names of statistics.
    fn marks() -> impl Strategy<Value = Values<Zoneinfo>> {
        let keep =
            |name: &str| !name.contains(' ') && (name == "high" || !PAGESET.contains(&name.as_bytes()));
        let unknown = vec(("(nr_zz|zz|numa_zz)[a-z:]{1,9}", 0..u64::MAX), 0..4);
        (known::<Zoneinfo>(keep), unknown).prop_map(|(mut known, unknown)| {
            known.extend(unknown);
            values(known)
        })
    }

    fn zone() -> impl Strategy<Value = Zone> {
        let pageset = any::<(u32, u64, u64, u64)>();
        let pageset = pageset.prop_map(|(cpu, count, high, batch)| Pageset { cpu, count, high, batch });
        let rest = (vec(any::<u64>(), 0..7), vec(pageset, 0..5));
        let head = (any::<u32>(), name(), marks(), stats(), prop::option::of(stats()));
        (head, rest).prop_map(|((node, name, marks, stats, node_stats), (protection, pagesets))| Zone {
            node,
            name,
            marks,
            stats,
            node_stats,
            protection,
            pagesets,
        })
    }

    proptest! {
        #[test]
        fn round_trip(zones in vec(zone(), 0..5)) {
            prop_assert_eq!(clean::<Vec<Zone>>(&print(&zones)), zones);
        }

        #[test]
        fn settles_whatever_it_reads(text in hostile(NEW), old in hostile(OLD)) {
            settles::<Vec<Zone>>(&text);
            settles::<Vec<Zone>>(&old);
            settles::<Vec<Zone>>(&[b"Node 0, zone A\n".as_slice(), &text].concat());
        }
    }
}
