//! [`Samples`]: the counters of a run, one column each.

use std::collections::HashMap;
use std::ops::Range;

use crate::layout::{self, Layout};
use crate::{Sample, Window};

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
///
/// The units of counters are in `docs/counters.md`; `docs/sim-and-lab.md` says the same for those who open
/// the Parquet file.
///
/// A counter that a sample does not have is absent from its row, not zero. Columns are in the order in which
/// they were first seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    rows: usize,
    columns: Vec<Column>,
    index: HashMap<Box<str>, usize>,
}

/// One column of [`Samples`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    name: Box<str>,
    /// Zero where the value is absent.
    values: Vec<u64>,
    present: Vec<bool>,
}

impl Column {
    pub(crate) fn new(name: &str, values: Vec<u64>, present: Vec<bool>) -> Self {
        debug_assert_eq!(values.len(), present.len());
        Column { name: name.into(), values, present }
    }

    /// The column's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value in one row; `None` if it is absent.
    pub fn get(&self, row: usize) -> Option<u64> {
        self.present.get(row)?.then(|| self.values.get(row).copied())?
    }

    /// The values, row by row.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<u64>> + '_ {
        self.values.iter().zip(&self.present).map(|(value, present)| present.then_some(*value))
    }

    pub(crate) fn parts(&self) -> (&[u64], &[bool]) {
        (&self.values, &self.present)
    }

    fn resize(&mut self, rows: usize) {
        self.values.resize(rows, 0);
        self.present.resize(rows, false);
    }
}

impl Samples {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Times of the samples, in nanoseconds since the run began; ascending.
    pub fn times(&self) -> &[u64] {
        self.column(layout::AT).map_or(&[], |at| &at.values)
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
        (row < self.rows).then(|| Layout::of(&self.columns).sample(&self.columns, row))
    }

    /// All rows as the machine yielded them.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + '_ {
        let layout = Layout::of(&self.columns);
        (0..self.rows).map(move |row| layout.sample(&self.columns, row))
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, sample: &Sample) {
        let mut next = 0;
        let row = self.rows;
        layout::visit(sample, &mut |name, value| {
            let place = self.place(name, next);
            next = place + 1;
            self.set(place, row, value);
        });
        self.end_row();
    }

    /// The position of a column, which is added if it does not exist; `hint` is its probable position.
    pub(crate) fn place(&mut self, name: &str, hint: usize) -> usize {
        if self.columns.get(hint).is_some_and(|column| &*column.name == name) {
            return hint;
        }
        if let Some(&place) = self.index.get(name) {
            return place;
        }
        let place = self.columns.len();
        let (values, present) = (vec![0; self.rows], vec![false; self.rows]);
        self.columns.push(Column::new(name, values, present));
        self.index.insert(name.into(), place);
        place
    }

    /// Sets a value of the row that is being added. If a column is set twice, the first value stays.
    pub(crate) fn set(&mut self, place: usize, row: usize, value: u64) {
        if let Some(column) = self.columns.get_mut(place)
            && column.values.len() == row
        {
            column.values.push(value);
            column.present.push(true);
        }
    }

    /// Ends the row that is being added.
    pub(crate) fn end_row(&mut self) {
        self.rows += 1;
        for column in &mut self.columns {
            column.resize(self.rows);
        }
    }

    /// Forgets the rows; the columns stay.
    pub(crate) fn clear(&mut self) {
        self.rows = 0;
        self.columns.iter_mut().for_each(|column| column.resize(0));
    }

    /// Makes a table of whole columns; `None` unless they are equally long and have different names.
    pub(crate) fn from_columns(columns: Vec<Column>) -> Option<Self> {
        let rows = columns.first().map_or(0, |column| column.values.len());
        let index: HashMap<Box<str>, usize> =
            columns.iter().enumerate().map(|(place, column)| (column.name.clone(), place)).collect();
        let whole = columns.iter().all(|column| column.values.len() == rows) && index.len() == columns.len();
        whole.then_some(Samples { rows, columns, index })
    }
}
