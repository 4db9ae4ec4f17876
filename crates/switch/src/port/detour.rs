//! What others leave for a port that a thread of its own serves.
//!
//! Whoever delivers to a port whose memory stalls waits for that memory. So while such a port is in quarantine, pollers copy its
//! frames into a parcel of bounded size instead, and the one thread that serves the port gives it the parcel's frames. What does
//! not fit is lost as `receiver_slow`. Calls that become due elsewhere are left in the same place.
//!
//! The switch of ways is safe at any time: `on` is changed while the parcel is locked, and whoever has locked it looks again. A
//! poller that found the detour off just before it began delivers as before, once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ringway_memory::{HEAD_BYTES, Mapping, View};

use super::counters::Counters;
use super::event::News;
use super::fault::PortFault;
use super::output::Output;
use super::ring::Pending;
use crate::batch::{Batch, Frames};
use crate::frame::{Accepts, DropReason, MAX_FRAME, Offload};

/// Bytes and frames of a parcel.
const BYTES: usize = 3 * (64 << 10);
const FRAMES: usize = 256;
/// Calls that are left; more are not made.
const CALLS: usize = 64;
/// Ports that may have a detour at the same time: each takes the memory of two parcels.
const MOST: usize = 256;

static THERE_ARE: AtomicUsize = AtomicUsize::new(0);

/// Frames, one behind the other.
#[derive(Debug)]
struct Parcel {
    area: Mapping,
    used: usize,
    frames: Vec<(usize, usize, Option<Offload>)>,
}

impl Parcel {
    fn new() -> Option<Parcel> {
        Some(Parcel { area: Mapping::private(BYTES).ok()?, used: 0, frames: Vec::with_capacity(FRAMES) })
    }

    fn clear(&mut self) {
        self.used = 0;
        self.frames.clear();
    }
}

/// What is left, while the detour is on.
#[derive(Debug)]
struct Left {
    filling: Parcel,
    /// The other one, unless it is being emptied.
    empty: Option<Parcel>,
    calls: Vec<(News, Pending)>,
    waker: Waker,
    /// Wants to be woken.
    asleep: bool,
}

impl Drop for Left {
    fn drop(&mut self) {
        THERE_ARE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A port's detour.
#[derive(Debug, Default)]
pub(crate) struct Detour {
    on: AtomicBool,
    left: Mutex<Option<Left>>,
}

impl Detour {
    /// Whether frames and calls are to be left here.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Left>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins, if there is memory for one more. `waker` wakes the thread that empties it.
    pub(crate) fn begin(&self, waker: Waker) -> bool {
        let mut left = self.lock();
        if left.is_some() {
            return false;
        }
        if THERE_ARE.fetch_add(1, Ordering::Relaxed) >= MOST {
            THERE_ARE.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let (Some(filling), Some(empty)) = (Parcel::new(), Parcel::new()) else {
            THERE_ARE.fetch_sub(1, Ordering::Relaxed);
            return false;
        };
        let calls = Vec::with_capacity(CALLS);
        *left = Some(Left { filling, empty: Some(empty), calls, waker, asleep: false });
        self.on.store(true, Ordering::Release);
        true
    }

    /// Ends, whatever is left: so many frames.
    pub(crate) fn abandon(&self) -> u64 {
        let mut left = self.lock();
        self.on.store(false, Ordering::Release);
        left.take().map_or(0, |left| left.filling.frames.len() as u64)
    }

    /// Ends, if nothing is left here. False when something is.
    pub(crate) fn end(&self) -> bool {
        let mut left = self.lock();
        if left.as_ref().is_some_and(|left| !left.filling.frames.is_empty() || !left.calls.is_empty()) {
            return false;
        }
        self.on.store(false, Ordering::Release);
        *left = None;
        true
    }

    /// Somebody is to be woken by what is left from now on; false when there is something already.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut left = self.lock();
        let Some(left) = left.as_mut() else { return true };
        left.asleep = left.filling.frames.is_empty() && left.calls.is_empty();
        left.asleep
    }

    /// Whether something is left.
    pub(crate) fn has_something(&self) -> bool {
        self.is_on()
            && self.lock().as_ref().is_some_and(|left| !left.filling.frames.is_empty() || !left.calls.is_empty())
    }

    /// Leaves a call that is due. False when the detour is off.
    pub(crate) fn leave_call(&self, news: News, call: Pending) -> bool {
        let mut left = self.lock();
        let Some(left) = left.as_mut() else { return false };
        if left.calls.len() < CALLS {
            left.calls.push((news, call));
        }
        wake(left);
        true
    }

    /// Has frames left, by the output that `deliver` is given. False when the detour is off.
    pub(crate) fn leave(&self, deliver: impl FnOnce(&mut dyn Output)) -> bool {
        let mut left = self.lock();
        let Some(left) = left.as_mut() else { return false };
        deliver(&mut Leaving(left));
        wake(left);
        true
    }

    /// Takes what is left, unless something is being emptied already.
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut left = self.lock();
        let left = left.as_mut()?;
        let empty = left.empty.take()?;
        let parcel = std::mem::replace(&mut left.filling, empty);
        Some(Taken { parcel, calls: std::mem::take(&mut left.calls) })
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, taken: Taken) {
        let Taken { mut parcel, mut calls } = taken;
        parcel.clear();
        calls.clear();
        if let Some(left) = self.lock().as_mut() {
            left.empty = Some(parcel);
            if left.calls.capacity() == 0 {
                left.calls = calls;
            }
        }
    }
}

fn wake(left: &mut Left) {
    if std::mem::take(&mut left.asleep) {
        left.waker.wake_by_ref();
    }
}

/// What was left.
#[derive(Debug)]
pub(crate) struct Taken {
    parcel: Parcel,
    pub(crate) calls: Vec<(News, Pending)>,
}

impl Taken {
    pub(crate) fn frames(&self) -> usize {
        self.parcel.frames.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.parcel.used
    }

    /// Adds frames to a batch from frame `first` of those that were left on, as many as fit and `most` at most. Returns the number of
    /// the first frame that was not added.
    pub(crate) fn fill<'m>(&'m self, first: usize, most: usize, batch: &mut Batch<'m>) -> usize {
        let mut next = first;
        while batch.room() > 0
            && batch.len() < most
            && let Some((at, len, offload)) = self.parcel.frames.get(next)
        {
            next += 1;
            let Some(frame) = self.parcel.area.view(*at, *len) else { continue };
            let (head, rests) = batch.draft();
            let head_len = frame.read_head((*len).min(HEAD_BYTES), head).min(*len);
            rests.extend(frame.behind(head_len));
            batch.seal(head_len, *offload);
        }
        next
    }
}

/// The parcel as an output: takes every frame as it is, as far as there is room.
struct Leaving<'a>(&'a mut Left);

impl Output for Leaving<'_> {
    fn accepts(&self) -> Accepts {
        Accepts::EVERYTHING
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let parcel = &mut self.0.filling;
        for frame in frames {
            let place = parcel.area.view(parcel.used, frame.len());
            let Some(place) = place.filter(|_| parcel.frames.len() < FRAMES && frame.len() <= MAX_FRAME) else {
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
            parcel.frames.push((parcel.used, frame.len(), frame.offload().copied()));
            parcel.used += frame.len();
        }
        Ok(())
    }

    fn names_losses(&self) -> bool {
        true
    }
}
