//! Sums, counts, the largest of a row, and norms of rows and groups.

use super::{ALL, OUTER, threads_for};
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Encoder, Switch};
use crate::graph::TensorId;

/// Summands from which on a workgroup shares them.
const SHARED_FROM: usize = 64;

/// SUM.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn sum(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    total(cx, node, cx.source(node, 0)?)?.switch("equal", Switch::Bool(false)).float("factor", 1.0).single()
}

/// MEAN.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn mean(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let factor = 1.0 / cx.tensor(source).ne()[0].max(1) as f32;
    total(cx, node, source)?.switch("equal", Switch::Bool(false)).float("factor", factor).single()
}

/// REPEAT_BACK.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn repeat_back(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    sum(cx, node)
}

/// COUNT_EQUAL.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn count_equal(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let other = cx.source(node, 1)?;
    total(cx, node, cx.source(node, 0)?)?
        .switch("equal", Switch::Bool(true))
        .input("other", other)
        .strides("other", other, &ALL)
        .single()
}

/// The sum, for each element of the result, of the elements of a source that lie over it when the result is repeated to
/// fill the source.
fn total<'a>(cx: &Context<'a>, node: TensorId, source: TensorId) -> Result<Encoder<'a>, DeviceError> {
    let layout = cx.tensor(node).layout();
    let repeats: [usize; 4] = std::array::from_fn(|dim| cx.tensor(source).ne()[dim] / layout.ne[dim].max(1));
    let parts: usize = repeats.iter().product();
    let shared = parts >= SHARED_FROM;
    let elements = layout.elements();
    let workgroup = if shared { threads_for(parts, cx.caps) } else { 64 };
    let encoder = cx
        .kernel("total", node)
        .workgroup(workgroup)
        .switch("shared", Switch::Bool(shared))
        .input("src", source)
        .strides("src", source, &ALL)
        .output("dst", node)
        .shape("dst", node, &ALL)
        .size("repeat0", repeats[0])
        .size("repeat1", repeats[1])
        .size("repeat2", repeats[2])
        .size("parts", parts)
        .size("elements", elements);
    Ok(encoder.groups(if shared { elements } else { elements.div_ceil(workgroup as usize) }))
}

/// CUMSUM.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn cumsum(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let layout = cx.tensor(node).layout();
    cx.kernel("cumsum", node)
        .workgroup(threads_for(layout.ne[0] / 2, cx.caps))
        .input("x", source)
        .strides("x", source, &[1, 2, 3])
        .output("y", node)
        .shape("y", node, &OUTER)
        .size("rows", layout.rows())
        .groups(layout.rows())
        .single()
}

/// ARGMAX.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn argmax(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let [width, rows, ..] = cx.tensor(source).ne();
    cx.kernel("argmax", node)
        .workgroup(threads_for(width, cx.caps))
        .input("x", source)
        .shape("x", source, &[0])
        .strides("x", source, &[1])
        .output("y", node)
        .shape("y", node, &[0])
        .groups(rows)
        .single()
}

/// L2_NORM: every row is a group.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn l2_norm(cx: &Context<'_>, node: TensorId, eps: f32) -> Result<Vec<Dispatch>, DeviceError> {
    let layout = cx.tensor(node).layout();
    norm(cx, node, eps, false, Groups { channel: layout.ne[0], channels: 1, per_group: 1, batches: layout.rows() })
}

/// GROUP_NORM.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn group_norm(cx: &Context<'_>, node: TensorId, groups: u32, eps: f32) -> Result<Vec<Dispatch>, DeviceError> {
    let [width, height, channels, batches] = cx.tensor(node).ne();
    let per_group = channels.div_ceil(groups.max(1) as usize);
    norm(cx, node, eps, true, Groups { channel: width * height, channels, per_group, batches })
}

/// Which elements are normalised together.
struct Groups {
    /// Elements of a channel.
    channel: usize,
    /// Channels of a batch.
    channels: usize,
    per_group: usize,
    batches: usize,
}

fn norm(
    cx: &Context<'_>,
    node: TensorId,
    eps: f32,
    centred: bool,
    groups: Groups,
) -> Result<Vec<Dispatch>, DeviceError> {
    let Groups { channel, channels, per_group, batches } = groups;
    let source = cx.source(node, 0)?;
    let dense = cx.tensor(source).layout().is_contiguous();
    let per_batch = channels.div_ceil(per_group.max(1));
    let encoder = cx
        .kernel("group_norm", node)
        .workgroup(threads_for(channel * per_group, cx.caps))
        .switch("centred", Switch::Bool(centred))
        .switch("dense", Switch::Bool(dense))
        .input("x", source)
        .output("y", node)
        .size("channel", channel)
        .size("channels", channels)
        .size("per_group", per_group)
        .size("per_batch", per_batch)
        .size("count", per_batch * batches)
        .float("eps", eps)
        .groups(per_batch * batches);
    let encoder = if dense { encoder } else { encoder.strides("x", source, &ALL).shape("y", node, &OUTER) };
    encoder.single()
}
