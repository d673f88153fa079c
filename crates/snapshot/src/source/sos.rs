//! sos reports: a tree with copies of `proc/`, `sys/` and `etc/`, and the output of commands in
//! `sos_commands/`.
//!
//! Files are passed on unchanged. Files that sos does not copy are answered from commands that print the
//! same:
//!
//! | asked for | answered from |
//! |---|---|
//! | `proc/sys/*` | `sos_commands/kernel/sysctl_-a` |
//! | `proc/sysvipc/shm` | the shared memory table of `sos_commands/sysvipc/ipcs*` |
//! | `proc/sys/kernel/osrelease`, `hostname` | `sos_commands/kernel/uname_-a`, else `hostname` |
//! | `dev/kmsg` | `sos_commands/kernel/dmesg*`, else `var/log/dmesg` |
//! | `sys/devices/system/node/node*/numastat` | `sos_commands/numa/numastat` |
//! | `proc/PID/stat`, `proc/PID/status` | `sos_commands/process/ps*`, where no process is in the tree |
//!
//! A process made from `ps` has a name, a state, VSZ and RSS and nothing else: faults, times, threads and
//! parents are zero, because `stat` cannot leave a field out. A note says so.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Holder, MemorySource, ReadError, Source};

/// One source before another: the second is asked for files that the first does not have.
#[derive(Debug)]
pub struct Layered<A, B> {
    /// The source that is asked first.
    pub first: A,
    /// The source that is asked for files that the first does not have.
    pub second: B,
}

impl<A: Source, B: Source> Source for Layered<A, B> {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        match self.first.read(path, limit, buffer) {
            Err(ReadError::Absent) => self.second.read(path, limit, buffer),
            outcome => outcome,
        }
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        match (self.first.list(directory), self.second.list(directory)) {
            (Ok(first), Ok(second)) => {
                let all: BTreeSet<String> = first.into_iter().chain(second).collect();
                Ok(all.into_iter().collect())
            }
            (Ok(names), Err(_)) | (Err(ReadError::Absent), Ok(names)) => Ok(names),
            (Err(error), _) => Err(error),
        }
    }

    fn is_live(&self) -> bool {
        self.first.is_live()
    }
}

impl Source for Box<dyn Source> {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        (**self).read(path, limit, buffer)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        (**self).list(directory)
    }

    fn unlinked(&self, holders: &[Holder], budget: Duration, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        (**self).unlinked(holders, budget, buffer)
    }

    fn is_live(&self) -> bool {
        (**self).is_live()
    }
}

/// At most this many bytes are read of one command's output.
const MOST_OUTPUT: usize = 8 << 20;
/// At most this many processes are taken from `ps`.
const MOST_PROCESSES: usize = 65_536;

/// Whether the tree is a sos report.
pub(crate) fn is_sos(source: &dyn Source) -> bool {
    source.list("sos_commands").is_ok()
}

/// Lays the tree over the files made from the output of commands. The notes say what was converted.
pub(crate) fn adapt(tree: Box<dyn Source>) -> (Layered<Box<dyn Source>, MemorySource>, Vec<String>) {
    let mut extra = MemorySource::default();
    let mut notes = Vec::new();
    let mut buffer = Vec::new();
    let mut read = |path: &str| match tree.read(path, MOST_OUTPUT, &mut buffer) {
        Ok(_) if !buffer.is_empty() => Some(String::from_utf8_lossy(&buffer).into_owned()),
        _ => None,
    };
    let matching = |directory: &str, start: &str| -> Vec<String> {
        let names = tree.list(directory).unwrap_or_default();
        names
            .into_iter()
            .filter(|name| name.starts_with(start))
            .map(|name| format!("{directory}/{name}"))
            .collect()
    };
    if let Some(text) = read("sos_commands/kernel/sysctl_-a") {
        for line in text.lines() {
            if let Some((path, value)) = sysctl(line) {
                extra.insert(path, value);
            }
        }
    }
    if let Some(text) = read("sos_commands/kernel/uname_-a")
        && let Some(release) = text.split_ascii_whitespace().nth(2)
    {
        extra.insert("proc/sys/kernel/osrelease", format!("{release}\n"));
    }
    let names = ["sos_commands/host/hostname", "sos_commands/general/hostname", "etc/hostname"];
    if let Some(name) = names.iter().find_map(|path| read(path)) {
        extra.insert("proc/sys/kernel/hostname", format!("{}\n", name.trim()));
    }
    if let Some(table) = (matching("sos_commands/sysvipc", "ipcs").iter())
        .find_map(|path| read(path).and_then(|text| shared_memory(text.lines())))
    {
        extra.insert("proc/sysvipc/shm", table);
    }
    let mut logs = matching("sos_commands/kernel", "dmesg");
    logs.push("var/log/dmesg".to_owned());
    if let Some(text) = logs.iter().find_map(|path| read(path)) {
        extra.insert("dev/kmsg", text);
    }
    if let Some(text) = read("sos_commands/numa/numastat") {
        numastat(&text, &mut extra);
    }
    let is_pid = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    let have = tree.list("proc").unwrap_or_default().iter().filter(|name| is_pid(name)).take(1).any(|pid| {
        let mut probe = Vec::new();
        tree.read(&format!("proc/{pid}/stat"), 4096, &mut probe).is_ok()
    });
    if !have {
        let mut found = 0;
        for path in matching("sos_commands/process", "ps") {
            if let Some(text) = read(&path) {
                found = processes(&text, &mut extra);
            }
            if found > 0 {
                notes.push(format!(
                    "{found} processes are from {path}: name, state, VSZ and RSS are known, everything else of them \
                     reads as zero"
                ));
                break;
            }
        }
    }
    (Layered { first: tree, second: extra }, notes)
}

/// Converts a line `vm.swappiness = 60` to a path below `proc/sys` and its contents.
pub(crate) fn sysctl(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let fit = |b: u8| b.is_ascii_alphanumeric() || b"._-/@".contains(&b);
    if !name.bytes().all(fit) || !name.contains('.') {
        return None;
    }
    let path = format!("proc/sys/{}", name.replace('.', "/"));
    super::samples::safe(&path)?;
    Some((path, format!("{}\n", value.trim())))
}

/// The header of `/proc/sysvipc/shm` before 2.6.36, which added `rss` and `swap`.
pub(crate) const SHM_HEADER: &str = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime\n";

/// The rows of an `ipcs -m` table in the layout of `/proc/sysvipc/shm` of kernels before 2.6.36. Columns that
/// `ipcs` does not print are zero. `None` if there is no such table.
pub(crate) fn shared_memory<'a>(lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut out = SHM_HEADER.to_owned();
    let mut inside = false;
    let mut seen = false;
    for line in lines {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if is_ipcs_header(&words) {
            (inside, seen) = (true, true);
        } else if inside {
            match shared_memory_row(&words) {
                Some(row) => out.push_str(&row),
                None => inside = words.is_empty(),
            }
        }
    }
    seen.then_some(out)
}

/// Whether this is the header of the shared memory table of `ipcs`.
pub(crate) fn is_ipcs_header(words: &[&str]) -> bool {
    matches!(words, ["key", "shmid", "owner", "perms", "bytes", "nattch", ..])
}

/// A row of `ipcs -m` (`0x00000000 32768 oracle 640 4194304 50 dest`) as a row of `/proc/sysvipc/shm`.
pub(crate) fn shared_memory_row(words: &[&str]) -> Option<String> {
    let [key, shmid, owner, perms, bytes, nattch, status @ ..] = words else { return None };
    // The kernel prints the key as a signed number.
    let key = u32::from_str_radix(key.strip_prefix("0x")?, 16).ok()? as i32;
    let (shmid, bytes): (u64, u64) = (shmid.parse().ok()?, bytes.parse().ok()?);
    let nattch: u64 = nattch.parse().ok()?;
    let mut perms = u32::from_str_radix(perms, 8).ok()?;
    if status.contains(&"dest") {
        perms |= 0o1000;
    }
    if status.contains(&"locked") {
        perms |= 0o2000;
    }
    let uid = if *owner == "root" { 0 } else { owner.parse::<u32>().unwrap_or(0) };
    Some(format!(
        "{key:10} {shmid:10}  {perms:4o} {bytes:21} {:5} {:5}  {nattch:5} {uid:5} {:5} {:5} {:5} {:10} {:10} {:10}\n",
        0, 0, 0, 0, 0, 0, 0, 0
    ))
}

/// Converts the table of the `numastat` command to one file per node.
fn numastat(text: &str, extra: &mut MemorySource) {
    const COUNTERS: [&str; 6] =
        ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];
    let mut nodes: Vec<u32> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        let node = |word: &str| word.strip_prefix("node").and_then(|n| n.parse().ok());
        if let Some(number) = node(first) {
            nodes = std::iter::once(number).chain(words.map_while(node)).take(1024).collect();
            continue;
        }
        if !COUNTERS.contains(&first) {
            continue;
        }
        let values: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        if values.len() != nodes.len() {
            continue;
        }
        for (node, value) in nodes.iter().zip(values) {
            let path = format!("sys/devices/system/node/node{node}/numastat");
            extra.append(&path, format!("{first} {value}\n").as_bytes());
        }
    }
}

/// Makes `stat` and `status` from the rows of `ps aux`; returns their number.
fn processes(text: &str, extra: &mut MemorySource) -> usize {
    let mut lines = text.lines().skip_while(|line| !line.contains("PID"));
    let Some(header) = lines.next() else { return 0 };
    let header: Vec<&str> = header.split_ascii_whitespace().collect();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let command = column("COMMAND").or_else(|| column("CMD"));
    let (Some(pid), Some(rss), Some(vsz), Some(state), Some(command)) =
        (column("PID"), column("RSS"), column("VSZ"), column("STAT").or_else(|| column("S")), command)
    else {
        return 0;
    };
    if command + 1 != header.len() {
        return 0;
    }
    let mut made = 0;
    for line in lines {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        let (Some(pid), Some(rss), Some(vsz)) = (number(pid), number(rss), number(vsz)) else { continue };
        let (Some(state), Some(command)) =
            (words.get(state).and_then(|s| s.chars().next()), words.get(command))
        else {
            continue;
        };
        if pid == 0 || pid > u64::from(u32::MAX) || made >= MOST_PROCESSES {
            continue;
        }
        let kernel = command.starts_with('[') && vsz == 0;
        let name = command.trim_start_matches('[').trim_end_matches(']').trim_end_matches(':');
        let name = if kernel { name } else { name.rsplit('/').next().unwrap_or(name) };
        let name: String =
            name.trim_start_matches('-').chars().filter(|c| !c.is_control()).take(15).collect();
        let flags = if kernel { 0x0020_0000 } else { 0 };
        let bytes = vsz.saturating_mul(1024);
        // Fields 4 to 22 (parent to start time), then vsize, rss, and 28 more; see proc_pid_stat(5).
        let stat = format!(
            "{pid} ({name}) {state} 0 0 0 0 0 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 0 {bytes} {}{}\n",
            rss / 4,
            " 0".repeat(28)
        );
        extra.insert(format!("proc/{pid}/stat"), stat);
        let memory =
            if kernel { String::new() } else { format!("VmSize:\t{vsz:8} kB\nVmRSS:\t{rss:8} kB\n") };
        extra.insert(
            format!("proc/{pid}/status"),
            format!("Name:\t{name}\nState:\t{state}\nPid:\t{pid}\n{memory}"),
        );
        made += 1;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report() -> MemorySource {
        let mut tree = MemorySource::default();
        tree.insert("proc/meminfo", "MemTotal: 1 kB\n");
        tree.insert("proc/sys/vm/swappiness", "10\n");
        tree.insert(
            "sos_commands/kernel/sysctl_-a",
            "vm.swappiness = 60\nvm.lowmem_reserve_ratio = 256\t256\t32\nkernel.core_pattern = |/x=y %p\n../x.y = 1\n",
        );
        tree.insert("sos_commands/kernel/uname_-a", "Linux db1 2.6.32-642.el6.x86_64 #1 SMP\n");
        tree.insert("sos_commands/kernel/dmesg", "Out of memory\n");
        tree.insert("sos_commands/host/hostname", "db1\n");
        tree.insert(
            "sos_commands/sysvipc/ipcs",
            "\n------ Message Queues --------\nkey        msqid      owner      perms      used-bytes   messages\n\n\
             ------ Shared Memory Segments --------\n\
             key        shmid      owner      perms      bytes      nattch     status\n\
             0xdc0000aa 32768      oracle     640        6442450944 50         dest\n\
             0x00000001 1          root       600        4096       0\n\n\
             ------ Semaphore Arrays --------\nkey        semid      owner      perms      nsems\n0x1 1 root 600 1\n",
        );
        tree.insert(
            "sos_commands/numa/numastat",
            "                           node0           node1\nnuma_hit                    10             20\n\
             numa_miss                    1              2\n",
        );
        tree.insert(
            "sos_commands/process/ps_auxwww",
            "USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n\
             root         2  0.0  0.0      0     0 ?        S    Nov20   0:00 [kthreadd]\n\
             oracle    4242  0.5  9.9 6700000 81920 ?       Ss   Nov20   0:10 ora_pmon_PROD\n\
             oracle    4243  0.5  9.9 6700000 40 ?          Ss   Nov20   0:10 /opt/app/bin/server --password x\n",
        );
        tree
    }

    fn text(source: &dyn Source, path: &str) -> String {
        let mut buffer = Vec::new();
        source.read(path, 1 << 20, &mut buffer).unwrap_or_else(|error| panic!("{path}: {error}"));
        String::from_utf8(buffer).unwrap()
    }

    #[test]
    fn commands_answer_for_files_that_are_not_there() {
        let (sos, notes) = adapt(Box::new(report()));
        assert_eq!(text(&sos, "proc/sys/vm/swappiness"), "10\n", "the file comes first");
        assert_eq!(text(&sos, "proc/sys/vm/lowmem_reserve_ratio"), "256\t256\t32\n");
        assert_eq!(text(&sos, "proc/sys/kernel/core_pattern"), "|/x=y %p\n");
        assert_eq!(text(&sos, "proc/sys/kernel/osrelease"), "2.6.32-642.el6.x86_64\n");
        assert_eq!(text(&sos, "proc/sys/kernel/hostname"), "db1\n");
        assert_eq!(text(&sos, "dev/kmsg"), "Out of memory\n");
        assert_eq!(text(&sos, "sys/devices/system/node/node1/numastat"), "numa_hit 20\nnuma_miss 2\n");
        let shm = text(&sos, "proc/sysvipc/shm");
        let rows: Vec<Vec<&str>> = shm.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 3, "{shm}");
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{shm}");
        assert_eq!(rows[1][..7], ["-603979606", "32768", "1640", "6442450944", "0", "0", "50"]);
        assert!(notes[0].starts_with("3 processes"), "{notes:?}");
        assert!(text(&sos, "proc/4242/stat").starts_with("4242 (ora_pmon_PROD) S 0 "));
        let stat = text(&sos, "proc/4242/stat");
        let fields: Vec<&str> = stat.split_whitespace().collect();
        assert_eq!(fields.len(), 52);
        assert_eq!((fields[22], fields[23]), ("6860800000", "20480"));
        assert!(text(&sos, "proc/4243/status").contains("VmRSS:\t      40 kB"));
        assert!(!text(&sos, "proc/4243/status").contains("password"));
        assert!(text(&sos, "proc/2/stat").starts_with("2 (kthreadd) S 0 0 0 0 0 2097152"));
        assert_eq!(sos.list("proc").unwrap(), ["2", "4242", "4243", "meminfo", "sys", "sysvipc"]);
    }

    #[test]
    fn processes_in_the_tree_are_left_alone() {
        let mut tree = report();
        tree.insert("proc/7/stat", "7 (x) S");
        let (sos, notes) = adapt(Box::new(tree));
        assert!(notes.is_empty());
        assert_eq!(sos.read("proc/4242/stat", 9, &mut Vec::new()), Err(ReadError::Absent));
    }

    proptest! {
        #[test]
        fn any_command_output_is_read_without_a_panic(text in "([a-zA-Z0-9_.=/%|\\[\\]()\\n :x-]|PID |RSS |VSZ |STAT |COMMAND\n|node0 |é){0,200}") {
            let mut tree = MemorySource::default();
            for path in ["kernel/sysctl_-a", "sysvipc/ipcs", "numa/numastat", "process/ps_aux", "kernel/uname_-a"] {
                tree.insert(format!("sos_commands/{path}"), text.clone());
            }
            let _ = adapt(Box::new(tree));
        }
    }
}
