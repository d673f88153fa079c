use lotsfree_kernel_files::counters::groups::REFAULT_FILE;
use lotsfree_kernel_files::counters::{Counter, MemoryStat, memory_stat as s, vmstat as v};
use lotsfree_kernel_files::file::block::BlockDevice;
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::control_groups as groups;
use crate::finding::subject;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// Readahead around the faults of a mapped file evicts what it brought before anybody has used it.
    ///
    /// # Sees
    /// Over two samples, in each memory cgroup and on the whole host: the file pages that were read again
    /// after they had been evicted (version 1 before 6.1: the pages charged to a group that hits its
    /// limit), the major faults, and all faults. A fault maps at most 16 pages around it. Where several
    /// times as many come back as all faults together can have mapped, nobody uses the rest.
    /// `read_ahead_kb` of the disk is the size of one such read.
    ///
    /// # Hurts
    /// A random lookup that needs 4 KiB waits for up to `read_ahead_kb` and evicts as much of the pages
    /// that the next lookup needs. An LMDB of 1.2 GB in a group of 256 MiB, on a disk with 8 MiB of
    /// read-ahead, did 124 lookups a second; with `MADV_RANDOM` it did 14,600 (6.18).
    ///
    /// # Remedies
    /// Let the program say that its access is random (`MADV_RANDOM`; LMDB: `MDB_NORDAHEAD`), or reduce the
    /// disk's `read_ahead_kb`. More memory helps only if all of the file fits.
    ///
    /// # False alarms
    /// Files that are read with `read(2)` cause no faults; a program that thrashes so beside one with major
    /// faults looks alike. So the pages read for each major fault have to fit the disk's read-ahead, where
    /// that is known.
    ///
    /// # References
    /// `mm/filemap.c:do_sync_mmap_readahead`, `filemap_map_pages` (6.12); `fault_around_bytes` of
    /// `mm/memory.c`;
    /// MongoDB's production notes (read-ahead from 8 to 32 sectors of 512 bytes).
    pub ReadaheadInVain = "readahead-in-vain" in Reclaim
}

/// Pages that one fault maps at most: 64 KiB around it (`fault_around_bytes`, 3.15 and later).
const AROUND: f64 = 16.0;
/// Of the pages brought in, the share that faults can have used, up to which reading them was in vain.
const USED: f64 = 0.5;
/// Pages that come back each second: as for the whole host (file-thrash).
const PER_SECOND: f64 = 500.0;
/// 40 MiB a second of small pages, read for nothing.
const PER_SECOND_HIGH: f64 = 10_000.0;
/// Major faults a second from which on somebody waits for them.
const MAJOR: f64 = 5.0;
/// Pages read for one major fault, as shares of the disk's read-ahead, between which they belong together.
const FITS: std::ops::RangeInclusive<f64> = 0.1..=1.25;
/// The read-ahead that random lookups are given: 32 sectors of 512 bytes, the most that MongoDB recommends.
const RANDOM_KB: u64 = 16;

/// What came back in vain, in a group or on the whole host.
struct Waste<'a> {
    /// The group; `None` is the host.
    group: Option<(&'a Cgroup, CgroupVersion)>,
    /// Pages brought in each second that had been there before.
    brought: f64,
    /// Major faults a second.
    major: f64,
    /// Faults of all kinds a second.
    all: f64,
    /// Whether `brought` counts all pages charged, as version 1 has no refaults before 6.1.
    charged: bool,
}

impl Waste<'_> {
    /// The share of the pages that faults can have used, at most.
    fn used(&self) -> f64 {
        (AROUND * self.all / self.brought.max(1.0)).min(1.0)
    }

    /// Pages brought in for one major fault.
    fn by_fault(&self) -> f64 {
        self.brought / self.major.max(0.1)
    }

    fn is_in_vain(&self) -> bool {
        self.brought >= PER_SECOND && self.major >= MAJOR && self.used() <= USED
    }
}

impl Rule for ReadaheadInVain {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        cx.seconds()?;
        let by_group = cx.cgroups().map(|cgroups| {
            let mut wasted: Vec<Waste<'_>> = (cgroups.groups.iter())
                .filter(|group| group.path != "/")
                .filter_map(|group| of_group(cx, group, cgroups.version))
                .filter(Waste::is_in_vain)
                .collect();
            wasted.sort_by(|a, b| b.brought.total_cmp(&a.brought));
            wasted
        });
        // The innermost group that has most of it; its parents count the same pages.
        let inner = by_group.as_ref().ok().and_then(|wasted| {
            let most = wasted.first()?.brought;
            wasted
                .iter()
                .filter(|w| w.brought >= 0.9 * most)
                .max_by_key(|w| w.group.map(|(g, _)| g.path.len()))
        });
        let host;
        let waste = match inner {
            Some(waste) => waste,
            None => {
                host = match of_host(cx) {
                    Ok(host) => host,
                    Err(skip) => return by_group.map(|_| Vec::new()).map_err(|_| skip),
                };
                &host
            }
        };
        let disk = disk(cx);
        let window =
            disk.and_then(|disk| disk.read_ahead_kb).map(|kb| cx.now().host.page_size.pages(Bytes::kib(kb)));
        let fits = window.is_none_or(|pages| FITS.contains(&(waste.by_fault() / pages.max(1) as f64)));
        if !waste.is_in_vain() || !fits {
            return Ok(Vec::new());
        }
        Ok(vec![finding(cx, waste, disk)])
    }
}

/// The rates of a group between two samples; `None` where it was not read twice.
fn of_group<'a>(cx: &Context<'a>, group: &'a Cgroup, version: CgroupVersion) -> Option<Waste<'a>> {
    let before = cx.before().ok()?.cgroups.as_ref()?.at(&group.path)?;
    let seconds = cx.seconds().ok()?;
    // Version 1 counts the groups below in the `total_` lines only.
    let rate = |counters: &[Counter<MemoryStat>]| {
        counters.iter().find_map(|counter| {
            let now = group.stat.as_ref()?.get(*counter)?;
            let grown = now.checked_sub(before.stat.as_ref()?.get(*counter)?)?;
            Some(grown as f64 / seconds)
        })
    };
    let refaults =
        rate(&[s::total_workingset_refault_file, s::workingset_refault_file, s::workingset_refault]);
    let at_limit = group.failcnt.zip(before.failcnt).is_some_and(|(now, before)| now > before);
    let charged = || rate(&[s::total_pgpgin, s::pgpgin]).filter(|_| at_limit);
    Some(Waste {
        group: Some((group, version)),
        brought: refaults.or_else(charged)?,
        major: rate(&[s::total_pgmajfault, s::pgmajfault])?,
        all: rate(&[s::total_pgfault, s::pgfault])?,
        charged: refaults.is_none(),
    })
}

fn of_host<'a>(cx: &Context<'a>) -> Result<Waste<'a>, Skip> {
    Ok(Waste {
        group: None,
        brought: cx.rate(REFAULT_FILE)?.per_second,
        major: cx.rate(&[v::pgmajfault])?.per_second,
        all: cx.rate(&[v::pgfault])?.per_second,
        charged: false,
    })
}

/// The disk that most was read from between the samples.
fn disk<'a>(cx: &Context<'a>) -> Option<&'a BlockDevice> {
    let before = cx.before().ok()?.block.as_deref()?;
    let read = |disk: &&BlockDevice| {
        let first = before.iter().find(|first| first.name == disk.name).and_then(|first| first.stats);
        let sectors = |stats: Option<lotsfree_kernel_files::file::block::DiskStats>| {
            stats.map_or(0, |stats| stats.sectors_read)
        };
        sectors(disk.stats).saturating_sub(sectors(first))
    };
    cx.now().block.as_deref()?.iter().filter(|disk| read(disk) > 0).max_by_key(read)
}

fn finding(cx: &Context<'_>, waste: &Waste<'_>, disk: Option<&BlockDevice>) -> Finding {
    let who = waste.group.map_or_else(String::new, |(group, _)| format!(" of {}", group.path));
    let came = cx.pages(waste.brought.round() as u64);
    let lost = stalled(cx, waste);
    let mut finding = Finding::new(
        ReadaheadInVain::ID,
        if waste.brought >= PER_SECOND_HIGH { Severity::High } else { Severity::Warning },
        format!(
            "readahead brings {} for each of {:.0} major faults/s{who}, and at most {} of it is used before it is \
             evicted again",
            cx.pages(waste.by_fault().round() as u64),
            waste.major,
            Percent(waste.used())
        ),
        match lost {
            Some(share) => Cost::stalled(share, format!("{came}/s are read, mostly for nothing")),
            None => {
                Cost::risk(format!("{came}/s are read, mostly for nothing, and evict what is needed next"))
            }
        },
    );
    finding.sure(if disk.and_then(|disk| disk.read_ahead_kb).is_some() {
        Confidence::Likely
    } else {
        Confidence::Possible
    });
    evidence(cx, &mut finding, waste, disk);
    remedies(cx, &mut finding, disk);
    finding
}

/// The share of the time that some task waits, of the group or of the host.
fn stalled(cx: &Context<'_>, waste: &Waste<'_>) -> Option<f64> {
    let of_group = || Some(waste.group?.0.pressure?.some?.avg10 / 100.0);
    of_group().or_else(|| Some(cx.memory_pressure().ok()?.some?.avg10 / 100.0)).filter(|share| *share > 0.0)
}

fn evidence(cx: &Context<'_>, finding: &mut Finding, waste: &Waste<'_>, disk: Option<&BlockDevice>) {
    let file = match waste.group {
        Some((group, version)) => groups::file(version, &group.path, "stat"),
        None => "/proc/vmstat".to_owned(),
    };
    let rate = |per_second: f64| format!("{}/s", Grouped(per_second.round() as u64));
    let came = if waste.charged { "pgpgin" } else { "workingset_refault_file" };
    finding
        .because(Evidence::new(file.clone(), came, rate(waste.brought)))
        .because(Evidence::new(file.clone(), "pgmajfault", rate(waste.major)))
        .because(Evidence::new(file, "pgfault", rate(waste.all)).against(
            rate(waste.brought * USED / AROUND),
            "with fewer, of 16 pages each, most pages stay unused",
        ));
    finding.because_if(disk.and_then(|disk| {
        Some(Evidence::new(read_ahead(disk), "read_ahead_kb", format!("{} kB", Grouped(disk.read_ahead_kb?))))
    }));
    let inside = |process: &Process| {
        let of = process.detail.as_ref().and_then(|detail| detail.cgroup.as_deref());
        waste.group.is_none_or(|(group, _)| of.is_some_and(|path| path.starts_with(&group.path)))
    };
    let mut faulting: Vec<(u64, &Process)> = (cx.process_pairs().unwrap_or_default().into_iter())
        .filter(|(_, now)| inside(now))
        .map(|(before, now)| (now.stat.major_faults.saturating_sub(before.stat.major_faults), now))
        .filter(|(faults, _)| *faults > 0)
        .collect();
    faulting.sort_by_key(|(faults, _)| std::cmp::Reverse(*faults));
    for (faults, process) in faulting.into_iter().take(2) {
        let seconds = cx.seconds().unwrap_or(1.0);
        finding.because(
            Evidence::new("/proc/PID/stat", "majflt", rate(faults as f64 / seconds)).of(subject(process)),
        );
    }
}

fn read_ahead(disk: &BlockDevice) -> String {
    format!("/sys/block/{}/queue/read_ahead_kb", disk.name.replace('/', "!"))
}

fn remedies(cx: &Context<'_>, finding: &mut Finding, disk: Option<&BlockDevice>) {
    let verify = "lotsfree doctor --interval 10";
    let large = disk.filter(|disk| disk.read_ahead_kb.is_some_and(|kb| kb > RANDOM_KB));
    if let Some(disk) = large {
        let now = disk.read_ahead_kb.map(|kb| kb.to_string());
        finding.remedy(
            Remedy::new(format!("Reduce the read-ahead of {}", disk.name))
                .sysfs(&read_ahead(disk), &RANDOM_KB.to_string(), now.as_deref())
                .restart("the program that maps the files: what it has open keeps the old value")
                .verify(verify)
                .risk(
                    "Backups and scans of that disk read in smaller requests too; where they matter, take the next remedy \
                     instead.",
                ),
        );
    }
    finding.remedy(
        Remedy::new("Let the program say that it reads at random: madvise(MADV_RANDOM)")
            .keep("the program's own setting", "MDB_NORDAHEAD (LMDB; its Python binding: readahead=False)")
            .restart("the program")
            .verify(verify)
            .risk("Its own scans then read page by page."),
    );
    if cx.now().cgroups.is_some() {
        finding.note(
            "A higher limit or more memory helps only where the whole file fits: until then each lookup reads and evicts \
             as much as before.",
        );
    }
}
