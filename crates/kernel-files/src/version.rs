//! The kernel's release.

use std::fmt;

use serde::Serialize;

/// A kernel release such as `6.12.43+deb13-amd64` or `2.6.32-642.6.2.el6.x86_64`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelVersion {
    /// The three leading numbers, zero where unknown.
    pub numbers: (u32, u32, u32),
    /// The whole release.
    pub release: String,
}

impl KernelVersion {
    /// Parses a release; `None` if it does not begin with `number.number`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut parts = release.trim().splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let leading = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse::<u32>().ok()
        };
        let minor = leading(parts.next()?)?;
        let patch = parts.next().and_then(leading).unwrap_or(0);
        Some(KernelVersion { numbers: (major, minor, patch), release: release.trim().to_owned() })
    }

    /// Whether the release is known at all.
    pub fn is_known(&self) -> bool {
        self.numbers.0 > 0
    }

    /// Whether this is `major.minor` or later; `false` if the release is unknown. Distribution kernels carry
    /// backports, so prefer asking for a counter or a file over asking for a version.
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.numbers.0, self.numbers.1) >= (major, minor)
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.release.is_empty() { "unknown" } else { &self.release })
    }
}
