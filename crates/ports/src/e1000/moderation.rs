//! The ways in which interrupts are held back, over the caller's clock: nanoseconds in, the next time to look out.
//!
//! - [`Throttle`]: the newer way of these NICs, a least interval between two interrupts (SDM 13.4; thesis 2.3.2).
//! - [`Delay`]: the older way, packet and absolute timers (SDM 3.2.7 and 3.4.3; thesis 2.3.2).
//! - [`Patience`]: the device's own delay of the cause TXDW.
//!
//! Only a ring that gets full and sockets that count their bytes wait for the news that frames were sent. Whatever the driver
//! asks for, [`Patience`] therefore holds TXDW back until one of these events:
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

/// Units of ITR and EITR in nanoseconds.
const THROTTLE_UNIT: u64 = 256;
/// Units of the delay registers in nanoseconds.
const DELAY_UNIT: u64 = 1024;
/// Bytes that are sent without a word. A Linux socket has room for 86 frames of 1,514 bytes (212,992 bytes, each counted as 2,304),
/// and so never waits for the time to end.
const ENOUGH_BYTES: u64 = 128 << 10;

/// Descriptors of a ring that a driver may not use. Linux's stop their queue when they have fewer than a frame may take: 24, or up to
/// 52 in kernels with the most fragments a frame.
const UNUSED: u32 = 56;

/// A guest that has sent nothing for so long, in nanoseconds, when it is told, may have waited for that.
const SILENCE: u64 = 300_000;
/// One that did so again needs no longer silence than this.
const PAUSE: u64 = 50_000;

/// The interval that ITR or an EITR asks for, in nanoseconds.
pub(super) fn throttle_interval(register: u32) -> u64 {
    u64::from(register & 0xffff) * THROTTLE_UNIT
}

/// The newer way: a least interval between two interrupts, whatever they are for (ITR, EITR).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throttle {
    last: Option<u64>,
}

impl Throttle {
    /// When the next interrupt may be raised, if not now.
    pub(super) fn held_until(&self, now: u64, interval: u64) -> Option<u64> {
        let open = self.last?.saturating_add(interval);
        (now < open && interval > 0).then_some(open)
    }

    /// One was raised, at the latest now.
    pub(super) fn raised(&mut self, now: u64) {
        self.last = Some(now);
    }
}

/// The older way: an interrupt waits until nothing has happened for a while (RDTR, TIDV), but no longer than a fixed time
/// after the first event (RADV, TADV).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delay {
    packet: Option<u64>,
    absolute: Option<u64>,
}

/// What came of an event that may be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delayed {
    /// It is a cause at once.
    No,
    /// It will be one later.
    Yes,
}

impl Delay {
    /// Something happened. `packet` and `absolute` are what the two registers say; nothing is delayed while the first is 0, and
    /// there is no limit while the second is 0. Registers that the guest has mapped may still show the flush bit of a write
    /// that nobody saw: it means nothing then.
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

    /// When what is delayed becomes a cause.
    pub(super) fn due(&self) -> Option<u64> {
        [self.packet, self.absolute].into_iter().flatten().min()
    }

    /// Ends both timers if one has run out; true then. The one that has not is not to raise a second interrupt.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        let expired = self.due().is_some_and(|due| due <= now);
        if expired {
            self.stop();
        }
        expired
    }

    /// Whether something is delayed.
    pub(super) fn is_running(&self) -> bool {
        self.packet.is_some()
    }

    /// What was delayed has become a cause, or never will.
    pub(super) fn stop(&mut self) {
        *self = Delay::default();
    }
}

/// The device's own way for frames that were sent. Nobody waits for that news but a ring that gets full and senders whose bytes are
/// counted until then, so it waits until there is enough of it, or for a time; a shorter one after the last frame where the guest has
/// been found waiting, as drivers that combine tail writes do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// Longest wait, in nanoseconds; 0: none.
    within: u64,
    /// When there was the first of what waits, and the last.
    since: Option<[u64; 2]>,
    /// After so long a silence the guest is told, as it was found waiting; 0 if it was not.
    silence: u64,
    /// It was told, and has not looked yet. Who sends meanwhile does not wait for it.
    unseen: bool,
    /// There was enough, or the time is over.
    over: bool,
    descriptors: u32,
    bytes: u64,
}

/// How many of a ring's descriptors are sent without a word: all but what keeps the guest from waiting for them.
fn enough(ring: u32) -> u32 {
    (ring / 2).max(ring.saturating_sub(UNUSED))
}

impl Patience {
    /// Has it wait so long at most, in nanoseconds.
    pub(super) fn set_within(&mut self, within: u64) {
        self.within = within;
    }

    /// Descriptors of a ring of `ring` went back, with so many bytes sent.
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
            // One that combines tail writes sends as much at once, and waits then.
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

    /// When the wait ends.
    pub(super) fn due(&self) -> Option<u64> {
        let [first, last] = self.since?;
        let end = first.saturating_add(self.within);
        Some(if self.silence > 0 { end.min(last.saturating_add(self.silence)) } else { end })
    }

    /// Ends the wait if it has been long enough; true then.
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

    /// Whether something waits.
    pub(super) fn is_running(&self) -> bool {
        self.since.is_some()
    }

    /// The guest looks at what it was told.
    pub(super) fn seen(&mut self) {
        self.unseen = false;
    }

    /// What waited has become a cause, or never will.
    pub(super) fn stop(&mut self) {
        let Patience { within, silence, unseen, .. } = *self;
        *self = Patience { within, silence, unseen, ..Patience::default() };
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
        /// Events at any distances: each becomes a cause not before its packet timer allows or the limit says so, and never
        /// later than both.
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
