//! Copies with parts replaced, constants and numbers made from positions, from their definitions.

use crate::numbers::{Nd, indices};
use wgfuse::graph::{Triangle, Window};

/// `a` with `change(old, new)` at every element of the window; elements of `a` and `b` take four bytes.
pub fn changed(a: &Nd, b: &Nd, Window { nb, offset }: Window, change: impl Fn(f64, f64) -> f64) -> Nd {
    let mut result = a.clone();
    for at in indices(b.ne) {
        let byte = offset + 4 * at[0] + at[1] * nb[0] + at[2] * nb[1] + at[3] * nb[2];
        result.all[byte / 4] = change(result.all[byte / 4], b.at(at));
    }
    result
}

pub fn arange(start: f32, stop: f32, step: f32) -> Nd {
    let (start, stop, step) = (f64::from(start), f64::from(stop), f64::from(step));
    let all: Vec<f64> = (0..).map(|i| start + step * f64::from(i)).take_while(|x| *x < stop).collect();
    Nd { ne: [all.len(), 1, 1, 1], all }
}

pub fn timestep_embedding(times: &Nd, dim: usize, max_period: u32) -> Nd {
    let half = dim / 2;
    Nd::from_fn([dim, times.ne[0], 1, 1], |[column, row, ..]| {
        if column == 2 * half {
            return 0.0;
        }
        let frequency = (-f64::from(max_period).ln() * (column % half) as f64 / half as f64).exp();
        let angle = times.all[row] * frequency;
        if column < half { angle.cos() } else { angle.sin() }
    })
}

pub fn tri(a: &Nd, part: Triangle) -> Nd {
    Nd::from_fn(a.ne, |at| {
        let [column, row, ..] = at;
        let kept = match part {
            Triangle::UpperDiag => row <= column,
            Triangle::Upper => row < column,
            Triangle::LowerDiag => row >= column,
            Triangle::Lower => row > column,
        };
        if kept { a.at(at) } else { 0.0 }
    })
}

pub fn diag(a: &Nd, ne: [usize; 4]) -> Nd {
    Nd::from_fn(ne, |[i0, i1, i2, i3]| if i0 == i1 { a.at([i0, 0, i2, i3]) } else { 0.0 })
}

pub fn diag_mask(a: &Nd, n_past: u32, masked: f64) -> Nd {
    Nd::from_fn(a.ne, |at| if at[0] > at[1] + n_past as usize { masked } else { a.at(at) })
}
