//! Gradients, losses, the steps of optimizers and linear algebra, from their definitions.

use super::{chosen, soft_max};
use crate::numbers::{Nd, indices};

/// The derivative of what is `sum(weights · f(x))`, for each element of a row: what the closed forms of gradients are
/// compared with.
fn derivative(x: &[f64], weights: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let value = |x: &[f64]| f(x).iter().zip(weights).map(|(y, weight)| y * weight).sum::<f64>();
    let moved = |i: usize, by: f64| {
        let mut x = x.to_vec();
        x[i] += by;
        value(&x)
    };
    // The five-point rule: its error is far below that of an f32.
    let step = 1e-3;
    let slope =
        |i| (8.0 * (moved(i, step) - moved(i, -step)) - (moved(i, 2.0 * step) - moved(i, -2.0 * step))) / (12.0 * step);
    (0..x.len()).map(slope).collect()
}

fn by_rows(a: &Nd, b: &Nd, f: impl Fn(&[f64], &[f64]) -> Vec<f64>) -> Nd {
    let width = a.ne[0].max(1);
    Nd { ne: a.ne, all: a.all.chunks(width).zip(b.all.chunks(width)).flat_map(|(a, b)| f(a, b)).collect() }
}

pub fn rms_norm_back(grad: &Nd, x: &Nd, eps: f64) -> Nd {
    by_rows(grad, x, |grad, x| {
        let mean = |f: &dyn Fn(usize) -> f64| (0..x.len()).map(f).sum::<f64>() / x.len() as f64;
        let square = mean(&|i| x[i] * x[i]) + eps;
        let along = mean(&|i| x[i] * grad[i]);
        let closed: Vec<f64> =
            x.iter().zip(grad).map(|(x, grad)| (grad - x * along / square) / square.sqrt()).collect();
        if square > 0.1 && x.len() < 100 {
            same(&closed, &derivative(x, grad, |x| super::normalised(x, false, eps)));
        }
        closed
    })
}

fn same(closed: &[f64], slopes: &[f64]) {
    for (closed, slope) in closed.iter().zip(slopes) {
        assert!((slope - closed).abs() < 1e-7 * (1.0 + closed.abs()), "{slope} instead of {closed}");
    }
}

fn probabilities(scores: &[f64]) -> Vec<f64> {
    soft_max(scores, &vec![true; scores.len()], None)
}

/// Scores that have these probabilities stand for the ones that were given: their derivatives are the same.
pub fn soft_max_back(grad: &Nd, y: &Nd, scale: f64) -> Nd {
    by_rows(grad, y, |grad, y| {
        let along: f64 = grad.iter().zip(y).map(|(grad, y)| grad * y).sum();
        let closed: Vec<f64> = grad.iter().zip(y).map(|(grad, y)| scale * y * (grad - along)).collect();
        // What is no distribution has no scores; the closed form is meant for it, too.
        if (y.iter().sum::<f64>() - 1.0).abs() < 1e-12 && y.iter().all(|&y| y > 0.0) {
            let scores: Vec<f64> = y.iter().map(|y| y.ln() / scale).collect();
            same(
                &closed,
                &derivative(&scores, grad, |x| probabilities(&x.iter().map(|x| x * scale).collect::<Vec<_>>())),
            );
        }
        closed
    })
}

fn entropy(logits: &[f64], labels: &[f64]) -> f64 {
    let labelled = probabilities(logits).into_iter().zip(labels).filter(|(_, label)| **label != 0.0);
    -labelled.map(|(p, label)| label * p.ln()).sum::<f64>()
}

pub fn cross_entropy_loss(logits: &Nd, labels: &Nd) -> Nd {
    let rows = logits.all.chunks(logits.ne[0]).zip(labels.all.chunks(logits.ne[0]));
    let losses: Vec<f64> = rows.map(|(logits, labels)| entropy(logits, labels)).collect();
    Nd { ne: [1; 4], all: vec![losses.iter().sum::<f64>() / losses.len() as f64] }
}

pub fn cross_entropy_loss_back([grad, logits, labels]: [&Nd; 3]) -> Nd {
    let rows: usize = logits.ne[1..].iter().product();
    by_rows(logits, labels, |logits, labels| {
        let slopes = probabilities(logits).into_iter().zip(labels).map(|(p, label)| p - label);
        slopes.map(|slope| slope * grad.all[0] / rows as f64).collect()
    })
}

pub fn repeat_back(a: &Nd, ne: [usize; 4]) -> Nd {
    let mut sums = Nd { ne, all: vec![0.0; ne.iter().product()] };
    for (at, x) in indices(a.ne).zip(&a.all) {
        let [i0, i1, i2, i3]: [usize; 4] = std::array::from_fn(|dim| at[dim] % ne[dim]);
        sums.all[((i3 * ne[2] + i2) * ne[1] + i1) * ne[0] + i0] += x;
    }
    sums
}

pub fn get_rows_back(grad: &Nd, ids: &Nd, ne: [usize; 4]) -> Nd {
    let mut sums = Nd { ne, all: vec![0.0; ne.iter().product()] };
    for (pick, &id) in ids.all.iter().enumerate() {
        if let Some(row) = chosen(id, ne[1]) {
            (0..ne[0]).for_each(|i0| sums.all[row * ne[0] + i0] += grad.at([i0, pick, 0, 0]));
        }
    }
    sums
}

/// The updated moment of slot 2 (first) or 3 (second).
pub fn moment(slot: usize, sources: &[Option<Nd>]) -> Nd {
    let [grad, old, parameters] = [1, slot, 4].map(|index| sources[index].as_ref().expect("a source"));
    let beta = parameters.all[slot - 1];
    let power = slot as i32 - 1;
    let mix = old.all.iter().zip(&grad.all).map(|(old, grad)| old * beta + grad.powi(power) * (1.0 - beta));
    Nd { ne: old.ne, all: mix.collect() }
}

pub fn adamw(sources: [&Nd; 5]) -> Nd {
    let given: Vec<Option<Nd>> = sources.iter().map(|&source| Some(source.clone())).collect();
    let [a, _, _, _, parameters] = sources;
    let p = &parameters.all;
    let (m, v) = (moment(2, &given), moment(3, &given));
    let step = |(m, v): (&f64, &f64)| p[0] * (m * p[5]) / ((v * p[6]).sqrt() + p[3]);
    let all = a.all.iter().zip(m.all.iter().zip(&v.all)).map(|(a, moments)| a * (1.0 - p[0] * p[4]) - step(moments));
    Nd { ne: a.ne, all: all.collect() }
}

pub fn sgd([a, grad, parameters]: [&Nd; 3]) -> Nd {
    let (alpha, decay) = (parameters.all[0], parameters.all[1]);
    let all = a.all.iter().zip(&grad.all).map(|(a, grad)| a * (1.0 - alpha * decay) - alpha * grad);
    Nd { ne: a.ne, all: all.collect() }
}

pub fn out_prod(a: &Nd, b: &Nd, ne: [usize; 4]) -> Nd {
    Nd::from_fn(ne, |[i0, i1, i2, i3]| {
        let plane = [i2 / (b.ne[2] / a.ne[2]), i3 / (b.ne[3] / a.ne[3])];
        (0..a.ne[1]).map(|k| a.at([i0, k, plane[0], plane[1]]) * b.at([i1, k, i2, i3])).sum()
    })
}

pub fn solve_tri(a: &Nd, b: &Nd) -> Nd {
    let mut x = b.clone();
    let [columns, size, n2, n3] = b.ne;
    for [column, row, i2, i3] in indices(b.ne) {
        let place = |row: usize| ((i3 * n2 + i2) * size + row) * columns + column;
        let known: f64 = (0..row).map(|k| a.at([k, row, i2, i3]) * x.all[place(k)]).sum();
        x.all[place(row)] = (b.at([column, row, i2, i3]) - known) / a.at([row, row, i2, i3]);
    }
    assert_eq!(n3, a.ne[3]);
    x
}
