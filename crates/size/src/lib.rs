//! Sizing arithmetic, step by step: what to set, why that number, and where to write it.
//!
//! One input record, which is also the arguments of its command, and one function per topic; each returns an
//! [`Answer`] with every line of the arithmetic, the configuration lines, the commands for the running host,
//! and what is contradictory or commonly got wrong. Nothing here reads the host: the caller gives what it
//! knows of one as [`HostFigures`].
//!
//! ```
//! use lotsfree_size::{HugepagesInput, Value, hugepages};
//!
//! let segments = vec!["8GiB".parse().unwrap(), "1.5GiB".parse().unwrap()];
//! let answer = hugepages(&HugepagesInput { segments, ..HugepagesInput::default() })?;
//! assert_eq!(answer.result.value, Value::HugePages(4868));
//! # Ok::<(), lotsfree_size::SizeError>(())
//! ```

mod answer;
mod check;
mod fit;
mod hugepages;
mod ipcs;
mod kernel;
mod overcommit;
mod pagetables;
mod question;
mod swap;
mod watermarks;

pub use answer::{Answer, ConfigFile, Fit, Outcome, Step, Value};
pub use check::{MAX_MEMORY, MAX_NODES, MAX_PROCESSES, SizeError};
pub use fit::{HostMemory, HostPool, HostShared};
pub use hugepages::{HugepagesInput, Jvm, hugepages};
pub use ipcs::{IpcsError, Listed, ipcs};
pub use kernel::{KernelBy, nearest_rules, reckoned_for};
pub use overcommit::{CacheFigures, OvercommitInput, overcommit};
pub use pagetables::{PagetablesInput, pagetables};
pub use question::{HostFigures, Question};
pub use swap::{SwapInput, swap};
pub use watermarks::{WatermarksInput, watermarks};

pub use lotsfree_formulas::jvm::Collector;
pub use lotsfree_formulas::reserve::ReserveZone;
