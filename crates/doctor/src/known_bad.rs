//! Builds of distributions that have a known bug, grouped by the streams in which they are published.

use std::cmp::Ordering;

use crate::kernel_release::{Release, compare};

/// Kernels of one stream: the same version and tag, with builds from `since` up to, but not including,
/// `fixed`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// Name of the stream, for people.
    pub(crate) name: &'static str,
    /// Version that the distribution started from.
    version: &'static str,
    /// The tag of an Enterprise Linux build, empty for SLES.
    tag: &'static str,
    /// The beginning of the stream's builds; SLES has several streams of one version.
    prefix: &'static str,
    /// First build that has the bug; empty for all.
    since: &'static str,
    /// First build without the bug; `None` if no such build is known.
    pub(crate) fixed: Option<&'static str>,
}

const fn sles(
    name: &'static str,
    version: &'static str,
    prefix: &'static str,
    fixed: &'static str,
) -> Stream {
    Stream { name, version, tag: "", prefix, since: "", fixed: Some(fixed) }
}

const fn rhel9(name: &'static str, tag: &'static str, fixed: Option<&'static str>) -> Stream {
    Stream { name, version: "5.14.0", tag, prefix: "", since: "", fixed }
}

/// Streams whose huge page allocations reclaim one full node without end. Sources: SUSE KB 000022286 for
/// SLES, where `uname -r` lacks the last number of the package, and Red Hat's fixed builds. Red Hat publishes
/// no fixed build for 9.7, which lies between the two others.
pub(crate) const THP_STORM: &[Stream] = &[
    sles("SLES 15 SP5", "5.14.21", "150500.", "150500.55.136"),
    sles("SLES 15 SP6", "6.4.0", "150600.", "150600.23.87"),
    sles("SLES 15 SP7", "6.4.0", "150700.", "150700.53.31"),
    rhel9("RHEL 9.6", "el9_6", Some("570.127.1")),
    rhel9("RHEL 9.7", "el9_7", None),
    rhel9("RHEL 9.8", "el9_8", Some("687.13.1")),
];

/// RHEL 6 kernels with the change of 3.5 to swappiness 0. Build -303 adopted the change; -642 is the first
/// public build with the correction.
pub(crate) const RHEL6_SWAPPINESS: &[Stream] =
    &[Stream { name: "RHEL 6", version: "2.6.32", tag: "el6", prefix: "", since: "303", fixed: Some("642") }];

/// Kernels of Ubuntu 16.04 that call the OOM killer for a block of several pages, or with most of memory in
/// cache: Launchpad bug 1655842. Builds up to 57 are sound, 62 has the correction.
pub(crate) const EARLY_KILL: &[Stream] =
    &[Stream { name: "Ubuntu 16.04", version: "4.4.0", tag: "", prefix: "", since: "58", fixed: Some("62") }];

impl Stream {
    fn has(&self, release: &Release<'_>) -> bool {
        release.version == self.version
            && release.tag == self.tag
            && !release.build.is_empty()
            && release.build.starts_with(self.prefix)
            && (self.since.is_empty() || compare(release.build, self.since) != Ordering::Less)
            && self.fixed.is_none_or(|fixed| compare(release.build, fixed) == Ordering::Less)
    }

    /// The release that has the fix, as `uname -r` prints it.
    pub(crate) fn fixed_release(&self) -> Option<String> {
        let tag = if self.tag.is_empty() { String::new() } else { format!(".{}", self.tag) };
        self.fixed.map(|fixed| format!("{}-{fixed}{tag}", self.version))
    }
}

/// The stream with the bug that a release belongs to, if any.
pub(crate) fn affected(streams: &'static [Stream], release: &str) -> Option<&'static Stream> {
    let release = Release::parse(release);
    streams.iter().find(|stream| stream.has(&release))
}

/// Whether a kernel's huge page allocations reclaim one full node without end while others have free memory.
pub(crate) fn has_thp_storm(release: &str) -> bool {
    affected(THP_STORM, release).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_before_the_fix_and_from_it_on() {
        let has_thp_storm = |release| affected(THP_STORM, release).is_some();
        for release in [
            "5.14.21-150500.55.133-default",
            "5.14.21-150500.55.9-default",
            "6.4.0-150600.23.84-default",
            "6.4.0-150600.21-default",
            "6.4.0-150700.53.28-default",
            "5.14.0-570.12.1.el9_6.x86_64",
            "5.14.0-570.126.9.el9_6.x86_64",
            "5.14.0-570.99.1.el9_6.aarch64+64k",
            "5.14.0-611.5.1.el9_7.x86_64",
            "5.14.0-687.12.1.el9_8.x86_64",
            "5.14.0-687.el9_8.ppc64le",
        ] {
            assert!(has_thp_storm(release), "{release}");
        }
        for release in [
            "5.14.21-150500.55.136-default",
            "5.14.21-150500.55.136.1-default",
            "5.14.21-150500.56.1-default",
            "5.14.21-150400.24.100-default",
            "6.4.0-150600.23.87-default",
            "6.4.0-150600.23.100-default",
            "6.4.0-150700.53.31-default",
            "6.4.0-150700.60.1-default",
            "6.4.0",
            "5.14.0-570.127.1.el9_6.x86_64",
            "5.14.0-570.128.1.el9_6.x86_64",
            "5.14.0-503.11.1.el9_5.x86_64",
            "5.14.0-687.13.1.el9_8.x86_64",
            "5.14.0-570.el9.x86_64",
            "5.15.0-300.163.18.el9uek.x86_64",
            "6.12.0-55.9.1.el10_0.x86_64",
            "",
        ] {
            assert!(!has_thp_storm(release), "{release}");
        }
    }

    #[test]
    fn rhel6_between_the_two_changes() {
        let bad = |release| affected(RHEL6_SWAPPINESS, release).is_some();
        for release in [
            "2.6.32-303.el6.x86_64",
            "2.6.32-358.el6.x86_64",
            "2.6.32-573.26.1.el6.x86_64",
            "2.6.32-600.el6.x86_64",
        ] {
            assert!(bad(release), "{release}");
        }
        for release in [
            "2.6.32-279.22.1.el6.x86_64",
            "2.6.32-302.el6.x86_64",
            "2.6.32-642.el6.x86_64",
            "2.6.32-754.35.1.el6.x86_64",
            "2.6.32-400.37.15.el6uek.x86_64",
            "2.6.32-042stab145.3",
            "2.6.32-5-amd64",
            "3.10.0-514.el7.x86_64",
        ] {
            assert!(!bad(release), "{release}");
        }
    }

    #[test]
    fn fixed_builds_have_no_bug_and_are_printed_in_full() {
        for stream in THP_STORM.iter().chain(RHEL6_SWAPPINESS) {
            if let Some(fixed) = stream.fixed_release() {
                assert!(!stream.has(&Release::parse(&fixed)), "{fixed}");
                assert!(fixed.starts_with(stream.version) && fixed.ends_with(stream.tag), "{fixed}");
            }
        }
    }
}
