//! The machines that are captured, and the conditions that each capture must meet.

use super::Result;
use super::shows::{Is, Shows};

/// One capture: a machine, a script that runs on it, and conditions that the result must meet.
pub(super) struct Scenario {
    /// Name of the fixture: kernel series, nodes, subject.
    pub name: &'static str,
    /// Subject of the capture.
    pub subject: Subject,
    /// Title, one sentence.
    pub title: &'static str,
    /// Kernel series, such as `6.1`; its newest package is used.
    pub kernel: &'static str,
    /// Memory of each NUMA node, in MiB. The two CPUs are assigned to the nodes in turn.
    pub nodes: &'static [u64],
    /// Distance between two nodes, as the firmware's SLIT table says it (10 is local).
    pub distance: u32,
    /// Size of the disk that `swap_on` uses, in MiB; 0 for none.
    pub swap: u64,
    /// More kernel parameters, each with a space before it.
    pub parameters: &'static str,
    /// Shell script, which uses the functions of `guest/library.sh`.
    pub script: &'static str,
    /// Conditions without which the capture is worthless.
    pub shows: &'static [Shows],
}

/// Subject of a capture.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// A machine: all files that a diagnosis reads are captured twice.
    Host,
    /// The kernel's derivation of watermarks and limits: a few files are captured whenever the script says
    /// `look`.
    Marks,
}

impl Subject {
    /// Directory of the fixtures, below `fixtures`.
    pub(super) const fn directory(self) -> &'static str {
        match self {
            Self::Host => "hosts",
            Self::Marks => "marks",
        }
    }

    /// Description of the samples, for the top of the fixture.
    pub(super) const fn samples(self) -> &'static str {
        match self {
            Self::Host => "0s/ all files, 5s/ those that change; proc/uptime has the exact times",
            Self::Marks => {
                "one for each `look`, counted from 0s/; of zoneinfo and vmstat only the lines that count"
            }
        }
    }
}

impl Scenario {
    /// Number of samples.
    pub(super) fn samples(&self) -> usize {
        match self.subject {
            Subject::Host => 2,
            Subject::Marks => {
                self.script.lines().filter(|line| line.split(' ').next() == Some("look")).count()
            }
        }
    }

    /// Times of the samples in the archive, in seconds.
    pub(super) fn times(&self) -> impl Iterator<Item = f64> {
        let step = match self.subject {
            Subject::Host => super::samples::INTERVAL,
            Subject::Marks => 1.0,
        };
        (0u32..).map(move |index| f64::from(index) * step)
    }
}

/// Finds a scenario by its name.
pub(super) fn find(name: &str) -> Result<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
        let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        format!("no capture {name}; there are: {}, host", names.join(", ")).into()
    })
}

const fn shows(path: &'static str, field: &'static str, is: Is) -> Shows {
    Shows { path, field, is }
}

/// A script that changes one setting after another, on a machine that is otherwise idle.
const MARKS: &str = "\
file data 200
sync
look
thp never
look
thp madvise
look
echo 200 >/proc/sys/vm/watermark_scale_factor
look
echo 64 128 16 8 0 >/proc/sys/vm/lowmem_reserve_ratio
look
echo 629145600 >/proc/sys/vm/dirty_bytes
echo 314572801 >/proc/sys/vm/dirty_background_bytes
look
look realtime
echo 37 >/proc/sys/vm/dirty_ratio
echo 41 >/proc/sys/vm/dirty_background_ratio
look
echo 10 >/proc/sys/vm/watermark_scale_factor
echo 131074 >/proc/sys/vm/min_free_kbytes
look
thp never
look
echo 16384 >/proc/sys/vm/min_free_kbytes
look
thp always
look
";

const MARKS_SHOW: &[Shows] = &[
    shows("proc/meminfo", "Cached", Is::AtLeast(200 * 1024)),
    shows("proc/sys/vm/watermark_scale_factor", "", Is::Exactly(10)),
    shows("proc/sys/vm/lowmem_reserve_ratio", "", Is::Exactly(256)),
    shows("proc/sys/vm/dirty_ratio", "", Is::Exactly(20)),
    shows("sys/kernel/mm/transparent_hugepage/enabled", "", Is::Text("[always] madvise never")),
];

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "6.1-1node-plain",
        subject: Subject::Host,
        title: "One node, no swap, nothing wrong: an application, a file in the page cache, a little tmpfs.",
        kernel: "6.1",
        nodes: &[640],
        distance: 10,
        swap: 0,
        parameters: "",
        script: "\
hold app 96
hold cache 16 nothp
file data 64
dd if=/dev/zero of=/dev/shm/state bs=1M count=16 2>/dev/null
",
        shows: &[
            shows("proc/meminfo", "SwapTotal", Is::Exactly(0)),
            shows("proc/meminfo", "AnonPages", Is::AtLeast(96 * 1024)),
            shows("proc/meminfo", "AnonHugePages", Is::AtLeast(64 * 1024)),
            shows("proc/meminfo", "Shmem", Is::AtLeast(15 * 1024)),
            shows("proc/meminfo", "Cached", Is::AtLeast(80 * 1024)),
            shows("proc/vmstat", "allocstall_normal", Is::Exactly(0)),
            shows("sys/kernel/mm/lru_gen/enabled", "", Is::Text("0x0000")),
        ],
    },
    Scenario {
        name: "6.1-2nodes-swap-hugepages",
        subject: Subject::Host,
        title: "Two nodes; a huge page pool shared by two processes of a database, partly reserved, partly \
                unused; swap that holds old pages and is not being used.",
        kernel: "6.1",
        nodes: &[384, 384],
        distance: 20,
        swap: 256,
        parameters: "",
        script: "\
swap_on
echo 40 >/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
echo 24 >/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
hold db_writer 64 shm=7001 huge
hold db_reader 64 shm=7001 huge
hold db_private 16 huge untouched
hold db_small 24 shm=7002
hold pool 48 nothp interleave=3
group batch
hold_in /sys/fs/cgroup/batch batch 40 nothp
echo 32M >/sys/fs/cgroup/batch/memory.reclaim
",
        shows: &[
            shows("proc/meminfo", "HugePages_Total", Is::Exactly(64)),
            shows("proc/meminfo", "HugePages_Free", Is::Exactly(32)),
            shows("proc/meminfo", "HugePages_Rsvd", Is::Exactly(8)),
            shows("sys/devices/system/node/node1/meminfo", "HugePages_Total", Is::Exactly(24)),
            shows("proc/swaps", "partition", Is::AtLeast(256_000)),
            shows("proc/vmstat", "pswpout", Is::AtLeast(7000)),
            shows("proc/vmstat", "pswpin", Is::Stays),
            shows("proc/sysvipc/shm", "7001", Is::AtLeast(0)),
            shows("sys/devices/system/node/node1/distance", "", Is::Text("20 10")),
        ],
    },
    Scenario {
        name: "6.1-2nodes-zone-reclaim",
        subject: Subject::Host,
        title: "Two distant nodes with vm.zone_reclaim_mode=1: files are read on node 0 and reclaimed there, \
                while node 1 has free memory.",
        kernel: "6.1",
        nodes: &[256, 256],
        distance: 40,
        swap: 0,
        parameters: "",
        script: "\
echo 1 >/proc/sys/vm/zone_reclaim_mode
taskset 2 perl /guest/hold.pl store 32 &
wait_for /run/store
taskset 1 sh -c '. /guest/library.sh; file data 300; >/run/written; while :; do cat /srv/data; done' >/dev/null &
wait_for /run/written
sleep 3
",
        shows: &[
            shows("proc/sys/vm/zone_reclaim_mode", "", Is::Exactly(1)),
            shows("proc/vmstat", "pgscan_direct", Is::RisesBy(10_000)),
            shows("proc/vmstat", "allocstall_movable", Is::Stays),
            shows("proc/vmstat", "allocstall_normal", Is::Stays),
            shows("proc/vmstat", "pgpgin", Is::RisesBy(10_000)),
            shows("sys/devices/system/node/node1/meminfo", "MemFree", Is::AtLeast(128 * 1024)),
            shows("sys/devices/system/node/node0/distance", "", Is::Text("10 40")),
        ],
    },
    Scenario {
        name: "6.12-1node-swap",
        subject: Subject::Host,
        title: "One node that swaps: two heaps that do not fit beside each other are used in turn.",
        kernel: "6.12",
        nodes: &[384],
        distance: 10,
        swap: 512,
        parameters: "",
        script: "\
swap_on
hold heap_a 156 nothp every=1
hold heap_b 156 nothp every=1
file data 32
sleep 3
",
        shows: &[
            shows("proc/vmstat", "pswpin", Is::RisesBy(1000)),
            shows("proc/vmstat", "pswpout", Is::RisesBy(1000)),
            shows("proc/vmstat", "pgmajfault", Is::RisesBy(100)),
            shows("proc/pressure/memory", "some", Is::RisesBy(50_000)),
            shows("sys/kernel/mm/lru_gen/enabled", "", Is::Text("0x0007")),
        ],
    },
    Scenario {
        name: "6.12-2nodes-hugepages-idle",
        subject: Subject::Host,
        title: "Two nodes; more than a third of the memory is in a huge page pool that nobody uses.",
        kernel: "6.12",
        nodes: &[448, 448],
        distance: 20,
        swap: 0,
        parameters: "",
        script: "\
echo 160 >/proc/sys/vm/nr_hugepages
hold app 64
hold cache 24 nothp lock
file data 48
",
        shows: &[
            shows("proc/meminfo", "HugePages_Total", Is::Exactly(160)),
            shows("proc/meminfo", "HugePages_Free", Is::Exactly(160)),
            shows("sys/devices/system/node/node0/meminfo", "HugePages_Free", Is::Exactly(80)),
            shows("proc/meminfo", "Mlocked", Is::AtLeast(24 * 1024)),
        ],
    },
    Scenario {
        name: "6.12-2nodes-cgroup",
        subject: Subject::Host,
        title: "Two nodes; a database in a cgroup v2 group that needs more than its memory.high, beside one \
                that memory.low protects; the machine as a whole has free memory.",
        kernel: "6.12",
        nodes: &[384, 384],
        distance: 20,
        swap: 256,
        parameters: "",
        script: "\
swap_on
group db memory.high=64M memory.max=96M
group web memory.low=32M cpuset.mems=1
group idle memory.swap.max=0
hold_in /sys/fs/cgroup/db store 60 nothp every=1
hold_in /sys/fs/cgroup/db writer 12 nothp every=1
hold_in /sys/fs/cgroup/web web 40
sleep 3
",
        shows: &[
            shows("sys/fs/cgroup/db/memory.events", "high", Is::RisesBy(10)),
            shows("sys/fs/cgroup/db/memory.pressure", "some", Is::RisesBy(50_000)),
            shows("sys/fs/cgroup/db/memory.max", "", Is::Exactly(96 << 20)),
            shows("sys/fs/cgroup/web/memory.low", "", Is::Exactly(32 << 20)),
            shows("proc/vmstat", "pswpout", Is::AtLeast(1)),
            shows("proc/meminfo", "MemFree", Is::AtLeast(300 * 1024)),
        ],
    },
    Scenario {
        name: "6.1-1node-marks",
        subject: Subject::Marks,
        title: "One node with DMA, DMA32 and Normal: watermarks, reserves and dirty limits under one setting after another.",
        kernel: "6.1",
        nodes: &[5120],
        distance: 10,
        swap: 0,
        parameters: "",
        script: MARKS,
        shows: MARKS_SHOW,
    },
    Scenario {
        name: "6.1-2nodes-marks",
        subject: Subject::Marks,
        title: "Two nodes, the second with a Movable zone: watermarks, reserves and dirty limits under one setting after another.",
        kernel: "6.1",
        nodes: &[4096, 2048],
        distance: 20,
        swap: 0,
        parameters: " movablecore=1G",
        script: MARKS,
        shows: MARKS_SHOW,
    },
    Scenario {
        name: "6.12-1node-marks",
        subject: Subject::Marks,
        title: "One node with DMA, DMA32 and Normal: watermarks, reserves and dirty limits under one setting after another.",
        kernel: "6.12",
        nodes: &[5120],
        distance: 10,
        swap: 0,
        parameters: "",
        script: MARKS,
        shows: MARKS_SHOW,
    },
    Scenario {
        name: "6.12-2nodes-marks",
        subject: Subject::Marks,
        title: "Two nodes, the second with a Movable zone: watermarks, reserves and dirty limits under one setting after another.",
        kernel: "6.12",
        nodes: &[4096, 2048],
        distance: 20,
        swap: 0,
        parameters: " movablecore=1G",
        script: MARKS,
        shows: MARKS_SHOW,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_begin_with_kernel_and_nodes() {
        for (index, scenario) in SCENARIOS.iter().enumerate() {
            let nodes = scenario.nodes.len();
            let plural = if nodes == 1 { "" } else { "s" };
            let start = format!("{}-{nodes}node{plural}-", scenario.kernel);
            assert!(scenario.name.starts_with(&start), "{} does not begin with {start}", scenario.name);
            assert!(SCENARIOS[..index].iter().all(|other| other.name != scenario.name));
            assert!(!scenario.shows.is_empty());
        }
    }

    #[test]
    fn only_a_machine_with_a_swap_disk_swaps_on_it() {
        for scenario in SCENARIOS {
            assert_eq!(scenario.script.contains("swap_on"), scenario.swap > 0, "{}", scenario.name);
        }
    }
}
