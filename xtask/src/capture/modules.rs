//! Which kernel modules to load, and in which order, from the modules themselves.
//!
//! A kernel package has no `modules.dep`; `depmod` makes it at installation. Each module names the ones it
//! needs in its `.modinfo` section (`depends=a,b`), which is all that is wanted here.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Result, output_bytes};

/// A module, ready for `insmod`.
pub(super) struct Module {
    /// File name, `virtio_blk.ko`.
    pub file: String,
    /// The ELF object, not compressed.
    pub object: Vec<u8>,
}

/// The modules among `wanted` that this kernel does not have built in, with what they depend on, each after
/// its own dependencies. `directory` is `lib/modules/VERSION`.
///
/// # Errors
///
/// A name that is neither a module nor built in, or a module that cannot be read.
pub(super) fn in_order(directory: &Path, wanted: &[&str]) -> Result<Vec<Module>> {
    let built_in = fs::read_to_string(directory.join("modules.builtin"))?;
    let built_in: Vec<String> = built_in.lines().map(|line| name_of(Path::new(line))).collect();
    let mut available = HashMap::new();
    find(&directory.join("kernel"), &mut available)?;
    let mut loader = Loader { built_in, available, seen: Vec::new(), order: Vec::new() };
    for name in wanted {
        loader.add(name)?;
    }
    Ok(loader.order)
}

struct Loader {
    built_in: Vec<String>,
    available: HashMap<String, PathBuf>,
    seen: Vec<String>,
    order: Vec<Module>,
}

impl Loader {
    fn add(&mut self, name: &str) -> Result<()> {
        let name = name.replace('-', "_");
        if self.built_in.contains(&name) || self.seen.contains(&name) {
            return Ok(());
        }
        let path = self.available.get(&name).ok_or_else(|| format!("no kernel module {name}"))?.clone();
        self.seen.push(name.clone());
        let object = read(&path)?;
        for dependency in depends(&object) {
            self.add(&dependency)?;
        }
        self.order.push(Module { file: format!("{name}.ko"), object });
        Ok(())
    }
}

/// Every module below a directory, by its name.
fn find(directory: &Path, available: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find(&path, available)?;
        } else if entry.file_name().to_string_lossy().contains(".ko") {
            available.insert(name_of(&path), path);
        }
    }
    Ok(())
}

/// `crc32c_generic` of `kernel/crypto/crc32c-generic.ko.xz`. The kernel takes `-` and `_` for the same.
fn name_of(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    file.split(".ko").next().unwrap_or_default().replace('-', "_")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => Ok(fs::read(path)?),
        Some("xz") => output_bytes(Command::new("xz").arg("--decompress").arg("--stdout").arg(path)),
        _ => Err(format!("{}: neither .ko nor .ko.xz", path.display()).into()),
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
        let directory = std::env::temp_dir().join(format!("xtask-modules-{}", std::process::id()));
        fs::create_dir_all(directory.join("kernel/fs")).expect("a directory");
        fs::write(directory.join("modules.builtin"), "kernel/drivers/virtio/virtio.ko\n").expect("written");
        for (name, depends) in
            [("ext4", "jbd2,virtio,mbcache"), ("jbd2", "mbcache"), ("mbcache", ""), ("unused", "")]
        {
            let object = format!("\0depends={depends}\0");
            fs::write(directory.join(format!("kernel/fs/{name}.ko")), object).expect("written");
        }
        let order = in_order(&directory, &["mbcache", "ext4", "virtio"]);
        let missing = in_order(&directory, &["ext5"]).err().map(|error| error.to_string());
        fs::remove_dir_all(&directory).expect("removed");
        let files: Vec<String> = order.expect("an order").into_iter().map(|module| module.file).collect();
        assert_eq!(files, ["mbcache.ko", "jbd2.ko", "ext4.ko"]);
        assert_eq!(missing.as_deref(), Some("no kernel module ext5"));
    }
}
