//! SSM_CONV and GATED_DELTA_NET.

use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Switch};
use crate::graph::{DType, Op, TensorId};

/// Encodes an SSM_CONV node.
///
/// # Errors
/// [`DeviceError::Unsupported`] when something does not fit 32 bits.
pub fn ssm_conv(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (rows, kernels) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let dispatch = cx
        .kernel("ssm_conv", node)
        .input("x", rows)
        .strides("x", rows, &[1, 2])
        .input("c", kernels)
        .shape("c", kernels, &[0])
        .output("y", node)
        .shape("y", node, &[0, 1])
        .threads(cx.tensor(node).layout().elements())
        .finish()?;
    Ok(vec![dispatch])
}

/// Threads of a workgroup of the delta net.
const THREADS: u32 = 64;

/// Threads that share a row of the state at most: few subgroups are smaller.
const LANES: usize = 4;

/// Encodes a GATED_DELTA_NET node, or one with the CPY of its snapshots, which then go straight to the copy's
/// destination; the tail of the node's own result is not written.
///
/// # Errors
/// [`DeviceError::Unsupported`] for head sizes that are no multiple of 4 or over 256, and for destinations that are not
/// f32 `[size² · heads, batch, slots]` with dense rows.
pub fn gated_delta_net(cx: &Context<'_>, nodes: &[TensorId]) -> Result<Vec<Dispatch>, DeviceError> {
    let Some((&node, copies)) = nodes.split_first() else { return Ok(Vec::new()) };
    let tensor = cx.tensor(node);
    let unsupported = |detail: String| Err(cx.unsupported(tensor.kind(), detail));
    let Op::GatedDeltaNet { snapshots } = *tensor.op() else {
        return unsupported("a delta net".to_owned());
    };
    let [q, k, v] = [cx.source(node, 0)?, cx.source(node, 1)?, cx.source(node, 2)?];
    let [gates, beta, state] = [cx.source(node, 3)?, cx.source(node, 4)?, cx.source(node, 5)?];
    let [size, heads, tokens, batches] = cx.tensor(v).ne();
    if size % 4 != 0 || size > 256 {
        return unsupported(format!("heads of {size}"));
    }
    let lanes = [LANES, 2, 1].into_iter().find(|lanes| (size / 4).is_multiple_of(*lanes)).unwrap_or(1);
    let rows = THREADS as usize / lanes;
    let state_elements = size * size * heads;
    let encoder = cx
        .kernel("gated_delta_net", node)
        .workgroup(THREADS)
        .switch("size", Switch::Int(size as u32))
        .switch("lanes", Switch::Int(lanes as u32))
        .switch("shuffles", Switch::Bool(cx.caps.subgroups && lanes > 1 && cx.caps.min_subgroup as usize >= lanes))
        .switch("gate_per_channel", Switch::Bool(cx.tensor(gates).ne()[0] != 1))
        .switch("write_through", Switch::Bool(!copies.is_empty()))
        .input("q", q)
        .strides("q", q, &[1, 2, 3])
        .input("k", k)
        .strides("k", k, &[1, 2, 3])
        .input("v", v)
        .strides("v", v, &[1, 2, 3])
        .input("g", gates)
        .input("beta", beta)
        .input("state", state)
        .output("y", node)
        .size("heads", heads)
        .size("key_heads", cx.tensor(q).ne()[1])
        .size("tokens", tokens)
        .size("batches", batches)
        .size("snapshots", snapshots as usize)
        .float("scale", (1.0 / (size as f64).sqrt()) as f32);
    let encoder = match *copies {
        [] => encoder
            .size("snapshots_start", size * heads * tokens * batches)
            .size("batch_stride", state_elements)
            .size("slot_stride", state_elements * batches),
        [copy] => {
            let layout = cx.tensor(copy).layout();
            let slots = tokens.min(snapshots as usize);
            if layout.dtype != DType::F32
                || layout.ne != [state_elements, batches, slots, 1]
                || !layout.has_contiguous_rows()
            {
                return unsupported(format!("snapshots into {layout}"));
            }
            encoder
                .output("cache", copy)
                .size("snapshots_start", 0)
                .size("batch_stride", layout.nb[1] / DType::F32.block_bytes())
                .size("slot_stride", layout.nb[2] / DType::F32.block_bytes())
        }
        [..] => return unsupported(format!("{} copies", copies.len())),
    };
    Ok(vec![encoder.groups(size.div_ceil(rows) * heads * batches).finish()?])
}
