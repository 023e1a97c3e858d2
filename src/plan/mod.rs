//! From a graph to a plan: what runs in which order, what runs as one kernel, and where every tensor lives.

use crate::fusion::Fusion;
use crate::graph::{Graph, GraphError, LeafKind, TensorId};
use std::collections::HashMap;

/// A buffer of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Which buffer a range lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// One of the plan's own arenas, which hold inputs and results.
    Arena(u32),
    /// A buffer that outlives the plan: weights or caches.
    Buffer(BufferId),
}

/// A range of bytes in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The buffer.
    pub place: Place,
    /// First byte.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// Where the weights and caches of a graph live.
pub type Leaves = HashMap<TensorId, Slot>;

/// Where every tensor of a graph lives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    slots: Vec<Option<Slot>>,
    arenas: Vec<usize>,
}

impl Placement {
    /// The bytes a tensor occupies, views resolved to their root; `None` for tensors that a fused kernel never stores.
    pub fn slot(&self, graph: &Graph, id: TensorId) -> Option<Slot> {
        let tensor = graph.get(id)?;
        let (root, offset) = tensor.view().map_or((id, 0), |view| (view.root, view.offset));
        let slot = (*self.slots.get(root.index())?)?;
        Some(Slot { place: slot.place, offset: slot.offset + offset, bytes: tensor.layout().extent() })
    }

    /// Bytes of each arena.
    pub fn arenas(&self) -> &[usize] {
        &self.arenas
    }
}

/// Nodes that one kernel executes.
#[derive(Clone, Debug)]
pub struct Group {
    /// The row of the table, for more than one node.
    pub fusion: Option<&'static Fusion>,
    /// The nodes in the row's order; views and empty tensors are in no group.
    pub nodes: Vec<TensorId>,
}

/// What runs, in which order, and where everything lives.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The groups in execution order.
    pub groups: Vec<Group>,
    /// Where every tensor lives.
    pub placement: Placement,
}

/// What a device allows a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes that one buffer may have and one kernel can reach at once.
    pub max_buffer_bytes: usize,
    /// Every slot starts at a multiple of so many bytes.
    pub alignment: usize,
    /// Storage buffers that one kernel can bind.
    pub max_bindings: usize,
}

/// Why there is no plan for a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A weight or cache has no memory.
    #[error("the {kind:?} leaf `{name}` has no memory; every weight and cache must be placed")]
    Unplaced {
        /// Its name.
        name: String,
        /// What it is for.
        kind: LeafKind,
    },
    /// A tensor is larger than any buffer of the device.
    #[error("tensor `{name}` takes {bytes} bytes, a buffer of this device has at most {limit}")]
    TooLarge {
        /// Its name.
        name: String,
        /// Its size.
        bytes: usize,
        /// The device's limit.
        limit: usize,
    },
    /// The graph is not sound.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Plans a graph.
///
/// # Errors
/// When a leaf is not placed or a tensor does not fit a buffer.
pub fn plan(graph: &Graph, leaves: &Leaves, limits: &Limits) -> Result<Plan, PlanError> {
    let mut placement = Placement { slots: vec![None; graph.tensors().len()], arenas: vec![0] };
    let computed = graph.nodes().iter().copied().filter(|&id| graph.tensor(id).view().is_none());
    for id in graph.leaves().iter().copied().chain(computed) {
        let tensor = graph.tensor(id);
        let bytes = tensor.layout().extent();
        let slot = match tensor.leaf() {
            Some(kind @ (LeafKind::Weight | LeafKind::Cache)) => {
                *leaves.get(&id).ok_or_else(|| PlanError::Unplaced { name: tensor.name().to_owned(), kind })?
            }
            Some(LeafKind::Input) | None => {
                let offset = placement.arenas[0].next_multiple_of(limits.alignment);
                placement.arenas[0] = offset + bytes;
                Slot { place: Place::Arena(0), offset, bytes }
            }
        };
        placement.slots[id.index()] = Some(slot);
    }
    let groups = graph
        .nodes()
        .iter()
        .filter(|&&id| !graph.tensor(id).is_silent())
        .map(|&id| Group { fusion: None, nodes: vec![id] })
        .collect();
    Ok(Plan { groups, placement })
}
