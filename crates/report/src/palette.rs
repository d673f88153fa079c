//! One colour per quantity, in every picture of the product.
//!
//! The hues are those of Okabe and Ito, which stay apart for colour-blind readers; light and dark pages take
//! their own lightness of each.

use anstyle::{AnsiColor, Color, RgbColor};
use lotsfree_doctor::{Severity, Use};

/// A colour on light and on dark ground, as `#rrggbb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tone {
    /// On light ground.
    pub(crate) light: &'static str,
    /// On dark ground.
    pub(crate) dark: &'static str,
}

/// The colour of a use of memory.
pub(crate) fn of_use(part: Use) -> Tone {
    let (light, dark) = match part {
        Use::Application => ("#0072b2", "#4ba3dd"),
        Use::Shared => ("#7a5195", "#b58fd0"),
        Use::Mapped => ("#5f6fb0", "#93a0d8"),
        Use::Cached => ("#3f9a8a", "#63c2b1"),
        Use::PageCache => ("#009e73", "#3cc79c"),
        Use::SwapCache => ("#66c2a5", "#8fdcc4"),
        Use::Compressed => ("#56b4e9", "#7cc8f2"),
        Use::PageTables => ("#d55e00", "#ff8a3d"),
        Use::Slab => ("#e69f00", "#ffc04d"),
        Use::Kernel => ("#b8860b", "#d9b451"),
        Use::HugeUsed => ("#cc79a7", "#e79cc6"),
        Use::HugeIdle => ("#efc4dc", "#7d4a66"),
        Use::Free => ("#dddddd", "#3a3f45"),
        Use::Other => ("#999999", "#8a8f95"),
        Use::Untold => ("#c4c4c4", "#5c6268"),
    };
    Tone { light, dark }
}

/// The colour of a rate over time, by its name in the series.
pub(crate) fn of_rate(name: &str) -> Tone {
    let (light, dark) = match name {
        "pages swapped in" => ("#56b4e9", "#7cc8f2"),
        "pages swapped out" => ("#0072b2", "#4ba3dd"),
        "pages scanned by kswapd" => ("#009e73", "#3cc79c"),
        "pages scanned by tasks" => ("#d55e00", "#ff8a3d"),
        "major faults" => ("#cc79a7", "#e79cc6"),
        _ => ("#e69f00", "#ffc04d"),
    };
    Tone { light, dark }
}

/// Quantities of a run's pictures that have no colour of their own elsewhere: class and colour. Lists have
/// the hue of what is on them, the inactive one paler.
pub(crate) const OF_RUNS: [(&str, Tone); 6] = [
    ("q-inactive-anon", Tone { light: "#7fb8dc", dark: "#2a668f" }),
    ("q-inactive-file", Tone { light: "#7fcfb4", dark: "#1f7257" }),
    ("q-page-in", Tone { light: "#b8860b", dark: "#d9b451" }),
    ("q-huge-reserved", Tone { light: "#dd9fc3", dark: "#a9678a" }),
    ("t-system", Tone { light: "#56b4e9", dark: "#7cc8f2" }),
    ("t-runnable", Tone { light: "#999999", dark: "#8a8f95" }),
];

/// Colours of programs that took memory, by their place among those that cost most. All are light enough on
/// either ground for dark text.
pub(crate) const TAKERS: [Tone; 5] = [
    Tone { light: "#d55e00", dark: "#ff8a3d" },
    Tone { light: "#009e73", dark: "#3cc79c" },
    Tone { light: "#cc79a7", dark: "#e79cc6" },
    Tone { light: "#e69f00", dark: "#ffc04d" },
    Tone { light: "#b58fd0", dark: "#b58fd0" },
];

/// All other programs together, and the one that paid: class and colour.
pub(crate) const OF_TAKERS: [(&str, Tone); 2] = [
    ("k-others", Tone { light: "#999999", dark: "#8a8f95" }),
    ("k-itself", Tone { light: "#56b4e9", dark: "#7cc8f2" }),
];

/// Colours of runs that share a picture.
pub(crate) const RUNS: usize = 8;

/// The colour of a run's line, by its place among the runs. The first, which the others are compared with, is
/// as dark as text.
pub(crate) fn of_run(index: usize) -> Tone {
    let (light, dark) = match index % RUNS {
        0 => ("#1b1f24", "#e4e7ea"),
        1 => ("#d55e00", "#ff8a3d"),
        2 => ("#0072b2", "#4ba3dd"),
        3 => ("#009e73", "#3cc79c"),
        4 => ("#cc79a7", "#e79cc6"),
        5 => ("#e69f00", "#ffc04d"),
        6 => ("#7a5195", "#b58fd0"),
        _ => ("#56b4e9", "#7cc8f2"),
    };
    Tone { light, dark }
}

/// The colour of a severity.
pub(crate) fn of_severity(severity: Severity) -> Tone {
    let (light, dark) = match severity {
        Severity::Critical => ("#b3261e", "#ff6f61"),
        Severity::High => ("#c75000", "#ff9a52"),
        Severity::Warning => ("#8f6b00", "#f0c44c"),
        Severity::Info => ("#1f6fa8", "#6db8ee"),
    };
    Tone { light, dark }
}

/// The terminal colour of a severity; one of the sixteen, so that the user's theme decides its shade.
pub(crate) fn ansi_severity(severity: Severity) -> Color {
    Color::Ansi(match severity {
        Severity::Critical => AnsiColor::BrightRed,
        Severity::High => AnsiColor::Red,
        Severity::Warning => AnsiColor::Yellow,
        Severity::Info => AnsiColor::Cyan,
    })
}

/// The terminal colour of a use of memory.
pub(crate) fn ansi_use(part: Use) -> Color {
    let hex = of_use(part).dark;
    let channel = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap_or(0x80);
    Color::Rgb(RgbColor(channel(1), channel(3), channel(5)))
}
