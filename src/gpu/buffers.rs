//! Buffers by their ids, and the way of bytes between them and the host.

use super::caps::Caps;
use super::dispatch::{Access, Binding, Dispatch, Param, ParamType};
use super::driver::{Driver, describe, lock};
use super::pipeline::Pipelines;
use super::record::Steps;
use crate::device::DeviceError;
use crate::graph::DType;
use crate::plan::{BufferId, Place};
use futures_intrusive::channel::shared::oneshot_channel;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes that one copy between host and device moves at most; longer reads and writes take several.
const MAX_STAGING: u64 = 64 << 20;

/// wgpu copies whole words.
const WORD: usize = wgpu::COPY_BUFFER_ALIGNMENT as usize;

/// A buffer of the device.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) buffer: wgpu::Buffer,
    /// Bytes asked for; the buffer itself is rounded up to whole words.
    pub(super) bytes: usize,
    /// What writes parts of its words, once something did.
    merger: Arc<Mutex<Option<Steps>>>,
}

/// The buffers of a device.
pub(super) struct Buffers {
    entries: Mutex<Registry>,
    /// Through which reads go; one read at a time.
    staging: Mutex<Option<wgpu::Buffer>>,
    /// Bytes written since writes alone last led to a submission.
    uploaded: AtomicU64,
}

#[derive(Default)]
struct Registry {
    by_id: HashMap<BufferId, Entry>,
    last: u32,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), staging: Mutex::new(None), uploaded: AtomicU64::new(0) }
    }

    /// Forgets everything; programs keep what they use.
    pub(super) fn clear(&self) {
        lock(&self.entries).by_id.clear();
        *lock(&self.staging) = None;
    }

    pub(super) fn get(&self, id: BufferId) -> Result<Entry, DeviceError> {
        lock(&self.entries).by_id.get(&id).cloned().ok_or(DeviceError::UnknownBuffer(id))
    }

    /// Like [`Buffers::get`], for a range that must be inside.
    fn range(&self, id: BufferId, start: usize, length: usize) -> Result<Entry, DeviceError> {
        let entry = self.get(id)?;
        let end = start.saturating_add(length);
        if end > entry.bytes {
            return Err(DeviceError::OutOfBounds { start, end, size: entry.bytes });
        }
        Ok(entry)
    }

    /// A zeroed buffer for anything a kernel or a copy does. The caller has entered.
    pub(super) fn create(
        &self,
        driver: &Driver,
        label: &str,
        bytes: usize,
        limit: usize,
    ) -> Result<BufferId, DeviceError> {
        let refused = |reason: String| DeviceError::OutOfMemory { bytes, reason };
        if bytes > limit {
            return Err(refused(format!("a buffer of {} has at most {limit} bytes", driver.name)));
        }
        driver.check()?;
        let made = driver.scoped(|| {
            driver.count_created(1);
            driver.device().create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                // Not even an empty buffer is empty, since nothing empty can be bound.
                size: bytes.max(1).next_multiple_of(WORD) as u64,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let buffer = made.map_err(|error| refused(describe(&error)))?;
        let mut entries = lock(&self.entries);
        let id = BufferId(entries.last);
        entries.last = entries.last.checked_add(1).ok_or_else(|| refused("all ids are used up".to_owned()))?;
        entries.by_id.insert(id, Entry { buffer, bytes, merger: Arc::default() });
        Ok(id)
    }

    pub(super) fn destroy(&self, id: BufferId) {
        lock(&self.entries).by_id.remove(&id);
    }

    /// Writes bytes anywhere. The caller has entered.
    pub(super) fn write(
        &self,
        driver: &Driver,
        pipelines: &Pipelines,
        caps: &Caps,
        id: BufferId,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        let entry = self.range(id, offset, bytes.len())?;
        driver.check()?;
        let end = offset + bytes.len();
        let head = offset..offset.next_multiple_of(WORD).min(end);
        // The word that holds the end of the buffer holds nothing of anybody else behind it.
        let whole_until = if end == entry.bytes { end } else { end - end % WORD };
        let body = head.end..whole_until.max(head.end);
        let tail = body.end..end;
        if !body.is_empty() {
            let words = &bytes[body.start - offset..body.end - offset];
            if words.len().is_multiple_of(WORD) {
                self.upload(driver, &entry.buffer, body.start, words);
            } else {
                let mut padded = words.to_vec();
                padded.resize(words.len().next_multiple_of(WORD), 0);
                self.upload(driver, &entry.buffer, body.start, &padded);
            }
        }
        for part in [head, tail].into_iter().filter(|part| !part.is_empty()) {
            let merge = Merge::new(part.start, &bytes[part.start - offset..part.end - offset]);
            self.merge(driver, pipelines, caps, &entry, &merge)?;
        }
        driver.check()
    }

    /// Writes whole words. wgpu keeps a copy of them until a later submission has run, so that a model's weights would
    /// lie in memory twice if nothing was submitted among them.
    fn upload(&self, driver: &Driver, buffer: &wgpu::Buffer, start: usize, words: &[u8]) {
        for (index, part) in words.chunks(MAX_STAGING as usize).enumerate() {
            driver.queue().write_buffer(buffer, start as u64 + index as u64 * MAX_STAGING, part);
            let part = part.len() as u64;
            if self.uploaded.fetch_add(part, Ordering::Relaxed) + part >= MAX_STAGING {
                self.uploaded.store(0, Ordering::Relaxed);
                driver.queue().submit([]);
            }
        }
    }

    /// Replaces some bytes of a word on the device: the host does not know the others, and asking would mean to wait.
    fn merge(
        &self,
        driver: &Driver,
        pipelines: &Pipelines,
        caps: &Caps,
        entry: &Entry,
        merge: &Merge,
    ) -> Result<(), DeviceError> {
        let dispatch = [merge.dispatch()];
        let mut merger = lock(&entry.merger);
        match merger.as_mut() {
            Some(steps) => {
                steps.set_params(&dispatch);
                steps.submit(driver).map(drop)
            }
            None => {
                let kernels = pipelines.kernels(driver, caps, &dispatch)?;
                let steps = Steps::new(driver, &dispatch, &kernels, &[vec![entry.buffer.clone()]])?;
                merger.insert(steps).submit(driver).map(drop)
            }
        }
    }

    /// Reads bytes from anywhere, once everything submitted has run. The caller has entered.
    pub(super) fn read(
        &self,
        driver: &Driver,
        id: BufferId,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        let entry = self.range(id, offset, bytes.len())?;
        driver.check()?;
        let mut staging = lock(&self.staging);
        let mut done = 0;
        while done < bytes.len() {
            let start = offset + done;
            let skip = start % WORD;
            let length = (bytes.len() - done).min(MAX_STAGING as usize - WORD);
            let copied = (skip + length).next_multiple_of(WORD) as u64;
            let buffer = self.staging(driver, &mut staging, copied)?;
            let read = fetch(driver, &entry.buffer, (start - skip) as u64, &buffer, copied, |words| {
                bytes[done..done + length].copy_from_slice(&words[skip..skip + length]);
            });
            if read.is_err() {
                // Whether it is still mapped is not known.
                *staging = None;
            }
            read?;
            done += length;
        }
        Ok(())
    }

    /// The buffer through which reads go, grown where it is too small.
    fn staging(
        &self,
        driver: &Driver,
        slot: &mut Option<wgpu::Buffer>,
        bytes: u64,
    ) -> Result<wgpu::Buffer, DeviceError> {
        if let Some(buffer) = slot.as_ref().filter(|buffer| buffer.size() >= bytes) {
            return Ok(buffer.clone());
        }
        let size = bytes.next_power_of_two();
        let made = driver.scoped(|| {
            driver.count_created(1);
            driver.device().create_buffer(&wgpu::BufferDescriptor {
                label: Some("staging"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let out_of_memory = |error| DeviceError::OutOfMemory { bytes: size as usize, reason: describe(&error) };
        Ok(slot.insert(made.map_err(out_of_memory)?).clone())
    }
}

/// Copies `bytes` bytes into `staging` and shows them to `take`.
fn fetch(
    driver: &Driver,
    buffer: &wgpu::Buffer,
    offset: u64,
    staging: &wgpu::Buffer,
    bytes: u64,
    take: impl FnOnce(&[u8]),
) -> Result<(), DeviceError> {
    let mut encoder = driver.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, offset, staging, 0, bytes);
    let submission = driver.queue().submit([encoder.finish()]);
    driver.check()?;
    let (sender, receiver) = oneshot_channel();
    staging.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
        // Nobody listens any more when a wait was given up.
        let _ = sender.send(result);
    });
    let mapped = driver.wait(&submission, receiver.receive())?;
    mapped.map_err(|error| driver.failure(format!("reading a buffer: {error}")))?;
    {
        let view = staging.slice(..bytes).get_mapped_range();
        take(&view.map_err(|error| driver.failure(format!("reading a buffer: {error}")))?);
    }
    staging.unmap();
    driver.check()
}

/// New values for some bytes of one word.
struct Merge {
    index: u32,
    mask: u32,
    bits: u32,
}

impl Merge {
    /// `part` does not leave the word in which byte `start` lies.
    fn new(start: usize, part: &[u8]) -> Self {
        let (mut mask, mut bits) = ([0; WORD], [0; WORD]);
        for (at, &byte) in (start % WORD..).zip(part) {
            mask[at] = u8::MAX;
            bits[at] = byte;
        }
        Self { index: (start / WORD) as u32, mask: u32::from_le_bytes(mask), bits: u32::from_le_bytes(bits) }
    }

    fn dispatch(&self) -> Dispatch {
        let number = |name: &str, bits| Param { name: name.to_owned(), kind: ParamType::U32, bits };
        Dispatch {
            kernel: "merge",
            switches: Vec::new(),
            // The kernel does not care which buffer this is; the caller binds it.
            bindings: vec![Binding { role: "word", place: Place::Arena(0), dtype: DType::I32, access: Access::Write }],
            params: vec![
                number("word_offset", 0),
                number("index", self.index),
                number("mask", self.mask),
                number("bits", self.bits),
            ],
            workgroup: 1,
            grid: [1; 3],
        }
    }
}
