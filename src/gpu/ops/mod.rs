//! Encoders, one file per family of operations: a group in, dispatches out, no GPU needed.

pub mod elementwise;
pub mod rows;

/// All dimensions.
const ALL: [usize; 4] = [0, 1, 2, 3];

/// The dimensions whose sizes turn an index into coordinates.
const OUTER: [usize; 3] = [0, 1, 2];
