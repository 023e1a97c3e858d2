//! Integration tests.

mod cpu;
mod cpu_fused;
mod cpu_golden;
mod rig;
