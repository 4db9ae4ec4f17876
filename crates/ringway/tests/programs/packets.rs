//! Frames of IP.

use ringway_testing::frame::{Address, blank, station};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// One side of a flow: the number of the station, the last byte of its address in 10.0.0.0/24, its port.
#[derive(Clone, Copy)]
pub struct End(pub u8, pub u8, pub u16);

/// A frame of TCP or UDP over IPv4.
pub fn ipv4(protocol: u8, from: End, to: End, payload: &[u8]) -> Vec<u8> {
    between(station(to.0), station(from.0), protocol, from, to, payload)
}

/// The same with these Ethernet addresses.
pub fn between(destination: Address, source: Address, protocol: u8, from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let mut frame = blank(destination, source, 14);
    frame[12..].copy_from_slice(&[8, 0]);
    let length = (28 + payload.len() as u16).to_be_bytes();
    frame.extend([0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, from.1, 10, 0, 0, to.1]);
    frame.extend([from.2, to.2].map(u16::to_be_bytes).concat());
    // The rest of UDP's header, and the begin of TCP's.
    frame.extend(if protocol == UDP { [0, 8 + payload.len() as u8, 0, 0] } else { [0; 4] });
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A frame of ARP to all.
pub fn arp(from: u8) -> Vec<u8> {
    let mut frame = blank([0xff; 6], station(from), 60);
    frame[12..14].copy_from_slice(&[8, 6]);
    frame
}

/// A frame of VXLAN with this network identifier.
pub fn vxlan(from: u8, to: u8, vni: u32) -> Vec<u8> {
    let [_, a, b, c] = vni.to_be_bytes();
    ipv4(UDP, End(from, from, 50_000), End(to, to, 4789), &[8, 0, 0, 0, a, b, c, 0])
}
