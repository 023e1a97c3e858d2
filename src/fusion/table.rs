//! The one table of fusable subgraphs.

use crate::graph::OpKind::{self, Add, Cpy, GatedDeltaNet, Mul, Norm, RmsNorm, Sin, Sqr};

/// Which fused kernel executes a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FusionId {
    /// Normalise, then scale by a weight row.
    NormMul,
    /// Normalise, scale by a weight row, then add a bias row.
    NormMulAdd,
    /// A sum of several tensors.
    AddChain,
    /// `x + sin²(a·x)·inv_b`, the "snake" activation.
    Snake,
    /// Gated delta net that stores its state snapshots straight into the cache.
    GdnCache,
}

/// A published generation of the table; each is a superset of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FusionSet {
    /// The twelve entries of the published baseline.
    Published12,
}

/// One row of the table.
#[derive(Debug)]
pub struct Fusion {
    /// The fused kernel.
    pub id: FusionId,
    /// The sequence of operations.
    pub ops: &'static [OpKind],
    /// Positions whose results survive; all others are used inside the group alone and get no memory.
    pub outputs: &'static [usize],
    /// The smallest set that has the row.
    pub set: FusionSet,
}

const fn row(id: FusionId, ops: &'static [OpKind], outputs: &'static [usize]) -> Fusion {
    Fusion { id, ops, outputs, set: FusionSet::Published12 }
}

/// Every fusable subgraph, declared once.
pub static TABLE: [Fusion; 12] = [
    row(FusionId::NormMul, &[Norm, Mul], &[1]),
    row(FusionId::NormMul, &[RmsNorm, Mul], &[1]),
    row(FusionId::NormMulAdd, &[Norm, Mul, Add], &[2]),
    row(FusionId::NormMulAdd, &[RmsNorm, Mul, Add], &[2]),
    row(FusionId::AddChain, &[Add; 2], &[1]),
    row(FusionId::AddChain, &[Add; 3], &[2]),
    row(FusionId::AddChain, &[Add; 4], &[3]),
    row(FusionId::AddChain, &[Add; 5], &[4]),
    row(FusionId::AddChain, &[Add; 6], &[5]),
    row(FusionId::AddChain, &[Add; 7], &[6]),
    row(FusionId::Snake, &[Mul, Sin, Sqr, Mul, Add], &[4]),
    row(FusionId::GdnCache, &[GatedDeltaNet, Cpy], &[0, 1]),
];
