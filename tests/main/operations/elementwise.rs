//! Operations on single elements.

use crate::numbers::{pairs, rounded};
use crate::rig::{FLOATS, FORMS, Rig};
use wgfuse::graph::{DType, LeafKind, Op};

const F32: DType = DType::F32;
const INPUT: LeafKind = LeafKind::Input;
#[test]
fn arithmetic_broadcasts_and_keeps_the_first_type() {
    let shapes = [
        ([6, 4, 3, 2], [6, 4, 3, 2]),
        ([6, 4, 3, 2], [6, 1, 1, 1]),
        ([6, 4, 3, 2], [1, 4, 3, 1]),
        ([6, 4, 3, 2], [2, 2, 1, 2]),
        ([6, 4, 3, 2], [1, 1, 1, 1]),
        ([6, 4, 3, 2], [3, 1, 3, 1]),
        ([7, 3, 2, 2], [7, 3, 2, 2]),
        ([65, 5, 2, 3], [65, 1, 1, 1]),
        ([6, 4, 2, 2], [3, 2, 1, 2]),
        ([5, 4, 3, 2], [1, 4, 1, 2]),
        ([3, 1, 1, 1], [1, 1, 1, 1]),
    ];
    let mut rig = Rig::default();
    let mut turn = 0;
    for op in [Op::Add, Op::Sub, Op::Mul, Op::Div] {
        for (ne, of) in shapes {
            for form in FORMS {
                turn += 1;
                let (a, b) = (rig.source(form, F32, ne), rig.source(FORMS[turn % 5], F32, of));
                rig.want(op, &[a, b]);
            }
        }
        for (first, second) in pairs(FLOATS, FLOATS) {
            for form in FORMS {
                turn += 1;
                let (ne, of) = shapes[turn % shapes.len()];
                let (a, b) = (rig.source(form, first, ne), rig.source(FORMS[turn % 4], second, of));
                rig.want(op, &[a, b]);
            }
        }
    }
    let a = rig.input([33, 2, 1, 1]);
    rig.want(Op::Mul, &[a, a]);
    rig.check();
}

#[test]
fn scale_and_clamp() {
    let mut rig = Rig::default();
    for (form, ne) in pairs(FORMS, [[5, 3, 2, 1], [9, 4, 3, 2]]) {
        let a = rig.source(form, F32, ne);
        for (scale, bias) in [(-2.5, 0.25), (-1.5, 0.25), (2.0, 1.0)] {
            rig.want(Op::Scale { scale, bias, in_place: false }, &[a]);
        }
        for (min, max) in
            [(-0.25, 0.5), (-0.5, 1.0), (f32::NEG_INFINITY, 0.25), (0.0, f32::INFINITY), (1.0, -1.0), (1.0, 2.0)]
        {
            rig.want(Op::Clamp { min, max }, &[a]);
        }
        let cache = rig.source_of(LeafKind::Cache, form, F32, ne);
        let scaled = rig.want(Op::Scale { scale: 2.0, bias: 1.0, in_place: true }, &[cache]);
        rig.written(scaled, rig.graph.root(cache));
    }
    let a = rig.given(INPUT, F32, [2, 1, 1, 1], &[f64::NEG_INFINITY, f64::INFINITY]);
    rig.want(Op::Clamp { min: 1.0, max: 2.0 }, &[a]);
    rig.check();
}

#[test]
fn scale_in_place_changes_the_viewed_part_of_a_cache_alone() {
    let mut rig = Rig::default();
    let numbers: Vec<f64> = (0..40).map(f64::from).collect();
    for (ne, part, offset, scale, bias) in
        [([4, 3, 1, 1], [2, 3, 1, 1], 4, 10.0, 1.0), ([10, 4, 1, 1], [4, 2, 1, 1], 48, 3.0, 0.0)]
    {
        let cache = rig.given(LeafKind::Cache, F32, ne, &numbers[..ne[0] * ne[1]]);
        let nb = rig.graph.tensor(cache).nb();
        let part = rig.op(Op::View { ne: part, nb, offset }, &[cache]);
        let scaled = rig.op(Op::Scale { scale, bias, in_place: true }, &[part]);
        rig.written(scaled, cache);
    }
    let expected = rig.expected();
    assert_eq!(expected[0].1.all, [0.0, 11.0, 21.0, 3.0, 4.0, 51.0, 61.0, 7.0, 8.0, 91.0, 101.0, 11.0]);
    rig.check();
}

#[test]
fn rounding_to_half_precision_is_to_nearest_even() {
    let mut rig = Rig::default();
    // 2049 and 2051 lie halfway between neighbours in f16, 257 and 259 in bf16.
    for (dtype, values, expected) in [
        (DType::F16, [2049.0, 2051.0, 65520.0, 1e-8], [2048.0, 2052.0, f64::INFINITY, 0.0]),
        (DType::F16, [1e6, -1e6, 65504.0, 0.0], [f64::INFINITY, f64::NEG_INFINITY, 65504.0, 0.0]),
        (DType::BF16, [257.0, 259.0, 1e38, -0.0], [256.0, 260.0, 1e38, 0.0]),
    ] {
        let a = rig.given(INPUT, F32, [4, 1, 1, 1], &values);
        let cache = rig.leaf(LeafKind::Cache, dtype, [4, 1, 1, 1]);
        rig.want(Op::Cpy, &[a, cache]);
        assert_eq!(values.map(|x| rounded(dtype, x)), expected.map(|x| rounded(dtype, x)));
    }
    rig.check();
}
