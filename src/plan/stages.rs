//! Which consecutive groups may run at the same time.

use super::facts::{reads, updated};
use super::touched::{Access, Touched};
use super::{Group, Placement, Slot};
use crate::graph::Graph;
use std::ops::Range;

/// The memory that groups touch.
#[derive(Default)]
struct Traffic {
    reads: Vec<Slot>,
    writes: Vec<Slot>,
}

impl Traffic {
    fn of(graph: &Graph, placement: &Placement, group: &Group) -> Self {
        let sources = group.nodes.iter().flat_map(|&id| reads(graph.tensor(id)));
        let updates = group.nodes.iter().flat_map(|&id| updated(graph.tensor(id)));
        Self {
            reads: sources.filter_map(|id| placement.slot(graph, id)).collect(),
            writes: group.stored().chain(updates).filter_map(|id| placement.slot(graph, id)).collect(),
        }
    }

    fn conflicts(&self, other: &Self) -> bool {
        let meet = |a: &[Slot], b: &[Slot]| a.iter().any(|a| b.iter().any(|b| a.meets(b)));
        meet(&self.writes, &other.writes) || meet(&self.writes, &other.reads) || meet(&self.reads, &other.writes)
    }

    fn add(&mut self, other: Self) {
        self.reads.extend(other.reads);
        self.writes.extend(other.writes);
    }
}

/// For every group the moment from 1 at which it runs: groups that touch none of each other's results run at the same
/// moment; with `concurrency` off, each has a moment to itself.
pub(super) fn moments(graph: &Graph, groups: &[Group], concurrency: bool) -> Vec<usize> {
    let mut together = Touched::new(graph.tensors().len());
    let mut moment = 1;
    let mut moments = Vec::with_capacity(groups.len());
    for (at, group) in groups.iter().enumerate() {
        let access = Access::of(graph, &group.nodes);
        if at > 0 && (!concurrency || together.conflicts(&access)) {
            together.clear();
            moment += 1;
        }
        together.add(&access);
        moments.push(moment);
    }
    moments
}

/// Runs of groups none of which writes memory that another one touches; with `concurrency` off, each group by itself.
pub(super) fn stages(graph: &Graph, placement: &Placement, groups: &[Group], concurrency: bool) -> Vec<Range<usize>> {
    let mut stages: Vec<Range<usize>> = Vec::new();
    let mut stage = Traffic::default();
    for (at, group) in groups.iter().enumerate() {
        let traffic = Traffic::of(graph, placement, group);
        match stages.last_mut() {
            Some(last) if concurrency && !stage.conflicts(&traffic) => {
                last.end = at + 1;
                stage.add(traffic);
            }
            Some(_) | None => {
                stages.push(at..at + 1);
                stage = traffic;
            }
        }
    }
    stages
}
