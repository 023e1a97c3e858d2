//! What the matcher looks at: the operations of a graph, without those that only re-read memory.

use crate::graph::{Graph, OpKind, TensorId};

/// How much is known when the table is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Before anything has memory: only the graph's structure decides.
    Structural,
    /// When the class of every buffer is known.
    Full,
}

/// Nodes of a graph in some order, views left out.
#[derive(Clone, Debug)]
pub struct Sequence<'g> {
    graph: &'g Graph,
    mode: Mode,
    nodes: Vec<TensorId>,
}

impl<'g> Sequence<'g> {
    /// The nodes of `order` that the table is asked about in this mode.
    ///
    /// Tensors without elements stay in a structural sequence and break it; they need no kernel, so that the full one
    /// leaves them out.
    pub fn new(graph: &'g Graph, order: &[TensorId], mode: Mode) -> Self {
        let matched = |id: &TensorId| {
            graph.get(*id).is_some_and(|tensor| match mode {
                Mode::Structural => !tensor.kind().is_view(),
                Mode::Full => !tensor.is_silent(),
            })
        };
        Self { graph, mode, nodes: order.iter().copied().filter(matched).collect() }
    }

    /// The graph.
    pub const fn graph(&self) -> &'g Graph {
        self.graph
    }

    /// How much is known.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The nodes.
    pub fn nodes(&self) -> &[TensorId] {
        &self.nodes
    }

    /// The nodes from `at` on, if they begin with these kinds.
    pub fn span(&self, at: usize, kinds: &[OpKind]) -> Option<&[TensorId]> {
        let span = self.nodes.get(at..at.checked_add(kinds.len())?)?;
        span.iter().zip(kinds).all(|(&id, &kind)| self.graph.tensor(id).kind() == kind).then_some(span)
    }
}
