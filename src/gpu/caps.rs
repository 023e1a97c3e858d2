//! What an adapter can do: the bits that choose kernel variants.

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
