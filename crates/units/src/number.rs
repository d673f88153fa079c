//! Numbers as people read them.

use std::fmt;

/// A count with thousands separated by commas: `1,591,860`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut out = String::with_capacity(digits.len() + digits.len() / 3);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        f.pad(&out)
    }
}

/// A share (0 to 1) printed as a percentage with as many digits as it deserves: `9.7 %`, `59 %`, `0.04 %`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        let digits = match percent.abs() {
            p if p >= 10.0 || p == 0.0 => 0,
            p if p >= 0.095 => 1,
            _ => 2,
        };
        f.pad(&format!("{percent:.digits$} %"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_thousands() {
        assert_eq!(Grouped(0).to_string(), "0");
        assert_eq!(Grouped(999).to_string(), "999");
        assert_eq!(Grouped(12_023_792).to_string(), "12,023,792");
    }

    #[test]
    fn percentages_keep_the_digits_that_matter() {
        assert_eq!(Percent(0.0971).to_string(), "9.7 %");
        assert_eq!(Percent(0.594).to_string(), "59 %");
        assert_eq!(Percent(0.0004).to_string(), "0.04 %");
    }
}
