use lotsfree_counters::{meminfo as m, status as s};
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, advice};

rule! {
    /// Page tables take a noticeable part of memory.
    ///
    /// # Sees
    /// `PageTables` in `/proc/meminfo` as a share of `MemTotal` without the huge page pools; with processes readable, `VmPTE`
    /// of each, and how many share the same large mapping.
    ///
    /// # Hurts
    /// Each process that touches a 2 MiB range of shared memory keeps a page table of its own for it: 2 MiB per GiB and
    /// process. 400 sessions on a 34 GiB SGA can need 26 GiB. The tables cannot be swapped or reclaimed, reclaim has to walk
    /// every one of them to evict a shared page, and they push the useful entries out of the CPU caches.
    /// Private memory alone never needs more than 0.2 % (8 bytes for 4096).
    ///
    /// # Remedies
    /// A huge page pool for the shared segments (one table page maps 1 GiB instead of 2 MiB); fewer processes (a connection
    /// pool); for tmpfs-backed memory `shmem_enabled=advise` with `MADV_HUGEPAGE`.
    ///
    /// # False alarms
    /// Transparent huge pages for private memory are not proposed: the kernel keeps a page table in reserve for each, so
    /// they save none (measured: 2,052 kB per GiB with and without).
    ///
    /// # References
    /// `Documentation/admin-guide/mm/hugetlbpage.rst`; Oracle MOS 361323.1; measured: 1 GiB attached by 20 processes takes
    /// 42,460 kB of page tables with 4 KiB pages and 1,612 kB with 2 MiB pages.
    pub PagetableBloat = "pagetable-bloat" in HugePages
}

/// Above the 0.2 % that private memory can need, with room for libraries that everybody maps (memstate warns here too).
const WARN: f64 = 0.02;
/// Half of what the two systems of the Oracle article lost.
const HIGH: f64 = 0.05;
/// What those two systems lost: 9.7 % and 9.1 %.
const CRITICAL: f64 = 0.09;
/// Page tables that a process keeps for its own code, heap and stack when shared memory is in huge pages (measured, 6.18).
const OWN_TABLES: Bytes = Bytes::kib(80);
/// One PMD entry of 8 bytes replaces a page table of 4096.
const ENTRIES_PER_TABLE: u64 = 512;

impl Rule for PagetableBloat {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let tables = cx.mem(m::PageTables)?;
        let ordinary = cx.total_without_pools()?;
        let share = tables.share_of(ordinary);
        if share < WARN {
            return Ok(Vec::new());
        }
        let severity = match share {
            s if s >= CRITICAL => Severity::Critical,
            s if s >= HIGH => Severity::High,
            _ => Severity::Warning,
        };
        let total = cx.total()?;
        let pool = cx.pool_bytes();
        let have = if pool == Bytes::ZERO { "there are no huge pages".to_owned() } else { format!("the huge page pool holds {pool}") };
        let sharers = cx.processes().map(|processes| {
            processes.iter().filter(|p| p.memory_or_zero(s::VmPTE) > OWN_TABLES.times(2)).count() as u64
        });
        let remaining = Bytes(tables.0 / ENTRIES_PER_TABLE) + OWN_TABLES.times(sharers.clone().unwrap_or(0));
        let saved = tables - remaining;
        let arithmetic = match sharers {
            Ok(n) => format!(
                "{tables:#} / {ENTRIES_PER_TABLE} = {:#} of PMD entries, plus {n} processes x {OWN_TABLES:#} for their own code, heap \
                 and stack: 2 MiB pages would free {tables:#} - {remaining:#} = {saved:#} ({saved})",
                Bytes(tables.0 / ENTRIES_PER_TABLE)
            ),
            Err(_) => format!(
                "{tables:#} / {ENTRIES_PER_TABLE} = {remaining:#} of PMD entries: 2 MiB pages would free up to {tables:#} - {remaining:#} = \
                 {saved:#} ({saved}), less some {OWN_TABLES:#} per process for its own code, heap and stack"
            ),
        };
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!("page tables take {tables:#}, {} of memory, and {have}", Percent(share)),
            Cost::memory(saved, total, "2 MiB pages would free it"),
        )
        .sure(Confidence::Likely)
        .because(cx.saw_mem(m::PageTables).against(format!("at least {} of memory", Percent(WARN)), "private memory needs 0.2 % at most"))
        .because(cx.saw_mem(m::MemTotal));
        if cx.mem_count(m::HugePages_Total).is_ok() {
            finding = finding.because(cx.saw_mem(m::HugePages_Total));
        }
        let mut largest: Vec<_> = cx.processes().unwrap_or_default().iter().collect();
        largest.sort_by_key(|p| std::cmp::Reverse(p.memory_or_zero(s::VmPTE)));
        for process in largest.iter().take(3).filter(|p| p.memory_or_zero(s::VmPTE) > OWN_TABLES) {
            finding = finding.because(
                Evidence::new("/proc/PID/status", "VmPTE", format!("{:#}", process.memory_or_zero(s::VmPTE)))
                    .of(format!("pid {} {}", process.stat.pid, process.stat.name)),
            );
        }
        // Tables of 4 KiB pages hold 1/512 of what they map.
        let times = tables.as_f64() * ENTRIES_PER_TABLE as f64 / ordinary.as_f64();
        finding = finding
            .note(arithmetic)
            .note(format!("The tables could map all ordinary memory {times:.0} times: the same pages are mapped by many processes."));
        let pooled = Remedy::new("Put the shared segments into a huge page pool")
            .run("lotsfree size hugepages --from-host")
            .keep(crate::remedy::SYSCTL_FILE, "vm.nr_hugepages = (the figure that lotsfree size prints)")
            .risk("The pool is lost to everything else at once; too large a pool makes the host swap.")
            .restart("the database, with memlock at least as large as its segment")
            .sets("vm.nr_hugepages", "sized");
        finding = match advice::huge_pool_allowed(cx) {
            Ok(()) => finding.remedy(pooled),
            Err(why) => finding.note(format!("A huge page pool is not proposed: {why}.")),
        };
        finding = finding.remedy(
            Remedy::new("Let fewer processes map the segment (a connection pool, shared server)")
                .risk("An application change; page tables shrink in proportion to the sessions."),
        );
        Ok(vec![finding])
    }
}
