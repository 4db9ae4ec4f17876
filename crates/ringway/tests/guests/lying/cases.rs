//! The lies that a driver is told, one after the other.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use ringway_testing::random::Random;

use super::chip::*;
use super::lie::{Interrupting, Lie};
use super::rings::{DD, RX_EOP, Shared, WORDS};

/// Words of the status block that the device writes.
const HOST_TDH: usize = 16;
const HOST_NEED_TXKICK: usize = 17;
const HOST_RDH: usize = 20;
const HOST_NEED_RXKICK: usize = 21;
const HOST_ISR: usize = 22;
const HOST_RXKICK_AT: usize = 23;
/// In the high word of an address: such an address is in no guest's memory, so that the card itself destroys nothing.
const NOWHERE: u32 = 1 << 31;
/// VLAN tag present, in the status of a receive descriptor.
const VP: u32 = 1 << 3;

/// What the guest does while it is lied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum While {
    /// Sends and receives.
    Up,
    /// Closes and opens the device.
    Reopened,
    /// Takes the driver off the device and puts it back.
    Bound,
}

/// What makes the NIC usable again when the lies are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mended {
    /// Nothing, or what the driver does by itself.
    Itself,
    /// The user closes and opens the device.
    Reopened,
    /// The user binds the driver to the device again.
    Bound,
}

/// How driver and NIC tell each other how far they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By a status block.
    Block,
    /// By registers and descriptors alone.
    Registers,
}

/// One lie.
pub struct Case {
    pub name: &'static str,
    pub lie: fn(u64) -> Lie,
    /// Given to `lie`.
    pub number: u64,
    pub during: While,
    pub mended: Mended,
    /// The only mode in which the lie means anything.
    pub mode: Option<Mode>,
    /// The driver's counter that grows.
    pub counted: Option<&'static str>,
    /// Told for every change, and not only in `make guests`.
    pub is_usual: bool,
}

const fn up(name: &'static str, lie: fn(u64) -> Lie) -> Case {
    Case { name, lie, number: 0, during: While::Up, mended: Mended::Itself, mode: None, counted: None, is_usual: false }
}

const fn block(name: &'static str, lie: fn(u64) -> Lie) -> Case {
    Case { mode: Some(Mode::Block), ..up(name, lie) }
}

const fn reopened(name: &'static str, lie: fn(u64) -> Lie) -> Case {
    Case { during: While::Reopened, mended: Mended::Reopened, ..up(name, lie) }
}

const fn bound(name: &'static str, lie: fn(u64) -> Lie) -> Case {
    Case { during: While::Bound, mended: Mended::Bound, ..up(name, lie) }
}

impl Case {
    /// Told while the device is opened.
    pub const fn opened(self) -> Case {
        Case {
            name: "the device is gone while it is opened",
            during: While::Reopened,
            mended: Mended::Reopened,
            ..self
        }
    }

    const fn and_then(self, mended: Mended) -> Case {
        Case { mended, ..self }
    }

    const fn usual(self) -> Case {
        Case { is_usual: true, ..self }
    }

    const fn counts(self, counter: &'static str) -> Case {
        Case { counted: Some(counter), ..self }
    }
}

/// The lies. The driver may rest for a while before it resets a NIC again.
pub const CASES: &[Case] = &[
    // Transmission.
    up("all descriptors are done", |_| Lie::scribble(all_sent)),
    up("descriptors are done that are not sent", |_| Lie::scribble(all_sent).and_deaf().and_causes(TXDW)).usual(),
    up("the transmit head is out of range", |_| Lie::read(|at, value| if at == TDH { 0xffff } else { value })),
    block("the block's transmit head is far out of range", |_| bad_block()).counts("misuses"),
    block("the block's transmit head is just out of range", |_| word(HOST_TDH, |shared, _| places(shared.transmit)))
        .counts("misuses")
        .usual(),
    block("the block's transmit head goes back", |_| {
        word(HOST_TDH, |shared, number| places(shared.transmit).saturating_sub(1 + number % 256))
    })
    .counts("misuses"),
    block("the block's transmit head is ahead of the tail", |_| {
        word(HOST_TDH, |shared, number| {
            (shared.block[0].load(Relaxed) + 1 + number % 8) % places(shared.transmit).max(1)
        })
    })
    .counts("misuses"),
    block("the block's transmit head jumps", |_| random(&[HOST_TDH])).counts("misuses").usual(),
    block("the block's request for kicks changes", |_| random(&[HOST_NEED_TXKICK])),
    // Reception.
    up("a frame of no bytes", |_| length(0)).counts("rx_errors"),
    up("a frame of one byte", |_| length(1)).counts("rx_errors"),
    up("a frame shorter than its header", |_| length(13)).counts("rx_errors").usual(),
    up("a first part shorter than the header", |_| {
        let mut is_first = false;
        Lie::complete(move |words| {
            is_first = !is_first;
            words[2] = if is_first { 1 } else { 100 };
            words[3] = words[3] & !RX_EOP | if is_first { 0 } else { RX_EOP };
        })
    })
    .counts("rx_errors"),
    up("parts of one byte", |_| {
        let mut number = 0;
        Lie::complete(move |words| {
            number += 1;
            words[2] = 1;
            words[3] = words[3] & !RX_EOP | if number % 16 == 0 { RX_EOP } else { 0 };
        })
    })
    .counts("rx_errors"),
    up("a frame one byte longer than the buffer", |_| length(2049)).counts("rx_bad_descriptors").usual(),
    up("a frame of 65,535 bytes", |_| length(0xffff)).counts("rx_bad_descriptors"),
    up("a frame that never ends", |_| Lie::complete(|words| words[3] &= !RX_EOP)).counts("rx_bad_descriptors").usual(),
    up("a frame that ends before it is there", |_| Lie::complete(|words| words[3] &= !DD)),
    up("every error at once", |_| Lie::complete(|words| words[3] |= 0xff00)).counts("rx_errors"),
    up("tags and checksums at random", |_| {
        let mut random = Random::new(1);
        Lie::complete(move |words| {
            let bits = random.bits();
            words[2] |= (bits as u32) << 16;
            let tag = if bits >> 40 & 1 != 0 { VP } else { 0 };
            words[3] = words[3] & 0xff03 | bits as u32 & 0xffff_00f4 | tag;
        })
    }),
    up("addresses of buffers change", |_| Lie::complete(|words| (words[0], words[1]) = (0x5a5a_5a5a, NOWHERE))),
    up("all addresses of buffers change", |_| {
        let all = |shared: &Shared<'_>| shared.receive.chunks(WORDS).for_each(|words| set(&words[1], NOWHERE));
        Lie::scribble(all).and_flood()
    })
    .counts("rx_errors"),
    up("frames in descriptors that were not given", |_| Lie::scribble(not_given)).usual(),
    up("frames in all descriptors, again and again", |_| Lie::scribble(all_received).and_causes(RXT0)),
    block("the block's receive head is out of range", |_| word(HOST_RDH, |_, _| u32::MAX)),
    block("the block's receive head jumps", |_| random(&[HOST_RDH]).and_flood()).usual(),
    block("the block's request for buffers changes", |_| random(&[HOST_NEED_RXKICK, HOST_RXKICK_AT]).and_flood()),
    // Interrupts.
    block("the block has causes all the time", |_| word(HOST_ISR, |_, _| u32::MAX)),
    block("the block has causes now and then", |_| random(&[HOST_ISR]).and_flood()).usual(),
    up("all interrupt causes at once", |_| {
        Lie::read(|at, value| if at == ICR { u32::MAX } else { value }).and_causes(TXDW)
    }),
    up("interrupts without a cause", |_| Lie::interrupting(Interrupting::Storm(20_000))).usual(),
    up("all causes all the time", |_| Lie::default().and_causes(0x1_ffff)),
    up("no interrupt", |_| Lie::interrupting(Interrupting::Never)),
    up("the link goes and comes at every look", |_| {
        let mut random = Random::new(2);
        Lie::read(move |at, value| if at == STATUS { value ^ (STATUS_LU * (random.bits() & 1) as u32) } else { value })
            .and_causes(LSC)
    }),
    // Registers.
    // A driver that resets the NIC meanwhile gives it up.
    up("the device is gone", |_| Lie::read(|_, _| u32::MAX)).and_then(Mended::Reopened).usual(),
    reopened("the device is gone when it is opened", |_| Lie::read(|_, _| u32::MAX)).usual(),
    bound("the device is gone when it is bound", |_| Lie::read(|_, _| u32::MAX)).usual(),
    reopened("a reset that does not end when it is opened", |_| Lie::read(endless_reset)),
    bound("a reset that does not end when it is bound", |_| Lie::read(endless_reset)),
    bound("no address", |_| Lie::read(|at, value| if at == RAL || at == RAH { 0 } else { value })),
    bound("the address of a group", |_| Lie::read(|at, value| if at == RAL { value | 1 } else { value })),
    up("statistics of all ones", |_| {
        Lie::read(|at, value| if (STATISTICS..STATISTICS_END).contains(&at) { u32::MAX } else { value })
    }),
    bound("EEPROM and PHY that are never ready", |_| {
        Lie::read(|at, value| match at {
            EERD => value & !EERD_DONE,
            EECD => 0,
            MDIC => value & !MDIC_READY,
            _ => value,
        })
    }),
    up("registers at random", |_| registers(3)).usual(),
    reopened("registers at random when it is opened", |_| registers(4)),
];

fn endless_reset(at: u32, value: u32) -> u32 {
    if at == CTRL { value | CTRL_RST } else { value }
}

/// Every eighth register is any number.
fn registers(seed: u64) -> Lie {
    let mut random = Random::new(seed);
    Lie::read(move |_, value| if random.below(8) == 0 { random.bits() as u32 } else { value })
}

/// Lies that last longer than the kernel waits for a transmitter.
pub const STILL: &[Case] = &[
    up("nothing is sent", |_| Lie::default().and_deaf()),
    up("no interrupt for long", |_| Lie::interrupting(Interrupting::Never)),
];

/// The transmit head of the block is always wrong.
pub fn bad_block() -> Lie {
    word(HOST_TDH, |_, _| u32::MAX)
}

/// While it is bound, the device is gone from read number `number` on.
pub const fn gone_after(number: u64) -> Case {
    let gone = |mut left: u64| {
        Lie::read(move |_, value| {
            left = left.saturating_sub(1);
            if left == 0 { u32::MAX } else { value }
        })
    };
    Case { number, ..bound("the device is gone while it is bound", gone) }
}

/// Everything at random, with this seed.
pub const fn at_random(seed: u64) -> Case {
    Case { number: seed, ..up("everything at random", scribbler) }.and_then(Mended::Reopened)
}

/// Random words all over the rings and the status block.
fn scribbler(seed: u64) -> Lie {
    let mut random = Random::new(seed);
    let scribble = move |shared: &Shared<'_>| {
        let word = random.bits() as u32;
        let mut below = |end: usize| random.below(end.max(1) as u64) as usize;
        match below(4) {
            0 => shared.transmit.get(below(shared.transmit.len())).map(|place| place.store(word, Relaxed)),
            // The words that the device writes. Most of them have a meaning.
            1 => shared
                .block
                .get(HOST_TDH + below(HOST_RXKICK_AT + 1 - HOST_TDH))
                .map(|place| place.store(word, Relaxed)),
            _ => {
                let at = below(shared.receive.len());
                shared.receive.get(at).map(|place| match at % WORDS {
                    0 => {}
                    1 => place.store(word | NOWHERE, Relaxed),
                    _ => place.store(word, Relaxed),
                })
            }
        };
    };
    Lie::scribble(scribble).and_flood().and_causes(TXDW | RXT0)
}

/// Returns the number of descriptors in a ring.
fn places(ring: &[AtomicU32]) -> u32 {
    (ring.len() / WORDS) as u32
}

fn set(word: &AtomicU32, bits: u32) {
    word.fetch_or(bits, Relaxed);
}

fn all_sent(shared: &Shared<'_>) {
    shared.transmit.chunks(WORDS).for_each(|words| set(&words[3], DD));
}

fn all_received(shared: &Shared<'_>) {
    shared.receive.chunks(WORDS).for_each(receive);
}

fn receive(words: &[AtomicU32]) {
    words[2].store(60, Relaxed);
    words[3].store(DD | RX_EOP, Relaxed);
}

/// Frames in the next hundred descriptors, a single time.
pub fn hundred_received() -> Lie {
    let mut told = false;
    let once = move |shared: &Shared<'_>| {
        if !std::mem::replace(&mut told, true) {
            let next = shared.receive.chunks(WORDS).cycle().skip(shared.receive_head);
            next.take(if shared.receive.is_empty() { 0 } else { 100 }).for_each(receive);
        }
    };
    Lie::scribble(once).and_causes(RXT0)
}

fn not_given(shared: &Shared<'_>) {
    shared.receive.chunks(WORDS).nth(shared.receive_tail).into_iter().for_each(receive);
}

/// Frames of this length, as they say.
fn length(len: u32) -> Lie {
    Lie::complete(move |words| words[2] = words[2] & !0xffff | len)
}

/// A word of the status block that the driver cannot rely on.
fn word(at: usize, value: fn(&Shared<'_>, u32) -> u32) -> Lie {
    let mut number = 0;
    Lie::scribble(move |shared| {
        number += 1;
        if let Some(word) = shared.block.get(at) {
            word.store(value(shared, number), Relaxed);
        }
    })
    .and_causes(TXDW | RXT0)
}

/// Words of the status block that change at random: any number, or one that a ring has.
fn random(places: &'static [usize]) -> Lie {
    let mut random = Random::new(6);
    Lie::scribble(move |shared| {
        for &at in places {
            let value = if random.below(2) == 0 { random.bits() as u32 } else { random.below(300) as u32 };
            shared.block.get(at).into_iter().for_each(|word| word.store(value, Relaxed));
        }
    })
    .and_causes(TXDW | RXT0)
}
