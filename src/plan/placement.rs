//! Where tensors live.

use crate::graph::{Graph, TensorId};
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

impl Slot {
    /// One past the last byte.
    pub const fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes)
    }

    /// Whether the two have a byte in common.
    pub fn meets(&self, other: &Self) -> bool {
        let apart = self.place != other.place || self.offset >= other.end() || other.offset >= self.end();
        !apart && self.bytes > 0 && other.bytes > 0
    }
}

/// Where the weights and caches of a graph live; an input may be given a place of its own, too.
pub type Leaves = HashMap<TensorId, Slot>;

/// Where every tensor of a graph lives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    pub(super) slots: Vec<Option<Slot>>,
    pub(super) arenas: Vec<usize>,
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
