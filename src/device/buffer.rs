//! Buffers that give their memory back.

use super::{Device, DeviceError};
use crate::graph::BufferClass;
use crate::plan::BufferId;
use std::sync::Arc;

/// A buffer of a device, destroyed when dropped.
pub struct DeviceBuffer {
    device: Arc<dyn Device>,
    id: BufferId,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates a zeroed buffer.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn new(device: &Arc<dyn Device>, class: BufferClass, bytes: usize) -> Result<Self, DeviceError> {
        let id = device.create_buffer(class, bytes)?;
        Ok(Self { device: Arc::clone(device), id, bytes })
    }

    /// The id that slots and devices know it by.
    pub const fn id(&self) -> BufferId {
        self.id
    }

    /// Size in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        self.device.destroy_buffer(self.id);
    }
}
