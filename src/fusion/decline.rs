//! Why a row of the table was not used.

use std::fmt;

/// Why a row of the table does not apply where its sequence was looked for. Positions count the row's nodes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Decline {
    /// The operations that follow are others.
    Sequence,
    /// The row is switched off, or belongs to a larger set than the one matched with.
    Disabled,
    /// The node does not read the one before it as source 0 or 1.
    NotChained(usize),
    /// Beside the one before it, the node reads another result of the group, which is never stored.
    Inside(usize),
    /// The node's shape is not the one before it's.
    Shape(usize),
    /// Something outside the group reads the node's result.
    Used(usize),
    /// The caller wants the node's result.
    Output(usize),
    /// The node is a view of memory that is neither the group's own nor constant.
    View(usize),
    /// A check of the row failed: the check's name.
    Check(&'static str),
    /// The group would write memory that one of its sources or another of its results occupies.
    Overlap,
    /// The group needs more buffers than one kernel of the device can bind.
    Bindings,
}

impl fmt::Display for Decline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequence => f.write_str("other operations follow"),
            Self::Disabled => f.write_str("the row is switched off"),
            Self::NotChained(at) => write!(f, "node {at} does not read the one before it"),
            Self::Inside(at) => write!(f, "node {at} reads a second result of the group"),
            Self::Shape(at) => write!(f, "node {at} has another shape"),
            Self::Used(at) => write!(f, "node {at} is read outside the group"),
            Self::Output(at) => write!(f, "node {at} is an output of the graph"),
            Self::View(at) => write!(f, "node {at} is a view of memory outside the group"),
            Self::Check(name) => write!(f, "check {name}"),
            Self::Overlap => f.write_str("a result would overlap a source or another result"),
            Self::Bindings => f.write_str("more buffers than a kernel can bind"),
        }
    }
}
