//! The one table of fusable subgraphs.

use super::checks::{ADD_CHAIN, Check, GDN_CACHE, NORM, SNAKE};
use crate::graph::OpKind::{self, Add, Cpy, GatedDeltaNet, Mul, Norm, RmsNorm, Sin, Sqr};
use FusionId::{AddChain, GdnCache, NormMul, NormMulAdd, Snake};
use FusionSet::Published12;
use std::str::FromStr;

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

impl FusionId {
    /// The name that the table, reports and the environment use.
    pub const fn name(self) -> &'static str {
        match self {
            NormMul => "NormMul",
            NormMulAdd => "NormMulAdd",
            AddChain => "AddChain",
            Snake => "Snake",
            GdnCache => "GdnCache",
        }
    }
}

/// A generation of the table; each is a superset of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FusionSet {
    /// The twelve entries of the published baseline.
    Published12,
    /// The entries of the larger published baseline.
    Published26,
    /// Every entry, those without a published baseline included.
    All,
}

impl FusionSet {
    /// Every set, the smallest first.
    pub const ALL: [Self; 3] = [Self::Published12, Self::Published26, Self::All];

    /// The name that baselines and command lines use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published12 => "published12",
            Self::Published26 => "published26",
            Self::All => "all",
        }
    }
}

/// The name of a set that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no set of fusions `{given}`; expected published12, published26 or all")]
pub struct UnknownSet {
    /// The name that was given.
    pub given: String,
}

impl FromStr for FusionSet {
    type Err = UnknownSet;

    fn from_str(name: &str) -> Result<Self, UnknownSet> {
        Self::ALL.into_iter().find(|set| set.name() == name).ok_or_else(|| UnknownSet { given: name.to_owned() })
    }
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
    /// Whether it is an elision chain, to which the matcher's own rules apply; if not, [`Fusion::checks`] alone decide.
    pub elides: bool,
    /// The smallest set that has the row.
    pub set: FusionSet,
    /// What the row asks beyond its sequence, in the order in which it is asked.
    pub checks: &'static [Check],
}

impl Fusion {
    /// The kinds joined by `+`, as baselines spell the row.
    pub fn label(&self) -> String {
        self.ops.iter().map(|kind| kind.label()).collect::<Vec<_>>().join("+")
    }

    /// The row's position in [`TABLE`]; `None` for a row that somebody else made.
    pub fn index(&self) -> Option<usize> {
        TABLE.iter().position(|row| std::ptr::eq(row, self))
    }
}

const CHAIN: bool = true;
const FREE: bool = false;

const fn row(
    id: FusionId,
    ops: &'static [OpKind],
    outputs: &'static [usize],
    elides: bool,
    set: FusionSet,
    checks: &'static [Check],
) -> Fusion {
    Fusion { id, ops, outputs, elides, set, checks }
}

/// Every fusable subgraph, declared once.
///
/// Rows of one kernel stand together, the shorter first. The order decides nothing: at each position the longest row
/// that holds wins, and no two rows have the same sequence.
#[rustfmt::skip]
pub static TABLE: [Fusion; 12] = [
    row(NormMul,    &[Norm, Mul],               &[1],    CHAIN, Published12, NORM),
    row(NormMul,    &[RmsNorm, Mul],            &[1],    CHAIN, Published12, NORM),
    row(NormMulAdd, &[Norm, Mul, Add],          &[2],    CHAIN, Published12, NORM),
    row(NormMulAdd, &[RmsNorm, Mul, Add],       &[2],    CHAIN, Published12, NORM),
    row(AddChain,   &[Add; 2],                  &[1],    CHAIN, Published12, ADD_CHAIN),
    row(AddChain,   &[Add; 3],                  &[2],    CHAIN, Published12, ADD_CHAIN),
    row(AddChain,   &[Add; 4],                  &[3],    CHAIN, Published12, ADD_CHAIN),
    row(AddChain,   &[Add; 5],                  &[4],    CHAIN, Published12, ADD_CHAIN),
    row(AddChain,   &[Add; 6],                  &[5],    CHAIN, Published12, ADD_CHAIN),
    row(AddChain,   &[Add; 7],                  &[6],    CHAIN, Published12, ADD_CHAIN),
    row(Snake,      &[Mul, Sin, Sqr, Mul, Add], &[4],    CHAIN, Published12, SNAKE),
    row(GdnCache,   &[GatedDeltaNet, Cpy],      &[0, 1], FREE,  Published12, GDN_CACHE),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::MAX_PACK;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_sound() {
        for row in &TABLE {
            let label = row.label();
            assert!((2..=MAX_PACK).contains(&row.ops.len()), "{label}: length");
            assert!(row.ops.iter().all(|kind| !kind.is_view()), "{label}: views are never matched");
            assert!(!row.outputs.is_empty() && row.outputs.is_sorted(), "{label}: outputs are sorted");
            assert!(row.outputs.windows(2).all(|pair| pair[0] != pair[1]), "{label}: outputs are distinct");
            assert_eq!(row.outputs.last(), Some(&(row.ops.len() - 1)), "{label}: the last node's result survives");
            assert!(!row.checks.is_empty(), "{label}: checks");
        }
    }

    #[test]
    fn no_two_rows_match_the_same_sequence() {
        let sequences: BTreeSet<_> = TABLE.iter().map(|row| row.ops).collect();
        let labels: BTreeSet<_> = TABLE.iter().map(Fusion::label).collect();
        assert_eq!((sequences.len(), labels.len()), (TABLE.len(), TABLE.len()));
    }

    #[test]
    fn rows_know_their_place_and_sets_their_names() {
        assert!(TABLE.iter().enumerate().all(|(index, row)| row.index() == Some(index)));
        assert!(FusionSet::ALL.into_iter().all(|set| set.name().parse() == Ok(set)));
        assert!(FusionSet::ALL.is_sorted());
        assert_eq!("twelve".parse::<FusionSet>(), Err(UnknownSet { given: "twelve".to_owned() }));
    }
}
