//! An end of a pipe as pollers serve it: a mover.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH, WISH, WakeRequest};
use ringway_abi::netmap::PipeRole;
use ringway_runtime::{Moved, Mover, Signal};
use ringway_switch::{Bell, PortFault};

use super::super::region::part::Part;
use super::super::ring::{self, Doorbell};
use super::state::{Pipe, Seen};

/// An end that was opened, as a poller takes it.
pub struct PipeIo {
    /// Moves what the client sends and returns.
    pub mover: Box<dyn Mover>,
    /// Notifies the client of frames and of buffers that it can use again.
    pub bell: Box<dyn Bell>,
    /// The client's notifications.
    pub signal: Signal,
}

/// Moves the frames of an end's client to the other end.
pub(super) struct PipeMover {
    pipe: Arc<Pipe>,
    role: PipeRole,
    seen: Seen,
    /// The other end's clients are called at the next visit.
    calls_again: bool,
    /// By ring pair: the doorbell, and the wishes for a kick by the transmit and by the receive ring.
    pairs: Vec<(Doorbell, [WakeRequest; 2])>,
    /// Keeps the end's memory until this side is dropped.
    _part: Arc<Part>,
}

impl PipeMover {
    pub(super) fn new(pipe: Arc<Pipe>, role: PipeRole, part: Arc<Part>, seen: Seen) -> io::Result<Self> {
        let (layout, mapping) = (part.layout(), part.region().mapping());
        let pairs = 0..layout.shape.tx_rings.max(layout.shape.rx_rings);
        let pairs = pairs.map(|pair| Ok((ring::doorbell_of(mapping, layout, pair)?, Default::default())));
        let pairs = pairs.collect::<io::Result<_>>()?;
        Ok(Self { pipe, role, seen, calls_again: false, pairs, _part: part })
    }
}

impl Mover for PipeMover {
    fn move_frames(&mut self, most: usize, moved: &mut Moved) -> Result<(), PortFault> {
        moved.calls_again |= std::mem::take(&mut self.calls_again);
        self.pipe.work(self.role, &mut self.seen, most as u32, moved)
    }

    fn pending(&mut self) -> bool {
        if !self.pipe.has(self.role, self.seen.own) {
            return false;
        }
        if self.calls_again || self.pipe.has_failed() {
            return true;
        }
        let peer = self.pipe.taking_part(self.role, &self.seen);
        if peer != 0 && peer != self.seen.peer {
            return true;
        }
        let head = |pair: usize, line: usize| self.pairs[pair].0[line + INDEX].load(Ordering::Acquire);
        let differs = |(pair, seen): (usize, &u32), line| head(pair, line) != *seen;
        self.seen.rx.iter().enumerate().any(|one| differs(one, RX_CLIENT))
            || peer != 0 && self.seen.tx.iter().enumerate().any(|one| differs(one, TX_CLIENT))
    }

    fn arm(&mut self) -> bool {
        for (doorbell, [tx, rx]) in &mut self.pairs {
            tx.make(&doorbell[TX_SWITCH + WISH]);
            rx.make(&doorbell[RX_SWITCH + WISH]);
        }
        self.pending()
    }

    fn disarm(&mut self) {
        for (doorbell, [tx, rx]) in &mut self.pairs {
            tx.withdraw(&doorbell[TX_SWITCH + WISH]);
            rx.withdraw(&doorbell[RX_SWITCH + WISH]);
        }
    }

    fn adopt(&mut self) {
        self.seen.adopted = self.pipe.peer(self.role, self.seen.own);
        // What the other end's clients were given by an older topology was announced by that.
        self.calls_again = true;
    }
}
