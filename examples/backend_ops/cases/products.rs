//! Products of matrices and what undoes them.

use super::Cases;
use crate::builder::{Fill, Form, UNIT};
use wgfuse::graph::{DType, Op, OpKind};

pub fn add(cases: &mut Cases) {
    // Rows of the matrix, columns, width, and the outer sizes of both.
    let sizes = [
        (16, 1, 256, [1, 1], [1, 1]),
        (5, 3, 256, [1, 1], [1, 1]),
        (33, 17, 512, [2, 1], [4, 2]),
        (1, 1, 256, [1, 1], [1, 1]),
        (70, 65, 256, [1, 1], [1, 1]),
        (7, 2, 768, [1, 1], [3, 1]),
        (66_000, 1, 256, [1, 1], [1, 1]),
        (4, 0, 256, [1, 1], [1, 1]),
    ];
    let odd = [(9, 4, 7, [1, 1], [1, 1]), (3, 1, 1, [1, 1], [2, 1]), (65, 9, 129, [2, 2], [4, 2])];
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        let odd = if dtype.is_float() { &odd[..] } else { &[] };
        for &(m, n, k, [c, d], [e, f]) in sizes.iter().chain(odd) {
            for form in [Form::Dense, Form::Padded, Form::Swapped] {
                let params = format!("m={m},n={n},k={k},outer={c}x{d},by={e}x{f},form={form:?}");
                cases.op(OpKind::MulMat, dtype, params, move |b| {
                    let a = b.source(form, dtype, [k, m, c, d], &UNIT)?;
                    let x = b.source(form, DType::F32, [k, n, e, f], &UNIT)?;
                    let node = b.graph.mul_mat(a, x)?;
                    b.output(node)
                });
            }
        }
        for (experts, used, columns, tokens) in [(4, 2, 1, 5), (3, 2, 2, 1), (8, 1, 1, 33), (2, 2, 1, 0)] {
            for form in [Form::Dense, Form::Padded] {
                let params = format!("experts={experts},used={used},columns={columns},tokens={tokens},form={form:?}");
                cases.op(OpKind::MulMatId, dtype, params, move |b| {
                    let a = b.source(form, dtype, [256, 20, experts, 1], &UNIT)?;
                    let x = b.source(form, DType::F32, [256, columns, tokens, 1], &UNIT)?;
                    let ids = b.source(form, DType::I32, [used, tokens, 1, 1], &Fill::Whole(0, experts as i64))?;
                    let node = b.graph.mul_mat_id(a, x, ids)?;
                    b.output(node)
                });
            }
        }
    }
    for (m, n, k, outer, form) in
        [(5, 7, 3, 1, Form::Dense), (64, 33, 17, 2, Form::Padded), (1, 1, 300, 1, Form::Dense)]
    {
        for transposed in [Form::Dense, Form::Transposed] {
            let params = format!("m={m},n={n},k={k},outer={outer},form={form:?},by={transposed:?}");
            cases.op(OpKind::OutProd, DType::F32, params, move |b| {
                let a = b.source(form, DType::F32, [m, k, 1, 1], &UNIT)?;
                let c = b.source(transposed, DType::F32, [n, k, outer, 1], &UNIT)?;
                b.want(Op::OutProd, &[a, c])
            });
        }
    }
    for (size, columns, outer) in [(1, 1, 1), (7, 3, 2), (33, 65, 1), (64, 9, 3)] {
        cases.op(OpKind::SolveTri, DType::F32, format!("size={size},columns={columns},outer={outer}"), move |b| {
            let diagonal = |at: usize| if at / size == at % size { 2.0 } else { 0.1 / (1 + at % 7) as f64 };
            let a = Fill::Given((0..size * size).map(diagonal).collect());
            let a = b.leaf(DType::F32, [size, size, outer, 1], &a)?;
            let c = b.leaf(DType::F32, [columns, size, outer, 1], &UNIT)?;
            b.want(Op::SolveTri, &[a, c])
        });
    }
}
