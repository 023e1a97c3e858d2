//! The GPU device, on wgpu.

pub mod caps;
pub mod compose;
pub mod dispatch;
pub mod ops;
