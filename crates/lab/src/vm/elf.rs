//! Whether a program runs where there are no shared libraries.

use std::fs;
use std::path::Path;

use super::Error;

/// What the guest executes: [ELF](https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html) of 64
/// bits, little-endian, for x86-64.
const IDENTITY: &[u8] = b"\x7fELF\x02\x01";
const X86_64: u16 = 62;
/// A program header that names the dynamic linker.
const INTERPRETER: u32 = 3;

/// Reads a program that the guest can execute by itself.
///
/// # Errors
/// If it cannot be read, is no program for x86-64 or needs shared libraries; the error says how to build one
/// that does not.
pub fn read_static(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = fs::read(path).map_err(Error::io(path))?;
    match needs_linker(&bytes) {
        Some(false) => Ok(bytes),
        Some(true) => Err(Error::unusable(
            path,
            "linked to shared libraries, which the virtual machine does not have; build it with \
             RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target \
             x86_64-unknown-linux-gnu",
        )),
        None => Err(Error::unusable(path, "not a program for x86-64")),
    }
}

/// Whether a program names a dynamic linker; `None` if it is no program for x86-64.
fn needs_linker(bytes: &[u8]) -> Option<bool> {
    let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    // e_type: ET_EXEC, or ET_DYN for one that can be loaded anywhere.
    if !bytes.starts_with(IDENTITY) || half(0x12)? != X86_64 || ![2, 3].contains(&half(0x10)?) {
        return None;
    }
    // e_phoff, e_phentsize and e_phnum.
    let (table, size, count) = (usize::try_from(long(0x20)?).ok()?, half(0x36)?, half(0x38)?);
    for number in 0..usize::from(count) {
        let at = table.checked_add(number * usize::from(size))?;
        if at.checked_add(4)? > bytes.len() {
            return None;
        }
        if word(at)? == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(kind: u16, machine: u16, headers: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 0x40];
        bytes[..6].copy_from_slice(IDENTITY);
        bytes[0x10..0x12].copy_from_slice(&kind.to_le_bytes());
        bytes[0x12..0x14].copy_from_slice(&machine.to_le_bytes());
        bytes[0x20] = 0x40;
        bytes[0x36] = 0x38;
        bytes[0x38] = u8::try_from(headers.len()).expect("few");
        for header in headers {
            bytes.extend_from_slice(&header.to_le_bytes());
            bytes.resize(bytes.len() + 0x34, 0);
        }
        bytes
    }

    #[test]
    fn a_program_with_a_linker_is_told_from_one_without() {
        assert_eq!(needs_linker(&program(2, X86_64, &[1, 1])), Some(false));
        assert_eq!(needs_linker(&program(3, X86_64, &[1, 2])), Some(false));
        assert_eq!(needs_linker(&program(3, X86_64, &[6, 3, 1])), Some(true));
        assert_eq!(needs_linker(&program(2, 183, &[1])), None);
        assert_eq!(needs_linker(&program(1, X86_64, &[])), None);
        assert_eq!(needs_linker(b"#!/bin/sh\n"), None);
        let cut = program(2, X86_64, &[1, 1]);
        assert_eq!(needs_linker(&cut[..0x70]), None);
    }

    #[test]
    fn this_test_is_not_static_and_the_error_says_what_to_do() {
        let here = std::env::current_exe().expect("a path");
        if cfg!(target_feature = "crt-static") {
            return;
        }
        let error = read_static(&here).unwrap_err().to_string();
        assert!(error.contains("linked to shared libraries") && error.contains("crt-static"), "{error}");
    }
}
