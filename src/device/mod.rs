//! What a device is: buffers, and programs that run plans over them.

mod buffer;
mod context;
mod support;

pub use buffer::DeviceBuffer;
pub use context::{ComputeError, Context, Run};
pub(crate) use support::{described, placed};

use crate::fusion::FusionState;
use crate::graph::{BufferClass, Graph, OpKind, TensorId};
use crate::plan::{BufferId, Limits, Plan};
use std::sync::Arc;

/// Who a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name on this machine: `VK0`, `GL0`, `MTL0`, `CPU`.
    pub name: String,
    /// Name of the backend, which names baselines: `VK`, `GL`, `MTL`, `DX12`, `CPU`.
    pub backend: &'static str,
    /// What the hardware and driver call themselves, and the capabilities that choose kernels.
    pub description: String,
}

/// Why a device could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no adapter for this request.
    #[error("no device `{requested}`; available: {available}")]
    NoDevice {
        /// What was asked for.
        requested: String,
        /// The names that exist.
        available: String,
    },
    /// No buffer of this device has this id.
    #[error("buffer {0:?} does not exist on this device")]
    UnknownBuffer(BufferId),
    /// A range reaches past its buffer.
    #[error("bytes {start}..{end} are outside a buffer of {size} bytes")]
    OutOfBounds {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// Size of the buffer.
        size: usize,
    },
    /// The memory is not there.
    #[error("no memory for a buffer of {bytes} bytes: {reason}")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// What the driver said.
        reason: String,
    },
    /// The device has no kernel for this operation with these types.
    #[error("{device}: {op} is not supported for {detail}")]
    Unsupported {
        /// Name of the device.
        device: String,
        /// The operation.
        op: OpKind,
        /// Types and shapes.
        detail: String,
    },
    /// An input of row or matrix indices names one that does not exist.
    #[error("{op}: index {index} is outside 0..{count}")]
    Index {
        /// The operation.
        op: OpKind,
        /// The index.
        index: i64,
        /// Rows or matrices there are.
        count: usize,
    },
    /// The plan is not one for this graph and these buffers.
    #[error("the plan does not fit: {reason}")]
    Plan {
        /// What does not fit.
        reason: String,
    },
    /// A kernel could not be built, or the driver failed.
    #[error("{device}: {reason}")]
    Driver {
        /// Name of the device.
        device: String,
        /// What went wrong.
        reason: String,
    },
}

/// A device: memory, and something that executes groups.
///
/// All methods may be called from several threads.
pub trait Device: Send + Sync {
    /// Who this is.
    fn info(&self) -> &DeviceInfo;

    /// What plans for this device must respect.
    fn limits(&self) -> Limits;

    /// What may fuse here, and how often it did; all contexts share it.
    fn fusion(&self) -> &Arc<FusionState>;

    /// Whether a node of a graph runs here by itself, asked without memory and before there is a plan.
    ///
    /// The answer is exact: what is accepted loads, wherever its tensors are placed, and is computed right; what is
    /// refused is refused by a plan or by [`Device::load`], too, and so before anything is submitted. Whether the
    /// memory is there, and whether indices in the data are in range, is not known here.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] with the types, the shapes and the reason; [`DeviceError::Plan`] for a node that is
    /// not of this graph.
    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError>;

    /// Allocates a zeroed buffer.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], also above [`Limits::max_buffer_bytes`].
    fn create_buffer(&self, class: BufferClass, bytes: usize) -> Result<BufferId, DeviceError>;

    /// Gives a buffer back; programs that use it keep its memory until they are dropped. Unknown ids are ignored.
    fn destroy_buffer(&self, id: BufferId);

    /// Writes bytes into a buffer, before anything that is submitted later.
    ///
    /// # Errors
    /// [`DeviceError::UnknownBuffer`], [`DeviceError::OutOfBounds`].
    fn write(&self, id: BufferId, offset: usize, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Reads bytes back, after everything that was submitted earlier.
    ///
    /// # Errors
    /// [`DeviceError::UnknownBuffer`], [`DeviceError::OutOfBounds`], or a driver failure.
    fn read(&self, id: BufferId, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Makes a plan executable; `arenas` are buffers of at least the sizes the plan's placement states.
    ///
    /// # Errors
    /// When an operation has no kernel here, a buffer is unknown or too small, or a kernel does not build.
    fn load(&self, graph: &Arc<Graph>, plan: &Arc<Plan>, arenas: &[BufferId]) -> Result<Box<dyn Program>, DeviceError>;
}

/// A plan made executable on a device.
pub trait Program: Send {
    /// Runs every group once, over whatever the buffers hold; returns when the work is submitted.
    ///
    /// # Errors
    /// A driver failure.
    fn run(&mut self) -> Result<(), DeviceError>;
}
