//! What an agent may do.
//!
//! An agent executes what a scenario says, on a host as root: files and shared memory of the lab are root's.
//! None of its operations needs more than being their owner, but for `mlock` beyond the limit:
//!
//! | operation | needs |
//! |---|---|
//! | `mlock`, `mlockall` | `CAP_IPC_LOCK`, or `RLIMIT_MEMLOCK` |
//! | `shmat`, huge pages or not | to own the segment; the lab has made it |
//! | files, `O_DIRECT`, `fadvise`, `madvise` | to own the files |
//! | `set_mempolicy`, its own CPUs, timer slack | nothing |
//! | `oom_score_adj`, control group | nothing: the lab writes them |
//!
//! So it begins with [`gain_none`], opens the segments that the lab holds (`/proc/PID/fd`, which only
//! somebody with as many capabilities as the lab may look into), and goes on with [`keep`] alone. An actor
//! that executes a program of the scenario's would besides need a user of its own, as QEMU has, and its files
//! given to that user.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What executing operations needs.
pub(crate) const LOCK: CapabilitySet = CapabilitySet::IPC_LOCK;

/// From here on nothing gives this process a privilege that it has not, and no program that it executes has
/// one; it leaves no core.
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
        // Fails for one that the kernel does not know, and without CAP_SETPCAP, when there is little to lose.
        let _ =
            rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number));
    }
    // Kernels before 4.3 have no such set.
    let _ = rustix::thread::clear_ambient_capability_set();
    Ok(())
}

/// Gives up all capabilities but these, as far as they are held; nobody else's process may look into this
/// one, and a handler of cores gets nothing of it. For a process with one thread: others would keep theirs.
///
/// # Errors
/// The kernel's.
pub(crate) fn keep(kept: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: held, permitted: held, inheritable })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
