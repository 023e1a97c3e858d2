//! Integration tests, one binary.

mod gpu;
mod kernels;
