//! Seed inputs: the actions of drivers, in the bytes that [`super::guest`] reads.

use super::*;

/// Places of the rings, in descriptors from the beginning of memory. Each has 64 descriptors; the buffers follow.
const TRANSMIT: u8 = 0;
const RECEIVE: u8 = 64;
/// Place of a frame. Its headers are written as if they were descriptors.
const FRAME: u8 = 128;
const RING_BYTES: u32 = 64 * 16;
const BUFFERS: u32 = AT as u32 + 0x2000;
/// Bits of a transmit descriptor: end of packet, frame check sequence and report status; extended descriptor (context);
/// extended descriptor (data).
const LAST: u32 = 0xb << 24;
const EXTENDED: u32 = 1 << 29;
const DATA: u32 = EXTENDED | 1 << 20;
/// Bit of a transmit descriptor: segmentation.
const CUT: u32 = 1 << 26;

/// Builds the input of a case.
struct Case(Vec<u8>);

impl Case {
    fn new(kind: u8) -> Case {
        Case(vec![kind])
    }

    fn bytes(mut self, bytes: &[u8]) -> Case {
        self.0.extend(bytes);
        self
    }

    fn number(self, value: u32) -> Case {
        self.bytes(&[7, 0]).bytes(&value.to_le_bytes())
    }

    fn write(self, register: u32, value: u32) -> Case {
        let place = LIVELY.iter().position(|&lively| lively == register).expect("a lively register");
        self.bytes(&[0, place as u8]).number(value)
    }

    fn read(self, register: u32) -> Case {
        self.bytes(&[4]).bytes(&register.to_le_bytes()).bytes(&[4])
    }

    fn descriptor(self, at: u8, address: u32, word: [u32; 2]) -> Case {
        self.bytes(&[12, at]).number(address).bytes(&[0]).number(word[0]).number(word[1])
    }

    /// Writes sixteen bytes of the frame at offset `at`, a multiple of 16.
    fn frame(self, at: u8, words: [u32; 4]) -> Case {
        self.bytes(&[12, FRAME + at / 16]).number(words[0]).bytes(&[words[1] as u8]).number(words[2]).number(words[3])
    }

    /// Brings up the link and the rings, and gives eight receive buffers.
    fn up(self, receive: u32) -> Case {
        let at = AT as u32;
        let case = self
            .write(CTRL, CTRL_SLU | CTRL_VME)
            .write(VET, 0x8100)
            .write(IMS, !0)
            .write(TDBAL, at + u32::from(TRANSMIT) * 16)
            .write(TDLEN, RING_BYTES)
            .write(TCTL, TCTL_EN | TCTL_PSP)
            .write(RDBAL, at + u32::from(RECEIVE) * 16)
            .write(RDLEN, RING_BYTES)
            .write(RCTL, receive);
        let given = (0..8)
            .fold(case, |case, number| case.descriptor(RECEIVE + number, BUFFERS + u32::from(number) * 2048, [0; 2]));
        given.write(RDT, 8)
    }

    fn pass(self) -> Case {
        self.bytes(&[8, 15])
    }

    fn end(self) -> Vec<u8> {
        self.read(ICR).read(STATISTICS + 0x80).bytes(&[15]).0
    }
}

const ALL: u32 = RCTL_EN | 0x8018;

/// Returns the names and bytes of the seeds.
#[must_use]
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let frame = AT as u32 + u32::from(FRAME) * 16;
    let send = |kind: u8| Case::new(kind).up(ALL).descriptor(TRANSMIT, frame, [LAST | 60, 0]).write(TDT, 1).pass();
    let receive = |kind: u8, control: u32| Case::new(kind).up(control).bytes(&[10, 0xff, 40, 3, 10, 0, 0, 7]);
    // IPv4 and TCP, with headers of 54 bytes.
    let context = [4 << 24 | 50 << 8 | 34, EXTENDED | 7 << 24 | 346, 54 << 8 | 100 << 16];
    let segments = Case::new(0)
        .up(ALL)
        .frame(0, [0xff, 0, 0, 0x0045_0008])
        .frame(16, [0, 6, 0, 0])
        .frame(32, [0, 0, 0, 0x0050_0000])
        .bytes(&[12, TRANSMIT])
        .number(33 << 16 | 24 << 8 | 14)
        .bytes(&[34])
        .number(context[1])
        .number(context[2])
        .descriptor(TRANSMIT + 1, frame, [LAST | DATA | CUT | 400, 0x300])
        .write(TDT, 2)
        .pass();
    let csb = Case::new(0)
        .up(ALL)
        .write(CSBAH, 0)
        .write(CSBAL, BUFFERS + 0x8000)
        .descriptor(TRANSMIT, frame, [LAST | 60, 0])
        .write(TDT, 1)
        .pass();
    vec![
        ("send", send(0).end()),
        ("send-e1000e", send(1 | 2 << 4).end()),
        ("segments", segments.end()),
        ("receive", receive(0, ALL).pass().end()),
        ("receive-small", receive(0, ALL | 3 << 16).pass().end()),
        ("receive-extended", Case::new(0x21).write(RFCTL, RFCTL_EXSTEN).bytes(&receive(0, ALL).0[1..]).pass().end()),
        ("receive-split", Case::new(1).write(PSRCTL, 0x0202_0202).bytes(&receive(0, ALL | RCTL_SPLIT).0[1..]).end()),
        ("loop", Case::new(0).up(ALL | 1 << 6).descriptor(TRANSMIT, frame, [LAST | 60, 0]).write(TDT, 1).pass().end()),
        ("loop-phy", Case::new(1).write(MDIC, 1 << 26 | 1 << 21 | 0x4140).bytes(&send(1).0[1..]).end()),
        ("delays", Case::new(0).write(TIDV, 32).write(TADV, 64).write(RDTR, 8).bytes(&send(0).0[1..]).end()),
        ("messages", Case::new(0x21).write(IVAR, 0x000b_a908).write(EIAC, 0x01f0_0000).bytes(&send(1).0[1..]).end()),
        ("status-block", csb.end()),
        ("eeprom", Case::new(1).write(EEWR, 0x1234_0001).write(EERD, 1).write(EECD, 2).write(EECD, 7).end()),
        ("memory-goes", send(0).bytes(&[11, 4]).write(TDT, 3).pass().bytes(&[11, 6]).write(TCTL, TCTL_EN).pass().end()),
        ("reset", send(0).write(CTRL, CTRL_RST).bytes(&send(0).0[1..]).bytes(&[11, 3]).end()),
    ]
}
