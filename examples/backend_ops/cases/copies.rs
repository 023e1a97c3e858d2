//! Views, copies, rows picked and stored, repetitions and concatenations.

use super::{Cases, FLOATS, SHAPES};
use crate::builder::{FORMS, Fill, Form, UNIT};
use wgfuse::graph::{DType, LeafKind, Op, OpKind};

const PLAIN: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64];

fn fill(dtype: DType) -> Fill {
    if dtype.is_real() { UNIT } else { Fill::Whole(-1_000_000, 1_000_000) }
}

fn converts(from: DType, to: DType) -> bool {
    match (from.is_quantized(), to) {
        (true, _) => to == DType::F32 || to == from,
        (false, DType::Block(format)) => from.is_float() && format.is_writable(),
        (false, _) => from.is_float() == to.is_float() && (from != DType::I64 || to == from),
    }
}

pub fn add(cases: &mut Cases) {
    views(cases);
    for from in DType::ALL {
        for to in DType::ALL.into_iter().filter(|&to| converts(from, to)) {
            let plain = !from.is_quantized() && !to.is_quantized();
            let shapes: &[[usize; 4]] = if plain { &SHAPES } else { &[[256, 3, 2, 1], [512, 1, 1, 1], [256, 0, 1, 1]] };
            let forms: &[Form] = if plain { &FORMS } else { &[Form::Dense, Form::Padded] };
            for (&ne, &form) in shapes.iter().flat_map(|ne| forms.iter().map(move |form| (ne, form))) {
                for strided in [false, true] {
                    let params = format!("to={to},ne={ne:?},form={form:?},strided={strided}");
                    cases.op(OpKind::Cpy, from, params, move |b| {
                        let source = b.source(form, from, ne, &fill(from))?;
                        let shape = if strided { Form::Padded } else { Form::Dense };
                        let into = b.source_of(LeafKind::Cache, shape, to, ne, &Fill::Range(0.0, 0.0))?;
                        let node = b.op(Op::Cpy, &[source, into])?;
                        b.written(node, into)
                    });
                }
            }
        }
    }
    for dtype in PLAIN {
        for (ne, form) in SHAPES.into_iter().flat_map(|ne| FORMS.map(|form| (ne, form))) {
            cases.op(OpKind::Cont, dtype, format!("ne={ne:?},form={form:?}"), move |b| {
                let source = b.source(form, dtype, ne, &fill(dtype))?;
                b.want(Op::Cont { ne }, &[source])
            });
            cases.op(OpKind::Dup, dtype, format!("ne={ne:?},form={form:?}"), move |b| {
                let source = b.source(form, dtype, ne, &fill(dtype))?;
                b.want(Op::Dup, &[source])
            });
            for dim in 0..4u8 {
                cases.op(OpKind::Concat, dtype, format!("ne={ne:?},form={form:?},dim={dim}"), move |b| {
                    let mut other = ne;
                    other[usize::from(dim)] += 2;
                    let a = b.source(form, dtype, ne, &fill(dtype))?;
                    let c = b.source(Form::Dense, dtype, other, &fill(dtype))?;
                    b.want(Op::Concat { dim }, &[a, c])
                });
            }
        }
    }
    let repeated = FLOATS.into_iter().chain([DType::I32]);
    for (dtype, form) in repeated.flat_map(|dtype| FORMS.map(|form| (dtype, form))) {
        for (ne, times) in
            [([7, 3, 2, 1], [3, 1, 2, 2]), ([1, 1, 1, 1], [300, 2, 1, 1]), ([33, 1, 1, 1], [1, 66_000, 1, 1])]
        {
            cases.op(OpKind::Repeat, dtype, format!("ne={ne:?},times={times:?},form={form:?}"), move |b| {
                let source = b.source(form, dtype, ne, &fill(dtype))?;
                b.want(Op::Repeat { ne: std::array::from_fn(|dim| ne[dim] * times[dim]) }, &[source])
            });
        }
    }
    rows(cases);
}

fn views(cases: &mut Cases) {
    for (dtype, ne) in PLAIN.into_iter().flat_map(|dtype| SHAPES.map(|ne| (dtype, ne))) {
        let flat = [ne[0] * ne[1], ne[2], ne[3], 1];
        let ops = [
            (OpKind::None, None, ne),
            (OpKind::View, Some(Op::View { ne, nb: [0; 4], offset: 0 }), ne),
            (OpKind::Reshape, Some(Op::Reshape { ne: flat }), flat),
            (OpKind::Permute, Some(Op::Permute { axes: [2, 0, 3, 1] }), [ne[1], ne[3], ne[0], ne[2]]),
            (OpKind::Transpose, Some(Op::Transpose), [ne[1], ne[0], ne[2], ne[3]]),
        ];
        for (kind, op, shape) in ops {
            cases.op(kind, dtype, format!("ne={ne:?}"), move |b| {
                let mut source = b.leaf(dtype, ne, &fill(dtype))?;
                if let Some(op) = op {
                    let nb = b.graph.tensor(source).nb();
                    source = b.op(if kind == OpKind::View { Op::View { ne, nb, offset: 0 } } else { op }, &[source])?;
                }
                b.want(Op::Cont { ne: shape }, &[source])
            });
        }
    }
}

fn rows(cases: &mut Cases) {
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::I64) {
        for (width, have, take, [c, d]) in [
            (256, 9, 5, [1, 1]),
            (256, 1, 1, [2, 3]),
            (768, 100, 300, [1, 1]),
            (256, 4, 66_000, [1, 1]),
            (256, 5, 0, [1, 1]),
        ] {
            for form in [Form::Dense, Form::Padded] {
                let params = format!("width={width},rows={have},take={take},outer={c}x{d},form={form:?}");
                cases.op(OpKind::GetRows, dtype, params, move |b| {
                    let source = b.source(form, dtype, [width, have, c, d], &fill(dtype))?;
                    let ids = b.source(form, DType::I32, [take, c, d, 1], &Fill::Whole(0, have as i64))?;
                    b.want(Op::GetRows, &[source, ids])
                });
            }
        }
    }
    for dtype in DType::ALL.into_iter().filter(|&dtype| converts(DType::F32, dtype)) {
        for (wide, [width, have, put, outer]) in [DType::I32, DType::I64]
            .into_iter()
            .flat_map(|wide| [[256, 9, 5, 1], [256, 70_000, 66_000, 1], [512, 7, 7, 3]].map(|ne| (wide, ne)))
        {
            for form in [Form::Dense, Form::Padded] {
                let params = format!("ids={wide},width={width},rows={have},put={put},outer={outer},form={form:?}");
                cases.op(OpKind::SetRows, dtype, params, move |b| {
                    let values = b.source(form, DType::F32, [width, put, outer, 1], &UNIT)?;
                    // Each row once: which of two writers comes last is not defined.
                    let ids = (0..put).map(|row| ((row + 3) % have) as f64).collect();
                    let ids = b.leaf(wide, [put, 1, 1, 1], &Fill::Given(ids))?;
                    let into = b.source_of(LeafKind::Cache, form, dtype, [width, have, outer, 1], &UNIT)?;
                    let node = b.op(Op::SetRows, &[values, ids, into])?;
                    b.written(node, into)
                });
            }
        }
    }
}
