//! Groups that cannot run as one kernel after all are cut into smaller ones.

use super::bindings::Excess;
use super::error::NodeName;
use super::{Fault, Group, PlanError, PlanReport, Split};
use crate::fusion::{Decline, Fusion, Matcher, TABLE};
use crate::graph::{Graph, OpKind, TensorId};
use std::collections::HashMap;

/// The groups with every faulty one cut into single nodes, and every one that binds too much into shorter ones.
///
/// # Errors
/// When the fault is that of a single node, or of the plan itself.
pub(super) fn split(
    graph: &Graph,
    matcher: Matcher,
    groups: Vec<Group>,
    excesses: &[Excess],
    faults: &[Fault],
    report: &mut PlanReport,
) -> Result<Vec<Group>, PlanError> {
    let mut cuts: HashMap<usize, (Decline, Vec<usize>)> =
        excesses.iter().map(|excess| (excess.group, (Decline::Bindings, excess.pieces.clone()))).collect();
    for fault in faults {
        if let Some(error) = fatal(graph, &groups, *fault) {
            return Err(error);
        }
        let nodes = groups.get(fault.group()).map_or(0, |group| group.nodes.len());
        cuts.insert(fault.group(), (Decline::Overlap, vec![1; nodes]));
    }
    let mut result = Vec::with_capacity(groups.len() + cuts.len());
    for (at, group) in groups.into_iter().enumerate() {
        let (Some((reason, lengths)), Some(row), Some(&first)) = (cuts.get(&at), group.fusion, group.nodes.first())
        else {
            result.push(group);
            continue;
        };
        let split = Split { row, first: NodeName::of(graph, first), reason: *reason };
        log::warn!("{split}");
        report.splits.push(split);
        result.extend(pieces(graph, matcher, row, &group.nodes, lengths));
    }
    Ok(result)
}

/// What no split can mend.
pub(super) fn fatal(graph: &Graph, groups: &[Group], fault: Fault) -> Option<PlanError> {
    match fault {
        Fault::Overlap { group, written, other } => {
            let alone = groups.get(group).is_none_or(|group| group.nodes.len() < 2);
            let error = || PlanError::Overlap { node: NodeName::of(graph, written), other: NodeName::of(graph, other) };
            alone.then(error)
        }
        Fault::Unstored { node, tensor, .. } => {
            Some(PlanError::Unstored { node: NodeName::of(graph, node), source_name: NodeName::of(graph, tensor) })
        }
    }
}

/// Consecutive nodes of these numbers, each run as one group where the same kernel has a row for it.
fn pieces(graph: &Graph, matcher: Matcher, row: &Fusion, nodes: &[TensorId], lengths: &[usize]) -> Vec<Group> {
    let mut rest = nodes;
    let mut groups = Vec::with_capacity(lengths.len());
    for &length in lengths {
        let (piece, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        let kinds: Vec<OpKind> = piece.iter().map(|&id| graph.tensor(id).kind()).collect();
        let shorter = TABLE.iter().find(|other| other.id == row.id && other.ops == kinds && matcher.has(other));
        match shorter {
            Some(_) => groups.push(Group { fusion: shorter, nodes: piece.to_vec() }),
            None => groups.extend(piece.iter().copied().map(Group::single)),
        }
    }
    groups
}
