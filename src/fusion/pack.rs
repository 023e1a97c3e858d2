//! Which nodes stay together while the graph is reordered.

use super::{Matcher, Mode, Sequence};
use crate::graph::Graph;
use std::ops::Range;

/// Nodes that one pack may span, views included.
pub const MAX_PACK: usize = 16;

/// Positions in [`Graph::nodes`] that stay together.
pub type Pack = Range<usize>;

/// Cuts the builder's order into packs: fusable runs with the views between their nodes, and every other node alone.
pub fn pack(graph: &Graph, matcher: Matcher) -> Vec<Pack> {
    let order = graph.nodes();
    let sequence = Sequence::new(graph, order, Mode::Structural);
    let positions: Vec<usize> = (0..order.len()).filter(|&at| !graph.tensor(order[at]).kind().is_view()).collect();
    let mut packs = Vec::with_capacity(order.len());
    let (mut at, mut position) = (0, 0);
    while position < order.len() {
        let mut end = position + 1;
        if positions.get(at) == Some(&position) {
            let fused = matcher.next(&sequence, at).row.map_or(1, |row| row.ops.len());
            let fused_end = positions[at + fused - 1] + 1;
            if fused_end - position <= MAX_PACK {
                (at, end) = (at + fused, fused_end);
            } else {
                at += 1;
            }
        }
        packs.push(position..end);
        position = end;
    }
    packs
}
