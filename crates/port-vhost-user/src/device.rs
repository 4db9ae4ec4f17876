//! The device of one port: its queues, which a session starts and stops while pollers work on them.
//!
//! Each direction is behind a lock that a poller holds for one batch at most, from `collect` to `release`. A queue that the
//! session has taken back is therefore no longer in use by any poller.
//!
//! - A poller that takes frames from the guest never waits for the lock: while the session holds the lock, the poller takes
//!   nothing.
//! - A poller that delivers frames to the guest waits for the lock, because frames must not be lost for that reason. The
//!   session holds the lock for a few instructions. If the session's thread loses its CPU at that moment, delivery to this
//!   port is delayed until the thread runs again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use ringway_keeper::Link;
use ringway_memory::Quota;
use ringway_port::front_end::{ClientFd, State, kept_name};
use ringway_port::guest::{DirtyLog, GuestMemory};
use ringway_runtime::CallAccount;
use rustix::event::{EventfdFlags, eventfd};

use super::config::ConfigSpace;
use super::features;
use super::kick::Kicks;
use super::queue::{Either, ReceiveQueue, Started, TransmitQueue};
use super::settings::{MOST_QUEUES, Settings, Status};
use crate::virtqueue::{
    Addresses, Bounce, F_MRG_RXBUF, F_RING_PACKED, Inflight, InflightNote, Packed, Receive, Record, RingFault, Split,
    Transmit,
};

/// Bytes of a frame beyond the MTU: an Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: usize = 22;
/// Frame limit of a queue without MTU.
const ANY_FRAME: usize = usize::MAX;

/// What a session knows of a queue when it starts the queue. Addresses are those of the front end.
#[derive(Debug)]
pub(crate) struct QueueSetup {
    pub(crate) size: u16,
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// In the format of SET_VRING_BASE.
    pub(crate) base: u32,
    pub(crate) kick: Option<Arc<ClientFd>>,
    pub(crate) call: Option<Arc<ClientFd>>,
    pub(crate) enabled: bool,
    /// Dirty log to mark written pages in.
    pub(crate) log: Option<Arc<DirtyLog>>,
    /// Where to note which chains are in flight. Chains that a predecessor took are marked used, without sending their
    /// frames.
    pub(crate) taken: Option<InflightNote>,
}

/// Why a queue cannot be started. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("there is no queue {0}")]
    NoQueue(u16),
    #[error("queue {queue}: {part} at {address:#x} is not in one memory region")]
    NotInMemory { queue: u16, part: &'static str, address: u64 },
    #[error("queue {0}: {1} descriptors: a split ring has a power of two up to 32768, a packed one 1 to 32768")]
    Size(u16, u16),
    #[error("queue {0}: its parts are not aligned (descriptors 16, available 2, used 4), or its base is outside")]
    Alignment(u16),
    #[error("queue {0}: its kick descriptor cannot be waited for: {1}")]
    Kick(u16, io::Error),
}

/// State of the input: frames from the guest.
#[derive(Default)]
pub(super) struct InputState {
    pub(super) queues: Vec<Option<TransmitQueue>>,
    /// The kick eventfd of each queue. A started queue without one is polled (VHOST_USER_SET_VRING_KICK).
    pub(super) kicks: Vec<Option<Arc<ClientFd>>>,
    /// The queue that the next batch begins with.
    pub(super) next: usize,
    /// `first`: the queue that the last batch began with. `announced`: true if an announcement preceded its frames.
    pub(super) first: usize,
    pub(super) announced: bool,
    /// True if kicks are enabled.
    pub(super) armed: bool,
    pub(super) bounce: Bounce,
    /// The address of a guest that has migrated to this host, until it is announced.
    pub(super) announce: Option<[u8; 6]>,
    pub(super) fault: Option<Fault>,
}

/// State of the output: frames to the guest.
#[derive(Default)]
pub(super) struct OutputState {
    pub(super) queues: Vec<Option<ReceiveQueue>>,
    pub(super) accepts: ringway_switch::Accepts,
    pub(super) fault: Option<Fault>,
    pub(super) longest: usize,
}

/// A guest's violation, and the queue that it happened in.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("queue {queue}: {what}")]
pub(crate) struct Fault {
    pub(super) queue: u16,
    pub(super) what: RingFault,
}

/// The device: see the description of the module. Queue 0 is the receive queue (switch to guest) of the first pair,
/// queue 1 its transmit queue, and so on.
pub(crate) struct Device {
    offered: u64,
    config: Option<ConfigSpace>,
    pairs: u16,
    longest: usize,
    pub(super) input: Arc<Mutex<InputState>>,
    pub(super) output: Mutex<OutputState>,
    pub(super) kicks: Kicks,
    broken: OwnedFd,
    /// True after a call blocked: the connection has to end, and no queue is called until then.
    calls_blocked: AtomicBool,
    /// What is known of the calls to the front end.
    account: Arc<CallAccount>,
    /// Limits and use of the memory that the front end shares.
    quota: Arc<Quota>,
    /// Where to note which chains are in flight, for front ends without INFLIGHT_SHMFD.
    record: Option<Arc<Inflight>>,
    /// The file of `record`, until the port has taken it.
    record_file: Mutex<Option<Record>>,
    connection: Mutex<Connection>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    connected: bool,
    features: u64,
}

impl Device {
    /// `keeper`: has the file of what is in flight outlive this process.
    pub(super) fn new(settings: &Settings, keeper: &Link) -> io::Result<Device> {
        let pairs = settings.queues.clamp(1, MOST_QUEUES);
        let count = usize::from(pairs);
        let name = kept_name("record", &settings.socket);
        let record = settings.record.as_deref().map(|path| Record::open_kept(path, 2 * pairs, keeper, &name));
        let record = record.transpose()?;
        let longest = settings.mtu.map_or(ANY_FRAME, |mtu| usize::from(mtu) + FRAME_OVERHEAD);
        let (queues, kicks) = ((0..count).map(|_| None).collect(), (0..count).map(|_| None).collect());
        let input = InputState { queues, kicks, ..InputState::default() };
        let output = OutputState { queues: (0..count).map(|_| None).collect(), longest, ..OutputState::default() };
        Ok(Device {
            offered: features::offered(settings),
            config: settings.config_space.then(|| ConfigSpace::new(settings)),
            pairs,
            longest,
            input: Arc::new(Mutex::new(input)),
            output: Mutex::new(output),
            kicks: Kicks::new()?,
            broken: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            calls_blocked: AtomicBool::new(false),
            account: Arc::default(),
            quota: Quota::of_port(settings.memory),
            record: record.as_ref().map(|record| Arc::clone(&record.memory)),
            record_file: Mutex::new(record),
            connection: Mutex::default(),
        })
    }

    /// Returns the offered feature bits.
    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    /// Returns the configuration space, if the port offers it.
    pub(crate) fn config(&self) -> Option<&ConfigSpace> {
        self.config.as_ref()
    }

    /// Returns limits and use of the memory that the front end shares.
    pub(crate) fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }

    /// Returns the most queues, two for each pair.
    pub(crate) fn queues(&self) -> u16 {
        2 * self.pairs
    }

    /// Returns where to note which chains are in flight, for front ends without INFLIGHT_SHMFD.
    pub(crate) fn record(&self) -> Option<&Arc<Inflight>> {
        self.record.as_ref()
    }

    /// Returns the file of these notes, to be dropped when the connection has ended. The device itself may stay until no poller has it.
    pub(super) fn take_record_file(&self) -> Option<Record> {
        self.record_file.lock().take()
    }

    /// Starts a queue. Stops it first if it runs.
    pub(crate) fn start(
        &self,
        queue: u16,
        mut setup: QueueSetup,
        memory: &Arc<GuestMemory>,
        features: u64,
    ) -> Result<(), StartError> {
        if queue >= self.queues() {
            return Err(StartError::NoQueue(queue));
        }
        self.stop(queue);
        let addresses = addresses(queue, &setup, memory, features)?;
        let header = features::header_bytes(features);
        let ring = make_ring(queue, &setup, memory, addresses, features)?;
        // The last step that may fail: the eventfd is watched until it is removed.
        let kick = setup.kick.take();
        if let Some(kick) = &kick
            && !queue.is_multiple_of(2)
        {
            self.kicks.add(kick).map_err(|error| StartError::Kick(queue, error))?;
        }
        let pair = usize::from(queue / 2);
        let memory = Arc::clone(memory);
        if queue.is_multiple_of(2) {
            let mergeable = features & F_MRG_RXBUF != 0;
            let queue = match ring {
                Either::Split(ring) => Either::Split(Receive::new(ring, header, mergeable)),
                Either::Packed(ring) => Either::Packed(Receive::new(ring, header, mergeable)),
            };
            let mut started =
                Started { memory, queue, call: setup.call, account: Arc::clone(&self.account), owes_call: false };
            started.set_log(setup.log);
            started.set_inflight(setup.taken);
            started.set_enabled(setup.enabled);
            started.disarm();
            // The guest may have made buffers available before. Call it, so that it knows that the device now processes
            // them.
            let _ = started.call_if_wanted();
            let mut side = self.output.lock();
            side.accepts = features::accepts(features);
            started.set_longest(side.longest);
            side.queues[pair] = Some(started);
        } else {
            let queue = match ring {
                Either::Split(ring) => {
                    Either::Split(Transmit::new(ring, header, self.longest, features::leaves(features)))
                }
                Either::Packed(ring) => {
                    Either::Packed(Transmit::new(ring, header, self.longest, features::leaves(features)))
                }
            };
            let mut started =
                Started { memory, queue, call: setup.call, account: Arc::clone(&self.account), owes_call: false };
            started.set_log(setup.log);
            started.set_inflight(setup.taken);
            started.set_discard(!setup.enabled);
            // This writes to guest memory, which may block. Do so without the lock: a poller may wait for it.
            started.disarm();
            let mut side = self.input.lock();
            if side.armed {
                drop(side);
                started.arm();
                side = self.input.lock();
            }
            // If the poller disabled kicks meanwhile, an extra kick is harmless. If it enabled them meanwhile, the
            // wake-up below makes it enable kicks again.
            side.queues[pair] = Some(started);
            side.kicks[pair] = kick;
            drop(side);
            self.kicks.wake();
        }
        Ok(())
    }

    /// Stops a queue, once no poller uses it. Returns the position at which it can continue, in the format of
    /// GET_VRING_BASE, or `None` if the queue was stopped already.
    pub(crate) fn stop(&self, queue: u16) -> Option<u32> {
        let pair = usize::from(queue / 2);
        if queue.is_multiple_of(2) {
            let stopped = self.output.lock().queues.get_mut(pair)?.take();
            return stopped.map(|queue| queue.base());
        }
        let (stopped, kick) = {
            let mut side = self.input.lock();
            (side.queues.get_mut(pair)?.take(), side.kicks.get_mut(pair)?.take())
        };
        if let Some(kick) = kick {
            self.kicks.remove(&kick);
        }
        stopped.map(TransmitQueue::end)
    }

    /// Enables or disables a started queue.
    pub(crate) fn enable(&self, queue: u16, on: bool) {
        let pair = usize::from(queue / 2);
        if queue.is_multiple_of(2) {
            if let Some(Some(queue)) = self.output.lock().queues.get_mut(pair) {
                queue.set_enabled(on);
            }
        } else {
            if let Some(Some(queue)) = self.input.lock().queues.get_mut(pair) {
                queue.set_discard(!on);
                // The next call reports an eventfd that blocks.
                let _ = if on && std::mem::take(&mut queue.owes_call) { queue.call_if_wanted() } else { Ok(false) };
            }
            self.kicks.wake();
        }
    }

    /// Replaces the call eventfd of a queue.
    pub(crate) fn set_call(&self, queue: u16, call: Option<Arc<ClientFd>>) {
        let pair = usize::from(queue / 2);
        let old = if queue.is_multiple_of(2) {
            match self.output.lock().queues.get_mut(pair) {
                Some(Some(queue)) => std::mem::replace(&mut queue.call, call),
                _ => call,
            }
        } else {
            match self.input.lock().queues.get_mut(pair) {
                Some(Some(queue)) => std::mem::replace(&mut queue.call, call),
                _ => call,
            }
        };
        // Closed here, without the lock.
        drop(old);
    }

    /// Sets the dirty log that all queues mark written pages in; `None`: no log.
    pub(crate) fn set_log(&self, log: Option<&Arc<DirtyLog>>) {
        for queue in self.output.lock().queues.iter_mut().flatten() {
            queue.set_log(log.cloned());
        }
        for queue in self.input.lock().queues.iter_mut().flatten() {
            queue.set_log(log.cloned());
        }
    }

    /// Has the input broadcast a reverse ARP request in the guest's name, so that all switches learn the guest's new
    /// place.
    pub(crate) fn announce(&self, mac: [u8; 6]) {
        self.input.lock().announce = Some(mac);
        self.kicks.wake();
    }

    /// Sets the MTU. Returns false, without effect, if the port's own MTU is smaller.
    pub(crate) fn set_mtu(&self, mtu: u16) -> bool {
        let longest = usize::from(mtu) + FRAME_OVERHEAD;
        let fits = longest <= self.longest;
        if fits {
            let mut side = self.output.lock();
            side.longest = longest;
            side.queues.iter_mut().flatten().for_each(|queue| queue.set_longest(longest));
        }
        fits
    }

    /// Stops all queues and resets all state.
    pub(crate) fn reset(&self) {
        for queue in 0..self.queues() {
            self.stop(queue);
        }
        let mut side = self.input.lock();
        (side.fault, side.announce) = (None, None);
        drop(side);
        let mut side = self.output.lock();
        (side.fault, side.accepts, side.longest) = (None, ringway_switch::Accepts::NOTHING, self.longest);
        drop(side);
        self.calls_blocked.store(false, Ordering::Relaxed);
        self.account.begin_client();
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.broken, &mut count);
    }

    /// Returns true after a call blocked: the device makes no more calls.
    #[inline]
    pub(super) fn calls_blocked(&self) -> bool {
        self.calls_blocked.load(Ordering::Relaxed)
    }

    /// What is known of the calls to the front end.
    pub(super) fn account(&self) -> &CallAccount {
        &self.account
    }

    /// Notes that a call blocked. No queue is called until [`Device::reset`].
    #[cold]
    pub(super) fn block_calls(&self) {
        self.calls_blocked.store(true, Ordering::Relaxed);
    }

    /// An eventfd that becomes readable when a ring has a fault.
    pub(crate) fn broken(&self) -> BorrowedFd<'_> {
        self.broken.as_fd()
    }

    /// Signals to the session that a ring has a fault. The input or output with the fault stays idle until
    /// [`Device::reset`].
    pub(super) fn report_broken(&self) {
        // The eventfd belongs to this process alone. If its counter is full, it is readable already.
        let _ = rustix::io::write(&self.broken, &1u64.to_ne_bytes());
    }

    /// Returns the fault and its queue.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let fault = self.input.lock().fault;
        fault.or(self.output.lock().fault)
    }

    /// Sets the state of the connection, for [`Device::status`].
    pub(crate) fn note_connection(&self, connected: bool, features: u64) {
        *self.connection.lock() = Connection { connected, features };
    }

    /// Returns the state of the front end, or `None` if a poller holds a queue until `until` is past: the guest can
    /// make that last.
    pub(super) fn status(&self, until: Instant) -> Option<Status> {
        let Connection { connected, features } = *self.connection.lock();
        let (mut queues, mut ring_size, mut up) = (0, 0, false);
        for queue in self.input.try_lock_until(until)?.queues.iter().flatten() {
            (queues, ring_size) = (queues + 1, queue.size());
        }
        for queue in self.output.try_lock_until(until)?.queues.iter().flatten() {
            (queues, ring_size, up) = (queues + 1, queue.size(), up || queue.is_enabled());
        }
        let state = State::new(connected, up);
        Some(Status { state, features, queues, ring_size })
    }
}

/// Translates the addresses of a ring to guest physical addresses.
fn addresses(queue: u16, setup: &QueueSetup, memory: &GuestMemory, features: u64) -> Result<Addresses, StartError> {
    let size = usize::from(setup.size);
    let packed = features & F_RING_PACKED != 0;
    let (driver, device) = if packed { (4, 4) } else { (6 + 2 * size, 6 + 8 * size) };
    let guest =
        |part, address, len| memory.guest_address(address, len).ok_or(StartError::NotInMemory { queue, part, address });
    Ok(Addresses {
        descriptors: guest("descriptor table", setup.descriptors, 16 * size)?,
        driver: guest("available ring", setup.available, driver)?,
        device: guest("used ring", setup.used, device)?,
    })
}

fn make_ring(
    queue: u16,
    setup: &QueueSetup,
    memory: &GuestMemory,
    addresses: Addresses,
    features: u64,
) -> Result<Either<Split, Packed>, StartError> {
    let size = setup.size;
    if features & F_RING_PACKED != 0 {
        if !(1..=32_768).contains(&size) {
            return Err(StartError::Size(queue, size));
        }
        let ring = Packed::new(memory, addresses, size, setup.base, features);
        return ring.map(Either::Packed).ok_or(StartError::Alignment(queue));
    }
    if !size.is_power_of_two() || size > 32_768 {
        return Err(StartError::Size(queue, size));
    }
    let ring = Split::new(memory, addresses, size, setup.base as u16, features);
    ring.map(Either::Split).ok_or(StartError::Alignment(queue))
}
