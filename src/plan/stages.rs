//! Which consecutive groups may run at the same time.

use super::facts::reads;
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
        Self {
            reads: sources.filter_map(|id| placement.slot(graph, id)).collect(),
            writes: group.stored().filter_map(|id| placement.slot(graph, id)).collect(),
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
