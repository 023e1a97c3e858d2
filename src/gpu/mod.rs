//! The GPU device, on wgpu.
//!
//! From a plan to a GPU, in the order in which a reader meets them: [`adapter`](list) finds what there is, [`caps`] says
//! what it can do, [`encode`](encode()) turns groups into [`dispatch`]es (data, without a GPU), [`compose`] turns a
//! dispatch into WGSL, `pipeline` builds and keeps kernels, and `record` turns a loaded plan into commands.
//!
//! Environment: wgpu's own variables choose among adapters (see [`list`]); `WGFUSE_SHADER_DUMP=DIR` writes the composed
//! source of every kernel that is built to `DIR/KERNEL-HASH.wgsl`.

mod adapter;
mod buffers;
pub mod caps;
pub mod compose;
mod device;
pub mod dispatch;
mod driver;
mod encode;
pub mod ops;
mod pipeline;
mod record;
mod selftest;

pub use adapter::list;
pub use caps::backend_limits;
pub use device::{GpuDevice, OpenOptions};
pub use encode::encode;
pub use record::GpuProgram;
