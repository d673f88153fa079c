//! [`Locality`]: which pages are touched how often.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Refusal;
use super::rng::{Chance, Rng};
use super::zipf::Zipf;

/// Which pages of a memory are touched how often. Hot pages are scattered over the memory by a seeded
/// permutation, as the objects of a heap are. It is the key `locality` of `app-server` and of
/// `segment-store`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Locality {
    /// Every page as often as any other: `locality = "uniform"`.
    #[default]
    Uniform,
    /// The page of rank k is touched in proportion to k to the power of minus this exponent (0 to 10):
    /// `locality = { zipf = 1.0 }`.
    Zipf(f64),
    /// A part of the memory gets most of the touches:
    /// `locality = { hot-cold = { memory = 0.2, touches = 0.8 } }`.
    HotCold(HotCold),
}

/// A hot and a cold part, both uniform within.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HotCold {
    /// The share of the memory that is hot, above 0 and below 1.
    pub memory: f64,
    /// The share of the touches that goes to it, 0 to 1.
    pub touches: f64,
}

/// Draws pages.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    Uniform { pages: u32 },
    Zipf { ranks: Zipf, scatter: Scatter },
    HotCold { hot: u32, cold: u32, touches: Chance, scatter: Scatter },
}

impl Chooser {
    /// Over `pages` pages, at least one. `rng` decides where the hot ones lie.
    pub(crate) fn new(locality: Locality, pages: u32, rng: &mut Rng) -> Result<Chooser, Refusal> {
        let refuse = |why: String| Err(Refusal::new("locality", why));
        match locality {
            Locality::Uniform => Ok(Chooser::Uniform { pages }),
            Locality::Zipf(exponent) if !(0.0..=10.0).contains(&exponent) => {
                refuse(format!("the exponent of zipf is {exponent}; it may be 0 to 10"))
            }
            Locality::Zipf(exponent) => {
                Ok(Chooser::Zipf { ranks: Zipf::new(pages, exponent), scatter: Scatter::new(pages, rng) })
            }
            Locality::HotCold(HotCold { memory, touches }) => {
                if !(memory > 0.0 && memory < 1.0) {
                    return refuse(format!("hot-cold.memory is {memory}; it must be above 0 and below 1"));
                }
                if !(0.0..=1.0).contains(&touches) {
                    return refuse(format!("hot-cold.touches is {touches}; it may be 0 to 1"));
                }
                if pages < 2 {
                    return refuse("hot-cold needs at least two pages or objects to choose among".to_owned());
                }
                let hot = ((f64::from(pages) * memory).round() as u32).clamp(1, pages - 1);
                Ok(Chooser::HotCold {
                    hot,
                    cold: pages - hot,
                    touches: Chance::of(touches),
                    scatter: Scatter::new(pages, rng),
                })
            }
        }
    }

    /// A page.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        match self {
            Chooser::Uniform { pages } => rng.below(*pages),
            Chooser::Zipf { ranks, scatter } => scatter.page(ranks.draw(rng)),
            Chooser::HotCold { hot, cold, touches, scatter } => {
                let rank = if rng.chance(*touches) { rng.below(*hot) } else { hot + rng.below(*cold) };
                scatter.page(rank)
            }
        }
    }
}

/// A seeded permutation of the pages below `n`, computed instead of stored.
///
/// A number is split into a low part of some bits and a high part below `parts`, 8 to 15, so that all numbers
/// there are exceed `n` by at most an eighth. Each step changes one part by the other or in itself and can be
/// undone. A result that is not below `n` goes through it again (cycle walking; Black and Rogaway, 2002).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scatter {
    n: u32,
    parts: u64,
    /// Bits of the low part.
    bits: u32,
    shift: u32,
    /// Odd: multiplication can be undone modulo a power of two.
    factors: [u64; 3],
    add: [u64; 2],
}

impl Scatter {
    pub(crate) fn new(n: u32, rng: &mut Rng) -> Scatter {
        let bits = n.max(1).ilog2().saturating_sub(3);
        Scatter {
            n,
            parts: u64::from(n).div_ceil(1 << bits),
            bits,
            shift: bits.div_ceil(2),
            factors: [rng.next() | 1, rng.next() | 1, rng.next() | 1],
            add: [rng.next() | 1, rng.next() | 1],
        }
    }

    /// Where the page of this rank, below `n`, lies.
    #[inline]
    pub(crate) fn page(&self, rank: u32) -> u32 {
        let Scatter { parts, bits, shift, factors: [first, second, third], add: [before, after], .. } = *self;
        let mask = (1 << bits) - 1;
        let mix = |low: u64, factor: u64| {
            let low = low.wrapping_mul(factor) & mask;
            low ^ (low >> shift)
        };
        let mut x = u64::from(rank);
        loop {
            let (high, low) = (x >> bits, x & mask);
            let low = mix(low.wrapping_add(before.wrapping_mul(high + 1)), first);
            let high = high + ((low * parts) >> bits);
            let high = if high >= parts { high - parts } else { high };
            let low = mix(mix(low.wrapping_add(after.wrapping_mul(high + 1)), second), third);
            x = high << bits | low;
            if x < u64::from(self.n) {
                return x as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::*;

    proptest! {
        #[test]
        fn scatter_is_a_permutation(n in 1_u32..5000, seed: u64) {
            let scatter = Scatter::new(n, &mut Rng::shared(seed, "scatter"));
            let mut seen = vec![false; n as usize];
            for rank in 0..n {
                let page = scatter.page(rank) as usize;
                prop_assert!(!seen[page]);
                seen[page] = true;
            }
        }
    }

    #[test]
    fn hot_pages_are_scattered() {
        for (n, seed) in [(1 << 20, 1), (1_000_000, 2), ((1 << 20) + 1, 3), (10_000_000, 4)] {
            let scatter = Scatter::new(n, &mut Rng::shared(seed, "scatter"));
            // The hottest 6,400 pages over 64 equal parts of the memory: a hundred in each.
            let mut parts = [0_f64; 64];
            let mut neighbours = 0;
            for rank in 0..6400 {
                let page = scatter.page(rank);
                parts[(u64::from(page) * 64 / u64::from(n)) as usize] += 1.0;
                neighbours += u32::from(page.abs_diff(scatter.page(rank + 1)) < 16);
            }
            let chi: f64 = parts.iter().map(|count| (count - 100.0) * (count - 100.0) / 100.0).sum();
            assert!(chi < 63.0 + 5.0 * 126_f64.sqrt(), "{n}: {chi}");
            assert!(neighbours < 8, "{n}: {neighbours}");
        }
    }

    #[test]
    fn hot_and_cold_get_their_shares() {
        let locality = Locality::HotCold(HotCold { memory: 0.1, touches: 0.7 });
        let chooser = Chooser::new(locality, 1000, &mut Rng::shared(5, "hot")).unwrap();
        let mut rng = Rng::new(5, "hot", 0);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..1_000_000 {
            counts[chooser.draw(&mut rng) as usize] += 1;
        }
        // A hot page expects 7,000 touches, a cold one 333; nothing lies between.
        let hot: Vec<u32> = counts.iter().copied().filter(|count| *count > 2000).collect();
        assert_eq!(hot.len(), 100);
        assert!(hot.iter().all(|count| (6500..7500).contains(count)), "{hot:?}");
        assert!(counts.iter().filter(|count| **count <= 2000).all(|count| (230..440).contains(count)));
        let total: u32 = hot.iter().sum();
        assert!((698_000..702_000).contains(&total), "{total}");
    }

    #[test]
    fn impossible_localities_are_refused() {
        let refused = |locality, pages| {
            Chooser::new(locality, pages, &mut Rng::shared(1, "x")).unwrap_err().to_string()
        };
        assert_eq!(
            refused(Locality::Zipf(-1.0), 10),
            "locality: the exponent of zipf is -1; it may be 0 to 10"
        );
        assert_eq!(
            refused(Locality::Zipf(f64::NAN), 10),
            "locality: the exponent of zipf is NaN; it may be 0 to 10"
        );
        assert_eq!(
            refused(Locality::HotCold(HotCold { memory: 1.0, touches: 0.5 }), 10),
            "locality: hot-cold.memory is 1; it must be above 0 and below 1"
        );
        assert_eq!(
            refused(Locality::HotCold(HotCold { memory: 0.5, touches: 1.5 }), 10),
            "locality: hot-cold.touches is 1.5; it may be 0 to 1"
        );
        assert_eq!(
            refused(Locality::HotCold(HotCold { memory: 0.5, touches: 0.5 }), 1),
            "locality: hot-cold needs at least two pages or objects to choose among"
        );
    }

    #[test]
    fn reads_what_is_documented() {
        #[derive(Deserialize)]
        struct Holder {
            locality: Locality,
        }
        let read = |text: &str| toml::from_str::<Holder>(text).map(|holder| holder.locality);
        assert_eq!(read("locality = \"uniform\""), Ok(Locality::Uniform));
        assert_eq!(read("locality = { zipf = 1.0 }"), Ok(Locality::Zipf(1.0)));
        assert_eq!(read("locality = { zipf = 1 }"), Ok(Locality::Zipf(1.0)));
        assert_eq!(
            read("locality = { hot-cold = { memory = 0.2, touches = 0.8 } }"),
            Ok(Locality::HotCold(HotCold { memory: 0.2, touches: 0.8 }))
        );
        assert!(read("locality = { hot-cold = { memory = 0.2, touches = 0.8, other = 1 } }").is_err());
    }
}
