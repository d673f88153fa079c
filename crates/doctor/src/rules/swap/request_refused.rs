use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::kernel_log::refusal::{KERNEL, Refusal, Refused, UNNAMED};
use lotsfree_settings::{MAX_MAP_COUNT, OVERCOMMIT_MEMORY, SHMMAX};
use lotsfree_units::{Bytes, Grouped};

use crate::applications::{Application, Topic};
use crate::remedy::LIMITS_FILE;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, levels};

rule! {
    /// A program says that a request was refused, or what it asks for.
    ///
    /// # Sees
    /// Messages of the kernel, of PostgreSQL, MySQL, Oracle, Redis, MongoDB, Elasticsearch, Cassandra,
    /// Java, QEMU, DPDK and others in a journal or in an application's log: mappings, locked memory,
    /// threads, System V segments, `/dev/shm`, huge pages, forks and memory that was not promised.
    /// `/dev/kmsg` alone has only the kernel's.
    ///
    /// # Hurts
    /// The program does not start, saves nothing, or ends, while `free` shows gigabytes: a limit was
    /// reached, not the end of memory.
    ///
    /// # Remedies
    /// The limit that the message is about, with the value that the message asks for; where several can be
    /// meant, the command that tells which.
    ///
    /// # False alarms
    /// A message may be old. Several programs ask for a setting at each start although nothing has failed:
    /// then nothing is claimed but that.
    ///
    /// # References
    /// `mm/util.c:__vm_enough_memory`, `mm/mmap.c`, `ipc/shm.c:newseg`, `mm/shmem.c`, `kernel/fork.c` (6.12);
    /// setrlimit(2); systemd.exec(5); PostgreSQL manual, "Managing Kernel Resources"; Redis documentation,
    /// "Administration"; Elasticsearch guide, "Bootstrap Checks".
    pub RequestRefused = "request-refused" in Swap
}

/// Messages that are shown as evidence, latest first.
const SHOWN: usize = 3;
/// What Elasticsearch asks for, where a message does not say how many mappings are needed.
const MAPPINGS: u64 = 262_144;

/// A finding to be: all messages of one kind.
struct Case {
    severity: Severity,
    confidence: Confidence,
    title: String,
    harm: &'static str,
    remedies: Vec<Remedy>,
    notes: Vec<String>,
}

impl Rule for RequestRefused {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let log = cx.kernel_log()?;
        let recorded = !log.ooms.is_empty() || !log.daemon_kills.is_empty();
        let mut kinds: Vec<Refused> = log.refusals.iter().map(|refusal| refusal.what).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if recorded {
            // The log says who killed, and why.
            kinds.retain(|what| !matches!(what, Refused::Killed | Refused::OomKilled));
        }
        // The end of a process whose requests were refused is no second finding.
        if kinds.iter().any(|what| *what < Refused::OwnLimit) {
            kinds.retain(|what| *what != Refused::Killed);
        }
        // The kernel says why it had no pages: an error number that a program prints beside it says less.
        if !log.allocation_failures.is_empty() {
            let told = |what: Refused| log.refusals.iter().any(|r| r.what == what && r.by != UNNAMED);
            kinds.retain(|what| !matches!(what, Refused::Memory | Refused::Fork) || told(*what));
        }
        // The kernel's error on huge pages is no second refusal; nor is the signal that a kill ends with.
        if kinds.contains(&Refused::HugePages) {
            let other = |refusal: &Refusal| refusal.what == Refused::Memory && refusal.by != UNNAMED;
            let pools: Vec<&str> =
                log.refusals.iter().filter(|r| r.what == Refused::HugePages).map(|r| r.by).collect();
            let apart = log.refusals.iter().filter(|r| other(r)).any(|r| !pools.contains(&r.by));
            kinds.retain(|what| *what != Refused::Memory || apart);
        }
        if kinds.contains(&Refused::OomKilled) {
            kinds.retain(|what| *what != Refused::Killed);
        }
        Ok(kinds.into_iter().filter_map(|what| found(cx, what, &log.refusals)).collect())
    }
}

fn found(cx: &Context<'_>, what: Refused, refusals: &[Refusal]) -> Option<Finding> {
    let of_kind: Vec<&Refusal> = refusals.iter().filter(|refusal| refusal.what == what).collect();
    // The one that says most; of those the latest.
    let told = |refusal: &&&Refusal| {
        usize::from(refusal.by != UNNAMED)
            + usize::from(refusal.asked.is_some())
            + usize::from(refusal.needed.is_some() || refusal.allowed.is_some())
    };
    let refusal = *of_kind.iter().max_by_key(told)?;
    let case = case(cx, refusal);
    let mut finding = Finding::new(RequestRefused::ID, case.severity, case.title, Cost::risk(case.harm));
    finding.sure(case.confidence);
    let mut shown: Vec<Evidence> = Vec::new();
    for refusal in of_kind.iter().rev() {
        let evidence = Evidence::new("log", refusal.by, message(refusal));
        let evidence = match refusal.needed {
            Some(needed) => evidence.against(format!("at least {}", Grouped(needed)), "the message"),
            None => evidence,
        };
        if shown.len() < SHOWN && !shown.contains(&evidence) {
            shown.push(evidence);
        }
    }
    finding.because_all(shown);
    if of_kind.len() > SHOWN {
        finding.note(format!("The log has {} such messages.", Grouped(of_kind.len() as u64)));
    }
    for remedy in case.remedies {
        finding.remedy(remedy);
    }
    for note in case.notes {
        finding.note(note);
    }
    Some(finding)
}

/// What a message says, in few words.
fn message(refusal: &Refusal) -> String {
    let what = match refusal.what {
        Refused::Mappings => "mappings are refused",
        Refused::Locked => "memory is not locked",
        Refused::Tasks => "a thread or process is refused",
        Refused::Segment => "a System V segment is refused",
        Refused::SharedMount => "no room on a tmpfs",
        Refused::HugePages | Refused::HugePagesForbidden => "huge pages are refused",
        Refused::Data => "RLIMIT_DATA is exceeded",
        Refused::Memory => "memory is refused (ENOMEM)",
        Refused::Fork => "a fork is refused (ENOMEM)",
        Refused::SocketBuffers => "buffers of sockets are refused",
        Refused::OwnLimit => "its own limit is reached",
        Refused::CompressedSwap => "memory for compressed pages is refused",
        Refused::Gpu => "memory of the graphics card is refused",
        Refused::AsksOvercommit => "asks for vm.overcommit_memory = 1",
        Refused::AsksNoThp => "asks for transparent huge pages to be off",
        Refused::AsksInterleave => "asks to be interleaved over the nodes",
        Refused::Killed => "ended by signal 9",
        Refused::OomKilled => "ended by the OOM killer",
    };
    let mut text = what.to_owned();
    if let Some(name) = &refusal.name {
        text.push_str(&format!(", {name}"));
    }
    if let Some(asked) = refusal.asked {
        text.push_str(&format!(", {asked} asked for"));
    }
    if let Some(allowed) = refusal.allowed {
        text.push_str(&format!(", {} allowed", Grouped(allowed)));
    }
    text
}

/// Who was refused.
fn who(refusal: &Refusal) -> &str {
    match refusal.by {
        KERNEL | "systemd" => refusal.name.as_deref().unwrap_or("a process"),
        by => by,
    }
}

/// `4.00 GiB of `, where the size is known.
fn size_of(refusal: &Refusal) -> String {
    refusal.asked.map_or_else(String::new, |asked| format!("{asked} of "))
}

fn case(cx: &Context<'_>, refusal: &Refusal) -> Case {
    let who = who(refusal);
    match refusal.what {
        Refused::Mappings => mappings(cx, refusal, who),
        Refused::Locked => locked(refusal, who),
        Refused::Tasks => tasks(cx, who),
        Refused::Segment => segment(cx, refusal, who),
        Refused::SharedMount => shared_mount(refusal, who),
        Refused::HugePages => huge_pages(refusal, who),
        Refused::HugePagesForbidden => huge_pages_forbidden(who),
        Refused::Data => data(who),
        Refused::Memory => memory(cx, refusal, who),
        Refused::Fork => fork(cx, refusal, who),
        Refused::SocketBuffers => socket_buffers(),
        Refused::OwnLimit => own_limit(refusal, who),
        Refused::CompressedSwap => Case::new(
            Severity::High,
            Confidence::Certain,
            "compressed swap (zram) found no memory for its pages: what was to be swapped out could not go".to_owned(),
            "writes to swap fail, and reclaim turns to the cache or to the OOM killer",
        )
        .remedy(
            Remedy::new("See how full it is, and give swap a disk of lower priority too")
                .run("zramctl; swapon --show")
                .risk("None: it only reads."),
        )
        .note(
            "zram takes its memory when it is needed, which is when there is none. On 32-bit kernels its forerunners \
             need addresses of vmalloc as well.",
        ),
        Refused::Gpu => Case::new(
            Severity::Warning,
            Confidence::Certain,
            format!("{who}: the graphics card's own memory is full, not the host's"),
            "the computation ends; nothing that is done to the host's memory helps",
        )
        .remedy(
            Remedy::new("See who holds the card's memory").run("nvidia-smi").risk("None: it only reads."),
        ),
        Refused::AsksOvercommit => asks_overcommit(cx, who),
        Refused::AsksNoThp => asks_no_thp(who),
        Refused::AsksInterleave => asks_interleave(who),
        Refused::Killed => Case::new(
            Severity::Warning,
            Confidence::Possible,
            format!("{who} was ended by signal 9, which the OOM killer sends too"),
            "what it did is lost",
        )
        .remedy(look_for_kills())
        .note("This log does not say who sent the signal. The kernel's log does, if it was the kernel."),
        Refused::OomKilled => Case::new(
            Severity::High,
            Confidence::Likely,
            format!(
                "the kernel's OOM killer ended a process of {who}: memory, or a group's limit, was used up"
            ),
            "what it did is lost; a service that is restarted grows into the same end again",
        )
        .remedy(look_for_kills())
        .note(
            "systemd saw the kill, the kernel's log has its report: whether the host was full or a limit \
             (MemoryMax, a container's), and who held the memory.",
        ),
    }
}

impl Case {
    fn new(severity: Severity, confidence: Confidence, title: String, harm: &'static str) -> Case {
        Case { severity, confidence, title, harm, remedies: Vec::new(), notes: Vec::new() }
    }

    fn remedy(mut self, remedy: Remedy) -> Case {
        self.remedies.push(remedy);
        self
    }

    fn note(mut self, note: impl Into<String>) -> Case {
        self.notes.push(note.into());
        self
    }
}

fn look_for_kills() -> Remedy {
    Remedy::new("Read the kernel's report of the kill, and let doctor read it")
        .run("journalctl -k --grep='oom|Killed process' --no-pager")
        .run("journalctl -k -b --no-pager | lotsfree doctor -")
        .risk("None: it only reads.")
}

fn mappings(cx: &Context<'_>, refusal: &Refusal, who: &str) -> Case {
    let wanted = refusal.needed.unwrap_or(MAPPINGS);
    let title = match (refusal.needed, refusal.allowed) {
        (Some(needed), Some(allowed)) => {
            format!("{who} needs {} mappings, vm.max_map_count allows {}", Grouped(needed), Grouped(allowed))
        }
        _ => format!("{who} could not map more: vm.max_map_count is too low for it"),
    };
    Case::new(
        Severity::High,
        if refusal.needed.is_some() { Confidence::Certain } else { Confidence::Likely },
        title,
        "the program does not start, or ends at its next mapping, with any amount of memory free",
    )
    .remedy(Remedy::new("Allow more mappings").sysctl(cx, MAX_MAP_COUNT, wanted).risk(
        "The limit itself costs nothing; each mapping in use takes some 200 bytes of kernel memory. In a \
         container it is set on the host.",
    ))
}

fn locked(refusal: &Refusal, who: &str) -> Case {
    let limit = refusal.allowed.map_or_else(String::new, |bytes| format!(" of {}", Bytes(bytes)));
    let case = Case::new(
        Severity::High,
        Confidence::Likely,
        format!("{who} may not lock memory: its RLIMIT_MEMLOCK{limit} is too low"),
        "the program ends, or goes on with memory that can be swapped out",
    )
    .remedy(memlock(who));
    match who {
        "QEMU" => case.note(
            "A guest with a passed-through device is locked as a whole: its memory and some 1 GiB more. With \
             libvirt <memtune><hard_limit> sets the limit.",
        ),
        _ => case,
    }
}

/// A limit on locked memory is inherited from what starts the program.
fn memlock(who: &str) -> Remedy {
    let remedy = Remedy::new(format!("Let {who} lock memory"))
        .run("grep 'Max locked memory' /proc/PID/limits  # of the running program")
        .keep("the unit's drop-in, [Service]", "LimitMEMLOCK=infinity")
        .keep(LIMITS_FILE, "USER - memlock unlimited (for programs started from a login)")
        .risk("What it locks can be neither swapped out nor dropped: it must fit beside everything else.")
        .restart(who.to_owned());
    match Application::of_name(who) {
        Some(application) => application.tell(Topic::Locked, remedy),
        None => remedy,
    }
}

fn tasks(cx: &Context<'_>, who: &str) -> Case {
    if commit_is_used_up(cx) {
        return Case::new(
            Severity::High,
            Confidence::Likely,
            format!("{who} could not start a thread: all that strict overcommit allows is promised, while memory is available"),
            "the stack of a thread counts in Committed_AS as a whole",
        )
        .remedy(promises());
    }
    Case::new(
        Severity::High,
        Confidence::Likely,
        format!("{who} could not start a thread or process: a limit on tasks refused it, not memory"),
        "connections are refused or the program ends, with any amount of memory free",
    )
    .remedy(
        Remedy::new("Find the limit: the unit's, the group's, the user's, or the kernel's")
            .run("systemctl show -p TasksCurrent -p TasksMax UNIT; cat /sys/fs/cgroup/GROUP/pids.max")
            .run("grep 'Max processes' /proc/PID/limits; sysctl kernel.threads-max kernel.pid_max vm.max_map_count")
            .keep("the unit's drop-in, [Service]", "TasksMax=N (or LimitNPROC=N)")
            .risk("Each thread takes kernel memory (16 KiB of stack) and a mapping or two."),
    )
    .note("If all of them are far off, the program leaks threads: ps -eo nlwp,pid,comm --sort=-nlwp shows who.")
}

fn segment(cx: &Context<'_>, refusal: &Refusal, who: &str) -> Case {
    let case = Case::new(
        Severity::High,
        Confidence::Likely,
        format!(
            "{who}'s shared memory segment{} was refused: kernel.shmmax or kernel.shmall is too low",
            refusal.asked.map_or_else(String::new, |asked| format!(" of {asked}"))
        ),
        "the program does not start, with any amount of memory free",
    );
    let look = Remedy::new("Compare the limits with what is asked for")
        .run("ipcs -lm; ipcs -um")
        .risk("None: it only reads.");
    let case = match refusal.asked {
        Some(asked) => case.remedy(
            Remedy::new("Allow a segment of this size, and all segments together")
                .run("ipcs -lm; ipcs -um  # before: segments that exist count against kernel.shmall")
                .sysctl(cx, SHMMAX, asked.0)
                .run(format!(
                    "sysctl -w kernel.shmall=$(( $(sysctl -n kernel.shmall) + {} ))",
                    asked.0.div_ceil(cx.now().host.page_size.bytes().0.max(1))
                ))
                .keep("/etc/sysctl.d/90-lotsfree.conf", "kernel.shmall = N (what the command above printed)")
                .risk("The limits cost nothing by themselves; what is put into a segment stays in memory or goes to swap."),
        ),
        None => case.remedy(look),
    };
    case.note(
        "shmmax is in bytes, shmall in pages. From 3.16 on both are practically without bound, unless a line \
         in /etc/sysctl.conf or /etc/sysctl.d, often copied from an old guide, lowers them.",
    )
}

fn shared_mount(refusal: &Refusal, who: &str) -> Case {
    let case = Case::new(
        Severity::High,
        Confidence::Likely,
        format!(
            "/dev/shm is too small or full: {who} needs {}it, not more memory",
            match refusal.asked {
                Some(asked) => format!("{asked} at once in "),
                None => "more room in ".to_owned(),
            }
        ),
        "a query, a worker or the start of the program fails, with any amount of memory free",
    )
    .remedy(
        Remedy::new("Give /dev/shm what the program needs")
            .run("df -h /dev/shm; ls -l /dev/shm  # what is there, and left over")
            .run("mount -o remount,size=SIZE /dev/shm")
            .keep("docker run", "--shm-size=SIZE (64 MB by default)")
            .keep("Kubernetes: volumes", "emptyDir: {medium: Memory, sizeLimit: SIZE}, mounted on /dev/shm")
            .risk("What lies there is memory, counts in the container's limit, and leaves only for swap."),
    );
    match who {
        "Oracle" => case.note(
            "MEMORY_TARGET keeps its granules in /dev/shm, which must be as large as MEMORY_MAX_TARGET; \
             SGA_TARGET with huge pages needs none of it.",
        ),
        "PostgreSQL" => case.note("Parallel queries share memory through it: max_parallel_workers_per_gather and work_mem decide how much."),
        _ => case,
    }
}

fn huge_pages(refusal: &Refusal, who: &str) -> Case {
    let title = match (refusal.needed, refusal.allowed) {
        (Some(needed), Some(allowed)) => format!(
            "of {} huge pages that were asked for the kernel found only {}: memory was in small pieces",
            Grouped(needed),
            Grouped(allowed)
        ),
        _ => format!(
            "{who} got no huge pages: {}the pool has too few free",
            match refusal.asked {
                Some(asked) => format!("for {asked} "),
                None => String::new(),
            }
        ),
    };
    let count = match refusal.asked {
        Some(asked) => asked.0.div_ceil(Bytes::mib(2).0).to_string(),
        None => "PAGES".to_owned(),
    };
    Case::new(
        Severity::High,
        Confidence::Likely,
        title,
        "the program does not start, or takes base pages with their page tables while the pool stays idle",
    )
    .remedy(
        Remedy::new("Enlarge the pool by what is asked for, in pages of 2 MiB")
            .run("grep HugePages_ /proc/meminfo  # free less reserved is what can still be had")
            .run(format!("sysctl -w vm.nr_hugepages=$(( $(cat /proc/sys/vm/nr_hugepages) + {count} ))"))
            .keep("/etc/sysctl.d/90-lotsfree.conf", "vm.nr_hugepages = N (what the command above printed)")
            .run("grep HugePages_ /proc/meminfo  # the kernel gives fewer where memory is in pieces")
            .risk("Pages of the pool are of no use to anything else, also while nobody takes them.")
            .restart(who.to_owned()),
    )
}

fn huge_pages_forbidden(who: &str) -> Case {
    Case::new(
        Severity::High,
        Confidence::Likely,
        format!("{who} may not use huge pages: neither vm.hugetlb_shm_group nor RLIMIT_MEMLOCK lets it"),
        "it does not start, or takes base pages while the pool stays idle",
    )
    .remedy(memlock(who))
    .remedy(
        Remedy::new("Or name its group (6.1 and later go by the group alone)")
            .run("sysctl vm.hugetlb_shm_group; id USER")
            .run("sysctl -w vm.hugetlb_shm_group=GID")
            .risk("One group only: all programs that use System V segments of huge pages have to share it.")
            .restart(who.to_owned()),
    )
}

fn data(who: &str) -> Case {
    Case::new(
        Severity::High,
        Confidence::Certain,
        format!("{who} reached RLIMIT_DATA, which from 4.7 on counts all private writable memory"),
        "its allocations fail, with any amount of memory free",
    )
    .remedy(
        Remedy::new("Raise the limit")
            .run("grep 'Max data size' /proc/PID/limits")
            .keep("the unit's drop-in, [Service]", "LimitDATA=infinity")
            .risk("The program may then grow until memory is used up.")
            .restart(who.to_owned()),
    )
}

/// Commands that tell why the kernel does not promise memory.
fn promises() -> Remedy {
    Remedy::new("See what the kernel promises, and what is promised")
        .run("sysctl vm.overcommit_memory vm.overcommit_ratio vm.overcommit_kbytes")
        .run("grep -E 'MemTotal|MemAvailable|SwapTotal|SwapFree|CommitLimit|Committed_AS' /proc/meminfo; ulimit -v")
        .risk("None: it only reads.")
}

/// A request below this is refused by no rule for large ones: nearly all was used up or promised.
const SMALL: Bytes = Bytes::gib(1);

/// Less than this is available: memory itself is short.
const NOTHING: f64 = 0.05;
/// Room below `CommitLimit` that a refusal leaves: strict mode keeps back 3 % of the process for root.
const LITTLE_ROOM: f64 = 0.04;

/// Why a request of this size is refused, as far as the mode is known.
fn reason(cx: &Context<'_>, asked: Option<Bytes>) -> (Confidence, &'static str) {
    let left = cx.available();
    let left = left.map(|left| left.bytes + cx.mem_or_zero(m::SwapFree));
    let all = cx.mem(m::MemTotal).ok().map(|total| total + cx.mem_or_zero(m::SwapTotal));
    match cx.sysctl(OVERCOMMIT_MEMORY) {
        Ok(2) => (Confidence::Likely, "strict overcommit leaves too little below CommitLimit"),
        Ok(0) if asked.zip(all).is_some_and(|(asked, all)| asked > all) => {
            (Confidence::Certain, "it is more than memory and swap together")
        }
        Ok(1) => {
            (Confidence::Likely, "overcommit refuses nothing here, so a limit of the process did (ulimit -v)")
        }
        _ if asked.zip(left).is_some_and(|(asked, left)| asked > left) => {
            (Confidence::Likely, "it is more than what is available and free in swap")
        }
        _ if commit_is_used_up(cx) => {
            (Confidence::Likely, "all that strict overcommit allows is promised, while memory is available")
        }
        _ if cx.available_share().is_some_and(|share| share < NOTHING) => {
            (Confidence::Likely, "next to nothing is available, and swap is used up")
        }
        _ if asked.is_some_and(|asked| asked < SMALL) => (
            Confidence::Possible,
            "memory and swap were used up, or all that strict overcommit allows was promised",
        ),
        _ => (
            Confidence::Likely,
            "memory was short of that, or the kernel did not promise it (overcommit), or the process has a limit \
             (ulimit -v)",
        ),
    }
}

/// PostgreSQL says the same of memory and of huge pages: a pool of which nobody takes a page, and which has
/// too few for the request, is what it means.
fn pool_is_short(cx: &Context<'_>, refusal: &Refusal, who: &str) -> Option<Case> {
    let asked = refusal.asked.filter(|_| who == "PostgreSQL")?;
    let meminfo = cx.now().meminfo.as_ref()?;
    let size = levels::huge_page_size(meminfo)?;
    let (total, free) = (meminfo.get(m::HugePages_Total)?, meminfo.get(m::HugePages_Free)?);
    let promised = meminfo.get(m::HugePages_Rsvd).unwrap_or(0);
    let left = free.saturating_sub(promised);
    if total == 0 || left != total || size.times(left) >= asked {
        return None;
    }
    let needed = asked.0.div_ceil(size.0.max(1));
    let mut case = huge_pages(refusal, who);
    case.title = format!(
        "{who} got no huge pages: {asked} need {} of {size}, and the pool has {} free",
        Grouped(needed),
        Grouped(left)
    );
    Some(case)
}

/// Whether `Committed_AS` is just below `CommitLimit` while memory is available: in the other modes nothing
/// keeps it there.
fn commit_is_used_up(cx: &Context<'_>) -> bool {
    let (Ok(limit), Ok(committed)) = (cx.mem(m::CommitLimit), cx.mem(m::Committed_AS)) else { return false };
    let room = committed <= limit && (limit - committed).share_of(limit) < LITTLE_ROOM;
    room && cx.available_share().is_none_or(|share| share >= NOTHING)
}

fn memory(cx: &Context<'_>, refusal: &Refusal, who: &str) -> Case {
    if let Some(case) = pool_is_short(cx, refusal, who) {
        return case;
    }
    let (confidence, reason) = reason(cx, refusal.asked);
    let named = refusal.by != UNNAMED;
    let case = Case::new(
        if named { Severity::High } else { Severity::Warning },
        if named { confidence } else { Confidence::Possible },
        format!("{who} was refused {}memory: {reason}", size_of(refusal)),
        "the program does not start, or ends; nothing was killed",
    )
    .remedy(promises());
    let case = match who {
        "PostgreSQL" => case.note(
            "With huge_pages = on the same message means that the pool of huge pages is too small \
             (HugePages_Free in /proc/meminfo). Otherwise shared_buffers and max_connections decide the size.",
        ),
        "Java" => case.note(
            "The heap is committed when it grows: -Xmx and the heaps of other machines here must fit below \
             what the kernel promises. A malloc that fails at a few bytes is rather vm.max_map_count or ulimit -v.",
        ),
        "Oracle" => case.note(
            "ORA-04030 at some 4 GB is vm.max_map_count (65,530 mappings of 64 KiB); ORA-27102 with Error 28 is \
             kernel.shmall.",
        ),
        _ => case,
    };
    case.note(
        "Mode 2 refuses beyond CommitLimit. Mode 0 refuses a single request that is larger than memory and swap \
         (5.4 and later), or than what is free, cache and swap together (before): then memory itself is short.",
    )
}

fn fork(cx: &Context<'_>, refusal: &Refusal, who: &str) -> Case {
    let strict = cx.sysctl(OVERCOMMIT_MEMORY) == Ok(2);
    let why = if strict {
        "strict overcommit leaves too little below CommitLimit for a copy"
    } else {
        "the kernel did not promise a copy of its memory (overcommit)"
    };
    let case = Case::new(
        Severity::High,
        Confidence::Likely,
        format!("{who} could not fork: {why}"),
        "no command starts, no connection is taken, nothing is saved; most of the copy would never have been made",
    )
    .remedy(promises());
    let case = match refusal.by {
        "Redis" => case.remedy(let_fork(cx)),
        _ => case,
    };
    case.note(
        "A fork is charged for all private writable memory of the parent, although pages are copied only when \
         one of the two writes. If memory and swap are full as well, that is the cause and not the rule.",
    )
}

fn let_fork(cx: &Context<'_>) -> Remedy {
    Remedy::new("Let Redis fork whatever its size").sysctl(cx, OVERCOMMIT_MEMORY, 1).risk(
        "No request is refused any more; if all that is promised is touched, the OOM killer chooses a process. \
         Keep memory free for the pages that are written during a save.",
    )
}

fn asks_overcommit(cx: &Context<'_>, who: &str) -> Case {
    Case::new(
        Severity::Warning,
        Confidence::Certain,
        format!("{who} asks for vm.overcommit_memory = 1: with 0 its background save can be refused memory"),
        "a save or a replica's first copy fails when the kernel refuses the fork",
    )
    .remedy(let_fork(cx))
}

fn asks_no_thp(who: &str) -> Case {
    Case::new(
        Severity::Warning,
        Confidence::Certain,
        format!("{who} asks for transparent huge pages to be off"),
        "a write after a fork copies 2 MiB in place of 4 KiB, and processes take more memory than they touch",
    )
    .remedy(
        Remedy::new("Let programs ask for huge pages themselves")
            .sysfs("/sys/kernel/mm/transparent_hugepage/enabled", "madvise", None)
            .undo_with("echo always > /sys/kernel/mm/transparent_hugepage/enabled")
            .risk("Programs that gain by them and do not ask lose a few per cent. Huge pages that exist stay until the program ends.")
            .restart(who.to_owned()),
    )
}

fn asks_interleave(who: &str) -> Case {
    Case::new(
        Severity::Warning,
        Confidence::Certain,
        format!("{who} runs on a NUMA machine without interleaving: one node may fill while others are free"),
        "the node that fills reclaims or swaps, and half of its memory is remote to its threads",
    )
    .remedy(
        Remedy::new("Start it interleaved")
            .run("numactl --hardware; cat /proc/sys/vm/zone_reclaim_mode")
            .keep("the unit's drop-in, [Service]", "ExecStart=/usr/bin/numactl --interleave=all COMMAND")
            .risk("Each access is remote as often as chance has it, but none waits for reclaim.")
            .restart(who.to_owned()),
    )
}

fn socket_buffers() -> Case {
    Case::new(
        Severity::High,
        Confidence::Certain,
        "TCP's buffers reached net.ipv4.tcp_mem: the kernel drops what comes in, with any amount of memory free"
            .to_owned(),
        "connections stall and are reset",
    )
    .remedy(
        Remedy::new("See who holds them, then raise the limit")
            .run("cat /proc/net/sockstat; sysctl net.ipv4.tcp_mem; ss -tmn | sort -k 2 -n | tail")
            .risk("Sockets that nobody reads grow into any limit: mend the reader first."),
    )
    .note("tcp_mem is in pages; sockstat shows what is used as `mem`.")
}

fn own_limit(refusal: &Refusal, who: &str) -> Case {
    let what = refusal.name.as_deref().map_or_else(String::new, |name| format!(" ({name})"));
    let setting = match who {
        "Java" => "-Xmx for the heap, -XX:MaxMetaspaceSize, -XX:MaxDirectMemorySize",
        "Node.js" => "--max-old-space-size, in MiB",
        "PHP" => "memory_limit in php.ini",
        "Redis" => "maxmemory and maxmemory-policy",
        "Oracle" => "SGA_TARGET and SHARED_POOL_SIZE, or PGA_AGGREGATE_LIMIT",
        "ClickHouse" => "max_server_memory_usage and max_memory_usage",
        "RabbitMQ" => "vm_memory_high_watermark",
        "memcached" => "-m, in MiB",
        "SAP HANA" => "global_allocation_limit and statement_memory_limit",
        _ => "its own setting",
    };
    Case::new(
        Severity::Warning,
        Confidence::Certain,
        format!("{who} reached a limit of its own{what}; the host refused nothing"),
        "its requests fail, whatever memory the host has",
    )
    .remedy(
        Remedy::new(format!("Raise it if the host has the memory, or find what fills it: {setting}"))
            .run("grep -E 'MemTotal|MemAvailable|SwapFree' /proc/meminfo")
            .risk("A limit that is larger than what is available moves the end to the OOM killer."),
    )
}
