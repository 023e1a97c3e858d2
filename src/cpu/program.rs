//! A plan made executable.

use super::Buffer;
use super::evaluate::{Kernel, Sources, evaluate};
use super::memory::{View, store};
use crate::device::{DeviceError, Program};
use crate::graph::Layout;
use std::sync::Arc;

/// A tensor's memory; its range is inside its buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// Position in [`CpuProgram::buffers`].
    pub(super) buffer: usize,
    /// First byte.
    pub(super) offset: usize,
    /// What lies there.
    pub(super) layout: Layout,
}

impl Span {
    fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.layout.extent()
    }
}

/// One group: what it computes, what it reads, and what it writes.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) kernel: Kernel,
    pub(super) reads: Vec<Option<Span>>,
    pub(super) writes: Vec<Span>,
}

/// The steps of a plan and the buffers that they use.
pub(super) struct CpuProgram {
    /// In the order of their ids, in which every program locks them.
    pub(super) buffers: Vec<Arc<Buffer>>,
    pub(super) steps: Vec<Step>,
}

impl Program for CpuProgram {
    fn run(&mut self) -> Result<(), DeviceError> {
        let mut buffers: Vec<_> = self.buffers.iter().map(|buffer| buffer.lock()).collect();
        for step in &self.steps {
            let view = |span: Span| {
                let memory: &[u8] = bytemuck::cast_slice(&buffers[span.buffer]);
                View::new(&memory[span.range()], span.layout)
            };
            let sources = Sources(step.reads.iter().map(|read| read.map(view)).collect());
            let results = evaluate(&step.kernel, &sources)?;
            for (span, values) in step.writes.iter().zip(&results) {
                let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut buffers[span.buffer]);
                store(&mut memory[span.range()], &span.layout, values);
            }
        }
        Ok(())
    }
}
