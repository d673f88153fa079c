//! The options of a kernel for the lab, and the kernels that have them.
//!
//! Every option that is not listed gets the value `n` where the kernel asks for it (`allnoconfig`). So an
//! option is listed also where its default is `y`, unless only experts are asked for it (`EXPERT`, which is
//! `n` here).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::source::Version;

/// An option of the kernel's configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelOption {
    /// Its name without `CONFIG_`.
    name: &'static str,
    value: &'static str,
    /// The first `major.minor` that has it.
    since: (u32, u32),
    /// The first `major.minor` that no longer has it.
    before: (u32, u32),
}

/// A version before all kernels, and one after all.
const FIRST: (u32, u32) = (0, 0);
const LAST: (u32, u32) = (u32::MAX, 0);

const fn set(name: &'static str, value: &'static str) -> KernelOption {
    KernelOption { name, value, since: FIRST, before: LAST }
}

const fn on(name: &'static str) -> KernelOption {
    set(name, "y")
}

impl KernelOption {
    const fn since(mut self, major: u32, minor: u32) -> Self {
        self.since = (major, minor);
        self
    }

    const fn before(mut self, major: u32, minor: u32) -> Self {
        self.before = (major, minor);
        self
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    /// Its line of a `.config`.
    fn line(&self) -> String {
        match self.value {
            "n" => format!("# CONFIG_{} is not set", self.name),
            value => format!("CONFIG_{}={value}", self.name),
        }
    }

    /// Whether a `.config` has its value. An option whose value is `n` may be missing.
    fn is_met(&self, config: &BTreeSet<&str>) -> bool {
        let other = format!("CONFIG_{}=", self.name);
        config.contains(self.line().as_str())
            || self.value == "n" && !config.iter().any(|line| line.starts_with(&other))
    }
}

/// The options of all kernels. Those that shape memory management are as in Debian 12 (6.1), which has
/// others as well: zswap, memory hotplug, memory that is cleared when it is allocated.
const OPTIONS: &[KernelOption] = &[
    // The machine: CPUs, nodes and disks come by ACPI and PCI from QEMU.
    // An embedded system is an expert's, and both are what `allnoconfig` chooses from 3.17 on.
    set("EMBEDDED", "n"),
    set("EXPERT", "n"),
    on("64BIT"),
    on("SMP"),
    set("NR_CPUS", "64"),
    on("ACPI"),
    on("PCI"),
    on("PCI_MSI"),
    on("HYPERVISOR_GUEST"),
    on("PARAVIRT"),
    on("KVM_GUEST"),
    // QEMU starts a kernel at this entry without BIOS and decompression. Before 5.0 the entry is Xen's alone.
    on("PVH").since(5, 0),
    // The other unwinder needs objtool, and with it libelf, also before 5.10.
    on("UNWINDER_FRAME_POINTER").since(4, 15),
    // A guest has no sources of entropy to wait for.
    on("RANDOM_TRUST_CPU").since(4, 19).before(6, 2),
    // Time and scheduling.
    on("HZ_250"),
    on("NO_HZ_IDLE"),
    on("HIGH_RES_TIMERS"),
    on("PREEMPT_VOLUNTARY"),
    // Memory: nodes, reclaim, compaction and huge pages.
    on("NUMA"),
    on("X86_64_ACPI_NUMA"),
    set("NODES_SHIFT", "6"),
    on("NUMA_BALANCING"),
    on("NUMA_BALANCING_DEFAULT_ENABLED"),
    on("SPARSEMEM_VMEMMAP"),
    on("SLUB"),
    on("SLUB_CPU_PARTIAL").since(3, 11),
    on("SLAB_MERGE_DEFAULT").since(4, 13),
    on("VMAP_STACK").since(4, 9),
    on("SWAP"),
    on("MIGRATION"),
    on("COMPACTION"),
    on("KSM"),
    on("TRANSPARENT_HUGEPAGE"),
    on("TRANSPARENT_HUGEPAGE_ALWAYS"),
    on("HUGETLBFS"),
    on("LRU_GEN").since(6, 1),
    // Control groups.
    on("CGROUPS"),
    on("CPUSETS"),
    on("CGROUP_FREEZER"),
    on("CGROUP_PIDS").since(4, 3),
    on("CGROUP_CPUACCT"),
    on("CGROUP_SCHED"),
    on("FAIR_GROUP_SCHED"),
    on("CFS_BANDWIDTH"),
    on("RESOURCE_COUNTERS").before(3, 19),
    on("MEMCG"),
    on("MEMCG_SWAP").before(6, 1),
    on("MEMCG_SWAP_ENABLED").before(5, 8),
    on("BLK_CGROUP"),
    // Statistics that the lab reads of tasks and of pressure, and tracepoints for its blame.
    on("DEBUG_KERNEL"),
    on("SCHEDSTATS"),
    on("TASKSTATS"),
    on("TASK_DELAY_ACCT"),
    on("TASK_XACCT"),
    on("TASK_IO_ACCOUNTING"),
    on("PSI").since(4, 20),
    on("DEBUG_FS"),
    on("FTRACE"),
    on("ENABLE_DEFAULT_TRACERS"),
    // Programs, and file systems without a disk.
    on("BINFMT_ELF"),
    on("BINFMT_SCRIPT"),
    on("BLK_DEV_INITRD"),
    on("SYSVIPC"),
    on("PROC_FS"),
    on("PROC_PAGE_MONITOR"),
    on("SYSFS"),
    on("TMPFS"),
    on("DEVTMPFS"),
    on("NET"),
    on("UNIX"),
    on("PRINTK_TIME"),
    // Disks, their schedulers and ext4. Until 4.2 ext4 serves ext3 only where it is asked to.
    on("BLOCK"),
    on("BLK_DEV"),
    on("IOSCHED_DEADLINE").before(5, 0),
    on("IOSCHED_CFQ").before(5, 0),
    on("DEFAULT_CFQ").before(5, 0),
    on("MQ_IOSCHED_DEADLINE").since(4, 11),
    on("BLK_WBT").since(4, 10),
    on("BLK_WBT_MQ").since(4, 10),
    on("EXT4_FS"),
    on("EXT4_USE_FOR_EXT23").before(4, 3),
    on("CRYPTO"),
    on("CRYPTO_CRC32C"),
    // The console, and the channel of the lab's data.
    on("TTY"),
    on("UNIX98_PTYS"),
    on("SERIAL_8250"),
    on("SERIAL_8250_PNP"),
    on("SERIAL_8250_CONSOLE"),
    on("VIRTIO_MENU").since(4, 20),
    on("VIRTIO_PCI"),
    on("VIRTIO_PCI_LEGACY").since(4, 0),
    on("VIRTIO_BLK"),
    on("VIRTIO_CONSOLE"),
];

/// The options of a kernel, in the order of their table.
pub(super) fn of(version: &Version) -> impl Iterator<Item = &'static KernelOption> {
    OPTIONS.iter().filter(|option| version.at_least(option.since) && !version.at_least(option.before))
}

/// The file that `allnoconfig` takes as `KCONFIG_ALLCONFIG`.
pub(super) fn file(version: &Version) -> String {
    of(version).fold(String::new(), |mut text, option| {
        let _ = writeln!(text, "{}", option.line());
        text
    })
}

/// The options that a kernel's `.config` does not have, though it should.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unmet {
    /// Lines of options that the source declares: something that they depend on is missing.
    pub refused: Vec<String>,
    /// Names of options that the source does not declare.
    pub unknown: Vec<&'static str>,
}

/// Compares a `.config` with the options that were asked for. `declared` are the names that the source has.
pub(super) fn unmet(version: &Version, config: &str, declared: &BTreeSet<String>) -> Unmet {
    let lines = config.lines().collect();
    let mut unmet = Unmet::default();
    for option in of(version).filter(|option| !option.is_met(&lines)) {
        if declared.contains(option.name) {
            unmet.refused.push(option.line());
        } else {
            unmet.unknown.push(option.name);
        }
    }
    unmet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(release: &str) -> Version {
        let [major, minor, patch] = release.split('.').collect::<Vec<_>>()[..] else { panic!("{release}") };
        Version::parse(&format!("VERSION = {major}\nPATCHLEVEL = {minor}\nSUBLEVEL = {patch}\n"))
            .expect("one")
    }

    fn has(release: &str, name: &str) -> bool {
        of(&version(release)).any(|option| option.name == name)
    }

    #[test]
    fn options_come_and_go_with_releases() {
        for (name, without, with) in [
            ("PSI", "4.19.0", "4.20.0"),
            ("PVH", "4.4.50", "5.0.0"),
            ("LRU_GEN", "6.0.0", "6.1.0"),
            ("IOSCHED_CFQ", "5.0.0", "4.20.0"),
            ("RESOURCE_COUNTERS", "3.19.0", "3.10.108"),
            ("SLUB_CPU_PARTIAL", "3.10.108", "3.11.1"),
        ] {
            assert!(!has(without, name), "{name} in {without}");
            assert!(has(with, name), "{name} in {with}");
        }
        assert!(has("3.10.108", "VIRTIO_BLK") && has("6.12.0", "VIRTIO_BLK"));
    }

    #[test]
    fn no_option_is_listed_twice() {
        let names: BTreeSet<&str> = OPTIONS.iter().map(|option| option.name).collect();
        assert_eq!(names.len(), OPTIONS.len());
    }

    #[test]
    fn the_file_has_the_lines_of_a_config() {
        let text = file(&version("5.4.59"));
        assert!(
            text.starts_with("# CONFIG_EMBEDDED is not set\n# CONFIG_EXPERT is not set\nCONFIG_64BIT=y\n"),
            "{text}"
        );
        assert!(text.contains("\nCONFIG_NR_CPUS=64\n"), "{text}");
    }

    #[test]
    fn a_refused_option_is_told_from_one_that_the_source_lacks() {
        let version = version("5.4.59");
        let config = file(&version);
        let declared = ["PSI".to_owned()].into();
        assert_eq!(unmet(&version, &config, &declared), Unmet::default());
        // An option with the value `n` may be missing, but not have another value.
        let config = config.replace("# CONFIG_EXPERT is not set\n", "");
        assert_eq!(unmet(&version, &config, &declared), Unmet::default());
        let config = config.replace("CONFIG_PSI=y", "# CONFIG_PSI is not set").replace("CONFIG_KSM=y\n", "");
        let expected = Unmet { refused: vec!["CONFIG_PSI=y".to_owned()], unknown: vec!["KSM"] };
        assert_eq!(unmet(&version, &config, &declared), expected);
        let config = file(&version).replace("# CONFIG_EXPERT is not set", "CONFIG_EXPERT=y");
        assert_eq!(unmet(&version, &config, &declared).unknown, ["EXPERT"]);
    }
}
