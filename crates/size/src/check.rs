//! [`SizeError`], and the checks that keep nonsense out of the arithmetic.

use lotsfree_formulas::Rules;
use lotsfree_units::{Bytes, Grouped, PageSize, ParseBytesError};

/// Largest amount of memory accepted: 64 PiB, the largest user address space of a 64-bit kernel.
pub const MAX_MEMORY: Bytes = Bytes(1 << 56);
/// Largest number of processes accepted: `PID_MAX_LIMIT` of 64-bit kernels.
pub const MAX_PROCESSES: u64 = 4 << 20;
/// Largest number of NUMA nodes accepted: what kernels are built for at most.
pub const MAX_NODES: u32 = 1024;

/// Why a question cannot be answered: the input at fault, and what would be accepted.
///
/// Fields are named as in the input records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// An input that the question needs is absent.
    #[error("{field} is missing; give {accepted}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What to give.
        accepted: &'static str,
    },
    /// The host has no segments that a pool could be sized for.
    #[error(
        "there is no shared memory of a huge page or more: no System V segment is attached, and no database that \
         forks runs; start the instances, or give --segment, --postgres-pages, --postgres-vmpeak or --jvm"
    )]
    NothingAttached,
    /// The instance uses Automatic Memory Management, which has no segment that a pool could hold.
    #[error(
        "--amm: Automatic Memory Management (memory_target) keeps the SGA in files under /dev/shm, which cannot \
         use huge pages: a pool would lie idle beside it{files}. Set memory_target=0 and memory_max_target=0, and \
         sga_target and pga_aggregate_target instead; add use_large_pages=only, and restart the instance. Then: \
         {command}"
    )]
    Amm {
        /// The command that sizes the pool once AMM is off.
        command: String,
        /// The open files that each process needs as long as AMM stays; empty if no size is known.
        files: String,
    },
    /// An input is out of range.
    #[error("{field} is {value}; accepted is {accepted}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What was given.
        value: String,
        /// What is accepted.
        accepted: String,
    },
    /// Two inputs exclude each other.
    #[error("{first} and {second} cannot both be given; {accepted}")]
    Conflict {
        /// One field.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// Which to give when.
        accepted: &'static str,
    },
    /// Huge pages cannot be spread over the nodes.
    #[error("{nodes} NUMA nodes cannot share {pages} huge pages; accepted is at most one node per huge page")]
    MoreNodesThanPages {
        /// Nodes given.
        nodes: u32,
        /// Pages computed.
        pages: u64,
    },
    /// The pool does not fit.
    #[error(
        "it does not fit: the pool of {pool} leaves no memory on a host with {ram}; accepted is a pool smaller than \
         ram"
    )]
    PoolExceedsRam {
        /// The pool computed.
        pool: Bytes,
        /// `ram` as given.
        ram: Bytes,
    },
    /// A product exceeds 64 bits.
    #[error("{what} exceeds what 64 bits hold; accepted are smaller factors")]
    Overflow {
        /// What was computed.
        what: &'static str,
    },
}

/// Reads an amount of memory from the command line, where a number needs its unit: who writes `8` means GiB,
/// and would get bytes.
pub(crate) fn amount(text: &str) -> Result<Bytes, String> {
    let number = text.trim();
    let bare = number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    if !bare || number.trim_matches(['0', '.']).is_empty() {
        return text.parse().map_err(|error: ParseBytesError| error.to_string());
    }
    let bytes = match number.contains('.') {
        true => String::new(),
        false => format!(", or {number}B if bytes are meant"),
    };
    Err(format!("{number} has no unit; write one, as in 8GiB or 8388608kB{bytes}"))
}

/// An amount of memory that must exist: more than nothing, at most [`MAX_MEMORY`].
pub(crate) fn memory(field: &'static str, bytes: Bytes) -> Result<Bytes, SizeError> {
    if bytes == Bytes::ZERO {
        return Err(SizeError::OutOfRange {
            field,
            value: "0".into(),
            accepted: format!("an amount of memory from 1 byte to {MAX_MEMORY}, such as 8GiB"),
        });
    }
    memory_or_none(field, bytes)
}

/// The memory of the host, which most questions cannot do without.
pub(crate) fn ram(given: Option<Bytes>, sourced: bool) -> Result<Bytes, SizeError> {
    let accepted = match sourced {
        true => "it: the source does not tell MemTotal",
        false => "it, or --from-host to take it from this host",
    };
    let missing = SizeError::Missing { field: "--ram SIZE", accepted };
    memory("ram", given.ok_or(missing)?)
}

/// An amount of memory that may be zero, at most [`MAX_MEMORY`].
pub(crate) fn memory_or_none(field: &'static str, bytes: Bytes) -> Result<Bytes, SizeError> {
    if bytes > MAX_MEMORY {
        return Err(SizeError::OutOfRange {
            field,
            value: format!("{} bytes", Grouped(bytes.0)),
            accepted: format!("at most {MAX_MEMORY}"),
        });
    }
    Ok(bytes)
}

/// A number within bounds, both included.
pub(crate) fn number(field: &'static str, value: u64, least: u64, most: u64) -> Result<u64, SizeError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(SizeError::OutOfRange {
        field,
        value: Grouped(value).to_string(),
        accepted: format!("a number from {} to {}", Grouped(least), Grouped(most)),
    })
}

/// NUMA nodes, at least one; one if none are given.
pub(crate) fn nodes(given: Option<u32>) -> Result<u32, SizeError> {
    let value = given.unwrap_or(1);
    number("nodes", u64::from(value), 1, u64::from(MAX_NODES)).map(|_| value)
}

/// A base page size; 4 KiB if none is given.
pub(crate) fn page(field: &'static str, given: Option<Bytes>) -> Result<PageSize, SizeError> {
    let Some(bytes) = given else { return Ok(PageSize::X86) };
    PageSize::new(bytes.0).ok_or_else(|| SizeError::OutOfRange {
        field,
        value: format!("{} bytes", Grouped(bytes.0)),
        accepted: "a power of two from 4 KiB to 64 KiB".into(),
    })
}

/// A huge page size: a power of two above the base page, at most 16 GiB (the largest of any architecture);
/// that of a PMD if none is given.
pub(crate) fn huge_page(
    field: &'static str,
    given: Option<Bytes>,
    page: PageSize,
) -> Result<Bytes, SizeError> {
    let Some(bytes) = given else { return Ok(page.pmd_huge()) };
    if bytes.0.is_power_of_two() && bytes > page.bytes() && bytes <= Bytes::gib(16) {
        return Ok(bytes);
    }
    Err(SizeError::OutOfRange {
        field,
        value: format!("{} bytes", Grouped(bytes.0)),
        accepted: format!("a power of two above {} and up to 16 GiB, such as 2MiB or 1GiB", page.bytes()),
    })
}

/// The rules of a kernel, named by its release or by the record; the newest when nothing is given.
pub(crate) fn rules(kernel: Option<&str>) -> Result<Rules, SizeError> {
    let Some(text) = kernel else { return Ok(Rules::linux_6_12()) };
    Rules::named(text).or_else(|| Rules::of_release(text)).ok_or_else(|| {
        let names: Vec<&str> = Rules::ALL.iter().map(|rules| rules.name).collect();
        SizeError::OutOfRange {
            field: "kernel",
            value: format!("{text:?}"),
            accepted: format!(
                "a release as uname -r prints it (2.6.32 of RHEL 6, 3.0 or newer), or {}",
                names.join(", ")
            ),
        }
    })
}

/// A part that does not fit the rules read.
pub(crate) fn unread(rules: &Rules, accepted: &str) -> SizeError {
    SizeError::OutOfRange { field: "kernel", value: rules.name.to_owned(), accepted: accepted.to_owned() }
}

/// `bytes × n`, or an error.
pub(crate) fn times(what: &'static str, bytes: Bytes, n: u64) -> Result<Bytes, SizeError> {
    bytes.0.checked_mul(n).map(Bytes).ok_or(SizeError::Overflow { what })
}

/// A user or unit name that is safe in a file and in a path.
pub(crate) fn word(field: &'static str, text: &str) -> Result<(), SizeError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
    if !text.is_empty() && text.len() <= 255 && text.chars().all(good) {
        return Ok(());
    }
    Err(SizeError::OutOfRange {
        field,
        value: format!("{text:?}"),
        accepted: "a name of letters, digits and _ - . @".into(),
    })
}
