use lotsfree_kernel_files::file::block::BlockDevice;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_units::{Bytes, Grouped};

use crate::remedy::word;
use crate::rule::rule;
use crate::swapping::{
    FSTAB, SWAPPED_IN, SWAPPED_OUT, device_named, device_of, is_zram, off_kills, saw_rotational, turns, zswap,
};
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Remedy, Rule, Severity, Skip};

rule! {
    /// Swap lies where it costs more than it has to.
    ///
    /// # Sees
    /// `/proc/swaps` with the devices below: a slow area that is used before a fast one or in turn with it;
    /// zram that is full, so that a disk takes the youngest pages; two areas of equal priority on one disk;
    /// zram together with zswap; zswap without any swap behind it; swap traffic on a rotating disk or on the
    /// disk that also holds the data, while another one is there.
    ///
    /// # Hurts
    /// Each page that comes back is a random read, for which a task waits: 5 to 10 ms on a rotating disk, 0.1
    /// ms on a solid-state disk, 10 us from compressed memory. On the data's own disk the reads of the
    /// database wait as well. zswap in front of zram compresses each page twice.
    ///
    /// # Remedies
    /// Priorities by speed; swap on another device; one of zram and zswap.
    ///
    /// # False alarms
    /// Equal priorities on separate disks of one kind stripe swap over them, which is wanted. Virtual disks
    /// report that they rotate whatever is below: they are not judged. A shared or slow disk matters only
    /// while pages move, so that is judged over two samples.
    ///
    /// # References
    /// `mm/swapfile.c:get_swap_pages` (priorities, round robin among equals; 6.12); swapon(8);
    /// `Documentation/admin-guide/mm/zswap.rst`.
    pub SwapPlacement = "swap-placement" in Swap
}

/// Pages per second in and out together below which placement does not matter: a rotating disk serves some
/// 100 random reads a second, and a tenth of that is noise.
const TRAFFIC: f64 = 10.0;

const ENABLED: &str = "/sys/module/zswap/parameters/enabled";

/// zram counts as full from here on.
const FULL: f64 = 0.95;

/// How fast a page comes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Speed {
    Rotating,
    SolidState,
    Compressed,
}

impl Speed {
    fn name(self) -> &'static str {
        match self {
            Speed::Rotating => "a rotating disk",
            Speed::SolidState => "a solid-state disk",
            Speed::Compressed => "compressed memory (zram)",
        }
    }
}

impl Rule for SwapPlacement {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let areas = cx.swaps()?;
        if areas.is_empty() {
            let idle = nothing_to_compress(cx).ok_or_else(|| Skip::because("there is no swap"))?;
            return Ok(vec![idle]);
        }
        let mut findings: Vec<Finding> = overflown(areas).into_iter().collect();
        if cx.now().block.is_none() {
            return if findings.is_empty() { Err(Skip::missing("/sys/block")) } else { Ok(findings) };
        }
        findings.extend(slow_first(cx, areas));
        findings.extend(same_disk(cx, areas));
        findings.extend(compressed_twice(cx, areas));
        if let (Ok(in_rate), Ok(out_rate)) = (cx.rate(SWAPPED_IN), cx.rate(SWAPPED_OUT))
            && in_rate.per_second + out_rate.per_second >= TRAFFIC
        {
            findings.extend(busy_on_the_wrong_disk(cx, areas, &in_rate, &out_rate));
        }
        Ok(findings)
    }
}

fn speed(cx: &Context<'_>, area: &SwapArea) -> Option<Speed> {
    if is_zram(area) {
        return Some(Speed::Compressed);
    }
    Some(if turns(device_of(cx, area)?)? { Speed::Rotating } else { Speed::SolidState })
}

fn saw(area: &SwapArea) -> Evidence {
    let value = format!("priority {}, {:#} of {:#} used", area.priority, area.used, area.size);
    Evidence::new("/proc/swaps", "Priority", value).of(&area.path)
}

fn saw_device(device: &BlockDevice) -> Evidence {
    saw_rotational(device, &device.name)
}

/// Compressed memory that is full, so that what goes out now goes to a disk.
fn overflown(areas: &[SwapArea]) -> Option<Finding> {
    let (zram, disks): (Vec<&SwapArea>, Vec<&SwapArea>) = areas.iter().partition(|area| is_zram(area));
    let sum = |of: fn(&SwapArea) -> Bytes| -> Bytes { zram.iter().map(|area| of(area)).sum() };
    let (used, size) = (sum(|area| area.used), sum(|area| area.size));
    let disk = disks.iter().filter(|area| area.used > Bytes::ZERO).max_by_key(|area| area.used)?;
    if used.share_of(size) < FULL {
        return None;
    }
    let mut finding = Finding::new(
        SwapPlacement::ID,
        Severity::Warning,
        format!(
            "compressed swap (zram) is full, {used} of {size}: what is swapped out now goes to {}",
            disk.path
        ),
        Cost::risk(format!(
            "{:#} lie there already; the youngest pages are on the slower device, the oldest in compressed memory",
            disk.used
        )),
    );
    finding
        .sure(Confidence::Certain)
        .because_all(zram.iter().map(|area| saw(area)))
        .because(saw(disk))
        .note(
            "zram does not write old pages out by itself. Find what fills memory first; zswap in place of zram keeps \
             the youngest pages compressed and writes the oldest to the disk.",
        );
    Some(finding)
}

/// A slower area whose priority is not below that of a faster one.
fn slow_first(cx: &Context<'_>, areas: &[SwapArea]) -> Option<Finding> {
    let known = areas.iter().filter_map(|area| Some((area, speed(cx, area)?))).collect::<Vec<_>>();
    let (slow, fast) = known.iter().find_map(|&(slow, slow_speed)| {
        let fast =
            known.iter().find(|(fast, speed)| *speed > slow_speed && fast.priority <= slow.priority)?;
        Some(((slow, slow_speed), *fast))
    })?;
    let turn = if slow.0.priority == fast.0.priority { "in turn with" } else { "before" };
    let above = slow.0.priority.max(fast.0.priority).max(0).saturating_add(10);
    let keep = match fast.1 {
        Speed::Compressed => {
            ("/etc/systemd/zram-generator.conf, [zram0]", format!("swap-priority = {above}"))
        }
        _ => (FSTAB, format!("{} none swap pri={above} 0 0", fast.0.path)),
    };
    let mut finding = Finding::new(
        SwapPlacement::ID,
        if slow.0.used > Bytes::ZERO { Severity::Warning } else { Severity::Info },
        format!(
            "swap on {} ({}) is filled {turn} swap on {} ({})",
            slow.0.path,
            slow.1.name(),
            fast.0.path,
            fast.1.name()
        ),
        Cost::risk(format!(
            "{:#} lie on the slower device; each page that comes back from there waits longer than it has \
             to",
            slow.0.used
        )),
    );
    finding
        .sure(Confidence::Certain)
        .because(saw(slow.0))
        .because(saw(fast.0))
        .because_all([slow.0, fast.0].into_iter().filter_map(|area| device_of(cx, area)).map(saw_device))
        .note(
            "The kernel fills the area of highest priority first and takes areas of equal priority in turn.",
        );
    unless_it_kills(
        cx,
        &mut finding,
        Remedy::new(format!("Give {} the higher priority", fast.0.path))
            .run(format!("swapoff {0} && swapon --priority {above} {0}", word(&fast.0.path)))
            .keep(keep.0, keep.1)
            .undo_with(format!("swapoff {0} && swapon {0}", word(&fast.0.path)))
            .risk(format!(
                "swapoff first reads {:#} back into memory: only while that much is available.",
                fast.0.used
            )),
    );
    Some(finding)
}

/// Two areas of equal priority on one device.
fn same_disk(cx: &Context<'_>, areas: &[SwapArea]) -> Option<Finding> {
    let (first, second, device) = areas.iter().enumerate().find_map(|(i, first)| {
        let device = device_of(cx, first).filter(|_| !is_zram(first))?;
        let twin = |other: &&SwapArea| {
            other.priority == first.priority && device_of(cx, other).is_some_and(|d| d.name == device.name)
        };
        Some((first, areas[i + 1..].iter().find(twin)?, device))
    })?;
    let rotating = turns(device) == Some(true);
    let mut finding = Finding::new(
        SwapPlacement::ID,
        if rotating { Severity::Warning } else { Severity::Info },
        format!("{} and {} have the same priority on one disk, {}", first.path, second.path, device.name),
        Cost::risk(if rotating {
            "the head moves between the two with every batch of pages"
        } else {
            "striping over two areas of one device gains nothing"
        }),
    );
    finding
        .sure(Confidence::Certain)
        .because(saw(first))
        .because(saw(second))
        .because(saw_device(device))
        .note("Equal priorities are for separate disks of one kind: there they stripe.");
    unless_it_kills(
        cx,
        &mut finding,
        Remedy::new(format!(
            "Give {} a lower priority, so that it is used only when the other is full",
            second.path
        ))
        .run(match lower(first.priority) {
            Some(pri) => format!("swapoff {0} && swapon --priority {pri} {0}", word(&second.path)),
            None => format!("swapoff {0} && swapon {0}", word(&second.path)),
        })
        .keep(
            FSTAB,
            match lower(first.priority) {
                Some(pri) => format!("{} none swap pri={pri} 0 0", second.path),
                None => format!("{} none swap defaults 0 0", second.path),
            },
        )
        .undo_with(format!(
            "swapoff {0} && swapon --priority {1} {0}",
            word(&second.path),
            first.priority.max(0)
        ))
        .risk(format!(
            "swapoff first reads {:#} back into memory: only while that much is available.",
            second.used
        )),
    );
    Some(finding)
}

/// Adds a remedy that turns swap off for a moment, where nothing is killed for it.
fn unless_it_kills(cx: &Context<'_>, finding: &mut Finding, remedy: Remedy) {
    match off_kills(cx) {
        Some(why) => finding.note(why),
        None => finding.remedy(remedy),
    };
}

/// `swapon` takes 0 to 32767; negative ones are the kernel's own, for areas turned on without a priority:
/// below 0 there is nothing else.
fn lower(priority: i32) -> Option<i32> {
    (priority > 0).then(|| priority - 1)
}

/// `Y`, if zswap is on.
fn zswap_enabled<'a>(cx: &Context<'a>) -> Option<&'a str> {
    zswap(cx, "enabled").filter(|enabled| *enabled == "Y")
}

/// zswap that is on where nothing is swapped out.
fn nothing_to_compress(cx: &Context<'_>) -> Option<Finding> {
    let enabled = zswap_enabled(cx)?;
    let mut finding = Finding::new(
        SwapPlacement::ID,
        Severity::Info,
        "zswap is on and there is no swap: it does nothing".to_owned(),
        Cost::risk("anonymous memory cannot leave memory, compressed or not"),
    );
    finding
        .sure(Confidence::Certain)
        .because(Evidence::new(ENABLED, "enabled", enabled))
        .because(Evidence::new("/proc/swaps", "areas", 0))
        .note(
            "zswap is a cache in front of a swap device: each page that it holds has a slot there. Give it swap (see \
             lotsfree size swap); where no disk may be swapped to, zram is swap by itself.",
        );
    Some(finding)
}

fn compressed_twice(cx: &Context<'_>, areas: &[SwapArea]) -> Option<Finding> {
    let zram = areas.iter().find(|area| is_zram(area))?;
    let enabled = zswap_enabled(cx)?;
    let mut finding = Finding::new(
        SwapPlacement::ID,
        Severity::Info,
        format!("zswap is on and swap is on {}: pages are compressed twice", zram.path),
        Cost::risk("CPU time of every page that goes out, and a pool beside the pool"),
    );
    finding
        .sure(Confidence::Certain)
        .because(Evidence::new(ENABLED, "enabled", enabled).against("N", "zram compresses already"))
        .because(saw(zram))
        .remedy(
            Remedy::new("Turn zswap off")
                .sysfs(ENABLED, "N", Some("Y"))
                .keep("kernel command line", "zswap.enabled=0")
                .risk("Pages that zswap holds stay there until they are used or written out."),
        )
        .note(
            "How to choose: zram where there is no other swap; zswap in front of a disk, because it writes \
             what is cold to the disk and zram does not.",
        );
    Some(finding)
}

fn busy_on_the_wrong_disk(
    cx: &Context<'_>,
    areas: &[SwapArea],
    pages_in: &Rate,
    pages_out: &Rate,
) -> Option<Finding> {
    let devices = cx.now().block.as_deref()?;
    let (area, device) = areas
        .iter()
        .filter(|area| area.used > Bytes::ZERO && !is_zram(area))
        .find_map(|area| Some((area, device_of(cx, area)?)))?;
    let mounts = cx.now().mounts.as_deref().unwrap_or_default();
    let data = mounts
        .iter()
        .filter(|m| device_named(cx, &m.source).is_some_and(|d| d.name == device.name))
        .collect::<Vec<_>>();
    let real = |d: &&BlockDevice| {
        d.name != device.name
            && d.rotational.is_some()
            && !["zram", "sr", "fd", "dm-", "md"].iter().any(|p| d.name.starts_with(p))
    };
    let rotating = turns(device) == Some(true);
    let better = devices.iter().filter(real).find(|d| !rotating || turns(d) == Some(false))?;
    if !rotating && data.is_empty() {
        return None;
    }
    let (read, how) = cx.read_latency();
    let shared = match data.first() {
        Some(mount) => format!(", which also holds {}", mount.target),
        None => String::new(),
    };
    let kind = if rotating { "a rotating disk" } else { "a disk" };
    let mut finding = Finding::new(
        SwapPlacement::ID,
        if rotating { Severity::High } else { Severity::Warning },
        format!(
            "{:.0} pages/s come from and {:.0} go to swap on {}, {kind}{shared}; {} is another device",
            pages_in.per_second, pages_out.per_second, device.name, better.name
        ),
        Cost::faults(pages_in.per_second, read, format!("reads from swap, at {how}")),
    );
    finding
        .sure(cx.rate_confidence())
        .because(cx.saw_rate(SWAPPED_IN, pages_in).against(
            format!("with swap-out at least {} pages/s", Grouped(TRAFFIC as u64)),
            "a tenth of what a rotating disk serves",
        ))
        .because(cx.saw_rate(SWAPPED_OUT, pages_out))
        .because(saw(area))
        .because(saw_device(device))
        .because(saw_device(better))
        .remedy(
            Remedy::new(format!("Add swap on {} with a higher priority", better.name))
                .run("mkswap PARTITION && swapon --priority 100 PARTITION")
                .keep(FSTAB, "PARTITION none swap pri=100 0 0")
                .undo_with("swapoff PARTITION")
                .risk("mkswap overwrites the partition: take a free one. Swapping wears flash memory."),
        )
        .note(
            "Placement makes swapping cheaper, not rarer: find out first why pages are swapped \
             (swap-exhaustion, protected-app-swapped).",
        );
    Some(finding)
}
