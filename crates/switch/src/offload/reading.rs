//! What a frame says of its sender, by an implementation that is not ours (etherparse).

use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, TransportSlice};

/// All that policy judges of a frame, and what a receiver needs to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) ethernet: [u8; 12],
    /// Contents of the VLAN tags.
    pub(crate) tags: Vec<u16>,
    /// An ARP packet, or version, protocol and addresses.
    pub(crate) network: Vec<u8>,
    /// The transport header's first four bytes: ports, or an ICMP type. None: there is none to be found.
    pub(crate) transport: Option<[u8; 4]>,
}

impl Reading {
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
                // The fragment header is what cutting adds.
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
