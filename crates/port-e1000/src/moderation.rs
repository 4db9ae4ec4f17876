//! The ways in which interrupts are held back, over the caller's clock: nanoseconds in, the next time to look out.
//!
//! - [`Throttle`]: the newer way of these NICs, a least interval between two interrupts (SDM 13.4; thesis 2.3.2).
//! - [`Delay`]: the older way, packet and absolute timers (SDM 3.2.7 and 3.4.3; thesis 2.3.2).
//! - [`CompletionDelay`]: the device's own delay of the cause TXDW.
//!
//! Only a ring that gets full and sockets that count their bytes wait for the news that frames were sent. Whatever the driver
//! asks for, [`CompletionDelay`] therefore holds TXDW back until one of these events:
//!
//! - All but 56 descriptors of the ring wait. (Linux's drivers stop their queue with 24 to 52 left.)
//! - 128 KiB wait.
//! - `completion_delay` is over.
//! - An interrupt is raised for another reason, and takes TXDW along.
//!
//! The guest's own delays hold besides. A guest that had sent nothing for 300 us when `completion_delay` was over is told
//! after 300 us of silence from then on, and after 50 us once it waited again: drivers that combine tail writes send on only
//! after the interrupt. A guest that sends before it has read what it was told, or fills its ring little by little, did not
//! wait for the interrupt. Received frames are never held back by this delay. `docs/decisions/e1000-sent-frames.md` has the
//! measurements.

/// Unit of ITR and EITR in nanoseconds.
const THROTTLE_UNIT: u64 = 256;
/// Unit of the delay registers in nanoseconds.
const DELAY_UNIT: u64 = 1024;
/// Sent bytes that end the delay of a completion interrupt. A Linux socket may have 86 frames of 1,514 bytes in flight
/// (212,992 bytes, each frame counted as 2,304). This limit is lower, so such a socket never waits until the delay's
/// time is over.
const ENOUGH_BYTES: u64 = 128 << 10;

/// Descriptors of a ring that a driver may leave unused. Linux drivers stop their queue when fewer descriptors are left
/// than a frame may take: 24, or up to 52 in kernels with the highest limit of fragments in a frame.
const UNUSED: u32 = 56;

/// If the guest has sent nothing for this time, in nanoseconds, when the completion interrupt is raised, it may have
/// waited for that interrupt.
const SILENCE: u64 = 300_000;
/// If the guest waited again, a silence of this time, in nanoseconds, is enough.
const PAUSE: u64 = 50_000;

/// Converts a value of ITR or EITR to the interval in nanoseconds.
pub(super) fn throttle_interval(register: u32) -> u64 {
    u64::from(register & 0xffff) * THROTTLE_UNIT
}

/// Interrupt throttling: a least interval between two interrupts of any cause (ITR, EITR).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throttle {
    last: Option<u64>,
}

impl Throttle {
    /// Returns when the next interrupt may be raised, or `None` if now.
    pub(super) fn held_until(&self, now: u64, interval: u64) -> Option<u64> {
        let open = self.last?.saturating_add(interval);
        (now < open && interval > 0).then_some(open)
    }

    /// Notes that an interrupt was raised, at `now` at the latest.
    pub(super) fn raised(&mut self, now: u64) {
        self.last = Some(now);
    }
}

/// Interrupt delay timers: an interrupt waits until there was no event for some time (RDTR, TIDV), but no longer than a
/// fixed time after the first event (RADV, TADV).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delay {
    packet: Option<u64>,
    absolute: Option<u64>,
}

/// The result of an event that may be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delayed {
    /// The event is a cause at once.
    No,
    /// The event will become a cause later.
    Yes,
}

impl Delay {
    /// Notes an event. `packet` and `absolute` are the values of the two registers. While `packet` is 0, nothing is
    /// delayed; while `absolute` is 0, the delay has no limit. Registers that the guest has mapped may still show the
    /// flush bit of a write that the device did not see: the bit is ignored.
    pub(super) fn event(&mut self, now: u64, packet: u32, absolute: u32) -> Delayed {
        let after = |register: u32| now.saturating_add(u64::from(register & 0xffff) * DELAY_UNIT);
        if packet & 0xffff == 0 {
            self.stop();
            return Delayed::No;
        }
        self.packet = Some(after(packet));
        if absolute & 0xffff != 0 {
            self.absolute.get_or_insert(after(absolute));
        }
        Delayed::Yes
    }

    /// Returns when the delayed events become a cause.
    pub(super) fn due(&self) -> Option<u64> {
        [self.packet, self.absolute].into_iter().flatten().min()
    }

    /// Stops both timers if one has expired, and returns true then. The other timer must not raise a second interrupt.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        let expired = self.due().is_some_and(|due| due <= now);
        if expired {
            self.stop();
        }
        expired
    }

    /// Returns true while events are delayed.
    pub(super) fn is_running(&self) -> bool {
        self.packet.is_some()
    }

    /// Stops both timers: the delayed events have become a cause, or never will.
    pub(super) fn stop(&mut self) {
        *self = Delay::default();
    }
}

/// Coalescing of completions: the device's own delay of the interrupt for sent frames. A guest waits for this interrupt
/// only when its ring is nearly full, or when a sender has reached its limit of bytes in flight. So the interrupt waits
/// until enough descriptors or bytes are complete, or for a limited time. If the guest was found waiting, as drivers
/// that combine tail writes do, the delay also ends a short time after the last frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CompletionDelay {
    /// Longest delay in nanoseconds; 0: no delay.
    within: u64,
    /// Times of the first and the last event that is delayed.
    since: Option<[u64; 2]>,
    /// If the guest was found waiting, the time in nanoseconds after the last frame at which the delay ends; otherwise
    /// 0.
    silence: u64,
    /// True after an interrupt, until the guest reads its cause. A guest that sends meanwhile does not wait for the
    /// interrupt.
    unseen: bool,
    /// True if enough is complete or the time is over: further events are not delayed.
    over: bool,
    descriptors: u32,
    bytes: u64,
}

/// Returns how many completed descriptors of a ring end the delay: as many as possible without making the guest wait
/// for descriptors.
fn enough(ring: u32) -> u32 {
    (ring / 2).max(ring.saturating_sub(UNUSED))
}

impl CompletionDelay {
    /// Sets the longest delay in nanoseconds.
    pub(super) fn set_within(&mut self, within: u64) {
        self.within = within;
    }

    /// Notes that `descriptors` descriptors, with `bytes` sent bytes, of a ring of `ring` descriptors are complete.
    pub(super) fn event(&mut self, now: impl FnOnce() -> u64, descriptors: u32, bytes: u64, ring: u32) -> Delayed {
        if self.within == 0 {
            return Delayed::No;
        }
        if std::mem::take(&mut self.unseen) && self.silence > 0 {
            self.silence = SILENCE;
        }
        self.descriptors = self.descriptors.saturating_add(descriptors);
        self.bytes = self.bytes.saturating_add(bytes);
        let enough = self.descriptors >= enough(ring) || self.bytes >= ENOUGH_BYTES;
        if self.over || enough {
            // A guest that combines tail writes sends this much in a shorter time, and then waits. This guest does not.
            if enough && self.since.is_some_and(|[first, _]| now().saturating_sub(first) >= PAUSE) {
                self.silence = 0;
            }
            (self.since, self.over) = (None, true);
            return Delayed::No;
        }
        let now = now();
        self.since.get_or_insert([now, now])[1] = now;
        Delayed::Yes
    }

    /// Returns when the delay ends.
    pub(super) fn due(&self) -> Option<u64> {
        let [first, last] = self.since?;
        let end = first.saturating_add(self.within);
        Some(if self.silence > 0 { end.min(last.saturating_add(self.silence)) } else { end })
    }

    /// Ends the delay if its time has come, and returns true then.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        let Some([_, last]) = self.since.filter(|_| self.due().is_some_and(|due| due <= now)) else { return false };
        (self.since, self.over, self.unseen) = (None, true, true);
        let silence = now.saturating_sub(last);
        self.silence = match self.silence {
            0 if silence >= SILENCE => SILENCE,
            known if known > 0 && silence >= known => PAUSE,
            _ => 0,
        };
        true
    }

    /// Returns true while completions are delayed.
    pub(super) fn is_running(&self) -> bool {
        self.since.is_some()
    }

    /// Notes that the guest has read the cause.
    pub(super) fn seen(&mut self) {
        self.unseen = false;
    }

    /// Ends the delay: the completions have become a cause, or never will.
    pub(super) fn stop(&mut self) {
        let CompletionDelay { within, silence, unseen, .. } = *self;
        *self = CompletionDelay { within, silence, unseen, ..CompletionDelay::default() };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_packet_timer_begins_anew_with_each_packet_and_the_absolute_one_does_not() {
        let mut delay = Delay::default();
        assert_eq!(delay.event(1_000, 10, 25), Delayed::Yes);
        assert_eq!(delay.due(), Some(1_000 + 10 * 1024));
        delay.event(9_000, 10, 25);
        assert_eq!(delay.due(), Some(9_000 + 10 * 1024));
        delay.event(19_000, 10, 25);
        assert_eq!(delay.due(), Some(1_000 + 25 * 1024), "no longer than the absolute time");
        assert!(!delay.expire(1_000 + 25 * 1024 - 1) && delay.expire(1_000 + 25 * 1024));
        assert_eq!(delay.due(), None, "one interrupt, not two");
    }

    #[test]
    fn without_packet_timer_there_is_no_delay() {
        let mut delay = Delay::default();
        assert_eq!(delay.event(5, 0, 100), Delayed::No);
        delay.event(5, 10, 0);
        assert_eq!(delay.event(6, 0, 0), Delayed::No);
        assert!(!delay.is_running(), "what was delayed went along");
    }

    proptest! {
        /// Events at any intervals: none becomes a cause before its packet timer or the limit allows it, and none later
        /// than both.
        #[test]
        fn every_event_becomes_a_cause_in_time(
            packet in 1u32..200, absolute in 0u32..400, gaps in prop::collection::vec(0u64..300_000, 1..50)
        ) {
            let (mut delay, mut now, mut first, mut last) = (Delay::default(), 1, None, 0);
            let quiet = u64::from(packet) * DELAY_UNIT;
            let limit = u64::from(absolute) * DELAY_UNIT;
            for gap in gaps {
                now += gap;
                if let Some(due) = delay.due().filter(|&due| due <= now) {
                    let first: u64 = first.take().expect("an event before the cause");
                    let expected = if absolute == 0 { last + quiet } else { (last + quiet).min(first + limit) };
                    prop_assert_eq!(due, expected);
                    prop_assert!(delay.expire(now));
                }
                prop_assert_eq!(delay.event(now, packet, absolute), Delayed::Yes);
                first.get_or_insert(now);
                last = now;
            }
            prop_assert!(delay.due().is_some(), "the last event is lost");
        }
    }
}
