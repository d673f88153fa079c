//! [`Channel`]: carries data between the guest and this process.

use super::modules::Loader;

/// The device over which the guest and this process exchange data.
///
/// Measured with software emulation on a busy host of two CPUs, in pieces of 4 KiB: 37 MiB/s through virtio,
/// 0.2 to 0.3 MiB/s through the serial port, where for every byte the emulator leaves its translated code.
/// With virtio, the guest also learns when this process is gone: reading ends. On the other hand, each write
/// allocates its size in the guest's kernel, so small writes disturb a run less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// A port of virtio-serial.
    Virtio,
    /// The second serial port, a terminal.
    Serial,
}

impl Channel {
    /// The kernel module of virtio-serial.
    pub(crate) const MODULE: &str = "virtio_console";

    /// Chooses virtio if the kernel is known to have the module, else the serial port.
    pub(crate) fn of(modules: Option<&Loader>) -> Channel {
        if modules.is_some_and(|modules| modules.has(Channel::MODULE)) {
            Channel::Virtio
        } else {
            Channel::Serial
        }
    }

    /// The device's path in the guest. The name of a port has the number of its virtio device, which comes
    /// before the disks.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Channel::Virtio => "/dev/vport0p1",
            Channel::Serial => "/dev/ttyS1",
        }
    }

    /// QEMU's options for this channel, with the character device `data`.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Channel::Virtio => {
                "-device virtio-serial-pci -device virtserialport,chardev=data,name=lotsfree.data"
            }
            Channel::Serial => "-serial chardev:data",
        }
    }
}
