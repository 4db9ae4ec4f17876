//! A guest and its driver, for tests, written from the specification (virtio 1.3, 2.7 and 2.8) alone.
//!
//! The driver has its own mapping of the guest's memory. Positions are counted from the beginning and never wrap here.
//! Only the indices and wrap counters in memory wrap.

mod packed;
mod split;
mod use_device;

pub use packed::PackedDriver;
pub use ringway_port::testing::{Guest, HIGH, LOW, LOW_BYTES};
pub use split::{SplitDriver, descriptor};
pub use use_device::{collect, collect_some, deliver, receive_queue, transmit_queue};

use super::{Addresses, Ring};

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// A descriptor of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub address: u64,
    pub len: u32,
    pub write: bool,
}

impl Piece {
    pub fn read(address: u64, len: usize) -> Piece {
        Piece { address, len: len as u32, write: false }
    }

    pub fn write(address: u64, len: usize) -> Piece {
        Piece { address, len: len as u32, write: true }
    }
}

/// The driver's side of a ring.
pub trait Driver: Sized {
    type Device: Ring;
    const PACKED: bool;

    /// Allocates a ring of `size` descriptors in guest memory.
    fn new(guest: &Guest, size: u16, features: u64) -> Self;

    fn addresses(&self) -> Addresses;

    /// Starts the device's side at `base`.
    fn device_at(&self, guest: &Guest, base: u32) -> Option<Self::Device>;

    /// Starts the device's side at the driver's position.
    fn device(&self, guest: &Guest) -> Self::Device {
        self.device_at(guest, self.base(self.taken_back())).expect("a ring")
    }

    /// Starts at `position`, as if that many chains (split) or descriptors (packed) had circulated.
    fn begin_at(&mut self, guest: &Guest, position: u64);

    /// Returns a position in the format of vhost-user.
    fn base(&self, position: u64) -> u32;

    /// Prepares a chain. Its first `direct` pieces are in ring descriptors, the others in an indirect table. Returns
    /// the chain's id, or `None` when the ring has no room.
    fn put(&mut self, guest: &Guest, chain: &[Piece], direct: usize) -> Option<u16>;

    /// Makes the prepared chains available.
    fn publish(&mut self, guest: &Guest);

    /// Returns the next used chain, and the number of bytes that the device reports as written.
    fn used(&mut self, guest: &Guest) -> Option<(u16, u32)>;

    /// Positions of the published and of the used chains: chains in a split ring, descriptors in a packed one.
    fn published(&self) -> u64;
    fn taken_back(&self) -> u64;

    /// Returns true if the device wants a kick for the chains published after position `from`.
    fn kick_wanted(&self, guest: &Guest, from: u64) -> bool;

    /// Requests a call when the device has used the chain at position `at`.
    fn ask_at(&self, guest: &Guest, at: u64);

    /// Requests a call for every used chain, without an event index.
    fn ask_any(&self, guest: &Guest);

    /// Requests no calls.
    fn decline(&self, guest: &Guest);

    /// Returns all chains used since the last call.
    fn all_used(&mut self, guest: &Guest) -> Vec<(u16, u32)> {
        std::iter::from_fn(|| self.used(guest)).collect()
    }

    /// Makes a chain of direct descriptors available. Returns its id.
    fn send(&mut self, guest: &Guest, chain: &[Piece]) -> u16 {
        let id = self.put(guest, chain, chain.len()).expect("room in the ring");
        self.publish(guest);
        id
    }
}

/// Runs each test with both ring formats.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod split {
            $(#[test] fn $name() { super::$name::<crate::virtqueue::testing::SplitDriver>() })*
        }
        mod packed {
            $(#[test] fn $name() { super::$name::<crate::virtqueue::testing::PackedDriver>() })*
        }
    };
}
pub(crate) use both;
