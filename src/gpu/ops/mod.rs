//! Encoders: one file per operation family, each of which turns groups into dispatches of the kernels in `wgsl/`.

pub mod attention;
pub mod matmul;
pub mod norm;
pub mod recurrent;
pub mod rope;
pub mod sort;

use super::caps::Caps;

#[cfg(test)]
mod tests;

/// Threads for a workgroup that shares `work` items: a power of two that leaves each thread a few of them.
fn threads_for(work: usize, caps: &Caps) -> u32 {
    let largest = 1 << caps.max_threads.clamp(32, 256).ilog2();
    work.div_ceil(4).next_power_of_two().clamp(32, largest) as u32
}
