//! [`Rng`]: the random numbers of the streams, the same on every machine and in every version.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// Random numbers of one thread: xoshiro256++, whose stream is its definition and cannot change.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// For thread `thread` of an actor: nearby seeds, names and threads give unrelated streams.
    pub fn new(seed: u64, actor: &str, thread: u64) -> Rng {
        let seed = mix(mix(mix(seed) ^ fnv1a(actor.as_bytes())) ^ thread);
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// For what all threads of an actor share, such as where its hot pages lie.
    pub(crate) fn shared(seed: u64, actor: &str) -> Rng {
        Rng::new(seed, actor, u64::MAX)
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`, and where between it and the next one the draw fell, in units of 2⁻⁶⁴.
    ///
    /// By multiplication: a number's probability is off by less than 2⁻⁶⁴, and the fraction has
    /// 64 − log₂ n bits.
    #[inline]
    pub(crate) fn split(&mut self, n: u64) -> (u64, u64) {
        let product = u128::from(self.next()) * u128::from(n);
        ((product >> 64) as u64, product as u64)
    }

    /// A number below `n`; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        self.split(u64::from(n)).0 as u32
    }

    /// True with this probability.
    #[inline]
    pub(crate) fn chance(&mut self, chance: Chance) -> bool {
        match chance {
            Chance::Never => false,
            Chance::Always => true,
            Chance::Below(threshold) => self.next() < threshold,
        }
    }
}

/// A probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chance {
    Never,
    Always,
    /// In units of 2⁻⁶⁴.
    Below(u64),
}

impl Chance {
    /// From a share; what is outside 0…1 is taken for the nearer end.
    pub(crate) fn of(share: f64) -> Chance {
        match share {
            s if s >= 1.0 => Chance::Always,
            s if s > 0.0 => Chance::Below(fraction(s)),
            _ => Chance::Never,
        }
    }
}

/// A number from 0 to 1 in units of 2⁻⁶⁴; 1 is one unit short.
pub(crate) fn fraction(share: f64) -> u64 {
    // 2⁶⁴ is exact, and the conversion saturates.
    (share * 18_446_744_073_709_551_616.0) as u64
}

/// The finalizer of SplitMix64 over its first step (Steele, Lea and Flood, 2014).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_mixes_as_published() {
        // The first outputs of SplitMix64 from seed 1234567, and the test vectors of FNV's authors.
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
        assert_eq!(mix(1_234_567_u64.wrapping_add(0x9e37_79b9_7f4a_7c15)), 3_203_168_211_198_807_973);
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn threads_actors_and_seeds_differ() {
        let first = |seed, actor, thread| Rng::new(seed, actor, thread).next();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..10 {
            for actor in ["a", "b", "ab", "ba"] {
                for thread in (0..10).chain([u64::MAX]) {
                    seen.insert(first(seed, actor, thread));
                }
            }
        }
        assert_eq!(seen.len(), 10 * 4 * 11);
    }

    #[test]
    fn chances_are_met() {
        let mut rng = Rng::new(1, "chance", 0);
        for share in [0.01, 0.5, 0.9] {
            let hits = (0..100_000).filter(|_| rng.chance(Chance::of(share))).count() as f64;
            let sigma = (100_000.0 * share * (1.0 - share)).sqrt();
            assert!((hits - 100_000.0 * share).abs() < 4.0 * sigma, "{share}: {hits}");
        }
        assert_eq!(Chance::of(0.0), Chance::Never);
        assert_eq!(Chance::of(1.0), Chance::Always);
        assert_eq!(Chance::of(f64::NAN), Chance::Never);
    }
}
