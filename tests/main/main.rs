//! Integration tests, one binary.

mod gpu;
