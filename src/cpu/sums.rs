//! Sums and counts: of everything, of rows, along rows, of repeated parts.

use super::memory::{View, unravel};
use super::parallel;

fn row_sum(row: &[f32]) -> f64 {
    row.iter().map(|&x| f64::from(x)).sum()
}

/// The sum of all elements.
pub(super) fn sum(a: &View) -> Vec<f32> {
    let ne = a.ne();
    let rows = parallel::map(a.layout().rows(), ne[0], |row| row_sum(&a.row(unravel(row, ne))));
    vec![rows.iter().sum::<f64>() as f32]
}

/// The mean of each row.
pub(super) fn mean(a: &View) -> Vec<f32> {
    let ne = a.ne();
    parallel::map(a.layout().rows(), ne[0], |row| (row_sum(&a.row(unravel(row, ne))) / ne[0] as f64) as f32)
}

/// The running sum along each row.
pub(super) fn cumsum(a: &View) -> Vec<f32> {
    let ne = a.ne();
    let mut out = vec![0.0; a.layout().elements()];
    parallel::rows(&mut out, ne[0], ne[0], |row, out| {
        let mut sum = 0.0;
        for (out, &x) in out.iter_mut().zip(&*a.row(unravel(row, ne))) {
            sum += f64::from(x);
            *out = sum as f32;
        }
    });
    out
}

/// How many places hold the same integer in both.
pub(super) fn count_equal(a: &View, b: &View) -> i64 {
    let ne = a.ne();
    let rows = parallel::map(a.layout().rows(), ne[0], |row| {
        let [i1, i2, i3] = unravel(row, ne);
        (0..ne[0]).filter(|&i0| a.int([i0, i1, i2, i3]) == b.int([i0, i1, i2, i3])).count()
    });
    rows.iter().sum::<usize>() as i64
}

/// The sum of all parts of `a` that have the shape `ne`.
pub(super) fn repeat_back(a: &View, ne: [usize; 4]) -> Vec<f32> {
    let repeats: [usize; 4] = std::array::from_fn(|dim| a.ne()[dim] / ne[dim].max(1));
    let [_, r1, r2, r3] = repeats;
    let mut out = vec![0.0; ne.iter().product()];
    parallel::rows(&mut out, ne[0], a.ne()[0] * r1 * r2 * r3, |row, out| {
        let [i1, i2, i3] = unravel(row, ne);
        let mut sums = vec![0.0; ne[0]];
        for part in 0..r1 * r2 * r3 {
            let [p1, p2, p3] = unravel(part, repeats);
            for values in a.row([p1 * ne[1] + i1, p2 * ne[2] + i2, p3 * ne[3] + i3]).chunks(ne[0]) {
                sums.iter_mut().zip(values).for_each(|(sum, &x)| *sum += f64::from(x));
            }
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
    });
    out
}
