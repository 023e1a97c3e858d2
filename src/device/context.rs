//! Running graphs: plans, arenas and programs, kept for as long as they are used again.

use super::{Device, DeviceBuffer, DeviceError, Program};
use crate::fusion::FusionContext;
use crate::graph::{BufferClass, Graph, LeafKind, Tensor, TensorId};
use crate::plan::{BufferId, Leaves, Limits, Place, Plan, PlanCache, PlanError, PlanOptions, plan};
use std::sync::Arc;

/// Graphs that a context remembers: enough for prefill and decode at a few lengths of the cache to alternate.
const REMEMBERED_GRAPHS: usize = 16;

/// Why a graph did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComputeError {
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The tensor is no leaf and no output of what the graph runs, so that its memory may hold something else by now, or
    /// none at all.
    #[error("tensor `{name}` cannot be accessed: the graph does not run it as a leaf or as a marked output")]
    NotAccessible {
        /// Its name.
        name: String,
    },
    /// The tensor is a result of a run that has not been.
    #[error("tensor `{name}` has no value yet: run the graph after preparing it")]
    NotRun {
        /// Its name.
        name: String,
    },
    /// The bytes given do not fit the tensor.
    #[error("tensor `{name}` takes {expected} bytes, given {given}")]
    Length {
        /// Its name.
        name: String,
        /// Bytes of the tensor.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
}

/// Runs graphs on one device.
///
/// A graph like one that was run before, with the same leaves, re-uses its plan, its memory and everything the device
/// made of it.
pub struct Context {
    device: Arc<dyn Device>,
    limits: Limits,
    options: PlanOptions,
    programs: PlanCache<Prepared>,
    /// Results of different graphs are never needed at the same time, so all share these; the largest so far.
    arenas: Vec<Arc<DeviceBuffer>>,
    fusion: FusionContext,
}

struct Prepared {
    plan: Arc<Plan>,
    program: Box<dyn Program>,
    arenas: Vec<Arc<DeviceBuffer>>,
}

impl Context {
    /// A context that fuses what the device's configuration says, with options from the environment.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let options = PlanOptions::from_env(device.fusion().configured());
        Self::with_options(device, options)
    }

    /// A context with other options.
    pub fn with_options(device: Arc<dyn Device>, options: PlanOptions) -> Self {
        Self {
            limits: device.limits(),
            fusion: device.fusion().context(),
            programs: PlanCache::new(REMEMBERED_GRAPHS),
            arenas: Vec::new(),
            device,
            options,
        }
    }

    /// The device.
    pub const fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// How often a remembered plan served, and how often one had to be made.
    pub const fn plan_hits_and_misses(&self) -> (u64, u64) {
        (self.programs.hits(), self.programs.misses())
    }

    /// Plans a graph, or finds the plan of one like it.
    ///
    /// # Errors
    /// When a weight or cache of the graph is not in `leaves`, a tensor is too large, or the device lacks a kernel.
    pub fn prepare<'a>(&'a mut self, graph: &'a Arc<Graph>, leaves: &Leaves) -> Result<Run<'a>, ComputeError> {
        // Fusion may have been switched since the context was made.
        let options = &PlanOptions { matcher: self.fusion.state().allowed(self.options.matcher), ..self.options };
        let (device, limits, arenas) = (&self.device, &self.limits, &mut self.arenas);
        let prepared = self.programs.get_or_make(graph, leaves, limits, options, || {
            let plan = Arc::new(plan(graph, leaves, limits, options)?);
            grow(device, arenas, plan.placement.arenas())?;
            let arenas = arenas[..plan.placement.arenas().len()].to_vec();
            let ids: Vec<BufferId> = arenas.iter().map(|arena| arena.id()).collect();
            let program = device.load(graph, &plan, &ids)?;
            Ok::<_, ComputeError>(Prepared { plan, program, arenas })
        })?;
        Ok(Run { device: device.as_ref(), fusion: &self.fusion, graph, prepared, has_run: false })
    }
}

/// Makes every arena at least as large as a plan needs it. A smaller one lives on in the programs that were made with it.
fn grow(device: &Arc<dyn Device>, arenas: &mut Vec<Arc<DeviceBuffer>>, needed: &[usize]) -> Result<(), DeviceError> {
    for (index, &bytes) in needed.iter().enumerate() {
        match arenas.get_mut(index) {
            Some(arena) if arena.bytes() >= bytes => {}
            Some(arena) => *arena = Arc::new(DeviceBuffer::new(device, BufferClass::Computed, bytes)?),
            None => arenas.push(Arc::new(DeviceBuffer::new(device, BufferClass::Computed, bytes)?)),
        }
    }
    Ok(())
}

/// A planned graph, ready to run: write the inputs, run, read the outputs.
pub struct Run<'a> {
    device: &'a dyn Device,
    fusion: &'a FusionContext,
    graph: &'a Graph,
    prepared: &'a mut Prepared,
    has_run: bool,
}

impl Run<'_> {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.prepared.plan
    }

    /// Writes all bytes of a leaf.
    ///
    /// # Errors
    /// When the tensor is no leaf, the length is not the tensor's, or the device fails.
    pub fn write(&self, leaf: TensorId, bytes: &[u8]) -> Result<(), ComputeError> {
        let accessible = self.graph.get(leaf).is_some_and(|tensor| tensor.leaf().is_some());
        let (buffer, offset) = self.locate(leaf, accessible, bytes.len())?;
        Ok(self.device.write(buffer, offset, bytes)?)
    }

    /// Runs the graph once; returns when the work is submitted.
    ///
    /// # Errors
    /// When the device fails.
    pub fn run(&mut self) -> Result<(), ComputeError> {
        self.prepared.program.run()?;
        self.has_run = true;
        self.fusion.state().record(self.prepared.plan.fusions());
        Ok(())
    }

    /// Reads all bytes of an output of the runs so far, or of a weight or a cache.
    ///
    /// # Errors
    /// When the tensor is none of these, nothing was run since the graph was prepared, the length is not the tensor's, or
    /// the device fails.
    pub fn read(&self, id: TensorId, bytes: &mut [u8]) -> Result<(), ComputeError> {
        // An input's memory is used again once it was read.
        let persists = |leaf: LeafKind| matches!(leaf, LeafKind::Weight | LeafKind::Cache);
        let kept = |tensor: &Tensor| tensor.is_output() || tensor.leaf().is_some_and(persists);
        // A view that is not run did not keep its owner's memory.
        let accessible = self.graph.is_expanded(id) && self.graph.get(id).is_some_and(kept);
        // Graphs share arenas: before the run, the memory of a result may hold another graph's.
        if accessible && !self.has_run && self.graph.class(id) == BufferClass::Computed {
            return Err(ComputeError::NotRun { name: self.graph.display_name(id) });
        }
        let (buffer, offset) = self.locate(id, accessible, bytes.len())?;
        Ok(self.device.read(buffer, offset, bytes)?)
    }

    fn locate(&self, id: TensorId, accessible: bool, given: usize) -> Result<(BufferId, usize), ComputeError> {
        let name = || self.graph.display_name(id);
        let slot = self.prepared.plan.placement.slot(self.graph, id).filter(|_| accessible);
        let slot = slot.ok_or_else(|| ComputeError::NotAccessible { name: name() })?;
        if slot.bytes != given {
            return Err(ComputeError::Length { name: name(), expected: slot.bytes, given });
        }
        let buffer = match slot.place {
            Place::Buffer(buffer) => buffer,
            Place::Arena(arena) => self.prepared.arenas[arena as usize].id(),
        };
        Ok((buffer, slot.offset))
    }
}
