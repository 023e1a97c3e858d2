//! Norms, sums and soft maxima of rows.

use super::{Cases, SHAPES};
use crate::builder::{DENSE_ROWS, Form, UNIT};
use wgfuse::graph::{DType, Op, OpKind};

pub fn add(cases: &mut Cases) {
    let ops = [
        Op::Norm { eps: 1e-5 },
        Op::RmsNorm { eps: 1e-5 },
        Op::RmsNorm { eps: 0.1 },
        Op::L2Norm { eps: 1e-6 },
        Op::SumRows,
        Op::Mean,
        Op::CumSum,
    ];
    for op in ops {
        for (ne, form) in SHAPES.into_iter().flat_map(|ne| DENSE_ROWS.map(|form| (ne, form))) {
            cases.op(op.kind(), DType::F32, format!("ne={ne:?},form={form:?},{op:?}"), move |b| {
                let source = b.source(form, DType::F32, ne, &crate::builder::Fill::Range(-0.5, 2.0))?;
                b.want(op, &[source])
            });
        }
    }
    for ne in SHAPES {
        cases.op(OpKind::Sum, DType::F32, format!("ne={ne:?}"), move |b| {
            let source = b.leaf(DType::F32, ne, &crate::builder::Fill::Range(-0.5, 2.0))?;
            b.want(Op::Sum, &[source])
        });
    }
    for (ne, groups) in [([7, 3, 6, 2], 3), ([33, 5, 7, 1], 2), ([64, 1, 320, 2], 32), ([1, 1, 1, 1], 1)] {
        cases.op(OpKind::GroupNorm, DType::F32, format!("ne={ne:?},groups={groups}"), move |b| {
            let source = b.leaf(DType::F32, ne, &UNIT)?;
            b.want(Op::GroupNorm { groups, eps: 1e-5 }, &[source])
        });
    }
    for (ne, form) in SHAPES.into_iter().flat_map(|ne| DENSE_ROWS.map(|form| (ne, form))) {
        for (mask, sinks, max_bias) in
            [(None, false, 0.0), (Some(DType::F16), false, 0.0), (Some(DType::F32), true, 8.0), (None, true, 0.0)]
        {
            let params = format!("ne={ne:?},form={form:?},mask={mask:?},sinks={sinks},max_bias={max_bias}");
            cases.op(OpKind::SoftMax, DType::F32, params, move |b| {
                let source = b.source(form, DType::F32, ne, &crate::builder::Fill::Range(-4.0, 4.0))?;
                let mask = mask.map(|dtype| b.source(Form::Dense, dtype, [ne[0], ne[1], 1, 1], &UNIT)).transpose()?;
                let sinks = if sinks { Some(b.leaf(DType::F32, [ne[2], 1, 1, 1], &UNIT)?) } else { None };
                let node = b.graph.soft_max(source, mask, sinks, 0.7, max_bias)?;
                b.output(node)
            });
        }
    }
}
