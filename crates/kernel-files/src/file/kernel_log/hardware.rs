//! What the kernel log says of memory hardware: `Memory failure: …`, EDAC's counts, machine checks; and
//! rasdaemon in the same journal.

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
    /// An error at an address that `igen6_edac` reads from a register without contents.
    Void,
}

impl HardwareError {
    /// Reads a message of the kernel.
    pub fn of(message: &str) -> Option<HardwareError> {
        if let Some(rest) = message.strip_prefix("Memory failure: 0x") {
            let (_, rest) = rest.split_once(": recovery action for ")?;
            // A mail program may have wrapped the result away.
            let result = rest.rsplit_once(": ").map_or("", |(_, result)| result.trim());
            return Some(HardwareError::Taken { recovered: matches!(result, "Recovered" | "Delayed") });
        }
        if message.starts_with("mce: Uncorrected hardware memory error ") {
            return Some(HardwareError::Uncorrected(1));
        }
        // All ones below the bits of the address: ECC_ERROR_LOG of a controller without in-band ECC.
        if message.starts_with("EDAC igen6 MC") && message.ends_with(": ADDR 0x7fffffffe0") {
            return Some(HardwareError::Void);
        }
        if message.starts_with("Injecting memory failure for ") {
            return Some(HardwareError::Injected);
        }
        // `EDAC MC1: CE page 0xf075b2, offset 0x410, …, label "": amd64_edac` before 3.6.
        if let Some((_, rest)) = message.strip_prefix("EDAC MC")?.split_once(": ") {
            if rest.starts_with("CE page 0x") {
                return Some(HardwareError::Corrected(1));
            }
            if rest.starts_with("UE page 0x") {
                return Some(HardwareError::Uncorrected(1));
            }
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

impl HardwareError {
    /// Reads a line of mcelog's (`mcelog: Corrected memory errors on page …`) or rasdaemon's:
    /// `rasdaemon[918]:  Memory Error 'mem-tx: …`, `rasdaemon: mc_event: … 1 Corrected error: memory read
    /// error on …`.
    pub fn of_rasdaemon(line: &str) -> Option<HardwareError> {
        if let Some((_, rest)) = line.split_once("mcelog: ") {
            let uncorrected = rest.starts_with("Uncorrected memory error");
            return match rest.starts_with("Corrected memory error") {
                true => Some(HardwareError::Corrected(1)),
                false => uncorrected.then_some(HardwareError::Uncorrected(1)),
            };
        }
        let (_, rest) = line.split_once("rasdaemon")?;
        let event = rest.contains("mc_event:") && rest.contains("orrected error");
        if !event && !rest.contains(" Memory Error '") {
            return None;
        }
        let uncorrected = rest.contains("ncorrected");
        Some(if uncorrected { HardwareError::Uncorrected(1) } else { HardwareError::Corrected(1) })
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
            HardwareError::Void => f.write_str("EDAC igen6 MC0: ADDR 0x7fffffffe0"),
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
            (
                "EDAC MC1: CE page 0xf075b2, offset 0x410, grain 0, syndrome 0xa082, row 6, channel 0, label \"\": amd64_edac",
                HardwareError::Corrected(1),
            ),
            (
                "mce: Uncorrected hardware memory error in user-access at af34214200",
                HardwareError::Uncorrected(1),
            ),
            (
                "Memory failure: 0xaf34214: recovery action for reserved kernel",
                HardwareError::Taken { recovered: false },
            ),
            ("EDAC igen6 MC0: ADDR 0x7fffffffe0", HardwareError::Void),
        ] {
            assert_eq!(HardwareError::of(line), Some(error), "{line}");
            assert_eq!(HardwareError::of(&error.to_string()), Some(error), "{error}");
        }
        for (line, error) in [
            (
                "Feb 11 22:34:40 m rasdaemon[918]:  Memory Error 'mem-tx: generic read, tx: generic, level: L3/generic',",
                Some(HardwareError::Corrected(1)),
            ),
            (
                "rasdaemon: <...>-1 [001] 0.00 mc_event: 2024-01-01 1 Uncorrected error: memory read error on DIMM_A1",
                Some(HardwareError::Uncorrected(1)),
            ),
            ("rasdaemon[918]: mce_record: 2022-02-11 Corrected error, no action required.", None),
        ] {
            assert_eq!(HardwareError::of_rasdaemon(line), error, "{line}");
        }
        for line in ["EDAC MC: Ver: 3.0.0", "EDAC MC0: Giving out device", "Memory failure: none", ""] {
            assert_eq!(HardwareError::of(line), None, "{line}");
        }
    }
}
