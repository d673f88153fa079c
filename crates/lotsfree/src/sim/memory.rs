//! Memory that the simulations of this process may take.

use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_kernel_files::counters::{Meminfo, Values, meminfo};

/// The share of the available memory that is used. The rest is for run directories in the page cache, for
/// tables while they are written, and for errors of the estimate.
const SHARE: f64 = 0.8;

/// Bytes that simulations may take: a share of `MemAvailable` or of the memory left by the limits of this
/// process's control groups (`memory.max`, version 2), whichever is less. Unbounded if neither is known.
pub(crate) fn available() -> u64 {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_host(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| of_groups(&text));
    let least = host.into_iter().chain(group).min();
    least.map_or(u64::MAX, |bytes| (bytes as f64 * SHARE) as u64)
}

/// `MemAvailable`; before 3.14, which lacks it, `MemFree` and `Cached`.
fn of_host(text: &str) -> Option<u64> {
    let values = Values::<Meminfo>::parse(text.as_bytes(), |_| ());
    let cached = || Some(values.get(meminfo::MemFree)?.saturating_add(values.get(meminfo::Cached)?));
    values.get(meminfo::MemAvailable).or_else(cached).map(|kib| kib.saturating_mul(1024))
}

/// The least memory left by the limit of any group from this process's own up to the root.
fn of_groups(text: &str) -> Option<u64> {
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let groups = root.join(own);
    groups.ancestors().take_while(|group| group.starts_with(root)).filter_map(left).min()
}

/// Memory left by the limit of one group; `None` if it has no limit. Inactive file pages, which reclaim takes
/// first, count as free.
fn left(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(PathBuf::from(group).join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit, current) = (number("memory.max")?, number("memory.current")?);
    let stat = read("memory.stat").unwrap_or_default();
    let inactive = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    Some(limit.saturating_sub(current.saturating_sub(inactive.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_what_the_kernel_says() {
        assert_eq!(of_host("MemFree: 10 kB\nMemAvailable:     2048 kB\n"), Some(2048 * 1024));
        assert_eq!(of_host("MemFree: 10 kB\nCached: 20 kB\n"), Some(30 * 1024));
        assert_eq!(of_host("nonsense"), None);
        assert_eq!(of_groups("4:memory:/a\n"), None);
    }

    #[test]
    fn a_group_leaves_its_limit_without_what_it_holds() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        write("memory.current", "700\n");
        assert_eq!(left(group.path()), None);
        write("memory.max", "max\n");
        assert_eq!(left(group.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(left(group.path()), Some(300));
        write("memory.stat", "anon 400\ninactive_file 250\n");
        assert_eq!(left(group.path()), Some(550));
        write("memory.current", "2000\n");
        assert_eq!(left(group.path()), Some(0));
    }
}
