//! Rotary positions.

use super::{Cases, FLOATS};
use crate::builder::{DENSE_ROWS, Fill, UNIT};
use wgfuse::graph::{DType, Op, Rope, RopeMode};

/// Ways to pair elements, with the row and how much of it turns, from where on.
const MODES: [(RopeMode, [usize; 4], u32, u32); 18] = [
    (RopeMode::Normal, [64, 4, 3, 1], 64, 0),
    (RopeMode::Normal, [80, 3, 7, 2], 32, 0),
    (RopeMode::Normal, [2, 1, 1, 1], 2, 0),
    (RopeMode::Normal, [16, 9, 7400, 1], 16, 0),
    (RopeMode::Normal, [128, 3, 5, 1], 64, 64),
    (RopeMode::Normal, [7, 0, 5, 1], 4, 2),
    (RopeMode::Neox, [64, 4, 3, 1], 64, 0),
    (RopeMode::Neox, [80, 3, 7, 2], 32, 0),
    (RopeMode::Neox, [2, 1, 1, 1], 2, 0),
    (RopeMode::Neox, [16, 9, 7400, 1], 16, 0),
    (RopeMode::Neox, [96, 3, 5, 1], 32, 10),
    (RopeMode::Mrope { sections: [16, 24, 24, 0] }, [128, 4, 3, 2], 128, 0),
    (RopeMode::Mrope { sections: [3, 2, 0, 1] }, [33, 2, 5, 1], 20, 4),
    (RopeMode::Imrope { sections: [24, 20, 20, 0] }, [128, 4, 3, 2], 128, 0),
    (RopeMode::Imrope { sections: [2, 5, 1, 3] }, [33, 2, 5, 1], 22, 8),
    (RopeMode::Vision { sections: [20, 20, 0, 0] }, [80, 3, 7, 2], 40, 0),
    (RopeMode::Vision { sections: [3, 1, 2, 2] }, [20, 2, 5, 1], 10, 0),
    (RopeMode::Vision { sections: [1, 0, 0, 0] }, [4, 1, 1, 1], 2, 0),
];

pub fn add(cases: &mut Cases) {
    for (dtype, (mode, ne, n_dims, first_dim)) in FLOATS.into_iter().flat_map(|dtype| MODES.map(|mode| (dtype, mode))) {
        for (form, (ext_factor, factors)) in
            DENSE_ROWS.into_iter().flat_map(|form| [(0.0, false), (1.0, true), (0.0, true)].map(|yarn| (form, yarn)))
        {
            let rope = Rope {
                n_dims,
                first_dim,
                mode,
                n_ctx_orig: 512,
                freq_base: 10_000.0,
                freq_scale: 0.9,
                ext_factor,
                attn_factor: 1.1,
                beta_fast: 32.0,
                beta_slow: 1.0,
            };
            let params = format!(
                "mode={mode:?},ne={ne:?},n_dims={n_dims},first={first_dim},form={form:?},ext={ext_factor},ff={factors}"
            );
            for op in [Op::Rope(rope), Op::RopeBack(rope)] {
                cases.op(op.kind(), dtype, params.clone(), move |b| {
                    let source = b.source(form, dtype, ne, &UNIT)?;
                    let per_token = if rope.sections().is_some() { 4 } else { 1 };
                    let positions = b.leaf(DType::I32, [per_token * ne[2], 1, 1, 1], &Fill::Whole(0, 512))?;
                    let mut sources = vec![source, positions];
                    if factors {
                        sources.push(b.leaf(DType::F32, [rope.pairs(), 1, 1, 1], &Fill::Range(0.9, 1.1))?);
                    }
                    b.want(op, &sources)
                });
            }
        }
    }
}
