//! Compares the numbers of huge pages that were requested with those in the pools.

use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::sysctl;
use lotsfree_settings::NR_HUGEPAGES;
use lotsfree_units::Bytes;

use crate::Context;
use crate::huge;

/// A requested number of huge pages.
pub(crate) struct Request {
    pub(crate) size: Bytes,
    pub(crate) pages: u64,
    /// The file, or the kernel command line, with the request.
    pub(crate) file: String,
}

/// The first request that its pool falls short of, with the pool and the number of missing pages. A shortfall
/// does not count if no allocation ever failed, because then somebody made the pool smaller.
pub(crate) fn short(
    cx: &Context<'_>,
    pools: &[HugePool],
    default: Bytes,
) -> Option<(Request, HugePool, u64)> {
    let failed = cx.vm(v::htlb_buddy_alloc_fail);
    // A request for more than the whole memory is a mistake (page-size-mixup looks into it).
    let total = cx.total().ok();
    let sane = |request: &Request| total.is_none_or(|total| request.size.times(request.pages) <= total);
    requests(cx, default).into_iter().filter(sane).find_map(|request| {
        let pool = pools.iter().find(|pool| pool.size == request.size)?;
        let missing = request.pages.saturating_sub(pool.total.saturating_sub(pool.surplus));
        // Gigantic pages come from boot memory or alloc_contig_range, which that counter does not cover.
        let gigantic = request.size > cx.now().host.page_size.pmd_huge();
        (missing > 0 && (gigantic || failed != Ok(0))).then_some((request, *pool, missing))
    })
}

/// A note if more pages of `pool`'s size were requested than it has: the pool must then not be made smaller.
pub(crate) fn asked_for_more(cx: &Context<'_>, pool: &HugePool) -> Option<String> {
    let (request, short, _) = short(cx, &[*pool], huge::default_size(cx).ok()?)?;
    (short.size == pool.size).then(|| {
        format!(
            "No release is proposed: {} asks for {}, more than there are, and a database that insists on \
             them may not have started for that (see runtime-alloc-short).",
            request.file,
            huge::count(request.pages)
        )
    })
}

/// Requests in the sysctl files and on the command line. The files are applied later and win.
pub(crate) fn requests(cx: &Context<'_>, default: Bytes) -> Vec<Request> {
    let files = &cx.now().sysctl_files;
    let file = sysctl::winner(files, NR_HUGEPAGES).and_then(|setting| {
        let file = format!("/{} line {}", setting.file, setting.line);
        Some(Request { size: default, pages: setting.value.parse().ok()?, file })
    });
    let mut found: Vec<Request> = file.into_iter().collect();
    let cmdline = cx.now().host.cmdline.as_deref().unwrap_or_default();
    let mut size = default;
    for word in cmdline.split_ascii_whitespace() {
        match word.split_once('=') {
            Some(("hugepagesz", text)) => size = text.parse().unwrap_or(default),
            Some(("hugepages", text)) if found.iter().all(|request| request.size != size) => {
                // The value is one number, or `node:number` joined by commas.
                let part = |part: &str| part.rsplit(':').next().and_then(|pages| pages.parse::<u64>().ok());
                let pages = text.split(',').filter_map(part).fold(0, u64::saturating_add);
                found.push(Request { size, pages, file: "/proc/cmdline".to_owned() });
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use lotsfree_snapshot::{Observation, Snapshot};

    use super::*;

    #[test]
    fn the_command_line_names_sizes_before_numbers_and_files_win() {
        let mut now = Snapshot::default();
        now.host.cmdline = Some("ro hugepages=64 hugepagesz=1G hugepages=0:2,1:3 quiet".to_owned());
        let observation = Observation::instant("test", now);
        let found = requests(&Context::new(&observation), Bytes::mib(2));
        let found: Vec<_> = found.iter().map(|r| (r.size, r.pages)).collect();
        assert_eq!(found, [(Bytes::mib(2), 64), (Bytes::gib(1), 5)]);

        let mut now = observation.now;
        now.sysctl_files.push(sysctl::SysctlSetting {
            file: "etc/sysctl.conf".to_owned(),
            line: 3,
            name: NR_HUGEPAGES.to_owned(),
            value: "100".to_owned(),
        });
        let observation = Observation::instant("test", now);
        let found = requests(&Context::new(&observation), Bytes::mib(2));
        let found: Vec<_> = found.iter().map(|r| (r.size, r.pages, r.file.as_str())).collect();
        let file = "/etc/sysctl.conf line 3";
        assert_eq!(found, [(Bytes::mib(2), 100, file), (Bytes::gib(1), 5, "/proc/cmdline")]);
    }
}
