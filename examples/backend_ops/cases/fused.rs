//! A graph for each row of the fusion table, which must fire.

use super::{Built, Cases, FLOATS};
use crate::builder::{Builder, Fill, Form, UNIT, ZERO};
use crate::cases::recurrent::delta_net;
use wgfuse::fusion::{FusionId, TABLE};
use wgfuse::graph::{DType, LeafKind, Op, OpKind};

pub fn add(cases: &mut Cases) {
    for row in &TABLE {
        let label = row.label();
        match row.id {
            FusionId::NormMul | FusionId::NormMulAdd => {
                let mean = row.ops[0] == OpKind::Norm;
                let op = if mean { Op::Norm { eps: 1e-5 } } else { Op::RmsNorm { eps: 1e-5 } };
                let shifts = row.ops.len() == 3;
                for ne in [[64, 4, 1, 1], [1, 1, 1, 1], [33, 3, 2, 2], [1100, 1, 1, 1], [4, 66_000, 1, 1]] {
                    cases.pattern(label.clone(), DType::F32, format!("ne={ne:?}"), move |b| norm(b, op, ne, shifts));
                }
            }
            FusionId::AddChain => {
                let adds = row.ops.len();
                for (dtype, ne) in
                    FLOATS.into_iter().flat_map(|dtype| [[64, 4, 1, 1], [33, 3, 2, 2]].map(|ne| (dtype, ne)))
                {
                    cases.pattern(label.clone(), dtype, format!("ne={ne:?}"), move |b| {
                        let mut sum = b.leaf(dtype, ne, &UNIT)?;
                        for _ in 0..adds {
                            let addend = b.leaf_of(LeafKind::Weight, dtype, ne, &UNIT)?;
                            sum = b.op(Op::Add, &[sum, addend])?;
                        }
                        b.output(sum)
                    });
                }
            }
            FusionId::Snake => {
                for (dtype, ne) in
                    FLOATS.into_iter().flat_map(|dtype| [[64, 4, 1, 1], [259, 33, 1, 1]].map(|n| (dtype, n)))
                {
                    cases.pattern(label.clone(), dtype, format!("ne={ne:?}"), move |b| {
                        let x = b.leaf(dtype, ne, &Fill::Range(-3.0, 3.0))?;
                        let a = b.leaf(DType::F32, [1, ne[1], 1, 1], &Fill::Range(0.5, 2.0))?;
                        let inv_b = b.leaf(DType::F32, [1, ne[1], 1, 1], &Fill::Range(0.5, 2.0))?;
                        let turned = b.op(Op::Mul, &[x, a])?;
                        let sin = b.op(Op::Sin, &[turned])?;
                        let square = b.op(Op::Sqr, &[sin])?;
                        let damped = b.op(Op::Mul, &[square, inv_b])?;
                        b.want(Op::Add, &[x, damped])
                    });
                }
            }
            FusionId::GdnCache => {
                for sizes in [[4, 32, 2, 1, 2], [4, 64, 4, 1, 2], [4, 32, 4, 1, 4], [8, 32, 4, 2, 4], [4, 32, 8, 1, 4]]
                {
                    let [h, s, t, n, k] = sizes;
                    let params = format!("H={h},S={s},T={t},B={n},K={k}");
                    cases.pattern(label.clone(), DType::F32, params, move |b| gdn(b, sizes));
                }
            }
        }
    }
}

fn norm(b: &mut Builder, op: Op, ne: [usize; 4], shifts: bool) -> Built {
    let x = b.leaf(DType::F32, ne, &Fill::Range(-0.5, 2.0))?;
    let row = [ne[0], 1, 1, 1];
    let w = b.leaf_of(LeafKind::Weight, DType::F32, row, &UNIT)?;
    let normed = b.op(op, &[x])?;
    let mut result = b.op(Op::Mul, &[normed, w])?;
    if shifts {
        let bias = b.leaf_of(LeafKind::Weight, DType::F32, row, &UNIT)?;
        result = b.op(Op::Add, &[result, bias])?;
    }
    b.output(result)
}

/// The attention rows and what the copy stores are both read.
fn gdn(b: &mut Builder, [heads, size, tokens, batch, snapshots]: [usize; 5]) -> Built {
    let sources = delta_net(b, Form::Dense, [heads, heads, size, tokens, batch], false)?;
    let net = b.graph.gated_delta_net(sources, snapshots as u32)?;
    let (state, written) = (size * size * heads, tokens.min(snapshots));
    let cache = b.leaf_of(LeafKind::Cache, DType::F32, [state, batch + 1, snapshots + 1, 1], &ZERO)?;
    let tail = b.view(net, [state, batch, written, 1], 4 * size * heads * tokens * batch)?;
    let nb = b.graph.tensor(cache).nb();
    let into = b.op(Op::View { ne: [state, batch, written, 1], nb, offset: nb[1] }, &[cache])?;
    let copy = b.op(Op::Cpy, &[tail, into])?;
    b.written(copy, cache)?;
    let ne = [size * heads, tokens * batch, 1, 1];
    let rows = b.view(net, ne, 0)?;
    b.want(Op::Cont { ne }, &[rows])
}
