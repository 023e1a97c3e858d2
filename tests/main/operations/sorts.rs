//! Sorting and picking the largest: rows of any length, equal values, and what is no number.

use crate::devices::gpus;
use crate::rig::{DENSE_ROWS, Form, Rig};
use wgfuse::graph::{DType, LeafKind, Op, SortOrder, TensorId};

const F32: DType = DType::F32;
const INPUT: LeafKind = LeafKind::Input;
const ORDERS: [SortOrder; 2] = [SortOrder::Ascending, SortOrder::Descending];

/// A row of each kind of trouble.
const ROW: [f64; 9] = [2.0, f64::NAN, -1.0, 2.0, f64::INFINITY, 0.0, -0.0, f64::NEG_INFINITY, f64::NAN];

/// Many equal values, both zeros, infinities, and NaNs of both signs.
fn rows(rig: &mut Rig, form: Form, ne: [usize; 4]) -> TensorId {
    let a = rig.source(form, F32, ne);
    let values = rig.contents(rig.graph.root(a)).into_iter().enumerate().map(|(i, x)| match i % 197 {
        150 => f64::NAN,
        51 => -f64::NAN,
        52 => f64::INFINITY,
        53 => f64::NEG_INFINITY,
        54 => -0.0,
        55 => 0.0,
        _ => (x * 500.0).round(),
    });
    let values = values.collect();
    rig.give(a, values);
    a
}

#[test]
fn the_largest_by_hand() {
    let mut rig = Rig::default();
    let a = rig.given(INPUT, F32, [9, 1, 1, 1], &ROW);
    rig.want(Op::Argmax, &[a]);
    rig.want(Op::TopK { k: 4 }, &[a]);
    let b = rig.given(INPUT, F32, [3, 3, 1, 1], &[1.0, 5.0, 5.0, -2.0, -3.0, -2.0, -0.0, 0.0, -1.0]);
    rig.want(Op::Argmax, &[b]);
    rig.want(Op::TopK { k: 2 }, &[b]);
    let low = f64::NEG_INFINITY;
    let c = rig.given(INPUT, F32, [2, 2, 1, 1], &[low, low, low, f64::NAN]);
    rig.want(Op::Argmax, &[c]);
    let expected: Vec<Vec<f64>> = rig.expected().into_iter().map(|(_, found)| found.all).collect();
    let by_hand: [&[f64]; 5] =
        [&[1.0], &[1.0, 8.0, 4.0, 0.0], &[1.0, 0.0, 0.0], &[1.0, 2.0, 0.0, 2.0, 0.0, 1.0], &[0.0, 1.0]];
    assert_eq!(expected, by_hand);
    rig.check();
}

#[test]
fn the_largest_of_rows() {
    let mut rig = Rig::default();
    for form in DENSE_ROWS {
        for ne in [[1, 1, 1, 1], [1, 5, 1, 1], [32, 513, 1, 1], [100, 10, 1, 1], [2000, 3, 1, 1], [5438, 3, 1, 1]] {
            let a = rows(&mut rig, form, ne);
            rig.want(Op::Argmax, &[a]);
            let b = rig.source(form, F32, ne);
            rig.want(Op::Argmax, &[b]);
        }
    }
    let many = rig.input([3, 70_001, 1, 1]);
    rig.want(Op::Argmax, &[many]);
    rig.want(Op::TopK { k: 2 }, &[many]);
    let none = rig.input([0, 0, 1, 1]);
    rig.want(Op::Argmax, &[none]);
    rig.check();
}

#[test]
fn the_first_of_a_sort() {
    let mut rig = Rig::default();
    for form in DENSE_ROWS {
        for (length, k) in [(1, 1), (2, 1), (16, 7), (60, 60), (1000, 15), (1024, 1024), (2048, 100)] {
            let a = rows(&mut rig, form, [length, 2, 3, 1]);
            rig.want(Op::TopK { k }, &[a]);
        }
    }
    let a = rig.input([9, 2, 1, 1]);
    rig.want(Op::TopK { k: 0 }, &[a]);
    rig.check();
}

/// Longer rows than a workgroup has memory for: the elements are picked first.
#[test]
fn the_first_of_long_rows() {
    let mut rig = Rig::default();
    for (at, (ne, k)) in [
        ([4097, 2, 1, 1], 1),
        ([9000, 2, 3, 1], 40),
        ([9000, 1, 1, 2], 9000),
        ([70_000, 2, 1, 1], 5000),
        ([200_000, 1, 1, 1], 40),
        ([20_001, 3, 1, 1], 12_000),
    ]
    .into_iter()
    .enumerate()
    {
        let a = rows(&mut rig, DENSE_ROWS[at % 4], ne);
        rig.want(Op::TopK { k }, &[a]);
    }
    // More equals than are wanted: the first of them.
    let same = rig.given(INPUT, F32, [10_000, 1, 1, 1], &[7.0; 10_000]);
    rig.want(Op::TopK { k: 300 }, &[same]);
    assert!(rig.expected()[6].1.all.iter().enumerate().all(|(at, &index)| index == at as f64));
    rig.check();
}

#[test]
fn rows_of_any_length_are_sorted() {
    let mut rig = Rig::default();
    for (at, ne) in [
        [1, 3, 1, 1],
        [1000, 3, 1, 1],
        [4096, 2, 1, 1],
        [4097, 2, 1, 2],
        [8192, 3, 1, 1],
        [8193, 1, 1, 1],
        [70_000, 2, 1, 1],
        [200_000, 1, 1, 1],
    ]
    .into_iter()
    .enumerate()
    {
        let a = rows(&mut rig, DENSE_ROWS[at % 4], ne);
        rig.want(Op::Argsort { order: ORDERS[at % 2] }, &[a]);
        // Already in order, and in the opposite one.
        let ordered = rig.input(ne);
        let values = (0..rig.contents(ordered).len()).map(|i| i as f64).collect();
        rig.give(ordered, values);
        rig.want(Op::Argsort { order: ORDERS[at / 2 % 2] }, &[ordered]);
    }
    rig.check();
}

/// A long sort works in its result: of two in one run, neither disturbs the other, nor what lies around them.
#[test]
fn long_sorts_beside_each_other() {
    let mut rig = Rig::default();
    let a = rig.input([9001, 2, 1, 1]);
    let first = rig.op(Op::Argsort { order: SortOrder::Ascending }, &[a]);
    let b = rig.op(Op::Sqr, &[a]);
    let second = rig.op(Op::Argsort { order: SortOrder::Descending }, &[b]);
    rig.output(b);
    rig.output(first);
    rig.output(second);
    rig.check_on(&gpus());
}
