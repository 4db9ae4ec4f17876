use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use proptest::prelude::*;

use crate::defect::{Defect, PanicLocation, Role};
use crate::testing::{Plan, frame, mac};
use crate::{Bell, CallReason, CallResult, Counters, Frames, Moderation, Output, PendingCalls, Port, PortFault, Time};

const START: u64 = 1_000_000_000;
const INTERVAL: u64 = 1_000_000;

thread_local! {
    static CLOCK: Cell<u64> = const { Cell::new(START) };
}

/// The time of the test's clock, as a poller reads it.
fn now() -> Time {
    let nanoseconds = CLOCK.get();
    Time { nanoseconds, seconds: (nanoseconds / 1_000_000_000) as u32, read: || CLOCK.get() }
}

fn pass_time(nanoseconds: u64) {
    CLOCK.set(CLOCK.get() + nanoseconds);
}

/// A client: the events that it waits for, and the times of its calls.
#[derive(Clone, Default)]
struct Client(Arc<ClientState>);

#[derive(Default)]
struct ClientState {
    awake: AtomicU32,
    busy: AtomicU32,
    /// How long each call holds the next one.
    holds: AtomicU64,
    held_until: AtomicU64,
    calls: Mutex<Vec<(CallReason, u64)>>,
}

impl Bell for Client {
    fn ring(&self, reason: CallReason) -> CallResult {
        if self.0.busy.load(Ordering::Relaxed) > 0 {
            self.0.busy.fetch_sub(1, Ordering::Relaxed);
            return CallResult::Busy;
        }
        if self.0.awake.load(Ordering::Relaxed) > 0 {
            return CallResult::Unwanted;
        }
        self.0.calls.lock().expect("no panics").push((reason, CLOCK.get()));
        let holds = self.0.holds.load(Ordering::Relaxed);
        self.0.held_until.store(if holds == 0 { 0 } else { CLOCK.get() + holds }, Ordering::Relaxed);
        CallResult::Called
    }

    fn held_until(&self) -> u64 {
        self.0.held_until.load(Ordering::Relaxed)
    }
}

impl Output for Client {
    fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        Ok(())
    }
}

impl Client {
    fn port(&self, interval: u64, above: Option<u64>) -> Arc<Port> {
        let port = Arc::new(Port::new("p", Box::new(self.clone()), Box::new(self.clone())));
        moderate(&port, interval, above);
        port
    }

    /// Times of the calls until now, since the start of the test.
    fn calls(&self) -> Vec<u64> {
        self.0.calls.lock().expect("no panics").iter().map(|&(_, at)| at - START).collect()
    }
}

fn moderate(port: &Port, interval: u64, above: Option<u64>) {
    port.set_moderation(Moderation::Fixed { interval: Duration::from_nanos(interval), above });
}

#[test]
fn without_moderation_nothing_is_ever_pending() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    let port = client.port(0, Some(5));
    for _ in 0..3 {
        assert!(!calls.ring(&port, CallReason::Frames, &now()));
    }
    assert_eq!((client.calls(), calls.due()), (vec![0, 0, 0], None));
}

#[test]
fn the_first_call_is_made_at_once_and_one_more_when_the_interval_ends() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    let port = client.port(INTERVAL, None);
    for _ in 0..10 {
        calls.ring(&port, CallReason::Frames, &now());
        pass_time(10);
    }
    assert_eq!((client.calls(), calls.due()), (vec![0], Some(START + INTERVAL)));
    calls.make(&Time { nanoseconds: START + INTERVAL - 1, ..now() });
    assert_eq!(client.calls(), [0], "before its time");
    CLOCK.set(START + INTERVAL);
    calls.make(&now());
    calls.make(&now());
    assert_eq!((client.calls(), calls.due()), (vec![0, INTERVAL], None));
}

#[test]
fn the_interval_begins_when_the_call_was_made_not_when_the_batch_began() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    let port = client.port(INTERVAL, None);
    let batch = now();
    pass_time(INTERVAL / 2);
    calls.ring(&port, CallReason::Frames, &batch);
    calls.ring(&port, CallReason::Frames, &batch);
    assert_eq!(calls.due(), Some(START + INTERVAL / 2 + INTERVAL));
}

#[test]
fn a_client_that_is_awake_is_asked_every_time_and_called_as_soon_as_it_sleeps() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    let port = client.port(INTERVAL, None);
    client.0.awake.store(1, Ordering::Relaxed);
    for _ in 0..5 {
        calls.ring(&port, CallReason::Frames, &now());
        pass_time(10);
    }
    assert_eq!((client.calls(), calls.due()), (vec![], None));
    client.0.awake.store(0, Ordering::Relaxed);
    calls.ring(&port, CallReason::Frames, &now());
    assert_eq!(client.calls(), [50]);
}

#[test]
fn room_and_frames_are_moderated_apart() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    let port = client.port(INTERVAL, None);
    for reason in [CallReason::Room, CallReason::Frames, CallReason::Room, CallReason::Frames] {
        calls.ring(&port, reason, &now());
        pass_time(100);
    }
    assert_eq!((client.calls(), calls.due()), (vec![0, 100], Some(START + INTERVAL)));
    CLOCK.set(START + INTERVAL + 99);
    calls.make(&now());
    assert_eq!((client.calls().len(), calls.due()), (3, Some(START + INTERVAL + 100)));
}

#[test]
fn moderation_begins_above_its_rate_and_ends_below() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    // 10,000 frames per second: 10 per interval.
    let port = client.port(INTERVAL, Some(10_000));
    let mut called_in = |intervals: u64, frames_per_interval: u64| {
        let before = client.calls().len();
        for _ in 0..intervals * frames_per_interval {
            port.counters().add_out(1, 60);
            calls.ring(&port, CallReason::Frames, &now());
            pass_time(INTERVAL / frames_per_interval);
            calls.make(&now());
        }
        client.calls().len() - before
    };
    assert_eq!(called_in(100, 5), 500, "a quiet port is called for every frame");
    assert!(called_in(100, 50) < 100 + 2 * 50 + 2, "a busy one once per interval, after the rate was seen");
    assert!(called_in(100, 5) > 480, "a quiet one again");
}

#[test]
fn an_interval_that_follows_the_traffic_becomes_long_and_short() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    let port = client.port(0, None);
    port.set_moderation(Moderation::Auto);
    let interval = || port.call_intervals()[0];
    let mut sent = |apart: u64, waits: bool| {
        port.counters().add_out(1, 60);
        calls.ring(&port, CallReason::Frames, &now());
        if let Some(due) = calls.due().filter(|_| waits) {
            CLOCK.set(due.max(CLOCK.get()));
        }
        pass_time(apart);
        calls.make(&now());
    };
    assert_eq!(interval(), Duration::ZERO);
    (0..10_000).for_each(|_| sent(10_000, false));
    assert!(!interval().is_zero(), "many frames, whether they are received or not");
    (0..10_000).for_each(|_| sent(10_000, true));
    assert_eq!(interval(), Duration::ZERO, "each frame waits for the call of the one before");
}

#[test]
fn a_quiet_port_is_called_at_once_though_the_pollers_reading_of_the_clock_is_older_than_its_last_call() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    let port = client.port(INTERVAL, Some(10_000));
    let batch = now();
    pass_time(10);
    for called in 1..=3 {
        calls.ring(&port, CallReason::Frames, &batch);
        assert_eq!((client.calls().len(), calls.due()), (called, None));
    }
}

/// A bell that another poller has a reason to ring while it is rung for the first time.
#[derive(Default)]
struct Overlapped {
    port: Mutex<Weak<Port>>,
    other: Mutex<Option<PendingCalls>>,
    calls: AtomicU32,
}

impl Bell for Arc<Overlapped> {
    fn ring(&self, reason: CallReason) -> CallResult {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(mut other) = self.other.lock().expect("no panics").take() {
            let port = self.port.lock().expect("no panics").upgrade().expect("is rung");
            other.ring(&port, reason, &now());
            assert_eq!(other.due(), None, "the poller that is asking sees to it");
        }
        CallResult::Called
    }
}

#[test]
fn news_for_a_quiet_port_that_is_being_called_are_told_without_waiting_for_an_interval() {
    for (above, due) in [(None, INTERVAL), (Some(10_000), 1)] {
        CLOCK.set(START);
        let (bell, mut calls) = (Arc::new(Overlapped::default()), PendingCalls::new());
        let port = Arc::new(Port::new("p", Box::new(Client::default()), Box::new(bell.clone())));
        moderate(&port, INTERVAL, above);
        *bell.port.lock().expect("no panics") = Arc::downgrade(&port);
        *bell.other.lock().expect("no panics") = Some(PendingCalls::new());
        calls.ring(&port, CallReason::Frames, &now());
        assert_eq!(calls.due(), Some(START + due), "{above:?}");
        pass_time(due);
        calls.make(&now());
        assert_eq!((bell.calls.load(Ordering::Relaxed), calls.due()), (2, None));
    }
}

#[test]
fn other_settings_hold_for_what_is_pending_already() {
    for (interval, due) in [(INTERVAL / 2, INTERVAL / 2), (0, 0), (3 * INTERVAL, 3 * INTERVAL)] {
        CLOCK.set(START);
        let (client, mut calls) = (Client::default(), PendingCalls::new());
        let port = client.port(INTERVAL, None);
        calls.ring(&port, CallReason::Frames, &now());
        pass_time(10);
        calls.ring(&port, CallReason::Frames, &now());
        moderate(&port, interval, None);
        // Without `reconsider`, the call is never made early.
        CLOCK.set(START + INTERVAL);
        if interval > INTERVAL {
            calls.make(&now());
        }
        calls.reconsider();
        assert_eq!(calls.due(), Some(START + due));
        CLOCK.set(START + due.max(10));
        calls.make(&now());
        assert_eq!(client.calls(), [0, due.max(10)]);
    }
}

#[test]
fn a_client_that_cannot_be_asked_is_asked_again_soon() {
    for interval in [0, INTERVAL] {
        CLOCK.set(START);
        let (client, mut calls) = (Client::default(), PendingCalls::new());
        let port = client.port(interval, None);
        client.0.busy.store(3, Ordering::Relaxed);
        calls.ring(&port, CallReason::Frames, &now());
        calls.ring(&port, CallReason::Frames, &now());
        while let Some(due) = calls.due() {
            assert!(due > CLOCK.get() && due <= CLOCK.get() + 100_000);
            assert_eq!(calls.len(), 1, "listed once");
            CLOCK.set(due);
            calls.make(&now());
        }
        assert_eq!(client.calls().len(), 1);
    }
}

#[test]
fn all_calls_can_be_made_early_and_a_port_takes_its_own_along() {
    let (client, mut calls) = (Client::default(), PendingCalls::new());
    let (stays, goes) = (client.port(INTERVAL, None), client.port(INTERVAL, None));
    for port in [&stays, &goes, &stays, &goes] {
        calls.ring(port, CallReason::Frames, &now());
    }
    drop(goes);
    calls.make_all(&now());
    assert_eq!((client.calls().len(), calls.due()), (3, None));
}

#[test]
fn a_pass_moderates_its_source_and_its_receivers() {
    let mut lan = Plan::new(3).map();
    for port in [0, 1] {
        moderate(&lan.switch.member(port).expect("a port").port, INTERVAL, None);
    }
    for number in 0..4 {
        lan.send(0, &[frame(mac(1), mac(0), 60, number), frame(mac(2), mac(0), 60, number)]);
    }
    // These bells want no call, so that the port rings each of them every time.
    assert_eq!([0, 1, 2].map(|port| lan.sink(port, |kept| kept.rings)), [4, 4, 4]);
    assert_eq!(lan.work.calls.due(), None);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Ring(usize, CallReason),
    Make(usize),
    Busy,
    Moderate(u64),
    Reconsider,
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let reason = prop_oneof![Just(CallReason::Frames), Just(CallReason::Room)];
    prop_oneof![
        3 => (0..INTERVAL).prop_map(Step::Pass),
        4 => (0..2usize, reason).prop_map(|(poller, reason)| Step::Ring(poller, reason)),
        3 => (0..2usize).prop_map(Step::Make),
        1 => Just(Step::Busy),
        1 => (0..2 * INTERVAL).prop_map(Step::Moderate),
        1 => Just(Step::Reconsider),
        1 => (0..2usize).prop_map(Step::End),
    ]
}

proptest! {
    /// Two pollers bring events and the settings change, in any order: an event without a call to the sleeping client
    /// is on some poller's list, due one interval after the last call at the latest, and each call is listed once.
    #[test]
    fn news_are_told_of_or_listed(steps in prop::collection::vec(step(), 1..60)) {
        CLOCK.set(START);
        let client = Client::default();
        let port = client.port(INTERVAL, None);
        let mut pollers = [PendingCalls::new(), PendingCalls::new()];
        let mut untold = [false; 2];
        let mut interval = INTERVAL;
        for step in steps {
            let before = client.calls().len();
            match step {
                Step::Pass(time) => pass_time(time),
                Step::Ring(poller, reason) => {
                    untold[reason as usize] = true;
                    pollers[poller].ring(&port, reason, &now());
                }
                Step::Make(poller) => drop(pollers[poller].make(&now())),
                Step::Busy => client.0.busy.store(1, Ordering::Relaxed),
                Step::Moderate(time) => {
                    interval = time;
                    moderate(&port, time, None);
                    pollers.iter_mut().for_each(PendingCalls::reconsider);
                }
                Step::Reconsider => pollers.iter_mut().for_each(PendingCalls::reconsider),
                Step::End(poller) => drop(pollers[poller].make_all(&now())),
            }
            for &(reason, _) in &client.0.calls.lock().expect("no panics")[before..] {
                untold[reason as usize] = false;
            }
            let soonest = pollers.iter().filter_map(PendingCalls::due).min();
            if untold.contains(&true) {
                let due = soonest.expect("somebody will tell");
                prop_assert!(due <= CLOCK.get() + interval.max(100_000), "{due} at {} with {interval}", CLOCK.get());
            }
        }
        CLOCK.set(CLOCK.get() + 10 * INTERVAL);
        for _ in 0..2 {
            for poller in &mut pollers {
                poller.make(&now());
            }
            pass_time(10 * INTERVAL);
        }
        let told = client.0.calls.lock().expect("no panics").clone();
        for reason in [CallReason::Frames, CallReason::Room] {
            if untold[reason as usize] {
                prop_assert!(told.iter().any(|&(what, at)| what == reason && at > CLOCK.get() - 21 * INTERVAL));
            }
        }
        prop_assert_eq!(pollers.iter().map(PendingCalls::len).sum::<usize>(), 0);
    }
}

/// A bell that moderates its calls itself: it has a list of due times of its own.
#[derive(Clone, Default)]
struct Moderating(Arc<Mutex<(Vec<u64>, Vec<u64>)>>);

impl Moderating {
    /// Makes the calls that are due, and returns when the next one is.
    fn look(&self) -> CallResult {
        let (events, calls) = &mut *self.0.lock().expect("no panics");
        let due = events.iter().any(|&at| at <= CLOCK.get());
        if due {
            calls.push(CLOCK.get() - START);
        }
        events.retain(|&at| at > CLOCK.get());
        match events.iter().min() {
            Some(&at) => CallResult::Later { due: at, called: due },
            None if due => CallResult::Called,
            None => CallResult::Unwanted,
        }
    }
}

impl Bell for Moderating {
    fn ring(&self, _: CallReason) -> CallResult {
        self.look()
    }

    fn moderate(&self, _: Moderation) -> bool {
        true
    }
}

#[test]
fn a_bell_is_rung_when_it_asked_for_it_and_not_held_back() {
    let (bell, mut calls) = (Moderating::default(), PendingCalls::new());
    let port = Arc::new(Port::new("p", Box::new(Client::default()), Box::new(bell.clone())));
    moderate(&port, INTERVAL, None);
    bell.0.lock().expect("no panics").0.extend([START, START + 10, START + 30]);
    calls.ring(&port, CallReason::Frames, &now());
    assert_eq!(calls.due(), Some(START + 10));
    for _ in 0..4 {
        pass_time(10);
        calls.make(&now());
    }
    assert_eq!((bell.0.lock().expect("no panics").1.clone(), calls.len()), (vec![0, 10, 30], 0));
    assert_eq!(port.counters().read().calls, 3);
}

#[test]
fn what_a_bell_asked_for_is_looked_at_again_when_settings_change() {
    let (bell, mut calls) = (Moderating::default(), PendingCalls::new());
    let port = Arc::new(Port::new("p", Box::new(Client::default()), Box::new(bell.clone())));
    bell.0.lock().expect("no panics").0.push(START + 1_000);
    calls.ring(&port, CallReason::Frames, &now());
    bell.0.lock().expect("no panics").0[0] = START + 5;
    calls.reconsider();
    calls.make(&now());
    assert_eq!(calls.due(), Some(START + 5));
}

/// Rings for both reasons each microsecond, for ten milliseconds, and makes the calls that are due.
fn ring_for_a_while(port: &Arc<Port>, calls: &mut PendingCalls) {
    for _ in 0..10_000 {
        for reason in [CallReason::Frames, CallReason::Room] {
            assert!(!calls.ring(port, reason, &now()));
        }
        pass_time(1_000);
        assert!(!calls.make(&now()));
        // One for each reason, and one that was to come later before calls were no longer held.
        assert!(calls.len() <= 4, "{}", calls.len());
    }
}

#[test]
fn calls_that_cost_too_much_are_held_whatever_the_moderation_is() {
    let fixed = |interval, above| Moderation::Fixed { interval: Duration::from_nanos(interval), above };
    for moderation in [fixed(0, None), fixed(5_000, None), fixed(5_000, Some(u64::MAX)), Moderation::Auto] {
        CLOCK.set(START);
        let (client, mut calls) = (Client::default(), PendingCalls::new());
        let port = Arc::new(Port::new("p", Box::new(client.clone()), Box::new(client.clone())));
        port.set_moderation(moderation);
        ring_for_a_while(&port, &mut calls);
        let before = client.calls().len();
        assert!(before >= 1_000, "{moderation:?}: {before}");
        client.0.holds.store(INTERVAL, Ordering::Relaxed);
        ring_for_a_while(&port, &mut calls);
        // Calls for both reasons may be made at once, after each time, and a further one at first.
        let held = client.calls().len() - before;
        assert!((10..=25).contains(&held), "{moderation:?}: {held}");
        // Settings that change meanwhile change nothing of that.
        port.set_moderation(moderation);
        calls.reconsider();
        ring_for_a_while(&port, &mut calls);
        let still = client.calls().len() - before - held;
        assert!((10..=25).contains(&still), "{moderation:?}: {still}");
        client.0.holds.store(0, Ordering::Relaxed);
        let before = client.calls().len();
        ring_for_a_while(&port, &mut calls);
        assert!(client.calls().len() - before >= 800, "{moderation:?}: calls are not held any more");
    }
}

/// A client that the bell does not call while its calls are held.
#[derive(Clone, Default)]
struct Heeding(Client);

impl Bell for Heeding {
    fn ring(&self, reason: CallReason) -> CallResult {
        if CLOCK.get() < self.held_until() { CallResult::Held { called: false } } else { self.0.ring(reason) }
    }

    fn held_until(&self) -> u64 {
        self.0.held_until()
    }
}

#[test]
fn a_call_that_the_bell_did_not_make_is_made_when_calls_are_no_longer_held() {
    let fixed = |interval| Moderation::Fixed { interval: Duration::from_nanos(interval), above: None };
    for moderation in [fixed(0), fixed(5_000), Moderation::Auto] {
        CLOCK.set(START);
        let (bell, mut calls) = (Heeding::default(), PendingCalls::new());
        let port = Arc::new(Port::new("p", Box::new(bell.0.clone()), Box::new(bell.clone())));
        port.set_moderation(moderation);
        // The port has made no call that told it.
        bell.0.0.held_until.store(START + INTERVAL, Ordering::Relaxed);
        for _ in 0..10 {
            for reason in [CallReason::Frames, CallReason::Room] {
                assert!(!calls.ring(&port, reason, &now()));
            }
            assert_eq!(calls.len(), 2, "{moderation:?}: listed once for each reason");
            pass_time(10);
        }
        while let Some(due) = calls.due() {
            assert!(due <= START + INTERVAL);
            CLOCK.set(due.max(CLOCK.get()));
            calls.make(&now());
        }
        assert_eq!(bell.0.calls(), [INTERVAL; 2], "{moderation:?}");
        calls.ring(&port, CallReason::Frames, &now());
        assert_eq!(port.counters().read().calls, 2 + u64::from(calls.len() == 0));
    }
}

/// A bell that moderates itself: while it is told how, another thread finds that the port is defective.
#[derive(Default)]
struct Retires(Mutex<Weak<Port>>, AtomicU32);

impl Bell for Arc<Retires> {
    fn ring(&self, _: CallReason) -> CallResult {
        self.1.fetch_add(1, Ordering::Relaxed);
        CallResult::Called
    }

    fn moderate(&self, _: Moderation) -> bool {
        if let Some(port) = self.0.lock().expect("no panics").upgrade() {
            port.retire(Defect { role: Role::Receiver, place: PanicLocation::UNKNOWN }, 0);
        }
        false
    }
}

#[test]
fn settings_that_come_while_a_port_is_retired_do_not_have_it_called() {
    let (bell, mut calls) = (Arc::new(Retires::default()), PendingCalls::new());
    let port = Arc::new(Port::new("p", Box::new(Client::default()), Box::new(bell.clone())));
    *bell.0.lock().expect("no panics") = Arc::downgrade(&port);
    moderate(&port, 0, None);
    for reason in [CallReason::Frames, CallReason::Room] {
        assert!(!calls.ring(&port, reason, &now()));
    }
    assert_eq!((bell.1.load(Ordering::Relaxed), calls.len()), (0, 0));
}
