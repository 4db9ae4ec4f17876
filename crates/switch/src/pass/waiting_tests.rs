//! Frames that wait for limits, at ingress, at egress or at both: each is counted, judged and mirrored once, however often it is looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use crate::batch::PortSet;
use crate::frame::{DropReason, Mac, Owner};
use crate::policy::{Bound, Bucket, Checks, Domain, Egress, Excess, Guard, Limit, Policy, Rates, Rules};
use crate::port::Watch;
use crate::table::MacTable;
use crate::testing::{Lan, Offer, Plan, frame, group, mac, number};
use crate::time::Time;
use crate::topology::Member;
use crate::{Judging, OnFault, Program, ProgramFailed, Programmed, View, ViewPort, pass};

const SECOND: u64 = 1_000_000_000;
/// The clock between two looks at ports that are due.
const STEP: u64 = 500_000;
/// The same, for clients that are looked at seldom.
const LONG_STEP: u64 = 10 * SECOND;
/// Steps after which frames wait for ever.
const MANY: u32 = 200_000;
/// Senders, receivers, and the mirror of port 1.
const SENDERS: [u16; 2] = [0, 3];
const RECEIVERS: [u16; 2] = [1, 2];
const MIRROR: u16 = 4;
/// Frames of this kind are dropped by the program.
const DENIED: u8 = 7;

/// Sends each frame to the port of its destination, and counts how often it saw each.
#[derive(Default)]
struct Counting {
    seen: Mutex<HashMap<u32, u32>>,
    drops: Mutex<u64>,
}

impl Program for Counting {
    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        let mut words = Vec::new();
        let mut seen = self.seen.lock().unwrap();
        batch.each(0, batch.len(), |frame| {
            *seen.entry(number(frame.head)).or_default() += 1;
            let word = match (frame.head[5], frame.head[0] & 1) {
                (DENIED, _) => 0x4_0000,
                (_, 1) => 0x3_0000,
                (port, _) => 0x1_0000 | u32::from(Owner::new(port.into(), 0).bits()),
            };
            words.extend(word.to_le_bytes());
        });
        let mut set = PortSet::default();
        RECEIVERS.iter().for_each(|port| set.insert(*port));
        batch.decide(&words, &[Some(set)]).map_err(|_| ProgramFailed)?;
        *self.drops.lock().unwrap() += batch.drops().iter().sum::<u64>();
        Ok(())
    }
}

/// What a limit of a scene is.
#[derive(Clone, Copy, Debug)]
struct Limits {
    excess: Excess,
    rate: u64,
    burst: u64,
}

impl Limits {
    fn limit(self) -> Limit {
        let mut limit = Limit::new(Rates { bits: Some(Bucket::new(self.rate, self.burst)), frames: None });
        limit.excess = self.excess;
        limit
    }
}

#[derive(Clone, Debug)]
struct Frame {
    /// Milliseconds.
    at: u64,
    /// Which sender, and the last byte of the destination; 0: a group.
    from: usize,
    to: u8,
    len: usize,
    is_spoofed: bool,
}

#[derive(Clone, Debug)]
struct Scene {
    ingress: Option<Limits>,
    egress: Option<Limits>,
    has_program: bool,
    batch: usize,
    frames: Vec<Frame>,
    step: u64,
}

fn limits() -> impl Strategy<Value = Option<Limits>> {
    let excess = prop_oneof![5 => Just(Excess::Shape), 1 => Just(Excess::Wait), 1 => Just(Excess::Drop)];
    let limits = (excess, 1_000_000..20_000_000_u64, 16_000..200_000_u64);
    prop::option::weighted(0.8, limits.prop_map(|(excess, rate, burst)| Limits { excess, rate, burst }))
}

fn scenes() -> impl Strategy<Value = Scene> {
    let len = prop_oneof![60..200_usize, Just(1514), 200..1514_usize];
    let to = prop_oneof![6 => Just(1), 2 => Just(2), 1 => Just(0), 1 => Just(DENIED)];
    let frame = (0..60_u64, 0..2_usize, to, len, prop::bool::weighted(0.1));
    let frame = frame.prop_map(|(at, from, to, len, is_spoofed)| Frame { at, from, to, len, is_spoofed });
    // Bursts at the same time.
    let frames = prop::collection::vec((frame, 1..40_usize), 1..60).prop_map(|bursts| {
        let mut frames: Vec<Frame> = bursts.into_iter().flat_map(|(frame, count)| vec![frame; count]).collect();
        frames.sort_by_key(|frame| frame.at);
        frames
    });
    (limits(), limits(), any::<bool>(), 8..256_usize, frames, steps()).prop_map(
        |(ingress, egress, has_program, batch, frames, step)| Scene {
            ingress,
            egress,
            has_program,
            batch,
            frames,
            step,
        },
    )
}

fn steps() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(STEP), 1 => Just(LONG_STEP)]
}

struct Made<P> {
    lan: Lan,
    ingress: Option<Arc<Limit>>,
    egress: Option<Arc<Egress>>,
    program: Option<Arc<P>>,
}

impl Scene {
    fn make<P: Program + Default + 'static>(&self) -> Made<P> {
        let ingress = self.ingress.map(|limits| Arc::new(limits.limit()));
        let egress = self.egress.map(|limits| Arc::new(Egress::new(limits.limit())));
        let (of_sender, of_receiver) = (ingress.clone(), egress.clone());
        let give = move |member: Member| {
            let guard = Guard::new(Checks { mac: true, ..Checks::NONE }, &member.macs, &[]);
            let policy = match member.owner.index() {
                0 => Policy { ingress: of_sender.clone(), guard: Some(Arc::new(guard)), ..Policy::default() },
                1 => Policy { egress: of_receiver.clone(), ..Policy::default() },
                _ => Policy::default(),
            };
            Member { policy: policy.in_use(), ..member }
        };
        let plan = Plan { change: Box::new(give), bytes: 8 << 20, batch: self.batch, ..Plan::new(5) };
        let program = self.has_program.then(Arc::<P>::default);
        let mut lan = match &program {
            None => plan.map(),
            Some(program) => plan.build(|members| {
                let port = |member: &Member| ViewPort {
                    owner: member.owner,
                    name: String::new(),
                    port: Arc::downgrade(&member.port),
                    is_mirror: false,
                };
                let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
                let view = View::new(members.iter().map(port), 0, Arc::new(MacTable::new(64, 64, [0; 2])), domain);
                let program = Arc::clone(program) as Arc<dyn Program>;
                Box::new(Programmed::new(program, Arc::new(view), OnFault::Drop))
            }),
        };
        let mirrored = Watch { mirrors_out: vec![MIRROR], ..Watch::default() };
        let mirror = Watch { is_mirror: true, ..Watch::default() };
        lan.switch = lan.switch.with_watches([(1, mirrored), (MIRROR, mirror)]);
        Made { lan, ingress, egress, program }
    }

    fn run(&self) -> Made<Counting> {
        let mut made = self.make();
        let lan = &mut made.lan;
        let (mut next, mut until, mut now, mut steps) = (0, [0; 2], SECOND, 0);
        while next < self.frames.len() || SENDERS.iter().any(|port| !lan.offers[usize::from(*port)].is_empty()) {
            while let Some(one) = self.frames.get(next).filter(|frame| SECOND + frame.at * 1_000_000 <= now) {
                let port = SENDERS[one.from];
                let from = mac(if one.is_spoofed { 9 } else { port.into() });
                let to = if one.to == 0 { group(1) } else { mac(one.to.into()) };
                lan.offers[usize::from(port)].put(&frame(to, from, one.len, next as u32), &[]);
                next += 1;
            }
            for (port, until) in SENDERS.into_iter().zip(&mut until) {
                if now >= *until {
                    let time = Time { nanoseconds: now, ..Time::at_second((now / SECOND) as u32) };
                    let source = lan.switch.member(port).expect("a port");
                    let passed = pass(&lan.switch, source, &mut lan.offers[usize::from(port)], &mut lan.work, &time);
                    *until = passed.until.unwrap_or(0);
                }
            }
            (now, steps) = (now + self.step, steps + 1);
            assert!(steps < MANY, "frames wait for ever");
        }
        made
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ringway_testing::whole(200, 2_000), ..ProptestConfig::default() })]

    #[test]
    fn each_frame_is_counted_judged_and_mirrored_once(scene in scenes()) {
        let Made { lan, ingress, egress, program } = scene.run();
        let sent: Vec<u64> = (0..2).map(|from| scene.frames.iter().filter(|frame| frame.from == from).count() as u64).collect();
        for (port, sent) in SENDERS.into_iter().zip(&sent) {
            prop_assert_eq!(lan.counters(port).in_frames, *sent);
        }
        let received = RECEIVERS.map(|port| lan.received(port));
        let numbers = |frames: &[Vec<u8>]| frames.iter().map(|frame| number(frame)).collect::<Vec<u32>>();

        // Each frame arrives at most once, and is counted as dropped otherwise. Those of groups are counted apart.
        let is_group = |frame: u32| scene.frames[frame as usize].to == 0;
        for received in &received {
            let mut once = numbers(received);
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), received.len());
        }
        let unicast = received.iter().flatten().filter(|frame| !is_group(number(frame))).count() as u64;
        let groups = [numbers(&received[0]), numbers(&received[1])].concat().into_iter().filter(|number| is_group(*number));
        let lost_in: u64 = SENDERS.iter().flat_map(|port| lan.counters(*port).drops().map(|(_, frames)| frames).collect::<Vec<_>>()).sum();
        let limited = lan.dropped(1, DropReason::EgressLimited);
        let heard: std::collections::BTreeSet<u32> = groups.collect();
        let sent: u64 = sent.iter().sum();
        // A group's frame that port 1 loses reaches port 2 all the same.
        let groups_lost = received[1].iter().filter(|frame| is_group(number(frame))).count()
            - received[0].iter().filter(|frame| is_group(number(frame))).count();
        prop_assert_eq!(unicast + heard.len() as u64 + lost_in + limited - groups_lost as u64, sent);

        // The limits count what the ports count.
        if let Some(limit) = &ingress {
            let tally = limit.tally().read();
            prop_assert_eq!(tally.refused(), lan.dropped(0, DropReason::RateLimited));
            prop_assert_eq!(tally.frames + tally.refused(), lan.counters(0).in_frames);
        }
        if let Some(egress) = &egress {
            let tally = egress.limit().tally().read();
            prop_assert_eq!(tally.refused(), limited);
            prop_assert_eq!(tally.frames, received[0].len() as u64);
        }

        // The mirror shows what was delivered.
        prop_assert_eq!(numbers(&lan.received(MIRROR)), numbers(&received[0]));

        if let Some(program) = &program {
            let seen = program.seen.lock().unwrap();
            prop_assert_eq!(seen.iter().find(|(_, times)| **times > 1), None);
            for number in received.iter().flatten().map(|frame| number(frame)) {
                prop_assert!(seen.contains_key(&number));
            }
            let dropped: u64 = SENDERS.iter().map(|port| lan.dropped(*port, DropReason::ProgramDropped)).sum();
            let denied = *program.drops.lock().unwrap();
            prop_assert!(denied >= dropped, "{} {}", denied, dropped);
            let all = scene.frames.iter().filter(|frame| frame.to == DENIED).count() as u64;
            prop_assert!(denied <= all);
        }
    }
}

/// Admits every frame to port 1 but each third one, alike or not, and counts how many it judged.
#[derive(Default)]
struct EachThird(Mutex<u32>);

impl EachThird {
    fn admits(judged: u32) -> bool {
        judged % 3 != 1
    }
}

impl Program for EachThird {
    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        let (mut words, mut judged) = (Vec::new(), self.0.lock().unwrap());
        batch.each(0, batch.len(), |_| {
            let word = if Self::admits(*judged) { 0x1_0001_u32 } else { 0x4_0000 };
            words.extend(word.to_le_bytes());
            *judged += 1;
        });
        batch.decide(&words, &[]).map_err(|_| ProgramFailed)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ringway_testing::whole(100, 1_000), ..ProptestConfig::default() })]

    #[test]
    fn each_of_equal_frames_has_its_own_verdict(
        (ingress, egress, batch, step) in (limits(), limits(), 8..256_usize, steps()),
        frames in prop::collection::vec((0..3_u32, 1..40_usize, any::<bool>()), 1..30),
    ) {
        // None is lost at a limit.
        let waits = |limits: Option<Limits>| limits.map(|limits| Limits { excess: Excess::Wait, ..limits });
        let scene = Scene { ingress: waits(ingress), egress: waits(egress), has_program: true, batch, frames: vec![], step };
        let Made { mut lan, program, .. } = scene.make::<EachThird>();
        // Those of another sender's address never reach the program.
        let sent: Vec<(u32, bool)> = frames.iter().flat_map(|&(kind, count, is_spoofed)| vec![(kind, is_spoofed && count < 4); count]).collect();
        for (kind, is_spoofed) in &sent {
            let from = mac(if *is_spoofed { 9 } else { 0 });
            lan.offers[0].put(&frame(mac(1), from, 60 + 500 * *kind as usize, *kind), &[]);
        }
        let (mut now, mut steps) = (SECOND, 0);
        while !lan.offers[0].is_empty() {
            pass_at(&mut lan, now);
            (now, steps) = (now + step, steps + 1);
            prop_assert!(steps < MANY, "frames wait for ever");
        }
        let accepted: Vec<u32> = sent.iter().filter(|(_, is_spoofed)| !is_spoofed).map(|(kind, _)| *kind).collect();
        prop_assert_eq!(*program.expect("a program").0.lock().unwrap(), accepted.len() as u32);
        let came: Vec<u32> = lan.received(1).iter().map(|frame| number(frame)).collect();
        let admitted = accepted.into_iter().zip(0..).filter(|(_, place)| EachThird::admits(*place));
        prop_assert_eq!(came, admitted.map(|(kind, _)| kind).collect::<Vec<u32>>());
    }
}

fn pass_at(lan: &mut Lan, now: u64) {
    let time = Time { nanoseconds: now, ..Time::at_second((now / SECOND) as u32) };
    let source = lan.switch.member(0).expect("a port");
    pass(&lan.switch, source, &mut lan.offers[0], &mut lan.work, &time);
}

#[test]
fn a_verdict_is_forgotten_when_its_frame_no_longer_waits() {
    let limits = Limits { excess: Excess::Wait, rate: 8_000_000, burst: 16_000 };
    let scene = Scene { ingress: None, egress: Some(limits), has_program: true, batch: 64, frames: vec![], step: STEP };
    // Nothing instead, something instead, less.
    for instead in [&[][..], &[7, 8], &[1]] {
        let Made { mut lan, program, .. } = scene.make::<Counting>();
        let program = program.expect("a program");
        let mut now = SECOND;
        let mut show = |lan: &mut Lan, numbers: &[u32]| {
            lan.offers[0] = Offer::new(1 << 20);
            numbers.iter().for_each(|number| lan.offers[0].put(&frame(mac(1), mac(0), 4_000, *number), &[]));
            pass_at(lan, now);
            now += STEP;
        };
        // Each takes the burst.
        show(&mut lan, &[0, 1, 2]);
        assert_eq!(lan.received(1).len(), 1);
        show(&mut lan, instead);
        show(&mut lan, &[2]);
        let seen = program.seen.lock().unwrap();
        assert_eq!((seen[&1], seen[&2]), (1, 2), "{instead:?}");
    }
}

#[test]
fn a_frame_that_changes_while_it_waits_is_judged_anew() {
    let limits = Limits { excess: Excess::Wait, rate: 8_000_000, burst: 16_000 };
    let scene = Scene { ingress: None, egress: Some(limits), has_program: true, batch: 64, frames: vec![], step: STEP };
    let Made { mut lan, program, .. } = scene.make::<Counting>();
    let program = program.expect("a program");
    // Each takes the burst.
    for number in 0..3 {
        lan.offers[0].put(&frame(mac(1), mac(0), 4_000, number), &[]);
    }
    lan.pass(0);
    assert_eq!((lan.received(1).len(), program.seen.lock().unwrap().len()), (1, 3));
    // The second one becomes one that the program drops.
    let at = 4_000_usize.next_multiple_of(64) + 64;
    let denied = Mac::new([2, 0, 0, 0, 0, DENIED]).octets();
    let view = lan.offers[0].memory.view(at, denied.len()).expect("its place");
    assert!(view.write(&denied));
    while !lan.offers[0].is_empty() {
        lan.now += 1;
        lan.pass(0);
    }
    let came: Vec<u32> = lan.received(1).iter().map(|frame| number(frame)).collect();
    let seen = program.seen.lock().unwrap();
    assert_eq!((came, seen[&1], seen[&2], lan.dropped(0, DropReason::ProgramDropped)), (vec![2], 2, 1, 1));
}

/// Leaves every frame to the learning bridge.
#[derive(Default)]
struct BuiltIn;

impl Program for BuiltIn {
    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        batch.decide(&vec![0; 4 * batch.len()], &[]).map_err(|_| ProgramFailed)
    }
}

#[test]
fn a_frame_that_waits_is_learned_once_and_when_it_leaves_its_ring() {
    // A frame takes the burst, and the next may pass after 4 ms.
    let limits = Limits { excess: Excess::Wait, rate: 8_000_000, burst: 16_000 };
    let scene = Scene { ingress: None, egress: Some(limits), has_program: true, batch: 64, frames: vec![], step: STEP };
    let egress = Arc::new(Egress::new(limits.limit()));
    let give = move |member: Member| {
        let egress = (member.owner.index() == 1).then(|| Arc::clone(&egress));
        Member { policy: Policy { egress, ..Policy::default() }.in_use(), ..member }
    };
    let learning = Plan { change: Box::new(give), ..Plan::new(5) }.learning();
    for mut lan in [learning, scene.make::<BuiltIn>().lan] {
        let (first, second, moved) = (mac(3), mac(8), mac(9));
        let learn = |lan: &Lan, mac, port| lan.switch.table().learn(mac, Owner::new(port, 0), 1, |_| true);
        learn(&lan, mac(1), 1);
        // A station that has moved: another port cannot have it for a second.
        learn(&lan, moved, 0);
        learn(&lan, moved, 2);
        for source in [first, second, moved] {
            lan.offers[3].put(&frame(mac(1), source, 6_000, 0), &[]);
        }
        let mut left = 0;
        for ms in 0..20 {
            let time = Time { nanoseconds: SECOND + ms * 1_000_000, ..Time::at_second(1) };
            let source = lan.switch.member(3).expect("a port");
            pass(&lan.switch, source, &mut lan.offers[3], &mut lan.work, &time);
            left += lan.received(1).len();
            let is_known = |mac| lan.switch.table().lookup(mac) == Some(Owner::new(3, 0));
            assert_eq!((is_known(first), is_known(second)), (true, left > 1), "{left} have left");
            assert_eq!(lan.counters(3).moves_held, u64::from(left > 2), "{left} have left");
        }
        assert_eq!(left, 3);
    }
}
