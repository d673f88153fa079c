//! What is replaced before an archive leaves the host: [`Redactor`].
//!
//! A redacted archive leads to the same findings: counters, sizes, settings, limits, process ids, user ids
//! and the names of well-known programs stay. What people and machines are called goes:
//!
//! | where | what happens |
//! |---|---|
//! | host and domain name, wherever it is a word of its own | `host1` |
//! | IP addresses, MAC addresses, UUIDs, hexadecimal identifiers of 32 digits and more in text files | `ip1`, `mac1`, `uuid1`, `id1` |
//! | process names (`stat`, `status`, `comm`, kernel log) | kept if the program is well known or a kernel thread; the instance in Oracle's and SAP's names becomes `sid1`; others become `program1` |
//! | command lines | the program's name as above, without arguments; `environ` is never kept |
//! | cgroups, in paths and contents | `system.slice`, `user-1000.slice`, well-known services stay; others become `unit1.service`; identifiers of containers and pods `id1`, `uuid1` |
//! | mounts, swap areas | `server:/path` becomes `host2:/dir1`, device-mapper names `dm1`, directories that a distribution does not have `dir1`; options with values that are not about memory lose the value |
//! | `numa_maps`, `maps`, `smaps` | files other than in `/dev/shm`, `SYSV*`, `memfd`, `[heap]` and the like become `/file1` |
//! | `limits.conf` | users and groups other than `*`, `root` and those of well-known programs become `user1`, `@group1`; comments go |
//! | `sysctl.conf` | comments go |
//! | systemd units | sections and the settings that are about memory, CPU, I/O and limits stay |
//! | kernel command line | values that are neither numbers nor words such as `on` and do not belong to a memory parameter go, and so does what is meant for init, after `--` |
//! | kernel log | lines about memory stay, with names replaced |
//! | serial numbers, machine id, network, keys, account files | never kept |
//!
//! Names are counted, not hashed: a pseudonym says nothing of the name. The same name has the same pseudonym
//! in all files and instants of an archive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

/// How much is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redaction {
    /// As the module says.
    #[default]
    Standard,
    /// Everything is kept.
    Full,
}

impl Redaction {
    /// As the manifest has it.
    pub fn name(self) -> &'static str {
        match self {
            Redaction::Standard => "standard",
            Redaction::Full => "full",
        }
    }
}

/// Replaces names, the same by the same.
#[derive(Clone, Debug)]
pub struct Redactor {
    level: Redaction,
    names: BTreeMap<(&'static str, String), String>,
    counts: BTreeMap<&'static str, usize>,
    hosts: BTreeSet<String>,
    kernel_threads: BTreeSet<String>,
}

/// What a file's contents are like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Contents {
    Keep,
    Drop,
    Host,
    Comm,
    Stat,
    Status,
    Arguments,
    Cgroup,
    Mappings,
    Mounts,
    Swaps,
    Boot,
    Limits,
    Settings,
    Unit,
    KernelLog,
    DeviceName,
    Scrub,
}

/// Programs whose names say nothing of who runs them. Names of up to four letters are compared whole, longer
/// ones and `java`, `hdb`, `perl`, `qemu` from the start.
const PROGRAMS: &str = "\
    postgres postmaster mysqld mariadbd mongod mongos redis- valkey- memcached sqlservr hdb sapstart \
    saphost db2sys asesrv dataserver tnslsnr oracle ohasd crsd ocssd java elasticsearch opensearch \
    cassandra scylla clickhouse influxd prometheus victoria etcd beam.smp couchbase tikv- tidb- \
    pd-server cockroach aerospike asd kafka rabbitmq pgbouncer pgpool patroni mysql psql pg_dump \
    pg_basebackup rman nginx httpd apache2 haproxy varnishd php-fpm node python perl ruby php dotnet \
    qemu libvirtd virtqemud dockerd containerd conmon runc crun podman kubelet crio kube- calico ovs- \
    ceph- glusterfs dpdk testpmd vpp_main disp+work dw.sap corosync pacemakerd heartbeat had sbd \
    cmcld systemd (sd-pam) init sshd dbus- cron crond atd rsyslogd syslog auditd agetty login bash \
    sh zsh sudo su chronyd ntpd NetworkManager polkitd tuned sapconf saptune earlyoom irqbalance \
    multipathd lvmetad udevd snapd firewalld top tmux screen lotsfree";

/// Kernel threads, for files that do not say that the process is one.
const KERNEL_THREADS: &str = "\
    kswapd khugepaged ksmd kcompactd kworker/ ksoftirqd/ migration/ rcu_ kthreadd jbd2/ xfsaild/ \
    oom_reaper kdamond psimon kblockd kdevtmpfs kauditd khungtaskd writeback flush-";

/// Copying and archiving programs, which findings about the page cache name.
const COPIERS: &str = "\
    cp dd tar rsync cat gzip zstd find updatedb scp mv rm md5sum sha256sum";

/// Directories that every distribution has.
const DIRECTORIES: &str = "\
    bin boot dev efi etc home lib lib64 media mnt opt proc root run sbin snap srv sys tmp usr var log \
    cache local share shm hugepages hugepages1G hugetlbfs huge huge2M huge1G pts mqueue user lock \
    credentials kernel debug tracing config security fs cgroup unified memory bpf pstore firmware \
    efivars fuse connections selinux systemd docker containers overlay overlay2 kubelet mapper swap \
    swapfile";

/// Users and groups that programs come with.
const ACCOUNTS: &str = "\
    root oracle grid dba oinstall asmdba asmadmin postgres mysql mongod mongodb redis elasticsearch \
    opensearch cassandra clickhouse mssql sapsys sapadm hdb kafka nginx www-data apache nobody daemon \
    realtime audio wheel users";

/// Kernel parameters whose values are about memory and CPUs.
const PARAMETERS: &str = "\
    hugepages hugepagesz default_hugepagesz hugetlb transparent_hugepage thp_ numa mem memmap movable \
    kernelcore cgroup swapaccount psi zswap isolcpus nohz rcu_nocbs maxcpus nr_cpus init_on_ page_ slub_ \
    slab_ mitigations elevator crashkernel cma vmalloc systemd.unified_cgroup_hierarchy \
    systemd.legacy_systemd_cgroup_controller lru_gen cgroup_disable intel_idle";

/// Mount options whose values stay.
const OPTIONS: &str = "\
    size nr_inodes nr_blocks pagesize min_size mode huge mpol errors data commit inode logbsize logbufs \
    rsize wsize vers proto";

impl Redactor {
    /// Starts without names.
    pub fn new(level: Redaction) -> Self {
        Redactor {
            level,
            names: BTreeMap::new(),
            counts: BTreeMap::new(),
            hosts: BTreeSet::new(),
            kernel_threads: BTreeSet::new(),
        }
    }

    /// How much is replaced.
    pub fn level(&self) -> Redaction {
        self.level
    }

    /// Takes in a host name; it and its first label are replaced wherever they are words of their own.
    pub fn learn_host(&mut self, name: &str) {
        let name = name.trim().to_ascii_lowercase();
        if name.is_empty() || matches!(name.as_str(), "localhost" | "localhost.localdomain" | "(none)") {
            return;
        }
        let label = name.split('.').next().unwrap_or(&name).to_owned();
        self.host(&label);
        self.hosts.insert(label);
        self.hosts.insert(name);
    }

    /// What to call this host: its name, or what stands for it.
    pub fn host_name(&mut self, name: &str) -> String {
        match self.level {
            Redaction::Full => name.trim().to_owned(),
            Redaction::Standard => self.host(name),
        }
    }

    fn host(&mut self, name: &str) -> String {
        let name = name.trim().to_ascii_lowercase();
        let label = name.split('.').next().unwrap_or(&name);
        match label {
            "" | "localhost" | "(none)" => label.to_owned(),
            _ => self.name("host", label),
        }
    }

    fn name(&mut self, class: &'static str, real: &str) -> String {
        if let Some(known) = self.names.get(&(class, real.to_owned())) {
            return known.clone();
        }
        let count = self.counts.entry(class).or_default();
        *count += 1;
        let pseudonym = format!("{class}{count}");
        self.names.insert((class, real.to_owned()), pseudonym.clone());
        pseudonym
    }

    /// Where a file is kept. `None` if it is not to be kept at all.
    pub fn path(&mut self, path: &str) -> Option<String> {
        if self.level == Redaction::Full {
            return Some(path.to_owned());
        }
        if class_of(path) == Contents::Drop {
            return None;
        }
        if let Some(rest) = path.strip_prefix("sys/fs/cgroup/") {
            let (group, file) = match rest.rsplit_once('/') {
                Some((group, file)) if is_control_file(file) => (group, Some(file)),
                None if is_control_file(rest) => return Some(path.to_owned()),
                _ => (rest, None),
            };
            let group = self.group_path(group);
            return Some(match file {
                Some(file) => format!("sys/fs/cgroup/{group}/{file}"),
                None => format!("sys/fs/cgroup/{group}"),
            });
        }
        for directory in
            ["etc/systemd/system/", "run/systemd/system/", "run/systemd/transient/", "run/systemd/units/"]
        {
            if let Some(rest) = path.strip_prefix(directory) {
                let parts: Vec<String> = rest.split('/').map(|part| self.unit_part(part)).collect();
                return Some(format!("{directory}{}", parts.join("/")));
            }
        }
        Some(path.to_owned())
    }

    /// A file's contents as they are kept. `None` if they are not to be kept at all.
    pub fn contents(&mut self, path: &str, contents: &[u8]) -> Option<Vec<u8>> {
        if self.level == Redaction::Full {
            return Some(contents.to_owned());
        }
        let class = class_of(path);
        match class {
            Contents::Keep => return Some(contents.to_owned()),
            Contents::Drop => return None,
            Contents::Arguments => return Some(self.arguments(contents)),
            _ => {}
        }
        let text = String::from_utf8_lossy(contents);
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            let line = match class {
                Contents::Host => Some(self.host(line)),
                Contents::Comm => Some(self.process(line)),
                Contents::Stat => Some(self.stat(line)),
                Contents::Status => Some(match line.strip_prefix("Name:\t") {
                    Some(name) => format!("Name:\t{}", self.process(name)),
                    None => line.to_owned(),
                }),
                Contents::Cgroup => Some(match line.splitn(3, ':').collect::<Vec<_>>()[..] {
                    [id, controllers, path] => format!("{id}:{controllers}:{}", self.group_path(path)),
                    _ => String::new(),
                }),
                Contents::Mappings => Some(self.mapping(line)),
                Contents::Mounts => self.mount(line),
                Contents::Swaps => Some(self.swap(line)),
                Contents::Boot => Some(self.boot(line)),
                Contents::Limits => Some(self.limit(line)),
                Contents::Settings => Some(self.setting(line)),
                Contents::Unit => self.unit_line(line),
                Contents::KernelLog => self.kernel_log(line),
                Contents::DeviceName => Some(self.name("dm", line.trim())),
                Contents::Scrub | Contents::Keep | Contents::Drop | Contents::Arguments => {
                    Some(self.scrub(line))
                }
            };
            if let Some(line) = line {
                out.push_str(&line);
                out.push_str(end);
            }
        }
        Some(out.into_bytes())
    }

    /// A process's name.
    fn process(&mut self, name: &str) -> String {
        let oracle = ["ora_", "asm_", "apx_", "iox_", "mgm_"].iter().any(|start| name.starts_with(start));
        if oracle && let Some((kind, sid)) = name.rsplit_once('_') {
            return format!("{kind}_{}", self.name("sid", sid));
        }
        if let Some(rest) = name.strip_prefix("oracle") {
            let (start, sid) = rest
                .rsplit_once('_')
                .map_or(("oracle".into(), rest), |(pid, sid)| (format!("oracle{pid}_"), sid));
            return if sid.is_empty() {
                name.to_owned()
            } else {
                format!("{start}{}", self.name("sid", sid))
            };
        }
        if let Some(rest) = name.strip_prefix("dw.sap") {
            return format!("dw.sap{}", self.name("sid", rest));
        }
        if well_known(name) || self.kernel_threads.contains(name) {
            return name.to_owned();
        }
        self.name("program", name)
    }

    fn stat(&mut self, line: &str) -> String {
        let (Some(open), Some(close)) = (line.find('('), line.rfind(')')) else { return String::new() };
        if close < open {
            return String::new();
        }
        let name = &line[open + 1..close];
        // The seventh field after the name is the flags; bit 21 is PF_KTHREAD.
        let flags =
            line[close + 1..].split_ascii_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok());
        if flags.is_some_and(|flags| flags & 0x0020_0000 != 0) {
            self.kernel_threads.insert(name.to_owned());
        }
        format!("{}{}{}", &line[..=open], self.process(name), &line[close..])
    }

    fn arguments(&mut self, contents: &[u8]) -> Vec<u8> {
        let first = contents.split(|&b| b == 0 || b == b' ').next().unwrap_or_default();
        if first.is_empty() {
            return Vec::new();
        }
        let first = String::from_utf8_lossy(first).into_owned();
        let mut name = self.process(first.rsplit('/').next().unwrap_or(&first)).into_bytes();
        name.push(0);
        name
    }

    fn group_path(&mut self, path: &str) -> String {
        let parts: Vec<String> = path.split('/').map(|part| self.group_part(part)).collect();
        parts.join("/")
    }

    fn group_part(&mut self, part: &str) -> String {
        let known = [
            "",
            "..",
            "system",
            "user",
            "init",
            "machine",
            "kubepods",
            "besteffort",
            "burstable",
            "guaranteed",
            "docker",
            "libpod",
            "lxc",
            "memory",
            "unified",
            "systemd",
            "cpu",
            "cpuacct",
            "cpu,cpuacct",
            "cpuset",
            "blkio",
            "io",
            "pids",
            "hugetlb",
            "devices",
            "freezer",
            "app",
            "background",
            "session",
            "crio",
            "system-getty",
            "system-systemd",
            "dev-hugepages",
            "dev-mqueue",
            "lotsfree",
        ];
        let ends = [".slice", ".service", ".scope", ".mount", ".socket", ".swap", ".target", ".timer"];
        let end = ends.iter().find(|end| part.ends_with(**end)).copied().unwrap_or("");
        let base = &part[..part.len() - end.len()];
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let numbered = ["user-", "user@", "session-", "user-runtime-dir@", "c"];
        let number = numbered.iter().any(|start| base.strip_prefix(start).is_some_and(digits));
        if known.contains(&base) || number || digits(base) {
            return part.to_owned();
        }
        for start in ["kubepods-besteffort-pod", "kubepods-burstable-pod", "kubepods-pod", "pod"] {
            if let Some(rest) = base.strip_prefix(start).filter(|rest| rest.len() >= 32) {
                return format!("{start}{}{end}", self.name("uuid", &rest.replace('_', "-")));
            }
        }
        if matches!(base, "kubepods-besteffort" | "kubepods-burstable") {
            return part.to_owned();
        }
        for start in ["docker-", "libpod-", "crio-", "cri-containerd-", "machine-qemu", ""] {
            let rest = base.strip_prefix(start).unwrap_or("");
            if rest.len() >= 32 && rest.bytes().all(|b| b.is_ascii_hexdigit()) {
                return format!("{start}{}{end}", self.name("id", rest));
            }
        }
        // What systemd-run starts; that it is transient matters, its name says nothing.
        if base.starts_with("run-") && !end.is_empty() {
            return format!("run-{}{end}", self.name("unit", base));
        }
        let (program, instance) = base.split_once('@').unwrap_or((base, ""));
        if well_known(program) && !program.contains("\\x") {
            let stem = program.split('-').next().unwrap_or(program);
            let whole = program.starts_with("systemd-")
                || stem == program
                || listed(PROGRAMS).any(|known| known.trim_end_matches('-') == program);
            let kept =
                if whole { program.to_owned() } else { format!("{stem}-{}", self.name("unit", program)) };
            return if instance.is_empty() {
                format!("{kept}{end}")
            } else {
                format!("{kept}@{}{end}", self.name("instance", instance))
            };
        }
        format!("{}{end}", self.name("unit", base))
    }

    /// A part of a path below a directory of units: `mysqld.service`, `mysqld.service.d`, `override.conf`.
    fn unit_part(&mut self, part: &str) -> String {
        for end in [".d", ".wants", ".requires", ".upholds"] {
            if let Some(unit) = part.strip_suffix(end) {
                return format!("{}{end}", self.unit_name(unit));
            }
        }
        if part.ends_with(".conf") { part.to_owned() } else { self.unit_name(part) }
    }

    fn unit_name(&mut self, unit: &str) -> String {
        if unit.ends_with(".target") || !unit.contains('.') { unit.to_owned() } else { self.group_part(unit) }
    }

    /// A path of files that users make.
    fn file_path(&mut self, path: &str) -> String {
        if path.starts_with("/sys/") || path.starts_with("/proc/") {
            return path.to_owned();
        }
        if let Some(name) = path.strip_prefix("/dev/mapper/") {
            return if name == "control" {
                path.to_owned()
            } else {
                format!("/dev/mapper/{}", self.name("dm", name))
            };
        }
        if let Some(device) = path.strip_prefix("/dev/") {
            let plain = device.bytes().all(|b| b.is_ascii_alphanumeric());
            if plain && !device.contains('/') || device.starts_with("shm/") || device.starts_with("dm-") {
                return path.to_owned();
            }
        }
        let parts: Vec<String> = (path.split('/'))
            .map(|part| {
                let numeric = part.bytes().all(|b| b.is_ascii_digit());
                if part.is_empty() || numeric || listed(DIRECTORIES).any(|known| known == part) {
                    part.to_owned()
                } else {
                    self.name("dir", part)
                }
            })
            .collect();
        parts.join("/")
    }

    fn mapping(&mut self, line: &str) -> String {
        let kept = |file: &str| {
            file.starts_with('[')
                || ["/dev/shm/", "/SYSV", "/anon_hugepage", "/dev/zero", "anon_inode:", "/memfd:", "//anon"]
                    .iter()
                    .any(|start| file.starts_with(start))
        };
        if let Some(at) = line.find(" file=") {
            let from = at + " file=".len();
            let to = line[from..].find(' ').map_or(line.len(), |end| from + end);
            let file = &line[from..to];
            let file = match file.strip_prefix("/memfd:") {
                Some(name) => format!("/memfd:{}", self.name("memfd", name)),
                None if kept(file) => file.to_owned(),
                None => format!("/{}", self.name("file", file)),
            };
            return format!("{}{file}{}", &line[..from], &line[to..]);
        }
        // A line of maps or smaps: range, permissions, offset, device, inode, file.
        let is_range = line.split(' ').next().is_some_and(|word| word.contains('-') && !word.ends_with(':'));
        let Some(at) = line.find('/').filter(|_| is_range) else { return line.to_owned() };
        let file = &line[at..];
        let file = match file.strip_prefix("/memfd:") {
            Some(name) => format!("/memfd:{}", self.name("memfd", name)),
            None if kept(file) => file.to_owned(),
            None => format!("/{}", self.name("file", file)),
        };
        format!("{}{file}", &line[..at])
    }

    fn mount_source(&mut self, source: &str) -> String {
        if let Some(rest) = source.strip_prefix("//") {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            return format!("//{}/{}", self.name("host", host), self.file_path(path));
        }
        if let Some((host, path)) = source.split_once(":/") {
            let host = self.name("host", host.trim_matches(['[', ']']));
            return format!("{host}:{}", self.file_path(&format!("/{path}")));
        }
        for start in ["UUID=", "PARTUUID="] {
            if let Some(uuid) = source.strip_prefix(start) {
                return format!("{start}{}", self.name("uuid", uuid));
            }
        }
        if source.starts_with('/') {
            return self.file_path(source);
        }
        let plain = [
            "tmpfs",
            "devtmpfs",
            "proc",
            "sysfs",
            "cgroup",
            "cgroup2",
            "hugetlbfs",
            "none",
            "overlay",
            "ramfs",
            "udev",
            "devpts",
            "mqueue",
            "debugfs",
            "tracefs",
            "securityfs",
            "pstore",
            "bpf",
            "configfs",
            "fusectl",
            "rootfs",
            "systemd-1",
            "shm",
            "efivarfs",
            "binfmt_misc",
            "nsfs",
            "swap",
        ];
        if plain.contains(&source) { source.to_owned() } else { self.name("volume", source) }
    }

    fn mount(&mut self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            return None;
        }
        let [source, target, kind, options, rest @ ..] = &words[..] else { return None };
        // Options hold no spaces: the kernel writes them as \040.
        let options: Vec<String> = (options.split(','))
            .map(|option| match option.split_once('=') {
                Some((name, value)) => {
                    let number = value.bytes().all(|b| b.is_ascii_digit());
                    let kept = number || listed(OPTIONS).any(|known| known == name) || *kind == "cgroup";
                    if kept { option.to_owned() } else { format!("{name}=redacted") }
                }
                None => option.to_owned(),
            })
            .collect();
        let mut out =
            format!("{} {} {kind} {}", self.mount_source(source), self.file_path(target), options.join(","));
        for word in rest.iter().filter(|word| word.bytes().all(|b| b.is_ascii_digit())) {
            out.push(' ');
            out.push_str(word);
        }
        Some(out)
    }

    fn swap(&mut self, line: &str) -> String {
        let end = line.find(|c: char| c.is_ascii_whitespace()).unwrap_or(line.len());
        let (path, rest) = line.split_at(end);
        if path.starts_with('/') { format!("{}{rest}", self.file_path(path)) } else { line.to_owned() }
    }

    fn boot(&mut self, line: &str) -> String {
        let own = line.split_ascii_whitespace().take_while(|word| *word != "--");
        let words: Vec<String> = own.map(|word| self.boot_word(word)).collect();
        words.join(" ")
    }

    fn boot_word(&mut self, word: &str) -> String {
        let Some((name, value)) = word.split_once('=') else { return self.scrub(word) };
        let words = [
            "on", "off", "yes", "no", "always", "never", "madvise", "auto", "force", "disable", "enable",
            "none", "full", "quiet", "true", "false", "Y", "N",
        ];
        let number = value.starts_with(|c: char| c.is_ascii_digit())
            && value.bytes().all(|b| b.is_ascii_digit() || b"xKMGTkmgt,-:%".contains(&b))
            && self.scrub(value) == value;
        let memory = listed(PARAMETERS).any(|known| name.starts_with(known));
        if number || memory || words.contains(&value) {
            format!("{name}={}", self.scrub(value))
        } else {
            format!("{name}=redacted")
        }
    }

    fn limit(&mut self, line: &str) -> String {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with('#') {
            return bare.chars().take(1).collect();
        }
        let bare = bare.split('#').next().unwrap_or(bare);
        let mut words = bare.split_ascii_whitespace();
        let Some(domain) = words.next() else { return String::new() };
        let (sign, account) = match domain.strip_prefix(['@', '%']) {
            Some(account) => (&domain[..1], account),
            None => ("", domain),
        };
        let numeric = account.bytes().all(|b| b.is_ascii_digit() || b == b':');
        let account = match account {
            "*" => "*".to_owned(),
            _ if numeric || listed(ACCOUNTS).any(|known| known == account) => account.to_owned(),
            _ if sign.is_empty() => self.name("user", account),
            _ => self.name("group", account),
        };
        let rest: Vec<&str> = words.take(3).collect();
        format!("{sign}{account} {}", rest.join(" "))
    }

    fn setting(&mut self, line: &str) -> String {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            return bare.chars().take(1).collect();
        }
        match bare.split_once('=') {
            Some((name, value)) if value.contains('/') && !name.trim().starts_with("vm") => {
                format!("{}= redacted", name)
            }
            Some((name, _)) if name.trim().ends_with("hostname") || name.trim().ends_with("domainname") => {
                format!("{}= redacted", name)
            }
            _ => self.scrub(bare),
        }
    }

    fn unit_line(&mut self, line: &str) -> Option<String> {
        let bare = line.trim();
        if bare.starts_with('[') && bare.ends_with(']') {
            return Some(bare.to_owned());
        }
        let (name, value) = bare.split_once('=')?;
        let name = name.trim();
        if name == "Slice" {
            return Some(format!("Slice={}", self.group_part(value.trim())));
        }
        let ours = [
            "Memory",
            "DefaultMemory",
            "Limit",
            "DefaultLimit",
            "OOM",
            "ManagedOOM",
            "NUMA",
            "CPU",
            "AllowedCPUs",
            "AllowedMemoryNodes",
            "IO",
            "BlockIO",
            "Tasks",
            "DefaultTasks",
            "Delegate",
            "Type",
            "Nice",
            "StartupMemory",
            "SwapUsedLimit",
        ];
        let kept = ours.iter().any(|start| name.starts_with(start));
        kept.then(|| format!("{name}={}", self.scrub(value)))
    }

    fn kernel_log(&mut self, line: &str) -> Option<String> {
        let marks = [
            "Out of memory",
            "oom-kill",
            "oom_kill",
            "oom_reaper",
            "Killed process",
            "Kill process",
            "page allocation failure",
            "drop_caches",
            "allocation stall",
            "Memory cgroup",
            "HugeTLB",
            "hugetlb",
            "Linux version",
            "blocked for more than",
        ];
        if !marks.iter().any(|mark| line.contains(mark)) {
            return None;
        }
        let mut line = self.scrub(line);
        if let Some(at) = line.find("Linux version ") {
            let end = line[at..].match_indices(' ').nth(2).map_or(line.len(), |(end, _)| at + end);
            line.truncate(end);
        }
        for key in ["oom_memcg=", "task_memcg=", "Task in ", "killed as a result of limit of "] {
            line = replace_after(&line, key, &[',', ' '], |path| self.group_path(path));
        }
        line = replace_after(&line, "task=", &[','], |name| self.process(name));
        // `Killed process 42 (name)`, `Kill process 42 (name)`, `reaped process 42 (name)`.
        if let Some(at) = line.find("process ")
            && let Some(open) = line[at..].find('(').map(|open| at + open)
            && let Some(close) = line[open..].find(')').map(|close| open + close)
        {
            line = format!("{}{}{}", &line[..=open], self.process(&line[open + 1..close]), &line[close..]);
        }
        for (mark, cut) in [
            (" invoked oom-killer", None),
            (": page allocation failure", None),
            (": page allocation stall", None),
            ("): drop_caches", Some('(')),
        ] {
            let Some(end) = line.find(mark) else { continue };
            let end = cut.map_or(Some(end), |cut| line[..end].rfind(cut));
            let Some(end) = end.map(|end| line[..end].trim_end().len()) else { continue };
            let start = line[..end].rfind([']', ' ', ';']).map_or(0, |at| at + 1);
            line = format!("{}{}{}", &line[..start], self.process(&line[start..end]), &line[end..]);
        }
        if let Some(at) = line.find("INFO: task ") {
            let start = at + "INFO: task ".len();
            if let Some(end) = line[start..].find(':').map(|end| start + end) {
                line = format!("{}{}{}", &line[..start], self.process(&line[start..end]), &line[end..]);
            }
        }
        Some(line)
    }

    /// Replaces addresses, identifiers and host names that are words of their own.
    fn scrub(&mut self, line: &str) -> String {
        let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '_' | '-');
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(start) = rest.find(inside) {
            out.push_str(&rest[..start]);
            rest = &rest[start..];
            let end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
            let word = self.word(&rest[..end]);
            out.push_str(&word);
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    fn word(&mut self, word: &str) -> String {
        let bare = word.trim_end_matches(['.', ':', '-', '_']);
        let tail = &word[bare.len()..];
        let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
        let lengths: Vec<usize> = bare.split('-').map(str::len).collect();
        if lengths == [8, 4, 4, 4, 12] && bare.split('-').all(hex) {
            return self.name("uuid", &bare.to_ascii_lowercase()) + tail;
        }
        if bare.len() >= 32 && hex(bare) {
            return self.name("id", bare) + tail;
        }
        if bare.len() == 17 && bare.split([':', '-']).all(|pair| pair.len() == 2 && hex(pair)) {
            return self.name("mac", &bare.to_ascii_lowercase()) + tail;
        }
        let (address, port) = bare.split_once(':').unwrap_or((bare, ""));
        if let Ok(ip) = address.parse::<Ipv4Addr>() {
            if ip.is_loopback() || ip.is_unspecified() {
                return word.to_owned();
            }
            let port = if port.is_empty() { String::new() } else { format!(":{}", self.scrub(port)) };
            return self.name("ip", address) + &port + tail;
        }
        // A trailing colon may belong to the address.
        for candidate in [word, bare] {
            if candidate.matches(':').count() >= 2
                && let Ok(ip) = candidate.parse::<Ipv6Addr>()
            {
                let kept = ip.is_loopback() || ip.is_unspecified();
                return if kept {
                    word.to_owned()
                } else {
                    self.name("ip", candidate) + &word[candidate.len()..]
                };
            }
        }
        let lower = bare.to_ascii_lowercase();
        let label = lower.split(['.', ':']).next().unwrap_or(&lower);
        if self.hosts.contains(&lower) || (self.hosts.contains(label) && lower.len() > label.len()) {
            return self.host(label) + tail;
        }
        word.to_owned()
    }
}

/// Replaces what stands between `key` and one of `ends`.
fn replace_after(line: &str, key: &str, ends: &[char], mut with: impl FnMut(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(key) {
        let start = at + key.len();
        let end = rest[start..].find(ends).map_or(rest.len(), |end| start + end);
        out.push_str(&rest[..start]);
        out.push_str(&with(&rest[start..end]));
        rest = &rest[end..];
    }
    out + rest
}

fn listed(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_ascii_whitespace()
}

/// Whether a program's name says nothing of who runs it.
fn well_known(name: &str) -> bool {
    // Short names are compared whole: `sh` must not admit every name that begins so.
    let whole = |known: &str| known.len() <= 4 && !matches!(known, "java" | "hdb" | "perl" | "qemu");
    listed(PROGRAMS).any(|known| if whole(known) { known == name } else { name.starts_with(known) })
        || listed(KERNEL_THREADS).any(|known| name.starts_with(known))
        || listed(COPIERS).any(|known| known == name)
}

fn is_control_file(name: &str) -> bool {
    let starts = [
        "memory.", "cgroup.", "cpu.", "cpuset.", "cpuacct.", "io.", "blkio.", "pids.", "hugetlb.", "misc.",
        "rdma.",
    ];
    starts.iter().any(|start| name.starts_with(start))
        && ![".slice", ".service", ".scope"].iter().any(|end| name.ends_with(end))
}

fn class_of(path: &str) -> Contents {
    let base = path.rsplit('/').next().unwrap_or(path);
    if let Some(rest) = path.strip_prefix("proc/") {
        let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let process = first.bytes().all(|b| b.is_ascii_digit()) || matches!(first, "self" | "thread-self");
        if process {
            let rest = rest
                .strip_prefix("task/")
                .and_then(|rest| rest.split_once('/'))
                .map_or(rest, |(_, rest)| rest);
            return match rest {
                "stat" => Contents::Stat,
                "status" => Contents::Status,
                "comm" => Contents::Comm,
                "cmdline" => Contents::Arguments,
                "cgroup" => Contents::Cgroup,
                "numa_maps" | "maps" | "smaps" => Contents::Mappings,
                "mounts" => Contents::Mounts,
                "" | "statm" | "limits" | "io" | "smaps_rollup" | "oom_score" | "oom_score_adj"
                | "oom_adj" | "schedstat" | "sched" | "timerslack_ns" | "task" | "coredump_filter"
                | "loginuid" => Contents::Keep,
                _ => Contents::Drop,
            };
        }
        return match (first, rest) {
            ("cmdline", _) => Contents::Boot,
            ("mounts", _) => Contents::Mounts,
            ("swaps", _) => Contents::Swaps,
            ("net" | "keys" | "key-users" | "kcore" | "kallsyms" | "config.gz" | "kpagecgroup", _) => {
                Contents::Drop
            }
            ("sys", "kernel/hostname" | "kernel/domainname") => Contents::Host,
            ("sys", rest) if rest.starts_with("kernel/random") || rest.starts_with("net/") => Contents::Drop,
            ("sys", rest)
                if rest.starts_with("vm") || matches!(rest, "kernel/osrelease" | "kernel/ostype") =>
            {
                Contents::Keep
            }
            ("sys", "kernel/core_pattern" | "kernel/modprobe" | "kernel/poweroff_cmd") => Contents::Drop,
            ("sys" | "version", _) => Contents::Scrub,
            _ => Contents::Keep,
        };
    }
    if path.starts_with("sys/") {
        let secret = ["serial", "wwid", "wwn", "uuid", "vpd_pg80", "vpd_pg83", "address", "nguid", "eui"];
        return match base {
            "name" if path.contains("/dm/") => Contents::DeviceName,
            _ if secret.contains(&base) || path.contains("/dmi/") || path.starts_with("sys/class/net") => {
                Contents::Drop
            }
            _ => Contents::Keep,
        };
    }
    if path == "dev/kmsg"
        || base.starts_with("dmesg")
        || path == "var/log/messages"
        || path == "var/log/kern.log"
    {
        return Contents::KernelLog;
    }
    if path.starts_with("etc/security/limits") {
        return Contents::Limits;
    }
    if path.contains("sysctl.conf") || path.contains("sysctl.d/") {
        return Contents::Settings;
    }
    if path.contains("systemd/") {
        return Contents::Unit;
    }
    match path {
        "etc/hostname" => Contents::Host,
        "etc/fstab" | "etc/mtab" => Contents::Mounts,
        "etc/machine-id" | "etc/passwd" | "etc/shadow" | "etc/group" | "etc/gshadow" | "etc/hosts"
        | "etc/resolv.conf" => Contents::Drop,
        _ => Contents::Scrub,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redactor() -> Redactor {
        let mut redactor = Redactor::new(Redaction::Standard);
        redactor.learn_host("acmedb7.acme.example");
        redactor
    }

    fn kept(redactor: &mut Redactor, path: &str, text: &str) -> String {
        String::from_utf8(redactor.contents(path, text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn counters_and_limits_stay_as_they_are() {
        let mut redactor = redactor();
        for (path, text) in [
            ("proc/meminfo", "MemTotal: 1 kB\n"),
            ("proc/42/limits", "Max locked memory 65536 65536 bytes\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("sys/fs/cgroup/memory.stat", "anon 1\n"),
            ("proc/sys/kernel/osrelease", "6.1.0.13-x\n"),
        ] {
            assert_eq!(kept(&mut redactor, path, text), text);
            assert_eq!(redactor.path(path).as_deref(), Some(path));
        }
        let full = &mut Redactor::new(Redaction::Full);
        assert_eq!(kept(full, "etc/passwd", "joe\n"), "joe\n");
    }

    #[test]
    fn process_names() {
        let r = &mut redactor();
        let stat = |r: &mut Redactor, name: &str, flags: u64| {
            kept(r, "proc/42/stat", &format!("42 ({name}) S 1 42 42 0 -1 {flags} 7 0\n"))
        };
        for name in [
            "postgres",
            "mysqld",
            "mongod",
            "redis-server",
            "java",
            "hdbindexserver",
            "sqlservr",
            "qemu-system-x86",
            "kswapd0",
            "cp",
            "sh",
        ] {
            assert!(stat(r, name, 0).contains(&format!("({name})")), "{name}");
        }
        assert_eq!(stat(r, "acme) (billing", 0), "42 (program1) S 1 42 42 0 -1 0 7 0\n");
        assert_eq!(stat(r, "shady", 0), "42 (program2) S 1 42 42 0 -1 0 7 0\n");
        assert_eq!(
            kept(r, "proc/42/status", "Name:\tshady\nVmRSS:\t1 kB\n"),
            "Name:\tprogram2\nVmRSS:\t1 kB\n"
        );
        assert_eq!(kept(r, "proc/42/comm", "shady\n"), "program2\n");
        assert_eq!(kept(r, "proc/42/cmdline", "/opt/acme/shady\0--password\0hunter2\0"), "program2\0");
        assert_eq!(kept(r, "proc/42/comm", "ora_pmon_ACME\n"), "ora_pmon_sid1\n");
        assert_eq!(kept(r, "proc/42/comm", "oracle_99_acme\n"), "oracle_99_sid2\n");
        assert_eq!(kept(r, "proc/42/comm", "oracleACME\n"), "oraclesid1\n");
        // A kernel thread keeps its name in all files.
        assert!(stat(r, "acme-wq", 0x0020_8040).contains("(acme-wq)"));
        assert_eq!(kept(r, "proc/42/status", "Name:\tacme-wq\n"), "Name:\tacme-wq\n");
        assert_eq!(r.contents("proc/42/environ", b"X=1"), None);
    }

    #[test]
    fn cgroups_in_paths_and_contents_agree() {
        let r = &mut redactor();
        let group = |r: &mut Redactor, path: &str| kept(r, "proc/42/cgroup", &format!("0::{path}\n"));
        assert_eq!(group(r, "/system.slice/mysqld.service"), "0::/system.slice/mysqld.service\n");
        assert_eq!(group(r, "/system.slice/acme-billing.service"), "0::/system.slice/unit1.service\n");
        assert_eq!(
            r.path("sys/fs/cgroup/system.slice/acme-billing.service/memory.max").unwrap(),
            "sys/fs/cgroup/system.slice/unit1.service/memory.max"
        );
        assert_eq!(
            r.path("sys/fs/cgroup/system.slice/acme-billing.service").unwrap(),
            "sys/fs/cgroup/system.slice/unit1.service"
        );
        assert_eq!(
            r.path("etc/systemd/system/acme-billing.service.d/override.conf").unwrap(),
            "etc/systemd/system/unit1.service.d/override.conf"
        );
        assert_eq!(r.path("sys/fs/cgroup/memory.stat").unwrap(), "sys/fs/cgroup/memory.stat");
        assert_eq!(
            group(r, "/user.slice/user-1000.slice/session-3.scope"),
            "0::/user.slice/user-1000.slice/session-3.scope\n"
        );
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        assert_eq!(
            group(r, &format!("/system.slice/docker-{id}.scope")),
            "0::/system.slice/docker-id1.scope\n"
        );
        assert_eq!(
            group(
                r,
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice"
            ),
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduuid1.slice\n"
        );
        assert_eq!(
            group(r, "/system.slice/system-postgresql.slice/postgresql@14-acme.service")
                .matches("acme")
                .count(),
            0
        );
    }

    #[test]
    fn mounts_swaps_and_mappings() {
        let r = &mut redactor();
        assert_eq!(
            kept(
                r,
                "proc/mounts",
                "filer7.acme.example:/vol/acme /u01/acme nfs4 rw,rsize=1048576,addr=10.1.2.3 0 0\n"
            ),
            "host2:/dir1/dir2 /dir3/dir2 nfs4 rw,rsize=1048576,addr=redacted 0 0\n"
        );
        let tmpfs = "tmpfs /dev/shm tmpfs rw,nosuid,size=1024k,huge=advise 0 0\n";
        assert_eq!(kept(r, "proc/mounts", tmpfs), tmpfs);
        assert_eq!(
            kept(r, "proc/mounts", "/dev/mapper/acme-root / xfs rw,seclabel 0 0\n"),
            "/dev/mapper/dm1 / xfs rw,seclabel 0 0\n"
        );
        assert_eq!(kept(r, "sys/block/dm-0/dm/name", "acme-root\n"), "dm1\n");
        assert_eq!(
            kept(
                r,
                "proc/swaps",
                "Filename Type Size Used Priority\n/dev/mapper/acme-root partition 1 0 -2\n/dev/vda2 partition 1 0 -3\n"
            ),
            "Filename Type Size Used Priority\n/dev/mapper/dm1 partition 1 0 -2\n/dev/vda2 partition 1 0 -3\n"
        );
        let maps = "7f00 default file=/opt/acme/lib.so mapped=1 N0=1\n7f01 default file=/dev/shm/ora_1 dirty=1\n\
                    7f02 default file=/SYSV00000000\\040(deleted) huge N0=1\n7f03 default heap anon=1\n7f04 default file=/opt/acme/lib.so\n";
        assert_eq!(kept(r, "proc/42/numa_maps", maps), maps.replace("/opt/acme/lib.so", "/file1"));
        assert_eq!(
            kept(
                r,
                "proc/42/maps",
                "7f00-7f01 r-xp 00000000 fd:00 12 /opt/acme/lib.so\n7f02-7f03 rw-p 0 00:00 0 [heap]\n"
            ),
            "7f00-7f01 r-xp 00000000 fd:00 12 /file1\n7f02-7f03 rw-p 0 00:00 0 [heap]\n"
        );
    }

    #[test]
    fn settings_and_the_command_line() {
        let r = &mut redactor();
        assert_eq!(
            kept(
                r,
                "etc/security/limits.conf",
                "# for joe\noracle soft memlock 1\njoe hard memlock 2 # joe\n@joes - as 3\n* soft core 0\n"
            ),
            "#\noracle soft memlock 1\nuser1 hard memlock 2\n@group1 - as 3\n* soft core 0\n"
        );
        assert_eq!(kept(r, "etc/sysctl.d/90-x.conf", "# Joe\nvm.swappiness = 1\n"), "#\nvm.swappiness = 1\n");
        assert_eq!(
            kept(
                r,
                "proc/cmdline",
                "BOOT_IMAGE=/vmlinuz root=UUID=12345678-1234-1234-1234-123456789abc ro hugepages=100 hugepagesz=2M transparent_hugepage=never ip=10.0.0.1 psi=1 quiet -- --token x\n"
            ),
            "BOOT_IMAGE=redacted root=redacted ro hugepages=100 hugepagesz=2M transparent_hugepage=never ip=redacted psi=1 quiet\n"
        );
        assert_eq!(
            kept(
                r,
                "etc/systemd/system/x.service",
                "[Service]\nEnvironment=TOKEN=1\nUser=joe\nLimitMEMLOCK=infinity\nMemoryMax=4G\n"
            ),
            "[Service]\nLimitMEMLOCK=infinity\nMemoryMax=4G\n"
        );
        assert_eq!(
            kept(
                r,
                "etc/tuned/x",
                "ACMEDB7 acmedb7.acme.example fe80::1:2 de:ad:be:ef:00:01 10.1.2.3:80 127.0.0.1 1.2.3\n"
            ),
            "host1 host1 ip1 mac1 ip2:80 127.0.0.1 1.2.3\n"
        );
        for path in
            ["etc/machine-id", "sys/class/dmi/id/product_uuid", "sys/block/sda/device/serial", "proc/net/tcp"]
        {
            assert_eq!((r.path(path), r.contents(path, b"x")), (None, None), "{path}");
        }
    }

    #[test]
    fn the_kernel_log_keeps_what_is_about_memory() {
        let r = &mut redactor();
        let log = "[1.0] usb 1-1: Joe's phone\n\
            [2.0] shady invoked oom-killer: gfp_mask=0x1, order=0\n\
            [3.0] oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/system.slice/acme.service,task_memcg=/system.slice/acme.service,task=shady,pid=42,uid=0\n\
            [4.0] Memory cgroup out of memory: Killed process 42 (shady) total-vm:1kB\n\
            [5.0] Joe (77): drop_caches: 3\n\
            [6.0] mysqld: page allocation failure: order:4\n";
        let kept = kept(r, "var/log/dmesg", log);
        assert_eq!(
            kept,
            "[2.0] program1 invoked oom-killer: gfp_mask=0x1, order=0\n\
             [3.0] oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/system.slice/unit1.service,task_memcg=/system.slice/unit1.service,task=program1,pid=42,uid=0\n\
             [4.0] Memory cgroup out of memory: Killed process 42 (program1) total-vm:1kB\n\
             [5.0] program2 (77): drop_caches: 3\n\
             [6.0] mysqld: page allocation failure: order:4\n"
        );
    }

    const PATHS: [&str; 16] = [
        "proc/1/stat",
        "proc/1/status",
        "proc/1/cmdline",
        "proc/1/cgroup",
        "proc/1/numa_maps",
        "proc/1/maps",
        "proc/mounts",
        "proc/swaps",
        "proc/cmdline",
        "etc/security/limits.conf",
        "etc/sysctl.conf",
        "etc/systemd/system/x.service",
        "var/log/dmesg",
        "proc/sys/kernel/hostname",
        "etc/x",
        "proc/1/comm",
    ];

    proptest! {
        #[test]
        fn any_contents_are_redacted_without_a_panic(
            text in "([a-z0-9 .:/=(),@#_\\n\\[\\]-]|é|process |task=|invoked oom-killer|drop_caches|file=/|INFO: task |Linux version ){0,60}",
            which in 0..PATHS.len(),
        ) {
            redactor().contents(PATHS[which], text.as_bytes());
        }

        #[test]
        fn any_path_is_redacted_without_a_panic(path in "(sys/fs/cgroup/|etc/systemd/system/|proc/)?[a-z0-9.@é/-]{0,30}") {
            redactor().path(&path);
        }

        #[test]
        fn names_never_survive(at in 0..PATHS.len(), name in "zq[a-z]{6}xw") {
            let mut redactor = redactor();
            redactor.learn_host(&name);
            let text = match PATHS[at] {
                "proc/1/stat" => format!("1 ({name}) S 0 1 1 0 -1 0 1\n"),
                "proc/1/status" => format!("Name:\t{name}\n"),
                "proc/1/cmdline" => format!("/opt/{name}/{name}\0{name}\0"),
                "proc/1/cgroup" => format!("4:memory:/{name}/{name}.service\n"),
                "proc/1/numa_maps" => format!("7f default file=/{name}/{name} N0=1\n"),
                "proc/1/maps" => format!("7f-80 r--p 0 0:0 0 /{name}/{name}\n"),
                "proc/mounts" => format!("{name}:/{name} /mnt/{name} nfs rw,x={name} 0 0\n//{name}/{name} /{name} cifs user={name} 0 0\n"),
                "proc/swaps" => format!("/{name}/swapfile file 1 0 -2\n"),
                "proc/cmdline" => format!("root=/dev/{name} nfsroot={name}:/x {name}\n"),
                "etc/security/limits.conf" => format!("{name} soft memlock 1 # {name}\n@{name} - as 1\n"),
                "etc/sysctl.conf" => format!("# {name}\nkernel.hostname = {name}\nkernel.core_pattern = /{name}\n"),
                "etc/systemd/system/x.service" => format!("[Service]\nUser={name}\nExecStart=/{name}\nSlice={name}.slice\n"),
                "var/log/dmesg" => format!("[1] {name}\n[2] {name} invoked oom-killer: x\n[3] oom-kill:task_memcg=/{name},task={name},pid=1\n"),
                _ => format!("{name}\n"),
            };
            let kept = redactor.contents(PATHS[at], text.as_bytes()).unwrap();
            let kept = String::from_utf8(kept).unwrap();
            prop_assert!(!kept.contains(&name), "{}", kept);
        }
    }
}
