//! Operations on whole rows.

use crate::numbers::{indices, pairs};
use crate::rig::{DENSE_ROWS, FORMS, Form, Rig};
use wgfuse::graph::{DType, LeafKind, Op, SortOrder, TensorId};

const F32: DType = DType::F32;
const INPUT: LeafKind = LeafKind::Input;

fn norms(eps: f32) -> [Op; 2] {
    [Op::Norm { eps }, Op::RmsNorm { eps }]
}

#[test]
fn norms_divide_by_the_deviation() {
    let mut rig = Rig::default();
    for form in DENSE_ROWS {
        for op in [0.0, 1e-5, 0.5].into_iter().flat_map(norms) {
            let a = rig.source(form, F32, [37, 3, 2, 2]);
            rig.want(op, &[a]);
        }
        for (width, op) in pairs([1, 3, 31, 64, 300, 1025, 5000], norms(1e-3)) {
            let outer = if form == Form::Dense { [5, 1, 1] } else { [3, 2, 2] };
            let a = rig.source(form, F32, [width, outer[0], outer[1], outer[2]]);
            rig.want(op, &[a]);
        }
    }
    rig.check();
}

#[test]
fn a_large_mean_costs_few_digits() {
    let mut rig = Rig::default();
    let a = rig.input([999, 3, 1, 1]);
    let a = rig.map(a, |x| 300.0 + x);
    let normed = rig.op(Op::Norm { eps: 1e-5 }, &[a]);
    rig.output(normed);
    // The mean itself is off by half a bit of 300.
    rig.allow(1e-4, 1e-8);
    rig.check();
}

#[test]
fn sums_of_rows() {
    let mut rig = Rig::default();
    for (form, ne) in pairs(FORMS, [[41, 3, 2, 2], [1, 3, 2, 2], [63, 3, 2, 2], [64, 1, 1, 1], [1000, 2, 1, 3]]) {
        let a = rig.source(form, F32, ne);
        rig.want(Op::SumRows, &[a]);
    }
    let nothing = rig.input([0, 3, 1, 1]);
    rig.want(Op::SumRows, &[nothing]);
    rig.check();
}

/// A mask of small numbers in which every third element and one whole row is masked.
fn mask(rig: &mut Rig, form: Form, dtype: DType, ne: [usize; 4]) -> TensorId {
    let mask = rig.source_of(INPUT, form, dtype, ne);
    let root = rig.graph.root(mask);
    let [width, rows, ..] = rig.graph.tensor(root).ne();
    let hidden = indices(rig.graph.tensor(root).ne()).map(|[i, row, ..]| i % 3 == 1 || (rows > 2 && row == 1));
    let values = rig.contents(root).into_iter().zip(hidden);
    let values = values.map(|(x, hidden)| if hidden && width > 1 { f64::NEG_INFINITY } else { x }).collect();
    rig.give(root, values);
    mask
}

#[test]
fn soft_max_with_masks_slopes_and_sinks() {
    let shapes = [
        ([1, 1, 1, 1], [1, 1, 1]),
        ([1, 5, 7, 3], [5, 7, 1]),
        ([33, 2, 12, 2], [2, 3, 2]),
        ([255, 1, 1, 6], [1, 1, 3]),
        ([257, 70, 3, 1], [99, 1, 1]),
        ([17, 3, 6, 2], [3, 1, 1]),
        ([17, 3, 6, 2], [8, 3, 2]),
        ([7, 3, 6, 2], [3, 1, 1]),
        ([64, 5, 8, 2], [7, 2, 2]),
        ([1000, 3, 5, 1], [3, 5, 1]),
        ([5000, 1, 2, 1], [1, 1, 1]),
    ];
    let mut rig = Rig::default();
    for (ne, outer) in shapes {
        for form in DENSE_ROWS {
            for (dtype, with_sinks, max_bias, scale) in [
                (None, false, 0.0, 4.5),
                (None, true, 8.0, 1.7),
                (Some(F32), false, 0.0, 1.7),
                (Some(F32), true, 8.0, 4.5),
                (Some(DType::F16), false, 8.0, 4.5),
                (Some(DType::F16), true, 4.0, 4.5),
                (Some(DType::F16), true, 0.0, 1.7),
            ] {
                let a = rig.source(form, F32, ne);
                let masked = [ne[0], outer[0], outer[1], outer[2]];
                let mask = dtype.map(|dtype| mask(&mut rig, form, dtype, masked));
                let sinks = with_sinks.then(|| rig.weight([ne[2], 1, 1, 1]));
                let out = rig.graph.soft_max(a, mask, sinks, scale, max_bias).unwrap();
                rig.output(out);
            }
        }
    }
    rig.check();
}

#[test]
fn soft_max_does_not_read_what_the_mask_hides() {
    let mut rig = Rig::default();
    let a = rig.given(INPUT, F32, [2, 2, 1, 1], &[1.0, f64::NAN, 3.0, f64::NAN]);
    let hidden = f64::NEG_INFINITY;
    let mask = rig.given(INPUT, DType::F16, [2, 2, 1, 1], &[hidden, hidden, 0.0, hidden]);
    rig.want(Op::SoftMax { scale: 1.0, max_bias: 0.0 }, &[a, mask]);
    assert_eq!(rig.expected()[0].1.all, [0.0, 0.0, 1.0, 0.0]);

    let hides = |key: usize| key % 5 == 2 || key > 130;
    let mask: Vec<f64> = (0..450).map(|i| if hides(i % 150) { hidden } else { 0.0 }).collect();
    let mask = rig.given(INPUT, DType::F16, [150, 3, 1, 1], &mask);
    let a = rig.input([150, 3, 1, 1]);
    let values = rig.contents(a).into_iter().enumerate();
    let values = values.map(|(i, x)| if hides(i % 150) { f64::NAN } else { x }).collect();
    rig.give(a, values);
    rig.want(Op::SoftMax { scale: 1.0, max_bias: 0.0 }, &[a, mask]);
    assert!(rig.expected()[1].1.all.iter().all(|x| x.is_finite()));
    rig.check();
}

#[test]
fn sorting_is_stable_and_puts_nan_above_all_numbers() {
    let row = [2.0, f64::NAN, -1.0, 2.0, f64::INFINITY, 0.0, -0.0, f64::NEG_INFINITY, f64::NAN];
    for (order, expected) in [
        (SortOrder::Ascending, [7.0, 2.0, 5.0, 6.0, 0.0, 3.0, 4.0, 1.0, 8.0]),
        (SortOrder::Descending, [1.0, 8.0, 4.0, 0.0, 3.0, 5.0, 6.0, 2.0, 7.0]),
    ] {
        let mut rig = Rig::default();
        let a = rig.given(INPUT, F32, [9, 1, 1, 1], &row);
        rig.want(Op::Argsort { order }, &[a]);
        assert_eq!(rig.expected()[0].1.all, expected);
        let short = pairs([1, 2, 3, 16, 50, 100, 1000], DENSE_ROWS);
        let long = if order == SortOrder::Ascending { Form::Padded } else { Form::Dense };
        for (length, form) in short.chain([2048, 2049, 9000].map(|length| (length, long))) {
            let a = rig.source(form, F32, [length, 2, 3, 1]);
            // Many equal values, both zeros, infinities, and NaNs of both signs.
            let values = rig.contents(rig.graph.root(a)).into_iter().enumerate().map(|(i, x)| match i % 97 {
                50 => f64::NAN,
                51 => -f64::NAN,
                52 => f64::INFINITY,
                53 => f64::NEG_INFINITY,
                54 => -0.0,
                55 => 0.0,
                _ => (x * 50.0).round(),
            });
            let values = values.collect();
            rig.give(a, values);
            rig.want(Op::Argsort { order }, &[a]);
        }
        rig.check();
    }
}

/// More workgroups than one dimension of a grid has on any adapter by default, so that the grid is rounded up.
#[test]
fn more_rows_than_a_grid_is_wide() {
    let mut rig = Rig::default();
    let x = rig.input([2, 70_001, 1, 1]);
    rig.want(Op::SumRows, &[x]);
    let scores = rig.op(Op::SoftMax { scale: 1.0, max_bias: 0.0 }, &[x]);
    rig.output(scores);
    rig.want(Op::Argsort { order: SortOrder::Descending }, &[x]);
    let (w, b) = (rig.input([3, 280_001, 1, 1]), rig.input([3, 1, 1, 1]));
    rig.want(Op::MUL_MAT, &[w, b]);
    rig.check();

    let mut rig = Rig::default();
    let x = rig.input([2, 70_001, 1, 1]);
    rig.want(Op::Norm { eps: 1e-5 }, &[x]);
    // Here a variance can be as small as eps, and a norm as inexact as its mean.
    rig.allow(1e-3, 1e-9);
    rig.check();
}
