//! Matrix products.

use super::memory::{Values, View};
use super::{index_error, parallel};
use crate::device::DeviceError;
use crate::graph::OpKind;

/// Partial sums of a dot product: enough for the compiler to use vector registers, and their sum is more precise than
/// one running sum.
const LANES: usize = 8;

/// Rows of the matrix that one task multiplies, so that every column read from memory is used that often.
const TILE: usize = 4;

/// The dot products of several rows with `x`, each summed in the same order however many there are.
fn dots<const N: usize>(rows: [&[f32]; N], x: &[f32]) -> [f32; N] {
    let (blocks, tail) = x.as_chunks::<LANES>();
    let rows = rows.map(|row| row[..x.len()].as_chunks::<LANES>());
    let mut lanes = [[0.0f32; LANES]; N];
    for (index, block) in blocks.iter().enumerate() {
        for (lanes, row) in lanes.iter_mut().zip(&rows) {
            let row = &row.0[index];
            for lane in 0..LANES {
                lanes[lane] += row[lane] * block[lane];
            }
        }
    }
    for (lanes, row) in lanes.iter_mut().zip(&rows) {
        for (lane, (row, x)) in lanes.iter_mut().zip(row.1.iter().zip(tail)) {
            *lane += row * x;
        }
    }
    lanes.map(|l| ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7])))
}

/// `Σ a_i · x_i` over the length of `x`.
pub(super) fn dot(a: &[f32], x: &[f32]) -> f32 {
    dots([a], x)[0]
}

/// Columns that one matrix multiplies.
struct Job<'a> {
    /// Outer indices of the matrix.
    plane: [usize; 2],
    /// Each column, and where its product starts in the result.
    columns: Vec<(&'a [f32], usize)>,
}

/// The products of all jobs' columns with the matrices of `a`, in a result of `len` elements.
fn multiply(a: &View, jobs: &[Job], len: usize) -> Vec<f32> {
    let [width, height, ..] = a.ne();
    let tiles = height.div_ceil(TILE);
    let columns: usize = jobs.iter().map(|job| job.columns.len()).sum();
    let tasks = tiles * jobs.len();
    let work = (width * TILE).saturating_mul(columns.div_ceil(jobs.len().max(1)));
    let products = parallel::map(tasks, work, |task| {
        let (job, first) = (&jobs[task / tiles], task % tiles * TILE);
        let row = |ahead: usize| a.row([(first + ahead).min(height - 1), job.plane[0], job.plane[1]]);
        let rows: [_; TILE] = std::array::from_fn(row);
        let rows = rows.each_ref().map(|row| &**row);
        job.columns.iter().map(|(column, _)| dots(rows, column)).collect::<Vec<[f32; TILE]>>()
    });
    let mut out = vec![0.0; len];
    for (task, products) in products.iter().enumerate() {
        let (job, first) = (&jobs[task / tiles], task % tiles * TILE);
        let rows = TILE.min(height - first);
        for (products, (_, start)) in products.iter().zip(&job.columns) {
            out[start + first..][..rows].copy_from_slice(&products[..rows]);
        }
    }
    out
}

/// `[m, n, …]`: the rows of `a [k, m, …]` times the rows of `b [k, n, …]`; each matrix of `a` serves as many consecutive
/// matrices of `b` as there are more of those.
pub(super) fn mul_mat(a: &View, b: &View) -> Vec<f32> {
    let (m, n) = (a.ne(), b.ne());
    let columns = b.rows();
    let share = [n[2] / m[2].max(1), n[3] / m[3].max(1)];
    let jobs: Vec<Job> = (0..n[2] * n[3])
        .map(|plane| {
            let (i2, i3) = (plane % n[2], plane / n[2]);
            let start = |i1| (plane * n[1] + i1) * m[1];
            Job {
                plane: [i2 / share[0], i3 / share[1]],
                columns: (0..n[1]).map(|i1| (columns.get([i1, i2, i3]), start(i1))).collect(),
            }
        })
        .collect();
    multiply(a, &jobs, m[1] * b.layout().rows())
}

/// `[m, used, tokens]`: the rows of matrix `ids [used, tokens]` of `a [k, m, experts]` times the rows of
/// `b [k, columns, tokens]`, whose columns are repeated to fill `used`.
pub(super) fn mul_mat_id(a: &View, b: &View, ids: &View) -> Result<Values, DeviceError> {
    let [_, height, experts, _] = a.ne();
    let [used, tokens, ..] = ids.ne();
    let columns = b.rows();
    let mut jobs: Vec<Job> = (0..experts).map(|expert| Job { plane: [expert, 0], columns: Vec::new() }).collect();
    for token in 0..tokens {
        for slot in 0..used {
            let id = ids.int([slot, token, 0, 0]);
            let job = usize::try_from(id).ok().and_then(|id| jobs.get_mut(id));
            let job = job.ok_or_else(|| index_error(OpKind::MulMatId, id, experts))?;
            let column = columns.get([slot % b.ne()[1], token, 0]);
            job.columns.push((column, (token * used + slot) * height));
        }
    }
    jobs.retain(|job| !job.columns.is_empty());
    Ok(Values::Float(multiply(a, &jobs, height * used * tokens)))
}
