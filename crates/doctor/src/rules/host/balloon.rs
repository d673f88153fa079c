use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::{ALLOCSTALL, Confidence, Context, Cost, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// The hypervisor has taken memory back from this guest.
    ///
    /// # Sees
    /// `Balloon` in `/proc/meminfo` (6.16 and later), `balloon_inflate` less `balloon_deflate` in
    /// `/proc/vmstat` (3.18 and later), and `MemTotal` changing between samples: some drivers make the
    /// guest's memory smaller instead of counting it as used.
    ///
    /// # Hurts
    /// The balloon's pages belong to the host. The guest drops its page cache to fill it, then swaps, while
    /// nothing inside the guest has grown: the database's memory is pushed out by a neighbour on the same
    /// machine. Sizes that were right for the configured memory (huge pages, caches) are too large for what
    /// is left.
    ///
    /// # Remedies
    /// On the hypervisor: reserve the memory of database guests, or stop overcommitting. In the guest nothing
    /// helps: without the balloon driver the hypervisor swaps the guest itself, which is slower.
    ///
    /// # False alarms
    /// A balloon that has been given back leaves its counters equal. Free page reporting hands free pages to
    /// the host without a balloon and takes nothing away. Memory that was added or removed on purpose changes
    /// `MemTotal` as well.
    ///
    /// # References
    /// mm/balloon_compaction.c:balloon_page_enqueue,
    /// drivers/virtio/virtio_balloon.c:adjust_managed_page_count (6.12); VMware, "Understanding Memory
    /// Resource Management" (ballooning); SAP HANA on VMware best practices (memory reservation). Measured:
    /// `MemTotal` of a cloud guest moved from 24.7 to 11.8 GB and back within minutes.
    pub Balloon = "balloon" in Host
}

/// Below this the guest does not notice.
const NOTICEABLE: f64 = 0.01;
/// MemTotal moves by less when a driver keeps a few pages.
const MOVED: f64 = 0.01;

impl Rule for Balloon {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let gauge = cx.mem(m::Balloon).ok();
        // The driver's own file says nothing of the rest.
        let total = match (cx.total(), gauge) {
            (Ok(total), _) => total,
            (Err(_), Some(gauge)) => gauge,
            (Err(skip), None) => return Err(skip),
        };
        let inflated = cx.vm(v::balloon_inflate).ok();
        let deflated = cx.vm(v::balloon_deflate).ok();
        let counted =
            inflated.zip(deflated).map(|(inflated, deflated)| cx.pages(inflated.saturating_sub(deflated)));
        let trend = cx.trend(m::MemTotal).ok();
        let lost = trend.map(|trend| Bytes((trend.most - trend.last) as u64)).unwrap_or_default();
        let moved = lost.share_of(total + lost) >= MOVED;
        let Some(held) = gauge.or(counted) else {
            if !moved {
                return Err(Skip::missing("/proc/meminfo Balloon, /proc/vmstat balloon_inflate"));
            }
            return Ok(vec![finding(cx, Bytes::ZERO, lost, total, false)]);
        };
        let growing = cx.rate(&[v::balloon_inflate]).is_ok_and(|inflate| {
            let deflate = cx.rate(&[v::balloon_deflate]).map_or(0, |rate| rate.total);
            inflate.total > deflate
        });
        if held == Bytes::ZERO && !moved {
            return Ok(Vec::new());
        }
        Ok(vec![finding(cx, held, if moved { lost } else { Bytes::ZERO }, total, growing)])
    }
}

fn finding(cx: &Context<'_>, held: Bytes, lost: Bytes, total: Bytes, growing: bool) -> Finding {
    // A balloon that makes MemTotal smaller is both; the larger figure holds it once.
    let taken = held.max(lost);
    let configured = total + lost;
    let share = taken.share_of(configured);
    let swapping = cx.rate(&[v::pswpout]).ok().filter(|rate| rate.total > 0);
    let reclaiming = cx.rate(ALLOCSTALL).ok().filter(|rate| rate.total > 0);
    let suffers = swapping.is_some() || reclaiming.is_some();
    let severity = Severity::ladder(
        &[(share < NOTICEABLE, Severity::Info), (suffers, Severity::High)],
        Severity::Warning,
    );
    let title = match (held > Bytes::ZERO, lost > Bytes::ZERO) {
        (true, _) => format!(
            "the hypervisor holds {held} of this guest's memory in its balloon{}",
            if growing { ", and the balloon grows" } else { "" }
        ),
        (false, _) => format!("MemTotal fell by {lost} ({}) while it was watched", Percent(share)),
    };
    let text = match suffers {
        true => "while it is gone the guest reclaims or swaps",
        false => "page cache and caches of programs have that much less",
    };
    let cost = match cx.total() {
        Ok(_) => Cost::memory(taken, configured, text),
        Err(_) => Cost::risk(text),
    };
    let mut finding = Finding::new(Balloon::ID, severity, title, cost);
    finding
        // Only the drivers' own counters say that it is a balloon.
        .sure(if held > Bytes::ZERO { Confidence::Certain } else { Confidence::Likely })
        .because_if(cx.total().is_ok().then(|| cx.saw_mem(m::MemTotal)));
    if cx.mem(m::Balloon).is_ok() {
        finding.because(cx.saw_mem(m::Balloon).against("0 kB", "a guest with its memory reserved"));
    }
    if cx.vm(v::balloon_inflate).is_ok() {
        finding.because(cx.saw_vm(v::balloon_inflate)).because(cx.saw_vm(v::balloon_deflate));
    }
    if lost > Bytes::ZERO {
        let seen = cx
            .saw_mem(m::MemTotal)
            .was(format!("{configured:#}"))
            .against("constant", "a guest with its memory reserved");
        finding.because(seen);
    }
    finding.because_if(swapping.as_ref().map(|rate| cx.saw_rate(&[v::pswpout], rate)));
    finding.because_if(reclaiming.as_ref().map(|rate| cx.saw_rate(ALLOCSTALL, rate)));
    if cx.vm(v::balloon_inflate).is_ok() {
        finding.note(
            "balloon_inflate - balloon_deflate pages are in the balloon now; the two alone only say that it has been used since boot.",
        );
    }
    finding
        .remedy(
            Remedy::new("On the hypervisor, reserve this guest's memory")
                .run("virsh setmem DOMAIN SIZE --live")
                .keep("the virtual machine's settings", "KVM: <memory> and <currentMemory> equal; VMware: reserve all guest memory; Hyper-V: no dynamic memory")
                .risk("Fewer guests fit on the machine, which is the point: their memory is really there."),
        )
        .note(
            "Do not unload the balloon driver: the hypervisor would swap the guest's memory itself, without \
             knowing what is page cache. Until it is mended, size huge pages and caches by the smallest \
             MemTotal that was seen.",
        );
    finding
}
