//! Gradients, losses and the steps of optimizers.

use super::{ALL, MAX_TURNS, OUTER, threads_for};
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Encoder, Switch};
use crate::graph::TensorId;

/// GET_ROWS_BACK. A row whose index is out of range is added to nothing: a kernel has no way to refuse.
///
/// # Errors
/// [`DeviceError::Unsupported`] for more rows than one thread can look at.
pub fn get_rows_back(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (source, ids) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let picked = cx.tensor(source).ne()[1];
    // Each thread looks at all of them, 32 at a time.
    if picked.div_ceil(32) > MAX_TURNS {
        return Err(cx.unsupported(cx.tensor(node).kind(), format!("{picked} rows, which one thread would look at")));
    }
    cx.kernel("get_rows_back", node)
        .input("src", source)
        .strides("src", source, &[1])
        .size("picked", picked)
        .input("ids", ids)
        .strides("ids", ids, &[0])
        .output("dst", node)
        .shape("dst", node, &[0])
        .threads(cx.tensor(node).layout().elements())
        .single()
}

/// RMS_NORM_BACK.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn rms_norm_back(cx: &Context<'_>, node: TensorId, eps: f32) -> Result<Vec<Dispatch>, DeviceError> {
    let (grad, x) = (cx.source(node, 0)?, cx.source(node, 1)?);
    row_back(cx, node, "rms_norm", x).input("grad", grad).strides("grad", grad, &[1, 2, 3]).float("eps", eps).single()
}

/// SOFT_MAX_BACK.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn soft_max_back(cx: &Context<'_>, node: TensorId, scale: f32) -> Result<Vec<Dispatch>, DeviceError> {
    let (grad, y) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let encoder = row_back(cx, node, "soft_max", y);
    encoder.input("grad", grad).strides("grad", grad, &[1, 2, 3]).float("scale", scale).single()
}

/// CROSS_ENTROPY_LOSS_BACK.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn cross_entropy_loss_back(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let [grad, logits, labels] = [cx.source(node, 0)?, cx.source(node, 1)?, cx.source(node, 2)?];
    let encoder = row_back(cx, node, "cross_entropy", logits).input("grad", grad);
    encoder.input("labels", labels).strides("labels", labels, &[1, 2, 3]).single()
}

fn row_back<'a>(cx: &Context<'a>, node: TensorId, op: &'static str, x: TensorId) -> Encoder<'a> {
    let layout = cx.tensor(node).layout();
    cx.kernel("row_back", node)
        .workgroup(threads_for(layout.ne[0], cx.caps))
        .switch("op", Switch::Str(op))
        .input("x", x)
        .strides("x", x, &[1, 2, 3])
        .output("y", node)
        .shape("y", node, &OUTER)
        .size("rows", layout.rows())
        .groups(layout.rows())
}

/// CROSS_ENTROPY_LOSS: one workgroup at a time, since all rows end in one number; many rows take several dispatches.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn cross_entropy_loss(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (logits, labels) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let layout = cx.tensor(logits).layout();
    let (width, rows) = (layout.ne[0], layout.rows());
    // Turns that the row of one thread takes, or that of all threads: three passes, and the sums over the workgroup.
    let (own, shared) = (threads_for(4 * rows, cx.caps), threads_for(width, cx.caps));
    let own_turns = 3 * width + 1;
    let shared_turns = 3 * width.div_ceil(shared as usize) + 2 * shared as usize / 4 + 17;
    let narrow = rows.div_ceil(own as usize) * own_turns <= rows * shared_turns && own_turns <= MAX_TURNS;
    let (threads, at_once, turns) = if narrow { (own, own as usize, own_turns) } else { (shared, 1, shared_turns) };
    let step = at_once * (MAX_TURNS / turns).max(1);
    let part = |first: usize| {
        cx.kernel("cross_entropy", node)
            .workgroup(threads)
            .switch("narrow", Switch::Bool(narrow))
            .switch("more", Switch::Bool(first > 0))
            .input("x", logits)
            .shape("x", logits, &OUTER)
            .strides("x", logits, &[1, 2, 3])
            .input("labels", labels)
            .strides("labels", labels, &[1, 2, 3])
            .output("y", node)
            .size("rows", rows)
            .size("first", first)
            .size("end", rows.min(first + step))
            .finish()
    };
    (0..rows).step_by(step).map(part).collect()
}

/// OPT_STEP_ADAMW: the moments are written, too.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn opt_step_adamw(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let [m, v] = [cx.source(node, 2)?, cx.source(node, 3)?];
    opt_step(cx, node, &[("m", m), ("v", v)], cx.source(node, 4)?)
}

/// OPT_STEP_SGD.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn opt_step_sgd(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    opt_step(cx, node, &[], cx.source(node, 2)?)
}

fn opt_step(
    cx: &Context<'_>,
    node: TensorId,
    moments: &[(&'static str, TensorId)],
    parameters: TensorId,
) -> Result<Vec<Dispatch>, DeviceError> {
    let grad = cx.source(node, 1)?;
    let layouts = moments.iter().map(|&(_, id)| id).chain([node, grad]);
    let dense = layouts.into_iter().all(|id| cx.tensor(id).layout().is_contiguous());
    let mut encoder = cx
        .kernel("opt_step", node)
        .switch("adamw", Switch::Bool(!moments.is_empty()))
        .switch("dense", Switch::Bool(dense))
        .output("w", node)
        .input("grad", grad)
        .input("parameters", parameters);
    for &(role, id) in moments {
        encoder = encoder.output(role, id);
    }
    encoder = encoder.threads(cx.tensor(node).layout().elements());
    if !dense {
        encoder = encoder.shape("w", node, &OUTER).strides("w", node, &ALL).strides("grad", grad, &ALL);
        for &(role, id) in moments {
            encoder = encoder.strides(role, id, &ALL);
        }
    }
    encoder.single()
}
