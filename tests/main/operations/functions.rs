//! Element-wise functions and gated units.

use crate::devices::{all, cpu, unfused};
use crate::numbers::pairs;
use crate::rig::{DENSE_ROWS, FLOATS, FORMS, Form, Rig, called};
use wgfuse::graph::{DType, Glu, LeafKind, Op, Unary, Xielu};

const F32: DType = DType::F32;
const INPUT: LeafKind = LeafKind::Input;
const XIELU: [Xielu; 2] = [
    Xielu { alpha_n: 1.3, alpha_p: 0.8, beta: 0.5, eps: -1e-6 },
    Xielu { alpha_n: -0.7, alpha_p: -0.2, beta: -1.5, eps: -0.5 },
];
const GLUS: [Glu; 10] = [
    Glu::Reglu,
    Glu::Geglu,
    Glu::Swiglu,
    Glu::SwigluOai { alpha: 1.702, limit: 7.0 },
    Glu::SwigluOai { alpha: -0.5, limit: 0.25 },
    Glu::SwigluOai { alpha: 0.0, limit: f32::INFINITY },
    Glu::GegluErf,
    Glu::GegluQuick,
    Glu::SwigluClamp { limit: 0.5 },
    Glu::SwigluClamp { limit: 0.0 },
];

/// Functions of any number.
fn functions() -> impl Iterator<Item = Op> {
    let leaky = [0.1, -2.0].map(|negative_slope| Op::LeakyRelu { negative_slope });
    [Op::Sqr, Op::Sin, Op::Cos].into_iter().chain(leaky).chain(XIELU.map(Op::Xielu)).chain(Unary::ALL.map(Op::Unary))
}

#[test]
fn functions_of_one_element() {
    let mut rig = Rig::default();
    for (op, dtype) in pairs(functions(), FLOATS) {
        for (form, ne) in pairs(FORMS, [[5, 3, 2, 3], [70, 3, 2, 1]]) {
            let a = rig.source(form, dtype, ne);
            rig.map(a, |x| 4.0 * x);
            rig.want(op, &[a]);
        }
        let none = rig.source(Form::Dense, dtype, [3, 0, 2, 1]);
        rig.want(op, &[none]);
    }
    for (op, dtype) in pairs([Op::Sqrt, Op::Log], FLOATS) {
        for (form, ne) in pairs(FORMS, [[5, 3, 2, 3], [70, 3, 2, 1]]) {
            let a = rig.source(form, dtype, ne);
            rig.map(a, |x| 2.0 * x.abs() + 0.01);
            rig.want(op, &[a]);
        }
    }
    rig.check();
}

#[test]
fn functions_of_large_arguments() {
    let mut rig = Rig::default();
    let values = [0.0, 1e-6, 3.0, 9.9, 10.1, 13.0, 14.5, 19.0, 19.9, 20.0, 20.1, 21.0, 45.0, 88.0, 90.0, 200.0];
    let squared = values.map(|x| [x, -x]).concat();
    // Whose squares would be infinite.
    let whole = [&squared[..], &[1e5, -1e5, 1e19, -1e19, 3e38, -3e38]].concat();
    for op in Unary::ALL.map(Op::Unary) {
        let a = rig.given(INPUT, F32, [whole.len(), 1, 1, 1], &whole);
        rig.want(op, &[a]);
    }
    let wide: Vec<f64> = squared.iter().copied().chain([1e19, -1e19]).collect();
    for op in [Op::Sqr, Op::LeakyRelu { negative_slope: 0.1 }, Op::Xielu(XIELU[0])] {
        let a = rig.given(INPUT, F32, [squared.len(), 1, 1, 1], &squared);
        rig.want(op, &[a]);
    }
    for glu in [Glu::Reglu, Glu::GegluErf, Glu::GegluQuick, GLUS[3], Glu::SwigluClamp { limit: 7.0 }] {
        let a = rig.given(INPUT, F32, [wide.len(), 1, 1, 1], &wide);
        let b = rig.given(INPUT, F32, [wide.len(), 1, 1, 1], &wide.iter().map(|x| 0.5 - x).collect::<Vec<_>>());
        rig.want(Op::Glu { glu, swapped: false }, &[a, b]);
    }
    let positive: Vec<f64> = (-120..120).map(|i| 1.9f64.powi(i)).chain([1.0, 0.999, 1.001, 3e38]).collect();
    for op in [Op::Sqrt, Op::Log] {
        let a = rig.given(INPUT, F32, [positive.len(), 1, 1, 1], &positive);
        rig.want(op, &[a]);
    }
    let angles: Vec<f64> = (0..400).map(|i| (f64::from(i) - 200.0) * 47.123).chain(squared).collect();
    for op in [Op::Sin, Op::Cos] {
        let a = rig.given(INPUT, F32, [angles.len(), 1, 1, 1], &angles);
        rig.want(op, &[a]);
    }
    rig.check();
}

/// A power of two near the end of f32's range.
const LARGE: f64 = 1.7014118346046923e38;

/// Values that the definitions name, worked out by hand.
#[test]
fn functions_at_their_corners() {
    let cases: &[(Op, &[f64], &[f64])] = &[
        (Op::Unary(Unary::Round), &[0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997], &[1.0, -1.0, 2.0, 3.0, -3.0, 0.0]),
        (
            Op::Unary(Unary::Round),
            &[8388607.5, 16777215.0, -8388607.5, LARGE],
            &[8388608.0, 16777215.0, -8388608.0, LARGE],
        ),
        (Op::Unary(Unary::Floor), &[-0.5, 0.5, -2.0], &[-1.0, 0.0, -2.0]),
        (Op::Unary(Unary::Ceil), &[-0.5, 0.5, -2.0], &[-0.0, 1.0, -2.0]),
        (Op::Unary(Unary::Trunc), &[-1.5, 1.5, -2.0], &[-1.0, 1.0, -2.0]),
        (Op::Unary(Unary::Sgn), &[-0.0, 0.0, 1e-30, -1e-30], &[0.0, 0.0, 1.0, -1.0]),
        (Op::Unary(Unary::Step), &[-0.0, 0.0, 1e-30, -1e-30], &[0.0, 0.0, 1.0, 0.0]),
        (Op::Unary(Unary::HardSigmoid), &[-3.0, 0.0, 1.5, 3.0, 4.0], &[0.0, 0.5, 0.75, 1.0, 1.0]),
        (Op::Unary(Unary::HardSwish), &[-3.0, 0.0, 1.5, 3.0, 4.0], &[0.0, 0.0, 1.125, 3.0, 4.0]),
        (Op::LeakyRelu { negative_slope: 0.25 }, &[-4.0, 0.0, 4.0], &[-1.0, 0.0, 4.0]),
        (Op::Log, &[1.0, 0.0, f64::INFINITY], &[0.0, f64::NEG_INFINITY, f64::INFINITY]),
        (Op::Sqrt, &[0.0, 4.0, f64::INFINITY], &[0.0, 2.0, f64::INFINITY]),
        (
            Op::Unary(Unary::Exp),
            &[0.0, -200.0, 200.0, f64::NEG_INFINITY, f64::INFINITY],
            &[1.0, 0.0, f64::INFINITY, 0.0, f64::INFINITY],
        ),
        (
            Op::Unary(Unary::Expm1),
            &[0.0, -200.0, 200.0, f64::NEG_INFINITY, f64::INFINITY],
            &[0.0, -1.0, f64::INFINITY, -1.0, f64::INFINITY],
        ),
    ];
    for &(op, values, expected) in cases {
        let mut rig = Rig::default();
        let a = rig.given(INPUT, F32, [values.len(), 1, 1, 1], values);
        rig.want(op, &[a]);
        for device in all() {
            let found = rig.run(&device, unfused()).unwrap();
            assert_eq!(found[0].all, expected, "{}: {op:?} of {values:?}", called(&device));
        }
    }
}

/// NaN is neither above nor below zero. Kernels promise nothing about it.
#[test]
fn functions_of_nan_on_the_cpu() {
    let nan = f64::NAN;
    let cases = [
        (Op::Unary(Unary::Sgn), 0.0),
        (Op::Unary(Unary::Step), 0.0),
        (Op::Unary(Unary::Relu), 0.0),
        (Op::Unary(Unary::HardSigmoid), 0.0),
        (Op::LeakyRelu { negative_slope: 0.5 }, 0.0),
        (Op::Unary(Unary::HardSwish), nan),
        (Op::Unary(Unary::Abs), nan),
        (Op::Unary(Unary::Elu), nan),
        (Op::Unary(Unary::Exp), nan),
        (Op::Unary(Unary::GeluErf), nan),
        (Op::Unary(Unary::Round), nan),
        (Op::Xielu(XIELU[0]), nan),
        (Op::Log, nan),
        (Op::Sqrt, nan),
    ];
    for (op, expected) in cases {
        let mut rig = Rig::default();
        let a = rig.given(INPUT, F32, [2, 1, 1, 1], &[nan, nan]);
        rig.want(op, &[a]);
        let found = rig.run(&cpu(), unfused()).unwrap()[0].all[0];
        assert!(found == expected || (found.is_nan() && expected.is_nan()), "{op:?} of NaN is {found}");
    }
    let mut rig = Rig::default();
    let a = rig.given(INPUT, F32, [1; 4], &[-1.0]);
    rig.want(Op::Log, &[a]);
    rig.want(Op::Sqrt, &[a]);
    assert!(rig.run(&cpu(), unfused()).unwrap().iter().all(|found| found.all[0].is_nan()));
}

/// What drivers and naive formulas lose: small results next to large ones, which a mean square would not show.
#[test]
fn small_results_keep_their_digits() {
    let spread = |low: f64, high: f64| (0..400).map(|i| low + (high - low) * f64::from(i) / 399.0).collect::<Vec<_>>();
    let tiny = (0..60).map(|i| 0.6f64.powi(i)).flat_map(|x| [x, -x]).collect::<Vec<_>>();
    for (op, values, each) in [
        (Unary::Expm1, tiny, 3e-7),
        (Unary::Expm1, spread(-5.0, 5.0), 1e-6),
        (Unary::Elu, spread(-5.0, -1e-3), 1e-6),
        (Unary::Exp, spread(-80.0, 88.0), 1e-6),
        (Unary::GeluErf, spread(-4.0, 6.0), 3e-6),
        (Unary::GeluQuick, spread(-10.0, 10.0), 4e-6),
    ] {
        let mut rig = Rig::default();
        let a = rig.given(INPUT, F32, [values.len(), 1, 1, 1], &values);
        rig.want(Op::Unary(op), &[a]);
        let expected = &rig.expected()[0].1.all;
        for device in all() {
            let found = &rig.run(&device, unfused()).unwrap()[0].all;
            for ((&found, &expected), &x) in found.iter().zip(expected).zip(&rig.contents(a)) {
                let off = (found - expected).abs();
                assert!(off <= each * expected.abs() + 1e-30, "{}: {op:?}({x}) = {found}", called(&device));
            }
        }
    }
}

#[test]
fn gated_units_of_two_tensors_and_of_halves() {
    let mut rig = Rig::default();
    for (glu, swapped) in pairs(GLUS, [false, true]) {
        for (dtype, form) in pairs(FLOATS, DENSE_ROWS) {
            for ne in [[6, 4, 2, 2], [9, 3, 2, 2]] {
                let (a, b) = (rig.source(form, dtype, ne), rig.source(Form::Padded, dtype, ne));
                rig.want(Op::Glu { glu, swapped }, &[a, b]);
            }
            for ne in [[6, 4, 2, 2], [10, 3, 2, 2], [4, 0, 2, 1]] {
                let a = rig.source(form, dtype, ne);
                rig.want(Op::Glu { glu, swapped }, &[a]);
            }
        }
    }
    rig.check();
}

#[test]
fn gated_units_hold_gate_and_value_to_the_limit() {
    let mut rig = Rig::default();
    let a = rig.given(INPUT, F32, [4, 1, 1, 1], &[9.0, 9.0, 1.0, -9.0]);
    let b = rig.given(INPUT, F32, [4, 1, 1, 1], &[9.0, -9.0, 0.5, 0.5]);
    rig.want(Op::Glu { glu: Glu::SwigluOai { alpha: 0.0, limit: 2.0 }, swapped: false }, &[a, b]);
    rig.want(Op::Glu { glu: Glu::SwigluClamp { limit: 2.0 }, swapped: false }, &[a, b]);
    let expected = rig.expected();
    assert_eq!(expected[0].1.all, [3.0, -1.0, 0.75, -6.75]);
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let close = |(found, expected): (&f64, f64)| (found - expected).abs() < 1e-12;
    let clamped = [2.0 * silu(2.0), -2.0 * silu(2.0), 0.5 * silu(1.0), 0.5 * silu(-9.0)];
    assert!(expected[1].1.all.iter().zip(clamped).all(close), "{:?}", expected[1].1.all);
    rig.check();
}

#[test]
fn gradients_of_silu() {
    let mut rig = Rig::default();
    for (dtype, form) in pairs(FLOATS, FORMS) {
        for ne in [[6, 4, 2, 2], [70, 3, 2, 1], [3, 0, 1, 1]] {
            let (grad, x) = (rig.source(form, dtype, ne), rig.source(Form::Padded, dtype, ne));
            rig.map(x, |x| 6.0 * x);
            rig.want(Op::SiluBack, &[grad, x]);
        }
    }
    let values = [0.0, -1.278, 20.0, -20.0, 88.0, -88.0, 1e5, -1e5, 3e38, -3e38];
    let x = rig.given(INPUT, F32, [10, 1, 1, 1], &values);
    let grad = rig.input([10, 1, 1, 1]);
    rig.want(Op::SiluBack, &[grad, x]);
    rig.check();
}

#[test]
fn rows_that_ids_pick_are_added() {
    let mut rig = Rig::default();
    for form in DENSE_ROWS {
        for (ne, rows) in [([5, 3, 4, 2], 6), ([70, 2, 3, 1], 1), ([1, 1, 1, 1], 3), ([4, 2, 0, 1], 3)] {
            let (a, b) = (rig.source(form, F32, ne), rig.source(form, F32, [ne[0], rows, 1, 1]));
            let ids = rig.source(form, DType::I32, [ne[1], ne[2], 1, 1]);
            rig.map(ids, |id| id.abs() % rows as f64);
            rig.want(Op::AddId, &[a, b, ids]);
        }
    }
    rig.check();
}
