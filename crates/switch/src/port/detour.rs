//! The detour of a port in quarantine: frames and calls wait in a backlog for the port's own thread.
//!
//! A poller that delivers to a port waits if an access to the client's memory stalls. While such a port is in
//! quarantine, pollers therefore copy its frames into a buffer of bounded size, and one thread alone delivers the
//! frames of the buffer to the client. Frames that do not fit are dropped as `receiver_slow`. Calls that become due on
//! a poller's list wait in the backlog as well.
//!
//! A detour can begin and end at any time: `on`, and whether the port counts as congested, change while the backlog is locked, and pollers check
//! again after they have locked it. A poller that found the detour off just before it began makes one more delivery directly.
//!
//! Senders share the backlog as they share a port that loses frames for lack of room ([`crate::policy::congestion`]).
//!
//! Nobody has the backlog locked while he touches a client's memory: a poller copies the frames to memory of its own first. So a thread that
//! the kernel keeps in the memory of a sender keeps nobody else. The detour lasts until that thread has left its frames, and takes those of others
//! meanwhile, unless it is ended at once. Memory of detours is mapped beforehand, and unmapped afterwards, by a thread that may wait ([`prepare_detours`]): the kernel may keep
//! every thread that maps or unmaps memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ringway_memory::{HEAD_BYTES, Mapping, View};

use super::counters::Counters;
use super::event::CallReason;
use super::fault::PortFault;
use super::output::{Output, OutputCapabilities};
use super::ring::Pending;
use crate::batch::{Batch, Frame, Frames};
use crate::frame::{Accepts, DropReason, MAX_FRAME, Offload};
use crate::policy::congestion::Congestion;

/// Capacity of a buffer in bytes and in frames.
const BUFFER_BYTES: usize = 3 * (64 << 10);
const BUFFER_FRAMES: usize = 256;
/// Room is counted in parts of so many bytes.
const UNIT: usize = BUFFER_BYTES / BUFFER_FRAMES;
/// Most calls in a backlog. Further calls are not made.
const MAX_CALLS: usize = 64;
/// Most ports with a detour that has memory, at the same time. Each detour takes the memory of two buffers.
const MAX_DETOURS: usize = 256;
/// So many of these are for [`DetourRoom::Spare`] alone.
const RESERVED_DETOURS: usize = 64;

/// Halves of backlogs that are kept for detours to come: those of 16.
const SPARES_KEPT: usize = 32;
/// So many of these are for [`DetourRoom::Spare`] alone.
const RESERVED_SPARES: usize = 16;

/// Number of ports with a detour that has memory.
static DETOURS: AtomicUsize = AtomicUsize::new(0);
/// More halves than there are at a time.
const MOST_SPARES: usize = 2 * (MAX_DETOURS + SPARES_KEPT);
/// Memory for detours to come. Nobody allocates with it locked: the thread that relieves pollers takes some.
static SPARES: Mutex<Vec<Half>> = Mutex::new(Vec::new());

/// Maps memory for detours to come, and unmaps what is too much of it. Returns false if the kernel gives none. To be called by a thread that may
/// wait.
pub fn prepare_detours() -> bool {
    if spares().capacity() < MOST_SPARES {
        // A detour that ends allocates nothing.
        let mut room = Vec::with_capacity(MOST_SPARES);
        let mut spares = spares();
        room.append(&mut spares);
        let former = std::mem::replace(&mut *spares, room);
        drop(spares);
        drop(former);
    }
    trim_spares();
    // Mapped without the lock: who wants memory must not wait for the kernel.
    while spares().len() < SPARES_KEPT {
        let Some(half) = Half::new() else { return false };
        keep_spare(half);
    }
    true
}

fn trim_spares() {
    let surplus = || {
        let mut spares = spares();
        if spares.len() > SPARES_KEPT { spares.pop() } else { None }
    };
    while let Some(half) = surplus() {
        drop(half);
    }
}

fn spares() -> MutexGuard<'static, Vec<Half>> {
    SPARES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of a detour's backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetourRoom {
    /// Memory that was mapped beforehand, without the reserve. The detour begins only if there is some.
    Prepared,
    /// Memory that was mapped beforehand, with the reserve, or none.
    Spare,
    /// None: all frames are dropped, and calls are forgotten.
    Nothing,
}

/// Copies of frames, one after the other. For each frame: offset in the memory, length, and offload.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    /// `None`: no frame has room.
    area: Option<Mapping>,
    used: usize,
    frames: Vec<(usize, usize, Option<Offload>)>,
}

impl FrameBuffer {
    #[cfg(test)]
    pub(super) const BYTES: usize = BUFFER_BYTES;

    pub(crate) fn new() -> Option<FrameBuffer> {
        let area = Some(Mapping::resident(BUFFER_BYTES).ok()?);
        Some(FrameBuffer { area, used: 0, frames: Vec::with_capacity(BUFFER_FRAMES) })
    }

    pub(crate) fn without_room() -> FrameBuffer {
        FrameBuffer { area: None, used: 0, frames: Vec::new() }
    }

    fn clear(&mut self) {
        self.used = 0;
        self.frames.clear();
    }

    /// The place of the next frame, if it has room.
    pub(super) fn place(&self, len: usize) -> Option<View<'_>> {
        let has_place = self.frames.len() < BUFFER_FRAMES && len <= MAX_FRAME;
        self.area.as_ref().filter(|_| has_place)?.view(self.used, len)
    }

    fn note(&mut self, len: usize, offload: Option<Offload>) {
        self.frames.push((self.used, len, offload));
        self.used += len;
    }

    /// Copies a frame from its client's memory. Returns false if it has no room.
    fn copy(&mut self, frame: &Frame<'_, '_>) -> bool {
        let Some(place) = self.place(frame.len()) else { return false };
        let mut at = frame.head_len();
        let mut whole = place.write_head(frame.head(), at);
        for rest in frame.rest() {
            whole &= place.sub(at, rest.len()).is_some_and(|to: View<'_>| to.copy_from(*rest));
            at += rest.len();
        }
        debug_assert!(whole && at == frame.len());
        // Otherwise bytes of an earlier frame would be left in this one.
        if whole && at == frame.len() {
            self.note(frame.len(), frame.offload().copied());
        }
        whole && at == frame.len()
    }

    /// Copies a frame of another buffer. Returns false if it has no room.
    fn append(&mut self, from: &FrameBuffer, frame: usize) -> bool {
        let Some(&(at, len, offload)) = from.frames.get(frame) else { return false };
        let copy = from.area.as_ref().and_then(|area| area.view(at, len));
        if !copy.is_some_and(|copy| self.place(len).is_some_and(|place| place.copy_from(copy))) {
            return false;
        }
        self.note(len, offload);
        true
    }
}

/// One half of a backlog's memory: one is filled while the other one is emptied.
#[derive(Debug)]
struct Half {
    buffer: FrameBuffer,
    /// Without room no call is kept: the port's client is asked anew when such a detour ends.
    calls: Vec<(CallReason, Pending)>,
}

impl Half {
    fn new() -> Option<Half> {
        Some(Half { buffer: FrameBuffer::new()?, calls: Vec::with_capacity(MAX_CALLS) })
    }

    fn without_room() -> Half {
        Half { buffer: FrameBuffer::without_room(), calls: Vec::new() }
    }

    fn clear(&mut self) {
        self.buffer.clear();
        self.calls.clear();
    }

    fn is_empty(&self) -> bool {
        self.buffer.frames.is_empty() && self.calls.is_empty()
    }
}

/// The frames and calls that wait for the port's own thread while the detour is on.
#[derive(Debug)]
struct Backlog {
    filling: Half,
    /// The other half; `None` while the port's own thread is emptying it.
    empty: Option<Half>,
    waker: Waker,
    /// The port's own thread sleeps, and wants to be woken.
    asleep: bool,
    /// The detour is to end: no frame is added, so that the backlog becomes empty also beside a sender that would always fill it.
    is_ending: bool,
    /// Counts the detour, if it has memory.
    _place: Option<Place>,
}

/// One of the detours with memory.
#[derive(Debug)]
struct Place;

impl Place {
    /// Returns `None` if there are so many already.
    fn take(most: usize) -> Option<Place> {
        let place = |taken: usize| (taken < most).then_some(taken + 1);
        DETOURS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place).ok().map(|_| Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        DETOURS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        keep_spare(std::mem::replace(&mut self.filling, Half::without_room()));
        self.empty.take().into_iter().for_each(keep_spare);
    }
}

/// Keeps memory for a detour to come. It is not unmapped here, as a poller may be the caller.
fn keep_spare(mut half: Half) {
    if half.buffer.area.is_some() {
        half.clear();
        spares().push(half);
    }
}

/// A port's detour.
#[derive(Debug, Default)]
pub(crate) struct Detour {
    on: AtomicBool,
    /// Threads that copy frames for the backlog. Grows while the backlog is locked.
    entered: AtomicUsize,
    backlog: Mutex<Option<Backlog>>,
}

/// Whether a detour has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetourEnd {
    /// It has, or was off.
    Ended,
    /// Frames or calls wait in its backlog.
    Filled,
    /// It may not: a thread copies frames for the backlog, or the caller says so.
    Used,
}

impl Drop for Detour {
    fn drop(&mut self) {
        // Whoever drops a port may wait for the kernel.
        if self.backlog.get_mut().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            trim_spares();
        }
    }
}

/// A thread that copies frames for the backlog. The detour does not end meanwhile, unless it is abandoned or does not wait.
struct Entered<'a>(&'a Detour);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.entered.fetch_sub(1, Ordering::Release);
    }
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

    /// Begins the detour. `waker` wakes the thread that empties the backlog. `begun` is called before another thread can end the detour. Returns
    /// false if the detour is on already or there is no memory for another one.
    pub(crate) fn begin(&self, waker: Waker, room: DetourRoom, congestion: &Congestion, begun: impl FnOnce()) -> bool {
        let mut backlog = self.lock();
        if backlog.is_some() {
            return false;
        }
        let Some(([filling, empty], place)) = halves(room) else { return false };
        let (empty, asleep, is_ending) = (Some(empty), false, false);
        *backlog = Some(Backlog { filling, empty, waker, asleep, is_ending, _place: place });
        self.on.store(true, Ordering::Release);
        congestion.divert(true);
        begun();
        true
    }

    /// Has another thread empty the backlog from now on, if `takes` returns true, which is called before that. Returns false without a detour, too.
    pub(crate) fn hand_over(&self, waker: Waker, takes: impl FnOnce() -> bool) -> bool {
        let mut backlog = self.lock();
        let Some(backlog) = backlog.as_mut() else { return false };
        let is_taken = takes();
        if is_taken {
            (backlog.waker, backlog.asleep) = (waker, false);
        }
        is_taken
    }

    fn turn_off(&self, backlog: &mut Option<Backlog>, congestion: &Congestion) -> Option<Backlog> {
        self.on.store(false, Ordering::Release);
        congestion.divert(false);
        backlog.take()
    }

    /// Ends the detour even if the backlog is not empty. Returns the number of frames that are lost.
    pub(crate) fn abandon(&self, congestion: &Congestion) -> u64 {
        let ended = self.turn_off(&mut self.lock(), congestion);
        ended.map_or(0, |backlog| backlog.filling.buffer.frames.len() as u64)
    }

    /// Ends the detour if the backlog is empty and `ends` returns true, which is called before another thread can begin the detour anew. `waits`: not
    /// while a thread copies frames for the backlog. Otherwise those frames are lost.
    pub(crate) fn end(&self, congestion: &Congestion, waits: bool, ends: impl FnOnce() -> bool) -> DetourEnd {
        let mut backlog = self.lock();
        // First: while a thread is kept that copies frames, the detour cannot end, however full it is.
        if waits && self.entered.load(Ordering::Acquire) > 0 && backlog.is_some() {
            return DetourEnd::Used;
        }
        if backlog.as_ref().is_some_and(|backlog| !backlog.filling.is_empty()) {
            return DetourEnd::Filled;
        }
        if !ends() {
            return DetourEnd::Used;
        }
        if backlog.is_some() {
            self.turn_off(&mut backlog, congestion);
        }
        DetourEnd::Ended
    }

    /// The backlog takes no more frames, so that it becomes empty and the detour ends, or takes frames again.
    pub(crate) fn close(&self, is_ending: bool) {
        if let Some(backlog) = self.lock().as_mut() {
            backlog.is_ending = is_ending;
        }
    }

    /// Asks for a wake-up when frames or calls enter the backlog. Returns true if the backlog is empty or the detour is
    /// off.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut backlog = self.lock();
        let Some(backlog) = backlog.as_mut() else { return true };
        backlog.asleep = backlog.filling.is_empty();
        backlog.asleep
    }

    /// Returns true if the backlog has frames or calls.
    pub(crate) fn has_backlog(&self) -> bool {
        self.is_on() && self.lock().as_ref().is_some_and(|backlog| !backlog.filling.is_empty())
    }

    /// Adds a call that is due to the backlog. Returns false if the detour is off.
    pub(crate) fn leave_call(&self, reason: CallReason, call: Pending) -> bool {
        let mut backlog = self.lock();
        let Some(backlog) = backlog.as_mut() else { return false };
        let calls = &mut backlog.filling.calls;
        if calls.len() < calls.capacity() {
            calls.push((reason, call));
        }
        wake(backlog);
        true
    }

    /// Calls `deliver` with an output that adds frames to the backlog. It copies them to `copies` first. Returns false if the detour is off.
    pub(crate) fn leave(&self, copies: &mut FrameBuffer, deliver: impl FnOnce(&mut dyn Output)) -> bool {
        let backlog = self.lock();
        let Some(has_room) =
            backlog.as_ref().map(|backlog| backlog.filling.buffer.area.is_some() && !backlog.is_ending)
        else {
            return false;
        };
        // Who finds no room adds nothing, and keeps no detour from ending.
        let entered = has_room.then(|| {
            self.entered.fetch_add(1, Ordering::Relaxed);
            Entered(self)
        });
        drop(backlog);
        deliver(&mut BacklogOutput { detour: self, copies, has_room });
        drop(entered);
        true
    }

    /// Takes all frames and calls out of the backlog. Returns `None` if the last ones taken were not given back yet, or
    /// if the detour is off.
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut backlog = self.lock();
        let backlog = backlog.as_mut()?;
        let empty = backlog.empty.take()?;
        Some(Taken(std::mem::replace(&mut backlog.filling, empty)))
    }

    /// Gives the memory of the frames and calls taken back to the backlog.
    pub(crate) fn give_back(&self, taken: Taken) {
        let Taken(mut half) = taken;
        half.clear();
        // Without a backlog, or with that of another detour, the one of these frames was abandoned.
        match self.lock().as_mut().filter(|backlog| backlog.empty.is_none()) {
            None => keep_spare(half),
            Some(backlog) => backlog.empty = Some(half),
        }
    }
}

/// The memory of a backlog, and what counts it if it is any. `None`: the detour cannot begin.
fn halves(room: DetourRoom) -> Option<([Half; 2], Option<Place>)> {
    let (detours, reserved) = match room {
        DetourRoom::Prepared => (MAX_DETOURS - RESERVED_DETOURS, RESERVED_SPARES),
        DetourRoom::Spare => (MAX_DETOURS, 0),
        DetourRoom::Nothing => (0, 0),
    };
    let spare = || {
        let place = Place::take(detours)?;
        let mut spares = spares();
        if spares.len() < reserved + 2 {
            return None;
        }
        Some(([spares.pop()?, spares.pop()?], Some(place)))
    };
    let nothing = || ([Half::without_room(), Half::without_room()], None);
    spare().or_else(|| (room != DetourRoom::Prepared).then(nothing))
}

fn wake(backlog: &mut Backlog) {
    if std::mem::take(&mut backlog.asleep) {
        backlog.waker.wake_by_ref();
    }
}

/// Frames and calls taken out of the backlog.
#[derive(Debug)]
pub(crate) struct Taken(Half);

impl Taken {
    pub(crate) fn frames(&self) -> usize {
        self.0.buffer.frames.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.buffer.used
    }

    pub(crate) fn calls(&self) -> &[(CallReason, Pending)] {
        &self.0.calls
    }

    /// Adds frames to a batch, beginning with the one at index `first`: as many as fit, and `most` at most. Returns the
    /// index of the first frame that was not added.
    pub(crate) fn fill<'m>(&'m self, first: usize, most: usize, batch: &mut Batch<'m>) -> usize {
        let mut next = first;
        while batch.room() > 0
            && batch.len() < most
            && let Some((at, len, offload)) = self.0.buffer.frames.get(next)
        {
            next += 1;
            let Some(frame) = self.0.buffer.area.as_ref().and_then(|area| area.view(*at, *len)) else { continue };
            let (head, rests) = batch.draft();
            let head_len = frame.read_head((*len).min(HEAD_BYTES), head).min(*len);
            rests.extend(frame.behind(head_len));
            batch.seal(head_len, *offload);
        }
        next
    }
}

/// An output that copies frames into the backlog, with their offloads, and drops those that do not fit.
struct BacklogOutput<'a> {
    detour: &'a Detour,
    /// Memory of the poller.
    copies: &'a mut FrameBuffer,
    has_room: bool,
}

impl Output for BacklogOutput<'_> {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities { accepts: Accepts::EVERYTHING, names_losses: true, ..OutputCapabilities::default() }
    }

    fn room(&mut self, _: Frames<'_, '_>) -> Option<(usize, usize)> {
        let free = |Backlog { filling, .. }: &Backlog| {
            (BUFFER_FRAMES - filling.buffer.frames.len()).min((BUFFER_BYTES - filling.buffer.used) / UNIT)
        };
        let free = if self.has_room { self.detour.lock().as_ref().map_or(0, free) } else { 0 };
        Some((free, BUFFER_FRAMES))
    }

    fn buffer(&mut self) -> usize {
        UNIT
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        self.copies.clear();
        if self.has_room {
            // A buffer of the backlog has no room for more than this one.
            frames.clone().take_while(|frame| self.copies.copy(frame)).for_each(drop);
        }
        let mut backlog = self.detour.lock();
        let mut lost = 0;
        for (number, frame) in frames.enumerate() {
            // Without a backlog the detour was abandoned meanwhile.
            if !backlog.as_mut().is_some_and(|backlog| backlog.filling.buffer.append(self.copies, number)) {
                lost += 1;
                frame.lose(DropReason::ReceiverSlow);
            }
        }
        if let Some(backlog) = backlog.as_mut() {
            wake(backlog);
        }
        counters.drop_out_beside(DropReason::ReceiverSlow, lost);
        Ok(())
    }
}
