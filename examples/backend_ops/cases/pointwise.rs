//! Functions of one element, arithmetic and gated units.

use super::{Cases, FLOATS, SHAPES};
use crate::builder::{DENSE_ROWS, FORMS, Fill, Form, UNIT};
use wgfuse::graph::{DType, Glu, LeafKind, Op, Unary};

/// Functions with the numbers for which they mean something.
const FUNCTIONS: [(Op, f64, f64); 7] = [
    (Op::Sqr, -10.0, 10.0),
    (Op::Sin, -6.5, 6.5),
    (Op::Unary(Unary::Tanh), -10.0, 10.0),
    (Op::Unary(Unary::Sigmoid), -20.0, 20.0),
    (Op::Unary(Unary::Gelu), -10.0, 10.0),
    (Op::Unary(Unary::Silu), -20.0, 20.0),
    (Op::Unary(Unary::Softplus), -30.0, 30.0),
];

pub fn add(cases: &mut Cases) {
    for (op, low, high) in FUNCTIONS {
        for (dtype, ne) in FLOATS.into_iter().flat_map(|dtype| SHAPES.map(|ne| (dtype, ne))) {
            for form in FORMS {
                cases.op(op.kind(), dtype, format!("ne={ne:?},form={form:?}"), move |b| {
                    let source = b.source(form, dtype, ne, &Fill::Range(low, high))?;
                    b.want(op, &[source])
                });
            }
        }
    }
    for (ne, form) in SHAPES.into_iter().flat_map(|ne| FORMS.map(|form| (ne, form))) {
        let clamp = Op::Clamp { min: -0.5, max: 0.25 };
        let scales = [(2.5, 0.0, false), (-1.0, 3.0, false), (0.5, 1.0, true)];
        let scales = scales.map(|(scale, bias, in_place)| Op::Scale { scale, bias, in_place });
        for op in scales.into_iter().chain([clamp]) {
            cases.op(op.kind(), DType::F32, format!("ne={ne:?},form={form:?},{op:?}"), move |b| {
                let source = b.source_of(LeafKind::Cache, form, DType::F32, ne, &UNIT)?;
                if matches!(op, Op::Scale { in_place: true, .. }) {
                    let node = b.op(op, &[source])?;
                    return b.written(node, source);
                }
                b.want(op, &[source])
            });
        }
    }
    arithmetic(cases);
    gated(cases);
}

fn arithmetic(cases: &mut Cases) {
    // The shape of the second source for a first one of [14, 6, 4, 2], and others.
    let shapes = [
        ([14, 6, 4, 2], [14, 6, 4, 2]),
        ([14, 6, 4, 2], [14, 1, 1, 1]),
        ([14, 6, 4, 2], [1, 6, 1, 2]),
        ([14, 6, 4, 2], [7, 3, 2, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([259, 3, 1, 1], [1, 1, 1, 1]),
        ([3, 66_000, 1, 1], [3, 1, 1, 1]),
        ([5, 0, 2, 1], [5, 1, 2, 1]),
    ];
    for (op, left) in [Op::Add, Op::Sub, Op::Mul, Op::Div].into_iter().flat_map(|op| FLOATS.map(|dtype| (op, dtype))) {
        for (right, (a, c)) in FLOATS.into_iter().flat_map(|dtype| shapes.map(|shape| (dtype, shape))) {
            for form in [Form::Dense, Form::Padded, Form::Transposed] {
                cases.op(op.kind(), left, format!("by={right},ne={a:?},by_ne={c:?},form={form:?}"), move |b| {
                    let first = b.source(form, left, a, &UNIT)?;
                    let second = b.source(form, right, c, &Fill::Range(0.5, 2.0))?;
                    b.want(op, &[first, second])
                });
            }
        }
    }
}

fn gated(cases: &mut Cases) {
    for (glu, dtype) in [Glu::Geglu, Glu::Swiglu].into_iter().flat_map(|glu| FLOATS.map(|dtype| (glu, dtype))) {
        for (ne, form) in SHAPES.into_iter().flat_map(|ne| DENSE_ROWS.map(|form| (ne, form))) {
            let range = Fill::Range(-8.0, 8.0);
            for (swapped, two) in [(false, false), (true, false), (false, true)] {
                let (op, range) = (Op::Glu { glu, swapped }, range.clone());
                let params = format!("ne={ne:?},form={form:?},swapped={swapped},two={two}");
                cases.op(op.kind(), dtype, params, move |b| {
                    let whole = if two { ne } else { [2 * ne[0], ne[1], ne[2], ne[3]] };
                    let a = b.source(form, dtype, whole, &range)?;
                    if two {
                        let gate = b.source(form, dtype, ne, &range)?;
                        return b.want(op, &[a, gate]);
                    }
                    b.want(op, &[a])
                });
            }
        }
    }
}
