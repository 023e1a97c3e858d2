//! Sorts, largest elements and counts.

use super::Cases;
use crate::builder::{DENSE_ROWS, Fill};
use wgfuse::graph::{DType, Op, OpKind, SortOrder};

pub fn add(cases: &mut Cases) {
    let shapes: [[usize; 4]; 7] =
        [[64, 5, 3, 2], [1, 1, 1, 1], [7, 1, 1, 1], [33, 3, 1, 1], [259, 2, 3, 1], [1500, 2, 1, 1], [3, 66_000, 1, 1]];
    for (ne, form) in shapes.into_iter().flat_map(|ne| DENSE_ROWS.map(|form| (ne, form))) {
        let ops = [
            Op::Argsort { order: SortOrder::Ascending },
            Op::Argsort { order: SortOrder::Descending },
            Op::TopK { k: 1 },
            Op::TopK { k: ne[0].div_ceil(2) },
        ];
        for op in ops {
            cases.op(op.kind(), DType::F32, format!("ne={ne:?},form={form:?},{op:?}"), move |b| {
                let source = b.source(form, DType::F32, ne, &Fill::Distinct)?;
                b.want(op, &[source])
            });
        }
    }
    for (ne, form) in shapes.into_iter().filter(|ne| ne[2..] == [1, 1]).flat_map(|ne| DENSE_ROWS.map(|form| (ne, form)))
    {
        cases.op(OpKind::Argmax, DType::F32, format!("ne={ne:?},form={form:?}"), move |b| {
            let source = b.source(form, DType::F32, ne, &Fill::Distinct)?;
            b.want(Op::Argmax, &[source])
        });
    }
    for ne in shapes {
        cases.op(OpKind::CountEqual, DType::I32, format!("ne={ne:?}"), move |b| {
            let a = b.leaf(DType::I32, ne, &Fill::Whole(0, 4))?;
            let c = b.leaf(DType::I32, ne, &Fill::Whole(0, 4))?;
            b.want(Op::CountEqual, &[a, c])
        });
    }
}
