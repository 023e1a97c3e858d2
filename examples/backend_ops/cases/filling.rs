//! Copies with parts replaced, constants and numbers made from positions.

use super::{Cases, FLOATS, SHAPES};
use crate::builder::{FORMS, Fill, UNIT};
use wgfuse::graph::{DType, LeafKind, Op, OpKind, Triangle, Window};

const F32: DType = DType::F32;

pub fn add(cases: &mut Cases) {
    windows(cases);
    constants(cases);
    matrices(cases);
}

fn windows(cases: &mut Cases) {
    // A whole and a part of it that starts at this element; strides are those of the whole.
    let shapes = [
        ([64, 5, 3, 2], [17, 3, 2, 2], 70),
        ([64, 5, 3, 2], [64, 5, 3, 2], 0),
        ([1, 1, 1, 1], [1, 1, 1, 1], 0),
        ([259, 4, 1, 1], [258, 1, 1, 1], 260),
        ([2, 66_000, 1, 1], [1, 65_999, 1, 1], 3),
        ([7, 3, 1, 1], [7, 0, 1, 1], 7),
    ];
    for (kind, dtype) in [(OpKind::Acc, F32), (OpKind::Set, F32), (OpKind::Set, DType::I32)] {
        let fill = if dtype == F32 { UNIT } else { Fill::Whole(-1000, 1000) };
        for ((ne, part, start), form) in shapes.into_iter().flat_map(|shape| FORMS.map(|form| (shape, form))) {
            for in_place in [false, true] {
                let fill = fill.clone();
                let params = format!("ne={ne:?},part={part:?},start={start},form={form:?},in_place={in_place}");
                cases.op(kind, dtype, params, move |b| {
                    let whole = b.leaf_of(LeafKind::Cache, dtype, ne, &fill)?;
                    let values = b.source(form, dtype, part, &fill)?;
                    let [_, nb1, nb2, nb3] = b.graph.tensor(whole).nb();
                    let window = Window { nb: [nb1, nb2, nb3], offset: 4 * start };
                    let op =
                        if kind == OpKind::Acc { Op::Acc { window, in_place } } else { Op::Set { window, in_place } };
                    if in_place {
                        let node = b.op(op, &[whole, values])?;
                        return b.written(node, whole);
                    }
                    b.want(op, &[whole, values])
                });
            }
        }
    }
}

fn constants(cases: &mut Cases) {
    for (dtype, ne) in FLOATS.into_iter().flat_map(|dtype| SHAPES.map(|ne| (dtype, ne))) {
        for (form, value) in FORMS.into_iter().flat_map(|form| [0.0, -1.5, f32::NEG_INFINITY].map(|x| (form, x))) {
            for in_place in [false, true] {
                let params = format!("ne={ne:?},form={form:?},value={value},in_place={in_place}");
                cases.op(OpKind::Fill, dtype, params, move |b| {
                    let source = b.source_of(LeafKind::Cache, form, dtype, ne, &UNIT)?;
                    let op = Op::Fill { value, in_place };
                    if in_place {
                        let node = b.op(op, &[source])?;
                        return b.written(node, source);
                    }
                    b.want(op, &[source])
                });
            }
        }
    }
    for (start, stop, step) in
        [(0.0, 10.0, 1.0), (0.0, 1.0, 1.0), (-3.0, 2.0, 0.3), (0.0, 4_300_000.0, 1.0), (256.0, 515.0, 1.0)]
    {
        cases.op(OpKind::Arange, F32, format!("start={start},stop={stop},step={step}"), move |b| {
            b.want(Op::Arange { start, stop, step }, &[])
        });
    }
    for (count, dim, max_period) in
        [(2, 320, 10_000), (1, 1, 10), (5, 7, 1000), (300, 256, 10_000), (0, 8, 10), (66_000, 2, 100)]
    {
        for high in [1.0, 1000.0] {
            let params = format!("count={count},dim={dim},max_period={max_period},high={high}");
            cases.op(OpKind::TimestepEmbedding, F32, params, move |b| {
                let times = b.leaf(F32, [count, 1, 1, 1], &Fill::Range(0.0, high))?;
                b.want(Op::TimestepEmbedding { dim, max_period }, &[times])
            });
        }
    }
}

fn matrices(cases: &mut Cases) {
    let shapes = [[64, 64, 3, 2], [1, 1, 1, 1], [7, 7, 1, 1], [259, 259, 1, 1], [0, 0, 2, 1], [2, 2, 33_000, 1]];
    for (ne, form) in shapes.into_iter().flat_map(|ne| FORMS.map(|form| (ne, form))) {
        for part in Triangle::ALL {
            cases.op(OpKind::Tri, F32, format!("ne={ne:?},form={form:?},part={part:?}"), move |b| {
                let source = b.source(form, F32, ne, &UNIT)?;
                b.want(Op::Tri { part }, &[source])
            });
        }
        cases.op(OpKind::Diag, F32, format!("n={},outer={:?},form={form:?}", ne[0], &ne[2..]), move |b| {
            let source = b.source(form, F32, [ne[0], 1, ne[2], ne[3]], &UNIT)?;
            b.want(Op::Diag, &[source])
        });
    }
    for (kind, ne) in
        [OpKind::DiagMaskInf, OpKind::DiagMaskZero].into_iter().flat_map(|kind| SHAPES.map(|ne| (kind, ne)))
    {
        for (form, n_past) in FORMS.into_iter().flat_map(|form| [0, 5, 1000].map(|n_past| (form, n_past))) {
            for in_place in [false, true] {
                let params = format!("ne={ne:?},form={form:?},n_past={n_past},in_place={in_place}");
                cases.op(kind, F32, params, move |b| {
                    let source = b.source_of(LeafKind::Cache, form, F32, ne, &UNIT)?;
                    let op = if kind == OpKind::DiagMaskInf {
                        Op::DiagMaskInf { n_past, in_place }
                    } else {
                        Op::DiagMaskZero { n_past, in_place }
                    };
                    if in_place {
                        let node = b.op(op, &[source])?;
                        return b.written(node, source);
                    }
                    b.want(op, &[source])
                });
            }
        }
    }
}
