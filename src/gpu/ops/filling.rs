//! Copies with parts replaced, constants and numbers made from positions: one thread per element.

use super::{ALL, OUTER, rows};
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Switch};
use crate::graph::{TensorId, Triangle, Window};

/// ACC (`adds`) and SET: a copy of source 0, unless it is overwritten, and then the window.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn window(
    cx: &Context<'_>,
    node: TensorId,
    window: Window,
    in_place: bool,
    adds: bool,
) -> Result<Vec<Dispatch>, DeviceError> {
    let b = cx.source(node, 1)?;
    let unit = cx.tensor(node).dtype().block_bytes();
    let [nb1, nb2, nb3] = window.nb;
    let change = cx
        .kernel("window", node)
        .switch("adds", Switch::Bool(adds))
        .input("b", b)
        .shape("b", b, &OUTER)
        .strides("b", b, &ALL)
        .output("dst", node)
        .size("window_start", window.offset / unit)
        .size("window_nb0", 1)
        .size("window_nb1", nb1 / unit)
        .size("window_nb2", nb2 / unit)
        .size("window_nb3", nb3 / unit)
        .threads(cx.tensor(b).layout().elements())
        .finish()?;
    let mut dispatches = if in_place { Vec::new() } else { rows::copy(cx, node)? };
    dispatches.push(change);
    Ok(dispatches)
}

/// FILL.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn fill(cx: &Context<'_>, node: TensorId, value: f32) -> Result<Vec<Dispatch>, DeviceError> {
    let layout = cx.tensor(node).layout();
    let dense = layout.is_contiguous();
    let encoder = cx
        .kernel("fill", node)
        .switch("dense", Switch::Bool(dense))
        .output("dst", node)
        .float("value", value)
        .threads(layout.elements());
    let encoder = if dense { encoder } else { encoder.shape("dst", node, &OUTER).strides("dst", node, &ALL) };
    encoder.single()
}

/// ARANGE.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn arange(cx: &Context<'_>, node: TensorId, start: f32, step: f32) -> Result<Vec<Dispatch>, DeviceError> {
    cx.kernel("arange", node)
        .output("dst", node)
        .float("start", start)
        .float("step", step)
        .threads(cx.tensor(node).layout().elements())
        .single()
}

/// TIMESTEP_EMBEDDING.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn timestep_embedding(
    cx: &Context<'_>,
    node: TensorId,
    dim: u32,
    max_period: u32,
) -> Result<Vec<Dispatch>, DeviceError> {
    let times = cx.source(node, 0)?;
    cx.kernel("timestep_embedding", node)
        .input("times", times)
        .strides("times", times, &[0])
        .output("dst", node)
        .size("dim", dim as usize)
        .float("log_period", f64::from(max_period).ln() as f32)
        .threads(cx.tensor(node).layout().elements())
        .single()
}

/// TRI.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn tri(cx: &Context<'_>, node: TensorId, part: Triangle) -> Result<Vec<Dispatch>, DeviceError> {
    let (lower, left, right) = match part {
        Triangle::UpperDiag => (false, 0, 0),
        Triangle::Upper => (false, 0, 1),
        Triangle::LowerDiag => (true, 0, 0),
        Triangle::Lower => (true, 1, 0),
    };
    triangle(cx, node, lower, [left, right], 0.0)
}

/// DIAG_MASK_INF and DIAG_MASK_ZERO.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn diag_mask(cx: &Context<'_>, node: TensorId, n_past: u32, masked: f32) -> Result<Vec<Dispatch>, DeviceError> {
    // No column is past the row by more than there are columns.
    let kept = cx.tensor(node).ne()[0].min(n_past as usize);
    triangle(cx, node, true, [0, kept], masked)
}

/// Keeps the elements on one side of a diagonal: see the kernel.
fn triangle(
    cx: &Context<'_>,
    node: TensorId,
    lower: bool,
    [left, right]: [usize; 2],
    value: f32,
) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    cx.kernel("triangle", node)
        .switch("lower", Switch::Bool(lower))
        .input("src", source)
        .strides("src", source, &ALL)
        .output("dst", node)
        .shape("dst", node, &OUTER)
        .strides("dst", node, &ALL)
        .size("left", left)
        .size("right", right)
        .float("value", value)
        .threads(cx.tensor(node).layout().elements())
        .single()
}

/// DIAG.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn diag(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    cx.kernel("diag", node)
        .input("src", source)
        .strides("src", source, &[0, 2, 3])
        .output("dst", node)
        .shape("dst", node, &OUTER)
        .threads(cx.tensor(node).layout().elements())
        .single()
}
