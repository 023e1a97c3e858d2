//! SOFT_MAX and FLASH_ATTN_EXT.

use super::threads_for;
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Encoder, Switch};
use crate::graph::{FlashAttn, TensorId};

/// Encodes a SOFT_MAX node.
///
/// # Errors
/// [`DeviceError::Unsupported`] when something does not fit 32 bits.
pub fn soft_max(cx: &Context<'_>, node: TensorId, scale: f32, max_bias: f32) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let layout = cx.tensor(node).layout();
    let encoder = cx
        .kernel("soft_max", node)
        .workgroup(threads_for(layout.ne[0], cx.caps))
        .input("x", source)
        .strides("x", source, &[1, 2, 3])
        .output("y", node)
        .shape("y", node, &[0, 1, 2])
        .size("rows", layout.rows())
        .float("scale", scale);
    let encoder = mask(encoder, cx.tensor(node).src(1));
    let dispatch = slopes(encoder, layout.ne[2], max_bias)
        .optional_input("sinks", "has_sinks", cx.tensor(node).src(2))
        .groups(layout.rows())
        .finish()?;
    Ok(vec![dispatch])
}

/// Encodes a FLASH_ATTN_EXT node.
///
/// # Errors
/// [`DeviceError::Unsupported`] when a query row does not fit workgroup memory.
pub fn flash(cx: &Context<'_>, node: TensorId, attn: &FlashAttn) -> Result<Vec<Dispatch>, DeviceError> {
    let tensor = cx.tensor(node);
    // Sums are f32 whatever precision is asked for.
    let FlashAttn { scale, max_bias, logit_softcap, precision: _ } = *attn;
    let (q, k, v) = (cx.source(node, 0)?, cx.source(node, 1)?, cx.source(node, 2)?);
    let [head_size, tokens, heads, batches] = cx.tensor(q).ne();
    let [_, keys, kv_heads, kv_batches] = cx.tensor(k).ne();
    let value_size = cx.tensor(v).ne()[0];
    let shared_heads = heads / kv_heads;
    let threads = threads_for(4 * keys.min(128), cx.caps);
    // Rows that one workgroup takes at once: the query rows, and the kernel's three arrays of one element per thread.
    let row_bytes = 4 * (head_size + 3 * threads as usize);
    let query_rows = shared_heads * tokens;
    let fitting = [4, 2, 1]
        .into_iter()
        .find(|&rows| (rows == 1 || rows / 2 < query_rows) && rows * row_bytes <= cx.caps.max_workgroup_bytes as usize);
    let Some(rows) = fitting.filter(|_| head_size > 0) else {
        return Err(cx.unsupported(tensor.kind(), format!("heads of {head_size}")));
    };
    let capped = logit_softcap != 0.0;
    let encoder = cx
        .kernel("attention", node)
        .workgroup(threads)
        .switch("rows", Switch::Int(rows as u32))
        .switch("head_size", Switch::Int(head_size as u32))
        .switch("value_size", Switch::Int(value_size as u32))
        .switch("value_lanes", Switch::Int((value_size.next_power_of_two() as u32).min(threads)))
        .switch("shared_heads", Switch::Int(shared_heads as u32))
        .switch("capped", Switch::Bool(capped))
        .input("q", q)
        .strides("q", q, &[1, 2, 3])
        .input("k", k)
        .strides("k", k, &[1, 2, 3])
        .input("v", v)
        .strides("v", v, &[1, 2, 3])
        .output("y", node)
        .size("keys", keys)
        .size("tokens", tokens)
        .size("kv_heads", kv_heads)
        .size("batches", batches)
        .size("repeat3", batches / kv_batches)
        .float("scale", if capped { scale / logit_softcap } else { scale })
        .float("cap", logit_softcap);
    let encoder = mask(encoder, tensor.src(3));
    let dispatch = slopes(encoder, heads, max_bias)
        .optional_input("sinks", "has_sinks", tensor.src(4))
        .groups(query_rows.div_ceil(rows) * kv_heads * batches)
        .finish()?;
    Ok(vec![dispatch])
}

/// Binds an optional mask, which is broadcast over heads and batches.
fn mask(encoder: Encoder<'_>, mask: Option<TensorId>) -> Encoder<'_> {
    let encoder = encoder.optional_input("mask", "has_mask", mask);
    match mask {
        Some(mask) => encoder.strides("mask", mask, &[1, 2, 3]).shape("mask", mask, &[2, 3]),
        None => encoder,
    }
}

/// The slopes of ALiBi (Press et al. 2021, arXiv 2108.12409) as powers of two: a geometric series over the first heads,
/// a power of two of them, and the same series at half steps over the rest.
fn slopes(encoder: Encoder<'_>, heads: usize, max_bias: f32) -> Encoder<'_> {
    let early = 1usize << heads.max(1).ilog2();
    let step = -max_bias.max(0.0) / early as f32;
    encoder.size("early_heads", early).float("early_slope", step).float("late_slope", step / 2.0)
}
