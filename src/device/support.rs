//! What every device is asked about a node before it is asked for a kernel.

use super::DeviceError;
use crate::graph::{Graph, GraphError, TensorId};
use crate::plan::{Limits, Placement, PlanError, place_alone};
use std::fmt::Write as _;

/// A placement of a node alone for which to ask whether there is a kernel; `None` when the node needs none.
///
/// # Errors
/// [`DeviceError::Plan`] for a node that is not of this graph, [`DeviceError::Unsupported`] for one that no plan for
/// these limits can have.
pub(crate) fn placed(
    device: &str,
    limits: &Limits,
    graph: &Graph,
    node: TensorId,
) -> Result<Option<Placement>, DeviceError> {
    let unknown = || DeviceError::Plan { reason: GraphError::Unknown(node).to_string() };
    let tensor = graph.get(node).ok_or_else(unknown)?;
    let refused = |error: PlanError| {
        let (device, detail) = (device.to_owned(), error.to_string());
        described(graph, node, DeviceError::Unsupported { device, op: tensor.kind(), detail })
    };
    let placement = place_alone(graph, node, limits).map_err(refused)?;
    Ok((!tensor.is_silent()).then_some(placement))
}

/// A refusal with the types and shapes of the node's sources and result before the reason.
pub(crate) fn described(graph: &Graph, node: TensorId, error: DeviceError) -> DeviceError {
    let DeviceError::Unsupported { device, op, detail: reason } = error else { return error };
    let mut detail = String::new();
    for (index, id) in graph.tensor(node).sources().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(detail, "{separator}{}", graph.tensor(id).layout());
    }
    let to = if detail.is_empty() { "" } else { " to " };
    let _ = write!(detail, "{to}{}: {reason}", graph.tensor(node).layout());
    DeviceError::Unsupported { device, op, detail }
}
