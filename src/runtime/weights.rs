//! A model's weights in a device's memory, and how tensors are packed into buffers.

use super::SessionError;
use crate::device::{Device, DeviceBuffer, DeviceError};
use crate::graph::{BufferClass, DType, Layout};
use crate::model::{Model, ModelError};
use crate::plan::{Limits, Place, PlanError, Slot};
use std::collections::HashMap;
use std::sync::Arc;

/// A model whose weights are on a device. Sessions share it.
pub struct DeviceModel {
    model: Arc<Model>,
    device: Arc<dyn Device>,
    weights: Packed,
}

impl DeviceModel {
    /// Uploads the weights that the model's graphs read, packed into as few buffers as the device's limits allow.
    ///
    /// # Errors
    /// When the device has no memory for them, a tensor is larger than a buffer, or its bytes cannot be read.
    pub fn upload(model: Arc<Model>, device: Arc<dyn Device>) -> Result<Self, SessionError> {
        let specs = model.weights().map(|spec| (spec.name.clone(), spec.dtype, spec.ne));
        let weights = Packed::new(&device, BufferClass::Weight, specs)?;
        for spec in model.weights() {
            weights.write(device.as_ref(), &spec.name, &model.data(&spec.name)?)?;
        }
        Ok(Self { model, device, weights })
    }

    /// The model.
    pub const fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The device.
    pub const fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Where a weight is.
    pub(super) fn slot(&self, name: &str) -> Option<Slot> {
        self.weights.slot(name)
    }
}

/// Named tensors, side by side in a few buffers.
pub(super) struct Packed {
    #[expect(dead_code, reason = "keeps the memory that the slots name")]
    buffers: Vec<DeviceBuffer>,
    slots: HashMap<String, Slot>,
}

impl Packed {
    /// Zeroed memory for dense tensors.
    pub(super) fn new(
        device: &Arc<dyn Device>,
        class: BufferClass,
        tensors: impl IntoIterator<Item = (String, DType, [usize; 4])>,
    ) -> Result<Self, SessionError> {
        let limits = device.limits();
        let mut sizes: Vec<usize> = Vec::new();
        let mut places = Vec::new();
        for (name, dtype, ne) in tensors {
            let bytes = Layout::contiguous(dtype, ne).map_err(PlanError::from)?.extent();
            if bytes > limits.max_buffer_bytes {
                return Err(PlanError::TooLarge { name, bytes, limit: limits.max_buffer_bytes }.into());
            }
            let offset = room(&mut sizes, bytes, &limits);
            places.push((name, sizes.len() - 1, offset, bytes));
        }
        let buffers = sizes
            .into_iter()
            .map(|bytes| DeviceBuffer::new(device, class, bytes))
            .collect::<Result<Vec<_>, DeviceError>>()?;
        let slots = places.into_iter().map(|(name, buffer, offset, bytes)| {
            (name, Slot { place: Place::Buffer(buffers[buffer].id()), offset, bytes })
        });
        let slots = slots.collect();
        Ok(Self { buffers, slots })
    }

    pub(super) fn slot(&self, name: &str) -> Option<Slot> {
        self.slots.get(name).copied()
    }

    fn write(&self, device: &dyn Device, name: &str, bytes: &[u8]) -> Result<(), SessionError> {
        let (buffer, offset) = match self.slot(name) {
            Some(Slot { place: Place::Buffer(buffer), offset, bytes: _ }) => (buffer, offset),
            Some(Slot { place: Place::Arena(_), .. }) | None => {
                return Err(ModelError::UnknownTensor { tensor: name.to_owned() }.into());
            }
        };
        Ok(device.write(buffer, offset, bytes)?)
    }
}

/// Makes room for `bytes` in the last buffer or a new one, and says where.
fn room(sizes: &mut Vec<usize>, bytes: usize, limits: &Limits) -> usize {
    if let Some(last) = sizes.last_mut() {
        let offset = last.next_multiple_of(limits.alignment);
        if offset.saturating_add(bytes) <= limits.max_buffer_bytes {
            *last = offset + bytes;
            return offset;
        }
    }
    sizes.push(bytes);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_fill_one_buffer_after_the_other() {
        let limits = Limits { max_buffer_bytes: 1024, alignment: 256, max_bindings: 8 };
        let mut sizes = Vec::new();
        let offsets: Vec<usize> = [300, 400, 200, 1024, 0].map(|bytes| room(&mut sizes, bytes, &limits)).into();
        assert_eq!(offsets, [0, 512, 0, 0, 1024]);
        assert_eq!(sizes, [912, 200, 1024]);
    }
}
