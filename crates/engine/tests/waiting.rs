//! A poller waits for an input that another poller holds.

#![cfg(not(loom))]

mod support;

use std::time::Duration;

use ringway_engine::{Engine, EngineSettings, Idle};
use support::{DEADLINE, Lan, lock};

#[test]
fn a_poller_sleeps_while_another_has_its_input_and_is_woken_when_it_is_there() {
    let idles = [Idle::Sleep, Idle::Adaptive(Duration::from_micros(50))];
    for (idle, devices) in idles.into_iter().flat_map(|idle| [(idle, 0), (idle, 1)]) {
        let settings = EngineSettings { cores: support::cpus(3), idle, ..EngineSettings::default() };
        let engine = Engine::start(&settings).expect("pollers");
        let lan = Lan::with_devices(2, usize::MAX, devices);
        let [from, to] = [&lan.stations[0], &lan.stations[1]];
        engine.publish(lan.topology(|_| 0, |_| 1));
        from.send(1, 0);
        assert_eq!(to.receive(DEADLINE).expect("a call").0.len(), 1);

        // The first poller is blocked inside the port's input.
        let held = lock(&from.hold);
        from.send(1, 1);
        support::wait_until("the frame is being taken", || from.is_being_taken());
        // Two other pollers wait for the input, one after the other. The last topology gives it to the second one.
        for poller in [1, 2] {
            let sleeps = engine.readings()[poller].sleeps;
            engine.publish(lan.topology(|port| if port == 0 { poller } else { 0 }, |_| 1));
            support::wait_until("the poller sleeps", || engine.readings()[poller].sleeps > sleeps);
        }
        // An event that comes while the poller has no input does not concern it.
        from.send(1, 2);
        support::wait_until_it_stays_asleep("poller2");

        drop(held);
        let mut received = Vec::new();
        while received.len() < 2 {
            let (some, _) = to.receive(DEADLINE).expect("the port is served");
            received.extend(some.into_iter().map(|frame| frame.number));
        }
        assert_eq!(received, [1, 2]);
        support::wait_until("pollers have adopted", || engine.is_settled());
        let passes = engine.readings()[2].passes;
        from.send(1, 3);
        assert_eq!(to.receive(DEADLINE).expect("a call").0[0].number, 3);
        support::wait_until("the third poller serves the port", || engine.readings()[2].passes > passes);
    }
}
