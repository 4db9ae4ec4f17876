//! Frames from the guest: the transmit rings of an e1000.

use std::sync::Arc;

use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};
use ringway_switch::{
    Armed, Batch, BatchStorage, Discarded, Input, InputCapabilities, PortFault, WaitingPlace, WakeOn,
};

use super::data_path::{InputState, Ring};
use super::device::Device;
use super::interrupt::SentEvent;
use super::offsets::{TADV, TDH, TIDV};

/// Most looped-back frames in one pass: enough for a self-test, and little load for other ports.
const LOOPED: usize = 64;
/// Longest mean time between two frames, in nanoseconds, at which a sleeping poller looks for them without being asked: a look finds
/// some (it comes 100 us after the last one).
const FREQUENT: u64 = 25_000;
/// Shortest time, in nanoseconds, over which the mean counts.
const WINDOW: u64 = 500_000;

/// Whether frames are frequent.
#[derive(Debug, Default)]
struct Pace {
    frames: u64,
    since: u64,
    is_frequent: bool,
}

impl Pace {
    /// Judges the frames since the window began, if it is over at `now`.
    fn judge(&mut self, now: u64) {
        let span = now.saturating_sub(self.since);
        if span >= WINDOW {
            *self = Pace { frames: 0, since: now, is_frequent: self.frames.saturating_mul(FREQUENT) >= span };
        }
    }
}

pub(super) struct E1000Input {
    device: Arc<Device>,
    side: Arc<Mutex<InputState>>,
    /// The lock, held from a collect to its release.
    held: Option<ArcMutexGuard<RawMutex, InputState>>,
    /// Memory for looped-back frames.
    looped: Option<BatchStorage>,
    pace: Pace,
    /// The poller sleeps and has not asked a guest with a status block for tail writes. It looks for frames, and asks if it finds none.
    looks: bool,
}

impl E1000Input {
    pub(super) fn new(device: Arc<Device>) -> E1000Input {
        let side = Arc::clone(&device.input);
        E1000Input { device, side, held: None, looped: None, pace: Pace::default(), looks: false }
    }
}

/// Delivers the guest's frames back to the guest.
#[cold]
fn loop_back(device: &Device, side: &mut InputState, tail: u32, storage: &mut Option<BatchStorage>) {
    let InputState { ring, memory, bounce, settings, .. } = side;
    let Ring::On(transmit) = ring else { return };
    if bounce.begin().is_err() {
        return;
    }
    let mut batch = storage.take().unwrap_or_else(|| BatchStorage::new(LOOPED)).into_batch();
    let result = transmit.collect(&memory.readable, bounce, tail, settings, &mut batch);
    device.give_back(&batch);
    *storage = Some(batch.into_storage());
    if let Err(fault) = result {
        ring.fail(device, "transmit", fault);
    }
}

impl Drop for E1000Input {
    fn drop(&mut self) {
        // Only after a panic between a collect and its release. The descriptors are not completed, and no thread
        // continues with a ring in an unknown state.
        if let Some(mut side) = self.held.take() {
            side.ring = Ring::Broken;
        }
    }
}

impl Input for E1000Input {
    #[inline]
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        // The port's own thread has the lock. It wakes the poller when it is done.
        let Some(guard) = self.side.try_lock_arc() else { return Ok(()) };
        let side = self.held.insert(guard);
        // `disarm` may have found the port's own thread at the lock. Otherwise the guest would write the tail register for each frame from
        // now on, and so keep that thread at the lock.
        if side.asks && !self.device.is_armed() {
            side.ask(false);
        }
        side.switch_ring();
        let tail = side.tail();
        if !side.pending(tail) {
            return Ok(());
        }
        if let Err(fault) = side.start() {
            side.ring.fail(&self.device, "transmit", fault);
            return Ok(());
        }
        if side.looped {
            loop_back(&self.device, side, tail, &mut self.looped);
            return Ok(());
        }
        let InputState { ring, memory, bounce, settings, .. } = &mut **side;
        let Ring::On(transmit) = ring else { return Ok(()) };
        if bounce.begin().is_err() {
            return Ok(());
        }
        if let Err(fault) = transmit.collect(&memory.readable, bounce, tail, settings, batch) {
            ring.fail(&self.device, "transmit", fault);
        }
        Ok(())
    }

    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities { rewind: true, discard_like: false, waiting: WaitingPlace::Ring }
    }

    fn rewind(&mut self, frames: usize) {
        let Some(side) = &mut self.held else { return };
        let InputState { ring, memory, .. } = &mut **side;
        if let Ring::On(transmit) = ring {
            transmit.rewind(&memory.readable, frames);
        }
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let mut discarded = Discarded::default();
        let Some(guard) = self.side.try_lock_arc() else { return Ok(discarded) };
        let side = self.held.insert(guard);
        side.switch_ring();
        let tail = side.tail();
        if side.pending(tail) && !side.looped {
            let mut result = side.start();
            let InputState { ring, memory, .. } = &mut **side;
            if let (Ring::On(transmit), Ok(())) = (&mut *ring, result) {
                result = transmit.discard(&memory.readable, tail, most, &mut discarded);
            }
            if let Err(fault) = result {
                ring.fail(&self.device, "transmit", fault);
            }
        }
        self.release();
        Ok(discarded)
    }

    #[inline]
    fn release(&mut self) {
        let Some(mut side) = self.held.take() else { return };
        let InputState { ring, queue, memory, page, sent, segmented, .. } = &mut *side;
        let Ring::On(transmit) = ring else { return };
        let before = transmit.head();
        let completed = match transmit.release(&memory.writable) {
            Ok(completed) => completed,
            Err(fault) => return ring.fail(&self.device, "transmit", fault),
        };
        if completed.descriptors == 0 {
            return;
        }
        self.pace.frames += completed.traffic.frames;
        page.set(TDH + *queue, transmit.head());
        sent.merge(&completed.traffic);
        segmented[0] += completed.segmented;
        segmented[1] += completed.failed;
        let (head, count) = (transmit.head(), transmit.count());
        let news = SentEvent {
            second: *queue > 0,
            reported: completed.reported,
            delay: completed.delay,
            empty: completed.empty,
            descriptors: completed.descriptors,
            bytes: completed.traffic.bytes,
            ring: count,
        };
        let news = side.news(news, before, head, count);
        let mut interrupting = self.device.interrupting();
        interrupting.frames += completed.traffic.frames;
        interrupting.causes.sent(news, side.page.get(TIDV), side.page.get(TADV), ringway_runtime::nanoseconds);
    }

    #[inline]
    fn pending(&mut self) -> bool {
        let Some(mut side) = self.side.try_lock() else { return false };
        if side.any_pending() || self.device.has_event() {
            return true;
        }
        if !self.looks {
            return false;
        }
        (self.looks, self.pace.is_frequent) = (false, false);
        side.ask(true);
        side.any_pending()
    }

    fn has_frames(&mut self) -> bool {
        self.side.try_lock().is_none_or(|side| side.any_pending())
    }

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        if wake_on == WakeOn::Events {
            return Armed::with_kick(self.device.arm_for_events());
        }
        self.device.arm();
        let Some(mut side) = self.side.try_lock() else { return Armed::Pending };
        self.pace.judge(ringway_runtime::nanoseconds());
        self.looks = self.pace.is_frequent && side.uses_block();
        if !self.looks {
            side.ask(true);
        }
        if side.any_pending() || self.device.has_event() {
            return Armed::Pending;
        }
        if self.looks || self.device.mapped && side.is_on() { Armed::Silent } else { Armed::Kick }
    }

    fn disarm(&mut self) {
        self.looks = false;
        self.device.disarm();
        // If the port's own thread has the lock, for a moment only, `collect` does it.
        if let Some(mut side) = self.side.try_lock() {
            side.ask(false);
        }
    }

    fn take_event(&mut self) -> bool {
        self.device.take_event()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_frequent_by_their_mean_over_a_window() {
        let mut pace = Pace::default();
        let mut after = |frames, now| {
            pace.frames += frames;
            pace.judge(now);
            pace.is_frequent
        };
        assert!(!after(1, 1_000_000_000), "one after a second");
        assert!(!after(19, 1_000_400_000), "the window is not over");
        assert!(after(1, 1_000_500_000), "20 in 500 us");
        assert!(after(0, 1_000_900_000));
        assert!(!after(19, 1_001_000_000), "19 in 500 us");
    }
}
