//! Sums and counts: of everything, of rows, along rows, of repeated parts and of picked rows.

use crate::numbers::pairs;
use crate::rig::{DENSE_ROWS, FLOATS, FORMS, Form, Rig};
use wgfuse::graph::{DType, LeafKind, Op};

const F32: DType = DType::F32;
const I32: DType = DType::I32;
const INPUT: LeafKind = LeafKind::Input;

#[test]
fn sums_by_hand() {
    let mut rig = Rig::default();
    let a = rig.given(INPUT, F32, [3, 2, 1, 1], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    rig.want(Op::Sum, &[a]);
    rig.want(Op::Mean, &[a]);
    rig.want(Op::CumSum, &[a]);
    rig.want(Op::RepeatBack { ne: [1, 2, 1, 1] }, &[a]);
    rig.want(Op::RepeatBack { ne: [3, 1, 1, 1] }, &[a]);
    let grad = rig.given(INPUT, F32, [2, 3, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let ids = rig.given(INPUT, I32, [3, 1, 1, 1], &[2.0, 0.0, 2.0]);
    rig.want(Op::GetRowsBack { rows: 4 }, &[grad, ids]);
    let same = rig.given(INPUT, I32, [3, 1, 1, 1], &[2.0, 1.0, 2.0]);
    rig.want(Op::CountEqual, &[ids, same]);
    let expected: Vec<Vec<f64>> = rig.expected().into_iter().map(|(_, found)| found.all).collect();
    let by_hand: [&[f64]; 7] = [
        &[66.0],
        &[2.0, 20.0],
        &[1.0, 3.0, 6.0, 10.0, 30.0, 60.0],
        &[6.0, 60.0],
        &[11.0, 22.0, 33.0],
        &[3.0, 4.0, 0.0, 0.0, 6.0, 8.0, 0.0, 0.0],
        &[2.0],
    ];
    assert_eq!(expected, by_hand);
    rig.check();
}

const SHAPES: [[usize; 4]; 6] =
    [[41, 3, 2, 2], [1, 1, 1, 1], [63, 1, 1, 1], [257, 3, 2, 1], [1000, 2, 1, 3], [2, 70, 5, 1]];

#[test]
fn of_all_elements_and_of_rows() {
    let mut rig = Rig::default();
    for (form, ne) in pairs(FORMS, SHAPES) {
        for dtype in FLOATS {
            let a = rig.source(form, dtype, ne);
            rig.want(Op::Sum, &[a]);
        }
        let a = rig.source(form, F32, ne);
        rig.want(Op::Mean, &[a]);
    }
    for empty in [[0, 3, 1, 1], [3, 0, 2, 1]] {
        let nothing = rig.input(empty);
        rig.want(Op::Sum, &[nothing]);
    }
    let none = rig.input([5, 0, 2, 1]);
    rig.want(Op::Mean, &[none]);
    // Elements of either sign may leave little of a sum.
    rig.allow(1e-5, 1e-10);
    rig.check();
}

#[test]
fn long_sums_keep_their_digits() {
    let mut rig = Rig::default();
    // A running sum in f32 would be off by 1e-3 and more of these.
    for ne in [[3_000_000, 1, 1, 1], [3, 100_001, 1, 1]] {
        let a = rig.input(ne);
        let a = rig.map(a, |x| 1.0 + 0.1 * x);
        rig.want(Op::Sum, &[a]);
        rig.want(Op::Mean, &[a]);
        rig.want(Op::RepeatBack { ne: [1; 4] }, &[a]);
        rig.want(Op::RepeatBack { ne: [3, 1, 1, 1] }, &[a]);
    }
    rig.allow(1e-6, 1e-12);
    rig.check();
}

#[test]
fn running_sums() {
    let mut rig = Rig::default();
    for (form, ne) in pairs(DENSE_ROWS, SHAPES) {
        let a = rig.source(form, F32, ne);
        rig.want(Op::CumSum, &[a]);
    }
    for length in [255, 2047, 2048, 2049, 4097] {
        let a = rig.input([length, 2, 1, 1]);
        rig.want(Op::CumSum, &[a]);
    }
    let none = rig.input([0, 2, 1, 1]);
    rig.want(Op::CumSum, &[none]);
    // Where the sum comes near zero, what was rounded before stays.
    rig.allow(2e-5, 1e-11);
    rig.check();
}

#[test]
fn a_long_running_sum_keeps_its_digits() {
    let mut rig = Rig::default();
    let a = rig.input([100_000, 2, 1, 1]);
    let a = rig.map(a, |x| 1.0 + 0.1 * x);
    rig.want(Op::CumSum, &[a]);
    // Whole numbers: every bit.
    let ones = rig.given(INPUT, F32, [100_000, 1, 1, 1], &[3.0; 100_000]);
    rig.want(Op::CumSum, &[ones]);
    rig.check();
}

#[test]
fn counts_of_equals() {
    let mut rig = Rig::default();
    for (form, ne) in pairs(FORMS, SHAPES) {
        let [a, b] = [(); 2].map(|()| rig.source(form, I32, ne));
        for source in [a, b] {
            rig.map(source, |x| x.rem_euclid(3.0));
        }
        rig.want(Op::CountEqual, &[a, b]);
    }
    // Numbers that an f32 cannot tell apart.
    let large = [2_147_483_647.0, -2_147_483_648.0, 16_777_217.0];
    let a = rig.given(INPUT, I32, [3, 1, 1, 1], &large);
    let b = rig.given(INPUT, I32, [3, 1, 1, 1], &[2_147_483_646.0, -2_147_483_648.0, 16_777_216.0]);
    rig.want(Op::CountEqual, &[a, b]);
    let many = rig.given(INPUT, I32, [70_001, 3, 1, 1], &vec![1.0; 210_003]);
    rig.want(Op::CountEqual, &[many, many]);
    let none = rig.leaf(INPUT, I32, [0, 3, 1, 1]);
    rig.want(Op::CountEqual, &[none, none]);
    rig.check();
}

#[test]
fn sums_of_repeated_parts() {
    let mut rig = Rig::default();
    for form in FORMS {
        for (from, ne) in [
            ([8, 6, 4, 2], [8, 6, 4, 2]),
            ([8, 6, 4, 2], [4, 6, 4, 2]),
            ([8, 6, 4, 2], [8, 3, 4, 1]),
            ([8, 6, 4, 2], [1, 6, 2, 2]),
            ([8, 6, 4, 2], [1, 1, 1, 1]),
            ([35, 9, 10, 3], [7, 3, 5, 1]),
            ([130, 200, 1, 1], [130, 1, 1, 1]),
        ] {
            let a = rig.source(form, F32, from);
            rig.want(Op::RepeatBack { ne }, &[a]);
        }
    }
    let none = rig.input([0, 6, 1, 1]);
    rig.want(Op::RepeatBack { ne: [0, 3, 1, 1] }, &[none]);
    rig.want(Op::RepeatBack { ne: [5, 3, 1, 1] }, &[none]);
    rig.allow(1e-5, 1e-11);
    rig.check();
}

#[test]
fn sums_of_picked_rows() {
    let mut rig = Rig::default();
    for (dtype, form) in pairs(FLOATS, DENSE_ROWS) {
        for (width, picked, rows) in [(1, 1, 1), (5, 7, 3), (64, 300, 10), (33, 5, 40)] {
            let grad = rig.source(form, dtype, [width, picked, 1, 1]);
            let ids: Vec<f64> = (0..picked).map(|i| (i * i % rows) as f64).collect();
            let ids = rig.given(INPUT, I32, [picked, 1, 1, 1], &ids);
            rig.want(Op::GetRowsBack { rows }, &[grad, ids]);
        }
    }
    // More rows than fit one dimension of a grid; many picks of one row; no picks at all.
    let grad = rig.input([3, 4, 1, 1]);
    let ids = rig.given(INPUT, I32, [4, 1, 1, 1], &[70_000.0, 0.0, 65_536.0, 70_000.0]);
    rig.want(Op::GetRowsBack { rows: 70_001 }, &[grad, ids]);
    let grad = rig.input([1, 100_000, 1, 1]);
    let grad = rig.map(grad, |x| 1.0 + 0.1 * x);
    let ids = rig.given(INPUT, I32, [100_000, 1, 1, 1], &vec![1.0; 100_000]);
    rig.want(Op::GetRowsBack { rows: 2 }, &[grad, ids]);
    let (grad, ids) = (rig.input([3, 0, 1, 1]), rig.leaf(INPUT, I32, [0, 1, 1, 1]));
    rig.want(Op::GetRowsBack { rows: 2 }, &[grad, ids]);
    rig.check();
}

/// More rows than one dimension of a grid is wide.
#[test]
fn many_rows() {
    let mut rig = Rig::default();
    let x = rig.source(Form::Padded, F32, [2, 70_001, 1, 1]);
    for op in [Op::Mean, Op::CumSum, Op::RepeatBack { ne: [1, 70_001, 1, 1] }] {
        rig.want(op, &[x]);
    }
    rig.check();
}
