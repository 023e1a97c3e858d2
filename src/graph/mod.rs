//! Tensor graphs: element types, layouts, operations and their shape rules.
//!
//! A [`Graph`] owns its tensors. Builder methods check everything and return a [`TensorId`]; a tensor becomes part of
//! the execution order when it or something that reads it is [expanded](Graph::expand).

mod block_format;
mod build;
mod dtype;
mod error;
mod infer;
mod op;
mod tensor;

pub use block_format::BlockFormat;
pub use dtype::DType;
pub use error::GraphError;
pub use infer::{Inferred, infer};
pub use op::{
    FlashAttn, Glu, MatrixHint, Op, OpKind, PARAM_WORDS, Precision, Rope, RopeMode, SortOrder, Triangle, Unary, Window,
    Xielu,
};
pub use tensor::{BufferClass, Layout, LeafKind, MAX_SOURCES, Tensor, TensorId, ViewOf};

/// A graph of tensors and the order in which to compute them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    tensors: Vec<Tensor>,
    nodes: Vec<TensorId>,
    leaves: Vec<TensorId>,
    expanded: Vec<bool>,
    uses: Vec<u32>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// All tensors, in the order they were made.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor with an id of this graph.
    ///
    /// # Panics
    /// If the id came from a larger graph; see [`Graph::get`].
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// The tensor with this id, if it is of this graph.
    pub fn get(&self, id: TensorId) -> Option<&Tensor> {
        self.tensors.get(id.index())
    }

    /// The expanded operations (views included, leaves not) in execution order.
    pub fn nodes(&self) -> &[TensorId] {
        &self.nodes
    }

    /// The leaves that expanded nodes read, in the order of first use.
    pub fn leaves(&self) -> &[TensorId] {
        &self.leaves
    }

    /// How many source slots of expanded nodes name this tensor; views count as users.
    pub fn uses(&self, id: TensorId) -> u32 {
        self.uses.get(id.index()).copied().unwrap_or(0)
    }

    /// Whether the tensor is one of [`Graph::nodes`] or [`Graph::leaves`].
    pub fn is_expanded(&self, id: TensorId) -> bool {
        self.expanded.get(id.index()).copied().unwrap_or(false)
    }

    /// The tensor whose memory this one uses: its view's root, or itself.
    ///
    /// # Panics
    /// If the id came from a larger graph.
    pub fn root(&self, id: TensorId) -> TensorId {
        self.tensor(id).view.map_or(id, |view| view.root)
    }

    /// What kind of buffer the tensor's memory is in.
    ///
    /// # Panics
    /// If the id came from a larger graph.
    pub fn class(&self, id: TensorId) -> BufferClass {
        match self.tensor(self.root(id)).leaf {
            Some(LeafKind::Weight) => BufferClass::Weight,
            Some(LeafKind::Cache) => BufferClass::Cache,
            Some(LeafKind::Input) | None => BufferClass::Computed,
        }
    }

    /// The first tensor with this name.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.tensors.iter().position(|tensor| tensor.name == name).map(|index| TensorId(index as u32))
    }

    /// What messages call a tensor: its name, or its number if it has none.
    pub fn display_name(&self, id: TensorId) -> String {
        match self.get(id).map(Tensor::name) {
            Some(name) if !name.is_empty() => name.to_owned(),
            Some(_) | None => format!("#{}", id.index()),
        }
    }

    /// Names a tensor, for reports.
    ///
    /// # Errors
    /// [`GraphError::Unknown`].
    pub fn set_name(&mut self, id: TensorId, name: impl Into<String>) -> Result<(), GraphError> {
        self.tensors.get_mut(id.index()).ok_or(GraphError::Unknown(id))?.name = name.into();
        Ok(())
    }

    /// Marks a tensor as wanted by the caller: its result stays readable and is never fused away.
    ///
    /// # Errors
    /// [`GraphError::Unknown`].
    pub fn set_output(&mut self, id: TensorId) -> Result<(), GraphError> {
        self.tensors.get_mut(id.index()).ok_or(GraphError::Unknown(id))?.output = true;
        Ok(())
    }

    /// Adds a tensor and everything it reads to the execution order: depth first, sources in order, each once.
    ///
    /// # Errors
    /// [`GraphError::Unknown`].
    pub fn expand(&mut self, id: TensorId) -> Result<(), GraphError> {
        if id.index() >= self.tensors.len() {
            return Err(GraphError::Unknown(id));
        }
        // An explicit stack: a graph may be deeper than a thread's stack.
        let mut path = vec![(id, 0)];
        while let Some((current, slot)) = path.pop() {
            if self.expanded[current.index()] {
                continue;
            }
            let pending = self.tensors[current.index()].src[slot..]
                .iter()
                .enumerate()
                .find_map(|(ahead, source)| source.filter(|s| !self.expanded[s.index()]).map(|s| (slot + ahead, s)));
            if let Some((at, source)) = pending {
                path.push((current, at + 1));
                path.push((source, 0));
            } else {
                self.append(current);
            }
        }
        Ok(())
    }

    fn append(&mut self, id: TensorId) {
        self.expanded[id.index()] = true;
        if self.tensors[id.index()].leaf.is_some() {
            self.leaves.push(id);
            return;
        }
        self.nodes.push(id);
        for slot in 0..MAX_SOURCES {
            if let Some(source) = self.tensors[id.index()].src[slot] {
                self.uses[source.index()] += 1;
            }
        }
    }
}
