//! How an endpoint behaves.

use std::net::Ipv4Addr;

use crate::connection::{MICROSECOND, Nanos, SECOND};

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most connections of one station: up to 740,000. There is room for half as many more, so that one that has all of these leaves
    /// some to others; all stations together have at most 1,048,576.
    pub connections: u32,
    /// Messages of each connection that are taken before the program has had them: 8 to 4,096.
    pub window: u16,
    /// Messages of each connection that may be queued and not acknowledged.
    pub queue: usize,
    /// Frames have checksums (CRC-32C); so have those of a peer, and if the peer wants it.
    pub checksums: bool,
    /// Most bytes of a long message that the endpoint takes; 0: none. Long messages that are not complete take at most 64 times as many bytes, over
    /// all connections. One station's messages take at most seven tenths of that, and the oldest of them lose their connections
    /// while they are more than an equal part and another station lacks its own. So do those that are slow, of 16 KiB per second after 30 s, if need be.
    pub long: u32,
    /// The interface's own IPv4 address, which no kernel has, for the segmentation layout; none: no such frames are taken.
    pub address: Option<Ipv4Addr>,
    /// Bytes of the messages that a segmented buffer becomes: what fits into a frame of the network.
    pub segment: u16,
    /// An acknowledgement waits at most so long for a message that carries it.
    pub acknowledge_within: Nanos,
    /// A connection without traffic for so long asks whether its peer is there; `None`: never.
    pub keep_alive: Option<Nanos>,
    /// A connection attempt ends without an answer for so long.
    pub connect_within: Nanos,
    /// Connections that are asked for and not complete: more displace the oldest.
    pub half_open: usize,
    /// Makes secrets: 64 random bits.
    pub random: fn() -> u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 1024,
            window: 1024,
            queue: 1024,
            checksums: false,
            long: 0,
            address: None,
            segment: 1440,
            acknowledge_within: 50 * MICROSECOND,
            keep_alive: None,
            connect_within: 5 * SECOND,
            half_open: 64,
            random,
        }
    }
}

/// Returns 64 bits of the kernel's random numbers.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let mut done = 0;
    while done < bytes.len() {
        // Does not fail after the boot; eight bytes come at once.
        done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
    u64::from_ne_bytes(bytes)
}
