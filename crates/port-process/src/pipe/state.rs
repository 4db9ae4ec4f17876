//! A pipe: what its two ends share.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ringway_abi::Shape;
use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, TOLD, TX_CLIENT, TX_SWITCH};
use ringway_abi::layout::netmap_ring;
use ringway_abi::netmap::{PipeRole, Wish};
use ringway_runtime::Moved;
use ringway_switch::{PanicLocation, PortFault, giving, note_panic};

use super::super::region::part::Part;
use super::super::region::{Region, RegionError, RegionPort};
use super::super::ring::{Own, PortMemory, Ring};
use super::lane::{Allowance, Lane, Transfer};

/// Time by which all steps of an end together may take longer. One of the two programs makes page faults last then, or the processors
/// are busy with other things, which takes no frames from unit tests.
const MOST_LATE: Duration = Duration::from_millis(if cfg!(test) { 3_600_000 } else { 500 });

/// A pipe, with up to two ends that are in use. Its frames are moved by the pollers of its ends, one at a time.
#[derive(Debug)]
pub struct Pipe {
    /// Numbers of the rings and slots of the master. The slave's are the other way round.
    wish: Wish,
    /// By role: 0, or a number that is new each time that the end is opened.
    pub(super) numbers: [AtomicU32; 2],
    /// By role: the number of the process that opened the end last, or 0.
    pub(super) processes: [AtomicU32; 2],
    /// By role: a [`Stage`].
    stages: [AtomicU8; 2],
    /// Where a thread failed that closed an end. Nothing is moved any more.
    pub(super) failure: OnceLock<PanicLocation>,
    pub(super) state: Mutex<State>,
}

/// What an end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    Closed,
    Open,
    /// It is closed, and has not left yet. It leaves when its last frames are moved.
    Closing,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) ends: [Option<End>; 2],
    /// By the sender's role, and by ring.
    pub(super) lanes: [Box<[Lane]>; 2],
    /// The number of the end that was opened last.
    pub(super) last_number: u32,
}

/// An end in use.
#[derive(Debug)]
pub(super) struct End {
    pub(super) part: Arc<Part>,
    /// What its registrations share.
    pub(super) port: Weak<RegionPort>,
    pub(super) tx: Vec<Ring>,
    pub(super) rx: Vec<Ring>,
    /// Most slots that are still moved after it was closed: its client may go on publishing.
    pub(super) rest: u32,
    /// Time by which the steps that move its last frames may still take longer than they should.
    pub(super) patience: Duration,
    /// Slots of last frames that are lost, as their time was over.
    pub(super) lost: u32,
    /// Ring pairs that it has handed over to the other end.
    pub(super) left: usize,
}

/// What an end's mover has looked at.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The `head` of each transmit and receive ring, up to which nothing is left to do.
    pub(super) tx: Vec<u32>,
    pub(super) rx: Vec<u32>,
    /// The number of the mover's own end. The poller may still have the mover when the next program has opened the end.
    pub(super) own: u32,
    /// The number of the other end, or 0 if it takes no part.
    pub(super) peer: u32,
    /// The number of the other end, as of [`Pipe::peer`], when the poller took over its topology. With another end that is opened
    /// later nothing is exchanged before the poller has a topology with that end: it could not call that end's clients.
    pub(super) adopted: u32,
    /// Number of visits: each begins with another ring.
    pub(super) turn: usize,
}

impl End {
    pub(super) fn new(part: Arc<Part>, port: Weak<RegionPort>) -> io::Result<Self> {
        let (layout, mapping) = (part.layout(), part.region().mapping());
        let memory = PortMemory { own: Arc::clone(mapping), backing: Own };
        let tx = (0..layout.shape.tx_rings).map(|ring| Ring::transmit(&memory, layout, ring));
        let tx = tx.collect::<io::Result<Vec<_>>>()?;
        let rx = (0..layout.shape.rx_rings).map(|ring| Ring::receive(&memory, layout, ring));
        let rx = rx.collect::<io::Result<_>>()?;
        let rest = tx.iter().map(|ring| ring.slots).sum();
        Ok(Self { part, port, tx, rx, rest, patience: MOST_LATE, lost: 0, left: 0 })
    }

    fn is_lost(&self) -> bool {
        self.tx.first().is_some_and(Ring::is_lost)
    }

    /// Returns how frames get from this end to another one.
    pub(super) fn transfer(&self, other: &End) -> Transfer {
        if Arc::ptr_eq(self.part.region(), other.part.region()) { Transfer::Swap } else { Transfer::Copy }
    }

    /// Writes the positions of a ring that begins in the middle, before its client has it.
    pub(super) fn begin_at(&self, lane: &Lane, ring: usize, is_sender: bool) {
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

    /// A pipe whose first end, of this role, is opened with this wish.
    #[must_use]
    pub fn new(role: PipeRole, wish: &Wish) -> Arc<Self> {
        let wish = Wish { buffer_size: 0, header: 0, ..*wish };
        let wish = if role == PipeRole::Master { wish } else { swapped(&wish) };
        let shape = wish.shape(0);
        let lanes = [shape.tx_rings, shape.rx_rings].map(|rings| vec![Lane::default(); rings.into()].into());
        Arc::new(Self {
            wish,
            numbers: Default::default(),
            processes: Default::default(),
            stages: [const { AtomicU8::new(Stage::Closed as u8) }; 2],
            failure: OnceLock::new(),
            state: Mutex::new(State { ends: [None, None], lanes, last_number: 0 }),
        })
    }

    /// Returns the numbers of an end's rings and slots.
    #[must_use]
    pub fn wish(&self, role: PipeRole) -> Wish {
        if role == PipeRole::Master { self.wish } else { swapped(&self.wish) }
    }

    pub(super) fn shape(&self, role: PipeRole, region: &Region) -> Result<Shape, RegionError> {
        region.shape(&self.wish(role))
    }

    /// For tests: keeps everybody else from the pipe.
    #[cfg(test)]
    pub(super) fn hold(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    /// For tests: the next thread that moves frames of this end fails.
    #[cfg(test)]
    pub(super) fn break_lanes(&self, role: PipeRole) {
        self.state.lock().lanes[role as usize].iter_mut().for_each(|lane| lane.next = u32::MAX / 2);
    }

    /// For tests: the time for the last frames of an end is over after one step.
    #[cfg(test)]
    pub(super) fn end_patience(&self, role: PipeRole) {
        self.state.lock().ends[role as usize].as_mut().expect("an end").patience = Duration::ZERO;
    }

    /// For tests: says whether an end has left.
    #[cfg(test)]
    pub(super) fn is_closed(&self, role: PipeRole) -> bool {
        self.is(role, Stage::Closed)
    }

    pub(super) fn is(&self, role: PipeRole, stage: Stage) -> bool {
        self.stages[role as usize].load(Ordering::SeqCst) == stage as u8
    }

    pub(super) fn set(&self, role: PipeRole, stage: Stage) {
        self.stages[role as usize].store(stage as u8, Ordering::SeqCst);
    }

    /// Returns true if a thread failed that closed an end.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Says whether the end with this number is open.
    #[inline]
    pub(super) fn has(&self, role: PipeRole, number: u32) -> bool {
        self.numbers[role as usize].load(Ordering::Acquire) == number
    }

    /// Returns the number of the other end, or 0 if that is closed or the end with the number `own`.
    #[inline]
    pub(super) fn peer(&self, role: PipeRole, own: u32) -> u32 {
        if self.has(role, own) { self.numbers[role.other() as usize].load(Ordering::Acquire) } else { 0 }
    }

    /// Returns the number of the other end, or 0 if it takes no part: it is closed, or the poller's topology is older.
    #[inline]
    pub(super) fn taking_part(&self, role: PipeRole, seen: &Seen) -> u32 {
        let peer = self.peer(role, seen.own);
        if peer == seen.adopted { peer } else { 0 }
    }

    /// Returns true if an end cannot be opened at the moment: it was closed and has not left yet.
    #[must_use]
    pub fn is_closing(&self, role: PipeRole) -> bool {
        self.is(role, Stage::Closing) || self.failure.get().is_some()
    }

    /// Moves frames from an end to the other one, and gives slots back that its client has returned. Moves `most` slots and copies
    /// [`Pipe::MOST_BYTES`] at most, or one frame. Does nothing while an end is opened or closed: a poller does not wait. Adds to `moved`
    /// what it has moved, also before an error.
    ///
    /// # Errors
    /// The end's client broke the rules.
    pub(super) fn work(&self, role: PipeRole, seen: &mut Seen, most: u32, moved: &mut Moved) -> Result<(), PortFault> {
        let Some(mut guard) = self.state.try_lock() else {
            moved.more = true;
            return Ok(());
        };
        let State { ends, lanes, .. } = &mut *guard;
        let (Some(end), true) = (&ends[role as usize], self.has(role, seen.own)) else { return Ok(()) };
        if let Some(&place) = self.failure.get() {
            giving(|| fail_at(place));
        }
        let peer = self.taking_part(role, seen);
        if peer != seen.peer {
            // What was taken back has to be moved again.
            seen.peer = peer;
            seen.tx.fill(u32::MAX);
        }
        let other = ends[role.other() as usize].as_ref().map(|other| (other, end.transfer(other)));
        seen.turn = seen.turn.wrapping_add(1);
        let mut left = most;
        for ring in in_turn(end.rx.len(), seen.turn) {
            let lane = &mut lanes[role.other() as usize][ring];
            let from = other.map(|(other, transfer)| (&other.tx[ring], transfer));
            let count = lane.give_back(&end.rx[ring], from, left)?;
            left -= count;
            moved.returned += if from.is_some() { count.into() } else { 0 };
            seen.rx[ring] = lane.returned;
        }
        moved.more = left == 0;
        if let Some((other, transfer)) = other.filter(|_| peer != 0) {
            let mut allowance = Allowance::new(most, Self::MOST_BYTES);
            for ring in in_turn(end.tx.len(), seen.turn) {
                let lane = &mut lanes[role as usize][ring];
                let taken = lane.take(&end.tx[ring], &other.rx[ring], transfer, &mut allowance)?;
                moved.frames += taken.frames;
                moved.bytes += taken.bytes;
                moved.copied += if transfer == Transfer::Copy { taken.bytes } else { 0 };
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
            moved.other_fault = other.is_lost().then_some(PortFault::MemoryLost);
        }
        if end.is_lost() { Err(PortFault::MemoryLost) } else { Ok(()) }
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
