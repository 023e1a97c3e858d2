//! Operations that compute each element on its own.

use super::memory::{View, unravel, wrap};
use super::parallel;
use crate::graph::{Glu, Unary};

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

/// `act(gate) · value` of two tensors, or of the halves of one tensor's rows; `swapped`: the gate is the second half. Of
/// two tensors it is always the first.
pub(super) fn gated(glu: Glu, swapped: bool, a: &View, b: Option<&View>) -> Vec<f32> {
    let act = |x| match glu {
        Glu::Geglu => gelu(x),
        Glu::Swiglu => silu(x),
    };
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
            *out = act(gate) * value;
        }
    });
    out
}

/// The element-wise function itself.
pub(super) fn unary(unary: Unary) -> fn(f32) -> f32 {
    match unary {
        Unary::Tanh => f32::tanh,
        Unary::Sigmoid => sigmoid,
        Unary::Gelu => gelu,
        Unary::Silu => silu,
        Unary::Softplus => softplus,
    }
}

/// `x` held to `[min, max]`; NaN stays NaN, and of contradicting bounds the lower one wins.
pub(super) fn hold(x: f32, min: f32, max: f32) -> f32 {
    let lowered = if x > max { max } else { x };
    if lowered < min { min } else { lowered }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`: Hendrycks and Gimpel 2016, arXiv 1606.08415.
fn gelu(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * x * (1.0 + 0.044_715 * x * x)).tanh())
}

fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
