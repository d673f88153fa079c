//! Runs made of arithmetic: no machine and no kernel yields these figures. They have the shapes that pages of
//! runs must be able to show, and are the same on every machine.

use std::path::Path;
use std::sync::Arc;

use lotsfree_kernel_files::counters::{Counter, Family, Values, zoneinfo};
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_run::{
    Event, EventKind, Facts, Histogram, Interval, Measured, NodeFacts, Run, Sample, Sink, Spent, State,
    Window, Writer,
};
use lotsfree_scenario::{Case, Scenario};

const SECOND: u64 = 1_000_000_000;
/// Of a zone: 8 GiB.
const ZONE: u64 = 2 << 20;
const MARKS: [u64; 3] = [8_448, 10_560, 12_672];
const MIB: u64 = 256;

/// What becomes of a machine when a file passes through it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    /// kswapd swaps the heap out once memory is full.
    Swaps,
    /// kswapd takes the file cache only.
    Caches,
    /// Nothing is cached.
    Direct,
    /// Tasks reclaim on their own node.
    ZoneReclaim,
    /// The server is held by the dirty limit.
    Throttled,
}

/// A scenario with so many variants of these names, over some sizes of the copy.
pub(crate) fn scenario(variants: &[&str], sizes: &[&str]) -> Vec<Case> {
    let mut text = format!(
        "title = \"A copy beside a server (synthetic)\"\nseed = 1\nduration = \"120 s\"\ninterval = \"500 ms\"\n\
         base = {:?}\n[machine]\ngeneration = \"linux-3.10\"\ncpus = 4\nnodes = [\"8 GiB\", \"8 GiB\"]\n\
         swap = {{ size = \"8 GiB\", on = \"disk\" }}\n\
         [[actor]]\nname = \"server\"\nkind = \"app-server\"\nheap = \"9 GiB\"\n\
         [[actor]]\nname = \"copy\"\nkind = \"file-writer\"\nsize = \"8 GiB\"\nstart = \"40 s\"\n",
        variants[0]
    );
    for variant in &variants[1..] {
        let set =
            if variant.contains("direct") { "actor.copy.how = \"direct\"" } else { "\"vm.swappiness\" = 0" };
        text += &format!("[[variant]]\nname = {variant:?}\n{set}\n");
    }
    text += "[measure]\nactor = \"server\"\nwindow = [\"40 s\", \"end\"]\nbaseline = [\"10 s\", \"40 s\"]\n";
    if !sizes.is_empty() {
        text += &format!(
            "[sweep]\nkey = \"actor.copy.size\"\nvalues = {sizes:?}\ntitle = \"Size of the copied file\"\nunit = \"GiB\"\n"
        );
    }
    Scenario::parse(&text, "synthetic.toml").unwrap().cases(None).unwrap()
}

pub(crate) fn facts(variant: &str, fate: Fate) -> Facts {
    let zone_reclaim = if fate == Fate::ZoneReclaim { "1" } else { "0" };
    let swappiness = if fate == Fate::Swaps { "60" } else { "0" };
    let node = |id: u32| NodeFacts { id, cpus: vec![id * 2, id * 2 + 1], distance: vec![10, 20] };
    let settings = [("vm.zone_reclaim_mode", zone_reclaim), ("vm.swappiness", swappiness)];
    Facts {
        lotsfree: "0.1.0".to_owned(),
        title: "A copy beside a server (synthetic)".to_owned(),
        variant: Some(variant.to_owned()),
        kernel: "linux-3.10".to_owned(),
        osrelease: "3.10.0".to_owned(),
        cpus: 4,
        page_size: 4096,
        nodes: vec![node(0), node(1)],
        sysctls: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        interval: SECOND / 2,
        duration: 120 * SECOND,
        measure: Measured {
            baseline: Some(Window { from: 10 * SECOND, to: 40 * SECOND }),
            window: Some(Window { from: 40 * SECOND, to: 120 * SECOND }),
        },
        ..Facts::default()
    }
}

fn set<F: Family>(values: &mut Values<F>, name: &str, value: u64) {
    values.set(Counter::named(name).unwrap(), value);
}

/// Writes a run in which the copy of so many GiB has this fate, of so many samples, half a second apart.
pub(crate) fn write(
    directory: &Path,
    facts: Facts,
    scenario: &str,
    fate: Fate,
    gib: f64,
    samples: u64,
) -> Writer {
    let mut random = fastrand::Rng::with_seed(7 + gib as u64 + fate as u64 * 97);
    let mut noise = move |size: f64| 1.0 + size * (random.f64() - 0.5);
    let mut writer = Writer::create(directory, facts, scenario).unwrap();
    let (actors, roles): (Vec<Arc<str>>, [Arc<str>; 2]) =
        (vec!["server".into(), "copy".into()], ["worker".into(), "writer".into()]);
    let copied_most = gib * 1024.0 * MIB as f64;
    let heap = (9 * 1024 * MIB) as f64;
    let (mut cache, mut out) = (500.0 * MIB as f64, 0.0);
    let (mut direct_scan, mut kswapd_scan, mut direct_steal, mut kswapd_steal) = (0.0, 0.0, 0.0, 0.0);
    let (mut swap_in, mut swap_out, mut major, mut page_in, mut page_out) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let mut copied = 0.0;
    let mut done = false;
    for row in 0..samples {
        let at = row * SECOND / 2;
        let second = at as f64 / SECOND as f64;
        let mut event = |kind, what: &str, actor: &str| {
            let (what, actor) = (what.to_owned(), Some(actor.to_owned()));
            writer.event(&Event::new(at, kind, what, actor)).unwrap();
        };
        if row == 0 {
            event(EventKind::Start, "", "server");
        }
        if row == 80 && gib > 0.0 {
            event(EventKind::Start, "", "copy");
        }
        let written = if (40.0..).contains(&second) {
            (130.0 * MIB as f64 * noise(0.2)).min(copied_most - copied)
        } else {
            0.0
        };
        copied += written;
        if gib > 0.0 && !done && copied >= copied_most - 1.0 {
            event(EventKind::Mark, "written", "copy");
            done = true;
        }
        page_out += written * 4.0;
        let total = (2 * ZONE) as f64;
        let kernel = 700.0 * MIB as f64;
        let marks = (2 * MARKS[1]) as f64;
        if fate != Fate::Direct {
            cache += written;
        }
        let room = total - kernel - marks * 1.1;
        let pressure = (cache + heap - out - room).max(0.0);
        let (mut stolen_anon, mut back) = (0.0, 0.0);
        if pressure > 0.0 {
            let scans = pressure * 1.4 * noise(0.3);
            stolen_anon = if fate == Fate::Swaps { pressure * 0.12 } else { 0.0 };
            cache -= pressure - stolen_anon;
            match fate {
                Fate::ZoneReclaim => {
                    (direct_scan, direct_steal) = (direct_scan + scans * 1.8, direct_steal + pressure)
                }
                _ => (kswapd_scan, kswapd_steal) = (kswapd_scan + scans, kswapd_steal + pressure),
            }
        }
        out += stolen_anon;
        swap_out += stolen_anon;
        let missing = out / heap;
        let mut faults = 0.0;
        if missing > 0.0 {
            back = (out * 0.04).min(1500.0) * noise(0.4);
            out -= back;
            faults = back / 2.0;
        }
        if fate == Fate::ZoneReclaim && pressure > 0.0 {
            faults = 400.0 * noise(0.5);
        }
        swap_in += back;
        major += faults;
        page_in += (back + faults) * 4.0;
        let slow = (faults / 500.0).min(0.8);
        let throttled = if fate == Fate::Throttled && written > 0.0 { 0.6 } else { 0.0 };
        let free = (total - kernel - cache - heap + out).max(marks * 0.9) * noise(0.02);

        let mut sample = Sample { at, ..Sample::default() };
        let active = 0.7 - if fate == Fate::ZoneReclaim { 0.2 } else { 0.0 };
        for (name, value) in [
            ("nr_free_pages", free),
            ("nr_active_anon", (heap - out) * active),
            ("nr_inactive_anon", (heap - out) * (1.0 - active)),
            ("nr_active_file", 300.0 * MIB as f64),
            ("nr_inactive_file", cache - 300.0 * MIB as f64),
            ("nr_dirty", written),
            ("pgmajfault", major),
            ("pgfault", second * 9000.0 + major),
            ("pswpin", swap_in),
            ("pswpout", swap_out),
            ("pgpgin", page_in),
            ("pgpgout", page_out),
            ("pgscan_direct_normal", direct_scan),
            ("pgscan_kswapd_normal", kswapd_scan),
            ("pgsteal_direct_normal", direct_steal),
            ("pgsteal_kswapd_normal", kswapd_steal),
            ("allocstall", 0.0),
        ] {
            set(&mut sample.vmstat, name, value as u64);
        }
        set(&mut sample.meminfo, "MemFree", (free * 4.0) as u64);
        for (node, share) in [(0, 0.48), (1, 0.52)] {
            let mut zone = Zone { node, name: "Normal".into(), ..Zone::default() };
            zone.marks.set(zoneinfo::free, (free * share * noise(0.1)) as u64);
            zone.marks.set(zoneinfo::present, ZONE);
            for (mark, pages) in [zoneinfo::min, zoneinfo::low, zoneinfo::high].into_iter().zip(MARKS) {
                zone.marks.set(mark, pages);
            }
            sample.zones.push(zone);
        }
        writer.sample(&sample).unwrap();
        if row == 0 {
            continue;
        }
        let threads = 4.0 * 0.5e9;
        let keep = (1.0 - slow) * (1.0 - throttled);
        let operations = (1100.0 * keep * noise(0.03)) as u64;
        let mut latency = Histogram::default();
        for n in 0..operations {
            let base = 90_000.0 * noise(0.5);
            let late = (n as f64) < faults.min(operations as f64 * 0.4);
            let stall = if late { 8e6 * noise(1.6) } else { 0.0 };
            let held = if throttled > 0.0 { 2e6 * noise(0.4) } else { 0.0 };
            latency.record((base + stall + held) as u64);
        }
        let spent = Spent {
            user: (threads * 0.5 * keep) as u64,
            system: (threads * 0.06 * keep) as u64,
            reclaim: if fate == Fate::ZoneReclaim { (threads * 0.1 * slow) as u64 } else { 0 },
            io: (threads * slow * 0.9) as u64,
            throttled: (threads * throttled) as u64,
            runnable: (threads * 0.01) as u64,
            idle: (threads * 0.4 * keep) as u64,
        };
        let server = Interval {
            from: at - SECOND / 2,
            at,
            actor: Arc::clone(&actors[0]),
            role: Arc::clone(&roles[0]),
            operations,
            errors: 0,
            latency,
            spent,
            major_faults: faults as u64,
            minor_faults: 4500,
            toll: lotsfree_run::Toll::default(),
        };
        let copy = Interval {
            actor: Arc::clone(&actors[1]),
            role: Arc::clone(&roles[1]),
            operations: (written / MIB as f64) as u64,
            latency: Histogram::default(),
            spent: Spent::default(),
            major_faults: 0,
            minor_faults: 0,
            ..server.clone()
        };
        writer.intervals(&[server, copy]).unwrap();
    }
    writer
}

/// A run that came to its end, read back from its directory.
pub(crate) fn run(root: &Path, case: &Case, fate: Fate, gib: f64) -> Run {
    let name =
        case.sweep.as_ref().map_or(case.variant.clone(), |point| format!("{}-{}", case.variant, point.label));
    let directory = root.join(name.replace(['/', ' '], "_"));
    let writer = write(&directory, facts(&case.variant, fate), &case.to_toml(), fate, gib, 240);
    writer.finish(State::Complete).unwrap();
    Run::open(&directory).unwrap()
}
