//! Virtual machines in QEMU: a kernel, an initramfs that is made here, and the machine around them.

pub mod error;
pub mod initramfs;
pub mod modules;
pub mod packages;
pub mod qemu;
pub mod tool;

pub use error::Error;
pub use initramfs::Initramfs;
pub use packages::Packages;
pub use qemu::Qemu;
