//! How ggml finds the scales of the `_K` formats: by trying several and keeping the one with the least weighted error.
//!
//! The order of every sum and product is ggml's, since the choice can hang on the last bit.

use super::block::{extreme, nearest};

/// Groups whose elements are all smaller count as zero.
pub(super) const EPSILON: f32 = 1e-15;

/// `scale · q − min`.
pub(super) struct Affine<const G: usize> {
    pub(super) scale: f32,
    pub(super) min: f32,
    pub(super) q: [u8; G],
}

/// `scale · (q − limit)`.
pub(super) struct Symmetric {
    pub(super) scale: f32,
    pub(super) q: [u8; 16],
}

/// What [`affine`] tries: the range of numbers made larger by `first`, `first + 0.1` and so on, `last + 1` times in all.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    pub(super) first: f32,
    pub(super) last: u8,
    /// Whether errors count by their magnitude instead of their square.
    pub(super) absolute: bool,
}

/// Numbers from 0 to `limit` with a scale and a minimum that is not above zero: ggml's `make_qkx2_quants`.
pub(super) fn affine<const G: usize>(x: &[f32; G], weights: &[f32; G], limit: u8, steps: Steps) -> Affine<G> {
    let weighted = || x.iter().zip(weights).map(|(&x, &w)| (x, w));
    let mut min = x.iter().fold(x[0], |min, &x| if x < min { x } else { min });
    let max = x.iter().fold(x[0], |max, &x| if x > max { x } else { max });
    let sum_w = weighted().fold(0.0, |sum: f32, (_, w)| sum + w);
    let sum_x = weighted().fold(0.0, |sum: f32, (x, w)| sum + w * x);
    if min > 0.0 {
        min = 0.0;
    }
    if max == min {
        return Affine { scale: 0.0, min: -min, q: [0; G] };
    }
    let numbers = |inverse: f32, min: f32| x.map(|x| nearest(inverse * (x - min)).clamp(0, limit.into()) as u8);
    let error = |q: &[u8; G], scale: f32, min: f32| {
        weighted().zip(q).fold(0.0, |sum: f32, ((x, w), &q)| {
            let off = scale * f32::from(q) + min - x;
            sum + w * if steps.absolute { off.abs() } else { off * off }
        })
    };
    let inverse = f32::from(limit) / (max - min);
    let mut scale = 1.0 / inverse;
    let mut best = numbers(inverse, min);
    let mut least = error(&best, scale, min);
    for step in 0..=steps.last {
        // A minimum found by an earlier step counts here.
        let inverse = (steps.first + 0.1 * f32::from(step) + f32::from(limit)) / (max - min);
        let q = numbers(inverse, min);
        let (mut sum_q, mut sum_qq, mut sum_xq) = (0.0f32, 0.0f32, 0.0f32);
        for ((x, w), q) in weighted().zip(q.map(f32::from)) {
            sum_q += w * q;
            sum_qq += w * q * q;
            sum_xq += w * q * x;
        }
        // The least squares for these numbers.
        let determinant = sum_w * sum_qq - sum_q * sum_q;
        if determinant > 0.0 {
            let mut this_scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
            let mut this_min = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
            if this_min > 0.0 {
                this_min = 0.0;
                this_scale = sum_xq / sum_qq;
            }
            let this_error = error(&q, this_scale, this_min);
            if this_error < least {
                (best, least, scale, min) = (q, this_error, this_scale, this_min);
            }
        }
    }
    Affine { scale, min: -min, q: best }
}

/// The nearest numbers from `−limit` to `limit − 1`.
fn numbers(x: &[f32; 16], inverse: f32, limit: i8) -> [i8; 16] {
    let limit = i32::from(limit);
    x.map(|x| nearest(inverse * x).clamp(-limit, limit - 1) as i8)
}

/// `Σ w·x·q` and `Σ w·q·q`, where elements weigh as their squares.
fn sums(x: &[f32; 16], q: &[i8; 16]) -> (f32, f32) {
    x.iter().zip(q).fold((0.0, 0.0), |(xq, qq), (&x, &q)| {
        let (w, q) = (x * x, f32::from(q));
        (xq + w * x * q, qq + w * q * q)
    })
}

fn above_zero(q: [i8; 16], limit: i8) -> [u8; 16] {
    q.map(|q| (q + limit) as u8)
}

/// Numbers of either sign with a scale, of which several are tried: ggml's `make_qx_quants` with squares as weights.
pub(super) fn symmetric(x: &[f32; 16], limit: i8) -> Symmetric {
    let (largest, extreme) = extreme(x);
    if largest < EPSILON {
        return Symmetric { scale: 0.0, q: [0; 16] };
    }
    let mut best = numbers(x, f32::from(-limit) / extreme, limit);
    let (xq, qq) = sums(x, &best);
    let mut scale = if qq == 0.0 { 0.0 } else { xq / qq };
    let mut gain = scale * xq;
    for step in (-9i8..=9).filter(|&step| step != 0) {
        let q = numbers(x, -(f32::from(limit) + 0.1 * f32::from(step)) / extreme, limit);
        let (xq, qq) = sums(x, &q);
        if qq > 0.0 && xq * xq > gain * qq {
            best = q;
            scale = xq / qq;
            gain = scale * xq;
        }
    }
    Symmetric { scale, q: above_zero(best, limit) }
}

/// Numbers of either sign with a scale, moved one by one while that helps: ggml's `make_q3_quants`. A group of zeros has
/// the number 0, not `limit`.
pub(super) fn symmetric_by_moves(x: &[f32; 16], limit: i8) -> Symmetric {
    let (largest, extreme) = extreme(x);
    if largest < EPSILON {
        return Symmetric { scale: 0.0, q: [0; 16] };
    }
    let mut q = numbers(x, f32::from(-limit) / extreme, limit);
    let (mut xq, mut qq) = sums(x, &q);
    for _ in 0..5 {
        let mut moved = false;
        for (&x, q) in x.iter().zip(&mut q) {
            let (w, old) = (x * x, f32::from(*q));
            let (mut this_xq, mut this_qq) = (xq - w * x * old, qq - w * old * old);
            if this_xq > 0.0 {
                let new = nearest(x * this_qq / this_xq).clamp((-limit).into(), (limit - 1).into()) as i8;
                if new != *q {
                    this_xq += w * x * f32::from(new);
                    this_qq += w * f32::from(new) * f32::from(new);
                    if this_qq > 0.0 && this_xq * this_xq * qq > xq * xq * this_qq {
                        (*q, xq, qq, moved) = (new, this_xq, this_qq, true);
                    }
                }
            }
        }
        if !moved {
            break;
        }
    }
    Symmetric { scale: if qq > 0.0 { xq / qq } else { 0.0 }, q: above_zero(q, limit) }
}
