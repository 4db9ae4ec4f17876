//! The communication status block of a paravirtual e1000 (Maffione 2012, section 4.4.2; words as FreeBSD's if_lem driver has
//! them): the positions of driver and device, and which of them wants to be woken, in the guest's memory.
//!
//! As in [`crate::suppression`], the side that wants to be woken says so and looks once more; the other side publishes,
//! fences and then reads the wish: at least one of the two sees the other. loom checks this handshake (`tests/loom_csb.rs`).
//! A driver that does not fence between its tail and its look can lose a wake-up, as with any device.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Size of the block in bytes.
pub const BYTES: usize = 4096;
/// Number of words at its beginning that have a meaning.
pub const WORDS: usize = 24;

/// No threshold.
const NONE: u32 = u32::MAX;
/// Value of the boolean words for "yes". FreeBSD's driver writes 2 for "not now".
const WANTED: u32 = 1;

// Words that the guest writes.
const GUEST_TDT: usize = 0;
const GUEST_NEED_TXKICK: usize = 1;
const GUEST_NEED_RXKICK: usize = 2;
const GUEST_CSB_ON: usize = 3;
const GUEST_RDT: usize = 4;
const GUEST_TXKICK_AT: usize = 5;
// Words that the host writes.
const HOST_TDH: usize = 16;
const HOST_NEED_TXKICK: usize = 17;
const HOST_RDH: usize = 20;
const HOST_NEED_RXKICK: usize = 21;
const HOST_ISR: usize = 22;
const HOST_RXKICK_AT: usize = 23;

/// The device's view of a block. Everything in it may change at any time.
#[derive(Clone, Copy, Debug)]
pub struct Csb<'a>(&'a [AtomicU32]);

impl<'a> Csb<'a> {
    /// A block in these words. Returns `None` when there are fewer than [`WORDS`].
    #[inline]
    #[must_use]
    pub fn new(words: &'a [AtomicU32]) -> Option<Csb<'a>> {
        Some(Csb(words.get(..WORDS)?))
    }

    #[inline]
    fn get(self, word: usize) -> u32 {
        u32::from_le(self.0[word].load(Ordering::Acquire))
    }

    #[inline]
    fn set(self, word: usize, value: u32) {
        self.0[word].store(value.to_le(), Ordering::Release);
    }

    /// Starts to use the block. The device asks for writes of the tail register. It does not ask to be told of receive
    /// buffers, as it sees them when it needs them.
    pub fn begin(self, transmit_head: u32, receive_head: u32) {
        self.set(HOST_TDH, transmit_head);
        self.set(HOST_RDH, receive_head);
        self.set(HOST_NEED_RXKICK, 0);
        self.set(HOST_RXKICK_AT, NONE);
        self.ask();
    }

    /// Returns true if the driver uses the block at present.
    #[inline]
    #[must_use]
    pub fn is_on(self) -> bool {
        self.get(GUEST_CSB_ON) != 0
    }

    /// Returns the word that replaces TDT.
    #[inline]
    #[must_use]
    pub fn transmit_tail(self) -> u32 {
        self.get(GUEST_TDT)
    }

    /// Returns the word that replaces RDT.
    #[inline]
    #[must_use]
    pub fn receive_tail(self) -> u32 {
        self.get(GUEST_RDT)
    }

    /// Asks the driver to write TDT when it sends next. The caller must look at the tail once more, and must not sleep
    /// if it has moved.
    #[inline]
    pub fn ask(self) {
        self.0[HOST_NEED_TXKICK].store(WANTED.to_le(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Asks the driver not to write TDT: the device watches the tail.
    #[inline]
    pub fn decline(self) {
        self.0[HOST_NEED_TXKICK].store(0, Ordering::Relaxed);
    }

    /// Tells the driver that ICR has causes that no message has cleared. The driver clears the word before it reads ICR.
    /// Call after the causes are there, and before the message.
    #[inline]
    pub fn has_causes(self) {
        self.set(HOST_ISR, WANTED);
        fence(Ordering::SeqCst);
    }

    /// Publishes the transmit head. A full fence has to follow before [`Csb::wants_sent`].
    #[inline]
    pub fn sent(self, head: u32) {
        self.set(HOST_TDH, head);
    }

    /// Publishes the receive head. A full fence has to follow before [`Csb::wants_received`].
    #[inline]
    pub fn received(self, head: u32) {
        self.set(HOST_RDH, head);
    }

    /// Returns true if the driver wants an interrupt because the transmit head has moved from `before` to `head` in a
    /// ring of `count`: for any progress, or for passing a threshold.
    #[inline]
    #[must_use]
    pub fn wants_sent(self, before: u32, head: u32, count: u32) -> bool {
        let at = self.get(GUEST_TXKICK_AT);
        self.get(GUEST_NEED_TXKICK) & WANTED != 0
            || at < count && ahead(before, at, count) <= ahead(before, head, count) && at != before
    }

    /// Returns true if the driver wants an interrupt for received frames.
    #[inline]
    #[must_use]
    pub fn wants_received(self) -> bool {
        self.get(GUEST_NEED_RXKICK) & WANTED != 0
    }
}

/// The driver's view of a block.
#[derive(Clone, Copy, Debug)]
pub struct DriverCsb<'a>(&'a [AtomicU32; WORDS]);

impl<'a> DriverCsb<'a> {
    /// A block that begins with these words.
    #[inline]
    #[must_use]
    pub fn new(words: &'a [AtomicU32; WORDS]) -> DriverCsb<'a> {
        DriverCsb(words)
    }

    #[inline]
    fn get(self, word: usize) -> u32 {
        u32::from_le(self.0[word].load(Ordering::Acquire))
    }

    #[inline]
    fn set(self, word: usize, value: u32) {
        self.0[word].store(value.to_le(), Ordering::Release);
    }

    /// Fills a zeroed block before the device learns of it: the device sleeps, and interrupts the driver for received frames.
    pub fn begin(self) {
        self.set(HOST_NEED_TXKICK, WANTED);
        self.set(HOST_RXKICK_AT, NONE);
        self.set(GUEST_TXKICK_AT, NONE);
        self.set(GUEST_NEED_RXKICK, WANTED);
        self.set(GUEST_CSB_ON, WANTED);
    }

    /// Publishes the transmit tail. Returns true if the device wants the register written.
    #[inline]
    #[must_use]
    pub fn publish_transmit(self, tail: u32) -> bool {
        self.set(GUEST_TDT, tail);
        // Reads the device's request after the tail is visible: at least one of the two sides sees the other's write.
        fence(Ordering::SeqCst);
        self.get(HOST_NEED_TXKICK) & WANTED != 0
    }

    /// Publishes the receive tail. `crosses` tells whether this passes a threshold. Returns true if the device wants
    /// the register written.
    #[inline]
    #[must_use]
    pub fn publish_receive(self, tail: u32, crosses: impl FnOnce(u32) -> bool) -> bool {
        self.set(GUEST_RDT, tail);
        fence(Ordering::SeqCst);
        self.get(HOST_NEED_RXKICK) & WANTED != 0 || crosses(self.get(HOST_RXKICK_AT))
    }

    /// Returns the device's transmit head.
    #[inline]
    #[must_use]
    pub fn transmitted(self) -> u32 {
        self.get(HOST_TDH)
    }

    /// Requests an interrupt for received frames, or none. The caller has to check for received frames once more
    /// afterwards.
    pub fn want_received(self, wanted: bool) {
        self.set(GUEST_NEED_RXKICK, wanted.into());
        fence(Ordering::SeqCst);
    }

    /// Requests an interrupt when the device has completed this descriptor, or none. The caller has to check the head
    /// once more afterwards.
    pub fn want_transmitted(self, at: Option<u32>) {
        self.set(GUEST_TXKICK_AT, at.unwrap_or(NONE));
        self.set(GUEST_NEED_TXKICK, at.is_some().into());
        fence(Ordering::SeqCst);
    }
}

/// Returns the number of steps from one index of a ring to another.
fn ahead(from: u32, to: u32, count: u32) -> u32 {
    if to >= from { to - from } else { to.wrapping_add(count).wrapping_sub(from) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_where_existing_drivers_have_them() {
        let words: Vec<AtomicU32> = (0..WORDS).map(|_| AtomicU32::new(0xaaaa)).collect();
        let csb = Csb::new(&words).expect("a block");
        assert!(Csb::new(&words[1..]).is_none());
        csb.begin(3, 4);
        let at = |offset: usize| u32::from_le(words[offset / 4].load(Ordering::Relaxed));
        assert_eq!([64, 68, 80, 84, 92].map(at), [3, 1, 4, 0, !0]);
        assert_eq!([0, 4, 8, 12, 16, 20, 24, 72, 76, 88].map(at), [0xaaaa; 10], "the guest's words are left alone");
        let put = |offset: usize, value: u32| words[offset / 4].store(value.to_le(), Ordering::Relaxed);
        [(0, 7), (16, 9), (12, 0)].into_iter().for_each(|(offset, value)| put(offset, value));
        assert_eq!((csb.transmit_tail(), csb.receive_tail(), csb.is_on()), (7, 9, false));
        put(12, 1);
        csb.has_causes();
        assert_eq!(at(88), 1);
        csb.decline();
        csb.sent(5);
        csb.received(6);
        assert_eq!((csb.is_on(), [64, 68, 80].map(at)), (true, [5, 0, 6]));
    }

    #[test]
    fn interrupts_come_when_asked_for_and_when_a_place_is_passed() {
        let words: Vec<AtomicU32> = (0..WORDS).map(|_| AtomicU32::new(0)).collect();
        let csb = Csb::new(&words).expect("a block");
        let put = |word: usize, value: u32| words[word].store(value.to_le(), Ordering::Relaxed);
        put(5, !0);
        assert!(!csb.wants_sent(0, 5, 8) && !csb.wants_received());
        put(1, 1);
        put(2, 1);
        assert!(csb.wants_sent(0, 5, 8) && csb.wants_received());
        put(1, 2);
        put(2, 2);
        assert!(!csb.wants_sent(0, 5, 8) && !csb.wants_received(), "what FreeBSD's driver has for no");
        for at in 0..8 {
            put(5, at);
            // From 6 across the end of the ring to 2.
            assert_eq!(csb.wants_sent(6, 2, 8), [7, 0, 1, 2].contains(&at), "{at}");
            assert!(!csb.wants_sent(6, 6, 8), "{at}");
        }
        for at in [8, 9, u32::MAX - 1] {
            put(5, at);
            assert!(!csb.wants_sent(6, 2, 8), "no place of the ring: {at}");
        }
    }

    #[test]
    fn a_driver_has_its_words_where_existing_devices_look_for_them() {
        let words = [const { AtomicU32::new(0) }; WORDS];
        let csb = DriverCsb::new(&words);
        csb.begin();
        let at = |offset: usize| u32::from_le(words[offset / 4].load(Ordering::Relaxed));
        let put = |offset: usize, value: u32| words[offset / 4].store(value.to_le(), Ordering::Relaxed);
        assert_eq!([0, 4, 8, 12, 16, 20].map(at), [0, 0, 1, 1, 0, u32::MAX]);
        assert_eq!([64, 68, 80, 84, 88, 92].map(at), [0, 1, 0, 0, 0, u32::MAX]);

        assert!(csb.publish_transmit(5), "the device sleeps at first");
        put(68, 0);
        assert!(!csb.publish_transmit(6));
        assert_eq!(at(0), 6);
        put(64, 4);
        assert_eq!(csb.transmitted(), 4);

        assert!(!csb.publish_receive(9, |at| at != u32::MAX));
        assert_eq!(at(16), 9);
        put(92, 3);
        assert!(csb.publish_receive(9, |at| at == 3));
        put(84, 1);
        assert!(csb.publish_receive(9, |_| false));

        csb.want_received(false);
        csb.want_transmitted(Some(7));
        assert_eq!([4, 8, 20].map(at), [1, 0, 7]);
        csb.want_transmitted(None);
        assert_eq!([4, 20].map(at), [0, u32::MAX]);
    }
}
