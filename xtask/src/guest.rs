//! A virtual machine that runs unattended until it powers itself off.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lotsfree_lab::vm::{Initramfs, Packages, Qemu, modules, qemu};
use lotsfree_units::Bytes;

/// A machine with two CPUs.
pub(crate) struct Guest<'a> {
    pub kernel: &'a Path,
    pub initramfs: Vec<u8>,
    /// Names and sizes in bytes of the disks, in the order of their names in the guest (vda, vdb, …). One
    /// that has no file in the directory is empty.
    pub disks: &'a [(&'static str, u64)],
    pub memory: Bytes,
    /// The machine is ended if it has not powered itself off by then.
    pub time_limit: Duration,
}

impl Guest<'_> {
    /// Boots the machine with files in the directory `work`, and returns the text of its console if that has
    /// a line `done`. The command line is made with a function that gives the path of a file by its name:
    /// `kernel`, `initramfs`, `console` or a disk's.
    ///
    /// # Errors
    /// If QEMU fails, or the guest does not write that line in time. The error ends with the last lines of
    /// the guest's console.
    pub(crate) fn boot(
        &self,
        work: &Path,
        done: &str,
        arguments: impl FnOnce(&dyn Fn(&str) -> String) -> Vec<String>,
    ) -> Result<String, Box<dyn Error>> {
        fs::write(work.join("initramfs"), &self.initramfs)?;
        let mut files = qemu::Files::default();
        let mut places = vec![
            ("kernel", files.read(File::open(self.kernel)?)),
            ("initramfs", files.read(File::open(work.join("initramfs"))?)),
            ("console", files.write(File::create(work.join("console"))?)),
        ];
        for (name, size) in self.disks {
            let image = File::options().create(true).write(true).truncate(false).open(work.join(name))?;
            image.set_len(*size)?;
            places.push((name, files.disk(&work.join(name))?));
        }
        let place = |name: &str| {
            let known = places.iter().find(|(known, _)| *known == name);
            known.map_or_else(|| name.to_owned(), |(_, place)| place.clone())
        };
        let start = qemu::Start {
            arguments: &arguments(&place),
            directory: work,
            input: Stdio::null(),
            output: Stdio::null(),
            files,
            bounds: qemu::Bounds {
                memory: self.memory,
                cpus: 2,
                file: Bytes(self.disks.iter().map(|(_, size)| *size).max().unwrap_or(0)),
            },
            kvm: false,
        };
        let ended = Qemu::start(start)?.wait(self.time_limit);
        let console = fs::read(work.join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        let why = match ended {
            Ok(()) if console.lines().any(|line| line.trim() == done) => return Ok(console),
            Ok(()) => format!("the guest did not say “{done}”"),
            Err(error) => error.to_string(),
        };
        let qemu = fs::read_to_string(work.join(qemu::LOG)).unwrap_or_default();
        Err(format!("{why}\n{}{qemu}", qemu::tail(&console)).into())
    }
}

/// Debian's static busybox, which is downloaded into a directory if it is not there.
///
/// # Errors
/// If it can neither be found nor downloaded.
pub(crate) fn busybox(cache: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let packages = Packages::new(cache, |package| eprintln!("downloading {package}"));
    let tree = packages.fetch("busybox-static")?.tree;
    let places = [tree.join("bin/busybox"), tree.join("usr/bin/busybox")];
    let place = places.iter().find(|path| path.is_file()).ok_or("busybox-static has no busybox")?;
    Ok(fs::read(place)?)
}

/// Adds kernel modules and those that they depend on. The guest loads them in the order of `/modules/order`.
///
/// # Errors
/// If a module is missing.
pub(crate) fn add_modules(
    initramfs: &mut Initramfs,
    directory: &Path,
    wanted: &[&str],
) -> Result<(), Box<dyn Error>> {
    let mut order = String::new();
    for module in modules::in_order(directory, wanted)? {
        order += &format!("{}\n", module.file);
        initramfs.file(&format!("modules/{}", module.file), &module.object)?;
    }
    Ok(initramfs.file("modules/order", order.as_bytes())?)
}

/// Modules that every guest with disks needs. ext4 asks the crypto layer for the CRC by name, which no
/// `depends=` says.
pub(crate) const DISKS: &[&str] = &["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];

/// The part of a command line with CPUs, a kernel and the file of its console.
pub(crate) fn machine(cpus: u32, place: &dyn Fn(&str) -> String) -> String {
    format!(
        "-kernel {} -initrd {} -nodefaults -no-user-config -display none -no-reboot \
         -accel tcg,thread=multi -cpu max,la57=off -smp {cpus} -serial file:{}",
        place("kernel"),
        place("initramfs"),
        place("console")
    )
}

/// The part of a command line for a disk.
pub(crate) fn disk(name: &str, place: &dyn Fn(&str) -> String) -> String {
    drive(name, &place(name))
}

/// The same for a disk that serves this many requests a second.
pub(crate) fn throttled_disk(name: &str, place: &dyn Fn(&str) -> String, requests: u32) -> String {
    drive(name, &format!("{},throttling.iops-total={requests}", place(name)))
}

fn drive(name: &str, file: &str) -> String {
    format!(
        " -drive file={file},if=none,id={name},format=raw,cache=unsafe -device virtio-blk-pci,drive={name}"
    )
}
