//! What rows of the table ask of their nodes beyond the sequence, one named function each.

use super::Mode;
use crate::graph::{BufferClass, DType, Graph, Layout, Op, OpKind, Tensor, TensorId};

/// Nodes that a row may fuse.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Their graph.
    pub graph: &'a Graph,
    /// How much is known.
    pub mode: Mode,
    /// The nodes in the row's order.
    pub nodes: &'a [TensorId],
}

/// A named condition of a row.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// What refusals call it.
    pub name: &'static str,
    /// Whether it holds.
    pub holds: fn(&Candidate<'_>) -> bool,
}

const fn check(name: &'static str, holds: fn(&Candidate<'_>) -> bool) -> Check {
    Check { name, holds }
}

/// A normalisation scaled, and perhaps shifted, by weight rows.
pub(super) const NORM: &[Check] = &[
    check("reads_previous_first", reads_previous_first),
    check("row_width", row_width),
    check("contiguous_rows", contiguous_rows),
    check("f32", f32_throughout),
];

/// A running sum.
pub(super) const ADD_CHAIN: &[Check] = &[
    check("reads_previous_first", reads_previous_first),
    check("addend_layouts", addend_layouts),
    check("addend_classes", addend_classes),
];

/// The snake activation.
pub(super) const SNAKE: &[Check] = &[
    check("same_x", snake_same_x),
    check("types", snake_types),
    check("two_dimensional", snake_two_dimensional),
    check("factors", snake_factors),
    check("contiguous", snake_contiguous),
];

/// A gated delta net whose state snapshots go straight to the cache.
pub(super) const GDN_CACHE: &[Check] = &[
    check("f32", gdn_f32),
    check("not_output", gdn_not_output),
    check("snapshot_view", gdn_snapshot_view),
    check("destination", gdn_destination),
    check("tail_unread", gdn_tail_unread),
    check("destination_memory", gdn_destination_memory),
];

impl<'a> Candidate<'a> {
    fn node(&self, at: usize) -> &'a Tensor {
        self.graph.tensor(self.nodes[at])
    }

    fn source(&self, at: usize, index: usize) -> Option<&'a Tensor> {
        self.node(at).src(index).map(|id| self.graph.tensor(id))
    }

    /// The source of a two-operand node that is not the node before it.
    fn other_source(&self, at: usize) -> Option<TensorId> {
        let previous = self.nodes[at - 1];
        self.node(at).sources().find(|&source| source != previous)
    }

    /// The second sources of the nodes from `from` on.
    fn seconds(&self, from: usize) -> impl Iterator<Item = Option<&'a Tensor>> {
        (from..self.nodes.len()).map(|at| self.source(at, 1))
    }
}

fn reads_previous_first(c: &Candidate<'_>) -> bool {
    (1..c.nodes.len()).all(|at| c.node(at).src(0) == Some(c.nodes[at - 1]))
}

/// A width of 1 would broadcast, which the kernels of a norm do not do.
fn row_width(c: &Candidate<'_>) -> bool {
    let width = c.node(0).ne()[0];
    c.seconds(1).all(|second| second.is_some_and(|t| t.ne()[0] == width))
}

fn contiguous_rows(c: &Candidate<'_>) -> bool {
    c.seconds(1).all(|second| second.is_some_and(|t| t.layout().has_contiguous_rows()))
}

fn f32_throughout(c: &Candidate<'_>) -> bool {
    let nodes = (0..c.nodes.len()).map(|at| Some(c.node(at)));
    nodes.chain(c.seconds(1)).all(|t| t.is_some_and(|t| t.dtype() == DType::F32))
}

/// Strides of 1-wide dimensions count: one set of strides serves all addends of a kernel.
fn addend_layouts(c: &Candidate<'_>) -> bool {
    let first = c.source(0, 1).map(Tensor::layout);
    first.is_some() && c.seconds(1).all(|second| second.map(Tensor::layout) == first)
}

fn addend_classes(c: &Candidate<'_>) -> bool {
    let class = |at: usize| c.node(at).src(1).map(|id| c.graph.class(id));
    match c.mode {
        Mode::Structural => true,
        Mode::Full => (1..c.nodes.len()).all(|at| class(at) == class(0)),
    }
}

/// The operands of `x + sin²(a·x)·inv_b`.
struct SnakeOperands<'a> {
    x: &'a Tensor,
    a: &'a Tensor,
    inv_b: &'a Tensor,
}

/// The operands by their roles, whichever side of their operation they stand on; `None` if the sum adds something
/// other than what the first product scales.
fn snake_operands<'a>(c: &Candidate<'a>) -> Option<SnakeOperands<'a>> {
    let x = c.other_source(4)?;
    let a = match (c.node(0).src(0)?, c.node(0).src(1)?) {
        (first, second) if first == x => second,
        (first, second) if second == x => first,
        _ => return None,
    };
    let inv_b = c.other_source(3)?;
    Some(SnakeOperands { x: c.graph.tensor(x), a: c.graph.tensor(a), inv_b: c.graph.tensor(inv_b) })
}

fn snake(c: &Candidate<'_>, holds: impl Fn(&SnakeOperands<'_>) -> bool) -> bool {
    snake_operands(c).is_some_and(|operands| holds(&operands))
}

fn snake_same_x(c: &Candidate<'_>) -> bool {
    snake_operands(c).is_some()
}

fn snake_types(c: &Candidate<'_>) -> bool {
    snake(c, |s| {
        let x = s.x.dtype();
        x.is_float()
            && (0..c.nodes.len()).all(|at| c.node(at).dtype() == x)
            && [s.a, s.inv_b].iter().all(|factor| factor.dtype() == DType::F32)
    })
}

fn snake_two_dimensional(c: &Candidate<'_>) -> bool {
    snake(c, |s| s.x.ne()[2..] == [1, 1])
}

fn snake_factors(c: &Candidate<'_>) -> bool {
    snake(c, |s| {
        let expected = [1, s.x.ne()[1], 1, 1];
        s.x.ne() == c.node(0).ne() && s.a.ne() == expected && s.inv_b.ne() == expected
    })
}

fn snake_contiguous(c: &Candidate<'_>) -> bool {
    snake(c, |s| {
        let nodes = (0..c.nodes.len()).map(|at| c.node(at));
        [s.x, s.a, s.inv_b].into_iter().chain(nodes).all(|t| t.layout().is_contiguous())
    })
}

/// Where the result of a delta net keeps its state snapshots.
struct Snapshots {
    /// First byte of the tail: what lies before are attention rows.
    start: usize,
    /// One past the last byte.
    end: usize,
    /// Elements of one state.
    state: usize,
    /// Sequences in the batch.
    batch: usize,
    /// Snapshots that the kernel writes.
    written: usize,
}

fn snapshots(c: &Candidate<'_>) -> Option<Snapshots> {
    let Op::GatedDeltaNet { snapshots } = *c.node(0).op() else { return None };
    let [size, heads, tokens, batch] = c.source(0, 2)?.ne();
    let layout = c.node(0).layout();
    let state = size * size * heads;
    let end = layout.extent();
    let start = end.checked_sub(state * batch * snapshots as usize * layout.dtype.block_bytes())?;
    Some(Snapshots { start, end, state, batch, written: tokens.min(snapshots as usize) })
}

fn gdn_f32(c: &Candidate<'_>) -> bool {
    [Some(c.node(0)), Some(c.node(1)), c.source(1, 0)].iter().all(|t| t.is_some_and(|t| t.dtype() == DType::F32))
}

fn gdn_not_output(c: &Candidate<'_>) -> bool {
    !c.node(0).is_output() && !c.node(1).is_output()
}

fn gdn_snapshot_view(c: &Candidate<'_>) -> bool {
    let (Some(source), Some(tail)) = (c.source(1, 0), snapshots(c)) else { return false };
    source.kind() == OpKind::View
        && source.src(0) == Some(c.nodes[0])
        && source.view().is_some_and(|view| view.offset == tail.start)
        && source.layout().is_contiguous()
}

/// Snapshots may lie apart in the cache, but each is dense. No copy writes elements that overlap.
fn gdn_destination(c: &Candidate<'_>) -> bool {
    let Some(tail) = snapshots(c) else { return false };
    let Layout { ne, nb, .. } = *c.node(1).layout();
    let element = DType::F32.block_bytes();
    ne == [tail.state, tail.batch, tail.written, 1] && nb[..2] == [element, tail.state * element]
}

/// The kernel writes its snapshots to the cache alone, so that whoever else looked at the tail would miss them: a node
/// that reads it, by whichever view, or the caller.
fn gdn_tail_unread(c: &Candidate<'_>) -> bool {
    let Some(tail) = snapshots(c) else { return false };
    let (gdn, cpy) = (c.nodes[0], c.nodes[1]);
    let shows_tail = |id: TensorId| {
        let tensor = c.graph.tensor(id);
        let offset = if id == gdn { Some(0) } else { tensor.view().filter(|v| v.root == gdn).map(|v| v.offset) };
        offset.is_some_and(|offset| offset < tail.end && offset + tensor.layout().extent() > tail.start)
    };
    let missed = |&id: &TensorId| {
        let tensor = c.graph.tensor(id);
        // A view hands memory on; who reads it is asked at its readers.
        let read = !tensor.kind().is_view() && id != cpy && tensor.sources().any(shows_tail);
        read || (tensor.is_output() && shows_tail(id))
    };
    !c.graph.nodes().iter().any(missed) && !c.node(1).src(1).is_some_and(shows_tail)
}

fn gdn_destination_memory(c: &Candidate<'_>) -> bool {
    match c.mode {
        Mode::Structural => true,
        Mode::Full => match c.graph.class(c.nodes[1]) {
            BufferClass::Cache => true,
            // Nothing writes a weight.
            BufferClass::Weight | BufferClass::Computed => false,
        },
    }
}
