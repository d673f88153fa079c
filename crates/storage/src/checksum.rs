//! [`Fnv1a`]: the checksum of files that lotsfree writes.

/// FNV-1a of 64 bits. It finds damage, but does not protect from forgery.
#[derive(Clone, Copy, Debug)]
pub struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Fnv1a(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    /// Adds bytes after those added before.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    }

    /// The checksum of the bytes that were added.
    pub fn value(self) -> u64 {
        self.0
    }

    /// The checksum of some bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut fnv = Fnv1a::default();
        fnv.add(bytes);
        fnv.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_is_the_published_one() {
        assert_eq!(Fnv1a::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv1a::of(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
