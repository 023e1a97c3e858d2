//! Rules of outer products and triangular systems.

use super::sources::{Inferred, Sources};
use crate::graph::{DType, GraphError};

pub(super) fn out_prod(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a, b] = s.required(0)?;
    s.real(0)?;
    s.dense_rows(0)?;
    s.typed(1, DType::F32)?;
    let (m, n) = (a.ne(), b.ne());
    let fits = m[1] == n[1] && m[2] != 0 && m[3] != 0 && n[2].is_multiple_of(m[2]) && n[3].is_multiple_of(m[3]);
    s.check(1, fits, || format!("[n, {}, a multiple of {}, a multiple of {}]", m[1], m[2], m[3]))?;
    Inferred::fresh(DType::F32, [m[0], n[0], n[2], n[3]])
}

pub(super) fn solve_tri(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a, b] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.typed(1, DType::F32)?;
    s.contiguous(0)?;
    s.contiguous(1)?;
    let (m, n) = (a.ne(), b.ne());
    s.check(0, m[0] == m[1], || "square matrices".to_owned())?;
    s.check(1, n[1..] == m[1..], || format!("[n, {}, {}, {}]", m[1], m[2], m[3]))?;
    Inferred::fresh(DType::F32, n)
}
