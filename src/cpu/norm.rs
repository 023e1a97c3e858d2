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

/// Each row of `x` divided by its length, or by `eps` if that is larger.
pub(super) fn l2_norm(x: &View, eps: f32) -> Vec<f32> {
    let ne = x.ne();
    let mut out = vec![0.0; x.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * 4, |row, out| {
        let row = x.row(unravel(row, ne));
        let squares: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let scale = 1.0 / squares.sqrt().max(eps.into());
        for (out, &x) in out.iter_mut().zip(&*row) {
            *out = (f64::from(x) * scale) as f32;
        }
    });
    out
}

/// Each group of channels of each batch of `x [w, h, channels, batch]` normalised as one row.
pub(super) fn group_norm(x: &View, groups: u32, eps: f32) -> Vec<f32> {
    let mut all = x.dense::<f32>();
    let [width, height, channels, batches] = x.ne();
    let per_group = channels.div_ceil(groups as usize);
    let plane = width * height;
    if all.is_empty() {
        return all;
    }
    let sizes = (0..batches)
        .flat_map(|_| (0..channels).step_by(per_group).map(|first| per_group.min(channels - first) * plane));
    let mut rest = all.as_mut_slice();
    for size in sizes {
        let (group, after) = rest.split_at_mut(size);
        let source = group.to_vec();
        normalise(Norm { centred: true, eps }, &source, group);
        rest = after;
    }
    all
}
