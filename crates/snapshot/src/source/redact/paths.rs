//! Devices, directories and files that users name, in mounts, swap areas and mappings.

use super::lists::{DEVICES, DIRECTORIES, DRIVES, FILE_SYSTEMS, FLAGS, OPTION_VALUES, OPTIONS, SOURCES};
use super::names::Names;
use super::words::{is_decimal, is_hex, is_size};

/// The kernel's suffix of the path of a file that is gone, escaped and not.
const DELETED: [&str; 2] = ["\\040(deleted)", " (deleted)"];

impl Names {
    /// Redacts a block device as its driver names it: `sda2`, `dm-0`, `mapper/acme-root`.
    pub(super) fn device(&mut self, name: &str) -> String {
        if DEVICES.has(name) || is_drive(name) {
            return name.to_owned();
        }
        if let Some(volume) = name.strip_prefix("mapper/") {
            return format!(
                "mapper/{}",
                if volume == "control" { volume.into() } else { self.token("dm", volume) }
            );
        }
        // The number at the end stays, so that `acme2` and `acme0p2` are still partitions.
        let whole = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = &name[whole.len()..];
        let numbered = match whole.strip_suffix('p') {
            Some(device) if device.ends_with(|c: char| c.is_ascii_digit()) => device,
            _ => whole,
        };
        if number.is_empty() || numbered.is_empty() {
            return self.token("device", name);
        }
        format!("{}p{number}", self.device(numbered))
    }

    /// Redacts a path of files that users create. Directories of distributions stay.
    pub(super) fn file_path(&mut self, path: &str) -> String {
        let (path, deleted) = without_deleted(path);
        if let Some(device) = path.strip_prefix("/dev/") {
            let shared = device.strip_prefix("shm/").or_else(|| device.strip_prefix("hugepages/"));
            if shared.is_none() && !DIRECTORIES.has(device) {
                return format!("/dev/{}{deleted}", self.device(device));
            }
        }
        let parts: Vec<String> = path.split('/').map(|part| self.directory_name(part)).collect();
        parts.join("/") + deleted
    }

    fn directory_name(&mut self, name: &str) -> String {
        let number = is_decimal(name) && name.len() <= 10;
        if name.is_empty() || number || DIRECTORIES.has(name) {
            name.to_owned()
        } else {
            self.token("dir", name)
        }
    }

    /// Redacts the file of a mapping. The parts that mark it as shared memory, and whose, stay.
    pub(super) fn mapped_file(&mut self, path: &str) -> String {
        let (path, deleted) = without_deleted(path);
        let system_v = path.strip_prefix("/SYSV").is_some_and(|key| key.len() == 8 && is_hex(key));
        if system_v || matches!(path, "/anon_hugepage" | "/dev/zero" | "//anon") {
            return format!("{path}{deleted}");
        }
        for start in ["/dev/shm/", "/run/shm/"] {
            if let Some(name) = path.strip_prefix(start) {
                return format!("{start}{}{deleted}", self.shared_memory(name));
            }
        }
        if let Some(name) = path.strip_prefix("/memfd:") {
            return format!("/memfd:{}{deleted}", self.token("shm", name));
        }
        if let Some(name) = path.strip_prefix("/dev/hugepages/") {
            return format!("/dev/hugepages/{}{deleted}", self.token("file", name));
        }
        format!("/{}{deleted}", self.token("file", path))
    }

    /// `ora_SID_163840_0` is a granule of an Oracle instance under automatic memory management.
    fn shared_memory(&mut self, name: &str) -> String {
        let granule = name.strip_prefix("ora_").and_then(|rest| {
            let (rest, number) = rest.rsplit_once('_')?;
            let (sid, id) = rest.rsplit_once('_')?;
            (is_decimal(number) && is_decimal(id)).then_some((sid, id, number))
        });
        match granule {
            Some((sid, id, number)) => format!("ora_{}_{id}_{number}", self.sid(sid)),
            None if name.starts_with("ora_") => format!("ora_{}", self.token("sid", &name["ora_".len()..])),
            None => self.token("shm", name),
        }
    }

    /// Redacts a line of `/proc/mounts`: source, target, type, options, two numbers.
    pub(super) fn mount(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [source, target, kind, options, rest @ ..] = &words[..] else {
            return if words.is_empty() { String::new() } else { "redacted".to_owned() };
        };
        // The type may have a subtype: `fuse.sshfs`.
        let kind = if FILE_SYSTEMS.has(kind) {
            (*kind).to_owned()
        } else if kind.starts_with("fuse.") {
            format!("fuse.{}", self.token("fs", kind))
        } else {
            self.token("fs", kind)
        };
        let mut out =
            format!("{} {} {kind} {}", self.source(source), self.file_path(target), options_kept(options));
        for number in rest.iter().filter(|word| is_decimal(word)) {
            out.push(' ');
            out.push_str(number);
        }
        out
    }

    fn source(&mut self, source: &str) -> String {
        if SOURCES.has(source) {
            return source.to_owned();
        }
        if let Some(rest) = source.strip_prefix("//") {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            return format!("//{}/{}", self.host(host), self.file_path(path));
        }
        if source.starts_with('/') {
            return self.file_path(source);
        }
        if let Some((host, path)) = source.split_once(":/") {
            return format!("{}:{}", self.host(host), self.file_path(&format!("/{path}")));
        }
        self.token("volume", source)
    }

    /// Redacts a line of `/proc/swaps`: path, type and three numbers.
    pub(super) fn swap(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["Filename", "Type", "Size", "Used", "Priority"] => line.to_owned(),
            [path, kind @ ("partition" | "file"), ref numbers @ ..]
                if numbers.iter().all(|word| is_size(word)) =>
            {
                let kept = self.file_path(path);
                if kept == path { line.to_owned() } else { format!("{kept}\t{kind}\t{}", numbers.join("\t")) }
            }
            [] => String::new(),
            _ => "redacted".to_owned(),
        }
    }
}

fn without_deleted(path: &str) -> (&str, &'static str) {
    DELETED.iter().find_map(|end| Some((path.strip_suffix(end)?, *end))).unwrap_or((path, ""))
}

/// Whether it is a disk or a partition whose driver counts in letters: `sda`, `vdb2`.
fn is_drive(name: &str) -> bool {
    DRIVES.iter().any(|driver| {
        name.strip_prefix(driver).is_some_and(|rest| {
            let letters = rest.trim_end_matches(|c: char| c.is_ascii_digit());
            (1..=2).contains(&letters.len()) && letters.bytes().all(|b| b.is_ascii_lowercase())
        })
    })
}

/// The options of a mount that may stay.
fn options_kept(options: &str) -> String {
    let kept = |option: &&str| {
        FLAGS.has(option)
            || option.split_once('=').is_some_and(|(name, value)| {
                let plain = |part: &str| is_size(part) || OPTION_VALUES.has(part);
                OPTIONS.has(name) && (plain(value) || value.split(':').all(plain))
            })
    };
    let kept: Vec<&str> = options.split(',').filter(kept).collect();
    // The kernel always prints at least one option.
    if kept.is_empty() { "rw".to_owned() } else { kept.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_keep_what_their_drivers_call_them() {
        let mut names = Names::default();
        for name in [
            "sda",
            "sdaa12",
            "nvme0n1p3",
            "dm-0",
            "zram0",
            "loop7",
            "md127",
            "cciss/c0d0",
            "cciss!c0d0",
            "xvda1",
            "dasda1",
        ] {
            assert_eq!(names.device(name), name);
        }
        for (name, kept) in [
            ("acmedisk", "device1"),
            ("acmedisk2", "device1p2"),
            ("sdacme", "device2"),
            ("mapper/acme-root", "mapper/dm1"),
            ("zramacme", "device3"),
            ("disk/by-id/wwn-acme", "device4"),
            ("acme0", "device5p0"),
            ("acme0p1", "device5p0p1"),
        ] {
            assert_eq!(names.device(name), kept);
        }
    }

    #[test]
    fn mounts_keep_types_and_options_of_memory() {
        let mut names = Names::default();
        for line in [
            "tmpfs /dev/shm tmpfs rw,nosuid,size=1024k,huge=advise,mpol=interleave:0-1 0 0",
            "/dev/sda1 / ext4 rw,relatime,data=ordered 0 0",
            "hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0",
        ] {
            assert_eq!(names.mount(line), line);
        }
        for (line, kept) in [
            (
                "filer7.acme.example:/vol/acme /u01/acme nfs4 rw,rsize=1048576,addr=10.1.2.3 0 0",
                "host1:/dir1/dir2 /dir3/dir2 nfs4 rw,rsize=1048576 0 0",
            ),
            ("/dev/mapper/acme-root / xfs rw,seclabel 0 0", "/dev/mapper/dm1 / xfs rw,seclabel 0 0"),
            ("//nas/acme /mnt cifs username=joe 0 0", "//host2/dir2 /mnt cifs rw 0 0"),
            ("acme@nas:/x /home/joe fuse.acmefs rw,size=acme 0 0", "host3:/dir4 /home/dir5 fuse.fs1 rw 0 0"),
            ("tank/acme /tank zfs rw 0 0", "volume1 /dir6 zfs rw 0 0"),
        ] {
            assert_eq!(names.mount(line), kept);
        }
    }

    #[test]
    fn swap_areas_and_mapped_files() {
        let mut names = Names::default();
        let plain = "/dev/vda2                               partition\t262140\t\t15000\t\t-2";
        assert_eq!(names.swap(plain), plain);
        assert_eq!(names.swap("/acme/swapfile file 1 0 -2"), "/dir1/swapfile\tfile\t1\t0\t-2");
        assert_eq!(names.swap("/acme\\040(deleted) file 1 0 -2"), "/dir1\\040(deleted)\tfile\t1\t0\t-2");
        for (file, kept) in [
            ("/SYSV00000000\\040(deleted)", "/SYSV00000000\\040(deleted)"),
            ("/SYSVacme", "/file1"),
            ("/dev/shm/ora_ACME_163840_0", "/dev/shm/ora_sid1_163840_0"),
            ("/dev/shm/ora_+ASM_163840_0", "/dev/shm/ora_+ASM_163840_0"),
            ("/dev/shm/ora_acme", "/dev/shm/ora_sid2"),
            ("/dev/shm/acme", "/dev/shm/shm1"),
            ("/memfd:acme (deleted)", "/memfd:shm1 (deleted)"),
            ("/dev/zeroacme", "/file2"),
            ("/opt/acme/lib.so", "/file3"),
        ] {
            assert_eq!(names.mapped_file(file), kept);
        }
    }
}
