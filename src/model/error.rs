//! What can be wrong with a model.

use super::MAX_CONTEXT;
use crate::gguf;
use crate::graph::GraphError;

/// Why a model cannot be described, loaded or turned into a graph.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No row of the table has this name.
    #[error("architecture `{name}` is unknown; the nearest known ones are {}", nearest.join(", "))]
    UnknownArch {
        /// The name asked for.
        name: String,
        /// Known names, the nearest first.
        nearest: Vec<&'static str>,
    },
    /// The architecture has no dummy with experts, or none without.
    #[error("architecture `{arch}` has no model {} experts", if *experts { "with" } else { "without" })]
    Variant {
        /// The architecture.
        arch: &'static str,
        /// Whether experts were asked for.
        experts: bool,
    },
    /// A metadata key that the architecture needs is not there.
    #[error("metadata key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata key has a value of another type, or one outside its range.
    #[error("metadata key `{key}` is {found}, expected {expected}")]
    WrongValue {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// A tensor that the architecture needs is not there.
    #[error("tensor `{tensor}` is missing")]
    MissingTensor {
        /// The tensor.
        tensor: String,
    },
    /// A tensor does not have the shape that the metadata asks for.
    #[error("tensor `{tensor}` has shape {given:?}, expected {expected:?}")]
    WrongShape {
        /// The tensor.
        tensor: String,
        /// Its shape.
        given: [usize; 4],
        /// The shape by the metadata.
        expected: [usize; 4],
    },
    /// The architecture has no use for a tensor, so the model is not what it says.
    #[error("tensor `{tensor}` does not belong to a model of architecture `{arch}`")]
    UnexpectedTensor {
        /// The tensor.
        tensor: String,
        /// The architecture.
        arch: &'static str,
    },
    /// No tensor of the model has this name.
    #[error("the model has no tensor `{tensor}`")]
    UnknownTensor {
        /// The name asked for.
        tensor: String,
    },
    /// The numbers that describe a graph contradict each other.
    #[error(
        "no graph for {n_tokens} tokens, {n_outputs} of them outputs, and {n_kv} of {n_ctx} cache rows: expected \
         1 to {n_ctx} tokens, at most as many outputs, 1 to {n_ctx} rows to read, and at most {MAX_CONTEXT} rows"
    )]
    Batch {
        /// Tokens.
        n_tokens: usize,
        /// Tokens whose logits are wanted.
        n_outputs: usize,
        /// Cache rows that attention reads.
        n_kv: usize,
        /// Cache rows.
        n_ctx: usize,
    },
    /// The context is longer than the model has learned positions for.
    #[error("a context of {n_ctx} rows needs as many positions, and the model has learned {learned}")]
    Positions {
        /// Cache rows.
        n_ctx: usize,
        /// Positions of the training.
        learned: usize,
    },
    /// What went wrong while one layer was described or built.
    #[error("layer {layer}: {source}")]
    Layer {
        /// The layer, from 0.
        layer: usize,
        /// The error.
        source: Box<ModelError>,
    },
    /// The graph refuses an operation: a tensor has a type or shape that it does not take.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The file could not be read or written.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
}

impl ModelError {
    /// The same error, said of a layer.
    pub(super) fn in_layer(self, layer: usize) -> Self {
        Self::Layer { layer, source: Box::new(self) }
    }
}
