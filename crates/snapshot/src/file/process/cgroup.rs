//! `/proc/PID/cgroup`.

/// The process's memory cgroup: the line of the `memory` controller (v1), else the `0::` line (v2).
pub fn memory_group(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let mut unified = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.split(',').any(|name| name == "memory") {
            return Some(path.to_owned());
        }
        if controllers.is_empty() {
            unified = Some(path.to_owned());
        }
    }
    unified
}
