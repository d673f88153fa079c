//! Remedies that several rules share, so that all of them propose the same one.

use lotsfree_kernel_files::file::cgroup::{CgroupVersion, Cgroups, Limit};
use lotsfree_kernel_files::file::sysctl::SysctlSetting;
use lotsfree_settings::{SWAPPINESS, WATERMARK_SCALE_FACTOR};
use lotsfree_units::Bytes;

use crate::control_groups::Owner;
use crate::remedy::{sysctl_file, word};
use crate::{Context, Remedy, advice, control_groups};

/// Place in which a unit's settings are proposed.
pub(crate) const DROP_IN: &str = "the unit's drop-in, [Service]";

/// Runs a copy or backup job in a memory cgroup of its own, so that its page cache displaces only itself.
pub(crate) fn bounded_writer(cx: &Context<'_>) -> Remedy {
    let remedy = Remedy::new("Run the job that fills the page cache in a memory cgroup of its own");
    // A gigabyte, or an eighth of a smaller host.
    let high = cx.total().map_or(1024, |total| (total.0 >> 20) / 8).clamp(64, 1024);
    let most = high + high / 2;
    if cx.cgroups().is_ok_and(|groups| groups.version == CgroupVersion::V1) {
        return remedy
            .run(format!("systemd-run --scope -p MemoryLimit={most}M COMMAND"))
            .keep(DROP_IN, format!("MemoryLimit={most}M"))
            .risk(
                "Version 1 cgroups do not slow a writer down when its dirty pages reach the limit: a fast \
                writer can be killed at a hard limit. Try it, or let the job use direct I/O instead.",
            )
            .restart("the job");
    }
    remedy
        .run(format!("systemd-run --scope -p MemoryHigh={high}M -p MemoryMax={most}M -p IOWeight=50 COMMAND"))
        .keep(DROP_IN, format!("MemoryHigh={high}M"))
        .keep(DROP_IN, format!("MemoryMax={most}M"))
        .keep(DROP_IN, "IOWeight=50")
        .risk("The job is slowed to what the disk takes; a MemoryMax below its own heap kills it.")
        .restart("the job")
}

/// What a group that is bounded may have beside what it holds, for what it reads and writes.
const ROOM: Bytes = Bytes::mib(32);

/// The bound of a group whose anonymous and shared memory is `holds`.
fn bound(holds: Bytes) -> Bytes {
    control_groups::rounded(holds.scale(1.0 / control_groups::COMFORTABLE) + ROOM)
}

/// The command that shows whether a payer loses less.
fn blame(payer: &str) -> String {
    format!("lotsfree blame {} --for 30s", word(payer))
}

/// Bounds the memory cgroup of a program that takes what others lose, so that its page cache displaces only
/// itself. `holds` is the anonymous and shared memory of all that runs in the group; whether `payer` loses
/// less shows whether it helped. `None` if the group is not known, or bounded as low already.
pub fn bounded_taker(groups: &Cgroups, path: &str, taker: &str, payer: &str, holds: Bytes) -> Option<Remedy> {
    let group = groups.at(path)?;
    let wanted = bound(holds);
    let (setting, now, risk) = match groups.version {
        CgroupVersion::V1 => (
            ("MemoryMax", "max"),
            group.max,
            "All of the group waits for its own reads and writes. Where it needs more than that for itself, one of its \
             processes is killed.",
        ),
        CgroupVersion::V2 => (
            ("MemoryHigh", "high"),
            group.high,
            "All of the group waits for its own reads and writes. Where it needs more than that for itself, it is slowed \
             down.",
        ),
    };
    let now = now.and_then(Limit::bytes);
    if now.is_some_and(|now| now <= wanted) {
        return None;
    }
    let title = format!("Bound what {taker} takes: {wanted} for {path}, of which it holds {holds} now");
    let remedy = control_groups::set(title, groups.version, path, setting, Some(wanted), now).risk(risk);
    Some(remedy.verify(blame(payer)))
}

/// Starts a program that takes what others in its own group lose in a group of its own, beside that one, so
/// that its page cache displaces only itself. `holds` is its anonymous and shared memory; whether `payer`
/// loses less shows whether it helped. `None` where groups are made by a container runtime.
pub fn taker_apart(
    version: CgroupVersion,
    path: &str,
    taker: &str,
    payer: &str,
    holds: Bytes,
) -> Option<Remedy> {
    let wanted = bound(holds);
    let title = format!("Start {taker} in a control group of its own, outside of {path}, with {wanted}");
    let (unit, setting, risk) = match version {
        CgroupVersion::V1 => ("MemoryLimit", "max", "one of its processes is killed"),
        CgroupVersion::V2 => ("MemoryHigh", "high", "it is slowed down"),
    };
    let remedy = match control_groups::owner(path) {
        Owner::Systemd(_) => {
            Remedy::new(title).run(format!("systemd-run --scope -p {unit}={} COMMAND", wanted.0))
        }
        Owner::Files => {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            let beside = format!("{above}/bounded");
            let directory = word(&control_groups::directory(version, &beside));
            let limit = word(&control_groups::file(version, &beside, setting));
            let enter = r#"sh -c 'echo $$ > "$0"/cgroup.procs && exec "$@"'"#;
            Remedy::new(title)
                .run(format!("mkdir {directory}"))
                .run(format!("echo {} > {limit}", wanted.0))
                .run(format!("{enter} {directory} COMMAND"))
                .undo_with(format!("rmdir {directory}"))
                .sets(limit, wanted.0)
        }
        Owner::Kubernetes | Owner::Container | Owner::Lab => return None,
    };
    let remedy = remedy.risk(format!(
        "It waits for its own reads and writes. Where it needs more than that for itself, {risk}."
    ));
    Some(remedy.restart(taker).verify(blame(payer)))
}

/// Makes the job keep its data out of the page cache by itself.
pub(crate) fn uncached_writer() -> Remedy {
    Remedy::new(
        "Let the job keep its data out of the page cache: direct I/O, or sync and then POSIX_FADV_DONTNEED \
        on whole pages",
    )
    .run("dd if=SOURCE of=TARGET bs=1M iflag=direct oflag=direct")
    .risk(
        "Direct I/O does not read ahead. POSIX_FADV_DONTNEED drops clean pages of the file for everybody: \
        not for files that others read.",
    )
}

/// Protects the memory of the database by its cgroup; `None` if version 2 is not in use.
pub(crate) fn protected_group(cx: &Context<'_>, what: &str) -> Option<Remedy> {
    let groups = cx.cgroups().ok().filter(|groups| groups.version == CgroupVersion::V2)?;
    let mut remedy = Remedy::new(format!("Protect {what} from reclaim by its memory cgroup"))
        .run("systemctl set-property --runtime UNIT MemoryLow=SIZE")
        .keep(DROP_IN, "MemoryLow=SIZE")
        .undo_with("systemctl set-property --runtime UNIT MemoryLow=0")
        .risk(
            "SIZE is what it keeps hot: anonymous, shared and active file memory of its cgroup and a tenth \
            more. Too much of it starves the rest.",
        );
    if !groups.recursive_protection {
        remedy = remedy.keep("each parent slice, [Slice]", "MemoryLow=SIZE");
    }
    Some(remedy)
}

/// Sets `vm.swappiness` to the recommended value if that is lower than the running one; never to 0.
pub(crate) fn lower_swappiness(cx: &Context<'_>) -> Option<Remedy> {
    let advice = advice::swappiness(cx);
    // Compressed swap is cheaper than reading file cache again, so it needs a high value.
    if cx.swaps().is_ok_and(crate::swapping::all_zram) {
        return None;
    }
    let now = cx.sysctl(SWAPPINESS).ok().filter(|now| *now > advice.value)?;
    Some(swappiness(cx, advice.value).risk(format!(
        "Reclaim then takes more file cache instead; from 10 to 60 the difference is small on kernels \
        before 3.11. It is {now} now; {}.",
        advice.because
    )))
}

/// Sets `vm.swappiness` to `value`, also in version 1 cgroups, which keep their own.
pub(crate) fn swappiness(cx: &Context<'_>, value: u64) -> Remedy {
    let mut remedy = Remedy::new(format!("Set vm.swappiness to {value}")).sysctl(cx, SWAPPINESS, value);
    for (path, own) in own_swappiness(cx).into_iter().filter(|(_, own)| *own != value) {
        let file = format!("/sys/fs/cgroup/memory{path}/memory.swappiness");
        let file = word(&file);
        remedy = remedy.run(format!("echo {value} > {file}")).undo_with(format!("echo {own} > {file}"));
    }
    remedy
}

/// `memory.swappiness` of each version 1 cgroup below the root; the root uses `vm.swappiness`.
pub(crate) fn own_swappiness<'a>(cx: &Context<'a>) -> Vec<(&'a str, u64)> {
    let groups = cx.cgroups().map(|groups| groups.groups.as_slice()).unwrap_or_default();
    (groups.iter())
        .filter(|group| group.path != "/")
        .filter_map(|group| Some((group.path.as_str(), group.swappiness?)))
        .collect()
}

/// Widens the gap between the min and the low watermark.
///
/// # Errors
/// The reason why it is not proposed: the kernel cannot do it, or the gap is wide enough already.
pub(crate) fn wider_watermarks(cx: &Context<'_>) -> Result<Remedy, String> {
    const NAME: &str = WATERMARK_SCALE_FACTOR;
    let advice = advice::watermark_scale_factor(cx);
    let now = cx.sysctl(NAME);
    if now.is_err() && !cx.now().host.kernel.at_least(4, 6) {
        return Err(
            "More room between the watermarks needs vm.watermark_scale_factor (4.6 and later), which was \
            not found here. Before it only vm.min_free_kbytes moves them, and all three at once: the gap \
            is a quarter of it."
                .to_owned(),
        );
    }
    if let Ok(now) = now
        && now >= advice.value
    {
        return Err(format!(
            "vm.watermark_scale_factor is {now} already, and {} is what this host's peak needs: raising it \
            is not the remedy.",
            advice.value
        ));
    }
    let kept = cx
        .total()
        .map_or_else(|_| "a part of memory".to_owned(), |total| kept_free(total, advice.value).to_string());
    Ok(Remedy::new("Wake kswapd earlier: more room between the min and the low watermark")
        .sysctl(cx, NAME, advice.value)
        .risk(format!(
            "kswapd then keeps about {kept} more free between min and high ({}). Values far too high leave \
            too little to work with and end in the OOM killer.",
            advice.because
        )))
}

/// Memory between the min and the high watermark: two gaps of `factor` ten-thousandths.
fn kept_free(total: Bytes, factor: u64) -> Bytes {
    lotsfree_formulas::watermarks::scale_gap_bytes(total, factor).times(2)
}

/// Adds a `sysctl.d` setting that displaces its twin (`dirty_bytes` and `dirty_ratio`); the undo restores the
/// twin.
pub(crate) fn displacing(remedy: Remedy, cx: &Context<'_>, name: &str, value: u64) -> Remedy {
    let remedy = remedy
        .run(format!("sysctl -w {name}={value}"))
        .keep(&sysctl_file(cx, name), format!("{name} = {value}"))
        .sets(name, value);
    let remedy = without_twin(remedy, cx, name);
    let twin = twin(name).and_then(|twin| Some((twin, cx.sysctl(twin).ok()?)));
    match (cx.sysctl(name), twin) {
        (Ok(now), _) if now > 0 => remedy.undo_with(format!("sysctl -w {name}={now}")),
        (_, Some((twin, now))) => remedy.undo_with(format!("sysctl -w {twin}={now}")),
        _ => remedy,
    }
}

/// The setting that the kernel clears when this one is written.
fn twin(name: &str) -> Option<&'static str> {
    lotsfree_settings::find(name)?.twin
}

/// Adds the removal of lines in persistent files that set a setting's twin. The two settings clear each
/// other, and at boot the later of the two lines wins.
pub(crate) fn without_twin(remedy: Remedy, cx: &Context<'_>, name: &str) -> Remedy {
    let Some(twin) = twin(name) else { return remedy };
    let spelled = |setting: &&SysctlSetting| setting.name == twin && !setting.is_exclusion();
    cx.now().sysctl_files.iter().filter(spelled).fold(remedy, |remedy, setting| {
        let (file, line) = (setting.file.trim_start_matches('/'), setting.line);
        let (todo, file) = match file.strip_prefix("etc/") {
            Some(_) => (format!("remove line {line}"), format!("/{file}")),
            // A package's file returns with the next update; a file of the same name in /etc hides it.
            None => {
                let base = file.rsplit('/').next().unwrap_or(file);
                (
                    format!("put a copy of /{file} here without its line {line}"),
                    format!("/etc/sysctl.d/{base}"),
                )
            }
        };
        remedy.keep(
            &file,
            format!(
                "# {todo} ({twin} = {}): {twin} and {name} zero each other, the later one stands",
                setting.value
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::file::cgroup::Cgroup;

    use super::*;

    #[test]
    fn a_taker_is_bounded_to_what_it_holds_and_some_room() {
        let bounded = |version, path: &str, limit: Option<Limit>, holds| {
            let group = Cgroup { path: path.to_owned(), max: limit, high: limit, ..Cgroup::default() };
            let groups = Cgroups { version, groups: vec![group], ..Cgroups::default() };
            bounded_taker(&groups, path, "tar", "postgres", Bytes::mib(holds))
        };
        let of_files = bounded(CgroupVersion::V1, "/apps/jobs", None, 0).unwrap();
        let file = "/sys/fs/cgroup/memory/apps/jobs/memory.limit_in_bytes";
        assert_eq!(of_files.runtime, [format!("echo {} > {file}", 64 << 20)]);
        assert_eq!(of_files.undo, [format!("echo -1 > {file}")]);
        assert_eq!(of_files.verify, ["lotsfree blame postgres --for 30s"]);
        let of_unit = bounded(CgroupVersion::V2, "/system.slice/backup.service", None, 100).unwrap();
        let set = "systemctl set-property --runtime backup.service MemoryHigh";
        assert_eq!(of_unit.runtime, [format!("{set}={}", 192 << 20)]);
        assert_eq!(of_unit.undo, [format!("{set}=infinity")]);
        let is_low = Some(Limit::At(Bytes::mib(64)));
        assert_eq!(bounded(CgroupVersion::V1, "/apps/jobs", is_low, 0), None);
    }

    #[test]
    fn who_takes_from_its_own_group_gets_one_beside_it() {
        let apart = |version, path| taker_apart(version, path, "cat", "post gres", Bytes::mib(1));
        let remedy = apart(CgroupVersion::V1, "/it's/db").unwrap();
        let beside = r"'/sys/fs/cgroup/memory/it'\''s/bounded'";
        assert_eq!(
            remedy.runtime,
            [
                format!("mkdir {beside}"),
                r"echo 67108864 > '/sys/fs/cgroup/memory/it'\''s/bounded/memory.limit_in_bytes'".to_owned(),
                format!(r#"sh -c 'echo $$ > "$0"/cgroup.procs && exec "$@"' {beside} COMMAND"#),
            ]
        );
        assert_eq!(remedy.undo, [format!("rmdir {beside}")]);
        assert_eq!(remedy.verify, ["lotsfree blame 'post gres' --for 30s"]);
        let remedy = apart(CgroupVersion::V2, "/system.slice/app.service").unwrap();
        assert_eq!(remedy.runtime, ["systemd-run --scope -p MemoryHigh=67108864 COMMAND"]);
        assert_eq!(apart(CgroupVersion::V2, "/kubepods/pod1/a"), None);
    }
}
