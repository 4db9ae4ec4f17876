//! Sets of ports that a program names, down to delivery.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::{Judging, OnFault, Program, ProgramFailed, Programmed, View, ViewPort};
use crate::batch::PortSet;
use crate::defect::contain;
use crate::frame::{Accepts, DropReason, Mac, Offload};
use crate::policy::{Bound, Bucket, Domain, Egress, Limit, Membership, Policy, Rates, Reach, Rules, Storm};
use crate::port::{PortFault, Tap, TappedFrame, Watch};
use crate::table::MacTable;
use crate::testing::{Lan, Plan, frame, mac};
use crate::time::Time;
use crate::topology::Member;

/// Gives each frame the verdict that is the word at its byte 18. Set 0 is ports 1 and 3, set 1 only the source, set 2 nothing.
#[derive(Default)]
struct ByFrame {
    /// Lets no poller enter; a test sets it.
    is_busy: AtomicBool,
    /// Panics instead of judging; a test sets it.
    panics: AtomicBool,
    /// Counts the pollers that have entered, and those of them that have left.
    entered: AtomicUsize,
    left: AtomicUsize,
}

impl ByFrame {
    /// Returns how many pollers have entered since the last call. All have left, once each.
    fn passed_through(&self) -> usize {
        let entered = self.entered.swap(0, Ordering::Relaxed);
        assert_eq!(self.left.swap(0, Ordering::Relaxed), entered);
        entered
    }
}

fn set(ports: &[u16]) -> Option<PortSet> {
    let mut set = PortSet::default();
    ports.iter().for_each(|port| set.insert(*port));
    Some(set)
}

impl Program for ByFrame {
    fn enter(&self) -> bool {
        let may = !self.is_busy.load(Ordering::Relaxed);
        self.entered.fetch_add(may.into(), Ordering::Relaxed);
        may
    }

    fn leave(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        assert!(!self.panics.load(Ordering::Relaxed), "injected");
        let mut words = Vec::new();
        batch.each(0, batch.len(), |frame| words.extend(&frame.head[18..22]));
        batch.decide(&words, &[set(&[1, 3]), set(&[0]), set(&[])]).map_err(|_| ProgramFailed)
    }
}

fn lan() -> Lan {
    planned(Plan::new(5), false)
}

fn planned(plan: Plan, vlans: bool) -> Lan {
    with_program(plan, vlans, Arc::<ByFrame>::default(), OnFault::Drop)
}

fn with_program(plan: Plan, vlans: bool, program: Arc<dyn Program>, on_fault: OnFault) -> Lan {
    let mut lan = plan.build(|members| {
        let port = |member: &Member| ViewPort {
            owner: member.owner,
            name: String::new(),
            port: Arc::downgrade(&member.port),
            is_mirror: false,
        };
        let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans };
        let view = View::new(members.iter().map(port), 0, Arc::new(MacTable::new(64, 64, [0; 2])), domain);
        Box::new(Programmed::new(program, Arc::new(view), on_fault))
    });
    let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans };
    lan.switch = lan.switch.within(domain);
    lan
}

fn with(word: u32, number: u32) -> Vec<u8> {
    let mut bytes = frame(mac(9), mac(0), 60, number);
    bytes[18..22].copy_from_slice(&word.to_le_bytes());
    bytes
}

const SET: u32 = 0x3_0000;
const FLOOD: u32 = 0x2_0000;

#[test]
fn a_set_is_given_to_its_ports_only_and_in_order_with_other_frames() {
    let mut lan = lan();
    lan.send(0, &[with(SET, 1), with(FLOOD, 2), with(0x1_0001, 3), with(SET, 4)]);
    let heard: Vec<Vec<u32>> =
        (0..5).map(|port| lan.received(port).iter().map(|frame| crate::testing::number(frame)).collect()).collect();
    assert_eq!(heard, [vec![], vec![1, 2, 3, 4], vec![2], vec![1, 2, 4], vec![2]]);
    // The next batch hears nothing of the sets of this one.
    lan.send(0, &[with(FLOOD, 5)]);
    assert_eq!(lan.hearers(), [1, 2, 3, 4]);
}

#[test]
fn frames_for_a_set_that_nobody_hears_count_as_lost() {
    let mut lan = lan();
    lan.send(0, &[with(SET + 1, 1), with(SET, 2), with(SET + 2, 3)]);
    assert_eq!(lan.hearers(), [1, 3]);
    assert_eq!(lan.dropped(0, DropReason::NoDestination), 2);
    lan.send(0, &[with(SET + 3, 1)]);
    assert_eq!(lan.dropped(0, DropReason::ProgramFault), 1);
}

#[test]
fn isolation_allowed_pairs_and_vlans_hold_above_a_program() {
    let dropped_to = |lan: &mut Lan, port: u32| {
        lan.send(0, &[with(0x1_0000 + port, 1)]);
        let reasons: Vec<DropReason> = lan.counters(0).drops().map(|(reason, _)| reason).collect();
        (reasons, lan.hearers())
    };
    let mut lan = planned(Plan { isolated: vec![0, 1], ..Plan::new(5) }, false);
    assert_eq!(dropped_to(&mut lan, 1), (vec![DropReason::Isolated], vec![]));
    lan.send(0, &[with(SET, 2)]);
    assert_eq!(lan.hearers(), [3], "port 1 is isolated as well");
    let pair = |member: Member| {
        let allow = (member.owner.index() == 0).then(|| [2].into());
        Member { reach: Reach { allow, ..Reach::default() }, ..member }
    };
    let mut lan = planned(Plan { change: Box::new(pair), ..Plan::new(5) }, false);
    assert_eq!(dropped_to(&mut lan, 1), (vec![DropReason::PairDenied], vec![]));
    lan.send(0, &[with(FLOOD, 2)]);
    assert_eq!(lan.hearers(), [2]);
    let vlan = |member: Member| {
        let vlans = Membership::access(if member.owner.index() == 3 { 6 } else { 5 });
        Member { vlans, ..member }
    };
    let mut lan = planned(Plan { change: Box::new(vlan), ..Plan::new(5) }, true);
    assert_eq!(dropped_to(&mut lan, 3), (vec![DropReason::VlanDenied], vec![]));
    lan.send(0, &[with(0x1_0001, 2), with(SET, 3), with(FLOOD, 4)]);
    assert_eq!(lan.hearers(), [1, 2, 4]);
}

/// Drops all frames, and then fails.
struct Failing;

impl Program for Failing {
    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        batch.decide(&0x4_0000_u32.to_le_bytes().repeat(batch.len()), &[]).expect("verdicts");
        Err(ProgramFailed)
    }
}

#[test]
fn after_a_fault_each_frame_goes_by_its_own_vlan() {
    let vlan = |member: Member| {
        let vlans = match member.owner.index() {
            0 => Membership::trunk([5, 6], None),
            port => Membership::access(4 + port),
        };
        Member { vlans, ..member }
    };
    let mut lan =
        with_program(Plan { change: Box::new(vlan), ..Plan::new(3) }, true, Arc::new(Failing), OnFault::Learning);
    let tagged = |to: u32, vlan: u8| {
        let mut bytes = frame(mac(to), mac(0), 60, 0);
        bytes.splice(12..12, [0x81, 0, 0, vlan]);
        bytes
    };
    lan.send(1, &[frame(mac(1), mac(1), 60, 0)]);
    lan.send(0, &[tagged(1, 5), tagged(9, 6)]);
    assert_eq!([1, 2].map(|port| lan.received(port).len()), [1, 1]);
}

#[test]
fn storm_control_holds_for_groups_that_a_program_sends_to_one_port() {
    let broadcast = Rates { bits: None, frames: Some(Bucket::new(1, 1)) };
    let storm = Arc::new(Storm::new(broadcast, Rates::default(), Rates::default()));
    let limited = move |member: Member| {
        let policy = Policy { storm: Some(Arc::clone(&storm)), ..Policy::default() };
        Member { policy: Some(policy), ..member }
    };
    let mut lan = planned(Plan { change: Box::new(limited), ..Plan::new(3) }, false);
    let broadcast = |number| {
        let mut bytes = with(0x1_0001, number);
        bytes[..6].fill(0xff);
        bytes
    };
    lan.send(0, &[broadcast(1), broadcast(2), broadcast(3)]);
    assert_eq!((lan.received(1).len(), lan.dropped(0, DropReason::StormLimited)), (1, 2));
}

#[test]
fn frames_behind_a_flood_of_the_same_addresses_go_where_the_program_sends_them() {
    let rates = Rates { bits: None, frames: Some(Bucket::new(40, 50)) };
    let egress = Arc::new(Egress::new(Limit::new(rates)));
    let limited = move |member: Member| {
        let egress = (member.owner.index() == 1).then(|| Arc::clone(&egress));
        Member { policy: Some(Policy { egress, ..Policy::default() }), ..member }
    };
    let mut lan = planned(Plan { change: Box::new(limited), ..Plan::new(3) }, false);
    for number in 0..20 {
        let backend = |of: u32| with(0x1_0001 + of, number);
        let frames =
            (0..600).map(|_| backend(0)).chain((0..10).map(|_| backend(1))).chain((0..600).map(|_| backend(0)));
        lan.send(0, &frames.collect::<Vec<_>>());
    }
    assert_eq!(lan.received(2).len(), 200);
    assert_eq!(lan.dropped(1, DropReason::EgressLimited), 20 * 1200 - lan.received(1).len() as u64);
}

#[test]
fn frames_wait_in_their_ring_while_the_program_is_busy_and_none_is_lost() {
    let program = Arc::<ByFrame>::default();
    let mut lan = with_program(Plan::new(5), false, Arc::clone(&program) as Arc<dyn Program>, OnFault::Drop);
    program.is_busy.store(true, Ordering::Relaxed);
    (1..=3).for_each(|number| lan.offers[0].put(&with(FLOOD, number), &[]));
    lan.offers[0].news = true;
    let passed = lan.pass(0);
    assert_eq!((passed.frames, passed.fault, lan.offers[0].len(), lan.offers[0].releases), (0, None, 3, 0));
    assert_eq!(passed.until, Some(Time::at_second(1).nanoseconds + 50_000));
    assert!(!lan.offers[0].news, "events are handled");
    assert_eq!((lan.hearers(), lan.counters(0).in_frames), (vec![], 0));
    program.is_busy.store(false, Ordering::Relaxed);
    assert_eq!((lan.pass(0).frames, lan.offers[0].len()), (3, 0));
    assert_eq!(lan.received(4).len(), 3);
}

#[test]
fn a_poller_leaves_the_program_however_a_pass_ends() {
    let program = Arc::<ByFrame>::default();
    let eye = Arc::new(Eye::default());
    let mut lan = with_program(Plan::new(4), false, Arc::clone(&program) as Arc<dyn Program>, OnFault::Drop);
    let mirror = Watch { is_mirror: true, ..Watch::default() };
    let tapped = Watch { taps: vec![Arc::clone(&eye) as Arc<dyn Tap>], mirrors_in: vec![3], ..Watch::default() };
    lan.switch = lan.switch.with_watches([(2, tapped), (3, mirror)]);
    for from in 0..4 {
        assert_eq!(lan.pass(from).frames, 0);
        lan.send(from, &[with(FLOOD, 1)]);
        lan.send(from, &[frame(mac(9), Mac::new([1; 6]), 60, 1)]);
        assert_eq!(program.passed_through(), 3, "nothing, a frame, and one that is rejected: port {from}");
    }
    assert_eq!(lan.dropped(3, DropReason::MirrorPort), 2);

    lan.offers[0].refuse = vec![DropReason::Runt];
    lan.pass(0);
    lan.offers[0].fault = Some(PortFault::EndlessFrame);
    assert_eq!(lan.pass(0).fault, Some(PortFault::EndlessFrame));
    assert_eq!(program.passed_through(), 2, "no frame but a refused one, and a fault");

    let panics = |lan: &mut Lan, from| {
        lan.offers[usize::from(from)].put(&with(FLOOD, 1), &[]);
        let place = contain(|| lan.pass(from)).expect_err("a panic");
        let member = lan.switch.member(from).expect("a port");
        lan.work.blame(&lan.switch, member, place);
    };
    lan.offers[0].changes = Some((usize::MAX, [0; 4]));
    panics(&mut lan, 0);
    assert_eq!(program.passed_through(), 1, "while frames are collected");
    program.panics.store(true, Ordering::Relaxed);
    panics(&mut lan, 1);
    program.panics.store(false, Ordering::Relaxed);
    assert_eq!(program.passed_through(), 1, "while they are judged");
    eye.panics.store(true, Ordering::Relaxed);
    panics(&mut lan, 2);
    assert_eq!(program.passed_through(), 1, "while they are shown");
    assert!([0, 1, 2].iter().all(|port| lan.switch.member(*port).expect("a port").port.fault().is_some()));
}

/// A capture.
#[derive(Default)]
struct Eye {
    /// Panics; a test sets it.
    panics: AtomicBool,
}

impl Tap for Eye {
    fn see<'b, 'm: 'b>(&self, _: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>) {
        assert!(!self.panics.load(Ordering::Relaxed), "injected");
    }

    fn ring(&self) {}
}

/// Has frames flooded, and keeps what it has seen of them.
#[derive(Default)]
struct Reading(Mutex<Vec<(Vec<u8>, u8)>>);

impl Program for Reading {
    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        let mut seen = self.0.lock().unwrap();
        batch.each(0, batch.len(), |frame| {
            seen.push((frame.head[..frame.len.min(128)].to_vec(), frame.offload));
        });
        batch.decide(&FLOOD.to_le_bytes().repeat(batch.len()), &[]).map_err(|_| ProgramFailed)
    }
}

#[test]
fn a_checksum_that_would_change_what_the_program_reads_is_finished_before() {
    let program = Arc::<Reading>::default();
    let mut lan = with_program(Plan::new(2), false, Arc::clone(&program) as Arc<dyn Program>, OnFault::Drop);
    lan.sink(1, |kept| kept.accepts = Accepts::EVERYTHING);
    // UDP.
    let mut udp = frame(Mac::BROADCAST, mac(0), 600, 0);
    udp[12..34].copy_from_slice(&[8, 0, 0x45, 0, 2, 74, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    // Where the sum begins and where it goes: its own field; that of TCP in VXLAN; those of TCP in tunnels whose headers end with
    // the bytes that the program reads, within its field, and before it. In one piece and in several.
    let (handed_on, finished, lost) = (0, 1, 2);
    let places = [(34, 6, handed_on), (84, 16, finished), (110, 16, finished), (111, 16, lost), (112, 16, handed_on)];
    for ((csum_start, csum_offset, fate), pieces) in
        places.into_iter().flat_map(|place| [(place, &[][..]), (place, &[99, 2, 100][..])])
    {
        let offload = Offload { needs_csum: true, csum_start, csum_offset, ..Offload::default() };
        let before = lan.dropped(0, DropReason::BadOffload);
        lan.offers[0].put_offloaded(&udp, pieces, Some(offload));
        lan.pass(0);
        assert_eq!(lan.dropped(0, DropReason::BadOffload) - before, u64::from(fate == lost), "{offload:?}");
        let (came, seen) = (lan.received_offloaded(1), std::mem::take(&mut *program.0.lock().unwrap()));
        let mut whole = udp.clone();
        if fate == finished {
            let field = usize::from(csum_start) + usize::from(csum_offset);
            let sum = whole[csum_start.into()..].chunks(2).fold(0_u32, |sum, two| {
                let sum = sum + u32::from(u16::from_be_bytes([two[0], two.get(1).copied().unwrap_or(0)]));
                (sum & 0xffff) + (sum >> 16)
            });
            whole[field..field + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        match &came[..] {
            [] => assert_eq!((fate, seen.len()), (lost, 0)),
            [(bytes, left)] => {
                assert_eq!((*bytes == whole, left.is_some()), (true, fate == handed_on), "{offload:?}");
                assert_eq!(seen, [(bytes[..128].to_vec(), u8::from(fate == handed_on))]);
            }
            _ => panic!("{} frames", came.len()),
        }
    }
}
