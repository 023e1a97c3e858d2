//! What plans are made for where no device takes part.

use std::collections::HashMap;
use wgfuse::graph::{BufferClass, Graph};
use wgfuse::plan::{BufferId, Leaves, Limits, Place, PlanOptions, Slot};

/// Limits that no small graph meets.
pub const LIMITS: Limits = Limits { max_buffer_bytes: 1 << 30, alignment: 256, max_bindings: 8 };

/// A place for every weight and cache: one buffer for each class.
pub fn leaves(graph: &Graph) -> Leaves {
    let mut ends = HashMap::new();
    let mut leaves = Leaves::new();
    for &id in graph.leaves() {
        let buffer = match graph.class(id) {
            BufferClass::Weight => BufferId(0),
            BufferClass::Cache => BufferId(1),
            BufferClass::Computed => continue,
        };
        let end: &mut usize = ends.entry(buffer).or_default();
        let slot = Slot { place: Place::Buffer(buffer), offset: *end, bytes: graph.tensor(id).layout().extent() };
        *end = slot.end().next_multiple_of(LIMITS.alignment);
        leaves.insert(id, slot);
    }
    leaves
}

/// Nothing fuses, and the builder's order stands.
pub fn plain() -> PlanOptions {
    PlanOptions { matcher: wgfuse::fusion::Matcher::off(), optimize: false, ..PlanOptions::default() }
}
