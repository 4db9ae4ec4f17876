//! Movers: work of a poller that is no port of a switch.
//!
//! A mover takes frames from the memory of its client and puts them into that of one other client itself: no switch judges, copies or
//! drops them. A netmap pipe has two, one for each end (`port-process/src/pipe`). Each has a [`ringway_switch::Port`] for its client's
//! counters, calls and faults, and a [`crate::Signal`], as a port of a switch has. A poller serves movers in turn with its ports
//! (`engine/src/poller/mover.rs`), so that the same holds for both: when they are looked at, armed and parked, what their time costs them,
//! quarantine, relief, and what becomes of a panic.

use ringway_switch::PortFault;

/// Moves the frames of its client. It belongs to one thread of a poller at a time, and never waits.
///
/// The poller calls [`adopt`](Mover::adopt) first. In each round it looks for work with [`pending`](Mover::pending), and has it done by
/// [`move_frames`](Mover::move_frames). Before the poller sleeps it calls [`arm`](Mover::arm), and afterwards
/// [`disarm`](Mover::disarm).
pub trait Mover: Send {
    /// Moves frames with up to `most` slots to the other client, and gives as many slots back to it. Adds to `moved` what it has moved, also
    /// before an error: the poller counts that and calls the other client.
    ///
    /// # Errors
    /// The client broke the rules.
    fn move_frames(&mut self, most: usize, moved: &mut Moved) -> Result<(), PortFault>;

    /// Returns true if there is something to move.
    fn pending(&mut self) -> bool;

    /// Asks the client for a kick, and then looks once more, so that frames that came in between are not missed. Returns true if there is
    /// something to move.
    fn arm(&mut self) -> bool;

    /// Tells the client that it need not kick.
    fn disarm(&mut self);

    /// The poller begins to serve the mover, or knows another peer of it from now on, or none. It visits the mover then.
    fn adopt(&mut self);
}

/// What a mover has moved in one visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of frames that were taken from the client.
    pub frames: u64,
    /// Number of bytes in these frames, as the client says where buffers are exchanged.
    pub bytes: u64,
    /// Number of bytes among them that were copied. Only these explain a long visit.
    pub copied: u64,
    /// Frames among them whose slots at the sender name no buffer, or have a wrong length: dropped at the sender.
    pub bad_here: u64,
    /// Frames among them for which the receiver's slots name no buffer: dropped at the receiver.
    pub bad_there: u64,
    /// The client may have more frames. They are moved at the next visit.
    pub more: bool,
    /// Number of slots that the client has returned, and from which the other client can send again.
    pub returned: u64,
    /// The other client broke the rules.
    pub other_fault: Option<PortFault>,
    /// Calls the other client also if nothing was moved: what was moved before was announced in an older topology, which may have
    /// another client there, or none.
    pub calls_again: bool,
}
