//! What must hold of every plan, checked without the planner's own tools: by running the plan over memory that remembers
//! whose bytes it holds.

use std::collections::HashMap;
use wgfuse::graph::{Graph, OpKind, TensorId};
use wgfuse::plan::{Limits, Place, Plan, Slot};

/// Panics, saying what does not hold.
pub fn check(graph: &Graph, plan: &Plan, limits: &Limits) {
    each_node_once(graph, plan);
    order_respects_memory(graph, plan);
    ranges_are_covered(plan);
    stages_are_independent(graph, plan);
    slots_fit(graph, plan, limits);
    memory_holds(graph, plan);
}

fn each_node_once(graph: &Graph, plan: &Plan) {
    let mut grouped: Vec<TensorId> = plan.groups.iter().flat_map(|group| group.nodes.clone()).collect();
    let mut expected: Vec<TensorId> =
        graph.nodes().iter().copied().filter(|&id| !graph.tensor(id).is_silent()).collect();
    grouped.sort();
    expected.sort();
    assert_eq!(grouped, expected, "every node that needs a kernel is in exactly one group");
    for group in &plan.groups {
        let kinds: Vec<OpKind> = group.nodes.iter().map(|&id| graph.tensor(id).kind()).collect();
        match group.fusion {
            Some(row) => assert_eq!(kinds, row.ops, "a fused group is its row"),
            None => assert_eq!(kinds.len(), 1, "a group without a row is one node"),
        }
    }
}

/// Two nodes that touch the same memory, at least one of them writing, keep the builder's order.
fn order_respects_memory(graph: &Graph, plan: &Plan) {
    let order: Vec<TensorId> = plan.groups.iter().flat_map(|group| group.nodes.clone()).collect();
    let at: HashMap<TensorId, usize> = order.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    let nodes: Vec<TensorId> = graph.nodes().iter().copied().filter(|id| at.contains_key(id)).collect();
    let touches = |id: TensorId, root: TensorId| {
        graph.root(id) == root || graph.tensor(id).sources().any(|source| graph.root(source) == root)
    };
    for (index, &first) in nodes.iter().enumerate() {
        for &second in &nodes[index + 1..] {
            let conflict = touches(second, graph.root(first)) || touches(first, graph.root(second));
            assert!(!conflict || at[&first] < at[&second], "{first:?} must stay before {second:?}");
        }
    }
}

fn ranges_are_covered(plan: &Plan) {
    for ranges in [&plan.stages, &plan.chunks] {
        let covered: Vec<usize> = ranges.iter().cloned().flatten().collect();
        assert!(covered.into_iter().eq(0..plan.groups.len()), "stages and chunks cover the groups in order");
        assert!(ranges.iter().all(|range| !range.is_empty()));
    }
}

/// Groups of one stage touch none of each other's results.
fn stages_are_independent(graph: &Graph, plan: &Plan) {
    let slots =
        |ids: Vec<TensorId>| ids.into_iter().filter_map(|id| plan.placement.slot(graph, id)).collect::<Vec<_>>();
    let written: Vec<Vec<Slot>> = plan.groups.iter().map(|group| slots(group.stored().collect())).collect();
    let sources = |id: &TensorId| graph.tensor(*id).sources().collect::<Vec<_>>();
    let read = plan.groups.iter().map(|group| slots(group.nodes.iter().flat_map(sources).collect()));
    let read: Vec<Vec<Slot>> = read.collect();
    let meet = |a: &[Slot], b: &[Slot]| a.iter().any(|a| b.iter().any(|b| a.meets(b)));
    for stage in &plan.stages {
        for first in stage.clone() {
            for second in first + 1..stage.end {
                let apart = !meet(&written[first], &written[second])
                    && !meet(&written[first], &read[second])
                    && !meet(&read[first], &written[second]);
                assert!(apart, "groups {first} and {second} share a stage and memory");
            }
        }
    }
}

fn slots_fit(graph: &Graph, plan: &Plan, limits: &Limits) {
    for &arena in plan.placement.arenas() {
        assert!(arena <= limits.max_buffer_bytes, "an arena of {arena} bytes");
    }
    for &id in graph.nodes().iter().chain(graph.leaves()) {
        let Some(slot) = plan.placement.slot(graph, id) else { continue };
        if graph.root(id) == id {
            assert_eq!(slot.offset % limits.alignment, 0, "{id:?} is aligned");
        }
        if let Place::Arena(arena) = slot.place {
            assert!(slot.end() <= plan.placement.arenas()[arena as usize], "{id:?} is inside its arena");
        }
    }
}

/// Whose bytes lie where: disjoint ranges with the tensor that owns the memory.
#[derive(Default)]
struct Memory {
    ranges: Vec<(Place, usize, usize, TensorId)>,
}

impl Memory {
    fn write(&mut self, slot: Slot, root: TensorId) {
        let (start, end) = (slot.offset, slot.end());
        let mut kept = Vec::new();
        for (place, from, to, owner) in self.ranges.drain(..) {
            if place != slot.place || to <= start || from >= end {
                kept.push((place, from, to, owner));
                continue;
            }
            kept.extend((from < start).then_some((place, from, start, owner)));
            kept.extend((end < to).then_some((place, end, to, owner)));
        }
        kept.push((slot.place, start, end, root));
        self.ranges = kept;
    }

    fn holds(&self, slot: Slot, root: TensorId) -> bool {
        let ours = self.ranges.iter().filter(|(place, .., owner)| *place == slot.place && *owner == root);
        let common = ours.map(|&(_, from, to, _)| to.min(slot.end()).saturating_sub(from.max(slot.offset)));
        common.sum::<usize>() == slot.bytes
    }
}

fn memory_holds(graph: &Graph, plan: &Plan) {
    let slot = |id: TensorId| plan.placement.slot(graph, id).unwrap_or_else(|| panic!("{id:?} has no memory"));
    let mut memory = Memory::default();
    for &id in graph.leaves() {
        memory.write(slot(id), id);
    }
    for (at, group) in plan.groups.iter().enumerate() {
        let stored: Vec<TensorId> = group.stored().collect();
        for &node in &group.nodes {
            let kind = graph.tensor(node).kind();
            for (index, source) in graph.tensor(node).source_slots().iter().enumerate() {
                let Some(source) = *source else { continue };
                if group.nodes.contains(&graph.root(source)) {
                    continue;
                }
                let read = slot(source);
                assert!(
                    memory.holds(read, graph.root(source)),
                    "group {at}: {source:?} is gone when {node:?} reads it"
                );
                let overwritten = matches!((kind, index), (OpKind::SetRows, 2) | (OpKind::Cpy, 1));
                let in_place = (kind == OpKind::Scale && slot(node) == read)
                    || (matches!((kind, index), (OpKind::OptStepAdamW | OpKind::OptStepSgd, 0)) && slot(node) == read);
                for &written in &stored {
                    let apart = !slot(written).meets(&read);
                    assert!(apart || overwritten || in_place, "group {at}: {written:?} overwrites {source:?}");
                }
            }
        }
        for (index, &id) in stored.iter().enumerate() {
            assert!(stored[..index].iter().all(|&other| !slot(other).meets(&slot(id))), "group {at}: results overlap");
            memory.write(slot(id), graph.root(id));
        }
        // AdamW writes its moments, too, and reads nothing else there.
        for &node in group.nodes.iter().filter(|&&node| graph.tensor(node).kind() == OpKind::OptStepAdamW) {
            let sources: Vec<TensorId> = graph.tensor(node).sources().collect();
            for moment in [2, 3] {
                let others = sources.iter().enumerate().filter(|(index, _)| *index != moment);
                let mut met = others.filter(|(_, other)| slot(**other).meets(&slot(sources[moment])));
                assert_eq!(met.next(), None, "group {at}: a moment lies on another source");
                memory.write(slot(sources[moment]), graph.root(sources[moment]));
            }
        }
    }
    for &id in graph.nodes().iter().chain(graph.leaves()) {
        if graph.tensor(id).is_output() {
            assert!(memory.holds(slot(id), graph.root(id)), "output {id:?} does not survive");
        }
    }
}
