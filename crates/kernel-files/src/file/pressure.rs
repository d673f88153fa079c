//! `/proc/pressure/{memory,io,cpu}` and a cgroup's `memory.pressure`: pressure stall information (4.20 and
//! later, `psi=1` on some distributions).

use std::fmt::Write as _;

use serde::Serialize;

use super::scan::{decimal, trimmed_lines, words};
use crate::{File, Log};

/// The three pressure files of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// `memory`.
    pub memory: Option<Psi>,
    /// `io`.
    pub io: Option<Psi>,
    /// `cpu`.
    pub cpu: Option<Psi>,
}

/// Pressure of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Psi {
    /// Time in which at least one task stalled.
    pub some: Option<Stall>,
    /// Time in which all non-idle tasks stalled at once (absent for cpu before 5.13).
    pub full: Option<Stall>,
}

/// Averages in percent, and the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stall {
    /// Share of the last 10 s, in percent.
    pub avg10: f64,
    /// Share of the last 60 s, in percent.
    pub avg60: f64,
    /// Share of the last 300 s, in percent.
    pub avg300: f64,
    /// Total stall time in microseconds since boot.
    pub total_us: u64,
}

/// `kernel/sched/psi.c:psi_show`, 4.20 to 6.18.
impl File for Psi {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut psi = Psi::default();
        for (line_number, line) in trimmed_lines(text) {
            let mut words = words(line);
            let slot = match words.next() {
                Some(b"some") => &mut psi.some,
                Some(b"full") => &mut psi.full,
                _ => {
                    log.malformed(line_number, "neither `some` nor `full`");
                    continue;
                }
            };
            match stall(words) {
                Some(stall) => *slot = Some(stall),
                None => log.malformed(line_number, "not avg10, avg60, avg300 in percent and total"),
            }
        }
        psi
    }

    fn print(&self, out: &mut String) {
        for (name, stall) in [("some", self.some), ("full", self.full)] {
            if let Some(Stall { avg10, avg60, avg300, total_us }) = stall {
                let _ = writeln!(
                    out,
                    "{name} avg10={avg10:.2} avg60={avg60:.2} avg300={avg300:.2} total={total_us}"
                );
            }
        }
    }
}

fn stall<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<Stall> {
    let (mut avg10, mut avg60, mut avg300, mut total) = (None, None, None, None);
    for word in words {
        let equals = word.iter().position(|&b| b == b'=')?;
        let (name, value) = (&word[..equals], &word[equals + 1..]);
        match name {
            b"avg10" => avg10 = Some(percent(value)?),
            b"avg60" => avg60 = Some(percent(value)?),
            b"avg300" => avg300 = Some(percent(value)?),
            b"total" => total = Some(decimal(value)?),
            _ => {}
        }
    }
    Some(Stall { avg10: avg10?, avg60: avg60?, avg300: avg300?, total_us: total? })
}

/// A share of time such as `2.96`: two digits after the point, 100 at most.
fn percent(word: &[u8]) -> Option<f64> {
    let point = word.iter().position(|&b| b == b'.')?;
    let (whole, hundredths) = (&word[..point], &word[point + 1..]);
    if hundredths.len() != 2 {
        return None;
    }
    let value = decimal(whole)?.checked_mul(100)?.checked_add(decimal(hundredths)?)?;
    (value <= 10_000).then(|| value as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, parse, print, settles};

    /// 6.18.
    const NEW: &str = "some avg10=0.03 avg60=2.96 avg300=100.00 total=15850457
full avg10=0.00 avg60=0.01 avg300=0.10 total=4456410
";
    /// `cpu` before 5.13 has no `full`.
    const OLD: &str = "some avg10=0.00 avg60=0.01 avg300=0.10 total=4561357\n";

    #[test]
    fn reads_and_prints_the_kernels_text() {
        let psi: Psi = clean(NEW);
        let some = Stall { avg10: 0.03, avg60: 2.96, avg300: 100.0, total_us: 15_850_457 };
        assert_eq!(psi.some, Some(some));
        assert_eq!(print(&psi), NEW);
        let psi: Psi = clean(OLD);
        assert_eq!((psi.some.map(|some| some.total_us), psi.full), (Some(4_561_357), None));
        assert_eq!(print(&psi), OLD);
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text = b"none avg10=0.00\nsome avg10=100.01 avg60=0.00 avg300=0.00 total=1\n\
                     some avg10=0.1 avg60=0.00 avg300=0.00 total=1\nfull avg10=NaN avg60=0.00 avg300=0.00 total=1\n\
                     full avg10=0.00 avg60=0.00 avg300=0.00\nfull avg10=0.00 avg60=0.00 avg300=0.00 avg900=1 total=7\n";
        assert_eq!(bad_lines::<Psi>(text), [1, 2, 3, 4, 5]);
        let (psi, _) = parse::<Psi>(text);
        assert_eq!((psi.some, psi.full.map(|full| full.total_us)), (None, Some(7)));
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<Psi>(""), Psi::default());
        cut_anywhere::<Psi>(NEW);
    }

    fn stall() -> impl Strategy<Value = Option<Stall>> {
        let percent = || (0u32..=10_000).prop_map(|hundredths| f64::from(hundredths) / 100.0);
        let stall = (percent(), percent(), percent(), any::<u64>());
        let stall =
            stall.prop_map(|(avg10, avg60, avg300, total_us)| Stall { avg10, avg60, avg300, total_us });
        prop::option::of(stall)
    }

    proptest! {
        #[test]
        fn round_trip(some in stall(), full in stall()) {
            let psi = Psi { some, full };
            prop_assert_eq!(clean::<Psi>(&print(&psi)), psi);
        }

        #[test]
        fn settles_whatever_it_reads(text in hostile(NEW)) {
            settles::<Psi>(&text);
        }
    }
}
