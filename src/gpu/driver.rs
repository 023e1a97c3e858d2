//! The wgpu device and queue, and what makes them safe to use: errors become values, losses are remembered, waits end.

use crate::device::DeviceError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long one wait may take before the device counts as hung. Software adapters need minutes for what a GPU does in
/// a second.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long one poll blocks. wgpu's GL backend holds its context during a poll and gives up on a context it cannot get
/// for six seconds, so polls stay well below that.
const SLICE: Duration = Duration::from_secs(1);

/// Takes a lock; a thread that panicked while it held one left nothing half done here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What can go wrong outside of any call.
#[derive(Default)]
struct Faults {
    /// Why the device is gone; final.
    lost: Mutex<Option<String>>,
    /// The first error that no scope caught since somebody looked.
    uncaptured: Mutex<Option<String>>,
}

/// What a wgpu device was opened as: two that agree in this can take each other's place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OpenedAs {
    pub(super) adapter: wgpu::AdapterInfo,
    pub(super) features: wgpu::Features,
}

/// wgpu devices that nobody uses, and those that were lost, under `None`. None is ever destroyed: NVIDIA's driver
/// (580.159) can lock up or crash a process that destroys a device while other threads submit to another or end. So a
/// device is used again by whoever opens one like it.
static IDLE: Mutex<Vec<(Option<OpenedAs>, wgpu::Device, wgpu::Queue)>> = Mutex::new(Vec::new());

/// A device that was opened so before and that nobody uses now.
pub(super) fn idle(opened_as: &OpenedAs) -> Option<(wgpu::Device, wgpu::Queue)> {
    let mut idle = lock(&IDLE);
    let index = idle.iter().position(|(key, ..)| key.as_ref() == Some(opened_as))?;
    let (_, device, queue) = idle.swap_remove(index);
    Some((device, queue))
}

/// A wgpu device, shared by everything that was made on it.
pub(super) struct Driver {
    /// Name of the device, for errors.
    pub(super) name: String,
    queue: wgpu::Queue,
    device: wgpu::Device,
    /// On GL, one call at a time: its context belongs to one thread at a time, and wgpu panics in a thread that waits
    /// too long for it.
    gate: Option<Mutex<()>>,
    faults: Arc<Faults>,
    created: AtomicU64,
    /// For devices that outlive their use.
    opened_as: Option<OpenedAs>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Some(opened_as) = self.opened_as.take() else { return };
        let lost = lock(&self.faults.lost).is_some();
        lock(&IDLE).push(((!lost).then_some(opened_as), self.device.clone(), self.queue.clone()));
    }
}

/// Holding this, a thread may call wgpu.
pub(super) struct Entered<'a>(#[expect(dead_code, reason = "held for its effect")] Option<MutexGuard<'a, ()>>);

impl Driver {
    /// Takes over a device. One of GL is used by one thread at a time, and destroyed after use.
    pub(super) fn new(name: String, device: wgpu::Device, queue: wgpu::Queue, opened_as: OpenedAs) -> Arc<Self> {
        let serial = opened_as.adapter.backend == wgpu::Backend::Gl;
        let faults = Arc::new(Faults::default());
        let seen = Arc::clone(&faults);
        device.set_device_lost_callback(move |reason, message| {
            lock(&seen.lost).get_or_insert_with(|| format!("device lost ({reason:?}): {}", message.trim()));
        });
        let seen = Arc::clone(&faults);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            lock(&seen.uncaptured).get_or_insert_with(|| describe(&error));
        }));
        let gate = serial.then(|| Mutex::new(()));
        let opened_as = (!serial).then_some(opened_as);
        Arc::new(Self { name, queue, device, gate, faults, created: AtomicU64::new(0), opened_as })
    }

    /// Waits for the right to call wgpu. Needed around every call and around dropping wgpu's objects.
    pub(super) fn enter(&self) -> Entered<'_> {
        Entered(self.gate.as_ref().map(lock))
    }

    /// Whether only one thread may call wgpu at a time.
    pub(super) const fn is_serial(&self) -> bool {
        self.gate.is_some()
    }

    pub(super) const fn device(&self) -> &wgpu::Device {
        &self.device
    }

    pub(super) const fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Notes that wgpu objects (buffers, layouts, bind groups, shader modules, pipelines) were made.
    pub(super) fn count_created(&self, objects: u64) {
        self.created.fetch_add(objects, Ordering::Relaxed);
    }

    pub(super) fn created(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
    }

    /// A driver failure of this device.
    pub(super) fn failure(&self, reason: impl Into<String>) -> DeviceError {
        DeviceError::Driver { device: self.name.clone(), reason: reason.into() }
    }

    /// Reports a lost device, and otherwise what no scope caught since the last look.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        if let Some(reason) = lock(&self.faults.lost).clone() {
            return Err(self.failure(reason));
        }
        lock(&self.faults.uncaptured).take().map_or(Ok(()), |reason| Err(self.failure(reason)))
    }

    /// Runs `make` and gives what it made, or the first error that wgpu raised on this thread meanwhile.
    pub(super) fn scoped<T>(&self, make: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let made = make();
        let errors = [pollster::block_on(validation.pop()), pollster::block_on(internal.pop())];
        let memory = pollster::block_on(memory.pop());
        memory.into_iter().chain(errors.into_iter().flatten()).next().map_or(Ok(made), Err)
    }

    /// wgpu panics instead of returning an error when the device is lost during a poll: that gives `None`.
    fn poll(&self, poll: wgpu::PollType) -> Option<Result<wgpu::PollStatus, wgpu::PollError>> {
        catch_unwind(AssertUnwindSafe(|| self.device.poll(poll))).ok()
    }

    /// Waits for a submission and for what a callback that depends on it sends.
    pub(super) fn wait<T>(
        &self,
        submission: &wgpu::SubmissionIndex,
        answer: impl Future<Output = Option<T>>,
    ) -> Result<T, DeviceError> {
        let mut answer = pin!(answer);
        let start = Instant::now();
        loop {
            let poll = wgpu::PollType::Wait { submission_index: Some(submission.clone()), timeout: Some(SLICE) };
            let reason = match self.poll(poll) {
                Some(Ok(_) | Err(wgpu::PollError::Timeout)) => None,
                Some(Err(error @ wgpu::PollError::WrongSubmissionIndex(..))) => {
                    // The device did not take the submission. It says why once it is done with what it took.
                    self.poll(wgpu::PollType::Wait { submission_index: None, timeout: Some(SLICE) });
                    Some(error.to_string())
                }
                None => Some("the driver failed during a wait".to_owned()),
            };
            self.check()?;
            if let Some(reason) = reason {
                return Err(self.failure(reason));
            }
            // Callbacks run during polls, so there is nobody to wake.
            match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(answer)) => return Ok(answer),
                Poll::Ready(None) => return Err(self.failure("the driver dropped a request")),
                Poll::Pending => {}
            }
            if start.elapsed() > PATIENCE {
                return Err(self.failure(format!("no answer within {} s", PATIENCE.as_secs())));
            }
        }
    }
}

/// The whole story of an error: wgpu's description of a validation error names the call and the cause.
pub(super) fn describe(error: &wgpu::Error) -> String {
    let text = match error {
        wgpu::Error::OutOfMemory { source } => format!("out of memory: {source}"),
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => description.clone(),
    };
    text.trim().to_owned()
}
