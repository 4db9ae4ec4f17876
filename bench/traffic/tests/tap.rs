//! TAP endpoints against the kernel. Each test has its own network namespace, which ends with the test's thread.

use std::process::Command;
use std::time::Duration;

use ringway_testing::skip::is_root;
use ringway_testing::{PATIENCE, skip, until};
use ringway_traffic::*;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs `test` in a new network namespace. Skips the test without root.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !is_root() {
        skip!("needs root");
    }
    let thread = std::thread::spawn(|| {
        // SAFETY: only the network namespace changes, and only for this thread; no descriptors or memory are unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root can make network namespaces");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs an `ip` command in this thread's namespace.
fn ip(arguments: &str) -> String {
    let run = Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2 is installed");
    assert!(run.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// Two TAP devices on a bridge that forwards.
fn bridged() -> (Tap, Tap) {
    let taps = ["tap0", "tap1"].map(|name| Tap::open(name).expect("root can make TAP devices"));
    ip("link add br0 type bridge mcast_snooping 0");
    for device in ["br0", "tap0", "tap1"] {
        // Without IPv6 the kernel sends no frames of its own.
        ip(&format!("link set {device} addrgenmode none"));
        if device != "br0" {
            ip(&format!("link set {device} master br0"));
        }
        ip(&format!("link set {device} up"));
    }
    let forwarding = |name| ip(&format!("-d link show {name}")).contains("state forwarding");
    until("the bridge forwards", || forwarding("tap0") && forwarding("tap1"));
    let [a, b] = taps;
    (a, b)
}

fn spec(from: u32, to: u32, size: usize) -> FrameSpec {
    FrameSpec { size, source: Mac::local(from), destinations: vec![Mac::local(to)], flows: 3, ..FrameSpec::default() }
}

#[test]
fn frames_cross_a_bridge_unchanged_in_both_directions() {
    in_namespace(|| {
        let (a, b) = bridged();
        let mut endpoints = Some((a, b));
        for size in [14, 60, 61, 1514] {
            let (a, b) = endpoints.take().expect("the endpoints of the previous round");
            let station = |tap, from, to| {
                let frames = Frames::new(&spec(from, to, size)).expect("valid");
                Station::both(tap, frames, Checker::new(Level::Full, Origin::Zero))
            };
            let options = PumpOptions { tx_batch: 8, rx_batch: 64, fill: Fill::Each, frames: None };
            let mut pump = Pump::new([station(a, 1, 2), station(b, 2, 1)], options);
            // Few frames at a time, so that all fit into the kernel's queues, also if the kernel forwards them late.
            for _ in 0..20 {
                pump.run(Duration::from_nanos(1), &mut Watch::none()).expect("the devices are up");
                until("all frames have come", || {
                    pump.drain(Duration::from_nanos(1)).expect("the devices are up");
                    let totals = pump.totals();
                    [(0, 1), (1, 0)].iter().all(|&(from, to)| totals[to].check.frames >= totals[from].sent.frames)
                });
            }
            let totals = pump.totals();
            for (sender, receiver) in [(0, 1), (1, 0)] {
                let (sent, check) = (totals[sender].sent.frames, &totals[receiver].check);
                assert!(sent >= 64, "size {size}: only {sent} sent");
                assert!(check.is_clean() && check.frames == sent, "size {size}: {sent} sent, {check}");
            }
            let mut stations = pump.into_stations().into_iter().map(|station| station.endpoint);
            endpoints = stations.next().zip(stations.next());
        }
    });
}

#[test]
fn a_ping_through_a_bridge_comes_back() {
    in_namespace(|| {
        let (mut a, mut b) = bridged();
        let limits = Limits { frames: Some(50), duration: Some(PATIENCE) };
        let options = PingOptions { limits, timeout: PATIENCE, wait_mode: WaitMode::Spin, ..PingOptions::default() };
        let report =
            ping_pair(&mut a, &mut b, &spec(1, 2, 60), &options, &mut Watch::none()).expect("the devices are up");
        assert_eq!((report.received, report.lost, report.corrupted, report.foreign), (50, 0, 0, 0), "{report}");
    });
}

#[test]
fn a_sleeping_receiver_is_woken_by_a_frame() {
    in_namespace(|| {
        let (mut a, mut b) = bridged();
        let receiver = std::thread::spawn(move || {
            let mut checker = Checker::new(Level::Full, Origin::Zero);
            let limits = Limits { frames: Some(100), duration: Some(PATIENCE) };
            receive(&mut b, &mut checker, None, &RxOptions { limits, ..RxOptions::default() }, &mut Watch::none())
        });
        let mut frames = Frames::new(&spec(1, 2, 100)).expect("valid");
        let limits = Limits { frames: Some(100), duration: Some(PATIENCE) };
        let options = TxOptions { limits, rate: Rate::Frames(5000), stall: PATIENCE, ..TxOptions::default() };
        transmit(&mut a, &mut frames, &options, &mut Watch::none()).expect("the device is up");
        let report = receiver.join().expect("no panic").expect("the device is up");
        assert!(report.received.frames == 100 && report.check.is_clean(), "{report}");
    });
}

#[test]
fn a_device_that_is_down_or_gone_ends_the_run_with_its_name() {
    in_namespace(|| {
        let options = TxOptions { stall: PATIENCE, ..TxOptions::default() };
        let send = |tap: &mut Tap| {
            let mut frames = Frames::new(&FrameSpec::default()).expect("valid");
            transmit(tap, &mut frames, &options, &mut Watch::none()).expect_err("nothing can be sent").to_string()
        };
        let mut tap = Tap::open("tap7").expect("root can make TAP devices");
        let error = send(&mut tap);
        assert!(error.contains("`tap7`") && error.contains("ip link set"), "{error}");
        ip("link set tap7 up");
        ip("link del tap7");
        let error = send(&mut tap);
        assert!(error.contains("`tap7`"), "{error}");
        let mut checker = Checker::new(Level::Count, Origin::Zero);
        let error = receive(&mut tap, &mut checker, None, &RxOptions::default(), &mut Watch::none())
            .expect_err("the device is gone");
        assert!(error.to_string().contains("`tap7`"), "{error}");
    });
}

#[test]
fn a_device_that_is_in_use_or_misnamed_is_refused() {
    in_namespace(|| {
        let _first = Tap::open("tap9").expect("root can make TAP devices");
        let busy = Tap::open("tap9").err().expect("only one at a time").to_string();
        assert!(busy.contains("`tap9`") && busy.contains("busy"), "{busy}");
        for wrong in ["", "sixteen-letters!", "a/b", "tap%d"] {
            let error = Tap::open(wrong).err().expect("no such name").to_string();
            assert!(error.contains("1 to 15 bytes"), "{error}");
        }
    });
}
