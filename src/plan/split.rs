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
    let mut reasons: HashMap<usize, (usize, Decline)> =
        excesses.iter().map(|excess| (excess.group, (excess.fitting, Decline::Bindings))).collect();
    for fault in faults {
        if let Some(error) = fatal(graph, &groups, *fault) {
            return Err(error);
        }
        reasons.insert(fault.group(), (1, Decline::Overlap));
    }
    let mut result = Vec::with_capacity(groups.len() + reasons.len());
    for (at, group) in groups.into_iter().enumerate() {
        match (reasons.get(&at), group.fusion) {
            (Some(&(fitting, reason)), Some(row)) => {
                let first = group.nodes.first().map(|&id| NodeName::of(graph, id));
                if let Some(first) = first {
                    log::warn!("the fusion {} at {first} is split: {reason}", row.label());
                    report.splits.push(Split { row, first, reason });
                }
                result.extend(pieces(graph, matcher, row, &group.nodes, fitting));
            }
            (None, _) | (_, None) => result.push(group),
        }
    }
    Ok(result)
}

/// What no split can mend.
fn fatal(graph: &Graph, groups: &[Group], fault: Fault) -> Option<PlanError> {
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

/// Runs of at most `length` nodes, each as one group where the same kernel has a row for it.
fn pieces(graph: &Graph, matcher: Matcher, row: &Fusion, nodes: &[TensorId], length: usize) -> Vec<Group> {
    let groups = nodes.chunks(length.max(1)).map(|piece| {
        let kinds: Vec<OpKind> = piece.iter().map(|&id| graph.tensor(id).kind()).collect();
        let shorter = TABLE.iter().find(|other| other.id == row.id && other.ops == kinds && matcher.has(other));
        match shorter {
            Some(shorter) => vec![Group { fusion: Some(shorter), nodes: piece.to_vec() }],
            None => piece.iter().copied().map(Group::single).collect(),
        }
    });
    groups.flatten().collect()
}
