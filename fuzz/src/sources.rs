//! Fuzzes everything that can be opened (archives, text archives, pastes, OSWatcher, sos reports), and
//! redaction.

use lotsfree_snapshot::source::archive::{Archive, Bounds};
use lotsfree_snapshot::source::redact::{Redaction, Redactor};
use lotsfree_snapshot::source::text::TextArchive;
use lotsfree_snapshot::source::{MemorySource, Source, open_bytes};
use lotsfree_snapshot::{Options, observe};

use crate::seeds::Fixture;

/// Bounds that are small enough for hostile archives to reach them.
const BOUNDS: Bounds = Bounds { total: 1 << 20, file: 64 << 10, entries: 256 };

/// Fuzzes a tar archive, plain or compressed with zstd.
pub(crate) fn archive(data: &[u8]) {
    let archives = [Archive::read(data, &BOUNDS), Archive::read_zstd(data, &BOUNDS)];
    for archive in archives.into_iter().flatten() {
        assert!(!archive.samples.is_empty());
        for (_, source) in &archive.samples {
            let mut bytes = 0;
            for (path, contents) in source.files() {
                assert!(!path.starts_with('/') && path.split('/').all(|part| part != ".."), "{path}");
                bytes += contents.as_ref().map_or(0, |contents| contents.len() as u64);
            }
            assert!(bytes <= BOUNDS.total, "{bytes} bytes kept");
        }
    }
}

/// Seeds: the fixture's first files, plain and compressed.
pub(crate) fn archive_seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let mut few = MemorySource::default();
    for (path, contents) in fixture.files().filter(|(_, contents)| contents.len() < 2048).take(6) {
        few.insert(path, contents);
    }
    let plain = pack(&few, "");
    let compressed = zstd::bulk::compress(&plain, 1).unwrap_or_default();
    vec![plain, compressed]
}

/// A tar archive of the files of `source`, below `prefix`.
fn pack(source: &MemorySource, prefix: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, contents) in source.files() {
        let Ok(contents) = contents else { continue };
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        // Names that a tar archive cannot hold are not tested here.
        let _ = tar.append_data(&mut header, format!("{prefix}{path}"), &contents[..]);
    }
    tar.into_inner().unwrap_or_default()
}

/// The files of a source, without its entries for absent files, which only hide files of a source below it.
fn held(source: &MemorySource) -> String {
    let there =
        source.files().filter(|(_, contents)| !matches!(contents, Err(lotsfree_snapshot::ReadError::Absent)));
    format!("{:?}", there.collect::<Vec<_>>())
}

/// Fuzzes a text archive: it is read, written and read again.
pub(crate) fn text(data: &[u8]) {
    let Ok(archive) = TextArchive::parse(data) else { return };
    let printed = archive.print();
    let again = match TextArchive::parse(&printed) {
        Ok(again) => again,
        Err(error) => panic!("{error} in {}", String::from_utf8_lossy(&printed)),
    };
    assert_eq!(archive.comment, again.comment);
    assert_eq!(archive.samples.len(), again.samples.len());
    for ((at, was), (at_again, is)) in archive.samples.iter().zip(&again.samples) {
        assert_eq!(at.to_bits(), at_again.to_bits());
        assert_eq!(held(was), held(is), "{}", String::from_utf8_lossy(&printed));
    }
}

/// Seeds: small fixtures as they are, and each fixture with few of its files.
pub(crate) fn text_seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let mut part = MemorySource::default();
    for (path, contents) in fixture.files().filter(|(_, contents)| contents.len() < 8192).take(40) {
        part.insert(path, contents);
    }
    let archive = TextArchive { comment: String::new(), samples: vec![(0.0, part)] };
    vec![fixture.text.clone(), archive.print()]
}

/// Fuzzes the opening of a file whose format has to be recognised. The first byte chooses its name.
pub(crate) fn open(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let name = NAMES[usize::from(choice) % NAMES.len()];
    let Ok(input) = open_bytes(data, name) else { return };
    bounded(input);
}

const NAMES: [&str; 8] =
    ["standard input", "meminfo", "vmstat.1", "dmesg", "zoneinfo.txt", "sysctl.conf", "shm", "pressure-io"];

fn bounded(mut input: lotsfree_snapshot::Input) {
    assert!(!input.samples.is_empty());
    assert!(input.samples.len() <= lotsfree_snapshot::source::MOST_SAMPLES);
    assert!(input.samples.is_sorted_by(|(a, _), (b, _)| a < b));
    assert!(input.notes.iter().map(String::len).sum::<usize>() < 1 << 20);
    for (_, source) in &input.samples {
        for name in source.list("").unwrap_or_default() {
            let _ = source.list(&name);
        }
    }
    // Two instants show as much as many do.
    input.samples.truncate(2);
    let _ = observe(input, &Options::default());
}

/// Seeds: files as they are, and several after one another.
pub(crate) fn open_seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let known =
        ["meminfo", "vmstat", "kmsg", "zoneinfo", "sysctl.conf", "sysvipc/shm", "pressure/io", "swaps"];
    let mut seeds = vec![[&[0][..], &fixture.text].concat()];
    let mut all = vec![0];
    for (path, contents) in fixture.files().filter(|(_, contents)| contents.len() < 8192) {
        if known.iter().any(|end| path.ends_with(end)) && path.matches('/').count() < 3 {
            let choice = NAMES.iter().position(|name| path.ends_with(name)).unwrap_or(0) as u8;
            seeds.push([&[choice][..], contents].concat());
            all.extend_from_slice(format!("$ cat /{path}\n").as_bytes());
            all.extend_from_slice(contents);
        }
    }
    seeds.push(all);
    seeds.push(b"\0              total        used        free\nMem: 15Gi 1Gi 2Gi\nSwap: 1 2 3\n".to_vec());
    seeds
}

/// Fuzzes one file of OSWatcher by itself, and both kinds in an archive.
pub(crate) fn oswatcher(data: &[u8]) {
    if let Ok(input) = open_bytes(data, "host_meminfo_20.11.11.0100.dat") {
        bounded(input);
    }
    let cut = data.iter().position(|&b| b == 0).unwrap_or(data.len());
    let mut source = MemorySource::default();
    source.insert("oswmeminfo/db1_meminfo_11.11.20.0100.dat", &data[..cut]);
    source.insert("oswvmstat/db1_vmstat_11.11.20.0100.dat", data.get(cut + 1..).unwrap_or_default());
    if let Ok(input) = open_bytes(&pack(&source, "archive/"), "archive.tar") {
        bounded(input);
    }
}

/// Seeds: blocks of the fixture's meminfo and of a table of `vmstat`, with times.
pub(crate) fn oswatcher_seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let Some((_, meminfo)) = fixture.files().find(|(path, _)| *path == "proc/meminfo") else {
        return Vec::new();
    };
    let stamps = ["zzz ***Fri Nov 20 01:46:00 CET 2011\n", "zzz <11/20/2011 01:46:30>\n"];
    let table = "procs -----------memory---------- ---swap-- -----io---- -system-- ----cpu----\n \
        r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa\n \
        1  0      0 163876   1000  90000    0    0     5     7   10   20  1  1 98  0\n \
        2  1      0 163000   1001  90010   12   34    50    70  100  200  1  1 98  0\n";
    let mut seed = Vec::new();
    for stamp in stamps {
        seed.extend_from_slice(stamp.as_bytes());
        seed.extend_from_slice(meminfo);
    }
    seed.push(0);
    for stamp in stamps {
        seed.extend_from_slice(stamp.as_bytes());
        seed.extend_from_slice(table.as_bytes());
    }
    vec![seed]
}

/// Fuzzes a sos report whose files are those of a text archive, below `sos_commands` or not.
pub(crate) fn sos(data: &[u8]) {
    let Ok(archive) = TextArchive::parse(data) else { return };
    let mut source = archive.samples[0].1.clone();
    source.insert("sos_commands/kernel/marker", "");
    if let Ok(input) = open_bytes(&pack(&source, "sosreport-db1/"), "sosreport.tar") {
        bounded(input);
    }
}

/// Seeds: the fixture's settings and files as sos would get them from commands.
pub(crate) fn sos_seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let mut source = MemorySource::default();
    let mut settings = String::new();
    for (path, contents) in fixture.files() {
        if let Some(name) = path.strip_prefix("proc/sys/") {
            let value = String::from_utf8_lossy(contents);
            settings.push_str(&format!("{} = {}\n", name.replace('/', "."), value.trim()));
        } else if contents.len() < 4096 && path.starts_with("proc/") && path.matches('/').count() == 1 {
            source.insert(path, contents);
        } else if path == "dev/kmsg" {
            source.insert("sos_commands/kernel/dmesg", contents);
        }
    }
    source.insert("sos_commands/kernel/sysctl_-a", settings);
    source.insert("sos_commands/kernel/uname_-a", "Linux db1 6.1.0 #1 SMP x86_64 GNU/Linux\n");
    source.insert("sos_commands/host/hostname", "db1\n");
    source.insert(
        "sos_commands/sysvipc/ipcs",
        "------ Shared Memory Segments --------\nkey shmid owner perms bytes nattch status\n\
         0x00000000 32768 oracle 640 4194304 50\n",
    );
    source.insert(
        "sos_commands/numa/numastat",
        "                           node0           node1\nnuma_hit                 1000            2000\n\
         numa_miss                   0               5\n",
    );
    source.insert(
        "sos_commands/process/ps_auxwww",
        "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\n\
         oracle 812 0.0 1.0 4194304 65536 ? Ss Nov20 0:01 ora_pmon_DB1\n",
    );
    let archive = TextArchive { comment: String::new(), samples: vec![(0.0, source)] };
    vec![archive.print()]
}

/// Paths that stand for each way in which contents are redacted.
const REDACTED: &[&str] = &[
    "proc/meminfo",
    "proc/1/stat",
    "proc/1/status",
    "proc/1/comm",
    "proc/1/cmdline",
    "proc/1/cgroup",
    "proc/1/numa_maps",
    "proc/1/smaps_rollup",
    "proc/1/environ",
    "proc/mounts",
    "proc/swaps",
    "proc/cmdline",
    "proc/sys/kernel/hostname",
    "proc/sysvipc/shm",
    "etc/security/limits.conf",
    "etc/sysctl.conf",
    "etc/systemd/system/db.service",
    "etc/os-release",
    "dev/kmsg",
    "sys/block/dm-0/dm/name",
    "etc/other",
];

/// Fuzzes redaction: the same bytes must give the same result, which is not much longer than they are.
pub(crate) fn redact(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let path = REDACTED[usize::from(choice) % REDACTED.len()];
    let once = |level| {
        let mut redactor = Redactor::new(level);
        let contents = redactor.contents(path, data);
        let path = redactor.path(&String::from_utf8_lossy(data));
        (contents, path)
    };
    assert_eq!(once(Redaction::Full).0.as_deref(), Some(data));
    let (contents, redacted_path) = once(Redaction::Standard);
    assert_eq!((&contents, &redacted_path), (&once(Redaction::Standard).0, &once(Redaction::Standard).1));
    let Some(contents) = contents else { return };
    // A byte that is not text becomes three, and the shortest name becomes a pseudonym with a class, a number
    // and a suffix.
    assert!(contents.len() <= 24 * data.len() + 64, "{} of {} bytes", contents.len(), data.len());
    let lines = |text: &[u8]| text.iter().filter(|&&b| b == b'\n').count();
    // A report in the kernel log is printed anew, and its lines are divided otherwise.
    assert!(path == "dev/kmsg" || lines(&contents) <= lines(data), "more lines than there were");
}

/// Seeds: the fixture's files of the kinds in [`REDACTED`].
pub(crate) fn redact_seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (path, contents) in fixture.files().filter(|(_, contents)| contents.len() < 8192) {
        let kind = |known: &&str| {
            let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
            last(known) == last(path)
        };
        if let Some(choice) = REDACTED.iter().position(|known| kind(&known)) {
            seeds.push([&[choice as u8][..], contents].concat());
        }
    }
    seeds
}
