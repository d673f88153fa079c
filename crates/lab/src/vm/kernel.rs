//! [`Kernel`]: a kernel to boot, and where it is found.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use lotsfree_storage::{self as storage, Access};

use super::packages::by_number;
use super::{Error, trust, vmlinux};

/// The environment variable that names a directory of kernels, instead of the user's cache directory.
const CACHE: &str = "LOTSFREE_LAB_KERNELS";

/// A kernel that can be booted, with its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The bootable image.
    pub image: PathBuf,
    /// The kernel of the image, [decompressed](super::vmlinux): `vmlinux` beside the image.
    pub vmlinux: Option<PathBuf>,
    /// The kernel's release, which `uname -r` prints in the guest.
    pub release: String,
    /// `lib/modules/RELEASE`; `None`: everything is built in.
    pub modules: Option<PathBuf>,
}

impl Kernel {
    /// Finds a kernel by its name:
    ///
    /// - the name of a generation (`linux-6.1`, `linux-6.1+mglru`), a series (`6.1`) or a release
    ///   (`6.1.0-56-amd64`): the newest such kernel in the [cache],
    /// - `host`: the one that runs here,
    /// - a path (with a `/`): an image, or a directory that holds one and its `lib/modules/RELEASE`.
    ///
    /// # Errors
    /// If there is no such kernel; the error says how to get one.
    pub fn find(name: &str) -> Result<Kernel, Error> {
        match name {
            "host" => Kernel::host(&rustix::system::uname().release().to_string_lossy(), Path::new("/")),
            path if path.contains('/') => Kernel::at(Path::new(path)),
            name => Kernel::cached(name, &cache()),
        }
    }

    /// The kernel of an image, or of a directory that holds one.
    ///
    /// # Errors
    /// If the directory holds no image, or the image is not a kernel for a PC; if this is root, and somebody
    /// else could exchange it.
    pub fn at(path: &Path) -> Result<Kernel, Error> {
        let image = if path.is_dir() { image_in(path)? } else { path.to_owned() };
        let image = fs::canonicalize(&image).map_err(Error::io(&image))?;
        let release = release(&image)?;
        let modules = modules_near(&image, &release);
        let vmlinux = Some(image.with_file_name("vmlinux")).filter(|path| path.is_file());
        Ok(Kernel { image, vmlinux, release, modules })
    }

    /// The file that QEMU boots, with its name: the decompressed kernel if QEMU can start it, which is
    /// faster, else the image. QEMU may reopen the file, even as another user. If neither can be taken as it
    /// is, a copy is made in `directory`.
    pub(crate) fn bootable(&self, directory: &Path) -> Result<(String, File), Error> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let made = directory.join("vmlinux");
        let (path, file) = match &self.vmlinux {
            Some(vmlinux) => (vmlinux, trust::open(vmlinux, trust::VMLINUX)?),
            None if vmlinux::extract(&self.image, &made)? => (&made, trust::open(&made, trust::VMLINUX)?),
            None => (&self.image, trust::open(&self.image, trust::IMAGE)?),
        };
        if file.metadata().map_err(Error::io(path))?.mode() & 0o004 != 0 {
            return Ok((name(path), file));
        }
        // Some distributions let only root read their kernels, and QEMU does not run as root.
        let copy = directory.join("kernel");
        let mut to = storage::create_new(&copy, Access::Private).map_err(Error::io(&copy))?;
        io::copy(&mut &file, &mut to).map_err(Error::io(&copy))?;
        Ok((name(path), readable(&copy)?))
    }

    fn host(release: &str, root: &Path) -> Result<Kernel, Error> {
        let places = [
            root.join("boot").join(format!("vmlinuz-{release}")),
            root.join("lib/modules").join(release).join("vmlinuz"),
        ];
        match places.iter().find(|path| path.exists()) {
            Some(path) => Kernel::at(path),
            None => Err(Error::NoKernel {
                name: "host".to_owned(),
                why: format!(
                    "this host has neither {} nor {}; take a generation's kernel, or name an image or a \
                     directory with --kernel PATH",
                    places[0].display(),
                    places[1].display()
                ),
            }),
        }
    }

    fn cached(name: &str, cache: &Path) -> Result<Kernel, Error> {
        let wanted = name.strip_prefix("linux-").unwrap_or(name);
        let wanted = wanted.strip_suffix("+mglru").unwrap_or(wanted);
        let of_series = |release: &str| {
            let rest = release.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
        };
        let names = fs::read_dir(cache).into_iter().flatten().flatten();
        let releases = names.filter_map(|entry| entry.file_name().into_string().ok());
        match releases.filter(|release| of_series(release)).max_by(|a, b| by_number(a, b)) {
            Some(release) => Kernel::at(&cache.join(release)),
            None => Err(Error::NoKernel {
                name: name.to_owned(),
                why: format!(
                    "there is none in {}; `lotsfree lab kernel {wanted}` downloads Debian's (it packages 6.1 \
                     and 6.12), or make a directory RELEASE with vmlinuz and lib/modules/RELEASE, or \
                     name one with --kernel PATH",
                    cache.display()
                ),
            }),
        }
    }
}

/// Opens a file of this process for a user that may not enter its directory, and lets everybody read the
/// file.
pub(crate) fn readable(path: &Path) -> Result<File, Error> {
    let file = storage::open_regular(path).map_err(Error::io(path))?;
    file.set_permissions(Permissions::from_mode(0o444)).map_err(Error::io(path))?;
    Ok(file)
}

/// The directory of kernels: `$LOTSFREE_LAB_KERNELS`, else `lotsfree/kernels` in the user's cache directory
/// ([`XDG_CACHE_HOME`](https://specifications.freedesktop.org/basedir-spec/latest/)). It has a directory for
/// each release, with `vmlinuz`, `lib/modules/RELEASE`, and `vmlinux` for a faster boot.
pub fn cache() -> PathBuf {
    let named = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(directory) = named(CACHE) {
        return directory.into();
    }
    let user = named("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let user = user.or_else(|| Some(Path::new(&named("HOME")?).join(".cache")));
    user.unwrap_or_else(|| PathBuf::from("/var/cache")).join("lotsfree/kernels")
}

/// The newest image in a directory, or in its `boot`.
fn image_in(directory: &Path) -> Result<PathBuf, Error> {
    let mut images = Vec::new();
    for place in [directory.to_owned(), directory.join("boot")] {
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("vmlinuz") || name == "bzImage" {
                images.push((name, entry.path()));
            }
        }
    }
    let newest = images.into_iter().max_by(|(a, _), (b, _)| by_number(a, b));
    let (_, path) = newest.ok_or_else(|| {
        Error::unusable(directory, "no kernel: neither vmlinuz, vmlinuz-RELEASE nor bzImage")
    })?;
    Ok(path)
}

/// The modules of an image: `lib/modules/RELEASE` beside the image or one directory above, or the image's own
/// directory if that holds modules.
fn modules_near(image: &Path, release: &str) -> Option<PathBuf> {
    let beside = image.parent()?;
    let below = |root: &Path| {
        ["lib/modules", "usr/lib/modules"].map(|modules| root.join(modules).join(release)).into_iter()
    };
    let mut places = below(beside).chain(beside.parent().into_iter().flat_map(below));
    let found = places.find(|path| path.is_dir());
    // Fedora has the image among its modules.
    found.or_else(|| beside.join("modules.builtin").exists().then(|| beside.to_owned()))
}

/// The release from the header of a bzImage, which `Documentation/arch/x86/boot.rst` of the kernel describes:
/// `HdrS` is at 0x202, and the offset of the version's text, less 0x200, is at 0x20e.
fn release(image: &Path) -> Result<String, Error> {
    let mut head = Vec::new();
    let file = trust::open(image, trust::IMAGE)?;
    file.take(1 << 17).read_to_end(&mut head).map_err(Error::io(image))?;
    release_in(&head).ok_or_else(|| Error::unusable(image, "not a kernel image for a PC (bzImage)"))
}

fn release_in(head: &[u8]) -> Option<String> {
    if head.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let at = usize::from(u16::from_le_bytes([*head.get(0x20e)?, *head.get(0x20f)?])) + 0x200;
    let text = head.get(at..)?.split(|&byte| byte == 0 || byte == b' ').next()?;
    let release = std::str::from_utf8(text).ok()?;
    (!release.is_empty() && !release.contains('/')).then(|| release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(release: &str) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x80_u16.to_le_bytes());
        bytes.splice(0x280..0x280, format!("{release} (somebody@somewhere) #1 SMP\0").bytes());
        bytes
    }

    fn put(cache: &Path, directory: &str, release: &str) {
        let directory = cache.join(directory);
        fs::create_dir_all(directory.join("lib/modules").join(release)).expect("made");
        fs::write(directory.join("vmlinuz"), image(release)).expect("written");
    }

    #[test]
    fn the_release_is_read_from_the_image() {
        assert_eq!(release_in(&image("6.1.0-56-amd64")).as_deref(), Some("6.1.0-56-amd64"));
        assert_eq!(release_in(&image("")), None);
        assert_eq!(release_in(&image("../..")), None);
        assert_eq!(release_in(b"\x7fELF"), None);
        assert_eq!(release_in(&[0; 0x400]), None);
    }

    #[test]
    fn a_generation_means_the_newest_of_its_series() {
        let cache = tempfile::tempdir().expect("a directory");
        let cache = cache.path();
        for release in ["6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.117+deb12-amd64", "6.10.1"] {
            put(cache, release, release);
        }
        let found = |name: &str| Kernel::cached(name, cache).map(|kernel| kernel.release);
        for name in ["linux-6.1", "linux-6.1+mglru", "6.1", "6.1.0", "6.1.0-56-amd64"] {
            assert_eq!(found(name).expect(name), "6.1.0-56-amd64");
        }
        assert_eq!(found("6.1.0-9-amd64").expect("there"), "6.1.0-9-amd64");
        let newer = Kernel::cached("linux-6.12", cache).expect("there");
        assert_eq!(newer.release, "6.12.117+deb12-amd64");
        assert!(newer.modules.expect("there").ends_with("lib/modules/6.12.117+deb12-amd64"));
        let error = found("linux-3.10").unwrap_err().to_string();
        assert!(error.starts_with("no kernel linux-3.10: there is none in "), "{error}");
        assert!(error.contains("lotsfree lab kernel 3.10"), "{error}");
    }

    #[test]
    fn an_image_is_found_by_its_path_or_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        fs::create_dir_all(root.join("boot")).expect("made");
        fs::write(root.join("boot/vmlinuz-6.1.9"), image("6.1.9")).expect("written");
        fs::write(root.join("boot/vmlinuz-6.1.56"), image("6.1.56")).expect("written");
        fs::create_dir_all(root.join("usr/lib/modules/6.1.56")).expect("made");
        let newest = Kernel::at(root).expect("there");
        assert_eq!(newest.release, "6.1.56");
        assert!(newest.modules.as_ref().is_some_and(|path| path.ends_with("usr/lib/modules/6.1.56")));
        assert_eq!(Kernel::at(&root.join("boot/vmlinuz-6.1.56")).expect("there"), newest);
        assert_eq!(Kernel::at(&root.join("boot/vmlinuz-6.1.9")).expect("there").modules, None);
        assert_eq!(Kernel::host("6.1.56", root).expect("there"), newest);

        fs::write(root.join("text"), "no kernel").expect("written");
        let error = Kernel::at(&root.join("text")).unwrap_err().to_string();
        assert!(error.ends_with("text: not a kernel image for a PC (bzImage)"), "{error}");
        let error = Kernel::at(&root.join("usr")).unwrap_err().to_string();
        assert!(error.ends_with("usr: no kernel: neither vmlinuz, vmlinuz-RELEASE nor bzImage"), "{error}");
        let error = Kernel::host("5.5.5", root).unwrap_err().to_string();
        assert!(error.starts_with("no kernel host: this host has neither "), "{error}");
    }
}
