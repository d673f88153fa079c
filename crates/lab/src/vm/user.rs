//! The user that QEMU, or a command of a scenario, runs as when this process is root's.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use lotsfree_sys::User;
use rustix::thread::{CapabilitySet, capabilities};

/// The first user number that [systemd](https://systemd.io/UIDS-GIDS/) assigns to nobody: above those of
/// containers (up to 1 879 048 191) and far above those of users, services and `/etc/subuid`. The number of
/// this process, which is at most 2^22, is added to it, so that the machines of two processes run as two
/// users and neither can touch the other.
const FIRST: u32 = 1_879_048_192;
/// The number to use where a container does not map those: the last one below `nobody` that systemd leaves
/// unassigned.
const SMALL: u32 = 65_533;

/// The device of KVM.
pub(crate) const KVM: &str = "/dev/kvm";

/// The user that QEMU shall run as; `None`: that of this process, which is not root's or may not change its
/// user.
pub(crate) fn user(kvm: bool) -> Option<User> {
    let groups = if kvm { kvm_group().into_iter().collect() } else { Vec::new() };
    Some(User { groups, ..unassigned()? })
}

/// A user whom nothing belongs to; `None` if this process is not root's or may not change its user.
pub(crate) fn unassigned() -> Option<User> {
    let may = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let held = capabilities(None).ok()?.effective;
    if !rustix::process::geteuid().is_root() || !held.contains(may) {
        return None;
    }
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (users, groups) = (read("/proc/self/uid_map"), read("/proc/self/gid_map"));
    let number = choose(std::process::id(), &users, &groups)?;
    Some(User { user: number, group: number, groups: Vec::new() })
}

fn choose(process: u32, users: &str, groups: &str) -> Option<u32> {
    let numbers = [FIRST + (process & 0x3f_ffff), SMALL];
    numbers.into_iter().find(|number| maps(users, *number) && maps(groups, *number))
}

/// Whether a user namespace maps this number. Each line of `map` has the first number inside, the first
/// outside, and their count.
fn maps(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, count) = (words.next().unwrap_or(0), words.nth(1).unwrap_or(0));
        (first..first + count).contains(&u64::from(number))
    })
}

/// The group that may open KVM; `None` if everybody may, or only root.
fn kvm_group() -> Option<u32> {
    let metadata = fs::metadata(KVM).ok()?;
    (metadata.mode() & 0o006 != 0o006 && metadata.mode() & 0o060 == 0o060 && metadata.gid() != 0)
        .then(|| metadata.gid())
}

/// The reason why QEMU could not open KVM although this process can: the user that QEMU runs as may not.
pub(crate) fn no_kvm() -> Option<String> {
    let metadata = fs::metadata(KVM).ok()?;
    let everybody = metadata.mode() & 0o006 == 0o006;
    (user(true).is_some() && !everybody && kvm_group().is_none()).then(|| {
        format!(
            "{KVM}: only root may open it, and QEMU does not run as root; give it to a group: \
             chgrp kvm {KVM} && chmod 660 {KVM}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_user_of_its_own_where_there_are_numbers() {
        let all = "         0          0 4294967295\n";
        assert_eq!(choose(7, all, all), Some(1_879_048_199));
        assert_eq!(choose(1 << 22, all, all), Some(FIRST));
        let container = "0 100000 65536\n";
        assert_eq!(choose(7, container, all), Some(SMALL));
        assert_eq!(choose(7, container, container), Some(SMALL));
        let rootless = "0 1000 1\n1 100000 1000\n";
        assert_eq!(choose(7, rootless, rootless), None);
        assert_eq!(choose(7, "", ""), None);
    }

    #[test]
    fn only_root_changes_its_user() {
        let user = user(false);
        assert!(user.is_none() || rustix::process::geteuid().is_root());
        assert!(user.is_none_or(|user| user.groups.is_empty() && user.user != 0 && user.user != 65_534));
    }
}
