//! Closed forms of the kernel's memory management and of vendors' sizing rules.
//!
//! Pure functions on plain numbers: nothing here reads a file, knows a host or compares versions. What
//! differs between kernels is a switch in a record ([`Rules`] and its parts); a formula tests the switch.
//!
//! Units are in the names: `_kib` is KiB (what `/proc` prints as `kB`), `_pages` is base pages, and an amount
//! without a suffix is [`Bytes`](lotsfree_units::Bytes). Divisions round down as the kernel's do, unless a
//! function says otherwise. Products are formed in 128 bits and saturate, so no input panics.

pub mod available;
pub mod dirty;
pub mod faults;
pub mod hugepages;
pub mod jvm;
pub mod lists;
pub mod memlock;
pub mod overcommit;
pub mod pagetables;
pub mod pcp;
pub mod protection;
pub mod reserve;
mod rules;
pub mod swap;
pub mod vendors;
pub mod watermarks;

pub use rules::Rules;

/// `a × b / c`, rounded down, without overflow on the way; saturates, and is 0 when `c` is 0.
pub(crate) const fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    if c == 0 {
        return 0;
    }
    let quotient = a as u128 * b as u128 / c as u128;
    if quotient > u64::MAX as u128 { u64::MAX } else { quotient as u64 }
}

/// `a × b / c`, rounded up; saturates, and is 0 when `c` is 0.
pub(crate) const fn mul_div_up(a: u64, b: u64, c: u64) -> u64 {
    if c == 0 {
        return 0;
    }
    let quotient = (a as u128 * b as u128).div_ceil(c as u128);
    if quotient > u64::MAX as u128 { u64::MAX } else { quotient as u64 }
}
