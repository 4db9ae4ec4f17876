use std::sync::atomic::{AtomicBool, Ordering};

use ringway_testing::PATIENCE;

use super::*;
use crate::memory::{self, Fault, MemoryEndpoint};

/// No reply is late, however long a thread has no processor.
fn options(pings: u64, wait_mode: WaitMode) -> PingOptions {
    let limits = Limits { frames: Some(pings), duration: Some(PATIENCE) };
    PingOptions { limits, timeout: PATIENCE, wait_mode, ..PingOptions::default() }
}

#[test]
fn every_ping_is_answered_on_a_good_link() {
    for wait_mode in [WaitMode::Wait, WaitMode::Spin] {
        let (mut a, mut b): (MemoryEndpoint, _) = memory::pair(64);
        let stop = AtomicBool::new(false);
        let report = std::thread::scope(|scope| {
            scope.spawn(|| {
                let options = PongOptions { wait_mode, ..PongOptions::default() };
                pong(&mut b, &options, &mut Watch::none().stop_by(&stop)).expect("a memory link never fails")
            });
            let spec = FrameSpec { size: 100, ..FrameSpec::default() };
            let report = ping(&mut a, &spec, &options(200, wait_mode), &mut Watch::none());
            stop.store(true, Ordering::Relaxed);
            report.expect("a memory link never fails")
        });
        let LatencyReport { sent, received, lost, corrupted, foreign, .. } = report;
        assert_eq!((sent, received, lost, corrupted, foreign), (200, 200, 0, 0, 0));
        assert!(report.min_ns > 0, "{report}");
        let ascending = [report.min_ns, report.median_ns, report.p90_ns, report.p99_ns, report.p99_9_ns, report.max_ns];
        assert!(ascending.is_sorted(), "{report}");
    }
}

/// Measures ten pings over a link with these faults in the direction of the replies. The other end answers in the same thread, so that
/// a reply is there before a ping counts as lost.
fn ping_with(wait_mode: WaitMode, faults: impl FnMut(u64) -> Fault + Send + 'static) -> LatencyReport {
    let (mut a, mut b): (MemoryEndpoint, _) = memory::pair(64);
    b.set_faults(faults);
    let options = PingOptions { timeout: Duration::from_millis(10), ..options(10, wait_mode) };
    let report =
        ping_pair(&mut a, &mut b, &FrameSpec { size: 100, ..FrameSpec::default() }, &options, &mut Watch::none());
    report.expect("a memory link never fails")
}

#[test]
fn lost_replies_are_counted_and_do_not_end_the_run() {
    for wait_mode in [WaitMode::Wait, WaitMode::Spin] {
        let report = ping_with(wait_mode, |number| if number == 4 { Fault::Drop } else { Fault::None });
        assert_eq!((report.sent, report.received, report.lost, report.late), (10, 9, 1, 0), "{report}");
    }
}

#[test]
fn an_altered_reply_is_not_a_reply() {
    for wait_mode in [WaitMode::Wait, WaitMode::Spin] {
        let report = ping_with(wait_mode, |number| if number == 4 { Fault::Corrupt(80) } else { Fault::None });
        assert_eq!((report.sent, report.received, report.lost, report.corrupted), (10, 9, 1, 1), "{report}");
    }
}

#[test]
fn a_pair_in_one_thread_measures_both_ways() {
    let (mut a, mut b) = memory::pair(4);
    let report = ping_pair(&mut a, &mut b, &FrameSpec::default(), &options(500, WaitMode::Spin), &mut Watch::none())
        .expect("a memory link never fails");
    assert_eq!((report.sent, report.received, report.corrupted + report.foreign), (500, 500, 0), "{report}");
}

#[test]
fn a_reply_to_a_broadcast_has_a_unicast_source() {
    let (mut a, mut b) = memory::pair(4);
    assert!(a.tx_push(60, |frame| {
        frame.fill(0);
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&Mac::local(1).0);
    }));
    let options = PongOptions { limits: Limits { frames: Some(1), duration: None }, ..PongOptions::default() };
    pong(&mut b, &options, &mut Watch::none()).expect("a memory link never fails");
    let mut reply = Vec::new();
    a.rx_batch(1, |frame| reply.extend_from_slice(&frame[..12]));
    assert_eq!(reply, [Mac::local(1).0, Mac::local(2).0].concat());
}

#[test]
fn a_broadcast_ping_is_answered_by_anybody() {
    let (mut a, mut b) = memory::pair(4);
    let spec = FrameSpec { destinations: vec![Mac::BROADCAST], ..FrameSpec::default() };
    let report = ping_pair(&mut a, &mut b, &spec, &options(5, WaitMode::Spin), &mut Watch::none());
    let report = report.expect("a memory link never fails");
    assert_eq!((report.sent, report.received, report.corrupted), (5, 5, 0), "{report}");
}

#[test]
fn a_frame_without_sequence_number_cannot_ping() {
    let (mut a, _b) = memory::pair(4);
    let spec = FrameSpec { size: 27, ..FrameSpec::default() };
    let error = ping(&mut a, &spec, &options(1, WaitMode::Spin), &mut Watch::none()).expect_err("too short");
    assert!(error.to_string().contains("27"), "{error}");
}
