//! Names of control groups and units, in paths and in contents.
//!
//! A name is split at its dashes, as systemd does. `acme-billing.service` becomes `unit1-unit2.service`, so
//! that the drop-ins of `acme-.service.d` and the slice `acme.slice` still belong to it. Words that are
//! systemd's, a container runtime's or a well-known program's stay; identifiers of containers and pods become
//! `id1`.

use super::lists::{GROUPS, PROGRAMS, UNIT_TYPES};
use super::names::Names;
use super::words::is_decimal;

/// The kernel's suffix of the path of a group that is gone.
const DELETED: &str = " (deleted)";

impl Names {
    /// Redacts a path of groups, absolute or relative.
    pub(super) fn group_path(&mut self, path: &str) -> String {
        let (path, deleted) = path.strip_suffix(DELETED).map_or((path, ""), |path| (path, DELETED));
        let parts: Vec<String> = path.split('/').map(|part| self.group(part)).collect();
        parts.join("/") + deleted
    }

    /// Redacts the name of a group or a unit.
    pub(super) fn group(&mut self, name: &str) -> String {
        if matches!(name, "" | "." | "..") {
            return name.to_owned();
        }
        let (base, kind) = match name.rsplit_once('.') {
            Some((base, kind)) if UNIT_TYPES.has(kind) => (base, &name[base.len()..]),
            _ => (name, ""),
        };
        match base.split_once('@') {
            Some((template, instance)) => {
                format!("{}@{}{kind}", self.dashed(template), self.dashed(instance))
            }
            None => format!("{}{kind}", self.dashed(base)),
        }
    }

    fn dashed(&mut self, base: &str) -> String {
        if GROUPS.has(base) || PROGRAMS.has(base) {
            return base.to_owned();
        }
        // Without systemd the name of a pod's group contains the dashes of its UUID.
        if let Some(pod) = base.strip_prefix("pod").filter(|pod| is_uuid(pod)) {
            return format!("pod{}", self.token("id", pod));
        }
        if is_uuid(base) {
            return self.token("id", base);
        }
        let parts: Vec<String> = base.split('-').map(|part| self.part(part)).collect();
        parts.join("-")
    }

    fn part(&mut self, part: &str) -> String {
        let number = is_decimal(part) && part.len() <= 10;
        if part.is_empty() || number || GROUPS.has(part) || PROGRAMS.has(part) {
            return part.to_owned();
        }
        if let Some(pod) = part.strip_prefix("pod") {
            return format!("pod{}", self.token("id", &pod.replace('_', "-")));
        }
        if part.len() >= 12 && part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return self.token("id", part);
        }
        self.token("unit", part)
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_rules_know_stay() {
        let mut names = Names::default();
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let uuid = "12345678-1234-1234-1234-123456789abc";
        for (path, kept) in [
            ("/", "/"),
            ("/system.slice/mysqld.service", "/system.slice/mysqld.service"),
            ("/system.slice/postgresql@14-acme.service", "/system.slice/postgresql@14-unit1.service"),
            ("/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice/session-3.scope"),
            ("/system.slice/systemd-acme.service", "/system.slice/systemd-unit1.service"),
            ("/system.slice/acme-billing.service", "/system.slice/unit1-unit2.service"),
            ("/acme.slice/acme-billing.slice (deleted)", "/unit1.slice/unit1-unit2.slice (deleted)"),
            ("/../x", "/../unit3"),
            (&format!("/system.slice/docker-{id}.scope"), "/system.slice/docker-id1.scope"),
            (&format!("/docker/{id}"), "/docker/id1"),
            (&format!("/kubepods/burstable/pod{uuid}/{id}"), "/kubepods/burstable/podid2/id1"),
            (
                &format!("/kubepods-burstable-pod{}.slice", uuid.replace('-', "_")),
                "/kubepods-burstable-podid2.slice",
            ),
            ("/system.slice/run-r0a1b.scope", "/system.slice/run-unit4.scope"),
            ("/lotsfree-lab-WWdpXIIG0kzX", "/lotsfree-lab-unit5"),
        ] {
            assert_eq!(names.group_path(path), kept);
        }
    }
}
