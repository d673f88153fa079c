//! QEMU's command line for a machine.

use std::fmt::Write as _;

use lotsfree_scenario::{Case, Machine};
use lotsfree_units::MIB;

use super::running::CONSOLE;
use super::{Accelerator, Disk, Error};

/// The initramfs, in the scratch directory.
pub(crate) const INITRAMFS: &str = "initramfs";
/// The data channel, in the guest.
pub(crate) const DATA: &str = "/dev/ttyS1";

/// CPUs of QEMU's machine `pc`.
const CPUS: u32 = 255;

/// Whether QEMU has such a machine.
///
/// # Errors
/// Name the key of the scenario that it has not, and why.
pub(crate) fn check(case: &Case) -> Result<(), Error> {
    let cpus: u32 = case.machine.cpus_per_node().iter().sum();
    if cpus > CPUS {
        return Err(case
            .refuse("machine.cpus", format!("{cpus} CPUs; a virtual machine has at most {CPUS}"))
            .into());
    }
    Ok(())
}

/// Everything but `-kernel` and `-append`; files are in the current directory, and the data channel is the
/// standard input, a socket.
///
/// # Errors
/// If the accelerator cannot have so many CPUs.
pub(crate) fn arguments(
    machine: &Machine,
    disks: &[Disk],
    accelerator: Accelerator,
) -> Result<Vec<String>, Error> {
    let per_node = machine.cpus_per_node();
    let cpus: u32 = per_node.iter().sum();
    if accelerator == Accelerator::Icount && cpus != 1 {
        return Err(Error::OneCpu { cpus });
    }
    // A socket for each CPU: no cache spans two nodes.
    let mut line = format!(
        "{} -cpu max,la57=off -smp {cpus},sockets={cpus},cores=1,threads=1 -initrd {INITRAMFS} -nodefaults \
         -no-user-config -display none -no-reboot -serial file:{CONSOLE} -chardev socket,id=data,fd=0 \
         -serial chardev:data",
        accelerator.options()
    );
    nodes(&mut line, machine, &per_node);
    for disk in disks {
        let (name, throttle) = (disk.name, disk.throttle.options());
        // What a host without room cannot write is an error in the guest, not a stop.
        let _ = write!(
            line,
            " -drive file={name},if=none,id={name},format=raw,cache=unsafe,rerror=report,\
             werror=report{throttle} -device virtio-blk-pci,drive={name}"
        );
    }
    Ok(line.split(' ').map(str::to_owned).collect())
}

/// Memory of each node in whole MiB, its CPUs in the order of their numbers, and the distances.
fn nodes(line: &mut String, machine: &Machine, cpus: &[u32]) {
    let sizes: Vec<u64> = machine.nodes.iter().map(|size| size.bytes().div_ceil(MIB)).collect();
    let _ = write!(line, " -m {}M", sizes.iter().sum::<u64>());
    let mut first = 0;
    for (node, (size, cpus)) in sizes.iter().zip(cpus).enumerate() {
        let _ = write!(
            line,
            " -object memory-backend-ram,id=m{node},size={size}M -numa node,nodeid={node},memdev=m{node}"
        );
        match cpus {
            0 => {}
            1 => {
                let _ = write!(line, ",cpus={first}");
            }
            many => {
                let _ = write!(line, ",cpus={first}-{}", first + many - 1);
            }
        }
        first += cpus;
    }
    for from in 0..sizes.len() {
        for to in (0..sizes.len()).filter(|to| *to != from) {
            if let Some(distance) = machine.distance(from, to) {
                let _ = write!(line, " -numa dist,src={from},dst={to},val={distance}");
            }
        }
    }
}
