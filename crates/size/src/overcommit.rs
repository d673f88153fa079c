//! `size overcommit`: what the kernel lets programs ask for, and how to set a wanted limit.

use clap::Args;
use lotsfree_formulas::overcommit::{
    Asker, CommitState, DEFAULT_RATIO, Heuristic, LimitSetting, Mode, commit_limit, kbytes_for_limit,
    largest_request, ratio_for_limit,
};
use lotsfree_formulas::reserve::{ReserveZone, totalreserve_pages};
use lotsfree_settings::{OVERCOMMIT_KBYTES, OVERCOMMIT_RATIO};
use lotsfree_units::{Bytes, Grouped, PageSize};

use crate::answer::NO_RESTART;
use crate::check::{self, SizeError};
use crate::question::{HostFigures, Question, not_told, take};
use crate::{Answer, Value};

/// Largest `vm.overcommit_ratio` accepted here, in percent; the kernel itself takes any.
const RATIO_MAX: u64 = 100_000;

/// The host, its settings, and who asks.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct OvercommitInput {
    /// Whether figures of a host or a saved source were taken.
    #[arg(skip)]
    pub sourced: bool,
    /// Memory of the host
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub ram: Option<Bytes>,
    /// All huge page pools
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub hugetlb: Option<Bytes>,
    /// Swap
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub swap: Option<Bytes>,
    /// Committed_AS
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub committed: Option<Bytes>,
    /// vm.overcommit_ratio in percent
    #[arg(long, value_name = "PERCENT", conflicts_with = "kbytes")]
    pub ratio: Option<u64>,
    /// vm.overcommit_kbytes, as an amount of memory
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub kbytes: Option<Bytes>,
    /// CommitLimit that is wanted
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub wanted: Option<Bytes>,
    /// vm.admin_reserve_kbytes, as an amount of memory
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub admin_reserve: Option<Bytes>,
    /// vm.user_reserve_kbytes, as an amount of memory
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub user_reserve: Option<Bytes>,
    /// The asker has CAP_SYS_ADMIN
    #[arg(long)]
    pub admin: bool,
    /// Address space of the asking process (VmSize)
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = check::amount)]
    pub vm_size: Bytes,
    /// What mode 0 looks at on kernels before 5.2; only a host can give it.
    #[arg(skip)]
    pub cache: Option<CacheFigures>,
    /// Base page size
    #[arg(long = "page-size", value_name = "SIZE", value_parser = check::amount)]
    pub page: Option<Bytes>,
    /// Kernel release whose rules apply [default: the host's, else the newest]
    #[arg(long, value_name = "RELEASE")]
    pub kernel: Option<String>,
}

impl Question for OvercommitInput {
    fn take_from(&mut self, host: &HostFigures) -> Result<(), SizeError> {
        self.sourced = true;
        take(&mut self.ram, host.ram);
        take(&mut self.hugetlb, host.hugetlb);
        take(&mut self.swap, host.swap);
        take(&mut self.committed, host.committed);
        take(&mut self.admin_reserve, host.admin_reserve);
        take(&mut self.user_reserve, host.user_reserve);
        // The kernel zeroes one of the two when the other is set: what was given counts, else kbytes if set.
        if self.ratio.is_none() && self.kbytes.is_none() {
            self.kbytes = host.overcommit_kbytes.filter(|&bytes| bytes > Bytes::ZERO);
            self.ratio = host.overcommit_ratio.filter(|_| self.kbytes.is_none());
        }
        take(&mut self.cache, host.cache.clone());
        take(&mut self.page, host.page);
        take(&mut self.kernel, host.kernel.clone());
        Ok(())
    }

    fn kernel(&self) -> Option<Option<&str>> {
        Some(self.kernel.as_deref())
    }

    fn answer(&self) -> Result<Answer, SizeError> {
        overcommit(self)
    }
}

/// The part of `/proc/meminfo` that the older estimate of mode 0 uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// `MemFree`.
    pub free: Bytes,
    /// `Cached` + `Buffers` + `SwapCached`.
    pub file: Bytes,
    /// `Shmem`.
    pub shmem: Bytes,
    /// `SReclaimable`.
    pub slab_reclaimable: Bytes,
    /// `SwapFree`.
    pub swap_free: Bytes,
    /// What each zone keeps back, for `totalreserve_pages`.
    pub zones: Vec<ReserveZone>,
}

/// The largest default of `vm.admin_reserve_kbytes`.
const ADMIN_RESERVE: Bytes = Bytes::mib(8);
/// The largest default of `vm.user_reserve_kbytes`.
const USER_RESERVE: Bytes = Bytes::mib(128);

/// Computes commit limits.
///
/// # Errors
///
/// [`SizeError`] for an empty or impossible amount, `ratio` together with `kbytes`, a setting or a kernel
/// without rules, pools that leave no RAM, or a wanted limit that swap alone exceeds.
pub fn overcommit(input: &OvercommitInput) -> Result<Answer, SizeError> {
    let page = check::page("page", input.page)?;
    let host = Amounts::of(input)?;
    let Amounts { ram, hugetlb, swap, committed } = host;
    let kernel = check::rules(input.kernel.as_deref())?;
    let rules =
        kernel.overcommit.ok_or_else(|| check::unread(&kernel, "2.6.32 of RHEL 6, or 3.10 and newer"))?;
    let setting = setting(input)?;
    if matches!(setting, LimitSetting::Kbytes(_)) && !rules.kbytes {
        return Err(SizeError::OutOfRange {
            field: "kbytes",
            value: "given".into(),
            accepted: format!("ratio: {} has no vm.overcommit_kbytes", kernel.name),
        });
    }
    let state = commit_state(input, &host, page)?;
    let asker = Asker { admin: input.admin, total_vm: page.pages(input.vm_size) };
    let mut answer = Answer::new(format!("Commit limits of a host with {ram} ({})", kernel.name));

    let net = host.net();
    answer.step("RAM outside huge pages", format!("{ram} - {hugetlb}"), Value::Bytes(net));
    let limit_pages = commit_limit(&rules, setting, state.ram, state.hugetlb, state.swap, page);
    let limit = page.of(limit_pages);
    let formula = match setting {
        LimitSetting::Kbytes(kib) if kib > 0 => format!("{} kB + {swap}", Grouped(kib)),
        LimitSetting::Kbytes(_) => format!("{DEFAULT_RATIO} % x {net} + {swap}"),
        LimitSetting::Ratio(percent) => format!("{} % x {net} + {swap}", Grouped(percent)),
    };
    answer.step("CommitLimit", formula, Value::Bytes(limit));
    if hugetlb > Bytes::ZERO {
        let without = page.of(commit_limit(&rules, setting, state.ram, 0, state.swap, page));
        answer.detail(
            "taken off by the hugetlb pools",
            format!("{without} - {limit}"),
            Value::Bytes(without - limit),
        );
    }
    let share = if limit == Bytes::ZERO { 0.0 } else { committed.share_of(limit) * 100.0 };
    if committed > Bytes::ZERO {
        answer.step("Committed_AS of the limit", format!("{committed} / {limit}"), Value::Percent(share));
    }
    let request = |mode| match largest_request(&rules, mode, limit_pages, &state, &asker) {
        None => Value::Unlimited,
        Some(pages) => Value::Bytes(page.of(pages)),
    };
    modes(&mut answer, rules.heuristic, &host, input, request);
    let promised = input.committed.map(|_| committed);
    judge(&mut answer, promised, input.wanted.unwrap_or(limit), input);
    if let Some(wanted) = input.wanted {
        wanted_limit(&mut answer, rules.kbytes, &host, check::memory("wanted", wanted)?)?;
    } else {
        answer.conclude(format!("Mode 2 would promise up to {limit}."), Value::Bytes(limit));
    }
    warnings(&mut answer, committed > limit);
    Ok(answer)
}

/// Whether what is promised already is within the limit of mode 2, as it is or as it is wanted.
fn judge(answer: &mut Answer, promised: Option<Bytes>, limit: Bytes, input: &OvercommitInput) {
    let which = if input.wanted.is_some() { "wanted limit" } else { "limit" };
    let Some(promised) = promised else {
        return answer.judge(
            None,
            format!(
                "Whether the {which} of {limit} suffices is not known: {}.",
                not_told("Committed_AS", "--committed SIZE", input.sourced)
            ),
        );
    };
    let (fits, text) = match promised <= limit {
        true => (
            true,
            format!(
                "It fits: {promised} of the {which} of {limit} are promised already (Committed_AS), {} can still be.",
                limit - promised
            ),
        ),
        false => (
            false,
            format!(
                "It does not fit: {promised} are promised already (Committed_AS), {} more than the {which} of {limit}. \
                 Mode 2 would refuse every further request, a fork and a login too.",
                promised - limit
            ),
        ),
    };
    answer.judge(Some(fits), text);
}

/// The host as the kernel's formulas take it, in pages.
fn commit_state(input: &OvercommitInput, host: &Amounts, page: PageSize) -> Result<CommitState, SizeError> {
    let amount =
        |field, given: Option<Bytes>, default| check::memory_or_none(field, given.unwrap_or(default));
    let admin_reserve = amount("admin_reserve", input.admin_reserve, ADMIN_RESERVE)?;
    let user_reserve = amount("user_reserve", input.user_reserve, USER_RESERVE)?;
    check::memory_or_none("vm_size", input.vm_size)?;
    let pages = |bytes: Bytes| page.pages(bytes);
    let mut state = CommitState {
        ram: pages(host.ram),
        hugetlb: pages(host.hugetlb),
        swap: pages(host.swap),
        committed: pages(host.committed),
        admin_reserve: pages(admin_reserve),
        user_reserve: pages(user_reserve),
        ..CommitState::default()
    };
    let Some(cache) = &input.cache else { return Ok(state) };
    for (field, bytes) in [
        ("cache.free", cache.free),
        ("cache.file", cache.file),
        ("cache.shmem", cache.shmem),
        ("cache.slab_reclaimable", cache.slab_reclaimable),
        ("cache.swap_free", cache.swap_free),
    ] {
        check::memory_or_none(field, bytes)?;
    }
    state.free = pages(cache.free);
    state.file = pages(cache.file);
    state.shmem = pages(cache.shmem);
    state.slab_reclaimable = pages(cache.slab_reclaimable);
    state.swap_free = pages(cache.swap_free);
    state.total_reserve = totalreserve_pages(cache.zones.iter().copied());
    Ok(state)
}

/// `exceeded`: more is promised already than the limit.
fn warnings(answer: &mut Answer, exceeded: bool) {
    if exceeded {
        answer.alert(
            "Committed_AS exceeds the limit. In modes 0 and 1 that means nothing: the limit is enforced in mode 2 \
             only. Switching to mode 2 now would refuse every further request.",
        );
    }
    answer.warn(
        "Mode 2 refuses fork() of a large process, and programs that reserve address space they never touch (JVM, \
         Go). Redis and MongoDB 8 ask for mode 1, SAP HANA for 0. Raise vm.admin_reserve_kbytes to about 128 MiB in \
         mode 2, so that root can still log in.",
    );
    answer.warn("Setting vm.overcommit_ratio zeroes vm.overcommit_kbytes and the other way round: note both for undo, and keep only one of them in the files.");
    answer.correct(
        "\"Half of RAM is always available in mode 2\": hugetlb pools are taken off first. With 800 of 1,024 GiB in \
         huge pages and no swap, 112 GiB can be promised, not 512.",
    );
}

/// What the host has and has promised, 0 where it was not given.
#[derive(Clone, Copy)]
struct Amounts {
    ram: Bytes,
    hugetlb: Bytes,
    swap: Bytes,
    committed: Bytes,
}

impl Amounts {
    fn of(input: &OvercommitInput) -> Result<Amounts, SizeError> {
        let ram = check::ram(input.ram, input.sourced)?;
        let amount = |field, given: Option<Bytes>| check::memory_or_none(field, given.unwrap_or_default());
        let hugetlb = amount("hugetlb", input.hugetlb)?;
        if hugetlb > ram {
            return Err(SizeError::PoolExceedsRam { pool: hugetlb, ram });
        }
        let (swap, committed) = (amount("swap", input.swap)?, amount("committed", input.committed)?);
        Ok(Amounts { ram, hugetlb, swap, committed })
    }

    /// What mode 2 counts of RAM.
    fn net(&self) -> Bytes {
        self.ram - self.hugetlb
    }
}

/// The setting that counts.
fn setting(input: &OvercommitInput) -> Result<LimitSetting, SizeError> {
    match (input.ratio, input.kbytes) {
        (Some(_), Some(_)) => Err(SizeError::Conflict {
            first: "ratio",
            second: "kbytes",
            accepted: "the kernel zeroes one when the other is set",
        }),
        (Some(ratio), None) => check::number("ratio", ratio, 0, RATIO_MAX).map(LimitSetting::Ratio),
        (None, Some(bytes)) => {
            check::memory_or_none("kbytes", bytes).map(|bytes| LimitSetting::Kbytes(bytes.as_kib()))
        }
        (None, None) => Ok(LimitSetting::Ratio(DEFAULT_RATIO)),
    }
}

/// What a request may still take in each mode.
fn modes(
    answer: &mut Answer,
    heuristic: Heuristic,
    host: &Amounts,
    input: &OvercommitInput,
    request: impl Fn(Mode) -> Value,
) {
    let formula = match heuristic {
        Heuristic::Obvious => Some(format!("{} + {}", host.ram, host.swap)),
        Heuristic::Estimate => Some("free + cache - shmem + free swap + slab - reserves".into()),
        Heuristic::CacheFirst => Some("cache + free swap + slab, then free - reserves".into()),
    };
    // Who wants a limit gets the setting for it; the requests are what others ask for.
    let wanted = input.wanted.is_some();
    let step = |answer: &mut Answer, text: &str, formula: String, value| match wanted {
        true => answer.detail(text, formula, value),
        false => answer.step(text, formula, value),
    };
    if heuristic == Heuristic::Obvious || input.cache.is_some() {
        step(answer, "mode 0: largest single request", formula.unwrap_or_default(), request(Mode::Heuristic));
    } else {
        answer.alert(match input.sourced {
            true => {
                "Mode 0 of this kernel estimates from free memory, cache, free swap and the zones' reserves, which the \
                 source does not tell."
            }
            false => {
                "Mode 0 of this kernel estimates from free memory, cache and free swap, which only a host can give \
                 (--from-host or --from FILE)."
            }
        });
    }
    step(answer, "mode 1: largest single request", String::new(), request(Mode::Always));
    let reserve = if input.admin { "" } else { "admin reserve - " };
    step(
        answer,
        "mode 2: largest single request",
        format!("limit - Committed_AS - {reserve}part of VmSize - 1 page"),
        request(Mode::Never),
    );
}

/// The setting for a wanted limit.
fn wanted_limit(
    answer: &mut Answer,
    has_kbytes: bool,
    host: &Amounts,
    wanted: Bytes,
) -> Result<(), SizeError> {
    let Amounts { ram, hugetlb, swap, committed } = *host;
    let net = host.net();
    let beyond_swap = || SizeError::OutOfRange {
        field: "wanted",
        value: wanted.to_string(),
        accepted: format!("at least the swap of {swap}: swap always counts in full"),
    };
    let kib = kbytes_for_limit(wanted, swap).ok_or_else(beyond_swap)?;
    let path = "/etc/sysctl.d/90-lotsfree-overcommit.conf";
    let ratio = ratio_for_limit(wanted, ram, hugetlb, swap);
    if let Some(ratio) = ratio {
        answer.detail(
            "vm.overcommit_ratio for the wanted limit, rounded up",
            format!("({wanted} - {swap}) / {net}"),
            Value::Percent(ratio as f64),
        );
    }
    let line = if has_kbytes && kib > 0 {
        answer.step(
            "vm.overcommit_kbytes for the wanted limit",
            format!("{wanted} - {swap}"),
            Value::Kib(kib),
        );
        answer.conclude(
            format!("vm.overcommit_kbytes = {kib} gives a CommitLimit of {wanted}."),
            Value::Kib(kib),
        );
        (OVERCOMMIT_KBYTES, kib)
    } else {
        let ratio = ratio.ok_or(SizeError::OutOfRange {
            field: "wanted",
            value: wanted.to_string(),
            accepted: "the amount of swap: no RAM lies outside huge pages".into(),
        })?;
        answer.conclude(
            format!("vm.overcommit_ratio = {ratio} gives a CommitLimit of at least {wanted}."),
            Value::Percent(ratio as f64),
        );
        (OVERCOMMIT_RATIO, ratio)
    };
    answer.sysctl_file(path, vec!["vm.overcommit_memory = 2".into(), format!("{} = {}", line.0, line.1)]);
    if committed == Bytes::ZERO || committed >= wanted {
        answer.check("grep Committed_AS /proc/meminfo", format!("below {} kB", wanted.as_kib()));
        answer.alert(format!(
            "Compare Committed_AS with {wanted} before the commands: if it is above that already, mode 2 makes every \
             fork and every login fail at once. Stop programs first, or set it in the file only and boot."
        ));
    }
    answer.command(format!("sysctl -w {}={}", line.0, line.1));
    answer.command("sysctl -w vm.overcommit_memory=2");
    answer.check("grep CommitLimit /proc/meminfo", format!("at least {} kB", wanted.as_kib()));
    answer.restart(NO_RESTART);
    if wanted > net + swap {
        answer.alert(format!(
            "{wanted} exceed RAM outside huge pages and swap together ({}): mode 2 would promise memory that does \
             not exist, and the OOM killer stays possible.",
            net + swap
        ));
    } else if wanted - swap > net.scale(0.95) {
        answer.alert(
            "More than 95 % of RAM outside huge pages: the kernel's own memory (page tables, slab) needs room too. \
             PostgreSQL's advice is 80 to 95 %.",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(answer: &Answer, text: &str) -> Value {
        answer.steps.iter().find(|step| step.text.contains(text)).unwrap().value
    }

    fn host(gib: u64) -> OvercommitInput {
        OvercommitInput { ram: Some(Bytes::gib(gib)), ..OvercommitInput::default() }
    }

    #[test]
    fn oracle_system_a_ran_at_133_percent() {
        let input = OvercommitInput {
            ram: Some(Bytes::kib(16_387_608)),
            swap: Some(Bytes::kib(8_393_952)),
            committed: Some(Bytes::kib(22_134_904)),
            kernel: Some("2.6.32-642.el6".into()),
            ..OvercommitInput::default()
        };
        let answer = overcommit(&input).unwrap();
        assert_eq!(value(&answer, "CommitLimit"), Value::Bytes(Bytes::kib(16_587_756)));
        let Value::Percent(share) = value(&answer, "Committed_AS of") else { panic!() };
        assert!((share - 133.4).abs() < 0.1);
        assert!(answer.warnings.iter().any(|text| text.contains("means nothing")));
        assert!(answer.warnings[0].contains("estimates from free memory"));
    }

    #[test]
    fn huge_pages_take_half_of_themselves_off() {
        let answer = overcommit(&OvercommitInput { hugetlb: Some(Bytes::gib(800)), ..host(1024) }).unwrap();
        assert_eq!(value(&answer, "CommitLimit"), Value::Bytes(Bytes::gib(112)));
        assert_eq!(value(&answer, "taken off"), Value::Bytes(Bytes::gib(400)));
        let answer = overcommit(&OvercommitInput { hugetlb: Some(Bytes::gib(800)), ..host(1000) }).unwrap();
        assert_eq!(value(&answer, "CommitLimit"), Value::Bytes(Bytes::gib(100)));
    }

    #[test]
    fn three_modes() {
        let input =
            OvercommitInput { swap: Some(Bytes::gib(4)), committed: Some(Bytes::gib(10)), ..host(64) };
        let answer = overcommit(&input).unwrap();
        assert_eq!(value(&answer, "mode 0"), Value::Bytes(Bytes::gib(68)));
        assert_eq!(value(&answer, "mode 1"), Value::Unlimited);
        assert_eq!(
            value(&answer, "mode 2"),
            Value::Bytes(Bytes::gib(36) - Bytes::gib(10) - Bytes::mib(8) - Bytes::kib(4))
        );
        let cache = CacheFigures {
            free: Bytes::gib(1),
            file: Bytes::gib(20),
            shmem: Bytes::gib(8),
            swap_free: Bytes::gib(4),
            ..CacheFigures::default()
        };
        let old = OvercommitInput { cache: Some(cache), kernel: Some("4.19.0".into()), admin: true, ..input };
        let answer = overcommit(&old).unwrap();
        assert_eq!(value(&answer, "mode 0"), Value::Bytes(Bytes::gib(17) - Bytes::kib(4)));
    }

    #[test]
    fn a_wanted_limit_gives_the_setting() {
        let input = OvercommitInput {
            hugetlb: Some(Bytes::gib(800)),
            swap: Some(Bytes::gib(16)),
            wanted: Some(Bytes::gib(212)),
            ..host(1024)
        };
        let answer = overcommit(&input).unwrap();
        assert_eq!(answer.result.value, Value::Kib(196 << 20));
        assert_eq!(value(&answer, "overcommit_ratio"), Value::Percent(88.0));
        assert_eq!(
            answer.configuration[0].lines,
            ["vm.overcommit_memory = 2", "vm.overcommit_kbytes = 205520896"]
        );
        assert!(answer.warnings.iter().any(|text| {
            text.contains("/etc/sysctl.conf")
                && text.contains("vm[./]overcommit_memory|vm[./]overcommit_kbytes")
        }));
        // what is promised already is compared first, unless it is known to fit
        let check = "grep Committed_AS /proc/meminfo  # below 222298112 kB";
        let first = |committed| {
            let answer =
                overcommit(&OvercommitInput { committed: Some(committed), ..input.clone() }).unwrap();
            let warned = answer.warnings.iter().any(|text| text.contains("every login fail"));
            assert_eq!(warned, answer.commands[0] == check);
            warned
        };
        assert!(first(Bytes::ZERO) && first(Bytes::gib(212)) && !first(Bytes::gib(211)));
        // put back in, the setting gives the wanted limit
        let check = OvercommitInput { kbytes: Some(Bytes::gib(196)), wanted: None, ..input.clone() };
        assert_eq!(overcommit(&check).unwrap().result.value, Value::Bytes(Bytes::gib(212)));
        let old = OvercommitInput { kernel: Some("3.10.0".into()), ..input.clone() };
        assert_eq!(overcommit(&old).unwrap().result.value, Value::Percent(88.0));
        let more = OvercommitInput { wanted: Some(Bytes::gib(300)), ..input };
        assert!(overcommit(&more).unwrap().warnings.iter().any(|text| text.contains("does not exist")));
    }

    #[test]
    fn bad_input_is_named() {
        let message = |input: OvercommitInput| overcommit(&input).unwrap_err().to_string();
        assert!(message(OvercommitInput::default()).starts_with("--ram SIZE is missing;"));
        let both = OvercommitInput { ratio: Some(80), kbytes: Some(Bytes::gib(1)), ..host(8) };
        assert!(message(both).starts_with("ratio and kbytes cannot both be given"));
        let small = OvercommitInput { swap: Some(Bytes::gib(4)), wanted: Some(Bytes::gib(2)), ..host(8) };
        assert!(message(small).contains("at least the swap of 4 GiB"));
        let old = OvercommitInput { kbytes: Some(Bytes::gib(1)), kernel: Some("3.10.0".into()), ..host(8) };
        assert!(message(old).contains("no vm.overcommit_kbytes"));
        assert!(
            message(OvercommitInput { kernel: Some("3.0.101".into()), ..host(8) }).contains("3.10 and newer")
        );
        let full = OvercommitInput { hugetlb: Some(Bytes::gib(8)), wanted: Some(Bytes::gib(2)), ..host(8) };
        assert!(overcommit(&full).is_ok());
        assert!(
            message(OvercommitInput { kernel: Some("3.10.0".into()), ..full })
                .contains("no RAM lies outside")
        );
    }
}
