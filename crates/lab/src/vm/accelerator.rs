//! [`Accelerator`]: how the guest's instructions are executed, and whether KVM works here.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lotsfree_units::Bytes;

use super::guest::{default_scratch, write_only};
use super::qemu::{Bounds, Files, Start};
use super::running::{CONSOLE, console};
use super::scratch::Scratch;
use super::{Error, Initramfs, Kernel, Qemu, command, kernel, user};

/// Time in which a kernel has to boot with KVM; it takes one to two seconds.
const LIMIT: Duration = Duration::from_secs(12);
/// Time in which the kernel has to print [`FIRST`]; it does so at once.
const SILENCE: Duration = Duration::from_secs(4);
/// The words with which a kernel's messages begin.
const FIRST: &str = "Linux version";
/// The text that the probe prints.
const MARK: &str = "lotsfree: user space";

/// How the guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accelerator {
    /// By the processor.
    Kvm,
    /// By software emulation, one thread per CPU.
    Tcg,
    /// By software emulation with virtual time: 8 ns pass per instruction, however long the host takes. It
    /// works with one CPU only, because a second one hangs when the kernel brings it up. Throttles of disks
    /// count the host's time.
    Icount,
}

impl Accelerator {
    /// KVM if this kernel gets to user space with it, else software emulation. Each process tries KVM once
    /// per kernel, because some hosts have a `/dev/kvm` with which distributions' kernels hang. A `/dev/kvm`
    /// that only root may open is not used, as QEMU does not run as root.
    ///
    /// # Errors
    /// If there is no QEMU, or the trial's files cannot be made.
    pub fn of(kernel: &Kernel) -> Result<Accelerator, Error> {
        static VERDICTS: Mutex<Option<HashMap<PathBuf, Accelerator>>> = Mutex::new(None);
        let mut verdicts = VERDICTS.lock().unwrap_or_else(PoisonError::into_inner);
        let verdicts = verdicts.get_or_insert_default();
        if let Some(known) = verdicts.get(&kernel.image) {
            return Ok(*known);
        }
        let open = || fs::File::options().read(true).write(true).open(user::KVM).is_ok();
        let works = open() && user::no_kvm().is_none() && boots(kernel, "-accel kvm", LIMIT)?;
        let verdict = if works { Accelerator::Kvm } else { Accelerator::Tcg };
        verdicts.insert(kernel.image.clone(), verdict);
        Ok(verdict)
    }

    /// QEMU's options for this accelerator.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Accelerator::Kvm => "-accel kvm",
            Accelerator::Tcg => "-accel tcg,thread=multi",
            Accelerator::Icount => "-accel tcg,thread=single -icount shift=3,sleep=on",
        }
    }
}

/// Prints the name that a run's facts use.
impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
            Accelerator::Icount => "tcg-icount",
        })
    }
}

/// Whether the kernel gets to user space within the limit.
fn boots(kernel: &Kernel, accelerator: &str, limit: Duration) -> Result<bool, Error> {
    let mut initramfs = Initramfs::default();
    initramfs.character_device("dev/console", (5, 1));
    initramfs.file("init", &probe())?;
    let scratch = Scratch::make(&default_scratch())?;
    let path = scratch.path().join(command::INITRAMFS);
    scratch.file(command::INITRAMFS)?.write_all(&initramfs.finish()).map_err(Error::io(&path))?;
    let mut files = Files::default();
    let initramfs = files.read(kernel::readable(&path)?);
    let says = files.write(write_only(&scratch, CONSOLE)?);
    let (_, image) = kernel.bootable(scratch.path())?;
    let mut arguments = vec!["-kernel".to_owned(), files.read(image)];
    let line = format!(
        "{accelerator} -initrd {initramfs} -nodefaults -no-user-config -display none -no-reboot -smp 1 -m 256M \
         -cpu max,la57=off -serial file:{says}"
    );
    arguments.extend(line.split(' ').map(str::to_owned));
    arguments.extend(["-append".to_owned(), "console=ttyS0 earlyprintk=ttyS0 panic=-1".to_owned()]);
    let mut qemu = Qemu::start(Start {
        arguments: &arguments,
        directory: scratch.path(),
        input: Stdio::null(),
        output: Stdio::null(),
        files,
        bounds: Bounds { memory: Bytes::mib(256), cpus: 1, file: Bytes::mib(64) },
        kvm: true,
    })?;
    let started = Instant::now();
    let says = |words: &str| console(scratch.path()).contains(words);
    while started.elapsed() < limit {
        let ended = qemu.ended()?.is_some();
        if says(MARK) {
            return Ok(true);
        }
        if ended || started.elapsed() > SILENCE && !says(FIRST) {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(false)
}

/// A static program for x86-64 that writes [`MARK`] to its standard output and powers the machine off.
fn probe() -> Vec<u8> {
    /// The usual load address of a program that is not position-independent.
    const BASE: u64 = 0x40_0000;
    const HEADERS: u16 = 0x40 + 0x38;
    let mut code = vec![
        0xb8, 1, 0, 0, 0, // mov eax, write
        0xbf, 1, 0, 0, 0, // mov edi, 1
        0x48, 0x8d, 0x35, 31, 0, 0, 0, // lea rsi, [rip + 31]: behind the code
        0xba, 0, 0, 0, 0, // mov edx, length
        0x0f, 0x05, // syscall
        0xb8, 169, 0, 0, 0, // mov eax, reboot
        0xbf, 0xad, 0xde, 0xe1, 0xfe, // mov edi, LINUX_REBOOT_MAGIC1
        0xbe, 0x69, 0x19, 0x12, 0x28, // mov esi, LINUX_REBOOT_MAGIC2
        0xba, 0xdc, 0xfe, 0x21, 0x43, // mov edx, LINUX_REBOOT_CMD_POWER_OFF
        0x0f, 0x05, // syscall
        0xeb, 0xfe, // jmp to itself
    ];
    code[18] = MARK.len() as u8;
    code.extend_from_slice(MARK.as_bytes());

    let size = u64::from(HEADERS) + code.len() as u64;
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(16, 0);
    let half = |number: u16| number.to_le_bytes().to_vec();
    let word = |number: u32| number.to_le_bytes().to_vec();
    let long = |number: u64| number.to_le_bytes().to_vec();
    for field in [
        half(2),                         // ET_EXEC
        half(62),                        // x86-64
        word(1),                         // version
        long(BASE + u64::from(HEADERS)), // entry
        long(0x40),                      // program headers
        long(0),                         // section headers
        word(0),                         // flags
        half(0x40),                      // size of this header
        half(0x38),                      // size of a program header
        half(1),                         // how many
        half(0x40),                      // size of a section header
        half(0),                         // how many
        half(0),                         // their names
        word(1),                         // PT_LOAD
        word(5),                         // readable, executable
        long(0),                         // offset in the file
        long(BASE),                      // address
        long(BASE),                      // physical address
        long(size),                      // size in the file
        long(size),                      // size in memory
        long(0x1000),                    // alignment
    ] {
        program.extend(field);
    }
    program.extend(code);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_is_a_static_program() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("probe");
        fs::write(&path, probe()).expect("written");
        assert_eq!(super::super::elf::read_static(&path).expect("static"), probe());
        let code = &probe()[0x78..];
        assert_eq!(&code[48..], MARK.as_bytes());
        assert_eq!(usize::from(code[18]), MARK.len());
    }

    #[test]
    fn the_probe_runs_on_a_kernel_that_boots() {
        if std::env::var_os("LOTSFREE_LAB").is_none() {
            return;
        }
        let kernel = Kernel::find("linux-6.1").expect("a kernel");
        let boots = |accelerator: &str| boots(&kernel, accelerator, Duration::from_secs(60)).expect("QEMU");
        assert!(boots("-accel tcg"));
        assert!(!boots("-accel tcg -S"), "it does not even start");
    }
}
