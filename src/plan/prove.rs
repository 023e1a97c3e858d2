//! The proof that no kernel overwrites what it still reads, from where everything lies.

use super::facts::{Memory, facts, read_slots, updated_slots};
use super::{Group, Placement, Slot};
use crate::graph::{Graph, TensorId};

/// What is wrong with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The result of one node lies where another tensor does that the group reads or writes.
    Overlap {
        /// Position of the group.
        group: usize,
        /// The node that writes, or the source that it updates.
        written: TensorId,
        /// What else lies there.
        other: TensorId,
    },
    /// The group reads a tensor that has no memory, or writes one.
    Unstored {
        /// Position of the group.
        group: usize,
        /// The node.
        node: TensorId,
        /// The tensor.
        tensor: TensorId,
    },
}

impl Fault {
    /// Position of the group.
    pub const fn group(&self) -> usize {
        match *self {
            Self::Overlap { group, .. } | Self::Unstored { group, .. } => group,
        }
    }
}

/// The first fault of every group that has one.
///
/// Whole ranges are compared, from the first byte to the last: views are resolved, leaves count like results, and
/// interleaved strided tensors meet.
pub fn prove(graph: &Graph, placement: &Placement, groups: &[Group]) -> Vec<Fault> {
    let fault = |(at, group)| prove_group(graph, placement, at, group).err();
    groups.iter().enumerate().filter_map(fault).collect()
}

fn prove_group(graph: &Graph, placement: &Placement, at: usize, group: &Group) -> Result<(), Fault> {
    let slot = |node: TensorId, tensor: TensorId| {
        placement.slot(graph, tensor).ok_or(Fault::Unstored { group: at, node, tensor })
    };
    let mut written: Vec<Written> = Vec::new();
    for id in group.stored() {
        written.push(Written { id, update: None, slot: slot(id, id)? });
    }
    for &node in &group.nodes {
        for (update, id) in graph.get(node).into_iter().flat_map(updated_slots) {
            written.push(Written { id, update: Some(update), slot: slot(node, id)? });
        }
    }
    for &node in &group.nodes {
        let tensor = graph.get(node).ok_or(Fault::Unstored { group: at, node, tensor: node })?;
        for (index, source) in read_slots(tensor) {
            // What a member computes reaches the others inside the kernel.
            if group.nodes.contains(&graph.root(source)) {
                continue;
            }
            let read = slot(node, source)?;
            let meets = |written: &&Written| {
                written.slot.meets(&read) && !in_place(graph, group, written, (index, source), &read)
            };
            if let Some(written) = written.iter().find(meets) {
                return Err(Fault::Overlap { group: at, written: written.id, other: source });
            }
        }
    }
    for (index, one) in written.iter().enumerate() {
        if let Some(other) = written[..index].iter().find(|other| other.slot.meets(&one.slot)) {
            return Err(Fault::Overlap { group: at, written: one.id, other: other.id });
        }
    }
    Ok(())
}

/// Memory that a group writes.
struct Written {
    /// The node whose result it is, or the source that is updated.
    id: TensorId,
    /// The slot of that source.
    update: Option<usize>,
    slot: Slot,
}

/// Whether a lone operation that may work in place does so on exactly its own source.
fn in_place(graph: &Graph, group: &Group, written: &Written, (index, source): (usize, TensorId), read: &Slot) -> bool {
    let &[node] = group.nodes.as_slice() else { return false };
    if let Some(update) = written.update {
        return index == update;
    }
    let (result, given) = (graph.tensor(node), graph.tensor(source));
    match facts(result.kind()).result {
        Memory::InPlace(slot) => slot == index && written.slot == *read && result.layout() == given.layout(),
        Memory::Own | Memory::Over(_) => false,
    }
}
