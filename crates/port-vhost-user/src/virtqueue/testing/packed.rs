//! The driver's side of a packed ring (virtio 1.3, 2.8).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use super::{Driver, Guest, INDIRECT, NEXT, Piece, WRITE};
use crate::virtqueue::{Addresses, F_EVENT_IDX, F_IN_ORDER, Packed};

const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

pub struct PackedDriver {
    addresses: Addresses,
    size: u16,
    features: u64,
    ids: VecDeque<u16>,
    /// Number of descriptors of each chain that the device owns, by the chain's id.
    out: HashMap<u16, u64>,
    order: VecDeque<u16>,
    prepared: u64,
    published: u64,
    back: u64,
    /// The first descriptor that was prepared and not published. Its second word is written last.
    held: Option<(u64, u64)>,
    ready: VecDeque<(u16, u32)>,
}

impl PackedDriver {
    fn slot(&self, position: u64) -> u64 {
        self.addresses.descriptors + 16 * (position % u64::from(self.size))
    }

    /// Returns true if the wrap counter is 1 at a position.
    fn wrap(&self, position: u64) -> bool {
        (position / u64::from(self.size)).is_multiple_of(2)
    }

    fn event(&self, position: u64) -> u16 {
        (position % u64::from(self.size)) as u16 | u16::from(self.wrap(position)) << 15
    }

    /// Writes a descriptor at a position of the ring, valid or not. The descriptor is available unless `flags` says
    /// otherwise.
    pub fn write_descriptor(&self, guest: &Guest, position: u64, piece: Piece, flags: u16, id: u16) {
        let [address, rest] = self.words(position, piece, flags, id);
        guest.word64(self.slot(position)).store(address.to_le(), Ordering::Relaxed);
        guest.word64(self.slot(position) + 8).store(rest.to_le(), Ordering::Release);
    }

    fn words(&self, position: u64, piece: Piece, flags: u16, id: u16) -> [u64; 2] {
        let turn = if self.wrap(position) { AVAIL } else { USED };
        let flags = flags | turn | if piece.write { WRITE } else { 0 };
        [piece.address, u64::from(piece.len) | u64::from(id) << 32 | u64::from(flags) << 48]
    }
}

impl Driver for PackedDriver {
    type Device = Packed;
    const PACKED: bool = true;

    fn new(guest: &Guest, size: u16, features: u64) -> PackedDriver {
        let addresses = Addresses {
            descriptors: guest.alloc(16 * usize::from(size), 16),
            driver: guest.alloc(4, 4),
            device: guest.alloc(4, 4),
        };
        // Ids need not be the indices of the descriptors.
        let ids: VecDeque<u16> =
            if features & F_IN_ORDER == 0 { (0..size).rev().collect() } else { (0..size).collect() };
        PackedDriver {
            addresses,
            size,
            features,
            ids,
            out: HashMap::new(),
            order: VecDeque::new(),
            prepared: 0,
            published: 0,
            back: 0,
            held: None,
            ready: VecDeque::new(),
        }
    }

    fn addresses(&self) -> Addresses {
        self.addresses
    }

    fn device_at(&self, guest: &Guest, base: u32) -> Option<Packed> {
        Packed::new(&guest.memory, self.addresses, self.size, base, self.features)
    }

    fn begin_at(&mut self, guest: &Guest, position: u64) {
        (self.prepared, self.published, self.back) = (position, position, position);
        for before in position.saturating_sub(self.size.into())..position {
            let flags = if self.wrap(before) { AVAIL | USED } else { 0 };
            guest.word64(self.slot(before) + 8).store((u64::from(flags) << 48).to_le(), Ordering::Relaxed);
        }
    }

    fn base(&self, position: u64) -> u32 {
        u32::from(self.event(position)) * 0x1_0001
    }

    fn put(&mut self, guest: &Guest, chain: &[Piece], direct: usize) -> Option<u16> {
        let slots = direct as u64 + u64::from(direct < chain.len());
        if self.prepared - self.back + slots > self.size.into() {
            return None;
        }
        let id = self.ids.pop_front().expect("an id, as there is a descriptor");
        for step in 0..slots {
            let position = self.prepared + step;
            let last = step + 1 == slots;
            // Only the id of the last descriptor has a meaning (2.8.6).
            let (id, next) = if last { (id, 0) } else { (0xdead, NEXT) };
            let [address, rest] = match chain[..direct].get(step as usize) {
                Some(&piece) => self.words(position, piece, next, id),
                None => {
                    let entries = &chain[direct..];
                    let at = guest.alloc(16 * entries.len(), 16);
                    for (place, piece) in (0..).zip(entries) {
                        // In an indirect table, ids and flags other than WRITE have no meaning (2.8.7).
                        let flags = NEXT | INDIRECT | if piece.write { WRITE } else { 0 };
                        let rest = u64::from(piece.len) | 0xbeef << 32 | u64::from(flags) << 48;
                        let words = [piece.address.to_le_bytes(), rest.to_le_bytes()].concat();
                        guest.write(at + 16 * place, &words);
                    }
                    self.words(position, Piece::read(at, 16 * entries.len()), INDIRECT, id)
                }
            };
            guest.word64(self.slot(position)).store(address.to_le(), Ordering::Relaxed);
            if step == 0 && self.held.is_none() {
                self.held = Some((self.slot(position), rest));
            } else {
                guest.word64(self.slot(position) + 8).store(rest.to_le(), Ordering::Relaxed);
            }
        }
        self.prepared += slots;
        self.out.insert(id, slots);
        self.order.push_back(id);
        Some(id)
    }

    fn publish(&mut self, guest: &Guest) {
        if let Some((slot, rest)) = self.held.take() {
            guest.word64(slot + 8).store(rest.to_le(), Ordering::Release);
        }
        self.published = self.prepared;
    }

    fn used(&mut self, guest: &Guest) -> Option<(u16, u32)> {
        if self.ready.is_empty() {
            let rest = u64::from_le(guest.word64(self.slot(self.back) + 8).load(Ordering::Acquire));
            let (flags, wrap) = ((rest >> 48) as u16, self.wrap(self.back));
            if self.back == self.published || (flags & AVAIL != 0) != wrap || (flags & USED != 0) != wrap {
                return None;
            }
            let id = (rest >> 32) as u16;
            let len = if flags & WRITE != 0 { rest as u32 } else { 0 };
            // With VIRTIO_F_IN_ORDER, one used descriptor may stand for all chains up to the one that it names (2.8.9).
            loop {
                let first = self.order.pop_front().expect("a chain that the device had");
                self.back += self.out[&first];
                self.ready.push_back((first, if first == id { len } else { 0 }));
                if first == id {
                    break;
                }
                assert!(self.features & F_IN_ORDER != 0, "chain {first} came before {id}");
            }
        }
        let (id, len) = self.ready.pop_front()?;
        self.out.remove(&id);
        self.ids.push_back(id);
        Some((id, len))
    }

    fn published(&self) -> u64 {
        self.published
    }

    fn taken_back(&self) -> u64 {
        self.back
    }

    fn kick_wanted(&self, guest: &Guest, from: u64) -> bool {
        let word = |at| u16::from_le(guest.word16(self.addresses.device + at).load(Ordering::Acquire));
        match word(2) & 3 {
            1 => false,
            2 if self.features & F_EVENT_IDX != 0 => {
                let event = word(0);
                (from..self.published).any(|position| self.event(position) == event)
            }
            _ => self.published > from,
        }
    }

    fn ask_at(&self, guest: &Guest, at: u64) {
        guest.word16(self.addresses.driver).store(self.event(at).to_le(), Ordering::Relaxed);
        guest.word16(self.addresses.driver + 2).store(2u16.to_le(), Ordering::SeqCst);
    }

    fn ask_any(&self, guest: &Guest) {
        guest.word16(self.addresses.driver + 2).store(0, Ordering::SeqCst);
    }

    fn decline(&self, guest: &Guest) {
        guest.word16(self.addresses.driver + 2).store(1u16.to_le(), Ordering::SeqCst);
    }
}
