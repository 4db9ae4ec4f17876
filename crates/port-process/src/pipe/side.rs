//! An end of a pipe as pollers serve it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH, WISH, WakeRequest};
use ringway_abi::netmap::PipeRole;
use ringway_switch::{Armed, Batch, Counters, Discarded, DropReason, Frames, Input, Moved, Output, PortFault, WakeOn};

use super::super::region::part::Part;
use super::super::ring::{self, Doorbell};
use super::state::{Pipe, Seen};

/// Moves the frames of an end's client to the other end. The batch stays empty.
pub(super) struct PipeInput {
    pipe: Arc<Pipe>,
    role: PipeRole,
    seen: Seen,
    moved: Moved,
    /// By ring pair: the doorbell, and the wishes for a kick by the transmit and by the receive ring.
    pairs: Vec<(Doorbell, [WakeRequest; 2])>,
    /// Keeps the end's memory until this side is dropped.
    _part: Arc<Part>,
}

impl PipeInput {
    pub(super) fn new(pipe: Arc<Pipe>, role: PipeRole, part: Arc<Part>, seen: Seen) -> io::Result<Self> {
        let (layout, mapping) = (part.layout(), part.region().mapping());
        let pairs = 0..layout.shape.tx_rings.max(layout.shape.rx_rings);
        let pairs = pairs.map(|pair| Ok((ring::doorbell_of(mapping, layout, pair)?, Default::default())));
        let pairs = pairs.collect::<io::Result<_>>()?;
        Ok(Self { pipe, role, seen, moved: Moved::default(), pairs, _part: part })
    }
}

impl Input for PipeInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.pipe.work(self.role, &mut self.seen, batch.room() as u32, &mut self.moved)
    }

    fn release(&mut self) {}

    /// No limit drops a pipe's frames.
    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }

    fn pending(&mut self) -> bool {
        if !self.pipe.has(self.role, self.seen.own) {
            return false;
        }
        if self.moved.calls_again || self.pipe.has_failed() {
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

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        if wake_on == WakeOn::Events {
            return Armed::Kick;
        }
        for (doorbell, [tx, rx]) in &mut self.pairs {
            tx.make(&doorbell[TX_SWITCH + WISH]);
            rx.make(&doorbell[RX_SWITCH + WISH]);
        }
        Armed::with_kick(self.pending())
    }

    fn disarm(&mut self) {
        for (doorbell, [tx, rx]) in &mut self.pairs {
            tx.withdraw(&doorbell[TX_SWITCH + WISH]);
            rx.withdraw(&doorbell[RX_SWITCH + WISH]);
        }
    }

    fn adopted(&mut self) -> bool {
        self.seen.adopted = self.pipe.peer(self.role, self.seen.own);
        // What the other end's clients were given by an older topology was announced by that.
        self.moved.calls_again = true;
        true
    }

    fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.moved)
    }
}

/// No switch delivers to an end of a pipe.
pub(super) struct PipeOutput;

impl Output for PipeOutput {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        counters.drop_out(DropReason::ReceiverDown, frames.len() as u64);
        Ok(())
    }
}
