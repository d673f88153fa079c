//! `size hugepages`: how many huge pages a set of programs needs, and everything around them.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lotsfree_formulas::hugepages::{
    POOL_MAX_PERCENT, SCRIPT_MIN, WORTH_IT_SESSIONS, WORTH_IT_SGA, hvo_saving, oracle_granule,
    postgres_pages as peak_pages, script_pages, segment_pages, sga_pages, split,
};
use lotsfree_formulas::jvm::{self, Areas, Collector};
use lotsfree_formulas::memlock::{memlock_kib, oracle_memlock_kib};
use lotsfree_formulas::pagetables::{Levels, Mapping, leaf, shared_hugetlb_tables, tables};
use lotsfree_units::{Bytes, GIB, Grouped, MIB, PageSize};

use crate::check::{self, MAX_PROCESSES, SizeError};
use crate::fit::{self, HostMemory, Planned, PoolPlan};
use crate::ipcs::Listed;
use crate::question::{HostFigures, Question, not_told, take};
use crate::{Answer, Value};

/// What is to be served from the pool, and on which host. Sums over everything given.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct HugepagesInput {
    /// Configured size of a shared segment, such as sga_max_size; repeatable
    ///
    /// A header page and the extra page of Oracle's script are added to each.
    #[arg(long = "segment", value_name = "SIZE", value_parser = check::amount)]
    pub segments: Vec<Bytes>,
    /// What ipcs -m prints, in any language: a file, or - for standard input
    ///
    /// Only the script's extra page is added to each segment, and those below one huge page are skipped. The
    /// bytes column alone will do, too.
    #[arg(long, value_name = "FILE")]
    pub ipcs: Option<PathBuf>,
    /// One size from the bytes column of ipcs -m, typed by hand, in bytes; repeatable
    #[arg(long = "ipcs-bytes", value_name = "BYTES", value_parser = by_hand)]
    pub listed: Vec<Listed>,
    /// What database servers that fork have mapped on the host.
    #[arg(skip)]
    pub mapped: Vec<Bytes>,
    /// Whether segments and mappings are those of the host.
    #[arg(skip)]
    pub of_host: bool,
    /// What the host needs memory for.
    #[arg(skip)]
    pub host: Option<HostMemory>,
    /// What postgres -C shared_memory_size_in_huge_pages prints (15 or later, server stopped)
    #[arg(long, value_name = "PAGES", conflicts_with = "postgres_vmpeak")]
    pub postgres_pages: Option<u64>,
    /// VmPeak of the postmaster (14 or earlier)
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub postgres_vmpeak: Option<Bytes>,
    /// A Java virtual machine with -XX:+UseLargePages, by its -Xmx; repeatable
    ///
    /// Its code cache (240MiB unless CODECACHE says otherwise, 0 for none) and the collector's tables are
    /// added; METASPACE only for -XX:+UseLargePagesInMetaspace.
    #[arg(long = "jvm", value_name = "HEAP[,METASPACE[,CODECACHE]]")]
    pub jvms: Vec<Jvm>,
    /// Garbage collector of the Java virtual machines
    #[arg(long, value_name = "NAME", default_value = "g1", value_parser = collector())]
    pub collector: Collector,
    /// Processes that attach the segments; compares page tables
    #[arg(long, value_name = "N")]
    pub sessions: Option<u64>,
    /// Whether figures of a host or a saved source were taken.
    #[arg(skip)]
    pub sourced: bool,
    /// Memory of the host
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub ram: Option<Bytes>,
    /// What everything outside the pool needs
    ///
    /// Anonymous memory, page tables, slab: compared with what remains, with 5 % of memory to spare.
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub others: Option<Bytes>,
    /// NUMA nodes to spread the pool over
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Size of a huge page
    #[arg(long = "huge-page-size", value_name = "SIZE", value_parser = check::amount)]
    pub huge_page: Option<Bytes>,
    /// What the programs lock besides the pool
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = check::amount)]
    pub locked: Bytes,
    /// User that the programs run as
    #[arg(long)]
    pub user: Option<String>,
    /// systemd service that starts them
    #[arg(long)]
    pub unit: Option<String>,
    /// Numeric id of the group that may use SHM_HUGETLB
    #[arg(long, value_name = "GID")]
    pub shm_group: Option<u32>,
    /// The instance uses Automatic Memory Management: refused, with what to set instead
    #[arg(long)]
    pub amm: bool,
    /// Base page size
    #[arg(long = "page-size", value_name = "SIZE", value_parser = check::amount)]
    pub page: Option<Bytes>,
    /// Kernel release whose rules apply [default: the host's, else the newest]
    #[arg(long, value_name = "RELEASE")]
    pub kernel: Option<String>,
}

impl Question for HugepagesInput {
    fn take_from(&mut self, host: &HostFigures) -> Result<(), SizeError> {
        self.refuse_amm()?;
        self.sourced = true;
        take(&mut self.ram, host.ram);
        take(&mut self.nodes, host.nodes);
        take(&mut self.huge_page, host.huge_page);
        take(&mut self.page, host.page);
        take(&mut self.kernel, host.kernel.clone());
        take(&mut self.host, Some(host.memory.clone()));
        if self.is_described() {
            return Ok(());
        }
        let page = check::page("page", self.page)?;
        let huge = check::huge_page("huge_page", self.huge_page, page)?;
        let Some(shared) = &host.memory.shared else { return Ok(()) };
        for segment in shared.iter().filter(|segment| segment.size >= huge) {
            match segment.sysv {
                true => self.listed.push(Listed { shmid: None, size: segment.size, nattch: None }),
                false => self.mapped.push(segment.size),
            }
        }
        self.of_host = true;
        if self.listed.is_empty() && self.mapped.is_empty() {
            return Err(SizeError::NothingAttached);
        }
        Ok(())
    }

    fn kernel(&self) -> Option<Option<&str>> {
        Some(self.kernel.as_deref())
    }

    fn answer(&self) -> Result<Answer, SizeError> {
        hugepages(self)
    }
}

impl HugepagesInput {
    /// Whether it was said what the pool is for.
    fn is_described(&self) -> bool {
        !self.segments.is_empty()
            || !self.listed.is_empty()
            || self.postgres_pages.is_some()
            || self.postgres_vmpeak.is_some()
            || !self.jvms.is_empty()
    }

    /// Whether there are System V segments.
    fn has_segments(&self) -> bool {
        !self.segments.is_empty() || !self.listed.is_empty()
    }

    /// All that is shared, in bytes.
    fn shared(&self) -> Bytes {
        let listed = self.listed.iter().map(|listed| listed.size);
        self.segments.iter().copied().chain(listed).chain(self.mapped.iter().copied()).sum()
    }

    /// Automatic Memory Management has no segments: a pool for it would lie idle.
    fn refuse_amm(&self) -> Result<(), SizeError> {
        if !self.amm {
            return Ok(());
        }
        let mut command = "lotsfree size hugepages".to_owned();
        match self.segments.as_slice() {
            [] => command += " --segment SGA_MAX_SIZE",
            segments => {
                segments.iter().for_each(|size| command += &format!(" --segment {}kB", size.as_kib()))
            }
        }
        Err(SizeError::Amm { command, files: self.granules() })
    }

    /// What `ulimit -n` has to exceed as long as AMM stays: each process opens the file of every granule of
    /// its instance.
    fn granules(&self) -> String {
        let Some(&largest) = self.segments.iter().max() else { return String::new() };
        let granule = oracle_granule(largest);
        format!(
            "; and each process opens a file for each of at least {} granules of {granule} ({largest}, 11.2 and later), \
             which ulimit -n has to exceed",
            Grouped(largest.units_of(granule))
        )
    }
}

/// A size of the bytes column, which has no unit there.
fn by_hand(text: &str) -> Result<Listed, String> {
    match text.trim().trim_end_matches(['B', 'b']).parse() {
        Ok(bytes) => Ok(Listed { shmid: None, size: Bytes(bytes), nattch: None }),
        Err(_) => Err("expected whole bytes, as ipcs -m prints them, such as 8592031744".to_owned()),
    }
}

/// The memory areas of a Java virtual machine that `-XX:+UseLargePages` puts into huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jvm {
    /// `-Xmx`.
    pub heap: Bytes,
    /// `-XX:MaxMetaspaceSize`; 0 if it stays in base pages, which is the default.
    pub metaspace: Bytes,
    /// `-XX:ReservedCodeCacheSize`; 0 if it stays in base pages.
    pub code_cache: Bytes,
}

/// Reads the name of a collector.
fn collector() -> impl TypedValueParser<Value = Collector> {
    PossibleValuesParser::new(Collector::ALL.map(|(name, _)| name)).map(|given| {
        let found = Collector::ALL.into_iter().find(|(name, _)| *name == given);
        found.map(|(_, collector)| collector).unwrap_or_default()
    })
}

impl FromStr for Jvm {
    type Err = String;

    fn from_str(text: &str) -> Result<Jvm, String> {
        let sizes = text.split(',').map(check::amount);
        match sizes.collect::<Result<Vec<Bytes>, _>>()?.as_slice() {
            [heap, rest @ ..] if rest.len() <= 2 => Ok(Jvm {
                heap: *heap,
                metaspace: rest.first().copied().unwrap_or_default(),
                code_cache: rest.get(1).copied().unwrap_or(jvm::CODE_CACHE),
            }),
            _ => Err("expected HEAP[,METASPACE[,CODECACHE]], such as 16GiB or 16GiB,0,240MiB".to_owned()),
        }
    }
}

/// Sizes the hugetlb pool.
///
/// # Errors
///
/// [`SizeError`] for nothing to size, an empty or impossible size, a page size that does not exist, more
/// nodes than pages, or a pool that does not fit `ram`.
pub fn hugepages(input: &HugepagesInput) -> Result<Answer, SizeError> {
    input.refuse_amm()?;
    let page = check::page("page", input.page)?;
    let huge = check::huge_page("huge_page", input.huge_page, page)?;
    let nodes = check::nodes(input.nodes)?;
    let rules = check::rules(input.kernel.as_deref())?;
    let ram = input.ram.map(|ram| check::memory("ram", ram)).transpose()?;
    let locked = check::memory_or_none("locked", input.locked)?;
    for (field, name) in [("user", &input.user), ("unit", &input.unit)] {
        if let Some(name) = name {
            check::word(field, name)?;
        }
    }
    let mut answer = Answer::new(format!("Huge pages of {huge}"));
    let needs = Needs::of(&mut answer, input, huge)?;
    let pages = needs.total()?;
    if pages == 0 {
        return Err(SizeError::Missing {
            field: "what the pool is for",
            accepted: "--segment, --ipcs, --postgres-pages, --postgres-vmpeak or --jvm; segments below one huge page \
                       do not count, and this source shows no others",
        });
    }
    let pages = sum(pages, of_others(&mut answer, input, huge))?;
    if u64::from(nodes) > pages {
        return Err(SizeError::MoreNodesThanPages { nodes, pages });
    }
    let pool = Pool { page, huge, pages, nodes };
    let size = check::times("the pool", huge, pages)?;
    answer.detail("pool", format!("{} x {huge}", Grouped(pages)), Value::Bytes(size));
    against_memory(&mut answer, input, &needs, size, ram, &pool)?;
    if let Some(sessions) = input.sessions {
        page_tables(&mut answer, input, sessions, page, huge)?;
    }
    if size >= Bytes::gib(64) {
        let saving = hvo_saving(huge, page);
        let saved = check::times("the vmemmap saving", saving, pages)?;
        answer.detail(
            "given back by vm.hugetlb_optimize_vmemmap=1",
            format!("{} x {saving}", Grouped(pages)),
            Value::Bytes(saved),
        );
    }
    let verb = match answer.fit.as_ref().and_then(|fit| fit.fits) {
        Some(false) => "The pool would need",
        _ => "Reserve",
    };
    answer.conclude(
        format!("{verb} {} huge pages of {huge}: {size}.", Grouped(pages)),
        Value::HugePages(pages),
    );
    let limit = memlock(&mut answer, needs.segments, huge, locked, ram);
    settings(&mut answer, input, &pool, limit);
    warnings(&mut answer, input, &pool, rules.memlock.rlimit_allows_hugetlb, limit);
    Ok(answer)
}

/// The pool that was found.
struct Pool {
    page: PageSize,
    huge: Bytes,
    /// Of `huge` bytes each.
    pages: u64,
    nodes: u32,
}

/// Huge pages by what they are for.
struct Needs {
    /// System V segments.
    segments: u64,
    /// Mappings that processes share by fork: PostgreSQL.
    mapped: u64,
    /// Private memory of JVMs.
    jvms: u64,
}

impl Needs {
    fn of(answer: &mut Answer, input: &HugepagesInput, huge: Bytes) -> Result<Needs, SizeError> {
        let segments = sum(configured(answer, input, huge)?, listed(answer, input, huge)?)?;
        if input.has_segments() && input.shared() < SCRIPT_MIN {
            answer.alert(format!(
                "The segments add up to {}. Oracle's script refuses sums below {SCRIPT_MIN}: is every instance \
                 running, and none of them with AMM?",
                input.shared()
            ));
        }
        let mut mapped = 0;
        for &mapping in &input.mapped {
            let own = check::memory("mapped", mapping)?.units_of(huge);
            answer.step(
                "shared mapping of a database that forks, rounded up",
                format!("{} kB / {} kB", Grouped(mapping.as_kib()), Grouped(huge.as_kib())),
                Value::HugePages(own),
            );
            mapped = sum(mapped, own)?;
        }
        if let Some(asked) = input.postgres_pages {
            mapped = sum(mapped, postgres_pages(answer, asked, huge)?)?;
        }
        if let Some(peak) = input.postgres_vmpeak {
            mapped = sum(mapped, postgres_peak(answer, peak, huge)?)?;
        }
        let mut jvms = 0;
        for (index, vm) in input.jvms.iter().enumerate() {
            jvms = sum(jvms, jvm(answer, index, vm, input.collector, huge)?)?;
        }
        Ok(Needs { segments, mapped, jvms })
    }

    fn total(&self) -> Result<u64, SizeError> {
        sum(sum(self.segments, self.mapped)?, self.jvms)
    }
}

/// Pages of the host's pool that something else than its segments uses, and that have to stay in it:
/// `vm.nr_hugepages` is the size of the whole pool.
fn of_others(answer: &mut Answer, input: &HugepagesInput, huge: Bytes) -> u64 {
    let Some(host) = &input.host else { return 0 };
    let pools = host.pools.iter().flatten();
    let promised: u64 = pools.filter(|pool| pool.size == huge).map(|pool| pool.promised).sum();
    let shared = host.shared.as_deref().unwrap_or_default();
    let told = input.of_host && shared.iter().all(|segment| segment.in_base_pages.is_some());
    if promised == 0 {
        return 0;
    }
    if !told {
        answer.alert(format!(
            "{} huge pages are in use or promised today. vm.nr_hugepages is the size of the whole pool: add those \
             that belong to other programs than are sized here.",
            Grouped(promised)
        ));
        return 0;
    }
    let own = shared.iter().filter(|segment| segment.in_base_pages == Some(false));
    let others = promised.saturating_sub(own.map(|segment| segment.size.units_of(huge)).sum());
    if others > 0 {
        answer.step(
            "in use by others than shared segments, which keep theirs",
            format!("{} - {}", Grouped(promised), Grouped(promised - others)),
            Value::HugePages(others),
        );
    }
    others
}

/// Sum of two page counts.
fn sum(a: u64, b: u64) -> Result<u64, SizeError> {
    a.checked_add(b).ok_or(SizeError::Overflow { what: "the sum of huge pages" })
}

/// Pages for segments of configured sizes, with each line of the three-number explanation.
fn configured(answer: &mut Answer, input: &HugepagesInput, huge: Bytes) -> Result<u64, SizeError> {
    if input.segments.is_empty() {
        return Ok(0);
    }
    let (mut held, mut promised, mut recommended) = (0, 0, 0);
    let (mut promises, mut scripts) = (Vec::new(), Vec::new());
    for &segment in &input.segments {
        check::memory("segments", segment)?;
        let own = segment.units_of(huge);
        answer.detail(format!("SGA of {segment}"), format!("{segment} / {huge}"), Value::HugePages(own));
        held = sum(held, own)?;
        promised = sum(promised, segment_pages(segment, huge))?;
        recommended = sum(recommended, sga_pages(segment, huge))?;
        promises.push(format!("({} + 1)", Grouped(own)));
        scripts.push(format!("({} + 1)", Grouped(segment_pages(segment, huge))));
    }
    let formula = |parts: &[String]| match parts.len() {
        0..=4 => parts.join(" + "),
        n => format!("{} + ... ({n} segments)", parts[0]),
    };
    answer.step("the SGAs alone", "", Value::HugePages(held));
    answer.step(
        "the kernel will promise: SGA and header page",
        formula(&promises),
        Value::HugePages(promised),
    );
    answer.step(
        "Oracle's script (MOS 401749.1): floor + 1 each",
        formula(&scripts),
        Value::HugePages(recommended),
    );
    answer.detail(
        "HugePages_Free - HugePages_Rsvd once all instances run",
        format!("{} - {}", Grouped(recommended), Grouped(promised)),
        Value::HugePages(recommended - promised),
    );
    Ok(recommended)
}

/// Pages for segments as `ipcs -m` lists them.
fn listed(answer: &mut Answer, input: &HugepagesInput, huge: Bytes) -> Result<u64, SizeError> {
    if input.listed.is_empty() {
        return Ok(0);
    }
    let (mut pages, mut counted) = (0, 0_u64);
    for segment in &input.listed {
        let size = check::memory("segments", segment.size)?;
        let own = script_pages(size, huge);
        let (formula, text) = match own {
            0 => (format!("{size} < {huge}"), "segment below one huge page, skipped".to_owned()),
            _ => (
                format!("floor({} / {}) + 1", Grouped(size.0), Grouped(huge.0)),
                format!("segment of {size}"),
            ),
        };
        answer.detail(text, formula, Value::HugePages(own));
        pages = sum(pages, own)?;
        counted += u64::from(own > 0);
    }
    answer.step(
        "Oracle's script (MOS 401749.1): floor(bytes / page) + 1 each",
        format!("{} of {} segments", Grouped(counted), Grouped(input.listed.len() as u64)),
        Value::HugePages(pages),
    );
    let orphans: Vec<String> = (input.listed.iter())
        .filter(|segment| segment.nattch == Some(0) && segment.size >= huge)
        .filter_map(|segment| Some(format!("{} ({})", segment.shmid?, segment.size)))
        .collect();
    if let Some(first) = orphans.first() {
        let more = match orphans.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        answer.alert(format!(
            "Nobody is attached to shmid {first}{more}, which the script counts too: if a crashed instance left it \
             behind, remove it (ipcrm -m) and size again."
        ));
    }
    Ok(pages)
}

/// What the server says of itself.
fn postgres_pages(answer: &mut Answer, pages: u64, huge: Bytes) -> Result<u64, SizeError> {
    check::number("postgres_pages", pages, 1, 1 << 44)?;
    answer.step("PostgreSQL: shared_memory_size_in_huge_pages", "", Value::HugePages(pages));
    answer.warn(format!(
        "shared_memory_size_in_huge_pages is computed for the server's own huge page size: set \
         huge_page_size = {huge} or leave it 0 where that is the kernel's default size. It can be asked \
         only while the server is stopped (postgres -D $PGDATA -C shared_memory_size_in_huge_pages)."
    ));
    Ok(pages)
}

/// Pages for all that the postmaster ever mapped.
fn postgres_peak(answer: &mut Answer, peak: Bytes, huge: Bytes) -> Result<u64, SizeError> {
    check::memory("postgres_vmpeak", peak)?;
    let pages = peak_pages(peak, huge);
    answer.step(
        "PostgreSQL to 14: VmPeak of the postmaster, rounded up",
        format!("{peak} / {huge}"),
        Value::HugePages(pages),
    );
    answer.warn(
        "VmPeak includes the program and its libraries, so the pool may be a little larger than needed. \
         From PostgreSQL 15 on ask the server: postgres -C shared_memory_size_in_huge_pages.",
    );
    Ok(pages)
}

/// Pages for one JVM.
fn jvm(
    answer: &mut Answer,
    index: usize,
    vm: &Jvm,
    collector: Collector,
    huge: Bytes,
) -> Result<u64, SizeError> {
    let areas = Areas {
        heap: check::memory("jvms.heap", vm.heap)?,
        metaspace: check::memory_or_none("jvms.metaspace", vm.metaspace)?,
        code_cache: check::memory_or_none("jvms.code_cache", vm.code_cache)?,
        collector,
    };
    let pages = jvm::pages(&areas, huge);
    let mut parts =
        vec![("heap", pages.heap), ("code cache", pages.code_cache), ("collector", pages.collector)];
    if vm.metaspace > Bytes::ZERO {
        parts.insert(1, ("metaspace", pages.metaspace));
    }
    let (names, figures): (Vec<&str>, Vec<String>) =
        parts.into_iter().map(|(name, pages)| (name, Grouped(pages).to_string())).unzip();
    answer.step(
        format!("JVM {}: {}", index + 1, fit::listed(&names)),
        figures.join(" + "),
        Value::HugePages(pages.total()),
    );
    Ok(pages.total())
}

/// Whether the pool fits, and what remains of the host.
fn against_memory(
    answer: &mut Answer,
    input: &HugepagesInput,
    needs: &Needs,
    size: Bytes,
    ram: Option<Bytes>,
    pool: &Pool,
) -> Result<(), SizeError> {
    let Some(ram) = ram else {
        if input.others.is_some() {
            return Err(SizeError::Missing { field: "ram", accepted: "the memory of the host, with others" });
        }
        answer.judge(
            None,
            format!(
                "Whether the pool of {size} fits is not known: {}.",
                not_told("the host's memory", "--ram SIZE with --others SIZE", input.sourced)
            ),
        );
        return Ok(());
    };
    if size >= ram {
        return Err(SizeError::PoolExceedsRam { pool: size, ram });
    }
    let share = size.share_of(ram) * 100.0;
    answer.detail("share of RAM", format!("{size} / {ram}"), Value::Percent(share));
    answer.detail("remains for everything else", format!("{ram} - {size}"), Value::Bytes(ram - size));
    if share > POOL_MAX_PERCENT as f64 {
        answer.alert(format!(
            "The pool takes more than {POOL_MAX_PERCENT} % of RAM (Oracle's limit). PGA, sessions, page tables, file \
             cache and kernel must live in {}; when they do not fit, the host swaps although the pool has spare pages.",
            ram - size
        ));
    }
    let nothing = HostMemory::default();
    let planned = Planned::pool(
        &PoolPlan {
            huge: pool.huge,
            page: pool.page,
            pool: size,
            shared: pool.huge.times(needs.segments.saturating_add(needs.mapped)),
            private: pool.huge.times(needs.jvms),
            of_host: input.of_host,
        },
        input.host.as_ref().unwrap_or(&nothing),
    );
    match (input.others, &input.host) {
        (Some(others), _) => fit::against_others(answer, &planned, ram, check::memory("others", others)?),
        (None, Some(host)) => fit::against_host(answer, &planned, ram, host),
        (None, None) => answer.judge(
            None,
            format!(
                "Whether it fits is not known: the pool of {size} leaves {} of {ram}, and what everything else needs \
                 was not given (--others SIZE, --from-host or --from FILE).",
                ram - size
            ),
        ),
    }
    Ok(())
}

/// The memlock limit in kB that System V segments and what is locked besides need, if anything does.
fn memlock(answer: &mut Answer, pages: u64, huge: Bytes, locked: Bytes, ram: Option<Bytes>) -> Option<u64> {
    if pages == 0 && locked == Bytes::ZERO {
        answer.step(
            "memlock: none, as mapped huge pages (PostgreSQL, JVMs) are under no limit",
            "",
            Value::Kib(0),
        );
        return None;
    }
    let needed = memlock_kib(huge.times(pages), locked);
    let mut formula = format!("{} x {} kB", Grouped(pages), Grouped(huge.as_kib()));
    if locked > Bytes::ZERO {
        formula += &format!(" + {} kB", Grouped(memlock_kib(Bytes::ZERO, locked)));
    }
    let text = match locked {
        Bytes::ZERO => "memlock for the segments in whole huge pages",
        _ => "memlock for the segments in whole huge pages, and --locked rounded up",
    };
    answer.step(text, formula, Value::Kib(needed));
    let Some(ram) = ram.filter(|_| pages > 0) else { return Some(needed) };
    let limit = needed.max(oracle_memlock_kib(ram));
    answer.step(
        "memlock to set (Oracle: 90 % of RAM)",
        format!("max({}, {} x 9 / 10)", Grouped(needed), Grouped(ram.as_kib())),
        Value::Kib(limit),
    );
    Some(limit)
}

/// Page tables of the sessions with base pages and with huge pages.
fn page_tables(
    answer: &mut Answer,
    input: &HugepagesInput,
    sessions: u64,
    page: PageSize,
    huge: Bytes,
) -> Result<(), SizeError> {
    check::number("sessions", sessions, 1, MAX_PROCESSES)?;
    let shared = input.shared();
    if shared == Bytes::ZERO {
        return Err(SizeError::Missing {
            field: "segments",
            accepted: "the segments that the sessions attach",
        });
    }
    let small = check::times(
        "page tables with base pages",
        tables(shared, Mapping::Base, page, Levels::Four).bytes(page),
        sessions,
    )?;
    answer.detail(
        format!("page tables with {} pages, at full touch", page.bytes()),
        format!("{} sessions x {}", Grouped(sessions), Bytes(small.0 / sessions)),
        Value::Bytes(small),
    );
    // A huge page below PMD size is a run of base pages and keeps their tables; PMD tables are shared between
    // processes only for pages of PMD size.
    let shares_pmd = huge == page.pmd_huge();
    let large = if shares_pmd {
        shared_hugetlb_tables(shared, sessions, page, Levels::Four).bytes(page)
    } else {
        let mapping = match huge {
            huge if huge < page.pmd_huge() => Mapping::Base,
            huge if huge < leaf(Mapping::Pud, page) => Mapping::Pmd,
            _ => Mapping::Pud,
        };
        let one = tables(shared, mapping, page, Levels::Four).bytes(page);
        check::times("page tables with huge pages", one, sessions)?
    };
    answer.detail(
        format!("page tables with {huge} pages"),
        if shares_pmd {
            "PMD tables of whole 1 GiB ranges shared".replace("1 GiB", &leaf(Mapping::Pud, page).to_string())
        } else {
            format!("{} sessions x {}", Grouped(sessions), Bytes(large.0 / sessions))
        },
        Value::Bytes(large),
    );
    answer.step(
        format!("page tables saved, once {} sessions have touched all", Grouped(sessions)),
        format!("{small} - {large}"),
        Value::Bytes(small - large),
    );
    if shared > WORTH_IT_SGA && sessions > WORTH_IT_SESSIONS {
        answer.detail(
            format!("more than {WORTH_IT_SGA} and more than {WORTH_IT_SESSIONS} sessions"),
            "definitely worth it",
            Value::Percent(if small == Bytes::ZERO { 0.0 } else { (small - large).share_of(small) * 100.0 }),
        );
    } else {
        answer.warn(format!(
            "With {shared} and {} sessions the page-table saving is {}. The rule of thumb calls huge pages \
             definitely worth it above {WORTH_IT_SGA} with more than {WORTH_IT_SESSIONS} sessions; below, the gain \
             is mainly in address translation and reclaim.",
            Grouped(sessions),
            small - large
        ));
    }
    answer.warn(
        "Page tables grow with what each session touches: the figures are for sessions that touch all of the \
         segments. Two observed hosts had touched 22 % and 43 %.",
    );
    Ok(())
}

/// `2M`, `1G`: the kernel's spelling of a huge page size.
fn spelled(huge: Bytes) -> String {
    match huge.0 {
        n if n >= GIB => format!("{}G", n / GIB),
        n if n >= MIB => format!("{}M", n / MIB),
        n => format!("{}K", n / 1024),
    }
}

/// What boot parameters are filed under.
const COMMAND_LINE: &str = "kernel command line";

/// The file that gives a service its limit.
fn drop_in(unit: &str) -> String {
    format!("/etc/systemd/system/{unit}.service.d/90-lotsfree.conf")
}

/// Configuration files and commands.
fn settings(answer: &mut Answer, input: &HugepagesInput, pool: &Pool, memlock_kib: Option<u64>) {
    let Pool { page, huge, pages, nodes } = *pool;
    let default_size = huge == page.pmd_huge();
    let sysfs = |node: usize| {
        format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/nr_hugepages", huge.as_kib())
    };
    let mut sysctl = Vec::new();
    if default_size {
        sysctl.push(format!("vm.nr_hugepages = {pages}"));
    }
    if let Some(group) = input.shm_group {
        sysctl.push(format!("vm.hugetlb_shm_group = {group}"));
    }
    if !sysctl.is_empty() {
        answer.sysctl_file("/etc/sysctl.d/90-lotsfree-hugepages.conf", sysctl);
    }
    let shares = split(pages, nodes);
    let counts = if nodes > 1 {
        let parts: Vec<String> =
            shares.iter().enumerate().map(|(node, share)| format!("{node}:{share}")).collect();
        parts.join(",")
    } else {
        pages.to_string()
    };
    let boot = vec![format!("hugepagesz={} hugepages={counts}", spelled(huge))];
    match default_size {
        true => answer.other_file(COMMAND_LINE, boot),
        // There is no sysctl for other sizes.
        false => answer.file(COMMAND_LINE, boot),
    }
    if let Some(kib) = memlock_kib {
        let user = input.user.as_deref().unwrap_or("<user>");
        answer.file(
            "/etc/security/limits.d/90-lotsfree-hugepages.conf",
            vec![format!("{user} - memlock {kib}")],
        );
        let lines = vec!["[Service]".into(), "LimitMEMLOCK=infinity".into()];
        match &input.unit {
            Some(unit) => answer.file(drop_in(unit), lines),
            None => answer.other_file(drop_in("<unit>"), lines),
        }
    }

    answer.command("echo 1 > /proc/sys/vm/compact_memory");
    if nodes > 1 {
        for (node, share) in shares.iter().enumerate() {
            answer.command(format!("echo {share} > {}", sysfs(node)));
        }
        let files =
            format!("/sys/devices/system/node/node*/hugepages/hugepages-{}kB/nr_hugepages", huge.as_kib());
        answer.check(format!("grep . {files}"), format!("{counts} (node:pages)"));
    } else if default_size {
        answer.command(format!("sysctl -w vm.nr_hugepages={pages}"));
        answer.check("grep HugePages_Total /proc/meminfo", pages);
    } else {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", huge.as_kib());
        answer.command(format!("echo {pages} > {path}"));
        answer.check(format!("cat {path}"), pages);
    }
    answer.restart(
        "If it is less, reboot with these lines. Then restart the programs, by unit or from a new login.",
    );
}

/// What goes wrong with pools, in the order in which it is met.
fn warnings(
    answer: &mut Answer,
    input: &HugepagesInput,
    pool: &Pool,
    rlimit_allows: bool,
    memlock_kib: Option<u64>,
) {
    let Pool { page, huge, nodes, .. } = *pool;
    answer.warn(
        "Growing the pool on a running host stops at the first page that cannot be assembled, without an error: read \
         the value back. The boot parameter does not have this problem. Growing may also make the host swap.",
    );
    if huge >= Bytes::gib(1) {
        answer.alert(
            "Pages of 1 GiB and more are rarely found on a host that has been running: reserve them at boot.",
        );
    }
    if huge != page.pmd_huge() {
        answer.alert(format!(
            "{huge} is not the kernel's default huge page size: vm.nr_hugepages and HugePages_* of /proc/meminfo speak of \
             the default size. Set the program's huge page size explicitly."
        ));
    }
    if nodes > 1 {
        answer.warn(
            "vm.nr_hugepages in sysctl.d spreads the pages over the nodes as memory allows. The node counts on the \
             kernel command line need 5.16 or newer; before that, write the per-node files from a start-up unit.",
        );
    }
    if input.has_segments()
        || input.postgres_pages.is_some()
        || input.postgres_vmpeak.is_some()
        || !input.mapped.is_empty()
    {
        answer.alert(
            "It is all or nothing: a segment that finds too few free pages gets small ones, and the pool lies idle. Set \
             use_large_pages=only (Oracle) or huge_pages=on (PostgreSQL).",
        );
        answer.warn(
            "Transparent huge pages are no substitute: they do not apply to System V segments by default, and for \
             private memory they save no page tables.",
        );
    }
    if let Some(kib) = memlock_kib.filter(|_| input.has_segments()) {
        segment_warnings(answer, input, pool, rlimit_allows, kib);
    }
    if !input.jvms.is_empty() {
        answer.alert(
            "Give Java -XX:+UseLargePages. Where its heap does not fit the pool it goes on in base pages after a \
             warning, and the pool lies idle: grep anon_hugepage /proc/PID/maps tells.",
        );
        answer.warn(
            "The collector's tables are those of JDK 17, at the default NewRatio; later releases take less with G1 and \
             Parallel.",
        );
        answer.warn(
            "A JVM with -XX:+UseSHM takes System V segments instead of mappings, and then needs a memlock limit or the \
             group of vm.hugetlb_shm_group as other programs with segments do.",
        );
    }
    answer.warn(
        "The pool is lost to everything else at once: MemAvailable falls by all of it, CommitLimit by \
         overcommit_ratio per cent of it.",
    );
}

/// What System V segments in huge pages ask of limits and permissions.
fn segment_warnings(
    answer: &mut Answer,
    input: &HugepagesInput,
    pool: &Pool,
    rlimit_allows: bool,
    memlock_kib: u64,
) {
    let Pool { page, huge, pages, .. } = *pool;
    let mut permission = if rlimit_allows {
        "SHM_HUGETLB needs CAP_IPC_LOCK, membership in vm.hugetlb_shm_group, or a memlock limit above the segment. \
         From 6.1 on the limit no longer opens it: set vm.hugetlb_shm_group before an upgrade."
            .to_owned()
    } else {
        "From 6.1 on SHM_HUGETLB needs CAP_IPC_LOCK or the group of vm.hugetlb_shm_group: a memlock limit alone gives \
         EPERM."
            .to_owned()
    };
    if input.shm_group.is_none() {
        permission += " --shm-group GID gives the line.";
        answer.alert(permission);
    } else {
        answer.warn(permission);
    }
    let configured = input.segments.iter().map(|&size| segment_pages(size, huge));
    let listed = input.listed.iter().map(|listed| listed.size.units_of(huge));
    answer.warn(format!(
        "kernel.shmmax must be at least {} (the largest segment in whole huge pages), and kernel.shmall at least {} \
         base pages for all segments of the host.",
        huge.times(configured.chain(listed).max().unwrap_or(0)).0,
        page.pages(huge.times(pages))
    ));
    answer.warn(format!(
        "The limit that counts is that of the running process (/proc/PID/limits). limits.d reaches only logins \
         through PAM: instances started by srvctl, ohasd or systemd need the unit's LimitMEMLOCK, or ulimit -l \
         {memlock_kib} in the start script."
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Step;

    fn value(answer: &Answer, text: &str) -> Value {
        let steps: Vec<&Step> = answer.steps.iter().filter(|step| step.text.contains(text)).collect();
        assert_eq!(steps.len(), 1, "{text}: {:#?}", answer.steps);
        steps[0].value
    }

    fn lines(answer: &Answer, path: &str) -> Vec<String> {
        answer.configuration.iter().find(|file| file.path.contains(path)).unwrap().lines.clone()
    }

    fn two_instances() -> HugepagesInput {
        HugepagesInput { segments: vec![Bytes::gib(8), Bytes::mib(1536)], ..HugepagesInput::default() }
    }

    #[test]
    fn two_instances_need_4868_pages() {
        let answer = hugepages(&two_instances()).unwrap();
        assert_eq!(answer.result.value, Value::HugePages(4868));
        assert_eq!(value(&answer, "SGAs alone"), Value::HugePages(4864));
        assert_eq!(value(&answer, "kernel will promise"), Value::HugePages(4866));
        assert_eq!(value(&answer, "MOS 401749.1"), Value::HugePages(4868));
        assert_eq!(value(&answer, "HugePages_Free"), Value::HugePages(2));
        let script = answer.steps.iter().find(|step| step.text.contains("401749")).unwrap();
        assert_eq!(script.formula, "(4,097 + 1) + (769 + 1)");
        assert_eq!(lines(&answer, "sysctl.d"), ["vm.nr_hugepages = 4868"]);
        assert_eq!(lines(&answer, "command line"), ["hugepagesz=2M hugepages=4868"]);
        assert_eq!(lines(&answer, "limits.d"), ["<user> - memlock 9969664"]);
    }

    fn listing(sizes: &[Bytes]) -> Vec<Listed> {
        sizes.iter().map(|&size| Listed { shmid: Some(7), size, nattch: Some(1) }).collect()
    }

    #[test]
    fn sizes_of_ipcs_get_only_the_scripts_page() {
        let of = |sizes: &[Bytes]| HugepagesInput { listed: listing(sizes), ..HugepagesInput::default() };
        let answer = hugepages(&of(&[Bytes::mib(8194), Bytes::mib(1538), Bytes::kib(4)])).unwrap();
        assert_eq!(answer.result.value, Value::HugePages(4868));
        assert_eq!(value(&answer, "skipped"), Value::HugePages(0));
        assert!(matches!(
            hugepages(&of(&[Bytes::kib(4)])),
            Err(SizeError::Missing { field: "what the pool is for", .. })
        ));
        assert!(
            hugepages(&of(&[Bytes::mib(99)])).unwrap().warnings[0].contains("refuses sums below 100 MiB")
        );
    }

    #[test]
    fn a_listed_segment_without_processes_is_counted_and_named() {
        let mut input = HugepagesInput { listed: listing(&[Bytes::gib(8)]), ..HugepagesInput::default() };
        assert!(!hugepages(&input).unwrap().warnings[0].contains("shmid"));
        input.listed[0].nattch = Some(0);
        let answer = hugepages(&input).unwrap();
        assert_eq!(answer.result.value, Value::HugePages(4097));
        assert!(answer.warnings[0].starts_with("Nobody is attached to shmid 7 (8 GiB)"), "{answer:?}");
    }

    #[test]
    fn amm_is_refused_with_what_to_set_instead() {
        let amm = |input: HugepagesInput| HugepagesInput { amm: true, ..input };
        let said = hugepages(&amm(two_instances())).unwrap_err().to_string();
        for expected in [
            "cannot use huge pages",
            "memory_target=0",
            "sga_target and pga_aggregate_target",
            "Then: lotsfree size hugepages --segment 8388608kB --segment 1572864kB",
        ] {
            assert!(said.contains(expected), "{expected}: {said}");
        }
        let files = "idle beside it; and each process opens a file for each of at least 512 granules of 16 MiB (8 GiB, 11.2 \
             and later), which ulimit -n has to exceed. Set";
        assert!(said.contains(files), "{said}");
        let mut unknown = amm(HugepagesInput::default());
        let said = unknown.take_from(&HostFigures::default()).unwrap_err().to_string();
        assert!(said.ends_with("lotsfree size hugepages --segment SGA_MAX_SIZE"), "{said}");
        assert!(said.contains("idle beside it. Set"), "{said}");
    }

    #[test]
    fn memlock_is_for_segments_and_its_steps_say_why() {
        let formula = |answer: &Answer, text: &str| {
            answer.steps.iter().find(|step| step.text.starts_with(text)).map(|step| step.formula.clone())
        };
        let base = two_instances();
        let answer = hugepages(&HugepagesInput { locked: Bytes(1025), ..base.clone() }).unwrap();
        assert_eq!(value(&answer, "memlock for the segments"), Value::Kib(9_969_666));
        assert_eq!(formula(&answer, "memlock for").unwrap(), "4,868 x 2,048 kB + 2 kB");
        let answer = hugepages(&HugepagesInput { ram: Some(Bytes::gib(64)), ..base.clone() }).unwrap();
        assert_eq!(formula(&answer, "memlock for").unwrap(), "4,868 x 2,048 kB");
        assert_eq!(value(&answer, "memlock to set"), Value::Kib(60_397_977));
        assert_eq!(formula(&answer, "memlock to set").unwrap(), "max(9,969,664, 67,108,864 x 9 / 10)");
        // A pool for PostgreSQL beside them changes nothing, and alone needs no limit.
        let both = hugepages(&HugepagesInput { postgres_pages: Some(1064), ..base }).unwrap();
        assert_eq!(value(&both, "memlock for the segments"), Value::Kib(9_969_664));
        let postgres = HugepagesInput { postgres_pages: Some(1064), ..HugepagesInput::default() };
        let answer = hugepages(&postgres).unwrap();
        assert_eq!(value(&answer, "memlock: none"), Value::Kib(0));
        assert!(!answer.configuration.iter().any(|file| file.path.contains("limits.d")));
    }

    #[test]
    fn the_readers_host_is_within_the_cap_and_names_what_remains() {
        let input = HugepagesInput {
            ram: Some(Bytes::mib(15_955)),
            user: Some("oracle".into()),
            unit: Some("ohasd".into()),
            shm_group: Some(1001),
            ..two_instances()
        };
        let answer = hugepages(&input).unwrap();
        assert_eq!(value(&answer, "remains"), Value::Bytes(Bytes::mib(15_955 - 9736)));
        assert!(!answer.warnings.iter().any(|text| text.contains("70 %")));
        // 90 % of RAM exceeds the pool: 15955 MiB = 16337920 kB
        assert_eq!(lines(&answer, "limits.d")[0], "oracle - memlock 14704128");
        assert_eq!(lines(&answer, "ohasd.service.d"), ["[Service]", "LimitMEMLOCK=infinity"]);
        assert_eq!(lines(&answer, "sysctl.d")[1], "vm.hugetlb_shm_group = 1001");
        let tight = HugepagesInput { ram: Some(Bytes::gib(12)), ..two_instances() };
        assert!(hugepages(&tight).unwrap().warnings[0].contains("70 %"));
        let full = HugepagesInput { ram: Some(Bytes::gib(9)), ..two_instances() };
        assert_eq!(
            hugepages(&full),
            Err(SizeError::PoolExceedsRam { pool: Bytes::mib(9736), ram: Bytes::gib(9) })
        );
    }

    #[test]
    fn a_pool_that_starves_the_rest_is_named() {
        let with =
            |others| HugepagesInput { ram: Some(Bytes::gib(16)), others: Some(others), ..two_instances() };
        // 16384 - 9736 - 819 MiB remain
        let fit = |others| hugepages(&with(others)).unwrap().fit.unwrap();
        assert_eq!(fit(Bytes::mib(5828)).fits, Some(true));
        let tight = fit(Bytes::mib(5830));
        assert_eq!(tight.fits, Some(false));
        assert_eq!(
            tight.text,
            "It does not fit: pool 9.51 GiB of 16 GiB; the 5.69 GiB of --others leave 818 MiB for the page cache, less \
             than 5 % of memory (819 MiB). Make the pool 1.20 MiB smaller, or add memory."
        );
        let input = HugepagesInput { ram: None, ..with(Bytes::gib(1)) };
        assert!(matches!(hugepages(&input), Err(SizeError::Missing { field: "ram", .. })));
    }

    #[test]
    fn shm_limits_hold_the_largest_segment() {
        let answer = hugepages(&two_instances()).unwrap();
        // 4097 huge pages; 4868 huge pages in base pages
        let text = answer.warnings.iter().find(|text| text.contains("shmmax")).unwrap();
        assert!(text.contains("at least 8592031744 (") && text.contains("at least 2492416 base"), "{text}");
    }

    #[test]
    fn sessions_decide_whether_it_is_worth_it() {
        let sga = |gib, sessions| HugepagesInput {
            segments: vec![Bytes::gib(gib)],
            sessions: Some(sessions),
            ..HugepagesInput::default()
        };
        let answer = hugepages(&sga(34, 400)).unwrap();
        // 17408 PTE tables, 34 PMD tables, PUD and PGD: 69776 kB each
        assert_eq!(value(&answer, "with 4 KiB pages"), Value::Bytes(Bytes::kib(69_776 * 400)));
        // 34 PMD tables for all, PUD and PGD each
        assert_eq!(value(&answer, "with 2 MiB pages"), Value::Bytes(Bytes::kib(4 * (34 + 2 * 400))));
        assert!(answer.steps.iter().any(|step| step.formula == "definitely worth it"));
        let giant = HugepagesInput { huge_page: Some(Bytes::gib(1)), ..sga(34, 400) };
        // PUD and PGD each
        assert_eq!(value(&hugepages(&giant).unwrap(), "with 1 GiB pages"), Value::Bytes(Bytes::kib(8 * 400)));
        let run = HugepagesInput { huge_page: Some(Bytes::mib(32)), ..sga(34, 400) };
        assert_eq!(
            value(&hugepages(&run).unwrap(), "with 32 MiB pages"),
            Value::Bytes(Bytes::kib(4 * 36 * 400))
        );
        for (gib, sessions) in [(16, 400), (34, 100)] {
            let answer = hugepages(&sga(gib, sessions)).unwrap();
            assert!(!answer.steps.iter().any(|step| step.formula == "definitely worth it"));
            assert!(answer.warnings.iter().any(|text| text.contains("rule of thumb")));
        }
    }

    #[test]
    fn postgres_and_jvm_add_up() {
        let jvm = Jvm { heap: Bytes::gib(5), metaspace: Bytes::mib(255), code_cache: Bytes::mib(240) };
        let input = HugepagesInput {
            postgres_vmpeak: Some(Bytes::kib(6_490_428)),
            jvms: vec![jvm],
            ..HugepagesInput::default()
        };
        // 5 GiB, 255 and 240 MiB; three tables of 10 MiB and two bitmaps of 80 MiB
        let jvm = 2560 + 128 + 120 + 3 * 5 + 2 * 40;
        assert_eq!(hugepages(&input).unwrap().result.value, Value::HugePages(3170 + jvm));
        let input = HugepagesInput { postgres_pages: Some(4250), ..HugepagesInput::default() };
        assert_eq!(hugepages(&input).unwrap().result.value, Value::HugePages(4250));
    }

    #[test]
    fn a_heap_alone_brings_the_default_code_cache_and_the_collector() {
        let of = |collector| {
            let jvms = vec!["2GiB".parse().unwrap()];
            hugepages(&HugepagesInput { jvms, collector, ..HugepagesInput::default() }).unwrap()
        };
        let answer = of(Collector::default());
        let step = answer.steps.iter().find(|step| step.text.starts_with("JVM 1")).unwrap();
        assert_eq!(step.text, "JVM 1: heap, code cache and collector");
        assert_eq!((&*step.formula, step.value), ("1,024 + 120 + 38", Value::HugePages(1182)));
        assert_eq!(of(Collector::Z).result.value, Value::HugePages(1144));
        let without: Jvm = "2GiB,0,0".parse().unwrap();
        assert_eq!((without.metaspace, without.code_cache), (Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn the_last_command_says_what_it_should_print_and_what_has_to_restart() {
        let last = |input: HugepagesInput| {
            let answer = hugepages(&input).unwrap();
            assert!(answer.restart.unwrap().contains("Then restart the programs"));
            answer.commands.last().unwrap().clone()
        };
        assert_eq!(last(two_instances()), "grep HugePages_Total /proc/meminfo  # 4868");
        assert_eq!(
            last(HugepagesInput { nodes: Some(3), ..two_instances() }),
            "grep . /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages  # 0:1623,1:1623,2:1622 \
             (node:pages)"
        );
    }

    #[test]
    fn nodes_share_the_pool() {
        let answer = hugepages(&HugepagesInput { nodes: Some(3), ..two_instances() }).unwrap();
        assert_eq!(lines(&answer, "command line"), ["hugepagesz=2M hugepages=0:1623,1:1623,2:1622"]);
        assert!(
            answer.commands[3]
                .ends_with("1622 > /sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages")
        );
        let input = HugepagesInput { postgres_pages: Some(2), nodes: Some(3), ..HugepagesInput::default() };
        assert_eq!(hugepages(&input), Err(SizeError::MoreNodesThanPages { nodes: 3, pages: 2 }));
    }

    #[test]
    fn other_page_sizes_have_no_sysctl() {
        let answer =
            hugepages(&HugepagesInput { huge_page: Some(Bytes::gib(1)), ..two_instances() }).unwrap();
        // (8 + 1 + 1) + (2 + 1 + 1)
        assert_eq!(answer.result.value, Value::HugePages(14));
        assert!(!answer.configuration.iter().any(|file| file.path.contains("sysctl.d")));
        assert_eq!(lines(&answer, "command line"), ["hugepagesz=1G hugepages=14"]);
        assert!(answer.commands[1].contains("hugepages-1048576kB"));
        assert!(answer.warnings.iter().any(|text| text.contains("not the kernel's default")));
    }

    #[test]
    fn who_may_use_the_pool_depends_on_the_kernel() {
        let has = |input: &HugepagesInput, text: &str| {
            hugepages(input).unwrap().warnings.iter().any(|warning| warning.contains(text))
        };
        let input = two_instances();
        assert!(has(&input, "gives EPERM"));
        let old = HugepagesInput { kernel: Some("5.15.0-91-generic".into()), ..input };
        assert!(has(&old, "no longer opens it"));
    }

    #[test]
    fn a_terabyte_pool_gives_14_gib_back() {
        let input = HugepagesInput { postgres_pages: Some(1 << 19), ..HugepagesInput::default() };
        assert_eq!(value(&hugepages(&input).unwrap(), "given back"), Value::Bytes(Bytes::gib(14)));
    }

    #[test]
    fn bad_input_is_named() {
        let message = |input: HugepagesInput| hugepages(&input).unwrap_err().to_string();
        let base = two_instances();
        assert_eq!(
            message(HugepagesInput { segments: vec![Bytes::ZERO], ..base.clone() }),
            "segments is 0; accepted is an amount of memory from 1 byte to 65536 TiB, such as 8GiB"
        );
        assert_eq!(
            message(HugepagesInput { huge_page: Some(Bytes(3_000_000)), ..base.clone() }),
            "huge_page is 3,000,000 bytes; accepted is a power of two above 4 KiB and up to 16 GiB, such as 2MiB or 1GiB"
        );
        assert_eq!(
            message(HugepagesInput { page: Some(Bytes(0)), ..base.clone() }),
            "page is 0 bytes; accepted is a power of two from 4 KiB to 64 KiB"
        );
        assert_eq!(
            message(HugepagesInput { nodes: Some(0), ..base.clone() }),
            "nodes is 0; accepted is a number from 1 to 1,024"
        );
        assert!(
            message(HugepagesInput { kernel: Some("six".into()), ..base.clone() }).contains("linux-6.12")
        );
        assert!(message(HugepagesInput { user: Some("a b".into()), ..base }).starts_with("user is \"a b\""));
        assert!(
            message(HugepagesInput::default()).starts_with("what the pool is for is missing; give --segment")
        );
    }
}
