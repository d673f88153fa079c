//! Virtual machines in QEMU: a kernel, an initramfs that is made here, and the machine around them.
//!
//! [`Kernel::find`] finds the kernel to boot. [`Guest`] is the machine of a scenario's case, with a program
//! as its first process. [`Running`] is that machine while it runs, with a stream of bytes to and from the
//! program.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let case: lotsfree_scenario::Case = unimplemented!();
//! use std::io::Read;
//! use std::time::Duration;
//!
//! use lotsfree_lab::vm::{Guest, Kernel};
//!
//! let kernel = Kernel::find(case.machine.generation.name())?;
//! let mut guest = Guest::new(&case, kernel, "target/release/lotsfree".into())?;
//! guest.arguments = vec!["agent".to_owned()];
//! let running = guest.start(Duration::from_secs(300))?;
//! let mut data = Vec::new();
//! running.data().read_to_end(&mut data)?;
//! let ended = running.wait()?;
//! # Ok(())
//! # }
//! ```

mod accelerator;
mod channel;
mod command;
mod disk;
mod elf;
mod error;
mod guest;
mod image;
pub mod initramfs;
pub mod kernel;
mod mbr;
pub mod modules;
mod monitor;
pub mod packages;
pub mod qemu;
mod running;
mod scratch;
pub mod store;
pub mod tool;
mod trust;
pub(crate) mod user;
pub mod vmlinux;

pub use accelerator::Accelerator;
pub use disk::{Disk, Throttle};
pub use elf::read_static;
pub use error::Error;
pub use guest::Guest;
pub use initramfs::Initramfs;
pub use kernel::Kernel;
pub use packages::Packages;
pub use qemu::Qemu;
pub use running::{Ended, Facts, Running};
