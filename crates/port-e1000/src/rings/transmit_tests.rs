//! A driver's frames arrive unchanged, for every way of dividing them into descriptors.

use ringway_port::testing::{Guest, HIGH, LOW, LOW_BYTES};

use super::testing::{DATA, DONE, EOP, IDE, IFCS, LAST, RS, Ring, TX, VLE, collect, collect_some, frame};
use super::{RingFault, Transmit, TransmitSettings};

fn start(guest: &Guest, count: u32) -> (Ring, Transmit) {
    let ring = Ring::new(guest, count);
    let transmit = Transmit::start(ring.base, count, 0).expect("a ring");
    (ring, transmit)
}

fn bytes(sent: super::testing::Sent) -> Vec<Vec<u8>> {
    assert!(sent.frames.iter().all(|(_, offload)| offload.is_none()));
    sent.frames.into_iter().map(|(bytes, _)| bytes).collect()
}

#[test]
fn legacy_and_data_descriptors_carry_frames_in_order_over_many_laps() {
    let guest = Guest::new();
    let (mut ring, mut transmit) = start(&guest, 64);
    let mut seed = 0;
    for round in 0..40 {
        let (mut sent, mut at) = (Vec::new(), Vec::new());
        for _ in 0..1 + (round * 13) % 62 {
            seed += 1;
            let frame = frame([14, 60, 61, 128, 129, 1514][seed % 6], seed);
            at.push(ring.send(&guest, &frame, if seed % 3 == 0 { DATA | LAST } else { LAST }));
            sent.push(frame);
        }
        let got = collect(&mut transmit, &guest, ring.tail).expect("no fault");
        assert_eq!((got.completed.descriptors as usize, got.completed.empty), (sent.len(), true));
        assert!(got.completed.reported && !got.completed.delay);
        assert_eq!(got.completed.traffic.frames, sent.len() as u64);
        assert!(bytes(got) == sent);
        assert!(at.iter().all(|&at| ring.get(&guest, at)[1] & DONE != 0), "all descriptors are written back");
        assert_eq!(transmit.head(), ring.tail);
    }
}

#[test]
fn frames_that_have_to_wait_come_again_and_are_counted_when_they_go() {
    let guest = Guest::new();
    let (mut ring, mut transmit) = start(&guest, 256);
    // Rows of frames of equal length, rows of other frames, one frame in two descriptors, and the end of the ring.
    let lens = [&[60; 150][..], &[61, 1514, 60, 300], &[90; 90], &[14; 5]].concat();
    for keep in [0, 1, 63, 64, 65, 151, 153, 200, 248] {
        let sent: Vec<Vec<u8>> = (0..).zip(&lens).map(|(seed, &len)| frame(len, seed)).collect();
        for (number, frame) in sent.iter().enumerate() {
            if number == 151 {
                ring.put(&guest, guest.place(&frame[..99]), 99 | DATA);
                ring.send(&guest, &frame[99..], DATA | LAST);
            } else {
                ring.send(&guest, frame, LAST);
            }
        }
        let (bounce, mut batch) = (super::Bounce::default(), ringway_switch::BatchStorage::new(256).into_batch());
        transmit.collect(&guest.memory, &bounce, ring.tail, &TX, &mut batch).expect("fine");
        assert_eq!(batch.len(), sent.len());
        drop(batch);
        transmit.rewind(&guest.memory, keep);
        let first = transmit.release(&guest.memory).expect("fine").traffic;
        let second = collect(&mut transmit, &guest, ring.tail).expect("fine");
        let (went, waited) = sent.split_at(keep);
        for (traffic, frames) in [(first, went), (second.completed.traffic, waited)] {
            let bytes: usize = frames.iter().map(Vec::len).sum();
            assert_eq!((traffic.frames, traffic.bytes), (frames.len() as u64, bytes as u64), "{keep}");
        }
        assert!(bytes(second) == waited, "{keep}");
        assert_eq!(transmit.head(), ring.tail);
    }
}

#[test]
fn a_frame_of_several_descriptors_that_ends_with_the_ring_can_wait() {
    let guest = Guest::new();
    let mut ring = Ring { tail: 6, ..Ring::new(&guest, 8) };
    let mut transmit = Transmit::start(ring.base, 8, 6).expect("a ring");
    let sent = frame(200, 1);
    ring.put(&guest, guest.place(&sent[..99]), 99 | DATA);
    ring.send(&guest, &sent[99..], DATA | LAST);
    let (bounce, mut batch) = (super::Bounce::default(), ringway_switch::BatchStorage::new(8).into_batch());
    transmit.collect(&guest.memory, &bounce, ring.tail, &TX, &mut batch).expect("fine");
    assert_eq!((ring.tail, batch.len()), (0, 1));
    drop(batch);
    transmit.rewind(&guest.memory, 0);
    assert_eq!(transmit.release(&guest.memory).expect("fine").descriptors, 0);
    assert!(bytes(collect(&mut transmit, &guest, ring.tail).expect("fine")) == [sent]);
}

#[test]
fn a_frame_in_any_number_of_descriptors_is_one_frame() {
    let guest = Guest::new();
    let (mut ring, mut transmit) = start(&guest, 256);
    let whole = frame(1514, 3);
    for cuts in [vec![1], vec![14], vec![13, 1, 100], vec![128], vec![127, 3], vec![0, 60, 0, 1], vec![11; 120]] {
        let mut at = 0;
        for cut in cuts {
            ring.put(&guest, guest.place(&whole[at..at + cut]), cut as u64 | DATA);
            at += cut;
        }
        ring.put(&guest, 0, 77 | DATA);
        ring.send(&guest, &whole[at..], DATA | LAST);
        // A frame in very many pieces waits once for a bounce buffer.
        let mut got = bytes(collect(&mut transmit, &guest, ring.tail).expect("fine"));
        got.extend(bytes(collect(&mut transmit, &guest, ring.tail).expect("fine")));
        assert!(got == [&whole[..]], "a null buffer adds no bytes");
    }
}

#[test]
fn a_frame_whose_end_is_not_there_yet_waits_without_being_looked_at_again() {
    let guest = Guest::new();
    let (mut ring, mut transmit) = start(&guest, 64);
    let whole = frame(300, 1);
    ring.send(&guest, &whole[..100], DATA);
    assert!(collect(&mut transmit, &guest, ring.tail).expect("fine").frames.is_empty());
    assert!(!transmit.pending(ring.tail), "nothing to do before the tail moves");
    assert_eq!(transmit.head(), 0);
    ring.send(&guest, &whole[100..], DATA | LAST);
    assert!(transmit.pending(ring.tail));
    assert_eq!(bytes(collect(&mut transmit, &guest, ring.tail).expect("fine")), [whole]);
}

#[test]
fn a_frame_without_an_end_stops_the_ring() {
    let guest = Guest::new();
    let (mut ring, mut transmit) = start(&guest, 8);
    for _ in 0..7 {
        ring.send(&guest, &[1; 20], DATA);
    }
    assert_eq!(collect(&mut transmit, &guest, ring.tail), Err(RingFault::Endless(7)));
    let (mut ring, mut transmit) = start(&guest, 4096);
    for _ in 0..2000 {
        ring.put(&guest, 0, DATA);
    }
    assert_eq!(collect(&mut transmit, &guest, ring.tail), Err(RingFault::Endless(1024)));
}

#[test]
fn only_descriptors_that_ask_for_it_are_written_back_and_delays_are_told() {
    let guest = Guest::new();
    let (mut ring, mut transmit) = start(&guest, 64);
    let silent = ring.send(&guest, &frame(60, 0), EOP | IFCS);
    let empty = ring.put(&guest, 0, EOP | IFCS | RS | IDE);
    let late = ring.send(&guest, &frame(60, 1), LAST | IDE);
    let got = collect(&mut transmit, &guest, ring.tail).expect("fine");
    assert!(got.completed.reported && got.completed.delay);
    assert_eq!((got.frames.len(), got.completed.traffic.frames), (2, 2), "a descriptor without data sends nothing");
    let done = |at| ring.get(&guest, at)[1] & DONE != 0;
    assert_eq!([silent, empty, late].map(done), [false, true, true]);
    ring.send(&guest, &frame(60, 1), LAST | IDE);
    ring.send(&guest, &frame(60, 1), LAST);
    assert!(
        !collect(&mut transmit, &guest, ring.tail).expect("fine").completed.delay,
        "one descriptor asks for no delay"
    );
}

#[test]
fn padding_tags_and_a_sender_s_own_check_sequence_are_as_the_manual_says() {
    let guest = Guest::new();
    let (mut ring, mut transmit) = start(&guest, 64);
    let settings = TransmitSettings { pad: true, vlan: Some(0x8100), ..TX };
    let tagged = |frame: &[u8], tag: u16| [&frame[..12], &[0x81, 0], &tag.to_be_bytes()[..], &frame[12..]].concat();
    let padded = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        frame.resize(60.max(frame.len()), 0);
        frame
    };
    let mut expected = Vec::new();
    for len in [14, 42, 56, 57, 59, 60, 124, 125, 128, 129, 300, 1514] {
        let frame = frame(len, len);
        ring.send(&guest, &frame, LAST);
        expected.push(padded(&frame));
        ring.send(&guest, &frame, LAST | VLE | 0xe123 << 48);
        expected.push(padded(&tagged(&frame, 0xe123)));
        if len >= 18 {
            ring.send(&guest, &frame, EOP | RS);
            expected.push(padded(&frame[..len - 4]));
        }
    }
    // The tag of the last descriptor counts.
    let split = frame(200, 5);
    ring.send(&guest, &split[..5], DATA | VLE | 1 << 48);
    ring.send(&guest, &split[5..], DATA | LAST | VLE | 2 << 48);
    expected.push(tagged(&split, 2));
    let got = collect_some(&mut transmit, &guest, ring.tail, &settings, 256).expect("fine");
    assert!(bytes(got) == expected);
    // Without CTRL.VME nothing is inserted.
    ring.send(&guest, &split, LAST | VLE | 5 << 48);
    assert_eq!(bytes(collect(&mut transmit, &guest, ring.tail).expect("fine")), [split]);
}

#[test]
fn too_short_and_too_long_frames_are_counted() {
    let guest = Guest::new();
    let (mut ring, mut transmit) = start(&guest, 64);
    ring.send(&guest, &frame(13, 0), LAST);
    ring.send(&guest, &frame(16_289, 0), DATA | LAST);
    ring.send(&guest, &frame(16_288, 0), DATA | LAST);
    for _ in 0..3 {
        ring.send(&guest, &frame(60_000, 0), DATA);
    }
    ring.send(&guest, &frame(60, 0), DATA | LAST);
    let got = collect(&mut transmit, &guest, ring.tail).expect("fine");
    assert_eq!((got.frames.len(), got.refused), (1, 3));
    assert_eq!(transmit.head(), ring.tail);
}

#[test]
fn a_buffer_in_two_regions_that_meet_is_one_buffer() {
    let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, 1 << 20).expect("memory");
    let region = |guest, offset| {
        std::sync::Arc::new(ringway_port::guest::Region::map(&file, guest, 1 << 18, guest, offset).expect("a region"))
    };
    // Two regions that are adjacent in guest memory; the upper one is the lower half of the file.
    let memory = ringway_port::guest::GuestMemory::new(vec![region(1 << 18, 1 << 18), region(0, 1 << 19)]);
    let frame = frame(1000, 9);
    let border = 1 << 18;
    assert!(memory.view(border - 400, 400).expect("lower").write(&frame[..400]));
    assert!(memory.view(border, 600).expect("upper").write(&frame[400..]));
    let ring = memory.view(64, 128).and_then(|view| view.words64()).expect("a ring");
    ring[0].store((border - 400).to_le(), std::sync::atomic::Ordering::Relaxed);
    ring[1].store((1000 | LAST).to_le(), std::sync::atomic::Ordering::Relaxed);
    let mut transmit = Transmit::start(64, 8, 0).expect("a ring");
    let (bounce, mut batch) = (super::Bounce::default(), ringway_switch::BatchStorage::new(8).into_batch());
    transmit.collect(&memory, &bounce, 1, &TX, &mut batch).expect("fine");
    assert_eq!(ringway_port::testing::bytes_of(&batch, 0), frame);
}

#[test]
fn rings_and_registers_that_cannot_be_are_refused_by_name() {
    let guest = Guest::new();
    let name = |base, count, head| Transmit::start(base, count, head).map(|_| ()).map_err(RingFault::name);
    for count in [0, 4, 7, 12, 65_536, u32::MAX] {
        assert_eq!(name(LOW, count, 0), Err("ring_bad_length"), "{count}");
    }
    assert_eq!(name(LOW + 8, 8, 0), Err("ring_bad_base"));
    assert_eq!(name(LOW, 8, 8), Err("ring_head_out_of_range"));
    for (base, count) in [
        (0, 8),
        (LOW - 16, 8),
        (LOW + LOW_BYTES - 112, 8),
        (HIGH - 64, 8),
        (u64::MAX - 15, 8),
        (u64::MAX - 127, 65_528),
    ] {
        let mut transmit = Transmit::start(base, count, 0).expect("the ring starts in memory");
        assert!(matches!(collect(&mut transmit, &guest, 1), Err(RingFault::BadBase { .. })), "{base:#x}");
        assert_eq!(transmit.head(), 0);
    }
    let (_, mut transmit) = start(&guest, 8);
    for tail in [8, 9, 65_535, u32::MAX] {
        assert_eq!(collect(&mut transmit, &guest, tail), Err(RingFault::TailOutOfRange { tail, count: 8 }));
    }
    for (address, len) in [(LOW - 1, 60), (LOW + LOW_BYTES - 59, 60), (u64::MAX - 20, 60), (1 << 63, 60), (1, 0xf_ffff)]
    {
        let (mut ring, mut transmit) = start(&guest, 8);
        ring.send(&guest, &frame(60, 0), LAST);
        ring.put(&guest, address, len | DATA | LAST);
        let fault = RingFault::BadAddress { address, len: len as u32 };
        assert_eq!(collect(&mut transmit, &guest, ring.tail), Err(fault), "{address:#x}");
        assert_eq!(transmit.head(), 1, "the descriptors of earlier frames are given back");
    }
}
