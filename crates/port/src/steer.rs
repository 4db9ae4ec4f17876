//! Receive queue selection for process and vhost-user ports: all frames of one flow go to one queue.
//!
//! The queue is a hash of the frame's addresses, protocol and ports. Fragments have no ports and use the other fields. Frames
//! that are not IP use their Ethernet addresses. Clients can compute the hash, so the hash spreads load and protects nothing.
//!
//! Protocol and ports are multiplied by a constant of their own before they are mixed in; `docs/decisions/queue-steering.md`
//! has the reason. The hash takes 45 instructions a frame (IPv6: 56), and none on a port with one queue.

use ringway_memory::HEAD_BYTES;
use ringway_switch::{Frame, Frames, MAX_BATCH};

/// The queue that each frame of a delivery is steered to.
pub struct Picks(Box<[u8]>);

impl Picks {
    /// No frame was steered yet.
    #[allow(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> Picks {
        Picks(vec![0; MAX_BATCH].into())
    }

    /// Picks one of `queues` queues (at most 64) for each frame. Returns a bit mask of the queues that were picked.
    pub fn pick(&mut self, frames: Frames<'_, '_>, queues: usize) -> u64 {
        let mut used = 0;
        for (pick, frame) in self.0.iter_mut().zip(frames) {
            *pick = queue_of(&frame, queues) as u8;
            used |= 1 << *pick;
        }
        used
    }

    /// Picks one of `queues` queues (at most 64) for each frame. Returns the queue of each frame, in order.
    pub fn picked(&mut self, frames: Frames<'_, '_>, queues: usize) -> &[u8] {
        let count = frames.len();
        self.pick(frames, queues);
        &self.0[..count]
    }

    /// Returns the frames that the last [`Picks::pick`] steered to queue `number`. `frames` are the frames of that
    /// call.
    pub fn of<'a, 'b, 'm: 'b>(
        &'a self,
        frames: Frames<'b, 'm>,
        number: usize,
    ) -> impl Iterator<Item = Frame<'b, 'm>> + Clone + use<'a, 'b, 'm> {
        frames.zip(&self.0).filter(move |(_, pick)| usize::from(**pick) == number).map(|(frame, _)| frame)
    }
}

/// Returns the queue, out of `queues`, that a frame is steered to.
#[inline]
pub fn queue_of(frame: &Frame<'_, '_>, queues: usize) -> usize {
    flow_hash(&frame.head().0) as usize % queues
}

/// A hash that is equal for all frames of one flow. It covers the IP addresses, the protocol and the ports, or the
/// Ethernet addresses where the frame is not IP. Use it only to spread load: clients can provoke collisions.
#[inline]
fn flow_hash(head: &[u8; HEAD_BYTES]) -> u32 {
    let tag = if head[12..14] == [0x81, 0x00] { 4 } else { 0 };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let ip = 14 + tag;
    let mixed = match &head[12 + tag..14 + tag] {
        [0x08, 0x00] => {
            let ports = u64::from_le_bytes(head[ip + 20..ip + 28].try_into().unwrap_or_default()) & 0xffff_ffff;
            // Only unfragmented TCP and UDP packets without IP options have ports at this place.
            let plain =
                head[ip] == 0x45 && head[ip + 6] & 0x3f == 0 && head[ip + 7] == 0 && matches!(head[ip + 9], 6 | 17);
            mix(word(ip + 12), end(head[ip + 9], if plain { ports } else { 0 }))
        }
        [0x86, 0xdd] => {
            let ports = word(ip + 40) & 0xffff_ffff;
            let ports = if matches!(head[ip + 6], 6 | 17) { ports } else { 0 };
            mix(mix(word(ip + 8), word(ip + 16)), mix(word(ip + 24), word(ip + 32)) ^ end(head[ip + 6], ports))
        }
        _ => mix(word(0), word(4)),
    };
    (mixed >> 32) as u32
}

/// Mixes protocol and ports into one word. Connections that a host opens one after the other have ports that differ
/// little. The multiplication spreads the difference over the word; without it the flow hashes of such connections
/// mostly collide for some pairs of addresses.
#[inline]
fn end(protocol: u8, ports: u64) -> u64 {
    (ports | u64::from(protocol) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xc2b2_ae3d_27d4_eb4f);
    (product >> 64) as u64 ^ product as u64
}
