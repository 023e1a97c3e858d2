//! Every operation over shapes, types and memory forms, on the CPU device and every GPU, against the reference.

mod attention;
mod differences;
mod elementwise;
mod filling;
mod functions;
mod gradients;
mod group_norms;
mod linear;
mod movement;
mod products;
pub mod recurrent;
mod reductions;
mod rope;
mod sorts;
mod sums;
mod training;
