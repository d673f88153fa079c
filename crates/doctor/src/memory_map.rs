//! [`MemoryMap`]: the uses of memory, in parts that add up.

use lotsfree_kernel_files::counters::{Meminfo, Values, Vmstat, meminfo as m, vmstat as v};
use lotsfree_units::{Bytes, PageSize};
use schemars::JsonSchema;
use serde::Serialize;

use crate::levels;

/// A use of memory. The same use has the same colour in every picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Anonymous memory of processes: heaps, stacks (`AnonPages`).
    Application,
    /// tmpfs and shared memory (`Shmem`).
    Shared,
    /// Cached pages that processes have mapped, on kernels that do not print `Shmem`: shared memory,
    /// programs and files.
    Mapped,
    /// `Cached` and `Buffers` on kernels that print neither `Shmem` nor `Mapped`: files or shared memory.
    Cached,
    /// File cache (`Cached` and `Buffers` without `Shmem`).
    PageCache,
    /// Pages in swap and memory at once (`SwapCached`).
    SwapCache,
    /// What was swapped out to zram or zswap, compressed (`nr_zspages`, `Zswap`).
    Compressed,
    /// Page tables.
    PageTables,
    /// Kernel objects.
    Slab,
    /// Kernel stacks, vmalloc and per-CPU memory.
    Kernel,
    /// Huge pages in use.
    HugeUsed,
    /// Huge pages in the pool that nobody uses.
    HugeIdle,
    /// Free.
    Free,
    /// What no counter accounts for.
    Other,
    /// What the counters that are here do not tell: others are missing.
    Untold,
}

impl Use {
    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Use::Application => "application",
            Use::Shared => "shared memory",
            Use::Mapped => "mapped or shared",
            Use::Cached => "cached or shared",
            Use::PageCache => "page cache",
            Use::SwapCache => "swap cache",
            Use::Compressed => "compressed swap",
            Use::PageTables => "page tables",
            Use::Slab => "slab",
            Use::Kernel => "other kernel",
            Use::HugeUsed => "huge pages used",
            Use::HugeIdle => "huge pages idle",
            Use::Free => "free",
            Use::Other => "unaccounted",
            Use::Untold => "not told",
        }
    }
}

/// Where memory goes; the parts add up to `total`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MemoryMap {
    /// `MemTotal`.
    pub total: Bytes,
    /// Parts that are not empty, in the order of [`Use`].
    pub parts: Vec<(Use, Bytes)>,
}

impl MemoryMap {
    /// Computes the map from `/proc/meminfo`; `None` without `MemTotal` and `MemFree`. `compressed` is what
    /// [`compressed`] says; `huge` has the used and the idle bytes of all pools if `/sys` was read; else the
    /// default size is taken from `meminfo`.
    pub fn of(
        meminfo: &Values<Meminfo>,
        compressed: Bytes,
        huge: Option<(Bytes, Bytes)>,
    ) -> Option<MemoryMap> {
        let kib = |field| meminfo.get(field).map(Bytes::kib);
        let get = |field| kib(field).unwrap_or_default();
        let total = kib(m::MemTotal)?;
        let free = get(m::MemFree);
        let size = levels::huge_page_size(meminfo).unwrap_or_default();
        let pages = |field| size.times(meminfo.get(field).unwrap_or(0));
        let (huge_used, huge_idle) = huge.unwrap_or_else(|| {
            (pages(m::HugePages_Total) - pages(m::HugePages_Free), pages(m::HugePages_Free))
        });
        let cached = get(m::Cached) + get(m::Buffers);
        let (shared, mapped, files, either) = match (levels::shared(meminfo), kib(m::Mapped)) {
            (Some(shared), _) => (shared, Bytes::ZERO, cached - shared, Bytes::ZERO),
            // Shared memory is mapped, and so are programs.
            (None, Some(mapped)) => (Bytes::ZERO, mapped.min(cached), cached - mapped, Bytes::ZERO),
            (None, None) => (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO, cached),
        };
        let parts = [
            (Use::Application, levels::anonymous(meminfo).unwrap_or_default()),
            (Use::Shared, shared),
            (Use::Mapped, mapped),
            (Use::Cached, either),
            (Use::PageCache, files),
            (Use::SwapCache, get(m::SwapCached)),
            (Use::Compressed, compressed),
            (Use::PageTables, get(m::PageTables) + get(m::SecPageTables)),
            (Use::Slab, get(m::Slab)),
            (Use::Kernel, get(m::KernelStack) + get(m::Percpu) + vmalloc_used(meminfo)),
            (Use::HugeUsed, huge_used),
            (Use::HugeIdle, huge_idle),
            (Use::Free, free),
        ];
        let accounted: Bytes = parts.iter().map(|(_, bytes)| *bytes).sum();
        // What is left over means something only if all large parts were printed.
        let complete = kib(m::MemFree).is_some()
            && levels::anonymous(meminfo).is_some()
            && kib(m::Cached).is_some()
            && kib(m::Slab).is_some();
        let rest = if complete { Use::Other } else { Use::Untold };
        let parts = parts.into_iter().chain([(rest, total - accounted)]);
        Some(MemoryMap { total, parts: parts.filter(|(_, bytes)| *bytes > Bytes::ZERO).collect() })
    }

    /// The bytes of one use.
    pub fn get(&self, wanted: Use) -> Bytes {
        self.parts.iter().find(|(part, _)| *part == wanted).map(|(_, bytes)| *bytes).unwrap_or_default()
    }
}

/// Memory that compressed swap takes. Its pages are in no other counter. zsmalloc's are all in `nr_zspages`
/// (4.8), zram's and zswap's together; of zswap that takes zbud, `Zswap` alone has them (5.19), and which it
/// takes these files do not tell: the larger figure is what is certain.
pub fn compressed(
    meminfo: Option<&Values<Meminfo>>,
    vmstat: Option<&Values<Vmstat>>,
    page: PageSize,
) -> Bytes {
    let zspages = vmstat.and_then(|vmstat| vmstat.get(v::nr_zspages)).map(|pages| page.of(pages));
    let zswap = meminfo.and_then(|meminfo| meminfo.get(m::Zswap)).map(Bytes::kib);
    zspages.unwrap_or_default().max(zswap.unwrap_or_default())
}

/// Memory of vmalloc. `VmallocUsed` counts its pages from 5.3 on. Before, it was 0 (4.4 to 5.2) or the
/// address space, which on those kernels includes I/O mappings and says nothing about memory. `KReclaimable`
/// (4.20) or later fields tell the kernels apart.
fn vmalloc_used(meminfo: &Values<Meminfo>) -> Bytes {
    match meminfo.get(m::KReclaimable) {
        Some(_) => Bytes::kib(meminfo.get(m::VmallocUsed).unwrap_or(0)),
        None => Bytes::ZERO,
    }
}
