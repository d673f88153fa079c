//! What is configured to hold after the next boot.

use std::collections::BTreeSet;

use super::reader::Reader;
use crate::Snapshot;
use crate::file::limits_conf;
use crate::file::sysctl;
use crate::file::unit::{self, Unit};
use crate::snapshot::Tuners;

pub(super) fn collect(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    sysctl_files(reader, snapshot);
    limits(reader, snapshot);
    units(reader, snapshot);
    snapshot.tuners = tuners(reader);
}

/// Where `systemd-sysctl` looks, highest precedence first.
const SYSCTL_DIRECTORIES: &[&str] =
    &["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];
/// Only a hostile tree has more files than this in one of these directories.
const MOST_FILES: usize = 512;

fn sysctl_files(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    let listed: Vec<(&str, Vec<String>)> = SYSCTL_DIRECTORIES
        .iter()
        .map(|directory| {
            let mut names = reader.optional_list(directory);
            names.retain(|name| name.ends_with(".conf"));
            names.truncate(MOST_FILES);
            (*directory, names)
        })
        .collect();
    let order = sysctl::application_order(&listed);
    for path in order.iter().map(String::as_str).chain(["etc/sysctl.conf"]) {
        if let Some((text, log)) = reader.optional_bytes(path) {
            snapshot.sysctl_files.extend(sysctl::parse_conf(path, text, log));
        }
    }
}

fn limits(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    let mut paths = vec!["etc/security/limits.conf".to_owned()];
    let names = reader.optional_list("etc/security/limits.d");
    paths.extend(
        names.iter().filter(|name| name.ends_with(".conf")).take(MOST_FILES).map(|name| format!("etc/security/limits.d/{name}")),
    );
    for path in paths {
        if let Some((text, log)) = reader.optional_bytes(&path) {
            snapshot.limits_conf.extend(limits_conf::parse(&path, text, log));
        }
    }
}

/// Where systemd looks for units, highest precedence first.
const UNIT_DIRECTORIES: &[&str] = &["etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];
/// Units of this many processes and administrators are read.
const MOST_UNITS: usize = 64;

/// Units that the administrator wrote or changed, and those of the processes that were looked at closely.
fn units(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    let mut names: BTreeSet<String> = (snapshot.processes.iter().flatten())
        .filter_map(|process| process.detail.as_ref()?.cgroup.as_deref())
        .filter_map(|path| path.split('/').rfind(|part| part.ends_with(".service")))
        .map(str::to_owned)
        .collect();
    for name in reader.optional_list("etc/systemd/system") {
        let unit = name.strip_suffix(".d").unwrap_or(&name);
        if unit.ends_with(".service") || unit.ends_with(".slice") {
            names.insert(unit.to_owned());
        }
    }
    for name in names.into_iter().take(MOST_UNITS) {
        let mut settings = Vec::new();
        let base = UNIT_DIRECTORIES.iter().find_map(|directory| {
            let path = format!("{directory}/{name}");
            reader.optional_bytes(&path).map(|(text, log)| unit::parse_settings(&path, text, log))
        });
        settings.extend(base.unwrap_or_default());
        let mut drop_ins: Vec<(String, String)> = Vec::new();
        for directory in UNIT_DIRECTORIES {
            for file in reader.optional_list(&format!("{directory}/{name}.d")) {
                if file.ends_with(".conf") && !drop_ins.iter().any(|(seen, _)| *seen == file) {
                    let path = format!("{directory}/{name}.d/{file}");
                    drop_ins.push((file, path));
                }
            }
        }
        drop_ins.sort();
        for (_, path) in drop_ins.iter().take(MOST_FILES) {
            if let Some((text, log)) = reader.optional_bytes(path) {
                settings.extend(unit::parse_settings(path, text, log));
            }
        }
        if !settings.is_empty() {
            snapshot.units.push(Unit { name, settings });
        }
    }
}

fn tuners(reader: &mut Reader<'_>) -> Tuners {
    let wanted: BTreeSet<String> = ["multi-user", "basic", "sysinit", "graphical"]
        .iter()
        .flat_map(|target| reader.optional_list(&format!("etc/systemd/system/{target}.target.wants")))
        .collect();
    let enabled = |unit: &str| wanted.contains(unit);
    Tuners {
        tuned_profile: reader.optional_text("etc/tuned/active_profile").filter(|name| !name.is_empty()),
        sapconf: enabled("sapconf.service"),
        saptune: enabled("saptune.service"),
        systemd_oomd: enabled("systemd-oomd.service"),
        earlyoom: enabled("earlyoom.service"),
    }
}
