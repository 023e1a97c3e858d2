//! Groups: what one kernel executes.

use super::PlanReport;
use crate::fusion::{Fusion, Matcher, Sequence};
use crate::graph::TensorId;

/// Nodes that one kernel executes.
#[derive(Clone, Debug)]
pub struct Group {
    /// The row of the table, for more than one node.
    pub fusion: Option<&'static Fusion>,
    /// The nodes in the row's order; views and empty tensors are in no group.
    pub nodes: Vec<TensorId>,
}

impl Group {
    /// One node by itself.
    pub fn single(node: TensorId) -> Self {
        Self { fusion: None, nodes: vec![node] }
    }

    /// The nodes whose results are stored.
    pub fn stored(&self) -> impl Iterator<Item = TensorId> + '_ {
        let stored = |at: &usize| self.fusion.is_none_or(|row| row.outputs.contains(at));
        self.nodes.iter().enumerate().filter(move |(at, _)| stored(at)).map(|(_, &id)| id)
    }
}

/// Cuts a sequence into groups, the longest row that holds first; what was refused is counted.
pub(super) fn group(sequence: &Sequence<'_>, matcher: Matcher, report: &mut PlanReport) -> Vec<Group> {
    let nodes = sequence.nodes();
    let mut groups = Vec::with_capacity(nodes.len());
    let mut at = 0;
    while at < nodes.len() {
        let found = matcher.next(sequence, at);
        found.declines.into_iter().for_each(|(row, decline)| report.decline(row, decline));
        let end = at + found.row.map_or(1, |row| row.ops.len());
        groups.push(Group { fusion: found.row, nodes: nodes[at..end].to_vec() });
        at = end;
    }
    groups
}
