//! What an adapter can do: the bits that choose kernel variants.

use crate::plan::Limits;

/// Bytes at whose multiples slots start: a cache line, so that neighbouring tensors share none.
pub const ALIGNMENT: usize = 128;

/// Capabilities of an adapter, after the start-up self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caps {
    /// 16-bit floats in storage and arithmetic.
    pub f16: bool,
    /// Subgroup reductions and shuffles.
    pub subgroups: bool,
    /// Fewest threads of a subgroup; meaningless without [`Caps::subgroups`].
    pub min_subgroup: u32,
    /// Most threads of a subgroup; meaningless without [`Caps::subgroups`].
    pub max_subgroup: u32,
    /// Storage buffers that one kernel can bind.
    pub max_bindings: u32,
    /// Workgroups per dimension of a grid.
    pub max_groups: u32,
    /// Threads per workgroup.
    pub max_threads: u32,
    /// Bytes of workgroup memory.
    pub max_workgroup_bytes: u32,
    /// Bytes that one binding reaches.
    pub max_binding_bytes: u64,
}

/// What every adapter of a backend (`MTL`, `VK`, `DX12`, `GL`) that runs our kernels allows a plan, for plans made where
/// there is none to ask. `None` for another name.
pub fn backend_limits(backend: &str) -> Option<Limits> {
    // WebGPU's default limits, but for the buffers of a kernel: what wgpu gives on the least of each backend's GPUs.
    let max_bindings = match backend {
        "MTL" => 9,
        "DX12" => 32,
        "VK" | "GL" => 8,
        _ => return None,
    };
    Some(Limits { max_buffer_bytes: 128 << 20, alignment: ALIGNMENT, max_bindings })
}
