//! Tensor graphs: element types, layouts, operations and their shape rules.

mod dtype;

pub use dtype::DType;
