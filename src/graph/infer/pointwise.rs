//! Rules of element-wise functions, gated units and sums with picked rows.

use super::sources::{Inferred, Sources};
use crate::graph::{DType, Glu, GraphError};

pub(super) fn function(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.float(0)?;
    Inferred::fresh(a.dtype(), a.ne())
}

pub(super) fn glu(s: &Sources<'_>, glu: Glu) -> Result<Inferred, GraphError> {
    let [a] = s.required(1)?;
    s.float(0)?;
    s.dense_rows(0)?;
    // A limit below 0 would hold values to an interval without numbers.
    let from_zero = |limit: f32| s.parameter(limit >= 0.0, "limit", limit, "a number from 0");
    match glu {
        Glu::Reglu | Glu::Geglu | Glu::Swiglu | Glu::GegluErf | Glu::GegluQuick => {}
        Glu::SwigluOai { alpha, limit } => {
            s.parameter(alpha.is_finite(), "alpha", alpha, "a finite number")?;
            from_zero(limit)?;
        }
        Glu::SwigluClamp { limit } => from_zero(limit)?,
    }
    let mut ne = a.ne();
    if let Some(b) = s.optional(1) {
        s.dense_rows(1)?;
        s.check(1, b.ne() == ne && b.dtype() == a.dtype(), || format!("{} {ne:?}", a.dtype()))?;
    } else {
        s.check(0, ne[0].is_multiple_of(2), || "an even row".to_owned())?;
        ne[0] /= 2;
    }
    Inferred::fresh(a.dtype(), ne)
}

pub(super) fn silu_back(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [grad, x] = s.required(0)?;
    s.float(0)?;
    let (dtype, ne) = (grad.dtype(), grad.ne());
    s.check(1, x.dtype() == dtype && x.ne() == ne, || format!("{dtype} {ne:?}"))?;
    Inferred::fresh(dtype, ne)
}

pub(super) fn add_id(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a, b, ids] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.typed(1, DType::F32)?;
    s.typed(2, DType::I32)?;
    s.dense_rows(0)?;
    s.dense_rows(1)?;
    let [width, used, tokens, _] = a.ne();
    s.check(1, b.ne()[0] == width && b.ne()[2..] == [1, 1], || format!("[{width}, n, 1, 1]"))?;
    s.check(2, ids.ne() == [used, tokens, 1, 1], || format!("[{used}, {tokens}, 1, 1]"))?;
    Inferred::fresh(DType::F32, a.ne())
}
