//! Rules of sums, counts, picks and norms.

use super::sources::{Inferred, Sources};
use crate::graph::{DType, GraphError};

const ONE: [usize; 4] = [1; 4];

pub(super) fn sum(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.float(0)?;
    Inferred::fresh(a.dtype(), ONE)
}

pub(super) fn mean(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    let [width, n1, n2, n3] = a.ne();
    let result = Inferred::fresh(DType::F32, [1, n1, n2, n3])?;
    s.check(0, width > 0 || result.layout.is_empty(), || "rows that have elements".to_owned())?;
    Ok(result)
}

pub(super) fn cumsum(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.dense_rows(0)?;
    Inferred::fresh(DType::F32, a.ne())
}

pub(super) fn count_equal(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a, b] = s.required(0)?;
    s.typed(0, DType::I32)?;
    s.typed(1, DType::I32)?;
    s.check(1, b.ne() == a.ne(), || format!("{:?}", a.ne()))?;
    Inferred::fresh(DType::I64, ONE)
}

pub(super) fn argmax(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.dense_rows(0)?;
    let [width, rows, n2, n3] = a.ne();
    s.check(0, n2 == 1 && n3 == 1, || "two dimensions".to_owned())?;
    s.check(0, width > 0 || rows == 0, || "rows that have elements".to_owned())?;
    indexable(s, width)?;
    Inferred::fresh(DType::I32, [rows, 1, 1, 1])
}

pub(super) fn top_k(s: &Sources<'_>, k: usize) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.dense_rows(0)?;
    let [width, n1, n2, n3] = a.ne();
    indexable(s, width)?;
    s.parameter(k <= width, "k", k, format!("at most {width}"))?;
    Inferred::fresh(DType::I32, [k, n1, n2, n3])
}

fn indexable(s: &Sources<'_>, width: usize) -> Result<(), GraphError> {
    s.check(0, width <= i32::MAX as usize, || "rows that i32 can index".to_owned())
}

pub(super) fn l2_norm(s: &Sources<'_>, eps: f32) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.parameter(eps >= 0.0, "eps", eps, "a number from 0")?;
    Inferred::fresh(DType::F32, a.ne())
}

pub(super) fn group_norm(s: &Sources<'_>, groups: u32, eps: f32) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.parameter(groups > 0, "groups", groups, "at least 1")?;
    s.parameter(eps >= 0.0, "eps", eps, "a number from 0")?;
    Inferred::fresh(DType::F32, a.ne())
}
