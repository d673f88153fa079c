//! [`Costs`]: what the kernel's work costs in time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::Measured;

/// Costs that no counter of a kernel tells, each with the one whose work is most like it: all of them look at
/// pages of an LRU list or at what maps them.
const LIKE: [(&str, &str); 3] = [("skip", "scan"), ("lru_lock", "scan"), ("walk", "scan")];

impl MeasuredCosts {
    /// How many times the model's own a cost is taken to be that was not measured, and the cost that says so:
    /// the one whose work is most like it, and without that the median of all that were measured; 1 if none
    /// was.
    ///
    /// An emulated machine shows why the median does not do for all. It takes 4 to 7 times the model's own
    /// for `scan`, `rmap` and `free`, and 16 to 40 times for what moves bytes or asks a device.
    pub fn times(&self, name: &str) -> (f64, Option<&'static str>) {
        let like = LIKE.iter().find(|(of, _)| *of == name).map(|(_, like)| *like);
        match like.and_then(|like| Some((self.ratio(like)?, like))) {
            Some((times, like)) => (times, Some(like)),
            None => (self.median_ratio(), None),
        }
    }

    /// How many times the model's own a cost is; `None` if it was not measured, or if the model does not take
    /// any by itself, which says nothing of the rest.
    fn ratio(&self, name: &str) -> Option<f64> {
        let own = Costs::default().entries().find(|(own, _)| *own == name)?.1;
        let measured = self.entries().find(|(measured, _)| *measured == name)?.1?;
        (own > 0).then(|| measured.median / own as f64)
    }

    fn median_ratio(&self) -> f64 {
        let times: Vec<f64> = Costs::NAMES.iter().filter_map(|name| self.ratio(name)).collect();
        Measured::of(&times).map_or(1.0, |times| times.median)
    }

    /// Each cost in nanoseconds: as measured, or as many times the model's own as [`times`](Self::times)
    /// says.
    pub fn or_estimate(&self) -> Vec<(&'static str, f64)> {
        let own = Costs::default();
        let cost = |((name, own), (_, measured)): ((&'static str, u64), (_, Option<Measured>))| {
            (name, measured.map_or_else(|| own as f64 * self.times(name).0, |measured| measured.median))
        };
        own.entries().zip(self.entries()).map(cost).collect()
    }
}

/// What some costs took on the Xeon that the table names, in nanoseconds: those by which its defaults are
/// furthest from a measured machine.
const MEASURED: [(&str, u64); 2] = [("zero", 830), ("submit", 15_000)];

impl Costs {
    /// How many times longer than by default zeroing a page and submitting a request took on the server where
    /// they were measured: the smaller and the larger of the two.
    pub fn optimism() -> (f64, f64) {
        let own = Costs::default();
        let times = own.entries().filter_map(|(name, default)| {
            let measured = MEASURED.iter().find(|(known, _)| *known == name)?.1;
            Some(measured as f64 / default.max(1) as f64)
        });
        times.fold((f64::MAX, 0.0), |(least, most), times| (times.min(least), times.max(most)))
    }
}

/// One declaration of the costs: names, defaults and meanings, for the model, for records and for the
/// reference page.
macro_rules! costs {
    ($($(#[doc = $about:literal])+ $name:ident = $default:literal;)+) => {
        /// CPU times in nanoseconds. The defaults are estimates of the order unless a source is given; a
        /// measured record takes their place, and a scenario may state each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Costs {
            $($(#[doc = $about])+ pub $name: u64,)+
        }

        impl Default for Costs {
            fn default() -> Self {
                Costs { $($name: $default,)+ }
            }
        }

        impl Costs {
            /// The names of the costs.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)+];

            /// The costs by name.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// Sets one cost, in nanoseconds; false if there is none of that name.
            #[must_use]
            pub fn set(&mut self, name: &str, ns: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = ns,)+
                    _ => return false,
                }
                true
            }

            /// What each means.
            pub(crate) fn about() -> impl Iterator<Item = (&'static str, String)> {
                [$((stringify!($name), concat!($($about, " "),+).trim().to_owned()),)+].into_iter()
            }
        }

        /// The costs that were measured, in nanoseconds.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct MeasuredCosts {
            $(
                $(#[doc = $about])+
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $name: Option<Measured>,
            )+
        }

        impl MeasuredCosts {
            /// Takes from others what is missing here, and returns the names of that.
            pub fn complete(&mut self, others: &Self) -> Vec<&'static str> {
                let mut taken = Vec::new();
                $(if let (None, Some(other)) = (self.$name, others.$name) {
                    self.$name = Some(other);
                    taken.push(stringify!($name));
                })+
                taken
            }

            /// The costs by name; `None` where it was not measured.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, Option<Measured>)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

costs! {
    /// Load or store of a resident page by a program: TLB and cache miss. Measured on an Intel Xeon (family
    /// 6, model 143; a virtual machine, 6.18): 18 ns within 1 MiB, 166 ns within 64 MiB, 420 ns within 5
    /// GiB.
    touch = 100;
    /// Entry to and exit from the kernel.
    syscall = 200;
    /// A fault of any kind, without allocation, zeroing and copying, which come on top
    /// (`mm/memory.rs:begin_fault` of the model charges it); a major one also takes requests (`submit`,
    /// charged by `mm/mod.rs:submit` for `mm/swap.rs:swap_in` and `mm/filemap.rs:filemap_fault_miss`, which
    /// count it) and the device's time. With 250 ns for a zeroed page and 150 ns for its allocation the sum
    /// is the 1.0 µs that the defaults aim at: "Overcommit memory in Linux" (Linux Embedded) measures 1.58
    /// µs on a server and 0.77 µs on a laptop for each of 1,048,576 first touches. `lotsfree lab calibrate`
    /// measures the machine at hand.
    fault = 600;
    /// Allocation of one page from a CPU's list.
    alloc = 150;
    /// Zeroing a page (16 GB/s): what is left of the sum that `fault` names. Measured on the same Xeon: 830
    /// ns.
    zero = 250;
    /// Copying a page between the page cache and a program (5 GB/s with the accounting around it).
    copy = 800;
    /// Writing to a page that the file did not have in the page cache, beside its allocation and the copy:
    /// what the file system does for it. Measured on the same Xeon, on ext4: 140 ns.
    write = 150;
    /// Taking one dirty page of a file for writeback: finding it, its place on disk, adding it to a request.
    /// Measured on the same Xeon, on ext4: 55 ns.
    writeback = 100;
    /// Taking one page off an LRU list, looking at it and putting it back or freeing it. Measured with the
    /// freeing, in a control group: 780 ns on the same Xeon, 875 ns on an AMD EPYC (a virtual machine, 6.18).
    scan = 830;
    /// Looking at one page of an LRU list that the scan may not take, such as a mapped one in zone reclaim,
    /// and putting it back.
    skip = 20;
    /// The part of `scan` for which the LRU lock is held while one page is taken off a list, and again while
    /// it is put back; also the part of a page's way into memory for which it is held to put the page on a
    /// list. It adds nothing to these costs, but on several CPUs others wait for as long. The example in
    /// the kernel's `Documentation/lockstat.txt` (2.6.27) has 32,690 holds of `zone->lru_lock` in 16,350 µs:
    /// 0.5 µs for a batch of at most 14 pages.
    lru_lock = 36;
    /// Finding out through the reverse mapping whether a mapped page was accessed, or unmapping it.
    /// Measured on the same Xeon: 410 ns, on the EPYC: 262 ns.
    rmap = 340;
    /// Freeing a page that a program gives back. Measured on the same Xeon: 220 to 380 ns, on the EPYC: 299
    /// ns.
    free = 300;
    /// Preparing one request for a device. Measured on the same Xeon, through ext4 to a virtual disk: 15 µs.
    submit = 3000;
    /// Waking up a sleeping task, until it runs. Measured on the same Xeon: 2.5 µs, and 10 µs while it was
    /// busy.
    wakeup = 3000;
    /// A sleep for some time, in CPU time: the call, its timer, the switches, and what the thread then has to
    /// fetch into caches again. By default a sleep takes none.
    sleep = 0;
    /// How much later than it asked a thread's sleep ends on average, before the wake-up; each is late by
    /// anything up to twice that. By default sleeps end when they should. A kernel lets timers of ordinary
    /// threads be 50 µs late since 2.6.28 (`timer_slack_ns` of `include/linux/init_task.h`, added by
    /// `kernel/time/hrtimer.c:hrtimer_nanosleep`).
    slack = 0;
    /// Writing one page to compressed swap (zram, zswap), which is compression in the first place; its memory
    /// comes on top. Measured on an AMD EPYC (a virtual machine, 6.18) with liblzo2 2.10, whose LZO1X is the
    /// algorithm of the defaults of zram and zswap, `lzo-rle` and `lzo`: 13.3 µs for pages of programs and
    /// text that shrink to 60 %, 1.7 µs for pages that are random bytes and then one byte over and over, as
    /// those of the lab are.
    compress = 13_000;
    /// Reading one page of compressed swap. Measured in the same way: 7.5 µs and 1.2 µs.
    decompress = 7_500;
    /// MGLRU: looking at one page-table entry while page tables are walked in order.
    walk = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_counter_tells_is_estimated_by_the_work_that_is_most_like_it() {
        let own = Costs::default();
        let measured = |times: f64, own: u64| Measured::of(&[own as f64 * times]);
        let mut costs = MeasuredCosts {
            copy: measured(20.0, own.copy),
            write: measured(30.0, own.write),
            submit: measured(40.0, own.submit),
            ..MeasuredCosts::default()
        };
        // Nothing that is like it was measured either: the median of the rest.
        assert_eq!(costs.times("lru_lock"), (30.0, None));
        costs.scan = measured(4.0, own.scan);
        for name in ["lru_lock", "skip", "walk"] {
            assert_eq!(costs.times(name), (4.0, Some("scan")), "{name}");
        }
        assert_eq!(costs.times("rmap"), (25.0, None));
        let estimates = costs.or_estimate();
        let of = |name: &str| estimates.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(of("lru_lock"), own.lru_lock as f64 * 4.0);
        assert_eq!(of("scan"), own.scan as f64 * 4.0);
        assert_eq!(of("free"), own.free as f64 * 25.0);
    }
}
