//! Outer products and triangular systems.

use super::memory::{View, unravel};
use super::parallel;

/// `[m, n, …]`: `Σ_k a[i, k] · b[j, k]` for `a [m, k, …]` and `b [n, k, …]`; each matrix of `a` serves as many consecutive
/// matrices of `b` as there are more of those.
pub(super) fn out_prod(a: &View, b: &View) -> Vec<f32> {
    let (m, n) = (a.ne(), b.ne());
    let ne = [m[0], n[0], n[2], n[3]];
    let share = [n[2] / m[2].max(1), n[3] / m[3].max(1)];
    let rows = a.rows();
    let mut out = vec![0.0; ne.iter().product()];
    parallel::rows(&mut out, ne[0], ne[0] * m[1], |row, out| {
        let [i1, i2, i3] = unravel(row, ne);
        let mut sums = vec![0.0; ne[0]];
        for k in 0..m[1] {
            let factor = f64::from(b.float([i1, k, i2, i3]));
            for (sum, &x) in sums.iter_mut().zip(rows.get([k, i2 / share[0], i3 / share[1]])) {
                *sum += f64::from(x) * factor;
            }
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
    });
    out
}

/// `x [columns, n, …]` for which the lower triangle of `a [n, n, …]` times `x` is `b [columns, n, …]`, by forward
/// substitution.
pub(super) fn solve_tri(a: &View, b: &View) -> Vec<f32> {
    let ne = b.ne();
    let [columns, size, ..] = ne;
    let mut out = b.dense::<f32>();
    let matrices = a.rows();
    parallel::rows(&mut out, columns * size, columns * size * size, |plane, out| {
        let (i2, i3) = (plane % ne[2], plane / ne[2]);
        let mut sums = vec![0.0; columns];
        for row in 0..size {
            let coefficients = matrices.get([row, i2, i3]);
            let (solved, rest) = out.split_at_mut(row * columns);
            sums.fill(0.0);
            for (x, &coefficient) in solved.chunks(columns).zip(coefficients) {
                sums.iter_mut().zip(x).for_each(|(sum, &x)| *sum += f64::from(coefficient) * f64::from(x));
            }
            for (x, sum) in rest.iter_mut().zip(&sums) {
                *x = ((f64::from(*x) - sum) / f64::from(coefficients[row])) as f32;
            }
        }
    });
    out
}
