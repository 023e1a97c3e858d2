//! Rotary position embedding: Su et al. 2021, arXiv 2104.09864; extended by YaRN, Peng et al. 2023, arXiv 2309.00071.

use super::memory::{View, unravel};
use super::parallel;
use crate::graph::{Rope, RopeMode};
use std::f64::consts::TAU;

/// `a [d, heads, tokens, b]` with the first `n_dims` elements of each row turned by its token's position; `factors`
/// divide the frequencies.
pub(super) fn rope(rope: &Rope, a: &View, positions: &View, factors: Option<&View>) -> Vec<f32> {
    let ne = a.ne();
    let pairs = rope.n_dims as usize / 2;
    let turns = Turns::new(rope);
    let mut angles = vec![(0.0, 0.0); pairs * ne[2]];
    parallel::rows(&mut angles, pairs, pairs * 64, |token, angles| {
        let position = positions.int([token, 0, 0, 0]) as f64;
        for (pair, angle) in angles.iter_mut().enumerate() {
            let factor = factors.map_or(1.0, |factors| f64::from(factors.float([pair, 0, 0, 0])));
            *angle = turns.cos_sin(position, pair, factor);
        }
    });
    let mut out = vec![0.0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * 4, |row, out| {
        let at = unravel(row, ne);
        out.copy_from_slice(&a.row(at));
        for (pair, &(cos, sin)) in angles[at[1] * pairs..][..pairs].iter().enumerate() {
            let (first, second) = match rope.mode {
                RopeMode::Normal => (2 * pair, 2 * pair + 1),
                RopeMode::Neox => (pair, pair + pairs),
            };
            let (x, y) = (out[first], out[second]);
            out[first] = x * cos - y * sin;
            out[second] = x * sin + y * cos;
        }
    });
    out
}

/// How far each pair of a row turns per position.
struct Turns<'a> {
    rope: &'a Rope,
    /// Pairs below the first number turn at the original speed, pairs above the second at the scaled one.
    ramp: [f64; 2],
    /// Factor on the result.
    magnitude: f64,
}

impl<'a> Turns<'a> {
    fn new(rope: &'a Rope) -> Self {
        let attn_factor = f64::from(rope.attn_factor);
        if rope.ext_factor == 0.0 {
            return Self { rope, ramp: [0.0; 2], magnitude: attn_factor };
        }
        let last = f64::from(rope.n_dims) - 1.0;
        let low = pair_that_turns(rope, rope.beta_fast).floor().max(0.0);
        let high = pair_that_turns(rope, rope.beta_slow).ceil().min(last);
        // YaRN §3.4: the scaled context flattens the attention; this sharpens it again.
        let magnitude = attn_factor * (1.0 + 0.1 * (1.0 / f64::from(rope.freq_scale)).ln());
        Self { rope, ramp: [low, high], magnitude }
    }

    fn cos_sin(&self, position: f64, pair: usize, factor: f64) -> (f32, f32) {
        let rope = self.rope;
        let exponent = -2.0 * pair as f64 / f64::from(rope.n_dims);
        let original = position * f64::from(rope.freq_base).powf(exponent) / factor;
        let scaled = original * f64::from(rope.freq_scale);
        let angle = if rope.ext_factor == 0.0 {
            scaled
        } else {
            let [low, high] = self.ramp;
            let along = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let keep = (1.0 - along) * f64::from(rope.ext_factor);
            scaled * (1.0 - keep) + original * keep
        };
        // Angles are f32 numbers by definition: small frequency factors make them so large that it shows.
        let (sin, cos) = f64::from(angle as f32).sin_cos();
        ((cos * self.magnitude) as f32, (sin * self.magnitude) as f32)
    }
}

/// The pair, as a fraction, that turns so many times over the original context: YaRN, equation 17 solved for it.
fn pair_that_turns(rope: &Rope, times: f32) -> f64 {
    let wavelength = f64::from(rope.n_ctx_orig) / (f64::from(times) * TAU);
    f64::from(rope.n_dims) * wavelength.ln() / (2.0 * f64::from(rope.freq_base).ln())
}
