//! Gradients, losses and the steps of optimizers.

use super::memory::{View, unravel};
use super::{index_error, parallel};
use crate::device::DeviceError;
use crate::graph::OpKind;

/// `[n, rows]`: each row the sum of the rows of `grad [n, k]` whose index in `ids [k]` it is.
pub(super) fn get_rows_back(grad: &View, ids: &View, rows: usize) -> Result<Vec<f32>, DeviceError> {
    let [width, picked, ..] = grad.ne();
    let mut sums = vec![0.0; width * rows];
    for pick in 0..picked {
        let id = ids.int([pick, 0, 0, 0]);
        let row = usize::try_from(id).ok().filter(|&row| row < rows);
        let row = row.ok_or_else(|| index_error(OpKind::GetRowsBack, id, rows))?;
        let sums: &mut [f64] = &mut sums[row * width..][..width];
        sums.iter_mut().zip(&*grad.row([pick, 0, 0])).for_each(|(sum, &x)| *sum += f64::from(x));
    }
    Ok(sums.into_iter().map(|sum| sum as f32).collect())
}

/// Fills a result of the shape of two sources from their rows.
fn by_rows(a: &View, b: &View, work: usize, fill: impl Fn(&[f32], &[f32], &mut [f32]) + Sync) -> Vec<f32> {
    let ne = a.ne();
    let mut out = vec![0.0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0] * work, |row, out| {
        let at = unravel(row, ne);
        fill(&a.row(at), &b.row(at), out);
    });
    out
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// With `y = x / r` and `r² = mean of squares + eps`: `dx = (dy - x · mean(x · dy) / r²) / r`.
pub(super) fn rms_norm_back(grad: &View, x: &View, eps: f32) -> Vec<f32> {
    by_rows(grad, x, 8, |grad, x, out| {
        let count = x.len() as f64;
        let square = dot(x, x) / count + f64::from(eps);
        let (along, scale) = (dot(x, grad) / count / square, 1.0 / square.sqrt());
        for (out, (&x, &grad)) in out.iter_mut().zip(x.iter().zip(grad)) {
            *out = ((f64::from(grad) - f64::from(x) * along) * scale) as f32;
        }
    })
}

/// `scale · y · (dy - Σ y · dy)` over rows.
pub(super) fn soft_max_back(grad: &View, y: &View, scale: f32) -> Vec<f32> {
    by_rows(grad, y, 4, |grad, y, out| {
        let along = dot(grad, y);
        for (out, (&y, &grad)) in out.iter_mut().zip(y.iter().zip(grad)) {
            *out = (f64::from(scale) * f64::from(y) * (f64::from(grad) - along)) as f32;
        }
    })
}

/// The largest of a row, and the logarithm of the sum of the exponentials of what the others are below it.
fn log_sum(row: &[f32]) -> (f64, f64) {
    let largest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    (largest, row.iter().map(|&x| (f64::from(x) - largest).exp()).sum::<f64>().ln())
}

/// The mean over rows of the cross entropy of labels and the soft-max of logits.
pub(super) fn cross_entropy_loss(logits: &View, labels: &View) -> f32 {
    let ne = logits.ne();
    let count = logits.layout().rows();
    let rows = parallel::map(count, ne[0] * 16, |row| {
        let at = unravel(row, ne);
        let (logits, labels) = (logits.row(at), labels.row(at));
        let (largest, log_sum) = log_sum(&logits);
        let labelled = logits.iter().zip(&*labels).filter(|(_, label)| **label != 0.0);
        labelled.map(|(&logit, &label)| f64::from(label) * (f64::from(logit) - largest - log_sum)).sum::<f64>()
    });
    (-rows.iter().sum::<f64>() / count as f64) as f32
}

/// `(softmax(logits) - labels) · grad / rows`.
pub(super) fn cross_entropy_loss_back(grad: &View, logits: &View, labels: &View) -> Vec<f32> {
    let scale = f64::from(grad.float([0; 4])) / logits.layout().rows() as f64;
    by_rows(logits, labels, 32, |logits, labels, out| {
        let (largest, log_sum) = log_sum(logits);
        for (out, (&logit, &label)) in out.iter_mut().zip(logits.iter().zip(labels)) {
            *out = (((f64::from(logit) - largest - log_sum).exp() - f64::from(label)) * scale) as f32;
        }
    })
}

/// A step of AdamW: the new weights and moments, from the old ones and the gradient `[a, grad, m, v]`.
pub(super) fn adamw([a, grad, m, v]: [&View; 4], parameters: &View) -> [Vec<f32>; 3] {
    let p = parameters.dense::<f32>();
    let at = |index: usize| p.get(index).copied().unwrap_or_default();
    let (alpha, beta1, beta2, eps, decay, unbias1, unbias2) = (at(0), at(1), at(2), at(3), at(4), at(5), at(6));
    let [mut a, grad, mut m, mut v] = [a, grad, m, v].map(|source| source.dense::<f32>());
    for (((a, m), v), grad) in a.iter_mut().zip(&mut m).zip(&mut v).zip(grad) {
        *m = *m * beta1 + grad * (1.0 - beta1);
        *v = *v * beta2 + grad * grad * (1.0 - beta2);
        *a = *a * (1.0 - alpha * decay) - alpha * (*m * unbias1) / ((*v * unbias2).sqrt() + eps);
    }
    [a, m, v]
}

/// A step of gradient descent with weight decay: the new weights.
pub(super) fn sgd(a: &View, grad: &View, parameters: &View) -> Vec<f32> {
    let p = parameters.dense::<f32>();
    let at = |index: usize| p.get(index).copied().unwrap_or_default();
    let (alpha, decay) = (at(0), at(1));
    by_rows(a, grad, 2, |a, grad, out| {
        for (out, (&a, &grad)) in out.iter_mut().zip(a.iter().zip(grad)) {
            *out = a * (1.0 - alpha * decay) - alpha * grad;
        }
    })
}
