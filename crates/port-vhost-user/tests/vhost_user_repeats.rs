//! A front end repeats every message, and the numbers of descriptors, mappings and memory pages do not grow. This file
//! has only one test, because the counts are per process.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use ringway_port_tests::vhost_user::{
    Event, GUEST, LOG_ALL, Lan, MEMORY, PROTOCOL_FEATURES, Raw, VERSION_1, memfd, message,
};
use ringway_port_vhost_user::Role;
use ringway_testing::until;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt::set_socket_send_buffer_size_force;

/// Number of repeats, unless `RINGWAY_REPEATS` is set. `make nightly` repeats four times as often.
const TIMES: usize = 25_000;
/// Number of repeats of messages with descriptors. The closer receives and closes each descriptor.
const TIMES_WITH_FILES: usize = 10_000;
const AT_ONCE: usize = 100;
/// Growth in kilobytes that is no leak: less than 42 bytes a repeat, 105 with descriptors.
const SLACK: usize = 1024;

/// Returns the descriptors, mappings, and kilobytes of memory of this process.
fn holdings() -> [usize; 3] {
    let count = |path: &str| std::fs::read_dir(path).expect(path).count();
    let text = |path: &str| std::fs::read_to_string(path).expect(path);
    let status = text("/proc/self/status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kilobytes = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    // Stacks of threads that serve files are not shared.
    let is_shared = |line: &&str| line.split(' ').nth(1).is_some_and(|access| access.ends_with('s'));
    [count("/proc/self/fd"), text("/proc/self/maps").lines().filter(is_shared).count(), kilobytes]
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Asks for the features. When the answer comes, the port has handled all earlier messages.
fn wait(raw: &mut Raw) {
    raw.tell(1, &[], &[]);
    raw.0.read_exact(&mut [0; 20]).expect("an answer");
}

#[test]
fn everything_over_and_over() {
    let wanted: Option<usize> = std::env::var("RINGWAY_REPEATS").ok().map(|times| times.parse().expect("a number"));
    let lan = Lan::new(&[Role::Server]);
    let memory = memfd(MEMORY);
    let log = memfd((GUEST as usize + MEMORY) >> 15);
    let other = memfd(4096);
    let event: OwnedFd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let [memory, log, other, event] = [&memory, &log, &other, &event].map(AsFd::as_fd);
    let mut raw = Raw::connect(&lan.socket(0));
    // Room for thousands of messages, so that there are few context switches (as root; otherwise the test takes
    // longer).
    let _ = set_socket_send_buffer_size_force(&raw.0, 4 << 20);

    let features = VERSION_1 | PROTOCOL_FEATURES;
    let ring = |at: u64| words(&[1, 0x1000 + at, 0x9000 + at, 0x5000 + at, GUEST + 0x9000]);
    let region = words(&[0, GUEST + MEMORY as u64, 4096, 0x4000_0000, 0]);
    let table = words(&[1, GUEST, MEMORY as u64, 0x1000, 0]);
    let config = words(&[4 << 32, 0x0605_0403 << 32]);
    let inflight = words(&[4096, 0, 4 | 256 << 16]);
    let one = words(&[1]);
    let state = |number: u64| words(&[1 | number << 32]);
    raw.tell(16, &words(&[0x1_b21f]), &[]);
    raw.tell(2, &words(&[features]), &[]);
    raw.tell(5, &table, &[memory]);
    raw.tell(8, &state(256), &[]);
    raw.tell(9, &ring(0), &[]);
    raw.tell(12, &one, &[event]);
    raw.tell(18, &state(1), &[]);
    wait(&mut raw);

    type Round<'a> = Vec<(u32, Vec<u8>, Vec<std::os::fd::BorrowedFd<'a>>)>;
    let rounds: Vec<(&str, Round<'_>)> = vec![
        ("SET_OWNER, RESET_OWNER", vec![(3, vec![], vec![]), (4, vec![], vec![])]),
        ("SET_PROTOCOL_FEATURES", vec![(16, words(&[0x1_b21f]), vec![])]),
        ("SET_FEATURES", vec![(2, words(&[features | LOG_ALL]), vec![]), (2, words(&[features]), vec![])]),
        ("SET_MEM_TABLE", vec![(5, table.clone(), vec![memory])]),
        ("ADD_MEM_REG, REM_MEM_REG", vec![(37, region.clone(), vec![other]), (38, region, vec![other])]),
        ("SET_LOG_BASE", vec![(6, words(&[(GUEST + MEMORY as u64) >> 15, 0]), vec![log])]),
        ("SET_LOG_FD", vec![(7, vec![], vec![event])]),
        ("SET_VRING_NUM", vec![(8, state(128), vec![]), (8, state(256), vec![])]),
        ("SET_VRING_ADDR", vec![(9, ring(0x10000), vec![]), (9, ring(0), vec![])]),
        ("SET_VRING_BASE", vec![(10, state(0), vec![])]),
        ("SET_VRING_KICK", vec![(12, one.clone(), vec![event]), (12, words(&[0x101]), vec![])]),
        ("SET_VRING_CALL", vec![(13, one.clone(), vec![event])]),
        ("SET_VRING_ERR", vec![(14, one.clone(), vec![event])]),
        ("SET_VRING_ENABLE", vec![(18, state(0), vec![]), (18, state(1), vec![])]),
        ("SEND_RARP, NET_SET_MTU", vec![(19, words(&[2]), vec![]), (20, words(&[1500]), vec![])]),
        ("GET_CONFIG, SET_CONFIG", vec![(24, config.clone(), vec![]), (25, config, vec![])]),
        ("GET_INFLIGHT_FD", vec![(31, inflight.clone(), vec![])]),
        ("SET_INFLIGHT_FD", vec![(32, inflight, vec![other])]),
        ("SET_STATUS", vec![(39, words(&[0]), vec![]), (12, one.clone(), vec![event]), (39, words(&[15]), vec![])]),
        ("GET_VRING_BASE", vec![(11, state(0), vec![]), (12, one, vec![event])]),
        ("RESET_DEVICE", vec![(34, vec![], vec![])]),
    ];
    // Another thread reads the answers, so that both sides are always busy.
    let answers = raw.0.try_clone().expect("a descriptor");
    let mut before = None;
    for (what, round) in rounds {
        let has_files = round.iter().any(|(_, _, files)| !files.is_empty());
        let times = wanted.unwrap_or(if has_files { TIMES_WITH_FILES } else { TIMES });
        let reader = std::thread::spawn({
            let expected: usize = round
                .iter()
                .map(|(request, ..)| match request {
                    6 => 28,
                    11 => 20,
                    24 => 28,
                    31 => 36,
                    _ => 0,
                })
                .sum();
            let mut answers = answers.try_clone().expect("a descriptor");
            move || {
                let mut left = expected * times;
                let mut bytes = vec![0; 1 << 16];
                while left > 0 {
                    let most = left.min(bytes.len());
                    match answers.read(&mut bytes[..most]).expect("readable") {
                        0 => return false,
                        count => left -= count,
                    }
                }
                true
            }
        });
        if !has_files {
            // Messages without descriptors are sent many at a time.
            let once: Vec<u8> = round.iter().flat_map(|(request, body, _)| message(*request, body)).collect();
            let many = once.repeat(AT_ONCE);
            let sent = (0..times / AT_ONCE).all(|_| raw.0.write_all(&many).is_ok());
            assert!(sent, "{what}: {:?}", lan.watchers[0].all());
        } else {
            for _ in 0..times {
                let sent = round.iter().all(|(request, body, files)| raw.tell(*request, body, files));
                assert!(sent, "{what}: {:?}", lan.watchers[0].all());
            }
        }
        assert!(reader.join().expect("no panic"), "{what}: {:?}", lan.watchers[0].all());
        wait(&mut raw);
        let [fds, maps, kilobytes] = *before.get_or_insert_with(holdings);
        // Others close what came, a moment later. What is in use has a copy with the closer.
        until(&format!("{what}: no more than {fds} descriptors and {maps} shared mappings"), || {
            let now = holdings();
            now[0] <= fds + 16 && now[1] <= maps + 4
        });
        let now = holdings();
        println!("{what}: {} kB after {kilobytes}", now[2]);
        assert!(now[2] <= kilobytes + SLACK * times.div_ceil(TIMES), "{what}: {} kB after {kilobytes}", now[2]);
    }
    assert_eq!(lan.watchers[0].all(), [Event::Connected(true)]);
    drop((answers, raw));
    lan.watchers[0].wait(1, |told| *told == Event::Connected(false));
}
