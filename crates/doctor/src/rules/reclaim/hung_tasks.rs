use lotsfree_kernel_files::file::kernel_log::hung::{HungTask, Wait};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, hung};

rule! {
    /// The kernel says that tasks stood still for minutes, or that one held a CPU.
    ///
    /// # Sees
    /// `INFO: task … blocked for more than 120 seconds` and `BUG: soft lockup` in the kernel's log, and the
    /// functions of their call traces: reclaim, compaction, the limit of dirty pages, swap, a disk, NFS, the
    /// lock of an address space.
    ///
    /// # Hurts
    /// Who waits in reclaim or compaction waits while memory may be free, and keeps the locks that it
    /// holds: whole hosts seem frozen, and clusters take nodes for dead.
    ///
    /// # Remedies
    /// By what they waited for: watermarks that wake kswapd earlier, huge pages without waiting, bytes in
    /// place of shares for dirty pages; where it was a disk or a server, that.
    ///
    /// # False alarms
    /// A trace shows one moment of the wait. Tasks that wait for a lock are held up by another one, whose
    /// trace counts.
    ///
    /// # References
    /// `kernel/hung_task.c:check_hung_task`, `kernel/watchdog.c:watchdog_timer_fn` (6.12);
    /// `Documentation/admin-guide/lockup-watchdogs.rst`.
    pub HungTasks = "hung-tasks" in Reclaim
}

/// Tasks that are shown as evidence.
const SHOWN: usize = 3;

impl Rule for HungTasks {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let log = cx.kernel_log()?;
        let (still, stuck): (Vec<&HungTask>, Vec<&HungTask>) = log.hung.iter().partition(|task| !task.stuck);
        let stood = hung::common(&still).map(|wait| stood_still(wait, &still));
        let unknown = (stood.is_none() && !still.is_empty()).then(|| untold(&still));
        let held = stuck.iter().rfind(|task| in_memory_management(task)).map(|task| held_a_cpu(task));
        Ok([stood, unknown, held].into_iter().flatten().collect())
    }
}

/// Whether a task that holds a CPU reclaims or compacts.
fn in_memory_management(task: &HungTask) -> bool {
    let thread = ["kswapd", "kcompactd", "khugepaged"].iter().any(|name| task.name.starts_with(name));
    thread || matches!(task.wait(), Some(Wait::Reclaim | Wait::Compaction))
}

fn finding(
    severity: Severity,
    confidence: Confidence,
    title: String,
    harm: &str,
    tasks: &[&HungTask],
) -> Finding {
    let mut finding = Finding::new(HungTasks::ID, severity, title, Cost::risk(harm));
    finding.sure(confidence);
    for task in tasks.iter().rev().take(SHOWN) {
        let functions: Vec<&str> = task.told().take(3).collect();
        let what = match task.stuck {
            true => format!("held a CPU for {} s", task.seconds),
            false => format!("stood still for more than {} s", task.seconds),
        };
        let functions = match functions.is_empty() {
            true => String::new(),
            false => format!(", in {}", functions.join(", ")),
        };
        finding.because(Evidence::new("kernel log", &task.name, format!("{what}{functions}")));
    }
    finding
}

fn stood_still(wait: Wait, still: &[&HungTask]) -> Finding {
    let tasks: Vec<&HungTask> = still.iter().copied().filter(|task| task.wait() == Some(wait)).collect();
    let who = hung::who(&tasks);
    let harm = "whoever waits for them waits too: sessions hang, and a cluster may take the host for dead";
    let high = |title: String| finding(Severity::High, Confidence::Likely, title, harm, &tasks);
    let warning = |title: String| finding(Severity::Warning, Confidence::Likely, title, harm, &tasks);
    match wait {
        Wait::Reclaim => {
            let mut finding =
                high(format!("{who} in direct reclaim: kswapd did not keep up, or found nothing to free"));
            finding
                .remedy(
                    Remedy::new("See whether cache, dirty pages or programs fill memory")
                        .run("lotsfree doctor --interval 10")
                        .risk("None: it only reads."),
                )
                .note(
                    "Where available memory is near zero they wait because nothing is left to reclaim: see what \
                     grew. Where much is available, wider watermarks (vm.watermark_scale_factor) wake kswapd \
                     earlier.",
                );
            finding
        }
        Wait::Compaction => {
            let mut finding = high(format!("{who} in compaction, for a block of several pages"));
            finding
                .remedy(
                    Remedy::new("Let page faults not wait for huge pages")
                        .run("cat /sys/kernel/mm/transparent_hugepage/defrag")
                        .sysfs("/sys/kernel/mm/transparent_hugepage/defrag", "defer+madvise", None)
                        .undo_with("echo madvise > /sys/kernel/mm/transparent_hugepage/defrag")
                        .risk("Programs get huge pages later, from khugepaged."),
                )
                .note("Undo with the value that the first command printed.");
            finding
        }
        Wait::GroupLimit => {
            let mut finding =
                high(format!("{who} at the limit of a control group, in which nothing is killed"));
            finding.remedy(
                Remedy::new("See the group, its limit and whether its OOM killer is off")
                    .run("cat /sys/fs/cgroup/memory/GROUP/memory.oom_control /sys/fs/cgroup/GROUP/memory.events")
                    .risk("None: it only reads."),
            );
            finding
        }
        Wait::DirtyPages => {
            let mut finding = high(format!(
                "{who} because too many dirty pages wait to be written: the disk is slower than the writers"
            ));
            finding
                .remedy(
                    Remedy::new("Bound what may wait to be written by what the disk writes in a few seconds")
                        .run("grep -E 'Dirty|Writeback:' /proc/meminfo; sysctl vm.dirty_ratio vm.dirty_background_ratio")
                        .run("sysctl -w vm.dirty_background_bytes=268435456 vm.dirty_bytes=1073741824")
                        .keep("/etc/sysctl.d/90-lotsfree.conf", "vm.dirty_background_bytes = 268435456")
                        .keep("/etc/sysctl.d/90-lotsfree.conf", "vm.dirty_bytes = 1073741824")
                        .undo_with("sysctl -w vm.dirty_background_ratio=10 vm.dirty_ratio=20  # or what was there")
                        .risk("Bursts of writing wait earlier and shorter. The values are for a disk of some 250 MB/s."),
                );
            finding
        }
        Wait::SwapIn => {
            let mut finding = high(format!("{who}, waiting for pages to come back from swap"));
            finding
                .remedy(
                    Remedy::new("See who is swapped out, and what took the memory")
                        .run("lotsfree doctor --interval 10")
                        .risk("None: it only reads."),
                )
                .note("The device of swap is too slow for what is swapped: programs and cache together exceed memory.");
            finding
        }
        Wait::Nfs => {
            let mut finding = warning(format!("{who}, waiting for an NFS server, which is not memory"));
            finding.remedy(
                Remedy::new("Look at the server and the network")
                    .run("nfsstat -c; cat /proc/self/mountstats")
                    .risk("None: it only reads."),
            );
            finding
        }
        Wait::Disk => {
            let mut finding =
                warning(format!("{who}, waiting for a disk or its file system, which is not memory"));
            finding
                .remedy(
                    Remedy::new("Look at the disk, and at what waits to be written")
                        .run("iostat -x 1 5; dmesg -T | grep -iE 'I/O error|timeout|reset'")
                        .run("grep -E 'Dirty|Writeback:' /proc/meminfo")
                        .risk("None: it only reads."),
                )
                .note(
                    "Gigabytes of dirty pages keep a slow disk busy for minutes, and its journal with it: then \
                     vm.dirty_bytes and vm.dirty_background_bytes bound them.",
                );
            finding
        }
        Wait::MmapLock => {
            let mut finding =
                warning(format!("{who}, waiting for the lock of an address space, which another task holds"));
            finding.note(
                "Who holds it is in no trace here: often a thread of the same process that reclaims, reads a page \
                 back, or walks a large mapping.",
            );
            finding
        }
    }
}

fn untold(still: &[&HungTask]) -> Finding {
    let mut finding = finding(
        Severity::Warning,
        Confidence::Possible,
        format!("{}; these lines do not say what for", hung::who(still)),
        "whoever waits for them waits too",
        still,
    );
    finding.remedy(
        Remedy::new("Have the kernel print what blocked tasks wait for, while it lasts")
            .run("echo w > /proc/sysrq-trigger; dmesg -T | tail -n 500 | lotsfree doctor -")
            .risk("It only prints, but slowly where the console is a serial line."),
    );
    finding
}

fn held_a_cpu(task: &HungTask) -> Finding {
    let mut finding = finding(
        Severity::High,
        Confidence::Likely,
        format!(
            "{} held a CPU for {} s without a pause: the kernel reclaims or compacts in a loop",
            task.name, task.seconds
        ),
        "what else is to run on that CPU waits, also what is bound to it",
        &[task],
    );
    finding.note(
        "No setting should lead there: look whether this release of the kernel has a known defect of reclaim or \
         compaction, or whether millions of objects have to be shrunk at once.",
    );
    finding
}
