//! Encoders, one file per family of operations: a group in, dispatches out, no GPU needed.

pub mod attention;
pub mod elementwise;
pub mod filling;
pub mod linear;
pub mod matmul;
pub mod norm;
pub mod recurrent;
pub mod reduce;
pub mod rope;
pub mod rows;
pub mod sort;
#[cfg(test)]
mod tests;
pub mod train;

use super::caps::Caps;

/// All dimensions.
const ALL: [usize; 4] = [0, 1, 2, 3];

/// The dimensions whose sizes turn an index into coordinates.
const OUTER: [usize; 3] = [0, 1, 2];

/// Turns of all its loops that a thread may take in one dispatch: llvmpipe ends loops after 65,535 of them, and drivers
/// end dispatches that take too long.
const MAX_TURNS: usize = 50_000;

/// Threads for a workgroup that shares `work` items: a power of two that leaves each thread a few of them.
fn threads_for(work: usize, caps: &Caps) -> u32 {
    let largest = 1 << caps.max_threads.clamp(32, 256).ilog2();
    work.div_ceil(4).next_power_of_two().clamp(32, largest) as u32
}
