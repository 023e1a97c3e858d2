//! From a graph to a plan: what runs in which order, what runs as one kernel, and where every tensor lives.
//!
//! The steps, each in its own file: pack (`fusion`), [reorder](reorder), [group](group), [place](place),
//! [prove](prove) and, where a proof fails, [split](split), then cut into [stages](stages) and [chunks](chunk). Only
//! grouping asks the fusion table; whatever comes after reads [`Group`]s.

mod arena;
mod bindings;
mod cache;
mod chunk;
mod error;
mod facts;
mod group;
mod options;
mod place;
mod placement;
mod prove;
mod reorder;
mod report;
mod signature;
mod split;
mod stages;

pub use cache::PlanCache;
pub use error::{NodeName, PlanError};
pub use group::Group;
pub use options::{Limits, PlanOptions};
pub use placement::{BufferId, Leaves, Place, Placement, Slot};
pub use prove::{Fault, prove};
pub use report::{PlanReport, Split};
pub use signature::Signature;

use crate::fusion::{Fusion, Mode, Sequence, pack};
use crate::graph::{Graph, TensorId};
use std::ops::Range;

/// What runs, in which order, and where everything lives.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The groups in execution order.
    pub groups: Vec<Group>,
    /// Where every tensor lives.
    pub placement: Placement,
    /// Consecutive groups that touch none of each other's results, and so may run at the same time.
    pub stages: Vec<Range<usize>>,
    /// Consecutive groups to encode together, for several threads that encode.
    pub chunks: Vec<Range<usize>>,
    /// What was decided, and why.
    pub report: PlanReport,
}

impl Plan {
    /// The row of every fused group, in execution order.
    pub fn fusions(&self) -> impl Iterator<Item = &'static Fusion> {
        self.groups.iter().filter_map(|group| group.fusion)
    }
}

/// Plans a graph.
///
/// # Errors
/// When a leaf is not placed or too small, a tensor does not fit a buffer, the limits make no sense, or an operation
/// would overwrite what it still reads.
pub fn plan(graph: &Graph, leaves: &Leaves, limits: &Limits, options: &PlanOptions) -> Result<Plan, PlanError> {
    limits.check()?;
    let order = execution_order(graph, options);
    let mut report = PlanReport::default();
    let mut groups = group::group(&Sequence::new(graph, &order, Mode::Full), options.matcher, &mut report);
    let placement = loop {
        let placement = place::place(graph, &groups, leaves, limits)?;
        let bound = bindings::exceeding(graph, &placement, &groups, limits);
        let faults = prove(graph, &placement, &groups);
        if bound.is_empty() && faults.is_empty() {
            break placement;
        }
        groups = split::split(graph, options.matcher, groups, &bound, &faults, &mut report)?;
    };
    report.measure(graph, &groups, &placement);
    let stages = stages::stages(graph, &placement, &groups, options.concurrency);
    let chunks = chunk::chunks(groups.len(), options.chunks);
    let plan = Plan { groups, placement, stages, chunks, report };
    if options.debug {
        log::info!("plan:\n{}", plan.listing(graph));
    }
    Ok(plan)
}

/// The builder's order, or one that brings independent work together.
fn execution_order(graph: &Graph, options: &PlanOptions) -> Vec<TensorId> {
    if options.optimize { reorder::reorder(graph, &pack(graph, options.matcher)) } else { graph.nodes().to_vec() }
}
