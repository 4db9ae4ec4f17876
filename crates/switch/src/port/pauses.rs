//! When the frames from a port to another are looked at for segments that can be joined (`egress/offload/coalesce`).
//!
//! The pauses of a sender are in its own port, and each is that of one receiver: what a client sends, or what it cannot take, never keeps
//! others from being given joined frames. Of more receivers than there are places, one takes the place of another: it has no pause then,
//! and a few frames of its next delivery are looked at.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::frame::Owner;

/// Most deliveries that are not looked at after one in which nothing could be joined: two to this power.
const LONGEST_PAUSE: u16 = 5;
/// Frames of a delivery that are looked at after one in which nothing could be joined.
const PROBE: usize = 32;
/// Deliveries that are not looked at after a joined frame was too long for its receiver.
const PAUSE_AFTER_LOSS: u16 = 4096;
/// Receivers of a sender with a pause at a time.
const PLACES: usize = 64;

/// After frames of a sender to a receiver could not be joined, a few deliveries are not looked at, and more each time, and then a few
/// frames only: what cannot be joined costs little.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    /// Deliveries that are still to pass.
    left: u16,
    /// Looks in a row that found nothing to join.
    in_vain: u16,
}

impl Pause {
    /// Returns true if a delivery passes unlooked at.
    pub(crate) fn passes(&mut self) -> bool {
        let is_on = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_on
    }

    /// The frames, of this number, among which two must be found that can be joined, or no others are looked at. Each look in vain is
    /// followed by one at the next frames of a delivery.
    pub(crate) fn window(&self, frames: usize) -> Range<usize> {
        if self.in_vain == 0 {
            return 0..frames;
        }
        let start = usize::from(self.in_vain) % frames.div_ceil(PROBE).max(1) * PROBE;
        start..start + PROBE
    }

    /// Notes how many frames were appended to others.
    pub(crate) fn note(&mut self, appended: usize) {
        self.in_vain = if appended > 0 { 0 } else { self.in_vain.checked_add(1).unwrap_or(1) };
        self.left = if appended > 0 { 0 } else { 1 << (self.in_vain - 1).min(LONGEST_PAUSE) };
    }

    /// The same pause after a joined frame was too long for its receiver.
    pub(crate) fn after_loss(self) -> Pause {
        Pause { left: PAUSE_AFTER_LOSS, ..self }
    }

    fn from_word(word: u64) -> Pause {
        Pause { left: word as u16, in_vain: (word >> 16) as u16 }
    }

    fn word(self) -> u64 {
        u64::from(self.left) | u64::from(self.in_vain) << 16
    }
}

/// The pauses of one sender, by receiver. Only the poller that has the sender's input uses them.
///
/// ```text
/// place, 64 bits:   owner (16) | looks in vain (16) | deliveries left (16)   0 = owner 0 without a pause
/// ```
#[derive(Debug)]
pub(crate) struct Pauses([AtomicU64; PLACES]);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses([const { AtomicU64::new(0) }; PLACES])
    }
}

impl Pauses {
    fn place(&self, receiver: Owner) -> &AtomicU64 {
        &self.0[usize::from(receiver.index()) % PLACES]
    }

    /// The pause of this receiver.
    #[inline]
    pub(crate) fn of(&self, receiver: Owner) -> Pause {
        let word = self.place(receiver).load(Ordering::Relaxed);
        let pause = Pause::from_word(word);
        if word >> 32 == u64::from(receiver.bits()) { pause } else { Pause { left: 0, in_vain: pause.in_vain.min(1) } }
    }

    /// Keeps the pause of this receiver.
    #[inline]
    pub(crate) fn set(&self, receiver: Owner, pause: Pause) {
        self.place(receiver).store(u64::from(receiver.bits()) << 32 | pause.word(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_cannot_be_joined_are_seldom_looked_at_and_those_that_can_are_found_again() {
        const FRAMES: usize = 256;
        let (mut pause, mut looked_at) = (Pause::default(), 0);
        let mut seen = [0; FRAMES];
        let mut longest = [0; FRAMES];
        for delivery in 0..2000 {
            if !pause.passes() {
                let window = pause.window(FRAMES);
                looked_at += window.len();
                for position in window {
                    let unseen = delivery - std::mem::replace(&mut seen[position], delivery);
                    longest[position] = unseen.max(longest[position]);
                }
                pause.note(0);
            }
        }
        assert!(looked_at * 200 < 2000 * FRAMES, "{looked_at} of {} frames", 2000 * FRAMES);
        let turn = FRAMES / PROBE * ((1 << LONGEST_PAUSE) + 1);
        assert!(longest.iter().all(|&unseen| unseen <= turn), "{longest:?}");
        pause.note(1);
        assert!(!pause.passes() && pause.window(FRAMES) == (0..FRAMES), "what was joined is looked at as a whole");
        assert!(pause.window(2).contains(&1));
        pause.note(0);
        assert!(pause.window(2).contains(&0) && pause.window(2).contains(&1), "short deliveries have one window");
    }

    #[test]
    fn receivers_that_displace_one_another_have_no_pause_and_few_frames_are_looked_at() {
        let (pauses, receivers) = (Pauses::default(), [Owner::new(3, 0), Owner::new(3 + PLACES as u16, 0)]);
        for delivery in 0..100 {
            for receiver in receivers {
                let mut pause = pauses.of(receiver);
                assert!(!pause.passes());
                assert!(delivery == 0 || pause.window(256).len() == PROBE);
                pause.note(0);
                pauses.set(receiver, pause);
            }
        }
    }
}
