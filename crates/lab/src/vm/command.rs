//! QEMU's command line for a machine.

use std::fmt::Write as _;

use lotsfree_scenario::{Case, MachineSpec};
use lotsfree_units::MIB;

use super::channel::Channel;
use super::running::CONSOLE;
use super::{Accelerator, Disk, Error};

/// Name of the initramfs, in the scratch directory.
pub(crate) const INITRAMFS: &str = "initramfs";

/// The most CPUs of QEMU's machine `pc`.
const CPUS: u32 = 255;

/// Checks whether QEMU can be a case's machine.
///
/// # Errors
/// Names the key of the scenario that QEMU cannot do, and the reason.
pub(crate) fn check(case: &Case) -> Result<(), Error> {
    let cpus: u32 = case.machine.cpus_per_node().iter().sum();
    if cpus > CPUS {
        return Err(case
            .refuse("machine.cpus", format!("{cpus} CPUs; a virtual machine has at most {CPUS}"))
            .into());
    }
    Ok(())
}

/// What a machine has from the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// Disks are as slow as the scenario's.
    pub(crate) throttled: bool,
    /// The host's memory for all of the machine's. Otherwise the host finds memory for each page when the
    /// machine first touches it, which takes as long again as what the machine's kernel does for that page.
    pub(crate) memory: bool,
}

/// QEMU's arguments, but for `-kernel` and `-append`. `place` gives the path of a file by its name. The data
/// channel is the socket that is QEMU's standard input, and the monitor the socket that is its standard
/// output.
///
/// # Errors
/// If the accelerator does not support the machine's number of CPUs.
pub(crate) fn arguments(
    machine: &MachineSpec,
    disks: &[Disk],
    accelerator: Accelerator,
    channel: Channel,
    given: Given,
    place: &dyn Fn(&str) -> String,
) -> Result<Vec<String>, Error> {
    let per_node = machine.cpus_per_node();
    let cpus: u32 = per_node.iter().sum();
    if accelerator == Accelerator::Icount && cpus != 1 {
        return Err(Error::OneCpu { cpus });
    }
    // Each CPU has a socket of its own, so that no cache spans two nodes.
    let mut line = format!(
        "{} -cpu max,la57=off -smp {cpus},sockets={cpus},cores=1,threads=1 -initrd {} -nodefaults \
         -no-user-config -display none -no-reboot -serial file:{} -chardev socket,id=data,fd=0 {} \
         -chardev socket,id=monitor,fd=1 -mon chardev=monitor,mode=control",
        accelerator.options(),
        place(INITRAMFS),
        place(CONSOLE),
        channel.options()
    );
    nodes(&mut line, machine, &per_node, given.memory);
    for disk in disks {
        let name = disk.name;
        let throttle = if given.throttled { disk.throttle.options() } else { String::new() };
        // If the host runs out of room, a write fails in the guest instead of stopping the machine.
        let _ = write!(
            line,
            " -drive file={},if=none,id={name},format=raw,cache=unsafe,rerror=report,\
             werror=report{throttle} -device virtio-blk-pci,drive={name}",
            place(name)
        );
    }
    Ok(line.split(' ').map(str::to_owned).collect())
}

/// Memory of each node in whole MiB, its CPUs in the order of their numbers, and the distances.
fn nodes(line: &mut String, machine: &MachineSpec, cpus: &[u32], given: bool) {
    let given = if given { ",prealloc=on" } else { "" };
    let sizes: Vec<u64> = machine.nodes.iter().map(|size| size.bytes().div_ceil(MIB)).collect();
    let _ = write!(line, " -m {}M", sizes.iter().sum::<u64>());
    let mut first = 0;
    for (node, (size, cpus)) in sizes.iter().zip(cpus).enumerate() {
        let _ = write!(
            line,
            " -object memory-backend-ram,id=m{node},size={size}M{given} \
             -numa node,nodeid={node},memdev=m{node}"
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

#[cfg(test)]
mod tests {
    use lotsfree_scenario::Scenario;
    use lotsfree_units::Bytes;

    use super::super::disk::disks;
    use super::*;

    fn case(machine: &str) -> Case {
        let text = format!(
            "title = \"x\"\nseed = 1\nduration = \"1 s\"\n[machine]\ngeneration = \"linux-6.1\"\n{machine}\n\
             [[actor]]\nname = \"a\"\nkind = \"file-writer\"\nsize = \"1 MiB\"\nrate = \"1 MiB/s\"\n"
        );
        Scenario::parse(&text, "x.toml").expect("a scenario").cases(None).expect("a case").remove(0)
    }

    fn line(machine: &str, accelerator: Accelerator, throttled: bool) -> Result<String, Error> {
        let machine = case(machine).machine;
        let disks = disks(&machine, Bytes::ZERO);
        let name = |name: &str| name.to_owned();
        let given = Given { throttled, memory: throttled };
        Ok(arguments(&machine, &disks, accelerator, Channel::Virtio, given, &name)?.join(" "))
    }

    #[test]
    fn a_machine_is_a_command_line() {
        let machine = "cpus = [2, 0, 1]\nnodes = [\"512 MiB\", \"256 MiB\", \"65 MiB\"]\n\
                       distance = [[10, 20, 30], [20, 10, 40], [30, 40, 10]]\n\
                       disk = { latency = \"10 ms\", bandwidth = \"1 MiB/s\", rotational = true }\n\
                       swap = { size = \"1 GiB\", latency = \"1 us\", bandwidth = \"2 MiB/s\", iops = 5 }";
        let expected = "-accel kvm -cpu max,la57=off -smp 3,sockets=3,cores=1,threads=1 -initrd initramfs \
                        -nodefaults -no-user-config -display none -no-reboot -serial file:console \
                        -chardev socket,id=data,fd=0 -device virtio-serial-pci \
                        -device virtserialport,chardev=data,name=lotsfree.data \
                        -chardev socket,id=monitor,fd=1 -mon chardev=monitor,mode=control -m 833M \
                        -object memory-backend-ram,id=m0,size=512M,prealloc=on \
                        -numa node,nodeid=0,memdev=m0,cpus=0-1 \
                        -object memory-backend-ram,id=m1,size=256M,prealloc=on \
                        -numa node,nodeid=1,memdev=m1 \
                        -object memory-backend-ram,id=m2,size=65M,prealloc=on \
                        -numa node,nodeid=2,memdev=m2,cpus=2 \
                        -numa dist,src=0,dst=1,val=20 -numa dist,src=0,dst=2,val=30 \
                        -numa dist,src=1,dst=0,val=20 -numa dist,src=1,dst=2,val=40 \
                        -numa dist,src=2,dst=0,val=30 -numa dist,src=2,dst=1,val=40 \
                        -drive file=disk,if=none,id=disk,format=raw,cache=unsafe,rerror=report,\
                        werror=report,throttling.bps-total=1048576,throttling.iops-total=100 \
                        -device virtio-blk-pci,drive=disk \
                        -drive file=swap,if=none,id=swap,format=raw,cache=unsafe,rerror=report,\
                        werror=report,throttling.bps-total=2097152,throttling.iops-total=5 \
                        -device virtio-blk-pci,drive=swap";
        assert_eq!(line(machine, Accelerator::Kvm, true).expect("possible"), expected);
        let later = line(machine, Accelerator::Kvm, false).expect("possible");
        assert!(!later.contains("throttling") && !later.contains("prealloc"), "{later}");
    }

    #[test]
    fn virtual_time_has_one_cpu() {
        let one = line("cpus = 1\nnodes = [\"512 MiB\"]", Accelerator::Icount, true).expect("possible");
        assert!(one.starts_with("-accel tcg,thread=single -icount shift=3,sleep=on "), "{one}");
        let error = line("cpus = 2\nnodes = [\"512 MiB\"]", Accelerator::Icount, true).unwrap_err();
        assert!(error.to_string().starts_with("2 CPUs: virtual time (icount)"), "{error}");
    }

    #[test]
    fn a_machine_that_qemu_does_not_have_is_refused_with_its_place() {
        assert!(check(&case("cpus = 255\nnodes = [\"1 GiB\"]")).is_ok());
        let error = check(&case("cpus = 256\nnodes = [\"1 GiB\"]")).unwrap_err().to_string();
        assert!(error.contains("x.toml:6") && error.contains("machine.cpus"), "{error}");
        assert!(error.contains("256 CPUs; a virtual machine has at most 255"), "{error}");
    }
}
