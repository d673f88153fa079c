//! Ctrl-C: the first one asks the program to end, the second one ends it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Records signals that ask the program to end.
#[derive(Debug)]
pub(crate) struct Signals {
    /// Number of the signal that came, or 0.
    caught: Arc<AtomicUsize>,
}

impl Signals {
    /// Starts recording SIGINT and SIGTERM; the second of them ends the process at once.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub(crate) fn watch() -> io::Result<Self> {
        let armed = Arc::new(AtomicBool::new(false));
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first signal finds the shutdown not armed, and then arms it.
            flag::register_conditional_shutdown(signal, code(signal), Arc::clone(&armed))?;
            flag::register(signal, Arc::clone(&armed))?;
            flag::register_usize(signal, Arc::clone(&caught), signal.unsigned_abs() as usize)?;
        }
        Ok(Signals { caught })
    }

    /// Whether a signal has come.
    pub(crate) fn came(&self) -> bool {
        self.caught.load(Ordering::Relaxed) != 0
    }

    /// The exit code for the signal that came, if any: 128 plus its number, as in shells.
    pub(crate) fn code(&self) -> Option<u8> {
        let caught = self.caught.load(Ordering::Relaxed);
        u8::try_from(caught).ok().filter(|caught| *caught != 0).map(|caught| caught.saturating_add(128))
    }
}

fn code(signal: i32) -> i32 {
    128 + signal
}
