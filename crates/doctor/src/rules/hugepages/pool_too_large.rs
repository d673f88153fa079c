use lotsfree_formulas::hugepages::POOL_MAX_PERCENT;
use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_units::{Bytes, Percent};

use crate::huge;
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
};

rule! {
    /// The huge page pool leaves the rest of the host too little memory.
    ///
    /// # Sees
    /// All pools together above 70 % of memory; or a pool of a quarter of memory and more on a host that
    /// has less than 5 % of memory left outside it: free memory plus page cache (without shared memory)
    /// plus reclaimable slab, less what was swapped out. Where two samples show that nothing is swapped
    /// out, old swap use does not count.
    ///
    /// # Hurts
    /// Whatever is in the pool cannot be taken back: processes, page tables, kernel and page cache have to
    /// live with the rest, and the kernel swaps and kills there while the pool is idle or not. Oracle then
    /// reports ORA-00445 (a process did not start in 120 s), its console "significant virtual memory
    /// paging".
    ///
    /// # Remedies
    /// Give spare pages back; if all are promised, make the segments (SGAs) smaller, then the pool.
    ///
    /// # False alarms
    /// Hosts that run nothing but virtual machines or DPDK have 85 to 95 % in the pool on purpose: they are
    /// left alone as long as the rest has room. Swap that is used and not moving is old cold memory.
    ///
    /// # References
    /// Oracle 19c installation guide (at most 70 % of memory); R. Egner, "MEMORY_TARGET (SGA_TARGET) or
    /// HugePages" (2010), comments 13 and 14.
    pub PoolTooLarge = "pool-too-large" in HugePages
}

/// Oracle's bound.
const MOST: f64 = POOL_MAX_PERCENT as f64 / 100.0;
/// What should be left beside what is needed: page cache and bursts.
const ROOM: f64 = 0.05;
/// A smaller pool is not what makes the host short.
const BLAME: f64 = 0.25;

/// What the host has outside its pools.
struct Rest {
    /// `MemTotal` less the pools.
    all: Bytes,
    /// Free, cache and reclaimable slab.
    available: Bytes,
    /// Memory that is in swap and would have to come back.
    swapped: Bytes,
    /// Pages per second on their way to swap, where two samples show it.
    swapping: Option<f64>,
}

impl Rest {
    fn of(cx: &Context<'_>, pool: Bytes) -> Result<Rest, Skip> {
        let cache = cx.mem(m::Cached)? + cx.mem_or_zero(m::Buffers) - cx.mem_or_zero(m::Shmem);
        let swapping = cx.rate(&[v::pswpout]).ok().map(|rate| rate.per_second);
        let swapped =
            cx.mem_or_zero(m::SwapTotal) - cx.mem_or_zero(m::SwapFree) - cx.mem_or_zero(m::SwapCached);
        Ok(Rest {
            all: cx.total()? - pool,
            available: cx.mem(m::MemFree)? + cache + cx.mem_or_zero(m::SReclaimable),
            swapped: if swapping == Some(0.0) { Bytes::ZERO } else { swapped },
            swapping,
        })
    }

    /// What is left when all that was swapped out comes back.
    fn room(&self) -> Bytes {
        self.available - self.swapped
    }
}

impl Rule for PoolTooLarge {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let pools = huge::filled(cx)?;
        if pools.is_empty() {
            return Err(Skip::because("no huge page pool"));
        }
        let total = cx.total()?;
        let bytes: Bytes = pools.iter().map(HugePool::bytes).sum();
        let share = bytes.share_of(total);
        let rest = Rest::of(cx, bytes)?;
        let short = share >= BLAME && rest.room() < total.scale(ROOM);
        let dedicated = [Workload::Kvm, Workload::Dpdk].into_iter().find(|w| cx.runs(*w));
        match dedicated {
            Some(workload) if share > MOST && !short => {
                return Err(Skip::because(format!(
                    "{} has its memory in the pool on purpose, and the rest has {} left",
                    workload.name(),
                    rest.room()
                )));
            }
            _ if share <= MOST && !short => return Ok(Vec::new()),
            _ => {}
        }
        let swapping = rest.swapping.is_some_and(|rate| rate > 0.0);
        let severity = if short && swapping { Severity::High } else { Severity::Warning };
        let used = rest.all - rest.available;
        let title = format!(
            "the huge page pool takes {} of memory and leaves {} for everything else, which has {} left",
            Percent(share),
            rest.all,
            rest.room()
        );
        let mut finding = Finding::new(Self::ID, severity, title, cost(&rest, total, short));
        finding
            .sure(if short && swapping { Confidence::Likely } else { Confidence::Possible })
            .because(
                Evidence::new("/proc/meminfo", "all pools / MemTotal", Percent(share))
                    .against(format!("at most {POOL_MAX_PERCENT} %"), "Oracle 19c installation guide"),
            )
            .because(
                Evidence::new("/proc/meminfo", "MemFree + cache + SReclaimable - swapped out", rest.room())
                    .against(format!("at least {}", total.scale(ROOM)), "5 % of memory for cache and bursts"),
            );
        for pool in &pools {
            finding.because_all(huge::saw_pool(cx, pool));
        }
        finding.because_if(cx.rate(&[v::pswpout]).ok().map(|rate| cx.saw_rate(&[v::pswpout], &rate)));
        finding.note(format!(
            "{total} - {bytes} = {}; of it {used} are used by processes and kernel, {} are free or cache, \
             and {} more are in swap.",
            rest.all, rest.available, rest.swapped
        ));
        add_remedies(&mut finding, cx, &pools, bytes);
        if let Some(workload) = dedicated {
            finding.note(format!(
                "{} runs: large pools are usual there, but not without room.",
                workload.name()
            ));
        }
        let spare: u64 = pools.iter().map(HugePool::idle).sum();
        finding.note(format!(
            "{} spare. While a pool grows on a running host it swaps to find whole blocks: if the paging \
             began then, allocate the pool at boot.",
            huge::count(spare)
        ));
        Ok(vec![finding])
    }
}

fn cost(rest: &Rest, total: Bytes, short: bool) -> Cost {
    if short {
        let missing = total.scale(ROOM) - rest.room();
        Cost::memory(missing, total, "missing outside the pool for 5 % of room")
    } else {
        Cost::risk(format!("processes, kernel and page cache share {}", rest.all))
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, pools: &[HugePool], bytes: Bytes) {
    for pool in pools.iter().filter(|pool| pool.idle() > 0) {
        let advice = advice::nr_hugepages(cx);
        let pages = match advice {
            Ok(advice) if huge::default_size(cx) == Ok(pool.size) => advice.value,
            _ => huge::promised(pool),
        };
        if pages < pool.total {
            let title = format!("Give back {}", huge::count(pool.total - pages));
            finding.remedy(
                huge::resize(cx, pool, pages, title).risk("Only free pages that nobody was promised go."),
            );
        }
    }
    let promised: Bytes = pools.iter().map(|pool| pool.size.times(huge::promised(pool))).sum();
    finding.remedy(
        Remedy::new("Make the segments smaller (Oracle: sga_max_size, sga_target), then the pool")
            .risk("The database caches less and reads more from disk.")
            .restart("the database"),
    );
    finding.note(format!(
        "{promised} of the pool are used or promised{}.",
        if promised >= bytes.scale(0.98) {
            ": the pool fits its segments, it is these that are too large for the host"
        } else {
            ""
        }
    ));
}
