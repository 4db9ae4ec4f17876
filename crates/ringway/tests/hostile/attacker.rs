//! A client that writes arbitrary data into its memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::Slot;
use ringway_abi::doorbell::{INDEX, TX_CLIENT};
use ringway_abi::layout::netmap_ring;
use ringway_abi::slot::SLOT_BYTES;
use ringway_client::{Port, Shape};

use ringway_scenes::{Daemon, PATIENCE, frame, receive};

/// One of the client's two rings.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Tx,
    Rx,
}

/// Addresses of attackers and of their peers.
pub const EVIL: [u8; 6] = [2, 0xee, 0, 0, 0, 1];
pub const PEER: [u8; 6] = [2, 0xee, 0, 0, 0, 2];

pub struct Attacker {
    pub name: String,
    pub port: Port,
}

impl Attacker {
    pub fn attach(daemon: &Daemon, name: &str, shape: Shape) -> Self {
        let socket = daemon.runtime_dir().join("attach.sock");
        let port = Port::attach(socket, &format!("lan0:{name}"), shape).expect("the attacker's port");
        Self { name: name.to_owned(), port }
    }

    /// Returns 32 bits of the client's memory.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        let view = self.port.memory().mapping().view(offset, 4).expect("inside");
        &view.words32().expect("aligned")[0]
    }

    /// Returns a word of the first doorbell.
    pub fn doorbell(&self, word: usize) -> &AtomicU32 {
        self.word(self.port.layout().doorbell(0) + 4 * word)
    }

    pub fn ring_at(&self, side: Side) -> usize {
        match side {
            Side::Tx => self.port.layout().tx_ring(0),
            Side::Rx => self.port.layout().rx_ring(0),
        }
    }

    /// Returns a slot of the first ring.
    pub fn slot(&self, side: Side, at: u32) -> &AtomicU64 {
        let offset = self.ring_at(side) + netmap_ring::SLOTS + at as usize * SLOT_BYTES;
        let view = self.port.memory().mapping().view(offset, 8).expect("inside");
        &view.words64().expect("aligned")[0]
    }

    pub fn set_slot(&self, side: Side, at: u32, slot: Slot) {
        self.slot(side, at).store(slot.to_word(), Ordering::Relaxed);
    }

    /// Writes into a buffer.
    pub fn write_buffer(&self, buffer: u32, bytes: &[u8]) {
        let view = self.port.memory().mapping().view(self.port.layout().buffer(buffer), bytes.len());
        assert!(view.expect("inside").write(bytes));
    }

    /// Gives slots up to `head` to the switch, and wakes it.
    pub fn publish(&self, head: u32) {
        self.doorbell(TX_CLIENT + INDEX).store(head, Ordering::SeqCst);
        self.kick();
    }

    pub fn kick(&self) {
        // A full counter wakes the switch as well as a write does.
        let _ = rustix::io::write(self.port.kick_fd(), &1u64.to_ne_bytes());
    }

    /// Makes the switch learn the address `own`.
    pub fn introduce(&mut self, own: [u8; 6]) {
        ringway_scenes::send(&mut self.port, &frame([0xff; 6], own, 0));
    }

    /// Receives the next frame that `from` sent.
    pub fn receive_from(&mut self, from: [u8; 6]) -> Vec<u8> {
        loop {
            let frame = receive(&mut self.port, PATIENCE).expect("a frame");
            if frame.get(6..12) == Some(&from[..]) {
                return frame;
            }
        }
    }
}
