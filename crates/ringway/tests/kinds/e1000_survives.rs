//! e1000 ports outlive a crash of the switch: front ends stay connected, and NICs go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_scenes::{Daemon, PATIENCE};
use ringway_testing::random::Random;
use ringway_traffic::{
    CheckReport, Checker, E1000Endpoint, E1000Mode, E1000Options, Endpoint, FrameSpec, Frames, Level, Mac, Origin,
};

/// Kills of the switch in one test.
const KILLS: usize = 12;

fn mac(number: u8) -> Mac {
    Mac([0x52, 0x54, 0, 0, 0x77, number])
}

/// A driver that sends numbered frames to the other one, and checks those that it receives.
struct Lane {
    endpoint: E1000Endpoint,
    frames: Frames,
    checker: Checker,
    sent: u64,
}

impl Lane {
    fn new(daemon: &Daemon, number: u8, options: &E1000Options) -> Lane {
        let spec =
            FrameSpec { size: 200, source: mac(number), destinations: vec![mac(1 - number)], ..FrameSpec::default() };
        let socket = daemon.socket(&format!("vm{number}.sock"));
        let endpoint = E1000Endpoint::attach(&socket, options).expect("the port takes a front end");
        let (frames, checker) = (Frames::new(&spec).expect("a spec"), Checker::new(Level::Full, Origin::Zero));
        Lane { endpoint, frames, checker, sent: 0 }
    }

    fn go_on(&mut self) {
        let size = self.frames.size();
        for _ in 0..16 {
            if !self.endpoint.tx_push(size, |frame| self.frames.write(frame)) {
                break;
            }
            self.sent += 1;
        }
        self.endpoint.tx_flush();
        self.endpoint.rx_batch(usize::MAX, |frame| self.checker.see(frame));
        self.endpoint.wait(true, Duration::ZERO).expect("the connection stays");
    }

    /// Returns the number of the newest frame, by those that were received and that were lost before.
    fn newest(&self) -> u64 {
        let CheckReport { frames, lost, .. } = self.checker.report();
        frames + lost
    }
}

/// Moves frames both ways until `done`, which is told how many were sent and which number the newest has that was received.
fn go_on_until(what: &str, lanes: &mut [Lane; 2], mut done: impl FnMut(&[Lane; 2]) -> bool) {
    let begun = Instant::now();
    while !done(lanes) {
        lanes.iter_mut().for_each(Lane::go_on);
        let reports = || lanes.each_ref().map(|lane| (lane.sent, lane.checker.report()));
        assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", reports());
    }
}

fn check(way: &str, lanes: &[Lane; 2]) {
    for lane in lanes {
        let report = lane.checker.report();
        let CheckReport { corrupted, foreign, reordered, duplicated, stale, .. } = report;
        assert_eq!([corrupted, foreign, reordered, duplicated, stale], [0; 5], "{way}: {report}");
    }
}

fn survives(keys: &str, mode: E1000Mode) {
    let port = |number: u8| {
        let mac = mac(number).0.map(|byte| format!("{byte:02x}")).join(":");
        format!("[port.vm{number}]\nswitch = \"lan0\"\nkind = \"e1000\"\nmac = \"{mac}\"\n{keys}\n")
    };
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}{}", port(0), port(1)));
    let options = E1000Options { mode, within: PATIENCE, ..E1000Options::default() };
    let mut lanes = [0, 1].map(|number| Lane::new(&daemon, number, &options));
    let way = format!("{keys} {mode:?}");
    let mut random = Random::new(0x7e57 + keys.len() as u64);
    for _ in 0..KILLS {
        // At some moment: in the middle of a batch, of a message, of an interrupt.
        let more = 50 + random.below(2000);
        let goal = lanes.each_ref().map(|lane| lane.newest() + more);
        go_on_until(&format!("{way}: frames flow"), &mut lanes, |lanes| {
            (0..2).all(|at| lanes[at].newest() >= goal[at])
        });
        let over = AtomicBool::new(false);
        let what = format!("{way}: the switch is killed");
        std::thread::scope(|scope| {
            let moves = scope.spawn(|| go_on_until(&what, &mut lanes, |_| over.load(Ordering::Relaxed)));
            daemon.kill_switch();
            over.store(true, Ordering::Relaxed);
            moves.join().expect("frames move");
        });
        // What was sent from now on arrives.
        let sent = lanes.each_ref().map(|lane| lane.sent);
        go_on_until(&format!("{way}: frames flow again"), &mut lanes, |lanes| {
            (0..2).all(|at| lanes[at].newest() > sent[1 - at])
        });
        check(&way, &lanes);
    }
    for number in 0..2 {
        daemon.until_state(&format!("vm{number}"), "up");
    }
    assert_eq!(daemon.status()["faults"], serde_json::json!([]), "{way}");
}

#[test]
fn an_e1000_goes_on_when_the_switch_is_killed_and_no_frame_comes_twice() {
    for mode in [E1000Mode::Base, E1000Mode::Moderated, E1000Mode::Combining] {
        survives("model = \"e1000\"", mode);
    }
}

#[test]
fn an_e1000_with_a_status_block_goes_on_when_the_switch_is_killed() {
    survives("model = \"e1000\"\ncsb = true", E1000Mode::Csb);
}

#[test]
fn an_e1000e_goes_on_when_the_switch_is_killed_and_no_frame_comes_twice() {
    survives("model = \"e1000e\"", E1000Mode::Mapped);
    survives("model = \"e1000e\"\nregisters = \"trapped\"", E1000Mode::Moderated);
}
