//! The proof that no kernel overwrites what it still reads, from where everything lies.

use super::facts::{Memory, facts, reads};
use super::{Group, Placement, Slot};
use crate::graph::{Graph, TensorId};

/// What is wrong with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The result of one node lies where another tensor does that the group reads or writes.
    Overlap {
        /// Position of the group.
        group: usize,
        /// The node that writes.
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
    let written: Vec<(TensorId, Slot)> = group.stored().map(|id| Ok((id, slot(id, id)?))).collect::<Result<_, _>>()?;
    for &node in &group.nodes {
        let tensor = graph.get(node).ok_or(Fault::Unstored { group: at, node, tensor: node })?;
        for source in reads(tensor) {
            // What a member computes reaches the others inside the kernel.
            if group.nodes.contains(&graph.root(source)) {
                continue;
            }
            let read = slot(node, source)?;
            let meets = |(_, result): &&(TensorId, Slot)| {
                result.meets(&read) && !in_place(graph, group, source, [result, &read])
            };
            if let Some(&(id, _)) = written.iter().find(meets) {
                return Err(Fault::Overlap { group: at, written: id, other: source });
            }
        }
    }
    for (index, (id, slot)) in written.iter().enumerate() {
        if let Some(&(other, _)) = written[..index].iter().find(|(_, other)| other.meets(slot)) {
            return Err(Fault::Overlap { group: at, written: *id, other });
        }
    }
    Ok(())
}

/// Whether a lone operation that may work in place does so on exactly its own source.
fn in_place(graph: &Graph, group: &Group, source: TensorId, [written, read]: [&Slot; 2]) -> bool {
    let &[node] = group.nodes.as_slice() else { return false };
    let (result, given) = (graph.tensor(node), graph.tensor(source));
    match facts(result.kind()).result {
        Memory::InPlace(slot) => {
            result.src(slot) == Some(source) && written == read && result.layout() == given.layout()
        }
        Memory::Own | Memory::Over(_) => false,
    }
}
