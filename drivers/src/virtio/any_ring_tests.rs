//! Both kinds of ring with a device in memory: one that works in any order, and one that breaks the rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use ringway_memory::{Buffer, Mapping};

use super::any_ring::AnyRing;
use super::buffer::HEADER;
use super::receive::Receive;
use super::ring::{Direction, Misuse, Shape};
use super::transmit::Transmit;
use crate::pci::{Dma, HUGE_PAGE};

const SIZE: u16 = 8;
/// Frames of a test: positions of 16 bits wrap.
const MANY: u64 = 70_000;

/// A device. Positions count over all laps.
struct Device {
    memory: Arc<Mapping>,
    parts: [u64; 3],
    packed: bool,
    taken: u32,
    given: u32,
}

/// What a device takes from a ring.
#[derive(Clone, Copy, Debug)]
struct Taken {
    id: u16,
    address: u64,
    len: u32,
}

impl Device {
    fn at(&self, part: usize, bytes: usize) -> ringway_memory::View<'_> {
        let start = self.memory.whole().as_ptr().addr();
        self.memory.view(self.parts[part] as usize - start, bytes).unwrap()
    }

    fn descriptors(&self) -> &[AtomicU64] {
        self.at(0, 16 * usize::from(SIZE)).words64().unwrap()
    }

    fn avail(&self) -> &[AtomicU16] {
        self.at(1, 6 + 2 * usize::from(SIZE)).words16().unwrap()
    }

    fn used_index(&self) -> &AtomicU16 {
        &self.at(2, 4).words16().unwrap()[1]
    }

    fn slot(position: u32) -> usize {
        position as usize & (usize::from(SIZE) - 1)
    }

    fn wrap(position: u32) -> bool {
        position & u32::from(SIZE) == 0
    }

    fn take(&mut self) -> Option<Taken> {
        let (slot, words) = (Self::slot(self.taken), self.descriptors());
        let taken = if self.packed {
            let (address, word) =
                (words[2 * slot].load(Ordering::Relaxed), words[2 * slot + 1].load(Ordering::Relaxed));
            let (avail, used) = (word >> 55 & 1 != 0, word >> 63 & 1 != 0);
            if avail == used || avail != Self::wrap(self.taken) {
                return None;
            }
            Taken { id: (word >> 32) as u16, address, len: word as u32 }
        } else {
            if self.avail()[1].load(Ordering::Relaxed) == self.taken as u16 {
                return None;
            }
            let id = self.avail()[2 + slot].load(Ordering::Relaxed);
            let [address, word] = [0, 1].map(|at| words[2 * usize::from(id) + at].load(Ordering::Relaxed));
            Taken { id, address, len: word as u32 }
        };
        self.taken += 1;
        Some(taken)
    }

    /// Reports one entry for `count` buffers.
    fn give(&mut self, id: u32, len: u32, count: u32) {
        let slot = Self::slot(self.given);
        if self.packed {
            let flags = if Self::wrap(self.given) { 0x8080_u64 } else { 0 };
            let word = u64::from(len) | u64::from(id) << 32 | flags << 48;
            self.descriptors()[2 * slot + 1].store(word, Ordering::Release);
        } else {
            let entries = self.at(2, 4 + 8 * usize::from(SIZE)).sub(4, 8 * usize::from(SIZE)).unwrap();
            let entries: &[AtomicU32] = entries.words32().unwrap();
            entries[2 * slot].store(id, Ordering::Relaxed);
            entries[2 * slot + 1].store(len, Ordering::Relaxed);
            self.used_index().store((self.given + count) as u16, Ordering::Release);
        }
        self.given += count;
    }

    /// Asks for a kick at position `at`.
    fn want_kick_at(&self, at: u32) {
        if self.packed {
            let wrap = if Self::wrap(at) { 1 << 15 } else { 0 };
            let word = 2 << 16 | wrap | Self::slot(at) as u32;
            self.at(2, 4).words32().unwrap()[0].store(word, Ordering::Relaxed);
        } else {
            let event = self.at(2, 6 + 8 * usize::from(SIZE)).sub(4 + 8 * usize::from(SIZE), 2).unwrap();
            event.words16().unwrap()[0].store(at as u16, Ordering::Relaxed);
        }
    }

    fn write(&self, taken: Taken, number: u64) {
        let at = taken.address as usize - self.memory.whole().as_ptr().addr();
        let mut frame = [0; HEADER + 8];
        frame[HEADER..].copy_from_slice(&number.to_le_bytes());
        assert!(self.memory.view(at, frame.len()).unwrap().write(&frame) && taken.len as usize >= frame.len());
    }
}

fn ring(dma: &mut Dma, packed: bool, direction: Direction) -> (AnyRing, Device) {
    let ring = AnyRing::new(dma, &Shape { size: SIZE.into(), direction, event_idx: true }, packed).unwrap();
    let device = Device { memory: dma.mapping().clone(), parts: ring.parts(), packed, taken: 0, given: 0 };
    (ring, device)
}

fn sending(packed: bool, in_order: bool) -> (Transmit, Device) {
    let (ring, device) = ring(&mut Dma::local(HUGE_PAGE, None).unwrap(), packed, Direction::Tx);
    (Transmit::new(ring, in_order), device)
}

fn receiving(packed: bool, in_order: bool) -> (Receive, Device, Dma, Buffer) {
    let mut dma = Dma::local(HUGE_PAGE, None).unwrap();
    let (ring, device) = ring(&mut dma, packed, Direction::Rx);
    let buffers = dma.buffers(SIZE.into(), 128).unwrap();
    let spare = dma.buffers(1, 128).unwrap().pop().unwrap();
    let mut queue = Receive::new(ring, in_order, buffers, &dma);
    queue.ring().publish();
    (queue, device, dma, spare)
}

/// Numbers that look like chance.
fn chance(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % below
}

#[test]
fn frames_count_as_sent_in_their_order_whatever_order_the_device_has() {
    for (packed, in_order) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut queue, mut device) = sending(packed, in_order);
        let (mut seed, mut queued, mut under_way, mut done) = (7, 0, Vec::new(), Vec::new());
        while queue.sent() < MANY {
            for _ in 0..chance(&mut seed, 5) {
                let is_queued = queue.queue(0x1000 + 64 * queued, 60 + (queued % 7) as u32).unwrap();
                assert_eq!(is_queued, queued - queue.sent() < SIZE.into());
                queued += u64::from(is_queued);
            }
            queue.ring().publish();
            while let Some(taken) = device.take() {
                let number = done.len() as u64;
                assert_eq!((taken.address, taken.len), (0x1000 + 64 * number, 60 + (number % 7) as u32));
                done.push(false);
                under_way.push((number, taken));
            }
            if in_order && !under_way.is_empty() {
                let count = 1 + chance(&mut seed, under_way.len());
                device.give(under_way[count - 1].1.id.into(), 0, count as u32);
                under_way.drain(..count).for_each(|(number, _)| done[number as usize] = true);
            } else if !under_way.is_empty() {
                let (number, taken) = under_way.remove(chance(&mut seed, under_way.len()));
                device.give(taken.id.into(), 0, 1);
                done[number as usize] = true;
            }
            queue.reclaim().unwrap();
            let true_count = done.iter().skip(queue.sent() as usize).take_while(|done| **done).count();
            assert_eq!(true_count, 0, "as many as the device has used in turn");
            assert!(done.iter().take(queue.sent() as usize).rev().take(2 * usize::from(SIZE)).all(|done| *done));
        }
    }
}

#[test]
fn received_frames_come_in_the_order_of_the_device_and_can_be_kept() {
    for (packed, in_order) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut queue, mut device, dma, mut spare) = receiving(packed, in_order);
        let (mut seed, mut under_way, mut written, mut seen) = (7, Vec::new(), 0_u64, 0);
        while seen < MANY {
            while let Some(taken) = device.take() {
                under_way.push(taken);
            }
            for _ in 0..chance(&mut seed, 6).min(under_way.len()) {
                let at = if in_order { 0 } else { chance(&mut seed, under_way.len()) };
                let taken = under_way.remove(at);
                device.write(taken, written);
                device.give(taken.id.into(), HEADER as u32 + 8, 1);
                written += 1;
            }
            while let Some((buffer, len)) = queue.first().unwrap() {
                assert_eq!((len, &buffer[HEADER..len]), (HEADER + 8, &seen.to_le_bytes()[..]));
                if chance(&mut seed, 3) == 0 {
                    std::mem::swap(buffer, &mut spare);
                    queue.give_back(&dma);
                    assert_eq!(&spare[HEADER..len], &seen.to_le_bytes());
                    spare.fill(0xff);
                } else {
                    queue.give_back(&dma);
                }
                seen += 1;
            }
            assert_eq!(seen, written);
            queue.ring().publish();
        }
    }
}

#[test]
fn one_entry_for_several_received_buffers_means_that_all_but_the_last_are_full() {
    for packed in [false, true] {
        let (mut queue, mut device, dma, _spare) = receiving(packed, true);
        for _ in 0..20 {
            let taken: Vec<Taken> = std::iter::from_fn(|| device.take()).collect();
            device.give(taken[2].id.into(), 20, 3);
            for wanted in [128, 128, 20] {
                assert_eq!(queue.first().unwrap().map(|(_, len)| len), Some(wanted));
                queue.give_back(&dma);
            }
            assert!(queue.first().unwrap().is_none());
            device.give(taken[7].id.into(), 20, 5);
            for _ in 0..5 {
                assert!(queue.first().unwrap().is_some());
                queue.give_back(&dma);
            }
            queue.ring().publish();
        }
    }
}

#[test]
fn the_device_is_woken_only_where_it_asked_for_it() {
    for packed in [false, true] {
        let (mut queue, mut device) = sending(packed, false);
        let mut send = |device: &mut Device, count: u64| {
            (0..count).for_each(|_| assert!(queue.queue(0x1000, 60).unwrap()));
            let wants = queue.ring().publish();
            while let Some(taken) = device.take() {
                device.give(taken.id.into(), 0, 1);
            }
            queue.reclaim().unwrap();
            wants
        };
        for _ in 0..MANY / 5 {
            device.want_kick_at(device.taken);
            assert!(send(&mut device, 1));
            assert!(!send(&mut device, 1), "it has not asked again");
            device.want_kick_at(device.taken + 2);
            assert!(!send(&mut device, 2));
            assert!(send(&mut device, 1));
        }
    }
}

#[test]
fn a_device_that_breaks_the_rules_is_an_error() {
    for packed in [false, true] {
        for in_order in [false, true] {
            // An id that no buffer has; one that the device does not have.
            for id in [u32::from(SIZE), 0xffff] {
                let (mut queue, mut device, ..) = receiving(packed, in_order);
                device.give(id, 20, 1);
                assert_eq!(queue.first().unwrap_err(), Misuse::Id(id), "packed {packed}, in order {in_order}");
                let (mut queue, mut device) = sending(packed, in_order);
                queue.queue(0x1000, 60).unwrap();
                queue.ring().publish();
                device.give(id, 0, 1);
                assert_eq!(queue.reclaim().unwrap_err(), Misuse::Id(id));
            }
            let (mut queue, mut device) = sending(packed, in_order);
            queue.queue(0x1000, 60).unwrap();
            queue.ring().publish();
            device.give(3, 0, 1);
            assert_eq!(queue.reclaim().unwrap_err(), Misuse::Id(3), "packed {packed}, in order {in_order}");
            // A length below that of a header, and above that of the buffer.
            for len in [0, HEADER as u32 - 1, 129, u32::MAX] {
                let (mut queue, mut device, ..) = receiving(packed, in_order);
                device.give(0, len, 1);
                assert_eq!(queue.first().unwrap_err(), Misuse::Length(len, 128));
            }
        }
        // A buffer twice.
        let (mut queue, mut device, dma, _spare) = receiving(packed, false);
        device.give(5, 20, 1);
        device.give(5, 20, 1);
        assert!(queue.first().unwrap().is_some());
        queue.give_back(&dma);
        // The device does not know yet that it has the buffer again.
        assert_eq!(queue.first().unwrap_err(), Misuse::Id(5));
        let (mut queue, mut device) = sending(packed, false);
        (0..4).for_each(|_| assert!(queue.queue(0x1000, 60).unwrap()));
        queue.ring().publish();
        device.give(2, 0, 1);
        device.give(2, 0, 1);
        assert_eq!(queue.reclaim().unwrap_err(), Misuse::Id(2));
    }
    let (mut queue, mut device, ..) = receiving(false, false);
    device.give(0, 20, 9);
    assert_eq!(queue.first().unwrap_err(), Misuse::Count { claimed: 9, outstanding: 8 });
}
