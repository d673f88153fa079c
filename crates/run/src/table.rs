//! [`Samples`]: the counters of a run, one column each.

use std::collections::HashMap;
use std::ops::Range;

use crate::layout::{self, Layout, Name};
use crate::{Column, Sample, Window};

/// The counters of a run: a row per sample, a column per counter.
///
/// The name of a column is that of the kernel's file, followed by the kernel's name of the counter:
///
/// | column | unit | from |
/// |---|---|---|
/// | `at` | ns | when the sample was taken, since the run began |
/// | `meminfo.MemFree` | counter's | `/proc/meminfo` |
/// | `vmstat.pgscan_direct` | counter's | `/proc/vmstat` |
/// | `zoneinfo.0.Normal.free` | pages | `/proc/zoneinfo`: node 0, zone Normal, its `pages` block and statistics |
/// | `zoneinfo.0.Normal.protection.2` | pages | its lowmem reserve against the third zone |
/// | `zoneinfo.0.Normal.cpu.3.count` | pages | its page set of CPU 3: `count`, `high`, `batch` |
/// | `node.0.nr_inactive_file` | counter's | its `per-node stats` of node 0 |
/// | `node.0.meminfo.MemFree`, `node.0.numastat.numa_hit` | counter's | `/sys/devices/system/node/node0` |
/// | `swap.partition./dev/vdb.used` | bytes | `/proc/swaps`: `size` and `used`; `priority` has no unit |
/// | `cgroup.workingset_refault_file` | counter's | `memory.stat` of the actors' control group |
/// | `cgroup-events.oom_kill` | events | its `memory.events` |
/// | `cgroup-failcnt` | times | its `memory.failcnt` and `memory.memsw.failcnt` |
/// | `process.1000.db.VmRSS` | KiB | `/proc/1000/status` of a process of the actor `db` |
/// | `process.1000.db.CapEff` | bits | the same |
/// | `process.1000.db.minflt`, `.majflt` | faults | `/proc/1000/stat` |
/// | `process.1000.db.limit.memlock` | bytes | `/proc/1000/limits`; also `as` and `data`; the largest number is unlimited |
/// | `process.1000.db.shm.3` | address | `/proc/1000/maps`: where it has attached segment 3 |
/// | `shm.3.size` | bytes | `/proc/sysvipc/shm`; also `rss` and `swap`; `uid` and `nattch` |
///
/// The units of counters are in `docs/counters.md`; `docs/sim-and-lab.md` says the same for those who open
/// the Parquet file.
///
/// A counter that a sample does not have is absent from its row, not zero. Columns are in the order in which
/// they were first seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    times: Vec<u64>,
    columns: Vec<Column>,
    index: HashMap<Box<str>, usize>,
}

impl Samples {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Times of the samples, in nanoseconds since the run began; ascending.
    pub fn times(&self) -> &[u64] {
        &self.times
    }

    /// The rows of a part of the run: those in it, and the last one before it, with which counters are
    /// compared.
    pub fn rows(&self, part: Window) -> Range<usize> {
        let times = self.times();
        let end = times.partition_point(|at| *at <= part.to);
        let begin = times.partition_point(|at| *at <= part.from).saturating_sub(1);
        begin.min(end)..end
    }

    /// The column of a name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.get(*self.index.get(name)?)
    }

    /// All columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// One row as the machine yielded it.
    pub fn get(&self, row: usize) -> Option<Sample> {
        (row < self.len()).then(|| Layout::of(&self.columns).sample(&self.columns, row))
    }

    /// All rows as the machine yielded them.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + '_ {
        let layout = Layout::of(&self.columns);
        (0..self.len()).map(move |row| layout.sample(&self.columns, row))
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, sample: &Sample) {
        let mut next = 0;
        let row = self.len();
        layout::visit(sample, &mut |name, value| {
            let place = self.place(name, next);
            next = place + 1;
            self.set(place, row, value);
        });
        self.end_row();
    }

    /// The position of a column, which is added if it does not exist; `hint` is its probable position.
    #[inline]
    pub(crate) fn place(&mut self, name: Name<'_>, hint: usize) -> usize {
        if self.columns.get(hint).is_some_and(|column| name.is(column.name())) {
            return hint;
        }
        self.find_or_add(name)
    }

    fn find_or_add(&mut self, name: Name<'_>) -> usize {
        let name = name.whole();
        if let Some(&place) = self.index.get(name.as_str()) {
            return place;
        }
        let place = self.columns.len();
        self.columns.push(Column::absent(&name, self.len()));
        self.index.insert(name.into(), place);
        place
    }

    /// Sets a value of the row that is being added. If a column is set twice, the first value stays.
    #[inline]
    pub(crate) fn set(&mut self, place: usize, row: usize, value: u64) {
        if let Some(column) = self.columns.get_mut(place)
            && column.len() == row
        {
            column.push(Some(value));
        }
    }

    /// Ends the row that is being added.
    pub(crate) fn end_row(&mut self) {
        let row = self.len();
        self.columns.iter_mut().filter(|column| column.len() == row).for_each(|column| column.push(None));
        let at = self.column(layout::AT).and_then(|at| at.get(row));
        self.times.push(at.unwrap_or(0));
    }

    /// Forgets the rows; the columns stay.
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.columns.iter_mut().for_each(Column::clear);
    }

    /// Makes a table of whole columns; `None` unless they are equally long and have different names.
    pub(crate) fn from_columns(columns: Vec<Column>) -> Option<Self> {
        let rows = columns.first().map_or(0, Column::len);
        let index: HashMap<Box<str>, usize> =
            columns.iter().enumerate().map(|(place, column)| (column.name().into(), place)).collect();
        let whole = columns.iter().all(|column| column.len() == rows) && index.len() == columns.len();
        let at = index.get(layout::AT).map(|&place| &columns[place]);
        let times = (0..rows).map(|row| at.and_then(|at| at.get(row)).unwrap_or(0)).collect();
        whole.then_some(Samples { times, columns, index })
    }
}
