//! Memory policies.

use std::io;

/// The nodes from which a thread gets memory (`set_mempolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `MPOL_DEFAULT`
    Default,
    /// `MPOL_PREFERRED`
    Preferred(u32),
    /// `MPOL_BIND`
    Bind(Vec<u32>),
    /// `MPOL_INTERLEAVE`
    Interleave(Vec<u32>),
}

/// The most nodes that the mask holds.
const NODES: usize = 1024;
const BITS: usize = u64::BITS as usize;

/// Sets the policy of the calling thread, and of the threads and processes that it starts.
///
/// # Errors
/// The kernel's: `EINVAL` for a node that does not exist, `ENOSYS` without NUMA.
pub fn set_policy(policy: &Policy) -> io::Result<()> {
    let (mode, nodes): (_, &[u32]) = match policy {
        Policy::Default => (libc::MPOL_DEFAULT, &[]),
        Policy::Preferred(node) => (libc::MPOL_PREFERRED, std::slice::from_ref(node)),
        Policy::Bind(nodes) => (libc::MPOL_BIND, nodes),
        Policy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes),
    };
    let mut mask = [0_u64; NODES / BITS];
    for &node in nodes {
        let word = mask.get_mut(node as usize / BITS).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node as usize % BITS);
    }
    // The kernel uses one bit less than it is told.
    let (pointer, bits) = if nodes.is_empty() { (std::ptr::null(), 0) } else { (mask.as_ptr(), NODES + 1) };
    // SAFETY: the mask has the bits that the kernel is told of and lives until the call returns.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_is_always_there() {
        set_policy(&Policy::Bind(vec![0])).unwrap();
        set_policy(&Policy::Default).unwrap();
        assert!(set_policy(&Policy::Preferred(5000)).is_err());
    }
}
