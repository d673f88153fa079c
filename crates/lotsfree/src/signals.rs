//! Ctrl-C: the first asks for an end, the second is one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Signals that ask for an end.
#[derive(Debug)]
pub(crate) struct Signals {
    /// The signal that came, or 0.
    caught: Arc<AtomicUsize>,
}

impl Signals {
    /// From here on SIGINT and SIGTERM are noted; the second of them ends the process at once.
    ///
    /// # Errors
    /// If the system has no place for handlers.
    pub(crate) fn watch() -> io::Result<Self> {
        let armed = Arc::new(AtomicBool::new(false));
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds nothing armed, and arms.
            flag::register_conditional_shutdown(signal, code(signal), Arc::clone(&armed))?;
            flag::register(signal, Arc::clone(&armed))?;
            flag::register_usize(signal, Arc::clone(&caught), signal.unsigned_abs() as usize)?;
        }
        Ok(Signals { caught })
    }

    /// Whether a signal came.
    pub(crate) fn came(&self) -> bool {
        self.caught.load(Ordering::Relaxed) != 0
    }

    /// The exit code that says which, if one came: 128 and the number of the signal, as shells have it.
    pub(crate) fn code(&self) -> Option<u8> {
        let caught = self.caught.load(Ordering::Relaxed);
        u8::try_from(caught).ok().filter(|caught| *caught != 0).map(|caught| caught.saturating_add(128))
    }
}

fn code(signal: i32) -> i32 {
    128 + signal
}
