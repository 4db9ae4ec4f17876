//! Which of several receive queues a frame goes to: one flow, one queue.

use ringway_memory::HEAD_BYTES;
use ringway_switch::{Frame, Frames, MAX_BATCH};

/// Which of several queues each frame of a delivery goes to.
pub(crate) struct Picks(Box<[u8]>);

impl Picks {
    pub(crate) fn new() -> Picks {
        Picks(vec![0; MAX_BATCH].into())
    }

    /// Picks one of `queues` (at most 64) for each frame. Returns which were picked, a bit for each queue.
    pub(crate) fn pick(&mut self, frames: Frames<'_, '_>, queues: usize) -> u64 {
        let mut used = 0;
        for (pick, frame) in self.0.iter_mut().zip(frames) {
            *pick = (flow_hash(&frame.head().0) as usize % queues) as u8;
            used |= 1 << *pick;
        }
        used
    }

    /// Of the frames that were just picked for, those that go to queue `number`.
    pub(crate) fn of<'a, 'b, 'm: 'b>(
        &'a self,
        frames: Frames<'b, 'm>,
        number: usize,
    ) -> impl Iterator<Item = Frame<'b, 'm>> + Clone + use<'a, 'b, 'm> {
        frames.zip(&self.0).filter(move |(_, pick)| usize::from(**pick) == number).map(|(frame, _)| frame)
    }
}

/// The room of several queues together: of those that frames go to.
pub(crate) fn room_of(used: u64, rooms: impl Iterator<Item = Option<(usize, usize)>>) -> Option<(usize, usize)> {
    let picked = rooms.enumerate().filter(|(number, _)| used >> number & 1 != 0).map(|(_, room)| room);
    picked.reduce(|one, other| one.zip(other).map(|(one, other)| (one.0 + other.0, one.1 + other.1))).flatten()
}

/// A number that is the same for all frames of a flow: of the addresses, protocol and ports where there are any, else of the
/// Ethernet addresses. Only for spreading: clients can choose it.
#[inline]
fn flow_hash(head: &[u8; HEAD_BYTES]) -> u32 {
    let tag = if head[12..14] == [0x81, 0x00] { 4 } else { 0 };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let ip = 14 + tag;
    let mixed = match &head[12 + tag..14 + tag] {
        [0x08, 0x00] => {
            let ports = u64::from_le_bytes(head[ip + 20..ip + 28].try_into().unwrap_or_default()) & 0xffff_ffff;
            // Ports are there only in unfragmented TCP and UDP without IP options.
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

/// Protocol and ports. Those of connections that are opened one after the other differ little, and would mostly meet for some
/// addresses if they were not spread over the word by a number of their own.
#[inline]
fn end(protocol: u8, ports: u64) -> u64 {
    (ports | u64::from(protocol) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xc2b2_ae3d_27d4_eb4f);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_that_of_the_queues_that_frames_go_to() {
        let rooms = || [Some((0, 256)), Some((200, 256)), Some((7, 64)), None].into_iter();
        assert_eq!(room_of(0b1, rooms()), Some((0, 256)));
        assert_eq!(room_of(0b110, rooms()), Some((207, 320)));
        assert_eq!(room_of(0b1010, rooms()), None, "one that cannot tell");
        assert_eq!(room_of(0, rooms()), None);
    }
}
