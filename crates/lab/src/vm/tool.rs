//! Programs of the host.

use std::io::{self, Read as _, Write as _};
use std::process::{Command, Stdio};

use super::Error;

/// Runs a program and returns its standard output as text.
///
/// # Errors
/// If it is missing or fails; the error names it and the package to install.
pub fn output(command: &mut Command) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&output_bytes(command)?).into_owned())
}

/// Runs a program and returns its standard output.
///
/// # Errors
/// If it is missing or fails; the error names it and the package to install.
pub fn output_bytes(command: &mut Command) -> Result<Vec<u8>, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| not_started(&program, error))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Failed { program, status: output.status, message });
    }
    Ok(output.stdout)
}

/// Runs a program with this standard input and returns its standard output. A program that writes more than
/// `limit` bytes is killed, and the result is `None`.
///
/// # Errors
/// If it is missing or fails; the error names it and the package to install.
pub(crate) fn filter(command: &mut Command, input: &[u8], limit: u64) -> Result<Option<Vec<u8>>, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| not_started(&program, error))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut output, mut message) = (Vec::new(), String::new());
    let read = std::thread::scope(|scope| {
        scope.spawn(move || {
            // If the program takes no more, its status says why.
            let _ = stdin.map(|mut stdin| stdin.write_all(input));
        });
        let read = stdout.map_or(Ok(0), |stdout| stdout.take(limit + 1).read_to_end(&mut output));
        if read.is_err() || output.len() as u64 > limit {
            // The program may write for ever. Killing it also ends the thread that writes its input.
            let _ = child.kill();
        }
        read
    });
    let _ = stderr.map(|stderr| stderr.take(4096).read_to_string(&mut message));
    let status = child.wait().map_err(Error::io(&program))?;
    read.map_err(Error::io(&program))?;
    if output.len() as u64 > limit {
        return Ok(None);
    }
    if !status.success() {
        return Err(Error::Failed { program, status, message: message.trim().to_owned() });
    }
    Ok(Some(output))
}

/// Decompresses xz data, or returns `None` if the result is longer than `limit` bytes. A header that asks for
/// a dictionary of gigabytes is refused.
///
/// # Errors
/// If there is no `xz`, or the bytes are damaged.
pub(crate) fn unxz(compressed: &[u8], limit: u64) -> Result<Option<Vec<u8>>, Error> {
    let mut command = Command::new("xz");
    command.args(["--decompress", "--stdout", "--single-stream", "--memlimit-decompress=1GiB"]);
    filter(&mut command, compressed, limit)
}

/// A program for the administrator, in `/usr/sbin` or `/sbin`, which are not in everybody's `PATH`.
pub(crate) fn administrative(program: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut path: Vec<_> = std::env::split_paths(&path).collect();
    path.extend(["/usr/sbin".into(), "/sbin".into()]);
    let mut command = Command::new(program);
    if let Ok(path) = std::env::join_paths(path) {
        command.env("PATH", path);
    }
    command
}

/// The error for a program that could not be started, with the package to install.
pub fn not_started(program: &str, error: io::Error) -> Error {
    let package = match program {
        "qemu-system-x86_64" => "qemu-system-x86",
        "xz" => "xz-utils",
        "apt-get" | "apt-cache" => "apt (this needs Debian's package archive)",
        "dpkg" | "dpkg-deb" => "dpkg",
        "sha256sum" => "coreutils",
        "mkfs.ext3" | "mkfs.ext4" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "mkfs.btrfs" => "btrfs-progs",
        other => other,
    };
    Error::NotStarted { program: program.to_owned(), package: package.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let error = not_started("xz", io::ErrorKind::NotFound.into()).to_string();
        assert!(error.ends_with("apt-get install xz-utils"), "{error}");
        let error = output(&mut Command::new("lotsfree-no-such-program")).unwrap_err().to_string();
        assert!(error.starts_with("lotsfree-no-such-program did not start ("), "{error}");
    }

    #[test]
    fn a_bomb_is_not_decompressed_to_its_end() {
        // xz compresses 64 MiB of zeros to 10 KiB.
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 67108864 /dev/zero | xz -0 --stdout"]);
        if Command::new("xz").arg("--version").output().is_err() {
            return;
        }
        let bomb = output_bytes(&mut command).expect("compressed");
        assert!(bomb.len() < 1 << 20);
        assert_eq!(unxz(&bomb, 1 << 20).expect("a filter"), None);
        let error = unxz(&bomb[..1000], 1 << 30).unwrap_err().to_string();
        assert!(error.starts_with("xz: exit status: 1: "), "{error}");
    }

    #[test]
    fn what_fails_says_why() {
        let error = output(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "sh: exit status: 3: no such thing");
        assert_eq!(output(Command::new("sh").args(["-c", "echo fine"])).unwrap(), "fine\n");
    }
}
