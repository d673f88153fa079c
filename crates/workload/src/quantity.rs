//! Quantities as a scenario writes them: `"10 MiB"`, `"200 ms"`, `"200 MiB/s"`.
//!
//! All three parse from text, print what parses to the same value (exactly, in the largest unit that needs no
//! fraction), and are strings in TOML and JSON.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use lotsfree_units::{Bytes, GIB, KIB, MIB, TIB};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An amount of memory or of disk, such as `"10 MiB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub Bytes);

/// A time, in nanoseconds, such as `"200 ms"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// Bytes per second, such as `"200 MiB/s"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(pub Bytes);

impl Size {
    /// From KiB, saturating.
    pub const fn kib(n: u64) -> Size {
        Size(Bytes::kib(n))
    }

    /// From MiB, saturating.
    pub const fn mib(n: u64) -> Size {
        Size(Bytes::mib(n))
    }

    /// From GiB, saturating.
    pub const fn gib(n: u64) -> Size {
        Size(Bytes::gib(n))
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0.0
    }

    /// Base pages of 4 KiB that hold it: rounded up.
    pub const fn pages(self) -> u64 {
        self.0.0.div_ceil(4 * KIB)
    }
}

impl Time {
    /// From microseconds, saturating.
    pub const fn us(n: u64) -> Time {
        Time(n.saturating_mul(MICROSECOND))
    }

    /// From milliseconds, saturating.
    pub const fn ms(n: u64) -> Time {
        Time(n.saturating_mul(MILLISECOND))
    }

    /// From seconds, saturating.
    pub const fn s(n: u64) -> Time {
        Time(n.saturating_mul(SECOND))
    }

    /// In nanoseconds.
    pub const fn ns(self) -> u64 {
        self.0
    }
}

impl Bandwidth {
    /// From MiB per second, saturating.
    pub const fn mib(n: u64) -> Bandwidth {
        Bandwidth(Bytes::mib(n))
    }

    /// In bytes per second.
    pub const fn bytes(self) -> u64 {
        self.0.0
    }
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// Units of a quantity: the names that are read, without regard to case, the first of which is printed, and
/// how much one is. Largest first.
type Units = &'static [(&'static [&'static str], u64)];

const SIZES: Units = &[
    (&["TiB", "T", "TB"], TIB),
    (&["GiB", "G", "GB"], GIB),
    (&["MiB", "M", "MB"], MIB),
    (&["KiB", "K", "KB"], KIB),
    (&["B"], 1),
];

const RATES: Units = &[
    (&["TiB/s", "T/s", "TB/s"], TIB),
    (&["GiB/s", "G/s", "GB/s"], GIB),
    (&["MiB/s", "M/s", "MB/s"], MIB),
    (&["KiB/s", "K/s", "KB/s"], KIB),
    (&["B/s"], 1),
];

const TIMES: Units = &[
    (&["d"], 86_400 * SECOND),
    (&["h"], 3_600 * SECOND),
    (&["min"], 60 * SECOND),
    (&["s"], SECOND),
    (&["ms"], MILLISECOND),
    (&["us", "µs", "μs"], MICROSECOND),
    (&["ns"], 1),
];

/// What kind of quantity a text was meant to be, for its errors.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    /// With its article.
    name: &'static str,
    units: Units,
    /// How it is written, as part of an error.
    hint: &'static str,
    /// How it is written, as a JSON Schema's pattern.
    pattern: &'static str,
    about: &'static str,
}

static SIZE: &Kind = &Kind {
    name: "a size",
    units: SIZES,
    hint: "a number with B, KiB, MiB, GiB or TiB in quotes, such as \"10 MiB\"",
    pattern: r"^\s*(0|[0-9]+(\.[0-9]+)?\s*([KMGTkmgt]([Ii]?[Bb])?|[Bb]))\s*$",
    about: "An amount of memory or of disk: a number with B, KiB, MiB, GiB or TiB, such as \"10 MiB\". K, KB, M, \
            MB, … mean the same powers of 1024. Only 0 needs no unit.",
};

static TIME: &Kind = &Kind {
    name: "a time",
    units: TIMES,
    hint: "a number with ns, us, ms, s, min, h or d in quotes, such as \"200 ms\"",
    pattern: r"^\s*(0|[0-9]+(\.[0-9]+)?\s*([NnUuMmµμ]?[Ss]|[Mm][Ii][Nn]|[Hh]|[Dd]))\s*$",
    about: "A time: a number with ns, us, ms, s, min, h or d, such as \"200 ms\". Only 0 needs no unit.",
};

static RATE: &Kind = &Kind {
    name: "a bandwidth",
    units: RATES,
    hint: "a number with B/s, KiB/s, MiB/s, GiB/s or TiB/s in quotes, such as \"200 MiB/s\"",
    pattern: r"^\s*(0|[0-9]+(\.[0-9]+)?\s*([KMGTkmgt]([Ii]?[Bb])?|[Bb])/[Ss])\s*$",
    about: "Bytes per second: a number with B/s, KiB/s, MiB/s, GiB/s or TiB/s, such as \"200 MiB/s\". Only 0 \
            needs no unit.",
};

/// Why a text is not the quantity that it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
    kind: &'static Kind,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Negative,
    NoNumber,
    NoUnit,
    UnknownUnit(String),
    TooLarge,
    TooPrecise,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}: ", self.text, self.kind.name)?;
        match &self.fault {
            Fault::Negative => write!(f, "it is negative"),
            Fault::NoNumber => write!(f, "it does not begin with a number"),
            Fault::NoUnit => write!(f, "it has no unit"),
            Fault::UnknownUnit(unit) => write!(f, "{unit:?} is not a unit"),
            Fault::TooLarge => write!(f, "it is too large"),
            Fault::TooPrecise => write!(f, "it has more than 9 decimals"),
        }?;
        write!(f, "; write {}", self.kind.hint)
    }
}

impl std::error::Error for QuantityError {}

/// Decimals that a number may have: below a nanosecond in seconds there is nothing to say.
const DECIMALS: usize = 9;

/// Reads a decimal number and a unit; what is below one byte or nanosecond is rounded to the nearest.
fn parse(text: &str, kind: &'static Kind) -> Result<u64, QuantityError> {
    let error = |fault| QuantityError { text: text.chars().take(60).collect::<String>(), kind, fault };
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err(error(Fault::Negative));
    }
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let (whole, decimals) = match number.split_once('.') {
        None => (number, ""),
        Some((_, "")) => return Err(error(Fault::NoNumber)),
        Some(parts) => parts,
    };
    if whole.is_empty() || decimals.contains('.') {
        return Err(error(Fault::NoNumber));
    }
    if decimals.len() > DECIMALS {
        return Err(error(Fault::TooPrecise));
    }
    let whole: u64 = whole.parse().map_err(|_| error(Fault::TooLarge))?;
    let fraction: u64 = if decimals.is_empty() { 0 } else { decimals.parse().unwrap_or_default() };
    let unit = unit.trim();
    if unit.is_empty() {
        return if whole == 0 && fraction == 0 { Ok(0) } else { Err(error(Fault::NoUnit)) };
    }
    let factor = kind
        .units
        .iter()
        .find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(unit)))
        .map(|(_, factor)| *factor)
        .ok_or_else(|| error(Fault::UnknownUnit(unit.chars().take(20).collect())))?;
    let scale = 10_u128.pow(u32::try_from(decimals.len()).unwrap_or_default());
    // What is bounded here is below 2¹²⁸ after it is scaled by up to 10⁹.
    if u128::from(whole) * u128::from(factor) > i64::MAX as u128 {
        return Err(error(Fault::TooLarge));
    }
    let scaled = (u128::from(whole) * scale + u128::from(fraction)) * u128::from(factor);
    // TOML has 64-bit signed integers; nothing real needs the last bit.
    let value = (scaled + scale / 2) / scale;
    if value > i64::MAX as u128 {
        return Err(error(Fault::TooLarge));
    }
    u64::try_from(value).map_err(|_| error(Fault::TooLarge))
}

/// Prints exactly, in the largest unit that needs no fraction.
fn print(value: u64, units: Units, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fitting = units.iter().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    match fitting {
        Some((names, factor)) => f.pad(&format!("{} {}", value / factor, names.first().unwrap_or(&""))),
        None => f.pad("0"),
    }
}

/// Reads a quantity from a string, and says how to write it when it gets something else.
struct Reader(&'static Kind);

impl de::Visitor<'_> for Reader {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.hint)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse(text, self.0).map_err(E::custom)
    }
}

macro_rules! quantity {
    ($type:ident, $kind:expr, $make:expr, $get:expr) => {
        impl FromStr for $type {
            type Err = QuantityError;

            /// Reads a number with a unit; only 0 needs none.
            fn from_str(text: &str) -> Result<Self, QuantityError> {
                parse(text, $kind).map($make)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print($get(self), $kind.units, f)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Reader($kind)).map($make)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $kind.pattern, "description": $kind.about })
            }
        }
    };
}

quantity!(Size, SIZE, |bytes| Size(Bytes(bytes)), |size: &Size| size.0.0);
quantity!(Time, TIME, Time, |time: &Time| time.0);
quantity!(Bandwidth, RATE, |bytes| Bandwidth(Bytes(bytes)), |rate: &Bandwidth| rate.0.0);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, size) in [
            ("10 MiB", Size::mib(10)),
            ("10MiB", Size::mib(10)),
            (" 1.5 G ", Size::mib(1536)),
            ("512m", Size::mib(512)),
            ("0", Size(Bytes(0))),
            ("4096 B", Size(Bytes(4096))),
            ("0.1 KiB", Size(Bytes(102))),
        ] {
            assert_eq!(text.parse(), Ok(size), "{text}");
        }
        for (text, time) in [
            ("200 ms", Time::ms(200)),
            ("0.5 s", Time::ms(500)),
            ("100 µs", Time::us(100)),
            ("2 min", Time::s(120)),
            ("1 d", Time::s(86_400)),
            ("7ns", Time(7)),
        ] {
            assert_eq!(text.parse(), Ok(time), "{text}");
        }
        assert_eq!("200 MiB/s".parse(), Ok(Bandwidth::mib(200)));
    }

    #[test]
    fn says_what_is_wrong_and_what_would_do() {
        let size = "; write a number with B, KiB, MiB, GiB or TiB in quotes, such as \"10 MiB\"";
        for (text, fault) in [
            ("-1 GiB", "it is negative"),
            ("GiB", "it does not begin with a number"),
            ("", "it does not begin with a number"),
            ("1. GiB", "it does not begin with a number"),
            ("1.2.3 GiB", "it does not begin with a number"),
            (".5 GiB", "it does not begin with a number"),
            ("512", "it has no unit"),
            ("5 parsecs", "\"parsecs\" is not a unit"),
            ("1e9 B", "\"e9 B\" is not a unit"),
            ("99999999999999999999 B", "it is too large"),
            ("8388608 TiB", "it is too large"),
            ("0.1234567890 GiB", "it has more than 9 decimals"),
        ] {
            let error = text.parse::<Size>().unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is not a size: {fault}{size}"));
        }
        assert_eq!(
            "10 m".parse::<Time>().unwrap_err().to_string(),
            "\"10 m\" is not a time: \"m\" is not a unit; write a number with ns, us, ms, s, min, h or d in quotes, \
             such as \"200 ms\""
        );
        assert_eq!(
            "10 MiB".parse::<Bandwidth>().unwrap_err().to_string(),
            "\"10 MiB\" is not a bandwidth: \"MiB\" is not a unit; write a number with B/s, KiB/s, MiB/s, GiB/s or \
             TiB/s in quotes, such as \"200 MiB/s\""
        );
    }

    proptest! {
        #[test]
        fn prints_what_reads_back(value in 0..=i64::MAX as u64) {
            prop_assert_eq!(Size(Bytes(value)).to_string().parse(), Ok(Size(Bytes(value))));
            prop_assert_eq!(Time(value).to_string().parse(), Ok(Time(value)));
            prop_assert_eq!(Bandwidth(Bytes(value)).to_string().parse(), Ok(Bandwidth(Bytes(value))));
        }

        #[test]
        fn reading_large_numbers_never_panics(whole: u64, decimals in "[0-9]{0,9}") {
            for unit in ["TiB", "d", "TiB/s"] {
                let text = format!("{whole}.{decimals} {unit}");
                let _ = text.parse::<Size>();
                let _ = text.parse::<Time>();
                let _ = text.parse::<Bandwidth>();
            }
        }

        #[test]
        fn reading_never_panics(text in "\\PC*") {
            let _ = text.parse::<Size>();
            let _ = text.parse::<Time>();
            let _ = text.parse::<Bandwidth>();
        }

        #[test]
        fn reading_never_panics_on_numbers(text in "-?[0-9]{0,24}\\.?[0-9]{0,12} ?(Ti?B(/s)?|d|h|ns)?") {
            let _ = text.parse::<Size>();
            let _ = text.parse::<Time>();
            let _ = text.parse::<Bandwidth>();
        }
    }
}
