//! OUT_PROD and SOLVE_TRI.

use super::{ALL, MAX_TURNS};
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Switch};
use crate::graph::TensorId;

/// OUT_PROD.
///
/// # Errors
/// [`DeviceError::Unsupported`] for quantized sources, and see [`encode`](crate::gpu::encode()).
pub fn out_prod(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (a, b) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let (m, n) = (cx.tensor(a).ne(), cx.tensor(b).ne());
    let tile = if cx.caps.max_threads >= 256 { 16 } else { 8 };
    let products = n[2] * n[3];
    cx.kernel("out_prod", node)
        .workgroup((tile * tile) as u32)
        .switch("tile", Switch::Int(tile as u32))
        .input("a", a)
        .strides("a", a, &[1, 2, 3])
        .input("b", b)
        .strides("b", b, &ALL)
        .shape("b", b, &[2])
        .output("y", node)
        .size("m", m[0])
        .size("n", n[0])
        .size("k", m[1])
        .size("repeat2", n[2] / m[2].max(1))
        .size("repeat3", n[3] / m[3].max(1))
        .size("products", products)
        .groups(m[0].div_ceil(tile) * n[0].div_ceil(tile) * products)
        .single()
}

/// SOLVE_TRI, some rows at a time.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn solve_tri(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (a, b) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let [columns, size, n2, n3] = cx.tensor(b).ne();
    let mut dispatches = Vec::new();
    let mut first = 0;
    while first < size {
        let mut end = first;
        let mut turns = 0;
        while end < size && (end == first || turns + end / 16 + 2 <= MAX_TURNS) {
            turns += end / 16 + 2;
            end += 1;
        }
        let encoder = cx
            .kernel("solve_tri", node)
            .input("a", a)
            .input("b", b)
            .output("x", node)
            .size("columns", columns)
            .size("size", size)
            .size("first", first)
            .size("end", end)
            .threads(columns * n2 * n3);
        dispatches.push(encoder.finish()?);
        first = end;
    }
    Ok(dispatches)
}
