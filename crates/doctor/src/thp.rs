//! Transparent huge pages: the mode that is in force, and remedies that change settings.

use lotsfree_kernel_files::counters::smaps_rollup as r;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::Bytes;

use crate::finding::subject;
use crate::{Context, Evidence, Remedy, Skip, advice};

/// Directory of all settings of transparent huge pages.
pub(crate) const ROOT: &str = "/sys/kernel/mm/transparent_hugepage";

/// Value of `enabled` for huge pages of PMD size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mode<'a> {
    /// `always`, `madvise` or `never`.
    pub(crate) word: &'a str,
    /// The file that decides it. From 6.8 on each size has its own, which overrides the common one unless it
    /// says `inherit` (`Documentation/admin-guide/mm/transhuge.rst`).
    pub(crate) file: String,
}

/// The mode in force.
///
/// # Errors
/// [`Skip::Unknown`] if the files were not read or nothing is selected in them.
pub(crate) fn mode<'a>(cx: &Context<'a>) -> Result<Mode<'a>, Skip> {
    let thp = cx.thp()?;
    let size = huge_size(cx);
    let own = thp.sizes.iter().find(|own| own.size == size);
    let own = own.filter(|own| !matches!(&*own.enabled.selected, "" | "inherit"));
    let (choice, file) = match own {
        Some(own) => (&own.enabled, format!("{ROOT}/hugepages-{}kB/enabled", size.as_kib())),
        None => (&thp.enabled, format!("{ROOT}/enabled")),
    };
    match &*choice.selected {
        "" => Err(Skip::missing(file)),
        word => Ok(Mode { word, file }),
    }
}

/// Bytes of one huge page of PMD size: 2 MiB where pages are 4 KiB.
pub(crate) fn huge_size(cx: &Context<'_>) -> Bytes {
    let said = cx.thp().ok().and_then(|thp| thp.pmd_size);
    said.filter(|size| *size > Bytes::ZERO).unwrap_or_else(|| cx.now().host.page_size.pmd_huge())
}

/// Base pages in one huge page.
pub(crate) fn pages_in_huge(cx: &Context<'_>) -> u64 {
    cx.now().host.page_size.pages(huge_size(cx))
}

impl Mode<'_> {
    /// The mode as evidence.
    pub(crate) fn saw(&self) -> Evidence {
        Evidence::new(self.file.clone(), "enabled", format!("[{}]", self.word))
    }

    /// Sets the mode to `value` in the file that decides it. A boot parameter that would undo it is named as
    /// well.
    pub(crate) fn set(&self, cx: &Context<'_>, value: &str) -> Remedy {
        let remedy = Remedy::new(format!("Set transparent huge pages to {value}"))
            .sysfs(&self.file, value, Some(self.word))
            .risk(match value {
                "always" => {
                    "Every program gets huge pages: others on this host may see the latency and the waste \
                     that always brings."
                }
                "never" => {
                    "Programs that gain from huge pages lose them: faults 3.2 times, random reads 1.33 times \
                     slower (measured)."
                }
                _ => {
                    "Programs that do not ask for huge pages lose them; SQL Server, MongoDB 8 or later and \
                     Java with large heaps may be slower."
                }
            })
            .restart("programs that hold huge pages: those that exist stay until they are freed");
        if cx.now().host.boot_parameter("transparent_hugepage").is_some() {
            remedy.keep("kernel command line", format!("transparent_hugepage={value}"))
        } else {
            remedy
        }
    }
}

/// A note on a tuned profile that may override a setting made by hand; `None` if tuned has no profile.
pub(crate) fn tuned_note(cx: &Context<'_>) -> Option<String> {
    let profile = cx.now().tuners.tuned_profile.as_deref()?;
    Some(format!(
        "tuned is active (profile {profile}) and may set the mode again at each start: put it into the \
         profile, section [vm], key transparent_hugepages."
    ))
}

/// Sets `defrag` as recommended if faults that did not ask for huge pages compact and reclaim now, or if the
/// kernel has the reclaim storm; else `None`. A step from `madvise` to `defer+madvise` would mean more
/// reclaim.
pub(crate) fn set_defrag(cx: &Context<'_>) -> Option<Remedy> {
    let now = &*cx.thp().ok()?.defrag.selected;
    let advice = advice::thp_defrag(cx);
    if now == advice.value || (now != "always" && advice.value != "never") {
        return None;
    }
    Some(
        Remedy::new(format!("Let fewer faults compact memory: set defrag to {}", advice.value))
            .sysfs(&format!("{ROOT}/defrag"), advice.value, Some(now))
            .risk(format!(
                "Fewer huge pages where memory is fragmented; khugepaged makes up for some later ({}).",
                advice.because
            )),
    )
}

/// Memory of a process that is in transparent huge pages; `None` where `smaps_rollup` was not read.
pub(crate) fn anon_huge(process: &Process) -> Option<Bytes> {
    let rollup = process.detail.as_ref()?.rollup.as_ref()?;
    rollup.get(r::AnonHugePages).map(Bytes::kib)
}

/// The processes that hold the most transparent huge pages, at most `most` of them, as evidence.
pub(crate) fn holders(cx: &Context<'_>, most: usize) -> Vec<Evidence> {
    let mut holders: Vec<_> = (cx.processes().unwrap_or_default().iter())
        .filter_map(|process| Some((anon_huge(process).filter(|b| *b > Bytes::ZERO)?, process)))
        .collect();
    holders.sort_by_key(|(bytes, process)| (std::cmp::Reverse(*bytes), process.stat.pid));
    let evidence = |(bytes, process): &(Bytes, &Process)| {
        Evidence::new("/proc/PID/smaps_rollup", "AnonHugePages", format!("{bytes:#}")).of(subject(process))
    };
    holders.iter().take(most).map(evidence).collect()
}
