//! What the model says that huge pages will leave of a server's page tables, from what they are without.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;

use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::process::maps::mappings;
use lotsfree_run::{Memory, State};
use lotsfree_scenario::{Case, Generation, Scenario};
use lotsfree_units::{Bytes, PageSize};

use super::Result;
use super::application::kilobytes;

/// Page tables of a server in base pages, as `/proc` shows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// What the host had before the server started, and with it, in kB.
    idle: u64,
    all: u64,
    /// Size of the shared mapping.
    segment: Bytes,
    /// The ranges of it in which a session has touched a page. One page table maps a range.
    touched: u64,
    sessions: u64,
    /// What all other processes of the server have touched, in numbers of sessions, and the ranges by which
    /// that is more.
    background: u64,
    excess: u64,
}

impl Measured {
    /// Reads the page tables of a server whose first process is `server`; `idle` is what there was before.
    ///
    /// # Errors
    /// What `/proc` answers; a server without shared memory.
    pub(super) fn of(server: u32, sessions: usize, idle: u64) -> Result<Self> {
        let all = kilobytes("/proc/meminfo", "PageTables")?;
        let (first, end) = shared_mapping(server)?;
        let mut ranges = Vec::new();
        for process in children(server)? {
            // One that ends meanwhile is none of the sessions.
            ranges.extend(touched_ranges(process, first, end).ok());
        }
        ranges.sort_unstable_by(|a, b| b.cmp(a));
        if ranges.len() < sessions {
            return Err(format!("{} processes for {sessions} sessions", ranges.len()).into());
        }
        let touched = ranges[sessions / 2];
        let of_sessions: u64 = ranges.iter().take(sessions).sum();
        let others = ranges.iter().sum::<u64>() - of_sessions;
        let background = others.div_ceil(touched.max(1));
        Ok(Measured {
            idle,
            all,
            segment: Bytes(end - first),
            touched,
            sessions: sessions as u64,
            background,
            excess: background * touched - others,
        })
    }

    /// The share of the segment that ends in the middle of the last range that is touched.
    fn touch(&self) -> f64 {
        let huge = PageSize::X86.pmd_huge().as_f64();
        ((self.touched as f64 - 0.5) * huge / self.segment.as_f64()).clamp(0.0, 1.0)
    }

    /// The scenario of this server. `private` is the number of page tables that each process has for memory
    /// of its own.
    fn scenario(&self, private: u64) -> Result<Scenario> {
        let Measured { idle, segment, sessions, background, .. } = self;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let (generation, _) = Generation::for_kernel(release.trim());
        let memory = kilobytes("/proc/meminfo", "MemTotal")? / 1024;
        let pages = segment.units_of(PageSize::X86.pmd_huge());
        let private = match private {
            0 => String::new(),
            tables => format!("private = {{ size = \"{} MiB\", stride = \"2 MiB\" }}\n", 2 * tables),
        };
        let text = format!(
            "title = \"t\"\nduration = \"60 s\"\ninterval = \"1 s\"\nbase = \"4K\"\n\
             [machine]\ngeneration = \"{generation}\"\ncpus = 2\nnodes = [\"{memory} MiB\"]\npage-tables = \"{idle} KiB\"\n\
             [[actor]]\nname = \"server\"\nkind = \"sessions\"\nprocesses = {sessions}\nbackground = {background}\n\
             segment = \"{} KiB\"\ntouch = {}\nstride = \"2 MiB\"\n{private}\
             [[variant]]\nname = \"2M\"\n\"vm.nr_hugepages\" = {pages}\nactor.server.backing = \"shm-huge\"\n",
            segment.as_kib(),
            self.touch()
        );
        Ok(Scenario::parse(&text, "server.toml")?)
    }

    /// What the model has of `PageTables` in kB with huge pages, its processes having as much memory of their
    /// own as makes the tables without huge pages those that were measured.
    ///
    /// # Errors
    /// If the model has more tables than the host whatever the processes have of their own.
    pub(super) fn with_huge_pages(&self) -> Result<u64> {
        let tables = |private: u64, variant: &str| -> Result<u64> {
            let cases = self.scenario(private)?.cases(Some(&[variant.to_owned()]))?;
            simulated(cases.first().ok_or("no case")?)
        };
        let table = PageSize::X86.bytes().as_kib();
        // What the host would have if the others had touched as much as that many sessions.
        let all = self.all + self.excess * table;
        let without = tables(0, "4K")?;
        let processes = self.sessions + self.background;
        let lacking = all.checked_sub(without).ok_or("the model has more page tables than this host")?;
        let mut private = lacking / (processes * table);
        // The table of those tables is one more.
        private -= u64::from(tables(private, "4K")? > all && private > 0);
        tables(private, "2M")
    }
}

/// `PageTables` at the end of a run of the model, in kB.
fn simulated(case: &Case) -> Result<u64> {
    let mut memory = Memory::default();
    lotsfree_engine::simulate(case, &mut memory, &mut |_| ControlFlow::Continue(()))?;
    let run = memory.finish(lotsfree_engine::facts(case)?, case.to_toml(), State::Complete);
    let last = run.samples().len().checked_sub(1).and_then(|row| run.samples().get(row));
    Ok(last.and_then(|sample| sample.meminfo.get(m::PageTables)).ok_or("no PageTables")?)
}

/// The largest mapping that a process shares: first address and end.
fn shared_mapping(process: u32) -> Result<(u64, u64)> {
    let shared =
        mappings(&fs::read(format!("/proc/{process}/maps"))?).into_iter().filter(|mapping| mapping.shared);
    let largest = shared
        .max_by_key(|mapping| mapping.length)
        .map(|mapping| (mapping.start, mapping.start + mapping.length.0));
    largest.ok_or_else(|| format!("process {process} shares no memory").into())
}

/// The processes that a process has started.
fn children(process: u32) -> Result<Vec<u32>> {
    let all = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    Ok(all.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// Counts the ranges of a mapping in which a process has a page. One page table maps a range.
fn touched_ranges(process: u32, first: u64, end: u64) -> Result<u64> {
    /// A page is in memory, or in swap.
    const THERE: u64 = 0b11 << 62;
    const ENTRY: u64 = 8;
    let page = PageSize::X86;
    let range = page.pmd_huge().0;
    let file = File::open(format!("/proc/{process}/pagemap"))?;
    let mut touched = 0;
    let mut from = first;
    while from < end {
        let to = end.min((from / range + 1) * range);
        let mut entries = vec![0; ((to - from) / page.bytes().0 * ENTRY) as usize];
        file.read_exact_at(&mut entries, from / page.bytes().0 * ENTRY)?;
        let mut entries = entries.chunks_exact(ENTRY as usize);
        let is_there =
            |entry: &[u8]| entry.try_into().is_ok_and(|entry| u64::from_ne_bytes(entry) & THERE != 0);
        touched += u64::from(entries.any(is_there));
        from = to;
    }
    Ok(touched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_touches_as_many_ranges_as_were_counted() {
        let segment = Bytes::mib(25 * 2);
        // A mapping that begins within a range has one more.
        for touched in (1..=25).chain([26]) {
            let measured =
                Measured { idle: 0, all: 0, segment, touched, sessions: 1, background: 0, excess: 0 };
            let reach = Bytes((segment.as_f64() * measured.touch()) as u64);
            assert_eq!(reach.units_of(PageSize::X86.pmd_huge()), touched.min(25), "{touched}");
        }
        let measured =
            Measured { idle: 900, all: 0, segment, touched: 7, sessions: 3, background: 2, excess: 0 };
        let cases = measured.scenario(4).unwrap().cases(None).unwrap();
        assert_eq!(cases.iter().map(|case| case.variant.as_str()).collect::<Vec<_>>(), ["4K", "2M"]);
    }
}
