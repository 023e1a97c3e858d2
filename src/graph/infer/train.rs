//! Rules of gradients, losses and the steps of optimizers.

use super::sources::{Inferred, Sources};
use crate::graph::tensor::Layout;
use crate::graph::{DType, GraphError};

pub(super) fn get_rows_back(s: &Sources<'_>, rows: usize) -> Result<Inferred, GraphError> {
    let [a, ids] = s.required(0)?;
    s.float(0)?;
    s.dense_rows(0)?;
    s.typed(1, DType::I32)?;
    let [width, picked, n2, n3] = a.ne();
    s.check(0, n2 == 1 && n3 == 1, || "two dimensions".to_owned())?;
    s.check(1, ids.ne() == [picked, 1, 1, 1], || format!("[{picked}, 1, 1, 1]"))?;
    Inferred::fresh(DType::F32, [width, rows, 1, 1])
}

pub(super) fn repeat_back(s: &Sources<'_>, ne: [usize; 4]) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    let result = Layout::contiguous(DType::F32, ne)?;
    let divides = (0..4).all(|dim| ne[dim] != 0 && a.ne()[dim].is_multiple_of(ne[dim]));
    let fits = divides || (result.is_empty() && a.layout().is_empty());
    s.parameter(fits, "ne", format!("{ne:?}"), format!("divisors of {:?}", a.ne()))?;
    Ok(Inferred { layout: result, shares: None })
}

/// Two f32 sources of one shape, whose rows are dense.
fn alike(s: &Sources<'_>, first: usize) -> Result<[usize; 4], GraphError> {
    for index in [first, first + 1] {
        s.typed(index, DType::F32)?;
        s.dense_rows(index)?;
    }
    let ne = s.optional(first).map_or([0; 4], |t| t.ne());
    s.check(first + 1, s.optional(first + 1).is_some_and(|t| t.ne() == ne), || format!("{ne:?}"))?;
    Ok(ne)
}

pub(super) fn rms_norm_back(s: &Sources<'_>, eps: f32) -> Result<Inferred, GraphError> {
    let [_, _] = s.required(0)?;
    s.parameter(eps >= 0.0, "eps", eps, "a number from 0")?;
    Inferred::fresh(DType::F32, alike(s, 0)?)
}

pub(super) fn soft_max_back(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [_, _] = s.required(0)?;
    Inferred::fresh(DType::F32, alike(s, 0)?)
}

pub(super) fn cross_entropy_loss(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [_, _] = s.required(0)?;
    let ne = alike(s, 0)?;
    s.check(0, !ne.contains(&0), || "a tensor that has elements".to_owned())?;
    Inferred::fresh(DType::F32, [1; 4])
}

pub(super) fn cross_entropy_loss_back(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [grad, _, _] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.check(0, grad.ne() == [1; 4], || "one element".to_owned())?;
    Inferred::fresh(DType::F32, alike(s, 1)?)
}

pub(super) fn opt_step_adamw(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a, _, _, _, _] = s.required(0)?;
    s.apart(2)?;
    s.apart(3)?;
    opt_step(s, 3, 7)?;
    Ok(Inferred::shared(a.layout, 0, 0))
}

pub(super) fn opt_step_sgd(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a, _, _] = s.required(0)?;
    opt_step(s, 1, 2)?;
    Ok(Inferred::shared(a.layout, 0, 0))
}

/// Weights, which the step overwrites, then tensors of their shape up to the source `last`, then so many parameters.
fn opt_step(s: &Sources<'_>, last: usize, count: usize) -> Result<(), GraphError> {
    let ne = s.optional(0).map_or([0; 4], |t| t.ne());
    for index in 0..=last {
        s.typed(index, DType::F32)?;
        s.check(index, s.optional(index).is_some_and(|t| t.ne() == ne), || format!("{ne:?}"))?;
    }
    s.apart(0)?;
    s.typed(last + 1, DType::F32)?;
    s.contiguous(last + 1)?;
    let parameters = s.optional(last + 1).map_or(0, |t| t.layout().elements());
    s.check(last + 1, parameters == count, || format!("{count} elements"))
}
