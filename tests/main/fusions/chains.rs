//! The rules of every elision chain, and of switching rows off.

use super::norms::{RMS_NORM, norm_graph};
use super::{ROW, X, count, fires, planned, planned_with, refuses, verdict};
use crate::devices::cpu;
use crate::rig::Rig;
use wgfuse::device::{ComputeError, DeviceError};
use wgfuse::fusion::{Decline, FusionId, FusionSet, Matcher, Mode, pack};
use wgfuse::graph::{Op, TensorId};
use wgfuse::plan::PlanOptions;

#[test]
fn inner_results_are_used_once_and_wanted_by_nobody() {
    let build = |wanted: fn([TensorId; 3]) -> TensorId| {
        let mut b = Rig::default();
        let (x, w, shift) = (b.input(X), b.weight(ROW), b.weight(ROW));
        let normed = b.rms_norm(x);
        let scaled = b.op(Op::Mul, &[normed, w]);
        let last = b.op(Op::Add, &[scaled, shift]);
        (b, [normed, scaled, last], wanted([normed, scaled, last]))
    };
    for (position, pick) in [(0, (|[n, _, _]| n) as fn([TensorId; 3]) -> TensorId), (1, |[_, s, _]| s)] {
        let (mut b, nodes, inner) = build(pick);
        let again = b.op(Op::Scale { scale: 2.0, bias: 0.0, in_place: false }, &[inner]);
        refuses("RMS_NORM+MUL+ADD", &b.finish(&[nodes[2], again]), Decline::Used(position));

        let (mut b, nodes, inner) = build(pick);
        let looked_at = b.op(Op::Reshape { ne: [256, 1, 1, 1] }, &[inner]);
        refuses("RMS_NORM+MUL+ADD", &b.finish(&[nodes[2], looked_at]), Decline::Used(position));

        let (mut b, nodes, inner) = build(pick);
        b.graph.set_output(inner).expect("a tensor");
        refuses("RMS_NORM+MUL+ADD", &b.finish(&[nodes[2]]), Decline::Output(position));
    }
}

#[test]
fn a_result_that_is_not_stored_is_read_once() {
    let mut b = Rig::default();
    let x = b.input(X);
    let normed = b.rms_norm(x);
    let squared = b.op(Op::Mul, &[normed, normed]);
    refuses("RMS_NORM+MUL", &b.finish(&[squared]), Decline::Inside(1));

    let mut b = Rig::default();
    let (x, w) = (b.input(X), b.weight(ROW));
    let normed = b.rms_norm(x);
    let scaled = b.op(Op::Mul, &[normed, w]);
    let sum = b.op(Op::Add, &[scaled, normed]);
    refuses("RMS_NORM+MUL+ADD", &b.finish(&[sum]), Decline::Inside(2));

    let mut b = Rig::default();
    let (x, y) = (b.input(X), b.input(X));
    let sum = b.op(Op::Add, &[x, y]);
    let twice = b.op(Op::Add, &[sum, sum]);
    refuses("ADD+ADD", &b.finish(&[twice]), Decline::Inside(1));
}

#[test]
fn a_chain_is_linked_and_keeps_its_shape() {
    let mut b = Rig::default();
    let (x, y, w) = (b.input(X), b.input(X), b.weight(ROW));
    let normed = b.rms_norm(x);
    let other = b.op(Op::Mul, &[y, w]);
    refuses("RMS_NORM+MUL", &b.finish(&[normed, other]), Decline::NotChained(1));

    let mut b = Rig::default();
    let (x, wide) = (b.input([64, 1, 1, 1]), b.input(X));
    let normed = b.rms_norm(x);
    let widened = b.op(Op::Mul, &[wide, normed]);
    refuses("RMS_NORM+MUL", &b.finish(&[widened]), Decline::Shape(1));

    // The multiplication reads the norm through a view.
    let mut b = Rig::default();
    let (x, w) = (b.input(X), b.weight([16, 1, 1, 1]));
    let normed = b.rms_norm(x);
    let heads = b.op(Op::Reshape { ne: [16, 16, 1, 1] }, &[normed]);
    let scaled = b.op(Op::Mul, &[heads, w]);
    refuses("RMS_NORM+MUL", &b.finish(&[scaled]), Decline::NotChained(1));
}

#[test]
fn views_between_the_nodes_do_not_matter() {
    let mut b = Rig::default();
    let (x, w) = (b.input(X), b.weight([2, 32, 1, 1]));
    let normed = b.rms_norm(x);
    let row = b.op(Op::Reshape { ne: ROW }, &[w]);
    let scaled = b.op(Op::Mul, &[normed, row]);
    let rig = b.finish(&[scaled]);
    fires("RMS_NORM+MUL", &rig);
    let packs = pack(&rig.graph, Matcher::default());
    assert_eq!((packs.len(), &packs[0]), (1, &(0..3)), "the view travels along");
}

#[test]
fn rows_can_be_switched_off() {
    let rig = norm_graph(RMS_NORM, |b| vec![b.weight(ROW), b.weight(ROW)]);
    let with = |matcher| planned_with(&rig, &PlanOptions { matcher, ..PlanOptions::default() });
    let all = Matcher::new(FusionSet::Published12);
    assert_eq!(count(&with(all), "RMS_NORM+MUL+ADD"), 1);
    let shorter = with(all.without(FusionId::NormMulAdd));
    assert_eq!(count(&shorter, "RMS_NORM+MUL"), 1);
    assert!(shorter.report.declines().any(|(_, decline, _)| decline == Decline::Disabled));
    assert_eq!(count(&with(all.without_row("RMS_NORM+MUL+ADD")), "RMS_NORM+MUL"), 1);
    assert_eq!(with(all.without(FusionId::NormMulAdd).without(FusionId::NormMul)).fusions().count(), 0);
    assert_eq!(with(Matcher::off()).fusions().count(), 0);
}

#[test]
fn a_structural_sequence_is_broken_by_empty_tensors_and_a_full_one_is_not() {
    let mut b = Rig::default();
    let (x, w, nothing) = (b.input(X), b.weight(ROW), b.input([0, 1, 1, 1]));
    let normed = b.rms_norm(x);
    let empty = b.op(Op::Sqr, &[nothing]);
    let scaled = b.op(Op::Mul, &[normed, w]);
    let rig = b.finish(&[normed, empty, scaled]);
    assert_eq!(verdict(&rig, "RMS_NORM+MUL", Mode::Structural), Err(Decline::Sequence));
    assert_eq!(verdict(&rig, "RMS_NORM+MUL", Mode::Full), Ok(()));
    assert_eq!(count(&planned(&rig), "RMS_NORM+MUL"), 1);
}

#[test]
fn groups_that_are_not_the_rows_pattern_are_refused() {
    // The second addition reads the first one twice, so one addend has no memory.
    let mut sums = Rig::default();
    let x = sums.input([4, 1, 1, 1]);
    let sum = sums.op(Op::Add, &[x, x]);
    let twice = sums.want(Op::Add, &[sum, sum]);
    // The product scales something else than the norm.
    let mut norms = Rig::default();
    let x = norms.input([4, 1, 1, 1]);
    let normed = norms.rms_norm(x);
    let product = norms.want(Op::Mul, &[x, normed]);
    // The copy takes the attention rows.
    let mut nets = Rig::default();
    let [q, k, v] = [(); 3].map(|()| nets.input([4, 1, 4, 1]));
    let [g, beta] = [(); 2].map(|()| nets.input([1, 1, 4, 1]));
    let state = nets.cache([4, 4, 1, 1]);
    let net = nets.op(Op::GatedDeltaNet { snapshots: 1 }, &[q, k, v, g, beta, state]);
    let rows = nets.view(net, [16, 1, 1, 1], 0);
    let copy = nets.want(Op::Cpy, &[rows, state]);
    for (rig, nodes) in [(sums, [sum, twice]), (norms, [normed, product]), (nets, [net, copy])] {
        let refused = rig.run_merged(&cpu(), &nodes);
        assert!(matches!(refused, Err(ComputeError::Device(DeviceError::Plan { .. }))), "{refused:?}");
    }
}
