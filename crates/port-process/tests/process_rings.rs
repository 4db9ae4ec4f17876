//! Frames between process ports of all shapes.

use ringway_abi::Shape;
use ringway_abi::doorbell::{RX_CLIENT, TX_CLIENT, WISH};
use ringway_port_tests::support::{Lan, frame, mac};
use ringway_switch::DropReason;
use std::sync::atomic::Ordering;

fn shape(slots: u32, buffer_size: u32) -> Shape {
    Shape { tx_slots: slots, rx_slots: slots, buffer_size, ..Shape::default() }
}

#[test]
fn frames_of_any_length_cross_buffers_of_any_size() {
    let sizes = [128, 192, 1088, 2112, 65_472];
    for send_size in sizes {
        for receive_size in sizes {
            let mut lan = Lan::new(&[shape(64, send_size), shape(64, receive_size)]);
            for len in [14, 60, 127, 128, 129, 191, 192, 193, 1087, 1514, 2113, 6000, 7000] {
                let sent = frame(1, 0, len, len as u32);
                let fits = |size: u32| len.div_ceil(size as usize) < 64;
                if !fits(send_size) {
                    continue;
                }
                lan.clients[0].send(&sent);
                assert_eq!(lan.pass(0).fault, None);
                let received = lan.clients[1].receive(0);
                assert!(received == [sent], "{len} bytes from buffers of {send_size} to {receive_size}");
            }
        }
    }
}

#[test]
fn a_port_is_opened_without_a_write_to_its_buffers() {
    let shape = Shape { extra_buffers: 16_000, ..Shape::default() };
    let (_io, handles) = ringway_port_process::open("spares", shape, 0).unwrap();
    let blocks = rustix::fs::fstat(handles.memory.file()).unwrap().st_blocks * 512;
    let first = handles.layout.first_tx_buffer(0, 0);
    // The last page of the rings can reach into the buffers.
    assert!(blocks as usize <= handles.layout.buffer(first).next_multiple_of(4096), "{blocks} bytes are allocated");
}

#[test]
fn frames_in_pieces_of_odd_lengths_arrive_whole() {
    let mut lan = Lan::of(2, shape(128, 2112));
    for piece in [1, 2, 13, 14, 63, 64, 65, 127, 128, 129, 700, 1999] {
        for len in [14, 60, 130, 1514, 9000] {
            if len / piece < 63 {
                let sent = frame(1, 0, len, piece as u32);
                lan.clients[0].queue(0, &sent, piece);
                lan.clients[0].publish(0);
                lan.pass(0);
                assert!(lan.clients[1].receive(0) == [sent], "{len} bytes in pieces of {piece}");
            }
        }
    }
}

#[test]
fn rings_of_the_least_and_of_the_most_slots_go_round_without_losing_or_changing_a_frame() {
    for (slots, laps) in [(4, 200), (5, 100), (32_768, 3)] {
        let mut lan = Lan::of(2, shape(slots, 128));
        let mut number = 0;
        for _ in 0..laps * slots.div_ceil(200).max(1) {
            let mut sent = Vec::new();
            while lan.clients[0].tx_room(0) > 2 && sent.len() < 200 {
                number += 1;
                sent.push(frame(1, 0, 60 + number as usize % 150, number));
                lan.clients[0].queue(0, sent.last().expect("pushed"), 128);
            }
            lan.clients[0].publish(0);
            let mut received = Vec::new();
            while received.len() < sent.len() {
                let passed = lan.pass(0);
                assert!(passed.frames > 0 && passed.fault.is_none(), "{passed:?}");
                received.extend(lan.clients[1].receive(0));
            }
            assert!(received == sent, "ring of {slots}");
        }
        assert_eq!(lan.counters(0).drops().count() + lan.counters(1).drops().count(), 0);
        assert!(number > slots, "the ring wrapped around");
    }
}

#[test]
fn no_byte_beyond_a_frame_is_written_into_the_receivers_memory() {
    for len in (14..=260).chain([1513, 1514, 2111, 2112, 2113, 4000]) {
        let mut lan = Lan::of(2, shape(8, 2112));
        let layout = lan.clients[1].ends.layout;
        let buffers = lan.clients[1].ends.memory.mapping().view(layout.buffers, layout.bytes - layout.buffers);
        let buffers = buffers.expect("the buffers");
        assert!(buffers.write(&vec![0xa5; buffers.len()]));
        let sent = frame(1, 0, len, 1);
        lan.clients[0].send(&sent);
        lan.pass(0);
        let client = &lan.clients[1];
        let mut after = vec![0; layout.bytes - layout.buffers];
        assert!(client.ends.memory.mapping().view(layout.buffers, after.len()).expect("the buffers").read(&mut after));
        // The frame is in the buffers of the first one or two slots. All other bytes are unchanged.
        let mut expected = vec![0xa5; after.len()];
        for (slot, part) in sent.chunks(2112).enumerate() {
            let index = client.rx_word(0, slot as u32).load(Ordering::Relaxed) as u32 as usize;
            expected[index * 2112..][..part.len()].copy_from_slice(part);
        }
        assert!(after == expected, "{len} bytes");
    }
}

#[test]
fn a_flow_stays_in_order_on_one_of_several_rings() {
    let several = Shape { tx_rings: 3, rx_rings: 4, tx_slots: 64, rx_slots: 64, ..Shape::default() };
    let mut lan = Lan::of(5, several);
    for to in 1..5u16 {
        for ring in 0..3 {
            for number in 0..10 {
                lan.clients[0].queue(ring, &frame(to, 0, 100 + number as usize, number), 2112);
            }
            lan.clients[0].publish(ring);
            while lan.clients[0].input.pending() {
                lan.pass(0);
            }
        }
        let rings: Vec<_> = (0..4).map(|ring| lan.clients[usize::from(to)].receive(ring)).collect();
        let [used] = &rings.iter().filter(|r| !r.is_empty()).collect::<Vec<_>>()[..] else {
            panic!("the flow to {} was split over rings", mac(to));
        };
        let expected: Vec<_> = (0..3).flat_map(|_| (0..10).map(|n| frame(to, 0, 100 + n as usize, n))).collect();
        assert!(**used == expected, "to {}", mac(to));
    }
}

/// Returns a UDP frame from station 0 to station 1 with this source port.
fn datagram(port: u16, number: u8) -> Vec<u8> {
    let mut bytes = frame(1, 0, 60, 0);
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    bytes[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[34..36].copy_from_slice(&port.to_be_bytes());
    bytes[36..38].copy_from_slice(&[0, 53]);
    bytes[59] = number;
    bytes
}

#[test]
fn flows_between_the_same_stations_are_spread_over_rings_by_their_ports() {
    let several = Shape { rx_rings: 4, ..Shape::default() };
    let mut lan = Lan::of(2, several);
    for number in 0..4 {
        for port in 1000..1032 {
            lan.clients[0].queue(0, &datagram(port, number), 2112);
        }
    }
    lan.clients[0].publish(0);
    while lan.clients[0].input.pending() {
        lan.pass(0);
    }
    let mut rings: Vec<_> = (0..4).map(|ring| lan.clients[1].receive(ring)).collect();
    assert!(rings.iter().all(|ring| ring.len() >= 4 * 2), "{:?}", rings.iter().map(Vec::len).collect::<Vec<_>>());
    for port in 1000..1032 {
        let of_flow = |ring: &mut Vec<Vec<u8>>| ring.extract_if(.., |f| f[34..36] == u16::to_be_bytes(port)).collect();
        let flow: Vec<Vec<Vec<u8>>> =
            rings.iter_mut().map(of_flow).filter(|found: &Vec<_>| !found.is_empty()).collect();
        assert!(flow == [(0..4).map(|number| datagram(port, number)).collect::<Vec<_>>()], "port {port}");
    }
}

#[test]
fn several_transmit_rings_get_their_turns_when_one_is_always_full() {
    let two = Shape { tx_rings: 2, tx_slots: 1024, rx_slots: 1024, ..Shape::default() };
    let mut lan = Lan::of(2, two);
    for _ in 0..4 {
        while lan.clients[0].tx_room(0) > 0 {
            lan.clients[0].queue(0, &frame(1, 0, 60, 0), 2112);
        }
        lan.clients[0].publish(0);
        lan.clients[0].queue(1, &frame(1, 0, 61, 0), 2112);
        lan.clients[0].publish(1);
        lan.pass(0);
        lan.pass(0);
        let short = lan.clients[1].receive(0).iter().filter(|f| f.len() == 61).count();
        assert!(short >= 1, "the second ring waited for more than one round");
    }
}

#[test]
fn a_client_that_never_reads_loses_its_own_frames_and_nobody_elses() {
    let mut lan = Lan::of(3, shape(64, 2112));
    for number in 0..1000 {
        let sent = frame(2, 0, 60, number);
        lan.clients[0].queue(0, &frame(1, 0, 60, number), 2112);
        lan.clients[0].queue(0, &sent, 2112);
        lan.clients[0].publish(0);
        lan.pass(0);
        assert!(lan.clients[2].receive(0) == [sent]);
    }
    assert_eq!(lan.fault(1), None, "a slow receiver has no fault");
    assert_eq!(lan.counters(1).out_frames, 63, "one slot stays empty");
    assert_eq!(lan.dropped(1, DropReason::ReceiverFull), 1000 - 63);
    assert_eq!(lan.counters(0).drops().count(), 0);
    // When the receiver wakes up, it gets the frames that fitted, in order.
    let late = lan.clients[1].receive(0);
    assert!(late == (0..63).map(|n| frame(1, 0, 60, n)).collect::<Vec<_>>());
}

#[test]
fn a_frame_longer_than_the_whole_receive_ring_is_too_long_and_one_that_must_wait_is_not() {
    let mut lan = Lan::new(&[shape(64, 2112), shape(4, 128)]);
    lan.clients[0].send(&frame(1, 0, 3 * 128 + 1, 0));
    lan.pass(0);
    assert_eq!(lan.dropped(1, DropReason::ReceiverTooSmall), 1);
    lan.clients[0].send(&frame(1, 0, 3 * 128, 1));
    lan.clients[0].send(&frame(1, 0, 2 * 128, 2));
    lan.pass(0);
    assert_eq!(lan.dropped(1, DropReason::ReceiverFull), 1);
    assert!(lan.clients[1].receive(0) == [frame(1, 0, 3 * 128, 1)]);
}

#[test]
fn a_client_is_called_once_for_a_wish_and_not_without_one() {
    let mut lan = Lan::of(2, shape(64, 2112));
    let calls = |lan: &Lan| {
        let mut count = [0; 8];
        rustix::io::read(&lan.clients[1].ends.call, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    let send = |lan: &mut Lan| {
        lan.clients[0].send(&frame(1, 0, 60, 0));
        lan.pass(0);
    };
    send(&mut lan);
    assert_eq!(calls(&lan), 0);
    for (wish, expected) in [(1, 1), (1, 0), (2, 1), (0, 0), (3, 1)] {
        lan.clients[1].doorbell(0)[RX_CLIENT + WISH].store(wish, Ordering::Release);
        send(&mut lan);
        assert_eq!(calls(&lan), expected, "wish {wish}");
    }
    assert_eq!(lan.counters(1).calls, 3);
    // A sender that waits for room is called when its slots are free again.
    lan.clients[0].doorbell(0)[TX_CLIENT + WISH].store(7, Ordering::Release);
    send(&mut lan);
    assert_eq!(lan.counters(0).calls, 1);
}
