//! Frames with arbitrary addresses and protocol fields, and the offload work that their senders leave undone.

use ringway_abi::offload::{Gso, Offload};

use crate::judge::Settings;

/// A random generator with a seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end.max(1) as u64) as usize
    }

    /// Returns true with a probability of 1 in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn of<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())].clone()
    }
}

/// Returns a frame from port `own` on a switch with these ports.
pub fn frame(dice: &mut Dice, own: &Settings, all: &[Settings]) -> (Vec<u8>, Option<Offload>) {
    // Most frames have addresses that their port may use, so that enough frames arrive for the judge.
    let other = dice.of(all);
    let who = |dice: &mut Dice| if dice.one_in(12) { other.clone() } else { own.clone() };
    let to = match dice.below(4) {
        0 => [0xff; 6],
        1 => [0x33, 0x33, 0, 0, 0, 1],
        _ => dice.of(all).mac,
    };
    let mut bytes: Vec<u8> = to.into_iter().chain(who(dice).mac).collect();
    let tags = dice.of(&[0, 0, 0, 1, 1, 2, 3]);
    for _ in 0..tags {
        let kind = dice.of(&[0x8100u16, 0x8100, 0x8100, 0x88a8, 0x9100]);
        let vlan = dice.of(&[0u16, 1, 2, 3, 4, 10, 20]) | (dice.below(16) as u16) << 12;
        bytes.extend(kind.to_be_bytes().into_iter().chain(vlan.to_be_bytes()));
    }
    let ip = bytes.len() + 2;
    match dice.below(9) {
        0..3 => {
            bytes.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1 + dice.below(2) as u8]);
            bytes.extend(who(dice).mac.into_iter().chain(who(dice).v4.to_be_bytes()));
            bytes.extend(other.mac.into_iter().chain(other.v4.to_be_bytes()));
            bytes.resize(bytes.len() + dice.below(60), 0);
        }
        3 => {
            bytes.extend([0x88, 0xb5]);
            bytes.extend((0..dice.below(600)).map(|_| 7));
        }
        4..6 => {
            let words = dice.of(&[0usize, 0, 0, 1, 10]);
            let protocol = dice.of(&[6u8, 17, 17, 1, 47]);
            let fragment = if dice.one_in(10) { dice.word() as u16 & 0x3fff } else { 0 };
            let payload = transport(dice, protocol);
            bytes.extend([8, 0, 0x45 + words as u8, 0]);
            bytes.extend(((20 + 4 * words + payload.len()) as u16).to_be_bytes().into_iter().chain([0, 9]));
            bytes.extend(fragment.to_be_bytes().into_iter().chain([64, protocol, 0, 0]));
            let source = if dice.one_in(10) { 0 } else { who(dice).v4 };
            bytes.extend(source.to_be_bytes().into_iter().chain(other.v4.to_be_bytes()));
            bytes.extend(std::iter::repeat_n(1, 4 * words));
            bytes.extend(payload);
        }
        _ => {
            let protocol = dice.of(&[6u8, 17, 17, 58, 58]);
            let mut kinds: Vec<u8> = (0..dice.of(&[0, 0, 1, 2, 3])).map(|_| dice.of(&[0, 43, 60, 60, 44])).collect();
            kinds.push(protocol);
            let extensions: Vec<usize> =
                kinds[1..].iter().zip(&kinds).map(|(_, kind)| if *kind == 44 { 0 } else { dice.below(10) }).collect();
            let payload = if protocol == 58 { discovery(dice, own, &other) } else { transport(dice, protocol) };
            let len = payload.len() + extensions.iter().map(|more| 8 + 8 * more).sum::<usize>();
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((len as u16).to_be_bytes().into_iter().chain([kinds[0], 255]));
            let source = if dice.one_in(8) { 0 } else { who(dice).v6 };
            bytes.extend(source.to_be_bytes().into_iter().chain(other.v6.to_be_bytes()));
            for (next, more) in kinds[1..].iter().zip(extensions) {
                bytes.extend([*next, more as u8, 0, 0, 0, 0, 0, 0]);
                bytes.extend(std::iter::repeat_n(0, 8 * more));
            }
            bytes.extend(payload);
        }
    }
    bytes.truncate(1800);
    if bytes.len() < 14 {
        bytes.resize(14, 0);
    }
    let offload = dice.of(&[false, true, true]).then(|| offload(dice, &bytes, ip));
    (bytes, offload)
}

/// Returns the offload work that is left undone: mostly at the right place, else at a place that would change the
/// fields that policies check.
fn offload(dice: &mut Dice, bytes: &[u8], ip: usize) -> Offload {
    let v6 = bytes.get(ip).is_some_and(|byte| byte >> 4 == 6);
    let start = match v6 {
        true => ip + 40,
        false => ip + bytes.get(ip).map_or(20, |byte| usize::from(byte & 15) * 4),
    };
    let tcp = bytes.get(if v6 { ip + 6 } else { ip + 9 }) == Some(&6);
    let offset = if tcp { 16 } else { 6 };
    let (csum_start, csum_offset) = match dice.below(4) {
        0 | 1 => (start, offset),
        // The checksum is stored anywhere between the Ethernet header and the transport header's end, and starts
        // before its field.
        2 => {
            let from = 14 + dice.below(start.saturating_sub(13).min(60));
            (from, dice.below((start + 8).saturating_sub(from)))
        }
        _ => (dice.below(200), dice.below(200)),
    };
    let gso = match dice.below(3) {
        0 if tcp => {
            if v6 {
                Gso::Tcp6
            } else {
                Gso::Tcp4
            }
        }
        0 => dice.of(&[Gso::Udp4Frag, Gso::UdpL4]),
        1 if dice.one_in(5) => dice.of(&[Gso::Tcp4, Gso::Tcp6, Gso::Udp4Frag, Gso::UdpL4]),
        _ => Gso::None,
    };
    let gso_size = if gso == Gso::None { 0 } else { 60 + dice.below(1400) as u16 };
    Offload {
        needs_csum: true,
        gso,
        ecn: false,
        hdr_len: 0,
        gso_size,
        csum_start: csum_start as u16,
        csum_offset: csum_offset as u16,
        tunnel: None,
    }
}

/// Returns a TCP, UDP or other header, and payload.
fn transport(dice: &mut Dice, protocol: u8) -> Vec<u8> {
    let payload = dice.of(&[0, 1, 30, 200, 1200]);
    let ports = [0; 2].map(|_| dice.of(&[9u16, 9, 9, 1000, 53, 67, 68, 546, 547])).map(u16::to_be_bytes);
    let mut bytes = ports.concat();
    match protocol {
        6 => {
            let words = dice.of(&[5u8, 5, 8, 15]);
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, words << 4, 0x18, 2, 0, 0, 0, 0, 0]);
            bytes.resize(4 * usize::from(words), 1);
        }
        17 => bytes.extend(((8 + payload) as u16).to_be_bytes().into_iter().chain([0, 0])),
        _ => bytes = vec![8, 0, 0, 0, 0, 0, 0, 0],
    }
    bytes.extend((0..payload).map(|at| at as u8));
    bytes
}

/// Returns an ICMPv6 message.
fn discovery(dice: &mut Dice, own: &Settings, other: &Settings) -> Vec<u8> {
    let kind = dice.of(&[128u8, 128, 133, 134, 135, 135, 136, 137, 143]);
    let mut bytes = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    let target = if dice.one_in(6) { other } else { own };
    match kind {
        134 => bytes.extend([0; 8]),
        135 | 136 => bytes.extend(target.v6.to_be_bytes()),
        137 => bytes.extend([0; 32]),
        128 | 143 => bytes.extend(vec![0; dice.below(40)]),
        _ => {}
    }
    if matches!(kind, 133..=137) && dice.one_in(2) {
        let named = if dice.one_in(6) { other } else { own };
        bytes.extend([if kind == 136 { 2 } else { 1 }, 1]);
        bytes.extend(named.mac);
    }
    bytes
}
