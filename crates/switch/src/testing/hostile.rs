//! Generated frames of hostile senders: headers of all lengths, with offloads that match them or nearly match them.

use proptest::prelude::*;

use crate::testing::mac;
use crate::{Accepts, Gso, Offload};

/// A frame and its offload, by parts.
#[derive(Clone, Debug)]
pub(crate) struct Hostile {
    /// Types and contents of its VLAN tags.
    pub(crate) tags: Vec<(u16, u16)>,
    /// Kinds of IPv6 extension headers, and their lengths beyond 8 bytes in units of 8. None: IPv4.
    pub(crate) extensions: Option<Vec<(u8, u8)>>,
    /// Words of IPv4 options.
    pub(crate) options: usize,
    pub(crate) protocol: u8,
    /// ARP instead of IP.
    pub(crate) arp: bool,
    /// Words of a TCP header.
    pub(crate) words: u8,
    pub(crate) payload: usize,
    pub(crate) gso: Gso,
    pub(crate) gso_size: u16,
    /// `csum_start` and `csum_offset`, if they are wrong.
    pub(crate) places: Option<(u16, u16)>,
    /// Bytes that are overwritten at the end: offset and value.
    pub(crate) changes: Vec<(usize, u8)>,
    pub(crate) fill: u8,
}

impl Default for Hostile {
    fn default() -> Self {
        Hostile {
            tags: Vec::new(),
            extensions: None,
            options: 0,
            protocol: 17,
            arp: false,
            words: 5,
            payload: 1000,
            gso: Gso::None,
            gso_size: 100,
            places: None,
            changes: Vec::new(),
            fill: 7,
        }
    }
}

impl Hostile {
    /// Where the transport header begins.
    pub(crate) fn transport(&self) -> usize {
        let ip = match &self.extensions {
            _ if self.arp => 28,
            None => 20 + 4 * self.options,
            Some(extensions) => 40 + extensions.iter().map(|(_, more)| 8 * (1 + usize::from(*more))).sum::<usize>(),
        };
        14 + 4 * self.tags.len() + ip
    }

    /// The frame, from station 0 to station 1, and its offload.
    pub(crate) fn build(&self) -> (Vec<u8>, Offload) {
        let mut frame: Vec<u8> = mac(1).octets().into_iter().chain(mac(0).octets()).collect();
        for (kind, tag) in &self.tags {
            frame.extend(kind.to_be_bytes().into_iter().chain(tag.to_be_bytes()));
        }
        let transport_bytes = match self.protocol {
            6 => 4 * usize::from(self.words),
            17 | 58 => 8,
            _ => 4,
        };
        let bytes = transport_bytes + self.payload;
        match &self.extensions {
            _ if self.arp => {
                frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
                frame.extend(mac(0).octets().into_iter().chain([10, 0, 0, 1]));
                frame.extend(mac(1).octets().into_iter().chain([10, 0, 0, 2]));
            }
            None => {
                frame.extend([8, 0, 0x45 + self.options as u8, 0]);
                frame.extend((20 + 4 * self.options as u16 + bytes as u16).to_be_bytes());
                frame.extend([0, 9, 0, 0, 64, self.protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
                frame.extend(vec![1; 4 * self.options]);
            }
            Some(extensions) => {
                let kinds: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).chain([self.protocol]).collect();
                let len: usize = extensions.iter().map(|(_, more)| 8 * (1 + usize::from(*more))).sum();
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(((len + bytes) as u16).to_be_bytes());
                frame.extend([kinds[0], 64]);
                frame.extend([0xfd; 16].into_iter().chain([0xfc; 16]));
                for ((_, more), next) in extensions.iter().zip(&kinds[1..]) {
                    // One option of padding that fills it.
                    let len = 8 * (1 + usize::from(*more));
                    frame.extend([*next, *more, 1, (len - 4).min(255) as u8]);
                    frame.extend(vec![0; len - 4]);
                }
            }
        }
        assert_eq!(frame.len(), self.transport());
        match self.protocol {
            6 => {
                frame.extend([3, 232, 7, 208, 0, 0, 0, 1, 0, 0, 0, 2, self.words << 4, 0x18, 2, 0, 0, 0, 0, 0]);
                frame.resize(self.transport() + 4 * usize::from(self.words).max(5), 1);
            }
            17 => {
                frame.extend([3, 232, 7, 208]);
                frame.extend((bytes as u16).to_be_bytes().into_iter().chain([0, 0]));
            }
            58 => frame.extend([128, 0, 0, 0, 0, 1, 0, 2]),
            _ => frame.extend([0x80, 0, 8, 0, 0, 0, 0, 0]),
        }
        frame.resize(frame.len() + self.payload, self.fill);
        for (at, byte) in &self.changes {
            if let Some(place) = frame.get_mut(*at) {
                *place = *byte;
            }
        }
        let field = match self.protocol {
            6 => 16,
            17 => 6,
            47 => 4,
            _ => 2,
        };
        let (csum_start, csum_offset) = self.places.unwrap_or((self.transport() as u16, field));
        let gso_size = if self.gso == Gso::None { 0 } else { self.gso_size };
        let offload = Offload {
            needs_csum: true,
            gso: self.gso,
            ecn: false,
            hdr_len: 0,
            gso_size,
            csum_start,
            csum_offset,
            tunnel: None,
        };
        (frame, offload)
    }
}

/// Any set of offloads that a receiver may accept.
pub(crate) fn accepts() -> impl Strategy<Value = Accepts> {
    const ALL: [Accepts; 6] = [Accepts::CSUM, Accepts::TSO4, Accepts::TSO6, Accepts::ECN, Accepts::UFO, Accepts::USO];
    any::<u8>().prop_map(|bits| {
        let chosen = ALL.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
        chosen.fold(Accepts::NOTHING, |all, (_, one)| all | *one)
    })
}

/// Frames that mostly match their offload, except for the length of their headers.
pub(crate) fn hostile() -> impl Strategy<Value = Hostile> {
    let tag = (prop_oneof![6 => Just(0x8100u16), 2 => Just(0x88a8), 1 => Just(0x9100), 1 => Just(0x9300)], 0..4096u16);
    let tags = proptest::collection::vec(tag, 0..4);
    let extension = (prop_oneof![1 => Just(0u8), 1 => Just(43), 3 => Just(60)], 0..9u8);
    let extensions = proptest::option::weighted(0.7, proptest::collection::vec(extension, 0..5));
    let protocol = prop_oneof![5 => Just(6u8), 8 => Just(17), 1 => Just(47), 1 => Just(58)];
    let gso = prop_oneof![
        2 => Just(Gso::None),
        3 => Just(Gso::Tcp4),
        3 => Just(Gso::Tcp6),
        6 => Just(Gso::Udp4Frag),
        3 => Just(Gso::UdpL4)
    ];
    let ip = (tags, extensions, 0..11usize, protocol, 5..16u8);
    let sizes = (prop_oneof![0..40usize, 100..3000usize], gso, prop_oneof![1..40u16, 500..2000u16]);
    let places = proptest::option::weighted(0.2, (14..160u16, 0..60u16));
    let changes = proptest::collection::vec((0..150usize, any::<u8>()), 0..3);
    let changes = prop_oneof![4 => Just(Vec::new()), 1 => changes];
    (ip, sizes, places, changes, any::<u8>()).prop_map(
        |((tags, extensions, options, protocol, words), (payload, gso, gso_size), places, changes, fill)| {
            // Mostly the kind of segmentation that matches the protocol.
            let gso = match (gso, protocol, extensions.is_some()) {
                (Gso::Tcp4 | Gso::Tcp6, 6, v6) => {
                    if v6 {
                        Gso::Tcp6
                    } else {
                        Gso::Tcp4
                    }
                }
                (Gso::Udp4Frag | Gso::UdpL4, 6, v6) if fill % 8 > 0 => {
                    if v6 {
                        Gso::Tcp6
                    } else {
                        Gso::Tcp4
                    }
                }
                (Gso::Tcp4 | Gso::Tcp6, 17, _) if fill % 8 > 0 => Gso::Udp4Frag,
                (gso, ..) => gso,
            };
            let arp = fill % 32 == 1;
            Hostile { tags, extensions, options, protocol, arp, words, payload, gso, gso_size, places, changes, fill }
        },
    )
}
