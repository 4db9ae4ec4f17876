//! Frames that need more tokens than a bucket holds: one passes on credit, and the next one when the debt is paid.

use std::time::{Duration, Instant};

use ringway_abi::Offload;
use ringway_abi::offload::Gso;
use ringway_client::{Port, Shape};

use ringway_scenes::flood::{address, config, count, frame};
use ringway_scenes::{Daemon, send, until};

/// Sends with `push` until two frames have passed this limit. The first frame passes at once. Each further frame must
/// pass at least `debt` after the previous one. If the excess waits, only two frames are sent.
fn passes_on_credit(limit: &str, offload: bool, debt: Duration, push: impl Fn(&mut Port) -> bool, each: [u64; 2]) {
    for (way, excess) in [("ingress", "drop"), ("ingress", "wait"), ("egress", "drop"), ("egress", "wait")] {
        let limit = format!("{way} = {{ {limit}, on_excess = \"{excess}\" }}");
        let (ports, name) = if way == "ingress" { ([&limit[..], ""], "p1") } else { (["", &limit[..]], "p2") };
        let daemon = Daemon::start(&config(&ports));
        let mut receiver = daemon.attach("lan0:p2").expect("the port takes a client");
        let shape = Shape { offload, ..Shape::default() };
        let socket = daemon.runtime_dir().join("attach.sock");
        let mut sender = Port::attach(socket, "lan0:p1", shape).expect("the port takes a client");
        send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 2, 60));
        until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:02"));
        let passed = || ["frames", "bytes"].map(|what| count(&daemon.port(name)[way], "passed", what));
        let began = Instant::now();
        let (mut sent, mut arrived) = (0, 0);
        until("two frames have passed", || {
            // If the excess waits, at most two frames are sent.
            if excess == "drop" || sent < 2 {
                sent += u32::from(push(&mut sender));
                sender.flush();
            }
            // The time is read after the counters, so it is an upper bound for the added tokens.
            let (passed, time) = (passed(), began.elapsed());
            let most = 1 + (time.as_nanos() / debt.as_nanos()) as u64;
            assert!(passed[0] <= each[0] * most, "{limit}: {passed:?} after {time:?}");
            receiver.rx().drain(512, |_| arrived += 1);
            passed[0] >= each[0] * 2
        });
        until("frames and bytes agree", || passed()[0] * each[1] == passed()[1] * each[0]);
        until("the frames arrive", || {
            receiver.rx().drain(512, |_| arrived += 1);
            arrived >= each[0] * 2
        });
    }
}

#[test]
fn a_frame_longer_than_the_burst_passes_and_is_paid_for() {
    const LEN: u64 = 9000;
    // The rate is 10,000 bytes per second, and the bucket has 1,514 of the frame's bytes.
    let debt = Duration::from_micros((LEN - 1514) * 100);
    let frame = frame(address(2), 1, LEN as usize);
    passes_on_credit("rate = \"80kbit\", burst = \"1514B\"", false, debt, |port| port.tx().push(&frame), [1, LEN]);
}

#[test]
fn a_frame_of_more_segments_than_may_pass_at_once_passes_and_is_paid_for() {
    const SEGMENT: u16 = 1000;
    let tcp = Offload {
        needs_csum: true,
        gso: Gso::Tcp4,
        ecn: false,
        hdr_len: 54,
        gso_size: SEGMENT,
        csum_start: 34,
        csum_offset: 16,
        tunnel: None,
    };
    let mut frame = frame(address(2), 1, 54 + 5 * usize::from(SEGMENT));
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[20..24].copy_from_slice(&[0x40, 0, 64, 6]);
    frame[46] = 0x50;
    // The bucket has tokens for two of five frames.
    let debt = Duration::from_secs(3) / 4;
    let push = |port: &mut Port| port.tx().push_offloaded(&frame, Some(&tcp));
    let each = [5, 5 * (54 + u64::from(SEGMENT))];
    passes_on_credit("frames = \"4pps\", frames_burst = 2", true, debt, push, each);
}
