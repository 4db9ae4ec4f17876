//! A daemon is stopped, as if its machine was suspended. No limit gives more than a burst for the time of the stop.

use std::time::{Duration, Instant};

use ringway_api::client::Client;
use ringway_api::types::{PortStatus, Status};
use ringway_scenes::flood::{address, clients_to, config};
use ringway_scenes::{Daemon, PATIENCE, until};
use ringway_testing::child::thread_states;
use rustix::process::Signal;

/// A limit's burst and rate per second, in bytes or frames, and the bytes or frames that have passed.
struct Row {
    name: &'static str,
    burst: u64,
    rate: u64,
    passed: fn(&Status) -> u64,
}

fn port(status: &Status, number: usize) -> &PortStatus {
    let name = format!("p{number}");
    status.ports.iter().find(|port| port.name == name).expect("a port of the test")
}

macro_rules! passed {
    ($port:literal, $way:ident, $what:ident) => {
        |status| port(status, $port).$way.as_ref().expect("a limit").tally.passed.$what
    };
}

const ROWS: [Row; 8] = [
    Row { name: "bits", burst: 20_000, rate: 1_000_000, passed: passed!(1, ingress, bytes) },
    Row { name: "bits that wait", burst: 20_000, rate: 1_000_000, passed: passed!(2, ingress, bytes) },
    Row { name: "frames", burst: 10, rate: 1000, passed: passed!(3, ingress, frames) },
    Row { name: "frames that wait", burst: 10, rate: 1000, passed: passed!(4, ingress, frames) },
    Row { name: "bucket", burst: 20_000, rate: 1_000_000, passed: |status| status.buckets[0].tally.passed.bytes },
    Row { name: "given", burst: 20_000, rate: 1_000_000, passed: passed!(7, egress, bytes) },
    Row { name: "given of what waits", burst: 20_000, rate: 1_000_000, passed: passed!(8, egress, bytes) },
    Row {
        name: "storm",
        burst: 10,
        rate: 1000,
        passed: |status| port(status, 6).storm.as_ref().expect("storm control").passed.broadcast,
    },
];

#[test]
fn a_switch_that_stood_still_lets_no_more_than_a_burst_through_any_limit() {
    let bits = "rate = \"8Mbit\", burst = \"20kB\"";
    let frames = "frames = \"1kpps\", frames_burst = 10";
    let (wait, drop) = ("on_excess = \"wait\"", "on_excess = \"drop\"");
    let ports = [
        format!("ingress = {{ {bits}, {drop} }}"),
        format!("ingress = {{ {bits}, {wait} }}"),
        format!("ingress = {{ {frames} }}"),
        format!("ingress = {{ {frames}, {wait} }}"),
        "ingress = { bucket = \"tenant\" }".to_owned(),
        "storm = { broadcast = \"1kpps\", frames_burst = 10 }".to_owned(),
        format!("egress = {{ {bits}, {drop} }}"),
        format!("egress = {{ {bits}, {wait} }}"),
        String::new(),
        String::new(),
        String::new(),
    ];
    let bucket = "[bucket.tenant]\nrate = \"8Mbit\"\nburst = \"20kB\"\n".to_owned();
    let daemon = Daemon::start(&(bucket + &config(&ports.each_ref().map(String::as_str))));
    // Ports 9 and 10 flood ports 7 and 8. Port 11 receives the frames of the others.
    let to = |port: u8| match port {
        6 => [0xff; 6],
        9 => address(7),
        10 => address(8),
        _ => address(11),
    };
    let lens = |port: u8| if matches!(port, 7 | 8 | 11) { &[][..] } else { &[1514][..] };
    let _floods = clients_to(&daemon, &(1..=11).map(|port| (port, to(port), lens(port))).collect::<Vec<_>>());
    let client = Client::new(&daemon.runtime_dir()).patience(PATIENCE);
    let passed = || {
        let status = client.status().expect("the daemon answers");
        ROWS.each_ref().map(|row| (row.passed)(&status))
    };
    let flows = || {
        let before = passed();
        until("frames of all limits flow", || {
            passed().iter().zip(before).zip(&ROWS).all(|((now, before), row)| *now > before + row.burst)
        });
    };
    flows();
    for _ in 0..2 {
        let (looked, before) = (Instant::now(), passed());
        daemon.pause();
        // A thread that waits for the processor stops only when it gets it. Until then other threads continue.
        until("all threads are stopped", || thread_states(daemon.pid()).iter().all(|state| *state == 'T'));
        let stopped = Instant::now();
        std::thread::sleep(Duration::from_secs(2));
        let goes_on = Instant::now();
        daemon.signal(Signal::CONT);
        until("some time has passed", || {
            let after = passed();
            let time = (stopped - looked) + goes_on.elapsed();
            for (row, (after, before)) in ROWS.iter().zip(after.into_iter().zip(before)) {
                // Before and after the stop, a burst and one frame each may pass.
                let frame = if row.burst > 1514 { 1514 } else { 1 };
                let most = 2 * (row.burst + frame) + row.rate * time.as_micros() as u64 / 1_000_000;
                assert!(
                    after - before <= most,
                    "{}: {} passed in {time:?}, at most {most} may",
                    row.name,
                    after - before
                );
            }
            goes_on.elapsed() > Duration::from_millis(300)
        });
        flows();
    }
}
