//! One node by itself: where it and what it reads may live before there is a plan for its graph.

use super::split::fatal;
use super::{BufferId, Group, Limits, Place, Placement, PlanError, Slot, prove};
use crate::graph::{BufferClass, Graph, GraphError, TensorId};
use std::collections::HashMap;

/// A placement of a node and its sources alone, each tensor in a buffer of its own.
///
/// # Errors
/// What makes every plan with this node impossible: a tensor that fits no buffer, or memory that the node would
/// overwrite while it reads it.
pub fn place_alone(graph: &Graph, node: TensorId, limits: &Limits) -> Result<Placement, PlanError> {
    let tensor = graph.get(node).ok_or(GraphError::Unknown(node))?;
    let mut slots = HashMap::new();
    for root in std::iter::once(node).chain(tensor.sources()).map(|id| graph.root(id)) {
        let bytes = graph.tensor(root).layout().extent();
        // What the plan places takes whole units of the alignment; the owner of a weight or cache places it.
        let fits = match graph.class(root) {
            BufferClass::Weight | BufferClass::Cache => bytes <= limits.max_buffer_bytes,
            BufferClass::Computed => {
                let room = limits.max_buffer_bytes / limits.alignment * limits.alignment;
                bytes.checked_next_multiple_of(limits.alignment).is_some_and(|bytes| bytes <= room)
            }
        };
        if !fits {
            let name = graph.display_name(root);
            return Err(PlanError::TooLarge { name, bytes, limit: limits.max_buffer_bytes });
        }
        slots.insert(root, Slot { place: Place::Buffer(BufferId(root.index() as u32)), offset: 0, bytes });
    }
    let placement = Placement::new(graph, &slots, Vec::new());
    if !tensor.is_silent() {
        let groups = [Group::single(node)];
        let faults = prove(graph, &placement, &groups);
        if let Some(error) = faults.first().and_then(|&fault| fatal(graph, &groups, fault)) {
            return Err(error);
        }
    }
    Ok(placement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{DType, LeafKind};

    const LIMITS: Limits = Limits { max_buffer_bytes: 1000, alignment: 256, max_bindings: 8 };

    #[test]
    fn tensors_must_fit_a_buffer() {
        let mut graph = Graph::new();
        let mut sum = |kind, elements| {
            let leaf = graph.leaf("x", kind, DType::F32, [elements, 1, 1, 1]).unwrap();
            let node = graph.sum_rows(leaf).unwrap();
            place_alone(&graph, node, &LIMITS).map(|placement| placement.slot(&graph, leaf).unwrap().bytes)
        };
        assert_eq!(sum(LeafKind::Weight, 250), Ok(1000));
        assert!(matches!(sum(LeafKind::Weight, 251), Err(PlanError::TooLarge { bytes: 1004, limit: 1000, .. })));
        // Three units of the alignment are the most that a plan gives.
        assert_eq!(sum(LeafKind::Input, 192), Ok(768));
        assert!(matches!(sum(LeafKind::Input, 193), Err(PlanError::TooLarge { .. })));
    }

    #[test]
    fn a_node_must_not_overwrite_what_it_reads() {
        let mut graph = Graph::new();
        let cache = graph.leaf("x", LeafKind::Cache, DType::F32, [64, 1, 1, 1]).unwrap();
        let mut copy = |from, to| {
            let [from, to] = [from, to].map(|offset| graph.view(cache, [32, 1, 1, 1], [4, 128, 128, 128], offset));
            let node = graph.cpy(from.unwrap(), to.unwrap()).unwrap();
            place_alone(&graph, node, &LIMITS).map(drop)
        };
        assert_eq!(copy(0, 128), Ok(()));
        assert!(matches!(copy(0, 64), Err(PlanError::Overlap { .. })));
    }

    #[test]
    fn a_node_of_another_graph_is_refused() {
        let mut graph = Graph::new();
        let leaf = graph.leaf("x", LeafKind::Input, DType::F32, [4; 4]).unwrap();
        assert!(matches!(place_alone(&Graph::new(), leaf, &LIMITS), Err(PlanError::Graph(GraphError::Unknown(_)))));
    }
}
