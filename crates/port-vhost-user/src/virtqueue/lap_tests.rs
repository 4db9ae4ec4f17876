//! Rings of every size over many laps, also continued by a successor.

use ringway_switch::Accepts;

use super::testing::{
    Driver, Guest, PackedDriver, Piece, SplitDriver, both, collect_some, deliver, receive_queue, transmit_queue,
};
use super::{F_EVENT_IDX, F_IN_ORDER, Receive, Ring, Transmit};

both!(frames_go_round_in_rings_of_every_size, buffers_go_round_in_rings_of_every_size);

/// Ring sizes, and the number of chains that go through each.
fn rings<D: Driver>() -> &'static [(u16, usize)] {
    if D::PACKED {
        &[(1, 300), (2, 300), (3, 1000), (5, 3000), (255, 70_000), (256, 70_000), (32_767, 70_000), (32_768, 70_000)]
    } else {
        &[(1, 140_000), (2, 70_000), (256, 140_000), (32_768, 140_000)]
    }
}

/// Returns a frame that carries a number.
fn numbered(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; 60 + number % 5];
    bytes[20..28].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Returns how many chains the driver makes available at a time.
fn burst(number: usize, size: u16) -> usize {
    1 + (number * 31) % usize::from(size).min(300)
}

fn frames_go_round_in_rings_of_every_size<D: Driver>() {
    for (&(size, count), features) in
        rings::<D>().iter().zip([0, F_IN_ORDER, F_EVENT_IDX, F_IN_ORDER | F_EVENT_IDX].iter().cycle())
    {
        let guest = Guest::new();
        let mut driver = D::new(&guest, size, *features);
        let mut queue = transmit_queue(&guest, &driver);
        let places: Vec<u64> = (0..300).map(|_| guest.alloc(128, 64)).collect();
        let (mut sent, mut seen, mut rounds) = (0, 0, 0);
        while seen < count {
            for &place in &places[..burst(sent, size)] {
                let bytes = [vec![0; 12], numbered(sent)].concat();
                guest.write(place, &bytes);
                let cut = if size > 2 && sent % 7 == 0 { 12 } else { bytes.len() };
                let both = [Piece::read(place, cut), Piece::read(place + cut as u64, bytes.len() - cut)];
                let pieces = if cut == 12 { &both[..] } else { &both[..1] };
                if driver.put(&guest, pieces, pieces.len()).is_none() {
                    break;
                }
                sent += 1;
            }
            driver.publish(&guest);
            while seen < sent {
                let got = collect_some(&mut queue, &guest, 64).expect("no fault");
                assert!(!got.frames.is_empty(), "frame {seen} of a ring of {size} is missing");
                for (bytes, _) in got.frames {
                    assert!(bytes == numbered(seen), "frame {seen} of a ring of {size}");
                    seen += 1;
                }
            }
            driver.all_used(&guest);
            assert_eq!(queue.ring.base(), driver.base(driver.taken_back()));
            // A successor continues where this device stopped.
            rounds += 1;
            if rounds % 20 == 0 {
                let device = driver.device_at(&guest, queue.ring.base()).expect("a ring");
                queue = Transmit::new(device, 12, usize::MAX, Accepts::NOTHING);
            }
        }
        assert!(rounds > 20);
        assert_eq!(driver.taken_back(), driver.published());
    }
}

fn buffers_go_round_in_rings_of_every_size<D: Driver>() {
    for &(size, count) in rings::<D>() {
        let guest = Guest::new();
        let mut driver = D::new(&guest, size, 0);
        let mut queue = receive_queue(&guest, &driver, true);
        let places: Vec<u64> = (0..300).map(|_| guest.alloc(128, 64)).collect();
        let (mut given, mut filled, mut rounds) = (0, 0, 0);
        while filled < count {
            let mut offered = std::collections::VecDeque::new();
            for &place in &places[..burst(filled, size)] {
                match driver.put(&guest, &[Piece::write(place, 80)], 1) {
                    Some(id) => offered.push_back((id, place)),
                    None => break,
                }
            }
            driver.publish(&guest);
            // Frames that take one buffer each, and a longer frame that takes two, if there are enough buffers.
            let mut frames: Vec<_> = (0..offered.len()).map(|step| (numbered(given + step), None)).collect();
            if frames.len() > 2 {
                frames.truncate(frames.len() - 1);
                frames[0].0.resize(100, 0xee);
            }
            let (result, tally) = deliver(&mut queue, &guest, &frames, 100);
            assert_eq!((result, tally.frames, tally.full), (Ok(()), frames.len() as u64, 0), "a ring of {size}");
            for (bytes, _) in &frames {
                let mut got = Vec::new();
                while got.len() < bytes.len() {
                    let (id, len) = driver.used(&guest).expect("a used buffer");
                    let (offered, place) = offered.pop_front().expect("an offered buffer");
                    assert_eq!(id, offered);
                    got.extend(guest.read(place, len as usize).split_off(if got.is_empty() { 12 } else { 0 }));
                    filled += 1;
                }
                assert!(got == *bytes, "frame {given} of a ring of {size}");
                given += 1;
            }
            assert_eq!(driver.used(&guest), None);
            assert!(offered.is_empty());
            rounds += 1;
            if rounds % 20 == 0 {
                let device = driver.device_at(&guest, queue.ring.base()).expect("a ring");
                queue = Receive::new(device, 12, true);
            }
        }
    }
}

#[test]
fn a_split_ring_has_a_power_of_two_descriptors() {
    let guest = Guest::new();
    for size in 0..=u16::MAX {
        let addresses = SplitDriver::new(&guest, 1, 0).addresses();
        let made = super::Split::new(&guest.memory, addresses, size, 0, 0).is_some();
        assert_eq!(made, size.is_power_of_two(), "{size} descriptors");
    }
}

#[test]
fn a_packed_ring_begins_inside() {
    let guest = Guest::new();
    let driver = PackedDriver::new(&guest, 5, 0);
    for slot in 0..8u32 {
        for wrap in [0, 0x8000] {
            let base = (slot | wrap) * 0x1_0001;
            assert_eq!(driver.device_at(&guest, base).is_some(), slot < 5, "base {base:#x}");
        }
    }
    // A front end that knows only the available position (DPDK's virtio-user).
    assert_eq!(driver.device_at(&guest, 0x8000).expect("a ring").base(), 0x8000_8000);
    // Chains that were taken and not marked used are taken again.
    assert_eq!(driver.device_at(&guest, 0x8001_8004).expect("a ring").base(), 0x8001_8001);
    for size in [0, 32_769, u16::MAX] {
        assert!(super::Packed::new(&guest.memory, driver.addresses(), size, 0x8000_8000, 0).is_none());
    }
}

#[test]
fn rings_must_be_aligned_and_in_memory() {
    let guest = Guest::new();
    let good = SplitDriver::new(&guest, 4, 0).addresses();
    let split = |addresses| super::Split::new(&guest.memory, addresses, 4, 0, F_EVENT_IDX).is_some();
    let packed = |addresses| super::Packed::new(&guest.memory, addresses, 4, 0x8000_8000, 0).is_some();
    assert!(split(good) && packed(good));
    let end = super::testing::LOW + super::testing::LOW_BYTES;
    for off in [1, 2, 4, 8] {
        let at = super::Addresses { descriptors: good.descriptors + off, ..good };
        assert!(!split(at) && !packed(at), "descriptors at a multiple of {off}");
    }
    for outside in [0, end - 8, end, u64::MAX - 7, !15] {
        for part in 0..3 {
            let mut all = [good.descriptors, good.driver, good.device];
            all[part] = outside;
            let [descriptors, driver, device] = all;
            assert!(!split(super::Addresses { descriptors, driver, device }), "part {part} at {outside:#x}");
        }
    }
    assert!(!split(super::Addresses { driver: good.driver + 1, ..good }));
    assert!(!split(super::Addresses { device: good.device + 2, ..good }));
    assert!(!packed(super::Addresses { device: good.device + 1, ..good }));
}
