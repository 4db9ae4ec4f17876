//! Frames and calls in the backlog of a port in quarantine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::testing::{Lan, Plan, frame, mac, number};
use crate::{DropReason, Mac, Moderation, Port, Time, Workspace, empty, pass};

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
    assert!(port.begin_detour(Waker::from(Arc::clone(&woken))));
    (lan, port, woken)
}

/// Empties the backlog of port 1, as the port's own thread does.
fn empty_it(lan: &Lan, work: &mut Workspace) -> u64 {
    work.calls.serve_detours();
    let emptied = empty(lan.switch.member(1).expect("a port"), work, &Time::at_second(1));
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
    assert!(port.has_detoured_frames() && !port.may_sleep() && !port.end_detour());
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

    assert!(port.end_detour());
    lan.send(0, &sent);
    assert_eq!(lan.received(1).len(), 1 + sent.len(), "as before");
    assert_eq!(lan.counters(1).drops().count(), 0);
    assert_eq!(lan.counters(1).out_frames, 2 * sent.len() as u64 + 2);
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
    assert!(port.begin_detour(Waker::from(Arc::clone(&woken))));
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
    let begin = |port: &Arc<Port>| port.begin_detour(Waker::noop().clone());
    let ports: Vec<Arc<Port>> = (0..300).map(|index| port(&lan, index)).collect();
    let begun = ports.iter().filter(|port| begin(port)).count();
    // Other tests may have detours at the same time.
    assert!((200..=256).contains(&begun), "{begun}");
    assert!(ports.iter().filter(|port| port.end_detour()).count() >= begun);
    assert!(begin(&ports[299]) && !begin(&ports[299]));
}
