//! Rotary position embedding: Su et al. 2021, arXiv 2104.09864; extended by YaRN, Peng et al. 2023, arXiv 2309.00071.

use super::memory::{View, unravel};
use super::parallel;
use crate::graph::{Rope, RopeMode};
use std::f64::consts::TAU;

/// `a [d, heads, tokens, b]` with the pairs of each row turned by their token's position, or turned back; `factors` divide
/// the frequencies.
pub(super) fn rope(rope: &Rope, a: &View, positions: &View, factors: Option<&View>, back: bool) -> Vec<f32> {
    let ne = a.ne();
    let pairs = rope.pairs();
    let turns = Turns::new(rope);
    let mut angles = vec![(0.0, 0.0); pairs * ne[2]];
    parallel::rows(&mut angles, pairs, pairs * 64, |token, angles| {
        for (pair, angle) in angles.iter_mut().enumerate() {
            let (axis, step) = place(rope, pair);
            let position = positions.int([token + axis * ne[2], 0, 0, 0]) as f64;
            let factor = factors.map_or(1.0, |factors| f64::from(factors.float([pair, 0, 0, 0])));
            let (cos, sin) = turns.cos_sin(position, pair, step, factor);
            *angle = (cos, if back { -sin } else { sin });
        }
    });
    let mut out = vec![0.0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * 4, |row, out| {
        let at = unravel(row, ne);
        out.copy_from_slice(&a.row(at));
        let turning = &mut out[rope.first_dim as usize..];
        for (pair, &(cos, sin)) in angles[at[1] * pairs..][..pairs].iter().enumerate() {
            let (first, second) = match rope.mode {
                RopeMode::Normal => (2 * pair, 2 * pair + 1),
                RopeMode::Neox | RopeMode::Mrope { .. } | RopeMode::Imrope { .. } | RopeMode::Vision { .. } => {
                    (pair, pair + pairs)
                }
            };
            let (x, y) = (turning[first], turning[second]);
            turning[first] = x * cos - y * sin;
            turning[second] = x * sin + y * cos;
        }
    });
    out
}

/// Which of its token's positions a pair turns by, and the power of its frequency.
fn place(rope: &Rope, pair: usize) -> (usize, usize) {
    let Some(sections) = rope.sections() else { return (0, pair) };
    let sections = sections.map(|pairs| pairs as usize);
    let at = pair % sections.iter().sum::<usize>();
    let starts = [0, sections[0], sections[0] + sections[1], sections[0] + sections[1] + sections[2]];
    let axis = match rope.mode {
        RopeMode::Imrope { .. } => {
            let turn = at % 3;
            if at < 3 * sections[turn] { turn } else { 3 }
        }
        RopeMode::Normal | RopeMode::Neox | RopeMode::Mrope { .. } | RopeMode::Vision { .. } => {
            // An empty section starts where the next one does and has no pair.
            starts.iter().rposition(|&start| at >= start).unwrap_or(0)
        }
    };
    if let RopeMode::Vision { .. } = rope.mode { (axis, at - starts[axis]) } else { (axis, pair) }
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

    /// Cosine and sine for a pair whose frequency is the `step`th power.
    fn cos_sin(&self, position: f64, pair: usize, step: usize, factor: f64) -> (f32, f32) {
        let rope = self.rope;
        let exponent = -2.0 * step as f64 / f64::from(rope.n_dims);
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
