use lotsfree_formulas::memlock::{memlock_kib, oracle_memlock_kib};
use lotsfree_settings::HUGETLB_SHM_GROUP;
use lotsfree_units::{Bytes, Grouped};

use crate::control_groups::service_of;
use crate::finding::subject;
use crate::huge;
use crate::memlock::{Low, too_low};
use crate::remedy::LIMITS_FILE;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload};

rule! {
    /// A running database may lock less memory than its shared segment has, so it gets no huge pages.
    ///
    /// # Sees
    /// `Max locked memory` in `/proc/PID/limits` of the running database processes against their largest
    /// System V segment that is in base pages. `CAP_IPC_LOCK` (in `CapEff`) and `vm.hugetlb_shm_group` open
    /// huge pages whatever the limit. On kernels where the limit opens nothing any more (6.1 and later), a
    /// process without either.
    ///
    /// # Hurts
    /// `shmget(SHM_HUGETLB)` is refused and the instance falls back to base pages without a word: the pool
    /// stays idle and the segment is in memory a second time, with its page tables. Typical: the instance
    /// uses huge pages when started from a login shell and none when the cluster software or systemd starts
    /// it, because only a login applies `limits.conf`.
    ///
    /// # Remedies
    /// Raise the limit where the instance is started (systemd `LimitMEMLOCK`, `ulimit -l` in the start
    /// script of the cluster software), and in `limits.d` for logins; log in again and restart the
    /// instance. On kernels that ignore the limit, `vm.hugetlb_shm_group`.
    ///
    /// # False alarms
    /// Members of `vm.hugetlb_shm_group` and processes with `CAP_IPC_LOCK` need no limit. Programs that map
    /// hugetlbfs files or use `MAP_HUGETLB` (PostgreSQL, Java) need none either. `limits.conf` says nothing
    /// of processes that are running.
    ///
    /// # References
    /// fs/hugetlbfs/inode.c:hugetlb_file_setup (5.15, 6.1; measured on 6.18: EPERM for a segment of 4 MiB
    /// with a limit of 8 MiB); Oracle Bug 9251136; R. Egner, "MEMORY_TARGET (SGA_TARGET) or HugePages"
    /// (2010), comments 1, 4, 8, 9 and 15; Oracle asks for 90 % of memory.
    pub MemlockTooLow = "memlock-too-low" in HugePages
}

impl Rule for MemlockTooLow {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let size = huge::default_size(cx)?;
        let pools = huge::filled(cx)?;
        let spare = pools.iter().find(|pool| pool.size == size).map_or(0, |pool| pool.idle());
        Ok(too_low(cx)?.iter().map(|low| finding(cx, low, size, spare)).collect())
    }
}

fn finding(cx: &Context<'_>, low: &Low<'_>, size: Bytes, spare: u64) -> Finding {
    let Low { process, segment, .. } = low;
    let pages = segment.size.units_of(size);
    let idle = size.times(spare.min(pages));
    let (severity, cost) = if spare >= pages {
        (Severity::High, huge::cost(cx, idle, "huge pages that stay idle while the segment is in base pages"))
    } else {
        let text = "the segment stays in base pages as soon as there is a pool for it";
        (Severity::Warning, Cost::risk(text))
    };
    let limit = low.limit.map_or("unlimited".to_owned(), |limit| format!("{} B ({limit})", Grouped(limit.0)));
    let bound = if low.ignored {
        "CAP_IPC_LOCK or vm.hugetlb_shm_group".to_owned()
    } else {
        format!("at least {} B, the size of {}", Grouped(segment.size.0), segment.label)
    };
    let mut finding = Finding::new(MemlockTooLow::ID, severity, low.text(), cost);
    finding
        .sure(if spare >= pages { Confidence::Likely } else { Confidence::Possible })
        .because(
            Evidence::new("/proc/PID/limits", "Max locked memory (soft)", limit)
                .of(subject(process))
                .against(bound, "fs/hugetlbfs/inode.c:hugetlb_file_setup"),
        )
        .because(segment.evidence())
        .because(Evidence::new("/proc/meminfo", "HugePages_Free - HugePages_Rsvd", huge::count(spare)));
    if cx.now().sysctl.text(HUGETLB_SHM_GROUP).is_some() {
        finding.because(cx.saw_sysctl(HUGETLB_SHM_GROUP));
    }
    if low.ignored {
        finding
            .remedy(
                Remedy::new("Name the database's group in vm.hugetlb_shm_group")
                    .run(format!("sysctl -w vm.hugetlb_shm_group=$(stat -c %g /proc/{})", process.stat.pid))
                    .keep(
                        &crate::remedy::sysctl_file(cx, HUGETLB_SHM_GROUP),
                        "vm.hugetlb_shm_group = GID (what the command above printed)",
                    )
                    .undo_with("sysctl -w vm.hugetlb_shm_group=0")
                    .risk("One group only: all databases of the host have to share it.")
                    .restart("the database")
                    .sets(HUGETLB_SHM_GROUP, "the database's group"),
            )
            .note(format!(
                "Kernel {} asks for CAP_IPC_LOCK or the group; up to 5.15 a limit as large as the segment \
                 was enough.",
                cx.now().host.kernel
            ));
        return finding;
    }
    raise_limits(&mut finding, cx, low);
    if let Some((file, line, value)) = configured(cx, low) {
        finding.note(format!(
            "{file} line {line} allows {value}, yet the process has less: it was not started from a login \
             (cluster software and systemd do not apply limits.conf), or before the line was written.",
        ));
    }
    finding.note(
        "Reading limits.conf proves nothing: a limit is inherited when a process starts. An instance that \
         got huge pages when started by hand loses them when a service starts it after a reboot.",
    );
    finding
}

fn raise_limits(finding: &mut Finding, cx: &Context<'_>, low: &Low<'_>) {
    let Low { process, segment, .. } = low;
    let uid = segment.uid.unwrap_or_default();
    let kib = match (low.database, cx.total()) {
        (Workload::Oracle, Ok(total)) => {
            oracle_memlock_kib(total).max(memlock_kib(segment.size, Bytes::ZERO))
        }
        _ => memlock_kib(segment.size, Bytes::ZERO),
    };
    let unit = service_of(process);
    let mut at_start = Remedy::new("Raise the limit where the instance is started");
    at_start = match unit {
        Some(unit) => at_start
            .keep(&format!("/etc/systemd/system/{unit}.d/memlock.conf"), "[Service]")
            .keep(&format!("/etc/systemd/system/{unit}.d/memlock.conf"), "LimitMEMLOCK=infinity")
            .run("systemctl daemon-reload")
            .sets(format!("{unit} LimitMEMLOCK"), "infinity"),
        None => at_start.keep(
            "the start script (Oracle clusterware: /etc/init.d/ohasd, function start)",
            "ulimit -l unlimited",
        ),
    };
    finding
        .remedy(
            at_start
                .risk("The database may then lock memory beyond its segment.")
                .restart("the service, and with it the database"),
        )
        .remedy(
            Remedy::new("Raise the limit for logins")
                .keep(LIMITS_FILE, format!(":{uid} soft memlock {kib}"))
                .keep(LIMITS_FILE, format!(":{uid} hard memlock {kib}"))
                .risk("Applied by PAM at login only: not to what systemd or cluster software starts.")
                .restart("the login, then the database")
                .sets(format!("memlock of uid {uid}"), kib),
        );
}

/// A line of limits.conf that would allow the segment.
fn configured<'a>(cx: &Context<'a>, low: &Low<'_>) -> Option<(&'a str, u32, &'a str)> {
    let enough = |value: &str| match value {
        "unlimited" | "infinity" | "-1" => true,
        kib => kib.parse().is_ok_and(|kib| Bytes::kib(kib) >= low.segment.size),
    };
    let line = cx.now().limits_conf.iter().find(|line| &*line.item == "memlock" && enough(&line.value))?;
    Some((&line.file, line.line, &line.value))
}
