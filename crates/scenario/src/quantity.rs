//! Quantities as a scenario writes them: `"10 MiB"`, `"200 ms"`, `"200 MiB/s"`.

use lotsfree_units::Bytes;

/// An amount of memory or of disk, such as `"10 MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub Bytes);

/// A time, in nanoseconds, such as `"200 ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// Bytes per second, such as `"200 MiB/s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bandwidth(pub Bytes);
