//! What holds on any network, with any ends: order in each connection, and every buffer comes back.

use std::collections::HashMap;

use proptest::prelude::*;
use ringway_link::memory::{InFlight, MemoryOptions, pair};
use ringway_lwep::{Connection, Endpoint, Event, Options, SendError};
use ringway_testing::random::Random;

use crate::scene::{MICROSECOND, SECOND, SERVICE, Scene, Weather, messages, wrapping};

fn checked() -> Options {
    Options { checksums: true, random: wrapping, ..Options::default() }
}

/// Returns the messages of each connection that a server has heard, and checks the order: a message is its number.
fn listen(server: &mut Endpoint<ringway_link::memory::MemoryLink>, heard: &mut HashMap<Connection, u32>, now: u64) {
    while let Some(event) = server.poll(now) {
        match event {
            Event::Accepted { connection, .. } => drop(heard.insert(connection, 0)),
            Event::Message { connection, data } => {
                let next = heard.get_mut(&connection).expect("an accepted connection");
                assert_eq!(data, next.to_be_bytes(), "out of order");
                *next += 1;
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn many_connections_keep_their_order_each_and_all_buffers_come_back(
        seed in 1..u64::MAX / 2,
        [lost, repeated, swapped, delayed, corrupted] in prop::array::uniform5(0..=20u64),
        connections in 1..40usize,
        buffers in 64..300u32,
    ) {
        let weather = Weather { lost, repeated, swapped, delayed, corrupted };
        let links = MemoryOptions { buffers, ..MemoryOptions::default() };
        let mut scene = Scene::with(weather, seed, &checked(), &checked(), &links);
        let mac = scene.server.endpoint.mac();
        let mut random = Random::new(seed);
        let mut heard = HashMap::new();
        let mut sent: Vec<(Connection, u32)> =
            (0..connections).map(|_| (scene.client.endpoint.connect(mac, SERVICE, scene.now).unwrap(), 0)).collect();
        for _ in 0..3_000 {
            for (connection, number) in &mut sent {
                // Some are aborted before all has arrived.
                if random.below(20_000) == 0 {
                    scene.client.endpoint.abort(*connection, scene.now);
                }
                while *number < 60 && random.below(3) > 0 {
                    match scene.client.endpoint.send(*connection, &number.to_be_bytes(), scene.now) {
                        Ok(()) => *number += 1,
                        Err(SendError::Full | SendError::Over) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            scene.client.poll(scene.now);
            listen(&mut scene.server.endpoint, &mut heard, scene.now);
            scene.now += 20 * MICROSECOND;
        }
        prop_assert!(scene.client.endpoint.audit().is_ok() && scene.server.endpoint.audit().is_ok());
        for (connection, _) in &sent {
            scene.client.endpoint.abort(*connection, scene.now);
        }
        let accepted: Vec<Connection> = heard.keys().copied().collect();
        accepted.iter().for_each(|connection| scene.server.endpoint.abort(*connection, scene.now));
        for _ in 0..20 {
            scene.client.poll(scene.now);
            listen(&mut scene.server.endpoint, &mut heard, scene.now);
            scene.now += SECOND;
        }
        for end in [&mut scene.client.endpoint, &mut scene.server.endpoint] {
            prop_assert_eq!(end.audit().map(|audit| audit.free), Ok(buffers as usize));
            prop_assert_eq!(end.connections(), 0);
        }
    }

    #[test]
    fn windows_up_to_the_widest_carry_everything_on_a_bad_network(
        seed in 1..u64::MAX / 2,
        window in 8..=4_096u16,
        lost in 0..=20u64,
        delayed in 0..=20u64,
    ) {
        let options = Options { window, queue: 4_096, ..checked() };
        let links = MemoryOptions { buffers: 8_192, capacity: 8_192, buffer: 1_024, ..MemoryOptions::default() };
        let weather = Weather { lost, delayed, ..Weather::default() };
        let mut scene = Scene::with(weather, seed, &options, &options, &links);
        let connection = scene.connect();
        let all = messages(6_000, 60, seed);
        scene.send_all(connection, &all);
        prop_assert!(scene.server.heard == all);
        for end in [&mut scene.client, &mut scene.server] {
            prop_assert_eq!(end.endpoint.audit().map(|audit| audit.free), Ok(8_192));
        }
    }

    #[test]
    fn a_peer_that_is_killed_and_comes_again_gets_nothing_of_the_earlier_connection(
        seed in 1..u64::MAX / 2,
        lost in 0..=20u64,
        lives in 2..6usize,
    ) {
        // The switch between them keeps frames of the dead and delivers them to their successors.
        let options = checked();
        let mut random = Random::new(seed);
        let mut kept: Vec<Vec<u8>> = vec![];
        for life in 0..lives as u32 {
            let (old, seen) = (std::mem::take(&mut kept), std::rc::Rc::new(std::cell::RefCell::new(vec![])));
            // New programs, with links of their own at the same addresses.
            let (left, right) = pair(&MemoryOptions::default()).expect("memory");
            let (mut client, mut endpoint) = (Endpoint::new(left, options.clone()), Endpoint::new(right, options.clone()));
            let copies = seen.clone();
            let mut dice = Random::new(seed + u64::from(life) + 1);
            client.link().set_network(move |frame: InFlight, queue| {
                copies.borrow_mut().push(frame.bytes.clone());
                if dice.below(100) >= lost {
                    queue.push_back(frame);
                }
            });
            endpoint.listen(SERVICE);
            let mut now = SECOND;
            let connection = client.connect(endpoint.mac(), SERVICE, now).expect("room");
            let (mut sent, mut heard) = (0_u32, 0_u32);
            for _ in 0..20_000 {
                while sent < 100 && client.send(connection, &[life, sent].map(u32::to_be_bytes).concat(), now).is_ok() {
                    sent += 1;
                }
                if !old.is_empty() && random.below(3) == 0 {
                    endpoint.link().inject(&old[random.below(old.len() as u64) as usize]);
                }
                while client.poll(now).is_some() {}
                while let Some(event) = endpoint.poll(now) {
                    if let Event::Message { data, .. } = event {
                        prop_assert_eq!(data, [life, heard].map(u32::to_be_bytes).concat());
                        heard += 1;
                    }
                }
                if heard == 100 {
                    break;
                }
                now += 20 * MICROSECOND;
            }
            prop_assert_eq!(heard, 100);
            kept = seen.borrow().clone();
        }
    }

    #[test]
    fn receivers_that_stand_still_and_clocks_that_jump_cost_nothing_but_time(seed in 1..u64::MAX / 2, lost in 0..=20u64) {
        let mut scene = Scene::new(Weather { lost, ..Weather::default() }, seed, &checked());
        let connection = scene.connect();
        let all = messages(900, 60, seed);
        for (number, some) in all.chunks(300).enumerate() {
            let mut sent = 0;
            let end = scene.now + 180 * SECOND;
            while scene.now < end {
                while sent < some.len() && scene.client.endpoint.send(connection, &some[sent], scene.now).is_ok() {
                    sent += 1;
                }
                scene.client.poll(scene.now);
                scene.now += 5_000 * MICROSECOND;
            }
            scene.send_all(connection, &some[sent..]);
            scene.now = if number == 0 { scene.now + 3_600 * SECOND } else { scene.now - SECOND };
        }
        prop_assert!(scene.server.heard == all && scene.client.ended.is_empty());
    }
}
