//! Rotary positions.

use crate::numbers::Nd;
use std::f64::consts::TAU;
use wgfuse::graph::{Rope, RopeMode};

pub fn rotated(rope: &Rope, a: &Nd, positions: &Nd, factors: Option<&Nd>, direction: f64) -> Nd {
    let (first, turning) = (rope.first_dim as usize, 2 * rope.pairs());
    Nd::from_fn(a.ne, |at| {
        let [whole, i1, i2, i3] = at;
        if whole < first || whole >= first + turning {
            return a.at(at);
        }
        let i0 = whole - first;
        let (pair, second, partner) = match rope.mode {
            RopeMode::Normal => (i0 / 2, i0 % 2 == 1, i0 ^ 1),
            RopeMode::Neox | RopeMode::Mrope { .. } | RopeMode::Imrope { .. } | RopeMode::Vision { .. } => {
                (i0 % (turning / 2), i0 >= turning / 2, (i0 + turning / 2) % turning)
            }
        };
        let (axis, step) = section(rope.mode, pair);
        let position = positions.all[axis * a.ne[2] + i2];
        let factor = factors.map_or(1.0, |factors| factors.all[pair]);
        let (theta, magnitude) = angle_of(rope, position, pair, step, factor);
        let theta = theta * direction;
        let other = a.at([first + partner, i1, i2, i3]);
        magnitude * (a.at(at) * theta.cos() + if second { other } else { -other } * theta.sin())
    })
}

/// Which position a pair turns by, and the power of its frequency, by counting pair for pair.
fn section(mode: RopeMode, pair: usize) -> (usize, usize) {
    let (RopeMode::Mrope { sections } | RopeMode::Imrope { sections } | RopeMode::Vision { sections }) = mode else {
        return (0, pair);
    };
    let names: Vec<usize> = (0..4).flat_map(|axis| vec![axis; sections[axis] as usize]).collect();
    let at = pair % names.len();
    match mode {
        RopeMode::Imrope { .. } => {
            // The k-th pair of a position is the one that has 3·k before it.
            let taken = (0..3).find(|&axis| (0..sections[axis] as usize).any(|k| 3 * k + axis == at));
            (taken.unwrap_or(3), pair)
        }
        RopeMode::Vision { .. } => (names[at], names[..at].iter().filter(|&&axis| axis == names[at]).count()),
        RopeMode::Normal | RopeMode::Neox | RopeMode::Mrope { .. } => (names[at], pair),
    }
}

/// The angle of a pair and the factor on the result, by the formulas of the YaRN paper.
pub fn angle(rope: &Rope, position: f64, pair: usize, factor: f64) -> (f64, f64) {
    angle_of(rope, position, pair, pair, factor)
}

/// The same for a pair whose frequency is the `step`th power.
fn angle_of(rope: &Rope, position: f64, pair: usize, step: usize, factor: f64) -> (f64, f64) {
    let (dims, base, scale) = (f64::from(rope.n_dims), f64::from(rope.freq_base), f64::from(rope.freq_scale));
    let theta = position * base.powf(-2.0 * step as f64 / dims) / factor;
    if rope.ext_factor == 0.0 {
        return (theta * scale, rope.attn_factor.into());
    }
    let bound = |turns: f32| dims * (f64::from(rope.n_ctx_orig) / (f64::from(turns) * TAU)).ln() / (2.0 * base.ln());
    let (low, high) = (bound(rope.beta_fast).floor().max(0.0), bound(rope.beta_slow).ceil().min(dims - 1.0));
    let ramp = 1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
    let mix = ramp * f64::from(rope.ext_factor);
    let magnitude = f64::from(rope.attn_factor) * (1.0 + 0.1 * (1.0 / scale).ln());
    (theta * scale * (1.0 - mix) + theta * mix, magnitude)
}
