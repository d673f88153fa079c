//! The first program of the virtual machines of `tests/vm.rs`, which compile it by itself, linked statically.
//! It reports its findings over the data channel, and powers the machine off.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::raw::{c_char, c_int, c_long, c_ulong, c_void};

extern "C" {
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn swapon(path: *const c_char, flags: c_int) -> c_int;
    fn reboot(command: c_int) -> c_int;
    fn sync();
    fn syscall(number: c_long, ...) -> c_long;
    fn tcgetattr(fd: c_int, terminal: *mut [u8; 64]) -> c_int;
    fn cfmakeraw(terminal: *mut [u8; 64]);
    fn tcsetattr(fd: c_int, when: c_int, terminal: *const [u8; 64]) -> c_int;
}

const FINIT_MODULE: c_long = 313;
const POWER_OFF: c_int = 0x4321_fedc;

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn mounted(kind: &str, source: &str, target: &str) -> bool {
    let (source, target, kind) = (text(source), text(target), text(kind));
    unsafe { mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) == 0 }
}

fn parameter(name: &str) -> Option<String> {
    let line = fs::read_to_string("/proc/cmdline").unwrap();
    line.split_whitespace().find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn main() {
    assert!(mounted("proc", "proc", "/proc") && mounted("sysfs", "sysfs", "/sys"));
    assert!(mounted("devtmpfs", "dev", "/dev"));
    for module in fs::read_to_string("/modules/order").unwrap().lines() {
        let file = File::open(format!("/modules/{module}")).unwrap();
        let done = unsafe { syscall(FINIT_MODULE, file.as_raw_fd(), text("").as_ptr(), 0) };
        assert_eq!(done, 0, "{module}: {}", std::io::Error::last_os_error());
    }
    let mut data = OpenOptions::new().read(true).write(true).open(parameter("lotsfree.data").unwrap()).unwrap();
    let mut terminal = [0; 64];
    unsafe {
        if tcgetattr(data.as_raw_fd(), &mut terminal) == 0 {
            cfmakeraw(&mut terminal);
            assert_eq!(tcsetattr(data.as_raw_fd(), 0, &terminal), 0);
        }
    }

    let task = std::env::args().nth(1).unwrap_or_default();
    match task.as_str() {
        "look" => look(&mut data),
        "write" => {
            assert!(mounted(&parameter("lotsfree.fs").unwrap(), &parameter("lotsfree.disk").unwrap(), "/mnt"));
            for name in ["first", "second"] {
                let started = std::time::Instant::now();
                let mut file = File::create(format!("/mnt/{name}")).unwrap();
                file.write_all(&vec![1; 16 << 20]).unwrap();
                file.sync_all().unwrap();
                writeln!(data, "{}", started.elapsed().as_millis()).unwrap();
                data.read_exact(&mut [0]).unwrap();
            }
        }
        "spin" => {
            let started = std::time::Instant::now();
            let mut sum = 0_u64;
            for number in 0..100_000_000 {
                sum = std::hint::black_box(sum + number);
            }
            writeln!(data, "{}", started.elapsed().as_micros()).unwrap();
            data.read_exact(&mut [0]).unwrap();
        }
        "flood" => {
            let size: usize = std::env::args().nth(2).unwrap().parse().unwrap();
            let bytes: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
            bytes.chunks(4096).for_each(|chunk| data.write_all(chunk).unwrap());
            // The terminal's queue has to be written out before the machine is powered off.
            let _ = data.read(&mut [0]);
        }
        "hang" => loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        },
        "exit" => return,
        other => panic!("{other}?"),
    }
    unsafe {
        sync();
        reboot(POWER_OFF);
    }
}

fn look(data: &mut File) {
    let (disk, kind) = (parameter("lotsfree.disk").unwrap(), parameter("lotsfree.fs").unwrap());
    let files = mounted(&kind, &disk, "/mnt");
    if files {
        fs::write("/mnt/file", vec![7; 1 << 20]).unwrap();
    }
    let swap = parameter("lotsfree.swap").map(|device| unsafe { swapon(text(&device).as_ptr(), 0) == 0 });
    let mut said = format!(
        "release {}\ncase {}\ncpus {}\nfiles {files}\nswap {swap:?}\n",
        read("/proc/sys/kernel/osrelease"),
        read("/case.toml").len(),
        read("/sys/devices/system/cpu/online"),
    );
    for node in 0.. {
        let directory = format!("/sys/devices/system/node/node{node}");
        if !fs::exists(&directory).unwrap() {
            break;
        }
        let (cpus, distance) =
            (read(&format!("{directory}/cpulist")), read(&format!("{directory}/distance")));
        said += &format!("node {node}: cpus {cpus}, distance {distance}\n");
    }
    let root = read("/proc/mounts").lines().next().unwrap_or_default().to_owned();
    said += &format!("root {root}\n{}\n{}\n", read("/proc/partitions"), read("/proc/swaps"));
    said += &format!("up {}\nend\n", read("/proc/uptime"));
    data.write_all(said.as_bytes()).unwrap();
    // Every byte value arrives as it is, in this direction, too.
    let mut order = vec![0; 256];
    data.read_exact(&mut order).unwrap();
    assert!(order.iter().enumerate().all(|(at, byte)| at == usize::from(*byte)));
}
