//! [`Zipf`]: ranks whose frequency falls with a power of the rank.

use super::rng::{Rng, fraction};

/// Ranks that have a cell of their own in the table.
const HEAD: u32 = 256;

/// Beyond the head, a block of ranks is this part of its first rank wide.
const WIDTH: u32 = 64;

/// Draws a rank `k` of 1…n with probability proportional to `k^-s`, as a number from 0.
///
/// The first 256 ranks have a cell each in an alias table (Walker 1977, Vose 1991); ranks beyond share cells
/// in blocks that are 1/64 of their first rank wide. Within a block a rank is drawn uniformly and kept with
/// the probability `(k/first)^-s`, which is exact; since it hardly varies within a block, one comparison with
/// the block's least probability settles all but some `s/128` of the draws. The table takes 32 bytes for each
/// of at most some 1,400 cells, whatever n is, and stays in the cache.
///
/// A block's weight is the sum over its ranks by the midpoint rule with three correction terms, whose error
/// is below 10⁻¹³ of it. Powers are those of `libm`, which is written in the basic operations of IEEE 754
/// alone: the same ranks come out on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    exponent: f64,
    cells: Vec<Cell>,
    /// As many as cells.
    blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The draw is for the block of the same index below this fraction; else for that of `alias`.
    keep: u64,
    alias: u32,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// First rank, from 0.
    first: u32,
    ranks: u32,
    /// Below this fraction every rank of the block is kept.
    sure: u64,
}

impl Zipf {
    /// For `n` ranks (at least one) and an exponent that is finite and not negative; 0 is uniform.
    pub(crate) fn new(n: u32, exponent: f64) -> Zipf {
        let mut blocks = Vec::new();
        let mut weights = Vec::new();
        let mut first = 0_u32;
        while first < n {
            let ranks = if first < HEAD { 1 } else { first / WIDTH }.min(n - first);
            let least = ratio(first, ranks - 1, exponent);
            blocks.push(Block { first, ranks, sure: fraction(least) });
            weights.push(weight(first, ranks, exponent));
            first += ranks;
        }
        // What is drawn always needs a rank.
        if blocks.is_empty() {
            blocks.push(Block { first: 0, ranks: 1, sure: u64::MAX });
            weights.push(1.0);
        }
        let cells = alias(&mut weights);
        Zipf { exponent, cells, blocks }
    }

    /// A rank, from 0.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        let (index, part) = rng.split(self.cells.len() as u64);
        let cell = &self.cells[index as usize];
        // Either is as likely as not to be taken: a selection, not a branch.
        let block = std::hint::select_unpredictable(part < cell.keep, index as usize, cell.alias as usize);
        let block = &self.blocks[block];
        loop {
            let (offset, part) = rng.split(u64::from(block.ranks));
            let offset = offset as u32;
            if part <= block.sure || part <= fraction(ratio(block.first, offset, self.exponent)) {
                return block.first + offset;
            }
        }
    }
}

/// How much rarer the rank `offset` after `first` is than `first`; both count from 0.
#[inline(never)]
fn ratio(first: u32, offset: u32, exponent: f64) -> f64 {
    let first = f64::from(first) + 1.0;
    libm::pow(first / (first + f64::from(offset)), exponent)
}

/// The sum of `k^-s` over a block, with a common factor that does not matter.
fn weight(first: u32, ranks: u32, s: f64) -> f64 {
    let m = f64::from(ranks);
    let centre = f64::from(first) + 1.0 + (m - 1.0) / 2.0;
    let middle = libm::pow(centre, -s);
    // The means of d², d⁴ and d⁶ over the distances d from the centre, and the derivatives' factors.
    let (mm, cc) = (m * m, centre * centre);
    let d2 = (mm - 1.0) / 12.0 / cc;
    let d4 = (mm - 1.0) * (3.0 * mm - 7.0) / 240.0 / (cc * cc);
    let d6 = (mm - 1.0) * (3.0 * mm * mm - 18.0 * mm + 31.0) / 1344.0 / (cc * cc * cc);
    let f2 = s * (s + 1.0) / 2.0;
    let f4 = f2 * (s + 2.0) * (s + 3.0) / 12.0;
    let f6 = f4 * (s + 4.0) * (s + 5.0) / 30.0;
    middle * m * (1.0 + f2 * d2 + f4 * d4 + f6 * d6)
}

/// The alias table of these weights by Vose's method.
fn alias(weights: &mut [f64]) -> Vec<Cell> {
    let mut cells = vec![Cell { keep: u64::MAX, alias: 0 }; weights.len()];
    let sum: f64 = weights.iter().sum();
    let scale = weights.len() as f64 / sum;
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for (i, weight) in weights.iter_mut().enumerate() {
        *weight *= scale;
        if *weight < 1.0 { &mut small } else { &mut large }.push(i);
    }
    while let (Some(&less), Some(&more)) = (small.last(), large.last()) {
        small.pop();
        cells[less].keep = fraction(weights[less]);
        cells[less].alias = more as u32;
        weights[more] -= 1.0 - weights[less];
        if weights[more] < 1.0 {
            large.pop();
            small.push(more);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic of what was drawn against the theory, over ranks grouped so that every group
    /// expects at least 20, and its degrees of freedom.
    fn chi_square(
        n: u32,
        s: f64,
        draws: u32,
        seed: u64,
        mut draw: impl FnMut(&mut Rng) -> u32,
    ) -> (f64, f64) {
        let mut rng = Rng::new(seed, "zipf", 0);
        let mut seen = vec![0_u32; n as usize];
        for _ in 0..draws {
            seen[draw(&mut rng) as usize] += 1;
        }
        let weights: Vec<f64> = (1..=n).map(|k| f64::from(k).powf(-s)).collect();
        let sum: f64 = weights.iter().sum();
        let (mut chi, mut groups, mut expected, mut found) = (0.0, 0.0, 0.0, 0.0);
        for (weight, count) in weights.iter().zip(&seen) {
            expected += weight / sum * f64::from(draws);
            found += f64::from(*count);
            if expected >= 20.0 {
                chi += (found - expected) * (found - expected) / expected;
                groups += 1.0;
                (expected, found) = (0.0, 0.0);
            }
        }
        (chi, groups - 1.0)
    }

    #[test]
    fn frequencies_follow_the_law() {
        for (n, s) in
            [(1, 1.0), (10, 1.0), (1000, 0.5), (1030, 1.0), (50_000, 1.0), (300_000, 0.8), (100_000, 2.0)]
        {
            let zipf = Zipf::new(n, s);
            let (chi, freedom) = chi_square(n, s, 2_000_000, 7, |rng| zipf.draw(rng));
            // Mean f, variance 2f: five standard deviations.
            assert!(chi <= freedom + 5.0 * (2.0 * freedom).sqrt() + 1e-9, "{n} {s}: {chi} with {freedom}");
            if n > 1 {
                let (chi, freedom) = chi_square(n, s, 2_000_000, 7, |rng| rng.below(n));
                assert!(chi > 10.0 * freedom, "uniform passes for {n} {s}: {chi} with {freedom}");
                let near = Zipf::new(n, s + 0.05);
                let (chi, freedom) = chi_square(n, s, 2_000_000, 7, |rng| near.draw(rng));
                assert!(chi > freedom + 10.0 * (2.0 * freedom).sqrt(), "{n} {s} + 0.05 passes: {chi}");
            }
        }
    }

    #[test]
    fn exponent_zero_is_uniform() {
        let zipf = Zipf::new(5000, 0.0);
        let (chi, freedom) = chi_square(5000, 0.0, 1_000_000, 3, |rng| zipf.draw(rng));
        assert!(chi < freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi}");
    }

    #[test]
    fn block_weights_are_the_sums() {
        for s in [0.0, 0.3, 1.0, 1.5, 3.0, 10.0] {
            for (first, ranks) in [(0, 1), (256, 4), (1_000_000, 15_625), (100_000_000, 1_562_500)] {
                let exact = (0..ranks).rev().map(|i| libm::pow(f64::from(first + i + 1), -s)).sum::<f64>();
                let error = (weight(first, ranks, s) / exact - 1.0).abs();
                assert!(error < 2e-12, "{first} {ranks} {s}: {error:e}");
            }
        }
    }

    #[test]
    fn the_largest_table_is_small_and_reaches_every_rank() {
        let zipf = Zipf::new(u32::MAX, 1.0);
        assert!(zipf.cells.len() < 1500, "{}", zipf.cells.len());
        let mut next = 0_u64;
        for block in &zipf.blocks {
            assert_eq!(u64::from(block.first), next);
            next += u64::from(block.ranks);
        }
        assert_eq!(next, u64::from(u32::MAX));
    }

    #[test]
    fn the_same_ranks_on_every_machine() {
        let zipf = Zipf::new(10_000_000, 0.9);
        let mut rng = Rng::new(42, "golden", 3);
        let drawn: Vec<u32> = (0..8).map(|_| zipf.draw(&mut rng)).collect();
        assert_eq!(drawn, [4_817_884, 9_123, 49_927, 4_465, 2_588_059, 68, 1, 1_651_378]);
    }
}
