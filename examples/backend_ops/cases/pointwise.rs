//! Functions of one element, arithmetic and gated units.

use super::{Cases, FLOATS, SHAPES};
use crate::builder::{DENSE_ROWS, FORMS, Fill, Form, UNIT};
use wgfuse::graph::{DType, Glu, LeafKind, Op, OpKind, Unary, Xielu};

/// The numbers for which a function means something.
fn range(unary: Unary) -> (f64, f64) {
    match unary {
        Unary::Abs | Unary::Sgn | Unary::Neg | Unary::Step | Unary::Relu => (-10.0, 10.0),
        Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => (-10.0, 10.0),
        Unary::Tanh | Unary::Elu | Unary::Gelu | Unary::GeluErf | Unary::GeluQuick => (-10.0, 10.0),
        Unary::HardSwish | Unary::HardSigmoid | Unary::Exp => (-8.0, 8.0),
        Unary::Expm1 => (-2.0, 2.0),
        Unary::Sigmoid | Unary::Silu => (-20.0, 20.0),
        Unary::Softplus => (-30.0, 30.0),
    }
}

/// Functions with such numbers.
fn functions() -> impl Iterator<Item = (Op, (f64, f64))> {
    let xielu = Xielu::of_weights(0.8, 0.8, 0.5, -1e-6);
    let others = [
        (Op::Sqr, (-10.0, 10.0)),
        (Op::Sqrt, (0.0, 100.0)),
        (Op::Sin, (-6.5, 6.5)),
        (Op::Cos, (-6.5, 6.5)),
        (Op::Log, (0.01, 100.0)),
        (Op::LeakyRelu { negative_slope: 0.1 }, (-10.0, 10.0)),
        (Op::Xielu(xielu), (-10.0, 10.0)),
    ];
    others.into_iter().chain(Unary::ALL.map(|unary| (Op::Unary(unary), range(unary))))
}

const GLUS: [Glu; 7] = [
    Glu::Reglu,
    Glu::Geglu,
    Glu::Swiglu,
    Glu::SwigluOai { alpha: 1.702, limit: 7.0 },
    Glu::GegluErf,
    Glu::GegluQuick,
    Glu::SwigluClamp { limit: 4.0 },
];

pub fn add(cases: &mut Cases) {
    for (op, (low, high)) in functions() {
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
    gradients(cases);
    picked(cases);
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
    for (glu, dtype) in GLUS.into_iter().flat_map(|glu| FLOATS.map(|dtype| (glu, dtype))) {
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

fn gradients(cases: &mut Cases) {
    for (dtype, ne) in FLOATS.into_iter().flat_map(|dtype| SHAPES.map(|ne| (dtype, ne))) {
        for form in FORMS {
            cases.op(OpKind::SiluBack, dtype, format!("ne={ne:?},form={form:?}"), move |b| {
                let grad = b.source(form, dtype, ne, &UNIT)?;
                let x = b.source(Form::Dense, dtype, ne, &Fill::Range(-8.0, 8.0))?;
                b.want(Op::SiluBack, &[grad, x])
            });
        }
    }
}

fn picked(cases: &mut Cases) {
    for (width, used, tokens, rows) in
        [(64, 4, 32, 8), (1, 1, 1, 1), (129, 2, 3, 32), (33, 1, 66_000, 5), (300, 0, 4, 2), (7, 8, 1, 128)]
    {
        for form in DENSE_ROWS {
            let params = format!("width={width},used={used},tokens={tokens},rows={rows},form={form:?}");
            cases.op(OpKind::AddId, DType::F32, params, move |b| {
                let first = b.source(form, DType::F32, [width, used, tokens, 1], &UNIT)?;
                let second = b.source(form, DType::F32, [width, rows, 1, 1], &UNIT)?;
                let ids = b.source(form, DType::I32, [used, tokens, 1, 1], &Fill::Whole(0, rows as i64))?;
                b.want(Op::AddId, &[first, second, ids])
            });
        }
    }
}
