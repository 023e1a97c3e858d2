//! Rotary positions.

use super::{Cases, FLOATS};
use crate::builder::{DENSE_ROWS, Fill, UNIT};
use wgfuse::graph::{DType, OpKind, Rope, RopeMode};

pub fn add(cases: &mut Cases) {
    for (dtype, mode) in FLOATS.into_iter().flat_map(|dtype| [RopeMode::Normal, RopeMode::Neox].map(|m| (dtype, m))) {
        for (ne, n_dims) in [([64, 4, 3, 1], 64), ([80, 3, 7, 2], 32), ([2, 1, 1, 1], 2), ([16, 9, 7400, 1], 16)] {
            for (form, (ext_factor, factors)) in DENSE_ROWS
                .into_iter()
                .flat_map(|form| [(0.0, false), (1.0, true), (0.0, true)].map(|yarn| (form, yarn)))
            {
                let params =
                    format!("mode={mode:?},ne={ne:?},n_dims={n_dims},form={form:?},ext={ext_factor},ff={factors}");
                cases.op(OpKind::Rope, dtype, params, move |b| {
                    let source = b.source(form, dtype, ne, &UNIT)?;
                    let positions = b.leaf(DType::I32, [ne[2], 1, 1, 1], &Fill::Whole(0, 512))?;
                    let half = [n_dims as usize / 2, 1, 1, 1];
                    let factors = if factors { Some(b.leaf(DType::F32, half, &Fill::Range(0.9, 1.1))?) } else { None };
                    let rope = Rope {
                        n_dims,
                        mode,
                        n_ctx_orig: 512,
                        freq_base: 10_000.0,
                        freq_scale: 0.9,
                        ext_factor,
                        attn_factor: 1.1,
                        beta_fast: 32.0,
                        beta_slow: 1.0,
                    };
                    let node = b.graph.rope(source, positions, factors, rope)?;
                    b.output(node)
                });
            }
        }
    }
}
