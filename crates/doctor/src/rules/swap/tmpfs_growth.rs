use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::mounts::Mount;
use lotsfree_units::{Bytes, Percent};

use crate::held;
use crate::remedy::word;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity};

rule! {
    /// Files in tmpfs take a noticeable part of memory.
    ///
    /// # Sees
    /// On the running machine the used space of each tmpfs. In saved data, which do not have it: `Shmem` less
    /// what processes map (`Mapped`) or System V segments hold, whichever is more; that is a lower bound.
    ///
    /// # Hurts
    /// A file in tmpfs is memory: it cannot be dropped, only swapped, and without swap not even that. `free`
    /// counts it as cache, so that the host seems to have room. On a Solaris host files in `/tmp` used up
    /// virtual swap, and `nm` took 60 times as long while 627 MB were free. Each tmpfs may grow to half of
    /// memory by default, and there are several.
    ///
    /// # Remedies
    /// Remove or move the files; bound the mount (`size=`); put large temporary files on disk.
    ///
    /// # False alarms
    /// The shared memory of databases is in `Shmem` as well: System V segments, shared anonymous mappings
    /// (PostgreSQL's `shared_buffers`), Oracle's AMM and PostgreSQL's segments in `/dev/shm`. What is mapped
    /// is not counted, and `/dev/shm` is left out where a database runs.
    ///
    /// # References
    /// tmpfs(5); `mm/shmem.c` (6.12); V. Feng, "Impact of Swap Space on System Performance for the Solaris 9
    /// and 10 OS" (2008).
    pub TmpfsGrowth = "tmpfs-growth" in Swap
}

/// Of memory outside the huge page pools.
const NOTICEABLE: f64 = 0.10;
/// Half of what one tmpfs may take by default (`mm/shmem.c:shmem_default_max_blocks`: half of memory).
const MUCH: f64 = 0.25;
/// The usual warning of a file system that fills up.
const NEARLY_FULL: f64 = 0.80;
/// A full tmpfs smaller than this is a matter of its owner's, not of the host's memory.
const SMALL: Bytes = Bytes::mib(64);

/// What files in tmpfs hold of memory.
struct Held {
    bytes: Bytes,
    /// By the space of each mount; otherwise a lower bound.
    measured: bool,
}

impl Held {
    fn of(cx: &Context<'_>, mounts: &[&Mount], shmem: Bytes) -> Result<Held, crate::Skip> {
        let measured = cx.now().mounts.iter().flatten().any(|m| &*m.kind == "tmpfs" && m.space.is_some());
        if !measured {
            return Ok(Held { bytes: unmapped(cx, shmem)?, measured });
        }
        let used: Bytes = mounts.iter().filter_map(|mount| mount.space).map(|(_, used)| used).sum();
        // Pages of a tmpfs that were swapped out are in its space, and not in memory.
        Ok(Held { bytes: used.min(shmem), measured })
    }
}

/// While this share of memory is available, files in tmpfs take it from nobody.
const ROOM: f64 = 0.5;

impl Rule for TmpfsGrowth {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let shmem = cx.mem(m::Shmem)?;
        let ordinary = cx.total_without_pools()?;
        let mounts = tmpfs(cx);
        if cx.now().mounts.is_none() && cx.mem(m::Mapped).is_err() {
            return Ok(shared(cx, shmem, ordinary).into_iter().collect());
        }
        let Held { bytes: held, measured } = Held::of(cx, &mounts, shmem)?;
        let share = held.share_of(ordinary);
        if share <= NOTICEABLE {
            let full = mounts.into_iter().filter(|mount| is_nearly_full(mount));
            return Ok(full.map(nearly_full).collect());
        }
        let swap = cx.mem(m::SwapTotal).unwrap_or_default();
        let roomy = cx.available_share().is_some_and(|share| share >= ROOM);
        let much = share >= MUCH || swap == Bytes::ZERO;
        let severity =
            Severity::ladder(&[(roomy, Severity::Info), (much, Severity::High)], Severity::Warning);
        let way_out = match swap {
            Bytes::ZERO => "and cannot be reclaimed: there is no swap",
            _ => "and can only be swapped, not dropped",
        };
        let at_least = if measured { "" } else { "at least " };
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!("files in tmpfs hold {at_least}{held}, {} of memory, {way_out}", Percent(share)),
            Cost::memory(
                held,
                cx.total()?,
                "counted as cache, and not given back until the files are removed",
            ),
        );
        finding.sure(if measured { Confidence::Certain } else { Confidence::Likely }).because(
            cx.saw_mem(m::Shmem).against(
                format!("of tmpfs at most {} of {ordinary:#}", Percent(NOTICEABLE)),
                "free counts it as cache",
            ),
        );
        let largest = largest(mounts);
        finding.because_all(largest.iter().filter_map(|mount| saw(mount)));
        if !measured {
            finding.because(cx.saw_mem(m::Mapped)).note(format!(
                "{shmem:#} Shmem - the larger of {:#} Mapped and {:#} in System V segments = {held:#} that \
                 nobody maps: files.",
                cx.mem_or_zero(m::Mapped),
                segments(cx)
            ));
        }
        if let Ok(trend) = cx.trend(m::Shmem)
            && trend.last > trend.first
        {
            finding.note(format!(
                "Shmem grew by {} over {:.0} s.",
                Bytes((trend.last - trend.first) as u64),
                trend.seconds
            ));
        }
        let deleted = deleted(cx);
        if deleted >= SMALL {
            finding.note(format!(
                "{deleted} of it are in deleted files that processes hold, which du does not find (see deleted-files)."
            ));
        }
        if held - deleted >= SMALL {
            finding.remedy(remove_files(largest.first().map_or("MOUNT", |mount| &mount.target)));
        }
        add_remedies(&mut finding, largest.first().copied());
        Ok(vec![finding])
    }
}

/// What deleted files hold that no command for files finds.
fn deleted(cx: &Context<'_>) -> Bytes {
    let files = held::files(cx);
    files.iter().filter(|file| file.had_a_path() && !file.hugetlb).map(|file| file.bytes).sum()
}

/// `Shmem` alone: files in tmpfs, or memory that programs share.
fn shared(cx: &Context<'_>, shmem: Bytes, ordinary: Bytes) -> Option<Finding> {
    let share = shmem.share_of(ordinary);
    if share < MUCH || cx.available_share().is_some_and(|share| share >= ROOM) {
        return None;
    }
    let mut finding = Finding::new(
        TmpfsGrowth::ID,
        Severity::Warning,
        format!("files in tmpfs and shared memory hold {shmem}, {} of memory", Percent(share)),
        Cost::memory(shmem, ordinary, "counted as cache, and not given back until it is removed"),
    );
    finding
        .sure(Confidence::Likely)
        .because(cx.saw_mem(m::Shmem).against(
            format!("at most {} of {ordinary:#}", Percent(MUCH)),
            "free counts it as cache",
        ))
        .note("These data do not tell files in tmpfs from memory that programs share, such as a database's buffers.");
    finding.remedy(remove_files("MOUNT"));
    add_remedies(&mut finding, None);
    Some(finding)
}

/// Proposes to bound `mount`, which holds most of the files, where it is known.
fn add_remedies(finding: &mut Finding, mount: Option<&Mount>) {
    let target = mount.map_or("MOUNT", |mount| mount.target.as_str());
    let mut bound =
        Remedy::new(format!("Bound the mount {target}, so that writers get ENOSPC instead of memory"))
            .run(format!("mount -o remount,size=SIZE {}", word(target)))
            .keep("/etc/fstab", format!("tmpfs {target} tmpfs {} 0 0", options(mount.as_ref())))
            .risk("Writers fail with ENOSPC when it is full; it cannot be made smaller than what it holds.");
    if let Some(mount) = mount {
        // Without the option a tmpfs may take half of memory.
        let size = mount.option("size").unwrap_or("50%");
        let option = format!("remount,size={size}");
        bound = bound.undo_with(format!("mount -o {} {}", word(&option), word(target)));
    }
    finding.remedy(bound).note(
        "A memory cgroup is charged for the tmpfs files that its processes write: MemoryMax on the \
         writer's unit bounds them too.",
    );
}

fn remove_files(target: &str) -> Remedy {
    Remedy::new("Remove the files, or move them to a disk")
        .run(format!("du -xa --apparent-size {} | sort -n | tail", word(target)))
        .risk("A file that a process holds open keeps its memory until that process closes it.")
}

/// The three mounts that hold most, largest first.
fn largest(mut mounts: Vec<&Mount>) -> Vec<&Mount> {
    mounts.retain(|mount| mount.space.is_some());
    mounts.sort_by_key(|mount| std::cmp::Reverse(mount.space.map(|(_, used)| used)));
    mounts.truncate(3);
    mounts
}

/// Distinct tmpfs mounts, `/dev/shm` left out where a database keeps its shared memory there.
fn tmpfs<'a>(cx: &Context<'a>) -> Vec<&'a Mount> {
    let database = cx.workloads().iter().any(|workload| workload.is_database());
    let mut found: Vec<&Mount> = Vec::new();
    for mount in cx.now().mounts.iter().flatten().filter(|mount| &*mount.kind == "tmpfs") {
        // A container shows one tmpfs at several places.
        let same = |other: &&Mount| {
            other.space.is_some() && other.space == mount.space && other.source == mount.source
        };
        let own = database && mount.target == "/dev/shm";
        if own || found.iter().any(same) {
            continue;
        }
        found.push(mount);
    }
    found
}

/// The mount's options with another size: `nosuid`, `nodev` and `mode` have to survive.
fn options(mount: Option<&&Mount>) -> String {
    let others = mount.map_or("defaults", |mount| &*mount.options);
    let kept = others.split(',').filter(|option| !option.is_empty() && !option.starts_with("size="));
    kept.chain(["size=SIZE"]).collect::<Vec<_>>().join(",")
}

/// What System V segments hold in memory.
fn segments(cx: &Context<'_>) -> Bytes {
    cx.shm().unwrap_or_default().iter().map(|segment| segment.rss.unwrap_or(segment.size)).sum()
}

fn unmapped(cx: &Context<'_>, shmem: Bytes) -> Result<Bytes, crate::Skip> {
    Ok(shmem - cx.mem(m::Mapped)?.max(segments(cx)))
}

fn is_nearly_full(mount: &Mount) -> bool {
    mount.space.is_some_and(|(size, used)| used >= SMALL && used.share_of(size) > NEARLY_FULL)
}

fn saw(mount: &Mount) -> Option<Evidence> {
    let (size, used) = mount.space?;
    Some(Evidence::new("statvfs", "used", format!("{used:#} of {size:#}")).of(&mount.target))
}

fn nearly_full(mount: &Mount) -> Finding {
    let (size, used) = mount.space.unwrap_or_default();
    let mut finding = Finding::new(
        TmpfsGrowth::ID,
        Severity::Warning,
        format!("the tmpfs {} is full to {}, {used} of {size}", mount.target, Percent(used.share_of(size))),
        Cost::risk("writers fail with ENOSPC when it is full"),
    );
    finding
        .sure(Confidence::Certain)
        .because_all(saw(mount).map(|evidence| {
            evidence.against(format!("at most {}", Percent(NEARLY_FULL)), "the usual bound of a file system")
        }))
        .remedy(remove_files(&mount.target));
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use lotsfree_kernel_files::counters::Values;
    use lotsfree_kernel_files::file::process::Process;
    use lotsfree_snapshot::{Observation, Snapshot};

    /// A host of 16 GiB whose mounts were measured; text fixtures cannot have that.
    fn findings(shmem: Bytes, mounts: &[(&str, &str, Bytes, Bytes)], program: &str) -> Vec<Finding> {
        let text = format!(
            "MemTotal: {} kB\nSwapTotal: 0 kB\nShmem: {} kB\n",
            Bytes::gib(16).as_kib(),
            shmem.as_kib()
        );
        let mut process = Process::default();
        process.stat.name = program.into();
        let mount = |&(source, target, size, used): &(&str, &str, Bytes, Bytes)| Mount {
            source: source.to_owned(),
            target: target.to_owned(),
            kind: "tmpfs".into(),
            options: "rw".to_owned(),
            space: Some((size, used)),
        };
        let now = Snapshot {
            meminfo: Some(Values::parse(text.as_bytes(), |bad| panic!("line {}", bad.line))),
            mounts: Some(mounts.iter().map(mount).collect()),
            processes: Some(vec![process]),
            ..Snapshot::default()
        };
        let observation = Observation::instant("test", now);
        TmpfsGrowth.check(&Context::new(&observation)).expect("all that is asked for is there")
    }

    #[test]
    fn measured_space_counts_each_tmpfs_once() {
        let (size, used) = (Bytes::gib(8), Bytes::mib(1200));
        let twice = [("tmpfs", "/tmp", size, used), ("tmpfs", "/srv/jail/tmp", size, used)];
        assert!(findings(Bytes::gib(2), &twice, "bash").is_empty());
        let different = [("tmpfs", "/tmp", size, used), ("tmpfs", "/run", size, Bytes::mib(1201))];
        let found = findings(Bytes::gib(3), &different, "bash");
        assert!(
            found[0].title.contains("files in tmpfs hold 2.34 GiB, 15 % of memory"),
            "{}",
            found[0].title
        );
        assert_eq!(found[0].confidence, Confidence::Certain);
    }

    #[test]
    fn a_bounded_mount_keeps_its_options_and_its_undo() {
        let mount = |options: &str| Mount { options: options.to_owned(), ..Mount::default() };
        assert_eq!(
            options(Some(&&mount("rw,nosuid,nodev,size=8388608k,mode=1777"))),
            "rw,nosuid,nodev,mode=1777,size=SIZE"
        );
        assert_eq!(options(None), "defaults,size=SIZE");
        let found = findings(Bytes::gib(4), &[("tmpfs", "/tmp", Bytes::gib(8), Bytes::gib(4))], "bash");
        let undo = found[0].remedies.iter().flat_map(|remedy| &remedy.undo).collect::<Vec<_>>();
        assert_eq!(undo, ["mount -o remount,size=50% /tmp"]);
    }

    #[test]
    fn what_lies_in_swap_is_not_in_memory() {
        let mounts = [("tmpfs", "/tmp", Bytes::gib(8), Bytes::gib(4))];
        assert!(findings(Bytes::gib(1), &mounts, "bash").is_empty());
        assert_eq!(findings(Bytes::gib(4), &mounts, "bash").len(), 1);
    }

    #[test]
    fn a_database_keeps_its_own_memory_in_dev_shm() {
        let mounts = [("tmpfs", "/dev/shm", Bytes::gib(16), Bytes::gib(6))];
        assert!(findings(Bytes::gib(6), &mounts, "ora_pmon_ORCL").is_empty());
        assert_eq!(findings(Bytes::gib(6), &mounts, "bash").len(), 1);
    }

    #[test]
    fn a_small_mount_that_is_full_is_told_of_its_own() {
        let full = findings(Bytes::gib(1), &[("tmpfs", "/tmp", Bytes::gib(1), Bytes::mib(900))], "bash");
        assert!(full[0].title.contains("the tmpfs /tmp is full to 88 %"), "{}", full[0].title);
        assert!(
            findings(Bytes::gib(1), &[("tmpfs", "/run", Bytes::mib(60), Bytes::mib(59))], "bash").is_empty()
        );
    }
}
