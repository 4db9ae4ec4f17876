//! The MAC table compared with a simple model, and how full it can get.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use proptest::prelude::*;

use crate::testing::mac;
use crate::{Learned, Mac, MacTable, Owner};

const PORTS: u16 = 6;
const LIMIT: u32 = 5;

/// Operations on a table.
#[derive(Clone, Debug)]
enum Step {
    Learn { station: u32, port: u16 },
    Lookup { station: u32 },
    Flush { port: u16 },
    Sweep { max_age: u32 },
    Wait { seconds: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let port = || 0..PORTS;
    let station = || 0..16u32;
    prop_oneof![
        8 => (station(), port()).prop_map(|(station, port)| Step::Learn { station, port }),
        4 => station().prop_map(|station| Step::Lookup { station }),
        2 => port().prop_map(|port| Step::Flush { port }),
        1 => prop_oneof![Just(0), 1..20u32].prop_map(|max_age| Step::Sweep { max_age }),
        2 => prop_oneof![4 => 1..10u32, 1 => 10..200u32].prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// A simple model of the table.
#[derive(Default)]
struct Model {
    stations: HashMap<u32, (u16, u32)>,
    held: HashMap<u32, HoldDown>,
}

/// A station that moved: the port and the generation before, the time of its last move, and the length of its
/// hold-down.
struct HoldDown {
    home: (u16, u8),
    since: u32,
    lasts: u32,
}

impl Model {
    fn count(&self, port: u16) -> u32 {
        self.stations.values().filter(|(at, _)| *at == port).count() as u32
    }

    /// Returns true if a station may move.
    fn moves(&mut self, station: u32, from: (u16, u8), to: (u16, u8), now: u32) -> bool {
        self.held.retain(|_, held| now < held.since + held.lasts + 60);
        match self.held.get_mut(&station) {
            None => {
                self.held.insert(station, HoldDown { home: from, since: now, lasts: 1 });
                true
            }
            Some(held) if held.home == to => true,
            Some(held) if now < held.since + held.lasts => false,
            Some(held) => {
                (held.since, held.lasts) = (now, 60.min(2 * held.lasts));
                true
            }
        }
    }

    fn learn(&mut self, station: u32, port: u16, generations: &[u8], now: u32) -> Expected {
        let full = self.count(port) >= LIMIT;
        let owner = |port: u16| (port, generations[usize::from(port)]);
        let from = self.stations.get(&station).map(|(at, _)| *at).filter(|&at| at != port && !full);
        let held = from.is_some_and(|from| !self.moves(station, owner(from), owner(port), now));
        match self.stations.get_mut(&station) {
            Some((at, heard)) if *at == port => {
                *heard = now;
                Expected::Known
            }
            Some((_, heard)) if full => {
                *heard = now;
                Expected::PortLimit
            }
            Some((_, heard)) if held => {
                *heard = now;
                Expected::Held
            }
            None if full => Expected::PortLimit,
            before => {
                let moved = before.map(|(at, _)| *at);
                self.stations.insert(station, (port, now));
                moved.map_or(Expected::New, Expected::Moved)
            }
        }
    }
}

#[derive(Debug, PartialEq)]
enum Expected {
    Known,
    New,
    Moved(u16),
    Held,
    PortLimit,
    TableFull,
}

fn expected(learned: Learned) -> Expected {
    match learned {
        Learned::Known => Expected::Known,
        Learned::New => Expected::New,
        Learned::Moved(owner) => Expected::Moved(owner.index()),
        Learned::Held => Expected::Held,
        Learned::PortLimit => Expected::PortLimit,
        Learned::TableFull => Expected::TableFull,
    }
}

fn seed() -> [u64; 2] {
    use std::hash::{BuildHasher, RandomState};
    [RandomState::new().hash_one(1), RandomState::new().hash_one(2)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Generations, moves, limits, ageing and sweeps, over any number of flushes.
    #[test]
    fn the_table_agrees_with_a_map(steps in proptest::collection::vec(step(), 1..400), key in any::<[u64; 2]>()) {
        // Far more entries than stations, so that no bucket is full.
        let table = MacTable::new(4096, LIMIT, key);
        let mut model = Model::default();
        let mut generations = [0u8; PORTS as usize];
        let mut flushes = [0u8; PORTS as usize];
        let mut now = 1;
        for step in steps {
            let alive = |owner: Owner| generations[usize::from(owner.index())] == owner.generation();
            match step {
                Step::Learn { station, port } => {
                    let owner = Owner::new(port, generations[usize::from(port)]);
                    let got = expected(table.learn(mac(station), owner, now, alive));
                    prop_assert_eq!(got, model.learn(station, port, &generations, now));
                }
                Step::Lookup { station } => {
                    let got = table.lookup(mac(station)).filter(|&owner| alive(owner)).map(Owner::index);
                    prop_assert_eq!(got, model.stations.get(&station).map(|(port, _)| *port));
                }
                Step::Flush { port } => {
                    let at = usize::from(port);
                    generations[at] = (generations[at] + 1) % 16;
                    flushes[at] += 1;
                    table.begin(Owner::new(port, generations[at]));
                    model.stations.retain(|_, (owner, _)| *owner != port);
                    if flushes[at] == 15 {
                        // The sweep that must happen before a generation repeats.
                        let alive = |owner: Owner| generations[usize::from(owner.index())] == owner.generation();
                        table.sweep(now, 0, alive);
                        flushes = [0; PORTS as usize];
                    }
                }
                Step::Sweep { max_age } => {
                    table.sweep(now, max_age, alive);
                    model.stations.retain(|_, (_, heard)| max_age == 0 || now - *heard < max_age);
                    flushes = [0; PORTS as usize];
                    prop_assert_eq!(table.entries().count(), model.stations.len(), "a sweep leaves the living only");
                }
                Step::Wait { seconds } => now += seconds,
            }
            for port in 0..PORTS {
                prop_assert_eq!(table.learned(port), model.count(port), "port {}", port);
            }
        }
    }

    #[test]
    fn an_owner_is_its_index_and_generation(index in 0..4096u16, generation in 0..16u8) {
        let owner = Owner::new(index, generation);
        prop_assert_eq!((owner.index(), owner.generation()), (index, generation));
        prop_assert_eq!(Owner::new(index, generation + 16), owner);
    }
}

#[test]
fn a_flush_takes_the_same_few_steps_whatever_the_table_holds() {
    let table = MacTable::new(1 << 20, u32::MAX, seed());
    for station in 0..700_000 {
        table.learn(mac(station), Owner::new(1, 0), 1, |_| true);
    }
    let before: Vec<_> = table.entries().collect();
    assert!(before.len() > 690_000);
    table.begin(Owner::new(1, 1));
    assert_eq!(table.learned(1), 0);
    assert!(table.entries().eq(before), "a flush leaves the entries where they are, for others to use again");
    let alive = |owner: Owner| owner == Owner::new(1, 1);
    assert_eq!((0..700_000).filter_map(|n| table.lookup(mac(n))).filter(|&owner| alive(owner)).count(), 0);
    // Their entries can be used again.
    let again = (0..700_000).filter(|&n| table.learn(mac(1 << 24 | n), Owner::new(1, 1), 2, alive) == Learned::New);
    assert!(again.count() > 690_000);
}

#[test]
fn what_a_port_learns_after_another_has_its_index_counts_for_neither() {
    let table = MacTable::new(1024, 4, seed());
    let [old, new, other] = [Owner::new(3, 15), Owner::new(3, 0), Owner::new(4, 0)];
    let alive = |owner: Owner| owner == new || owner == other;
    let learn = |station, owner| table.learn(mac(station), owner, 1, alive);
    table.begin(old);
    assert_eq!([1, 2].map(|station| learn(station, old)), [Learned::New; 2]);
    table.begin(new);
    let late = || (10..30).filter(|&station| learn(station, old) != Learned::PortLimit).count();
    assert_eq!((late(), table.learned(3)), (0, 0));
    // Some of them are addresses of the old port.
    assert_eq!([1, 5, 6].map(|station| learn(station, new)), [Learned::New; 3]);
    assert_eq!((late(), table.learned(3)), (0, 3));
    table.begin(new);
    assert_eq!([7, 8].map(|station| learn(station, new)), [Learned::New, Learned::PortLimit]);
    // What the old port has left is neither moved from the new one nor cleared at its cost.
    assert_eq!(learn(2, other), Learned::New);
    assert_eq!((table.sweep(1, 0, alive), table.learned(3), table.learned(4)), (0, 4, 1));
}

#[test]
fn sixteen_flushes_with_a_sweep_do_not_bring_old_addresses_back() {
    let table = MacTable::new(1024, u32::MAX, seed());
    table.learn(mac(1), Owner::new(5, 0), 1, |_| true);
    for flush in 1..=16 {
        let now = Owner::new(5, flush);
        table.begin(now);
        if flush == 15 {
            assert_eq!(table.sweep(1, 0, |owner| owner == now), 1);
        }
    }
    assert_eq!(table.lookup(mac(1)), None);
    assert_eq!(table.learned(5), 0);
}

/// The address of station `n`.
type Stations = Box<dyn Fn(u32) -> Mac>;

/// Addresses that a hostile or an unlucky client may choose.
fn populations() -> [(&'static str, Stations); 4] {
    let key = seed();
    [
        ("sequential", Box::new(mac)),
        ("sequential in the first bytes", Box::new(|n| Mac::from_bits(u64::from(n) << 1 & 0xffff_ffff | 2 << 40))),
        (
            "random",
            Box::new(move |n| {
                let mixed = (u64::from(n) + 1).wrapping_mul(key[0] | 1);
                Mac::from_bits((mixed ^ mixed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 13 & !1)
            }),
        ),
        // Counts in Gray code: neighbours differ in one bit.
        ("one bit apart", Box::new(|n| Mac::from_bits(u64::from(n ^ n >> 1) << 9 | 2))),
    ]
}

#[test]
fn a_table_filled_to_three_quarters_has_a_place_for_nearly_every_station() {
    for round in 0..8 {
        for (name, station) in populations() {
            for capacity in [1024, 65_536] {
                let table = MacTable::new(capacity, u32::MAX, seed());
                let stations = capacity as u32 * 3 / 4;
                let learned: Vec<_> =
                    (0..stations).map(|n| table.learn(station(n), Owner::new(1, 0), 1, |_| true)).collect();
                let lost = learned.iter().filter(|&&l| l == Learned::TableFull).count();
                let known = learned.iter().filter(|&&l| l == Learned::Known).count();
                assert_eq!(known, 0, "{name}: the stations are different ones");
                assert!(lost * 200 < stations as usize, "{name}, round {round}: {lost} of {stations} found no place");
            }
        }
    }
}

#[test]
fn concurrent_learners_never_make_a_frame_go_where_its_station_never_was() {
    const STATIONS: u32 = 200;
    let table = MacTable::new(512, u32::MAX, seed());
    let stop = AtomicBool::new(false);
    let generation = AtomicU8::new(0);
    // Station n only sends from ports n % 4 and n % 4 + 4, by threads 0 and 1.
    let together = Barrier::new(3);
    let learn = |high: u16| {
        together.wait();
        for round in 0..400u32 {
            for n in 0..STATIONS {
                let port = (n % 4) as u16 + high;
                table.learn(mac(n), Owner::new(port, 0), round, |_| true);
            }
        }
    };
    std::thread::scope(|scope| {
        let learners = [scope.spawn(|| learn(0)), scope.spawn(|| learn(4))];
        let reader = scope.spawn(|| {
            together.wait();
            loop {
                let last = stop.load(Ordering::Relaxed);
                for n in 0..STATIONS {
                    if let Some(owner) = table.lookup(mac(n)) {
                        assert_eq!(u32::from(owner.index()) % 4, n % 4, "station {n}");
                    }
                }
                table.sweep(0, 0, |_| generation.load(Ordering::Relaxed) == 0);
                if last {
                    break;
                }
            }
        });
        for learner in learners {
            learner.join().expect("learns");
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("looks up");
    });
    // Two threads may both have learned one new address: never more than that.
    for n in 0..STATIONS {
        let places = table.entries().filter(|e| e.mac == mac(n)).count();
        assert!((1..=2).contains(&places), "station {n} stands {places} times");
    }
}
