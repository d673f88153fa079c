//! Shares with their intervals, and how far two judges agree.

use std::collections::BTreeMap;

/// `hits` of `all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) hits: usize,
    pub(super) all: usize,
}

/// The normal distribution's quantile for 95 %.
const Z: f64 = 1.959_964;

impl Share {
    pub(super) fn of(values: impl IntoIterator<Item = bool>) -> Share {
        values.into_iter().fold(Share::default(), |share, hit| Share {
            hits: share.hits + usize::from(hit),
            all: share.all + 1,
        })
    }

    pub(super) fn value(self) -> f64 {
        self.hits as f64 / self.all.max(1) as f64
    }

    /// Wilson's score interval at 95 % (Wilson, JASA 22, 1927), which stays between 0 and 1 for small
    /// numbers.
    pub(super) fn interval(self) -> (f64, f64) {
        let (n, p) = (self.all as f64, self.value());
        if self.all == 0 {
            return (0.0, 1.0);
        }
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
    }
}

/// Cohen's kappa of pairs of words: how much more often two judges agree than chance would have it; `None`
/// where both always say the same one word.
pub(super) fn kappa<W: Ord + Copy>(pairs: &[(W, W)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let (mut first, mut second) = (BTreeMap::<W, f64>::new(), BTreeMap::<W, f64>::new());
    for (a, b) in pairs {
        *first.entry(*a).or_default() += 1.0 / n;
        *second.entry(*b).or_default() += 1.0 / n;
    }
    let observed = pairs.iter().filter(|(a, b)| a == b).count() as f64 / n;
    let chance: f64 =
        first.iter().map(|(word, share)| share * second.get(word).copied().unwrap_or(0.0)).sum();
    (!pairs.is_empty() && chance < 1.0 - 1e-9).then(|| (observed - chance) / (1.0 - chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_wilsons() {
        let close = |(low, high): (f64, f64), wanted: (f64, f64)| {
            assert!((low - wanted.0).abs() < 5e-4 && (high - wanted.1).abs() < 5e-4, "{low} {high}");
        };
        close(Share { hits: 80, all: 100 }.interval(), (0.7112, 0.8666));
        close(Share { hits: 0, all: 10 }.interval(), (0.0, 0.2775));
        close(Share { hits: 0, all: 0 }.interval(), (0.0, 1.0));
    }

    #[test]
    fn kappa_is_agreement_beyond_chance() {
        // Cohen's table: 20 both yes, 15 both no, 5 and 10 apart: (0.7 - 0.5) / 0.5.
        let mut pairs = vec![(true, true); 20];
        pairs.extend(vec![(false, false); 15]);
        pairs.extend(vec![(true, false); 5]);
        pairs.extend(vec![(false, true); 10]);
        assert!((kappa(&pairs).unwrap_or_default() - 0.4).abs() < 1e-9);
        assert_eq!(kappa(&[(true, true); 5]), None);
    }
}
