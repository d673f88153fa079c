//! [`Guest`]: a machine to boot.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lotsfree_kernel_files::counters::meminfo;
use lotsfree_scenario::{Case, Filesystem, MachineSpec, Zpool};
use lotsfree_units::{Bytes, PageSize};

use super::channel::Channel;
use super::command::Given;
use super::disk::{self, Disk};
use super::modules::Loader;
use super::packages::by_number;
use super::qemu::{Bounds, Files};
use super::running::{Boot, CONSOLE, Facts};
use super::scratch::Scratch;
use super::{Accelerator, Error, Initramfs, Kernel, Running, command, elf, image, kernel, qemu, trust, user};
use crate::local::read_meminfo;

/// Room that disk images need beside the files and the swap area: for a journal, and for what actors write.
const ROOM: Bytes = Bytes::mib(512);

/// QEMU's limit for the length of files is at least this, for the console.
const CONSOLE_LENGTH: Bytes = Bytes::mib(64);

/// A virtual machine with the nodes, CPUs, distances and disks of a scenario's machine. Its only process when
/// it boots is a program of the caller's.
///
/// The guest's root is its initramfs, as ramfs. It has
///
/// | path | contents |
/// |---|---|
/// | `/init` | the program |
/// | `/case.toml` | the case, every default written out |
/// | `/modules/*.ko`, `/modules/order` | modules for disks and file system, and the order to load them in |
/// | `/dev/console` | the console, to which the program's standard streams are connected when it begins |
/// | `/proc /sys /dev /tmp /run /mnt` | empty; nothing is mounted |
///
/// and the kernel's parameters (`/proc/cmdline`) say where things are once the modules are loaded and
/// devtmpfs is mounted: `lotsfree.data=` the data channel, `lotsfree.disk=` the file system, `lotsfree.fs=`
/// its type for `mount`, `lotsfree.swap=` the swap area if there is one.
///
/// The channel may be a terminal, which the program has to make raw. Small writes disturb a run least,
/// because each allocates its size in the guest's kernel. With virtio, reading ends when this process is
/// gone. The program ends the run by powering the machine off. It should wait for an answer to its last
/// message first: data that the host has not taken by then are lost.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The kernel.
    pub kernel: Kernel,
    /// The program, linked statically.
    pub init: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// More kernel parameters.
    pub parameters: Vec<String>,
    /// More files of the initramfs: path there (without `/` at its beginning), path here.
    pub files: Vec<(String, PathBuf)>,
    /// How instructions are executed; `None`: by KVM if the kernel boots with it, else by software emulation.
    pub accelerator: Option<Accelerator>,
    /// Whether disks are throttled to the scenario's speed from the beginning. If not, they are once
    /// [`Running::throttle`] is called; files are made faster before that.
    pub throttled: bool,
    /// The directory in which one is made for the disk images; `None`: `$TMPDIR`, or `/var/tmp`.
    pub scratch: Option<PathBuf>,
    machine: MachineSpec,
    case: String,
    contents: Bytes,
    disks: Vec<Disk>,
}

impl Guest {
    /// Makes the machine of a case, with a kernel and a program.
    ///
    /// # Errors
    /// If QEMU cannot be the case's machine, or the case's actors cannot be made.
    pub fn new(case: &Case, kernel: Kernel, init: PathBuf) -> Result<Guest, Error> {
        command::check(case)?;
        let pages =
            case.program()?.files.iter().filter(|file| file.exists).map(|file| u64::from(file.pages)).sum();
        let contents = PageSize::X86.of(pages);
        Ok(Guest {
            kernel,
            init,
            arguments: Vec::new(),
            parameters: Vec::new(),
            files: Vec::new(),
            accelerator: None,
            throttled: true,
            scratch: None,
            machine: case.machine.clone(),
            case: case.to_toml(),
            contents,
            disks: disk::disks(&case.machine, contents),
        })
    }

    /// Memory of the machine.
    pub fn memory(&self) -> Bytes {
        self.machine.memory()
    }

    /// The machine's disks, in the order of their names in the guest: vda, vdb.
    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }

    /// Boots the machine. After `limit` it is ended.
    ///
    /// # Errors
    /// If the program is not linked statically, if a program of the host or a module of the kernel is
    /// missing, or if there is no room for the disk images.
    pub fn start(&self, limit: Duration) -> Result<Running, Error> {
        let accelerator = match self.accelerator {
            Some(accelerator) => accelerator,
            None => Accelerator::of(&self.kernel)?,
        };
        if let Some(why) = (accelerator == Accelerator::Kvm).then(user::no_kvm).flatten() {
            return Err(Error::unusable(user::KVM, why));
        }
        let loader = self.kernel.modules.as_deref().map(Loader::new).transpose()?;
        let channel = Channel::of(loader.as_ref());
        let given = Given { throttled: self.throttled, memory: host_has(self.machine.memory()) };
        let line = |kernel: &str, place: &dyn Fn(&str) -> String| {
            let (machine, disks) = (&self.machine, &self.disks);
            let arguments = command::arguments(machine, disks, accelerator, channel, given, place)?;
            let kernel = vec!["-kernel".to_owned(), kernel.to_owned()];
            Ok::<_, Error>([kernel, arguments, vec!["-append".to_owned(), self.parameters(channel)]].concat())
        };
        // Check the machine before anything is made.
        line("", &|name| name.to_owned())?;
        let parent = self.scratch.clone().unwrap_or_else(default_scratch);
        self.check_room(&parent)?;
        let scratch = Scratch::make(&parent)?;
        let mut files = Files::default();
        let places = self.files(&scratch, self.initramfs(loader)?, &mut files)?;
        let place = |name: &str| {
            places.iter().find(|(known, _)| *known == name).map_or("", |(_, place)| place).to_owned()
        };
        let (boots, kernel) = self.kernel.bootable(scratch.path())?;
        let unfiltered = qemu::unfiltered()?;
        let shown = line(&boots, &|name| name.to_owned())?;
        let shown = match unfiltered {
            None => [qemu::SANDBOX.map(str::to_owned).to_vec(), shown].concat(),
            Some(_) => shown,
        };
        let facts = Facts {
            accelerator,
            qemu: qemu::version()?,
            kernel: self.kernel.release.clone(),
            command: format!("{} {}", qemu::PROGRAM, qemu::quoted(&shown)),
            unfiltered,
        };
        let arguments = line(&files.read(kernel), &place)?;
        let boot = Boot { arguments, files, bounds: self.bounds(), scratch };
        Running::start(boot, self.disks.clone(), facts, limit)
    }

    /// Resources that QEMU may use.
    fn bounds(&self) -> Bounds {
        let longest = self.disks.iter().map(image::length).max().unwrap_or(0);
        let cpus = self.machine.cpus_per_node().iter().sum();
        // The memory of each node is rounded up to whole MiB.
        let memory = self.machine.memory() + Bytes::mib(self.machine.nodes.len() as u64);
        Bounds { memory, cpus, file: Bytes(longest).max(CONSOLE_LENGTH) }
    }

    /// Makes the files of a machine. Returns their names, and their names on QEMU's command line.
    fn files(
        &self,
        scratch: &Scratch,
        initramfs: Vec<u8>,
        files: &mut Files,
    ) -> Result<Vec<(&'static str, String)>, Error> {
        let path = scratch.path().join(command::INITRAMFS);
        scratch.file(command::INITRAMFS)?.write_all(&initramfs).map_err(Error::io(&path))?;
        let mut places = vec![(command::INITRAMFS, files.read(kernel::readable(&path)?))];
        places.push((CONSOLE, files.write(write_only(scratch, CONSOLE)?)));
        for disk in &self.disks {
            image::create(disk, scratch.path())?;
            places.push((disk.name, files.disk(&scratch.path().join(disk.name))?));
        }
        Ok(places)
    }

    /// Checks that the directory has room for the disk images. They are sparse, but data in files and swapped
    /// pages take room.
    fn check_room(&self, scratch: &Path) -> Result<(), Error> {
        let swap: Bytes = self.disks.iter().filter_map(|disk| disk.swap).sum();
        let needed = [self.contents, swap, ROOM].into_iter().sum::<Bytes>();
        let there = rustix::fs::statvfs(scratch).map_err(|error| Error::io(scratch)(error.into()))?;
        let free = Bytes(there.f_bavail.saturating_mul(there.f_frsize));
        if free >= needed {
            return Ok(());
        }
        let why = format!(
            "{free} free, and the disks of this scenario may need {needed}; name a larger place with TMPDIR"
        );
        Err(Error::unusable(scratch, why))
    }

    fn initramfs(&self, loader: Option<Loader>) -> Result<Vec<u8>, Error> {
        let mut initramfs = Initramfs::default();
        for directory in ["proc", "sys", "dev", "tmp", "run", "mnt"] {
            initramfs.directory(directory);
        }
        initramfs.character_device("dev/console", (5, 1));
        initramfs.file("init", &elf::read_static(&self.init)?)?;
        initramfs.file("case.toml", self.case.as_bytes())?;
        let mut order = String::new();
        if let Some(mut loader) = loader {
            // File systems, and libcrc32c when it is loaded, ask the crypto layer for CRC32c by name, which
            // no dependency says. Later kernels have it in a library.
            for name in [Channel::MODULE, "crc32c_generic", "crc32c"] {
                if loader.has(name) {
                    loader.add(name)?;
                }
            }
            for name in ["virtio_pci", "virtio_blk", module(self.machine.disk.filesystem)] {
                loader.add(name)?;
            }
            if self.machine.swap.is_zram() {
                // Through 6.11, zram asks the crypto layer for its default algorithm by name.
                for name in ["lzo_rle", "zram"] {
                    if name == "zram" || loader.has(name) {
                        loader.add(name)?;
                    }
                }
            }
            if let Some(zswap) = self.machine.swap.zswap() {
                // zswap asks the crypto layer for its default algorithm by name; zsmalloc is a module through
                // 6.1.
                let zsmalloc = zswap.zpool(self.machine.generation) == Zpool::Zsmalloc;
                let names = if zsmalloc { &["lzo", "zsmalloc"][..] } else { &["lzo"] };
                for name in names.iter().filter(|name| loader.has(name)).collect::<Vec<_>>() {
                    loader.add(name)?;
                }
            }
            for module in loader.into_order() {
                order += &format!("{}\n", module.file);
                initramfs.file(&format!("modules/{}", module.file), &module.object)?;
            }
        }
        initramfs.file("modules/order", order.as_bytes())?;
        for (path, here) in &self.files {
            initramfs.file(path, &trust::read_bounded(here, trust::PROGRAM)?)?;
        }
        Ok(initramfs.finish())
    }

    /// The kernel's command line.
    fn parameters(&self, channel: Channel) -> String {
        let mut words = vec![
            // ramfs and not tmpfs, because its pages are on no list that reclaim scans.
            "console=ttyS0 quiet loglevel=4 panic=-1 tsc=reliable rootfstype=ramfs".to_owned(),
            format!("lotsfree.data={}", channel.device()),
        ];
        let (files, swap) = disk::devices(&self.disks);
        if let Some(device) = files {
            words.push(format!(
                "lotsfree.disk={device} lotsfree.fs={}",
                mount_type(self.machine.disk.filesystem)
            ));
        }
        words.extend(swap.map(|device| format!("lotsfree.swap={device}")));
        words.extend(self.parameters.iter().cloned());
        if !self.arguments.is_empty() {
            if by_number(&self.kernel.release, ENDS_ITS_OWN).is_ge() {
                words.push("--".to_owned());
            }
            words.extend(self.arguments.iter().cloned());
        }
        words.join(" ")
    }
}

/// Makes a file that is open only for writing, as QEMU needs it for a file that it only writes.
pub(crate) fn write_only(scratch: &Scratch, name: &str) -> Result<File, Error> {
    scratch.file(name)?;
    let path = scratch.path().join(name);
    File::options().write(true).open(&path).map_err(Error::io(path))
}

/// Whether this host has as much memory as a guest, and a quarter more for itself.
fn host_has(memory: Bytes) -> bool {
    let available = read_meminfo().ok().and_then(|host| host.get(meminfo::MemAvailable));
    available.is_some_and(|kib| Bytes::kib(kib) >= memory.scale(1.25))
}

/// From here on kernels take `--` for the end of what is theirs (`init/main.c`, commit 51e158c12aca). Older
/// ones hand it to the first program with the words that they do not know.
const ENDS_ITS_OWN: &str = "3.15";

/// `$TMPDIR`, or `/var/tmp`, which is for large files, while `/tmp` may be in memory
/// ([file-hierarchy](https://man7.org/linux/man-pages/man7/file-hierarchy.7.html)).
pub(crate) fn default_scratch() -> PathBuf {
    std::env::var_os("TMPDIR")
        .filter(|path| !path.is_empty())
        .map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

/// The module of a file system. ext4's also serves ext3, since 2.6.33 if the kernel is configured for it.
fn module(files: Filesystem) -> &'static str {
    match files {
        Filesystem::Ext3 | Filesystem::Ext4 => "ext4",
        Filesystem::Xfs => "xfs",
        Filesystem::Btrfs => "btrfs",
    }
}

fn mount_type(files: Filesystem) -> &'static str {
    match files {
        Filesystem::Ext3 => "ext3",
        Filesystem::Ext4 => "ext4",
        Filesystem::Xfs => "xfs",
        Filesystem::Btrfs => "btrfs",
    }
}
