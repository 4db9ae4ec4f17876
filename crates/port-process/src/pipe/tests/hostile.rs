//! A program that writes anything into its memory, and the honest program at the other end.

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_abi::Slot;
use ringway_abi::doorbell::{INDEX, PAIR_WORDS, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH};
use ringway_abi::netmap::PipeRole;

use super::{End, SLOTS, pipe, region};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The hostile program writes a word of its doorbell.
    Word(usize, u32),
    /// It writes a slot of its transmit or of its receive ring.
    Slot(bool, u32, Slot),
    /// Its poller visits it. An end with a fault is closed, and opened again.
    ServeHostile,
    /// The honest program sends a frame if it can, returns everything, and its poller visits it.
    Honest,
    /// The honest program starts again.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = prop_oneof![Just(TX_CLIENT + INDEX), Just(RX_CLIENT + INDEX), 0..PAIR_WORDS];
    let value = prop_oneof![8 => 0..SLOTS, 1 => Just(SLOTS), 1 => any::<u32>()];
    let buffer = prop_oneof![4 => 0..100u32, 1 => any::<u32>()];
    let len = prop_oneof![4 => 0..100u16, 1 => any::<u16>()];
    let slot = (buffer, len, any::<u16>()).prop_map(|(buffer, len, flags)| Slot { buffer, len, flags });
    let step = prop_oneof![
        6 => (index, value).prop_map(|(index, value)| Step::Word(index, value)),
        6 => (any::<bool>(), 0..SLOTS, slot).prop_map(|(is_tx, at, slot)| Step::Slot(is_tx, at, slot)),
        4 => Just(Step::ServeHostile),
        4 => Just(Step::Honest),
        1 => Just(Step::Restart),
    ];
    vec(step, 1..100)
}

/// Returns the number of slots that an end has in the ring of these two lines of its doorbell.
fn slots(end: &End, client: usize, switch: usize) -> u32 {
    let [head, tail] = [client, switch].map(|line| end.word(line + INDEX));
    assert!(head < SLOTS && tail < SLOTS);
    (tail + SLOTS - head) % SLOTS
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_program_at_the_other_end_that_writes_anything_costs_an_honest_one_no_slot_no_buffer_and_no_fault(
        steps in steps()
    ) {
        let (pipe, regions) = (pipe(), [region(1), region(2)]);
        let free = regions[1].free_buffers();
        let open_hostile = || End::open(&pipe, PipeRole::Master, &regions[0]);
        let open_honest = || End::open(&pipe, PipeRole::Slave, &regions[1]);
        let (mut hostile, mut honest) = (open_hostile(), open_honest());
        for step in steps {
            match step {
                Step::Word(index, value) => hostile.set_word(index, value),
                Step::Slot(is_tx, at, slot) => {
                    let layout = hostile.layout();
                    hostile.set_slot(if is_tx { layout.tx_ring(0) } else { layout.rx_ring(0) }, at, slot);
                }
                Step::ServeHostile => {
                    let before = slots(&honest, RX_CLIENT, RX_SWITCH);
                    // The program may publish as fast as it is served.
                    if (0..4).any(|_| hostile.visit(256).is_err()) {
                        hostile.close();
                        hostile = open_hostile();
                    }
                    prop_assert!(before <= slots(&honest, RX_CLIENT, RX_SWITCH), "what has come stays");
                }
                Step::Honest => {
                    if slots(&honest, TX_CLIENT, TX_SWITCH) > 0 {
                        honest.send(1, 0);
                    }
                    for at in 0..slots(&honest, RX_CLIENT, RX_SWITCH) {
                        let slot = honest.slot(honest.layout().rx_ring(0), (honest.word(RX_CLIENT + INDEX) + at) % SLOTS);
                        prop_assert!(slot.buffer > 1 && u32::from(slot.len) <= honest.layout().shape.buffer_size);
                    }
                    honest.set_word(RX_CLIENT + INDEX, honest.word(RX_SWITCH + INDEX));
                    prop_assert_eq!(honest.serve(), Ok(()));
                }
                Step::Restart => {
                    honest.close();
                    honest = open_honest();
                }
            }
        }
        // A program that behaves gets all slots of the honest one.
        hostile.close();
        let mut other = open_hostile();
        other.serve().expect("no fault");
        other.set_word(RX_CLIENT + INDEX, other.word(RX_SWITCH + INDEX));
        honest.serve().expect("no fault");
        other.set_word(RX_CLIENT + INDEX, other.word(RX_SWITCH + INDEX));
        other.serve().expect("no fault");
        prop_assert_eq!(slots(&honest, TX_CLIENT, TX_SWITCH), SLOTS - 1);
        other.close();
        honest.close();
        prop_assert_eq!(regions[1].free_buffers(), free);
    }
}
