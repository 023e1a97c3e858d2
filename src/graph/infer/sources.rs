//! The sources of one operation, and the checks that its rules are made of.

use crate::graph::tensor::Layout;
use crate::graph::{DType, GraphError, OpKind, Tensor};

/// Layout of an operation's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inferred {
    /// Type, shape and strides of the result.
    pub layout: Layout,
    /// The result lives in the memory of this source, so many bytes from its start.
    pub shares: Option<(usize, usize)>,
}

impl Inferred {
    pub(super) fn fresh(dtype: DType, ne: [usize; 4]) -> Result<Self, GraphError> {
        Ok(Self { layout: Layout::contiguous(dtype, ne)?, shares: None })
    }

    pub(super) const fn shared(layout: Layout, source: usize, offset: usize) -> Self {
        Self { layout, shares: Some((source, offset)) }
    }
}

/// The sources of one operation while its rules are checked.
pub(super) struct Sources<'a> {
    pub(super) op: OpKind,
    pub(super) given: &'a [Option<&'a Tensor>],
}

impl<'a> Sources<'a> {
    /// The first `N` sources, all of which must be there.
    pub(super) fn required<const N: usize>(&self, optional: usize) -> Result<[&'a Tensor; N], GraphError> {
        let arity = || {
            let expected = if optional == 0 { format!("{N}") } else { format!("{N} to {}", N + optional) };
            GraphError::Arity { op: self.op, given: self.given.iter().flatten().count(), expected }
        };
        if self.given.iter().skip(N + optional).flatten().next().is_some() {
            return Err(arity());
        }
        let first: Vec<&Tensor> = self.given.iter().take(N).copied().flatten().collect();
        first.try_into().map_err(|_| arity())
    }

    pub(super) fn optional(&self, index: usize) -> Option<&'a Tensor> {
        self.given.get(index).copied().flatten()
    }

    pub(super) fn check(&self, index: usize, holds: bool, expected: impl FnOnce() -> String) -> Result<(), GraphError> {
        if holds {
            return Ok(());
        }
        let found = self.optional(index).map_or_else(|| "missing".to_owned(), |t| t.layout.to_string());
        Err(GraphError::Source { op: self.op, index, found, expected: expected() })
    }

    pub(super) fn float(&self, index: usize) -> Result<(), GraphError> {
        let holds = self.optional(index).is_none_or(|t| t.dtype().is_float());
        self.check(index, holds, || "a floating-point type".to_owned())
    }

    pub(super) fn real(&self, index: usize) -> Result<(), GraphError> {
        let holds = self.optional(index).is_none_or(|t| t.dtype().is_real());
        self.check(index, holds, || "a floating-point type, quantized or not".to_owned())
    }

    pub(super) fn typed(&self, index: usize, dtype: DType) -> Result<(), GraphError> {
        let holds = self.optional(index).is_none_or(|t| t.dtype() == dtype);
        self.check(index, holds, || dtype.to_string())
    }

    pub(super) fn dense_rows(&self, index: usize) -> Result<(), GraphError> {
        let holds = self.optional(index).is_none_or(|t| t.layout.has_contiguous_rows());
        self.check(index, holds, || "contiguous rows".to_owned())
    }

    pub(super) fn contiguous(&self, index: usize) -> Result<(), GraphError> {
        let holds = self.optional(index).is_none_or(|t| t.layout.is_contiguous());
        self.check(index, holds, || "a contiguous tensor".to_owned())
    }

    /// What an operation overwrites has room for every element.
    pub(super) fn apart(&self, index: usize) -> Result<(), GraphError> {
        let holds = self.optional(index).is_none_or(|t| t.layout.has_distinct_elements());
        self.check(index, holds, || "a tensor whose elements do not overlap".to_owned())
    }

    pub(super) fn parameter(
        &self,
        holds: bool,
        name: &'static str,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Result<(), GraphError> {
        if holds {
            return Ok(());
        }
        Err(GraphError::Parameter { op: self.op, name, found: found.to_string(), expected: expected.into() })
    }
}
