//! A pipe: what its two ends share.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use ringway_abi::Shape;
use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, TOLD, TX_CLIENT, TX_SWITCH};
use ringway_abi::layout::netmap_ring;
use ringway_abi::netmap::{PipeRole, Wish};
use ringway_engine::{contain, warn_limited};
use ringway_switch::{Moved, PanicLocation, PortFault, giving, note_panic};

use super::super::region::part::{Buffers, Part};
use super::super::region::{Region, RegionError, RegionPort};
use super::super::ring::{Own, PortMemory, Ring};
use super::lane::{Allowance, Lane, Transfer, copy_slots};
use super::side::{PipeInput, PipeOutput};
use crate::front_end::{Process, close_in_steps, prepare_steps};
use crate::port_io::PortIo;

/// A pipe, with up to two ends that are in use. Its frames are moved by the pollers of its ends, one at a time.
#[derive(Debug)]
pub struct Pipe {
    /// Numbers of the rings and slots of the master. The slave's are the other way round.
    wish: Wish,
    /// By role: 0, or a number that is new each time that the *other* end begins to take part.
    peers: [AtomicU32; 2],
    last_peer: AtomicU32,
    /// By role: a [`Stage`].
    stages: [AtomicU8; 2],
    /// Where a thread failed that closed an end. Nothing is moved any more.
    failure: OnceLock<PanicLocation>,
    state: Mutex<State>,
}

/// What an end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    Closed,
    /// It has rings, and its registration is not granted yet: it receives nothing.
    Open,
    Active,
    /// It is closed, and has not left yet. It leaves when its last frames are moved.
    Closing,
}

#[derive(Debug)]
struct State {
    ends: [Option<End>; 2],
    /// By the sender's role, and by ring.
    lanes: [Box<[Lane]>; 2],
}

/// An end in use.
#[derive(Debug)]
struct End {
    part: Arc<Part>,
    /// What its registrations share.
    port: Weak<RegionPort>,
    tx: Vec<Ring>,
    rx: Vec<Ring>,
    /// Most slots that are still moved after it was closed: its client may go on publishing.
    rest: u32,
}

/// What an end's input has looked at.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The `head` of each transmit and receive ring, up to which nothing is left to do.
    pub(super) tx: Vec<u32>,
    pub(super) rx: Vec<u32>,
    /// The number of the other end, as of [`Pipe::peer`].
    pub(super) peer: u32,
    /// Number of visits: each begins with another ring.
    turn: usize,
}

impl End {
    fn new(part: Arc<Part>, port: Weak<RegionPort>) -> io::Result<Self> {
        let (layout, mapping) = (part.layout(), part.region().mapping());
        let memory = PortMemory { own: Arc::clone(mapping), backing: Own };
        let tx = (0..layout.shape.tx_rings).map(|ring| Ring::transmit(&memory, layout, ring));
        let tx = tx.collect::<io::Result<Vec<_>>>()?;
        let rx = (0..layout.shape.rx_rings).map(|ring| Ring::receive(&memory, layout, ring));
        let rx = rx.collect::<io::Result<_>>()?;
        let rest = tx.iter().map(|ring| ring.slots).sum();
        Ok(Self { part, port, tx, rx, rest })
    }

    fn is_lost(&self) -> bool {
        self.tx.first().is_some_and(Ring::is_lost)
    }

    /// Returns how frames get from this end to another one.
    fn transfer(&self, other: &End) -> Transfer {
        if Arc::ptr_eq(self.part.region(), other.part.region()) { Transfer::Swap } else { Transfer::Copy }
    }

    /// Moves as many of the last frames as one step may. Returns true if none is left.
    fn move_last(&mut self, lanes: &mut [Lane], other: &End, transfer: Transfer) -> bool {
        let most = self.rest.min(Pipe::MOST_STEP);
        let mut allowance = Allowance::new(most, Pipe::MOST_BYTES);
        let mut is_done = true;
        for (ring, lane) in lanes.iter_mut().enumerate() {
            // A `head` that is none of its slots publishes nothing.
            let taken = lane.take(&self.tx[ring], &other.rx[ring], transfer, &mut allowance);
            is_done &= taken.is_err() || taken.is_ok_and(|taken| taken.head.is_some());
        }
        self.rest -= most - allowance.slots;
        is_done || self.rest == 0
    }

    /// Gives what the end has to the other end, if there is one: between them the slots change hands for the last time.
    fn leave(&self, other: Option<(&End, Transfer)>, lanes: &mut [Box<[Lane]>; 2], role: PipeRole) {
        if let Some((other, Transfer::Swap)) = other {
            for (ring, lane) in lanes[role as usize].iter().enumerate() {
                lane.leave_buffers(&self.tx[ring], &other.rx[ring]);
            }
        }
        for (ring, lane) in lanes[role.other() as usize].iter_mut().enumerate() {
            let from = other.map(|(other, transfer)| (&other.tx[ring], transfer));
            let _ = lane.give_back(&self.rx[ring], from, u32::MAX);
            lane.take_back(&self.rx[ring], from);
        }
        if let Some((other, Transfer::Swap)) = other {
            self.part.set_has_buffers(false);
            other.part.set_has_buffers(true);
        }
    }

    /// Writes the positions of a ring that begins in the middle, before its client has it.
    fn begin_at(&self, lane: &Lane, ring: usize, is_sender: bool) {
        let (layout, number) = (self.part.layout(), ring as u16);
        let write = |at: usize, word: u32| self.part.region().write(at, &word.to_le_bytes());
        let (ring, at, head, tail, client, switch, told) = if is_sender {
            let (ring, tail) = (&self.tx[ring], lane.tail(self.tx[ring].slots));
            let told = ring.distance(ring.slots - 1, tail);
            (ring, layout.tx_ring(number), lane.next, tail, TX_CLIENT, TX_SWITCH, told)
        } else {
            (&self.rx[ring], layout.rx_ring(number), lane.returned, lane.next, RX_CLIENT, RX_SWITCH, lane.next)
        };
        write(at + netmap_ring::HEAD, head);
        write(at + netmap_ring::CUR, head);
        write(at + netmap_ring::TAIL, tail);
        ring.doorbell[client + INDEX].store(head, Ordering::Relaxed);
        ring.doorbell[client + TOLD].store(told, Ordering::Relaxed);
        ring.doorbell[switch + INDEX].store(tail, Ordering::Release);
    }
}

impl Pipe {
    /// Most slots of a ring, as in netmap.
    pub const MOST_SLOTS: u32 = 4096;
    /// Most bytes that one visit copies. The poller serves nobody else meanwhile.
    pub(super) const MOST_BYTES: u32 = 2 << 20;
    /// Most slots that one step of a close moves. Meanwhile no poller has the pipe.
    const MOST_STEP: u32 = 256;

    /// A pipe whose first end, of this role, is opened with this wish.
    #[must_use]
    pub fn new(role: PipeRole, wish: &Wish) -> Arc<Self> {
        let wish = Wish { buffer_size: 0, header: 0, ..*wish };
        let wish = if role == PipeRole::Master { wish } else { swapped(&wish) };
        let shape = wish.shape(0);
        let lanes = [shape.tx_rings, shape.rx_rings].map(|rings| vec![Lane::default(); rings.into()].into());
        Arc::new(Self {
            wish,
            peers: Default::default(),
            last_peer: AtomicU32::new(0),
            stages: [const { AtomicU8::new(Stage::Closed as u8) }; 2],
            failure: OnceLock::new(),
            state: Mutex::new(State { ends: [None, None], lanes }),
        })
    }

    /// Returns the numbers of an end's rings and slots.
    #[must_use]
    pub fn wish(&self, role: PipeRole) -> Wish {
        if role == PipeRole::Master { self.wish } else { swapped(&self.wish) }
    }

    fn shape(&self, role: PipeRole, region: &Region) -> Result<Shape, RegionError> {
        region.shape(&self.wish(role))
    }

    /// Opens an end, which is not open, in a region. It takes part when [`Pipe::activate`] is called. [`Pipe::close`] closes it, also
    /// after an error of the caller's own.
    ///
    /// # Errors
    /// The region has no room, its buffers have another size than those of the other end, the end was closed and has not left yet, a
    /// poller moves frames at this moment, or the kernel has no descriptors or threads left.
    pub fn open(
        self: &Arc<Self>,
        role: PipeRole,
        region: &Arc<Region>,
        colour: u32,
    ) -> Result<(PortIo, Arc<RegionPort>), RegionError> {
        let shape = self.shape(role, region)?;
        // Who has the lock may wait for pages of clients.
        let mut guard = self.state.try_lock().ok_or(RegionError::Closing)?;
        if self.is(role, Stage::Closing) || self.failure.get().is_some() {
            return Err(RegionError::Closing);
        }
        prepare_steps()?;
        let State { ends, lanes } = &mut *guard;
        let other = ends[role.other() as usize].as_ref();
        if let Some(other) = other
            && other.part.layout().shape.buffer_size != shape.buffer_size
        {
            let asked = other.part.layout().shape.buffer_size;
            return Err(RegionError::BufferSize { asked, has: shape.buffer_size });
        }
        let shared = other.filter(|other| Arc::ptr_eq(other.part.region(), region));
        let buffers = if shared.is_some() { Buffers::None } else { Buffers::Own };
        let part = Part::allocate(region, shape, colour, buffers)?;
        let (port, bell, signal) = RegionPort::new(Arc::clone(&part), colour, 0)?;
        let port = Arc::new(port);
        let end = End::new(Arc::clone(&part), Arc::downgrade(&port))?;
        let seen = Seen {
            tx: lanes[role as usize].iter().map(|lane| lane.next).collect(),
            rx: lanes[role.other() as usize].iter().map(|lane| lane.returned).collect(),
            peer: 0,
            turn: 0,
        };
        let input = PipeInput::new(Arc::clone(self), role, part, seen)?;
        if let Some(other) = shared {
            other.tx.iter().zip(&end.rx).for_each(|(theirs, ours)| copy_slots(theirs, ours, 0, ours.slots));
            other.rx.iter().zip(&end.tx).for_each(|(theirs, ours)| copy_slots(theirs, ours, 0, ours.slots));
        }
        for (is_sender, sender) in [(true, role), (false, role.other())] {
            for (ring, lane) in lanes[sender as usize].iter().enumerate() {
                end.begin_at(lane, ring, is_sender);
            }
        }
        ends[role as usize] = Some(end);
        self.stages[role as usize].store(Stage::Open as u8, Ordering::SeqCst);
        if self.is(role.other(), Stage::Active) {
            self.announce(role.other());
        }
        let sides = PortIo { input: Box::new(input), output: Box::new(PipeOutput), bell, signal };
        Ok((sides, port))
    }

    /// An end receives from now on, unless it was closed. Its client has the rings.
    pub fn activate(&self, role: PipeRole) {
        let (open, active) = (Stage::Open as u8, Stage::Active as u8);
        let stage = &self.stages[role as usize];
        if stage.compare_exchange(open, active, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.announce(role);
        }
    }

    /// The other end's poller learns that this end takes part.
    fn announce(&self, role: PipeRole) {
        let number = self.last_peer.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let peer = &self.peers[role.other() as usize];
        peer.store(number, Ordering::SeqCst);
        // Another thread may have closed the end since, and withdrawn the number before it was there.
        if !self.is(role, Stage::Active) {
            let _ = peer.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Closes an end that a program of this process opened, and returns at once. Another thread moves the frames that the end has
    /// published to the other end, in steps, and calls the clients of the other end. The frames that the end has not returned go to
    /// the next one that opens it.
    pub fn close(self: &Arc<Self>, role: PipeRole, process: Process) {
        self.set(role, Stage::Closing);
        self.peers.iter().for_each(|peer| peer.store(0, Ordering::SeqCst));
        let pipe = Arc::clone(self);
        close_in_steps(process, move || {
            contain(|| pipe.step_close(role)).unwrap_or_else(|place| {
                pipe.fail(role, place);
                true
            })
        });
    }

    /// For tests: keeps everybody else from the pipe.
    #[cfg(test)]
    pub(super) fn hold(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    /// For tests: closes an end whose thread does not come.
    #[cfg(test)]
    pub(super) fn mark_closing(&self, role: PipeRole) {
        self.set(role, Stage::Closing);
    }

    /// For tests: the next thread that moves frames of this end fails.
    #[cfg(test)]
    pub(super) fn break_lanes(&self, role: PipeRole) {
        self.state.lock().lanes[role as usize].iter_mut().for_each(|lane| lane.next = u32::MAX / 2);
    }

    /// For tests: says whether an end has left.
    #[cfg(test)]
    pub(super) fn is_closed(&self, role: PipeRole) -> bool {
        self.is(role, Stage::Closed)
    }

    fn is(&self, role: PipeRole, stage: Stage) -> bool {
        self.stages[role as usize].load(Ordering::SeqCst) == stage as u8
    }

    fn set(&self, role: PipeRole, stage: Stage) {
        self.stages[role as usize].store(stage as u8, Ordering::SeqCst);
    }

    /// Makes one step of closing an end, and calls the clients of the other end: they may have got frames, or slots to send from.
    /// Returns true if the end has left.
    pub(super) fn step_close(&self, role: PipeRole) -> bool {
        let (has_left, other) = self.finish_close(role);
        if let Some(other) = other.upgrade() {
            other.call_all();
        }
        has_left
    }

    /// A thread that closed an end failed. The end leaves, and the poller of the other end fails as that thread did.
    fn fail(&self, role: PipeRole, place: PanicLocation) {
        warn_limited(&format!(
            "a defect of Ringway, please report it: it failed at {place} when it closed an end of a pipe"
        ));
        let _ = self.failure.set(place);
        let (left, other) = {
            let mut state = self.state.lock();
            let other = state.ends[role.other() as usize].as_ref().map(|other| Weak::clone(&other.port));
            (state.ends[role as usize].take(), other)
        };
        let _ = contain(|| drop(left));
        self.set(role, Stage::Closed);
        if let Some(other) = other.and_then(|other| other.upgrade()) {
            other.kick();
        }
    }

    /// Moves what one step may of the last frames of an end that was closed. Returns true if the end has left, and the other end.
    fn finish_close(&self, role: PipeRole) -> (bool, Weak<RegionPort>) {
        let mut guard = self.state.lock();
        let State { ends, lanes } = &mut *guard;
        let mut called = Weak::new();
        let mut left = ends[role as usize].take();
        // After a failure nobody knows who has which slots.
        if let Some(end) = &mut left
            && self.failure.get().is_none()
        {
            let other = ends[role.other() as usize].as_ref().map(|other| (other, end.transfer(other)));
            if let Some((other, transfer)) = other {
                called = Weak::clone(&other.port);
                // Nobody receives the last frames of an end whose peer closes, too.
                if !self.is(role.other(), Stage::Closing) && !end.move_last(&mut lanes[role as usize], other, transfer)
                {
                    ends[role as usize] = left;
                    return (false, called);
                }
            }
            end.leave(other, lanes, role);
        }
        self.peers.iter().for_each(|peer| peer.store(0, Ordering::SeqCst));
        drop(guard);
        // Its memory may go with it. Only then another program may open the end.
        drop(left);
        self.set(role, Stage::Closed);
        (true, called)
    }

    /// Returns true if a thread failed that closed an end.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Returns the number of the other end, or 0 if it does not take part.
    #[inline]
    pub(super) fn peer(&self, role: PipeRole) -> u32 {
        self.peers[role as usize].load(Ordering::Acquire)
    }

    /// Moves frames from an end to the other one, and gives slots back that its client has returned. Moves `most` slots and copies
    /// [`Pipe::MOST_BYTES`] at most, or one frame. Does nothing while an end is opened or closed: a poller does not wait.
    ///
    /// # Errors
    /// The end's client broke the rules.
    pub(super) fn work(&self, role: PipeRole, seen: &mut Seen, most: u32) -> Result<Moved, PortFault> {
        if let Some(&place) = self.failure.get() {
            giving(|| fail_at(place));
        }
        let Some(mut guard) = self.state.try_lock() else { return Ok(Moved { more: true, ..Moved::default() }) };
        let peer = self.peer(role);
        if peer != seen.peer {
            // What was taken back has to be moved again.
            seen.peer = peer;
            seen.tx.fill(u32::MAX);
        }
        let State { ends, lanes } = &mut *guard;
        let (ends, is_closing) = (&*ends, self.is(role, Stage::Closing));
        let (Some(end), other, false) = (&ends[role as usize], &ends[role.other() as usize], is_closing) else {
            return Ok(Moved::default());
        };
        let other = other.as_ref().map(|other| (other, end.transfer(other)));
        let (rings, mut moved) = ([end.tx.len(), end.rx.len()], Moved::default());
        seen.turn = seen.turn.wrapping_add(1);
        let mut left = most;
        for ring in in_turn(rings[1], seen.turn) {
            let lane = &mut lanes[role.other() as usize][ring];
            let from = other.map(|(other, transfer)| (&other.tx[ring], transfer));
            let count = lane.give_back(&end.rx[ring], from, left)?;
            left -= count;
            moved.returned += if from.is_some() { count.into() } else { 0 };
            seen.rx[ring] = lane.returned;
        }
        moved.more = left == 0;
        let active = other.filter(|_| self.is(role.other(), Stage::Active));
        let mut allowance = Allowance::new(most, Self::MOST_BYTES);
        for ring in in_turn(rings[0], seen.turn) {
            let (Some((other, transfer)), lane) = (active, &mut lanes[role as usize][ring]) else { break };
            let taken = lane.take(&end.tx[ring], &other.rx[ring], transfer, &mut allowance)?;
            moved.frames += taken.frames;
            moved.bytes += taken.bytes;
            moved.bad_here += taken.bad_here;
            moved.bad_there += taken.bad_there;
            match taken.head {
                Some(head) => seen.tx[ring] = head,
                None => {
                    // No slot has this number: whatever the client publishes meanwhile, something is left to do.
                    seen.tx[ring] = u32::MAX;
                    moved.more = true;
                }
            }
        }
        if let Some((other, _)) = active {
            moved.other_fault = other.is_lost().then_some(PortFault::MemoryLost);
        }
        if end.is_lost() { Err(PortFault::MemoryLost) } else { Ok(moved) }
    }
}

/// Fails as another thread did.
#[cold]
fn fail_at(place: PanicLocation) {
    note_panic(place);
    std::panic::resume_unwind(Box::new("another thread failed"));
}

/// Returns the numbers of `rings` rings, in the order of this turn.
fn in_turn(rings: usize, turn: usize) -> impl Iterator<Item = usize> {
    (0..rings).map(move |ring| (ring + turn) % rings)
}

fn swapped(wish: &Wish) -> Wish {
    Wish { tx_rings: wish.rx_rings, rx_rings: wish.tx_rings, tx_slots: wish.rx_slots, rx_slots: wish.tx_slots, ..*wish }
}
