//! Operations that compute each element on its own.

use super::memory::{View, unravel, wrap};
use super::{functions, index_error, parallel};
use crate::device::DeviceError;
use crate::graph::{Glu, OpKind};

/// Scalar operations that a transcendental function costs, roughly.
const TRANSCENDENTAL: usize = 16;

/// `op(a, b)` in the shape of `a`, with `b` repeated to fill it.
pub(super) fn binary(a: &View, b: &View, op: impl Fn(f32, f32) -> f32 + Sync) -> Vec<f32> {
    let ne = a.ne();
    let mut out = vec![0.0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0], |row, out| {
        let at = unravel(row, ne);
        out.copy_from_slice(&a.row(at));
        combine(out, &b.row(wrap(at, b.ne())), &op);
    });
    out
}

/// `first + addends[0] + addends[1] + …` from left to right, each addend repeated to fill the shape of `first`.
pub(super) fn sum(first: &View, addends: &[View]) -> Vec<f32> {
    let ne = first.ne();
    let mut out = vec![0.0; first.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * addends.len(), |row, out| {
        let at = unravel(row, ne);
        out.copy_from_slice(&first.row(at));
        for addend in addends {
            combine(out, &addend.row(wrap(at, addend.ne())), |sum, term| sum + term);
        }
    });
    out
}

/// `row[i] = op(row[i], other[i])` with `other` repeated along the row.
pub(super) fn combine(row: &mut [f32], other: &[f32], op: impl Fn(f32, f32) -> f32) {
    if let [only] = *other {
        row.iter_mut().for_each(|value| *value = op(*value, only));
        return;
    }
    for part in row.chunks_mut(other.len()) {
        part.iter_mut().zip(other).for_each(|(value, &other)| *value = op(*value, other));
    }
}

/// `x + sin²(a·x)·inv_b`, the snake activation (Ziyin et al. 2020, arXiv 2006.08195); the factors are repeated to fill
/// the shape of `x`.
pub(super) fn snake(x: &View, a: &View, inv_b: &View) -> Vec<f32> {
    let ne = x.ne();
    let mut out = vec![0.0; x.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * TRANSCENDENTAL, |row, out| {
        let at = unravel(row, ne);
        let x = x.row(at);
        out.copy_from_slice(&x);
        combine(out, &a.row(wrap(at, a.ne())), |x, a| {
            let sine = (x * a).sin();
            sine * sine
        });
        combine(out, &inv_b.row(wrap(at, inv_b.ne())), |square, inv_b| square * inv_b);
        combine(out, &x, |bump, x| x + bump);
    });
    out
}

/// `op(a)`.
pub(super) fn map(a: &View, op: impl Fn(f32) -> f32 + Sync) -> Vec<f32> {
    let ne = a.ne();
    let mut out = vec![0.0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * TRANSCENDENTAL, |row, out| {
        for (out, &x) in out.iter_mut().zip(&*a.row(unravel(row, ne))) {
            *out = op(x);
        }
    });
    out
}

/// `unit(gate, value)` of two tensors, or of the halves of one tensor's rows; `swapped`: the gate is the second half. Of
/// two tensors it is always the first.
pub(super) fn gated(glu: Glu, swapped: bool, a: &View, b: Option<&View>) -> Vec<f32> {
    let ne = a.ne();
    let width = if b.is_some() { ne[0] } else { ne[0] / 2 };
    let mut out = vec![0.0; width * a.layout().rows()];
    parallel::rows(&mut out, width, width * TRANSCENDENTAL, |row, out| {
        let at = unravel(row, ne);
        let whole = a.row(at);
        let other = b.map(|b| b.row(at));
        let (gate, value) = match &other {
            Some(other) => (&*whole, &**other),
            None => {
                let (first, second) = whole.split_at(width);
                if swapped { (second, first) } else { (first, second) }
            }
        };
        for (out, (&gate, &value)) in out.iter_mut().zip(gate.iter().zip(value)) {
            *out = functions::gated(glu, gate, value);
        }
    });
    out
}

/// `a [n, used, tokens, …]` plus the rows of `b [n, m]` that `ids [used, tokens]` name.
pub(super) fn add_id(a: &View, b: &View, ids: &View) -> Result<Vec<f32>, DeviceError> {
    let ne = a.ne();
    let mut out = vec![0.0; a.layout().elements()];
    let picks = (0..a.layout().rows())
        .map(|row| {
            let [used, token, _] = unravel(row, ne);
            let id = ids.int([used, token, 0, 0]);
            let row = usize::try_from(id).ok().filter(|&row| row < b.ne()[1]);
            row.ok_or_else(|| index_error(OpKind::AddId, id, b.ne()[1]))
        })
        .collect::<Result<Vec<_>, _>>()?;
    parallel::rows(&mut out, ne[0], ne[0], |row, out| {
        out.copy_from_slice(&a.row(unravel(row, ne)));
        combine(out, &b.row([picks[row], 0, 0]), |a, b| a + b);
    });
    Ok(out)
}
