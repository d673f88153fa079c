//! The privileges of an agent, and how it drops the others.
//!
//! An agent executes the operations of a scenario. On a host it runs as root, because the lab's files and
//! shared memory belong to root. Apart from `mlock` beyond the limit, none of its operations needs more than
//! to own them:
//!
//! | operation | needs |
//! |---|---|
//! | `mlock`, `mlockall` | `CAP_IPC_LOCK`, or `RLIMIT_MEMLOCK`, where the scenario sets it |
//! | `shmat`, huge pages or not | to own the segment; the lab has made it |
//! | files, `O_DIRECT`, `fadvise`, `madvise` | to own the files |
//! | `set_mempolicy`, its own CPUs, timer slack | nothing |
//! | a command of the scenario's: as another user, in a process namespace | `CAP_SETUID`, `CAP_SETGID`, `CAP_SYS_ADMIN`, and `CAP_KILL`, without which it would outlive the agent |
//! | `vm.nr_hugepages` | to be root, as the file belongs to root |
//! | `oom_score_adj`, control group | nothing: the lab writes them |
//!
//! An agent therefore calls [`gain_none`] first, opens the segments that the lab holds (`/proc/PID/fd`, which
//! only a process with at least the lab's capabilities may look into), and then gives up its capabilities
//! with [`keep`]. Commands have none of them, and a user of their own.

use std::io;

use lotsfree_workload::{Limit, Limits};
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// The group of those who are in none (`nogroup`).
const NOBODY: u32 = 65_534;

/// The capability that operations need.
pub(crate) const LOCK: CapabilitySet = CapabilitySet::IPC_LOCK;

/// The capabilities that commands need to be started, and to be killed with the agent.
pub(crate) const EXECUTE: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::KILL);

/// Ensures that this process can gain no further privilege, that no program that it executes has any, and
/// that it leaves no core dump.
///
/// # Errors
/// The kernel's.
pub(crate) fn gain_none() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    if maximum != Some(0) {
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    }
    for number in 0..u64::BITS {
        // This fails for a capability that the kernel does not know, and without CAP_SETPCAP, where there is
        // little to give up.
        let _ =
            rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number));
    }
    // Kernels before 4.3 have no ambient set.
    let _ = rustix::thread::clear_ambient_capability_set();
    Ok(())
}

/// Sets the limits of this process, soft and hard.
///
/// # Errors
/// The kernel's, without `CAP_SYS_RESOURCE` where a limit is to be raised.
pub(crate) fn limit(limits: &Limits) -> io::Result<()> {
    let Limits { memlock, address_space, data } = limits;
    for (resource, limit) in
        [(Resource::Memlock, memlock), (Resource::As, address_space), (Resource::Data, data)]
    {
        if let Some(limit) = limit {
            let bytes = limit.bytes().map(|bytes| bytes.0);
            setrlimit(resource, Rlimit { current: bytes, maximum: bytes })?;
        }
    }
    Ok(())
}

/// Calls `act` with this limit on locked memory, without `CAP_IPC_LOCK` and in no group. Capabilities and
/// groups belong to a thread, so it runs in one of its own; the limit belongs to the process, and is put
/// back.
///
/// # Errors
/// The kernel's, and those of `act`.
pub(crate) fn within_memlock<T: Send>(
    limit: Limit,
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let before = getrlimit(Resource::Memlock);
    let wanted = limit.bytes().map(|bytes| bytes.0);
    // What is unlimited is more than any number.
    let maximum = before.maximum.zip(wanted).map(|(hard, wanted)| hard.max(wanted));
    setrlimit(Resource::Memlock, Rlimit { current: wanted, maximum })?;
    let as_nobody = move || {
        let nobody = Gid::from_raw(NOBODY);
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(nobody, nobody, nobody)?;
        let sets = capabilities(None)?;
        set_capabilities(None, CapabilitySets { effective: sets.effective - LOCK, ..sets })?;
        act()
    };
    let done = std::thread::scope(|scope| scope.spawn(as_nobody).join());
    setrlimit(Resource::Memlock, before)?;
    done.unwrap_or_else(|_| Err(io::Error::other("a thread ended in a panic")))
}

/// Gives up all capabilities but those of `kept` that are held. Makes the process not dumpable, so that no
/// other user's process may inspect it and no core dump handler gets its memory. The process must have one
/// thread only: other threads would keep their capabilities.
///
/// # Errors
/// The kernel's.
pub(crate) fn keep(kept: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: held, permitted: held, inheritable })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
