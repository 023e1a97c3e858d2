//! ARGSORT.

use super::threads_for;
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Switch};
use crate::graph::{SortOrder, TensorId};

/// Bytes of workgroup memory per element: its key and its index.
const SLOT_BYTES: usize = 8;

/// Encodes an ARGSORT node.
///
/// # Errors
/// [`DeviceError::Unsupported`] when something does not fit 32 bits.
pub fn argsort(cx: &Context<'_>, node: TensorId, order: SortOrder) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let layout = cx.tensor(node).layout();
    let (length, rows) = (layout.ne[0], layout.rows());
    let padded = length.next_power_of_two().max(2);
    let fits = padded * SLOT_BYTES <= cx.caps.max_workgroup_bytes as usize;
    let (slots, threads, groups) = if fits {
        (padded as u32, threads_for(2 * padded, cx.caps), rows)
    } else {
        let threads = threads_for(length, cx.caps);
        (0, threads, rows * length.div_ceil(threads as usize))
    };
    let dispatch = cx
        .kernel("argsort", node)
        .workgroup(threads)
        .switch("descending", Switch::Bool(order == SortOrder::Descending))
        .switch("slots", Switch::Int(slots))
        .input("x", source)
        .strides("x", source, &[1, 2, 3])
        .output("y", node)
        .shape("y", node, &[0, 1, 2])
        .size("rows", rows)
        .groups(groups)
        .finish()?;
    Ok(vec![dispatch])
}
