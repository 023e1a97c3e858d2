//! Normalisation of rows, alone or followed by a scale and a bias.

use super::elementwise::combine;
use super::memory::{View, unravel, wrap};
use super::parallel;

/// What is divided out of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Norm {
    /// Subtract the mean first (NORM, not RMS_NORM).
    pub(super) centred: bool,
    /// Added to the mean of squares.
    pub(super) eps: f32,
}

/// Each row of `x` normalised, then times `weight`, then plus `bias`, both repeated over the rows.
pub(super) fn norm(norm: Norm, x: &View, weight: Option<&View>, bias: Option<&View>) -> Vec<f32> {
    let ne = x.ne();
    let mut out = vec![0.0; x.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * 4, |row, out| {
        let at = unravel(row, ne);
        normalise(norm, &x.row(at), out);
        if let Some(weight) = weight {
            combine(out, &weight.row(wrap(at, weight.ne())), |value, weight| value * weight);
        }
        if let Some(bias) = bias {
            combine(out, &bias.row(wrap(at, bias.ne())), |value, bias| value + bias);
        }
    });
    out
}

fn normalise(norm: Norm, x: &[f32], out: &mut [f32]) {
    let count = x.len() as f64;
    let wide = |&x: &f32| f64::from(x);
    let mean = if norm.centred { x.iter().map(wide).sum::<f64>() / count } else { 0.0 };
    let squares: f64 = x.iter().map(wide).map(|x| (x - mean) * (x - mean)).sum();
    let scale = 1.0 / (squares / count + f64::from(norm.eps)).sqrt();
    for (out, x) in out.iter_mut().zip(x) {
        *out = ((wide(x) - mean) * scale) as f32;
    }
}
