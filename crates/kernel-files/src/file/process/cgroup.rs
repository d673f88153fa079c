//! `/proc/PID/cgroup`.

use crate::file::scan::cut;

/// The process's memory cgroup: the line of the `memory` controller (v1), else the `0::` line (v2).
///
/// The path is as the kernel prints it: relative to the reader's cgroup namespace (`/../x` lies outside it),
/// with ` (deleted)` after it if the group is gone (v2). Lines that are not `number:controllers:path` are
/// skipped.
pub fn memory_group(text: &[u8]) -> Option<String> {
    let mut unified = None;
    for line in text.split(|&b| b == b'\n') {
        let Some((controllers, path)) = cut(line, b':').and_then(|(_, rest)| cut(rest, b':')) else {
            continue;
        };
        if !path.starts_with(b"/") {
            continue;
        }
        if controllers.split(|&b| b == b',').any(|name| name == b"memory") {
            return Some(String::from_utf8_lossy(path).into_owned());
        }
        if controllers.is_empty() && line.starts_with(b"0:") {
            unified = Some(path);
        }
    }
    unified.map(|path| String::from_utf8_lossy(path).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_memory_controller_goes_before_the_unified_group() {
        let hybrid = b"9:name=systemd:/\n4:hugetlb,memory:/db/a:b\n1:cpu,cpuacct:/x\n0::/unified\n";
        assert_eq!(memory_group(hybrid).as_deref(), Some("/db/a:b"));
        let unified = b"0::/system.slice/postgresql.service\n";
        assert_eq!(memory_group(unified).as_deref(), Some("/system.slice/postgresql.service"));
        assert_eq!(memory_group(b"broken\n\n5:memoryx:/x\n1:cpu:/\n0::/late"), Some("/late".into()));
        assert_eq!(memory_group(b"4:memory:relative\n"), None);
        assert_eq!(memory_group(b""), None);
        assert_eq!(memory_group(b"0::/\xff\n").as_deref(), Some("/\u{fffd}"));
    }

    proptest! {
        #[test]
        fn finds_any_path(path in "/[^\n]{0,40}", memory in any::<bool>()) {
            let text = if memory { format!("3:cpu:/y\n2:memory:{path}\n0::/x") } else { format!("3:cpu:/y\n0::{path}\n") };
            prop_assert_eq!(memory_group(text.as_bytes()), Some(path));
        }

        #[test]
        fn survives_random_bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
            memory_group(&text);
        }
    }
}
