use std::time::Duration;

use super::lists::{Kind, State};
use super::simulation::{Simulation, Slept};
use crate::settings::Idle;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;

#[test]
fn a_round_visits_every_active_port_once() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(20);
    for _ in 0..256 {
        let mut visited = poller.round();
        visited.sort_unstable();
        assert_eq!(visited, ports);
    }
}

#[test]
fn a_port_without_frames_is_parked_after_a_while_and_a_device_sooner() {
    for (kind, visits) in [(Kind::Memory, 257), (Kind::Device, 17)] {
        let mut poller = Simulation::new(true);
        let port = poller.admit(kind);
        for _ in 0..3 {
            let visited = (0..1000).filter(|_| !poller.round().is_empty()).count();
            assert_eq!((visited, poller.state(port)), (visits, State::Parked));
            poller.unpark(port);
            assert_eq!(poller.state(port), State::Active);
        }
        // Frames now and then keep it active.
        for _ in 0..100 {
            poller.client(port).frames = 1;
            (1..visits).for_each(|_| assert_eq!(poller.round(), [port]));
        }
    }
}

#[test]
fn a_round_polls_eight_parked_ports_and_finds_frames_as_soon_as_their_turn_comes() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(64);
    poller.park();
    for port in ports {
        poller.client(port).frames = 1;
        let rounds = 1 + (0..100).take_while(|_| poller.round().is_empty()).count();
        assert!(rounds <= 9, "{rounds} rounds until a visit");
        assert_eq!(poller.client(port).frames, 0);
        // It is parked again before the next one sends.
        poller.park();
    }
}

#[test]
fn a_parked_port_has_its_turn_though_others_leave_the_list_all_the_time() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(64);
    poller.park();
    let last = ports[63];
    poller.client(last).frames = 1;
    // In each round another port is woken, of those that have been polled in this turn.
    let rounds = (0..63).take_while(|&round| {
        poller.unpark(ports[round]);
        !poller.round().contains(&last)
    });
    let rounds = rounds.count();
    assert!(rounds <= 8, "{rounds} rounds without a visit");
}

#[test]
fn a_port_whose_descriptor_wakes_the_poller_is_in_the_next_round() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(100);
    assert_eq!(poller.sleep(), Slept::Until(None));
    for port in ports {
        poller.send(port);
        assert_eq!(poller.round(), [port]);
        assert_eq!(poller.sleep(), Slept::Until(None));
    }
    // An event of a port that is not parked, or of no port, changes nothing.
    let active = poller.admit(Kind::Memory);
    assert!(!poller.schedule.unpark(active, poller.now) && !poller.schedule.unpark(12345, poller.now));
    poller.schedule.check();
}

#[test]
fn a_resting_port_is_skipped_until_its_time_and_the_poller_does_not_sleep_meanwhile() {
    let mut poller = Simulation::new(true);
    let port = poller.admit(Kind::Memory);
    let device = poller.admit(Kind::Device);
    // Its driver sends more if the poller waits, so pacing soon begins.
    let until = (0..100_000).find_map(|_| {
        poller.client(port).frames = 64;
        poller.client(device).frames = 1;
        poller.round();
        poller.now += MICROSECOND;
        match poller.state(port) {
            State::Resting(until) => Some(until),
            _ => None,
        }
    });
    let until = until.expect("a wait is tried");
    assert!(until > poller.now);
    poller.now = until - 1;
    assert_eq!(poller.round(), [device]);
    for idle in [Idle::Spin, Idle::Adaptive(Duration::ZERO), Idle::Sleep] {
        assert!(!poller.may_sleep(idle));
    }
    poller.now = until;
    assert_eq!(poller.round(), [port, device]);
    assert!(poller.may_sleep(Idle::Sleep));
}

#[test]
fn without_pacing_no_port_rests() {
    let mut poller = Simulation::new(false);
    let port = poller.admit(Kind::Memory);
    for _ in 0..100_000 {
        poller.client(port).frames = 64;
        assert_eq!(poller.round(), [port]);
        poller.now += MICROSECOND;
    }
}

#[test]
fn a_port_whose_frames_a_limit_holds_is_visited_again_when_they_may_pass() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(3);
    let times = [30, 10, 20];
    for (&port, time) in ports.iter().zip(times) {
        poller.send_held(port, time);
    }
    let start = poller.now;
    assert_eq!(poller.round().len(), 3);
    for (&port, time) in ports.iter().zip(times) {
        assert_eq!(poller.state(port), State::Waiting(start + time));
    }
    for port in [1, 2, 0].map(|n: usize| ports[n]) {
        let Slept::Until(Some(until)) = poller.sleep() else { panic!("it sleeps until one is due") };
        poller.now = until - 1;
        assert_eq!(poller.round(), [0_usize; 0]);
        poller.now = until;
        poller.client(port).held = None;
        assert_eq!(poller.round(), [port]);
        assert_eq!(poller.client(port).frames, 0);
    }
    assert_eq!((poller.now, poller.sleep()), (start + 30, Slept::Until(None)));
}

#[test]
fn a_new_limit_holds_for_ports_that_wait_already_but_not_for_those_that_are_set_aside() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(2);
    for &port in &ports {
        poller.send_held(port, u64::MAX / 2);
    }
    poller.round();
    let aside = poller.now + MILLISECOND;
    poller.schedule.set_aside(ports[1], aside);
    assert_eq!(poller.schedule.resume_all(poller.now), [ports[0]]);
    assert_eq!([0, 1].map(|n| poller.state(ports[n])), [State::Active, State::Waiting(aside)]);
    poller.schedule.check();
    poller.now = aside;
    assert_eq!(poller.schedule.resume_all(poller.now), [ports[1]]);
}

#[test]
fn a_port_that_is_set_aside_is_not_visited_before_its_time() {
    let mut poller = Simulation::new(true);
    let [parked, waiting] = [poller.admit(Kind::Memory), poller.admit(Kind::Memory)];
    poller.send_held(waiting, MICROSECOND);
    poller.round();
    poller.sleep();
    let aside = poller.now + MILLISECOND;
    poller.schedule.set_aside(parked, aside);
    poller.schedule.set_aside(waiting, aside);
    // A shorter time does not end it.
    poller.schedule.set_aside(parked, aside - 1);
    assert_eq!(poller.schedule.set_aside_until(parked, aside - 1), Some(aside));
    assert_eq!(poller.schedule.set_aside_until(parked, aside), None);
    poller.send(parked);
    assert_eq!(poller.state(parked), State::Waiting(aside));
    poller.now += MICROSECOND;
    assert_eq!(poller.round(), [0_usize; 0]);
    assert_eq!(poller.state(waiting), State::Waiting(aside), "the limit would let its frames pass now");
    assert_eq!(poller.sleep(), Slept::Until(Some(aside)));
    poller.now = aside;
    poller.client(waiting).held = None;
    let mut visited = poller.round();
    visited.sort_unstable();
    assert_eq!(visited, [parked, waiting]);
}

#[test]
fn a_port_that_waits_at_once_leaves_the_active_or_the_parked_ports() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(3);
    poller.sleep();
    poller.unpark(ports[0]);
    let until = poller.now + MILLISECOND;
    for &port in &ports[..2] {
        poller.schedule.wait(port, until);
        assert_eq!(poller.state(port), State::Waiting(until));
    }
    // A port that waits already keeps its time.
    poller.schedule.wait(ports[0], until + 1);
    assert_eq!(poller.state(ports[0]), State::Waiting(until));
    poller.schedule.check();
    assert_eq!(poller.state(ports[2]), State::Parked);
}

#[test]
fn each_waiting_port_is_checked_for_events_in_turn() {
    let mut poller = Simulation::new(true);
    assert_eq!(poller.schedule.next_waiting(), None);
    let ports = poller.admit_many(5);
    let until = poller.now + MILLISECOND;
    ports.iter().for_each(|&port| poller.schedule.wait(port, until));
    let mut checked: Vec<usize> = (0..5).filter_map(|_| poller.schedule.next_waiting()).collect();
    checked.sort_unstable();
    assert_eq!(checked, ports);
    let mut all: Vec<usize> = (0..).map_while(|place| poller.schedule.waiting(place)).collect();
    all.sort_unstable();
    assert_eq!(all, ports);
}

#[test]
fn falling_asleep_arms_only_the_ports_that_were_active_since_the_last_sleep() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(1000);
    let armed = |poller: &mut Simulation| {
        let mut arming = Default::default();
        std::iter::from_fn(|| poller.schedule.next_to_arm(&mut arming).filter(|&slot| poller.schedule.arm(slot)))
            .count()
    };
    assert_eq!(armed(&mut poller), 1000);
    poller.schedule.park_all();
    assert_eq!(armed(&mut poller), 0);
    for &port in &ports[..3] {
        assert!(poller.schedule.unpark(port, poller.now) && poller.schedule.disarm(port));
    }
    assert_eq!(armed(&mut poller), 3);
    poller.schedule.park_all();
    // Parked while the poller was awake, and so not armed.
    let late = poller.admit(Kind::Memory);
    poller.park();
    assert_eq!(poller.state(late), State::Parked);
    assert_eq!(poller.schedule.next_to_arm(&mut Default::default()), Some(late));
    assert_eq!(armed(&mut poller), 1);
    poller.schedule.check();
}

#[test]
fn a_port_without_an_input_is_tried_once_before_each_sleep() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(3);
    poller.client(ports[1]).has_no_input = true;
    for _ in 0..3 {
        assert_eq!(poller.sleep(), Slept::Until(None));
        poller.schedule.check();
    }
    let mut arming = Default::default();
    assert_eq!(poller.schedule.next_to_arm(&mut arming), Some(ports[1]));
    assert_eq!(poller.schedule.next_to_arm(&mut arming), None);
    // Its input is there.
    poller.client(ports[1]).has_no_input = false;
    poller.client(ports[1]).frames = 1;
    assert_eq!(poller.sleep(), Slept::Awake(ports[1]));
}

#[test]
fn a_port_that_has_frames_when_it_is_armed_keeps_the_poller_awake_and_the_active_ports_unarmed() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(4);
    poller.sleep();
    [0, 1].into_iter().for_each(|n| poller.unpark(ports[n]));
    // An active one; then one that was parked while the poller was awake.
    poller.client(ports[1]).frames = 1;
    assert_eq!(poller.sleep(), Slept::Awake(ports[1]));
    assert!([0, 1].iter().all(|&n| !poller.schedule.is_armed(ports[n])));
    assert!([2, 3].iter().all(|&n| poller.schedule.is_armed(ports[n])));
    poller.park();
    poller.unpark(ports[2]);
    poller.client(ports[0]).frames = 1;
    assert_eq!(poller.sleep(), Slept::Awake(ports[0]));
    assert_eq!(poller.state(ports[0]), State::Active);
    assert!([0, 2].iter().all(|&n| !poller.schedule.is_armed(ports[n])));
    assert!(poller.round().contains(&ports[0]));
}

#[test]
fn a_sleeping_poller_polls_ports_that_cannot_kick_and_only_those() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(3);
    poller.client(ports[1]).cannot_kick = true;
    let Slept::Until(Some(until)) = poller.sleep() else { panic!("it polls at intervals") };
    assert_eq!(until - poller.now, 100 * MICROSECOND);
    assert_eq!(ports.iter().map(|&port| poller.state(port)).collect::<Vec<_>>(), {
        [State::Parked, State::Polled, State::Parked]
    });
    // The longer there is no work, the longer the intervals are.
    poller.now += 512 * MILLISECOND;
    assert_eq!(poller.wake(), [ports[1]]);
    let Slept::Until(Some(until)) = poller.sleep() else { panic!("it polls at intervals") };
    assert_eq!(until - poller.now, 2 * MILLISECOND);
    poller.send(ports[1]);
    assert_eq!(poller.state(ports[1]), State::Polled, "no kick tells of the frame");
    poller.now = until;
    poller.wake();
    // Once it can kick again it is not polled any more.
    poller.client(ports[1]).cannot_kick = false;
    assert_eq!(poller.round(), [ports[1]]);
    assert_eq!(poller.sleep(), Slept::Until(None));
}

#[test]
fn events_neither_poll_the_ports_that_cannot_kick_nor_put_their_poll_off() {
    let mut poller = Simulation::new(true);
    let silent = poller.admit_many(100);
    silent.iter().for_each(|&port| poller.client(port).cannot_kick = true);
    let busy = poller.admit(Kind::Memory);
    let (start, mut polls, mut last) = (poller.now, 0, poller.now);
    // Events come more often than the shortest interval.
    for _ in 0..1000 {
        let Slept::Until(Some(until)) = poller.sleep() else { panic!("the poller polls at intervals") };
        assert!(until <= last + 100 * MICROSECOND, "a poll was put off to {until}");
        let event = poller.now + 30 * MICROSECOND;
        poller.now = until.min(event);
        if poller.now == event {
            poller.send(busy);
        }
        let polled = poller.wake();
        if poller.now == until {
            assert_eq!(polled, silent);
            (polls, last) = (polls + 1, poller.now);
        } else {
            assert_eq!(polled, [0_usize; 0]);
        }
        poller.round();
    }
    let passed = poller.now - start;
    assert!(polls > 0 && polls <= passed / (100 * MICROSECOND), "{polls} polls in {passed} ns");
}

#[test]
fn the_earlier_of_a_poll_and_of_a_waiting_ports_time_wakes_the_poller() {
    for (held, expected) in [(MILLISECOND, 100 * MICROSECOND), (MICROSECOND, MICROSECOND)] {
        let mut poller = Simulation::new(true);
        let [silent, waiting] = [poller.admit(Kind::Memory), poller.admit(Kind::Memory)];
        poller.client(silent).cannot_kick = true;
        poller.schedule.wait(waiting, poller.now + held);
        assert_eq!(poller.sleep(), Slept::Until(Some(poller.now + expected)));
    }
}

#[test]
fn idle_policies_let_the_poller_sleep_never_after_a_time_or_at_once() {
    let mut poller = Simulation::new(true);
    poller.admit(Kind::Memory);
    poller.round();
    let adaptive = Idle::Adaptive(Duration::from_micros(50));
    for (passed, expected) in [(0, [false, false, true]), (49_999, [false, false, true]), (1, [false, true, true])] {
        poller.now += passed;
        assert_eq!([Idle::Spin, adaptive, Idle::Sleep].map(|idle| poller.may_sleep(idle)), expected);
    }
}

#[test]
fn a_removed_port_leaves_nothing_behind_for_the_next_in_its_slot() {
    for park in [false, true] {
        let mut poller = Simulation::new(true);
        let ports = poller.admit_many(4);
        poller.client(ports[3]).cannot_kick = true;
        if park {
            poller.sleep();
        }
        poller.schedule.wait(ports[0], poller.now + MILLISECOND);
        poller.schedule.set_aside(ports[2], poller.now + MILLISECOND);
        for &port in &ports {
            poller.remove(port);
            poller.schedule.remove(port);
            poller.schedule.check();
        }
        assert_eq!(poller.round(), [0_usize; 0]);
        assert_eq!(poller.sleep(), Slept::Until(None));
        let mut again = poller.admit_many(4);
        again.sort_unstable();
        assert_eq!(again, ports);
        assert_eq!(poller.schedule.slots(), 4);
        assert_eq!(poller.round().len(), 4);
        assert!(again.iter().all(|&port| poller.state(port) == State::Active && !poller.schedule.is_armed(port)));
    }
}

#[test]
fn after_a_panic_every_port_is_active_but_those_that_wait() {
    let mut poller = Simulation::new(true);
    let ports = poller.admit_many(6);
    poller.client(ports[1]).cannot_kick = true;
    poller.sleep();
    poller.unpark(ports[0]);
    let until = poller.now + MILLISECOND;
    poller.schedule.wait(ports[2], until);
    poller.remove(ports[3]);
    poller.schedule.rebuild();
    let active = [0, 1, 4, 5].map(|n| ports[n]);
    active.into_iter().for_each(|port| poller.disarm(port));
    poller.schedule.check();
    assert!(active.iter().all(|&port| poller.state(port) == State::Active && poller.schedule.is_active(port)));
    assert_eq!(poller.state(ports[2]), State::Waiting(until));
    assert_eq!(poller.round(), active);
    assert_eq!(poller.admit(Kind::Memory), ports[3]);
    poller.now = until;
    assert_eq!(poller.round().len(), 6);
}
