//! Attention.

use super::Cases;
use crate::builder::{Form, UNIT};
use wgfuse::graph::{DType, FlashAttn, OpKind, Precision};

pub fn add(cases: &mut Cases) {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        let small: &[usize] = if dtype.is_float() { &[64, 40, 128, 256] } else { &[256] };
        for (&size, (heads, shared, queries, cells)) in small
            .iter()
            .flat_map(|size| [(4, 2, 3, 33), (1, 1, 1, 1), (2, 2, 35, 257), (8, 1, 1, 100)].map(|n| (size, n)))
        {
            for (mask, sinks, max_bias, softcap) in
                [(true, false, 0.0, 0.0), (false, false, 0.0, 0.0), (true, true, 8.0, 10.0)]
            {
                for form in [Form::Dense, Form::Swapped] {
                    let params = format!(
                        "size={size},heads={heads}/{shared},q={queries},kv={cells},mask={mask},sinks={sinks},\
                         max_bias={max_bias},softcap={softcap},form={form:?}"
                    );
                    cases.op(OpKind::FlashAttn, dtype, params, move |b| {
                        let q = b.source(form, DType::F32, [size, queries, heads, 1], &UNIT)?;
                        let k = b.source(form, dtype, [size, cells, shared, 1], &UNIT)?;
                        let v = b.source(form, dtype, [size, cells, shared, 1], &UNIT)?;
                        let mask = if mask { Some(b.leaf(DType::F16, [cells, queries, 1, 1], &UNIT)?) } else { None };
                        let sinks = if sinks { Some(b.leaf(DType::F32, [heads, 1, 1, 1], &UNIT)?) } else { None };
                        let attn = FlashAttn {
                            scale: 1.0 / (size as f32).sqrt(),
                            max_bias,
                            logit_softcap: softcap,
                            precision: Precision::F32,
                        };
                        let node = b.graph.flash_attn([q, k, v], mask, sinks, attn)?;
                        b.output(node)
                    });
                }
            }
        }
    }
}
