//! NORM and RMS_NORM, alone and with the MUL and ADD after them.

use super::threads_for;
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Switch};
use crate::graph::{Op, TensorId};

/// Encodes a norm node, or a norm with the product (and the sum) that the table fuses with it.
///
/// # Errors
/// [`DeviceError::Unsupported`] when a weight or bias row is not as long as the norm's rows.
pub fn norm(cx: &Context<'_>, nodes: &[TensorId]) -> Result<Vec<Dispatch>, DeviceError> {
    let (Some(&norm), Some(&last)) = (nodes.first(), nodes.last()) else { return Ok(Vec::new()) };
    let (centred, eps) = if let Op::Norm { eps } = *cx.tensor(norm).op() {
        (true, eps)
    } else if let Op::RmsNorm { eps } = *cx.tensor(norm).op() {
        (false, eps)
    } else {
        return Err(cx.unsupported(cx.tensor(norm).kind(), "normalising"));
    };
    let width = cx.tensor(norm).ne()[0];
    // What a step combines with the result of the step before it.
    let operand = |step: usize| -> Result<Option<TensorId>, DeviceError> {
        let Some(&node) = nodes.get(step) else { return Ok(None) };
        let (a, b) = (cx.source(node, 0)?, cx.source(node, 1)?);
        let other = if a == nodes[step - 1] { b } else { a };
        if cx.tensor(other).ne()[0] == width && cx.tensor(other).layout().has_contiguous_rows() {
            Ok(Some(other))
        } else {
            Err(cx.unsupported(cx.tensor(node).kind(), format!("a row of {width} with {}", cx.tensor(other).layout())))
        }
    };
    let source = cx.source(norm, 0)?;
    let layout = cx.tensor(norm).layout();
    let mut encoder = cx
        .kernel("norm", norm)
        .workgroup(threads_for(width, cx.caps))
        .switch("centred", Switch::Bool(centred))
        .input("x", source)
        .strides("x", source, &[1, 2, 3])
        .output("y", last)
        .shape("y", norm, &[0, 1, 2])
        .size("rows", layout.rows())
        .float("eps", eps);
    for (role, has, step) in [("w", "has_w", 1), ("b", "has_b", 2)] {
        let other = operand(step)?;
        encoder = encoder.optional_input(role, has, other);
        if let Some(other) = other {
            encoder = encoder.shape(role, other, &[1, 2, 3]).strides(role, other, &[1, 2, 3]);
        }
    }
    Ok(vec![encoder.groups(layout.rows()).finish()?])
}
