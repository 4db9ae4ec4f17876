//! The detour of a port in quarantine: frames and calls wait in a backlog for the port's own thread.
//!
//! A poller that delivers to a port waits if an access to the client's memory stalls. While such a port is in
//! quarantine, pollers therefore copy its frames into a buffer of bounded size, and one thread alone delivers the
//! frames of the buffer to the client. Frames that do not fit are dropped as `receiver_slow`. Calls that become due on
//! a poller's list wait in the backlog as well.
//!
//! A detour can begin and end at any time: `on` changes while the backlog is locked, and pollers check again after they
//! have locked it. A poller that found the detour off just before it began makes one more delivery directly.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ringway_memory::{HEAD_BYTES, Mapping, View};

use super::counters::Counters;
use super::event::CallReason;
use super::fault::PortFault;
use super::output::{Output, OutputCapabilities};
use super::ring::Pending;
use crate::batch::{Batch, Frames};
use crate::frame::{Accepts, DropReason, MAX_FRAME, Offload};

/// Capacity of a buffer in bytes and in frames.
const BUFFER_BYTES: usize = 3 * (64 << 10);
const BUFFER_FRAMES: usize = 256;
/// Most calls in a backlog. Further calls are not made.
const MAX_CALLS: usize = 64;
/// Most ports with a detour at the same time. Each detour takes the memory of two buffers.
const MAX_DETOURS: usize = 256;

/// Number of ports with a detour.
static DETOURS: AtomicUsize = AtomicUsize::new(0);

/// Copies of frames, one after the other. For each frame: offset in the memory, length, and offload.
#[derive(Debug)]
struct FrameBuffer {
    area: Mapping,
    used: usize,
    frames: Vec<(usize, usize, Option<Offload>)>,
}

impl FrameBuffer {
    fn new() -> Option<FrameBuffer> {
        Some(FrameBuffer {
            area: Mapping::private(BUFFER_BYTES).ok()?,
            used: 0,
            frames: Vec::with_capacity(BUFFER_FRAMES),
        })
    }

    fn clear(&mut self) {
        self.used = 0;
        self.frames.clear();
    }
}

/// The frames and calls that wait for the port's own thread while the detour is on.
#[derive(Debug)]
struct Backlog {
    filling: FrameBuffer,
    /// The second buffer; `None` while the port's own thread is emptying it.
    empty: Option<FrameBuffer>,
    calls: Vec<(CallReason, Pending)>,
    waker: Waker,
    /// The port's own thread sleeps, and wants to be woken.
    asleep: bool,
}

impl Drop for Backlog {
    fn drop(&mut self) {
        DETOURS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A port's detour.
#[derive(Debug, Default)]
pub(crate) struct Detour {
    on: AtomicBool,
    backlog: Mutex<Option<Backlog>>,
}

impl Detour {
    /// Returns true while the detour is on: pollers must leave the port's frames and calls here.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Backlog>> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the detour. `waker` wakes the thread that empties the backlog. Returns false if the detour is on already
    /// or there is no memory for another one.
    pub(crate) fn begin(&self, waker: Waker) -> bool {
        let mut backlog = self.lock();
        if backlog.is_some() {
            return false;
        }
        if DETOURS.fetch_add(1, Ordering::Relaxed) >= MAX_DETOURS {
            DETOURS.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let (Some(filling), Some(empty)) = (FrameBuffer::new(), FrameBuffer::new()) else {
            DETOURS.fetch_sub(1, Ordering::Relaxed);
            return false;
        };
        let calls = Vec::with_capacity(MAX_CALLS);
        *backlog = Some(Backlog { filling, empty: Some(empty), calls, waker, asleep: false });
        self.on.store(true, Ordering::Release);
        true
    }

    /// Ends the detour even if the backlog is not empty. Returns the number of frames that are lost.
    pub(crate) fn abandon(&self) -> u64 {
        let mut backlog = self.lock();
        self.on.store(false, Ordering::Release);
        backlog.take().map_or(0, |backlog| backlog.filling.frames.len() as u64)
    }

    /// Ends the detour if the backlog is empty. Returns true if the detour has ended.
    pub(crate) fn end(&self) -> bool {
        let mut backlog = self.lock();
        if backlog.as_ref().is_some_and(|backlog| !backlog.filling.frames.is_empty() || !backlog.calls.is_empty()) {
            return false;
        }
        self.on.store(false, Ordering::Release);
        *backlog = None;
        true
    }

    /// Asks for a wake-up when frames or calls enter the backlog. Returns true if the backlog is empty or the detour is
    /// off.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut backlog = self.lock();
        let Some(backlog) = backlog.as_mut() else { return true };
        backlog.asleep = backlog.filling.frames.is_empty() && backlog.calls.is_empty();
        backlog.asleep
    }

    /// Returns true if the backlog has frames or calls.
    pub(crate) fn has_backlog(&self) -> bool {
        self.is_on()
            && self
                .lock()
                .as_ref()
                .is_some_and(|backlog| !backlog.filling.frames.is_empty() || !backlog.calls.is_empty())
    }

    /// Adds a call that is due to the backlog. Returns false if the detour is off.
    pub(crate) fn leave_call(&self, reason: CallReason, call: Pending) -> bool {
        let mut backlog = self.lock();
        let Some(backlog) = backlog.as_mut() else { return false };
        if backlog.calls.len() < MAX_CALLS {
            backlog.calls.push((reason, call));
        }
        wake(backlog);
        true
    }

    /// Calls `deliver` with an output that adds frames to the backlog. Returns false if the detour is off.
    pub(crate) fn leave(&self, deliver: impl FnOnce(&mut dyn Output)) -> bool {
        let mut backlog = self.lock();
        let Some(backlog) = backlog.as_mut() else { return false };
        deliver(&mut BacklogOutput(backlog));
        wake(backlog);
        true
    }

    /// Takes all frames and calls out of the backlog. Returns `None` if the last ones taken were not given back yet, or
    /// if the detour is off.
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut backlog = self.lock();
        let backlog = backlog.as_mut()?;
        let empty = backlog.empty.take()?;
        let buffer = std::mem::replace(&mut backlog.filling, empty);
        Some(Taken { buffer, calls: std::mem::take(&mut backlog.calls) })
    }

    /// Gives the memory of the frames and calls taken back to the backlog.
    pub(crate) fn give_back(&self, taken: Taken) {
        let Taken { mut buffer, mut calls } = taken;
        buffer.clear();
        calls.clear();
        if let Some(backlog) = self.lock().as_mut() {
            backlog.empty = Some(buffer);
            if backlog.calls.capacity() == 0 {
                backlog.calls = calls;
            }
        }
    }
}

fn wake(backlog: &mut Backlog) {
    if std::mem::take(&mut backlog.asleep) {
        backlog.waker.wake_by_ref();
    }
}

/// Frames and calls taken out of the backlog.
#[derive(Debug)]
pub(crate) struct Taken {
    buffer: FrameBuffer,
    pub(crate) calls: Vec<(CallReason, Pending)>,
}

impl Taken {
    pub(crate) fn frames(&self) -> usize {
        self.buffer.frames.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buffer.used
    }

    /// Adds frames to a batch, beginning with the one at index `first`: as many as fit, and `most` at most. Returns the
    /// index of the first frame that was not added.
    pub(crate) fn fill<'m>(&'m self, first: usize, most: usize, batch: &mut Batch<'m>) -> usize {
        let mut next = first;
        while batch.room() > 0
            && batch.len() < most
            && let Some((at, len, offload)) = self.buffer.frames.get(next)
        {
            next += 1;
            let Some(frame) = self.buffer.area.view(*at, *len) else { continue };
            let (head, rests) = batch.draft();
            let head_len = frame.read_head((*len).min(HEAD_BYTES), head).min(*len);
            rests.extend(frame.behind(head_len));
            batch.seal(head_len, *offload);
        }
        next
    }
}

/// An output that copies frames into the backlog, with their offloads, and drops those that do not fit.
struct BacklogOutput<'a>(&'a mut Backlog);

impl Output for BacklogOutput<'_> {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities { accepts: Accepts::EVERYTHING, names_losses: true, ..OutputCapabilities::default() }
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let buffer = &mut self.0.filling;
        for frame in frames {
            let place = buffer.area.view(buffer.used, frame.len());
            let Some(place) = place.filter(|_| buffer.frames.len() < BUFFER_FRAMES && frame.len() <= MAX_FRAME) else {
                counters.drop_out(DropReason::ReceiverSlow, 1);
                frame.lose(DropReason::ReceiverSlow);
                continue;
            };
            let mut at = frame.head_len();
            let mut whole = place.write_head(frame.head(), at);
            for rest in frame.rest() {
                whole &= place.sub(at, rest.len()).is_some_and(|to: View<'_>| to.copy_from(*rest));
                at += rest.len();
            }
            debug_assert!(whole && at == frame.len());
            buffer.frames.push((buffer.used, frame.len(), frame.offload().copied()));
            buffer.used += frame.len();
        }
        Ok(())
    }
}
