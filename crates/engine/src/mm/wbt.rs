//! Writeback throttling: limits the buffered writes that may be at a device at a time (`block/blk-wbt.c`,
//! `block/blk-rq-qos.c` of 6.1; from 4.10 on, with `CONFIG_BLK_WBT_MQ`).
//!
//! The depth begins at 16 requests. Every 104 ms or less it is halved if the fastest read took too long:
//! more than 2 ms on a device that does not rotate, or 75 ms on one that does. It is doubled if not, or if
//! there are only writes. Writes that somebody waits for may use the whole depth, and so may all others for a
//! while after a writer was held to the dirty limit. Otherwise others get half of it, or a quarter while
//! there are reads or if nobody waits for the writes. kswapd, and on 6.12 instead of it whoever writes to
//! swap, may use the whole depth too, and has requests that are counted separately.
//!
//! Who finds no room sleeps. On a device with a write cache, which every one here is taken to have, sleepers
//! of a kind are woken when none of their requests is at the device any more, so that a full queue is first
//! written whole. For a while after a writer was held to the dirty limit, they are woken earlier. All are
//! woken when the depth has been doubled, here at the next request that completes.

/// RWB_DEF_DEPTH
const DEPTH: u32 = 16;
/// RWB_WINDOW_NSEC
const WINDOW: u64 = 100_000_000;
/// A window lasts a number of ticks, and one more, as its timer does (`blk_stat_activate_nsecs`,
/// `calc_index` in `kernel/time/timer.c`): 104 ms at the first depth, 48 ms at a depth of 1. In nanoseconds,
/// with HZ=250.
const TICK: u64 = 4_000_000;
/// RWB_MIN_WRITE_SAMPLES
const WRITE_SAMPLES: u64 = 3;
/// RWB_UNKNOWN_BUMP: windows without reads and writes after which the depth begins to return to its first
/// value.
const UNKNOWN_BUMP: u32 = 5;
/// HZ/10 and HZ: for how long a read counts as recent, and for how long the pause of a writer does.
const RECENT_READ: u64 = 100_000_000;
const RECENT_PAUSE: u64 = 1_000_000_000;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The flusher, above the background limit or for old dirty pages (`REQ_BACKGROUND`).
    Background,
    /// A task that does not wait for the data: direct reclaim, `sync_file_range`.
    Task,
    /// A task that waits for the data, as in `fdatasync` (`REQ_SYNC`).
    Sync,
    /// kswapd (`current_is_kswapd`), or whoever writes to swap (`REQ_SWAP`; read in 6.12).
    Favoured,
}

impl Writer {
    /// The index of the count that a writer's requests belong to: that of the favoured, or that of all others
    /// (`get_rq_wait`).
    pub(crate) fn kind(self) -> usize {
        usize::from(self != Writer::Favoured)
    }
}

fn is_recent(at: Option<u64>, span: u64, now: u64) -> bool {
    at.is_some_and(|at| now < at + span)
}

/// Completions of a device in a window.
#[derive(Debug, Default)]
struct Window {
    /// Reads that completed, and the nanoseconds that the fastest took.
    reads: u64,
    fastest: u64,
    writes: u64,
}

/// State of one device (`struct rq_wb`, `struct rq_depth`).
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Nanoseconds that a read may take before the depth is reduced.
    guarded: u64,
    /// Requests that the queue holds.
    queue: u32,
    step: i32,
    scaled_max: bool,
    depth: u32,
    unknown: u32,
    /// When the window ends; `None` while nothing is throttled.
    ends: Option<u64>,
    window: Window,
    /// Requests at the device: those of the favoured, and those of others.
    in_flight: [u32; 2],
    /// When a read was last sent or completed.
    read_at: Option<u64>,
    /// A read that has not completed yet, and when it was sent.
    waited: Option<(u64, u64)>,
    /// When a writer was last held to the dirty limit (`dirty_sleep`).
    held_at: Option<u64>,
    /// The depth was doubled since sleepers were last woken.
    doubled: bool,
}

impl Throttle {
    /// The throttling of a device whose queue holds `queue` requests.
    pub(crate) fn new(rotational: bool, queue: u32) -> Self {
        let guarded = if rotational { 75_000_000 } else { 2_000_000 };
        Throttle {
            guarded,
            queue,
            step: 0,
            scaled_max: false,
            depth: DEPTH.min(queue),
            unknown: 0,
            ends: None,
            window: Window::default(),
            in_flight: [0; 2],
            read_at: None,
            waited: None,
            held_at: None,
            doubled: false,
        }
    }

    /// The number of further requests that a writer may send now (`get_limit`).
    pub(crate) fn room(&mut self, writer: Writer, now: u64) -> u32 {
        self.advance(now);
        let (normal, background) = self.limits();
        let limit = if matches!(writer, Writer::Favoured | Writer::Sync) || self.held_lately(now) {
            self.depth
        } else if writer == Writer::Background || is_recent(self.read_at, RECENT_READ, now) {
            background
        } else {
            normal
        };
        limit.saturating_sub(self.in_flight[writer.kind()])
    }

    /// The requests that writers may have at the device: all, and those of background writeback
    /// (`wb_normal`, `wb_background`; `calc_wb_limits`).
    fn limits(&self) -> (u32, u32) {
        match self.depth {
            0..=2 => (self.depth, 1),
            depth => (depth.div_ceil(2), depth.div_ceil(4)),
        }
    }

    /// A writer was held to the dirty limit in the last second (`wb_recent_wait`).
    fn held_lately(&self, now: u64) -> bool {
        is_recent(self.held_at, RECENT_PAUSE, now)
    }

    /// Whether a request that completes wakes the writers of each kind that sleep (`wbt_rqw_done`,
    /// `rwb_wake_all`).
    pub(crate) fn wakes(&mut self, now: u64) -> [bool; 2] {
        let (normal, background) = self.limits();
        let limit = if self.held_lately(now) { normal } else { 0 };
        let all = std::mem::take(&mut self.doubled);
        self.in_flight.map(|in_flight| {
            all || in_flight == 0 || (in_flight < limit && limit - in_flight >= background / 2)
        })
    }

    /// A write was sent to the device.
    pub(crate) fn sent(&mut self, writer: Writer, now: u64) {
        self.advance(now);
        self.in_flight[writer.kind()] += 1;
        if self.ends.is_none() {
            self.arm(now);
        }
    }

    /// A write completed.
    pub(crate) fn written(&mut self, writer: Writer, now: u64) {
        self.advance(now);
        self.in_flight[writer.kind()] -= 1;
        self.window.writes += 1;
    }

    /// A read, or a write past the page cache, was sent.
    pub(crate) fn asked(&mut self, id: u64, read: bool, now: u64) {
        self.advance(now);
        self.read_at = Some(now);
        if read && self.waited.is_none() {
            self.waited = Some((id, now));
        }
    }

    /// A read, or a write past the page cache, that was sent at `since` has completed.
    pub(crate) fn answered(&mut self, id: u64, read: bool, since: u64, now: u64) {
        self.advance(now);
        self.read_at = Some(now);
        if read {
            let took = now.saturating_sub(since);
            let window = &mut self.window;
            window.fastest = if window.reads == 0 { took } else { window.fastest.min(took) };
            window.reads += 1;
        } else {
            self.window.writes += 1;
        }
        if self.waited.is_some_and(|(waited, _)| waited == id) {
            self.waited = None;
        }
    }

    /// A writer is held to the dirty limit.
    pub(crate) fn held(&mut self, now: u64) {
        self.held_at = Some(now);
    }

    /// Evaluates the windows that are over (`wb_timer_fn`).
    fn advance(&mut self, now: u64) {
        while let Some(end) = self.ends.filter(|end| *end <= now) {
            let window = std::mem::take(&mut self.window);
            let in_flight = self.in_flight.iter().any(|count| *count > 0);
            let waits = self.waited.map(|(_, since)| end.saturating_sub(since));
            let late = waits
                .is_some_and(|waits| waits > self.width() || (waits > self.guarded && window.reads == 0));
            if late {
                self.scale_down(true);
            } else if window.reads > 0 && window.writes >= WRITE_SAMPLES {
                if window.fastest > self.guarded { self.scale_down(true) } else { self.scale_up() }
            } else if window.writes > 0 || in_flight || self.held_at.is_some_and(|at| end < at + RECENT_PAUSE)
            {
                self.scale_up();
            } else {
                self.unknown += 1;
                if self.unknown >= UNKNOWN_BUMP {
                    match self.step {
                        1.. => self.scale_up(),
                        0 => {}
                        _ => self.scale_down(false),
                    }
                }
            }
            self.ends = None;
            if self.step != 0 || in_flight {
                self.arm(end);
            }
        }
    }

    fn arm(&mut self, now: u64) {
        self.ends = Some(now + (self.width() / TICK + 1) * TICK);
    }

    /// The length of a window, which is shorter for a smaller depth.
    fn width(&self) -> u64 {
        match u64::try_from(self.step) {
            Ok(step) if step > 0 => (WINDOW << 4) / ((step + 1) << 8).isqrt(),
            _ => WINDOW,
        }
    }

    fn scale_up(&mut self) {
        if self.scaled_max {
            return;
        }
        self.step -= 1;
        self.scaled_max = self.calculate();
        self.unknown = 0;
        self.doubled = true;
    }

    fn scale_down(&mut self, hard: bool) {
        if self.depth == 1 {
            return;
        }
        self.step = if self.step < 0 && hard { 0 } else { self.step + 1 };
        self.scaled_max = false;
        self.calculate();
        self.unknown = 0;
    }

    /// `rq_depth_calc_max_depth`; returns whether the depth has reached its maximum.
    fn calculate(&mut self) -> bool {
        let beyond = DEPTH.min(self.queue) - 1;
        match u32::try_from(self.step) {
            Ok(step) => {
                self.depth = 1 + (beyond >> step.min(31));
                false
            }
            Err(_) => {
                let most = self.queue * 3 / 4;
                let depth = 1 + (u64::from(beyond) << self.step.unsigned_abs().min(31));
                self.depth = depth.min(u64::from(most)) as u32;
                depth > u64::from(most)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_writes_decides_how_much_of_the_depth() {
        let mut throttle = Throttle::new(false, 256);
        let room = |throttle: &mut Throttle, now| {
            [Writer::Favoured, Writer::Task, Writer::Background].map(|writer| throttle.room(writer, now))
        };
        assert_eq!(room(&mut throttle, 0), [16, 8, 4]);
        throttle.asked(1, true, 0);
        throttle.answered(1, true, 0, MS);
        assert_eq!(room(&mut throttle, 50 * MS), [16, 4, 4], "there are reads");
        assert_eq!(room(&mut throttle, 150 * MS), [16, 8, 4]);
        throttle.held(150 * MS);
        assert_eq!(room(&mut throttle, 160 * MS), [16, 16, 16], "a writer is held to the dirty limit");
        throttle.sent(Writer::Favoured, 160 * MS);
        throttle.sent(Writer::Task, 160 * MS);
        throttle.sent(Writer::Background, 160 * MS);
        assert_eq!(room(&mut throttle, 160 * MS), [15, 14, 14]);
    }

    #[test]
    fn writes_alone_get_most_of_the_queue_and_slow_reads_leave_them_one() {
        let mut throttle = Throttle::new(false, 256);
        throttle.sent(Writer::Task, 0);
        let depths: Vec<u32> = (0..6).map(|n| throttle.room(Writer::Favoured, n * 104 * MS + 1)).collect();
        assert_eq!(depths, [16, 31, 61, 121, 192, 192]);
        // Reads take 3 ms, beside writes.
        let mut depths = Vec::new();
        let mut now = 624 * MS;
        while now < 1640 * MS {
            throttle.asked(now, true, now);
            throttle.answered(now, true, now, now + 3 * MS);
            throttle.sent(Writer::Task, now + 4 * MS);
            throttle.written(Writer::Task, now + 5 * MS);
            depths.push(throttle.room(Writer::Favoured, now + 5 * MS));
            now += 10 * MS;
        }
        depths.dedup();
        assert_eq!(depths, [192, 16, 8, 4, 2, 1]);
        // Where 75 ms are allowed, the depth is not reduced.
        let mut disk = Throttle::new(true, 256);
        disk.sent(Writer::Task, 0);
        disk.asked(1, true, 10 * MS);
        disk.answered(1, true, 10 * MS, 40 * MS);
        (0..3).for_each(|_| {
            disk.sent(Writer::Task, 50 * MS);
            disk.written(Writer::Task, 60 * MS);
        });
        assert_eq!(disk.room(Writer::Favoured, 105 * MS), 31);
    }

    #[test]
    fn sleepers_are_woken_when_nothing_is_under_way_or_the_depth_was_doubled() {
        let mut throttle = Throttle::new(false, 256);
        (0..16).for_each(|_| throttle.sent(Writer::Favoured, 0));
        (0..2).for_each(|_| throttle.sent(Writer::Task, 0));
        let mut written = |writer, now| {
            throttle.written(writer, now);
            throttle.wakes(now)
        };
        assert_eq!(written(Writer::Favoured, MS), [false, false]);
        assert_eq!(written(Writer::Task, 2 * MS), [false, false]);
        assert_eq!(written(Writer::Task, 3 * MS), [false, true], "that was the last of its kind");
        assert_eq!(written(Writer::Favoured, 105 * MS), [true, true], "the depth is 31 now");
        assert_eq!(written(Writer::Favoured, 106 * MS), [false, true]);
        // For a second after a writer was held to the dirty limit, up to half of the depth less an eighth of
        // it may be under way.
        throttle.held(106 * MS);
        assert_eq!(throttle.wakes(107 * MS), [false, true], "13");
        throttle.written(Writer::Favoured, 107 * MS);
        assert_eq!(throttle.wakes(107 * MS), [true, true], "12");
        assert_eq!(throttle.wakes(1200 * MS), [false, true]);
    }

    #[test]
    fn a_read_that_does_not_come_back_counts_and_rest_brings_the_depth_back() {
        let mut throttle = Throttle::new(false, 256);
        throttle.sent(Writer::Task, 0);
        throttle.asked(1, true, 0);
        assert_eq!(throttle.room(Writer::Favoured, 105 * MS), 8);
        throttle.written(Writer::Task, 110 * MS);
        throttle.answered(1, true, 0, 120 * MS);
        assert_eq!(throttle.room(Writer::Favoured, 60_000 * MS), 16);
        assert_eq!(throttle.ends, None, "nothing to watch");
    }
}
