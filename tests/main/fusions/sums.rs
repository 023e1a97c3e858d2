//! Running sums.

use super::{ROW, X, compare_on_all, count, fires, fires_times, planned, refuses, refuses_in, verdict};
use crate::devices::devices;
use crate::numbers::pairs;
use crate::rig::{FLOATS, Form, KINDS, Rig};
use std::sync::Arc;
use wgfuse::device::Device;
use wgfuse::fusion::{Decline, Fusion, Mode};
use wgfuse::graph::{DType, LeafKind, Op, TensorId};
use wgfuse::plan::PlanOptions;

/// `x + addends…`.
fn sum_graph(addends: impl FnOnce(&mut Rig) -> Vec<TensorId>) -> Rig {
    let mut b = Rig::default();
    let mut sum = b.input(X);
    for addend in addends(&mut b) {
        sum = b.op(Op::Add, &[sum, addend]);
    }
    b.finish(&[sum])
}

fn adds(length: usize) -> String {
    vec!["ADD"; length].join("+")
}

pub fn near_miss(row: &Fusion, check: &str) -> Option<Rig> {
    let length = row.ops.len();
    let weights = |b: &mut Rig, count: usize| (0..count).map(|_| b.weight(X)).collect::<Vec<_>>();
    match check {
        "reads_previous_first" => {
            let mut b = Rig::default();
            let mut sum = b.input(X);
            for addend in weights(&mut b, length - 1) {
                sum = b.op(Op::Add, &[sum, addend]);
            }
            let first = b.input(X);
            let last = b.op(Op::Add, &[first, sum]);
            Some(b.finish(&[last]))
        }
        "addend_layouts" => Some(sum_graph(|b| [weights(b, length - 1), vec![b.weight(ROW)]].concat())),
        "addend_classes" => Some(sum_graph(|b| [weights(b, length - 1), vec![b.cache(X)]].concat())),
        _ => None,
    }
}

#[test]
fn sums_are_right() {
    let ne = [6, 4, 3, 2];
    for length in 2..=7 {
        // Addends in one buffer share a binding.
        for mut rig in [Rig::default(), Rig::in_one_buffer()] {
            let mut times = 0;
            for (at, (of, form)) in [
                (ne, Form::Dense),
                ([6, 1, 1, 1], Form::Dense),
                ([1, 4, 1, 1], Form::Dense),
                ([3, 2, 3, 1], Form::Dense),
                (ne, Form::Padded),
                (ne, Form::Turned),
                (ne, Form::Transposed),
                ([1, 4, 1, 2], Form::Padded),
            ]
            .into_iter()
            .enumerate()
            {
                for (dtype, kind) in pairs(FLOATS, KINDS) {
                    let start = if at % 2 == 0 { DType::F32 } else { dtype };
                    let mut sum = rig.source([Form::Dense, Form::Padded][at % 2], start, ne);
                    // The first addend is not the one that lies first in memory.
                    let addends: Vec<TensorId> = (0..length).map(|_| rig.source_of(kind, form, dtype, of)).collect();
                    addends.iter().for_each(|&addend| rig.graph.expand(addend).unwrap());
                    for &addend in addends.iter().rev() {
                        sum = rig.op(Op::Add, &[sum, addend]);
                    }
                    rig.output(sum);
                    times += 1;
                }
            }
            fires_times(&adds(length), times, &rig);
        }
    }
}

#[test]
fn a_sum_in_one_buffer_needs_three_bindings() {
    let mut rig = Rig::in_one_buffer();
    let mut sum = rig.input([8, 2, 1, 1]);
    for _ in 0..7 {
        let addend = rig.weight([8, 1, 1, 1]);
        sum = rig.op(Op::Add, &[sum, addend]);
    }
    rig.output(sum);
    for gpu in devices() {
        let device: Arc<dyn Device> = gpu.clone();
        let plan = rig.load(&device, PlanOptions::default()).unwrap().plan();
        let dispatches = gpu.encode(&rig.graph, &plan).unwrap();
        assert_eq!(dispatches.len(), 1);
        assert_eq!(dispatches[0].bindings.len(), 3, "{}", dispatches[0]);
    }
}

#[test]
fn sums_fire() {
    for length in 2..=7 {
        fires(&adds(length), &sum_graph(|b| (0..length).map(|_| b.weight(ROW)).collect()));
        fires(&adds(length), &sum_graph(|b| (0..length).map(|_| b.input(X)).collect()));
        fires(&adds(length), &sum_graph(|b| (0..length).map(|_| b.cache(X)).collect()));
    }
}

#[test]
fn sums_are_cut_in_sevens() {
    let rig = sum_graph(|b| (0..64).map(|_| b.input(X)).collect());
    let plan = planned(&rig);
    assert_eq!((count(&plan, &adds(7)), plan.groups.len()), (9, 10));
    assert!(plan.groups.last().is_some_and(|group| group.fusion.is_none()), "and one stays alone");
    compare_on_all("64 additions", &rig, |what, loaded, _, _| {
        let plan = loaded.plan();
        assert_eq!((count(&plan, &adds(7)), plan.groups.len()), (9, 10), "{what}");
    });
    let rig = sum_graph(|b| (0..16).map(|_| b.input(X)).collect());
    let plan = planned(&rig);
    assert_eq!((count(&plan, &adds(7)), count(&plan, &adds(2))), (2, 1));
}

#[test]
fn addends_have_one_layout() {
    let differs = Decline::Check("addend_layouts");
    refuses("ADD+ADD", &sum_graph(|b| vec![b.weight(ROW), b.weight(X)]), differs);
    let half = |b: &mut Rig| b.leaf(LeafKind::Weight, DType::F16, X);
    refuses("ADD+ADD", &sum_graph(|b| vec![b.weight(X), half(b)]), differs);
    let transposed = |b: &mut Rig| {
        let w = b.weight([4, 64, 1, 1]);
        b.op(Op::Transpose, &[w])
    };
    refuses("ADD+ADD", &sum_graph(|b| vec![b.weight(X), transposed(b)]), differs);
    // Only the stride of a dimension with one element differs.
    let padded = |b: &mut Rig| {
        let w = b.weight([128, 1, 1, 1]);
        b.op(Op::View { ne: ROW, nb: [4, 512, 512, 512], offset: 0 }, &[w])
    };
    refuses("ADD+ADD", &sum_graph(|b| vec![b.weight(ROW), padded(b)]), differs);
    fires("ADD+ADD", &sum_graph(|b| vec![padded(b), padded(b)]));
}

#[test]
fn addends_are_of_one_class_when_it_is_known() {
    let kinds = [LeafKind::Weight, LeafKind::Cache, LeafKind::Input];
    for (first, second) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)].map(|(a, b)| (kinds[a], kinds[b])) {
        let rig = sum_graph(|b| vec![b.leaf(first, DType::F32, X), b.leaf(second, DType::F32, X)]);
        assert_eq!(verdict(&rig, "ADD+ADD", Mode::Structural), Ok(()), "{first:?} {second:?}");
        refuses_in(&[Mode::Full], "ADD+ADD", &rig, Decline::Check("addend_classes"));
    }
    // The class is the root's, seen through views; inputs and results are of one class.
    let mut b = Rig::default();
    let (x, w, cache, input) = (b.input(X), b.weight([256, 1, 1, 1]), b.cache([512, 1, 1, 1]), b.input(X));
    let computed = b.op(Op::Sqr, &[input]);
    let through = [b.view(w, X, 0), b.view(cache, X, 1024)];
    let sums = [[through[0], through[1]], [input, computed]].map(|[one, two]| {
        let sum = b.op(Op::Add, &[x, one]);
        b.op(Op::Add, &[sum, two])
    });
    let mut mixed = b.clone();
    mixed.graph.expand(sums[0]).expect("a tensor");
    refuses_in(&[Mode::Full], "ADD+ADD", &mixed.finish(&[sums[0]]), Decline::Check("addend_classes"));
    fires("ADD+ADD", &b.finish(&[computed, sums[1]]));
}
