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
        Use::PageCache => ("#009e73", "#3cc79c"),
        Use::SwapCache => ("#66c2a5", "#8fdcc4"),
        Use::PageTables => ("#d55e00", "#ff8a3d"),
        Use::Slab => ("#e69f00", "#ffc04d"),
        Use::Kernel => ("#b8860b", "#d9b451"),
        Use::HugeUsed => ("#cc79a7", "#e79cc6"),
        Use::HugeIdle => ("#efc4dc", "#7d4a66"),
        Use::Free => ("#dddddd", "#3a3f45"),
        Use::Other => ("#999999", "#8a8f95"),
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
