//! Who touches which memory, before anything has an address: by the tensors that own it.

use super::facts::updated;
use crate::graph::{Graph, TensorId};

/// What running some nodes together touches, by the roots of the memory.
pub(super) struct Access {
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
}

impl Access {
    pub(super) fn of(graph: &Graph, nodes: &[TensorId]) -> Self {
        let written = nodes.iter().copied().filter(|&id| !graph.tensor(id).kind().is_view());
        let updated = nodes.iter().flat_map(|&id| updated(graph.tensor(id)));
        let sources = nodes.iter().flat_map(|&id| graph.tensor(id).sources()).map(|source| graph.root(source));
        Self {
            reads: sources.filter(|root| !nodes.contains(root)).collect(),
            writes: written.chain(updated).map(|id| graph.root(id)).collect(),
        }
    }
}

/// The memory that what runs together touches.
pub(super) struct Touched {
    epoch: u32,
    read: Vec<u32>,
    written: Vec<u32>,
}

impl Touched {
    pub(super) fn new(tensors: usize) -> Self {
        Self { epoch: 1, read: vec![0; tensors], written: vec![0; tensors] }
    }

    /// Forgets everything: marks of earlier epochs do not count.
    pub(super) const fn clear(&mut self) {
        self.epoch += 1;
    }

    pub(super) fn add(&mut self, access: &Access) {
        access.reads.iter().for_each(|root| self.read[root.index()] = self.epoch);
        access.writes.iter().for_each(|root| self.written[root.index()] = self.epoch);
    }

    pub(super) fn conflicts(&self, access: &Access) -> bool {
        let written = |root: &TensorId| self.written[root.index()] == self.epoch;
        let read = |root: &TensorId| self.read[root.index()] == self.epoch;
        access.reads.iter().any(written) || access.writes.iter().any(|root| read(root) || written(root))
    }
}
