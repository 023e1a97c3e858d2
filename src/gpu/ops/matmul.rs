//! MUL_MAT and MUL_MAT_ID.

use super::threads_for;
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Encoder, Switch};
use crate::graph::TensorId;

/// Up to so many columns, one workgroup keeps a sum per column and reads the matrix once.
const FEW_COLUMNS: usize = 8;

/// Rows of the matrix that one workgroup of `matvec` takes.
const MATVEC_ROWS: usize = 4;

/// Pairs of token and slot that a workgroup of `matmul` searches at a time for columns of its expert.
const LISTED: u32 = 1024;

/// Encodes a MUL_MAT node.
///
/// # Errors
/// [`DeviceError::Unsupported`] when something does not fit 32 bits.
pub fn mul_mat(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (matrix, columns) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let [k, m, a2, a3] = cx.tensor(matrix).ne();
    let [_, n, b2, b3] = cx.tensor(columns).ne();
    let products = b2 * b3;
    let few = n <= FEW_COLUMNS;
    let encoder = if few {
        cx.kernel("matvec", node).switch("columns", Switch::Int(n as u32)).workgroup(threads_for(k, cx.caps))
    } else {
        tiles(cx, node, m, n).size("n", n)
    };
    let side = tile(cx, m, n);
    let groups = if few { m.div_ceil(MATVEC_ROWS) } else { m.div_ceil(side) * n.div_ceil(side) };
    let dispatch = encoder
        .switch("by_id", Switch::Bool(false))
        .input("a", matrix)
        .strides("a", matrix, &[1, 2, 3])
        .input("b", columns)
        .strides("b", columns, &[0, 1, 2, 3])
        .size("b_ne2", b2)
        .output("y", node)
        .size("k", k)
        .size("m", m)
        .size("products", products)
        .size("repeat2", b2 / a2)
        .size("repeat3", b3 / a3)
        .groups(groups * products)
        .finish()?;
    Ok(vec![dispatch])
}

/// Encodes a MUL_MAT_ID node.
///
/// # Errors
/// [`DeviceError::Unsupported`] when something does not fit 32 bits.
pub fn mul_mat_id(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (matrices, columns, ids) = (cx.source(node, 0)?, cx.source(node, 1)?, cx.source(node, 2)?);
    let [k, m, experts, _] = cx.tensor(matrices).ne();
    let [used, tokens, _, _] = cx.tensor(ids).ne();
    let per_expert = (used * tokens).div_ceil(experts.max(1));
    let few = per_expert < FEW_COLUMNS;
    let (encoder, groups) = if few {
        let encoder = cx.kernel("matvec", node).switch("columns", Switch::Int(1)).workgroup(threads_for(k, cx.caps));
        (encoder.size("products", used * tokens), m.div_ceil(MATVEC_ROWS) * used * tokens)
    } else {
        let encoder = tiles(cx, node, m, per_expert).switch("listed", Switch::Int(LISTED)).size("tokens", tokens);
        // One more for the ids that name no expert.
        (encoder, m.div_ceil(tile(cx, m, per_expert)) * (experts + 1))
    };
    let dispatch = encoder
        .switch("by_id", Switch::Bool(true))
        .input("a", matrices)
        .strides("a", matrices, &[1, 2])
        .input("b", columns)
        .strides("b", columns, &[0, 1, 2])
        .shape("b", columns, &[1])
        .input("ids", ids)
        .strides("ids", ids, &[0, 1])
        .output("y", node)
        .size("k", k)
        .size("m", m)
        .size("used", used)
        .size("experts", experts)
        .groups(groups)
        .finish()?;
    Ok(vec![dispatch])
}

/// Starts a tiled product.
fn tiles<'a>(cx: &Context<'a>, node: TensorId, rows: usize, columns: usize) -> Encoder<'a> {
    let side = tile(cx, rows, columns);
    let threads = side / 4 * (side / 4);
    cx.kernel("matmul", node).switch("tile", Switch::Int(side as u32)).workgroup(threads as u32)
}

/// Rows and columns of a tile: large ones read less, small ones waste less of a small product.
fn tile(cx: &Context<'_>, rows: usize, columns: usize) -> usize {
    if rows > 32 && columns > 32 && cx.caps.max_threads >= 256 { 64 } else { 32 }
}
