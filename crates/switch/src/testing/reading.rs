//! A frame's headers as an independent implementation (etherparse) reads them.

use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, TransportSlice};

/// All fields that policy judges, and the fields by which a receiver finds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) ethernet: [u8; 12],
    /// Contents of the VLAN tags.
    pub(crate) tags: Vec<u16>,
    /// An ARP packet, or version, protocol and addresses.
    pub(crate) network: Vec<u8>,
    /// The transport header's first four bytes: ports, or an ICMP type. `None` if no transport header was found.
    pub(crate) transport: Option<[u8; 4]>,
}

impl Reading {
    /// Reads a frame that is still to be cut. Its IP header may name any length: the pieces get theirs from the frame's bytes, and
    /// policy judges those bytes whatever the header says of their number.
    pub(crate) fn of_uncut(frame: &[u8]) -> Reading {
        let packet = LaxSlicedPacket::from_ethernet(frame).expect("an Ethernet header");
        let place = |header: &[u8]| header.as_ptr() as usize - frame.as_ptr() as usize;
        // Where the length is, and the bytes before it that it does not count.
        let length = match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => Some((place(ip.header().slice()) + 2, place(ip.header().slice()))),
            Some(LaxNetSlice::Ipv6(ip)) => Some((place(ip.header().slice()) + 4, place(ip.header().slice()) + 40)),
            _ => None,
        };
        let mut frame = frame.to_vec();
        if let Some((at, uncounted)) = length
            && let Ok(bytes) = u16::try_from(frame.len() - uncounted)
        {
            frame[at..at + 2].copy_from_slice(&bytes.to_be_bytes());
        }
        Reading::of(&frame)
    }

    pub(crate) fn of(frame: &[u8]) -> Reading {
        let packet = LaxSlicedPacket::from_ethernet(frame).expect("an Ethernet header");
        let tags = packet.link_exts.iter().filter_map(|extension| match extension {
            LaxLinkExtSlice::Vlan(tag) => Some(u16::from_be_bytes([tag.slice()[0], tag.slice()[1]])),
            LaxLinkExtSlice::Macsec(_) => None,
        });
        let network = match &packet.net {
            Some(LaxNetSlice::Arp(arp)) => arp.slice().to_vec(),
            Some(LaxNetSlice::Ipv4(ip)) => [&[4, ip.header().protocol().0], &ip.header().slice()[12..20]].concat(),
            Some(LaxNetSlice::Ipv6(ip)) => {
                // Segmentation adds the fragment header.
                [&[6, ip.payload().ip_number.0], &ip.header().slice()[8..40]].concat()
            }
            None => vec![],
        };
        let transport = match &packet.transport {
            Some(TransportSlice::Udp(udp)) => udp.slice().first_chunk(),
            Some(TransportSlice::Tcp(tcp)) => tcp.slice().first_chunk(),
            Some(TransportSlice::Icmpv6(icmp)) => icmp.slice().first_chunk(),
            _ => None,
        };
        Reading {
            ethernet: *frame.first_chunk().expect("addresses"),
            tags: tags.collect(),
            network,
            transport: transport.copied(),
        }
    }
}
