//! Why there is no plan for a graph.

use crate::graph::{Graph, GraphError, LeafKind, OpKind, Tensor, TensorId};
use std::fmt;

/// A node as errors and reports name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Its operation.
    pub op: OpKind,
    /// Its name, or its number if it has none.
    pub name: String,
}

impl NodeName {
    /// A node that is not of this graph has only its number.
    pub(super) fn of(graph: &Graph, id: TensorId) -> Self {
        Self { op: graph.get(id).map_or(OpKind::None, Tensor::kind), name: graph.display_name(id) }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.op, self.name)
    }
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
    /// A leaf was given memory in an arena, which belongs to the plan alone.
    #[error("leaf `{name}` was placed in arena {arena} of the plan, expected a buffer of its own")]
    LeafInArena {
        /// Its name.
        name: String,
        /// The arena.
        arena: u32,
    },
    /// A leaf that the graph writes has memory in common with another one.
    #[error("`{name}`, which the graph writes, and `{other}` were given memory that overlaps")]
    SharedLeaves {
        /// The leaf that is written.
        name: String,
        /// The other leaf.
        other: String,
    },
    /// The memory given to a tensor is smaller than the tensor, or reaches past its buffer.
    #[error("`{name}` was given {given} bytes, expected {expected}")]
    SlotSize {
        /// Its name.
        name: String,
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        expected: usize,
    },
    /// The memory given to a tensor starts where the device cannot reach it.
    #[error("`{name}` was placed at byte {given}, expected a multiple of {expected}")]
    SlotAlignment {
        /// Its name.
        name: String,
        /// Offset given.
        given: usize,
        /// The device's alignment.
        expected: usize,
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
    /// The device's limits contradict each other.
    #[error("limit {name} is {given}, expected {expected}")]
    Limits {
        /// Which limit.
        name: &'static str,
        /// Its value.
        given: usize,
        /// What it may be.
        expected: String,
    },
    /// A single operation writes memory that it reads, other than in the ways its kernel allows.
    #[error("{node} writes memory that {other} occupies; the two must not overlap")]
    Overlap {
        /// The operation that writes.
        node: NodeName,
        /// What it reads there.
        other: NodeName,
    },
    /// An operation reads a tensor that has no memory.
    #[error("{node} reads {source_name}, which has no memory")]
    Unstored {
        /// The operation that reads.
        node: NodeName,
        /// What it reads.
        source_name: NodeName,
    },
    /// The graph is not sound.
    #[error(transparent)]
    Graph(#[from] GraphError),
}
