use lotsfree_formulas::hugepages::hvo_saving;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_settings::HUGETLB_OPTIMIZE_VMEMMAP;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::huge;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// A large huge page pool keeps page descriptors that it does not need.
    ///
    /// # Sees
    /// `vm.hugetlb_optimize_vmemmap` 0 and pools of 64 GiB or more.
    ///
    /// # Hurts
    /// The kernel keeps 64 bytes for each base page, also inside a huge page, where all but the first page
    /// of them say the same: 28 of 32 KiB for each 2 MiB page, 1.37 % of the pool.
    ///
    /// # Remedies
    /// `vm.hugetlb_optimize_vmemmap = 1` for pages allocated afterwards, `hugetlb_free_vmemmap=on` at boot
    /// for all.
    ///
    /// # False alarms
    /// It costs time when pages enter or leave the pool: no gain on hosts that resize it often. Smaller
    /// pools save less than a gigabyte, which is not worth a reboot.
    ///
    /// # References
    /// `Documentation/mm/vmemmap_dedup.rst`; mm/hugetlb_vmemmap.c (6.12).
    pub HvoOff = "hvo-off" in HugePages
}

/// Below this less than a gigabyte is saved.
const LARGE: Bytes = Bytes::gib(64);

impl Rule for HvoOff {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let pools = huge::filled(cx)?;
        let bytes: Bytes = pools.iter().map(HugePool::bytes).sum();
        if bytes < LARGE {
            return Err(Skip::because("no huge page pool of 64 GiB or more"));
        }
        if cx.sysctl(HUGETLB_OPTIMIZE_VMEMMAP)? != 0 {
            return Ok(Vec::new());
        }
        let page = cx.now().host.page_size;
        let saved: Bytes = pools.iter().map(|pool| hvo_saving(pool.size, page).times(pool.total)).sum();
        let total = cx.total()?;
        let title = format!(
            "page descriptors of the huge page pool ({bytes}) take {saved} that the kernel could do without"
        );
        let cost = Cost::memory(saved, total, "of page descriptors that all say the same");
        let mut finding = Finding::new(Self::ID, Severity::Info, title, cost);
        finding.sure(Confidence::Certain).because(
            cx.saw_sysctl(HUGETLB_OPTIMIZE_VMEMMAP).against("1", "Documentation/mm/vmemmap_dedup.rst"),
        );
        for pool in &pools {
            let each = hvo_saving(pool.size, page);
            finding.because_all(huge::saw_pool(cx, pool)).note(format!(
                "{} of {} x {each:#} = {}, {} of them.",
                Grouped(pool.total),
                huge::page_name(pool.size),
                each.times(pool.total),
                Percent(each.share_of(pool.size))
            ));
        }
        finding
            .remedy(
                Remedy::new("Boot with the descriptors of huge pages freed")
                    .keep("kernel command line", "hugetlb_free_vmemmap=on")
                    .risk("Pages enter and leave the pool more slowly.")
                    .restart("the host"),
            )
            .remedy(
                Remedy::new("Free them for pages that are allocated from now on")
                    .sysctl(cx, HUGETLB_OPTIMIZE_VMEMMAP, 1)
                    .risk(
                        "Pages that are in the pool already keep theirs until they are given back and taken \
                         again.",
                    ),
            );
        Ok(vec![finding])
    }
}
