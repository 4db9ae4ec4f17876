//! Causes, masks, messages and both kinds of moderation, with the test's own clock.

use proptest::prelude::*;
use ringway_testing::whole;

use super::interrupt::{Causes, Raise, ReceivedEvent, SentEvent, Signalling};
use super::offsets::*;

const OLD: u32 = 0x0001_ffff;
const NEW: u32 = 0x01f7_ffff;
/// Longest time in nanoseconds that the device delays the interrupt for sent frames.
const LONGEST_PATIENCE: u64 = 300_000;
const RECEIVED: ReceivedEvent = ReceivedEvent { frames: true, low: false, overrun: false };
const REPORTED: SentEvent =
    SentEvent { second: false, reported: true, delay: true, empty: false, descriptors: 1, bytes: 60, ring: 256 };

fn raise(vectors: u8) -> Raise {
    Raise { vectors, next: None }
}

fn at(next: u64) -> Raise {
    Raise { vectors: 0, next: Some(next) }
}

#[test]
fn a_masked_cause_is_raised_when_it_is_unmasked() {
    let mut causes = Causes::new(OLD);
    causes.set(LSC);
    assert_eq!(causes.settle(1), raise(0));
    causes.unmask(LSC | RXT0);
    assert_eq!(causes.settle(2), raise(1));
    assert!(causes.pin());
    assert_eq!(causes.settle(3), raise(0), "the line is already asserted");
    assert_eq!(causes.read(), LSC);
    assert!(!causes.pin());
}

#[test]
fn reading_takes_masked_causes_along_on_the_older_model() {
    let mut causes = Causes::new(OLD);
    causes.set(LSC | TXQE);
    causes.unmask(RXT0);
    assert_eq!((causes.read(), causes.read()), (LSC | TXQE, 0));
}

#[test]
fn reading_takes_nothing_along_that_was_not_raised_on_the_newer_model() {
    let mut causes = Causes::new(NEW);
    causes.set(TXQE);
    causes.unmask(RXT0);
    assert_eq!((causes.read(), causes.read()), (TXQE, TXQE), "another cause is unmasked");
    causes.set(RXT0);
    assert_eq!((causes.read(), causes.read()), (ASSERTED | RXT0 | TXQE, 0));
    causes.set(TXQE);
    causes.mask(!0);
    assert_eq!((causes.read(), causes.read()), (TXQE, 0), "no cause is unmasked");
}

#[test]
fn reading_masks_by_itself_where_that_is_asked_for() {
    let mut causes = Causes::new(NEW);
    causes.set_iam(RXT0 | TXDW);
    causes.set_ctrl_ext(EXT_IAME);
    causes.unmask(RXT0 | LSC);
    causes.set(RXT0);
    assert_eq!(causes.settle(1), raise(1));
    assert_eq!(causes.read(), ASSERTED | RXT0);
    assert_eq!(causes.ims(), LSC);
    causes.set(RXT0);
    assert_eq!(causes.settle(2), raise(0));
    causes.unmask(RXT0);
    assert_eq!(causes.settle(3), raise(1), "the cause that came meanwhile");
}

#[test]
fn a_link_change_is_one_of_the_other_causes_of_the_newer_model_only() {
    let mut old = Causes::new(OLD);
    old.set(LSC);
    assert_eq!(old.read(), LSC);
    let mut new = Causes::new(NEW);
    new.set(LSC);
    assert_eq!(new.read(), LSC | OTHER);
}

#[test]
fn each_message_has_its_causes_its_interval_and_its_own_end() {
    let mut causes = Causes::new(NEW);
    causes.set_signalling(Signalling::PerVector);
    // The setting of Linux: receive, transmit and other causes go to messages 0, 1 and 2. The causes of queues clear
    // and mask themselves.
    causes.set_ivar(8 | 9 << 8 | 10 << 16);
    causes.set_eiac(RXQ0 | TXQ0);
    causes.set_iam(!0);
    causes.set_ctrl_ext(EXT_EIAME);
    causes.set_eitr(0, 100);
    causes.unmask(RXQ0 | TXQ0 | OTHER | LSC);
    causes.received(RECEIVED, 0, 0, || 0);
    causes.sent(REPORTED, 0, 0, || 0);
    assert_eq!(causes.settle(1_000), raise(0b011));
    assert_eq!(causes.ims(), OTHER | LSC, "both are masked");
    assert_eq!(causes.settle(1_001), raise(0));
    causes.unmask(RXQ0 | TXQ0);
    assert_eq!(causes.settle(1_002), raise(0), "the message was already sent");
    causes.received(RECEIVED, 0, 0, || 0);
    causes.sent(REPORTED, 0, 0, || 0);
    assert_eq!(causes.settle(2_000), Raise { vectors: 0b010, next: Some(1_000 + 25_600) });
    assert_eq!(causes.settle(26_600), raise(0b001));
    causes.set(LSC);
    assert_eq!(causes.settle(26_601), raise(0b100));
    assert_ne!(causes.read() & LSC, 0);
}

#[test]
fn a_clearing_message_ends_the_causes_of_rings_and_tells_once_of_others() {
    let mut causes = Causes::new(OLD);
    causes.set_signalling(Signalling::Clearing);
    causes.set_eiac(!0);
    causes.unmask(RXT0 | TXDW | LSC);
    let receive_at = |now: u64, causes: &mut Causes| {
        causes.received(RECEIVED, 0, 0, || now);
        causes.settle(now)
    };
    assert_eq!(receive_at(1, &mut causes), raise(1));
    assert!(causes.is_quiet());
    assert_eq!((causes.settle(2), receive_at(3, &mut causes)), (raise(0), raise(1)), "without a read of ICR");
    causes.set(LSC);
    assert_eq!((causes.settle(4), causes.settle(5)), (raise(1), raise(0)), "it was told");
    assert_eq!(receive_at(6, &mut causes), raise(1), "an older cause keeps none back");
    assert_eq!((causes.read(), causes.settle(7)), (LSC, raise(0)));
    causes.tell_again(LSC);
    assert_eq!(causes.settle(7), raise(0), "the guest has read it");
    causes.set(LSC);
    assert_eq!((causes.settle(8), causes.settle(8)), (raise(1), raise(0)));
    causes.tell_again(LSC);
    assert_eq!((causes.settle(9), causes.settle(9)), (raise(1), raise(0)), "it was sent too early");
    causes.mask(LSC);
    causes.unmask(LSC);
    assert_eq!((causes.settle(10), causes.settle(11)), (raise(1), raise(0)), "as a line that is unmasked");
    causes.set_itr(100);
    assert_eq!(receive_at(12, &mut causes), at(10 + 25_600));
    assert_eq!((causes.settle(10 + 25_600), causes.read()), (raise(1), LSC));
}

#[test]
fn lost_frames_are_a_cause_at_once_and_seldom_an_interrupt() {
    let lost = ReceivedEvent { overrun: true, ..ReceivedEvent::default() };
    let mut causes = Causes::new(NEW);
    causes.set_signalling(Signalling::PerVector);
    causes.set_ivar(8 | 9 << 8 | 10 << 16);
    causes.unmask(RXQ0 | TXQ0 | OTHER | LSC);
    let mut raised = 0;
    for now in (0..1_000_000_000).step_by(1_000_000) {
        causes.received(lost, 0, 0, || now);
        raised += causes.settle(now).vectors.count_ones();
        assert_ne!(causes.read() & RXO, 0);
    }
    assert_eq!(raised, 10);
    let mut old = Causes::new(OLD);
    old.unmask(RXO);
    for now in 1..4 {
        old.received(lost, 0, 0, || now);
        assert_eq!((old.settle(now), old.read()), (raise(1), RXO), "an unmasked RXO interrupts each time");
    }
}

#[test]
fn a_flush_ends_the_delay_and_only_what_is_delayed_is_flushed() {
    let mut causes = Causes::new(OLD);
    causes.unmask(RXT0 | TXDW);
    causes.flush_receive();
    assert_eq!(causes.settle(1), raise(0));
    causes.received(RECEIVED, 100, 0, || 1);
    assert_eq!(causes.settle(2), at(1 + 102_400));
    causes.flush_receive();
    assert_eq!(causes.settle(3), raise(1));
    assert_eq!(causes.read(), RXT0);
    causes.sent(REPORTED, 10, 0, || 3);
    causes.flush_transmit();
    assert_eq!((causes.settle(4), causes.read()), (raise(1), TXDW));
}

#[test]
fn a_descriptor_that_may_not_be_late_takes_the_others_along() {
    let mut causes = Causes::new(OLD);
    causes.unmask(TXDW);
    causes.sent(REPORTED, 100, 0, || 1);
    causes.sent(SentEvent { delay: false, ..REPORTED }, 100, 0, || 2);
    assert_eq!((causes.settle(2), causes.read()), (raise(1), TXDW));
    assert_eq!(causes.settle(1_000_000), raise(0), "a second interrupt for the cause");
}

#[test]
fn few_descriptors_and_lost_frames_are_told_without_delay() {
    let mut causes = Causes::new(OLD);
    causes.received(ReceivedEvent { frames: true, low: true, overrun: true }, 100, 100, || 1);
    assert_eq!(causes.read(), RXDMT0 | RXO);
}

#[test]
fn the_port_s_own_interval_holds_where_the_guest_asks_for_less() {
    let mut causes = Causes::new(OLD);
    causes.unmask(RXT0);
    causes.set_min_interval(1_000_000);
    causes.set_itr(10);
    for now in [1_000, 1_001_000] {
        causes.received(RECEIVED, 0, 0, || 0);
        assert_eq!(causes.settle(now), raise(1));
        causes.read();
        causes.received(RECEIVED, 0, 0, || 0);
        assert_eq!(causes.settle(now + 1), at(now + 1_000_000));
        causes.set_min_interval(0);
        assert_eq!(causes.settle(now + 2), at(now + 2_560), "a shorter interval applies at once");
        causes.set_min_interval(1_000_000);
        causes.read();
    }
}

#[test]
fn what_was_sent_is_told_when_enough_of_the_ring_or_of_bytes_waits_or_the_time_is_over() {
    let mut causes = Causes::new(OLD);
    causes.unmask(TXDW | RXT0);
    causes.set_completion_delay(2_000_000);
    let now = SentEvent { delay: false, ..REPORTED };
    causes.sent(now, 0, 0, || 1_000);
    assert_eq!(causes.settle(1_000), at(2_001_000));
    causes.sent(SentEvent { descriptors: 198, ..now }, 0, 0, || 900_000);
    assert_eq!(causes.settle(900_000), at(2_001_000), "199 of 256");
    causes.sent(now, 0, 0, || 900_001);
    assert_eq!((causes.settle(900_001), causes.read()), (raise(1), TXDW));
    causes.sent(SentEvent { descriptors: 39, ring: 80, ..now }, 0, 0, || 910_000);
    assert_eq!(causes.settle(910_000), at(2_910_000), "39 of 80");
    causes.sent(SentEvent { ring: 80, ..now }, 0, 0, || 910_001);
    assert_eq!((causes.settle(910_001), causes.read()), (raise(1), TXDW));
    causes.sent(SentEvent { bytes: 131_071, ..now }, 0, 0, || 1_000_000);
    assert_eq!(causes.settle(1_000_000), at(3_000_000));
    causes.sent(now, 0, 0, || 1_000_001);
    assert_eq!((causes.settle(1_000_001), causes.read()), (raise(1), TXDW));
    causes.sent(now, 0, 0, || 2_000_000);
    assert_eq!(causes.settle(3_999_999), at(4_000_000));
    assert_eq!((causes.settle(4_000_000), causes.read()), (raise(1), TXDW));
    causes.sent(SentEvent { ring: 0, ..now }, 0, 0, || 5_000_000);
    assert_eq!((causes.settle(5_000_000), causes.read()), (raise(1), TXDW), "the guest asked for the interrupt");
}

#[test]
fn a_guest_that_was_found_waiting_is_told_sooner_until_it_goes_on_sending() {
    let mut causes = Causes::new(OLD);
    causes.unmask(TXDW);
    causes.set_completion_delay(2_000_000);
    let told = |causes: &mut Causes, sent: &[u64], due| {
        sent.iter().for_each(|&now| causes.sent(REPORTED, 0, 0, || now));
        assert_eq!(causes.settle(due - 1), at(due), "sent at {sent:?}");
        assert_eq!((causes.settle(due), causes.read()), (raise(1), TXDW));
    };
    told(&mut causes, &[0, 1_900_000], 2_000_000);
    told(&mut causes, &[3_000_000, 4_000_000], 5_000_000);
    told(&mut causes, &[6_000_000, 6_200_000], 6_500_000);
    told(&mut causes, &[7_000_000, 7_040_000], 7_090_000);
    told(&mut causes, &[7_200_000], 7_250_000);
    causes.sent(REPORTED, 0, 0, || 7_300_000);
    assert_eq!(causes.settle(7_350_000), raise(1));
    causes.sent(REPORTED, 0, 0, || 7_360_000);
    assert_eq!(causes.settle(7_400_000), at(7_660_000), "the guest sent before it read the cause");
    assert_eq!((causes.settle(7_660_000), causes.read()), (Raise::default(), TXDW));
    told(&mut causes, &[7_700_000], 7_750_000);
    causes.sent(SentEvent { descriptors: 200, ..REPORTED }, 0, 0, || 7_800_000);
    assert_eq!((causes.settle(7_800_000), causes.read()), (raise(1), TXDW));
    told(&mut causes, &[7_900_000], 7_950_000);
    for (descriptors, now) in [(1, 8_000_000), (1, 8_040_000), (198, 8_080_000)] {
        causes.sent(SentEvent { descriptors, ..REPORTED }, 0, 0, || now);
    }
    assert_eq!((causes.settle(8_080_000), causes.read()), (raise(1), TXDW));
    told(&mut causes, &[9_000_000], 11_000_000);
    causes.set_completion_delay(100_000);
    told(&mut causes, &[12_000_000], 12_100_000);
}

#[test]
fn what_was_sent_is_told_with_whatever_is_told_before() {
    let mut causes = Causes::new(OLD);
    causes.unmask(TXDW | RXT0);
    causes.set_completion_delay(2_000_000);
    causes.sent(REPORTED, 0, 0, || 1);
    causes.received(RECEIVED, 0, 0, || 2);
    assert_eq!((causes.settle(2), causes.read()), (raise(1), RXT0 | TXDW));
    assert_eq!(causes.settle(2_000_002), raise(0), "a second interrupt for the sent frame");
    causes.sent(REPORTED, 0, 0, || 3_000_000);
    assert_eq!(causes.read(), TXDW, "a read of ICR shows the delayed cause");
    causes.sent(REPORTED, 0, 0, || 4_000_000);
    causes.set_completion_delay(0);
    assert_eq!((causes.settle(4_000_001), causes.read()), (raise(1), TXDW), "the interrupt comes when the delay ends");
}

#[test]
fn the_guest_s_own_delay_holds_however_long_the_device_waits() {
    let mut causes = Causes::new(OLD);
    causes.unmask(TXDW);
    causes.set_completion_delay(10_000);
    causes.sent(REPORTED, 100, 0, || 0);
    assert_eq!(causes.settle(10_000), at(102_400), "the guest's interval is longer");
    assert_eq!((causes.settle(102_400), causes.read()), (raise(1), TXDW));
    causes.set_completion_delay(1_000_000);
    causes.sent(REPORTED, 100, 0, || 200_000);
    assert_eq!(causes.settle(302_400), at(1_200_000), "the device's interval is longer");
    causes.sent(SentEvent { descriptors: 200, ..REPORTED }, 100, 0, || 400_000);
    assert_eq!(causes.settle(400_000), at(502_400), "the ring is full enough");
    assert_eq!((causes.settle(502_400), causes.read()), (raise(1), TXDW));
}

#[test]
fn a_reset_forgets_causes_and_delays_but_not_when_the_last_interrupt_was() {
    let mut causes = Causes::new(OLD);
    causes.set_min_interval(1_000);
    causes.unmask(RXT0);
    causes.set(RXT0);
    assert_eq!(causes.settle(10_000), raise(1));
    causes.received(RECEIVED, 9, 9, || 10_000);
    causes.reset();
    assert_eq!(causes.settle(u64::MAX / 2), raise(0));
    causes.unmask(RXT0);
    causes.set(RXT0);
    assert_eq!(causes.settle(10_500), at(11_000));
}

/// An event at a NIC, or an action of its guest.
#[derive(Clone, Copy, Debug)]
enum Step {
    Receive { low: bool },
    Send { delay: bool, empty: bool, descriptors: u32 },
    Set(u32),
    Mask,
    Unmask,
    Read,
    Throttle(u32),
    Floor(u64),
    Receiving(u32, u32),
    Sending(u32, u32),
    CompletionDelay(u64),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let delays = || (prop_oneof![Just(0), 1u32..60], prop_oneof![Just(0), 1u32..120]);
    let step = prop_oneof![
        4 => any::<bool>().prop_map(|low| Step::Receive { low }),
        4 => (any::<(bool, bool)>(), 1u32..60).prop_map(|((delay, empty), descriptors)| {
            Step::Send { delay, empty, descriptors }
        }),
        1 => prop_oneof![Just(0), 0u64..LONGEST_PATIENCE].prop_map(Step::CompletionDelay),
        1 => prop_oneof![Just(LSC), Just(RXO), Just(MDAC)].prop_map(Step::Set),
        1 => Just(Step::Mask),
        2 => Just(Step::Unmask),
        3 => Just(Step::Read),
        1 => (0u32..600).prop_map(Step::Throttle),
        1 => (0u64..80_000).prop_map(Step::Floor),
        1 => delays().prop_map(|(packet, absolute)| Step::Receiving(packet, absolute)),
        1 => delays().prop_map(|(packet, absolute)| Step::Sending(packet, absolute)),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec((0u64..100_000, step), 1..120)
}

/// A guest with one interrupt line, and a poller that checks at the scheduled times.
struct Run {
    causes: Causes,
    now: u64,
    next: Option<u64>,
    interval: u64,
    floor: u64,
    receiving: (u32, u32),
    sending: (u32, u32),
    last: Option<u64>,
    /// Causes that have occurred and that the guest has not read yet, without delayed causes.
    owed: u32,
    unmasked: bool,
}

impl Run {
    fn new(known: u32) -> Run {
        let causes = Causes::new(known);
        let (receiving, sending) = ((0, 0), (0, 0));
        Run {
            causes,
            now: 1,
            next: None,
            interval: 0,
            floor: 0,
            receiving,
            sending,
            last: None,
            owed: 0,
            unmasked: false,
        }
    }

    fn settle(&mut self) {
        let raise = self.causes.settle(self.now);
        if raise.vectors != 0 {
            let since = self.last.map_or(u64::MAX, |last| self.now - last);
            assert!(since >= self.interval.max(self.floor), "{since} ns after the previous interrupt");
            assert!(self.unmasked, "masked");
            self.last = Some(self.now);
            self.causes.raised(raise.vectors, self.now);
        }
        assert!(raise.next.is_none_or(|next| next > self.now));
        self.next = raise.next;
    }

    /// Lets time pass. The poller checks exactly at the scheduled times.
    fn pass(&mut self, time: u64) {
        let until = self.now + time;
        while let Some(next) = self.next.filter(|&next| next <= until) {
            self.now = next;
            self.settle();
        }
        self.now = until;
    }

    fn follow(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Receive { low } => {
                let news = ReceivedEvent { low, ..RECEIVED };
                self.causes.received(news, self.receiving.0, self.receiving.1, || now);
                self.owed |= RXT0 | if low { RXDMT0 } else { 0 };
            }
            Step::Send { delay, empty, descriptors } => {
                let news = SentEvent { delay, empty, descriptors, ..REPORTED };
                self.causes.sent(news, self.sending.0, self.sending.1, || now);
                self.owed |= TXDW | if empty { TXQE } else { 0 };
            }
            Step::Set(causes) => {
                self.causes.set(causes);
                self.owed |= causes;
            }
            Step::Mask => {
                self.causes.mask(!0);
                self.unmasked = false;
            }
            Step::Unmask => {
                self.causes.unmask(0xffff);
                self.unmasked = true;
            }
            Step::Read => self.owed &= !self.causes.read(),
            Step::Throttle(register) => {
                self.causes.set_itr(register);
                self.interval = u64::from(register) * 256;
            }
            Step::Floor(floor) => {
                self.causes.set_min_interval(floor);
                self.floor = floor;
            }
            Step::Receiving(packet, absolute) => self.receiving = (packet, absolute),
            Step::Sending(packet, absolute) => self.sending = (packet, absolute),
            Step::CompletionDelay(within) => self.causes.set_completion_delay(within),
            Step::Flush => {
                self.causes.flush_receive();
                self.causes.flush_transmit();
            }
        }
        self.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: whole(300, 1_000), ..ProptestConfig::default() })]

    /// After any events, the guest is interrupted for all causes without a further event. No two interrupts are closer
    /// than the interval, and each comes within both delays and one interval.
    #[test]
    fn no_cause_is_lost_and_no_interval_is_broken(newer in any::<bool>(), steps in steps()) {
        let mut run = Run::new(if newer { NEW } else { OLD });
        for (gap, step) in steps {
            run.pass(gap);
            run.follow(step);
        }
        run.follow(Step::Unmask);
        // First the longest delay, then the longest interval.
        for wait in [LONGEST_PATIENCE.max(60 * 1_024), 600 * 256] {
            run.pass(wait);
        }
        let raised = run.causes.pin();
        prop_assert!(raised || run.owed & !run.causes.read() == 0 && run.owed == 0, "{:#x} are owed", run.owed);
        run.follow(Step::Read);
        prop_assert_eq!(run.owed, 0);
        prop_assert_eq!(run.next, None, "no check is scheduled");
    }

    /// Separate messages: each is raised for all its causes, and at most once per interval.
    #[test]
    fn no_message_is_lost_and_no_interval_is_broken(
        intervals in prop::array::uniform2(0u32..400),
        steps in prop::collection::vec((0u64..60_000, 0usize..3), 1..100),
    ) {
        let mut causes = Causes::new(NEW);
        causes.set_signalling(Signalling::PerVector);
        causes.set_ivar(8 | 9 << 8);
        causes.set_eiac(RXQ0 | TXQ0);
        causes.set_iam(!0);
        causes.set_ctrl_ext(EXT_EIAME);
        (0..2).for_each(|vector| causes.set_eitr(vector, intervals[vector]));
        let bits = [RXQ0, TXQ0];
        let (mut now, mut last, mut owed) = (1u64, [None; 2], [false; 2]);
        let mut look = |causes: &mut Causes, now: u64, owed: &mut [bool; 2]| {
            let raise = causes.settle(now);
            for vector in (0..2).filter(|vector| raise.vectors >> vector & 1 != 0) {
                if let Some(last) = last[vector] {
                    assert!(now - last >= u64::from(intervals[vector]) * 256);
                }
                last[vector] = Some(now);
                owed[vector] = false;
            }
            causes.raised(raise.vectors, now);
            raise.next
        };
        for (gap, what) in steps {
            let until = now + gap;
            while let Some(next) = look(&mut causes, now, &mut owed).filter(|&next| next <= until) {
                now = next;
            }
            now = until;
            match what {
                0 => { causes.received(RECEIVED, 0, 0, || now); owed[0] = true; }
                1 => { causes.sent(REPORTED, 0, 0, || now); owed[1] = true; }
                // The guest's handlers have finished.
                _ => causes.unmask(bits[0] | bits[1]),
            }
        }
        causes.unmask(bits[0] | bits[1]);
        while let Some(next) = look(&mut causes, now, &mut owed) {
            now = next;
        }
        prop_assert_eq!(owed, [false; 2]);
    }
}
