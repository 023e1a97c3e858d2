//! Operations that look at a whole row at once: sums, sorting, soft-max.

use super::attention::{alibi_slope, soft_max_row};
use super::memory::{Rows, View, unravel, wrap};
use super::parallel;
use crate::graph::SortOrder;
use std::cmp::Ordering;

/// The sum of each row.
pub(super) fn sum_rows(a: &View) -> Vec<f32> {
    let ne = a.ne();
    let mut out = vec![0.0; a.layout().rows()];
    parallel::rows(&mut out, 1, ne[0], |row, out| {
        out[0] = a.row(unravel(row, ne)).iter().map(|&x| f64::from(x)).sum::<f64>() as f32;
    });
    out
}

/// The indices that sort each row; among equals the lower index comes first, and NaN counts as larger than any number.
pub(super) fn argsort(a: &View, order: SortOrder) -> Vec<i64> {
    let ne = a.ne();
    let mut out = vec![0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * 8, |row, out| {
        let values = a.row(unravel(row, ne));
        out.iter_mut().zip(0..).for_each(|(slot, index)| *slot = index);
        out.sort_by(|&x, &y| {
            let (x, y) = (values[x as usize], values[y as usize]);
            match order {
                SortOrder::Ascending => compare(x, y),
                SortOrder::Descending => compare(y, x),
            }
        });
    });
    out
}

/// The index of the largest element of each row, in the order of [`argsort`].
pub(super) fn argmax(a: &View) -> Vec<i64> {
    let ne = a.ne();
    let mut out = vec![0; ne[1]];
    parallel::rows(&mut out, 1, ne[0], |row, out| {
        let values = a.row([row, 0, 0]);
        let larger = |best: usize, (at, &x): (usize, &f32)| if compare(x, values[best]).is_gt() { at } else { best };
        out[0] = values.iter().enumerate().fold(0, larger) as i64;
    });
    out
}

/// The first `k` indices of a descending [`argsort`] of each row.
pub(super) fn top_k(a: &View, k: usize) -> Vec<i64> {
    let ne = a.ne();
    let mut out = vec![0; k * a.layout().rows()];
    parallel::rows(&mut out, k, ne[0] * 8, |row, out| {
        let values = a.row(unravel(row, ne));
        // A total order: equals by their index.
        let order = |x: &usize, y: &usize| compare(values[*y], values[*x]).then(x.cmp(y));
        let mut indices: Vec<usize> = (0..ne[0]).collect();
        if k < ne[0] {
            indices.select_nth_unstable_by(k, order);
            indices.truncate(k);
        }
        indices.sort_unstable_by(order);
        out.iter_mut().zip(indices).for_each(|(out, index)| *out = index as i64);
    });
    out
}

fn compare(x: f32, y: f32) -> Ordering {
    x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
}

/// `softmax(a · scale + slope · mask)` over rows, slopes and sinks by the index in dimension 2. A row with nothing but
/// −∞ gives zeros.
pub(super) fn soft_max(a: &View, mask: Option<&View>, sinks: Option<&View>, scale: f32, max_bias: f32) -> Vec<f32> {
    let ne = a.ne();
    let mask = mask.map(|mask| (mask.rows(), mask.ne()));
    let sinks = sinks.map(View::rows);
    let mut out = vec![0.0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * 16, |row, out| {
        let at = unravel(row, ne);
        for (out, x) in out.iter_mut().zip(&*a.row(at)) {
            *out = x * scale;
        }
        if let Some((mask, mask_ne)) = &mask {
            add_mask(out, mask, wrap(at, *mask_ne), alibi_slope(max_bias, at[1], ne[2]));
        }
        soft_max_row(out, sinks.as_ref().map(|sinks| sinks.get([0; 3])[at[1]]));
    });
    out
}

fn add_mask(scores: &mut [f32], mask: &Rows, at: [usize; 3], slope: f32) {
    for (score, &mask) in scores.iter_mut().zip(mask.get(at)) {
        // −∞ hides whatever stands there, NaN too, and however small the slope.
        *score = if mask == f32::NEG_INFINITY { mask } else { *score + slope * mask };
    }
}
