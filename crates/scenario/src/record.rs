//! [`Record`]: what a machine costs, as it was measured.

use std::collections::BTreeMap;
use std::path::Path;

use lotsfree_workload::quantity::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::costs::MeasuredCosts;
use crate::document::{Document, LARGEST, Node, Place, Table, Value};
use crate::error::{Collector, Errors};
use crate::read::read;

/// A calibration record: what the work of a kernel costs on a machine, measured by `lotsfree lab calibrate`
/// and taken by `lotsfree sim --calibration`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Record {
    /// Its name, which a scenario's `calibration.record` can ask for.
    pub name: String,
    /// Where and with what it was measured.
    pub provenance: Provenance,
    /// The costs, in nanoseconds of CPU time.
    #[serde(default)]
    pub costs: MeasuredCosts,
    /// The disk, as a scenario's `machine.disk` describes one. The model takes the scenario's.
    #[serde(default, skip_serializing_if = "Device::is_empty")]
    pub disk: Device,
    /// The swap area, as a scenario's `machine.swap` describes one. The model takes the scenario's.
    #[serde(default, skip_serializing_if = "Device::is_empty")]
    pub swap: Device,
    /// The machine as a whole.
    #[serde(default, skip_serializing_if = "Whole::is_empty")]
    pub machine: Whole,
    /// First store to a huge page of 2 MiB, which is zeroed, in nanoseconds of CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_fault: Option<Measured>,
    /// `pread` of 4 KiB that are in the page cache, in nanoseconds of CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read: Option<Measured>,
    /// A load from a random resident page, by how much memory is touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touch: Vec<Touch>,
    /// Why a value is missing, by its dotted name: `"costs.scan"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
}

/// Where and with what a record was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Provenance {
    /// The day.
    pub date: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor, as `/proc/cpuinfo` names it.
    pub cpu: String,
    /// CPUs.
    pub cpus: u32,
    /// `MemTotal`.
    pub memory: Size,
    /// How the instructions of a virtual machine were executed: `kvm`, `tcg`, `icount`. Without it, the
    /// machine that measured itself was not made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Which pages reclaim takes first: `active-inactive` or `mglru`.
    pub lru: String,
    /// Version of lotsfree.
    pub lotsfree: String,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Device {
    /// One random read of 4 KiB past the page cache, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Measured>,
    /// Sequential reads past the page cache, in MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Measured>,
    /// Random reads of 4 KiB a second, past the page cache and many at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<Measured>,
}

impl Device {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The machine as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Whole {
    /// Memory that the kernel keeps, as a scenario's `machine.kernel` has it: what its zones do not manage,
    /// and of a machine that has just booted also what it has taken and cannot give back. The model takes it
    /// where a scenario says `kernel = "measured"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Size>,
}

impl Whole {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A load from a random page of so much memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Touch {
    /// How much memory is touched.
    pub footprint: Size,
    /// Nanoseconds of CPU time.
    pub ns: Measured,
}

/// A value that was measured several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub lower: f64,
    /// The upper quartile.
    pub upper: f64,
    /// How often it was measured.
    pub repetitions: u32,
}

impl Measured {
    /// Of these values; `None` if there is none, or one is no finite number.
    pub fn of(values: &[f64]) -> Option<Self> {
        if !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        // Between two values, in proportion.
        let at = |share: f64| {
            let place = share * last as f64;
            let (low, high) = (values.get(place.floor() as usize)?, values.get(place.ceil() as usize)?);
            Some(((low + (high - low) * place.fract()) * 100.0).round() / 100.0)
        };
        Some(Measured {
            median: at(0.5)?,
            lower: at(0.25)?,
            upper: at(0.75)?,
            repetitions: u32::try_from(values.len()).unwrap_or(u32::MAX),
        })
    }

    /// The same with each value changed; by a function that does not turn larger into smaller.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        let change = |value| (change(value) * 100.0).round() / 100.0;
        Measured {
            median: change(self.median),
            lower: change(self.lower),
            upper: change(self.upper),
            repetitions: self.repetitions,
        }
    }

    fn toml(&self) -> String {
        let Measured { median, lower, upper, repetitions } = self;
        format!(
            "{{ median = {median:?}, lower = {lower:?}, upper = {upper:?}, repetitions = {repetitions} }}"
        )
    }
}

impl Record {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or as [`parse`](Record::parse).
    pub fn load(path: &Path) -> Result<Self, Errors> {
        let name = path.display().to_string();
        let text = lotsfree_storage::read_text_at_most(path, LARGEST as u64)
            .map_err(|error| Errors::unreadable(&name, error.to_string()))?;
        Record::parse(&text, &name)
    }

    /// Reads a record; `file` is its name in errors.
    ///
    /// # Errors
    /// Name every unknown key and every value that cannot be, with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self, Errors> {
        let document = Document::parse(text, file)?;
        let mut errors = Collector::default();
        check(&document.root, "", &mut errors);
        let root =
            Node { value: Value::Table(document.root), at: Place::default(), inline: false, raw: None };
        let record: Option<Record> = read(&root, "", &mut errors);
        errors.finish(&document.sources)?;
        record.ok_or_else(|| Errors::unreadable(file, "not a calibration record".to_owned()))
    }

    /// Whether a cost is missing without a reason: it was measured before lotsfree knew of that cost.
    pub fn is_of_fewer_costs(&self) -> bool {
        let unexplained =
            |name: &str| !self.absent.keys().any(|absent| absent.strip_prefix("costs.") == Some(name));
        self.costs.entries().any(|(name, value)| value.is_none() && unexplained(name))
    }

    /// Takes costs that are missing here from a later measurement of such a machine; the name says which.
    pub fn complete(&mut self, later: &Record) {
        let taken = self.costs.complete(&later.costs);
        for (name, _) in self.costs.entries().filter(|(_, value)| value.is_none()) {
            let name = format!("costs.{name}");
            if let Some(why) = later.absent.get(&name) {
                self.absent.entry(name).or_insert_with(|| why.clone());
            }
        }
        if !taken.is_empty() {
            self.name += &format!(" ({} measured {})", taken.join(" and "), later.provenance.date);
        }
    }

    /// The record as a file, which [`parse`](Record::parse) reads.
    pub fn to_toml(&self) -> String {
        let Record { name, provenance, costs, disk, swap, machine, huge_fault, cached_read, touch, absent } =
            self;
        let mut text = "# What things cost on a machine: `lotsfree sim SCENARIO --calibration THIS-FILE`\n\
                        # Each value is a median with its quartiles. What is missing is below [absent].\n\n"
            .to_owned();
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut line = |what: String| {
            text += &what;
            text.push('\n');
        };
        line(format!("name = {}", quoted(name)));
        for (name, value, of) in [
            ("huge-fault", huge_fault, "first store to a huge page of 2 MiB"),
            ("cached-read", cached_read, "pread of 4 KiB from the page cache"),
        ] {
            if let Some(value) = value {
                line(format!("# Nanoseconds of CPU time: {of}\n{name} = {}", value.toml()));
            }
        }
        line("\n[provenance]".to_owned());
        line(toml::to_string(provenance).unwrap_or_default().trim_end().to_owned());
        line("\n# Nanoseconds of CPU time\n[costs]".to_owned());
        for (name, value) in costs.entries() {
            if let Some(value) = value {
                line(format!("{name} = {}", value.toml()));
            }
        }
        for (name, device) in [("disk", disk), ("swap", swap)] {
            if device.is_empty() {
                continue;
            }
            line(format!("\n# latency in nanoseconds, bandwidth in MiB/s, iops a second\n[{name}]"));
            let Device { latency, bandwidth, iops } = device;
            for (name, value) in [("latency", latency), ("bandwidth", bandwidth), ("iops", iops)] {
                if let Some(value) = value {
                    line(format!("{name} = {}", value.toml()));
                }
            }
        }
        if let Some(kernel) = machine.kernel {
            line(format!("\n[machine]\nkernel = {}", quoted(&kernel.to_string())));
        }
        for Touch { footprint, ns } in touch {
            line(format!("\n[[touch]]\nfootprint = {}\nns = {}", quoted(&footprint.to_string()), ns.toml()));
        }
        if !absent.is_empty() {
            line("\n# What could not be measured, and why\n[absent]".to_owned());
            for (name, why) in absent {
                line(format!("{} = {}", quoted(name), quoted(why)));
            }
        }
        text
    }

    /// Nanoseconds from a request to the answer of a device, without the work of the CPU for it; `None` if
    /// that was not measured.
    pub(crate) fn answer(&self, device: &Device) -> Option<u64> {
        let work = self.costs.submit?.median + self.costs.wakeup?.median;
        Some((device.latency?.median - work).max(0.0) as u64)
    }

    /// The costs that it has not, with the reasons that it gives.
    pub fn lacks(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        self.costs.entries().filter(|(_, value)| value.is_none()).map(|(name, _)| {
            let why = self.absent.get(&format!("costs.{name}"));
            (name, why.map(String::as_str))
        })
    }
}

/// Looks for measured values that cannot be.
fn check(table: &Table, path: &str, errors: &mut Collector) {
    let number = |key: &str| match table.get(key).map(|node| &node.value) {
        Some(Value::Float(number)) => Some(*number),
        Some(Value::Integer(number)) => Some(*number as f64),
        _ => None,
    };
    if let (Some(lower), Some(median), Some(upper)) = (number("lower"), number("median"), number("upper")) {
        let at = table.entry("median").map(|entry| entry.node.at).unwrap_or_default();
        if lower < 0.0 {
            let at = table.entry("lower").map(|entry| entry.node.at).unwrap_or(at);
            errors.add(
                at,
                format!("{path}.lower"),
                "a measured value is not negative; write a number from 0 on",
            );
        } else if lower > median || median > upper {
            let why = format!("{median} is not between lower, {lower}, and upper, {upper}");
            errors.add(at, format!("{path}.median"), why);
        }
    }
    for entry in &table.0 {
        let path = crate::document::below(path, &entry.key);
        match &entry.node.value {
            Value::Table(inner) => check(inner, &path, errors),
            Value::List(list) => {
                list.iter().filter_map(Node::table).for_each(|inner| check(inner, &path, errors))
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(value: f64) -> Measured {
        Measured::of(&[value, value * 1.5, value * 0.5, value * 4.0]).unwrap()
    }

    fn record() -> Record {
        let mut record = Record {
            name: "a host, \"quoted\"".to_owned(),
            provenance: Provenance {
                date: "2026-11-22".to_owned(),
                kernel: "6.1.0".to_owned(),
                cpu: "Some CPU @ 2 GHz".to_owned(),
                cpus: 2,
                memory: Size(lotsfree_units::Bytes::gib(1)),
                accelerator: Some("kvm".to_owned()),
                lru: "mglru".to_owned(),
                lotsfree: "0.1.0".to_owned(),
            },
            huge_fault: Some(measured(50_000.0)),
            cached_read: Some(measured(700.0)),
            ..Record::default()
        };
        record.costs.touch = Some(measured(80.25));
        record.costs.submit = Some(measured(3000.0));
        record.disk.latency = Some(measured(100_000.0));
        record.swap.iops = Some(measured(2000.0));
        record.machine.kernel = Some(Size(lotsfree_units::Bytes::mib(30)));
        record.touch = vec![Touch { footprint: Size(lotsfree_units::Bytes::mib(1)), ns: measured(3.5) }];
        record.absent.insert("costs.walk".to_owned(), "a \"reason\"".to_owned());
        record
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| Measured::of(values).map(|m| (m.lower, m.median, m.upper, m.repetitions));
        assert_eq!(of(&[5.0, 1.0, 3.0, 2.0, 4.0]), Some((2.0, 3.0, 4.0, 5)));
        assert_eq!(of(&[1.0, 2.0]), Some((1.25, 1.5, 1.75, 2)));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_record_survives_its_file() {
        let record = record();
        let text = record.to_toml();
        let again = Record::parse(&text, "record.toml").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert_eq!(again, record);
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
    }

    #[test]
    fn a_record_of_fewer_costs_is_completed_by_a_later_one() {
        let (mut old, mut later) = (record(), record());
        assert!(old.is_of_fewer_costs(), "most costs are missing");
        for (name, _) in later.costs.entries() {
            later.absent.insert(format!("costs.{name}"), "not tried".to_owned());
        }
        later.costs.touch = Some(measured(1.0));
        later.costs.slack = Some(measured(50_000.0));
        later.costs.sleep = Some(measured(4000.0));
        later.provenance.date = "2026-11-27".to_owned();
        old.complete(&later);
        assert_eq!(old.costs.touch, Some(measured(80.25)), "what was measured stays");
        assert_eq!(old.costs.slack, Some(measured(50_000.0)));
        assert_eq!(old.name, "a host, \"quoted\" (sleep and slack measured 2026-11-27)");
        assert_eq!(old.absent["costs.walk"], "a \"reason\"");
        assert!(!old.is_of_fewer_costs());
        let complete = old.clone();
        old.complete(&later);
        assert_eq!(old, complete);
    }

    #[test]
    fn what_is_wrong_with_a_record_has_a_place() {
        let good = record().to_toml();
        let said = |from: &str, to: &str| {
            assert!(good.contains(from), "{good}");
            Record::parse(&good.replace(from, to), "r.toml").unwrap_err().to_string()
        };
        let line = |of: &str| good.lines().position(|line| line.starts_with(of)).unwrap() + 1;
        assert_eq!(
            said("submit = ", "submt = "),
            format!("r.toml:{}:1: costs.submt: unknown key; did you mean \"submit\"?", line("submit"))
        );
        assert_eq!(
            said("median = 100.31", "median = 1.0"),
            format!(
                "r.toml:{}:20: costs.touch.median: 1 is not between lower, 70.22, and upper, 170.53",
                line("touch =")
            )
        );
        let text = said("cpus = 2", "cpus = 'two'");
        assert!(text.starts_with(&format!("r.toml:{}:8: provenance.cpus: ", line("cpus"))), "{text}");
        let text = said("lru = \"mglru\"\n", "");
        assert!(text.contains("provenance.lru: missing"), "{text}");
        let text = Record::load(Path::new("/nonexistent/record.toml")).unwrap_err().to_string();
        assert!(text.starts_with("/nonexistent/record.toml: "), "{text}");
    }
}
