//! [`Build`]: a copy of a kernel's source, in which it is configured and built.
//!
//! The compiler of today is told to take the C of the time ([`C_OF_THE_TIME`]). One file may be added to the
//! copy: Linux before 4.2 has a header for each major version of gcc, so a newer gcc gets one that includes
//! the newest there is.

use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lotsfree_lab::vm::tool;

use super::options::{self, Unmet};
use super::source::{Source, Version, declared};

/// Programs that a build calls, with their Debian packages. bc is for `kernel/timeconst`, perl for tables of
/// CPU features in old kernels.
const PROGRAMS: [(&str, &str); 9] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("perl", "perl"),
    ("awk", "mawk"),
    ("gzip", "gzip"),
];
/// From here on every kernel needs objtool, which is compiled with libelf.
const NEEDS_LIBELF: (u32, u32) = (5, 10);

/// Options of gcc with which it compiles kernels before [`OF_TODAY`]. gcc takes C17 since version 8, and
/// distributions configure it for position-independent programs, control-flow protection and stack
/// protectors, of which old makefiles do not know. Since version 10, variables without initial values are not
/// common. Version 12 makes vector instructions of more loops; 3.11.1 does not forbid them to the code that
/// decompresses the kernel, where they reset the machine. Warnings are about code that nobody will change,
/// and some makefiles make errors of them.
const C_OF_THE_TIME: &str = "-std=gnu89 -fno-pie -no-pie -fcf-protection=none -fno-stack-protector -fcommon \
                             -mno-mmx -mno-sse -w";
/// Before [`NAMED_HANDLERS`] the table of early interrupt handlers rests on jumps to global symbols that take
/// five bytes each. The assembler of today makes shorter ones, unless the code may go into a shared library.
const LONG_JUMPS: &str = "-Wa,-mshared";
/// The table has a size of its own from here on (425be5679fd2).
const NAMED_HANDLERS: (u32, u32) = (4, 1);
/// The same for programs that the build runs on this machine.
const HOST_C_OF_THE_TIME: &str = "-fcommon -w";
/// The kernel is C11 from here on, and its makefiles know compilers of distributions.
const OF_TODAY: (u32, u32) = (5, 18);

/// Most lines of the log that an error shows.
const SHOWN: usize = 12;

/// Checks that everything that a build calls is there.
///
/// # Errors
/// Names what is missing, and the packages that have it.
pub(super) fn check_tools(version: &Version) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut missing = missing_programs(&path);
    if version.at_least(NEEDS_LIBELF) && missing.is_empty() && !has_header("libelf.h") {
        missing.push(("libelf.h", "libelf-dev"));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let (names, packages): (Vec<&str>, Vec<&str>) = missing.into_iter().unzip();
    let (names, packages) = (names.join(", "), packages.join(" "));
    Err(format!("missing: {names}; install with apt-get install --no-install-recommends {packages}"))
}

/// The programs that are in no directory of a search path.
fn missing_programs(path: &OsStr) -> Vec<(&'static str, &'static str)> {
    let there = |program: &str| std::env::split_paths(path).any(|place| place.join(program).is_file());
    PROGRAMS.into_iter().filter(|(program, _)| !there(program)).collect()
}

/// Whether gcc finds a header.
fn has_header(name: &str) -> bool {
    let mut gcc = Command::new("gcc");
    gcc.args(["-fsyntax-only", "-include", name, "-x", "c", "/dev/null"]).stderr(Stdio::null());
    gcc.status().is_ok_and(|status| status.success())
}

/// A copy of a kernel's source.
pub(super) struct Build<'a> {
    version: &'a Version,
    /// The copy.
    tree: PathBuf,
    log: PathBuf,
}

impl<'a> Build<'a> {
    /// Copies the source into the directory `work`, without what the user has built in it.
    ///
    /// # Errors
    /// If it cannot be copied or cleaned.
    pub(super) fn prepare(source: &'a Source, work: &Path) -> Result<Self, Box<dyn Error>> {
        let build = Build { version: &source.version, tree: work.join("source"), log: work.join("log") };
        fs::create_dir(&build.tree)?;
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--reflink=auto", "--"]);
        for entry in fs::read_dir(&source.directory)? {
            let entry = entry?;
            if entry.file_name() != ".git" {
                copy.arg(entry.path());
            }
        }
        tool::output(copy.arg(&build.tree))?;
        build.make(&["mrproper"])?;
        let gcc = tool::output(Command::new("gcc").arg("-dumpversion"))?;
        build.add_compiler_header(gcc.trim())?;
        Ok(build)
    }

    /// Adds the header for this gcc, if the kernel wants one and has none.
    fn add_compiler_header(&self, gcc: &str) -> Result<(), Box<dyn Error>> {
        let directory = self.tree.join("include/linux");
        let names = fs::read_dir(&directory)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        if let Some((name, text)) = compiler_header(&names.collect::<Vec<_>>(), gcc) {
            eprintln!("adding include/linux/{name}, which includes that of the newest gcc this kernel knows");
            fs::write(directory.join(name), text)?;
        }
        Ok(())
    }

    /// Writes the kernel's configuration, and says which options this kernel does not have.
    ///
    /// # Errors
    /// If the kernel refuses an option that it has.
    pub(super) fn configure(&self) -> Result<(), Box<dyn Error>> {
        let wanted = self.log.with_file_name("wanted.config");
        fs::write(&wanted, options::file(self.version))?;
        self.make(&[&format!("KCONFIG_ALLCONFIG={}", wanted.display()), "allnoconfig"])?;
        let config = fs::read_to_string(self.tree.join(".config"))?;
        let Unmet { refused, unknown } = options::unmet(self.version, &config, &declared(&self.tree)?);
        if !refused.is_empty() {
            let refused = refused.join(", ");
            return Err(format!("the kernel refuses {refused}; look for what these depend on").into());
        }
        if !unknown.is_empty() {
            eprintln!("options that this kernel does not have: {}", unknown.join(", "));
        }
        Ok(())
    }

    /// Builds the kernel, which takes some minutes.
    ///
    /// # Errors
    /// If it does not compile.
    pub(super) fn compile(&self) -> Result<(), Box<dyn Error>> {
        self.make(&["bzImage"])
    }

    /// The bootable image.
    pub(super) fn image(&self) -> PathBuf {
        self.tree.join("arch/x86/boot/bzImage")
    }

    /// The kernel of the image without its symbols, if it has an entry at which QEMU can start it.
    pub(super) fn vmlinux(&self) -> Option<PathBuf> {
        let entered = options::of(self.version).any(|option| option.is_named("PVH"));
        entered.then(|| self.tree.join("arch/x86/boot/compressed/vmlinux.bin"))
    }

    /// Runs make in the copy. Nothing of the user's environment but the search path decides what is built.
    fn make(&self, targets: &[&str]) -> Result<(), Box<dyn Error>> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.env_clear().env("LC_ALL", "C");
        make.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        make.current_dir(&self.tree).arg(format!("-j{cpus}")).arg("ARCH=x86_64");
        // The release is the version, whatever git or the makefile says of the tree.
        make.arg("LOCALVERSION=").arg(format!("EXTRAVERSION={}", self.version.candidate()));
        make.args(["KBUILD_BUILD_USER=lotsfree", "KBUILD_BUILD_HOST=lotsfree"]);
        if !self.version.at_least(OF_TODAY) {
            let jumps = if self.version.at_least(NAMED_HANDLERS) { "" } else { LONG_JUMPS };
            make.arg(format!("CC=gcc {C_OF_THE_TIME} {jumps}"))
                .arg(format!("HOSTCC=gcc {HOST_C_OF_THE_TIME}"));
            // objtool and its library make errors of warnings by flags of their own.
            make.arg("WERROR=0");
        }
        make.args(targets).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let status = make.status()?;
        if status.success() {
            return Ok(());
        }
        let text = fs::read(&self.log)?;
        let (target, log) = (targets.last().unwrap_or(&""), self.log.display());
        let why = errors(&String::from_utf8_lossy(&text));
        Err(format!("make {target} failed; {log} has all that it printed\n{why}").into())
    }
}

/// The header that a kernel needs for a gcc of this version, with its contents, if it has a header for each
/// version but not for this one. `names` are those of `include/linux`.
fn compiler_header(names: &[String], gcc: &str) -> Option<(String, String)> {
    let known = names.iter().filter_map(|name| {
        let version = name.strip_prefix("compiler-gcc")?.strip_suffix(".h")?;
        version.parse::<u32>().ok()
    });
    let newest = known.max()?;
    let major = gcc.split('.').next()?.parse::<u32>().ok().filter(|major| *major > newest)?;
    let text = format!("#include <linux/compiler-gcc{newest}.h>\n");
    Some((format!("compiler-gcc{major}.h"), text))
}

/// The lines of a log that say what went wrong, or its last ones.
fn errors(log: &str) -> String {
    let says = |line: &&str| ["error:", "undefined reference", "*** "].iter().any(|word| line.contains(word));
    let mut lines: Vec<&str> = log.lines().filter(says).take(SHOWN).collect();
    if lines.is_empty() {
        lines = log.lines().collect();
        lines.drain(..lines.len().saturating_sub(SHOWN));
    }
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_gcc_gets_the_newest_header() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let old = names(&["compiler.h", "compiler-gcc.h", "compiler-gcc3.h", "compiler-gcc4.h"]);
        let (name, text) = compiler_header(&old, "12").expect("a header");
        assert_eq!(name, "compiler-gcc12.h");
        assert_eq!(text, "#include <linux/compiler-gcc4.h>\n");
        assert_eq!(compiler_header(&old, "12.2.0"), Some((name, text)));
        assert_eq!(compiler_header(&old, "4.9.2"), None);
        assert_eq!(compiler_header(&names(&["compiler.h", "compiler-gcc.h"]), "12"), None);
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let directory = tempfile::tempdir().expect("a directory");
        for (program, _) in PROGRAMS.iter().filter(|(program, _)| *program != "ld") {
            fs::write(directory.path().join(program), "").expect("written");
        }
        assert_eq!(missing_programs(directory.path().as_os_str()), [("ld", "binutils")]);
        assert_eq!(missing_programs(OsStr::new("")).len(), PROGRAMS.len());
    }

    #[test]
    fn an_error_shows_what_the_compiler_said() {
        let log = "  CC x.o\nx.c:1: error: no\nmake: *** [x.o] Error 1\n  CC y.o\n";
        assert_eq!(errors(log), "  x.c:1: error: no\n  make: *** [x.o] Error 1\n");
        let long: String = (0..20).map(|number| format!("line {number}\n")).collect();
        assert_eq!(errors(&long).lines().next(), Some("  line 8"));
    }
}
