//! Which memory every tensor gets: leaves keep theirs, inputs and results share arenas.
//!
//! A tensor is alive from the moment of the group that first touches it to that of the one that last does, both
//! included, so that what a group writes never lies where something lies that it reads, or that another group reads or
//! writes at the same moment.

use super::arena::{Arenas, Block};
use super::facts::updated;
use super::{Group, Leaves, Limits, Place, Placement, PlanError, Slot};
use crate::graph::{Graph, LeafKind, TensorId};
use std::collections::BTreeSet;

/// Inputs are written before the first groups, which run at moment 1.
const BEFORE: usize = 0;

/// When a root's memory must hold: first and last moment.
type Life = (usize, usize);

/// Places every expanded tensor, for groups that run at these moments.
pub(super) fn place(
    graph: &Graph,
    groups: &[Group],
    moments: &[usize],
    leaves: &Leaves,
    limits: &Limits,
) -> Result<Placement, PlanError> {
    let mut slots = leaf_slots(graph, leaves, limits)?;
    let after = moments.last().unwrap_or(&BEFORE) + 1;
    let lives = lives(graph, groups, moments, after, &slots);
    let mut births = vec![Vec::new(); after + 1];
    let mut deaths = vec![Vec::new(); after + 1];
    for (index, life) in lives.iter().enumerate() {
        if let Some((first, last)) = *life {
            births[first].push(index);
            deaths[last].push(index);
        }
    }
    let mut arenas = Arenas::new(limits.max_buffer_bytes / limits.alignment * limits.alignment);
    let mut blocks: Vec<Option<Block>> = vec![None; slots.len()];
    for moment in BEFORE..=after {
        for &index in &births[moment] {
            let bytes = graph.tensors()[index].layout().extent();
            if bytes == 0 {
                slots[index] = Some(Slot { place: Place::Arena(0), offset: 0, bytes });
                continue;
            }
            let room = bytes.checked_next_multiple_of(limits.alignment);
            let block = room.and_then(|room| arenas.take(room)).ok_or_else(|| {
                let own = graph.nodes().iter().chain(graph.leaves()).find(|id| id.index() == index);
                let name = own.map_or_else(String::new, |&id| graph.display_name(id));
                PlanError::TooLarge { name, bytes, limit: limits.max_buffer_bytes }
            })?;
            slots[index] = Some(Slot { place: Place::Arena(block.arena as u32), offset: block.bytes.start, bytes });
            blocks[index] = Some(block);
        }
        for &index in &deaths[moment] {
            if let Some(block) = &blocks[index] {
                arenas.release(block);
            }
        }
    }
    // A buffer without bytes cannot be bound.
    let arenas = arenas.sizes().into_iter().map(|bytes| bytes.max(limits.alignment)).collect();
    Ok(Placement { slots, arenas })
}

/// The places that leaves were given.
fn leaf_slots(graph: &Graph, leaves: &Leaves, limits: &Limits) -> Result<Vec<Option<Slot>>, PlanError> {
    let mut slots = vec![None; graph.tensors().len()];
    for &id in graph.leaves() {
        let tensor = graph.tensor(id);
        let name = || graph.display_name(id);
        let Some(&slot) = leaves.get(&id) else {
            match tensor.leaf() {
                Some(kind @ (LeafKind::Weight | LeafKind::Cache)) => {
                    return Err(PlanError::Unplaced { name: name(), kind });
                }
                Some(LeafKind::Input) | None => continue,
            }
        };
        if let Place::Arena(arena) = slot.place {
            return Err(PlanError::LeafInArena { name: name(), arena });
        }
        slot.check(graph, id, limits)?;
        slots[id.index()] = Some(slot);
    }
    check_written(graph, &slots)?;
    Ok(slots)
}

/// Order and moments follow from who owns which memory, so that no leaf that is written may lie where another one does.
fn check_written(graph: &Graph, slots: &[Option<Slot>]) -> Result<(), PlanError> {
    let name = |id: TensorId| graph.tensor(id).name().to_owned();
    let writers = graph.nodes().iter().copied().filter(|&id| !graph.tensor(id).is_silent());
    let written = writers.flat_map(|id| std::iter::once(id).chain(updated(graph.tensor(id))));
    let written: BTreeSet<TensorId> = written.map(|id| graph.root(id)).collect();
    for &id in &written {
        let Some(slot) = slots[id.index()] else { continue };
        let meets = |other: &&TensorId| **other != id && slots[other.index()].is_some_and(|other| other.meets(&slot));
        if let Some(&other) = graph.leaves().iter().find(meets) {
            return Err(PlanError::SharedLeaves { name: name(id), other: name(other) });
        }
    }
    Ok(())
}

/// When each root that needs memory in an arena is alive.
fn lives(
    graph: &Graph,
    groups: &[Group],
    moments: &[usize],
    after: usize,
    given: &[Option<Slot>],
) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; given.len()];
    let mut touch = |id: TensorId, moment: usize| {
        let root = graph.root(id).index();
        if given[root].is_none() {
            let (first, last) = lives[root].unwrap_or((moment, moment));
            lives[root] = Some((first.min(moment), last.max(moment)));
        }
    };
    for &id in graph.leaves() {
        touch(id, BEFORE);
    }
    for (group, &moment) in groups.iter().zip(moments) {
        let stored = group.stored();
        let read = group.nodes.iter().flat_map(|&id| graph.tensor(id).sources());
        let outside = read.filter(|&source| !group.nodes.contains(&graph.root(source)));
        stored.chain(outside).for_each(|id| touch(id, moment));
    }
    for &id in graph.nodes().iter().chain(graph.leaves()) {
        let tensor = graph.tensor(id);
        if tensor.is_output() {
            touch(id, after);
        }
        // Nobody computes it, but what reads it must find it placed.
        if tensor.view().is_none() && tensor.layout().is_empty() {
            touch(id, BEFORE);
        }
    }
    lives
}
