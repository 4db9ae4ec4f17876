//! Rings go on where a process has left them that was killed at any moment.

use ringway_port::testing::Guest;
use ringway_switch::BatchStorage;

use super::testing::{DONE, LAST, Ring, TX, collect, deliver, frame, open};
use super::{Bounce, Format, Receive, Transmit};
use crate::kept::{Noted, Position, RECEIVE, State, TRANSMIT};

/// The rings of a process that is killed, and its successor.
struct Killed {
    guest: Guest,
    state: State,
}

impl Killed {
    fn new() -> Killed {
        Killed { guest: Guest::new(), state: State::new(false).expect("memory") }
    }

    fn transmit(&self, ring: &Ring) -> Transmit {
        let transmit = Transmit::start(ring.base, ring.count, ring.tail).expect("a ring");
        transmit.noted_in(self.state.place(TRANSMIT))
    }

    /// Takes up to `most` frames.
    fn take(&self, transmit: &mut Transmit, tail: u32, most: usize) {
        let (bounce, mut batch) = (Bounce::default(), BatchStorage::new(most).into_batch());
        transmit.collect(&self.guest.memory, &bounce, tail, &TX, &mut batch).expect("no fault");
        assert_eq!(batch.len(), most);
    }

    fn noted(&self, place: usize) -> (u64, Position) {
        match self.state.noted(place) {
            Noted::On { base, position } => (base, position),
            other => panic!("{other:?}"),
        }
    }

    /// The ring as a successor of the process has it.
    fn resume(&self, tail: u32) -> Transmit {
        let (base, position) = self.noted(TRANSMIT);
        let contexts = self.state.contexts(TRANSMIT, position.contexts);
        let ring = Transmit::resume(base, position, contexts, &self.guest.memory, tail).expect("a ring");
        ring.noted_in(self.state.place(TRANSMIT))
    }

    fn receive(&self, ring: &Ring) -> Receive {
        let receive = Receive::start(ring.base, ring.count, 0, Format::Legacy { buffer: 2048 }).expect("a ring");
        receive.noted_in(self.state.place(RECEIVE))
    }

    fn resume_receive(&self, format: Format, tail: u32) -> (Receive, u32) {
        let (base, position) = self.noted(RECEIVE);
        Receive::resume(base, position, format, &self.guest.memory, tail).expect("a ring")
    }
}

#[test]
fn frames_that_were_taken_are_completed_and_not_sent_again() {
    let killed = Killed::new();
    let mut ring = Ring::new(&killed.guest, 64);
    for round in 0..20 {
        let mut transmit = killed.transmit(&ring);
        let first = ring.tail;
        let frames: Vec<_> = (0..30).map(|seed| frame(60 + seed, seed + round)).collect();
        let at: Vec<_> = frames.iter().map(|frame| ring.send(&killed.guest, frame, LAST)).collect();
        assert_eq!(collect(&mut transmit, &killed.guest, (first + 10) % 64).expect("no fault").frames.len(), 10);
        killed.take(&mut transmit, ring.tail, 5);
        std::mem::forget(transmit);
        let mut successor = killed.resume(ring.tail);
        for (number, &at) in at.iter().enumerate() {
            assert_eq!(ring.get(&killed.guest, at)[1] & DONE != 0, number < 15, "descriptor {number}");
        }
        let sent = collect(&mut successor, &killed.guest, ring.tail).expect("no fault");
        let sent: Vec<_> = sent.frames.into_iter().map(|(frame, _)| frame).collect();
        assert!(sent == frames[15..], "the others are sent, each once");
        assert_eq!(killed.noted(TRANSMIT).1.head, ring.tail);
    }
}

#[test]
fn frames_that_have_to_wait_are_taken_by_the_successor() {
    let killed = Killed::new();
    let mut ring = Ring::new(&killed.guest, 64);
    let mut transmit = killed.transmit(&ring);
    let frames: Vec<_> = (0..9).map(|seed| frame(60, seed)).collect();
    for frame in &frames {
        ring.send(&killed.guest, frame, LAST);
    }
    killed.take(&mut transmit, ring.tail, 9);
    transmit.rewind(&killed.guest.memory, 4);
    std::mem::forget(transmit);
    let sent = collect(&mut killed.resume(ring.tail), &killed.guest, ring.tail).expect("no fault");
    assert!(sent.frames.iter().map(|(frame, _)| frame).eq(&frames[4..]));
}

#[test]
fn descriptors_that_the_driver_has_reused_are_not_completed_unsent() {
    let killed = Killed::new();
    let mut ring = Ring::new(&killed.guest, 64);
    // The process had completed 0 to 9, and was killed before it noted that. The driver has seen it, and has sent 58 frames more.
    (0..64).for_each(|at| ring.set(&killed.guest, at, [killed.guest.place(&frame(60, 1)), 60 | LAST]));
    (0..10).for_each(|at| ring.set(&killed.guest, at, [0, 60 | LAST | DONE]));
    let place = killed.state.place(TRANSMIT).expect("a place");
    place.begin(ring.base, Position { count: 64, head: 0, next: 10, contexts: false });
    std::mem::forget(place);
    (0..4).for_each(|at| ring.set(&killed.guest, at, [killed.guest.place(&frame(60, 2)), 60 | LAST]));
    ring.tail = 4;
    let mut successor = killed.resume(ring.tail);
    let done = |at| ring.get(&killed.guest, at)[1] & DONE != 0;
    assert_eq!((0..64).filter(|&at| done(at)).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
    assert_eq!(collect(&mut successor, &killed.guest, ring.tail).expect("no fault").frames.len(), 58);
}

#[test]
fn contexts_hold_for_the_frames_after_them() {
    let killed = Killed::new();
    let mut ring = Ring::new(&killed.guest, 64);
    let mut transmit = killed.transmit(&ring);
    for (number, words) in [[11, 1 << 29 | 5], [12, 1 << 29 | 6], [13, 1 << 29 | 1 << 26 | 7]].into_iter().enumerate() {
        ring.put(&killed.guest, words[0], words[1]);
        ring.send(&killed.guest, &frame(60, number), LAST);
        collect(&mut transmit, &killed.guest, ring.tail).expect("no fault");
    }
    std::mem::forget(transmit);
    let (_, position) = killed.noted(TRANSMIT);
    let wanted = [12, 1 << 29 | 6, 13, 1 << 29 | 1 << 26 | 7];
    assert_eq!(killed.state.contexts(TRANSMIT, position.contexts), wanted);
    let successor = killed.resume(ring.tail);
    let (_, position) = killed.noted(TRANSMIT);
    assert_eq!(killed.state.contexts(TRANSMIT, position.contexts), wanted, "and for its successor");
    drop(successor);
    assert_eq!(killed.state.noted(TRANSMIT), Noted::Nothing, "a ring that is turned off is not in use");
}

#[test]
fn a_broken_ring_rests_in_a_successor_too() {
    let killed = Killed::new();
    let ring = Ring::new(&killed.guest, 64);
    let (mut transmit, mut receive) = (killed.transmit(&ring), killed.receive(&ring));
    transmit.set_broken();
    receive.set_broken();
    drop((transmit, receive));
    assert_eq!([killed.state.noted(TRANSMIT), killed.state.noted(RECEIVE)], [Noted::Broken; 2]);
}

/// Gives the device all descriptors but one, with buffers.
fn filled(killed: &Killed) -> Ring {
    let mut ring = Ring::new(&killed.guest, 64);
    (0..64).for_each(|at| ring.set(&killed.guest, at, [killed.guest.alloc(2048, 64), 0]));
    ring.tail = 63;
    ring
}

#[test]
fn a_delivery_that_was_published_is_not_made_again() {
    let killed = Killed::new();
    let ring = filled(&killed);
    let mut receive = killed.receive(&ring);
    let frames: Vec<_> = (0..7).map(|seed| (frame(60, seed), None)).collect();
    deliver(&mut receive, &killed.guest, &frames, 500, &open(), ring.tail).0.expect("no fault");
    assert_eq!(killed.noted(RECEIVE).1.head, 7);
    // Killed before it noted the last three, and after.
    for head in [4, 7] {
        let place = killed.state.place(RECEIVE).expect("a place");
        place.begin(ring.base, Position { count: 64, head, next: head, contexts: false });
        std::mem::forget(place);
        let before = (0..64).map(|at| ring.get(&killed.guest, at)).collect::<Vec<_>>();
        let (successor, bad) = killed.resume_receive(Format::Legacy { buffer: 2048 }, ring.tail);
        assert_eq!((successor.head(), bad), (7, 0));
        assert!((0..64).map(|at| ring.get(&killed.guest, at)).eq(before));
    }
    std::mem::forget(receive);
}

#[test]
fn frames_of_a_delivery_that_was_not_published_are_dropped_by_the_driver() {
    for format in [Format::Legacy { buffer: 2048 }, Format::Extended { buffer: 2048 }] {
        let killed = Killed::new();
        let ring = filled(&killed);
        std::mem::forget(killed.receive(&ring));
        let done = if matches!(format, Format::Legacy { .. }) { 3 << 32 | 60 } else { 60 << 32 | 3 };
        for at in [1, 2] {
            ring.set(&killed.guest, at, [ring.get(&killed.guest, at)[0], done]);
        }
        let (mut successor, bad) = killed.resume_receive(format, ring.tail);
        assert_eq!((successor.head(), bad), (3, 3));
        let read = match format {
            Format::Legacy { .. } => ringway_abi::e1000::ReceiveFormat::Legacy,
            _ => ringway_abi::e1000::ReceiveFormat::Extended,
        };
        for at in 0..4 {
            let status = read.read(ring.get(&killed.guest, at)[1]);
            assert_eq!(status.map(|status| (status.len, status.end, status.bad)), (at < 3).then_some((0, true, true)));
        }
        deliver(&mut successor, &killed.guest, &[(frame(60, 1), None)], 500, &open(), ring.tail).0.expect("no fault");
        assert_eq!(successor.head(), 4);
    }
}

#[test]
fn nothing_that_is_noted_makes_a_ring_outside_its_memory() {
    let killed = Killed::new();
    let ring = Ring::new(&killed.guest, 64);
    let good = Position { count: 64, head: 0, next: 0, contexts: false };
    for (base, position) in [
        (ring.base, Position { count: 0, ..good }),
        (ring.base, Position { count: 65_535, ..good }),
        (ring.base, Position { head: 64, ..good }),
        (ring.base, Position { next: 64, ..good }),
        (ring.base + 1, good),
        (u64::MAX - 15, good),
        (1 << 60, good),
    ] {
        let transmit = Transmit::resume(base, position, [u64::MAX; 4], &killed.guest.memory, 9).err();
        assert!(transmit.is_some(), "{base:#x} {position:?}");
        let format = Format::Legacy { buffer: 2048 };
        let receive = Receive::resume(base, position, format, &killed.guest.memory, 9).err();
        assert_eq!(receive.is_some(), position.next == 0, "{base:#x} {position:?}");
    }
    let beyond = Transmit::resume(ring.base, good, [0; 4], &killed.guest.memory, u32::MAX).expect("a ring");
    assert_eq!(beyond.head(), 0, "the tail is checked when the ring goes on");
    assert!(matches!(
        Receive::resume(ring.base, good, Format::Legacy { buffer: 0 }, &killed.guest.memory, u32::MAX),
        Ok((_, 0))
    ));
}
