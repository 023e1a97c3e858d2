//! Small graphs, and places for their leaves.

use std::collections::HashMap;
use wgfuse::graph::{BufferClass, DType, Graph, LeafKind, Op, TensorId};
use wgfuse::plan::{BufferId, Leaves, Limits, Place, PlanOptions, Slot};

/// Limits that no small graph meets.
pub const LIMITS: Limits = Limits { max_buffer_bytes: 1 << 30, alignment: 256, max_bindings: 8 };

/// A graph under construction whose every step must succeed.
#[derive(Default)]
pub struct Build {
    pub graph: Graph,
}

impl Build {
    pub fn leaf(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4]) -> TensorId {
        let name = format!("leaf {}", self.graph.tensors().len());
        self.graph.leaf(name, kind, dtype, ne).expect("a leaf")
    }

    pub fn weight(&mut self, ne: [usize; 4]) -> TensorId {
        self.leaf(LeafKind::Weight, DType::F32, ne)
    }

    pub fn input(&mut self, ne: [usize; 4]) -> TensorId {
        self.leaf(LeafKind::Input, DType::F32, ne)
    }

    pub fn cache(&mut self, ne: [usize; 4]) -> TensorId {
        self.leaf(LeafKind::Cache, DType::F32, ne)
    }

    pub fn op(&mut self, op: Op, sources: &[TensorId]) -> TensorId {
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        self.graph.push(op, &sources).expect("an operation that fits")
    }

    pub fn rms_norm(&mut self, a: TensorId) -> TensorId {
        self.op(Op::RmsNorm { eps: 1e-5 }, &[a])
    }

    /// A dense view.
    pub fn view(&mut self, a: TensorId, ne: [usize; 4], offset: usize) -> TensorId {
        let unit = self.graph.tensor(a).dtype().block_bytes();
        let nb = [unit, unit * ne[0], unit * ne[0] * ne[1], unit * ne[0] * ne[1] * ne[2]];
        self.op(Op::View { ne, nb, offset }, &[a])
    }

    /// The graph that computes these tensors, the last of which is its output.
    pub fn done(mut self, wanted: &[TensorId]) -> Graph {
        for &id in wanted {
            self.graph.expand(id).expect("a tensor of this graph");
        }
        if let Some(&last) = wanted.last() {
            self.graph.set_output(last).expect("a tensor of this graph");
        }
        self.graph
    }
}

/// A place for every weight and cache: one buffer for each class.
pub fn leaves(graph: &Graph) -> Leaves {
    let mut ends = HashMap::new();
    let mut leaves = Leaves::new();
    for &id in graph.leaves() {
        let buffer = match graph.class(id) {
            BufferClass::Weight => BufferId(0),
            BufferClass::Cache => BufferId(1),
            BufferClass::Computed => continue,
        };
        let end: &mut usize = ends.entry(buffer).or_default();
        let slot = Slot { place: Place::Buffer(buffer), offset: *end, bytes: graph.tensor(id).layout().extent() };
        *end = slot.end().next_multiple_of(LIMITS.alignment);
        leaves.insert(id, slot);
    }
    leaves
}

/// Nothing fuses, and the builder's order stands.
pub fn plain() -> PlanOptions {
    PlanOptions { matcher: wgfuse::fusion::Matcher::off(), optimize: false, ..PlanOptions::default() }
}
