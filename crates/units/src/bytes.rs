//! [`Bytes`]: an amount of memory.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{GIB, KIB, MIB, TIB};

/// An amount of memory in bytes.
///
/// `Display` prints three significant digits with an IEC unit (`9.77 GiB`); `{:#}` prints the kernel's
/// grouped KiB (`1,591,860 kB`). Arithmetic saturates: figures come from files that may be nonsense, and a
/// wrapped subtraction would turn a small error into exabytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No memory.
    pub const ZERO: Bytes = Bytes(0);

    /// From KiB, the unit of `/proc/meminfo`.
    pub const fn kib(kib: u64) -> Self {
        Bytes(kib.saturating_mul(KIB))
    }

    /// From MiB.
    pub const fn mib(mib: u64) -> Self {
        Bytes(mib.saturating_mul(MIB))
    }

    /// From GiB.
    pub const fn gib(gib: u64) -> Self {
        Bytes(gib.saturating_mul(GIB))
    }

    /// In whole KiB, rounded down.
    pub const fn as_kib(self) -> u64 {
        self.0 / KIB
    }

    /// The quantity as a floating-point number of bytes.
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// The share that `self` is of `whole`; 0 when `whole` is empty.
    pub fn share_of(self, whole: Bytes) -> f64 {
        if whole.0 == 0 { 0.0 } else { self.as_f64() / whole.as_f64() }
    }

    /// `self × factor`, saturating; a negative or non-finite factor gives zero.
    pub fn scale(self, factor: f64) -> Bytes {
        Bytes((self.as_f64() * factor) as u64)
    }

    /// `self × n`, saturating.
    pub const fn times(self, n: u64) -> Bytes {
        Bytes(self.0.saturating_mul(n))
    }

    /// How many units of `size` are needed to hold `self`, rounded up; 0 when `size` is empty.
    pub const fn units_of(self, size: Bytes) -> u64 {
        if size.0 == 0 { 0 } else { self.0.div_ceil(size.0) }
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.pad(&format!("{} kB", crate::Grouped(self.as_kib())));
        }
        let (unit, name) = match self.0 {
            n if n >= TIB => (TIB, "TiB"),
            n if n >= GIB => (GIB, "GiB"),
            n if n >= MIB => (MIB, "MiB"),
            n if n >= KIB => (KIB, "KiB"),
            n => return f.pad(&format!("{n} B")),
        };
        let value = self.0 as f64 / unit as f64;
        let digits = match value {
            v if v == v.trunc() || v >= 100.0 => 0,
            v if v >= 10.0 => 1,
            _ => 2,
        };
        f.pad(&format!("{value:.digits$} {name}"))
    }
}

/// Why a text is not an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError {
    text: String,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not an amount of memory; write a number with B, KiB, MiB, GiB or TiB (K, M, G, T and kB, MB, GB \
             mean the same powers of 1024), such as \"1.5 GiB\" or \"512M\"",
            self.text
        )
    }
}

impl std::error::Error for ParseBytesError {}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// Parses `8GiB`, `1.5 G`, `512m`, `4096`, `1591860 kB`. Units are powers of 1024, as the kernel, Oracle
    /// and every article about memory sizes use them; a bare number is bytes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseBytesError { text: text.to_owned() };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => KIB,
            "m" | "mb" | "mib" => MIB,
            "g" | "gb" | "gib" => GIB,
            "t" | "tb" | "tib" => TIB,
            _ => return Err(error()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit).map(Bytes).ok_or_else(error);
        }
        let value: f64 = number.parse().map_err(|_| error())?;
        let bytes = value * unit as f64;
        if bytes.is_finite() && bytes < u64::MAX as f64 {
            Ok(Bytes(bytes.round() as u64))
        } else {
            Err(error())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_three_digits_or_the_kernels_kilobytes() {
        assert_eq!(Bytes::kib(1_591_860).to_string(), "1.52 GiB");
        assert_eq!(format!("{:#}", Bytes::kib(1_591_860)), "1,591,860 kB");
        assert_eq!(Bytes::gib(16).to_string(), "16 GiB");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
    }

    #[test]
    fn parses_what_people_write() {
        for (text, bytes) in [
            ("8GiB", Bytes::gib(8)),
            ("1.5 G", Bytes::mib(1536)),
            ("512m", Bytes::mib(512)),
            ("4096", Bytes(4096)),
            ("1591860 kB", Bytes::kib(1_591_860)),
            ("2T", Bytes(2 * TIB)),
        ] {
            assert_eq!(text.parse(), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "1..5G", "5 parsecs", "99999999999999999999", "1e9", "NaN", "20000000T"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Bytes(1) - Bytes(2), Bytes::ZERO);
        assert_eq!(Bytes(u64::MAX) + Bytes(1), Bytes(u64::MAX));
        assert_eq!(Bytes::gib(1).share_of(Bytes::ZERO), 0.0);
    }
}
