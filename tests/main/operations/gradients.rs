//! Gradients of norms and soft-max, and the cross entropy with its gradient.

use crate::numbers::pairs;
use crate::rig::{DENSE_ROWS, Rig};
use wgfuse::graph::{DType, LeafKind, Op, TensorId};

const F32: DType = DType::F32;
const INPUT: LeafKind = LeafKind::Input;

#[test]
fn by_hand() {
    let mut rig = Rig::default();
    let x = rig.given(INPUT, F32, [2, 1, 1, 1], &[1.0, 1.0]);
    let grad = rig.given(INPUT, F32, [2, 1, 1, 1], &[3.0, 5.0]);
    rig.want(Op::RmsNormBack { eps: 3.0 }, &[grad, x]);
    let y = rig.given(INPUT, F32, [2, 1, 1, 1], &[0.25, 0.75]);
    rig.want(Op::SoftMaxBack { scale: 2.0, max_bias: 0.0 }, &[grad, y]);
    let logits = rig.given(INPUT, F32, [2, 2, 1, 1], &[0.0, 0.0, 3.0, 3.0]);
    let labels = rig.given(INPUT, F32, [2, 2, 1, 1], &[1.0, 0.0, 0.5, 0.5]);
    rig.want(Op::CrossEntropyLoss, &[logits, labels]);
    let one = rig.given(INPUT, F32, [1; 4], &[4.0]);
    rig.want(Op::CrossEntropyLossBack, &[one, logits, labels]);
    let expected: Vec<Vec<f64>> = rig.expected().into_iter().map(|(_, found)| found.all).collect();
    // The mean of squares and eps are 4, of x · grad 4: (3 - 1) / 2 and (5 - 1) / 2.
    assert_eq!(expected[0], [1.0, 2.0]);
    // Σ y · grad = 4.5: 2 · 0.25 · -1.5 and 2 · 0.75 · 0.5.
    assert_eq!(expected[1], [-0.75, 0.75]);
    assert!((expected[2][0] - 2f64.ln()).abs() < 1e-12);
    assert_eq!(expected[3], [-1.0, 1.0, 0.0, 0.0]);
    rig.check();
}

const SHAPES: [[usize; 4]; 7] =
    [[1, 3, 2, 1], [2, 5, 1, 2], [31, 4, 3, 2], [64, 5, 4, 3], [300, 3, 1, 1], [1025, 2, 1, 1], [0, 3, 1, 1]];

#[test]
fn of_norms() {
    let mut rig = Rig::default();
    for (form, ne) in pairs(DENSE_ROWS, SHAPES) {
        for eps in [0.01, 0.5] {
            let sources = [rig.source(form, F32, ne), rig.source(form, F32, ne)];
            rig.want(Op::RmsNormBack { eps }, &sources);
        }
    }
    let many = [rig.input([3, 70_001, 1, 1]), rig.input([3, 70_001, 1, 1])];
    rig.want(Op::RmsNormBack { eps: 0.1 }, &many);
    // A row of one element leaves the difference of two numbers that are almost the same.
    rig.allow(2e-5, 1e-10);
    rig.check();
}

#[test]
fn of_soft_max() {
    let mut rig = Rig::default();
    for (form, ne) in pairs(DENSE_ROWS, SHAPES) {
        let [scores, grad] = [(); 2].map(|()| rig.source(form, F32, ne));
        let y = rig.op(Op::SoftMax { scale: 3.0, max_bias: 0.0 }, &[scores]);
        rig.want(Op::SoftMaxBack { scale: 0.7, max_bias: 8.0 }, &[grad, y]);
        // What is no distribution.
        rig.want(Op::SoftMaxBack { scale: -1.5, max_bias: 0.0 }, &[grad, scores]);
    }
    let many = [rig.input([3, 70_001, 1, 1]), rig.input([3, 70_001, 1, 1])];
    rig.want(Op::SoftMaxBack { scale: 1.0, max_bias: 0.0 }, &many);
    rig.allow(2e-5, 1e-10);
    rig.check();
}

/// Labels that are distributions, some of them with all on one class.
fn labels(rig: &mut Rig, labels: TensorId) -> TensorId {
    let root = rig.graph.root(labels);
    let width = rig.graph.tensor(root).ne()[0].max(1);
    let values = rig.contents(root);
    let rows = values.chunks(width).enumerate().flat_map(|(row, values)| {
        let sum: f64 = values.iter().map(|x| x.abs()).sum();
        let one = row % 3 == 0;
        let value = move |(at, x): (usize, &f64)| match one {
            true => f64::from(u8::from(at == row % width)),
            false => x.abs() / sum,
        };
        values.iter().enumerate().map(value).collect::<Vec<_>>()
    });
    let rows = rows.collect();
    rig.give(root, rows);
    labels
}

#[test]
fn of_cross_entropy() {
    let mut rig = Rig::default();
    let grad = rig.given(INPUT, F32, [1; 4], &[-1.75]);
    for (form, ne) in pairs(DENSE_ROWS, SHAPES) {
        let [logits, targets] = [(); 2].map(|()| rig.source(form, F32, ne));
        let logits = rig.map(logits, |x| 20.0 * x);
        let logits = if form == crate::rig::Form::Dense { logits } else { rig.source(form, F32, ne) };
        let targets = labels(&mut rig, targets);
        if ne[0] > 0 {
            rig.want(Op::CrossEntropyLoss, &[logits, targets]);
        }
        rig.want(Op::CrossEntropyLossBack, &[grad, logits, targets]);
    }
    // Some of them with more rows than one dispatch takes, whether threads share them or not.
    for ne in [[3, 70_001, 1, 1], [50, 3000, 1, 1], [2000, 3000, 1, 1], [17_000, 160, 1, 1]] {
        let (logits, targets) = (rig.input(ne), rig.input(ne));
        let targets = labels(&mut rig, targets);
        rig.want(Op::CrossEntropyLoss, &[logits, targets]);
        rig.want(Op::CrossEntropyLossBack, &[grad, logits, targets]);
    }
    // Large logits, and one of -∞ without a label.
    let logits = rig.given(INPUT, F32, [4, 1, 1, 1], &[1000.0, 999.0, f64::NEG_INFINITY, 998.0]);
    let targets = rig.given(INPUT, F32, [4, 1, 1, 1], &[0.5, 0.25, 0.0, 0.25]);
    rig.want(Op::CrossEntropyLoss, &[logits, targets]);
    rig.want(Op::CrossEntropyLossBack, &[grad, logits, targets]);
    // Where a probability is its label, almost nothing is left.
    rig.allow(2e-5, 1e-9);
    rig.check();
}
