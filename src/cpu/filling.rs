//! Copies with parts replaced, constants and numbers made from positions.

use super::memory::{Element, Values, View, unravel};
use super::parallel;
use crate::graph::{Triangle, Window};

/// `a`, which is contiguous, with `change` applied to every row of the window and the row of `b` that lies there.
fn changed<T: Element>(a: &View, b: &View, window: Window, change: impl Fn(&mut T, T)) -> Vec<T> {
    let (unit, ne) = (a.dtype().block_bytes(), b.ne());
    let mut out: Vec<T> = a.dense();
    let rows = if ne[0] == 0 { 0 } else { b.layout().rows() };
    for row in 0..rows {
        let at = unravel(row, ne);
        let bytes = window.offset + at.iter().zip(window.nb).map(|(i, stride)| i * stride).sum::<usize>();
        let row = &mut out[bytes / unit..][..ne[0]];
        row.iter_mut().zip(&*T::row(b, at)).for_each(|(old, &new)| change(old, new));
    }
    out
}

/// `a` with `b` added to the window.
pub(super) fn acc(a: &View, b: &View, window: Window) -> Vec<f32> {
    changed(a, b, window, |old, new| *old += new)
}

/// `a` with `b` in the place of the window.
pub(super) fn set(a: &View, b: &View, window: Window) -> Values {
    if a.dtype().is_float() {
        Values::Float(changed(a, b, window, |old, new| *old = new))
    } else {
        Values::Int(changed(a, b, window, |old, new| *old = new))
    }
}

/// `start, start + step, …` below `stop`.
pub(super) fn arange(start: f32, stop: f32, step: f32) -> Vec<f32> {
    let steps = ((stop - start) / step).ceil() as usize;
    (0..steps).map(|i| start + step * i as f32).collect()
}

/// Cosines and sines of each time, at frequencies from 1 towards `1 / max_period`.
pub(super) fn timestep_embedding(times: &View, dim: usize, max_period: u32) -> Vec<f32> {
    let half = dim / 2;
    let mut out = vec![0.0; dim * times.ne()[0]];
    parallel::rows(&mut out, dim, dim * 16, |row, out| {
        let time = f64::from(times.float([row, 0, 0, 0]));
        for j in 0..half {
            let angle = time * f64::from(max_period).powf(-(j as f64) / half as f64);
            out[j] = angle.cos() as f32;
            out[j + half] = angle.sin() as f32;
        }
    });
    out
}

/// `a` where `keep(column, row)`, else `other`.
fn where_kept(a: &View, other: f32, keep: impl Fn(usize, usize) -> bool + Sync) -> Vec<f32> {
    let ne = a.ne();
    let mut out = vec![0.0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0], |row, out| {
        let at = unravel(row, ne);
        for (column, (out, &x)) in out.iter_mut().zip(&*a.row(at)).enumerate() {
            *out = if keep(column, at[0]) { x } else { other };
        }
    });
    out
}

/// A triangle of square matrices, and zeros.
pub(super) fn tri(a: &View, part: Triangle) -> Vec<f32> {
    where_kept(a, 0.0, |column, row| match part {
        Triangle::UpperDiag => column >= row,
        Triangle::Upper => column > row,
        Triangle::LowerDiag => column <= row,
        Triangle::Lower => column < row,
    })
}

/// `a` with `masked` where the column is past the row by more than `n_past`.
pub(super) fn diag_mask(a: &View, n_past: u32, masked: f32) -> Vec<f32> {
    where_kept(a, masked, |column, row| column <= row + n_past as usize)
}

/// Diagonal matrices of the rows of `a`.
pub(super) fn diag(a: &View) -> Vec<f32> {
    let [n, _, n2, n3] = a.ne();
    let mut out = vec![0.0; n * n * n2 * n3];
    parallel::rows(&mut out, n, 1, |row, out| {
        let [i1, i2, i3] = unravel(row, [n, n, n2, n3]);
        out[i1] = a.float([i1, 0, i2, i3]);
    });
    out
}
