//! Ends that are opened and closed in any order, each time in any memory, against a model.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_abi::doorbell::{INDEX, RX_CLIENT, TX_CLIENT, TX_SWITCH};
use ringway_abi::netmap::PipeRole;
use ringway_abi::slot::NS_MOREFRAG;

use super::super::super::region::Region;
use super::super::Pipe;
use super::{End, SLOTS, pipe, region};

const ROLES: [PipeRole; 2] = [PipeRole::Master, PipeRole::Slave];

/// What one of the two programs, or its poller, does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Opens the end in the memory with this number, or closes it.
    Toggle(usize),
    /// Sends a frame of this many slots, if there are so many free ones.
    Send(u32),
    /// Returns this many of the received slots.
    Return(u32),
    /// The poller of the end visits it until nothing is left to do.
    Serve,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        3 => (0..3usize).prop_map(Step::Toggle),
        4 => (1..4u32).prop_map(Step::Send),
        3 => (1..6u32).prop_map(Step::Return),
        6 => Just(Step::Serve),
    ];
    vec((0..2usize, step), 1..60)
}

/// A slot of a frame that is on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    byte: u8,
    /// A program before has sent it, and the sender has another buffer in its place.
    earlier: bool,
}

/// One direction: the slots that the sender does not have.
#[derive(Debug, Default)]
struct Direction {
    slots: VecDeque<Sent>,
    /// How many of them the receiver has got.
    moved: usize,
    /// How many of these the receiver has returned. Its poller has not seen that yet.
    returned: usize,
}

impl Direction {
    fn pop(&mut self) {
        self.slots.pop_front();
        self.moved -= 1;
    }

    /// The poller of the receiver sees what the receiver has returned.
    fn give_back(&mut self) {
        (0..std::mem::take(&mut self.returned)).for_each(|_| self.pop());
    }

    /// The receiver closes. `has_sender`: the sender is open.
    fn take_back(&mut self, has_sender: bool) {
        self.give_back();
        while self.moved > 0 && self.slots[0].earlier {
            self.pop();
        }
        self.moved = 0;
        if !has_sender {
            self.slots.clear();
        }
    }

    /// The sender closes.
    fn leave(&mut self, has_receiver: bool) {
        if has_receiver { self.moved = self.slots.len() } else { self.slots.clear() }
    }
}

/// Two programs, and what is on its way from each.
struct Pair {
    pipe: Arc<Pipe>,
    regions: [Arc<Region>; 3],
    ends: [Option<(End, usize)>; 2],
    sent: [Direction; 2],
    byte: u8,
}

impl Pair {
    fn make(&mut self, at: usize, step: Step) {
        let other = 1 - at;
        let its = self.ends[other].as_ref().map(|&(_, memory)| memory);
        match (step, &mut self.ends[at]) {
            (Step::Toggle(memory), end @ None) => {
                *end = Some((End::open(&self.pipe, ROLES[at], &self.regions[memory]), memory));
                self.sent[at].slots.iter_mut().for_each(|slot| slot.earlier = its != Some(memory));
            }
            (Step::Toggle(_), end) => {
                end.take().expect("it is open").0.close();
                self.sent[at].leave(its.is_some());
                self.sent[other].take_back(its.is_some());
            }
            (Step::Send(slots), Some((end, _))) => {
                if self.sent[at].slots.len() as u32 + slots < SLOTS {
                    for left in (0..slots).rev() {
                        self.byte = self.byte.wrapping_add(1);
                        end.send(self.byte, if left > 0 { NS_MOREFRAG } else { 0 });
                        self.sent[at].slots.push_back(Sent { byte: self.byte, earlier: false });
                    }
                }
            }
            (Step::Return(slots), Some((end, _))) => {
                let from = &mut self.sent[other];
                let slots = (slots as usize).min(from.moved - from.returned);
                from.returned += slots;
                end.set_word(RX_CLIENT + INDEX, (end.word(RX_CLIENT + INDEX) + slots as u32) % SLOTS);
            }
            (Step::Serve, Some((end, _))) => {
                end.serve().expect("no program breaks the rules");
                self.sent[other].give_back();
                if its.is_some() {
                    self.sent[at].moved = self.sent[at].slots.len();
                }
            }
            (_, None) => {}
        }
        self.check();
    }

    fn check(&self) {
        for (at, end) in self.ends.iter().enumerate() {
            let Some((end, _)) = end else { continue };
            let from = &self.sent[1 - at];
            let received: Vec<u8> =
                from.slots.iter().take(from.moved).skip(from.returned).map(|slot| slot.byte).collect();
            assert_eq!(end.received(false), received, "at the end {at}");
            let free = (end.word(TX_SWITCH + INDEX) + SLOTS - end.word(TX_CLIENT + INDEX)) % SLOTS;
            assert_eq!(free as usize, SLOTS as usize - 1 - self.sent[at].slots.len(), "free slots of the end {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whichever_ends_come_and_go_each_frame_arrives_once_in_order_and_every_buffer_goes_back(steps in steps()) {
        let regions = [1, 2, 3].map(region);
        let free = regions.each_ref().map(|region| region.free_buffers());
        let sent = Default::default();
        let mut pair = Pair { pipe: pipe(), regions, ends: [None, None], sent, byte: 0 };
        for (at, step) in steps {
            pair.make(at, step);
        }
        for at in 0..2 {
            if pair.ends[at].is_some() {
                pair.make(at, Step::Toggle(0));
            }
        }
        prop_assert_eq!(pair.regions.each_ref().map(|region| region.free_buffers()), free);
    }
}
