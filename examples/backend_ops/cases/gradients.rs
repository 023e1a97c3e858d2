//! Gradients, losses and the steps of optimizers.

use super::Cases;
use crate::builder::{Fill, UNIT};
use wgfuse::graph::{DType, LeafKind, Op, OpKind};

const F32: DType = DType::F32;

pub fn add(cases: &mut Cases) {
    for (width, have, take) in [(7, 5, 3), (64, 9, 40), (300, 1, 1), (33, 1000, 2)] {
        cases.op(OpKind::GetRowsBack, F32, format!("width={width},rows={have},taken={take}"), move |b| {
            let grad = b.leaf(F32, [width, take, 1, 1], &UNIT)?;
            let ids = b.leaf(DType::I32, [take, 1, 1, 1], &Fill::Whole(0, have as i64))?;
            b.want(Op::GetRowsBack { rows: have }, &[grad, ids])
        });
    }
    for (ne, times) in [([7, 3, 2, 1], [3, 1, 2, 2]), ([1, 1, 1, 1], [300, 2, 1, 1]), ([33, 2, 1, 1], [1, 5, 1, 1])] {
        cases.op(OpKind::RepeatBack, F32, format!("ne={ne:?},times={times:?}"), move |b| {
            let grad = b.leaf(F32, std::array::from_fn(|dim| ne[dim] * times[dim]), &UNIT)?;
            b.want(Op::RepeatBack { ne }, &[grad])
        });
    }
    for ne in [[64, 5, 3, 2], [1, 1, 1, 1], [33, 3, 1, 1], [1100, 2, 1, 1], [3, 66_000, 1, 1]] {
        cases.op(OpKind::RmsNormBack, F32, format!("ne={ne:?}"), move |b| {
            let grad = b.leaf(F32, ne, &UNIT)?;
            let x = b.leaf(F32, ne, &Fill::Range(0.1, 2.0))?;
            // In a row of one, all but what eps adds cancels.
            let eps = if ne[0] == 1 { 0.1 } else { 1e-5 };
            b.want(Op::RmsNormBack { eps }, &[grad, x])
        });
        cases.op(OpKind::SoftMaxBack, F32, format!("ne={ne:?}"), move |b| {
            let grad = b.leaf(F32, ne, &UNIT)?;
            let y = b.leaf(F32, ne, &Fill::Range(0.0, 0.5))?;
            b.want(Op::SoftMaxBack { scale: 0.7, max_bias: 0.0 }, &[grad, y])
        });
        cases.op(OpKind::CrossEntropyLoss, F32, format!("ne={ne:?}"), move |b| {
            let logits = b.leaf(F32, ne, &UNIT)?;
            let labels = b.leaf(F32, ne, &Fill::Range(0.0, 1.0))?;
            b.want(Op::CrossEntropyLoss, &[logits, labels])
        });
        cases.op(OpKind::CrossEntropyLossBack, F32, format!("ne={ne:?}"), move |b| {
            let grad = b.leaf(F32, [1; 4], &UNIT)?;
            let logits = b.leaf(F32, ne, &UNIT)?;
            let labels = b.leaf(F32, ne, &Fill::Range(0.0, 1.0))?;
            b.want(Op::CrossEntropyLossBack, &[grad, logits, labels])
        });
        cases.op(OpKind::OptStepAdamW, F32, format!("ne={ne:?}"), move |b| {
            let grad = b.leaf(F32, ne, &UNIT)?;
            let [a, m] = [b.leaf_of(LeafKind::Cache, F32, ne, &UNIT)?, b.leaf_of(LeafKind::Cache, F32, ne, &UNIT)?];
            let v = b.leaf_of(LeafKind::Cache, F32, ne, &Fill::Range(0.0, 1.0))?;
            let parameters = Fill::Given(vec![1e-2, 0.9, 0.99, 1e-6, 0.1, 10.0, 100.0]);
            let parameters = b.leaf(F32, [7, 1, 1, 1], &parameters)?;
            let node = b.graph.opt_step_adamw(a, grad, [m, v], parameters)?;
            [a, m, v].into_iter().try_for_each(|cache| b.written(node, cache))
        });
        cases.op(OpKind::OptStepSgd, F32, format!("ne={ne:?}"), move |b| {
            let grad = b.leaf(F32, ne, &UNIT)?;
            let a = b.leaf_of(LeafKind::Cache, F32, ne, &UNIT)?;
            let parameters = b.leaf(F32, [2, 1, 1, 1], &Fill::Given(vec![1e-2, 0.1]))?;
            let node = b.op(Op::OptStepSgd, &[a, grad, parameters])?;
            b.written(node, a)
        });
    }
}
