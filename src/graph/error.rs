//! What can be wrong with a graph.

use super::{DType, OpKind, TensorId};

/// Why a tensor could not be added to a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// A source has a shape, type or layout that the operation does not take.
    #[error("{op}: source {index} is {found}, expected {expected}")]
    Source {
        /// The operation.
        op: OpKind,
        /// Which source.
        index: usize,
        /// The source's type and shape.
        found: String,
        /// What the operation takes.
        expected: String,
    },
    /// A source that the operation needs was not given, or one was given that it does not take.
    #[error("{op}: {given} sources given, expected {expected}")]
    Arity {
        /// The operation.
        op: OpKind,
        /// Sources given.
        given: usize,
        /// Sources taken.
        expected: String,
    },
    /// A parameter is outside its range.
    #[error("{op}: {name} is {found}, expected {expected}")]
    Parameter {
        /// The operation.
        op: OpKind,
        /// The parameter.
        name: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// A view reaches outside the memory it looks at.
    #[error("{op}: the view ends at byte {end} of {available}")]
    OutOfBounds {
        /// The operation.
        op: OpKind,
        /// One past the last byte viewed.
        end: usize,
        /// Bytes of the tensor that owns the memory.
        available: usize,
    },
    /// The operation would write a weight, which is constant for the life of a model.
    #[error("{op}: it would write the weight `{name}`, expected an input, a cache or a result")]
    Constant {
        /// The operation.
        op: OpKind,
        /// The weight's name.
        name: String,
    },
    /// The tensor's size does not fit the address space, or its row is no whole number of blocks.
    #[error("{dtype} {ne:?} has no size: it overflows or its rows are not whole blocks")]
    Size {
        /// Element type.
        dtype: DType,
        /// Shape.
        ne: [usize; 4],
    },
    /// The id belongs to no tensor of this graph.
    #[error("tensor {0:?} is not in this graph")]
    Unknown(TensorId),
}
