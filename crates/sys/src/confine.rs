//! [`Confinement`]: restricts a program that is started.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The number of capabilities that there could be: their sets have 64 bits.
const CAPABILITIES: libc::c_ulong = 64;
/// `_LINUX_CAPABILITY_VERSION_3`: two words for each set.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// A user and a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// A resource of a process that can be limited (`setrlimit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of its address space.
    AddressSpace,
    /// Bytes of a core dump.
    Core,
    /// Bytes of a file that it writes. A write beyond them fails with `EFBIG`, without a signal.
    FileSize,
    /// Open files.
    Files,
}

impl Limit {
    fn resource(self) -> libc::__rlimit_resource_t {
        match self {
            Limit::AddressSpace => libc::RLIMIT_AS,
            Limit::Core => libc::RLIMIT_CORE,
            Limit::FileSize => libc::RLIMIT_FSIZE,
            Limit::Files => libc::RLIMIT_NOFILE,
        }
    }
}

/// Restrictions on a program that is started. Apart from the fields, the program has no capability, gains no
/// privilege by executing another program, gets no file that was not meant for it, and is killed when the
/// thread that started it ends.
#[derive(Debug, Default)]
pub struct Confinement {
    /// The user that it runs as; `None`: that of this process.
    pub user: Option<User>,
    /// The program's limits. A lower limit that this process has already stays.
    pub limits: Vec<(Limit, u64)>,
    /// Files that it gets beside the standard streams, under the numbers that they have here.
    pub files: Vec<OwnedFd>,
}

impl Confinement {
    /// Confines the program that the command starts. In this process, the files are closed when the command
    /// is dropped.
    pub fn apply(self, command: &mut Command) {
        let Confinement { user, limits, files } = self;
        let parent = Parent::this();
        let confine = move || {
            let files = &files;
            open_only(files)?;
            limits.iter().try_for_each(|&(limit, value)| set_limit(limit, value))?;
            drop_bounding_set();
            if let Some(user) = &user {
                become_user(user)?;
            }
            drop_capabilities()?;
            // SAFETY: numbers only.
            check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
            die_with(&parent)
        };
        // SAFETY: the closure runs in the child between fork and exec. It makes system calls with numbers and
        // with memory that was allocated before, and neither allocates nor takes a lock.
        unsafe { command.pre_exec(confine) };
    }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Leaves only the standard streams and `files` open for the program.
fn open_only(files: &[OwnedFd]) -> io::Result<()> {
    // Kernels before 5.11 do not have this flag; there, files that were inherited without FD_CLOEXEC stay
    // open. SAFETY: numbers only; nothing is closed before the exec.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3 as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC as libc::c_uint,
        )
    };
    files.iter().try_for_each(|file| {
        let number: RawFd = file.as_raw_fd();
        // SAFETY: numbers only, of a file that is open.
        check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }.into())
    })
}

fn set_limit(limit: Limit, value: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to a local variable of that type.
    check(unsafe { libc::getrlimit(limit.resource(), &raw mut now) }.into())?;
    let value = value.min(now.rlim_max);
    let new = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: reads a local variable of that type.
    check(unsafe { libc::setrlimit(limit.resource(), &raw const new) }.into())?;
    if limit == Limit::FileSize {
        // SAFETY: no handler is set; an ignored signal stays ignored over exec.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
    Ok(())
}

/// Drops all capabilities from the bounding set. Errors are ignored: a process that may not do this has no
/// capability to lose.
fn drop_bounding_set() {
    for capability in 0..CAPABILITIES {
        // SAFETY: numbers only. Fails for a capability that the kernel does not know, and without
        // CAP_SETPCAP.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// Changes the user by the system calls themselves. The C library's functions of these names make all threads
/// do it, but a child has only one thread.
fn become_user(user: &User) -> io::Result<()> {
    let User { user, group, groups } = user;
    // SAFETY: the list has the length that is given.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: numbers only.
    check(unsafe { libc::syscall(libc::SYS_setresgid, *group, *group, *group) })?;
    // SAFETY: numbers only.
    check(unsafe { libc::syscall(libc::SYS_setresuid, *user, *user, *user) })
}

fn drop_capabilities() -> io::Result<()> {
    // SAFETY: numbers only. Kernels before 4.3 have no such set.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    // The version, and the process: 0 stands for this one.
    let header: [u32; 2] = [CAPABILITY_VERSION, 0];
    let none = [0_u32; 6];
    // SAFETY: `struct __user_cap_header_struct` is two words, `__user_cap_data_struct` three, twice.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })
}

/// The process that starts a program.
struct Parent {
    id: libc::pid_t,
    /// A pipe, of which only that process keeps the end that writes.
    alive: Option<(OwnedFd, OwnedFd)>,
}

impl Parent {
    fn this() -> Self {
        // SAFETY: takes nothing.
        let id = unsafe { libc::getpid() };
        Parent { id, alive: rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok() }
    }

    /// Whether it still runs, asked by its child.
    fn lives(&self) -> bool {
        // SAFETY: takes nothing.
        match unsafe { libc::getppid() } {
            // The parent's number is none in the namespace of this process.
            0 => self.alive.as_ref().is_some_and(|(read, write)| {
                // SAFETY: the child's copy, which nobody else in it uses; the parent's stays open.
                unsafe { libc::close(write.as_raw_fd()) };
                let mut asked = libc::pollfd { fd: read.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one record, a local variable.
                unsafe { libc::poll(&raw mut asked, 1, 0) == 0 }
            }),
            parent => parent == self.id,
        }
    }
}

fn die_with(parent: &Parent) -> io::Result<()> {
    // SAFETY: numbers only. After the change of user, which would clear it.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.into())?;
    if parent.lives() {
        Ok(())
    } else {
        // The parent ended before the signal was asked for.
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Puts the next process that this thread starts into a process namespace of its own: all processes that it
/// starts in turn are killed when it ends. A thread can do this once.
///
/// # Errors
/// The kernel's (`unshare` with `CLONE_NEWPID`): this needs `CAP_SYS_ADMIN`.
pub fn next_process_apart() -> io::Result<()> {
    // SAFETY: a number only; the namespace of children touches no memory of this process.
    check(unsafe { libc::unshare(libc::CLONE_NEWPID) }.into())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek as _, Write as _};

    use super::*;

    fn status(confinement: Confinement, script: &str) -> String {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        confinement.apply(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn line<'a>(text: &'a str, name: &str) -> &'a str {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).trim()
    }

    #[test]
    fn a_confined_program_has_no_privilege_and_gains_none() {
        let text = status(Confinement::default(), "cat /proc/self/status");
        assert_eq!(line(&text, "NoNewPrivs:"), "1");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(line(&text, set), "0000000000000000", "{set}");
        }
        if rustix::process::geteuid().is_root() {
            assert_eq!(line(&text, "CapBnd:"), "0000000000000000");
        }
    }

    #[test]
    fn another_user_is_in_no_group_of_this_one() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let user = Some(User { user: 1_879_048_193, group: 1_879_048_194, groups: vec![] });
        let text = status(Confinement { user, ..Confinement::default() }, "cat /proc/self/status");
        assert_eq!(line(&text, "Uid:"), ["1879048193"; 4].join("\t"));
        assert_eq!(line(&text, "Gid:"), ["1879048194"; 4].join("\t"));
        assert_eq!(line(&text, "Groups:"), "");
    }

    #[test]
    fn what_a_program_leaves_behind_is_killed_with_its_namespace() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let started = std::thread::spawn(|| {
            next_process_apart().unwrap();
            let text = status(Confinement::default(), "echo $$; sleep 600 &");
            (text, next_process_apart().is_err())
        });
        let (text, refused) = started.join().unwrap();
        assert!(text.starts_with("1\n"), "{text}");
        assert!(refused, "a thread makes one namespace");
        // `output` reads to the end of the pipe that the sleeping process held, so it is gone.
    }

    #[test]
    fn limits_hold_and_a_file_that_grows_too_long_is_an_error() {
        let limits = vec![(Limit::Core, 0), (Limit::FileSize, 4096), (Limit::Files, 32)];
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!(
            "cat /proc/self/limits; dd if=/dev/zero of={} bs=4096 count=2 2>&1 && exit 1; exit 0",
            file.path().display()
        );
        let text = status(Confinement { limits, ..Confinement::default() }, &script);
        let limit = |name: &str| line(&text, name).split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        assert_eq!(limit("Max core file size"), "0 0");
        assert_eq!(limit("Max file size"), "4096 4096");
        assert_eq!(limit("Max open files"), "32 32");
        assert!(text.contains("File too large"), "{text}");
        assert_eq!(file.as_file().metadata().unwrap().len(), 4096);
    }

    #[test]
    fn only_files_that_were_meant_for_it_are_open() {
        let mut given = tempfile::tempfile().unwrap();
        given.write_all(b"given").unwrap();
        given.rewind().unwrap();
        // A file that stays open over exec, like one that a shell has left open.
        let stray = File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
        let (number, other) = (given.as_raw_fd(), stray.as_raw_fd());
        // Paths, because the redirections of shells take numbers of one digit only.
        let script = format!("cat /proc/self/fd/{number}; test ! -e /proc/self/fd/{other}");
        let files = vec![OwnedFd::from(given)];
        assert_eq!(status(Confinement { files, ..Confinement::default() }, &script), "given");
    }
}
