//! Calls to the clients of a port in a region: each registration has an eventfd of its own, so that two threads that wait
//! for different rings, or for the same, do not take each other's wake-up.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use ringway_abi::doorbell;
use ringway_engine::{CallAccount, Called};
use ringway_switch::{Bell, CallReason, CallResult};
use rustix::event::{EventfdFlags, eventfd};

use super::super::ring::Doorbell;
use super::error::RegionError;
use crate::front_end::ClientFd;

/// Most registrations of a port.
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

#[derive(Debug, Default)]
struct Call {
    /// The rings of the registration, as [`mask`] encodes them. 0: the place is free.
    rings: AtomicU32,
    /// Of the registration that has this place. Pollers never wait for this lock, see [`Call::signal`].
    eventfd: RwLock<Option<Arc<ClientFd>>>,
}

impl Call {
    /// Signals the registration, if it has one of these rings.
    fn signal(&self, rings: u32, account: &CallAccount) -> Option<Called> {
        if self.rings.load(Ordering::SeqCst) & rings == 0 {
            return None;
        }
        // The lock is taken for writing only while the place has no rings. A registration that has ended needs no call, and one
        // that has not begun has asked for none.
        let eventfd = Arc::clone(self.eventfd.try_read()?.as_ref()?);
        Some(ringway_engine::call(eventfd.as_fd(), account))
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

    /// Signals the registrations that have one of these rings, until one of the calls blocks. Returns false if the kernel had no means
    /// for one of them.
    fn call(&self, rings: u32) -> bool {
        #[cfg(test)]
        if self.fails.load(Ordering::Relaxed) {
            return false;
        }
        let mut has_called = true;
        for call in &self.places[..self.high.load(Ordering::SeqCst)] {
            if !self.is_blocked()
                && let Some(called) = call.signal(rings, &self.account)
            {
                has_called &= self.note(called);
            }
        }
        has_called
    }

    /// Signals the eventfds of all registrations. Returns false if the kernel had no means for one of them: the caller calls again
    /// later.
    pub(super) fn call_all(&self) -> bool {
        self.call(u32::MAX)
    }

    /// For tests: the kernel has no means for calls, or has them again.
    #[cfg(test)]
    pub(super) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Signals another eventfd that the port's clients share. Returns false if the kernel had no means for it.
    pub(super) fn signal(&self, eventfd: BorrowedFd<'_>) -> bool {
        self.note(ringway_engine::call(eventfd, &self.account))
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
        Self { pairs, calls }
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
        if wanted == 0 {
            return CallResult::Unwanted;
        }
        // A port whose clients cannot be woken ends.
        if !self.calls.call(wanted) {
            self.calls.note(Called::Blocked);
        }
        CallResult::Called
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
        let memory = Arc::new(Mapping::private(4096).expect("memory"));
        let doorbell = Kept::new(&memory, |memory| memory.view(0, doorbell::PAIR_BYTES)?.words32()?.first_chunk())
            .expect("a doorbell");
        doorbell[doorbell::RX_CLIENT + doorbell::WISH].store(1, Ordering::SeqCst);
        let bell = RegionBell::new(vec![doorbell], Arc::clone(&calls));
        assert_eq!(bell.ring(CallReason::Frames), CallResult::Called);
        assert!(bell.is_blocked(), "the poller ends the port");
        assert_eq!(take_count(&eventfd), 0);
    }
}
