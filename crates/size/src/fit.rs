//! Whether a pool of huge pages, or a mapping, fits beside what the host itself needs.
//!
//! The programs that a pool is for may run today without it. Their memory is then part of the host's own
//! figures: a shared segment in base pages is in `Shmem`, a JVM's heap in `AnonPages`, and the tables that
//! map them are in `PageTables`. All of it goes when they move into the pool, so counting it beside the pool
//! would count it twice. How much it is, is known within bounds only, so every part has two figures, and the
//! verdict says so where they decide differently.

use lotsfree_formulas::pagetables::{Levels, Mapping, tables};
use lotsfree_units::{Bytes, PageSize};

use crate::{Answer, Value};

/// Part of memory that has to remain for the page cache and as a reserve: a twentieth.
const SPARE: u64 = 20;
/// Parts of less than one in this many of memory are told together.
const SMALL: u64 = 200;

/// What a host uses memory for, beside huge pages; `None` for what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// `AnonPages`.
    pub anon: Option<Bytes>,
    /// `Shmem`: System V segments and shared mappings in base pages, tmpfs.
    pub shmem: Option<Bytes>,
    /// `Slab`.
    pub slab: Option<Bytes>,
    /// `PageTables`.
    pub page_tables: Option<Bytes>,
    /// `KernelStack`.
    pub kernel_stacks: Option<Bytes>,
    /// `SwapTotal` less `SwapFree`.
    pub swapped: Option<Bytes>,
    /// The pools of huge pages of all sizes.
    pub pools: Option<Vec<HostPool>>,
    /// Shared segments that somebody has mapped.
    pub shared: Option<Vec<HostShared>>,
}

/// A pool of huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostPool {
    /// Of one page.
    pub size: Bytes,
    /// Pages in the pool.
    pub total: u64,
    /// Pages that are in use or promised.
    pub promised: u64,
}

/// A shared segment: of System V, or what a database's processes share by fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostShared {
    /// Its size.
    pub size: Bytes,
    /// How much of it is resident, if that is known.
    pub resident: Option<Bytes>,
    /// Processes that have mapped it.
    pub mappers: u64,
    /// Whether it is one of System V.
    pub sysv: bool,
    /// Whether it lies in base pages, if that is known.
    pub in_base_pages: Option<bool>,
}

/// Something that needs memory beside what the host needs itself.
pub(crate) struct Planned {
    /// What it is, with its size.
    name: String,
    size: Bytes,
    /// What of the host's memory is it already.
    goes: Goes,
    /// The page size of a pool, whose present pages are not counted beside it.
    pool_of: Option<Bytes>,
    words: Words,
}

/// How a verdict speaks of what is planned.
struct Words {
    /// What the part of today's memory does: `33 GiB … go into the pool`.
    goes: &'static str,
    /// The same of a sum, with what it may be.
    may_be: &'static str,
    /// Name of the pools that are counted.
    pools: &'static str,
    /// What to do if it does not fit by that much.
    instead: fn(Bytes) -> String,
}

/// What is to be served from a pool, as far as the host's figures may hold it already.
pub(crate) struct PoolPlan {
    /// Size of a huge page.
    pub huge: Bytes,
    pub page: PageSize,
    /// The whole pool.
    pub pool: Bytes,
    /// The part of it for shared segments.
    pub shared: Bytes,
    /// The part of it for private memory, of JVMs.
    pub private: Bytes,
    /// The segments are those of the host itself.
    pub of_host: bool,
}

impl Planned {
    /// A pool of huge pages.
    pub(crate) fn pool(plan: &PoolPlan, host: &HostMemory) -> Planned {
        Planned {
            name: format!("pool {}", plan.pool),
            size: plan.pool,
            goes: Goes::of(plan, host),
            pool_of: Some(plan.huge),
            words: Words {
                goes: "go into the pool",
                may_be: "what the programs take today, which goes into the pool",
                pools: "pools of other huge page sizes",
                instead: |by| format!("Make the pool {by} smaller, or add memory."),
            },
        }
    }

    /// A mapping that processes share, and their tables for it.
    pub(crate) fn mapping(name: String, mapping: Bytes, tables: Bytes) -> Planned {
        let none_to = |most| Range { least: Bytes::ZERO, most };
        Planned {
            name,
            size: mapping + tables,
            goes: Goes { private: Range::default(), shared: none_to(mapping), page_tables: none_to(tables) },
            pool_of: None,
            words: Words {
                goes: "may be this mapping's",
                may_be: "this mapping and its tables, as far as they exist today",
                pools: "pools of huge pages",
                instead: |by| format!("Save {by} with huge pages or fewer processes, or add memory."),
            },
        }
    }
}

/// A figure between two bounds.
#[derive(Clone, Copy, Default)]
struct Range {
    least: Bytes,
    most: Bytes,
}

impl Range {
    fn exactly(bytes: Bytes) -> Range {
        Range { least: bytes, most: bytes }
    }

    /// What remains of `whole` when something between the bounds goes.
    fn off(self, whole: Bytes) -> Range {
        Range { least: whole - self.most, most: whole - self.least }
    }
}

/// Something that needs memory beside the pool.
struct Part {
    name: &'static str,
    need: Range,
}

/// Judges the pool against memory and what the host needs of it, with a step for each part.
pub(crate) fn against_host(answer: &mut Answer, planned: &Planned, ram: Bytes, host: &HostMemory) {
    let Planned { goes, words, .. } = planned;
    let mut parts = Vec::new();
    let mut unknown = Vec::new();
    let other_pools = host.pools.as_ref().map(|pools| {
        let others = pools.iter().filter(|pool| Some(pool.size) != planned.pool_of);
        others.map(|pool| pool.size.times(pool.total)).sum()
    });
    for (name, today, goes) in [
        ("anonymous memory", host.anon, goes.private),
        (SHARED, host.shmem, goes.shared),
        ("slab", host.slab, Range::default()),
        ("page tables", host.page_tables, goes.page_tables),
        ("kernel stacks", host.kernel_stacks, Range::default()),
        (words.pools, other_pools, Range::default()),
    ] {
        let Some(today) = today else {
            unknown.push(name);
            continue;
        };
        let need = goes.off(today);
        if goes.most.min(today) > Bytes::ZERO {
            answer.detail(
                format!("{name} today, of which up to {} {}", goes.most.min(today), words.goes),
                "",
                Value::Bytes(today),
            );
        } else {
            answer.detail(format!("{name} of the host itself"), "", Value::Bytes(today));
        }
        parts.push(Part { name, need });
    }
    if let Some(swapped) = host.swapped.filter(|&swapped| swapped > Bytes(ram.0 / SMALL)) {
        answer.alert(format!(
            "{swapped} are in swap today and not counted here: if they come back, that much less remains."
        ));
    }
    conclude(answer, planned, &Figures { ram, parts, unknown, of_host: true });
}

/// `Shmem`, of which huge pages are no part.
const SHARED: &str = "shared memory in base pages";

/// Judges the pool against memory and a figure for everything else.
pub(crate) fn against_others(answer: &mut Answer, planned: &Planned, ram: Bytes, others: Bytes) {
    let spare = Bytes(ram.0 / SPARE);
    answer.detail(
        "needed outside the pool, and 5 % of RAM",
        format!("{others} + {spare}"),
        Value::Bytes(others + spare),
    );
    let parts = vec![Part { name: "everything else", need: Range::exactly(others) }];
    conclude(answer, planned, &Figures { ram, parts, unknown: Vec::new(), of_host: false });
}

/// What of the host's memory goes when the programs move into the pool.
#[derive(Default)]
struct Goes {
    private: Range,
    shared: Range,
    page_tables: Range,
}

impl Goes {
    fn of(planned: &PoolPlan, host: &HostMemory) -> Goes {
        let none_to = |most| Range { least: Bytes::ZERO, most };
        // A heap in base pages has a table of 512 entries for each huge page that it fills.
        let heaps = planned.page.bytes().times(planned.private.units_of(planned.huge));
        let Some(shared) = &host.shared else {
            // Nobody knows which segments there are: all that is shared may be theirs, and all the tables.
            let tables = if planned.shared > Bytes::ZERO { Bytes(u64::MAX) } else { heaps };
            return Goes {
                private: none_to(planned.private),
                shared: none_to(planned.shared),
                page_tables: none_to(tables),
            };
        };
        let in_base = || {
            shared
                .iter()
                .filter(|segment| segment.size >= planned.huge && segment.in_base_pages != Some(false))
        };
        let resident = |segment: &HostShared| segment.resident.unwrap_or(segment.size).min(segment.size);
        let surely = in_base()
            .filter(|segment| planned.of_host && segment.in_base_pages == Some(true))
            .filter_map(|segment| segment.resident.map(|resident| resident.min(segment.size)))
            .sum();
        let most: Bytes = in_base().map(resident).sum();
        let tables_of = |segment: &HostShared| {
            tables(resident(segment), Mapping::Base, planned.page, Levels::Four)
                .bytes(planned.page)
                .times(segment.mappers)
        };
        let needed = planned.shared > Bytes::ZERO;
        let mapped: Bytes = if needed { in_base().map(tables_of).sum() } else { Bytes::ZERO };
        Goes {
            private: none_to(planned.private),
            shared: Range { least: surely, most: most.min(planned.shared) },
            page_tables: none_to(mapped + heaps),
        }
    }
}

/// What a verdict is made of.
struct Figures {
    ram: Bytes,
    parts: Vec<Part>,
    /// Names of the parts whose figures are not known.
    unknown: Vec<&'static str>,
    /// Whether they are the host's own, not one figure that was given for all.
    of_host: bool,
}

fn conclude(answer: &mut Answer, planned: &Planned, figures: &Figures) {
    let Figures { ram, ref parts, ref unknown, .. } = *figures;
    let Planned { ref name, size, ref words, .. } = *planned;
    let spare = Bytes(ram.0 / SPARE);
    let most: Bytes = parts.iter().map(|part| part.need.most).sum();
    let least: Bytes = parts.iter().map(|part| part.need.least).sum();
    let tight = size + most + spare > ram;
    let (fits, head) = if size + least + spare > ram {
        (Some(false), "It does not fit")
    } else if tight {
        (None, "It may not fit")
    } else if unknown.is_empty() {
        (Some(true), "It fits")
    } else {
        (None, "It fits as far as is known")
    };
    if parts.is_empty() {
        let text = format!(
            "Whether it fits is not known: {name} of {ram} leaves {} for everything else, and the host's figures lack {}.",
            ram - size,
            listed(unknown)
        );
        return answer.judge(fits.filter(|fits| !fits), text);
    }
    // That it does not fit rests on the least that is needed, every other verdict on the most.
    let counted = if fits == Some(false) { least } else { most };
    let left = ram - size - counted;
    let rest = if size + counted > ram {
        format!("need {} more than remains", size + counted - ram)
    } else if size + counted + spare > ram {
        format!("leave {left} for the page cache, less than 5 % of memory ({spare})")
    } else if least < most {
        format!("leave {left} to {} for the page cache", ram - size - least)
    } else {
        format!("leave {left} for the page cache")
    };
    let mut text = format!("{head}: {name} of {ram}; {} {rest}.", enumerated(figures, fits == Some(false)));
    if fits == Some(false) {
        text += &format!(" {}", (words.instead)(size + least + spare - ram));
    } else if least < most {
        text += &format!(" Up to {} of that may be {}.", most - least, words.may_be);
    }
    if !unknown.is_empty() {
        text += &format!(" Not known, and not counted: {}.", listed(unknown));
    }
    answer.judge(fits, text);
}

/// `the host's own anonymous memory 20 GiB, slab 3 GiB and 12 MiB of kernel stacks and page tables`.
fn enumerated(figures: &Figures, least: bool) -> String {
    let figure = |part: &Part| if least { part.need.least } else { part.need.most };
    if !figures.of_host {
        let sum: Bytes = figures.parts.iter().map(figure).sum();
        return format!("the {sum} of --others");
    }
    let (small, large): (Vec<&Part>, Vec<&Part>) =
        figures.parts.iter().partition(|part| figure(part) < Bytes(figures.ram.0 / SMALL));
    let mut told: Vec<String> =
        large.into_iter().map(|part| format!("{} {}", part.name, figure(part))).collect();
    let small: Vec<&Part> = small.into_iter().filter(|part| figure(part) > Bytes::ZERO).collect();
    let names: Vec<&str> = small.iter().map(|part| part.name).collect();
    if !names.is_empty() {
        let sum: Bytes = small.iter().map(|part| figure(part)).sum();
        told.push(format!("{sum} of {}", listed(&names)));
    }
    match told.is_empty() {
        true => "what else is known".to_owned(),
        false => format!("the host's own {}", listed(&told)),
    }
}

/// `a, b and c`.
pub(crate) fn listed<T: AsRef<str>>(parts: &[T]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fit, HugepagesInput, Value, hugepages};

    const HUGE: Bytes = Bytes::mib(2);

    /// 125 GiB, of which 20 + 3 + 1 GiB are taken.
    fn host() -> HostMemory {
        HostMemory {
            anon: Some(Bytes::gib(20)),
            shmem: Some(Bytes::ZERO),
            slab: Some(Bytes::gib(3)),
            page_tables: Some(Bytes::gib(1)),
            kernel_stacks: Some(Bytes::ZERO),
            swapped: Some(Bytes::ZERO),
            pools: Some(vec![HostPool { size: HUGE, total: 0, promised: 0 }]),
            shared: Some(Vec::new()),
        }
    }

    /// A segment in base pages of which all is resident, mapped by 64 processes.
    fn segment(size: Bytes) -> HostShared {
        HostShared { size, resident: Some(size), mappers: 64, sysv: true, in_base_pages: Some(true) }
    }

    /// A pool of 33 GiB for what PostgreSQL says.
    fn of(host: HostMemory) -> HugepagesInput {
        HugepagesInput {
            postgres_pages: Some(16_896),
            ram: Some(Bytes::gib(125)),
            host: Some(host),
            ..HugepagesInput::default()
        }
    }

    /// The same pool for the segments that the host has.
    fn of_segments(host: HostMemory) -> HugepagesInput {
        let listed = host.shared.iter().flatten();
        let listed = listed.map(|shared| crate::Listed { shmid: None, size: shared.size, nattch: None });
        HugepagesInput { listed: listed.collect(), of_host: true, postgres_pages: None, ..of(host) }
    }

    fn fit(input: &HugepagesInput) -> Fit {
        hugepages(input).unwrap().fit.unwrap()
    }

    #[test]
    fn what_the_host_itself_needs_is_told_with_what_it_leaves() {
        let fit = fit(&of(host()));
        assert_eq!(fit.fits, Some(true));
        assert_eq!(
            fit.text,
            "It fits: pool 33 GiB of 125 GiB; the host's own anonymous memory 20 GiB, slab 3 GiB and page tables 1 GiB \
             leave 68 GiB for the page cache."
        );
    }

    #[test]
    fn a_pool_that_leaves_too_little_does_not_fit() {
        let crowded = |gib| of(HostMemory { anon: Some(Bytes::gib(gib)), ..host() });
        // 5 % are 6.25 GiB
        assert_eq!(fit(&crowded(81)).fits, Some(true));
        let tight = fit(&crowded(82));
        assert_eq!(tight.fits, Some(false));
        assert!(tight.text.ends_with("leave 6 GiB for the page cache, less than 5 % of memory (6.25 GiB). Make the pool 256 MiB smaller, or add memory."));
        assert!(
            fit(&crowded(90)).text.contains("need 2 GiB more than remains. Make the pool 8.25 GiB smaller")
        );
        let text = hugepages(&crowded(90)).unwrap().to_text(100, false);
        assert!(
            text.contains("=> The pool would need 16,896 huge pages") && !text.contains("sysctl -w"),
            "{text}"
        );
    }

    #[test]
    fn segments_in_base_pages_are_not_counted_twice() {
        let with = |gib| HostMemory {
            shmem: Some(Bytes::gib(gib)),
            shared: Some(vec![segment(Bytes::gib(33))]),
            ..host()
        };
        // The segment is 33 GiB of it, and the tables are at most what goes with it.
        let same = fit(&of_segments(with(33)));
        assert_eq!(same.fits, Some(true));
        assert!(
            same.text.contains("leave 68.0 GiB to 69.0 GiB for the page cache. Up to 1 GiB of that"),
            "{}",
            same.text
        );
        assert!(!same.text.contains("shared memory"), "{}", same.text);
        let beside = fit(&of_segments(with(40)));
        assert!(beside.text.contains("shared memory in base pages 7 GiB"), "{}", beside.text);
        // A segment that lies in huge pages is not in Shmem: all of that is somebody else's.
        let huge = HostShared { in_base_pages: Some(false), ..segment(Bytes::gib(33)) };
        let elsewhere = fit(&of_segments(HostMemory { shared: Some(vec![huge]), ..with(33) }));
        assert!(elsewhere.text.contains("shared memory in base pages 33 GiB"), "{}", elsewhere.text);
        assert!(elsewhere.text.ends_with("leave 35.0 GiB for the page cache."), "{}", elsewhere.text);
    }

    #[test]
    fn bounds_that_decide_differently_are_no_verdict() {
        // Whether 60 GiB of shared memory are the segments is not known.
        let saved = HostMemory { shmem: Some(Bytes::gib(66)), shared: None, ..host() };
        let unclear = fit(&of(saved.clone()));
        assert_eq!(unclear.fits, None);
        assert!(unclear.text.starts_with("It may not fit: pool 33 GiB of 125 GiB;"), "{}", unclear.text);
        assert!(unclear.text.contains("leave 2 GiB for the page cache, less than 5 %"), "{}", unclear.text);
        assert!(unclear.text.contains("Up to 34 GiB of that may be what the programs take today"));
        // Even without the 33 GiB it would not.
        let full = HostMemory { shmem: Some(Bytes::gib(100)), ..saved };
        assert_eq!(fit(&of(full)).fits, Some(false));
    }

    #[test]
    fn what_is_not_known_is_named_and_never_nothing() {
        let old = HostMemory { slab: None, kernel_stacks: None, ..host() };
        let unknown = fit(&of(old.clone()));
        assert_eq!(unknown.fits, None);
        assert!(unknown.text.starts_with("It fits as far as is known: "), "{}", unknown.text);
        assert!(unknown.text.ends_with("Not known, and not counted: slab and kernel stacks."));
        let none = fit(&of(HostMemory::default()));
        assert_eq!(none.fits, None);
        assert!(
            none.text.contains("lack anonymous memory, shared memory in base pages, slab,"),
            "{}",
            none.text
        );
        // What is known may be enough to tell that it does not.
        let full = HostMemory { anon: Some(Bytes::gib(90)), ..old };
        assert_eq!(fit(&of(full)).fits, Some(false));
        let nothing = HugepagesInput { host: None, ..of(host()) };
        assert_eq!(fit(&nothing).fits, None);
        assert!(
            fit(&nothing).text.starts_with("Whether it fits is not known: the pool of 33 GiB leaves 92 GiB")
        );
    }

    #[test]
    fn a_heap_in_base_pages_may_be_the_one_that_moves() {
        let jvm = "60GiB".parse().unwrap();
        let input = |anon| HugepagesInput {
            postgres_pages: None,
            jvms: vec![jvm],
            ..of(HostMemory { anon: Some(Bytes::gib(anon)), ..host() })
        };
        assert_eq!(fit(&input(50)).fits, Some(true));
        assert_eq!(fit(&input(61)).fits, None);
        assert_eq!(fit(&input(120)).fits, Some(false));
    }

    #[test]
    fn pools_of_other_sizes_and_pages_of_others_stay() {
        let pools = |promised| {
            vec![
                HostPool { size: HUGE, total: promised, promised },
                HostPool { size: Bytes::gib(1), total: 16, promised: 0 },
            ]
        };
        let two = HostMemory { pools: Some(pools(0)), ..host() };
        assert!(fit(&of(two)).text.contains("and pools of other huge page sizes 16 GiB leave 52 GiB"));
        let shared = Some(vec![HostShared { in_base_pages: Some(false), ..segment(Bytes::gib(33)) }]);
        // 16,896 pages are the segment's; a virtual machine has the others
        let guests = of_segments(HostMemory { pools: Some(pools(20_000)), shared, ..host() });
        assert_eq!(hugepages(&guests).unwrap().result.value, Value::HugePages(16_897 + 3104));
        let described = hugepages(&of(HostMemory { pools: Some(pools(100)), ..host() })).unwrap();
        assert_eq!(described.result.value, Value::HugePages(16_896));
        assert!(described.warnings[0].starts_with("100 huge pages are in use or promised today."));
    }

    #[test]
    fn a_mapping_that_exists_today_is_not_counted_twice() {
        let input = |gib| crate::PagetablesInput {
            mapping: Bytes::gib(gib),
            processes: 100,
            ram: Some(Bytes::gib(125)),
            host: Some(HostMemory { shmem: Some(Bytes::gib(40)), ..host() }),
            ..crate::PagetablesInput::default()
        };
        let fit = |gib| crate::pagetables(&input(gib)).unwrap().fit.unwrap();
        // 20 + 3 + 1 and 40 GiB, of which all may be the mapping
        let fits = fit(16);
        assert_eq!(fits.fits, Some(true));
        assert!(
            fits.text.starts_with(
                "It fits: a mapping of 16 GiB and its tables, 19.1 GiB of 125 GiB; the host's own"
            ),
            "{}",
            fits.text
        );
        assert!(
            fits.text.contains("Up to 17 GiB of that may be this mapping and its tables"),
            "{}",
            fits.text
        );
        assert_eq!(fit(48).fits, None);
        let full = fit(90);
        assert_eq!(full.fits, Some(false));
        assert!(full.text.contains("with huge pages or fewer processes, or add memory."), "{}", full.text);
        let unknown = crate::PagetablesInput { host: None, ..input(16) };
        let unknown = crate::pagetables(&unknown).unwrap().fit.unwrap();
        assert_eq!(unknown.fits, None);
        assert!(unknown.text.contains("leave 106 GiB of 125 GiB"), "{}", unknown.text);
    }

    #[test]
    fn memory_in_swap_is_not_forgotten() {
        let swapped = HostMemory { swapped: Some(Bytes::gib(4)), ..host() };
        let answer = hugepages(&of(swapped)).unwrap();
        assert!(answer.warnings[0].starts_with("4 GiB are in swap today and not counted here"));
    }
}
