//! Where tensors live.

use super::{Limits, PlanError};
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

    /// Whether it can hold a tensor on a device with these limits.
    pub(super) fn check(&self, graph: &Graph, id: TensorId, limits: &Limits) -> Result<(), PlanError> {
        let name = || graph.display_name(id);
        let expected = graph.tensor(id).layout().extent();
        if self.bytes < expected || self.offset.checked_add(self.bytes).is_none() {
            return Err(PlanError::SlotSize { name: name(), given: self.bytes, expected });
        }
        if !self.offset.is_multiple_of(limits.alignment) {
            return Err(PlanError::SlotAlignment { name: name(), given: self.offset, expected: limits.alignment });
        }
        Ok(())
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
    /// A placement made elsewhere: a slot for every tensor that owns memory, and the sizes of the arenas they name.
    pub fn new(graph: &Graph, slots: &HashMap<TensorId, Slot>, arenas: Vec<usize>) -> Self {
        let mut placed = vec![None; graph.tensors().len()];
        for (id, slot) in slots {
            if let Some(place) = placed.get_mut(id.index()) {
                *place = Some(*slot);
            }
        }
        Self { slots: placed, arenas }
    }

    /// Whether every tensor that has a slot fits it, and every slot its arena.
    pub(super) fn check(&self, graph: &Graph, limits: &Limits) -> Result<(), PlanError> {
        for &id in graph.leaves().iter().chain(graph.nodes()) {
            let Some(slot) = self.slots.get(id.index()).copied().flatten() else { continue };
            slot.check(graph, id, limits)?;
            let Place::Arena(arena) = slot.place else { continue };
            let size = self.arenas.get(arena as usize).copied().unwrap_or(0);
            if slot.end() > size {
                let given = size.saturating_sub(slot.offset);
                return Err(PlanError::SlotSize { name: graph.display_name(id), given, expected: slot.bytes });
            }
        }
        Ok(())
    }

    /// The bytes a tensor occupies, views resolved to their root; `None` for tensors that a fused kernel never stores.
    pub fn slot(&self, graph: &Graph, id: TensorId) -> Option<Slot> {
        let tensor = graph.get(id)?;
        let (root, offset) = tensor.view().map_or((id, 0), |view| (view.root, view.offset));
        let slot = (*self.slots.get(root.index())?)?;
        // A slot that somebody else made may start anywhere.
        let offset = slot.offset.saturating_add(offset);
        Some(Slot { place: slot.place, offset, bytes: tensor.layout().extent() })
    }

    /// Bytes of each arena.
    pub fn arenas(&self) -> &[usize] {
        &self.arenas
    }
}
