//! An order that brings independent work together.
//!
//! The set of packs that may run together grows until a pack conflicts with it. Before a new set begins, packs from
//! further on join the old one if they conflict neither with it nor with anything they pass.

use super::facts::facts;
use super::touched::{Access, Touched};
use crate::fusion::Pack;
use crate::graph::{Graph, OpKind, TensorId};

/// How many packs ahead one is looked for that may join the set.
const LOOK_AHEAD: usize = 63;

/// The nodes of the graph in the new order; packs stay whole.
pub(super) fn reorder(graph: &Graph, packs: &[Pack]) -> Vec<TensorId> {
    let nodes = |pack: &Pack| &graph.nodes()[pack.clone()];
    let accesses: Vec<Access> = packs.iter().map(|pack| Access::of(graph, nodes(pack))).collect();
    let first = |pack: &Pack| graph.nodes().get(pack.start).map(|&id| graph.tensor(id).kind());
    let movable = |pack: &Pack| first(pack).is_none_or(|kind| facts(kind).movable);
    let is_view = |pack: &Pack| first(pack).is_none_or(OpKind::is_view);
    let mut set = Touched::new(graph.tensors().len());
    let mut passed = Touched::new(graph.tensors().len());
    let mut placed = vec![false; packs.len()];
    let mut order = Vec::with_capacity(packs.len());
    for at in 0..packs.len() {
        if placed[at] {
            continue;
        }
        let current = &accesses[at];
        if !is_view(&packs[at]) && set.conflicts(current) {
            passed.clear();
            passed.add(current);
            let window = at + 1..packs.len().min(at + 1 + LOOK_AHEAD);
            for ahead in window {
                let access = &accesses[ahead];
                if placed[ahead] {
                    continue;
                }
                if !movable(&packs[ahead]) {
                    break;
                }
                if (is_view(&packs[ahead]) || !set.conflicts(access)) && !passed.conflicts(access) {
                    set.add(access);
                    placed[ahead] = true;
                    order.push(ahead);
                } else {
                    passed.add(access);
                }
            }
            set.clear();
        }
        set.add(current);
        order.push(at);
    }
    order.into_iter().flat_map(|pack| nodes(&packs[pack])).copied().collect()
}
