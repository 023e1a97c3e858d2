//! Convolutions over time and delta nets.

use super::Cases;
use crate::builder::{Builder, DENSE_ROWS, Fill, Form, UNIT};
use wgfuse::graph::{DType, GraphError, Op, OpKind, TensorId};

/// The sources of a gated delta net: heads, size, tokens, batch.
pub fn delta_net(
    b: &mut Builder,
    form: Form,
    [heads, shared, size, tokens, batch]: [usize; 5],
    per_channel: bool,
) -> Result<[TensorId; 6], GraphError> {
    let length = 1.0 / (size as f64).sqrt();
    let keys = Fill::Range(-length, length);
    let q = b.source(form, DType::F32, [size, shared, tokens, batch], &keys)?;
    let k = b.source(form, DType::F32, [size, shared, tokens, batch], &keys)?;
    let v = b.source(form, DType::F32, [size, heads, tokens, batch], &Fill::Range(-0.3, 5.0))?;
    let gates = [if per_channel { size } else { 1 }, heads, tokens, batch];
    let g = b.leaf(DType::F32, gates, &Fill::Range(-20.0, -1e-4))?;
    let beta = b.leaf(DType::F32, [1, heads, tokens, batch], &Fill::Range(0.0, 1.0))?;
    let state = b.leaf(DType::F32, [size, size, heads, batch], &UNIT)?;
    Ok([q, k, v, g, beta, state])
}

pub fn add(cases: &mut Cases) {
    for (form, (width, channels, tokens, batch)) in DENSE_ROWS.into_iter().flat_map(|form| {
        [(4, 64, 5, 1), (3, 7, 1, 2), (1, 1, 1, 1), (4, 300, 33, 3), (4, 2, 66_000, 1)].map(|n| (form, n))
    }) {
        let params = format!("width={width},channels={channels},tokens={tokens},batch={batch},form={form:?}");
        cases.op(OpKind::SsmConv, DType::F32, params, move |b| {
            let x = b.source(form, DType::F32, [tokens + width - 1, channels, batch, 1], &UNIT)?;
            let kernel = b.leaf(DType::F32, [width, channels, 1, 1], &UNIT)?;
            b.want(Op::SsmConv, &[x, kernel])
        });
    }
    for (form, per_channel) in [Form::Dense, Form::Padded].into_iter().flat_map(|form| [(form, false), (form, true)]) {
        for (size, (heads, shared)) in [32, 64, 128].into_iter().flat_map(|size| [(4, 4), (4, 2)].map(|n| (size, n))) {
            for (tokens, batch, snapshots) in [(1, 1, 1), (2, 2, 1), (5, 1, 4), (4, 2, 4), (2, 1, 3)] {
                // Slots of states that there was no token for hold anything.
                let kept = tokens.min(snapshots);
                let params = format!(
                    "H={heads},Hk={shared},S={size},T={tokens},B={batch},K={snapshots},per_channel={per_channel},\
                     form={form:?}"
                );
                cases.op(OpKind::GatedDeltaNet, DType::F32, params, move |b| {
                    let sources = delta_net(b, form, [heads, shared, size, tokens, batch], per_channel)?;
                    let net = b.graph.gated_delta_net(sources, snapshots as u32)?;
                    let ne = [size * heads, batch * (tokens + size * kept), 1, 1];
                    let seen = b.view(net, ne, 0)?;
                    b.want(Op::Cont { ne }, &[seen])
                });
            }
        }
    }
}
