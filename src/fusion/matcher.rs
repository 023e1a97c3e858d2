//! Which row of the table applies at a place: the longest that holds.

use super::checks::Candidate;
use super::{Decline, Fusion, FusionId, FusionSet, Sequence, TABLE};
use crate::graph::{BufferClass, TensorId};

/// The rows that may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matcher {
    /// Bit `i` stands for row `i` of the table.
    rows: u64,
}

const _: () = assert!(TABLE.len() <= u64::BITS as usize);

/// What the table says about a place.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The longest row that holds.
    pub row: Option<&'static Fusion>,
    /// The longer rows whose operations do follow, and why each was refused.
    pub declines: Vec<(&'static Fusion, Decline)>,
}

impl Default for Matcher {
    /// The largest set.
    fn default() -> Self {
        Self::new(FusionSet::All)
    }
}

impl Matcher {
    /// The rows of a set.
    pub fn new(set: FusionSet) -> Self {
        Self { rows: bits(|row| row.set <= set) }
    }

    /// No row: nothing fuses.
    pub const fn off() -> Self {
        Self { rows: 0 }
    }

    /// Without the rows of a kernel.
    #[must_use]
    pub fn without(self, id: FusionId) -> Self {
        Self { rows: self.rows & !bits(|row| row.id == id) }
    }

    /// Without the row of this label.
    #[must_use]
    pub fn without_row(self, label: &str) -> Self {
        Self { rows: self.rows & !bits(|row| row.label() == label) }
    }

    /// Whether no row may match.
    pub const fn is_off(self) -> bool {
        self.rows == 0
    }

    /// Bit `i` is set when row `i` of the table may match.
    pub const fn rows(self) -> u64 {
        self.rows
    }

    /// Whether the row may match.
    pub fn has(self, row: &Fusion) -> bool {
        row.index().is_some_and(|index| self.rows >> index & 1 == 1)
    }

    /// The longest row that holds for the nodes from `at` on.
    pub fn next(self, sequence: &Sequence<'_>, at: usize) -> Found {
        let mut found = Found::default();
        let first = sequence.nodes().get(at).map(|&id| sequence.graph().tensor(id).kind());
        let starts = |row: &&Fusion| !self.is_off() && row.ops.first().copied() == first;
        let mut rows: Vec<&'static Fusion> = TABLE.iter().filter(starts).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.ops.len()));
        for row in rows {
            match self.try_row(row, sequence, at) {
                Ok(()) => {
                    found.row = Some(row);
                    return found;
                }
                Err(Decline::Sequence) => {}
                Err(decline) => found.declines.push((row, decline)),
            }
        }
        found
    }

    /// Whether a row holds for the nodes from `at` on.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn try_row(self, row: &'static Fusion, sequence: &Sequence<'_>, at: usize) -> Result<(), Decline> {
        let nodes = sequence.span(at, row.ops).ok_or(Decline::Sequence)?;
        if !self.has(row) {
            return Err(Decline::Disabled);
        }
        let candidate = Candidate { graph: sequence.graph(), mode: sequence.mode(), nodes };
        if row.elides {
            chain(&candidate, row.outputs)?;
        }
        match row.checks.iter().find(|check| !(check.holds)(&candidate)) {
            Some(failed) => Err(Decline::Check(failed.name)),
            None => Ok(()),
        }
    }
}

fn bits(pick: impl Fn(&Fusion) -> bool) -> u64 {
    TABLE.iter().enumerate().filter(|(_, row)| pick(row)).fold(0, |bits, (index, _)| bits | 1 << index)
}

/// The rules of every elision chain: each node works on the result of the one before, and nobody outside misses a
/// result that is not stored.
fn chain(candidate: &Candidate<'_>, outputs: &[usize]) -> Result<(), Decline> {
    (1..candidate.nodes.len()).try_for_each(|at| linked(candidate, at))?;
    (0..candidate.nodes.len()).try_for_each(|at| {
        if !outputs.contains(&at) {
            elidable(candidate, at)?;
        }
        views_inside(candidate, at)
    })
}

fn linked(candidate: &Candidate<'_>, at: usize) -> Result<(), Decline> {
    let (graph, nodes) = (candidate.graph, candidate.nodes);
    let (node, previous) = (graph.tensor(nodes[at]), nodes[at - 1]);
    if node.src(0) != Some(previous) && node.src(1) != Some(previous) {
        return Err(Decline::NotChained(at));
    }
    if node.sources().filter(|source| nodes.contains(source)).count() != 1 {
        return Err(Decline::Inside(at));
    }
    if node.ne() == graph.tensor(previous).ne() { Ok(()) } else { Err(Decline::Shape(at)) }
}

fn elidable(candidate: &Candidate<'_>, at: usize) -> Result<(), Decline> {
    let (graph, nodes) = (candidate.graph, candidate.nodes);
    let id = nodes[at];
    if graph.tensor(id).is_output() {
        return Err(Decline::Output(at));
    }
    let later = nodes[at + 1..].iter().flat_map(|&node| graph.tensor(node).sources());
    if later.filter(|&source| source == id).count() == graph.uses(id) as usize {
        Ok(())
    } else {
        Err(Decline::Used(at))
    }
}

fn views_inside(candidate: &Candidate<'_>, at: usize) -> Result<(), Decline> {
    let graph = candidate.graph;
    let constant = |id: TensorId| graph.tensor(id).leaf().is_some() && graph.class(id) == BufferClass::Weight;
    let mut current = candidate.nodes[at];
    while let Some(view) = graph.tensor(current).view() {
        let shares = |source: &TensorId| graph.root(*source) == view.root;
        let Some(base) = graph.tensor(current).sources().find(shares) else { return Err(Decline::View(at)) };
        if !candidate.nodes.contains(&base) && !constant(base) {
            return Err(Decline::View(at));
        }
        current = base;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::Mode;
    use crate::graph::{DType, Graph, GraphError, LeafKind};

    /// The square of a view of `x`, which is a leaf, or the square of one.
    fn viewed(kind: LeafKind, computed: bool) -> Result<(Graph, [TensorId; 3]), GraphError> {
        let mut graph = Graph::new();
        let leaf = graph.leaf("x", kind, DType::F32, [4, 1, 1, 1])?;
        let x = if computed { graph.sqr(leaf)? } else { leaf };
        let view = graph.reshape(x, [4, 1, 1, 1])?;
        let last = graph.sqr(view)?;
        graph.expand(last)?;
        Ok((graph, [x, view, last]))
    }

    /// No row of the table has an operation that may be a view, so that the rule is asked directly.
    #[test]
    fn a_member_that_is_a_view_looks_inside_the_group_or_at_a_constant() -> Result<(), GraphError> {
        let verdict = |graph: &Graph, nodes: &[TensorId]| {
            chain(&Candidate { graph, mode: Mode::Structural, nodes }, &[nodes.len() - 1])
        };
        let (graph, nodes) = viewed(LeafKind::Input, true)?;
        assert_eq!(verdict(&graph, &nodes), Ok(()));
        assert_eq!(verdict(&graph, &nodes[1..]), Err(Decline::View(0)));
        for (kind, expected) in [
            (LeafKind::Weight, Ok(())),
            (LeafKind::Cache, Err(Decline::View(0))),
            (LeafKind::Input, Err(Decline::View(0))),
        ] {
            let (graph, nodes) = viewed(kind, false)?;
            assert_eq!(verdict(&graph, &nodes[1..]), expected, "{kind:?}");
        }
        Ok(())
    }

    #[test]
    fn sets_contain_each_other() {
        let rows = FusionSet::ALL.map(|set| Matcher::new(set).rows());
        assert!(rows.windows(2).all(|pair| pair[0] & pair[1] == pair[0]));
        assert_eq!(rows[0].count_ones(), 12);
        assert_eq!(Matcher::default().rows().count_ones() as usize, TABLE.len());
    }
}
