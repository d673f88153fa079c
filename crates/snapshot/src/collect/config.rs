//! Configuration that takes effect at the next boot: sysctl files, limits and units.

use std::collections::BTreeSet;

use lotsfree_kernel_files::file::limits_conf::LimitsLine;
use lotsfree_kernel_files::file::sysctl::{self, SysctlSetting};
use lotsfree_kernel_files::file::unit::{self, Unit};

use super::reader::Reader;
use crate::Snapshot;
use crate::snapshot::Tuners;

pub(super) fn collect(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    sysctl_files(reader, snapshot);
    limits(reader, snapshot);
    units(reader, snapshot);
    snapshot.tuners = tuners(reader);
}

/// A bound on the files of one directory; only a hostile tree has more.
const MOST_FILES: usize = 512;

fn sysctl_files(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    let listed = list(reader, sysctl::DIRECTORIES);
    // If `99-sysctl.conf` exists, it is a link to `sysctl.conf`.
    let linked = listed.iter().any(|(_, names)| names.iter().any(|name| name == "99-sysctl.conf"));
    for path in sysctl::application_order(&listed, !linked) {
        if let Some((text, log)) = reader.optional_bytes(&path) {
            snapshot.sysctl_files.extend(SysctlSetting::parse_file(&path, text, log));
        }
    }
}

fn limits(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    let mut paths = vec!["etc/security/limits.conf".to_owned()];
    let names = reader.optional_list("etc/security/limits.d");
    paths.extend(
        names
            .iter()
            .filter(|name| name.ends_with(".conf"))
            .take(MOST_FILES)
            .map(|name| format!("etc/security/limits.d/{name}")),
    );
    for path in paths {
        if let Some((text, log)) = reader.optional_bytes(&path) {
            snapshot.limits_conf.extend(LimitsLine::parse_file(&path, text, log));
        }
    }
}

/// At most this many units are read.
const MOST_UNITS: usize = 64;

/// Reads the units that the administrator wrote or changed, and those of the processes with details.
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
        let mut unit = Unit { name, settings: Vec::new() };
        for path in unit::unit_paths(&unit.name).collect::<Vec<_>>() {
            if let Some((text, log)) = reader.optional_bytes(&path) {
                unit.add_file(&path, text, log);
                break;
            }
        }
        let directories = unit::drop_in_directories(&unit.name);
        let listed = list(reader, directories.iter().map(String::as_str));
        for path in unit::drop_in_order(&listed) {
            if let Some((text, log)) = reader.optional_bytes(&path) {
                unit.add_file(&path, text, log);
            }
        }
        if !unit.settings.is_empty() {
            snapshot.units.push(unit);
        }
    }
}

/// Lists the `*.conf` files of each directory.
fn list<'d>(
    reader: &mut Reader<'_>,
    directories: impl IntoIterator<Item = &'d str>,
) -> Vec<(&'d str, Vec<String>)> {
    let list = |directory: &'d str| {
        let mut names = reader.optional_list(directory);
        names.retain(|name| name.ends_with(".conf"));
        names.truncate(MOST_FILES);
        (directory, names)
    };
    directories.into_iter().map(list).collect()
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
