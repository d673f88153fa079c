//! Decides which kernel modules to load, and in which order, from the modules themselves.
//!
//! A kernel package has no `modules.dep`; `depmod` makes that at installation. Each module names the ones
//! that it needs in its `.modinfo` section (`depends=a,b`), which is enough here.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, tool, trust};

/// A module, ready for `insmod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// File name, `virtio_blk.ko`.
    pub file: String,
    /// The ELF object, not compressed.
    pub object: Vec<u8>,
}

/// The modules among `wanted` that this kernel does not have built in, and those that they depend on, each
/// after its own dependencies. `directory` is `lib/modules/RELEASE`.
///
/// # Errors
/// If a name is neither a module nor built in, or a module cannot be read.
pub fn in_order(directory: &Path, wanted: &[&str]) -> Result<Vec<Module>, Error> {
    let mut loader = Loader::new(directory)?;
    for name in wanted {
        loader.add(name)?;
    }
    Ok(loader.order)
}

/// The modules of a kernel, and those among them that are to be loaded.
#[derive(Debug)]
pub struct Loader {
    directory: PathBuf,
    built_in: Vec<String>,
    available: HashMap<String, PathBuf>,
    seen: Vec<String>,
    order: Vec<Module>,
}

impl Loader {
    /// Lists the modules of a kernel. `directory` is `lib/modules/RELEASE`; a kernel that has everything
    /// built in has no `kernel` below it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn new(directory: &Path) -> Result<Loader, Error> {
        let list = directory.join("modules.builtin");
        let built_in = trust::read(&list, trust::LIST)?;
        let built_in = String::from_utf8_lossy(&built_in);
        let built_in = built_in.lines().map(|line| name_of(Path::new(line))).collect();
        let mut available = HashMap::new();
        let files = directory.join("kernel");
        if files.exists() {
            find(&files, &mut available)?;
        }
        let directory = directory.to_owned();
        Ok(Loader { directory, built_in, available, seen: Vec::new(), order: Vec::new() })
    }

    /// Whether the kernel has a module of this name, as a file or built in.
    pub fn has(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        self.built_in.contains(&name) || self.available.contains_key(&name)
    }

    /// Adds a module and those that it depends on, unless they are built in or added already.
    ///
    /// # Errors
    /// If the kernel lacks one of them, or one cannot be read.
    pub fn add(&mut self, name: &str) -> Result<(), Error> {
        let name = name.replace('-', "_");
        if self.built_in.contains(&name) || self.seen.contains(&name) {
            return Ok(());
        }
        let Some(path) = self.available.get(&name) else {
            return Err(Error::NoModule { directory: self.directory.clone(), name });
        };
        let object = read(path, trust::MODULE)?;
        self.seen.push(name.clone());
        for dependency in depends(&object) {
            self.add(&dependency)?;
        }
        self.order.push(Module { file: format!("{name}.ko"), object });
        Ok(())
    }

    /// The modules that were added, each after those that it depends on.
    pub fn into_order(self) -> Vec<Module> {
        self.order
    }
}

/// Every module below a directory, by its name.
fn find(directory: &Path, available: &mut HashMap<String, PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(directory).map_err(Error::io(directory))? {
        let entry = entry.map_err(Error::io(directory))?;
        let path = entry.path();
        if entry.file_type().map_err(Error::io(&path))?.is_dir() {
            find(&path, available)?;
        } else if entry.file_name().to_string_lossy().contains(".ko") {
            available.insert(name_of(&path), path);
        }
    }
    Ok(())
}

/// Name of a module: `crc32c_generic` for `kernel/crypto/crc32c-generic.ko.xz`. The kernel does not
/// distinguish `-` and `_`.
fn name_of(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    file.split(".ko").next().unwrap_or_default().replace('-', "_")
}

/// Reads a module of at most `limit` bytes, decompressed if its name ends in `.xz` or `.zst`.
fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => trust::read(path, limit),
        Some("xz") => {
            let object = tool::unxz(&trust::read(path, limit)?, limit)?;
            object.ok_or_else(|| trust::too_long(path, limit))
        }
        Some("zst") => {
            let decoder = zstd::stream::read::Decoder::new(trust::open(path, limit)?);
            trust::decompressed(path, decoder.map_err(Error::io(path))?, limit)
        }
        _ => Err(Error::unusable(path, "neither .ko nor .ko.xz nor .ko.zst")),
    }
}

/// The names in the module's `depends=` tag. Tags of `.modinfo` are separated by NUL bytes.
fn depends(object: &[u8]) -> Vec<String> {
    let tag = object.split(|&byte| byte == 0).find_map(|tag| tag.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(tag.unwrap_or_default());
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn depends_is_found_between_nul_bytes() {
        assert_eq!(
            depends(b"\x7fELF\0license=GPL\0depends=mbcache,jbd2\0retpoline=Y\0"),
            ["mbcache", "jbd2"]
        );
        assert!(depends(b"\x7fELF\0depends=\0intree=Y\0").is_empty());
        assert!(depends(b"\x7fELF\0xdepends=a\0").is_empty());
    }

    #[test]
    fn a_module_has_one_name() {
        assert_eq!(name_of(Path::new("kernel/arch/x86/crypto/crc32c-intel.ko.xz")), "crc32c_intel");
        assert_eq!(name_of(Path::new("kernel/fs/ext4/ext4.ko")), "ext4");
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path();
        fs::create_dir_all(directory.join("kernel/fs")).expect("a directory");
        fs::write(directory.join("modules.builtin"), "kernel/drivers/virtio/virtio.ko\n").expect("written");
        for (name, depends) in
            [("ext4", "jbd2,virtio,mbcache"), ("jbd2", "mbcache"), ("mbcache", ""), ("unused", "")]
        {
            let object = format!("\0depends={depends}\0");
            fs::write(directory.join(format!("kernel/fs/{name}.ko")), object).expect("written");
        }
        let order = in_order(directory, &["mbcache", "ext4", "virtio"]).expect("an order");
        let files: Vec<String> = order.into_iter().map(|module| module.file).collect();
        assert_eq!(files, ["mbcache.ko", "jbd2.ko", "ext4.ko"]);
        let missing = in_order(directory, &["ext5"]).unwrap_err().to_string();
        assert_eq!(missing, format!("{}: no kernel module ext5", directory.display()));
        let loader = Loader::new(directory).expect("readable");
        assert!(loader.has("virtio") && loader.has("ext4") && !loader.has("ext5"));
    }

    #[test]
    fn modules_are_decompressed_as_their_names_say() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let object = vec![b'o'; 4096];
        fs::write(path("a.ko"), &object).expect("written");
        fs::write(path("a.ko.zst"), zstd::encode_all(&object[..], 1).expect("short")).expect("written");
        assert_eq!(read(&path("a.ko"), 4096).expect("read"), object);
        assert_eq!(read(&path("a.ko.zst"), 4096).expect("read"), object);
        if let Ok(xz) = tool::output_bytes(Command::new("xz").arg("--stdout").arg(path("a.ko"))) {
            fs::write(path("a.ko.xz"), xz).expect("written");
            assert_eq!(read(&path("a.ko.xz"), 4096).expect("read"), object);
            assert!(read(&path("a.ko.xz"), 4095).is_err());
        }
        for name in ["a.ko", "a.ko.zst"] {
            let error = read(&path(name), 4095).unwrap_err().to_string();
            assert!(error.contains(": longer than "), "{error}");
        }
        fs::write(path("a.ko.lz"), "").expect("written");
        let error = read(&path("a.ko.lz"), 4096).unwrap_err().to_string();
        assert!(error.ends_with("a.ko.lz: neither .ko nor .ko.xz nor .ko.zst"), "{error}");
    }
}
