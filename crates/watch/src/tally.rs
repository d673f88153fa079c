//! [`Tally`]: what each process did in the windows of an interval.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use lotsfree_kernel_files::file::trace_format::Place;
use lotsfree_sys::Hit;

use crate::files::FileId;
use crate::groups::OfHost;
use crate::probes::Probes;
use crate::stack::{REASON, REASONS, Reason, Stacks};
use crate::taskstats::Delay;
use crate::tracepoints::{FRAMES, Kind, SETS, STRIDE, Set, Tracepoint};

/// How many of the pages that a process read into the page cache had been there before, as far as we know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CameBack {
    /// Pages that had been added before, and so were evicted in between.
    pub(crate) again: u64,
    /// Pages that the kernel had been asked about ([`Probes`]), each by itself, and those of them that had
    /// been evicted.
    pub(crate) asked: u64,
    pub(crate) evicted: u64,
}

impl CameBack {
    pub(crate) fn add(&mut self, other: &CameBack) {
        let CameBack { again, asked, evicted } = other;
        self.again += again;
        self.asked += asked;
        self.evicted += evicted;
    }
}

/// What a process did in the windows of an interval. Pages are base pages, times nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pages allocated.
    pub(crate) allocated: u64,
    /// Pages of its own that were freed outside of reclaim, by whomever.
    pub(crate) returned: u64,
    /// Pages added to the page cache.
    pub(crate) added: u64,
    /// Which of `added` came back.
    pub(crate) back: CameBack,
    /// Time in reclaim for its own allocations.
    pub(crate) reclaim: u64,
    /// Time compacting for its own allocations.
    pub(crate) compaction: u64,
    /// Time in uninterruptible sleep, by [`Reason`].
    pub(crate) waits: [u64; REASONS],
    /// The least time of waits for pages of files that had been lost.
    pub(crate) thrashing: u64,
}

impl Counts {
    pub(crate) fn wait(&self, reason: Reason) -> u64 {
        self.waits.get(reason as usize).copied().unwrap_or_default()
    }

    /// Time of all waits.
    pub(crate) fn waited(&self) -> u64 {
        self.waits.iter().sum::<u64>() + self.reclaim + self.compaction
    }

    /// How much there is to say of a process: pages, and waits as milliseconds.
    pub(crate) fn weight(&self) -> u64 {
        self.allocated + self.added + self.waited() / 1_000_000
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        let Counts { allocated, returned, added, back, reclaim, compaction, waits, thrashing } = other;
        self.allocated += allocated;
        self.returned += returned;
        self.added += added;
        self.back.add(back);
        self.reclaim += reclaim;
        self.compaction += compaction;
        self.thrashing += thrashing;
        for (sum, wait) in self.waits.iter_mut().zip(waits) {
            *sum += wait;
        }
    }

    /// What it would be in an interval of which the windows are a part.
    pub(crate) fn scaled(&self, scale: &Scale) -> Counts {
        let scaled = |value: u64| (value as f64 * scale.memory) as u64;
        let Counts { allocated, returned, added, back, reclaim, compaction, waits, thrashing } = *self;
        Counts {
            allocated: (allocated as f64 * scale.allocated) as u64,
            returned: (returned as f64 * scale.freed) as u64,
            added: scaled(added),
            back: CameBack { again: scaled(back.again), ..back },
            reclaim: scaled(reclaim),
            compaction: scaled(compaction),
            waits: waits.map(|time| (time as f64 * scale.waits) as u64),
            thrashing,
        }
    }

    /// Puts what the kernel counted in the place of what the windows let us guess. Waits for blocks may be
    /// for anything: the windows say for what they were, in which parts. `is_swap_in` says whether waits for
    /// swap-in are among them.
    ///
    /// `possible` is the longest that the threads can have waited. Kernels with delayed dequeue (6.12 and
    /// later) count a wait from the one before or from the boot if the CPU's run queue is not left at once:
    /// `kernel/sched/sched.h:__block_task` then notes the begin of the wait for the task that runs meanwhile.
    /// Waits for blocks beyond what is possible stay as the windows saw them.
    pub(crate) fn correct(&mut self, delay: &Delay, possible: u64, is_swap_in: bool) {
        // Reclaim of a node was not counted before 6.7, compaction not before 5.17.
        for (time, counted) in [(&mut self.reclaim, delay.reclaim), (&mut self.compaction, delay.compaction)]
        {
            if counted > 0 {
                *time = counted;
            }
        }
        let of_blocks = REASON.into_iter().filter(|reason| is_swap_in || *reason != Reason::SwapIn);
        let seen: u64 = of_blocks.clone().map(|reason| self.wait(reason)).sum();
        for reason in of_blocks.filter(|_| delay.blocks <= possible) {
            let part = match seen {
                0 if reason == Reason::FilePage && self.added > 0 => 1.0,
                0 => 0.0,
                seen => self.wait(reason) as f64 / seen as f64,
            };
            let time = (delay.blocks as f64 * part) as u64;
            if let Some(wait) = self.waits.get_mut(reason as usize) {
                // A lock, the limit of a group: there are waits that are for no block.
                *wait = if reason == Reason::Other || reason == Reason::OverHigh {
                    time.max(*wait)
                } else {
                    time
                };
            }
        }
        if let Some(wait) = self.waits.get_mut(Reason::SwapIn as usize) {
            *wait = if is_swap_in { delay.swap_in.max(*wait) } else { delay.swap_in };
        }
        self.thrashing = delay.thrashing.saturating_sub(self.wait(Reason::SwapIn));
    }

    fn adds_wait(&mut self, reason: Reason, time: u64) {
        if let Some(wait) = self.waits.get_mut(reason as usize) {
            *wait += time;
        }
    }
}

/// What an interval has more than its windows show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// The interval's length as a multiple of that of the windows of [`Set::Memory`], or by how many times
    /// more pages were allocated in it, if that is less: a burst in a window does not last.
    pub(crate) memory: f64,
    /// The interval's length as a multiple of that of the windows of [`Set::Waits`].
    waits: f64,
    /// All pages that were allocated in the windows, by the kernel's count, over our estimate from the frames
    /// that are watched, times `memory`. Programs use the same frames again and again, so the estimate stays
    /// wrong in one direction for as long as they do.
    allocated: f64,
    /// The same of the pages that were freed.
    freed: f64,
}

/// Fewer pages seen than this say nothing of the rest.
const ENOUGH_SEEN: u64 = 64 * FRAMES;

impl Scale {
    /// By how many times the interval is longer than the windows of each set; what the kernel counted in the
    /// interval, and in the windows of [`Set::Memory`]; and [`Tally::seen`].
    pub(crate) fn new(longer: [f64; SETS], interval: OfHost, windows: OfHost, seen: (u64, u64)) -> Self {
        // Pages that are allocated many at once pass the tracepoint by.
        let correction = |counted: u64, seen: u64| match seen {
            ..ENOUGH_SEEN => 1.0,
            _ => (counted as f64 / seen as f64).clamp(2.0 / 3.0, 1.5),
        };
        let [memory, waits] = longer;
        let at_most = |all: u64, in_windows: u64| match in_windows {
            0 => memory,
            _ => memory.min((all as f64 / in_windows as f64).max(1.0)),
        };
        let (memory, freed) =
            (at_most(interval.allocated, windows.allocated), at_most(interval.freed, windows.freed));
        Scale {
            memory,
            waits,
            allocated: memory * correction(windows.allocated, seen.0),
            freed: freed * correction(windows.freed, seen.1),
        }
    }
}

/// Something that a task is in the middle of.
#[derive(Clone, Copy, Debug)]
struct Since {
    process: u32,
    time: u64,
}

/// Counts hits. Windows that follow each other at once are one: what a task is in the middle of goes on.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: BTreeMap<u32, Counts>,
    /// Nanoseconds that the windows of each [`Set`] took.
    pub(crate) on: [u64; SETS],
    /// Hits and records of each [`Set`] since [`Tally::hits`] was last asked; the hits about.
    hits: [(u64, u64); SETS],
    /// Pages that each process added to the page cache, by file.
    files: HashMap<(u32, FileId), u64>,
    waiting: HashMap<u32, (Since, Reason)>,
    reclaiming: HashMap<u32, Since>,
    compacting: HashMap<u32, Since>,
    /// Pages of the blocks that were seen, allocated and freed by anybody.
    seen: (u64, u64),
    /// Who allocated the block of pages at a frame.
    owners: HashMap<u64, u32>,
    pages: Pages,
    pub(crate) probes: Probes,
    /// How many waits have ended, and their time, by reason. Their mean stands in for waits whose end nobody
    /// saw.
    ended: [(u64, u64); REASONS],
}

/// Higher orders than any kernel has are not believed.
const MOST_ORDER: u64 = 20;
/// The most frames whose owner is remembered: 8 GiB of pages that were allocated in one go.
const MOST_OWNED: usize = 1 << 16;
/// The most files of an interval whose names are looked for, and of which any are remembered.
const BUSIEST: usize = 16;
const MOST_FILES: usize = 1 << 14;

/// The process that stands for interrupts: what they do belongs to no task.
pub(crate) const NOBODY: u32 = u32::MAX;
/// Flags of `common_flags` in interrupts (`include/linux/trace_events.h`: `TRACE_FLAG_HARDIRQ`,
/// `TRACE_FLAG_SOFTIRQ`).
const IN_INTERRUPT: u64 = 0x08 | 0x10;

/// A window of observation, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Its begin for each [`Set`]; `None` if the set was off. A window that begins before the last one ended
    /// goes on from it.
    pub(crate) from: [Option<u64>; SETS],
    pub(crate) to: u64,
}

impl Window {
    fn begin(&self, set: Set) -> u64 {
        self.from.get(set as usize).copied().flatten().unwrap_or(self.to)
    }
}

impl Tally {
    /// Counts the hits of a window, in the order of their time.
    pub(crate) fn window(&mut self, window: Window, hits: &[Hit], known: &[Tracepoint], stacks: &Stacks) {
        for hit in hits {
            if let Some(tracepoint) = known.get(hit.event) {
                self.hit(hit, tracepoint, window, stacks);
            }
        }
        for (on, from) in self.on.iter_mut().zip(window.from) {
            *on += from.map_or(0, |from| window.to.saturating_sub(from));
        }
        self.cut(window);
    }

    /// The files of which most was added to the page cache since this was last asked.
    pub(crate) fn busiest_files(&mut self) -> Vec<(u32, FileId, u64)> {
        let files = std::mem::take(&mut self.files).into_iter();
        let mut files: Vec<_> = files.map(|((process, file), pages)| (process, file, pages)).collect();
        files.sort_unstable_by_key(|(process, file, pages)| (std::cmp::Reverse(*pages), *process, *file));
        files.truncate(BUSIEST);
        files
    }

    /// Hits and records of each [`Set`] since this was last asked; the hits about.
    pub(crate) fn hits(&mut self) -> [(u64, u64); SETS] {
        std::mem::take(&mut self.hits)
    }

    /// Pages of the blocks that were seen since this was last asked, allocated and freed by anybody.
    pub(crate) fn seen(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.seen)
    }

    /// Forgets what was counted, and keeps what tasks are in the middle of.
    pub(crate) fn take(&mut self) -> (BTreeMap<u32, Counts>, [u64; SETS]) {
        (std::mem::take(&mut self.counts), std::mem::take(&mut self.on))
    }

    fn hit(&mut self, hit: &Hit, tracepoint: &Tracepoint, window: Window, stacks: &Stacks) {
        let Tracepoint { kind, fields } = tracepoint;
        let number = |place: Option<_>| place.and_then(|place: Place| place.number(&hit.record));
        let in_interrupt = number(fields.flags).is_some_and(|flags| flags & IN_INTERRUPT != 0);
        let process = if in_interrupt { NOBODY } else { hit.process };
        let since = Since { process: hit.process, time: hit.time };
        let order = number(fields.order).unwrap_or(0).min(MOST_ORDER);
        let frame = number(fields.frame).unwrap_or(0) >> fields.shift;
        let opened = window.begin(Set::Memory);
        if let Some((hits, records)) = self.hits.get_mut(kind.set() as usize) {
            (*hits, *records) = (*hits + kind.hits(order), *records + 1);
        }
        match kind {
            Kind::Allocate => self.allocate((frame, 1 << order), process),
            Kind::Free => {
                let is_reclaim = self.reclaiming.contains_key(&hit.task) && !in_interrupt;
                self.free((frame, 1 << order), process, is_reclaim);
            }
            Kind::AddToPageCache => {
                let (device, inode) = (number(fields.device), number(fields.inode));
                let file = FileId { device: device.unwrap_or(0), inode: inode.unwrap_or(0) };
                self.add(file, number(fields.index).unwrap_or(0), 1 << order, hit.process);
            }
            Kind::Switch => {
                self.of(process);
                self.waiting.insert(hit.task, (since, stacks.reason(&hit.chain)));
            }
            Kind::Waking => {
                // Who wakes another is busy, which is worth a look even where memory costs it nothing.
                self.of(process);
                let woken = number(fields.woken).and_then(|task| u32::try_from(task).ok());
                if let Some((since, reason)) = woken.and_then(|task| self.waiting.remove(&task)) {
                    let time = hit.time.saturating_sub(since.time);
                    self.of(since.process).adds_wait(reason, time);
                    if let Some((count, sum)) = self.ended.get_mut(reason as usize) {
                        (*count, *sum) = (*count + 1, *sum + time);
                    }
                }
            }
            Kind::ReclaimBegin => _ = self.reclaiming.insert(hit.task, since),
            Kind::CompactionBegin => _ = self.compacting.insert(hit.task, since),
            // One that began before the window is counted from the window's start.
            Kind::ReclaimEnd => {
                let begun = self.reclaiming.remove(&hit.task).map_or(opened, |since| since.time);
                self.of(hit.process).reclaim += hit.time.saturating_sub(begun);
            }
            Kind::CompactionEnd => {
                let begun = self.compacting.remove(&hit.task).map_or(opened, |since| since.time);
                self.of(hit.process).compaction += hit.time.saturating_sub(begun);
            }
        }
    }

    fn of(&mut self, process: u32) -> &mut Counts {
        self.counts.entry(process).or_default()
    }

    fn allocate(&mut self, (first, pages): (u64, u64), process: u32) {
        self.of(process).allocated += pages.max(FRAMES);
        self.seen.0 += pages.max(FRAMES);
        if self.owners.len() >= MOST_OWNED {
            self.owners.clear();
        }
        self.owners.extend((0..pages.div_ceil(FRAMES)).map(|n| (first + n * FRAMES, process)));
    }

    /// Counts a block that is freed. Who allocated it has given it back, even if somebody else frees it: what
    /// is sent through a pipe or a socket is freed by the reader, or by an interrupt. If nobody saw who
    /// allocated it, it belongs to the process that frees it.
    fn free(&mut self, (first, pages): (u64, u64), process: u32, is_reclaim: bool) {
        let owners = (0..pages.div_ceil(FRAMES)).map(|n| self.owners.remove(&(first + n * FRAMES)));
        let owner = owners.fold(None, Option::or).unwrap_or(process);
        self.seen.1 += pages.max(FRAMES);
        if !is_reclaim {
            self.of(owner).returned += pages.max(FRAMES);
        }
    }

    /// Counts the pages of a folio that was added to the page cache: each multiple of [`STRIDE`] in it stands
    /// for as many pages.
    fn add(&mut self, file: FileId, first: u64, pages: u64, process: u32) {
        let multiples = (first.div_ceil(STRIDE)..).take_while(|n| n * STRIDE < first + pages);
        let mut back = CameBack::default();
        let mut seen = 0;
        for multiple in multiples {
            seen += 1;
            back.again += STRIDE * u64::from(!self.pages.insert((file, multiple)));
            if let Some(was_evicted) = self.probes.take((file, multiple)) {
                back.asked += 1;
                back.evicted += u64::from(was_evicted);
            }
        }
        if self.files.len() < MOST_FILES {
            *self.files.entry((process, file)).or_default() += seen * STRIDE;
        }
        let counts = self.of(process);
        counts.added += seen * STRIDE;
        counts.back.add(&back);
    }

    /// Forgets what is going on in a set that is not looked at any more.
    pub(crate) fn stop(&mut self, set: Set) {
        match set {
            Set::Memory => self.forget_memory(),
            Set::Waits => self.forget_waits(),
        }
    }

    /// Forgets the waits that tasks are in the middle of. A wait whose end nobody sees is given the mean of
    /// those that ended: as much of waits that began before the window is missed at its start.
    fn forget_waits(&mut self) {
        for (_, (since, reason)) in std::mem::take(&mut self.waiting) {
            let (count, sum) = self.ended.get(reason as usize).copied().unwrap_or_default();
            self.of(since.process).adds_wait(reason, sum.checked_div(count).unwrap_or(0));
        }
    }

    /// Forgets what reclaim and compaction tasks are in the middle of, and who allocated which frame: it may
    /// have been freed and allocated again meanwhile.
    fn forget_memory(&mut self) {
        self.reclaiming.clear();
        self.compacting.clear();
        self.owners.clear();
    }

    /// Counts what goes on at the end of a window up to there, and lets it go on from there.
    fn cut(&mut self, window: Window) {
        let upto = |since: &mut Since, set: Set| {
            let time = window.to.saturating_sub(since.time.max(window.begin(set)));
            since.time = window.to;
            (since.process, time)
        };
        let of_memory = |since: &mut Since| upto(since, Set::Memory);
        let reclaim: Vec<_> = self.reclaiming.values_mut().map(of_memory).collect();
        let compaction: Vec<_> = self.compacting.values_mut().map(of_memory).collect();
        let waits: Vec<_> =
            self.waiting.values_mut().map(|(since, why)| (upto(since, Set::Waits), *why)).collect();
        for (process, time) in reclaim {
            self.of(process).reclaim += time;
        }
        for (process, time) in compaction {
            self.of(process).compaction += time;
        }
        for ((process, time), reason) in waits {
            self.of(process).adds_wait(reason, time);
        }
    }
}

/// Pages that were seen, as hashes. When there are too many, half of all pages stop being watched.
#[derive(Debug)]
struct Pages {
    seen: HashSet<u64>,
    /// Hashes up to this are watched.
    most: u64,
}

/// The most pages that are remembered: 4 MiB of hashes.
const MOST_PAGES: usize = 1 << 18;

impl Default for Pages {
    fn default() -> Self {
        Pages { seen: HashSet::new(), most: u64::MAX }
    }
}

impl Pages {
    /// Adds a page; `false` if it had been added before.
    fn insert(&mut self, page: (FileId, u64)) -> bool {
        let mut hasher = DefaultHasher::new();
        page.hash(&mut hasher);
        let hash = hasher.finish();
        if hash > self.most {
            return true;
        }
        if self.seen.len() >= MOST_PAGES {
            self.most /= 2;
            let most = self.most;
            self.seen.retain(|hash| *hash <= most);
        }
        self.seen.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::file::trace_format::TraceFormat;

    use super::*;
    use crate::tracepoints::{Fields, SET};

    const FORMAT: &[u8] = b"field:u8 common_flags;\toffset:0;\tsize:1;\tsigned:0;\n\
        field:u8 order;\toffset:1;\tsize:1;\tsigned:0;\nfield:u32 s_dev;\toffset:4;\tsize:4;\tsigned:0;\n\
        field:u64 i_ino;\toffset:8;\tsize:8;\tsigned:0;\nfield:u64 index;\toffset:16;\tsize:8;\tsigned:0;\n\
        field:int pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        field:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n";
    const KINDS: [Kind; 9] = [
        Kind::Allocate,
        Kind::Free,
        Kind::AddToPageCache,
        Kind::Switch,
        Kind::Waking,
        Kind::ReclaimBegin,
        Kind::ReclaimEnd,
        Kind::CompactionBegin,
        Kind::CompactionEnd,
    ];

    fn known() -> Vec<Tracepoint> {
        let format = TraceFormat::parse(FORMAT);
        let fields = Fields {
            flags: format.field("common_flags"),
            order: format.field("order"),
            frame: format.field("pfn"),
            shift: 0,
            device: format.field("s_dev"),
            inode: format.field("i_ino"),
            index: format.field("index"),
            woken: format.field("pid"),
        };
        KINDS.iter().map(|kind| Tracepoint { kind: *kind, fields }).collect()
    }

    fn hit(kind: Kind, task: u32, time: u64) -> Hit {
        let event = KINDS.iter().position(|known| *known == kind).unwrap();
        Hit { event, process: task / 10 * 10, task, time, chain: Vec::new(), record: vec![0; 28] }
    }

    fn with(mut hit: Hit, offset: usize, value: &[u8]) -> Hit {
        hit.record[offset..offset + value.len()].copy_from_slice(value);
        hit
    }

    fn woken(task: u32, time: u64) -> Hit {
        with(hit(Kind::Waking, 999, time), 24, &task.to_ne_bytes())
    }

    fn added(index: u64, order: u8) -> Hit {
        with(with(hit(Kind::AddToPageCache, 20, 5), 16, &index.to_ne_bytes()), 1, &[order])
    }

    fn tally(windows: &[((Window, bool), Vec<Hit>)]) -> Tally {
        let mut tally = Tally::default();
        for ((window, goes_on), hits) in windows {
            if !goes_on {
                SET.into_iter().for_each(|set| tally.stop(set));
            }
            tally.window(*window, hits, &known(), &Stacks::default());
        }
        tally
    }

    fn window(from: u64, to: u64, goes_on: bool) -> (Window, bool) {
        (Window { from: [Some(from); SETS], to }, goes_on)
    }

    #[test]
    fn what_the_kernel_counts_takes_the_place_of_what_the_windows_saw() {
        let mut counts = Counts { added: 10, reclaim: 5, compaction: 7, ..Counts::default() };
        counts.waits[Reason::FilePage as usize] = 30;
        counts.waits[Reason::SwapIn as usize] = 10;
        counts.waits[Reason::Dirty as usize] = 10;
        let delay = Delay { blocks: 100, swap_in: 30, reclaim: 9, thrashing: 34, compaction: 0 };
        let waits = |counts: &Counts| {
            [Reason::FilePage, Reason::SwapIn, Reason::Dirty].map(|reason| counts.wait(reason))
        };
        let corrected = |is_swap_in| {
            let mut counts = counts;
            counts.correct(&delay, 100, is_swap_in);
            counts
        };
        let (since, before) = (corrected(true), corrected(false));
        assert_eq!(waits(&since), [60, 30, 20]);
        assert_eq!(waits(&before), [75, 30, 25], "swap-in is apart");
        assert_eq!((since.reclaim, since.compaction, since.thrashing), (9, 7, 4));
        let mut unseen = Counts { added: 10, ..Counts::default() };
        unseen.correct(&delay, 100, true);
        assert_eq!(unseen.wait(Reason::FilePage), 100);
        let mut impossible = counts;
        impossible.correct(&delay, 99, true);
        assert_eq!(waits(&impossible), [30, 30, 10], "a wait that the kernel counted from its boot");
        assert_eq!((impossible.reclaim, impossible.thrashing), (9, 4), "what else it counts holds");
    }

    #[test]
    fn a_set_that_is_off_is_not_cut_short() {
        let mut tally = Tally::default();
        let (both, _) = window(0, 10, false);
        tally.window(both, &[hit(Kind::ReclaimBegin, 21, 4)], &known(), &Stacks::default());
        let only_waits = Window { from: [None, Some(10)], to: 20 };
        tally.window(only_waits, &[hit(Kind::Switch, 11, 15)], &known(), &Stacks::default());
        assert_eq!((tally.on, tally.counts[&20].reclaim), ([10, 20], 6));
        assert_eq!(tally.counts[&10].wait(Reason::Other), 5);
        let scale = Scale::new([7.0, 3.0], OfHost::default(), OfHost::default(), (0, 0));
        assert_eq!(tally.counts[&10].scaled(&scale).wait(Reason::Other), 15);
    }

    /// A hit on the block of pages at a frame.
    fn block(kind: Kind, task: u32, frame: u64, order: u8) -> Hit {
        with(with(hit(kind, task, 5), 8, &frame.to_ne_bytes()), 1, &[order])
    }

    #[test]
    fn pages_that_reclaim_frees_are_not_given_back() {
        let hits = vec![
            block(Kind::Allocate, 21, 64, 3),
            hit(Kind::ReclaimBegin, 21, 5),
            block(Kind::Free, 21, 64, 3),
            hit(Kind::ReclaimEnd, 21, 10),
            block(Kind::Free, 22, 96, 0),
            // In a soft interrupt.
            with(block(Kind::Allocate, 21, 0, 0), 0, &[0x10]),
        ];
        let tally = tally(&[(window(0, 10, false), hits)]);
        let counts = tally.counts[&20];
        assert_eq!((counts.allocated, counts.returned, counts.reclaim), (32, 32, 5));
        assert_eq!(tally.counts[&NOBODY].allocated, 32);
    }

    #[test]
    fn who_allocated_pages_has_given_them_back_whoever_frees_them() {
        let hits = vec![
            block(Kind::Allocate, 11, 1024, 9),
            // It is split, and the reader frees a part.
            block(Kind::Free, 21, 1024 + 64, 0),
            // An interrupt frees another.
            with(block(Kind::Free, 31, 1024 + 96, 0), 0, &[0x10]),
        ];
        let windows =
            [(window(0, 10, false), hits), (window(50, 60, false), vec![block(Kind::Free, 21, 1024, 0)])];
        let counts = tally(&windows).counts;
        assert_eq!((counts[&10].allocated, counts[&10].returned), (512, 64));
        assert_eq!(counts[&20].returned, 32, "nobody knows whether the frame was still the same one's");
        assert!(!counts.contains_key(&NOBODY));
    }

    #[test]
    fn blocks_stand_for_as_many_pages_as_there_were() {
        let counts = Counts { allocated: 3200, returned: 3200, added: 10, ..Counts::default() };
        let of_host = |allocated, freed| OfHost { allocated, freed, ..OfHost::default() };
        let all = of_host(u64::MAX, u64::MAX);
        let scaled = counts.scaled(&Scale::new([2.0, 1.0], all, of_host(2880, 1), (3200, 3200)));
        assert_eq!((scaled.allocated, scaled.returned, scaled.added), (5760, 4266, 20));
        assert_eq!(counts.scaled(&Scale::new([1.0, 1.0], all, of_host(9, 9), (32, 32))), counts);
    }

    #[test]
    fn a_burst_in_a_window_is_not_taken_for_longer_than_it_was() {
        let counts = Counts { allocated: 3200, returned: 3200, added: 10, ..Counts::default() };
        let of_host = |allocated, freed| OfHost { allocated, freed, ..OfHost::default() };
        let scale = Scale::new([50.0, 1.0], of_host(4800, 3200), of_host(3200, 3200), (3200, 3200));
        let scaled = counts.scaled(&scale);
        assert_eq!((scaled.allocated, scaled.returned, scaled.added), (4800, 3200, 15));
    }

    #[test]
    fn what_crosses_a_window_is_counted_in_it_only() {
        let hits = vec![hit(Kind::ReclaimEnd, 11, 103), hit(Kind::CompactionBegin, 21, 106)];
        let counts = tally(&[(window(100, 110, false), hits)]).counts;
        assert_eq!(counts[&10].reclaim, 3);
        assert_eq!(counts[&20].compaction, 4);
    }

    #[test]
    fn waits_go_on_through_windows_that_follow_each_other() {
        let first = (window(0, 10, false), vec![hit(Kind::Switch, 11, 4)]);
        let second = (window(10, 20, true), Vec::new());
        let third = (window(20, 30, true), vec![woken(11, 25), woken(12, 26)]);
        let counts = tally(&[first, second, third]).counts;
        assert_eq!(counts[&10].wait(Reason::Other), 21);
        assert_eq!(counts[&990], Counts::default(), "who wakes them is busy, and waits for nothing");
        assert_eq!(counts.len(), 2, "nobody saw the other one fall asleep");
    }

    #[test]
    fn a_wait_whose_end_nobody_saw_is_given_the_mean_of_the_others() {
        let first = vec![hit(Kind::Switch, 11, 0), woken(11, 6), hit(Kind::Switch, 21, 8)];
        let windows = [(window(0, 10, false), first), (window(50, 60, false), Vec::new())];
        assert_eq!(tally(&windows).counts[&20].wait(Reason::Other), 2 + 6);
    }

    #[test]
    fn a_page_that_comes_twice_has_been_evicted_in_between() {
        let hits = vec![added(0, 0), added(32, 5), added(48, 0), added(64, 0)];
        let counts = tally(&[(window(0, 10, false), hits)]).counts;
        // The folio of 32 pages has two multiples of 16, of which the second comes again alone.
        assert_eq!((counts[&20].added, counts[&20].back.again), (16 * 5, 16));
    }

    #[test]
    fn too_many_pages_halve_what_is_watched() {
        let mut pages = Pages::default();
        let file = FileId { device: 1, inode: 2 };
        for index in 0..2 * MOST_PAGES as u64 {
            pages.insert((file, index));
        }
        assert!(pages.seen.len() <= MOST_PAGES && pages.most < u64::MAX);
        let again = (0..1000).filter(|index| !pages.insert((file, *index))).count();
        assert!((1..1000).contains(&again), "{again}");
    }
}
