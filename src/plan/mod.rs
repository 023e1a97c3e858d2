//! From a graph to a plan: what runs in which order, what runs as one kernel, and where every tensor lives.
//!
//! The steps, each in its own file: pack (in `fusion`), reorder, group, place, prove and, where the proof fails, split;
//! then cut into stages and chunks. Only grouping asks the fusion table; whatever comes after reads [`Group`]s.

mod alone;
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
mod touched;

pub use alone::place_alone;
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
    let order =
        if options.optimize { reorder::reorder(graph, &pack(graph, options.matcher)) } else { graph.nodes().to_vec() };
    settle(graph, &order, limits, options, |groups| {
        let moments = stages::moments(graph, groups, options.concurrency);
        place::place(graph, groups, &moments, leaves, limits)
    })
}

/// Plans a graph whose tensors somebody else has placed, for the builder's order; that order is kept.
///
/// A fused kernel reads its sources later than its nodes one by one would, so that memory may have been used again too
/// early for it: such groups are split.
///
/// # Errors
/// When a tensor that an operation reads or writes has no place or does not fit it, the limits make no sense, or a
/// single operation would overwrite what it still reads.
pub fn plan_placed(
    graph: &Graph,
    placement: &Placement,
    limits: &Limits,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    limits.check()?;
    placement.check(graph, limits)?;
    settle(graph, graph.nodes(), limits, options, |_| Ok(placement.clone()))
}

/// Groups an order, and splits what its placement does not allow until nothing is left to split.
fn settle(
    graph: &Graph,
    order: &[TensorId],
    limits: &Limits,
    options: &PlanOptions,
    place: impl Fn(&[Group]) -> Result<Placement, PlanError>,
) -> Result<Plan, PlanError> {
    let mut report = PlanReport::default();
    let mut groups = group::group(&Sequence::new(graph, order, Mode::Full), options.matcher, &mut report);
    let placement = loop {
        let placement = place(&groups)?;
        let excesses = bindings::exceeding(graph, &placement, &groups, limits);
        let faults = prove(graph, &placement, &groups);
        if excesses.is_empty() && faults.is_empty() {
            break placement;
        }
        groups = split::split(graph, options.matcher, groups, &excesses, &faults, &mut report)?;
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
