//! Programs of the host.

use std::io;
use std::process::Command;

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

/// A program that is for the administrator, and which others have, but not in their `PATH`.
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

/// The error of a program that could not be started, with the package to install.
pub fn not_started(program: &str, error: io::Error) -> Error {
    let package = match program {
        "qemu-system-x86_64" => "qemu-system-x86",
        "xz" => "xz-utils",
        "apt-get" | "apt-cache" => "apt (this needs Debian's package archive)",
        "dpkg" | "dpkg-deb" => "dpkg",
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
    fn what_fails_says_why() {
        let error = output(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "sh: exit status: 3: no such thing");
        assert_eq!(output(Command::new("sh").args(["-c", "echo fine"])).unwrap(), "fine\n");
    }
}
