//! Shaping in a pass, with a moved clock: models of TCP senders beside a sender of echo requests.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Bucket, Checks, Egress, Excess, Guard, Limit, Policy, Rates};
use crate::frame::{DropReason, WaitingPlace};
use crate::testing::{Lan, Plan, frame, mac, number};
use crate::time::Time;
use crate::{Member, pass};

const SECOND: u64 = 1_000_000_000;
const STEP: u64 = 100_000;
/// Bytes of a segment and of an echo request, and nanoseconds between two requests.
const SEGMENT: usize = 1514;
const ECHO: usize = 98;
const ECHO_EVERY: u64 = 20_000_000;
/// The number of the flow of echo requests.
const ECHOES: u32 = 255;
/// Nanoseconds without an acknowledgement after which a sender begins anew.
const TIMEOUT: u64 = 200_000_000;

/// A TCP sender with endless data: slow start, then one segment more in each round trip, and 0.7 of them after a loss.
#[derive(Default)]
struct Tcp {
    window: f64,
    threshold: f64,
    next: u32,
    /// Segments on their way. What is missing when a later one is acknowledged is lost.
    sent: BTreeSet<u32>,
    /// Losses of segments before this one are one loss.
    recover: u32,
    acknowledged: u64,
}

impl Tcp {
    fn new() -> Tcp {
        Tcp { window: 10.0, threshold: f64::INFINITY, ..Tcp::default() }
    }

    fn acknowledge(&mut self, segment: u32, now: u64) {
        self.acknowledged = now;
        self.sent.remove(&segment);
        let lost: Vec<u32> = self.sent.range(..segment).copied().collect();
        for lost in lost {
            self.sent.remove(&lost);
            if lost >= self.recover {
                (self.threshold, self.recover) = ((self.window * 0.7).max(2.0), self.next);
                self.window = self.threshold;
            }
        }
        self.window += if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
    }

    fn time_out(&mut self, now: u64) {
        if !self.sent.is_empty() && now > self.acknowledged + TIMEOUT {
            self.sent.clear();
            (self.threshold, self.window) = ((self.window / 2.0).max(2.0), 1.0);
            (self.acknowledged, self.recover) = (now, self.next);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Ingress,
    Egress,
}

/// Senders at port 0, which send to port 1 through a limit of bits.
struct Scene {
    side: Side,
    excess: Excess,
    rate: u64,
    burst: u64,
    streams: u32,
    round_trip: u64,
}

/// What the last seconds of a scene brought.
#[derive(Debug)]
struct Outcome {
    /// Part of the rate that TCP got, in bits of frames.
    part: f64,
    /// The longest delay of an echo request in milliseconds, and how many of a hundred were lost.
    longest_ms: u64,
    lost: u64,
}

impl Scene {
    fn lan(&self) -> Lan {
        self.lan_of(2)
    }

    fn lan_of(&self, ports: u16) -> Lan {
        let (side, excess, rate, burst) = (self.side, self.excess, self.rate, self.burst);
        let give = move |member: Member| {
            let mut limit = Limit::new(Rates { bits: Some(Bucket::new(rate, burst)), frames: None });
            limit.excess = excess;
            let policy = match (side, member.owner.index()) {
                (Side::Ingress, 0) => {
                    let guard = Guard::new(Checks { mac: true, ..Checks::NONE }, &member.macs, &[]);
                    Policy { ingress: Some(Arc::new(limit)), guard: Some(Arc::new(guard)), ..Policy::default() }
                }
                (Side::Egress, 1) => Policy { egress: Some(Arc::new(Egress::new(limit))), ..Policy::default() },
                _ => Policy::default(),
            };
            Member { policy: policy.in_use(), ..member }
        };
        Plan { change: Box::new(give), bytes: 256 << 20, ..Plan::new(ports) }.map()
    }

    /// Runs the scene for six seconds, and counts in the last four.
    fn run(&self) -> Outcome {
        let mut lan = self.lan();
        let mut streams: Vec<Tcp> = (0..self.streams).map(|_| Tcp::new()).collect();
        let mut acknowledgements: VecDeque<(u64, u32, u32)> = VecDeque::new();
        let (mut until, mut bits, mut echoes, mut came) = (0, 0, 0, 0);
        let (mut longest, from) = (0, 3 * SECOND);
        for step in 0..6 * SECOND / STEP {
            let now = SECOND + step * STEP;
            while let Some(&(at, flow, segment)) = acknowledgements.front()
                && at <= now
            {
                acknowledgements.pop_front();
                streams[flow as usize].acknowledge(segment, now);
            }
            for (flow, tcp) in (0..).zip(&mut streams) {
                tcp.time_out(now);
                while tcp.sent.len() < tcp.window as usize {
                    lan.offers[0].put(&frame(mac(1), mac(0), SEGMENT, flow << 24 | tcp.next), &[]);
                    tcp.sent.insert(tcp.next);
                    tcp.next += 1;
                }
            }
            if now.is_multiple_of(ECHO_EVERY) {
                lan.offers[0].put(&frame(mac(1), mac(0), ECHO, ECHOES << 24 | (now / ECHO_EVERY) as u32), &[]);
                echoes += u64::from(now >= from);
            }
            if now >= until {
                let time = Time { nanoseconds: now, ..Time::at_second(1) };
                let source = lan.switch.member(0).expect("a port");
                until = pass(&lan.switch, source, &mut lan.offers[0], &mut lan.work, &time).until.unwrap_or(0);
            }
            for frame in lan.sink(1, |kept| std::mem::take(&mut kept.frames)) {
                let (flow, segment) = (number(&frame) >> 24, number(&frame) & 0xff_ffff);
                if flow < self.streams {
                    acknowledgements.push_back((now + self.round_trip, flow, segment));
                    bits += if now >= from { SEGMENT as u64 * 8 } else { 0 };
                } else if now >= from {
                    came += 1;
                    longest = longest.max(now - u64::from(segment) * ECHO_EVERY);
                }
            }
        }
        let seconds = SECOND + 6 * SECOND - from;
        Outcome {
            part: bits as f64 / (self.rate * (seconds / SECOND)) as f64,
            longest_ms: longest / 1_000_000,
            lost: echoes.saturating_sub(came) * 100 / echoes,
        }
    }
}

/// The default burst: what 20 ms bring, at least 64 KiB.
fn default_burst(rate: u64) -> u64 {
    (rate / 50).max(64 << 13)
}

#[test]
fn tcp_gets_its_rate_through_a_limit_and_echoes_beside_it_are_quick() {
    for side in [Side::Ingress, Side::Egress] {
        for rate in [1_000_000, 10_000_000, 100_000_000] {
            for (streams, round_trip) in [(1, STEP), (8, STEP), (1, 20_000_000), (8, 20_000_000)] {
                let burst = default_burst(rate);
                let scene = Scene { side, excess: Excess::Shape, rate, burst, streams, round_trip };
                let outcome = scene.run();
                let what = format!("{side:?}, {rate} bits per second, {streams} streams, {round_trip} ns: {outcome:?}");
                assert!((0.93..1.01).contains(&outcome.part), "{what}");
                let allowed = 50 + burst * 1_000 / rate;
                assert!(outcome.longest_ms <= allowed, "more than {allowed} ms: {what}");
                assert!(outcome.lost <= 5, "{what}");
            }
        }
    }
}

/// A client whose long frames are a third more than its limit, in 40 bursts of 10 ms and then none for 200 ms. Each burst has an echo request,
/// each at another place. Beside it, another client sends a tenth of the rate to the same port. Returns how many of 200 requests are lost.
fn echoes_lost(side: Side, rate: u64, len: usize, is_beside: bool) -> usize {
    const BURST: u64 = 10_000_000;
    let scene = Scene { side, excess: Excess::Shape, rate, burst: default_burst(rate), streams: 0, round_trip: 0 };
    let mut lan = scene.lan_of(3);
    let (mut owed, mut until, mut echoes, mut came) = (0, 0, 0, 0);
    for now in (0..6_400).map(|step| SECOND + step * 5 * STEP) {
        let number = now / BURST;
        if now.is_multiple_of(BURST) && number % 60 < 40 {
            owed += (rate / 800 * 4 / 3) as i64;
            let place = owed * (number % 10) as i64 / 10;
            let mut echo = Some(ECHO);
            while owed > 0 || echo.is_some() {
                let next = echo.take_if(|_| owed <= place.max(0)).unwrap_or(len);
                lan.offers[0].put(&frame(mac(1), mac(0), next, 0), &[]);
                (owed, echoes) = if next == len { (owed - len as i64, echoes) } else { (owed, echoes + 1) };
            }
            if is_beside {
                lan.offers[2].put(&frame(mac(1), mac(2), (rate / 8_000).clamp(60, 60_000) as usize, 0), &[]);
            }
        }
        if now >= until {
            until = pass_at(&mut lan, 0, now);
        }
        pass_at(&mut lan, 2, now);
        came += lan.sink(1, |kept| std::mem::take(&mut kept.frames)).iter().filter(|frame| frame.len() == ECHO).count();
    }
    assert_eq!((echoes, lan.offers[0].len()), (200, 0));
    echoes - came
}

#[test]
fn no_echo_request_is_lost_beside_long_frames() {
    let mut lost = Vec::new();
    for (side, is_beside) in [(Side::Ingress, false), (Side::Egress, false), (Side::Egress, true)] {
        for (rate, len) in [(1_000_000, SEGMENT), (10_000_000, 65_000), (100_000_000, SEGMENT), (100_000_000, 65_000)] {
            let count = echoes_lost(side, rate, len, is_beside);
            if count > 0 {
                lost.push((side, is_beside, rate, len, count));
            }
        }
    }
    assert!(lost.is_empty(), "lost of 200: {lost:#?}");
}

/// Sends frames of these lengths at once at each of these times, in milliseconds. Returns the numbers of those that
/// arrived within the time, and how many were dropped.
fn send(lan: &mut Lan, events: &[(u64, &[usize])], end: u64) -> (Vec<u32>, u64) {
    let (mut next, mut until) = (0, 0);
    for now in (0..end * 10).map(|step| SECOND + step * STEP) {
        for (_, lens) in events.iter().filter(|(at, _)| SECOND + at * 1_000_000 == now) {
            for &len in *lens {
                lan.offers[0].put(&frame(mac(1), mac(0), len, next), &[]);
                next += 1;
            }
        }
        if now >= until {
            let time = Time { nanoseconds: now, ..Time::at_second(1) };
            let source = lan.switch.member(0).expect("a port");
            until = pass(&lan.switch, source, &mut lan.offers[0], &mut lan.work, &time).until.unwrap_or(0);
        }
    }
    let numbers = lan.received(1).iter().map(|frame| number(frame)).collect();
    (numbers, lan.dropped(0, DropReason::RateLimited) + lan.dropped(1, DropReason::EgressLimited))
}

/// A limit of 8 Mbit/s, a thousand bytes in a millisecond, with a burst of 3,000 bytes. 50,000 bytes may wait.
fn small(side: Side) -> Lan {
    let scene = Scene { side, excess: Excess::Shape, rate: 8_000_000, burst: 24_000, streams: 0, round_trip: 0 };
    scene.lan()
}

#[test]
fn what_is_more_than_may_wait_is_dropped_and_it_is_the_oldest() {
    for side in [Side::Ingress, Side::Egress] {
        // Three pass at once, 50 wait, and those between are dropped.
        let (came, dropped) = send(&mut small(side), &[(0, &[1000; 60])], 100);
        assert_eq!((came, dropped), ((0..3).chain(10..60).collect(), 7), "{side:?}");
        // Less than that is not dropped.
        let (came, dropped) = send(&mut small(side), &[(0, &[1000; 53])], 100);
        assert_eq!((came, dropped), ((0..53).collect(), 0), "{side:?}");
    }
}

#[test]
fn a_short_frame_does_not_wait_until_the_long_one_in_front_of_it_is_paid() {
    let (came, _) = send(&mut small(Side::Ingress), &[(0, &[40_000]), (1, &[98, 1000])], 2);
    assert_eq!(came, [0, 1]);
    // A flood of short frames is limited.
    let mut lan = small(Side::Ingress);
    let flood: Vec<(u64, &[usize])> = (0..1_000).map(|ms| (ms, &[100; 20][..])).collect();
    let (came, dropped) = send(&mut lan, &flood, 1_000);
    assert!((10_000..=10_000 + 30 + 500).contains(&came.len()), "{}", came.len());
    assert!(dropped > 9_000, "{dropped}");
}

#[test]
fn frames_that_cannot_wait_in_their_port_are_dropped() {
    let mut lan = small(Side::Ingress);
    lan.offers[0].keeps = false;
    let (came, dropped) = send(&mut lan, &[(0, &[1000; 60])], 100);
    assert_eq!((came, dropped), ((0..3).collect(), 57));
}

#[test]
fn frames_of_a_client_that_stops_when_they_wait_are_not_dropped() {
    for side in [Side::Ingress, Side::Egress] {
        let mut lan = small(side);
        lan.offers[0].place = WaitingPlace::Connection;
        let (came, dropped) = send(&mut lan, &[(0, &[1000; 500])], 600);
        assert_eq!((came, dropped), ((0..500).collect(), 0), "{side:?}");
        // In front of a frame for another port, only what may wait in a ring.
        if side == Side::Egress {
            let scene =
                Scene { side, excess: Excess::Shape, rate: 8_000_000, burst: 24_000, streams: 0, round_trip: 0 };
            let mut lan = scene.lan_of(3);
            lan.offers[0].place = WaitingPlace::Connection;
            (0..200).for_each(|number| lan.offers[0].put(&frame(mac(1), mac(0), 1000, number), &[]));
            lan.offers[0].put(&frame(mac(2), mac(0), 60, 200), &[]);
            for ms in 0..60 {
                pass_at(&mut lan, 0, SECOND + ms * 1_000_000);
            }
            assert_eq!((lan.received(2).len(), lan.dropped(1, DropReason::EgressLimited)), (1, 200 - 3 - 50));
        }
        // Less than 50 ms of the rate can wait in a port's own memory.
        let mut lan = small(side);
        lan.offers[0].place = WaitingPlace::Memory(20_000);
        let (came, dropped) = send(&mut lan, &[(0, &[1000; 60])], 100);
        assert_eq!((came, dropped), ((0..3).chain(40..60).collect(), 37), "{side:?}");
    }
}

/// One pass of a port at this time. Returns until when it waits, or 0.
fn pass_at(lan: &mut Lan, port: u16, now: u64) -> u64 {
    let time = Time { nanoseconds: now, ..Time::at_second(1) };
    let source = lan.switch.member(port).expect("a port");
    pass(&lan.switch, source, &mut lan.offers[usize::from(port)], &mut lan.work, &time).until.unwrap_or(0)
}

#[test]
fn a_flood_of_short_frames_takes_no_more_of_an_egress_limit_than_its_share() {
    let burst = default_burst(8_000_000);
    let scene = Scene { side: Side::Egress, excess: Excess::Shape, rate: 8_000_000, burst, streams: 0, round_trip: 0 };
    let mut lan = scene.lan_of(3);
    let (mut until, mut given) = ([0; 3], [0; 3]);
    for now in (0..30_000).map(|step| SECOND + step * STEP) {
        for (port, len) in [(0, 200), (2, SEGMENT)] {
            while lan.offers[usize::from(port)].len() < 128 {
                lan.offers[usize::from(port)].put(&frame(mac(1), mac(port.into()), len, port.into()), &[]);
            }
            if now >= until[usize::from(port)] {
                until[usize::from(port)] = pass_at(&mut lan, port, now);
            }
        }
        for frame in lan.sink(1, |kept| std::mem::take(&mut kept.frames)) {
            given[number(&frame) as usize] += if now >= 2 * SECOND { frame.len() as u64 } else { 0 };
        }
    }
    let part = given[0] as f64 / (given[0] + given[2]) as f64;
    assert!((0.4..0.6).contains(&part), "the short ones got {part}: {given:?}");
    assert!(given[0] + given[2] > 1_800_000, "{given:?}");
}

#[test]
fn frames_for_others_do_not_wait_for_a_limit_that_is_not_theirs() {
    let burst = default_burst(1_000_000);
    let scene = Scene { side: Side::Egress, excess: Excess::Shape, rate: 1_000_000, burst, streams: 0, round_trip: 0 };
    for (others, most_ms) in [(1, 150), (100, 20)] {
        let mut lan = scene.lan_of(3);
        for number in 0..1000 {
            lan.offers[0].put(&frame(mac(1), mac(0), SEGMENT, number), &[]);
            if (number + 1) % (1000 / others) == 0 {
                lan.offers[0].put(&frame(mac(2), mac(0), SEGMENT, number), &[]);
            }
        }
        let (mut until, mut ms, mut came) = (0, 0, 0);
        while came < others - 16 * u32::from(others > 16) {
            if SECOND + ms * 1_000_000 >= until {
                until = pass_at(&mut lan, 0, SECOND + ms * 1_000_000);
            }
            came += lan.sink(2, |kept| std::mem::take(&mut kept.frames)).len() as u32;
            ms += 1;
            assert!(ms < 3_000, "{came} of {others} came");
        }
        assert!(ms <= most_ms, "{others} other frames came after {ms} ms");
    }
}

#[test]
fn a_flood_of_frames_that_are_refused_does_not_close_a_limit_for_long() {
    let mut lan = small(Side::Ingress);
    let mut until = 0;
    for now in (0..10_000).map(|step| SECOND + step * STEP) {
        while lan.offers[0].len() < 256 {
            lan.offers[0].put(&frame(mac(1), mac(7), SEGMENT, 0), &[]);
        }
        if now >= until {
            until = pass_at(&mut lan, 0, now);
        }
    }
    let (mut now, mut came) = (2 * SECOND, 0);
    while came == 0 {
        lan.offers[0].put(&frame(mac(1), mac(0), SEGMENT, 0), &[]);
        until = pass_at(&mut lan, 0, now.max(until));
        (now, came) = (now.max(until) + 10_000_000, lan.received(1).len());
        assert!(now < 3 * SECOND, "nothing came for a second");
    }
}
