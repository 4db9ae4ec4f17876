//! Frames and calls in the backlog of a port in quarantine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use ringway_testing::PATIENCE;
use ringway_testing::memory::is_resident;

use super::detour::FrameBuffer;
use crate::testing::{Lan, Plan, begin_detour, frame, mac, number};
use crate::{
    DetourEnd, DetourRoom, DropReason, Mac, Moderation, Port, Tap, TappedFrame, Time, Watch, Workspace, empty,
    handle_event, pass, prepare_detours,
};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn port(lan: &Lan, index: u16) -> Arc<Port> {
    Arc::clone(&lan.switch.member(index).expect("a port").port)
}

fn detoured(plan: Plan) -> (Lan, Arc<Port>, Arc<Woken>) {
    let lan = plan.map();
    let (port, woken) = (port(&lan, 1), Arc::new(Woken::default()));
    begin_detour(&port, Waker::from(Arc::clone(&woken)));
    (lan, port, woken)
}

fn ends(port: &Port) -> DetourEnd {
    port.end_detour(|| true)
}

/// Empties the backlog of port 1, as the port's own thread does.
fn empty_it(lan: &Lan, work: &mut Workspace) -> u64 {
    work.calls.serve_detours();
    let emptied = empty(&lan.switch.member(1).expect("a port").port, work, &Time::at_second(1));
    assert!(!emptied.fault);
    emptied.frames
}

#[test]
fn nobody_waits_for_the_output_of_a_port_that_has_a_detour() {
    let (mut lan, port, woken) = detoured(Plan::new(3));
    assert!(port.may_sleep() && !port.has_detoured_frames());
    // The output is locked: a thread that wanted it now would wait for ever.
    let output = port.output();
    let lengths = [60, 127, 128, 129, 1514, 9000, 65_000];
    let sent: Vec<Vec<u8>> = (0..).zip(lengths).map(|(n, len)| frame(mac(1), mac(0), len, n)).collect();
    lan.send(0, &sent);
    let flooded = frame(Mac::BROADCAST, mac(2), 60, 99);
    lan.send(2, std::slice::from_ref(&flooded));
    drop(output);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "woken once, and not again before it sleeps again");
    assert!(port.has_detoured_frames() && !port.may_sleep() && ends(&port) == DetourEnd::Filled);
    assert_eq!(lan.received(1), Vec::<Vec<u8>>::new());
    assert_eq!(lan.sink(1, |kept| kept.rings), 0, "its memory is not touched");

    let mut work = Workspace::new(4);
    assert_eq!(empty_it(&lan, &mut work), sent.len() as u64 + 1);
    let received = lan.received(1);
    assert_eq!(received[..sent.len()], sent);
    assert_eq!(received[sent.len()..], [flooded]);
    assert!(lan.sink(1, |kept| kept.rings) > 0);
    assert_eq!(empty_it(&lan, &mut work), 0);
    assert!(port.may_sleep());
    lan.send(0, &sent[..1]);
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    assert_eq!(empty_it(&lan, &mut work), 1);

    assert_eq!(ends(&port), DetourEnd::Ended);
    lan.send(0, &sent);
    assert_eq!(lan.received(1).len(), 1 + sent.len(), "as before");
    assert_eq!(lan.counters(1).drops().count(), 0);
    assert_eq!(lan.counters(1).out_frames, 2 * sent.len() as u64 + 2);
}

/// The kernel may keep the thread that has it. Who empties the detour leaves the frames there.
#[test]
fn a_ports_own_thread_does_not_wait_for_its_output() {
    let (mut lan, port, _) = detoured(Plan::new(2));
    lan.send(0, &[frame(mac(1), mac(0), 60, 7)]);
    let (say, hear) = channel();
    let output = port.output();
    std::thread::scope(|scope| {
        lan.offers[1].news = true;
        let (input, work) = (&mut lan.offers[1], &mut lan.work);
        let member = lan.switch.member(1).expect("a port");
        scope.spawn(move || {
            work.calls.serve_detours();
            assert!(!handle_event(member, input, work, &Time::at_second(1)));
            say.send(empty(&member.port, work, &Time::at_second(1)).frames)
        });
        let emptied = hear.recv_timeout(PATIENCE);
        drop(output);
        assert_eq!(emptied, Ok(0));
    });
    assert_eq!(ends(&port), DetourEnd::Filled);
    assert_eq!(empty_it(&lan, &mut Workspace::new(4)), 1);
}

#[test]
fn a_detour_is_handed_over_with_its_frames() {
    let (mut lan, port, woken) = detoured(Plan::new(2));
    let next = Arc::new(Woken::default());
    assert!(port.may_sleep());
    lan.send(0, &[frame(mac(1), mac(0), 60, 7)]);
    assert!(!port.hand_over_detour(Waker::from(Arc::clone(&next)), || false));
    assert!(port.hand_over_detour(Waker::from(Arc::clone(&next)), || true));
    assert_eq!(empty_it(&lan, &mut Workspace::new(4)), 1);
    assert!(port.may_sleep());
    lan.send(0, &[frame(mac(1), mac(0), 60, 7)]);
    assert_eq!([&woken, &next].map(|woken| woken.0.load(Ordering::Relaxed)), [1, 1]);
    port.abandon_detour();
    assert!(!port.hand_over_detour(Waker::noop().clone(), || unreachable!("there is none")));
}

/// The first access to a page may have to wait, as mapping memory may.
#[test]
fn memory_for_detours_is_there_before_it_is_used() {
    let buffer = FrameBuffer::new().expect("memory");
    assert!(is_resident(buffer.place(1).expect("room").as_ptr(), FrameBuffer::BYTES));
}

#[test]
fn each_frame_that_has_no_room_is_counted() {
    for len in [60, 1514, 60_000] {
        let (mut lan, port, _) = detoured(Plan { bytes: 64 << 20, ..Plan::new(2) });
        let sent: Vec<Vec<u8>> = (0..600).map(|n| frame(mac(1), mac(0), len, n)).collect();
        lan.send(0, &sent);
        let mut work = Workspace::new(256);
        let emptied = empty_it(&lan, &mut work);
        assert!(emptied > 0 && emptied < 600, "{emptied}");
        assert_eq!(lan.dropped(1, DropReason::ReceiverSlow) + emptied, 600);
        assert_eq!(lan.sink(1, |kept| kept.told_lost) + emptied, 600, "the client is told");
        let numbers: Vec<u32> = lan.received(1).iter().map(|frame| number(frame)).collect();
        assert_eq!(numbers, (0..emptied as u32).collect::<Vec<u32>>(), "the first ones, in order");
        // There is room again. Frames in the backlog when the detour is abandoned are counted as well.
        lan.send(0, &sent[..2]);
        port.abandon_detour();
        assert_eq!(lan.dropped(1, DropReason::ReceiverSlow) + emptied, 602);
        lan.send(0, &sent[..2]);
        assert_eq!(lan.received(1).len(), 2);
    }
}

#[test]
fn a_call_that_is_due_elsewhere_is_made_by_the_thread_that_serves_the_port() {
    let mut lan = Plan::new(2).map();
    let port = port(&lan, 1);
    port.set_moderation(Moderation::Fixed { interval: Duration::from_millis(1), above: None });
    lan.sink(1, |kept| kept.calls = true);
    let at = |seconds| Time { read: || 1_000_000_000, ..Time::at_second(seconds) };
    for number in 0..2 {
        lan.offers[0].put(&frame(mac(1), mac(0), 60, number), &[]);
        let member = lan.switch.member(0).expect("a port");
        assert_eq!(pass(&lan.switch, member, &mut lan.offers[0], &mut lan.work, &at(1)).frames, 1);
    }
    assert_eq!((lan.sink(1, |kept| kept.rings), lan.work.calls.len()), (1, 1), "the second call is pending");
    let woken = Arc::new(Woken::default());
    begin_detour(&port, Waker::from(Arc::clone(&woken)));
    assert!(port.may_sleep());
    let later = at(2);
    assert!(!lan.work.calls.make(&later));
    assert_eq!((lan.sink(1, |kept| kept.rings), lan.work.calls.len()), (1, 0));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let mut work = Workspace::new(4);
    assert_eq!(empty_it(&lan, &mut work), 0);
    assert!(!work.calls.make(&later));
    assert_eq!((lan.sink(1, |kept| kept.rings), work.calls.len()), (2, 0));
}

#[test]
fn memory_for_detours_is_bounded() {
    let lan = Plan::new(300).map();
    let begin = |port: &Arc<Port>| {
        assert!(prepare_detours(), "memory");
        port.begin_detour(Waker::noop().clone(), DetourRoom::Prepared, || ())
    };
    let ports: Vec<Arc<Port>> = (0..300).map(|index| port(&lan, index)).collect();
    let begun = ports.iter().filter(|port| begin(port)).count();
    // Other tests may have detours at the same time.
    assert!((140..=192).contains(&begun), "{begun}");
    assert!(ports.iter().all(|port| ends(port) == DetourEnd::Ended));
    assert!(begin(&ports[299]) && !begin(&ports[299]));
}

/// A capture whose reader has another thread look at a port's backlog.
struct Looks(Mutex<Option<Arc<Port>>>, AtomicUsize);

impl Tap for Looks {
    fn see<'b, 'm: 'b>(&self, _: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>) {
        let Some(port) = self.0.lock().expect("no panic").clone() else { return };
        let (say, hear) = channel();
        std::thread::spawn(move || say.send(port.has_detoured_frames()));
        self.1.fetch_add(usize::from(hear.recv_timeout(PATIENCE).is_ok()), Ordering::Relaxed);
    }

    fn ring(&self) {}
}

/// The kernel may keep the thread that copies them.
#[test]
fn nobody_waits_for_the_backlog_while_frames_are_copied_to_it() {
    let (mut lan, port, _) = detoured(Plan::new(2));
    let looks = Arc::new(Looks(Mutex::new(Some(Arc::clone(&port))), AtomicUsize::new(0)));
    let watch = Watch { taps: vec![Arc::clone(&looks) as Arc<dyn Tap>], ..Watch::default() };
    lan.switch = lan.switch.with_watches([(1, watch)]);
    lan.send(0, &[frame(mac(1), mac(0), 60, 7)]);
    assert_eq!(looks.1.load(Ordering::Relaxed), 1);
    *looks.0.lock().expect("no panic") = None;
    assert!(ends(&port) == DetourEnd::Filled);
    assert_eq!(empty_it(&lan, &mut Workspace::new(4)), 1);
    assert_eq!(ends(&port), DetourEnd::Ended);
}

#[test]
fn a_detour_ends_though_a_sender_fills_it_all_the_time() {
    let (mut lan, port, _) = detoured(Plan::new(2));
    let sent = [frame(mac(1), mac(0), 60, 7)];
    let mut work = Workspace::new(4);
    lan.send(0, &sent);
    assert!(ends(&port) == DetourEnd::Filled);
    port.close_detour(true);
    lan.send(0, &sent);
    assert_eq!(empty_it(&lan, &mut work), 1);
    lan.send(0, &sent);
    assert_eq!(lan.dropped(1, DropReason::ReceiverSlow), 2);
    // The port stays in quarantine.
    port.close_detour(false);
    lan.send(0, &sent);
    port.close_detour(true);
    assert!(ends(&port) == DetourEnd::Filled);
    assert_eq!(empty_it(&lan, &mut work), 1);
    assert_eq!(ends(&port), DetourEnd::Ended);
    lan.send(0, &sent);
    assert_eq!((lan.counters(1).out_frames, lan.dropped(1, DropReason::ReceiverSlow)), (3, 2));
}

#[test]
fn a_detour_without_memory_drops_all_frames_and_touches_nobodys_memory() {
    let mut lan = Plan::new(2).map();
    let port = port(&lan, 1);
    let begin = |room| port.begin_detour(Waker::noop().clone(), room, || ());
    assert!(begin(DetourRoom::Nothing));
    assert!(prepare_detours() && !begin(DetourRoom::Prepared) && !begin(DetourRoom::Spare), "it has one");
    let sent: Vec<Vec<u8>> = (0..600).map(|n| frame(mac(1), mac(0), 1514, n)).collect();
    lan.send(0, &sent);
    assert_eq!(lan.dropped(1, DropReason::ReceiverSlow), 600);
    assert_eq!(lan.sink(1, |kept| kept.rings), 0);
    port.abandon_detour();
    lan.send(0, &sent[..2]);
    assert_eq!(lan.received(1).len(), 2);
}

#[test]
fn the_memory_of_detours_is_used_again_when_none_can_be_mapped() {
    let mut lan = Plan::new(2).map();
    let port = port(&lan, 1);
    assert!(prepare_detours(), "memory");
    for _ in 0..40 {
        assert!(port.begin_detour(Waker::noop().clone(), DetourRoom::Spare, || ()));
        lan.send(0, &[frame(mac(1), mac(0), 60, 7)]);
        assert_eq!(empty_it(&lan, &mut Workspace::new(4)), 1);
        assert_eq!(ends(&port), DetourEnd::Ended);
    }
}

#[test]
fn a_sender_of_few_frames_finds_room_in_a_backlog_beside_one_that_fills_it() {
    let (mut lan, _, _) = detoured(Plan { bytes: 64 << 20, ..Plan::new(3) });
    let flood: Vec<Vec<u8>> = (0..600).map(|n| frame(mac(1), mac(0), 1000, n)).collect();
    let mut work = Workspace::new(256);
    for round in 0..20 {
        lan.send(0, &flood);
        lan.send(2, &[frame(mac(1), mac(2), 1000, round)]);
        empty_it(&lan, &mut work);
    }
    let received = lan.received(1);
    let of = |sender: u32| received.iter().filter(|frame| frame[6..12] == mac(sender).octets()).count();
    assert!(of(2) >= 18 && of(0) >= 20, "{} and {}", of(2), of(0));
    assert_eq!(lan.dropped(1, DropReason::ReceiverSlow), 20 * 601 - received.len() as u64, "under one reason");
}

/// A capture whose reader tries to end a port's detour, while frames are copied to it.
struct Ends(Arc<Port>, Mutex<Vec<DetourEnd>>);

impl Tap for Ends {
    fn see<'b, 'm: 'b>(&self, _: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>) {
        self.1.lock().expect("no panic").push(ends(&self.0));
    }

    fn ring(&self) {}
}

#[test]
fn a_thread_that_copies_frames_keeps_the_detour_and_is_told_from_frames_that_wait() {
    let (mut lan, port, _) = detoured(Plan::new(2));
    let mut work = Workspace::new(4);
    let tap = Arc::new(Ends(Arc::clone(&port), Mutex::default()));
    let watch = Watch { taps: vec![Arc::clone(&tap) as Arc<dyn Tap>], ..Watch::default() };
    lan.switch = lan.switch.with_watches([(1, watch)]);
    // With an empty backlog, and with frames in it: what waits for such a thread is no reason to drop frames of others.
    (0..3).for_each(|number| lan.send(0, &[frame(mac(1), mac(0), 60, number)]));
    assert_eq!(*tap.1.lock().expect("no panic"), [DetourEnd::Used; 3]);
    assert_eq!(ends(&port), DetourEnd::Filled);
    assert_eq!(empty_it(&lan, &mut work), 3, "nothing is lost");
    // A thread that finds the detour closed adds nothing to it.
    lan.send(0, &[frame(mac(1), mac(0), 60, 7)]);
    port.close_detour(true);
    assert_eq!(empty_it(&lan, &mut work), 1);
    assert_eq!(port.end_detour(|| false), DetourEnd::Used, "the caller has a say");
    assert!(port.detour().is_on());
    assert_eq!(ends(&port), DetourEnd::Ended);
}

#[test]
fn detours_of_ports_in_quarantine_leave_memory_for_those_of_relief() {
    let mut lan = Plan::new(300).map();
    let ports: Vec<Arc<Port>> = (1..300).map(|index| port(&lan, index)).collect();
    assert!(prepare_detours(), "memory");
    let refused =
        ports.iter().skip(1).position(|port| !port.begin_detour(Waker::noop().clone(), DetourRoom::Prepared, || ()));
    assert!(refused.is_some_and(|begun| begun < 100), "{refused:?}: no poller maps memory");
    assert!(ports[0].begin_detour(Waker::noop().clone(), DetourRoom::Spare, || ()));
    lan.send(0, &[frame(mac(1), mac(0), 60, 7)]);
    assert_eq!(empty_it(&lan, &mut Workspace::new(4)), 1);
}

#[test]
fn frames_taken_from_an_abandoned_detour_leave_the_next_one_as_it_is() {
    let (mut lan, port, _) = detoured(Plan::new(2));
    lan.send(0, &[frame(mac(1), mac(0), 60, 7)]);
    let taken = port.detour().take().expect("frames");
    port.abandon_detour();
    assert!(port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, || ()));
    port.detour().give_back(taken);
    let taken = port.detour().take().expect("nothing");
    port.detour().give_back(taken);
    lan.send(0, &[frame(mac(1), mac(0), 60, 8)]);
    assert_eq!(lan.dropped(1, DropReason::ReceiverSlow), 1, "it has no memory");
}

/// What pollers read first: whether the port counts as congested.
#[test]
fn frames_are_diverted_as_soon_as_a_detour_is_on_also_if_another_one_has_just_ended() {
    let lan = Plan::new(2).map();
    let port = port(&lan, 1);
    let is_diverted = || port.congestion().is_on(0);
    assert!(port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, || assert!(is_diverted())));
    let (say, hear) = channel();
    std::thread::scope(|scope| {
        let begins = || {
            let port = &port;
            scope.spawn(move || {
                // The first detour has ended for its thread, too, before this one is said to have begun.
                let begun = || hear.recv_timeout(PATIENCE).expect("the first one ends");
                assert!(port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, begun));
            });
            true
        };
        assert_eq!(port.end_detour(begins), DetourEnd::Ended);
        say.send(()).expect("another thread hears");
    });
    assert!(port.detour().is_on() && is_diverted());
    port.set_aside(7);
    assert_eq!(ends(&port), DetourEnd::Ended);
    assert_eq!([0, 6, 7].map(|now| port.congestion().is_on(now)), [true, true, false], "as it was set aside meanwhile");
}
