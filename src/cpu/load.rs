//! Makes a plan executable: checks every group and every range, so that running it cannot leave memory.

use super::evaluate::Kernel;
use super::norm::Norm;
use super::program::{CpuProgram, Span, Step};
use super::{Buffer, CpuDevice, recurrent};
use crate::device::DeviceError;
use crate::fusion::{Fusion, FusionId};
use crate::graph::{DType, Graph, GraphError, Layout, Op, Tensor, TensorId, ViewOf};
use crate::plan::{BufferId, Group, Place, Plan};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Makes a plan executable on a device.
pub(super) fn load(
    device: &CpuDevice,
    graph: &Graph,
    plan: &Plan,
    arenas: &[BufferId],
) -> Result<CpuProgram, DeviceError> {
    let needed = plan.placement.arenas();
    if arenas.len() < needed.len() {
        return Err(misfit(format!("{} arenas given, {} needed", arenas.len(), needed.len())));
    }
    for (&id, &bytes) in arenas.iter().zip(needed) {
        device.buffer(id)?.check(0, bytes)?;
    }
    let mut loader = Loader { device, graph, plan, arenas, buffers: BTreeMap::new() };
    for &id in graph.leaves().iter().chain(graph.nodes()) {
        if let Some(slot) = plan.placement.slot(graph, id) {
            let buffer = loader.buffer_id(slot.place)?;
            loader.buffers.insert(buffer, device.buffer(buffer)?);
        }
    }
    let mut steps = Vec::with_capacity(plan.groups.len());
    for group in &plan.groups {
        steps.extend(loader.step(group)?);
    }
    Ok(CpuProgram { buffers: loader.buffers.into_values().collect(), steps })
}

fn misfit(reason: impl Into<String>) -> DeviceError {
    DeviceError::Plan { reason: reason.into() }
}

struct Loader<'a> {
    device: &'a CpuDevice,
    graph: &'a Graph,
    plan: &'a Plan,
    arenas: &'a [BufferId],
    buffers: BTreeMap<BufferId, Arc<Buffer>>,
}

impl<'a> Loader<'a> {
    fn buffer_id(&self, place: Place) -> Result<BufferId, DeviceError> {
        match place {
            Place::Buffer(id) => Ok(id),
            Place::Arena(index) => {
                self.arenas.get(index as usize).copied().ok_or_else(|| misfit(format!("there is no arena {index}")))
            }
        }
    }

    fn tensor(&self, id: TensorId) -> Result<&'a Tensor, DeviceError> {
        self.graph.get(id).ok_or_else(|| misfit(GraphError::Unknown(id).to_string()))
    }

    /// The memory of a tensor, read or written as `layout`, which starts `ahead` bytes into it.
    fn span_at(&self, id: TensorId, ahead: usize, layout: Layout) -> Result<Span, DeviceError> {
        let name = self.tensor(id)?.name();
        let slot = self.plan.placement.slot(self.graph, id);
        let slot = slot.ok_or_else(|| misfit(format!("{id:?} `{name}` has no memory")))?;
        let buffer = self.buffer_id(slot.place)?;
        let offset = slot.offset.saturating_add(ahead);
        self.device.buffer(buffer)?.check(offset, layout.extent())?;
        let position = self.buffers.keys().position(|&known| known == buffer);
        let position = position.ok_or(DeviceError::UnknownBuffer(buffer))?;
        Ok(Span { buffer: position, offset, layout })
    }

    fn span(&self, id: TensorId) -> Result<Span, DeviceError> {
        self.span_at(id, 0, *self.tensor(id)?.layout())
    }

    fn step(&self, group: &Group) -> Result<Option<Step>, DeviceError> {
        match (group.fusion, group.nodes.as_slice()) {
            (None, &[node]) => self.single(node),
            (None, nodes) => Err(misfit(format!("{} nodes in a group that is not fused", nodes.len()))),
            (Some(fusion), nodes) => self.fused(fusion, nodes).map(Some),
        }
    }

    fn single(&self, id: TensorId) -> Result<Option<Step>, DeviceError> {
        let node = self.tensor(id)?;
        if node.is_silent() {
            return Ok(None);
        }
        let reads = self.reads(node.source_slots())?;
        let writes = if let Op::GatedDeltaNet { snapshots } = *node.op() {
            let [attention, states] = self.delta_net_parts(node, snapshots)?;
            vec![self.span_at(id, 0, attention)?, self.span_at(id, attention.extent(), states)?]
        } else {
            let updates = node.kind().updates().iter().filter_map(|&slot| node.src(slot));
            std::iter::once(id).chain(updates).map(|id| self.span(id)).collect::<Result<_, _>>()?
        };
        Ok(Some(Step { kernel: Kernel::Op(*node.op()), reads, writes }))
    }

    fn reads(&self, sources: &[Option<TensorId>]) -> Result<Vec<Option<Span>>, DeviceError> {
        sources.iter().map(|source| source.map(|id| self.span(id)).transpose()).collect()
    }

    fn fused(&self, fusion: &Fusion, ids: &[TensorId]) -> Result<Step, DeviceError> {
        let nodes = ids.iter().map(|&id| self.tensor(id)).collect::<Result<Vec<_>, _>>()?;
        let group = Members { fusion, ids, nodes };
        let kinds = group.nodes.iter().map(|node| node.kind());
        if !kinds.eq(fusion.ops.iter().copied()) || group.nodes.iter().any(|node| node.is_silent()) {
            return Err(group.misfit("its nodes are not those of the table's row"));
        }
        match fusion.id {
            FusionId::NormMul | FusionId::NormMulAdd => {
                let norm = if let Op::Norm { eps } = *group.nodes[0].op() {
                    Norm { centred: true, eps }
                } else if let Op::RmsNorm { eps } = *group.nodes[0].op() {
                    Norm { centred: false, eps }
                } else {
                    return Err(group.misfit("its first node does not normalise"));
                };
                self.chain(&group, Kernel::Norm(norm), vec![group.nodes[0].src(0)])
            }
            FusionId::AddChain => self.chain(&group, Kernel::Sum, vec![group.nodes[0].src(0), group.nodes[0].src(1)]),
            FusionId::Snake => self.snake(&group),
            FusionId::GdnCache => self.delta_net_into_cache(&group),
        }
    }

    /// Nodes each of which reads the one before as its first source; their second sources follow those of the first node.
    fn chain(&self, group: &Members, kernel: Kernel, mut sources: Vec<Option<TensorId>>) -> Result<Step, DeviceError> {
        for (node, before) in group.nodes.iter().skip(1).zip(group.ids) {
            let other = node.src(1).filter(|other| !group.ids.contains(other));
            if node.src(0) != Some(*before) || other.is_none() {
                return Err(group.misfit("a node does not read the one before it first, and memory second"));
            }
            sources.push(other);
        }
        let last = group.ids[group.ids.len() - 1];
        Ok(Step { kernel, reads: self.reads(&sources)?, writes: vec![self.span(last)?] })
    }

    /// `a·x, sin, square, ·inv_b, + x`.
    fn snake(&self, group: &Members) -> Result<Step, DeviceError> {
        // The operand of a node that is not `known`.
        let other = |position: usize, known: Option<TensorId>| match (
            group.nodes[position].src(0),
            group.nodes[position].src(1),
        ) {
            (first, second) if first == known => Ok(second),
            (first, second) if second == known => Ok(first),
            _ => Err(group.misfit("a product or sum does not read what it should")),
        };
        let before = |position: usize| Some(group.ids[position - 1]);
        let x = other(4, before(4))?;
        let inv_b = other(3, before(3))?;
        let a = other(0, x)?;
        let in_line = (1..3).all(|position| group.nodes[position].src(0) == before(position));
        let outside = [x, a, inv_b].iter().flatten().all(|source| !group.ids.contains(source));
        let step =
            Step { kernel: Kernel::Snake, reads: self.reads(&[x, a, inv_b])?, writes: vec![self.span(group.ids[4])?] };
        let shapes: Vec<Layout> = step.reads.iter().flatten().map(|read| read.layout).collect();
        let fits = shapes.len() == 3
            && shapes[0].ne == group.nodes[4].ne()
            && shapes.iter().all(|shape| shape.repeats_into(&shapes[0]));
        if !in_line || !outside || !fits {
            return Err(group.misfit("its nodes do not form the activation"));
        }
        Ok(step)
    }

    fn delta_net_into_cache(&self, group: &Members) -> Result<Step, DeviceError> {
        let &[net, copy] = group.nodes.as_slice() else { return Err(group.misfit("two nodes make it")) };
        let Op::GatedDeltaNet { snapshots } = *net.op() else { return Err(group.misfit("the first is no delta net")) };
        let [attention, states] = self.delta_net_parts(net, snapshots)?;
        let tail = copy.src(0).map(|id| self.tensor(id)).transpose()?;
        let is_tail = tail.is_some_and(|tail| {
            let root = ViewOf { root: group.ids[0], offset: attention.extent() };
            tail.view() == Some(root) && tail.layout().is_contiguous() && tail.layout().elements() == states.elements()
        });
        if !is_tail {
            return Err(group.misfit("the copy does not read the snapshots and nothing else"));
        }
        Ok(Step {
            kernel: Kernel::Op(*net.op()),
            reads: self.reads(net.source_slots())?,
            writes: vec![self.span_at(group.ids[0], 0, attention)?, self.span(group.ids[1])?],
        })
    }

    /// The layouts of what a gated delta net writes: the attention rows, and the snapshots that follow them.
    fn delta_net_parts(&self, net: &Tensor, snapshots: u32) -> Result<[Layout; 2], DeviceError> {
        let values = net.src(2).ok_or_else(|| misfit("a delta net without values"))?;
        let ne = self.tensor(values)?.ne();
        let [size, heads, tokens, batch] = ne;
        let part = |ne| Layout::contiguous(DType::F32, ne).map_err(|error| misfit(error.to_string()));
        let attention = part([size * heads, tokens * batch, 1, 1])?;
        Ok([attention, part([size, size * heads * batch, recurrent::kept(snapshots, ne), 1])?])
    }
}

/// The nodes of a fused group.
struct Members<'a> {
    fusion: &'a Fusion,
    ids: &'a [TensorId],
    /// As many as there are ids and operations in the row.
    nodes: Vec<&'a Tensor>,
}

impl Members<'_> {
    fn misfit(&self, reason: &str) -> DeviceError {
        misfit(format!("group {:?} of {:?}: {reason}", self.fusion.id, self.ids))
    }
}
