//! Tensors: a type, a shape, strides, and where the memory comes from.

use super::{DType, GraphError, Op, OpKind};
use std::fmt;

/// Sources a tensor has room for.
pub const MAX_SOURCES: usize = 10;

/// Names a tensor of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(super) u32);

impl TensorId {
    /// Position in [`Graph::tensors`](super::Graph::tensors).
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a leaf's memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeafKind {
    /// Constant for the life of a model.
    Weight,
    /// Written by the caller before every run.
    Input,
    /// Persistent state that runs read and write.
    Cache,
}

/// The kind of buffer that a tensor's memory lives in, decided by its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferClass {
    /// Read-only model weights.
    Weight,
    /// Persistent state.
    Cache,
    /// Results and inputs, which live for one run.
    Computed,
}

/// Whose memory a tensor shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewOf {
    /// The tensor that owns the memory; never itself a view.
    pub root: TensorId,
    /// Bytes from the root's start.
    pub offset: usize,
}

/// The number of elements of a shape; `None` if it overflows, also where a zero dimension would hide that, so that the
/// product of any of the dimensions of a tensor fits.
pub(super) fn count(ne: [usize; 4]) -> Option<usize> {
    ne.iter().try_fold(1usize, |product, &n| product.checked_mul(n.max(1)))?;
    Some(ne.iter().product())
}

/// Type, shape and strides: how elements lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Element type.
    pub dtype: DType,
    /// Elements per dimension, the fastest first.
    pub ne: [usize; 4],
    /// Bytes from one element (block, in dimension 0) to the next, per dimension.
    pub nb: [usize; 4],
}

impl Layout {
    /// The dense layout of a shape.
    ///
    /// # Errors
    /// [`GraphError::Size`] when the size overflows or a row is no whole number of blocks.
    pub fn contiguous(dtype: DType, ne: [usize; 4]) -> Result<Self, GraphError> {
        let nb = Self::dense_strides(dtype, ne).ok_or(GraphError::Size { dtype, ne })?;
        Ok(Self { dtype, ne, nb })
    }

    fn dense_strides(dtype: DType, ne: [usize; 4]) -> Option<[usize; 4]> {
        // A zero dimension makes a tensor empty but its strides no smaller, so that it is measured without.
        // Elements are counted, too: those of blocks can be more than their bytes.
        count(ne.map(|n| n.max(1)))?;
        let row = dtype.row_bytes(if ne[0] == 0 { dtype.block_size() } else { ne[0] })?;
        let bytes = ne[1..].iter().try_fold(row, |bytes, &n| bytes.checked_mul(n.max(1)))?;
        isize::try_from(bytes).ok()?;
        let nb1 = dtype.row_bytes(ne[0])?;
        Some([dtype.block_bytes(), nb1, nb1 * ne[1], nb1 * ne[1] * ne[2]])
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.ne.iter().product()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.ne[1..].iter().product()
    }

    /// Whether some dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.ne.contains(&0)
    }

    /// Bytes from the first element to the end of the last one; `None` if that overflows.
    pub fn checked_extent(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        let row = (self.ne[0] / self.dtype.block_size() - 1).checked_mul(self.nb[0])?;
        (1..4).try_fold(row.checked_add(self.dtype.block_bytes())?, |end, dim| {
            end.checked_add((self.ne[dim] - 1).checked_mul(self.nb[dim])?)
        })
    }

    /// Bytes from the first element to the end of the last one. Layouts in a graph never overflow.
    pub fn extent(&self) -> usize {
        self.checked_extent().unwrap_or(usize::MAX)
    }

    /// Whether elements lie densely in row-major order (strides of 1-wide dimensions do not matter).
    pub fn is_contiguous(&self) -> bool {
        let Some(dense) = Self::dense_strides(self.dtype, self.ne) else { return false };
        self.is_empty()
            || (0..4).all(|dim| {
                self.nb[dim] == dense[dim] || (dim > 0 && self.ne[dim] == 1) || (dim == 0 && self.ne[0] == 1)
            })
    }

    /// Whether each row is dense, wherever the rows lie.
    pub fn has_contiguous_rows(&self) -> bool {
        self.ne[0] == self.dtype.block_size() || self.nb[0] == self.dtype.block_bytes()
    }

    /// Whether no two elements share a byte, so that writing all of them has one outcome. Dimensions that lie between
    /// each other's elements count as overlapping.
    pub fn has_distinct_elements(&self) -> bool {
        let mut dims = [0, 1, 2, 3].map(|dim| (self.nb[dim], self.ne[dim]));
        dims[0].1 /= self.dtype.block_size();
        dims.sort_unstable();
        // Each dimension must step over all that the tighter ones span.
        let mut span = self.dtype.block_bytes();
        let mut steps_over = |&(step, count): &(usize, usize)| {
            let apart = count < 2 || step >= span;
            span = span.saturating_add(step.saturating_mul(count.saturating_sub(1)));
            apart
        };
        self.is_empty() || dims.iter().all(&mut steps_over)
    }

    /// Whether a tensor of this shape, repeated whole, fills `other`.
    pub fn repeats_into(&self, other: &Self) -> bool {
        other.is_empty() || (0..4).all(|dim| self.ne[dim] != 0 && other.ne[dim].is_multiple_of(self.ne[dim]))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.ne)?;
        if self.is_contiguous() { Ok(()) } else { write!(f, " strides {:?}", self.nb) }
    }
}

/// A tensor of a graph: the result of an operation, or a leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub(super) name: String,
    pub(super) layout: Layout,
    pub(super) op: Op,
    pub(super) src: [Option<TensorId>; MAX_SOURCES],
    pub(super) view: Option<ViewOf>,
    pub(super) leaf: Option<LeafKind>,
    pub(super) output: bool,
}

impl Tensor {
    /// Name for reports; may be empty and need not be unique, except that leaves are found by it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type, shape and strides.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Element type.
    pub const fn dtype(&self) -> DType {
        self.layout.dtype
    }

    /// Shape.
    pub const fn ne(&self) -> [usize; 4] {
        self.layout.ne
    }

    /// Strides in bytes.
    pub const fn nb(&self) -> [usize; 4] {
        self.layout.nb
    }

    /// The operation that computes it.
    pub const fn op(&self) -> &Op {
        &self.op
    }

    /// The operation without its parameters.
    pub const fn kind(&self) -> OpKind {
        self.op.kind()
    }

    /// Source `index`, when there is one.
    pub fn src(&self, index: usize) -> Option<TensorId> {
        self.src.get(index).copied().flatten()
    }

    /// The sources that are there, in order.
    pub fn sources(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.src.iter().copied().flatten()
    }

    /// All source slots, empty ones included.
    pub const fn source_slots(&self) -> &[Option<TensorId>; MAX_SOURCES] {
        &self.src
    }

    /// Whose memory it shares, for views and for operations that write into a source.
    pub const fn view(&self) -> Option<ViewOf> {
        self.view
    }

    /// For a leaf: what its memory is for.
    pub const fn leaf(&self) -> Option<LeafKind> {
        self.leaf
    }

    /// Whether the caller wants the result.
    pub const fn is_output(&self) -> bool {
        self.output
    }

    /// Whether it needs no kernel: a leaf, a pure view, or a tensor without elements.
    pub fn is_silent(&self) -> bool {
        self.kind().is_view() || self.layout.is_empty()
    }
}
