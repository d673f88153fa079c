//! `/proc/PID/statm`: sizes in pages. `status` has more; `statm` is used if a saved tree has no `status`.

use std::fmt::Write;

use serde::Serialize;

use crate::file::scan::{decimal, words};
use crate::{File, Log};

/// The fields that kernels since 2.6 fill (`fs/proc/array.c:proc_pid_statm`), in base pages of the host.
/// Library and dirty pages, always 0, are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statm {
    /// Virtual size.
    pub size: u64,
    /// Resident pages.
    pub resident: u64,
    /// Resident file and shared memory pages.
    pub shared: u64,
    /// Code pages.
    pub text: u64,
    /// Data and stack pages.
    pub data: u64,
}

impl File for Statm {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut numbers = [0; 6];
        let mut found = words(text);
        for (slot, index) in numbers.iter_mut().zip(1u32..) {
            match found.next().and_then(decimal) {
                Some(number) => *slot = number,
                None => {
                    log.malformed(1, format!("expected a number of pages as field {index}"));
                    break;
                }
            }
        }
        let [size, resident, shared, text, _, data] = numbers;
        Statm { size, resident, shared, text, data }
    }

    fn print(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ =
            writeln!(out, "{} {} {} {} 0 {} 0", self.size, self.resident, self.shared, self.text, self.data);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_kernel_prints() {
        let mut log = Log::default();
        let statm = Statm::parse(b"765 443 416 5 0 123 0\n", &mut log);
        assert_eq!(statm, Statm { size: 765, resident: 443, shared: 416, text: 5, data: 123 });
        assert_eq!(log.problems(), []);
    }

    #[test]
    fn what_is_cut_off_is_said() {
        for text in [&b""[..], b"765", b"765 x", b"\xff\xfe"] {
            let mut log = Log::default();
            Statm::parse(text, &mut log);
            assert_eq!(log.problems().len(), 1, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn reads_what_it_prints(size: u64, resident: u64, shared: u64, text: u64, data: u64) {
            let statm = Statm { size, resident, shared, text, data };
            let mut printed = String::new();
            statm.print(&mut printed);
            prop_assert_eq!(Statm::parse(printed.as_bytes(), &mut Log::default()), statm);
        }
    }
}
