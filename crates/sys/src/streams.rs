//! Which of the three standard streams were open when the process began.
//!
//! Before `main`, Rust's runtime opens `/dev/null` in place of those that were not open, so output to them is
//! lost without an error. Later this cannot be told from a `/dev/null` that the caller meant, as `daemon(3)`
//! and Python open it in the same way. A function of `.init_array` therefore checks first.

use std::sync::atomic::{AtomicU8, Ordering};

/// A bit per descriptor that is open.
static OPEN: AtomicU8 = AtomicU8::new(0);

/// Called once by the C library, before Rust's runtime.
#[used]
// SAFETY: The C library calls each function in this section once, with the C calling convention, before
// `main` and in the only thread. The function needs nothing of Rust's runtime: it makes three system calls
// and sets an atomic.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for descriptor in 0..3 {
        // SAFETY: `F_GETFD` takes no pointer and changes nothing; a descriptor that is not open is an error.
        let open = unsafe { libc::fcntl(descriptor, libc::F_GETFD) } != -1;
        OPEN.fetch_or(u8::from(open) << descriptor, Ordering::Relaxed);
    }
}

/// Whether standard output was open when the process began.
pub fn stdout_was_open() -> bool {
    OPEN.load(Ordering::Relaxed) & 1 << 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_a_test_are_open() {
        assert!(stdout_was_open());
    }
}
