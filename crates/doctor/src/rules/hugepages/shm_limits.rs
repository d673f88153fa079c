use std::collections::BTreeMap;

use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_settings::{SHMALL, SHMMAX, SHMMNI};
use lotsfree_units::{Bytes, Grouped};

use crate::huge;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload};

rule! {
    /// The limits on System V shared memory are used up, or cut a database's segment into pieces.
    ///
    /// # Sees
    /// `kernel.shmall` (in pages) against the sum of all segments and, where Oracle has a pool, against the
    /// pool; `kernel.shmmax` against several segments of one owner that are as large as it; `kernel.shmmni`
    /// against the number of segments and against what SAP asks for.
    ///
    /// # Hurts
    /// At the limit `shmget` fails (ENOSPC, EINVAL) and an instance does not start (Oracle: ORA-27102,
    /// ORA-27123). A `shmmax` below the SGA makes Oracle split it over several segments, which no longer
    /// fit one node or one run of huge pages.
    ///
    /// # Remedies
    /// Raise them: they only bound what may be asked for and cost nothing by themselves.
    ///
    /// # False alarms
    /// `shmall` counts pages of the base size, not bytes. Kernels from 3.16 on have both so high that they
    /// never matter, unless a file sets them lower.
    ///
    /// # References
    /// ipc/shm.c:newseg (6.12); SAP (`kernel.shmmni` 32768); Oracle Database installation
    /// guide (shmall, shmmax).
    pub ShmLimits = "shm-limits" in HugePages
}

/// From this share of a limit on one more instance is likely to hit it.
const NEAR: f64 = 0.9;
/// SAP's value for hosts of SAP HANA and NetWeaver.
const SAP_SHMMNI: u64 = 32_768;
/// Smaller segments are no cut SGA.
const WORTH_SPLITTING: Bytes = Bytes::gib(1);
/// A segment this close to shmmax was cut there (Oracle rounds down to its granule, at most 512 MiB).
const CUT: f64 = 0.9;

impl Rule for ShmLimits {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let shmmax = cx.sysctl(SHMMAX)?;
        let shmall = cx.sysctl(SHMALL)?;
        let shm = cx.shm()?;
        let mut findings = Vec::new();
        let page = cx.now().host.page_size;
        let limit = page.of(shmall);
        let sum: Bytes = shm.iter().map(|segment| page.of(segment.size.units_of(page.bytes()))).sum();
        let pools: Bytes = huge::filled(cx).unwrap_or_default().iter().map(HugePool::bytes).sum();
        let oracle = cx.runs(Workload::Oracle);
        if sum > limit.scale(NEAR) && sum > Bytes::ZERO {
            findings.push(total(cx, sum, limit, "of which all segments together take"));
        } else if oracle && pools > limit {
            findings.push(total(cx, pools, limit, "but the huge page pool has"));
        }
        let mut cut: BTreeMap<u32, Vec<Bytes>> = BTreeMap::new();
        for segment in shm.iter().filter(|s| s.nattch > 0 && s.size >= WORTH_SPLITTING) {
            if segment.size > Bytes(shmmax).scale(CUT) {
                cut.entry(segment.uid).or_default().push(segment.size);
            }
        }
        findings.extend(
            cut.iter()
                .filter(|(_, sizes)| sizes.len() > 1)
                .map(|(uid, sizes)| split(cx, *uid, sizes, shmmax)),
        );
        findings.extend(number(cx, shm.len() as u64));
        Ok(findings)
    }
}

fn total(cx: &Context<'_>, sum: Bytes, limit: Bytes, what: &str) -> Finding {
    let page = cx.now().host.page_size;
    // Room for a second set of segments, for a restart beside the old ones.
    let wanted = page.pages(sum).saturating_mul(2);
    let mut finding = Finding::new(
        ShmLimits::ID,
        if sum > limit { Severity::High } else { Severity::Warning },
        format!("kernel.shmall allows {limit} of shared memory, {what} {sum}"),
        Cost::risk("the next shmget fails with ENOSPC and an instance does not start"),
    );
    finding
        .sure(Confidence::Likely)
        .because(cx.saw_sysctl(SHMALL).against(
            format!("at least {} pages of {}", Grouped(page.pages(sum)), page.bytes()),
            "ipc/shm.c:newseg",
        ))
        .because(Evidence::new("/proc/sysvipc/shm", "size, sum", format!("{} ({} B)", sum, Grouped(sum.0))))
        .remedy(
            Remedy::new("Raise kernel.shmall")
                .sysctl(cx, SHMALL, wanted)
                .risk("None by itself: it bounds what may be asked for, not what is used."),
        )
        .note("kernel.shmall counts base pages, kernel.shmmax bytes.");
    finding
}

fn split(cx: &Context<'_>, uid: u32, sizes: &[Bytes], shmmax: u64) -> Finding {
    let sum: Bytes = sizes.iter().copied().sum();
    let mut finding = Finding::new(
        ShmLimits::ID,
        Severity::Warning,
        format!(
            "kernel.shmmax ({}) splits {sum} of shared memory of uid {uid} over {} segments",
            Bytes(shmmax),
            sizes.len()
        ),
        Cost::risk(
            "each segment is placed and reserved by itself; part of an SGA may be in base pages or on \
             another node",
        ),
    );
    finding
        .sure(Confidence::Possible)
        .because(
            cx.saw_sysctl(SHMMAX)
                .against(format!("at least {} B", Grouped(sum.0)), "the size of the whole SGA"),
        )
        .because_all(
            sizes.iter().take(4).map(|size| {
                Evidence::new("/proc/sysvipc/shm", "size", Grouped(size.0)).of(format!("uid {uid}"))
            }),
        )
        .remedy(
            Remedy::new("Raise kernel.shmmax to the size of the whole SGA")
                .sysctl(cx, SHMMAX, sum.0)
                .risk("None by itself.")
                .restart("the instance, whose segments stay as they are until then"),
        )
        .note("Two instances of one owner that both happen to be as large as shmmax look the same.");
    finding
}

fn number(cx: &Context<'_>, segments: u64) -> Option<Finding> {
    let shmmni = cx.sysctl(SHMMNI).ok()?;
    let sap = cx.runs(Workload::Sap) || cx.runs(Workload::Hana);
    let near = segments as f64 > shmmni as f64 * NEAR;
    let below = sap && shmmni < SAP_SHMMNI;
    if !near && !below {
        return None;
    }
    let (severity, title) = if near {
        (
            Severity::High,
            format!("{} of at most {} shared memory segments exist", Grouped(segments), Grouped(shmmni)),
        )
    } else {
        (
            Severity::Info,
            format!("kernel.shmmni is {}, SAP asks for {}", Grouped(shmmni), Grouped(SAP_SHMMNI)),
        )
    };
    let mut finding =
        Finding::new(ShmLimits::ID, severity, title, Cost::risk("at the limit shmget fails with ENOSPC"));
    finding
        .sure(Confidence::Certain)
        .because(
            cx.saw_sysctl(SHMMNI).against(format!("at least {}", Grouped(SAP_SHMMNI)), "what SAP asks for"),
        )
        .because(Evidence::new("/proc/sysvipc/shm", "segments", Grouped(segments)))
        .remedy(
            Remedy::new("Raise kernel.shmmni")
                .sysctl(cx, SHMMNI, SAP_SHMMNI.max(shmmni))
                .risk("None; the kernel allows 32768 unless booted with ipcmni_extend."),
        );
    Some(finding)
}
