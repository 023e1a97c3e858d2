//! The GPU device, on wgpu.
