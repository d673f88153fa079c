//! The first program of a virtual machine: makes the machine ready, executes the case or measures what the
//! kernel's work costs there, and powers the machine off.
//!
//! It is process 1 of an initramfs that holds nothing else but the kernel modules and the case. It sends its
//! results over the [data channel](crate::vm::Guest), in the format of [`lotsfree_run::wire`].
//!
//! It writes the scenario's settings (`here::tune`); NUMA nodes are QEMU's (`vm/command.rs`). The values in
//! force when the run begins are `sysctls` and `files` of [`Facts`], in the run's `run.json`.

use std::fs::{self, File};
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lotsfree_changes::Changes;
use lotsfree_run::wire::Sender;
use lotsfree_run::{Facts, RunOn, Sink, State, WriteError};
use lotsfree_scenario::{Case, Generation, Swap, SwapOn, Zpool, Zswap};
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;

use crate::agent::read_case;
use crate::calibrate::{Calibration, Effort};
use crate::coordinator::Place;
use crate::error::{LabError, at, calling};
use crate::here::{self, Output, Stage};
use crate::prepare::Written;

/// The kernel parameters that name the data channel, the disk, its file system and the swap area.
const DATA: &str = "lotsfree.data=";
const DISK: &str = "lotsfree.disk=";
const FILE_SYSTEM: &str = "lotsfree.fs=";
const SWAP: &str = "lotsfree.swap=";
/// Beginnings of the texts that the guest sends.
pub(crate) const FACTS: &str = "facts ";
pub(crate) const END: &str = "end ";
pub(crate) const FAILED: &str = "failed ";
pub(crate) const RECORD: &str = "record ";
/// The kernel parameter that asks for a calibration instead of the case.
pub(crate) const CALIBRATE: &str = "lotsfree.calibrate";
/// The kernel parameter that asks for what memory costs the actors.
pub(crate) const BLAME: &str = "lotsfree.blame";
/// The byte that the host sends to end a run early.
pub(crate) const STOP: u8 = b's';
/// The byte with which the host acknowledges the last message.
pub(crate) const ACK: u8 = b'k';

/// Bytes of one write at most.
const PIECE: usize = 4096;
/// How long the guest waits for the host's acknowledgement.
const ACK_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests that take at least this many nanoseconds are reported one by one.
const SLOW: u64 = 50_000_000;

/// Runs as process 1. Does not return: the machine is powered off.
pub fn init() -> ! {
    let said = mounts().and_then(|()| modules()).and_then(|()| serial());
    match said {
        Ok(line) => {
            let signals = Arc::new(HostSignals::default());
            let outcome = listen(&line, &signals).and_then(|()| execute(&line, &signals));
            let mut sender = Sender::new(Pieces(&line));
            let text = match outcome {
                Ok(State::Complete) => format!("{END}complete"),
                Ok(_) => format!("{END}interrupted"),
                Err(error) => format!("{FAILED}{error}"),
            };
            // If this message cannot be sent, nothing can.
            let _ = sender.text(&text);
            signals.wait_for_ack();
        }
        Err(error) => console(&format!("lotsfree: {error}\n")),
    }
    rustix::fs::sync();
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    // Reached on a machine without power management.
    let _ = rustix::system::reboot(RebootCommand::Restart);
    loop {
        std::thread::park();
    }
}

/// Prints a text to the console: the last resort, where nothing can be sent.
fn console(text: &str) {
    let _ = fs::write("/dev/console", text);
}

fn mounts() -> Result<(), LabError> {
    let mount = |kind: &str, place: &str| rustix::mount::mount(kind, place, kind, MountFlags::empty(), None);
    for (kind, place) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, place).map_err(|error| calling(format!("mount {place}"))(error.into()))?;
    }
    // Kernels before 4.5 have none.
    let _ = mount("cgroup2", "/sys/fs/cgroup");
    Ok(())
}

/// Loads the modules in the order of `/modules/order`, and removes their files, which frees memory.
fn modules() -> Result<(), LabError> {
    let directory = Path::new("/modules");
    let order = directory.join("order");
    for name in fs::read_to_string(&order).map_err(at(&order))?.lines() {
        let path = directory.join(name);
        let file = File::open(&path).map_err(at(&path))?;
        let loaded = rustix::system::finit_module(&file, c"", 0);
        loaded.map_err(|error| calling(format!("module {name}"))(error.into()))?;
    }
    fs::remove_dir_all(directory).map_err(at(directory))
}

/// The kernel's command line.
fn parameters() -> Result<String, LabError> {
    let path = Path::new("/proc/cmdline");
    fs::read_to_string(path).map_err(at(path))
}

/// The part of one CPU that watching the kernel may take. Nobody else works here, and an emulated CPU is so
/// slow that the share of a host would leave the tracepoints off for most of the time.
const BUDGET: f64 = 0.1;

/// Whether the kernel's command line asks for something.
fn asked_to(what: &str) -> Result<bool, LabError> {
    Ok(parameters()?.split_ascii_whitespace().any(|word| word == what))
}

/// Opens the data channel that the kernel parameters name. A terminal is made raw, so that no byte is
/// translated.
fn serial() -> Result<File, LabError> {
    let parameters = parameters()?;
    let device = parameters.split_ascii_whitespace().find_map(|word| word.strip_prefix(DATA));
    let device = Path::new(device.ok_or_else(|| LabError::Refused(format!("no parameter {DATA}")))?);
    let line = File::options().read(true).write(true).open(device).map_err(at(device))?;
    if let Ok(mut attributes) = rustix::termios::tcgetattr(&line) {
        attributes.make_raw();
        let set = rustix::termios::tcsetattr(&line, rustix::termios::OptionalActions::Now, &attributes);
        set.map_err(|error| at(device)(error.into()))?;
    }
    Ok(line)
}

/// Splits writes into pieces of [`PIECE`] bytes, which the channel takes whole.
struct Pieces<'a>(&'a File);

impl std::io::Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes.get(..PIECE).unwrap_or(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An output that sends a run to the host.
struct Line<'a>(Sender<Pieces<'a>>);

impl Output for Line<'_> {
    fn begin(&mut self, facts: Facts) -> Result<(), WriteError> {
        let text = serde_json::to_string(&facts).unwrap_or_default();
        self.0.text(&format!("{FACTS}{text}"))
    }

    fn sink(&mut self) -> &mut dyn Sink {
        &mut self.0
    }
}

fn execute(line: &File, signals: &HostSignals) -> Result<State, LabError> {
    let text = PathBuf::from("/case.toml");
    let case = read_case(&text).map_err(|error| LabError::Refused(error.to_string()))?;
    // The program's own memory is locked, so that the actors do not displace it, and below the program is
    // exempted from the OOM killer. A calibration measures its own memory, and leaves it like any program's.
    if !asked_to(CALIBRATE)? {
        // Each page is locked when it is touched. Locking the whole program at once would count it as mapped
        // file pages (`NR_FILE_MAPPED`), which `node_pagecache_reclaimable` takes for page cache.
        let _ = lotsfree_sys::lock_all(true);
    }
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let mut changes = Changes::forgotten();
    settle(&mut changes)?;
    let files = disks(&case)?;
    here::tune(&case, &here::wanted(&case, &files)?, &mut changes)?;
    let going = || {
        if signals.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    if asked_to(CALIBRATE)? {
        return calibrate(line, &files, changes, &going);
    }
    let nodes = lotsfree_watch::nodes();
    let place = Place {
        commands: Vec::new(),
        program: PathBuf::from("/init"),
        arguments: vec!["agent".to_owned()],
        case: text,
        files,
        group: None,
        cpus: if nodes.len() > 1 { nodes.iter().map(|node| node.cpus.clone()).collect() } else { Vec::new() },
        nodes: nodes.iter().map(|node| node.id).collect(),
        oom_score_adj: 0,
        slow: SLOW,
        blame: asked_to(BLAME)?.then_some(BUDGET),
    };
    let watch = &mut |_: Stage| going();
    let (mut written, mut line) = (Written::default(), Line(Sender::new(Pieces(line))));
    let done = here::execute(&case, &place, RunOn::Vm, Vec::new(), &mut written, &mut line, watch);
    // Nothing is undone: the machine is about to be powered off.
    std::mem::forget(changes);
    done
}

/// Measures what the kernel's work costs on this machine, and sends the record.
fn calibrate(
    line: &File,
    files: &Path,
    changes: Changes,
    going: &dyn Fn() -> ControlFlow<()>,
) -> Result<State, LabError> {
    let calibration = Calibration {
        parent: files.to_path_buf(),
        helper: (PathBuf::from("/init"), vec!["agent".to_owned(), "--reclaim".to_owned()]),
        fresh: true,
        effort: Effort::default(),
    };
    let record = calibration.measure(changes, &mut |_| going())?;
    let Some(record) = record else { return Ok(State::Interrupted) };
    let text = serde_json::to_string(&record).map_err(std::io::Error::from).map_err(calling("the record"))?;
    Sender::new(Pieces(line)).text(&format!("{RECORD}{text}"))?;
    Ok(State::Complete)
}

/// Signals that the host has sent.
#[derive(Debug, Default)]
struct HostSignals {
    /// The host asks the run to end.
    stop: AtomicBool,
    /// The host has taken the last message. Data still on their way when the machine is powered off are lost.
    acknowledged: AtomicBool,
}

impl HostSignals {
    fn wait_for_ack(&self) {
        let deadline = Instant::now() + ACK_TIMEOUT;
        while !self.acknowledged.load(Ordering::Relaxed) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Reads what the host sends.
fn listen(line: &File, signals: &Arc<HostSignals>) -> Result<(), LabError> {
    let mut line = line.try_clone().map_err(calling("dup"))?;
    let signals = Arc::clone(signals);
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok(1) = line.read(&mut byte) {
            match byte {
                [STOP] => signals.stop.store(true, Ordering::Relaxed),
                [ACK] => signals.acknowledged.store(true, Ordering::Relaxed),
                _ => {}
            }
        }
    });
    Ok(())
}

/// Makes the kernel recompute its watermarks and reserves from what its zones manage now, under its present
/// settings: it computed them while it booted, before it freed its initialisation memory. A change of THP
/// recomputes `min_free_kbytes` (`mm/khugepaged.c:set_recommended_min_free_kbytes`). The result depends on
/// the previous watermarks; the third time it no longer does. Older kernels (5.10) do not take back what they
/// have raised for THP: where it is off, they get the value that they booted with.
fn settle(changes: &mut Changes) -> Result<(), LabError> {
    let thp = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    if thp.exists() {
        let min_free = Path::new("/proc/sys/vm/min_free_kbytes");
        let kbytes = || fs::read_to_string(min_free).map_err(at(min_free));
        let (chosen, at_boot) = (here::current(thp)?, kbytes()?);
        for _ in 0..3 {
            fs::write(thp, "never").map_err(at(thp))?;
            fs::write(thp, "madvise").map_err(at(thp))?;
        }
        let raised = kbytes()?;
        changes.set(thp, &chosen)?;
        if chosen == "never" && kbytes()? == raised {
            fs::write(min_free, at_boot).map_err(at(min_free))?;
        }
    }
    let reserve = Path::new("/proc/sys/vm/lowmem_reserve_ratio");
    let ratios = fs::read_to_string(reserve).map_err(at(reserve))?;
    fs::write(reserve, ratios).map_err(at(reserve))
}

/// Tells the kernel whether a disk is rotational. When the kernel finds a virtual disk, it takes it for a
/// rotational one and derives the latency target of writeback throttling from that; -1 makes it derive the
/// target again.
fn kind_of(disk: &str, rotational: bool) -> Result<(), LabError> {
    let queue = Path::new("/sys/block").join(disk).join("queue");
    let path = queue.join("rotational");
    if path.exists() {
        fs::write(&path, if rotational { "1" } else { "0" }).map_err(at(&path))?;
        // A kernel without writeback throttling refuses this.
        let _ = fs::write(queue.join("wbt_lat_usec"), "-1");
    }
    Ok(())
}

/// The priority that zram-generator gives zram, which is above what a kernel gives a disk by itself.
const ZRAM_PRIORITY: u16 = 100;

/// Makes zram of the scenario's size, and swaps to it.
fn zram(swap: &Swap) -> Result<(), LabError> {
    let (block, area) = (Path::new("/sys/block/zram0"), Path::new("/dev/zram0"));
    let set = |file: &str, bytes: u64| {
        let path = block.join(file);
        fs::write(&path, bytes.to_string()).map_err(at(&path))
    };
    set("disksize", swap.size.bytes())?;
    if let Some(limit) = swap.mem_limit {
        set("mem_limit", limit.bytes())?;
    }
    let header = lotsfree_changes::swap_header(swap.size.bytes()).map_err(at(area))?;
    fs::write(area, header).map_err(at(area))?;
    lotsfree_sys::swap_on_with_priority(area, ZRAM_PRIORITY)
        .map_err(calling(format!("swapon {}", area.display())))
}

/// Turns zswap on, with the scenario's parameters. The allocator comes first, so that the pool that
/// is made is of it.
fn zswap(zswap: &Zswap, generation: Generation) -> Result<(), LabError> {
    let parameters = Path::new("/sys/module/zswap/parameters");
    if !parameters.exists() {
        return Err(LabError::Refused("this kernel has no zswap (CONFIG_ZSWAP)".to_owned()));
    }
    let zpool = match zswap.zpool(generation) {
        Zpool::Zbud => "zbud",
        Zpool::Zsmalloc => "zsmalloc",
    };
    let settings = [
        ("zpool", Some(zpool.to_owned())),
        ("max_pool_percent", Some(zswap.max_pool_percent.to_string())),
        ("accept_threshold_percent", zswap.accept_threshold_percent.map(|percent| percent.to_string())),
        ("enabled", Some("Y".to_owned())),
    ];
    for (name, value) in settings.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let path = parameters.join(name);
        fs::write(&path, value).map_err(at(&path))?;
    }
    Ok(())
}

/// Mounts the disk, and enables swap on its other partition, on the second disk or in memory. Returns the
/// directory for files.
fn disks(case: &Case) -> Result<PathBuf, LabError> {
    let machine = &case.machine;
    kind_of("vda", machine.disk.rotational)?;
    if machine.swap.on == SwapOn::Own {
        kind_of("vdb", false)?;
    }
    let parameters = parameters()?;
    let named = |name: &str| {
        let found = parameters.split_ascii_whitespace().find_map(|word| word.strip_prefix(name));
        found.ok_or_else(|| LabError::Refused(format!("no kernel parameter {name}")))
    };
    let (device, kind) = (named(DISK)?, named(FILE_SYSTEM)?);
    let place = "/mnt";
    rustix::mount::mount(device, place, kind, MountFlags::NOATIME, None)
        .map_err(|error| calling(format!("mount {device} as {kind}"))(error.into()))?;
    if let Some(parameters) = machine.swap.zswap() {
        zswap(&parameters, machine.generation)?;
    }
    if machine.swap.is_zram() {
        zram(&machine.swap)?;
    } else if machine.swap.size.0 > lotsfree_units::Bytes::ZERO {
        let area = Path::new(named(SWAP)?);
        lotsfree_sys::swap_on(area).map_err(calling(format!("swapon {}", area.display())))?;
    }
    let files = Path::new(place).join("files");
    fs::create_dir(&files).map_err(at(&files))?;
    Ok(files)
}
