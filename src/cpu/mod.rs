//! The reference device: plain, readable, threaded.
//!
//! A step first computes its whole result from memory that nobody writes, then stores it. So results that share memory
//! with their sources are right by construction, and a fused group can be compared with its nodes one by one.

mod attention;
mod elementwise;
mod evaluate;
mod filling;
mod functions;
mod linear;
mod load;
mod matmul;
mod memory;
mod norm;
mod parallel;
mod program;
mod recurrent;
mod reduce;
mod rope;
mod rows;
mod sums;
mod train;

use crate::device::{self, Device, DeviceError, DeviceInfo, Program};
use crate::fusion::{FusionConfig, FusionState};
use crate::graph::{BufferClass, Graph, OpKind, TensorId};
use crate::plan::{BufferId, Limits, Plan};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What a program's buffers start at; enough for any vector type.
const ALIGNMENT: usize = 64;

/// A range of memory of a size fixed at its creation.
struct Buffer {
    bytes: usize,
    /// Words, so that every element type is aligned.
    words: Mutex<Vec<u64>>,
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        // A panic in the middle of a store leaves numbers, if not the right ones.
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, start: usize, bytes: usize) -> Result<std::ops::Range<usize>, DeviceError> {
        let end = start.saturating_add(bytes);
        if end > self.bytes {
            return Err(DeviceError::OutOfBounds { start, end, size: self.bytes });
        }
        Ok(start..end)
    }
}

#[derive(Default)]
struct Buffers {
    next: u32,
    by_id: HashMap<BufferId, Arc<Buffer>>,
}

/// The processor as a device: the judge of every other device's results.
///
/// Programs that share a buffer run one after another; each of them uses all cores.
pub struct CpuDevice {
    info: DeviceInfo,
    fusion: Arc<FusionState>,
    buffers: Mutex<Buffers>,
}

impl CpuDevice {
    /// The device; all of them are alike, but a buffer belongs to the one that made it.
    pub fn new(fusion: FusionConfig) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let description = format!("{} with {cores} threads", std::env::consts::ARCH);
        Self {
            info: DeviceInfo { name: "CPU".to_owned(), backend: "CPU", description },
            fusion: Arc::new(FusionState::new(fusion)),
            buffers: Mutex::default(),
        }
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self, id: BufferId) -> Result<Arc<Buffer>, DeviceError> {
        self.buffers().by_id.get(&id).cloned().ok_or(DeviceError::UnknownBuffer(id))
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> Limits {
        let max_buffer_bytes = isize::MAX as usize / ALIGNMENT * ALIGNMENT;
        Limits { max_buffer_bytes, alignment: ALIGNMENT, max_bindings: usize::MAX }
    }

    fn fusion(&self) -> &Arc<FusionState> {
        &self.fusion
    }

    /// Whatever a graph accepts can be computed: `evaluate` has an arm for every operation, and those take every type
    /// that the operation's rule lets through.
    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        device::placed(&self.info.name, &self.limits(), graph, node).map(drop)
    }

    fn create_buffer(&self, _class: BufferClass, bytes: usize) -> Result<BufferId, DeviceError> {
        let refused = |reason: String| DeviceError::OutOfMemory { bytes, reason };
        let limit = self.limits().max_buffer_bytes;
        if bytes > limit {
            return Err(refused(format!("a buffer has at most {limit} bytes")));
        }
        let words = bytes.div_ceil(size_of::<u64>());
        // Only this way of asking can fail without ending the process, only the other gives pages zeroed on first use.
        Vec::<u64>::new().try_reserve_exact(words).map_err(|error| refused(error.to_string()))?;
        let buffer = Arc::new(Buffer { bytes, words: Mutex::new(vec![0; words]) });

        let mut buffers = self.buffers();
        let id = BufferId(buffers.next);
        buffers.next = id.0.checked_add(1).ok_or_else(|| refused("no buffer ids are left".to_owned()))?;
        buffers.by_id.insert(id, buffer);
        Ok(id)
    }

    fn destroy_buffer(&self, id: BufferId) {
        self.buffers().by_id.remove(&id);
    }

    fn write(&self, id: BufferId, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let buffer = self.buffer(id)?;
        let range = buffer.check(offset, bytes.len())?;
        bytemuck::cast_slice_mut::<u64, u8>(&mut buffer.lock())[range].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, id: BufferId, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let buffer = self.buffer(id)?;
        let range = buffer.check(offset, bytes.len())?;
        bytes.copy_from_slice(&bytemuck::cast_slice::<u64, u8>(&buffer.lock())[range]);
        Ok(())
    }

    fn load(&self, graph: &Arc<Graph>, plan: &Arc<Plan>, arenas: &[BufferId]) -> Result<Box<dyn Program>, DeviceError> {
        Ok(Box::new(load::load(self, graph, plan, arenas)?))
    }
}

fn index_error(op: OpKind, index: i64, count: usize) -> DeviceError {
    DeviceError::Index { op, index, count }
}
