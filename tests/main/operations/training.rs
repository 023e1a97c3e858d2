//! The steps of optimizers: what they compute, what they overwrite, and what a plan knows of it.

use crate::devices::{all, unfused};
use crate::invariants;
use crate::rig::{FORMS, Form, Rig, called};
use crate::support::{LIMITS, leaves};
use wgfuse::graph::{DType, GraphError, LeafKind, Op, OpKind, TensorId};
use wgfuse::plan::{PlanError, PlanOptions, plan};

const F32: DType = DType::F32;
const CACHE: LeafKind = LeafKind::Cache;
const INPUT: LeafKind = LeafKind::Input;
const ADAMW: [f64; 7] = [0.01, 0.9, 0.999, 1e-8, 0.1, 10.0, 1000.0];
const SGD: [f64; 2] = [0.01, 0.1];

fn parameters(rig: &mut Rig, values: &[f64]) -> TensorId {
    rig.given(INPUT, F32, [values.len(), 1, 1, 1], values)
}

/// A second moment is never negative.
fn moments(rig: &mut Rig, kind: LeafKind, form: Form, ne: [usize; 4]) -> [TensorId; 2] {
    let [m, v] = [(); 2].map(|()| rig.source_of(kind, form, F32, ne));
    [m, rig.map(v, |x| x * x)]
}

#[test]
fn by_hand() {
    let mut rig = Rig::default();
    let a = rig.given(CACHE, F32, [2, 1, 1, 1], &[1.0, -2.0]);
    let grad = rig.given(INPUT, F32, [2, 1, 1, 1], &[2.0, 0.0]);
    let m = rig.given(CACHE, F32, [2, 1, 1, 1], &[0.0, 4.0]);
    let v = rig.given(CACHE, F32, [2, 1, 1, 1], &[0.0, 1.0]);
    let p = parameters(&mut rig, &[0.5, 0.5, 0.75, 1.0, 0.5, 2.0, 4.0]);
    let step = rig.op(Op::OptStepAdamW, &[a, grad, m, v, p]);
    for cache in [a, m, v] {
        rig.written(step, cache);
    }
    let b = rig.given(CACHE, F32, [2, 1, 1, 1], &[1.0, -2.0]);
    let p = parameters(&mut rig, &[0.5, 0.5]);
    let step = rig.op(Op::OptStepSgd, &[b, grad, p]);
    rig.written(step, b);
    let expected: Vec<Vec<f64>> = rig.expected().into_iter().map(|(_, found)| found.all).collect();
    // m = [1, 2], v = [1, 0.75]; steps of 2 / (√4 + 1) and 4 / (√3 + 1); weights keep 3/4.
    assert_eq!(expected[1], [1.0, 2.0]);
    assert_eq!(expected[2], [1.0, 0.75]);
    let steps = [0.75 - 0.5 * 2.0 / 3.0, -1.5 - 0.5 * 4.0 / (3f64.sqrt() + 1.0)];
    assert!(expected[0].iter().zip(steps).all(|(found, by_hand)| (found - by_hand).abs() < 1e-12));
    assert_eq!(expected[3], [0.75 - 1.0, -1.5]);
    rig.check();
}

#[test]
fn steps_over_shapes_and_forms() {
    let mut rig = Rig::default();
    for (at, form) in FORMS.into_iter().enumerate() {
        for ne in [[1, 1, 1, 1], [10, 5, 4, 3], [300, 2, 1, 1], [2, 70_001, 1, 1], [0, 3, 1, 1]] {
            let a = rig.source_of(CACHE, form, F32, ne);
            let grad = rig.source(FORMS[(at + 1) % 5], F32, ne);
            let [m, v] = moments(&mut rig, CACHE, FORMS[(at + 2) % 5], ne);
            let p = parameters(&mut rig, &ADAMW);
            let step = rig.want(Op::OptStepAdamW, &[a, grad, m, v, p]);
            for cache in [a, m, v] {
                rig.written(step, rig.graph.root(cache));
            }
            let b = rig.source_of(CACHE, form, F32, ne);
            let p = parameters(&mut rig, &SGD);
            let step = rig.want(Op::OptStepSgd, &[b, grad, p]);
            rig.written(step, rig.graph.root(b));
        }
    }
    rig.check();
}

/// Two steps one after another, and readers of weights and moments before, between and after them.
fn steps(rig: &mut Rig, kind: LeafKind) -> Vec<TensorId> {
    let ne = [40, 3, 1, 1];
    let a = rig.leaf(kind, F32, ne);
    let [m, v] = moments(rig, kind, Form::Dense, ne);
    let p = parameters(rig, &ADAMW);
    let mut wanted = Vec::new();
    for _ in 0..2 {
        let before = [a, m, v].map(|source| rig.op(Op::Sqr, &[source]));
        before.iter().for_each(|&id| rig.output(id));
        let grad = rig.op(Op::Sin, &[a]);
        let step = rig.want(Op::OptStepAdamW, &[a, grad, m, v, p]);
        wanted.extend(before);
        wanted.push(step);
        let p = parameters(rig, &SGD);
        let grad = rig.op(Op::Sqr, &[v]);
        wanted.push(rig.want(Op::OptStepSgd, &[a, grad, p]));
    }
    for source in [m, v] {
        let read = rig.op(Op::Scale { scale: 2.0, bias: 0.0, in_place: false }, &[source]);
        rig.output(read);
        wanted.push(read);
    }
    wanted
}

#[test]
fn readers_of_moments_keep_their_order() {
    for kind in [CACHE, INPUT] {
        let mut rig = Rig::default();
        steps(&mut rig, kind);
        let expected = rig.expected();
        for device in all() {
            for options in [unfused(), PlanOptions::default()] {
                let found = rig.run(&device, options).unwrap_or_else(|error| panic!("{}: {error}", called(&device)));
                rig.compare(&called(&device), &found, &expected);
            }
        }
        let graph = rig.graph;
        let plan = plan(&graph, &leaves(&graph), &LIMITS, &PlanOptions::default()).expect("a plan");
        invariants::check(&graph, &plan, &LIMITS);
        // Of two groups in one stage neither writes what the other touches: steps and their readers are apart.
        let is_step = |at: &usize| graph.tensor(plan.groups[*at].nodes[0]).kind() == OpKind::OptStepAdamW;
        for stage in &plan.stages {
            assert!(stage.clone().filter(is_step).count() <= 1, "{stage:?}");
        }
    }
}

#[test]
fn weights_cannot_be_trained() {
    let ne = [8, 2, 1, 1];
    for bad in [0, 2, 3] {
        let mut rig = Rig::default();
        let kind = |slot| if slot == bad { LeafKind::Weight } else { CACHE };
        let sources = [0, 1, 2, 3].map(|slot| rig.leaf(kind(slot), F32, ne));
        let p = parameters(&mut rig, &ADAMW);
        let [a, grad, m, v] = sources;
        let error = rig.graph.opt_step_adamw(a, grad, [m, v], p).expect_err("a weight");
        assert!(matches!(error, GraphError::Constant { op: OpKind::OptStepAdamW, .. }), "{error}");
    }
    let mut rig = Rig::default();
    let (a, grad) = (rig.weight(ne), rig.input(ne));
    let p = parameters(&mut rig, &SGD);
    let error = rig.graph.opt_step_sgd(a, grad, p).expect_err("a weight");
    assert!(matches!(error, GraphError::Constant { op: OpKind::OptStepSgd, .. }), "{error}");
}

/// What is written must be nothing else that the step reads or writes.
#[test]
fn sources_that_overlap_are_refused() {
    let ne = [7, 1, 1, 1];
    // Sources by their number: a, grad, m, v, parameters.
    for same in [[0, 1, 2, 2, 4], [0, 1, 0, 3, 4], [0, 1, 2, 1, 4], [0, 1, 2, 3, 2], [0, 1, 2, 3, 0]] {
        let mut rig = Rig::default();
        let all = [(); 5].map(|()| rig.leaf(CACHE, F32, ne));
        let step = rig.op(Op::OptStepAdamW, &same.map(|at| all[at]));
        let graph = rig.done(&[step]);
        let error = plan(&graph, &leaves(&graph), &LIMITS, &PlanOptions::default()).map(|_| ()).expect_err("overlap");
        assert!(matches!(error, PlanError::Overlap { .. }), "{same:?}: {error}");
    }
    let mut rig = Rig::default();
    let a = rig.cache([2, 1, 1, 1]);
    let grad = rig.cache([2, 1, 1, 1]);
    let step = rig.op(Op::OptStepSgd, &[a, grad, a]);
    let graph = rig.done(&[step]);
    let error = plan(&graph, &leaves(&graph), &LIMITS, &PlanOptions::default()).map(|_| ()).expect_err("overlap");
    assert!(matches!(error, PlanError::Overlap { .. }), "{error}");
    // Parts of one cache may take turns, as long as they are apart.
    let mut rig = Rig::default();
    let cache = rig.cache([28, 1, 1, 1]);
    let parts = [0, 1, 2, 3].map(|at| rig.view(cache, ne, at * 28));
    let p = parameters(&mut rig, &ADAMW);
    let [a, grad, m, v] = parts;
    let v_values = rig.contents(cache).into_iter().map(f64::abs).collect();
    rig.give(cache, v_values);
    let step = rig.op(Op::OptStepAdamW, &[a, grad, m, v, p]);
    rig.written(step, cache);
    rig.check();
}

#[test]
fn moments_may_not_lie_where_another_leaf_does() {
    let mut rig = Rig::default();
    let ne = [8, 1, 1, 1];
    let all = [(); 4].map(|()| rig.leaf(CACHE, F32, ne));
    let p = parameters(&mut rig, &ADAMW);
    let step = rig.op(Op::OptStepAdamW, &[all[0], all[1], all[2], all[3], p]);
    let other = rig.cache(ne);
    let read = rig.op(Op::Sqr, &[other]);
    let graph = rig.done(&[step, read]);
    let mut places = leaves(&graph);
    places.insert(other, places[&all[3]]);
    let error = plan(&graph, &places, &LIMITS, &PlanOptions::default()).map(|_| ()).expect_err("shared");
    assert!(matches!(error, PlanError::SharedLeaves { .. }), "{error}");
}
