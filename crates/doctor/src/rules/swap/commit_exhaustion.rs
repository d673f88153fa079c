use lotsfree_formulas::Rules;
use lotsfree_formulas::overcommit::{
    Asker, CommitState, LimitSetting, Mode, commit_limit, largest_request, postgres_limit, ratio_for_limit,
};
use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_settings::{ADMIN_RESERVE_KBYTES, OVERCOMMIT_KBYTES, OVERCOMMIT_MEMORY, OVERCOMMIT_RATIO};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::applications::{self, Topic};
use crate::finding::subject;
use crate::remedy::sysctl_file;
use crate::rule::rule;
use crate::swapping::saw;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload, advice, remedies,
};

rule! {
    /// The overcommit mode refuses memory that is there.
    ///
    /// # Sees
    /// With `vm.overcommit_memory = 2` two things: `CommitLimit` less `Committed_AS` is below 5 % of
    /// the limit, or below what the largest process would need to fork; or `CommitLimit` is less than half of
    /// what could be used (`MemTotal` without the huge page pools, plus swap), however little is promised at
    /// the moment. With mode 0 only whether Redis runs, which asks for 1.
    ///
    /// # Hurts
    /// `mmap`, `brk`, `fork` and `shmget` fail with ENOMEM, and a stack that has to grow ends in SIGSEGV,
    /// while `free` shows gigabytes that nobody uses. The limit counts promises, not pages: what is reserved
    /// and never touched counts in full, and a fork counts all private writable memory of its parent once
    /// more.
    ///
    /// # Remedies
    /// A limit computed from memory (80 % of what is outside the huge page pools, plus swap), or the kernel's
    /// default mode 0.
    ///
    /// # False alarms
    /// In mode 0 and 1 the limit is computed and printed but never applied: one Oracle host ran well at 133 %
    /// of it. So no limit is reported there. The default ratio of 50 % without swap is exactly half and is
    /// accepted as long as there is room below it.
    ///
    /// # References
    /// `mm/util.c:__vm_enough_memory` and `vm_commit_limit` (6.12);
    /// `Documentation/mm/overcommit-accounting.rst`; PostgreSQL manual, "Linux Memory Overcommit"; measured:
    /// a pool of 1 GiB takes 524,288 kB off the limit at the default ratio.
    pub CommitExhaustion = "commit-exhaustion" in Swap
}

/// Less room than this below the limit: strict mode itself keeps back 1/32 (3 %) of a process for each
/// request, and the next server start needs a little more.
const ROOM: f64 = 0.05;
/// Less room than this and every larger request fails.
const NO_ROOM: f64 = 0.01;
/// A limit below half of memory and swap refuses more than it allows; the default ratio without swap is just
/// there.
const LOW: f64 = 0.5;
/// Below a tenth even one ordinary server does not fit.
const VERY_LOW: f64 = 0.1;
/// `CommitLimit` is rounded down to pages, of up to 64 KiB.
const ROUNDING: Bytes = Bytes::kib(64);

/// Room below the limit, and memory available, from which on strict overcommit is likely where it is not
/// told.
const UNTOLD_ROOM: f64 = 0.02;
const UNTOLD_AVAILABLE: f64 = 0.15;

impl Rule for CommitExhaustion {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let mode = match cx.sysctl(OVERCOMMIT_MEMORY) {
            Ok(mode) => mode,
            Err(skip) => return untold(cx).map(|finding| vec![finding]).ok_or(skip),
        };
        if mode != 2 {
            return Ok(fork_of_redis(cx, mode).into_iter().collect());
        }
        let view = View::of(cx)?;
        let forker = largest_forker(cx.processes().unwrap_or_default());
        let failing_fork = forker.filter(|(_, charge)| *charge > view.room());
        let Some(refusal) = Refusal::of(&view, failing_fork) else { return Ok(Vec::new()) };
        let mut finding =
            Finding::new(Self::ID, refusal.severity(&view), refusal.title(&view), refusal.cost(&view));
        finding.sure(refusal.confidence());
        add_evidence(&mut finding, cx, &view, failing_fork);
        finding.note(view.arithmetic()).note(view.largest(cx));
        if view.pools > Bytes::ZERO {
            finding.note(format!(
                "The huge page pools ({:#}) are taken off memory before the ratio is applied; huge pages \
                 themselves are not counted in Committed_AS.",
                view.pools
            ));
        }
        if failing_fork.is_some() && !matches!(refusal, Refusal::Cramped) {
            finding.note(
                "A fork is charged for all private writable memory of the parent. Programs that start \
                 others through vfork or posix_spawn (Java, recent glibc) are not charged.",
            );
        }
        if let Some(remedy) = view.raise(cx) {
            finding.remedy(remedy);
        }
        propose_other_mode(&mut finding, cx);
        Ok(vec![finding])
    }
}

/// Nearly all that strict overcommit would allow is promised, and more is available; whether it is strict,
/// the data do not say. In the other modes nothing keeps `Committed_AS` just below the limit.
fn untold(cx: &Context<'_>) -> Option<Finding> {
    let (limit, committed) = (cx.mem(m::CommitLimit).ok()?, cx.mem(m::Committed_AS).ok()?);
    let (available, total) = (cx.mem(m::MemAvailable).ok()?, cx.total().ok()?);
    let cramped = committed <= limit && (limit - committed).share_of(limit) < UNTOLD_ROOM;
    if !cramped || available.share_of(total) < UNTOLD_AVAILABLE {
        return None;
    }
    let mut finding = Finding::new(
        CommitExhaustion::ID,
        Severity::Warning,
        format!(
            "{:#} are left below CommitLimit while {available} are available: if vm.overcommit_memory is 2, allocations fail",
            limit - committed
        ),
        Cost::risk(
            "malloc and fork fail with ENOMEM while memory is free; in modes 0 and 1 this limit means nothing",
        ),
    );
    finding
        .sure(Confidence::Possible)
        .because(cx.saw_mem(m::Committed_AS).against(format!("{limit:#}"), "CommitLimit, in mode 2"))
        .because(cx.saw_mem(m::CommitLimit))
        .because(cx.saw_mem(m::MemAvailable));
    let swap = cx.mem_or_zero(m::SwapTotal);
    if let Ok(ordinary) = cx.total_without_pools()
        && limit > swap
    {
        finding.note(format!(
            "({limit:#} - {swap:#} of swap) / {ordinary:#} of memory = {}: the vm.overcommit_ratio that this limit comes from.",
            Percent((limit - swap).share_of(ordinary))
        ));
    }
    finding.remedy(
        Remedy::new("See whether overcommit is strict")
            .run("sysctl vm.overcommit_memory vm.overcommit_ratio vm.overcommit_kbytes")
            .risk("None: it only reads."),
    );
    Some(finding)
}

/// What is refused, the widest first.
enum Refusal<'a> {
    /// Nearly everything: there is hardly any room below the limit.
    Cramped,
    /// What the limit leaves out of memory and swap, however much room is below it now.
    LowLimit,
    /// A fork of this process, which would be charged this much.
    Fork(&'a Process, Bytes),
}

impl<'a> Refusal<'a> {
    fn of(view: &View, failing_fork: Option<(&'a Process, Bytes)>) -> Option<Refusal<'a>> {
        if view.room().share_of(view.limit) < ROOM {
            return Some(Refusal::Cramped);
        }
        if view.limit + ROUNDING < view.usable.scale(LOW) {
            return Some(Refusal::LowLimit);
        }
        failing_fork.map(|(process, charge)| Refusal::Fork(process, charge))
    }

    fn severity(&self, view: &View) -> Severity {
        match self {
            Refusal::Cramped if view.room().share_of(view.limit) < NO_ROOM => Severity::Critical,
            Refusal::Cramped => Severity::High,
            Refusal::LowLimit if view.limit.share_of(view.usable) < VERY_LOW => Severity::High,
            Refusal::LowLimit | Refusal::Fork(..) => Severity::Warning,
        }
    }

    fn confidence(&self) -> Confidence {
        match self {
            Refusal::Cramped | Refusal::LowLimit => Confidence::Certain,
            Refusal::Fork(process, _) if Workload::of_name(&process.stat.name) == Some(Workload::Redis) => {
                Confidence::Likely
            }
            Refusal::Fork(..) => Confidence::Possible,
        }
    }

    fn title(&self, view: &View) -> String {
        let room = view.room();
        match self {
            Refusal::Cramped => format!(
                "strict overcommit leaves {room:#} below a limit of {:#}: larger requests fail while \
                 {} are available",
                view.limit, view.available
            ),
            Refusal::LowLimit => format!(
                "strict overcommit with a limit of {}, {} of the {} of memory and swap: programs cannot be \
                 promised the other {} ({room} are left)",
                view.limit,
                Percent(view.limit.share_of(view.usable)),
                view.usable,
                view.usable - view.limit
            ),
            Refusal::Fork(process, charge) => format!(
                "{} cannot fork under strict overcommit: it would need {charge:#}, {room:#} are left",
                subject(process)
            ),
        }
    }

    fn cost(&self, view: &View) -> Cost {
        let lost = match self {
            Refusal::Cramped => view.available,
            Refusal::LowLimit => view.usable - view.limit,
            Refusal::Fork(..) => {
                return Cost::risk(
                    "a fork fails with ENOMEM; a save or a command that needs one does not happen",
                );
            }
        };
        Cost::memory(lost, view.total, "is there, for the page cache only: programs are not promised it")
    }
}

fn add_evidence(
    finding: &mut Finding,
    cx: &Context<'_>,
    view: &View,
    failing_fork: Option<(&Process, Bytes)>,
) {
    finding
        .because(cx.saw_sysctl(OVERCOMMIT_MEMORY).against("0 or 1", "the limit applies in mode 2 only"))
        .because(cx.saw_mem(m::CommitLimit).against(
            format!("at least {} of {:#}", Percent(LOW), view.usable),
            "MemTotal without huge page pools, plus SwapTotal",
        ))
        .because(cx.saw_mem(m::Committed_AS).against(
            format!("at most {} of CommitLimit", Percent(1.0 - ROOM)),
            "strict mode keeps back 3 % of each process",
        ))
        .because(cx.saw_mem(m::MemTotal));
    finding.because_if((view.swap > Bytes::ZERO).then(|| cx.saw_mem(m::SwapTotal)));
    if let Some((process, charge)) = failing_fork {
        finding.because(
            Evidence::new("/proc/PID/status", "VmData + VmStk", format!("{charge:#}"))
                .of(subject(process))
                .against(format!("at most {:#}", view.room()), "CommitLimit - Committed_AS"),
        );
    }
}

fn propose_other_mode(finding: &mut Finding, cx: &Context<'_>) {
    let mode = advice::overcommit_memory(cx);
    if mode.value == 2 {
        return;
    }
    finding
        .remedy(
            Remedy::new(format!("Leave strict mode: vm.overcommit_memory = {}", mode.value))
                .sysctl(cx, OVERCOMMIT_MEMORY, mode.value)
                .risk(
                    "Allocations succeed again; if all that is promised is touched, the OOM killer \
                     chooses a process. Bound what may grow by memory cgroups.",
                ),
        )
        .note(format!(
            "How to choose: strict mode where a failed allocation is better than a killed process, \
             and then with a limit that fits; mode {} otherwise ({}). {}",
            mode.value, mode.because, mode.contested
        ));
}

/// Redis forks to save its data, and in mode 0 the kernel may refuse to charge a large mapping once more.
fn fork_of_redis(cx: &Context<'_>, mode: u64) -> Option<Finding> {
    const NAME: &str = OVERCOMMIT_MEMORY;
    let advice = advice::overcommit_memory(cx);
    if mode != 0 || advice.value != 1 {
        return None;
    }
    let mut finding = Finding::new(
        CommitExhaustion::ID,
        Severity::Info,
        "Redis runs with vm.overcommit_memory 0 and asks for 1",
        Cost::risk("a background save or a replica's first copy fails when the kernel refuses the fork"),
    );
    finding
        .sure(Confidence::Possible)
        .because(cx.saw_sysctl(NAME).against("1", "the warning that Redis logs at its start"));
    let servers = cx.processes().unwrap_or_default().iter();
    let redis = servers.filter(|p| Workload::of_name(&p.stat.name) == Some(Workload::Redis));
    let mut remedy = Remedy::new("Let Redis fork whatever its size").sysctl(cx, NAME, 1).risk(
        "No request is refused any more; if all that is promised is touched, the OOM killer chooses a \
         process. Bound what may grow by memory cgroups.",
    );
    if let Some(largest) = redis.max_by_key(|p| p.memory_or_zero(s::VmSize)) {
        finding.because(saw(largest, s::VmSize));
        remedy = applications::told(largest, Topic::Overcommit, remedy);
    }
    finding.remedy(remedy).note(format!("{}. {}", advice.because, advice.contested));
    Some(finding)
}

/// The private writable memory that a fork is charged for, of the process with most of it.
fn largest_forker(processes: &[Process]) -> Option<(&Process, Bytes)> {
    let charge = |p: &Process| match p.memory(s::VmData) {
        Some(data) => data + p.memory_or_zero(s::VmStk),
        None => p.memory_or_zero(s::VmSize),
    };
    let largest = processes.iter().map(|p| (p, charge(p))).max_by_key(|(_, charge)| *charge);
    largest.filter(|(_, charge)| *charge > Bytes::ZERO)
}

/// What the limit is made of and what it leaves.
struct View {
    limit: Bytes,
    committed: Bytes,
    total: Bytes,
    pools: Bytes,
    swap: Bytes,
    /// `total - pools + swap`.
    usable: Bytes,
    available: Bytes,
    /// `vm.overcommit_kbytes` if it is set, else `vm.overcommit_ratio`.
    setting: LimitSetting,
}

impl View {
    fn of(cx: &Context<'_>) -> Result<View, crate::Skip> {
        let (limit, committed) = (cx.mem(m::CommitLimit)?, cx.mem(m::Committed_AS)?);
        let (total, pools, swap) = (cx.total()?, cx.pool_bytes(), cx.mem(m::SwapTotal)?);
        let setting = match cx.sysctl(OVERCOMMIT_KBYTES) {
            Ok(kib) if kib > 0 => LimitSetting::Kbytes(kib),
            _ => LimitSetting::Ratio(cx.sysctl_or_default(OVERCOMMIT_RATIO)?),
        };
        let available = cx.mem(m::MemAvailable).or_else(|_| cx.mem(m::MemFree))?;
        let usable = total - pools + swap;
        Ok(View { limit, committed, total, pools, swap, usable, available, setting })
    }

    /// What may still be promised.
    fn room(&self) -> Bytes {
        self.limit - self.committed
    }

    /// How the limit comes about, checked against what the kernel prints.
    fn arithmetic(&self) -> String {
        let base = self.total - self.pools;
        let pools = match self.pools {
            Bytes::ZERO => String::new(),
            pools => format!(" - {pools:#} huge pages"),
        };
        match self.setting {
            LimitSetting::Kbytes(kib) => format!(
                "CommitLimit = {} kB (vm.overcommit_kbytes) + {:#} swap = {:#}; usable are {:#}{pools} + \
                 {:#} swap = {:#}",
                Grouped(kib),
                self.swap,
                self.limit,
                self.total,
                self.swap,
                self.usable
            ),
            LimitSetting::Ratio(percent) => format!(
                "CommitLimit = ({:#}{pools}) x {percent} % (vm.overcommit_ratio) + {:#} swap = {:#}; \
                 without the ratio it would be {base:#} + {:#} = {:#}, of which {} cannot be promised",
                self.total,
                self.swap,
                self.limit,
                self.swap,
                self.usable,
                self.usable - self.limit
            ),
        }
    }

    /// The largest single request of an ordinary user.
    fn largest(&self, cx: &Context<'_>) -> String {
        let page = cx.now().host.page_size;
        let rules = Rules::of_release(&cx.now().host.kernel.release).unwrap_or(Rules::linux_6_12());
        let rules = rules.overcommit.or(Rules::linux_6_12().overcommit);
        let reserve = cx.sysctl(ADMIN_RESERVE_KBYTES).unwrap_or(0);
        let state = CommitState {
            committed: page.pages(self.committed),
            admin_reserve: page.pages(Bytes::kib(reserve)),
            ..CommitState::default()
        };
        let request = rules.and_then(|rules| {
            largest_request(&rules, Mode::Never, page.pages(self.limit), &state, &Asker::default())
        });
        format!(
            "The largest request that succeeds now for an ordinary user's new process: {:#} - {:#} \
             committed - {} kB vm.admin_reserve_kbytes = {:#}.",
            self.limit,
            self.committed,
            Grouped(reserve),
            page.of(request.unwrap_or(0))
        )
    }

    /// A limit of 80 % of memory outside the pools, plus swap, where that is more than now.
    fn raise(&self, cx: &Context<'_>) -> Option<Remedy> {
        let (wanted, most) = postgres_limit(self.total, self.pools, self.swap);
        if wanted <= self.limit + ROUNDING {
            return None;
        }
        let percent = ratio_for_limit(wanted, self.total, self.pools, self.swap)?;
        let rules = Rules::linux_6_12().overcommit?;
        let page = cx.now().host.page_size;
        let pages = |bytes| page.pages(bytes);
        let then = commit_limit(
            &rules,
            LimitSetting::Ratio(percent),
            pages(self.total),
            pages(self.pools),
            pages(self.swap),
            page,
        );
        let name = OVERCOMMIT_RATIO;
        let mut remedy = Remedy::new(format!("Keep strict mode and raise its limit to {}", page.of(then)));
        remedy = match self.setting {
            LimitSetting::Ratio(_) => remedy.sysctl(cx, name, percent),
            // Writing either zeroes the other, so the undo writes the one that counted.
            LimitSetting::Kbytes(kib) => remedy
                .run(format!("sysctl -w {name}={percent}"))
                .keep(&sysctl_file(cx, name), format!("{name} = {percent}"))
                .undo_with(format!("sysctl -w vm.overcommit_kbytes={kib}"))
                .sets(name, percent),
        };
        remedy = remedies::without_twin(remedy, cx, name);
        Some(remedy.risk(format!(
            "80 % of memory outside the huge page pools plus swap, the lower end of what PostgreSQL's \
             advice allows (up to {most}). Anything that reserves far more than it touches (Java, Go, \
             sanitizers) still fails."
        )))
    }
}
