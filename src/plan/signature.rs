//! What two graphs must have in common to share a plan.

use super::{Leaves, Limits, Place, PlanOptions};
use crate::graph::{Graph, LeafKind, TensorId};

/// A key that is equal for two graphs exactly if the same plan serves both: structure, shapes, strides, parameters,
/// flags, the place of every leaf, limits and options. Names are not part of it.
///
/// It is the whole description and no hash, so that no two graphs are ever confused. The buffer is used again from one
/// graph to the next.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    bytes: Vec<u8>,
}

impl Signature {
    /// Describes a graph, in place of the one before.
    pub fn describe(&mut self, graph: &Graph, leaves: &Leaves, limits: &Limits, options: &PlanOptions) {
        self.bytes.clear();
        let PlanOptions { matcher, optimize, concurrency, chunks, debug } = *options;
        let Limits { max_buffer_bytes, alignment, max_bindings } = *limits;
        self.bytes.extend_from_slice(&matcher.rows().to_le_bytes());
        self.bytes.extend([optimize, concurrency, debug].map(u8::from));
        [chunks, max_buffer_bytes, alignment, max_bindings].into_iter().for_each(|limit| self.number(limit));
        // The length of the tensor list is that of a placement, and the numbers of tensors are part of a plan.
        [graph.tensors().len(), graph.leaves().len(), graph.nodes().len()].into_iter().for_each(|n| self.number(n));
        for &id in graph.leaves() {
            self.tensor(graph, id);
            self.leaf_slot(leaves, id);
        }
        for &id in graph.nodes() {
            self.tensor(graph, id);
        }
    }

    /// The description.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn number(&mut self, number: usize) {
        self.bytes.extend_from_slice(&(number as u64).to_le_bytes());
    }

    fn id(&mut self, id: Option<TensorId>) {
        // 0 stands for none; ids are 32 bits wide and start at 0.
        let number = id.map_or(0, |id| id.index() as u64 + 1);
        self.bytes.extend_from_slice(&number.to_le_bytes()[..5]);
    }

    fn tensor(&mut self, graph: &Graph, id: TensorId) {
        let tensor = graph.tensor(id);
        let layout = tensor.layout();
        self.id(Some(id));
        let leaf = match tensor.leaf() {
            None => 0,
            Some(LeafKind::Weight) => 1,
            Some(LeafKind::Input) => 2,
            Some(LeafKind::Cache) => 3,
        };
        let words = used(&tensor.op().words(), |&word| word != 0);
        let sources = used(tensor.source_slots(), Option::is_some);
        self.bytes.extend([tensor.kind() as u8, layout.dtype.id(), leaf, tensor.is_output().into()]);
        self.bytes.extend([words, sources].map(|length| length as u8));
        layout.ne.into_iter().chain(layout.nb).for_each(|n| self.number(n));
        for word in &tensor.op().words()[..words] {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        tensor.source_slots()[..sources].iter().for_each(|&source| self.id(source));
        self.id(tensor.view().map(|view| view.root));
        self.number(tensor.view().map_or(0, |view| view.offset));
    }

    fn leaf_slot(&mut self, leaves: &Leaves, id: TensorId) {
        let Some(slot) = leaves.get(&id) else {
            self.bytes.push(0);
            return;
        };
        let (place, number) = match slot.place {
            Place::Arena(arena) => (1, arena),
            Place::Buffer(buffer) => (2, buffer.0),
        };
        self.bytes.push(place);
        [number as usize, slot.offset, slot.bytes].into_iter().for_each(|n| self.number(n));
    }
}

/// Length of a list without the unused entries at its end.
fn used<T>(list: &[T], is_used: impl Fn(&T) -> bool) -> usize {
    list.iter().rposition(is_used).map_or(0, |last| last + 1)
}
