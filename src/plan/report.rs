//! What a plan decided, and why.

use super::error::NodeName;
use super::{Group, Place, Placement, Plan};
use crate::fusion::{Decline, Fusion, TABLE};
use crate::graph::{Graph, TensorId};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// A fused group that had to be cut into smaller ones.
#[derive(Clone, Debug)]
pub struct Split {
    /// The row that it had matched.
    pub row: &'static Fusion,
    /// Its first node.
    pub first: NodeName,
    /// Why.
    pub reason: Decline,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "split {} at {}: {}", self.row.label(), self.first, self.reason)
    }
}

/// What a plan decided, and why.
#[derive(Clone, Debug, Default)]
pub struct PlanReport {
    /// Kernels that run.
    pub groups: usize,
    /// Operations that they execute.
    pub nodes: usize,
    /// Bytes of all arenas.
    pub arena_bytes: usize,
    /// Bytes that inputs and results would take if none shared memory and nothing was fused away.
    pub result_bytes: usize,
    /// Fused groups that had to be cut into smaller ones.
    pub splits: Vec<Split>,
    fused: BTreeMap<usize, usize>,
    declines: BTreeMap<(usize, Decline), usize>,
}

impl PlanReport {
    /// Each row of the table that is used, and how often.
    pub fn fused(&self) -> impl Iterator<Item = (&'static Fusion, usize)> {
        self.fused.iter().map(|(&row, &count)| (&TABLE[row], count))
    }

    /// Each reason why a row was refused where its operations do follow one another, and how often.
    pub fn declines(&self) -> impl Iterator<Item = (&'static Fusion, Decline, usize)> {
        self.declines.iter().map(|(&(row, decline), &count)| (&TABLE[row], decline, count))
    }

    pub(super) fn decline(&mut self, row: &Fusion, decline: Decline) {
        if let Some(index) = row.index() {
            *self.declines.entry((index, decline)).or_default() += 1;
        }
    }

    pub(super) fn measure(&mut self, graph: &Graph, groups: &[Group], placement: &Placement) {
        self.groups = groups.len();
        self.nodes = groups.iter().map(|group| group.nodes.len()).sum();
        self.arena_bytes = placement.arenas().iter().sum();
        let own = |&&id: &&TensorId| {
            let placed = placement.slot(graph, id).map(|slot| slot.place);
            graph.tensor(id).view().is_none() && !matches!(placed, Some(Place::Buffer(_)))
        };
        let tensors = graph.leaves().iter().chain(graph.nodes()).filter(own);
        self.result_bytes = tensors.map(|&id| graph.tensor(id).layout().extent()).sum();
        for index in groups.iter().filter_map(|group| group.fusion?.index()) {
            *self.fused.entry(index).or_default() += 1;
        }
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} operations in {} kernels", self.nodes, self.groups)?;
        writeln!(f, "{} bytes of arenas for {} bytes of results", self.arena_bytes, self.result_bytes)?;
        for (row, count) in self.fused() {
            writeln!(f, "fused {count} × {}", row.label())?;
        }
        for (row, decline, count) in self.declines() {
            writeln!(f, "refused {count} × {}: {decline}", row.label())?;
        }
        self.splits.iter().try_for_each(|split| writeln!(f, "{split}"))
    }
}

impl Plan {
    /// Every group with its nodes and where their results go, then the report: what `WGFUSE_GRAPH_DEBUG` logs.
    pub fn listing(&self, graph: &Graph) -> String {
        let mut text = String::new();
        for (at, group) in self.groups.iter().enumerate() {
            let nodes: Vec<String> = group.nodes.iter().map(|&id| NodeName::of(graph, id).to_string()).collect();
            let row = group.fusion.map_or(String::new(), |row| format!(" [{}]", row.id.name()));
            // Writing to a string cannot fail.
            let _ = write!(text, "{at}{row} {}", nodes.join(" + "));
            for slot in group.stored().filter_map(|id| self.placement.slot(graph, id)) {
                let _ = match slot.place {
                    Place::Arena(arena) => write!(text, " → arena {arena} @ {}+{}", slot.offset, slot.bytes),
                    Place::Buffer(buffer) => write!(text, " → buffer {} @ {}+{}", buffer.0, slot.offset, slot.bytes),
                };
            }
            text.push('\n');
        }
        let _ = write!(text, "{}", self.report);
        text
    }
}
