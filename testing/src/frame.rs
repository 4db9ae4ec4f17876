//! Ethernet addresses and frames. The EtherType is 0x88b5, IEEE 802 local experimental (IEEE 802, 9.2.3).

/// An Ethernet address.
pub type Address = [u8; 6];

/// The broadcast address.
pub const BROADCAST: Address = [0xff; 6];
/// EtherType of the frames.
pub const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes of an Ethernet header.
pub const HEADER: usize = 14;

/// Address of station `number`: locally administered, with the number in its last four bytes.
#[must_use]
pub fn station(number: impl Into<u32>) -> Address {
    let [a, b, c, d] = number.into().to_be_bytes();
    [2, 0, a, b, c, d]
}

/// A frame of 60 bytes whose payload repeats `number`.
#[must_use]
pub fn short(to: Address, from: Address, number: u8) -> [u8; 60] {
    let mut frame = [number; 60];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&ETHERTYPE);
    frame
}

/// A frame of `len` bytes whose payload is zeroes.
#[must_use]
pub fn blank(to: Address, from: Address, len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &ETHERTYPE].concat();
    frame.resize(len, 0);
    frame
}

/// A frame of `len` bytes whose payload is a pattern that depends on `number`.
#[must_use]
pub fn patterned(to: Address, from: Address, len: usize, number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &ETHERTYPE].concat();
    frame.extend((HEADER..len.max(HEADER)).map(|at| (at as u32).wrapping_mul(37).wrapping_add(number) as u8));
    frame.truncate(len);
    frame
}

/// A frame of `len` bytes between two stations, whose payload is a pattern that depends on `number`.
#[must_use]
pub fn between(to: u16, from: u16, len: usize, number: u32) -> Vec<u8> {
    patterned(station(to), station(from), len, number)
}

/// Bytes that depend on `seed` and on their place.
#[must_use]
pub fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7) as u8).collect()
}
