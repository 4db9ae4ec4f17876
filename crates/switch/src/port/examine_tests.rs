//! Time of a pass, by port.

use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;

use ringway_memory::Mapping;

use crate::policy::{Bound, Domain, Rules};
use crate::testing::samples::Sample;
use crate::testing::{Lan, Offer, Plan, begin_detour, frame, mac};
use crate::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, DeliveryTime, Discarded, Examined, Frames, Input, Judging,
    Mac, MacTable, Member, Moment, OnFault, Output, Port, PortFault, Program, ProgramFailed, Programmed, Time,
    TimeSpent, View, WakeOn, Watch, empty, pass,
};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1) };
    static EVENTS: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

fn now() -> u64 {
    NOW.get()
}

/// The same as [`now`], with what [`happen`] has counted.
fn moment() -> Moment {
    let [faults, sleeps] = EVENTS.get();
    Moment { nanoseconds: now(), faults, sleeps, slow_calls: 0 }
}

/// The thread has so many page faults and blocks so often.
fn happen(faults: u64, sleeps: u64) {
    EVENTS.set([EVENTS.get()[0] + faults, EVENTS.get()[1] + sleeps]);
}

fn spend(nanoseconds: u64) {
    NOW.set(NOW.get() + nanoseconds);
}

/// A source whose memory takes time to read, and changes as soon as frames were collected.
struct Costly<'a> {
    offer: &'a mut Offer,
    collect: u64,
    release: u64,
    /// Page faults, and how often the thread blocks, in each collect.
    happens: [u64; 2],
    /// Descriptors that each collect follows.
    steps: u64,
}

impl Input for Costly<'_> {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        spend(self.collect);
        happen(self.happens[0], self.happens[1]);
        batch.note_steps(self.steps);
        self.offer.collect(batch)
    }

    fn release(&mut self) {
        spend(self.release);
        self.offer.release();
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        spend(self.collect);
        self.offer.discard(most)
    }

    fn pending(&mut self) -> bool {
        self.offer.pending()
    }

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        self.offer.arm(wake_on)
    }

    fn disarm(&mut self) {}
}

/// A receiver that takes time: `.0` nanoseconds for each delivery, `.1` for each ring of its bell.
struct CostlyTo(u64, u64);

impl Output for CostlyTo {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        spend(self.0);
        frames.for_each(|frame| counters.add_out(1, frame.len() as u64));
        Ok(())
    }
}

impl Bell for CostlyTo {
    fn ring(&self, _: CallReason) -> CallResult {
        spend(self.1);
        CallResult::Unwanted
    }
}

/// What a port took, in a short time.
fn given(port: u16, nanoseconds: u64, frames: u64, bytes: u64) -> DeliveryTime {
    DeliveryTime { port, spent: TimeSpent { nanoseconds, frames, bytes, stalled: 0, explained: nanoseconds } }
}

/// Returns a switch whose port `n` takes 100 * n ns for each delivery, and n ns for each ring of its bell.
fn lan(ports: u16) -> Lan {
    let change = |member: Member| {
        let cost = u64::from(member.owner.index());
        let costly = || Box::new(CostlyTo(100 * cost, cost));
        Member { port: Arc::new(Port::new("p", costly(), costly())), ..member }
    };
    Plan { change: Box::new(change), ..Plan::new(ports) }.map()
}

#[test]
fn each_port_is_told_what_it_took_of_a_pass() {
    let (mut lan, area) = (lan(4), Mapping::private(Examined::AREA).expect("memory"));
    for (to, len) in [(2, 60), (3, 1514), (2, 700)] {
        lan.offers[0].put(&frame(mac(to), mac(0), len, 0), &[]);
    }
    let mut costly = Costly { offer: &mut lan.offers[0], collect: 7000, release: 50, happens: [0; 2], steps: 0 };
    let mut input = Examined::new(&mut costly, &area, moment);
    lan.work.examine(Some(moment));
    let time = Time { read: now, ..Time::at_second(1) };
    let member = lan.switch.member(0).expect("a port");
    assert_eq!(pass(&lan.switch, member, &mut input, &mut lan.work, &time).frames, 3);
    assert_eq!(
        input.spent(),
        TimeSpent { nanoseconds: 7050, frames: 3, bytes: 60 + 1514 + 700, stalled: 0, explained: 7050 }
    );
    assert_eq!(lan.work.given(), [given(2, 202, 2, 760), given(3, 303, 1, 1514), given(0, 0, 0, 0)]);

    // Examining again clears the results. A pass that is not examined is not measured.
    lan.work.examine(Some(moment));
    assert_eq!(lan.work.given(), []);
    lan.work.examine(None);
    lan.send(0, &[frame(mac(2), mac(0), 60, 0)]);
    assert_eq!(lan.work.given(), []);
}

#[test]
fn the_time_of_a_program_is_measured_in_examined_passes_only() {
    struct Slow;
    impl Program for Slow {
        fn judge(&self, _: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
            spend(300);
            Err(ProgramFailed)
        }
    }
    let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
    let view = Arc::new(View::new([], 2, Arc::new(MacTable::new(64, 64, [0; 2])), domain));
    let mut lan = Plan::new(2).build(|_| Box::new(Programmed::new(Arc::new(Slow), view, OnFault::Learning)));
    let area = Mapping::private(Examined::AREA).expect("memory");
    // A poller examines no pass before some were slow.
    lan.send(0, &[frame(mac(1), mac(0), 60, 0)]);
    assert_eq!(lan.work.take_source_time(0), TimeSpent::default());
    lan.offers[0].put(&frame(mac(1), mac(0), 60, 0), &[]);
    let mut input = Examined::new(&mut lan.offers[0], &area, moment);
    let member = lan.switch.member(0).expect("a port");
    assert_eq!(pass(&lan.switch, member, &mut input, &mut lan.work, &Time::at_second(1)).frames, 1);
    let took = lan.work.take_source_time(0);
    assert_eq!((took.nanoseconds, took.explained), (300, 300));
    assert_eq!(lan.work.take_source_time(0), TimeSpent::default());
    lan.send(0, &[frame(mac(1), mac(0), 60, 0)]);
    assert_eq!(lan.work.take_source_time(0), TimeSpent::default());
}

#[test]
fn checksums_that_are_finished_for_a_program_count_as_its_time() {
    /// A clock that goes on with each look.
    fn ticking() -> Moment {
        spend(1);
        moment()
    }
    struct Idle;
    impl Program for Idle {
        fn judge(&self, _: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
            Err(ProgramFailed)
        }
    }
    let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
    let view = Arc::new(View::new([], 2, Arc::new(MacTable::new(64, 64, [0; 2])), domain));
    let mut lan = Plan::new(2).build(|_| Box::new(Programmed::new(Arc::new(Idle), view, OnFault::Learning)));
    lan.send(0, &[frame(mac(1), mac(0), 60, 0)]);
    let area = Mapping::private(Examined::AREA).expect("memory");
    let offload =
        |csum_start| crate::Offload { needs_csum: true, csum_start, csum_offset: 16, ..crate::Offload::default() };
    // One whose field the program reads.
    let took = [None, Some(offload(84))].map(|offload| {
        lan.offers[0].put_offloaded(&frame(mac(1), mac(0), 600, 0), &[], offload);
        let mut input = Examined::new(&mut lan.offers[0], &area, ticking);
        let member = lan.switch.member(0).expect("a port");
        assert_eq!(pass(&lan.switch, member, &mut input, &mut lan.work, &Time::at_second(1)).frames, 1);
        lan.work.take_source_time(0).nanoseconds
    });
    assert_eq!(took, [1, 2]);
}

#[test]
fn what_a_client_does_to_its_memory_meanwhile_does_not_reach_who_is_delivered_to() {
    /// Changes all of the client's memory when the batch is complete.
    struct Changing<'a, 'b>(Examined<'a>, &'b Mapping);
    impl Input for Changing<'_, '_> {
        fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
            let collected = self.0.collect(batch);
            let memory = self.1.whole();
            assert!(memory.write(&vec![0xee; memory.len()]));
            collected
        }
        fn release(&mut self) {
            self.0.release();
        }
        fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
            self.0.discard(most)
        }
        fn pending(&mut self) -> bool {
            self.0.pending()
        }
        fn arm(&mut self, wake_on: WakeOn) -> Armed {
            self.0.arm(wake_on)
        }
        fn disarm(&mut self) {}
    }

    let (mut lan, area) = (Plan::new(2).map(), Mapping::private(Examined::AREA).expect("memory"));
    // Frames in one piece and in several, and frames no longer than the head and longer ones.
    let pieces: [&[usize]; 6] = [&[], &[14, 50], &[128], &[1, 1, 1, 1, 1, 1, 200], &[200, 300, 1], &[127, 2]];
    // Short frames behind long ones as well.
    let lengths = [60, 127, 128, 129, 700, 1514, 9000, 700, 129, 128, 60];
    let sent: Vec<Vec<u8>> = lengths
        .iter()
        .flat_map(|&len| pieces.iter().map(move |pieces| (len, *pieces)))
        .enumerate()
        .map(|(number, (len, pieces))| {
            let frame = frame(mac(1), mac(0), len, number as u32);
            lan.offers[0].put(&frame, pieces);
            frame
        })
        .collect();
    let memory = Arc::clone(&lan.offers[0].memory);
    let examined = Examined::new(&mut lan.offers[0], &area, moment);
    let mut input = Changing(examined, &memory);
    let member = lan.switch.member(0).expect("a port");
    let passed = pass(&lan.switch, member, &mut input, &mut lan.work, &Time::at_second(1));
    assert_eq!(passed.frames, sent.len() as u64);
    assert_eq!(lan.received(1), sent);
}

#[test]
fn a_full_batch_fits_into_the_area() {
    let area = Mapping::private(Examined::AREA).expect("memory");
    let mut lan = Plan { bytes: 4 << 20, ..Plan::new(2) }.map();
    for number in 0..60 {
        lan.offers[0].put(&frame(mac(1), mac(0), 64 << 10, number), &[40_000, 10]);
    }
    let memory = Arc::clone(&lan.offers[0].memory);
    let mut input = Examined::new(&mut lan.offers[0], &area, moment);
    let member = lan.switch.member(0).expect("a port");
    let passed = pass(&lan.switch, member, &mut input, &mut lan.work, &Time::at_second(1));
    assert!(passed.frames >= 32, "{passed:?}");
    drop(memory);
    for (number, bytes) in lan.received(1).iter().enumerate() {
        assert_eq!(*bytes, frame(mac(1), mac(0), 64 << 10, number as u32));
    }
}

#[test]
fn flooded_frames_are_told_apart_by_receiver() {
    let mut lan = lan(5);
    lan.work.examine(Some(moment));
    lan.offers[1].put(&frame(Mac::BROADCAST, mac(1), 60, 0), &[]);
    let time = Time { read: now, ..Time::at_second(1) };
    let member = lan.switch.member(1).expect("a port");
    pass(&lan.switch, member, &mut lan.offers[1], &mut lan.work, &time);
    let given: Vec<(u16, u64)> = lan.work.given().iter().map(|given| (given.port, given.spent.nanoseconds)).collect();
    // The last entry is the source: its bell is rung as well.
    assert_eq!(given, [(0, 0), (2, 202), (3, 303), (4, 404), (1, 1)]);
}

#[test]
fn a_mirrored_port_is_told_its_own_frames_and_time_and_its_mirror_is_told_its_own() {
    let mut lan = lan(4);
    let watch = Watch { mirrors_out: vec![3], ..Watch::default() };
    lan.switch = lan.switch.with_watches([(2, watch), (3, Watch { is_mirror: true, ..Watch::default() })]);
    lan.work.examine(Some(moment));
    for len in [60, 700] {
        lan.offers[0].put(&frame(mac(2), mac(0), len, 0), &[]);
    }
    let time = Time { read: now, ..Time::at_second(1) };
    let member = lan.switch.member(0).expect("a port");
    pass(&lan.switch, member, &mut lan.offers[0], &mut lan.work, &time);
    assert_eq!(lan.work.given(), [given(2, 202, 2, 760), given(3, 303, 2, 760), given(0, 0, 0, 0)]);
}

/// A clock that goes on with each reading.
fn ticking() -> Moment {
    spend(1);
    moment()
}

#[test]
fn the_time_in_which_frames_are_cut_for_their_receivers_is_that_of_the_sender() {
    let mut lan = Plan::new(3).learning();
    let (area, sample) = (Mapping::private(Examined::AREA).expect("memory"), Sample::default());
    let (mut bytes, offload) = sample.build();
    bytes[..6].copy_from_slice(&[0xff; 6]);
    for (offload, cut) in [(None, false), (Some(offload), true)] {
        lan.offers[0].put_offloaded(&bytes, &[], offload);
        lan.work.examine(Some(ticking));
        let mut input = Examined::new(&mut lan.offers[0], &area, ticking);
        pass(
            &lan.switch,
            lan.switch.member(0).expect("a port"),
            &mut input,
            &mut lan.work,
            &Time { read: now, ..Time::at_second(1) },
        );
        let frames: Vec<u64> =
            lan.work.given().iter().filter(|given| given.port > 0).map(|given| given.spent.frames).collect();
        assert_eq!(frames, if cut { [4; 2] } else { [1; 2] });
        assert_eq!(lan.work.take_source_time(1_000_000).nanoseconds >= 2, cut);
        assert_eq!(lan.work.take_source_time(0), TimeSpent::default());
        lan.work.examine(None);
    }
}

/// A pass from port 0 to port 2 in which the source takes `collect` and `happens` there, while elsewhere the thread sleeps in a page fault,
/// too. Returns what the source and the receiver took.
fn examined_with(collect: u64, happens: [u64; 2], steps: u64) -> [TimeSpent; 2] {
    struct Swapped;
    impl Program for Swapped {
        fn judge(&self, _: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
            happen(1, 1);
            Err(ProgramFailed)
        }
    }
    let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
    let view = Arc::new(View::new([], 3, Arc::new(MacTable::new(64, 64, [0; 2])), domain));
    let mut lan = Plan::new(3).build(|_| Box::new(Programmed::new(Arc::new(Swapped), view, OnFault::Learning)));
    let area = Mapping::private(Examined::AREA).expect("memory");
    lan.send(2, &[frame(mac(9), mac(2), 60, 0)]);
    lan.offers[0].put(&frame(mac(2), mac(0), 60, 0), &[]);
    let mut costly = Costly { offer: &mut lan.offers[0], collect, release: 0, happens, steps };
    let mut input = Examined::new(&mut costly, &area, moment);
    lan.work.examine(Some(moment));
    let member = lan.switch.member(0).expect("a port");
    pass(&lan.switch, member, &mut input, &mut lan.work, &Time { read: now, ..Time::at_second(1) });
    [input.spent(), lan.work.given()[0].spent]
}

#[test]
fn only_a_sleep_in_a_page_fault_at_the_ports_own_memory_is_its_stall() {
    const LONG: u64 = 20_000_000;
    // The thread lost its processor and nothing says so: the clock has moved, and that is all.
    let [source, receiver] = examined_with(LONG, [0, 0], 0);
    assert_eq!((source.nanoseconds, source.stalled, receiver.stalled), (LONG, 0, 0));
    assert!(source.explained * 20 < LONG, "{source:?}");
    // It slept there for another reason, or filled pages without a sleep.
    assert_eq!(examined_with(LONG, [0, 1], 0)[0].stalled, 0);
    let [source, _] = examined_with(LONG, [3, 0], 0);
    assert_eq!((source.stalled, source.explained), (0, LONG));
    let [source, receiver] = examined_with(LONG, [1, 1], 0);
    assert_eq!((source.stalled, receiver.stalled), (LONG, 0));
}

#[test]
fn descriptors_that_a_collect_follows_explain_its_time() {
    const LONG: u64 = 2_000_000;
    let explained = |steps| examined_with(LONG, [0, 0], steps)[0].explained;
    assert!(explained(4096) >= LONG, "4,096 cold ones may take as long");
    // The processor was taken away from a client with a few.
    assert!(explained(128) < LONG / 5);
    let [source, _] = examined_with(LONG, [1, 1], 4096);
    assert_eq!((source.stalled, source.explained), (LONG, 0));
}

#[test]
fn the_time_that_a_program_waits_before_it_begins_is_nobodys() {
    struct Waits;
    impl Program for Waits {
        fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
            spend(1_000_000);
            batch.begin();
            spend(40);
            Err(ProgramFailed)
        }
    }
    let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
    let view = Arc::new(View::new([], 2, Arc::new(MacTable::new(64, 64, [0; 2])), domain));
    let mut lan = Plan::new(2).build(|_| Box::new(Programmed::new(Arc::new(Waits), view, OnFault::Learning)));
    let area = Mapping::private(Examined::AREA).expect("memory");
    lan.send(0, &[frame(mac(1), mac(0), 60, 0)]);
    lan.offers[0].put(&frame(mac(1), mac(0), 60, 0), &[]);
    let mut input = Examined::new(&mut lan.offers[0], &area, moment);
    let member = lan.switch.member(0).expect("a port");
    pass(&lan.switch, member, &mut input, &mut lan.work, &Time::at_second(1));
    assert_eq!((input.spent().nanoseconds, lan.work.take_source_time(0).nanoseconds), (0, 40));
}

#[test]
fn the_time_in_which_frames_of_a_backlog_are_cut_is_told_and_is_not_that_of_the_next_pass() {
    let mut lan = Plan::new(3).learning();
    let (mut bytes, offload) = Sample::default().build();
    bytes[..6].copy_from_slice(&mac(1).octets());
    bytes[6..12].copy_from_slice(&mac(0).octets());
    lan.send(1, &[frame(mac(9), mac(1), 60, 0)]);
    begin_detour(&lan.switch.member(1).expect("a port").port, Waker::noop().clone());
    lan.offers[0].put_offloaded(&bytes, &[], Some(offload));
    let time = Time { read: now, ..Time::at_second(1) };
    pass(&lan.switch, lan.switch.member(0).expect("a port"), &mut lan.offers[0], &mut lan.work, &time);
    lan.work.examine(Some(ticking));
    let emptied = empty(&lan.switch.member(1).expect("a port").port, &mut lan.work, &time);
    assert!(emptied.frames == 1 && emptied.cutting > 0, "{emptied:?}");
    assert!(lan.counters(1).out_frames > 1, "it was cut");
    lan.send(2, &[frame(mac(0), mac(2), 60, 0)]);
    assert_eq!(lan.work.take_source_time(1_000_000), TimeSpent::default());
}
