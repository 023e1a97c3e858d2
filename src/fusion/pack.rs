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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{DType, GraphError, LeafKind, OpKind};

    /// A norm, so many views of its factor, and the product.
    fn norm_views_mul(views: usize) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        let x = graph.leaf("x", LeafKind::Input, DType::F32, [8, 2, 1, 1])?;
        let mut factor = graph.leaf("w", LeafKind::Weight, DType::F32, [8, 1, 1, 1])?;
        let normed = graph.rms_norm(x, 1e-5)?;
        for _ in 0..views {
            factor = graph.reshape(factor, [8, 1, 1, 1])?;
        }
        let scaled = graph.mul(normed, factor)?;
        graph.expand(scaled)?;
        Ok(graph)
    }

    #[test]
    fn packs_cover_the_order() -> Result<(), GraphError> {
        let packs = |views, matcher| Ok::<_, GraphError>(pack(&norm_views_mul(views)?, matcher));
        assert_eq!(packs(3, Matcher::default())?.len(), 1);
        assert_eq!(packs(3, Matcher::off())?.len(), 5);
        let alone = packs(20, Matcher::default())?;
        assert!(alone.iter().cloned().flatten().eq(0..22));
        Ok(())
    }

    #[test]
    fn a_pack_spans_at_most_sixteen_nodes() -> Result<(), GraphError> {
        assert_eq!(pack(&norm_views_mul(MAX_PACK - 2)?, Matcher::default()).len(), 1);
        assert_eq!(pack(&norm_views_mul(MAX_PACK - 1)?, Matcher::default()).len(), MAX_PACK + 1);
        Ok(())
    }

    #[test]
    fn a_view_never_starts_a_pack() -> Result<(), GraphError> {
        let mut graph = norm_views_mul(1)?;
        let x = graph.nodes()[0];
        let view = graph.reshape(x, [16, 1, 1, 1])?;
        graph.expand(view)?;
        let kind = |position: usize| graph.tensor(graph.nodes()[position]).kind();
        let packs = pack(&graph, Matcher::default());
        assert!(packs.iter().all(|pack| pack.len() == 1 || kind(pack.start) != OpKind::Reshape));
        Ok(())
    }
}
