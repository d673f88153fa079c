//! Words around numbers and lists of names.

use crate::Grouped;

/// `1 finding`, `2 findings`.
pub fn plural(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `1 fault`, `1,207 faults`.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", Grouped(n), if n == 1 { "" } else { "s" })
}

/// `1 s`, `90 s`, `48 h`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 2.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 120.0 => format!("{:.1} min", s / 60.0),
        s if s >= 10.0 || s == s.trunc() => format!("{s:.0} s"),
        s => format!("{s:.1} s"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub fn enumeration(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
