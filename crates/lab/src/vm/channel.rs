//! [`Channel`]: the way of data between the guest and us.

use super::modules::Loader;

/// How the guest's data come to us.
///
/// Measured with software emulation on a busy host of two CPUs, in pieces of 4 KiB: 37 MiB/s through virtio,
/// 0.2 to 0.3 MiB/s through the serial port, for which every byte is an instruction that the emulator leaves
/// its translated code for. virtio also tells the guest when we are gone: reading ends. In return each write
/// allocates its size in the guest's kernel, so that small ones disturb less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// A port of virtio-serial.
    Virtio,
    /// The second serial port, a terminal.
    Serial,
}

impl Channel {
    /// The module of virtio's.
    pub(crate) const MODULE: &str = "virtio_console";

    /// virtio, if the kernel is known to have it.
    pub(crate) fn of(modules: Option<&Loader>) -> Channel {
        if modules.is_some_and(|modules| modules.has(Channel::MODULE)) {
            Channel::Virtio
        } else {
            Channel::Serial
        }
    }

    /// The device in the guest. A port has the number of its virtio device, which comes before the disks.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Channel::Virtio => "/dev/vport0p1",
            Channel::Serial => "/dev/ttyS1",
        }
    }

    /// QEMU's options for it, with the character device `data`.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Channel::Virtio => {
                "-device virtio-serial-pci -device virtserialport,chardev=data,name=lotsfree.data"
            }
            Channel::Serial => "-serial chardev:data",
        }
    }
}
