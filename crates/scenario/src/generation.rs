//! [`Generation`]: which kernel a machine runs.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use lotsfree_settings::Release;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::read::{not_known, unknown_name};

/// A kernel, as one set of rules in the model and one image in the lab; ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// RHEL 6.4, 2.6.32-358.
    Rhel6_4,
    /// RHEL 6, 2.6.32 with the changes of 6.8.
    Rhel6,
    /// 3.0, of which SLES 11 SP2 and SP3 are made.
    V3_0,
    /// SLES 11 SP2, 3.0.53 with SUSE's patches.
    Sles11Sp2,
    /// SLES 11 SP3, 3.0.76 with SUSE's patches, the bounded kswapd among them.
    Sles11Sp3,
    /// 3.10, the last before kswapd was bounded.
    V3_10,
    /// 3.10.108, the last of its series.
    V3_10_108,
    /// 3.11
    V3_11,
    /// 4.4
    V4_4,
    /// RHEL 8, 4.18 with the changes of 8.10.
    Rhel8,
    /// 5.4
    V5_4,
    /// 5.10
    V5_10,
    /// 5.15
    V5_15,
    /// 6.1
    V6_1,
    /// 6.8
    V6_8,
    /// 6.12
    V6_12,
    /// 6.18
    V6_18,
}

/// A kernel, and whether it comes up with the multi-generational LRU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    /// The kernel.
    pub kernel: Kernel,
    /// Whether `/sys/kernel/mm/lru_gen/enabled` is on at boot.
    pub mglru: bool,
}

const fn plain(kernel: Kernel) -> Generation {
    Generation { kernel, mglru: false }
}

const fn mglru(kernel: Kernel) -> Generation {
    Generation { kernel, mglru: true }
}

/// Every generation with its name and what it stands for, oldest first.
const GENERATIONS: &[(&str, Generation, &str)] = &[
    (
        "linux-2.6.32-rhel6.4",
        plain(Kernel::Rhel6_4),
        "RHEL 6.4: kswapd may reach priority 0; compared with no kernel",
    ),
    ("linux-2.6.32-rhel6", plain(Kernel::Rhel6), "RHEL 6.8: 2.6.32 with many changes of its own"),
    ("linux-3.0", plain(Kernel::V3_0), "3.0, the base of SLES 11 SP2 and SP3"),
    (
        "linux-3.0-sles11sp2",
        plain(Kernel::Sles11Sp2),
        "SLES 11 SP2 with its updates of 2012; compared with no kernel",
    ),
    (
        "linux-3.0-sles11sp3",
        plain(Kernel::Sles11Sp3),
        "SLES 11 SP3: the same with a bounded kswapd; compared with no kernel",
    ),
    ("linux-3.10", plain(Kernel::V3_10), "the last kernel before the work of kswapd was bounded"),
    (
        "linux-3.10.108",
        plain(Kernel::V3_10_108),
        "the last of its series: only free memory and files may be dirty",
    ),
    ("linux-3.11", plain(Kernel::V3_11), "the first whose kswapd is bounded"),
    ("linux-4.4", plain(Kernel::V4_4), "the last long-term kernel with lists per zone"),
    (
        "linux-4.18-rhel8",
        plain(Kernel::Rhel8),
        "RHEL 8.10: 4.18 with the reclaim of 5.10 and later; compared with no kernel",
    ),
    ("linux-5.4", plain(Kernel::V5_4), "lists per node, the old balance of file and anonymous pages"),
    ("linux-5.10", plain(Kernel::V5_10), "balance by the cost of refaults, those of anonymous pages too"),
    (
        "linux-5.15",
        plain(Kernel::V5_15),
        "the same with per-CPU lists as long as the marks allow; compared with no kernel",
    ),
    ("linux-6.1", plain(Kernel::V6_1), "the same with `reclaim_throttle` instead of `congestion_wait`"),
    ("linux-6.1+mglru", mglru(Kernel::V6_1), "the same with the multi-generational LRU"),
    (
        "linux-6.8",
        plain(Kernel::V6_8),
        "reloads weigh more than rotations, per-CPU lists adapt; compared with no kernel",
    ),
    ("linux-6.8+mglru", mglru(Kernel::V6_8), "the same with the multi-generational LRU"),
    ("linux-6.12", plain(Kernel::V6_12), "the same with statistics that are collected at intervals"),
    ("linux-6.12+mglru", mglru(Kernel::V6_12), "the same with the multi-generational LRU"),
    (
        "linux-6.18",
        plain(Kernel::V6_18),
        "swap by clusters, allocation from the node whose kswapd sleeps; compared with one host",
    ),
    (
        "linux-6.18+mglru",
        mglru(Kernel::V6_18),
        "the same with the multi-generational LRU, which promotes at the second access",
    ),
];

impl Kernel {
    /// Every kernel, oldest first.
    pub fn all() -> impl Iterator<Item = Kernel> {
        GENERATIONS
            .iter()
            .filter(|(_, generation, _)| !generation.mglru)
            .map(|(_, generation, _)| generation.kernel)
    }

    /// The release whose settings it has; 4.18 of RHEL 8 has those of 5.10 (`kernel/sysctl.c` of 8.10:
    /// swappiness up to 200, `watermark_boost_factor`).
    pub fn release(self) -> Release {
        match self {
            Kernel::Rhel6_4 | Kernel::Rhel6 => Release(2, 6),
            Kernel::V3_0 | Kernel::Sles11Sp2 | Kernel::Sles11Sp3 => Release(3, 0),
            Kernel::V3_10 | Kernel::V3_10_108 => Release(3, 10),
            Kernel::V3_11 => Release(3, 11),
            Kernel::V4_4 => Release(4, 4),
            Kernel::V5_4 => Release(5, 4),
            Kernel::Rhel8 | Kernel::V5_10 => Release(5, 10),
            Kernel::V5_15 => Release(5, 15),
            Kernel::V6_1 => Release(6, 1),
            Kernel::V6_8 => Release(6, 8),
            Kernel::V6_12 => Release(6, 12),
            Kernel::V6_18 => Release(6, 18),
        }
    }

    /// Its name in a scenario, such as `linux-6.1`.
    pub fn name(self) -> &'static str {
        plain(self).name()
    }
}

impl Generation {
    /// Every generation, oldest first.
    pub fn all() -> impl Iterator<Item = Generation> {
        GENERATIONS.iter().map(|(_, generation, _)| *generation)
    }

    /// Its name in a scenario, such as `linux-6.1+mglru`.
    pub fn name(self) -> &'static str {
        let found = GENERATIONS.iter().find(|(_, generation, _)| *generation == self);
        found.map_or("", |(name, ..)| *name)
    }

    /// The generation with two lists to take for a kernel, by its release, and what is to be known of that: a
    /// remark after the release, empty where it is the kernel's own.
    pub fn for_kernel(release: &str) -> (Generation, String) {
        if let Some(kernel) = of_distribution(release) {
            return (plain(kernel), String::new());
        }
        let named = |name: &str| name.parse().unwrap_or(plain(Kernel::V6_18));
        if let Some(build) = rhel_8(release) {
            let early = "; it stands for 8.10, and through 8.6 reclaim waits for devices in another way";
            let remark = if build >= THROTTLES { "" } else { early };
            return (plain(Kernel::Rhel8), remark.to_owned());
        }
        match version(release).and_then(nearest) {
            Some(Near::Itself(name))
                if named(name).kernel != Kernel::Rhel6 || release.starts_with("2.6.32") =>
            {
                (named(name), String::new())
            }
            Some(Near::Before(name)) => {
                (named(name), "; the newest generation before it, which may well answer otherwise".to_owned())
            }
            Some(Near::After(name)) => {
                (named(name), "; the first generation after it, which may well answer otherwise".to_owned())
            }
            Some(Near::Neither(before, after)) => {
                let remark =
                    format!("; no generation stands for it: {before} and {after} can give opposite answers");
                (named(before), remark)
            }
            Some(Near::Itself(_)) | None => (plain(Kernel::Rhel6), "; no generation is as old".to_owned()),
        }
    }

    /// The generation that is nearest to a release of this generation's series: `linux-3.10.108` for
    /// `linux-3.10` on 3.10.108.
    #[must_use]
    pub fn on(self, release: &str) -> Generation {
        let Generation { kernel, .. } = Self::for_kernel(release).0;
        let series = |kernel: Kernel| version(kernel.name()).map(|(major, minor, _)| (major, minor));
        match series(kernel) == series(self.kernel) {
            true => Generation { kernel, ..self },
            false => self,
        }
    }

    /// What it stands for, in half a sentence.
    pub fn about(self) -> &'static str {
        let found = GENERATIONS.iter().find(|(_, generation, _)| *generation == self);
        found.map_or("", |(.., about)| *about)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a text is not a [`Generation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownGeneration(String);

impl fmt::Display for UnknownGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownGeneration {}

impl FromStr for Generation {
    type Err = UnknownGeneration;

    fn from_str(text: &str) -> Result<Generation, UnknownGeneration> {
        let found = GENERATIONS.iter().find(|(name, ..)| *name == text);
        found.map(|(_, generation, _)| *generation).ok_or_else(|| {
            let names: Vec<&str> = GENERATIONS.iter().map(|(name, ..)| *name).collect();
            UnknownGeneration(match version(text).and_then(nearest) {
                Some(Near::Itself(name)) => not_known(text, &format!("; did you mean {name:?}?"), &names),
                Some(Near::Before(name)) => {
                    let hint = format!("; {name:?} is the newest before it, and may well answer otherwise.");
                    not_known(text, &hint, &names)
                }
                Some(Near::After(name)) => {
                    let hint = format!("; {name:?} is the first after it, and may well answer otherwise.");
                    not_known(text, &hint, &names)
                }
                Some(Near::Neither(before, after)) => {
                    let hint = format!(
                        ", and no generation stands for it: 5.8 and 5.9 changed how file and anonymous pages are \
                         balanced, and {before:?} and {after:?} can give opposite answers."
                    );
                    not_known(text, &hint, &names)
                }
                None => unknown_name(text, &names),
            })
        })
    }
}

/// A kernel's version: 5, 15 and 0 of `5.15`, `linux-5.15` and `5.15.0-91-generic`.
type Version = (u32, u32, u32);

fn version(text: &str) -> Option<Version> {
    let text = text.strip_prefix("linux-").unwrap_or(text);
    let (major, rest) = text.split_once('.')?;
    let (minor, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let patch = rest.strip_prefix('.').and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let patch = patch.filter(|patch| !patch.is_empty()).map_or(Ok(0), str::parse);
    Some((major.parse().ok()?, minor.parse().ok()?, patch.ok()?))
}

/// The kernel of a distribution that the version alone does not tell: RHEL 6 before build 411, which changed
/// zone reclaim, and SLES 11, which moved to 3.0.76 with SP3. Updates of SP2 with 3.0.76 and later are taken
/// for SP3.
fn of_distribution(release: &str) -> Option<Kernel> {
    let (_, _, patch) = version(release)?;
    let (base, build) = release.split_once('-')?;
    let build_number = build.split('.').next()?.parse::<u32>().ok()?;
    if base == "2.6.32" && build.contains(".el6") && build_number < 411 {
        return Some(Kernel::Rhel6_4);
    }
    let of_suse = ["-default", "-pae", "-trace", "-xen"].iter().any(|flavour| build.ends_with(flavour));
    let sles_11 = base.starts_with("3.0.") && of_suse;
    sles_11.then_some(if patch < 76 { Kernel::Sles11Sp2 } else { Kernel::Sles11Sp3 })
}

/// The first build of 4.18.0 of RHEL 8 (8.4) that reclaims by the cost of refaults. 8.3 does not
/// (`mm/vmscan.c` of 4.18.0-240).
const BY_COST: u32 = 305;
/// The first build of 4.18.0 of RHEL 8 (8.7) that has `reclaim_throttle`; 372 of 8.6 has it not.
const THROTTLES: u32 = 425;

/// The build of a kernel of RHEL 8 or its rebuilds for which the generation stands: 553 of
/// `4.18.0-553.el8_10.x86_64`.
fn rhel_8(release: &str) -> Option<u32> {
    let build = release.strip_prefix("4.18.0-").filter(|build| build.contains(".el8"))?;
    build.split('.').next()?.parse().ok().filter(|&build| build >= BY_COST)
}

/// The first release that the generation before it no longer stands for, and the first that the one after it
/// does: between them the balance of file and anonymous pages changed (5.8, `314b57fb0460` and others; 5.9,
/// `b518154e59aa`), and no generation has been compared with such a kernel.
const CHANGED: std::ops::Range<Version> = (5, 5, 0)..(5, 9, 0);

/// The generation with two lists that is nearest to a kernel, and on which side.
enum Near {
    Itself(&'static str),
    Before(&'static str),
    After(&'static str),
    /// On both sides, but standing for it on neither.
    Neither(&'static str, &'static str),
}

/// The generation to take for a kernel; `None` for one that is older than all of them.
fn nearest(kernel: Version) -> Option<Near> {
    let plain = || {
        // What a distribution took from later kernels keeps its own from standing for any other.
        let takes_from_later = |kernel| {
            matches!(kernel, Kernel::Rhel6_4 | Kernel::Sles11Sp2 | Kernel::Sles11Sp3 | Kernel::Rhel8)
        };
        let by_version = GENERATIONS
            .iter()
            .filter(move |(_, generation, _)| !generation.mglru && !takes_from_later(generation.kernel));
        let names = by_version.map(|(name, ..)| *name);
        names.filter_map(|name| Some((name, version(name)?)))
    };
    let (before, of_before) = plain().rfind(|(_, version)| *version <= kernel)?;
    let after = plain().find(|(_, version)| *version > kernel).map(|(name, _)| name);
    Some(match after {
        _ if (of_before.0, of_before.1) == (kernel.0, kernel.1) => Near::Itself(before),
        Some(after) if CHANGED.contains(&kernel) => Near::Neither(before, after),
        Some(after) if of_before < CHANGED.start && kernel >= CHANGED.end => Near::After(after),
        _ => Near::Before(before),
    })
}

impl Serialize for Generation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Generation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Generation, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Generation {
    fn schema_name() -> Cow<'static, str> {
        "Generation".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = GENERATIONS.iter().map(|(name, ..)| *name).collect();
        json_schema!({ "type": "string", "enum": names, "description": "Which kernel runs." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_a_generation() {
        let of = |release: &str| {
            let (generation, remark) = Generation::for_kernel(release);
            (generation.name(), remark.split(' ').nth(2).unwrap_or_default().to_owned())
        };
        assert_eq!(of("6.1.0-56-amd64"), ("linux-6.1", String::new()));
        assert_eq!(of("6.1.180"), ("linux-6.1", String::new()));
        assert_eq!(of("3.10.0-1160.el7.x86_64"), ("linux-3.10", String::new()));
        assert_eq!(of("3.10.108"), ("linux-3.10.108", String::new()));
        assert_eq!(of("6.12.43+deb13-amd64"), ("linux-6.12", String::new()));
        assert_eq!(of("6.17.0-5-generic"), ("linux-6.12", "newest".to_owned()));
        assert_eq!(of("6.18.44"), ("linux-6.18", String::new()));
        assert_eq!(of("7.2.1"), ("linux-6.18", "newest".to_owned()));
        assert_eq!(of("6.8.0-45-generic"), ("linux-6.8", String::new()));
        assert_eq!(of("6.4.0-150600.23.25-default"), ("linux-6.1", "newest".to_owned()));
        assert_eq!(of("4.18.0-553.el8_10.x86_64"), ("linux-4.18-rhel8", String::new()));
        assert_eq!(of("4.18.0-305.25.1.el8_4.x86_64"), ("linux-4.18-rhel8", "stands".to_owned()));
        assert_eq!(of("4.18.0-240.el8.x86_64"), ("linux-4.4", "newest".to_owned()));
        assert_eq!(of("4.18.0-25-generic"), ("linux-4.4", "newest".to_owned()));
        assert_eq!(of("4.19.0-27-amd64"), ("linux-4.4", "newest".to_owned()));
        assert_eq!(of("5.8.0-63-generic"), ("linux-5.4", "generation".to_owned()));
        assert_eq!(of("5.9.16"), ("linux-5.10", "first".to_owned()));
        assert_eq!(of("5.10.0-46-amd64"), ("linux-5.10", String::new()));
        assert_eq!(of("5.14.0-427.el9.x86_64"), ("linux-5.10", "newest".to_owned()));
        assert_eq!(of("5.15.0-91-generic"), ("linux-5.15", String::new()));
        assert_eq!(of("2.6.32-642.6.2.el6.x86_64"), ("linux-2.6.32-rhel6", String::new()));
        assert_eq!(of("2.6.32-358.el6.x86_64"), ("linux-2.6.32-rhel6.4", String::new()));
        assert_eq!(of("2.6.32-5-amd64"), ("linux-2.6.32-rhel6", String::new()));
        assert_eq!(of("3.0.58-0.6.6-default"), ("linux-3.0-sles11sp2", String::new()));
        assert_eq!(of("3.0.101-0.47.71-default"), ("linux-3.0-sles11sp3", String::new()));
        assert_eq!(of("3.0.0-32-generic"), ("linux-3.0", String::new()));
        assert_eq!(of("2.6.18"), ("linux-2.6.32-rhel6", "generation".to_owned()));
        assert_eq!(of(""), ("linux-2.6.32-rhel6", "generation".to_owned()));
    }

    #[test]
    fn a_kernel_of_the_same_settings_is_not_of_the_same_series() {
        let generation: Generation = "linux-5.10".parse().unwrap();
        assert_eq!(generation.on("4.18.0-553.el8_10.x86_64"), generation);
        let older: Generation = "linux-3.10".parse().unwrap();
        assert_eq!(older.on("3.10.108").name(), "linux-3.10.108");
    }

    #[test]
    fn names_read_back_and_others_are_refused() {
        for generation in Generation::all() {
            assert_eq!(generation.name().parse(), Ok(generation));
            assert!(!generation.about().is_empty());
        }
        let said = |text: &str| text.parse::<Generation>().unwrap_err().to_string();
        let accepted = "Accepted: \"linux-2.6.32-rhel6.4\", \"linux-2.6.32-rhel6\", \"linux-3.0\", \
                         \"linux-3.0-sles11sp2\", \"linux-3.0-sles11sp3\", \"linux-3.10\", \
                         \"linux-3.10.108\", \"linux-3.11\", \"linux-4.4\", \"linux-4.18-rhel8\", \
                         \"linux-5.4\", \"linux-5.10\", \"linux-5.15\", \"linux-6.1\", \"linux-6.1+mglru\", \
                         \"linux-6.8\", \"linux-6.8+mglru\", \"linux-6.12\", \"linux-6.12+mglru\", \
                         \"linux-6.18\", \"linux-6.18+mglru\"";
        assert_eq!(said("6.1"), format!("\"6.1\" is not known; did you mean \"linux-6.1\"? {accepted}"));
        for (text, near) in [
            ("linux-6.2", "linux-6.1"),
            ("5.14", "linux-5.10"),
            ("linux-4.19", "linux-4.4"),
            ("linux-6.17", "linux-6.12"),
            ("linux-7.0", "linux-6.18"),
            ("3.2", "linux-3.0"),
        ] {
            let why = "is the newest before it, and may well answer otherwise.";
            assert_eq!(said(text), format!("{text:?} is not known; {near:?} {why} {accepted}"));
        }
        assert!(said("2.4").starts_with("\"2.4\" is not known; accepted: "));
        assert!(said("linux-6.l").contains("did you mean \"linux-6.1\"?"));
    }

    #[test]
    fn no_generation_stands_for_the_kernels_while_the_balance_changed() {
        let said = |text: &str| text.parse::<Generation>().unwrap_err().to_string();
        for text in ["linux-5.5", "5.8", "5.8.0-63-generic"] {
            let said = said(text);
            let head =
                format!("{text:?} is not known, and no generation stands for it: 5.8 and 5.9 changed ");
            assert!(said.starts_with(&head), "{said}");
            assert!(
                said.contains("\"linux-5.4\" and \"linux-5.10\" can give opposite answers. Accepted: "),
                "{said}"
            );
        }
        let said = said("5.9");
        assert!(said.contains("; \"linux-5.10\" is the first after it, and may well"), "{said}");
    }
}
