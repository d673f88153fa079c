//! `size pagetables`: what processes pay to map the same memory.

use clap::Args;
use lotsfree_formulas::pagetables::{
    Levels, Mapping, Tables, entry_bytes, leaf, shared_hugetlb_tables, tables,
};
use lotsfree_units::{Bytes, Grouped};

use crate::check::{self, MAX_PROCESSES, SizeError};
use crate::fit::{self, HostMemory, Planned};
use crate::question::{HostFigures, Question, not_told, take};
use crate::{Answer, Value};

/// What is mapped, by how many.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PagetablesInput {
    /// What each process touches of the mapping
    #[arg(value_name = "SIZE", value_parser = check::amount)]
    pub mapping: Bytes,
    /// Processes that touch it
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1)]
    pub processes: u64,
    /// Five-level page tables
    #[arg(long)]
    pub five_levels: bool,
    /// Whether figures of a host or a saved source were taken.
    #[arg(skip)]
    pub sourced: bool,
    /// Memory of the host
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub ram: Option<Bytes>,
    /// What the host needs memory for.
    #[arg(skip)]
    pub host: Option<HostMemory>,
    /// Base page size
    #[arg(long = "page-size", value_name = "SIZE", value_parser = check::amount)]
    pub page: Option<Bytes>,
    /// Kernel release whose rules apply [default: the host's, else the newest]
    #[arg(long, value_name = "RELEASE")]
    pub kernel: Option<String>,
}

impl Question for PagetablesInput {
    fn take_from(&mut self, host: &HostFigures) -> Result<(), SizeError> {
        self.sourced = true;
        take(&mut self.ram, host.ram);
        take(&mut self.host, Some(host.memory.clone()));
        take(&mut self.page, host.page);
        take(&mut self.kernel, host.kernel.clone());
        Ok(())
    }

    fn kernel(&self) -> Option<Option<&str>> {
        Some(self.kernel.as_deref())
    }

    fn answer(&self) -> Result<Answer, SizeError> {
        pagetables(self)
    }
}

/// Sizes page tables.
///
/// # Errors
///
/// [`SizeError`] for an empty or impossible mapping, no or too many processes, a page size that does not
/// exist, or a product beyond 64 bits.
pub fn pagetables(input: &PagetablesInput) -> Result<Answer, SizeError> {
    let touched = check::memory("mapping", input.mapping)?;
    let processes = check::number("processes", input.processes, 1, MAX_PROCESSES)?;
    let page = check::page("page", input.page)?;
    let rules = check::rules(input.kernel.as_deref())?;
    let ram = input.ram.map(|ram| check::memory("ram", ram)).transpose()?;
    let levels = if input.five_levels { Levels::Five } else { Levels::Four };
    let (small, huge) = (leaf(Mapping::Base, page), leaf(Mapping::Pmd, page));
    let n = Grouped(processes);
    let mut answer = Answer::new(format!("Page tables of {touched} mapped by {n} processes"));

    for size in [small, huge] {
        entries(&mut answer, touched, size, processes)?;
    }
    let one = tables(touched, Mapping::Base, page, levels);
    answer.step(
        format!("tables per process, {small} pages, all levels"),
        level_sum(one, input.five_levels),
        Value::Pages(one.total()),
    );
    let all = check::times("the tables of all processes", one.bytes(page), processes)?;
    answer.step("tables of all processes", format!("{n} x {}", one.bytes(page)), Value::Bytes(all));
    answer.detail(
        format!("of it in PageTables of /proc/meminfo ({})", rules.name),
        counted_levels(rules.page_tables.counts_pmd, rules.page_tables.counts_pud),
        Value::Bytes(one.times(processes).counted(&rules.page_tables, page)),
    );
    if let Some(ram) = ram {
        answer.step("share of RAM", format!("{all} / {ram}"), Value::Percent(all.share_of(ram) * 100.0));
    }
    let thp = tables(touched, Mapping::Thp, page, levels);
    answer.detail(
        "with transparent huge pages of private memory",
        "one deposited PTE table per huge page",
        Value::Bytes(check::times("the tables with THP", thp.bytes(page), processes)?),
    );
    let hugetlb = tables(touched, Mapping::Pmd, page, levels);
    answer.step(
        format!("tables per process, hugetlb pages of {huge}"),
        level_sum(hugetlb, input.five_levels),
        Value::Pages(hugetlb.total()),
    );
    let unshared = check::times("the tables with hugetlb", hugetlb.bytes(page), processes)?;
    answer.step("tables of all processes", format!("{n} x {}", hugetlb.bytes(page)), Value::Bytes(unshared));
    let shared = shared_hugetlb_tables(touched, processes, page, levels).bytes(page);
    answer.detail("with PMD tables shared", "whole tables' ranges map once for all", Value::Bytes(shared));
    answer.step("saved by hugetlb", format!("{all} - {unshared}"), Value::Bytes(all - unshared));
    judge(&mut answer, touched, all, ram, input);
    warnings(&mut answer, all, ram);
    corrections(&mut answer);
    answer.conclude(
        format!("{all} of tables with {small} pages, {unshared} with hugetlb pages of {huge}."),
        Value::Bytes(all),
    );
    Ok(answer)
}

/// Whether the mapping and its tables in base pages fit beside what the host itself needs.
fn judge(answer: &mut Answer, touched: Bytes, all: Bytes, ram: Option<Bytes>, input: &PagetablesInput) {
    let needed = touched + all;
    let what = format!("a mapping of {touched} and its tables, {needed}");
    match (ram, &input.host) {
        (Some(ram), Some(host)) => {
            fit::against_host(answer, &Planned::mapping(what, touched, all), ram, host);
        }
        (Some(ram), None) if needed > ram => answer.judge(
            Some(false),
            format!("It does not fit: {what}, are {} more than the {ram} of the host.", needed - ram),
        ),
        (Some(ram), None) => answer.judge(
            None,
            format!(
                "Whether it fits is not known: {what}, leave {} of {ram}, and what the host itself needs was not given \
                 (--from-host or --from FILE).",
                ram - needed
            ),
        ),
        (None, _) => answer.judge(
            None,
            format!(
                "Whether it fits is not known: {what}, and {}.",
                not_told("the host's memory", "--ram SIZE", input.sourced)
            ),
        ),
    }
}

/// Entries of leaf tables that map pages of `size`.
fn entries(answer: &mut Answer, touched: Bytes, size: Bytes, processes: u64) -> Result<(), SizeError> {
    let n = Grouped(processes);
    let entries = touched.units_of(size);
    answer.detail(format!("pages of {size}"), format!("{touched} / {size}"), Value::Count(entries));
    answer.detail(
        "entries per process",
        format!("8 B x {}", Grouped(entries)),
        Value::Bytes(entry_bytes(touched, size)),
    );
    let all = check::times("the entries of all processes", entry_bytes(touched, size), processes)?;
    answer.detail(
        "entries of all processes",
        format!("{n} x {}", entry_bytes(touched, size)),
        Value::Bytes(all),
    );
    Ok(())
}

/// `all`: the tables of all processes at full touch.
fn warnings(answer: &mut Answer, all: Bytes, ram: Option<Bytes>) {
    if let Some(ram) = ram
        && all > ram
    {
        answer.alert(format!(
            "The tables at full touch ({all}) exceed the memory of the host ({ram}): it would run out before every \
             process has touched everything."
        ));
    }
    answer.warn(
        "A table appears at the first touch of its range and stays until the range is unmapped, also when the pages \
         are swapped out. Processes that touch little have few: measure VmPTE of /proc/PID/status.",
    );
    answer.warn(
        "The mapping is taken as contiguous and aligned; where it straddles a table's boundary there is one more \
         table of that level. Fewer processes (a connection pool) save as much as larger pages do.",
    );
}

/// `8,192 PTE + 16 PMD + 1 PUD + 1 PGD`.
fn level_sum(tables: Tables, five_levels: bool) -> String {
    let mut parts = Vec::new();
    if tables.pte > 0 {
        parts.push(format!("{} PTE", Grouped(tables.pte)));
    }
    parts.push(format!("{} PMD", Grouped(tables.pmd)));
    parts.push(format!("{} PUD", Grouped(tables.pud)));
    if five_levels {
        parts.push(format!("{} P4D", Grouped(tables.p4d)));
    }
    parts.push(format!("{} PGD", Grouped(tables.pgd)));
    parts.join(" + ")
}

/// Which levels a kernel counts.
fn counted_levels(pmd: bool, pud: bool) -> &'static str {
    match (pmd, pud) {
        (_, true) => "PTE, PMD and PUD tables",
        (true, false) => "PTE and PMD tables",
        (false, false) => "PTE tables only",
    }
}

/// What a widely read article on huge pages gets wrong.
fn corrections(answer: &mut Answer) {
    for text in [
        "\"Plus 32 MB for the system page table, 64 MB in all\": the kernel maps RAM once for itself, with pages of \
         2 MiB and 1 GiB, whatever processes map. That is a few tables, and PageTables does not count them: 16 GiB \
         cost a process 32 MiB, not 64.",
        "\"65 KB with huge pages\": 8,192 entries of 8 bytes are 65,536 bytes, which is 64 KiB.",
        "\"100 processes will consume 3.2 GB\": 100 x 32 MiB are 3,200 MiB, which is 3.12 GiB; with the upper levels \
         of each process's table, 3.13 GiB.",
        "\"16384 GB referenced / 2 MB per page = 8192\": the buffer cache is 16,384 MB (16 GiB); 16,384 GB would be \
         8,388,608 pages.",
        "\"AMM is not swappable\": AMM keeps the SGA in files on tmpfs under /dev/shm, and tmpfs pages are swapped \
         like anonymous memory. hugetlb pages are what is never swapped.",
        "\"4 bytes per page on 32-bit\": with PAE, which every 32-bit kernel for more than 4 GB uses, an entry has 8 \
         bytes and a table 512 entries.",
    ] {
        answer.correct(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(answer: &Answer, text: &str) -> Vec<Value> {
        answer.steps.iter().filter(|step| step.text.contains(text)).map(|step| step.value).collect()
    }

    fn sga(gib: u64, processes: u64) -> PagetablesInput {
        PagetablesInput { mapping: Bytes::gib(gib), processes, ..PagetablesInput::default() }
    }

    #[test]
    fn sixteen_gib_and_a_hundred_processes() {
        let answer = pagetables(&sga(16, 100)).unwrap();
        assert_eq!(values(&answer, "pages of 4 KiB"), [Value::Count(4_194_304)]);
        assert_eq!(values(&answer, "pages of 2 MiB")[0], Value::Count(8192));
        assert_eq!(
            values(&answer, "entries per process"),
            [Value::Bytes(Bytes::mib(32)), Value::Bytes(Bytes::kib(64))]
        );
        assert_eq!(values(&answer, "entries of all")[0], Value::Bytes(Bytes::mib(3200)));
        assert_eq!(
            values(&answer, "tables per process"),
            [Value::Pages(8192 + 16 + 1 + 1), Value::Pages(16 + 1 + 1)]
        );
        assert_eq!(
            values(&answer, "tables of all processes"),
            [Value::Bytes(Bytes::kib(4 * 8210 * 100)), Value::Bytes(Bytes::kib(4 * 18 * 100))]
        );
        assert_eq!(values(&answer, "PageTables of"), [Value::Bytes(Bytes::kib(4 * 8209 * 100))]);
        assert_eq!(values(&answer, "transparent"), [Value::Bytes(Bytes::kib(4 * 8210 * 100))]);
        assert_eq!(values(&answer, "PMD tables shared"), [Value::Bytes(Bytes::kib(4 * (16 + 200)))]);
        assert_eq!(answer.result.value, Value::Bytes(Bytes::kib(4 * 8210 * 100)));
        assert_eq!(answer.corrections.len(), 6);
        let text = answer.to_text(100, true);
        assert!(text.contains("8,192 PTE + 16 PMD + 1 PUD + 1 PGD"), "{text}");
    }

    #[test]
    fn kernels_count_different_levels_and_arm_has_larger_pages() {
        let old = PagetablesInput { kernel: Some("4.4.0".into()), ..sga(16, 1) };
        assert_eq!(values(&pagetables(&old).unwrap(), "PageTables of"), [Value::Bytes(Bytes::mib(32))]);
        let arm = PagetablesInput { page: Some(Bytes::kib(64)), ..sga(16, 1) };
        let answer = pagetables(&arm).unwrap();
        assert_eq!(values(&answer, "pages of 64 KiB"), [Value::Count(262_144)]);
        assert_eq!(values(&answer, "pages of 512 MiB")[0], Value::Count(32));
        let five = PagetablesInput { five_levels: true, ..sga(16, 1) };
        assert_eq!(values(&pagetables(&five).unwrap(), "tables per process")[0], Value::Pages(8211));
    }

    #[test]
    fn bad_input_is_named() {
        let message = |input: PagetablesInput| pagetables(&input).unwrap_err().to_string();
        assert!(message(PagetablesInput::default()).starts_with("mapping is 0; accepted is"));
        assert!(message(sga(1, 0)).starts_with("processes is 0; accepted is a number from 1 to 4,194,304"));
        let huge = PagetablesInput { mapping: check::MAX_MEMORY, processes: MAX_PROCESSES, ..sga(1, 1) };
        assert!(message(huge).contains("exceeds what 64 bits hold"));
        assert!(
            message(PagetablesInput { mapping: Bytes(u64::MAX), ..sga(1, 1) }).contains("at most 65536 TiB")
        );
    }
}
