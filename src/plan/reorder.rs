//! An order that brings independent work together.
//!
//! The set of packs that may run together grows until a pack conflicts with it. Before a new set begins, packs from
//! further on join the old one if they conflict neither with it nor with anything they pass.

use super::facts::facts;
use crate::fusion::Pack;
use crate::graph::{Graph, TensorId};

/// How many packs ahead one is looked for that may join the set.
const LOOK_AHEAD: usize = 63;

/// What running a pack touches, by the roots of the memory.
struct Access {
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
    movable: bool,
    view: bool,
}

impl Access {
    fn of(graph: &Graph, nodes: &[TensorId]) -> Self {
        let written = nodes.iter().filter(|&&id| !graph.tensor(id).kind().is_view());
        let sources = nodes.iter().flat_map(|&id| graph.tensor(id).sources()).map(|source| graph.root(source));
        let first = nodes.first().map(|&id| graph.tensor(id).kind());
        Self {
            reads: sources.filter(|root| !nodes.contains(root)).collect(),
            writes: written.map(|&id| graph.root(id)).collect(),
            movable: first.is_none_or(|kind| facts(kind).movable),
            view: first.is_none_or(|kind| kind.is_view()),
        }
    }
}

/// The memory that some packs touch.
struct Touched {
    epoch: u32,
    read: Vec<u32>,
    written: Vec<u32>,
}

impl Touched {
    fn new(tensors: usize) -> Self {
        Self { epoch: 1, read: vec![0; tensors], written: vec![0; tensors] }
    }

    /// Forgets everything: marks of earlier epochs do not count.
    const fn clear(&mut self) {
        self.epoch += 1;
    }

    fn add(&mut self, access: &Access) {
        access.reads.iter().for_each(|root| self.read[root.index()] = self.epoch);
        access.writes.iter().for_each(|root| self.written[root.index()] = self.epoch);
    }

    fn conflicts(&self, access: &Access) -> bool {
        let written = |root: &TensorId| self.written[root.index()] == self.epoch;
        let read = |root: &TensorId| self.read[root.index()] == self.epoch;
        access.reads.iter().any(written) || access.writes.iter().any(|root| read(root) || written(root))
    }
}

/// The nodes of the graph in the new order; packs stay whole.
pub(super) fn reorder(graph: &Graph, packs: &[Pack]) -> Vec<TensorId> {
    let nodes = |pack: &Pack| &graph.nodes()[pack.clone()];
    let accesses: Vec<Access> = packs.iter().map(|pack| Access::of(graph, nodes(pack))).collect();
    let mut set = Touched::new(graph.tensors().len());
    let mut passed = Touched::new(graph.tensors().len());
    let mut placed = vec![false; packs.len()];
    let mut order = Vec::with_capacity(packs.len());
    for at in 0..packs.len() {
        if placed[at] {
            continue;
        }
        let current = &accesses[at];
        if !current.view && set.conflicts(current) {
            passed.clear();
            passed.add(current);
            let window = at + 1..packs.len().min(at + 1 + LOOK_AHEAD);
            for ahead in window {
                let access = &accesses[ahead];
                if placed[ahead] {
                    continue;
                }
                if !access.movable {
                    break;
                }
                if (access.view || !set.conflicts(access)) && !passed.conflicts(access) {
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
