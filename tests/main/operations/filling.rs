//! Copies with parts replaced, constants and numbers made from positions.

use crate::devices::{all, unfused};
use crate::numbers::pairs;
use crate::rig::{FLOATS, FORMS, Form, Rig, called};
use wgfuse::device::ComputeError;
use wgfuse::graph::{DType, LeafKind, Op, TensorId, Triangle, Window};

const F32: DType = DType::F32;
const CACHE: LeafKind = LeafKind::Cache;
const INPUT: LeafKind = LeafKind::Input;

/// What an operation does to a whole and a part: new memory, or in the whole's.
type Change = fn(Window, bool) -> Op;

const CHANGES: [(Change, DType); 3] = [
    (|window, in_place| Op::Acc { window, in_place }, DType::F32),
    (|window, in_place| Op::Set { window, in_place }, DType::F32),
    (|window, in_place| Op::Set { window, in_place }, DType::I32),
];

/// Wholes, the parts that lie in them, and how.
const WINDOWS: [([usize; 4], [usize; 4], Window); 6] = [
    // A block of rows and columns, every other plane, all of it, one element, a transposed order of rows, and none.
    ([8, 6, 4, 2], [5, 3, 2, 2], Window { nb: [32, 192, 768], offset: 72 }),
    ([70, 3, 4, 1], [70, 3, 2, 1], Window { nb: [280, 1680, 3360], offset: 840 }),
    ([6, 4, 3, 2], [6, 4, 3, 2], Window { nb: [24, 96, 288], offset: 0 }),
    ([1, 1, 1, 1], [1, 1, 1, 1], Window { nb: [4, 4, 4], offset: 0 }),
    ([6, 4, 1, 1], [2, 3, 4, 1], Window { nb: [8, 24, 96], offset: 0 }),
    ([6, 4, 1, 1], [0, 3, 2, 1], Window { nb: [8, 24, 96], offset: 96 }),
];

#[test]
fn windows_are_added_to_and_replaced() {
    let mut rig = Rig::default();
    for ((change, dtype), form) in pairs(CHANGES, FORMS) {
        for (ne, part, window) in WINDOWS {
            let a = rig.leaf(INPUT, dtype, ne);
            let b = rig.source(form, dtype, part);
            rig.want(change(window, false), &[a, b]);
            let cache = rig.leaf(CACHE, dtype, ne);
            let changed = rig.op(change(window, true), &[cache, b]);
            rig.written(changed, cache);
        }
    }
    rig.check();
}

#[test]
fn a_window_of_a_view_leaves_the_rest_of_the_cache() {
    let mut rig = Rig::default();
    let numbers: Vec<f64> = (0..12).map(f64::from).collect();
    let window = Window { nb: [8, 8, 8], offset: 4 };
    for (change, expected) in [
        (CHANGES[0].0, [0.0, 1.0, 2.0, 3.0, 4.0, 105.0, 6.0, 207.0, 8.0, 9.0, 10.0, 11.0]),
        (CHANGES[1].0, [0.0, 1.0, 2.0, 3.0, 4.0, 100.0, 6.0, 200.0, 8.0, 9.0, 10.0, 11.0]),
    ] {
        let cache = rig.given(CACHE, F32, [12, 1, 1, 1], &numbers);
        let part = rig.view(cache, [6, 1, 1, 1], 16);
        let b = rig.given(INPUT, F32, [1, 2, 1, 1], &[100.0, 200.0]);
        let changed = rig.op(change(window, true), &[part, b]);
        rig.written(changed, cache);
        assert_eq!(rig.expected().last().unwrap().1.all, expected);
    }
    rig.check();
}

/// The part that is added would change while it is read.
#[test]
fn a_part_of_what_is_overwritten_is_refused() {
    for change in [CHANGES[0].0, CHANGES[1].0] {
        let mut rig = Rig::default();
        let cache = rig.cache([8, 4, 1, 1]);
        let part = rig.view(cache, [8, 2, 1, 1], 0);
        let changed = rig.op(change(Window { nb: [32, 64, 64], offset: 64 }, true), &[cache, part]);
        rig.written(changed, cache);
        for device in all() {
            let refused = rig.run(&device, unfused()).err();
            assert!(matches!(refused, Some(ComputeError::Plan(_))), "{}: {refused:?}", called(&device));
        }
    }
}

#[test]
fn one_number_everywhere() {
    let mut rig = Rig::default();
    for (dtype, form) in pairs(FLOATS, FORMS) {
        for (at, ne) in [[5, 4, 3, 2], [300, 1, 2, 1], [1, 1, 1, 1], [4, 0, 1, 1]].into_iter().enumerate() {
            let value = [-2.5, f32::NEG_INFINITY, 0.0, 1.0][at];
            let a = rig.source(form, dtype, ne);
            rig.want(Op::Fill { value, in_place: false }, &[a]);
            let part = rig.source_of(CACHE, form, dtype, ne);
            let filled = rig.op(Op::Fill { value: 0.75, in_place: true }, &[part]);
            rig.written(filled, rig.graph.root(part));
        }
    }
    rig.check();
}

#[test]
fn steps_without_sources() {
    let mut rig = Rig::default();
    for (start, stop, step) in [
        (0.0, 4.0, 1.0),
        (256.0, 515.0, 1.0),
        (-1.0, 2.0, 0.75),
        (5.0, 5.5, 3.0),
        (-1e6, 1e6, 12345.5),
        (0.0, 1.0, 1.0 / 4096.0),
    ] {
        rig.want(Op::Arange { start, stop, step }, &[]);
    }
    let steps = rig.op(Op::Arange { start: 1.0, stop: 7.0, step: 1.0 }, &[]);
    let (a, doubled) = (rig.input([6, 2, 1, 1]), rig.op(Op::Sqr, &[steps]));
    rig.want(Op::Add, &[a, doubled]);
    // Something computed earlier in the place that the steps take later.
    let twice = rig.op(Op::Arange { start: 1.0, stop: 7.0, step: 1.0 }, &[]);
    rig.want(Op::Mul, &[doubled, twice]);
    rig.check();
    let mut rig = Rig::default();
    rig.want(Op::Arange { start: 2.0, stop: 4.0, step: 0.75 }, &[]);
    for device in all() {
        assert_eq!(rig.run(&device, unfused()).unwrap()[0].all, [2.0, 2.75, 3.5], "{}", called(&device));
    }
}

#[test]
fn times_become_waves() {
    let mut rig = Rig::default();
    let times = [0.0, 1.0, 12.5, 0.25, 500.0, 999.0];
    for (dim, max_period) in [(320, 10_000), (7, 100), (2, 10_000), (1, 1000), (0, 1000), (64, 1)] {
        let given = rig.given(INPUT, F32, [6, 1, 1, 1], &times);
        rig.want(Op::TimestepEmbedding { dim, max_period }, &[given]);
        let turned = rig.source(Form::Transposed, F32, [5, 1, 1, 1]);
        rig.want(Op::TimestepEmbedding { dim, max_period }, &[turned]);
        let none = rig.input([0, 1, 1, 1]);
        rig.want(Op::TimestepEmbedding { dim, max_period }, &[none]);
    }
    rig.check();
}

#[test]
fn parts_of_matrices() {
    let mut rig = Rig::default();
    for form in FORMS {
        for n in [1, 5, 70, 0] {
            let a = rig.source(form, F32, [n, n, 3, 2]);
            for part in Triangle::ALL {
                rig.want(Op::Tri { part }, &[a]);
            }
        }
        for ne in [[5, 1, 3, 2], [70, 1, 1, 1], [1, 1, 1, 1], [0, 1, 2, 1]] {
            let rows = rig.source(form, F32, ne);
            rig.want(Op::Diag, &[rows]);
        }
        for (ne, n_past) in [([6, 4, 3, 2], 0), ([6, 4, 3, 2], 2), ([70, 3, 1, 1], 66), ([4, 9, 2, 1], 1 << 30)] {
            let a = rig.source(form, F32, ne);
            rig.want(Op::DiagMaskInf { n_past, in_place: false }, &[a]);
            rig.want(Op::DiagMaskZero { n_past, in_place: false }, &[a]);
            let mut masked = |op: Op| {
                let part: TensorId = rig.source_of(CACHE, form, F32, ne);
                let node = rig.op(op, &[part]);
                rig.written(node, rig.graph.root(part));
            };
            masked(Op::DiagMaskInf { n_past, in_place: true });
            masked(Op::DiagMaskZero { n_past, in_place: true });
        }
    }
    rig.check();
}

#[test]
fn parts_of_a_small_matrix() {
    let mut rig = Rig::default();
    let a = rig.given(INPUT, F32, [3, 3, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, f64::NAN]);
    for part in Triangle::ALL {
        rig.want(Op::Tri { part }, &[a]);
    }
    rig.want(Op::DiagMaskZero { n_past: 1, in_place: false }, &[a]);
    let upper = [[1.0, 2.0, 3.0, 0.0, 5.0, 6.0, 0.0, 0.0, f64::NAN], [0.0, 2.0, 3.0, 0.0, 0.0, 6.0, 0.0, 0.0, 0.0]];
    let lower = [[1.0, 0.0, 0.0, 4.0, 5.0, 0.0, 7.0, 8.0, f64::NAN], [0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 7.0, 8.0, 0.0]];
    let masked = [1.0, 2.0, 0.0, 4.0, 5.0, 6.0, 7.0, 8.0, f64::NAN];
    for ((_, found), expected) in rig.expected().iter().zip([upper[0], upper[1], lower[0], lower[1], masked]) {
        let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
        assert!(found.all.iter().zip(&expected).all(same), "{:?} instead of {expected:?}", found.all);
    }
    rig.check();
}
