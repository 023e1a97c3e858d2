//! Rules of copies with parts replaced, of constants and of numbers made from positions.

use super::sources::{Inferred, Sources};
use crate::graph::tensor::Layout;
use crate::graph::{DType, GraphError, Tensor, Window};

/// ggml stores strides, offsets and lengths as signed words.
const LARGEST: usize = i32::MAX as usize;

/// A result like `a`, in its memory or in its own.
fn like(s: &Sources<'_>, a: &Tensor, in_place: bool) -> Result<Inferred, GraphError> {
    if !in_place {
        return Inferred::fresh(a.dtype(), a.ne());
    }
    s.apart(0)?;
    Ok(Inferred::shared(*a.layout(), 0, 0))
}

pub(super) fn dup(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    Inferred::fresh(a.dtype(), a.ne())
}

pub(super) fn acc(s: &Sources<'_>, window: Window, in_place: bool) -> Result<Inferred, GraphError> {
    let [a, _] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.contiguous(0)?;
    inside(s, window)?;
    like(s, a, in_place)
}

pub(super) fn set(s: &Sources<'_>, window: Window, in_place: bool) -> Result<Inferred, GraphError> {
    let [a, _] = s.required(0)?;
    s.check(0, matches!(a.dtype(), DType::F32 | DType::I32), || "f32 or i32".to_owned())?;
    s.contiguous(0)?;
    inside(s, window)?;
    like(s, a, in_place)
}

/// A window of the shape of source 1 lies inside source 0, whose elements take four bytes, and no two of its elements
/// in one place.
fn inside(s: &Sources<'_>, Window { nb, offset }: Window) -> Result<(), GraphError> {
    let [a, b] = s.required(0)?;
    s.typed(1, a.dtype())?;
    let unit = a.dtype().block_bytes();
    let fits = |bytes: usize| bytes.is_multiple_of(unit) && bytes <= LARGEST;
    let expected = || format!("multiples of {unit} bytes, at most {LARGEST}");
    s.parameter(nb.iter().all(|&stride| fits(stride)), "nb", format!("{nb:?}"), expected())?;
    s.parameter(fits(offset), "offset", offset, expected())?;
    let window = Layout { dtype: a.dtype(), ne: b.ne(), nb: [unit, nb[0], nb[1], nb[2]] };
    let available = a.layout().extent();
    let end = window.checked_extent().and_then(|extent| extent.checked_add(offset));
    if end.is_none_or(|end| end > available) {
        return Err(GraphError::OutOfBounds { op: s.op, end: end.unwrap_or(usize::MAX), available });
    }
    s.parameter(window.has_distinct_elements(), "nb", format!("{nb:?}"), "a window whose elements do not overlap")
}

pub(super) fn fill(s: &Sources<'_>, in_place: bool) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.float(0)?;
    like(s, a, in_place)
}

pub(super) fn arange(s: &Sources<'_>, start: f32, stop: f32, step: f32) -> Result<Inferred, GraphError> {
    let [] = s.required(0)?;
    s.parameter(start.is_finite(), "start", start, "a finite number")?;
    s.parameter(stop > start && stop.is_finite(), "stop", stop, format!("a finite number above {start}"))?;
    s.parameter(step > 0.0 && step.is_finite(), "step", step, "a finite number above 0")?;
    let steps = ((stop - start) / step).ceil();
    s.parameter(steps <= LARGEST as f32, "step", step, format!("at most {LARGEST} steps"))?;
    Inferred::fresh(DType::F32, [steps as usize, 1, 1, 1])
}

pub(super) fn timestep_embedding(s: &Sources<'_>, dim: u32, max_period: u32) -> Result<Inferred, GraphError> {
    let [times] = s.required(0)?;
    s.typed(0, DType::F32)?;
    let count = times.ne()[0];
    s.check(0, times.ne() == [count, 1, 1, 1], || "one dimension".to_owned())?;
    s.parameter(dim as usize <= LARGEST, "dim", dim, format!("at most {LARGEST}"))?;
    let within = max_period > 0 && max_period as usize <= LARGEST;
    s.parameter(within, "max_period", max_period, format!("1 to {LARGEST}"))?;
    Inferred::fresh(DType::F32, [dim as usize, count, 1, 1])
}

pub(super) fn tri(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.check(0, a.ne()[0] == a.ne()[1], || "square matrices".to_owned())?;
    Inferred::fresh(DType::F32, a.ne())
}

pub(super) fn diag(s: &Sources<'_>) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    let [n, rows, n2, n3] = a.ne();
    s.check(0, rows == 1, || format!("[{n}, 1, {n2}, {n3}]"))?;
    Inferred::fresh(DType::F32, [n, n, n2, n3])
}

pub(super) fn diag_mask(s: &Sources<'_>, n_past: u32, in_place: bool) -> Result<Inferred, GraphError> {
    let [a] = s.required(0)?;
    s.typed(0, DType::F32)?;
    s.parameter(n_past as usize <= LARGEST, "n_past", n_past, format!("at most {LARGEST}"))?;
    like(s, a, in_place)
}
