use std::collections::BTreeMap;

use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_kernel_files::file::process::numa_maps::NumaMapping;
use lotsfree_units::{Bytes, Grouped};

use crate::control_groups::service_of;
use crate::finding::subject;
use crate::huge;
use crate::remedy::LIMITS_FILE;
use crate::rule::rule;
use crate::{Confidence, Context, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload};

rule! {
    /// Oracle uses automatic memory management, which cannot have huge pages.
    ///
    /// # Sees
    /// Oracle processes that map `/dev/shm/ora_SID_ID_N` (one tmpfs file for each granule), the mark of
    /// `memory_target`.
    ///
    /// # Hurts
    /// The SGA is tmpfs in 4 KiB pages: page tables of 2 MiB per GiB and session, and it can be swapped
    /// (that AMM memory is "not swappable" is wrong on Linux). A huge page pool beside it stays idle. Each
    /// process opens the file of every granule, so that its limit on open files has to exceed their number.
    ///
    /// # Remedies
    /// Give up `memory_target` for `sga_target` and `pga_aggregate_target`, size a pool for the SGA, and
    /// start with `use_large_pages=only`. Where AMM stays and the granules come near the limit on open files
    /// (80 % of `Max open files`), raise that limit where the instance is started.
    ///
    /// # False alarms
    /// An ASM instance (1 to 1.5 GB, few sessions) may keep AMM: huge pages would save it a megabyte or two
    /// for each session. `/dev/shm/JOXSHM*` belongs to Oracle's Java compiler and is there without AMM too.
    ///
    /// # References
    /// Oracle MOS 749851.1 (AMM and huge pages are incompatible); R. Egner, "MEMORY_TARGET (SGA_TARGET) or
    /// HugePages" (2010), comments 5, 6, 11 and 12, and 8 and 9 (`ulimit -n` in ohasd, bug 9251136);
    /// mm/shmem.c:shmem_writepage (tmpfs goes to swap).
    pub AmmBlocksHugepages = "amm-blocks-hugepages" in HugePages
}

/// An ASM instance has at most this, even in large installations (twice the article's figure for them).
const ASM: Bytes = Bytes::gib(3);
/// What the article calls worth it, half of its SGA.
const LARGE: Bytes = Bytes::gib(8);
/// Granules that take more of the limit on open files leave little for the rest.
const NEAR: f64 = 0.80;
/// What the article's comment 9 and Oracle's orarun set.
const USUAL_FILES: u64 = 65_536;

/// The files that Oracle has its SGA in with AMM.
struct Granules<'a> {
    /// The most that one process has touched of each.
    files: BTreeMap<&'a str, Bytes>,
    asm_only: bool,
    first: (&'a Process, &'a NumaMapping),
}

impl<'a> Granules<'a> {
    fn of(cx: &Context<'a>) -> Option<Self> {
        let (mut files, mut asm_only, mut first) = (BTreeMap::<&str, Bytes>::new(), true, None);
        for (process, mapping) in huge::mappings(cx) {
            if mapping.file.starts_with("/dev/shm/ora_") {
                let most = files.entry(&mapping.file).or_default();
                *most = (*most).max(mapping.resident);
                asm_only &= process.stat.name.starts_with("asm_") || mapping.file.contains("ora_+");
                first = first.or(Some((process, mapping)));
            }
        }
        Some(Granules { files, asm_only, first: first? })
    }
}

impl Rule for AmmBlocksHugepages {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let processes = cx.processes()?;
        if !cx.runs(Workload::Oracle) {
            return Err(Skip::because("no Oracle Database runs"));
        }
        let oracle = |name: &str| Workload::of_name(name) == Some(Workload::Oracle);
        let seen = processes
            .iter()
            .any(|p| oracle(&p.stat.name) && p.detail.as_ref().is_some_and(|detail| detail.numa.is_some()));
        if !seen {
            return Err(Skip::missing("/proc/PID/numa_maps of an Oracle process"));
        }
        let Some(Granules { files, asm_only, first: (process, mapping) }) = Granules::of(cx) else {
            return Ok(Vec::new());
        };
        let users = processes.iter().filter(|p| oracle(&p.stat.name));
        let touched = users.clone().map(|p| p.memory_or_zero(s::RssShmem)).max().unwrap_or_default();
        let resident = touched.max(files.values().copied().sum());
        if asm_only && resident <= ASM {
            return Err(Skip::because(format!(
                "only an ASM instance uses AMM ({resident}): huge pages would save a megabyte or two for \
                 each session"
            )));
        }
        let tables: Bytes = users.clone().map(|p| p.memory_or_zero(s::VmPTE)).sum();
        let pools = huge::filled(cx).unwrap_or_default();
        let idle: Bytes = pools.iter().map(|pool| pool.size.times(pool.idle())).sum();
        let fits = idle >= resident && idle > Bytes::ZERO;
        let severity = Severity::ladder(&[(fits || resident >= LARGE, Severity::High)], Severity::Warning);
        let beside = match pools.iter().map(HugePool::bytes).sum::<Bytes>() {
            Bytes::ZERO => String::new(),
            pool => format!("; of the pool of {pool} beside it {idle} are idle"),
        };
        let title = format!(
            "Oracle manages its memory automatically: {resident} or more of SGA in 4 KiB pages in \
             /dev/shm{beside}"
        );
        let cost = huge::cost(
            cx,
            tables + idle,
            format!("{tables} of page tables of Oracle's processes, {idle} of idle pool"),
        );
        let granule = format!("{} resident", mapping.resident);
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding
            .sure(Confidence::Certain)
            .because(
                Evidence::new("/proc/PID/numa_maps", "file", format!("{}, {granule}", mapping.file))
                    .of(subject(process)),
            )
            .because(Evidence::new(
                "/proc/PID/numa_maps",
                "files /dev/shm/ora_* seen",
                Grouped(files.len() as u64),
            ))
            .because(Evidence::new("/proc/PID/status", "RssShmem, largest", format!("{touched:#}")))
            .because(Evidence::new("/proc/PID/status", "VmPTE, all of Oracle", format!("{tables:#}")));
        if cx.mem_count(m::HugePages_Total).is_ok() {
            let fields = [m::HugePages_Total, m::HugePages_Free, m::HugePages_Rsvd];
            finding.because_all(fields.map(|field| cx.saw_mem(field)));
        }
        add_remedies(&mut finding, resident, idle);
        if let Some(tight) = OpenFiles::of(processes) {
            tight.tell(&mut finding);
        }
        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, resident: Bytes, idle: Bytes) {
    let mib = resident.0.div_ceil(1 << 20);
    finding
        .remedy(
            Remedy::new("Replace AMM by a fixed SGA in huge pages (as SYSDBA, then size the pool for it)")
                .run("ALTER SYSTEM RESET memory_target SCOPE=SPFILE;")
                .run("ALTER SYSTEM RESET memory_max_target SCOPE=SPFILE;")
                .run(format!("ALTER SYSTEM SET sga_target={mib}M SCOPE=SPFILE;"))
                .run("ALTER SYSTEM SET use_large_pages='ONLY' SCOPE=SPFILE;")
                .undo_with("ALTER SYSTEM RESET sga_target SCOPE=SPFILE;")
                .undo_with("ALTER SYSTEM RESET use_large_pages SCOPE=SPFILE;")
                .undo_with(
                    "ALTER SYSTEM SET memory_target=... SCOPE=SPFILE; (the value of SHOW PARAMETER \
                     memory_target)",
                )
                .risk(
                    "sga_target here is what one process has touched: take V$SGAINFO's figure. Set \
                     pga_aggregate_target too; SGA and PGA no longer trade memory. With ONLY the instance \
                     does not start if the pool is short.",
                )
                .restart("the instance")
                .sets("Oracle memory_target", 0),
        )
        .note(
            "AMM and huge pages exclude each other: AMM gives memory back by truncating tmpfs files, which \
             huge pages of a System V segment cannot do. To prove it, reserve pages, start the instance and \
             look whether HugePages_Free or HugePages_Rsvd change.",
        );
    if idle > Bytes::ZERO {
        finding.note(
            "The pool beside it is judged by pool-unused and pool-waste; with AMM staying, release it.",
        );
    }
}

/// The limit on open files of a process that opens every granule of its instance.
struct OpenFiles<'a> {
    process: &'a Process,
    granules: u64,
    soft: u64,
    hard: u64,
}

impl<'a> OpenFiles<'a> {
    /// The process that comes nearest to its limit, if it comes near.
    fn of(processes: &'a [Process]) -> Option<Self> {
        let tight = |process: &'a Process| {
            let detail = process.detail.as_ref()?;
            let (soft, hard) = detail.limits?.open_files?;
            let near = detail.granules > 0 && detail.granules as f64 > soft as f64 * NEAR;
            near.then_some(OpenFiles { process, granules: detail.granules, soft, hard })
        };
        let share = |tight: &OpenFiles<'_>| tight.granules as f64 / tight.soft.max(1) as f64;
        processes.iter().filter_map(tight).max_by(|a, b| share(a).total_cmp(&share(b)))
    }

    fn tell(&self, finding: &mut Finding) {
        let OpenFiles { process, granules, soft, hard } = *self;
        let who = subject(process);
        let limits = format!("{} (hard {})", Grouped(soft), Grouped(hard));
        let bound = format!("at least {}", Grouped((granules as f64 / NEAR).ceil() as u64));
        let source = format!(
            "a file for each of {} granules, and a fifth for data files, sockets and logs",
            Grouped(granules)
        );
        finding.because(
            Evidence::new("/proc/PID/limits", "Max open files", limits).of(&who).against(bound, source),
        );
        let beyond = if granules >= soft { "no fewer than" } else { "close to" };
        finding
            .note(format!(
                "With AMM each process opens a file for each granule: {} of them are {beyond} the {} files that {who} may \
                 open (ulimit -n).",
                Grouped(granules),
                Grouped(soft)
            ))
            .remedy(more_files(process, USUAL_FILES.max(granules.saturating_mul(2))));
    }
}

/// Raises the limit on open files where AMM is to stay.
fn more_files(process: &Process, files: u64) -> Remedy {
    let remedy = Remedy::new("Where AMM stays: raise the limit on open files where the instance is started");
    let remedy = match service_of(process) {
        Some(unit) => remedy
            .keep(&format!("/etc/systemd/system/{unit}.d/nofile.conf"), "[Service]")
            .keep(&format!("/etc/systemd/system/{unit}.d/nofile.conf"), format!("LimitNOFILE={files}"))
            .run("systemctl daemon-reload")
            .sets(format!("{unit} LimitNOFILE"), files),
        None => remedy.keep(
            "the start script (Oracle clusterware: /etc/init.d/ohasd, function start)",
            format!("ulimit -n {files}"),
        ),
    };
    let remedy = match process.uid {
        Some(uid) => remedy
            .keep(LIMITS_FILE, format!(":{uid} soft nofile {files}"))
            .keep(LIMITS_FILE, format!(":{uid} hard nofile {files}")),
        None => remedy,
    };
    remedy
        .risk("limits.d holds for logins only: not for what systemd or cluster software starts.")
        .restart("the login or the service, and with it the instance")
        .verify("grep 'open files' /proc/$(pgrep -f ora_pmon | head -1)/limits")
}
