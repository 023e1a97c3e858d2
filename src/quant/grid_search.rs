//! How ggml finds points of a grid for elements: by trying several scales, looking only at the points nearest to where
//! the elements then are, and keeping the scale with the least weighted error.
//!
//! The order of every sum and product is ggml's, since the choice can hang on the last bit.

use super::block::nearest;
use super::grids;
use std::sync::LazyLock;

/// A grid of points of `N` coordinates, which here are odd numbers: `2 · digit + 1`.
pub(super) struct Grid<const N: usize> {
    points: &'static [u16],
    /// Digits go from 0 to below this.
    digits: u8,
    /// For every number that a point could have, the points to consider: that point, or those at the smallest distances.
    candidates: Vec<Vec<u16>>,
}

/// What [`Grid::fit`] tries: scales that bring the largest element to the largest digit, more or less `steps` times
/// `step`.
pub(super) struct Tries {
    pub(super) steps: i8,
    pub(super) step: f32,
    /// Groups whose elements are all smaller count as zero.
    pub(super) epsilon: f32,
    /// Whether points that were on the grid are looked for again with the others.
    pub(super) refine_all: bool,
}

/// Points for some elements, by their positions in the grid.
pub(super) struct Fit {
    pub(super) scale: f32,
    pub(super) points: Vec<u16>,
}

pub(super) static IQ2_S: LazyLock<Grid<8>> = LazyLock::new(|| Grid::new(&grids::IQ2_S_POINTS, 3, 1));
pub(super) static IQ3_XXS: LazyLock<Grid<4>> = LazyLock::new(|| Grid::new(&grids::IQ3_XXS_POINTS, 8, 2));
pub(super) static IQ3_S: LazyLock<Grid<4>> = LazyLock::new(|| Grid::new(&grids::IQ3_S_POINTS, 8, 3));

/// Bits of one of `n` digits of a point's number.
const fn bits(n: usize) -> usize {
    if n == 8 { 2 } else { 3 }
}

fn digits<const N: usize>(number: u16) -> [u8; N] {
    let bits = bits(N);
    std::array::from_fn(|j| (number >> (bits * j)) as u8 & ((1 << bits) - 1))
}

fn number<const N: usize>(digits: [u8; N]) -> u16 {
    digits.iter().enumerate().fold(0, |number, (j, &digit)| number | u16::from(digit) << (bits(N) * j))
}

impl<const N: usize> Grid<N> {
    /// Considers the points at the `distances` smallest distances.
    fn new(points: &'static [u16], levels: u8, distances: usize) -> Self {
        let candidates = (0..1u32 << (bits(N) * N)).map(|number| {
            let number = number as u16;
            let at: [u8; N] = digits(number);
            if at.iter().any(|&digit| digit >= levels) {
                return Vec::new();
            }
            if let Ok(index) = points.binary_search(&number) {
                return vec![index as u16];
            }
            let distance = |&point: &u16| -> u32 {
                let steps = digits::<N>(point).into_iter().zip(at);
                steps.map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
            };
            let mut near: Vec<(u32, u16)> = points.iter().map(distance).zip(0..).collect();
            near.sort_unstable();
            let mut smallest: Vec<u32> = near.iter().map(|&(distance, _)| distance).collect();
            smallest.dedup();
            let last = smallest.get(distances - 1).copied().unwrap_or(u32::MAX);
            near.into_iter().take_while(|&(distance, _)| distance <= last).map(|(_, index)| index).collect()
        });
        let candidates = candidates.collect();
        Self { points, digits: levels, candidates }
    }

    fn coordinates(&self, index: u16) -> [f32; N] {
        digits::<N>(self.points[usize::from(index)]).map(|digit| f32::from(2 * digit + 1))
    }

    /// The point that serves `x` best at a scale, and whether it is the very one that they round to.
    fn choose(&self, x: &[f32; N], weights: &[f32; N], inverse: f32, scale: f32) -> (u16, bool) {
        let limit = i32::from(self.digits) - 1;
        let rounded = number(x.map(|x| nearest(0.5 * (inverse * x - 1.0)).clamp(0, limit) as u8));
        let mut best = (f32::MAX, 0);
        for &index in &self.candidates[usize::from(rounded)] {
            let parts = self.coordinates(index).into_iter().zip(x).zip(weights);
            let distance = parts.fold(0.0, |sum: f32, ((q, x), w)| {
                let off = scale * q - x;
                sum + w * off * off
            });
            if distance < best.0 {
                best = (distance, index);
            }
        }
        (best.1, self.points[usize::from(best.1)] == rounded)
    }

    /// `Σ w·x·q` and `Σ w·q·q`.
    fn sums(&self, x: &[f32], weights: &[f32], points: &[u16]) -> (f32, f32) {
        let q = points.iter().flat_map(|&index| self.coordinates(index));
        x.iter().zip(weights).zip(q).fold((0.0, 0.0), |(xq, qq), ((x, w), q)| (xq + w * x * q, qq + w * q * q))
    }

    /// Points for magnitudes; `None` when they are as good as zero.
    pub(super) fn fit(&self, x: &[f32], weights: &[f32], tries: &Tries) -> Option<Fit> {
        let largest = x.iter().fold(f32::MIN, |max, &x| if max > x { max } else { x });
        if largest < tries.epsilon || largest == 0.0 {
            return None;
        }
        let roots: Vec<f32> = weights.iter().map(|w| w.sqrt()).collect();
        let groups = || x.as_chunks::<N>().0.iter().zip(roots.as_chunks::<N>().0);
        let top = f32::from(2 * self.digits - 1);
        let mut scale = largest / top;
        let mut gain = 0.0;
        let mut chosen = vec![(0, !tries.refine_all); x.len() / N];
        let indices = |chosen: &[(u16, bool)]| chosen.iter().map(|&(index, _)| index).collect::<Vec<u16>>();
        for step in -tries.steps..=tries.steps {
            let inverse = (top + f32::from(step) * tries.step) / largest;
            let these: Vec<_> = groups().map(|(x, w)| self.choose(x, w, inverse, 1.0 / inverse)).collect();
            let (xq, qq) = self.sums(x, weights, &indices(&these));
            if qq > 0.0 && xq * xq > gain * qq {
                scale = xq / qq;
                gain = scale * xq;
                chosen = these;
            }
        }
        if scale > 0.0 && chosen.iter().any(|(_, exact)| !exact) {
            for (chosen, (x, w)) in chosen.iter_mut().zip(groups()) {
                if tries.refine_all || !chosen.1 {
                    *chosen = self.choose(x, w, 1.0 / scale, scale);
                }
            }
            let (xq, qq) = self.sums(x, weights, &indices(&chosen));
            if qq > 0.0 {
                scale = xq / qq;
            }
        }
        Some(Fit { scale, points: indices(&chosen) })
    }
}
