//! The driver's side of a split ring (virtio 1.3, 2.7).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use super::{Driver, Guest, INDIRECT, NEXT, Piece, WRITE};
use crate::virtqueue::{Addresses, F_EVENT_IDX, F_IN_ORDER, Split};

pub struct SplitDriver {
    addresses: Addresses,
    size: u16,
    features: u64,
    free: VecDeque<u16>,
    /// Descriptors of each chain that the device owns, by the chain's id.
    out: HashMap<u16, Vec<u16>>,
    /// Ids in the order in which the chains became available.
    order: VecDeque<u16>,
    prepared: u64,
    published: u64,
    back: u64,
    ready: VecDeque<(u16, u32)>,
}

/// Returns the two words of a descriptor.
pub fn descriptor(piece: Piece, flags: u16, next: u16) -> [u64; 2] {
    let flags = flags | if piece.write { WRITE } else { 0 };
    [piece.address, u64::from(piece.len) | u64::from(flags) << 32 | u64::from(next) << 48]
}

impl SplitDriver {
    pub fn write_descriptor(&self, guest: &Guest, index: u16, words: [u64; 2]) {
        let at = self.addresses.descriptors + 16 * u64::from(index);
        guest.word64(at).store(words[0].to_le(), Ordering::Relaxed);
        guest.word64(at + 8).store(words[1].to_le(), Ordering::Relaxed);
    }

    fn avail(&self, word: u64) -> u64 {
        self.addresses.driver + 2 * word
    }

    fn used_word(&self, word: u64) -> u64 {
        self.addresses.device + 2 * word
    }

    /// Writes an available entry and the index, valid or not.
    pub fn set_available(&self, guest: &Guest, position: u64, id: u16) {
        let at = self.avail(2 + position % u64::from(self.size));
        guest.word16(at).store(id.to_le(), Ordering::Relaxed);
    }

    pub fn set_index(&self, guest: &Guest, index: u16) {
        guest.word16(self.avail(1)).store(index.to_le(), Ordering::Release);
    }
}

impl Driver for SplitDriver {
    type Device = Split;
    const PACKED: bool = false;

    fn new(guest: &Guest, size: u16, features: u64) -> SplitDriver {
        let count = usize::from(size);
        let addresses = Addresses {
            descriptors: guest.alloc(16 * count, 16),
            driver: guest.alloc(6 + 2 * count, 2),
            device: guest.alloc(6 + 8 * count, 4),
        };
        SplitDriver {
            addresses,
            size,
            features,
            free: (0..size).collect(),
            out: HashMap::new(),
            order: VecDeque::new(),
            prepared: 0,
            published: 0,
            back: 0,
            ready: VecDeque::new(),
        }
    }

    fn addresses(&self) -> Addresses {
        self.addresses
    }

    fn device_at(&self, guest: &Guest, base: u32) -> Option<Split> {
        Split::new(&guest.memory, self.addresses, self.size, base as u16, self.features)
    }

    fn begin_at(&mut self, guest: &Guest, position: u64) {
        (self.prepared, self.published, self.back) = (position, position, position);
        self.set_index(guest, position as u16);
        guest.word16(self.used_word(1)).store((position as u16).to_le(), Ordering::Release);
    }

    fn base(&self, position: u64) -> u32 {
        u32::from(position as u16)
    }

    fn put(&mut self, guest: &Guest, chain: &[Piece], direct: usize) -> Option<u16> {
        let slots = direct + usize::from(direct < chain.len());
        if slots > self.free.len() {
            return None;
        }
        let descriptors: Vec<u16> = self.free.drain(..slots).collect();
        for (place, &index) in descriptors.iter().enumerate() {
            let (flags, next) = descriptors.get(place + 1).map_or((0, 0xffff), |&next| (NEXT, next));
            let words = match chain[..direct].get(place) {
                Some(&piece) => descriptor(piece, flags, next),
                None => {
                    let (address, len) = table(guest, &chain[direct..], |piece, entry, last| {
                        // In reverse order, with unused entries between them.
                        descriptor(piece, if last { 0 } else { NEXT }, entry)
                    });
                    descriptor(Piece::read(address, len), INDIRECT, 0)
                }
            };
            self.write_descriptor(guest, index, words);
        }
        let id = descriptors[0];
        self.set_available(guest, self.prepared, id);
        self.prepared += 1;
        self.out.insert(id, descriptors);
        self.order.push_back(id);
        Some(id)
    }

    fn publish(&mut self, guest: &Guest) {
        self.published = self.prepared;
        self.set_index(guest, self.published as u16);
    }

    fn used(&mut self, guest: &Guest) -> Option<(u16, u32)> {
        if self.ready.is_empty() {
            let index = u16::from_le(guest.word16(self.used_word(1)).load(Ordering::Acquire));
            if index == self.back as u16 {
                return None;
            }
            let entry = guest.read(self.used_word(2 + 4 * (self.back % u64::from(self.size))), 8);
            let id = u32::from_le_bytes(entry[..4].try_into().expect("four"));
            let id = u16::try_from(id).expect("an id of this ring");
            let len = u32::from_le_bytes(entry[4..].try_into().expect("four"));
            // With VIRTIO_F_IN_ORDER, one used entry may stand for all chains up to the one that it names (2.7.9).
            loop {
                let first = self.order.pop_front().expect("a chain that the device had");
                self.back += 1;
                self.ready.push_back((first, if first == id { len } else { 0 }));
                if first == id {
                    break;
                }
                assert!(self.features & F_IN_ORDER != 0, "chain {first} came before {id}");
            }
            assert!(index.wrapping_sub(self.back as u16) <= self.size, "an index beyond what was used");
        }
        let (id, len) = self.ready.pop_front()?;
        let descriptors = self.out.remove(&id).expect("a chain that the device had");
        if self.features & F_IN_ORDER == 0 {
            // Freed in reverse order, so that later chains jump around in the table.
            descriptors.into_iter().for_each(|index| self.free.push_front(index));
        } else {
            self.free.extend(descriptors);
        }
        Some((id, len))
    }

    fn published(&self) -> u64 {
        self.published
    }

    fn taken_back(&self) -> u64 {
        self.back
    }

    fn kick_wanted(&self, guest: &Guest, from: u64) -> bool {
        if self.features & F_EVENT_IDX == 0 {
            return self.published > from
                && u16::from_le(guest.word16(self.used_word(0)).load(Ordering::Relaxed)) & 1 == 0;
        }
        let event = guest.word16(self.used_word(2 + 4 * u64::from(self.size))).load(Ordering::Relaxed);
        (from..self.published).any(|position| position as u16 == u16::from_le(event))
    }

    fn ask_at(&self, guest: &Guest, at: u64) {
        guest.word16(self.avail(2 + u64::from(self.size))).store((at as u16).to_le(), Ordering::SeqCst);
    }

    fn ask_any(&self, guest: &Guest) {
        guest.word16(self.avail(0)).store(0, Ordering::SeqCst);
    }

    fn decline(&self, guest: &Guest) {
        guest.word16(self.avail(0)).store(1u16.to_le(), Ordering::SeqCst);
    }
}

/// An indirect table of a split ring, in which all entries but the first are in reverse order. Returns its address and
/// its length in bytes.
fn table(guest: &Guest, pieces: &[Piece], words: impl Fn(Piece, u16, bool) -> [u64; 2]) -> (u64, usize) {
    let count = pieces.len();
    let bytes = 16 * count;
    let at = guest.alloc(bytes, 16);
    // Entry 0 comes first, then entries `count - 1`, `count - 2`, ...
    let place = |number: usize| if number == 0 { 0 } else { count - number };
    for (number, &piece) in pieces.iter().enumerate() {
        let last = number + 1 == count;
        let next = if last { 0xffff } else { place(number + 1) as u16 };
        let [first, second] = words(piece, next, last);
        let bytes = [first.to_le_bytes(), second.to_le_bytes()].concat();
        guest.write(at + 16 * place(number) as u64, &bytes);
    }
    (at, bytes)
}
