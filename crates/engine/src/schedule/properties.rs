//! Property tests of the schedule.

use proptest::prelude::*;

use super::lists::{Kind, State};
use super::simulation::{Simulation, Slept};

/// A random step. A number selects one of the ports.
#[derive(Clone, Debug)]
enum Step {
    Admit(bool),
    Remove(usize),
    /// Frames arrive, with a kick if the poller asked for one.
    Send(usize),
    /// A limit holds back the frames of the next visits for this many nanoseconds, or not at all.
    Hold(usize, Option<u64>),
    SetAside(usize, u64),
    CannotKick(usize, bool),
    HasNoInput(usize, bool),
    /// An event without frames.
    Event(usize),
    Rounds(u32),
    /// Time passes.
    Pass(u64),
    /// The poller tries to sleep. It wakes after this time, or earlier if something is due.
    Sleep(u64),
    NewLimits,
    Panic,
}

fn step() -> impl Strategy<Value = Step> {
    let time = || prop_oneof![0u64..100, 1_000u64..10_000_000];
    prop_oneof![
        3 => any::<bool>().prop_map(Step::Admit),
        1 => any::<usize>().prop_map(Step::Remove),
        6 => any::<usize>().prop_map(Step::Send),
        2 => (any::<usize>(), proptest::option::of(time())).prop_map(|(port, time)| Step::Hold(port, time)),
        2 => (any::<usize>(), time()).prop_map(|(port, time)| Step::SetAside(port, time)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(port, on)| Step::CannotKick(port, on)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(port, on)| Step::HasNoInput(port, on)),
        2 => any::<usize>().prop_map(Step::Event),
        4 => prop_oneof![1u32..20, 250u32..300].prop_map(Step::Rounds),
        3 => time().prop_map(Step::Pass),
        4 => time().prop_map(Step::Sleep),
        1 => Just(Step::NewLimits),
        1 => Just(Step::Panic),
    ]
}

/// Runs one round, and checks that it visits every due port once and no other port.
fn checked_round(poller: &mut Simulation) {
    let states: Vec<(usize, State)> = poller.clients.keys().map(|&slot| (slot, poller.state(slot))).collect();
    let aside: Vec<usize> = (states.iter().map(|&(slot, _)| slot))
        .filter(|&slot| poller.schedule.set_aside_until(slot, poller.now).is_some())
        .collect();
    let mut visited = poller.round();
    visited.sort_unstable();
    assert!(visited.windows(2).all(|pair| pair[0] < pair[1]), "visited twice: {visited:?}");
    for (slot, state) in states {
        let is_visited = visited.contains(&slot);
        match state {
            State::Active => assert!(is_visited, "slot {slot} is active"),
            State::Waiting(until) if until <= poller.now && !aside.contains(&slot) => {
                assert!(is_visited, "slot {slot} waited until {until}, it is {}", poller.now);
            }
            State::Resting(_) | State::Parked | State::Polled | State::Waiting(_) => {
                assert!(!is_visited, "slot {slot} is {state:?}");
            }
        }
    }
}

/// Checks the invariants between two steps.
fn check(poller: &Simulation) {
    poller.schedule.check();
    for (&slot, client) in &poller.clients {
        // No wake-up is lost: a parked port is polled, announces frames by its descriptor, or is armed before the
        // poller sleeps.
        if client.kind == Kind::Memory && poller.schedule.is_armed(slot) {
            let silent = client.frames > 0 && !client.cannot_kick && !client.has_no_input;
            let parked = matches!(poller.state(slot), State::Parked);
            assert!(
                !(silent && parked),
                "slot {slot} has frames, is parked and armed, and the poller does not know: {client:?}"
            );
        }
    }
}

fn happen(poller: &mut Simulation, step: Step) {
    let slots: Vec<usize> = poller.clients.keys().copied().collect();
    let named = |number: usize| slots.get(number % slots.len().max(1)).copied();
    match step {
        Step::Admit(device) => {
            poller.admit(if device { Kind::Device } else { Kind::Memory });
        }
        Step::NewLimits => {
            for slot in poller.schedule.resume_all(poller.now) {
                poller.disarm(slot);
            }
        }
        Step::Panic => {
            poller.schedule.rebuild();
            for slot in slots {
                if poller.schedule.is_active(slot) {
                    poller.disarm(slot);
                }
            }
        }
        Step::Rounds(rounds) => (0..rounds).for_each(|_| checked_round(poller)),
        Step::Pass(time) => poller.now += time,
        Step::Sleep(time) => match poller.sleep() {
            Slept::Awake(slot) => assert!(poller.clients[&slot].frames > 0),
            Slept::Until(until) => {
                check(poller);
                poller.now = until.map_or(poller.now + time, |until| until.clamp(poller.now, poller.now + time));
                poller.wake();
            }
        },
        Step::Remove(number) => named(number).into_iter().for_each(|slot| poller.remove(slot)),
        Step::Send(number) => named(number).into_iter().for_each(|slot| poller.send(slot)),
        Step::Event(number) => named(number).into_iter().for_each(|slot| poller.unpark(slot)),
        Step::Hold(number, held) => named(number).into_iter().for_each(|slot| poller.client(slot).held = held),
        Step::SetAside(number, time) => {
            let until = poller.now + time;
            named(number).into_iter().for_each(|slot| poller.schedule.set_aside(slot, until));
        }
        // Only for a port that is not armed: the poller asks while it arms a port.
        Step::CannotKick(number, on) => {
            let slot = named(number).filter(|&slot| !poller.schedule.is_armed(slot));
            slot.into_iter().for_each(|slot| poller.client(slot).cannot_kick = on);
        }
        // When an input comes back, its port is visited.
        Step::HasNoInput(number, on) => {
            if let Some(slot) = named(number).filter(|&slot| !poller.schedule.is_armed(slot)) {
                poller.client(slot).has_no_input = on;
                if !on {
                    poller.unpark(slot);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn whatever_happens_no_port_is_lost_and_every_frame_is_taken(
        pacing in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut poller = Simulation::new(pacing);
        for step in steps {
            happen(&mut poller, step);
            check(&poller);
        }
        // From now on nothing holds frames back. First without passing time: polls and kicks find the frames.
        let slots: Vec<usize> = poller.clients.keys().copied().collect();
        for &slot in &slots {
            poller.client(slot).held = None;
            poller.client(slot).has_no_input = false;
            poller.unpark(slot);
            poller.client(slot).frames += 1;
        }
        let all = slots.len().div_ceil(8) + 2;
        (0..all).for_each(|_| checked_round(&mut poller));
        for &slot in &slots {
            let left = poller.clients[&slot].frames;
            let state = poller.state(slot);
            let is_due = matches!(state, State::Active | State::Parked | State::Polled);
            prop_assert!(left == 0 || !is_due, "slot {slot} is {state:?} and has {left} frames");
        }
        // Then the poller sleeps repeatedly until something is due, for longer than any port is held or set aside.
        let end = poller.now + 20_000_000;
        while poller.now < end {
            match poller.sleep() {
                Slept::Awake(_) => poller.now += 1_000,
                Slept::Until(Some(until)) => {
                    poller.now = poller.now.max(until);
                    poller.wake();
                }
                Slept::Until(None) => break,
            }
            checked_round(&mut poller);
        }
        for &slot in &slots {
            prop_assert_eq!(poller.clients[&slot].frames, 0, "slot {} is {:?}", slot, poller.state(slot));
        }
    }

    #[test]
    fn frames_of_a_parked_port_are_found_in_bounded_rounds(ports in 1usize..200, rounds in 0u32..30, chosen in any::<usize>()) {
        let mut poller = Simulation::new(true);
        let slots = poller.admit_many(ports);
        poller.park();
        (0..rounds).for_each(|_| checked_round(&mut poller));
        let slot = slots[chosen % ports];
        poller.client(slot).frames = 1;
        let took = (1..1000).find(|_| poller.round() == [slot]).expect("it is visited");
        prop_assert!(took <= ports.div_ceil(8) + 1, "{took} rounds for {ports} ports");
    }

    #[test]
    fn a_waiting_port_is_visited_at_its_time(times in proptest::collection::vec(1u64..1_000_000, 1..50)) {
        let mut poller = Simulation::new(true);
        let start = poller.now;
        let slots = poller.admit_many(times.len());
        for (&slot, &time) in slots.iter().zip(&times) {
            poller.schedule.wait(slot, start + time);
        }
        let mut expected: Vec<(u64, usize)> = times.iter().copied().zip(slots.iter().copied()).collect();
        expected.sort_unstable();
        let mut seen = Vec::new();
        while let Slept::Until(Some(until)) = poller.sleep() {
            prop_assert!(until > poller.now);
            poller.now = until;
            let mut visited = poller.round();
            visited.sort_unstable();
            seen.extend(visited.into_iter().map(|slot| (until - start, slot)));
        }
        prop_assert_eq!(seen, expected);
    }
}
