//! wgfuse runs ggml-style tensor graphs on any GPU that wgpu reaches.

pub mod gguf;
pub mod graph;
