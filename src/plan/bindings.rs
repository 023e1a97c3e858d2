//! How many buffers a fused kernel binds.

use super::facts::reads;
use super::{Group, Limits, Placement};
use crate::fusion::{Fusion, FusionId};
use crate::graph::{Graph, TensorId};
use std::collections::BTreeSet;

/// A group that would bind more buffers than the device allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    /// Position of the group.
    pub group: usize,
    /// How many consecutive nodes each kernel can take instead.
    pub pieces: Vec<usize>,
}

/// The fused groups that would bind too much.
pub(super) fn exceeding(graph: &Graph, placement: &Placement, groups: &[Group], limits: &Limits) -> Vec<Excess> {
    let excess = |(at, group): (usize, &Group)| {
        let pieces = pieces(graph, placement, group.fusion?, &group.nodes, limits.max_bindings);
        (pieces.len() > 1).then_some(Excess { group: at, pieces })
    };
    groups.iter().enumerate().filter_map(excess).collect()
}

fn pieces(graph: &Graph, placement: &Placement, row: &Fusion, nodes: &[TensorId], limit: usize) -> Vec<usize> {
    match row.id {
        FusionId::AddChain => {
            let (mut pieces, mut rest) = (Vec::new(), nodes);
            while !rest.is_empty() {
                let fits = |length: &usize| 2 + addend_places(graph, placement, &rest[..*length]) <= limit;
                let length = (1..=rest.len()).rev().find(fits).unwrap_or(1);
                pieces.push(length);
                rest = &rest[length..];
            }
            pieces
        }
        FusionId::NormMul | FusionId::NormMulAdd | FusionId::Snake | FusionId::GdnCache => {
            if roles(graph, row, nodes) <= limit { vec![nodes.len()] } else { vec![1; nodes.len()] }
        }
    }
}

/// Addends in one buffer share a binding: their offsets are parameters.
fn addend_places(graph: &Graph, placement: &Placement, nodes: &[TensorId]) -> usize {
    let addends = nodes.iter().filter_map(|&id| graph.tensor(id).src(1));
    addends.filter_map(|id| Some(placement.slot(graph, id)?.place)).collect::<BTreeSet<_>>().len()
}

/// Tensors that the kernel reads from outside, and those that it stores.
fn roles(graph: &Graph, row: &Fusion, nodes: &[TensorId]) -> usize {
    let sources = nodes.iter().flat_map(|&id| reads(graph.tensor(id)));
    let outside = sources.filter(|&source| !nodes.contains(&graph.root(source)));
    outside.collect::<BTreeSet<_>>().len() + row.outputs.len()
}
