//! What the kernel log says of memory hardware: `Memory failure: …` and EDAC's counts.

use std::fmt;

use serde::Serialize;

use super::super::scan::{decimal, leading_digits};

/// One line on memory hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HardwareError {
    /// A page was taken out of use (`mm/memory-failure.c:action_result`), and whether what used it went on.
    Taken {
        /// `Recovered` or `Delayed`, not `Failed` or `Ignored`.
        recovered: bool,
    },
    /// Somebody injected an error (`mm/madvise.c:madvise_inject_error`, `hwpoison-inject`).
    Injected,
    /// Errors that EDAC reports as corrected (`drivers/edac/edac_mc.c:edac_ce_error`).
    Corrected(u32),
    /// Errors that EDAC reports as uncorrected.
    Uncorrected(u32),
}

impl HardwareError {
    /// Reads a message of the kernel.
    pub fn of(message: &str) -> Option<HardwareError> {
        if let Some(rest) = message.strip_prefix("Memory failure: 0x") {
            let (_, rest) = rest.split_once(": recovery action for ")?;
            let (_, result) = rest.rsplit_once(": ")?;
            return Some(HardwareError::Taken {
                recovered: matches!(result.trim(), "Recovered" | "Delayed"),
            });
        }
        if message.starts_with("Injecting memory failure for ") {
            return Some(HardwareError::Injected);
        }
        // `EDAC MC0: 1 CE memory read error on CPU_SrcID#0_…`
        let (controller, rest) = message.strip_prefix("EDAC MC")?.split_once(": ")?;
        let (count, kind) = leading_digits(rest.as_bytes());
        let count = decimal(count).and_then(|count| u32::try_from(count).ok())?;
        let numbered = controller.bytes().all(|b| b.is_ascii_digit());
        match kind {
            kind if numbered && kind.starts_with(b" CE ") => Some(HardwareError::Corrected(count)),
            kind if numbered && kind.starts_with(b" UE ") => Some(HardwareError::Uncorrected(count)),
            _ => None,
        }
    }
}

/// As the kernel prints it, without addresses and names of modules.
impl fmt::Display for HardwareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HardwareError::Taken { recovered } => {
                let result = if *recovered { "Recovered" } else { "Failed" };
                write!(f, "Memory failure: 0x0: recovery action for a page: {result}")
            }
            HardwareError::Injected => f.write_str("Injecting memory failure for pfn 0x0"),
            HardwareError::Corrected(count) => write!(f, "EDAC MC0: {count} CE memory error"),
            HardwareError::Uncorrected(count) => write!(f, "EDAC MC0: {count} UE memory error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_on_hardware_read_back() {
        for (line, error) in [
            (
                "Memory failure: 0x17d70a: recovery action for clean LRU page: Recovered",
                HardwareError::Taken { recovered: true },
            ),
            (
                "Memory failure: 0x17d70a: recovery action for dirty LRU page: Failed",
                HardwareError::Taken { recovered: false },
            ),
            (
                "Injecting memory failure for pfn 0x17d70a at process virtual address 0x7f6f1d5ed000",
                HardwareError::Injected,
            ),
            (
                "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)",
                HardwareError::Corrected(1),
            ),
            ("EDAC MC1: 2 UE memory scrubbing error on any memory", HardwareError::Uncorrected(2)),
        ] {
            assert_eq!(HardwareError::of(line), Some(error), "{line}");
            assert_eq!(HardwareError::of(&error.to_string()), Some(error), "{error}");
        }
        for line in ["EDAC MC: Ver: 3.0.0", "EDAC MC0: Giving out device", "Memory failure: none", ""] {
            assert_eq!(HardwareError::of(line), None, "{line}");
        }
    }
}
