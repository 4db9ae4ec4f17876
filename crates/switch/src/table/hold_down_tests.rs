//! Addresses that two ports use in alternation, machines that move, and floods of moves.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use super::hold_down::{HoldDown, LONGEST_SECONDS, MEMORY_SECONDS, MOST};
use crate::testing::{Plan, frame, mac};
use crate::{Learned, Mac, MacTable, Owner};

const HOME: Owner = Owner::new(0, 0);
const OTHER: Owner = Owner::new(1, 0);
const THIRD: Owner = Owner::new(2, 0);

fn table() -> MacTable {
    MacTable::new(8192, u32::MAX, [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344])
}

fn learn(table: &MacTable, mac: Mac, owner: Owner, now: u32) -> Learned {
    table.learn(mac, owner, now, |_| true)
}

/// Moves the address away from its home as often as the hold-down allows within a number of seconds; it returns at once
/// each time. Returns the seconds from each move to the next.
fn intervals(table: &MacTable, mac: Mac, seconds: std::ops::Range<u32>) -> Vec<u32> {
    let mut taken = Vec::new();
    for now in seconds {
        if learn(table, mac, OTHER, now) == Learned::Moved(HOME) {
            taken.push(now);
            assert_eq!(learn(table, mac, HOME, now), Learned::Moved(OTHER), "home at once");
        }
    }
    taken.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn ten_thousand_frames_of_one_address_from_two_ports_by_turns_move_it_a_few_times() {
    let mut lan = Plan::new(3).learning();
    // A thousand frames a second.
    for number in 0..10_000 {
        lan.now = 1 + number / 1000;
        lan.send((number % 2) as u16, &[frame(mac(2), mac(50), 60, number)]);
        assert_eq!(lan.received(2).len(), 1, "frame {number} is forwarded all the same");
    }
    // Away from port 0 in seconds 1, 2, 4 and 8, and back each time.
    let (moved, held) = (lan.switch.table().moved(), lan.switch.table().moves_held());
    assert_eq!((moved, held), (8, 5000 - 4));
    assert_eq!(
        (lan.counters(0).moves_held, lan.counters(1).moves_held),
        (0, held),
        "counted at the port that was refused"
    );
    assert_eq!(lan.switch.table().moves()[0].held, held);
    assert!(lan.switch.table().moves()[0].is_duplicate);
}

#[test]
fn a_machine_that_moves_is_found_at_its_new_port_at_once_and_at_the_next_after_a_second() {
    let table = table();
    learn(&table, mac(1), HOME, 10);
    assert_eq!(learn(&table, mac(1), OTHER, 10), Learned::Moved(HOME));
    assert_eq!(learn(&table, mac(1), THIRD, 10), Learned::Held);
    assert_eq!(table.lookup(mac(1)), Some(OTHER));
    assert_eq!(learn(&table, mac(1), THIRD, 11), Learned::Moved(OTHER));
    assert_eq!(table.lookup(mac(1)), Some(THIRD));
    assert_eq!((table.moved(), table.moves_held()), (2, 1));
    // Other addresses are not held for that, nor is the same address in a VLAN.
    for n in 2..100 {
        learn(&table, mac(n), HOME, 11);
        assert_eq!(learn(&table, mac(n), OTHER, 11), Learned::Moved(HOME), "station {n}");
    }
    table.learn_in(7, mac(1), HOME, 11, |_| true);
    assert_eq!(table.learn_in(7, mac(1), OTHER, 11, |_| true), Learned::Moved(HOME));
}

#[test]
fn an_address_that_is_taken_from_its_home_by_one_frame_comes_back_with_its_next_frame() {
    let table = table();
    learn(&table, mac(1), HOME, 1);
    for now in 1..1000 {
        learn(&table, mac(1), OTHER, now);
        learn(&table, mac(1), HOME, now);
        assert_eq!(table.lookup(mac(1)), Some(HOME), "in second {now}");
    }
}

#[test]
fn a_hold_down_doubles_up_to_a_minute_and_is_forgotten_after_a_minute_without_moves() {
    for (quiet, next) in
        [(LONGEST_SECONDS + MEMORY_SECONDS - 1, LONGEST_SECONDS), (LONGEST_SECONDS + MEMORY_SECONDS, 1)]
    {
        let table = table();
        learn(&table, mac(1), HOME, 1);
        assert_eq!(
            intervals(&table, mac(1), 1..250),
            [1, 2, 4, 8, 16, 32, LONGEST_SECONDS, LONGEST_SECONDS, LONGEST_SECONDS]
        );
        let last = 1 + 63 + 3 * LONGEST_SECONDS;
        assert_eq!(
            intervals(&table, mac(1), last + quiet..last + quiet + LONGEST_SECONDS + 1)[0],
            next,
            "after {quiet} s"
        );
    }
}

#[test]
fn an_address_that_moves_once_a_minute_is_never_held() {
    let table = table();
    learn(&table, mac(1), HOME, 1);
    for round in 0..100 {
        let to = [OTHER, THIRD][round as usize % 2];
        assert!(matches!(learn(&table, mac(1), to, 1 + round * LONGEST_SECONDS), Learned::Moved(_)), "move {round}");
    }
}

#[test]
fn a_port_that_went_and_one_that_has_all_its_addresses_hold_down_nothing() {
    let table = MacTable::new(1024, 1, [1, 2]);
    learn(&table, mac(1), HOME, 1);
    learn(&table, mac(2), OTHER, 1);
    assert_eq!(learn(&table, mac(1), OTHER, 1), Learned::PortLimit);
    assert_eq!(learn(&table, mac(1), THIRD, 1), Learned::Moved(HOME), "that was the first move");
    let without_third = |owner: Owner| owner != THIRD;
    assert_eq!(table.learn(mac(1), Owner::new(3, 0), 1, without_third), Learned::New, "the port went");
    assert_eq!(table.moves_held(), 0);
}

#[test]
fn many_addresses_that_move_neither_hold_down_others_nor_free_one_that_moves_all_the_time() {
    let table = table();
    learn(&table, mac(1), HOME, 1);
    assert_eq!(intervals(&table, mac(1), 1..100).len(), 6);
    // It moved in second 64, and is held until second 124.
    let many = 10 * MOST as u32;
    for n in 0..many {
        learn(&table, mac(1000 + n), HOME, 100);
    }
    for now in 100..120 {
        for n in 0..many {
            let to = Owner::new(10 + (now % 2) as u16, 0);
            learn(&table, mac(1000 + n), to, now);
        }
        learn(&table, mac(100_000 + now), HOME, now);
        assert_eq!(learn(&table, mac(100_000 + now), OTHER, now), Learned::Moved(HOME), "in second {now}");
        assert_eq!(learn(&table, mac(1), OTHER, now), Learned::Held, "in second {now}");
    }
}

#[test]
fn no_more_addresses_are_remembered_than_there_is_room_for() {
    let hold_down = HoldDown::new();
    let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 29;
    for n in 1..100_000 {
        assert!(hold_down.admits(mixed(n), HOME, OTHER, 1), "the first move of each is free");
    }
    let held = (1..100_000).filter(|&n| !hold_down.admits(mixed(n), OTHER, THIRD, 1)).count();
    assert!((1..=MOST).contains(&held), "{held} were remembered");
}

#[test]
fn a_clock_that_wraps_or_is_a_little_behind_holds_an_address_no_longer() {
    let wrap = 1 << 24;
    for first in [5, wrap - 1, wrap, u32::MAX - 1] {
        let hold_down = HoldDown::new();
        assert!(hold_down.admits(77, HOME, OTHER, first));
        for behind in 0..3 {
            assert!(!hold_down.admits(77, OTHER, THIRD, first - behind), "{first} - {behind}");
        }
        assert!(hold_down.admits(77, OTHER, THIRD, first.wrapping_add(1)), "{first}");
    }
}

#[test]
fn of_two_pollers_that_move_an_address_at_one_moment_one_is_refused() {
    let hold_down = HoldDown::new();
    let arrived = AtomicU64::new(0);
    let ask = &|to: Owner| {
        let rounds = (1..50_000).map(|round| {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < 2 * round {
                std::thread::yield_now();
            }
            hold_down.admits(round.wrapping_mul(0x9e37_79b9_7f4a_7c15), HOME, to, 1)
        });
        rounds.collect::<Vec<bool>>()
    };
    let (first, second) = std::thread::scope(|scope| {
        let [first, second] = [OTHER, THIRD].map(|to| scope.spawn(move || ask(to)));
        (first.join().expect("asks"), second.join().expect("asks"))
    });
    let both = first.iter().zip(&second).filter(|(first, second)| first == second).count();
    assert_eq!(both, 0, "of {} moves", first.len());
}

#[test]
fn pollers_that_move_the_same_addresses_at_one_moment_move_each_once_and_home_once() {
    const STATIONS: u32 = 32;
    const PORTS: u16 = 4;
    for second in 1..20 {
        let table = table();
        for n in 0..STATIONS {
            learn(&table, mac(n), HOME, second);
        }
        let together = Barrier::new(usize::from(PORTS));
        let refused: Vec<u64> = std::thread::scope(|scope| {
            let (table, together) = (&table, &together);
            let pollers = (0..PORTS).map(|port| {
                scope.spawn(move || {
                    together.wait();
                    let stations = (0..500).flat_map(|_| 0..STATIONS);
                    stations.filter(|&n| learn(table, mac(n), Owner::new(port, 0), second) == Learned::Held).count()
                        as u64
                })
            });
            let pollers: Vec<_> = pollers.collect();
            pollers.into_iter().map(|poller| poller.join().expect("learns")).collect()
        });
        let moved = table.moved();
        assert!((u64::from(STATIONS)..=2 * u64::from(STATIONS)).contains(&moved), "{moved} moves");
        assert_eq!((refused[0], refused.iter().sum()), (0, table.moves_held()));
        let (ports, entries) = ((0..PORTS).map(|port| table.learned(port)).sum::<u32>(), table.entries().count());
        assert_eq!((ports, entries), (STATIONS, STATIONS as usize));
    }
}
