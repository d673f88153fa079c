//! Reads a program for the guest, which has no shared libraries.

use std::path::Path;

use super::{Error, trust};

/// First bytes of a program that the guest can execute:
/// [ELF](https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html), 64 bits, little-endian.
const IDENTITY: &[u8] = b"\x7fELF\x02\x01";
const X86_64: u16 = 62;
/// Type of the program header that names the dynamic linker.
const INTERPRETER: u32 = 3;

/// Reads a program that the guest can execute without other files.
///
/// # Errors
/// If it cannot be read, is no program for x86-64 or needs shared libraries; the error says how to build one
/// that does not.
pub fn read_static(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = trust::read_bounded(path, trust::PROGRAM)?;
    match look(&bytes) {
        Some(Program { linked: false, end }) => Ok(loaded(bytes, end)),
        Some(Program { linked: true, .. }) => Err(Error::unusable(
            path,
            "linked to shared libraries, which the virtual machine does not have; build it with \
             RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target \
             x86_64-unknown-linux-gnu",
        )),
        None => Err(Error::unusable(path, "not a program for x86-64")),
    }
}

/// Facts from a program's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Program {
    /// Whether it names a dynamic linker.
    linked: bool,
    /// Offset in the file at which the loaded part ends.
    end: usize,
}

/// Looks at a program's headers; `None` if it is no program for x86-64.
fn look(bytes: &[u8]) -> Option<Program> {
    let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    // e_type: ET_EXEC, or ET_DYN for one that can be loaded anywhere.
    if !bytes.starts_with(IDENTITY) || half(0x12)? != X86_64 || ![2, 3].contains(&half(0x10)?) {
        return None;
    }
    // e_phoff, e_phentsize and e_phnum.
    let (table, size, count) = (usize::try_from(long(0x20)?).ok()?, half(0x36)?, half(0x38)?);
    let table_end = table.checked_add(usize::from(size) * usize::from(count))?;
    let mut program = Program { linked: false, end: table_end };
    for number in 0..usize::from(count) {
        let at = table.checked_add(number * usize::from(size))?;
        // p_offset and p_filesz.
        let (from, length) =
            (usize::try_from(long(at + 0x8)?).ok()?, usize::try_from(long(at + 0x20)?).ok()?);
        program.linked |= word(at)? == INTERPRETER;
        program.end = program.end.max(from.checked_add(length)?);
    }
    (program.end <= bytes.len()).then_some(program)
}

/// Cuts off the part of a program that is not loaded, which is symbols and debugging information and would
/// only fill the guest's memory. The references to sections are cleared.
fn loaded(mut bytes: Vec<u8>, end: usize) -> Vec<u8> {
    bytes.truncate(end.max(0x40));
    // e_shoff; e_shnum and e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    bytes
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
        let linked = |bytes: &[u8]| look(bytes).map(|program| program.linked);
        assert_eq!(linked(&program(2, X86_64, &[1, 1])), Some(false));
        assert_eq!(linked(&program(3, X86_64, &[1, 2])), Some(false));
        assert_eq!(linked(&program(3, X86_64, &[6, 3, 1])), Some(true));
        assert_eq!(linked(&program(2, 183, &[1])), None);
        assert_eq!(linked(&program(1, X86_64, &[])), None);
        assert_eq!(linked(b"#!/bin/sh\n"), None);
        let cut = program(2, X86_64, &[1, 1]);
        assert_eq!(linked(&cut[..0x70]), None);
    }

    #[test]
    fn what_is_not_loaded_is_left_out() {
        let mut bytes = program(3, X86_64, &[1]);
        let end = bytes.len() + 100;
        bytes[0x40 + 0x8] = 0x40;
        bytes[0x40 + 0x20] = u8::try_from(end - 0x40).expect("small");
        bytes[0x28] = 0xff;
        bytes[0x3c] = 9;
        bytes.resize(end + 5000, 7);
        let program = look(&bytes).expect("a program");
        assert_eq!(program, Program { linked: false, end });
        let short = loaded(bytes, program.end);
        assert_eq!((short.len(), short[0x28], short[0x3c]), (end, 0, 0));
        assert_eq!(look(&short), Some(program));
        assert_eq!(look(&short[..end - 1]), None);
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
