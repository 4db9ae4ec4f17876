//! e1000s on a switch whose passes and clock belong to the test: counters of frames that wait, and the effect of hostile
//! guests on their neighbours' frames.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_memory::View;
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, CountersReading, Discarded, DropReason, FloodPolicy, Frames,
    Input, Learning, MacTable, Member, Output, Owner, Port, PortFault, Role, Switch, Time, WakeOn, Workspace, contain,
    pass,
};

use super::Model;
use super::bell::E1000Bell;
use super::device_tests::{DESCRIPTORS, Nic};
use super::offsets::*;
use super::output::E1000Output;
use crate::vfio_user::Function;

const BATCH: usize = 64;
/// Returns the address of a neighbour.
const fn neighbour(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, number]
}

/// An input that sends frames from its own memory when a test asks for it.
struct Source {
    frames: Vec<Vec<u8>>,
    due: usize,
}

impl Source {
    fn new(from: [u8; 6], to: [u8; 6], len: usize) -> Source {
        let frame: Vec<u8> =
            [to, from].concat().into_iter().chain([0x88, 0xb5]).chain(0..255).cycle().take(len).collect();
        Source { frames: vec![frame; BATCH], due: 0 }
    }
}

impl Input for Source {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let taken = self.due.min(batch.room());
        self.due -= taken;
        for frame in self.frames.iter_mut().take(taken) {
            let len = frame.len();
            batch.push(View::private(frame), len);
        }
        Ok(())
    }
    fn release(&mut self) {}
    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        unreachable!("there are no limits")
    }
    fn pending(&mut self) -> bool {
        self.due > 0
    }
    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::with_kick(self.due > 0)
    }
    fn disarm(&mut self) {}
}

/// An output that accepts all frames and counts those of one neighbour.
struct Sink([u8; 6], Arc<AtomicU64>);

impl Output for Sink {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        for frame in frames {
            counters.add_out(1, frame.len() as u64);
            self.1.fetch_add(u64::from(frame.head().0[6..12] == self.0), Ordering::Relaxed);
        }
        Ok(())
    }
}

struct Silent;

impl Bell for Silent {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

/// A switch with two neighbours at ports 0 and 1, and NICs at the ports after them.
struct Lan {
    switch: Switch,
    neighbours: [Source; 2],
    /// For each neighbour, the number of frames received from the other.
    came: [Arc<AtomicU64>; 2],
    work: Workspace,
    now: u64,
}

impl Lan {
    fn of(nics: &[Nic]) -> Lan {
        let came: [Arc<AtomicU64>; 2] = Default::default();
        let sinks = [0, 1].map(|at| -> (Box<dyn Output>, Box<dyn Bell>) {
            (Box::new(Sink(neighbour(1 - at as u8), Arc::clone(&came[at]))), Box::new(Silent))
        });
        let cards = nics.iter().map(|nic| -> (Box<dyn Output>, Box<dyn Bell>) {
            let device = Arc::clone(&nic.device);
            (Box::new(E1000Output::new(Arc::clone(&device))), Box::new(E1000Bell { device }))
        });
        let members =
            sinks.into_iter().chain(cards).zip(0..).map(|((output, bell), index)| {
                Member::new(Owner::new(index, 0), Arc::new(Port::new("p", output, bell)))
            });
        let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
        let switch = Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default());
        let source = |from, to| Source::new(neighbour(from), neighbour(to), 64);
        let neighbours = [source(0, 1), source(1, 0)];
        Lan { switch, neighbours, came, work: Workspace::new(BATCH), now: 1_000_000_000 }
    }

    fn counters(&self, port: u16) -> CountersReading {
        self.switch.member(port).expect("a port").port.counters().read()
    }

    /// Runs a pass of a port. Frames that are delivered or lost later are counted in a further pass, as with pollers.
    fn pass(&mut self, port: u16, input: &mut dyn Input) -> u64 {
        self.now += 1_000;
        let now = Time { nanoseconds: self.now, ..Time::at_second(1) };
        let passed = pass(&self.switch, self.switch.member(port).expect("a port"), input, &mut self.work, &now);
        assert!(passed.fault.is_none() && !passed.receiver_fault);
        passed.frames
    }

    /// Each neighbour sends `frames` frames to the other, in one pass.
    fn round(&mut self, frames: usize) {
        for port in 0..2 {
            let mut source = std::mem::replace(&mut self.neighbours[port], Source { frames: Vec::new(), due: 0 });
            source.due = frames;
            self.pass(port as u16, &mut source);
            self.neighbours[port] = source;
        }
    }

    fn came(&self) -> [u64; 2] {
        self.came.each_ref().map(|came| came.load(Ordering::Relaxed))
    }
}

/// Fills the receive ring of a NIC at port 2, and sends it `held` further frames of `len` bytes, which wait.
fn fill(lan: &mut Lan, nic: &Nic, held: u64, len: usize) {
    let mut source = Source::new(neighbour(0), [0xff; 6], len);
    let goal = u64::from(DESCRIPTORS) - 1 + held;
    while lan.counters(2).out_frames < goal {
        source.due = BATCH.min((goal - lan.counters(2).out_frames) as usize);
        assert!(lan.pass(0, &mut source) > 0);
    }
    assert!(nic.device.is_waiting());
}

thread_local! {
    static TRAP: Cell<bool> = const { Cell::new(false) };
}

/// Panics while waiting frames are delivered to the guest, if a test has asked for it.
pub(super) fn trap_of_held_frames() {
    if TRAP.take() {
        panic!("injected");
    }
}

/// Runs a step, a pass or the calls that are due, in which port 2 panics and is retired. Returns true if only the
/// port's own client was blamed for the panic.
fn is_attributable(lan: &mut Lan, is_pass: bool, step: impl FnOnce(&mut Lan)) -> bool {
    TRAP.set(true);
    let place = contain(|| step(lan)).expect_err("a panic");
    assert!(!TRAP.get());
    let nic = lan.switch.member(2).expect("a port");
    // As a poller does after a panic.
    let is_blamed = if is_pass { lan.work.blame(&lan.switch, nic, place) } else { lan.work.calls.blame(place) };
    assert!(is_blamed);
    let Some(PortFault::InternalError(defect)) = nic.port.fault() else { panic!("{:?}", nic.port.fault()) };
    assert!(lan.counters(0).drops().chain(lan.counters(1).drops()).next().is_none());
    defect.role != Role::Receiver
}

#[test]
fn a_guest_is_not_blamed_for_frames_that_others_left_in_its_packet_buffer() {
    // The driver has given descriptors. Its poller is told, with frames of the guest to send or without; or a scheduled
    // call looks for descriptors.
    for sends in [0, 1] {
        let mut nics = [Nic::new(Model::E1000)];
        nics[0].up();
        let mut lan = Lan::of(&nics);
        fill(&mut lan, &nics[0], 20, 64);
        nics[0].write(RDT, DESCRIPTORS - 2);
        nics[0].send(sends);
        let [nic] = &mut nics;
        assert!(
            !is_attributable(&mut lan, true, |lan| {
                lan.pass(2, &mut nic.input);
            }),
            "with {sends} frames"
        );
    }
    let mut nics = [Nic::with(Model::E1000e, true)];
    nics[0].up();
    let mut lan = Lan::of(&nics);
    fill(&mut lan, &nics[0], 20, 64);
    // The driver has given no descriptor yet: a poller has to check again.
    nics[0].device.set_event();
    lan.pass(2, &mut nics[0].input);
    assert!(lan.work.calls.due().is_some());
    nics[0].write(RDT, DESCRIPTORS - 2);
    let late = Time { nanoseconds: u64::MAX, ..Time::at_second(1) };
    assert!(!is_attributable(&mut lan, false, |lan| assert!(!lan.work.calls.make(&late))));
}

#[test]
fn a_guest_is_blamed_for_frames_that_it_sent_itself() {
    let mut nics = [Nic::new(Model::E1000)];
    nics[0].up();
    nics[0].write(RCTL, RCTL_EN | 1 << 3 | 1 << 4 | RCTL_SECRC | 1 << 6);
    let mut lan = Lan::of(&nics);
    for _ in 0..2 {
        nics[0].write(TDH, 0);
        nics[0].send(100);
        while nics[0].read(TDH) < 100 {
            lan.pass(2, &mut nics[0].input);
        }
    }
    assert!(nics[0].device.is_waiting());
    nics[0].write(RDT, DESCRIPTORS - 2);
    let [nic] = &mut nics;
    assert!(is_attributable(&mut lan, true, |lan| {
        lan.pass(2, &mut nic.input);
    }));
}

#[test]
fn frames_that_are_lost_in_the_packet_buffer_are_counted_by_name() {
    type Change = fn(&Nic);
    let again = RCTL_EN | 1 << 3 | 1 << 4 | RCTL_SECRC;
    assert_eq!(again & 1 << 15, 0, "broadcasts only by promiscuous mode");
    let changes: [(&str, usize, Change); 7] = [
        ("receiving is turned off", 64, |nic| nic.write(RCTL, 0)),
        ("the NIC is reset", 64, |nic| nic.write(CTRL, CTRL_RST)),
        ("the cable is pulled", 64, |nic| nic.device.set_cable(false)),
        ("the ring is moved", 64, |nic| nic.write(RDH, 0)),
        ("the guest disconnects", 64, |nic| nic.device.disconnected()),
        ("the filters change", 64, |nic| {
            nic.write(RCTL, RCTL_EN | RCTL_SECRC);
            nic.write(RDT, DESCRIPTORS - 2);
        }),
        ("the ring breaks", 64, |nic| nic.write(RDT, DESCRIPTORS + 5)),
    ];
    for (what, len, change) in changes {
        let mut nics = [Nic::new(Model::E1000)];
        nics[0].up();
        let mut lan = Lan::of(&nics);
        fill(&mut lan, &nics[0], 20, len);
        // The driver takes some frames, so that there is room for those that wait.
        nics[0].write(RDT, DESCRIPTORS - 1);
        let (before, lost) = (lan.counters(2), |lan: &Lan| lan.counters(2).dropped(DropReason::BufferLost));
        assert_eq!((before.out_frames, lost(&lan)), (147, 0), "{what}");
        change(&nics[0]);
        assert!(nics[0].input.pending(), "the poller does not see the waiting frames: {what}");
        for _ in 0..3 {
            lan.pass(2, &mut nics[0].input);
        }
        assert_eq!(lost(&lan), 20, "{what}");
        assert!(!nics[0].input.pending(), "frames still wait: {what}");
        assert_eq!(lan.counters(2).out_frames, 147, "waiting frames count as delivered: {what}");
    }
}

#[test]
fn a_frame_that_waits_and_is_more_than_all_descriptors_hold_is_counted_and_holds_up_none() {
    const SHORT_RING: u32 = 8;
    let again = RCTL_EN | 1 << 3 | 1 << 4 | RCTL_SECRC;
    let (buffers_of_256, long_frames) = (3 << 16, 1 << 5);
    let mut nics = [Nic::new(Model::E1000)];
    nics[0].up();
    nics[0].write(RCTL, 0);
    nics[0].write(RDLEN, SHORT_RING * 16);
    nics[0].write(RDH, 0);
    nics[0].write(RDT, SHORT_RING - 1);
    nics[0].write(RCTL, again | buffers_of_256 | long_frames);
    let mut lan = Lan::of(&nics);
    // Seven frames fill the ring. Behind them wait one frame that takes eight buffers and two short ones.
    for (frames, len) in [(7, 64), (1, 8 * 256), (2, 64)] {
        let mut source = Source::new(neighbour(0), [0xff; 6], len);
        source.due = frames;
        assert_eq!(lan.pass(0, &mut source), frames as u64);
    }
    let lost = |lan: &Lan| lan.counters(2).dropped(DropReason::BufferLost);
    assert_eq!((lan.counters(2).out_frames, lost(&lan)), (10, 0));
    nics[0].guest.write(nics[0].receive + 8, &[0; 8]);
    nics[0].write(RDT, SHORT_RING - 2);
    for _ in 0..3 {
        lan.pass(2, &mut nics[0].input);
    }
    assert_eq!((lan.counters(2).out_frames, lost(&lan)), (10, 1));
    assert!(nics[0].received(7).1 && nics[0].received(0).1, "the frames behind the long frame came");
    assert!(!nics[0].device.is_waiting());
}

#[test]
fn frames_that_a_guest_sent_itself_are_not_counted_when_they_are_lost() {
    let mut nics = [Nic::new(Model::E1000)];
    nics[0].up();
    nics[0].write(RCTL, RCTL_EN | 1 << 3 | 1 << 4 | RCTL_SECRC | 1 << 6);
    let mut lan = Lan::of(&nics);
    for _ in 0..2 {
        nics[0].write(TDH, 0);
        nics[0].send(100);
        while nics[0].read(TDH) < 100 {
            lan.pass(2, &mut nics[0].input);
        }
    }
    assert!(nics[0].device.is_waiting(), "127 of 200 frames have a descriptor, the others wait");
    nics[0].write(CTRL, CTRL_RST);
    for _ in 0..3 {
        lan.pass(2, &mut nics[0].input);
    }
    let counters = lan.counters(2);
    assert_eq!((counters.out_frames, counters.dropped(DropReason::BufferLost)), (0, 0));
}

/// The attack of a hostile guest, once in each round.
type Attack = fn(&Nic, u32);

/// Writes a descriptor of the transmit ring.
fn descriptor(nic: &Nic, place: u32, words: [u64; 2]) {
    let bytes = words.map(u64::to_le_bytes).concat();
    nic.guest.write(nic.transmit + u64::from(place % DESCRIPTORS) * 16, &bytes);
}

/// Command bits in a descriptor's second word: end of packet, frame check sequence, report status.
const EOP: u64 = 1 << 24;
const IFCS: u64 = 1 << 25;
const RS: u64 = 1 << 27;
const CONTEXT: u64 = 1 << 29;
const DATA: u64 = CONTEXT | 1 << 20;
const TSE: u64 = 1 << 26;

/// Fills the whole ring with equal descriptors.
fn all(nic: &Nic, round: u32, words: [u64; 2]) {
    (0..DESCRIPTORS).for_each(|place| descriptor(nic, place, words));
    nic.write(TDT, (nic.read(TDH) + DESCRIPTORS - 1 - round % 2) % DESCRIPTORS);
}

const ATTACKS: [(&str, Attack); 9] = [
    ("chains without end", |nic, round| all(nic, round, [nic.transmit, 1 << 16 | RS])),
    ("addresses outside memory", |nic, round| {
        restart(nic);
        all(nic, round, [!0xff, 64 | EOP | IFCS | RS]);
    }),
    ("heads and tails beyond the end", |nic, round| {
        restart(nic);
        nic.write(TDT, DESCRIPTORS + round);
        nic.write(RDT, !0);
    }),
    ("invalid segments", |nic, round| {
        for place in (0..DESCRIPTORS).step_by(2) {
            descriptor(nic, place, [!0, !(0xf << 20) & !(0xff << 24) | CONTEXT | u64::from(round) << 40]);
            descriptor(nic, place + 1, [nic.transmit, 0xf_ffff | DATA | TSE | EOP | RS]);
        }
        nic.write(TDT, (nic.read(TDH) + DESCRIPTORS - 1) % DESCRIPTORS);
    }),
    ("frames with the neighbours' addresses", |nic, round| {
        let mut frame = [neighbour(1), neighbour(0)].concat();
        frame.resize(64, round as u8);
        all(nic, round, [nic.guest.place(&frame), 64 | EOP | IFCS | RS]);
    }),
    ("broadcast storms", |nic, round| {
        let mut frame = [[0xff; 6], [2, 0, 0, 0, 9, round as u8]].concat();
        frame.resize(64, 0);
        all(nic, round, [nic.guest.place(&frame), 64 | EOP | IFCS | RS]);
    }),
    ("storms to the guest's own address", |nic, round| {
        nic.write(RCTL, RCTL_EN | 1 << 3 | 1 << 4 | 1 << 6);
        all(nic, round, [nic.transmit, 64 | EOP | IFCS | RS]);
    }),
    ("rings turned off and on", |nic, round| {
        nic.write(TCTL, 0);
        nic.write(RCTL, 0);
        restart(nic);
        all(nic, round, [nic.transmit, 64 | EOP | RS]);
    }),
    ("resets and interrupts", |nic, _| {
        nic.write(CTRL, CTRL_RST);
        nic.write(CTRL, CTRL_SLU);
        restart(nic);
        nic.write(IMS, !0);
        nic.write(ICS, !0);
        nic.device.unmasked();
    }),
];

/// Turns broken rings on again.
fn restart(nic: &Nic) {
    for (control, on) in [(TCTL, TCTL_EN), (RCTL, RCTL_EN | 1 << 3 | 1 << 4)] {
        nic.write(control, 0);
        nic.write(control, on);
    }
}

/// Returns how many frames each neighbour received in 500 rounds of 48 frames, while two guests attack in every round,
/// and the most frames that one pass of the guests moved.
fn beside(attack: Option<Attack>) -> ([u64; 2], u64) {
    let mut nics = [Model::E1000, Model::E1000e].map(Nic::new);
    nics.iter().for_each(Nic::up);
    let mut lan = Lan::of(&nics);
    let mut most = 0;
    // The switch learns both addresses.
    lan.round(1);
    for round in 0..500 {
        for (nic, port) in nics.iter_mut().zip(2..) {
            if let Some(attack) = attack {
                attack(nic, round);
                most = most.max(lan.pass(port, &mut nic.input));
            }
        }
        lan.round(48);
    }
    (lan.came(), most)
}

#[test]
fn neighbours_keep_every_frame_in_as_many_passes_beside_hostile_guests() {
    let (alone, _) = beside(None);
    assert_eq!(alone, [24_001; 2]);
    for (what, attack) in ATTACKS {
        let (came, most) = beside(Some(attack));
        assert!(most <= BATCH as u64, "{what}: {most} frames in a pass");
        for (came, alone) in came.into_iter().zip(alone) {
            assert!(came >= alone, "{what}: {came} of {alone} frames");
        }
    }
}
