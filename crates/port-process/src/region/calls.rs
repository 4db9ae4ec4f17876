//! Calls to the clients of a port in a region: each registration has an eventfd of its own, so that two threads that wait
//! for different rings, or for the same, do not take each other's wake-up.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use ringway_abi::doorbell;
use ringway_runtime::{CallAccount, Called};
use ringway_switch::{Bell, CallReason, CallResult};
use rustix::event::{EventfdFlags, eventfd};

use super::super::ring::Doorbell;
use super::error::RegionError;
use ringway_port::front_end::ClientFd;

/// Most registrations of a port: a bit each.
pub(super) const MOST: usize = 64;

/// The call descriptors of a port's registrations.
#[derive(Debug)]
pub(super) struct Calls {
    places: [Call; MOST],
    /// The places before this number may be in use.
    high: AtomicUsize,
    used: Mutex<u64>,
    /// Of all clients of the port.
    account: CallAccount,
    /// A call blocked, or a kick of the switch: nobody signals the port's eventfds any more.
    is_blocked: AtomicBool,
    /// The kernel has no means for a call.
    #[cfg(test)]
    fails: AtomicBool,
}

/// The kernel had no means for a call.
struct NoMeans;

#[derive(Debug, Default)]
struct Call {
    /// The rings of the registration, as [`mask`] encodes them. 0: the place is free.
    rings: AtomicU32,
    /// Of the registration that has this place. Pollers never wait for this lock, see [`Call::signal`].
    eventfd: RwLock<Option<Arc<ClientFd>>>,
}

impl Call {
    /// Signals the registration, if there is one.
    fn signal(&self, account: &CallAccount) -> Option<Called> {
        // The lock is taken for writing only while the place has no rings. A registration that has ended needs no call, and one
        // that has not begun has asked for none.
        let eventfd = Arc::clone(self.eventfd.try_read()?.as_ref()?);
        Some(ringway_runtime::call(eventfd.as_fd(), account))
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            places: [const { Call { rings: AtomicU32::new(0), eventfd: RwLock::new(None) } }; MOST],
            high: AtomicUsize::new(0),
            used: Mutex::new(0),
            account: CallAccount::default(),
            is_blocked: AtomicBool::new(false),
            #[cfg(test)]
            fails: AtomicBool::new(false),
        }
    }
}

/// Returns the bits of these transmit rings (the low half) and receive rings (the high half).
fn mask(tx: &Range<u16>, rx: &Range<u16>) -> u32 {
    let bits = |rings: &Range<u16>| rings.clone().fold(0u32, |bits, ring| bits | 1 << (ring & 15));
    bits(tx) | bits(rx) << 16
}

impl Calls {
    /// Takes a place for a registration of these rings. Returns its number and its eventfd.
    pub(super) fn add(&self, tx: &Range<u16>, rx: &Range<u16>) -> Result<(usize, Arc<ClientFd>), RegionError> {
        let mut used = self.used.lock();
        let place = used.trailing_ones() as usize;
        let Some(call) = self.places.get(place) else { return Err(RegionError::Registrations(MOST)) };
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let made = Arc::new(ClientFd::from(made));
        *call.eventfd.write() = Some(Arc::clone(&made));
        *used |= 1 << place;
        self.high.fetch_max(place + 1, Ordering::SeqCst);
        // Before the client learns of its registration, and so before its first wish.
        call.rings.store(mask(tx, rx), Ordering::SeqCst);
        Ok((place, made))
    }

    /// Ends a registration.
    pub(super) fn remove(&self, place: usize) {
        let mut used = self.used.lock();
        self.places[place].rings.store(0, Ordering::SeqCst);
        *self.places[place].eventfd.write() = None;
        *used &= !(1 << place);
    }

    /// Returns the eventfd of a place, as a poller takes it.
    #[cfg(test)]
    pub(super) fn eventfd(&self, place: usize) -> Option<Arc<ClientFd>> {
        self.places[place].eventfd.read().clone()
    }

    /// Returns the places of the registrations that have one of these rings, as bits.
    fn places_of(&self, rings: u32) -> u64 {
        let has = |(place, call): (usize, &Call)| u64::from(call.rings.load(Ordering::SeqCst) & rings != 0) << place;
        self.places[..self.high.load(Ordering::SeqCst)].iter().enumerate().map(has).sum()
    }

    /// Signals the registrations at these places, `first` or the next one after it first, until one of the calls blocks, or `goes_on` is false
    /// before one. Returns the places that are left then, or an error if the kernel had no means for one of the others.
    fn call(&self, places: u64, first: u32, goes_on: impl Fn() -> bool) -> Result<u64, NoMeans> {
        #[cfg(test)]
        if self.fails.load(Ordering::Relaxed) {
            return Err(NoMeans);
        }
        let (mut left, mut result) = (places.rotate_right(first), Ok(()));
        while left != 0 && !self.is_blocked() && goes_on() {
            let place = (left.trailing_zeros() + first) as usize % MOST;
            left &= left - 1;
            if let Some(called) = self.places[place].signal(&self.account)
                && !self.note(called)
            {
                result = Err(NoMeans);
            }
        }
        result.map(|()| left.rotate_left(first))
    }

    /// Signals the eventfds of all registrations. Returns false if the kernel had no means for one of them: the caller calls again
    /// later.
    pub(super) fn call_all(&self) -> bool {
        self.call(self.places_of(u32::MAX), 0, || true).is_ok()
    }

    /// For tests: the kernel has no means for calls, or has them again.
    #[cfg(test)]
    pub(super) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Signals another eventfd that the port's clients share. Returns false if the kernel had no means for it.
    pub(super) fn signal(&self, eventfd: BorrowedFd<'_>) -> bool {
        self.note(ringway_runtime::call(eventfd, &self.account))
    }

    /// Notes the result of signalling an eventfd that the port's clients share. Returns false if the kernel had no means for it.
    fn note(&self, called: Called) -> bool {
        if called == Called::Blocked {
            self.is_blocked.store(true, Ordering::Relaxed);
        }
        called != Called::Failed
    }

    /// Returns true if a call blocked. The port's bell says so at the next call that a client asks for, and the port ends.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }
}

/// Wakes the registrations of the rings whose clients have asked for it.
pub(super) struct RegionBell {
    pairs: Box<[Pair]>,
    calls: Arc<Calls>,
    /// The places whose clients wait for a call until calls are no longer held, as bits.
    owed: AtomicU64,
    /// The place that is called first, so that one that wants call after call does not keep them from others.
    first: AtomicU32,
}

/// The wake-up requests of a ring pair.
struct Pair {
    doorbell: Doorbell,
    /// The last request that was granted, indexed by [`CallReason`].
    granted: [AtomicU32; 2],
}

impl RegionBell {
    pub(super) fn new(doorbells: Vec<Doorbell>, calls: Arc<Calls>) -> Self {
        let pairs = doorbells.into_iter().map(|doorbell| Pair { doorbell, granted: Default::default() }).collect();
        Self { pairs, calls, owed: AtomicU64::new(0), first: AtomicU32::new(0) }
    }
}

impl RegionBell {
    /// Calls the registrations that have one of these rings, and those that are owed a call, one after the other until calls are held.
    fn call(&self, rings: u32) -> CallResult {
        let places = self.calls.places_of(rings) | self.owed.swap(0, Ordering::AcqRel);
        let first = self.first.load(Ordering::Relaxed);
        match self.calls.call(places, first, || !self.calls.account.is_held()) {
            // Nobody is called after a call that blocked.
            Ok(left) if left != 0 && !self.calls.is_blocked() => {
                self.first.store((left.rotate_right(first).trailing_zeros() + first) % MOST as u32, Ordering::Relaxed);
                self.owed.fetch_or(left, Ordering::AcqRel);
                CallResult::Held { called: left != places }
            }
            Ok(_) => CallResult::Called,
            Err(NoMeans) => {
                // A port whose clients cannot be woken ends.
                self.calls.note(Called::Blocked);
                CallResult::Called
            }
        }
    }
}

impl Bell for RegionBell {
    #[inline]
    fn ring(&self, reason: CallReason) -> CallResult {
        let (line, shift) = match reason {
            CallReason::Room => (doorbell::TX_CLIENT, 0),
            CallReason::Frames => (doorbell::RX_CLIENT, 16),
        };
        let mut wanted = 0;
        for (number, pair) in self.pairs.iter().enumerate() {
            let wish = &pair.doorbell[line + doorbell::WISH];
            wanted |= u32::from(doorbell::granted(wish, &pair.granted[reason as usize])) << (number + shift);
        }
        if wanted == 0 && self.owed.load(Ordering::Relaxed) == 0 {
            return CallResult::Unwanted;
        }
        self.call(wanted)
    }

    fn held_until(&self) -> u64 {
        self.calls.account.held_until()
    }

    fn is_blocked(&self) -> bool {
        self.calls.is_blocked()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use ringway_memory::{Kept, Mapping};
    use ringway_testing::PATIENCE;
    use ringway_testing::file::take_count;

    use super::*;

    #[test]
    fn a_poller_does_not_wait_for_a_registration_that_begins_or_ends() {
        let calls = Arc::new(Calls::default());
        let (place, eventfd) = calls.add(&(0..1), &(0..1)).expect("a place");
        let (say, hear) = mpsc::channel();
        let held = calls.places[place].eventfd.write();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                calls.call_all();
                let _ = say.send(());
            });
            let has_returned = hear.recv_timeout(PATIENCE);
            drop(held);
            assert_eq!(has_returned, Ok(()));
        });
        assert_eq!(take_count(&eventfd), 0);
        calls.call_all();
        assert_eq!(take_count(&eventfd), 1);
    }

    #[test]
    fn a_thread_without_means_to_call_blocks_no_port() {
        let calls = Calls::default();
        calls.note(Called::Failed);
        assert!(!calls.is_blocked());
        calls.note(Called::Blocked);
        assert!(calls.is_blocked());
    }

    #[test]
    fn a_call_that_blocks_is_the_ports_last_and_its_bell_says_so() {
        let calls = Arc::new(Calls::default());
        let (first, _eventfd) = calls.add(&(0..1), &(0..1)).expect("a place");
        let (_, eventfd) = calls.add(&(0..1), &(0..1)).expect("a place");
        // A full pipe takes no signal, and the kernel waits for its reader.
        let (_read, write) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&write, true).expect("non-blocking");
        while rustix::io::write(&write, &[0; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&write, false).expect("blocking");
        *calls.places[first].eventfd.write() = Some(Arc::new(write.into()));
        calls.call_all();
        assert_eq!(take_count(&eventfd), 0, "no call after the one that blocked");
        calls.call_all();
        assert_eq!(take_count(&eventfd), 0);
        let (bell, wishes) = bell(&calls);
        wishes();
        assert_eq!(bell.ring(CallReason::Frames), CallResult::Called);
        assert!(bell.is_blocked(), "the poller ends the port");
        assert_eq!(take_count(&eventfd), 0);
    }

    /// The bell of one ring pair, and what asks for a call when there are frames.
    fn bell(calls: &Arc<Calls>) -> (RegionBell, impl Fn()) {
        let memory = Arc::new(Mapping::private(4096).expect("memory"));
        let doorbell = || {
            let doorbell = Kept::new(&memory, |memory| memory.view(0, doorbell::PAIR_BYTES)?.words32()?.first_chunk());
            doorbell.expect("a doorbell")
        };
        let wish = doorbell();
        let wishes = move || _ = wish[doorbell::RX_CLIENT + doorbell::WISH].fetch_add(1, Ordering::SeqCst);
        (RegionBell::new(vec![doorbell()], Arc::clone(calls)), wishes)
    }

    #[test]
    fn registrations_that_are_not_called_while_calls_are_held_are_called_afterwards() {
        let calls = Arc::new(Calls::default());
        let eventfds: Vec<_> = (0..5).map(|_| calls.add(&(0..1), &(0..1)).expect("a place").1).collect();
        let (bell, wishes) = bell(&calls);
        let counts = || -> Vec<u64> { eventfds.iter().map(take_count).collect() };
        let hold = || calls.account.charge(ringway_runtime::nanoseconds() + 3_600_000_000_000, Duration::from_secs(1));
        let release = || {
            calls.account.begin_client();
            ringway_testing::until("calls are not held", || !calls.account.is_held());
        };
        hold();
        wishes();
        assert_eq!(bell.ring(CallReason::Frames), CallResult::Held { called: false });
        assert_eq!(bell.ring(CallReason::Room), CallResult::Held { called: false }, "still");
        assert_eq!(counts(), [0; 5]);
        release();
        // Nobody has asked anew, and the other reason's ring serves as well.
        assert_eq!(bell.ring(CallReason::Room), CallResult::Called);
        assert_eq!(counts(), [1; 5]);
        assert_eq!(bell.ring(CallReason::Frames), CallResult::Unwanted);
    }

    #[test]
    fn places_are_called_in_turn() {
        let calls = Calls::default();
        let eventfds: Vec<_> = (0..3).map(|_| calls.add(&(0..1), &(0..1)).expect("a place").1).collect();
        for first in 0..3 {
            let made = std::cell::Cell::new(0);
            let left = calls.call(0b111, first, || made.replace(made.get() + 1) < 2);
            let last = (first + 2) % 3;
            assert!(matches!(left, Ok(left) if left == 1 << last), "{first}");
            let counts: Vec<u64> = eventfds.iter().map(take_count).collect();
            assert_eq!(counts, [0, 1, 2].map(|place| u64::from(place != last)));
        }
    }
}
