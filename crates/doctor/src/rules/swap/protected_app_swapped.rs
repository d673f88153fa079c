use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_kernel_files::file::cgroup::{CgroupVersion, Limit};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_settings::SWAPPINESS;
use lotsfree_units::{Bytes, Percent};

use crate::control_groups::{self, Held};
use crate::rule::rule;
use crate::swapping::{SWAPPED_IN, all_zram, in_zswap, largest, off_kills, saw};
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
};

rule! {
    /// Memory of a database, or of a protected group, lies in swap.
    ///
    /// # Sees
    /// `VmSwap` of database processes, the `swap` column of attached System V segments, and
    /// `memory.swap.current` of cgroups with `memory.low` or `memory.min`, where it is more than 1 % of what
    /// they hold.
    ///
    /// # Hurts
    /// The morning after a backup the first query of the day reads its pages back one by one, while users
    /// wait. A database keeps its most used data in its own cache and takes them to be fast; a cache that
    /// lies in swap is slower than none.
    ///
    /// # Remedies
    /// A higher limit where the group is full: then neither `swapoff` nor `mlock` is safe. Else bring the
    /// pages back while there is room, then keep them: `MemoryLow` and `MemorySwapMax=0` on the unit,
    /// `mlock`, a huge page pool for the shared segments, a lower `vm.swappiness`.
    ///
    /// # False alarms
    /// A few megabytes of start-up code and data in swap are normal. Where all swap is zram, or zswap holds
    /// nearly all of it, pages come back in microseconds: nothing is reported.
    ///
    /// # References
    /// "Memory Hogs" (Linux Magazine); `Documentation/admin-guide/cgroup-v2.rst`, memory.swap.max;
    /// `mm/vmscan.c:shrink_folio_list` (6.12).
    pub ProtectedAppSwapped = "protected-app-swapped" in Swap
}

/// Below 1 % of a process it is start-up code and data that nobody needs again.
const NOTICEABLE: f64 = 0.01;
/// From a tenth on the cache itself is hit.
const MUCH: f64 = 0.10;
/// 4,096 pages: below a second of reads even where each takes 0.2 ms.
const SMALL: Bytes = Bytes::mib(16);
/// zswap holds nearly all.
const CHEAP: f64 = 0.9;
/// `swapoff` needs room for what it brings back and this share of memory beside it.
const SPARE: f64 = 0.10;

impl Rule for ProtectedAppSwapped {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let total_swap = cx.mem(m::SwapTotal)?;
        if total_swap == Bytes::ZERO {
            return Err(Skip::because("there is no swap"));
        }
        let processes = cx.processes()?;
        let used = total_swap - cx.mem(m::SwapFree)?;
        if used < SMALL || cx.swaps().is_ok_and(all_zram) || in_zswap(cx) >= CHEAP {
            return Ok(Vec::new());
        }
        let mut findings = Vec::new();
        let databases = Databases::of(cx, processes);
        if databases.swapped >= SMALL && databases.share() > NOTICEABLE {
            findings.push(of_databases(cx, &databases)?);
        }
        findings.extend(of_groups(cx)?);
        Ok(findings)
    }
}

/// What the database processes hold, and what of it lies in swap.
struct Databases {
    processes: Vec<Process>,
    swapped: Bytes,
    /// The part of `swapped` that is in attached segments.
    segments: Bytes,
    whole: Bytes,
}

impl Databases {
    fn of(cx: &Context<'_>, processes: &[Process]) -> Databases {
        let processes: Vec<Process> =
            processes.iter().filter(|p| Workload::database_of(p).is_some()).cloned().collect();
        let swapped: Bytes = processes.iter().map(|p| p.memory_or_zero(s::VmSwap)).sum();
        let private: Bytes = processes.iter().map(|p| p.memory_or_zero(s::RssAnon)).sum();
        let attached = cx.shm().unwrap_or_default().iter().filter(|segment| segment.nattch > 0);
        let (segments, segments_size) = match processes.is_empty() {
            true => (Bytes::ZERO, Bytes::ZERO),
            false => attached.fold((Bytes::ZERO, Bytes::ZERO), |(swap, size), segment| {
                (swap + segment.swap.unwrap_or_default(), size + segment.size)
            }),
        };
        Databases {
            processes,
            swapped: swapped + segments,
            segments,
            whole: swapped + private + segments_size,
        }
    }

    fn share(&self) -> f64 {
        self.swapped.share_of(self.whole)
    }

    fn names(&self) -> String {
        let mut names: Vec<_> =
            self.processes.iter().filter_map(Workload::database_of).map(|w| w.name()).collect();
        names.sort_unstable();
        names.dedup();
        names.join(" and ")
    }
}

fn cost(cx: &Context<'_>, bytes: Bytes) -> Result<Cost, Skip> {
    let (read, how) = cx.read_latency();
    let pages = cx.now().host.page_size.pages(bytes);
    let text = format!(
        "{pages} pages to be read back at the next touch, {:.0} s one after the other at {how}",
        pages as f64 * read
    );
    Ok(Cost::memory(bytes, cx.total()?, text))
}

fn severity(cx: &Context<'_>, share: f64) -> Severity {
    let coming_back = cx.rate(SWAPPED_IN).is_ok_and(|rate| rate.total > 0);
    if share >= MUCH || coming_back { Severity::High } else { Severity::Warning }
}

fn of_databases(cx: &Context<'_>, databases: &Databases) -> Result<Finding, Skip> {
    let (swapped, share, who) = (databases.swapped, databases.share(), databases.names());
    let mut finding = Finding::new(
        ProtectedAppSwapped::ID,
        severity(cx, share),
        format!("{swapped} of {who} lie in swap, {} of what it holds", Percent(share)),
        cost(cx, swapped)?,
    );
    finding.sure(Confidence::Certain);
    add_evidence(&mut finding, cx, databases);
    if !raise(cx, &mut finding, databases) {
        bring_back(cx, &mut finding)?;
        keep_in_memory(&mut finding, cx, &who);
    }
    finding.note(
        "Pages that lie in swap stay there until they are touched: raising a limit or lowering \
         vm.swappiness does not bring them back.",
    );
    Ok(finding)
}

fn add_evidence(finding: &mut Finding, cx: &Context<'_>, databases: &Databases) {
    let Databases { processes, segments, whole, .. } = databases;
    let bound = format!("at most {} of {whole:#} and {SMALL}", Percent(NOTICEABLE));
    let mut evidence =
        largest(processes, s::VmSwap, 3).into_iter().map(|p| saw(p, s::VmSwap)).collect::<Vec<_>>();
    if *segments > Bytes::ZERO {
        evidence.push(
            Evidence::new("/proc/sysvipc/shm", "swap", format!("{segments:#}")).of("attached segments"),
        );
    }
    if let Some(first) = evidence.first_mut() {
        *first = first.clone().against(bound, "start-up code and data are left out");
    }
    finding.because_all(evidence).because(cx.saw_mem(m::SwapFree)).because(cx.saw_mem(m::SwapTotal));
    finding.because_if(cx.rate(SWAPPED_IN).ok().map(|rate| cx.saw_rate(SWAPPED_IN, &rate)));
}

/// Proposes a higher limit where the databases are in swap because their group is full. Whatever else keeps
/// memory out of swap then kills: locking it, no swap for the group, or none for the host.
fn raise(cx: &Context<'_>, finding: &mut Finding, databases: &Databases) -> bool {
    let inside = |group: &str| {
        let of = |p: &Process| p.detail.as_ref().and_then(|detail| detail.cgroup.clone());
        let below = |path: &str| {
            path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        databases.processes.iter().filter_map(of).any(|path| below(&path))
    };
    let Ok(cgroups) = cx.cgroups() else { return false };
    let full = control_groups::overfull(cx);
    let Some((group, limit)) = full.into_iter().find(|(group, _)| inside(&group.path)) else { return false };
    let kept = Held::of(cgroups.version, group).map_or(limit, |held| held.kept());
    let wanted = control_groups::comfortable(kept, group);
    finding.title += &format!(", because {} is at its limit of {limit}", group.path);
    for (name, value) in [("max", Some(limit)), ("current", group.current)] {
        let file = control_groups::file(cgroups.version, &group.path, name);
        let field = control_groups::field(cgroups.version, name);
        finding.because_if(value.map(|value| Evidence::new(file, field, value).of(&group.path)));
    }
    finding.note(
        "The host has memory; the group has not. Locking the memory, or taking the group's or the host's swap away, \
         gets a process of it killed as long as its limit stays.",
    );
    if cx.total().is_ok_and(|total| wanted > total) {
        finding.note(format!(
            "It would need a limit of {wanted}, more than the host has: let the program hold less."
        ));
        return true;
    }
    let title = format!("Raise the limit of {} to {wanted}, so that all of it fits", group.path);
    finding.remedy(control_groups::raise(title, cgroups.version, group, limit, wanted).risk(
        "The group may then take that much from the others; check that all limits together fit into the host.",
    ));
    finding.note_if(control_groups::lasting(&group.path));
    true
}

/// Proposes what keeps the databases `who` out of swap from now on.
fn keep_in_memory(finding: &mut Finding, cx: &Context<'_>, who: &str) {
    let version2 = cx.cgroups().is_ok_and(|groups| groups.version == CgroupVersion::V2);
    if version2 {
        finding.remedy(
            Remedy::new(format!("Keep {who} out of swap by its memory cgroup"))
                .run("systemctl set-property --runtime UNIT MemoryLow=SIZE MemorySwapMax=0")
                .keep("the unit's drop-in, [Service]", "MemoryLow=SIZE")
                .keep("the unit's drop-in, [Service]", "MemorySwapMax=0")
                .undo_with("systemctl set-property --runtime UNIT MemoryLow=0 MemorySwapMax=infinity")
                .risk(
                    "Without swap of its own the unit meets the OOM killer sooner when it outgrows memory. \
                     MemoryLow needs the same on every parent slice unless the hierarchy is mounted with \
                     memory_recursiveprot.",
                ),
        );
    }
    finding.remedy(
        Remedy::new(format!(
            "Let {who} lock its memory, or put its shared segments into huge pages: neither is ever swapped"
        ))
        .keep("the unit's drop-in, [Service]", "LimitMEMLOCK=infinity")
        .restart(who)
        .risk(
            "Locked memory is lost to everything else; what does not fit is taken from the page cache and \
             the others.",
        ),
    );
    let swappiness = advice::swappiness(cx);
    if let Ok(now) = cx.sysctl(SWAPPINESS)
        && now > swappiness.value
    {
        finding
            .remedy(
                Remedy::new(format!("Swap less eagerly: vm.swappiness = {}", swappiness.value))
                    .sysctl(cx, SWAPPINESS, swappiness.value)
                    .risk(format!("More file cache is dropped instead ({}).", swappiness.because)),
            )
            .note(swappiness.contested);
    }
}

/// `swapoff` and `swapon`, where all that is in swap fits into memory.
fn bring_back(cx: &Context<'_>, finding: &mut Finding) -> Result<(), Skip> {
    if let Some(why) = off_kills(cx) {
        finding.note(why);
        return Ok(());
    }
    let used = cx.mem(m::SwapTotal)? - cx.mem(m::SwapFree)?;
    let Ok(available) = cx.mem(m::MemAvailable) else {
        finding.note("How much memory is available is not known: swapoff is not proposed.");
        return Ok(());
    };
    let needed = used + cx.total()?.scale(SPARE);
    if available <= needed {
        finding.note(format!(
            "swapoff would have to find room for {used:#} and leave {} of memory: {needed:#}, of which \
             {available:#} are available. First stop what takes the memory.",
            Percent(SPARE)
        ));
        return Ok(());
    }
    finding.remedy(
        Remedy::new("Bring everything back from swap, in a quiet hour")
            .run("swapoff -a && swapon -a")
            .undo_with("swapon -a")
            .risk(format!(
                "Reads {used:#} page by page, for minutes to hours, and pushes that much out of the page \
                 cache; {available:#} are available now. There is no swap meanwhile. Areas that are not in \
                 /etc/fstab have to be turned on by hand."
            )),
    );
    Ok(())
}

/// Groups that are protected and have memory in swap all the same.
fn of_groups(cx: &Context<'_>) -> Result<Vec<Finding>, Skip> {
    let Ok(groups) = cx.cgroups() else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    for group in groups.groups.iter().filter(|group| group.path != "/") {
        let set = |limit: Option<Limit>| limit.filter(|limit| *limit != Limit::At(Bytes::ZERO));
        let (Some(protection), Some(swapped)) = (set(group.min).or(set(group.low)), group.swap_current)
        else {
            continue;
        };
        let share = swapped.share_of(swapped + group.current.unwrap_or_default());
        // Where the group may swap nothing any more, what is left was swapped before.
        if swapped < SMALL || share <= NOTICEABLE {
            continue;
        }
        let unit = group.path.rsplit('/').next().unwrap_or_default();
        let amount = protection.bytes().map_or("all of it".to_owned(), |bytes| bytes.to_string());
        let mut finding = Finding::new(
            ProtectedAppSwapped::ID,
            severity(cx, share),
            format!("{swapped} of the protected group {} lie in swap, {}", group.path, Percent(share)),
            cost(cx, swapped)?,
        );
        finding
            .sure(Confidence::Certain)
            .because(
                Evidence::new("memory.swap.current", "memory.swap.current", format!("{swapped:#}"))
                    .of(&group.path)
                    .against(
                        format!("at most {} and {SMALL}", Percent(NOTICEABLE)),
                        "start-up code and data are left out",
                    ),
            )
            .because(Evidence::new("memory.low", "memory.low or memory.min", &amount).of(&group.path));
        let capped = group.swap_max == Some(Limit::At(Bytes::ZERO));
        bring_back(cx, &mut finding)?;
        if !capped {
            finding.remedy(
                control_groups::set(
                    format!("Take the group's swap away: memory.swap.max 0 for {unit}"),
                    groups.version,
                    &group.path,
                    ("MemorySwapMax", "swap.max"),
                    Some(Bytes::ZERO),
                    group.swap_max.and_then(Limit::bytes),
                )
                .risk("It meets the OOM killer sooner when it outgrows memory."),
            );
            finding.note_if(control_groups::lasting(&group.path));
        }
        finding.note(
            "Protection holds back reclaim from now on; it brings nothing back. Pages beyond the \
             protection, and those that were swapped out before it was set, stay in swap until they are \
             touched.",
        );
        findings.push(finding);
    }
    Ok(findings)
}
