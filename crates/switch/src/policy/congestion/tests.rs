//! Senders of a congested receiver, with a simulated clock.

use ringway_testing::whole;

use crate::frame::Accepts;
use crate::testing::samples::Sample;
use crate::testing::{Lan, Plan, frame, mac};
use crate::{DropReason, Member, Time, pass};

/// Nanoseconds of a step.
const STEP: u64 = 10_000;

/// A sender: frames of these lengths in turn, a batch of this many every this many steps.
struct Sender {
    weight: u32,
    lens: &'static [usize],
    batch: usize,
    every: u64,
}

const fn sender(weight: u32, lens: &'static [usize], batch: usize, every: u64) -> Sender {
    Sender { weight, lens, batch, every }
}

const ROOM: usize = 256;

/// Sends to port 0 for a number of steps. The port takes `frames` frames at intervals and has room for 256. Returns the
/// bytes delivered for each sender in the second half, and how often the port found fewer frames to take.
fn contend(senders: &'static [Sender], takes: (usize, u64), steps: u64) -> (Vec<u64>, u64) {
    contend_standing_still(senders, takes, ROOM, 0, steps)
}

/// Sends to port 0, with this room, and with a pause of the poller of this many nanoseconds whenever the port takes
/// frames.
fn contend_standing_still(
    senders: &'static [Sender],
    (frames, every): (usize, u64),
    room: usize,
    still: u64,
    steps: u64,
) -> (Vec<u64>, u64) {
    let weigh = |member: Member| {
        let weight = usize::from(member.owner.index()).checked_sub(1).map_or(1, |sender| senders[sender].weight);
        Member { weight, ..member }
    };
    let plan = Plan { bytes: 32 << 20, change: Box::new(weigh), ..Plan::new(1 + senders.len() as u16) };
    let mut lan = plan.learning();
    lan.send(0, &[frame(mac(99), mac(0), 60, 0)]);
    lan.sink(0, |kept| kept.room = room);
    let (mut bytes, mut idle) = (vec![0; senders.len()], 0);
    for step in 0..steps {
        let nanoseconds = 1_000_000_000 + step * STEP + step.div_ceil(every) * still;
        let now = Time { nanoseconds, ..Time::at_second(1) };
        for number in 0..senders.len() {
            // Another sender is first each time.
            let number = (number + step as usize) % senders.len();
            let sender = &senders[number];
            if !step.is_multiple_of(sender.every) {
                continue;
            }
            for len in sender.lens.iter().cycle().take(sender.batch) {
                lan.offers[1 + number].put(&frame(mac(0), mac(1 + number as u32), *len, 0), &[]);
            }
            let from = lan.switch.member(1 + number as u16).expect("a port");
            pass(&lan.switch, from, &mut lan.offers[1 + number], &mut lan.work, &now);
        }
        let counts = step > steps / 2;
        if !step.is_multiple_of(every) {
            continue;
        }
        let taken = take(&lan, frames);
        idle += u64::from(counts && taken.len() < frames);
        for frame in taken {
            bytes[usize::from(frame[11]) - 1] += if counts { frame.len() as u64 } else { 0 };
        }
    }
    assert!(lan.dropped(0, DropReason::ReceiverFull) > 0, "the receiver is too slow");
    (bytes, idle)
}

/// Takes up to this many of the frames delivered to port 0.
fn take(lan: &Lan, most: usize) -> Vec<Vec<u8>> {
    lan.sink(0, |kept| {
        let count = most.min(kept.frames.len());
        kept.offloads.drain(..count);
        kept.deliveries.clear();
        kept.frames.drain(..count).collect()
    })
}

/// Bytes for each unit of weight, as a ratio to their mean.
fn per_weight(senders: &[Sender], bytes: &[u64]) -> Vec<f64> {
    let each: Vec<f64> = senders.iter().zip(bytes).map(|(s, &bytes)| bytes as f64 / f64::from(s.weight)).collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    each.iter().map(|bytes| bytes / mean).collect()
}

#[test]
fn senders_share_a_slow_receiver_by_weight_and_bytes_whatever_their_frames_and_batches() {
    const SENDERS: &[Sender] = &[
        sender(1, &[60], 256, 1),
        sender(1, &[1514], 32, 1),
        sender(2, &[60, 590, 1514], 64, 1),
        sender(4, &[1514], 256, 2),
    ];
    for frames in [16, 64] {
        let (bytes, idle) = contend(SENDERS, (frames, 1), whole(4_000, 10_000));
        let shares = per_weight(SENDERS, &bytes);
        assert!(shares.iter().all(|share| (share - 1.0).abs() < 0.01), "{frames} a step: {shares:?}");
        assert_eq!(idle, 0, "{frames} a step");
    }
}

#[test]
fn a_receiver_that_takes_much_at_once_and_seldom_is_shared_alike() {
    const SENDERS: &[Sender] = &[sender(1, &[60], 8, 1), sender(3, &[1514], 8, 1)];
    for every in whole(vec![20, 200], vec![20, 50, 400]) {
        let (bytes, idle) = contend(SENDERS, (64, every), whole(1_000, 2_000) * every);
        let shares = per_weight(SENDERS, &bytes);
        assert!(shares.iter().all(|share| (share - 1.0).abs() < 0.01), "every {every} steps: {shares:?}");
        assert_eq!(idle, 0, "every {every} steps");
    }
}

#[test]
fn a_poller_that_stands_still_now_and_then_keeps_the_shares() {
    const SENDERS: &[Sender] = &[sender(1, &[60], 64, 1), sender(3, &[1514], 64, 1)];
    for still in [200_000, 1_000_000, 5_000_000, 20_000_000] {
        let (bytes, idle) = contend_standing_still(SENDERS, (256, 20), ROOM, still, 4_000);
        let shares = per_weight(SENDERS, &bytes);
        assert!(shares.iter().all(|share| (share - 1.0).abs() < 0.01), "{still} ns: {shares:?}");
        assert_eq!(idle, 0, "{still} ns");
    }
}

#[test]
fn a_long_ring_that_is_emptied_at_once_is_filled_in_shares() {
    // 32 steps in which no sender loses frames.
    const SENDERS: &[Sender] = &[sender(1, &[60], 64, 1), sender(1, &[1514], 64, 1)];
    for still in [0, 5_000_000] {
        let (bytes, _) = contend_standing_still(SENDERS, (4096, 200), 4096, still, 8_000);
        let shares = per_weight(SENDERS, &bytes);
        assert!(shares.iter().all(|share| (share - 1.0).abs() < 0.01), "{still} ns: {shares:?}");
    }
}

#[test]
fn who_wants_less_than_a_share_gets_it_and_the_others_the_rest() {
    // The receiver takes 16 frames a step; the first wants one.
    const SENDERS: &[Sender] = &[sender(1, &[1514], 1, 1), sender(1, &[1514], 256, 1), sender(1, &[1514], 256, 1)];
    let steps = whole(4_000, 10_000);
    let (bytes, idle) = contend(SENDERS, (16, 1), steps);
    let frames: Vec<f64> = bytes.iter().map(|&bytes| bytes as f64 / 1514.0 / (steps / 2) as f64).collect();
    assert!(frames[0] > 0.99, "{frames:?}");
    assert!((frames[1] - 7.5).abs() < 0.1 && (frames[2] - 7.5).abs() < 0.1, "{frames:?}");
    assert_eq!(idle, 0);
}

#[test]
fn one_that_sends_now_and_then_holds_up_nobody() {
    // As many frames as there is room for, every 10 ms.
    const SENDERS: &[Sender] = &[sender(1, &[1514], 256, 1000), sender(1, &[60], 256, 1)];
    let (bytes, idle) = contend(SENDERS, (16, 1), 10_000);
    assert!(bytes[0] > 0);
    assert!(idle < 100, "{idle} of 5,000 steps without a frame to take: {bytes:?}");
}

#[test]
fn a_receiver_that_stands_still_is_not_given_anything_until_it_has_room() {
    let mut lan = Plan::new(2).learning();
    lan.send(0, &[frame(mac(99), mac(0), 60, 0)]);
    lan.sink(0, |kept| kept.room = 4);
    for (batch, deliveries, lost) in [(0, vec![4], 4), (1, vec![4], 12), (2, vec![4, 4], 16)] {
        if batch == 2 {
            lan.sink(0, |kept| kept.frames.clear());
        }
        lan.send(1, &[(); 8].map(|()| frame(mac(0), mac(1), 60, 0)));
        assert_eq!(lan.sink(0, |kept| kept.deliveries.clone()), deliveries, "batch {batch}");
        assert_eq!(lan.dropped(0, DropReason::ReceiverFull), lost);
    }
}

/// Three ports send to the two queues of port 0: 1 and 2 send each frame to the given queue, 3 to queue 0. The receiver
/// takes all frames of queue 0, and one frame of queue 1 at intervals. Returns the frames taken of each sender from
/// each queue, in the second half of the steps.
fn contend_for_queues(senders: [&[(usize, u32)]; 2], taken_every: u64, steps: u64) -> [[u64; 2]; 4] {
    let weigh = |member: Member| Member { weight: 1 + 2 * u32::from(member.owner.index() == 2), ..member };
    let mut lan = Plan { bytes: 4 << 20, change: Box::new(weigh), ..Plan::new(4) }.learning();
    lan.send(0, &[frame(mac(99), mac(0), 60, 0)]);
    lan.sink(0, |kept| (kept.room, kept.queues) = (64, 2));
    let mut taken = [[0; 2]; 4];
    for step in 0..steps {
        let now = Time { nanoseconds: 1_000_000_000 + step * STEP, ..Time::at_second(1) };
        for (port, frames) in [(1, senders[0]), (2, senders[1]), (3, &[(1514, 0); 16])] {
            for &(len, queue) in frames {
                lan.offers[port].put(&frame(mac(0), mac(port as u32), len, queue), &[]);
            }
            let from = lan.switch.member(port as u16).expect("a port");
            pass(&lan.switch, from, &mut lan.offers[port], &mut lan.work, &now);
        }
        lan.sink(0, |kept| {
            let mut left = u32::from(step.is_multiple_of(taken_every));
            for frame in std::mem::take(&mut kept.frames) {
                let queue = kept.queue(&frame);
                if queue == 1 && left == 0 {
                    kept.frames.push(frame);
                    continue;
                }
                left -= queue;
                taken[usize::from(frame[11])][queue as usize] += u64::from(step >= steps / 2);
            }
            kept.offloads.clear();
            kept.deliveries.clear();
        });
    }
    assert!(lan.dropped(0, DropReason::ReceiverFull) > 0, "a queue is too slow");
    taken
}

#[test]
fn a_queue_that_stands_still_or_is_slow_holds_up_nobody_who_sends_to_another() {
    for taken_every in [u64::MAX, 100] {
        for other in [&[(60, 1)][..], &[(60, 1); 64]] {
            let taken = contend_for_queues([other, &[]], taken_every, 4_000);
            assert_eq!(taken[3], [2_000 * 16, 0], "{} of the others, one taken every {taken_every}", other.len());
        }
    }
}

#[test]
fn each_queue_is_shared_by_itself_among_those_whose_frames_go_there() {
    // A quarter of the frames from port 1 is for the slow queue, and all frames from port 2.
    let mixed = [(1514, 0), (590, 0), (60, 1), (60, 0)];
    let taken = contend_for_queues([&mixed, &[(60, 1); 8]], 2, 20_000);
    assert_eq!((taken[1][0], taken[2][0], taken[3][0]), (3 * 10_000, 0, 16 * 10_000), "what there was room for");
    let (one, three) = (taken[1][1], taken[2][1]);
    assert_eq!(one + three, 5_000);
    assert!((three as f64 / one as f64 - 3.0).abs() < 0.05, "{one} and {three}");
}

#[test]
fn one_that_sends_now_and_then_finds_room_beside_a_flood() {
    const EVERY_20_MS: &[Sender] = &[sender(1, &[60], 256, 1), sender(1, &[1514], 1, 2_000)];
    const EVERY_100_MS: &[Sender] = &[sender(1, &[60], 256, 1), sender(1, &[1514], 1, 10_000)];
    let (steps, [often, seldom]) = whole((40_000, [10, 2]), (100_000, [25, 5]));
    for (senders, frames) in [(EVERY_20_MS, often), (EVERY_100_MS, seldom)] {
        let (bytes, _) = contend(senders, (16, 1), steps);
        assert_eq!(bytes[1], frames * 1514);
    }
}

/// Returns the frames a second of a flood, and how many of 50 frames of an occasional sender (one every 5 ms) arrive.
/// The ring has 256 slots, this many free buffers at most, and 32 are taken every 100 us.
fn with_so_many_posted(posted: usize) -> [u64; 2] {
    let mut lan = Plan { bytes: 8 << 20, ..Plan::new(3) }.learning();
    lan.send(0, &[frame(mac(99), mac(0), 60, 0)]);
    lan.sink(0, |kept| (kept.room, kept.size) = (posted, Some(256)));
    let mut got = [0; 2];
    for step in 0..50_000u64 {
        let now = Time { nanoseconds: 1_000_000_000 + step * STEP, ..Time::at_second(1) };
        for (port, batch, every) in [(1usize, 64, 1), (2, 1, 500)] {
            if step % every == 0 {
                let frame = frame(mac(0), mac(port as u32), 60, 0);
                (0..batch).for_each(|_| lan.offers[port].put(&frame, &[]));
                let from = lan.switch.member(port as u16).expect("a port");
                pass(&lan.switch, from, &mut lan.offers[port], &mut lan.work, &now);
            }
        }
        if step % 10 == 0 {
            for frame in take(&lan, 32) {
                got[usize::from(frame[11]) - 1] += u64::from(step > 25_000);
            }
        }
    }
    [got[0] * 4, got[1]]
}

#[test]
fn a_flood_has_what_room_there_is_beside_one_that_sends_now_and_then_however_few_buffers_are_posted() {
    for (posted, rate) in [(256, 319_000), (64, 319_000), (32, 270_000), (8, 65_000), (2, 9_000)] {
        let [flood, other] = with_so_many_posted(posted);
        assert!(flood >= rate && other >= 49, "{posted} posted: {flood} frames a second, and {other} of 50");
    }
}

#[test]
fn a_driver_that_posts_buffers_when_all_are_used_gets_frames_of_one_sender_also_after_another_was_there() {
    let mut lan = Plan::new(3).learning();
    lan.send(0, &[frame(mac(99), mac(0), 60, 0)]);
    lan.sink(0, |kept| kept.room = ROOM);
    let mut received = 0;
    for step in 0..60_000 {
        let now = Time { nanoseconds: 1_000_000_000 + step * STEP, ..Time::at_second(1) };
        // At first it is congested by two senders. Then one continues, slowly.
        let (senders, batch) = if step < 10 { (1..3, 50) } else { (1..2, 1) };
        for sender in senders {
            for _ in 0..batch {
                lan.offers[usize::from(sender)].put(&frame(mac(0), mac(sender.into()), 60, 0), &[]);
            }
            let from = lan.switch.member(sender).expect("a port");
            pass(&lan.switch, from, &mut lan.offers[usize::from(sender)], &mut lan.work, &now);
        }
        if step >= 10 && lan.sink(0, |kept| kept.frames.len() == kept.room) {
            received += take(&lan, ROOM).len();
        }
    }
    // Once in 256 frames the last ones are late.
    assert!(received > 40_000, "{received} of 60,000");
}

#[test]
fn frames_that_a_receiver_can_never_take_hold_up_nobody() {
    // After a burst that congests the receiver: frames longer than its buffers, beside a sender within the receiver's
    // rate.
    for (batch, every) in [(3, 1), (16, 1), (16, 10)] {
        let mut lan = Plan { bytes: 8 << 20, ..Plan::new(3) }.learning();
        lan.send(0, &[frame(mac(99), mac(0), 60, 0)]);
        lan.sink(0, |kept| (kept.room, kept.longest) = (256, 1514));
        let mut got = 0;
        for step in 0..20_000u64 {
            let now = Time { nanoseconds: 1_000_000_000 + step * STEP, ..Time::at_second(1) };
            let others = match step {
                100 => (400, 60),
                101.. if step % every == 0 => (batch, 1600),
                _ => (0, 60),
            };
            for (port, (batch, len)) in [(1usize, (1, 1000)), (2, others)] {
                let frame = frame(mac(0), mac(port as u32), len, 0);
                (0..batch).for_each(|_| lan.offers[port].put(&frame, &[]));
                let from = lan.switch.member(port as u16).expect("a port");
                while !lan.offers[port].is_empty() {
                    pass(&lan.switch, from, &mut lan.offers[port], &mut lan.work, &now);
                }
            }
            got += take(&lan, 16).len() as u64 * u64::from(step >= 10_000);
        }
        assert!(got >= 9_999, "{batch} every {every} steps: {got} of 10,000");
    }
}

/// Port 2 sends a frame every 2 ms to port 0, beside port 1 with frames like this, for 400 ms. The receiver has 256
/// buffers of `buffer` bytes, and takes 64 every 100 us. Returns how many of 100 frames of port 2 arrive in the second
/// half, and the buffers that were filled meanwhile.
fn beside_long_frames(sample: &Sample, accepts: Accepts, buffer: usize) -> (u64, u64) {
    let mut lan = Plan { bytes: 32 << 20, ..Plan::new(3) }.learning();
    lan.send(0, &[frame(mac(99), mac(0), 60, 0)]);
    lan.sink(0, |kept| (kept.room, kept.accepts, kept.buffer) = (ROOM, accepts, buffer));
    let (mut long, offload) = sample.build();
    long[..6].copy_from_slice(&frame(mac(0), mac(1), 60, 0)[..6]);
    long[6..12].copy_from_slice(&frame(mac(0), mac(1), 60, 0)[6..12]);
    let (mut got, mut filled) = (0, 0);
    for step in 0..40_000u64 {
        let now = Time { nanoseconds: 1_000_000_000 + step * STEP, ..Time::at_second(1) };
        for (port, every) in [(1usize, 1), (2, 200)] {
            if !step.is_multiple_of(every) {
                continue;
            }
            match port {
                1 => (0..8).for_each(|_| lan.offers[1].put_offloaded(&long, &[], Some(offload))),
                _ => lan.offers[2].put(&frame(mac(0), mac(2), 60, 0), &[]),
            }
            let from = lan.switch.member(port as u16).expect("a port");
            pass(&lan.switch, from, &mut lan.offers[port], &mut lan.work, &now);
        }
        let mut left = if step.is_multiple_of(10) { 64_usize } else { 0 };
        while left > 0
            && let Some(frame) = take(&lan, 1).pop()
        {
            let buffers = frame.len().div_ceil(buffer);
            left = left.saturating_sub(buffers);
            if step >= 20_000 {
                got += u64::from(frame[11] == 2);
                filled += buffers as u64;
            }
        }
    }
    assert!(lan.dropped(0, DropReason::ReceiverFull) > 0, "the receiver is too slow");
    (got, filled)
}

#[test]
fn one_that_sends_now_and_then_finds_room_beside_frames_that_become_many_or_take_many_buffers() {
    let one_byte = Sample { gso_size: 1, payload: vec![7; 128], ..Sample::default() };
    let usual = Sample { payload: vec![7; 64_000], ..Sample::default() };
    for (sample, accepts, buffer) in [
        (&one_byte, Accepts::NOTHING, usize::MAX),
        (&one_byte, Accepts::CSUM, usize::MAX),
        (&usual, Accepts::NOTHING, usize::MAX),
        (&usual, Accepts::EVERYTHING, 1536),
    ] {
        let (got, filled) = beside_long_frames(sample, accepts, buffer);
        assert_eq!(got, 100, "of port 2; {} bytes for {accepts:?}", sample.payload.len());
        assert!(filled >= 2_000 * 60, "{filled} buffers filled, {} bytes for {accepts:?}", sample.payload.len());
    }
}

/// Sends to port 0 for 200 ms: port 1 frames that need all of its 8 buffers, port 2 short ones, `batch` every `every` steps. The receiver
/// takes a buffer each step. Returns the bytes that each has delivered in the second half.
fn beside_one_that_needs_all(batch: usize, every: u64) -> [u64; 2] {
    const BUFFER: usize = 1536;
    let mut lan = Plan { bytes: 8 << 20, ..Plan::new(3) }.learning();
    lan.send(0, &[frame(mac(99), mac(0), 60, 0)]);
    lan.sink(0, |kept| (kept.room, kept.buffer) = (8, BUFFER));
    let (mut bytes, mut left) = ([0; 2], 0);
    for step in 0..20_000u64 {
        let now = Time { nanoseconds: 1_000_000_000 + step * STEP, ..Time::at_second(1) };
        for (port, len, batch, every) in [(1usize, 8 * BUFFER, 1, 1), (2, 60, batch, every)] {
            if step.is_multiple_of(every) {
                let frame = frame(mac(0), mac(port as u32), len, 0);
                (0..batch).for_each(|_| lan.offers[port].put(&frame, &[]));
                let from = lan.switch.member(port as u16).expect("a port");
                pass(&lan.switch, from, &mut lan.offers[port], &mut lan.work, &now);
            }
        }
        left += 1;
        while let Some(takes) = lan.sink(0, |kept| Some(kept.frames.first()?.len().div_ceil(BUFFER)))
            && takes <= left
            && let Some(frame) = take(&lan, 1).pop()
        {
            left -= takes;
            bytes[usize::from(frame[11]) - 1] += if step >= 10_000 { frame.len() as u64 } else { 0 };
        }
        if lan.sink(0, |kept| kept.frames.is_empty()) {
            left = 0;
        }
    }
    bytes
}

#[test]
fn a_frame_that_needs_the_whole_ring_passes_beside_a_flood_of_short_ones_and_beside_few() {
    let [long, short] = beside_one_that_needs_all(16, 1);
    assert!(long > 0 && short > 0, "{long} and {short} bytes");
    // By bytes the long ones are far ahead after each of them.
    assert!(long <= 2 * short + 8 * 1536, "{long} and {short} bytes");
    let [long, short] = beside_one_that_needs_all(1, 500);
    assert!(long > 0 && short > 0, "{long} and {short} bytes");
}
