//! What programs and the kernel say when a request is refused while memory may be free: a limit, a promise
//! that the kernel does not give, a pool that is too small. Such lines stand in journals and in logs of
//! applications.

use std::fmt::Write;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use lotsfree_units::Bytes;
use serde::Serialize;

/// A request that was refused, or a setting that a program asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refusal {
    /// Whose request: a program, or `the kernel` where the message names a process.
    pub by: &'static str,
    /// What was refused, or what the program asks for.
    pub what: Refused,
    /// Size of the request.
    pub asked: Option<Bytes>,
    /// The limit that the message names: a number or bytes.
    pub allowed: Option<u64>,
    /// What the message asks for in its place.
    pub needed: Option<u64>,
    /// The process, unit or object that it names.
    pub name: Option<String>,
}

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refused {
    /// Mappings beyond `vm.max_map_count`.
    Mappings,
    /// Locked memory beyond `RLIMIT_MEMLOCK`.
    Locked,
    /// A thread or process beyond a limit on tasks.
    Tasks,
    /// A System V segment beyond `kernel.shmmax`, `shmall` or `shmmni`.
    Segment,
    /// A file on a tmpfs that is full or too small, such as `/dev/shm`.
    SharedMount,
    /// Huge pages that the pool does not have.
    HugePages,
    /// Huge pages that the process may not use.
    HugePagesForbidden,
    /// Private memory beyond `RLIMIT_DATA`.
    Data,
    /// Memory that the kernel would not promise, or a limit on address space.
    Memory,
    /// A fork, whose copy the kernel would not promise.
    Fork,
    /// Buffers of sockets beyond `net.ipv4.tcp_mem`.
    SocketBuffers,
    /// What the program itself allows: a heap, a pool, a quota.
    OwnLimit,
    /// Memory for pages that zram (compcache, ramzswap) was to keep compressed.
    CompressedSwap,
    /// Memory of a graphics card.
    Gpu,
    /// Nothing yet: the program asks for `vm.overcommit_memory = 1`.
    AsksOvercommit,
    /// Nothing yet: the program asks for transparent huge pages to be off.
    AsksNoThp,
    /// Nothing yet: the program asks to be interleaved over the nodes.
    AsksInterleave,
    /// Its life: signal 9, of which the message does not say who sent it.
    Killed,
    /// Its life: the kernel's OOM killer, as systemd saw it.
    OomKilled,
}

/// A message. In its text `*` stands for anything, `{asked}`, `{allowed}` and `{needed}` for numbers with or
/// without a unit, `{name}` for a name.
struct Sign {
    by: &'static str,
    what: Refused,
    text: &'static str,
}

/// A line that tells more of the refusal before it, if that is the same program's.
struct Detail {
    by: &'static str,
    text: &'static str,
    /// What was refused, if the line says it.
    what: Option<Refused>,
    /// Bytes in the unit of its figures.
    unit: u64,
}

macro_rules! signs {
    ($($by:literal { $($what:ident $text:literal;)+ })+) => {
        &[$($(Sign { by: $by, what: Refused::$what, text: $text },)+)+]
    };
}

const fn detail(by: &'static str, text: &'static str, what: Option<Refused>) -> Detail {
    Detail { by, text, what, unit: 1 }
}

/// Whose request it is, where the message does not tell.
pub const UNNAMED: &str = "a program";
/// Whose message it is, where the kernel refused a process that it names.
pub const KERNEL: &str = "the kernel";

/// The messages; of several that fit, the first counts. Sources are the programs' own: PostgreSQL 9 to 17
/// (`sysv_shmem.c`, `dsm_impl.c`, `postmaster.c`), Redis 2.6 to 7 (`server.c`, `rdb.c`), HotSpot 8 to 21
/// (`os_linux.cpp`), MySQL and MariaDB 5.1 to 11 (`os0proc.cc`, `buf0buf.cc`), Elasticsearch's bootstrap
/// checks, MongoDB's startup warnings, Oracle's error messages 10g to 19c, QEMU 2 to 9, DPDK's EAL; the
/// kernel's `mm/util.c`, `mm/mmap.c`, `mm/hugetlb.c`, `net/ipv4/tcp.c`, `kernel/cgroup/pids.c`,
/// `drivers/vfio/vfio_iommu_type1.c`.
const SIGNS: &[Sign] = signs! {
    "the kernel" {
        CompressedSwap "zram: Error allocating memory for compressed page";
        CompressedSwap "compcache: Error allocating memory for compressed page";
        CompressedSwap "ramzswap: Error allocating memory for compressed page";
        Memory "__vm_enough_memory: pid: *, comm: {name}, bytes: {asked} not enough memory for the allocation";
        Memory "__vm_enough_memory: pid: *, comm: {name}, not enough memory for the allocation";
        Memory "__vm_enough_memory: pid: *, comm: {name}, no enough memory for the allocation";
        Data "mmap: {name} (*): VmData {asked} exceed data ulimit {allowed}. Update";
        SocketBuffers "TCP: out of memory -- consider tuning tcp_mem";
        SocketBuffers "Out of socket memory";
        Tasks "cgroup: fork rejected by pids controller in {name}";
        HugePages "killed due to inadequate hugepage pool";
        HugePages "HugeTLB: allocating {needed} of page size * failed.  Only allocated {allowed} hugepages.";
    }
    "PostgreSQL" {
        Memory "could not map anonymous shared memory: Cannot allocate memory";
        Memory "could not create shared memory segment: Cannot allocate memory";
        Segment "could not create shared memory segment:";
        SharedMount "could not resize shared memory segment \"{name}\" to {asked} bytes: No space left on device";
        SharedMount "could not resize shared memory segment. No space left on device";
        Fork "could not fork new process for connection: Cannot allocate memory";
        Tasks "could not fork new process for connection: Resource temporarily unavailable";
        Fork "could not fork autovacuum worker process: Cannot allocate memory";
        Fork "could not fork worker process: Cannot allocate memory";
        HugePages "mmap({asked}) with MAP_HUGETLB failed";
        Memory "Failed on request of size {asked}";
        Killed "was terminated by signal 9: Killed";
    }
    "Redis" {
        Fork "Can't save in background: fork: Cannot allocate memory";
        Fork "Can't rewrite append only file in background: fork: Cannot allocate memory";
        AsksOvercommit "overcommit_memory is set to 0! Background save may fail";
        AsksOvercommit "Memory overcommit must be enabled! Without it, a background save";
        AsksNoThp "you have Transparent Huge Pages (THP) support enabled in your kernel";
        OwnLimit "OOM command not allowed when used memory > 'maxmemory'";
        Memory "Out Of Memory allocating {asked} bytes";
    }
    "MongoDB" {
        AsksNoThp "/sys/kernel/mm/transparent_hugepage/enabled is 'always'";
        AsksInterleave "You are running on a NUMA machine.";
    }
    "Elasticsearch" {
        Mappings "max virtual memory areas vm.max_map_count [{allowed}] is too low, increase to at least [{needed}]";
        Mappings "max virtual memory areas vm.max_map_count [{allowed}] likely too low, increase to at least [{needed}]";
        Locked "memory locking requested for elasticsearch process but memory is not locked";
    }
    "OpenSearch" {
        Locked "memory locking requested for opensearch process but memory is not locked";
    }
    "Elasticsearch" {
        Locked "Unable to lock JVM Memory: error=12";
        Tasks "max number of threads [{allowed}] for user [*] is too low, increase to at least [{needed}]";
    }
    "Cassandra" {
        Mappings "(vm.max_map_count) {allowed} is too low, recommended value: {needed}";
        Locked "Unable to lock JVM memory (ENOMEM)";
    }
    "MongoDB" {
        Mappings "max_map_count is too low";
    }
    "Java" {
        HugePages "Failed to reserve large pages memory * bytes: {asked} (errno = 12)";
        HugePagesForbidden "Failed to reserve large pages memory * bytes: {asked} (errno = 1)";
        HugePages "Failed to reserve and commit memory using large pages";
        HugePages "Failed to reserve shared memory (errno = 12)";
        HugePagesForbidden "Failed to reserve shared memory (errno = 1)";
        Segment "Failed to reserve shared memory (errno = 22)";
        HugePages "UseLargePages disabled, no large pages configured and available on the system";
        Memory "os::commit_memory(*, {asked}, *) failed; error='*' (errno=12)";
        Memory "Native memory allocation (mmap) failed to map {asked} bytes";
        Memory "Native memory allocation (malloc) failed to allocate {asked} bytes";
        Memory "There is insufficient memory for the Java Runtime Environment to continue";
        Memory "Could not reserve enough space for {asked} object heap";
        Memory "Could not reserve enough space for object heap";
        Tasks "unable to create new native thread";
        Tasks "unable to create native thread";
        Tasks "pthread_create failed (EAGAIN)";
        Tasks "Cannot create GC thread. Out of system resources";
        Tasks "Cannot create worker GC thread. Out of system resources";
        Mappings "java.lang.OutOfMemoryError: Map failed";
        OwnLimit "java.lang.OutOfMemoryError: {name}";
    }
    "MySQL" {
        HugePages "HugeTLB: Warning: Failed to allocate {asked} bytes. errno 12";
        HugePages "HugeTLB: Warning: Failed to allocate {asked} bytes. errno 22";
        HugePagesForbidden "HugeTLB: Warning: Failed to allocate {asked} bytes. errno 1";
        HugePages "Failed to allocate {asked} bytes from HugeTLB memory. errno 12";
        HugePagesForbidden "Failed to allocate {asked} bytes from HugeTLB memory. errno 1";
        Memory "mmap({asked} bytes) failed; errno 12";
        Memory "Failed to allocate {asked} bytes. errno 12";
        Memory "annot allocate memory for the buffer pool";
        Memory "Out of memory (Needed {asked} bytes)";
        Memory "Out of memory; check if mysqld or some other process uses all available memory";
        Tasks "Can't create a new thread (errno 11";
        Memory "Can't create a new thread (errno 12";
    }
    "Oracle" {
        Memory "ORA-27102: out of memory";
        SharedMount "ORA-00845: MEMORY_TARGET not supported on this system";
        Segment "ORA-27123: unable to attach to shared memory segment";
        Segment "ORA-27125: unable to create shared memory segment";
        Locked "Increase per process memlock (soft) limit to at least {needed}";
        HugePages "ORA-27137: unable to allocate large pages";
        HugePages "ORA-27137: unable to allocate Large Pages";
        HugePages "2048K * ORA-27102";
        HugePagesForbidden "2048K * ORA-27125";
        Memory "ORA-04030: out of process memory when trying to allocate {asked} bytes";
        OwnLimit "ORA-04031: unable to allocate {asked} bytes of shared memory";
        OwnLimit "ORA-04036: PGA memory used by the instance exceeds PGA_AGGREGATE_LIMIT";
        Fork "ORA-27301: OS failure message: Cannot allocate memory";
        Tasks "ORA-27301: OS failure message: Resource temporarily unavailable";
    }
    "QEMU" {
        Locked "RLIMIT_MEMLOCK ({allowed}) exceeded";
        Memory "cannot set up guest memory '{name}': Cannot allocate memory";
        HugePages "unable to map backing store for guest RAM: Cannot allocate memory";
        HugePages "unable to map backing store for hugepages: Cannot allocate memory";
        HugePages "Insufficient free host memory pages available to allocate guest RAM";
        HugePages "preallocating memory failed:";
        Locked "VFIO_MAP_DMA failed: Cannot allocate memory";
        Locked "VFIO_MAP_DMA: -12";
        Locked "locking memory failed";
    }
    "DPDK" {
        HugePages "EAL: No free hugepages reported in";
        HugePages "EAL: No free {asked} hugepages reported";
        HugePages "EAL: Not enough memory available";
        HugePages "EAL: Cannot get hugepage information";
    }
    "PHP" {
        OwnLimit "Allowed memory size of {allowed} bytes exhausted (tried to allocate {asked} bytes)";
    }
    "Node.js" {
        OwnLimit "JavaScript heap out of memory";
    }
    "ClickHouse" {
        OwnLimit "emory limit (total) exceeded:";
        OwnLimit "(total) memory limit exceeded:";
    }
    "RabbitMQ" {
        OwnLimit "memory resource limit alarm set on node";
    }
    "memcached" {
        OwnLimit "SERVER_ERROR out of memory storing object";
    }
    "SAP HANA" {
        OwnLimit "Composite limit violation (OUT OF MEMORY) occurred";
    }
    "CUDA" {
        Gpu "CUDA out of memory. Tried to allocate {asked} (";
        Gpu "CUDA out of memory. Tried to allocate {asked}.";
        Gpu "CUDA_ERROR_OUT_OF_MEMORY";
    }
    "Go" {
        Memory "runtime: out of memory: cannot allocate {asked}-byte block";
        Memory "runtime: cannot allocate memory";
        Tasks "runtime: failed to create new OS thread";
    }
    "NumPy" {
        Memory "Unable to allocate {asked} for an array";
    }
    "PyTorch" {
        SharedMount "It is possible that dataloader's workers are out of shared memory";
        SharedMount "This might be caused by insufficient shared memory (shm)";
    }
    "Ray" {
        SharedMount "because /dev/shm has only {allowed} bytes available";
    }
    "Chromium" {
        SharedMount "reating shared memory in /dev/shm/{name} failed: No space left on device";
    }
    "Vault" {
        Locked "Failed to lock memory: cannot allocate memory";
    }
    "a BPF program" {
        Locked "MEMLOCK may be too low";
    }
    "RDMA" {
        Locked "RLIMIT_MEMLOCK is {allowed} bytes.";
    }
    "a program" {
        Locked "mlockall: Cannot allocate memory";
        Locked "mlockall failed: Cannot allocate memory";
        Locked "mlockall() failed: Cannot allocate memory";
        Locked "Cannot lock memory: Cannot allocate memory";
        Locked "mlock: Cannot allocate memory";
    }
    "systemd" {
        OomKilled "]: {name}: A process of this unit has been killed by the OOM killer";
        OomKilled "]: {name}: Failed with result 'oom-kill'";
        Killed "]: {name}: Main process exited, code=killed, status=9/KILL";
        OomKilled "Active: failed (Result: oom-kill)";
    }
    "a compiler" {
        Killed "Killed signal terminated program {name}";
        Killed "internal compiler error: Killed (program {name})";
        Memory "virtual memory exhausted: Cannot allocate memory";
    }
    "a C++ program" {
        Memory "terminate called after throwing an instance of 'std::bad_alloc'";
    }
    "a loader" {
        Memory "cannot map zero-fill pages";
    }
    "a shell" {
        Tasks "fork: retry: Resource temporarily unavailable";
        Tasks "fork: Resource temporarily unavailable";
        Tasks "fork: retry: No child processes";
        Fork "fork: retry: Cannot allocate memory";
    }
    "a program" {
        Fork "fork: Cannot allocate memory";
        Fork "Failed to fork: Cannot allocate memory";
        Fork "fork failed: Cannot allocate memory";
        Fork "fork failed.: Cannot allocate memory";
        Fork "fork/exec *: cannot allocate memory";
        Memory ": Cannot allocate memory";
        Memory "[Errno 12] Cannot allocate memory";
    }
};

const DETAILS: &[Detail] = &[
    detail("PostgreSQL", "shmget(key=*, size={asked}, ", None),
    detail("PostgreSQL", "(currently {asked} bytes)", None),
    detail("Oracle", "Linux* Error: 28: No space left on device", Some(Refused::Segment)),
    detail("Oracle", "Linux* Error: 22: Invalid argument", Some(Refused::Segment)),
    detail("Oracle", "Linux* Error: 1: Operation not permitted", Some(Refused::HugePagesForbidden)),
    detail("Oracle", "Linux* Error: 12: Cannot allocate memory", Some(Refused::Memory)),
    Detail {
        by: "Oracle",
        text: "max locked memory*(kbytes, -l) {allowed}",
        what: Some(Refused::Locked),
        unit: 1024,
    },
];

/// The longest literal piece of every text, which is what lines are searched for.
static MATCHER: LazyLock<AhoCorasick> = LazyLock::new(|| super::matcher(pieces()));

/// The texts of all messages and details.
fn texts() -> impl Iterator<Item = &'static str> {
    DETAILS.iter().map(|detail| detail.text).chain(SIGNS.iter().map(|sign| sign.text))
}

/// The pieces of which a line of interest contains one.
pub(super) fn pieces() -> impl Iterator<Item = &'static str> {
    texts().map(|text| {
        parts(text).map(|(literal, _)| literal).max_by_key(|literal| literal.len()).unwrap_or(text)
    })
}

/// The values in a line.
#[derive(Default)]
struct Values<'a> {
    asked: Option<u64>,
    allowed: Option<u64>,
    needed: Option<u64>,
    name: Option<&'a str>,
}

/// Names that are longer are not names.
const LONGEST_NAME: usize = 200;

impl<'a> Values<'a> {
    /// Takes what stands in the place of `{slot}`; `None` if it does not belong there.
    fn set(&mut self, slot: &str, text: &'a str) -> Option<()> {
        match slot {
            "asked" => self.asked = Some(number(text)?),
            "allowed" => self.allowed = Some(number(text)?),
            "needed" => self.needed = Some(number(text)?),
            "name" => {
                let name = text.trim();
                if name.is_empty() || name.len() > LONGEST_NAME {
                    return None;
                }
                self.name = Some(name);
            }
            _ => {}
        }
        Some(())
    }
}

/// A number at the beginning, in bytes if a unit follows: `4800`, `64K`, `2.00 GiB`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match text[end..].trim_start().bytes().next() {
        Some(b'k' | b'K') => 1u64 << 10,
        Some(b'm' | b'M') => 1 << 20,
        Some(b'g' | b'G') => 1 << 30,
        Some(b't' | b'T') => 1 << 40,
        _ => 1,
    };
    match text[..end].parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        Err(_) => {
            let value = text[..end].parse::<f64>().ok()? * factor as f64;
            (0.0..1e18).contains(&value).then_some(value as u64)
        }
    }
}

/// The values in `line` if `text` fits it.
fn fit<'a>(text: &str, line: &'a str) -> Option<Values<'a>> {
    let mut values = Values::default();
    let mut rest = line;
    let mut slot = None;
    for (literal, next) in parts(text) {
        let at = match literal {
            "" => rest.len(),
            literal => rest.find(literal)?,
        };
        if let Some(slot) = slot {
            values.set(slot, &rest[..at])?;
        }
        rest = rest.get(at + literal.len()..).unwrap_or_default();
        slot = next;
    }
    Some(values)
}

/// The literal pieces of a text, each with the name of the placeholder after it (`*` is an empty one).
fn parts(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = text.find(['*', '{']) else {
            rest = None;
            return Some((text, None));
        };
        let after = &text[at..];
        let (slot, after) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, after)) => (name, after),
            None => ("", &after[1..]),
        };
        rest = Some(after);
        Some((&text[..at], Some(slot)))
    })
}

/// The text with values in place of the placeholders.
fn filled(text: &str, values: &Values<'_>, name: impl FnOnce(&str) -> String) -> String {
    let mut out = String::new();
    let name = values.name.map(name);
    for (literal, slot) in parts(text) {
        out.push_str(literal);
        let value = match slot {
            Some("asked") => values.asked,
            Some("allowed") => values.allowed,
            Some("needed") => values.needed,
            Some("name") => {
                out.push_str(name.as_deref().unwrap_or_default());
                None
            }
            _ => None,
        };
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = write!(out, "{value}");
        }
    }
    out
}

/// A line of interest.
#[derive(Debug)]
pub(super) enum Said {
    /// A refusal.
    Refusal(Refusal),
    /// More on the one before, if that is this program's.
    More(More),
}

/// More on a refusal.
#[derive(Debug)]
pub(super) struct More {
    by: &'static str,
    what: Option<Refused>,
    asked: Option<Bytes>,
    allowed: Option<u64>,
}

impl More {
    /// Adds it; whether it belongs to that refusal.
    pub(super) fn add_to(&self, refusal: &mut Refusal) -> bool {
        if refusal.by != self.by {
            return false;
        }
        refusal.asked = self.asked.or(refusal.asked);
        refusal.allowed = self.allowed.or(refusal.allowed);
        refusal.what = self.what.unwrap_or(refusal.what);
        true
    }
}

/// Reads a line of any log.
pub(super) fn said(line: &str) -> Option<Said> {
    if !MATCHER.is_match(line) {
        return None;
    }
    let more = DETAILS.iter().find_map(|detail| {
        let values = fit(detail.text, line)?;
        // `ulimit -a` counts in kB.
        let allowed = values.allowed.map(|allowed| allowed.saturating_mul(detail.unit));
        let asked = values.asked.map(Bytes);
        Some(More { by: detail.by, what: detail.what, asked, allowed })
    });
    let refusal = SIGNS.iter().find_map(|sign| {
        let values = fit(sign.text, line)?;
        Some(Refusal {
            by: sign.by,
            what: sign.what,
            asked: values.asked.map(Bytes),
            allowed: values.allowed,
            needed: values.needed,
            name: values.name.map(str::to_owned),
        })
    });
    match (refusal, more) {
        // Both stand in one line, or the words of a detail are those of any program.
        (Some(mut refusal), Some(more)) if refusal.by != UNNAMED => {
            more.add_to(&mut refusal);
            Some(Said::Refusal(refusal))
        }
        (_, Some(more)) => Some(Said::More(more)),
        (refusal, None) => refusal.map(Said::Refusal),
    }
}

/// The line without what the reader does not take from it: no time, host, address or user, and the name that
/// it holds as `name` gives it. `None` if it is no such line.
pub fn bare(line: &str, name: impl FnOnce(&str) -> String) -> Option<String> {
    if !MATCHER.is_match(line) {
        return None;
    }
    let more =
        DETAILS.iter().find_map(|detail| Some(filled(detail.text, &fit(detail.text, line)?, str::to_owned)));
    let sign = SIGNS.iter().filter(|sign| more.is_none() || sign.by != UNNAMED);
    let refusal = sign.map(|sign| sign.text).find_map(|text| Some((text, fit(text, line)?)));
    let refusal = refusal.map(|(text, values)| filled(text, &values, name));
    let parts: Vec<String> = refusal.into_iter().chain(more).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> Refusal {
        match said(line) {
            Some(Said::Refusal(refusal)) => refusal,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_text_fits_itself() {
        // Each placeholder filled with what belongs there; the bare line reads as the same refusal.
        for sign in SIGNS {
            let values =
                Values { asked: Some(4096), allowed: Some(7), needed: Some(9), name: Some("some-name") };
            let line = filled(sign.text, &values, str::to_owned);
            let read = refusal(&line);
            assert_eq!((read.by, read.what), (sign.by, sign.what), "{line}");
            assert_eq!(read.asked.is_some(), sign.text.contains("{asked}"), "{line}");
            let again = bare(&line, str::to_owned).expect("a refusal");
            // Lines are kept without blanks at their ends.
            let again = again.trim();
            assert_eq!(refusal(again), read, "{again}");
        }
        for detail in DETAILS {
            let line = filled(
                detail.text,
                &Values { asked: Some(5), allowed: Some(7), ..Values::default() },
                str::to_owned,
            );
            assert!(matches!(said(&line), Some(Said::More(_))), "{line}");
        }
    }

    #[test]
    fn lines_as_programs_write_them() {
        use Refused as R;
        for (line, by, what, asked, allowed, needed, name) in [
            (
                "[2]: max virtual memory areas vm.max_map_count [65530] is too low, increase to at least [262144]",
                "Elasticsearch",
                R::Mappings,
                None,
                Some(65_530),
                Some(262_144),
                None,
            ),
            (
                "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory(0x00000006c0000000, 4294967296, 0) failed; error='Not enough space' (errno=12)",
                "Java",
                R::Memory,
                Some(4 << 30),
                None,
                None,
                None,
            ),
            (
                "2023-05-11 03:12:09.123 UTC [4711] ERROR:  could not resize shared memory segment \"/PostgreSQL.18\" to 50438144 bytes: No space left on device",
                "PostgreSQL",
                R::SharedMount,
                Some(50_438_144),
                None,
                None,
                Some("/PostgreSQL.18"),
            ),
            (
                "1:M 12 Jun 2022 10:21:12.301 # Can't save in background: fork: Cannot allocate memory",
                "Redis",
                R::Fork,
                None,
                None,
                None,
                None,
            ),
            ("-bash: fork: Cannot allocate memory", UNNAMED, R::Fork, None, None, None, None),
            (
                "-bash: fork: retry: Resource temporarily unavailable",
                "a shell",
                R::Tasks,
                None,
                None,
                None,
                None,
            ),
            (
                "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8 GiB total capacity)",
                "CUDA",
                R::Gpu,
                Some(2 << 30),
                None,
                None,
                None,
            ),
            (
                "vfio_pin_pages_remote: RLIMIT_MEMLOCK (8388608) exceeded",
                "QEMU",
                R::Locked,
                None,
                Some(8_388_608),
                None,
                None,
            ),
            (
                "Oct 1 10:00:00 db systemd[1]: mysqld.service: Main process exited, code=killed, status=9/KILL",
                "systemd",
                R::Killed,
                None,
                None,
                None,
                Some("mysqld.service"),
            ),
            (
                "[ 12.3] __vm_enough_memory: pid: 4711, comm: postgres, bytes: 8589934592 not enough memory for the allocation",
                KERNEL,
                R::Memory,
                Some(8 << 30),
                None,
                None,
                Some("postgres"),
            ),
        ] {
            let read = refusal(line);
            assert_eq!((read.by, read.what), (by, what), "{line}");
            assert_eq!(
                (read.asked.map(|bytes| bytes.0), read.allowed, read.needed),
                (asked, allowed, needed),
                "{line}"
            );
            assert_eq!(read.name.as_deref(), name, "{line}");
        }
        for line in ["", "Cannot allocate memory", "mapping 65530 is low", "vm.max_map_count = 65530"] {
            assert!(said(line).is_none(), "{line}");
        }
    }

    #[test]
    fn numbers_have_units() {
        for (text, value) in [
            ("4800", Some(4800)),
            ("64K", Some(65_536)),
            ("2.00 GiB (", Some(2 << 30)),
            ("2097152KB", Some(2 << 30)),
            ("18446744073709551615K", None),
            ("99999999999999999999999", None),
            ("x", None),
            (".", None),
        ] {
            assert_eq!(number(text), value, "{text}");
        }
    }

    #[test]
    fn a_detail_belongs_to_its_program() {
        use super::super::KernelLog;
        use crate::{File, Log};
        let text = "FATAL:  could not create shared memory segment: Invalid argument\n\
            DETAIL:  Failed system call was shmget(key=5432001, size=41263104, 03600).\n\
            ORA-27102: out of memory\n\
            Linux-x86_64 Error: 28: No space left on device\n\
            >ORA-27102: out of memory Linux-x86_64 Error: 12: Cannot allocate memory on startup.\n\
            max locked memory (kbytes, -l) 64\n";
        let log = KernelLog::parse(text.as_bytes(), &mut Log::default());
        let read: Vec<_> = log.refusals.iter().map(|r| (r.by, r.what, r.asked)).collect();
        assert_eq!(read[0], ("PostgreSQL", Refused::Segment, Some(Bytes(41_263_104))));
        assert_eq!(read[1], ("Oracle", Refused::Segment, None));
        assert_eq!((read[2].1, log.refusals[2].allowed), (Refused::Locked, Some(65_536)));
        assert_eq!(KernelLog::parse(log.lines.join("\n").as_bytes(), &mut Log::default()), log);
    }
}
